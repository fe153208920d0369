/* model.c - models of random weights in the format of Hugging Face. config.json is written last, so a model that has it is complete. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/bench.h"
#include "cli/policy.h"

const bench_shape bench_small = {"small", 384, 1024, 6, 6, 6, 4096, .family = BENCH_LLAMA};
const bench_shape bench_smollm = {"smollm", 576, 1536, 30, 9, 3, 49152, .family = BENCH_LLAMA};
const bench_shape bench_head = {"head", 896, 64, 1, 14, 2, 151936, .family = BENCH_LLAMA};
const bench_shape bench_gemma = {"gemma", 640, 2048, 18, 4, 1, 262144, .family = BENCH_GEMMA, .head_dim = 256, .window = 512};
const bench_shape bench_experts = {"experts", 768, 256, 4, 12, 4, 8192, .family = BENCH_EXPERTS, .experts = 64, .chosen = 8};
const bench_shape bench_windows = {"windows", 384, 1024, 6, 6, 6, 4096, .family = BENCH_MISTRAL, .window = 512};

enum { MOST_POSITIONS = 4096 };

static int head_dim(const bench_shape *s) { return s->head_dim ? s->head_dim : s->hidden / s->heads; }

double bench_layer_weights(const bench_shape *s) {
    const double hidden = s->hidden, width = head_dim(s), mlp = 3.0 * hidden * s->intermediate;
    const double used = s->family == BENCH_EXPERTS ? mlp * s->chosen + hidden * s->experts : mlp;
    return s->layers * (hidden * width * (2.0 * s->heads + 2.0 * s->kv_heads) + used);
}

double bench_head_weights(const bench_shape *s) { return (double)s->hidden * s->vocabulary; }

/* -------------------------------------------------------------------------------------------------------------------- the tensors */

enum { MOST_IN_A_LAYER = 256 };

typedef struct tensor {
    char name[96];
    int rows, columns; /* columns 0: a vector */
} tensor;

typedef struct tensors {
    const bench_shape *shape;
    tensor in_layer[MOST_IN_A_LAYER]; /* without "model.layers.N." */
    int n_in_layer;
} tensors;

static void add(tensors *t, const char *name, int rows, int columns) {
    tensor *to = &t->in_layer[t->n_in_layer++];
    snprintf(to->name, sizeof to->name, "%s", name);
    to->rows = rows, to->columns = columns;
}

static void add_attention(tensors *t) {
    const bench_shape *s = t->shape;
    const int width = head_dim(s);
    add(t, "self_attn.q_proj", width * s->heads, s->hidden);
    add(t, "self_attn.k_proj", width * s->kv_heads, s->hidden);
    add(t, "self_attn.v_proj", width * s->kv_heads, s->hidden);
    add(t, "self_attn.o_proj", s->hidden, width * s->heads);
    if (s->family != BENCH_GEMMA && s->family != BENCH_EXPERTS) return;
    add(t, "self_attn.q_norm", width, 0);
    add(t, "self_attn.k_norm", width, 0);
}

static void add_mlp(tensors *t, const char *at) {
    const bench_shape *s = t->shape;
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    for (int i = 0; i < 3; i++) {
        char name[80];
        snprintf(name, sizeof name, "%s.%s", at, names[i]);
        add(t, name, i < 2 ? s->intermediate : s->hidden, i < 2 ? s->hidden : s->intermediate);
    }
}

static void list_tensors(tensors *t, const bench_shape *s) {
    t->shape = s, t->n_in_layer = 0;
    add(t, "input_layernorm", s->hidden, 0);
    add_attention(t);
    add(t, "post_attention_layernorm", s->hidden, 0);
    if (s->family == BENCH_GEMMA) {
        add(t, "pre_feedforward_layernorm", s->hidden, 0);
        add(t, "post_feedforward_layernorm", s->hidden, 0);
    }
    if (s->family != BENCH_EXPERTS) add_mlp(t, "mlp");
    else add(t, "mlp.gate", s->experts, s->hidden);
    for (int e = 0; e < s->experts; e++) {
        char name[40];
        snprintf(name, sizeof name, "mlp.experts.%d", e);
        add_mlp(t, name);
    }
}

static int tensor_count(const tensors *t) { return 2 + t->n_in_layer * t->shape->layers; }

static tensor tensor_at(const tensors *t, int i) {
    tensor one = {"model.embed_tokens.weight", t->shape->vocabulary, t->shape->hidden};
    if (i == 0) return one;
    if (i == 1) return (tensor){"model.norm.weight", t->shape->hidden, 0};
    const int layer = (i - 2) / t->n_in_layer;
    const tensor *kind = &t->in_layer[(i - 2) % t->n_in_layer];
    snprintf(one.name, sizeof one.name, "model.layers.%d.%.60s.weight", layer, kind->name);
    one.rows = kind->rows, one.columns = kind->columns;
    return one;
}

static size_t numbers(const tensor *t) { return (size_t)t->rows * (size_t)(t->columns ? t->columns : 1); }

/* Uniform between -0.02 and 0.02; the weights of norms are 1, which Gemma stores as 0. */
static float weight(const tensor *t, bench_family family, int number, size_t k) {
    const uint64_t bits = (k + 1 + (uint64_t)number * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    return t->columns ? 0.04f * ((float)(bits >> 40) * 0x1p-24f - 0.5f) : (float)(family != BENCH_GEMMA);
}

/* --------------------------------------------------------------------------------------------------------------------- the files */

static void write_header(FILE *file, const tensors *all, int f32) {
    rein_text header = {0};
    size_t at = 0;
    for (int i = 0; i < tensor_count(all); i++) {
        const tensor t = tensor_at(all, i);
        const size_t bytes = numbers(&t) * (f32 ? 4 : 2);
        rein_text_format(&header, "%s\"%s\": {\"dtype\": \"%s\", \"shape\": [%d", i ? ", " : "{", t.name, f32 ? "F32" : "BF16",
                         t.rows);
        if (t.columns) rein_text_format(&header, ", %d", t.columns);
        rein_text_format(&header, "], \"data_offsets\": [%zu, %zu]}", at, at + bytes);
        at += bytes;
    }
    rein_text_put(&header, "}");
    rein_text_repeat(&header, " ", (8 - header.length % 8) % 8);
    if (header.failed) bench_give_up("no memory for the names of tensors");
    for (int i = 0; i < 8; i++) fputc((int)((uint64_t)header.length >> (8 * i) & 255), file);
    fwrite(header.data, 1, header.length, file);
    rein_text_free(&header);
}

static void write_tensor(FILE *file, const tensor *t, bench_family family, int number, int f32) {
    enum { PIECE = 16384 };
    static float values[PIECE];
    static uint16_t halves[PIECE];
    for (size_t done = 0, n; done < numbers(t); done += n) {
        n = numbers(t) - done < PIECE ? numbers(t) - done : PIECE;
        for (size_t k = 0; k < n; k++) {
            uint32_t bits;
            values[k] = weight(t, family, number, done + k);
            memcpy(&bits, &values[k], sizeof bits);
            halves[k] = (uint16_t)(bits >> 16);
        }
        if (f32) fwrite(values, sizeof *values, n, file);
        else fwrite(halves, sizeof *halves, n, file);
    }
}

static FILE *create(const char *directory, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    if (!file) bench_give_up("cannot write %s: %s", path, strerror(errno));
    return file;
}

static void finish(FILE *file, const char *directory) {
    const int bad = ferror(file);
    if (fclose(file) != 0 || bad) bench_give_up("cannot write a model to %s: %s", directory, strerror(errno));
}

static void write_config(FILE *file, const bench_shape *s) {
    static const char *const types[] = {
        [BENCH_LLAMA] = "llama", [BENCH_MISTRAL] = "mistral", [BENCH_GEMMA] = "gemma3_text", [BENCH_EXPERTS] = "qwen3_moe"};
    static const char *const architectures[] = {
        [BENCH_LLAMA] = "Llama", [BENCH_MISTRAL] = "Mistral", [BENCH_GEMMA] = "Gemma3", [BENCH_EXPERTS] = "Qwen3Moe"};
    fprintf(file,
            "{\"model_type\": \"%s\", \"architectures\": [\"%sForCausalLM\"], \"vocab_size\": %d, \"hidden_size\": %d, "
            "\"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
            "\"head_dim\": %d, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"max_position_embeddings\": %d, "
            "\"tie_word_embeddings\": true, \"bos_token_id\": 1, \"eos_token_id\": 2",
            types[s->family], architectures[s->family], s->vocabulary, s->hidden, s->intermediate, s->layers, s->heads, s->kv_heads,
            head_dim(s), MOST_POSITIONS);
    if (s->window) fprintf(file, ", \"sliding_window\": %d", s->window);
    if (s->family == BENCH_GEMMA)
        fprintf(
            file,
            ", \"hidden_activation\": \"gelu_pytorch_tanh\", \"query_pre_attn_scalar\": 256, \"rope_local_base_freq\": 10000.0, "
            "\"sliding_window_pattern\": 6");
    else fprintf(file, ", \"hidden_act\": \"silu\"");
    if (s->family == BENCH_EXPERTS)
        fprintf(file,
                ", \"num_experts\": %d, \"num_experts_per_tok\": %d, \"moe_intermediate_size\": %d, \"norm_topk_prob\": true, "
                "\"decoder_sparse_step\": 1, \"mlp_only_layers\": []",
                s->experts, s->chosen, s->intermediate);
    fprintf(file, "}\n");
}

void bench_model(char *path, size_t size, const bench_shape *shape, int f32, const bench_job *job) {
    const int length = snprintf(path, size, "%s/%s-%s", job->directory, shape->name, f32 ? "f32" : "bf16");
    if (length < 0 || (size_t)length >= size) bench_give_up("the name of the temporary directory is too long");
    if (cli_directory_has(path, "config.json")) return;
    if (mkdir(path, 0700) != 0 && errno != EEXIST) bench_give_up("cannot make %s: %s", path, strerror(errno));
    FILE *file = create(path, "model.safetensors");
    static tensors all; /* large */
    list_tensors(&all, shape);
    write_header(file, &all, f32);
    for (int i = 0; i < tensor_count(&all); i++) {
        const tensor t = tensor_at(&all, i);
        write_tensor(file, &t, shape->family, i, f32);
    }
    finish(file, path);
    file = create(path, "config.json");
    write_config(file, shape);
    finish(file, path);
}
