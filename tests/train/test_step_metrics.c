/* test_step_metrics.c - passes that are added up: every metric as its table row says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/step_metrics.h"

enum { METRICS = sizeof(rein_metrics) / sizeof(double) };

/* Metric i is base + i/4. */
static rein_metrics metrics_of(double base) {
    union {
        rein_metrics metrics;
        double values[METRICS];
    } all;
    for (size_t i = 0; i < METRICS; i++) all.values[i] = base + (double)i / 4;
    return all.metrics;
}

/* Two minibatches of two epochs. */
static void test_combined(void **state) {
    (void)state;
    const double bases[] = {8, 32, 4, 16};
    rein_metrics sum = {0};
    for (size_t i = 0; i < 4; i++) {
        const rein_metrics pass = metrics_of(bases[i]);
        rein_metrics_add(&sum, &pass, i == 0, i < 2);
    }
    rein_metrics_finish(&sum, 4);
    const rein_metrics mean = metrics_of(15), least = metrics_of(4), greatest = metrics_of(32), first = metrics_of(8),
                       second = metrics_of(32);
    assert_true(sum.reward == mean.reward && sum.reward_std == mean.reward_std && sum.length_mean == mean.length_mean);
    assert_true(sum.frac_reward_zero_std == mean.frac_reward_zero_std && sum.share_over_budget == mean.share_over_budget);
    assert_true(sum.clip_low == mean.clip_low && sum.clip_high == mean.clip_high && sum.ess == mean.ess);
    assert_true(sum.ratio_mean == mean.ratio_mean && sum.ratio_p99 == mean.ratio_p99 && sum.entropy == mean.entropy);
    assert_true(sum.kl_old_k1 == mean.kl_old_k1 && sum.kl_old_k3 == mean.kl_old_k3);
    assert_true(sum.kl_ref_k1 == mean.kl_ref_k1 && sum.kl_ref_k3 == mean.kl_ref_k3);
    assert_true(sum.surrogate_loss == mean.surrogate_loss && sum.kl_loss == mean.kl_loss && sum.entropy_loss == mean.entropy_loss);
    assert_true(sum.ratio_min == least.ratio_min && sum.ratio_max == greatest.ratio_max && sum.length_max == greatest.length_max);
    assert_true(sum.tokens == first.tokens + second.tokens && sum.trained_tokens == first.trained_tokens + second.trained_tokens);
    assert_true(sum.sequences == first.sequences + second.sequences && sum.groups == first.groups + second.groups);
    assert_true(sum.trained_sequences == first.trained_sequences + second.trained_sequences);
}

/* The least of positive numbers is not the 0 that the sum begins with. */
static void test_first(void **state) {
    (void)state;
    const rein_metrics low = {.ratio_min = 0.5, .ratio_max = -2, .length_max = -1};
    rein_metrics sum = {0};
    rein_metrics_add(&sum, &low, 1, 1);
    rein_metrics_finish(&sum, 1);
    assert_true(sum.ratio_min == 0.5 && sum.ratio_max == -2 && sum.length_max == -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_combined),
        cmocka_unit_test(test_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
