/* pass.c - one pass over the tokens: loss = Σ weight·(ω·ℓ + β·k − c·H), its gradient, and the metrics.
 *
 * Compiled per type and instruction set. A sequence is walked in tiles of a fixed size from its first trained token, lanes are added in a fixed
 * order: what a sequence gives depends on nothing but the sequence. Masked lanes are cut out of the bits (keep), never multiplied by 0. */
#include "pass.h"

#include "clip.h"
#include "exponentials.h"
#include "kl.h"
#include "outlet.h"
#include "ratio.h"
#include "surrogate.h"

enum { TILE = 128 * LANES };

/* The arrays of the pass as reals. */
typedef struct arrays {
    const real *lp, *stop, *old, *ref, *samp, *src, *entropy, *token_advantage;
    real *grad, *grad_entropy, *advantage;
} arrays;

static arrays arrays_of(const rein_pass *p) {
    return (arrays){p->log_probs, p->stop_log_probs,   p->old_log_probs,  p->ref_log_probs,  p->sample_log_probs, p->kl_source,
                    p->entropies, p->token_advantages, p->grad_log_probs, p->grad_entropies, p->advantages};
}

/* Sums over the sequence that its tokens need: a first walk, only for compositions that have such a thing. */
static void survey(sequence *s, const rein_pass *p, const arrays *a, const constants *k) {
    const rein_options *o = p->options;
    const int gmpo = o->surrogate == REIN_SURROGATE_GMPO;
    double d_sum = 0, stop_sum = 0, clipped_sum = 0, mismatch_sum = 0, drift_sum = 0;
    for (size_t i = 0; i < s->length; i += LANES) {
        const size_t at = s->start + i, left = s->length - i;
        const M on = load_mask(p->mask ? p->mask + at : NULL, left);
        V lp = load(a->lp + at, left), stop = load(a->stop + at, left), old = a->old ? load(a->old + at, left) : stop, d = lp - old;
        d_sum += add_lanes(keep(on, d));
        stop_sum += add_lanes(keep(on, stop - old));
        if (gmpo) {
            M live;
            clipped_sum += add_lanes(keep(on, gmpo_clip(d, splat(s->advantage), k, &live)));
        }
        if (a->samp) {
            V samp = load(a->samp + at, left);
            mismatch_sum += add_lanes(keep(on, old - samp));
            drift_sum += add_lanes(keep(on, samp - stop));
        }
    }
    const double n = (double)s->trained;
    s->sum_log_ratio = (real)d_sum;
    s->mean_log_ratio = (real)(d_sum / n);
    s->stop_sum_log_ratio = (real)stop_sum;
    s->stop_mean_log_ratio = (real)(stop_sum / n);
    s->geometric_mean = exp_lanes(splat((real)(clipped_sum / n)))[0];
    if (o->mismatch == REIN_MISMATCH_SEQUENCE_TIS || o->mismatch == REIN_MISMATCH_SEQUENCE_MASK)
        s->mismatch = mismatch_weight(exp_lanes(splat((real)mismatch_sum)), o)[0];
    s->off_policy = drift_sum / n > o->off_policy_mask_delta;
}

static int needs_survey(const rein_options *o) {
    return o->ratio != REIN_RATIO_TOKEN || o->surrogate == REIN_SURROGATE_GMPO || o->mismatch >= REIN_MISMATCH_SEQUENCE_TIS ||
           !isnan(o->off_policy_mask_delta);
}

/* Lane sums of a tile: those of every composition, and those that only some have. */
typedef struct lane_sums {
    V objective, log_ratio, excess, ratio_square, ref, ref_excess;
} lane_sums;
typedef struct other_sums {
    V ratio, kl, shared, check;
    M held_low, held_high;
} other_sums;

INLINE void add_to(double *sum, V lanes, double factor) {
    for (int l = 0; l < LANES; l += 4) {
        F four;
        D to;
        memcpy(&four, (const char *)&lanes + (size_t)l * sizeof(real), sizeof four);
        memcpy(&to, sum + l, sizeof to);
        to += factor * to_doubles(four);
        memcpy(sum + l, &to, sizeof to);
    }
}

INLINE void add_count(double *sum, M lanes) { /* a set lane is −1 */
    for (int l = 0; l < LANES; l++) sum[l] -= (double)lanes[l];
}

/* A tile's inputs, from its first token on. */
typedef struct tile_inputs {
    const real *lp, *stop, *old, *ref, *samp, *src, *entropy, *token_advantage;
    const uint8_t *mask;
    size_t n; /* whole vectors */
} tile_inputs;

INLINE tile_inputs body_of(const arrays *a, const uint8_t *mask, size_t at, size_t n) {
#define FROM(x) a->x ? a->x + at : NULL
    return (tile_inputs){FROM(lp),
                         FROM(stop),
                         FROM(old),
                         FROM(ref),
                         FROM(samp),
                         FROM(src),
                         FROM(entropy),
                         FROM(token_advantage),
                         mask ? mask + at : NULL,
                         n};
#undef FROM
}

/* The last vector of a sequence, padded: past the end nothing trains. */
typedef struct tail_vector {
    V value[8];
    uint8_t mask[LANES];
} tail_vector;

static tile_inputs tail_of(tail_vector *pad, const arrays *a, const uint8_t *mask, size_t at, size_t n) {
    const real *from[8] = {a->lp, a->stop, a->old, a->ref, a->samp, a->src, a->entropy, a->token_advantage};
    const real *to[8] = {NULL};
    for (int i = 0; i < 8; i++) {
        if (!from[i]) continue;
        to[i] = (const real *)&pad->value[i];
        pad->value[i] = load(from[i] + at, n);
    }
    for (size_t l = 0; l < LANES; l++) pad->mask[l] = l < n && (!mask || mask[at + l]);
    if (a->stop == a->lp) to[1] = to[0];
    return (tile_inputs){to[0], to[1], to[2], to[3], to[4], to[5], to[6], to[7], pad->mask, LANES};
}

/* The log-ratios seen by a thread: the smallest, and those that may be the 99th percentile or the largest. These wait until they are
 * many: counting a few costs nearly as much. A NaN is none. */
enum { MANY = TILE / 4 };
typedef struct extremes {
    V low, edge; /* what is not above the edge is neither */
    real lowest; /* of the lanes of low */
    size_t n;
    real waiting[MANY + TILE + CLIP_UNIT];
} extremes;

static void look_above(extremes *seen, const rein_top *top) {
    const real edge = NEXT_BELOW((real)rein_top_edge(top)), high = (real)top->high;
    seen->edge = splat(edge < high ? edge : high);
    seen->n = 0;
}

/* A tile's smallest, most often no smaller than what was seen. */
static void see_low(extremes *seen, V low) {
    if (all(low >= seen->lowest)) return;
    seen->low = least(low, seen->low);
    for (int l = 0; l < LANES; l++) seen->lowest = low[l] < seen->lowest ? low[l] : seen->lowest;
}

static void count(extremes *seen, rein_top *top) {
    const V edge = splat(TOP_RANGE), steps = splat(TOP_STEPS), zero = splat(ROUNDER + TOP_RANGE * TOP_STEPS);
    const U ways = (U)(lane_numbers() & (whole)((1 << top->shift) - 1));
    V high = splat((real)-INFINITY);
    store(seen->waiting + seen->n, splat((real)NAN), LANES); /* a NaN falls into the lowest bin */
    for (size_t i = 0; i < seen->n; i += LANES) {
        const V x = load(seen->waiting + i, LANES);
        U place = (((U)fmadd(clamp(x, -edge, edge), steps, zero) - (U)splat(ROUNDER)) << top->shift) + ways;
        __asm__("" : "+m"(place)); /* through memory: a load a lane is cheaper than an extraction a lane */
        high = most(x, high);
#pragma GCC unroll 8
        for (size_t l = 0; l < LANES; l++) rein_top_add(top, place[l]);
    }
    for (int l = 0; l < LANES; l++) rein_top_reach(top, (double)high[l]);
    top->fresh += seen->n;
    rein_top_raise(top);
    look_above(seen, top);
}

/* Lanes that do not train, all ones. */
INLINE M lanes_off(const uint8_t *mask, size_t i, const int masked) { return masked ? widen(mask + i) == 0 : (M)splat(0); }

/* A tile of any composition. */
INLINE void tile_any(lane_sums *sums, other_sums *others, extremes *seen, real *gradient, real *advantages, const tile_inputs *in,
                     const rein_pass *p, const constants *k, const sequence *s, const int masked) {
    const rein_options *o = p->options;
    const rein_ratio level = o->ratio;
    const V gain = splat(-s->weight), kl_weight = splat((real)((double)s->weight * o->kl_loss_coef)); /* the loss is −objective */
    const V limit = splat((real)(isnan(o->kl_clamp) ? (double)INFINITY : o->kl_clamp));
    const int apart = in->stop != in->lp;
    const real *const ref_from = in->ref ? in->ref : in->lp; /* no reference: y = 0 */
    const near_constants near = near_constants_of(0);        /* nobody is pulled here: kl_estimate does that */
    lane_sums acc = *sums;
    other_sums more = *others;

    for (size_t i = 0; i < in->n; i += LANES) {
        const M off = lanes_off(in->mask, i, masked), on = ~off;
        const V lp = keep(on, load(in->lp + i, LANES)), stop = apart ? keep(on, load(in->stop + i, LANES)) : lp;
        const V old = in->old ? keep(on, load(in->old + i, LANES)) : stop, ref = keep(on, load(ref_from + i, LANES));
        const V d = lp - old, y = lp - ref;
        const exponentials e = exponentials_of(d, y, &near);
        const V ratio = e.ratio;
        acc.log_ratio += d;
        acc.excess += e.excess;
        acc.ref += y;
        acc.ref_excess += e.ref_excess;
        const V stop_d = apart ? stop - old : d, stop_ratio = apart ? exp_lanes(stop_d) : ratio;

        V advantage = splat(s->advantage), own = splat(1);
        if (in->token_advantage) advantage += load(in->token_advantage + i, LANES);
        if (o->kimi_k2_tau != 0) advantage -= (real)o->kimi_k2_tau * stop_d;
        if (in->src) advantage += (real)o->kl_penalty_coef * (s->kl_centre - (keep(on, load(in->src + i, LANES)) - ref));
        store(advantages + i, pick(on, advantage, splat(s->advantage)), LANES);
        if (in->token_advantage || in->src || o->kimi_k2_tau != 0) /* also where the token is dropped below */
            more.check = fmadd(keep(on, advantage), splat(0), more.check);
        token t = {.ratio = ratio,
                   .log_ratio = d,
                   .log_prob = lp,
                   .advantage = advantage,
                   .stop_ratio = stop_ratio,
                   .stop_log_ratio = stop_d,
                   .stop_log_prob = stop,
                   .old_log_prob = old,
                   .token_log_ratio = d,
                   .geometric_mean = splat(s->geometric_mean),
                   .length = (real)s->trained};
        if (level != REIN_RATIO_TOKEN) ratio_level(&t, &own, level, d, stop_d, s);
        if (o->surrogate == REIN_SURROGATE_GMPO) own = splat(0);
        contribution c = surrogate_of(o->surrogate, &t, k);

        /* ω: rollout mismatch, off-policy mask, top-entropy mask; it touches the surrogate alone */
        V omega = splat(s->mismatch);
        if (o->mismatch == REIN_MISMATCH_TOKEN_TIS || o->mismatch == REIN_MISMATCH_TOKEN_MASK)
            omega = mismatch_weight(exp_lanes(old - keep(on, load(in->samp + i, LANES))), o);
        if (s->off_policy) omega = keep(advantage >= 0, omega);
        M trains = omega != 0;
        if (p->entropy_threshold > -HUGE_VAL) trains &= load(in->entropy + i, LANES) >= (real)p->entropy_threshold;
        c.objective = keep(trains, omega * c.objective);
        c.by_ratio = keep(trains, omega * c.by_ratio);
        c.by_log_prob = keep(trains, omega * c.by_log_prob);
        more.shared += keep(on, (1 - own) * c.by_ratio);
        if (in->samp) more.check = fmadd(keep(on, load(in->samp + i, LANES)), splat(0), more.check);

        acc.objective += keep(on, c.objective);
        more.held_low += on & c.held_low;
        more.held_high += on & c.held_high;
        V g = gain * (own * c.by_ratio + c.by_log_prob);
        if (o->kl_loss_coef != 0) {
            const divergence q = kl_estimate(o->kl_estimator, o->kl_direction, lp, ref, ratio, limit);
            more.kl += q.value;
            g = fmadd(kl_weight, q.by_log_prob, g);
        }
        g = keep(on, g);
        more.check = fmadd(g, splat(0), more.check);
        store(gradient + i, g, LANES);
        const V D = (V)((M)t.log_ratio | off); /* untrained: a NaN */
        seen->low = least(D, seen->low);
        seen->n += compress(seen->waiting + seen->n, D > seen->edge, D);

        const V trained = keep(on, t.ratio);
        more.ratio += trained;
        acc.ratio_square = fmadd(trained, trained, acc.ratio_square);
    }
    *sums = acc;
    *others = more;
}

/* The part of the gradient that the trained tokens of a sequence share: through the sequence's ratio, or, for gmpo, through the mean
 * of those log-ratios that are not clipped. */
static void share(const rein_pass *p, const arrays *a, const constants *k, const sequence *s, real amount) {
    const int gmpo = p->options->surrogate == REIN_SURROGATE_GMPO;
    for (size_t i = s->start; i < s->start + s->length; i++) {
        if (p->mask && !p->mask[i]) continue;
        M live = (M)splat(0) == (M)splat(0);
        if (gmpo) (void)gmpo_clip(splat(a->lp[i] - a->old[i]), splat(s->advantage), k, &live);
        if (live[0]) a->grad[i] += amount;
    }
}

/* The KL loss is the sum of the reference's excess. */
static int is_plain_kl(const rein_options *o) {
    return o->kl_estimator == REIN_K3 && o->kl_direction == REIN_REF_OVER_CURRENT && isnan(o->kl_clamp);
}

INLINE void add_sums(rein_tally *tally, const lane_sums *sums) {
    add_to(tally->sum[SUM_LOG_RATIO], sums->log_ratio, 1);
    add_to(tally->sum[SUM_EXCESS], sums->excess, 1);
    add_to(tally->sum[SUM_RATIO_SQUARE], sums->ratio_square, 1);
    add_to(tally->sum[SUM_REF], sums->ref, 1);
    add_to(tally->sum[SUM_REF_EXCESS], sums->ref_excess, 1);
}

/* ---- the common case (clip.h) */

/* NaN when one of n gradients is not finite, else 0. No e^x is larger than 1 + √(2s) + s <= 2 + 2s, s the sum of the excesses
 * e^x − 1 − x, none of which is negative. Only when what that allows is too large is each gradient looked at. */
static double check_gradient(const rein_clip_sums *sums, const real *gradient, size_t n, const rein_clip *c) {
    const real most_of_all = sizeof(real) == sizeof(float) ? (real)1e36 : (real)1e306;
    V check = splat(0), size = splat(0);
    for (size_t l = 0; l < CLIP_UNIT; l += LANES)
        size += (load(sums->excess + l, LANES) + load(sums->far_excess + l, LANES) + 1) * magnitude(splat(c->weight)) +
                (load(sums->ref_excess + l, LANES) + 1) * magnitude(splat(c->pull_weight));
    if (all(size <= most_of_all)) return 0;
    for (size_t i = 0; i < n; i += LANES) check = fmadd(load(gradient + i, n - i), splat(0), check);
    return add_lanes(check);
}

INLINE void add_unit(double *sum, const real *lanes, double factor) {
    add_to(sum, load(lanes, LANES) + load(lanes + LANES, LANES), factor);
}

static void add_clip_sums(rein_tally *tally, const rein_clip_sums *sums) {
    add_unit(tally->sum[SUM_NEAR_LOG_RATIO], sums->log_ratio, 1);
    add_unit(tally->sum[SUM_NEAR_EXCESS], sums->excess, 1);
    add_unit(tally->sum[SUM_NEAR_SQUARE], sums->change_square, 1);
    add_unit(tally->sum[SUM_REF], sums->ref, 1);
    add_unit(tally->sum[SUM_REF_EXCESS], sums->ref_excess, 1);
    if (sums->far == 0) return;
    add_unit(tally->sum[SUM_LOG_RATIO], sums->far_log_ratio, 1);
    add_unit(tally->sum[SUM_EXCESS], sums->far_excess, 1);
    add_unit(tally->sum[SUM_RATIO], sums->far_ratio, 1);
    add_unit(tally->sum[SUM_RATIO_SQUARE], sums->far_ratio_square, 1);
    tally->sum[SUM_NEAR][0] -= (double)sums->far;
}

/* Reals in their order, by number: −0 is −1, 0 is 0. */
static real real_of(whole rank) {
    const bits sign = (bits)1 << (sizeof(bits) * 8 - 1), b = rank < 0 ? sign | ~(bits)rank : (bits)rank;
    real x;
    memcpy(&x, &b, sizeof x);
    return x;
}
static whole rank_of(real x) {
    whole b;
    memcpy(&b, &x, sizeof b);
    return b < 0 ? (whole) ~((bits)b << 1 >> 1) : b;
}

/* Whether sign·ratio <= bound where sign·log-ratio is x. */
static int is_live(real x, real sign, real bound, const near_terms *t) {
    const V d = splat(sign * x), d2 = d * d, ratio = fmadd(d2, near_curve(d, d2, t), d) + 1;
    return sign * ratio[0] <= bound;
}

/* The largest x of a near token that is live: the ratio, as it is rounded, decides. Where it passes the bound it may do so a few times. */
static real log_bound_of(real sign, real bound) {
    const near_terms t = near_terms_of();
    if (is_live(EXP_NEAR, sign, bound, &t)) return (real)INFINITY;
    if (!is_live(-EXP_NEAR, sign, bound, &t)) return (real)-INFINITY;
    const double middle = (double)sign * log((double)(sign * bound)), around = 8 * EPSILON;
    whole low = rank_of((real)fmax(middle - around, (double)-EXP_NEAR)),
          high = rank_of((real)fmin(middle + around, (double)EXP_NEAR));
    while (high - low > 1) {
        const whole x = low + (high - low) / 2;
        if (is_live(real_of(x), sign, bound, &t)) low = x;
        else high = x;
    }
    for (whole x = low + 1; x < low + 16; x++)
        if (is_live(real_of(x), sign, bound, &t)) high = x + 1;
    return real_of(high - 1);
}

void KERNEL(rein_log_bounds)(double log_bounds[2], const rein_options *o) {
    const constants k = constants_of(o);
    log_bounds[0] = (double)log_bound_of(1, k.high);
    log_bounds[1] = (double)log_bound_of(-1, -k.low);
}

static rein_clip clip_of(const rein_pass *p, const constants *k, const sequence *s) {
    const double kl_coef = p->options->kl_loss_coef;
    return (rein_clip){.weight = s->weight * -s->advantage,
                       .pull_weight = (real)((double)-s->weight * kl_coef),
                       .bound = s->advantage < 0 ? -k->low : k->high,
                       .sign = s->advantage < 0 ? -1 : 1,
                       .log_bound = (real)p->log_bounds[s->advantage < 0],
                       .kl_coef = kl_coef};
}

static void walk_clip(rein_tally *tally, extremes *seen, rein_top *top, outlet *past, const rein_pass *p, const arrays *a,
                      const constants *k, const sequence *s) {
    const double weight = (double)s->weight, gain = -weight * (double)s->advantage, kl_weight = weight * p->options->kl_loss_coef;
    const double beyond = gain * ((double)(s->advantage < 0 ? k->low : k->high) - 1); /* where the ratio is held */
    const uint8_t *mask = s->trained < s->length ? p->mask : NULL;
    const rein_clip clip = clip_of(p, k, s);
    size_t live = 0;
    _Alignas(64) real tile[TILE + LINE];
    for (size_t from = 0; from < s->length; from += TILE) {
        const size_t n = s->length - from < TILE ? s->length - from : TILE, at = s->start + from;
        const rein_clip_tokens tokens = {a->lp + at, a->old + at, a->ref ? a->ref + at : NULL, mask ? mask + at : NULL, n, p->vast};
        real *const to = a->grad && !p->vast ? a->grad + at : tile;
        rein_clip_sums sums;
        seen->n += KERNEL(rein_clip_walk)(&sums, to, seen->waiting + seen->n, (rein_clip_known){seen->edge[0], seen->lowest},
                                          &tokens, &clip);
        see_low(seen, least(load(sums.low, LANES), load(sums.low + LANES, LANES)));
        if (a->grad && p->vast) put(past, a->grad + at, tile, n);
        if (seen->n >= MANY) count(seen, top);
        add_clip_sums(tally, &sums);
        if (kl_weight != 0) add_unit(tally->sum[SUM_KL_LOSS], sums.ref_excess, kl_weight);
        add_unit(tally->sum[SUM_SURROGATE], sums.change, gain); /* without Σ A, which follows */
        live += sums.live;
        tally->sum[SUM_CHECK][0] += check_gradient(&sums, to, n, &clip);
    }
    if (s->advantage != 0 && live < s->trained) { /* a bound may be infinite, when nothing is held */
        const double held = (double)(s->trained - live);
        tally->sum[SUM_SURROGATE][0] += beyond * held;
        tally->sum[s->advantage < 0 ? SUM_CLIP_LOW : SUM_CLIP_HIGH][0] += held;
    }
    tally->sum[SUM_SURROGATE][0] += gain * (double)s->trained;
    tally->sum[SUM_NEAR][0] += (double)s->trained;
}

/* ---- any composition */
static void walk_any(rein_tally *tally, extremes *seen, rein_top *top, const rein_pass *p, const arrays *a, const constants *k,
                     const sequence *s) {
    const rein_options *o = p->options;
    const double weight = (double)s->weight;
    const uint8_t *mask = s->trained < s->length ? p->mask : NULL;
    _Alignas(32) real gradient[TILE], advantage[TILE];
    double shared = 0;
    for (size_t from = 0; from < s->length; from += TILE) {
        const size_t n = s->length - from < TILE ? s->length - from : TILE, body = n - n % LANES, at = s->start + from;
        const tile_inputs in = body_of(a, mask, at, body);
        lane_sums acc = {0};
        other_sums more = {0};
        if (mask) tile_any(&acc, &more, seen, gradient, advantage, &in, p, k, s, 1);
        else tile_any(&acc, &more, seen, gradient, advantage, &in, p, k, s, 0);
        if (body < n) {
            tail_vector pad;
            const tile_inputs last = tail_of(&pad, a, mask, at + body, n - body);
            tile_any(&acc, &more, seen, gradient + body, advantage + body, &last, p, k, s, 1);
        }
        if (seen->n >= MANY) count(seen, top);
        add_sums(tally, &acc);
        add_to(tally->sum[SUM_RATIO], more.ratio, 1);
        if (o->kl_loss_coef != 0)
            add_to(tally->sum[SUM_KL_LOSS], is_plain_kl(o) ? acc.ref_excess : more.kl, weight * o->kl_loss_coef);
        add_to(tally->sum[SUM_SURROGATE], acc.objective, -weight);
        add_to(tally->sum[SUM_CHECK], more.check, 1);
        add_count(tally->sum[SUM_CLIP_LOW], more.held_low);
        add_count(tally->sum[SUM_CLIP_HIGH], more.held_high);
        shared += add_lanes(more.shared);
        if (a->grad) memcpy(a->grad + at, gradient, n * sizeof *gradient);
        if (a->advantage) memcpy(a->advantage + at, advantage, n * sizeof *advantage);
    }
    const real amount = (real)(-weight * shared / (o->ratio == REIN_RATIO_SEQUENCE_SUM ? 1 : (double)s->trained));
    tally->sum[SUM_CHECK][0] += (double)amount * 0;
    if (a->grad && amount != 0) share(p, a, k, s, amount);
}

/* The entropy bonus: it touches nothing else. */
static void walk_entropies(rein_tally *tally, const rein_pass *p, const arrays *a, const sequence *s) {
    const double weight = (double)s->weight;
    V sum = splat(0);
    for (size_t i = 0; i < s->length; i += LANES) {
        const size_t at = s->start + i, left = s->length - i;
        sum += keep(load_mask(p->mask ? p->mask + at : NULL, left), load(a->entropy + at, left));
        if ((i + LANES) % TILE && left > LANES) continue;
        add_to(tally->sum[SUM_ENTROPY], sum, 1);
        add_to(tally->sum[SUM_ENTROPY_LOSS], sum, -weight * p->entropy_coef);
        sum = splat(0);
    }
    for (size_t i = s->start; a->grad_entropy && i < s->start + s->length; i++)
        a->grad_entropy[i] = !p->mask || p->mask[i] ? (real)(-p->entropy_coef * weight) : 0;
}

static int is_plain(const rein_pass *p) {
    const rein_options *o = p->options;
    return (o->kl_loss_coef == 0 || is_plain_kl(o)) && o->surrogate == REIN_SURROGATE_CLIP && o->ratio == REIN_RATIO_TOKEN &&
           isnan(o->max_negative_advantage_importance_sampling_weight) && p->old_log_probs && o->mismatch == REIN_MISMATCH_NONE &&
           isnan(o->off_policy_mask_delta) && o->kimi_k2_tau == 0 && !p->kl_source && !p->token_advantages &&
           !(p->entropy_threshold > -HUGE_VAL) && p->stop_log_probs == p->log_probs;
}

static void fill_advantages(const arrays *a, real advantage, size_t from, size_t to) {
    for (size_t i = from; a->advantage && i < to; i++) a->advantage[i] = advantage;
}

/* Tokens [from, to), before the first or after the last of their sequence that trains. */
static void fill(outlet *past, const arrays *a, real advantage, size_t from, size_t to, int vast) {
    if (from == to) return;
    if (a->grad && vast) put_zeros(past, a->grad + from, to - from);
    else if (a->grad) memset(a->grad + from, 0, (to - from) * sizeof *a->grad);
    if (a->grad_entropy) memset(a->grad_entropy + from, 0, (to - from) * sizeof *a->grad_entropy);
    fill_advantages(a, advantage, from, to);
}

void KERNEL(rein_pass)(rein_tally *tally, rein_top *top, const rein_pass *p, size_t first, size_t last) {
    const arrays a = arrays_of(p);
    const constants k = constants_of(p->options);
    const int surveyed = needs_survey(p->options);
    const int plain = is_plain(p);
    outlet past = {.n = 0};
    extremes seen;
    seen.lowest = (real)top->low;
    seen.low = splat(seen.lowest);
    look_above(&seen, top);
    for (size_t r = first; r < last; r++) {
        const rein_row *row = &p->rows[r];
        __builtin_prefetch(&p->rows[r + 3 < last ? r + 3 : r]);
        sequence s = {.start = p->offsets[r] + row->first,
                      .length = row->end - row->first,
                      .advantage = (real)row->advantage,
                      .weight = (real)row->weight,
                      .kl_centre = (real)row->kl_centre,
                      .trained = row->trained,
                      .mismatch = 1};
        fill(&past, &a, s.advantage, p->offsets[r], s.start, p->vast);
        if (row->trained == 0) continue;
        if (surveyed) survey(&s, p, &a, &k);
        if (a.entropy) walk_entropies(tally, p, &a, &s);
        if (plain) {
            walk_clip(tally, &seen, top, &past, p, &a, &k, &s);
            fill_advantages(&a, s.advantage, s.start, s.start + s.length);
        } else {
            walk_any(tally, &seen, top, p, &a, &k, &s);
        }
        fill(&past, &a, s.advantage, s.start + s.length, p->offsets[r + 1], p->vast);
    }
    if (p->vast) settle(&past);
    count(&seen, top);
    for (int l = 0; l < LANES; l++) top->low = (double)seen.low[l] < top->low ? (double)seen.low[l] : top->low;
}

static int none_of_eight(const uint8_t *marks) {
    uint64_t word;
    memcpy(&word, marks, sizeof word);
    return word == 0;
}

/* The sum of a word's eight bytes. */
static size_t add_bytes(uint64_t word) {
    const uint64_t pairs = (word & 0x00FF00FF00FF00FF) + (word >> 8 & 0x00FF00FF00FF00FF);
    return (size_t)(pairs * 0x0001000100010001 >> 48);
}

/* Forward first, as memory likes it; the ends are looked for in what is then at hand. */
rein_trained KERNEL(rein_count)(const uint8_t *marks, size_t n) {
    typedef uint8_t B __attribute__((vector_size(32)));
    rein_trained t = {0, 0, n};
    size_t i = 0;
    while (i + sizeof(B) <= n) { /* up to 255 marks in a lane */
        const size_t end = n - i < 255 * sizeof(B) ? n : i + 255 * sizeof(B);
        B counts = {0}, some;
        uint64_t words[sizeof(B) / 8];
        for (; i + sizeof(B) <= end; i += sizeof(B)) {
            memcpy(&some, marks + i, sizeof some);
            counts -= (B)(some != 0);
        }
        memcpy(words, &counts, sizeof words);
        for (size_t w = 0; w < sizeof(B) / 8; w++) t.count += add_bytes(words[w]);
    }
    for (; i < n; i++) t.count += marks[i] != 0;
    while (t.first + 8 <= t.end && none_of_eight(marks + t.first)) t.first += 8;
    while (t.first < t.end && !marks[t.first]) t.first++;
    while (t.end >= t.first + 8 && none_of_eight(marks + t.end - 8)) t.end -= 8;
    while (t.end > t.first && !marks[t.end - 1]) t.end--;
    return t;
}
