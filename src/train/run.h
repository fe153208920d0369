/* run.h - the directory of a run, for those who write it: the history, retention, forks. docs/runs.md has the layout and the guarantees.
 * Private; looking at a run is in rein/train.h, writing a checkpoint in checkpoint.h. One thread at a time. */
#ifndef REIN_TRAIN_RUN_H
#define REIN_TRAIN_RUN_H

#include <jansson.h>
#include <sys/types.h>

#include "rein/train.h"

struct rein_run {
    char *directory, *checkpoints, *lock_path; /* RUN, RUN/checkpoints, RUN/.lock */
    int64_t *steps;                            /* of the checkpoints, ascending */
    size_t n_steps, capacity;
    int lock;     /* descriptor of RUN/.lock; -1: open for reading */
    dev_t device; /* of RUN/checkpoints, as its inode */
    ino_t inode;
    int history;          /* descriptor of RUN/history.jsonl, for appending; -1: to be opened */
    int64_t history_size; /* bytes of whole lines */
    int64_t history_step; /* of the last line; -1: none */
    int writing;          /* a checkpoint is on its way */
    char note[REIN_NOTE_SIZE];
};

/* REIN_EINVAL if the run is open for reading only. REIN_EIO if its directory was moved or replaced since it was opened: its path may be that
 * of another run. */
rein_status rein_run_writable(const rein_run *run, rein_error *err);

/* 1 if the directory of a run that is open for writing still has the name by which it was opened. */
int rein_run_is_in_place(const rein_run *run);

/* The status of writing to a run. If it failed because the directory was moved meanwhile, the error says so. */
rein_status rein_run_explain(const rein_run *run, rein_status status, rein_error *err);

/* REIN_EINVAL unless a run can be in this directory: it holds one, or it is empty, or it does not exist. Nothing is written. */
rein_status rein_run_check_place(const char *directory, rein_error *err);

/* Resumes a run that was opened to resume: *step and `note` as rein_run_last_good has them. The steps after it will be made again. So
 * newer checkpoints, which are not good, are set aside as NAME.bad for the user to look at, and the lines of the history that are of later
 * steps are dropped: in the end the file is what it would have been without the stop. */
rein_status rein_run_resume(int64_t *step, char note[REIN_NOTE_SIZE], rein_run *run, rein_error *err);

/* RUN/NAME ("config.yaml", "summary.json"), whole or not at all. */
rein_status rein_run_write_text(const rein_run *run, const char *name, const char *text, size_t size, rein_error *err);

/* ---- history.jsonl. One line a step, an object with a whole number "step" that grows from line to line. */

/* One more line, durable when this returns; after a failure the file is as it was. The line of a step is appended before the checkpoint of
 * that step is committed: then resuming finds a line for every step up to its checkpoint. */
rein_status rein_run_history_append(rein_run *run, const json_t *line, rein_error *err);

/* Reads the whole lines, one after the other: *line for the caller to release, NULL unless REIN_OK is returned; REIN_END after the last. A run
 * without the file has no lines. Closing NULL is fine. */
typedef struct rein_run_lines rein_run_lines;
rein_status rein_run_history_open(rein_run_lines **lines, const rein_run *run, rein_error *err);
rein_status rein_run_history_next(json_t **line, rein_run_lines *lines, rein_error *err);
void rein_run_history_close(rein_run_lines *lines);

/* For opening: cuts off a last line that is torn, and makes the name of the file durable. For resuming: drops the lines of steps after
 * `step`. */
rein_status rein_run_history_start(rein_run *run, rein_error *err);
rein_status rein_run_history_drop(rein_run *run, int64_t step, rein_error *err);

/* ---- retention */
typedef struct rein_retention {
    int64_t keep_last;     /* the newest good one, and those before it, so many in all; 0 or more */
    const char *keep_best; /* the metric of the history whose best checkpoint stays; NULL: none */
    int lower_is_better;
    const int64_t *needed; /* [n_needed] steps that something refers to; they need not exist */
    size_t n_needed;
} rein_retention;

/* Deletes the checkpoints that the rule does not keep; never step 0, nor the last good one, nor one newer than that. *deleted says how many,
 * *best which step keep_best kept: the older one of equals. It is -1 as long as no checkpoint has the metric; then nothing is deleted. Both
 * may be NULL. */
rein_status rein_run_retain(size_t *deleted, int64_t *best, rein_run *run, const rein_retention *rule, rein_error *err);

/* Deletes these checkpoints [n], which must exist. */
rein_status rein_run_delete(rein_run *run, const int64_t *steps, size_t n, rein_error *err);

/* ---- forks */

/* A new run whose checkpoint 0 is a verified copy of checkpoint `step` of the run `from`; its state.json has "forked_from" besides, {"run":
 * from, "step": step, "manifest": the hash of the MANIFEST}. *run is open for writing. After a failure there may be an empty run. One that was
 * stopped after its checkpoint 0 can be made again. */
rein_status rein_run_fork(rein_run **run, const char *directory, const char *from, int64_t step, rein_error *err);

/* ---- for the parts of a run */

/* "0007"; more digits where they are needed. Returns `to`. */
enum { REIN_STEP_NAME = 24 };
const char *rein_step_name(char to[REIN_STEP_NAME], int64_t step);

/* RUN/checkpoints/NAME: its path, or hidden, ".NAME.SUFFIX". For the caller to free; NULL when there is no memory. */
char *rein_run_step_path(const rein_run *run, int64_t step);
char *rein_run_hidden_path(const rein_run *run, int64_t step, const char *suffix);

/* "0, 3, 7": the steps that have a checkpoint, for a message; the last ones if they are many. Returns `to`. */
const char *rein_run_show_steps(char *to, size_t size, const rein_run *run);

/* 1 if the step has a checkpoint, good or not. */
int rein_run_has_step(const rein_run *run, int64_t step);

/* Room for one more step; then adding one cannot fail. Adding one that is there changes nothing. */
rein_status rein_run_reserve_step(rein_run *run, rein_error *err);
void rein_run_add_step(rein_run *run, int64_t step);
void rein_run_remove_step(rein_run *run, int64_t step);

#endif
