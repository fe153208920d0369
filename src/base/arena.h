/* arena.h - memory that is allocated piece by piece and freed all at once. Private.
 *
 * The pages are kept and used again: a training step that allocates what the step before allocated causes no page fault. */
#ifndef REIN_BASE_ARENA_H
#define REIN_BASE_ARENA_H

#include <stddef.h>

typedef struct rein_chunk rein_chunk;

/* {0} is empty. One thread at a time. */
typedef struct rein_arena {
    rein_chunk **chunks;
    size_t n_chunks, capacity;
    size_t current; /* the chunk in use */
    size_t used;    /* bytes of it */
    int failed;     /* an allocation failed; stays until the arena is reset */
    int measures;   /* 1: nothing is allocated, `used` is what would be. Pointers are not NULL, and may not be read or written */
} rein_arena;

/* Uninitialised memory, aligned to 64 bytes; NULL, and `failed` is set, when there is none. */
void *rein_arena_take(rein_arena *arena, size_t bytes);

/* The same for n floats. */
float *rein_arena_floats(rein_arena *arena, size_t n);

/* Frees everything; the pages stay for the next use. */
void rein_arena_reset(rein_arena *arena);

/* A mark to return to: what was allocated after it is freed. */
typedef struct rein_mark {
    size_t current, used;
} rein_mark;
rein_mark rein_arena_mark(const rein_arena *arena);
void rein_arena_release(rein_arena *arena, rein_mark mark);

/* Returns the pages to the system; harmless on {0}. */
void rein_arena_free(rein_arena *arena);

/* Zeroed, page-aligned memory, in huge pages where the system has them; a page is allocated when it is first touched. NULL when there is
 * no memory. Freed with the same size; NULL is harmless. */
void *rein_pages_take(size_t bytes);
void rein_pages_free(void *pages, size_t bytes);

/* The bytes of its pages. */
size_t rein_arena_bytes(const rein_arena *arena);

#endif
