/* config.h - the configuration of a model: config.json and generation_config.json, and the tensors that follow from them. Private.
 *
 * The families are listed in family.h. A setting of config.json that is not supported is an error that names it. The spellings of
 * transformers 4 and 5 are read: docs/model-files.md. */
#ifndef REIN_MODEL_CONFIG_H
#define REIN_MODEL_CONFIG_H

#include <jansson.h>

#include "family.h"
#include "rein/base.h"
#include "safetensors.h"

typedef enum rein_rope_type {
    REIN_ROPE_DEFAULT,
    REIN_ROPE_LINEAR,
    REIN_ROPE_LLAMA3,
    REIN_ROPE_YARN,
    REIN_ROPE_LONGROPE
} rein_rope_type;

enum { REIN_MAX_ROPE_FACTORS = 256 };

/* Rotary embedding. The frequencies are theta^(-2i/dims), dims = head_dim·partial. linear divides all of them by `factor`, llama3 only those
 * of long waves, yarn those of waves outside a range, longrope each by a factor of its own. Cosines and sines are multiplied by
 * attention_factor. */
typedef struct rein_rope {
    rein_rope_type type;
    double theta; /* 0: there is none */
    double partial;
    double factor;                            /* linear, llama3, yarn; else 1 */
    double low_freq_factor, high_freq_factor; /* llama3; else 0 */
    int64_t original_max_positions;           /* llama3, yarn, longrope; else 0 */
    double beta_fast, beta_slow;              /* yarn */
    int whole_range;                          /* yarn: the ends of the range are whole numbers */
    double attention_factor;                  /* yarn, longrope; else 1 */
    int n_factors;                            /* longrope */
    float factors[REIN_MAX_ROPE_FACTORS];
} rein_rope;

enum { REIN_MAX_LAYERS = 1024, REIN_MAX_EXPERTS = 1024 };

/* How a layer differs from the others. */
enum { REIN_LAYER_WINDOW = 1, REIN_LAYER_NO_ROPE = 2, REIN_LAYER_EXPERTS = 4 };

enum { REIN_MAX_EOS = 16 };

/* Sizes are bounded, so that the number of elements of a tensor fits 63 bits. A plain value that may be copied. */
typedef struct rein_model_config {
    const rein_family *family;
    int64_t vocab_size, hidden_size, intermediate_size;
    int64_t n_layers, n_heads, n_kv_heads, head_dim; /* n_kv_heads divides n_heads; head_dim is even */
    int64_t max_positions;
    double rms_norm_eps;
    rein_rope rope, window_rope;     /* window_rope: of layers with a window; without theta they have the same as the others */
    int64_t window;                  /* keys that a query sees in a layer with a window */
    uint8_t layers[REIN_MAX_LAYERS]; /* REIN_LAYER_… */
    double score_scale;              /* of q·k; 0: 1/√head_dim */
    double score_cap, logit_cap;     /* 0: none */
    double embedding_scale, residual_scale, logit_divisor;
    rein_activation activation;
    /* Layers with REIN_LAYER_EXPERTS: a router chooses some of n_experts MLPs of width expert_size for each token. normalise_experts: the
     * probabilities of those that are chosen are divided by their sum. n_experts is 0 if no layer has them. */
    int64_t n_experts, experts_per_token, expert_size;
    int normalise_experts;
    int tie_word_embeddings; /* the head is the embedding */
    int qkv_bias, o_bias;    /* of attention */
    int mlp_bias;            /* of gate, up and down */
    rein_qk_norm qk_norm;
    int64_t bos, pad;          /* -1: none */
    int64_t eos[REIN_MAX_EOS]; /* each of them ends a completion */
    int n_eos;
    double initializer_range; /* the standard deviation of new matrices */
    int classifies;           /* config.json is that of a …ForSequenceClassification */
    int64_t labels;           /* of it: num_labels */
    int score;                /* set by who opens the model: it has a score head in place of the head over the vocabulary */
    int has_dtype;
    rein_tensor_type dtype; /* the type of the weights according to the file; the tensors may differ */
} rein_model_config;

/* The largest width of an MLP: that of dense layers, or of an expert. */
static inline size_t rein_widest_mlp(const rein_model_config *c) {
    return (size_t)(c->n_experts && c->expert_size > c->intermediate_size ? c->expert_size : c->intermediate_size);
}

/* The first layer with experts (1), or without (0); n_layers: there is none. */
static inline size_t rein_first_layer(const rein_model_config *c, int with_experts) {
    size_t l = 0;
    while (l < (size_t)c->n_layers && (c->layers[l] & REIN_LAYER_EXPERTS) != (with_experts ? REIN_LAYER_EXPERTS : 0)) l++;
    return l;
}

/* The rope of a layer: 0 is config->rope, 1 config->window_rope; -1: it has none. */
static inline int rein_layer_rope(const rein_model_config *c, size_t layer) {
    if (c->layers[layer] & REIN_LAYER_NO_ROPE) return -1;
    return c->layers[layer] & REIN_LAYER_WINDOW && c->window_rope.theta > 0;
}

/* For the readers of families. The cap of a soft cap: 0 if it is null. A field that must be absent, null or false. */
double rein_config_cap(rein_fields *in, const char *key, double fallback);
void rein_config_refuse(rein_fields *in, const char *key);

/* The numbers of experts fit each other; without a layer that has experts, n_experts becomes 0. */
void rein_config_check_experts(rein_model_config *to, rein_fields *in);

/* ---- the parts of reading config.json: config_rope.c, config_layers.c. `to` has its family and sizes. */
void rein_config_read_rope(rein_model_config *to, rein_fields *in);
void rein_config_read_windows(rein_model_config *to, rein_fields *in);

/* Reads DIRECTORY/config.json, and DIRECTORY/generation_config.json if it exists, whose bos and eos take precedence.
 * Thread-safe. */
rein_status rein_model_config_read(rein_model_config *config, const char *directory, rein_error *err);

/* Does the same from parsed objects; `generation` may be NULL. The file names are for messages. Thread-safe. */
rein_status rein_model_config_parse(rein_model_config *config, const char *file, const json_t *json, const char *generation_file,
                                    const json_t *generation, rein_error *err);

/* Writes the config.json of a model that was made from the one in `from_directory`: the same JSON with another type of the weights
 * (dtype or torch_dtype, as the original spells it) and another tie_word_embeddings, where they differ; with `pad` (not -1), the architecture of a
 * …ForSequenceClassification of one label whose sequences are padded with that token. */
rein_status rein_model_config_write(const char *to_directory, const char *from_directory, rein_tensor_type dtype,
                                    int tie_word_embeddings, int64_t pad, rein_error *err);

/* ---- the tensors of a model, by the names Hugging Face gives them */

/* The linear modules of a layer, and the head, in the order of adapters. */
typedef enum rein_module {
    REIN_Q,
    REIN_K,
    REIN_V,
    REIN_O,
    REIN_GATE,
    REIN_UP,
    REIN_DOWN,
    REIN_LAYER_MODULES,
    REIN_HEAD_MODULE = REIN_LAYER_MODULES
} rein_module;

/* The norms of a layer: before and after attention, before and after the MLP, of q and of k. */
typedef enum rein_norm_place {
    REIN_NORM_ATTENTION,
    REIN_NORM_ATTENTION_OUT,
    REIN_NORM_MLP,
    REIN_NORM_MLP_OUT,
    REIN_NORM_Q,
    REIN_NORM_K,
    REIN_NORMS
} rein_norm_place;

typedef enum rein_weight_kind {
    REIN_EMBEDDING,
    REIN_MATRIX,
    REIN_BIAS,
    REIN_NORM,
    REIN_ROUTER,
    REIN_EXPERT,
    REIN_LAST_NORM,
    REIN_HEAD,
    REIN_SCORE
} rein_weight_kind;

typedef struct rein_weight {
    char name[96];
    int n_dims;
    size_t shape[2];
    rein_weight_kind kind;
    size_t layer; /* of a matrix, bias or norm */
    int to; /* rein_module of a matrix or bias, rein_norm_place of a norm, 3·expert + (0 gate, 1 up, 2 down) of an expert. A fused matrix goes to several modules: this is the first */
} rein_weight;

/* The modules whose weights one tensor holds: from `module` on; 0: the tensor of `module` begins with an earlier one. With a head, 1. An
 * adapter has one LoRA for each such tensor. Its name, "q_proj" or "qkv_proj", and its path below "model.layers.N.". Static storage. */
int rein_module_count(const rein_model_config *config, rein_module module);
const char *rein_module_name(const rein_model_config *config, rein_module module);
const char *rein_module_path(const rein_model_config *config, rein_module module);

/* ---- slots: the linear modules of a model are numbered layer after layer, those of a layer first and then gate, up and down of each of its
 * experts; the head is last. Layers have the same number of slots, whether they use them or not. */
static inline size_t rein_layer_slots(const rein_model_config *c) { return REIN_LAYER_MODULES + 3 * (size_t)c->n_experts; }
static inline size_t rein_slots(const rein_model_config *c) { return (size_t)c->n_layers * rein_layer_slots(c) + 1; }

/* The module of a slot; those of experts are REIN_GATE, REIN_UP and REIN_DOWN. */
rein_module rein_slot_module(const rein_model_config *config, size_t slot);

/* How many modules the tensor has that begins with this slot (rein_module_count); 0: the model has no such tensor. */
int rein_slot_count(const rein_model_config *config, size_t slot);

/* The name of the tensor of a slot without ".weight": "model.layers.3.mlp.up_proj", "lm_head". */
enum { REIN_SLOT_NAME = 96 };
const char *rein_slot_name(char to[REIN_SLOT_NAME], const rein_model_config *config, size_t slot);

/* The tensor of a weight in the files of a model, or NULL. Models inside a larger one have prefixed names. */
const rein_tensor *rein_model_tensor(const rein_model_config *config, const rein_tensors *tensors, const char *name);

/* The number of tensors of the model, and the i-th of them: the embedding, the layers in order, the last norm, the head (unless it
 * is tied) or the score head. Thread-safe. */
size_t rein_model_weights(const rein_model_config *config);
void rein_model_weight(rein_weight *weight, const rein_model_config *config, size_t i);

/* How the model uses a tensor of a file. Thread-safe. */
typedef enum rein_weight_use {
    REIN_WEIGHT_USED,
    REIN_WEIGHT_BUFFER, /* computed, not learned: rotary frequencies in old files. Needs no warning */
    REIN_WEIGHT_TIED,   /* the head of a model whose head is the embedding, or a score head: not read */
    REIN_WEIGHT_IGNORED /* not part of this model: needs a warning */
} rein_weight_use;
rein_weight_use rein_model_weight_use(const rein_model_config *config, const char *name);

/* Checks that the set has every tensor of the model, in the right shape and in a type that can hold weights; the score head may be
 * missing. Additional tensors are not an error: see rein_model_weight_use. Thread-safe. */
rein_status rein_model_check(const rein_model_config *config, const rein_tensors *tensors, rein_error *err);

#endif
