/* value.c - the loss of a critic with clipped values (PPO2 of OpenAI Baselines; verl and OpenRLHF clip at 0.5). Compiled per type.
 * The formula is in value.h. */
#include "value.h"
#include "../base/base.h"
#include "../base/pool.h"
#include "check.h"
#include "typed.h"

typedef struct task {
    real *grad;
    const real *values, *old, *returns;
    const uint8_t *mask;
    size_t n;
    double clip, weight; /* weight: 1/N, once N is known */
} task;

typedef struct sums {
    double loss, steepest; /* Σ of the squares, and the largest |V − G| */
    size_t trained;
} sums;

typedef struct run {
    const task *task;
    int write;
    sums sums[PIECES];
} run;

static void do_piece(void *context, size_t k, int thread) {
    run *r = context;
    const task *t = r->task;
    sums s = {0, 0, 0};
    (void)thread;
    for (size_t i = piece_start(t->n, k); i < piece_start(t->n, k + 1); i++) {
        double slope = 0;
        if (!t->mask || t->mask[i]) {
            s.loss += rein_value_square(&slope, (double)t->values[i], (double)t->old[i], (double)t->returns[i], t->clip);
            s.steepest = fmax(s.steepest, fabs(slope));
            s.trained++;
        }
        if (r->write) t->grad[i] = (real)(slope * t->weight);
    }
    r->sums[k] = s;
}

/* Every number that trains must be finite. */
static rein_status check_numbers(const task *t, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t i = 0; i < t->n && status == REIN_OK; i++) {
        if (t->mask && !t->mask[i]) continue;
        status = rein_check_finite((double)t->values[i], "values", (int64_t)i, err);
        if (status == REIN_OK) status = rein_check_finite((double)t->old[i], "old_values", (int64_t)i, err);
        if (status == REIN_OK) status = rein_check_finite((double)t->returns[i], "returns", (int64_t)i, err);
    }
    return status;
}

rein_status TYPED(rein_value_loss)(double *loss, size_t *trained, real *grad_values, const real *values, const real *old_values,
                                   const real *returns, const uint8_t *mask, size_t n, double value_clip, const rein_exec *exec,
                                   rein_error *err) {
    rein_exec e;
    if (n == 0) return rein_fail_at(err, REIN_EINVAL, "values", -1, "is empty: at least one is needed");
    if (!(value_clip >= 0)) return rein_fail_at(err, REIN_EINVAL, "value_clip", -1, "is %g: it must be 0 or more", value_clip);
    task t = {grad_values, values, old_values, returns, mask, n, value_clip, 0};
    rein_status status = rein_exec_resolve(&e, exec, n, err);
    if (status == REIN_OK) status = check_numbers(&t, err);
    if (status != REIN_OK) return status;
    run r = {.task = &t};
    sums total = {0, 0, 0};
    rein_parallel(e.threads, PIECES, do_piece, &r);
    for (size_t k = 0; k < PIECES; k++) {
        total.loss += r.sums[k].loss;
        total.steepest = fmax(total.steepest, r.sums[k].steepest);
        total.trained += r.sums[k].trained;
    }
    t.weight = total.trained ? 1 / (double)total.trained : 0;
    if (!isfinite(total.loss) || !isfinite((real)(total.steepest * t.weight)))
        return rein_fail(err, REIN_ERANGE, "the loss is not finite: a value or a return is too large");
    r.write = grad_values != NULL;
    if (r.write) rein_parallel(e.threads, PIECES, do_piece, &r);
    *loss = total.loss * t.weight / 2;
    if (trained) *trained = total.trained;
    return REIN_OK;
}
