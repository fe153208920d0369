/* test_gradient.c - every gradient against central differences in f64, on random ragged batches.
 *
 * A step is prepared once at the base point, so whatever the whole step decides (advantages, KL averages, entropy quantile) is frozen;
 * rein_step_loss_apart freezes every other stop(·) at the base log-probs while one log-prob moves. Inputs are kept 1e-4 from every kink
 * and jump: a case that is not is drawn again, and the tests fail when that happens too often. The error is ‖g − difference‖/‖g‖. */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/pool.h"
#include "objective/batches.h"
#include "objective/options.h"
#include "objective/step.h"

#define TOLERANCE 1e-6     /* of f64, against differences */
#define TOLERANCE_F32 1e-5 /* of f32, against f64 */
#define CLEARANCE 1e-4     /* from kinks */
#define STEP 2e-5

/* ---- a case: options, a batch, and room to work */
typedef struct worker {
    ragged *data;
    void *workspace, *workspace_f32;
    size_t size, size_f32;
    double *moved, *gradient, *by_entropy, *general, *advantages;
    float *gradient_f32;
} worker;

static worker worker_new(shape most) {
    ragged *data = ragged_new(most);
    const size_t n = data->max_tokens;
    return (worker){.data = data,
                    .moved = some(n, sizeof(double)),
                    .gradient = some(n, sizeof(double)),
                    .by_entropy = some(n, sizeof(double)),
                    .general = some(n, sizeof(double)),
                    .advantages = some(n, sizeof(double)),
                    .gradient_f32 = some(n, sizeof(float))};
}

static void worker_free(worker *w) {
    ragged_free(w->data);
    free(w->workspace), free(w->workspace_f32), free(w->moved), free(w->gradient), free(w->by_entropy), free(w->general);
    free(w->advantages), free(w->gradient_f32);
}

static const rein_exec one_thread = {.threads = 1};

static rein_status begin(rein_step **step, void **workspace, size_t *size, const rein_batch *b, const rein_options *o,
                         rein_error *err) {
    const size_t needed = rein_step_size(b, o, &one_thread);
    if (needed > *size) {
        free(*workspace);
        *workspace = some(1, *size = needed);
    }
    return rein_step_begin(step, *workspace, *size, b, o, &one_thread, err);
}

/* ---- how far a batch is from everything that is not smooth */

static double log_ratio(rein_ratio level, double d, double mean, double sum) {
    switch (level) {
    case REIN_RATIO_SEQUENCE:
    case REIN_RATIO_SEQUENCE_TOKEN: return mean;
    case REIN_RATIO_SEQUENCE_SUM: return sum;
    case REIN_RATIO_AVERAGE: return log((exp(d) + exp(mean)) / 2);
    case REIN_RATIO_GEOMETRIC_AVERAGE: return (d + mean) / 2;
    default: return d;
    }
}

static double nearer(double a, double b) { return fabs(b) < a ? fabs(b) : a; }

static double mismatch_clearance(const rein_options *o, double log_weight) {
    if (o->mismatch != REIN_MISMATCH_TOKEN_MASK && o->mismatch != REIN_MISMATCH_SEQUENCE_MASK) return HUGE_VAL;
    return nearer(fabs(log_weight - log(o->mismatch_low)), log_weight - log(o->mismatch_high));
}

static double dppo_clearance(const rein_options *o, double lp, double old) {
    const double p = exp(lp), q = exp(old), kl = q * log(q / p) + (1 - q) * log((1 - q) / (1 - p));
    return nearer(fabs(lp - old), (o->dppo_divergence == REIN_DPPO_KL ? kl : fabs(p - q)) - o->dppo_delta);
}

static double surrogate_clearance(const rein_options *o, double D, double d) {
    switch (o->surrogate) {
    case REIN_SURROGATE_DUAL_CLIP:
    case REIN_SURROGATE_CLIP:
    case REIN_SURROGATE_LUSPO: {
        double near = fabs(D - log1p(o->epsilon_high));
        if (o->epsilon < 1) near = nearer(near, D - log1p(-o->epsilon));
        const double bound = o->max_negative_advantage_importance_sampling_weight;
        if (!isnan(bound)) near = nearer(near, D - log(bound));
        return o->surrogate == REIN_SURROGATE_DUAL_CLIP ? nearer(near, D - log(o->dual_clip)) : near;
    }
    case REIN_SURROGATE_GMPO: return nearer(fabs(d - o->epsilon_high), d + o->epsilon);
    default: return HUGE_VAL;
    }
}

static double kl_clearance(const rein_options *o, double x) {
    double near = HUGE_VAL;
    if (o->kl_loss_coef == 0) return near;
    if (o->kl_estimator == REIN_KL_ABS) near = nearer(near, x);
    if (!isnan(o->kl_clamp)) near = nearer(near, fabs(x) - o->kl_clamp);
    return near;
}

static double clearance(const rein_options *o, const ragged *r, const double *advantages, double entropy_threshold) {
    const double *lp = r->array[LOG_PROBS], *old = r->array[OLD_LOG_PROBS], *samp = r->array[SAMPLE_LOG_PROBS];
    double near = HUGE_VAL;
    for (size_t i = 0; i < r->n_sequences; i++) {
        double n = 0, sum = 0, drift = 0, mismatch = 0;
        for (size_t t = r->sequence_offsets[i]; t < r->sequence_offsets[i + 1]; t++) {
            if (!r->mask[t]) continue;
            n++, sum += lp[t] - old[t], drift += samp[t] - lp[t], mismatch += old[t] - samp[t];
        }
        if (n == 0) continue;
        if (!isnan(o->off_policy_mask_delta)) near = nearer(near, drift / n - o->off_policy_mask_delta);
        for (size_t t = r->sequence_offsets[i]; t < r->sequence_offsets[i + 1]; t++) {
            if (!r->mask[t]) continue;
            const double d = lp[t] - old[t], D = log_ratio(o->ratio, d, sum / n, sum);
            near = nearer(near, surrogate_clearance(o, D, d));
            near = nearer(near, kl_clearance(o, r->array[REF_LOG_PROBS][t] - lp[t]));
            near = nearer(near, mismatch_clearance(o, o->mismatch >= REIN_MISMATCH_SEQUENCE_TIS ? mismatch : old[t] - samp[t]));
            if (o->surrogate == REIN_SURROGATE_DPPO) near = nearer(near, dppo_clearance(o, lp[t], old[t]));
            if (entropy_threshold > -HUGE_VAL) near = nearer(near, r->array[ENTROPIES][t] - entropy_threshold);
            if (advantages[t] != 0) near = nearer(near, advantages[t] / 1e-2);
        }
    }
    return near;
}

/* ---- compositions */

/* The constants of a surrogate: as published, or drawn so that about half of the tokens are on either side of its bounds. */
static void draw_constants(rein_options *o, rng *g, double drift) {
    o->tau = rng_between(g, 0.05, 1);
    o->dro_beta = rng_between(g, 0.1, 2);
    o->max_response_length = rng_between(g, 5, 50);
    if (o->surrogate == REIN_SURROGATE_DUAL_CLIP && rng_chance(g, 0.7)) o->dual_clip = 1 + drift * rng_between(g, 0.3, 3);
    if (rng_chance(g, 0.3)) return;
    const int clips = o->surrogate == REIN_SURROGATE_CLIP || o->surrogate == REIN_SURROGATE_DUAL_CLIP ||
                      o->surrogate == REIN_SURROGATE_GMPO || o->surrogate == REIN_SURROGATE_LUSPO ||
                      o->surrogate == REIN_SURROGATE_CISPO;
    if (clips) o->epsilon = drift * rng_between(g, 0.3, 1.5), o->epsilon_high = drift * rng_between(g, 0.3, 1.5);
    if (o->surrogate == REIN_SURROGATE_SAPO)
        o->sapo_tau_positive = rng_between(g, 0.3, 3), o->sapo_tau_negative = rng_between(g, 0.3, 3);
    if (o->surrogate == REIN_SURROGATE_VESPO) {
        o->vespo_k_positive = rng_between(g, 0, 3), o->vespo_lambda_positive = rng_between(g, 0, 3);
        o->vespo_k_negative = rng_between(g, 0, 3), o->vespo_lambda_negative = rng_between(g, 0, 3);
    }
    if (o->surrogate == REIN_SURROGATE_TOPR) {
        o->topr_positive_low = rng_between(g, 0.5, 1), o->topr_positive_high = rng_between(g, 1, 1.5);
        o->topr_negative_low = rng_between(g, 0, 1), o->topr_negative_high = rng_between(g, 1, 1.5);
    }
    if (o->surrogate == REIN_SURROGATE_DPPO) {
        o->dppo_delta = drift * rng_between(g, 0.1, 1);
        if (rng_chance(g, 0.5)) o->dppo_ratio_cap = rng_between(g, 0.5, 1.5);
    }
}

/* Everything the settings left open, until the composition is a valid one. */
static rein_options draw_options(const rein_options *settings, int any_surrogate, rng *g, double drift) {
    for (;;) {
        rein_options o = *settings;
        if (any_surrogate) {
            o.surrogate = (rein_surrogate)rng_below(g, REIN_SURROGATE_LUSPO + 1);
            o.ratio = (rein_ratio)rng_below(g, REIN_RATIO_GEOMETRIC_AVERAGE + 1);
            o.aggregation = (rein_aggregation)rng_below(g, REIN_DR_GRPO + 1);
        }
        if (o.advantage == REIN_ADVANTAGE_NONE) o.advantage = (rein_advantage)rng_below(g, REIN_ADVANTAGE_GAE + 1);
        draw_constants(&o, g, drift);
        if (o.advantage == REIN_ADVANTAGE_GDPO && o.kl_reward_coef != 0) continue;
        if (rein_options_resolve(&o, &o, NULL) == REIN_OK) return o;
    }
}

/* ---- one case */

/* The loss, and its parts: a difference of parts is not blurred by a part that does not move. */
typedef struct parts {
    double part[SUM_ENTROPY_LOSS + 1], whole;
} parts;

/* The loss once more, from the start of the step. */
static parts loss_at(rein_step *s, const double *lp, const double *entropies) {
    parts loss = {.whole = (double)NAN};
    s->next = 0;
    for (size_t k = 0; k < s->n_blocks; k++) memset(&s->sums[k], 0, sizeof s->sums[k]);
    if (rein_step_loss_apart(s, 0, s->batch.n_sequences, lp, s->batch.log_probs, entropies, NULL, NULL, NULL, NULL) != REIN_OK)
        return loss;
    loss.whole = 0;
    for (int i = SUM_SURROGATE; i <= SUM_ENTROPY_LOSS; i++) {
        for (size_t k = 0; k < s->n_blocks; k++)
            for (int l = 0; l < SUM_LANES; l++) loss.part[i] += s->sums[k].sum[i][l];
        loss.whole += loss.part[i];
    }
    return loss;
}

static double difference(const parts *above, const parts *below) {
    double sum = above->whole - above->whole; /* NaN stays */
    for (int i = SUM_SURROGATE; i <= SUM_ENTROPY_LOSS; i++) sum += above->part[i] - below->part[i];
    return sum;
}

/* ‖gradient‖; where its terms all but cancel (whitened advantages in one sequence ratio), a share of ‖weight·advantage‖. */
static double norm_of(const worker *w, const rein_step *s, const double *gradient, double share) {
    double norm = 0, terms = 0;
    for (size_t i = 0; i < w->data->n_sequences; i++)
        for (size_t t = w->data->sequence_offsets[i]; t < w->data->sequence_offsets[i + 1]; t++) {
            if (!w->data->mask[t]) continue;
            norm += pow(gradient[t], 2);
            terms += pow(s->sequences[i].weight * w->advantages[t], 2);
        }
    return fmax(sqrt(norm), share * sqrt(terms));
}

/* ‖gradient − central difference‖/‖gradient‖ by log-probs or by entropies; `every`: one token in so many. 0 at masked tokens is exact. */
static double difference_error(worker *w, rein_step *s, const double *base, const double *gradient, int by_entropy, size_t every) {
    const double *lp = by_entropy ? s->batch.log_probs : w->moved, *entropies = by_entropy ? w->moved : s->batch.entropies;
    const size_t n = w->data->n_tokens;
    double error = 0;
    if (n) memcpy(w->moved, base, n * sizeof *base);
    for (size_t t = 0; t < n; t++) {
        if (!w->data->mask[t] && gradient[t] != 0) return HUGE_VAL;
        if (!w->data->mask[t] || t % every) continue;
        const double high = base[t] + STEP, low = base[t] - STEP;
        w->moved[t] = high;
        const parts above = loss_at(s, lp, entropies);
        w->moved[t] = low;
        const parts below = loss_at(s, lp, entropies);
        w->moved[t] = base[t];
        error += pow(gradient[t] - difference(&above, &below) / (high - low), 2);
    }
    return error == 0 ? 0 : sqrt(error) / norm_of(w, s, gradient, 1e-4);
}

typedef struct outcome {
    double worst, worst_entropy, worst_f32;
    size_t cases, again; /* `again`: draws too near to a kink */
    char why[700];
} outcome;

static int complain(outcome *out, const rein_options *o, size_t number, const char *what, double value) {
    if (!out->why[0])
        snprintf(out->why, sizeof out->why, "case %zu: %s %g (surrogate %d ratio %d aggregation %d advantage %d mismatch %d)",
                 number, what, value, (int)o->surrogate, (int)o->ratio, (int)o->aggregation, (int)o->advantage, (int)o->mismatch);
    return 0;
}

/* f32 on the same numbers. */
static double f32_error(worker *w, const rein_options *o, rein_error *err) {
    const rein_batch b = ragged_batch(w->data, o, REIN_F32);
    rein_step *s;
    if (begin(&s, &w->workspace_f32, &w->size_f32, &b, o, err) != REIN_OK) return HUGE_VAL;
    if (rein_step_loss(s, 0, b.n_sequences, NULL, NULL, w->gradient_f32, NULL, NULL, err) != REIN_OK) return HUGE_VAL;
    double error = 0;
    for (size_t t = 0; t < w->data->n_tokens; t++) error += pow((double)w->gradient_f32[t] - w->gradient[t], 2);
    return error == 0 ? 0 : sqrt(error) / norm_of(w, s, w->gradient, 0.1);
}

/* Draws until a batch is clear of kinks, then checks it. */
static int check_case(outcome *out, worker *w, const rein_options *settings, int any_surrogate, rng *g, shape most, size_t number,
                      size_t every) {
    static const double drifts[] = {0.02, 0.1, 0.4};
    rein_step *s;
    rein_error err = {0};
    rein_options o;
    rein_batch b;
    double near;
    for (;;) {
        most.drift = drifts[rng_below(g, 3)];
        o = draw_options(settings, any_surrogate, g, most.drift);
        ragged_fill(w->data, g, most);
        b = ragged_batch(w->data, &o, REIN_F64);
        if (begin(&s, &w->workspace, &w->size, &b, &o, &err) != REIN_OK) return complain(out, &o, number, err.message, 0);
        if (w->data->n_tokens) memcpy(w->moved, b.log_probs, w->data->n_tokens * sizeof *w->moved);
        /* a separate array for stop(·) selects the loop of any composition */
        if (rein_step_loss_apart(s, 0, b.n_sequences, NULL, w->moved, NULL, w->general, NULL, w->advantages, &err) != REIN_OK)
            return complain(out, &o, number, err.message, 0);
        near = clearance(&o, w->data, w->advantages, s->entropy_threshold);
        if (near > CLEARANCE) break;
        out->again++;
    }
    out->cases++;
    /* the gradient as a user gets it: by the loop of this composition, if it is a common one */
    rein_loss loss;
    if (begin(&s, &w->workspace, &w->size, &b, &o, &err) != REIN_OK ||
        rein_step_loss(s, 0, b.n_sequences, NULL, NULL, w->gradient, b.entropies ? w->by_entropy : NULL, NULL, &err) != REIN_OK ||
        rein_step_finish(&loss, s, &err) != REIN_OK)
        return complain(out, &o, number, err.message, 0);
    for (size_t t = 0; t < w->data->n_tokens; t++)
        if (!(w->gradient[t] == w->general[t]))
            return complain(out, &o, number, "the loop of any composition gives another gradient", w->gradient[t] - w->general[t]);

    const double frozen = loss_at(s, b.log_probs, b.entropies).whole;
    if (!(fabs(frozen - loss.loss) <= 1e-12 * (1 + fabs(frozen))))
        return complain(out, &o, number, "the frozen loss is off by", frozen - loss.loss);
    const double error = difference_error(w, s, b.log_probs, w->gradient, 0, every);
    out->worst = fmax(out->worst, error);
    if (!(error <= TOLERANCE)) return complain(out, &o, number, "gradient error", error);
    if (b.entropies) {
        const double by_entropy = difference_error(w, s, b.entropies, w->by_entropy, 1, every);
        out->worst_entropy = fmax(out->worst_entropy, by_entropy);
        if (!(by_entropy <= TOLERANCE)) return complain(out, &o, number, "error of the gradient by entropies", by_entropy);
    }
    const double f32 = f32_error(w, &o, &err);
    out->worst_f32 = fmax(out->worst_f32, f32);
    if (!(f32 <= TOLERANCE_F32)) return complain(out, &o, number, "f32 differs from f64 by", f32);
    return 1;
}

static void merge(outcome *all, const outcome *part) {
    all->worst = fmax(all->worst, part->worst);
    all->worst_entropy = fmax(all->worst_entropy, part->worst_entropy);
    all->worst_f32 = fmax(all->worst_f32, part->worst_f32);
    all->cases += part->cases;
    all->again += part->again;
    if (!all->why[0]) memcpy(all->why, part->why, sizeof all->why);
}

/* ---- a property loop: `settings`, or with "any" random surrogates, ratios and aggregations on top of them */
static size_t failures;

typedef struct loop {
    rein_options options;
    uint64_t id;
    int any;
    shape most;
    size_t every;
    worker workers[REIN_MAX_THREADS];
    outcome outcomes[REIN_MAX_THREADS];
} loop;

static void loop_case(void *context, size_t k, int thread) {
    loop *l = context;
    rng g = rng_of(l->id, k);
    (void)check_case(&l->outcomes[thread], &l->workers[thread], &l->options, l->any, &g, l->most, k, l->every);
}

static outcome property(const char *settings, uint64_t id, size_t cases, shape most, size_t every) {
    const int any = strncmp(settings, "any ", 4) == 0;
    loop *l = some(1, sizeof *l);
    *l = (loop){.options = options_of(any ? settings + 4 : settings), .id = id, .any = any, .most = most, .every = every};
    outcome all = {0};
    const int threads = rein_cores();
    for (int t = 0; t < threads; t++) l->workers[t] = worker_new(most);
    rein_parallel(threads, cases, loop_case, l);
    for (int t = 0; t < threads; t++) merge(&all, &l->outcomes[t]), worker_free(&l->workers[t]);
    free(l);
    print_message("%-92s %5zu cases, worst %.1e", settings, all.cases, all.worst);
    if (all.worst_entropy > 0) print_message(", by entropies %.1e", all.worst_entropy);
    print_message(", f32 %.1e, drawn again %.1f %%\n", all.worst_f32, 100 * (double)all.again / (double)(all.again + all.cases));
    if (all.why[0]) print_message("    FAILS %s\n", all.why), failures++;
    if (5 * all.again > all.again + all.cases) print_message("    FAILS too many draws are near a kink\n"), failures++;
    return all;
}

static const shape small = {.groups = 3, .group_size = 3, .length = 6, .masked = 0.3};

static void properties(const char *const *settings, uint64_t first_id) {
    failures = 0;
    for (size_t i = 0; settings[i]; i++) (void)property(settings[i], first_id + i, property_cases(1000), small, 1);
    assert_int_equal(failures, 0);
}

static const char *const aggregations[] = {"token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum", "dr-grpo"};

static void every_surrogate_ratio_and_aggregation(void **state) {
    static const char *const surrogates[] = {"reinforce", "gmpo", "clip",  "dual-clip", "cispo", "squared",
                                             "dro",       "sapo", "vespo", "topr",      "dppo",  "luspo"};
    static const char *const ratios[] = {"token", "sequence", "sequence-sum", "sequence-token", "average", "geometric-average"};
    uint64_t id = 0;
    (void)state;
    failures = 0;
    for (size_t s = 0; s < 12; s++)
        for (size_t r = 0; r < (s < 2 ? 1 : 6); r++)
            for (size_t a = 0; a < 5; a++) {
                char settings[200], ratio[40] = "";
                if (s >= 2) snprintf(ratio, sizeof ratio, " ratio=%s", ratios[r]);
                snprintf(settings, sizeof settings, "surrogate=%s%s aggregation=%s", surrogates[s], ratio, aggregations[a]);
                (void)property(settings, id++, property_cases(1000), small, 1);
            }
    assert_int_equal(id, 310);
    assert_int_equal(failures, 0);
}

static void every_kl_in_the_loss(void **state) {
    static const char *const settings[] = {"any kl_loss_coef=0.5 kl_estimator=k1",
                                           "any kl_loss_coef=0.5 kl_estimator=k2",
                                           "any kl_loss_coef=0.5 kl_estimator=k3",
                                           "any kl_loss_coef=0.5 kl_estimator=abs",
                                           "any kl_loss_coef=0.5 kl_estimator=is-k1",
                                           "any kl_loss_coef=0.5 kl_estimator=is-k3",
                                           "any kl_loss_coef=0.5 kl_estimator=exact",
                                           "any kl_loss_coef=0.5 kl_estimator=k3 kl_direction=current_over_ref",
                                           "any kl_loss_coef=0.5 kl_estimator=k3 kl_direction=ref_over_current",
                                           "any kl_loss_coef=0.5 kl_estimator=is-k3 kl_direction=current_over_ref",
                                           "any kl_loss_coef=0.5 kl_estimator=is-k3 kl_direction=ref_over_current",
                                           "any kl_loss_coef=0.5 kl_estimator=k1 kl_clamp=0.4",
                                           "any kl_loss_coef=0.5 kl_estimator=k2 kl_clamp=0.4",
                                           "any kl_loss_coef=0.5 kl_estimator=k3 kl_clamp=0.4",
                                           "any kl_loss_coef=0.5 kl_estimator=abs kl_clamp=0.4",
                                           "any kl_loss_coef=0.5 kl_estimator=is-k1 kl_clamp=0.4",
                                           "any kl_loss_coef=0.5 kl_estimator=is-k3 kl_clamp=0.4",
                                           "any kl_loss_coef=0.5 kl_estimator=is-k3 kl_clamp=0.4 kl_direction=current_over_ref",
                                           "surrogate=clip kl_loss_coef=0.04 kl_estimator=k3", /* a common composition */
                                           NULL};
    (void)state;
    properties(settings, 1000);
}

static void every_kl_in_the_reward(void **state) {
    static const char *const settings[] = {"any kl_reward_coef=0.3",
                                           "any kl_reward_coef=0.3 kl_penalty_source=sample",
                                           "any kl_reward_coef=0.3 advantage=gae",
                                           "any kl_reward_coef=0.3 advantage=reinforce++",
                                           "any kl_reward_coef=0.3 advantage=leave-one-out kl_penalty_source=sample",
                                           NULL};
    (void)state;
    properties(settings, 2000);
}

static void every_kl_in_the_advantage(void **state) {
    static const char *const settings[] = {"any kl_penalty_coef=0.3",
                                           "any kl_penalty_coef=0.3 kl_scope=group",
                                           "any kl_penalty_coef=0.3 kl_scope=sequence",
                                           "any kl_penalty_coef=0.3 kl_penalty_source=sample",
                                           "any kl_penalty_coef=0.3 kl_scope=group kl_penalty_source=sample",
                                           "any kl_penalty_coef=0.3 kl_scope=sequence kl_penalty_source=sample",
                                           "any kl_penalty_coef=0.3 kl_reward_coef=0.1 kl_loss_coef=0.2 kl_estimator=is-k3",
                                           NULL};
    (void)state;
    properties(settings, 3000);
}

static void corrections_and_adjustments(void **state) {
    static const char *const settings[] = {"any mismatch=token-tis tis_cap=1.1",
                                           "any mismatch=token-mask mismatch_low=0.9 mismatch_high=1.1",
                                           "any mismatch=sequence-tis tis_cap=1.1",
                                           "any mismatch=sequence-mask mismatch_low=0.8 mismatch_high=1.2",
                                           "any off_policy_mask_delta=0.05",
                                           "any mismatch=token-tis off_policy_mask_delta=0.05 kl_loss_coef=0.1 kl_estimator=k2",
                                           "any kimi_k2_tau=0.3",
                                           "any advantage_balance=0.6",
                                           "any advantage_balance=-0.6",
                                           "any entropy_coef=0.2",
                                           "any entropy_coef=0.2 entropy_target=1",
                                           "any top_entropy=0.47",
                                           "any top_entropy=0.47 entropy_coef=0.2 kl_loss_coef=0.1 kl_estimator=k3",
                                           "surrogate=dual-clip dual_clip=1.2",
                                           "any max_negative_advantage_importance_sampling_weight=1.05",
                                           "any max_negative_advantage_importance_sampling_weight=0.97 kimi_k2_tau=0.3",
                                           "surrogate=clip max_negative_advantage_importance_sampling_weight=1.1 "
                                           "kl_loss_coef=0.1 kl_estimator=is-k3",
                                           "surrogate=cispo epsilon_high=1 ratio=average "
                                           "max_negative_advantage_importance_sampling_weight=1.1",
                                           "surrogate=dppo dppo_divergence=tv",
                                           "surrogate=dppo dppo_divergence=kl",
                                           "surrogate=dppo dppo_divergence=kl dppo_ratio_cap=1.1",
                                           "surrogate=squared shape=budget budget_penalty_coef=0.01 advantage=group-mean",
                                           "any kimi_k2_tau=0.1 kl_penalty_coef=0.1 mismatch=token-tis top_entropy=0.63 "
                                           "entropy_coef=0.1 kl_loss_coef=0.1 advantage_balance=0.3",
                                           NULL};
    (void)state;
    properties(settings, 4000);
}

/* Sequences longer than a tile of the pass, and than two. */
static void long_sequences(void **state) {
    const shape lengthy = {.groups = 2, .group_size = 2, .length = 1500, .masked = 0.3};
    (void)state;
    failures = 0;
    (void)property("any advantage=group-mean", 5000, property_cases(1000) / 10, lengthy, 61);
    (void)property("any advantage=group-mean kl_loss_coef=0.2 kl_estimator=k3 mismatch=sequence-tis", 5001,
                   property_cases(1000) / 10, lengthy, 61);
    assert_int_equal(failures, 0);
}

/* ---- exactly at a kink the unclipped branch's gradient counts */

/* d loss/d lp of one token, summed; options as they are, reward = advantage. */
static double gradient_of_one(double lp, double old, double ref, double reward, const rein_options *o, double *loss) {
    const size_t offsets[] = {0, 1};
    const rein_batch b = {.n_sequences = 1,
                          .sequence_offsets = offsets,
                          .log_probs = &lp,
                          .old_log_probs = &old,
                          .ref_log_probs = &ref,
                          .rewards = &reward};
    double gradient;
    rein_loss out;
    rein_error err;
    if (rein_policy_loss(&out, &gradient, NULL, NULL, &b, o, NULL, &err) != REIN_OK) fail_msg("%s", err.message);
    if (loss) *loss = out.loss;
    return gradient;
}

/* The ratio as the library computes it, to the last bit: the loss of an unclipped token with advantage −1. */
static double ratio_of(double lp, double old) {
    rein_options o = options_of("surrogate=clip epsilon=1 epsilon_high=1e9 aggregation=token-sum");
    double ratio;
    (void)gradient_of_one(lp, old, lp, -1, &o, &ratio);
    return ratio;
}

static void at_the_bounds_of_the_clip_the_ratio_still_moves(void **state) {
    static const char *const surrogates[] = {"clip", "dual-clip", "luspo"};
    (void)state;
    for (size_t k = 0; k < 3; k++)
        for (int i = 0; i < 50; i++) {
            rng g = rng_of(6000 + k, (uint64_t)i);
            char settings[100];
            snprintf(settings, sizeof settings, "surrogate=%s aggregation=token-sum ratio=token", surrogates[k]);
            rein_options o = options_of(settings);
            const double up = rng_between(&g, -1.4, -1), down = rng_between(&g, -2, -1.6), old = -1.5;
            const double high = ratio_of(up, old), low = ratio_of(down, old);

            o.epsilon = 0.9, o.epsilon_high = high - 1; /* exact: 1 + ε_h is the ratio itself */
            assert_true(1 + o.epsilon_high == high);
            assert_true(gradient_of_one(up, old, up, 1, &o, NULL) == -high);
            o.epsilon_high = nextafter(nextafter(high, 0), 0) - 1;
            assert_true(gradient_of_one(up, old, up, 1, &o, NULL) == 0);

            o.epsilon = 1 - low, o.epsilon_high = 1;
            assert_true(1 - o.epsilon == low);
            assert_true(gradient_of_one(down, old, down, -1, &o, NULL) == low);
            o.epsilon = 1 - nextafter(nextafter(low, 2), 2);
            assert_true(gradient_of_one(down, old, down, -1, &o, NULL) == 0);
        }
}

/* Near tokens are decided by their log-ratio: live where the ratio is the bound, to the last bit; held where it is four units past it, more
 * than it may be off. */
static float gradient_of_one_f32(float log_ratio, double reward, double epsilon, double epsilon_high) {
    const size_t offsets[] = {0, 1};
    const float old = 0;
    const rein_batch b = {.n_sequences = 1,
                          .sequence_offsets = offsets,
                          .dtype = REIN_F32,
                          .log_probs = &log_ratio,
                          .old_log_probs = &old,
                          .rewards = &reward};
    rein_options o = options_of("surrogate=clip aggregation=token-sum ratio=token");
    float gradient;
    rein_loss loss;
    o.epsilon = epsilon, o.epsilon_high = epsilon_high;
    assert_int_equal(rein_policy_loss(&loss, &gradient, NULL, NULL, &b, &o, NULL, NULL), REIN_OK);
    return gradient;
}

static void at_the_bounds_in_f32(void **state) {
    (void)state;
    for (uint64_t i = 0; i < property_cases(3000); i++) {
        rng g = rng_of(6100, i);
        const float d = (float)exp(-rng_between(&g, 0.05, 14));
        const float high = -gradient_of_one_f32(d, 1, 0, 900), low = gradient_of_one_f32(-d, -1, 1, 0);
        const float under = high * (1 - 4 * FLT_EPSILON), over = low * (1 + 4 * FLT_EPSILON);
        assert_true(gradient_of_one_f32(d, 1, 0, (double)high - 1) == -high);
        assert_true(under < 1 || gradient_of_one_f32(d, 1, 0, (double)under - 1) == 0);
        assert_true(gradient_of_one_f32(-d, -1, 1 - (double)low, 0) == low);
        assert_true(over > 1 || gradient_of_one_f32(-d, -1, 1 - (double)over, 0) == 0);
    }
}

static void with_epsilon_0_the_first_step_is_not_lost(void **state) {
    rein_options o = options_of("surrogate=clip aggregation=token-sum epsilon=0 epsilon_high=0");
    (void)state;
    assert_true(gradient_of_one(-1, -1, -1, 2, &o, NULL) == -2);
    assert_true(gradient_of_one(-1, -1, -1, -2, &o, NULL) == 2);
}

static void at_the_other_kinks_too(void **state) {
    rein_options o = options_of("surrogate=dual-clip aggregation=token-sum");
    const double ratio = ratio_of(-0.5, -1.5);
    (void)state;
    o.dual_clip = ratio;
    assert_true(gradient_of_one(-0.5, -1.5, -1, -1, &o, NULL) == ratio);
    o.dual_clip = nextafter(ratio, 0);
    assert_true(gradient_of_one(-0.5, -1.5, -1, -1, &o, NULL) == 0);

    o = options_of("surrogate=clip aggregation=token-sum");
    o.max_negative_advantage_importance_sampling_weight = ratio;
    assert_true(gradient_of_one(-0.5, -1.5, -1, -1, &o, NULL) == ratio);
    o.max_negative_advantage_importance_sampling_weight = nextafter(ratio, 0);
    assert_true(gradient_of_one(-0.5, -1.5, -1, -1, &o, NULL) == 0);

    o = options_of("surrogate=gmpo aggregation=token-sum epsilon=0.25 epsilon_high=0.5");
    assert_true(gradient_of_one(-1, -1.5, -1, 1, &o, NULL) != 0);
    assert_true(gradient_of_one(-1, -1.5 - 0x1p-50, -1, 1, &o, NULL) == 0);
    assert_true(gradient_of_one(-1.5, -1.25, -1, -1, &o, NULL) != 0);
    assert_true(gradient_of_one(-1.5 - 0x1p-50, -1.25, -1, -1, &o, NULL) == 0);

    o = options_of("surrogate=reinforce aggregation=token-sum kl_loss_coef=1 kl_estimator=k2 kl_clamp=0.5");
    assert_true(gradient_of_one(-1, -1, -0.5, 0, &o, NULL) == -0.5);
    assert_true(gradient_of_one(-1, -1, -1.5, 0, &o, NULL) == 0.5);
    assert_true(gradient_of_one(-1, -1, -1.5 - 0x1p-50, 0, &o, NULL) == 0);
    o = options_of("surrogate=reinforce aggregation=token-sum kl_loss_coef=1 kl_estimator=abs");
    assert_true(gradient_of_one(-1, -1, -1, 0, &o, NULL) == 0); /* |x| at 0: the middle of its slopes */
}

/* ---- the named operations */

enum { MOST = 12 };

static void gradient_of_the_budget_loss(void **state) {
    const size_t cases = property_cases(1000);
    double worst = 0, worst_f32 = 0;
    (void)state;
    for (size_t k = 0; k < cases; k++) {
        rng g = rng_of(7000, k);
        double rewards[MOST], lp[MOST], old[MOST], gradient[MOST], loss, ignored;
        float rewards_f32[MOST], lp_f32[MOST], old_f32[MOST], gradient_f32[MOST];
        int64_t lengths[MOST], budgets[MOST];
        size_t offsets[4] = {0};
        const size_t prompts = 1 + rng_below(&g, 3);
        for (size_t p = 0; p < prompts; p++) offsets[p + 1] = offsets[p] + 1 + rng_below(&g, 4);
        const size_t n = offsets[prompts];
        for (size_t i = 0; i < n; i++) {
            rewards[i] = rewards_f32[i] = (float)rng_normal(&g), lp[i] = lp_f32[i] = (float)-rng_between(&g, 0.1, 20);
            old[i] = old_f32[i] = (float)(lp[i] + rng_normal(&g));
            lengths[i] = (int64_t)rng_below(&g, 200), budgets[i] = (int64_t)rng_below(&g, 200);
        }
        const rein_budget budget = {.token_budget = 100,
                                    .token_budgets = rng_chance(&g, 0.5) ? budgets : NULL,
                                    .kl_coef = rng_between(&g, 0.01, 1),
                                    .budget_penalty_coef = rng_between(&g, 0, 0.05),
                                    .budget_penalty = rng_between(&g, 0, 2),
                                    .rule = rng_chance(&g, 0.5) ? REIN_BUDGET_LINEAR : REIN_BUDGET_TRUNCATE};
        assert_int_equal(rein_budget_loss(&loss, NULL, NULL, NULL, gradient, rewards, lp, old, lengths, offsets, prompts, &budget,
                                          &one_thread, NULL),
                         0);
        assert_int_equal(rein_budget_loss_f32(&ignored, NULL, NULL, NULL, gradient_f32, rewards_f32, lp_f32, old_f32, lengths,
                                              offsets, prompts, &budget, &one_thread, NULL),
                         0);
        assert_true(fabs(ignored - loss) <= TOLERANCE_F32 * loss);
        double error = 0, error_f32 = 0, norm = 0;
        for (size_t i = 0; i < n; i++) {
            const double base = lp[i], high = base + STEP, low = base - STEP;
            double above, below;
            lp[i] = high;
            (void)rein_budget_loss(&above, NULL, NULL, NULL, NULL, rewards, lp, old, lengths, offsets, prompts, &budget,
                                   &one_thread, NULL);
            lp[i] = low;
            (void)rein_budget_loss(&below, NULL, NULL, NULL, NULL, rewards, lp, old, lengths, offsets, prompts, &budget,
                                   &one_thread, NULL);
            lp[i] = base;
            error += pow(gradient[i] - (above - below) / (high - low), 2);
            error_f32 += pow((double)gradient_f32[i] - gradient[i], 2);
            norm += gradient[i] * gradient[i];
        }
        worst = fmax(worst, sqrt(error / norm));
        worst_f32 = fmax(worst_f32, sqrt(error_f32 / norm));
        assert_true(sqrt(error / norm) <= TOLERANCE);
        assert_true(sqrt(error_f32 / norm) <= TOLERANCE_F32);
    }
    print_message("budget-loss: %zu cases, worst %.1e, f32 %.1e\n", cases, worst, worst_f32);
}

typedef struct gpo_case {
    double ratios[MOST], advantages[MOST], current[MOST], ref[MOST];
    size_t n;
    double epsilon, beta;
    rein_kl_direction direction;
} gpo_case;

static double gpo_at(const gpo_case *c) {
    rein_gpo value = {.objective = (double)NAN};
    (void)rein_gpo_objective(&value, NULL, NULL, c->ratios, c->advantages, c->current, c->ref, c->n, c->epsilon, c->beta,
                             c->direction, &one_thread, NULL);
    return value.objective;
}

static double gpo_difference(gpo_case *c, double *x) {
    const double base = *x, high = base + STEP, low = base - STEP;
    *x = high;
    const double above = gpo_at(c);
    *x = low;
    const double below = gpo_at(c);
    *x = base;
    return (above - below) / (high - low);
}

static gpo_case gpo_draw(rng *g, rein_kl_direction direction) {
    gpo_case c = {
        .n = 1 + rng_below(g, MOST), .epsilon = rng_between(g, 0, 0.5), .beta = rng_between(g, 0, 1), .direction = direction};
    for (size_t i = 0; i < c.n; i++) {
        do c.ratios[i] = (double)(float)exp(0.4 * rng_normal(g));
        while (fabs(c.ratios[i] - 1 - c.epsilon) < CLEARANCE || fabs(c.ratios[i] - 1 + c.epsilon) < CLEARANCE);
        c.advantages[i] = (double)(float)rng_normal(g);
        c.current[i] = (double)(float)rng_between(g, 0.05, 1.5);
        c.ref[i] = (double)(float)rng_between(g, 0.05, 1.5);
    }
    return c;
}

static double gpo_f32_error(const gpo_case *c, const double *by_ratio, const double *by_current) {
    float in[4][MOST], out[2][MOST];
    for (size_t i = 0; i < c->n; i++)
        in[0][i] = (float)c->ratios[i], in[1][i] = (float)c->advantages[i], in[2][i] = (float)c->current[i],
        in[3][i] = (float)c->ref[i];
    rein_gpo value;
    if (rein_gpo_objective_f32(&value, out[0], out[1], in[0], in[1], in[2], in[3], c->n, c->epsilon, c->beta, c->direction,
                               &one_thread, NULL) != REIN_OK)
        return HUGE_VAL;
    double error = 0, norm = 0;
    for (size_t i = 0; i < c->n; i++) {
        error += pow((double)out[0][i] - by_ratio[i], 2) + pow((double)out[1][i] - by_current[i], 2);
        norm += by_ratio[i] * by_ratio[i] + by_current[i] * by_current[i];
    }
    return sqrt(error / norm);
}

static void gradient_of_the_group_policy_objective(void **state) {
    const size_t cases = property_cases(1000);
    (void)state;
    for (rein_kl_direction direction = REIN_CURRENT_OVER_REF; direction <= REIN_REF_OVER_CURRENT; direction++) {
        double worst = 0, worst_f32 = 0;
        size_t over = 0;
        for (size_t k = 0; k < cases; k++) {
            rng g = rng_of(8000 + (uint64_t)direction, k);
            gpo_case c = gpo_draw(&g, direction);
            double by_ratio[MOST], by_current[MOST], error = 0, norm = 0;
            rein_gpo value;
            assert_int_equal(rein_gpo_objective(&value, by_ratio, by_current, c.ratios, c.advantages, c.current, c.ref, c.n,
                                                c.epsilon, c.beta, direction, &one_thread, NULL),
                             REIN_OK);
            assert_true(value.objective == gpo_at(&c));
            for (size_t i = 0; i < c.n; i++) {
                error += pow(by_ratio[i] - gpo_difference(&c, &c.ratios[i]), 2);
                error += pow(by_current[i] - gpo_difference(&c, &c.current[i]), 2);
                norm += by_ratio[i] * by_ratio[i] + by_current[i] * by_current[i];
            }
            const double f32 = gpo_f32_error(&c, by_ratio, by_current);
            worst = fmax(worst, sqrt(error / norm));
            worst_f32 = fmax(worst_f32, f32);
            if (!(f32 <= TOLERANCE_F32)) print_message("gpo case %zu: f32 differs by %g, n %zu\n", k, f32, c.n);
            over += !(sqrt(error / norm) <= TOLERANCE) || !(f32 <= TOLERANCE_F32);
        }
        print_message("gpo, direction %d: %zu cases, worst %.1e, f32 %.1e\n", (int)direction, cases, worst, worst_f32);
        assert_int_equal(over, 0);
    }
}

static void at_a_kink_of_the_group_policy_objective(void **state) {
    const double ratios[] = {1 + 0.2, 1 - 0.2, 1 + 0.2, 1 - 0.2}, advantages[] = {1, -1, -1, 1}, pi[] = {0.5, 0.5, 0.5, 0.5};
    const float ratios_f32[] = {1.2f, 0.8f, 1.2f, 0.8f}, advantages_f32[] = {1, -1, -1, 1}, pi_f32[] = {0.5f, 0.5f, 0.5f, 0.5f};
    double gradient[4];
    float gradient_f32[4];
    rein_gpo value;
    (void)state;
    assert_int_equal(
        rein_gpo_objective(&value, gradient, NULL, ratios, advantages, pi, pi, 4, 0.2, 0, REIN_CURRENT_OVER_REF, NULL, NULL),
        REIN_OK);
    assert_int_equal(rein_gpo_objective_f32(&value, gradient_f32, NULL, ratios_f32, advantages_f32, pi_f32, pi_f32, 4, 0.2, 0,
                                            REIN_CURRENT_OVER_REF, NULL, NULL),
                     REIN_OK);
    for (int i = 0; i < 4; i++) {
        assert_true(gradient[i] == advantages[i] / 4);
        assert_true(gradient_f32[i] == advantages_f32[i] / 4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_surrogate_ratio_and_aggregation),
        cmocka_unit_test(every_kl_in_the_loss),
        cmocka_unit_test(every_kl_in_the_reward),
        cmocka_unit_test(every_kl_in_the_advantage),
        cmocka_unit_test(corrections_and_adjustments),
        cmocka_unit_test(long_sequences),
        cmocka_unit_test(at_the_bounds_of_the_clip_the_ratio_still_moves),
        cmocka_unit_test(at_the_bounds_in_f32),
        cmocka_unit_test(with_epsilon_0_the_first_step_is_not_lost),
        cmocka_unit_test(at_the_other_kinks_too),
        cmocka_unit_test(gradient_of_the_budget_loss),
        cmocka_unit_test(gradient_of_the_group_policy_objective),
        cmocka_unit_test(at_a_kink_of_the_group_policy_objective),
    };
    return cmocka_run_group_tests_name("gradient", tests, NULL, NULL);
}
