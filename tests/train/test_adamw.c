/* test_adamw.c - AdamW against torch, bit for bit; one answer for any number of threads and every instruction set; clipping and decay;
 * and refusals that change nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rein/train.h"
#include "support/check.h"
#include "support/random.h"

#include "train/fixtures/adamw_golden.h"

#define NOT_A_NUMBER ((double)NAN)
#define INFINITE ((double)INFINITY)

static const rein_adamw usual = {1e-3, 0.9, 0.999, 1e-8, 1e-2, 0};

static void same(const float *got, const float *wanted, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &wanted[i], sizeof *got) != 0)
            fail_msg("%s[%zu] is %a, not %a", what, i, (double)got[i], (double)wanted[i]);
}

/* ---- a model of several parameters, with the optimizer's state */
enum { MOST = 8 };
typedef struct model {
    rein_parameter parameters[MOST];
    size_t n, total;
    float *value, *gradient, *first, *second; /* [total]: the parameters share them */
    int64_t step;
    double norm;
} model;

static float *some(size_t n) {
    float *x = calloc(n + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

/* columns end with 0; rows are 1 to 3, every second parameter decays. */
static model model_new(const size_t *columns) {
    model m = {.n = 0};
    for (; columns[m.n]; m.n++) {
        const size_t rows = 1 + m.n % 3;
        m.parameters[m.n] = (rein_parameter){"weight", NULL, NULL, rows, columns[m.n], rows * columns[m.n], m.n % 2 == 0};
        m.total += m.parameters[m.n].size;
    }
    m.value = some(m.total), m.gradient = some(m.total), m.first = some(m.total), m.second = some(m.total);
    for (size_t i = 0, at = 0; i < m.n; at += m.parameters[i++].size)
        m.parameters[i].value = m.value + at, m.parameters[i].gradient = m.gradient + at;
    return m;
}

static void model_free(model *m) { free(m->value), free(m->gradient), free(m->first), free(m->second); }

static rein_status advance(model *m, const rein_adamw *o, const rein_exec *e, rein_error *err) {
    return rein_adamw_step(&m->norm, m->first, m->second, &m->step, m->parameters, m->n, o, e, err);
}

static void advance_well(model *m, const rein_adamw *o, const rein_exec *e) {
    rein_error err;
    if (advance(m, o, e, &err) != REIN_OK) fail_msg("%s", err.message);
}

/* Gradients of many magnitudes, some of them 0. */
static void random_gradients(model *m) {
    static const double sizes[] = {1, 1e-1, 1e-4, 10, 1e-2, 0, 1e-6, 1e-3, 1, 1e-5, 1e-2};
    for (size_t i = 0; i < m->total; i++) m->gradient[i] = (float)(uniform(-1, 1) * sizes[i % COUNT(sizes)]);
}

static void random_values(model *m) {
    for (size_t i = 0; i < m->total; i++) m->value[i] = (float)uniform(-1, 1);
}

static void same_models(const model *a, const model *b, const char *what) {
    if (memcmp(&a->norm, &b->norm, sizeof a->norm) != 0) fail_msg("%s: norms %a and %a", what, a->norm, b->norm);
    assert_true(a->step == b->step && a->total == b->total);
    same(a->value, b->value, a->total, what);
    same(a->gradient, b->gradient, a->total, what);
    same(a->first, b->first, a->total, what);
    same(a->second, b->second, a->total, what);
}

/* ------------------------------------------------------------------------------------------------------------------ goldens */

static void check_golden(const struct golden *golden, rein_isa isa) {
    model m = model_new((const size_t[]){GOLDEN_SIZE, 0});
    const size_t begin[] = {0, 35, 48};
    m.n = 3; /* the shapes of generate.py */
    m.parameters[0] = (rein_parameter){"weight", NULL, NULL, 5, 7, 35, 1};
    m.parameters[1] = (rein_parameter){"bias", NULL, NULL, 1, 13, 13, 0};
    m.parameters[2] = (rein_parameter){"other", NULL, NULL, 3, 3, 9, 1};
    for (size_t i = 0; i < 3; i++) m.parameters[i].value = m.value + begin[i], m.parameters[i].gradient = m.gradient + begin[i];
    memcpy(m.value, golden_values, sizeof golden_values);
    for (int t = 0; t < GOLDEN_STEPS; t++) {
        rein_adamw options = golden->options;
        options.learning_rate = golden->rates[t];
        memcpy(m.gradient, golden_gradients[t], sizeof golden_gradients[t]);
        advance_well(&m, &options, &(rein_exec){1, isa});
        assert_true(fabs(m.norm - golden->norms[t]) <= 4e-16 * golden->norms[t]);
        same(m.gradient, golden_gradients[t], GOLDEN_SIZE, "gradient"); /* clipped, but not where it stands */
    }
    assert_int_equal(m.step, GOLDEN_STEPS);
    same(m.first, golden->first, GOLDEN_SIZE, "first");
    same(m.second, golden->second, GOLDEN_SIZE, "second");
    same(m.value, golden->value, GOLDEN_SIZE, "value");
    model_free(&m);
}

static void test_torch(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(goldens); k++)
        for (int isa = REIN_ISA_REF; isa < REIN_ISA_COUNT; isa++)
            if (rein_isa_available((rein_isa)isa)) check_golden(&goldens[k], (rein_isa)isa);
}

/* --------------------------------------------------------------------------------------------------------------- one answer */

static model trained(const size_t *columns, const rein_adamw *o, const rein_exec *e) {
    model m = model_new(columns);
    stream = 7;
    random_values(&m);
    for (int t = 0; t < 3; t++) {
        random_gradients(&m);
        advance_well(&m, o, e);
    }
    return m;
}

static void check_one_answer(const size_t *columns, const rein_adamw *o) {
    const int threads[] = {1, 2, 3, 8};
    model one = trained(columns, o, &(rein_exec){1, REIN_ISA_REF});
    for (int isa = REIN_ISA_BEST; isa < REIN_ISA_COUNT; isa++)
        for (size_t k = 0; k < COUNT(threads) && rein_isa_available((rein_isa)isa); k++) {
            model other = trained(columns, o, &(rein_exec){threads[k], (rein_isa)isa});
            same_models(&one, &other, "threads or instruction set");
            model_free(&other);
        }
    model_free(&one);
}

static void test_one_answer(void **state) {
    (void)state;
    const size_t small[] = {1, 7, 8, 9, 31, 0}, large[] = {5, 16384, 1, 8191, 33, 20001, 0};
    const rein_adamw options[] = {usual, {1e-2, 0.4, 0.95, 1e-6, 0.1, 0.5}};
    for (size_t k = 0; k < COUNT(options); k++) {
        check_one_answer(small, &options[k]);
        check_one_answer(large, &options[k]);
    }
}

/* So many elements that chunks are larger than their usual size. */
static void test_one_answer_of_millions(void **state) {
    (void)state;
    const size_t columns[] = {9000001, 3, 0};
    model one = trained(columns, &usual, &(rein_exec){1, REIN_ISA_BEST}), three = trained(columns, &usual, &(rein_exec){3, 0});
    same_models(&one, &three, "threads");
    model_free(&one), model_free(&three);
}

/* An element does not see the others: cut differently, or alone, it has the same bits. */
static void test_elements_are_independent(void **state) {
    (void)state;
    for (size_t n = 1; n <= 40; n++) {
        model whole = trained((const size_t[]){n, 0}, &usual, NULL);
        for (size_t i = 0; i < n; i++) {
            model alone = model_new((const size_t[]){1, 0});
            stream = 7;
            for (size_t j = 0; j < n; j++) { /* the same numbers, all but one dropped */
                const float x = (float)uniform(-1, 1);
                if (j == i) alone.value[0] = x;
            }
            for (int t = 0; t < 3; t++) {
                model copy = model_new((const size_t[]){n, 0});
                random_gradients(&copy);
                alone.gradient[0] = copy.gradient[i];
                advance_well(&alone, &usual, NULL);
                model_free(&copy);
            }
            same(alone.value, &whole.value[i], 1, "value");
            model_free(&alone);
        }
        model_free(&whole);
    }
}

/* -------------------------------------------------------------------------------------------------------- norm, clip, decay */

static double norm_of(const model *m) {
    long double sum = 0;
    for (size_t i = 0; i < m->total; i++) sum += (long double)m->gradient[i] * (long double)m->gradient[i];
    return (double)sqrtl(sum);
}

static void test_norm(void **state) {
    (void)state;
    const size_t columns[] = {1, 17, 300, 40001, 0};
    model m = model_new(columns);
    const float sizes[] = {1, 1e-20f, 1e18f, 1e-42f}; /* float squares of the second vanish, of the last it is itself subnormal */
    for (size_t k = 0; k < COUNT(sizes); k++) {
        random_gradients(&m);
        for (size_t i = 0; i < m.total; i++) m.gradient[i] *= sizes[k] * 1e-2f;
        advance_well(&m, &usual, NULL);
        assert_true(fabs(m.norm - norm_of(&m)) <= 1e-14 * m.norm);
    }
    assert_int_equal(rein_adamw_step(NULL, m.first, m.second, &m.step, m.parameters, m.n, &usual, NULL, NULL), REIN_OK);
    memset(m.gradient, 0, m.total * sizeof *m.gradient);
    advance_well(&m, &usual, NULL);
    assert_true(m.norm == 0);
    model_free(&m);
}

/* Clipping is scaling the gradients beforehand; below the limit, nothing. */
static void test_clipping(void **state) {
    (void)state;
    const size_t columns[] = {33, 20, 0};
    rein_adamw o = usual;
    model clipped = model_new(columns), scaled = model_new(columns);
    stream = 3, random_gradients(&clipped);
    const double norm = norm_of(&clipped);
    o.max_gradient_norm = norm / 3;
    advance_well(&clipped, &o, NULL);
    assert_true(fabs(clipped.norm - norm) <= 1e-14 * norm); /* before clipping */
    for (size_t i = 0; i < scaled.total; i++)
        scaled.gradient[i] = clipped.gradient[i] * (float)(norm / 3 / (norm + 1e-6)); /* torch.nn.utils.clip_grad_norm_ */
    advance_well(&scaled, &usual, NULL);
    same(clipped.value, scaled.value, scaled.total, "value");
    same(clipped.second, scaled.second, scaled.total, "second");
    model_free(&clipped), model_free(&scaled);
    clipped = trained(columns, &usual, NULL), scaled = trained(columns, &(rein_adamw){1e-3, 0.9, 0.999, 1e-8, 1e-2, 1e30}, NULL);
    same_models(&clipped, &scaled, "a limit that is not reached");
    model_free(&clipped), model_free(&scaled);
}

/* Without gradients only the decay is left, and only where it applies. */
static void test_decay(void **state) {
    (void)state;
    rein_adamw o = {.1, 0.9, 0.999, 1e-8, .5, 0};
    model m = model_new((const size_t[]){3, 4, 9, 0}), before = model_new((const size_t[]){3, 4, 9, 0});
    stream = 5, random_values(&m);
    memcpy(before.value, m.value, m.total * sizeof *m.value);
    advance_well(&m, &o, NULL);
    for (size_t i = 0; i < m.n; i++)
        for (size_t j = 0; j < m.parameters[i].size; j++) {
            const float was = before.parameters[i].value[j], wanted = i == 1 ? was : was * 0.95f;
            assert_true(m.parameters[i].value[j] == wanted);
        }
    o.weight_decay = 0;
    memcpy(m.value, before.value, m.total * sizeof *m.value);
    advance_well(&m, &o, NULL);
    same(m.value, before.value, m.total, "value");
    model_free(&m), model_free(&before);
}

/* It optimizes: Σ (x − target)² from far away, with a rate that falls. */
static void test_finds_a_minimum(void **state) {
    (void)state;
    rein_adamw o = {0, 0.9, 0.999, 1e-8, 0, 1};
    model m = model_new((const size_t[]){100, 0});
    stream = 9, random_values(&m);
    for (int t = 0; t < 2000; t++) {
        o.learning_rate = .05 * (1 - t / 2000.);
        for (size_t i = 0; i < m.total; i++) m.gradient[i] = 2 * (m.value[i] - (float)i / 50);
        advance_well(&m, &o, NULL);
    }
    for (size_t i = 0; i < m.total; i++) assert_true(fabs((double)m.value[i] - (double)i / 50) < 1e-3);
    model_free(&m);
}

/* ----------------------------------------------------------------------------------------------------------------- refusals */

/* An error whose message holds both texts, is one line and has no full stop; and nothing has changed. */
static void refused(model *m, const rein_adamw *o, const rein_exec *e, rein_status status, const char *text, const char *more) {
    rein_error err = {0};
    model before = *m;
    before.value = some(m->total), before.gradient = some(m->total);
    before.first = some(m->total), before.second = some(m->total);
    const size_t bytes = m->total * sizeof(float);
    memcpy(before.value, m->value, bytes), memcpy(before.gradient, m->gradient, bytes);
    memcpy(before.first, m->first, bytes), memcpy(before.second, m->second, bytes);
    assert_int_equal(advance(m, o, e, &err), status);
    assert_int_equal(err.code, status);
    if (!strstr(err.message, text) || !strstr(err.message, more))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", err.message, text, more);
    assert_null(strchr(err.message, '\n'));
    assert_int_not_equal(err.message[strlen(err.message) - 1], '.');
    assert_true(e || *err.field); /* base.h reports what is wrong with e */
    assert_int_equal(strncmp(err.message, err.field, strlen(err.field)), 0);
    same_models(m, &before, "what was refused");
    assert_int_equal(advance(m, o, e, NULL), status); /* no rein_error */
    same_models(m, &before, "what was refused");
    model_free(&before);
}

static void test_bad_gradients(void **state) {
    (void)state;
    const struct {
        double x;
        const char *text;
    } bad[] = {{NOT_A_NUMBER, "NaN"}, {INFINITE, "is inf"}, {-INFINITE, "-inf"}};
    const size_t columns[] = {5, 7, 30000, 2, 0};
    model m = trained(columns, &usual, NULL);
    m.parameters[1].name = "layers.0.q_proj", m.parameters[2].name = "lm_head";
    for (size_t k = 0; k < COUNT(bad); k++)
        for (int isa = REIN_ISA_REF; isa < REIN_ISA_COUNT; isa++)
            for (int threads = 1; threads <= 3 && rein_isa_available((rein_isa)isa); threads++) {
                const rein_exec e = {threads, (rein_isa)isa};
                random_gradients(&m);
                m.parameters[2].gradient[2 * 30000 + 12345] = (float)bad[k].x;
                refused(&m, &usual, &e, REIN_EINVAL, "lm_head", "row 2, column 12345");
                m.parameters[1].gradient[13] = (float)bad[k].x; /* the first is named */
                refused(&m, &usual, &e, REIN_EINVAL, "layers.0.q_proj", "row 1, column 6");
                refused(&m, &usual, &e, REIN_EINVAL, bad[k].text, "nothing was changed");
                rein_error err = {0};
                assert_int_equal(advance(&m, &usual, &e, &err), REIN_EINVAL);
                assert_string_equal(err.field, "parameters[1].gradient");
                assert_int_equal(err.index, 13);
            }
    model_free(&m);
}

/* A square that does not fit a float would stay in the second moment for ever. */
static void test_overflow(void **state) {
    (void)state;
    rein_adamw o = usual;
    model m = trained((const size_t[]){5, 7, 0}, &usual, NULL);
    m.gradient[3] = 1e20f;
    refused(&m, &o, NULL, REIN_ERANGE, "the norm of the gradient is 1e+20", "max_gradient_norm");
    o.max_gradient_norm = 1;
    advance_well(&m, &o, NULL);
    m.gradient[3] = 1.8e19f; /* the largest that fits, nearly */
    o.max_gradient_norm = 0;
    for (int t = 0; t < 100; t++) advance_well(&m, &o, NULL);
    for (size_t i = 0; i < m.total; i++) assert_true(isfinite(m.second[i]) && isfinite(m.value[i]));
    model_free(&m);
}

static void test_bad_options(void **state) {
    (void)state;
    model m = trained((const size_t[]){5, 7, 0}, &usual, NULL);
    const double bad[] = {NOT_A_NUMBER, INFINITE, -INFINITE, -.5};
    rein_adamw o;
    for (size_t k = 0; k < COUNT(bad); k++) {
        o = usual, o.learning_rate = bad[k], refused(&m, &o, NULL, REIN_EINVAL, "learning_rate is", "0 or more");
        o = usual, o.beta1 = bad[k], refused(&m, &o, NULL, REIN_EINVAL, "beta1 is", "below 1");
        o = usual, o.beta2 = bad[k], refused(&m, &o, NULL, REIN_EINVAL, "beta2 is", "below 1");
        o = usual, o.epsilon = bad[k], refused(&m, &o, NULL, REIN_EINVAL, "epsilon is", "above 0");
        o = usual, o.weight_decay = bad[k], refused(&m, &o, NULL, REIN_EINVAL, "weight_decay is", "0 or more");
        o = usual, o.max_gradient_norm = bad[k], refused(&m, &o, NULL, REIN_EINVAL, "max_gradient_norm is", "no clipping");
    }
    o = usual, o.learning_rate = 2e6, refused(&m, &o, NULL, REIN_EINVAL, "learning_rate is 2e+06", "at most 1e6");
    o = usual, o.beta1 = 1, refused(&m, &o, NULL, REIN_EINVAL, "beta1 is 1", "below 1");
    o = usual, o.beta2 = 1, refused(&m, &o, NULL, REIN_EINVAL, "beta2 is 1", "below 1");
    o = usual, o.epsilon = 0, refused(&m, &o, NULL, REIN_EINVAL, "epsilon is 0", "above 0");
    o = usual, o.epsilon = 1e-50, refused(&m, &o, NULL, REIN_EINVAL, "epsilon is 1e-50", "a float");
    o = usual, o.learning_rate = 3, o.weight_decay = .5, refused(&m, &o, NULL, REIN_EINVAL, "is 1.5", "sign");
    refused(&m, NULL, NULL, REIN_EINVAL, "options is NULL", "needs");
    refused(&m, &usual, &(rein_exec){-1, REIN_ISA_BEST}, REIN_EINVAL, "threads is -1", "or more");
    refused(&m, &usual, &(rein_exec){1, (rein_isa)9}, REIN_EINVAL, "isa is 9", "not available");
    model_free(&m);
}

static void test_bad_parameters(void **state) {
    (void)state;
    model m = trained((const size_t[]){5, 7, 0}, &usual, NULL);
    rein_parameter *p = &m.parameters[1];
    const rein_parameter good = *p;
    p->name = NULL, refused(&m, &usual, NULL, REIN_EINVAL, "parameters[1].name is NULL", "need"), *p = good;
    p->value = NULL, refused(&m, &usual, NULL, REIN_EINVAL, "parameters[1].value is NULL", "needed"), *p = good;
    p->gradient = NULL, refused(&m, &usual, NULL, REIN_EINVAL, "parameters[1].gradient is NULL", "weight"), *p = good;
    p->size = 13, refused(&m, &usual, NULL, REIN_EINVAL, "parameters[1].size is 13", "2 x 7"), *p = good;
    p->rows = 3, refused(&m, &usual, NULL, REIN_EINVAL, "parameters[1].size is 14", "3 x 7"), *p = good;
    p->size = p->rows = 0, refused(&m, &usual, NULL, REIN_EINVAL, "parameters[1].size is 0", "not 0"), *p = good;
    p->columns = 0, refused(&m, &usual, NULL, REIN_EINVAL, "parameters[1].size is 14", "2 x 0"), *p = good;
    p->size = SIZE_MAX / 4, p->rows = 1, p->columns = p->size;
    refused(&m, &usual, NULL, REIN_EINVAL, "parameters[1].size", "memory"), *p = good;
    m.n = 0, refused(&m, &usual, NULL, REIN_EINVAL, "parameters is empty", "at least one"), m.n = 2;
    m.step = -1, refused(&m, &usual, NULL, REIN_EINVAL, "step is -1", "0 or more");
    m.step = INT64_MAX, refused(&m, &usual, NULL, REIN_EINVAL, "step is 9223372036854775807", "0 or more"), m.step = 3;
    rein_error err;
    assert_int_equal(rein_adamw_step(NULL, NULL, m.second, &m.step, m.parameters, 2, &usual, NULL, &err), REIN_EINVAL);
    assert_string_equal(err.message, "first is NULL: both moments are needed");
    assert_int_equal(rein_adamw_step(NULL, m.first, NULL, &m.step, m.parameters, 2, &usual, NULL, &err), REIN_EINVAL);
    assert_string_equal(err.message, "second is NULL: both moments are needed");
    assert_int_equal(rein_adamw_step(NULL, m.first, m.second, NULL, m.parameters, 2, &usual, NULL, &err), REIN_EINVAL);
    assert_string_equal(err.message, "step is NULL: the count of steps is needed");
    assert_int_equal(rein_adamw_step(NULL, m.first, m.second, &m.step, NULL, 2, &usual, NULL, &err), REIN_EINVAL);
    model_free(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),
        cmocka_unit_test(test_one_answer),
        cmocka_unit_test(test_one_answer_of_millions),
        cmocka_unit_test(test_elements_are_independent),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_decay),
        cmocka_unit_test(test_finds_a_minimum),
        cmocka_unit_test(test_bad_gradients),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_bad_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
