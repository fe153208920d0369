/* adapter_files.c - reads and writes adapters as PEFT does: adapter_config.json tells which modules have factors,
 * adapter_model.safetensors holds exactly these factors, in the shapes of the model's modules. A tensor that is missing,
 * unexpected or of another shape is an error. */
#include "adapter_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernel/kernels.h"
#include "reward_form.h"
#include "weight_type.h"

static const char PREFIX[] = "base_model.model.", LAYERS[] = "model.layers.", EXPERTS[] = ".mlp.experts.",
                  SCORE[] = "base_model.model.score.weight";
enum { MAX_NAME = 160 };

/* ----------------------------------------------------------------------------------------------------------------------- names */

static void factor_name(char name[MAX_NAME], const rein_model_config *model, size_t slot, int factor) {
    char module[REIN_SLOT_NAME];
    snprintf(name, MAX_NAME, "%s%s%s", PREFIX, rein_slot_name(module, model, slot), factor ? ".lora_B.weight" : ".lora_A.weight");
}

/* Reads the layer and the expert from the digits of the name, and compares the rest with the names of the slots. */
int rein_module_slot(size_t *slot, const char **rest, const rein_model_config *model, const char *name) {
    char whole[REIN_SLOT_NAME];
    const char *digits = name + strlen(LAYERS);
    const int layered = !strncmp(name, LAYERS, strlen(LAYERS)) && *digits >= '0' && *digits <= '9';
    const unsigned long long layer = layered ? strtoull(digits, NULL, 10) : 0;
    if (layered && layer >= (unsigned long long)model->n_layers) return 0;
    size_t first = layered ? (size_t)layer * rein_layer_slots(model) : rein_slots(model) - 1;
    size_t end = layered ? first + rein_layer_slots(model) : first + 1;
    const char *expert = layered ? strstr(digits, EXPERTS) : NULL;
    if (expert) {
        const unsigned long long e = strtoull(expert + strlen(EXPERTS), NULL, 10);
        if (e >= (unsigned long long)model->n_experts) return 0;
        first += REIN_LAYER_MODULES + 3 * (size_t)e, end = first + 3;
    }
    for (*slot = first; *slot < end; ++*slot) {
        if (!rein_slot_count(model, *slot)) continue;
        const size_t length = strlen(rein_slot_name(whole, model, *slot));
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

/* Whether the slot has a LoRA according to adapter_config.json. */
static int has_factors(const source *s, size_t slot) {
    const rein_model_config *c = &s->model->config;
    return s->config->modules >> rein_slot_module(c, slot) & 1 && rein_slot_count(c, slot) > 0;
}

static size_t expected_count(const source *s) {
    size_t n = 0;
    for (size_t slot = 0; slot < rein_slots(&s->model->config); slot++) n += (size_t)has_factors(s, slot);
    return 2 * n + (size_t)s->config->score;
}

static void factor_shape(size_t shape[2], const source *s, size_t slot, int factor) {
    const rein_linear *linear = rein_model_linear(s->model, slot);
    shape[0] = factor ? rein_tensor_rows(s->model, slot) : (size_t)s->config->rank;
    shape[1] = factor ? (size_t)s->config->rank : linear->in;
}

static rein_status missing(const source *s, const char *name, const size_t shape[2]) {
    char shown[REIN_PATH_SHOWN], needed[REIN_SHAPE_SHOWN], other[MAX_NAME];
    size_t absent = 0;
    for (size_t slot = 0; slot < rein_slots(&s->model->config); slot++)
        for (int factor = 0; factor < 2 && has_factors(s, slot); factor++) {
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

/* The score head of task_type SEQ_CLS: PEFT saves it whole, as a module in modules_to_save. */
static rein_status read_score(float *to, const source *s, const rein_kernels *kernels) {
    char shown[REIN_PATH_SHOWN];
    const size_t hidden = (size_t)s->model->config.hidden_size, shape[2] = {1, hidden};
    const rein_tensor *tensor = rein_tensors_find(s->tensors, SCORE);
    rein_path_show(shown, rein_tensors_name(s->tensors));
    if (!tensor)
        return rein_fail(s->err, REIN_EINVAL, "%s: %s is missing: the adapter of a reward model (task_type SEQ_CLS) has it", shown,
                         SCORE);
    if (tensor->n_dims == 2 && tensor->shape[0] != 1 && tensor->shape[1] == hidden)
        return rein_fail(s->err, REIN_EINVAL, "%s: %s has %zu labels: a reward model has one", shown, SCORE, tensor->shape[0]);
    const rein_status status = find(&tensor, s, SCORE, shape);
    if (!status && to) kernels->decode(to, tensor->data, rein_weight_type_of(tensor->dtype)->storage, hidden);
    return status;
}

/* Checks all factors and, unless adapter is NULL, reads them. They are checked first, so that a wrong rank is found before memory
 * is allocated. */
static rein_status read_factors(rein_adapter *adapter, const source *s, const rein_kernels *kernels) {
    rein_status status = REIN_OK;
    for (size_t slot = 0; slot < rein_slots(&s->model->config) && !status; slot++) {
        rein_lora *lora = adapter ? &adapter->loras[slot] : NULL;
        if (!has_factors(s, slot)) continue;
        status = read_factor(lora ? lora->a : NULL, s, slot, 0, kernels);
        if (!status) status = read_factor(lora ? lora->b : NULL, s, slot, 1, kernels);
    }
    return !status && s->config->score ? read_score(adapter ? adapter->score : NULL, s, kernels) : status;
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
    if (!row) return rein_no_memory(s->err);
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
static const char *list_modules(char to[120], const rein_model_config *config, unsigned modules) {
    size_t n = 0;
    to[0] = 0;
    for (int m = 0; m < REIN_MODULES; m++)
        if (modules >> m & 1)
            n += (size_t)snprintf(to + n, 120 - n, "%s%s", n ? ", " : "", rein_module_name(config, (rein_module)m));
    return to;
}

static int is_expected(const source *s, const char *name) {
    size_t slot;
    const char *rest;
    if (s->config->score && !strcmp(name, SCORE)) return 1;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0) return 0;
    if (!rein_module_slot(&slot, &rest, &s->model->config, name + strlen(PREFIX))) return 0;
    return (!strcmp(rest, ".lora_A.weight") || !strcmp(rest, ".lora_B.weight")) && has_factors(s, slot);
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
                               list_modules(modules, &s->model->config, s->config->modules), (long long)s->model->config.n_layers);
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
    if (!status) status = rein_adapter_allocate(adapter, model, &config, err);
    if (status) return status;
    read_factors(*adapter, &s, kernels); /* they were checked above */
    rein_adapter_pack(*adapter);
    return REIN_OK;
}

/* Opens the two files of an adapter. The caller frees all three, whatever the status. */
static rein_status open_files(char **config_file, json_t **config, rein_tensors **tensors, const char *directory, rein_error *err) {
    *config_file = rein_path_join(directory, "adapter_config.json");
    *config = NULL;
    *tensors = NULL;
    if (!*config_file) return rein_no_memory(err);
    const rein_status status = rein_json_read(config, *config_file, REIN_JSON_NEEDS_OBJECT, err);
    return status ? status : rein_tensors_open_adapter(tensors, directory, err);
}

static void close_files(char *config_file, json_t *config, rein_tensors *tensors) {
    rein_tensors_close(tensors);
    json_decref(config);
    free(config_file);
}

rein_status rein_adapter_open(rein_adapter **adapter, const rein_model *model, const char *directory, rein_error *err) {
    char *file;
    json_t *json;
    rein_tensors *tensors;
    *adapter = NULL;
    rein_status status = open_files(&file, &json, &tensors, directory, err);
    if (!status) status = rein_adapter_from_files(adapter, model, file, json, tensors, err);
    if (!status && (*adapter)->score) status = rein_reward_form_read(&(*adapter)->form, directory, err);
    if (status) {
        rein_adapter_close(*adapter);
        *adapter = NULL;
    }
    close_files(file, json, tensors);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------- describe */

/* Whether a tensor is factor A (0) or B (1) of a module: "….self_attn.q_proj.lora_A.weight", "….mlp.experts.3.up_proj.lora_B.weight". */
static int is_factor(const char *name, const rein_model_config *config, rein_module m, int factor) {
    char end[MAX_NAME];
    const char *expert = strstr(name, EXPERTS), *path = expert ? rein_module_name(config, m) : rein_module_path(config, m);
    const size_t length = strlen(name), n = (size_t)snprintf(end, sizeof end, ".%s.lora_%c.weight", path, "AB"[factor]);
    if (!rein_module_count(config, m)) return 0;
    if (!expert) return length > n && !strcmp(name + length - n, end);
    expert += strlen(EXPERTS);
    return m >= REIN_GATE && m <= REIN_DOWN && !strcmp(expert + strspn(expert, "0123456789"), end);
}

/* The module of a factor; REIN_MODULES if the tensor is none. */
static int factor_module(const char *name, const rein_model_config *config) {
    for (int m = 0; m < REIN_MODULES; m++)
        if (is_factor(name, config, (rein_module)m, 0) || is_factor(name, config, (rein_module)m, 1)) return m;
    return REIN_MODULES;
}

static size_t elements(const rein_tensor *tensor) { /* cannot overflow: the size of the tensor was computed */
    size_t n = 1;
    for (int i = 0; i < tensor->n_dims; i++) n *= tensor->shape[i];
    return n;
}

static unsigned count_factors(int64_t *parameters, const rein_model_config *config, const rein_tensors *tensors) {
    unsigned modules = 0;
    *parameters = 0;
    for (size_t i = 0; i < rein_tensors_count(tensors); i++) {
        const rein_tensor *tensor = rein_tensors_at(tensors, i);
        const int module = factor_module(tensor->name, config);
        if (module == REIN_MODULES) continue;
        modules |= 1u << module;
        *parameters += (int64_t)elements(tensor);
    }
    return modules;
}

/* Which family the adapter is for is not known: that of whose modules the tensors have the most parameters. */
static void describe_modules(rein_adapter_info *info, const rein_tensors *tensors) {
    static const rein_family *const layouts[] = {&rein_family_llama, &rein_family_phi3};
    rein_model_config config = {0};
    int64_t parameters;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const rein_model_config other = {.family = layouts[i]};
        count_factors(&parameters, &other, tensors);
        if (!i || parameters > info->parameters) config = other, info->parameters = parameters;
    }
    rein_adapter_info_modules(info, &config, count_factors(&parameters, &config, tensors));
}

rein_status rein_adapter_describe_files(rein_adapter_info *info, rein_text *base, const char *directory, rein_error *err) {
    char *file;
    json_t *json;
    rein_tensors *tensors;
    rein_adapter_config c;
    rein_status status = open_files(&file, &json, &tensors, directory, err);
    if (!status) status = rein_adapter_config_parse(&c, NULL, file, json, err);
    if (!status) status = rein_text_append(base, c.base, strlen(c.base), err);
    if (!status) {
        *info = (rein_adapter_info){c.rank, c.alpha, c.rank_stabilized, .base = base->data, .score = c.score};
        describe_modules(info, tensors);
    }
    close_files(file, json, tensors);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------------ save */

static rein_tensor factor_tensor(const rein_adapter *a, size_t slot, int factor, char name[MAX_NAME]) {
    const rein_linear *linear = rein_model_linear(a->model, slot);
    const size_t rank = (size_t)a->rank;
    rein_tensor tensor = {.name = name, .dtype = REIN_TENSOR_F32, .n_dims = 2};
    factor_name(name, &a->model->config, slot, factor);
    tensor.shape[0] = factor ? rein_tensor_rows(a->model, slot) : rank;
    tensor.shape[1] = factor ? rank : linear->in;
    tensor.data = factor ? a->loras[slot].b : a->loras[slot].a;
    tensor.bytes = tensor.shape[0] * tensor.shape[1] * sizeof(float);
    return tensor;
}

static rein_tensor score_tensor(const rein_adapter *a) {
    const size_t hidden = (size_t)a->model->config.hidden_size;
    return (rein_tensor){.name = SCORE,
                         .dtype = REIN_TENSOR_F32,
                         .n_dims = 2,
                         .shape = {1, hidden},
                         .data = a->score,
                         .bytes = hidden * sizeof *a->score};
}

static rein_status write_factors(const rein_adapter *a, const char *path, rein_error *err) {
    rein_tensor *tensors = calloc(2 * a->n + 1, sizeof *tensors);
    char(*names)[MAX_NAME] = calloc(2 * a->n + 1, sizeof *names);
    size_t n = 0;
    rein_status status = tensors && names ? REIN_OK : rein_no_memory(err);
    for (size_t slot = 0; slot < rein_slots(&a->model->config) && !status; slot++)
        for (int factor = 0; factor < 2 && rein_adapter_has(a, slot); factor++, n++)
            tensors[n] = factor_tensor(a, slot, factor, names[n]);
    if (a->score && !status) tensors[n++] = score_tensor(a);
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
    rein_status status = config && factors && json ? REIN_OK : rein_no_memory(err);
    if (!status) status = rein_make_directories(directory, err);
    if (!status) status = write_factors(a, factors, err);
    if (!status && a->score) status = rein_reward_form_write(&a->form, a->model->quantize, directory, err);
    if (!status) status = rein_json_file_write(config, json, err);
    json_decref(json);
    free(config);
    free(factors);
    return status;
}
