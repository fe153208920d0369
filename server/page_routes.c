/* page_routes.c - the live page at /, and the routes that only it needs: what is served, and the data of the run.
 *
 * The page itself says nothing about what is served, so it needs no key; it fetches everything else with one. */
#include <inttypes.h>

#include "parts.h"
#include "rein/report.h"

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

static int get_run(exchange *e, const rein_json *body, rein_error *err) {
    int64_t after;
    (void)body;
    if (http_step_parameter(&after, e, "after", err)) return HTTP_BAD_REQUEST;
    if (!e->s->options.run) {
        rein_fail(err, REIN_END, "this server serves a model, not a run: start it as rein serve RUN");
        return HTTP_NOT_FOUND;
    }
    const rein_status status = rein_report_data(&e->out, e->s->options.run, after, err);
    return status ? HTTP_FAILED : HTTP_OK;
}

const route PAGE_ROUTES[] = {
    {"GET", "/", true, get_page},
    {"GET", "/rein/v1/status", false, get_status},
    {"GET", "/rein/v1/run", false, get_run},
    {NULL, NULL, false, NULL},
};
