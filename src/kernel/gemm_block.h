/* gemm_block.h - one block of a matrix product: the part of gemm.c that depends on the instruction set. Private. */
#ifndef REIN_KERNEL_GEMM_BLOCK_H
#define REIN_KERNEL_GEMM_BLOCK_H

#include "gemm.h"

/* The columns of a panel, the rows of a tile of C, and the largest part of a product that is packed at a time: GEMM_ROWS×GEMM_DEPTH of a,
 * which stays in the second-level cache, and GEMM_DEPTH×GEMM_COLUMNS of b. An instruction set may choose other tiles and parts that fit
 * the same scratch memory. With at most GEMM_NARROW columns packing a would cost more than it saves. */
enum { GEMM_PANEL = 16, GEMM_TILE_ROWS = 6, GEMM_ROWS = 192, GEMM_DEPTH = 320, GEMM_COLUMNS = 512, GEMM_NARROW = 128 };

/* The scratch memory of one thread in floats: the packed parts of both factors, and GEMM_SPILL more, because six rows are written as
 * eight. */
enum { GEMM_SPILL = 16, GEMM_SCRATCH = (GEMM_ROWS + GEMM_COLUMNS) * GEMM_DEPTH + GEMM_SPILL };

/* c [m][n] = or += a [m][k] · b [k][n]. b is a view, or panels of 16 columns (see rein_packed), or the transpose of such panels. */
typedef struct rein_gemm_task {
    float *c;
    size_t stride;
    rein_matrix a, b;
    size_t m, n, k;
    size_t panel;        /* the rows of a panel; 0: b is a view */
    int transposed;      /* b is the transpose of the panels */
    size_t first_column; /* with `transposed`: the first of the n columns, a multiple of 16 */
    int add;
    float *scratch; /* [GEMM_SCRATCH] */
} rein_gemm_task;

/* A row of a bf16 panel is stored with the columns j and j + 8 side by side: one load and one operation give each half as f32. This is the
 * place of column j. */
static inline size_t rein_bf16_place(size_t j) { return 2 * (j % 8) + j / 8; }

typedef struct rein_gemm_kernels {
    size_t tile_rows; /* blocks should have a multiple of this many rows */

    /* Computes the whole task on the calling thread. */
    void (*multiply)(const rein_gemm_task *task);

    /* to [depth][16] = the columns [first, first + 16) of the task's b in the rows [from, from + depth), as f32, with 0 past the last
     * column. `from` is a multiple of 16. */
    void (*pack_panel)(float *to, const rein_gemm_task *task, size_t first, size_t from, size_t depth);
} rein_gemm_kernels;

#define REIN_TABLE(isa, NAME, machines) extern const rein_gemm_kernels rein_gemm_kernels_##isa##_f32;
REIN_ISA_LIST(REIN_TABLE)
#undef REIN_TABLE

#endif
