/* rope.h - rotary position embedding in its rotate-half form (Su et al. 2021, arXiv 2104.09864; Hugging Face's layout). Private. */
#ifndef REIN_NN_ROPE_H
#define REIN_NN_ROPE_H

#include "context.h"

/* The cosines and sines of every position, times a factor: [positions][half] each. The first 2·half elements of a head of width dim are
 * rotated. */
typedef struct rein_angles {
    float *cosine, *sine;
    size_t half, dim;
    float factor;
} rein_angles;

/* Fills the positions [from, to) from inverse frequencies [half]. An angle is position·frequency in f32, as in the models' training. */
void rein_angles_fill(const rein_angles *angles, const float *frequencies, size_t from, size_t to);

/* Rotates x [rows][heads][dim] in place, row r by the angles of positions[r]. direction is 1 for the forward pass and −1 for the backward
 * pass. */
void rein_rotate(float *x, const rein_angles *angles, const int32_t *positions, size_t rows, size_t heads, float direction,
                 const rein_nn_context *run);

#endif
