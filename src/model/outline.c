/* outline.c - the memory of a model that is not opened. */
#include "outline.h"

#include <stdlib.h>
#include <string.h>

#include "activations.h"
#include "key_store.h"
#include "quantize.h"
#include "weight_type.h"

/* --------------------------------------------------------------------------------------------------------------------- weights */

static size_t numbers_of(const rein_weight *w) { return w->n_dims == 2 ? w->shape[0] * w->shape[1] : w->shape[0]; }

static rein_storage storage_of(const rein_outline *o, const rein_tensors *tensors, const char *name) {
    const rein_model_config *c = &o->model.config;
    const rein_tensor *tensor = tensors ? rein_model_tensor(c, tensors, name) : NULL;
    const rein_weight_type *type = tensor         ? rein_weight_type_of(tensor->dtype)
                                   : c->has_dtype ? rein_weight_type_of(c->dtype)
                                                  : NULL;
    return type ? type->storage : REIN_STORED_F32;
}

static void count_weight(rein_outline *o, const rein_weight *w, const rein_tensors *tensors) {
    const size_t n = numbers_of(w);
    const int head = w->kind == REIN_HEAD || (w->kind == REIN_EMBEDDING && o->model.config.tie_word_embeddings);
    o->numbers += n;
    if (w->n_dims == 1) o->vectors += n * sizeof(float);
    const int quantizes = rein_quantizes(o->model.quantize, w);
    const rein_storage storage = quantizes ? o->model.quantize->storage : storage_of(o, tensors, w->name);
    if (quantizes && (w->kind == REIN_EMBEDDING || w->kind == REIN_HEAD))
        o->packed += rein_storage_bytes(storage, n); /* its rows */
    if (w->n_dims == 1 || (w->kind == REIN_EMBEDDING && !head)) return;
    o->packed += rein_packed_size(w->shape[1], w->shape[0], storage);
    o->packed_f32 += rein_packed_size(w->shape[1], w->shape[0], REIN_STORED_F32);
}

static void count_weights(rein_outline *o, const char *directory) {
    rein_tensors *tensors = NULL;
    if (rein_tensors_open(&tensors, directory, NULL)) tensors = NULL; /* not there yet, or damaged: opening the model will tell */
    for (size_t i = 0; i < rein_model_weights(&o->model.config); i++) {
        rein_weight w;
        rein_model_weight(&w, &o->model.config, i);
        count_weight(o, &w, tensors);
    }
    rein_tensors_close(tensors);
}

/* --------------------------------------------------------------------------------------------------------------------- adapters */

static int is_named(const rein_lora_options *lora, const char *name, int otherwise) {
    if (!lora->n_modules) return otherwise;
    for (size_t i = 0; i < lora->n_modules; i++)
        if (!strcmp(lora->modules[i], name)) return 1;
    return 0;
}

/* The LoRA of a tensor: one for each of the modules that it holds, which share A. */
static void add_lora(rein_outline *o, const rein_weight *w, size_t slot) {
    const size_t rank = (size_t)o->adapter.rank;
    for (int i = 0; i < rein_slot_count(&o->model.config, slot); i++) o->adapter.loras[slot + (size_t)i].rank = rank;
    o->adapter_floats += rank * (w->shape[0] + w->shape[1]);
    o->adapter_packed +=
        rein_packed_size(w->shape[1], rank, REIN_STORED_F32) + rein_packed_size(rank, w->shape[0], REIN_STORED_F32);
}

/* The slot of a weight that can have a LoRA; SIZE_MAX: it cannot. */
static size_t slot_of(const rein_model_config *c, const rein_weight *w) {
    const size_t first = w->layer * rein_layer_slots(c);
    if (w->kind == REIN_HEAD || (w->kind == REIN_EMBEDDING && c->tie_word_embeddings)) return rein_slots(c) - 1;
    if (w->kind == REIN_MATRIX) return first + (size_t)w->to;
    return w->kind == REIN_EXPERT ? first + REIN_LAYER_MODULES + (size_t)w->to : SIZE_MAX;
}

static rein_status add_loras(rein_outline *o, const rein_lora_options *lora, rein_error *err) {
    const rein_model_config *c = &o->model.config;
    const size_t slots = rein_adapter_slots(&o->model);
    o->adapter = (rein_adapter){.model = &o->model, .rank = lora->rank, .loras = calloc(slots, sizeof *o->adapter.loras)};
    if (!o->adapter.loras) return rein_fail(err, REIN_ENOMEM, "no memory for the outline of an adapter");
    for (size_t i = 0; i < rein_model_weights(c); i++) {
        rein_weight w;
        rein_model_weight(&w, c, i);
        const size_t slot = slot_of(c, &w);
        if (slot != SIZE_MAX && is_named(lora, rein_module_name(c, rein_slot_module(c, slot)), slot + 1 < slots))
            add_lora(o, &w, slot);
    }
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------------ open */

rein_status rein_outline_open(rein_outline *o, const char *directory, const char *quantize, const rein_lora_options *lora, int full,
                              const rein_exec *exec, rein_error *err) {
    *o = (rein_outline){.full = full, .exec = *exec};
    rein_model_config *c = &o->model.config;
    const rein_status status = rein_model_config_read(c, directory, err);
    if (status) return status;
    o->model.heads = (rein_heads){.n = (size_t)c->n_heads, .n_kv = (size_t)c->n_kv_heads, .dim = (size_t)c->head_dim};
    o->model.quantize = quantize ? rein_quantize_type(quantize) : NULL;
    count_weights(o, directory);
    return lora ? add_loras(o, lora, err) : REIN_OK;
}

void rein_outline_close(rein_outline *o) { free(o->adapter.loras); }

/* ---------------------------------------------------------------------------------------------------------------------- measures */

static size_t blocks_of(size_t positions) { return (positions + REIN_KEY_BLOCK - 1) / REIN_KEY_BLOCK; }

static const rein_adapter *adapter_of(const rein_outline *o) { return o->adapter.loras ? &o->adapter : NULL; }

size_t rein_outline_key_part(const rein_outline *o, rein_key_part part) {
    return rein_key_part_floats(&o->model.config, &o->model.heads, part) * sizeof(float);
}

size_t rein_outline_window_blocks(const rein_outline *o, size_t blocks) {
    const size_t most = rein_key_blocks_touched((size_t)o->model.config.window);
    return blocks < most ? blocks : most;
}

size_t rein_outline_angles(const rein_outline *o, size_t positions) {
    const rein_model_config *c = &o->model.config;
    const size_t ropes = (size_t)(c->rope.theta > 0) + (size_t)(c->window_rope.theta > 0);
    return ropes * positions * (size_t)c->head_dim * sizeof(float);
}

size_t rein_outline_cache_row(const rein_outline *o, int recompute) {
    const rein_model_config *c = &o->model.config;
    size_t floats = 0;
    for (size_t i = 0; i < (recompute ? 1 : REIN_KEPT_ARRAYS); i++) floats += rein_kept_width(i, &o->model, adapter_of(o));
    return ((size_t)c->n_layers * floats + (size_t)c->hidden_size) * sizeof(float);
}

typedef struct measured {
    rein_arena arena;
    rein_lora_rows part;
    rein_batch_rows batch;
} measured;

static void measure_batch(measured *m, const rein_outline *o, size_t rows, size_t queries, size_t keys) {
    *m = (measured){.arena.measures = 1, .part = {o->adapter.loras, 0, rows}};
    m->batch = (rein_batch_rows){.model = &o->model,
                                 .adapter = adapter_of(o),
                                 .rows = rows,
                                 .parts = &m->part,
                                 .n_parts = 1,
                                 .n_queries = queries,
                                 .keys = keys,
                                 .run = {rein_kernels_of(o->exec.isa), o->exec, NULL}};
    rein_batch_take(&m->batch, &m->arena);
}

size_t rein_outline_layer(const rein_outline *o, size_t rows, size_t queries, size_t keys, int for_backward) {
    measured m;
    rein_kept kept = {0};
    measure_batch(&m, o, rows, queries, keys);
    rein_kept_take(&kept, &m.batch, for_backward, &m.arena);
    return m.arena.used;
}

/* Of each token whose log-probability is wanted: the head's input, its direction or its logits, and their gradients. */
static size_t head_floats(const rein_outline *o, size_t n) {
    const size_t hidden = (size_t)o->model.config.hidden_size, vocabulary = (size_t)o->model.config.vocab_size;
    const rein_lora *lora = rein_adapter_lora(adapter_of(o), 0, REIN_HEAD_MODULE);
    const rein_nn_context run = {rein_kernels_of(o->exec.isa), o->exec, NULL};
    size_t floats = 4 * n * hidden + 6 * n + rein_head_scratch(&(rein_head_out){0}, &run);
    if (!lora && !o->full) return floats + n * hidden;
    floats += lora ? 2 * n * lora->rank : 0;
    return floats + n * (n * vocabulary <= REIN_MAX_KEPT_LOGITS / sizeof(float) ? vocabulary : REIN_BACKWARD_CHUNK);
}

size_t rein_outline_activations(const rein_outline *o, const rein_outline_pass *p) {
    const size_t layers = (size_t)o->model.config.n_layers, hidden = (size_t)o->model.config.hidden_size;
    const size_t rows = p->shared + p->n * p->own, keys = p->shared + p->own,
                 blocks = blocks_of(p->shared) + p->n * blocks_of(p->own);
    measured m;
    rein_kept kept = {0};
    rein_backward_scratch scratch;
    measure_batch(&m, o, rows, p->n + 1, keys);
    for (size_t l = 0; l < (p->recompute ? 1 : layers); l++) rein_kept_take(&kept, &m.batch, 1, &m.arena);
    rein_arena_floats(&m.arena, (layers + 2) * rows * hidden); /* inputs of the layers, the last output, its gradient */
    rein_arena_floats(&m.arena, blocks * rein_key_block_floats(&o->model.heads));
    rein_arena_floats(&m.arena, head_floats(o, p->n * p->own));
    rein_backward_take(&scratch, &m.batch, &m.arena);
    return m.arena.used + rein_outline_angles(o, keys);
}
