/* update.c - the RLHF weight update: w' = w + lr·(1/n) Σ_i (R_i − β·(lp_i − ref_i))·G_i. Compiled per type.
 *
 * G is read once, in strips of columns (update_pass.c). The previous content of `updated` is saved until the result is known to be
 * finite. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../base/base.h"
#include "../base/pool.h"
#include "../base/scratch.h"
#include "kernels.h"
#include "rein/objective.h"
#include "typed.h"

static rein_status coefficients(double *c, const real *rewards, const real *lp, const real *ref, size_t n, double beta, double lr,
                                rein_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(rewards[i])) return rein_fail_at(err, REIN_EINVAL, "rewards", (int64_t)i, "is not a finite number");
        if (!isfinite(lp[i])) return rein_fail_at(err, REIN_EINVAL, "policy_log_probs", (int64_t)i, "is not a finite number");
        if (!isfinite(ref[i])) return rein_fail_at(err, REIN_EINVAL, "ref_log_probs", (int64_t)i, "is not a finite number");
        c[i] = lr / (double)n * ((double)rewards[i] - beta * ((double)lp[i] - (double)ref[i]));
    }
    return REIN_OK;
}

static rein_status find_bad(const real *weights, const real *g, size_t n, size_t p, rein_error *err) {
    for (size_t j = 0; j < p; j++)
        if (!isfinite(weights[j])) return rein_fail_at(err, REIN_EINVAL, "weights", (int64_t)j, "is not a finite number");
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < p; j++)
            if (!isfinite(g[i * p + j]))
                return rein_fail_at(err, REIN_EINVAL, "log_prob_grads", (int64_t)(i * p + j), "is not a finite number");
    return rein_fail(err, REIN_ERANGE, "an updated weight is not finite: lr, rewards or gradients are too large");
}

typedef struct run {
    const rein_update_task *task;
    rein_update_fn *pass;
    atomic_int bad; /* a weight is not finite */
} run;

static void update_strip(void *context, size_t k, int thread) {
    run *r = context;
    const size_t first = k * REIN_UPDATE_STRIP, left = r->task->p - first;
    (void)thread;
    if (!r->pass(r->task, first, first + (left < REIN_UPDATE_STRIP ? left : REIN_UPDATE_STRIP))) atomic_store(&r->bad, 1);
}

rein_status TYPED(rein_rlhf_update)(real *updated, const real *weights, const real *rewards, const real *policy_log_probs,
                                    const real *ref_log_probs, const real *log_prob_grads, size_t n, size_t p, double beta,
                                    double lr, const rein_exec *exec, rein_error *err) {
    rein_exec e;
    rein_status status = rein_exec_resolve(&e, exec, n * p, err);
    if (status != REIN_OK) return status;
    if (n == 0) return rein_fail_at(err, REIN_EINVAL, "rewards", -1, "is empty: at least one sample is needed");
    if (p == 0) return rein_fail_at(err, REIN_EINVAL, "weights", -1, "is empty: at least one weight is needed");
    if (!isfinite(beta) || beta < 0) return rein_fail_at(err, REIN_EINVAL, "beta", -1, "is %g: it must be 0 or more", beta);
    if (!isfinite(lr) || lr < 0) return rein_fail_at(err, REIN_EINVAL, "lr", -1, "is %g: it must be 0 or more", lr);
    const int several = p > REIN_UPDATE_STRIP; /* a single strip is written completely or not at all */
    double *c = malloc(n * sizeof *c);
    real *before = several ? rein_scratch_take(p * sizeof *before) : NULL;
    status = !c || (several && !before) ? rein_fail(err, REIN_ENOMEM, "no memory for %zu coefficients and %zu weights", n, p)
                                        : coefficients(c, rewards, policy_log_probs, ref_log_probs, n, beta, lr, err);
    if (status == REIN_OK) {
        const rein_update_task task = {updated, before, weights, log_prob_grads, c, n, p};
        run r = {&task, rein_kernels_of(e.isa)->OBJECTIVE_KERNELS->update, 0};
        rein_parallel(e.threads, (p + REIN_UPDATE_STRIP - 1) / REIN_UPDATE_STRIP, update_strip, &r);
        if (atomic_load(&r.bad)) {
            if (before) memcpy(updated, before, p * sizeof *before);
            status = find_bad(weights, log_prob_grads, n, p, err);
        }
    }
    rein_scratch_give(before);
    free(c);
    return status;
}
