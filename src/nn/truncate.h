/* truncate.h - the tokens that top_k, top_p and min_p keep, from a row of logits. Private.
 *
 * The sampler and the trainer of a truncated policy both call rein_truncate, so that the same logits keep the same tokens. */
#ifndef REIN_NN_TRUNCATE_H
#define REIN_NN_TRUNCATE_H

#include "head.h"
#include "rein/model.h"

/* A row of logits: x = z/T [vocabulary] and the masses of its chunks. */
typedef struct rein_logits_row {
    const float *x;
    const rein_softmax_stats *masses;
    size_t vocabulary, chunks;
    rein_isa isa;
    const int32_t *banned; /* [n_banned] tokens that must not be kept */
    size_t n_banned;
} rein_logits_row;

typedef struct rein_logit {
    float x;
    int32_t id;
} rein_logit;

/* Lists the kept tokens, the most probable first, equal ones by id; returns their number, 0 if all are banned. *mass becomes
 * Σ e^(x − total->maximum) over them. kept [vocabulary]. */
size_t rein_truncate(rein_logit *kept, double *mass, const rein_logits_row *row, const rein_softmax_total *total,
                     const rein_truncation *truncation);

/* The log-probability of a kept token, of logit x, among those of this mass. */
float rein_truncated_log_prob(float x, double mass, const rein_softmax_total *total, rein_isa isa);

/* 1 if the token is banned in this row. */
int rein_is_banned(const rein_logits_row *row, size_t id);

/* The head of a truncated policy p, the softmax over the kept tokens S, which is held constant in the gradient:
 *     lp = x_y − log Σ_{v∈S} e^x      H = −Σ_S p·log p
 *     u = (W_y − Σ_S p·W)/T           v = −Σ_S p·(log p + H)·W/T
 * out: log_probs, and entropies, u, v where they are wanted. A target outside of S has the log-probability −infinity. The head has no LoRA. A
 * few rows of logits are in memory at a time. scratch [rein_head_truncated_scratch]. */
size_t rein_head_truncated_scratch(const rein_head *head, const rein_nn_context *run);
void rein_head_truncated(const rein_head_out *out, const float *h, const int32_t *targets, size_t n, const rein_head *head,
                         const rein_truncation *truncation, float *scratch, const rein_nn_context *run);

#endif
