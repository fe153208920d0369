/* evaluate.c - what the engine computes, for pytest: a request in JSON, results as files of raw floats.
 *
 *     evaluate REQUEST.json
 *         model           directory
 *         adapter         directory, or absent
 *         train           true: all weights train
 *         temperature
 *         segments        lists of ids; parents: the segment each one continues, -1 for none
 *         dlog_probs      of every token; absent: no gradient. dentropies: absent for none
 *         recompute       true or absent
 *         logits          true or absent
 *         optimizer       absent, or {steps, learning_rate, weight_decay}: AdamW with the gradient of dlog_probs, instead of one pass
 *         to              directory of the results: log_probs, entropies, logits, gradient, values (after training)
 *     stdout: {"parameters": [[name, rows, columns], …], "losses": [Σ dlog_probs·log_probs before each step]}
 * Exit 2 and the message on stderr when it is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rein/model.h"
#include "rein/train.h"

static rein_error error;

static void check(rein_status status) {
    if (status == REIN_OK) return;
    fprintf(stderr, "%s\n", error.message);
    exit(2);
}

static void *some(size_t n, size_t size) {
    void *memory = calloc(n + 1, size);
    if (!memory) exit(1);
    return memory;
}

static void write_floats(const json_t *request, const char *name, const float *x, size_t n) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", json_string_value(json_object_get(request, "to")), name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(x, sizeof *x, n, file) != n || fclose(file)) exit(1);
}

/* NULL when the request has none. */
static float *read_floats(const json_t *request, const char *name) {
    const json_t *list = json_object_get(request, name);
    if (!list) return NULL;
    float *x = some(json_array_size(list), sizeof *x);
    for (size_t i = 0; i < json_array_size(list); i++) x[i] = (float)json_number_value(json_array_get(list, i));
    return x;
}

static rein_tokens read_tokens(const json_t *request) {
    const json_t *segments = json_object_get(request, "segments"), *parents = json_object_get(request, "parents");
    const size_t n = json_array_size(segments);
    size_t *offsets = some(n + 1, sizeof *offsets), total = 0;
    int64_t *up = some(n, sizeof *up);
    for (size_t s = 0; s < n; s++) total += json_array_size(json_array_get(segments, s));
    int32_t *ids = some(total, sizeof *ids);
    for (size_t s = 0; s < n; s++) {
        const json_t *segment = json_array_get(segments, s);
        offsets[s + 1] = offsets[s] + json_array_size(segment);
        up[s] = json_integer_value(json_array_get(parents, s));
        for (size_t i = 0; i < json_array_size(segment); i++)
            ids[offsets[s] + i] = (int32_t)json_integer_value(json_array_get(segment, i));
    }
    return (rein_tokens){.n = n, .offsets = offsets, .parents = up, .ids = ids};
}

/* ---- one pass, or some steps */
typedef struct work {
    const json_t *request;
    rein_model *model;
    rein_adapter *adapter;
    rein_policy policy;
    rein_activations *activations;
    rein_tokens tokens;
    float *dlog_probs, *dentropies, *log_probs, *entropies, *gradient;
    rein_parameter *parameters;
    size_t n_tokens, n_parameters, floats;
} work;

static void one_pass(work *w) {
    const rein_forward_options options = {.keep = w->dlog_probs != NULL,
                                          .entropy_gradient = w->dentropies != NULL,
                                          .recompute = json_is_true(json_object_get(w->request, "recompute"))};
    check(rein_forward(w->log_probs, w->entropies, w->activations, &w->policy, &w->tokens, &options, &error));
    if (w->dlog_probs) check(rein_backward(w->gradient, w->activations, w->dlog_probs, w->dentropies, &error));
}

static void logits(const work *w) {
    size_t wanted = w->n_tokens;
    for (size_t s = 0; s < w->tokens.n; s++) wanted -= w->tokens.parents[s] < 0;
    const size_t n = wanted * (size_t)rein_model_describe(w->model).vocabulary;
    float *x = some(n, sizeof *x);
    check(rein_logits(x, w->activations, &w->policy, &w->tokens, &error));
    write_floats(w->request, "logits", x, n);
    free(x);
}

static void train(work *w, const json_t *optimizer, json_t *losses) {
    const rein_adamw options = {.learning_rate = json_number_value(json_object_get(optimizer, "learning_rate")),
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .epsilon = 1e-8,
                                .weight_decay = json_number_value(json_object_get(optimizer, "weight_decay"))};
    float *first = some(w->floats, sizeof *first), *second = some(w->floats, sizeof *second);
    int64_t step = 0;
    while (step < json_integer_value(json_object_get(optimizer, "steps"))) {
        double loss = 0;
        memset(w->gradient, 0, w->floats * sizeof *w->gradient);
        one_pass(w);
        for (size_t t = 0; t < w->n_tokens; t++) loss += (double)w->dlog_probs[t] * (double)w->log_probs[t];
        json_array_append_new(losses, json_real(loss));
        check(rein_adamw_step(NULL, first, second, &step, w->parameters, w->n_parameters, &options, NULL, &error));
        check(rein_parameters_changed(w->model, w->adapter, &error));
    }
    float *values = some(w->floats, sizeof *values);
    for (size_t p = 0; p < w->n_parameters; p++)
        memcpy(values + (w->parameters[p].gradient - w->gradient), w->parameters[p].value, w->parameters[p].size * sizeof *values);
    write_floats(w->request, "values", values, w->floats);
    free(first), free(second), free(values);
}

static void open_work(work *w) {
    const json_t *request = w->request, *adapter = json_object_get(request, "adapter");
    const rein_model_options options = {.train = json_is_true(json_object_get(request, "train"))};
    check(rein_model_open(&w->model, json_string_value(json_object_get(request, "model")), &options, &error));
    if (adapter) check(rein_adapter_open(&w->adapter, w->model, json_string_value(adapter), &error));
    check(rein_activations_open(&w->activations, NULL, &error));
    w->policy = (rein_policy){w->model, w->adapter, json_number_value(json_object_get(request, "temperature"))};
    w->tokens = read_tokens(request);
    w->n_tokens = w->tokens.offsets[w->tokens.n];
    w->dlog_probs = read_floats(request, "dlog_probs"), w->dentropies = read_floats(request, "dentropies");
    w->log_probs = some(w->n_tokens, sizeof(float)), w->entropies = some(w->n_tokens, sizeof(float));
    w->n_parameters = rein_parameter_count(w->model, w->adapter), w->floats = rein_parameter_floats(w->model, w->adapter);
    w->gradient = some(w->floats, sizeof(float)), w->parameters = some(w->n_parameters, sizeof *w->parameters);
    rein_parameters(w->parameters, w->model, w->adapter, w->gradient);
}

static void say(const work *w, json_t *losses) {
    json_t *parameters = json_array(), *said = json_object();
    for (size_t p = 0; p < w->n_parameters; p++)
        json_array_append_new(parameters, json_pack("[s, I, I]", w->parameters[p].name, (json_int_t)w->parameters[p].rows,
                                                    (json_int_t)w->parameters[p].columns));
    json_object_set_new(said, "parameters", parameters);
    json_object_set_new(said, "losses", losses);
    json_dumpf(said, stdout, 0);
    json_decref(said);
}

int main(int argc, char **argv) {
    work w = {.request = argc == 2 ? json_load_file(argv[1], 0, NULL) : NULL};
    if (!w.request) {
        fprintf(stderr, "usage: the comment of evaluate.c\n");
        return 1;
    }
    json_t *losses = json_array();
    open_work(&w);
    if (json_object_get(w.request, "optimizer")) train(&w, json_object_get(w.request, "optimizer"), losses);
    else one_pass(&w);
    write_floats(w.request, "log_probs", w.log_probs, w.n_tokens);
    write_floats(w.request, "entropies", w.entropies, w.n_tokens);
    if (w.dlog_probs) write_floats(w.request, "gradient", w.gradient, w.floats);
    if (json_is_true(json_object_get(w.request, "logits"))) logits(&w);
    say(&w, losses);
    return 0; /* the system takes the memory back */
}
