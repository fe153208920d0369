/* checkpoint.c - checkpoints, from a hidden directory to one that verifies.
 *
 * What must be durable before what: the files and the names in the directory before the directory gets its name, and that name before
 * commit returns. Whoever finds RUN/checkpoints/0007 therefore finds all of it, after a power cut too. */
#include "checkpoint.h"
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/json.h"
#include "manifest.h"

enum { LARGEST_WRITE = 1 << 30 };

struct rein_checkpoint {
    rein_run *run;
    int64_t step;
    char *directory; /* hidden */
};

/* -------------------------------------------------------------------------------------------------------------------- writing */

static void release(rein_checkpoint *checkpoint) {
    checkpoint->run->writing = 0;
    free(checkpoint->directory);
    free(checkpoint);
}

/* One that could not be removed when it was abandoned is in the way. */
static rein_status make_hidden(const char *directory, rein_error *err) {
    const rein_status status = rein_remove_all(directory, err);
    if (status) return status;
    return mkdir(directory, 0777) == 0 ? REIN_OK : rein_file_error(err, directory, "the directory cannot be made");
}

rein_status rein_checkpoint_begin(rein_checkpoint **checkpoint, rein_run *run, int64_t step, rein_error *err) {
    *checkpoint = NULL;
    rein_status status = rein_run_writable(run, err);
    if (status) return status;
    if (step < 0)
        return rein_fail_at(err, REIN_EINVAL, "step", -1, "is %lld: the step of a checkpoint is 0 or more", (long long)step);
    if (run->writing) return rein_fail(err, REIN_EINVAL, "a run writes one checkpoint at a time");
    rein_checkpoint *made = malloc(sizeof *made);
    if (!made) return rein_no_memory(err);
    *made = (rein_checkpoint){run, step, rein_run_hidden_path(run, step, "new")};
    status = made->directory ? rein_run_reserve_step(run, err) : rein_no_memory(err);
    if (!status) status = make_hidden(made->directory, err);
    if (status) return release(made), status;
    run->writing = 1;
    *checkpoint = made;
    return REIN_OK;
}

const char *rein_checkpoint_directory(const rein_checkpoint *checkpoint) { return checkpoint->directory; }

char *rein_checkpoint_path(const rein_checkpoint *checkpoint, const char *name) {
    return rein_path_join(checkpoint->directory, name);
}

static rein_status put_bytes(int fd, const char *path, const unsigned char *data, size_t size, rein_error *err) {
    while (size > 0) {
        errno = ENOSPC; /* what a write of nothing means */
        const ssize_t n = write(fd, data, size < LARGEST_WRITE ? size : LARGEST_WRITE);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return rein_file_error(err, path, "cannot be written");
        data += n;
        size -= (size_t)n;
    }
    return REIN_OK;
}

rein_status rein_checkpoint_put(const rein_checkpoint *checkpoint, const char *name, const void *data, size_t size,
                                rein_error *err) {
    char *path = rein_checkpoint_path(checkpoint, name);
    if (!path) return rein_no_memory(err);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    rein_status status = fd < 0 ? rein_file_error(err, path, "cannot be written") : put_bytes(fd, path, data, size, err);
    if (fd >= 0 && close(fd) != 0 && !status) status = rein_file_error(err, path, "cannot be written");
    free(path);
    return status;
}

rein_status rein_checkpoint_put_json(const rein_checkpoint *checkpoint, const char *name, const json_t *object, rein_error *err) {
    size_t length;
    char *text = rein_json_dump(&length, object, JSON_INDENT(2));
    if (!text) return rein_no_memory(err);
    text[length] = '\n'; /* where the 0 was: the size is what counts from here */
    const rein_status status = rein_checkpoint_put(checkpoint, name, text, length + 1, err);
    free(text);
    return status;
}

void rein_checkpoint_abandon(rein_checkpoint *checkpoint) {
    if (!checkpoint) return;
    if (rein_run_is_in_place(checkpoint->run))        /* else the name may be that of another run's */
        rein_remove_all(checkpoint->directory, NULL); /* if it cannot be, the next one to open the run will */
    release(checkpoint);
}

/* --------------------------------------------------------------------------------------------------------------------- commit */

/* 1 if the run has this checkpoint already, the same and good: then the new one can go. */
static rein_status look_for_same(int *same, const rein_checkpoint *checkpoint, const rein_manifest *manifest, const char *final,
                                 rein_error *err) {
    rein_manifest there = {0};
    char shown[REIN_PATH_SHOWN];
    *same = 0;
    if (!rein_file_exists(final)) return REIN_OK;
    rein_status status = rein_checkpoint_verify(checkpoint->run, checkpoint->step, err);
    if (!status) status = rein_manifest_read(&there, final, err);
    if (!status && there.hash != manifest->hash)
        status = rein_fail(err, REIN_EINVAL, "%s is there, with other content: a checkpoint is not replaced",
                           rein_path_show(shown, final));
    *same = !status;
    rein_manifest_free(&there);
    return status;
}

static rein_status make_final(const rein_checkpoint *checkpoint, const char *final, rein_error *err) {
    int same = 0;
    rein_run *run = checkpoint->run;
    rein_manifest manifest = {0};
    rein_status status = rein_run_writable(run, err);
    if (!status) status = rein_manifest_write(&manifest, checkpoint->directory, err);
    if (!status && rein_directory_sync(checkpoint->directory) != 0)
        status = rein_file_error(err, checkpoint->directory, "the directory cannot be synchronised");
    if (!status) status = look_for_same(&same, checkpoint, &manifest, final, err);
    rein_manifest_free(&manifest);
    if (!status) status = rein_run_writable(run, err);
    if (!status && !same && rename(checkpoint->directory, final) != 0) status = rein_file_error(err, final, "cannot be made");
    if (status) return status;
    rein_run_add_step(run, checkpoint->step);
    if (rein_directory_sync(run->checkpoints) != 0) /* also for the same one: its writer may not have come to it */
        return rein_file_error(err, final, "is written, but its directory cannot be synchronised");
    return REIN_OK;
}

rein_status rein_checkpoint_commit(rein_checkpoint *checkpoint, rein_error *err) {
    char *final = rein_run_step_path(checkpoint->run, checkpoint->step);
    const rein_status status = final ? make_final(checkpoint, final, err) : rein_no_memory(err);
    free(final);
    rein_checkpoint_abandon(checkpoint); /* what is left of it: nothing, if it has its name now */
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------- loading */

rein_status rein_checkpoint_verify(const rein_run *run, int64_t step, rein_error *err) {
    rein_manifest manifest = {0};
    char *directory = rein_run_step_path(run, step);
    rein_status status = directory ? rein_manifest_read(&manifest, directory, err) : rein_no_memory(err);
    for (size_t i = 0; i < manifest.n && !status; i++) status = rein_manifest_check(&manifest.files[i], directory, err);
    rein_manifest_free(&manifest);
    free(directory);
    return status;
}

rein_status rein_checkpoint_read_json(json_t **object, const rein_run *run, int64_t step, const char *name, rein_error *err) {
    *object = NULL;
    char *directory = rein_run_step_path(run, step), *path = directory ? rein_path_join(directory, name) : NULL;
    const rein_status status = path ? rein_json_read(object, path, REIN_JSON_NEEDS_OBJECT, err) : rein_no_memory(err);
    free(directory);
    free(path);
    return status;
}

static void say_passed_over(char note[REIN_NOTE_SIZE], const char *reason, size_t passed, int64_t step) {
    char more[40] = "";
    if (passed > 1) snprintf(more, sizeof more, " (and %zu more)", passed - 1);
    snprintf(note, REIN_NOTE_SIZE, "%.400s%s; the last good checkpoint is of step %lld", reason, more, (long long)step);
}

rein_status rein_run_last_good(int64_t *step, char note[REIN_NOTE_SIZE], const rein_run *run, rein_error *err) {
    rein_error first = {0}, problem;
    char shown[REIN_PATH_SHOWN];
    *step = -1;
    note[0] = 0;
    for (size_t i = run->n_steps; i-- > 0;) {
        const rein_status status = rein_checkpoint_verify(run, run->steps[i], &problem);
        if (status && status != REIN_EINVAL) return rein_fail_with(err, status, &problem);
        if (status && !first.code) first = problem;
        if (status) continue;
        *step = run->steps[i];
        if (first.code) say_passed_over(note, first.message, run->n_steps - 1 - i, *step);
        return REIN_OK;
    }
    if (run->n_steps == 0) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "%s has no good checkpoint among %zu; the newest: %.250s",
                     rein_path_show(shown, run->directory), run->n_steps, first.message);
}
