/* batch.c - the checks of a batch: every error names the field, the position and what would be right. */
#include "batch.h"

#include "check.h"

rein_status rein_batch_check_shape(const rein_batch *b, rein_error *err) {
    if (b->dtype != REIN_F64 && b->dtype != REIN_F32)
        return rein_fail_at(err, REIN_EINVAL, "dtype", -1, "is %d: REIN_F64 or REIN_F32", (int)b->dtype);
    if (b->n_sequences == 0) return rein_fail_at(err, REIN_EINVAL, "n_sequences", -1, "is 0: at least one sequence is needed");
    rein_status status = rein_check_offsets(b->sequence_offsets, b->n_sequences, "sequence_offsets", err);
    if (status != REIN_OK || !b->group_offsets) return status;
    status = rein_check_offsets(b->group_offsets, b->n_groups, "group_offsets", err);
    if (status != REIN_OK) return status;
    for (size_t g = 0; g < b->n_groups; g++)
        if (b->group_offsets[g + 1] == b->group_offsets[g])
            return rein_fail_at(err, REIN_EINVAL, "group_offsets", (int64_t)g,
                                "is of an empty group: a group has at least one sequence");
    if (b->group_offsets[b->n_groups] != b->n_sequences)
        return rein_fail_at(err, REIN_EINVAL, "group_offsets", (int64_t)b->n_groups, "is %zu: it must be n_sequences, which is %zu",
                            b->group_offsets[b->n_groups], b->n_sequences);
    return REIN_OK;
}

/* An array that a composition reads: it needs the array if `needed`, and has no use for it if `useless`. */
typedef struct requirement {
    const void *array;
    const char *name;
    int needed, useless;
    const char *by; /* what reads it */
} requirement;

static rein_status check_requirements(const requirement *r, size_t n, rein_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (r[i].needed && !r[i].array) return rein_fail_at(err, REIN_EINVAL, r[i].name, -1, "is missing: %s needs it", r[i].by);
        if (r[i].useless && r[i].array) return rein_fail_at(err, REIN_EINVAL, r[i].name, -1, "has no effect: it needs %s", r[i].by);
    }
    return REIN_OK;
}

rein_status rein_batch_check_rewards(const rein_batch *b, const rein_options *o, rein_error *err) {
    const size_t n = b->n_sequences;
    const int gdpo = o->advantage == REIN_ADVANTAGE_GDPO, remax = o->advantage == REIN_ADVANTAGE_REMAX;
    const int budget = o->shape == REIN_SHAPE_BUDGET, truncate = o->shape == REIN_SHAPE_TRUNCATE;
    const requirement read[] = {
        {b->token_budgets, "token_budget", budget && isnan(o->token_budget), 0, "shape budget"},
        {b->token_budgets, "token_budget", truncate && isnan(o->token_budget), 0, "shape truncate"},
        {b->correct, "correct", 0, o->shape != REIN_SHAPE_K15_LENGTH, "shape k1.5-length"},
        {b->baseline_rewards, "baseline_rewards", remax, !remax, "advantage remax"},
    };
    if (b->rewards && b->reward_components)
        return rein_fail_at(err, REIN_EINVAL, "rewards", -1, "and reward_components: give one of them");
    if (gdpo && !b->reward_components)
        return rein_fail_at(err, REIN_EINVAL, "reward_components", -1, "is missing: advantage gdpo needs it");
    if (!b->rewards && !b->reward_components && o->advantage != REIN_ADVANTAGE_GIVEN)
        return rein_fail_at(err, REIN_EINVAL, "rewards", -1, "is missing");
    if (b->reward_components && b->n_components == 0)
        return rein_fail_at(err, REIN_EINVAL, "reward_components", -1, "has no components: at least one is needed");
    if (b->reward_weights && !b->reward_components)
        return rein_fail_at(err, REIN_EINVAL, "reward_weights", -1, "needs reward_components");
    rein_status status = rein_check_numbers(b->rewards, REIN_F64, n, "rewards", err);
    if (status == REIN_OK)
        status = rein_check_numbers(b->reward_components, REIN_F64, n * b->n_components, "reward_components", err);
    if (status == REIN_OK) status = rein_check_numbers(b->reward_weights, REIN_F64, b->n_components, "reward_weights", err);
    if (status == REIN_OK) status = rein_check_lengths(b->response_lengths, n, "response_lengths", err);
    if (status == REIN_OK) status = rein_check_lengths(b->token_budgets, n, "token_budget", err);
    if (status == REIN_OK) status = check_requirements(read, sizeof read / sizeof *read, err);
    return status == REIN_OK ? rein_check_numbers(b->baseline_rewards, REIN_F64, n, "baseline_rewards", err) : status;
}

rein_status rein_batch_check_arrays(const rein_batch *b, const rein_options *o, rein_error *err) {
    const int detached = rein_detached_kl(o), sampled = detached && o->kl_penalty_source == REIN_KL_SOURCE_SAMPLE;
    const int exact = rein_uses_exact_kl(o), sampled_loss = o->kl_loss_coef != 0 && !rein_exact_kl_loss(o);
    const int is = o->kl_loss_coef != 0 && (o->kl_estimator == REIN_IS_K1 || o->kl_estimator == REIN_IS_K3);
    const int mismatch = o->mismatch != REIN_MISMATCH_NONE;
    const int given = o->advantage == REIN_ADVANTAGE_GIVEN, gae = o->advantage == REIN_ADVANTAGE_GAE;
    const requirement read[] = {
        {b->old_log_probs, "old_log_probs", o->surrogate != REIN_SURROGATE_REINFORCE, 0, "the surrogate"},
        {b->old_log_probs, "old_log_probs", is, 0, "the ratio in kl_estimator is-k1 or is-k3"},
        {b->old_log_probs, "old_log_probs", mismatch, 0, "mismatch"},
        {b->old_log_probs, "old_log_probs", o->kimi_k2_tau != 0, 0, "kimi_k2_tau"},
        {b->ref_log_probs, "ref_log_probs", sampled_loss, 0, "kl_loss_coef"},
        {b->exact_kl, "exact_kl", exact, !exact, "kl_estimator exact with kl_loss_coef, or kl_reward_exact,"},
        {b->teacher_log_probs, "teacher_log_probs", rein_teacher_in_advantage(o), !rein_teacher_in_advantage(o),
         "teacher_coef with divergence sampled"},
        {b->teacher_divergence, "teacher_divergence", rein_teacher_in_loss(o), !rein_teacher_in_loss(o),
         "teacher_coef with divergence reverse, forward or jsd"},
        {b->log_probs, "log_probs", rein_teacher_in_advantage(o), 0, "teacher_coef with divergence sampled"},
        {b->ref_log_probs, "ref_log_probs", o->kl_reward_coef != 0, 0, "kl_reward_coef"},
        {b->ref_log_probs, "ref_log_probs", o->kl_penalty_coef != 0, 0, "kl_penalty_coef"},
        {b->sample_log_probs, "sample_log_probs", mismatch, 0, "mismatch"},
        {b->sample_log_probs, "sample_log_probs", !isnan(o->off_policy_mask_delta), 0, "off_policy_mask_delta"},
        {b->sample_log_probs, "sample_log_probs", sampled, 0, "kl_penalty_source sample"},
        {b->log_probs, "log_probs", detached && !sampled, 0, "KL in the reward or the advantage"},
        {b->entropies, "entropies", o->entropy_coef != 0 && !isnan(o->entropy_target), 0, "entropy_target"},
        {b->entropies, "entropies", !isnan(o->top_entropy), 0, "top_entropy"},
        {b->advantages, "advantages", given, !given, "advantage given"},
        {b->values, "values", gae, !gae, "advantage gae"},
    };
    return check_requirements(read, sizeof read / sizeof *read, err);
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
                  {b->exact_kl, "exact_kl"},
                  {b->teacher_log_probs, "teacher_log_probs"},
                  {b->teacher_divergence, "teacher_divergence"},
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
