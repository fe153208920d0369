/* clip.c - the common case of the pass, written for speed; compiled per type and instruction set.
 *
 * One loop with all its sums in registers. A stretch of tokens has two halves, and each its own lanes: AVX-512 takes a vector of the others
 * from both at a time, which walk the first half and then the second. So every set adds up the same lanes in the same order. */
#define REIN_WIDE
#include "clip.h"

#include "exponentials.h"

enum { HALF = CLIP_UNIT / 2, AHEAD = (WIDE ? 64 : 3) << 10 }; /* bytes */

/* So far ahead, and with AVX-512 only into the second cache. It pays most where rows are padded. */
INLINE void ask_for(const real *from) { __builtin_prefetch((const void *)((uintptr_t)from + AHEAD), 0, WIDE ? 2 : 3); }

typedef struct constants {
    V edge, weight, pull_weight, bound, log_bound;
    V calm_square; /* where d² + y² is no more, d is near and not the smallest */
    U sign;        /* bits to flip */
    near_constants near;
} constants;

typedef struct lane_sums {
    V change, log_ratio, excess, change_square, ref, ref_excess;
} lane_sums;
typedef struct rare_sums {
    V low;
    V log_ratio, excess, ratio, ratio_square; /* of what is far */
    size_t far, live;
} rare_sums;

/* The tokens of a vector: n from where it starts, and with AVX-512 n_apart that start `apart` later. */
typedef struct extent {
    size_t n, apart, n_apart;
} extent;

#if WIDE
INLINE V take(const real *from, const extent *e) { return load_two(from, e->n, from + e->apart, e->n_apart); }
INLINE void give(real *to, V v, const extent *e) { store_two(to, e->n, to + e->apart, e->n_apart, v); }
INLINE P trained(const uint8_t *mask, size_t i, const extent *e) {
    return marked_two(mask ? mask + i : NULL, e->n, mask ? mask + i + e->apart : NULL, e->n_apart);
}
#else
INLINE V take(const real *from, const extent *e) { return load(from, e->n); }
INLINE void give(real *to, V v, const extent *e) { store(to, v, e->n); }
INLINE P trained(const uint8_t *mask, size_t i, const extent *e) { return load_mask(mask ? mask + i : NULL, e->n); }
#endif

/* Halves of a vector whose tokens are all near are near, the others far; without AVX-512 it has one. */
INLINE P in_near_halves(P near) {
#if WIDE
    const unsigned first = (1u << HALF) - 1, second = first << HALF;
    return (P)(((near & first) == first ? first : 0) | ((near & second) == second ? second : 0));
#else
    return near ^ near; /* not all of them are */
#endif
}

INLINE P within(V x, V bound, const constants *c) { return at_most((V)((U)x ^ c->sign), bound); }

/* The gradient of a vector with far tokens. Their ratio may be too small to be left in 1 + its change. */
static V far_vector(lane_sums *acc, rare_sums *rare, V counted, V d, V y, P any_near, P on, const constants *c) {
    const P near = in_near_halves(any_near), off = (P)~near, far = off & on;
    const V d2 = d * d, y2 = y * y;
    const near_exponentials a = near_exponentials_of(d, y, d2, y2, &c->near);
    const exponentials b = far_exponentials_of(d, y, &c->near);
    const P live = (near & within(counted, c->log_bound, c)) | (far & within(b.ratio, c->bound, c));
    rare->log_ratio += only(off, d);
    rare->excess += only(off, b.excess);
    rare->ratio += only(far, b.ratio);
    rare->ratio_square = fmadd(only(far, b.ratio), b.ratio, rare->ratio_square);
    rare->far += how_many(far);
    rare->live += how_many(live);
    acc->change += only(live, choose(near, a.change, b.change));
    acc->log_ratio += only(near, d);
    acc->excess = choose(near, fmadd(d2, a.curve, acc->excess), acc->excess);
    acc->change_square = fmadd(only(near, a.change), a.change, acc->change_square);
    acc->ref += y;
    acc->ref_excess = choose(near, fmadd(y2, a.ref_curve, acc->ref_excess), acc->ref_excess + b.ref_excess);
    const V moved = choose(near, fmadd(a.change, c->weight, c->weight), b.ratio * c->weight);
    return fmadd(c->pull_weight, choose(near, a.pull, b.pull), only(live, moved));
}

/* Which lanes train: all; those that a mask marks; or, of a vector that is not whole, those that are tokens, with a mask or without. */
typedef enum masking { ALL, BY_MASK, PARTLY } masking;

/* Vectors from token `from` to `to`, HALF apart, whole ones or one that is not: `part` says. `early`: later tokens are asked for. Where
 * there are few registers the constants are read from memory each time, which may have changed as far as the compiler knows: else it would
 * keep them in registers, and the sums not. What is live is decided by the log-ratio, which is there before the exponentials are. */
INLINE size_t walk(lane_sums *sums, rare_sums *rare, real *gradient, real *above, const rein_clip_tokens *t, const constants *c,
                   size_t from, size_t to, const extent part, const masking masked, const int early) {
    const real *const lp_from = t->lp, *const old_from = t->old, *const ref_from = t->ref ? t->ref : t->lp;
    const uint8_t *const mask = t->mask;
    lane_sums acc = *sums;
    size_t n_above = 0, live_ones = 0;
    if (masked == BY_MASK && !mask) __builtin_unreachable(); /* so that nobody asks again for every vector */
    if (!WIDE) __asm__("" : "+r"(c), "+r"(rare));
    for (size_t i = from; i < to; i += HALF) {
        if (!WIDE) __asm__ volatile("" ::: "memory");
        const size_t line = WIDE ? 2 * i : i;
        if (early) ask_for(lp_from + line), ask_for(old_from + line), ask_for(ref_from + line);
        const P on = masked ? trained(mask, i, &part) : all_lanes();
        const V lp = take(lp_from + i, &part), any_d = lp - take(old_from + i, &part), any_y = lp - take(ref_from + i, &part);
        const V counted = masked ? blank(on, any_d) : any_d;
        n_above += compress(above + n_above, more_than(counted, c->edge), counted);
        const V d = masked ? only(on, any_d) : any_d, y = masked ? only(on, any_y) : any_y, d2 = d * d, y2 = y * y;
        if (__builtin_expect(lanes_of(at_most(d2 + y2, c->calm_square)) != lanes_of(all_lanes()), 0)) {
            const P near = are_near(d2, y2, &c->near);
            rare->low = least(counted, rare->low);
            if (lanes_of(near) != lanes_of(all_lanes())) {
                lane_sums so_far = acc;
                give(gradient + i, far_vector(&so_far, rare, counted, d, y, near, on, c), &part);
                acc = so_far;
                continue;
            }
        }
        const P live = within(counted, c->log_bound, c);
        const V weight = only(live, c->weight);
        live_ones += how_many(live);
        const near_exponentials e = near_exponentials_of(d, y, d2, y2, &c->near);
        acc.change += only(live, e.change);
        give(gradient + i, fmadd(c->pull_weight, e.pull, fmadd(e.change, weight, weight)), &part);
        acc.log_ratio += d;
        acc.excess = fmadd(d2, e.curve, acc.excess);
        acc.change_square = fmadd(e.change, e.change, acc.change_square);
        acc.ref += y;
        acc.ref_excess = fmadd(y2, e.ref_curve, acc.ref_excess);
    }
    *sums = acc;
    rare->live += live_ones;
    return n_above;
}

/* What is lower than a low below 0 has a larger square, as both are rounded, or is so small that its ratio is 1. */
static constants constants_of(rein_clip_known known, const rein_clip *c) {
    const real square = known.low < 0 ? known.low * known.low : -1, near_square = EXP_NEAR * EXP_NEAR;
    return (constants){splat(known.edge),
                       splat(c->weight),
                       splat(c->pull_weight),
                       splat(c->bound),
                       splat(c->log_bound),
                       splat(square < near_square ? square : near_square),
                       (U)splat(c->sign) ^ (U)splat(1),
                       near_constants_of(c->kl_coef)};
}

/* Whole vectors from token `from` to `to`, then one that may not be; their sums are those of the lanes from `lane` on. */
static size_t walk_lanes(rein_clip_sums *sums, real *gradient, real *above, real low, const rein_clip_tokens *t, const constants *c,
                         size_t lane, size_t from, size_t to, extent part) {
    const extent whole = {HALF, part.apart, HALF};
    const V none = splat(0);
    lane_sums acc = {none, none, none, none, none, none};
    rare_sums rare = {splat(low), none, none, none, none, 0, 0};
    size_t n = t->mask && t->vast ? walk(&acc, &rare, gradient, above, t, c, from, to, whole, BY_MASK, 1)
               : t->mask          ? walk(&acc, &rare, gradient, above, t, c, from, to, whole, BY_MASK, 0)
               : t->vast          ? walk(&acc, &rare, gradient, above, t, c, from, to, whole, ALL, 1)
                                  : walk(&acc, &rare, gradient, above, t, c, from, to, whole, ALL, 0);
    if (part.n + part.n_apart > 0) n += walk(&acc, &rare, gradient, above + n, t, c, to, to + HALF, part, PARTLY, 0);
    store(sums->change + lane, acc.change, LANES);
    store(sums->log_ratio + lane, acc.log_ratio, LANES);
    store(sums->excess + lane, acc.excess, LANES);
    store(sums->change_square + lane, acc.change_square, LANES);
    store(sums->ref + lane, acc.ref, LANES);
    store(sums->ref_excess + lane, acc.ref_excess, LANES);
    store(sums->low + lane, rare.low, LANES);
    store(sums->far_log_ratio + lane, rare.log_ratio, LANES);
    store(sums->far_excess + lane, rare.excess, LANES);
    store(sums->far_ratio + lane, rare.ratio, LANES);
    store(sums->far_ratio_square + lane, rare.ratio_square, LANES);
    sums->far += rare.far;
    sums->live += rare.live;
    return n;
}

size_t KERNEL(rein_clip_walk)(rein_clip_sums *sums, real *gradient, real *above, rein_clip_known known, const rein_clip_tokens *t,
                              const rein_clip *clip) {
    const constants c = constants_of(known, clip);
    const size_t half = (t->n + HALF - 1) / HALF / 2 * HALF; /* whole vectors; the second half may be longer, and end in a part */
    const size_t rest = t->n - half, whole = rest / HALF * HALF;
    sums->far = sums->live = 0;
#if WIDE
    const size_t both = whole < half ? whole : half;
    return walk_lanes(sums, gradient, above, known.low, t, &c, 0, 0, both, (extent){half - both, half, rest - both});
#else
    const size_t n = walk_lanes(sums, gradient, above, known.low, t, &c, 0, 0, half, (extent){0, 0, 0});
    return n + walk_lanes(sums, gradient, above + n, known.low, t, &c, HALF, half, half + whole, (extent){rest - whole, 0, 0});
#endif
}
