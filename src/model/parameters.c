/* parameters.c - the parameters for the optimizer: the factors of an adapter, or all weights of a model. */
#include "base/base.h"
#include "weights.h"

size_t rein_parameter_count(const rein_model *model, const rein_adapter *adapter) {
    if (adapter) return 2 * adapter->n + (adapter->score != NULL);
    return model->values ? rein_model_weights(&model->config) : 0;
}

size_t rein_parameter_floats(const rein_model *model, const rein_adapter *adapter) {
    if (adapter) return adapter->floats;
    return model->values ? model->offsets[rein_model_weights(&model->config)] : 0;
}

static void adapter_parameters(rein_parameter *p, rein_adapter *a, float *gradient) {
    size_t i = 0;
    for (size_t slot = 0; slot < rein_adapter_slots(a->model); slot++) {
        const rein_lora *lora = &a->loras[slot];
        const rein_linear *linear = rein_model_linear(a->model, slot);
        const size_t shapes[2][2] = {{lora->rank, linear->in}, {rein_tensor_rows(a->model, slot), lora->rank}};
        for (int factor = 0; factor < 2 && rein_adapter_has(a, slot); factor++, i++) {
            float *value = factor ? lora->b : lora->a;
            p[i] = (rein_parameter){.name = a->names[i],
                                    .value = value,
                                    .gradient = gradient + (value - a->values),
                                    .rows = shapes[factor][0],
                                    .columns = shapes[factor][1],
                                    .size = shapes[factor][0] * shapes[factor][1],
                                    .decay = 1};
        }
    }
    if (!a->score) return;
    const size_t hidden = (size_t)a->model->config.hidden_size;
    p[i] = (rein_parameter){.name = a->names[i],
                            .value = a->score,
                            .gradient = gradient + (a->score - a->values),
                            .rows = 1,
                            .columns = hidden,
                            .size = hidden,
                            .decay = 1};
}

void rein_parameters(rein_parameter *p, rein_model *model, rein_adapter *adapter, float *gradient) {
    if (adapter) {
        adapter_parameters(p, adapter, gradient);
        return;
    }
    for (size_t i = 0; i < rein_parameter_count(model, NULL); i++) {
        const rein_weight *w = &model->weights[i];
        p[i] = (rein_parameter){.name = w->name,
                                .value = model->values + model->offsets[i],
                                .gradient = gradient + model->offsets[i],
                                .rows = w->n_dims == 2 ? w->shape[0] : 1,
                                .columns = w->shape[w->n_dims - 1],
                                .size = model->offsets[i + 1] - model->offsets[i],
                                .decay = w->n_dims == 2};
    }
}

rein_status rein_parameters_changed(rein_model *model, rein_adapter *adapter, rein_error *err) {
    if (adapter) rein_adapter_pack(adapter);
    else if (model->values) rein_model_unpack(model);
    else
        return rein_fail(err, REIN_EINVAL,
                         "nothing can have changed: there is no adapter, and the model was not opened with train");
    return REIN_OK;
}
