/* gguf_save.c - writes a model as one GGUF file. The types of tensors are llama.cpp's choice: vectors and routers are F32; matrices have the
 * type that was asked for, or F16 where rows are not whole blocks; with Q4_0 the head is Q8_0 (llama.cpp takes Q6_K, which is only read here).
 *
 * The metadata of a model that is a GGUF file is copied. That of a directory follows from its files. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"
#include "gguf_write.h"
#include "merged.h"
#include "rein/model.h"

static const struct {
    const char *name; /* of --type */
    rein_tensor_type dtype;
    uint32_t file_type; /* general.file_type: llama.h */
} types[] = {{"f32", REIN_TENSOR_F32, 0},
             {"f16", REIN_TENSOR_F16, 1},
             {"q4_0", REIN_TENSOR_Q4_0, 2},
             {"q8_0", REIN_TENSOR_Q8_0, 7},
             {"bf16", REIN_TENSOR_BF16, 32}};
enum { TYPES = sizeof types / sizeof *types, BLOCK = 1 << 20 };

typedef struct saving {
    const rein_model *model;
    rein_model_config config; /* the head of the file may be its own */
    const rein_gguf_family *family;
    const rein_kernels *kernels;
    const rein_weight_type *type;
    uint32_t file_type;
    size_t n_sources, n;
    rein_source *sources;      /* [n_sources] */
    rein_gguf_tensor *tensors; /* [n] */
    size_t *first;             /* [n]: index of the source; those of a stack of experts are three apart */
    rein_gguf_factors factors[REIN_GGUF_FACTORS];
    size_t n_factors;
    rein_gguf *from; /* NULL: the model is a directory */
    double *sum;     /* [widest row] */
    float *row;      /* [widest row] */
    char *block;     /* rows as the file has them */
    double squares, errors, largest;
    int64_t not_blocks;
    rein_error *err;
} saving;

/* ------------------------------------------------------------------------------------------------------------------------ types */

static rein_status choose_type(saving *s, const char *name) {
    char shown[REIN_TEXT_SHOWN];
    const int stored_bf16 = s->n_sources && s->sources[0].storage == REIN_STORED_BF16;
    if (!name) name = stored_bf16 ? "bf16" : "f16";
    for (size_t i = 0; i < TYPES; i++)
        if (!strcmp(types[i].name, name))
            return s->type = rein_weight_type_of(types[i].dtype), s->file_type = types[i].file_type, REIN_OK;
    return rein_fail_at(s->err, REIN_EINVAL, "type", -1, "is %s: f32, f16, bf16, q8_0 and q4_0 are known",
                        rein_json_quote(shown, name));
}

static int is_head(const saving *s, const rein_weight *w) {
    return w->kind == REIN_HEAD || (w->kind == REIN_EMBEDDING && s->config.tie_word_embeddings);
}

static rein_tensor_type type_of(saving *s, const rein_weight *w) {
    if (w->n_dims == 1 || w->kind == REIN_ROUTER) return REIN_TENSOR_F32;
    const rein_tensor_type dtype = s->type->dtype == REIN_TENSOR_Q4_0 && is_head(s, w) ? REIN_TENSOR_Q8_0 : s->type->dtype;
    if (w->shape[1] % rein_tensor_type_elements(dtype) == 0) return dtype;
    s->not_blocks++;
    return REIN_TENSOR_F16;
}

/* ----------------------------------------------------------------------------------------------------------------------- tensors */

/* Adds the tensor of weight i, or adds an expert to its stack. */
static rein_status plan_weight(saving *s, size_t i) {
    const rein_weight *w = &s->sources[i].weight;
    rein_gguf_tensor *t = &s->tensors[s->n];
    if (w->kind == REIN_EXPERT && w->to >= 3) {
        (t - 3 + w->to % 3)->sizes[2]++; /* the stacks of gate, up and down of this layer were the last to be added */
        return REIN_OK;
    }
    *t = (rein_gguf_tensor){.n_dims = w->kind == REIN_EXPERT ? 3 : w->n_dims, .sizes = {w->shape[w->n_dims - 1], 1, 1, 1}};
    if (!rein_gguf_name_there(t->name, s->family, w->name))
        return rein_fail(s->err, REIN_EINVAL, "%s: GGUF has no name for %s in %s models", s->model->directory, w->name,
                         s->family->architecture);
    if (w->n_dims == 2) t->sizes[1] = w->shape[0];
    t->type = rein_gguf_number_of(type_of(s, w));
    s->first[s->n++] = i;
    return REIN_OK;
}

/* Factors of the rotary embedding: those of a GGUF file are copied. */
static void plan_factors(saving *s) {
    for (size_t i = 0; s->from && i < s->from->n_tensors; i++)
        if (rein_gguf_is_buffer(s->from->tensors[i].name)) s->tensors[s->n++] = s->from->tensors[i];
    for (size_t i = 0; !s->from && i < s->n_factors; i++) {
        rein_gguf_tensor *t = &s->tensors[s->n++];
        *t = (rein_gguf_tensor){.n_dims = 1, .sizes = {s->factors[i].n, 1, 1, 1}, .data = (const void *)s->factors[i].values};
        memcpy(t->name, s->factors[i].name, strlen(s->factors[i].name) + 1);
        t->type = rein_gguf_number_of(REIN_TENSOR_F32);
    }
}

static int take_memory(saving *s) {
    const size_t most = s->n_sources + REIN_GGUF_FACTORS + (s->from ? s->from->n_tensors : 0);
    s->sources = calloc(s->n_sources + 1, sizeof *s->sources);
    s->tensors = calloc(most, sizeof *s->tensors);
    s->first = calloc(most, sizeof *s->first);
    return s->sources && s->tensors && s->first;
}

static int take_rows(saving *s) {
    size_t widest = 1;
    for (size_t i = 0; i < s->n_sources; i++) {
        const rein_weight *w = &s->sources[i].weight;
        if (w->shape[w->n_dims - 1] > widest) widest = w->shape[w->n_dims - 1];
    }
    s->sum = malloc(widest * sizeof *s->sum);
    s->row = malloc(widest * sizeof *s->row);
    s->block = malloc(BLOCK + widest * sizeof *s->row);
    return s->sum && s->row && s->block;
}

static rein_status plan(saving *s, const rein_adapter *adapter, const char *type) {
    rein_status status = REIN_OK;
    s->n_sources = rein_model_weights(&s->config);
    if (!take_memory(s)) return rein_no_memory(s->err);
    for (size_t i = 0; i < s->n_sources && !status; i++)
        status = rein_source_find(&s->sources[i], s->model, &s->config, adapter, i, s->err);
    if (!status) status = choose_type(s, type);
    if (!status && !s->from) status = rein_gguf_factors_of(s->factors, &s->n_factors, s->model, s->err);
    for (size_t i = 0; i < s->n_sources && !status; i++) status = plan_weight(s, i);
    if (!status) plan_factors(s);
    return status || take_rows(s) ? status : rein_no_memory(s->err);
}

/* ------------------------------------------------------------------------------------------------------------------------- data */

/* What the file has in place of the row, against the row. */
static void add_error(saving *s, const void *written, const rein_weight_type *type, size_t n) {
    s->kernels->decode(s->row, written, type->storage, n);
    for (size_t j = 0; j < n; j++) {
        const double error = fabs((double)s->row[j] - s->sum[j]);
        s->squares += s->sum[j] * s->sum[j], s->errors += error * error;
        s->largest = fmax(s->largest, error);
    }
}

static rein_status put_row(char *to, saving *s, const rein_source *source, size_t r, const rein_weight_type *type) {
    const size_t n = source->weight.shape[1];
    rein_source_merged_row(s->sum, s->row, source, r, s->kernels);
    const rein_status status = rein_source_check_row(s->sum, source, r, type, s->err);
    if (status) return status;
    if (rein_source_is_stored(source, type->storage))
        memcpy(to, rein_source_stored_row(source, r), rein_storage_bytes(type->storage, n));
    else type->round(to, s->sum, n);
    return add_error(s, to, type, n), REIN_OK;
}

static rein_status put_matrix(rein_writer *writer, saving *s, const rein_source *source, const rein_gguf_tensor *t) {
    const rein_weight_type *type = rein_weight_type_of(rein_gguf_type_at(t->type).dtype);
    const size_t rows = source->weight.shape[0], bytes = rein_storage_bytes(type->storage, source->weight.shape[1]);
    const size_t pairs = rein_gguf_pairs_in(s->family, &s->config, t->name);
    size_t used = 0;
    rein_status status = REIN_OK;
    for (size_t r = 0; r < rows && !status; r++) {
        status = put_row(s->block + used, s, source, rein_gguf_row(r, rows, pairs), type);
        used += bytes;
        if (status || (used < BLOCK && r + 1 < rows)) continue;
        status = rein_writer_put(writer, s->block, used, s->err);
        used = 0;
    }
    return status;
}

static rein_status put_vector(rein_writer *writer, saving *s, const rein_source *source, const rein_gguf_tensor *t) {
    const size_t n = t->sizes[0], pairs = rein_gguf_pairs_in(s->family, &s->config, t->name);
    const double added = s->family->added_one && strstr(t->name, "norm.") ? 1 : 0;
    float *to = (float *)(void *)s->block;
    rein_source_merged_row(s->sum, s->row, source, 0, s->kernels);
    const rein_status status = rein_source_check_row(s->sum, source, 0, rein_weight_type_of(REIN_TENSOR_F32), s->err);
    for (size_t i = 0; i < n; i++) to[i] = (float)(added + s->sum[rein_gguf_row(i, n, pairs)]);
    return status ? status : rein_writer_put(writer, to, n * sizeof *to, s->err);
}

static rein_status put_tensor(rein_writer *writer, size_t i, void *context, rein_error *err) {
    saving *s = context;
    const rein_gguf_tensor *t = &s->tensors[i];
    if (t->data) return rein_writer_put(writer, t->data, t->bytes, err);
    rein_status status = REIN_OK;
    for (size_t e = 0; e < t->sizes[2] && !status; e++) {
        const rein_source *source = &s->sources[s->first[i] + 3 * e];
        status = t->n_dims == 1 ? put_vector(writer, s, source, t) : put_matrix(writer, s, source, t);
    }
    return status;
}

/* --------------------------------------------------------------------------------------------------------------------- metadata */

static int begins(const rein_gguf_pair *pair, const char *with) {
    return pair->key.length >= strlen(with) && !memcmp(pair->key.bytes, with, strlen(with));
}

static int by_place(const void *a, const void *b) {
    const char *x = (*(const rein_gguf_pair *const *)a)->key.bytes, *y = (*(const rein_gguf_pair *const *)b)->key.bytes;
    return (x > y) - (x < y);
}

/* In the order of the file. What depends on the types of tensors and on files is not copied. */
static rein_status copy_metadata(rein_gguf_pairs *to, const rein_gguf *from, rein_error *err) {
    const rein_gguf_file *file = &from->files[0];
    const rein_gguf_pair **sorted = malloc((file->n_pairs + 1) * sizeof *sorted);
    if (!sorted) return rein_no_memory(err);
    for (size_t i = 0; i < file->n_pairs; i++) sorted[i] = &file->pairs[i];
    qsort(sorted, file->n_pairs, sizeof *sorted, by_place);
    for (size_t i = 0; i < file->n_pairs; i++)
        if (!begins(sorted[i], "general.file_type") && !begins(sorted[i], "general.quantization_version") &&
            !begins(sorted[i], "general.alignment") && !begins(sorted[i], "split."))
            rein_gguf_put_pair(to, sorted[i]);
    free(sorted);
    return REIN_OK;
}

/* The last part of the path. */
static void put_name(rein_gguf_pairs *to, const char *directory) {
    size_t end = strlen(directory), begin;
    while (end > 1 && directory[end - 1] == '/') end--;
    for (begin = end; begin && directory[begin - 1] != '/';) begin--;
    rein_gguf_put_string(to, "general.name", directory + begin, end - begin);
}

static rein_status make_metadata(rein_gguf_pairs *to, rein_text *notes, saving *s) {
    rein_tokenizer *tokenizer;
    rein_gguf_put_text(to, "general.architecture", s->family->architecture);
    rein_gguf_put_text(to, "general.type", "model");
    put_name(to, s->model->directory);
    rein_status status = rein_gguf_put_config(to, notes, s->family, s->model, s->err);
    if (status || !rein_tokenizer_exists(s->model->directory)) {
        rein_gguf_put_text(to, "tokenizer.ggml.model", "no_vocab");
        return status;
    }
    status = rein_tokenizer_open(&tokenizer, s->model->directory, s->err);
    if (!status) status = rein_gguf_put_tokenizer(to, notes, tokenizer, &s->config, s->err);
    rein_tokenizer_close(tokenizer);
    return status;
}

static rein_status put_metadata(rein_gguf_pairs *to, rein_text *notes, saving *s) {
    const rein_status status = s->from ? copy_metadata(to, s->from, s->err) : make_metadata(to, notes, s);
    rein_gguf_put_u32(to, "general.file_type", s->file_type);
    if (!s->type->word) rein_gguf_put_u32(to, "general.quantization_version", 2);
    if (!status && notes && notes->failed) return rein_no_memory(s->err);
    return status ? status : rein_text_status(&to->bytes, s->err);
}

/* ------------------------------------------------------------------------------------------------------------------------ saving */

static rein_status open_family(saving *s) {
    char names[REIN_GGUF_FAMILIES_SHOWN];
    const rein_model *model = s->model;
    if (rein_gguf_is(model->directory)) {
        const rein_status status = rein_gguf_open(&s->from, model->directory, s->err);
        return status ? status : rein_gguf_family_of(&s->family, s->from, s->err);
    }
    s->family = rein_gguf_family_named(model->config.family->model_type);
    return s->family ? REIN_OK
                     : rein_fail(s->err, REIN_EINVAL, "%s: models of the family %s cannot be written as GGUF: %s can",
                                 model->directory, model->config.family->model_type, rein_gguf_families_show(names));
}

static void close_saving(saving *s) {
    rein_gguf_close(s->from);
    free(s->sources);
    free(s->tensors);
    free(s->first);
    free(s->sum);
    free(s->row);
    free(s->block);
}

static void describe(rein_gguf_written *written, const saving *s) {
    *written = (rein_gguf_written){.tensors = (int64_t)s->n,
                                   .not_blocks = s->not_blocks,
                                   .error = s->squares > 0 ? sqrt(s->errors / s->squares) : 0,
                                   .largest_error = s->largest};
    for (size_t i = 0; i < s->n; i++) written->bytes += (int64_t)s->tensors[i].bytes;
}

rein_status rein_gguf_check_new(const char *path, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    if (!rein_file_exists(path)) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "%s already exists: the name of a new file is needed", rein_path_show(shown, path));
}

rein_status rein_gguf_check_no_score(const rein_model *model, const rein_adapter *adapter, rein_error *err) {
    if (!model->config.score && !(adapter && adapter->score)) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "%s: a model with a score head cannot be written as GGUF: a directory can have it",
                     model->directory);
}

rein_status rein_model_save_gguf(rein_gguf_written *written, rein_text *notes, const rein_model *model, const rein_adapter *adapter,
                                 const char *path, const char *type, rein_error *err) {
    saving s = {.model = model, .config = model->config, .err = err};
    rein_gguf_pairs pairs = {0};
    rein_exec exec;
    if (adapter && adapter->model != model) return rein_fail_at(err, REIN_EINVAL, "adapter", -1, "was made for another model");
    if (rein_adapter_lora(adapter, 0, REIN_HEAD_MODULE)) s.config.tie_word_embeddings = 0;
    rein_status status = rein_gguf_check_no_score(model, adapter, err);
    if (!status) status = rein_exec_resolve(&exec, NULL, 0, err);
    if (!status) status = rein_gguf_check_new(path, err);
    if (!status) s.kernels = rein_kernels_of(exec.isa), status = open_family(&s);
    if (!status) status = plan(&s, adapter, type);
    if (!status) status = put_metadata(&pairs, notes, &s);
    if (!status) status = rein_gguf_write(path, &pairs, s.tensors, s.n, put_tensor, &s, err);
    if (!status && written) describe(written, &s);
    rein_gguf_pairs_free(&pairs);
    close_saving(&s);
    return status;
}
