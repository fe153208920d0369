/* run_history.c - history.jsonl: whole lines, one a step.
 *
 * A line goes to the file in one write and is durable before the next one starts, so a stop can tear the last line and no other. Torn is a
 * line without its newline, and also a last line that is no JSON: a file system may have made the file longer and not written the bytes. A
 * line elsewhere that is no JSON was damaged by somebody else, and is an error. */
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
#include "run.h"

static const int64_t LAST_STEP = INT64_MAX - 1; /* one more is still a number */

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "out of memory"); }

static char *history_path(const rein_run *run) { return rein_path_join(run->directory, "history.jsonl"); }

/* -------------------------------------------------------------------------------------------------------------------- reading */

/* The file, and how much of it is good. */
typedef struct history {
    char *path, *text;
    size_t size;
    size_t whole; /* bytes of the lines taken */
    int64_t step; /* of the last of them; -1: none */
} history;

static void release(history *h) {
    free(h->path);
    free(h->text);
}

/* No file is an empty one. The caller releases, whatever comes out. */
static rein_status load(history *h, const rein_run *run, rein_error *err) {
    *h = (history){.path = history_path(run), .step = -1};
    if (!h->path) return no_memory(err);
    if (rein_file_read(&h->text, &h->size, h->path) == 0 || errno == ENOENT) return REIN_OK;
    return rein_file_error(err, h->path, "cannot be read");
}

/* The line as an object, and its step, which is beyond that of the line before. */
static rein_status parse_line(json_t **object, int64_t *step, const history *h, size_t number, size_t length, rein_error *err) {
    char name[REIN_PATH_SHOWN + 40], shown[REIN_PATH_SHOWN];
    snprintf(name, sizeof name, "%s: line %zu", rein_path_show(shown, h->path), number);
    const rein_status status =
        rein_json_parse(object, h->text + h->whole, length, name, REIN_JSON_NEEDS_OBJECT | REIN_JSON_ONE_LINE, err);
    if (status) return status;
    rein_fields in = {.object = *object, .file = name, .path = "", .err = err};
    *step = rein_fields_integer(&in, "step", h->step + 1, LAST_STEP);
    if (in.status) json_decref(*object), *object = NULL;
    return in.status;
}

/* Takes line after line into `lines` (or NULL), up to the first of a step beyond `last`, or the one that is torn. */
static rein_status take_lines(history *h, json_t *lines, int64_t last, rein_error *err) {
    for (size_t number = 1; h->whole < h->size; number++) {
        json_t *object;
        int64_t step;
        const char *end = memchr(h->text + h->whole, '\n', h->size - h->whole);
        if (!end) return REIN_OK;
        const size_t after = (size_t)(end - h->text) + 1;
        const rein_status status = parse_line(&object, &step, h, number, after - 1 - h->whole, err);
        if (status == REIN_EINVAL && after == h->size) return REIN_OK;
        if (status) return status;
        if (step > last) return json_decref(object), REIN_OK;
        const int kept = lines ? json_array_append(lines, object) : 0;
        json_decref(object);
        if (kept != 0) return no_memory(err);
        h->whole = after;
        h->step = step;
    }
    return REIN_OK;
}

rein_status rein_run_history_read(json_t **lines, const rein_run *run, rein_error *err) {
    history h;
    *lines = json_array();
    rein_status status = load(&h, run, err);
    if (!status) status = *lines ? take_lines(&h, *lines, LAST_STEP, err) : no_memory(err);
    release(&h);
    if (status) json_decref(*lines), *lines = NULL;
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------- writing */

static rein_status open_to_append(rein_run *run, const char *path, rein_error *err) {
    run->history = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    return run->history >= 0 ? REIN_OK : rein_file_error(err, path, "cannot be opened for writing");
}

static void stop(rein_run *run) {
    if (run->history >= 0) close(run->history);
    run->history = -1;
}

static rein_status cut_torn_line(rein_run *run, const history *h, rein_error *err) {
    const size_t length = strlen(run->note);
    if (h->whole == h->size) return REIN_OK;
    snprintf(run->note + length, sizeof run->note - length, "%shistory.jsonl ended in a torn line: cut off %zu bytes",
             length ? "; " : "", h->size - h->whole);
    return ftruncate(run->history, (off_t)h->whole) == 0 ? REIN_OK : rein_file_error(err, h->path, "cannot be cut");
}

rein_status rein_run_history_start(rein_run *run, rein_error *err) {
    history h;
    rein_status status = load(&h, run, err);
    if (!status) status = take_lines(&h, NULL, LAST_STEP, err);
    if (!status) status = open_to_append(run, h.path, err);
    if (!status) status = cut_torn_line(run, &h, err);
    if (!status && rein_directory_sync(run->directory) != 0)
        status = rein_file_error(err, run->directory, "the directory cannot be synchronised");
    if (status) stop(run);
    run->history_size = (int64_t)h.whole;
    run->history_step = h.step;
    release(&h);
    return status;
}

/* The file is replaced, not cut: a reader that has the old one open keeps it whole. */
rein_status rein_run_history_drop(rein_run *run, int64_t step, rein_error *err) {
    history h;
    rein_status status = load(&h, run, err);
    if (!status) status = take_lines(&h, NULL, step, err);
    if (!status && h.whole < h.size) {
        stop(run);
        status = rein_file_write(h.path, h.text, h.whole, err);
    }
    if (!status && run->history < 0) status = rein_run_history_start(run, err);
    release(&h);
    return status;
}

/* A line and its newline, for the caller to free. */
static rein_status line_text(char **text, size_t *size, const json_t *line, rein_error *err) {
    const size_t length = json_dumpb(line, NULL, 0, JSON_COMPACT);
    *text = length ? malloc(length + 1) : NULL;
    if (!*text || json_dumpb(line, *text, length, JSON_COMPACT) != length) return no_memory(err);
    (*text)[length] = '\n';
    *size = length + 1;
    return REIN_OK;
}

/* What a failure left behind is cut off, at once or, if that fails too, before the next line. */
static rein_status append_text(rein_run *run, const char *path, const char *text, size_t size, rein_error *err) {
    struct stat about;
    char shown[REIN_PATH_SHOWN];
    if (fstat(run->history, &about) != 0) return rein_file_error(err, path, "cannot be written");
    if (about.st_size < run->history_size)
        return rein_fail(err, REIN_EIO, "%s was cut short by somebody else", rein_path_show(shown, path));
    if (about.st_size > run->history_size && ftruncate(run->history, run->history_size) != 0)
        return rein_file_error(err, path, "cannot be cut");
    errno = ENOSPC; /* what a write that comes back short means */
    if (write(run->history, text, size) == (ssize_t)size && fsync(run->history) == 0) {
        run->history_size += (int64_t)size;
        return REIN_OK;
    }
    const rein_status status = rein_file_error(err, path, "cannot be written");
    if (ftruncate(run->history, run->history_size) != 0) errno = 0; /* the next line tries again */
    return status;
}

rein_status rein_run_history_append(rein_run *run, const json_t *line, rein_error *err) {
    char *text = NULL, *path = history_path(run);
    size_t size = 0;
    rein_status status = path ? rein_run_writable(run, err) : no_memory(err);
    if (!status && run->history < 0) status = rein_run_history_start(run, err);
    rein_fields in = {.object = line, .file = path, .path = "", .status = status, .err = err};
    const int64_t step = rein_fields_integer(&in, "step", run->history_step + 1, LAST_STEP);
    status = in.status;
    if (!status) status = line_text(&text, &size, line, err);
    if (!status) status = append_text(run, path, text, size, err);
    if (!status) run->history_step = step;
    free(text);
    free(path);
    return status;
}
