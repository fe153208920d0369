/* run.c - the directory of a run: opened, locked, cleared of the unfinished files of an interrupted run.
 *
 * What is hidden in RUN/checkpoints belongs to a checkpoint that is on its way or on its way out: only the writer, who holds the lock, makes
 * it, so the next one to hold the lock may remove it. The lock is flock's on RUN/.lock: the kernel releases it when the process is gone. The
 * file stays, because removing it would let two processes lock two files of the same name. */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"

static const char *const TREE[] = {"checkpoints", "trajectories/train", "tensorboard"};
enum { N_TREE = sizeof TREE / sizeof *TREE, MOST_DIGITS = 18, MOST_LEVELS = 100 };

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "out of memory"); }

rein_status rein_run_writable(const rein_run *run, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    if (run->lock >= 0) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "%s is open for reading only", rein_path_show(shown, run->directory));
}

const char *rein_run_note(const rein_run *run) { return run->note; }

/* ---------------------------------------------------------------------------------------------------------------------- steps */

const char *rein_step_name(char to[REIN_STEP_NAME], int64_t step) {
    snprintf(to, REIN_STEP_NAME, "%04lld", (long long)step);
    return to;
}

/* -1 for a name that rein_step_name does not make. */
static int64_t step_of_name(const char *name) {
    char again[REIN_STEP_NAME];
    const size_t digits = strspn(name, "0123456789");
    if (digits == 0 || digits > MOST_DIGITS || name[digits]) return -1;
    const int64_t step = strtoll(name, NULL, 10);
    return strcmp(rein_step_name(again, step), name) == 0 ? step : -1;
}

size_t rein_run_checkpoint_path(char *path, size_t size, const rein_run *run, int64_t step) {
    char name[REIN_STEP_NAME];
    const size_t length = strlen(run->checkpoints) + 1 + strlen(rein_step_name(name, step));
    if (length < size) snprintf(path, size, "%s/%s", run->checkpoints, name);
    return length;
}

char *rein_run_step_path(const rein_run *run, int64_t step) {
    char name[REIN_STEP_NAME];
    return rein_path_join(run->checkpoints, rein_step_name(name, step));
}

char *rein_run_hidden_path(const rein_run *run, int64_t step, const char *suffix) {
    char name[REIN_STEP_NAME], hidden[2 * REIN_STEP_NAME];
    snprintf(hidden, sizeof hidden, ".%s.%s", rein_step_name(name, step), suffix);
    return rein_path_join(run->checkpoints, hidden);
}

size_t rein_run_checkpoints(const int64_t **steps, const rein_run *run) {
    if (steps) *steps = run->steps;
    return run->n_steps;
}

rein_status rein_run_reserve_step(rein_run *run, rein_error *err) {
    if (run->n_steps < run->capacity) return REIN_OK;
    const size_t capacity = run->capacity ? 2 * run->capacity : 16;
    int64_t *steps = realloc(run->steps, capacity * sizeof *steps);
    if (!steps) return no_memory(err);
    run->steps = steps;
    run->capacity = capacity;
    return REIN_OK;
}

/* Where the step is, or would be. */
static size_t place_of(const rein_run *run, int64_t step) {
    size_t at = run->n_steps;
    while (at > 0 && run->steps[at - 1] >= step) at--;
    return at;
}

int rein_run_has_step(const rein_run *run, int64_t step) {
    const size_t at = place_of(run, step);
    return at < run->n_steps && run->steps[at] == step;
}

void rein_run_add_step(rein_run *run, int64_t step) {
    if (rein_run_has_step(run, step)) return;
    const size_t at = place_of(run, step);
    memmove(run->steps + at + 1, run->steps + at, (run->n_steps - at) * sizeof *run->steps);
    run->steps[at] = step;
    run->n_steps++;
}

void rein_run_remove_step(rein_run *run, int64_t step) {
    const size_t at = place_of(run, step);
    if (at == run->n_steps || run->steps[at] != step) return;
    run->n_steps--;
    memmove(run->steps + at, run->steps + at + 1, (run->n_steps - at) * sizeof *run->steps);
}

static rein_status list_steps(rein_run *run, rein_error *err) {
    rein_names names;
    rein_status status = rein_directory_list(&names, run->checkpoints, err);
    for (size_t i = 0; i < names.n && !status; i++) {
        const int64_t step = step_of_name(names.at[i]);
        if (step < 0) continue; /* a file of the user's */
        status = rein_run_reserve_step(run, err);
        if (!status) rein_run_add_step(run, step);
    }
    rein_names_free(&names);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------------------- lock */

/* The file names the holder, except for a moment after the lock is taken. */
static rein_status locked_by_another(const rein_run *run, int lock, rein_error *err) {
    char shown[REIN_PATH_SHOWN], text[32] = "";
    const ssize_t n = read(lock, text, sizeof text - 1);
    const long process = n > 0 ? strtol(text, NULL, 10) : 0;
    rein_path_show(shown, run->directory);
    if (process > 0) return rein_fail(err, REIN_EIO, "%s is being written by process %ld", shown, process);
    return rein_fail(err, REIN_EIO, "%s is being written by another process", shown);
}

static rein_status take_lock(rein_run *run, const char *path, rein_error *err) {
    char text[32];
    const int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0) return rein_file_error(err, path, "cannot be opened for writing");
    const size_t length = (size_t)snprintf(text, sizeof text, "%ld\n", (long)getpid());
    rein_status status = REIN_OK;
    errno = ENOSPC; /* what a write that comes back short means */
    if (flock(lock, LOCK_EX | LOCK_NB) != 0)
        status = errno == EWOULDBLOCK ? locked_by_another(run, lock, err) : rein_file_error(err, path, "cannot be locked");
    else if (ftruncate(lock, 0) != 0 || write(lock, text, length) != (ssize_t)length)
        status = rein_file_error(err, path, "cannot be written");
    if (status) close(lock);
    else run->lock = lock;
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------- opening */

/* One of those that opening makes: they are there too when opening was stopped. */
static int is_ours(const char *name) {
    for (size_t i = 0; i < N_TREE; i++) {
        const size_t length = strcspn(TREE[i], "/");
        if (strlen(name) == length && !strncmp(name, TREE[i], length)) return 1;
    }
    return name[0] == '.' || !strcmp(name, "history.jsonl");
}

/* Only an empty directory or an existing run is accepted. */
static rein_status check_directory(const char *directory, const char *checkpoints, rein_run_access access, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    rein_names names = {0};
    const int is_run = rein_file_is_directory(checkpoints);
    rein_path_show(shown, directory);
    if (access != REIN_RUN_CREATE && is_run) return REIN_OK;
    if (access == REIN_RUN_READ) return rein_fail(err, REIN_EINVAL, "%s is not a run: it has no directory checkpoints", shown);
    if (!rein_file_exists(directory)) return REIN_OK;
    if (!rein_file_is_directory(directory)) return rein_fail(err, REIN_EINVAL, "%s is a file: a run is a directory", shown);
    rein_status status = rein_directory_list(&names, directory, err);
    for (size_t i = 0; i < names.n && !status; i++) {
        if (is_ours(names.at[i])) continue;
        status = is_run
                     ? rein_fail(err, REIN_EINVAL, "%s is a run already: resume it, or give the new one another name", shown)
                     : rein_fail(err, REIN_EINVAL, "%s is not a run, and not empty: a run needs a new or empty directory", shown);
    }
    rein_names_free(&names);
    return status;
}

static rein_status check_name(const char *directory, rein_error *err) {
    return *directory ? REIN_OK : rein_fail(err, REIN_EINVAL, "the name of a run is empty");
}

rein_status rein_run_check_place(const char *directory, rein_error *err) {
    if (check_name(directory, err)) return REIN_EINVAL;
    char *checkpoints = rein_path_join(directory, "checkpoints");
    const rein_status status = checkpoints ? check_directory(directory, checkpoints, REIN_RUN_RESUME, err) : no_memory(err);
    free(checkpoints);
    return status;
}

int rein_run_exists(const char *directory) {
    char *path = rein_path_join(directory, "config.yaml");
    const int exists = path && rein_file_exists(path);
    free(path);
    return exists;
}

static rein_status check_is_new(const rein_run *run, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    if (run->n_steps == 0 && run->history_size == 0) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "%s is a run already: resume it, or give the new one another name",
                     rein_path_show(shown, run->directory));
}

static rein_status make_tree(const rein_run *run, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t i = 0; i < N_TREE && !status; i++) {
        char *path = rein_path_join(run->directory, TREE[i]);
        status = path ? rein_make_directories(path, err) : no_memory(err);
        free(path);
    }
    return status;
}

/* Removes what is hidden in the directory and ends so. */
static rein_status sweep(size_t *swept, const char *directory, const char *ending, rein_error *err) {
    rein_names names;
    rein_status status = rein_directory_list(&names, directory, err);
    for (size_t i = 0; i < names.n && !status; i++) {
        const size_t length = strlen(names.at[i]), tail = strlen(ending);
        if (names.at[i][0] != '.' || length < tail || strcmp(names.at[i] + length - tail, ending) != 0) continue;
        char *path = rein_path_join(directory, names.at[i]);
        status = path ? rein_remove_all(path, err) : no_memory(err);
        free(path);
        *swept += !status;
    }
    rein_names_free(&names);
    return status;
}

static rein_status clear_leftovers(rein_run *run, rein_error *err) {
    size_t swept = 0;
    char *trained = rein_path_join(run->directory, "trajectories/train");
    char *evaluated = rein_path_join(run->directory, "trajectories/eval"); /* which few runs have */
    rein_status status = trained && evaluated ? sweep(&swept, run->checkpoints, "", err) : no_memory(err);
    if (!status) status = sweep(&swept, run->directory, ".tmp", err);
    if (!status) status = sweep(&swept, trained, ".tmp", err);
    if (!status && rein_file_is_directory(evaluated)) status = sweep(&swept, evaluated, ".tmp", err);
    if (swept) snprintf(run->note, sizeof run->note, "removed %zu unfinished files of an interrupted run", swept);
    free(evaluated);
    free(trained);
    return status;
}

/* The directories above the run, to the root: RUN/.., RUN/../.., … Some may not be ours to read. */
static rein_status sync_above(const rein_run *run, rein_error *err) {
    struct stat here, above;
    const size_t length = strlen(run->directory), room = length + 3 * MOST_LEVELS + 1;
    char *path = malloc(room);
    if (!path) return no_memory(err);
    memcpy(path, run->directory, length + 1);
    rein_status status = REIN_OK;
    int going_up = stat(path, &here) == 0;
    for (size_t at = length; going_up && at + 3 < room && !status; at += 3, here = above) {
        memcpy(path + at, "/..", sizeof "/..");
        going_up = stat(path, &above) == 0 && (above.st_ino != here.st_ino || above.st_dev != here.st_dev);
        if (going_up && rein_directory_sync(path) != 0 && errno != EACCES)
            status = rein_file_error(err, path, "the directory cannot be synchronised");
    }
    free(path);
    return status;
}

/* What is made must be durable before anything is built on it; also what was made by a writer that was killed before it came to this. RUN
 * itself is synchronised when its history is opened. */
static rein_status sync_names(const rein_run *run, rein_error *err) {
    char *trajectories = rein_path_join(run->directory, "trajectories");
    rein_status status = trajectories ? sync_above(run, err) : no_memory(err);
    if (!status && rein_directory_sync(run->checkpoints) != 0)
        status = rein_file_error(err, run->checkpoints, "the directory cannot be synchronised");
    if (!status && rein_directory_sync(trajectories) != 0)
        status = rein_file_error(err, trajectories, "the directory cannot be synchronised");
    free(trajectories);
    return status;
}

static rein_status start_writing(rein_run *run, rein_run_access access, rein_error *err) {
    char *lock = rein_path_join(run->directory, ".lock");
    rein_status status = lock ? rein_make_directories(run->directory, err) : no_memory(err);
    if (!status) status = take_lock(run, lock, err);
    if (!status)
        status = check_directory(run->directory, run->checkpoints, access, err); /* again: it may have become one meanwhile */
    if (!status) status = make_tree(run, err);
    if (!status) status = clear_leftovers(run, err);
    if (!status) status = rein_run_history_start(run, err);
    if (!status) status = sync_names(run, err);
    free(lock);
    return status;
}

static char *copy_of(const char *text) {
    const size_t size = strlen(text) + 1;
    char *copy = malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}

rein_status rein_run_open(rein_run **run, const char *directory, rein_run_access access, rein_error *err) {
    *run = NULL;
    if (access != REIN_RUN_READ && access != REIN_RUN_CREATE && access != REIN_RUN_RESUME)
        return rein_fail(err, REIN_EINVAL, "a run is opened to read (0), to create (1) or to resume (2), not with %d", (int)access);
    if (check_name(directory, err)) return REIN_EINVAL;
    rein_run *made = malloc(sizeof *made);
    if (!made) return no_memory(err);
    *made = (rein_run){.lock = -1, .history = -1, .history_step = -1};
    made->directory = copy_of(directory);
    made->checkpoints = rein_path_join(directory, "checkpoints");
    rein_status status = made->directory && made->checkpoints ? REIN_OK : no_memory(err);
    if (!status) status = check_directory(made->directory, made->checkpoints, access, err);
    if (!status && access != REIN_RUN_READ) status = start_writing(made, access, err);
    if (!status) status = list_steps(made, err);
    if (!status && access == REIN_RUN_CREATE) status = check_is_new(made, err);
    if (status) rein_run_close(made);
    else *run = made;
    return status;
}

void rein_run_close(rein_run *run) {
    if (!run) return;
    if (run->history >= 0) close(run->history);
    if (run->lock >= 0) {
        if (ftruncate(run->lock, 0) != 0) errno = 0; /* an empty file is better than an old number; a failure does no harm */
        close(run->lock);
    }
    free(run->steps);
    free(run->directory);
    free(run->checkpoints);
    free(run);
}

/* What cannot be read today may be readable tomorrow, but by then its step has been made again: it must not come back. */
static rein_status set_aside(rein_run *run, int64_t step, rein_error *err) {
    char *from = rein_run_step_path(run, step), *to = from ? malloc(strlen(from) + sizeof ".bad") : NULL;
    rein_status status = to ? REIN_OK : no_memory(err);
    if (!status) {
        strcat(strcpy(to, from), ".bad");
        status = rein_remove_all(to, err);
    }
    if (!status && rename(from, to) != 0) status = rein_file_error(err, from, "cannot be set aside");
    if (!status) rein_run_remove_step(run, step);
    free(from);
    free(to);
    return status;
}

rein_status rein_run_resume(int64_t *step, char note[REIN_NOTE_SIZE], rein_run *run, rein_error *err) {
    rein_status status = rein_run_writable(run, err);
    if (!status) status = rein_run_last_good(step, note, run, err);
    while (!status && run->n_steps > 0 && run->steps[run->n_steps - 1] > *step)
        status = set_aside(run, run->steps[run->n_steps - 1], err);
    if (!status && note[0]) snprintf(note + strlen(note), REIN_NOTE_SIZE - strlen(note), "; newer ones are kept as NAME.bad");
    if (!status && rein_directory_sync(run->checkpoints) != 0)
        status = rein_file_error(err, run->checkpoints, "the directory cannot be synchronised");
    if (!status) status = rein_run_history_drop(run, *step, err);
    return status;
}

rein_status rein_run_write_text(const rein_run *run, const char *name, const char *text, size_t size, rein_error *err) {
    rein_status status = rein_run_writable(run, err);
    if (status) return status;
    char *path = rein_path_join(run->directory, name);
    status = path ? rein_file_write(path, text, size, err) : no_memory(err);
    free(path);
    return status;
}

const char *rein_run_show_steps(char *to, size_t size, const rein_run *run) {
    const int64_t *steps;
    const size_t n = rein_run_checkpoints(&steps, run);
    size_t at = 0;
    to[0] = 0;
    for (size_t i = n > 12 ? n - 12 : 0; i < n && at + 24 < size; i++)
        at += (size_t)snprintf(to + at, size - at, "%s%lld", at ? ", " : n > 12 ? "…, " : "", (long long)steps[i]);
    return to;
}
