/* crash_scenarios.h - what is done to runs while disks crash, and what must hold of them afterwards. */
#ifndef REIN_TESTS_CRASH_SCENARIOS_H
#define REIN_TESTS_CRASH_SCENARIOS_H

#include "train/crash.h"
#include "train/run_files.h"

enum { LAST_OF_BASE = 3, FORKED = 2 };

typedef struct scenario {
    const char *title;
    int access; /* how the run is opened before `work`; NOT_OPENED: by `work` */
    void (*prepare)(void);
    rein_status (*work)(rein_run **run, rein_error *err);
    const int64_t *always; /* steps that are there whatever happens; ended by -1 */
    const int64_t *gone;   /* steps that are not there when it is done; ended by -1 */
    int64_t before, after; /* the last good step; -1: none */
    int64_t lines_before, lines_after;
    int64_t bad_before;                   /* the step of a checkpoint that is not good before; -1: none */
    int64_t content_plus;                 /* the checkpoint of step s has the content of step s + this */
    const char *text_before, *text_after; /* of TEXT_NAME; NULL: there is none */
} scenario;

enum { NOT_OPENED = -1 };

/* Where the run is below the root, so that a new one makes more than one directory. */
#define RUN_NAME "deep/run"
#define TEXT_NAME "trajectories/train/0000.jsonl"

static const char *live(void) { return in_folder("live/" RUN_NAME); }

/* -------------------------------------------------------------------------------------------------------------------- scenarios */

static void must(rein_status status, const rein_error *err) {
    if (status) disk_broken("cannot prepare", err->message);
}

/* Checkpoints and lines 0 to 3. */
static void prepare_base(void) {
    rein_error err;
    must(make_run(live(), LAST_OF_BASE, &err), &err);
}

static void prepare_nothing(void) {}

static void prepare_long(void) {
    rein_error err;
    must(make_run(live(), 6, &err), &err);
}

static void prepare_source(void) {
    rein_error err;
    must(make_run(in_folder("live/source"), LAST_OF_BASE, &err), &err);
}

/* As a bit that fell over on the disk. */
static void prepare_bad(void) {
    prepare_base();
    const int fd = __real_open(in_folder("live/" RUN_NAME "/checkpoints/0003/adapter_model.safetensors"), O_WRONLY);
    if (fd < 0 || __real_write(fd, "?", 1) != 1) disk_broken("cannot prepare", "a bad checkpoint");
    __real_close(fd);
}

static void prepare_text(void) {
    rein_run *run;
    rein_error err;
    prepare_base();
    must(rein_run_open(&run, live(), REIN_RUN_RESUME, &err), &err);
    must(rein_run_write_text(run, TEXT_NAME, "old\n", 4, &err), &err);
    rein_run_close(run);
}

/* Two lines more than checkpoints. */
static void prepare_ahead(void) {
    rein_run *run;
    rein_error err;
    prepare_base();
    must(rein_run_open(&run, live(), REIN_RUN_RESUME, &err), &err);
    must(append_line(run, 4, &err), &err);
    must(append_line(run, 5, &err), &err);
    rein_run_close(run);
}

static rein_status work_commit(rein_run **run, rein_error *err) { return write_checkpoint(*run, 4, 0, err); }
static rein_status work_commit_written(rein_run **run, rein_error *err) { return write_checkpoint(*run, 4, 1, err); }
static rein_status work_commit_same(rein_run **run, rein_error *err) { return write_checkpoint(*run, 3, 0, err); }
static rein_status work_append(rein_run **run, rein_error *err) { return append_line(*run, 4, err); }
static rein_status work_text(rein_run **run, rein_error *err) {
    return rein_run_write_text(*run, TEXT_NAME, "brand new\n", 10, err);
}

static rein_status work_step(rein_run **run, rein_error *err) {
    const rein_status status = (*run)->history_step == 4 ? REIN_OK : append_line(*run, 4, err);
    return status ? status : write_checkpoint(*run, 4, 0, err);
}

static rein_status work_retain(rein_run **run, rein_error *err) {
    static const int64_t needed[] = {1};
    const rein_retention rule = {.keep_last = 2, .keep_best = "reward", .needed = needed, .n_needed = 1};
    return rein_run_retain(NULL, NULL, *run, &rule, err);
}

static int64_t resumed_from;

static rein_status work_resume(rein_run **run, rein_error *err) {
    char note[REIN_NOTE_SIZE];
    return rein_run_resume(&resumed_from, note, *run, err);
}

static rein_status work_fork(rein_run **run, rein_error *err) {
    return rein_run_fork(run, live(), in_folder("live/source"), FORKED, err);
}

static rein_status work_create(rein_run **run, rein_error *err) {
    rein_status status = *run ? REIN_OK : rein_run_open(run, live(), REIN_RUN_CREATE, err);
    if (!status) status = work_text(run, err);
    if (!status && (*run)->history_step < 0) status = append_line(*run, 0, err);
    return status ? status : write_checkpoint(*run, 0, 0, err);
}

static const int64_t NO_STEP[] = {-1}, TO_2[] = {0, 1, 2, -1}, TO_3[] = {0, 1, 2, 3, -1}, KEPT[] = {0, 1, 2, 5, 6, -1},
                     DELETED[] = {3, 4, -1}, ONLY_3[] = {3, -1};

static const scenario scenarios[] = {
    {"a checkpoint", REIN_RUN_RESUME, prepare_base, work_commit, TO_3, NO_STEP, 3, 4, 4, 4, -1, 0, NULL, NULL},
    {"a checkpoint of files written atomically", REIN_RUN_RESUME, prepare_base, work_commit_written, TO_3, NO_STEP, 3, 4, 4, 4, -1,
     0, NULL, NULL},
    {"a checkpoint that is there already", REIN_RUN_RESUME, prepare_base, work_commit_same, TO_3, NO_STEP, 3, 3, 4, 4, -1, 0, NULL,
     NULL},
    {"a line of the history", REIN_RUN_RESUME, prepare_base, work_append, TO_3, NO_STEP, 3, 3, 4, 5, -1, 0, NULL, NULL},
    {"a step: a line and a checkpoint", REIN_RUN_RESUME, prepare_base, work_step, TO_3, NO_STEP, 3, 4, 4, 5, -1, 0, NULL, NULL},
    {"lines beyond the checkpoint dropped", REIN_RUN_RESUME, prepare_ahead, work_resume, TO_3, NO_STEP, 3, 3, 6, 4, -1, 0, NULL,
     NULL},
    {"a resume that falls back", REIN_RUN_RESUME, prepare_bad, work_resume, TO_2, ONLY_3, 2, 2, 4, 3, 3, 0, NULL, NULL},
    {"a text", REIN_RUN_RESUME, prepare_text, work_text, TO_3, NO_STEP, 3, 3, 4, 4, -1, 0, "old\n", "brand new\n"},
    {"retention", REIN_RUN_RESUME, prepare_long, work_retain, KEPT, DELETED, 6, 6, 7, 7, -1, 0, NULL, NULL},
    {"a fork", NOT_OPENED, prepare_source, work_fork, NO_STEP, NO_STEP, -1, 0, 0, 0, -1, FORKED, NULL, NULL},
    {"a new run", NOT_OPENED, prepare_nothing, work_create, NO_STEP, NO_STEP, -1, 0, 0, 1, -1, 0, NULL, "brand new\n"},
};
enum { A_CHECKPOINT = 0, A_LINE = 3, A_TEXT = 7, RETENTION = 8, SCENARIOS = sizeof scenarios / sizeof *scenarios };

/* ------------------------------------------------------------------------------------------------------------------ what must hold */

static const char *history_problem(const char *directory, int64_t lines) {
    char *path = rein_path_join(directory, "history.jsonl"), *expected = lines_text(0, lines - 1), *found = NULL;
    size_t size = 0;
    const char *problem = NULL;
    if (rein_file_read(&found, &size, path) != 0) problem = "history.jsonl cannot be read";
    else if (size != strlen(expected) || memcmp(found, expected, size) != 0) problem = "history.jsonl holds something else";
    free(found);
    free(path);
    free(expected);
    return problem;
}

static const char *text_problem(const scenario *s, const char *directory, int done) {
    char *path = rein_path_join(directory, TEXT_NAME), *found = NULL;
    size_t size = 0;
    const int exists = rein_file_read(&found, &size, path) == 0;
    const int is_old = s->text_before ? exists && !strcmp(found, s->text_before) : !exists;
    const int is_new = s->text_after ? exists && !strcmp(found, s->text_after) : !exists;
    free(found);
    free(path);
    return is_new || (is_old && !done) ? NULL : "the text is neither the old nor the new one";
}

static int lists(const rein_run *run, int64_t step) {
    for (size_t i = 0; i < run->n_steps; i++)
        if (run->steps[i] == step) return 1;
    return 0;
}

/* Every checkpoint that is listed is whole and the one of its step, and those that must be there are. */
static const char *steps_problem(const scenario *s, const rein_run *run, int done) {
    for (size_t i = 0; i < run->n_steps; i++) {
        const char *problem = checkpoint_problem(run, run->steps[i], run->steps[i] + s->content_plus);
        if (problem && (done || run->steps[i] != s->bad_before)) return problem;
    }
    for (const int64_t *step = s->always; *step >= 0; step++)
        if (!lists(run, *step)) return "a checkpoint is gone";
    for (const int64_t *step = s->gone; *step >= 0 && done; step++)
        if (lists(run, *step)) return "a checkpoint is still there";
    return NULL;
}

static const char *leftover_problem(const rein_run *run) {
    const char *problem = NULL;
    rein_names names;
    if (rein_directory_list(&names, run->checkpoints, NULL) != REIN_OK) problem = "checkpoints cannot be listed";
    for (size_t i = 0; i < names.n; i++)
        if (names.at[i][0] == '.') problem = "something unfinished was left behind";
    rein_names_free(&names);
    return problem;
}

/* One more step: resume, line, checkpoint. */
static const char *going_on_problem(const scenario *s, rein_run *run, int done) {
    int64_t step;
    char note[REIN_NOTE_SIZE];
    const int has_bad = lists(run, s->bad_before);
    if (rein_run_resume(&step, note, run, NULL) != REIN_OK) return "it cannot be resumed";
    if (step != s->after && (done || step != s->before)) return "the last good checkpoint is another";
    if (!!note[0] != has_bad) return "falling back is not note, or note without need";
    if (s->lines_after && history_problem(run->directory, step + 1 < s->lines_after ? step + 1 : s->lines_after))
        return "resuming leaves another history";
    if (run->history_step <= step && append_line(run, step + 1, NULL) != REIN_OK) return "no line can be added";
    if (write_checkpoint(run, step + 1, 0, NULL) != REIN_OK) return "no checkpoint can be added";
    return checkpoint_problem(run, step + 1, step + 1);
}

/* What is wrong with a run that was left by a power cut, or NULL. */
static const char *problem_of(const scenario *s, const char *directory, int done) {
    rein_run *run;
    rein_error err;
    static char note[700];
    if (rein_run_open(&run, directory, REIN_RUN_RESUME, &err) != REIN_OK) {
        snprintf(note, sizeof note, "it cannot be opened: %s", err.message);
        return note;
    }
    const char *problem = steps_problem(s, run, done);
    if (!problem && history_problem(directory, s->lines_after) && (done || history_problem(directory, s->lines_before)))
        problem = "history.jsonl holds something else";
    if (!problem) problem = text_problem(s, directory, done);
    if (!problem) problem = leftover_problem(run);
    if (!problem) problem = going_on_problem(s, run, done);
    rein_run_close(run);
    return problem;
}

#endif
