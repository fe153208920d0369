/* training_art.c - a training job as ART's client asks for it: a list of events, with the metrics that the client knows. */
#include <stdlib.h>
#include <string.h>

#include "train_jobs.h"

static void put_art_event(rein_text *json, const train_job *j, int number, const char *type, const char *data) {
    rein_text_put(json, json->data[json->length - 1] == '[' ? "{\"id\": " : ", {\"id\": ");
    rein_text_format(json, "\"%s-%d\", \"type\": \"%s\", \"data\": %s}", j->id, number, type, data);
}

/* The metrics that ART's client knows, by the names that it expects. */
static void put_art_metrics(rein_text *json, const train_job *j) {
    static const char *const names[] = {"loss",          "grad_norm", "entropy",       "kl_policy_ref",
                                        "learning_rate", "reward",    "tokens/trained"};
    rein_json *metrics = NULL;
    rein_text_put(json, "{");
    if (rein_json_parse(&metrics, j->metrics.data, j->metrics.length, NULL, REIN_JSON_NEEDS_OBJECT, NULL)) json->failed = 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const rein_json *value = rein_json_get(metrics, names[i]);
        if (value)
            rein_json_put_field(json, strcmp(names[i], "tokens/trained") ? names[i] : "num_trainable_tokens",
                                rein_json_number(value));
    }
    rein_text_put(json, "}");
    rein_json_free(metrics);
}

/* A job has at most three events; the number in an event's id is its place among them. */
static void put_art_events(rein_text *json, const train_job *j, int after) {
    rein_text data = {0};
    const bool started = j->status != TRAIN_QUEUED;
    if (started && after < 1) put_art_event(json, j, 1, "training_started", "{\"num_sequences\": 1}");
    if (j->status == TRAIN_DONE && !j->nothing_to_train && j->metrics.length && after < 2) {
        put_art_metrics(&data, j);
        if (!data.failed) put_art_event(json, j, 2, "gradient_step", data.data);
        json->failed |= data.failed;
        rein_text_free(&data);
    }
    rein_text_put(&data, "{\"error_message\": ");
    rein_json_put_string(&data, *j->error ? j->error : "the job was cancelled");
    rein_text_put(&data, "}");
    if (train_has_ended(j) && after < 3 && !data.failed)
        put_art_event(json, j, 3, j->status == TRAIN_DONE ? "training_ended" : "training_failed",
                      j->status == TRAIN_DONE ? "{}" : data.data);
    json->failed |= data.failed;
    rein_text_free(&data);
}

bool training_put_art(rein_text *json, server *s, const char *id, const char *after) {
    training *t = s->training;
    const char *number = after ? strrchr(after, '-') : NULL;
    if (!t) return false;
    pthread_mutex_lock(&t->lock);
    const train_job *j = training_find(t, id);
    rein_text_put(json, "{\"object\": \"list\", \"data\": [");
    if (j && !json->failed) put_art_events(json, j, number ? atoi(number + 1) : 0);
    rein_text_put(json, "], \"has_more\": false}");
    pthread_mutex_unlock(&t->lock);
    return j != NULL;
}
