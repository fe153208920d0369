/* lanes_f16.h - 16-bit numbers and small whole numbers as vectors of f32. Private; for sources compiled per instruction set. */
#ifndef REIN_KERNEL_LANES_F16_H
#define REIN_KERNEL_LANES_F16_H

#include "lanes.h"

INLINE U load_16_bits(const uint16_t *from) {
    typedef uint16_t H __attribute__((vector_size(16)));
    H h;
    memcpy(&h, from, sizeof h);
    return __builtin_convertvector(h, U);
}

/* An f16 is moved into the places of an f32 and scaled by 2^112, which also normalises subnormals. Inf and NaN keep their mantissa. */
INLINE V from_f16(U h) {
    const U magnitude_bits = (h & 0x7fff) << 13;
    const V scaled = (V)magnitude_bits * 0x1p112f;
    const U special = (U)((M)magnitude_bits >= 0x0f800000) & 0x7f800000;
    return (V)((U)scaled | special | (h & 0x8000) << 16);
}

INLINE V to_floats(M q) { return __builtin_convertvector(q, V); }

#endif
