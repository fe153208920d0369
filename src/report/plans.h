/* plans.h - the commands that keep a plan of their own with a run: how often they go through which data, in RUN/COMMAND.json. A new such
 * command is one row in plans.c. */
#ifndef REIN_REPORT_PLANS_H
#define REIN_REPORT_PLANS_H

#include <stddef.h>

/* 1 if the first `length` bytes of `name` are the name of a plan's file, as in "sft.json". */
int rein_is_plan_file(const char *name, size_t length);

#endif
