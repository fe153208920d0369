/* kernel.h - the kernels of one instruction set, as a table of functions. Private: results never depend on which one runs. */
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
