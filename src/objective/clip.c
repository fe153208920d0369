/* clip.c - the common case of the pass, written for speed; compiled per type and instruction set.
 *
 * One loop with all its sums in registers. A stretch of tokens has two halves, and each its own lanes: AVX-512 takes a vector of the others
 * from both at a time, which walk the first half and then the second. So every set adds up the same lanes in the same order. */
#define REIN_WIDE
#include "clip.h"

#include "exponentials.h"

enum { HALF = CLIP_UNIT / 2, AHEAD = (WIDE ? 64 : 8) << 10 }; /* bytes: three times as much is still little for a second cache */

/* So far ahead, and only into the second cache: nearer, or into the first, it did nothing or harm. It pays most where rows are padded. */
INLINE void ask_for(const real *from) { __builtin_prefetch((const void *)((uintptr_t)from + AHEAD), 0, 2); }

typedef struct constants {
    V edge, weight, pull_weight, bound, change_bound;
    U sign; /* bits to flip */
    near_constants near;
} constants;

typedef struct lane_sums {
    V change, log_ratio, excess, change_square, ref, ref_excess, low;
    M live; /* how often */
} lane_sums;
typedef struct far_sums {
    V log_ratio, excess, ratio, ratio_square;
    size_t n;
} far_sums;

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

/* The gradient of a vector with far tokens. Their ratio may be too small to be left in 1 + its change. */
static V far_vector(lane_sums *acc, far_sums *far, V d, V x, P any_near, P on, const constants *c) {
    const P near = in_near_halves(any_near);
    const exponentials a = near_exponentials(d, x, d * d, x * x, &c->near), b = far_exponentials(d, x, &c->near);
    const P off = (P)~near, counted = off & on, live = at_most((V)((U)choose(near, a.ratio, b.ratio) ^ c->sign), c->bound);
    far->log_ratio += only(off, d);
    far->excess += only(off, b.excess);
    far->ratio += only(counted, b.ratio);
    far->ratio_square = fmadd(only(counted, b.ratio), b.ratio, far->ratio_square);
    far->n += (size_t)__builtin_popcount(lanes_of(counted));
    acc->log_ratio += only(near, d);
    acc->excess += only(near, a.excess);
    acc->change_square = fmadd(only(near, a.change), a.change, acc->change_square);
    acc->change += only(live, choose(near, a.change, b.change));
    acc->live = count_in(acc->live, live);
    acc->ref += x;
    acc->ref_excess += choose(near, a.ref_excess, b.ref_excess);
    const V moved = choose(near, fmadd(a.change, c->weight, c->weight), b.ratio * c->weight);
    return fmadd(c->pull_weight, choose(near, a.pull, b.pull), only(live & on, moved));
}

/* Which lanes train: all; those that a mask marks; or, of a vector that is not whole, those that are tokens, with a mask or without. */
typedef enum masking { ALL, BY_MASK, PARTLY } masking;

/* Vectors from token `from` to `to`, HALF apart, whole ones or one that is not: `part` says. `early`: later tokens are asked for. Where
 * there are few registers the constants are read from memory each time, which may have changed as far as the compiler knows: else it would
 * keep them in registers, and the sums not. */
INLINE size_t walk(lane_sums *sums, far_sums *far, real *gradient, real *above, const rein_clip_tokens *t, const constants *c,
                   size_t from, size_t to, const extent part, const masking masked, const int early) {
    const real *const lp_from = t->lp, *const old_from = t->old, *const ref_from = t->ref ? t->ref : t->lp;
    const uint8_t *const mask = t->mask;
    lane_sums acc = *sums;
    size_t n_above = 0;
    if (masked == BY_MASK && !mask) __builtin_unreachable(); /* so that nobody asks again for every vector */
    if (!WIDE) __asm__("" : "+r"(c), "+r"(far));
    for (size_t i = from; i < to; i += HALF) {
        if (!WIDE) __asm__ volatile("" ::: "memory");
        const size_t line = WIDE ? 2 * i : i;
        if (early) ask_for(lp_from + line), ask_for(old_from + line), ask_for(ref_from + line);
        const P on = masked ? trained(mask, i, &part) : all_lanes();
        const V lp = take(lp_from + i, &part), any_d = lp - take(old_from + i, &part), any_x = take(ref_from + i, &part) - lp;
        const V counted = masked ? blank(on, any_d) : any_d;
        acc.low = least(counted, acc.low);
        n_above += compress(above + n_above, more_than(counted, c->edge), counted);
        const V d = masked ? only(on, any_d) : any_d, x = masked ? only(on, any_x) : any_x, d2 = d * d, x2 = x * x;
        const P near = are_near(d2, x2, &c->near);
        if (__builtin_expect(lanes_of(near) != lanes_of(all_lanes()), 0)) {
            lane_sums so_far = acc;
            give(gradient + i, far_vector(&so_far, far, d, x, near, on, c), &part);
            acc = so_far;
            continue;
        }
        const exponentials e = near_exponentials(d, x, d2, x2, &c->near);
        const P live = at_most((V)((U)e.change ^ c->sign), c->change_bound);
        const V moved = only(masked ? live & on : live, fmadd(e.change, c->weight, c->weight));
        give(gradient + i, fmadd(c->pull_weight, e.pull, moved), &part);
        acc.change += only(live, e.change);
        acc.live = count_in(acc.live, live);
        acc.log_ratio += d;
        acc.excess += e.excess;
        acc.change_square = fmadd(e.change, e.change, acc.change_square);
        acc.ref += x;
        acc.ref_excess += e.ref_excess;
    }
    *sums = acc;
    return n_above;
}

static constants constants_of(real edge, const rein_clip *c) {
    return (constants){splat(edge),
                       splat(c->weight),
                       splat(c->pull_weight),
                       splat(c->bound),
                       splat(c->change_bound),
                       (U)splat(c->sign) ^ (U)splat(1),
                       near_constants_of(c->kl_coef)};
}

/* Whole vectors from token `from` to `to`, then one that may not be; their sums are those of the lanes from `lane` on. */
static size_t walk_lanes(rein_clip_sums *sums, real *gradient, real *above, const rein_clip_tokens *t, const constants *c,
                         size_t lane, size_t from, size_t to, extent part) {
    const extent whole = {HALF, part.apart, HALF};
    const int more = part.n + part.n_apart > 0;
    lane_sums acc = {0};
    far_sums far = {0};
    acc.low = splat((real)INFINITY);
    size_t n = t->mask && t->vast ? walk(&acc, &far, gradient, above, t, c, from, to, whole, BY_MASK, 1)
               : t->mask          ? walk(&acc, &far, gradient, above, t, c, from, to, whole, BY_MASK, 0)
               : t->vast          ? walk(&acc, &far, gradient, above, t, c, from, to, whole, ALL, 1)
                                  : walk(&acc, &far, gradient, above, t, c, from, to, whole, ALL, 0);
    if (more) n += walk(&acc, &far, gradient, above + n, t, c, to, to + HALF, part, PARTLY, 0);
    store(sums->change + lane, acc.change, LANES);
    store(sums->log_ratio + lane, acc.log_ratio, LANES);
    store(sums->excess + lane, acc.excess, LANES);
    store(sums->change_square + lane, acc.change_square, LANES);
    store(sums->ref + lane, acc.ref, LANES);
    store(sums->ref_excess + lane, acc.ref_excess, LANES);
    store(sums->low + lane, acc.low, LANES);
    store(sums->far_log_ratio + lane, far.log_ratio, LANES);
    store(sums->far_excess + lane, far.excess, LANES);
    store(sums->far_ratio + lane, far.ratio, LANES);
    store(sums->far_ratio_square + lane, far.ratio_square, LANES);
    sums->far += far.n;
    const size_t vectors = (to - from) / HALF + (size_t)more;
    sums->held += vectors * LANES - add_counts(acc.live); /* lanes that do not train are live: they do not change */
    return n;
}

size_t KERNEL(rein_clip_walk)(rein_clip_sums *sums, real *gradient, real *above, real edge, const rein_clip_tokens *t,
                              const rein_clip *clip) {
    const constants c = constants_of(edge, clip);
    const size_t half = (t->n + HALF - 1) / HALF / 2 * HALF; /* whole vectors; the second half may be longer, and end in a part */
    const size_t rest = t->n - half, whole = rest / HALF * HALF;
    sums->far = sums->held = 0;
#if WIDE
    const size_t both = whole < half ? whole : half;
    return walk_lanes(sums, gradient, above, t, &c, 0, 0, both, (extent){half - both, half, rest - both});
#else
    const size_t n = walk_lanes(sums, gradient, above, t, &c, 0, 0, half, (extent){0, 0, 0});
    return n + walk_lanes(sums, gradient, above + n, t, &c, HALF, half, half + whole, (extent){rest - whole, 0, 0});
#endif
}
