/* score.h - from hidden states to scores: one number a row, s = h·w. Private. */
#ifndef REIN_NN_SCORE_H
#define REIN_NN_SCORE_H

#include "context.h"

/* scores [n] of h [n][hidden], with weight [hidden]. Each is summed in double. */
void rein_score_forward(float *scores, const float *h, const float *weight, size_t n, size_t hidden, const rein_nn_context *run);

/* dh [n][hidden] = dscores·w, and unless dweight [hidden] is NULL, dweight += Σ dscores·h over the rows, in their order. */
void rein_score_backward(float *dh, float *dweight, const float *dscores, const float *h, const float *weight, size_t n,
                         size_t hidden, const rein_nn_context *run);

#endif
