/* attention.h - causal grouped-query attention over keys in blocks, perhaps within a window, perhaps with capped scores. Private.
 *
 * The scores of a query against all its keys are complete before their softmax. Each score q·k is one chain of fma, and exponentials and
 * values are added in the order of the positions. So the result of a query depends only on its keys: not on the other queries, on how the
 * keys are cut into blocks, on whether other sequences share them, or on when they were computed. The memory for scores is linear in the
 * length. */
#ifndef REIN_NN_ATTENTION_H
#define REIN_NN_ATTENTION_H

#include "context.h"

typedef struct rein_heads {
    size_t n, n_kv, dim; /* n_kv divides n */
    float scale;         /* of the scores q·k; 0: 1/√dim */
    float cap;           /* scores become cap·tanh(score/cap); 0: they do not */
    size_t window;       /* a query sees this many keys, its own the last; 0: all */
} rein_heads;

/* Keys and values of up to REIN_KEY_BLOCK consecutive positions, as panels of a product: for each kv head its keys [4][dim][16] and its
 * values [⌈dim/16⌉][64][16]. */
enum { REIN_KEY_BLOCK = 64 };
size_t rein_key_block_floats(const rein_heads *heads);

/* A block is in two parts, each with the layers of one kind. A part that no query reads any more is not there. */
typedef enum rein_key_part { REIN_KEYS_ALL, REIN_KEYS_WINDOW, REIN_KEY_PARTS } rein_key_part; /* layers without and with a window */
static inline rein_key_part rein_key_part_of(const rein_heads *heads) { return heads->window ? REIN_KEYS_WINDOW : REIN_KEYS_ALL; }

typedef struct rein_keys {
    float *data[REIN_KEY_PARTS]; /* the first layer of each part; both the same where layers share their memory */
    size_t count;                /* filled positions */
} rein_keys;

/* Rows [first, first + count) of a batch. They belong to one sequence, at the positions before, before + 1, … `keys` are the blocks of the
 * sequence from position 0, including the keys of these rows; of blocks before the window of a layer only the count is read. */
typedef struct rein_query {
    size_t first, count, before;
    const rein_keys *keys;
    size_t n_keys;
} rein_query;

/* Writes k and v [n_kv][dim] of one position into slot [0, 64) of a block. */
void rein_keys_put(float *block, size_t slot, const float *k, const float *v, const rein_heads *heads);

/* Scratch memory in floats; no query has more than `keys` keys. */
size_t rein_attention_scratch(const rein_heads *heads, size_t keys, const rein_nn_context *run);
size_t rein_attention_backward_scratch(const rein_heads *heads, size_t keys, const rein_nn_context *run);

/* o [rows][n][dim] from q [rows][n][dim]. The keys of this layer start `offset` floats into its part of
 * each block. softmax_stats [rows][n][2], the
 * maximum and 1/sum of each head, is kept for the backward pass (NULL: not needed). pieces [n_queries + 1] is scratch. */
void rein_attention_forward(float *o, float *softmax_stats, const float *q, const rein_query *queries, size_t n_queries,
                            size_t offset, const rein_heads *heads, size_t *pieces, float *scratch, size_t keys,
                            const rein_nn_context *run);

/* Consecutive rows of one sequence that continue another segment, or start a sequence (REIN_NO_PARENT). */
enum { REIN_NO_PARENT = -1 };
typedef struct rein_segment {
    size_t first, count; /* rows */
    size_t before;       /* positions before the first row */
    int64_t parent;      /* the index of an earlier segment */
} rein_segment;

/* dq, dk, dv from d_o, with q [rows][n][dim], k and v [rows][n_kv][dim] of the forward pass. The segments of tree i are
 * segments[trees[i]] to segments[trees[i + 1] - 1], its root first. All three outputs are overwritten. */
void rein_attention_backward(float *dq, float *dk, float *dv, const float *d_o, const float *q, const float *k, const float *v,
                             const float *softmax_stats, const rein_segment *segments, const size_t *trees, size_t n_trees,
                             const rein_heads *heads, size_t rows, float *scratch, size_t keys, const rein_nn_context *run);

#endif
