/* mlp.h - SwiGLU: h = silu(g)·u (Shazeer 2020, arXiv 2002.05202). Private. */
#ifndef REIN_NN_MLP_H
#define REIN_NN_MLP_H

#include "context.h"

/* All arrays are [rows][n]. */
void rein_swiglu_forward(float *h, const float *g, const float *u, size_t rows, size_t n, const rein_nn_context *run);

/* Overwrites g and u with their gradients. */
void rein_swiglu_backward(float *g, float *u, const float *dh, size_t rows, size_t n, const rein_nn_context *run);

#endif
