/* head.c - the forward pass of the head. A thread takes a block of rows and processes the vocabulary chunk by chunk. */
#include "head.h"

#include <math.h>
#include <string.h>

#include "kernel/kernels.h"

enum { ROWS = 192 }; /* the most rows of a block; its logits of one chunk stay in the second-level cache */

/* Adds a chunk. If the maximum grows, the sums so far are scaled; reblocks_each their factor. */
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
static void chunk_logits(float *z, size_t stride, const float *h, const float *inner, size_t m, size_t first, size_t n,
                         const rein_head *head, float *gemm_scratch, const rein_nn_context *run) {
    const rein_linear *l = head->linear;
    rein_gemm_task task = {.c = z, .stride = stride, .m = m, .n = n, .k = l->in, .scratch = gemm_scratch};
    task.a = (rein_matrix){h, l->in, 1, REIN_STORED_F32};
    task.b = rein_linear_columns(l, first);
    task.panel = l->packed.data ? l->in : 0;
    run->kernels->gemm->multiply(&task);
    if (!head->lora || !head->lora->rank) return;
    const rein_packed *b = &head->lora->packed_b;
    task.a = (rein_matrix){inner, b->k, 1, REIN_STORED_F32};
    task.b = (rein_matrix){(const float *)b->data + first * b->k, 0, 0, REIN_STORED_F32};
    task.k = task.panel = b->k, task.add = 1;
    run->kernels->gemm->multiply(&task);
}

static void lora_inner(float *inner, const float *h, size_t n, const rein_head *head, const rein_nn_context *run) {
    if (head->lora && head->lora->rank) rein_lora_inner(inner, h, n, head->linear->in, head->lora, run);
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
    float *z, *y; /* [rows][chunk]: x, then e^(x−maximum); e^(x−maximum)·(x−maximum) */
    rein_softmax_total totals[ROWS];
    float picked[ROWS]; /* x of the target */
} head_block;

size_t rein_head_scratch(const rein_head *head, const rein_nn_context *run) {
    (void)head;
    return (size_t)run->exec.threads * ROWS * REIN_VOCABULARY_CHUNK * 2;
}

/* Scales the directions so far to a new maximum. */
static void rescale(head_block *b, size_t r, double factor, double shift) {
    const rein_head_out *out = b->w->out;
    const size_t hidden = b->w->head->linear->in, at = (b->first + r) * hidden;
    if (!((float)factor > 0)) { /* they vanish; 0·∞ would be NaN */
        memset(out->u + at, 0, hidden * sizeof *out->u);
        if (out->v) memset(out->v + at, 0, hidden * sizeof *out->v);
        return;
    }
    if (out->v) { /* Σ e·(x−M′)·W = factor·(Σ e·(x−M)·W + shift·Σ e·W) */
        b->w->run->kernels->rows->add_scaled(out->v + at, out->u + at, hidden, (float)shift);
        b->w->run->kernels->rows->scale(out->v + at, hidden, (float)factor);
    }
    b->w->run->kernels->rows->scale(out->u + at, hidden, (float)factor);
}

static void add_directions(head_block *b, size_t first, size_t n, float *gemm_scratch) {
    const head_work *w = b->w;
    const size_t hidden = w->head->linear->in;
    rein_gemm_task task = {.stride = hidden, .m = b->rows, .n = hidden, .k = n, .add = 1, .scratch = gemm_scratch};
    task.b = rein_linear_columns(w->head->linear, first);
    if (w->head->linear->packed.data) task.panel = hidden, task.transposed = 1;
    else task.b.row = task.b.column, task.b.column = 1;
    task.a = (rein_matrix){b->z, REIN_VOCABULARY_CHUNK, 1, REIN_STORED_F32};
    task.c = w->out->u + b->first * hidden;
    w->run->kernels->gemm->multiply(&task);
    if (!w->out->v) return;
    task.a.data = b->y;
    task.c = w->out->v + b->first * hidden;
    w->run->kernels->gemm->multiply(&task);
}

static void do_chunk(head_block *b, size_t first, size_t n, float *gemm_scratch) {
    const head_work *w = b->w;
    const rein_head_out *out = w->out;
    const size_t hidden = w->head->linear->in, rank = w->head->lora ? w->head->lora->rank : 0;
    const size_t row = out->x ? out->x_row : REIN_VOCABULARY_CHUNK;
    float *z = out->x ? out->x + b->first * row + first : b->z;
    chunk_logits(z, row, w->h + b->first * hidden, rank ? w->inner + b->first * rank : NULL, b->rows, first, n, w->head,
                 gemm_scratch, w->run);
    for (size_t r = 0; r < b->rows; r++) {
        float *x = z + r * row, *y = out->v ? b->y + r * REIN_VOCABULARY_CHUNK : NULL;
        const size_t target = (size_t)w->targets[b->first + r];
        const rein_softmax_stats m =
            w->run->kernels->rows->softmax_stats(x, n, w->head->inverse_temperature, out->entropies || out->v);
        const double before = b->totals[r].maximum;
        double factor = 1;
        if (target >= first && target < first + n) b->picked[r] = x[target - first];
        if (first == 0) b->totals[r] = first_chunk(&m);
        else factor = add_chunk(&b->totals[r], &m, w->run->exec.isa);
        if (!out->u) continue;
        if (first > 0 && b->totals[r].maximum > before) rescale(b, r, factor, before - b->totals[r].maximum);
        w->run->kernels->rows->exp_shifted(x, y, x, n, (float)b->totals[r].maximum);
    }
    if (out->u) add_directions(b, first, n, gemm_scratch);
}

/* u ← (W_y − u/S)/T, v ← −(v/S − (Σ p·x)·u/S)/T. Before, they are sums over the vocabulary. */
static void finish_directions(const head_block *b, size_t r) {
    const head_work *w = b->w;
    const rein_row_kernels *k = w->run->kernels->rows;
    const size_t hidden = w->head->linear->in, at = (b->first + r) * hidden;
    const rein_matrix *weight = &w->head->linear->weight;
    const float inverse = w->head->inverse_temperature, share = (float)(1 / b->totals[r].sum) * inverse;
    float *u = w->out->u + at, *v = w->out->v ? w->out->v + at : NULL;
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
        k->add_scaled(u + i, row, n, inverse);
    }
}

static void finish_row(head_block *b, size_t r) {
    const rein_head_out *out = b->w->out;
    const size_t at = b->first + r;
    const rein_softmax_total *t = &b->totals[r];
    const double log_of_sum = rein_log_of(t->sum, b->w->run->exec.isa), log_sum = t->maximum + log_of_sum;
    if (out->log_probs) out->log_probs[at] = (float)((double)b->picked[r] - log_sum);
    if (out->entropies) out->entropies[at] = (float)(log_of_sum - t->weighted / t->sum);
    if (out->log_sums) out->log_sums[at] = (float)log_sum;
    if (out->u) finish_directions(b, r);
}

static void do_rows(void *context, size_t piece, int thread) {
    const head_work *w = context;
    const size_t vocabulary = w->head->linear->out, hidden = w->head->linear->in;
    head_block b = {.w = w, .first = piece * w->rows, .z = w->scratch + (size_t)thread * 2 * ROWS * REIN_VOCABULARY_CHUNK};
    b.rows = w->n - b.first < w->rows ? w->n - b.first : w->rows;
    b.y = b.z + ROWS * REIN_VOCABULARY_CHUNK;
    if (w->out->u) memset(w->out->u + b.first * hidden, 0, b.rows * hidden * sizeof(float));
    if (w->out->v) memset(w->out->v + b.first * hidden, 0, b.rows * hidden * sizeof(float));
    for (size_t first = 0; first < vocabulary; first += REIN_VOCABULARY_CHUNK)
        do_chunk(&b, first, vocabulary - first < REIN_VOCABULARY_CHUNK ? vocabulary - first : REIN_VOCABULARY_CHUNK,
                 rein_nn_gemm_scratch(w->run, thread));
    for (size_t r = 0; r < b.rows; r++) finish_row(&b, r);
}

void rein_head_forward(const rein_head_out *out, float *inner, const float *h, const int32_t *targets, size_t n,
                       const rein_head *head, float *scratch, const rein_nn_context *run) {
    const size_t threads = (size_t)run->exec.threads,
                 blocks_each = (n + ROWS * threads - 1) / (ROWS * threads); /* blocks per thread */
    size_t rows = blocks_each ? (n + blocks_each * threads - 1) / (blocks_each * threads) : 1;
    rows = (rows + GEMM_TILE_ROWS - 1) / GEMM_TILE_ROWS * GEMM_TILE_ROWS;
    head_work w = {out, inner, h, targets, n, rows, head, scratch, run};
    lora_inner(inner, h, n, head, run);
    rein_parallel(run->exec.threads, (n + w.rows - 1) / w.rows, do_rows, &w);
}

/* ---- for sampling */
typedef struct logits_work {
    float *x;
    rein_softmax_stats *stats;
    const float *inner, *h;
    size_t n;
    const rein_head *head;
    const rein_nn_context *run;
} logits_work;

static void do_logits(void *context, size_t chunk, int thread) {
    const logits_work *w = context;
    const size_t vocabulary = w->head->linear->out, first = chunk * REIN_VOCABULARY_CHUNK;
    const size_t n = vocabulary - first < REIN_VOCABULARY_CHUNK ? vocabulary - first : REIN_VOCABULARY_CHUNK;
    for (size_t r = 0; r < w->n; r += ROWS) {
        const size_t some = w->n - r < ROWS ? w->n - r : ROWS, rank = w->head->lora ? w->head->lora->rank : 0;
        chunk_logits(w->x + r * vocabulary + first, vocabulary, w->h + r * w->head->linear->in, rank ? w->inner + r * rank : NULL,
                     some, first, n, w->head, rein_nn_gemm_scratch(w->run, thread), w->run);
    }
    for (size_t r = 0; r < w->n; r++)
        w->stats[r * rein_head_chunks(w->head) + chunk] =
            w->run->kernels->rows->softmax_stats(w->x + r * vocabulary + first, n, w->head->inverse_temperature, 0);
}

void rein_head_logits(float *x, rein_softmax_stats *stats, float *inner, const float *h, size_t n, const rein_head *head,
                      const rein_nn_context *run) {
    logits_work w = {x, stats, inner, h, n, head, run};
    lora_inner(inner, h, n, head, run);
    rein_parallel(run->exec.threads, rein_head_chunks(head), do_logits, &w);
}
