/* attention_rows.h - a block of queries: a few rows, and in each row the heads that share one kv head. Private. */
#ifndef REIN_NN_ATTENTION_ROWS_H
#define REIN_NN_ATTENTION_ROWS_H

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
