/* gemm_blocks.h - one or two rows times panels of quantised blocks, which are decoded in registers. Private; for sources compiled per
 * instruction set. */
#ifndef REIN_KERNEL_GEMM_BLOCKS_H
#define REIN_KERNEL_GEMM_BLOCKS_H

#include "decode_panel.h"

/* Rows and panels of a tile. */
enum { BLOCK_ROWS = 2, BLOCK_PANELS = WIDE == 16 ? 4 : 2, WIDES = GEMM_PANEL / WIDE };

/* sums [rows][panels·16] += a·b; panels are `bytes` apart. */
INLINE void block_tile(float *sums, const float *a, size_t row, const uint8_t *first, size_t bytes, const rein_storage storage,
                       size_t depth, const size_t rows, const size_t panels) {
    W sum[BLOCK_ROWS * BLOCK_PANELS * WIDES];
#pragma GCC unroll 8
    for (size_t i = 0; i < rows * panels * WIDES; i++) sum[i] = wide_load(sums + i * WIDE);
    for (size_t at = 0; at < depth; at += 16) {
        block_scale s[BLOCK_PANELS * WIDES];
        size_t g = at / 16;
        const uint8_t *block = block_of_rows(first, storage, &g);
#pragma GCC unroll 4
        for (size_t p = 0; p < panels * WIDES; p++) s[p] = scale_of_rows(block + p / WIDES * bytes, storage, g, p % WIDES * WIDE);
#pragma GCC unroll 2
        for (size_t r = 0; r < 16; r++)
#pragma GCC unroll 4
            for (size_t p = 0; p < panels * WIDES; p++) {
                const W b = row_of_block(block + p / WIDES * bytes, storage, g, r, p % WIDES * WIDE, s[p]);
#pragma GCC unroll 2
                for (size_t i = 0; i < rows; i++)
                    sum[i * panels * WIDES + p] = wide_fmadd(wide_splat(a[i * row + at + r]), b, sum[i * panels * WIDES + p]);
            }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < rows * panels * WIDES; i++) wide_store(sums + i * WIDE, sum[i]);
}

INLINE void block_tile_of(float *sums, const float *a, size_t row, const uint8_t *first, size_t bytes, const rein_storage storage,
                          size_t depth, size_t rows, size_t panels) {
    if (rows == 1 && panels == 1) block_tile(sums, a, row, first, bytes, storage, depth, 1, 1);
    else if (rows == 1) block_tile(sums, a, row, first, bytes, storage, depth, 1, BLOCK_PANELS);
    else if (panels == 1) block_tile(sums, a, row, first, bytes, storage, depth, 2, 1);
    else block_tile(sums, a, row, first, bytes, storage, depth, 2, BLOCK_PANELS);
}

static void block_tile_in(float *sums, const rein_gemm_task *t, size_t first, size_t panels) {
    const uint8_t *b = (const uint8_t *)t->b.data + rein_storage_bytes(t->b.storage, first * t->panel);
    const size_t bytes = rein_storage_bytes(t->b.storage, GEMM_PANEL * t->panel);
#define TILE(type) block_tile_of(sums, t->a.data, t->a.row, b, bytes, type, t->k, t->m, panels)
    FOR_BLOCK_STORAGE(t->b.storage, TILE)
#undef TILE
}

static int has_few_rows_of_blocks(const rein_gemm_task *t) {
    return t->panel && !t->transposed && t->m <= BLOCK_ROWS && rein_storage_elements(t->b.storage) > 1 &&
           t->a.storage == REIN_STORED_F32 && t->a.column == 1;
}

static void multiply_few_rows_of_blocks(const rein_gemm_task *t) {
    for (size_t j = 0, panels; j < t->n; j += panels * GEMM_PANEL) {
        float sums[BLOCK_ROWS * BLOCK_PANELS * GEMM_PANEL] = {0};
        panels = t->n - j > (BLOCK_PANELS - 1) * GEMM_PANEL ? BLOCK_PANELS : 1;
        const size_t wide = panels * GEMM_PANEL, columns = t->n - j < wide ? t->n - j : wide;
        for (size_t i = 0; t->add && i < t->m; i++) memcpy(sums + i * wide, t->c + i * t->stride + j, columns * sizeof *sums);
        block_tile_in(sums, t, j, panels);
        for (size_t i = 0; i < t->m; i++) memcpy(t->c + i * t->stride + j, sums + i * wide, columns * sizeof *sums);
    }
}

#endif
