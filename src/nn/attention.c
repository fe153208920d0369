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

static void attend(void *context, size_t piece, int thread) {
    const attention_work *w = context;
    const rein_heads *heads = w->heads;
    const rein_query *query = &w->queries[query_of(w, piece)];
    const size_t within = piece - w->pieces[query - w->queries], group = heads->n / heads->n_kv;
    const size_t head = within % heads->n_kv, from = within / heads->n_kv * rein_query_block_queries(heads);
    const rein_query_block block = {.first = query->first + from,
                                    .rows = query->count - from < rein_query_block_queries(heads) ? query->count - from
                                                                                                  : rein_query_block_queries(heads),
                                    .head = head,
                                    .heads = heads};
    const size_t m = block.rows * group, seen = query->before + from + block.rows;
    float *scores = w->scratch + (size_t)thread * w->scratch_of_thread, *q = scores + rein_query_block_rows(heads) * w->row,
          *o = q + rein_query_block_rows(heads) * heads->dim;
    const size_t keys_at = w->offset + head * head_floats(heads), values_at = keys_at + REIN_KEY_BLOCK * heads->dim;
    rein_gemm_task task = {.a = {q, heads->dim, 1, REIN_STORED_F32}, .m = m, .scratch = rein_nn_gemm_scratch(w->run, thread)};

    rein_query_block_gather(q, w->q, &block);
    task.stride = w->row, task.k = task.panel = heads->dim;
    for (size_t b = 0, at = 0; at < seen; at += query->keys[b++].count) {
        task.c = scores + at;
        task.b = (rein_matrix){query->keys[b].data + keys_at, 0, 0, REIN_STORED_F32};
        task.n = query->keys[b].count < seen - at ? query->keys[b].count : seen - at;
        w->run->kernels->gemm->multiply(&task);
    }
    float *factors = q; /* reuses the memory of the queries */
    for (size_t r = 0; r < m; r++) {
        float *row = scores + r * w->row, sum;
        const size_t n = query->before + from + r / group + 1;
        const float maximum = w->run->kernels->rows->softmax_exp(&sum, row, n, 1 / sqrtf((float)heads->dim));
        factors[r] = 1 / sum;
        memset(row + n, 0, (seen - n) * sizeof *row);
        if (w->softmax_stats) {
            float *kept = w->softmax_stats + 2 * ((block.first + r / group) * heads->n + head * group + r % group);
            kept[0] = maximum, kept[1] = factors[r];
        }
    }
    task.a = (rein_matrix){scores, w->row, 1, REIN_STORED_F32};
    task.c = o, task.stride = heads->dim, task.n = heads->dim, task.panel = REIN_KEY_BLOCK;
    for (size_t b = 0, at = 0; at < seen; at += query->keys[b++].count) {
        task.a.data = scores + at;
        task.b = (rein_matrix){query->keys[b].data + values_at, 0, 0, REIN_STORED_F32};
        task.k = query->keys[b].count < seen - at ? query->keys[b].count : seen - at;
        task.add = at > 0;
        w->run->kernels->gemm->multiply(&task);
    }
    for (size_t r = 0; r < m; r++) w->run->kernels->rows->scale(o + r * heads->dim, heads->dim, factors[r]);
    rein_query_block_scatter(w->o, o, &block);
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
        work += (double)queries[i].count * (double)(queries[i].before + queries[i].count) * (double)(heads->n * heads->dim);
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
