/* merged.c - the rows of a model's weights: decoded, and merged with an adapter. */
#include "merged.h"

#include <string.h>

#include "adapter_files.h"
#include "base/base.h"
#include "quantize.h"

/* A score head is f32 in memory, wherever it came from. */
static rein_status find_score(rein_source *s, const rein_model *model, const rein_adapter *adapter) {
    s->stored = (rein_tensor){.name = s->weight.name,
                              .dtype = REIN_TENSOR_F32,
                              .n_dims = 2,
                              .shape = {1, s->weight.shape[1]},
                              .data = rein_policy_score(&(rein_policy){model, adapter, 1}),
                              .bytes = s->weight.shape[1] * sizeof(float)};
    s->storage = REIN_STORED_F32;
    return REIN_OK;
}

/* The head of a tied model, which is written separately if it has a LoRA, comes from the embedding, the first weight. */
rein_status rein_source_find(rein_source *s, const rein_model *model, const rein_model_config *config, const rein_adapter *adapter,
                             size_t i, rein_error *err) {
    const size_t from = i < rein_model_weights(&model->config) ? i : 0;
    rein_weight origin;
    const rein_tensor *stored;
    size_t slot;
    const char *rest;
    *s = (rein_source){0};
    rein_model_weight(&s->weight, config, i);
    if (s->weight.kind == REIN_SCORE) return find_score(s, model, adapter);
    rein_model_weight(&origin, config, from);
    const rein_tensor *found = rein_model_tensor(&model->config, model->tensors, origin.name);
    const rein_status status = rein_tensors_weight(&stored, model->tensors, found ? found->name : origin.name, err);
    if (status) return status;
    s->stored = *stored;
    s->storage = rein_weight_type_of(model->values ? REIN_TENSOR_F32 : stored->dtype)->storage;
    if (model->values) s->stored.data = model->values + model->offsets[from], s->stored.pairs = 0;
    if (rein_quantizes(model->quantize, &s->weight)) s->quantize = model->quantize;
    if (adapter && rein_module_slot(&slot, &rest, config, s->weight.name) && !strcmp(rest, ".weight") && adapter->loras[slot].rank)
        s->lora = &adapter->loras[slot];
    return REIN_OK;
}

static size_t width(const rein_source *s) { return s->weight.shape[s->weight.n_dims - 1]; }

const char *rein_source_stored_row(const rein_source *s, size_t r) {
    return (const char *)s->stored.data + rein_storage_bytes(s->storage, rein_tensor_row(&s->stored, r) * width(s));
}

int rein_source_is_stored(const rein_source *s, rein_storage storage) { return !s->lora && !s->quantize && s->storage == storage; }

void rein_source_row(float *to, const rein_source *s, size_t r, const rein_kernels *kernels) {
    kernels->decode(to, rein_source_stored_row(s, r), s->storage, width(s));
    if (s->quantize) rein_quantize_round(to, width(s), s->quantize, kernels);
}

void rein_source_merged_row(double *to, float *row, const rein_source *s, size_t r, const rein_kernels *kernels) {
    const rein_lora *lora = s->lora;
    const size_t n = width(s);
    memset(to, 0, n * sizeof *to);
    for (size_t k = 0; lora && k < lora->rank; k++) {
        const double b = (double)lora->b[r * lora->rank + k];
        const float *a = lora->a + k * n;
        for (size_t j = 0; j < n; j++) to[j] += b * (double)a[j];
    }
    rein_source_row(row, s, r, kernels);
    const double scale = lora ? (double)lora->scale : 0;
    for (size_t j = 0; j < n; j++) to[j] = (double)row[j] + scale * to[j];
}

rein_status rein_source_check_row(const double *row, const rein_source *s, size_t r, const rein_weight_type *type,
                                  rein_error *err) {
    for (size_t j = 0; j < width(s); j++)
        if (!(row[j] > -type->limit && row[j] < type->limit))
            return rein_fail(err, REIN_ERANGE, "%s[%zu][%zu] %s %g, which %s cannot represent", s->weight.name, r, j,
                             s->lora ? "merged with its LoRA is" : "is", row[j], rein_tensor_type_name(type->dtype));
    return REIN_OK;
}
