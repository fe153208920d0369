/* model.h - language models as Hugging Face writes them, on the CPU: log-probabilities, their exact gradients, LoRA.
 *
 * Boundary: token ids in, numbers out. Text is in tokenizer.h, sampling in rollout.h, the optimizer in train.h.
 *
 * Reproducible bits: the log-probability of a token has the same bits for any number of threads, whatever else is in the batch,
 * decoded step by step or computed with its whole sequence, with its own prompt or a shared one. Gradients have the same bits for
 * any number of threads. They also have the same bits however trees of segments are divided into calls that add to the same
 * gradient in the same order, except for a tied embedding that trains: there the bits are those of one tree per call, as the
 * trainer does it. */
#ifndef REIN_MODEL_H
#define REIN_MODEL_H

#include "rein/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------------------------- 1. models */

/* A model. It changes only through rein_parameters: while it is not being trained, any number of threads may use it. */
typedef struct rein_model rein_model;

/* The score head of a reward model or a critic: score.weight [1][hidden] without a bias, the name and shape of Hugging Face's
 * …ForSequenceClassification with num_labels 1. A score is its product with a hidden state after the last norm (rein_scores). */
typedef enum rein_score_head {
    REIN_SCORE_NONE,   /* there is none: a language model */
    REIN_SCORE_STORED, /* that of the files; without one, REIN_EINVAL */
    REIN_SCORE_RANDOM, /* that of the files or, without one, new weights: normal with standard deviation initializer_range, from the seed */
    REIN_SCORE_ZERO /* that of the files or, without one, zeros */
} rein_score_head;

typedef struct rein_model_options {
    int train;      /* 1: all weights can be trained, and become f32; 0: they keep the type they are stored in */
    rein_exec exec; /* for opening */
    /* NULL, or "q8_0" or "q4_0": matrices are quantised to these types of GGUF in memory, with ggml's rounding, but for the routers of
     * experts. That changes the model. Not with `train`. */
    const char *quantize;
    /* Other than REIN_SCORE_NONE: the model has a score head in place of the head over the vocabulary, so it has scores and no
     * log-probs; with `train` the score head trains too. REIN_SCORE_NONE for a directory of a …ForSequenceClassification is REIN_EINVAL. */
    rein_score_head score;
    uint64_t score_seed; /* of new weights */
} rein_model_options;

/* Opens the directory of a model: config.json, generation_config.json if it exists, and the safetensors files. Or opens a GGUF file, which
 * holds all of a model; of a split one, the first part. options may be NULL: {0}. The caller closes *model; it is NULL on failure.
 * Thread-safe. */
REIN_API rein_status rein_model_open(rein_model **model, const char *directory, const rein_model_options *options, rein_error *err);

/* 1 if the path is that of a model, which rein_model_open may open: a directory with config.json, or a GGUF file. Thread-safe. */
REIN_API int rein_model_exists(const char *path);

/* 1 if the path is that of a reward model: a directory whose config.json has the architecture of a …ForSequenceClassification. Thread-safe. */
REIN_API int rein_model_is_reward(const char *path);

/* 1 if the path is that of a GGUF file: it begins with the letters GGUF, or is named *.gguf. Thread-safe. */
REIN_API int rein_model_is_gguf(const char *path);

/* Writes new random weights, DIRECTORY/model.safetensors, for the config.json of the directory. They are f32: matrices normal with
 * standard deviation initializer_range, norms 1, biases 0, as Hugging Face initialises models. The same seed gives the same
 * numbers. Existing weights are not overwritten (REIN_EINVAL). Thread-safe for different directories. */
REIN_API rein_status rein_model_init(const char *directory, uint64_t seed, rein_error *err);

/* Closes a model. NULL is fine. Adapters, generators and others made from the model must be closed before. */
REIN_API void rein_model_close(rein_model *model);

enum { REIN_MAX_END_IDS = 16 };
typedef struct rein_model_info {
    const char *family; /* "llama", "mistral", "qwen2", "qwen3" */
    const char *type;   /* of the stored weights: "F32", "BF16", "F16"; "mixed" */
    int64_t vocabulary, hidden, intermediate, layers, heads, kv_heads, head_dim, max_positions;
    int64_t parameters;                /* number of weights; a tied head counts once */
    int64_t ignored;                   /* number of tensors in the files that the model does not use */
    int tied;                          /* the head is the embedding */
    int32_t begin_id;                  /* -1: none */
    int32_t end_ids[REIN_MAX_END_IDS]; /* each of them ends a completion */
    size_t n_end_ids;
    int score; /* 1: it has a score head (rein_scores) and no log-probs */
} rein_model_info;

/* Describes a model. Strings live as long as the model. Thread-safe. */
REIN_API rein_model_info rein_model_describe(const rein_model *model);

/* Appends what config.json says of the parts of the model, as one JSON object on one line; weights are not opened. Its fields:
 *   text_part    true: the text model inside a larger one, whose other tensors are ignored
 *   norms        "before", "after" or "before and after" attention and MLP; norm_offset true: files store the weight minus 1
 *   qk_norm      null, "each head" or "all heads"
 *   activation   "silu" or "gelu_tanh"
 *   fused        the matrices that hold several modules: ["qkv_proj", "gate_up_proj"]
 *   biases       of modules: ["q_proj"]
 *   embedding_scale, score_scale, residual_scale, logit_divisor, score_cap, logit_cap
 *                only those that differ from the usual: 1, 1/√head_dim, 1, 1, none, none
 *   attention    layers that are alike: [{"layers": "0-4, 6", "window": 512 or null, "rope": null or {"base": 10000, …}}], and
 *                "experts": {"n": 64, "per_token": 8, "intermediate": 1024} where the MLP is a mixture
 *   lora_modules the names of modules that can have a LoRA
 * Thread-safe. */
REIN_API rein_status rein_model_description(rein_text *json, const char *directory, rein_error *err);

/* Appends what a GGUF file holds, as one JSON object on one line:
 *   files     of the model: above 1 if it is split
 *   types     [{"type": "Q4_1", "tensors": 210, "bytes": 66355200}, …]
 *   metadata  {"general.name": "…", …}; of long texts and arrays only the length
 * Thread-safe. */
REIN_API rein_status rein_gguf_description(rein_text *json, const char *path, rein_error *err);

/* Writes a model directory that transformers loads: the current weights, with the adapter merged into them (adapter may be NULL),
 * config.json, and unchanged copies of the tokenizer files. Weights that were stored in 16 bits are rounded to that type again;
 * those of a model opened with train are f32. With a score head, of the adapter or else of the model, a …ForSequenceClassification
 * with num_labels 1 is written. The directory may exist if it holds no model. Thread-safe for different directories. */
struct rein_adapter;
REIN_API rein_status rein_model_save(const rein_model *model, const struct rein_adapter *adapter, const char *directory,
                                     rein_error *err);

/* What rein_model_save_gguf wrote. */
typedef struct rein_gguf_written {
    int64_t tensors, bytes; /* bytes: of all tensors */
    int64_t not_blocks;     /* matrices that are F16 because their rows are not a multiple of 32 numbers */
    double error;           /* of all matrices: √(Σ(q − w)²/Σw²), w merged in f64, q as the file has it */
    double largest_error;   /* max |q − w| */
} rein_gguf_written;

/* Writes one GGUF file that llama.cpp loads, completely or not at all: the current weights, with the adapter merged into them (adapter may be
 * NULL), the tokenizer and the chat template. type is "f32", "f16", "bf16", "q8_0" or "q4_0"; NULL: bf16 if the model has it, else f16. Blocks
 * are rounded as ggml's reference does; with q4_0 the head is Q8_0; vectors are F32. What GGUF has no word for is REIN_EINVAL; what it changes
 * without changing what a token sees is a line in notes (NULL: not wanted). The file must not exist. written may be NULL. Thread-safe for
 * different files. */
REIN_API rein_status rein_model_save_gguf(rein_gguf_written *written, rein_text *notes, const rein_model *model,
                                          const struct rein_adapter *adapter, const char *path, const char *type, rein_error *err);

/* ----------------------------------------------------------------------------------------------------------------- 2. adapters */

/* An adapter: LoRA on some linear modules of one model, W + s·B·A with s = alpha/rank or alpha/√rank. Several adapters may share a
 * model. While it is not being trained, any number of threads may use it. */
typedef struct rein_adapter rein_adapter;

typedef struct rein_lora_options {
    int64_t rank;               /* 1 or more */
    double alpha;               /* above 0 */
    int rank_stabilized;        /* s = alpha/√rank (rsLoRA, Kalajdzievski 2023, arXiv 2312.03732) */
    const char *const *modules; /* q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head */
    size_t n_modules;           /* 0: all except lm_head */
    uint64_t seed;              /* of A; B is 0, so a new adapter changes nothing */
    /* Other than REIN_SCORE_NONE: the adapter has a score head of its own, which trains beside the LoRA and is used in place of the
     * model's. It begins as a copy of the model's (REIN_SCORE_STORED: there must be one) or new, as in rein_model_options, from `seed`. The
     * model may be a language model: one set of weights can serve a policy and a critic. PEFT's form of it is task_type SEQ_CLS with
     * score in modules_to_save. */
    rein_score_head score;
} rein_lora_options;

/* Makes a new adapter. The caller closes *adapter before the model; it is NULL on failure. */
REIN_API rein_status rein_adapter_new(rein_adapter **adapter, const rein_model *model, const rein_lora_options *options,
                                      rein_error *err);

/* Opens the directory of an adapter as PEFT writes it: adapter_config.json and adapter_model.safetensors. Settings that are not
 * supported and would change the numbers (DoRA, rank patterns, other kinds of adapters) are errors that name the setting. */
REIN_API rein_status rein_adapter_open(rein_adapter **adapter, const rein_model *model, const char *directory, rein_error *err);

/* Makes an independent copy, to train or to keep as a reference. */
REIN_API rein_status rein_adapter_copy(rein_adapter **copy, const rein_adapter *adapter, rein_error *err);

/* Writes a directory that PEFT loads. Each of its two files appears completely or not at all. */
REIN_API rein_status rein_adapter_save(const rein_adapter *adapter, const char *directory, rein_error *err);

/* Writes one GGUF file that llama.cpp loads beside its model (--lora): the factors in f32. A LoRA on a head that is the embedding is
 * REIN_EINVAL. The file must not exist. Thread-safe for different files. */
REIN_API rein_status rein_adapter_save_gguf(const rein_adapter *adapter, const char *path, rein_error *err);

/* Closes an adapter. NULL is fine. */
REIN_API void rein_adapter_close(rein_adapter *adapter);

enum { REIN_MODULES = 8 };
typedef struct rein_adapter_info {
    int64_t rank;
    double alpha;
    int rank_stabilized;
    const char *modules[REIN_MODULES]; /* static storage */
    size_t n_modules;
    int64_t parameters;
    const char *base; /* base_model_name_or_path of adapter_config.json, or the directory of the model; may be "" */
    int score;        /* 1: it has a score head */
} rein_adapter_info;

/* Describes an adapter; `base` is borrowed from it. Thread-safe. */
REIN_API rein_adapter_info rein_adapter_describe(const rein_adapter *adapter);

/* Describes the adapter in a directory without its model: what adapter_config.json says, and the modules and parameters of which
 * adapter_model.safetensors has factors. info->base is borrowed from the text `base`, which is {0} before and which the caller frees.
 * Thread-safe. */
REIN_API rein_status rein_adapter_describe_files(rein_adapter_info *info, rein_text *base, const char *directory, rein_error *err);

/* -------------------------------------------------------------------------------------------------------------- 3. parameters */

/* Counts what can be trained: the parameters of an adapter (A and B, in the order of layers and modules, then its score.weight if it
 * has one) or, with adapter NULL, of a model that was opened with train (score.weight is the last, if it has one). count is the number of arrays, floats the number of values in all of them; 0 if nothing can
 * be trained. Thread-safe. */
REIN_API size_t rein_parameter_count(const rein_model *model, const rein_adapter *adapter);
REIN_API size_t rein_parameter_floats(const rein_model *model, const rein_adapter *adapter);

/* Fills parameters [rein_parameter_count]. Their values point into the model or adapter, their gradients into `gradient`
 * [rein_parameter_floats], one array after the other. After changing values, call rein_parameters_changed before the policy is
 * used again. */
REIN_API void rein_parameters(rein_parameter *parameters, rein_model *model, rein_adapter *adapter, float *gradient);

/* Updates what is derived from parameters. It must be called after their values changed. */
REIN_API rein_status rein_parameters_changed(rein_model *model, rein_adapter *adapter, rein_error *err);

/* ----------------------------------------------------------------------------------------- 4. log-probabilities and gradients */

/* A policy: π(y|x) = softmax(z/temperature). The same temperature is used in sampling and in training. */
typedef struct rein_policy {
    const rein_model *model;
    const rein_adapter *adapter; /* NULL: the model itself */
    double temperature;          /* above 0 */
} rein_policy;

/* Tokens in segments, ragged. A segment may continue an earlier one (the prompt that several completions share), and that one
 * another. The segments of a tree follow each other, its root first. */
typedef struct rein_tokens {
    size_t n;               /* segments */
    const size_t *offsets;  /* [n + 1]: segment s is tokens [offsets[s], offsets[s+1]), at least one */
    const int64_t *parents; /* [n]: the segment it continues, -1 for none; NULL: all are roots */
    const int32_t *ids;     /* [offsets[n]] */
    /* [offsets[n]]: 1 where the log-probability is wanted. NULL: everywhere but at the first token of a root, which has none. */
    const uint8_t *wanted;
    /* [n]: the activation key (rein_sampled) of the completion that the tokens from the root to the end of the segment belong to; 0: none.
     * NULL: no segment has one. */
    const uint64_t *activation_keys;
} rein_tokens;

/* The activations of a forward pass: kept for the backward pass, their memory reused by the next forward pass. One thread at a
 * time. */
typedef struct rein_activations rein_activations;

/* Opens an empty store of activations. The caller closes *activations; it is NULL on failure. */
REIN_API rein_status rein_activations_open(rein_activations **activations, const rein_exec *exec, rein_error *err);

/* Frees activations. NULL is fine. */
REIN_API void rein_activations_close(rein_activations *activations);

/* The memory it holds, in bytes. */
REIN_API size_t rein_activations_bytes(const rein_activations *activations);

/* A cache for the activations that a generator computes. A forward pass with keep, of the same policy over the same tokens,
 * copies them instead of computing them again: the same bits, in less time. Tokens are found by the key that the generator
 * reports with each of them; the cache checks the tokens, and that the policy's parameters have not changed since. One thread at
 * a time. */
typedef struct rein_activation_cache rein_activation_cache;

/* Opens a cache of at most max_bytes, and at most a quarter of the memory that is available now; when it is full, the oldest
 * requests are dropped. With recompute it serves only passes with recompute, and needs about a tenth of the memory. The caller
 * closes *cache, after the generators and trainers that use it; it is NULL on failure. */
REIN_API rein_status rein_activation_cache_open(rein_activation_cache **cache, size_t max_bytes, int recompute, rein_error *err);

/* Frees a cache. NULL is fine. */
REIN_API void rein_activation_cache_close(rein_activation_cache *cache);

/* The number of tokens it holds. cache may be NULL. */
REIN_API size_t rein_activation_cache_tokens(const rein_activation_cache *cache);

/* A policy that is truncated: its probabilities are those of the tokens that are kept, and the others have none. Applied in this order, each to
 * the tokens left by the one before, as by a sampler with the same numbers (rein_sampling). */
typedef struct rein_truncation {
    int64_t top_k; /* 0: all */
    double top_p;  /* 1: all */
    double min_p;  /* 0: all */
} rein_truncation;

typedef struct rein_forward_options {
    int keep;             /* for rein_backward */
    int entropy_gradient; /* with keep: rein_backward will be given dentropies */
    /* With keep: only the inputs of the layers are kept, and rein_backward computes the rest again: the same bits in less memory. */
    int recompute;
    const rein_activation_cache *activation_cache; /* with keep: that of the policy's generator; NULL: everything is computed */
    /* The policy is truncated; the kept tokens are constants in the gradient. Not with a head that trains. A wanted token that is not kept is
     * REIN_EINVAL. NULL: it is not. */
    const rein_truncation *truncation;
} rein_forward_options;

/* The number of tokens that the last forward pass took from its activation cache, without those that are only targets. */
REIN_API size_t rein_activations_cached_tokens(const rein_activations *activations);

/* Computes log_probs [tokens]: of each wanted token given those before it, 0 elsewhere; and entropies [tokens], of the
 * distribution that the token was drawn from (entropies may be NULL). options may be NULL: {0}. A result that is not finite is
 * REIN_ERANGE; the message names the token. */
REIN_API rein_status rein_forward(float *log_probs, float *entropies, rein_activations *activations, const rein_policy *policy,
                                  const rein_tokens *tokens, const rein_forward_options *options, rein_error *err);

/* Adds the gradient of a loss: gradient [rein_parameter_floats] += d loss/d parameters (rein_parameters), given dlog_probs
 * [tokens] = d loss/d log_probs and dentropies [tokens] (NULL without entropy_gradient). Entries of tokens that are not wanted
 * are not read. The activations must hold a forward pass with keep, of a policy that has not changed since; each forward pass
 * serves one backward pass. */
REIN_API rein_status rein_backward(float *gradient, rein_activations *activations, const float *dlog_probs, const float *dentropies,
                                   rein_error *err);

/* Computes logits [wanted][vocabulary], z/T, at the positions that predict the wanted tokens, in their order. For inspection,
 * not for training. */
REIN_API rein_status rein_logits(float *logits, rein_activations *activations, const rein_policy *policy, const rein_tokens *tokens,
                                 rein_error *err);

/* ------------------------------------------------------------------------------------------------------------------- 5. scores */

/* How texts become the tokens that a reward model scores. It is saved with the score head, in reward_model.json. */
typedef struct rein_reward_form {
    int known; /* 0: the files do not say, as those of others: texts are encoded as the tokenizer says, and the score is that of
                              * the last token that is not pad_token_id, as in transformers */
    int32_t end_id;          /* the token that is put behind a plain text; -1: none. A chat is what its template renders */
    const char *chat_format; /* the name of a chat format; NULL: the tokenizer's own template. Static storage */
    const char *quantize;    /* of the model below an adapter: rein_model_options. Static storage; saved as the model is */
} rein_reward_form;

/* Sets the form that an adapter, or with adapter NULL the model, is saved with. */
REIN_API void rein_reward_form_set(rein_model *model, rein_adapter *adapter, const rein_reward_form *form);

/* The form of a policy with a score head. Thread-safe. */
REIN_API rein_reward_form rein_reward_form_of(const rein_policy *policy);

typedef struct rein_score_options {
    /* Which hidden state the score of a token is computed from. 0: that of the token itself; a reward model scores a sequence at its last
     * token. 1: that of the token before it; a critic's value V_t of token t, which depends on what came before it alone. Then the first token of a root
     * has no score, and the last token of a completion costs no row, as in rein_forward. */
    int before;
    int keep;      /* for rein_scores_backward */
    int recompute; /* with keep: as in rein_forward_options */
} rein_score_options;

/* Computes scores [tokens]: of each wanted token, 0 elsewhere (tokens->wanted NULL: everywhere but, with `before`, at the first token of a root). The
 * policy's adapter or else its model has the score head; without one, REIN_EINVAL. Its temperature is not used. Tokens after the last one that
 * a score depends on are not computed. options may be NULL: {0}. A score that is not finite is REIN_ERANGE; the message names the
 * token. Same bits for any number of threads and any batch, as log-probs. */
REIN_API rein_status rein_scores(float *scores, rein_activations *activations, const rein_policy *policy, const rein_tokens *tokens,
                                 const rein_score_options *options, rein_error *err);

/* Adds the gradient of a loss: gradient [rein_parameter_floats] += d loss/d parameters, given dscores [tokens] = d loss/d scores; entries of
 * tokens that are not wanted are not read. The score head trains if it is the adapter's, or, without an adapter, the model's. The
 * activations must hold a rein_scores with keep, of a policy that has not changed since; each serves one backward pass. */
REIN_API rein_status rein_scores_backward(float *gradient, rein_activations *activations, const float *dscores, rein_error *err);

#ifdef __cplusplus
}
#endif
#endif
