/* memory.h - what a run is estimated to need in memory, said before it begins. An estimate only warns. */
#ifndef CLI_MEMORY_H
#define CLI_MEMORY_H

#include "training.h"

/* Before anything is opened: a note if the run will not fit. `parts` is what the command does; one that only trains does not know its data
 * yet, and is estimated without activations. */
void cli_memory_foresee(cli_training *t, rein_memory_parts parts);

/* Estimates a run whose session is prepared. For REIN_MEMORY_RUN `tokens` is the length of a prompt; for training alone `groups` are the
 * data. Returns 0 if there is no estimate. */
int cli_memory_estimate(rein_memory_use *use, const rein_settings *settings, rein_memory_parts parts, size_t tokens,
                        const rein_groups *groups);

/* A note if it will not fit, unless cli_memory_foresee said so. The weights are in memory. */
void cli_memory_note(cli_training *t, const rein_memory_use *use);

/* The row of --dry-run. */
void cli_memory_row(rein_text *out, const rein_memory_use *use);

#endif
