/* task.c - the table of built-in tasks, and what every task has, built in, a file or a program: a name, examples, perhaps a verifier.
 *
 * A built-in task is endless. The hash of a prompt decides its split, and a prompt of the other split is drawn again: so no prompt is in
 * both, whatever the seed and the index. */
#include "task.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/random.h"
#include "episodes.h"
#include "model/tokenizer_parts.h"

enum { MAX_ATTEMPTS = 10000, HELD_OUT_PART = 8 };
enum { ASKING = 0, DEMONSTRATING = 1 };

static const rein_builtin_task *const BUILTIN[] = {&rein_task_sums, &rein_task_sort, &rein_task_format};
enum { N_BUILTIN = sizeof BUILTIN / sizeof *BUILTIN };

struct rein_task {
    char *name;
    rein_task_options options;
    const rein_builtin_task *builtin; /* one of the four */
    rein_task_file *file;
    rein_task_program *program;
    rein_environment *environment;
};

const rein_task_info *rein_task_at(size_t i) { return i < N_BUILTIN ? &BUILTIN[i]->info : NULL; }

/* -------------------------------------------------------------------------------------------------------------- what tasks use */

/* The numbers beyond the last multiple of n are drawn again. */
uint64_t rein_draw(rein_draws *d, uint64_t n) {
    const uint64_t beyond = (UINT64_MAX - n + 1) % n; /* 2^64 mod n */
    for (;;) {
        const uint64_t bits = rein_random_bits(d->seed, REIN_RANDOM_TASK, d->purpose, d->index, d->attempt, d->n++);
        if (bits >= beyond) return bits % n;
    }
}

/* ------------------------------------------------------------------------------------------------------------- open and close */

static const char EXAMPLES[] = "examples:", ENVIRONMENT[] = "env:";

static const rein_builtin_task *builtin_named(const char *name) {
    for (size_t i = 0; i < N_BUILTIN; i++)
        if (!strcmp(BUILTIN[i]->info.name, name)) return BUILTIN[i];
    return NULL;
}

/* A regular file without permission to execute: data under a name that does not say so. The shell would run "data/plain" as a script. */
static int is_plain(const char *source) {
    struct stat about;
    return stat(source, &about) == 0 && S_ISREG(about.st_mode) && !(about.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH));
}

static rein_status unknown(const char *source, rein_error *err) {
    const char *names[N_BUILTIN + 1] = {NULL};
    char shown[REIN_TEXT_SHOWN], list[100] = "";
    for (size_t i = 0, at = 0; i < N_BUILTIN; i++) {
        names[i] = BUILTIN[i]->info.name;
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = rein_nearest(source, names);
    rein_json_quote(shown, source);
    if (near) return rein_fail_at(err, REIN_EINVAL, "task", -1, "%s is unknown: did you mean %s?", shown, near);
    if (is_plain(source))
        return rein_fail_at(err, REIN_EINVAL, "task", -1,
                            "%s is a file that cannot be executed: the name of examples ends in .jsonl (one JSON object a line) or "
                            ".json (an array); a program needs chmod +x",
                            shown);
    if (rein_file_exists(source))
        return rein_fail_at(
            err, REIN_EINVAL, "task", -1,
            "%s is unknown: a file of examples has a name that ends in .jsonl, a program that is run a slash (./%s)", shown,
            source);
    return rein_fail_at(
        err, REIN_EINVAL, "task", -1,
        "%s is unknown: there are %s, files (NAME.jsonl), commands (with a blank or a slash in them) and env: COMMAND", shown,
        list);
}

static int ends_with(const char *text, const char *end) {
    return strlen(text) >= strlen(end) && !strcmp(text + strlen(text) - strlen(end), end);
}

/* A name of data is never run. A command may end with one: "python3 task.py data.jsonl". */
static int is_file(const char *source) {
    static const char *const ends[] = {".jsonl", ".json", ".csv", ".tsv", ".parquet"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(source, ends[i])) return !strpbrk(source, " \t\n") || rein_file_exists(source);
    return 0;
}

rein_task_kind rein_task_kind_of(const char *source) {
    if (builtin_named(source)) return REIN_TASK_BUILTIN;
    if (!strncmp(source, EXAMPLES, strlen(EXAMPLES))) return REIN_TASK_EXAMPLES;
    if (!strncmp(source, ENVIRONMENT, strlen(ENVIRONMENT))) return REIN_TASK_ENVIRONMENT;
    if (is_file(source)) return REIN_TASK_FILE;
    if (is_plain(source)) return REIN_TASK_UNKNOWN;
    return strpbrk(source, " \t\n/") ? REIN_TASK_PROGRAM : REIN_TASK_UNKNOWN;
}

const char *rein_task_command(const char *source) {
    const rein_task_kind kind = rein_task_kind_of(source);
    if (kind == REIN_TASK_PROGRAM) return source;
    if (kind != REIN_TASK_ENVIRONMENT) return NULL;
    source += strlen(ENVIRONMENT);
    return source + strspn(source, " \t\n");
}

int rein_task_is_divided(rein_task_kind kind) { return kind == REIN_TASK_FILE || kind == REIN_TASK_EXAMPLES; }

/* Options that have no effect are errors. */
static rein_status check_options(const rein_task *t, rein_task_kind kind, rein_error *err) {
    if (t->options.held_out_share != 0 && !rein_task_is_divided(kind))
        return rein_fail_at(err, REIN_EINVAL, "held_out_share", -1,
                            "is %g: it has no effect, because only a list of examples is divided", t->options.held_out_share);
    const int runs = kind == REIN_TASK_PROGRAM || kind == REIN_TASK_ENVIRONMENT;
    if (t->options.directory && *t->options.directory && !runs)
        return rein_fail_at(err, REIN_EINVAL, "directory", -1, "has no effect, because the task is not a program");
    if (t->options.timeout != 0 && !runs)
        return rein_fail_at(err, REIN_EINVAL, "timeout", -1, "is %g: it has no effect, because the task is not a program",
                            t->options.timeout);
    return REIN_OK;
}

/* Examples that the calling program has. */
static rein_status open_examples(rein_task *t, const char *source, rein_error *err) {
    const rein_task_options *o = &t->options;
    for (size_t i = 0; i < o->n_texts; i++)
        if (!strcmp(o->texts[i].name, source + strlen(EXAMPLES)))
            return rein_task_file_from_memory(&t->file, o->texts[i].text, o->texts[i].length, source, o->held_out_share, err);
    return rein_fail(err, REIN_EINVAL,
                     "the task was a list of examples in the memory of the program that started the run: give the list again (in "
                     "Python task=[...])");
}

static rein_status open_source(rein_task *t, const char *source, rein_error *err) {
    const rein_task_kind kind = rein_task_kind_of(source);
    if (kind == REIN_TASK_UNKNOWN) return unknown(source, err);
    const rein_status status = check_options(t, kind, err);
    t->builtin = builtin_named(source);
    if (status || t->builtin) return status;
    if (kind == REIN_TASK_EXAMPLES) return open_examples(t, source, err);
    if (kind == REIN_TASK_FILE) return rein_task_file_open(&t->file, source, t->options.held_out_share, err);
    if (kind == REIN_TASK_PROGRAM) return rein_task_program_open(&t->program, source, &t->options, err);
    const char *command = rein_task_command(source);
    if (!*command)
        return rein_fail(err, REIN_EINVAL, "\"%s\" has no command: env: COMMAND is needed, as in docs/agents.md", source);
    return rein_environment_open(&t->environment, command, &t->options, err);
}

rein_status rein_task_open(rein_task **task, const char *source, const rein_task_options *options, rein_error *err) {
    *task = NULL;
    rein_task *t = calloc(1, sizeof *t);
    if (!t) return rein_no_memory(err);
    if (options) t->options = *options;
    rein_status status = rein_text_copy(&t->name, source, strlen(source), err);
    if (!status) status = open_source(t, source, err);
    t->options.texts = NULL, t->options.n_texts = 0; /* they need not outlive this call */
    if (!status) return *task = t, REIN_OK;
    rein_task_close(t);
    return rein_fail_as(err, status, "task", -1, NULL);
}

void rein_task_close(rein_task *task) {
    if (!task) return;
    rein_task_file_close(task->file);
    rein_task_program_close(task->program);
    rein_environment_close(task->environment);
    free(task->name);
    free(task);
}

const char *rein_task_name(const rein_task *task) { return task->name; }

rein_status rein_task_fail_in(rein_error *err, rein_status status, const rein_task *task, rein_split split, uint64_t index) {
    char shown[REIN_PATH_SHOWN];
    if (task->file)
        return rein_fail_in(err, status, "%s: line %zu", rein_path_show(shown, task->name),
                            rein_task_file_line(task->file, split, index));
    return rein_fail_in(err, status, "task %.60s, example %llu%s", task->name, (unsigned long long)index,
                        split == REIN_SPLIT_HELD_OUT ? " (held out)" : "");
}

size_t rein_task_size(const rein_task *task, rein_split split) {
    if (task->environment) return rein_environment_size(task->environment, split);
    return task->file ? rein_task_file_size(task->file, split) : SIZE_MAX;
}

rein_environment *rein_task_environment(const rein_task *task) { return task->environment; }

/* -------------------------------------------------------------------------------------------------------------- built-in tasks */

static rein_split split_of(const char *prompt) {
    return rein_hash(prompt, strlen(prompt)) % HELD_OUT_PART == 0 ? REIN_SPLIT_HELD_OUT : REIN_SPLIT_TRAIN;
}

static rein_status make_example(rein_example *example, const rein_question *question, rein_error *err) {
    json_t *object = json_pack("{s:s, s:s}", "prompt", question->prompt, "answer", question->answer);
    if (!object) return rein_no_memory(err);
    const rein_status status = rein_example_read(example, object, "", err);
    json_decref(object);
    return status;
}

static rein_status ask(rein_example *example, const rein_task *task, rein_split split, uint64_t index, rein_error *err) {
    rein_question question;
    for (uint64_t attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        rein_draws draws = {.seed = task->options.seed, .purpose = ASKING, .index = index, .attempt = 2 * attempt + split};
        task->builtin->ask(&question, &draws);
        if (split_of(question.prompt) == split) return make_example(example, &question, err);
    }
    return rein_fail(err, REIN_END, "task %s has no example for this split in %d attempts", task->name, MAX_ATTEMPTS);
}

rein_status rein_task_example(rein_example *example, rein_task *task, rein_split split, uint64_t index, rein_error *err) {
    *example = (rein_example){0};
    if (split != REIN_SPLIT_TRAIN && split != REIN_SPLIT_HELD_OUT)
        return rein_fail_at(err, REIN_EINVAL, "split", -1, "is %d: there are two, 0 and 1", (int)split);
    if (task->file) return rein_task_file_example(example, task->file, split, index, err);
    if (task->environment) return rein_environment_example(example, task->environment, split, index, err);
    return task->program ? rein_task_program_example(example, task->program, split, index, err)
                         : ask(example, task, split, index, err);
}

/* 1 if the example is that of a built-in task: only those can be verified. */
static int is_asked(const rein_example *example) {
    return example->prompt && example->answer && !strncmp(example->prompt, "Q:", 2);
}

int rein_task_verifies(const rein_task *task) { return task->builtin || task->environment; }

double rein_task_verify(const rein_task *task, const rein_example *example, const char *response, size_t length) {
    if (!task->builtin) return NAN;
    return is_asked(example) && task->builtin->right(example, response, length);
}

rein_status rein_task_demonstrate(rein_text *text, const rein_task *task, const rein_example *example, uint64_t index,
                                  rein_error *err) {
    const size_t before = text->length;
    rein_draws draws = {.seed = task->options.seed, .purpose = DEMONSTRATING, .index = index};
    if (!task->builtin)
        return rein_fail(err, REIN_EINVAL, "task %s has no demonstrations: only built-in tasks have them", task->name);
    if (!is_asked(example)) return rein_fail(err, REIN_EINVAL, "the example is not one of task %s", task->name);
    const rein_status status = task->builtin->demonstrate(text, example, &draws, err);
    if (status) rein_text_cut(text, before);
    return status;
}
