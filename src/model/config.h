/* config.h - the configuration of a model: config.json and generation_config.json, and the tensors that follow from them. Private.
 *
 * Supported: Llama (also SmolLM2, TinyLlama), Mistral without a sliding window, Qwen2 and Qwen2.5, Qwen3. Any other setting of
 * config.json is an error that names it. The spellings of transformers 4 and 5 are read: docs/model-files.md. */
#ifndef REIN_MODEL_CONFIG_H
#define REIN_MODEL_CONFIG_H

#include <jansson.h>

#include "rein/base.h"
#include "safetensors.h"

typedef enum rein_family { REIN_LLAMA, REIN_MISTRAL, REIN_QWEN2, REIN_QWEN3, REIN_FAMILIES } rein_family;

typedef enum rein_rope_type { REIN_ROPE_DEFAULT, REIN_ROPE_LINEAR, REIN_ROPE_LLAMA3 } rein_rope_type;

/* Rotary embedding. The frequencies are theta^(-2i/head_dim); linear divides all of them by `factor`, llama3 only those of long
 * waves. */
typedef struct rein_rope {
    rein_rope_type type;
    double theta;
    double factor;                            /* linear, llama3; else 1 */
    double low_freq_factor, high_freq_factor; /* llama3; else 0 */
    int64_t original_max_positions;           /* llama3; else 0 */
} rein_rope;

enum { REIN_MAX_EOS = 16 };

/* Sizes are bounded, so that the number of elements of a tensor fits 63 bits. A plain value that may be copied. */
typedef struct rein_model_config {
    rein_family family;
    int64_t vocab_size, hidden_size, intermediate_size;
    int64_t n_layers, n_heads, n_kv_heads, head_dim; /* n_kv_heads divides n_heads; head_dim is even */
    int64_t max_positions;
    double rms_norm_eps;
    rein_rope rope;
    int tie_word_embeddings;   /* the head is the embedding */
    int qkv_bias, o_bias;      /* of attention */
    int mlp_bias;              /* of gate, up and down */
    int qk_norm;               /* RMSNorm of each head's q and k, before the rotary embedding */
    int64_t bos;               /* -1: none */
    int64_t eos[REIN_MAX_EOS]; /* each of them ends a completion */
    int n_eos;
    int has_dtype;
    rein_tensor_type dtype; /* the type of the weights according to the file; the tensors may differ */
} rein_model_config;

/* The name of a family: "llama", "mistral", "qwen2", "qwen3". Static storage; thread-safe. */
const char *rein_family_name(rein_family family);

/* Reads DIRECTORY/config.json, and DIRECTORY/generation_config.json if it exists, whose bos and eos take precedence.
 * Thread-safe. */
rein_status rein_model_config_read(rein_model_config *config, const char *directory, rein_error *err);

/* Does the same from parsed objects; `generation` may be NULL. The file names are for messages. Thread-safe. */
rein_status rein_model_config_parse(rein_model_config *config, const char *file, const json_t *json, const char *generation_file,
                                    const json_t *generation, rein_error *err);

/* Writes the config.json of a model that was made from the one in `from_directory`: the same JSON with another type of the weights
 * (dtype or torch_dtype, as the original spells it) and another tie_word_embeddings, where they differ. */
rein_status rein_model_config_write(const char *to_directory, const char *from_directory, rein_tensor_type dtype,
                                    int tie_word_embeddings, rein_error *err);

/* ---- the tensors of a model, by the names Hugging Face gives them */
typedef struct rein_weight {
    char name[96];
    int n_dims;
    size_t shape[2];
} rein_weight;

/* The number of tensors of the model, and the i-th of them: the embedding, the layers in order, the last norm, the head (unless it
 * is tied). Thread-safe. */
size_t rein_model_weights(const rein_model_config *config);
void rein_model_weight(rein_weight *weight, const rein_model_config *config, size_t i);

/* How the model uses a tensor of a file. Thread-safe. */
typedef enum rein_weight_use {
    REIN_WEIGHT_USED,
    REIN_WEIGHT_BUFFER, /* computed, not learned: rotary frequencies in old files. Needs no warning */
    REIN_WEIGHT_TIED,   /* the head of a model whose head is the embedding: not read */
    REIN_WEIGHT_IGNORED /* not part of this model: needs a warning */
} rein_weight_use;
rein_weight_use rein_model_weight_use(const rein_model_config *config, const char *name);

/* Checks that the set has every tensor of the model, in the right shape and in a type that can hold weights. Additional tensors
 * are no error: see rein_model_weight_use. Thread-safe. */
rein_status rein_model_check(const rein_model_config *config, const rein_tensors *tensors, rein_error *err);

#endif
