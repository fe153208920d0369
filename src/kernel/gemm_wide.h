/* gemm_wide.h - a row of a panel: sixteen f32, one register of AVX-512 or two vectors. Private; for sources compiled per instruction set. */
#ifndef REIN_KERNEL_GEMM_WIDE_H
#define REIN_KERNEL_GEMM_WIDE_H

#include "gemm_block.h"
#include "stored.h"

/* Eight numbers that a product reads: of them nobody asks how a NaN was spelled, so f16 can be left to the instruction. */
INLINE V load_factor(const void *p, size_t i, const rein_storage storage) {
#ifdef __AVX512VL__
    if (storage == REIN_STORED_F16)
        return (V)_mm256_maskz_cvtph_ps(0xff, _mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)p + i)));
#endif
    return load_stored(p, i, storage);
}

/* A row of a panel, which is at panel[at], as two vectors. Of bf16 the columns i and 8 + i lie side by side: one load, and each half is in
 * place after one instruction. */
INLINE void halves_of_row(V *low, V *high, const void *panel, size_t at, const rein_storage storage) {
    if (storage == REIN_STORED_BF16) {
        U both;
        memcpy(&both, (const uint16_t *)panel + at, sizeof both);
        *low = (V)(both << 16), *high = (V)(both & 0xffff0000u);
    } else {
        *low = load_factor(panel, at, storage);
        *high = load_factor(panel, at + LANES, storage);
    }
}

/* Rows and panels of a tile; rows so few that they are read in place. WIDE_PARTS: wide_load and wide_store heed n. WIDE_F16: f16 costs no
 * more to read than bf16. WIDE_TURN: bf16 is turned as it is. Then what is packed at a time, and how deep a tile must be for the next
 * one's part of c to be called in meanwhile. */
#ifdef __AVX512F__

enum { TILE_ROWS = 8, TILE_PANELS = 3, FEW_ROWS = 2, WIDE_PARTS = 1, WIDE_F16 = 1, WIDE_TURN = 1 };
enum { BLOCK_ROWS = 160, BLOCK_DEPTH = 384, BLOCK_COLUMNS = 384, PREFETCH_DEPTH = 32 };

typedef struct wide {
    __m512 all;
} wide;

INLINE wide wide_zero(void) { return (wide){_mm512_setzero_ps()}; }

/* Of the sixteen the first n. */
INLINE __mmask16 wide_first(size_t n) { return (__mmask16)((1u << n) - 1); }
INLINE wide wide_load(const float *p, size_t n) { return (wide){_mm512_maskz_loadu_ps(wide_first(n), p)}; }
INLINE void wide_store(float *p, wide x, size_t n) { _mm512_mask_storeu_ps(p, wide_first(n), x.all); }
INLINE wide wide_fmadd(float x, wide row, wide sum) { return (wide){_mm512_fmadd_ps(_mm512_set1_ps(x), row.all, sum.all)}; }

/* A row of a panel, which is at panel[at]. Of bf16 each number becomes the upper half of its column, in one instruction. */
INLINE wide wide_row(const void *panel, size_t at, const rein_storage storage) {
    if (storage == REIN_STORED_F32) return (wide){_mm512_loadu_ps((const float *)panel + at)};
    __m256i halves;
    memcpy(&halves, (const uint16_t *)panel + at, sizeof halves);
    if (storage == REIN_STORED_F16) return (wide){_mm512_cvtph_ps(halves)};
    const __m512i from = _mm512_set_epi32(15 << 16, 13 << 16, 11 << 16, 9 << 16, 7 << 16, 5 << 16, 3 << 16, 1 << 16, 14 << 16,
                                          12 << 16, 10 << 16, 8 << 16, 6 << 16, 4 << 16, 2 << 16, 0);
    return (wide){_mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, from, _mm512_castsi256_si512(halves)))};
}

#else

enum { TILE_ROWS = GEMM_TILE_ROWS, TILE_PANELS = 1, FEW_ROWS = GEMM_TILE_ROWS, WIDE_PARTS = 0, WIDE_F16 = 0, WIDE_TURN = 0 };
enum { BLOCK_ROWS = GEMM_ROWS, BLOCK_DEPTH = GEMM_DEPTH, BLOCK_COLUMNS = GEMM_COLUMNS, PREFETCH_DEPTH = 1 << 30 };

typedef struct wide {
    V low, high;
} wide;

INLINE wide wide_zero(void) { return (wide){splat(0), splat(0)}; }
INLINE wide wide_load(const float *p, size_t n) { return (void)n, (wide){load(p, LANES), load(p + LANES, LANES)}; }
INLINE void wide_store(float *p, wide x, size_t n) { (void)n, store(p, x.low, LANES), store(p + LANES, x.high, LANES); }
INLINE wide wide_fmadd(float x, wide row, wide sum) {
    const V each = splat(x);
    return (wide){fmadd(each, row.low, sum.low), fmadd(each, row.high, sum.high)};
}

INLINE wide wide_row(const void *panel, size_t at, const rein_storage storage) {
    wide row;
    halves_of_row(&row.low, &row.high, panel, at, storage);
    return row;
}

#endif
#endif
