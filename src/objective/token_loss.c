/* token_loss.c - one loop over the tokens: loss = Σ weight·(ω·ℓ + β·k − c·H), its gradient, and the metrics.
 *
 * `walk` computes every composition of surrogate, ratio, KL term and corrections. It is always inlined and takes the composition as a
 * struct: with constants the compiler keeps only what that composition needs. COMMON_COMPOSITIONS lists those that published methods
 * use, one line each; every other composition takes the same code with run-time values, and gets the same bits.
 *
 * Compiled per type and instruction set. A sequence is cut into tiles of a fixed size from its first trained token on, and lanes are added
 * in a fixed order: what a sequence contributes depends on the sequence alone. Masked lanes are removed by their bits (`keep`), never
 * multiplied by 0. */
#include "token_loss.h"

#include "kl.h"
#include "ratio.h"
#include "surrogate.h"

enum { TILE = 128 * LANES };
_Static_assert(LANES <= SUM_LANES && LANES <= RATIO_COUNTERS, "a sum and a counter for each lane");

/* ------------------------------------------------------------------------------------------------------------- the composition */

/* What the loop decides per composition. Bytes without padding, so that two can be compared as memory. */
typedef struct composition {
    uint8_t surrogate, ratio;    /* rein_surrogate, rein_ratio */
    kl_form kl;                  /* the KL term of the loss */
    uint8_t per_token_advantage; /* token advantages, the KL penalty or kimi_k2_tau: A differs from token to token */
    uint8_t weighted;            /* a mismatch weight or mask, the off-policy mask or the top-entropy mask applies */
    uint8_t stop_apart;          /* stop(·) reads another array: gradient checks */
} composition;
_Static_assert(sizeof(composition) == 8, "no padding");

#define COMMON_COMPOSITIONS(X)                                            \
    /* name, surrogate, ratio, KL term, per-token advantages */           \
    X(clip_k3, CLIP, TOKEN, REIN_K3, 0)         /* grpo */                \
    X(clip, CLIP, TOKEN, NO_KL, 0)              /* dapo, dr-grpo, bnpo */ \
    X(clip_tokens, CLIP, TOKEN, NO_KL, 1)       /* ppo, reinforce++ */    \
    X(clip_is_k3, CLIP, TOKEN, REIN_IS_K3, 0)   /* deepseek-v3.2 */       \
    X(clip_sequence, CLIP, SEQUENCE, NO_KL, 0)  /* gspo */                \
    X(gmpo, GMPO, TOKEN, NO_KL, 0)              /* gmpo */                \
    X(cispo, CISPO, TOKEN, NO_KL, 0)            /* cispo, art */          \
    X(reinforce, REINFORCE, TOKEN, NO_KL, 0)    /* reinforce, rloo */     \
    X(sapo, SAPO, TOKEN, NO_KL, 0)              /* sapo */                \
    X(squared, SQUARED, SEQUENCE_SUM, NO_KL, 0) /* k1.5, k2 */

static composition composition_of(const rein_loss_inputs *in) {
    const rein_options *o = in->options;
    const int k3 = o->kl_estimator == REIN_K3 || o->kl_estimator == REIN_IS_K3;
    composition c = {.surrogate = (uint8_t)o->surrogate, .ratio = (uint8_t)o->ratio, .kl = {.estimator = NO_KL}};
    if (o->kl_loss_coef != 0 && o->kl_estimator != REIN_KL_EXACT)
        c.kl = (kl_form){(uint8_t)o->kl_estimator, (uint8_t)(k3 && o->kl_direction == REIN_CURRENT_OVER_REF),
                         (uint8_t)!isnan(o->kl_clamp)};
    c.per_token_advantage = in->in[IN_ADVANTAGE] || in->in[IN_KL_SOURCE] || o->kimi_k2_tau != 0;
    c.weighted = o->mismatch != REIN_MISMATCH_NONE || !isnan(o->off_policy_mask_delta) || in->entropy_threshold > -HUGE_VAL;
    c.stop_apart = in->in[IN_STOP] != in->in[IN_LOG_PROB];
    return c;
}

/* 1 if tokens share a part of the gradient, through the sequence's ratio or the geometric mean of gmpo. */
INLINE int shares_gradient(const composition c) { return c.ratio != REIN_RATIO_TOKEN || c.surrogate == REIN_SURROGATE_GMPO; }

/* 1 if the KL loss is the sum of the excesses of ref − lp, which is a metric anyway. */
INLINE int kl_is_ref_excess(const composition c) { return c.kl.estimator == REIN_K3 && !c.kl.reversed && !c.kl.clamped; }

/* ------------------------------------------------------------------------------------------------------------------- one tile */

/* Whole vectors of a sequence, n tokens. */
typedef struct tile {
    const real *in[IN_COUNT]; /* NULL where there is none */
    const uint8_t *mask;      /* NULL: every token trains */
    real *gradient, *advantage;
    size_t n;
} tile;

/* Sums over a tile, lane by lane. */
typedef struct tile_sums {
    V objective, kl, log_ratio, excess, ratio, ratio_square, ref, ref_excess;
    V shared;                    /* by_ratio as far as it does not go to the token itself */
    V check;                     /* NaN when something is not finite */
    V lowest, highest;           /* log-ratios of the thread so far */
    M clipped_low, clipped_high; /* minus the number of tokens */
} tile_sums;

/* What all sequences of a call have in common. */
typedef struct context {
    const rein_loss_inputs *inputs;
    rein_loss_sums *sums;
    rein_ratio_histogram *histogram;
    const real *in[IN_COUNT]; /* the arrays of `inputs`, as reals */
    const uint8_t *mask;
    real *gradient, *entropy_gradient, *advantage;
    constants constants; /* of the surrogate */
    composition composition;
} context;

/* A vector of tokens while its loss is computed. Lanes that do not train hold 0. */
typedef struct vector {
    M on;                         /* lanes that train */
    token token;                  /* what the surrogate sees */
    exponential ratio;            /* of d = lp − old */
    V ref, ref_gap;               /* ref, and x = ref − lp; lp and 0 without a reference */
    exponential ref_over_current; /* of x */
    V own;                        /* how much of by_ratio goes to the token itself; the rest is shared by the sequence */
} vector;

INLINE V take(const tile *t, enum rein_loss_input which, size_t i, M on) { return keep(on, load(t->in[which] + i, LANES)); }

INLINE vector read_vector(const tile *t, size_t i, const sequence *s, const composition c, const int masked) {
    const M none = (M)splat(0), on = masked ? ~(widen(t->mask + i) == 0) : ~none;
    const V lp = take(t, IN_LOG_PROB, i, on), stop = c.stop_apart ? take(t, IN_STOP, i, on) : lp;
    const V old = t->in[IN_OLD] ? take(t, IN_OLD, i, on) : stop, d = lp - old, stop_d = stop - old;
    vector v = {.on = on, .ratio = exponential_of(d), .ref = lp, .own = splat(1)};
    v.token = (token){.ratio = v.ratio.value,
                      .log_ratio = d,
                      .log_prob = lp,
                      .advantage = splat(s->advantage),
                      .stop_ratio = c.stop_apart ? exponential_of(stop_d).value : v.ratio.value,
                      .stop_log_ratio = stop_d,
                      .stop_log_prob = stop,
                      .old_log_prob = old,
                      .token_log_ratio = d,
                      .geometric_mean = splat(s->geometric_mean),
                      .length = (real)s->trained};
    if (c.kl.estimator != NO_KL || t->in[IN_REF]) {
        v.ref = take(t, IN_REF, i, on);
        v.ref_gap = v.ref - lp;
        v.ref_over_current = exponential_of(v.ref_gap);
    }
    return v;
}

/* A token's own advantage: that of the sequence, token advantages, −τ·stop(d) (kimi_k2_tau), and the KL penalty
 * c·(centre − (source − ref)). */
INLINE V token_advantage(const vector *v, const tile *t, size_t i, const rein_options *o, const sequence *s) {
    V advantage = splat(s->advantage);
    if (t->in[IN_ADVANTAGE]) advantage += load(t->in[IN_ADVANTAGE] + i, LANES);
    if (o->kimi_k2_tau != 0) advantage -= (real)o->kimi_k2_tau * v->token.stop_log_ratio;
    if (t->in[IN_KL_SOURCE]) advantage += (real)o->kl_penalty_coef * (s->kl_centre - (take(t, IN_KL_SOURCE, i, v->on) - v->ref));
    return advantage;
}

/* The surrogate times ω, the mismatch weight, which is 0 where a mask drops the token. ω touches nothing else of the loss. */
INLINE contribution weigh(contribution j, const vector *v, const tile *t, size_t i, const rein_loss_inputs *in, const sequence *s) {
    const rein_options *o = in->options;
    V omega = splat(s->mismatch);
    if (o->mismatch == REIN_MISMATCH_TOKEN_TIS || o->mismatch == REIN_MISMATCH_TOKEN_MASK)
        omega = mismatch_weight(exp_lanes(v->token.old_log_prob - take(t, IN_SAMPLE, i, v->on)), o);
    if (s->off_policy) omega = keep(v->token.advantage >= 0, omega);
    M counts = omega != 0;
    if (in->entropy_threshold > -HUGE_VAL) counts &= load(t->in[IN_ENTROPY] + i, LANES) >= (real)in->entropy_threshold;
    j.objective = keep(counts, omega * j.objective);
    j.by_ratio = keep(counts, omega * j.by_ratio);
    j.by_log_prob = keep(counts, omega * j.by_log_prob);
    return j;
}

/* The bin of log R. A NaN, which marks a token that does not train, falls into the lowest. */
INLINE U ratio_bin(V log_ratio) {
    const V range = splat(RATIO_RANGE), scale = splat(RATIO_BINS_PER_UNIT),
            zero = splat(ROUNDER + RATIO_RANGE * RATIO_BINS_PER_UNIT);
    return (U)fmadd(clamp(log_ratio, -range, range), scale, zero) - (U)splat(ROUNDER);
}

INLINE void add_metrics(tile_sums *sums, const vector *v, const contribution *j, rein_ratio_histogram *histogram) {
    const V ratio = keep(v->on, v->token.ratio), log_ratio = (V)((M)v->token.log_ratio | ~v->on); /* NaN where nothing trains */
    const U bin = ratio_bin(log_ratio);
    sums->log_ratio += v->token.token_log_ratio;
    sums->excess += v->ratio.excess;
    sums->ref -= v->ref_gap;
    sums->ref_excess += v->ref_over_current.excess;
    sums->ratio += ratio;
    sums->ratio_square = fmadd(ratio, ratio, sums->ratio_square);
    sums->lowest = least(log_ratio, sums->lowest);
    sums->highest = most(log_ratio, sums->highest);
    sums->clipped_low += v->on & j->clipped_low;
    sums->clipped_high += v->on & j->clipped_high;
    for (int l = 0; l < LANES; l++) histogram->count[bin[l]][l]++;
}

/* NaN in a lane of *check once x is not finite there. */
INLINE void check_finite(V *check, V x) { *check = fmadd(x, splat(0), *check); }

/* The loop. The inputs are copied so that the compiler knows that stores to the outputs cannot change them. */
INLINE void walk(tile_sums *sums, const tile *of_tile, const sequence *of_sequence, const context *x, const composition c,
                 const int masked) {
    const rein_options *o = x->inputs->options;
    const constants k = x->constants;
    const sequence s = *of_sequence;
    const tile t = *of_tile;
    const V gain = splat(-s.weight), kl_weight = splat((real)((double)s.weight * o->kl_loss_coef)); /* the loss is −objective */
    const V limit = splat((real)(c.kl.clamped ? o->kl_clamp : (double)INFINITY));
    tile_sums acc = *sums;
    for (size_t i = 0; i < t.n; i += LANES) {
        vector v = read_vector(&t, i, &s, c, masked);
        if (c.per_token_advantage) {
            v.token.advantage = token_advantage(&v, &t, i, o, &s);
            check_finite(&acc.check, keep(v.on, v.token.advantage));
        }
        if (t.advantage) store(t.advantage + i, pick(v.on, v.token.advantage, splat(s.advantage)), LANES);
        if (c.ratio != REIN_RATIO_TOKEN) ratio_level(&v.token, &v.own, (rein_ratio)c.ratio, &s);
        if (c.surrogate == REIN_SURROGATE_GMPO) v.own = splat(0);

        contribution j = surrogate_of((rein_surrogate)c.surrogate, &v.token, &k);
        if (c.weighted) {
            j = weigh(j, &v, &t, i, x->inputs, &s);
            if (t.in[IN_SAMPLE]) check_finite(&acc.check, take(&t, IN_SAMPLE, i, v.on));
        }
        acc.objective += keep(v.on, j.objective);
        if (shares_gradient(c)) acc.shared += keep(v.on, (1 - v.own) * j.by_ratio);

        V gradient = gain * (v.own * j.by_ratio + j.by_log_prob);
        if (c.kl.estimator != NO_KL) {
            const divergence q = kl_estimate(c.kl, v.ref_gap, v.ref_over_current, v.ratio.value, limit);
            if (!kl_is_ref_excess(c)) acc.kl += q.value;
            gradient = fmadd(kl_weight, q.by_log_prob, gradient);
        }
        gradient = keep(v.on, gradient);
        check_finite(&acc.check, gradient);
        if (t.gradient) store(t.gradient + i, gradient, LANES);
        add_metrics(&acc, &v, &j, x->histogram);
    }
    *sums = acc;
}

/* ---- the instances: one for each common composition, and one for all others */
typedef void walk_fn(tile_sums *sums, const tile *t, const sequence *s, const context *x);

static void walk_any(tile_sums *sums, const tile *t, const sequence *s, const context *x) {
    if (t->mask) walk(sums, t, s, x, x->composition, 1);
    else walk(sums, t, s, x, x->composition, 0);
}

#define CONSTANT(surrogate, ratio, kl, per_token) \
    { REIN_SURROGATE_##surrogate, REIN_RATIO_##ratio, {kl, 0, 0}, per_token, 0, 0 }

#define INSTANCE(name, ...)                                                                        \
    static void walk_##name(tile_sums *sums, const tile *t, const sequence *s, const context *x) { \
        if (t->mask) walk(sums, t, s, x, (composition)CONSTANT(__VA_ARGS__), 1);                   \
        else walk(sums, t, s, x, (composition)CONSTANT(__VA_ARGS__), 0);                           \
    }
COMMON_COMPOSITIONS(INSTANCE)

#define CASE(name, ...) {CONSTANT(__VA_ARGS__), walk_##name},
static walk_fn *walk_for(const composition *c) {
    static const struct {
        composition composition;
        walk_fn *walk;
    } common[] = {COMMON_COMPOSITIONS(CASE)};
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (memcmp(&common[i].composition, c, sizeof *c) == 0) return common[i].walk;
    return walk_any;
}

/* --------------------------------------------------------------------------------------------------------------- one sequence */

static int has_sequence_mismatch(const rein_options *o) {
    return o->mismatch == REIN_MISMATCH_SEQUENCE_TIS || o->mismatch == REIN_MISMATCH_SEQUENCE_MASK;
}

/* 1 if tokens need sums over their whole sequence: `sequence_sums` then walks it first. */
static int needs_sequence_sums(const rein_options *o) {
    return o->ratio != REIN_RATIO_TOKEN || o->surrogate == REIN_SURROGATE_GMPO || has_sequence_mismatch(o) ||
           !isnan(o->off_policy_mask_delta);
}

static void sequence_sums(sequence *s, const context *x) {
    const rein_options *o = x->inputs->options;
    double d_sum = 0, stop_sum = 0, clipped_sum = 0, mismatch_sum = 0, drift_sum = 0;
    for (size_t i = 0; i < s->length; i += LANES) {
        const size_t at = s->start + i, left = s->length - i;
        const M on = load_mask(x->mask ? x->mask + at : NULL, left);
        const V stop = load(x->in[IN_STOP] + at, left), old = x->in[IN_OLD] ? load(x->in[IN_OLD] + at, left) : stop;
        const V d = load(x->in[IN_LOG_PROB] + at, left) - old;
        d_sum += add_lanes(keep(on, d));
        stop_sum += add_lanes(keep(on, stop - old));
        if (o->surrogate == REIN_SURROGATE_GMPO) {
            M unclipped;
            clipped_sum += add_lanes(keep(on, gmpo_clip(d, splat(s->advantage), &x->constants, &unclipped)));
        }
        if (x->in[IN_SAMPLE]) {
            const V sample = load(x->in[IN_SAMPLE] + at, left);
            mismatch_sum += add_lanes(keep(on, old - sample));
            drift_sum += add_lanes(keep(on, sample - stop));
        }
    }
    const double n = (double)s->trained;
    s->sum_log_ratio = (real)d_sum;
    s->mean_log_ratio = (real)(d_sum / n);
    s->stop_sum_log_ratio = (real)stop_sum;
    s->stop_mean_log_ratio = (real)(stop_sum / n);
    s->geometric_mean = exp_lanes(splat((real)(clipped_sum / n)))[0];
    if (has_sequence_mismatch(o)) s->mismatch = mismatch_weight(exp_lanes(splat((real)mismatch_sum)), o)[0];
    s->off_policy = drift_sum / n > o->off_policy_mask_delta;
}

/* n tokens from `at` on; n is a multiple of LANES. */
static tile tile_at(const context *x, const uint8_t *mask, size_t at, size_t n) {
    tile t = {.mask = mask ? mask + at : NULL,
              .gradient = x->gradient ? x->gradient + at : NULL,
              .advantage = x->advantage ? x->advantage + at : NULL,
              .n = n};
    for (int i = 0; i < IN_COUNT; i++) t.in[i] = x->in[i] ? x->in[i] + at : NULL;
    return t;
}

/* The last n < LANES tokens of a sequence from `at` on, through whole vectors: past the end nothing trains. */
static void walk_rest(tile_sums *sums, const uint8_t *mask, size_t at, size_t n, const sequence *s, const context *x,
                      walk_fn *walk_tile) {
    V in[IN_COUNT], gradient, advantage;
    uint8_t marks[LANES];
    tile t = {.mask = marks, .gradient = (real *)&gradient, .advantage = (real *)&advantage, .n = LANES};
    for (int i = 0; i < IN_COUNT; i++) {
        if (x->in[i]) in[i] = load(x->in[i] + at, n);
        t.in[i] = x->in[i] ? (const real *)&in[i] : NULL;
    }
    for (size_t l = 0; l < LANES; l++) marks[l] = l < n && (!mask || mask[at + l]);
    walk_tile(sums, &t, s, x);
    if (x->gradient) store(x->gradient + at, gradient, n);
    if (x->advantage) store(x->advantage + at, advantage, n);
}

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

static void add_tile(const context *x, const tile_sums *t, double weight) {
    double(*sum)[SUM_LANES] = x->sums->sum;
    const composition c = x->composition;
    add_to(sum[SUM_SURROGATE], t->objective, -weight);
    if (c.kl.estimator != NO_KL)
        add_to(sum[SUM_KL_LOSS], kl_is_ref_excess(c) ? t->ref_excess : t->kl, weight * x->inputs->options->kl_loss_coef);
    add_to(sum[SUM_LOG_RATIO], t->log_ratio, 1);
    add_to(sum[SUM_EXCESS], t->excess, 1);
    add_to(sum[SUM_RATIO], t->ratio, 1);
    add_to(sum[SUM_RATIO_SQUARE], t->ratio_square, 1);
    add_to(sum[SUM_REF], t->ref, 1);
    add_to(sum[SUM_REF_EXCESS], t->ref_excess, 1);
    add_to(sum[SUM_CHECK], t->check, 1);
    add_count(sum[SUM_CLIPPED_LOW], t->clipped_low);
    add_count(sum[SUM_CLIPPED_HIGH], t->clipped_high);
}

/* The part of the gradient that the trained tokens of a sequence share: through the sequence's ratio, or, for gmpo, through the mean
 * of those log-ratios that are not clipped. */
static void add_shared_gradient(const context *x, const sequence *s, real amount) {
    const int gmpo = x->composition.surrogate == REIN_SURROGATE_GMPO;
    for (size_t i = s->start; i < s->start + s->length; i++) {
        if (x->mask && !x->mask[i]) continue;
        M unclipped = ~(M)splat(0);
        if (gmpo) (void)gmpo_clip(splat(x->in[IN_LOG_PROB][i] - x->in[IN_OLD][i]), splat(s->advantage), &x->constants, &unclipped);
        if (unclipped[0]) x->gradient[i] += amount;
    }
}

static void walk_sequence(const context *x, const sequence *s, walk_fn *walk_tile) {
    const double weight = (double)s->weight;
    const uint8_t *mask = s->trained < s->length ? x->mask : NULL;
    V lowest = splat((real)INFINITY), highest = splat((real)-INFINITY);
    double shared = 0;
    for (size_t from = 0; from < s->length; from += TILE) {
        const size_t n = s->length - from < TILE ? s->length - from : TILE, rest = n % LANES, at = s->start + from;
        const tile t = tile_at(x, mask, at, n - rest);
        tile_sums acc = {.lowest = lowest, .highest = highest};
        walk_tile(&acc, &t, s, x);
        if (rest > 0) walk_rest(&acc, mask, at + n - rest, rest, s, x, walk_tile);
        add_tile(x, &acc, weight);
        shared += add_lanes(acc.shared);
        lowest = acc.lowest, highest = acc.highest;
    }
    for (int l = 0; l < LANES; l++) {
        x->histogram->low = fmin(x->histogram->low, (double)lowest[l]);
        x->histogram->high = fmax(x->histogram->high, (double)highest[l]);
    }
    const real amount = (real)(-weight * shared / (x->composition.ratio == REIN_RATIO_SEQUENCE_SUM ? 1 : (double)s->trained));
    x->sums->sum[SUM_CHECK][0] += (double)amount * 0;
    if (x->gradient && amount != 0) add_shared_gradient(x, s, amount);
}

/* The entropy bonus. It does not depend on the rest of the loss. */
static void walk_entropies(const context *x, const sequence *s) {
    const double weight = (double)s->weight, coef = x->inputs->entropy_coef;
    V sum = splat(0);
    for (size_t i = 0; i < s->length; i += LANES) {
        const size_t at = s->start + i, left = s->length - i;
        sum += keep(load_mask(x->mask ? x->mask + at : NULL, left), load(x->in[IN_ENTROPY] + at, left));
        if ((i + LANES) % TILE && left > LANES) continue;
        add_to(x->sums->sum[SUM_ENTROPY], sum, 1);
        add_to(x->sums->sum[SUM_ENTROPY_LOSS], sum, -weight * coef);
        sum = splat(0);
    }
    for (size_t i = s->start; x->entropy_gradient && i < s->start + s->length; i++)
        x->entropy_gradient[i] = !x->mask || x->mask[i] ? (real)(-coef * weight) : 0;
}

/* A divergence of whole distributions: its mean is a metric, and the loss has it with a coefficient. It does not depend on the sampled tokens. */
static void walk_divergence(const context *x, const sequence *s, enum rein_loss_input in, double coef, enum rein_loss_sum mean,
                            enum rein_loss_sum loss) {
    V sum = splat(0);
    for (size_t i = 0; i < s->length; i += LANES) {
        const size_t at = s->start + i, left = s->length - i;
        sum += keep(load_mask(x->mask ? x->mask + at : NULL, left), load(x->in[in] + at, left));
        if ((i + LANES) % TILE && left > LANES) continue;
        add_to(x->sums->sum[mean], sum, 1);
        add_to(x->sums->sum[loss], sum, coef * (double)s->weight);
        sum = splat(0);
    }
}

/* The outputs of tokens [from, to), which lie before the first or after the last trained token of their sequence. */
static void fill(const context *x, real advantage, size_t from, size_t to) {
    if (x->gradient) memset(x->gradient + from, 0, (to - from) * sizeof *x->gradient);
    if (x->entropy_gradient) memset(x->entropy_gradient + from, 0, (to - from) * sizeof *x->entropy_gradient);
    for (size_t i = from; x->advantage && i < to; i++) x->advantage[i] = advantage;
}

void KERNEL(rein_token_loss)(rein_loss_sums *sums, rein_ratio_histogram *histogram, const rein_loss_inputs *in, size_t first,
                             size_t last) {
    context x = {.inputs = in,
                 .sums = sums,
                 .histogram = histogram,
                 .mask = in->mask,
                 .gradient = in->grad_log_probs,
                 .entropy_gradient = in->grad_entropies,
                 .advantage = in->advantages,
                 .constants = constants_of(in->options),
                 .composition = composition_of(in)};
    for (int i = 0; i < IN_COUNT; i++) x.in[i] = in->in[i];
    const int exact_kl = in->options->kl_estimator == REIN_KL_EXACT;
    const int sums_first = needs_sequence_sums(in->options);
    walk_fn *walk_tile = walk_for(&x.composition);
    for (size_t r = first; r < last; r++) {
        const rein_loss_sequence *given = &in->sequences[r];
        const size_t start = in->offsets[r] + given->first, end = in->offsets[r] + given->end;
        sequence s = {.start = start,
                      .length = end - start,
                      .advantage = (real)given->advantage,
                      .weight = (real)given->weight,
                      .kl_centre = (real)given->kl_centre,
                      .trained = given->trained,
                      .mismatch = 1};
        fill(&x, s.advantage, in->offsets[r], start);
        if (s.trained > 0) {
            if (sums_first) sequence_sums(&s, &x);
            if (x.in[IN_ENTROPY]) walk_entropies(&x, &s);
            if (x.in[IN_EXACT_KL])
                walk_divergence(&x, &s, IN_EXACT_KL, exact_kl ? in->options->kl_loss_coef : 0, SUM_EXACT_KL, SUM_KL_LOSS);
            if (x.in[IN_TEACHER]) walk_divergence(&x, &s, IN_TEACHER, in->options->teacher_coef, SUM_TEACHER, SUM_TEACHER_LOSS);
            walk_sequence(&x, &s, walk_tile);
        }
        fill(&x, s.advantage, end, in->offsets[r + 1]);
    }
}
