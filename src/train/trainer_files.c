/* trainer_files.c - a trainer to files and back: the policy in the ecosystem's formats, the optimizer's moments in optimizer.safetensors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/weights.h"
#include "trainer.h"

/* The tensors "first.NAME" and "second.NAME", and __metadata__ {"steps": "12"}. */
typedef struct moments {
    rein_tensor *tensors;
    char (*names)[160];
} moments;

static rein_status list_moments(moments *m, const rein_trainer *t, rein_error *err) {
    m->tensors = calloc(2 * t->n_parameters, sizeof *m->tensors);
    m->names = calloc(2 * t->n_parameters, sizeof *m->names);
    if (!m->tensors || !m->names)
        return rein_fail(err, REIN_ENOMEM, "no memory to list the moments of %zu arrays", t->n_parameters);
    for (size_t i = 0; i < 2 * t->n_parameters; i++) {
        const rein_parameter *p = &t->parameters[i / 2];
        const float *values = (i % 2 ? t->second : t->first) + (p->gradient - t->shards);
        snprintf(m->names[i], sizeof *m->names, "%s.%s", i % 2 ? "second" : "first", p->name);
        m->tensors[i] = (rein_tensor){.name = m->names[i],
                                      .dtype = REIN_TENSOR_F32,
                                      .n_dims = 2,
                                      .shape = {p->rows, p->columns},
                                      .data = values,
                                      .bytes = p->size * sizeof *values};
    }
    return REIN_OK;
}

static void free_moments(moments *m) {
    free(m->tensors);
    free(m->names);
}

rein_status rein_trainer_save(const rein_trainer *t, const char *directory, rein_error *err) {
    char steps[32];
    moments m = {0};
    snprintf(steps, sizeof steps, "%lld", (long long)t->steps);
    const rein_metadata metadata[] = {{"format", "pt"}, {"steps", steps}};
    char *path = rein_path_join(directory, "optimizer.safetensors");
    rein_status status = path ? list_moments(&m, t, err) : rein_fail(err, REIN_ENOMEM, "no memory for a path");
    if (!status)
        status = t->adapter ? rein_adapter_save(t->adapter, directory, err) : rein_model_save(t->model, NULL, directory, err);
    if (!status) status = rein_tensors_write(path, m.tensors, 2 * t->n_parameters, metadata, 2, err);
    free_moments(&m);
    free(path);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------------ load */

static rein_status find(const rein_tensor **tensor, const rein_tensors *file, const char *name, size_t bytes, rein_error *err) {
    *tensor = rein_tensors_find(file, name);
    if (!*tensor || (*tensor)->dtype != REIN_TENSOR_F32 || (*tensor)->bytes != bytes)
        return rein_fail(err, REIN_EINVAL, "%s: %s is missing or of another shape: it was written for another policy",
                         rein_tensors_name(file), name);
    return REIN_OK;
}

static rein_status load_moments(rein_trainer *t, const rein_tensors *file, rein_error *err) {
    const rein_tensor *tensor;
    moments m = {0};
    char *end;
    const char *text = rein_tensors_metadata(file, "steps");
    const long long steps = text ? strtoll(text, &end, 10) : -1;
    rein_status status =
        text && *text && !*end && steps >= 0
            ? list_moments(&m, t, err)
            : rein_fail(err, REIN_EINVAL, "%s: __metadata__.steps is missing or no number", rein_tensors_name(file));
    for (size_t i = 0; i < 2 * t->n_parameters && !status; i++) /* all are there before any is taken */
        status = find(&tensor, file, m.names[i], m.tensors[i].bytes, err);
    for (size_t i = 0; i < 2 * t->n_parameters && !status; i++) {
        status = find(&tensor, file, m.names[i], m.tensors[i].bytes, err);
        if (!status) memcpy((void *)(uintptr_t)m.tensors[i].data, tensor->data, tensor->bytes);
    }
    if (!status) t->steps = steps;
    free_moments(&m);
    return status;
}

static rein_status load_adapter(rein_trainer *t, const char *directory, rein_error *err) {
    rein_adapter *from;
    rein_status status = rein_adapter_open(&from, t->model, directory, err);
    if (status) return status;
    if (from->rank != t->adapter->rank || from->modules != t->adapter->modules || from->alpha != t->adapter->alpha ||
        from->rank_stabilized != t->adapter->rank_stabilized)
        status = rein_fail(err, REIN_EINVAL,
                           "%s: its adapter has rank %lld, alpha %g, and the one that trains rank %lld, alpha %g, or other "
                           "modules",
                           directory, (long long)from->rank, from->alpha, (long long)t->adapter->rank, t->adapter->alpha);
    else memcpy(t->adapter->values, from->values, from->floats * sizeof *from->values);
    rein_adapter_close(from);
    return status;
}

static rein_status load_model(rein_trainer *t, const char *directory, rein_error *err) {
    rein_tensors *file;
    const rein_tensor *tensor;
    rein_status status = rein_tensors_open(&file, directory, err);
    if (status) return status;
    for (size_t i = 0; i < t->n_parameters && !status; i++)
        status = find(&tensor, file, t->parameters[i].name, t->parameters[i].size * sizeof(float), err);
    for (size_t i = 0; i < t->n_parameters && !status; i++) {
        status = find(&tensor, file, t->parameters[i].name, t->parameters[i].size * sizeof(float), err);
        if (!status) memcpy(t->parameters[i].value, tensor->data, tensor->bytes);
    }
    rein_tensors_close(file);
    return status;
}

rein_status rein_trainer_load(rein_trainer *t, const char *directory, rein_error *err) {
    rein_tensors *file = NULL;
    char *path = rein_path_join(directory, "optimizer.safetensors");
    rein_status status = path ? rein_tensors_open(&file, path, err) : rein_fail(err, REIN_ENOMEM, "no memory for a path");
    if (!status) status = load_moments(t, file, err);
    if (!status) status = t->adapter ? load_adapter(t, directory, err) : load_model(t, directory, err);
    if (!status) status = rein_parameters_changed(t->model, t->adapter, &t->options.exec, err);
    rein_trainer_clear(t);
    rein_tensors_close(file);
    free(path);
    return status;
}
