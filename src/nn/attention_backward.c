/* attention_backward.c - the backward pass of attention. One piece of work is a tree of segments and a kv head, because the queries of a tree
 * add to the gradients of the keys they share. They are added in the order of segments and rows, with any number of threads. */
#include <math.h>
#include <string.h>

#include "attention_rows.h"

enum { KEYS_AT_ONCE = 128 }; /* the most rows of a product whose rows are keys */

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

size_t rein_attention_backward_scratch(const rein_heads *heads, size_t keys, const rein_nn_context *run) {
    return (size_t)run->exec.threads * rein_query_block_rows(heads) * (2 * round_up(keys, GEMM_PANEL) + 3 * heads->dim) +
           (size_t)run->exec.threads * round_up(keys, GEMM_PANEL);
}

typedef struct backward_work {
    float *dq, *dk, *dv;
    const float *d_o, *q, *k, *v, *softmax_stats;
    const rein_segment *segments;
    const size_t *trees;
    const rein_heads *heads;
    float *scratch;
    size_t row;
    const rein_nn_context *run;
} backward_work;

/* One block of queries and its scratch memory. */
typedef struct block_work {
    const backward_work *w;
    rein_query_block block;
    size_t m, seen, before; /* rows of scores; keys of the last query; keys before the first query */
    size_t from;            /* the first key that a query sees, or a few before it */
    float *p, *ds, *q, *d_o, *dq;
    float *slope; /* one row */
    float *gemm_scratch;
} block_work;

static void multiply(const block_work *a, float *c, size_t stride, rein_matrix left, rein_matrix right, size_t m, size_t n,
                     size_t k, int add) {
    const rein_gemm_task task = {
        .c = c, .stride = stride, .a = left, .b = right, .m = m, .n = n, .k = k, .add = add, .scratch = a->gemm_scratch};
    a->w->run->kernels->gemm->multiply(&task);
}

static rein_matrix view(const float *x, size_t row, size_t column) { return (rein_matrix){x, row, column, REIN_STORED_F32}; }

/* Where the key at a position of a segment is. */
static size_t key_at(const block_work *a, const rein_segment *s, size_t at) {
    return ((s->first + at - s->before) * a->w->heads->n_kv + a->block.head) * a->w->heads->dim;
}

/* Scores and their gradients for keys of one segment, which are the keys [at, at + n) of the sequence. */
static void add_scores(const block_work *a, const rein_segment *s, size_t at, size_t n) {
    const size_t dim = a->w->heads->dim, stride = a->w->heads->n_kv * dim, key = key_at(a, s, at);
    multiply(a, a->p + at, a->w->row, view(a->q, dim, 1), view(a->w->k + key, 1, stride), a->m, n, dim, 0);
    multiply(a, a->ds + at, a->w->row, view(a->d_o, dim, 1), view(a->w->v + key, 1, stride), a->m, n, dim, 0);
}

static void add_input_gradients(const block_work *a, const rein_segment *s, size_t at, size_t n) {
    const size_t dim = a->w->heads->dim, stride = a->w->heads->n_kv * dim, key = key_at(a, s, at);
    multiply(a, a->dq, dim, view(a->ds + at, a->w->row, 1), view(a->w->k + key, stride, 1), a->m, dim, n, at > a->from);
    for (size_t j = 0; j < n; j += KEYS_AT_ONCE) {
        const size_t some = n - j < KEYS_AT_ONCE ? n - j : KEYS_AT_ONCE;
        multiply(a, a->w->dk + key + j * stride, stride, view(a->ds + at + j, 1, a->w->row), view(a->q, dim, 1), some, dim, a->m,
                 1);
        multiply(a, a->w->dv + key + j * stride, stride, view(a->p + at + j, 1, a->w->row), view(a->d_o, dim, 1), some, dim, a->m,
                 1);
    }
}

/* The softmax of a row, and the gradient of its scores from that of its probabilities. */
static void softmax_row_backward(const block_work *a, size_t r) {
    const rein_heads *heads = a->w->heads;
    const rein_row_kernels *kernels = a->w->run->kernels->rows;
    const size_t group = heads->n / heads->n_kv, n = a->before + r / group + 1, first = rein_first_key(heads, n),
                 start = rein_sum_start(first), count = n - start;
    const float *kept = a->w->softmax_stats + 2 * ((a->block.first + r / group) * heads->n + a->block.head * group + r % group);
    const float scale = rein_score_scale(heads);
    const int capped = heads->cap > 0;
    float *p = a->p + r * a->w->row, *ds = a->ds + r * a->w->row;
    if (capped) {
        kernels->soft_cap(p + start, count, scale, heads->cap);
        kernels->soft_cap_slope(a->slope, p + start, count, heads->cap);
    }
    rein_exclude(p, start, first);
    memset(ds + start, 0, (first - start) * sizeof *ds);
    kernels->softmax_from_stats(p + start, count, capped ? 1 : scale, kept[0], kept[1]);
    kernels->softmax_backward(ds + start, p + start, ds + start, count, scale);
    if (capped) kernels->multiply(ds + start, a->slope, count);
    memset(p + n, 0, (a->seen - n) * sizeof *p);
    memset(ds + n, 0, (a->seen - n) * sizeof *ds);
    memset(p + a->from, 0, (start - a->from) * sizeof *p);
    memset(ds + a->from, 0, (start - a->from) * sizeof *ds);
}

/* Calls f for the keys from a->from on, segment by segment, from the root of the tree to `s`. */
typedef void on_segment(const block_work *a, const rein_segment *s, size_t at, size_t n);
static void for_each_ancestor(const block_work *a, const rein_segment *s, on_segment *f) {
    if (s->parent != REIN_NO_PARENT && s->before > a->from) for_each_ancestor(a, &a->w->segments[s->parent], f);
    const size_t at = s->before > a->from ? s->before : a->from, all = s->before + s->count, end = all < a->seen ? all : a->seen;
    if (at < end) f(a, s, at, end - at);
}

static void backward_block(block_work *a, const rein_segment *s) {
    rein_query_block_gather(a->q, a->w->q, &a->block);
    rein_query_block_gather(a->d_o, a->w->d_o, &a->block);
    for_each_ancestor(a, s, add_scores);
    for (size_t r = 0; r < a->m; r++) softmax_row_backward(a, r);
    for_each_ancestor(a, s, add_input_gradients);
    rein_query_block_scatter(a->w->dq, a->dq, &a->block);
}

static void backward_tree(void *context, size_t piece, int thread) {
    const backward_work *w = context;
    const rein_heads *heads = w->heads;
    const size_t tree = piece / heads->n_kv, rows = rein_query_block_rows(heads), queries = rein_query_block_queries(heads);
    float *scratch = w->scratch + (size_t)thread * (rows * (2 * w->row + 3 * heads->dim) + w->row);
    block_work a = {.w = w, .p = scratch, .ds = scratch + rows * w->row, .gemm_scratch = rein_nn_gemm_scratch(w->run, thread)};
    a.q = a.ds + rows * w->row, a.d_o = a.q + rows * heads->dim, a.dq = a.d_o + rows * heads->dim,
    a.slope = a.dq + rows * heads->dim;
    for (size_t i = w->trees[tree]; i < w->trees[tree + 1]; i++) {
        const rein_segment *s = &w->segments[i];
        for (size_t from = 0; from < s->count; from += queries) {
            a.block = (rein_query_block){s->first + from, s->count - from < queries ? s->count - from : queries,
                                         piece % heads->n_kv, heads};
            a.m = a.block.rows * (heads->n / heads->n_kv);
            a.before = s->before + from, a.seen = a.before + a.block.rows;
            a.from = rein_sum_start(rein_first_key(heads, a.before + 1));
            backward_block(&a, s);
        }
    }
}

void rein_attention_backward(float *dq, float *dk, float *dv, const float *d_o, const float *q, const float *k, const float *v,
                             const float *softmax_stats, const rein_segment *segments, const size_t *trees, size_t n_trees,
                             const rein_heads *heads, size_t rows, float *scratch, size_t keys, const rein_nn_context *run) {
    backward_work w = {dq, dk, dv, d_o, q, k, v, softmax_stats, segments, trees, heads, scratch, round_up(keys, GEMM_PANEL), run};
    memset(dk, 0, rows * heads->n_kv * heads->dim * sizeof *dk);
    memset(dv, 0, rows * heads->n_kv * heads->dim * sizeof *dv);
    rein_parallel(run->exec.threads, n_trees * heads->n_kv, backward_tree, &w);
}
