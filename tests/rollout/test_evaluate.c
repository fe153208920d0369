/* test_evaluate.c - figures of rollouts that are made by hand, against published values, enumeration, and what was counted on paper. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rein/rollout.h"

static const double Z = 1.959963984540054;

static void near(double got, double wanted, double within) {
    if (!(fabs(got - wanted) <= within)) fail_msg("%.17g, not %.17g", got, wanted);
}

/* ---- Wilson's interval */

/* Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17 (1998), table I, method 3. */
static void test_interval_published(void **state) {
    static const struct {
        double right, n, low, high;
    } rows[] = {{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0.0000, 0.1611}, {1, 29, 0.0061, 0.1718}};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        double low, high;
        rein_interval(&low, &high, rows[i].right, rows[i].n);
        near(low, rows[i].low, 0.5e-4), near(high, rows[i].high, 0.5e-4);
        rein_interval(&low, &high, rows[i].n - rows[i].right, rows[i].n); /* wrong for right: mirrored */
        near(low, 1 - rows[i].high, 0.5e-4), near(high, 1 - rows[i].low, 0.5e-4);
    }
}

/* What defines its ends: the observed share is Z deviations away from them, of the distribution that they are the share of. */
static void test_interval_defined(void **state) {
    (void)state;
    for (double n = 1; n <= 4096; n *= 2)
        for (double right = 0; right <= n; right += n / 8) {
            double ends[2];
            const double share = right / n;
            rein_interval(&ends[0], &ends[1], right, n);
            assert_true(ends[0] >= 0 && ends[0] <= share && share <= ends[1] && ends[1] <= 1 && ends[0] < ends[1]);
            for (size_t i = 0; i < 2; i++) near(fabs(share - ends[i]), Z * sqrt(ends[i] * (1 - ends[i]) / n), 1e-12);
        }
}

static void test_interval_edges(void **state) {
    double low, high;
    (void)state;
    rein_interval(&low, &high, 0, 0);
    assert_true(low == 0 && high == 1);
    rein_interval(&low, &high, 0, 7); /* exactly, not nearly */
    assert_true(low == 0 && high < 1);
    rein_interval(&low, &high, 7, 7);
    assert_true(low > 0 && high == 1);
}

/* ---- pass@k */

/* Every choice of k out of n samples, the first `right` of which are right. */
static double enumerate(size_t n, size_t right, size_t k) {
    size_t choices = 0, passed = 0;
    for (size_t set = 0; set < (size_t)1 << n; set++) {
        size_t chosen = 0;
        for (size_t i = 0; i < n; i++) chosen += set >> i & 1;
        if (chosen != k) continue;
        choices++;
        passed += (set & (((size_t)1 << right) - 1)) != 0;
    }
    return (double)passed / (double)choices;
}

static void test_pass_at_k(void **state) {
    (void)state;
    for (size_t n = 1; n <= 10; n++)
        for (size_t right = 0; right <= n; right++)
            for (size_t k = 0; k <= n; k++) near(rein_pass_at_k(n, right, k), enumerate(n, right, k), 1e-15);
    assert_true(rein_pass_at_k(10, 0, 10) == 0 && rein_pass_at_k(10, 1, 10) == 1 && rein_pass_at_k(10, 10, 1) == 1);
    near(rein_pass_at_k(10000, 1, 100), 0.01, 1e-14); /* binomials of which no double knows */
    near(rein_pass_at_k(10000, 5000, 2), 1 - 0.5 * 4999 / 9999, 1e-14);
}

/* ---- groups by hand */

enum { MOST = 128, LONGEST = 100 };
static rein_group groups_[MOST];
static rein_trajectory trajectories[MOST];
static rein_history histories[MOST];
static rein_named_number scores[MOST][2];
static uint8_t mask[LONGEST + 1];

/* A prompt of one token, and so many of the policy. */
static void set_length(size_t i, size_t n) {
    assert_true(n <= LONGEST);
    memset(mask + 1, 1, LONGEST);
    histories[i] = (rein_history){.n = n + 1, .mask = mask};
}

/* n prompts without a budget, whose completions have 10 tokens, ended, and are worth nothing. */
static rein_groups hand_made(size_t n, size_t samples, size_t judges) {
    assert_true(n * samples <= MOST && judges <= 2);
    memset(scores, 0, sizeof scores);
    for (size_t i = 0; i < n * samples; i++) {
        set_length(i, 10);
        trajectories[i] =
            (rein_trajectory){.histories = &histories[i], .n_histories = 1, .budget = -1, .scores = scores[i], .n_scores = judges};
    }
    for (size_t g = 0; g < n; g++) groups_[g] = (rein_group){.trajectories = trajectories + g * samples, .n = samples};
    return (rein_groups){groups_, n, 0};
}

static void test_figures(void **state) {
    (void)state;
    const rein_groups r = hand_made(3, 2, 2);
    static const double first[] = {1, 0, 0, 0.999, 2, 1}, second[] = {0, 1, 1, 1, 0, 0};
    static const size_t lengths[] = {1, 2, 4, 8, 16, 32};
    for (size_t i = 0; i < 6; i++) {
        scores[i][0].value = first[i], scores[i][1].value = second[i];
        trajectories[i].reward = first[i] - 0.5 * second[i];
        set_length(i, lengths[i]);
    }
    trajectories[1].truncated = trajectories[2].truncated = 1;
    const rein_evaluation e = rein_evaluate(&r, -1);
    assert_true(e.n == 6 && e.prompts == 3 && e.samples == 2);
    near(e.accuracy, 0.5, 1e-15); /* by the first judge: 1 or more, whatever the sum is */
    near(e.pass_at_k, 2.0 / 3, 1e-15);
    near(rein_groups_pass_at_k(&r, 1), 0.5, 1e-15);
    near(e.reward, (1 - 0.5 - 0.5 + 0.499 + 2 + 1) / 6, 1e-15);
    near(e.mean_length, 10.5, 1e-15);
    near(e.truncated, 2.0 / 6, 1e-15);
    assert_true(isnan(e.share_over_budget));
}

/* Without judges it is the reward that says what is right. */
static void test_without_judges(void **state) {
    (void)state;
    const rein_groups r = hand_made(4, 1, 0);
    trajectories[0].reward = 1, trajectories[1].reward = 0.99, trajectories[3].reward = 5;
    assert_true(rein_evaluate(&r, -1).accuracy == 0.5);
}

static void test_budgets(void **state) {
    (void)state;
    const rein_groups r = hand_made(4, 2, 0);
    static const size_t lengths[] = {5, 6, 9, 10, 11, 12, 100, 1};
    for (size_t i = 0; i < 8; i++) set_length(i, lengths[i]);
    assert_true(isnan(rein_evaluate(&r, -1).share_over_budget));
    assert_true(rein_evaluate(&r, 10).share_over_budget == 3.0 / 8); /* 10 is not over 10 */
    assert_true(rein_evaluate(&r, 0).share_over_budget == 1);
    trajectories[0].budget = trajectories[1].budget = 5; /* its own, of which 6 is over, whatever the others have */
    assert_true(rein_evaluate(&r, -1).share_over_budget == 1.0 / 2);
    assert_true(rein_evaluate(&r, 10).share_over_budget == 4.0 / 8);
    trajectories[6].budget = trajectories[7].budget = 100; /* now nothing of it is over */
    assert_true(rein_evaluate(&r, -1).share_over_budget == 1.0 / 4);
    assert_true(rein_evaluate(&r, 10).share_over_budget == 3.0 / 8);
}

/* The mean length of a hundred responses of 23 tokens is 23, not nearly; everything cut off is all of it. */
static void test_means_are_exact(void **state) {
    (void)state;
    const rein_groups r = hand_made(100, 1, 1);
    for (size_t i = 0; i < 100; i++) {
        set_length(i, 23);
        trajectories[i].truncated = 1, trajectories[i].reward = 3, scores[i][0].value = 1;
    }
    const rein_evaluation e = rein_evaluate(&r, 22);
    assert_true(e.accuracy == 1 && e.accuracy_high == 1 && e.pass_at_k == 1);
    assert_true(e.mean_length == 23 && e.truncated == 1 && e.share_over_budget == 1 && e.reward == 3);
}

static void test_accuracy_of_one_sample(void **state) {
    double low, high;
    (void)state;
    const rein_groups r = hand_made(29, 1, 1);
    scores[7][0].value = 1;
    const rein_evaluation e = rein_evaluate(&r, -1);
    rein_interval(&low, &high, 1, 29);
    assert_true(e.accuracy == 1.0 / 29 && e.accuracy_low == low && e.accuracy_high == high);
    assert_true(e.pass_at_k == e.accuracy);
}

/* Responses to one prompt are alike: 8 prompts with 4 responses each are 8 numbers, not 32. */
static void test_accuracy_of_several(void **state) {
    (void)state;
    const rein_groups r = hand_made(8, 4, 1);
    static const size_t right[] = {0, 1, 2, 2, 3, 1, 2, 1};
    for (size_t i = 0; i < 8; i++)
        for (size_t k = 0; k < right[i]; k++) scores[i * 4 + k][0].value = 1;
    const rein_evaluation e = rein_evaluate(&r, -1);
    const double mean = 12.0 / 32, squares = (0 + 1 + 4 + 4 + 9 + 1 + 4 + 1) / 16.0 - 8 * mean * mean;
    near(e.accuracy, mean, 1e-15);
    near(e.accuracy_low, mean - Z * sqrt(squares / 7 / 8), 1e-15);
    near(e.accuracy_high, mean + Z * sqrt(squares / 7 / 8), 1e-15);
    near(e.pass_at_k, 7.0 / 8, 1e-15);
    near(rein_groups_pass_at_k(&r, 2), (0 + 3 * 3 / 6.0 + 3 * 5 / 6.0 + 1) / 8, 1e-15); /* 1 of 4: 3/6; 2 of 4: 5/6; 3 of 4: 1 */
}

/* Equal shares would be no interval at all: then it is Wilson's, over prompts. It never leaves 0 to 1. */
static void test_accuracy_at_the_edges(void **state) {
    double low, high;
    (void)state;
    rein_groups r = hand_made(4, 2, 1);
    for (size_t i = 0; i < 4; i++) scores[2 * i][0].value = 1;
    rein_evaluation e = rein_evaluate(&r, -1);
    rein_interval(&low, &high, 2, 4);
    assert_true(e.accuracy == 0.5 && e.accuracy_low == low && e.accuracy_high == high && low < high);
    r = hand_made(1, 8, 1), scores[3][0].value = 1;
    e = rein_evaluate(&r, -1);
    rein_interval(&low, &high, 0.125, 1);
    assert_true(e.accuracy == 0.125 && e.accuracy_low == low && e.accuracy_high == high);
    r = hand_made(2, 2, 1), scores[0][0].value = scores[1][0].value = 1; /* shares 1 and 0 */
    e = rein_evaluate(&r, -1);
    assert_true(e.accuracy == 0.5 && e.accuracy_low == 0 && e.accuracy_high == 1);
    r = (rein_groups){0};
    e = rein_evaluate(&r, 10);
    assert_true(e.n == 0 && e.accuracy == 0 && e.mean_length == 0 && isnan(e.share_over_budget));
    assert_true(rein_groups_pass_at_k(&r, 0) == 0);
}

/* ---- two policies */

static void test_difference(void **state) {
    double low, high;
    (void)state;
    const rein_groups all = hand_made(8, 2, 1), first = {all.groups, 4, 0}, second = {all.groups + 4, 4, 0};
    static const size_t right[] = {0, 2, 8, 9, 10, 12}; /* shares 1/2 1/2 0 0, and 1 1/2 1/2 0 */
    for (size_t i = 0; i < 6; i++) scores[right[i]][0].value = 1;
    near(rein_evaluate_difference(&low, &high, &first, &second), 0.25, 1e-15);
    const double deviation = sqrt((0.0625 + 0.0625 + 0.0625 + 0.0625) / 3); /* of 1/2 0 1/2 0 */
    near(low, 0.25 - Z * deviation / 2, 1e-15);
    near(high, 0.25 + Z * deviation / 2, 1e-15);
    near(rein_evaluate_difference(&low, &high, &second, &first), -0.25, 1e-15); /* the other way round */
    near(high, -0.25 + Z * deviation / 2, 1e-15);
    assert_true(rein_evaluate_difference(&low, &high, &first, &first) == 0 && low == 0 && high == 0);
}

static void test_difference_of_little(void **state) {
    double low, high;
    (void)state;
    const rein_groups one = hand_made(1, 1, 1), none = {0};
    assert_true(rein_evaluate_difference(&low, &high, &one, &one) == 0); /* one prompt says nothing of others */
    assert_true(low == -(double)INFINITY && high == (double)INFINITY);
    assert_true(isnan(rein_evaluate_difference(&low, &high, &none, &none)) && isnan(low) && isnan(high));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interval_published),
        cmocka_unit_test(test_interval_defined),
        cmocka_unit_test(test_interval_edges),
        cmocka_unit_test(test_pass_at_k),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_without_judges),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_means_are_exact),
        cmocka_unit_test(test_accuracy_of_one_sample),
        cmocka_unit_test(test_accuracy_of_several),
        cmocka_unit_test(test_accuracy_at_the_edges),
        cmocka_unit_test(test_difference),
        cmocka_unit_test(test_difference_of_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
