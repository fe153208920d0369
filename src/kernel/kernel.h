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

/* Of one number: the C library's would differ from machine to machine. */
static inline double rein_exp_of(double x, rein_isa isa) {
#ifdef REIN_HAVE_AVX2
    if (isa >= REIN_ISA_AVX2) return rein_exp_avx2_f64(&x, &x, 1), x;
#endif
    (void)isa;
    return rein_exp_ref_f64(&x, &x, 1), x;
}
static inline double rein_log_of(double x, rein_isa isa) {
#ifdef REIN_HAVE_AVX2
    if (isa >= REIN_ISA_AVX2) return rein_log_avx2_f64(&x, &x, 1), x;
#endif
    (void)isa;
    return rein_log_ref_f64(&x, &x, 1), x;
}

#endif
