/* inspect_run.c - describes a run or one of its checkpoints. Every checkpoint is verified: all of its bytes are read. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "history.h"
#include "inspect.h"
#include "rein/train.h"
#include "settings.h"
#include "terminal.h"

static const char WHERE[] = "inspect";

int cli_is_run(const char *path) {
    return cli_directory_has(path, "checkpoints") && (cli_directory_has(path, ".lock") || cli_directory_has(path, "config.yaml"));
}

/* "RUN" and 7 for "RUN/checkpoints/0007", after the path is made absolute; 0 if it is not a checkpoint. Nothing is allocated: no memory would
 * look like another kind of directory. */
static int split(char run[PATH_MAX], int64_t *step, const char *path) {
    char *name = realpath(path, run) ? strrchr(run, '/') : NULL;
    if (name) *name++ = 0;
    char *parent = name && isdigit((unsigned char)*name) ? strrchr(run, '/') : NULL;
    char *end = NULL;
    *step = parent ? strtoll(name, &end, 10) : -1;
    if (!parent || *end || strcmp(parent, "/checkpoints") != 0) return 0;
    *parent = 0;
    return 1;
}

int cli_is_checkpoint(const char *path) {
    int64_t step;
    char run[PATH_MAX];
    return split(run, &step, path) && cli_is_run(run);
}

/* ------------------------------------------------------------------------------------------------------------------------ fields */

/* The setting or option, if it is given. Returns how many there are. */
static size_t put_given(cli_sheet *given, const rein_settings *s, const char *name) {
    rein_text value = {0}, line = {0};
    const int is_given = rein_settings_given(s, name);
    const rein_status status = is_given ? rein_settings_get(&value, s, name, NULL) : REIN_OK;
    if (status) return given->out.failed = 1, (size_t)0;                                               /* there is no memory */
    if (is_given && !given->json && strchr(value.data, '\n')) rein_json_put_string(&line, value.data); /* a list, on one line */
    if (is_given) cli_sheet_text(given, name, line.data ? line.data : value.data);
    rein_text_free(&line);
    rein_text_free(&value);
    return (size_t)is_given;
}

/* All settings of config.yaml. */
static void put_settings(cli_sheet *r, const rein_settings *s) {
    const char *preset = rein_settings_text(s, "preset");
    cli_sheet given = {.json = r->json, .nested = 1};
    char summary[40];
    size_t n = *preset != 0;
    for (size_t i = 0; rein_setting_at(i); i++) n += put_given(&given, s, rein_setting_at(i)->name);
    if (*preset) cli_sheet_text(&given, "preset", preset);
    for (size_t i = 0; rein_option_at(i); i++) n += put_given(&given, s, rein_option_at(i)->name);
    snprintf(summary, sizeof summary, "%zu given", n);
    cli_sheet_nest(r, "settings", summary, &given);
}

/* 0 if the checkpoint was deleted after the run was opened. */
static int is_there(const rein_run *run, int64_t step) {
    char path[4096];
    struct stat about;
    return rein_run_checkpoint_path(path, sizeof path, run, step) < sizeof path && !stat(path, &about);
}

static void put_checkpoint(cli_sheet *r, int64_t step, rein_status status, const char *problem, int first) {
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

/* *last_good is -1 if no checkpoint is good. */
static void put_checkpoints(cli_sheet *r, int64_t *last_good, const rein_run *run) {
    const int64_t *steps;
    const size_t n = rein_run_checkpoints(&steps, run);
    int first = 1;
    *last_good = -1;
    cli_sheet_name(r, "checkpoints");
    if (r->json) rein_text_put(&r->out, "[");
    else rein_text_format(&r->out, "%zu\n", n);
    for (size_t i = 0; i < n; i++) {
        rein_error err = {0};
        const rein_status status = rein_checkpoint_verify(run, steps[i], &err);
        if (status && !is_there(run, steps[i])) continue;
        if (status == REIN_ENOMEM) r->out.failed = 1;
        if (!status) *last_good = steps[i];
        put_checkpoint(r, steps[i], status, err.message, first);
        first = 0;
    }
    if (r->json) rein_text_put(&r->out, "]");
}

/* The last complete line of the history, or NULL. An exit status. */
static int read_last_line(rein_json **last, const char *path) {
    cli_history history;
    rein_json *line;
    *last = NULL;
    int status = cli_history_open(&history, path, "history.jsonl", 0, WHERE);
    while (!status && !(status = cli_history_next(&line, &history, WHERE)) && line) {
        rein_json_free(*last);
        *last = line;
    }
    cli_history_close(&history);
    return status;
}

/* The most important metrics; JSON has all of them. */
static void put_metrics(cli_sheet *r, const rein_json *line) {
    static const char *const main_ones[] = {"reward",        "reward_std",        "accuracy",    "completions/mean_length",
                                            "loss",          "budget/share_over", "kl",          "entropy",
                                            "grad_norm",     "learning_rate",     "critic/loss", "critic/explained_variance",
                                            "eval/accuracy", "on_policy/max_gap", "step_time",   "time/wait",
                                            "time/exchange", "num_tokens",        NULL};
    cli_sheet shown = {.nested = 1};
    if (r->json) {
        cli_sheet_value(r, "metrics", line);
        return;
    }
    for (size_t i = 0; main_ones[i]; i++) {
        const rein_json *value = rein_json_get(line, main_ones[i]);
        if (rein_json_kind_of(value) != REIN_JSON_NUMBER) continue;
        char text[40];
        snprintf(text, sizeof text, "%.6g", rein_json_number(value));
        cli_sheet_text(&shown, main_ones[i], text);
    }
    if (rein_json_true(rein_json_get(line, "nothing_to_train"))) rein_text_put(&shown.out, "  nothing to train\n");
    cli_sheet_nest(r, "metrics", line ? "of the last step" : "none", &shown);
}

/* The state.json of a checkpoint; NULL if it cannot be read. Without memory the sheet fails. */
static rein_json *read_state(cli_sheet *r, const char *path, const char *checkpoint) {
    rein_text file = {0};
    rein_json *state = NULL;
    rein_status status = REIN_ENOMEM;
    rein_text_format(&file, "%s/%sstate.json", path, checkpoint);
    if (!file.failed) status = rein_json_read(&state, file.data, REIN_JSON_NEEDS_OBJECT, NULL);
    if (status == REIN_ENOMEM) r->out.failed = 1;
    rein_text_free(&file);
    return state;
}

/* The run that this one was forked from; its first checkpoint has it. */
static void put_origin(cli_sheet *r, const char *path) {
    rein_json *state = read_state(r, path, "checkpoints/0000/");
    const rein_json *origin = rein_json_get(state, "forked_from");
    const char *run = rein_json_string(rein_json_get(origin, "run"));
    if (r->json) cli_sheet_value(r, "forked_from", origin);
    else if (origin) {
        cli_sheet_name(r, "forked_from");
        rein_text_format(&r->out, "%s@%lld\n", run ? run : "a run", (long long)rein_json_number(rein_json_get(origin, "step")));
    }
    rein_json_free(state);
}

/* ------------------------------------------------------------------------------------------------------------------------ a run */

int cli_inspect_run(const char *path, int json) {
    cli_sheet r = {.json = json};
    rein_error err = {0};
    rein_settings *settings = NULL;
    rein_run *run = NULL;
    int64_t last_good;
    int status = cli_directory_has(path, "config.yaml") ? cli_run_settings(&settings, path, WHERE)
                 : rein_settings_new(&settings, &err)   ? cli_say_error(WHERE, &err)
                                                        : CLI_DONE; /* stopped before its first step */
    rein_json *line = NULL;
    if (!status && rein_run_open(&run, path, REIN_RUN_READ, &err)) status = cli_say_error(WHERE, &err);
    if (!status) status = read_last_line(&line, path);
    if (status) return rein_json_free(line), rein_run_close(run), rein_settings_free(settings), status;
    const char *model = rein_settings_text(settings, "model");
    cli_sheet_text(&r, "run", path);
    cli_sheet_text(&r, "model", *model ? model : NULL);
    cli_sheet_text(&r, "trains", rein_settings_number(settings, "full") > 0 ? "all weights" : "an adapter");
    if (*rein_settings_text(settings, "critic")) cli_sheet_text(&r, "critic", rein_settings_text(settings, "critic"));
    put_origin(&r, path);
    put_settings(&r, settings);
    cli_sheet_count(&r, "steps", line ? (int64_t)rein_json_number(rein_json_get(line, "step")) : 0);
    put_checkpoints(&r, &last_good, run);
    cli_sheet_count_or_none(&r, "last_good", last_good);
    put_metrics(&r, line);
    rein_json_free(line);
    rein_run_close(run);
    rein_settings_free(settings);
    return cli_sheet_finish(&r, CLI_DONE);
}

/* ----------------------------------------------------------------------------------------------------------------- a checkpoint */

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static void put_files(cli_sheet *r, const char *path) {
    struct dirent **entries = NULL;
    cli_sheet files = {.json = r->json, .nested = 1};
    char text[40];
    errno = 0;
    const int n = scandir(path, &entries, is_visible, alphasort);
    if (n < 0 && errno == ENOMEM) r->out.failed = 1;
    for (int i = 0; i < n; i++) {
        rein_text file = {0};
        struct stat about = {0};
        rein_text_format(&file, "%s/%s", path, entries[i]->d_name);
        if (!file.failed && stat(file.data, &about)) about.st_size = 0;
        r->out.failed |= file.failed;
        snprintf(text, sizeof text, "%lld bytes", (long long)about.st_size);
        if (r->json) cli_sheet_count(&files, entries[i]->d_name, about.st_size);
        else cli_sheet_text(&files, entries[i]->d_name, text);
        rein_text_free(&file);
        free(entries[i]);
    }
    free(entries);
    snprintf(text, sizeof text, "%d", n > 0 ? n : 0);
    cli_sheet_nest(r, "files", text, &files);
}

/* The files that the run is made with, for people. */
static void put_made_with(cli_sheet *r, const rein_json *files) {
    const char *name;
    const rein_json *file;
    cli_sheet list = {.nested = 1};
    char text[80];
    int n = 0;
    for (void *at = NULL; (at = rein_json_next(&name, &file, files, at)); n++) {
        const char *hash = rein_json_string(rein_json_get(file, "hash"));
        const char *command = rein_json_string(rein_json_get(file, "command"));
        snprintf(text, sizeof text, "%.0f bytes with hash %.16s", rein_json_number(rein_json_get(file, "size")), hash ? hash : "?");
        cli_sheet_text(&list, name, command ? command : text);
    }
    snprintf(text, sizeof text, "%d files", n);
    cli_sheet_nest(r, "made_with", text, &list);
}

static void put_state(cli_sheet *r, const char *path) {
    const char *name;
    const rein_json *value;
    rein_json *state = read_state(r, path, "");
    if (r->json) cli_sheet_value(r, "state", state);
    for (void *at = NULL; !r->json && (at = rein_json_next(&name, &value, state, at));) {
        if (!strcmp(name, "step")) continue;
        if (!strcmp(name, "files")) put_made_with(r, value);
        else if (rein_json_string(value)) cli_sheet_text(r, name, rein_json_string(value));
        else cli_sheet_value(r, name, value);
    }
    rein_json_free(state);
}

static int put_policy(cli_sheet *r, const cli_args *args, const char *path) {
    cli_opened opened = {.name = path, .takes_rewards = 1};
    if (cli_directory_has(path, "adapter_config.json")) return cli_inspect_adapter(r, path);
    const int status = cli_opened_open(&opened, args);
    if (!status) cli_inspect_model(r, &opened);
    cli_opened_close(&opened);
    return status;
}

int cli_inspect_checkpoint(const cli_args *args, const char *path, int json) {
    cli_sheet r = {.json = json};
    rein_error err = {0};
    rein_run *run = NULL;
    int64_t step;
    char directory[PATH_MAX];
    if (!split(directory, &step, path)) return cli_say(CLI_WRONG, WHERE, "%s is not a checkpoint any more", path);
    if (rein_run_open(&run, directory, REIN_RUN_READ, &err)) return cli_say_error(WHERE, &err);
    const rein_status good = rein_checkpoint_verify(run, step, &err);
    rein_run_close(run);
    cli_sheet_text(&r, "checkpoint", path);
    cli_sheet_text(&r, "run", directory);
    cli_sheet_count(&r, "step", step);
    cli_sheet_yes(&r, "good", !good);
    if (good || json) cli_sheet_text(&r, "problem", good ? err.message : NULL);
    put_files(&r, path);
    if (good) return cli_sheet_finish(&r, CLI_DONE) ? CLI_FAILED : cli_say(CLI_FAILED, WHERE, "%s", err.message);
    put_state(&r, path);
    return cli_sheet_finish(&r, put_policy(&r, args, path));
}
