/* engine_fixture.h - the tiny models of fixtures/engine with their goldens, and batches of tokens, for the tests of the engine. */
#ifndef REIN_TESTS_ENGINE_FIXTURE_H
#define REIN_TESTS_ENGINE_FIXTURE_H

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rein/model.h"
#include "support/check.h"
#include "support/memory.h"

static const char *const fixture_names[] = {
    "llama",  "llama3_rope", "linear_rope",    "mistral",      "qwen2",     "qwen3",  "head_dim_10", "head_dim_20",
    "biases", "head_dim_48", "mistral_window", "qwen2_window", "gemma2",    "gemma3", "phi3",        "phi3_longrope",
    "olmo2",  "olmo3",       "smollm3",        "granite",      "qwen3_moe", "olmoe",
};

/* tests/model/fixtures/engine/NAME, or a file of it. */
static inline const char *fixture(const char *name, const char *file) {
    static char path[4096];
    const char *tests = getenv("REIN_TESTS_DIR");
    snprintf(path, sizeof path, "%s/model/fixtures/engine/%s%s%s", tests ? tests : "tests", name, *file ? "/" : "", file);
    return path;
}

static inline const char *stories(void) {
    static char path[4096];
    const char *shared = getenv("REIN_SHARED_DIR");
    snprintf(path, sizeof path, "%s/models/stories260K", shared ? shared : "../shared");
    return path;
}

/* 1 when it is there; prints a message when it is not. */
static inline int have_stories(void) {
    char path[5000];
    snprintf(path, sizeof path, "%s/config.json", stories());
    FILE *file = fopen(path, "rb");
    if (file) fclose(file);
    else print_message("!!!!! %s IS ABSENT: the test on a real model is SKIPPED !!!!!\n", stories());
    return file != NULL;
}

/* ---- models */
static inline rein_model *open_model(const char *directory, int train) {
    rein_model *model;
    const rein_model_options options = {.train = train};
    OK(rein_model_open(&model, directory, &options, &error_));
    return model;
}

static inline rein_adapter *open_adapter(const rein_model *model, const char *name) {
    rein_adapter *adapter;
    OK(rein_adapter_open(&adapter, model, fixture(name, "adapter"), &error_));
    return adapter;
}

static inline rein_activations *open_activations(int threads, rein_isa isa) {
    rein_activations *activations;
    const rein_exec exec = {threads, isa};
    OK(rein_activations_open(&activations, &exec, &error_));
    return activations;
}

/* ---- batches: segments one after the other, with coefficients of a loss Σ c·log_prob + Σ e·entropy */
enum { MOST_SEGMENTS = 64, MOST_TOKENS = 4096 };
typedef struct batch {
    size_t n, offsets[MOST_SEGMENTS + 1];
    int64_t parents[MOST_SEGMENTS];
    int32_t ids[MOST_TOKENS];
    uint8_t wanted[MOST_TOKENS];
    float c[MOST_TOKENS], e[MOST_TOKENS];
    int64_t source[MOST_TOKENS]; /* for a batch made from another: the token there, -1 for none */
} batch;

static inline size_t tokens_of(const batch *b) { return b->offsets[b->n]; }

static inline rein_tokens tokens(const batch *b) { return (rein_tokens){b->n, b->offsets, b->parents, b->ids, b->wanted, NULL}; }

/* An empty batch that the caller frees. */
static inline batch *batch_new(void) { return some(1, sizeof(batch)); }

/* The first token of a root is never wanted, whatever `wanted` says. */
static inline void add_token(batch *b, int32_t id, int wanted, float c, float e, int64_t source) {
    const size_t t = b->offsets[b->n]++;
    assert_true(t < MOST_TOKENS);
    const size_t first = b->n ? b->offsets[b->n - 1] : 0;
    b->ids[t] = id;
    b->wanted[t] = wanted && (t > first || b->parents[b->n - 1] >= 0);
    b->c[t] = c, b->e[t] = e, b->source[t] = source;
}

static inline void add_segment(batch *b, int64_t parent) {
    assert_true(b->n < MOST_SEGMENTS);
    b->parents[b->n++] = parent;
    b->offsets[b->n] = b->offsets[b->n - 1];
}

static inline float coefficient_c(size_t t) { return (float)cos(0.5 + 1.3 * (double)t); }
static inline float coefficient_e(size_t t) { return (float)(0.3 * sin(0.2 + 0.7 * (double)t)); }

/* Segment s of `from` at the end of `to`, with its coefficients, if `wanted`; else with none of its tokens wanted. */
static inline void copy_segment(batch *to, const batch *from, size_t s, int wanted) {
    for (size_t t = from->offsets[s]; t < from->offsets[s + 1]; t++)
        add_token(to, from->ids[t], wanted && from->wanted[t], from->c[t], from->e[t], (int64_t)t);
}

/* The tokens before segment s, from its root on. */
static inline void copy_ancestors(batch *to, const batch *from, size_t s) {
    if (from->parents[s] < 0) return;
    copy_ancestors(to, from, (size_t)from->parents[s]);
    copy_segment(to, from, (size_t)from->parents[s], 0);
}

/* Every segment as its own sequence, after its ancestors; the wanted tokens are those of the segment. */
static inline batch *batch_apart(const batch *from) {
    batch *to = batch_new();
    for (size_t s = 0; s < from->n; s++) {
        add_segment(to, -1);
        copy_ancestors(to, from, s);
        copy_segment(to, from, s, 1);
    }
    return to;
}

/* Segments [first, last): whole trees. */
static inline batch *batch_part(const batch *from, size_t first, size_t last) {
    batch *to = batch_new();
    for (size_t s = first; s < last; s++) {
        add_segment(to, from->parents[s] < 0 ? -1 : from->parents[s] - (int64_t)first);
        copy_segment(to, from, s, 1);
    }
    return to;
}

/* ---- goldens */
static inline json_t *read_json(const char *path) {
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);
    if (!json) fail_msg("%s: %s", path, error.text);
    return json;
}

static inline batch *golden_batch(const json_t *golden) {
    const json_t *segments = json_object_get(golden, "segments"), *parents = json_object_get(golden, "parents");
    batch *b = batch_new();
    for (size_t s = 0; s < json_array_size(segments); s++) {
        const json_t *ids = json_array_get(segments, s);
        add_segment(b, json_integer_value(json_array_get(parents, s)));
        for (size_t i = 0; i < json_array_size(ids); i++)
            add_token(b, (int32_t)json_integer_value(json_array_get(ids, i)), 1, coefficient_c(tokens_of(b)),
                      coefficient_e(tokens_of(b)), -1);
    }
    assert_true(b->n > 0);
    return b;
}

/* ---- a pass */
typedef struct pass {
    float *log_probs, *entropies; /* [tokens] */
    float *gradient;              /* [floats] or NULL */
    size_t tokens, floats;
} pass;

static inline void pass_free(pass *p) { free(p->log_probs), free(p->entropies), free(p->gradient); }

/* Forward, and backward if something trains and `keep` is set. Adds to p->gradient if it is not NULL. */
static inline void run_pass(pass *p, rein_activations *activations, const rein_policy *policy, const batch *b,
                            const rein_forward_options *options) {
    const rein_tokens t = tokens(b);
    p->tokens = tokens_of(b), p->floats = rein_parameter_floats(policy->model, policy->adapter);
    free(p->log_probs), free(p->entropies);
    p->log_probs = floats(p->tokens), p->entropies = floats(p->tokens);
    OK(rein_forward(p->log_probs, p->entropies, activations, policy, &t, options, &error_));
    if (!options || !options->keep) return;
    if (!p->gradient) p->gradient = floats(p->floats);
    OK(rein_backward(p->gradient, activations, b->c, options->entropy_gradient ? b->e : NULL, &error_));
}

#endif
