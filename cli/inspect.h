/* inspect.h - the parts of `rein inspect`: inspect.c (models, and the command), inspect_adapter.c, inspect_run.c (runs and checkpoints).
 *
 * Every int is an exit status: when it is not REIN_DONE, what is wrong has been said. */
#ifndef REIN_CLI_INSPECT_H
#define REIN_CLI_INSPECT_H

#include "policy.h"
#include "sheet.h"

void rein_inspect_model(rein_sheet *sheet, const rein_opened *opened);

/* As an adapter of the model; and what its files say, checked against no model. */
int rein_inspect_adapter(rein_sheet *sheet, const char *directory, const rein_opened *opened);
int rein_inspect_adapter_alone(rein_sheet *sheet, const char *directory);

/* 1 if the directory is a run; if it is a checkpoint of one: RUN/checkpoints/0007. */
int rein_is_run(const char *path);
int rein_is_checkpoint(const char *path);

/* Prints what there is to say of a run: settings, steps, checkpoints and whether they are good, the last figures. */
int rein_inspect_run(const char *path, int json);

/* Prints what is in a checkpoint, and whether it is what was written; if not, the status is 1. */
int rein_inspect_checkpoint(const rein_args *args, const char *path, int json);

#endif
