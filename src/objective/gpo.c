/* gpo.c - the group policy objective: a clipped surrogate minus an importance-weighted KL. Compiled per type.
 *
 * It checks the inputs and calls the kernel of gpo_pass.c. */
#include "../base/base.h"
#include "../base/pool.h"
#include "check.h"
#include "kernels.h"
#include "typed.h"

static rein_status check_sign(const real *x, size_t n, int zero_too, const char *name, const char *rule, rein_error *err) {
    for (size_t i = 0; i < n; i++)
        if (!(x[i] > 0 || (zero_too && x[i] == 0)) || !isfinite(x[i]))
            return rein_fail_at(err, REIN_EINVAL, name, (int64_t)i, "is %g: %s", (double)x[i], rule);
    return REIN_OK;
}

typedef struct run {
    const rein_gpo_task *task;
    rein_gpo_fn *pass;
    size_t n;
    int write;
    rein_gpo_sums sums[PIECES];
} run;

static void do_piece(void *context, size_t k, int thread) {
    run *r = context;
    (void)thread;
    r->sums[k] = r->pass(r->task, piece_start(r->n, k), piece_start(r->n, k + 1), r->write);
}

rein_status TYPED(rein_gpo_objective)(rein_gpo *value, real *grad_ratios, real *grad_pi_current, const real *ratios,
                                      const real *advantages, const real *pi_current, const real *pi_ref, size_t n, double epsilon,
                                      double beta, rein_kl_direction direction, const rein_exec *exec, rein_error *err) {
    rein_exec e;
    rein_status status = rein_exec_resolve(&e, exec, n, err);
    if (status != REIN_OK) return status;
    if (n == 0) return rein_fail_at(err, REIN_EINVAL, "ratios", -1, "is empty: at least one is needed");
    if (direction < REIN_KL_DIRECTION_DEFAULT || direction > REIN_REF_OVER_CURRENT)
        return rein_fail_at(err, REIN_EINVAL, "kl_direction", -1, "is %d: no such direction", (int)direction);
    status = rein_check_coefficient(epsilon, "epsilon", err);
    if (status == REIN_OK) status = rein_check_coefficient(beta, "beta", err);
    if (status == REIN_OK) status = check_sign(ratios, n, 1, "ratios", "a ratio is 0 or more, and finite", err);
    if (status == REIN_OK) status = rein_check_numbers(advantages, REAL, n, "advantages", err);
    if (status == REIN_OK) status = check_sign(pi_current, n, 0, "pi_current", "it must be above 0", err);
    if (status == REIN_OK) status = check_sign(pi_ref, n, 0, "pi_ref", "it must be above 0", err);
    if (status != REIN_OK) return status;

    const rein_gpo_task g = {ratios,        advantages,
                             pi_current,    pi_ref,
                             grad_ratios,   grad_pi_current,
                             epsilon,       beta,
                             1 / (double)n, direction == REIN_REF_OVER_CURRENT ? REIN_REF_OVER_CURRENT : REIN_CURRENT_OVER_REF};
    run r = {.task = &g, .pass = rein_kernels_of(e.isa)->OBJECTIVE_KERNELS->gpo, .n = n, .write = 0};
    rein_gpo_sums total = {0, 0, 0};
    rein_parallel(e.threads, PIECES, do_piece, &r);
    for (size_t k = 0; k < PIECES; k++) {
        total.surrogate += r.sums[k].surrogate;
        total.kl += r.sums[k].kl;
        total.steepest = fmax(total.steepest, r.sums[k].steepest);
    }
    if (!isfinite(total.surrogate) || !isfinite(total.kl) || !isfinite(total.steepest))
        return rein_fail(err, REIN_ERANGE, "the objective is not finite: ratios, advantages or pi_current / pi_ref are too large");
    r.write = grad_ratios || grad_pi_current; /* outputs stay untouched until the value is known */
    if (r.write) rein_parallel(e.threads, PIECES, do_piece, &r);
    const double surrogate = total.surrogate / (double)n, kl = total.kl / (double)n;
    *value = (rein_gpo){surrogate - beta * kl, surrogate, kl};
    return REIN_OK;
}
