/* norm.c - RMSNorm and sums over many rows. */
#include "norm.h"

typedef struct rows_work {
    const rein_kernels *kernels;
    float *y, *s, *dx, *dweight;
    const float *dy, *x, *scales;
    const rein_norm *norm;
    size_t rows, n;
    float factor;
} rows_work;

static void forward_rows(void *context, size_t piece, int thread) {
    const rows_work *w = context;
    (void)thread;
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < w->rows && r < (piece + 1) * REIN_ROWS_PER_PIECE; r++) {
        const float s =
            w->kernels->rows->norm(w->y + r * w->n, w->x + r * w->n, w->norm->weight, w->n, w->norm->offset, w->norm->epsilon);
        if (w->s) w->s[r] = s;
    }
}

void rein_norm_forward(float *y, float *s, const float *x, const rein_norm *norm, size_t rows, size_t n,
                       const rein_nn_context *run) {
    rows_work w = {.kernels = run->kernels, .y = y, .s = s, .x = x, .norm = norm, .rows = rows, .n = n};
    rein_parallel(rein_row_threads(run, rows, n), rein_row_pieces(rows), forward_rows, &w);
}

static void backward_rows(void *context, size_t piece, int thread) {
    const rows_work *w = context;
    (void)thread;
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < w->rows && r < (piece + 1) * REIN_ROWS_PER_PIECE; r++)
        w->kernels->rows->norm_backward(w->dx + r * w->n, w->dy + r * w->n, w->x + r * w->n, w->norm->weight, w->n, w->norm->offset,
                                        w->scales[r]);
}

enum { COLUMNS = 64 }; /* columns of dweight in one piece; the rows of a column are added in order */

static void backward_columns(void *context, size_t piece, int thread) {
    const rows_work *w = context;
    const size_t first = piece * COLUMNS, count = w->n - first < COLUMNS ? w->n - first : COLUMNS;
    (void)thread;
    w->kernels->rows->norm_weight_backward(w->dweight + first, w->dy + first, w->x + first, w->scales, w->rows, w->n, count);
}

void rein_norm_backward(float *dx, float *dweight, const float *dy, const float *x, const rein_norm *norm, const float *s,
                        size_t rows, size_t n, const rein_nn_context *run) {
    rows_work w = {
        .kernels = run->kernels, .dx = dx, .dweight = dweight, .dy = dy, .x = x, .norm = norm, .scales = s, .rows = rows, .n = n};
    const int threads = rein_row_threads(run, rows, n);
    rein_parallel(threads, rein_row_pieces(rows), backward_rows, &w);
    if (dweight) rein_parallel(threads, (n + COLUMNS - 1) / COLUMNS, backward_columns, &w);
}

static void add_some(void *context, size_t piece, int thread) {
    const rows_work *w = context;
    const size_t first = piece * REIN_ROWS_PER_PIECE, left = w->rows - first;
    (void)thread;
    w->kernels->rows->add_scaled(w->y + first * w->n, w->x + first * w->n,
                                 (left < REIN_ROWS_PER_PIECE ? left : REIN_ROWS_PER_PIECE) * w->n, w->factor);
}

void rein_add_rows(float *y, const float *x, size_t rows, size_t n, float factor, const rein_nn_context *run) {
    rows_work w = {.kernels = run->kernels, .y = y, .x = x, .rows = rows, .n = n, .factor = factor};
    rein_parallel(rein_row_threads(run, rows, n), rein_row_pieces(rows), add_some, &w);
}
