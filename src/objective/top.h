/* top.h - the largest ratios of a step: as much of a histogram as its 99th percentile needs. Private.
 *
 * Bins of log R, in steps of 1/64 from −20 to 20: half a step is 0.8 %. The percentile is the wanted-th largest ratio. Once so many of a
 * thread's own ratios lie in bins >= floor, it lies there too: bins up to the floor need no more counting, and soon most tokens are
 * passed over. What is read of the histogram is exact whatever the threads, the micro-batches and the order. */
#ifndef REIN_OBJECTIVE_TOP_H
#define REIN_OBJECTIVE_TOP_H

#include <stddef.h>
#include <stdint.h>

enum { TOP_STEPS = 64, TOP_RANGE = 20, TOP_BINS = 2 * TOP_RANGE * TOP_STEPS + 1 };

typedef struct rein_top {
    uint32_t count[TOP_BINS]; /* the lowest bin also takes lanes that hold nothing: read from the top */
    size_t wanted;
    size_t fresh; /* counted since the floor was last looked at */
    int floor;    /* −1: every bin counts */
} rein_top;

/* The wanted-th largest of n is their 99th percentile: 1 % of them are larger. */
static inline size_t rein_top_wanted(size_t n) { return n - (size_t)(0.99 * (double)n) + 1; }

/* Log-ratios below it need no counting. */
static inline double rein_top_edge(const rein_top *t) {
    return t->floor < 0 ? -HUGE_VAL : (double)t->floor / TOP_STEPS - TOP_RANGE + 0.5 / TOP_STEPS;
}

/* Raises the floor as far as the counts allow; now and then, because it walks the bins. */
static inline void rein_top_raise(rein_top *t) {
    size_t above = 0;
    int bin = TOP_BINS;
    if (t->fresh < t->wanted / 8 + 2048) return;
    t->fresh = 0;
    while (bin > t->floor + 1 && above < t->wanted) above += t->count[--bin];
    if (above >= t->wanted) t->floor = bin;
}

#endif
