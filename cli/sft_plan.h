/* sft_plan.h - how often `rein sft`, `rein dpo`, `rein reward` and `rein distill` go through their data, and in which batches; kept with the run, in
 * RUN/COMMAND.json, which also has the loss over pairs. */
#ifndef CLI_SFT_PLAN_H
#define CLI_SFT_PLAN_H

#include <stdint.h>

#include "help.h"
#include "rein/train.h"

typedef struct cli_sft_plan {
    const char *command;                /* "sft", "dpo", "reward" or "distill": set before reading */
    int reward;                         /* 1: of reward */
    int distill;                        /* 1: of distill */
    double own_share, nll_coef;         /* of distill: lambda of GKD, and the weight of the log-likelihood of given completions */
    int64_t max_new_tokens;             /* of distill: of an own sample */
    rein_reward_training training;      /* of reward: the rest of its loss */
    char held_out[4096];                /* of reward: the file of --held-out, or "" */
    const rein_preference_info *loss;   /* of dpo; NULL: sft */
    rein_preference_options preference; /* of dpo: the loss with its constants */
    char data[4096];                    /* the file */
    char chat_format[32];               /* as given; "": the model's own */
    int64_t batch_size, epochs, max_steps; /* max_steps 0: as many as the epochs have */
    int64_t examples;                      /* that the run was started with; 0: not known */
    int64_t steps_per_epoch, total;        /* steps; known when the data is read */
} cli_sft_plan;

/* For dpo also --loss and its constants. The options --data, --chat-format, --batch-size, --num-train-epochs and --max-steps, over those that `run` (NULL: a new one) was
 * started with. All return an exit status; unless it is CLI_DONE, the error has been printed. */
int cli_sft_plan_read(cli_sft_plan *plan, const cli_args *args, const char *run);

/* 1 if the data is labelled completions, for kto. */
int cli_sft_plan_has_labels(const cli_sft_plan *plan);

/* Sets the numbers that depend on how many examples the data has. */
int cli_sft_plan_finish(cli_sft_plan *plan, size_t examples);

/* Makes the session write RUN/COMMAND.json with its settings, and before them. */
int cli_sft_plan_keep(const cli_sft_plan *plan, rein_session *session);

#endif
