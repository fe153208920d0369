/* rope.c - rotations of query and key heads. */
#include "rope.h"

#include <math.h>

void rein_angles_fill(const rein_angles *angles, const float *frequencies, size_t from, size_t to) {
    for (size_t p = from; p < to; p++)
        for (size_t i = 0; i < angles->half; i++) {
            const float angle = (float)p * frequencies[i];
            angles->cosine[p * angles->half + i] = (float)cos((double)angle) * angles->factor;
            angles->sine[p * angles->half + i] = (float)sin((double)angle) * angles->factor;
        }
}

typedef struct rope_work {
    float *x;
    const rein_angles *angles;
    const int32_t *positions;
    size_t rows, heads;
    float direction;
    const rein_kernels *kernels;
} rope_work;

static void rotate_rows(void *context, size_t piece, int thread) {
    const rope_work *w = context;
    const size_t half = w->angles->half;
    (void)thread;
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < w->rows && r < (piece + 1) * REIN_ROWS_PER_PIECE; r++) {
        const size_t at = (size_t)w->positions[r] * half;
        for (size_t h = 0; h < w->heads; h++)
            w->kernels->rows->rotate(w->x + (r * w->heads + h) * w->angles->dim, w->angles->cosine + at, w->angles->sine + at, half,
                                     w->direction);
    }
}

void rein_rotate(float *x, const rein_angles *angles, const int32_t *positions, size_t rows, size_t heads, float direction,
                 const rein_nn_context *run) {
    rope_work w = {x, angles, positions, rows, heads, direction, run->kernels};
    rein_parallel(rein_row_threads(run, rows, 2 * heads * angles->half), rein_row_pieces(rows), rotate_rows, &w);
}
