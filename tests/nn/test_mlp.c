/* test_mlp.c - the gates silu(g)·u and gelu(g)·u against double, and their gradients against central differences of that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nn/layers.h"
#include "nn/mlp.h"

/* Measured: 9e-8 and 5e-7, the latter near the zero of the slope. One number at a time: 3e-7 and 9e-7. */
#define FORWARD 1e-6
#define BACKWARD 3e-6

static rein_activation activation; /* of the current test */

static double gate(double g, double u) {
    if (activation == REIN_SILU) return g / (1 + exp(-g)) * u;
    return 0.5 * g * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g))) * u;
}

typedef struct point {
    double g, u, dh;
} point;

static double loss(void *context, size_t place) {
    const point *p = context;
    (void)place;
    return p->dh * gate(p->g, p->u);
}

static const float SIZES[] = {0.01f, 1, 4, 20, 80};

static void check_shape(size_t rows, size_t n, float size) {
    const size_t all = rows * n;
    const float *g = numbers(all, size), *u = numbers(all, 1), *dh = numbers(all, 1);
    float *h = floats(all), *dg = copy_of(g, all), *du = copy_of(u, all);
    double *wanted = doubles(all), *wanted_dg = doubles(all), *wanted_du = doubles(all);
    for (size_t i = 0; i < all; i++) {
        point p = {(double)g[i], (double)u[i], (double)dh[i]};
        wanted[i] = gate(p.g, p.u);
        wanted_dg[i] = difference(&p.g, 0, loss, &p);
        wanted_du[i] = difference(&p.u, 0, loss, &p);
    }
    rein_gate_forward(h, g, u, rows, n, activation, best());
    rein_gate_backward(dg, du, dh, rows, n, activation, best());
    check("gate", apart(h, wanted, all), FORWARD);
    check("gate, dg", apart(dg, wanted_dg, all), BACKWARD);
    check("gate, du", apart(du, wanted_du, all), BACKWARD);
    clear();
}

static void test_against_double(void **state) {
    (void)state;
    const size_t widths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 86, 172, 513};
    for (int round = 0; round < (quick() ? 40 : 300); round++) {
        activation = round % 2 ? REIN_SILU : REIN_GELU_TANH;
        check_shape(1 + below(round % 10 ? 20 : 200), widths[below(COUNT(widths))], SIZES[below(COUNT(SIZES))]);
    }
}

/* One number at a time, relative to itself: far out the gate is 0 or the identity, and never NaN. */
static void test_range(void **state) {
    (void)state;
    activation = REIN_SILU;
    for (double x = -120; x <= 120; x += quick() ? 1.0 / 16 : 1.0 / 256) {
        const float g = (float)x, one = 1;
        float h, dg = g, du = one;
        rein_gate_forward(&h, &g, &one, 1, 1, activation, best());
        rein_gate_backward(&dg, &du, &one, 1, 1, activation, best());
        const double wanted = gate(x, 1), s = 1 / (1 + exp(-x)), slope = s * (1 + x * (1 - s));
        check("gate of one number", fabs((double)h - wanted) / fmax(fabs(wanted), 1e-30), FORWARD);
        check("gate, du of one number", fabs((double)du - wanted) / fmax(fabs(wanted), 1e-30), FORWARD);
        /* The slope has a zero at −1.28, and 1 − s is rounded like 1. */
        check("gate, dg of one number", fabs((double)dg - slope) / fmax(fmax(fabs(slope), s), 1e-30), BACKWARD);
    }
    const float far[] = {-1e30f, 1e30f, -3e38f, 3e38f, -0.0f};
    for (size_t i = 0; i < COUNT(far); i++) {
        const float one = 1;
        float h, dg = far[i], du = 1;
        rein_gate_forward(&h, &far[i], &one, 1, 1, activation, best());
        rein_gate_backward(&dg, &du, &one, 1, 1, activation, best());
        assert_true(h == (far[i] > 0 ? far[i] : 0) && du == h);
        assert_true(dg == (far[i] > 0 ? 1 : far[i] == 0 ? 0.5f : 0));
    }
}

/* gelu far out is 0 or the identity too. */
static void test_gelu_range(void **state) {
    (void)state;
    activation = REIN_GELU_TANH;
    const float far[] = {-3e38f, -1e30f, -1e10f, -20, 20, 1e10f, 1e30f, 3e38f}, one = 1;
    for (size_t i = 0; i < COUNT(far); i++) {
        float h, dg = far[i], du = 1;
        rein_gate_forward(&h, &far[i], &one, 1, 1, activation, best());
        rein_gate_backward(&dg, &du, &one, 1, 1, activation, best());
        if (!(h == (far[i] > 0 ? far[i] : 0) && du == h && dg == (far[i] > 0 ? 1 : 0)))
            fail_msg("gelu of %g is %g, du %g, dg %g", (double)far[i], (double)h, (double)du, (double)dg);
    }
    for (double x = -12; x <= 12; x += 1.0 / 64) {
        const float g = (float)x;
        float h, dg = g, du = one;
        rein_gate_forward(&h, &g, &one, 1, 1, activation, best());
        rein_gate_backward(&dg, &du, &one, 1, 1, activation, best());
        point p = {x, 1, 1};
        check("gelu of one number", fabs((double)h - gate(x, 1)), 1e-6 * fmax(fabs(x), 1));
        check("gelu, dg of one number", fabs((double)dg - difference(&p.g, 0, loss, &p)), BACKWARD);
    }
}

static void test_one_answer(void **state) {
    (void)state;
    const size_t shapes[][2] = {{200, 33}, {200, 33}, {50, 172}, {50, 172}, {3, 513}, {3, 513}, {1, 1}};
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const size_t rows = shapes[i][0], n = shapes[i][1], all = rows * n;
        activation = i % 2 ? REIN_SILU : REIN_GELU_TANH;
        const float *g = numbers(all, 5), *u = numbers(all, 1), *dh = numbers(all, 1);
        float *plainest = floats(all), *plainest_dg = copy_of(g, all), *plainest_du = copy_of(u, all);
        rein_gate_forward(plainest, g, u, rows, n, activation, &machines[0]);
        rein_gate_backward(plainest_dg, plainest_du, dh, rows, n, activation, &machines[0]);
        for (size_t m = 1; m < n_machines; m++) {
            float *h = floats(all), *dg = copy_of(g, all), *du = copy_of(u, all);
            rein_gate_forward(h, g, u, rows, n, activation, &machines[m]);
            rein_gate_backward(dg, du, dh, rows, n, activation, &machines[m]);
            same_bits("gate", h, plainest, all);
            same_bits("dg", dg, plainest_dg, all);
            same_bits("du", du, plainest_du, all);
        }
        for (size_t r = 0; r < rows; r += 7) { /* a row alone, which begins elsewhere in the lanes */
            float *h = floats(n), *dg = copy_of(g + r * n, n), *du = copy_of(u + r * n, n);
            rein_gate_forward(h, g + r * n, u + r * n, 1, n, activation, best());
            rein_gate_backward(dg, du, dh + r * n, 1, n, activation, best());
            same_bits("gate of a row alone", h, plainest + r * n, n);
            same_bits("dg of a row alone", dg, plainest_dg + r * n, n);
            same_bits("du of a row alone", du, plainest_du + r * n, n);
        }
        clear();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_double), cmocka_unit_test(test_range),
                                       cmocka_unit_test(test_gelu_range), cmocka_unit_test(test_one_answer)};
    return cmocka_run_group_tests_name("mlp", tests, open_machines, close_machines);
}
