/* decode_panel.h - rows of panels of quantised blocks to f32 (block_panel.h). Private; for sources compiled per instruction set.
 *
 * The values are those of decode_blocks.h, so a weight has the same bits wherever it is decoded. Products of scales and small numbers are
 * exact, so fma rounds a sum as a product and an addition do. */
#ifndef REIN_KERNEL_DECODE_PANEL_H
#define REIN_KERNEL_DECODE_PANEL_H

#include "block_panel.h"
#include "lanes_f16.h"

/* ---- some columns of a row: all 16 with AVX-512, else eight, those from h on */
#ifdef __AVX512F__

enum { WIDE = 16 };
typedef float W __attribute__((vector_size(64)));
typedef int32_t I __attribute__((vector_size(64)));

INLINE I wide_bytes(const uint8_t *p) { return (I)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)); }
INLINE I wide_signed_bytes(const uint8_t *p) { return (I)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)); }
INLINE W wide_floats(I q) { return (W)_mm512_cvtepi32_ps((__m512i)q); }
INLINE W wide_halves(const uint8_t *p) { return (W)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p)); }
INLINE W wide_splat(float x) { return (W)_mm512_set1_ps(x); }
INLINE W wide_fmadd(W a, W b, W c) { return (W)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE W wide_load(const float *p) { return (W)_mm512_loadu_ps(p); }
INLINE void wide_store(float *p, W x) { _mm512_storeu_ps(p, (__m512)x); }

/* The low four bits of q, less 0 or 8: a table holds the sixteen results. */
INLINE W wide_nibbles(I q, const int offset) {
    const float o = (float)offset;
    const __m512 results = _mm512_setr_ps(-o, 1 - o, 2 - o, 3 - o, 4 - o, 5 - o, 6 - o, 7 - o, 8 - o, 9 - o, 10 - o, 11 - o, 12 - o,
                                          13 - o, 14 - o, 15 - o);
    return (W)_mm512_permutexvar_ps((__m512i)q, results);
}

#else

enum { WIDE = LANES };
typedef V W;
typedef M I;

INLINE I wide_bytes(const uint8_t *p) { return widen(p); }
INLINE I wide_signed_bytes(const uint8_t *p) { return (widen(p) ^ 128) - 128; }
INLINE W wide_floats(I q) { return to_floats(q); }
INLINE W wide_halves(const uint8_t *p) { return from_f16(load_16_bits((const uint16_t *)(const void *)p)); }
INLINE W wide_splat(float x) { return splat(x); }
INLINE W wide_fmadd(W a, W b, W c) { return fmadd(a, b, c); }
INLINE W wide_load(const float *p) { return load(p, LANES); }
INLINE void wide_store(float *p, W x) { store(p, x, LANES); }
INLINE W wide_nibbles(I q, const int offset) { return to_floats((q & 15) - offset); }

#endif

/* Byte i of these columns, and the f16 that begins with it. */
INLINE I bytes_of(const uint8_t *panel, size_t i, size_t h) { return wide_bytes(panel + i * GEMM_PANEL + h); }
INLINE W halves_of(const uint8_t *panel, size_t i, size_t h) { return wide_halves(panel + i * GEMM_PANEL + 2 * h); }

/* ---- scale and minimum of sixteen rows, those from 16·g on; the minimum is added */
typedef struct block_scale {
    W scale, minimum;
} block_scale;

/* As scale_of_part and minimum_of_part unpack them. */
INLINE W part_scales(const uint8_t *packed, size_t p, size_t h) {
    if (p < 4) return wide_floats(bytes_of(packed, p, h) & 63);
    return wide_floats((bytes_of(packed, p + 4, h) & 15) | bytes_of(packed, p - 4, h) >> 6 << 4);
}
INLINE W part_minima(const uint8_t *packed, size_t p, size_t h) {
    if (p < 4) return wide_floats(bytes_of(packed, p + 4, h) & 63);
    return wide_floats(bytes_of(packed, p + 4, h) >> 4 | bytes_of(packed, p, h) >> 6 << 4);
}

INLINE block_scale scale_of_rows(const uint8_t *panel, const rein_storage storage, size_t g, size_t h) {
    block_scale s = {wide_splat(0), wide_splat(0)};
    if (storage == REIN_STORED_Q6_K) {
        s.scale = halves_of(panel, 208, h) * wide_floats(wide_signed_bytes(panel + (192 + g) * GEMM_PANEL + h));
        return s;
    }
    s.scale = halves_of(panel, 0, h);
    if (storage == REIN_STORED_Q4_1 || storage == REIN_STORED_Q5_1) s.minimum = halves_of(panel, 2, h);
    if (storage != REIN_STORED_Q4_K && storage != REIN_STORED_Q5_K) return s;
    s.scale *= part_scales(panel + 4 * GEMM_PANEL, g / 2, h);
    s.minimum = -(halves_of(panel, 2, h) * part_minima(panel + 4 * GEMM_PANEL, g / 2, h));
    return s;
}

/* ---- row 16·g + r of a panel block */

/* Four bits of 32 rows: byte i has those of the rows i and i + 16. Five: the fifth of row i is bit i % 8 of byte i / 8. */
INLINE W row_of_32(const uint8_t *panel, const rein_storage storage, size_t g, size_t r, size_t h, block_scale s) {
    const int has_minimum = storage == REIN_STORED_Q4_1 || storage == REIN_STORED_Q5_1;
    const int five = storage == REIN_STORED_Q5_0 || storage == REIN_STORED_Q5_1;
    const uint8_t *high = panel + (has_minimum ? 4 : 2) * GEMM_PANEL, *low = high + (five ? 4 : 0) * GEMM_PANEL;
    const I q = bytes_of(low, r, h) >> (int)(4 * g);
    if (!five && has_minimum) return wide_fmadd(wide_nibbles(q, 0), s.scale, s.minimum);
    if (!five) return wide_nibbles(q, 8) * s.scale;
    const I all = (q & 15) | (bytes_of(high, 2 * g + r / 8, h) >> (int)(r % 8) & 1) << 4;
    return has_minimum ? wide_fmadd(wide_floats(all), s.scale, s.minimum) : wide_floats(all - 16) * s.scale;
}

/* Q4_K and Q5_K have parts of 32 rows, two of which share 32 bytes; Q6_K has halves of four such parts. */
INLINE W row_of_256(const uint8_t *panel, const rein_storage storage, size_t g, size_t r, size_t h, block_scale s) {
    const size_t p = g / 2, i = g % 2 * 16 + r;
    if (storage == REIN_STORED_Q6_K) {
        const I low = bytes_of(panel, p / 4 * 64 + p % 2 * 32 + i, h) >> (int)(p % 4 / 2 * 4) & 15;
        const I high = bytes_of(panel, 128 + p / 4 * 32 + i, h) >> (int)(p % 4 * 2) & 3;
        return wide_floats((low | high << 4) - 32) * s.scale;
    }
    const I q = bytes_of(panel, (storage == REIN_STORED_Q4_K ? 16 : 48) + p / 2 * 32 + i, h) >> (int)(p % 2 * 4);
    if (storage == REIN_STORED_Q4_K) return wide_fmadd(wide_nibbles(q, 0), s.scale, s.minimum);
    return wide_fmadd(wide_floats((q & 15) | (bytes_of(panel, 16 + i, h) >> (int)p & 1) << 4), s.scale, s.minimum);
}

INLINE W row_of_block(const uint8_t *panel, const rein_storage storage, size_t g, size_t r, size_t h, block_scale s) {
    if (storage == REIN_STORED_Q8_0) return wide_floats(wide_signed_bytes(panel + (2 + 16 * g + r) * GEMM_PANEL + h)) * s.scale;
    return rein_storage_elements(storage) == 32 ? row_of_32(panel, storage, g, r, h, s) : row_of_256(panel, storage, g, r, h, s);
}

/* The panel block that has sixteen rows from 16·g on, and their place in it. */
INLINE const uint8_t *block_of_rows(const uint8_t *panel, const rein_storage storage, size_t *g) {
    const size_t elements = rein_storage_elements(storage), in_block = elements / 16, block = *g / in_block;
    *g %= in_block;
    return panel + block * GEMM_PANEL * rein_storage_bytes(storage, elements);
}

/* ---- to [16·n][16] = the rows from 16·g on */
INLINE void decode_rows_as(float *to, const uint8_t *panel, const rein_storage storage, size_t g, size_t n) {
    for (const size_t end = g + n; g < end; g++, to += 16 * GEMM_PANEL)
        for (size_t h = 0; h < GEMM_PANEL; h += WIDE) {
            size_t in_block = g;
            const uint8_t *block = block_of_rows(panel, storage, &in_block);
            const block_scale s = scale_of_rows(block, storage, in_block, h);
            for (size_t r = 0; r < 16; r++) wide_store(to + r * GEMM_PANEL + h, row_of_block(block, storage, in_block, r, h, s));
        }
}

/* Makes the storage type a constant. */
#define FOR_BLOCK_STORAGE(storage, CALL)                  \
    switch (storage) {                                    \
    case REIN_STORED_Q8_0: CALL(REIN_STORED_Q8_0); break; \
    case REIN_STORED_Q4_0: CALL(REIN_STORED_Q4_0); break; \
    case REIN_STORED_Q4_1: CALL(REIN_STORED_Q4_1); break; \
    case REIN_STORED_Q5_0: CALL(REIN_STORED_Q5_0); break; \
    case REIN_STORED_Q5_1: CALL(REIN_STORED_Q5_1); break; \
    case REIN_STORED_Q4_K: CALL(REIN_STORED_Q4_K); break; \
    case REIN_STORED_Q5_K: CALL(REIN_STORED_Q5_K); break; \
    case REIN_STORED_Q6_K: CALL(REIN_STORED_Q6_K); break; \
    default: break;                                       \
    }

/* The rows [from, from + depth) of a panel, multiples of 16. */
static void decode_panel_rows(float *to, const void *panel, rein_storage storage, size_t from, size_t depth) {
#define DECODE_ROWS(type) decode_rows_as(to, panel, type, from / 16, depth / 16)
    FOR_BLOCK_STORAGE(storage, DECODE_ROWS)
#undef DECODE_ROWS
}

#endif
