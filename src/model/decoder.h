/* decoder.h - the layers of a model over a batch of rows, forward and backward. Private.
 *
 * A row is a token of any of the sequences in the batch. The caller decides where the keys of a row are stored and which keys its
 * query sees: a training batch keeps them for one layer, a generator for as long as the sequence is being sampled. */
#ifndef REIN_MODEL_DECODER_H
#define REIN_MODEL_DECODER_H

#include "nn/head.h"
#include "nn/rope.h"
#include "nn/route.h"
#include "weights.h"

/* Where the keys and values of a row are stored: slot `slot` of a block. */
typedef struct rein_slot {
    float *block[REIN_KEY_PARTS]; /* of the first layer of each part; layer_stride leads to the others */
    size_t slot;
} rein_slot;

/* Scratch of layers with experts, which are computed one after the other. An expert has at most as many rows as the batch. */
typedef struct rein_expert_scratch {
    rein_routes routes;
    rein_lora_rows *parts; /* [n_parts]: of the rows of an expert */
    float *x, *y;          /* [rows][hidden] */
    float *gate, *up;      /* [rows][expert_size] */
    float *inner[3];       /* [rows][rank], or NULL: of gate, up and down */
} rein_expert_scratch;

/* A batch of rows that goes through the layers. */
typedef struct rein_batch_rows {
    const rein_model *model;
    const rein_adapter *adapter; /* or NULL. Of rows with several adapters, which have no backward pass: any of them */
    size_t rows;
    const rein_lora_rows *parts; /* the rows of each adapter */
    size_t n_parts;
    const int32_t *positions; /* [rows] */
    const rein_slot *slots;   /* [rows] */
    const rein_query *queries;
    size_t n_queries, keys; /* keys: the largest number that a query sees */
    /* Floats between the keys of a layer and those of the next layer in a part of a block; 0: each layer overwrites the one before. */
    size_t layer_stride;
    rein_angles angles[REIN_ROPES]; /* of the model's ropes */
    rein_nn_context run;
    /* Scratch: */
    float *normed;    /* [rows][hidden] */
    float *gated;     /* [rows][intermediate], or expert_size if that is larger */
    float *attention; /* rein_attention_scratch */
    size_t *pieces;   /* [n_queries + 1] */
    rein_expert_scratch experts;
} rein_batch_rows;

/* What a layer keeps for its backward pass: arrays of floats only, each with a row in kept.c. Without a backward pass all layers use the
 * same memory. */
typedef struct rein_kept {
    float *x, *middle;                          /* [rows][hidden]: the input, and the sum after attention */
    float *scale, *middle_scale;                /* [rows] scales of the norms before attention and MLP */
    float *attention_out, *mlp_out;             /* [rows][hidden] before their norm, or NULL */
    float *attention_out_scale, *mlp_out_scale; /* [rows] scales of these norms, or NULL */
    float *q_raw, *k_raw;                       /* before their norm; q and k themselves if there is none */
    float *q_scale, *k_scale;         /* [rows][heads], or [rows] for one norm of all heads: scales of their norms, or NULL */
    float *q, *k, *v, *o;             /* [rows][heads][dim] */
    float *softmax_stats;             /* [rows][heads][2], or NULL */
    float *gate, *up;                 /* [rows][intermediate] */
    float *inner[REIN_LAYER_MODULES]; /* [rows][rank], or NULL */
    /* In layers with experts, instead of the above of the MLP: */
    float *router;                  /* [rows][n_experts]: probabilities */
    float *expert_gate, *expert_up; /* [rows][experts_per_token][expert_size] */
    float *expert_inner[3];         /* [rows][experts_per_token][rank], or NULL */
} rein_kept;
enum { REIN_KEPT_ARRAYS = sizeof(rein_kept) / sizeof(float *) };

/* The angles of a rope of the model, without memory yet; half is 0 if the model has no such rope. */
static inline rein_angles rein_angles_of(const rein_model *model, int rope) {
    return (rein_angles){.half = model->ropes[rope].half, .dim = model->heads.dim, .factor = model->ropes[rope].factor};
}

/* Takes the scratch memory of a batch whose rows, queries, keys and run are set; without parts it makes one of all rows, with the batch's
 * adapter. Check arena->failed afterwards, as with the next one. */
void rein_batch_take(rein_batch_rows *batch, rein_arena *arena);

/* Takes the arrays of a layer, except x. */
void rein_kept_take(rein_kept *kept, const rein_batch_rows *batch, int for_backward, rein_arena *arena);

/* Array i of REIN_KEPT_ARRAYS, x first, and the floats of one of its rows in a pass kept for backward; 0: this model has no such array. */
float *rein_kept_array(const rein_kept *kept, size_t i);
size_t rein_kept_width(size_t i, const rein_model *model, const rein_adapter *adapter);

/* Looks up the embeddings: x [rows][hidden] from ids [rows]. */
void rein_embed(float *x, const rein_model *model, const int32_t *ids, size_t rows, const rein_nn_context *run);

/* Computes a layer: out [rows][hidden] from kept->x, and the rest of kept. out NULL: only kept is filled. out may be kept->x. */
void rein_layer_forward(float *out, const rein_kept *kept, size_t layer, const rein_batch_rows *batch);

/* The rows whose output of the last layer is needed. The other rows only contribute keys and values there. For passes without
 * backward. */
typedef struct rein_selected_rows {
    rein_batch_rows batch; /* the selected rows, without slots */
    const size_t *from;    /* [batch.rows]: their index in the whole batch */
} rein_selected_rows;

/* Selects rows. parts [n]: parts of the batch's queries, at least one row each, in ascending order. */
void rein_selected_rows_take(rein_selected_rows *selected, const rein_batch_rows *batch, const rein_query *parts, size_t n,
                             rein_arena *arena);

/* Computes the last layer for the selected rows: out [selected->batch.rows][hidden] from kept->x [rows][hidden] of the whole
 * batch. */
void rein_last_layer_forward(float *out, const rein_kept *kept, const rein_selected_rows *selected, const rein_batch_rows *batch);

/* ---- backward */
typedef struct rein_layer_gradient {
    rein_linear_gradient linear[REIN_LAYER_MODULES];
    rein_linear_gradient router, *experts; /* [3·n_experts] */
    float *norms[REIN_NORMS];              /* NULL: does not train */
} rein_layer_gradient;

typedef struct rein_backward_scratch {
    float *normed, *dnormed;          /* [rows][hidden] */
    float *dscaled, *dbranch;         /* [rows][hidden] with a residual scale, and with norms after attention and MLP; or NULL */
    float *gated, *dgated;            /* [rows][intermediate], or expert_size if that is larger */
    float *weighted;                  /* [rows][expert_size] with experts */
    float *dweights, *dlogits;        /* [rows][experts_per_token], [rows][n_experts]: of the router */
    float *dq, *dk, *dv, *d_o, *draw; /* [rows][heads][dim] */
    float *dinner;                    /* [rows][rank] */
    float *attention;                 /* rein_attention_backward_scratch */
} rein_backward_scratch;

/* Takes the scratch memory of the backward pass of a batch. Check arena->failed afterwards. */
void rein_backward_take(rein_backward_scratch *scratch, const rein_batch_rows *batch, rein_arena *arena);

/* Computes the backward pass of a layer: dx [rows][hidden] is the gradient of the output, and becomes that of the input (only with
 * input_wanted: the lowest layer needs it only if the embedding trains). Adds to the gradients of the weights. */
void rein_layer_backward(float *dx, int input_wanted, const rein_layer_gradient *gradient, const rein_kept *kept, size_t layer,
                         const rein_batch_rows *batch, const rein_segment *segments, const size_t *trees, size_t n_trees,
                         const rein_backward_scratch *scratch);

#endif
