/* gemm_block.h - what gemm.c asks of an instruction set: one block of a product. Private. */
#ifndef REIN_KERNEL_GEMM_BLOCK_H
#define REIN_KERNEL_GEMM_BLOCK_H

#include "gemm.h"

/* Tiles of C are 6×16. GEMM_ROWS×GEMM_DEPTH of a, packed, stay in the second cache, a panel of b in the first; of a b that is not in panels
 * yet GEMM_COLUMNS are packed at a time. With at most GEMM_NARROW columns packing a would cost more than it saves. An instruction set may
 * have other tiles and cuts within the same scratch: gemm_wide.h. */
enum { GEMM_TILE_ROWS = 6, GEMM_PANEL = 16, GEMM_ROWS = 192, GEMM_DEPTH = 320, GEMM_COLUMNS = 512, GEMM_NARROW = 128 };

/* Scratch of one thread: the factors of a block, as f32; rows of six are written as eight. */
enum { GEMM_SPILL = 16, GEMM_SCRATCH = (GEMM_ROWS + GEMM_COLUMNS) * GEMM_DEPTH + GEMM_SPILL };

/* Rows of a, packed before: units of `rows` of them, `size` numbers each; in a unit a stretch of `depth` columns after the other, of a
 * stretch its tiles of `tall` rows. */
typedef struct rein_left {
    float *data; /* NULL: they are not */
    size_t rows, size, depth, tall;
} rein_left;

/* c [m][n] = or += a [m][k] · b. b is either a view or panels of 16 columns, each `panel` rows deep;
 * or such panels of its transpose. */
typedef struct rein_gemm_task {
    float *c;
    size_t stride;
    rein_matrix a, b;
    size_t m, n, k;
    size_t panel; /* 0: b is a view */
    int turned;   /* the panels are those of the transpose */
    int add;
    rein_left left; /* with it a is not read, and b is panels of f32 or bf16 */
    float *scratch;
} rein_gemm_task;

/* Units of a task whose rows are packed. */
static inline size_t rein_left_units(const rein_gemm_task *t) { return (t->m + t->left.rows - 1) / t->left.rows; }

typedef void rein_gemm_fn(const rein_gemm_task *task);
rein_gemm_fn rein_gemm_block_ref_f32, rein_gemm_block_avx2_f32, rein_gemm_block_avx512_f32;

/* Packs a unit of the task's rows. */
typedef void rein_left_fn(const rein_gemm_task *task, size_t unit);
rein_left_fn rein_pack_unit_ref_f32, rein_pack_unit_avx2_f32, rein_pack_unit_avx512_f32;

/* to [depth][16]: the columns [first, first + 16) of the task's b, its rows from `from`, a multiple of 16, on, 0 past the last column. As
 * f32; what is turned may stay bf16. Returns which; with depth 0 it does nothing else. */
typedef rein_storage rein_pack_fn(void *to, const rein_gemm_task *task, size_t first, size_t from, size_t depth);
rein_pack_fn rein_pack_columns_ref_f32, rein_pack_columns_avx2_f32, rein_pack_columns_avx512_f32;

#endif
