/* generator_fixture.h - tiny random models of every family, and requests to a generator with their results. */
#ifndef REIN_TESTS_ROLLOUT_GENERATOR_FIXTURE_H
#define REIN_TESTS_ROLLOUT_GENERATOR_FIXTURE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "model/config.h"
#include "rein/rollout.h"
#include "support/check.h"
#include "support/memory.h"
#include "support/random.h"

static inline double number(void) { return (double)(random_bits() >> 11) * 0x1p-52 - 1; } /* ±1 */

/* ---- models: two chunks of vocabulary, positions for a few blocks of keys */
enum { VOCABULARY = 600, POSITIONS = 300 };

typedef enum adapters { NO_ADAPTER, ADAPTER, ADAPTER_OF_HEAD } adapters;

typedef struct kind {
    const char *family, *architecture;
    int head_dim, bf16;
    adapters adapter;
    int broken;             /* a weight is NaN */
    int vocabulary, hidden; /* 0: VOCABULARY, 40 */
    int trains;             /* all weights */
    int experts;
    int window; /* 0: none. Of every layer, or of the first of two */
} kind;

/* Mixtures of experts: Qwen3 with an MLP in the second layer, and OLMoE. */
enum { DENSE_KINDS = 18, KINDS = 24 };
static inline kind experts_of(size_t i) {
    return (kind){.family = i % 2 ? "olmoe" : "qwen3_moe",
                  .architecture = i % 2 ? "OlmoeForCausalLM" : "Qwen3MoeForCausalLM",
                  .head_dim = 10,
                  .bf16 = (int)(i / 2 % 2),
                  .experts = 1,
                  .adapter = (adapters)(i / 2)};
}

/* Some families, in f32 and bf16, as they are, with an adapter, and with one that has the head too; then mixtures of experts. */
static inline kind kind_of(size_t i) {
    if (i >= DENSE_KINDS) return experts_of(i - DENSE_KINDS);
    static const char *const families[][2] = {
        {"llama", "LlamaForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"}};
    return (kind){.family = families[i % 3][0],
                  .architecture = families[i % 3][1],
                  .head_dim = i % 3 == 2 ? 14 : 10,
                  .bf16 = (int)(i / 3 % 2),
                  .adapter = (adapters)(i / 6)};
}

static const kind PLAIN = {.family = "llama", .architecture = "LlamaForCausalLM", .head_dim = 10};

typedef struct policy {
    rein_model *model;
    rein_adapter *adapter;
    rein_policy p;
} policy;

static inline void write_config(const kind *k, const char *directory) {
    static const char experts[] = ", \"num_experts\": 5, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 14, "
                                  "\"mlp_only_layers\": [1], \"norm_topk_prob\": true";
    char text[1000], path[400], window[20] = "null";
    snprintf(path, sizeof path, "%s/config.json", directory);
    if (k->window) snprintf(window, sizeof window, "%d", k->window);
    const int n = snprintf(text, sizeof text,
                           "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"vocab_size\": %d, \"hidden_size\": %d, "
                           "\"intermediate_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
                           "\"num_key_value_heads\": 2, \"head_dim\": %d, \"tie_word_embeddings\": false, \"torch_dtype\": \"%s\", "
                           "\"sliding_window\": %s, \"sliding_window_pattern\": 2, \"max_position_embeddings\": %d, "
                           "\"rope_theta\": 10000.0%s}",
                           k->architecture, k->family, k->vocabulary ? k->vocabulary : VOCABULARY, k->hidden ? k->hidden : 40,
                           k->head_dim, k->bf16 ? "bfloat16" : "float32", window, POSITIONS, k->experts ? experts : "");
    OK(rein_file_write(path, text, (size_t)n, &error_));
}

/* Numbers such that activations stay about 1 and logits are a few units. */
static inline void *weights(const rein_weight *w, int bf16) {
    const size_t n = w->n_dims == 2 ? w->shape[0] * w->shape[1] : w->shape[0];
    float *x = some(n, sizeof *x);
    for (size_t i = 0; i < n; i++) {
        if (strstr(w->name, "norm")) x[i] = (float)(1 + 0.2 * number());
        else if (w->n_dims == 1) x[i] = (float)(0.3 * number());
        else if (strstr(w->name, "embed")) x[i] = (float)number();
        else x[i] = (float)((strstr(w->name, "lm_head") ? 4 : 2) * number() / sqrt((double)w->shape[1]));
    }
    for (size_t i = 0; bf16 && i < n; i++) memmove((char *)x + 2 * i, (char *)&x[i] + 2, 2); /* its upper half */
    return x;
}

static inline void write_model(const kind *k, const char *directory) {
    rein_model_config config;
    rein_weight names[64];
    rein_tensor tensors[64] = {0};
    char path[400];
    write_config(k, directory);
    OK(rein_model_config_read(&config, directory, &error_));
    const size_t n = rein_model_weights(&config);
    assert_true(n <= 64);
    for (size_t i = 0; i < n; i++) {
        rein_weight *w = &names[i];
        rein_model_weight(w, &config, i);
        tensors[i] = (rein_tensor){.name = w->name,
                                   .dtype = k->bf16 ? REIN_TENSOR_BF16 : REIN_TENSOR_F32,
                                   .n_dims = w->n_dims,
                                   .shape = {w->shape[0], w->shape[1]},
                                   .data = weights(w, k->bf16)};
        assert_true(rein_tensor_bytes(&tensors[i].bytes, tensors[i].dtype, w->shape, w->n_dims));
        if (k->broken && !strcmp(w->name, "model.norm.weight")) memset((void *)(uintptr_t)tensors[i].data, 0xff, 4);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    OK(rein_tensors_write(path, tensors, n, NULL, 0, &error_));
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)tensors[i].data);
}

/* Both factors are random: a new adapter would change nothing. */
static inline rein_adapter *make_adapter(rein_model *model, adapters which) {
    static const char *const modules[] = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"};
    const rein_lora_options options = {
        .rank = which == ADAPTER_OF_HEAD ? 5 : 3, .alpha = 6, .modules = modules, .n_modules = which == ADAPTER_OF_HEAD ? 8 : 7};
    rein_adapter *adapter;
    OK(rein_adapter_new(&adapter, model, &options, &error_));
    const size_t n = rein_parameter_count(model, adapter);
    rein_parameter *parameters = some(n, sizeof *parameters);
    float *gradient = some(rein_parameter_floats(model, adapter), sizeof *gradient);
    rein_parameters(parameters, model, adapter, gradient);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < parameters[i].size; j++) parameters[i].value[j] = (float)(0.3 * number());
    OK(rein_parameters_changed(model, adapter, &error_));
    free(parameters), free(gradient);
    return adapter;
}

/* The files are removed before it returns; the model has them mapped. */
static inline policy open_policy(const kind *k, double temperature) {
    char directory[300], path[400];
    const char *temporary = getenv("TMPDIR");
    policy p = {0};
    snprintf(directory, sizeof directory, "%s/rein-generator-XXXXXX", temporary ? temporary : "/tmp");
    assert_non_null(mkdtemp(directory));
    write_model(k, directory);
    OK(rein_model_open(&p.model, directory, &(rein_model_options){.train = k->trains}, &error_));
    snprintf(path, sizeof path, "%s/config.json", directory), remove(path);
    snprintf(path, sizeof path, "%s/model.safetensors", directory), remove(path);
    assert_int_equal(rmdir(directory), 0);
    if (k->adapter != NO_ADAPTER) p.adapter = make_adapter(p.model, k->adapter);
    p.p = (rein_policy){p.model, p.adapter, temperature};
    return p;
}

static inline policy policy_of(size_t i, double temperature) {
    const kind k = kind_of(i);
    return open_policy(&k, temperature);
}

static inline void close_policy(policy *p) {
    rein_adapter_close(p->adapter);
    rein_model_close(p->model);
}

/* ---- requests and their results */
enum { MOST_TOKENS = 320, MOST_TOP = 8, MOST_SAMPLES = 8, MOST_TEXT = 2000 };

typedef struct response {
    size_t n, n_top;
    int32_t ids[MOST_TOKENS];
    float log_probs[MOST_TOKENS], sampler_log_probs[MOST_TOKENS];
    rein_choice top[MOST_TOKENS][MOST_TOP];
    rein_finish finish;
    char text[MOST_TEXT];
    size_t length;
    uint64_t activation_key;
} response;

typedef struct job {
    rein_request r;
    size_t enters; /* after so many steps */
    int32_t prompt[MOST_TOKENS];
    response *responses; /* [samples] */
} job;

/* A prompt of n random tokens; the address is its number. */
static inline job *new_job(size_t n, size_t samples, size_t max_tokens, size_t index) {
    job *j = some(1, sizeof *j);
    j->r = (rein_request){j->prompt, n, samples, {.step = 5, .prompt = index}, rein_sampling_plain(), NULL, 0};
    j->r.sampling.max_tokens = max_tokens;
    j->r.sampling.seed = 11;
    for (size_t i = 0; i < n; i++) j->prompt[i] = (int32_t)below(VOCABULARY);
    j->responses = some(samples, sizeof *j->responses);
    return j;
}

static inline void free_job(job *j) {
    free(j->responses);
    free(j);
}

static inline void write_down(job *j, const rein_sampled *s) {
    assert_true(s->sample < j->r.samples);
    response *r = &j->responses[s->sample];
    assert_true(s->position == r->n && r->finish == REIN_FINISH_NONE && r->n < MOST_TOKENS && s->n_top <= MOST_TOP);
    r->ids[r->n] = s->id, r->log_probs[r->n] = s->log_prob, r->sampler_log_probs[r->n] = s->sampler_log_prob;
    assert_true(s->n_top == j->r.sampling.top_log_probs);
    if (s->n_top) memcpy(r->top[r->n], s->top, s->n_top * sizeof *s->top);
    assert_true(r->n == 0 || s->activation_key == r->activation_key);
    r->n++, r->n_top = s->n_top, r->finish = s->finish, r->activation_key = s->activation_key;
    assert_true(r->length + s->length < MOST_TEXT);
    memcpy(r->text + r->length, s->text, s->length);
    r->length += s->length;
}

/* Runs all jobs in one generator, each starting at its own step; fails unless all finish. */
static inline void run_jobs(job *const *jobs, size_t n, const policy *p, const rein_tokenizer *tokenizer,
                            const rein_generator_options *options) {
    rein_generator *g;
    job **by_number = some(n, sizeof *by_number);
    size_t added = 0;
    const size_t most = options && options->max_active ? options->max_active : 256;
    OK(rein_generator_open(&g, &p->p, tokenizer, options, &error_));
    for (size_t i = 0; i < n; i++) memset(jobs[i]->responses, 0, jobs[i]->r.samples * sizeof *jobs[i]->responses);
    for (size_t step = 0;; step++) {
        const rein_sampled *sampled;
        size_t count, number_of;
        for (size_t i = 0; i < n; i++) {
            if (jobs[i]->enters != step) continue;
            OK(rein_generator_add(&number_of, g, &jobs[i]->r, &error_));
            assert_true(number_of == added);
            by_number[added++] = jobs[i];
        }
        OK(rein_generator_step(&sampled, &count, g, &error_));
        OK(rein_generator_failed(&number_of, g, &error_));
        assert_true(count <= most);
        for (size_t i = 0; i < count; i++) {
            assert_true(sampled[i].request < added);
            write_down(by_number[sampled[i].request], &sampled[i]);
        }
        if (rein_generator_unfinished(g) == 0 && added == n) break;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t s = 0; s < jobs[i]->r.samples; s++) assert_true(jobs[i]->responses[s].finish != REIN_FINISH_NONE);
    rein_generator_close(g);
    free(by_number);
}

static inline void run_job(job *j, const policy *p, const rein_tokenizer *tokenizer, const rein_generator_options *options) {
    const size_t enters = j->enters;
    j->enters = 0;
    run_jobs(&j, 1, p, tokenizer, options);
    j->enters = enters;
}

static inline void reports(const rein_error *err, rein_status status, const char *part) {
    if (err->code != status || !strstr(err->message, part))
        fail_msg("%d, \"%s\": not %d, \"…%s…\"", (int)err->code, err->message, (int)status, part);
}

/* Every bit of the first n tokens. */
static inline void same_tokens(const char *what, const response *got, const response *wanted, size_t n) {
    if (got->n < n || wanted->n < n) fail_msg("%s: %zu and %zu tokens, not %zu", what, got->n, wanted->n, n);
    for (size_t i = 0; i < n; i++)
        if (got->ids[i] != wanted->ids[i] || memcmp(&got->log_probs[i], &wanted->log_probs[i], sizeof(float)) != 0 ||
            memcmp(&got->sampler_log_probs[i], &wanted->sampler_log_probs[i], sizeof(float)) != 0 ||
            memcmp(got->top[i], wanted->top[i], sizeof *got->top) != 0)
            fail_msg("%s: token %zu is %d (%a), not %d (%a)", what, i, got->ids[i], (double)got->log_probs[i], wanted->ids[i],
                     (double)wanted->log_probs[i]);
}

static inline void same_response(const char *what, const response *got, const response *wanted) {
    assert_int_equal(got->n, wanted->n);
    same_tokens(what, got, wanted, wanted->n);
    assert_int_equal(got->finish, wanted->finish);
    assert_int_equal(got->length, wanted->length);
    assert_memory_equal(got->text, wanted->text, got->length);
}

#endif
