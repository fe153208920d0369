/* scratch.h - memory for the length of a call, kept for the next call of the thread. Private. Thread-safe.
 *
 * Pages that are fresh have to be found and cleared: for work that is over when memory has been read once, that is a good part of the
 * time. Beyond REIN_SCRATCH_KEPT bytes nothing is kept. */
#ifndef REIN_BASE_SCRATCH_H
#define REIN_BASE_SCRATCH_H

#include <stddef.h>

enum { REIN_SCRATCH_KEPT = 64 << 20 };

/* At least `bytes`, aligned as malloc does, for rein_scratch_give; NULL when there is no memory. */
void *rein_scratch_take(size_t bytes);

/* From the thread that took it. NULL is nothing. */
void rein_scratch_give(void *memory);

#endif
