/* lanes.h - vectors of reals with the same arithmetic on every instruction set. Private.
 *
 * A source that includes this is compiled once per type (REAL_F32 or REAL_F64) and instruction set; REIN_SUFFIX names the pair. V holds
 * LANES reals, 32 bytes. M holds one integer a lane; a comparison sets a lane to all ones or all zeros. Every operation is one IEEE
 * operation per lane, including fma, and nothing is reassociated, so each build gives the same bits. The compiler puts V into registers.
 * Only operations that C has no operator for, such as fma, are written per instruction set. */
#ifndef REIN_KERNEL_LANES_H
#define REIN_KERNEL_LANES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#define REIN_PASTE_(a, b) a##_##b
#define REIN_PASTE(a, b) REIN_PASTE_(a, b)
#define KERNEL(name) REIN_PASTE(name, REIN_SUFFIX)

enum { VECTOR_BYTES = 32 };

#if defined(REAL_F32)
typedef float real;
typedef int32_t whole;
typedef uint32_t bits;
#define LANES 8
#define MANTISSA 23
#define EXPONENT_BIAS 127
#else
typedef double real;
typedef int64_t whole;
typedef uint64_t bits;
#define LANES 4
#define MANTISSA 52
#define EXPONENT_BIAS 1023
#endif

typedef real V __attribute__((vector_size(VECTOR_BYTES)));
typedef whole M __attribute__((vector_size(VECTOR_BYTES)));
typedef bits U __attribute__((vector_size(VECTOR_BYTES)));

/* Everything is inlined in optimised builds. In other builds that would only slow down the compiler. */
#ifdef __has_feature /* clang */
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED
#endif
#if defined(__AVX2__) && defined(__OPTIMIZE__) && !defined(SANITIZED)
#define INLINE static inline __attribute__((always_inline, unused))
#else
#define INLINE static inline __attribute__((unused))
#endif

/* Written as a list: for a loop gcc 12 inserts lane by lane, at each use. */
#if LANES == 8
INLINE V splat(real x) { return (V){x, x, x, x, x, x, x, x}; }
#else
INLINE V splat(real x) { return (V){x, x, x, x}; }
#endif

/* m ? a : b, lane by lane. It selects bits, so a NaN in a lane that is not chosen has no effect. */
INLINE V pick(M m, V a, V b) { return (V)(((M)a & m) | ((M)b & ~m)); }
INLINE V keep(M m, V a) { return (V)((M)a & m); }

#if defined(__AVX2__) && defined(REAL_F32)
INLINE V fmadd(V a, V b, V c) { return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE V least(V a, V b) { return (V)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE V most(V a, V b) { return (V)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE int lanes_set(M m) { return _mm256_movemask_ps((__m256)m); }
INLINE M widen(const uint8_t *p) { return (M)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)); }
#elif defined(__AVX2__)
INLINE V fmadd(V a, V b, V c) { return (V)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
INLINE V least(V a, V b) { return (V)_mm256_min_pd((__m256d)a, (__m256d)b); }
INLINE V most(V a, V b) { return (V)_mm256_max_pd((__m256d)a, (__m256d)b); }
INLINE int lanes_set(M m) { return _mm256_movemask_pd((__m256d)m); }
INLINE M widen(const uint8_t *p) { return (M)_mm256_cvtepu8_epi64(_mm_loadu_si32(p)); }
#else
INLINE V fmadd(V a, V b, V c) {
    V y;
#ifdef REAL_F32
    for (int l = 0; l < LANES; l++) y[l] = fmaf(a[l], b[l], c[l]);
#else
    for (int l = 0; l < LANES; l++) y[l] = fma(a[l], b[l], c[l]);
#endif
    return y;
}
INLINE V least(V a, V b) { return pick(a < b, a, b); } /* b if either is NaN, like the instruction */
INLINE V most(V a, V b) { return pick(a > b, a, b); }
INLINE int lanes_set(M m) { /* one bit per lane; lane 0 is the lowest bit */
    int set = 0;
    for (int l = 0; l < LANES; l++) set |= (m[l] != 0) << l;
    return set;
}
INLINE M widen(const uint8_t *p) {
    M m;
    for (int l = 0; l < LANES; l++) m[l] = p[l];
    return m;
}
#endif

#ifdef REAL_F32
INLINE M first_lanes(size_t left) { return (M){0, 1, 2, 3, 4, 5, 6, 7} < (whole)(left < LANES ? left : LANES); }
#else
INLINE M first_lanes(size_t left) { return (M){0, 1, 2, 3} < (whole)(left < LANES ? left : LANES); }
#endif

/* Loads or stores only the first `left` lanes, fewer than LANES. Memory past them is not touched; loaded lanes past them are 0. */
#if defined(__AVX2__) && defined(REAL_F32)
INLINE V load_part(const real *p, size_t left) { return (V)_mm256_maskload_ps(p, (__m256i)first_lanes(left)); }
INLINE void store_part(real *p, V v, size_t left) { _mm256_maskstore_ps(p, (__m256i)first_lanes(left), (__m256)v); }
#elif defined(__AVX2__)
INLINE V load_part(const real *p, size_t left) { return (V)_mm256_maskload_pd(p, (__m256i)first_lanes(left)); }
INLINE void store_part(real *p, V v, size_t left) { _mm256_maskstore_pd(p, (__m256i)first_lanes(left), (__m256d)v); }
#else
INLINE V load_part(const real *p, size_t left) {
    V v = {0};
    memcpy(&v, p, left * sizeof *p);
    return v;
}
INLINE void store_part(real *p, V v, size_t left) { memcpy(p, &v, left * sizeof *p); }
#endif

/* Lane l of row r becomes lane r of row l. */
#if defined(__AVX2__) && defined(REAL_F32)
INLINE void transpose(V rows[LANES]) {
    __m256 a[8], b[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps((__m256)rows[i], (__m256)rows[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps((__m256)rows[i], (__m256)rows[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        rows[i] = (V)_mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        rows[i + 4] = (V)_mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}
#else
INLINE void transpose(V rows[LANES]) {
    for (int r = 0; r < LANES; r++)
        for (int l = r + 1; l < LANES; l++) {
            const real x = rows[r][l];
            rows[r][l] = rows[l][r];
            rows[l][r] = x;
        }
}
#endif

INLINE int all(M m) { return lanes_set(m) == (1 << LANES) - 1; }
INLINE V clamp(V x, V low, V high) { return least(most(x, low), high); }
INLINE V magnitude(V x) { return (V)((U)x & ~(U)splat((real)-0.0)); }

/* Loads a vector of which `left` elements exist; lanes past them are 0. */
INLINE V load(const real *p, size_t left) {
    V v = {0};
    if (left >= LANES) memcpy(&v, p, sizeof v);
    else v = load_part(p, left);
    return v;
}

INLINE void store(real *p, V v, size_t left) {
    if (left >= LANES) memcpy(p, &v, sizeof v);
    else store_part(p, v, left);
}

/* Lane l is set when mask[l] is not 0 and l < left; without a mask every lane below `left` is. */
INLINE M load_mask(const uint8_t *mask, size_t left) {
    uint8_t padded[LANES] = {0};
    if (!mask) return first_lanes(left);
    for (size_t l = 0; l < left && left < LANES; l++) padded[l] = mask[l];
    return ~(widen(left < LANES ? padded : mask) == 0);
}

/* Four reals as doubles and back. */
typedef real F __attribute__((vector_size(4 * sizeof(real))));
typedef double D __attribute__((vector_size(32)));
#if defined(__AVX2__) && defined(REAL_F32) /* for the general form gcc 12 emits five instructions */
INLINE D to_doubles(F x) { return (D)_mm256_cvtps_pd((__m128)x); }
INLINE F from_doubles(D x) { return (F)_mm256_cvtpd_ps((__m256d)x); }
#else
INLINE D to_doubles(F x) { return __builtin_convertvector(x, D); }
INLINE F from_doubles(D x) { return __builtin_convertvector(x, F); }
#endif

/* Adds the lanes in order, in double. */
INLINE double add_lanes(V v) {
    double s = 0;
    for (int l = 0; l < LANES; l++) s += (double)v[l];
    return s;
}

#endif
