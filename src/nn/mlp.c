/* mlp.c - gated units over many rows. */
#include "mlp.h"

typedef struct gate_work {
    float *h, *dg, *du;
    const float *dh, *g, *u;
    size_t rows, n;
    rein_activation activation;
    const rein_row_kernels *kernels;
} gate_work;

static void gate_rows(void *context, size_t piece, int thread) {
    const gate_work *w = context;
    const size_t first = piece * REIN_ROWS_PER_PIECE,
                 rows = w->rows - first < REIN_ROWS_PER_PIECE ? w->rows - first : REIN_ROWS_PER_PIECE;
    const size_t at = first * w->n, count = rows * w->n;
    (void)thread;
    const int silu = w->activation == REIN_SILU;
    if (w->dh)
        (silu ? w->kernels->swiglu_backward : w->kernels->geglu_backward)(w->dg + at, w->du + at, w->dh + at, w->g + at, w->u + at,
                                                                          count);
    else (silu ? w->kernels->swiglu : w->kernels->geglu)(w->h + at, w->g + at, w->u + at, count);
}

void rein_gate_forward(float *h, const float *g, const float *u, size_t rows, size_t n, rein_activation activation,
                       const rein_nn_context *run) {
    gate_work w = {.h = h, .g = g, .u = u, .rows = rows, .n = n, .activation = activation, .kernels = run->kernels->rows};
    rein_parallel(rein_row_threads(run, rows, 4 * n), rein_row_pieces(rows), gate_rows, &w);
}

void rein_gate_backward(float *g, float *u, const float *dh, size_t rows, size_t n, rein_activation activation,
                        const rein_nn_context *run) {
    gate_work w = {
        .dg = g, .du = u, .dh = dh, .g = g, .u = u, .rows = rows, .n = n, .activation = activation, .kernels = run->kernels->rows};
    rein_parallel(rein_row_threads(run, rows, 4 * n), rein_row_pieces(rows), gate_rows, &w);
}
