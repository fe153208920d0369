/* train_routes.c - routes that train: jobs, their events, checkpoints, the history. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"

enum { LONGEST_LINE = 16 << 20, MOST_LISTED = 100 };

static int no_job(const exchange *e, rein_error *err) {
    char shown[REIN_TEXT_SHOWN];
    rein_fail(err, REIN_END, "there is no training job %s on this server", rein_json_quote(shown, e->argument));
    return HTTP_NOT_FOUND;
}

static int post_train(exchange *e, const rein_json *body, rein_error *err) {
    static const char *const others[] = {"trajectory_groups", "model", NULL};
    train_request request;
    char id[48];
    int64_t step = 0;
    const rein_status status = train_parse(&request, e->s, body, body, others, err);
    if (status) return routes_status(status);
    const int refused = training_add(id, &step, e->s, &request, err);
    if (refused) return refused;
    rein_text_format(&e->out, "{\"id\": \"%s\", \"step\": %lld}", id, (long long)step);
    return HTTP_ACCEPTED;
}

static int get_jobs(exchange *e, const rein_json *body, rein_error *err) {
    (void)body, (void)err;
    rein_text_put(&e->out, "{\"object\": \"list\", \"data\": [");
    training_put_all(&e->out, e->s, MOST_LISTED);
    rein_text_put(&e->out, "]}");
    return HTTP_OK;
}

static int get_job(exchange *e, const rein_json *body, rein_error *err) {
    (void)body;
    return training_put(&e->out, e->s, e->argument) ? HTTP_OK : no_job(e, err);
}

static int post_cancel(exchange *e, const rein_json *body, rein_error *err) {
    (void)body;
    training_cancel(e->s, e->argument); /* a job that has ended stays as it is, and its status says so */
    return get_job(e, body, err);
}

/* A stream of the events of a job; without an argument, of all. */
static int get_events(exchange *e, const rein_json *body, rein_error *err) {
    (void)body;
    job *j = job_new(e->s, JOB_EVENTS);
    if (!j) return rein_fail(err, REIN_ENOMEM, "no memory for a request"), HTTP_FAILED;
    j->stream = true;
    snprintf(j->listens, sizeof j->listens, "%.47s", e->argument);
    if (!e->s->training || !training_listen(e->s, j)) {
        job_release(j);
        return *e->argument ? no_job(e, err) : training_refuse(e->s, err);
    }
    e->job = j;
    return HTTP_OK;
}

/* ------------------------------------------------------------------------------------------------------------------ the history */

typedef void put_line(rein_text *json, const rein_json *line, int64_t step, void *context);

/* Calls put for every line of the run's history whose step is greater than `after`. */
static void read_history(rein_text *json, const char *run, int64_t after, put_line *put, void *context) {
    rein_text path = {0};
    rein_lines *lines = NULL;
    const char *text;
    size_t length;
    rein_text_format(&path, "%s/history.jsonl", run);
    if (path.failed || rein_lines_open(&lines, path.data, 0, LONGEST_LINE, NULL)) lines = NULL;
    while (lines && !rein_lines_next(&text, &length, lines, NULL)) {
        rein_json *line = NULL;
        if (text[length] != '\n' || rein_json_parse(&line, text, length, NULL, REIN_JSON_NEEDS_OBJECT | REIN_JSON_ONE_LINE, NULL))
            continue;
        const int64_t step = (int64_t)rein_json_number(rein_json_get(line, "step"));
        if (step > after) put(json, line, step, context);
        rein_json_free(line);
    }
    rein_lines_close(lines);
    rein_text_free(&path);
}

static void put_separator(rein_text *json) {
    if (json->length && json->data[json->length - 1] != '[') rein_text_put(json, ", ");
}

static void put_whole(rein_text *json, const rein_json *line, int64_t step, void *context) {
    (void)step, (void)context;
    put_separator(json);
    rein_json_put_value(json, line);
}

static int no_run(const server *s, rein_error *err) {
    if (s->options.run) return 0;
    rein_fail(err, REIN_EINVAL, "this server serves a model, not a run: start it as rein serve RUN");
    return HTTP_BAD_REQUEST;
}

static int get_history(exchange *e, const rein_json *body, rein_error *err) {
    int64_t step;
    (void)body;
    if (no_run(e->s, err) || http_step_parameter(&step, e, "after", err)) return HTTP_BAD_REQUEST;
    rein_text_put(&e->out, "{\"object\": \"list\", \"data\": [");
    read_history(&e->out, e->s->options.run, step, put_whole, NULL);
    rein_text_put(&e->out, "]}");
    return HTTP_OK;
}

/* ------------------------------------------------------------------------------------------------------------------ checkpoints */

/* The numbers of a line of the history, which is that of the step. */
static void put_numbers(rein_text *json, const rein_json *line, int64_t step, void *context) {
    const char *name;
    const rein_json *value;
    if (step != *(const int64_t *)context) return;
    for (void *at = NULL; (at = rein_json_next(&name, &value, line, at));)
        if (rein_json_kind_of(value) == REIN_JSON_NUMBER && strcmp(name, "step") != 0)
            rein_json_put_field(json, name, rein_json_number(value));
}

void checkpoints_put(rein_text *json, const server *s, int64_t step) {
    rein_text_format(json, "{\"id\": \"%lld\", \"step\": %lld, \"metrics\": {", (long long)step, (long long)step);
    read_history(json, s->options.run, step - 1, put_numbers, &step);
    rein_text_put(json, "}}");
}

static int get_checkpoints(exchange *e, const rein_json *body, rein_error *err) {
    rein_run *run;
    const int64_t *steps;
    (void)body;
    if (no_run(e->s, err)) return HTTP_BAD_REQUEST;
    if (rein_run_open(&run, e->s->options.run, REIN_RUN_READ, err)) return HTTP_FAILED;
    const size_t n = rein_run_checkpoints(&steps, run);
    rein_text_put(&e->out, "{\"object\": \"list\", \"data\": [");
    for (size_t i = 0; i < n; i++) {
        put_separator(&e->out);
        checkpoints_put(&e->out, e->s, steps[i]);
    }
    rein_text_put(&e->out, "]}");
    rein_run_close(run);
    return HTTP_OK;
}

int checkpoints_delete(exchange *e, const rein_json *body, bool art, rein_error *err) {
    static const char *const keys[] = {"steps", NULL};
    rein_fields in = {body, NULL, "", REIN_OK, err};
    rein_fields_only(&in, keys);
    const rein_json *list = rein_fields_array(&in, "steps");
    const size_t n = rein_json_size(list);
    if (!in.status && !list) rein_fields_wrong(&in, "steps", NULL, "a list of steps is needed");
    int64_t *steps = calloc(n + 1, sizeof *steps);
    for (size_t i = 0; steps && i < n && !in.status; i++) {
        const double step = rein_json_number(rein_json_at(list, i));
        if (rein_json_kind_of(rein_json_at(list, i)) != REIN_JSON_NUMBER || step != floor(step) || !(step >= 0 && step <= 1e15))
            rein_fields_fail(&in, REIN_EINVAL, "steps", (int64_t)i, "must be a step, 0 or more");
        else steps[i] = (int64_t)step;
    }
    job *j = in.status || !steps ? NULL : job_new(e->s, JOB_ANSWER);
    if (!j) {
        free(steps);
        if (!in.status) rein_fail(err, REIN_ENOMEM, "no memory for a request");
        return in.status ? routes_status(in.status) : HTTP_FAILED;
    }
    const int refused = training_delete(e->s, j, steps, n, art, err);
    if (refused) job_release(j);
    else e->job = j;
    return refused ? refused : HTTP_OK;
}

static int delete_checkpoints(exchange *e, const rein_json *body, rein_error *err) {
    return checkpoints_delete(e, body, false, err);
}

const route TRAIN_ROUTES[] = {
    {"POST", "/v1/train", false, post_train},
    {"GET", "/v1/train", false, get_jobs},
    {"GET", "/v1/train/*", false, get_job},
    {"GET", "/v1/train/*/events", false, get_events},
    {"POST", "/v1/train/*/cancel", false, post_cancel},
    {"GET", "/v1/checkpoints", false, get_checkpoints},
    {"DELETE", "/v1/checkpoints", false, delete_checkpoints},
    {"GET", "/v1/history", false, get_history},
    {"GET", "/v1/events", false, get_events},
    {NULL, NULL, false, NULL},
};
