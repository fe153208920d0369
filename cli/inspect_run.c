/* inspect_run.c - what a run is, and what is in one of its checkpoints. Every checkpoint is verified: all of its bytes are read. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "inspect.h"
#include "rein/train.h"
#include "terminal.h"
#include "values.h"
#include "wrap.h"

static const char WHERE[] = "inspect";

int rein_is_run(const char *path) {
    return rein_directory_has(path, "checkpoints") &&
           (rein_directory_has(path, ".lock") || rein_directory_has(path, "config.yaml"));
}

/* "RUN" and 7 of "RUN/checkpoints/0007"; the directory may be given in any way. NULL: it is none. */
static char *split(int64_t *step, const char *path) {
    char *whole = realpath(path, NULL), *name = whole ? strrchr(whole, '/') : NULL;
    if (name) *name++ = 0;
    char *parent = name && isdigit((unsigned char)*name) ? strrchr(whole, '/') : NULL;
    char *end = NULL;
    *step = parent ? strtoll(name, &end, 10) : -1;
    if (parent && !*end && !strcmp(parent, "/checkpoints")) {
        *parent = 0;
        return whole;
    }
    free(whole);
    return NULL;
}

int rein_is_checkpoint(const char *path) {
    int64_t step;
    char *run = split(&step, path);
    const int is_one = run && rein_is_run(run);
    free(run);
    return is_one;
}

/* ------------------------------------------------------------------------------------------------------------------- parts of it */

/* A value that is JSON already. */
static void put_json(rein_sheet *r, const char *name, const rein_json *value) {
    rein_sheet_name(r, name);
    if (value) rein_json_put_value(&r->out, value);
    else rein_text_put(&r->out, "null");
    rein_sheet_end(r);
}

/* "  name   value" below the row of a list; a field of the object that the list is in JSON. */
static void put_entry(rein_sheet *r, rein_text *object, const char *name, const char *value) {
    if (r->json) {
        rein_json_put_name(object, name);
        rein_json_put_string(object, value);
        return;
    }
    rein_text_format(object, "  %s", name);
    rein_text_repeat(object, " ", rein_columns(name) < 26 ? 26 - rein_columns(name) : 1);
    if (strchr(value, '\n')) rein_json_put_string(object, value); /* a list, on one line */
    else rein_text_put(object, value);
    rein_text_put(object, "\n");
}

/* The entry of a setting or option, if it was given: returns how many there are. */
static size_t put_given(rein_sheet *r, rein_text *entries, const rein_settings *s, const char *name) {
    rein_text value = {0};
    const int given = rein_settings_given(s, name) && !rein_settings_get(&value, s, name, NULL);
    if (given) put_entry(r, entries, name, value.data);
    rein_text_free(&value);
    return (size_t)given;
}

/* Everything that config.yaml says. */
static void put_settings(rein_sheet *r, const rein_settings *s) {
    const char *preset = rein_settings_text(s, "preset");
    rein_text entries = {0};
    size_t n = 0;
    if (r->json) rein_text_put(&entries, "{");
    for (size_t i = 0; rein_setting_at(i); i++) n += put_given(r, &entries, s, rein_setting_at(i)->name);
    if (*preset) put_entry(r, &entries, "preset", preset), n++;
    for (size_t i = 0; rein_option_at(i); i++) n += put_given(r, &entries, s, rein_option_at(i)->name);
    if (r->json) rein_text_put(&entries, "}");
    rein_sheet_name(r, "settings");
    if (r->json) rein_text_put(&r->out, entries.failed ? "" : entries.data);
    else rein_text_format(&r->out, "%zu given\n%s", n, entries.data ? entries.data : "");
    r->out.failed |= entries.failed;
    rein_text_free(&entries);
}

/* One that was deleted since the run was opened is none. */
static int is_there(const rein_run *run, int64_t step) {
    char path[4096];
    struct stat about;
    return rein_run_checkpoint_path(path, sizeof path, run, step) < sizeof path && !stat(path, &about);
}

static void put_checkpoint(rein_sheet *r, int64_t step, rein_status status, const char *problem, int first) {
    if (!r->json) {
        rein_text_format(&r->out, "  %04lld  %s%s%s\n", (long long)step, status == REIN_OK ? "good" : "",
                         status ? "not good: " : "", status ? problem : "");
        return;
    }
    rein_text_format(&r->out, "%s{\"step\": %lld, \"good\": %s, \"problem\": ", first ? "" : ", ", (long long)step,
                     status ? "false" : "true");
    if (status) rein_json_put_string(&r->out, problem);
    else rein_text_put(&r->out, "null");
    rein_text_put(&r->out, "}");
}

/* *last_good is -1 if none is. */
static void put_checkpoints(rein_sheet *r, int64_t *last_good, const rein_run *run) {
    const int64_t *steps;
    const size_t n = rein_run_checkpoints(&steps, run);
    int first = 1;
    *last_good = -1;
    rein_sheet_name(r, "checkpoints");
    if (r->json) rein_text_put(&r->out, "[");
    else rein_text_format(&r->out, "%zu\n", n);
    for (size_t i = 0; i < n; i++) {
        rein_error err = {0};
        const rein_status status = rein_checkpoint_verify(run, steps[i], &err);
        if (status && !is_there(run, steps[i])) continue;
        if (!status) *last_good = steps[i];
        put_checkpoint(r, steps[i], status, err.message, first);
        first = 0;
    }
    if (r->json) rein_text_put(&r->out, "]");
}

/* The last whole line of the history; NULL: there is none. */
static rein_json *last_line(const char *path) {
    rein_text file = {0};
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    rein_json *last = NULL;
    rein_text_format(&file, "%s/history.jsonl", path);
    FILE *history = file.failed ? NULL : fopen(file.data, "r");
    while (history && (length = getline(&line, &size, history)) > 0 && line[length - 1] == '\n') {
        rein_json *object;
        if (rein_json_parse(&object, line, (size_t)length, NULL, REIN_JSON_NEEDS_OBJECT, NULL)) continue;
        rein_json_free(last);
        last = object;
    }
    if (history) fclose(history);
    free(line);
    rein_text_free(&file);
    return last;
}

/* The figures that a glance is for; JSON has all of them. */
static void put_metrics(rein_sheet *r, const rein_json *line) {
    static const char *const main_ones[] = {
        "reward",    "reward_std",    "accuracy",      "completions/mean_length", "loss",      "budget/share_over", "kl", "entropy",
        "grad_norm", "learning_rate", "eval/accuracy", "on_policy/max_gap",       "step_time", "num_tokens",        NULL};
    if (r->json) {
        put_json(r, "metrics", line);
        return;
    }
    rein_sheet_name(r, "metrics");
    rein_text_put(&r->out, line ? "of the last step\n" : "none\n");
    for (size_t i = 0; main_ones[i]; i++) {
        const rein_json *value = rein_json_get(line, main_ones[i]);
        if (rein_json_kind_of(value) != REIN_JSON_NUMBER) continue;
        char text[40];
        snprintf(text, sizeof text, "%.6g", rein_json_number(value));
        put_entry(r, &r->out, main_ones[i], text);
    }
    if (rein_json_true(rein_json_get(line, "nothing_to_train"))) rein_text_put(&r->out, "  nothing to train\n");
}

/* The state.json of a checkpoint; NULL if it cannot be read. */
static rein_json *read_state(const char *path, const char *checkpoint) {
    rein_text file = {0};
    rein_json *state = NULL;
    rein_text_format(&file, "%s/%sstate.json", path, checkpoint);
    if (!file.failed) rein_json_read(&state, file.data, REIN_JSON_NEEDS_OBJECT, NULL);
    rein_text_free(&file);
    return state;
}

/* Where a run began, if that is another run: its first checkpoint says so. */
static void put_origin(rein_sheet *r, const char *path) {
    rein_json *state = read_state(path, "checkpoints/0000/");
    const rein_json *origin = rein_json_get(state, "forked_from");
    const char *run = rein_json_string(rein_json_get(origin, "run"));
    if (r->json) put_json(r, "forked_from", origin);
    else if (origin) {
        rein_sheet_name(r, "forked_from");
        rein_text_format(&r->out, "%s@%lld\n", run ? run : "a run", (long long)rein_json_number(rein_json_get(origin, "step")));
    }
    rein_json_free(state);
}

/* ------------------------------------------------------------------------------------------------------------------------ a run */

/* A run that was stopped before its first step may have no settings yet. */
static int read_settings(rein_settings *settings, const char *path) {
    rein_error err = {0};
    rein_text file = {0};
    int status = REIN_DONE;
    rein_text_format(&file, "%s/config.yaml", path);
    if (file.failed) return rein_say_no_memory(WHERE);
    if (rein_directory_has(path, "config.yaml") && rein_settings_read(settings, file.data, &err))
        status = rein_say_error(WHERE, &err);
    rein_text_free(&file);
    return status;
}

int rein_inspect_run(const char *path, int json) {
    rein_sheet r = {.json = json};
    rein_error err = {0};
    rein_settings *settings = NULL;
    rein_run *run = NULL;
    int64_t last_good;
    int status = rein_settings_new(&settings, &err) ? rein_say_error(WHERE, &err) : read_settings(settings, path);
    if (!status && rein_run_open(&run, path, REIN_RUN_READ, &err)) status = rein_say_error(WHERE, &err);
    if (status) return rein_settings_free(settings), status;
    const char *model = rein_settings_text(settings, "model");
    rein_json *line = last_line(path);
    rein_sheet_text(&r, "run", path);
    rein_sheet_text(&r, "model", *model ? model : NULL);
    rein_sheet_text(&r, "trains", rein_settings_number(settings, "full") > 0 ? "all weights" : "an adapter");
    put_origin(&r, path);
    put_settings(&r, settings);
    rein_sheet_count(&r, "steps", line ? (int64_t)rein_json_number(rein_json_get(line, "step")) : 0);
    put_checkpoints(&r, &last_good, run);
    if (last_good >= 0) rein_sheet_count(&r, "last_good", last_good);
    else rein_sheet_text(&r, "last_good", NULL);
    put_metrics(&r, line);
    rein_json_free(line);
    rein_run_close(run);
    rein_settings_free(settings);
    return rein_sheet_print(&r);
}

/* ----------------------------------------------------------------------------------------------------------------- a checkpoint */

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static void put_files(rein_sheet *r, const char *path) {
    struct dirent **entries = NULL;
    const int n = scandir(path, &entries, is_visible, alphasort);
    rein_sheet_name(r, "files");
    if (r->json) rein_text_put(&r->out, "{");
    else rein_text_format(&r->out, "%d\n", n > 0 ? n : 0);
    for (int i = 0; i < n; i++) {
        rein_text file = {0};
        struct stat about = {0};
        rein_text_format(&file, "%s/%s", path, entries[i]->d_name);
        if (!file.failed && stat(file.data, &about)) about.st_size = 0;
        if (r->json) rein_json_put_name(&r->out, entries[i]->d_name), rein_text_format(&r->out, "%lld", (long long)about.st_size);
        else rein_text_format(&r->out, "  %-26s%lld bytes\n", entries[i]->d_name, (long long)about.st_size);
        rein_text_free(&file);
        free(entries[i]);
    }
    free(entries);
    if (r->json) rein_text_put(&r->out, "}");
}

static void put_state(rein_sheet *r, const char *path) {
    const char *name;
    const rein_json *value;
    rein_json *state = read_state(path, "");
    if (r->json) put_json(r, "state", state);
    for (void *at = NULL; !r->json && (at = rein_json_next(&name, &value, state, at));) {
        if (!strcmp(name, "step")) continue;
        if (rein_json_string(value)) rein_sheet_text(r, name, rein_json_string(value));
        else put_json(r, name, value);
    }
    rein_json_free(state);
}

static int put_policy(rein_sheet *r, const rein_args *args, const char *path) {
    rein_opened opened = {.directory = path};
    if (rein_directory_has(path, "adapter_config.json")) return rein_inspect_adapter_alone(r, path);
    const int status = rein_opened_open(&opened, args);
    if (!status) rein_inspect_model(r, &opened);
    rein_opened_close(&opened);
    return status;
}

int rein_inspect_checkpoint(const rein_args *args, const char *path, int json) {
    rein_sheet r = {.json = json};
    rein_error err = {0};
    rein_run *run = NULL;
    int64_t step;
    char *directory = split(&step, path);
    if (!directory) return rein_say_no_memory(WHERE);
    if (rein_run_open(&run, directory, REIN_RUN_READ, &err)) {
        free(directory);
        return rein_say_error(WHERE, &err);
    }
    const rein_status good = rein_checkpoint_verify(run, step, &err);
    rein_run_close(run);
    rein_sheet_text(&r, "checkpoint", path);
    rein_sheet_text(&r, "run", directory);
    rein_sheet_count(&r, "step", step);
    rein_sheet_yes(&r, "good", !good);
    if (good || json) rein_sheet_text(&r, "problem", good ? err.message : NULL);
    put_files(&r, path);
    free(directory);
    if (good) return rein_sheet_print(&r) ? REIN_FAILED : rein_say(REIN_FAILED, WHERE, "%s", err.message);
    put_state(&r, path);
    const int status = put_policy(&r, args, path);
    if (!status) return rein_sheet_print(&r);
    rein_text_free(&r.out);
    return status;
}
