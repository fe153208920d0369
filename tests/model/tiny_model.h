/* tiny_model.h - models of a few hundred numbers, written below the temporary folder of the test. */
#ifndef REIN_TESTS_TINY_MODEL_H
#define REIN_TESTS_TINY_MODEL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "model/config.h"
#include "model/float16.h"
#include "model/weight_type.h"
#include "support/folder.h"

typedef struct tiny {
    const char *family, *architecture;
    int layers, tied;
    rein_tensor_type dtype;
    int f32_vectors; /* norms and biases are f32, whatever dtype is */
} tiny;

static const tiny TINY_LLAMA = {"llama", "LlamaForCausalLM", 2, 0, REIN_TENSOR_F32, 0};

static uint64_t tiny_state = 1;
/* Numbers of 24 bits in ±1; any stream does. */
static inline float tiny_number(void) {
    tiny_state = tiny_state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(tiny_state >> 40) / 0x1p23 - 1);
}

static inline void tiny_config(const tiny *t, const char *directory) {
    static const char *const types[] = {
        [REIN_TENSOR_F32] = "float32", [REIN_TENSOR_BF16] = "bfloat16", [REIN_TENSOR_F16] = "float16"};
    char text[1000], path[2000];
    snprintf(path, sizeof path, "%s/config.json", directory);
    const int n =
        snprintf(text, sizeof text,
                 "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"vocab_size\": 10, \"hidden_size\": 8, "
                 "\"intermediate_size\": 6, \"num_hidden_layers\": %d, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
                 "\"head_dim\": 4, \"tie_word_embeddings\": %s, \"torch_dtype\": \"%s\", \"sliding_window\": null}",
                 t->architecture, t->family, t->layers, t->tied ? "true" : "false", types[t->dtype]);
    if (rein_file_write(path, text, (size_t)n, NULL) != REIN_OK) abort();
}

static inline void *tiny_numbers(rein_tensor_type dtype, size_t n) {
    uint32_t *data = calloc(n, sizeof *data);
    for (size_t i = 0; i < n; i++) {
        const double x = (double)tiny_number();
        rein_weight_type_of(dtype)->round((char *)data + rein_tensor_type_bytes(dtype, i), &x, 1);
    }
    return data;
}

/* Writes a model into an existing directory. */
static inline void tiny_model(const tiny *t, const char *directory) {
    rein_model_config config;
    rein_weight names[200];
    rein_tensor tensors[200] = {0};
    char path[2000];
    tiny_config(t, directory);
    if (rein_model_config_read(&config, directory, NULL) != REIN_OK || rein_model_weights(&config) > 200) abort();
    const size_t n = rein_model_weights(&config);
    for (size_t i = 0; i < n; i++) {
        rein_weight *w = &names[i];
        rein_model_weight(w, &config, i);
        const rein_tensor_type dtype = t->f32_vectors && w->n_dims == 1 ? REIN_TENSOR_F32 : t->dtype;
        tensors[i] = (rein_tensor){.name = w->name, .dtype = dtype, .n_dims = w->n_dims, .shape = {w->shape[0], w->shape[1]}};
        rein_tensor_bytes(&tensors[i].bytes, dtype, w->shape, w->n_dims);
        tensors[i].data = tiny_numbers(dtype, tensors[i].bytes / rein_tensor_type_bytes(dtype, 1));
    }
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    if (rein_tensors_write(path, tensors, n, NULL, 0, NULL) != REIN_OK) abort();
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)tensors[i].data);
}

/* A number of a tensor of any type, decoded bit by bit, in another way than the library's. */
static inline double tiny_value(const rein_tensor *t, size_t i) {
    if (t->dtype == REIN_TENSOR_F32) return (double)((const float *)t->data)[i];
    const unsigned bits = ((const uint16_t *)t->data)[i], f16 = t->dtype == REIN_TENSOR_F16;
    const int places = f16 ? 10 : 7, bias = f16 ? 15 : 127;
    const int exponent = (int)(bits >> places) & (f16 ? 31 : 255), mantissa = (int)(bits & ((1u << places) - 1));
    if (exponent == (f16 ? 31 : 255)) return mantissa ? (double)NAN : bits >> 15 ? -(double)INFINITY : (double)INFINITY;
    const double size = exponent ? ldexp(mantissa + (1 << places), exponent - bias - places) : ldexp(mantissa, 1 - bias - places);
    return bits >> 15 ? -size : size;
}

#endif
