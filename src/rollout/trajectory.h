/* trajectory.h - trajectories being built and checked. Private; rein/trajectory.h has the type. */
#ifndef REIN_ROLLOUT_TRAJECTORY_H
#define REIN_ROLLOUT_TRAJECTORY_H

#include "rein/model.h"
#include "rein/rollout.h"

/* Room for n tokens: ids, mask and log-probs; and what else the history has. On failure it is as it was, but for its room. */
rein_status rein_history_reserve(rein_history *history, size_t n, rein_error *err);

/* Appends n tokens. log_probs are those of tokens that train; NULL: nothing trains, or (trained) they are not known. On failure the
 * history is as it was. */
rein_status rein_history_extend(rein_history *history, const int32_t *ids, const float *log_probs, size_t n, int trained,
                                rein_error *err);

/* A history that grows token by token; *capacity is its room. It begins with a prompt; then come tokens that the policy sampled, and tokens
 * that it was given between its turns, whose text joins the history's. */
rein_status rein_history_begin(rein_history *history, size_t *capacity, const rein_ids *prompt, int sampler_log_probs,
                               rein_error *err);
rein_status rein_history_add_sampled(rein_history *history, size_t *capacity, const rein_sampled *sampled, rein_error *err);
rein_status rein_history_add_given(rein_history *history, size_t *capacity, const int32_t *ids, size_t n,
                                   const rein_tokenizer *tokenizer, rein_error *err);

void rein_history_free(rein_history *history);

/* Takes *history over and makes it {0}; on failure it stays the caller's. */
rein_status rein_trajectory_append(rein_trajectory *trajectory, rein_history *history, rein_error *err);
void rein_trajectory_free(rein_trajectory *trajectory); /* makes it {0} */
void rein_group_free(rein_group *group);

/* Appends n groups, which are {0} then; on failure nothing is appended, and those that moved are freed. */
rein_status rein_groups_append_all(rein_groups *groups, rein_group *list, size_t n, rein_error *err);

/* Sets the number of this name in a list, or appends it; the name is copied. On failure the list is as it was. */
rein_status rein_named_numbers_set(rein_named_number **list, size_t *n, const char *name, double value, rein_error *err);
void rein_named_numbers_free(rein_named_number *list, size_t n);

/* Tokens of all histories. */
size_t rein_groups_tokens(const rein_groups *groups);

/* ---- trajectory_check.c */

/* What groups are checked for. {0}: to be written. */
typedef struct rein_groups_use {
    const rein_model *model; /* it gets the tokens; NULL: none does */
    int no_log_probs;        /* 1: recorded log-probs are not read */
    int mask_truncated;      /* 1: those of truncated trajectories are not */
} rein_groups_use;

/* Whether groups can train, and be written: there is a group, a trajectory of each, a history of each and a token of each; rewards are
 * finite, ids are those of the model (or 0 or more), no history is longer than its positions, the first token does not train, recorded
 * log-probs and values are numbers or NaN, and text_ends are in the text. The error names the array, such as
 * groups[1].trajectories[0].histories[0].ids, and the index of the token. The second function checks one group, which is number g. */
rein_status rein_groups_check(const rein_groups *groups, const rein_groups_use *use, rein_error *err);
rein_status rein_group_check(const rein_group *group, size_t g, const rein_groups_use *use, rein_error *err);

/* 1 if a number can be a log-probability. NaN cannot. */
int rein_is_log_prob(float x);

#endif
