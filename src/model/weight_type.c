/* weight_type.c - the table of the types that weights can have. */
#include "weight_type.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "float16.h"

static void round_to_f32(void *to, const double *x, size_t n) {
    for (size_t i = 0; i < n; i++) ((float *)to)[i] = (float)x[i];
}

static void copy_f32(void *to, const float *x, size_t n) { memcpy(to, x, n * sizeof *x); }

static void round_to_bf16(void *to, const double *x, size_t n) {
    for (size_t i = 0; i < n; i++) ((uint16_t *)to)[i] = rein_to_bf16(rein_round_to_odd(x[i]));
}

static void round_f32_to_bf16(void *to, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) ((uint16_t *)to)[i] = rein_to_bf16(x[i]);
}

static void round_to_f16(void *to, const double *x, size_t n) {
    for (size_t i = 0; i < n; i++) ((uint16_t *)to)[i] = rein_to_f16(rein_round_to_odd(x[i]));
}

static void round_f32_to_f16(void *to, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) ((uint16_t *)to)[i] = rein_to_f16(x[i]);
}

/* ---- blocks, as the reference quantisation of ggml rounds them: the scale is computed and used in f32, and stored as f16 */

enum { BLOCK = 32 };

static void put_scale(uint8_t *to, float d) {
    const uint16_t h = rein_to_f16(d);
    memcpy(to, &h, sizeof h);
}

/* 1/d; 0 for 0, and where it would be infinite: then the scale is 0 as an f16 too. */
static float inverse_of(float d) {
    const float inverse = d != 0 ? 1 / d : 0;
    return isfinite(inverse) ? inverse : 0;
}

/* The largest magnitude becomes 127; halves are rounded away from 0. */
static void round_f32_to_q8_0(void *to, const float *x, size_t n) {
    uint8_t *block = to;
    for (size_t i = 0; i < n; i += BLOCK, x += BLOCK, block += 2 + BLOCK) {
        float most = 0;
        for (size_t j = 0; j < BLOCK; j++) most = fmaxf(most, fabsf(x[j]));
        const float d = most / 127, inverse = inverse_of(d);
        put_scale(block, d);
        for (size_t j = 0; j < BLOCK; j++) {
            const float q = roundf(x[j] * inverse);
            block[2 + j] = (uint8_t)(q >= -127 && q <= 127 ? (int)q : 0); /* 0: not a number */
        }
    }
}

/* The number of the largest magnitude, the first of equals, becomes −8. */
static void round_f32_to_q4_0(void *to, const float *x, size_t n) {
    uint8_t *block = to;
    for (size_t i = 0; i < n; i += BLOCK, x += BLOCK, block += 2 + BLOCK / 2) {
        float most = 0;
        for (size_t j = 0; j < BLOCK; j++)
            if (fabsf(x[j]) > fabsf(most)) most = x[j];
        const float d = most / -8, inverse = inverse_of(d);
        put_scale(block, d);
        for (size_t j = 0; j < BLOCK / 2; j++) {
            const float low = x[j] * inverse + 8.5f, high = x[j + BLOCK / 2] * inverse + 8.5f;
            const int q = low >= 0 && low < 16 ? (int)low
                          : low > 0            ? 15
                                               : 0,
                      p = high >= 0 && high < 16 ? (int)high
                          : high > 0             ? 15
                                                 : 0;
            block[2 + j] = (uint8_t)(q | p << 4);
        }
    }
}

/* Rounds f64 to f32 first. */
static void round_blocks(void *to, const double *x, size_t n, void (*round_f32)(void *to, const float *x, size_t n), size_t bytes) {
    float block[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK) {
        round_to_f32(block, x + i, BLOCK);
        round_f32((char *)to + i / BLOCK * bytes, block, BLOCK);
    }
}

static void round_to_q8_0(void *to, const double *x, size_t n) { round_blocks(to, x, n, round_f32_to_q8_0, 34); }
static void round_to_q4_0(void *to, const double *x, size_t n) { round_blocks(to, x, n, round_f32_to_q4_0, 18); }

static const rein_weight_type TYPES[] = {
    {REIN_TENSOR_F32, "float32", REIN_STORED_F32, 0x1.ffffffp127, round_to_f32, copy_f32},
    {REIN_TENSOR_BF16, "bfloat16", REIN_STORED_BF16, 0x1.ffp127, round_to_bf16, round_f32_to_bf16},
    {REIN_TENSOR_F16, "float16", REIN_STORED_F16, 65520, round_to_f16, round_f32_to_f16},
    {REIN_TENSOR_Q8_0, NULL, REIN_STORED_Q8_0, 65520.0 * 127, round_to_q8_0, round_f32_to_q8_0},
    {REIN_TENSOR_Q4_0, NULL, REIN_STORED_Q4_0, 65520.0 * 8, round_to_q4_0, round_f32_to_q4_0},
    {REIN_TENSOR_Q4_1, NULL, REIN_STORED_Q4_1, 0, NULL, NULL},
    {REIN_TENSOR_Q5_0, NULL, REIN_STORED_Q5_0, 0, NULL, NULL},
    {REIN_TENSOR_Q5_1, NULL, REIN_STORED_Q5_1, 0, NULL, NULL},
    {REIN_TENSOR_Q4_K, NULL, REIN_STORED_Q4_K, 0, NULL, NULL},
    {REIN_TENSOR_Q5_K, NULL, REIN_STORED_Q5_K, 0, NULL, NULL},
    {REIN_TENSOR_Q6_K, NULL, REIN_STORED_Q6_K, 0, NULL, NULL},
};
enum { N_TYPES = sizeof TYPES / sizeof *TYPES };
_Static_assert((int)N_TYPES == (int)REIN_STORAGE_COUNT, "every storage type of the kernels has a row");

const rein_weight_type *rein_weight_type_at(size_t i) { return i < N_TYPES ? &TYPES[i] : NULL; }

const rein_weight_type *rein_weight_type_of(rein_tensor_type dtype) {
    for (size_t i = 0; i < N_TYPES; i++)
        if (TYPES[i].dtype == dtype) return &TYPES[i];
    return NULL;
}

/* Those that safetensors files can have, which are the first. */
static const char *show(char to[REIN_WEIGHT_TYPES_SHOWN], int words, const char *last_link) {
    size_t n = 0, count = 0;
    while (count < N_TYPES && TYPES[count].word) count++;
    for (size_t i = 0; i < count && n < REIN_WEIGHT_TYPES_SHOWN; i++) {
        const char *name = words ? TYPES[i].word : rein_tensor_type_name(TYPES[i].dtype);
        const char *before = i == 0 ? "" : i + 1 < count ? ", " : " ", *link = i && i + 1 == count ? last_link : "";
        n += (size_t)snprintf(to + n, REIN_WEIGHT_TYPES_SHOWN - n, "%s%s%s%s", before, link, *link ? " " : "", name);
    }
    return to;
}

const char *rein_weight_types_show(char to[REIN_WEIGHT_TYPES_SHOWN], const char *last_link) { return show(to, 0, last_link); }

const char *rein_weight_words_show(char to[REIN_WEIGHT_TYPES_SHOWN], const char *last_link) { return show(to, 1, last_link); }
