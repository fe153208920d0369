/* batch.c - the checks of a batch: every error names the field, the position and what would be right. */
#include "batch.h"

#include <math.h>

static rein_status check_offsets(const size_t *offsets, size_t n, const char *name, rein_error *err) {
    if (!offsets) return rein_fail_at(err, REIN_EINVAL, name, -1, "is missing");
    if (offsets[0] != 0) return rein_fail_at(err, REIN_EINVAL, name, 0, "is %zu: offsets start at 0", offsets[0]);
    for (size_t i = 0; i < n; i++)
        if (offsets[i + 1] < offsets[i])
            return rein_fail_at(err, REIN_EINVAL, name, (int64_t)(i + 1), "is %zu: offsets never fall, and the one before is %zu",
                                offsets[i + 1], offsets[i]);
    return REIN_OK;
}

rein_status rein_batch_check_shape(const rein_batch *b, rein_error *err) {
    if (b->dtype != REIN_F64 && b->dtype != REIN_F32)
        return rein_fail_at(err, REIN_EINVAL, "dtype", -1, "is %d: REIN_F64 or REIN_F32", (int)b->dtype);
    if (b->n_sequences == 0) return rein_fail(err, REIN_EINVAL, "the batch is empty: at least one sequence is needed");
    rein_status status = check_offsets(b->sequence_offsets, b->n_sequences, "sequence_offsets", err);
    if (status != REIN_OK || !b->group_offsets) return status;
    status = check_offsets(b->group_offsets, b->n_groups, "group_offsets", err);
    if (status != REIN_OK) return status;
    for (size_t g = 0; g < b->n_groups; g++)
        if (b->group_offsets[g + 1] == b->group_offsets[g])
            return rein_fail(err, REIN_EINVAL, "group %zu is empty: a group has at least one sequence", g);
    if (b->group_offsets[b->n_groups] != b->n_sequences)
        return rein_fail(err, REIN_EINVAL, "the groups hold %zu sequences, but there are %zu", b->group_offsets[b->n_groups],
                         b->n_sequences);
    return REIN_OK;
}

static rein_status check_finite(const double *x, size_t n, const char *name, rein_error *err) {
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return rein_fail_at(err, REIN_EINVAL, name, (int64_t)i, "is not a finite number");
    return REIN_OK;
}

static rein_status check_lengths(const int64_t *x, size_t n, const char *name, rein_error *err) {
    for (size_t i = 0; x && i < n; i++)
        if (x[i] < 0) return rein_fail_at(err, REIN_EINVAL, name, (int64_t)i, "is %lld: it must be 0 or more", (long long)x[i]);
    return REIN_OK;
}

rein_status rein_batch_check_rewards(const rein_batch *b, const rein_options *o, rein_error *err) {
    rein_status status = REIN_OK;
    const int components = o->advantage == REIN_ADVANTAGE_GDPO;
    if (b->rewards && b->reward_components)
        return rein_fail_at(err, REIN_EINVAL, "rewards", -1, "and reward_components: give one of them");
    if (components && !b->reward_components)
        return rein_fail_at(err, REIN_EINVAL, "reward_components", -1, "is missing: advantage gdpo needs it");
    if (!b->rewards && !b->reward_components && o->advantage != REIN_ADVANTAGE_GIVEN)
        return rein_fail_at(err, REIN_EINVAL, "rewards", -1, "is missing");
    if (b->reward_components && b->n_components == 0)
        return rein_fail_at(err, REIN_EINVAL, "reward_components", -1, "has no components: at least one is needed");
    if (b->reward_weights && !b->reward_components)
        return rein_fail_at(err, REIN_EINVAL, "reward_weights", -1, "needs reward_components");
    if (b->rewards) status = check_finite(b->rewards, b->n_sequences, "rewards", err);
    else if (b->reward_components)
        status = check_finite(b->reward_components, b->n_sequences * b->n_components, "reward_components", err);
    if (status == REIN_OK && b->reward_weights) status = check_finite(b->reward_weights, b->n_components, "reward_weights", err);
    if (status == REIN_OK) status = check_lengths(b->response_lengths, b->n_sequences, "response_lengths", err);
    if (status == REIN_OK) status = check_lengths(b->token_budgets, b->n_sequences, "token_budget", err);
    if (status != REIN_OK) return status;
    if ((o->shape == REIN_SHAPE_BUDGET || o->shape == REIN_SHAPE_TRUNCATE) && !b->token_budgets && isnan(o->token_budget))
        return rein_fail_at(err, REIN_EINVAL, "token_budget", -1, "is missing: shape %s needs it",
                            o->shape == REIN_SHAPE_BUDGET ? "budget" : "truncate");
    if (b->correct && o->shape != REIN_SHAPE_K15_LENGTH)
        return rein_fail_at(err, REIN_EINVAL, "correct", -1, "has no effect: it needs shape k1.5-length");
    if (b->baseline_rewards && o->advantage != REIN_ADVANTAGE_REMAX)
        return rein_fail_at(err, REIN_EINVAL, "baseline_rewards", -1, "has no effect: it needs advantage remax");
    if (o->advantage == REIN_ADVANTAGE_REMAX) {
        if (!b->baseline_rewards)
            return rein_fail_at(err, REIN_EINVAL, "baseline_rewards", -1, "is missing: advantage remax needs it");
        return check_finite(b->baseline_rewards, b->n_sequences, "baseline_rewards", err);
    }
    return REIN_OK;
}

static rein_status missing(const char *array, const char *why, rein_error *err) {
    return rein_fail_at(err, REIN_EINVAL, array, -1, "is missing: %s needs it", why);
}

rein_status rein_batch_check_arrays(const rein_batch *b, const rein_options *o, rein_error *err) {
    const int detached = o->kl_reward_coef != 0 || o->kl_penalty_coef != 0;
    const int sampled = detached && o->kl_penalty_source == REIN_KL_SOURCE_SAMPLE;
    const int is = o->kl_loss_coef != 0 && (o->kl_estimator == REIN_IS_K1 || o->kl_estimator == REIN_IS_K3);
    if (!b->old_log_probs) {
        if (o->surrogate != REIN_SURROGATE_REINFORCE) return missing("old_log_probs", "the surrogate", err);
        if (is) return missing("old_log_probs", "the ratio in kl_estimator is-k1 or is-k3", err);
        if (o->mismatch != REIN_MISMATCH_NONE) return missing("old_log_probs", "mismatch", err);
        if (o->kimi_k2_tau != 0) return missing("old_log_probs", "kimi_k2_tau", err);
    }
    if (!b->ref_log_probs) {
        if (o->kl_loss_coef != 0) return missing("ref_log_probs", "kl_loss_coef", err);
        if (o->kl_reward_coef != 0) return missing("ref_log_probs", "kl_reward_coef", err);
        if (o->kl_penalty_coef != 0) return missing("ref_log_probs", "kl_penalty_coef", err);
    }
    if (!b->sample_log_probs) {
        if (o->mismatch != REIN_MISMATCH_NONE) return missing("sample_log_probs", "mismatch", err);
        if (!isnan(o->off_policy_mask_delta)) return missing("sample_log_probs", "off_policy_mask_delta", err);
        if (sampled) return missing("sample_log_probs", "kl_penalty_source sample", err);
    }
    if (!b->log_probs && detached && !sampled) return missing("log_probs", "KL in the reward or the advantage", err);
    if (!b->entropies) {
        if (o->entropy_coef != 0 && !isnan(o->entropy_target)) return missing("entropies", "entropy_target", err);
        if (!isnan(o->top_entropy)) return missing("entropies", "top_entropy", err);
    }
    if (o->advantage == REIN_ADVANTAGE_GIVEN && !b->advantages) return missing("advantages", "advantage given", err);
    if (o->advantage != REIN_ADVANTAGE_GIVEN && b->advantages)
        return rein_fail_at(err, REIN_EINVAL, "advantages", -1, "has no effect: it needs advantage given");
    if (o->advantage == REIN_ADVANTAGE_GAE && !b->values) return missing("values", "advantage gae", err);
    if (o->advantage != REIN_ADVANTAGE_GAE && b->values)
        return rein_fail_at(err, REIN_EINVAL, "values", -1, "has no effect: it needs advantage gae");
    return REIN_OK;
}

rein_status rein_batch_find_bad(const rein_batch *b, const void *log_probs, const void *entropies, size_t first, size_t last,
                                rein_error *err) {
    const struct {
        const void *array;
        const char *name;
    } arrays[] = {{log_probs, "log_probs"},
                  {b->old_log_probs, "old_log_probs"},
                  {b->ref_log_probs, "ref_log_probs"},
                  {b->sample_log_probs, "sample_log_probs"},
                  {entropies, "entropies"},
                  {b->values, "values"},
                  {b->advantages, "advantages"}};
    for (size_t t = b->sequence_offsets[first]; t < b->sequence_offsets[last]; t++) {
        if (!rein_trains(b, t)) continue;
        for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) {
            if (!arrays[a].array) continue;
            const double x = rein_at(b, arrays[a].array, t);
            if (!isfinite(x))
                return rein_fail_at(err, REIN_EINVAL, arrays[a].name, (int64_t)t,
                                    "is %s: a trained token needs a finite number (or mask 0)",
                                    isnan(x) ? "NaN"
                                    : x > 0  ? "infinite"
                                             : "-infinite");
        }
    }
    return REIN_OK;
}
