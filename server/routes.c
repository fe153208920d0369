/* routes.c - the table of routes, and those that answer at once. */
#include <math.h>
#include <string.h>

#include "parts.h"

int routes_status(rein_status status) {
    return status == REIN_EINVAL   ? HTTP_BAD_REQUEST
           : status == REIN_END    ? HTTP_NOT_FOUND
           : status == REIN_EIO    ? HTTP_BAD_REQUEST
           : status == REIN_ENOMEM ? HTTP_STOPPING
                                   : HTTP_FAILED;
}

static int sample(exchange *e, job_kind kind, rein_status (*parse)(job *, const rein_json *, rein_error *), const rein_json *body,
                  rein_error *err) {
    job *j = job_new(e->s, kind);
    if (!j) return rein_fail(err, REIN_ENOMEM, "no memory for a request"), HTTP_FAILED;
    const rein_status status = parse(j, body, err);
    if (status) return job_release(j), routes_status(status);
    job_log(j, body);
    e->job = j;
    return HTTP_OK;
}

static int post_chat(exchange *e, const rein_json *body, rein_error *err) { return sample(e, JOB_CHAT, job_parse_chat, body, err); }
static int post_completion(exchange *e, const rein_json *body, rein_error *err) {
    return sample(e, JOB_COMPLETION, job_parse_completion, body, err);
}

static int get_models(exchange *e, const rein_json *body, rein_error *err) {
    (void)body, (void)err;
    policies_list(&e->out, e->s->policies);
    return HTTP_OK;
}

static int get_health(exchange *e, const rein_json *body, rein_error *err) {
    (void)body, (void)err;
    const bool draining = atomic_load(&e->s->draining);
    rein_text_format(&e->out, "{\"status\": \"%s\", \"version\": \"%s\"}", draining ? "stopping" : "ok", rein_version());
    return draining ? HTTP_STOPPING : HTTP_OK;
}

static int get_metrics(exchange *e, const rein_json *body, rein_error *err) {
    (void)body, (void)err;
    e->type = "text/plain; version=0.0.4; charset=utf-8";
    metrics_write(&e->out, e->s);
    return HTTP_OK;
}

static void put_ids(rein_text *out, const rein_ids *ids) {
    rein_text_put(out, "[");
    for (size_t i = 0; i < ids->count; i++) rein_text_format(out, "%s%d", i ? ", " : "", (int)ids->data[i]);
    rein_text_put(out, "]");
}

/* All policies have the same tokenizer, but an unknown name is a mistake. */
static rein_status check_model(exchange *e, rein_fields *in) {
    const char *name = rein_fields_string_or(in, "model", NULL);
    policy *found = NULL;
    if (in->status || !name) return in->status;
    in->status = policies_find(&found, e->s->policies, name, in->err);
    policies_give(e->s->policies, found);
    return in->status;
}

static int post_tokenize(exchange *e, const rein_json *body, rein_error *err) {
    static const char *const keys[] = {"model",
                                       "prompt",
                                       "messages",
                                       "add_special_tokens",
                                       "add_generation_prompt",
                                       "return_token_strs",
                                       "tools",
                                       "chat_template_kwargs",
                                       NULL};
    rein_fields in = {body, NULL, "", REIN_OK, err};
    rein_ids ids = {0};
    conversation unused = {0};
    rein_fields_only(&in, keys);
    const int special = rein_fields_bool_or(&in, "add_special_tokens", 1),
              generation = rein_fields_bool_or(&in, "add_generation_prompt", 1),
              spelled = rein_fields_bool_or(&in, "return_token_strs", 0);
    rein_status status = check_model(e, &in);
    if (!status && rein_fields_has(&in, "messages")) status = prompts_render(&ids, &unused, e->s, body, true, generation, err);
    else if (!status) {
        const char *prompt = rein_fields_string(&in, "prompt");
        const rein_encoding how = {.add_special = special, .parse_special = 1};
        if (!(status = in.status)) status = rein_tokenizer_encode(&ids, e->s->options.tokenizer, prompt, strlen(prompt), &how, err);
    }
    rein_text_format(&e->out, "{\"count\": %zu, \"max_model_len\": %lld, \"tokens\": ", ids.count,
                     (long long)e->s->info.max_positions);
    put_ids(&e->out, &ids);
    rein_text_put(&e->out, spelled ? ", \"token_strs\": [" : ", \"token_strs\": null");
    for (size_t i = 0; spelled && i < ids.count; i++) {
        size_t length = 0;
        const char *token = rein_tokenizer_token(&length, e->s->options.tokenizer, ids.data[i]);
        if (i) rein_text_put(&e->out, ", ");
        rein_json_put_bytes(&e->out, token ? token : "", length);
    }
    rein_text_put(&e->out, spelled ? "]}" : "}");
    conversation_free(&unused);
    rein_ids_free(&ids);
    return status ? routes_status(status) : HTTP_OK;
}

static int post_detokenize(exchange *e, const rein_json *body, rein_error *err) {
    static const char *const keys[] = {"model", "tokens", NULL};
    rein_fields in = {body, NULL, "", REIN_OK, err};
    rein_ids ids = {0};
    rein_text text = {0};
    rein_fields_only(&in, keys);
    const rein_json *tokens = rein_fields_array(&in, "tokens");
    if (!in.status && !tokens) rein_fields_wrong(&in, "tokens", NULL, "a list of token ids is needed");
    for (size_t i = 0; i < rein_json_size(tokens) && !in.status; i++) {
        const rein_json *one = rein_json_at(tokens, i);
        const double id = rein_json_number(one);
        if (rein_json_kind_of(one) != REIN_JSON_NUMBER || id != floor(id) || id < 0 || id >= (double)e->s->info.vocabulary)
            rein_fields_fail(&in, REIN_EINVAL, "tokens", (int64_t)i, "must be a token of the model, 0 to %lld",
                             (long long)e->s->info.vocabulary - 1);
        else in.status = rein_ids_append(&ids, (int32_t)id, err);
    }
    rein_status status = check_model(e, &in);
    if (!status) status = rein_tokenizer_decode(&text, e->s->options.tokenizer, ids.data, ids.count, 0, err);
    rein_text_put(&e->out, "{\"prompt\": ");
    rein_json_put_bytes(&e->out, text.data ? text.data : "", text.length);
    rein_text_put(&e->out, "}");
    rein_ids_free(&ids);
    rein_text_free(&text);
    return status ? routes_status(status) : HTTP_OK;
}

static int post_load(exchange *e, const rein_json *body, rein_error *err) {
    static const char *const keys[] = {"lora_name", "lora_path", NULL};
    rein_fields in = {body, NULL, "", REIN_OK, err};
    rein_fields_only(&in, keys);
    const char *name = rein_fields_string(&in, "lora_name"), *path = rein_fields_string(&in, "lora_path");
    const rein_status status = in.status ? in.status : policies_load(e->s->policies, name, path, err);
    if (status) return routes_status(status);
    e->type = "text/plain; charset=utf-8";
    rein_text_format(&e->out, "Success: LoRA adapter '%s' added successfully.", name);
    return HTTP_OK;
}

static int post_unload(exchange *e, const rein_json *body, rein_error *err) {
    static const char *const keys[] = {"lora_name", "lora_int_id", NULL};
    rein_fields in = {body, NULL, "", REIN_OK, err};
    rein_fields_only(&in, keys);
    const char *name = rein_fields_string(&in, "lora_name");
    const rein_status status = in.status ? in.status : policies_unload(e->s->policies, name, err);
    if (status) return routes_status(status);
    e->type = "text/plain; charset=utf-8";
    rein_text_format(&e->out, "Success: LoRA adapter '%s' removed successfully.", name);
    return HTTP_OK;
}

static const route ROUTES[] = {
    {"POST", "/v1/chat/completions", false, post_chat},
    {"POST", "/v1/completions", false, post_completion},
    {"GET", "/v1/models", false, get_models},
    {"GET", "/health", true, get_health},
    {"GET", "/metrics", false, get_metrics},
    {"POST", "/tokenize", false, post_tokenize},
    {"POST", "/detokenize", false, post_detokenize},
    {"POST", "/v1/load_lora_adapter", false, post_load},
    {"POST", "/v1/unload_lora_adapter", false, post_unload},
    {NULL, NULL, false, NULL},
};

/* 1 if the path is one of the route; its argument is the part for which the route has a "*". */
static bool fits(char argument[ARGUMENT], const char *pattern, const char *path) {
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (*pattern != *path++) return false;
            continue;
        }
        const size_t n = strcspn(path, "/");
        if (!n || n >= ARGUMENT) return false;
        memcpy(argument, path, n);
        argument[n] = 0;
        path += n;
    }
    return !*path;
}

const route *routes_find(char argument[ARGUMENT], const char *method, const char *path, bool *other_method) {
    static const route *const tables[] = {ROUTES, TRAIN_ROUTES, ART_ROUTES, PAGE_ROUTES};
    const bool head =
        !strcmp(method, "HEAD"); /* as GET, and libmicrohttpd leaves the body out; for monitors, so only where no key is needed */
    *other_method = false;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const route *r = tables[i]; r->method; r++) {
            if (!fits(argument, r->path, path)) continue;
            if (!strcmp(r->method, method) || (head && r->open && !strcmp(r->method, "GET"))) return r;
            *other_method = true;
        }
    return NULL;
}
