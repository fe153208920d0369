/* rope.h - rotary position embedding in its rotate-half form (Su et al. 2021, arXiv 2104.09864; Hugging Face's layout). Private. */
#ifndef REIN_NN_ROPE_H
#define REIN_NN_ROPE_H

#include "context.h"

/* cos and sin of every position's angles: [positions][half] each. */
typedef struct rein_angles {
    float *cosine, *sine;
    size_t half;
} rein_angles;

/* Fills the rows [from, to) from inverse frequencies [half]. The angle is position·frequency in f32, as the models were trained. */
void rein_angles_fill(const rein_angles *angles, const float *frequencies, size_t from, size_t to);

/* Rotates x [rows][heads][2·half] in place, row r by positions[r]; direction 1 is forward, −1 is backward: the rotation's transpose. */
void rein_rotate(float *x, const rein_angles *angles, const int32_t *positions, size_t rows, size_t heads, float direction,
                 const rein_nn_context *run);

#endif
