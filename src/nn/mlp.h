/* mlp.h - gated units: h = f(g)·u with f silu or gelu (Shazeer 2020, arXiv 2002.05202). Private. */
#ifndef REIN_NN_MLP_H
#define REIN_NN_MLP_H

#include "context.h"

typedef enum rein_activation { REIN_SILU, REIN_GELU_TANH } rein_activation;

/* All arrays are [rows][n]. */
void rein_gate_forward(float *h, const float *g, const float *u, size_t rows, size_t n, rein_activation activation,
                       const rein_nn_context *run);

/* Overwrites g and u with their gradients. */
void rein_gate_backward(float *g, float *u, const float *dh, size_t rows, size_t n, rein_activation activation,
                        const rein_nn_context *run);

#endif
