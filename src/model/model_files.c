/* model_files.c - writes a model as transformers saves it. An adapter is merged into its modules: W + s·B·A, summed in f64 and
 * rounded once, to the type the weight is stored in. Quantised weights are decoded and written as f32, which changes none of them. Merged
 * and decoded weights are computed a few rows at a time, as they are written.
 * config.json is written last: a directory without it is not a model. */
#include "model_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/json.h"
#include "gguf.h"
#include "merged.h"
#include "reward_form.h"
#include "weight_type.h"

static const size_t MAX_SHARD_BYTES = 5000000000; /* as in transformers 4 */
enum { BLOCK = 1 << 18, SHARD_NAME = 64 };

typedef struct saving {
    const rein_model *model;
    const char *directory;
    const rein_kernels *kernels;
    size_t n;
    rein_source *sources; /* [n] */
    rein_tensor *tensors; /* [n]: as they are written; data is not set */
    size_t *shards;       /* [n]: index of the file */
    size_t n_shards;
    size_t first;    /* index of the first tensor of the current shard; its tensors are consecutive */
    double *sum;     /* [max_width] */
    float *row;      /* [max_width] */
    uint32_t *block; /* merged rows, in either type: aligned for the wider one */
    int64_t pad;     /* of a reward model; -1: it is none */
    rein_text pad_name;
    rein_error *err;
} saving;

/* -------------------------------------------------------------------------------------------------------------------- planning */

static size_t elements(const rein_weight *w) { return w->n_dims == 2 ? w->shape[0] * w->shape[1] : w->shape[0]; }

static rein_status plan_weight(saving *s, size_t i, const rein_model_config *config, const rein_adapter *adapter) {
    rein_source *source = &s->sources[i];
    const rein_weight *w = &source->weight;
    rein_tensor *t = &s->tensors[i];
    const rein_status status = rein_source_find(source, s->model, config, adapter, i, s->err);
    if (status) return status;
    *t = (rein_tensor){.name = w->name, .n_dims = w->n_dims, .shape = {w->shape[0], w->shape[1]}};
    const rein_weight_type *type = rein_weight_type_of(s->model->values ? REIN_TENSOR_F32 : source->stored.dtype);
    t->dtype = type->word && !source->quantize ? type->dtype : REIN_TENSOR_F32;
    t->bytes = rein_tensor_type_bytes(t->dtype, elements(w));
    return REIN_OK;
}

/* Assigns the tensors to files in order; a new file begins when the next tensor would not fit. */
static void plan_shards(saving *s, size_t max_bytes) {
    size_t used = 0;
    for (size_t i = 0; i < s->n; i++) {
        const size_t bytes = s->tensors[i].bytes;
        if (i == 0 || bytes > max_bytes || used > max_bytes - bytes) s->n_shards++, used = 0;
        s->shards[i] = s->n_shards - 1;
        used += bytes;
    }
}

static int take_memory(saving *s) {
    size_t max_width = 0;
    for (size_t slot = 0; slot < rein_adapter_slots(s->model); slot++)
        if (rein_model_linear(s->model, slot)->in > max_width) max_width = rein_model_linear(s->model, slot)->in;
    s->sources = calloc(s->n, sizeof *s->sources);
    s->tensors = calloc(s->n, sizeof *s->tensors);
    s->shards = calloc(s->n, sizeof *s->shards);
    s->sum = malloc(max_width * sizeof *s->sum);
    s->row = malloc(max_width * sizeof *s->row);
    s->block = malloc((max_width > BLOCK ? max_width : BLOCK) * sizeof *s->block);
    return s->sources && s->tensors && s->shards && s->sum && s->row && s->block;
}

static void free_memory(saving *s) {
    free(s->sources);
    free(s->tensors);
    free(s->shards);
    free(s->sum);
    free(s->row);
    free(s->block);
    rein_text_free(&s->pad_name);
}

static rein_status plan(saving *s, const rein_model_config *config, const rein_adapter *adapter, size_t max_bytes) {
    rein_status status = REIN_OK;
    s->n = rein_model_weights(config);
    if (!take_memory(s)) return rein_fail(s->err, REIN_ENOMEM, "no memory to save a model");
    for (size_t i = 0; i < s->n && !status; i++) status = plan_weight(s, i, config, adapter);
    if (!status) plan_shards(s, max_bytes);
    return status;
}

/* --------------------------------------------------------------------------------------------------------------------- merging */

/* Row r of the module merged with its LoRA, if it has one. `to` has the type of the tensor. */
static rein_status merge_row(void *to, const saving *s, size_t i, size_t r) {
    const rein_source *source = &s->sources[i];
    const rein_weight_type *type = rein_weight_type_of(s->tensors[i].dtype);
    const size_t n = source->weight.shape[source->weight.n_dims - 1];
    if (rein_source_is_stored(source, type->storage))
        return memcpy(to, rein_source_stored_row(source, r), rein_storage_bytes(type->storage, n)), REIN_OK;
    if (!source->lora) return rein_source_row(to, source, r, s->kernels), REIN_OK; /* decoded to f32 */
    rein_source_merged_row(s->sum, s->row, source, r, s->kernels);
    const rein_status status = rein_source_check_row(s->sum, source, r, type, s->err);
    if (!status) type->round(to, s->sum, n);
    return status;
}

static rein_status put_merged(rein_writer *writer, const saving *s, size_t i) {
    const rein_tensor *t = &s->tensors[i];
    const size_t n = t->n_dims == 2 ? t->shape[0] : 1, width = t->bytes / n;
    const size_t most = BLOCK * sizeof *s->block / width, block = most ? most : 1;
    rein_status status = REIN_OK;
    for (size_t r = 0; r < n && !status; r += block) {
        const size_t rows = n - r < block ? n - r : block;
        for (size_t j = 0; j < rows && !status; j++) status = merge_row((char *)s->block + j * width, s, i, r + j);
        if (!status) status = rein_writer_put(writer, s->block, rows * width, s->err);
    }
    return status;
}

static rein_status put_weight(rein_writer *writer, size_t place, void *context, rein_error *err) {
    const saving *s = context;
    const size_t i = s->first + place;
    const rein_source *source = &s->sources[i];
    const int stored = rein_source_is_stored(source, rein_weight_type_of(s->tensors[i].dtype)->storage) && !source->stored.pairs;
    return stored ? rein_writer_put(writer, source->stored.data, s->tensors[i].bytes, err) : put_merged(writer, s, i);
}

/* ------------------------------------------------------------------------------------------------------------------- files */

static const char *shard_name(char to[SHARD_NAME], size_t shard, size_t n) {
    if (n == 1) snprintf(to, SHARD_NAME, "model.safetensors");
    else snprintf(to, SHARD_NAME, "model-%05zu-of-%05zu.safetensors", shard + 1, n);
    return to;
}

static rein_status write_shard(saving *s, size_t shard) {
    char name[SHARD_NAME];
    size_t count = 0;
    while (s->shards[s->first] != shard) s->first++;
    while (s->first + count < s->n && s->shards[s->first + count] == shard) count++;
    char *path = rein_path_join(s->directory, shard_name(name, shard, s->n_shards));
    if (!path) return rein_no_memory(s->err);
    const rein_status status = rein_tensors_write_generated(path, s->tensors + s->first, count, NULL, 0, put_weight, s, s->err);
    free(path);
    return status;
}

/* The index as transformers writes it: total sizes, and the file of each tensor. */
static json_t *make_index(const saving *s) {
    json_t *map = json_object();
    json_int_t size = 0, parameters = 0;
    char name[SHARD_NAME];
    int failed = !map;
    for (size_t i = 0; i < s->n && !failed; i++) {
        failed = json_object_set_new(map, s->sources[i].weight.name, json_string(shard_name(name, s->shards[i], s->n_shards))) != 0;
        size += (json_int_t)s->tensors[i].bytes;
        parameters += (json_int_t)elements(&s->sources[i].weight);
    }
    json_t *index = failed ? NULL
                           : json_pack("{s:{s:I, s:I}, s:O}", "metadata", "total_parameters", parameters, "total_size", size,
                                       "weight_map", map);
    json_decref(map);
    return index;
}

static rein_status write_index(const saving *s) {
    char *path = rein_path_join(s->directory, "model.safetensors.index.json");
    json_t *index = make_index(s);
    const rein_status status = path && index ? rein_json_file_write(path, index, s->err) : rein_no_memory(s->err);
    json_decref(index);
    free(path);
    return status;
}

/* Writes what a model in GGUF has in place of the file. */
static rein_status write_gguf_file(const saving *s, const char *name) {
    char *to = rein_path_join(s->directory, name);
    json_t *json = NULL;
    rein_status status = to ? rein_gguf_json(&json, s->model->directory, name, s->err) : rein_no_memory(s->err);
    if (!status && json) status = rein_json_file_write(to, json, s->err);
    json_decref(json);
    free(to);
    return status;
}

/* Copies a file unchanged, if the model has it. */
static rein_status copy_file(const saving *s, const char *name) {
    if (rein_gguf_is(s->model->directory)) return write_gguf_file(s, name);
    char *from = rein_path_join(s->model->directory, name), *to = rein_path_join(s->directory, name);
    rein_file file = {0};
    rein_status status = from && to ? REIN_OK : rein_no_memory(s->err);
    if (!status && rein_file_exists(from)) {
        status = rein_file_map(&file, from, s->err);
        if (!status) status = rein_file_write(to, file.data, file.size, s->err);
        rein_file_unmap(&file);
    }
    free(from);
    free(to);
    return status;
}

static rein_status copy_files(const saving *s) {
    static const char *const names[] = {"generation_config.json",  "tokenizer.json",    "tokenizer_config.json",
                                        "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
                                        "tokenizer.model",         "vocab.json",        "merges.txt"};
    rein_status status = REIN_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && !status; i++) status = copy_file(s, names[i]);
    return status;
}

/* What a reward model has besides: its form, and a padding token that ends no sequence. */
static rein_status write_form(const saving *s, const rein_adapter *adapter) {
    const rein_reward_form form = rein_reward_form_of(&(rein_policy){s->model, adapter, 1});
    const rein_status status = rein_reward_form_write(&form, NULL, s->directory, s->err);
    return status ? status : rein_reward_pad_tokenizer(s->directory, &s->pad_name, s->err);
}

/* The type for config.json: that of all weights or, if they differ, the type it had before, else that of the embedding. */
static rein_tensor_type type_of(const saving *s) {
    for (size_t i = 1; i < s->n; i++)
        if (s->tensors[i].dtype != s->tensors[0].dtype && s->model->config.has_dtype) return s->model->config.dtype;
    return s->tensors[0].dtype;
}

/* ----------------------------------------------------------------------------------------------------------------------- saving */

static int is_of_a_model(const char *name) {
    static const char end[] = ".safetensors";
    const size_t n = strlen(name), m = strlen(end);
    return !strcmp(name, "config.json") || !strcmp(name, "model.safetensors.index.json") || (n > m && !strcmp(name + n - m, end));
}

/* Makes the directory. A directory that holds a model is an error. */
static rein_status prepare_directory(const char *path, rein_error *err) {
    char shown[REIN_PATH_SHOWN], found[REIN_TEXT_SHOWN];
    rein_names names = {0};
    rein_status status = rein_make_directories(path, err);
    if (!status) status = rein_directory_list(&names, path, err);
    for (size_t i = 0; i < names.n && !status; i++)
        if (is_of_a_model(names.at[i]))
            status = rein_fail(err, REIN_EINVAL, "%s already holds a model (%s): a directory without one is needed",
                               rein_path_show(shown, path), rein_json_quote(found, names.at[i]));
    rein_names_free(&names);
    return status;
}

static void remove_file(const saving *s, const char *name) {
    char *path = rein_path_join(s->directory, name);
    if (path) unlink(path);
    free(path);
}

/* After a failure removes what was written, so that the directory can be used again; it held no model before. */
static void remove_model(const saving *s) {
    char name[SHARD_NAME];
    remove_file(s, "config.json");
    remove_file(s, "model.safetensors.index.json");
    for (size_t shard = 0; shard < s->n_shards; shard++) remove_file(s, shard_name(name, shard, s->n_shards));
}

rein_status rein_model_save_shards(const rein_model *model, const rein_adapter *adapter, const char *directory, size_t max_bytes,
                                   rein_error *err) {
    saving s = {.model = model, .directory = directory, .pad = -1, .err = err};
    rein_model_config config = model->config;
    rein_exec exec;
    if (adapter && adapter->model != model) return rein_fail_at(err, REIN_EINVAL, "adapter", -1, "was made for another model");
    if (rein_adapter_lora(adapter, 0, REIN_HEAD_MODULE)) config.tie_word_embeddings = 0;
    if (adapter && adapter->score) config.score = 1;
    rein_status status = rein_exec_resolve(&exec, NULL, 0, err);
    if (status) return status;
    s.kernels = rein_kernels_of(exec.isa);
    status = plan(&s, &config, adapter, max_bytes);
    if (!status && config.score) status = rein_reward_pad(&s.pad, &s.pad_name, model, err);
    if (!status) status = prepare_directory(directory, err);
    if (!status) {
        for (size_t shard = 0; shard < s.n_shards && !status; shard++) status = write_shard(&s, shard);
        if (!status && s.n_shards > 1) status = write_index(&s);
        if (!status) status = copy_files(&s);
        if (!status && config.score) status = write_form(&s, adapter);
        if (!status)
            status = rein_model_config_write(directory, model->directory, type_of(&s), config.tie_word_embeddings, s.pad, err);
        if (status) remove_model(&s);
    }
    free_memory(&s);
    return status;
}

rein_status rein_model_save(const rein_model *model, const rein_adapter *adapter, const char *directory, rein_error *err) {
    return rein_model_save_shards(model, adapter, directory, MAX_SHARD_BYTES, err);
}
