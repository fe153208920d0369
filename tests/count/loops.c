/* loops.c - five hot loops on fixed small inputs and one thread, for run.sh to count their instructions.
 *
 *     loops NAME DIRECTORY        gemm, decode, head, policy-loss or attention; the directory is empty, models/sums below the present one
 *
 * What is counted is the function `counted`, or what run.sh names in its place: a part of a pass through a model. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/gemm.h"
#include "objective/options.h"
#include "rein/rein.h"

static const rein_exec EXEC = {1, REIN_ISA_AVX2};

static void must(rein_status status, const rein_error *err) {
    if (!status) return;
    fprintf(stderr, "loops: %s\n", err->message);
    exit(1);
}

static void *get(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) exit(1);
    return p;
}

/* Between -1 and 1. */
static float number(size_t i) { return (float)((i + 1) * 0x9e3779b97f4a7c15u >> 40) * 0x1p-23f - 1; }

/* Called through a pointer that the compiler cannot resolve: it can neither inline the function nor clone it under other names. */
static void counted(void (*work)(void *), void *context) { work(context); }
static void (*volatile const count)(void (*work)(void *), void *context) = counted;

/* ------------------------------------------------------------------------------------------------------------------- a product */

enum { M = 192, N = 256, K = 512 };

typedef struct product {
    float *c;
    rein_matrix a;
    rein_packed b;
    void *scratch;
} product;

static void multiply(void *context) {
    const product *p = context;
    rein_gemm_packed(p->c, N, &p->a, &p->b, M, 0, p->scratch, &EXEC);
}

static void gemm(const char *directory) {
    float *a = get(sizeof *a * M * K), *b = get(sizeof *b * K * N);
    (void)directory;
    for (size_t i = 0; i < M * K; i++) a[i] = number(i);
    for (size_t i = 0; i < K * N; i++) b[i] = number(i + 7);
    const rein_matrix right = {b, N, 1, REIN_STORED_F32};
    product p = {get(sizeof *p.c * M * N), {a, K, 1, REIN_STORED_F32}, {0}, get(rein_gemm_scratch(&EXEC))};
    p.b = rein_pack(get(rein_packed_size(K, N, REIN_STORED_F32)), &right, K, N);
    count(multiply, &p);
}

/* -------------------------------------------------------------------------------------------------------- a token of four samples */

static void step(void *context) {
    const rein_sampled *sampled;
    rein_error err = {0};
    size_t n;
    must(rein_generator_step(&sampled, &n, context, &err), &err);
    if (n != 4) exit(1);
}

static void decode(const char *directory) {
    int32_t prompt[16];
    rein_model *model;
    rein_generator *generator;
    rein_error err = {0};
    size_t request;
    (void)directory;
    for (int i = 0; i < 16; i++) prompt[i] = 5 + 3 * i;
    must(rein_model_open(&model, "models/sums", &(rein_model_options){.exec = EXEC}, &err), &err);
    const rein_policy policy = {model, NULL, 1};
    must(rein_generator_open(&generator, &policy, NULL, &(rein_generator_options){.exec = EXEC}, &err), &err);
    const rein_request r = {.prompt = prompt, .n_prompt = 16, .samples = 4, .sampling = rein_sampling_plain()};
    must(rein_generator_add(&request, generator, &r, &err), &err);
    step(generator); /* the prompt */
    count(step, generator);
    rein_generator_close(generator);
    rein_model_close(model);
}

/* ----------------------------------------------------------------------------------------------------- parts of a pass: see run.sh */

/* One layer of 2 heads of 64 with random weights. */
static rein_model *small_model(const char *directory, int vocabulary, int train) {
    char path[4096];
    rein_model *model;
    rein_error err = {0};
    snprintf(path, sizeof path, "%s/config.json", directory);
    FILE *file = fopen(path, "w");
    if (!file) exit(1);
    fprintf(file,
            "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": %d, \"hidden_size\": 128, "
            "\"intermediate_size\": 64, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
            "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"max_position_embeddings\": 256, "
            "\"tie_word_embeddings\": true, \"bos_token_id\": 1, \"eos_token_id\": 2, \"initializer_range\": 0.02}\n",
            vocabulary);
    fclose(file);
    must(rein_model_init(directory, 1, &err), &err);
    must(rein_model_open(&model, directory, &(rein_model_options){.train = train, .exec = EXEC}, &err), &err);
    return model;
}

static void pass(const char *directory, size_t length, int vocabulary, int lora) {
    int32_t ids[128];
    float log_probs[128], dlog_probs[128];
    const size_t offsets[2] = {0, length};
    const char *const modules[] = {"down_proj"};
    rein_adapter *adapter = NULL;
    rein_activations *activations;
    rein_error err = {0};
    rein_model *model = small_model(directory, vocabulary, !lora);
    const rein_lora_options options = {.rank = 8, .alpha = 16, .modules = modules, .n_modules = 1};
    if (lora) must(rein_adapter_new(&adapter, model, &options, &err), &err);
    for (size_t i = 0; i < length; i++) ids[i] = (int32_t)(i * 37) % vocabulary, dlog_probs[i] = -1;
    const rein_policy policy = {model, adapter, 1};
    const rein_tokens tokens = {.n = 1, .offsets = offsets, .ids = ids};
    float *gradient = calloc(rein_parameter_floats(model, adapter), sizeof *gradient);
    if (!gradient) exit(1);
    must(rein_activations_open(&activations, &EXEC, &err), &err);
    must(rein_forward(log_probs, NULL, activations, &policy, &tokens, &(rein_forward_options){.keep = 1}, &err), &err);
    must(rein_backward(gradient, activations, dlog_probs, NULL, &err), &err);
    free(gradient);
    rein_activations_close(activations);
    rein_adapter_close(adapter);
    rein_model_close(model);
}

static void head(const char *directory) { pass(directory, 33, 2048, 1); } /* 32 rows; the head is frozen */
static void attention(const char *directory) { pass(directory, 128, 64, 0); }

/* -------------------------------------------------------------------------------------------------------------------- the loss */

enum { SEQUENCES = 32, LENGTH = 256, TOKENS = SEQUENCES * LENGTH };

typedef struct loss_task {
    rein_batch batch;
    rein_options options;
    float *gradient;
    void *workspace;
    size_t size;
} loss_task;

static void loss(void *context) {
    loss_task *t = context;
    rein_step *step;
    rein_loss loss;
    rein_error err = {0};
    must(rein_step_begin(&step, t->workspace, t->size, &t->batch, &t->options, &EXEC, &err), &err);
    must(rein_step_loss(step, 0, SEQUENCES, NULL, NULL, t->gradient, NULL, NULL, &err), &err);
    must(rein_step_finish(&loss, step, &err), &err);
}

static void policy_loss(const char *directory) {
    size_t offsets[SEQUENCES + 1], groups[SEQUENCES / 8 + 1];
    double rewards[SEQUENCES];
    float *lp = get(sizeof *lp * TOKENS), *old = get(sizeof *old * TOKENS), *ref = get(sizeof *ref * TOKENS);
    rein_error err = {0};
    (void)directory;
    for (size_t i = 0; i < TOKENS; i++) {
        const float far = i % 50 == 49 ? 10 : 1;
        lp[i] = -1 - number(i), old[i] = lp[i] + 0.02f * far * number(i + TOKENS), ref[i] = lp[i] + 0.05f * far * number(3 * i);
    }
    for (size_t i = 0; i <= SEQUENCES; i++) offsets[i] = i * LENGTH;
    for (size_t i = 0; i <= SEQUENCES / 8; i++) groups[i] = i * 8;
    for (size_t i = 0; i < SEQUENCES; i++) rewards[i] = i % 3 == 0;
    loss_task t = {.batch = {.n_groups = SEQUENCES / 8,
                             .n_sequences = SEQUENCES,
                             .group_offsets = groups,
                             .sequence_offsets = offsets,
                             .dtype = REIN_F32,
                             .log_probs = lp,
                             .old_log_probs = old,
                             .ref_log_probs = ref,
                             .rewards = rewards},
                   .gradient = calloc(TOKENS, sizeof *t.gradient)};
    must(rein_options_init(&t.options, "grpo", &err), &err); /* with k3 */
    t.size = rein_step_size(&t.batch, &t.options, &EXEC);
    t.workspace = get(t.size);
    count(loss, &t);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(const char *directory);
    } loops[] = {{"gemm", gemm}, {"decode", decode}, {"head", head}, {"policy-loss", policy_loss}, {"attention", attention}};
    for (size_t i = 0; i < sizeof loops / sizeof *loops && argc == 3; i++)
        if (!strcmp(loops[i].name, argv[1])) return loops[i].run(argv[2]), 0;
    fprintf(stderr, "usage: loops NAME DIRECTORY\n");
    return 2;
}
