/* weights.h - the structs behind rein_model and rein_adapter. Private. */
#ifndef REIN_MODEL_WEIGHTS_H
#define REIN_MODEL_WEIGHTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "config.h"
#include "nn/attention.h"
#include "nn/linear.h"
#include "rein/model.h"
#include "safetensors.h"

enum { REIN_MAX_RANK = 65536 };

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

/* The name of a module, "q_proj", …, "lm_head", and its path below "model.layers.N.": "self_attn.q_proj". Static storage. */
const char *rein_module_name(rein_module module);
const char *rein_module_path(rein_module module);

/* The weights of a layer. Norms and biases are small, and copied to f32. */
typedef struct rein_layer {
    rein_linear linear[REIN_LAYER_MODULES];
    const float *norm_attention, *norm_mlp; /* [hidden] */
    const float *norm_q, *norm_k;           /* [head_dim] or NULL */
} rein_layer;

/* Memory kept for the next generator: key_store.h. */
typedef struct rein_spare {
    _Atomic(struct rein_key_store *) keys;
} rein_spare;

struct rein_model {
    rein_model_config config;
    char *directory;
    rein_tensors *tensors;
    rein_heads heads;
    rein_layer *layers;    /* [n_layers] */
    rein_matrix embedding; /* [vocabulary][hidden] */
    const float *norm;     /* the norm before the head */
    rein_linear head;
    float *frequencies;                  /* [head_dim / 2] of the rotary embedding */
    rein_arena memory;                   /* holds everything above */
    struct rein_packed_weights *packing; /* packed copies of the matrices of layers and head */
    rein_spare *spare;
    uint64_t version; /* changes (rein_new_version) whenever the values change */
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
    unsigned modules; /* bit m: module m has a LoRA */
    char base[300];
    rein_lora *loras; /* [rein_adapter_slots]; rank 0: none */
    float *values;    /* A and B of each LoRA, in the order of loras */
    float *packed;
    size_t floats, packed_floats;
    size_t n;           /* number of LoRAs */
    uint64_t version;   /* as that of a model */
    char (*names)[120]; /* [2·n]: "model.layers.0.self_attn.q_proj.lora_A", …, "lm_head.lora_B" */
};

/* The LoRA of a module of a layer, or of the head (with any layer); NULL if there is none. adapter may be NULL. */
const rein_lora *rein_adapter_lora(const rein_adapter *adapter, size_t layer, rein_module module);

/* Modules are numbered by slots: layer·REIN_LAYER_MODULES + module, and the head last. The number of slots, and the linear module
 * of a slot. */
static inline size_t rein_adapter_slots(const rein_model *model) { return (size_t)model->config.n_layers * REIN_LAYER_MODULES + 1; }
const rein_linear *rein_model_linear(const rein_model *model, size_t slot);

/* Allocates an adapter with all its arrays; values are not set. For rein_adapter_new, _open and _copy. */
rein_status rein_adapter_allocate(rein_adapter **adapter, const rein_model *model, int64_t rank, double alpha, int rank_stabilized,
                                  unsigned modules, rein_error *err);

/* Checks that the policy has a model, an adapter of that model or none, and a temperature in range. Thread-safe. */
rein_status rein_policy_check(const rein_policy *policy, rein_error *err);

/* A new number for every call, above 0. Thread-safe. */
uint64_t rein_new_version(void);

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
