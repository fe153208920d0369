/* top.h - the largest ratios of a step: as much of a histogram as its 99th percentile needs. Private.
 *
 * Bins of log R, in steps of 1/64 from −20 to 20: half a step is 0.8 %. The percentile is the wanted-th largest ratio. Once so many of
 * the ratios seen lie in bins >= floor, it lies there too: bins up to the floor need no more counting, and soon most tokens are passed
 * over. What is read of the histogram is exact whatever the threads, the micro-batches and the order. */
#ifndef REIN_OBJECTIVE_TOP_H
#define REIN_OBJECTIVE_TOP_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Neighbours count in different ways: most ratios fall into few bins, and one increment of a number waits for the last. Few tokens have few
 * ways: clearing the others would take longer than the tokens do. */
enum { TOP_STEPS = 64, TOP_RANGE = 20, TOP_BINS = 2 * TOP_RANGE * TOP_STEPS + 1, TOP_SHIFT = 3 };

typedef struct rein_top {
    const struct rein_top *team; /* those of all threads; they are looked at while they count, and then never too large */
    int n_team;
    double low, high; /* the smallest and the largest log-ratio that the thread has seen */
    size_t wanted;
    size_t fresh;                                       /* counted since the floor was last looked at */
    int floor;                                          /* −1: every bin counts */
    int end;                                            /* none of the thread's lies in this bin or above */
    unsigned shift;                                     /* there are 1 << shift ways */
    _Alignas(64) uint32_t count[TOP_BINS << TOP_SHIFT]; /* [bin][way]; the lowest bin also takes lanes that hold nothing */
} rein_top;

/* The wanted-th largest of n is their 99th percentile: 1 % of them are larger. */
static inline size_t rein_top_wanted(size_t n) { return n - (size_t)(0.99 * (double)n) + 1; }

/* Nothing seen yet, of a step with so many tokens that train. */
static inline void rein_top_begin(rein_top *t, size_t tokens, const rein_top *team, int n_team) {
    const unsigned shift = tokens < 1 << 17 ? 1 : TOP_SHIFT;
    memset(t, 0, offsetof(rein_top, count) + ((size_t)TOP_BINS << shift) * sizeof *t->count);
    t->wanted = rein_top_wanted(tokens);
    t->shift = shift;
    t->floor = -1;
    t->low = HUGE_VAL, t->high = -HUGE_VAL;
    t->team = team, t->n_team = n_team;
}

/* Log-ratios below it need no counting. */
static inline double rein_top_edge(const rein_top *t) {
    return t->floor < 0 ? -HUGE_VAL : (double)t->floor / TOP_STEPS - TOP_RANGE + 0.5 / TOP_STEPS;
}

/* One more at a place, the bin << shift and a way; the only writer is the thread whose top it is. */
static inline void rein_top_add(rein_top *t, size_t place) {
    __atomic_store_n(&t->count[place], t->count[place] + 1, __ATOMIC_RELAXED);
}

/* The thread has seen a log-ratio as large as that. */
static inline void rein_top_reach(rein_top *t, double high) {
    if (!(high > t->high)) return;
    t->high = high;
    const double bin = (high + TOP_RANGE) * TOP_STEPS + 2;
    __atomic_store_n(&t->end, bin < TOP_BINS ? (bin > 0 ? (int)bin : 0) : TOP_BINS, __ATOMIC_RELAXED);
}

/* How many of all threads' lie in a bin. */
static inline size_t rein_top_count(const rein_top *team, int n_team, int bin) {
    size_t n = 0;
    for (int t = 0; t < n_team; t++)
        for (size_t way = 0; way >> team[t].shift == 0; way++)
            n += __atomic_load_n(&team[t].count[((size_t)bin << team[t].shift) + way], __ATOMIC_RELAXED);
    return n;
}

/* Raises the floor as far as the counts allow; now and then, because it walks the bins. */
static inline void rein_top_raise(rein_top *t) {
    size_t above = 0;
    int bin = 0;
    if (t->fresh < t->wanted / 8 + 2048) return;
    t->fresh = 0;
    for (int i = 0; i < t->n_team; i++) {
        const int end = __atomic_load_n(&t->team[i].end, __ATOMIC_RELAXED);
        bin = end > bin ? end : bin;
    }
    while (bin > t->floor + 1 && above < t->wanted) above += rein_top_count(t->team, t->n_team, --bin);
    if (above >= t->wanted) t->floor = bin;
}

#endif
