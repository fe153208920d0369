/* test_rope.c - the rotary embedding: angles as the models were trained with, rotations against double, and their transpose as the
 * gradient. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nn/layers.h"
#include "nn/rope.h"

#define ROUNDING 2e-7 /* measured: 5e-8, forward and backward */

static const size_t HALVES[] = {1, 2, 4, 5, 7, 8, 9, 10, 16, 20, 24, 33, 40, 64, 65};

/* Frequencies θ^(−i/half) as a model has them, and the angles of positions [0, n). */
static rein_angles make_angles(size_t half, size_t n, float **frequencies) {
    rein_angles a = {floats(n * half), floats(n * half), half, 2 * half, 1};
    *frequencies = floats(half);
    for (size_t i = 0; i < half; i++) (*frequencies)[i] = (float)pow(10000, -(double)i / (double)half);
    rein_angles_fill(&a, *frequencies, 0, n);
    return a;
}

/* The angle is a product in f32; its cosine is rounded once. */
static void test_angles(void **state) {
    (void)state;
    for (size_t h = 0; h < COUNT(HALVES); h++) {
        const size_t half = HALVES[h], n = 300;
        float *frequencies;
        const rein_angles all = make_angles(half, n, &frequencies);
        for (size_t p = 0; p < n; p++)
            for (size_t i = 0; i < half; i++) {
                const float angle = (float)p * frequencies[i];
                assert_true(all.cosine[p * half + i] == (float)cos((double)angle));
                assert_true(all.sine[p * half + i] == (float)sin((double)angle));
            }
        const rein_angles parts = {floats(n * half), floats(n * half), half, 2 * half, 1};
        rein_angles_fill(&parts, frequencies, 100, n);
        assert_true(isnan(parts.cosine[100 * half - 1]) && isnan(parts.sine[100 * half - 1])); /* nothing before */
        rein_angles_fill(&parts, frequencies, 0, 100);
        same_bits("cosines in two calls", parts.cosine, all.cosine, n * half);
        same_bits("sines in two calls", parts.sine, all.sine, n * half);
        const rein_angles scaled = {floats(n * half), floats(n * half), half, 2 * half, 1.25f};
        rein_angles_fill(&scaled, frequencies, 0, n);
        for (size_t i = 0; i < n * half; i++)
            assert_true(scaled.cosine[i] == all.cosine[i] * 1.25f && scaled.sine[i] == all.sine[i] * 1.25f);
        clear();
    }
}

typedef struct layer {
    size_t rows, heads, half, n; /* n: of the numbers */
    size_t dim;                  /* of a head; what follows its first 2·half elements is not rotated */
    rein_angles angles;
    int32_t *positions;
    float *x, *dy;
} layer;

static layer make(size_t rows, size_t heads, size_t half) {
    layer l = {.rows = rows, .heads = heads, .half = half, .dim = 2 * half + (below(2) ? 0 : below(9))};
    l.n = rows * heads * l.dim;
    float *frequencies;
    const size_t positions = 1 + below(2000);
    l.angles = make_angles(half, positions, &frequencies);
    l.angles.dim = l.dim;
    l.positions = room(rows, sizeof *l.positions);
    for (size_t r = 0; r < rows; r++) l.positions[r] = (int32_t)below(positions);
    l.x = numbers(l.n, 1), l.dy = numbers(l.n, 1);
    return l;
}

/* Pairs (x[i], x[half + i]) are turned by the angle, counter-clockwise. */
static void reference(double *y, const double *x, const layer *l) {
    memcpy(y, x, l->n * sizeof *y);
    for (size_t r = 0; r < l->rows; r++)
        for (size_t h = 0; h < l->heads; h++)
            for (size_t i = 0; i < l->half; i++) {
                const size_t a = (r * l->heads + h) * l->dim + i, b = a + l->half, at = (size_t)l->positions[r] * l->half + i;
                const double c = (double)l->angles.cosine[at], s = (double)l->angles.sine[at];
                y[a] = x[a] * c - x[b] * s;
                y[b] = x[b] * c + x[a] * s;
            }
}

typedef struct whole {
    const layer *l;
    double *x, *y;
} whole;

static double loss(void *context, size_t place) {
    const whole *w = context;
    (void)place;
    double sum = 0;
    reference(w->y, w->x, w->l);
    for (size_t i = 0; i < w->l->n; i++) sum += (double)w->l->dy[i] * w->y[i];
    return sum;
}

static void rotate(float *x, const layer *l, float direction, const rein_nn_context *run) {
    rein_rotate(x, &l->angles, l->positions, l->rows, l->heads, direction, run);
}

static void test_against_double(void **state) {
    (void)state;
    step = 1e-2; /* the loss is linear: no error but that of rounding */
    for (int round = 0; round < (quick() ? 20 : 150); round++) {
        const layer l = make(1 + below(round % 10 ? 20 : 200), 1 + below(8), HALVES[below(COUNT(HALVES))]);
        whole w = {&l, as_doubles(l.x, l.n), doubles(l.n)};
        float *y = copy_of(l.x, l.n), *dx = copy_of(l.dy, l.n);
        rotate(y, &l, 1, best());
        reference(w.y, w.x, &l);
        check("rotation", apart(y, w.y, l.n), ROUNDING);
        rotate(dx, &l, -1, best());
        check("rotation, dx", gradient_error(dx, w.x, l.n, 20, loss, &w, 0), ROUNDING);
        rotate(y, &l, -1, best());
        check("rotation there and back", apart(y, w.x, l.n), 2 * ROUNDING);
        clear();
    }
}

/* q·k after the rotation depends on the distance of their positions alone: to the rounding of the angles. */
static void test_relative(void **state) {
    (void)state;
    const size_t half = 24;
    float *frequencies;
    const rein_angles angles = make_angles(half, 300, &frequencies);
    const float *q = numbers(2 * half, 1), *k = numbers(2 * half, 1);
    double near = 0, far = 0;
    for (int32_t shift = 0; shift < 200; shift += 7) {
        float *a = copy_of(q, 2 * half), *b = copy_of(k, 2 * half);
        const int32_t at_a = 30 + shift, at_b = 11 + shift;
        double product = 0;
        rein_rotate(a, &angles, &at_a, 1, 1, 1, best());
        rein_rotate(b, &angles, &at_b, 1, 1, 1, best());
        for (size_t i = 0; i < 2 * half; i++) product += (double)a[i] * (double)b[i];
        if (shift == 0) near = far = product;
        near = fmin(near, product), far = fmax(far, product);
    }
    check("products at equal distance", far - near, 1e-4);
    clear();
}

static void test_one_answer(void **state) {
    (void)state;
    const size_t shapes[][3] = {{200, 3, 33}, {150, 8, 64}, {7, 1, 1}};
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const layer l = make(shapes[i][0], shapes[i][1], shapes[i][2]);
        const size_t width = l.n / l.rows;
        for (int direction = -1; direction <= 1; direction += 2) {
            float *plainest = copy_of(l.x, l.n);
            rotate(plainest, &l, (float)direction, &machines[0]);
            for (size_t m = 1; m < n_machines; m++) {
                float *y = copy_of(l.x, l.n);
                rotate(y, &l, (float)direction, &machines[m]);
                same_bits("rotation", y, plainest, l.n);
            }
            for (size_t r = 0; r < l.rows; r += 11) {
                float *y = copy_of(l.x + r * width, width);
                rein_rotate(y, &l.angles, l.positions + r, 1, l.heads, (float)direction, best());
                same_bits("rotation of a row alone", y, plainest + r * width, width);
            }
        }
        clear();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_angles), cmocka_unit_test(test_against_double),
                                       cmocka_unit_test(test_relative), cmocka_unit_test(test_one_answer)};
    return cmocka_run_group_tests_name("rope", tests, open_machines, close_machines);
}
