/* test_metrics.c - what every loss reports, against plain loops over the same batch; the histogram's percentile against the order
 * statistic; and numbers that stay numbers when ratios do not fit one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "objective/batches.h"
#include "rein/rein.h"
#include "support/check.h"

#define SATURATION 4.8516519540979028e8 /* e^20 */

static const char *doing; /* what a failure is about */

static void near_to(const char *what, double got, double expected, double tolerance) {
    if (!(fabs(got - expected) <= tolerance * (1 + fabs(expected))))
        fail_msg("%s: %s is %.17g, not %.17g", doing, what, got, expected);
}

static rein_loss loss_of(const rein_batch *b, const rein_options *o) {
    rein_loss loss;
    rein_error err;
    if (rein_policy_loss(&loss, NULL, NULL, NULL, b, o, NULL, &err) != REIN_OK) fail_msg("%s: %s", doing, err.message);
    return loss;
}

/* ---- plain loops */

static double at(const ragged *r, enum token_array a, size_t t) { return r->array[a][t]; }

/* R of a trained token, by the level of its ratio. */
static double ratio_of(const ragged *r, rein_ratio level, size_t i, size_t t) {
    double sum = 0, n = 0;
    for (size_t s = r->sequence_offsets[i]; s < r->sequence_offsets[i + 1]; s++)
        if (r->mask[s]) sum += at(r, LOG_PROBS, s) - at(r, OLD_LOG_PROBS, s), n++;
    const double d = at(r, LOG_PROBS, t) - at(r, OLD_LOG_PROBS, t), mean = sum / n;
    switch (level) {
    case REIN_RATIO_SEQUENCE:
    case REIN_RATIO_SEQUENCE_TOKEN: return exp(mean);
    case REIN_RATIO_SEQUENCE_SUM: return exp(sum);
    case REIN_RATIO_AVERAGE: return (exp(d) + exp(mean)) / 2;
    case REIN_RATIO_GEOMETRIC_AVERAGE: return exp((d + mean) / 2);
    default: return exp(d);
    }
}

/* −1: held from below, 1: from above. `a`: the token's advantage. o is resolved. */
static int held(const rein_options *o, double ratio, double a, double lp, double old) {
    const double low = 1 - o->epsilon, high = 1 + o->epsilon_high, p = exp(lp), q = exp(old);
    double divergence;
    switch (o->surrogate) {
    case REIN_SURROGATE_CLIP:
    case REIN_SURROGATE_DUAL_CLIP:
    case REIN_SURROGATE_LUSPO: return a < 0 && ratio < low ? -1 : a > 0 && ratio > high;
    case REIN_SURROGATE_CISPO: return ratio < low ? -1 : ratio > high;
    case REIN_SURROGATE_GMPO: return a < 0 && lp - old < -o->epsilon ? -1 : a > 0 && lp - old > o->epsilon_high;
    case REIN_SURROGATE_TOPR:
        return ratio < (a < 0 ? o->topr_negative_low : o->topr_positive_low)
                   ? -1
                   : ratio > (a < 0 ? o->topr_negative_high : o->topr_positive_high);
    case REIN_SURROGATE_DPPO:
        divergence = o->dppo_divergence == REIN_DPPO_TV ? fabs(p - q) : q * (old - lp) + (1 - q) * log((1 - q) / (1 - p));
        if (!(divergence > o->dppo_delta)) return 0;
        return a < 0 && ratio < 1 ? -1 : a > 0 && ratio > 1;
    default: return 0;
    }
}

typedef struct sums {
    double n, ratio, square, low, high, clip_low, clip_high, old_k1, old_k3, ref_k1, ref_k3, entropy;
} sums;

static void add_token(sums *s, const ragged *r, const rein_options *o, size_t i, size_t t, double advantage) {
    const double lp = at(r, LOG_PROBS, t), old = at(r, OLD_LOG_PROBS, t), x = at(r, REF_LOG_PROBS, t) - lp,
                 ratio = ratio_of(r, o->ratio, i, t);
    const int side = held(o, ratio, advantage, lp, old);
    s->n++;
    s->ratio += ratio;
    s->square += ratio * ratio;
    s->low = s->n == 1 ? ratio : fmin(s->low, ratio);
    s->high = fmax(s->high, ratio);
    s->clip_low += side < 0;
    s->clip_high += side > 0;
    s->old_k1 += old - lp;
    s->old_k3 += expm1(lp - old) - (lp - old);
    s->ref_k1 -= x;
    s->ref_k3 += expm1(x) - x;
    s->entropy += at(r, ENTROPIES, t);
}

static void check_tokens(const ragged *r, const rein_options *o, const rein_batch *b, const rein_metrics *m,
                         const double *advantages, double tolerance) {
    sums s = {0};
    for (size_t i = 0; i < r->n_sequences; i++)
        for (size_t t = r->sequence_offsets[i]; t < r->sequence_offsets[i + 1]; t++)
            if (r->mask[t]) add_token(&s, r, o, i, t, advantages[t]);
    const double n = s.n > 0 ? s.n : 1;
    near_to("trained_tokens", m->trained_tokens, s.n, 0);
    near_to("ratio_mean", m->ratio_mean, s.ratio / n, tolerance);
    near_to("ratio_min", m->ratio_min, s.low, tolerance);
    near_to("ratio_max", m->ratio_max, s.high, tolerance);
    near_to("ess", m->ess, s.n > 0 ? s.ratio * s.ratio / (s.n * s.square) : 0, tolerance);
    near_to("kl_old_k1", m->kl_old_k1, s.old_k1 / n, tolerance);
    near_to("kl_old_k3", m->kl_old_k3, s.old_k3 / n, tolerance);
    near_to("kl_ref_k1", m->kl_ref_k1, s.ref_k1 / n, tolerance);
    near_to("kl_ref_k3", m->kl_ref_k3, s.ref_k3 / n, tolerance);
    near_to("entropy", m->entropy, b->entropies ? s.entropy / n : 0, tolerance);
    near_to("clip_low", m->clip_low, s.clip_low / n, 1e-14);
    near_to("clip_high", m->clip_high, s.clip_high / n, 1e-14);
}

static void check_sequences(const ragged *r, const rein_options *o, const rein_batch *b, const rein_metrics *m,
                            const double *estimates) {
    double shaped[4096], mean = 0, std = 0, flat = 0, length = 0, longest = 0, over = 0, live = 0;
    const double n = (double)r->n_sequences, groups = (double)r->n_groups;
    assert_int_equal(rein_shape_rewards(shaped, b, o, NULL), REIN_OK);
    for (size_t g = 0; g < r->n_groups; g++) {
        const size_t first = r->group_offsets[g], last = r->group_offsets[g + 1];
        double own = 0, variance = 0, nonzero = 0;
        for (size_t i = first; i < last; i++) own += shaped[i] / (double)(last - first);
        for (size_t i = first; i < last; i++)
            variance += last - first > 1 ? (shaped[i] - own) * (shaped[i] - own) / (double)(last - first - 1) : 0;
        for (size_t i = first; i < last; i++) nonzero += estimates[i] != 0;
        std += sqrt(variance) / groups;
        flat += (nonzero == 0) / groups;
    }
    for (size_t i = 0; i < r->n_sequences; i++) {
        size_t trained = 0;
        for (size_t t = r->sequence_offsets[i]; t < r->sequence_offsets[i + 1]; t++) trained += r->mask[t];
        mean += shaped[i] / n;
        length += (double)r->lengths[i] / n;
        longest = fmax(longest, (double)r->lengths[i]);
        over += b->token_budgets ? r->lengths[i] > r->budgets[i] : (double)r->lengths[i] > o->token_budget;
        live += trained > 0;
    }
    near_to("reward", m->reward, mean, 1e-13);
    near_to("reward_std", m->reward_std, std, 1e-7); /* a flat group's rounding has a root */
    near_to("frac_reward_zero_std", m->frac_reward_zero_std, flat, 1e-14);
    near_to("length_mean", m->length_mean, length, 1e-13);
    near_to("length_max", m->length_max, longest, 0);
    near_to("share_over_budget", m->share_over_budget, over / n, 1e-14);
    near_to("tokens", m->tokens, (double)r->n_tokens, 0);
    near_to("sequences", m->sequences, n, 0);
    near_to("trained_sequences", m->trained_sequences, live, 0);
    near_to("groups", m->groups, groups, 0);
}

/* One advantage a sequence, also of one without a trained token: the batch again with one trained token each. */
static void estimates_of(double *estimates, const ragged *r, const rein_batch *b, const rein_options *o) {
    size_t offsets[4097];
    rein_batch alone = *b;
    for (size_t i = 0; i <= r->n_sequences; i++) offsets[i] = i;
    alone.sequence_offsets = offsets;
    alone.mask = NULL;
    assert_int_equal(rein_advantages(estimates, &alone, o, NULL), REIN_OK);
}

static const char *const COMPOSITIONS[] = {
    "surrogate=clip advantage=group-mean",
    "preset=grpo",
    "preset=grpo entropy_coef=0.01",
    "surrogate=clip advantage=group-std ratio=sequence epsilon=0.05",
    "surrogate=clip advantage=group-mean ratio=sequence-sum",
    "surrogate=clip advantage=group-mean ratio=sequence-token",
    "surrogate=clip advantage=group-mean ratio=average",
    "surrogate=clip advantage=group-mean ratio=geometric-average epsilon=0.1 epsilon_high=0.15",
    "surrogate=dual-clip advantage=group-mean dual_clip=1.2",
    "surrogate=clip advantage=group-mean max_negative_advantage_importance_sampling_weight=1.1",
    "surrogate=cispo advantage=group-mean epsilon=0.2 epsilon_high=0.3",
    "surrogate=cispo advantage=group-mean epsilon=0.2 epsilon_high=0.3 max_negative_advantage_importance_sampling_weight=1.1",
    "surrogate=cispo advantage=group-mean entropy_coef=0.1 top_entropy=0.4",
    "surrogate=squared advantage=group-mean tau=0.3",
    "surrogate=dro advantage=group-mean dro_beta=0.3",
    "preset=gmpo epsilon=0.2 epsilon_high=0.3",
    "preset=sapo",
    "surrogate=vespo advantage=group-mean",
    "surrogate=topr advantage=group-mean",
    "surrogate=topr advantage=group-mean ratio=token topr_positive_low=0.8 topr_positive_high=1.2 topr_negative_low=0.7",
    "surrogate=dppo advantage=group-mean",
    "surrogate=dppo advantage=group-mean dppo_divergence=kl",
    "surrogate=luspo advantage=group-mean",
    "surrogate=reinforce advantage=leave-one-out",
    "surrogate=clip advantage=group-mean shape=budget budget_penalty_coef=0.1",
    "surrogate=clip advantage=max-rl shape=truncate budget_penalty=1",
    "surrogate=clip advantage=opo shape=overlong overlong_max=12 overlong_cushion=6 reward_clip=1",
    "surrogate=clip advantage=none token_budget=5",
};

static void check_composition(const char *settings, ragged *r, rng *g, rein_dtype dtype) {
    const shape most = {5, 5, 25, 0.3, 0.3};
    double estimates[4096], *advantages = some(r->max_tokens, sizeof *advantages);
    ragged_fill(r, g, most);
    const rein_options given = options_of(settings);
    rein_options o;
    assert_int_equal(rein_options_resolve(&o, &given, NULL), REIN_OK);
    const rein_batch b = ragged_batch(r, &given, dtype);
    const rein_loss loss = loss_of(&b, &given);
    const rein_metrics *m = &loss.metrics;
    assert_int_equal(rein_advantages(advantages, &b, &given, NULL), REIN_OK);
    estimates_of(estimates, r, &b, &given);
    check_tokens(r, &o, &b, m, advantages, dtype == REIN_F32 ? 2e-5 : 1e-12);
    check_sequences(r, &given, &b, m, estimates);
    near_to("the loss", loss.loss, m->surrogate_loss + m->kl_loss + m->entropy_loss, 1e-15);
    assert_int_equal(loss.nothing_to_train, m->trained_tokens == 0);
    free(advantages);
}

static void test_against_loops(void **state) {
    (void)state;
    const shape most = {5, 5, 25, 0.3, 0.3};
    ragged *r = ragged_new(most);
    for (size_t k = 0; k < COUNT(COMPOSITIONS); k++)
        for (size_t i = 0; i < property_cases(60); i++) {
            rng g = rng_of(1000 + k, i);
            doing = COMPOSITIONS[k];
            check_composition(COMPOSITIONS[k], r, &g, REIN_F64);
        }
    ragged_free(r);
}

/* f32: what is compared with an edge is rounded, so only compositions whose edges are far from every token. */
static void test_against_loops_f32(void **state) {
    (void)state;
    const char *const settings[] = {"surrogate=clip advantage=group-mean epsilon=0.9 epsilon_high=900",
                                    "surrogate=clip advantage=group-mean ratio=sequence epsilon=0.9 epsilon_high=900",
                                    "surrogate=cispo advantage=group-mean",
                                    "surrogate=reinforce advantage=group-mean entropy_coef=0.1"};
    const shape most = {5, 5, 25, 0.3, 0.3};
    ragged *r = ragged_new(most);
    for (size_t k = 0; k < COUNT(settings); k++)
        for (size_t i = 0; i < property_cases(60); i++) {
            rng g = rng_of(2000 + k, i);
            doing = settings[k];
            check_composition(settings[k], r, &g, REIN_F32);
        }
    ragged_free(r);
}

/* KL and entropy parts of the loss, by themselves. */
static void test_parts_of_the_loss(void **state) {
    (void)state;
    const shape most = {4, 4, 20, 0.3, 0.2};
    ragged *r = ragged_new(most);
    for (size_t i = 0; i < property_cases(60); i++) {
        rng g = rng_of(3, i);
        ragged_fill(r, &g, most);
        doing = "parts of the loss";
        const rein_options o = options_of(
            "surrogate=clip advantage=group-mean aggregation=token-mean kl_loss_coef=0.25 kl_estimator=k3 entropy_coef=0.5");
        const rein_batch b = ragged_batch(r, &o, REIN_F64);
        const rein_metrics m = loss_of(&b, &o).metrics;
        near_to("kl_loss", m.kl_loss, 0.25 * m.kl_ref_k3, 1e-13);
        near_to("entropy_loss", m.entropy_loss, -0.5 * m.entropy, 1e-13);
    }
    ragged_free(r);
}

/* ---- one long sequence of chosen log-ratios */
typedef struct line {
    size_t n, offsets[2];
    double *lp, *old, reward;
    float *lp_f32, *old_f32;
    rein_batch batch;
} line;

static line *line_new(size_t n) {
    line *l = some(1, sizeof *l);
    *l = (line){.n = n, .offsets = {0, n}, .lp = some(n, sizeof(double)), .old = some(n, sizeof(double)), .reward = 1};
    l->lp_f32 = some(n, sizeof(float));
    l->old_f32 = some(n, sizeof(float));
    l->batch = (rein_batch){
        .n_sequences = 1, .sequence_offsets = l->offsets, .log_probs = l->lp, .old_log_probs = l->old, .rewards = &l->reward};
    return l;
}

static void line_free(line *l) {
    free(l->lp), free(l->old), free(l->lp_f32), free(l->old_f32);
    free(l);
}

static void line_put(line *l, size_t t, double d) { /* exact in both types where d is a float */
    l->lp[t] = (double)(l->lp_f32[t] = (float)d);
    l->old[t] = 0;
}

static void line_type(line *l, rein_dtype dtype) {
    l->batch.dtype = dtype;
    l->batch.log_probs = dtype == REIN_F32 ? (const void *)l->lp_f32 : (const void *)l->lp;
    l->batch.old_log_probs = dtype == REIN_F32 ? (const void *)l->old_f32 : (const void *)l->old;
}

static int ascending(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* The smallest ratio that at least 99 % do not exceed. */
static double exact_p99(const line *l) {
    double *d = some(l->n, sizeof *d);
    memcpy(d, l->lp, l->n * sizeof *d);
    qsort(d, l->n, sizeof *d, ascending);
    const double ratio = exp(d[(size_t)ceil(0.99 * (double)l->n) - 1]);
    free(d);
    return ratio;
}

static double draw_log_ratio(rng *g, int distribution) {
    switch (distribution) {
    case 0: return 0;                                              /* on-policy */
    case 1: return 0.3;                                            /* all equal, not 1 */
    case 2: return 0.05 * rng_normal(g);                           /* a healthy step */
    case 3: return 2 * rng_normal(g);                              /* a sick one */
    case 4: return rng_chance(g, 0.02) ? 5 : -0.1;                 /* a few outliers, more than 1 % */
    case 5: return rng_chance(g, 0.005) ? 9 : 0.1 * rng_normal(g); /* less than 1 % */
    case 6: return -rng_between(g, 0, 15);                         /* all below 1 */
    default: return rng_between(g, -19, 19);
    }
}

static void test_p99(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 2, 7, 8, 99, 100, 101, 200, 1000, 4099, 20000, 200000}; /* of the last, more ways */
    const rein_options o = options_of("surrogate=clip advantage=none");
    double worst = 0;
    for (int distribution = 0; distribution < 8; distribution++)
        for (size_t k = 0; k < COUNT(sizes); k++)
            for (int dtype = 0; dtype < 2; dtype++) {
                line *l = line_new(sizes[k]);
                rng g = rng_of((uint64_t)distribution, sizes[k]);
                for (size_t t = 0; t < l->n; t++) line_put(l, t, draw_log_ratio(&g, distribution));
                line_type(l, dtype ? REIN_F32 : REIN_F64);
                const rein_metrics m = loss_of(&l->batch, &o).metrics;
                const double exact = exact_p99(l), error = fabs(m.ratio_p99 / exact - 1);
                if (!(error <= 0.01))
                    fail_msg("distribution %d, %zu tokens: p99 is %.9g, exactly %.9g", distribution, l->n, m.ratio_p99, exact);
                if (error > worst) worst = error;
                assert_true(m.ratio_p99 >= m.ratio_min && m.ratio_p99 <= m.ratio_max);
                line_free(l);
            }
    print_message("p99: worst error %.3f %%\n", 100 * worst);
}

/* Equal ratios are their own minimum, maximum and percentile, to the last bit; no sample is lost. */
static void test_equal_ratios(void **state) {
    (void)state;
    const rein_options o = options_of("surrogate=clip advantage=none");
    for (int k = -40; k <= 40; k++) {
        line *l = line_new(37);
        for (size_t t = 0; t < l->n; t++) line_put(l, t, k / 8.0);
        const rein_metrics m = loss_of(&l->batch, &o).metrics;
        doing = "equal ratios";
        near_to("ratio_mean", m.ratio_mean, exp(k / 8.0), 1e-14);
        near_to("ess", m.ess, 1, 1e-12);
        assert_true(m.ratio_min == m.ratio_max && m.ratio_p99 == m.ratio_min);
        if (k == 0) assert_true(m.ratio_mean == 1 && m.ratio_p99 == 1 && m.ess == 1 && m.kl_old_k1 == 0 && m.kl_old_k3 == 0);
        line_free(l);
    }
}

/* A mean lies between the least and the most, an effective sample size between 1/n and 1: also where e^d is far below the rounding of d. */
static void test_small_ratios(void **state) {
    (void)state;
    const rein_options o = options_of("surrogate=clip advantage=none");
    for (int k = 1; k <= 18; k++)
        for (int dtype = 0; dtype < 2; dtype++) {
            line *l = line_new(100);
            for (size_t t = 0; t < l->n; t++) line_put(l, t, -k - (double)(t % 3) / 64);
            line_type(l, dtype ? REIN_F32 : REIN_F64);
            const rein_metrics m = loss_of(&l->batch, &o).metrics;
            const int inside = m.ratio_mean >= m.ratio_min * 0.99999 && m.ratio_mean <= m.ratio_max * 1.00001;
            if (!inside || !(m.ess >= 1 / 100. && m.ess <= 1))
                fail_msg("log-ratios near %d, %s: ratio_min %.9g, mean %.9g, max %.9g, ess %.9g", -k, dtype ? "f32" : "f64",
                         m.ratio_min, m.ratio_mean, m.ratio_max, m.ess);
            line_free(l);
        }
}

/* The smallest of many tiles, to the last bit, where each is lower than the one before by as little as can be. */
static void test_smallest(void **state) {
    (void)state;
    static const float sizes[] = {2, 0.99f, 0.71f, 0.3f, 1e-4f};
    const rein_options o = options_of("surrogate=clip advantage=none");
    for (size_t k = 0; k < COUNT(sizes); k++)
        for (int variant = 0; variant < 4; variant++) {
            const rein_exec exec = {1, variant & 1 ? REIN_ISA_REF : REIN_ISA_BEST};
            rng g = rng_of(77, k);
            line *l = line_new(20000);
            float low = -sizes[k];
            rein_loss loss;
            for (size_t t = 0; t < l->n; t++) line_put(l, t, rng_between(&g, -0.9, 0.9) * (double)sizes[k]);
            for (size_t t = 100; t < l->n; t += 500, low = nextafterf(low, -INFINITY))
                line_put(l, t + rng_below(&g, 400), (double)low);
            low = nextafterf(low, INFINITY);
            line_type(l, variant & 2 ? REIN_F32 : REIN_F64);
            assert_int_equal(rein_policy_loss(&loss, NULL, NULL, NULL, &l->batch, &o, &exec, NULL), REIN_OK);
            if (loss.metrics.ratio_min != exp((double)low))
                fail_msg("%g: ratio_min %a, not %a", (double)low, loss.metrics.ratio_min, exp((double)low));
            line_free(l);
        }
}

/* ---- ratios that do not fit */
static void all_finite(const rein_metrics *m) {
    const double *x = (const double *)m;
    for (size_t i = 0; i < sizeof *m / sizeof *x; i++)
        if (!isfinite(x[i])) fail_msg("%s: metric number %zu is %g", doing, i, x[i]);
    assert_true(m->ratio_min <= m->ratio_p99 && m->ratio_p99 <= m->ratio_max);
    assert_true(m->ratio_min >= 1 / SATURATION * 0.999999 && m->ratio_max <= SATURATION * 1.000001 &&
                m->ratio_mean <= SATURATION * 1.000001);
}

static void test_saturation(void **state) {
    (void)state;
    static const double reaches[] = {19, 21, 43, 45, 60, 88, 89, 100, 300, 360, 709, 720, 5000, 1e30};
    const rein_options o = options_of("surrogate=clip advantage=none"); /* A = 1: held from above, so the loss is finite */
    char about[64];
    for (size_t k = 0; k < COUNT(reaches); k++)
        for (int dtype = 0; dtype < 2; dtype++) {
            line *l = line_new(50);
            snprintf(about, sizeof about, "one log-ratio of %g, %s", reaches[k], dtype ? "f32" : "f64");
            doing = about;
            line_put(l, 17, reaches[k]);
            line_put(l, 23, -reaches[k]);
            line_type(l, dtype ? REIN_F32 : REIN_F64);
            const rein_loss loss = loss_of(&l->batch, &o);
            const rein_metrics *m = &loss.metrics;
            all_finite(m);
            near_to("the loss", loss.loss, -(48 + 1.2 + exp(-reaches[k])) / 50, 1e-6);
            near_to("clip_high", m->clip_high, 1 / 50., 1e-15);
            near_to("ratio_max", m->ratio_max, fmin(exp(reaches[k]), SATURATION), 1e-6);
            near_to("ratio_min", m->ratio_min, fmax(exp(-reaches[k]), 1 / SATURATION), 1e-6);
            if (!(m->ess >= 1 / 50. * 0.999999 && m->ess <= 1)) fail_msg("%s: ess is %.9g, not within 1/n and 1", doing, m->ess);
            line_free(l);
        }
}

/* A token far below takes nothing from its neighbours, whose sums it would swallow if it were added to them. */
static void test_far_among_near(void **state) {
    (void)state;
    const rein_options o = options_of("surrogate=clip advantage=none epsilon=0.5");
    for (int dtype = 0; dtype < 2; dtype++) {
        line *l = line_new(400);
        doing = dtype ? "one log-ratio of -1e9 among 0.2, f32" : "one log-ratio of -1e20 among 0.2, f64";
        for (size_t i = 0; i < l->n; i++) line_put(l, i, i == 200 ? (dtype ? -1e9 : -1e20) : 0.2);
        line_type(l, dtype ? REIN_F32 : REIN_F64);
        const rein_loss loss = loss_of(&l->batch, &o);
        near_to("ratio_mean", loss.metrics.ratio_mean, 399 * exp(0.2) / 400, 1e-6);
        near_to("the loss", loss.loss, -399 * exp(0.2) / 400, 1e-6);
        line_free(l);
    }
}

/* ---- a batch with nothing to train: all 0, and said so */
static void test_nothing_to_train(void **state) {
    (void)state;
    static const size_t sequences[] = {0, 2, 2, 3}, groups[] = {0, 2, 3};
    static const uint8_t mask[] = {0, 0, 0};
    const double rubbish[] = {(double)NAN, (double)INFINITY, -9999}, rewards[] = {1, 2, 3};
    const rein_batch b = {.n_groups = 2,
                          .n_sequences = 3,
                          .group_offsets = groups,
                          .sequence_offsets = sequences,
                          .mask = mask,
                          .log_probs = rubbish,
                          .old_log_probs = rubbish,
                          .ref_log_probs = rubbish,
                          .rewards = rewards};
    doing = "nothing to train";
    const rein_options o = options_of("preset=grpo");
    rein_loss loss;
    double grad[3] = {77, 77, 77};
    assert_int_equal(rein_policy_loss(&loss, grad, NULL, NULL, &b, &o, NULL, NULL), REIN_OK);
    assert_int_equal(loss.nothing_to_train, 1);
    assert_true(loss.loss == 0 && grad[0] == 0 && grad[1] == 0 && grad[2] == 0);
    const rein_metrics *m = &loss.metrics;
    const double zero[] = {
        m->clip_low,     m->clip_high,      m->ratio_mean,       m->ratio_min, m->ratio_max, m->ratio_p99,      m->ess,
        m->kl_old_k1,    m->kl_old_k3,      m->kl_ref_k1,        m->kl_ref_k3, m->entropy,   m->surrogate_loss, m->kl_loss,
        m->entropy_loss, m->trained_tokens, m->trained_sequences};
    for (size_t i = 0; i < COUNT(zero); i++) assert_true(zero[i] == 0 && !signbit(zero[i]));
    assert_true(m->tokens == 3 && m->sequences == 3 && m->groups == 2 && m->reward == 2);
}

/* Metrics of a step in micro-batches and on any number of threads: the same bits. */
static void test_bits(void **state) {
    (void)state;
    const shape most = {6, 6, 6000, 0.2, 0.4}; /* too much for one thread */
    ragged *r = ragged_new(most);
    for (size_t i = 0; i < property_cases(60) / 10; i++) {
        rng g = rng_of(9, i);
        do ragged_fill(r, &g, most);
        while (r->n_tokens < 40000);
        const rein_options o = options_of("preset=grpo ratio=average entropy_coef=0.01");
        const rein_batch b = ragged_batch(r, &o, i % 2 ? REIN_F32 : REIN_F64);
        doing = "bits";
        const rein_loss expected = loss_of(&b, &o);
        for (int threads = 1; threads <= 8; threads++) {
            const rein_exec exec = {threads, threads % 2 ? REIN_ISA_BEST : REIN_ISA_REF};
            const size_t size = rein_step_size(&b, &o, &exec);
            void *buffer = some(1, size);
            rein_step *step;
            rein_loss loss;
            assert_int_equal(rein_step_begin(&step, buffer, size, &b, &o, &exec, NULL), REIN_OK);
            for (size_t first = 0, last; first < r->n_sequences; first = last) {
                last = first + 1 + rng_below(&g, 4);
                if (last > r->n_sequences) last = r->n_sequences;
                assert_int_equal(rein_step_loss(step, first, last, NULL, NULL, NULL, NULL, NULL, NULL), REIN_OK);
            }
            assert_int_equal(rein_step_finish(&loss, step, NULL), REIN_OK);
            assert_memory_equal(&loss.metrics, &expected.metrics, sizeof loss.metrics);
            assert_true(loss.loss == expected.loss);
            free(buffer);
        }
    }
    ragged_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_loops),
        cmocka_unit_test(test_against_loops_f32),
        cmocka_unit_test(test_parts_of_the_loss),
        cmocka_unit_test(test_p99),
        cmocka_unit_test(test_equal_ratios),
        cmocka_unit_test(test_small_ratios),
        cmocka_unit_test(test_smallest),
        cmocka_unit_test(test_saturation),
        cmocka_unit_test(test_far_among_near),
        cmocka_unit_test(test_nothing_to_train),
        cmocka_unit_test(test_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
