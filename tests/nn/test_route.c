/* test_route.c - the router of a mixture of experts: its choice, its order, and its gradient against central differences in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nn/layers.h"
#include "nn/route.h"

/* Measured: 7e-8 and 6e-7. */
#define FORWARD 1e-6
#define BACKWARD 3e-6

static rein_routes routes_of(size_t rows, size_t n, size_t k, int normalise) {
    return (rein_routes){.n = n,
                         .k = k,
                         .normalise = normalise,
                         .experts = room(rows * k, sizeof(size_t)),
                         .weights = floats(rows * k),
                         .order = room(rows * k, sizeof(size_t)),
                         .starts = room(n + 1, sizeof(size_t))};
}

/* Of equal probabilities the first are chosen; the choices of a row ascend. */
static void test_ties(void **state) {
    (void)state;
    static const struct {
        float p[5];
        size_t k, experts[5];
    } cases[] = {
        {{0.2f, 0.2f, 0.2f, 0.2f, 0.2f}, 2, {0, 1}},
        {{0.1f, 0.3f, 0.1f, 0.3f, 0.2f}, 3, {1, 3, 4}},
        {{0.1f, 0.3f, 0.1f, 0.3f, 0.2f}, 4, {0, 1, 3, 4}},
        {{0.4f, 0.1f, 0.1f, 0.1f, 0.3f}, 3, {0, 1, 4}},
        {{0, 0, 0, 0, 1}, 2, {0, 4}},
        {{NAN, NAN, NAN, NAN, NAN}, 3, {0, 1, 2}},
        {{0.1f, 0.2f, 0.3f, 0.3f, 0.1f}, 5, {0, 1, 2, 3, 4}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const rein_routes r = routes_of(1, 5, cases[i].k, 0);
        rein_route_choose(&r, cases[i].p, 1, best());
        for (size_t c = 0; c < r.k; c++) {
            assert_int_equal(r.experts[c], cases[i].experts[c]);
            assert_memory_equal(&r.weights[c], &cases[i].p[r.experts[c]], sizeof(float));
        }
        clear();
    }
}

/* The choices of each expert are those of its rows, in their order, on every machine. */
static void test_order(void **state) {
    (void)state;
    const size_t rows = 100, n = 9, k = 3;
    for (size_t m = 0; m < n_machines; m++) {
        const rein_routes r = routes_of(rows, n, k, 1);
        float *p = numbers(rows * n, 3);
        rein_route_softmax(p, rows, n, &machines[m]);
        rein_route_choose(&r, p, rows, &machines[m]);
        assert_true(r.starts[0] == 0 && r.starts[n] == rows * k);
        for (size_t e = 0; e < n; e++)
            for (size_t i = r.starts[e]; i < r.starts[e + 1]; i++) {
                assert_int_equal(r.experts[r.order[i]], e);
                assert_true(i == r.starts[e] || r.order[i] > r.order[i - 1]);
            }
        for (size_t c = 0; c < rows * k; c++) assert_true(c % k == 0 || r.experts[c] > r.experts[c - 1]);
        clear();
    }
}

/* Σ dweight·weight of a row in double, with the choice given. */
typedef struct row {
    const rein_routes *routes;
    const size_t *experts;
    const float *dweights;
    double *logits;
} row;

static double weight_of(const row *x, size_t i) {
    double all = 0, chosen = 0;
    for (size_t e = 0; e < x->routes->n; e++) all += exp(x->logits[e]);
    for (size_t c = 0; c < x->routes->k; c++) chosen += exp(x->logits[x->experts[c]]);
    return exp(x->logits[x->experts[i]]) / (x->routes->normalise ? chosen : all);
}

static double loss(void *context, size_t place) {
    const row *x = context;
    double sum = 0;
    (void)place;
    for (size_t i = 0; i < x->routes->k; i++) sum += (double)x->dweights[i] * weight_of(x, i);
    return sum;
}

static void check_shape(size_t rows, size_t n, size_t k, int normalise) {
    const rein_routes r = routes_of(rows, n, k, normalise);
    const float *logits = numbers(rows * n, 2), *dweights = numbers(rows * k, 1);
    float *p = copy_of(logits, rows * n), *overwritten = copy_of(dweights, rows * k), *dlogits = floats(rows * n);
    double *wanted = doubles(rows * k), *wanted_d = doubles(rows * n), *exact = as_doubles(logits, rows * n);
    rein_route_softmax(p, rows, n, best());
    rein_route_choose(&r, p, rows, best());
    rein_route_backward(dlogits, overwritten, p, &r, rows, best());
    for (size_t i = 0; i < rows; i++) {
        row x = {&r, r.experts + i * k, dweights + i * k, exact + i * n};
        for (size_t c = 0; c < k; c++) wanted[i * k + c] = weight_of(&x, c);
        for (size_t e = 0; e < n; e++) wanted_d[i * n + e] = difference(x.logits, e, loss, &x);
    }
    check("weights", apart(r.weights, wanted, rows * k), FORWARD);
    check("dlogits", apart(dlogits, wanted_d, rows * n), BACKWARD);
    clear();
}

static void test_against_double(void **state) {
    (void)state;
    const size_t sizes[] = {2, 3, 5, 8, 17, 64, 128};
    for (int round = 0; round < (quick() ? 40 : 200); round++) {
        const size_t n = sizes[below(COUNT(sizes))];
        check_shape(1 + below(30), n, 2 + below(n - 1 < 8 ? n - 1 : 8), round % 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_against_double),
    };
    return cmocka_run_group_tests_name("route", tests, open_machines, close_machines);
}
