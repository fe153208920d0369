/* gemm_tile.h - a tile of C, whose sums stay in registers: 6×16 numbers, with AVX-512 8×48. Private; for sources compiled per instruction
 * set. */
#ifndef REIN_KERNEL_GEMM_TILE_H
#define REIN_KERNEL_GEMM_TILE_H

#include "gemm_block.h"
#include "lanes.h"

/* ---- a row of a panel: 16 numbers, in one register of AVX-512 or in two vectors. The panel is f32 or bf16; the row is at panel[at]. */

#ifdef __AVX512F__

/* Rows and panels of a tile. Up to FEW_ROWS rows are read in place, and their tiles have up to FEW_PANELS panels, because one or two rows of
 * three panels would not hide the latency of fma. PARTIAL_ROWS: row_load and row_store can handle fewer than 16 numbers. */
enum { TILE_ROWS = 8, TILE_PANELS = 3, FEW_ROWS = 2, FEW_PANELS = 4, PARTIAL_ROWS = 1 };
/* The parts that are packed at a time, and the depth from which on prefetching the next tile of C pays. */
enum { PART_ROWS = 160, PART_DEPTH = 384, PART_COLUMNS = 384, PREFETCH_DEPTH = 32 };

typedef struct row16 {
    __m512 all;
} row16;

INLINE row16 row_zero(void) { return (row16){_mm512_setzero_ps()}; }
INLINE __mmask16 row_mask(size_t n) { return (__mmask16)((1u << n) - 1); }
INLINE row16 row_load(const float *p, size_t n) { return (row16){_mm512_maskz_loadu_ps(row_mask(n), p)}; }
INLINE void row_store(float *p, row16 x, size_t n) { _mm512_mask_storeu_ps(p, row_mask(n), x.all); }
INLINE row16 row_fmadd(float x, row16 row, row16 sum) { return (row16){_mm512_fmadd_ps(_mm512_set1_ps(x), row.all, sum.all)}; }
INLINE V row_low(row16 x) { return (V)_mm512_castps512_ps256(x.all); }
INLINE V row_high(row16 x) { return (V)_mm512_extractf32x8_ps(x.all, 1); }

/* One permutation puts each bf16 into the upper half of its column. */
INLINE row16 row_of_panel(const void *panel, size_t at, const rein_storage storage) {
    if (storage == REIN_STORED_F32) return (row16){_mm512_loadu_ps((const float *)panel + at)};
    __m256i halves;
    memcpy(&halves, (const uint16_t *)panel + at, sizeof halves);
    const __m512i from = _mm512_set_epi32(15 << 16, 13 << 16, 11 << 16, 9 << 16, 7 << 16, 5 << 16, 3 << 16, 1 << 16, 14 << 16,
                                          12 << 16, 10 << 16, 8 << 16, 6 << 16, 4 << 16, 2 << 16, 0);
    return (row16){_mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, from, _mm512_castsi256_si512(halves)))};
}

#else

enum { TILE_ROWS = GEMM_TILE_ROWS, TILE_PANELS = 1, FEW_ROWS = GEMM_TILE_ROWS, FEW_PANELS = 1, PARTIAL_ROWS = 0 };
enum { PART_ROWS = GEMM_ROWS, PART_DEPTH = GEMM_DEPTH, PART_COLUMNS = GEMM_COLUMNS, PREFETCH_DEPTH = 1 << 30 };

typedef struct row16 {
    V low, high;
} row16;

INLINE row16 row_zero(void) { return (row16){splat(0), splat(0)}; }
INLINE row16 row_load(const float *p, size_t n) { return (void)n, (row16){load(p, LANES), load(p + LANES, LANES)}; }
INLINE void row_store(float *p, row16 x, size_t n) { (void)n, store(p, x.low, LANES), store(p + LANES, x.high, LANES); }
INLINE row16 row_fmadd(float x, row16 row, row16 sum) {
    const V each = splat(x);
    return (row16){fmadd(each, row.low, sum.low), fmadd(each, row.high, sum.high)};
}
INLINE V row_low(row16 x) { return x.low; }
INLINE V row_high(row16 x) { return x.high; }

/* A bf16 is the upper half of an f32. The columns j and j + 8 lie side by side, so a shift gives one half of the row and a mask the other. */
INLINE row16 row_of_panel(const void *panel, size_t at, const rein_storage storage) {
    if (storage == REIN_STORED_F32) return row_load((const float *)panel + at, GEMM_PANEL);
    U both;
    memcpy(&both, (const uint16_t *)panel + at, sizeof both);
    return (row16){(V)(both << 16), (V)(both & 0xffff0000u)};
}

#endif

/* ---- tiles */

/* Element (r, k) is at data[r·row + k·step]. */
typedef struct left_factor {
    const float *data;
    size_t row, step;
} left_factor;

/* Panels that are `bytes` apart. Their rows of 16 columns are `step` elements apart: 16, or more where they are columns of a view. */
typedef struct right_factor {
    const void *data;
    size_t step, bytes;
} right_factor;

/* c = or, with from_c, += a·b for `rows` rows of `panels` panels, of which the last has `last` columns. */
INLINE void tile(float *c, size_t stride, left_factor a, right_factor b, const rein_storage storage, size_t depth, size_t last,
                 int from_c, const size_t rows, const size_t panels) {
    const char *const first = b.data, *const second = first + b.bytes, *const third = second + b.bytes,
                      *const fourth = third + b.bytes;
    row16 sum[TILE_ROWS * TILE_PANELS] = {row_zero()};
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * panels; i++) {
        const size_t p = i % panels;
        sum[i] = from_c ? row_load(c + i / panels * stride + p * GEMM_PANEL, p + 1 == panels ? last : GEMM_PANEL) : row_zero();
    }
#pragma GCC unroll 2
    for (size_t k = 0; k < depth; k++) {
        row16 row[FEW_PANELS] = {row_zero()};
#pragma GCC unroll 4
        for (size_t p = 0; p < panels; p++)
            row[p] = row_of_panel(p == 0 ? first : p == 1 ? second : p == 2 ? third : fourth, k * b.step, storage);
#pragma GCC unroll 24
        for (size_t i = 0; i < rows * panels; i++)
            sum[i] = row_fmadd(a.data[i / panels * a.row + k * a.step], row[i % panels], sum[i]);
    }
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * panels; i++) {
        const size_t p = i % panels;
        row_store(c + i / panels * stride + p * GEMM_PANEL, sum[i], p + 1 == panels ? last : GEMM_PANEL);
    }
}

/* Makes the number of rows a constant, so that the sums stay in registers. */
INLINE void tile_with_rows(size_t rows, float *c, size_t stride, left_factor a, right_factor b, const rein_storage storage,
                           size_t depth, size_t last, int from_c, const size_t panels) {
    switch (rows) {
    case 1: tile(c, stride, a, b, storage, depth, last, from_c, 1, panels); break;
    case 2: tile(c, stride, a, b, storage, depth, last, from_c, 2, panels); break;
    case 3: tile(c, stride, a, b, storage, depth, last, from_c, 3, panels); break;
    case 4: tile(c, stride, a, b, storage, depth, last, from_c, 4, panels); break;
    case 5: tile(c, stride, a, b, storage, depth, last, from_c, 5, panels); break;
#ifdef __AVX512F__
    case 6: tile(c, stride, a, b, storage, depth, last, from_c, 6, panels); break;
    case 7: tile(c, stride, a, b, storage, depth, last, from_c, 7, panels); break;
#endif
    default: tile(c, stride, a, b, storage, depth, last, from_c, TILE_ROWS, panels); break;
    }
}

/* How many of the next columns a tile takes: as many panels as it can have, or one. */
INLINE size_t tile_columns(size_t left, size_t rows) {
    const size_t panels = rows <= FEW_ROWS && left > (FEW_PANELS - 1) * GEMM_PANEL ? FEW_PANELS
                          : left > (TILE_PANELS - 1) * GEMM_PANEL                  ? TILE_PANELS
                                                                                   : 1;
    return left < panels * GEMM_PANEL ? left : panels * GEMM_PANEL;
}

/* Makes the number of panels a constant too. */
INLINE void tile_of(size_t rows, size_t columns, float *c, size_t stride, left_factor a, right_factor b, const rein_storage storage,
                    size_t depth, int from_c) {
    if (TILE_PANELS == 1 || columns <= GEMM_PANEL) tile_with_rows(rows, c, stride, a, b, storage, depth, columns, from_c, 1);
    else if (FEW_PANELS == 1 || columns <= TILE_PANELS * GEMM_PANEL)
        tile_with_rows(rows, c, stride, a, b, storage, depth, columns - (TILE_PANELS - 1) * GEMM_PANEL, from_c, TILE_PANELS);
    else if (rows == 1) tile(c, stride, a, b, storage, depth, columns - (FEW_PANELS - 1) * GEMM_PANEL, from_c, 1, FEW_PANELS);
    else tile(c, stride, a, b, storage, depth, columns - (FEW_PANELS - 1) * GEMM_PANEL, from_c, 2, FEW_PANELS);
}

/* Copies from[r·from_row + j·from_column], for tiles that have fewer columns or are transposed. Not inlined: gcc makes it slower where it
 * knows how small it is. */
static __attribute__((noinline, unused)) void copy_tile(float *to, size_t to_row, size_t to_column, const float *from,
                                                        size_t from_row, size_t from_column, size_t rows, size_t columns) {
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < columns; j++) to[r * to_row + j * to_column] = from[r * from_row + j * from_column];
}

#endif
