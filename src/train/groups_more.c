/* groups_more.c - what a trajectory is written with besides its tokens: keys of its file that have no field, metrics, what was asked and
 * written, advantages. */
#include <string.h>

#include "model/tokenizer_parts.h"
#include "train/groups.h"

static rein_status put(rein_text *text, const char *what, rein_error *err) {
    return rein_text_append(text, what, strlen(what), err);
}

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "out of memory"); }

/* ------------------------------------------------------------------------------------------------------------------------- keys */

rein_status rein_kept_parse(json_t **kept, const char *json, rein_error *err) {
    *kept = NULL;
    return json ? rein_json_file_parse(kept, "json", json, strlen(json), err) : REIN_OK;
}

static int among(const char *key, const char *const *keys) {
    while (*keys && strcmp(key, *keys) != 0) keys++;
    return *keys != NULL;
}

rein_status rein_kept_put(rein_text *text, const json_t *kept, const char *const *except, rein_error *err) {
    const char *key;
    json_t *value;
    rein_status status = REIN_OK;
    json_object_foreach((json_t *)(uintptr_t)kept, key, value) { /* the macro only reads */
        if (status || among(key, except)) continue;
        status = rein_json_put_key(text, key, err);
        if (!status) status = rein_json_put(text, value, err);
    }
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------------- metrics */

static int set_numbers(json_t *object, const rein_named_number *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (json_object_set_new(object, list[i].name, json_real(list[i].value))) return 0;
    return 1;
}

/* {judge: score, "accuracy": 0 or 1, metric: value, …} behind those of the file; a later one of the same name replaces an earlier one. The
 * caller's reference; NULL: no memory. */
static json_t *metrics_of(const rein_trajectory *t, const json_t *of_file) {
    json_t *metrics = json_is_object(of_file) ? json_copy((json_t *)(uintptr_t)of_file) : json_object();
    const rein_named_number accuracy = {"accuracy", rein_trajectory_is_right(t)};
    if (set_numbers(metrics, t->scores, t->n_scores) && set_numbers(metrics, &accuracy, t->n_scores ? 1 : 0) &&
        set_numbers(metrics, t->metrics, t->n_metrics))
        return metrics;
    json_decref(metrics);
    return NULL;
}

/* --------------------------------------------------------------------------------------------------------------------- metadata */

static rein_status put_string(rein_text *text, const char *string, rein_error *err) {
    return rein_json_put_string(text, string, strlen(string), err);
}

static rein_status put_messages(rein_text *text, const rein_example *e, rein_error *err) {
    rein_status status = put(text, "[", err);
    for (size_t i = 0; i < e->n_messages && !status; i++) {
        status = put(text, i ? ", {\"role\": " : "{\"role\": ", err);
        if (!status) status = put_string(text, e->messages[i].role, err);
        if (!status) status = put(text, ", \"content\": ", err);
        if (!status) status = rein_json_put_string(text, e->messages[i].content, e->messages[i].length, err);
        if (!status) status = put(text, "}", err);
    }
    return status ? status : put(text, "]", err);
}

/* A model may write a NUL byte, which JSON could hold and its readers refuse. */
static rein_status put_piece(rein_text *text, const char *piece, size_t length, rein_error *err) {
    return memchr(piece, 0, length) ? put_string(text, "\uFFFD", err) : rein_json_put_string(text, piece, length, err);
}

/* ["1", "+", …]: joined they are the completion. A token without a text, as the end token, is "". */
static rein_status put_pieces(rein_text *text, const rein_history *h, rein_error *err) {
    size_t at = 0, n = 0;
    rein_status status = put(text, "[", err);
    for (size_t i = 0; i < h->n && h->text_ends && !status; i++) {
        if (!h->mask[i]) continue;
        if (n++) status = put(text, ", ", err);
        if (!status) status = put_piece(text, h->text.data + at, h->text_ends[i] - at, err);
        at = h->text_ends[i];
    }
    return status ? status : put(text, "]", err);
}

static rein_status put_metadata(rein_text *text, const rein_example *e, const rein_history *h, rein_error *err) {
    rein_status status = rein_json_put_key(text, "metadata", err);
    if (!status) status = put(text, e->prompt ? "{\"prompt\": " : "{\"messages\": ", err);
    if (!status) status = e->prompt ? put_string(text, e->prompt, err) : put_messages(text, e, err);
    if (!status) status = rein_json_put_key(text, "answer", err);
    if (!status) status = e->answer ? put_string(text, e->answer, err) : put(text, "null", err);
    if (!status) status = rein_json_put_key(text, "pieces", err);
    if (!status) status = put_pieces(text, h, err);
    return status ? status : put(text, "}", err);
}

static rein_status put_advantages(rein_text *text, const rein_history *h, rein_error *err) {
    size_t n = 0;
    rein_status status = rein_json_put_key(text, "advantages", err);
    if (!status) status = put(text, "[", err);
    for (size_t i = 0; i < h->n && !status; i++) {
        if (!h->mask[i]) continue;
        if (n++) status = put(text, ", ", err);
        if (!status) status = rein_json_put_real(text, (double)h->advantages[i], err);
    }
    return status ? status : put(text, "]", err);
}

/* ------------------------------------------------------------------------------------------------------------------------- more */

/* Puts into a copy of `kept` what is known better now. The caller's reference; NULL: no memory. */
static json_t *update(const rein_trajectory *t, const json_t *kept) {
    json_t *updated = kept ? json_copy((json_t *)(uintptr_t)kept) : json_object();
    const int measured = t->n_scores || t->n_metrics;
    if (updated && t->histories[0].advantages) json_object_del(updated, "advantages");
    if (updated && measured && json_object_set_new(updated, "metrics", metrics_of(t, json_object_get(updated, "metrics")))) {
        json_decref(updated);
        return NULL;
    }
    return updated;
}

rein_status rein_more_put(rein_text *text, const rein_trajectory *t, const json_t *kept, const char *const *except,
                          const rein_example *example, rein_error *err) {
    const int asked = example->prompt || example->n_messages;
    json_t *updated = update(t, kept);
    if (!updated) return no_memory(err);
    rein_status status = rein_kept_put(text, updated, except, err);
    if (!status && asked && !json_object_get(updated, "metadata")) status = put_metadata(text, example, t->histories, err);
    if (!status && t->histories[0].advantages) status = put_advantages(text, t->histories, err);
    json_decref(updated);
    return status;
}
