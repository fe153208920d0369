/* sft_plan.h - how often and in which pieces `rein sft` goes through its data; kept with the run, in RUN/sft.json. */
#ifndef REIN_CLI_SFT_PLAN_H
#define REIN_CLI_SFT_PLAN_H

#include <stdint.h>

#include "help.h"

typedef struct rein_sft_plan {
    char data[4096];                       /* the file */
    char chat_format[32];                  /* as given; "": the model's own */
    int64_t batch_size, epochs, max_steps; /* max_steps 0: as many as the epochs have */
    int64_t examples;                      /* that the run was begun with; 0: not known */
    int64_t steps_per_epoch, total;        /* steps; known when the data is read */
} rein_sft_plan;

/* The options --data, --chat-format, --batch-size, --num-train-epochs and --max-steps, and before them what `run` (NULL: a new one) was begun with. All
 * return an exit status, having said what is wrong. */
int rein_sft_plan_read(rein_sft_plan *plan, const rein_args *args, const char *run);

/* The data has so many examples. */
int rein_sft_plan_finish(rein_sft_plan *plan, size_t examples);

/* Writes RUN/sft.json, whole or not at all. */
int rein_sft_plan_write(const rein_sft_plan *plan, const char *run);

#endif
