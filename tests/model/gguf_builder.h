/* gguf_builder.h - writes GGUF bytes piece by piece, right ones and wrong ones. */
#ifndef REIN_TESTS_GGUF_BUILDER_H
#define REIN_TESTS_GGUF_BUILDER_H

#include <stdint.h>
#include <string.h>

enum { BUILT = 1 << 16 };
typedef struct built {
    _Alignas(32) unsigned char bytes[BUILT];
    size_t size;
} built;

static inline void put_number(built *b, uint64_t x, size_t n) {
    for (size_t i = 0; i < n; i++) b->bytes[b->size++] = (unsigned char)(x >> 8 * i);
}

static inline void put_text(built *b, const char *text) {
    put_number(b, strlen(text), 8);
    memcpy(b->bytes + b->size, text, strlen(text));
    b->size += strlen(text);
}

/* The header, for the counts that follow. */
static inline void put_header(built *b, uint64_t version, uint64_t tensors, uint64_t pairs) {
    b->size = 0;
    memcpy(b->bytes, "GGUF", 4);
    b->size = 4;
    put_number(b, version, 4);
    put_number(b, tensors, 8);
    put_number(b, pairs, 8);
}

static inline void put_pair(built *b, const char *key, uint64_t kind) {
    put_text(b, key);
    put_number(b, kind, 4);
}

static inline void put_u32(built *b, const char *key, uint64_t x) {
    put_pair(b, key, 4);
    put_number(b, x, 4);
}

static inline void put_string(built *b, const char *key, const char *text) {
    put_pair(b, key, 8);
    put_text(b, text);
}

static inline void put_tensor(built *b, const char *name, uint64_t rows, uint64_t columns, uint64_t type, uint64_t offset) {
    put_text(b, name);
    put_number(b, 2, 4);
    put_number(b, columns, 8);
    put_number(b, rows, 8);
    put_number(b, type, 4);
    put_number(b, offset, 8);
}

/* Zeros up to the alignment, then n of them. */
static inline void put_data(built *b, size_t n) {
    while (b->size % 32) b->bytes[b->size++] = 0;
    memset(b->bytes + b->size, 0, n);
    b->size += n;
}

#endif
