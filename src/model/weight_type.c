/* weight_type.c - the table of the types that weights can have. */
#include "weight_type.h"

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

static const rein_weight_type TYPES[] = {
    {REIN_TENSOR_F32, "float32", REIN_STORED_F32, 0x1.ffffffp127, round_to_f32, copy_f32},
    {REIN_TENSOR_BF16, "bfloat16", REIN_STORED_BF16, 0x1.ffp127, round_to_bf16, round_f32_to_bf16},
    {REIN_TENSOR_F16, "float16", REIN_STORED_F16, 65520, round_to_f16, round_f32_to_f16},
    {REIN_TENSOR_Q8_0, NULL, REIN_STORED_Q8_0, 0, NULL, NULL},
    {REIN_TENSOR_Q4_0, NULL, REIN_STORED_Q4_0, 0, NULL, NULL},
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
