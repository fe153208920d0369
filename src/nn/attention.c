/* attention.c - the forward pass of attention, and the layout of key blocks. */
#include "attention.h"

#include <math.h>
#include <string.h>

#include "attention_rows.h"

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static size_t head_floats(const rein_heads *heads) { return REIN_KEY_BLOCK * (heads->dim + round_up(heads->dim, GEMM_PANEL)); }

size_t rein_key_block_floats(const rein_heads *heads) { return heads->n_kv * head_floats(heads); }

void rein_keys_put(float *block, size_t slot, const float *k, const float *v, const rein_heads *heads) {
    for (size_t h = 0; h < heads->n_kv; h++) {
        float *keys = block + h * head_floats(heads) + slot / GEMM_PANEL * heads->dim * GEMM_PANEL + slot % GEMM_PANEL;
        float *values = block + h * head_floats(heads) + REIN_KEY_BLOCK * heads->dim + slot * GEMM_PANEL;
        for (size_t d = 0; d < heads->dim; d++) keys[d * GEMM_PANEL] = k[h * heads->dim + d];
        for (size_t d = 0; d < heads->dim; d += GEMM_PANEL) {
            const size_t n = heads->dim - d < GEMM_PANEL ? heads->dim - d : GEMM_PANEL;
            memcpy(values + d * REIN_KEY_BLOCK, v + h * heads->dim + d, n * sizeof *v);
        }
    }
}

size_t rein_attention_scratch(const rein_heads *heads, size_t keys, const rein_nn_context *run) {
    return (size_t)run->exec.threads * rein_query_block_rows(heads) * (round_up(keys, GEMM_PANEL) + 2 * heads->dim);
}

typedef struct attention_work {
    float *o, *softmax_stats;
    const float *q;
    const rein_query *queries;
    size_t n_queries, offset;
    const size_t *pieces;
    const rein_heads *heads;
    float *scratch;
    size_t scratch_of_thread, row; /* floats per thread, and per row of scores */
    const rein_nn_context *run;
} attention_work;

/* The query that a piece belongs to; pieces[i] is the first piece of query i. */
static size_t query_of(const attention_work *w, size_t piece) {
    size_t low = 0, high = w->n_queries;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if (w->pieces[middle] <= piece) low = middle;
        else high = middle;
    }
    return low;
}

/* A block of queries at work, with its scratch memory. */
typedef struct attending {
    const attention_work *w;
    const rein_query *query;
    rein_query_block block;
    size_t m, before, seen; /* rows of scores; keys before the first query; keys of the last query */
    size_t block_at, from;  /* the first block of keys that a query sees, and the position it begins with */
    rein_key_part part;     /* of the blocks */
    float *scores, *q, *o;
    rein_gemm_task task;
} attending;

static size_t keys_from(const attending *a, size_t b, size_t at) {
    const size_t count = a->query->keys[b].count;
    return count < a->seen - at ? count : a->seen - at;
}

static void find_first_block(attending *a) {
    const size_t first = rein_first_key(a->w->heads, a->before + 1);
    while (a->from + a->query->keys[a->block_at].count <= first) a->from += a->query->keys[a->block_at++].count;
}

static void compute_scores(attending *a, size_t keys_at) {
    a->task.stride = a->w->row, a->task.k = a->task.panel = a->w->heads->dim;
    for (size_t b = a->block_at, at = a->from; at < a->seen; at += a->query->keys[b++].count) {
        a->task.c = a->scores + at;
        a->task.b = (rein_matrix){a->query->keys[b].data[a->part] + keys_at, 0, 0, REIN_STORED_F32};
        a->task.n = keys_from(a, b, at);
        a->w->run->kernels->gemm->multiply(&a->task);
    }
}

/* Makes e^(score − maximum) of a row of scores, 0 for keys that its query does not see. Returns 1 / their sum. */
static float softmax_row(attending *a, size_t r) {
    const rein_heads *heads = a->w->heads;
    const rein_row_kernels *kernels = a->w->run->kernels->rows;
    const size_t group = heads->n / heads->n_kv, n = a->before + r / group + 1, first = rein_first_key(heads, n),
                 start = rein_sum_start(first);
    float *row = a->scores + r * a->w->row, sum, scale = rein_score_scale(heads);
    if (heads->cap > 0) kernels->soft_cap(row + start, n - start, scale, heads->cap), scale = 1;
    rein_exclude(row, start, first);
    const float maximum = kernels->softmax_exp(&sum, row + start, n - start, scale);
    memset(row + n, 0, (a->seen - n) * sizeof *row);
    if (start > a->from) memset(row + a->from, 0, (start - a->from) * sizeof *row);
    if (a->w->softmax_stats) {
        float *kept = a->w->softmax_stats + 2 * ((a->block.first + r / group) * heads->n + a->block.head * group + r % group);
        kept[0] = maximum, kept[1] = 1 / sum;
    }
    return 1 / sum;
}

static void add_values(attending *a, size_t values_at) {
    a->task.c = a->o, a->task.stride = a->task.n = a->w->heads->dim, a->task.panel = REIN_KEY_BLOCK;
    a->task.a = (rein_matrix){a->scores, a->w->row, 1, REIN_STORED_F32};
    for (size_t b = a->block_at, at = a->from; at < a->seen; at += a->query->keys[b++].count) {
        a->task.a.data = a->scores + at;
        a->task.b = (rein_matrix){a->query->keys[b].data[a->part] + values_at, 0, 0, REIN_STORED_F32};
        a->task.k = keys_from(a, b, at);
        a->task.add = at > a->from;
        a->w->run->kernels->gemm->multiply(&a->task);
    }
}

static void attend(void *context, size_t piece, int thread) {
    const attention_work *w = context;
    const rein_heads *heads = w->heads;
    attending a = {.w = w, .query = &w->queries[query_of(w, piece)], .part = rein_key_part_of(heads)};
    const size_t within = piece - w->pieces[a.query - w->queries], queries = rein_query_block_queries(heads);
    const size_t head = within % heads->n_kv, first = within / heads->n_kv * queries, left = a.query->count - first;
    const size_t keys_at = w->offset + head * head_floats(heads);
    a.block = (rein_query_block){a.query->first + first, left < queries ? left : queries, head, heads};
    a.m = a.block.rows * (heads->n / heads->n_kv);
    a.before = a.query->before + first, a.seen = a.before + a.block.rows;
    a.scores = w->scratch + (size_t)thread * w->scratch_of_thread;
    a.q = a.scores + rein_query_block_rows(heads) * w->row, a.o = a.q + rein_query_block_rows(heads) * heads->dim;
    a.task =
        (rein_gemm_task){.a = {a.q, heads->dim, 1, REIN_STORED_F32}, .m = a.m, .scratch = rein_nn_gemm_scratch(w->run, thread)};
    find_first_block(&a);
    rein_query_block_gather(a.q, w->q, &a.block);
    compute_scores(&a, keys_at);
    float *factors = a.q; /* reuses the memory of the queries */
    for (size_t r = 0; r < a.m; r++) factors[r] = softmax_row(&a, r);
    add_values(&a, keys_at + REIN_KEY_BLOCK * heads->dim);
    for (size_t r = 0; r < a.m; r++) w->run->kernels->rows->scale(a.o + r * heads->dim, heads->dim, factors[r]);
    rein_query_block_scatter(w->o, a.o, &a.block);
}

void rein_attention_forward(float *o, float *softmax_stats, const float *q, const rein_query *queries, size_t n_queries,
                            size_t offset, const rein_heads *heads, size_t *pieces, float *scratch, size_t keys,
                            const rein_nn_context *run) {
    const size_t row = round_up(keys, GEMM_PANEL);
    double work = 0;
    pieces[0] = 0;
    for (size_t i = 0; i < n_queries; i++) {
        const size_t blocks = (queries[i].count + rein_query_block_queries(heads) - 1) / rein_query_block_queries(heads);
        pieces[i + 1] = pieces[i] + blocks * heads->n_kv;
        const size_t all = queries[i].before + queries[i].count, seen = all - rein_first_key(heads, all);
        work += (double)queries[i].count * (double)seen * (double)(heads->n * heads->dim);
    }
    attention_work w = {.o = o,
                        .softmax_stats = softmax_stats,
                        .q = q,
                        .queries = queries,
                        .n_queries = n_queries,
                        .offset = offset,
                        .pieces = pieces,
                        .heads = heads,
                        .scratch = scratch,
                        .row = row,
                        .scratch_of_thread = rein_query_block_rows(heads) * (row + 2 * heads->dim),
                        .run = run};
    rein_parallel(work < 1e5 ? 1 : run->exec.threads, pieces[n_queries], attend, &w);
}
