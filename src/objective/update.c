/* update.c - the RLHF weight update: w' = w + lr·(1/n) Σ_i (R_i − β·(lp_i − ref_i))·G_i. Compiled per type.
 *
 * G is read once, in strips of columns whose sums stay in the caches. The previous content of `updated` is saved until the result is
 * known to be finite. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../base/base.h"
#include "../base/pool.h"
#include "../base/scratch.h"
#include "check.h"
#include "typed.h"

/* c [n] = lr/n·(R − β·(lp − ref)) */
static rein_status coefficients(double *c, const real *rewards, const real *lp, const real *ref, size_t n, double beta, double lr,
                                rein_error *err) {
    rein_status status = rein_check_numbers(rewards, REAL, n, "rewards", err);
    if (status == REIN_OK) status = rein_check_numbers(lp, REAL, n, "policy_log_probs", err);
    if (status == REIN_OK) status = rein_check_numbers(ref, REAL, n, "ref_log_probs", err);
    for (size_t i = 0; status == REIN_OK && i < n; i++)
        c[i] = lr / (double)n * ((double)rewards[i] - beta * ((double)lp[i] - (double)ref[i]));
    return status;
}

static rein_status find_bad(const real *weights, const real *g, size_t n, size_t p, rein_error *err) {
    rein_status status = rein_check_numbers(weights, REAL, p, "weights", err);
    if (status == REIN_OK) status = rein_check_numbers(g, REAL, n * p, "log_prob_grads", err);
    if (status != REIN_OK) return status;
    return rein_fail(err, REIN_ERANGE, "an updated weight is not finite: lr, rewards or gradients are too large");
}

enum { STRIP = 4096 }; /* columns */

typedef struct task {
    real *updated, *before; /* [p]; before: a copy of the previous content of updated, or NULL */
    const real *weights;    /* [p] */
    const real *grads;      /* [n][p] */
    const double *c;        /* [n]: coefficients */
    double *sums;           /* [threads][STRIP]: not on the stack of a thread, which may be small */
    size_t n, p;
    atomic_int bad; /* an updated weight is not finite */
} task;

/* sum[j] += Σ c·g, four rows at a time, because each access to `sum` costs a load and a store. Rows are added in order. */
static void add_rows(double *restrict sum, const real *g, size_t stride, const double *c, size_t rows, size_t columns) {
    size_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        const real *g0 = g + i * stride, *g1 = g0 + stride, *g2 = g1 + stride, *g3 = g2 + stride;
        const double c0 = c[i], c1 = c[i + 1], c2 = c[i + 2], c3 = c[i + 3];
        for (size_t j = 0; j < columns; j++)
            sum[j] = sum[j] + c0 * (double)g0[j] + c1 * (double)g1[j] + c2 * (double)g2[j] + c3 * (double)g3[j];
    }
    for (; i < rows; i++)
        for (size_t j = 0; j < columns; j++) sum[j] += c[i] * (double)g[i * stride + j];
}

/* Writes a strip only if all of it is finite. */
static void update_strip(void *context, size_t k, int thread) {
    task *t = context;
    const size_t first = k * STRIP, left = t->p - first, columns = left < STRIP ? left : STRIP;
    real *updated = t->updated + first;
    double *sum = t->sums + (size_t)thread * STRIP;
    int finite = 1;
    memset(sum, 0, columns * sizeof *sum);
    if (t->before) memcpy(t->before + first, updated, columns * sizeof *updated);
    add_rows(sum, t->grads + first, t->p, t->c, t->n, columns);
    for (size_t j = 0; j < columns; j++) {
        sum[j] += (double)t->weights[first + j];
        finite &= isfinite((real)sum[j]) != 0;
    }
    for (size_t j = 0; finite && j < columns; j++) updated[j] = (real)sum[j];
    if (!finite) atomic_store(&t->bad, 1);
}

rein_status TYPED(rein_rlhf_update)(real *updated, const real *weights, const real *rewards, const real *policy_log_probs,
                                    const real *ref_log_probs, const real *log_prob_grads, size_t n, size_t p, double beta,
                                    double lr, const rein_exec *exec, rein_error *err) {
    rein_exec e;
    rein_status status = rein_exec_resolve(&e, exec, n * p, err);
    if (status != REIN_OK) return status;
    if (n == 0) return rein_fail_at(err, REIN_EINVAL, "rewards", -1, "is empty: at least one sample is needed");
    if (p == 0) return rein_fail_at(err, REIN_EINVAL, "weights", -1, "is empty: at least one weight is needed");
    status = rein_check_coefficient(beta, "beta", err);
    if (status == REIN_OK) status = rein_check_coefficient(lr, "lr", err);
    if (status != REIN_OK) return status;
    const int several = p > STRIP; /* a single strip is written completely or not at all */
    double *c = malloc(n * sizeof *c), *sums = malloc((size_t)e.threads * STRIP * sizeof *sums);
    real *before = several ? rein_scratch_take(p * sizeof *before) : NULL;
    status = !c || !sums || (several && !before)
                 ? rein_fail(err, REIN_ENOMEM, "no memory for %zu coefficients and %zu weights", n, p)
                 : coefficients(c, rewards, policy_log_probs, ref_log_probs, n, beta, lr, err);
    if (status == REIN_OK) {
        task t = {updated, before, weights, log_prob_grads, c, sums, n, p, 0};
        rein_parallel(e.threads, (p + STRIP - 1) / STRIP, update_strip, &t);
        if (atomic_load(&t.bad)) {
            if (before) memcpy(updated, before, p * sizeof *before);
            status = find_bad(weights, log_prob_grads, n, p, err);
        }
    }
    rein_scratch_give(before);
    free(sums);
    free(c);
    return status;
}
