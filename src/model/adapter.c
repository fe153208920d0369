/* adapter.c - the LoRA factors of a model in memory: all values in one array, in the order of layers and modules. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "weights.h"

const rein_lora *rein_adapter_lora(const rein_adapter *adapter, size_t layer, rein_module module) {
    if (!adapter || !(adapter->modules >> module & 1)) return NULL;
    return module == REIN_HEAD_MODULE ? &adapter->loras[rein_adapter_slots(adapter->model) - 1]
                                      : &adapter->loras[layer * REIN_LAYER_MODULES + (size_t)module];
}

static rein_module module_of(const rein_model *model, size_t slot) {
    return slot + 1 < rein_adapter_slots(model) ? (rein_module)(slot % REIN_LAYER_MODULES) : REIN_HEAD_MODULE;
}

static void name_factors(rein_adapter *a, size_t slot, char (*names)[120]) {
    const rein_module module = module_of(a->model, slot);
    for (int factor = 0; factor < 2; factor++)
        if (module == REIN_HEAD_MODULE) snprintf(names[factor], sizeof *names, "lm_head.lora_%c", "AB"[factor]);
        else
            snprintf(names[factor], sizeof *names, "model.layers.%zu.%s.lora_%c", slot / REIN_LAYER_MODULES,
                     rein_module_path(module), "AB"[factor]);
}

/* Computes rank, scale and total sizes of all slots; if a->values is allocated, also the places and names of the factors. */
static void lay_out(rein_adapter *a) {
    const double scale = a->alpha / (a->rank_stabilized ? sqrt((double)a->rank) : (double)a->rank);
    a->floats = a->packed_floats = a->n = 0;
    for (size_t slot = 0; slot < rein_adapter_slots(a->model); slot++) {
        rein_lora *lora = &a->loras[slot];
        const rein_linear *linear = rein_model_linear(a->model, slot);
        if (!(a->modules >> module_of(a->model, slot) & 1)) continue;
        lora->rank = (size_t)a->rank;
        lora->scale = (float)scale;
        if (a->values) {
            lora->a = a->values + a->floats;
            lora->b = lora->a + lora->rank * linear->in;
            name_factors(a, slot, a->names + 2 * a->n);
        }
        a->floats += lora->rank * (linear->in + linear->out);
        a->packed_floats += rein_lora_packed_size(lora, linear->in, linear->out);
        a->n++;
    }
}

rein_status rein_adapter_allocate(rein_adapter **adapter, const rein_model *model, int64_t rank, double alpha, int rank_stabilized,
                                  unsigned modules, rein_error *err) {
    rein_adapter *a = calloc(1, sizeof *a);
    *adapter = NULL;
    if (!a) return rein_fail(err, REIN_ENOMEM, "no memory for an adapter");
    *a = (rein_adapter){.model = model, .rank = rank, .alpha = alpha, .rank_stabilized = rank_stabilized, .modules = modules};
    snprintf(a->base, sizeof a->base, "%s", model->directory);
    a->loras = calloc(rein_adapter_slots(model), sizeof *a->loras);
    if (a->loras) {
        lay_out(a);
        a->values = calloc(a->floats, sizeof *a->values);
        a->packed = aligned_alloc(64, (a->packed_floats * sizeof *a->packed + 63) / 64 * 64);
        a->names = calloc(2 * a->n, sizeof *a->names);
    }
    if (!a->loras || !a->values || !a->packed || !a->names) {
        rein_adapter_close(a);
        return rein_fail(err, REIN_ENOMEM, "no memory for an adapter of rank %lld", (long long)rank);
    }
    lay_out(a);
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
    free(a->loras);
    free(a->values);
    free(a->packed);
    free(a->names);
    free(a);
}

/* ----------------------------------------------------------------------------------------------------------------------- new */

enum { ALL_LINEAR = (1 << REIN_LAYER_MODULES) - 1 };

static rein_status modules_of(unsigned *modules, const rein_lora_options *o, rein_error *err) {
    const char *names[REIN_MODULES + 1] = {0};
    for (int m = 0; m < REIN_MODULES; m++) names[m] = rein_module_name((rein_module)m);
    *modules = o->n_modules ? 0 : ALL_LINEAR;
    for (size_t i = 0; i < o->n_modules; i++) {
        int found = -1;
        for (int m = 0; m < REIN_MODULES; m++)
            if (!strcmp(o->modules[i], names[m])) found = m;
        if (found < 0) {
            const char *nearest = rein_nearest(o->modules[i], names);
            return rein_fail_at(err, REIN_EINVAL, "modules", (int64_t)i, "is \"%.60s\": %s%s%s", o->modules[i],
                                nearest ? "did you mean "
                                        : "one of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head",
                                nearest ? nearest : "", nearest ? "?" : "");
        }
        if (*modules >> found & 1)
            return rein_fail_at(err, REIN_EINVAL, "modules", (int64_t)i, ": %s is given twice", names[found]);
        *modules |= 1u << found;
    }
    return REIN_OK;
}

/* Initialises A as PEFT does, uniform in ±1/√in (He initialisation with a = √5), and B to 0. */
static void initialise(rein_adapter *a, uint64_t seed) {
    for (size_t slot = 0; slot < rein_adapter_slots(a->model); slot++) {
        const size_t in = rein_model_linear(a->model, slot)->in;
        const double bound = 1 / sqrt((double)in);
        if (a->loras[slot].rank)
            rein_random_fill_uniform(a->loras[slot].a, a->loras[slot].rank * in, -bound, bound, seed, REIN_RANDOM_ADAPTER, slot, 0,
                                     0, 1);
    }
}

rein_status rein_adapter_new(rein_adapter **adapter, const rein_model *model, const rein_lora_options *o, rein_error *err) {
    unsigned modules;
    *adapter = NULL;
    if (o->rank < 1 || o->rank > REIN_MAX_RANK)
        return rein_fail_at(err, REIN_EINVAL, "rank", -1, "is %lld: 1 to %d", (long long)o->rank, REIN_MAX_RANK);
    if (!(o->alpha > 0) || !isfinite(o->alpha))
        return rein_fail_at(err, REIN_EINVAL, "alpha", -1, "is %g: a number above 0 is needed", o->alpha);
    rein_status status = modules_of(&modules, o, err);
    if (!status) status = rein_adapter_allocate(adapter, model, o->rank, o->alpha, o->rank_stabilized != 0, modules, err);
    if (status) return status;
    initialise(*adapter, o->seed);
    rein_adapter_pack(*adapter);
    return REIN_OK;
}

rein_status rein_adapter_copy(rein_adapter **copy, const rein_adapter *a, rein_error *err) {
    const rein_status status = rein_adapter_allocate(copy, a->model, a->rank, a->alpha, a->rank_stabilized, a->modules, err);
    if (status) return status;
    memcpy((*copy)->values, a->values, a->floats * sizeof *a->values);
    memcpy((*copy)->base, a->base, sizeof a->base);
    rein_adapter_pack(*copy);
    return REIN_OK;
}

rein_adapter_info rein_adapter_describe(const rein_adapter *a) {
    rein_adapter_info info = {
        .rank = a->rank, .alpha = a->alpha, .rank_stabilized = a->rank_stabilized, .parameters = (int64_t)a->floats};
    for (int m = 0; m < REIN_MODULES; m++)
        if (a->modules >> m & 1) info.modules[info.n_modules++] = rein_module_name((rein_module)m);
    memcpy(info.base, a->base, sizeof info.base);
    return info;
}
