/* test_advantage.c - reward shapes and advantage estimators against hand-computed numbers and plain loops, through the public functions
 * rein_shape_rewards and rein_advantages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objective/options.h"
#include "rein/rein.h"
#include "support/check.h"
#include "support/random.h"

static int rounds(int n) { return getenv("REIN_TEST_FAST") ? n / 10 + 1 : n; }

static void near_to(double got, double expected, double tolerance) {
    if (!(fabs(got - expected) <= tolerance)) fail_msg("%.17g is not %.17g (off by %.3g)", got, expected, fabs(got - expected));
}

/* Options from "a=1 b=x" on nothing. */
static rein_options options(const char *list) {
    rein_options o;
    rein_error err;
    char name[64], value[64];
    int taken;
    assert_int_equal(rein_options_init(&o, "none", &err), REIN_OK);
    for (; sscanf(list, " %63[^= ]=%63[^ ]%n", name, value, &taken) == 2; list += taken)
        if (rein_options_set(&o, name, value, &err) != REIN_OK) fail_msg("%s", err.message);
    return o;
}

enum { MOST = 64 };

/* A step of sequences with one token each, unless said otherwise: what is tested here is one number a sequence. */
typedef struct step {
    size_t groups[MOST + 1], sequences[MOST + 1];
    double rewards[MOST];
    int64_t lengths[MOST];
    rein_batch batch;
} step;

static void make_step(step *s, size_t n_groups, const size_t *sizes, const double *rewards) {
    memset(s, 0, sizeof *s);
    for (size_t g = 0; g < n_groups; g++) s->groups[g + 1] = s->groups[g] + sizes[g];
    const size_t n = s->groups[n_groups];
    assert_true(n <= MOST);
    for (size_t i = 0; i < n; i++) s->sequences[i + 1] = i + 1;
    if (rewards) memcpy(s->rewards, rewards, n * sizeof *rewards);
    s->batch = (rein_batch){.n_groups = n_groups,
                            .n_sequences = n,
                            .group_offsets = s->groups,
                            .sequence_offsets = s->sequences,
                            .rewards = s->rewards};
}

static void advantages_of(double *a, const step *s, const char *settings) {
    const rein_options o = options(settings);
    rein_error err = {0};
    if (rein_advantages(a, &s->batch, &o, &err) != REIN_OK) fail_msg("%s: %s", settings, err.message);
}

static void advantages_fail(const step *s, const char *settings, const char *text, const char *more) {
    const rein_options o = options(settings);
    rein_error err = {0};
    double a[MOST];
    for (size_t i = 0; i < MOST; i++) a[i] = 77;
    const rein_status status = rein_advantages(a, &s->batch, &o, &err);
    if (status != REIN_EINVAL || !strstr(err.message, text) || !strstr(err.message, more))
        fail_msg("%s: status %d, \"%s\" does not say \"%s\" and \"%s\"", settings, (int)status, err.message, text, more);
    if (!*err.field) fail_msg("%s: \"%s\" names no field", settings, err.message);
    for (size_t i = 0; i < MOST; i++) assert_true(a[i] == 77);
    assert_int_equal(rein_advantages(a, &s->batch, &o, NULL), REIN_EINVAL);
}

static void expect(const step *s, const char *settings, const double *expected) {
    double a[MOST];
    advantages_of(a, s, settings);
    for (size_t i = 0; i < s->batch.n_sequences; i++)
        if (!(fabs(a[i] - expected[i]) <= 1e-14 * (1 + fabs(expected[i]))))
            fail_msg("%s: advantage %zu is %.17g, not %.17g", settings, i, a[i], expected[i]);
}

/* ---- estimators, by hand */
static void test_by_hand(void **state) {
    (void)state;
    step s;
    make_step(&s, 2, (const size_t[]){3, 2}, (const double[]){1, 2, 6, 0, 1});
    /* group means 3 and .5; squared deviations 4 + 1 + 9 = 14, so std √7; √½ */
    const double r7 = sqrt(7), r2 = sqrt(.5);
    expect(&s, "advantage=none", (const double[]){1, 2, 6, 0, 1});
    expect(&s, "advantage=group-mean", (const double[]){-2, -1, 3, -.5, .5});
    expect(&s, "advantage=group-std",
           (const double[]){-2 / (r7 + 1e-6), -1 / (r7 + 1e-6), 3 / (r7 + 1e-6), -.5 / (r2 + 1e-6), .5 / (r2 + 1e-6)});
    expect(&s, "advantage=group-std advantage_eps=0", (const double[]){-2 / r7, -1 / r7, 3 / r7, -.5 / r2, .5 / r2});
    expect(&s, "advantage=leave-one-out", (const double[]){-3, -1.5, 4.5, -1, 1}); /* r − mean of the others */
    expect(&s, "advantage=max-rl", (const double[]){-2. / 3, -1. / 3, 1, -1, 1});
    /* batch: mean 2, squared deviations 1 + 0 + 16 + 4 + 1 = 22, variance 22/4 */
    const double all = sqrt(5.5);
    expect(&s, "advantage=batch-std advantage_eps=0", (const double[]){-2 / all, -1 / all, 3 / all, -.5 / all, .5 / all});
    expect(&s, "advantage=pass-at-k", (const double[]){0, 0, 4, 0, 1});             /* best − second best */
    expect(&s, "advantage=pass-at-k pass_k=2", (const double[]){0, .5, 4.5, 0, 1}); /* pairs: (1-of-two others) */
}

static void test_baselines_given(void **state) {
    (void)state;
    step s;
    make_step(&s, 2, (const size_t[]){2, 1}, (const double[]){1, 2, 5});
    s.batch.baseline_rewards = (const double[]){.5, .25, 7};
    expect(&s, "advantage=remax", (const double[]){.5, 1.75, -2});
}

/* OPO: the baseline weighs rewards with lengths; without lengths it is the mean. */
static void test_opo(void **state) {
    (void)state;
    step s;
    make_step(&s, 2, (const size_t[]){2, 2}, (const double[]){1, 0, 3, 1});
    s.batch.response_lengths = (const int64_t[]){30, 10, 0, 0};
    expect(&s, "advantage=opo", (const double[]){.25, -.75, 1, -1});
    s.batch.response_lengths = NULL; /* the trained tokens: one each */
    expect(&s, "advantage=opo", (const double[]){.5, -.5, 1, -1});
}

static void test_balance(void **state) {
    (void)state;
    step s;
    make_step(&s, 1, (const size_t[]){3}, (const double[]){1, 2, 6});
    expect(&s, "advantage=group-mean advantage_balance=0.25", (const double[]){-1.5, -.75, 3});
    expect(&s, "advantage=group-mean advantage_balance=-0.25", (const double[]){-2, -1, 2.25});
    expect(&s, "advantage=group-mean advantage_balance=1", (const double[]){0, 0, 3});
    expect(&s, "advantage=group-mean advantage_balance=-1", (const double[]){-2, -1, 0});
}

/* ---- exactly 0 */
static const char *const EXACT[] = {"group-mean", "group-std", "batch-std", "leave-one-out", "opo", "max-rl"};

static void test_equal_rewards_give_zero(void **state) {
    (void)state;
    /* one and the same number, numbers that only should be the same, and their sums of components; a group that differs is beside them */
    const double rewards[] = {.1, .1, .1, .3, .1 + .2, 1e15, 1e15, 1e15 + .125, -2, -2, 0, 1, 0, 0};
    for (size_t k = 0; k < COUNT(EXACT); k++) {
        step s;
        double a[MOST];
        char settings[64];
        make_step(&s, 6, (const size_t[]){3, 2, 3, 2, 2, 2}, rewards);
        snprintf(settings, sizeof settings, "advantage=%s", EXACT[k]);
        advantages_of(a, &s, settings);
        for (size_t i = 0; i < 14; i++)
            if ((a[i] == 0) != (i != 10 && i != 11)) fail_msg("%s: advantage %zu is %g", EXACT[k], i, a[i]);
    }
}

static void test_group_of_one_gives_zero(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(EXACT) + 1; k++) {
        step s;
        double a[MOST];
        char settings[64];
        make_step(&s, 3, (const size_t[]){1, 2, 1}, (const double[]){5, 1, 0, -3});
        snprintf(settings, sizeof settings, "advantage=%s", k < COUNT(EXACT) ? EXACT[k] : "pass-at-k");
        advantages_of(a, &s, settings);
        assert_true(a[0] == 0 && a[3] == 0 && a[1] > 0);
    }
}

static void test_max_rl_mean_of_zero(void **state) {
    (void)state;
    step s;
    make_step(&s, 2, (const size_t[]){2, 4}, (const double[]){-1, 1, 0, 0, 0, 0});
    expect(&s, "advantage=max-rl", (const double[]){0, 0, 0, 0, 0, 0});
}

/* ---- pass@k: against the enumeration of every subset */
static double enumerate_pass(const double *r, size_t n, size_t k, size_t i) {
    double sum = 0, count = 0;
    for (unsigned set = 0; set < 1u << n; set++) { /* the k − 1 others */
        if (set >> i & 1 || (size_t)__builtin_popcount(set) != k - 1) continue;
        double best = -HUGE_VAL;
        for (size_t j = 0; j < n; j++)
            if (set >> j & 1) best = fmax(best, r[j]);
        sum += fmax(best, r[i]) - best;
        count++;
    }
    return sum / count;
}

static void test_pass_at_k(void **state) {
    (void)state;
    for (int round = 0; round < rounds(300); round++)
        for (size_t n = 2; n <= 8; n++)
            for (size_t k = 2; k <= n; k++) {
                step s;
                double r[8], a[MOST];
                char settings[64];
                for (size_t i = 0; i < n; i++)
                    r[i] = round % 3 == 0 ? (double)below(2) : round % 3 == 1 ? (double)below(4) : uniform(-1, 1);
                make_step(&s, 1, &n, r);
                snprintf(settings, sizeof settings, "advantage=pass-at-k pass_k=%zu", k);
                advantages_of(a, &s, settings);
                for (size_t i = 0; i < n; i++) near_to(a[i], enumerate_pass(r, n, k, i), 1e-14);
            }
}

static void test_pass_at_k_whole_group(void **state) {
    (void)state;
    step s;
    make_step(&s, 4, (const size_t[]){4, 3, 1, 2}, (const double[]){3, 1, 2.5, 0, 2, 2, 1, 9, -1, -4});
    expect(&s, "advantage=pass-at-k",
           (const double[]){.5, 0, 0, 0, 0, 0, 0, 0, 3, 0}); /* two best: without either one the other remains */
    advantages_fail(&s, "advantage=pass-at-k pass_k=3", "pass_k is 3", "group 3 has only 2");
}

/* ---- token-level estimators: ragged sequences with masked tokens */
typedef struct tokens {
    step s;
    double lp[MOST], ref[MOST], samp[MOST], values[MOST];
    uint8_t mask[MOST];
} tokens;

static void make_tokens(tokens *t, size_t n_sequences, size_t longest) {
    const size_t ones[MOST] = {n_sequences};
    double rewards[MOST] = {0};
    for (size_t i = 0; i < n_sequences; i++) rewards[i] = uniform(-1, 2);
    make_step(&t->s, 1, ones, rewards);
    for (size_t i = 0; i < n_sequences; i++) t->s.sequences[i + 1] = t->s.sequences[i] + below(longest + 1);
    for (size_t k = 0; k < t->s.sequences[n_sequences]; k++) {
        t->mask[k] = uniform(0, 1) < .7;
        t->lp[k] = t->mask[k] ? uniform(-3, 0) : (double)NAN;
        t->ref[k] = t->mask[k] ? uniform(-3, 0) : (double)NAN;
        t->samp[k] = t->mask[k] ? uniform(-3, 0) : (double)NAN;
        t->values[k] = t->mask[k] ? uniform(-1, 1) : (double)NAN;
    }
    t->s.batch.mask = t->mask;
    t->s.batch.log_probs = t->lp;
}

/* A_t = Σ_l (γλ)^l δ_{t+l} over trained tokens, as a double loop. */
static double naive_gae(const tokens *t, size_t i, size_t at, double gamma, double lambda, double beta) {
    const size_t end = t->s.sequences[i + 1];
    double sum = 0, weight = 1;
    for (size_t k = at; k < end; k++) {
        if (!t->mask[k]) continue;
        size_t next = k + 1;
        while (next < end && !t->mask[next]) next++;
        const double reward = (next == end ? t->s.rewards[i] : 0) - beta * (t->lp[k] - t->ref[k]);
        sum += weight * (reward + (next < end ? gamma * t->values[next] : 0) - t->values[k]);
        weight *= gamma * lambda;
    }
    return sum;
}

static void test_gae(void **state) {
    (void)state;
    for (int round = 0; round < rounds(300); round++) {
        tokens t;
        double a[MOST];
        char settings[128];
        make_tokens(&t, 1 + below(6), 9);
        t.s.batch.values = t.values;
        t.s.batch.ref_log_probs = t.ref;
        const double gamma = round % 3 ? uniform(.5, 1) : 1, lambda = round % 3 ? uniform(0, 1) : .95,
                     beta = round % 2 ? uniform(0, 1) : 0;
        if (round % 3)
            snprintf(settings, sizeof settings, "advantage=gae gae_gamma=%.17g gae_lambda=%.17g kl_reward_coef=%.17g", gamma,
                     lambda, beta);
        else snprintf(settings, sizeof settings, "advantage=gae kl_reward_coef=%.17g", beta);
        advantages_of(a, &t.s, settings);
        for (size_t i = 0; i < t.s.batch.n_sequences; i++)
            for (size_t k = t.s.sequences[i]; k < t.s.sequences[i + 1]; k++)
                near_to(a[k], t.mask[k] ? naive_gae(&t, i, k, gamma, lambda, beta) : 0, 1e-13);
    }
}

/* γ = λ = 1 and V = 0: the return. */
static void test_gae_of_no_critic(void **state) {
    (void)state;
    tokens t;
    double a[MOST];
    make_tokens(&t, 4, 9);
    for (size_t k = 0; k < MOST; k++) t.values[k] = 0;
    t.s.batch.values = t.values;
    advantages_of(a, &t.s, "advantage=gae gae_lambda=1");
    for (size_t i = 0; i < 4; i++)
        for (size_t k = t.s.sequences[i]; k < t.s.sequences[i + 1]; k++) assert_true(a[k] == (t.mask[k] ? t.s.rewards[i] : 0));
}

/* REINFORCE++: the return to go with each token's KL taken off, whitened over all trained tokens of the batch. */
static void test_reinforce_pp(void **state) {
    (void)state;
    for (int round = 0; round < rounds(300); round++) {
        tokens t;
        double a[MOST], returns[MOST], mean = 0, variance = 0, count = 0;
        char settings[128];
        make_tokens(&t, 2 + below(5), 8);
        t.s.batch.ref_log_probs = t.ref;
        t.s.batch.sample_log_probs = t.samp;
        const double beta = round % 2 ? uniform(0, 1) : 0;
        const int sampled = beta > 0 && round % 4 == 1;
        snprintf(settings, sizeof settings, "advantage=reinforce++ kl_reward_coef=%.17g%s", beta,
                 sampled ? " kl_penalty_source=sample" : "");
        for (size_t i = 0; i < t.s.batch.n_sequences; i++)
            for (size_t k = t.s.sequences[i]; k < t.s.sequences[i + 1]; k++) {
                if (!t.mask[k]) continue;
                returns[k] = t.s.rewards[i];
                for (size_t l = k; l < t.s.sequences[i + 1]; l++)
                    if (t.mask[l] && beta > 0) returns[k] -= beta * ((sampled ? t.samp[l] : t.lp[l]) - t.ref[l]);
                mean += returns[k];
                count++;
            }
        advantages_of(a, &t.s, settings);
        mean /= count;
        const size_t n = t.s.sequences[t.s.batch.n_sequences];
        for (size_t k = 0; k < n; k++)
            if (t.mask[k]) variance += (returns[k] - mean) * (returns[k] - mean) / (count - 1);
        for (size_t k = 0; k < n; k++)
            near_to(a[k], t.mask[k] && count > 1 ? (returns[k] - mean) / sqrt(variance + 1e-8) : 0, 1e-11);
    }
}

static void test_reinforce_pp_of_one_token(void **state) {
    (void)state;
    tokens t;
    double a[MOST];
    make_tokens(&t, 1, 1);
    t.s.sequences[1] = 1, t.mask[0] = 1, t.lp[0] = -1, t.ref[0] = -2;
    t.s.batch.ref_log_probs = t.ref;
    advantages_of(a, &t.s, "advantage=reinforce++");
    assert_true(a[0] == 0);
    advantages_of(a, &t.s, "advantage=reinforce++ kl_reward_coef=0.5");
    assert_true(a[0] == 0);
}

/* A token each, equal rewards but for rounding: exactly 0. */
static void test_reinforce_pp_equal(void **state) {
    (void)state;
    step s;
    double a[MOST];
    make_step(&s, 1, (const size_t[]){3}, (const double[]){.3, .1 + .2, .3});
    advantages_of(a, &s, "advantage=reinforce++");
    assert_true(a[0] == 0 && a[1] == 0 && a[2] == 0);
}

/* ---- KL in the reward of a sequence: r_i − β·Σ over trained tokens of (src − ref) */
static void test_kl_in_the_reward(void **state) {
    (void)state;
    for (int round = 0; round < rounds(100); round++) {
        tokens t;
        double a[MOST], r[MOST], mean = 0;
        const int sampled = round % 2;
        make_tokens(&t, 2 + below(5), 8);
        t.s.batch.ref_log_probs = t.ref;
        t.s.batch.sample_log_probs = t.samp;
        const size_t n = t.s.batch.n_sequences;
        for (size_t i = 0; i < n; i++) {
            r[i] = t.s.rewards[i];
            for (size_t k = t.s.sequences[i]; k < t.s.sequences[i + 1]; k++)
                if (t.mask[k]) r[i] -= .2 * ((sampled ? t.samp[k] : t.lp[k]) - t.ref[k]);
            mean += r[i] / (double)n;
        }
        advantages_of(a, &t.s,
                      sampled ? "advantage=group-mean kl_reward_coef=0.2 kl_penalty_source=sample"
                              : "advantage=group-mean kl_reward_coef=0.2");
        for (size_t i = 0; i < n; i++)
            for (size_t k = t.s.sequences[i]; k < t.s.sequences[i + 1]; k++) near_to(a[k], t.mask[k] ? r[i] - mean : 0, 1e-13);
    }
}

/* ---- GDPO */
static void z_scores(double *z, const double *x, size_t n, double eps) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < n; i++) mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)(n - 1);
    for (size_t i = 0; i < n; i++) z[i] = (x[i] - mean) / (sqrt(variance) + eps);
}

static void test_gdpo(void **state) {
    (void)state;
    enum { PARTS = 3 };
    static const size_t sizes[] = {3, 4, 2};
    static const double weights[] = {1, .5, 2};
    for (int round = 0; round < rounds(200); round++) {
        step s;
        double parts[9 * PARTS], sums[9] = {0}, expected[9], a[MOST], x[4], z[4];
        const double eps = round % 2 ? 1e-6 : .01;
        make_step(&s, 3, sizes, NULL);
        for (size_t i = 0; i < COUNT(parts); i++) parts[i] = uniform(-1, 1);
        s.batch.rewards = NULL;
        s.batch.reward_components = parts;
        s.batch.n_components = PARTS;
        s.batch.reward_weights = round % 3 ? weights : NULL;
        for (size_t g = 0; g < 3; g++)
            for (size_t p = 0; p < PARTS; p++) {
                for (size_t i = 0; i < sizes[g]; i++) x[i] = parts[(s.groups[g] + i) * PARTS + p];
                z_scores(z, x, sizes[g], eps);
                for (size_t i = 0; i < sizes[g]; i++) sums[s.groups[g] + i] += (round % 3 ? weights[p] : 1) * z[i];
            }
        z_scores(expected, sums, 9, eps);
        advantages_of(a, &s, round % 2 ? "advantage=gdpo" : "advantage=gdpo advantage_eps=0.01");
        for (size_t i = 0; i < 9; i++) near_to(a[i], expected[i], 1e-12);
    }
}

/* A component that is the same for all of a group says nothing; a component of 0.1s says exactly nothing. */
static void test_gdpo_constant_component(void **state) {
    (void)state;
    step s;
    double a[MOST];
    const double parts[] = {1, .1, 0, .1, 3, .1, 7, .1}, alone[] = {1, 0, 3, 7};
    double b[MOST];
    make_step(&s, 1, (const size_t[]){4}, NULL);
    s.batch.rewards = NULL;
    s.batch.reward_components = parts, s.batch.n_components = 2;
    advantages_of(a, &s, "advantage=gdpo");
    s.batch.reward_components = alone, s.batch.n_components = 1;
    advantages_of(b, &s, "advantage=gdpo");
    assert_memory_equal(a, b, 4 * sizeof *a);
}

/* Components under any other estimator are their weighted sum. */
static void test_components_add_up(void **state) {
    (void)state;
    step s;
    make_step(&s, 1, (const size_t[]){2}, NULL);
    s.batch.rewards = NULL;
    s.batch.reward_components = (const double[]){1, 2, 3, 5};
    s.batch.n_components = 2;
    expect(&s, "advantage=none", (const double[]){3, 8});
    s.batch.reward_weights = (const double[]){.5, 2};
    expect(&s, "advantage=none", (const double[]){4.5, 11.5});
}

/* ---- against plain loops on random groups */
static void test_random_groups(void **state) {
    (void)state;
    for (int round = 0; round < rounds(500); round++) {
        step s;
        size_t sizes[6];
        double r[MOST], a[MOST], all_mean = 0, all_variance = 0;
        int64_t lengths[MOST];
        const size_t n_groups = 1 + below(6);
        for (size_t g = 0; g < n_groups; g++) sizes[g] = 1 + below(8);
        for (size_t i = 0; i < MOST; i++) r[i] = uniform(-1, 2), lengths[i] = (int64_t)below(50) + 1;
        make_step(&s, n_groups, sizes, r);
        s.batch.response_lengths = lengths;
        const size_t n = s.batch.n_sequences;
        for (size_t i = 0; i < n; i++) all_mean += r[i] / (double)n;
        for (size_t i = 0; i < n; i++) all_variance += n > 1 ? (r[i] - all_mean) * (r[i] - all_mean) / (double)(n - 1) : 0;
        for (size_t k = 0; k < COUNT(EXACT); k++) {
            char settings[64];
            snprintf(settings, sizeof settings, "advantage=%s", EXACT[k]);
            advantages_of(a, &s, settings);
            for (size_t g = 0; g < n_groups; g++) {
                const size_t first = s.groups[g], size = sizes[g];
                double mean = 0, variance = 0, weighted = 0, length = 0;
                for (size_t i = first; i < first + size; i++) {
                    mean += r[i] / (double)size;
                    weighted += r[i] * (double)lengths[i];
                    length += (double)lengths[i];
                }
                for (size_t i = first; i < first + size; i++) variance += (r[i] - mean) * (r[i] - mean) / (double)(size - 1);
                for (size_t i = first; i < first + size; i++) {
                    const double x = r[i] - mean, K = (double)size;
                    const double expected[] = {x,
                                               x / (sqrt(variance) + 1e-6),
                                               x / (sqrt(all_variance) + 1e-6),
                                               K / (K - 1) * x,
                                               r[i] - weighted / length,
                                               x / mean};
                    if (size == 1) assert_true(a[i] == 0);
                    else near_to(a[i], expected[k], 1e-11 * (1 + fabs(expected[k])));
                }
            }
        }
    }
}

/* ---- shapes */
static void shaped_is(const step *s, const char *settings, const double *expected) {
    const rein_options o = options(settings);
    double shaped[MOST];
    rein_error err = {0};
    if (rein_shape_rewards(shaped, &s->batch, &o, &err) != REIN_OK) fail_msg("%s: %s", settings, err.message);
    for (size_t i = 0; i < s->batch.n_sequences; i++)
        if (!(fabs(shaped[i] - expected[i]) <= 1e-15 * (1 + fabs(expected[i]))))
            fail_msg("%s: reward %zu is %.17g, not %.17g", settings, i, shaped[i], expected[i]);
}

static void test_shape_overlong(void **state) {
    (void)state;
    const int64_t lengths[] = {0, 15, 16, 17, 18, 19, 20, 21, 1000};
    const double expected[] = {1, 1, 1, .75, .5, .25, 0, 0, 0}; /* Lmax 20, Lc 4: 1 + max(−1, (16 − L)/4) */
    double rewards[9];
    step s;
    for (size_t i = 0; i < 9; i++) rewards[i] = 1;
    make_step(&s, 1, (const size_t[]){9}, rewards);
    s.batch.response_lengths = lengths;
    shaped_is(&s, "shape=overlong overlong_max=20 overlong_cushion=4", expected);
}

static void test_shape_budget(void **state) {
    (void)state;
    step s;
    make_step(&s, 1, (const size_t[]){4}, (const double[]){1, 2, 3, 4});
    s.batch.response_lengths = (const int64_t[]){99, 100, 101, 110};
    shaped_is(&s, "shape=budget token_budget=100 budget_penalty_coef=0.5", (const double[]){1, 2, 2.5, -1});
    shaped_is(&s, "shape=truncate token_budget=100 budget_penalty=0.5", (const double[]){1, 2, -.5, -.5});
    s.batch.token_budgets = (const int64_t[]){90, 100, 200, 0};
    shaped_is(&s, "shape=budget budget_penalty_coef=0.5", (const double[]){-3.5, 2, 3, -51});
    shaped_is(&s, "shape=truncate budget_penalty=0", (const double[]){0, 2, 3, 0});
}

static void test_shape_k15(void **state) {
    (void)state;
    step s;
    make_step(&s, 3, (const size_t[]){3, 3, 2}, (const double[]){1, 1, 0, 1, 0, 0, 1, 0});
    s.batch.response_lengths = (const int64_t[]){10, 20, 30, 30, 10, 20, 7, 7};
    /* λ = ½, 0, −½; wrong ones get min(0, λ); the last group is all one length */
    shaped_is(&s, "shape=k1.5-length length_weight=1", (const double[]){1.5, 1, -.5, .5, 0, 0, 1, 0});
    shaped_is(&s, "shape=k1.5-length length_weight=0.4", (const double[]){1.2, 1, -.2, .8, 0, 0, 1, 0});
    s.batch.correct = (const uint8_t[]){0, 0, 0, 1, 1, 1, 1, 1};
    shaped_is(&s, "shape=k1.5-length length_weight=1", (const double[]){1, 1, -.5, .5, .5, 0, 1, 0});
}

static void test_reward_clip(void **state) {
    (void)state;
    step s;
    make_step(&s, 1, (const size_t[]){5}, (const double[]){-3, -.5, 0, .75, 9});
    shaped_is(&s, "reward_clip=0.75", (const double[]){-.75, -.5, 0, .75, .75});
    s.batch.response_lengths = (const int64_t[]){1, 1, 1, 1, 50};
    shaped_is(&s, "reward_clip=2 shape=budget token_budget=10 budget_penalty_coef=1",
              (const double[]){-2, -.5, 0, .75, -2}); /* after the shape */
    shaped_is(&s, "reward_clip=2 kl_reward_coef=0", (const double[]){-2, -.5, 0, .75, 2});
}

/* Without response_lengths a response is as long as its trained tokens. */
static void test_shape_counts_trained_tokens(void **state) {
    (void)state;
    static const size_t offsets[] = {0, 4, 4, 7};
    static const uint8_t mask[] = {1, 0, 1, 1, 1, 1, 1};
    step s;
    make_step(&s, 1, (const size_t[]){3}, (const double[]){1, 1, 1});
    s.batch.sequence_offsets = offsets;
    s.batch.mask = mask;
    shaped_is(&s, "shape=budget token_budget=2 budget_penalty_coef=0.25", (const double[]){.75, 1, .75});
    s.batch.mask = NULL;
    shaped_is(&s, "shape=budget token_budget=2 budget_penalty_coef=0.25", (const double[]){.5, 1, .75});
}

/* ---- errors, by field and position */
static void test_errors(void **state) {
    (void)state;
    static const double nan_reward[] = {1, 2, (double)NAN}, inf_reward[] = {1, -(double)INFINITY, 2}, good[] = {1, 2, 3};
    static const size_t falling[] = {0, 2, 1, 3}, late[] = {1, 2, 3, 4}, empty_group[] = {0, 2, 2}, few[] = {0, 1, 2};
    static const int64_t negative[] = {1, 2, -3};
    step good_step, s;
    make_step(&good_step, 2, (const size_t[]){2, 1}, good);
#define FAILS(change, settings, text, more)                                                                                  \
    s = good_step, s.batch.rewards = good, s.batch.group_offsets = s.groups, s.batch.sequence_offsets = s.sequences, change, \
    advantages_fail(&s, settings, text, more)
    FAILS(s.batch.rewards = nan_reward, "advantage=group-mean", "rewards[2]", "finite");
    FAILS(s.batch.rewards = inf_reward, "advantage=group-mean", "rewards[1]", "finite");
    FAILS(s.batch.rewards = NULL, "advantage=group-mean", "rewards", "missing");
    FAILS(s.batch.n_sequences = 0, "", "n_sequences is 0", "at least one");
    FAILS(s.batch.dtype = (rein_dtype)7, "", "dtype is 7", "REIN_F64");
    FAILS(s.batch.sequence_offsets = NULL, "", "sequence_offsets", "missing");
    FAILS(s.batch.sequence_offsets = falling, "", "sequence_offsets[2]", "never");
    FAILS(s.batch.sequence_offsets = late, "", "sequence_offsets[0] is 1", "start at 0");
    FAILS(s.batch.group_offsets = empty_group, "", "group_offsets[1] is of an empty group", "at least one");
    FAILS(s.batch.group_offsets = few, "", "group_offsets[2] is 2", "n_sequences, which is 3");
    FAILS(s.batch.response_lengths = negative, "", "response_lengths[2] is -3", "0 or more");
    FAILS(s.batch.token_budgets = negative, "", "token_budget[2] is -3", "0 or more");
    FAILS((void)0, "shape=budget budget_penalty_coef=1", "token_budget is missing", "budget");
    FAILS((void)0, "shape=truncate budget_penalty=1", "token_budget is missing", "truncate");
    FAILS((void)0, "advantage=remax", "baseline_rewards is missing", "remax");
    FAILS((s.batch.baseline_rewards = nan_reward), "advantage=remax", "baseline_rewards[2]", "finite");
    FAILS((s.batch.baseline_rewards = good), "advantage=group-mean", "baseline_rewards has no effect", "remax");
    FAILS((s.batch.correct = (const uint8_t[]){1, 1, 1}), "", "correct has no effect", "k1.5-length");
    FAILS((void)0, "advantage=gdpo", "reward_components is missing", "gdpo");
    FAILS((s.batch.reward_components = good, s.batch.n_components = 1), "", "rewards and reward_components", "one of them");
    FAILS((s.batch.reward_components = good, s.batch.rewards = NULL), "", "reward_components has no components", "at least one");
    FAILS((s.batch.reward_components = nan_reward, s.batch.rewards = NULL, s.batch.n_components = 1), "", "reward_components[2]",
          "finite");
    FAILS((s.batch.reward_components = good, s.batch.rewards = NULL, s.batch.n_components = 1,
           s.batch.reward_weights = inf_reward + 1),
          "", "reward_weights[0]", "finite");
    FAILS((s.batch.reward_weights = good), "", "reward_weights", "reward_components");
    FAILS((void)0, "advantage=gae", "values is missing", "gae");
    FAILS((s.batch.values = good), "advantage=group-mean", "values has no effect", "gae");
    FAILS((void)0, "advantage=given", "advantages is missing", "given");
    FAILS((s.batch.advantages = good), "advantage=group-mean", "advantages has no effect", "given");
    FAILS((s.batch.values = nan_reward), "advantage=gae", "values[2]", "NaN");
    FAILS((void)0, "kl_reward_coef=0.1", "ref_log_probs is missing", "kl_reward_coef");
    FAILS((s.batch.ref_log_probs = good), "kl_reward_coef=0.1", "log_probs is missing", "KL");
    FAILS((s.batch.ref_log_probs = good), "kl_reward_coef=0.1 kl_penalty_source=sample", "sample_log_probs is missing", "sample");
    FAILS((s.batch.log_probs = good, s.batch.ref_log_probs = inf_reward), "kl_reward_coef=0.1", "ref_log_probs[1]", "-infinite");
    FAILS((s.batch.log_probs = nan_reward, s.batch.ref_log_probs = good), "kl_reward_coef=0.1", "log_probs[2]", "NaN");
#undef FAILS
}

/* Shaping alone reports the same way and leaves its output alone. */
static void test_shape_errors(void **state) {
    (void)state;
    step s;
    rein_error err;
    double shaped[3] = {77, 77, 77};
    make_step(&s, 1, (const size_t[]){3}, (const double[]){1, (double)NAN, 3});
    const rein_options plain = options("reward_clip=1"), budget = options("shape=budget budget_penalty_coef=1"),
                       unfinished = options("shape=budget");
    assert_int_equal(rein_shape_rewards(shaped, &s.batch, &plain, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "rewards[1]"));
    s.rewards[1] = 2;
    assert_int_equal(rein_shape_rewards(shaped, &s.batch, &budget, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "token_budget is missing"));
    assert_int_equal(rein_shape_rewards(shaped, &s.batch, &unfinished, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "budget_penalty_coef is required"));
    assert_true(shaped[0] == 77 && shaped[1] == 77 && shaped[2] == 77);
}

/* Finite one by one, too large together. */
static void test_overflow(void **state) {
    (void)state;
    const char *const settings[] = {"advantage=group-mean", "advantage=group-std", "advantage=batch-std", "advantage=reinforce++",
                                    "advantage=leave-one-out"};
    for (size_t k = 0; k < COUNT(settings); k++) {
        step s;
        rein_error err = {0};
        double a[3] = {77, 77, 77};
        make_step(&s, 1, (const size_t[]){3}, (const double[]){1.7e308, -1.7e308, 1});
        const rein_options o = options(settings[k]);
        const rein_status status = rein_advantages(a, &s.batch, &o, &err);
        if (status != REIN_ERANGE) fail_msg("%s: status %d, advantages %g %g %g", settings[k], (int)status, a[0], a[1], a[2]);
        assert_true(a[0] == 77 && a[1] == 77 && a[2] == 77);
    }
}

/* Whatever comes after the advantages in the options asks for nothing here. */
static void test_rest_of_the_options_is_not_asked(void **state) {
    (void)state;
    rein_options o;
    step s;
    double a[3];
    rein_error err = {0};
    make_step(&s, 1, (const size_t[]){3}, (const double[]){1, 2, 6});
    for (size_t i = 0; rein_preset_name(i); i++) {
        assert_int_equal(rein_options_init(&o, rein_preset_name(i), NULL), REIN_OK);
        if (o.advantage != REIN_ADVANTAGE_GROUP_MEAN && o.advantage != REIN_ADVANTAGE_GROUP_STD) continue;
        if (o.shape == REIN_SHAPE_BUDGET || o.shape == REIN_SHAPE_K15_LENGTH) o.shape = REIN_SHAPE_NONE;
        if (rein_advantages(a, &s.batch, &o, &err) != REIN_OK) fail_msg("%s: %s", rein_preset_name(i), err.message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_baselines_given),
        cmocka_unit_test(test_opo),
        cmocka_unit_test(test_balance),
        cmocka_unit_test(test_equal_rewards_give_zero),
        cmocka_unit_test(test_group_of_one_gives_zero),
        cmocka_unit_test(test_max_rl_mean_of_zero),
        cmocka_unit_test(test_pass_at_k),
        cmocka_unit_test(test_pass_at_k_whole_group),
        cmocka_unit_test(test_gae),
        cmocka_unit_test(test_gae_of_no_critic),
        cmocka_unit_test(test_reinforce_pp),
        cmocka_unit_test(test_reinforce_pp_of_one_token),
        cmocka_unit_test(test_reinforce_pp_equal),
        cmocka_unit_test(test_kl_in_the_reward),
        cmocka_unit_test(test_gdpo),
        cmocka_unit_test(test_gdpo_constant_component),
        cmocka_unit_test(test_components_add_up),
        cmocka_unit_test(test_random_groups),
        cmocka_unit_test(test_shape_overlong),
        cmocka_unit_test(test_shape_budget),
        cmocka_unit_test(test_shape_k15),
        cmocka_unit_test(test_reward_clip),
        cmocka_unit_test(test_shape_counts_trained_tokens),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_shape_errors),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_rest_of_the_options_is_not_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
