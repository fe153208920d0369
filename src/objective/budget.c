/* budget.c - the budget-constrained loss of Kimi K2 (arXiv 2507.20534, sec. 3.2.3) over sequence log-probabilities. Compiled per type;
 * arithmetic is double.
 *
 *     adjusted_i = r_i − λ·max(0, L_i − B)
 *     A_i        = adjusted_i − mean over the prompt's responses of adjusted
 *     loss       = mean over all responses of (A_i − τ·(lp_i − old_i))²,        dloss/dlp_i = −2τ·(A_i − τ(lp_i − old_i))/N */
#include <math.h>

#include "../base/base.h"
#include "reward.h"
#include "typed.h"

typedef struct task {
    real *adjusted, *advantages, *baselines, *grad;
    const real *rewards, *lp, *old;
    const int64_t *lengths;
    const size_t *offsets;
    const rein_budget *budget;
} task;

static inline double adjusted_reward(const task *t, size_t i) {
    const rein_budget *b = t->budget;
    const double limit = b->token_budgets ? (double)b->token_budgets[i] : b->token_budget, length = (double)t->lengths[i];
    return b->rule == REIN_BUDGET_TRUNCATE ? shape_truncate((double)t->rewards[i], length, limit, b->budget_penalty)
                                           : shape_budget((double)t->rewards[i], length, limit, b->budget_penalty_coef);
}

/* The mean of a prompt's adjusted rewards, exact when they are all equal (or equal but for rounding: *flat). */
static double baseline_of(const task *t, size_t first, size_t last, int *flat, double *reach) {
    const double origin = adjusted_reward(t, first);
    double low = origin, high = origin, sum = 0;
    for (size_t i = first; i < last; i++) {
        const double x = adjusted_reward(t, i);
        low = x < low ? x : low;
        high = x > high ? x : high;
        sum += x - origin;
    }
    const double size = fabs(low) > fabs(high) ? fabs(low) : fabs(high);
    *flat = high - low <= 1e-12 * size;
    *reach = size > *reach ? size : *reach;
    return *flat ? origin : origin + sum / (double)(last - first);
}

/* Σ (A − τ·(lp − old))² over prompts [first, last); *reach grows to the largest |adjusted|. With `write`, the outputs. */
static double prompts(const task *t, size_t first, size_t last, double scale, double *reach, int write) {
    const double tau = t->budget->kl_coef;
    double loss = 0;
    for (size_t p = first; p < last; p++) {
        int flat;
        const double baseline = baseline_of(t, t->offsets[p], t->offsets[p + 1], &flat, reach);
        double sum = 0;
        for (size_t i = t->offsets[p]; i < t->offsets[p + 1]; i++) {
            const double adjusted = adjusted_reward(t, i), advantage = flat ? 0 : adjusted - baseline;
            const double gap = advantage - tau * ((double)t->lp[i] - (double)t->old[i]);
            sum += gap * gap;
            if (!write) continue;
            if (t->grad) t->grad[i] = (real)(scale * gap);
            if (t->adjusted) t->adjusted[i] = (real)adjusted;
            if (t->advantages) t->advantages[i] = (real)advantage;
        }
        if (write && t->baselines) t->baselines[p] = (real)baseline;
        loss += sum;
    }
    return loss;
}

static rein_status check_budget(const rein_budget *b, size_t n, rein_error *err) {
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"kl_coef", b->kl_coef},
                   {"budget_penalty_coef", b->rule == REIN_BUDGET_LINEAR ? b->budget_penalty_coef : 0},
                   {"budget_penalty", b->rule == REIN_BUDGET_TRUNCATE ? b->budget_penalty : 0},
                   {"token_budget", b->token_budgets ? 0 : b->token_budget}};
    if (b->rule != REIN_BUDGET_LINEAR && b->rule != REIN_BUDGET_TRUNCATE)
        return rein_fail(err, REIN_EINVAL, "rule is %d: REIN_BUDGET_LINEAR or REIN_BUDGET_TRUNCATE", (int)b->rule);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!(numbers[i].value >= 0) || !isfinite(numbers[i].value))
            return rein_fail(err, REIN_EINVAL, "%s is %g: it must be 0 or more", numbers[i].name, numbers[i].value);
    for (size_t i = 0; b->token_budgets && i < n; i++)
        if (b->token_budgets[i] < 0)
            return rein_fail(err, REIN_EINVAL, "token_budget[%zu] is %lld: it must be 0 or more", i,
                             (long long)b->token_budgets[i]);
    return REIN_OK;
}

/* The first number that should not be there; all are fine one by one: then it is the sum that overflows. */
static rein_status find_bad(const task *t, size_t n, rein_error *err) {
    const struct {
        const real *array;
        const char *name;
    } arrays[] = {{t->rewards, "rewards"}, {t->lp, "log_probs"}, {t->old, "old_log_probs"}};
    for (size_t i = 0; i < n; i++) {
        for (size_t a = 0; a < 3; a++)
            if (!isfinite(arrays[a].array[i]))
                return rein_fail(err, REIN_EINVAL, "%s[%zu] is not a finite number", arrays[a].name, i);
        if (t->lengths[i] < 0)
            return rein_fail(err, REIN_EINVAL, "response_lengths[%zu] is %lld: a length is 0 or more", i, (long long)t->lengths[i]);
    }
    return rein_fail(err, REIN_ERANGE,
                     "the loss or its gradient is not finite: a reward, a log-prob or a coefficient is too large");
}

static int has_negative(const int64_t *x, size_t first, size_t last) {
    int64_t any = 0;
    for (size_t i = first; i < last; i++) any |= x[i];
    return any < 0;
}

rein_status TYPED(rein_budget_loss)(double *loss, real *adjusted, real *advantages, real *baselines, real *grad_log_probs,
                                    const real *rewards, const real *log_probs, const real *old_log_probs,
                                    const int64_t *response_lengths, const size_t *offsets, size_t n_prompts,
                                    const rein_budget *budget, const rein_exec *exec, rein_error *err) {
    const task t = {adjusted,  advantages,    baselines,        grad_log_probs, rewards,
                    log_probs, old_log_probs, response_lengths, offsets,        budget};
    rein_exec e;
    if (n_prompts == 0) return rein_fail(err, REIN_EINVAL, "rewards is empty: at least one prompt is needed");
    for (size_t p = 0; p < n_prompts; p++)
        if (offsets[p + 1] <= offsets[p])
            return rein_fail(err, REIN_EINVAL, "prompt %zu has no responses: at least one is needed", p);
    const size_t n = offsets[n_prompts];
    rein_status status = rein_exec_resolve(&e, exec, n, err);
    if (status == REIN_OK) status = check_budget(budget, n, err);
    if (status != REIN_OK) return status;

    double sums[PIECES], reach = 0;
    int negative = 0;
#pragma omp parallel for num_threads(e.threads) schedule(static) reduction(| : negative) reduction(max : reach)
    for (size_t k = 0; k < PIECES; k++) {
        const size_t first = piece_start(n_prompts, k), last = piece_start(n_prompts, k + 1);
        sums[k] = prompts(&t, first, last, 0, &reach, 0);
        negative |= has_negative(response_lengths, offsets[first], offsets[last]);
    }
    double sum = 0;
    for (size_t k = 0; k < PIECES; k++) sum += sums[k];
    const double scale = -2 * budget->kl_coef / (double)n; /* no gap is larger than the root of the sum */
    if (negative || !isfinite(sum) || !isfinite((real)(scale * sqrt(sum))) || !isfinite((real)reach)) return find_bad(&t, n, err);
    *loss = sum / (double)n;
    if (!adjusted && !advantages && !baselines && !grad_log_probs) return REIN_OK;
#pragma omp parallel for num_threads(e.threads) schedule(static)
    for (size_t k = 0; k < PIECES; k++) { /* backwards: the end of the arrays is still in the caches */
        const size_t piece = PIECES - 1 - k;
        (void)prompts(&t, piece_start(n_prompts, piece), piece_start(n_prompts, piece + 1), scale, &(double){0}, 1);
    }
    return REIN_OK;
}
