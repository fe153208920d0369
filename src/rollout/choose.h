/* choose.h - chooses a token from a row of logits. Private. */
#ifndef REIN_ROLLOUT_CHOOSE_H
#define REIN_ROLLOUT_CHOOSE_H

#include "nn/truncate.h"
#include "rein/rollout.h"

/* Chooses a token. candidates [vocabulary] is scratch memory, used only with top_k, top_p, min_p or banned tokens (else NULL). u is
 * uniform in [0, 1). */
typedef struct rein_chosen_token {
    int32_t id;
    float log_prob, sampler_log_prob;
} rein_chosen_token;
rein_chosen_token rein_choose(const rein_logits_row *row, const rein_sampling *sampling, double u, rein_logit *candidates);

/* Whether the sampler leaves tokens out, so that its distribution differs from the policy. */
static inline int rein_truncates(const rein_sampling *s) { return s->top_k > 0 || s->top_p < 1 || s->min_p > 0; }

/* The log-probability of a token under the policy. */
float rein_choose_log_prob(const rein_logits_row *row, int32_t id);

/* Finds the n most probable tokens, in order; equal ones by id. n is at most the vocabulary. */
void rein_choose_top(rein_choice *top, size_t n, const rein_logits_row *row);

#endif
