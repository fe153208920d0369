/* adamw_pass.c - the passes of AdamW over memory; compiled per instruction set.
 *
 * torch.optim.AdamW makes five passes (mul_, lerp_, addcmul_, sqrt and division, addcdiv_). This makes one, with four loads and three
 * stores. Each element is rounded exactly as torch rounds it, with fma where torch's kernels have one. The only difference is √: here it
 * is IEEE's, while torch uses MKL's, whose last bit is sometimes wrong. */
#include "adamw_pass.h"

#include "../kernel/lanes.h"

#ifdef __AVX2__
INLINE V root(V x) { return (V)_mm256_sqrt_ps((__m256)x); }
#else
INLINE V root(V x) {
    for (int l = 0; l < LANES; l++) x[l] = sqrtf(x[l]);
    return x;
}
#endif

/* torch's lerp: a + w·(b − a), computed from the nearer end. At w = 1 it is exactly b. */
INLINE V lerp(V a, V b, float w) { return w < 0.5f ? fmadd(splat(w), b - a, a) : fmadd(splat(w - 1), b - a, b); }

INLINE void update(float *value, float *first, float *second, const float *gradient, size_t left, const rein_adamw_factors *f) {
    const V g = load(gradient, left) * splat(f->gradient_scale);
    const V m = lerp(load(first, left), g, f->first_weight);
    const V v = fmadd(splat(f->second_weight) * g, g, load(second, left) * splat(f->beta2));
    const V denominator = root(v) / splat(f->root_of_correction) + splat(f->epsilon);
    const V x = load(value, left) * splat(f->value_scale) + splat(f->step_size) * m / denominator;
    store(value, x, left);
    store(first, m, left);
    store(second, v, left);
}

static void update_all(float *restrict value, float *restrict first, float *restrict second, const float *restrict gradient,
                       size_t n, const rein_adamw_factors *factors) {
    const rein_adamw_factors f = *factors; /* a local copy, which stores to the arrays cannot change */
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) update(value + i, first + i, second + i, gradient + i, LANES, &f);
    if (i < n) update(value + i, first + i, second + i, gradient + i, n - i, &f);
}

INLINE D square(const float *x) {
    F four;
    memcpy(&four, x, sizeof four);
    const D wide = to_doubles(four);
    return wide * wide; /* exact */
}

/* Sixteen independent sums hide the latency of the additions. Element i goes to sum i % 16. */
static double sum_of_squares(const float *gradient, size_t n) {
    D sums[4] = {{0}};
    double total = 0;
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t k = 0; k < 4; k++) sums[k] += square(gradient + i + 4 * k);
    float rest[16] = {0};
    memcpy(rest, gradient + i, (n - i) * sizeof *rest);
    for (size_t k = 0; k < 4; k++) sums[k] += square(rest + 4 * k);
    for (size_t k = 0; k < 4; k++)
        for (size_t l = 0; l < 4; l++) total += sums[k][l];
    return total;
}

const rein_adamw_kernels KERNEL(rein_adamw_kernels) = {.update = update_all, .sum_of_squares = sum_of_squares};
