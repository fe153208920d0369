/* trajectory.c - groups of trajectories in memory: built, measured, freed. */
#include "trajectory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* NULL, and the array is as it was, when there is no memory. */
static void *grown(void *array, size_t n, size_t size) { return n > SIZE_MAX / 2 / size ? NULL : realloc(array, n * size); }

/* -------------------------------------------------------------------------------------------------------------------- histories */

/* 1 if a column that is there, or must be, has room for n entries. */
static int grow(void **column, size_t n, size_t size, int needed) {
    void *moved = *column || needed ? grown(*column, n, size) : NULL;
    if (moved) *column = moved;
    return moved || !(*column || needed);
}

rein_status rein_history_reserve(rein_history *h, size_t n, rein_error *err) {
    void *columns[] = {h->ids, h->mask, h->log_probs, h->values, h->sampler_log_probs, h->advantages, h->text_ends};
    static const size_t sizes[] = {sizeof *h->ids, sizeof *h->mask, sizeof *h->log_probs, sizeof *h->values,
                                   sizeof(float),  sizeof(float),   sizeof *h->text_ends};
    enum { NEEDED = 3 };
    int done = 1;
    for (size_t i = 0; i < sizeof columns / sizeof *columns && done; i++) done = grow(&columns[i], n, sizes[i], i < NEEDED);
    h->ids = columns[0], h->mask = columns[1], h->log_probs = columns[2], h->values = columns[3];
    h->sampler_log_probs = columns[4], h->advantages = columns[5], h->text_ends = columns[6];
    return done ? REIN_OK : rein_no_memory(err);
}

rein_status rein_history_extend(rein_history *h, const int32_t *ids, const float *log_probs, size_t n, int trained,
                                rein_error *err) {
    if (n == 0) return REIN_OK;
    const rein_status status = rein_history_reserve(h, h->n + n, err);
    if (status) return status;
    for (size_t i = 0; i < n; i++) {
        h->ids[h->n + i] = ids[i];
        h->mask[h->n + i] = trained != 0;
        h->log_probs[h->n + i] = trained && log_probs ? log_probs[i] : NAN;
    }
    h->n += n;
    return REIN_OK;
}

static rein_status reserve(rein_history *h, size_t *capacity, size_t n, rein_error *err) {
    const rein_status status = rein_history_reserve(h, n, err);
    if (!status) *capacity = n;
    return status;
}

rein_status rein_history_begin(rein_history *h, size_t *capacity, const rein_ids *prompt, int sampler_log_probs, rein_error *err) {
    h->text_ends = malloc(sizeof *h->text_ends);
    h->sampler_log_probs = sampler_log_probs ? malloc(sizeof *h->sampler_log_probs) : NULL;
    if (!h->text_ends || (sampler_log_probs && !h->sampler_log_probs)) return rein_no_memory(err);
    rein_status status = reserve(h, capacity, prompt->count + 32, err);
    if (!status) status = rein_text_append(&h->text, "", 0, err); /* an empty completion has a text too */
    if (status) return status;
    h->n = prompt->count;
    memcpy(h->ids, prompt->data, h->n * sizeof *h->ids);
    memset(h->mask, 0, h->n);
    for (size_t i = 0; i < h->n; i++) {
        h->log_probs[i] = NAN;
        h->text_ends[i] = 0;
        if (sampler_log_probs) h->sampler_log_probs[i] = NAN;
    }
    return REIN_OK;
}

/* One more token, with what the text has grown to. */
static rein_status add_token(rein_history *h, size_t *capacity, int32_t id, int trained, rein_error *err) {
    const rein_status status = h->n == *capacity ? reserve(h, capacity, 2 * *capacity, err) : REIN_OK;
    if (status) return status;
    h->ids[h->n] = id;
    h->mask[h->n] = trained != 0;
    h->log_probs[h->n] = NAN;
    if (h->sampler_log_probs) h->sampler_log_probs[h->n] = NAN;
    h->text_ends[h->n++] = h->text.length;
    return REIN_OK;
}

rein_status rein_history_add_sampled(rein_history *h, size_t *capacity, const rein_sampled *s, rein_error *err) {
    rein_status status = s->text ? rein_text_append(&h->text, s->text, s->length, err) : REIN_OK;
    if (!status) status = add_token(h, capacity, s->id, 1, err);
    if (status) return status;
    h->log_probs[h->n - 1] = s->log_prob;
    if (h->sampler_log_probs) h->sampler_log_probs[h->n - 1] = s->sampler_log_prob;
    h->activation_key = s->activation_key;
    return REIN_OK;
}

rein_status rein_history_add_given(rein_history *h, size_t *capacity, const int32_t *ids, size_t n, const rein_tokenizer *tokenizer,
                                   rein_error *err) {
    rein_stream *stream;
    rein_status status = rein_stream_open(&stream, tokenizer, 1, err);
    for (size_t i = 0; i < n && !status; i++) {
        status = rein_stream_push(&h->text, stream, ids[i], err);
        if (!status && i + 1 == n) status = rein_stream_finish(&h->text, stream, err);
        if (!status) status = add_token(h, capacity, ids[i], 0, err);
    }
    rein_stream_close(stream);
    return status;
}

void rein_history_free(rein_history *h) {
    void *const columns[] = {h->ids, h->mask, h->log_probs, h->values, h->sampler_log_probs, h->advantages, h->text_ends};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) free(columns[i]);
    rein_text_free(&h->text);
    *h = (rein_history){0};
}

const float *rein_history_recorded(const rein_history *h) { return h->sampler_log_probs ? h->sampler_log_probs : h->log_probs; }

/* ----------------------------------------------------------------------------------------------------------------- trajectories */

rein_status rein_trajectory_append(rein_trajectory *trajectory, rein_history *history, rein_error *err) {
    rein_history *histories = grown(trajectory->histories, trajectory->n_histories + 1, sizeof *histories);
    if (!histories) return rein_no_memory(err);
    trajectory->histories = histories;
    trajectory->histories[trajectory->n_histories++] = *history;
    *history = (rein_history){0};
    return REIN_OK;
}

size_t rein_trajectory_length(const rein_trajectory *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->n_histories; i++)
        for (size_t k = 0; k < t->histories[i].n; k++) n += t->histories[i].mask[k] != 0;
    return n;
}

int rein_trajectory_is_right(const rein_trajectory *t) { return (t->n_scores ? t->scores[0].value : t->reward) >= 1; }

rein_status rein_named_numbers_set(rein_named_number **list, size_t *n, const char *name, double value, rein_error *err) {
    size_t i = 0;
    while (i < *n && strcmp((*list)[i].name, name) != 0) i++;
    if (i == *n) {
        rein_named_number *moved = grown(*list, *n + 1, sizeof *moved);
        if (moved) *list = moved;
        char *copy = moved ? malloc(strlen(name) + 1) : NULL;
        if (!copy) return rein_no_memory(err);
        strcpy(copy, name);
        (*list)[(*n)++].name = copy;
    }
    (*list)[i].value = value;
    return REIN_OK;
}

void rein_named_numbers_free(rein_named_number *list, size_t n) {
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)list[i].name);
    free(list);
}

/* A file may have something under "metrics" that is not an object. */
static rein_status check_metrics(const rein_trajectory *t, const char *name, rein_error *err) {
    json_t *object = NULL;
    const rein_status status =
        t->json ? rein_json_parse(&object, t->json, strlen(t->json), "json", REIN_JSON_NEEDS_OBJECT, err) : REIN_OK;
    const json_t *metrics = json_object_get(object, "metrics");
    const int fits = !metrics || json_is_object(metrics) || json_is_null(metrics);
    json_decref(object);
    if (status || fits) return status;
    return rein_fail_at(err, REIN_EINVAL, "metrics", -1, "of the trajectory is not an object: \"%.60s\" cannot be set", name);
}

rein_status rein_trajectory_set_metric(rein_trajectory *t, const char *name, double value, rein_error *err) {
    char field[80];
    snprintf(field, sizeof field, "metrics.%.60s", name);
    if (!isfinite(value)) return rein_fail_at(err, REIN_EINVAL, field, -1, "is %g: a finite number is needed", value);
    const rein_status status = check_metrics(t, name, err);
    return status ? status : rein_named_numbers_set(&t->metrics, &t->n_metrics, name, value, err);
}

/* ----------------------------------------------------------------------------------------------------------------------- groups */

void rein_trajectory_free(rein_trajectory *t) {
    for (size_t i = 0; i < t->n_histories; i++) rein_history_free(&t->histories[i]);
    free(t->histories);
    rein_named_numbers_free(t->scores, t->n_scores);
    rein_named_numbers_free(t->metrics, t->n_metrics);
    free(t->json);
    *t = (rein_trajectory){0};
}

void rein_group_free(rein_group *group) {
    for (size_t t = 0; t < group->n; t++) rein_trajectory_free(&group->trajectories[t]);
    free(group->trajectories);
    rein_example_free(&group->example);
    free(group->json);
    *group = (rein_group){0};
}

rein_status rein_groups_append(rein_groups *groups, rein_group *group, rein_error *err) {
    if (groups->n == groups->capacity) {
        const size_t capacity = groups->n + groups->n / 2 + 8;
        rein_group *moved = grown(groups->groups, capacity, sizeof *moved);
        if (!moved) return rein_no_memory(err);
        groups->groups = moved;
        groups->capacity = capacity;
    }
    groups->groups[groups->n++] = *group;
    *group = (rein_group){0};
    return REIN_OK;
}

rein_status rein_groups_append_all(rein_groups *groups, rein_group *list, size_t n, rein_error *err) {
    const size_t before = groups->n;
    rein_status status = REIN_OK;
    for (size_t i = 0; i < n && !status; i++) status = rein_groups_append(groups, &list[i], err);
    while (status && groups->n > before) rein_group_free(&groups->groups[--groups->n]);
    return status;
}

void rein_groups_free(rein_groups *groups) {
    for (size_t g = 0; g < groups->n; g++) rein_group_free(&groups->groups[g]);
    free(groups->groups);
    *groups = (rein_groups){0};
}

size_t rein_groups_tokens(const rein_groups *groups) {
    size_t n = 0;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++)
            for (size_t i = 0; i < groups->groups[g].trajectories[t].n_histories; i++)
                n += groups->groups[g].trajectories[t].histories[i].n;
    return n;
}
