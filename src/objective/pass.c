/* pass.c - one pass over the tokens: loss = Σ weight·(ω·ℓ + β·k − c·H), its gradient, and the metrics.
 *
 * Compiled per type and instruction set. A sequence is walked in tiles of a fixed size from its first trained token, lanes are added in a fixed
 * order: what a sequence gives depends on nothing but the sequence. Masked lanes are cut out of the bits (keep), never multiplied by 0. */
#include "pass.h"

#include "kl.h"
#include "ratio.h"
#include "surrogate.h"

enum { TILE = 64 * LANES }; /* as many vectors as a word has bits */

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
    V objective, log_ratio, excess, ratio, ratio_square, ref, ref_excess;
    M held; /* clipped, where all tokens share one advantage */
} lane_sums;
typedef struct other_sums {
    V kl, entropy, shared, check;
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

/* Where a tile's results wait until they are written out. */
typedef struct tile_outputs {
    real *gradient, *log_ratio, *advantage, *ratio, *pull;
} tile_outputs;

static tile_inputs body_of(const arrays *a, const uint8_t *mask, size_t at, size_t n) {
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

/* The first of two loops over a tile: e^d, e^x − 1, and the sums of d = lp − old, x = ref − lp and their excesses. Two, because the fewer
 * sums and constants a loop has, the more of them stay in registers. Lanes with d and x within EXP_NEAR, most of them, take few
 * operations; vectors with others are noted, without a branch to mispredict, and done afterwards. */
typedef struct ratio_task {
    const real *lp, *old, *ref;
    const uint8_t *mask;
    real *ratio, *log_ratio, *pull;
} ratio_task;

/* The next tile's line of an array: the hardware alone stops at every page. Each loop over a tile asks for one array, so that memory is
 * at work all the time and not only while the inputs are read. */
INLINE void fetch_ahead(const real *array, size_t i) {
    if (i % (2 * LANES) == 0) __builtin_prefetch(array + i + TILE);
}

INLINE M lanes_off(const uint8_t *mask, size_t i, const int masked) { return masked ? widen(mask + i) == 0 : (M)splat(0); }

/* A NaN is not near, nor is a large number. */
INLINE M is_near(V d, V x) { return most(magnitude(d), magnitude(x)) <= EXP_NEAR; }

/* d and x of the near lanes, 0 elsewhere, to where the exponentials will stand; returns which vectors have lanes that are not near: a bit
 * each, the last vector's lowest. */
INLINE uint64_t near_differences(const ratio_task *task, size_t n, const int masked) {
    const ratio_task t = *task;
    uint64_t far = 0;
    for (size_t i = 0; i < n; i += LANES) {
        fetch_ahead(t.lp, i);
        const V lp = load(t.lp + i, LANES), d = lp - load(t.old + i, LANES), x = load(t.ref + i, LANES) - lp;
        const M off = lanes_off(t.mask, i, masked), near = is_near(d, x);
        store(t.log_ratio + i, (V)((M)d | off), LANES); /* untrained: a NaN */
        store(t.ratio + i, keep(near & ~off, d), LANES);
        store(t.pull + i, keep(near & ~off, x), LANES);
        far = 2 * far + !all(near);
    }
    return far;
}

static void near_exponentials(lane_sums *sums, const ratio_task *task, size_t n) {
    const ratio_task t = *task;
    V log_ratio = sums->log_ratio, excess = sums->excess, ref = sums->ref, ref_excess = sums->ref_excess, own, others;
    for (size_t i = 0; i < n; i += LANES) {
        fetch_ahead(t.old, i);
        const V d = load(t.ratio + i, LANES), x = load(t.pull + i, LANES);
        store(t.ratio + i, exp_excess_near(d, &own), LANES);
        (void)exp_excess_near(x, &others);
        store(t.pull + i, x + others, LANES);
        log_ratio += d;
        excess += own;
        ref += x;
        ref_excess += others;
    }
    sums->log_ratio = log_ratio;
    sums->excess = excess;
    sums->ref = ref;
    sums->ref_excess = ref_excess;
}

static void far_exponentials(lane_sums *sums, const ratio_task *t, size_t n, uint64_t far, int masked) {
    V own, others;
    for (far <<= 64 - n / LANES; far;) {
        const size_t k = (size_t)__builtin_clzll(far), i = k * LANES;
        far &= ~((uint64_t)1 << 63 >> k);
        const V lp = load(t->lp + i, LANES), any_d = lp - load(t->old + i, LANES), any_x = load(t->ref + i, LANES) - lp;
        const M on = ~lanes_off(t->mask, i, masked), left = on & ~is_near(any_d, any_x);
        const V d = keep(on, any_d), x = keep(on, any_x);
        if (all(most(magnitude(d), magnitude(x)) <= EXP_MIDDLE)) {
            store(t->ratio + i, exp_excess_middle(d, &own), LANES);
            (void)exp_excess_middle(x, &others);
        } else {
            store(t->ratio + i, exp_excess(d, &own), LANES);
            (void)exp_excess(x, &others);
        }
        store(t->pull + i, x + others, LANES);
        sums->log_ratio += keep(left, d);
        sums->excess += keep(left, own);
        sums->ref += keep(left, x);
        sums->ref_excess += keep(left, others);
    }
}

INLINE void tile_ratios(lane_sums *sums, const tile_outputs *out, const tile_inputs *in, const int masked) {
    const ratio_task task = {.lp = in->lp,
                             .old = in->old ? in->old : in->stop,
                             .ref = in->ref ? in->ref : in->lp, /* no reference: x = 0 */
                             .mask = in->mask,
                             .ratio = out->ratio,
                             .log_ratio = out->log_ratio,
                             .pull = out->pull};
    const uint64_t far = near_differences(&task, in->n, masked);
    near_exponentials(sums, &task, in->n);
    if (far) far_exponentials(sums, &task, in->n, far, masked);
}

/* Counts log-ratios x [n], with room for a vector after them. */
static void count(rein_top *top, real *x, size_t n) {
    const V edge = splat(TOP_RANGE), steps = splat(TOP_STEPS), zero = splat(ROUNDER + TOP_RANGE * TOP_STEPS);
    store(x + n, splat((real)NAN), LANES); /* a NaN falls into the lowest bin */
    for (size_t i = 0; i < n; i += LANES) {
        M bin = (M)((U)fmadd(clamp(load(x + i, LANES), -edge, edge), steps, zero) - (U)splat(ROUNDER));
        __asm__("" : "+m"(bin)); /* through memory: a load a lane is cheaper than an extraction a lane */
        for (size_t l = 0; l < LANES; l++) top->count[(bits)bin[l]]++;
    }
    top->fresh += n;
    rein_top_raise(top);
}

/* The range of the log-ratios seen; a NaN loses every comparison. */
typedef struct range {
    V low, high;
} range;

/* The second loop, for any composition. */
INLINE void tile_any(lane_sums *sums, other_sums *others, tile_outputs out, const tile_inputs *in, const rein_pass *p,
                     const constants *k, const sequence *s, const int masked) {
    const rein_options *o = p->options;
    const rein_ratio level = o->ratio;
    const V gain = splat(-s->weight), kl_weight = splat((real)((double)s->weight * o->kl_loss_coef)); /* the loss is −objective */
    const V limit = splat((real)(isnan(o->kl_clamp) ? (double)INFINITY : o->kl_clamp));
    const int apart = in->stop != in->lp;
    const real *const ref_from = in->ref ? in->ref : in->lp; /* no reference: x = 0 */
    lane_sums acc = *sums;
    other_sums more = *others;

    for (size_t i = 0; i < in->n; i += LANES) {
        const M zero = (M)splat(0), marks = masked ? widen(in->mask + i) : zero + 1, on = marks > zero, off = marks == zero;
        const V lp = keep(on, load(in->lp + i, LANES)), stop = apart ? keep(on, load(in->stop + i, LANES)) : lp;
        const V old = in->old ? keep(on, load(in->old + i, LANES)) : stop, ref = keep(on, load(ref_from + i, LANES));
        const V d = lp - old, ratio = load(out.ratio + i, LANES);
        const V stop_d = apart ? stop - old : d, stop_ratio = apart ? exp_lanes(stop_d) : ratio;

        V advantage = splat(s->advantage), own = splat(1);
        if (in->token_advantage) advantage += load(in->token_advantage + i, LANES);
        if (o->kimi_k2_tau != 0) advantage -= (real)o->kimi_k2_tau * stop_d;
        if (in->src) advantage += (real)o->kl_penalty_coef * (s->kl_centre - (keep(on, load(in->src + i, LANES)) - ref));
        store(out.advantage + i, pick(on, advantage, splat(s->advantage)), LANES);
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
                   .length = s->trained};
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
        if (in->entropy) more.entropy += keep(on, load(in->entropy + i, LANES));
        g = keep(on, g);
        more.check = fmadd(g, splat(0), more.check);
        store(out.gradient + i, g, LANES);
        store(out.log_ratio + i, (V)((M)t.log_ratio | off), LANES); /* untrained: a NaN */

        const V seen = keep(on, t.ratio);
        acc.ratio += seen;
        acc.ratio_square = fmadd(seen, seen, acc.ratio_square);
    }
    *sums = acc;
    *others = more;
}

static size_t spread(range *seen, real *highest, V edge, const real *log_ratio, size_t n) {
    size_t highs = 0;
    for (size_t i = 0; i < n; i += LANES) {
        const V x = load(log_ratio + i, LANES);
        *seen = (range){least(x, seen->low), most(x, seen->high)};
        highs += compress(highest + highs, x >= edge, x);
    }
    return highs;
}

/* The second loop in the common case: the clip surrogate on the token ratio, nothing adjusted per token, k3 or no KL (is_plain). The same
 * functions in the same order as above. */
INLINE size_t tile_clip(lane_sums *sums, range *seen, real *highest, V edge, const tile_outputs *out, const real *ref, size_t n,
                        const constants *k, const sequence *s, double kl_coef, const int masked) {
    const V weight = splat(s->weight), pull_weight = splat((real)((double)-s->weight * kl_coef)), against = splat(-s->advantage);
    const region trusted = trust_region(splat(s->advantage), splat(k->low), splat(k->high));
    const tile_outputs o = *out;
    V loss = -sums->objective, ratios = sums->ratio, squares = sums->ratio_square, low = seen->low, high = seen->high;
    M held = sums->held;
    size_t highs = 0;
    for (size_t i = 0; i < n; i += LANES) {
        fetch_ahead(ref, i);
        const V ratio = load(o.ratio + i, LANES), log_ratio = load(o.log_ratio + i, LANES);
        const M on = masked ? log_ratio == log_ratio : ~(M)splat(0);
        const V limited = clamp(ratio, trusted.low, trusted.high), own = keep(on, limited * against);
        const M live = limited == ratio;
        store(o.gradient + i, fmadd(pull_weight, load(o.pull + i, LANES), weight * keep(live, own)), LANES);
        loss += own;
        held += on & ~live;
        ratios += keep(on, ratio);
        squares = fmadd(keep(on, ratio), ratio, squares);
        low = least(log_ratio, low);
        high = most(log_ratio, high);
        highs += compress(highest + highs, log_ratio >= edge, log_ratio);
    }
    sums->objective = -loss;
    sums->held = held;
    sums->ratio = ratios;
    sums->ratio_square = squares;
    *seen = (range){low, high};
    return highs;
}

/* NaN when a gradient of the tile is not finite, else 0. No e^x is larger than 1 + √(2s) + s <= 2 + 2s, s the sum of the excesses
 * e^x − 1 − x, none of which is negative. Only when what that allows is too large is each gradient looked at. */
static double check_tile(const lane_sums *sums, const real *gradient, size_t n, const sequence *s, double kl_coef) {
    const real most_of_all = sizeof(real) == sizeof(float) ? (real)1e36 : (real)1e306;
    const real by_ratio = s->weight * (real)fabs((double)s->advantage), by_ref = s->weight * (real)kl_coef;
    V check = splat(0);
    if (all((sums->excess + 1) * by_ratio + (sums->ref_excess + 1) * by_ref <= most_of_all)) return 0;
    for (size_t i = 0; i < n; i += LANES) check = fmadd(load(gradient + i, LANES), splat(0), check);
    return add_lanes(check);
}

/* Writes a tile; past the caches when the whole array would not fit in them anyway. Only whole cache lines go that way: a line that is
 * written half through the caches and half past them costs a trip to memory and back. */
static void emit(real *to, const real *from, size_t n, int streaming) {
    enum { LINE = 2 * LANES };
    size_t i = 0;
    if (streaming) {
        const size_t head = (64 - (uintptr_t)to % 64) % 64 / sizeof *to;
        for (; i < head && i < n; i++) to[i] = from[i];
        for (; i + LINE <= n; i += LINE) {
            stream(to + i, load(from + i, LANES));
            stream(to + i + LANES, load(from + i + LANES, LANES));
        }
    }
    memcpy(to + i, from + i, (n - i) * sizeof *to);
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

/* Tokens of a tile: whole vectors, or the padded one after them. Returns how many of the largest log-ratios it put to `highest`. */
INLINE size_t tokens(lane_sums *sums, other_sums *others, range *seen, real *highest, V edge, tile_outputs out,
                     const tile_inputs *in, const rein_pass *p, const constants *k, const sequence *s, const int plain,
                     const int masked) {
    tile_ratios(sums, &out, in, masked);
    if (plain)
        return tile_clip(sums, seen, highest, edge, &out, in->ref ? in->ref : in->lp, in->n, k, s, p->options->kl_loss_coef,
                         masked);
    tile_any(sums, others, out, in, p, k, s, masked);
    return spread(seen, highest, edge, out.log_ratio, in->n);
}

/* The KL loss is the sum of the reference's excess. */
static int is_plain_kl(const rein_options *o) {
    return o->kl_estimator == REIN_K3 && o->kl_direction == REIN_REF_OVER_CURRENT && isnan(o->kl_clamp);
}

INLINE void walk(rein_tally *tally, range *seen, rein_top *top, const rein_pass *p, const arrays *a, const constants *k,
                 const sequence *s, const int plain) {
    const rein_options *o = p->options;
    const double weight = (double)s->weight;
    _Alignas(32) real gradient[TILE], log_ratio[TILE], advantage[TILE], ratio[TILE], pull[TILE], highest[TILE + LANES];
    const uint8_t *mask = s->trained < (real)s->length ? p->mask : NULL;
    double shared = 0;
    for (size_t from = 0; from < s->length; from += TILE) {
        const size_t n = s->length - from < TILE ? s->length - from : TILE, body = n - n % LANES, at = s->start + from;
        const V edge = splat((real)rein_top_edge(top));
        lane_sums acc = {0};
        other_sums more;
        if (!plain) more = (other_sums){0};
        size_t highs = 0;
        if (body) {
            const tile_inputs in = body_of(a, mask, at, body);
            const tile_outputs out = {gradient, log_ratio, advantage, ratio, pull};
            if (mask) highs = tokens(&acc, &more, seen, highest, edge, out, &in, p, k, s, plain, 1);
            else highs = tokens(&acc, &more, seen, highest, edge, out, &in, p, k, s, plain, 0);
        }
        if (body < n) {
            tail_vector pad;
            const tile_inputs in = tail_of(&pad, a, mask, at + body, n - body);
            const tile_outputs out = {gradient + body, log_ratio + body, advantage + body, ratio + body, pull + body};
            highs += tokens(&acc, &more, seen, highest + highs, edge, out, &in, p, k, s, plain, 1);
        }
        count(top, highest, highs);
        add_to(tally->sum[SUM_SURROGATE], acc.objective, -weight);
        add_to(tally->sum[SUM_KL_LOSS], plain || is_plain_kl(o) ? acc.ref_excess : more.kl, weight * o->kl_loss_coef);
        add_to(tally->sum[SUM_LOG_RATIO], acc.log_ratio, 1);
        add_to(tally->sum[SUM_EXCESS], acc.excess, 1);
        add_to(tally->sum[SUM_RATIO], acc.ratio, 1);
        add_to(tally->sum[SUM_RATIO_SQUARE], acc.ratio_square, 1);
        add_to(tally->sum[SUM_REF], acc.ref, -1);
        add_to(tally->sum[SUM_REF_EXCESS], acc.ref_excess, 1);
        if (plain) {
            tally->sum[SUM_CHECK][0] += check_tile(&acc, gradient, body < n ? body + LANES : body, s, o->kl_loss_coef);
            if (s->advantage != 0) add_count(tally->sum[s->advantage < 0 ? SUM_CLIP_LOW : SUM_CLIP_HIGH], acc.held);
        } else {
            add_to(tally->sum[SUM_CHECK], more.check, 1);
            add_count(tally->sum[SUM_CLIP_LOW], more.held_low);
            add_count(tally->sum[SUM_CLIP_HIGH], more.held_high);
            add_to(tally->sum[SUM_ENTROPY], more.entropy, 1);
            add_to(tally->sum[SUM_ENTROPY_LOSS], more.entropy, -weight * p->entropy_coef);
            shared += add_lanes(more.shared);
            if (a->advantage) emit(a->advantage + at, advantage, n, 0);
        }
        if (a->grad) emit(a->grad + at, gradient, n, p->streaming && plain);
    }
    if (plain) return;
    const real amount = (real)(-weight * shared / (o->ratio == REIN_RATIO_SEQUENCE_SUM ? 1 : (double)s->trained));
    tally->sum[SUM_CHECK][0] += (double)amount * 0;
    if (a->grad && amount != 0) share(p, a, k, s, amount);
    for (size_t i = s->start; a->grad_entropy && i < s->start + s->length; i++)
        a->grad_entropy[i] = !p->mask || p->mask[i] ? (real)(-p->entropy_coef * weight) : 0;
}

static int is_plain(const rein_pass *p) {
    const rein_options *o = p->options;
    return (o->kl_loss_coef == 0 || is_plain_kl(o)) && o->surrogate == REIN_SURROGATE_CLIP && o->ratio == REIN_RATIO_TOKEN &&
           isnan(o->max_negative_advantage_importance_sampling_weight) && p->old_log_probs && o->mismatch == REIN_MISMATCH_NONE &&
           isnan(o->off_policy_mask_delta) && o->kimi_k2_tau == 0 && !p->kl_source && !p->entropies && !p->token_advantages &&
           !p->advantages && p->stop_log_probs == p->log_probs;
}

/* Tokens [from, to), before the first or after the last of their sequence that trains. */
static void fill(const arrays *a, real advantage, size_t from, size_t to) {
    if (a->grad) memset(a->grad + from, 0, (to - from) * sizeof(real));
    if (a->grad_entropy) memset(a->grad_entropy + from, 0, (to - from) * sizeof(real));
    for (size_t i = from; a->advantage && i < to; i++) a->advantage[i] = advantage;
}

void KERNEL(rein_pass)(rein_tally *tally, rein_top *top, const rein_pass *p, size_t first, size_t last) {
    const arrays a = arrays_of(p);
    const constants k = constants_of(p->options);
    const int surveyed = needs_survey(p->options);
    const int plain = is_plain(p);
    range seen = {splat((real)INFINITY), splat((real)-INFINITY)};
    for (size_t r = first; r < last; r++) {
        const rein_row *row = &p->rows[r];
        sequence s = {.start = p->offsets[r] + row->first,
                      .length = row->end - row->first,
                      .advantage = (real)row->advantage,
                      .weight = (real)row->weight,
                      .kl_centre = (real)row->kl_centre,
                      .trained = (real)row->trained,
                      .mismatch = 1};
        fill(&a, s.advantage, p->offsets[r], s.start);
        fill(&a, s.advantage, s.start + s.length, p->offsets[r + 1]);
        if (row->trained == 0) continue;
        if (surveyed) survey(&s, p, &a, &k);
        if (plain) walk(tally, &seen, top, p, &a, &k, &s, 1);
        else walk(tally, &seen, top, p, &a, &k, &s, 0);
    }
    for (int l = 0; l < LANES; l++) {
        if ((double)seen.low[l] < tally->log_ratio_min) tally->log_ratio_min = (double)seen.low[l];
        if ((double)seen.high[l] > tally->log_ratio_max) tally->log_ratio_max = (double)seen.high[l];
    }
}

static int none_of_eight(const uint8_t *marks) {
    uint64_t word;
    memcpy(&word, marks, sizeof word);
    return word == 0;
}

rein_trained KERNEL(rein_count)(const uint8_t *marks, size_t n) {
    typedef uint8_t B __attribute__((vector_size(32)));
    rein_trained t = {0, 0, n};
    while (t.first + 8 <= t.end && none_of_eight(marks + t.first)) t.first += 8;
    while (t.first < t.end && !marks[t.first]) t.first++;
    while (t.end >= t.first + 8 && none_of_eight(marks + t.end - 8)) t.end -= 8;
    while (t.end > t.first && !marks[t.end - 1]) t.end--;
    size_t i = t.first;
    while (i + sizeof(B) <= t.end) { /* up to 255 marks in a lane */
        B counts = {0}, some;
        for (int k = 0; k < 255 && i + sizeof(B) <= t.end; k++, i += sizeof(B)) {
            memcpy(&some, marks + i, sizeof some);
            counts -= (B)(some != 0);
        }
        for (size_t l = 0; l < sizeof(B); l++) t.count += counts[l];
    }
    for (; i < t.end; i++) t.count += marks[i] != 0;
    return t;
}
