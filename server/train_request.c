/* train_request.c - the body of a request to train: groups, and options by their names. An option is one of the objective, the optimizer or
 * the reference; what belongs to the run, the machine or the task cannot be set by a client. */
#include <stdlib.h>
#include <string.h>

#include "parts.h"

void train_request_free(train_request *r) {
    rein_groups_free(&r->groups);
    rein_settings_free(r->settings);
    free(r->learning_rates);
    *r = (train_request){0};
}

static bool is_in(const char *const *names, const char *name) {
    for (size_t i = 0; names && names[i]; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

/* Settings outside of the objective, the optimizer and the reference. An unknown name is left to rein_settings_set. */
static bool is_closed(const char *name) {
    const rein_setting_info *info;
    for (size_t i = 0; (info = rein_setting_at(i)); i++)
        if (!strcmp(info->name, name)) return strcmp(info->stage, "optimizer") != 0 && strcmp(info->stage, "reference") != 0;
    return false;
}

/* One for each optimizer step. */
static rein_status read_rates(train_request *r, const rein_json *list, rein_error *err) {
    const size_t n = rein_json_size(list);
    r->learning_rates = calloc(n + 1, sizeof *r->learning_rates);
    if (!r->learning_rates) return rein_fail(err, REIN_ENOMEM, "no memory for a request");
    for (size_t i = 0; i < n; i++) {
        const rein_json *one = rein_json_at(list, i);
        r->learning_rates[i] = rein_json_number(one);
        if (rein_json_kind_of(one) != REIN_JSON_NUMBER || !(r->learning_rates[i] >= 0 && r->learning_rates[i] <= 1))
            return rein_fail_at(err, REIN_EINVAL, "learning_rate", (int64_t)i, "must be a number between 0 and 1");
    }
    r->n_learning_rates = n;
    return REIN_OK;
}

static rein_status set_option(rein_settings *given, server *s, const char *name, const rein_json *value, rein_error *err) {
    char shown[REIN_TEXT_SHOWN];
    rein_text text = {0};
    if (is_closed(name))
        return rein_fail_at(err, REIN_EINVAL, name, -1, "cannot be set by a request: it belongs to the run or the server");
    switch (rein_json_kind_of(value)) {
    case REIN_JSON_STRING: rein_text_put(&text, rein_json_string(value)); break;
    case REIN_JSON_NUMBER:
    case REIN_JSON_BOOLEAN: rein_json_put_value(&text, value); break;
    default: return rein_fail_at(err, REIN_EINVAL, name, -1, "is %s: a number or a text is needed", rein_json_show(shown, value));
    }
    rein_status status = rein_text_status(&text, err);
    if (!status && !strcmp(name, "kl_ref_adapter_path")) status = policies_allow_path(s->policies, name, text.data, err);
    if (!status) status = rein_settings_set(given, name, text.data, err);
    rein_text_free(&text);
    return status;
}

/* null is "not given", as everywhere in OpenAI's API. A preset comes before the options that change it. */
static rein_status set_options(train_request *r, rein_settings *given, server *s, const rein_json *options,
                               const char *const *others, rein_error *err) {
    const rein_json *preset = rein_json_get(options, "preset"), *value;
    const char *name;
    rein_status status = REIN_OK;
    if (rein_json_kind_of(preset) == REIN_JSON_STRING) status = set_option(given, s, "preset", preset, err);
    for (void *at = NULL; !status && (at = rein_json_next(&name, &value, options, at));) {
        if (is_in(others, name) || rein_json_kind_of(value) == REIN_JSON_NULL || value == preset) continue;
        if (!strcmp(name, "learning_rate") && rein_json_kind_of(value) == REIN_JSON_ARRAY) status = read_rates(r, value, err);
        else status = set_option(given, s, name, value, err);
    }
    return status;
}

static rein_status read_options(train_request *r, server *s, const rein_json *options, const char *const *others, rein_error *err) {
    rein_settings *given = NULL;
    rein_status status = rein_settings_new(&given, err);
    if (!status) status = set_options(r, given, s, options, others, err);
    if (!status) status = rein_settings_copy(&r->settings, training_settings(s), err);
    if (!status) status = rein_settings_change(r->settings, given, err);
    if (!status) status = rein_settings_check(r->settings, err);
    rein_settings_free(given);
    return status;
}

/* The reference is a checkpoint that is there, or that a job before this one makes. */
static rein_status check_reference(const train_request *r, server *s, rein_error *err) {
    static const char field[] = "kl_penalty_reference_step";
    const double step = rein_settings_number(r->settings, field);
    rein_run *run;
    if (!(step >= 0)) return REIN_OK; /* not given */
    if (step > (double)policies_newest(s->policies) && step < (double)training_next_step(s)) return REIN_OK;
    rein_status status = rein_run_open(&run, s->options.run, REIN_RUN_READ, err);
    if (!status) status = rein_run_check_step(run, (int64_t)step, field, err);
    rein_run_close(run);
    return status;
}

rein_status train_parse(train_request *r, server *s, const rein_json *body, const rein_json *options, const char *const *others,
                        rein_error *err) {
    const rein_json *groups = rein_json_get(body, "trajectory_groups");
    rein_chat chat;
    *r = (train_request){0};
    if (!s->training) return training_refuse(s, err), REIN_EINVAL;
    if (rein_json_kind_of(groups) != REIN_JSON_ARRAY)
        return rein_fail_at(err, REIN_EINVAL, "trajectory_groups", -1, "must be a list of groups, {\"trajectories\": [...]}");
    const rein_status found = rein_settings_chat(&chat, training_settings(s), s->options.tokenizer, err);
    rein_status status = found == REIN_END ? REIN_OK : found;
    if (!status) status = read_options(r, s, options, others, err);
    if (!status) status = check_reference(r, s, err);
    if (!status)
        status = rein_groups_from_json(&r->groups, groups, "trajectory_groups", s->options.tokenizer, found ? NULL : &chat, err);
    if (!status) status = rein_groups_fit(&r->groups, s->options.model, "trajectory_groups", err);
    if (status) train_request_free(r);
    return status;
}
