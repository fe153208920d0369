/* run_retain.c - which checkpoints stay. One goes by way of a hidden name: as long as it is listed it is whole. */
#include <stdio.h>
#include <stdlib.h>

#include "base/directory.h"
#include "base/file.h"
#include "run.h"

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "out of memory"); }

static int has_step(const int64_t *steps, size_t n, int64_t step) {
    for (size_t i = 0; i < n; i++)
        if (steps[i] == step) return 1;
    return 0;
}

/* Of the checkpoints that have the metric in their line of the history; -1: none has. */
static rein_status find_best(int64_t *best, const rein_run *run, const rein_retention *rule, rein_error *err) {
    rein_run_lines *lines;
    json_t *line;
    double record = 0;
    rein_status status = rein_run_history_open(&lines, run, err);
    while (!status && !(status = rein_run_history_next(&line, lines, err))) {
        const int64_t step = json_integer_value(json_object_get(line, "step"));
        const json_t *value = json_object_get(line, rule->keep_best);
        const double x = json_number_value(value);
        const int has_both = json_is_number(value) && has_step(run->steps, run->n_steps, step);
        if (has_both && (*best < 0 || (rule->lower_is_better ? x < record : x > record))) {
            *best = step;
            record = x;
        }
        json_decref(line);
    }
    rein_run_history_close(lines);
    return status == REIN_END ? REIN_OK : status;
}

/* The steps to delete, in list[n_steps]. What is newer than the last good one is bad, and stays until its step is made again. */
static size_t choose(int64_t *list, const rein_run *run, const rein_retention *rule, int64_t good, int64_t best) {
    size_t n = 0;
    int64_t kept = 0;
    for (size_t i = run->n_steps; i-- > 0;) {
        const int64_t step = run->steps[i];
        if (step > good || kept++ < rule->keep_last || step == good || step == 0 || step == best) continue;
        if (!has_step(rule->needed, rule->n_needed, step)) list[n++] = step;
    }
    return n;
}

static rein_status hide(rein_run *run, int64_t step, rein_error *err) {
    char *path = rein_run_step_path(run, step), *hidden = rein_run_hidden_path(run, step, "old");
    rein_status status = path && hidden ? rein_remove_all(hidden, err) : no_memory(err);
    if (!status && rename(path, hidden) != 0) status = rein_file_error(err, path, "cannot be deleted");
    if (!status) rein_run_remove_step(run, step);
    free(path);
    free(hidden);
    return status;
}

static rein_status remove_hidden(const rein_run *run, int64_t step, rein_error *err) {
    char *hidden = rein_run_hidden_path(run, step, "old");
    const rein_status status = hidden ? rein_remove_all(hidden, err) : no_memory(err);
    free(hidden);
    return status;
}

/* No file goes before it is durable that its checkpoint is hidden: else a power cut could leave a part of one under its name. */
static rein_status delete_steps(size_t *deleted, rein_run *run, const int64_t *list, size_t n, rein_error *err) {
    rein_status status = REIN_OK;
    size_t hidden = 0;
    while (hidden < n && !status) {
        status = hide(run, list[hidden], err);
        hidden += !status;
    }
    if (deleted) *deleted = hidden;
    if (hidden && rein_directory_sync(run->checkpoints) != 0)
        return rein_file_error(err, run->checkpoints, "the directory cannot be synchronised");
    for (size_t i = 0; i < hidden && !status; i++) status = remove_hidden(run, list[i], err);
    return status;
}

rein_status rein_run_delete(rein_run *run, const int64_t *steps, size_t n, rein_error *err) {
    const rein_status status = rein_run_writable(run, err);
    return status ? status : delete_steps(NULL, run, steps, n, err);
}

rein_status rein_run_retain(size_t *deleted, int64_t *best, rein_run *run, const rein_retention *rule, rein_error *err) {
    int64_t good, found = -1;
    char note[REIN_NOTE_SIZE];
    if (deleted) *deleted = 0;
    if (best) *best = -1;
    rein_status status = rein_run_writable(run, err);
    if (!status && rule->keep_last < 0)
        status = rein_fail_at(err, REIN_EINVAL, "keep_last", -1, "is %lld: 0 or more is needed", (long long)rule->keep_last);
    if (!status) status = rein_run_last_good(&good, note, run, err);
    if (!status && rule->keep_best) status = find_best(&found, run, rule, err);
    if (status || run->n_steps == 0 || (rule->keep_best && found < 0)) return status;
    if (best) *best = found;
    int64_t *list = malloc(run->n_steps * sizeof *list);
    if (!list) return no_memory(err);
    status = delete_steps(deleted, run, list, choose(list, run, rule, good, found), err);
    free(list);
    return status;
}
