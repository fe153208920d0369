/* weights.h - the structs behind rein_model and rein_adapter. Private. */
#ifndef REIN_MODEL_WEIGHTS_H
#define REIN_MODEL_WEIGHTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "config.h"
#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "rein/model.h"
#include "safetensors.h"

enum { REIN_MAX_RANK = 65536 };

/* The weights of a layer. Norms and biases are small, and copied to f32. */
typedef struct rein_layer {
    rein_linear linear[REIN_LAYER_MODULES];
    rein_linear router, *experts; /* [3·n_experts]: gate, up and down of each; NULL: the layer has an MLP */
    rein_norm norms[REIN_NORMS];  /* weight NULL: this model has no such norm */
    rein_heads heads;             /* with the window of the layer */
    size_t key_index;             /* its place among the layers of its part of a key block */
    int rope;                     /* an index of the model's ropes; -1: none */
} rein_layer;

/* The inverse frequencies of a rotary embedding. */
typedef struct rein_frequencies {
    float *values; /* [half] */
    size_t half;
    float factor; /* of cosines and sines */
} rein_frequencies;
enum { REIN_ROPES = 2 };

/* Memory kept for the next generator: key_store.h. */
typedef struct rein_spare {
    _Atomic(struct rein_key_store *) keys;
} rein_spare;

struct rein_model {
    rein_model_config config;
    char *directory;
    rein_tensors *tensors;
    rein_heads heads;
    rein_layer *layers;                  /* [n_layers] */
    rein_matrix embedding;               /* [vocabulary][hidden] */
    rein_norm norm;                      /* before the head */
    rein_linear head;                    /* over the vocabulary; without weights if there is a score head */
    const float *score;                  /* [hidden], or NULL: the model has no score head */
    rein_reward_form form;               /* with a score head */
    rein_frequencies ropes[REIN_ROPES];  /* of the rotary embeddings: config.rope and config.window_rope */
    rein_arena memory;                   /* holds everything above */
    struct rein_packed_weights *packing; /* packed copies of the matrices of layers and head */
    rein_spare *spare;
    const struct rein_weight_type *quantize; /* the type that matrices were quantised to (quantize.h); NULL: they are as stored */
    uint64_t version;                        /* changes (rein_new_version) whenever the values change */
    /* If all weights train: their f32 values, tensor after tensor in the order of rein_model_weight; offsets [weights + 1]. */
    float *values;
    size_t *offsets;
    rein_weight *weights;
};

struct rein_adapter {
    const rein_model *model;
    int64_t rank;
    double alpha;
    int rank_stabilized;
    unsigned modules;      /* bit m: the tensor that begins with module m has a LoRA (rein_module_count) */
    char *base;            /* what the adapter is for: a name or a directory */
    rein_lora *loras;      /* [rein_adapter_slots]; rank 0: none. Modules of one tensor share A, and each has its rows of B */
    float *values;         /* A and B of each LoRA, in the order of loras, then the score head */
    float *score;          /* [hidden] of values, or NULL: the adapter has no score head */
    rein_reward_form form; /* with a score head */
    float *packed;
    size_t floats, packed_floats;
    size_t n;           /* number of LoRAs: tensors that have one */
    uint64_t version;   /* as that of a model */
    char (*names)[120]; /* [2·n + 1]: "model.layers.0.self_attn.q_proj.lora_A", …, "lm_head.lora_B", "score.weight" */
};

/* The LoRA of a module of a layer, or of the head (with any layer); NULL if there is none. adapter may be NULL. The one of a slot, the same. */
const rein_lora *rein_adapter_lora(const rein_adapter *adapter, size_t layer, rein_module module);
const rein_lora *rein_adapter_slot(const rein_adapter *adapter, size_t slot);

/* The number of slots (config.h), and the linear module of a slot. */
static inline size_t rein_adapter_slots(const rein_model *model) { return rein_slots(&model->config); }
const rein_linear *rein_model_linear(const rein_model *model, size_t slot);

/* Whether the adapter has a LoRA for the tensor that begins with the module of a slot, and the rows of that tensor. */
int rein_adapter_has(const rein_adapter *adapter, size_t slot);
size_t rein_tensor_rows(const rein_model *model, size_t slot);

/* What an adapter is made of. */
typedef struct rein_adapter_config {
    int64_t rank;
    double alpha;
    int rank_stabilized;
    unsigned modules; /* bit m: module m */
    const char *base; /* borrowed; "": none is named */
    int score;        /* it has a score head */
} rein_adapter_config;

/* Allocates an adapter with all its arrays; values are not set. For rein_adapter_new, _open and _copy. */
rein_status rein_adapter_allocate(rein_adapter **adapter, const rein_model *model, const rein_adapter_config *config,
                                  rein_error *err);

/* Checks that the policy has a model, an adapter of that model or none, and a temperature in range. Thread-safe. */
rein_status rein_policy_check(const rein_policy *policy, rein_error *err);

/* The score head of the policy, [hidden]; NULL: it has none. */
const float *rein_policy_score(const rein_policy *policy);

/* REIN_EINVAL unless the model has a head over the vocabulary, which log-probs and sampling need. Thread-safe. */
rein_status rein_policy_check_head(const rein_policy *policy, rein_error *err);

/* Fills a new score head of `hidden` weights. */
void rein_score_fill(float *score, rein_score_head how, const rein_model_config *config, uint64_t seed);

/* A new number for every call, above 0. Thread-safe. */
uint64_t rein_new_version(void);

/* Sets the names of the modules: bit m is module m. config may be NULL: the names that most families have. */
void rein_adapter_info_modules(rein_adapter_info *info, const rein_model_config *config, unsigned modules);

/* 1/T of the policy's softmax(z/T), with the divisor that the family has for its logits. */
static inline float rein_inverse_temperature(const rein_model *model, double temperature) {
    return (float)(1 / (temperature * model->config.logit_divisor));
}

/* Packs all factors again after their values changed. */
void rein_adapter_pack(rein_adapter *adapter);

/* Packed copies of all weights. A frozen model is packed when it is opened; one that trains is packed when it samples, and
 * unpacked when its weights change. exec is resolved. Thread-safe. */
typedef struct rein_packed_weights {
    pthread_mutex_t lock;
    rein_arena memory;
    int done;
} rein_packed_weights;
rein_status rein_model_pack(const rein_model *model, const rein_exec *exec, rein_error *err);
void rein_model_unpack(rein_model *model);

#endif
