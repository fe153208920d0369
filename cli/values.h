/* values.h - the values of options as numbers, and the threads and kernels that work uses.
 *
 * Each reader leaves its result unchanged if the option is absent. It returns an exit status, after printing what is wrong. */
#ifndef CLI_VALUES_H
#define CLI_VALUES_H

#include "help.h"
#include "rein/tokenizer.h"

/* A whole number from least to most. */
int cli_value_whole(uint64_t *value, const cli_args *args, const char *name, uint64_t least, uint64_t most);

/* A number for which `fits` is true; `need` describes it: "above 0 and at most 1". */
int cli_value_number(double *value, const cli_args *args, const char *name, int (*fits)(double), const char *need);

/* Token ids as 1,2,3, blanks and brackets allowed, appended to ids; at least one. */
int cli_value_ids(rein_ids *ids, const cli_args *args, const char *name);

/* The first character that is not a blank: space, tab, newline or carriage return. */
const char *cli_skip_blanks(const char *text);

/* "RUN@7" or "RUN": returns the length of the run's name; *step is -1 if there is none. */
size_t cli_value_run(int64_t *step, const char *text);

/* The instruction set of the environment variable REIN_KERNEL; *isa is unchanged if it is not set. */
int cli_value_kernel(rein_isa *isa, const char *where);

/* The option --threads, and REIN_KERNEL. */
int cli_value_exec(rein_exec *exec, const cli_args *args);

#endif
