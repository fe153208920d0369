/* attention_rows.h - a block of queries: a few rows, and in each row the heads that share one kv head. Private. */
#ifndef REIN_NN_ATTENTION_ROWS_H
#define REIN_NN_ATTENTION_ROWS_H

#include <math.h>
#include <string.h>

#include "attention.h"

/* A block has about 48 rows of scores, one for each query and head: enough to reuse a panel of keys, few enough to stay in the cache. */
static inline size_t rein_query_block_queries(const rein_heads *heads) {
    const size_t group = heads->n / heads->n_kv;
    return group < 48 ? 48 / group : 1;
}
static inline size_t rein_query_block_rows(const rein_heads *heads) {
    return rein_query_block_queries(heads) * (heads->n / heads->n_kv);
}

static inline float rein_score_scale(const rein_heads *heads) {
    return heads->scale > 0 ? heads->scale : 1 / sqrtf((float)heads->dim);
}

/* The first of n keys that the last of them sees, and the place from which sums over keys begin: the same for every query at this position,
 * so that the order of the sums depends on nothing else. */
static inline size_t rein_first_key(const rein_heads *heads, size_t n) {
    return heads->window && n > heads->window ? n - heads->window : 0;
}
static inline size_t rein_sum_start(size_t first_key) { return first_key / GEMM_PANEL * GEMM_PANEL; }

/* Excludes the keys before the window from a row of scores: their exponentials are 0. */
static inline void rein_exclude(float *row, size_t start, size_t first_key) {
    for (size_t i = start; i < first_key; i++) row[i] = -INFINITY;
}

typedef struct rein_query_block {
    size_t first, rows; /* rows of the batch */
    size_t head;        /* the kv head */
    const rein_heads *heads;
} rein_query_block;

/* Copies the block's part of x [.][n][dim] to `to` [rows][group][dim]; scatter copies it back. */
static inline void rein_query_block_gather(float *to, const float *x, const rein_query_block *b) {
    const size_t width = b->heads->n / b->heads->n_kv * b->heads->dim, stride = b->heads->n * b->heads->dim;
    for (size_t r = 0; r < b->rows; r++) memcpy(to + r * width, x + (b->first + r) * stride + b->head * width, width * sizeof *to);
}
static inline void rein_query_block_scatter(float *x, const float *from, const rein_query_block *b) {
    const size_t width = b->heads->n / b->heads->n_kv * b->heads->dim, stride = b->heads->n * b->heads->dim;
    for (size_t r = 0; r < b->rows; r++)
        memcpy(x + (b->first + r) * stride + b->head * width, from + r * width, width * sizeof *from);
}

#endif
