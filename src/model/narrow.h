/* narrow.h - from f32 and f64 to the types that weights are stored in, to the nearest, ties to even. Private.
 *
 * A NaN stays one, with what of its payload fits; all 2^16 values of either type come back from f32 as they were. */
#ifndef REIN_MODEL_NARROW_H
#define REIN_MODEL_NARROW_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernel/storage.h"
#include "safetensors.h"

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

/* bf16 is the upper half: a carry out of the mantissa is the next exponent, and at last infinity. */
static inline uint16_t rein_to_bf16(float x) {
    const uint32_t bits = rein_float_bits(x), upper = bits >> 16;
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(upper | (upper & 0x7f ? 0 : 0x40));
    return (uint16_t)((bits + 0x7fff + (upper & 1)) >> 16);
}

/* Below 2^-14 the quantum is 2^-24, which is the last place of 0.5: adding it rounds there. */
static inline uint16_t rein_to_f16(float x) {
    const uint32_t bits = rein_float_bits(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    uint32_t half;
    if (size > 0x7f800000) half = 0x7c00 | (size >> 13 & 0x3ff) | (size >> 13 & 0x3ff ? 0 : 0x200);
    else if (size >= 0x47800000) half = 0x7c00; /* 2^16; just below it the last case carries to infinity */
    else if (size < 0x38800000) half = rein_float_bits(rein_bits_float(size) + 0.5f) - 0x3f000000;
    else half = (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13;
    return (uint16_t)(sign | half);
}

/* f64 to f32 with the last bit set whenever something is lost (Boldo and Melquiond 2008): rounding that again to 16 bits gives what
 * rounding once would, where the nearest f32 could be a tie that the f64 is not. */
static inline float rein_round_to_odd(double x) {
    const float nearest = (float)x;
    if ((double)nearest == x || isnan(x)) return nearest;
    return rein_bits_float((rein_float_bits(nearest) - (fabs((double)nearest) > fabs(x))) | 1);
}

/* x [n] into `to`, of a type that weights can have. */
static inline void rein_narrow(void *to, rein_tensor_type dtype, const double *x, size_t n) {
    if (dtype == REIN_TENSOR_F32)
        for (size_t i = 0; i < n; i++) ((float *)to)[i] = (float)x[i];
    else if (dtype == REIN_TENSOR_BF16)
        for (size_t i = 0; i < n; i++) ((uint16_t *)to)[i] = rein_to_bf16(rein_round_to_odd(x[i]));
    else
        for (size_t i = 0; i < n; i++) ((uint16_t *)to)[i] = rein_to_f16(rein_round_to_odd(x[i]));
}

/* The largest number of a type that weights can have, and where rounding to it begins to give infinity. */
static inline double rein_type_limit(rein_tensor_type dtype) {
    return dtype == REIN_TENSOR_F16 ? 65520 : dtype == REIN_TENSOR_BF16 ? 0x1.ffp127 : 0x1.ffffffp127;
}

static inline rein_storage rein_storage_of(rein_tensor_type dtype) {
    return dtype == REIN_TENSOR_BF16 ? REIN_STORED_BF16 : dtype == REIN_TENSOR_F16 ? REIN_STORED_F16 : REIN_STORED_F32;
}

#endif
