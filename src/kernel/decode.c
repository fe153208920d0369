/* decode.c - stored elements to f32, one function for each storage type; compiled per instruction set. */
#include "decode_blocks.h"
#include "lanes_f16.h"
#include "storage.h"

static void decode_f32(float *to, const void *from, size_t n) { memcpy(to, from, n * sizeof *to); }

/* A bf16 is the upper half of an f32. */
INLINE V from_bf16(U h) { return (V)(h << 16); }

static void decode_bf16(float *to, const void *from, size_t n) {
    const uint16_t *h = from;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) store(to + i, from_bf16(load_16_bits(h + i)), LANES);
    for (; i < n; i++) to[i] = from_bf16((U){h[i]})[0];
}

static void decode_f16(float *to, const void *from, size_t n) {
    const uint16_t *h = from;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) store(to + i, from_f16(load_16_bits(h + i)), LANES);
    for (; i < n; i++) to[i] = from_f16((U){h[i]})[0];
}

void KERNEL(rein_decode)(float *to, const void *from, rein_storage storage, size_t n) {
#define DECODE(name, decode, elements, bytes) decode,
    static void (*const decode_of[])(float *to, const void *from, size_t n) = {REIN_STORAGE_TYPES(DECODE)};
    decode_of[storage](to, from, n);
}
