/* kernels.h - the functions that depend on the instruction set: one table per instruction set. Private.
 *
 * A table is filled in its own file of src/isa, and src/isa/isa.c chooses one. All tables give the same bits. Where an instruction set
 * gains nothing from a version of its own, its table points to the version of a smaller one. */
#ifndef REIN_KERNEL_KERNELS_H
#define REIN_KERNEL_KERNELS_H

#include "isa_list.h"
#include "rein/base.h"
#include "storage.h"

struct rein_gemm_kernels;      /* gemm_block.h */
struct rein_row_kernels;       /* rows.h */
struct rein_objective_kernels; /* objective/kernels.h */
struct rein_adamw_kernels;     /* train/adamw_pass.h */

/* y [n] = f(x [n]), element by element; y may be x. */
typedef void rein_map_f32_fn(float *y, const float *x, size_t n);
typedef void rein_map_f64_fn(double *y, const double *x, size_t n);

typedef struct rein_kernels {
    int (*available)(void);               /* whether this machine can run them */
    const struct rein_gemm_kernels *gemm; /* blocks of a matrix product */
    const struct rein_row_kernels *rows;  /* norms, softmax and other operations on rows */
    rein_decode_fn *decode;               /* stored weights to f32 */
    rein_map_f32_fn *exp_f32, *log_f32;
    rein_map_f64_fn *exp_f64, *log_f64;
    const struct rein_objective_kernels *objective_f32, *objective_f64;
    const struct rein_adamw_kernels *adamw;
} rein_kernels;

/* The table of a resolved instruction set. Thread-safe. */
const rein_kernels *rein_kernels_of(rein_isa isa);

#define REIN_EXP_LOG(isa, NAME, machines)                       \
    rein_map_f32_fn rein_exp_##isa##_f32, rein_log_##isa##_f32; \
    rein_map_f64_fn rein_exp_##isa##_f64, rein_log_##isa##_f64;
REIN_ISA_LIST(REIN_EXP_LOG)
#undef REIN_EXP_LOG

/* e^x and log x of one number. The C library's differ from machine to machine. */
static inline double rein_exp_of(double x, rein_isa isa) { return rein_kernels_of(isa)->exp_f64(&x, &x, 1), x; }
static inline double rein_log_of(double x, rein_isa isa) { return rein_kernels_of(isa)->log_f64(&x, &x, 1), x; }

#endif
