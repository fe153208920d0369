/* trainer.h - inside of a trainer, for trainer.c (optimizer), trainer_gradient.c (shards and their sum), trainer_pass.c (forward, backward),
 * trainer_ranks.c (what ranks exchange) and trainer_files.c. Private. */
#ifndef REIN_TRAIN_TRAINER_H
#define REIN_TRAIN_TRAINER_H

#include "base/arena.h"
#include "dist/ranks.h"
#include "model/expert_load.h"
#include "packing.h"
#include "rein/train.h"

/* Defaults of rein_trainer_options, where all weights have one shard; and the shards of a new run in which all weights train. */
enum { REIN_ADAPTER_SHARDS = 16, REIN_SHARE_LIMIT = 16, REIN_FULL_SHARDS = 8 };

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
    rein_expert_load *load;                  /* of its backward passes, or NULL */
    rein_arena arena;                        /* of a pass */
    size_t floats, n_parameters;
    rein_parameter *parameters;
    float *values;  /* [floats] what trains */
    float *buffers; /* [shards][floats] gradients; all 0 where `taken` is 0. Pages of buffers that were never taken do not exist */
    int *buffer_of; /* [shards] of a sum that begins with this shard; -1: there is none */
    unsigned char *taken;  /* [shards] buffers in use */
    float *first, *second; /* [floats] of AdamW; with several ranks only this rank's part is used */
    int64_t steps;
    size_t groups; /* whose gradients were added since the last step: the index of the next one */
    int holds;     /* 1: the gradient is not 0 */
    rein_trainer_watch watch;
    rein_ranks *ranks; /* NULL: one */
    uint64_t moments;  /* of several ranks: the hash of this one's moments after its last step; 0: not known */
    size_t dealt;      /* groups by which the shards of this gradient were dealt to the ranks; 0: not yet */
    int last_pass; /* 1: no pass follows the next one before the optimizer: sums of shards can be made as soon as they are complete */
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

/* Calls the watch; REIN_ECANCELLED if it stops the pass. */
rein_status rein_trainer_ask_watch(const rein_trainer *trainer, size_t done, size_t all, rein_error *err);

/* ---- trainer_scores.c: passes of a policy with a score head */

/* A pass of a reward model over pairs. */
typedef struct rein_reward_pass {
    double center_rewards_coefficient;
    const double *margins; /* [groups] or NULL: 0 */
    /* Results: */
    double *rewards; /* [2·groups] of the chosen and the rejected one of each pair; memory of the caller's */
    double loss;
    int nothing_to_train;
    double seconds_forward, seconds_backward;
} rein_reward_pass;

/* Adds the gradient of rein_reward_loss over pairs, groups of two trajectories of one history each, whose last token alone is in the mask, to
 * that of the trainer. The whole of `groups` is one optimizer step. On failure the gradient of the trainer is 0. */
rein_status rein_trainer_reward_pass(rein_reward_pass *pass, rein_trainer *trainer, const rein_groups *groups, rein_error *err);

/* A pass of a critic over the trained tokens of groups. */
typedef struct rein_value_pass {
    const float *old_values, *returns; /* [tokens of all histories, in order] */
    double value_clip;                 /* 0 or more; INFINITY: no clipping */
    int mask_truncated;                /* 1: truncated trajectories do not train */
    /* Results: */
    double loss;
    double clip_fraction; /* share of the tokens that have no gradient since their value is clipped */
    int nothing_to_train;
    double seconds_forward, seconds_backward;
} rein_value_pass;

/* Adds the gradient of rein_value_loss over the trained tokens to that of the trainer; the value of a token is its score with `before`. The
 * whole of `groups` is one optimizer step. On failure the gradient of the trainer is 0. */
rein_status rein_trainer_value_pass(rein_value_pass *pass, rein_trainer *trainer, const rein_groups *groups, rein_error *err);

/* ---- trainer_gradient.c */

/* The shard of group number `group` of a pass. */
size_t rein_trainer_shard_of(const rein_trainer *trainer, size_t group);

/* Before a pass of n groups: deals the shards to the ranks, unless an earlier pass has dealt those of this gradient. */
void rein_trainer_deal(rein_trainer *trainer, size_t n_groups);

/* The rank that has a shard. */
size_t rein_trainer_rank_of(const rein_trainer *trainer, size_t shard);

/* Where the gradient of a shard is added up, [floats]. */
float *rein_trainer_shard(rein_trainer *trainer, size_t shard);

/* Nothing will be added to the shards up to this one: sums that are complete are made, and their buffers used again. */
void rein_trainer_close_shards(rein_trainer *trainer, size_t shard);

/* Adds all shards, of all ranks. The gradients of trainer->parameters are the sum: all of it, or with several ranks this rank's part. */
rein_status rein_trainer_sum(rein_trainer *trainer, rein_error *err);

/* ---- trainer_ranks.c */

/* The ranks that share the work of a trainer; they must outlive it. Before its first pass. From then on all ranks make the same calls with the
 * same groups, and results are those of one rank bit for bit. */
void rein_trainer_set_ranks(rein_trainer *trainer, rein_ranks *ranks);

/* REIN_ESYSTEM, which names a rank, if the weights that train are not the same on all. */
rein_status rein_trainer_compare(rein_trainer *trainer, rein_error *err);

/* REIN_ESYSTEM if this rank's moments are not those that rein_trainer_note_moments has seen. */
rein_status rein_trainer_check_moments(const rein_trainer *trainer, rein_error *err);
void rein_trainer_note_moments(rein_trainer *trainer);

/* Brings the optimizer's moments to rank 0, which can then save the trainer. */
rein_status rein_trainer_collect(rein_trainer *trainer, rein_error *err);

/* Where the parts of the parameters begin that each rank's optimizer has: begins [ranks + 1] floats. adamw.c has it. */
void rein_adamw_parts(size_t *begins, size_t floats, size_t ranks);

/* rein_adamw_step on parameters whose gradients are known in this rank's part only; afterwards all ranks have all values, which lie in
 * `values` one parameter after another. */
rein_status rein_adamw_step_shared(double *gradient_norm, float *values, float *first, float *second, int64_t *step,
                                   const rein_parameter *parameters, size_t n_parameters, const rein_adamw *options,
                                   const rein_exec *exec, rein_ranks *ranks, rein_error *err);

/* Which rank computes each micro-batch of a pass: ranks [n_micro_batches]. */
void rein_trainer_assign(size_t *ranks, const rein_trainer *trainer, const rein_packing *packing, int trains);

/* Numbers of tokens that each rank has computed for its micro-batches become those of all. */
rein_status rein_trainer_share_tokens(float *numbers, const size_t *ranks, rein_trainer *trainer, const rein_packing *packing,
                                      rein_error *err);

#endif
