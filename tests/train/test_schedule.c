/* test_schedule.c - learning rates against transformers' schedules, where they begin and end, and every error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "rein/train.h"
#include "support/check.h"

#include "train/fixtures/schedule_golden.h"

static double rate_at(const rein_schedule *s, int64_t step) {
    double rate;
    rein_error err;
    if (rein_learning_rate(&rate, s, step, &err) != REIN_OK) fail_msg("%s", err.message);
    return rate;
}

/* A cosine may differ by a bit from one C library to another. */
static void test_transformers(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(goldens); k++)
        for (int step = 0; step < goldens[k].steps; step++) {
            const double rate = rate_at(&goldens[k].schedule, step), wanted = goldens[k].rates[step];
            const double room = goldens[k].schedule.shape == REIN_SCHEDULE_COSINE ? 0x1p-52 * goldens[k].schedule.learning_rate : 0;
            if (!(fabs(rate - wanted) <= room)) fail_msg("golden %zu, step %d: %a, not %a", k, step, rate, wanted);
        }
}

/* The corners of every shape, in numbers that can be read. */
static void test_corners(void **state) {
    (void)state;
    for (int shape = REIN_SCHEDULE_LINEAR; shape <= REIN_SCHEDULE_COSINE; shape++) {
        const rein_schedule s = {(rein_schedule_shape)shape, 8, 4, 12, .25};
        assert_true(rate_at(&s, 0) == 0 && rate_at(&s, 1) == 2 && rate_at(&s, 3) == 6); /* warm-up */
        assert_true(rate_at(&s, 4) == 8);                                               /* its top */
        assert_true(fabs(rate_at(&s, 8) - 5) < 1e-15);                                  /* half way down, to 2 */
        assert_true(rate_at(&s, 12) == 2 && rate_at(&s, 13) == 2 && rate_at(&s, INT64_MAX) == 2);
        for (int step = 5; step <= 12; step++) assert_true(rate_at(&s, step) < rate_at(&s, step - 1));
    }
    const rein_schedule constant = {REIN_SCHEDULE_CONSTANT, 8, 4, 0, 0};
    assert_true(rate_at(&constant, 0) == 0 && rate_at(&constant, 3) == 6 && rate_at(&constant, 4) == 8);
    assert_true(rate_at(&constant, INT64_MAX) == 8);
}

static void refused(rein_schedule s, int64_t step, const char *text, const char *more) {
    double rate = 77;
    rein_error err = {0};
    assert_int_equal(rein_learning_rate(&rate, &s, step, &err), REIN_EINVAL);
    assert_int_equal(err.code, REIN_EINVAL);
    if (!strstr(err.message, text) || !strstr(err.message, more))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", err.message, text, more);
    assert_int_not_equal(err.message[strlen(err.message) - 1], '.');
    assert_true(rate == 77);
    assert_int_equal(rein_learning_rate(&rate, &s, step, NULL), REIN_EINVAL); /* no rein_error */
}

static void test_errors(void **state) {
    (void)state;
    const rein_schedule good = {REIN_SCHEDULE_LINEAR, 1e-3, 2, 10, .1}, constant = {REIN_SCHEDULE_CONSTANT, 1e-3, 2, 10, 0};
    const double bad[] = {(double)NAN, (double)INFINITY, -.5};
    rein_schedule s;
    for (size_t k = 0; k < COUNT(bad); k++) {
        s = good, s.learning_rate = bad[k], refused(s, 0, "learning_rate is", "0 or more");
        s = good, s.final_share = bad[k], refused(s, 0, "final_share is", "between 0 and 1");
    }
    s = good, s.final_share = 1.5, refused(s, 0, "final_share is 1.5", "between 0 and 1");
    s = good, s.shape = (rein_schedule_shape)7, refused(s, 0, "shape is 7", "REIN_SCHEDULE_COSINE");
    s = good, s.warmup_steps = -1, refused(s, 0, "warmup_steps is -1", "0 or more");
    s = good, s.warmup_steps = 11, refused(s, 0, "warmup_steps is 11", "at most total_steps, 10");
    s = good, s.total_steps = 0, s.warmup_steps = 0, refused(s, 0, "total_steps is 0", "1 or more");
    s = good, s.total_steps = -4, refused(s, 0, "total_steps is -4", "1 or more");
    refused(good, -1, "step is -1", "count from 0");
    s = constant, s.final_share = .5, refused(s, 0, "final_share is 0.5", "constant");
    s = constant, s.warmup_steps = 11, refused(s, 0, "warmup_steps is 11", "at most total_steps");
    s = constant, s.total_steps = -1, refused(s, 0, "total_steps is -1", "1 or more");
    double rate;
    rein_error err;
    assert_int_equal(rein_learning_rate(&rate, NULL, 0, &err), REIN_EINVAL);
    assert_string_equal(err.message, "schedule is NULL: one is needed");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transformers),
        cmocka_unit_test(test_corners),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
