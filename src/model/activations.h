/* activations.h - the memory of a forward pass: its rows, what each layer keeps, what the head sees. Private.
 *
 * activations.c takes the memory, token_rows.c lays tokens out as rows, forward.c and backward.c compute. */
#ifndef REIN_MODEL_ACTIVATIONS_H
#define REIN_MODEL_ACTIVATIONS_H

#include "beside.h"
#include "decoder.h"
#include "expert_load.h"

enum {
    REIN_MAX_KEPT_LOGITS = 1 << 30
}; /* bytes: logits of a head that trains are kept up to here, beyond they are computed again */

struct rein_activations {
    rein_exec exec;
    rein_arena arena;
    rein_policy policy;
    rein_forward_options options;
    const float *score; /* the score head of a pass that computes scores, or NULL: it computes log-probs */
    int at_token;       /* what is wanted of a token comes from its own row, not from the row that predicts it */
    int has_forward;    /* 1: a forward pass was kept, and its backward pass has not run yet */

    rein_batch_rows batch;
    size_t n_segments, n_trees;
    rein_segment *segments; /* [n_segments] */
    uint64_t *keys;         /* [n_segments] of the activation cache, 0: none */
    size_t *trees;          /* [n_trees + 1] */
    const int32_t *ids;     /* [rows], a copy */

    /* The tokens whose log-probability or score is wanted: [n_wanted] each. */
    size_t n_wanted, n_tokens;
    size_t *wanted; /* index of the token */
    size_t *row;    /* the row that it is computed from: of the batch, or of `selected` unless the pass is kept */
    int32_t *targets;

    float **cached;              /* [rows] of options.activation_cache, or NULL: the rows are computed */
    rein_selected_rows selected; /* rows of the last layer that predict a wanted token; unused if the pass is kept */
    float *x;                    /* [layers + 1][rows][hidden] if kept, else [1] */
    rein_kept *kept;             /* [layers] or [1] */
    float *last;                 /* [n_wanted][hidden] rows before the last norm */
    float *last_scale;
    float *hidden; /* [n_wanted][hidden] input of the head */
    float *inner;  /* of the head's LoRA */
    rein_head head;
    rein_head_out out;
    rein_head_reference reference; /* of a pass beside another model */
    int kl_gradient;               /* rein_backward_beside may be given dkl */
    int head_trains;
    rein_expert_load *load; /* backward passes add to it, or NULL. The caller's */
    float *head_scratch;
    float *scores; /* [n_wanted] of a pass that computes scores */
};

/* Checks the tokens and lays them out as rows: fills segments, trees, ids, wanted, row, targets and batch.rows. Tokens after the
 * last one that is needed for a prediction get no row: the last token of a completion is only a target. */
rein_status rein_token_rows(rein_activations *activations, const rein_tokens *tokens, rein_error *err);

/* Forgets the pass before. options may be NULL: {0}. The pass computes log-probs unless score is set afterwards. */
void rein_activations_begin(rein_activations *activations, const rein_forward_options *options);

/* Checks policy and tokens and takes all memory of a pass whose options are set, before anything is computed. beside may be NULL. */
rein_status rein_activations_prepare(rein_activations *activations, const rein_policy *policy, const rein_tokens *tokens,
                                     int with_entropies, const rein_beside *beside, rein_error *err);

/* From token ids to the input of the head, for the rows that something is wanted of. */
void rein_layers_forward(rein_activations *activations);

/* The memory of a backward pass. */
typedef struct rein_pass_gradients {
    float *dx, *dhidden, *dlast;          /* [rows], [n], [n] × hidden */
    float *dlog_probs, *dentropies, *dkl; /* [n]; dkl NULL: no gradient of a KL. Of scores, dlog_probs has dscores */
    float *dinner, *dlogits, *reference;  /* of a head that trains */
    rein_linear_gradient *experts;        /* of a layer */
    rein_backward_scratch scratch;
} rein_pass_gradients;

/* Checks that something trains, and takes the memory. */
rein_status rein_backward_prepare(rein_pass_gradients *g, rein_activations *activations, int with_kl, rein_error *err);

/* The gradients of the wanted tokens by one result of the forward pass, checked; from NULL: 0. */
rein_status rein_backward_gather(float *to, const float *from, const char *name, const rein_activations *activations,
                                 rein_error *err);

/* The place in `gradient` of an array of the model that trains; NULL if it does not train. */
float *rein_gradient_of(const rein_activations *activations, float *gradient, const void *values);

/* From g->dhidden down to the embedding: adds to the gradients of everything below the head. */
void rein_layers_backward(rein_pass_gradients *g, float *gradient, const rein_activations *activations);

#endif
