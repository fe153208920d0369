/* budget_pass.c - the budget-constrained loss over prompts, four responses at a time in double; compiled per type and instruction set.
 * A prompt's sums are made in a fixed lane order: the same bits from every build. */
#include "budget_pass.h"

#include "../kernel/lanes.h"
#include "budget_rule.h"

INLINE W w_splat(double x) { return (W){x, x, x, x}; }
INLINE W w_least(W a, W b) { return w_pick(a < b, a, b); }
INLINE W w_most(W a, W b) { return w_pick(a > b, a, b); }

/* Across the lanes: halves first, then neighbours. */
INLINE W w_halves(W x) { return __builtin_shufflevector(x, x, 2, 3, 0, 1); }
INLINE W w_neighbours(W x) { return __builtin_shufflevector(x, x, 1, 0, 3, 2); }
INLINE double w_sum(W x) {
    x += w_halves(x);
    return (x + w_neighbours(x))[0];
}
INLINE double w_lowest(W x) {
    x = w_least(x, w_halves(x));
    return w_least(x, w_neighbours(x))[0];
}
INLINE double w_highest(W x) {
    x = w_most(x, w_halves(x));
    return w_most(x, w_neighbours(x))[0];
}

/* Four of them, or, past the last whole four, `left` and zeros. */
typedef real R __attribute__((vector_size(4 * sizeof(real))));

INLINE W load_reals(const real *p, size_t left) {
    R r = {0};
    if (left >= 4) memcpy(&r, p, sizeof r);
    else
        for (size_t l = 0; l < left; l++) r[l] = p[l];
    return __builtin_convertvector(r, W);
}

INLINE void store_reals(real *p, W x, size_t left) {
    const R r = __builtin_convertvector(x, R);
    if (left >= 4) memcpy(p, &r, sizeof r);
    else
        for (size_t l = 0; l < left; l++) p[l] = r[l];
}

INLINE WM load_lengths(const int64_t *p, size_t left) {
    WM n = {0};
    if (left >= 4) memcpy(&n, p, sizeof n);
    else
        for (size_t l = 0; l < left; l++) n[l] = p[l];
    return n;
}

/* Whole numbers in [0, 2^52) as doubles: their bits below those of 2^52. There is no instruction for it before AVX-512. */
INLINE W w_from_whole(WM n) { return (W)(n | (WM)w_splat(0x1p52)) - 0x1p52; }

INLINE WM lanes_below(size_t left) { return (WM){0, 1, 2, 3} < (int64_t)(left < 4 ? left : 4); }

/* The adjusted rewards of up to four responses. */
INLINE W adjusted_rewards(const rein_budget_task *t, size_t i, size_t left, WM *marks) {
    const rein_budget *b = t->budget;
    const WM lengths = load_lengths(t->lengths + i, left);
    const W reward = load_reals((const real *)t->rewards + i, left), length = w_from_whole(lengths);
    const W budget = b->token_budgets ? w_from_whole(load_lengths(b->token_budgets + i, left)) : w_splat(b->token_budget);
    *marks |= lengths;
    if (b->rule == REIN_BUDGET_LINEAR) return budget_linear(reward, length, budget, w_splat(b->budget_penalty_coef));
    *marks |= ~(reward * 0 == 0); /* the rule may not look at the reward, but it must be a number */
    return budget_truncate(reward, length, budget, w_splat(b->budget_penalty));
}

/* The mean of a prompt's adjusted rewards; *flat when they are all equal, or equal but for rounding. The sum is of differences to the
 * first one: exact when all are equal. */
INLINE double baseline_of(const rein_budget_task *t, size_t first, size_t last, int *flat, double *reach, WM *marks) {
    W x = adjusted_rewards(t, first, last - first, marks);
    const W origin = w_splat(x[0]);
    if (last - first < 4) x = w_pick(lanes_below(last - first), x, origin);
    W low = x, high = x, sum = x - origin;
    for (size_t i = first + 4; i < last; i += 4) {
        const size_t left = last - i;
        x = left >= 4 ? adjusted_rewards(t, i, 4, marks) : w_pick(lanes_below(left), adjusted_rewards(t, i, left, marks), origin);
        low = w_least(low, x);
        high = w_most(high, x);
        sum += x - origin;
    }
    const double lowest = w_lowest(low), highest = w_highest(high), total = w_sum(sum),
                 size = highest > -lowest ? highest : -lowest;
    *flat = highest - lowest <= 1e-12 * size && total == total; /* a NaN loses every comparison, but not in the sum */
    *reach = size > *reach ? size : *reach;
    return *flat ? origin[0] : origin[0] + total / (double)(last - first);
}

/* The squared gaps of up to four responses; with `write`, the outputs. */
INLINE W squared_gaps(const rein_budget_task *t, size_t i, size_t left, double baseline, int flat, int write, WM *marks) {
    const W adjusted = adjusted_rewards(t, i, left, marks), advantage = flat ? w_splat(0) : adjusted - baseline;
    const W d = load_reals((const real *)t->log_probs + i, left) - load_reals((const real *)t->old_log_probs + i, left);
    const W all = advantage - t->budget->kl_coef * d, gap = left >= 4 ? all : w_keep(lanes_below(left), all);
    if (write) {
        if (t->grad) store_reals((real *)t->grad + i, t->scale * gap, left);
        if (t->adjusted) store_reals((real *)t->adjusted + i, adjusted, left);
        if (t->advantages) store_reals((real *)t->advantages + i, advantage, left);
    }
    return gap * gap;
}

rein_budget_sums KERNEL(rein_budget_pass)(const rein_budget_task *t, size_t first, size_t last, int write) {
    const rein_budget budget = *t->budget; /* copies: stores to the outputs cannot change them */
    rein_budget_task task = *t;
    task.budget = &budget;
    rein_budget_sums sums = {0, 0, 0};
    WM marks = {0};
    for (size_t p = first; p < last; p++) {
        int flat;
        size_t i = t->offsets[p];
        const size_t end = t->offsets[p + 1];
        const double baseline = baseline_of(&task, i, end, &flat, &sums.reach, &marks);
        W loss = w_splat(0);
        for (; i + 4 <= end; i += 4) loss += squared_gaps(&task, i, 4, baseline, flat, write, &marks);
        if (i < end) loss += squared_gaps(&task, i, end - i, baseline, flat, write, &marks);
        if (write && task.baselines) ((real *)task.baselines)[p] = (real)baseline;
        sums.loss += w_sum(loss);
    }
    sums.marks = marks[0] | marks[1] | marks[2] | marks[3];
    return sums;
}
