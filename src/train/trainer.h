/* trainer.h - inside of a trainer, for trainer.c (gradients, optimizer), trainer_pass.c (forward, backward) and trainer_files.c. Private. */
#ifndef REIN_TRAIN_TRAINER_H
#define REIN_TRAIN_TRAINER_H

#include "base/arena.h"
#include "rein/train.h"

/* Defaults of rein_trainer_options; all weights have one shard. */
enum { REIN_ADAPTER_SHARDS = 16, REIN_SHARE_LIMIT = 16 };

/* Called before every micro-batch of a forward pass, with a backward pass (`done` of `all` micro-batches were trained) or without (all is 0:
 * a reference, for example). Not 0: the pass stops with REIN_ECANCELLED. */
typedef struct rein_trainer_watch {
    int (*call)(void *context, size_t done, size_t all); /* NULL: none */
    void *context;
} rein_trainer_watch;

struct rein_trainer {
    rein_model *model;
    rein_adapter *adapter;
    rein_trainer_options options; /* with the defaults put in */
    rein_activations *activations;
    rein_activations *reference_activations; /* of the reference, in a pass that computes the exact KL */
    rein_arena arena;                        /* of a pass */
    size_t floats, n_parameters;
    rein_parameter *parameters;
    float *shards;         /* [shards][floats] gradients */
    float *first, *second; /* [floats] of AdamW */
    int64_t steps;
    size_t groups; /* whose gradients were added since the last step: the index of the next one */
    int holds;     /* 1: the gradient is not 0 */
    rein_trainer_watch watch;
};

/* REIN_EINVAL if a policy cannot have this temperature. */
rein_status rein_check_temperature(double temperature, rein_error *err);

/* REIN_EINVAL if AdamW cannot make a step with these options. adamw.c has it. */
rein_status rein_adamw_check(const rein_adamw *options, rein_error *err);

/* Makes the gradient 0. */
void rein_trainer_clear(rein_trainer *trainer);

/* Lays out a step of the groups and computes its loss without a forward pass, from the recorded log-probs: finds what would make
 * rein_trainer_forward_backward fail. The gradient stays as it is. */
rein_status rein_trainer_check(rein_loss *loss, rein_trainer *trainer, const rein_groups *groups, const rein_pass_options *options,
                               rein_error *err);

#endif
