/* session_pairs.h - a step of a session on pairs (session_pairs.c). Private. */
#ifndef REIN_TRAIN_SESSION_PAIRS_H
#define REIN_TRAIN_SESSION_PAIRS_H

#include "objective/options.h"
#include "rein/train.h"

typedef struct rein_pairs_step {
    double loss;
    rein_preference_metrics metrics;
} rein_pairs_step;

/* 1 if the loss needs the log-probs of a reference. */
int rein_preference_uses_reference(const rein_preference_options *options);

/* The composition under which a trajectory of reward −dL/ds has the gradient dL/ds at each of its tokens. */
rein_status rein_pairs_objective(rein_options *objective, rein_error *err);

/* Computes the loss of the pairs under `policy`, and gives every trajectory the reward −dL/ds. reference [tokens], or NULL where the loss has
 * none. */
rein_status rein_pairs_weigh(rein_pairs_step *step, rein_session *session, rein_groups *groups, const rein_policy *policy,
                             const float *reference, const rein_preference_options *options, rein_error *err);

/* Gives the chosen trajectories the reward 1 again and the rejected ones 0. */
void rein_pairs_restore(rein_groups *groups);

/* Takes from the n rows of a step what has no meaning for pairs, and adds their metrics. Returns the number of rows. */
size_t rein_pairs_rows(rein_named_number *rows, size_t n, const rein_pairs_step *step);

#endif
