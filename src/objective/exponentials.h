/* exponentials.h - the two ratios of a token and what is left of them without their first terms. Private; for sources compiled per
 * instruction set. */
#ifndef REIN_OBJECTIVE_EXPONENTIALS_H
#define REIN_OBJECTIVE_EXPONENTIALS_H

#include "../kernel/explog.h"

/* Of d = lp − old and x = ref − lp: e^d, e^d − 1, e^d − 1 − d, e^x − 1, e^x − 1 − x. Tokens that are near, most of them, take few
 * operations. */
typedef struct exponentials {
    V ratio, change, excess, pull, ref_excess;
} exponentials;
typedef struct near_constants {
    V near_square, one;
    near_terms terms;
    M pulls; /* whether e^x − 1 is needed: 0 times an infinite one would be a NaN */
} near_constants;

static inline near_constants near_constants_of(double kl_coef) {
    return (near_constants){splat(EXP_NEAR * EXP_NEAR), splat(1), near_terms_of(), splat(kl_coef != 0) != 0};
}

INLINE P are_near(V d2, V x2, const near_constants *c) { return at_most(d2 + x2, c->near_square); }

INLINE exponentials near_exponentials(V d, V x, V d2, V x2, const near_constants *c) {
    exponentials e;
    e.change = expm1_near(d, d2, &e.excess, &c->terms);
    e.ratio = e.change + c->one;
    e.pull = expm1_near(x, x2, &e.ref_excess, &c->terms);
    return e;
}

/* e^x − 1 of e^x and e^x − 1 − x: one of them cancels near 0, the other far below. */
INLINE V expm1_of(V x, V power, V excess) { return pick(magnitude(x) < (real)0.25, x + excess, power - 1); }

INLINE exponentials far_exponentials(V d, V x, const near_constants *c) {
    exponentials e;
    e.ratio = exp_excess(d, &e.excess);
    e.change = expm1_of(d, e.ratio, e.excess);
    const V ref_ratio = exp_excess(x, &e.ref_excess);
    e.pull = keep(c->pulls, expm1_of(x, ref_ratio, e.ref_excess));
    return e;
}

#endif
