/* watch.c - `rein watch`: follows the history of a run as it grows. It changes nothing. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "history.h"
#include "policy.h"
#include "progress.h"
#include "rein/report.h"
#include "settings.h"
#include "terminal.h"
#include "view.h"

static const char WHERE[] = "watch";

typedef struct watching {
    const char *run;
    rein_settings *settings;
    cli_view view;
    int64_t at;   /* bytes of the history that are shown */
    int64_t last; /* step */
    int64_t steps;
    int said; /* that no process writes the run */
} watching;

/* The first evaluation comes before the first step. */
static int show_base(watching *w) {
    cli_history file;
    rein_json *line = NULL;
    int status = cli_history_open(&file, w->run, "evaluations.jsonl", 0, WHERE);
    if (!status) status = cli_history_next(&line, &file, WHERE);
    if (line) {
        const cli_view_step s = cli_view_step_of(line);
        cli_view_evaluated(&w->view, &s);
    }
    rein_json_free(line);
    cli_history_close(&file);
    return status;
}

static int show_new(watching *w) { return cli_history_steps(&w->view, &w->at, &w->last, w->run, INT64_MAX, cli_view_add, WHERE); }

/* 1 if a process has the run open for writing, or if that cannot be known. The writer holds flock's lock on RUN/.lock; a shared lock,
 * released at once, tells. */
static int is_being_written(const char *run) {
    rein_text path = {0};
    rein_text_format(&path, "%s/.lock", run);
    const int lock = path.failed ? -1 : open(path.data, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const int missing = !path.failed && lock < 0 && errno == ENOENT; /* of a copy of a run */
    rein_text_free(&path);
    if (lock < 0) return !missing;
    const int held = flock(lock, LOCK_SH | LOCK_NB) != 0;
    close(lock);
    return held;
}

/* Said once, and again after the run was resumed and ended early again. */
static void say_if_dead(watching *w) {
    const char *command = NULL;
    rein_error err = {0};
    if (w->said || w->steps <= 0 || w->last >= w->steps || is_being_written(w->run)) return;
    if (rein_report_plan(&command, w->run, &err)) command = NULL; /* no memory: a hint is not worth an error */
    if (!command) command = *rein_settings_text(w->settings, "task") ? "run" : "train";
    cli_say(0, WHERE, "no process is writing %s: resume with rein %s %s", w->run, command, w->run);
    w->view.drawn = 0; /* the picture stays above the message */
    w->said = 1;
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
    w.steps = (int64_t)rein_settings_number(w.settings, *task ? "steps" : "total_steps");
    snprintf(title, sizeof title, "%s%s%.100s", w.run, *task ? ": " : "", task);
    const int once = cli_option_value(args, "once") != NULL; /* what it shows is data */
    cli_view_open(&w.view, once ? stdout : stderr, title, 0, w.steps, rein_settings_number(w.settings, "token_budget"));
    w.view.began = NAN; /* the time of the steps is unknown: no rate */
    status = w.view.failed ? cli_say_no_memory(WHERE) : show_base(&w);
    if (!status) status = show_new(&w);
    cli_catch_interrupts_silently();
    if (!status) say_if_dead(&w);
    while (!status && !once && !cli_progress_interrupted() && !ferror(stderr) && !(w.steps > 0 && w.last >= w.steps)) {
        const int64_t before = w.last;
        pause_a_little();
        status = show_new(&w);
        if (w.last != before) w.said = 0;
        else if (!status) say_if_dead(&w);
    }
    if (!status && !w.last) status = cli_say(CLI_DONE, WHERE, "%s has made no step yet", w.run);
    cli_view_close(&w.view);
    rein_settings_free(w.settings);
    return status;
}
