/* trainer.c - how a trainer opens, and its step of AdamW. */
#include "trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/activation_cache.h"
#include "model/activations.h"
#include "model/weights.h"

enum { LARGEST_SHARDS = 4096 };

rein_status rein_check_temperature(double temperature, rein_error *err) {
    if (temperature >= 1e-3 && temperature <= 1e3) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "temperature", -1, "is %g: it must be between 0.001 and 1000", temperature);
}

static rein_status check(rein_trainer_options *o, const rein_model *model, const rein_adapter *adapter, rein_error *err) {
    if (!rein_parameter_floats(model, adapter))
        return rein_fail(err, REIN_EINVAL, "nothing trains: there is no adapter, and the model was not opened to train");
    const rein_status status = rein_check_temperature(o->temperature, err);
    if (status) return status;
    if (o->shards > LARGEST_SHARDS)
        return rein_fail_at(err, REIN_EINVAL, "shards", -1, "is %zu: at most %d", o->shards, LARGEST_SHARDS);
    if (o->activation_cache && rein_activation_cache_inputs_only(o->activation_cache) && !o->recompute)
        return rein_fail_at(err, REIN_EINVAL, "activation_cache", -1,
                            "was opened with recompute, the trainer without: open both alike");
    if (!o->shards) o->shards = adapter ? REIN_ADAPTER_SHARDS : 1;
    if (!o->share_limit) o->share_limit = REIN_SHARE_LIMIT;
    return rein_exec_resolve(&o->exec, &o->exec, REIN_SERIAL, err);
}

static rein_status allocate(rein_trainer *t, rein_error *err) {
    t->floats = rein_parameter_floats(t->model, t->adapter);
    t->n_parameters = rein_parameter_count(t->model, t->adapter);
    t->parameters = calloc(t->n_parameters, sizeof *t->parameters);
    t->values = t->adapter ? t->adapter->values : t->model->values;
    t->buffers = rein_pages_take(t->options.shards * t->floats * sizeof *t->buffers);
    t->buffer_of = malloc(t->options.shards * sizeof *t->buffer_of);
    t->taken = calloc(t->options.shards, 1);
    t->first = rein_pages_take(t->floats * sizeof *t->first);
    t->second = rein_pages_take(t->floats * sizeof *t->second);
    if (!t->parameters || !t->buffers || !t->buffer_of || !t->taken || !t->first || !t->second)
        return rein_fail(err, REIN_ENOMEM, "no memory to train %zu numbers in %zu shards", t->floats, t->options.shards);
    for (size_t s = 0; s < t->options.shards; s++) t->buffer_of[s] = -1;
    rein_parameters(t->parameters, t->model, t->adapter, t->buffers);
    rein_status status = rein_activations_open(&t->activations, &t->options.exec, err);
    if (!status) status = rein_activations_open(&t->reference_activations, &t->options.exec, err);
    if (!status) status = rein_expert_load_open(&t->load, &t->model->config, err);
    if (!status) t->activations->load = t->load;
    return status;
}

rein_status rein_trainer_open(rein_trainer **trainer, rein_model *model, rein_adapter *adapter, const rein_trainer_options *options,
                              rein_error *err) {
    rein_trainer_options o = *options;
    *trainer = NULL;
    rein_status status = check(&o, model, adapter, err);
    if (status) return status;
    rein_trainer *t = calloc(1, sizeof *t);
    if (!t) return rein_fail(err, REIN_ENOMEM, "no memory for a trainer");
    t->model = model, t->adapter = adapter, t->options = o;
    if ((status = allocate(t, err))) {
        rein_trainer_close(t);
        return status;
    }
    *trainer = t;
    return REIN_OK;
}

void rein_trainer_close(rein_trainer *t) {
    if (!t) return;
    rein_activations_close(t->activations);
    rein_activations_close(t->reference_activations);
    rein_expert_load_close(t->load);
    rein_arena_free(&t->arena);
    free(t->parameters);
    rein_pages_free(t->buffers, t->options.shards * t->floats * sizeof *t->buffers);
    free(t->buffer_of);
    free(t->taken);
    rein_pages_free(t->first, t->floats * sizeof *t->first);
    rein_pages_free(t->second, t->floats * sizeof *t->second);
    free(t);
}

int64_t rein_trainer_steps(const rein_trainer *t) { return t->steps; }

/* ----------------------------------------------------------------------------------------------------------------- the optimizer */

rein_status rein_trainer_optim_step(double *gradient_norm, rein_trainer *t, const rein_adamw *adamw, rein_error *err) {
    if (!t->holds) return rein_fail(err, REIN_EINVAL, "there is no gradient: every pass since the last step had nothing to train");
    rein_status status = rein_adamw_check(adamw, err);
    if (status) return status; /* the gradient stays: the caller can correct the options and call again */
    status = rein_ranks_agree(t->ranks, rein_trainer_check_moments(t, err), err);
    if (!status) status = rein_trainer_compare(t, err);
    if (!status) status = rein_trainer_sum(t, err);
    if (!status)
        status = rein_adamw_step_shared(gradient_norm, t->values, t->first, t->second, &t->steps, t->parameters, t->n_parameters,
                                        adamw, &t->options.exec, t->ranks, err);
    if (!status) rein_trainer_note_moments(t);
    if (!status) status = rein_parameters_changed(t->model, t->adapter, err);
    rein_trainer_clear(t); /* also if AdamW failed: the shards are added up */
    return status;
}
