/* budget.c - the budget-constrained loss of Kimi K2 (arXiv 2507.20534, sec. 3.2.3) over sequence log-probabilities. Compiled per type:
 * it checks the inputs and calls the kernel of budget_pass.c, which computes in double.
 *
 *     adjusted_i = r_i − λ·max(0, L_i − B)
 *     A_i        = adjusted_i − mean over the prompt's responses of adjusted
 *     loss       = mean over all responses of (A_i − τ·(lp_i − old_i))²,        dloss/dlp_i = −2τ·(A_i − τ(lp_i − old_i))/N */
#include "kernels.h"

#include <math.h>

#include "../base/base.h"
#include "../base/pool.h"
#include "typed.h"

static rein_status check_budget(const rein_budget *b, size_t n, rein_error *err) {
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"kl_coef", b->kl_coef},
                   {"budget_penalty_coef", b->rule == REIN_BUDGET_LINEAR ? b->budget_penalty_coef : 0},
                   {"budget_penalty", b->rule == REIN_BUDGET_TRUNCATE ? b->budget_penalty : 0},
                   {"token_budget", b->token_budgets ? 0 : b->token_budget}};
    if (b->rule != REIN_BUDGET_LINEAR && b->rule != REIN_BUDGET_TRUNCATE)
        return rein_fail_at(err, REIN_EINVAL, "rule", -1, "is %d: REIN_BUDGET_LINEAR or REIN_BUDGET_TRUNCATE", (int)b->rule);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!(numbers[i].value >= 0) || !isfinite(numbers[i].value))
            return rein_fail_at(err, REIN_EINVAL, numbers[i].name, -1, "is %g: it must be 0 or more", numbers[i].value);
    for (size_t i = 0; b->token_budgets && i < n; i++)
        if (b->token_budgets[i] < 0)
            return rein_fail_at(err, REIN_EINVAL, "token_budget", (int64_t)i, "is %lld: it must be 0 or more",
                                (long long)b->token_budgets[i]);
    return REIN_OK;
}

/* Names the first bad number. If every number is valid, the sum overflows. */
static rein_status find_bad(const rein_budget_task *t, size_t n, rein_error *err) {
    const struct {
        const real *array;
        const char *name;
    } arrays[] = {{t->rewards, "rewards"}, {t->log_probs, "log_probs"}, {t->old_log_probs, "old_log_probs"}};
    for (size_t i = 0; i < n; i++) {
        for (size_t a = 0; a < 3; a++)
            if (!isfinite(arrays[a].array[i]))
                return rein_fail_at(err, REIN_EINVAL, arrays[a].name, (int64_t)i, "is not a finite number");
        if (t->lengths[i] < 0 || t->lengths[i] >= REIN_LENGTH_LIMIT)
            return rein_fail_at(err, REIN_EINVAL, "response_lengths", (int64_t)i, "is %lld: a length is 0 or more, and below 2^51",
                                (long long)t->lengths[i]);
    }
    return rein_fail(err, REIN_ERANGE,
                     "the loss is not finite, or its gradient: a reward, a log-prob or a coefficient is too large");
}

typedef struct run {
    const rein_budget_task *task;
    rein_budget_fn *pass;
    size_t n_prompts;
    rein_budget_sums sums[PIECES];
} run;

static void sum_piece(void *context, size_t k, int thread) {
    run *r = context;
    (void)thread;
    r->sums[k] = r->pass(r->task, piece_start(r->n_prompts, k), piece_start(r->n_prompts, k + 1), 0);
}

static void write_piece(void *context, size_t k,
                        int thread) { /* from the last piece to the first: the end of the arrays is still cached */
    run *r = context;
    const size_t piece = PIECES - 1 - k;
    (void)thread;
    (void)r->pass(r->task, piece_start(r->n_prompts, piece), piece_start(r->n_prompts, piece + 1), 1);
}

rein_status TYPED(rein_budget_loss)(double *loss, real *adjusted, real *advantages, real *baselines, real *grad_log_probs,
                                    const real *rewards, const real *log_probs, const real *old_log_probs,
                                    const int64_t *response_lengths, const size_t *offsets, size_t n_prompts,
                                    const rein_budget *budget, const rein_exec *exec, rein_error *err) {
    if (n_prompts == 0) return rein_fail_at(err, REIN_EINVAL, "rewards", -1, "is empty: at least one prompt is needed");
    for (size_t p = 0; p < n_prompts; p++)
        if (offsets[p + 1] <= offsets[p])
            return rein_fail(err, REIN_EINVAL, "prompt %zu has no responses: at least one is needed", p);
    const size_t n = offsets[n_prompts];
    const rein_budget_task t = {adjusted,
                                advantages,
                                baselines,
                                grad_log_probs,
                                rewards,
                                log_probs,
                                old_log_probs,
                                response_lengths,
                                offsets,
                                budget,
                                -2 * budget->kl_coef / (double)n};
    rein_exec e;
    rein_status status = rein_exec_resolve(&e, exec, n, err);
    if (status == REIN_OK) status = check_budget(budget, n, err);
    if (status != REIN_OK) return status;

    run r = {.task = &t, .pass = rein_kernels_of(e.isa)->OBJECTIVE_KERNELS->budget, .n_prompts = n_prompts};
    rein_budget_sums total = {0, 0, 0};
    rein_parallel(e.threads, PIECES, sum_piece, &r);
    for (size_t k = 0; k < PIECES; k++) {
        total.loss += r.sums[k].loss;
        total.reach = fmax(total.reach, r.sums[k].reach);
        total.marks |= r.sums[k].marks;
    }
    const int lengths_fine = total.marks >= 0 && total.marks < REIN_LENGTH_LIMIT;
    const double steepest = t.scale * sqrt(total.loss); /* no single gap exceeds the root of the sum of squares */
    if (!lengths_fine || !isfinite(total.loss) || !isfinite((real)steepest) || !isfinite((real)total.reach))
        return find_bad(&t, n, err);
    *loss = total.loss / (double)n;
    if (adjusted || advantages || baselines || grad_log_probs) rein_parallel(e.threads, PIECES, write_piece, &r);
    return REIN_OK;
}
