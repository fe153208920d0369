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
    int has_forward; /* 1: a forward pass was kept, and its backward pass has not run yet */

    rein_batch_rows batch;
    size_t n_segments, n_trees;
    rein_segment *segments; /* [n_segments] */
    uint64_t *keys;         /* [n_segments] of the activation cache, 0: none */
    size_t *trees;          /* [n_trees + 1] */
    const int32_t *ids;     /* [rows], a copy */

    /* The tokens whose log-probability is wanted: [n_wanted] each. */
    size_t n_wanted, n_tokens;
    size_t *wanted; /* index of the token */
    size_t *row;    /* the row that predicts it: of the batch, or of `selected` unless the pass is kept */
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
};

/* Checks the tokens and lays them out as rows: fills segments, trees, ids, wanted, row, targets and batch.rows. Tokens after the
 * last one that is needed for a prediction get no row: the last token of a completion is only a target. */
rein_status rein_token_rows(rein_activations *activations, const rein_tokens *tokens, rein_error *err);

/* Checks policy and tokens and takes all memory of a pass whose options are set, before anything is computed. beside may be NULL. */
rein_status rein_activations_prepare(rein_activations *activations, const rein_policy *policy, const rein_tokens *tokens,
                                     int with_entropies, const rein_beside *beside, rein_error *err);

#endif
