/* update.c - the RLHF weight update: w' = w + lr·(1/n) Σ_i (R_i − β·(lp_i − ref_i))·G_i. Compiled per type.
 *
 * G is read once, in strips of columns whose sums stay in the caches; a row's share is added in row order, in double. What
 * `updated` held before is kept aside until the result is known to be finite. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../base/base.h"
#include "../base/pool.h"
#include "rein/objective.h"
#include "typed.h"

enum { STRIP = 4096 };

/* sum[j] += Σ over four rows of c·g: four at a time, because each visit of `sum` costs a load and a store. */
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

static rein_status coefficients(double *c, const real *rewards, const real *lp, const real *ref, size_t n, double beta, double lr,
                                rein_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(rewards[i])) return rein_fail(err, REIN_EINVAL, "rewards[%zu] is not a finite number", i);
        if (!isfinite(lp[i])) return rein_fail(err, REIN_EINVAL, "policy_log_probs[%zu] is not a finite number", i);
        if (!isfinite(ref[i])) return rein_fail(err, REIN_EINVAL, "ref_log_probs[%zu] is not a finite number", i);
        c[i] = lr / (double)n * ((double)rewards[i] - beta * ((double)lp[i] - (double)ref[i]));
    }
    return REIN_OK;
}

static rein_status find_bad(const real *weights, const real *g, size_t n, size_t p, rein_error *err) {
    for (size_t j = 0; j < p; j++)
        if (!isfinite(weights[j])) return rein_fail(err, REIN_EINVAL, "weights[%zu] is not a finite number", j);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < p; j++)
            if (!isfinite(g[i * p + j]))
                return rein_fail(err, REIN_EINVAL, "log_prob_grads[%zu][%zu] is not a finite number", i, j);
    return rein_fail(err, REIN_ERANGE, "an updated weight is not finite: lr, rewards or gradients are too large");
}

typedef struct run {
    real *updated, *before;
    const real *weights, *grads;
    const double *c;
    size_t n, p;
    atomic_int bad; /* a weight is not finite */
} run;

static void update_strip(void *context, size_t k, int thread) {
    run *r = context;
    const size_t j = k * STRIP, columns = r->p - j < STRIP ? r->p - j : STRIP;
    real *updated = r->updated + j;
    const real *weights = r->weights + j;
    double sum[STRIP];
    int finite = 1;
    (void)thread;
    memcpy(r->before + j, updated, columns * sizeof *updated);
    memset(sum, 0, sizeof sum);
    add_rows(sum, r->grads + j, r->p, r->c, r->n, columns);
    for (size_t i = 0; i < columns; i++) {
        const real w = (real)((double)weights[i] + sum[i]);
        finite &= isfinite(w) != 0;
        updated[i] = w;
    }
    if (!finite) atomic_store(&r->bad, 1);
}

rein_status TYPED(rein_rlhf_update)(real *updated, const real *weights, const real *rewards, const real *policy_log_probs,
                                    const real *ref_log_probs, const real *log_prob_grads, size_t n, size_t p, double beta,
                                    double lr, const rein_exec *exec, rein_error *err) {
    rein_exec e;
    rein_status status = rein_exec_resolve(&e, exec, n * p, err);
    if (status != REIN_OK) return status;
    if (n == 0) return rein_fail(err, REIN_EINVAL, "rewards is empty: at least one sample is needed");
    if (p == 0) return rein_fail(err, REIN_EINVAL, "weights is empty: at least one weight is needed");
    if (!isfinite(beta) || beta < 0) return rein_fail(err, REIN_EINVAL, "beta is %g: it must be 0 or more", beta);
    if (!isfinite(lr) || lr < 0) return rein_fail(err, REIN_EINVAL, "lr is %g: it must be 0 or more", lr);
    double *c = malloc(n * sizeof *c);
    real *before = malloc(p * sizeof *before);
    if (!c || !before) {
        free(c);
        free(before);
        return rein_fail(err, REIN_ENOMEM, "no memory for %zu coefficients and %zu weights", n, p);
    }
    status = coefficients(c, rewards, policy_log_probs, ref_log_probs, n, beta, lr, err);
    if (status == REIN_OK) {
        run r = {updated, before, weights, log_prob_grads, c, n, p, 0};
        rein_parallel(e.threads, (p + STRIP - 1) / STRIP, update_strip, &r);
        if (atomic_load(&r.bad)) {
            memcpy(updated, before, p * sizeof *before);
            status = find_bad(weights, log_prob_grads, n, p, err);
        }
    }
    free(c);
    free(before);
    return status;
}
