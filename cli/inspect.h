/* inspect.h - the parts of `rein inspect`: inspect.c (models, adapters, and the command), inspect_run.c (runs and checkpoints).
 *
 * Every function that returns an int, except cli_is_run and cli_is_checkpoint, returns an exit status, after printing what is wrong. */
#ifndef CLI_INSPECT_H
#define CLI_INSPECT_H

#include "policy.h"
#include "sheet.h"

void cli_inspect_model(cli_sheet *sheet, const cli_opened *opened);

/* The files of an adapter, without its model. */
int cli_inspect_adapter(cli_sheet *sheet, const char *directory);

/* 1 if the directory is a run; 1 if it is a checkpoint of a run: RUN/checkpoints/0007. */
int cli_is_run(const char *path);
int cli_is_checkpoint(const char *path);

/* Prints the settings of a run, its steps, its checkpoints and whether they are good, and the last metrics. */
int cli_inspect_run(const char *path, int json);

/* Prints the contents of a checkpoint, and whether it is good; if not, the status is 1. */
int cli_inspect_checkpoint(const cli_args *args, const char *path, int json);

#endif
