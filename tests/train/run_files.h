/* run_files.h - runs for tests. The content of checkpoints and lines follows from their step, so a test can tell whether it reads the right
 * one. */
#ifndef REIN_TESTS_RUN_FILES_H
#define REIN_TESTS_RUN_FILES_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "support/check.h"
#include "support/files.h"
#include "support/folder.h"
#include "train/checkpoint.h"
#include "train/run.h"

/* ---- the content of a step */
enum { WEIGHTS_SIZE = 700 };

static inline void fill_weights(unsigned char *to, int64_t step) {
    for (size_t i = 0; i < WEIGHTS_SIZE; i++) to[i] = (unsigned char)(i * 31 + (size_t)step * 7 + (i >> 5));
}

static inline double multiplier_of(int64_t step) { return 0.25 * (double)step; }

/* {"step":3,"loss":7.571…,"reward":3}: the loss falls, the reward is best at step 2. */
static inline json_t *line_of(int64_t step) {
    return json_pack("{s:I, s:f, s:f}", "step", (json_int_t)step, "loss", 8 - (double)step / 7, "reward",
                     4 - (double)((step - 2) * (step - 2)));
}

/* The text of lines first to last, with newlines. The caller frees. */
static inline char *lines_text(int64_t first, int64_t last) {
    char *text = calloc(1, 1 + 100 * (size_t)(last - first + 1)), *at = text;
    for (int64_t step = first; step <= last; step++) {
        json_t *line = line_of(step);
        char *one = json_dumps(line, JSON_COMPACT);
        at += sprintf(at, "%s\n", one);
        free(one);
        json_decref(line);
    }
    return text;
}

/* ---- reading */

/* All whole lines of the history, as an array that the caller releases; NULL on failure. */
static inline rein_status read_history(json_t **lines, const rein_run *run, rein_error *err) {
    rein_run_lines *h;
    json_t *line;
    *lines = json_array();
    rein_status status = *lines ? rein_run_history_open(&h, run, err) : rein_fail(err, REIN_ENOMEM, "out of memory");
    if (!*lines) return status;
    while (!status && !(status = rein_run_history_next(&line, h, err)))
        if (json_array_append_new(*lines, line)) status = rein_fail(err, REIN_ENOMEM, "out of memory");
    rein_run_history_close(h);
    if (status == REIN_END) return REIN_OK;
    json_decref(*lines);
    *lines = NULL;
    return status;
}

/* ---- writing */
static inline rein_status append_line(rein_run *run, int64_t step, rein_error *err) {
    json_t *line = line_of(step);
    const rein_status status = line ? rein_run_history_append(run, line, err) : rein_fail(err, REIN_ENOMEM, "out of memory");
    json_decref(line);
    return status;
}

/* Writes as a third-party library might: by path, and without making the file durable. */
static inline rein_status put_carelessly(const rein_checkpoint *checkpoint, const char *name, const void *data, size_t size,
                                         rein_error *err) {
    char *path = rein_checkpoint_path(checkpoint, name);
    if (!path) return rein_fail(err, REIN_ENOMEM, "out of memory");
    const int fd = open(path, O_WRONLY | O_CREAT, 0666);
    const int fine = fd >= 0 && write(fd, data, size) == (ssize_t)size;
    const rein_status status = fine ? REIN_OK : rein_file_error(err, path, "cannot be written");
    if (fd >= 0) close(fd);
    free(path);
    return status;
}

/* Writes in each way there is: the checkpoint's own, a plain writer, and with `writer` the project's atomic one. */
static inline rein_status fill_checkpoint(const rein_checkpoint *to, int64_t step, int writer, rein_error *err) {
    unsigned char weights[WEIGHTS_SIZE];
    fill_weights(weights, step);
    rein_status status = rein_checkpoint_put(to, "adapter_model.safetensors", weights, sizeof weights, err);
    for (size_t i = 0; i < sizeof weights; i++) weights[i] = (unsigned char)~weights[i];
    if (!status) status = put_carelessly(to, "optimizer.safetensors", weights, sizeof weights, err);
    json_t *state = status ? NULL : json_pack("{s:f}", "multiplier", multiplier_of(step));
    if (!status)
        status = state ? rein_checkpoint_put_json(to, REIN_STATE_NAME, state, err) : rein_fail(err, REIN_ENOMEM, "out of memory");
    json_decref(state);
    if (status || !writer) return status;
    char *path = rein_checkpoint_path(to, "adapter_config.json");
    status = path ? rein_file_write(path, "{}\n", 3, err) : rein_fail(err, REIN_ENOMEM, "out of memory");
    free(path);
    return status;
}

static inline rein_status write_checkpoint(rein_run *run, int64_t step, int writer, rein_error *err) {
    rein_checkpoint *checkpoint;
    rein_status status = rein_checkpoint_begin(&checkpoint, run, step, err);
    if (!status) status = fill_checkpoint(checkpoint, step, writer, err);
    if (!status) return rein_checkpoint_commit(checkpoint, err);
    rein_checkpoint_abandon(checkpoint);
    return status;
}

/* Lines and checkpoints 0 to last. */
static inline rein_status make_run(const char *directory, int64_t last, rein_error *err) {
    rein_run *run;
    rein_status status = rein_run_open(&run, directory, REIN_RUN_CREATE, err);
    for (int64_t step = 0; step <= last && !status; step++) {
        status = append_line(run, step, err);
        if (!status) status = write_checkpoint(run, step, 0, err);
    }
    rein_run_close(run);
    return status;
}

/* ---- reading: the problem of a checkpoint, or NULL */
static inline const char *file_problem(const char *directory, const char *name, const unsigned char *data, size_t size) {
    char *path = rein_path_join(directory, name), *found;
    size_t found_size;
    const char *problem = NULL;
    if (rein_file_read(&found, &found_size, path) != 0) problem = "a file cannot be read";
    else if (found_size != size || memcmp(found, data, size) != 0) problem = "a file holds something else";
    free(found);
    free(path);
    return problem;
}

/* Whether a checkpoint verifies and is the one that was written at step `content`. */
static inline const char *checkpoint_problem(const rein_run *run, int64_t step, int64_t content) {
    unsigned char weights[WEIGHTS_SIZE];
    char directory[1024];
    json_t *state;
    if (rein_checkpoint_verify(run, step, NULL) != REIN_OK) return "a checkpoint does not verify";
    rein_run_checkpoint_path(directory, sizeof directory, run, step);
    fill_weights(weights, content);
    const char *problem = file_problem(directory, "adapter_model.safetensors", weights, sizeof weights);
    for (size_t i = 0; i < sizeof weights; i++) weights[i] = (unsigned char)~weights[i];
    if (!problem) problem = file_problem(directory, "optimizer.safetensors", weights, sizeof weights);
    if (problem) return problem;
    if (rein_checkpoint_read_json(&state, run, step, REIN_STATE_NAME, NULL) != REIN_OK) return "state.json cannot be read";
    if (json_real_value(json_object_get(state, "multiplier")) != multiplier_of(content)) problem = "state.json is another";
    json_decref(state);
    return problem;
}

/* ---- opening one */
static inline rein_run *open_run(const char *name, rein_run_access access) {
    rein_run *run;
    rein_error err;
    fine(rein_run_open(&run, in_folder(name), access, &err), &err);
    return run;
}

static inline void has_steps(const rein_run *run, const int64_t *expected, size_t n) {
    const int64_t *steps;
    assert_int_equal(rein_run_checkpoints(&steps, run), n);
    for (size_t i = 0; i < n; i++) assert_int_equal(steps[i], expected[i]);
}

#endif
