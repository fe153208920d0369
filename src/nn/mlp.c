/* mlp.c - SwiGLU over many rows. */
#include "mlp.h"

typedef struct swiglu_work {
    float *h, *dg, *du;
    const float *dh, *g, *u;
    size_t rows, n;
    const rein_kernels *kernels;
} swiglu_work;

static void swiglu_rows(void *context, size_t piece, int thread) {
    const swiglu_work *w = context;
    const size_t first = piece * REIN_ROWS_PER_PIECE,
                 rows = w->rows - first < REIN_ROWS_PER_PIECE ? w->rows - first : REIN_ROWS_PER_PIECE;
    const size_t at = first * w->n, count = rows * w->n;
    (void)thread;
    if (w->dh) w->kernels->rows->swiglu_backward(w->dg + at, w->du + at, w->dh + at, w->g + at, w->u + at, count);
    else w->kernels->rows->swiglu(w->h + at, w->g + at, w->u + at, count);
}

void rein_swiglu_forward(float *h, const float *g, const float *u, size_t rows, size_t n, const rein_nn_context *run) {
    swiglu_work w = {.h = h, .g = g, .u = u, .rows = rows, .n = n, .kernels = run->kernels};
    rein_parallel(rein_row_threads(run, rows, 4 * n), rein_row_pieces(rows), swiglu_rows, &w);
}

void rein_swiglu_backward(float *g, float *u, const float *dh, size_t rows, size_t n, const rein_nn_context *run) {
    swiglu_work w = {.dg = g, .du = u, .dh = dh, .g = g, .u = u, .rows = rows, .n = n, .kernels = run->kernels};
    rein_parallel(rein_row_threads(run, rows, 4 * n), rein_row_pieces(rows), swiglu_rows, &w);
}
