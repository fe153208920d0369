/* test_exact_kl.c - the exact KL in the loss and in the reward (docs/kl.md), by enumeration of every sequence of a small policy.
 *
 * A policy over four tokens writes sequences of three. Its distribution at a place depends on the tokens before it, by a table of logits: one
 * row for each of the 21 beginnings. For a sequence y that the sampler draws with probability q(y), the library says g_t = d loss/d lp_t and
 * k_t = d loss/d KL_t; the gradient over the logits of beginning b = y_<t is
 *     G(y) = Σ_t g_t·([a = y_t] − π(a|b)) + k_t·π(a|b)·(log π(a|b)/ref(a|b) − KL_b)
 * and its expectation, Σ_y q(y)·G(y), is compared with the gradient of KL(π‖ref) = Σ_b π(b)·KL_b over whole sequences. Σ_y q(y)·|G − E G|²
 * is the variance of one sample. No sampling, no tolerance for noise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "objective/batches.h"

enum { TOKENS = 4, LENGTH = 3, BEGINNINGS = 1 + 4 + 16, SEQUENCES = 64, SIZE = BEGINNINGS * TOKENS };
#define EXACT 1e-12
#define WRONG 0.05 /* relative to the true gradient */

typedef struct table {
    double lp[BEGINNINGS][TOKENS];
} table;

typedef struct world {
    table policy, old, ref; /* `old` sampled */
    double kl[BEGINNINGS];
} world;

/* The index of a beginning: 0, 1 + y0, 5 + 4·y0 + y1. */
static size_t beginning_of(size_t sequence, size_t t) { return t == 0 ? 0 : t == 1 ? 1 + sequence / 16 : 5 + sequence / 4; }
static size_t token_of(size_t sequence, size_t t) { return t == 0 ? sequence / 16 : t == 1 ? sequence / 4 % 4 : sequence % 4; }

static void fill_table(table *to, uint64_t number, double spread) {
    rng g = rng_of(77, number);
    for (size_t b = 0; b < BEGINNINGS; b++) {
        double sum = 0;
        for (size_t a = 0; a < TOKENS; a++) to->lp[b][a] = spread * rng_normal(&g), sum += exp(to->lp[b][a]);
        for (size_t a = 0; a < TOKENS; a++) to->lp[b][a] -= log(sum);
    }
}

static double chance(const table *p, size_t sequence) {
    double lp = 0;
    for (size_t t = 0; t < LENGTH; t++) lp += p->lp[beginning_of(sequence, t)][token_of(sequence, t)];
    return exp(lp);
}

static world world_of(int off_policy) {
    world w;
    fill_table(&w.policy, 1, 0.8);
    fill_table(&w.old, off_policy ? 2 : 1, 0.8);
    fill_table(&w.ref, 3, 0.8);
    for (size_t b = 0; b < BEGINNINGS; b++) {
        w.kl[b] = 0;
        for (size_t a = 0; a < TOKENS; a++) w.kl[b] += exp(w.policy.lp[b][a]) * (w.policy.lp[b][a] - w.ref.lp[b][a]);
    }
    return w;
}

/* KL(π‖ref) over whole sequences, as a function of the logits: π by a softmax of each row. */
static double whole_kl(const double *logits, const table *ref) {
    table p;
    double kl = 0;
    for (size_t b = 0; b < BEGINNINGS; b++) {
        double sum = 0;
        for (size_t a = 0; a < TOKENS; a++) sum += exp(logits[b * TOKENS + a]);
        for (size_t a = 0; a < TOKENS; a++) p.lp[b][a] = logits[b * TOKENS + a] - log(sum);
    }
    for (size_t y = 0; y < SEQUENCES; y++) kl += chance(&p, y) * (log(chance(&p, y)) - log(chance(ref, y)));
    return kl;
}

/* Exactly: E Σ_t [∇lp_t·Σ_s≥t (lp_s − ref_s)], which is E[∇log π(y)·log π(y)/ref(y)]. */
static void true_gradient(double *gradient, const world *w) {
    memset(gradient, 0, SIZE * sizeof *gradient);
    for (size_t y = 0; y < SEQUENCES; y++) {
        const double p = chance(&w->policy, y), ratio = log(p) - log(chance(&w->ref, y));
        for (size_t t = 0; t < LENGTH; t++)
            for (size_t a = 0, b = beginning_of(y, t); a < TOKENS; a++)
                gradient[b * TOKENS + a] += p * ratio * ((a == token_of(y, t)) - exp(w->policy.lp[b][a]));
    }
}

/* G(y), from what the library says of this sequence alone. */
static void gradient_of(double *gradient, const world *w, size_t y, const rein_options *o) {
    static const size_t offsets[] = {0, LENGTH};
    static const double reward = 0;
    double lp[LENGTH], old[LENGTH], ref[LENGTH], kl[LENGTH], g[LENGTH], k[LENGTH] = {0};
    rein_loss loss;
    rein_error err;
    for (size_t t = 0; t < LENGTH; t++) {
        const size_t b = beginning_of(y, t), a = token_of(y, t);
        lp[t] = w->policy.lp[b][a], old[t] = w->old.lp[b][a], ref[t] = w->ref.lp[b][a], kl[t] = w->kl[b];
    }
    const rein_batch batch = {.n_sequences = 1,
                              .sequence_offsets = offsets,
                              .log_probs = lp,
                              .old_log_probs = old,
                              .ref_log_probs = ref,
                              .exact_kl = rein_uses_exact_kl(o) ? kl : NULL,
                              .teacher_log_probs = rein_teacher_in_advantage(o) ? ref : NULL, /* the reference as a teacher */
                              .teacher_divergence = rein_teacher_in_loss(o) ? kl : NULL,
                              .rewards = &reward};
    if (rein_policy_loss(&loss, g, NULL, NULL, &batch, o, NULL, &err) || rein_policy_loss_exact_kl_gradient(k, &batch, o, &err))
        fail_msg("%s", err.message);
    if (rein_teacher_in_loss(o) && rein_policy_loss_teacher_gradient(k, &batch, o, &err)) fail_msg("%s", err.message);
    memset(gradient, 0, SIZE * sizeof *gradient);
    for (size_t t = 0; t < LENGTH; t++)
        for (size_t a = 0, b = beginning_of(y, t); a < TOKENS; a++) {
            const double p = exp(w->policy.lp[b][a]);
            gradient[b * TOKENS + a] += g[t] * ((a == token_of(y, t)) - p);
            gradient[b * TOKENS + a] += k[t] * p * (w->policy.lp[b][a] - w->ref.lp[b][a] - w->kl[b]);
        }
}

typedef struct moments {
    double bias, deviation; /* relative to the size of the true gradient */
} moments;

static double square(const double *x) {
    double sum = 0;
    for (size_t i = 0; i < SIZE; i++) sum += x[i] * x[i];
    return sum;
}

static moments moments_of(const world *w, const char *settings) {
    const rein_options o = options_of(settings);
    double mean[SIZE] = {0}, truth[SIZE], g[SIZE], second = 0;
    for (size_t y = 0; y < SEQUENCES; y++) {
        gradient_of(g, w, y, &o);
        for (size_t i = 0; i < SIZE; i++) mean[i] += chance(&w->old, y) * g[i];
        second += chance(&w->old, y) * square(g);
    }
    const double variance = second - square(mean);
    true_gradient(truth, w);
    const double size = sqrt(square(truth));
    for (size_t i = 0; i < SIZE; i++) mean[i] -= truth[i];
    return (moments){sqrt(square(mean)) / size, sqrt(variance > 0 ? variance : 0) / size};
}

#define REINFORCE "surrogate=reinforce aggregation=seq-mean-token-sum "
#define BOTH REINFORCE "kl_loss_coef=1 kl_estimator=exact kl_reward_exact=1"

/* The enumeration itself, against central differences of the KL over whole sequences. */
static void the_truth_is_a_gradient(void **state) {
    const world w = world_of(0);
    double truth[SIZE], logits[SIZE];
    (void)state;
    true_gradient(truth, &w);
    memcpy(logits, w.policy.lp, sizeof logits);
    for (size_t i = 0; i < SIZE; i++) {
        const double step = 1e-5, at = logits[i];
        logits[i] = at + step;
        double rise = whole_kl(logits, &w.ref);
        logits[i] = at - step;
        rise -= whole_kl(logits, &w.ref);
        logits[i] = at;
        assert_true(fabs(rise / (2 * step) - truth[i]) < 1e-9);
    }
}

static void both_parts_are_exact_on_policy(void **state) {
    const world on = world_of(0), off = world_of(1);
    (void)state;
    assert_true(moments_of(&on, BOTH).bias < EXACT);
    assert_true(
        moments_of(&on, "surrogate=clip aggregation=seq-mean-token-sum kl_loss_coef=1 kl_estimator=exact kl_reward_exact=1").bias <
        EXACT);                                                              /* a ratio of 1 */
    assert_true(moments_of(&on, REINFORCE "kl_reward_coef=1").bias < EXACT); /* the control: k1 in the reward */
    assert_true(moments_of(&off, BOTH).bias > WRONG);                        /* the ratio of the beginning is missing */
}

static void one_part_alone_is_not(void **state) {
    const world on = world_of(0);
    (void)state;
    assert_true(moments_of(&on, REINFORCE "kl_loss_coef=1 kl_estimator=exact").bias > WRONG);
    assert_true(moments_of(&on, REINFORCE "kl_reward_exact=1").bias > WRONG);
    assert_true(moments_of(&on, REINFORCE "kl_loss_coef=1 kl_estimator=exact kl_reward_exact=0.5").bias > WRONG);
    /* A token mean divides by the length. */
    assert_true(
        moments_of(&on, "surrogate=reinforce aggregation=token-mean kl_loss_coef=1 kl_estimator=exact kl_reward_exact=1").bias >
        WRONG);
}

/* A sampled divergence from a teacher estimates the reverse KL: of each token, or with a discount of 1 of the whole sequence. */
static void a_sampled_teacher_is_an_estimate(void **state) {
    const world on = world_of(0);
    const moments whole = moments_of(&on, REINFORCE "teacher_coef=1 teacher_discount=1"),
                  each = moments_of(&on, REINFORCE "teacher_coef=1"),
                  reverse = moments_of(&on, REINFORCE "teacher_coef=1 divergence=reverse"),
                  exact = moments_of(&on, REINFORCE "kl_loss_coef=1 kl_estimator=exact");
    (void)state;
    assert_true(whole.bias < EXACT);
    assert_true(each.bias > WRONG && fabs(each.bias - reverse.bias) < EXACT); /* both are E Σ ∇KL_t */
    assert_true(reverse.deviation < each.deviation);
    assert_true(fabs(reverse.bias - exact.bias) < EXACT && fabs(reverse.deviation - exact.deviation) < EXACT);
    assert_true(moments_of(&on, REINFORCE "teacher_coef=1 teacher_discount=0.5").bias > WRONG);
}

/* The variance of one sample. docs/kl.md has the numbers. */
static void the_variance_is_below_that_of_the_estimators(void **state) {
    static const char *const others[] = {REINFORCE "kl_reward_coef=1", REINFORCE "kl_loss_coef=1 kl_estimator=k1",
                                         REINFORCE "kl_loss_coef=1 kl_estimator=k2", REINFORCE "kl_loss_coef=1 kl_estimator=k3"};
    const world on = world_of(0);
    const moments exact = moments_of(&on, BOTH), part = moments_of(&on, REINFORCE "kl_loss_coef=1 kl_estimator=exact");
    (void)state;
    print_message("sd/|gradient|: exact, both parts %.3f (bias %.1e), exact as loss %.3f (bias %.3f)\n", exact.deviation,
                  exact.bias, part.deviation, part.bias);
    for (size_t i = 0; i < 4; i++) {
        const moments m = moments_of(&on, others[i]);
        print_message("sd/|gradient|: %s: %.3f (bias %.3f)\n", others[i] + sizeof REINFORCE - 1, m.deviation, m.bias);
        assert_true(part.deviation < m.deviation);
        if (i != 2 && i != 3) assert_true(exact.deviation < m.deviation); /* k2 and k3 leave the later tokens out */
    }
}

/* ---- what is refused */
static void refused(const char *settings, int with_kl, double kl, const char *what, const char *why) {
    static const size_t offsets[] = {0, 2};
    static const double lp[] = {-1, -2}, reward = 1;
    static const uint8_t mask[] = {1, 0};
    const double exact[] = {kl, (double)NAN};
    const rein_options o = options_of(settings);
    const rein_batch b = {.n_sequences = 1,
                          .sequence_offsets = offsets,
                          .mask = mask,
                          .log_probs = lp,
                          .old_log_probs = lp,
                          .ref_log_probs = lp,
                          .exact_kl = with_kl ? exact : NULL,
                          .rewards = &reward};
    rein_loss loss;
    rein_error err;
    const rein_status status = rein_policy_loss(&loss, NULL, NULL, NULL, &b, &o, NULL, &err);
    if (!what) {
        assert_int_equal(status, REIN_OK);
        assert_true(fabs(loss.metrics.kl_exact - kl) < 1e-15); /* of the token that trains */
        return;
    }
    assert_int_equal(status, REIN_EINVAL);
    assert_string_equal(err.field, what);
    if (!strstr(err.message, why)) fail_msg("%s: %s", settings, err.message);
}

static void mistakes(void **state) {
    (void)state;
    refused("surrogate=clip kl_loss_coef=1 kl_estimator=exact", 1, 0.25, NULL, NULL);
    refused("surrogate=clip kl_loss_coef=1 kl_estimator=exact", 0, 0, "exact_kl", "is missing");
    refused("surrogate=clip kl_reward_exact=1", 0, 0, "exact_kl", "is missing");
    refused("surrogate=clip kl_loss_coef=1 kl_estimator=k3", 1, 0, "exact_kl", "has no effect");
    refused("surrogate=clip kl_loss_coef=1 kl_estimator=exact", 1, (double)NAN, "exact_kl", "NaN");
    refused("surrogate=clip kl_reward_exact=1", 1, (double)INFINITY, "exact_kl", "infinite");
    refused("surrogate=clip kl_loss_coef=1 kl_estimator=exact kl_penalty_coef=0.1", 1, 0, "kl_estimator", "E[KL_t*grad lp_t] = 0");
    refused("surrogate=clip kl_reward_exact=1 kl_reward_coef=0.1", 1, 0, "kl_reward_exact", "give one of them");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_truth_is_a_gradient),
        cmocka_unit_test(both_parts_are_exact_on_policy),
        cmocka_unit_test(a_sampled_teacher_is_an_estimate),
        cmocka_unit_test(one_part_alone_is_not),
        cmocka_unit_test(the_variance_is_below_that_of_the_estimators),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests_name("exact KL", tests, NULL, NULL);
}
