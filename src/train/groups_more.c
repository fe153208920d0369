/* groups_more.c - what a trajectory is written with besides its tokens: keys of its file that have no field, metrics, what was asked and
 * written, advantages. */
#include <math.h>
#include <string.h>

#include "train/groups.h"

/* ------------------------------------------------------------------------------------------------------------------------- keys */

rein_status rein_kept_parse(json_t **kept, const char *json, rein_error *err) {
    *kept = NULL;
    return json ? rein_json_parse(kept, json, strlen(json), "json", REIN_JSON_NEEDS_OBJECT, err) : REIN_OK;
}

static int among(const char *key, const char *const *keys) {
    while (*keys && strcmp(key, *keys) != 0) keys++;
    return *keys != NULL;
}

void rein_kept_put(rein_text *text, const json_t *kept, const char *const *except) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)kept, key, value) { /* the macro only reads */
        if (among(key, except)) continue;
        rein_json_put_name(text, key);
        rein_json_put_value(text, value);
    }
}

/* ---------------------------------------------------------------------------------------------------------------------- metrics */

/* A judge that did not apply gave NaN: null. */
static int set_numbers(json_t *object, const rein_named_number *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (json_object_set_new(object, list[i].name, isnan(list[i].value) ? json_null() : json_real(list[i].value))) return 0;
    return 1;
}

/* {judge: score, "accuracy": 0 or 1, metric: value, …} behind those of the file; a later one of the same name replaces an earlier one. The
 * caller's reference; NULL: no memory. */
static json_t *metrics_of(const rein_trajectory *t, const json_t *of_file) {
    json_t *metrics = json_is_object(of_file) ? rein_json_copy(of_file) : json_object();
    const rein_named_number accuracy = {"accuracy", rein_trajectory_is_right(t)};
    if (set_numbers(metrics, t->scores, t->n_scores) && set_numbers(metrics, &accuracy, t->n_scores ? 1 : 0) &&
        set_numbers(metrics, t->metrics, t->n_metrics))
        return metrics;
    json_decref(metrics);
    return NULL;
}

/* --------------------------------------------------------------------------------------------------------------------- metadata */

static void put_messages(rein_text *text, const rein_example *e) {
    rein_text_put(text, "[");
    for (size_t i = 0; i < e->n_messages; i++) {
        rein_text_put(text, i ? ", {" : "{");
        rein_json_put_name(text, "role");
        rein_json_put_string(text, e->messages[i].role);
        rein_json_put_name(text, "content");
        rein_json_put_bytes(text, e->messages[i].content, e->messages[i].length);
        rein_text_put(text, "}");
    }
    rein_text_put(text, "]");
}

/* ["1", "+", …]: joined they are the completion, and in an episode also what stands between its turns. A token without a text, as the end token,
 * is "". A model may write a NUL byte, which JSON could hold and its readers refuse. */
static void put_pieces(rein_text *text, const rein_history *h) {
    size_t at = 0, n = 0;
    rein_text_put(text, "[");
    for (size_t i = rein_prompt_length(h); i < h->n && h->text_ends; i++) {
        const char *piece = h->text.data + at;
        const size_t length = h->text_ends[i] - at;
        if (n++) rein_text_put(text, ", ");
        if (memchr(piece, 0, length)) rein_json_put_string(text, "\uFFFD");
        else rein_json_put_bytes(text, piece, length);
        at = h->text_ends[i];
    }
    rein_text_put(text, "]");
}

static void put_metadata(rein_text *text, const rein_example *e, const rein_history *h) {
    rein_json_put_name(text, "metadata");
    rein_text_put(text, "{");
    rein_json_put_name(text, e->prompt ? "prompt" : "messages");
    if (e->prompt) rein_json_put_string(text, e->prompt);
    else put_messages(text, e);
    rein_json_put_name(text, "answer");
    if (e->answer) rein_json_put_string(text, e->answer);
    else rein_text_put(text, "null");
    rein_json_put_name(text, "pieces");
    put_pieces(text, h);
    rein_text_put(text, "}");
}

static void put_advantages(rein_text *text, const rein_history *h) {
    size_t n = 0;
    rein_json_put_name(text, "advantages");
    rein_text_put(text, "[");
    for (size_t i = rein_prompt_length(h); i < h->n; i++) {
        if (n++) rein_text_put(text, ", ");
        rein_json_put_shortest(text, (double)h->advantages[i]);
    }
    rein_text_put(text, "]");
}

/* ------------------------------------------------------------------------------------------------------------------------- more */

/* A copy of `kept` with what is known better now. The caller's reference; NULL: no memory. */
static json_t *update(const rein_trajectory *t, const json_t *kept) {
    json_t *updated = kept ? rein_json_copy(kept) : json_object();
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
    if (!updated) return rein_no_memory(err);
    rein_kept_put(text, updated, except);
    if (asked && !json_object_get(updated, "metadata")) put_metadata(text, example, t->histories);
    if (t->histories[0].advantages) put_advantages(text, t->histories);
    json_decref(updated);
    return rein_text_status(text, err);
}
