/* gguf_save_adapter.c - writes an adapter as llama.cpp loads it (--lora): two tensors for each module, in f32, and alpha. llama.cpp multiplies
 * by alpha/rank, so alpha is s·rank, which is alpha·√rank where the adapter is rank-stabilized. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "gguf_write.h"
#include "rein/model.h"

typedef struct saving {
    const rein_adapter *adapter;
    const rein_gguf_family *family;
    size_t n;
    rein_gguf_tensor *tensors; /* [n]: A and B in turn */
    size_t *slots;             /* [n]: the first, or only, slot of the tensor; those of a stack of experts are three apart */
    rein_error *err;
} saving;

static const rein_model_config *config_of(const saving *s) { return &s->adapter->model->config; }

static int is_expert(const saving *s, size_t slot) {
    return slot % rein_layer_slots(config_of(s)) >= REIN_LAYER_MODULES && slot + 1 < rein_slots(config_of(s));
}

static rein_status name_module(char to[REIN_GGUF_NAME + 1], const saving *s, size_t slot) {
    char module[REIN_SLOT_NAME], name[REIN_SLOT_NAME + sizeof ".weight"];
    rein_slot_name(module, config_of(s), slot);
    snprintf(name, sizeof name, "%s.weight", module);
    if (rein_gguf_name_there(to, s->family, name) && strlen(to) + sizeof ".lora_a" <= REIN_GGUF_NAME + 1) return REIN_OK;
    return rein_fail(s->err, REIN_EINVAL, "GGUF has no name for the LoRA of %s in %s models", module, s->family->architecture);
}

/* A is [in, rank], B [rank, out], the first number contiguous; experts are stacked. */
static rein_status plan_slot(saving *s, size_t slot) {
    const rein_model *model = s->adapter->model;
    const size_t rank = s->adapter->loras[slot].rank, experts = is_expert(s, slot) ? (size_t)config_of(s)->n_experts : 1;
    char name[REIN_GGUF_NAME + 1];
    const rein_status status = name_module(name, s, slot);
    for (int factor = 0; factor < 2 && !status; factor++) {
        rein_gguf_tensor *t = &s->tensors[s->n];
        *t = (rein_gguf_tensor){.n_dims = is_expert(s, slot) ? 3 : 2,
                                .sizes = {factor ? rank : rein_model_linear(model, slot)->in,
                                          factor ? rein_tensor_rows(model, slot) : rank, experts, 1},
                                .type = rein_gguf_number_of(REIN_TENSOR_F32)};
        snprintf(t->name, sizeof t->name, "%.56s%s", name, factor ? ".lora_b" : ".lora_a");
        s->slots[s->n++] = slot;
    }
    return status;
}

static rein_status plan(saving *s) {
    const size_t slots = rein_slots(config_of(s)), in_layer = rein_layer_slots(config_of(s));
    rein_status status = REIN_OK;
    s->tensors = calloc(2 * s->adapter->n + 1, sizeof *s->tensors);
    s->slots = calloc(2 * s->adapter->n + 1, sizeof *s->slots);
    if (!s->tensors || !s->slots) return rein_no_memory(s->err);
    for (size_t slot = 0; slot < slots && !status; slot++) {
        const int follows = is_expert(s, slot) && slot % in_layer >= REIN_LAYER_MODULES + 3; /* its stack was planned */
        if (rein_adapter_has(s->adapter, slot) && !follows) status = plan_slot(s, slot);
    }
    return status;
}

static rein_status put_factor(rein_writer *writer, const saving *s, const rein_gguf_tensor *t, size_t slot, int factor) {
    const rein_lora *lora = &s->adapter->loras[slot];
    const size_t width = t->sizes[0], rows = t->sizes[1], pairs = factor ? rein_gguf_pairs_in(s->family, config_of(s), t->name) : 0;
    const float *from = factor ? lora->b : lora->a;
    rein_status status = REIN_OK;
    if (!pairs) return rein_writer_put(writer, from, width * rows * sizeof *from, s->err);
    for (size_t r = 0; r < rows && !status; r++)
        status = rein_writer_put(writer, from + rein_gguf_row(r, rows, pairs) * width, width * sizeof *from, s->err);
    return status;
}

static rein_status put_tensor(rein_writer *writer, size_t i, void *context, rein_error *err) {
    const saving *s = context;
    rein_status status = REIN_OK;
    (void)err;
    for (size_t e = 0; e < s->tensors[i].sizes[2] && !status; e++)
        status = put_factor(writer, s, &s->tensors[i], s->slots[i] + 3 * e, (int)(i % 2));
    return status;
}

static rein_status write_file(saving *s, const char *path) {
    const rein_adapter *a = s->adapter;
    rein_gguf_pairs pairs = {0};
    rein_gguf_put_text(&pairs, "general.architecture", s->family->architecture);
    rein_gguf_put_text(&pairs, "general.type", "adapter");
    rein_gguf_put_text(&pairs, "adapter.type", "lora");
    rein_gguf_put_f32(&pairs, "adapter.lora.alpha", a->rank_stabilized ? a->alpha * sqrt((double)a->rank) : a->alpha);
    rein_gguf_put_u32(&pairs, "general.file_type", 0);
    const rein_status status = rein_gguf_write(path, &pairs, s->tensors, s->n, put_tensor, s, s->err);
    rein_gguf_pairs_free(&pairs);
    return status;
}

rein_status rein_adapter_save_gguf(const rein_adapter *adapter, const char *path, rein_error *err) {
    saving s = {.adapter = adapter, .err = err};
    char names[REIN_GGUF_FAMILIES_SHOWN];
    const rein_model_config *c = config_of(&s);
    s.family = rein_gguf_family_named(c->family->model_type);
    if (!s.family)
        return rein_fail(err, REIN_EINVAL, "adapters of the family %s cannot be written as GGUF: those of %s can",
                         c->family->model_type, rein_gguf_families_show(names));
    if (c->tie_word_embeddings && rein_adapter_lora(adapter, 0, REIN_HEAD_MODULE))
        return rein_fail(err, REIN_EINVAL,
                         "the adapter has a LoRA on the head, which is the embedding: llama.cpp cannot apply it alone; write the "
                         "merged model");
    rein_status status = rein_gguf_check_no_score(adapter->model, adapter, err);
    if (!status) status = rein_gguf_check_new(path, err);
    if (!status) status = plan(&s);
    if (!status) status = write_file(&s, path);
    free(s.tensors);
    free(s.slots);
    return status;
}
