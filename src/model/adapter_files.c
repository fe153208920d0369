/* adapter_files.c - reads and writes adapters as PEFT does: adapter_config.json tells which modules have factors,
 * adapter_model.safetensors holds exactly these factors, in the shapes of the model's modules. A tensor that is missing,
 * unexpected or of another shape is an error. */
#include "adapter_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernel/kernels.h"
#include "weight_type.h"

static const char PREFIX[] = "base_model.model.", LAYERS[] = "model.layers.";
enum { MAX_NAME = 160 };

/* ----------------------------------------------------------------------------------------------------------------------- names */

static size_t slots_of(const rein_model_config *model) { return (size_t)model->n_layers * REIN_LAYER_MODULES + 1; }

static rein_module module_of(const rein_model_config *model, size_t slot) {
    return slot + 1 < slots_of(model) ? (rein_module)(slot % REIN_LAYER_MODULES) : REIN_HEAD_MODULE;
}

static void slot_name(char name[MAX_NAME], const rein_model_config *model, size_t slot, const char *prefix, const char *suffix) {
    const rein_module module = module_of(model, slot);
    if (module == REIN_HEAD_MODULE) snprintf(name, MAX_NAME, "%s%s%s", prefix, rein_module_path(module), suffix);
    else snprintf(name, MAX_NAME, "%s%s%zu.%s%s", prefix, LAYERS, slot / REIN_LAYER_MODULES, rein_module_path(module), suffix);
}

static void factor_name(char name[MAX_NAME], const rein_model_config *model, size_t slot, int factor) {
    slot_name(name, model, slot, PREFIX, factor ? ".lora_B.weight" : ".lora_A.weight");
}

/* Reads the layer from the digits of the name, and compares the rest with the names of the slots. */
int rein_module_slot(size_t *slot, const char **rest, const rein_model_config *model, const char *name) {
    char whole[MAX_NAME];
    const char *digits = name + strlen(LAYERS);
    const int layered = !strncmp(name, LAYERS, strlen(LAYERS)) && *digits >= '0' && *digits <= '9';
    const unsigned long long layer = layered ? strtoull(digits, NULL, 10) : 0;
    if (layered && layer >= (unsigned long long)model->n_layers) return 0;
    const size_t first = layered ? (size_t)layer * REIN_LAYER_MODULES : slots_of(model) - 1;
    const size_t end = layered ? first + REIN_LAYER_MODULES : first + 1;
    for (*slot = first; *slot < end; ++*slot) {
        slot_name(whole, model, *slot, "", "");
        const size_t length = strlen(whole);
        if (strncmp(name, whole, length) != 0) continue;
        *rest = name + length;
        return 1;
    }
    return 0;
}

/* --------------------------------------------------------------------------------------------------------------------- tensors */

typedef struct source {
    const rein_model *model;
    const rein_adapter_config *config;
    const rein_tensors *tensors;
    rein_error *err;
} source;

static size_t expected_count(const source *s) {
    size_t modules = 0;
    for (int m = 0; m < REIN_LAYER_MODULES; m++) modules += s->config->modules >> m & 1;
    return 2 * (modules * (size_t)s->model->config.n_layers + (s->config->modules >> REIN_HEAD_MODULE & 1));
}

static void factor_shape(size_t shape[2], const source *s, size_t slot, int factor) {
    const rein_linear *linear = rein_model_linear(s->model, slot);
    shape[0] = factor ? linear->out : (size_t)s->config->rank;
    shape[1] = factor ? (size_t)s->config->rank : linear->in;
}

static rein_status missing(const source *s, const char *name, const size_t shape[2]) {
    char shown[REIN_PATH_SHOWN], needed[REIN_SHAPE_SHOWN], other[MAX_NAME];
    size_t absent = 0;
    for (size_t slot = 0; slot < slots_of(&s->model->config); slot++)
        for (int factor = 0; factor < 2 && s->config->modules >> module_of(&s->model->config, slot) & 1; factor++) {
            factor_name(other, &s->model->config, slot, factor);
            absent += !rein_tensors_find(s->tensors, other);
        }
    return rein_fail(s->err, REIN_EINVAL,
                     "%s: %s %s is missing, as are %zu more of the %zu tensors that adapter_config.json requires (%lld layers)",
                     rein_path_show(shown, rein_tensors_name(s->tensors)), name, rein_shape_show(needed, shape, 2), absent - 1,
                     expected_count(s), (long long)s->model->config.n_layers);
}

/* Finds the tensor of a name, and checks its shape and that its type can hold weights. */
static rein_status find(const rein_tensor **tensor, const source *s, const char *name, const size_t shape[2]) {
    char shown[REIN_PATH_SHOWN], found[REIN_SHAPE_SHOWN], needed[REIN_SHAPE_SHOWN];
    const rein_tensor *t = *tensor = rein_tensors_find(s->tensors, name);
    if (!t) return missing(s, name, shape);
    if (t->n_dims == 2 && t->shape[0] == shape[0] && t->shape[1] == shape[1])
        return rein_tensors_weight(tensor, s->tensors, name, s->err);
    return rein_fail(s->err, REIN_EINVAL, "%s: %s is %s: the model and adapter_config.json (r %lld) require %s",
                     rein_path_show(shown, t->file), name, rein_shape_show(found, t->shape, t->n_dims), (long long)s->config->rank,
                     rein_shape_show(needed, shape, 2));
}

/* Checks one factor of one slot and, unless `to` is NULL, reads it. */
static rein_status read_factor(float *to, const source *s, size_t slot, int factor, const rein_kernels *kernels) {
    char name[MAX_NAME];
    size_t shape[2];
    const rein_tensor *tensor;
    factor_name(name, &s->model->config, slot, factor);
    factor_shape(shape, s, slot, factor);
    const rein_status status = find(&tensor, s, name, shape);
    if (!status && to) kernels->decode(to, tensor->data, rein_weight_type_of(tensor->dtype)->storage, shape[0] * shape[1]);
    return status;
}

/* Checks all factors and, unless adapter is NULL, reads them. They are checked first, so that a wrong rank is found before memory
 * is allocated. */
static rein_status read_factors(rein_adapter *adapter, const source *s, const rein_kernels *kernels) {
    rein_status status = REIN_OK;
    for (size_t slot = 0; slot < slots_of(&s->model->config) && !status; slot++) {
        rein_lora *lora = adapter ? &adapter->loras[slot] : NULL;
        if (!(s->config->modules >> module_of(&s->model->config, slot) & 1)) continue;
        status = read_factor(lora ? lora->a : NULL, s, slot, 0, kernels);
        if (!status) status = read_factor(lora ? lora->b : NULL, s, slot, 1, kernels);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------------- tensors of the base */

/* The model's matrix of a base tensor, or NULL. PEFT also writes the head or the embedding of the base if one of them has a LoRA
 * or was resized. They are accepted if they equal the model's, in the type of the file. */
static const rein_matrix *base_matrix(const source *s, const char *name) {
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0) return NULL;
    name += strlen(PREFIX);
    if (!strcmp(name, "lm_head.base_layer.weight") || !strcmp(name, "lm_head.weight")) return &s->model->head.weight;
    return strcmp(name, "model.embed_tokens.weight") ? NULL : &s->model->embedding;
}

static int row_is_the_same(const float *row, size_t n, const rein_tensor *tensor, size_t at) {
    enum { BLOCK = REIN_STORAGE_BLOCK };
    const rein_weight_type *type = rein_weight_type_of(tensor->dtype);
    const char *stored = (const char *)tensor->data + rein_storage_bytes(type->storage, at);
    float rounded[BLOCK]; /* no type is wider */
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t count = n - i < BLOCK ? n - i : BLOCK;
        type->round_f32(rounded, row + i, count);
        if (memcmp(rounded, stored + rein_storage_bytes(type->storage, i), rein_storage_bytes(type->storage, count)) != 0) return 0;
    }
    return 1;
}

static rein_status check_base(const source *s, const rein_matrix *matrix, const char *name, const rein_kernels *kernels) {
    const size_t rows = s->model->head.out, columns = s->model->head.in, shape[2] = {rows, columns};
    const size_t width = rein_storage_bytes(matrix->storage, columns);
    char shown[REIN_PATH_SHOWN];
    const rein_tensor *tensor;
    rein_status status = find(&tensor, s, name, shape);
    if (status) return status;
    float *row = malloc(columns * sizeof *row);
    if (!row) return rein_fail(s->err, REIN_ENOMEM, "out of memory");
    for (size_t r = 0; r < rows && !status; r++) {
        kernels->decode(row, (const char *)matrix->data + r * width, matrix->storage, columns);
        if (!row_is_the_same(row, columns, tensor, r * columns))
            status =
                rein_fail(s->err, REIN_EINVAL, "%s: row %zu of %s differs from the model's: the adapter belongs to another model",
                          rein_path_show(shown, tensor->file), r, name);
    }
    free(row);
    return status;
}

/* Lists the modules for a message: "q_proj, v_proj". */
static const char *list_modules(char to[120], unsigned modules) {
    size_t n = 0;
    to[0] = 0;
    for (int m = 0; m < REIN_MODULES; m++)
        if (modules >> m & 1) n += (size_t)snprintf(to + n, 120 - n, "%s%s", n ? ", " : "", rein_module_name((rein_module)m));
    return to;
}

static int is_expected(const source *s, const char *name) {
    size_t slot;
    const char *rest;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0) return 0;
    if (!rein_module_slot(&slot, &rest, &s->model->config, name + strlen(PREFIX))) return 0;
    return (!strcmp(rest, ".lora_A.weight") || !strcmp(rest, ".lora_B.weight")) &&
           s->config->modules >> module_of(&s->model->config, slot) & 1;
}

/* Checks the tensors that are not factors. Names are unique and all factors are there, so their count tells whether there are
 * others. */
static rein_status check_others(const source *s, const rein_kernels *kernels) {
    char shown[REIN_PATH_SHOWN], quoted[REIN_TEXT_SHOWN], modules[120];
    const size_t n = rein_tensors_count(s->tensors);
    rein_status status = REIN_OK;
    if (n == expected_count(s)) return REIN_OK;
    for (size_t i = 0; i < n && !status; i++) {
        const char *name = rein_tensors_at(s->tensors, i)->name;
        const rein_matrix *matrix = base_matrix(s, name);
        if (matrix) status = check_base(s, matrix, name, kernels);
        else if (!is_expected(s, name))
            status = rein_fail(s->err, REIN_EINVAL,
                               "%s: %s is not expected: adapter_config.json and the model require LoRA on %s, in %lld layers",
                               rein_path_show(shown, rein_tensors_name(s->tensors)), rein_json_quote(quoted, name),
                               list_modules(modules, s->config->modules), (long long)s->model->config.n_layers);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------------ open */

rein_status rein_adapter_from_files(rein_adapter **adapter, const rein_model *model, const char *config_file, const json_t *json,
                                    const rein_tensors *tensors, rein_error *err) {
    rein_adapter_config config;
    rein_exec exec;
    const source s = {model, &config, tensors, err};
    *adapter = NULL;
    rein_status status = rein_exec_resolve(&exec, NULL, 0, err);
    if (!status) status = rein_adapter_config_parse(&config, &model->config, config_file, json, err);
    if (status) return status;
    const rein_kernels *kernels = rein_kernels_of(exec.isa);
    status = read_factors(NULL, &s, kernels);
    if (!status) status = check_others(&s, kernels);
    if (!status)
        status = rein_adapter_allocate(adapter, model, config.rank, config.alpha, config.rank_stabilized, config.modules, err);
    if (status) return status;
    read_factors(*adapter, &s, kernels); /* they were checked above */
    if (*config.base) memcpy((*adapter)->base, config.base, sizeof config.base);
    rein_adapter_pack(*adapter);
    return REIN_OK;
}

rein_status rein_adapter_open(rein_adapter **adapter, const rein_model *model, const char *directory, rein_error *err) {
    char *file = rein_path_join(directory, "adapter_config.json");
    json_t *json = NULL;
    rein_tensors *tensors = NULL;
    *adapter = NULL;
    rein_status status =
        file ? rein_json_read(&json, file, REIN_JSON_NEEDS_OBJECT, err) : rein_fail(err, REIN_ENOMEM, "out of memory");
    if (!status) status = rein_tensors_open_adapter(&tensors, directory, err);
    if (!status) status = rein_adapter_from_files(adapter, model, file, json, tensors, err);
    rein_tensors_close(tensors);
    json_decref(json);
    free(file);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------------ save */

static rein_tensor factor_tensor(const rein_adapter *a, size_t slot, int factor, char name[MAX_NAME]) {
    const rein_linear *linear = rein_model_linear(a->model, slot);
    const size_t rank = (size_t)a->rank;
    rein_tensor tensor = {.name = name, .dtype = REIN_TENSOR_F32, .n_dims = 2};
    factor_name(name, &a->model->config, slot, factor);
    tensor.shape[0] = factor ? linear->out : rank;
    tensor.shape[1] = factor ? rank : linear->in;
    tensor.data = factor ? a->loras[slot].b : a->loras[slot].a;
    tensor.bytes = tensor.shape[0] * tensor.shape[1] * sizeof(float);
    return tensor;
}

static rein_status write_factors(const rein_adapter *a, const char *path, rein_error *err) {
    rein_tensor *tensors = calloc(2 * a->n, sizeof *tensors);
    char(*names)[MAX_NAME] = calloc(2 * a->n, sizeof *names);
    size_t n = 0;
    rein_status status = tensors && names ? REIN_OK : rein_fail(err, REIN_ENOMEM, "out of memory");
    for (size_t slot = 0; slot < slots_of(&a->model->config) && !status; slot++)
        for (int factor = 0; factor < 2 && a->loras[slot].rank; factor++, n++)
            tensors[n] = factor_tensor(a, slot, factor, names[n]);
    if (!status) status = rein_tensors_write(path, tensors, n, NULL, 0, err);
    free(tensors);
    free(names);
    return status;
}

/* The config is written last: if it is new, the factors are too. */
rein_status rein_adapter_save(const rein_adapter *a, const char *directory, rein_error *err) {
    char *config = rein_path_join(directory, "adapter_config.json"),
         *factors = rein_path_join(directory, "adapter_model.safetensors");
    json_t *json = rein_adapter_config_json(a);
    rein_status status = config && factors && json ? REIN_OK : rein_fail(err, REIN_ENOMEM, "out of memory");
    if (!status) status = rein_make_directories(directory, err);
    if (!status) status = write_factors(a, factors, err);
    if (!status) status = rein_json_file_write(config, json, err);
    json_decref(json);
    free(config);
    free(factors);
    return status;
}
