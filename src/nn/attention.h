/* attention.h - causal grouped-query attention over keys in blocks. Private.
 *
 * A row of scores is whole before its softmax: one query against all its keys, s = q·k as one chain per element, the sum of the
 * exponentials in the order of the positions, the values added in the order of the positions. So the result of a query depends on
 * its keys alone: not on the queries beside it, not on how the keys are cut into blocks, whether they are shared with other sequences,
 * or were there before. Memory: one row of scores for each query at work, linear in the length. */
#ifndef REIN_NN_ATTENTION_H
#define REIN_NN_ATTENTION_H

#include "context.h"

typedef struct rein_heads {
    size_t n, n_kv, dim; /* n_kv divides n */
} rein_heads;

/* Keys and values of up to REIN_KEY_BLOCK consecutive positions, in the order in which they are read: for each kv head its keys
 * [4][dim][16] and its values [⌈dim/16⌉][64][16]. */
enum { REIN_KEY_BLOCK = 64 };
size_t rein_key_block_floats(const rein_heads *heads);

typedef struct rein_keys {
    float *data;  /* of the first layer */
    size_t count; /* positions that are filled */
} rein_keys;

/* Rows [first, first + count) of a batch, one sequence's, at positions before, before + 1, … `keys` are the blocks of the sequence from
 * position 0; those of the rows themselves are among them. */
typedef struct rein_query {
    size_t first, count, before;
    const rein_keys *keys;
    size_t n_keys;
} rein_query;

/* Writes k and v [n_kv][dim] of one position into slot [0, 64) of a block. */
void rein_keys_put(float *block, size_t slot, const float *k, const float *v, const rein_heads *heads);

/* Scratch in floats: for `keys`, the most keys that a query has. */
size_t rein_attention_scratch(const rein_heads *heads, size_t keys, const rein_nn_context *run);
size_t rein_attention_backward_scratch(const rein_heads *heads, size_t keys, const rein_nn_context *run);

/* o [rows][n][dim] of q [rows][n][dim]. `offset` floats into each block lie the keys of this layer. softmax_stats [rows][n][2], each head's
 * maximum and 1/sum, is kept for the backward pass (NULL: not wanted). pieces [n_queries + 1] is scratch. */
void rein_attention_forward(float *o, float *softmax_stats, const float *q, const rein_query *queries, size_t n_queries,
                            size_t offset, const rein_heads *heads, size_t *pieces, float *scratch, size_t keys,
                            const rein_nn_context *run);

/* A stretch of rows that continues another one (or none: NO_PARENT). */
enum { REIN_NO_PARENT = -1 };
typedef struct rein_segment {
    size_t first, count; /* rows */
    size_t before;       /* positions before the first */
    int64_t parent;      /* an earlier segment */
} rein_segment;

/* dq, dk, dv from d_o, with q [rows][n][dim], k and v [rows][n_kv][dim] of the forward pass. trees [n_trees + 1]: where the segments of
 * each tree begin in `segments`; the segments of a tree follow each other, its root first. dk and dv are overwritten too. */
void rein_attention_backward(float *dq, float *dk, float *dv, const float *d_o, const float *q, const float *k, const float *v,
                             const float *softmax_stats, const rein_segment *segments, const size_t *trees, size_t n_trees,
                             const rein_heads *heads, size_t rows, float *scratch, size_t keys, const rein_nn_context *run);

#endif
