/* weights.c - a model in memory: binds the tensors of the files to the fields that the decoder reads, and packs matrices in the
 * order in which products read them. */
#include "weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "gguf.h"
#include "key_store.h"
#include "quantize.h"
#include "reward_form.h"
#include "weight_type.h"

/* ------------------------------------------------------------------------------------------------------------------- binding */

/* Row by row where GGUF has rows in another order. */
static void widen(float *to, const rein_tensor *from, size_t n, const rein_kernels *kernels) {
    const rein_storage storage = rein_weight_type_of(from->dtype)->storage;
    const size_t row = from->pairs ? from->shape[1] : n;
    for (size_t i = 0; i * row < n; i++)
        kernels->decode(to + i * row, (const char *)from->data + rein_tensor_row(from, i) * rein_storage_bytes(storage, row),
                        storage, row);
}

/* A matrix that several modules share is cut into their rows. */
static void bind_modules(rein_layer *layer, const rein_model_config *c, rein_module module, rein_matrix matrix) {
    const int n = rein_module_count(c, module);
    for (int i = 0; i < n; i++) {
        rein_linear *linear = &layer->linear[(int)module + i];
        linear->weight = matrix;
        matrix.data = (const char *)matrix.data + rein_storage_bytes(matrix.storage, linear->out * matrix.row);
    }
}

static void bind(rein_model *model, const rein_weight *w, rein_matrix matrix, const float *vector) {
    const rein_model_config *c = &model->config;
    rein_layer *layer = &model->layers[w->layer];
    const rein_norm norm = {vector, (float)c->family->norm_offset, (float)c->rms_norm_eps};
    switch (w->kind) {
    case REIN_EMBEDDING: model->embedding = matrix; break;
    case REIN_MATRIX: bind_modules(layer, c, (rein_module)w->to, matrix); break;
    case REIN_BIAS: layer->linear[w->to].bias = vector; break;
    case REIN_NORM: layer->norms[w->to] = norm; break;
    case REIN_ROUTER: layer->router.weight = matrix; break;
    case REIN_EXPERT: layer->experts[w->to].weight = matrix; break;
    case REIN_LAST_NORM: model->norm = norm; break;
    case REIN_HEAD: model->head.weight = matrix; break;
    case REIN_SCORE: model->score = vector; break;
    }
}

/* Finds the tensor of a weight. A row of a matrix starts with a new block of its storage type, so it must consist of whole blocks. */
static rein_status find_tensor(const rein_tensor **tensor, const rein_model *model, const rein_weight *weight, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    const rein_tensor *found = rein_model_tensor(&model->config, model->tensors, weight->name);
    const rein_status status = rein_tensors_weight(tensor, model->tensors, found ? found->name : weight->name, err);
    if (status) return status;
    const size_t block = rein_storage_elements(rein_weight_type_of((*tensor)->dtype)->storage);
    const size_t row = weight->shape[weight->n_dims - 1];
    if (row % block == 0) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "%s: tensor %s has rows of %zu numbers: %s needs a multiple of %zu",
                     rein_path_show(shown, (*tensor)->file), weight->name, row, rein_tensor_type_name((*tensor)->dtype), block);
}

/* The embedding and the head, whose rows are read one by one, are quantised here. Other matrices are quantised while they are packed. */
static rein_status quantize_rows(rein_matrix *matrix, rein_model *model, const rein_weight *w, const rein_exec *exec,
                                 rein_error *err) {
    const rein_storage storage = model->quantize->storage;
    void *blocks = rein_arena_take(&model->memory, rein_storage_bytes(storage, w->shape[0] * w->shape[1]));
    if (!blocks) return rein_fail(err, REIN_ENOMEM, "no memory for the weights of %s", model->directory);
    const rein_status status = rein_quantize_rows(blocks, matrix, w->shape[0], w->shape[1], model->quantize, w->name, exec, err);
    *matrix = (rein_matrix){blocks, w->shape[1], 1, storage};
    return status;
}

static rein_status bind_stored(rein_model *model, const rein_weight *weight, const rein_tensor *tensor, const rein_exec *exec,
                               rein_error *err) {
    rein_matrix matrix = {tensor->data, weight->shape[1], 1, rein_weight_type_of(tensor->dtype)->storage};
    rein_status status = REIN_OK;
    if (rein_quantizes(model->quantize, weight)) {
        status = rein_quantize_check(model->quantize, weight, tensor, err);
        if (!status && (weight->kind == REIN_EMBEDDING || weight->kind == REIN_HEAD))
            status = quantize_rows(&matrix, model, weight, exec, err);
    }
    if (!status) bind(model, weight, matrix, NULL);
    return status;
}

static int is_vector(const rein_weight *w) { return w->n_dims == 1 || w->kind == REIN_SCORE; }

/* The tensor of a weight; NULL for a score head that is not in the files and is made. */
static rein_status find_or_make(const rein_tensor **tensor, float *values, const rein_model *model, const rein_weight *weight,
                                const rein_model_options *options, rein_error *err) {
    *tensor = NULL;
    if (weight->kind != REIN_SCORE || rein_model_tensor(&model->config, model->tensors, weight->name))
        return find_tensor(tensor, model, weight, err);
    rein_score_fill(values, options->score, &model->config, options->score_seed);
    return REIN_OK;
}

/* Matrices stay mapped from the files, vectors become f32; if the model trains, all become f32. */
static rein_status bind_all(rein_model *model, const rein_model_options *options, const rein_exec *exec, rein_error *err) {
    const rein_kernels *kernels = rein_kernels_of(exec->isa);
    for (size_t i = 0; i < rein_model_weights(&model->config); i++) {
        rein_weight weight;
        const rein_tensor *tensor;
        rein_model_weight(&weight, &model->config, i);
        const size_t n = weight.n_dims == 2 ? weight.shape[0] * weight.shape[1] : weight.shape[0];
        float *values = model->values ? model->values + model->offsets[i] : NULL;
        if (!values && is_vector(&weight)) values = rein_arena_floats(&model->memory, n);
        if (model->memory.failed) return rein_fail(err, REIN_ENOMEM, "no memory for the weights of %s", model->directory);
        rein_status status = find_or_make(&tensor, values, model, &weight, options, err);
        if (status) return status;
        if (values && tensor) widen(values, tensor, n, kernels);
        if (is_vector(&weight)) bind(model, &weight, (rein_matrix){0}, values);
        else if (values) bind(model, &weight, (rein_matrix){values, weight.shape[1], 1, REIN_STORED_F32}, NULL);
        else if ((status = bind_stored(model, &weight, tensor, exec, err))) return status;
        if (weight.kind == REIN_MATRIX && !values && tensor) model->layers[weight.layer].linear[weight.to].pairs = tensor->pairs;
    }
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------- packing */

const rein_linear *rein_model_linear(const rein_model *model, size_t slot) {
    const size_t each = rein_layer_slots(&model->config), in_layer = slot % each;
    if (slot + 1 == rein_adapter_slots(model)) return &model->head;
    const rein_layer *layer = &model->layers[slot / each];
    return in_layer >= REIN_LAYER_MODULES && layer->experts ? &layer->experts[in_layer - REIN_LAYER_MODULES]
                                                            : &layer->linear[in_layer % REIN_LAYER_MODULES];
}

/* The matrices that are packed: those of the slots, then the router of each layer. */
static size_t packed_count(const rein_model *model) { return rein_adapter_slots(model) + (size_t)model->config.n_layers; }

static rein_linear *linear_at(const rein_model *model, size_t i) {
    const size_t slots = rein_adapter_slots(model);
    return i < slots ? (rein_linear *)(uintptr_t)rein_model_linear(model, i) : &model->layers[i - slots].router;
}

static void drop_packed(const rein_model *model) {
    for (size_t i = 0; i < packed_count(model); i++) linear_at(model, i)->packed = (rein_packed){0};
    model->packing->done = 0;
}

/* After so many bytes the pages of the files that were packed are released: a model is never in memory twice. */
enum { DROP_BYTES = 8 << 20 };

/* The rows of a matrix that has interleaved pairs, in the usual order, in a copy that the caller frees; *rows is NULL if they have it. */
static rein_status order_rows(void **rows, const rein_linear *linear, rein_error *err) {
    const rein_matrix *w = &linear->weight;
    const size_t row = rein_storage_bytes(w->storage, linear->in);
    const rein_tensor order = {.shape = {linear->out}, .pairs = linear->pairs};
    char *copy = linear->pairs ? malloc(linear->out * row) : NULL;
    *rows = copy;
    if (linear->pairs && !copy) return rein_no_memory(err);
    for (size_t i = 0; copy && i < linear->out; i++)
        memcpy(copy + i * row, (const char *)w->data + rein_tensor_row(&order, i) * row, row);
    return REIN_OK;
}

/* The matrix w of slot i, or of a router, in blocks that the caller frees; *blocks is NULL if it stays as it is. */
static rein_status quantize_slot(void **blocks, const rein_matrix *w, const rein_model *model, size_t i, const rein_exec *exec,
                                 rein_error *err) {
    const rein_linear *linear = linear_at(model, i);
    char name[REIN_SLOT_NAME];
    if (!model->quantize || i >= rein_adapter_slots(model) || w->storage == model->quantize->storage) return REIN_OK;
    *blocks = malloc(rein_storage_bytes(model->quantize->storage, linear->in * linear->out));
    if (!*blocks) return rein_no_memory(err);
    return rein_quantize_rows(*blocks, w, linear->out, linear->in, model->quantize, rein_slot_name(name, &model->config, i), exec,
                              err);
}

static rein_status pack_slot(size_t *size, const rein_model *model, size_t i, const rein_exec *exec, rein_error *err) {
    rein_linear *linear = linear_at(model, i);
    rein_matrix w = linear->weight;
    void *rows, *blocks = NULL;
    rein_status status = order_rows(&rows, linear, err);
    if (rows) w.data = rows;
    if (!status) status = quantize_slot(&blocks, &w, model, i, exec, err);
    if (blocks) w.data = blocks, w.storage = model->quantize->storage;
    const rein_matrix from = {w.data, w.column, w.row, w.storage};
    *size = rein_packed_size(linear->in, linear->out, from.storage);
    void *to = status ? NULL : rein_arena_take(&model->packing->memory, *size);
    if (to) linear->packed = rein_pack_on(to, &from, linear->in, linear->out, exec);
    else if (!status) status = rein_fail(err, REIN_ENOMEM, "no memory for the weights of %s", model->directory);
    free(blocks);
    free(rows);
    return status;
}

static rein_status pack(const rein_model *model, const rein_exec *exec, rein_error *err) {
    size_t bytes = 0, size;
    rein_arena_reset(&model->packing->memory);
    for (size_t i = 0; i < packed_count(model); i++) {
        const rein_linear *linear = linear_at(model, i);
        if (!linear->weight.data || linear->packed.data) continue; /* the layer has no such module */
        const rein_status status = pack_slot(&size, model, i, exec, err);
        if (status) return drop_packed(model), status;
        bytes += size;
        if (bytes >= DROP_BYTES) rein_tensors_drop_pages(model->tensors), bytes = 0;
    }
    model->packing->done = 1;
    return REIN_OK;
}

rein_status rein_model_pack(const rein_model *model, const rein_exec *exec, rein_error *err) {
    pthread_mutex_lock(&model->packing->lock);
    const rein_status status = model->packing->done ? REIN_OK : pack(model, exec, err);
    pthread_mutex_unlock(&model->packing->lock);
    return status;
}

uint64_t rein_new_version(void) {
    static atomic_uint_fast64_t last;
    return (uint64_t)atomic_fetch_add(&last, 1) + 1;
}

void rein_model_unpack(rein_model *model) {
    pthread_mutex_lock(&model->packing->lock);
    drop_packed(model);
    model->version = rein_new_version();
    pthread_mutex_unlock(&model->packing->lock);
}

/* ----------------------------------------------------------------------------------------------------------------- frequencies */

/* The inverse frequencies are θ^(−2i/head_dim). "linear" divides all of them, "llama3" those of long waves, with a smooth
 * transition, as rope_utils of Hugging Face does. They are computed in f32, as there: models were trained with these roundings. */
static float scaled_frequency(const rein_rope *rope, float frequency) {
    const float factor = (float)rope->factor, low = (float)rope->low_freq_factor, high = (float)rope->high_freq_factor;
    if (rope->type == REIN_ROPE_LINEAR) return frequency / factor;
    if (rope->type != REIN_ROPE_LLAMA3) return frequency;
    const float length = (float)(2 * 3.14159265358979323846) / frequency, original = (float)rope->original_max_positions;
    if (length < original / high) return frequency;
    if (length > original / low) return frequency / factor;
    const float smooth = (original / length - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

/* The position in a head whose wave turns `turns` times in the original context. */
static double yarn_position(const rein_rope *rope, double dims, double turns) {
    return dims * log((double)rope->original_max_positions / (turns * 2 * 3.14159265358979323846)) / (2 * log(rope->theta));
}

/* YaRN: short waves keep their frequency, long ones are divided by the factor, with a ramp between. */
static float yarn_frequency(const rein_rope *rope, size_t i, size_t dims, float frequency) {
    double low = yarn_position(rope, (double)dims, rope->beta_fast), high = yarn_position(rope, (double)dims, rope->beta_slow);
    if (rope->whole_range) low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, (double)dims - 1);
    if (low == high) high += 0.001;
    const float ramp = (float)fmin(fmax(((double)i - low) / (high - low), 0), 1);
    return frequency / (float)rope->factor * ramp + frequency * (1 - ramp);
}

static size_t rope_half(const rein_rope *rope, size_t dim) { return (size_t)((double)dim * rope->partial) / 2; }

static void fill_frequencies(rein_frequencies *to, const rein_rope *rope, size_t dim) {
    to->half = rope_half(rope, dim), to->factor = (float)rope->attention_factor;
    for (size_t i = 0; i < to->half; i++) {
        const float exponent = (float)(2 * i) / (float)(2 * to->half),
                    power = (float)pow((double)(float)rope->theta, (double)exponent);
        if (rope->type == REIN_ROPE_YARN) to->values[i] = yarn_frequency(rope, i, 2 * to->half, 1 / power);
        else if (rope->type == REIN_ROPE_LONGROPE) to->values[i] = 1 / (rope->factors[i] * power);
        else to->values[i] = scaled_frequency(rope, 1 / power);
    }
}

/* ---------------------------------------------------------------------------------------------------------------------- open */

/* The experts of a layer; 0: there is no memory. */
static int shape_experts(rein_model *model, rein_layer *layer) {
    const rein_model_config *c = &model->config;
    const size_t hidden = (size_t)c->hidden_size, middle = (size_t)c->expert_size, n = 3 * (size_t)c->n_experts;
    layer->router = (rein_linear){.in = hidden, .out = (size_t)c->n_experts};
    layer->experts = rein_arena_take(&model->memory, n * sizeof *layer->experts);
    for (size_t i = 0; layer->experts && i < n; i++)
        layer->experts[i] = (rein_linear){.in = i % 3 == 2 ? middle : hidden, .out = i % 3 == 2 ? hidden : middle};
    return layer->experts != NULL;
}

static int shape_layers(rein_model *model) {
    const rein_model_config *c = &model->config;
    const size_t hidden = (size_t)c->hidden_size, middle = (size_t)c->intermediate_size;
    const size_t queries = model->heads.n * model->heads.dim, keys = model->heads.n_kv * model->heads.dim;
    const size_t shapes[REIN_LAYER_MODULES][2] = {{hidden, queries}, {hidden, keys},   {hidden, keys},  {queries, hidden},
                                                  {hidden, middle},  {hidden, middle}, {middle, hidden}};
    size_t n_keys[REIN_KEY_PARTS] = {0};
    for (size_t l = 0; l < (size_t)c->n_layers; l++) {
        rein_layer *layer = &model->layers[l];
        for (int m = 0; m < REIN_LAYER_MODULES; m++) layer->linear[m].in = shapes[m][0], layer->linear[m].out = shapes[m][1];
        layer->heads = model->heads;
        layer->heads.window = c->layers[l] & REIN_LAYER_WINDOW ? (size_t)c->window : 0;
        layer->key_index = n_keys[rein_key_part_of(&layer->heads)]++;
        layer->rope = rein_layer_rope(c, l);
        if (c->layers[l] & REIN_LAYER_EXPERTS && !shape_experts(model, layer)) return 0;
    }
    model->head.in = hidden, model->head.out = (size_t)c->vocab_size;
    return 1;
}

static rein_status allocate_values(rein_model *model, rein_error *err) {
    const size_t n = rein_model_weights(&model->config);
    model->offsets = rein_arena_take(&model->memory, (n + 1) * sizeof *model->offsets);
    model->weights = rein_arena_take(&model->memory, n * sizeof *model->weights);
    if (model->memory.failed) return rein_fail(err, REIN_ENOMEM, "no memory for the weights of %s", model->directory);
    model->offsets[0] = 0;
    for (size_t i = 0; i < n; i++) {
        rein_weight *w = &model->weights[i];
        rein_model_weight(w, &model->config, i);
        model->offsets[i + 1] = model->offsets[i] + (w->n_dims == 2 ? w->shape[0] * w->shape[1] : w->shape[0]);
    }
    model->values = rein_arena_floats(&model->memory, model->offsets[n]);
    if (!model->values)
        return rein_fail(err, REIN_ENOMEM, "no memory for f32 copies of the weights of %s, which training needs", model->directory);
    return REIN_OK;
}

static rein_status choose_type(rein_model *model, const rein_model_options *options, rein_error *err) {
    char shown[REIN_TEXT_SHOWN];
    if (!options || !options->quantize) return REIN_OK;
    if (options->train)
        return rein_fail_at(err, REIN_EINVAL, "quantize", -1, "contradicts train: weights that train are f32; train an adapter");
    model->quantize = rein_quantize_type(options->quantize);
    if (model->quantize) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "quantize", -1, "is %s: q8_0 and q4_0 are known",
                        rein_json_quote(shown, options->quantize));
}

/* Whether the files have what the options ask for. */
static rein_status check_score(rein_model *model, rein_score_head score, rein_error *err) {
    const rein_model_config *c = &model->config;
    const int stored = rein_model_tensor(c, model->tensors, "score.weight") != NULL;
    char shown[REIN_PATH_SHOWN];
    rein_path_show(shown, model->directory);
    if (!score && c->classifies)
        return rein_fail(err, REIN_EINVAL,
                         "%s is a reward model (its architecture is a ForSequenceClassification): it has scores and no "
                         "log-probs; a language model is needed",
                         shown);
    if (score && c->classifies && c->labels != 1)
        return rein_fail(err, REIN_EINVAL, "%s has %lld labels (num_labels, or id2label): a reward model has one", shown,
                         (long long)c->labels);
    if (score == REIN_SCORE_STORED && !stored)
        return rein_fail(err, REIN_EINVAL, "%s has no tensor score.weight: a reward model has it, with the shape [1, %lld]", shown,
                         (long long)c->hidden_size);
    return REIN_OK;
}

static rein_status open_files(rein_model *model, const char *directory, const rein_model_options *options, rein_error *err) {
    const rein_score_head score = options ? options->score : REIN_SCORE_NONE;
    rein_status status = rein_model_config_read(&model->config, directory, err);
    if (!status) status = rein_tensors_open(&model->tensors, directory, err);
    if (!status) status = check_score(model, score, err);
    model->config.score = score != REIN_SCORE_NONE;
    if (!status) status = rein_model_check(&model->config, model->tensors, err);
    return status;
}

static rein_status build(rein_model *model, const rein_model_options *options, const rein_exec *exec, rein_error *err) {
    const rein_model_config *c = &model->config;
    const int train = options && options->train;
    const rein_rope *const ropes[REIN_ROPES] = {&c->rope, &c->window_rope};
    model->heads = (rein_heads){.n = (size_t)c->n_heads,
                                .n_kv = (size_t)c->n_kv_heads,
                                .dim = (size_t)c->head_dim,
                                .scale = (float)c->score_scale,
                                .cap = (float)c->score_cap};
    model->layers = rein_arena_take(&model->memory, (size_t)c->n_layers * sizeof *model->layers);
    for (int r = 0; r < REIN_ROPES && ropes[r]->theta > 0; r++)
        model->ropes[r].values = rein_arena_floats(&model->memory, rope_half(ropes[r], model->heads.dim));
    if (model->memory.failed) return rein_fail(err, REIN_ENOMEM, "no memory for %s", model->directory);
    memset(model->layers, 0, (size_t)c->n_layers * sizeof *model->layers);
    if (!shape_layers(model)) return rein_fail(err, REIN_ENOMEM, "no memory for %s", model->directory);
    for (int r = 0; r < REIN_ROPES && ropes[r]->theta > 0; r++) fill_frequencies(&model->ropes[r], ropes[r], model->heads.dim);
    rein_status status = train ? allocate_values(model, err) : REIN_OK;
    if (!status) status = bind_all(model, options, exec, err);
    if (!status && c->tie_word_embeddings && !c->score) model->head.weight = model->embedding;
    if (!status && !train) status = rein_model_pack(model, exec, err);
    if (!status) rein_tensors_drop_pages(model->tensors);
    return status;
}

rein_status rein_model_open(rein_model **model, const char *directory, const rein_model_options *options, rein_error *err) {
    rein_exec exec;
    *model = NULL;
    rein_status status = rein_exec_resolve(&exec, options ? &options->exec : NULL, REIN_SERIAL, err);
    if (status) return status;
    rein_model *m = calloc(1, sizeof *m);
    if (m) m->directory = malloc(strlen(directory) + 1), m->packing = calloc(1, sizeof *m->packing);
    if (m) m->spare = calloc(1, sizeof *m->spare);
    if (!m || !m->directory || !m->packing || !m->spare) {
        if (m) free(m->directory), free(m->packing), free(m->spare);
        free(m);
        return rein_fail(err, REIN_ENOMEM, "no memory for a model");
    }
    strcpy(m->directory, directory);
    m->version = rein_new_version();
    pthread_mutex_init(&m->packing->lock, NULL);
    status = choose_type(m, options, err);
    if (!status) status = open_files(m, directory, options, err);
    if (!status) status = build(m, options, &exec, err);
    if (!status && m->score) status = rein_reward_form_read(&m->form, directory, err);
    if (status) {
        rein_model_close(m);
        return status;
    }
    *model = m;
    return REIN_OK;
}

int rein_model_is_gguf(const char *path) { return rein_gguf_is(path); }

int rein_model_exists(const char *path) { return rein_gguf_is(path) || rein_directory_has(path, "config.json"); }

int rein_model_is_reward(const char *path) {
    rein_model_config config;
    return rein_directory_has(path, "config.json") && !rein_model_config_read(&config, path, NULL) && config.classifies;
}

void rein_model_close(rein_model *model) {
    if (!model) return;
    rein_key_store_close(atomic_load(&model->spare->keys), model, 0);
    free(model->spare);
    rein_arena_free(&model->memory);
    rein_arena_free(&model->packing->memory);
    pthread_mutex_destroy(&model->packing->lock);
    free(model->packing);
    rein_tensors_close(model->tensors);
    free(model->directory);
    free(model);
}

/* ------------------------------------------------------------------------------------------------------------------ describe */

static const char *stored_type(const rein_model *model) {
    const char *type = model->quantize ? rein_tensor_type_name(model->quantize->dtype) : NULL;
    for (size_t i = 0; !model->quantize && i < rein_model_weights(&model->config); i++) {
        rein_weight w;
        rein_model_weight(&w, &model->config, i);
        const rein_tensor *tensor = rein_model_tensor(&model->config, model->tensors, w.name);
        const char *this_type = tensor ? rein_tensor_type_name(tensor->dtype) : "";
        if (type && strcmp(type, this_type) != 0) return "mixed";
        type = this_type;
    }
    return type ? type : "";
}

rein_model_info rein_model_describe(const rein_model *model) {
    const rein_model_config *c = &model->config;
    rein_model_info info = {.family = c->family->model_type,
                            .type = stored_type(model),
                            .vocabulary = c->vocab_size,
                            .hidden = c->hidden_size,
                            .intermediate = c->intermediate_size,
                            .layers = c->n_layers,
                            .heads = c->n_heads,
                            .kv_heads = c->n_kv_heads,
                            .head_dim = c->head_dim,
                            .max_positions = c->max_positions,
                            .tied = c->tie_word_embeddings,
                            .begin_id = (int32_t)c->bos,
                            .n_end_ids = (size_t)c->n_eos,
                            .score = c->score};
    for (int i = 0; i < c->n_eos; i++) info.end_ids[i] = (int32_t)c->eos[i];
    for (size_t i = 0; i < rein_model_weights(c); i++) {
        rein_weight w;
        rein_model_weight(&w, c, i);
        info.parameters += (int64_t)(w.n_dims == 2 ? w.shape[0] * w.shape[1] : w.shape[0]);
    }
    for (size_t i = 0; i < rein_tensors_count(model->tensors); i++)
        info.ignored += rein_model_weight_use(c, rein_tensors_at(model->tensors, i)->name) == REIN_WEIGHT_IGNORED;
    return info;
}

rein_status rein_policy_check(const rein_policy *policy, rein_error *err) {
    if (!policy->model) return rein_fail_at(err, REIN_EINVAL, "policy.model", -1, "is NULL: a policy needs a model");
    if (policy->adapter && policy->adapter->model != policy->model)
        return rein_fail_at(err, REIN_EINVAL, "policy.adapter", -1, "was made for another model");
    if (!(policy->temperature >= 1e-3 && policy->temperature <= 1e3))
        return rein_fail_at(err, REIN_EINVAL, "temperature", -1,
                            "is %g: it must be between 0.001 and 1000; sampling.greedy always takes the most probable token",
                            policy->temperature);
    return REIN_OK;
}

rein_status rein_policy_check_head(const rein_policy *policy, rein_error *err) {
    if (policy->model->config.score)
        return rein_fail_at(err, REIN_EINVAL, "policy.model", -1,
                            "is a reward model: it has scores and no log-probs; open it without score");
    if (policy->adapter && policy->adapter->score)
        return rein_fail_at(err, REIN_EINVAL, "policy.adapter", -1,
                            "is that of a reward model (task_type SEQ_CLS): it has scores and no log-probs");
    return REIN_OK;
}

const float *rein_policy_score(const rein_policy *policy) {
    return policy->adapter && policy->adapter->score ? policy->adapter->score : policy->model->score;
}

void rein_score_fill(float *score, rein_score_head how, const rein_model_config *config, uint64_t seed) {
    const size_t n = (size_t)config->hidden_size;
    if (how == REIN_SCORE_ZERO) memset(score, 0, n * sizeof *score);
    else rein_random_fill_normal(score, n, config->initializer_range, seed, REIN_RANDOM_SCORE, 0, 0, 0, 1);
}
