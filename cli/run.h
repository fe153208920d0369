/* run.h - the loop at work, for `rein run` and `rein demo`. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "training.h"

/* Prints the results when the work is over, finished or interrupted; returns the exit status. */
typedef int cli_run_end(const cli_training *t, const rein_loop *loop, const char *report, void *context);

/* Opens the loop with t->given, shows its progress, writes summary and report, and calls `end`. Returns an exit status. */
int cli_run_work(cli_training *t, cli_run_end *end, void *context);

/* Appends a table of the first and the last evaluation; and one more row of it. */
void cli_run_table(rein_text *out, const rein_loop *loop);
void cli_run_row(rein_text *out, const char *name, const rein_loop_evaluation *evaluation);

/* run_plan.c: prints notes on settings that are allowed and rarely meant; and does what --dry-run asks for. Returns an exit status. */
void cli_run_notes(const cli_training *t, rein_loop *loop);
int cli_run_plan(cli_training *t, int json);

#endif
