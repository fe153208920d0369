/* attention_rows.h - a block of queries: a few rows, and of each the heads that share one key head. Private. */
#ifndef REIN_NN_ATTENTION_ROWS_H
#define REIN_NN_ATTENTION_ROWS_H

#include <string.h>

#include "attention.h"

/* Rows of a block of queries, heads counted: enough to use a panel of keys well, few enough that scores stay in the cache. */
static inline size_t rein_block_queries(const rein_heads *heads) {
    const size_t group = heads->n / heads->n_kv;
    return group < 48 ? 48 / group : 1;
}
static inline size_t rein_block_rows(const rein_heads *heads) { return rein_block_queries(heads) * (heads->n / heads->n_kv); }

typedef struct rein_block {
    size_t first, rows; /* of the batch */
    size_t head;        /* the kv head */
    const rein_heads *heads;
} rein_block;

/* to [rows][group][dim] ← x [.][n][dim], and back. */
static inline void rein_block_gather(float *to, const float *x, const rein_block *b) {
    const size_t width = b->heads->n / b->heads->n_kv * b->heads->dim, stride = b->heads->n * b->heads->dim;
    for (size_t r = 0; r < b->rows; r++) memcpy(to + r * width, x + (b->first + r) * stride + b->head * width, width * sizeof *to);
}
static inline void rein_block_scatter(float *x, const float *from, const rein_block *b) {
    const size_t width = b->heads->n / b->heads->n_kv * b->heads->dim, stride = b->heads->n * b->heads->dim;
    for (size_t r = 0; r < b->rows; r++)
        memcpy(x + (b->first + r) * stride + b->head * width, from + r * width, width * sizeof *from);
}

#endif
