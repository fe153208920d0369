/* layers.h - shared by the tests of the layers: numbers, memory, machines to run on, and the error of a result.
 *
 * A layer is compared with a plain reference in double, written in its test, on the same f32 inputs; its gradient is compared with central
 * differences of that reference. So only the rounding of f32 is measured, and each program prints the largest error at its end. */
#ifndef REIN_TESTS_NN_LAYERS_H
#define REIN_TESTS_NN_LAYERS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/context.h"
#include "support/check.h"
#include "support/random.h"

/* ---- numbers: splitmix64 */
static inline float number(void) { return (float)((double)(random_bits() >> 11) * 0x1p-52 - 1); } /* ±1 */

/* ---- memory that is freed when the test ends: each piece alone, so that a sanitizer sees its bounds */
static void *pieces_of_test[4096];
static size_t n_pieces;
static inline void *room(size_t n, size_t size) {
    assert_true(n_pieces < COUNT(pieces_of_test));
    void *exact = malloc(n * size + (n == 0));
    assert_non_null(exact);
    memset(exact, 0xff, n * size); /* NaN: a number that is not written shows */
    return pieces_of_test[n_pieces++] = exact;
}
static inline void clear(void) {
    while (n_pieces) free(pieces_of_test[--n_pieces]);
}
static inline float *floats(size_t n) { return room(n, sizeof(float)); }
static inline double *doubles(size_t n) { return room(n, sizeof(double)); }
static inline float *zeros(size_t n) {
    float *x = floats(n);
    for (size_t i = 0; i < n; i++) x[i] = 0;
    return x;
}
static inline float *numbers(size_t n, float size) {
    float *x = floats(n);
    for (size_t i = 0; i < n; i++) x[i] = size * number();
    return x;
}
static inline float *copy_of(const float *x, size_t n) {
    float *y = floats(n);
    if (n) memcpy(y, x, n * sizeof *y);
    return y;
}
static inline double *as_doubles(const float *x, size_t n) {
    double *y = doubles(n);
    for (size_t i = 0; i < n; i++) y[i] = (double)x[i];
    return y;
}

/* ---- machines: every available instruction set, with 1, 2 and 3 threads; the first is ref with one */
static rein_nn_context machines[3 * (REIN_ISA_COUNT - 1)];
static size_t n_machines;

static inline int open_machines(void **state) {
    (void)state;
    for (int isa = REIN_ISA_REF; isa < REIN_ISA_COUNT; isa++)
        for (int threads = 1; threads <= 3 && rein_isa_available((rein_isa)isa); threads++) {
            rein_nn_context *run = &machines[n_machines++];
            run->exec = (rein_exec){threads, (rein_isa)isa};
            run->kernels = rein_kernels_of((rein_isa)isa);
            run->gemm_scratch = aligned_alloc(64, rein_gemm_scratch(&run->exec));
            if (!run->gemm_scratch) return 1;
        }
    return 0;
}

/* The fastest, with two threads. */
static inline const rein_nn_context *best(void) { return &machines[n_machines - 2]; }

/* ---- what was measured */
typedef struct measured {
    const char *what;
    double worst;
} measured;
static measured measures[32];

/* Fails when the error is above the tolerance or NaN. */
static inline void check(const char *what, double error, double tolerance) {
    size_t i = 0;
    while (i + 1 < COUNT(measures) && measures[i].what && strcmp(measures[i].what, what) != 0) i++;
    measures[i].what = what;
    if (!(error <= measures[i].worst)) measures[i].worst = error;
    if (!(error <= tolerance)) fail_msg("%s: the error is %g, above %g", what, error, tolerance);
}

static inline int close_machines(void **state) {
    (void)state;
    while (n_machines) free(machines[--n_machines].gemm_scratch);
    for (size_t i = 0; i < COUNT(measures) && measures[i].what; i++)
        print_message("worst error of %s: %.2g\n", measures[i].what, measures[i].worst);
    return 0;
}

/* ‖got − wanted‖ / ‖wanted‖, or, where that is less than `least`, / least. */
static inline double apart_at_least(const float *got, const double *wanted, size_t n, double least) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)got[i] - wanted[i]) * ((double)got[i] - wanted[i]);
        norm += wanted[i] * wanted[i];
    }
    norm = sqrt(norm);
    return error == 0 ? 0 : sqrt(error) / (norm > least ? norm : least);
}
static inline double apart(const float *got, const double *wanted, size_t n) { return apart_at_least(got, wanted, n, 0); }

static inline void same_bits(const char *what, const float *got, const float *wanted, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &wanted[i], sizeof *got) != 0)
            fail_msg("%s: [%zu] of %zu is %a, not %a", what, i, n, (double)got[i], (double)wanted[i]);
}

/* ---- central differences, with a step that suits numbers of about 1 unless the test knows better */
typedef double loss_of(void *context, size_t place); /* place: of the number that moves; what it cannot change may be left out */
static double step = 1e-5;

static inline double difference(double *x, size_t place, loss_of *loss, void *context) {
    const double before = x[place];
    x[place] = before + step;
    const double above = loss(context, place);
    x[place] = before - step;
    const double under = loss(context, place);
    x[place] = before;
    return (above - under) / (2 * step);
}

/* The gradient [n] of `loss` by x [n], looked at in `tries` places (all of them if there are no more): root of the mean square of the error,
 * by that of the whole gradient, or `least` where it is less. */
static inline double gradient_error(const float *gradient, double *x, size_t n, size_t tries, loss_of *loss, void *context,
                                    double least) {
    double error = 0, norm = 0;
    const size_t some = n < tries ? n : tries;
    for (size_t i = 0; i < n; i++) norm += (double)gradient[i] * (double)gradient[i];
    norm = sqrt(norm / (double)n);
    for (size_t t = 0; t < some; t++) {
        const size_t i = some == n ? t : below(n);
        const double off = (double)gradient[i] - difference(x, i, loss, context);
        error += off * off;
    }
    return error == 0 ? 0 : sqrt(error / (double)some) / (norm > least ? norm : least);
}

/* ---- 16-bit numbers, the slow and plain way */
static inline double plain(const void *data, size_t i, rein_storage storage) {
    if (storage == REIN_STORED_F32) return (double)((const float *)data)[i];
    const unsigned h = ((const uint16_t *)data)[i];
    const int f16 = storage == REIN_STORED_F16, places = f16 ? 10 : 7, bias = f16 ? 15 : 127;
    const int exponent = (int)(h >> places) & (f16 ? 31 : 255), mantissa = (int)(h & ((1u << places) - 1));
    const double size = exponent ? ldexp(mantissa + (1 << places), exponent - bias - places) : ldexp(mantissa, 1 - bias - places);
    return h >> 15 ? -size : size;
}

/* n numbers of about ±size in a storage; size is a power of two. */
static inline void *stored_numbers(size_t n, rein_storage storage, float size) {
    if (storage == REIN_STORED_F32) return numbers(n, size);
    const unsigned top = (unsigned)(ilogb((double)size) + (storage == REIN_STORED_F16 ? 15 : 127)),
                   places = storage == REIN_STORED_F16 ? 10 : 7;
    uint16_t *h = room(n, sizeof *h);
    for (size_t i = 0; i < n; i++)
        h[i] = (uint16_t)(below(2) << 15 | ((top - 1 - below(3)) << places) | below((size_t)1 << places));
    return h;
}

#endif
