/* context.h - what the layers need to run: kernels, threads and scratch memory. Private. */
#ifndef REIN_NN_CONTEXT_H
#define REIN_NN_CONTEXT_H

#include "base/pool.h"
#include "kernel/gemm_block.h"
#include "kernel/rows.h"

typedef struct rein_nn_context {
    const rein_kernels *kernels;
    rein_exec exec;      /* resolved */
    float *gemm_scratch; /* rein_gemm_scratch(exec) bytes */
} rein_nn_context;

/* The scratch memory of one thread, for a product inside a piece of parallel work. */
static inline float *rein_nn_gemm_scratch(const rein_nn_context *run, int thread) {
    return run->gemm_scratch + (size_t)thread * GEMM_SCRATCH;
}

/* Work over rows is cut into pieces of REIN_ROWS_PER_PIECE rows. With little work one thread does it; `cost` is the number of elements that
 * a row touches. */
enum { REIN_ROWS_PER_PIECE = 16 };
static inline size_t rein_row_pieces(size_t rows) { return (rows + REIN_ROWS_PER_PIECE - 1) / REIN_ROWS_PER_PIECE; }
static inline int rein_row_threads(const rein_nn_context *run, size_t rows, size_t cost) {
    return rows * cost < 16384 ? 1 : run->exec.threads;
}

#endif
