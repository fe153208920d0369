/* budget_pass.c - the budget-constrained loss over prompts, four responses at a time in double; compiled per type and instruction set.
 * A prompt's sums are made in a fixed lane order: the same bits from every build. */
#include "budget_pass.h"

#include "../kernel/lanes.h"
#include "budget_rule.h"

INLINE W w_splat(double x) { return (W){x, x, x, x}; }
INLINE W w_least(W a, W b) { return w_pick(a < b, a, b); }
INLINE W w_most(W a, W b) { return w_pick(a > b, a, b); }
INLINE double w_sum(W x) { return ((x[0] + x[1]) + x[2]) + x[3]; }

INLINE W load_reals(const real *p, size_t left) {
    typedef real R __attribute__((vector_size(4 * sizeof(real))));
    R r = {0};
    memcpy(&r, p, left >= 4 ? sizeof r : left * sizeof *p);
    return __builtin_convertvector(r, W);
}

INLINE void store_reals(real *p, W x, size_t left) {
    typedef real R __attribute__((vector_size(4 * sizeof(real))));
    const R r = __builtin_convertvector(x, R);
    memcpy(p, &r, left >= 4 ? sizeof r : left * sizeof *p);
}

INLINE WM load_lengths(const int64_t *p, size_t left) {
    WM n = {0};
    memcpy(&n, p, left >= 4 ? sizeof n : left * sizeof *p);
    return n;
}

/* Whole numbers in [0, 2^52) as doubles: their bits below those of 2^52. There is no instruction for it before AVX-512. */
INLINE W w_from_whole(WM n) { return (W)(n | (WM)w_splat(0x1p52)) - 0x1p52; }

INLINE WM lanes_below(size_t left) { return (WM){0, 1, 2, 3} < (int64_t)(left < 4 ? left : 4); }

/* The adjusted rewards of up to four responses. */
INLINE W adjusted_rewards(const rein_budget_task *t, size_t i, size_t left, int64_t *marks) {
    const rein_budget *b = t->budget;
    const WM lengths = load_lengths(t->lengths + i, left);
    const W reward = load_reals((const real *)t->rewards + i, left), length = w_from_whole(lengths);
    const W budget = b->token_budgets ? w_from_whole(load_lengths(b->token_budgets + i, left)) : w_splat(b->token_budget);
    *marks |= lengths[0] | lengths[1] | lengths[2] | lengths[3];
    return b->rule == REIN_BUDGET_TRUNCATE ? budget_truncate(reward, length, budget, w_splat(b->budget_penalty))
                                           : budget_linear(reward, length, budget, w_splat(b->budget_penalty_coef));
}

/* The mean of a prompt's adjusted rewards, exact when they are all equal (or equal but for rounding: *flat). */
INLINE double baseline_of(const rein_budget_task *t, size_t first, size_t last, int *flat, rein_budget_sums *sums) {
    const double origin = adjusted_rewards(t, first, 1, &sums->marks)[0];
    W low = w_splat(origin), high = low, sum = w_splat(0);
    for (size_t i = first; i < last; i += 4) {
        const W x = w_pick(lanes_below(last - i), adjusted_rewards(t, i, last - i, &sums->marks), w_splat(origin));
        low = w_least(low, x);
        high = w_most(high, x);
        sum += x - origin;
    }
    double least_seen = low[0], most_seen = high[0];
    for (int l = 1; l < 4; l++) {
        least_seen = low[l] < least_seen ? low[l] : least_seen;
        most_seen = high[l] > most_seen ? high[l] : most_seen;
    }
    const double size = most_seen > -least_seen ? most_seen : -least_seen;
    *flat = most_seen - least_seen <= 1e-12 * size;
    sums->reach = size > sums->reach ? size : sums->reach;
    return *flat ? origin : origin + w_sum(sum) / (double)(last - first);
}

rein_budget_sums KERNEL(rein_budget_pass)(const rein_budget_task *t, size_t first, size_t last, int write) {
    const real *lp = t->log_probs, *old = t->old_log_probs;
    const double tau = t->budget->kl_coef;
    rein_budget_sums sums = {0, 0, 0};
    for (size_t p = first; p < last; p++) {
        int flat;
        const size_t end = t->offsets[p + 1];
        const double baseline = baseline_of(t, t->offsets[p], end, &flat, &sums);
        W loss = w_splat(0);
        for (size_t i = t->offsets[p]; i < end; i += 4) {
            const size_t left = end - i;
            const W adjusted = adjusted_rewards(t, i, left, &sums.marks);
            const W advantage = flat ? w_splat(0) : adjusted - baseline;
            const W gap = w_keep(lanes_below(left), advantage - tau * (load_reals(lp + i, left) - load_reals(old + i, left)));
            loss += gap * gap;
            if (!write) continue;
            if (t->grad) store_reals((real *)t->grad + i, t->scale * gap, left);
            if (t->adjusted) store_reals((real *)t->adjusted + i, adjusted, left);
            if (t->advantages) store_reals((real *)t->advantages + i, advantage, left);
        }
        if (write && t->baselines) ((real *)t->baselines)[p] = (real)baseline;
        sums.loss += w_sum(loss);
    }
    return sums;
}
