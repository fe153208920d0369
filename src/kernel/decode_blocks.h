/* decode_blocks.h - blocks of quantised weights to f32, as the GGUF format defines them. Private; for sources compiled per instruction set.
 *
 * A block has 32 or 256 weights: small whole numbers q with scales d, and minima m in some types. The value is d·q or d·q ± m. The scales
 * are f16. All products are exact in f32, so a value is rounded at most once, in the last sum. The layouts are those of ggml-common.h. */
#ifndef REIN_KERNEL_DECODE_BLOCKS_H
#define REIN_KERNEL_DECODE_BLOCKS_H

#include "lanes_f16.h"

/* The f16 at `from`, which may have any alignment, in all lanes. */
INLINE V scale_at(const uint8_t *from) {
    const uint32_t h = (uint32_t)from[0] | (uint32_t)from[1] << 8;
    return from_f16((U){h, h, h, h, h, h, h, h});
}

/* Bits first … first + 7 of `from`, one in each lane. */
INLINE M bit_lanes(uint32_t from, size_t first) {
    const uint32_t b = from >> first;
    return (M)((U){b, b, b, b, b, b, b, b} >> (U){0, 1, 2, 3, 4, 5, 6, 7} & 1);
}

INLINE uint32_t word_at(const uint8_t *from) {
    uint32_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

/* { f16 d; int8 q[32] } */
static void decode_q8_0(float *to, const void *from, size_t n) {
    const uint8_t *b = from;
    for (size_t i = 0; i < n; i += 32, to += 32, b += 34) {
        const V d = scale_at(b);
        for (size_t j = 0; j < 32; j += LANES) store(to + j, to_floats((widen(b + 2 + j) ^ 128) - 128) * d, LANES);
    }
}

/* { f16 d; nibbles[16] }: byte j has q of the elements j and j + 16, less 8 */
static void decode_q4_0(float *to, const void *from, size_t n) {
    const uint8_t *b = from;
    for (size_t i = 0; i < n; i += 32, to += 32, b += 18) {
        const V d = scale_at(b);
        for (size_t j = 0; j < 16; j += LANES) {
            const M q = widen(b + 2 + j);
            store(to + j, to_floats((q & 15) - 8) * d, LANES);
            store(to + 16 + j, to_floats((q >> 4) - 8) * d, LANES);
        }
    }
}

/* { f16 d, m; nibbles[16] }: d·q + m */
static void decode_q4_1(float *to, const void *from, size_t n) {
    const uint8_t *b = from;
    for (size_t i = 0; i < n; i += 32, to += 32, b += 20) {
        const V d = scale_at(b), m = scale_at(b + 2);
        for (size_t j = 0; j < 16; j += LANES) {
            const M q = widen(b + 4 + j);
            store(to + j, to_floats(q & 15) * d + m, LANES);
            store(to + 16 + j, to_floats(q >> 4) * d + m, LANES);
        }
    }
}

/* { f16 d; bits[32]; nibbles[16] }: bit i is the fifth bit of element i; q less 16 */
static void decode_q5_0(float *to, const void *from, size_t n) {
    const uint8_t *b = from;
    for (size_t i = 0; i < n; i += 32, to += 32, b += 22) {
        const V d = scale_at(b);
        const uint32_t high = word_at(b + 2);
        for (size_t j = 0; j < 16; j += LANES) {
            const M q = widen(b + 6 + j);
            store(to + j, to_floats(((q & 15) | bit_lanes(high, j) << 4) - 16) * d, LANES);
            store(to + 16 + j, to_floats(((q >> 4) | bit_lanes(high, j + 16) << 4) - 16) * d, LANES);
        }
    }
}

/* { f16 d, m; bits[32]; nibbles[16] }: d·q + m */
static void decode_q5_1(float *to, const void *from, size_t n) {
    const uint8_t *b = from;
    for (size_t i = 0; i < n; i += 32, to += 32, b += 24) {
        const V d = scale_at(b), m = scale_at(b + 2);
        const uint32_t high = word_at(b + 4);
        for (size_t j = 0; j < 16; j += LANES) {
            const M q = widen(b + 8 + j);
            store(to + j, to_floats((q & 15) | bit_lanes(high, j) << 4) * d + m, LANES);
            store(to + 16 + j, to_floats((q >> 4) | bit_lanes(high, j + 16) << 4) * d + m, LANES);
        }
    }
}

/* Scale and minimum of part p of 8 are 6 bits each. The first four of both are the low bits of 8 bytes, whose high bits belong to the last
 * four; the low bits of those are the nibbles of 4 more bytes. */
INLINE float scale_of_part(const uint8_t *packed, size_t p) {
    return (float)(p < 4 ? packed[p] & 63 : (packed[p + 4] & 15) | packed[p - 4] >> 6 << 4);
}
INLINE float minimum_of_part(const uint8_t *packed, size_t p) {
    return (float)(p < 4 ? packed[p + 4] & 63 : packed[p + 4] >> 4 | packed[p] >> 6 << 4);
}

/* Part p of a block of Q4_K or Q5_K: 32 elements, with fifth bits at bit p of 32 bytes (or none, NULL). */
INLINE void decode_part(float *to, const uint8_t *block, const uint8_t *nibbles, const uint8_t *high, size_t p) {
    const V d = scale_at(block) * splat(scale_of_part(block + 4, p)),
            m = scale_at(block + 2) * splat(minimum_of_part(block + 4, p));
    for (size_t j = 0; j < 32; j += LANES) {
        M q = widen(nibbles + p / 2 * 32 + j) >> (int)(p % 2 * 4) & 15;
        if (high) q |= (widen(high + j) >> (int)p & 1) << 4;
        store(to + 32 * p + j, to_floats(q) * d - m, LANES);
    }
}

/* { f16 d, m; scales[12]; nibbles[128] }: d·scale·q − m·minimum. Byte j of 32 has elements j of two parts */
static void decode_q4_k(float *to, const void *from, size_t n) {
    const uint8_t *b = from;
    for (size_t i = 0; i < n; i += 256, to += 256, b += 144)
        for (size_t p = 0; p < 8; p++) decode_part(to, b, b + 16, NULL, p);
}

/* { f16 d, m; scales[12]; bits[32]; nibbles[128] } */
static void decode_q5_k(float *to, const void *from, size_t n) {
    const uint8_t *b = from;
    for (size_t i = 0; i < n; i += 256, to += 256, b += 176)
        for (size_t p = 0; p < 8; p++) decode_part(to, b, b + 48, b + 16, p);
}

/* { nibbles[128]; pairs of bits[64]; int8 scales[16]; f16 d }: q less 32, a scale for 16 elements. Each half of 128 elements has 64 bytes of
 * nibbles and 32 of pairs: of four parts, the first two are low nibbles and the others high ones. */
static void decode_q6_k(float *to, const void *from, size_t n) {
    const uint8_t *b = from;
    for (size_t i = 0; i < n; i += 256, to += 256, b += 210)
        for (size_t p = 0; p < 8; p++) {
            const uint8_t *low = b + p / 4 * 64 + p % 2 * 32, *high = b + 128 + p / 4 * 32;
            for (size_t j = 0; j < 32; j += LANES) {
                const V d = scale_at(b + 208) * splat((float)(int8_t)b[192 + 2 * p + j / 16]);
                const M q = (widen(low + j) >> (int)(p % 4 / 2 * 4) & 15) | (widen(high + j) >> (int)(p % 4 * 2) & 3) << 4;
                store(to + 32 * p + j, to_floats(q - 32) * d, LANES);
            }
        }
}

#endif
