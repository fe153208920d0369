/* clock.h - how long things take. Private. */
#ifndef REIN_BASE_CLOCK_H
#define REIN_BASE_CLOCK_H

#include <time.h>

static inline double rein_seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds since a fixed moment; never decreases. */
static inline double rein_now(void) { return rein_seconds(CLOCK_MONOTONIC); }

#endif
