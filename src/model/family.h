/* family.h - a family of models is a description: which parts its decoder has, how config.json spells them, and the defaults of its
 * configuration class in transformers. Reading config.json, the tensors, the layers, the activation cache and adapters all follow from
 * it. Private.
 *
 * A family that recombines known parts is a file family_NAME.c with one description, and a line in REIN_FAMILY_LIST. */
#ifndef REIN_MODEL_FAMILY_H
#define REIN_MODEL_FAMILY_H

#include "base/json.h"
#include "nn/mlp.h"

/* Where a layer has norms. */
typedef enum rein_norm_places {
    REIN_NORMS_BEFORE,          /* x + f(norm(x)) */
    REIN_NORMS_AFTER,           /* x + norm(f(x)) */
    REIN_NORMS_BEFORE_AND_AFTER /* x + norm(f(norm(x))) */
} rein_norm_places;

/* The norm of q and k, before the rotary embedding. */
typedef enum rein_qk_norm { REIN_QK_NONE, REIN_QK_HEADS /* of each head */, REIN_QK_WHOLE /* of all heads at once */ } rein_qk_norm;

/* Which layers have a sliding window. */
typedef enum rein_window_rule {
    REIN_WINDOW_NONE,
    REIN_WINDOW_ALL,         /* all layers, unless sliding_window is null */
    REIN_WINDOW_ALL_BY_FLAG, /* all layers, with use_sliding_window */
    REIN_WINDOW_BY_FLAG,     /* with use_sliding_window: layer_types, or the layers from max_window_layers on */
    REIN_WINDOW_BY_TYPE,     /* layer_types, or all but every n-th layer */
    REIN_WINDOW_NO_ROPE      /* with use_sliding_window: layer_types, or the layers without a rotary embedding */
} rein_window_rule;

struct rein_model_config;

typedef struct rein_family {
    const char *model_type, *architecture;
    const char *classifier; /* its architecture with a score head; NULL: `architecture` with ForSequenceClassification at the end */
    const char *nested;     /* the object of config.json that describes the text model; NULL: config.json itself does */
    const struct rein_family *text; /* the family of that text model, as which it is saved; NULL: this one */

    /* Defaults; 0: the field is required, or has the usual default (config.c). */
    int64_t vocab_size, heads;
    int64_t kv_heads; /* 0: as many as heads */
    int64_t head_dim; /* 0: hidden_size / heads */
    int64_t max_positions;
    int64_t bos, eos; /* -1: none */
    double norm_epsilon, theta;
    int tied;

    rein_norm_places norms;
    int norm_offset; /* 1: files store the weight of a norm minus 1 */
    rein_qk_norm qk_norm;
    int bias_by_config;     /* attention_bias of config.json turns on biases of q, k, v and o */
    int qkv_bias, mlp_bias; /* qkv_bias: q, k and v always have one; mlp_bias: config.json may turn it on */
    int fused;              /* q, k and v are one matrix, and so are gate and up */
    rein_activation activation;
    const char *activation_key; /* NULL: hidden_act */
    int scaled_embedding;       /* embeddings are multiplied by √hidden_size */
    int partial_rope;           /* partial_rotary_factor may be below 1 */
    int longrope;               /* rope_type longrope, and its old names */
    double window_theta;        /* layers with a window have a rotary embedding of their own; 0: they do not */
    int rope_by_type;           /* scaling of the rotary embedding is for layers without a window */

    int experts; /* layers may be mixtures of experts; `read` says which */

    rein_window_rule windows;
    int64_t window;         /* sliding_window, if it is absent; 0: none */
    int64_t window_pattern; /* REIN_WINDOW_BY_TYPE without layer_types: every n-th layer has no window */

    void (*read)(struct rein_model_config *to, rein_fields *in); /* settings that only this family has; or NULL */
} rein_family;

#define REIN_FAMILY_LIST(X) \
    X(llama)                \
    X(mistral)              \
    X(qwen2)                \
    X(qwen3)                \
    X(gemma2)               \
    X(gemma3)               \
    X(gemma3_vision)        \
    X(phi3)                 \
    X(olmo2)                \
    X(olmo3)                \
    X(smollm3)              \
    X(granite)              \
    X(qwen3_moe)            \
    X(olmoe)

#define REIN_DECLARE(name) extern const rein_family rein_family_##name;
REIN_FAMILY_LIST(REIN_DECLARE)
#undef REIN_DECLARE

/* The family of an architecture ("LlamaForCausalLM", "LlamaForSequenceClassification") or, if that is NULL, of a model_type; NULL: there is
 * none. */
const rein_family *rein_family_find(const char *model_type, const char *architecture);

/* The family's architecture with a score head, "LlamaForSequenceClassification"; and 1 if an architecture is of this kind. */
enum { REIN_ARCHITECTURE = 80 };
const char *rein_family_classifier(char to[REIN_ARCHITECTURE], const rein_family *family);
int rein_is_classifier(const char *architecture);

/* The families by index, for messages; NULL after the last one. */
const rein_family *rein_family_at(size_t i);

#endif
