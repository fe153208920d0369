/* model.h - language models as Hugging Face writes them, on the CPU: log-probabilities, their exact gradients, LoRA.
 *
 * Boundary: token ids in, numbers out. Text is tokenizer.h, sampling rollout.h, the optimizer train.h.
 *
 * One answer: the log-probability of a token has the same bits for any number of threads, whatever else is in the batch, decoded step by
 * step or computed with its whole sequence, with a prompt of its own or a shared one. Gradients have the same bits for any number of
 * threads; and for any way of cutting trees of segments into calls that add to the same gradient in the same order, but for a tied
 * embedding that trains: its bits are those of one tree a call, which is what the trainer does. */
#ifndef REIN_MODEL_H
#define REIN_MODEL_H

#include "rein/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------------------------- 1. models */

/* Does not change but through rein_parameters: any number of threads may use one that nobody trains. */
typedef struct rein_model rein_model;

typedef struct rein_model_options {
    int train;      /* 1: all weights can be trained. They become f32; else they stay in the type they are stored in */
    rein_exec exec; /* for the work of opening */
} rein_model_options;

/* Opens the directory of a model: config.json, generation_config.json if it is there, and its safetensors. options may be NULL: {0}. The
 * caller closes *model; it is NULL on failure. Thread-safe. */
REIN_API rein_status rein_model_open(rein_model **model, const char *directory, const rein_model_options *options, rein_error *err);

/* Writes DIRECTORY/model.safetensors for the config.json that is there: f32, matrices normal with the deviation initializer_range, norms 1,
 * biases 0; what Hugging Face's models begin with, and the same numbers for the same seed. Weights that are there are not overwritten
 * (REIN_EINVAL). Thread-safe for different directories. */
REIN_API rein_status rein_model_init(const char *directory, uint64_t seed, rein_error *err);

/* NULL is fine. Nothing that was made from the model may be used afterwards. */
REIN_API void rein_model_close(rein_model *model);

enum { REIN_MAX_END_IDS = 16 };
typedef struct rein_model_info {
    const char *family; /* "llama", "mistral", "qwen2", "qwen3" */
    const char *type;   /* of the stored weights: "F32", "BF16", "F16"; "mixed" */
    int64_t vocabulary, hidden, intermediate, layers, heads, kv_heads, head_dim, max_positions;
    int64_t parameters;                /* numbers, a tied head counted once */
    int64_t ignored;                   /* tensors of the files that the model has no use for */
    int tied;                          /* the head is the embedding */
    int32_t begin_id;                  /* -1: none */
    int32_t end_ids[REIN_MAX_END_IDS]; /* what ends a response; any of them */
    size_t n_end_ids;
} rein_model_info;

/* Strings live as long as the model. Thread-safe. */
REIN_API rein_model_info rein_model_describe(const rein_model *model);

/* Writes a directory that transformers loads: the weights as they are now, with the adapter's product added where there is one (adapter may
 * be NULL), config.json, and the tokenizer's files as they were. Weights that were stored in 16 bits are rounded to that type again unless
 * the model was opened to train; then they are f32. The directory may exist if it holds no model. Thread-safe for different
 * directories. */
struct rein_adapter;
REIN_API rein_status rein_model_save(const rein_model *model, const struct rein_adapter *adapter, const char *directory,
                                     rein_error *err);

/* ----------------------------------------------------------------------------------------------------------------- 2. adapters */

/* LoRA on some linear modules of one model: W + s·B·A, s = alpha/rank, or alpha/√rank. Several may share a model. Same threads rule. */
typedef struct rein_adapter rein_adapter;

typedef struct rein_lora_options {
    int64_t rank;               /* 1 or more */
    double alpha;               /* above 0 */
    int rank_stabilized;        /* s = alpha/√rank (rsLoRA, Kalajdzievski 2023, arXiv 2312.03732) */
    const char *const *modules; /* q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head */
    size_t n_modules;           /* 0: all of them but lm_head */
    uint64_t seed;              /* of A; B is 0, so that a new adapter changes nothing */
} rein_lora_options;

/* A new one. The caller closes *adapter before the model; it is NULL on failure. */
REIN_API rein_status rein_adapter_new(rein_adapter **adapter, const rein_model *model, const rein_lora_options *options,
                                      rein_error *err);

/* Opens a directory as PEFT writes it: adapter_config.json and adapter_model.safetensors. What would change the numbers and is not
 * supported (DoRA, rank patterns, other kinds of adapters) is refused by its name. */
REIN_API rein_status rein_adapter_open(rein_adapter **adapter, const rein_model *model, const char *directory, rein_error *err);

/* A copy of its own, to be trained or kept as a reference. */
REIN_API rein_status rein_adapter_copy(rein_adapter **copy, const rein_adapter *adapter, rein_error *err);

/* Writes a directory that PEFT loads; both files appear whole or not at all, one after the other. */
REIN_API rein_status rein_adapter_save(const rein_adapter *adapter, const char *directory, rein_error *err);

/* NULL is fine. */
REIN_API void rein_adapter_close(rein_adapter *adapter);

enum { REIN_MODULES = 8 };
typedef struct rein_adapter_info {
    int64_t rank;
    double alpha;
    int rank_stabilized;
    const char *modules[REIN_MODULES]; /* static storage */
    size_t n_modules;
    int64_t parameters;
    char base[300]; /* base_model_name_or_path of adapter_config.json, or the directory of the model; may be "" */
} rein_adapter_info;
REIN_API rein_adapter_info rein_adapter_describe(const rein_adapter *adapter);

/* -------------------------------------------------------------------------------------------------------------- 3. what trains */

/* The parameters of an adapter (its A and B, in the order of layers and modules), or, with adapter NULL, of a model that was opened to
 * train: how many arrays, and how many numbers in all. 0 when nothing can be trained. Thread-safe. */
REIN_API size_t rein_parameter_count(const rein_model *model, const rein_adapter *adapter);
REIN_API size_t rein_parameter_floats(const rein_model *model, const rein_adapter *adapter);

/* Fills parameters [rein_parameter_count]; they point into the model or adapter, and at `gradient` [rein_parameter_floats], one after the
 * other. After their values changed, and before the next use of the policy, rein_parameters_changed must be called. */
REIN_API void rein_parameters(rein_parameter *parameters, rein_model *model, rein_adapter *adapter, float *gradient);
REIN_API rein_status rein_parameters_changed(rein_model *model, rein_adapter *adapter, rein_error *err);

/* ----------------------------------------------------------------------------------------- 4. log-probabilities and gradients */

/* A policy: π(y|x) = softmax(z/temperature). The temperature is part of it, in sampling and in training alike. */
typedef struct rein_policy {
    const rein_model *model;
    const rein_adapter *adapter; /* NULL: the model itself */
    double temperature;          /* above 0 */
} rein_policy;

/* Tokens in segments, ragged. A segment may continue an earlier one (the prompt that several completions share), and that one another. The
 * segments of a tree follow each other, its root first. */
typedef struct rein_tokens {
    size_t n;               /* segments */
    const size_t *offsets;  /* [n + 1]: segment s is tokens [offsets[s], offsets[s+1]), at least one */
    const int64_t *parents; /* [n]: the segment it continues, -1 for none; NULL: all are roots */
    const int32_t *ids;     /* [offsets[n]] */
    const uint8_t
        *wanted; /* [offsets[n]]: 1 where the log-probability is wanted; NULL: everywhere but at the first token of a root,
                             * which has none */
    const uint64_t *activation_keys; /* [n]: of a completion that the tokens from the root to the end of the segment belong to
                                      * (rein_sampled), 0: none; NULL: none has one */
} rein_tokens;

/* The activations of a forward pass: kept for the backward pass, their memory reused by the next forward pass. One thread at a time. */
typedef struct rein_activations rein_activations;

/* Makes an empty one. The caller closes *activations; it is NULL on failure. */
REIN_API rein_status rein_activations_open(rein_activations **activations, const rein_exec *exec, rein_error *err);

/* Frees it. NULL is fine. */
REIN_API void rein_activations_close(rein_activations *activations);

/* The memory it holds, in bytes. */
REIN_API size_t rein_activations_bytes(const rein_activations *activations);

/* A cache for the activations that a generator computes. A forward pass with keep, of the same policy over the same tokens, copies them
 * instead of computing them again: the same bits, in less time. Tokens are found by the key that the generator reports with each of
 * them; the cache checks the tokens, and that the policy's parameters have not changed since. One thread at a time. */
typedef struct rein_activation_cache rein_activation_cache;

/* Opens a cache of at most max_bytes, and at most a quarter of the memory that is available now; when it is full, the oldest requests are
 * dropped. With recompute it serves only passes with recompute, and needs about a tenth of the memory. The caller closes *cache, after the
 * generators and trainers that use it; it is NULL on failure. */
REIN_API rein_status rein_activation_cache_open(rein_activation_cache **cache, size_t max_bytes, int recompute, rein_error *err);

/* Frees it. NULL is fine. */
REIN_API void rein_activation_cache_close(rein_activation_cache *cache);

/* The number of tokens it holds. cache may be NULL. */
REIN_API size_t rein_activation_cache_tokens(const rein_activation_cache *cache);

typedef struct rein_forward_options {
    int keep;             /* for rein_backward */
    int entropy_gradient; /* with keep: rein_backward will be given dentropies */
    int recompute; /* with keep: only the inputs of the layers are kept, and rein_backward computes the rest again; the same bits, less
                    * memory */
    const rein_activation_cache *activation_cache; /* with keep: that of the policy's generator; NULL: everything is computed */
} rein_forward_options;

/* The number of tokens that the last forward pass took from its activation cache, without those that are only targets. */
REIN_API size_t rein_activations_cached_tokens(const rein_activations *activations);

/* Computes log_probs [tokens]: of each wanted token given those before it, 0 elsewhere; and entropies [tokens], of the distribution that the
 * token was drawn from (entropies may be NULL). options may be NULL: {0}. A result that is not finite is REIN_ERANGE; the message
 * names the token. */
REIN_API rein_status rein_forward(float *log_probs, float *entropies, rein_activations *activations, const rein_policy *policy,
                                  const rein_tokens *tokens, const rein_forward_options *options, rein_error *err);

/* Adds the gradient of a loss: gradient [rein_parameter_floats] += d loss/d parameters (rein_parameters), given
 * dlog_probs [tokens] = d loss/d log_probs and dentropies [tokens] (NULL without entropy_gradient). Entries of tokens that are not wanted
 * are not read. The activations must hold a forward pass with keep, of a policy that has not changed since; each forward pass serves one
 * backward pass. */
REIN_API rein_status rein_backward(float *gradient, rein_activations *activations, const float *dlog_probs, const float *dentropies,
                                   rein_error *err);

/* Computes logits [wanted][vocabulary], z/T, at the positions that predict the wanted tokens, in their order. For inspection, not for
 * training. */
REIN_API rein_status rein_logits(float *logits, rein_activations *activations, const rein_policy *policy, const rein_tokens *tokens,
                                 rein_error *err);

#ifdef __cplusplus
}
#endif
#endif
