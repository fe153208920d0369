/* trajectory.h - trajectories being built. Private; rein/trajectory.h has the type. */
#ifndef REIN_ROLLOUT_TRAJECTORY_H
#define REIN_ROLLOUT_TRAJECTORY_H

#include "rein/trajectory.h"

/* Room for n tokens: ids, mask and log-probs; and what else the history has. On failure it is as it was, but for its room. */
rein_status rein_history_reserve(rein_history *history, size_t n, rein_error *err);

/* Appends n tokens. log_probs are those of tokens that train; NULL: nothing trains, or (trained) they are not known. On failure the
 * history is as it was. */
rein_status rein_history_extend(rein_history *history, const int32_t *ids, const float *log_probs, size_t n, int trained,
                                rein_error *err);
void rein_history_free(rein_history *history);

/* Takes *history over and makes it {0}; on failure it stays the caller's. */
rein_status rein_trajectory_append(rein_trajectory *trajectory, rein_history *history, rein_error *err);
void rein_group_free(rein_group *group);

/* Sets the number of this name in a list, or appends it; the name is copied. On failure the list is as it was. */
rein_status rein_named_numbers_set(rein_named_number **list, size_t *n, const char *name, double value, rein_error *err);
void rein_named_numbers_free(rein_named_number *list, size_t n);

/* Tokens of all histories. */
size_t rein_groups_tokens(const rein_groups *groups);

#endif
