/* random_model.h - a model of random bf16 weights in a directory, for the benches that run one. */
#ifndef REIN_BENCH_RANDOM_MODEL_H
#define REIN_BENCH_RANDOM_MODEL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"

static inline void bench_must(rein_status status, const rein_error *err) {
    if (!status) return;
    fprintf(stderr, "bench: %s\n", err->message);
    exit(1);
}

static inline void *bench_get(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (!p) exit(1);
    return p;
}

typedef struct bench_shape {
    const char *name;
    int hidden, middle, layers, heads, kv_heads, vocabulary;
} bench_shape;

static inline void bench_write_model(const char *directory, const bench_shape *s) {
    char path[400];
    rein_error err;
    rein_model_config config;
    snprintf(path, sizeof path, "%s/config.json", directory);
    FILE *f = fopen(path, "w");
    if (!f) exit(1);
    fprintf(f,
            "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": %d, \"hidden_size\": %d, "
            "\"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
            "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"max_position_embeddings\": 2048, "
            "\"tie_word_embeddings\": true, \"bos_token_id\": 1, \"eos_token_id\": 2}\n",
            s->vocabulary, s->hidden, s->middle, s->layers, s->heads, s->kv_heads);
    fclose(f);
    bench_must(rein_model_config_read(&config, directory, &err), &err);
    const size_t n = rein_model_weights(&config);
    rein_tensor *tensors = bench_get(n * sizeof *tensors);
    rein_weight *weights = bench_get(n * sizeof *weights);
    for (size_t i = 0; i < n; i++) {
        rein_model_weight(&weights[i], &config, i);
        const size_t size = weights[i].shape[0] * (weights[i].n_dims == 2 ? weights[i].shape[1] : 1);
        uint16_t *data = bench_get(2 * size);
        for (size_t k = 0; k < size; k++) {
            const uint64_t bits = (k + 1 + i * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
            const float value = weights[i].n_dims == 1 ? 1 : 0.04f * ((float)(bits >> 40) * 0x1p-24f - 0.5f);
            uint32_t word;
            memcpy(&word, &value, sizeof word);
            data[k] = (uint16_t)(word >> 16);
        }
        tensors[i] = (rein_tensor){.name = weights[i].name,
                                   .dtype = REIN_TENSOR_BF16,
                                   .n_dims = weights[i].n_dims,
                                   .shape = {weights[i].shape[0], weights[i].shape[1]},
                                   .data = data,
                                   .bytes = 2 * size};
    }
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    bench_must(rein_tensors_write(path, tensors, n, NULL, 0, &err), &err);
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)tensors[i].data);
    free(tensors);
    free(weights);
}

#endif
