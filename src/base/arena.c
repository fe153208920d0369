/* arena.c - chunks of pages, each at least twice the one before, in huge pages where the system has them. */
#define _DEFAULT_SOURCE
#include "arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

struct rein_chunk {
    char *data;
    size_t size;
};

enum { ALIGNMENT = 64, FIRST_CHUNK = 1 << 20, HUGE_PAGE = 1 << 21 };

void *rein_pages_take(size_t bytes) {
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return NULL;
    if (bytes >= HUGE_PAGE) (void)madvise(pages, bytes, MADV_HUGEPAGE); /* without them small pages serve */
    return pages;
}

void rein_pages_free(void *pages, size_t bytes) {
    if (pages) munmap(pages, bytes);
}

static rein_chunk *new_chunk(size_t size) {
    rein_chunk *chunk = malloc(sizeof *chunk);
    void *data = chunk ? rein_pages_take(size) : NULL;
    if (!data) {
        free(chunk);
        return NULL;
    }
    *chunk = (rein_chunk){data, size};
    return chunk;
}

static int add_chunk(rein_arena *a, size_t at_least) {
    size_t size = a->n_chunks ? 2 * a->chunks[a->n_chunks - 1]->size : FIRST_CHUNK;
    if (size < at_least) size = (at_least + FIRST_CHUNK - 1) / FIRST_CHUNK * FIRST_CHUNK;
    if (a->n_chunks == a->capacity) {
        const size_t capacity = a->capacity ? 2 * a->capacity : 8;
        rein_chunk **chunks = realloc(a->chunks, capacity * sizeof *chunks);
        if (!chunks) return 0;
        a->chunks = chunks;
        a->capacity = capacity;
    }
    rein_chunk *chunk = new_chunk(size);
    if (!chunk && size > at_least) chunk = new_chunk((at_least + FIRST_CHUNK - 1) / FIRST_CHUNK * FIRST_CHUNK);
    if (!chunk) return 0;
    a->chunks[a->n_chunks++] = chunk;
    return 1;
}

void *rein_arena_take(rein_arena *a, size_t bytes) {
    if (bytes > SIZE_MAX / 4) a->failed = 1;
    if (a->failed) return NULL;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (a->measures) {
        if (a->used < SIZE_MAX / 4) a->used += bytes;
        return a; /* not NULL */
    }
    while (a->current >= a->n_chunks || a->chunks[a->current]->size - a->used < bytes) {
        if (a->current + 1 >= a->n_chunks && !add_chunk(a, bytes)) {
            a->failed = 1;
            return NULL;
        }
        if (a->current + 1 < a->n_chunks) a->current++; /* else it is the first */
        a->used = 0;
    }
    void *taken = a->chunks[a->current]->data + a->used;
    a->used += bytes;
    return taken;
}

float *rein_arena_floats(rein_arena *a, size_t n) {
    return rein_arena_take(a, n > SIZE_MAX / sizeof(float) / 4 ? SIZE_MAX : n * sizeof(float));
}

void rein_arena_reset(rein_arena *a) { a->current = a->used = 0, a->failed = 0; }

rein_mark rein_arena_mark(const rein_arena *a) { return (rein_mark){a->current, a->used}; }

void rein_arena_release(rein_arena *a, rein_mark mark) { a->current = mark.current, a->used = mark.used; }

void rein_arena_free(rein_arena *a) {
    for (size_t i = 0; i < a->n_chunks; i++) {
        rein_pages_free(a->chunks[i]->data, a->chunks[i]->size);
        free(a->chunks[i]);
    }
    free(a->chunks);
    *a = (rein_arena){0};
}

size_t rein_arena_bytes(const rein_arena *a) {
    size_t bytes = 0;
    for (size_t i = 0; i < a->n_chunks; i++) bytes += a->chunks[i]->size;
    return bytes;
}
