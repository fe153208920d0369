/* inspect_model.h - what `rein inspect` says of a model beyond its sizes: its parts, and the memory it needs. */
#ifndef CLI_INSPECT_MODEL_H
#define CLI_INSPECT_MODEL_H

#include "policy.h"
#include "sheet.h"

/* The parts that config.json describes. An exit status, after printing what is wrong. */
int cli_inspect_parts(cli_sheet *sheet, const cli_opened *opened);

/* The types of tensors and the metadata of a GGUF file; of a directory nothing. An exit status. */
int cli_inspect_gguf(cli_sheet *sheet, const cli_opened *opened);

/* The memory for sampling and for training, of --samples sequences of --tokens tokens. An exit status. */
int cli_inspect_memory(cli_sheet *sheet, const cli_opened *opened, const cli_args *args);

#endif
