/* head.c - the forward pass of the head. A thread takes a block of rows and processes the vocabulary chunk by chunk. */
#include "head.h"

#include <math.h>
#include <string.h>

#include "kernel/kernels.h"

enum { ROWS = 192 }; /* the most rows of a block; its logits of one chunk stay in the second-level cache */

/* Adds a chunk. If the maximum grows, the sums so far are scaled; returns their factor. */
static double add_chunk(rein_softmax_total *t, const rein_softmax_stats *m, rein_isa isa) {
    const double top = (double)m->maximum, sum = (double)m->sum, weighted = (double)m->weighted;
    if (top > t->maximum) {
        const double shift = t->maximum - top, factor = rein_exp_of(shift, isa);
        t->weighted = factor * (t->weighted + shift * t->sum) + weighted;
        t->sum = factor * t->sum + sum;
        t->maximum = top;
        return factor;
    }
    const double shift = top - t->maximum, factor = rein_exp_of(shift, isa);
    t->weighted += factor * (weighted + shift * sum);
    t->sum += factor * sum;
    return 1;
}

static rein_softmax_total first_chunk(const rein_softmax_stats *m) {
    return (rein_softmax_total){(double)m->maximum, (double)m->sum, (double)m->weighted};
}

rein_softmax_total rein_head_total(const rein_softmax_stats *stats, size_t chunks, rein_isa isa) {
    rein_softmax_total t = first_chunk(stats);
    for (size_t c = 1; c < chunks; c++) add_chunk(&t, &stats[c], isa);
    return t;
}

double rein_head_log_sum(const rein_softmax_total *t, rein_isa isa) { return t->maximum + rein_log_of(t->sum, isa); }

/* z [m][.] of the columns [first, first + n) of the vocabulary. */
static void chunk_logits(float *z, size_t stride, const float *h, size_t m, size_t first, size_t n, const rein_linear *l,
                         float *gemm_scratch, const rein_nn_context *run) {
    rein_gemm_task task = {.c = z, .stride = stride, .m = m, .n = n, .k = l->in, .scratch = gemm_scratch};
    task.a = (rein_matrix){h, l->in, 1, REIN_STORED_F32};
    task.b = rein_linear_columns(l, first);
    task.panel = l->packed.data ? l->in : 0;
    run->kernels->gemm->multiply(&task);
}

static int has_lora(const rein_lora *lora) { return lora && lora->rank; }

/* Adds the LoRA to them. */
static void add_chunk_lora(float *z, size_t stride, const float *inner, size_t m, size_t first, size_t n, const rein_lora *lora,
                           float *gemm_scratch, const rein_nn_context *run) {
    const rein_packed *b = &lora->packed_b;
    rein_gemm_task task = {.c = z, .stride = stride, .m = m, .n = n, .k = b->k, .panel = b->k, .add = 1, .scratch = gemm_scratch};
    task.a = (rein_matrix){inner, b->k, 1, REIN_STORED_F32};
    task.b = (rein_matrix){(const float *)b->data + first * b->k, 0, 0, REIN_STORED_F32};
    run->kernels->gemm->multiply(&task);
}

/* ---- a block of rows */
typedef struct head_work {
    const rein_head_out *out;
    const float *inner, *h;
    const int32_t *targets;
    size_t n, rows; /* all rows, and those of a block */
    const rein_head *head;
    float *scratch;
    const rein_nn_context *run;
} head_work;

typedef struct head_block {
    const head_work *w;
    size_t first, rows;
    float *z, *y, *q; /* [rows][chunk]: x, then e = e^(x−maximum); e·(x−maximum); the reference's x, then e·(x − it − shift) */
    rein_softmax_total totals[ROWS], reference[ROWS];
    double toward[ROWS];           /* of jsd: KL(p‖m); `apart` is the divergence itself */
    float shift[ROWS];             /* about x − the reference's x: what is subtracted from it, so that less cancels */
    double apart[ROWS];            /* Σ e·(x − the reference's x − shift) */
    double reference_factor[ROWS]; /* by which a chunk of the reference has scaled its sums */
    float picked[ROWS], reference_picked[ROWS]; /* x of the target */
    float slopes[REIN_VOCABULARY_CHUNK];        /* of capped logits, in one row */
} head_block;

/* Of a thread. */
static size_t scratch_floats(const rein_head_out *out) { return (size_t)ROWS * REIN_VOCABULARY_CHUNK * (out->reference ? 3 : 2); }

size_t rein_head_scratch(const rein_head_out *out, const rein_nn_context *run) {
    return (size_t)run->exec.threads * scratch_floats(out);
}

/* Scales the directions so far to a new maximum. */
static void rescale(head_block *b, size_t r, double factor, double shift) {
    const rein_head_out *out = b->w->out;
    const size_t hidden = b->w->head->linear->in, at = (b->first + r) * hidden;
    const int of_p = out->w && out->reference->divergence == REIN_DIVERGENCE_REVERSE; /* w has the maximum of p */
    if (!((float)factor > 0)) {                                                       /* they vanish; 0·∞ would be NaN */
        memset(out->u + at, 0, hidden * sizeof *out->u);
        if (out->v) memset(out->v + at, 0, hidden * sizeof *out->v);
        if (of_p) memset(out->w + at, 0, hidden * sizeof *out->w);
        return;
    }
    if (out->v) { /* Σ e·(x−M′)·W = factor·(Σ e·(x−M)·W + shift·Σ e·W) */
        b->w->run->kernels->rows->add_scaled(out->v + at, out->u + at, hidden, (float)shift);
        b->w->run->kernels->rows->scale(out->v + at, hidden, (float)factor);
    }
    if (of_p) b->w->run->kernels->rows->scale(out->w + at, hidden, (float)factor);
    b->w->run->kernels->rows->scale(out->u + at, hidden, (float)factor);
}

/* to += a·W of a chunk. */
static void add_direction(float *to, const float *a, const head_block *b, size_t first, size_t n, float *gemm_scratch) {
    const head_work *w = b->w;
    const size_t hidden = w->head->linear->in;
    rein_gemm_task task = {.stride = hidden, .m = b->rows, .n = hidden, .k = n, .add = 1, .scratch = gemm_scratch};
    task.b = rein_linear_columns(w->head->linear, first);
    if (w->head->linear->packed.data) task.panel = hidden, task.transposed = 1;
    else task.b.row = task.b.column, task.b.column = 1;
    task.a = (rein_matrix){a, REIN_VOCABULARY_CHUNK, 1, REIN_STORED_F32};
    task.c = to + b->first * hidden;
    w->run->kernels->gemm->multiply(&task);
}

static void add_directions(const head_block *b, size_t first, size_t n, float *gemm_scratch) {
    const rein_head_out *out = b->w->out;
    add_direction(out->u, b->z, b, first, n, gemm_scratch);
    if (out->v) add_direction(out->v, b->y, b, first, n, gemm_scratch);
    if (out->w && out->reference->divergence != REIN_DIVERGENCE_JSD) add_direction(out->w, b->q, b, first, n, gemm_scratch);
}

static void cap_logits(head_block *b, float *z, size_t n) {
    const head_work *w = b->w;
    w->run->kernels->rows->soft_cap(z, n, 1, w->head->cap);
    if (w->out->u) w->run->kernels->rows->soft_cap_slope(b->slopes, z, n, w->head->cap);
}

static void multiply_by_slopes(const head_block *b, float *e, float *y, float *q, size_t n) {
    b->w->run->kernels->rows->multiply(e, b->slopes, n);
    if (y) b->w->run->kernels->rows->multiply(y, b->slopes, n);
    if (q) b->w->run->kernels->rows->multiply(q, b->slopes, n);
}

/* ---- the reference */
/* The same columns of the other model, into q. */
static void other_logits(head_block *b, size_t first, size_t n, float *gemm_scratch) {
    const head_work *w = b->w;
    const rein_head_reference *other = w->out->reference;
    const rein_head *head = other->head;
    chunk_logits(b->q, REIN_VOCABULARY_CHUNK, other->h + b->first * head->linear->in, b->rows, first, n, head->linear, gemm_scratch,
                 w->run);
    if (has_lora(head->lora))
        add_chunk_lora(b->q, REIN_VOCABULARY_CHUNK, other->inner + b->first * head->lora->rank, b->rows, first, n, head->lora,
                       gemm_scratch, w->run);
}

static void cap_other(const head_block *b, float *y, size_t n) {
    const rein_head *head = b->w->out->reference->head;
    if (head->cap > 0) b->w->run->kernels->rows->soft_cap(y, n, 1, head->cap);
}

/* They become its capped logits/T. */
static void other_scaled(const head_block *b, size_t r, size_t n) {
    float *y = b->q + r * REIN_VOCABULARY_CHUNK;
    cap_other(b, y, n);
    b->w->run->kernels->rows->scale(y, n, b->w->out->reference->head->inverse_temperature);
}

/* The same, with the statistics of each row. */
static void reference_chunk(head_block *b, size_t first, size_t n, float *gemm_scratch) {
    const head_work *w = b->w;
    const rein_head *head = w->out->reference->head;
    const rein_row_kernels *k = w->run->kernels->rows;
    other_logits(b, first, n, gemm_scratch);
    for (size_t r = 0; r < b->rows; r++) {
        float *y = b->q + r * REIN_VOCABULARY_CHUNK;
        const size_t target = (size_t)w->targets[b->first + r];
        cap_other(b, y, n);
        const rein_softmax_stats m = k->softmax_stats(y, n, head->inverse_temperature, 0);
        if (target >= first && target < first + n) b->reference_picked[r] = y[target - first];
        b->reference_factor[r] = 1;
        if (first == 0) b->reference[r] = first_chunk(&m);
        else b->reference_factor[r] = add_chunk(&b->reference[r], &m, w->run->exec.isa);
    }
}

static rein_divergence divergence_of(const rein_head_out *out) {
    return out->reference ? out->reference->divergence : REIN_DIVERGENCE_SAMPLED;
}

/* Scales a direction so far to a new maximum. Where it vanishes, 0·∞ would be NaN. */
static void scale_direction(const head_block *b, float *direction, size_t r, double factor) {
    const size_t hidden = b->w->head->linear->in, at = (b->first + r) * hidden;
    if (factor == 1) return;
    if ((float)factor > 0) b->w->run->kernels->rows->scale(direction + at, hidden, (float)factor);
    else memset(direction + at, 0, hidden * sizeof *direction);
}

/* forward: q ← e^(q−maximum), with the sum of its products with q − x. */
static void weigh_forward(head_block *b, size_t r, const float *x, size_t n) {
    const rein_row_kernels *k = b->w->run->kernels->rows;
    float *q = b->q + r * REIN_VOCABULARY_CHUNK, *e = b->y + r * REIN_VOCABULARY_CHUNK; /* y is written afterwards */
    k->exp_shifted(e, NULL, q, n, (float)b->reference[r].maximum);
    for (size_t i = 0; i < n; i++) q[i] = (q[i] - x[i]) + b->shift[r];
    b->apart[r] = b->reference_factor[r] * b->apart[r] + k->dot(e, q, n);
    if (b->w->out->w) scale_direction(b, b->w->out->w, r, b->reference_factor[r]);
    memcpy(q, e, n * sizeof *q);
}

/* q ← e·(x − q), given x − q; its sum. e is in x, or a copy where x must stay. */
static void weigh_difference(head_block *b, size_t r, const float *e, size_t n, double factor) {
    float *q = b->q + r * REIN_VOCABULARY_CHUNK;
    b->apart[r] = factor * b->apart[r] + b->w->run->kernels->rows->dot(e, q, n);
    if (b->w->out->w) b->w->run->kernels->rows->multiply(q, e, n);
}

/* A constant changes neither the KL nor its direction. */
static void subtract_reference(const head_block *b, size_t r, const float *x, size_t n) {
    float *q = b->q + r * REIN_VOCABULARY_CHUNK;
    for (size_t i = 0; i < n; i++) q[i] = (x[i] - q[i]) - b->shift[r];
}

/* The slope of the cap at the target's logit. */
static float target_slope(const head_block *b, size_t r) {
    const rein_head *head = b->w->head;
    float slope = b->picked[r] / head->inverse_temperature;
    if (!(head->cap > 0)) return 1;
    b->w->run->kernels->rows->soft_cap_slope(&slope, &slope, 1, head->cap);
    return slope;
}

/* A row of a chunk: its statistics, and with directions e^(x−maximum) and what it is multiplied by. */
static void do_row(head_block *b, size_t r, float *x, size_t first, size_t n) {
    const head_work *w = b->w;
    const rein_head_out *out = w->out;
    const rein_row_kernels *k = w->run->kernels->rows;
    const size_t target = (size_t)w->targets[b->first + r];
    const double before = b->totals[r].maximum;
    double factor = 1;
    float *y = out->v ? b->y + r * REIN_VOCABULARY_CHUNK : NULL, *e = out->x ? b->y + r * REIN_VOCABULARY_CHUNK : x;
    if (w->head->cap > 0) cap_logits(b, x, n);
    const rein_softmax_stats m = k->softmax_stats(x, n, w->head->inverse_temperature, out->entropies || out->v);
    if (target >= first && target < first + n) b->picked[r] = x[target - first];
    if (first == 0) b->totals[r] = first_chunk(&m), b->apart[r] = 0;
    else factor = add_chunk(&b->totals[r], &m, w->run->exec.isa);
    if (first == 0 && out->reference) b->shift[r] = (float)(b->totals[r].maximum - b->reference[r].maximum);
    const rein_divergence divergence = divergence_of(out);
    if (!out->u && !out->reference) return;
    if (divergence == REIN_DIVERGENCE_FORWARD) weigh_forward(b, r, x, n);
    if (divergence == REIN_DIVERGENCE_REVERSE) subtract_reference(b, r, x, n);
    if (out->u && first > 0 && b->totals[r].maximum > before) rescale(b, r, factor, before - b->totals[r].maximum);
    k->exp_shifted(e, y, x, n, (float)b->totals[r].maximum);
    if (divergence == REIN_DIVERGENCE_REVERSE) weigh_difference(b, r, e, n, factor);
    if (out->u && w->head->cap > 0) multiply_by_slopes(b, x, y, out->w ? b->q + r * REIN_VOCABULARY_CHUNK : NULL, n);
}

/* The logits of a chunk, and where they are. */
static float *logits_of_chunk(size_t *row, const head_block *b, size_t first, size_t n, float *gemm_scratch) {
    const head_work *w = b->w;
    const rein_head_out *out = w->out;
    *row = out->x ? out->x_row : REIN_VOCABULARY_CHUNK;
    float *z = out->x ? out->x + b->first * *row + first : b->z;
    chunk_logits(z, *row, w->h + b->first * w->head->linear->in, b->rows, first, n, w->head->linear, gemm_scratch, w->run);
    if (has_lora(w->head->lora))
        add_chunk_lora(z, *row, w->inner + b->first * w->head->lora->rank, b->rows, first, n, w->head->lora, gemm_scratch, w->run);
    return z;
}

static void do_chunk(head_block *b, size_t first, size_t n, float *gemm_scratch) {
    const rein_head_out *out = b->w->out;
    size_t row;
    float *z = logits_of_chunk(&row, b, first, n, gemm_scratch);
    if (out->reference) reference_chunk(b, first, n, gemm_scratch);
    for (size_t r = 0; r < b->rows; r++) do_row(b, r, z + r * row, first, n);
    if (out->u) add_directions(b, first, n, gemm_scratch);
}

/* ---- jsd: the vocabulary once more, with both sums of exponentials */
static void jensen_shannon_row(head_block *b, size_t r, float *x, size_t n) {
    const head_work *w = b->w;
    const rein_row_kernels *k = w->run->kernels->rows;
    const size_t at = b->first + r;
    float *q = b->q + r * REIN_VOCABULARY_CHUNK;
    double toward;
    if (!w->out->x && w->head->cap > 0) cap_logits(b, x, n);
    if (!w->out->x) k->scale(x, n, w->head->inverse_temperature);
    b->apart[r] +=
        k->jensen_shannon(q, &toward, x, w->out->log_sums[at], q, w->out->reference_log_sums[at], n, w->out->reference->jsd_beta);
    b->toward[r] += toward;
    if (w->out->w && w->head->cap > 0) k->multiply(q, b->slopes, n);
}

static void jensen_shannon_chunk(head_block *b, size_t first, size_t n, float *gemm_scratch) {
    const rein_head_out *out = b->w->out;
    size_t row = out->x_row;
    float *z = out->x ? out->x + b->first * row + first : logits_of_chunk(&row, b, first, n, gemm_scratch);
    other_logits(b, first, n, gemm_scratch);
    for (size_t r = 0; r < b->rows; r++) {
        other_scaled(b, r, n);
        jensen_shannon_row(b, r, z + r * row, n);
    }
    if (out->w) add_direction(out->w, b->q, b, first, n, gemm_scratch);
}

/* reverse: w ← (w/S − (Σ p·(x − y))·u/S)/T; forward: (u/S − w/its own S)/T; jsd: (1 − β)·(w − KL(p‖m)·u/S)/T. share is 1/(S·T). */
static void finish_w(const head_block *b, size_t r, float *w, const float *u, float share) {
    const rein_row_kernels *k = b->w->run->kernels->rows;
    const size_t hidden = b->w->head->linear->in;
    const float inverse = b->w->head->inverse_temperature;
    double scale = (double)share, by_u = -(b->apart[r] / b->totals[r].sum) * (double)share;
    if (divergence_of(b->w->out) == REIN_DIVERGENCE_FORWARD) scale = -(double)inverse / b->reference[r].sum, by_u = (double)share;
    if (divergence_of(b->w->out) == REIN_DIVERGENCE_JSD) {
        const double rest = 1 - (double)b->w->out->reference->jsd_beta;
        scale = rest * (double)inverse, by_u = -rest * b->toward[r] * (double)share;
    }
    k->scale(w, hidden, (float)scale);
    k->add_scaled(w, u, hidden, (float)by_u);
}

/* u ← (W_y − u/S)/T, v ← −(v/S − (Σ p·x)·u/S)/T. Before, they and w are sums over the vocabulary. */
static void finish_directions(const head_block *b, size_t r) {
    const head_work *w = b->w;
    const rein_row_kernels *k = w->run->kernels->rows;
    const size_t hidden = w->head->linear->in, at = (b->first + r) * hidden;
    const rein_matrix *weight = &w->head->linear->weight;
    const float inverse = w->head->inverse_temperature, share = (float)(1 / b->totals[r].sum) * inverse;
    const float slope = target_slope(b, r);
    float *u = w->out->u + at, *v = w->out->v ? w->out->v + at : NULL, *by_kl = w->out->w ? w->out->w + at : NULL;
    if (by_kl) finish_w(b, r, by_kl, u, share);
    if (v) {
        k->scale(v, hidden, -share);
        k->add_scaled(v, u, hidden, (float)(b->totals[r].weighted / b->totals[r].sum) * share);
    }
    k->scale(u, hidden, -share);
    float *row = b->z; /* decoded in pieces, because hidden may be larger than a chunk; pieces are whole blocks */
    const char *from =
        (const char *)weight->data + rein_storage_bytes(weight->storage, (size_t)w->targets[b->first + r] * weight->row);
    for (size_t i = 0; i < hidden; i += REIN_VOCABULARY_CHUNK) {
        const size_t n = hidden - i < REIN_VOCABULARY_CHUNK ? hidden - i : REIN_VOCABULARY_CHUNK;
        w->run->kernels->decode(row, from + rein_storage_bytes(weight->storage, i), weight->storage, n);
        k->add_scaled(u + i, row, n, inverse * slope);
    }
}

static void finish_reference(const head_block *b, size_t r, double log_sum) {
    const rein_head_out *out = b->w->out;
    const size_t at = b->first + r;
    const double reference = rein_head_log_sum(&b->reference[r], b->w->run->exec.isa),
                 apart = (double)b->shift[r] + (reference - log_sum);
    switch (divergence_of(out)) {
    case REIN_DIVERGENCE_JSD: out->kl[at] = (float)b->apart[r]; break;
    case REIN_DIVERGENCE_FORWARD: out->kl[at] = (float)(b->apart[r] / b->reference[r].sum - apart); break;
    default: out->kl[at] = (float)(b->apart[r] / b->totals[r].sum + apart);
    }
    if (out->toward_mixture) out->toward_mixture[at] = (float)b->toward[r];
    if (out->reference_log_probs) out->reference_log_probs[at] = (float)((double)b->reference_picked[r] - reference);
    if (out->reference_log_sums) out->reference_log_sums[at] = (float)reference;
}

static void finish_row(head_block *b, size_t r) {
    const rein_head_out *out = b->w->out;
    const size_t at = b->first + r;
    const rein_softmax_total *t = &b->totals[r];
    const double log_of_sum = rein_log_of(t->sum, b->w->run->exec.isa), log_sum = t->maximum + log_of_sum;
    if (out->log_probs) out->log_probs[at] = (float)((double)b->picked[r] - log_sum);
    if (out->entropies) out->entropies[at] = (float)(log_of_sum - t->weighted / t->sum);
    if (out->log_sums) out->log_sums[at] = (float)log_sum;
    if (out->reference) finish_reference(b, r, log_sum);
    if (out->u) finish_directions(b, r);
}

static size_t chunk_size(size_t first, size_t vocabulary) {
    return vocabulary - first < REIN_VOCABULARY_CHUNK ? vocabulary - first : REIN_VOCABULARY_CHUNK;
}

static void jensen_shannon(head_block *b, size_t vocabulary, float *gemm_scratch) {
    const rein_head_out *out = b->w->out;
    for (size_t r = 0; r < b->rows; r++) {
        out->log_sums[b->first + r] = (float)rein_head_log_sum(&b->totals[r], b->w->run->exec.isa);
        out->reference_log_sums[b->first + r] = (float)rein_head_log_sum(&b->reference[r], b->w->run->exec.isa);
        b->apart[r] = b->toward[r] = 0;
    }
    for (size_t first = 0; first < vocabulary; first += REIN_VOCABULARY_CHUNK)
        jensen_shannon_chunk(b, first, chunk_size(first, vocabulary), gemm_scratch);
}

static void do_rows(void *context, size_t piece, int thread) {
    const head_work *w = context;
    const size_t vocabulary = w->head->linear->out, hidden = w->head->linear->in;
    head_block b = {.w = w, .first = piece * w->rows, .z = w->scratch + (size_t)thread * scratch_floats(w->out)};
    b.rows = w->n - b.first < w->rows ? w->n - b.first : w->rows;
    b.y = b.z + ROWS * REIN_VOCABULARY_CHUNK;
    b.q = b.y + ROWS * REIN_VOCABULARY_CHUNK;
    if (w->out->u) memset(w->out->u + b.first * hidden, 0, b.rows * hidden * sizeof(float));
    if (w->out->v) memset(w->out->v + b.first * hidden, 0, b.rows * hidden * sizeof(float));
    if (w->out->w) memset(w->out->w + b.first * hidden, 0, b.rows * hidden * sizeof(float));
    for (size_t first = 0; first < vocabulary; first += REIN_VOCABULARY_CHUNK)
        do_chunk(&b, first, chunk_size(first, vocabulary), rein_nn_gemm_scratch(w->run, thread));
    if (divergence_of(w->out) == REIN_DIVERGENCE_JSD) jensen_shannon(&b, vocabulary, rein_nn_gemm_scratch(w->run, thread));
    for (size_t r = 0; r < b.rows; r++) finish_row(&b, r);
}

void rein_head_forward(const rein_head_out *out, float *inner, const float *h, const int32_t *targets, size_t n,
                       const rein_head *head, float *scratch, const rein_nn_context *run) {
    const size_t threads = (size_t)run->exec.threads,
                 blocks_each = (n + ROWS * threads - 1) / (ROWS * threads); /* blocks per thread */
    size_t rows = blocks_each ? (n + blocks_each * threads - 1) / (blocks_each * threads) : 1;
    rows = (rows + GEMM_TILE_ROWS - 1) / GEMM_TILE_ROWS * GEMM_TILE_ROWS;
    head_work w = {out, inner, h, targets, n, rows, head, scratch, run};
    const rein_head_reference *other = out->reference;
    if (has_lora(head->lora)) rein_lora_inner(inner, h, n, head->linear->in, head->lora, run);
    if (other && has_lora(other->head->lora))
        rein_lora_inner(other->inner, other->h, n, other->head->linear->in, other->head->lora, run);
    rein_parallel(run->exec.threads, (n + w.rows - 1) / w.rows, do_rows, &w);
}

/* ---- for sampling */
typedef struct logits_work {
    float *x;
    rein_softmax_stats *stats;
    const float *inner, *h, *inverse_temperatures;
    size_t n;
    const rein_linear *linear;
    float cap;
    size_t number, width; /* width: floats of a row of inner */
    const rein_lora_rows *parts;
    size_t n_parts;
    const rein_nn_context *run;
} logits_work;

static const rein_lora *lora_of(const rein_lora_rows *part, size_t number) {
    return part->loras && part->loras[number].rank ? &part->loras[number] : NULL;
}

static void add_loras(const logits_work *w, size_t first, size_t n, float *scratch) {
    for (size_t p = 0; p < w->n_parts; p++) {
        const rein_lora_rows *part = &w->parts[p];
        const rein_lora *lora = lora_of(part, w->number);
        if (lora)
            add_chunk_lora(w->x + part->first * w->linear->out + first, w->linear->out, w->inner + part->first * w->width,
                           part->rows, first, n, lora, scratch, w->run);
    }
}

static void do_logits(void *context, size_t chunk, int thread) {
    const logits_work *w = context;
    const size_t vocabulary = w->linear->out, first = chunk * REIN_VOCABULARY_CHUNK;
    const size_t n = vocabulary - first < REIN_VOCABULARY_CHUNK ? vocabulary - first : REIN_VOCABULARY_CHUNK;
    float *scratch = rein_nn_gemm_scratch(w->run, thread);
    for (size_t r = 0; r < w->n; r += ROWS)
        chunk_logits(w->x + r * vocabulary + first, vocabulary, w->h + r * w->linear->in, w->n - r < ROWS ? w->n - r : ROWS, first,
                     n, w->linear, scratch, w->run);
    if (w->width) add_loras(w, first, n, scratch);
    for (size_t r = 0; r < w->n && w->cap > 0; r++) w->run->kernels->rows->soft_cap(w->x + r * vocabulary + first, n, 1, w->cap);
    for (size_t r = 0; r < w->n; r++)
        w->stats[r * rein_head_chunks(w->linear) + chunk] =
            w->run->kernels->rows->softmax_stats(w->x + r * vocabulary + first, n, w->inverse_temperatures[r], 0);
}

void rein_head_logits(float *x, rein_softmax_stats *stats, float *inner, const float *h, const float *inverse_temperatures,
                      size_t n, const rein_linear *linear, float cap, size_t number, const rein_lora_rows *parts, size_t n_parts,
                      const rein_nn_context *run) {
    const size_t width = rein_lora_rows_rank(parts, n_parts, number);
    logits_work w = {x, stats, inner, h, inverse_temperatures, n, linear, cap, number, width, parts, n_parts, run};
    for (size_t p = 0; width && p < n_parts; p++) {
        const rein_lora *lora = lora_of(&parts[p], number);
        if (lora)
            rein_lora_inner(inner + parts[p].first * width, h + parts[p].first * linear->in, parts[p].rows, linear->in, lora, run);
    }
    rein_parallel(run->exec.threads, rein_head_chunks(linear), do_logits, &w);
}
