/* exponentials.h - the two ratios of a token and what is left of them without their first terms. Private; for sources compiled per
 * instruction set. */
#ifndef REIN_OBJECTIVE_EXPONENTIALS_H
#define REIN_OBJECTIVE_EXPONENTIALS_H

#include "../kernel/explog.h"

/* Of d = lp − old and y = lp − ref: e^d, e^d − 1, e^d − 1 − d, e^−y − 1, e^−y − 1 + y. Tokens that are near, most of them, take few
 * operations, and fewer where what is left may stay a curve times d² or y². */
typedef struct exponentials {
    V ratio, change, excess, pull, ref_excess;
} exponentials;
typedef struct near_exponentials {
    V curve, change, ref_curve, pull;
} near_exponentials;
typedef struct near_constants {
    V near_square, one;
    near_terms terms;
    M pulls; /* whether e^−y − 1 is needed: 0 times an infinite one would be a NaN */
} near_constants;

static inline near_constants near_constants_of(double kl_coef) {
    return (near_constants){splat(EXP_NEAR * EXP_NEAR), splat(1), near_terms_of(), splat(kl_coef != 0) != 0};
}

INLINE P are_near(V d2, V y2, const near_constants *c) { return at_most(d2 + y2, c->near_square); }

INLINE near_exponentials near_exponentials_of(V d, V y, V d2, V y2, const near_constants *c) {
    const V even = in_register(c->terms.c[LAST_EVEN]), odd = in_register(c->terms.c[LAST_ODD]); /* read once for both */
    const near_parts p = near_parts_of(d2, even, odd, &c->terms), q = near_parts_of(y2, even, odd, &c->terms);
    near_exponentials e;
    e.curve = fmadd(p.odd, d, p.even);
    e.ref_curve = fnmadd(q.odd, y, q.even);
    e.change = fmadd(d2, e.curve, d);
    e.pull = fmsub(y2, e.ref_curve, y);
    return e;
}

/* e^x − 1 of e^x and e^x − 1 − x: one of them cancels near 0, the other far below. */
INLINE V expm1_of(V x, V power, V excess) { return pick(magnitude(x) < (real)0.25, x + excess, power - 1); }

INLINE exponentials far_exponentials_of(V d, V y, const near_constants *c) {
    exponentials e;
    e.ratio = exp_excess(d, &e.excess);
    e.change = expm1_of(d, e.ratio, e.excess);
    const V ref_ratio = exp_excess(-y, &e.ref_excess);
    e.pull = keep(c->pulls, expm1_of(-y, ref_ratio, e.ref_excess));
    return e;
}

/* Of a vector whose tokens are all near, or are not. */
INLINE exponentials exponentials_of(V d, V y, const near_constants *c) {
    const V d2 = d * d, y2 = y * y;
    if (__builtin_expect(lanes_of(are_near(d2, y2, c)) != lanes_of(all_lanes()), 0)) return far_exponentials_of(d, y, c);
    const near_exponentials e = near_exponentials_of(d, y, d2, y2, c);
    return (exponentials){e.change + c->one, e.change, d2 * e.curve, e.pull, y2 * e.ref_curve};
}

#endif
