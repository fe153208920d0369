/* float16.h - rounds f32 and f64 to bf16 and f16, to the nearest, ties to even. Private.
 *
 * A NaN stays a NaN and keeps the part of its payload that fits. Each of the 2^16 values of either type survives a conversion to
 * f32 and back. */
#ifndef REIN_MODEL_FLOAT16_H
#define REIN_MODEL_FLOAT16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t rein_float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float rein_bits_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* bf16 is the upper half of f32. A carry out of the mantissa gives the next exponent, and finally infinity. */
static inline uint16_t rein_to_bf16(float x) {
    const uint32_t bits = rein_float_bits(x), upper = bits >> 16;
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(upper | (upper & 0x7f ? 0 : 0x40));
    return (uint16_t)((bits + 0x7fff + (upper & 1)) >> 16);
}

/* Below 2^-14 the spacing is 2^-24, which is that of f32 numbers near 0.5: adding 0.5 rounds to it. */
static inline uint16_t rein_to_f16(float x) {
    const uint32_t bits = rein_float_bits(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    uint32_t half;
    if (size > 0x7f800000) half = 0x7c00 | (size >> 13 & 0x3ff) | (size >> 13 & 0x3ff ? 0 : 0x200);
    else if (size >= 0x47800000) half = 0x7c00; /* 2^16 or more; just below, the last case carries to infinity */
    else if (size < 0x38800000) half = rein_float_bits(rein_bits_float(size) + 0.5f) - 0x3f000000;
    else half = (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13;
    return (uint16_t)(sign | half);
}

/* Rounds f64 to f32 with the last bit set whenever the result is inexact (round to odd, Boldo and Melquiond 2008). Rounding that
 * again to 16 bits gives the same as rounding once; the nearest f32 could be a tie that the f64 is not. */
static inline float rein_round_to_odd(double x) {
    const float nearest = (float)x;
    if ((double)nearest == x || isnan(x)) return nearest;
    return rein_bits_float((rein_float_bits(nearest) - (fabs((double)nearest) > fabs(x))) | 1);
}

#endif
