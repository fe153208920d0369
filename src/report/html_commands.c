/* html_commands.c - commands to copy: to resume the run, to evaluate it, to sample from it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "html_parts.h"
#include "rein/report.h"

/* The command so far. If it becomes too long, it is not shown. */
typedef struct command {
    char text[3 * REIN_SHOWN_TEXT];
    size_t n;
    int too_long, no_memory;
} command;

static void put(command *c, const char *text) {
    const size_t length = strlen(text);
    if (length >= sizeof c->text - c->n) c->too_long = 1;
    else memcpy(c->text + c->n, text, length + 1), c->n += length;
}

/* One word of a shell command, in single quotes where needed. */
static void put_word(command *c, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+:,@%=";
    put(c, " ");
    if (*word && !word[strspn(word, plain)]) {
        put(c, word);
        return;
    }
    put(c, "'");
    for (const char *quote; (quote = strchr(word, '\'')); word = quote + 1) {
        char part[REIN_SHOWN_TEXT];
        if (snprintf(part, sizeof part, "%.*s'\\''", (int)(quote - word), word) >= (int)sizeof part) c->too_long = 1;
        put(c, part);
    }
    put(c, word);
    put(c, "'");
}

static const char *setting(const rein_report_run *run, const char *name) {
    size_t i;
    json_t *both;
    json_array_foreach(json_object_get(run->json, "settings"), i, both) {
        const char *key = json_string_value(json_array_get(both, 0));
        if (key && strcmp(key, name) == 0) return json_string_value(json_array_get(both, 1));
    }
    return NULL;
}

static int has_file(command *c, const rein_report_run *run, const char *name) {
    char *path = rein_report_path(run, name);
    const int has = path && rein_file_exists(path);
    if (!path) c->no_memory = 1;
    free(path);
    return has;
}

static int add(json_t *commands, const char *title, const command *c) {
    json_t *both = json_array();
    if (c->too_long || c->no_memory) return json_decref(both), c->no_memory;
    int failed = json_array_append_new(both, json_string(title));
    failed |= json_array_append_new(both, rein_report_text(c->text, c->n, sizeof c->text));
    return json_array_append_new(commands, both) | failed;
}

/* " --model M --adapter RUN/checkpoints/0007", or the checkpoint itself where all weights were trained. */
static void put_policy(command *c, const rein_report_run *run, const char *model, int64_t step) {
    char name[80], path[REIN_SHOWN_TEXT];
    const size_t length = strlen(run->directory);
    const char *slash = length && run->directory[length - 1] == '/' ? "" : "/";
    snprintf(name, sizeof name, "checkpoints/%04lld/adapter_config.json", (long long)step);
    const int adapter = has_file(c, run, name);
    if (snprintf(path, sizeof path, "%s%scheckpoints/%04lld", run->directory, slash, (long long)step) >= (int)sizeof path)
        c->too_long = 1;
    put(c, " --model");
    put_word(c, adapter ? model : path);
    if (adapter) put(c, " --adapter"), put_word(c, path);
}

/* A run that has finished all its steps needs a larger number to resume. */
static void put_more_steps(command *c, const rein_report_run *run) {
    const char *planned = setting(run, "steps");
    const json_int_t steps = planned ? strtoll(planned, NULL, 10) : 0,
                     done = json_integer_value(json_object_get(run->json, "steps"));
    char more[60];
    if (steps <= 0 || done < steps || steps > 1000000000) return;
    snprintf(more, sizeof more, " --steps %lld", (long long)(2 * steps));
    put(c, more);
}

static int resume(json_t *commands, const rein_report_run *run) {
    command c = {.n = 0};
    const char *plan;
    rein_error err = {0};
    if (rein_report_plan(&plan, run->directory, &err)) c.no_memory = 1;
    if (setting(run, "task")) put(&c, "rein run"), put_word(&c, run->directory), put_more_steps(&c, run);
    else if (plan) put(&c, "rein "), put(&c, plan), put_word(&c, run->directory);
    else put(&c, "rein train"), put_word(&c, run->directory), put(&c, " --groups groups.jsonl");
    return add(commands, "Resume", &c);
}

static int evaluate(json_t *commands, const rein_report_run *run) {
    command c = {.n = 0};
    put(&c, "rein eval"), put_word(&c, run->directory), put(&c, " --against base");
    return add(commands, "Evaluate, and compare with the base model", &c);
}

static int sample(json_t *commands, const rein_report_run *run, const char *model, int64_t step) {
    command c = {.n = 0};
    static const char *const options[][2] = {
        {"temperature", " --temperature"}, {"chat_format", " --chat-format"}, {"system", " --system"}};
    const char *chat = setting(run, "chat");
    const json_t *compared = json_array_get(json_object_get(json_object_get(run->json, "compare"), "prompts"), 0);
    const char *prompt = json_string_value(json_object_get(compared, "prompt"));
    put(&c, "rein generate");
    put_policy(&c, run, model, step);
    put(&c, " --prompt"), put_word(&c, prompt && strlen(prompt) < 200 ? prompt : "...");
    if (chat && strcmp(chat, "yes") == 0) put(&c, " --chat");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const char *value = setting(run, options[i][0]);
        if (value && *value) put(&c, options[i][1]), put_word(&c, value);
    }
    return add(commands, "Sample", &c);
}

static int report(json_t *commands, const rein_report_run *run) {
    command c = {.n = 0};
    put(&c, "rein report"), put_word(&c, run->directory);
    return add(commands, "Write this report again", &c);
}

rein_status rein_report_commands(rein_report_run *run) {
    json_t *commands = json_array();
    const char *model = setting(run, "model");
    int64_t *steps;
    size_t n;
    if (json_object_set_new(run->json, "commands", commands)) return rein_report_no_memory(run);
    rein_status status = rein_report_steps(&steps, &n, run, "checkpoints", "");
    if (status) return status;
    int failed = resume(commands, run);
    if (n && setting(run, "task")) failed |= evaluate(commands, run);
    if (n && model) failed |= sample(commands, run, model, steps[n - 1]);
    failed |= report(commands, run);
    free(steps);
    return failed ? rein_report_no_memory(run) : REIN_OK;
}
