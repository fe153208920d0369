/* page_routes.c - the live page at /, and the routes that only it needs: what is served, and the data of the run.
 *
 * The page itself says nothing about what is served, so it needs no key; it fetches everything else with one. */
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "parts.h"
#include "rein/report.h"

enum { MOST_READINGS = 8 };

static int get_page(exchange *e, const rein_json *body, rein_error *err) {
    (void)body;
    e->type = "text/html; charset=utf-8";
    const rein_status status = rein_report_live_page(&e->out, &e->policy, e->s->options.api_key != NULL, err);
    return status ? HTTP_FAILED : HTTP_OK;
}

/* ------------------------------------------------------------------------------------------------------------------- the server */

static void put_flag(rein_text *json, const char *name, bool is) {
    rein_json_put_name(json, name);
    rein_text_put(json, is ? "true" : "false");
}

static void put_string(rein_text *json, const char *name, const char *value) {
    rein_json_put_name(json, name);
    if (value) rein_json_put_string(json, value);
    else rein_text_put(json, "null");
}

static void put_count(rein_text *json, const char *name, unsigned long long n) {
    rein_json_put_name(json, name);
    rein_text_format(json, "%llu", n);
}

static int get_status(exchange *e, const rein_json *body, rein_error *err) {
    server *s = e->s;
    metrics *m = &s->metrics;
    rein_text *out = &e->out;
    size_t length = 0;
    (void)body, (void)err;
    rein_text_put(out, "{");
    put_string(out, "version", rein_version());
    put_string(out, "name", s->options.name);
    put_string(out, "model", s->options.model_name);
    put_flag(out, "run", s->options.run != NULL);
    put_flag(out, "trains", s->training != NULL);
    put_string(out, "no_training", s->training ? NULL : s->options.no_session);
    put_flag(out, "chat", rein_tokenizer_chat_template(&length, s->options.tokenizer) != NULL);
    rein_json_put_name(out, "step");
    rein_text_format(out, "%" PRId64, policies_newest(s->policies));
    rein_json_put_field(out, "temperature", s->options.temperature);
    put_count(out, "max_model_len", (unsigned long long)s->info.max_positions);
    put_count(out, "running", atomic_load(&m->running));
    put_count(out, "waiting", atomic_load(&m->waiting));
    put_count(out, "requests", atomic_load(&m->requests));
    put_count(out, "prompt_tokens", atomic_load(&m->prompt_tokens));
    put_count(out, "completion_tokens", atomic_load(&m->completion_tokens));
    put_count(out, "cached_tokens", atomic_load(&m->cached_tokens));
    put_count(out, "training_jobs", training_unfinished(s));
    rein_text_put(out, "}");
    return HTTP_OK;
}

/* ---------------------------------------------------------------------------------------------------------------------- the run */

typedef struct reading {
    job *answer;
    int64_t after;
} reading;

static void *read_run(void *context) {
    reading *r = context;
    job *j = r->answer;
    server *s = j->s;
    rein_text json = {0};
    rein_error err = {0};
    if (rein_report_data(&json, s->options.run, r->after, &err)) job_fail(j, HTTP_FAILED, &err);
    else job_send(j, &json, true);
    rein_text_free(&json);
    job_release(j);
    free(r);
    atomic_fetch_sub(&s->readings, 1); /* the server may be freed after this */
    return NULL;
}

/* The history of a long run takes seconds to read, so a thread of its own does it. 0: there is none. */
static bool start_reading(job *j, int64_t after) {
    reading *r = malloc(sizeof *r);
    pthread_t thread;
    if (!r) return false;
    *r = (reading){j, after};
    job_hold(j);
    if (!pthread_create(&thread, NULL, read_run, r)) return pthread_detach(thread), true;
    job_release(j);
    free(r);
    return false;
}

static int get_run(exchange *e, const rein_json *body, rein_error *err) {
    server *s = e->s;
    int64_t after;
    (void)body;
    if (http_step_parameter(&after, e, "after", err)) return HTTP_BAD_REQUEST;
    if (!s->options.run) {
        rein_fail(err, REIN_END, "this server serves a model, not a run: start it as rein serve RUN");
        return HTTP_NOT_FOUND;
    }
    if (atomic_fetch_add(&s->readings, 1) >= MOST_READINGS) {
        atomic_fetch_sub(&s->readings, 1);
        rein_fail(err, REIN_ESYSTEM, "%d requests read the run: try again later", MOST_READINGS);
        return HTTP_BUSY;
    }
    e->job = job_new(s, JOB_ANSWER);
    if (e->job && start_reading(e->job, after)) return HTTP_OK;
    atomic_fetch_sub(&s->readings, 1);
    if (e->job) job_release(e->job);
    e->job = NULL;
    rein_fail(err, REIN_ENOMEM, "no memory for a request");
    return HTTP_FAILED;
}

void page_close(server *s) {
    const struct timespec moment = {0, 5000000};
    while (atomic_load(&s->readings)) nanosleep(&moment, NULL);
}

const route PAGE_ROUTES[] = {
    {"GET", "/", true, get_page},
    {"GET", "/rein/v1/status", false, get_status},
    {"GET", "/rein/v1/run", false, get_run},
    {NULL, NULL, false, NULL},
};
