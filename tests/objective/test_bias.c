/* test_bias.c - the gradient-bias table of KL estimators (docs/kl.md), by exact enumeration of a small softmax.
 *
 * Every outcome a of five is a sequence of one token. The library says g_a = d loss/d lp_a; the expected gradient over the logits is
 * Σ_a p(a)·g_a·∇log π(a) with p the policy that sampled, and ∂log π(a)/∂θ_j = [a = j] − π_j. No sampling, no tolerance for noise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "objective/batches.h"

enum { OUTCOMES = 5 };
#define EXACT 1e-12
#define WRONG 0.1 /* relative to the true gradient */

typedef struct world {
    double current[OUTCOMES], old[OUTCOMES], ref[OUTCOMES]; /* log-probs; `old` is what sampled */
} world;

static void log_softmax(double *lp, const double *logits) {
    double sum = 0;
    for (int a = 0; a < OUTCOMES; a++) sum += exp(logits[a]);
    for (int a = 0; a < OUTCOMES; a++) lp[a] = logits[a] - log(sum);
}

static world world_of(int off_policy) {
    static const double current[] = {0.3, -0.8, 1.1, 0, -1.5}, old[] = {0.9, -0.2, 0.4, -0.9, -0.6},
                        ref[] = {-0.5, 0.7, 0.2, -1.1, 0.4};
    world w;
    log_softmax(w.current, current);
    log_softmax(w.old, off_policy ? old : current);
    log_softmax(w.ref, ref);
    return w;
}

/* ---- what the library says of each outcome */

/* All five outcomes as one step of rewards 0: g_a, with the KL where the options put it. */
static void gradients(double *g, const world *w, const char *settings) {
    static const size_t offsets[] = {0, 1, 2, 3, 4, 5};
    static const double rewards[OUTCOMES] = {0};
    const rein_options o = options_of(settings);
    const rein_batch b = {.n_sequences = OUTCOMES,
                          .sequence_offsets = offsets,
                          .log_probs = w->current,
                          .old_log_probs = w->old,
                          .ref_log_probs = w->ref,
                          .sample_log_probs = w->old,
                          .rewards = rewards};
    rein_loss loss;
    rein_error err;
    if (rein_policy_loss(&loss, g, NULL, NULL, &b, &o, NULL, &err) != REIN_OK) fail_msg("%s: %s", settings, err.message);
}

/* The estimator's value at each outcome: the loss of that outcome alone. */
static void values(double *k, const world *w, const char *settings) {
    static const size_t offsets[] = {0, 1};
    static const double reward = 0;
    const rein_options o = options_of(settings);
    for (int a = 0; a < OUTCOMES; a++) {
        const rein_batch b = {.n_sequences = 1,
                              .sequence_offsets = offsets,
                              .log_probs = &w->current[a],
                              .old_log_probs = &w->old[a],
                              .ref_log_probs = &w->ref[a],
                              .rewards = &reward};
        rein_loss loss;
        rein_error err;
        if (rein_policy_loss(&loss, NULL, NULL, NULL, &b, &o, NULL, &err) != REIN_OK) fail_msg("%s: %s", settings, err.message);
        k[a] = loss.loss;
    }
}

static void times_ratio(double *g, const world *w) { /* stop(ρ), which the row puts in front */
    for (int a = 0; a < OUTCOMES; a++) g[a] *= exp(w->current[a] - w->old[a]);
}

/* ---- expectations and the truth */

static void expected(double *gradient, const double *g, const world *w) {
    for (int j = 0; j < OUTCOMES; j++) {
        gradient[j] = 0;
        for (int a = 0; a < OUTCOMES; a++) gradient[j] += exp(w->old[a]) * g[a] * ((a == j) - exp(w->current[j]));
    }
}

static double reverse_kl(const world *w) {
    double kl = 0;
    for (int a = 0; a < OUTCOMES; a++) kl += exp(w->current[a]) * (w->current[a] - w->ref[a]);
    return kl;
}

/* ∇KL(π‖ref): π_j·(log π_j/ref_j − KL) */
static void reverse_gradient(double *gradient, const world *w) {
    for (int j = 0; j < OUTCOMES; j++) gradient[j] = exp(w->current[j]) * (w->current[j] - w->ref[j] - reverse_kl(w));
}

/* ∇KL(ref‖π) = π − ref */
static void forward_gradient(double *gradient, const world *w) {
    for (int j = 0; j < OUTCOMES; j++) gradient[j] = exp(w->current[j]) - exp(w->ref[j]);
}

static double norm(const double *x) {
    double sum = 0;
    for (int j = 0; j < OUTCOMES; j++) sum += x[j] * x[j];
    return sqrt(sum);
}

/* ‖a − b‖/‖b‖ */
static double apart(const double *a, const double *b) {
    double gap[OUTCOMES];
    for (int j = 0; j < OUTCOMES; j++) gap[j] = a[j] - b[j];
    return norm(gap) / norm(b);
}

/* How far the expected gradient of g is from the true one. */
static double bias(const double *g, const world *w) {
    double estimate[OUTCOMES], truth[OUTCOMES];
    expected(estimate, g, w);
    reverse_gradient(truth, w);
    return apart(estimate, truth);
}

static double bias_of(const world *w, const char *settings) {
    double g[OUTCOMES];
    gradients(g, w, settings);
    return bias(g, w);
}

/* What `rein explain` would say of the composition's only KL term. */
static void verdict(const char *settings, const char *on_policy, const char *off_policy) {
    const rein_options o = options_of(settings);
    const rein_kl_bias *row = rein_kl_bias_of(&o, 0);
    assert_non_null(row);
    assert_null(rein_kl_bias_of(&o, 1));
    if (strncmp(row->on_policy, on_policy, strlen(on_policy)) != 0)
        fail_msg("%s: \"%s\" is not %s", settings, row->on_policy, on_policy);
    if (strncmp(row->off_policy, off_policy, strlen(off_policy)) != 0)
        fail_msg("%s: \"%s\" is not %s", settings, row->off_policy, off_policy);
    assert_true(strlen(row->form) > 0 && strlen(row->meaning) > 0);
}

#define SUM " aggregation=token-sum"
#define LOSS "kl_loss_coef=1 surrogate=reinforce aggregation=token-sum kl_estimator="

/* ---- the rows */

static void k1_detached_in_the_reward(void **state) {
    const world on = world_of(0), off = world_of(1);
    (void)state;
    assert_true(bias_of(&on, "kl_reward_coef=1 surrogate=reinforce" SUM) < EXACT);
    assert_true(bias_of(&off, "kl_reward_coef=1 surrogate=cispo epsilon=1 epsilon_high=1e9" SUM) < EXACT); /* times stop(ρ) */
    assert_true(bias_of(&off, "kl_reward_coef=1 surrogate=clip epsilon=1 epsilon_high=1e9" SUM) < EXACT);
    assert_true(bias_of(&off, "kl_reward_coef=1 surrogate=reinforce" SUM) > WRONG);
    double g[OUTCOMES];
    gradients(g, &off, "kl_reward_coef=1 surrogate=reinforce" SUM);
    times_ratio(g, &off);
    assert_true(bias(g, &off) < EXACT);
    verdict("kl_reward_coef=1 surrogate=clip", "exact", "exact when multiplied by stop(ρ)");
}

static void k1_detached_and_centred_in_the_advantage(void **state) {
    const world on = world_of(0), off = world_of(1);
    (void)state;
    assert_true(bias_of(&on, "kl_penalty_coef=1 surrogate=reinforce" SUM) < EXACT);
    assert_true(bias_of(&on, "kl_penalty_coef=1 surrogate=clip ratio=sequence" SUM) < EXACT); /* the form per sequence */
    assert_true(bias_of(&on, "kl_penalty_coef=1 surrogate=reinforce kl_penalty_source=sample" SUM) < EXACT);
    assert_true(bias_of(&off, "kl_penalty_coef=1 surrogate=cispo epsilon=1 epsilon_high=1e9" SUM) < EXACT);
    assert_true(bias_of(&off, "kl_penalty_coef=1 surrogate=clip epsilon=1 epsilon_high=1e9" SUM) < EXACT);
    assert_true(bias_of(&off, "kl_penalty_coef=1 surrogate=reinforce" SUM) > WRONG);
    double g[OUTCOMES];
    gradients(g, &off, "kl_penalty_coef=1 surrogate=reinforce" SUM);
    times_ratio(g, &off);
    assert_true(bias(g, &off) < EXACT);
    verdict("kl_penalty_coef=1 surrogate=clip", "exact", "exact when multiplied by stop(ρ)");
}

static void k2_as_loss(void **state) {
    const world on = world_of(0), off = world_of(1);
    double g[OUTCOMES];
    (void)state;
    assert_true(bias_of(&on, LOSS "k2") < EXACT);
    gradients(g, &off, LOSS "k2");
    assert_true(bias(g, &off) > WRONG);
    times_ratio(g, &off);
    assert_true(bias(g, &off) < EXACT);
    verdict(LOSS "k2", "exact", "exact when multiplied by stop(ρ)");
}

static void weighted_k3_and_k1_as_loss_through_the_ratio(void **state) {
    const world on = world_of(0), off = world_of(1);
    (void)state;
    assert_true(bias_of(&on, LOSS "is-k3") < EXACT);
    assert_true(bias_of(&off, LOSS "is-k3") < EXACT);
    assert_true(bias_of(&on, LOSS "is-k1") < EXACT);
    assert_true(bias_of(&off, LOSS "is-k1") < EXACT);
    verdict(LOSS "is-k3", "exact", "exact");
    verdict(LOSS "is-k1", "exact", "exact");
    const rein_options o = options_of(LOSS "is-k3");
    assert_string_equal(rein_kl_bias_of(&o, 0)->off_policy, "exact"); /* without an if */
}

static void k3_as_loss_is_the_forward_kl(void **state) {
    const world on = world_of(0), off = world_of(1);
    double g[OUTCOMES], estimate[OUTCOMES], forward[OUTCOMES];
    (void)state;
    gradients(g, &on, LOSS "k3");
    expected(estimate, g, &on);
    forward_gradient(forward, &on);
    assert_true(apart(estimate, forward) < EXACT);
    assert_true(bias(g, &on) > WRONG);
    gradients(g, &off, LOSS "k3");
    expected(estimate, g, &off);
    assert_true(apart(estimate, forward) > WRONG); /* off-policy it is not even that */
    assert_true(bias(g, &off) > WRONG);
    verdict(LOSS "k3", "wrong: the gradient of the forward KL", "wrong");
}

static void weighted_k3_with_the_ratio_detached(void **state) {
    const world on = world_of(0), off = world_of(1);
    double g[OUTCOMES];
    (void)state;
    gradients(g, &on, LOSS "k3");
    times_ratio(g, &on);
    assert_true(bias(g, &on) > WRONG);
    gradients(g, &off, LOSS "k3");
    times_ratio(g, &off);
    assert_true(bias(g, &off) > WRONG);
}

/* k in the reward is loss stop(k)·lp, off-policy times stop(ρ): g = k. */
static void k3_or_distance_in_the_reward(void **state) {
    const world on = world_of(0), off = world_of(1);
    static const char *const estimators[] = {LOSS "k3", LOSS "abs"};
    (void)state;
    for (int e = 0; e < 2; e++) {
        double k[OUTCOMES];
        values(k, &on, estimators[e]);
        assert_true(bias(k, &on) > WRONG);
        values(k, &off, estimators[e]);
        assert_true(bias(k, &off) > WRONG);
        times_ratio(k, &off);
        assert_true(bias(k, &off) > WRONG);
    }
    double k1[OUTCOMES]; /* the control: k1 there is right */
    values(k1, &on, LOSS "k1");
    assert_true(bias(k1, &on) < EXACT);
}

static void k1_as_loss_has_no_gradient_in_expectation(void **state) {
    const world on = world_of(0), off = world_of(1);
    double g[OUTCOMES], estimate[OUTCOMES];
    (void)state;
    gradients(g, &on, LOSS "k1");
    assert_true(norm(g) > 1); /* token by token there is one */
    expected(estimate, g, &on);
    assert_true(norm(estimate) < EXACT);
    assert_true(bias_of(&off, LOSS "k1") > WRONG);
    gradients(g, &off, LOSS "k1");
    expected(estimate, g, &off);
    assert_true(norm(estimate) > 0.01); /* off-policy there is a pull, but not this one */
    verdict(LOSS "k1", "no gradient in expectation", "wrong");
}

static void distance_as_loss(void **state) {
    const world on = world_of(0), off = world_of(1);
    (void)state;
    assert_true(bias_of(&on, LOSS "abs") > WRONG);
    assert_true(bias_of(&off, LOSS "abs") > WRONG);
    verdict(LOSS "abs", "wrong", "wrong");
}

/* ---- values: which of them estimate the KL */

static double mean_value(const world *w, const char *settings) {
    double k[OUTCOMES], mean = 0;
    values(k, w, settings);
    for (int a = 0; a < OUTCOMES; a++) mean += exp(w->old[a]) * k[a];
    return mean;
}

static void values_of_k1_and_k3_are_unbiased(void **state) {
    const world on = world_of(0), off = world_of(1);
    (void)state;
    assert_true(fabs(mean_value(&on, LOSS "k1") - reverse_kl(&on)) < EXACT);
    assert_true(fabs(mean_value(&on, LOSS "k3") - reverse_kl(&on)) < EXACT);
    assert_true(fabs(mean_value(&off, LOSS "is-k1") - reverse_kl(&off)) < EXACT);
    assert_true(fabs(mean_value(&off, LOSS "is-k3") - reverse_kl(&off)) < EXACT);
}

/* q = π/π_ref: Σ π(q − log q − 1) = chi²(π‖ref) − KL(π‖ref), chi² = Σ π²/ref − 1. */
static void current_over_ref_estimates_chi_squared_minus_kl(void **state) {
    const world on = world_of(0), off = world_of(1);
    double chi_squared = -1, truth[OUTCOMES], g[OUTCOMES], estimate[OUTCOMES], mean = 0;
    (void)state;
    for (int a = 0; a < OUTCOMES; a++) chi_squared += exp(2 * on.current[a] - on.ref[a]);
    for (int a = 0; a < OUTCOMES; a++) mean += 2 * exp(2 * on.current[a] - on.ref[a]);
    /* ∇chi² = π_j·(2π_j/ref_j − Σ 2π²/ref) */
    reverse_gradient(truth, &on);
    for (int j = 0; j < OUTCOMES; j++) truth[j] = exp(on.current[j]) * (2 * exp(on.current[j] - on.ref[j]) - mean) - truth[j];

    assert_true(fabs(mean_value(&on, LOSS "k3 kl_direction=current_over_ref") - (chi_squared - reverse_kl(&on))) < EXACT);
    assert_true(fabs(mean_value(&off, LOSS "is-k3 kl_direction=current_over_ref") - (chi_squared - reverse_kl(&off))) < EXACT);
    gradients(g, &off, LOSS "is-k3 kl_direction=current_over_ref");
    expected(estimate, g, &off);
    assert_true(apart(estimate, truth) < EXACT);
    for (int k = 0; k < 2; k++) {
        const char *settings = k ? LOSS "is-k3 kl_direction=current_over_ref" : LOSS "k3 kl_direction=current_over_ref";
        assert_true(bias_of(&on, settings) > WRONG);
        assert_true(bias_of(&off, settings) > WRONG);
        verdict(settings, "wrong", "wrong");
    }
}

/* The group policy objective's own KL term, enumerated: arrays weighted by the sampler are its expectation. */
static void directions_of_the_group_policy_objective(void **state) {
    const world off = world_of(1);
    double mean[2] = {0}, chi_squared = -1;
    (void)state;
    for (int a = 0; a < OUTCOMES; a++) {
        const double ratio = exp(off.current[a] - off.old[a]), zero = 0, pi = exp(off.current[a]), ref = exp(off.ref[a]);
        for (int d = 0; d < 2; d++) {
            rein_gpo value;
            const rein_kl_direction direction = d ? REIN_REF_OVER_CURRENT : REIN_CURRENT_OVER_REF;
            assert_int_equal(rein_gpo_objective(&value, NULL, NULL, &ratio, &zero, &pi, &ref, 1, 0.2, 1, direction, NULL, NULL),
                             REIN_OK);
            mean[d] += exp(off.old[a]) * value.kl;
        }
        chi_squared += exp(2 * off.current[a] - off.ref[a]);
    }
    assert_true(fabs(mean[0] - (chi_squared - reverse_kl(&off))) < EXACT);
    assert_true(fabs(mean[1] - reverse_kl(&off)) < EXACT);
}

static void every_term_has_its_row_and_none_has_none(void **state) {
    const rein_options none = options_of("surrogate=clip");
    const rein_options three = options_of("kl_reward_coef=1 kl_penalty_coef=1 " LOSS "k2");
    (void)state;
    assert_null(rein_kl_bias_of(&none, 0));
    assert_non_null(strstr(rein_kl_bias_of(&three, 0)->form, "reward"));
    assert_non_null(strstr(rein_kl_bias_of(&three, 1)->form, "advantage"));
    assert_non_null(strstr(rein_kl_bias_of(&three, 2)->form, "k2 as loss"));
    assert_null(rein_kl_bias_of(&three, 3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(k1_detached_in_the_reward),
        cmocka_unit_test(k1_detached_and_centred_in_the_advantage),
        cmocka_unit_test(k2_as_loss),
        cmocka_unit_test(weighted_k3_and_k1_as_loss_through_the_ratio),
        cmocka_unit_test(k3_as_loss_is_the_forward_kl),
        cmocka_unit_test(weighted_k3_with_the_ratio_detached),
        cmocka_unit_test(k3_or_distance_in_the_reward),
        cmocka_unit_test(k1_as_loss_has_no_gradient_in_expectation),
        cmocka_unit_test(distance_as_loss),
        cmocka_unit_test(values_of_k1_and_k3_are_unbiased),
        cmocka_unit_test(current_over_ref_estimates_chi_squared_minus_kl),
        cmocka_unit_test(directions_of_the_group_policy_objective),
        cmocka_unit_test(every_term_has_its_row_and_none_has_none),
    };
    return cmocka_run_group_tests_name("bias", tests, NULL, NULL);
}
