/* budget.c - the budget-constrained loss of Kimi K2 (arXiv 2507.20534, sec. 3.2.3) over sequence log-probabilities. Compiled per type;
 * all arithmetic is in double.
 *
 *     adjusted_i = r_i − λ·max(0, L_i − B)
 *     A_i        = adjusted_i − mean over the prompt's responses of adjusted
 *     loss       = mean over all responses of (A_i − τ·(lp_i − old_i))²,        dloss/dlp_i = −2τ·(A_i − τ(lp_i − old_i))/N
 *
 * The prompts are read twice: for the loss, then for the outputs, which stay untouched if the loss is not finite. */
#include "../base/base.h"
#include "../base/pool.h"
#include "check.h"
#include "reward.h"
#include "typed.h"

/* Such lengths are exact as doubles. */
static inline int is_length(int64_t length) { return length >= 0 && length < (int64_t)1 << 51; }

typedef struct task {
    real *adjusted, *advantages, *baselines, *grad; /* outputs, or NULL */
    const real *rewards, *log_probs, *old_log_probs;
    const int64_t *lengths;
    const size_t *offsets;
    size_t n_prompts;
    rein_budget budget;
    double scale; /* of the gradient: −2τ/N */
} task;

typedef struct sums {
    double loss;  /* Σ (A − τ·(lp − old))² */
    double reach; /* the largest |adjusted| */
    int bad;      /* 1 if a length is out of range or a reward is not finite */
} sums;

static rein_status check_budget(const rein_budget *b, size_t n, rein_error *err) {
    const int linear = b->rule == REIN_BUDGET_LINEAR;
    if (!linear && b->rule != REIN_BUDGET_TRUNCATE)
        return rein_fail_at(err, REIN_EINVAL, "rule", -1, "is %d: REIN_BUDGET_LINEAR or REIN_BUDGET_TRUNCATE", (int)b->rule);
    rein_status status = rein_check_coefficient(b->kl_coef, "kl_coef", err);
    if (status == REIN_OK && linear) status = rein_check_coefficient(b->budget_penalty_coef, "budget_penalty_coef", err);
    if (status == REIN_OK && !linear) status = rein_check_coefficient(b->budget_penalty, "budget_penalty", err);
    if (status == REIN_OK && !b->token_budgets) status = rein_check_coefficient(b->token_budget, "token_budget", err);
    return status == REIN_OK ? rein_check_lengths(b->token_budgets, n, "token_budget", err) : status;
}

/* Names the first bad number. If every number is valid, the sum overflows. */
static rein_status find_bad(const task *t, rein_error *err) {
    const size_t n = t->offsets[t->n_prompts];
    rein_status status = rein_check_numbers(t->rewards, REAL, n, "rewards", err);
    if (status == REIN_OK) status = rein_check_numbers(t->log_probs, REAL, n, "log_probs", err);
    if (status == REIN_OK) status = rein_check_numbers(t->old_log_probs, REAL, n, "old_log_probs", err);
    for (size_t i = 0; status == REIN_OK && i < n; i++)
        if (!is_length(t->lengths[i]))
            return rein_fail_at(err, REIN_EINVAL, "response_lengths", (int64_t)i, "is %lld: a length is 0 or more, and below 2^51",
                                (long long)t->lengths[i]);
    if (status != REIN_OK) return status;
    return rein_fail(err, REIN_ERANGE,
                     "the loss is not finite, or its gradient: a reward, a log-prob or a coefficient is too large");
}

/* A prompt is read in chunks. Sums are kept in lanes, response i in lane i % LANES, which the compiler computes side by side. */
enum { LANES = 4, CHUNK = 64 };

/* Fills the last lanes of a chunk of n numbers with x; returns the new n. */
static size_t fill_lanes(double *chunk, size_t n, double x) {
    while (n % LANES) chunk[n++] = x;
    return n;
}

static void adjust(double *restrict adjusted, const task *t, size_t first, size_t n) {
    const rein_budget b = t->budget;
    for (size_t k = 0; k < n; k++) {
        const double reward = (double)t->rewards[first + k], length = (double)t->lengths[first + k];
        const double limit = b.token_budgets ? (double)b.token_budgets[first + k] : b.token_budget;
        adjusted[k] = b.rule == REIN_BUDGET_LINEAR ? rein_budget_linear(reward, length, limit, b.budget_penalty_coef)
                                                   : rein_budget_truncate(reward, length, limit, b.budget_penalty);
    }
}

/* Valid lengths and their bitwise or are in the same range. The truncating rule may ignore a reward, but it must be finite. */
static int has_bad(const task *t, size_t first, size_t n) {
    int64_t lengths = 0;
    int finite = 1;
    for (size_t i = first; i < first + n; i++) lengths |= t->lengths[i];
    for (size_t i = first; t->budget.rule == REIN_BUDGET_TRUNCATE && i < first + n; i++) finite &= isfinite(t->rewards[i]) != 0;
    return !is_length(lengths) || !finite;
}

static double least(double a, double b) { return a < b ? a : b; }
static double most(double a, double b) { return a > b ? a : b; }

/* The mean of a prompt's adjusted rewards, of which the last chunk stays in x. *equal is 1 when they agree to 1e-12; then the mean is the
 * first of them. The sum is of differences to the first, the origin: exact when all are equal. */
static double mean_of_prompt(double *restrict x, int *equal, sums *s, const task *t, size_t first, size_t last) {
    adjust(x, t, first, 1);
    const double origin = x[0];
    double low[LANES] = {origin, origin, origin, origin}, high[LANES] = {origin, origin, origin, origin}, sum[LANES] = {0};
    for (size_t i = first; i < last; i += CHUNK) {
        const size_t n = last - i < CHUNK ? last - i : CHUNK;
        adjust(x, t, i, n);
        s->bad |= has_bad(t, i, n);
        const size_t filled = fill_lanes(x, n, origin);
        for (size_t k = 0; k < filled; k += LANES)
            for (size_t l = 0; l < LANES; l++) {
                low[l] = least(x[k + l], low[l]);
                high[l] = most(x[k + l], high[l]);
                sum[l] += x[k + l] - origin;
            }
    }
    const double lowest = least(least(low[0], low[2]), least(low[1], low[3]));
    const double highest = most(most(high[0], high[2]), most(high[1], high[3]));
    const double total = (sum[0] + sum[2]) + (sum[1] + sum[3]), size = most(highest, -lowest);
    s->reach = most(size, s->reach);
    *equal = highest - lowest <= 1e-12 * size && !isnan(total); /* comparisons ignore a NaN, but the sum keeps it */
    return *equal ? origin : origin + total / (double)(last - first);
}

/* Adds the loss of prompts [from, to); with `write`, writes the outputs. */
static sums add_prompts(const task *t, size_t from, size_t to, int write) {
    sums s = {0, 0, 0};
    double x[CHUNK], gap[CHUNK], square[LANES] = {0};
    const double tau = t->budget.kl_coef, scale = t->scale;
    for (size_t p = from; p < to; p++) {
        const size_t first = t->offsets[p], last = t->offsets[p + 1];
        int equal;
        const double mean = mean_of_prompt(x, &equal, &s, t, first, last);
        for (size_t i = first; i < last; i += CHUNK) {
            const size_t n = last - i < CHUNK ? last - i : CHUNK;
            if (last - first > CHUNK) adjust(x, t, i, n);
            for (size_t k = 0; k < n; k++) {
                const double advantage = equal ? 0 : x[k] - mean;
                gap[k] = advantage - tau * ((double)t->log_probs[i + k] - (double)t->old_log_probs[i + k]);
                if (write && t->grad) t->grad[i + k] = (real)(scale * gap[k]);
                if (write && t->adjusted) t->adjusted[i + k] = (real)x[k];
                if (write && t->advantages) t->advantages[i + k] = (real)advantage;
            }
            const size_t filled = fill_lanes(gap, n, 0);
            for (size_t k = 0; k < filled; k += LANES)
                for (size_t l = 0; l < LANES; l++) square[l] += gap[k + l] * gap[k + l];
        }
        if (write && t->baselines) t->baselines[p] = (real)mean;
    }
    s.loss = ((square[0] + square[1]) + square[2]) + square[3];
    return s;
}

typedef struct run {
    const task *task;
    int write;
    sums sums[PIECES];
} run;

static void do_piece(void *context, size_t k, int thread) {
    run *r = context;
    const size_t n = r->task->n_prompts;
    (void)thread;
    r->sums[k] = add_prompts(r->task, piece_start(n, k), piece_start(n, k + 1), r->write);
}

rein_status TYPED(rein_budget_loss)(double *loss, real *adjusted, real *advantages, real *baselines, real *grad_log_probs,
                                    const real *rewards, const real *log_probs, const real *old_log_probs,
                                    const int64_t *response_lengths, const size_t *offsets, size_t n_prompts,
                                    const rein_budget *budget, const rein_exec *exec, rein_error *err) {
    if (n_prompts == 0) return rein_fail_at(err, REIN_EINVAL, "rewards", -1, "is empty: at least one prompt is needed");
    for (size_t p = 0; p < n_prompts; p++)
        if (offsets[p + 1] <= offsets[p])
            return rein_fail_at(err, REIN_EINVAL, "offsets", (int64_t)p + 1,
                                "is %zu, and the one before is %zu: a prompt has at least one response", offsets[p + 1],
                                offsets[p]);
    const size_t n = offsets[n_prompts];
    const task t = {adjusted,      advantages,       baselines, grad_log_probs, rewards, log_probs,
                    old_log_probs, response_lengths, offsets,   n_prompts,      *budget, -2 * budget->kl_coef / (double)n};
    rein_exec e;
    rein_status status = rein_exec_resolve(&e, exec, n, err);
    if (status == REIN_OK) status = check_budget(budget, n, err);
    if (status != REIN_OK) return status;

    run r = {.task = &t};
    sums total = {0, 0, 0};
    rein_parallel(e.threads, PIECES, do_piece, &r);
    for (size_t k = 0; k < PIECES; k++) {
        total.loss += r.sums[k].loss;
        total.reach = fmax(total.reach, r.sums[k].reach);
        total.bad |= r.sums[k].bad;
    }
    const double steepest = t.scale * sqrt(total.loss); /* no single gap exceeds the root of the sum of squares */
    if (total.bad || !isfinite(total.loss) || !isfinite((real)steepest) || !isfinite((real)total.reach)) return find_bad(&t, err);
    *loss = total.loss / (double)n;
    r.write = adjusted || advantages || baselines || grad_log_probs;
    if (r.write) rein_parallel(e.threads, PIECES, do_piece, &r);
    return REIN_OK;
}
