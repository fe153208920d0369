/* adamw_pass.h - what adamw.c asks of an instruction set: to add squares, and to update. Private; cannot fail. */
#ifndef REIN_TRAIN_ADAMW_PASS_H
#define REIN_TRAIN_ADAMW_PASS_H

#include <stddef.h>

/* The numbers of one step, each computed in double and rounded once, as torch rounds a Python number that meets a float tensor. */
typedef struct rein_adamw_factors {
    float scale;         /* of gradients: 1, or less when they are clipped */
    float keep;          /* 1 − learning_rate·weight_decay, or 1 */
    float first_weight;  /* 1 − beta1 */
    float beta2;         /* of the second moment */
    float second_weight; /* 1 − beta2 */
    float root;          /* √(1 − beta2^t) */
    float epsilon;
    float pace; /* −learning_rate / (1 − beta1^t) */
} rein_adamw_factors;

/* All arrays [n], none overlapping another. */
typedef void rein_adamw_update_fn(float *value, float *first, float *second, const float *gradient, size_t n,
                                  const rein_adamw_factors *factors);
rein_adamw_update_fn rein_adamw_update_ref_f32, rein_adamw_update_avx2_f32;

/* Σ gradient², in double. Not finite exactly when a gradient is not: even 2^64 squares of the largest float fit. */
typedef double rein_adamw_squares_fn(const float *gradient, size_t n);
rein_adamw_squares_fn rein_adamw_squares_ref_f32, rein_adamw_squares_avx2_f32;

#endif
