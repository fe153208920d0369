/* kl_advantage.c - KL-penalised advantages (ART, pull request 562) over plain arrays. Compiled per type; sums are double.
 *
 *     d_t = lp_t − ref_t,   avg = Σ m d / Σ m over the scope,   A'_t = A_t + c·(avg − d_t) on trained tokens */
#include <string.h>

#include "check.h"
#include "typed.h"

typedef struct task {
    real *adjusted;
    const real *advantages, *lp, *ref;
    const uint8_t *mask;
    double coef;
    rein_kl_scope scope;
    const size_t *sequences, *groups; /* offsets */
    size_t n_tokens, n_sequences, n_groups;
} task;

static int trains(const task *t, size_t i) { return !t->mask || t->mask[i]; }

static size_t scope_count(const task *t) {
    return t->scope == REIN_KL_SCOPE_BATCH ? 1 : t->scope == REIN_KL_SCOPE_GROUP ? t->n_groups : t->n_sequences;
}

/* The first token of scope k. */
static size_t scope_start(const task *t, size_t k) {
    if (t->scope == REIN_KL_SCOPE_BATCH) return k ? t->n_tokens : 0;
    return t->sequences[t->scope == REIN_KL_SCOPE_GROUP ? t->groups[k] : k];
}

static double sum_of(const task *t, size_t first, size_t last, size_t *count) {
    double sum = 0;
    for (size_t i = first; i < last; i++)
        if (trains(t, i)) sum += (double)t->lp[i] - (double)t->ref[i], ++*count;
    return sum;
}

/* Adjusts every scope and writes the result if `write`; returns 0 if one is not finite. */
static int adjust(const task *t, int write) {
    int finite = 1;
    for (size_t k = 0; k < scope_count(t); k++) {
        const size_t first = scope_start(t, k), last = scope_start(t, k + 1);
        size_t count = 0;
        const double sum = sum_of(t, first, last, &count), mean = count ? sum / (double)count : 0;
        for (size_t i = first; i < last; i++) {
            const double d = trains(t, i) ? (double)t->lp[i] - (double)t->ref[i] : 0;
            const real a = trains(t, i) ? (real)((double)t->advantages[i] + t->coef * (mean - d)) : t->advantages[i];
            finite &= !trains(t, i) || isfinite(a);
            if (write) t->adjusted[i] = a;
        }
    }
    return finite;
}

static rein_status check_cover(const size_t *offsets, size_t n, size_t total, const char *name, const char *of, rein_error *err) {
    if (!offsets) return rein_fail_at(err, REIN_EINVAL, name, -1, "is missing: this kl_scope needs it");
    const rein_status status = rein_check_offsets(offsets, n, name, err);
    if (status != REIN_OK || offsets[n] == total) return status;
    return rein_fail_at(err, REIN_EINVAL, name, -1, "covers %zu %s, but there are %zu", offsets[n], of, total);
}

static rein_status check_token(const task *t, size_t i, rein_error *err) {
    const int measured = t->lp && t->ref; /* not with c = 0 */
    const char *bad = !isfinite(t->advantages[i])        ? "advantages"
                      : measured && !isfinite(t->lp[i])  ? "log_probs"
                      : measured && !isfinite(t->ref[i]) ? "ref_log_probs"
                                                         : NULL;
    return bad ? rein_fail_at(err, REIN_EINVAL, bad, (int64_t)i, "is not a finite number, and the token trains") : REIN_OK;
}

static rein_status check(const task *t, rein_error *err) {
    rein_status status = rein_check_coefficient(t->coef, "kl_penalty_coef", err);
    if (status != REIN_OK) return status;
    if (t->n_tokens == 0) return rein_fail_at(err, REIN_EINVAL, "advantages", -1, "is empty: at least one token is needed");
    if (t->scope < REIN_KL_SCOPE_BATCH || t->scope > REIN_KL_SCOPE_SEQUENCE)
        return rein_fail_at(err, REIN_EINVAL, "kl_scope", -1, "is %d: no such scope", (int)t->scope);
    if (t->coef != 0 && (!t->lp || !t->ref))
        return rein_fail_at(err, REIN_EINVAL, t->lp ? "ref_log_probs" : "log_probs", -1, "is missing: kl_penalty_coef needs it");
    if (t->scope != REIN_KL_SCOPE_BATCH)
        status = check_cover(t->sequences, t->n_sequences, t->n_tokens, "sequence_offsets", "tokens", err);
    if (status == REIN_OK && t->scope == REIN_KL_SCOPE_GROUP)
        status = check_cover(t->groups, t->n_groups, t->n_sequences, "group_offsets", "sequences", err);
    for (size_t i = 0; status == REIN_OK && i < t->n_tokens; i++)
        if (trains(t, i)) status = check_token(t, i, err);
    return status;
}

rein_status TYPED(rein_kl_advantage)(real *adjusted, double *kl_policy_ref, const real *advantages, const real *log_probs,
                                     const real *ref_log_probs, const uint8_t *mask, size_t n_tokens, double kl_penalty_coef,
                                     rein_kl_scope scope, const size_t *sequence_offsets, size_t n_sequences,
                                     const size_t *group_offsets, size_t n_groups, rein_error *err) {
    const task t = {adjusted, advantages,       log_probs,     ref_log_probs, mask,        kl_penalty_coef,
                    scope,    sequence_offsets, group_offsets, n_tokens,      n_sequences, n_groups};
    const rein_status status = check(&t, err);
    if (status != REIN_OK) return status;
    size_t count = 0;
    const double sum = ref_log_probs && log_probs ? sum_of(&t, 0, n_tokens, &count) : 0;
    if (!isfinite(sum)) return rein_fail(err, REIN_ERANGE, "the KL is not finite: the log-probs are too large");
    if (kl_penalty_coef != 0 && !adjust(&t, 0))
        return rein_fail(err, REIN_ERANGE, "an adjusted advantage is not finite: kl_penalty_coef or the log-probs are too large");
    if (kl_penalty_coef != 0) (void)adjust(&t, 1);
    else memmove(adjusted, advantages, n_tokens * sizeof *adjusted);
    *kl_policy_ref = count ? sum / (double)count : 0;
    return REIN_OK;
}
