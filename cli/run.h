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

#endif
