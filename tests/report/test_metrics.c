/* test_metrics.c - the names of metrics, which of them a step has, and their JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/metrics.h"
#include "support/allocation.h"

enum {
    ALL = REIN_STEP_REWARDS | REIN_STEP_BUDGETS | REIN_STEP_REFERENCE | REIN_STEP_ENTROPIES | REIN_STEP_EXACT_KL | REIN_STEP_TEACHER
};

/* Every field another number. */
static rein_step_numbers numbered(void) {
    return (rein_step_numbers){
        .loss = {.loss = 1,
                 .metrics = {.reward = 2,
                             .reward_std = 3,
                             .frac_reward_zero_std = 4,
                             .length_mean = 5,
                             .length_max = 6,
                             .share_over_budget = 7,
                             .clip_low = 8,
                             .clip_high = 9,
                             .ratio_mean = 10,
                             .ratio_min = 11,
                             .ratio_max = 12,
                             .ratio_p99 = 13,
                             .ess = 14,
                             .kl_old_k1 = 15,
                             .kl_old_k3 = 16,
                             .kl_ref_k1 = 18,
                             .kl_ref_k3 = 19,
                             .kl_exact = 39,
                             .entropy = 20,
                             .surrogate_loss = 21,
                             .kl_loss = 22,
                             .teacher_loss = 61,
                             .teacher_divergence = 62,
                             .entropy_loss = 23,
                             .trained_tokens = 24}},
        .parts = ALL,
        .gradient_norm = 25,
        .learning_rate = 26,
        .clipped_ratio = 27,
        .num_tokens = 28,
        .budget_multiplier = 29,
        .on_policy_gap = 30,
        .seconds_step = 31,
        .seconds_sample = 32,
        .seconds_reference = 33,
        .seconds_forward = 34,
        .seconds_backward = 35,
        .seconds_optimizer = 36,
        .tokens_per_second = 37,
        .peak_memory = 38,
        .seconds_wait = 44,
        .seconds_wait_max = 45,
        .seconds_exchange = 46,
        .exchange_bytes = 47,
        .exchange_calls = 48,
        .critic_loss = 49,
        .critic_explained_variance = 50,
        .critic_clip_fraction = 51,
        .critic_value_mean = 52,
        .critic_return_mean = 53,
        .critic_gradient_norm = 54,
        .critic_learning_rate = 55,
        .seconds_critic = 56,
        .advantage_mean = 57,
        .advantage_std = 58,
        .kl_reward_coef = 59,
        .kl_of_target = 60,
        .expert_load_max = 43,
        .expert_load_cv = 40,
        .expert_entropy = 41,
        .expert_balance_loss = 42,
    };
}

/* The first sixteen are in TRL 1.16's grpo_trainer.py or transformers' Trainer: tests/parity/report looks. */
static const rein_named_number expected[] = {
    {"reward", 2},
    {"reward_std", 3},
    {"frac_reward_zero_std", 4},
    {"completions/mean_length", 5},
    {"completions/max_length", 6},
    {"completions/clipped_ratio", 27},
    {"kl", 19},
    {"entropy", 20},
    {"clip_ratio/low_mean", 8},
    {"clip_ratio/high_mean", 9},
    {"clip_ratio/region_mean", 17},
    {"num_tokens", 28},
    {"step_time", 31},
    {"loss", 1},
    {"grad_norm", 25},
    {"learning_rate", 26},
    {"budget/share_over", 7},
    {"budget/multiplier", 29},
    {"on_policy/max_gap", 30},
    {"critic/loss", 49},
    {"critic/explained_variance", 50},
    {"critic/clip_fraction", 51},
    {"critic/value_mean", 52},
    {"critic/return_mean", 53},
    {"critic/grad_norm", 54},
    {"critic/learning_rate", 55},
    {"advantages/mean", 57},
    {"advantages/std", 58},
    {"kl/reward_coef", 59},
    {"kl/of_target", 60},
    {"time/critic", 56},
    {"experts/load_max", 43},
    {"experts/load_cv", 40},
    {"experts/entropy", 41},
    {"experts/balance_loss", 42},
    {"ratio/mean", 10},
    {"ratio/min", 11},
    {"ratio/max", 12},
    {"ratio/p99", 13},
    {"ratio/ess", 14},
    {"kl/old_k1", 15},
    {"kl/old_k3", 16},
    {"kl_policy_ref", 18},
    {"loss/surrogate", 21},
    {"loss/kl", 22},
    {"loss/entropy", 23},
    {"loss/teacher", 61},
    {"teacher/divergence", 62},
    {"tokens/trained", 24},
    {"tokens_per_second", 37},
    {"time/sample", 32},
    {"time/reference", 33},
    {"time/forward", 34},
    {"time/backward", 35},
    {"time/optimizer", 36},
    {"time/wait", 44},
    {"time/wait_max", 45},
    {"time/exchange", 46},
    {"exchange/bytes", 47},
    {"exchange/calls", 48},
    {"peak_memory", 38},
    {"kl_exact", 39},
};
enum { EXPECTED = sizeof expected / sizeof *expected };

static const rein_named_number *find(const rein_named_number *rows, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

static void test_every_row(void **state) {
    (void)state;
    rein_named_number rows[REIN_METRIC_ROWS];
    const rein_step_numbers numbers = numbered();
    assert_int_equal(rein_metric_rows(rows, REIN_METRIC_ROWS, &numbers), EXPECTED);
    assert_int_equal(REIN_METRIC_ROWS, EXPECTED);
    for (size_t i = 0; i < EXPECTED; i++) {
        const rein_named_number *row = find(rows, EXPECTED, expected[i].name);
        if (!row) fail_msg("%s is missing", expected[i].name);
        if (row->value != expected[i].value) fail_msg("%s is %g, not %g", row->name, row->value, expected[i].value);
    }
}

static void test_cleared_numbers_have_no_rows(void **state) {
    (void)state;
    rein_step_numbers numbers;
    memset(&numbers, 1, sizeof numbers);
    rein_step_numbers_clear(&numbers);
    assert_int_equal(rein_metric_rows(NULL, 0, &numbers), 0);
    numbers.parts = ALL;
    assert_int_equal(rein_metric_rows(NULL, 0, &numbers), 0);
    numbers.peak_memory = 0;
    assert_int_equal(rein_metric_rows(NULL, 0, &numbers), 1);
}

/* Which rows are gone without this part. */
static void gone(const rein_step_numbers *numbers, const char *const *names) {
    rein_named_number rows[REIN_METRIC_ROWS];
    const size_t n = rein_metric_rows(rows, REIN_METRIC_ROWS, numbers);
    size_t missing = 0;
    for (; names[missing]; missing++)
        if (find(rows, n, names[missing])) fail_msg("%s is there", names[missing]);
    assert_int_equal(n + missing, EXPECTED);
}

static void test_what_does_not_apply_is_left_out(void **state) {
    (void)state;
    rein_step_numbers numbers = numbered();
    numbers.parts = ALL & ~REIN_STEP_REWARDS;
    gone(&numbers, (const char *const[]){"reward", "reward_std", NULL});
    numbers.parts = ALL & ~REIN_STEP_BUDGETS;
    gone(&numbers, (const char *const[]){"budget/share_over", NULL});
    numbers.parts = ALL & ~REIN_STEP_REFERENCE;
    gone(&numbers, (const char *const[]){"kl", "kl_policy_ref", NULL});
    numbers.parts = ALL & ~REIN_STEP_ENTROPIES;
    gone(&numbers, (const char *const[]){"entropy", NULL});
    numbers.parts = ALL & ~REIN_STEP_TEACHER;
    gone(&numbers, (const char *const[]){"loss/teacher", "teacher/divergence", NULL});
    numbers.parts = ALL & ~REIN_STEP_EXACT_KL;
    gone(&numbers, (const char *const[]){"kl_exact", NULL});
    numbers.parts = ALL;
    numbers.loss.nothing_to_train = 1;
    gone(&numbers, (const char *const[]){"kl", "kl_policy_ref", "kl_exact", "teacher/divergence", "kl/old_k1", "kl/old_k3",
                                         "entropy", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean",
                                         "ratio/mean", "ratio/min", "ratio/max", "ratio/p99", "ratio/ess", NULL});
    numbers.loss.nothing_to_train = 0;
    numbers.on_policy_gap = numbers.seconds_sample = NAN;
    gone(&numbers, (const char *const[]){"on_policy/max_gap", "time/sample", NULL});
    numbers = numbered();
    numbers.gradient_norm = INFINITY; /* it applies */
    gone(&numbers, (const char *const[]){NULL});
}

static void test_capacity(void **state) {
    (void)state;
    rein_named_number few[4] = {[3] = {"untouched", 1}}, rows[REIN_METRIC_ROWS];
    const rein_step_numbers numbers = numbered();
    rein_metric_rows(rows, REIN_METRIC_ROWS, &numbers);
    assert_int_equal(rein_metric_rows(few, 3, &numbers), EXPECTED);
    for (size_t i = 0; i < 3; i++) assert_string_equal(few[i].name, rows[i].name);
    assert_string_equal(few[3].name, "untouched");
}

/* docs/metrics.md has a line "| `NAME` | …" for every row, and for nothing else, before it comes to those of the loop (test_loop_settings.c). */
static void test_the_page_has_every_name(void **state) {
    (void)state;
    char line[1000], name[100];
    size_t lines = 0;
    FILE *page = fopen("docs/metrics.md", "r");
    assert_non_null(page);
    while (fgets(line, sizeof line, page) && strcmp(line, "## Of the loop\n") != 0) {
        if (sscanf(line, "| `%99[^`]` |", name) != 1) continue;
        if (!find(expected, EXPECTED, name)) fail_msg("there is no %s", name);
        lines++;
    }
    fclose(page);
    assert_int_equal(lines, EXPECTED);
}

/* ---- JSON */
static void test_object(void **state) {
    (void)state;
    rein_named_number rows[REIN_METRIC_ROWS];
    const double hard[] = {0.1, 1.0 / 3, DBL_MAX, DBL_MIN, DBL_TRUE_MIN, -0.0, 12345678901, 1e22};
    rein_step_numbers numbers = numbered();
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++) {
        numbers.gradient_norm = hard[i];
        const size_t n = rein_metric_rows(rows, REIN_METRIC_ROWS, &numbers);
        json_t *object = rein_metric_object(7, rows, n);
        char *text = json_dumps(object, JSON_COMPACT);
        json_t *again = json_loads(text, 0, NULL);
        assert_string_equal(json_object_iter_key(json_object_iter(object)), "step");
        assert_int_equal(json_object_size(object), n + 1);
        const double value = json_real_value(json_object_get(again, "grad_norm"));
        assert_memory_equal(&value, &hard[i], sizeof value);
        assert_true(json_equal(object, again));
        json_decref(object);
        json_decref(again);
        free(text);
    }
    assert_null(rein_metric_object(1, &(rein_named_number){"\xff", 1}, 1));
}

/* JSON has no infinity and no NaN; the order is that of the rows. */
static void test_not_finite(void **state) {
    (void)state;
    const rein_named_number rows[] = {{"z", 0.1}, {"a/b", INFINITY}, {"a", NAN}};
    json_t *object = rein_metric_object(INT64_MAX, rows, 3);
    char *text = json_dumps(object, JSON_COMPACT);
    assert_string_equal(text, "{\"step\":9223372036854775807,\"z\":0.10000000000000001,\"a/b\":null,\"a\":null}");
    free(text);
    json_decref(object);
}

static rein_status make_object(void *context, rein_error *err) {
    (void)context;
    json_t *object = rein_metric_object(1, &(rein_named_number){"a", 1}, 1);
    const rein_status status = object ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no object");
    json_decref(object);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    assert_true(fail_each_allocation(make_object, NULL) >= 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row),
        cmocka_unit_test(test_cleared_numbers_have_no_rows),
        cmocka_unit_test(test_what_does_not_apply_is_left_out),
        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_the_page_has_every_name),
        cmocka_unit_test(test_object),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
