/* decoder.h - the layers of a model over a batch of rows, forward and backward. Private.
 *
 * Rows are tokens of any number of sequences. Where the keys of a row go and which keys its query sees is the caller's: a training batch
 * keeps them for one layer, a generator for as long as the sequence lives. */
#ifndef REIN_MODEL_DECODER_H
#define REIN_MODEL_DECODER_H

#include "nn/head.h"
#include "nn/rope.h"
#include "weights.h"

/* Where the keys of a row are put. */
typedef struct rein_slot {
    float *block; /* of the first layer */
    size_t slot;
} rein_slot;

/* A batch of rows on its way through the layers. */
typedef struct rein_batch_rows {
    const rein_model *model;
    const rein_adapter *adapter; /* or NULL */
    size_t rows;
    const int32_t *positions; /* [rows] */
    const rein_slot *slots;   /* [rows] */
    const rein_query *queries;
    size_t n_queries, keys; /* the most keys that a query has */
    size_t layer_stride;    /* floats from a block's keys of one layer to those of the next; 0: layers overwrite each other */
    rein_angles angles;
    rein_nn_context run;
    /* Scratch: */
    float *normed;    /* [rows][hidden] */
    float *gated;     /* [rows][intermediate] */
    float *attention; /* rein_attention_scratch */
    size_t *pieces;   /* [n_queries + 1] */
} rein_batch_rows;

/* What a layer leaves for its backward pass; without one, the layers use the same. */
typedef struct rein_kept {
    float *x, *middle;                /* [rows][hidden]: what goes in, and after attention */
    float *scale, *middle_scale;      /* [rows] of the norms */
    float *q_raw, *k_raw;             /* before their norm; the same as q and k when there is none */
    float *q_scale, *k_scale;         /* [rows][heads] of their norms, or NULL */
    float *q, *k, *v, *o;             /* [rows][heads][dim] */
    float *softmax_stats;             /* [rows][heads][2], or NULL */
    float *gate, *up;                 /* [rows][intermediate] */
    float *inner[REIN_LAYER_MODULES]; /* [rows][rank], or NULL */
} rein_kept;

/* Scratch of a batch whose rows, queries, keys and run are set; check arena->failed afterwards. */
void rein_batch_take(rein_batch_rows *batch, rein_arena *arena);

/* The arrays of a layer, but for x. */
void rein_kept_take(rein_kept *kept, const rein_batch_rows *batch, int for_backward, rein_arena *arena);

/* Rows of the embedding. */
void rein_embed(float *x, const rein_model *model, const int32_t *ids, size_t rows, const rein_nn_context *run);

/* out [rows][hidden] from kept->x; the rest of kept is filled. out NULL: only what is kept. out may be kept->x. */
void rein_layer_forward(float *out, const rein_kept *kept, size_t layer, const rein_batch_rows *batch);

/* The rows of a batch that anybody wants after the last layer: the others are keys there and nothing else. For passes that are not gone
 * back. */
typedef struct rein_selected_rows {
    rein_batch_rows few; /* these rows, without slots */
    const size_t *from;  /* [few.rows]: where they are in the batch */
} rein_selected_rows;

/* parts [n]: of the batch's queries, at least a row each, rows ascending. */
void rein_selected_rows_take(rein_selected_rows *leaving, const rein_batch_rows *batch, const rein_query *parts, size_t n,
                             rein_arena *arena);

/* out [leaving->few.rows][hidden] from kept->x [rows][hidden] of the batch. */
void rein_last_layer_forward(float *out, const rein_kept *kept, const rein_selected_rows *leaving, const rein_batch_rows *batch);

/* ---- backward */
typedef struct rein_layer_gradient {
    rein_linear_gradient linear[REIN_LAYER_MODULES];
    float *norm_attention, *norm_mlp, *norm_q, *norm_k; /* NULL where nothing trains */
} rein_layer_gradient;

typedef struct rein_backward_scratch {
    float *normed, *dnormed;          /* [rows][hidden] */
    float *gated, *dgated;            /* [rows][intermediate] */
    float *dq, *dk, *dv, *d_o, *draw; /* [rows][heads][dim] */
    float *dinner;                    /* [rows][rank] */
    float *attention;                 /* rein_attention_backward_scratch */
} rein_backward_scratch;

void rein_backward_take(rein_backward_scratch *scratch, const rein_batch_rows *batch, rein_arena *arena);

/* dx [rows][hidden]: from what comes out of the layer to what goes in (not wanted at the lowest one unless the embedding trains). */
void rein_layer_backward(float *dx, int input_wanted, const rein_layer_gradient *gradient, const rein_kept *kept, size_t layer,
                         const rein_batch_rows *batch, const rein_segment *segments, const size_t *trees, size_t n_trees,
                         const rein_backward_scratch *scratch);

#endif
