/* clip.c - the common case of the pass, written for speed; compiled per type and instruction set.
 *
 * One loop with all its sums in registers. A unit of tokens is one vector of AVX-512 and two of the others, which walk the first half of
 * every unit and then the second: so every set adds up the same lanes in the same order. */
#define REIN_WIDE
#include "clip.h"

#include "exponentials.h"

enum { HALF = CLIP_UNIT / 2, AHEAD = (WIDE ? 64 : 8) << 10 }; /* bytes: three times as much is still little for a second cache */

/* So far ahead, and only into the second cache: nearer, or into the first, it did nothing or harm. It pays most where rows are padded. */
INLINE void ask_for(const real *from) { __builtin_prefetch((const void *)((uintptr_t)from + AHEAD), 0, 2); }

typedef struct constants {
    V edge, weight, pull_weight, bound;
    U sign; /* bits to flip */
    near_constants near;
} constants;

typedef struct lane_sums {
    V change, log_ratio, excess, ratio_square, ref, ref_excess, low;
    M live; /* how often */
} lane_sums;
typedef struct far_sums {
    V log_ratio, excess, ratio;
    size_t n;
} far_sums;

/* Half units whose tokens are all near are near, the others far: a vector of AVX-512 has two of them. */
INLINE P in_near_halves(P near) {
#if WIDE
    const unsigned first = (1u << HALF) - 1, second = first << HALF;
    return (P)(((near & first) == first ? first : 0) | ((near & second) == second ? second : 0));
#else
    return near ^ near; /* not all of them are */
#endif
}

static exponentials exponentials_of(V d, V x, P near, const near_constants *c) {
    const exponentials a = near_exponentials(d, x, d * d, x * x, c), b = far_exponentials(d, x, c);
    return (exponentials){choose(near, a.ratio, b.ratio), choose(near, a.change, b.change), choose(near, a.excess, b.excess),
                          choose(near, a.pull, b.pull), choose(near, a.ref_excess, b.ref_excess)};
}

static void keep_apart(far_sums *far, V d, const exponentials *e, P far_lanes, P on) {
    far->log_ratio += only(far_lanes, d);
    far->excess += only(far_lanes, e->excess);
    far->ratio += only(far_lanes & on, e->ratio);
    far->n += (size_t)__builtin_popcount(lanes_of(far_lanes & on));
}

/* Vectors from token `from` to `to`, a unit apart; when not `whole_vectors`, one whose tokens end before its lanes do. `early`: later
 * tokens are asked for. Where there are few registers the constants are read from memory each time, which may have changed as far as the
 * compiler knows: else it would keep them in registers, and the sums not. */
INLINE size_t walk(lane_sums *sums, far_sums *far, real *gradient, real *above, const rein_clip_tokens *t, const constants *c,
                   size_t from, size_t to, const int masked, const int whole_vectors, const int early) {
    const real *const lp_from = t->lp, *const old_from = t->old, *const ref_from = t->ref ? t->ref : t->lp;
    const uint8_t *const mask = t->mask;
    lane_sums acc = *sums;
    size_t n_above = 0;
    if (!WIDE) __asm__("" : "+r"(c), "+r"(far));
    for (size_t i = from; i < to; i += CLIP_UNIT) {
        if (!WIDE) __asm__ volatile("" ::: "memory");
        if (early) ask_for(lp_from + i), ask_for(old_from + i), ask_for(ref_from + i);
        const size_t left = whole_vectors ? LANES : to - i;
        const P on = !masked ? all_lanes() : marked(whole_vectors || mask ? mask + i : NULL, left);
        const V lp = load(lp_from + i, left), any_d = lp - load(old_from + i, left), any_x = load(ref_from + i, left) - lp;
        const V trained = masked ? blank(on, any_d) : any_d;
        acc.low = least(trained, acc.low);
        n_above += compress(above + n_above, more_than(trained, c->edge), trained);
        const V d = masked ? only(on, any_d) : any_d, x = masked ? only(on, any_x) : any_x, d2 = d * d, x2 = x * x;
        const P near = are_near(d2, x2, &c->near);
        exponentials e;
        V near_d = d, near_excess;
        if (__builtin_expect(lanes_of(near) == lanes_of(all_lanes()), 1)) {
            e = near_exponentials(d, x, d2, x2, &c->near);
            near_excess = e.excess;
        } else {
            const P near_lanes = in_near_halves(near);
            e = exponentials_of(d, x, near_lanes, &c->near);
            keep_apart(far, d, &e, (P)~near_lanes, on);
            near_d = only(near_lanes, d), near_excess = only(near_lanes, e.excess);
        }
        const P live = at_most((V)((U)e.ratio ^ c->sign), c->bound);
        const V moved = only(masked ? live & on : live, e.ratio * c->weight);
        store(gradient + i, fmadd(c->pull_weight, e.pull, moved), left);
        acc.change += only(live, e.change);
        acc.live = count_in(acc.live, live);
        acc.log_ratio += near_d;
        acc.excess += near_excess;
        acc.ratio_square = fmadd(masked ? only(on, e.ratio) : e.ratio, e.ratio, acc.ratio_square);
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
                       (U)splat(c->sign) ^ (U)splat(1),
                       near_constants_of(c->kl_coef)};
}

/* The lanes from `first` on of every unit. */
static size_t walk_lanes(rein_clip_sums *sums, real *gradient, real *above, const rein_clip_tokens *t, const constants *c,
                         size_t first) {
    const size_t vectors = t->n > first ? (t->n - first + CLIP_UNIT - 1) / CLIP_UNIT : 0, last = first + vectors * CLIP_UNIT;
    const size_t end = vectors == 0 || last - CLIP_UNIT + LANES <= t->n ? last : last - CLIP_UNIT; /* of whole ones */
    lane_sums acc = {0};
    far_sums far = {0};
    acc.low = splat((real)INFINITY);
    const int early = t->vast && first == 0; /* a unit is a cache line */
    size_t n = t->mask && early ? walk(&acc, &far, gradient, above, t, c, first, end, 1, 1, 1)
               : t->mask        ? walk(&acc, &far, gradient, above, t, c, first, end, 1, 1, 0)
               : early          ? walk(&acc, &far, gradient, above, t, c, first, end, 0, 1, 1)
                                : walk(&acc, &far, gradient, above, t, c, first, end, 0, 1, 0);
    if (end < last) n += walk(&acc, &far, gradient, above + n, t, c, end, t->n, 1, 0, 0);
    store(sums->change + first, acc.change, LANES);
    store(sums->log_ratio + first, acc.log_ratio, LANES);
    store(sums->excess + first, acc.excess, LANES);
    store(sums->ratio_square + first, acc.ratio_square, LANES);
    store(sums->ref + first, acc.ref, LANES);
    store(sums->ref_excess + first, acc.ref_excess, LANES);
    store(sums->low + first, acc.low, LANES);
    store(sums->far_log_ratio + first, far.log_ratio, LANES);
    store(sums->far_excess + first, far.excess, LANES);
    store(sums->far_ratio + first, far.ratio, LANES);
    sums->far += far.n;
    sums->held += vectors * LANES - add_counts(acc.live); /* lanes that do not train are live: their ratio is 1 */
    return n;
}

size_t KERNEL(rein_clip_walk)(rein_clip_sums *sums, real *gradient, real *above, real edge, const rein_clip_tokens *t,
                              const rein_clip *clip) {
    const constants c = constants_of(edge, clip);
    size_t n = 0;
    sums->far = sums->held = 0;
    for (size_t first = 0; first < CLIP_UNIT; first += LANES) n += walk_lanes(sums, gradient, above + n, t, &c, first);
    return n;
}
