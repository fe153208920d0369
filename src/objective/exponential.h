/* exponential.h - e^x, e^x − 1 and e^x − 1 − x without cancellation. Private; for sources compiled per type and instruction set. */
#ifndef REIN_OBJECTIVE_EXPONENTIAL_H
#define REIN_OBJECTIVE_EXPONENTIAL_H

#include "../kernel/explog.h"

typedef struct exponential {
    V value, change, excess; /* e^x, e^x − 1, e^x − 1 − x */
} exponential;

/* Most log-ratios are near 0: a vector of them needs only a polynomial. */
INLINE exponential exponential_of(V x) {
    const V square = x * x;
    exponential e;
    if (__builtin_expect(all(square <= EXP_NEAR * EXP_NEAR), 1)) {
        const near_terms terms = near_terms_of();
        const V curve = near_curve(x, square, &terms);
        e.excess = square * curve;
        e.change = fmadd(square, curve, x);
        e.value = e.change + 1;
    } else {
        e.value = exp_excess(x, &e.excess);
        e.change =
            pick(magnitude(x) < (real)0.25, x + e.excess, e.value - 1); /* the first cancels far below 0, the second near 0 */
    }
    return e;
}

#endif
