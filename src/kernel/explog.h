/* explog.h - e^x, e^x − 1 − x and log x of vectors. Private; for sources compiled per instruction set.
 *
 * exp: x = n·ln 2 + r with |r| <= ln 2 / 2, then e^r = 1 + (r + t) with t = r²·(1/2! + r/3! + …), scaled by 2^n in two steps so that
 * subnormal results are rounded once. For n = 0 the tail t is e^x − 1 − x without cancellation, so one function computes both.
 * Errors over all f32: exp <= 1.05 ulp, log <= 0.84 ulp (tests/kernel/test_explog.c measures all 2^32 of them). */
#ifndef REIN_KERNEL_EXPLOG_H
#define REIN_KERNEL_EXPLOG_H

#include "lanes.h"

#ifdef REAL_F32
#define EXP_MAX 89.0f   /* e^89 is already inf */
#define EXP_MIN -104.0f /* e^-104 rounds to 0 */
#define LN2_HIGH 0x1.62e430p-1f
#define LN2_LOW -0x1.05c610p-29f
#define ROUNDER 0x1.8p23f
#define SUBNORMAL_SCALE 0x1p25f
#define SUBNORMAL_SHIFT 25
#define LOG_TERMS 5
#else
#define EXP_MAX 710.0
#define EXP_MIN -746.0
#define LN2_HIGH 0x1.62e42fefa39efp-1
#define LN2_LOW 0x1.abc9e3b39803fp-56
#define ROUNDER 0x1.8p52
#define SUBNORMAL_SCALE 0x1p54
#define SUBNORMAL_SHIFT 54
#define LOG_TERMS 12
#endif

INLINE V power_of_two(M n) { return (V)(((U)n + EXPONENT_BIAS) << MANTISSA); }

/* (e^r − 1 − r) / r² = 1/2! + r/3! + r²/4! + … for |r| <= ln 2 / 2, by Estrin's scheme, which has a third of the latency of Horner's. In f32
 * the last four coefficients are fitted (relative error 1.3e-7), which saves two terms. */
INLINE V exp_tail(V r) {
    const V r2 = r * r;
#ifdef REAL_F32
    const V a = fmadd(r, splat(0x1.5554e0p-3f), splat(0.5f)), b = fmadd(r, splat(0x1.120976p-7f), splat(0x1.555582p-5f));
    return fmadd(fmadd(splat(0x1.6c8e34p-10f), r2, b), r2, a);
#else
    const V r4 = r2 * r2;
    const V a = fmadd(r, splat(1.0 / 6), splat(0.5)), b = fmadd(r, splat(1.0 / 120), splat(1.0 / 24)),
            c = fmadd(r, splat(1.0 / 5040), splat(1.0 / 720)), d = fmadd(r, splat(1.0 / 362880), splat(1.0 / 40320)),
            e = fmadd(r, splat(1.0 / 39916800), splat(1.0 / 3628800)),
            f = fmadd(r, splat(1.0 / 6227020800), splat(1.0 / 479001600));
    return fmadd(fmadd(fmadd(f, r2, e), r4, fmadd(d, r2, c)), r4, fmadd(b, r2, a));
#endif
}

/* x = n·ln 2 + r, |r| <= ln 2 / 2; returns e^r − 1 − r. */
INLINE V exp_reduce(V x, M *n, V *r) {
    V shifted = fmadd(x, splat((real)1.4426950408889634), splat(ROUNDER)), whole_part = shifted - ROUNDER;
    *n = (M)((U)shifted - (U)splat(ROUNDER)); /* unsigned, because the bits of a NaN may overflow */
    *r = fmadd(whole_part, splat(-LN2_LOW), fmadd(whole_part, splat(-LN2_HIGH), x));
    return (*r * *r) * exp_tail(*r);
}

/* Returns e^x; *excess = e^x − 1 − x, never negative, exact to rounding near 0. */
INLINE V exp_excess(V x, V *excess) {
    M n;
    V r, tail = exp_reduce(most(splat(EXP_MIN), least(splat(EXP_MAX), x)), &n,
                           &r);                       /* as the second operand a NaN passes through both */
    U biased = ((U)n + 2 * (EXPONENT_BIAS + 1)) >> 1; /* kept positive: AVX2 has no signed shift of 64 bits */
    M half = (M)(biased - (EXPONENT_BIAS + 1));
    V e = ((tail + r) + 1) * power_of_two(half) * power_of_two((M)((U)n - (U)half));
    *excess = pick(n == 0, tail, (e - 1) - x);
    return e;
}

/* near_curve: (e^x − 1 − x) / x² for |x| <= EXP_NEAR, a fitted polynomial with relative error 9e-8 in f32 and 7e-17 in f64. The caller holds
 * the coefficients, so that a loop can leave them in memory. */
#ifdef REAL_F32
enum { NEAR_TERMS = 7 };
#define EXP_NEAR 1.0f
#define NEAR_COEFFICIENTS 0.5f, 0x1.55557ap-3f, 0x1.555524p-5f, 0x1.10fd92p-7f, 0x1.6c214cp-10f, 0x1.aa21c2p-13f, 0x1.a366d8p-16f
#else
enum { NEAR_TERMS = 12 };
#define EXP_NEAR 0.6
#define NEAR_COEFFICIENTS                                                                                                  \
    0x1.0000000000000p-1, 0x1.5555555555555p-3, 0x1.55555555556b6p-5, 0x1.111111111116fp-7, 0x1.6c16c16bbd64fp-10,         \
        0x1.a01a019fea5f2p-13, 0x1.a01a02a8d1113p-16, 0x1.71de3ae289400p-19, 0x1.27e39916b9af2p-22, 0x1.ae62dca8d4910p-26, \
        0x1.20a2aa394624cp-29, 0x1.62f678e4e1d8fp-33
#endif
typedef struct near_terms {
    V c[NEAR_TERMS];
} near_terms;

static inline near_terms near_terms_of(void) {
    static const real coefficients[NEAR_TERMS] = {NEAR_COEFFICIENTS};
    near_terms t;
    for (int i = 0; i < NEAR_TERMS; i++) t.c[i] = splat(coefficients[i]);
    return t;
}

/* Even and odd terms are summed separately by Horner's scheme. Then constants are only added, and can be memory operands. */
enum { LAST_EVEN = (NEAR_TERMS - 1) / 2 * 2, LAST_ODD = NEAR_TERMS / 2 * 2 - 1 };
typedef struct near_parts {
    V even, odd;
} near_parts;
INLINE near_parts near_parts_of(V x2, V last_even, V last_odd, const near_terms *t) {
    near_parts p = {last_even, last_odd};
#pragma GCC unroll 8
    for (int i = LAST_EVEN - 2; i >= 0; i -= 2) p.even = fmadd(p.even, x2, t->c[i]);
#pragma GCC unroll 8
    for (int i = LAST_ODD - 2; i > 0; i -= 2) p.odd = fmadd(p.odd, x2, t->c[i]);
    return p;
}
INLINE V near_curve(V x, V x2, const near_terms *t) {
    const near_parts p = near_parts_of(x2, t->c[LAST_EVEN], t->c[LAST_ODD], t);
    return fmadd(p.odd, x, p.even);
}

INLINE V exp_lanes(V x) {
    V unused;
    return exp_excess(x, &unused);
}

/* log x = e·ln 2 + log(1+f), 1+f in [√½, √2): with s = f/(2+f), log(1+f) = f − (f²/2 − s·(f²/2 + R)), R = 2s²/3 + 2s⁴/5 + … */
INLINE V log_lanes(V x) {
    const V smallest = power_of_two((M)splat(0) + (1 - EXPONENT_BIAS));
    M tiny = x < smallest;
    V y = pick(tiny, x * SUBNORMAL_SCALE, x);
    const U root_half = (U)splat((real)0.70710678118654752);
    U offset = (U)y - root_half;
    U exponent_bits = (offset >> MANTISSA) << MANTISSA; /* of y/√½: one subtraction separates exponent and mantissa */
    V f = (V)((U)y - exponent_bits) - 1;
    const bits top = (bits)1 << (sizeof(real) * 8 - 1 - MANTISSA); /* the sign of the exponent */
    M e = (M)(((exponent_bits >> MANTISSA) ^ top) - top);
    V exponent = (V)((U)splat(ROUNDER) + (U)e) - ROUNDER;
    exponent = exponent - pick(tiny, splat(SUBNORMAL_SHIFT), splat(0));
    V s = f / (f + 2), z = s * s;
    V sum = splat((real)2.0 / (2 * LOG_TERMS + 1));
    for (int k = LOG_TERMS - 1; k >= 1; k--) sum = fmadd(sum, z, splat((real)2.0 / (real)(2 * k + 1)));
    V half_square = f * f * (real)0.5;
    V small = fmadd(s, half_square + z * sum, exponent * LN2_LOW);
    V result = fmadd(exponent, splat(LN2_HIGH), f - (half_square - small));
    result = pick(x == splat((real)INFINITY), x, result);
    result = pick(x == splat(0), splat((real)-INFINITY), result);
    return pick((x < splat(0)) | (x != x), splat((real)NAN), result);
}

/* log(1 + u), accurate near 0 too: the log of the rounded sum plus a correction for the rounding. */
INLINE V log1p_lanes(V u) {
    V w = 1 + u;
    return pick(w == splat((real)INFINITY), w, log_lanes(w) + (u - (w - 1)) / w);
}

#endif
