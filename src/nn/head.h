/* head.h - from hidden states to log-probabilities, with the logits of only a few rows in memory. Private.
 *
 * The policy is softmax(z/T). For a row with target y and p = softmax(z/T):
 *     lp = z_y/T − log Σ e^(z/T)      H = −Σ p·log p
 *     u  = dlp/dh = (W_y − Σ p·W)/T   v = dH/dh = −(Σ p·x·W − (Σ p·x)·(Σ p·W))/T, x = z/T
 * Against another model's q = softmax(y), y its capped logits/T, over the same vocabulary:
 *     KL = KL(p‖q) = Σ p·(x − y) − log Σ e^x + log Σ e^y      w = dKL/dh = (Σ p·(x − y)·W − (Σ p·(x − y))·(Σ p·W))/T
 * No logarithm of a probability is taken, so a q that underflows is no infinity; and p = q gives exactly 0, in both. Two more divergences
 * (Agarwal et al. 2023, arXiv 2306.13649) take its place:
 *     forward:  KL(q‖p) = Σ q·(y − x) − log Σ e^y + log Σ e^x                w = (Σ p·W − Σ q·W)/T
 *     jsd:      β·KL(q‖m) + (1 − β)·KL(p‖m), m = (1 − β)·p + β·q            w = (1 − β)·(Σ p·log(p/m)·W − KL(p‖m)·Σ p·W)/T
 * jsd needs both sums of exponentials before its first term, so it processes the vocabulary twice.
 *
 * With a frozen head, the pass over the vocabulary that computes lp also computes u and v, before any loss is known; later
 * d loss/dh = g·u + g_H·v + g_KL·w. A head that trains needs g first, so its logits are kept or computed a second time. With capped logits every
 * W_v above is multiplied by the slope of the cap at z_v.
 *
 * The vocabulary is processed in chunks of REIN_VOCABULARY_CHUNK. Their sums are combined in order, in double, in training and decoding. */
#ifndef REIN_NN_HEAD_H
#define REIN_NN_HEAD_H

#include "linear.h"
#include "objective/options.h"

enum { REIN_VOCABULARY_CHUNK = 512 };

typedef struct rein_head {
    const rein_linear *linear; /* [vocabulary][hidden], no bias */
    const rein_lora *lora;     /* or NULL */
    float inverse_temperature;
    float cap; /* logits become cap·tanh(z/cap), before the temperature; 0: they do not */
} rein_head;

/* The softmax statistics of a whole row: its maximum, Σ e^(x−maximum), Σ e^(x−maximum)·(x−maximum). */
typedef struct rein_softmax_total {
    double maximum, sum, weighted;
} rein_softmax_total;

/* Another model's head, and the input that the same rows have there; its vocabulary is the same, its width may differ. */
typedef struct rein_head_reference {
    const rein_head *head;
    const float *h;             /* [n][its hidden] */
    float *inner;               /* [n][rank] of its LoRA; rein_head_forward fills it */
    rein_divergence divergence; /* what out->kl is: REVERSE is KL(p‖q); not SAMPLED */
    float jsd_beta;
} rein_head_reference;

/* Results for n rows; NULL for those that are not needed. */
typedef struct rein_head_out {
    float *log_probs, *entropies;         /* [n] */
    const rein_head_reference *reference; /* or NULL; the next three and w need it, and it needs kl */
    float *kl;                            /* [n] the divergence */
    float *toward_mixture;                /* [n] of jsd, KL(p‖m); NULL otherwise */
    float *reference_log_probs;           /* [n] of the targets */
    float *reference_log_sums;            /* [n] log Σ e^y, for the backward pass and for jsd */
    float *log_sums;                      /* [n] log Σ e^x, for the backward pass and for jsd */
    float *x;                             /* [n][x_row] z/T, for the backward pass; if NULL, that computes it again */
    size_t x_row;
    float *u, *v, *w; /* [n][hidden] */
} rein_head_out;

/* Scratch memory in floats. */
size_t rein_head_scratch(const rein_head_out *out, const rein_nn_context *run);

/* h [n][hidden], targets [n]; inner [n][rank] as in linear.h. v and w need u. u, v
 * and w are allowed neither with a LoRA nor together with x. */
void rein_head_forward(const rein_head_out *out, float *inner, const float *h, const int32_t *targets, size_t n,
                       const rein_head *head, float *scratch, const rein_nn_context *run);

/* The backward pass of a head that trains: overwrites dh [n][hidden] and adds to the gradients of W, A and B. dentropies and dkl may be NULL.
 * dinner [n][rank], scratch and reference_scratch [n][REIN_BACKWARD_CHUNK] are scratch; with out->x, whose values are destroyed, scratch is
 * NULL, and without dkl reference_scratch is. */
enum { REIN_BACKWARD_CHUNK = 2048 };
void rein_head_backward(float *dh, const rein_linear_gradient *gradient, float *dinner, const float *dlog_probs,
                        const float *dentropies, const float *dkl, const rein_head_out *out, const float *inner, const float *h,
                        const int32_t *targets, size_t n, const rein_head *head, float *scratch, float *reference_scratch,
                        const rein_nn_context *run);

/* For sampling: x [n][vocabulary] = z/T (capped as in rein_head), and the statistics of each row's chunks, stats [n][chunks]. Each row has its own 1/T; parts
 * [n_parts] of the rows have their own LoRAs, of which the head's has this number; inner as in rein_linears_forward. */
static inline size_t rein_head_chunks(const rein_linear *linear) {
    return (linear->out + REIN_VOCABULARY_CHUNK - 1) / REIN_VOCABULARY_CHUNK;
}
void rein_head_logits(float *x, rein_softmax_stats *stats, float *inner, const float *h, const float *inverse_temperatures,
                      size_t n, const rein_linear *linear, float cap, size_t number, const rein_lora_rows *parts, size_t n_parts,
                      const rein_nn_context *run);

/* The statistics of a row from those of its chunks, combined in order. */
rein_softmax_total rein_head_total(const rein_softmax_stats *stats, size_t chunks, rein_isa isa);

/* log(total.sum) + total.maximum */
double rein_head_log_sum(const rein_softmax_total *total, rein_isa isa);

#endif
