/* test_choose.c - a token from a row of logits: the distribution that comes out, which tokens top_k, top_p and min_p leave, against a plain
 * sampler in double; and what must not happen at the ends: a token that has no probability, or a place outside of the vocabulary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "nn/layers.h"
#include "rollout/choose.h"

#define LAST_U (1 - 0x1p-53)

static const float NOTHING = -1e30f; /* a logit without probability */

/* ---- rows */
static rein_logits_row make_row(const float *x, size_t n, const rein_nn_context *run) {
    const size_t chunks = (n + REIN_VOCABULARY_CHUNK - 1) / REIN_VOCABULARY_CHUNK;
    rein_softmax_stats *masses = room(chunks, sizeof *masses);
    float *scaled = copy_of(x, n);
    for (size_t c = 0; c < chunks; c++) {
        const size_t first = c * REIN_VOCABULARY_CHUNK, left = n - first;
        masses[c] =
            run->kernels->rows->softmax_stats(scaled + first, left < REIN_VOCABULARY_CHUNK ? left : REIN_VOCABULARY_CHUNK, 1, 0);
    }
    return (rein_logits_row){scaled, masses, n, chunks, run->exec.isa, NULL, 0};
}

static rein_chosen_token choose(const rein_logits_row *row, const rein_sampling *s, double u) {
    rein_logit *candidates = rein_truncates(s) ? room(row->vocabulary, sizeof *candidates) : NULL;
    const rein_chosen_token chosen = rein_choose(row, s, u, candidates);
    if (candidates) free(pieces_of_test[--n_pieces]);
    assert_true(chosen.id >= 0 && (size_t)chosen.id < row->vocabulary);
    return chosen;
}

/* ---- the same in double: probabilities of the policy, and of the sampler (0: not left) */
typedef struct reference {
    size_t n, kept;
    double *policy, *sampler;
    size_t *order;    /* by probability, equals by id */
    double clearance; /* of the sum that ends top_p, and of the share that ends min_p, from their bounds */
} reference;

static const double *by;
static int by_probability(const void *a, const void *b) {
    const size_t p = *(const size_t *)a, q = *(const size_t *)b;
    return by[p] != by[q] ? (by[p] > by[q] ? -1 : 1) : p < q ? -1 : p > q;
}

static reference in_double(const float *x, size_t n, const rein_sampling *s) {
    reference f = {n, n, doubles(n), doubles(n), room(n, sizeof(size_t)), HUGE_VAL};
    double most = -HUGE_VAL, sum = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, (double)x[i]);
    for (size_t i = 0; i < n; i++) sum += f.policy[i] = exp((double)x[i] - most), f.order[i] = i;
    for (size_t i = 0; i < n; i++) f.policy[i] /= sum, f.sampler[i] = 0;
    double *logits = doubles(n);
    for (size_t i = 0; i < n; i++) logits[i] = (double)x[i];
    by = logits;
    qsort(f.order, n, sizeof *f.order, by_probability);
    if (s->top_k > 0 && (size_t)s->top_k < n) f.kept = (size_t)s->top_k;
    if (s->top_p < 1) {
        double whole = 0, part = 0;
        size_t kept = 0;
        for (size_t i = 0; i < f.kept; i++) whole += f.policy[f.order[i]];
        while (kept < f.kept && part < s->top_p * whole) {
            part += f.policy[f.order[kept++]];
            f.clearance = fmin(f.clearance, fabs(part / whole - s->top_p));
        }
        f.kept = kept;
    }
    for (size_t i = 0; i < f.kept && s->min_p > 0; i++)
        f.clearance = fmin(f.clearance, fabs(f.policy[f.order[i]] / f.policy[f.order[0]] - s->min_p));
    while (s->min_p > 0 && f.kept > 1 && f.policy[f.order[f.kept - 1]] < s->min_p * f.policy[f.order[0]]) f.kept--;
    double mass = 0;
    for (size_t i = 0; i < f.kept; i++) mass += f.policy[f.order[i]];
    for (size_t i = 0; i < f.kept; i++) f.sampler[f.order[i]] = f.policy[f.order[i]] / mass;
    return f;
}

/* Every u of a grid: a token is chosen by as many of them as its probability says, to one at each end of its stretch; what is not left, by
 * none. Log-probabilities are those of the chosen one. */
static void check_row(const float *x, size_t n, const rein_sampling *s, size_t grid) {
    const rein_logits_row row = make_row(x, n, best());
    const reference f = in_double(x, n, s);
    size_t *times = room(n, sizeof *times);
    memset(times, 0, n * sizeof *times);
    for (size_t k = 0; k < grid; k++) {
        const rein_chosen_token c = choose(&row, s, ((double)k + 0.5) / (double)grid);
        if (!(f.sampler[c.id] > 0)) fail_msg("token %d is not among the %zu that are left", c.id, f.kept);
        times[c.id]++;
        check("log-probability", fabs((double)c.log_prob - log(f.policy[c.id])) / fmax(1, -log(f.policy[c.id])), 5e-7);
        check("log-probability of the sampler",
              fabs((double)c.sampler_log_prob - log(f.sampler[c.id])) / fmax(1, -log(f.sampler[c.id])), 5e-7);
        if (!rein_truncates(s)) same_bits("the sampler is the policy", &c.sampler_log_prob, &c.log_prob, 1);
    }
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)times[i] - f.sampler[i] * (double)grid) <= 1 + 1e-5 * (double)grid))
            fail_msg("token %zu was chosen by %zu of %zu numbers, its probability is %g", i, times[i], grid, f.sampler[i]);
    assert_true(f.sampler[choose(&row, s, 0).id] > 0);
    assert_true(f.sampler[choose(&row, s, LAST_U).id] > 0);
}

static float *random_logits(size_t n) {
    const size_t kind = below(4);
    float *x = numbers(n, kind == 0 ? 1 : kind == 1 ? 5 : 20);
    for (size_t i = 0; i < n && kind == 3; i++) x[i] = x[i] / 4 - fmodf(x[i] / 4, 0.5f); /* many equals */
    for (size_t i = 0; i < n && below(4) == 0; i += 1 + below(4)) x[i] = NOTHING;
    x[below(n)] = 0;
    return x;
}

static const size_t VOCABULARIES[] = {1, 2, 5, 40, 511, 512, 513, 1500};

static void test_policy(void **state) {
    (void)state;
    for (int round = 0; round < (quick() ? 40 : 160); round++) {
        const size_t n = VOCABULARIES[(size_t)round % 8];
        const float *x = random_logits(n);
        const rein_sampling s = rein_sampling_plain();
        check_row(x, n, &s, quick() ? 200 : 1000);
        clear();
    }
}

static rein_sampling random_filters(size_t n) {
    static const double top_ps[] = {1e-9, 0.1, 0.5, 0.9, 0.99, 0.9999, 1}, min_ps[] = {0, 1e-6, 0.01, 0.1, 0.5, 0.999};
    rein_sampling s = rein_sampling_plain();
    const size_t which = 1 + below(7);
    if (which & 1) s.top_k = 1 + (int64_t)below(below(3) ? n < 10 ? n : 10 : n + 5);
    if (which & 2) s.top_p = top_ps[below(7)];
    if (which & 4) s.min_p = min_ps[below(6)];
    return s;
}

static void test_truncated(void **state) {
    (void)state;
    size_t near = 0;
    const size_t rounds = quick() ? 100 : 400;
    for (size_t round = 0; round < rounds; round++) {
        const size_t n = VOCABULARIES[round % 8];
        const float *x = random_logits(n);
        const rein_sampling s = random_filters(n);
        /* Too near to a bound, the rounding of f32 decides; the tests below stand on bounds that are exact. */
        if (in_double(x, n, &s).clearance < 1e-6) near++;
        else check_row(x, n, &s, n > 100 ? 60 : 300);
        clear();
    }
    if (near > rounds / 10) fail_msg("%zu of %zu rows are too near to a bound", near, rounds);
}

/* ---- exact cases */
static void assert_left(const float *x, size_t n, int64_t top_k, double top_p, double min_p, const char *left) {
    rein_sampling s = rein_sampling_plain();
    s.top_k = top_k, s.top_p = top_p, s.min_p = min_p;
    char seen[100] = {0};
    const rein_logits_row row = make_row(x, n, best());
    for (size_t i = 0; i < n; i++) seen[i] = '.';
    for (int k = 0; k < 400; k++) seen[(size_t)choose(&row, &s, k / 400.0).id % n] = 'x';
    seen[(size_t)choose(&row, &s, LAST_U).id % n] = 'x';
    if (strcmp(seen, left) != 0) fail_msg("top_k %d, top_p %g, min_p %g leave %s, not %s", (int)top_k, top_p, min_p, seen, left);
    clear();
}

static void test_ties_and_bounds(void **state) {
    (void)state;
    const float equal[8] = {3, 3, 3, 3, 3, 3, 3, 3}, two[6] = {1, 2, 1, 2, 1, 2}, some[6] = {NOTHING, 5, NOTHING, 5, 5, NOTHING};
    /* Equals: the first by id. A sum that reaches top_p exactly is enough. */
    assert_left(equal, 8, 3, 1, 0, "xxx.....");
    assert_left(equal, 8, 0, 0.5, 0, "xxxx....");
    assert_left(equal, 8, 0, 0.5 + 1e-9, 0, "xxxxx...");
    assert_left(equal, 8, 0, 0.125, 0, "x.......");
    assert_left(equal, 8, 0, 1e-300, 0, "x.......");
    assert_left(equal, 8, 0, 1 - 0x1p-53, 0, "xxxxxxxx");
    assert_left(equal, 8, 4, 0.5, 0, "xx......"); /* half of the four */
    assert_left(equal, 8, 0, 1, 0.999, "xxxxxxxx");
    assert_left(two, 6, 4, 1, 0, "xx.x.x");
    assert_left(two, 6, 0, 1, 0.5, ".x.x.x"); /* the others have a share of 1/e */
    assert_left(two, 6, 0, 1, 0.36, "xxxxxx");
    assert_left(two, 6, 2, 1, 0.36, ".x.x..");
    /* More than there are; what has no probability is not among them. */
    assert_left(equal, 8, 8, 1, 0, "xxxxxxxx");
    assert_left(equal, 8, 1000000, 1, 0, "xxxxxxxx");
    assert_left(equal, 8, INT64_MAX, 1, 0, "xxxxxxxx");
    assert_left(some, 6, 5, 1, 0, ".x.xx.");
    assert_left(some, 6, INT64_MAX, 1, 0, ".x.xx.");
    assert_left(some, 6, 0, 1, 1e-300, ".x.xx.");
    assert_left(some, 6, 0, 1 - 0x1p-53, 0, ".x.xx.");
    assert_left(some, 6, 0, 1, 0, ".x.xx.");
    assert_left(&some[1], 1, 1, 0.5, 0.5, "x");
}

/* top_k, then top_p of what is left, then min_p of that. Probabilities 0.4, 0.3, 0.2, 0.1. */
static void test_order_of_filters(void **state) {
    (void)state;
    const float x[4] = {logf(0.4f), logf(0.3f), logf(0.2f), logf(0.1f)};
    assert_left(x, 4, 0, 0.5, 0, "xx..");
    assert_left(x, 4, 2, 0.5, 0, "x..."); /* 0.4 of the 0.7 that top_k leaves */
    assert_left(x, 4, 3, 0.8, 0, "xxx.");
    assert_left(x, 4, 0, 0.8, 0.6, "xx..");
    assert_left(x, 4, 0, 0.5, 0.6, "xx.."); /* top_p of what min_p would leave were 1 token */
    assert_left(x, 4, 0, 0.5, 0.8, "x...");
    assert_left(x, 4, 2, 0.95, 0.2, "xx..");
}

/* The k-th, or the one that completes top_p, may be far down: 6, 12 or 24 below the greatest, or further. */
static void test_far_down(void **state) {
    (void)state;
    const float depths[] = {0, -5.5f, -6.5f, -11.5f, -12.5f, -23.5f, -24.5f, -60, -100};
    for (int64_t k = 1; k <= 9; k++) {
        rein_sampling s = rein_sampling_plain();
        const rein_logits_row row = make_row(depths, 9, best());
        s.top_k = k;
        const reference f = in_double(depths, 9, &s);
        for (int i = 0; i < 200; i++) assert_true(f.sampler[choose(&row, &s, i / 200.0).id] > 0);
        assert_true(f.kept == (size_t)k);
        clear();
    }
    float flat[700]; /* one on top of many: most of the mass is far below the greatest */
    for (size_t i = 0; i < 700; i++) flat[i] = -6.5f;
    flat[650] = 0;
    rein_sampling s = rein_sampling_plain();
    for (double top_p = 0.05; top_p < 1; top_p += 0.1) {
        s.top_p = top_p + 0.0123;
        if (in_double(flat, 700, &s).clearance > 1e-6) check_row(flat, 700, &s, 500);
        clear();
    }
}

/* ---- no probability, no choice: at both ends of u, wherever such tokens stand; sums that rounding leaves above 0 included */
static void test_never_impossible(void **state) {
    (void)state;
    const rein_sampling plain_one = rein_sampling_plain();
    for (int round = 0; round < (quick() ? 200 : 1500); round++) {
        const size_t n = round % 10 ? 2 + below(20) : 1030;
        float *x = numbers(n, 3);
        const float nothing = below(2) ? NOTHING : below(2) && n < 512 ? -INFINITY : -800;
        for (size_t i = 0; i < n; i++)
            if (below(2) || i == n - 1 || i < n / 3) x[i] = nothing;
        x[n / 2] = number();
        const rein_logits_row row = make_row(x, n, best());
        rein_sampling filtered[3] = {plain_one, plain_one, plain_one};
        filtered[0].top_k = (int64_t)n;
        filtered[1].top_p = LAST_U;
        filtered[2].min_p = 1e-320;
        for (size_t k = 0; k < 4; k++) {
            const rein_sampling *s = k < 3 ? &filtered[k] : &plain_one;
            const double us[] = {0, 0x1p-53, 0.5, 1 - 0x1p-52, LAST_U};
            for (size_t u = 0; u < COUNT(us); u++) {
                const rein_chosen_token c = choose(&row, s, us[u]);
                if (x[c.id] == nothing)
                    fail_msg("u = %a chooses token %d of %zu, whose logit is %g", us[u], c.id, n, (double)nothing);
                assert_true(isfinite(c.log_prob) && isfinite(c.sampler_log_prob));
            }
        }
        clear();
    }
}

/* NaN logits give a NaN log-probability, for the generator to report, and a token of the vocabulary. */
static void test_not_numbers(void **state) {
    (void)state;
    const float bad[] = {(float)NAN, INFINITY, -INFINITY};
    for (size_t n = 1; n < 1200; n += 1 + n / 2)
        for (size_t k = 0; k < 3 * 2; k++) {
            float *x = numbers(n, 1);
            for (size_t i = 0; i < n; i++)
                if (k % 2 || i == 0) x[i] = bad[k / 2]; /* the first, or all */
            const rein_logits_row row = make_row(x, n, best());
            rein_sampling s[4] = {rein_sampling_plain(), rein_sampling_plain(), rein_sampling_plain(), rein_sampling_plain()};
            s[0].top_k = 2, s[1].top_p = 0.9, s[2].min_p = 0.1;
            for (size_t i = 0; i < 4; i++) {
                const rein_chosen_token c = choose(&row, &s[i], 0.7);
                if (bad[k / 2] != -INFINITY || k % 2 || n == 1) assert_true(!isfinite(c.log_prob));
            }
            s[3].greedy = 1;
            choose(&row, &s[3], 0.7);
            rein_choice top[3];
            rein_choose_top(top, n < 3 ? n : 3, &row);
            for (size_t i = 0; i < 3 && i < n; i++) assert_true(top[i].id >= 0 && (size_t)top[i].id < n);
            clear();
        }
}

static void test_greedy(void **state) {
    (void)state;
    rein_sampling s = rein_sampling_plain();
    s.greedy = 1;
    for (int round = 0; round < 300; round++) {
        const size_t n = VOCABULARIES[(size_t)round % 8];
        const float *x = random_logits(n);
        const rein_logits_row row = make_row(x, n, best());
        const reference f = in_double(x, n, &s);
        const rein_chosen_token c = choose(&row, &s, 0.9);
        assert_int_equal(c.id, f.order[0]); /* of equals, the first */
        assert_true(c.sampler_log_prob == 0);
        check("log-probability", fabs((double)c.log_prob - log(f.policy[c.id])) / fmax(1, -log(f.policy[c.id])), 5e-7);
        clear();
    }
}

static void test_top(void **state) {
    (void)state;
    const rein_sampling s = rein_sampling_plain();
    for (int round = 0; round < 300; round++) {
        const size_t n = VOCABULARIES[(size_t)round % 8], k = below(round % 5 ? n < 20 ? n + 1 : 20 : n + 1);
        const float *x = random_logits(n);
        const rein_logits_row row = make_row(x, n, best());
        const reference f = in_double(x, n, &s);
        rein_choice *top = room(k, sizeof *top);
        rein_choose_top(top, k, &row);
        for (size_t i = 0; i < k; i++) {
            rein_sampling greedy = s;
            greedy.greedy = 1;
            assert_int_equal(top[i].id, f.order[i]);
            const double wanted = f.policy[top[i].id] > 0 ? log(f.policy[top[i].id]) : (double)top[i].log_prob;
            check("log-probability of the top", fabs((double)top[i].log_prob - wanted) / fmax(1, -wanted), 5e-7);
            if (i == 0) { /* the bits of a choice */
                const rein_chosen_token c = choose(&row, &greedy, 0);
                same_bits("the first of the top", &top[0].log_prob, &c.log_prob, 1);
            }
        }
        clear();
    }
}

/* ---- addressed randomness: counts of many draws, by χ² over tokens that are expected 5 times or more */
static void chi_square(const float *x, size_t n, const rein_sampling *s, size_t draws, uint64_t seed) {
    const rein_logits_row row = make_row(x, n, best());
    const reference f = in_double(x, n, s);
    double *counts = doubles(n), sum = 0, rest = 0, rest_expected = 0;
    size_t cells = 0;
    for (size_t i = 0; i < n; i++) counts[i] = 0;
    for (size_t k = 0; k < draws; k++)
        counts[choose(&row, s, rein_random_uniform(seed, REIN_RANDOM_SAMPLING, 3, k / 1000, k % 1000 / 10, k % 10)).id]++;
    for (size_t i = 0; i < n; i++) {
        const double expected = f.sampler[i] * (double)draws;
        if (expected < 5) rest += counts[i], rest_expected += expected;
        else sum += pow(counts[i] - expected, 2) / expected, cells++;
    }
    if (rest_expected >= 5) sum += pow(rest - rest_expected, 2) / rest_expected, cells++;
    assert_true(cells > 2);
    const double freedom = (double)cells - 1, deviations = (sum - freedom) / sqrt(2 * freedom);
    check("χ², in deviations", fabs(deviations), 3.5);
    clear();
}

static void test_distribution(void **state) {
    (void)state;
    const size_t draws = quick() ? 10000 : 60000;
    const float x[7] = {0, 1, -1, 2, NOTHING, -3, 0.5f};
    rein_sampling plain_one = rein_sampling_plain(), filtered = plain_one;
    filtered.top_k = 5, filtered.top_p = 0.95;
    for (uint64_t seed = 0; seed < 3; seed++) {
        chi_square(x, 7, &plain_one, draws, seed);
        chi_square(x, 7, &filtered, draws, seed);
    }
    float *many = numbers(1500, 2);
    float large[1500];
    for (size_t i = 0; i < 1500; i++) large[i] = many[i] + (i >= 512 && i < 1024 ? 1.0f : 0); /* chunks of different weight */
    chi_square(large, 1500, &plain_one, draws, 7);
    filtered.top_k = 0, filtered.top_p = 0.9;
    chi_square(large, 1500, &filtered, 3000, 8);
}

static void test_one_answer(void **state) {
    (void)state;
    for (int round = 0; round < (quick() ? 24 : 96); round++) {
        const size_t n = VOCABULARIES[(size_t)round % 8];
        const float *x = random_logits(n);
        const rein_sampling s = round % 3 ? random_filters(n) : rein_sampling_plain();
        const rein_logits_row row = make_row(x, n, &machines[0]);
        for (size_t m = 1; m < n_machines; m++) {
            const rein_logits_row other = make_row(x, n, &machines[m]);
            for (int k = 0; k < 10; k++) {
                const double u = k / 10.0;
                const rein_chosen_token a = choose(&row, &s, u), b = choose(&other, &s, u);
                assert_int_equal(a.id, b.id);
                same_bits("log-probability", &b.log_prob, &a.log_prob, 1);
                same_bits("log-probability of the sampler", &b.sampler_log_prob, &a.sampler_log_prob, 1);
            }
        }
        clear();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy),           cmocka_unit_test(test_truncated), cmocka_unit_test(test_ties_and_bounds),
        cmocka_unit_test(test_order_of_filters), cmocka_unit_test(test_far_down),  cmocka_unit_test(test_never_impossible),
        cmocka_unit_test(test_not_numbers),      cmocka_unit_test(test_greedy),    cmocka_unit_test(test_top),
        cmocka_unit_test(test_distribution),     cmocka_unit_test(test_one_answer)};
    return cmocka_run_group_tests_name("choose", tests, open_machines, close_machines);
}
