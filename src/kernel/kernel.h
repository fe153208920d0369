/* kernel.h - exp and log over arrays, one function for each type and instruction set. Private: all sets give the same bits. */
#ifndef REIN_KERNEL_H
#define REIN_KERNEL_H

#include "rein/base.h"

#define REIN_KERNELS(suffix)                                            \
    void rein_exp_##suffix##_f32(float *y, const float *x, size_t n);   \
    void rein_log_##suffix##_f32(float *y, const float *x, size_t n);   \
    void rein_exp_##suffix##_f64(double *y, const double *x, size_t n); \
    void rein_log_##suffix##_f64(double *y, const double *x, size_t n);

REIN_KERNELS(ref)
REIN_KERNELS(avx2)
#undef REIN_KERNELS

#endif
