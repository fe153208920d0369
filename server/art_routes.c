/* art_routes.c - the routes that ART's ServerlessBackend calls (openpipe-art 0.5.18). One run serves one model: the first name registered is
 * its name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"

static const char MODEL_ID[] = "rein"; /* there is one */

static int no_model(const exchange *e, rein_error *err) {
    char shown[REIN_TEXT_SHOWN];
    if (!strcmp(e->argument, MODEL_ID)) return 0;
    rein_fail_at(err, REIN_END, "model_id", -1, "is %s: there is no such model; register it first",
                 rein_json_quote(shown, e->argument));
    return HTTP_NOT_FOUND;
}

/* A part of a name must not end it. */
static const char *name_part(rein_fields *in, const char *key, const char *fallback) {
    const char *part = rein_fields_string_or(in, key, fallback);
    if (!in->status && (!*part || strpbrk(part, "/:")))
        rein_fields_fail(in, REIN_EINVAL, key, -1, "must be a text of one character or more, without / and :");
    return part;
}

static int post_model(exchange *e, const rein_json *body, rein_error *err) {
    rein_fields in = {body, NULL, "", REIN_OK, err};
    const char *entity = name_part(&in, "entity", "rein"), *project = name_part(&in, "project", "rein"),
               *name = name_part(&in, "name", e->s->options.name), *base = rein_fields_string_or(&in, "base_model", "");
    rein_text art = {0};
    if (in.status) return routes_status(in.status);
    if (!e->s->training) return training_refuse(e->s, err);
    rein_text_format(&art, "%s/%s/%s", entity, project, name);
    const int refused = rein_text_status(&art, err) ? HTTP_FAILED : policies_register(e->s->policies, art.data, err);
    rein_text_free(&art);
    if (refused != HTTP_OK) return refused;
    const char *const fields[][2] = {{"id", MODEL_ID}, {"entity", entity},   {"project", project},
                                     {"name", name},   {"base_model", base}, {"run_id", name}};
    rein_text_put(&e->out, "{");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        rein_json_put_name(&e->out, fields[i][0]);
        rein_json_put_string(&e->out, fields[i][1]);
    }
    rein_text_put(&e->out, "}");
    return HTTP_OK;
}

static int delete_model(exchange *e, const rein_json *body, rein_error *err) {
    (void)body;
    const int missing = no_model(e, err);
    if (missing) return missing;
    rein_text_put(&e->out, "{}");
    return policies_register(e->s->policies, NULL, err); /* the run stays: only its name is forgotten */
}

/* Its trajectories are in the files of the run already, once they have trained. */
static int post_log(exchange *e, const rein_json *body, rein_error *err) {
    (void)body;
    rein_text_put(&e->out, "{}");
    return no_model(e, err) ? HTTP_NOT_FOUND : HTTP_OK;
}

static int get_checkpoints(exchange *e, const rein_json *body, rein_error *err) {
    const char *after = http_parameter(e, "after"), *limit = http_parameter(e, "limit"), *order = http_parameter(e, "order");
    const bool descending = !order || !strcmp(order, "desc");
    const int64_t *steps;
    rein_run *run;
    (void)body;
    if (no_model(e, err)) return HTTP_NOT_FOUND;
    if (rein_run_open(&run, e->s->options.run, REIN_RUN_READ, err)) return HTTP_FAILED;
    const size_t n = rein_run_checkpoints(&steps, run), most = limit ? strtoull(limit, NULL, 10) : 20;
    const int64_t from = after ? strtoll(after, NULL, 10) : -1;
    size_t put = 0;
    bool more = false;
    rein_text_put(&e->out, "{\"object\": \"list\", \"data\": [");
    for (size_t i = 0; i < n; i++) {
        const int64_t step = steps[descending ? n - 1 - i : i];
        if (after && (descending ? step >= from : step <= from)) continue;
        if ((more = put == most)) break;
        if (put++) rein_text_put(&e->out, ", ");
        checkpoints_put(&e->out, e->s, step);
    }
    rein_text_format(&e->out, "], \"has_more\": %s}", more ? "true" : "false");
    rein_run_close(run);
    return HTTP_OK;
}

static int delete_checkpoints(exchange *e, const rein_json *body, rein_error *err) {
    const int missing = no_model(e, err);
    return missing ? missing : checkpoints_delete(e, body, true, err);
}

/* Keys of ART's configuration that are rein's by another name, or that must be off. */
static rein_status translate(rein_text *options, const rein_json *config, rein_error *err) {
    static const char *const off[] = {"mask_prob_ratio", "precalculate_logprobs"};
    const char *name;
    const rein_json *value;
    rein_text_put(options, "{");
    for (void *at = NULL; (at = rein_json_next(&name, &value, config, at));) {
        bool same = strcmp(name, "ppo") != 0 && rein_json_kind_of(value) != REIN_JSON_NULL;
        for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
            if (strcmp(off[i], name) != 0) continue;
            if (rein_json_true(value)) return rein_fail_at(err, REIN_EINVAL, name, -1, "is not supported: leave it false");
            same = false;
        }
        if (!strcmp(name, "ppo") && rein_json_true(value)) {
            rein_json_put_name(options, "surrogate");
            rein_json_put_string(options, "clip");
            if (rein_json_kind_of(rein_json_get(config, "epsilon")) <= REIN_JSON_NULL) rein_json_put_field(options, "epsilon", 0.2);
        }
        if (!same) continue;
        rein_json_put_name(options, name);
        if (rein_json_kind_of(value) == REIN_JSON_STRING && !strcmp(rein_json_string(value), "geometric_average"))
            rein_json_put_string(options, "geometric-average");
        else rein_json_put_value(options, value);
    }
    rein_text_put(options, "}");
    return rein_text_status(options, err);
}

static bool has_equal_rewards(const rein_group *group) {
    for (size_t i = 1; i < group->n; i++)
        if (group->trajectories[i].reward != group->trajectories[0].reward) return false;
    return true;
}

/* ART leaves groups out in which all rewards are equal; they would count in the mean over sequences. If all are such, they stay: the step is
 * made, and trains nothing. */
static rein_status drop_equal_groups(rein_groups *groups, rein_error *err) {
    rein_groups kept = {0};
    rein_status status = REIN_OK;
    size_t differ = 0;
    for (size_t i = 0; i < groups->n; i++) differ += !has_equal_rewards(&groups->groups[i]);
    if (!differ) return REIN_OK;
    for (size_t i = 0; i < groups->n && !status; i++)
        if (!has_equal_rewards(&groups->groups[i])) status = rein_groups_append(&kept, &groups->groups[i], err);
    rein_groups_free(groups);
    *groups = kept;
    return status;
}

static int post_job(exchange *e, const rein_json *body, rein_error *err) {
    static const char *const keys[] = {"model_id", "trajectory_groups", "experimental_config", NULL};
    rein_fields in = {body, NULL, "", REIN_OK, err};
    rein_text text = {0};
    rein_json *options = NULL;
    train_request request;
    char id[48];
    int64_t step;
    rein_fields_only(&in, keys);
    const char *model = rein_fields_string(&in, "model_id");
    const rein_json *config = rein_fields_object(&in, "experimental_config");
    rein_status status = in.status;
    if (!status) {
        snprintf(e->argument, sizeof e->argument, "%s", model);
        if (no_model(e, err)) return HTTP_NOT_FOUND;
        status = translate(&text, config, err);
    }
    if (!status) status = rein_json_parse(&options, text.data, text.length, "experimental_config", REIN_JSON_NEEDS_OBJECT, err);
    if (!status) status = train_parse(&request, e->s, body, options, NULL, err);
    if (!status && (status = drop_equal_groups(&request.groups, err))) train_request_free(&request);
    rein_json_free(options);
    rein_text_free(&text);
    if (status) return routes_status(status);
    const int refused = training_add(id, &step, e->s, &request, err);
    if (refused) return refused;
    rein_text_format(&e->out, "{\"id\": \"%s\"}", id);
    return HTTP_OK;
}

static int get_events(exchange *e, const rein_json *body, rein_error *err) {
    char shown[REIN_TEXT_SHOWN];
    (void)body;
    if (training_put_art(&e->out, e->s, e->argument, http_parameter(e, "after"))) return HTTP_OK;
    rein_fail(err, REIN_END, "there is no training job %s on this server", rein_json_quote(shown, e->argument));
    return HTTP_NOT_FOUND;
}

const route ART_ROUTES[] = {
    {"POST", "/v1/preview/models", false, post_model},
    {"DELETE", "/v1/preview/models/*", false, delete_model},
    {"POST", "/v1/preview/models/*/log", false, post_log},
    {"GET", "/v1/preview/models/*/checkpoints", false, get_checkpoints},
    {"DELETE", "/v1/preview/models/*/checkpoints", false, delete_checkpoints},
    {"POST", "/v1/preview/training-jobs", false, post_job},
    {"GET", "/v1/preview/training-jobs/*/events", false, get_events},
    {NULL, NULL, false, NULL},
};
