/* score.c - the score head of a reward model or a critic. */
#include "score.h"

#include <string.h>

typedef struct score_work {
    const rein_row_kernels *kernels;
    float *scores, *dh;
    const float *dscores, *h, *weight;
    size_t n, hidden;
} score_work;

static void forward_rows(void *context, size_t piece, int thread) {
    const score_work *w = context;
    (void)thread;
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < w->n && r < (piece + 1) * REIN_ROWS_PER_PIECE; r++)
        w->scores[r] = (float)w->kernels->dot(w->h + r * w->hidden, w->weight, w->hidden);
}

void rein_score_forward(float *scores, const float *h, const float *weight, size_t n, size_t hidden, const rein_nn_context *run) {
    score_work w = {.kernels = run->kernels->rows, .scores = scores, .h = h, .weight = weight, .n = n, .hidden = hidden};
    rein_parallel(rein_row_threads(run, n, hidden), rein_row_pieces(n), forward_rows, &w);
}

static void backward_rows(void *context, size_t piece, int thread) {
    const score_work *w = context;
    (void)thread;
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < w->n && r < (piece + 1) * REIN_ROWS_PER_PIECE; r++) {
        memcpy(w->dh + r * w->hidden, w->weight, w->hidden * sizeof *w->dh);
        w->kernels->scale(w->dh + r * w->hidden, w->hidden, w->dscores[r]);
    }
}

void rein_score_backward(float *dh, float *dweight, const float *dscores, const float *h, const float *weight, size_t n,
                         size_t hidden, const rein_nn_context *run) {
    score_work w = {
        .kernels = run->kernels->rows, .dh = dh, .dscores = dscores, .h = h, .weight = weight, .n = n, .hidden = hidden};
    rein_parallel(rein_row_threads(run, n, hidden), rein_row_pieces(n), backward_rows, &w);
    for (size_t r = 0; r < n && dweight; r++) run->kernels->rows->add_scaled(dweight, h + r * hidden, hidden, dscores[r]);
}
