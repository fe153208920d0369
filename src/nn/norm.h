/* norm.h - RMSNorm of rows: y = x·s·(offset + w), s = 1/√(mean x² + ε) (Zhang & Sennrich 2019, arXiv 1910.07467). Private. */
#ifndef REIN_NN_NORM_H
#define REIN_NN_NORM_H

#include "context.h"

typedef struct rein_norm {
    const float *weight;   /* [n] */
    float offset, epsilon; /* offset: 0, or 1 in families that store w − 1 */
} rein_norm;

/* y [rows][n]; s [rows] is kept for the backward pass (NULL: not needed). y may be x. */
void rein_norm_forward(float *y, float *s, const float *x, const rein_norm *norm, size_t rows, size_t n,
                       const rein_nn_context *run);

/* dx [rows][n] +=; dweight [n] += (NULL: not needed). x is the input of the forward pass. */
void rein_norm_backward(float *dx, float *dweight, const float *dy, const float *x, const rein_norm *norm, const float *s,
                        size_t rows, size_t n, const rein_nn_context *run);

/* y [rows][n] += factor·x: the sum of a residual stream and a branch. */
void rein_add_rows(float *y, const float *x, size_t rows, size_t n, float factor, const rein_nn_context *run);

#endif
