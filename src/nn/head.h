/* head.h - from hidden states to log-probabilities, without ever holding the logits of more than a few rows. Private.
 *
 * The policy is softmax(z/T). For a row with target y and p = softmax(z/T):
 *     lp = z_y/T − log Σ e^(z/T)      H = −Σ p·log p
 *     u  = dlp/dh = (W_y − Σ p·W)/T   v = dH/dh = −(Σ p·x·W − (Σ p·x)·(Σ p·W))/T, x = z/T
 * u and v come out of the same pass over the vocabulary as lp, before any loss is known: d loss/dh = g·u + g_H·v. That holds while the
 * head is frozen. When it trains, its gradient needs g first: the logits are kept, or computed a second time.
 *
 * The vocabulary is walked in chunks of REIN_VOCABULARY_CHUNK whose sums are combined in their order, in double: also when decoding. */
#ifndef REIN_NN_HEAD_H
#define REIN_NN_HEAD_H

#include "linear.h"

enum { REIN_VOCABULARY_CHUNK = 512 };

typedef struct rein_head {
    const rein_linear *linear; /* [vocabulary][hidden], no bias */
    const rein_lora *lora;     /* or NULL */
    float inverse_temperature;
} rein_head;

/* The mass of a whole row: Σ e^(x−maximum), Σ e^(x−maximum)·(x−maximum). */
typedef struct rein_softmax_total {
    double maximum, sum, weighted;
} rein_softmax_total;

/* Results for n rows; each may be NULL when it is not wanted. */
typedef struct rein_head_out {
    float *log_probs, *entropies; /* [n] */
    float *log_sums;              /* [n] log Σ e^x, for the backward pass */
    float *x;                     /* [n][x_row] z/T, for the backward pass, which computes it again where it is NULL */
    size_t x_row;
    float *u, *v; /* [n][hidden] */
} rein_head_out;

/* Scratch in floats. */
size_t rein_head_scratch(const rein_head *head, const rein_nn_context *run);

/* h [n][hidden], targets [n]; inner [n][rank] as in linear.h. v needs u; u and v are not for a head with a LoRA, nor together
 * with x. */
void rein_head_forward(const rein_head_out *out, float *inner, const float *h, const int32_t *targets, size_t n,
                       const rein_head *head, float *scratch, const rein_nn_context *run);

/* The whole way, for a head that trains: dh [n][hidden] = …, and the gradients of W, A and B +=. dentropies may be NULL. dinner [n][rank]
 * is scratch, as is scratch [n][REIN_BACKWARD_CHUNK], NULL with out->x, which is used up. */
enum { REIN_BACKWARD_CHUNK = 2048 };
void rein_head_backward(float *dh, const rein_linear_gradient *gradient, float *dinner, const float *dlog_probs,
                        const float *dentropies, const rein_head_out *out, const float *inner, const float *h,
                        const int32_t *targets, size_t n, const rein_head *head, float *scratch, const rein_nn_context *run);

/* For sampling: x [n][vocabulary] = z/T and masses [n][chunks]. */
static inline size_t rein_head_chunks(const rein_head *head) {
    return (head->linear->out + REIN_VOCABULARY_CHUNK - 1) / REIN_VOCABULARY_CHUNK;
}
void rein_head_logits(float *x, rein_softmax_stats *masses, float *inner, const float *h, size_t n, const rein_head *head,
                      const rein_nn_context *run);

/* The chunks of a row added up, in their order. */
rein_softmax_total rein_head_total(const rein_softmax_stats *masses, size_t chunks, rein_isa isa);

/* log(total.sum) + total.maximum */
double rein_head_log_sum(const rein_softmax_total *total, rein_isa isa);

#endif
