/* gemm_pack.h - both factors of a product as f32, in the order in which tiles read them. Private; for sources compiled per instruction
 * set. */
#ifndef REIN_KERNEL_GEMM_PACK_H
#define REIN_KERNEL_GEMM_PACK_H

#include "decode_panel.h"
#include "gemm_tile.h"

/* Element (i, j) of a view in any storage type. */
static float element(const rein_matrix *x, size_t i, size_t j) {
    const size_t index = i * x->row + j * x->column, elements = rein_storage_elements(x->storage);
    float block[REIN_STORAGE_BLOCK];
    if (x->storage == REIN_STORED_F32) return ((const float *)x->data)[index];
    KERNEL(rein_decode)
    (block, (const char *)x->data + rein_storage_bytes(x->storage, index - index % elements), x->storage, elements);
    return block[index % elements];
}

/* Eight by eight: to[l][r] = from[r][l]. */
INLINE void transpose_8x8(float *to, size_t to_row, const float *from, size_t from_row) {
    V rows[LANES];
#pragma GCC unroll 8
    for (size_t r = 0; r < LANES; r++) rows[r] = load(from + r * from_row, LANES);
    transpose(rows);
#pragma GCC unroll 8
    for (size_t l = 0; l < LANES; l++) store(to + l * to_row, rows[l], LANES);
}

/* ---- the left factor: to [⌈m/tall⌉][depth][TILE_ROWS] and GEMM_SPILL more = the rows [first, first + m) of the task's a, its columns from
 * `from` on. Each tile takes `tall` rows. */

/* Eight columns of a tile, whose rows are contiguous along k. Each column is written as eight numbers; the next one overwrites the surplus. */
INLINE void transpose_tile(float *to, const float *from, size_t row, size_t rows) {
    V lines[LANES] = {{0}};
#pragma GCC unroll 8
    for (size_t r = 0; r < TILE_ROWS; r++) lines[r] = r < rows ? load(from + r * row, LANES) : splat(0);
    transpose(lines);
#pragma GCC unroll 8
    for (size_t l = 0; l < LANES; l++) store(to + l * TILE_ROWS, lines[l], LANES);
}

static void pack_any_rows(float *to, const rein_gemm_task *t, size_t first, size_t m, size_t tall, size_t from, size_t depth) {
    const rein_matrix *a = &t->a;
    for (size_t i = first; i < first + m; i += tall) {
        const size_t rows = first + m - i < tall ? first + m - i : tall;
        const float *data = a->data;
        size_t k = 0;
        if (a->storage == REIN_STORED_F32 && a->column == 1)
            for (; k + LANES <= depth; k += LANES, to += LANES * TILE_ROWS)
                transpose_tile(to, data + i * a->row + from + k, a->row, rows);
        for (; k < depth; k++, to += TILE_ROWS)
            for (size_t r = 0; r < rows; r++) to[r] = element(a, i + r, from + k);
    }
}

/* The same for an f32 matrix that is transposed, so that its columns are contiguous. Where a tile has eight rows, 16 columns go through all
 * tiles before the next 16, so that they stay in the cache. With six rows the surplus of a column needs the next one: tile by tile. */
static void pack_transposed_rows(float *to, const rein_gemm_task *t, size_t first, size_t m, size_t tall, size_t from,
                                 size_t depth) {
    const float *data = (const float *)t->a.data + from * t->a.column;
    const size_t some = TILE_ROWS == LANES ? 16 : depth;
    for (size_t k = 0; k < depth; k += some)
        for (size_t i = first, n = 0; i < first + m; i += tall, n++)
            for (size_t l = k; l < depth && l < k + some; l++)
                store(to + (n * depth + l) * TILE_ROWS, load(data + i + l * t->a.column, t->m - i), LANES);
}

static int is_contiguous_f32(const rein_matrix *x, size_t stride) { return x->storage == REIN_STORED_F32 && stride == 1; }

static void pack_rows(float *to, const rein_gemm_task *t, size_t first, size_t m, size_t tall, size_t from, size_t depth) {
    const int transposed = is_contiguous_f32(&t->a, t->a.row) && t->a.column != 1;
    (transposed ? pack_transposed_rows : pack_any_rows)(to, t, first, m, tall, from, depth);
}

/* ---- the right factor: a panel to [depth][16] of the columns [first, first + 16) and the rows [from, from + depth) */

enum { PREFETCH_ROWS = 16 }; /* rows of a view are too far apart for the processor to predict */

static void pack_view(float *to, const rein_matrix *b, size_t first, size_t columns, size_t from, size_t depth) {
    const float *data = b->data;
    size_t k = 0;
    if (columns == GEMM_PANEL && is_contiguous_f32(b, b->column)) {
        for (; k < depth; k++, to += GEMM_PANEL) {
            const float *row = data + (from + k) * b->row + first;
            __builtin_prefetch(row + PREFETCH_ROWS * b->row);
            row_store(to, row_load(row, GEMM_PANEL), GEMM_PANEL);
        }
    } else if (columns == GEMM_PANEL && is_contiguous_f32(b, b->row)) {
        for (; k + LANES <= depth; k += LANES, to += LANES * GEMM_PANEL)
            for (size_t j = 0; j < GEMM_PANEL; j += LANES)
                transpose_8x8(to + j, GEMM_PANEL, data + (first + j) * b->column + from + k, b->column);
    }
    for (; k < depth; k++, to += GEMM_PANEL)
        for (size_t j = 0; j < GEMM_PANEL; j++) to[j] = j < columns ? element(b, from + k, first + j) : 0;
}

/* Tiles read f32 and bf16 panels as they are. Those of other storage types are decoded. */
static int is_read_in_place(rein_storage storage) { return storage == REIN_STORED_F32 || storage == REIN_STORED_BF16; }

static void decode_panel(float *to, const void *panel, rein_storage storage, size_t from, size_t depth) {
    if (rein_storage_elements(storage) > 1) decode_panel_rows(to, panel, storage, from, depth);
    else KERNEL(rein_decode)
    (to, (const char *)panel + rein_storage_bytes(storage, from * GEMM_PANEL), storage, depth * GEMM_PANEL);
}

/* to [16][16] = the transpose of 16 rows of a panel of f32 or bf16. */
INLINE void transpose_square(float *to, const void *panel, size_t first, const rein_storage storage) {
    for (size_t j = 0; j < GEMM_PANEL; j += LANES) {
        V low[LANES], high[LANES];
#pragma GCC unroll 8
        for (size_t r = 0; r < LANES; r++) {
            const row16 row = row_of_panel(panel, (first + j + r) * GEMM_PANEL, storage);
            low[r] = row_low(row), high[r] = row_high(row);
        }
        transpose(low);
        transpose(high);
#pragma GCC unroll 8
        for (size_t l = 0; l < LANES; l++) {
            store(to + l * GEMM_PANEL + j, low[l], LANES);
            store(to + (LANES + l) * GEMM_PANEL + j, high[l], LANES);
        }
    }
}

/* The same for any storage type and for fewer rows; the columns of `to` past them are 0. */
static void transpose_rows(float *to, const void *panel, rein_storage storage, size_t first, size_t rows) {
    float numbers[GEMM_PANEL * GEMM_PANEL];
    if (rein_storage_elements(storage) > 1) { /* all sixteen rows are there, because the panel has whole blocks */
        decode_panel_rows(numbers, panel, storage, first, GEMM_PANEL);
        for (size_t r = 0; r < GEMM_PANEL; r += LANES)
            for (size_t l = 0; l < GEMM_PANEL; l += LANES)
                transpose_8x8(to + l * GEMM_PANEL + r, GEMM_PANEL, numbers + r * GEMM_PANEL + l, GEMM_PANEL);
        return;
    }
    const char *from = (const char *)panel + rein_storage_bytes(storage, first * GEMM_PANEL);
    KERNEL(rein_decode)(numbers, from, storage, rows * GEMM_PANEL);
    for (size_t l = 0; l < GEMM_PANEL; l++)
        for (size_t r = 0; r < GEMM_PANEL; r++) {
            const size_t place = storage == REIN_STORED_BF16 ? rein_bf16_place(l) : l;
            to[l * GEMM_PANEL + r] = r < rows ? numbers[r * GEMM_PANEL + place] : 0;
        }
}

static void pack_transposed_panel(float *to, const rein_gemm_task *t, size_t first, size_t columns, size_t from, size_t depth) {
    const rein_storage storage = t->b.storage;
    const size_t row = t->first_column + first;
    for (size_t k = 0; k < depth; k += GEMM_PANEL, to += GEMM_PANEL * GEMM_PANEL) {
        const void *panel = (const char *)t->b.data + rein_storage_bytes(storage, (from + k) * t->panel);
        const int whole = columns == GEMM_PANEL && k + GEMM_PANEL <= depth;
        float square[GEMM_PANEL * GEMM_PANEL];
        if (whole && storage == REIN_STORED_F32) transpose_square(to, panel, row, REIN_STORED_F32);
        else if (whole && storage == REIN_STORED_BF16) transpose_square(to, panel, row, REIN_STORED_BF16);
        else {
            transpose_rows(square, panel, storage, row, columns);
            memcpy(to, square, (depth - k < GEMM_PANEL ? depth - k : GEMM_PANEL) * GEMM_PANEL * sizeof *to);
        }
    }
}

static void pack_panel(float *to, const rein_gemm_task *t, size_t first, size_t from, size_t depth) {
    const size_t columns = t->n - first < GEMM_PANEL ? t->n - first : GEMM_PANEL;
    if (!t->panel) pack_view(to, &t->b, first, columns, from, depth);
    else if (t->transposed) pack_transposed_panel(to, t, first, columns, from, depth);
    else decode_panel(to, (const char *)t->b.data + rein_storage_bytes(t->b.storage, first * t->panel), t->b.storage, from, depth);
}

#endif
