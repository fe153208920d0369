/* test_random.c - Philox against numpy's, addresses that cannot be confused, fills that any number of threads make alike, and statistics
 * that a broken round would not pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "support/check.h"

typedef struct known {
    uint64_t at[6]; /* seed, stream, a, b, c, d */
    uint64_t bits[4];
} known;

/* From numpy 2.4, whose Philox is this function but adds 1 to its counter before it computes anything:
 *     n = ((a | b << 64 | c << 128 | d << 192) - 1) % 2**256
 *     numpy.random.Philox(counter=[n >> 64 * i & 2**64 - 1 for i in range(4)], key=[seed, stream]).random_raw(4)
 * with the lists as uint64 arrays. The first three are also Random123's own (kat_vectors). */
static const known answers[] = {
    {{0, 0, 0, 0, 0, 0}, {0x16554d9eca36314cu, 0xdb20fe9d672d0fdcu, 0xd7e772cee186176bu, 0x7e68b68aec7ba23bu}},
    {{~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull},
     {0x87b092c3013fe90bu, 0x438c3c67be8d0224u, 0x9cc7d7c69cd777b6u, 0xa09caebf594f0ba0u}},
    {{0x452821e638d01377u, 0xbe5466cf34e90c6cu, 0x243f6a8885a308d3u, 0x13198a2e03707344u, 0xa4093822299f31d0u, 0x082efa98ec4e6c89u},
     {0xa528f45403e61d95u, 0x38c72dbd566e9788u, 0xa5a1610e72fd18b5u, 0x57bd43b5e52b7fe6u}},
    {{1, 0, 0, 0, 0, 0}, {0xcb7ea744cf19bb4cu, 0xa34eacbe1377d650u, 0xe8dbce5eb7b8301fu, 0x344790248cacfe2fu}},
    {{42, 0, 7, 3, 5, 1023}, {0xef80c7612e629bf5u, 0xbcadc0a38578164eu, 0x337151f272408478u, 0xcfb28ce803d9bb25u}},
    {{42, 1, 12, 1, 0, 99}, {0xf41c2a7395c68c5au, 0xb9afd4fa80e3424eu, 0xce04fa8e44e5e12au, 0x42b539c329a07493u}},
    {{42, 2, 0, 0, 0, 0}, {0xa0a48228185767d1u, 0x51d58a7cc2566990u, 0x4e5539d11a7dfd28u, 0xd60db1033d660d63u}},
    {{42, 0, 0, 1, 0, 0}, {0x13fe1ddbb29d354cu, 0xdc10850029c437f2u, 0xaa996df8af642547u, 0x580ac26f823b6147u}},
};

static void test_known_answers(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(answers); k++) {
        const uint64_t *at = answers[k].at;
        uint64_t bits[4];
        rein_random_block(bits, at[0], at[1], at[2], at[3], at[4], at[5]);
        assert_memory_equal(bits, answers[k].bits, sizeof bits);
        assert_true(rein_random_bits(at[0], at[1], at[2], at[3], at[4], at[5]) == bits[0]);
    }
}

/* numpy.random.Generator(the Philox above).random() */
static void test_uniform_is_numpys(void **state) {
    (void)state;
    assert_true(rein_random_uniform(42, REIN_RANDOM_SAMPLING, 7, 3, 5, 1023) == 0x1.df018ec25cc53p-1);
    assert_true(rein_random_uniform(0, REIN_RANDOM_SAMPLING, 0, 0, 0, 0) == 0x1.6554d9eca3630p-4);
}

/* Each part of an address counts, on its own and in its place. */
static void test_addresses_differ(void **state) {
    (void)state;
    uint64_t seen[6 * 64];
    size_t n = 0;
    for (int part = 0; part < 6; part++)
        for (int bit = 0; bit < 64; bit++) {
            uint64_t at[6] = {0};
            at[part] = (uint64_t)1 << bit;
            seen[n] = rein_random_bits(at[0], at[1], at[2], at[3], at[4], at[5]);
            for (size_t i = 0; i < n; i++) assert_true(seen[i] != seen[n]);
            n++;
        }
}

static float *filled(size_t n, int normal, uint64_t module, int threads) {
    float *to = malloc((n + 1) * sizeof *to);
    assert_non_null(to);
    to[n] = 77; /* nothing is written past the end */
    if (normal) rein_random_fill_normal(to, n, .02, 42, REIN_RANDOM_ADAPTER, module, 1, 0, threads);
    else rein_random_fill_uniform(to, n, -.5, .25, 42, REIN_RANDOM_ADAPTER, module, 1, 0, threads);
    assert_true(to[n] == 77);
    return to;
}

/* Computed in Python from numpy's outputs, with math.log, math.cos and math.sin; libraries may differ in the last bit. */
static void test_fills(void **state) {
    (void)state;
    const double normal[] = {-0x1.4eddacp-9, 0x1.ac59p-7, 0x1.09c89ap-5,  -0x1.aa016ep-6,
                             -0x1.bc47f2p-7, 0x1.aa1p-6,  -0x1.465566p-6, -0x1.2cd2d6p-6};
    const float uniform[] = {0x1.9d00dp-4f, -0x1.286892p-2f, -0x1.a782p-2f, 0x1.5ad74p-3f};
    float *got = filled(7, 1, 12, 1);
    for (size_t i = 0; i < 7; i++) assert_true(fabs((double)got[i] - normal[i]) <= 0x1p-23 * fabs(normal[i]));
    free(got);
    got = filled(3, 0, 12, 1);
    assert_memory_equal(got, uniform, 3 * sizeof *got);
    free(got);
    free(filled(0, 1, 12, 1));
}

static void test_threads_and_lengths_change_no_bit(void **state) {
    (void)state;
    const int threads[] = {2, 3, 8};
    const size_t shorter[] = {1, 2, 3, 4, 5, 4095, 4096, 4097, 8193, 49998};
    const size_t n = 50001;
    for (int normal = 0; normal < 2; normal++) {
        float *one = filled(n, normal, 3, 1);
        for (size_t k = 0; k < COUNT(threads); k++) {
            float *other = filled(n, normal, 3, threads[k]);
            assert_memory_equal(one, other, n * sizeof *one);
            free(other);
        }
        for (size_t k = 0; k < COUNT(shorter); k++) {
            float *other = filled(shorter[k], normal, 3, 1);
            assert_memory_equal(one, other, shorter[k] * sizeof *one);
            free(other);
        }
        free(one);
    }
}

static int ascending(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double uniform_share(double x) { return (x + .5) / .75; }
static double normal_share(double x) { return .5 * erfc(-x / (.02 * sqrt(2))); }

/* Kolmogorov and Smirnov: √n times the largest distance between what was drawn and the distribution is above 1.95 once in 1000 seeds.
 * The seed is fixed, so this passes always or never. */
static void check_distribution(int normal, double (*share)(double)) {
    const size_t n = 200000;
    float *x = filled(n, normal, 5, 1);
    double neighbours = 0, squares = 0, worst = 0;
    const double middle = normal ? 0 : -.125;
    for (size_t i = 0; i + 1 < n; i++) {
        neighbours += ((double)x[i] - middle) * ((double)x[i + 1] - middle);
        squares += ((double)x[i] - middle) * ((double)x[i] - middle);
    }
    assert_true(fabs(neighbours / squares) < 4 / sqrt((double)n)); /* four deviations of a correlation that is 0 */
    qsort(x, n, sizeof *x, ascending);
    for (size_t i = 0; i < n; i++) worst = fmax(worst, fabs(share((double)x[i]) - ((double)i + .5) / (double)n));
    assert_true(sqrt((double)n) * worst < 1.95);
    free(x);
}

static void test_distributions(void **state) {
    (void)state;
    check_distribution(0, uniform_share);
    check_distribution(1, normal_share);
}

/* Tokens of one sample, samples of one token: the way addresses are really walked. Mean, variance and every bit's balance. */
static void test_walks(void **state) {
    (void)state;
    enum { N = 100000 };
    for (int part = 0; part < 4; part++) {
        double sum = 0, squares = 0;
        int set[64] = {0};
        for (uint64_t i = 0; i < N; i++) {
            uint64_t at[4] = {1, 2, 3, 4};
            at[part] = i;
            const uint64_t bits = rein_random_bits(7, REIN_RANDOM_SAMPLING, at[0], at[1], at[2], at[3]);
            const double u = rein_random_uniform(7, REIN_RANDOM_SAMPLING, at[0], at[1], at[2], at[3]);
            assert_true(u >= 0 && u < 1);
            sum += u, squares += (u - .5) * (u - .5);
            for (int bit = 0; bit < 64; bit++) set[bit] += (int)(bits >> bit & 1);
        }
        assert_true(fabs(sum / N - .5) < 4 * sqrt(1. / 12 / N));
        assert_true(fabs(squares / N - 1. / 12) < 4 * sqrt(1. / 180 / N));
        for (int bit = 0; bit < 64; bit++) assert_true(abs(set[bit] - N / 2) < 5 * sqrt(N) / 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_uniform_is_numpys),
        cmocka_unit_test(test_addresses_differ),
        cmocka_unit_test(test_fills),
        cmocka_unit_test(test_threads_and_lengths_change_no_bit),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
