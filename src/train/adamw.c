/* adamw.c - a step of AdamW over all parameters. Nothing is changed before everything is checked.
 *
 * There are two passes. The first computes the norm of the gradients, which also finds any gradient that is not finite. The second updates.
 * The parameters are treated as one long array, cut into chunks that depend only on its length; a chunk may hold the end of one parameter
 * and the beginning of the next. At most CHUNKS chunks exist, so their sums need no allocation. Several ranks have whole chunks each.
 *
 * What one rank alone computes, no other would find wrong. So in every step a piece of each rank's part, the next one each time, is computed by
 * two others as well. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/base.h"
#include "../base/hash.h"
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
    float *numbers
        [4]; /* of a piece that begins at element `begin`: values, moments and gradient, in place of those of the parameters */
    size_t begin;
};

/* -------------------------------------------------------------------------------------------------------------------- chunks */

/* Elements [at, last), which are of one chunk. */
static void visit_elements(update_run *r, visit *visit, size_t chunk, size_t at, size_t last) {
    const rein_parameter *p = r->parameters;
    size_t begin = 0; /* the first element of p */
    while (at < last && at - begin >= p->size) begin += p++->size;
    for (; at < last; begin += p++->size) {
        const size_t end = begin + p->size < last ? begin + p->size : last;
        visit(r, chunk, p, at - begin, at, end - at);
        at = end;
    }
}

static void visit_chunk(void *context, size_t piece, int thread) {
    update_run *r = context;
    const size_t chunk = r->from + piece;
    const size_t last = r->total - chunk * r->chunk < r->chunk ? r->total : (chunk + 1) * r->chunk;
    (void)thread;
    visit_elements(r, r->visit, chunk, chunk * r->chunk, last);
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

/* ------------------------------------------------------------------------------------------------------- what other ranks check */

/* In a step a piece of the part of rank k is computed again by ranks k + 1 and k + 2. If both get other numbers, k is wrong; if one does, that one is. */
enum {
    PIECE = 16384,
    AUDITORS = 2,
    ROOM = 3 * PIECE + 2
}; /* floats; moments and gradient, and a hash of the moments after the step */

typedef struct audit {
    rein_ranks *ranks;
    size_t n, rank, auditors;
    size_t *begins;  /* [n + 1] of the parts */
    size_t *sizes;   /* [2][n] bytes of an exchange */
    float *sent;     /* [auditors][ROOM] all alike */
    float *received; /* [auditors][ROOM] in the order of the ranks that this one audits */
    float *values;   /* [auditors][PIECE] theirs before the step */
} audit;

static void audit_free(audit *a) {
    free(a->begins);
    free(a->sizes);
    free(a->sent);
    free(a->received);
    free(a->values);
}

static rein_status audit_open(audit *a, size_t total, rein_ranks *ranks, rein_error *err) {
    const size_t n = rein_ranks_size(ranks);
    *a = (audit){.ranks = ranks, .n = n, .rank = rein_ranks_rank(ranks), .auditors = n - 1 < AUDITORS ? n - 1 : AUDITORS};
    a->begins = malloc((n + 1) * sizeof *a->begins);
    a->sizes = calloc(2 * n, sizeof *a->sizes);
    a->sent = calloc(a->auditors * ROOM, sizeof *a->sent);
    a->received = calloc(a->auditors * ROOM, sizeof *a->received);
    a->values = calloc(a->auditors * PIECE, sizeof *a->values);
    if (!a->begins || !a->sizes || !a->sent || !a->received || !a->values) return rein_no_memory(err);
    rein_adamw_parts(a->begins, total, n);
    return REIN_OK;
}

/* The piece of a rank's part that is checked in this step: its elements, which begin at *begin. */
static size_t audited(size_t *begin, const audit *a, size_t rank, int64_t step) {
    const size_t size = a->begins[rank + 1] - a->begins[rank], pieces = size / PIECE + (size % PIECE != 0);
    const size_t before = pieces ? (size_t)step % pieces * PIECE : 0;
    *begin = a->begins[rank] + before;
    return size - before < PIECE ? size - before : PIECE;
}

/* The rank that this one audits as number i. */
static size_t subject_of(const audit *a, size_t i) { return (a->rank + a->n - 1 - i) % a->n; }

static void copy_gradient(update_run *r, size_t chunk, const rein_parameter *p, size_t from, size_t element, size_t n) {
    (void)chunk;
    memcpy(r->numbers[3] + (element - r->begin), p->gradient + from, n * sizeof *p->gradient);
}

static void update_again(update_run *r, size_t chunk, const rein_parameter *p, size_t from, size_t element, size_t n) {
    const size_t at = element - r->begin;
    (void)chunk;
    (void)from;
    r->kernels->update(r->numbers[0] + at, r->numbers[1] + at, r->numbers[2] + at, r->numbers[3] + at, n,
                       &r->factors[p->decay != 0]);
}

/* Before the step: what the others need to compute it, and the values from which they began. */
static void audit_keep(audit *a, update_run *r, const float *values, int64_t step) {
    size_t begin;
    const size_t n = audited(&begin, a, a->rank, step);
    memcpy(a->sent, r->first + begin, n * sizeof *a->sent);
    memcpy(a->sent + PIECE, r->second + begin, n * sizeof *a->sent);
    r->numbers[3] = a->sent + 2 * PIECE, r->begin = begin;
    visit_elements(r, copy_gradient, 0, begin, begin + n);
    for (size_t i = 0; i < a->auditors; i++) {
        const size_t theirs = audited(&begin, a, subject_of(a, i), step);
        memcpy(a->values + i * PIECE, values + begin, theirs * sizeof *values);
    }
}

static uint64_t hash_of(const float *first, const float *second, size_t n) {
    const uint64_t both[] = {rein_hash(first, n * sizeof *first), rein_hash(second, n * sizeof *second)};
    return rein_hash(both, sizeof both);
}

static rein_status audit_send(audit *a, const update_run *r, int64_t step, rein_error *err) {
    size_t begin, *to = a->sizes, *from = a->sizes + a->n;
    const size_t n = audited(&begin, a, a->rank, step);
    const uint64_t hash = hash_of(r->first + begin, r->second + begin, n);
    memcpy(a->sent + 3 * PIECE, &hash, sizeof hash);
    for (size_t i = 0; i < a->auditors; i++) {
        if (i) memcpy(a->sent + i * ROOM, a->sent, ROOM * sizeof *a->sent);
        from[(a->rank + 1 + i) % a->n] = ROOM * sizeof *a->sent;
        to[subject_of(a, i)] = ROOM * sizeof *a->received;
    }
    rein_status status = rein_ranks_exchange_begin(a->received, to, a->sent, from, a->ranks, err);
    return status ? status : rein_ranks_exchange_end(a->ranks, err);
}

/* 1 if this rank gets other numbers than the one that it audits as number i. */
static unsigned char differs(audit *a, update_run *r, const float *values, int64_t step, size_t i) {
    size_t begin, place = 0;
    const size_t subject = subject_of(a, i), n = audited(&begin, a, subject, step);
    uint64_t hash;
    for (size_t k = 0; k < a->auditors; k++) place += subject_of(a, k) < subject;
    float *got = a->received + place * ROOM;
    r->numbers[0] = a->values + i * PIECE, r->begin = begin;
    for (size_t k = 0; k < 3; k++) r->numbers[1 + k] = got + k * PIECE;
    visit_elements(r, update_again, 0, begin, begin + n);
    memcpy(&hash, got + 3 * PIECE, sizeof hash);
    return memcmp(r->numbers[0], values + begin, n * sizeof *values) != 0 || hash != hash_of(got, got + PIECE, n);
}

static rein_status name_wrong(const audit *a, const unsigned char *all, rein_error *err) {
    for (size_t k = 0; k < a->n; k++) {
        const size_t one = (k + 1) % a->n, other = (k + 2) % a->n;
        const int first = all[one * AUDITORS], second = a->auditors > 1 && all[other * AUDITORS + 1];
        if (first && a->auditors == 1)
            return rein_fail(err, REIN_ESYSTEM,
                             "rank %zu and rank %zu compute another step of the optimizer from the same numbers, and too few ranks "
                             "agree to tell which is right",
                             one > k ? one : k, one > k ? k : one);
        if (first || second)
            return rein_fail(err, REIN_ESYSTEM,
                             "rank %zu computes wrongly: two others get another step of the optimizer from the same numbers",
                             first && second ? k
                             : first         ? one
                                             : other);
    }
    return REIN_OK;
}

/* After the step, when all have the values of all. */
static rein_status audit_check(audit *a, update_run *r, const float *values, int64_t step, rein_error *err) {
    unsigned char own[AUDITORS] = {0}, *all = malloc(a->n * AUDITORS);
    rein_status status = rein_ranks_agree(a->ranks, all ? REIN_OK : rein_no_memory(err), err);
    for (size_t i = 0; i < a->auditors && !status; i++) own[i] = differs(a, r, values, step, i);
    if (!status) status = rein_ranks_gather(all, own, sizeof own, a->ranks, err);
    if (!status) status = rein_ranks_agree(a->ranks, name_wrong(a, all, err), err);
    free(all);
    return status;
}

/* The step, which other ranks check. */
static rein_status update_audited(update_run *r, float *values, int threads, int64_t step, rein_ranks *ranks, rein_error *err) {
    audit a;
    rein_status status = rein_ranks_agree(ranks, audit_open(&a, r->total, ranks, err), err);
    if (!status) audit_keep(&a, r, values, step);
    if (!status) visit_all(r, update, threads);
    if (!status) status = audit_send(&a, r, step, err);
    if (!status) status = share_values(values, r->total, ranks, err);
    if (!status) status = audit_check(&a, r, values, step, err);
    audit_free(&a);
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
    if (n > 1) status = update_audited(&r, values, e.threads, *step, ranks, err);
    else visit_all(&r, update, e.threads);
    if (status != REIN_OK) return status;
    ++*step;
    if (gradient_norm) *gradient_norm = norm;
    return REIN_OK;
}

rein_status rein_adamw_step(double *gradient_norm, float *first, float *second, int64_t *step, const rein_parameter *parameters,
                            size_t n_parameters, const rein_adamw *options, const rein_exec *exec, rein_error *err) {
    return rein_adamw_step_shared(gradient_norm, NULL, first, second, step, parameters, n_parameters, options, exec, NULL, err);
}
