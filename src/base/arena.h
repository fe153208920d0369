/* arena.h - memory that is taken piece by piece and given back all at once. Private.
 *
 * The pages are kept and used again: a training step that takes what the step before took causes no page fault. */
#ifndef REIN_BASE_ARENA_H
#define REIN_BASE_ARENA_H

#include <stddef.h>

typedef struct rein_chunk rein_chunk;

/* {0} is empty. One thread at a time. */
typedef struct rein_arena {
    rein_chunk **chunks;
    size_t n_chunks, capacity;
    size_t current; /* the chunk that is being used */
    size_t used;    /* bytes of it */
    int failed;     /* something could not be had; stays until the arena is reset */
} rein_arena;

/* `bytes` of memory at a multiple of 64, whatever was in it; NULL, and failed is set, when there is none. */
void *rein_arena_take(rein_arena *arena, size_t bytes);

/* The same for n floats. */
float *rein_arena_floats(rein_arena *arena, size_t n);

/* Everything is free again, the pages stay. */
void rein_arena_reset(rein_arena *arena);

/* A place to go back to: what was taken after it is free again. */
typedef struct rein_mark {
    size_t current, used;
} rein_mark;
rein_mark rein_arena_mark(const rein_arena *arena);
void rein_arena_release(rein_arena *arena, rein_mark mark);

/* The pages go back to the system; harmless on {0}. */
void rein_arena_free(rein_arena *arena);

/* Zeros of one's own, at the start of a page: huge pages where the system has them, each there once it is touched. NULL when there are
 * none. To be given back with the same size; NULL is harmless. */
void *rein_pages_take(size_t bytes);
void rein_pages_free(void *pages, size_t bytes);

/* Bytes of pages it holds. */
size_t rein_arena_bytes(const rein_arena *arena);

#endif
