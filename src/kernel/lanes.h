/* lanes.h - vectors of reals with the same arithmetic on every instruction set. Private.
 *
 * A source that includes this is compiled once per type (REAL_F32 or REAL_F64) and instruction set; REIN_SUFFIX names the pair. V holds
 * LANES reals. M holds one integer a lane; a comparison sets a lane to all ones or all zeros. Every operation is one IEEE operation per
 * lane, including fma, and nothing is reassociated, so each build gives the same bits. The compiler puts V into registers. Only operations
 * that C has no operator for, such as fma, are written per instruction set.
 *
 * A vector has 32 bytes. A source whose bits do not depend on the length may define REIN_WIDE; with AVX-512 its vectors have 64 bytes. */
#ifndef REIN_KERNEL_LANES_H
#define REIN_KERNEL_LANES_H

#include <float.h>
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

#if defined(REIN_WIDE) && defined(__AVX512F__)
#define WIDE 1
#define VECTOR_BYTES 64
#else
#define WIDE 0
#define VECTOR_BYTES 32
#endif

#if defined(REAL_F32)
typedef float real;
typedef int32_t whole;
typedef uint32_t bits;
#define LANES (VECTOR_BYTES / 4)
#define NEXT_BELOW(x) nextafterf(x, -INFINITY)
#define MANTISSA 23
#define EPSILON FLT_EPSILON
#define EXPONENT_BIAS 127
#else
typedef double real;
typedef int64_t whole;
typedef uint64_t bits;
#define LANES (VECTOR_BYTES / 8)
#define NEXT_BELOW(x) nextafter(x, (double)-INFINITY)
#define MANTISSA 52
#define EPSILON DBL_EPSILON
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
#if LANES == 16
INLINE V splat(real x) { return (V){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
#elif LANES == 8
INLINE V splat(real x) { return (V){x, x, x, x, x, x, x, x}; }
#else
INLINE V splat(real x) { return (V){x, x, x, x}; }
#endif

/* Keeps a value in a register, where the compiler would reload it from memory at each use. */
INLINE V in_register(V v) {
#if defined(__AVX2__) && !WIDE
    __asm__("" : "+x"(v));
#endif
    return v;
}

/* m ? a : b, lane by lane. It selects bits, so a NaN in a lane that is not chosen has no effect. */
INLINE V pick(M m, V a, V b) { return (V)(((M)a & m) | ((M)b & ~m)); }
INLINE V keep(M m, V a) { return (V)((M)a & m); }

#if WIDE && defined(REAL_F32)
INLINE V fmadd(V a, V b, V c) { return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE V fnmadd(V a, V b, V c) { return (V)_mm512_fnmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE V fmsub(V a, V b, V c) { return (V)_mm512_fmsub_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE V least(V a, V b) { return (V)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE V most(V a, V b) { return (V)_mm512_max_ps((__m512)a, (__m512)b); }
#elif WIDE
INLINE V fmadd(V a, V b, V c) { return (V)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
INLINE V fnmadd(V a, V b, V c) { return (V)_mm512_fnmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
INLINE V fmsub(V a, V b, V c) { return (V)_mm512_fmsub_pd((__m512d)a, (__m512d)b, (__m512d)c); }
INLINE V least(V a, V b) { return (V)_mm512_min_pd((__m512d)a, (__m512d)b); }
INLINE V most(V a, V b) { return (V)_mm512_max_pd((__m512d)a, (__m512d)b); }
#elif defined(__AVX2__) && defined(REAL_F32)
INLINE V fmadd(V a, V b, V c) { return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE V fnmadd(V a, V b, V c) { return (V)_mm256_fnmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE V fmsub(V a, V b, V c) { return (V)_mm256_fmsub_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE V least(V a, V b) { return (V)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE V most(V a, V b) { return (V)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE int lanes_set(M m) { return _mm256_movemask_ps((__m256)m); }
INLINE M widen(const uint8_t *p) { return (M)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)); }
#elif defined(__AVX2__)
INLINE V fmadd(V a, V b, V c) { return (V)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
INLINE V fnmadd(V a, V b, V c) { return (V)_mm256_fnmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
INLINE V fmsub(V a, V b, V c) { return (V)_mm256_fmsub_pd((__m256d)a, (__m256d)b, (__m256d)c); }
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
INLINE V fnmadd(V a, V b, V c) { return fmadd(-a, b, c); } /* c − a·b */
INLINE V fmsub(V a, V b, V c) { return fmadd(a, b, -c); }
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

#if !WIDE && defined(REAL_F32)
INLINE M lane_numbers(void) { return (M){0, 1, 2, 3, 4, 5, 6, 7}; }
#elif !WIDE
INLINE M lane_numbers(void) { return (M){0, 1, 2, 3}; }
#endif
#if !WIDE
INLINE M first_lanes(size_t left) { return lane_numbers() < (whole)(left < LANES ? left : LANES); }
#endif

/* Loads or stores only the first `left` lanes, fewer than LANES. Memory past them is not touched; loaded lanes past them are 0. */
#if WIDE && defined(REAL_F32)
INLINE V load_part(const real *p, size_t left) { return (V)_mm512_maskz_loadu_ps((__mmask16)((1 << left) - 1), p); }
INLINE void store_part(real *p, V v, size_t left) { _mm512_mask_storeu_ps(p, (__mmask16)((1 << left) - 1), (__m512)v); }
#elif WIDE
INLINE V load_part(const real *p, size_t left) { return (V)_mm512_maskz_loadu_pd((__mmask8)((1 << left) - 1), p); }
INLINE void store_part(real *p, V v, size_t left) { _mm512_mask_storeu_pd(p, (__mmask8)((1 << left) - 1), (__m512d)v); }
#elif defined(__AVX2__) && defined(REAL_F32)
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

/* Writes the lanes that are set, in order, to the front of to [LANES] and returns their number. The rest of `to` is unspecified. */
#if WIDE && defined(REAL_F32)
INLINE size_t compress(real *to, __mmask16 m, V v) {
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(m, (__m512)v));
    return (size_t)__builtin_popcount(m);
}
#elif WIDE
INLINE size_t compress(real *to, __mmask8 m, V v) {
    _mm512_storeu_pd(to, _mm512_maskz_compress_pd(m, (__m512d)v));
    return (size_t)__builtin_popcount(m);
}
#elif defined(__AVX2__)
#define PLACE_(m, l) ((m) >> (l)&1 ? (uint64_t)PLACE_OF(l) << PLACE_SHIFT * __builtin_popcount((m) & ((1 << (l)) - 1)) : 0)
#ifdef REAL_F32
#define PLACE_OF(l) (l)
#define PLACE_SHIFT 8
#define PLACES1(m) \
    PLACE_(m, 0) | PLACE_(m, 1) | PLACE_(m, 2) | PLACE_(m, 3) | PLACE_(m, 4) | PLACE_(m, 5) | PLACE_(m, 6) | PLACE_(m, 7)
#else /* as pairs of 32-bit halves */
#define PLACE_OF(l) ((2 * (l)) | (2 * (l) + 1) << 8)
#define PLACE_SHIFT 16
#define PLACES1(m) PLACE_(m, 0) | PLACE_(m, 1) | PLACE_(m, 2) | PLACE_(m, 3)
#endif
#define PLACES4(m) PLACES1(m), PLACES1((m) + 1), PLACES1((m) + 2), PLACES1((m) + 3)
#define PLACES16(m) PLACES4(m), PLACES4((m) + 4), PLACES4((m) + 8), PLACES4((m) + 12)
#define PLACES64(m) PLACES16(m), PLACES16((m) + 16), PLACES16((m) + 32), PLACES16((m) + 48)
INLINE size_t compress(real *to, M m, V v) {
#ifdef REAL_F32
    static const uint64_t places[256] = {PLACES64(0), PLACES64(64), PLACES64(128), PLACES64(192)};
    const unsigned set = (unsigned)lanes_set(m);
#else
    static const uint64_t places[16] = {PLACES16(0)};
    const unsigned set = (unsigned)lanes_set(m);
#endif
    const __m256i from = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)&places[set]));
    const __m256 packed = _mm256_permutevar8x32_ps((__m256)v, from);
    memcpy(to, &packed, sizeof packed);
    return (size_t)__builtin_popcount(set);
}
#else
INLINE size_t compress(real *to, M m, V v) {
    size_t n = 0;
    for (int l = 0; l < LANES; l++)
        if (m[l]) to[n++] = v[l];
    return n;
}
#endif

/* Lane l of row r becomes lane r of row l. */
#if defined(__AVX2__) && defined(REAL_F32) && !WIDE
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

#if !WIDE
INLINE int all(M m) { return lanes_set(m) == (1 << LANES) - 1; }
#endif
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

/* ---- P, a set of lanes in the form that comparisons give: one bit per lane with wide vectors, else one lane each */
#if WIDE && defined(REAL_F32)
typedef __mmask16 P;
INLINE P at_most(V a, V b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LE_OQ); }
INLINE P more_than(V a, V b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ); }
INLINE V only(P p, V v) { return (V)_mm512_maskz_mov_ps(p, (__m512)v); }
INLINE V choose(P p, V a, V b) { return (V)_mm512_mask_mov_ps((__m512)b, p, (__m512)a); }
#elif WIDE
typedef __mmask8 P;
INLINE P at_most(V a, V b) { return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_LE_OQ); }
INLINE P more_than(V a, V b) { return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_GT_OQ); }
INLINE V only(P p, V v) { return (V)_mm512_maskz_mov_pd(p, (__m512d)v); }
INLINE V choose(P p, V a, V b) { return (V)_mm512_mask_mov_pd((__m512d)b, p, (__m512d)a); }
#else
typedef M P;
INLINE P at_most(V a, V b) { return a <= b; }
#if defined(__AVX2__) && defined(REAL_F32) /* the compiler would turn a > b into b < a, and b could not be a memory operand */
INLINE P more_than(V a, V b) { return (P)_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GT_OQ); }
#elif defined(__AVX2__)
INLINE P more_than(V a, V b) { return (P)_mm256_cmp_pd((__m256d)a, (__m256d)b, _CMP_GT_OQ); }
#else
INLINE P more_than(V a, V b) { return a > b; }
#endif
INLINE V only(P p, V v) { return keep(p, v); } /* 0 elsewhere */
INLINE V choose(P p, V a, V b) { return pick(p, a, b); }
INLINE unsigned lanes_of(P p) { return (unsigned)lanes_set(p); } /* one bit per lane */
INLINE P all_lanes(void) { return (M)splat(0) == (M)splat(0); }
#endif

/* v in the lanes of p, NaN in the others. */
#if WIDE
INLINE V blank(P p, V v) { return choose(p, v, splat((real)NAN)); }
INLINE unsigned lanes_of(P p) { return p; }
INLINE P all_lanes(void) { return (P)-1; }
#else
INLINE V blank(P p, V v) { return (V)((M)v | ~p); }
#endif
INLINE size_t how_many(P p) { return (size_t)__builtin_popcount(lanes_of(p)); }

/* Lane l is set if l < left and mask[l] is not 0. Without a mask every lane below `left` is set. */
#if !WIDE
INLINE M load_mask(const uint8_t *mask, size_t left) {
    uint8_t padded[LANES] = {0};
    if (!mask) return first_lanes(left);
    for (size_t l = 0; l < left && left < LANES; l++) padded[l] = mask[l];
    M off = widen(left < LANES ? padded : mask) == 0;
#ifdef __AVX2__
    __asm__("" : "+x"(off)); /* hides the comparison: the compiler would blend where a logical operation is enough */
#endif
    return ~off;
}
#endif

#if WIDE
/* Vectors whose first half is at a (n_a elements) and whose second half is at b (n_b elements): numbers, and marks of a mask. */
enum { HALF_LANES = LANES / 2 };
#ifdef REAL_F32
#define LOAD_SOME _mm256_maskz_loadu_epi32
#define STORE_SOME _mm256_mask_storeu_epi32
#define TWO_MARKS _mm_unpacklo_epi64
#else
#define LOAD_SOME _mm256_maskz_loadu_epi64
#define STORE_SOME _mm256_mask_storeu_epi64
#define TWO_MARKS _mm_unpacklo_epi32
#endif
INLINE unsigned first_bits(size_t n) { return (1u << n) - 1; }
INLINE __m256i load_half(const real *p, size_t n) {
    return n == HALF_LANES ? _mm256_loadu_si256((const __m256i *)(const void *)p) : LOAD_SOME((__mmask8)first_bits(n), p);
}
INLINE void store_half(real *p, __m256i v, size_t n) {
    if (n == HALF_LANES) _mm256_storeu_si256((__m256i *)(void *)p, v);
    else STORE_SOME(p, (__mmask8)first_bits(n), v);
}
INLINE V load_two(const real *a, size_t n_a, const real *b, size_t n_b) {
    return (V)_mm512_inserti64x4(_mm512_castsi256_si512(load_half(a, n_a)), load_half(b, n_b), 1);
}
INLINE void store_two(real *a, size_t n_a, real *b, size_t n_b, V v) {
    store_half(a, _mm512_castsi512_si256((__m512i)v), n_a);
    store_half(b, _mm512_extracti64x4_epi64((__m512i)v, 1), n_b);
}
INLINE P marked_two(const uint8_t *a, size_t n_a, const uint8_t *b, size_t n_b) { /* a NULL: every element is set */
    const P within = (P)(first_bits(n_a) | first_bits(n_b) << HALF_LANES);
    if (!a) return within;
    const __m128i marks =
        TWO_MARKS(_mm_maskz_loadu_epi8((__mmask16)first_bits(n_a), a), _mm_maskz_loadu_epi8((__mmask16)first_bits(n_b), b));
    return (P)(within & _mm_test_epi8_mask(marks, marks));
}
#endif

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
