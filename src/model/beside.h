/* beside.h - a forward pass beside that of another model, a reference or a teacher, on the same tokens: log-probabilities of both, and a
 * divergence between their whole distributions. Private.
 *
 *     reverse: Σ_v p(v)·(log p(v) − log q(v))      p the policy's distribution at a token, q the other's; nn/head.h has forward and jsd
 *
 * Both heads process the same part of the vocabulary at a time (nn/head.h), so nothing of size tokens × vocabulary exists unless the head
 * trains. */
#ifndef REIN_MODEL_BESIDE_H
#define REIN_MODEL_BESIDE_H

#include "objective/options.h"
#include "rein/model.h"

typedef struct rein_beside {
    rein_activations *activations; /* of the reference: its rows are computed here, and stay for the backward pass */
    const rein_policy *policy;     /* the reference; a vocabulary of another size is REIN_EINVAL */
    float *kl;                     /* [tokens] the divergence */
    float *log_probs;              /* [tokens] of the reference, the bits of rein_forward; or NULL */
    int kl_gradient;               /* with keep: rein_backward_beside will be given dkl */
    rein_divergence divergence;    /* not SAMPLED */
    double jsd_beta;
} rein_beside;

/* rein_forward, beside the reference (NULL: there is none). */
rein_status rein_forward_beside(float *log_probs, float *entropies, const rein_beside *beside, rein_activations *activations,
                                const rein_policy *policy, const rein_tokens *tokens, const rein_forward_options *options,
                                rein_error *err);

/* rein_backward with dkl [tokens] = d loss/d kl, or NULL without kl_gradient. */
rein_status rein_backward_beside(float *gradient, rein_activations *activations, const float *dlog_probs, const float *dentropies,
                                 const float *dkl, rein_error *err);

#endif
