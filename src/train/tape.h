/* tape.h - trajectory groups laid out twice: as the objective sees them, and as the model does. Private.
 *
 * For the objective a trajectory is one sequence, the tokens of its histories one after the other. For the model a unit is a few whole
 * trajectories of one group whose histories share their common beginning: the prompt is computed once. */
#ifndef REIN_TRAIN_TAPE_H
#define REIN_TRAIN_TAPE_H

#include "base/arena.h"
#include "rein/train.h"

typedef struct rein_unit {
    size_t group;       /* index in the groups */
    size_t first, last; /* sequences [first, last) */
    rein_tokens tokens; /* for the model */
    size_t *place;      /* [tokens] where each is among the tokens of the step */
} rein_unit;

typedef struct rein_tape {
    size_t n_groups, n_sequences, n_tokens, n_units;
    size_t *group_offsets, *sequence_offsets;
    uint8_t *mask;              /* [n_tokens] */
    float *recorded, *values;   /* [n_tokens]; values NULL unless all trajectories have them */
    double *rewards;            /* [n_sequences] */
    int64_t *lengths, *budgets; /* [n_sequences]; budgets NULL unless one has its own, and all have one */
    uint8_t *sampled_now;       /* [n_sequences] 1: by the policy of `policy_step` */
    rein_unit *units;
} rein_tape;

typedef struct rein_tape_options {
    size_t share_limit;
    int no_sharing, mask_truncated;
    int64_t policy_step;
    double token_budget; /* for trajectories without their own, NaN: none */
    int needs_budgets;   /* 1: a trajectory without any is an error; 0: then there are none */
} rein_tape_options;

/* Lays the groups out in the arena. Groups must hold something: an empty one, a trajectory without a history or a token, a mask on the first
 * token, a reward that is not a number are errors that name the place. */
rein_status rein_tape_make(rein_tape *tape, const rein_groups *groups, const rein_tape_options *options, rein_arena *arena,
                           rein_error *err);

#endif
