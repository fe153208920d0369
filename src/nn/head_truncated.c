/* head_truncated.c - the head of a policy that top_k, top_p or min_p truncate. Which tokens are kept depends on the whole row of logits, so a few
 * rows are computed at a time, as the sampler computes them, and each row then sums over its kept tokens. */
#include <math.h>
#include <string.h>

#include "kernel/kernels.h"
#include "truncate.h"

enum { AT_ONCE = 16 }; /* rows whose logits are in memory */

typedef struct truncated_work {
    const rein_head_out *out;
    const int32_t *targets;
    size_t first, rows; /* of those at once */
    const rein_head *head;
    const rein_truncation *truncation;
    float *x;                   /* [AT_ONCE][vocabulary] */
    rein_softmax_stats *masses; /* [AT_ONCE][chunks] */
    rein_logit *kept;           /* [threads][vocabulary] */
    const rein_nn_context *run;
} truncated_work;

size_t rein_head_truncated_scratch(const rein_head *head, const rein_nn_context *run) {
    const size_t vocabulary = head->linear->out, logit = sizeof(rein_logit) / sizeof(float),
                 mass = sizeof(rein_softmax_stats) / sizeof(float);
    return AT_ONCE * (vocabulary + rein_head_chunks(head->linear) * mass) + (size_t)run->exec.threads * vocabulary * logit;
}

/* The derivative of the cap at a logit that is capped and divided by T. */
static float slope_at(float x, const truncated_work *w) {
    float slope = x / w->head->inverse_temperature;
    if (!(w->head->cap > 0)) return 1;
    w->run->kernels->rows->soft_cap_slope(&slope, &slope, 1, w->head->cap);
    return slope;
}

/* to += by·W_id, and other += other_by·W_id unless it is NULL. */
static void add_weight_row(float *to, double by, float *other, double other_by, int32_t id, const truncated_work *w) {
    const rein_matrix *weight = &w->head->linear->weight;
    const size_t hidden = w->head->linear->in;
    const char *from = (const char *)weight->data + rein_storage_bytes(weight->storage, (size_t)id * weight->row);
    float piece[REIN_VOCABULARY_CHUNK];
    for (size_t i = 0; i < hidden; i += REIN_VOCABULARY_CHUNK) {
        const size_t n = hidden - i < REIN_VOCABULARY_CHUNK ? hidden - i : REIN_VOCABULARY_CHUNK;
        w->run->kernels->decode(piece, from + rein_storage_bytes(weight->storage, i), weight->storage, n);
        w->run->kernels->rows->add_scaled(to + i, piece, n, (float)by);
        if (other) w->run->kernels->rows->add_scaled(other + i, piece, n, (float)other_by);
    }
}

/* Σ_S p·log p */
static double negative_entropy(const rein_logit *kept, size_t n, double mass, double log_sum, const truncated_work *w) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double log_p = (double)kept[i].x - log_sum;
        sum += rein_exp_of(log_p, w->run->exec.isa) * log_p;
    }
    return mass > 0 ? sum : 0;
}

static void add_directions(const truncated_work *w, size_t at, const rein_logit *kept, size_t n, size_t target, double log_sum,
                           double negative) {
    const size_t hidden = w->head->linear->in;
    const double inverse = (double)w->head->inverse_temperature;
    float *u = w->out->u + at * hidden, *v = w->out->v ? w->out->v + at * hidden : NULL;
    memset(u, 0, hidden * sizeof *u);
    if (v) memset(v, 0, hidden * sizeof *v);
    for (size_t i = 0; i < n; i++) {
        const double log_p = (double)kept[i].x - log_sum, p = rein_exp_of(log_p, w->run->exec.isa);
        const double by = inverse * (double)slope_at(kept[i].x, w);
        add_weight_row(u, by * ((i == target) - p), v, -by * p * (log_p - negative), kept[i].id, w);
    }
}

static void do_row(void *context, size_t r, int thread) {
    const truncated_work *w = context;
    const rein_head_out *out = w->out;
    const size_t vocabulary = w->head->linear->out, chunks = rein_head_chunks(w->head->linear), at = w->first + r;
    const rein_logits_row row = {w->x + r * vocabulary, w->masses + r * chunks, vocabulary, chunks, w->run->exec.isa, NULL, 0};
    const rein_softmax_total total = rein_head_total(row.masses, chunks, row.isa);
    rein_logit *kept = w->kept + (size_t)thread * vocabulary;
    double mass = 0;
    out->log_probs[at] = NAN;
    if (!(total.sum > 0)) return; /* some logits are NaN */
    const size_t n = rein_truncate(kept, &mass, &row, &total, w->truncation);
    const double log_sum = total.maximum + rein_log_of(mass, row.isa), negative = negative_entropy(kept, n, mass, log_sum, w);
    size_t target = 0;
    while (target < n && kept[target].id != w->targets[at]) target++;
    out->log_probs[at] = target < n ? rein_truncated_log_prob(kept[target].x, mass, &total, row.isa) : -INFINITY;
    if (out->entropies) out->entropies[at] = (float)-negative;
    if (out->u) add_directions(w, at, kept, n, target, log_sum, negative);
}

void rein_head_truncated(const rein_head_out *out, const float *h, const int32_t *targets, size_t n, const rein_head *head,
                         const rein_truncation *truncation, float *scratch, const rein_nn_context *run) {
    const size_t vocabulary = head->linear->out, chunks = rein_head_chunks(head->linear);
    truncated_work w = {.out = out, .targets = targets, .head = head, .truncation = truncation, .x = scratch, .run = run};
    w.masses = (rein_softmax_stats *)(void *)(w.x + AT_ONCE * vocabulary);
    w.kept = (rein_logit *)(void *)(w.masses + AT_ONCE * chunks);
    float inverse[AT_ONCE];
    for (size_t i = 0; i < AT_ONCE; i++) inverse[i] = head->inverse_temperature;
    for (w.first = 0; w.first < n; w.first += w.rows) {
        w.rows = n - w.first < AT_ONCE ? n - w.first : AT_ONCE;
        rein_head_logits(w.x, w.masses, NULL, h + w.first * head->linear->in, inverse, w.rows, head->linear, head->cap, 0, NULL, 0,
                         run);
        rein_parallel(run->exec.threads, w.rows, do_row, &w);
    }
}
