/* inspect_groups.h - `rein inspect FILE`: trajectory groups. */
#ifndef CLI_INSPECT_GROUPS_H
#define CLI_INSPECT_GROUPS_H

#include "help.h"

/* 1 if the path looks like trajectory groups: standard input (-), a file whose name ends with .jsonl or .parquet, or that begins with {. */
int cli_is_groups(const char *path);

/* Reads the groups, with the tokenizer of --model if that is given, and describes them. Returns an exit status. */
int cli_inspect_groups(const cli_args *args, const char *path);

#endif
