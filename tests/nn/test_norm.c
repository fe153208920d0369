/* test_norm.c - RMSNorm against y = x·(offset + w)/√(mean x² + ε) in double, and its gradient against central differences of that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nn/layers.h"
#include "nn/norm.h"

/* Measured: 6e-8 forward, 2e-7 for dx, 8e-7 for the dweight of up to 200 rows. */
#define FORWARD 3e-7
#define BACKWARD 1e-6
#define BACKWARD_WEIGHT 3e-6

typedef struct layer {
    size_t rows, n;
    rein_norm norm;
    float *x, *weight, *dy, *y, *s;
} layer;

static layer make(size_t rows, size_t n, float size) {
    layer l = {rows, n, {0}, numbers(rows * n, size), numbers(n, 2), numbers(rows * n, 1), NULL, NULL};
    l.norm = (rein_norm){l.weight, below(3) ? 0 : 1, below(2) ? 1e-5f : 1e-6f};
    l.y = floats(rows * n), l.s = floats(rows);
    return l;
}

static double scale_of(const double *x, size_t n, double epsilon) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    return 1 / sqrt(sum / (double)n + epsilon);
}

/* Σ dy·y of one row. */
typedef struct row {
    double *x, *weight;
    const float *dy;
    size_t n;
    double epsilon, offset;
} row;

static double row_loss(void *context, size_t place) {
    const row *r = context;
    (void)place;
    const double s = scale_of(r->x, r->n, r->epsilon);
    double sum = 0;
    for (size_t i = 0; i < r->n; i++) sum += (double)r->dy[i] * (r->x[i] * s * (r->offset + r->weight[i]));
    return sum;
}

static void check_forward(const layer *l) {
    const double *x = as_doubles(l->x, l->rows * l->n);
    double *y = doubles(l->rows * l->n), *s = doubles(l->rows);
    for (size_t r = 0; r < l->rows; r++) {
        s[r] = scale_of(x + r * l->n, l->n, (double)l->norm.epsilon);
        for (size_t i = 0; i < l->n; i++)
            y[r * l->n + i] = x[r * l->n + i] * s[r] * ((double)l->norm.offset + (double)l->weight[i]);
    }
    rein_norm_forward(l->y, l->s, l->x, &l->norm, l->rows, l->n, best());
    check("norm, y", apart(l->y, y, l->rows * l->n), FORWARD);
    check("norm, s", apart(l->s, s, l->rows), FORWARD);
    float *in_place = copy_of(l->x, l->rows * l->n);
    rein_norm_forward(in_place, NULL, in_place, &l->norm, l->rows, l->n, best());
    same_bits("in place", in_place, l->y, l->rows * l->n);
}

/* The gradient is what is left of dy·w·s when its part along x is taken away, which in narrow rows is almost all of it: the rounding is that
 * of the terms. */
static double size_of_terms(const layer *l, size_t r) {
    double sum = 0;
    for (size_t i = 0; i < l->n; i++)
        sum += pow((double)l->dy[r * l->n + i] * (double)(l->norm.offset + l->weight[i]) * (double)l->s[r], 2);
    return sqrt(sum / (double)l->n);
}

static void check_backward(const layer *l) {
    float *dx = zeros(l->rows * l->n), *dweight = zeros(l->n);
    double *x = as_doubles(l->x, l->rows * l->n), *weight = as_doubles(l->weight, l->n), *by_weight = doubles(l->n);
    rein_norm_backward(dx, dweight, l->dy, l->x, &l->norm, l->s, l->rows, l->n, best());
    for (size_t i = 0; i < l->n; i++) by_weight[i] = 0;
    for (size_t r = 0; r < l->rows; r++) {
        step = 1e-5 / (double)l->s[r]; /* a row bends over a distance of its own size */
        row one = {x + r * l->n, weight, l->dy + r * l->n, l->n, (double)l->norm.epsilon, (double)l->norm.offset};
        if (r < 20)
            check("norm, dx", gradient_error(dx + r * l->n, one.x, l->n, 30, row_loss, &one, size_of_terms(l, r)), BACKWARD);
        step = 1e-5;
        for (size_t i = 0; i < l->n; i++) by_weight[i] += difference(weight, i, row_loss, &one);
    }
    check("norm, dweight", apart(dweight, by_weight, l->n), BACKWARD_WEIGHT);
}

static const size_t WIDTHS[] = {1, 2, 3, 5, 7, 8, 9, 10, 15, 16, 17, 20, 31, 33, 48, 64, 65, 80, 127, 130, 513};

static void test_against_double(void **state) {
    (void)state;
    for (int round = 0; round < (quick() ? 40 : 300); round++) {
        const layer l = make(1 + below(round % 10 ? 20 : 200), WIDTHS[below(round % 10 ? COUNT(WIDTHS) : 16)], below(4) ? 1 : 30);
        check_forward(&l);
        check_backward(&l);
        clear();
    }
}

/* Rows of zeros: s is 1/√ε, nothing is divided by 0. Numbers whose squares are tiny or huge too. */
static void test_extremes(void **state) {
    (void)state;
    const float sizes[] = {0, 1e-18f, 1e-8f, 1e8f, 1e17f};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        layer l = make(3, 37, sizes[i]);
        check_forward(&l);
        float *dx = zeros(3 * 37), *dweight = zeros(37);
        rein_norm_backward(dx, dweight, l.dy, l.x, &l.norm, l.s, 3, 37, best());
        for (size_t k = 0; k < 3 * 37; k++) assert_true(isfinite(dx[k]) && isfinite(dweight[k % 37]));
        clear();
    }
}

/* dx and dweight are added to what is there; without dweight dx is the same. */
static void test_adds(void **state) {
    (void)state;
    const layer l = make(19, 45, 1);
    float *before = numbers(19 * 45, 1), *dx = copy_of(before, 19 * 45), *alone = copy_of(before, 19 * 45), *none = zeros(19 * 45);
    float *before_weight = numbers(45, 1), *dweight = copy_of(before_weight, 45), *none_weight = zeros(45);
    double *wanted = doubles(19 * 45), *wanted_weight = doubles(45);
    rein_norm_forward(l.y, l.s, l.x, &l.norm, 19, 45, best());
    rein_norm_backward(dx, dweight, l.dy, l.x, &l.norm, l.s, 19, 45, best());
    rein_norm_backward(alone, NULL, l.dy, l.x, &l.norm, l.s, 19, 45, best());
    rein_norm_backward(none, none_weight, l.dy, l.x, &l.norm, l.s, 19, 45, best());
    same_bits("dx without dweight", alone, dx, 19 * 45);
    for (size_t i = 0; i < 19 * 45; i++) wanted[i] = (double)before[i] + (double)none[i];
    for (size_t i = 0; i < 45; i++) wanted_weight[i] = (double)before_weight[i] + (double)none_weight[i];
    check("norm, dx added", apart(dx, wanted, 19 * 45), FORWARD);
    check("norm, dweight added", apart(dweight, wanted_weight, 45), FORWARD);
    clear();
}

/* y += factor·x, with any number of threads. */
static void test_add_rows(void **state) {
    (void)state;
    const float *x = numbers(200 * 37, 1), *y = numbers(200 * 37, 1);
    float *one = copy_of(y, 200 * 37);
    double *wanted = doubles(200 * 37);
    for (size_t i = 0; i < 200 * 37; i++) wanted[i] = (double)y[i] + 0.25 * (double)x[i];
    rein_add_rows(one, x, 200, 37, 0.25f, &machines[0]);
    check("sum of rows", apart(one, wanted, 200 * 37), FORWARD);
    for (size_t m = 1; m < n_machines; m++) {
        float *other = copy_of(y, 200 * 37);
        rein_add_rows(other, x, 200, 37, 0.25f, &machines[m]);
        same_bits("sum of rows", other, one, 200 * 37);
    }
    clear();
}

typedef struct results {
    float *y, *s, *dx, *dweight;
} results;

static results run(const layer *l, size_t first, size_t rows, const rein_nn_context *machine) {
    const results r = {floats(rows * l->n), floats(rows), zeros(rows * l->n), zeros(l->n)};
    const size_t at = first * l->n;
    rein_norm_forward(r.y, r.s, l->x + at, &l->norm, rows, l->n, machine);
    rein_norm_backward(r.dx, r.dweight, l->dy + at, l->x + at, &l->norm, r.s, rows, l->n, machine);
    return r;
}

static void test_one_answer(void **state) {
    (void)state;
    const size_t shapes[][2] = {{200, 130}, {61, 513}, {200, 7}, {1, 80}};
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const size_t rows = shapes[i][0], n = shapes[i][1];
        const layer l = make(rows, n, 1);
        const results plainest = run(&l, 0, rows, &machines[0]);
        for (size_t m = 1; m < n_machines; m++) {
            const results r = run(&l, 0, rows, &machines[m]);
            same_bits("y", r.y, plainest.y, rows * n);
            same_bits("s", r.s, plainest.s, rows);
            same_bits("dx", r.dx, plainest.dx, rows * n);
            same_bits("dweight", r.dweight, plainest.dweight, n);
        }
        for (size_t k = 0; k < rows; k += 13) {
            const results r = run(&l, k, 1, best());
            same_bits("y of a row alone", r.y, plainest.y + k * n, n);
            same_bits("dx of a row alone", r.dx, plainest.dx + k * n, n);
        }
        /* Rows in two calls add up to the same gradient. */
        float *dx = zeros(rows * n), *dweight = zeros(n);
        const size_t half = rows / 2 * n;
        rein_norm_backward(dx, dweight, l.dy, l.x, &l.norm, plainest.s, rows / 2, n, best());
        rein_norm_backward(dx + half, dweight, l.dy + half, l.x + half, &l.norm, plainest.s + rows / 2, rows - rows / 2, n, best());
        same_bits("dx in two calls", dx, plainest.dx, rows * n);
        same_bits("dweight in two calls", dweight, plainest.dweight, n);
        clear();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_double), cmocka_unit_test(test_extremes),
                                       cmocka_unit_test(test_adds), cmocka_unit_test(test_add_rows),
                                       cmocka_unit_test(test_one_answer)};
    return cmocka_run_group_tests_name("norm", tests, open_machines, close_machines);
}
