/* pool.h - work cut into pieces, done by several threads. Private. */
#ifndef REIN_BASE_POOL_H
#define REIN_BASE_POOL_H

#include <stddef.h>

/* One piece; `thread` is in [0, threads) and no two pieces run on the same one at a time: it may index scratch. */
typedef void rein_work(void *context, size_t piece, int thread);

/* Runs work(context, piece, thread) for every piece in [0, pieces) and returns when all are done. Each thread takes a share of
 * neighbouring pieces, then pieces that others have not taken; so results may depend on `piece`, never on `thread`. Thread-safe: while
 * the threads are busy with another caller's work, and inside a piece, everything runs on the calling thread. The threads stay for the
 * next call and do not survive fork: a child starts its own. */
void rein_parallel(int threads, size_t pieces, rein_work *work, void *context);

/* How many cores this process may use; at most REIN_MAX_THREADS. */
int rein_cores(void);

#endif
