/* inspect.h - the parts of `rein inspect`: inspect.c (models, and the command), inspect_adapter.c, inspect_run.c (runs and checkpoints).
 *
 * Every function that returns an int, except rein_is_run and rein_is_checkpoint, returns an exit status, after printing what is wrong. */
#ifndef REIN_CLI_INSPECT_H
#define REIN_CLI_INSPECT_H

#include "policy.h"
#include "sheet.h"

void rein_inspect_model(rein_sheet *sheet, const rein_opened *opened);

/* An adapter, opened with the model; and its files alone, without a model. */
int rein_inspect_adapter(rein_sheet *sheet, const char *directory, const rein_opened *opened);
int rein_inspect_adapter_alone(rein_sheet *sheet, const char *directory);

/* 1 if the directory is a run; 1 if it is a checkpoint of a run: RUN/checkpoints/0007. */
int rein_is_run(const char *path);
int rein_is_checkpoint(const char *path);

/* Prints the settings of a run, its steps, its checkpoints and whether they are good, and the last metrics. */
int rein_inspect_run(const char *path, int json);

/* Prints the contents of a checkpoint, and whether it is good; if not, the status is 1. */
int rein_inspect_checkpoint(const rein_args *args, const char *path, int json);

#endif
