/* weight_type.h - the types that weights can have: one row each, which reading, binding and saving use. Private. Thread-safe. */
#ifndef REIN_MODEL_WEIGHT_TYPE_H
#define REIN_MODEL_WEIGHT_TYPE_H

#include "kernel/storage.h"
#include "safetensors.h"

typedef struct rein_weight_type {
    rein_tensor_type dtype; /* in files */
    const char *word;       /* in config.json: "bfloat16"; NULL: a type of quantised weights, which safetensors files cannot have */
    rein_storage storage;   /* in kernels */
    double limit;           /* numbers of at least this magnitude round to infinity */
    /* Round x [n] to the nearest number of the type, ties to even; to Q8_0 and Q4_0 as ggml's reference quantisation does, n being whole
     * blocks. NULL for the other types of blocks, which are only read. */
    void (*round)(void *to, const double *x, size_t n);
    void (*round_f32)(void *to, const float *x, size_t n);
} rein_weight_type;

/* Row i, or NULL past the last. */
const rein_weight_type *rein_weight_type_at(size_t i);

/* The row of a type; NULL: weights cannot have it. */
const rein_weight_type *rein_weight_type_of(rein_tensor_type dtype);

/* All types of safetensors files as text, for messages: "F32, BF16 or F16" with "or" as the last link. Returns `to`. */
enum { REIN_WEIGHT_TYPES_SHOWN = 100 };
const char *rein_weight_types_show(char to[REIN_WEIGHT_TYPES_SHOWN], const char *last_link);

/* The same in the words of config.json: "float32, bfloat16 and float16". */
const char *rein_weight_words_show(char to[REIN_WEIGHT_TYPES_SHOWN], const char *last_link);

#endif
