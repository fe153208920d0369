/* watch.c - `rein watch`: follows the history of a run as it grows. It locks nothing and changes nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy.h"
#include "progress.h"
#include "settings.h"
#include "terminal.h"
#include "view.h"

static const char WHERE[] = "watch";

typedef struct watching {
    const char *run;
    rein_settings *settings;
    cli_view view;
    long at;      /* bytes of the history that are shown */
    int64_t last; /* step */
} watching;

static FILE *open_file(const watching *w, const char *name) {
    rein_text path = {0};
    rein_text_format(&path, "%s/%s", w->run, name);
    FILE *file = path.failed ? NULL : fopen(path.data, "r");
    rein_text_free(&path);
    return file;
}

static cli_view_step step_of(const rein_json *line) {
    cli_view_step s = cli_view_step_none((int64_t)rein_json_number(rein_json_get(line, "step")));
    const char *name;
    const rein_json *value;
    for (void *at = NULL; (at = rein_json_next(&name, &value, line, at));)
        if (rein_json_kind_of(value) == REIN_JSON_NUMBER) cli_view_step_set(&s, name, rein_json_number(value));
    return s;
}

/* The first evaluation comes before the first step. */
static void show_base(watching *w) {
    FILE *file = open_file(w, "evaluations.jsonl");
    char line[4096];
    if (file && fgets(line, sizeof line, file)) {
        rein_json *root;
        if (!rein_json_parse(&root, line, strlen(line), NULL, REIN_JSON_NEEDS_OBJECT, NULL)) {
            const cli_view_step s = step_of(root);
            cli_view_evaluated(&w->view, &s);
        }
        rein_json_free(root);
    }
    if (file) fclose(file);
}

/* Reads whole lines only: the last one may be incomplete. */
static void show_new(watching *w) {
    FILE *file = open_file(w, "history.jsonl");
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    /* The history of a run that resumed from an earlier step is shorter. */
    if (!file || fseek(file, 0, SEEK_END) || ftell(file) < w->at) w->at = 0;
    if (file) fseek(file, w->at, SEEK_SET);
    while (file && (length = getline(&line, &size, file)) > 0 && line[length - 1] == '\n') {
        w->at = ftell(file);
        rein_json *root;
        rein_json_parse(&root, line, (size_t)length, NULL, REIN_JSON_NEEDS_OBJECT, NULL);
        const cli_view_step s = root ? step_of(root) : cli_view_step_none(-1);
        rein_json_free(root);
        if (s.step < 0) continue;
        cli_view_add(&w->view, &s);
        w->last = s.step;
    }
    free(line);
    if (file) fclose(file);
}

static void pause_a_little(void) {
    const struct timespec half = {0, 500000000};
    nanosleep(&half, NULL);
}

int cli_run_watch(const cli_args *args) {
    watching w = {.run = args->n_words ? args->words[0] : NULL};
    char title[300];
    if (!w.run) return cli_say(CLI_WRONG, WHERE, "a run is needed: rein watch RUN");
    if (!cli_directory_has(w.run, "config.yaml")) return cli_say(CLI_WRONG, WHERE, "%s is not a run: it has no config.yaml", w.run);
    int status = cli_run_settings(&w.settings, w.run, WHERE);
    if (status) return rein_settings_free(w.settings), status;
    const char *task = rein_settings_text(w.settings, "task");
    const int64_t steps = (int64_t)rein_settings_number(w.settings, *task ? "steps" : "total_steps");
    snprintf(title, sizeof title, "%s%s%.100s", w.run, *task ? ": " : "", task);
    cli_view_open(&w.view, title, 0, steps, rein_settings_number(w.settings, "token_budget"));
    w.view.began = NAN; /* the time of the steps is unknown: no rate */
    show_base(&w);
    show_new(&w);
    cli_catch_interrupts();
    while (!cli_option_value(args, "once") && !cli_progress_interrupted() && !(steps > 0 && w.last >= steps)) {
        pause_a_little();
        show_new(&w);
    }
    if (!w.last) status = cli_say(CLI_DONE, WHERE, "%s has made no step yet", w.run);
    cli_view_close(&w.view);
    rein_settings_free(w.settings);
    return status;
}
