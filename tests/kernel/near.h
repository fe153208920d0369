/* near.h - the short exponential of the pass against its series in long double; of the type that the including test has chosen. */
#ifndef REIN_TESTS_NEAR_H
#define REIN_TESTS_NEAR_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "kernel/explog.h"

/* e^x − 1 − x = x²/2! + x³/3! + … */
static long double excess_of(long double x) {
    long double sum = 0, term = x * x / 2;
    for (int k = 3; k < 40; k++) {
        sum += term;
        term *= x / k;
    }
    return sum;
}

/* Sizes from 2^-60 to EXP_NEAR, both signs; errors in half units of the last place of 1. */
static void test_near(void **state) {
    const near_terms terms = near_terms_of();
    const long double unit = sizeof(real) == sizeof(float) ? 0x1p-24L : 0x1p-53L;
    long double worst = 0, worst_excess = 0;
    uint64_t bits_of_chance = 1;
    (void)state;
    for (int i = 0; i < 100000; i++) {
        V x;
        for (int l = 0; l < LANES; l++) {
            bits_of_chance = bits_of_chance * 6364136223846793005u + 1442695040888963407u;
            const double size = exp2(-(i % 4 ? 3.0 : 60.0) * (double)(bits_of_chance >> 12) * 0x1p-52) * (double)EXP_NEAR;
            x[l] = (real)(bits_of_chance >> 11 & 1 ? size : -size);
        }
        const V x2 = x * x, curve = near_curve(x, x2, &terms), e = fmadd(x2, curve, x), excess = x2 * curve;
        for (int l = 0; l < LANES; l++) {
            const long double rest = excess_of((long double)x[l]), all = rest + (long double)x[l];
            worst = fmaxl(worst, fabsl((long double)e[l] - all) / fabsl(all) / unit);
            worst_excess = fmaxl(worst_excess, fabsl((long double)excess[l] - rest) / rest / unit);
        }
    }
    printf("e^x - 1 up to %.2f: %.2Lf, e^x - 1 - x: %.2Lf half units\n", (double)EXP_NEAR, worst, worst_excess);
    assert_true(worst <= 4);
    assert_true(worst_excess <= 6);
}

#endif
