/* packing.h - trajectory groups as arrays, in two layouts: one for the objective, one for the model. Private.
 *
 * For the objective a trajectory is one sequence, the tokens of its histories one after the other. For the model a micro-batch is a few whole
 * trajectories of one group whose histories share their common beginning: the prompt is computed once. */
#ifndef REIN_TRAIN_PACKING_H
#define REIN_TRAIN_PACKING_H

#include "base/arena.h"
#include "rein/train.h"
#include "rollout/trajectory.h"

typedef struct rein_micro_batch {
    size_t group;       /* index in the groups */
    size_t first, last; /* sequences [first, last) */
    rein_tokens tokens; /* for the model */
    size_t *index;      /* [tokens] of each among the tokens of the step */
} rein_micro_batch;

typedef struct rein_packing {
    size_t n_groups, n_sequences, n_tokens, n_micro_batches;
    size_t *group_offsets, *sequence_offsets;
    uint8_t *mask;              /* [n_tokens] */
    float *recorded, *values;   /* [n_tokens]; values NULL unless all trajectories have them */
    double *rewards;            /* [n_sequences] */
    int64_t *lengths, *budgets; /* [n_sequences]; budgets NULL unless one has its own, and all have one */
    uint8_t *sampled_now;       /* [n_sequences] 1: by the policy of `policy_step` */
    rein_micro_batch *micro_batches;
} rein_packing;

typedef struct rein_packing_options {
    size_t share_limit;
    int no_sharing;
    rein_groups_use use;
    int64_t policy_step;
    double token_budget; /* for trajectories without their own, NaN: none */
    int needs_budgets;   /* 1: a trajectory without any is an error; 0: then there are none */
} rein_packing_options;

/* Packs groups into arrays of the arena, after rein_groups_check. */
rein_status rein_pack_groups(rein_packing *packing, const rein_groups *groups, const rein_packing_options *options,
                             rein_arena *arena, rein_error *err);

#endif
