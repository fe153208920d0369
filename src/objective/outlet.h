/* outlet.h - a gradient that goes past the caches, for steps that are larger than they are: nobody reads it soon, and what is overwritten
 * need not be read. Memory takes whole lines: the last one waits for what follows it. Private; for sources compiled per instruction set. */
#ifndef REIN_OBJECTIVE_OUTLET_H
#define REIN_OBJECTIVE_OUTLET_H

#include "../kernel/lanes.h"

enum { LINE = 64 / sizeof(real) }; /* a cache line's reals */

typedef struct outlet {
    real *to;                         /* where the line that waits belongs; it starts there */
    size_t n;                         /* how much of it there is */
    _Alignas(64) real line[2 * LINE]; /* the second half is for what is copied in vain */
} outlet;

/* What waits, and all that went before, is seen by others before what follows. */
static void settle(outlet *o) {
    if (o->n > 0) memcpy(o->to, o->line, o->n * sizeof *o->line);
    o->n = 0;
#ifdef __AVX2__
    _mm_sfence();
#endif
}

static void put_lines(real *to, const real *from, size_t n) {
#ifdef __AVX2__
    for (size_t i = 0; i < n; i += LANES) _mm256_stream_si256((__m256i *)(void *)(to + i), (__m256i)load(from + i, LANES));
#else
    memcpy(to, from, n * sizeof *to);
#endif
}

/* Of n reals, with a line of anything behind them: a copy whose length is known needs no guess. */
static void put(outlet *o, real *to, const real *from, size_t n) {
    const size_t into = (uintptr_t)to % 64 / sizeof *to, room = LINE - into, first = n < room ? n : room;
    if (o->n > 0 && o->to + o->n != to) settle(o);
    if (o->n == into) { /* the line is all ours */
        if (into == 0) o->to = to;
        memcpy(o->line + into, from, LINE * sizeof *to);
        o->n = into + first;
        if (o->n == LINE) put_lines(o->to, o->line, LINE), o->n = 0;
    } else {
        memcpy(to, from, first * sizeof *to);
    }
    if (first == n) return;
    const size_t whole_lines = (n - first) / LINE * LINE;
    put_lines(to + first, from + first, whole_lines);
    o->to = to + first + whole_lines;
    o->n = n - first - whole_lines;
    memcpy(o->line, from + first + whole_lines, LINE * sizeof *to);
}

static void put_zeros(outlet *o, real *to, size_t n) {
    enum { ZEROS = 4 * LINE };
    static const real zeros[ZEROS + LINE];
    for (size_t i = 0, step; i < n; i += step) {
        step = n - i < ZEROS ? n - i : ZEROS;
        put(o, to + i, zeros, step);
    }
}

#endif
