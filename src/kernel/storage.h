/* storage.h - the types in which weights are stored. Private.
 *
 * A storage type is a row of REIN_STORAGE_TYPES: its name, the elements and the bytes of one block. Plain number types have blocks of one
 * element. To add a type, add a row here and its decode function to decode.c; a type of blocks is decoded from panels too (block_panel.h,
 * decode_panel.h). Two rules: a block of zero bytes decodes to zeros, and a
 * block has at most REIN_STORAGE_BLOCK elements, 1 or a multiple of 16. In a matrix of blocks an element's index decides its block: every
 * row starts with a new block. */
#ifndef REIN_KERNEL_STORAGE_H
#define REIN_KERNEL_STORAGE_H

#include <stddef.h>

#include "isa_list.h"

/*      name, decode function, elements of a block, bytes of a block */
#define REIN_STORAGE_TYPES(ROW)      \
    ROW(F32, decode_f32, 1, 4)       \
    ROW(BF16, decode_bf16, 1, 2)     \
    ROW(F16, decode_f16, 1, 2)       \
    ROW(Q8_0, decode_q8_0, 32, 34)   \
    ROW(Q4_0, decode_q4_0, 32, 18)   \
    ROW(Q4_1, decode_q4_1, 32, 20)   \
    ROW(Q5_0, decode_q5_0, 32, 22)   \
    ROW(Q5_1, decode_q5_1, 32, 24)   \
    ROW(Q4_K, decode_q4_k, 256, 144) \
    ROW(Q5_K, decode_q5_k, 256, 176) \
    ROW(Q6_K, decode_q6_k, 256, 210)

#define REIN_STORAGE_NAME(name, decode, elements, bytes) REIN_STORED_##name,
typedef enum rein_storage { REIN_STORAGE_TYPES(REIN_STORAGE_NAME) REIN_STORAGE_COUNT } rein_storage;
#undef REIN_STORAGE_NAME

enum { REIN_STORAGE_BLOCK = 256 };

/* The elements of one block. */
static inline size_t rein_storage_elements(rein_storage storage) {
#define REIN_STORAGE_ELEMENTS(name, decode, elements, bytes) elements,
    static const size_t elements_of[] = {REIN_STORAGE_TYPES(REIN_STORAGE_ELEMENTS)};
#undef REIN_STORAGE_ELEMENTS
    return elements_of[storage];
}

/* The bytes of n elements, which are whole blocks. */
static inline size_t rein_storage_bytes(rein_storage storage, size_t n) {
#define REIN_STORAGE_BYTES(name, decode, elements, bytes) bytes,
    static const size_t bytes_of[] = {REIN_STORAGE_TYPES(REIN_STORAGE_BYTES)};
#undef REIN_STORAGE_BYTES
    const size_t elements = rein_storage_elements(storage);
    return (elements == 1 ? n : n / elements) * bytes_of[storage]; /* small products would notice the division */
}

/* to [n] = the f32 values of n stored elements, which are whole blocks. The conversion is exact for number types. */
typedef void rein_decode_fn(float *to, const void *from, rein_storage storage, size_t n);
#define REIN_DECODE(isa, NAME, machines) rein_decode_fn rein_decode_##isa##_f32;
REIN_ISA_LIST(REIN_DECODE)
#undef REIN_DECODE

#endif
