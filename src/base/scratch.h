/* scratch.h - memory for the length of a call, kept for the next call of the thread. Private. Thread-safe.
 *
 * The system has to find and clear fresh pages, which takes a good part of the time of work that reads its memory once. Nothing is kept
 * beyond REIN_SCRATCH_KEPT bytes. */
#ifndef REIN_BASE_SCRATCH_H
#define REIN_BASE_SCRATCH_H

#include <stddef.h>

enum { REIN_SCRATCH_KEPT = 64 << 20 };

/* At least `bytes`, aligned as malloc does, for rein_scratch_give; NULL when there is no memory. */
void *rein_scratch_take(size_t bytes);

/* Called by the thread that took it. NULL is fine. */
void rein_scratch_give(void *memory);

#endif
