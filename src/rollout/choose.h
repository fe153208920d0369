/* choose.h - a token from a row of logits. Private. */
#ifndef REIN_ROLLOUT_CHOOSE_H
#define REIN_ROLLOUT_CHOOSE_H

#include "nn/head.h"
#include "rein/rollout.h"

/* A row: x = z/T [vocabulary] and the masses of its chunks. */
typedef struct rein_row {
    const float *x;
    const rein_softmax_stats *masses;
    size_t vocabulary, chunks;
    rein_isa isa;
} rein_row;

typedef struct rein_candidate {
    float x;
    int32_t id;
} rein_candidate;

/* candidates [vocabulary] is scratch, used only with top_k, top_p or min_p (else NULL). u is uniform in [0, 1). */
typedef struct rein_chosen {
    int32_t id;
    float log_prob, sampler_log_prob;
} rein_chosen;
rein_chosen rein_choose(const rein_row *row, const rein_sampling *sampling, double u, rein_candidate *candidates);

/* 1 if the sampler is not the policy. */
static inline int rein_truncates(const rein_sampling *s) { return s->top_k > 0 || s->top_p < 1 || s->min_p > 0; }

/* The n most probable tokens, in order; equals by id. n is at most the vocabulary. */
void rein_choose_top(rein_choice *top, size_t n, const rein_row *row);

#endif
