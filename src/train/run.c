/* run.c - the directory of a run: opened, locked, cleared of the unfinished files of an interrupted run.
 *
 * A hidden RUN/checkpoints/.0007.new or .0007.old belongs to a checkpoint that is being written or deleted. Only the process that
 * holds the lock makes such a name, so the next process with the lock may remove it. Other hidden names are the user's. The lock is flock's
 * on RUN/.lock: the kernel releases it when the process ends. The file stays, because removing it would let two processes lock two files of the same
 * name. The lock is on a file, but files are written by path: when the directory has been moved, the path may name another run. So the
 * identity of the directory is compared before each write. */
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
#include "manifest.h"
#include "report/plans.h"

static const char *const TREE[] = {"checkpoints", "trajectories/train", "tensorboard"};
enum { N_TREE = sizeof TREE / sizeof *TREE, MOST_DIGITS = 18, MOST_LEVELS = 100, LOCK_SIZE = 32 };

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
    if (!steps) return rein_no_memory(err);
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

/* 1 if the file is a lock of rein's: empty, or the number of a process, which a power cut may have cut short or replaced by zeros. Anything
 * else is a file of the user's under this name, which is not overwritten: 0. -1, with errno, if the file cannot be read. */
static int is_lock_file(int lock) {
    char text[LOCK_SIZE];
    struct stat about;
    if (fstat(lock, &about) != 0) return -1;
    if (!S_ISREG(about.st_mode)) return 0;
    const ssize_t n = read(lock, text, sizeof text);
    if (n < 0 || lseek(lock, 0, SEEK_SET) != 0) return -1;
    for (ssize_t i = 0; i < n; i++)
        if (text[i] && text[i] != '\n' && (text[i] < '0' || text[i] > '9')) return 0;
    return n < LOCK_SIZE;
}

static rein_status write_lock(int lock, const char *path, rein_error *err) {
    char text[LOCK_SIZE], shown[REIN_PATH_SHOWN];
    const size_t length = (size_t)snprintf(text, sizeof text, "%ld\n", (long)getpid());
    const int is_lock = is_lock_file(lock);
    if (is_lock < 0) return rein_file_error(err, path, "cannot be read");
    if (!is_lock)
        return rein_fail(err, REIN_EINVAL, "%s is not a lock of a run: another file has its name", rein_path_show(shown, path));
    errno = ENOSPC; /* what a write that comes back short means */
    if (ftruncate(lock, 0) != 0 || write(lock, text, length) != (ssize_t)length)
        return rein_file_error(err, path, "cannot be written");
    return REIN_OK;
}

static rein_status take_lock(rein_run *run, const char *path, rein_error *err) {
    const int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    rein_status status = REIN_OK;
    if (lock < 0) return rein_file_error(err, path, "cannot be opened for writing");
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) status = write_lock(lock, path, err);
    else status = errno == EWOULDBLOCK ? locked_by_another(run, lock, err) : rein_file_error(err, path, "cannot be locked");
    if (status) close(lock);
    else run->lock = lock;
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------------- identity */

/* Reports that the run is not where it was opened. errno is that of rein_run_is_in_place: 0 if another directory has the name now. */
static rein_status moved(const rein_run *run, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    if (errno && errno != ENOENT && errno != ENOTDIR) return rein_file_error(err, run->directory, "cannot be examined");
    return rein_fail(err, REIN_EIO,
                     "%s was moved or replaced while it was being written: nothing more is written; resume the run where it is now",
                     rein_path_show(shown, run->directory));
}

/* The lock that is held is the one that has the name, and the checkpoints are where they were. */
int rein_run_is_in_place(const rein_run *run) {
    struct stat held, named, checkpoints;
    errno = 0;
    if (fstat(run->lock, &held) != 0 || lstat(run->lock_path, &named) != 0 || lstat(run->checkpoints, &checkpoints) != 0) return 0;
    return held.st_dev == named.st_dev && held.st_ino == named.st_ino && checkpoints.st_dev == run->device &&
           checkpoints.st_ino == run->inode;
}

rein_status rein_run_explain(const rein_run *run, rein_status status, rein_error *err) {
    return status == REIN_EIO && !rein_run_is_in_place(run) ? moved(run, err) : status;
}

/* REIN_EINVAL for a link: what is written and cleared below it would be that of another directory. */
static rein_status check_no_link(const char *directory, const char *name, rein_error *err) {
    struct stat about;
    char shown[REIN_PATH_SHOWN], *path = rein_path_join(directory, name);
    if (!path) return rein_no_memory(err);
    rein_status status = REIN_OK;
    rein_path_show(shown, path);
    if (lstat(path, &about) != 0) {
        if (errno != ENOENT && errno != ENOTDIR) status = rein_file_error(err, path, "cannot be examined");
    } else if (S_ISLNK(about.st_mode))
        status = rein_fail(err, REIN_EINVAL, "%s is a link: a run has its own directory %s", shown, name);
    free(path);
    return status;
}

static rein_status check_no_links(const char *directory, rein_error *err) {
    static const char *const names[] = {"checkpoints", "trajectories", "trajectories/train", "trajectories/eval", "tensorboard"};
    rein_status status = REIN_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && !status; i++) status = check_no_link(directory, names[i], err);
    return status;
}

static rein_status remember_place(rein_run *run, rein_error *err) {
    struct stat about;
    if (lstat(run->checkpoints, &about) != 0) return rein_file_error(err, run->checkpoints, "cannot be opened");
    run->device = about.st_dev, run->inode = about.st_ino;
    return rein_run_is_in_place(run) ? REIN_OK : moved(run, err);
}

rein_status rein_run_writable(const rein_run *run, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    if (run->lock < 0) return rein_fail(err, REIN_EINVAL, "%s is open for reading only", rein_path_show(shown, run->directory));
    return rein_run_is_in_place(run) ? REIN_OK : moved(run, err);
}

/* -------------------------------------------------------------------------------------------------------------------- opening */

/* ".0007.new" or ".0007.old": what rein_run_hidden_path makes. */
static int is_hidden_step(const char *name) {
    char step[REIN_STEP_NAME];
    const size_t length = strlen(name), end = sizeof ".new" - 1;
    if (name[0] != '.' || length <= end + 1 || length - end > sizeof step) return 0;
    if (strcmp(name + length - end, ".new") != 0 && strcmp(name + length - end, ".old") != 0) return 0;
    memcpy(step, name + 1, length - end - 1);
    step[length - end - 1] = 0;
    return step_of_name(step) >= 0;
}

/* A name that exists before the run has its settings. A run that was interrupted that early has only such names. */
static int is_ours(const char *name) {
    for (size_t i = 0; i < N_TREE; i++) {
        const size_t length = strcspn(TREE[i], "/");
        if (strlen(name) == length && !strncmp(name, TREE[i], length)) return 1;
    }
    return name[0] == '.' || !strcmp(name, "history.jsonl") || rein_is_plan_file(name, strlen(name));
}

/* Sets *all to 0 if there is a name that `belongs` does not know. A directory that is not there has none. */
static rein_status look_at_names(int *all, const char *directory, int (*belongs)(const char *name), rein_error *err) {
    rein_names names = {0};
    if (!rein_file_exists(directory)) return REIN_OK;
    const rein_status status = rein_directory_list(&names, directory, err);
    for (size_t i = 0; i < names.n; i++) *all &= belongs(names.at[i]);
    rein_names_free(&names);
    return status;
}

/* 1 if PATH/NAME exists. */
static rein_status look_for(int *found, const char *path, const char *name, rein_error *err) {
    char *file = rein_path_join(path, name);
    if (!file) return rein_no_memory(err);
    *found = rein_file_exists(file);
    free(file);
    return REIN_OK;
}

/* 1 if the directory has a checkpoint: one of another program has no MANIFEST. */
static rein_status look_for_checkpoint(int *found, const char *checkpoints, rein_error *err) {
    rein_names names = {0};
    *found = 0;
    if (!rein_file_is_directory(checkpoints)) return REIN_OK;
    rein_status status = rein_directory_list(&names, checkpoints, err);
    for (size_t i = 0; i < names.n && !*found && !status; i++) {
        if (step_of_name(names.at[i]) < 0) continue;
        char *path = rein_path_join(checkpoints, names.at[i]);
        status = path ? look_for(found, path, REIN_MANIFEST_NAME, err) : rein_no_memory(err);
        free(path);
    }
    rein_names_free(&names);
    return status;
}

static rein_status is_a_run(const char *directory, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    return rein_fail(err, REIN_EINVAL, "%s is a run already: resume it, or give the new one another name",
                     rein_path_show(shown, directory));
}

/* To be written, a directory must be a run, or empty, or what was left of one that was interrupted before it had its settings. */
static rein_status check_to_write(const char *directory, const char *checkpoints, rein_run_access access, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    int all = 1, has_settings = 0, has_checkpoint = 0;
    rein_path_show(shown, directory);
    rein_status status = check_no_links(directory, err);
    if (!status) status = look_for(&has_settings, directory, "config.yaml", err);
    if (!status) status = look_for_checkpoint(&has_checkpoint, checkpoints, err);
    if (status || !rein_file_exists(directory)) return status;
    if (!rein_file_is_directory(directory)) return rein_fail(err, REIN_EINVAL, "%s is a file: a run is a directory", shown);
    if (has_settings) return access == REIN_RUN_RESUME ? REIN_OK : is_a_run(directory, err);
    if (has_checkpoint) return REIN_OK; /* if it is to be a new run: whoever has the lock decides */
    status = look_at_names(&all, directory, is_ours, err);
    if (!status) status = look_at_names(&all, checkpoints, is_hidden_step, err);
    if (status || all) return status;
    return rein_fail(err, REIN_EINVAL, "%s is not a run, and not empty: a run needs a new or empty directory", shown);
}

static rein_status check_directory(const char *directory, const char *checkpoints, rein_run_access access, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    if (access != REIN_RUN_READ) return check_to_write(directory, checkpoints, access, err);
    if (rein_file_is_directory(checkpoints)) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "%s is not a run: it has no directory checkpoints", rein_path_show(shown, directory));
}

static rein_status check_name(const char *directory, rein_error *err) {
    return *directory ? REIN_OK : rein_fail(err, REIN_EINVAL, "the name of a run is empty");
}

rein_status rein_run_check_place(const char *directory, rein_error *err) {
    if (check_name(directory, err)) return REIN_EINVAL;
    char *checkpoints = rein_path_join(directory, "checkpoints");
    const rein_status status = checkpoints ? check_directory(directory, checkpoints, REIN_RUN_RESUME, err) : rein_no_memory(err);
    free(checkpoints);
    return status;
}

int rein_run_exists(const char *directory) { return rein_directory_has(directory, "config.yaml"); }

static rein_status check_is_new(const rein_run *run, rein_error *err) {
    return run->n_steps == 0 && run->history_size == 0 ? REIN_OK : is_a_run(run->directory, err);
}

static rein_status make_tree(const rein_run *run, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t i = 0; i < N_TREE && !status; i++) {
        char *path = rein_path_join(run->directory, TREE[i]);
        status = path ? rein_make_directories(path, err) : rein_no_memory(err);
        free(path);
    }
    return status;
}

/* ".config.yaml-4711-0.tmp": what rein_writer_open makes of a name; *length is that of the name. */
static int is_temporary(size_t *length, const char *name) {
    static const char end[] = ".tmp", digits[] = "0123456789";
    size_t at = strlen(name), tail = sizeof end - 1;
    if (name[0] != '.' || at < tail || strcmp(name + at - tail, end) != 0) return 0;
    at -= tail;
    for (int number = 0; number < 2; number++) { /* from the end: the try, the process */
        const size_t last = at;
        while (at > 0 && strchr(digits, name[at - 1])) at--;
        if (at == last || at < 2 || name[--at] != '-') return 0;
    }
    *length = at - 1;
    return at > 1;
}

/* Of a file that rein writes into the directory of a run. */
static int is_unfinished_text(const char *name) {
    static const char *const names[] = {"config.yaml",  "history.jsonl", "evaluations.jsonl",
                                        "summary.json", "report.html",   ".origin"};
    size_t length;
    if (!is_temporary(&length, name)) return 0;
    if (rein_is_plan_file(name + 1, length)) return 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == length && !strncmp(name + 1, names[i], length)) return 1;
    return 0;
}

/* Of the trajectories of a step: ".0007.jsonl-4711-0.tmp". */
static int is_unfinished_step(const char *name) {
    static const char end[] = ".jsonl";
    char step[REIN_STEP_NAME];
    size_t length;
    if (!is_temporary(&length, name) || length < sizeof end || length - (sizeof end - 1) >= sizeof step) return 0;
    length -= sizeof end - 1;
    if (strncmp(name + 1 + length, end, sizeof end - 1) != 0) return 0;
    memcpy(step, name + 1, length);
    step[length] = 0;
    return step_of_name(step) >= 0;
}

/* Removes what `unfinished` knows. */
static rein_status sweep(size_t *swept, const char *directory, int (*unfinished)(const char *name), rein_error *err) {
    rein_names names;
    rein_status status = rein_directory_list(&names, directory, err);
    for (size_t i = 0; i < names.n && !status; i++) {
        if (!unfinished(names.at[i])) continue;
        char *path = rein_path_join(directory, names.at[i]);
        status = path ? rein_remove_all(path, err) : rein_no_memory(err);
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
    rein_status status = trained && evaluated ? sweep(&swept, run->checkpoints, is_hidden_step, err) : rein_no_memory(err);
    if (!status) status = sweep(&swept, run->directory, is_unfinished_text, err);
    if (!status) status = sweep(&swept, trained, is_unfinished_step, err);
    if (!status && rein_file_is_directory(evaluated)) status = sweep(&swept, evaluated, is_unfinished_step, err);
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
    if (!path) return rein_no_memory(err);
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
    rein_status status = trajectories ? sync_above(run, err) : rein_no_memory(err);
    if (!status && rein_directory_sync(run->checkpoints) != 0)
        status = rein_file_error(err, run->checkpoints, "the directory cannot be synchronised");
    if (!status && rein_directory_sync(trajectories) != 0)
        status = rein_file_error(err, trajectories, "the directory cannot be synchronised");
    free(trajectories);
    return status;
}

static rein_status start_writing(rein_run *run, rein_run_access access, rein_error *err) {
    rein_status status = rein_make_directories(run->directory, err);
    if (!status) status = take_lock(run, run->lock_path, err);
    if (!status)
        status = check_directory(run->directory, run->checkpoints, access, err); /* again: it may have become one meanwhile */
    if (!status) status = make_tree(run, err);
    if (!status) status = remember_place(run, err);
    if (!status) status = clear_leftovers(run, err);
    if (!status) status = rein_run_history_start(run, err);
    return status ? status : sync_names(run, err);
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
    if (!made) return rein_no_memory(err);
    *made = (rein_run){.lock = -1, .history = -1, .history_step = -1};
    made->directory = copy_of(directory);
    made->checkpoints = rein_path_join(directory, "checkpoints");
    made->lock_path = rein_path_join(directory, ".lock");
    rein_status status = made->directory && made->checkpoints && made->lock_path ? REIN_OK : rein_no_memory(err);
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
    free(run->lock_path);
    free(run);
}

/* What cannot be read today may be readable tomorrow, but by then its step has been made again: it must not come back. */
static rein_status set_aside(rein_run *run, int64_t step, rein_error *err) {
    char *from = rein_run_step_path(run, step), *to = from ? malloc(strlen(from) + sizeof ".bad") : NULL;
    rein_status status = to ? REIN_OK : rein_no_memory(err);
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
    status = path ? rein_file_write(path, text, size, err) : rein_no_memory(err);
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

rein_status rein_run_check_step(const rein_run *run, int64_t step, const char *field, rein_error *err) {
    char shown[300], path[REIN_PATH_SHOWN];
    if (rein_run_has_step(run, step)) return REIN_OK;
    if (!field)
        return rein_fail(err, REIN_EINVAL, "%s has no step %lld: it has %s", rein_path_show(path, run->directory), (long long)step,
                         rein_run_show_steps(shown, sizeof shown, run));
    return rein_fail_at(err, REIN_EINVAL, field, -1, "is %lld: the run has no checkpoint of step %lld; it has %s", (long long)step,
                        (long long)step, rein_run_show_steps(shown, sizeof shown, run));
}
