/* model.c - models of random weights in the format of Hugging Face. config.json is written last, so a model that has it is complete. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/bench.h"
#include "cli/policy.h"

const bench_shape bench_small = {"small", 384, 1024, 6, 6, 6, 4096};
const bench_shape bench_smollm = {"smollm", 576, 1536, 30, 9, 3, 49152};
const bench_shape bench_head = {"head", 896, 64, 1, 14, 2, 151936};

double bench_layer_weights(const bench_shape *s) {
    const double hidden = s->hidden, width = hidden / s->heads;
    return s->layers * (hidden * width * (2.0 * s->heads + 2.0 * s->kv_heads) + 3.0 * hidden * s->intermediate);
}

double bench_head_weights(const bench_shape *s) { return (double)s->hidden * s->vocabulary; }

/* -------------------------------------------------------------------------------------------------------------------- the tensors */

typedef struct tensor {
    char name[80];
    int rows, columns; /* columns 0: a vector */
} tensor;

enum { IN_A_LAYER = 9 };

static int tensor_count(const bench_shape *s) { return 2 + IN_A_LAYER * s->layers; }

static tensor tensor_at(const bench_shape *s, int i) {
    const int keys = s->hidden / s->heads * s->kv_heads;
    const struct {
        const char *name;
        int rows, columns;
    } kinds[IN_A_LAYER] = {{"input_layernorm", s->hidden, 0},
                           {"self_attn.q_proj", s->hidden, s->hidden},
                           {"self_attn.k_proj", keys, s->hidden},
                           {"self_attn.v_proj", keys, s->hidden},
                           {"self_attn.o_proj", s->hidden, s->hidden},
                           {"post_attention_layernorm", s->hidden, 0},
                           {"mlp.gate_proj", s->intermediate, s->hidden},
                           {"mlp.up_proj", s->intermediate, s->hidden},
                           {"mlp.down_proj", s->hidden, s->intermediate}};
    tensor t = {"model.embed_tokens.weight", s->vocabulary, s->hidden};
    if (i == 0) return t;
    if (i == 1) return (tensor){"model.norm.weight", s->hidden, 0};
    const int layer = (i - 2) / IN_A_LAYER, kind = (i - 2) % IN_A_LAYER;
    snprintf(t.name, sizeof t.name, "model.layers.%d.%s.weight", layer, kinds[kind].name);
    t.rows = kinds[kind].rows, t.columns = kinds[kind].columns;
    return t;
}

static size_t numbers(const tensor *t) { return (size_t)t->rows * (size_t)(t->columns ? t->columns : 1); }

/* Uniform between -0.02 and 0.02; the weights of norms are 1. */
static float weight(const tensor *t, int number, size_t k) {
    const uint64_t bits = (k + 1 + (uint64_t)number * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    return t->columns ? 0.04f * ((float)(bits >> 40) * 0x1p-24f - 0.5f) : 1;
}

/* --------------------------------------------------------------------------------------------------------------------- the files */

static void write_header(FILE *file, const bench_shape *s, int f32) {
    rein_text header = {0};
    size_t at = 0;
    for (int i = 0; i < tensor_count(s); i++) {
        const tensor t = tensor_at(s, i);
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

static void write_tensor(FILE *file, const tensor *t, int number, int f32) {
    enum { PIECE = 16384 };
    static float values[PIECE];
    static uint16_t halves[PIECE];
    for (size_t done = 0, n; done < numbers(t); done += n) {
        n = numbers(t) - done < PIECE ? numbers(t) - done : PIECE;
        for (size_t k = 0; k < n; k++) {
            uint32_t bits;
            values[k] = weight(t, number, done + k);
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
    fprintf(file,
            "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": %d, \"hidden_size\": %d, "
            "\"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
            "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"max_position_embeddings\": 2048, "
            "\"tie_word_embeddings\": true, \"bos_token_id\": 1, \"eos_token_id\": 2}\n",
            s->vocabulary, s->hidden, s->intermediate, s->layers, s->heads, s->kv_heads);
}

void bench_model(char *path, size_t size, const bench_shape *shape, int f32, const bench_job *job) {
    const int length = snprintf(path, size, "%s/%s-%s", job->directory, shape->name, f32 ? "f32" : "bf16");
    if (length < 0 || (size_t)length >= size) bench_give_up("the name of the temporary directory is too long");
    if (cli_directory_has(path, "config.json")) return;
    if (mkdir(path, 0700) != 0 && errno != EEXIST) bench_give_up("cannot make %s: %s", path, strerror(errno));
    FILE *file = create(path, "model.safetensors");
    write_header(file, shape, f32);
    for (int i = 0; i < tensor_count(shape); i++) {
        const tensor t = tensor_at(shape, i);
        write_tensor(file, &t, i, f32);
    }
    finish(file, path);
    file = create(path, "config.json");
    write_config(file, shape);
    finish(file, path);
}
