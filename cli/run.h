/* run.h - the loop at work, for `rein run` and `rein demo`. */
#ifndef REIN_CLI_RUN_H
#define REIN_CLI_RUN_H

#include "training.h"

/* What is said when the work is over, finished or interrupted; returns the exit status. */
typedef int rein_run_end(const rein_training *t, const rein_loop *loop, const char *report, void *context);

/* Opens the loop with t->given, shows it at work, writes summary and report, and calls `end`. Returns an exit status. */
int rein_run_work(rein_training *t, rein_run_end *end, void *context);

/* Base and final, one line each, with a head, appended; and one line more. */
void rein_run_table(rein_text *out, const rein_loop *loop);
void rein_run_row(rein_text *out, const char *name, const rein_loop_evaluation *evaluation);

#endif
