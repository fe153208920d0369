/* test_preference.c - losses over preferences, of reward models and of critics: every gradient against central differences, kinks, differences
 * of 1,000 nats, every error by field and position, and outputs that stay as they were when a call fails. Values: tests/golden. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "rein/objective.h"
#include "support/check.h"
#include "support/random.h"

enum { PAIRS = 5 };
#define NOT_A_NUMBER ((double)NAN)

static void near_to(double got, double expected, double tolerance) {
    if (!(fabs(got - expected) <= tolerance)) fail_msg("%.17g is not %.17g (off by %.3g)", got, expected, fabs(got - expected));
}

static void is_error(rein_status got, rein_status expected, const rein_error *err, const char *field, int64_t index,
                     const char *text) {
    if (got != expected) fail_msg("status %d, not %d, where \"%s\" is wrong", (int)got, (int)expected, text);
    assert_string_equal(err->field, field);
    assert_int_equal(err->index, index);
    if (!strstr(err->message, text)) fail_msg("\"%s\" does not say \"%s\"", err->message, text);
}

/* ----------------------------------------------------------------------------------------------------------------------- pairs */

typedef struct columns {
    double chosen[PAIRS], rejected[PAIRS], ref_chosen[PAIRS], ref_rejected[PAIRS];
    int64_t n_chosen[PAIRS], n_rejected[PAIRS];
} columns;

static columns random_columns(double reach) {
    columns c;
    for (size_t i = 0; i < PAIRS; i++) {
        c.chosen[i] = uniform(-reach, -1), c.rejected[i] = uniform(-reach, -1);
        c.ref_chosen[i] = uniform(-reach, -1), c.ref_rejected[i] = uniform(-reach, -1);
        c.n_chosen[i] = 1 + (int64_t)below(20), c.n_rejected[i] = 1 + (int64_t)below(20);
    }
    return c;
}

static rein_pairs pairs_of(const columns *c) {
    return (rein_pairs){PAIRS, c->chosen, c->rejected, c->ref_chosen, c->ref_rejected, c->n_chosen, c->n_rejected};
}

static rein_preference_options options_of(rein_preference loss) {
    rein_preference_options o = rein_preference_published(loss);
    if (loss == REIN_PREFERENCE_CDPO || loss == REIN_PREFERENCE_ROBUST) o.label_smoothing = .2;
    return o;
}

static double loss_of(const columns *c, const rein_preference_options *o) {
    double loss = NOT_A_NUMBER;
    const rein_pairs pairs = pairs_of(c);
    assert_int_equal(rein_preference_loss(&loss, NULL, NULL, NULL, &pairs, o, NULL), REIN_OK);
    return loss;
}

/* d loss / d *x by central differences of fourth order; x points into *c. */
static double slope(columns *c, double *x, const rein_preference_options *o) {
    const double at = *x, step = 1e-4;
    double f[4];
    for (int k = 0; k < 4; k++) *x = at + step * (k < 2 ? k - 2 : k - 1), f[k] = loss_of(c, o);
    *x = at;
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * step);
}

static void test_pair_gradients(void **state) {
    (void)state;
    for (int loss = 0; loss < (int)REIN_PREFERENCE_KTO; loss++)
        for (int k = 0; k < 30; k++) {
            columns c = random_columns(20);
            const rein_preference_options o = options_of((rein_preference)loss);
            const rein_pairs pairs = pairs_of(&c);
            double value, by_chosen[PAIRS], by_rejected[PAIRS];
            assert_int_equal(rein_preference_loss(&value, by_chosen, by_rejected, NULL, &pairs, &o, NULL), REIN_OK);
            for (size_t i = 0; i < PAIRS; i++) {
                const double h = o.beta * (c.chosen[i] - c.ref_chosen[i] - c.rejected[i] + c.ref_rejected[i]);
                if (loss == (int)REIN_PREFERENCE_HINGE && fabs(h - 1) < 1e-3) continue; /* too near to the kink */
                near_to(by_chosen[i], slope(&c, &c.chosen[i], &o), 1e-9 * (1 + fabs(value)));
                near_to(by_rejected[i], slope(&c, &c.rejected[i], &o), 1e-9 * (1 + fabs(value)));
            }
        }
}

/* 1,000 nats: finite loss, gradients and metrics; one of each pair is far right, one far wrong. */
static void test_far_apart(void **state) {
    (void)state;
    columns c = random_columns(20);
    for (size_t i = 0; i < PAIRS; i++) {
        c.chosen[i] = i % 2 ? -1000 : -1e-9, c.rejected[i] = i % 2 ? -1e-9 : -1000;
        c.ref_chosen[i] = c.ref_rejected[i] = -500, c.n_chosen[i] = c.n_rejected[i] = 1;
    }
    const rein_pairs pairs = pairs_of(&c);
    for (int loss = 0; loss < (int)REIN_PREFERENCE_KTO; loss++) {
        rein_preference_options o = options_of((rein_preference)loss);
        rein_preference_metrics m;
        double value, g[2][PAIRS];
        o.beta = 1;
        assert_int_equal(rein_preference_loss(&value, g[0], g[1], &m, &pairs, &o, NULL), REIN_OK);
        assert_true(isfinite(value) && isfinite(m.rewards_chosen) && isfinite(m.rewards_margins));
        for (size_t i = 0; i < PAIRS; i++) assert_true(isfinite(g[0][i]) && isfinite(g[1][i]));
        near_to(m.rewards_accuracies, .6, 1e-15);
    }
    /* the exact value: two of five pairs are wrong by 1,000, and −log σ(−1000) is 1000 */
    const rein_preference_options dpo = {.loss = REIN_PREFERENCE_DPO, 1, NAN, NAN, NAN, NAN, NAN};
    near_to(loss_of(&c, &dpo), 400, 1e-6);
}

static void test_hinge_kink(void **state) {
    (void)state;
    const double zero = 0;
    const rein_preference_options o = {.loss = REIN_PREFERENCE_HINGE, .125, NAN, NAN, NAN, NAN, NAN};
    double loss, g[2];
    for (int k = 7; k <= 9; k++) {
        const double s = k;
        const rein_pairs pairs = {1, &s, &zero, &zero, &zero, NULL, NULL};
        assert_int_equal(rein_preference_loss(&loss, &g[0], &g[1], NULL, &pairs, &o, NULL), REIN_OK);
        assert_true(loss == (k == 7 ? .125 : 0) && g[0] == (k == 7 ? -.125 : 0) && g[1] == -g[0]);
    }
}

/* ipo_sum is ipo_mean of completions of one token; robust and cdpo without noise are dpo; a mean over pairs is the mean of each. */
static void test_relations(void **state) {
    (void)state;
    columns c = random_columns(10);
    double mean = 0;
    rein_preference_options o = options_of(REIN_PREFERENCE_DPO);
    const double dpo = loss_of(&c, &o);
    for (size_t i = 0; i < PAIRS; i++) {
        const rein_pairs one = {1, c.chosen + i, c.rejected + i, c.ref_chosen + i, c.ref_rejected + i, NULL, NULL};
        double loss;
        assert_int_equal(rein_preference_loss(&loss, NULL, NULL, NULL, &one, &o, NULL), REIN_OK);
        mean += loss / PAIRS;
    }
    near_to(dpo, mean, 1e-14);
    o = options_of(REIN_PREFERENCE_CDPO), o.label_smoothing = 0;
    near_to(loss_of(&c, &o), dpo, 1e-15);
    o = options_of(REIN_PREFERENCE_ROBUST), o.label_smoothing = 0;
    near_to(loss_of(&c, &o), dpo, 1e-15);
    o = options_of(REIN_PREFERENCE_IPO_SUM);
    const double sum = loss_of(&c, &o);
    for (size_t i = 0; i < PAIRS; i++) c.n_chosen[i] = c.n_rejected[i] = 1;
    o = options_of(REIN_PREFERENCE_IPO_MEAN);
    near_to(loss_of(&c, &o), sum, 1e-15 * sum);
}

static void pair_fails(const columns *c, const rein_preference_options *o, const char *field, int64_t index, const char *text) {
    double loss = 77, g[2][PAIRS] = {{77}, {77}};
    rein_preference_metrics m = {.rewards_chosen = 77};
    rein_error err = {0};
    const rein_pairs pairs = pairs_of(c);
    is_error(rein_preference_loss(&loss, g[0], g[1], &m, &pairs, o, &err), REIN_EINVAL, &err, field, index, text);
    assert_true(loss == 77 && g[0][0] == 77 && g[1][0] == 77 && m.rewards_chosen == 77);
}

static void test_pair_errors(void **state) {
    (void)state;
    const columns good = random_columns(10);
    columns c = good;
    rein_preference_options o = options_of(REIN_PREFERENCE_DPO);
    o.simpo_gamma = .5, pair_fails(&c, &o, "simpo_gamma", -1, "has no effect with loss dpo");
    o = options_of(REIN_PREFERENCE_DPO), o.label_smoothing = 0, pair_fails(&c, &o, "label_smoothing", -1, "has no effect");
    o = options_of(REIN_PREFERENCE_DPO), o.beta = 0, pair_fails(&c, &o, "beta", -1, "is 0: it must be above 0");
    o.beta = (double)INFINITY, pair_fails(&c, &o, "beta", -1, "must be above 0");
    o = rein_preference_published(REIN_PREFERENCE_ROBUST), pair_fails(&c, &o, "label_smoothing", -1, "is missing");
    o.label_smoothing = .5, pair_fails(&c, &o, "label_smoothing", -1, "below 1/2");
    o = options_of(REIN_PREFERENCE_CDPO), o.label_smoothing = .75, pair_fails(&c, &o, "label_smoothing", -1, "1/2 or less");
    o = options_of(REIN_PREFERENCE_CPO), o.cpo_alpha = -1, pair_fails(&c, &o, "cpo_alpha", -1, "0 or more");
    o = rein_preference_published(REIN_PREFERENCE_KTO), pair_fails(&c, &o, "loss", -1, "is kto");
    o.loss = (rein_preference)99, pair_fails(&c, &o, "loss", -1, "is 99");
    o = options_of(REIN_PREFERENCE_DPO), c.chosen[2] = NOT_A_NUMBER, pair_fails(&c, &o, "chosen_log_probs", 2, "finite");
    c = good, c.ref_rejected[1] = NOT_A_NUMBER, pair_fails(&c, &o, "ref_rejected_log_probs", 1, "finite");
    o = options_of(REIN_PREFERENCE_SIMPO), c.n_rejected[3] = 0, pair_fails(&c, &o, "rejected_lengths", 3, "1 token or more");
    o = options_of(REIN_PREFERENCE_ORPO), c = good, c.rejected[0] = 0, pair_fails(&c, &o, "rejected_log_probs", 0, "below 0");
    rein_pairs pairs = pairs_of(&good);
    rein_error err = {0};
    double loss = 77;
    pairs.n = 0, o = options_of(REIN_PREFERENCE_DPO);
    is_error(rein_preference_loss(&loss, NULL, NULL, NULL, &pairs, &o, &err), REIN_EINVAL, &err, "chosen_log_probs", -1,
             "is empty");
    pairs = pairs_of(&good), pairs.ref_chosen_log_probs = NULL;
    is_error(rein_preference_loss(&loss, NULL, NULL, NULL, &pairs, &o, &err), REIN_EINVAL, &err, "ref_chosen_log_probs", -1,
             "is missing: loss dpo needs it");
    c = good, c.chosen[0] = 1e300, pairs = pairs_of(&c), o = options_of(REIN_PREFERENCE_IPO_SUM);
    is_error(rein_preference_loss(&loss, NULL, NULL, NULL, &pairs, &o, &err), REIN_ERANGE, &err, "", -1, "not finite");
    assert_true(loss == 77);
}

static void test_table(void **state) {
    (void)state;
    size_t n = 0;
    for (const rein_preference_info *info; (info = rein_preference_at(n)); n++) {
        const rein_preference_options o = options_of(info->loss);
        assert_int_equal(info->loss, n);
        assert_ptr_equal(rein_preference_describe(info->name), info);
        assert_int_equal(rein_preference_check(&o, NULL), REIN_OK);
        assert_true(*info->formula && *info->source && *info->note && *info->title);
    }
    assert_int_equal(n, REIN_PREFERENCE_KTO + 1);
    assert_null(rein_preference_describe("DPO"));
    assert_true(isnan(rein_preference_published((rein_preference)99).beta));
}

/* ------------------------------------------------------------------------------------------------------------------------- kto */

static void test_kto(void **state) {
    (void)state;
    const rein_preference_options o = {REIN_PREFERENCE_KTO, .3, NAN, NAN, NAN, 1.5, .7};
    for (int k = 0; k < 60; k++) {
        double s[PAIRS], ref[PAIRS], g[PAIRS], loss, f[4];
        uint8_t labels[PAIRS];
        const double kl = uniform(-2, 4);
        for (size_t i = 0; i < PAIRS; i++) s[i] = uniform(-20, -1), ref[i] = uniform(-20, -1), labels[i] = below(2) != 0;
        assert_int_equal(rein_kto_loss(&loss, g, NULL, s, ref, labels, PAIRS, kl, &o, NULL), REIN_OK);
        for (size_t i = 0; i < PAIRS; i++) {
            const double at = s[i], step = 1e-4;
            for (int j = 0; j < 4; j++)
                s[i] = at + step * (j < 2 ? j - 2 : j - 1), rein_kto_loss(&f[j], NULL, NULL, s, ref, labels, PAIRS, kl, &o, NULL);
            s[i] = at;
            near_to(g[i], (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * step), 1e-10);
        }
    }
    /* a negative kl counts as 0; only desirable completions: the metrics of the others are absent; 1,000 nats */
    const double s[2] = {-1, -1001}, ref[2] = {-1001, -1};
    const uint8_t good[2] = {1, 1};
    double a, b, g[2];
    rein_preference_metrics m;
    assert_int_equal(rein_kto_loss(&a, g, &m, s, ref, good, 2, -3, &o, NULL), REIN_OK);
    assert_int_equal(rein_kto_loss(&b, NULL, NULL, s, ref, good, 2, 0, &o, NULL), REIN_OK);
    assert_true(a == b && isfinite(g[0]) && isfinite(g[1]) && isnan(m.rewards_rejected) && isnan(m.rewards_margins));
    near_to(a, .75, 1e-15);
    rein_error err = {0};
    a = 77;
    is_error(rein_kto_loss(&a, g, &m, s, ref, good, 0, 0, &o, &err), REIN_EINVAL, &err, "log_probs", -1, "is empty");
    is_error(rein_kto_loss(&a, g, &m, s, ref, good, 2, NOT_A_NUMBER, &o, &err), REIN_EINVAL, &err, "kl", -1, "finite");
    is_error(rein_kto_loss(&a, g, &m, s, ref, NULL, 2, 0, &o, &err), REIN_EINVAL, &err, "labels", -1, "is missing");
    const rein_preference_options dpo = rein_preference_published(REIN_PREFERENCE_DPO);
    is_error(rein_kto_loss(&a, g, &m, s, ref, good, 2, 0, &dpo, &err), REIN_EINVAL, &err, "loss", -1, "is dpo");
    assert_true(a == 77);
}

/* ----------------------------------------------------------------------------------------------------------------- reward models */

static void test_reward(void **state) {
    (void)state;
    double w[PAIRS], l[PAIRS], m[PAIRS], g[2][PAIRS], loss, accuracy, f[4];
    for (int k = 0; k < 60; k++) {
        const double centre = k % 2 ? .05 : 0;
        for (size_t i = 0; i < PAIRS; i++) w[i] = uniform(-3, 3), l[i] = uniform(-3, 3), m[i] = uniform(0, 1);
        assert_int_equal(rein_reward_loss(&loss, g[0], g[1], &accuracy, w, l, m, PAIRS, centre, NULL), REIN_OK);
        for (size_t i = 0; i < 2 * PAIRS; i++) {
            double *x = i < PAIRS ? &w[i] : &l[i - PAIRS];
            const double at = *x, step = 1e-4;
            for (int j = 0; j < 4; j++)
                *x = at + step * (j < 2 ? j - 2 : j - 1), rein_reward_loss(&f[j], NULL, NULL, NULL, w, l, m, PAIRS, centre, NULL);
            *x = at;
            near_to(i < PAIRS ? g[0][i] : g[1][i - PAIRS], (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * step), 1e-10);
        }
    }
    const double far_w[2] = {500, -500}, far_l[2] = {-500, 500}, equal[1] = {1};
    assert_int_equal(rein_reward_loss(&loss, g[0], g[1], &accuracy, far_w, far_l, NULL, 2, 0, NULL), REIN_OK);
    assert_true(loss == 500 && accuracy == .5 && g[0][0] == 0 && g[0][1] == -.5 && g[1][1] == .5);
    assert_int_equal(rein_reward_loss(&loss, NULL, NULL, &accuracy, equal, equal, NULL, 1, 0, NULL), REIN_OK);
    assert_true(accuracy == 0); /* equal rewards are not right */
    near_to(loss, 0.693147180559945309, 1e-16);
    rein_error err = {0};
    loss = 77;
    is_error(rein_reward_loss(&loss, NULL, NULL, NULL, w, l, m, 0, 0, &err), REIN_EINVAL, &err, "chosen_rewards", -1, "is empty");
    is_error(rein_reward_loss(&loss, NULL, NULL, NULL, w, l, m, 1, -1, &err), REIN_EINVAL, &err, "center_rewards_coefficient", -1,
             "0 or more");
    m[1] = NOT_A_NUMBER;
    is_error(rein_reward_loss(&loss, NULL, NULL, NULL, w, l, m, PAIRS, 0, &err), REIN_EINVAL, &err, "margins", 1, "finite");
    w[0] = 1e200;
    is_error(rein_reward_loss(&loss, NULL, NULL, NULL, w, l, NULL, PAIRS, 1, &err), REIN_ERANGE, &err, "", -1, "not finite");
    assert_true(loss == 77);
}

/* ----------------------------------------------------------------------------------------------------------------------- critics */

enum { TOKENS = 3000 };

static void test_value_gradient(void **state) {
    (void)state;
    for (int k = 0; k < 200; k++) {
        double v[PAIRS], old[PAIRS], target[PAIRS], g[PAIRS], loss, up, down;
        uint8_t mask[PAIRS] = {1};
        for (size_t i = 0; i < PAIRS; i++) {
            v[i] = uniform(-2, 2), old[i] = uniform(-2, 2), target[i] = uniform(-2, 2);
            if (i) mask[i] = below(4) != 0;
            if (!mask[i]) v[i] = old[i] = NOT_A_NUMBER;
        }
        const double clip = k % 5 ? .5 : (double)INFINITY;
        size_t trained, expected = 0;
        assert_int_equal(rein_value_loss(&loss, &trained, g, v, old, target, mask, PAIRS, clip, NULL, NULL), REIN_OK);
        for (size_t i = 0; i < PAIRS; i++) expected += mask[i];
        assert_int_equal(trained, expected);
        for (size_t i = 0; i < PAIRS; i++) {
            if (!mask[i]) assert_true(g[i] == 0);
            const double at = v[i], near = fmin(fmax(at, old[i] - clip), old[i] + clip);
            const int at_edge = fabs(fabs(at - old[i]) - clip) < 1e-4;
            const int tie = near != at && fabs(fabs(at - target[i]) - fabs(near - target[i])) < 1e-4;
            if (!mask[i] || at_edge || tie) continue;
            v[i] = at + 1e-5, rein_value_loss(&up, NULL, NULL, v, old, target, mask, PAIRS, clip, NULL, NULL);
            v[i] = at - 1e-5, rein_value_loss(&down, NULL, NULL, v, old, target, mask, PAIRS, clip, NULL, NULL);
            v[i] = at;
            near_to(g[i], (up - down) / 2e-5, 1e-8);
        }
    }
}

/* The same bits for any number of threads; the twin agrees to the rounding of a float. */
static void test_value_threads(void **state) {
    (void)state;
    static double v[TOKENS], old[TOKENS], target[TOKENS], g[2][TOKENS];
    static float fv[TOKENS], fold[TOKENS], ftarget[TOKENS], fg[TOKENS];
    double loss[2], single;
    for (size_t i = 0; i < TOKENS; i++) {
        fv[i] = (float)uniform(-2, 2), fold[i] = (float)uniform(-2, 2), ftarget[i] = (float)uniform(-2, 2);
        v[i] = (double)fv[i], old[i] = (double)fold[i], target[i] = (double)ftarget[i];
    }
    for (int k = 0; k < 2; k++) {
        const rein_exec exec = {k ? 4 : 1, REIN_ISA_BEST};
        assert_int_equal(rein_value_loss(&loss[k], NULL, g[k], v, old, target, NULL, TOKENS, .5, &exec, NULL), REIN_OK);
    }
    assert_memory_equal(&loss[0], &loss[1], sizeof *loss);
    assert_memory_equal(g[0], g[1], sizeof g[0]);
    assert_int_equal(rein_value_loss_f32(&single, NULL, fg, fv, fold, ftarget, NULL, TOKENS, .5, NULL, NULL), REIN_OK);
    near_to(single, loss[0], 1e-13); /* the same doubles inside */
    for (size_t i = 0; i < TOKENS; i++) near_to((double)fg[i], g[0][i], 1e-7 * fabs(g[0][i]));
}

static void test_value_errors(void **state) {
    (void)state;
    const double v[2] = {1, NOT_A_NUMBER}, old[2] = {1, 1}, big[2] = {1e200, 1};
    const uint8_t none[2] = {0, 0}, first[2] = {1, 0};
    double loss = 77, g[2] = {77, 77};
    size_t trained = 9;
    rein_error err = {0};
    is_error(rein_value_loss(&loss, NULL, g, v, old, old, NULL, 0, .5, NULL, &err), REIN_EINVAL, &err, "values", -1, "is empty");
    is_error(rein_value_loss(&loss, NULL, g, v, old, old, NULL, 2, .5, NULL, &err), REIN_EINVAL, &err, "values", 1, "finite");
    is_error(rein_value_loss(&loss, NULL, g, old, old, v, NULL, 2, .5, NULL, &err), REIN_EINVAL, &err, "returns", 1, "finite");
    is_error(rein_value_loss(&loss, NULL, g, old, v, old, NULL, 2, .5, NULL, &err), REIN_EINVAL, &err, "old_values", 1, "finite");
    is_error(rein_value_loss(&loss, NULL, g, old, old, old, NULL, 2, -1, NULL, &err), REIN_EINVAL, &err, "value_clip", -1,
             "0 or more");
    is_error(rein_value_loss(&loss, NULL, g, old, old, old, NULL, 2, NOT_A_NUMBER, NULL, &err), REIN_EINVAL, &err, "value_clip", -1,
             "0 or more");
    is_error(rein_value_loss(&loss, NULL, g, big, old, old, NULL, 2, .5, NULL, &err), REIN_ERANGE, &err, "", -1, "not finite");
    assert_true(loss == 77 && g[0] == 77);
    assert_int_equal(rein_value_loss(&loss, &trained, g, v, old, old, none, 2, .5, NULL, &err), REIN_OK);
    assert_true(loss == 0 && g[0] == 0 && g[1] == 0 && trained == 0);
    assert_int_equal(rein_value_loss(&loss, &trained, g, v, old, old, first, 2, 0, NULL, &err), REIN_OK);
    assert_true(loss == 0 && trained == 1); /* a clip of 0 is literal */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pair_gradients),
        cmocka_unit_test(test_far_apart),
        cmocka_unit_test(test_hinge_kink),
        cmocka_unit_test(test_relations),
        cmocka_unit_test(test_pair_errors),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_kto),
        cmocka_unit_test(test_reward),
        cmocka_unit_test(test_value_gradient),
        cmocka_unit_test(test_value_threads),
        cmocka_unit_test(test_value_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
