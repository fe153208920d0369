/* adapter.c - the LoRA factors of a model in memory: all values in one array, in the order of layers and modules. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "weights.h"

const rein_lora *rein_adapter_slot(const rein_adapter *adapter, size_t slot) {
    return adapter && adapter->loras[slot].rank ? &adapter->loras[slot] : NULL;
}

const rein_lora *rein_adapter_lora(const rein_adapter *adapter, size_t layer, rein_module module) {
    if (!adapter) return NULL;
    const size_t slots = rein_adapter_slots(adapter->model);
    return rein_adapter_slot(
        adapter, module == REIN_HEAD_MODULE ? slots - 1 : layer * rein_layer_slots(&adapter->model->config) + (size_t)module);
}

static void name_factors(rein_adapter *a, size_t slot, char (*names)[120]) {
    char name[REIN_SLOT_NAME];
    for (int factor = 0; factor < 2; factor++)
        snprintf(names[factor], sizeof *names, "%s.lora_%c", rein_slot_name(name, &a->model->config, slot), "AB"[factor]);
}

int rein_adapter_has(const rein_adapter *a, size_t slot) {
    return a->modules >> rein_slot_module(&a->model->config, slot) & 1 && rein_slot_count(&a->model->config, slot) > 0;
}

size_t rein_tensor_rows(const rein_model *model, size_t slot) {
    const int n = rein_slot_count(&model->config, slot);
    size_t rows = 0;
    for (int i = 0; i < n; i++) rows += rein_model_linear(model, slot + (size_t)i)->out;
    return rows;
}

/* The LoRAs of the modules of one tensor, from `slot` on. */
static void lay_out_tensor(rein_adapter *a, size_t slot) {
    const double scale = a->alpha / (a->rank_stabilized ? sqrt((double)a->rank) : (double)a->rank);
    const size_t rank = (size_t)a->rank, in = rein_model_linear(a->model, slot)->in;
    float *factor_a = a->values ? a->values + a->floats : NULL, *factor_b = factor_a ? factor_a + rank * in : NULL;
    for (int i = 0; i < rein_slot_count(&a->model->config, slot); i++) {
        rein_lora *lora = &a->loras[slot + (size_t)i];
        const size_t out = rein_model_linear(a->model, slot + (size_t)i)->out;
        lora->rank = rank, lora->scale = (float)scale;
        lora->a = factor_a, lora->b = factor_b;
        lora->continues = i > 0, lora->continued = i + 1 < rein_slot_count(&a->model->config, slot);
        if (factor_b) factor_b += out * rank;
        a->packed_floats += rein_lora_packed_size(lora, in, out);
    }
    a->floats += rank * (in + rein_tensor_rows(a->model, slot));
}

/* Computes rank, scale and total sizes of all slots; if a->values is allocated, also the places and names of the factors. */
static void lay_out(rein_adapter *a, int has_score) {
    a->floats = a->packed_floats = a->n = 0;
    for (size_t slot = 0; slot < rein_adapter_slots(a->model); slot++) {
        if (!rein_adapter_has(a, slot)) continue;
        lay_out_tensor(a, slot);
        if (a->values) name_factors(a, slot, a->names + 2 * a->n);
        a->n++;
    }
    if (!has_score) return;
    if (a->values) a->score = a->values + a->floats, strcpy(a->names[2 * a->n], "score.weight");
    a->floats += (size_t)a->model->config.hidden_size;
}

rein_status rein_adapter_allocate(rein_adapter **adapter, const rein_model *model, const rein_adapter_config *config,
                                  rein_error *err) {
    rein_adapter *a = calloc(1, sizeof *a);
    *adapter = NULL;
    if (!a) return rein_fail(err, REIN_ENOMEM, "no memory for an adapter");
    *a = (rein_adapter){.model = model,
                        .rank = config->rank,
                        .alpha = config->alpha,
                        .rank_stabilized = config->rank_stabilized,
                        .modules = config->modules,
                        .base = strdup(*config->base ? config->base : model->directory)};
    a->loras = calloc(rein_adapter_slots(model), sizeof *a->loras);
    if (a->loras) {
        lay_out(a, config->score);
        a->values = calloc(a->floats, sizeof *a->values);
        a->packed = aligned_alloc(64, (a->packed_floats * sizeof *a->packed + 63) / 64 * 64);
        a->names = calloc(2 * a->n + 1, sizeof *a->names);
    }
    if (!a->base || !a->loras || !a->values || !a->packed || !a->names) {
        rein_adapter_close(a);
        return rein_fail(err, REIN_ENOMEM, "no memory for an adapter of rank %lld", (long long)config->rank);
    }
    lay_out(a, config->score);
    *adapter = a;
    return REIN_OK;
}

void rein_adapter_pack(rein_adapter *a) {
    float *to = a->packed;
    for (size_t slot = 0; slot < rein_adapter_slots(a->model); slot++) {
        const rein_linear *linear = rein_model_linear(a->model, slot);
        if (!a->loras[slot].rank) continue;
        rein_lora_pack(&a->loras[slot], to, linear->in, linear->out);
        to += rein_lora_packed_size(&a->loras[slot], linear->in, linear->out);
    }
    a->version = rein_new_version();
}

void rein_adapter_close(rein_adapter *a) {
    if (!a) return;
    free(a->base);
    free(a->loras);
    free(a->values);
    free(a->packed);
    free(a->names);
    free(a);
}

/* ----------------------------------------------------------------------------------------------------------------------- new */

/* The names of the modules that can have a LoRA, and their numbers. Returns how many they are. */
static int names_of(const char *names[REIN_MODULES + 1], int numbers[REIN_MODULES], const rein_model_config *config) {
    int n = 0;
    for (int m = 0; m < REIN_MODULES; m++)
        if (rein_module_count(config, (rein_module)m)) names[n] = rein_module_name(config, (rein_module)m), numbers[n++] = m;
    names[n] = NULL;
    return n;
}

static rein_status unknown_module(const char *name, size_t i, const char *const *names, rein_error *err) {
    const char *nearest = rein_nearest(name, names);
    char all[120] = "";
    for (size_t m = 0, n = 0; names[m] && n < sizeof all; m++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", m ? ", " : "one of ", names[m]);
    return rein_fail_at(err, REIN_EINVAL, "modules", (int64_t)i, "is \"%.60s\": %s%s%s", name, nearest ? "did you mean " : all,
                        nearest ? nearest : "", nearest ? "?" : "");
}

static rein_status modules_of(unsigned *modules, const rein_lora_options *o, const rein_model_config *config, rein_error *err) {
    const char *names[REIN_MODULES + 1];
    int numbers[REIN_MODULES];
    const int n = names_of(names, numbers, config);
    *modules = 0;
    for (int m = 0; m < n && !o->n_modules; m++)
        if (numbers[m] != REIN_HEAD_MODULE) *modules |= 1u << numbers[m];
    for (size_t i = 0; i < o->n_modules; i++) {
        int found = 0;
        while (found < n && strcmp(o->modules[i], names[found]) != 0) found++;
        if (found == n) return unknown_module(o->modules[i], i, names, err);
        if (*modules >> numbers[found] & 1)
            return rein_fail_at(err, REIN_EINVAL, "modules", (int64_t)i, ": %s is given twice", names[found]);
        *modules |= 1u << numbers[found];
    }
    return REIN_OK;
}

/* Initialises A as PEFT does, uniform in ±1/√in (He initialisation with a = √5), and B to 0. */
static void initialise(rein_adapter *a, uint64_t seed) {
    for (size_t slot = 0; slot < rein_adapter_slots(a->model); slot++) {
        const size_t in = rein_model_linear(a->model, slot)->in;
        const double bound = 1 / sqrt((double)in);
        if (rein_adapter_has(a, slot))
            rein_random_fill_uniform(a->loras[slot].a, a->loras[slot].rank * in, -bound, bound, seed, REIN_RANDOM_ADAPTER, slot, 0,
                                     0, 1);
    }
}

rein_status rein_adapter_new(rein_adapter **adapter, const rein_model *model, const rein_lora_options *o, rein_error *err) {
    rein_adapter_config config = {o->rank, o->alpha, o->rank_stabilized != 0, 0, "", o->score != REIN_SCORE_NONE};
    *adapter = NULL;
    if (o->rank < 1 || o->rank > REIN_MAX_RANK)
        return rein_fail_at(err, REIN_EINVAL, "rank", -1, "is %lld: it must be between 1 and %d", (long long)o->rank,
                            REIN_MAX_RANK);
    if (!(o->alpha > 0) || !isfinite(o->alpha))
        return rein_fail_at(err, REIN_EINVAL, "alpha", -1, "is %g: a number above 0 is needed", o->alpha);
    if (o->score == REIN_SCORE_STORED && !model->score)
        return rein_fail_at(err, REIN_EINVAL, "score", -1, "is that of the model, which has none: random or zero begins a new one");
    rein_status status = modules_of(&config.modules, o, &model->config, err);
    if (!status) status = rein_adapter_allocate(adapter, model, &config, err);
    if (status) return status;
    initialise(*adapter, o->seed);
    if (o->score && model->score) memcpy((*adapter)->score, model->score, (size_t)model->config.hidden_size * sizeof *model->score);
    else if (o->score) rein_score_fill((*adapter)->score, o->score, &model->config, o->seed);
    rein_adapter_pack(*adapter);
    return REIN_OK;
}

rein_status rein_adapter_copy(rein_adapter **copy, const rein_adapter *a, rein_error *err) {
    const rein_adapter_config config = {a->rank, a->alpha, a->rank_stabilized, a->modules, a->base, a->score != NULL};
    const rein_status status = rein_adapter_allocate(copy, a->model, &config, err);
    if (status) return status;
    (*copy)->form = a->form;
    memcpy((*copy)->values, a->values, a->floats * sizeof *a->values);
    rein_adapter_pack(*copy);
    return REIN_OK;
}

void rein_adapter_info_modules(rein_adapter_info *info, const rein_model_config *config, unsigned modules) {
    for (int m = 0; m < REIN_MODULES; m++)
        if (modules >> m & 1) info->modules[info->n_modules++] = rein_module_name(config, (rein_module)m);
}

rein_adapter_info rein_adapter_describe(const rein_adapter *a) {
    rein_adapter_info info = {.rank = a->rank,
                              .alpha = a->alpha,
                              .rank_stabilized = a->rank_stabilized,
                              .parameters = (int64_t)a->floats,
                              .base = a->base,
                              .score = a->score != NULL};
    rein_adapter_info_modules(&info, &a->model->config, a->modules);
    return info;
}
