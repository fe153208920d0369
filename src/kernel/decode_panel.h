/* decode_panel.h - sixteen rows of a panel of quantised blocks to f32 (block_panel.h). Private; for sources compiled per instruction set.
 *
 * The arithmetic is that of decode_blocks.h, so a weight has the same bits wherever it is decoded. */
#ifndef REIN_KERNEL_DECODE_PANEL_H
#define REIN_KERNEL_DECODE_PANEL_H

#include "block_panel.h"
#include "lanes_f16.h"

/* Byte or f16 `i` of eight columns: those from h on, 0 or 8. */
INLINE M bytes_of(const uint8_t *panel, size_t i, size_t h) { return widen(panel + i * GEMM_PANEL + h); }
INLINE V scales_of(const uint8_t *panel, size_t i, size_t h) {
    return from_f16(load_16_bits((const uint16_t *)(const void *)(panel + i * GEMM_PANEL + 2 * h)));
}

INLINE M signed_byte(M byte) { return (byte ^ 128) - 128; }

/* Each function decodes the rows [16·g, 16·g + 16) of a panel block for eight columns: to[r·16]. */

INLINE void sixteen_q8_0(float *to, const uint8_t *panel, size_t g, size_t h) {
    const V d = scales_of(panel, 0, h);
    for (size_t r = 0; r < 16; r++)
        store(to + r * GEMM_PANEL, to_floats(signed_byte(bytes_of(panel, 2 + 16 * g + r, h))) * d, LANES);
}

INLINE void sixteen_q4(float *to, const uint8_t *nibbles, size_t g, size_t h, int offset, V d, V m, int has_m) {
    for (size_t r = 0; r < 16; r++) {
        const M q = (bytes_of(nibbles, r, h) >> (int)(4 * g) & 15) - offset;
        const V x = to_floats(q) * d;
        store(to + r * GEMM_PANEL, has_m ? x + m : x, LANES);
    }
}

INLINE void sixteen_q4_0(float *to, const uint8_t *panel, size_t g, size_t h) {
    sixteen_q4(to, panel + 2 * GEMM_PANEL, g, h, 8, scales_of(panel, 0, h), splat(0), 0);
}

INLINE void sixteen_q4_1(float *to, const uint8_t *panel, size_t g, size_t h) {
    sixteen_q4(to, panel + 4 * GEMM_PANEL, g, h, 0, scales_of(panel, 0, h), scales_of(panel, 2, h), 1);
}

/* The fifth bits of row r are bit r % 8 of byte 2·g + r / 8. */
INLINE void sixteen_q5(float *to, const uint8_t *high, size_t g, size_t h, int offset, V d, V m, int has_m) {
    const uint8_t *nibbles = high + 4 * GEMM_PANEL;
    for (size_t eight = 0; eight < 16; eight += 8) {
        const M bits = bytes_of(high, 2 * g + eight / 8, h);
        for (size_t r = 0; r < 8; r++) {
            const M low = bytes_of(nibbles, eight + r, h) >> (int)(4 * g) & 15;
            const V x = to_floats((low | (bits >> (int)r & 1) << 4) - offset) * d;
            store(to + (eight + r) * GEMM_PANEL, has_m ? x + m : x, LANES);
        }
    }
}

INLINE void sixteen_q5_0(float *to, const uint8_t *panel, size_t g, size_t h) {
    sixteen_q5(to, panel + 2 * GEMM_PANEL, g, h, 16, scales_of(panel, 0, h), splat(0), 0);
}

INLINE void sixteen_q5_1(float *to, const uint8_t *panel, size_t g, size_t h) {
    sixteen_q5(to, panel + 4 * GEMM_PANEL, g, h, 0, scales_of(panel, 0, h), scales_of(panel, 2, h), 1);
}

/* Scales and minima of part p, as scale_of_part and minimum_of_part unpack them. */
INLINE V panel_scales(const uint8_t *packed, size_t p, size_t h) {
    if (p < 4) return to_floats(bytes_of(packed, p, h) & 63);
    return to_floats((bytes_of(packed, p + 4, h) & 15) | bytes_of(packed, p - 4, h) >> 6 << 4);
}
INLINE V panel_minima(const uint8_t *packed, size_t p, size_t h) {
    if (p < 4) return to_floats(bytes_of(packed, p + 4, h) & 63);
    return to_floats(bytes_of(packed, p + 4, h) >> 4 | bytes_of(packed, p, h) >> 6 << 4);
}

INLINE void sixteen_of_part(float *to, const uint8_t *panel, const uint8_t *nibbles, const uint8_t *high, size_t g, size_t h) {
    const size_t p = g / 2, first = g % 2 * 16;
    const V d = scales_of(panel, 0, h) * panel_scales(panel + 4 * GEMM_PANEL, p, h);
    const V m = scales_of(panel, 2, h) * panel_minima(panel + 4 * GEMM_PANEL, p, h);
    for (size_t r = 0; r < 16; r++) {
        M q = bytes_of(nibbles, p / 2 * 32 + first + r, h) >> (int)(p % 2 * 4) & 15;
        if (high) q |= (bytes_of(high, first + r, h) >> (int)p & 1) << 4;
        store(to + r * GEMM_PANEL, to_floats(q) * d - m, LANES);
    }
}

INLINE void sixteen_q4_k(float *to, const uint8_t *panel, size_t g, size_t h) {
    sixteen_of_part(to, panel, panel + 16 * GEMM_PANEL, NULL, g, h);
}

INLINE void sixteen_q5_k(float *to, const uint8_t *panel, size_t g, size_t h) {
    sixteen_of_part(to, panel, panel + 48 * GEMM_PANEL, panel + 16 * GEMM_PANEL, g, h);
}

INLINE void sixteen_q6_k(float *to, const uint8_t *panel, size_t g, size_t h) {
    const size_t p = g / 2, first = g % 2 * 16, half = p / 4;
    const V d = scales_of(panel, 208, h) * to_floats(signed_byte(bytes_of(panel, 192 + g, h)));
    for (size_t r = 0; r < 16; r++) {
        const M low = bytes_of(panel, half * 64 + p % 2 * 32 + first + r, h) >> (int)(p % 4 / 2 * 4) & 15;
        const M high = bytes_of(panel, 128 + half * 32 + first + r, h) >> (int)(p % 4 * 2) & 3;
        store(to + r * GEMM_PANEL, to_floats((low | high << 4) - 32) * d, LANES);
    }
}

/* to [16·n][16] = the rows from 16·g on of panel blocks that follow one another. */
#define SIXTEEN(name, elements, bytes)                                                                      \
    static void rows_##name(float *to, const uint8_t *panel, size_t g, size_t n) {                          \
        const size_t in_block = (elements) / 16;                                                            \
        for (const size_t end = g + n; g < end; g++, to += 16 * GEMM_PANEL) {                               \
            const uint8_t *blocks = panel + g / in_block * ((bytes)*GEMM_PANEL);                            \
            for (size_t h = 0; h < GEMM_PANEL; h += LANES) sixteen_##name(to + h, blocks, g % in_block, h); \
        }                                                                                                   \
    }
SIXTEEN(q8_0, 32, 34)
SIXTEEN(q4_0, 32, 18)
SIXTEEN(q4_1, 32, 20)
SIXTEEN(q5_0, 32, 22)
SIXTEEN(q5_1, 32, 24)
SIXTEEN(q4_k, 256, 144)
SIXTEEN(q5_k, 256, 176)
SIXTEEN(q6_k, 256, 210)
#undef SIXTEEN

/* The rows [from, from + depth) of a panel, multiples of 16. */
static void decode_panel_rows(float *to, const void *panel, rein_storage storage, size_t from, size_t depth) {
    const uint8_t *p = panel;
    const size_t g = from / 16, n = depth / 16;
    switch (storage) {
    case REIN_STORED_Q8_0: rows_q8_0(to, p, g, n); break;
    case REIN_STORED_Q4_0: rows_q4_0(to, p, g, n); break;
    case REIN_STORED_Q4_1: rows_q4_1(to, p, g, n); break;
    case REIN_STORED_Q5_0: rows_q5_0(to, p, g, n); break;
    case REIN_STORED_Q5_1: rows_q5_1(to, p, g, n); break;
    case REIN_STORED_Q4_K: rows_q4_k(to, p, g, n); break;
    case REIN_STORED_Q5_K: rows_q5_k(to, p, g, n); break;
    case REIN_STORED_Q6_K: rows_q6_k(to, p, g, n); break;
    default: break;
    }
}

#endif
