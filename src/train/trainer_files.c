/* trainer_files.c - a trainer in files: the policy in the formats of the ecosystem, the moments of the optimizer in optimizer.safetensors. */
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
        const float *values = (i % 2 ? t->second : t->first) + (p->value - t->values);
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

/* Everything is checked before anything is copied: after a failure the trainer is as it was. */
typedef struct loading {
    rein_tensors *optimizer, *model;
    rein_adapter *adapter;
    moments m;
    int64_t steps;
    size_t part[2]; /* of the moments, that is taken */
} loading;

static rein_status find_part(size_t part[2], const rein_trainer *t, rein_error *err) {
    const size_t n = rein_ranks_size(t->ranks), rank = rein_ranks_rank(t->ranks);
    size_t *begins = malloc((n + 1) * sizeof *begins);
    if (!begins) return rein_fail(err, REIN_ENOMEM, "no memory for the parts of %zu ranks", n);
    rein_adamw_parts(begins, t->floats, n);
    part[0] = begins[rank], part[1] = begins[rank + 1];
    free(begins);
    return REIN_OK;
}

static rein_status open_moments(loading *l, const rein_trainer *t, const char *directory, rein_error *err) {
    const rein_tensor *tensor;
    char *path = rein_path_join(directory, "optimizer.safetensors"), *end = NULL;
    rein_status status = path ? rein_tensors_open(&l->optimizer, path, err) : rein_fail(err, REIN_ENOMEM, "no memory for a path");
    free(path);
    if (status) return status;
    const char *text = rein_tensors_metadata(l->optimizer, "steps");
    l->steps = text ? strtoll(text, &end, 10) : -1;
    if (!text || !*text || *end || l->steps < 0)
        return rein_fail(err, REIN_EINVAL, "%s: __metadata__.steps is missing or no number", rein_tensors_name(l->optimizer));
    status = list_moments(&l->m, t, err);
    for (size_t i = 0; i < 2 * t->n_parameters && !status; i++)
        status = find(&tensor, l->optimizer, l->m.names[i], l->m.tensors[i].bytes, err);
    return status;
}

static rein_status open_adapter(loading *l, const rein_trainer *t, const char *directory, rein_error *err) {
    const rein_status status = rein_adapter_open(&l->adapter, t->model, directory, err);
    if (status) return status;
    const rein_adapter *from = l->adapter, *to = t->adapter;
    if (from->rank == to->rank && from->modules == to->modules && from->alpha == to->alpha &&
        from->rank_stabilized == to->rank_stabilized) {
        if (!from->score == !to->score) return REIN_OK;
        return rein_fail(err, REIN_EINVAL, "%s: its adapter has %s score head, and the one that trains has %s", directory,
                         from->score ? "a" : "no", to->score ? "one" : "none");
    }
    return rein_fail(err, REIN_EINVAL,
                     "%s: its adapter has rank %lld, alpha %g, and the one that trains rank %lld, alpha %g, or other "
                     "modules",
                     directory, (long long)from->rank, from->alpha, (long long)to->rank, to->alpha);
}

static rein_status open_model(loading *l, const rein_trainer *t, const char *directory, rein_error *err) {
    const rein_tensor *tensor;
    rein_status status = rein_tensors_open(&l->model, directory, err);
    for (size_t i = 0; i < t->n_parameters && !status; i++)
        status = find(&tensor, l->model, t->parameters[i].name, t->parameters[i].size * sizeof(float), err);
    return status;
}

/* With several ranks each takes the part that its optimizer has. */
static void take_moment(const rein_trainer *t, const loading *l, size_t i) {
    const rein_parameter *p = &t->parameters[i / 2];
    const size_t begin = (size_t)(p->value - t->values), end = begin + p->size;
    const size_t from = begin > l->part[0] ? begin : l->part[0], to = end < l->part[1] ? end : l->part[1];
    const float *moments = rein_tensors_find(l->optimizer, l->m.names[i])->data;
    if (from < to) memcpy((i % 2 ? t->second : t->first) + from, moments + (from - begin), (to - from) * sizeof *moments);
}

static void take(rein_trainer *t, const loading *l) {
    for (size_t i = 0; i < 2 * t->n_parameters; i++) take_moment(t, l, i);
    if (l->adapter) memcpy(t->adapter->values, l->adapter->values, l->adapter->floats * sizeof *l->adapter->values);
    for (size_t i = 0; l->model && i < t->n_parameters; i++)
        memcpy(t->parameters[i].value, rein_tensors_find(l->model, t->parameters[i].name)->data,
               t->parameters[i].size * sizeof(float));
    t->steps = l->steps;
    t->moments = 0;
}

rein_status rein_trainer_load(rein_trainer *t, const char *directory, rein_error *err) {
    loading l = {0};
    rein_status status = find_part(l.part, t, err);
    if (!status) status = open_moments(&l, t, directory, err);
    if (!status) status = t->adapter ? open_adapter(&l, t, directory, err) : open_model(&l, t, directory, err);
    if (!status) {
        take(t, &l);
        status = rein_parameters_changed(t->model, t->adapter, err);
    }
    rein_trainer_clear(t);
    free_moments(&l.m);
    rein_adapter_close(l.adapter);
    rein_tensors_close(l.model);
    rein_tensors_close(l.optimizer);
    return status;
}
