/* engine.c - how fast the engine is on a model of random weights, beside the limits of this machine in the same run.
 *
 *     build/bench/engine [--json] [SHAPE…]        shapes: small (6 layers × 384, vocabulary 4096), smollm (SmolLM2-135M)
 *
 * Work is counted as it must be done: 2 operations for each weight of a linear layer and token, forward; twice that backward through
 * inputs; the same again for the gradients of weights that train. Attention is not counted. */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/pool.h"
#include "random_model.h"
#include "rein/rein.h"
#ifdef REIN_HAVE_AVX2
#include <immintrin.h>
#endif

static int json, rows_printed;
static double peak, bandwidth; /* operations and bytes a second */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double peak_memory(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss * 1024;
}

/* ---- the limits */
#ifdef REIN_HAVE_AVX2
__attribute__((target("avx2,fma"))) static void multiply(void *context, size_t piece, int thread) {
    __m256 sums[12];
    const __m256 x = _mm256_set1_ps(0.9f + 0.01f * (float)thread), y = _mm256_set1_ps(1e-3f);
    (void)piece;
    for (int i = 0; i < 12; i++) sums[i] = _mm256_set1_ps((float)i);
    for (int n = 0; n < 2000000; n++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) sums[i] = _mm256_fmadd_ps(sums[i], x, y);
    float total[8] = {0};
    for (int i = 1; i < 12; i++) sums[0] = _mm256_add_ps(sums[0], sums[i]);
    _mm256_storeu_ps(total, sums[0]);
    ((volatile float *)context)[16 * thread] = total[0];
}
enum { OPERATIONS = 2000000 * 12 * 16 };
#else
static void multiply(void *context, size_t piece, int thread) {
    float sum = 1;
    (void)piece;
    for (int n = 0; n < 2000000; n++) sum = fmaf(sum, 0.9f, 1e-3f);
    ((volatile float *)context)[16 * thread] = sum;
}
enum { OPERATIONS = 2000000 * 2 };
#endif

enum { READ = 64 << 20 };
static void read_piece(void *context, size_t piece, int thread) {
    const uint64_t *from = (const uint64_t *)context + piece * (READ / 64 / 8);
    uint64_t sums[8] = {0};
    (void)thread;
    for (size_t i = 0; i < READ / 64 / 8; i += 8)
        for (size_t l = 0; l < 8; l++) sums[l] += from[i + l];
    volatile uint64_t kept = sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
    (void)kept;
}

static void limits(void) {
    const int threads = rein_cores();
    float sink[16 * 256];
    char *memory = bench_get(READ);
    memset(memory, 1, READ);
    for (int round = 0; round < 5; round++) {
        double start = now();
        rein_parallel(threads, (size_t)threads, multiply, sink);
        const double rate = (double)threads * OPERATIONS / (now() - start);
        if (rate > peak) peak = rate;
        start = now();
        rein_parallel(threads, 64, read_piece, memory);
        if (READ / (now() - start) > bandwidth) bandwidth = READ / (now() - start);
    }
    free(memory);
}

static void row(const char *shape, const char *name, double value, const char *unit, double limit) {
    if (json)
        printf("%s{\"name\": \"%s %s\", \"value\": %.6g, \"unit\": \"%s\", \"limit\": %.6g, \"share_of_limit\": %.4g}",
               rows_printed++ ? ",\n" : "[", shape, name, value, unit, limit, limit > 0 ? value / limit : 0);
    else if (limit > 0) printf("%-8s %-34s %10.1f %-6s %5.0f %% of %.1f\n", shape, name, value, unit, 100 * value / limit, limit);
    else printf("%-8s %-34s %10.1f %-6s\n", shape, name, value, unit);
    fflush(stdout);
}

typedef bench_shape shape;
static const shape SHAPES[] = {{"small", 384, 1024, 6, 6, 6, 4096}, {"smollm", 576, 1536, 30, 9, 3, 49152}};

static double linear_weights(const shape *s) { /* of all layers; the head apart */
    const double dim = s->hidden / s->heads;
    return s->layers * (s->hidden * dim * (2.0 * s->heads + 2.0 * s->kv_heads) + 3.0 * s->hidden * s->middle);
}

/* ---- a training step: 4 sequences of 256 tokens, every token trained */
enum { SEQUENCES = 4, LENGTH = 256, TOKENS = SEQUENCES * LENGTH };

static void train(const char *directory, const shape *s, int lora) {
    rein_error err;
    rein_model *model;
    rein_adapter *adapter = NULL;
    rein_trace *trace;
    bench_must(rein_model_open(&model, directory, &(rein_model_options){.train = !lora}, &err), &err);
    if (lora) bench_must(rein_adapter_new(&adapter, model, &(rein_lora_options){.rank = 8, .alpha = 16}, &err), &err);
    bench_must(rein_trace_open(&trace, NULL, &err), &err);
    const size_t floats = rein_parameter_floats(model, adapter), count = rein_parameter_count(model, adapter);
    float *gradient = bench_get(floats * 4), *first = calloc(floats, 4), *second = calloc(floats, 4);
    rein_parameter *parameters = bench_get(count * sizeof *parameters);
    rein_parameters(parameters, model, adapter, gradient);
    static int32_t ids[TOKENS];
    static float log_probs[TOKENS], dlog_probs[TOKENS];
    size_t offsets[SEQUENCES + 1];
    for (size_t i = 0; i <= SEQUENCES; i++) offsets[i] = i * LENGTH;
    for (size_t i = 0; i < TOKENS; i++) ids[i] = (int32_t)((i * 7919) % (size_t)s->vocabulary), dlog_probs[i] = -1.0f / TOKENS;
    const rein_tokens tokens = {SEQUENCES, offsets, NULL, ids, NULL};
    const rein_policy policy = {model, adapter, 1};
    const rein_adamw adamw = {1e-4, 0.9, 0.95, 1e-8, 0.01, 1};
    int64_t step = 0;
    double best = INFINITY, forward = 0, backward = 0, update = 0;
    for (int round = 0; round < (s->layers > 10 ? 3 : 8); round++) {
        const double a = now();
        bench_must(rein_forward(log_probs, NULL, trace, &policy, &tokens, &(rein_forward_options){.keep = 1}, &err), &err);
        const double b = now();
        memset(gradient, 0, floats * 4);
        bench_must(rein_backward(gradient, trace, dlog_probs, NULL, &err), &err);
        const double c = now();
        bench_must(rein_adamw_step(NULL, first, second, &step, parameters, count, &adamw, NULL, &err), &err);
        bench_must(rein_parameters_changed(model, adapter, NULL, &err), &err);
        const double d = now();
        if (d - a < best) best = d - a, forward = b - a, backward = c - b, update = d - c;
    }
    const double layers = linear_weights(s), head = (double)s->hidden * s->vocabulary;
    /* layers: forward, inputs, and weights when they train; head: two products with directions, four when it trains */
    const double work = 2.0 * TOKENS * (layers * (lora ? 2 : 3) + head * (lora ? 2 : 3));
    row(s->name, lora ? "training step, LoRA r 8" : "training step, full, AdamW", TOKENS / best, "tok/s", TOKENS * peak / work);
    row(s->name, lora ? "  LoRA forward" : "  full forward", 1e3 * forward, "ms", 0);
    row(s->name, lora ? "  LoRA backward" : "  full backward", 1e3 * backward, "ms", 0);
    row(s->name, lora ? "  LoRA update" : "  full update", 1e3 * update, "ms", 0);
    row(s->name, lora ? "  LoRA peak memory so far" : "  full peak memory so far", peak_memory() / 1e6, "MB", 0);
    free(gradient), free(first), free(second), free(parameters);
    rein_trace_close(trace);
    rein_adapter_close(adapter);
    rein_model_close(model);
}

/* ---- decoding and prompts */
static void decode(const char *directory, const shape *s, size_t batch, size_t prompt) {
    rein_error err;
    rein_model *model;
    rein_generator *generator;
    const rein_sampled *sampled;
    size_t number, n, steps = batch > 1 ? 24 : 48;
    char name[64];
    bench_must(rein_model_open(&model, directory, NULL, &err), &err);
    const rein_policy policy = {model, NULL, 1};
    bench_must(rein_generator_open(&generator, &policy, NULL, NULL, &err), &err);
    int32_t *ids = bench_get(prompt * sizeof *ids);
    for (size_t i = 0; i < prompt; i++) ids[i] = (int32_t)((i * 7919) % (size_t)s->vocabulary);
    for (size_t i = 0; i < batch; i++) {
        rein_request r = {.prompt = ids, .n_prompt = prompt, .samples = 1, .prompt_index = i, .sampling = rein_sampling_plain()};
        r.sampling.max_tokens = steps + 1;
        bench_must(rein_generator_add(&number, generator, &r, &err), &err);
    }
    double start = now(), best = INFINITY;
    bench_must(rein_generator_step(&sampled, &n, generator, &err), &err);
    const double prefill = now() - start;
    for (size_t i = 0; i < steps; i++) {
        start = now();
        bench_must(rein_generator_step(&sampled, &n, generator, &err), &err);
        if (now() - start < best) best = now() - start;
    }
    const double weights = linear_weights(s) + (double)s->hidden * s->vocabulary;
    const double by_memory = bandwidth / (2 * weights) * (double)batch, by_work = peak / (2 * weights);
    snprintf(name, sizeof name, "decode bf16, batch %zu", batch);
    row(s->name, name, (double)batch / best, "tok/s", by_memory < by_work ? by_memory : by_work);
    if (batch == 1)
        row(s->name, "prompt of 256 tokens, first time", (double)prompt / prefill, "tok/s", peak / (2 * linear_weights(s)));
    free(ids);
    rein_generator_close(generator);
    rein_model_close(model);
}

int main(int argc, char **argv) {
    int named = 0;
    rein_bind_threads();
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--json")) json = 1;
        else named++;
    limits();
    row("machine", "fused multiply-add", peak / 1e9, "GFLOP/s", 0);
    row("machine", "reading", bandwidth / 1e9, "GB/s", 0);
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        char directory[] = "/tmp/rein-bench-XXXXXX", command[64];
        int wanted = !named;
        for (int a = 1; a < argc; a++) wanted |= !strcmp(argv[a], SHAPES[i].name);
        if (!wanted || !mkdtemp(directory)) continue;
        bench_write_model(directory, &SHAPES[i]);
        decode(directory, &SHAPES[i], 1, 256);
        decode(directory, &SHAPES[i], 16, 16);
        decode(directory, &SHAPES[i], 64, 16);
        train(directory, &SHAPES[i], 1);
        train(directory, &SHAPES[i], 0);
        snprintf(command, sizeof command, "rm -r '%s'", directory);
        if (system(command) != 0) return 1;
    }
    if (json) puts("]");
    return 0;
}
