/* norm.h - RMSNorm of rows: y = x·s·w, s = 1/√(mean x² + ε) (Zhang & Sennrich 2019, arXiv 1910.07467). Private. */
#ifndef REIN_NN_NORM_H
#define REIN_NN_NORM_H

#include "context.h"

/* y [rows][n]; s [rows] is kept for the backward pass (NULL: not needed). y may be x. */
void rein_norm_forward(float *y, float *s, const float *x, const float *weight, size_t rows, size_t n, float epsilon,
                       const rein_nn_context *run);

/* dx [rows][n] +=; dweight [n] += (NULL: not needed). x is the input of the forward pass. */
void rein_norm_backward(float *dx, float *dweight, const float *dy, const float *x, const float *weight, const float *s,
                        size_t rows, size_t n, const rein_nn_context *run);

#endif
