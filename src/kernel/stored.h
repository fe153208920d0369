/* stored.h - eight numbers of any storage as f32. Private; for sources compiled per instruction set. */
#ifndef REIN_KERNEL_STORED_H
#define REIN_KERNEL_STORED_H

#include "gemm.h"
#include "lanes.h"

/* 16-bit numbers become f32 exactly: bf16 is its upper half; f16 is scaled into place, which also mends its subnormals. */
INLINE V from_bf16(U h) { return (V)(h << 16); }
INLINE V from_f16(U h) {
    const U magnitude_bits = (h & 0x7fff) << 13;
    const V scaled = (V)magnitude_bits * 0x1p112f;
    const U special = (U)((M)magnitude_bits >= 0x0f800000) & 0x7f800000; /* inf and NaN keep their mantissa */
    return (V)((U)scaled | special | (h & 0x8000) << 16);
}

INLINE U load_halves(const uint16_t *p) {
    typedef uint16_t H __attribute__((vector_size(16)));
    H h;
    memcpy(&h, p, sizeof h);
    return __builtin_convertvector(h, U);
}

INLINE V load_stored(const void *p, size_t i, const rein_storage storage) {
    if (storage == REIN_STORED_F32) return load((const float *)p + i, LANES);
    const U h = load_halves((const uint16_t *)p + i);
    return storage == REIN_STORED_BF16 ? from_bf16(h) : from_f16(h);
}

static inline float stored_at(const rein_matrix *x, size_t i, size_t j) {
    const size_t at = i * x->row + j * x->column;
    if (x->storage == REIN_STORED_F32) return ((const float *)x->data)[at];
    const U h = {((const uint16_t *)x->data)[at]};
    return (x->storage == REIN_STORED_BF16 ? from_bf16(h) : from_f16(h))[0];
}

#endif
