/* engine.c - rows of the engine: training steps, the head alone, prefill and decoding.
 *
 * The limit counts 2 operations per weight of a linear module, per token and per pass: the forward pass, the backward pass to the inputs
 * and, where weights train, the backward pass to the weights. Attention is not counted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

static void tokens_for(int32_t *ids, size_t n, int vocabulary) {
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 7919) % (size_t)vocabulary);
}

static float *zeros(size_t n) {
    float *p = calloc(n ? n : 1, sizeof *p);
    if (!p) bench_give_up("no memory for %zu numbers", n);
    return p;
}

/* -------------------------------------------------------------------------------------------------------------------- training */

/* A policy, its trainable parameters, and the tokens of a step. */
typedef struct learner {
    rein_model *model;
    rein_adapter *adapter; /* NULL: all weights train */
    rein_activations *activations;
    rein_policy policy;
    rein_parameter *parameters;
    size_t floats, count, n_tokens;
    float *gradient, *log_probs, *dlog_probs;
    rein_tokens tokens;
} learner;

static void open_policy(learner *l, const bench_row *row, const rein_lora_options *lora, const bench_job *job) {
    char path[4096];
    rein_error err = {0};
    bench_model(path, sizeof path, row->shape, 0, job);
    bench_must(
        rein_model_open(&l->model, path, &(rein_model_options){.train = !lora, .exec = job->exec, .quantize = row->quantize}, &err),
        &err);
    if (lora) bench_must(rein_adapter_new(&l->adapter, l->model, lora, &err), &err);
    bench_must(rein_activations_open(&l->activations, &job->exec, &err), &err);
    l->policy = (rein_policy){l->model, l->adapter, 1};
    l->floats = rein_parameter_floats(l->model, l->adapter);
    l->count = rein_parameter_count(l->model, l->adapter);
    l->gradient = zeros(l->floats);
    l->parameters = bench_get(l->count * sizeof *l->parameters);
    rein_parameters(l->parameters, l->model, l->adapter, l->gradient);
}

static void take_tokens(learner *l, size_t sequences, size_t length, int vocabulary) {
    const size_t n = sequences * length;
    size_t *offsets = bench_get((sequences + 1) * sizeof *offsets);
    int32_t *ids = bench_get(n * sizeof *ids);
    for (size_t i = 0; i <= sequences; i++) offsets[i] = i * length;
    tokens_for(ids, n, vocabulary);
    l->log_probs = zeros(n), l->dlog_probs = zeros(n);
    for (size_t i = 0; i < n; i++) l->dlog_probs[i] = -1.0f / (float)n;
    l->tokens = (rein_tokens){.n = sequences, .offsets = offsets, .ids = ids};
}

static void forward_backward(learner *l) {
    rein_error err = {0};
    const rein_forward_options options = {.keep = 1};
    bench_must(rein_forward(l->log_probs, NULL, l->activations, &l->policy, &l->tokens, &options, &err), &err);
    memset(l->gradient, 0, l->floats * sizeof *l->gradient);
    bench_must(rein_backward(l->gradient, l->activations, l->dlog_probs, NULL, &err), &err);
}

/* 4 sequences of 256 tokens; every token trains except the first of each sequence. */
void bench_train(bench_figures *figures, const bench_row *row, const bench_job *job) {
    enum { SEQUENCES = 4, LENGTH = 256, TOKENS = SEQUENCES * LENGTH };
    const rein_lora_options lora = {.rank = 8, .alpha = 16};
    const rein_adamw adamw = {1e-4, 0.9, 0.95, 1e-8, 0.01, 1};
    const double work = (row->lora ? 4 : 6) * (bench_layer_weights(row->shape) + bench_head_weights(row->shape));
    learner l = {0};
    rein_error err = {0};
    int64_t step = 0;
    open_policy(&l, row, row->lora ? &lora : NULL, job);
    take_tokens(&l, SEQUENCES, LENGTH, row->shape->vocabulary);
    float *first = zeros(l.floats), *second = zeros(l.floats);
    figures->limit = 0;
    for (uint64_t i = 0; i < job->rounds; i++) {
        const double start = bench_now();
        forward_backward(&l);
        bench_must(rein_adamw_step(NULL, first, second, &step, l.parameters, l.count, &adamw, &job->exec, &err), &err);
        bench_must(rein_parameters_changed(l.model, l.adapter, &err), &err);
        figures->value = fmax(figures->value, TOKENS / (bench_now() - start));
        figures->limit = fmax(figures->limit, bench_fma() / work);
    }
}

/* 1024 rows through the head of a model with one tiny layer. With an adapter on that layer's last module the head must return the gradient
 * of its input; when all weights train, also that of its own weights. */
void bench_head_row(bench_figures *figures, const bench_row *row, const bench_job *job) {
    enum { SEQUENCES = 4, LENGTH = 257, ROWS = SEQUENCES * (LENGTH - 1) };
    const char *const last[] = {"down_proj"};
    const rein_lora_options lora = {.rank = 8, .alpha = 16, .modules = last, .n_modules = 1};
    const double work = (row->lora ? 4 : 6) * bench_head_weights(row->shape);
    learner l = {0};
    open_policy(&l, row, row->lora ? &lora : NULL, job);
    take_tokens(&l, SEQUENCES, LENGTH, row->shape->vocabulary);
    figures->limit = 0;
    for (uint64_t i = 0; i < job->rounds; i++) {
        const double start = bench_now();
        forward_backward(&l);
        figures->value = fmax(figures->value, ROWS / (bench_now() - start));
        figures->limit = fmax(figures->limit, bench_fma() / work);
    }
}

/* Seconds for each token of a sequence, forward and backward: the shorter of the rounds. */
static double seconds_a_token(const bench_row *row, const rein_lora_options *lora, size_t length, const bench_job *job) {
    enum { TOKENS = 4096 };
    learner l = {0};
    double seconds = INFINITY;
    open_policy(&l, row, lora, job);
    take_tokens(&l, TOKENS / length, length, row->shape->vocabulary);
    for (uint64_t i = 0; i < job->rounds; i++) {
        const double start = bench_now();
        forward_backward(&l);
        seconds = fmin(seconds, bench_now() - start);
    }
    return seconds / TOKENS;
}

/* Where all layers have a window of 512, tokens of a sequence of 4,096 take hardly longer than those of sequences of 512. */
void bench_window(bench_figures *figures, const bench_row *row, const bench_job *job) {
    const rein_lora_options lora = {.rank = 8, .alpha = 16};
    figures->value = 100 * seconds_a_token(row, &lora, 4096, job) / seconds_a_token(row, &lora, 512, job);
}

/* -------------------------------------------------------------------------------------------------------------------- sampling */

/* A generator with `batch` requests of one sample of max_tokens each. */
static rein_generator *open_generator(rein_model *model, size_t batch, size_t prompt, size_t max_tokens, int vocabulary,
                                      const rein_exec *exec) {
    const rein_policy policy = {model, NULL, 1};
    const rein_generator_options options = {.exec = *exec};
    rein_generator *generator;
    rein_error err = {0};
    size_t number;
    int32_t *ids = bench_get(prompt * sizeof *ids);
    tokens_for(ids, prompt, vocabulary);
    bench_must(rein_generator_open(&generator, &policy, NULL, &options, &err), &err);
    for (size_t i = 0; i < batch; i++) {
        rein_request r = {.prompt = ids, .n_prompt = prompt, .samples = 1, .address.prompt = i, .sampling = rein_sampling_plain()};
        r.sampling.max_tokens = max_tokens;
        bench_must(rein_generator_add(&number, generator, &r, &err), &err);
    }
    free(ids);
    return generator;
}

static double step_seconds(rein_generator *generator, size_t wanted) {
    const rein_sampled *sampled;
    rein_error err = {0};
    size_t n;
    const double start = bench_now();
    bench_must(rein_generator_step(&sampled, &n, generator, &err), &err);
    if (n != wanted) bench_give_up("%zu tokens were sampled at once, not %zu", n, wanted);
    return bench_now() - start;
}

static rein_model *open_model(const bench_row *row, const bench_job *job) {
    char path[4096];
    rein_model *model;
    rein_error err = {0};
    bench_model(path, sizeof path, row->shape, row->f32, job);
    bench_must(rein_model_open(&model, path, &(rein_model_options){.exec = job->exec, .quantize = row->quantize}, &err), &err);
    return model;
}

/* With the scales of the blocks. */
static double bytes_of_weight(const bench_row *row) {
    if (row->quantize) return strcmp(row->quantize, "q8_0") ? 18 / 32.0 : 34 / 32.0;
    return row->f32 ? 4 : 2;
}

/* A round is 8 steps. The prompts and two steps come before the first round. */
void bench_decode(bench_figures *figures, const bench_row *row, const bench_job *job) {
    enum { STEPS = 8, PROMPT = 16 };
    const double weights = bench_layer_weights(row->shape) + bench_head_weights(row->shape), batch = (double)row->batch;
    rein_model *model = open_model(row, job);
    rein_generator *generator =
        open_generator(model, row->batch, PROMPT, 3 + STEPS * job->rounds, row->shape->vocabulary, &job->exec);
    double operations = 0, bytes = 0;
    for (int i = 0; i < 3; i++) step_seconds(generator, row->batch);
    for (uint64_t i = 0; i < job->rounds; i++) {
        double seconds = 0;
        for (int k = 0; k < STEPS; k++) seconds += step_seconds(generator, row->batch);
        figures->value = fmax(figures->value, STEPS * batch / seconds);
        operations = fmax(operations, bench_fma());
        bytes = fmax(bytes, bench_read());
    }
    figures->limit = fmin(batch * bytes / (weights * bytes_of_weight(row)), operations / (2 * weights));
    rein_generator_close(generator);
    rein_model_close(model);
}

/* The time until the first token after the prompt is sampled. */
void bench_prefill(bench_figures *figures, const bench_row *row, const bench_job *job) {
    enum { PROMPT = 512 };
    rein_model *model = open_model(row, job);
    figures->limit = 0;
    for (uint64_t i = 0; i < job->rounds; i++) {
        rein_generator *generator = open_generator(model, 1, PROMPT, 1, row->shape->vocabulary, &job->exec);
        figures->value = fmax(figures->value, PROMPT / step_seconds(generator, 1));
        figures->limit = fmax(figures->limit, bench_fma() / (2 * bench_layer_weights(row->shape)));
        rein_generator_close(generator);
    }
    rein_model_close(model);
}
