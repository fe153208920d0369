/* session_pairs.h - a step of a session on preferences (session_pairs.c). Private. */
#ifndef REIN_TRAIN_SESSION_PAIRS_H
#define REIN_TRAIN_SESSION_PAIRS_H

#include "rein/train.h"

/* What a step on preferences has found. */
typedef struct rein_pairs_step {
    rein_preference_metrics metrics;
    double kl;          /* of kto, before max(0, ·); NaN: the loss has none */
    double pairs, ties; /* that were chosen of the groups, and groups without a pair; NaN: the groups were pairs */
} rein_pairs_step;

/* The KL of kto: the mean over mismatched pairs of log-prob − reference, under `policy` and the session's reference. A mismatched pair is the
 * prompt of a group with a completion of the next group; the last group is followed by the first. With one group it is 0. */
rein_status rein_pairs_kl(double *kl, rein_session *session, const rein_groups *groups, const rein_policy *policy, rein_error *err);

/* 1 if a step on pairs has no metric of this name, which is one of the surrogate or of ratios. */
int rein_pairs_lack(const char *metric);

/* Takes such metrics from the n rows of a step and, where pairs were given without rewards, that of groups with equal rewards. Returns the
 * number of rows. */
size_t rein_rows_of_pairs(rein_named_number *rows, size_t n, int has_rewards);

/* Takes from the n rows of a step what has no meaning for pairs, and adds their metrics. Returns the number of rows. */
size_t rein_pairs_rows(rein_named_number *rows, size_t n, const rein_pairs_step *step);

#endif
