/* budget_pass.c - the budget-constrained loss over prompts, four responses at a time in double; compiled per type and instruction set.
 * A prompt's sums are added in a fixed lane order, so every build gives the same bits. */
#include "budget_pass.h"

#include "../kernel/lanes.h"
#include "budget_rule.h"

INLINE W w_splat(double x) { return (W){x, x, x, x}; }
#ifdef __AVX2__
INLINE W w_least(W a, W b) { return (W)_mm256_min_pd((__m256d)a, (__m256d)b); }
INLINE W w_most(W a, W b) { return (W)_mm256_max_pd((__m256d)a, (__m256d)b); }
#else
INLINE W w_least(W a, W b) { return w_pick(a < b, a, b); } /* b when either is NaN, as the instruction does */
INLINE W w_most(W a, W b) { return w_pick(a > b, a, b); }
#endif

/* The transpose of four vectors: lane l of part k is lane k of x[l]. */
typedef struct parts {
    W part[4];
} parts;
INLINE parts w_transpose(const W *x) {
    const W a = __builtin_shufflevector(x[0], x[1], 0, 4, 2, 6), b = __builtin_shufflevector(x[0], x[1], 1, 5, 3, 7);
    const W c = __builtin_shufflevector(x[2], x[3], 0, 4, 2, 6), d = __builtin_shufflevector(x[2], x[3], 1, 5, 3, 7);
    return (parts){{__builtin_shufflevector(a, c, 0, 1, 4, 5), __builtin_shufflevector(b, d, 0, 1, 4, 5),
                    __builtin_shufflevector(a, c, 2, 3, 6, 7), __builtin_shufflevector(b, d, 2, 3, 6, 7)}};
}

/* Horizontal sum, minimum and maximum of each of four vectors. */
INLINE W w_sums(const W *x) {
    const parts p = w_transpose(x);
    return (p.part[0] + p.part[2]) + (p.part[1] + p.part[3]);
}
INLINE W w_lowest(const W *x) {
    const parts p = w_transpose(x);
    return w_least(w_least(p.part[0], p.part[2]), w_least(p.part[1], p.part[3]));
}
INLINE W w_highest(const W *x) {
    const parts p = w_transpose(x);
    return w_most(w_most(p.part[0], p.part[2]), w_most(p.part[1], p.part[3]));
}

/* Four numbers; if fewer than four are left, zeros follow them. */
INLINE W load_reals(const real *p, size_t left) {
    F r = {0};
    if (left >= 4) memcpy(&r, p, sizeof r);
    else
        for (size_t l = 0; l < left; l++) r[l] = p[l];
    return to_doubles(r);
}

INLINE void store_reals(real *p, W x, size_t left) {
    const F r = from_doubles(x);
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

/* Converts integers in [0, 2^52) to doubles by placing their bits below those of 2^52. AVX2 has no instruction for it. */
INLINE W w_from_whole(WM n) { return (W)(n | (WM)w_splat(0x1p52)) - 0x1p52; }

INLINE WM lanes_below(size_t left) { return (WM){0, 1, 2, 3} < (int64_t)(left < 4 ? left : 4); }

/* The task in the form that the loops use. Below, `simple` means the linear rule with one budget for all responses. */
typedef struct run {
    const real *rewards, *log_probs, *old_log_probs;
    const int64_t *lengths, *budgets;
    real *adjusted, *advantages, *baselines, *grad;
    W budget, coef, penalty, kl_coef, scale;
    int linear;
} run;

static run run_of(const rein_budget_task *t, int write) {
    const rein_budget *b = t->budget;
    run r = {.rewards = t->rewards,
             .log_probs = t->log_probs,
             .old_log_probs = t->old_log_probs,
             .lengths = t->lengths,
             .budgets = b->token_budgets,
             .budget = w_splat(b->token_budget),
             .coef = w_splat(b->budget_penalty_coef),
             .penalty = w_splat(b->budget_penalty),
             .kl_coef = w_splat(b->kl_coef),
             .scale = w_splat(t->scale),
             .linear = b->rule == REIN_BUDGET_LINEAR};
    if (write) r.adjusted = t->adjusted, r.advantages = t->advantages, r.baselines = t->baselines, r.grad = t->grad;
    return r;
}

/* The adjusted rewards of up to four responses. */
INLINE W adjusted_rewards(const run *r, size_t i, size_t left, WM *marks, const int simple) {
    const WM lengths = load_lengths(r->lengths + i, left);
    const W reward = load_reals(r->rewards + i, left), length = w_from_whole(lengths);
    const W budget = !simple && r->budgets ? w_from_whole(load_lengths(r->budgets + i, left)) : r->budget;
    *marks |= lengths;
    if (simple || r->linear) return budget_linear(reward, length, budget, r->coef);
    *marks |= ~(reward * 0 == 0); /* the rule may ignore the reward, but it must be finite */
    return budget_truncate(reward, length, budget, r->penalty);
}

/* Several prompts are processed at a time in three short loops: one long chain of dependent operations per prompt would stall the core. */
enum { PROMPTS = 32, KEPT = 256 };

/* Over a prompt's adjusted rewards, lane by lane. The sum is of differences to the first one, the origin: exact when all are equal. */
typedef struct spread {
    W low, high, sum;
} spread;
INLINE spread widen_by(spread s, W x, W origin) { return (spread){w_least(s.low, x), w_most(s.high, x), s.sum + (x - origin)}; }

typedef struct batch {
    W kept[KEPT]; /* adjusted rewards; each prompt starts a new vector */
    W low[PROMPTS], high[PROMPTS], sum[PROMPTS];
    double origin[PROMPTS], count[PROMPTS]; /* a prompt's first adjusted reward, and how many it has */
    double baseline[PROMPTS];
    int64_t uneven[PROMPTS]; /* 0 when a prompt's adjusted rewards are equal up to rounding, else −1 */
} batch;

INLINE size_t vectors_of(size_t responses) { return (responses + 3) / 4; }

/* Reads prompt k's responses [first, last). If `kept` is NULL they are only summed, and computed again later. */
INLINE void read_prompt(batch *b, size_t k, W *kept, const run *r, size_t first, size_t last, WM *marks, const int simple) {
    W x = adjusted_rewards(r, first, last - first, marks, simple);
    const W origin = w_splat(x[0]);
    if (last - first < 4) x = w_pick(lanes_below(last - first), x, origin);
    spread s = {x, x, x - origin};
    size_t i = first + 4;
    if (kept) *kept++ = x;
    for (; i + 4 <= last; i += 4) {
        x = adjusted_rewards(r, i, 4, marks, simple);
        if (kept) *kept++ = x;
        s = widen_by(s, x, origin);
    }
    if (i < last) {
        x = w_pick(lanes_below(last - i), adjusted_rewards(r, i, last - i, marks, simple), origin);
        if (kept) *kept = x;
        s = widen_by(s, x, origin);
    }
    b->low[k] = s.low;
    b->high[k] = s.high;
    b->sum[k] = s.sum;
    b->origin[k] = origin[0];
    b->count[k] = (double)(last - first);
}

/* The mean of each prompt's adjusted rewards: exact when all are equal. Returns the largest magnitude. */
INLINE W find_baselines(batch *b, size_t prompts, W reach) {
    for (size_t k = prompts; k % 4; k++) b->low[k] = b->high[k] = b->sum[k] = w_splat(0), b->origin[k] = 0, b->count[k] = 1;
    for (size_t k = 0; k < prompts; k += 4) {
        const W lowest = w_lowest(b->low + k), highest = w_highest(b->high + k), total = w_sums(b->sum + k),
                size = w_most(highest, -lowest);
        /* comparisons ignore a NaN, but the sum keeps it */
        const WM uneven = ~((highest - lowest <= 1e-12 * size) & (total == total));
        W origin, count;
        memcpy(&origin, b->origin + k, sizeof origin);
        memcpy(&count, b->count + k, sizeof count);
        const W baseline = origin + w_keep(uneven, total / count);
        memcpy(b->baseline + k, &baseline, sizeof baseline);
        memcpy(b->uneven + k, &uneven, sizeof uneven);
        reach = w_most(size, reach);
    }
    return reach;
}

/* The squared gaps of up to four responses; with `write`, the outputs. */
INLINE W squared_gaps(const run *r, W adjusted, size_t i, size_t left, W baseline, WM uneven, const int write) {
    const W advantage = w_keep(uneven, adjusted - baseline),
            d = load_reals(r->log_probs + i, left) - load_reals(r->old_log_probs + i, left);
    const W all = advantage - r->kl_coef * d, gap = left >= 4 ? all : w_keep(lanes_below(left), all);
    if (write) {
        if (r->grad) store_reals(r->grad + i, r->scale * gap, left);
        if (r->adjusted) store_reals(r->adjusted + i, adjusted, left);
        if (r->advantages) store_reals(r->advantages + i, advantage, left);
    }
    return gap * gap;
}

INLINE W prompt_loss(W loss, const run *r, const W *kept, size_t first, size_t last, double baseline, int64_t uneven,
                     const int simple, const int write) {
    const W mean = w_splat(baseline);
    const WM is_uneven = {uneven, uneven, uneven, uneven};
    WM unused = {0};
    size_t i = first;
    for (; i + 4 <= last; i += 4)
        loss += squared_gaps(r, kept ? *kept++ : adjusted_rewards(r, i, 4, &unused, simple), i, 4, mean, is_uneven, write);
    if (i < last)
        loss +=
            squared_gaps(r, kept ? *kept : adjusted_rewards(r, i, last - i, &unused, simple), i, last - i, mean, is_uneven, write);
    return loss;
}

INLINE rein_budget_sums pass(const run r, const size_t *offsets, size_t first, size_t last, const int simple, const int write) {
    batch b;
    W loss = w_splat(0), reach = w_splat(0);
    WM marks = {0};
    for (size_t p = first, next; p < last; p = next) {
        size_t used = 0, k = 0;
        for (next = p; next < last && k < PROMPTS; next++, k++) {
            const size_t start = offsets[next], end = offsets[next + 1], vectors = vectors_of(end - start);
            const int fits = used + vectors <= KEPT;
            if (!fits && k > 0) break; /* it starts the next batch; a prompt that never fits has a batch of its own */
            read_prompt(&b, k, fits ? b.kept + used : NULL, &r, start, end, &marks, simple);
            used += vectors;
        }
        reach = find_baselines(&b, k, reach);
        const W *kept = used <= KEPT ? b.kept : NULL;
        for (size_t q = 0; q < k; q++) {
            const size_t start = offsets[p + q], end = offsets[p + q + 1];
            loss = prompt_loss(loss, &r, kept, start, end, b.baseline[q], b.uneven[q], simple, write);
            if (kept) kept += vectors_of(end - start);
            if (write && r.baselines) r.baselines[p + q] = (real)b.baseline[q];
        }
    }
    rein_budget_sums sums = {0, 0, 0};
    for (int l = 0; l < 4; l++) {
        sums.loss += loss[l];
        sums.reach = reach[l] > sums.reach ? reach[l] : sums.reach;
        sums.marks |= marks[l];
    }
    return sums;
}

rein_budget_sums KERNEL(rein_budget_pass)(const rein_budget_task *t, size_t first, size_t last, int write) {
    const run r = run_of(t, write);
    if (!r.linear || r.budgets) return pass(r, t->offsets, first, last, 0, 1); /* outputs that are not wanted are NULL */
    if (write) return pass(r, t->offsets, first, last, 1, 1);
    return pass(r, t->offsets, first, last, 1, 0);
}
