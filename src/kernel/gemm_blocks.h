/* gemm_blocks.h - few rows times panels of quantised blocks, which are decoded in registers. Private; for sources compiled per instruction
 * set. */
#ifndef REIN_KERNEL_GEMM_BLOCKS_H
#define REIN_KERNEL_GEMM_BLOCKS_H

#include "decode_panel.h"

/* The rows, the panels and the sums in panels of a tile at most, and the most rows of a product that is multiplied in this way. With AVX-512
 * the multiplications of four or eight rows hide the decoding, so sixteen rows are multiplied eight at a time, and the panels are decoded
 * twice. Eight rows have two panels, so that the sums stay in registers. */
#ifdef __AVX512F__
enum { BLOCK_ROWS = 8, BLOCK_PANELS = 4, BLOCK_SUMS = 16, FEW_BLOCK_ROWS = 16 };
#else
enum { BLOCK_ROWS = 2, BLOCK_PANELS = 2, BLOCK_SUMS = 4, FEW_BLOCK_ROWS = 2 };
#endif
enum { WIDES = GEMM_PANEL / WIDE };

static size_t panels_of_tile(size_t rows) { return rows * BLOCK_PANELS <= BLOCK_SUMS ? BLOCK_PANELS : BLOCK_SUMS / rows; }

/* sums [rows][panels·16] += a·b; panels are `bytes` apart. */
INLINE void block_tile(float *sums, const float *a, size_t row, const uint8_t *first, size_t bytes, const rein_storage storage,
                       size_t depth, const size_t rows, const size_t panels) {
    W sum[BLOCK_SUMS * WIDES];
#pragma GCC unroll 16
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
#pragma GCC unroll 8
                for (size_t i = 0; i < rows; i++)
                    sum[i * panels * WIDES + p] = wide_fmadd(wide_splat(a[i * row + at + r]), b, sum[i * panels * WIDES + p]);
            }
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < rows * panels * WIDES; i++) wide_store(sums + i * WIDE, sum[i]);
}

/* Makes rows and panels constants. */
INLINE void block_tile_of(float *sums, const float *a, size_t row, const uint8_t *first, size_t bytes, const rein_storage storage,
                          size_t depth, size_t rows, size_t panels) {
    switch (rows * BLOCK_PANELS + (panels > 1)) {
#ifdef __AVX512F__
    case 8 * BLOCK_PANELS: block_tile(sums, a, row, first, bytes, storage, depth, 8, 1); break;
    case 8 * BLOCK_PANELS + 1: block_tile(sums, a, row, first, bytes, storage, depth, 8, BLOCK_SUMS / 8); break;
    case 4 * BLOCK_PANELS: block_tile(sums, a, row, first, bytes, storage, depth, 4, 1); break;
    case 4 * BLOCK_PANELS + 1: block_tile(sums, a, row, first, bytes, storage, depth, 4, BLOCK_PANELS); break;
#endif
    case 2 * BLOCK_PANELS: block_tile(sums, a, row, first, bytes, storage, depth, 2, 1); break;
    case 2 * BLOCK_PANELS + 1: block_tile(sums, a, row, first, bytes, storage, depth, 2, BLOCK_PANELS); break;
    case BLOCK_PANELS: block_tile(sums, a, row, first, bytes, storage, depth, 1, 1); break;
    default: block_tile(sums, a, row, first, bytes, storage, depth, 1, BLOCK_PANELS); break;
    }
}

static void block_tile_in(float *sums, const rein_gemm_task *t, size_t i, size_t rows, size_t j, size_t panels) {
    const float *a = (const float *)t->a.data + i * t->a.row;
    const uint8_t *b = (const uint8_t *)t->b.data + rein_storage_bytes(t->b.storage, j * t->panel);
    const size_t bytes = rein_storage_bytes(t->b.storage, GEMM_PANEL * t->panel);
#define TILE(type) block_tile_of(sums, a, t->a.row, b, bytes, type, t->k, rows, panels)
    FOR_BLOCK_STORAGE(t->b.storage, TILE)
#undef TILE
}

static int has_few_rows_of_blocks(const rein_gemm_task *t) {
    return t->panel && !t->transposed && t->m <= FEW_BLOCK_ROWS && rein_storage_elements(t->b.storage) > 1 &&
           t->a.storage == REIN_STORED_F32 && t->a.column == 1;
}

/* Rows [i, i + rows) times all panels. */
static void multiply_block_rows(const rein_gemm_task *t, size_t i, size_t rows) {
    const size_t most = panels_of_tile(rows);
    for (size_t j = 0, panels; j < t->n; j += panels * GEMM_PANEL) {
        float sums[BLOCK_SUMS * GEMM_PANEL] = {0}, *c = t->c + i * t->stride + j;
        panels = t->n - j > (most - 1) * GEMM_PANEL ? most : 1;
        const size_t wide = panels * GEMM_PANEL, columns = t->n - j < wide ? t->n - j : wide;
        for (size_t r = 0; t->add && r < rows; r++) memcpy(sums + r * wide, c + r * t->stride, columns * sizeof *sums);
        block_tile_in(sums, t, i, rows, j, panels);
        for (size_t r = 0; r < rows; r++) memcpy(c + r * t->stride, sums + r * wide, columns * sizeof *sums);
    }
}

/* Tiles of 8, 4, 2 or 1 rows. */
static void multiply_few_rows_of_blocks(const rein_gemm_task *t) {
    for (size_t i = 0, rows = BLOCK_ROWS; i < t->m; i += rows) {
        while (rows > t->m - i) rows /= 2;
        multiply_block_rows(t, i, rows);
    }
}

#endif
