/* site.h - where the layers run. Private. */
#ifndef REIN_NN_SITE_H
#define REIN_NN_SITE_H

#include "base/pool.h"
#include "kernel/rows.h"

typedef struct rein_site {
    const rein_kernels *kernels;
    rein_exec exec;      /* resolved */
    float *gemm_scratch; /* rein_gemm_scratch(exec) bytes */
} rein_site;

/* The scratch of one thread, inside of a piece of work. */
static inline float *rein_site_scratch(const rein_site *run, int thread) {
    return run->gemm_scratch + (size_t)thread * GEMM_SCRATCH;
}

/* Work over rows: pieces of this many, on all threads if there is enough of it (`cost` is a row's, in numbers touched). */
enum { REIN_ROWS = 16 };
static inline size_t rein_row_pieces(size_t rows) { return (rows + REIN_ROWS - 1) / REIN_ROWS; }
static inline int rein_row_threads(const rein_site *run, size_t rows, size_t cost) {
    return rows * cost < 16384 ? 1 : run->exec.threads;
}

#endif
