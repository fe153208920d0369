/* test_explog.c - exp and log against libm of twice the precision: every f32 there is, and f64 at random.
 *
 * All 2^32 floats go through the avx2 kernels (the plain ones where there is no avx2), every 61st through both, which must agree bit for
 * bit. REIN_TEST_FAST: every 4099th. The reference is double libm; where its answer is known (saturated, or 1 + x), it is not called. */
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

#define REAL_F64
#define REIN_SUFFIX test_f64
#include "base/base.h"
#include "base/pool.h"
#include "kernel/explog.h"
#include "kernel/kernels.h"
#include "near.h"

#define BOUND 1.5 /* ulp */

typedef struct function {
    const char *name;
    rein_map_f32_fn *plain, *fast; /* fast = plain without avx2 */
    rein_map_f64_fn *plain_f64, *fast_f64;
    double (*reference)(double x);
    long double (*reference_f64)(long double x);
} function;

static int is_quick(void) { return getenv("REIN_TEST_FAST") != NULL; }

/* ---- references; outside of (−104, 89) e^x is 0 or inf in f32, and next to 0 it is 1 + x to all digits that matter */
static double reference_exp(double x) { return x > 89 ? (double)INFINITY : x < -104 ? 0 : exp(x); }
static double reference_log(double x) { return x < 0 ? (double)NAN : log(x); }

static void references(double *reference, const function *f, const float *x, size_t n) {
    float reach = 0;
    for (size_t i = 0; i < n; i++) /* a NaN reaches everywhere, also past what follows it */
        if (!(fabsf(x[i]) <= reach)) reach = isnan(x[i]) ? INFINITY : fabsf(x[i]);
    if (f->reference == reference_exp && reach < 0x1p-25f)
        for (size_t i = 0; i < n; i++) reference[i] = 1 + (double)x[i];
    else
        for (size_t i = 0; i < n; i++) reference[i] = f->reference((double)x[i]);
}

/* The fastest functions of this machine, which may be the plain ones. */
static const rein_kernels *fast_kernels(void) {
    if (rein_isa_best() == REIN_ISA_REF) print_message("no faster instruction set here: only the plain kernels are tested\n");
    return rein_kernels_of(rein_isa_best());
}

static function exp_function(void) {
    const rein_kernels *plain = rein_kernels_of(REIN_ISA_REF), *fast = fast_kernels();
    return (function){"exp", plain->exp_f32, fast->exp_f32, plain->exp_f64, fast->exp_f64, reference_exp, expl};
}
static function log_function(void) {
    const rein_kernels *plain = rein_kernels_of(REIN_ISA_REF), *fast = fast_kernels();
    return (function){"log", plain->log_f32, fast->log_f32, plain->log_f64, fast->log_f64, reference_log, logl};
}

/* ---- distance in units of the last place of the float (double) at the reference; overflow counts as 2^128 (2^1024) */
static double ulps_f32(float y, double reference) {
    if (isnan(reference) || isnan(y)) return isnan(reference) && isnan(y) ? 0 : (double)INFINITY;
    if (isinf(reference) || isinf(y)) {
        if ((double)y == reference) return 0;
        if (isinf(y) && y > 0 && reference > FLT_MAX / 2 && !isinf(reference)) return (0x1p128 - reference) / 0x1p104;
        return (double)INFINITY;
    }
    const float near = (float)fabs(reference);
    uint32_t bits;
    memcpy(&bits, &near, sizeof bits);
    const uint64_t exponent = bits >> 23 ? bits >> 23 : 1, ulp_bits = (exponent + 1023 - 127 - 23) << 52;
    double ulp;
    memcpy(&ulp, &ulp_bits, sizeof ulp);
    return fabs((double)y - reference) / ulp;
}

static double ulps_f64(double y, long double reference) {
    if (isnan(reference) || isnan(y)) return isnan(reference) && isnan(y) ? 0 : (double)INFINITY;
    if (fabsl(reference) >= 0x1p1024L || isinf(y)) {
        if (isinf(y) && !isinf(reference)) return (double)((0x1p1024L - reference) / 0x1p971L);
        return isinf(y) && (y > 0) == (reference > 0) ? 0 : (double)INFINITY;
    }
    int exponent;
    (void)frexpl(reference, &exponent);
    if (exponent < -1021) exponent = -1021;
    return (double)(fabsl((long double)y - reference) / ldexpl(1, exponent - 53));
}

/* ---- f32, all of them */
typedef struct sweep {
    double worst;
    float worst_at;
    uint64_t inputs, differing;
} sweep;

static void merge(sweep *into, const sweep *from) {
    if (from->worst > into->worst) *into = (sweep){from->worst, from->worst_at, into->inputs, into->differing};
    into->inputs += from->inputs;
    into->differing += from->differing;
}

enum { BLOCK = 4096 };

/* What needs no libm: the error of a whole block where the answer is a constant (exp beyond its range, log below 0). −1: it is not. */
static double known_answer(const function *f, const float *x, const float *y, size_t n) {
    const double ends[] = {f->reference((double)x[0]), f->reference((double)x[n - 1])};
    const int is_nan = isnan(ends[0]) && isnan(ends[1]);
    if (!is_nan && (ends[0] != ends[1] || (ends[0] != 0 && !isinf(ends[0])))) return -1;
    const float expected = (float)ends[0];
    int wrong = 0;
    for (size_t i = 0; i < n; i++) wrong |= is_nan ? y[i] == y[i] : y[i] != expected;
    return wrong ? (double)INFINITY : 0;
}

/* The largest error of normal, finite numbers, without a branch; infinite if there is anything else among them. */
static double finite_ulps(const float *y, const double *reference, size_t n) {
    double worst = 0, least_seen = (double)INFINITY, most_seen = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &reference[i], sizeof bits);
        bits = ((uint64_t)(2046 + 23) << 52) - (bits & (uint64_t)0x7ff << 52); /* 1/ulp */
        double scale;
        memcpy(&scale, &bits, sizeof scale);
        const double error = fabs((double)y[i] - reference[i]) * scale, size = fabs(reference[i]);
        worst = error > worst ? error : worst;
        least_seen = size < least_seen ? size : least_seen;
        most_seen = size > most_seen ? size : most_seen;
        sum += error; /* keeps a NaN */
    }
    return sum < (double)INFINITY && least_seen >= FLT_MIN && most_seen < FLT_MAX / 2 ? worst : (double)INFINITY;
}

/* Floats number first, first + stride, …: BLOCK of them, or those that are left. Where the error is largest is looked up only if it is
 * above `worst`. */
static sweep sweep_block(const function *f, uint64_t first, uint64_t stride, int compare, double worst) {
    const uint64_t left = (((uint64_t)1 << 32) - first + stride - 1) / stride;
    const size_t n = left < BLOCK ? (size_t)left : BLOCK;
    float x[BLOCK] = {0}, y[BLOCK], z[BLOCK];
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)(first + i * stride);
        memcpy(&x[i], &bits, sizeof bits);
    }
    f->fast(y, x, n);
    if (compare) f->plain(z, x, n);
    sweep s = {known_answer(f, x, y, n), x[0], n, compare && memcmp(y, z, n * sizeof *y) != 0};
    if (s.worst >= 0) return s;
    double reference[BLOCK];
    references(reference, f, x, n);
    const double error = finite_ulps(y, reference, n);
    if (error <= worst) return s.worst = error, s;
    for (size_t i = 0; i < n; i++) { /* worth a closer look */
        const double here = ulps_f32(y[i], reference[i]);
        if (here > s.worst) s.worst = here, s.worst_at = x[i];
    }
    return s;
}

typedef struct whole_sweep {
    const function *f;
    uint64_t stride;
    int compare;
    sweep seen[REIN_MAX_THREADS];
} whole_sweep;

static void sweep_piece(void *context, size_t piece, int thread) {
    whole_sweep *w = context;
    sweep *own = &w->seen[thread];
    const sweep s = sweep_block(w->f, piece * BLOCK * w->stride, w->stride, w->compare, own->worst);
    merge(own, &s);
}

static sweep sweep_all(const function *f, uint64_t stride, int compare) {
    const uint64_t span = BLOCK * stride, blocks = (((uint64_t)1 << 32) + span - 1) / span;
    whole_sweep w = {.f = f, .stride = stride, .compare = compare};
    sweep total = {0, 0, 0, 0};
    rein_parallel(rein_cores(), blocks, sweep_piece, &w);
    for (int t = 0; t < REIN_MAX_THREADS; t++) merge(&total, &w.seen[t]);
    print_message("%s f32%s: %llu inputs, worst error %.4f ulp at %a\n", f->name, compare ? " (ref = avx2)" : "",
                  (unsigned long long)total.inputs, total.worst, (double)total.worst_at);
    return total;
}

static void check_f32(const function *f) {
    const sweep few = sweep_all(f, is_quick() ? 4099 : 61, 1);
    assert_int_equal(few.differing, 0);
    assert_true(few.worst <= BOUND);
    if (is_quick()) return;
    const sweep all_of_them = sweep_all(f, 1, 0);
    assert_true(all_of_them.inputs == (uint64_t)1 << 32);
    assert_true(all_of_them.worst <= BOUND);
}

static void test_exp_f32(void **state) {
    (void)state;
    const function f = exp_function();
    check_f32(&f);
}

static void test_log_f32(void **state) {
    (void)state;
    const function f = log_function();
    check_f32(&f);
}

/* ---- f64 at random */
static uint64_t seed = 0x9e3779b97f4a7c15u;
static uint64_t next_bits(void) { /* xorshift64* */
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return seed * 0x2545f4914f6cdd1du;
}
static double uniform(double low, double high) { return low + (high - low) * ((double)(next_bits() >> 11) * 0x1p-53); }

static void check_f64(const function *f, double (*draw)(void)) {
    const size_t n = is_quick() ? 20000 : 2000000;
    double *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y), *z = malloc(n * sizeof *z), worst = 0, worst_at = 0;
    assert_true(x && y && z);
    for (size_t i = 0; i < n; i++) x[i] = draw();
    f->fast_f64(y, x, n);
    f->plain_f64(z, x, n);
    assert_memory_equal(y, z, n * sizeof *y);
    for (size_t i = 0; i < n; i++) {
        const double error = ulps_f64(y[i], f->reference_f64((long double)x[i]));
        if (error > worst) worst = error, worst_at = x[i];
    }
    print_message("%s f64: %zu inputs, worst error %.4f ulp at %a\n", f->name, n, worst, worst_at);
    free(x);
    free(y);
    free(z);
    assert_true(worst <= BOUND);
}

static double draw_exponent(void) { /* the whole range, around 0, and tiny ones */
    switch (next_bits() % 4) {
    case 0: return uniform(-1, 1);
    case 1: return ldexp(uniform(-1, 1), -(int)(next_bits() % 1100));
    case 2: return uniform(-40, 40);
    default: return uniform(-760, 720);
    }
}

static double draw_positive(void) { /* any positive double, subnormal ones too, and around 1 */
    if (next_bits() % 4 == 0) return uniform(0.5, 2);
    if (next_bits() % 4 == 0) return 1 + ldexp(uniform(-1, 1), -(int)(next_bits() % 53));
    const uint64_t bits = next_bits() % ((uint64_t)0x7ff << 52);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void test_exp_f64(void **state) {
    (void)state;
    const function f = exp_function();
    check_f64(&f, draw_exponent);
}

static void test_log_f64(void **state) {
    (void)state;
    const function f = log_function();
    check_f64(&f, draw_positive);
}

/* ---- the corners, by name */
static void check_corner(const function *f, double x, double expected) {
    rein_map_f32_fn *const narrow[] = {f->plain, f->fast};
    rein_map_f64_fn *const wide[] = {f->plain_f64, f->fast_f64};
    for (int k = 0; k < 2; k++) {
        const float xf = (float)x;
        float yf;
        double y;
        narrow[k](&yf, &xf, 1);
        wide[k](&y, &x, 1);
        if (isnan(expected)) assert_true(isnan(yf) && isnan(y));
        else if (yf != (float)expected || y != expected || !signbit(y) != !signbit(expected) || !signbit(yf) != !signbit(expected))
            fail_msg("%s(%g) of %s is %g and %g, not %g", f->name, x, k ? "avx2" : "ref", (double)yf, y, expected);
    }
}

static void test_corners(void **state) {
    (void)state;
    const function e = exp_function(), l = log_function();
    const double inf = (double)INFINITY, nan = (double)NAN;
    const double exps[][2] = {{nan, nan}, {-nan, nan}, {inf, inf}, {-inf, 0},    {0, 1},
                              {-0.0, 1},  {1e30, inf}, {-1e30, 0}, {0x1p-140, 1}};
    const double logs[][2] = {{nan, nan}, {inf, inf}, {-inf, nan}, {0, -inf}, {-0.0, -inf}, {-1, nan}, {1, 0}, {-0x1p-140, nan}};
    for (size_t i = 0; i < sizeof exps / sizeof *exps; i++) check_corner(&e, exps[i][0], exps[i][1]);
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++) check_corner(&l, logs[i][0], logs[i][1]);
}

static void test_subnormal(void **state) {
    (void)state;
    const function e = exp_function(), l = log_function();
    const float low_f32 = 0x1p-149f, deep_f32 = -103.9f;
    const double low_f64 = 0x1p-1074, deep_f64 = -745.1;
    float yf;
    double y;
    l.fast(&yf, &low_f32, 1);
    assert_true(yf == (float)(-149 * 0.69314718055994531));
    l.fast_f64(&y, &low_f64, 1);
    assert_true(fabs(y - -1074 * 0.69314718055994531) < 1e-12);
    e.fast(&yf, &deep_f32, 1);
    assert_true(yf == 0x1p-149f);
    e.fast_f64(&y, &deep_f64, 1);
    assert_true(y == 0x1p-1074);
}

/* Any length; nothing is written past it, and an array may be its own result. */
static void test_lengths(void **state) {
    (void)state;
    const function f = exp_function();
    float x[40], y[41];
    double wide[20];
    for (size_t n = 0; n <= 40; n++) {
        for (size_t i = 0; i < 40; i++) x[i] = (float)i / 8;
        for (size_t i = 0; i <= 40; i++) y[i] = -7;
        f.fast(y, x, n);
        for (size_t i = 0; i <= 40; i++) assert_true(i < n ? ulps_f32(y[i], exp((double)x[i])) <= BOUND : y[i] == -7);
    }
    for (size_t i = 0; i < 20; i++) wide[i] = -(double)i;
    f.fast_f64(wide, wide, 19);
    for (size_t i = 0; i < 19; i++) assert_true(ulps_f64(wide[i], expl(-(long double)i)) <= BOUND);
    assert_true(wide[19] == -19);
}

/* ---- e^x − 1 − x: the part of exp that k3 lives on */
static long double reference_excess(long double x) {
    if (fabsl(x) >= 1) return expm1l(x) - x;
    long double term = x * x / 2, sum = 0;
    for (int k = 3; k < 40; k++) sum += term, term *= x / k;
    return sum;
}

static V draw_lanes(double low, double high) { /* log-uniform sizes, both signs */
    V x;
    for (int l = 0; l < LANES; l++) x[l] = (next_bits() & 1 ? 1 : -1) * exp(uniform(log(low), log(high)));
    return x;
}

static void test_excess(void **state) {
    (void)state;
    double worst = 0, worst_at = 0;
    for (int i = 0; i < (is_quick() ? 5000 : 500000); i++) {
        const V x = draw_lanes(1e-12, 30);
        V excess;
        const V e = exp_excess(x, &excess), plain = exp_lanes(x);
        for (int l = 0; l < LANES; l++) {
            const long double expected = reference_excess((long double)x[l]);
            const double error = (double)(fabsl((long double)excess[l] - expected) / expected);
            if (error > worst) worst = error, worst_at = x[l];
            assert_true(excess[l] >= 0 && e[l] == plain[l]);
        }
    }
    print_message("e^x - 1 - x f64: worst relative error %.3g at %a\n", worst, worst_at);
    assert_true(worst <= 1e-14);
    V zero;
    (void)exp_excess(splat(0), &zero);
    assert_true(zero[0] == 0);
    (void)exp_excess(splat((real)NAN), &zero);
    assert_true(isnan(zero[0]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp_f32), cmocka_unit_test(test_log_f32), cmocka_unit_test(test_exp_f64),
        cmocka_unit_test(test_log_f64), cmocka_unit_test(test_corners), cmocka_unit_test(test_subnormal),
        cmocka_unit_test(test_lengths), cmocka_unit_test(test_excess),  cmocka_unit_test(test_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
