/* adamw_pass.h - the passes of AdamW over memory, one version per instruction set. Private; they cannot fail. */
#ifndef REIN_TRAIN_ADAMW_PASS_H
#define REIN_TRAIN_ADAMW_PASS_H

#include <stddef.h>

#include "kernel/isa_list.h"

/* The constants of one step. Each is computed in double and rounded once, as torch rounds a Python number that meets a float tensor. */
typedef struct rein_adamw_factors {
    float gradient_scale;     /* 1, or less when the gradients are clipped */
    float value_scale;        /* 1 − learning_rate·weight_decay, or 1 */
    float first_weight;       /* 1 − beta1 */
    float beta2;              /* of the second moment */
    float second_weight;      /* 1 − beta2 */
    float root_of_correction; /* √(1 − beta2^t) */
    float epsilon;
    float step_size; /* −learning_rate / (1 − beta1^t) */
} rein_adamw_factors;

typedef struct rein_adamw_kernels {
    /* Updates value, first and second [n]. No two arrays overlap. */
    void (*update)(float *value, float *first, float *second, const float *gradient, size_t n, const rein_adamw_factors *factors);

    /* Σ gradient², in double. It is finite exactly when every gradient is: even 2^64 squares of the largest float fit. */
    double (*sum_of_squares)(const float *gradient, size_t n);
} rein_adamw_kernels;

#define REIN_TABLE(isa, NAME, machines) extern const rein_adamw_kernels rein_adamw_kernels_##isa##_f32;
REIN_ISA_LIST(REIN_TABLE)
#undef REIN_TABLE

#endif
