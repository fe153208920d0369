/* adamw.c - a step of AdamW over all parameters. Nothing is changed before everything is checked.
 *
 * There are two passes. The first computes the norm of the gradients, which also finds any gradient that is not finite. The second updates.
 * The parameters are treated as one long array, cut into chunks that depend only on its length; a chunk may hold the end of one parameter
 * and the beginning of the next. At most CHUNKS chunks exist, so their sums need no allocation. Several ranks have whole chunks each. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../base/base.h"
#include "../base/pool.h"
#include "../kernel/kernels.h"
#include "adamw_pass.h"
#include "rein/train.h"
#include "trainer.h"

enum { CHUNKS = 512, SMALLEST_CHUNK = 16384 }; /* elements; the last chunk may have fewer */

typedef struct update_run update_run;

/* Handles the elements [from, from + n) of a parameter; `moment` is their index in the moments. */
typedef void visit(update_run *r, size_t chunk, const rein_parameter *p, size_t from, size_t moment, size_t n);

struct update_run {
    const rein_parameter *parameters;
    float *first, *second;
    size_t total, chunk; /* elements */
    size_t from, to;     /* chunks [from, to) are visited: all, or those of this rank */
    const rein_adamw_kernels *kernels;
    rein_adamw_factors factors[2]; /* without and with weight decay */
    visit *visit;
    double sums[CHUNKS];
};

/* -------------------------------------------------------------------------------------------------------------------- chunks */

static void visit_chunk(void *context, size_t piece, int thread) {
    update_run *r = context;
    const size_t chunk = r->from + piece;
    const size_t last = r->total - chunk * r->chunk < r->chunk ? r->total : (chunk + 1) * r->chunk;
    const rein_parameter *p = r->parameters;
    size_t at = chunk * r->chunk, begin = 0; /* begin: the first element of p */
    (void)thread;
    while (at - begin >= p->size) begin += p++->size;
    for (; at < last; begin += p++->size) {
        const size_t end = begin + p->size < last ? begin + p->size : last;
        r->visit(r, chunk, p, at - begin, at, end - at);
        at = end;
    }
}

static void add_squares(update_run *r, size_t chunk, const rein_parameter *p, size_t from, size_t moment, size_t n) {
    (void)moment;
    r->sums[chunk] += r->kernels->sum_of_squares(p->gradient + from, n);
}

static void update(update_run *r, size_t chunk, const rein_parameter *p, size_t from, size_t moment, size_t n) {
    (void)chunk;
    r->kernels->update(p->value + from, r->first + moment, r->second + moment, p->gradient + from, n, &r->factors[p->decay != 0]);
}

static size_t chunks_of(const update_run *r) { return r->total / r->chunk + (r->total % r->chunk != 0); }

static void visit_all(update_run *r, visit *visit, int threads) {
    r->visit = visit;
    rein_parallel(threads, r->to - r->from, visit_chunk, r);
}

/* The sums of the chunks of all ranks. */
static rein_status share_sums(update_run *r, rein_ranks *ranks, rein_error *err) {
    const size_t n = rein_ranks_size(ranks);
    if (n == 1) return REIN_OK;
    size_t *begins = malloc((n + 1) * sizeof *begins);
    if (!begins) return rein_no_memory(err);
    for (size_t k = 0; k <= n; k++) begins[k] = rein_ranks_part(chunks_of(r), k, n) * sizeof *r->sums;
    const rein_status status = rein_ranks_share(r->sums, begins, ranks, err);
    free(begins);
    return status;
}

static rein_status norm_of_gradients(double *norm, update_run *r, int threads, rein_ranks *ranks, rein_error *err) {
    double sum = 0;
    for (size_t i = 0; i < chunks_of(r); i++) r->sums[i] = 0;
    visit_all(r, add_squares, threads);
    const rein_status status = share_sums(r, ranks, err);
    for (size_t i = 0; i < chunks_of(r); i++) sum += r->sums[i];
    *norm = sqrt(sum);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------- checks */

static rein_status wrong(rein_error *err, const char *field, double x, const char *need) {
    return rein_fail_at(err, REIN_EINVAL, field, -1, "is %g: it must be %s", x, need);
}

rein_status rein_adamw_check(const rein_adamw *o, rein_error *err) {
    if (!o) return rein_fail_at(err, REIN_EINVAL, "options", -1, "is NULL: AdamW needs them");
    if (!(o->learning_rate >= 0 && o->learning_rate <= 1e6))
        return wrong(err, "learning_rate", o->learning_rate, "0 or more, and at most 1e6");
    if (!(o->beta1 >= 0 && o->beta1 < 1)) return wrong(err, "beta1", o->beta1, "0 or more, below 1");
    if (!(o->beta2 >= 0 && o->beta2 < 1)) return wrong(err, "beta2", o->beta2, "0 or more, below 1");
    if (!(o->epsilon >= (double)FLT_MIN && o->epsilon <= (double)FLT_MAX))
        return wrong(err, "epsilon", o->epsilon, "above 0, and a float (1.17549e-38 to 3.40282e+38)");
    if (!(o->weight_decay >= 0 && isfinite(o->weight_decay))) return wrong(err, "weight_decay", o->weight_decay, "0 or more");
    if (o->learning_rate * o->weight_decay > 1)
        return rein_fail_at(err, REIN_EINVAL, "weight_decay", -1,
                            "is %g: times learning_rate it is %g, and above 1 every weight would change its sign", o->weight_decay,
                            o->learning_rate * o->weight_decay);
    if (!(o->max_gradient_norm >= 0 && isfinite(o->max_gradient_norm)))
        return wrong(err, "max_gradient_norm", o->max_gradient_norm, "0 (no clipping) or more");
    return REIN_OK;
}

/* "parameters[3].size": a field of parameter number i. */
static const char *field_of(char field[64], size_t i, const char *name) {
    snprintf(field, 64, "parameters[%zu].%s", i, name);
    return field;
}

static rein_status check_parameter(const rein_parameter *p, size_t i, rein_error *err) {
    char field[64];
    if (!p->name) return rein_fail_at(err, REIN_EINVAL, field_of(field, i, "name"), -1, "is NULL: messages need one");
    if (!p->value || !p->gradient)
        return rein_fail_at(err, REIN_EINVAL, field_of(field, i, p->value ? "gradient" : "value"), -1,
                            "is NULL (%.200s): both arrays are needed", p->name);
    if (p->size == 0 || p->columns == 0 || p->size % p->columns != 0 || p->size / p->columns != p->rows)
        return rein_fail_at(err, REIN_EINVAL, field_of(field, i, "size"), -1,
                            "is %zu (%.200s): it must be rows times columns, %zu x %zu, and not 0", p->size, p->name, p->rows,
                            p->columns);
    return REIN_OK;
}

/* *total += Σ size. */
static rein_status check_parameters(size_t *total, const rein_parameter *parameters, size_t n, rein_error *err) {
    const size_t most = SIZE_MAX / sizeof(float);
    char field[64];
    if (!parameters || n == 0) return rein_fail_at(err, REIN_EINVAL, "parameters", -1, "is empty: at least one is needed");
    for (size_t i = 0; i < n; i++) {
        const rein_status status = check_parameter(&parameters[i], i, err);
        if (status != REIN_OK) return status;
        if (parameters[i].size > most - *total)
            return rein_fail_at(err, REIN_EINVAL, field_of(field, i, "size"), -1, "is %zu (%.200s): more than memory can hold",
                                parameters[i].size, parameters[i].name);
        *total += parameters[i].size;
    }
    return REIN_OK;
}

static rein_status check_state(const float *first, const float *second, const int64_t *step, rein_error *err) {
    if (!first || !second)
        return rein_fail_at(err, REIN_EINVAL, first ? "second" : "first", -1, "is NULL: both moments are needed");
    if (!step) return rein_fail_at(err, REIN_EINVAL, "step", -1, "is NULL: the count of steps is needed");
    if (*step < 0 || *step == INT64_MAX)
        return rein_fail_at(err, REIN_EINVAL, "step", -1, "is %lld: it must be the number of steps so far, 0 or more",
                            (long long)*step);
    return REIN_OK;
}

/* The elements that are visited end before this one. */
static size_t end_of(const update_run *r) { return r->to == chunks_of(r) ? r->total : r->to * r->chunk; }

/* Reports the first gradient that is not finite, if it is one of those that are visited. */
static rein_status report_bad_gradient(const update_run *r, rein_error *err) {
    const rein_parameter *parameters = r->parameters, *p = parameters;
    size_t i = r->from * r->chunk, at = i;
    char field[64];
    while (at < end_of(r) && i >= p->size) i -= p++->size;
    for (; at < end_of(r) && isfinite(p->gradient[i]); at++)
        if (++i == p->size) i = 0, p++;
    if (at >= end_of(r)) return REIN_OK;
    const char *what = isnan(p->gradient[i]) ? "NaN" : p->gradient[i] > 0 ? "inf" : "-inf";
    return rein_fail_at(err, REIN_EINVAL, field_of(field, (size_t)(p - parameters), "gradient"), (int64_t)i,
                        "is %s (%.200s, row %zu, column %zu): it must be finite; nothing was changed", what, p->name,
                        i / p->columns, i % p->columns);
}

/* The second moment is an average of squares: if their sum is at most FLT_MAX, so is the moment. */
static rein_status check_norm(double norm, double scale, const rein_adamw *o, const update_run *r, rein_error *err) {
    if (!isfinite(norm)) return report_bad_gradient(r, err);
    if (norm * scale * (norm * scale) > (double)FLT_MAX)
        return rein_fail_at(err, REIN_ERANGE, "max_gradient_norm", -1,
                            "is %g: the norm of the gradient is %g, whose square does not fit a float; clip it",
                            o->max_gradient_norm, norm * scale);
    return REIN_OK;
}

/* ---------------------------------------------------------------------------------------------------------------------- step */

/* torch.nn.utils.clip_grad_norm_ */
static double clip(double norm, double most) {
    const double scale = most / (norm + 1e-6);
    return most > 0 && scale < 1 ? scale : 1;
}

static rein_adamw_factors factors_of(const rein_adamw *o, double t, double scale, int decay) {
    return (rein_adamw_factors){
        .gradient_scale = (float)scale,
        .value_scale = (float)(decay ? 1 - o->learning_rate * o->weight_decay : 1),
        .first_weight = (float)(1 - o->beta1),
        .beta2 = (float)o->beta2,
        .second_weight = (float)(1 - o->beta2),
        .root_of_correction = (float)sqrt(1 - pow(o->beta2, t)),
        .epsilon = (float)o->epsilon,
        .step_size = (float)-(o->learning_rate / (1 - pow(o->beta1, t))),
    };
}

static update_run start(const rein_parameter *parameters, float *first, float *second, size_t total, rein_isa isa) {
    update_run r = {.parameters = parameters, .first = first, .second = second, .total = total};
    r.chunk = total / CHUNKS + 1 > SMALLEST_CHUNK ? total / CHUNKS + 1 : SMALLEST_CHUNK;
    r.kernels = rein_kernels_of(isa)->adamw;
    r.to = chunks_of(&r);
    return r;
}

void rein_adamw_parts(size_t *begins, size_t floats, size_t ranks) {
    const update_run r = start(NULL, NULL, NULL, floats, REIN_ISA_REF);
    for (size_t k = 0; k < ranks; k++) begins[k] = rein_ranks_part(chunks_of(&r), k, ranks) * r.chunk;
    begins[ranks] = floats;
    for (size_t k = 0; k < ranks; k++)
        if (begins[k] > floats) begins[k] = floats; /* the last chunk is shorter */
}

/* The values that every rank has updated go to all. */
static rein_status share_values(float *values, size_t floats, rein_ranks *ranks, rein_error *err) {
    const size_t n = rein_ranks_size(ranks);
    if (n == 1) return REIN_OK;
    size_t *begins = malloc((n + 1) * sizeof *begins);
    if (!begins) return rein_no_memory(err);
    rein_adamw_parts(begins, floats, n);
    for (size_t k = 0; k <= n; k++) begins[k] *= sizeof *values;
    const rein_status status = rein_ranks_share(values, begins, ranks, err);
    free(begins);
    return status;
}

rein_status rein_adamw_step_shared(double *gradient_norm, float *values, float *first, float *second, int64_t *step,
                                   const rein_parameter *parameters, size_t n_parameters, const rein_adamw *options,
                                   const rein_exec *exec, rein_ranks *ranks, rein_error *err) {
    rein_exec e;
    double norm = 0;
    const size_t rank = rein_ranks_rank(ranks), n = rein_ranks_size(ranks);
    size_t total = 0;
    rein_status status = rein_adamw_check(options, err);
    if (status == REIN_OK) status = check_parameters(&total, parameters, n_parameters, err);
    if (status == REIN_OK) status = check_state(first, second, step, err);
    if (status == REIN_OK) status = rein_exec_resolve(&e, exec, total, err);
    if (status != REIN_OK) return status;
    update_run r = start(parameters, first, second, total, e.isa);
    r.to = rein_ranks_part(chunks_of(&r), rank + 1, n), r.from = rein_ranks_part(chunks_of(&r), rank, n);
    status = norm_of_gradients(&norm, &r, e.threads, ranks, err);
    if (status != REIN_OK) return status;
    const double scale = clip(norm, options->max_gradient_norm);
    status = rein_ranks_agree(ranks, check_norm(norm, scale, options, &r, err), err);
    if (status != REIN_OK) return status;
    for (int decay = 0; decay < 2; decay++) r.factors[decay] = factors_of(options, (double)*step + 1, scale, decay);
    visit_all(&r, update, e.threads);
    status = share_values(values, total, ranks, err);
    if (status != REIN_OK) return status;
    ++*step;
    if (gradient_norm) *gradient_norm = norm;
    return REIN_OK;
}

rein_status rein_adamw_step(double *gradient_norm, float *first, float *second, int64_t *step, const rein_parameter *parameters,
                            size_t n_parameters, const rein_adamw *options, const rein_exec *exec, rein_error *err) {
    return rein_adamw_step_shared(gradient_norm, NULL, first, second, step, parameters, n_parameters, options, exec, NULL, err);
}
