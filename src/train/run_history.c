/* run_history.c - history.jsonl: whole lines, one a step.
 *
 * A line goes to the file in one write and is durable before the next one starts, so a stop can tear the last line and no other. Torn is a
 * last line without its newline, or with NUL bytes: a file system may have made the file longer and not written the bytes. Any other line
 * that is not one of ours was damaged by somebody else: it is an error, and nothing is cut. So a line is never lost to a failure of this
 * process, such as memory that runs out. */
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

static char *history_path(const rein_run *run) { return rein_path_join(run->directory, "history.jsonl"); }

/* -------------------------------------------------------------------------------------------------------------------- reading */

enum { LONGEST = 16 << 20 }; /* bytes of a line */

struct rein_run_lines {
    char *path;
    rein_lines *file; /* NULL: there is none */
    size_t number;
    int64_t whole; /* bytes of the lines taken */
    int64_t step;  /* of the last of them; -1: none */
};

void rein_run_history_close(rein_run_lines *h) {
    if (!h) return;
    rein_lines_close(h->file);
    free(h->path);
    free(h);
}

rein_status rein_run_history_open(rein_run_lines **lines, const rein_run *run, rein_error *err) {
    rein_error why = {0};
    rein_run_lines *h = *lines = calloc(1, sizeof *h);
    if (h) h->path = history_path(run), h->step = -1;
    rein_status status = h && h->path ? rein_lines_open(&h->file, h->path, 0, LONGEST, &why) : rein_no_memory(&why);
    if (status && why.system == ENOENT) return REIN_OK;
    if (!status) return REIN_OK;
    if (err) *err = why;
    rein_run_history_close(h);
    *lines = NULL;
    return status;
}

/* The line as an object, and its step, which is beyond that of the line before. */
static rein_status parse_line(json_t **object, rein_run_lines *h, const char *line, size_t length, rein_error *err) {
    char name[REIN_PATH_SHOWN + 40], shown[REIN_PATH_SHOWN];
    snprintf(name, sizeof name, "%s: line %zu", rein_path_show(shown, h->path), h->number);
    const rein_status status = rein_json_parse(object, line, length, name, REIN_JSON_NEEDS_OBJECT | REIN_JSON_ONE_LINE, err);
    if (status) return status;
    rein_fields in = {.object = *object, .file = name, .path = "", .err = err};
    const int64_t step = rein_fields_integer(&in, "step", h->step + 1, LAST_STEP);
    if (in.status) json_decref(*object), *object = NULL;
    else h->step = step;
    return in.status;
}

/* A line with NUL bytes is torn if it is the last one, else damaged. */
static rein_status after_nul(rein_run_lines *h, const char *line, size_t length, rein_error *err) {
    rein_error damage;
    json_t *none;
    const rein_status damaged = parse_line(&none, h, line, length, &damage);
    const rein_status status = rein_lines_next(&line, &length, h->file, err);
    if (status) return status;
    if (err) *err = damage;
    return damaged;
}

rein_status rein_run_history_next(json_t **line, rein_run_lines *h, rein_error *err) {
    const char *text;
    size_t length;
    *line = NULL;
    rein_status status = h->file ? rein_lines_next(&text, &length, h->file, err) : REIN_END;
    if (status) return status;
    h->number++;
    if (text[length] != '\n') return REIN_END;
    if (memchr(text, 0, length)) return after_nul(h, text, length, err);
    status = parse_line(line, h, text, length, err);
    if (!status) h->whole += (int64_t)length + 1;
    return status;
}

/* Takes the lines up to step `last`: *whole bytes, the last of *step. */
static rein_status measure(int64_t *whole, int64_t *step, const rein_run *run, int64_t last, rein_error *err) {
    rein_run_lines *h;
    json_t *line;
    *whole = 0, *step = -1;
    rein_status status = rein_run_history_open(&h, run, err);
    while (!status && !(status = rein_run_history_next(&line, h, err))) {
        json_decref(line);
        if (h->step > last) break;
        *whole = h->whole, *step = h->step;
    }
    rein_run_history_close(h);
    return status == REIN_END ? REIN_OK : status;
}

/* -------------------------------------------------------------------------------------------------------------------- writing */

static rein_status open_to_append(rein_run *run, const char *path, rein_error *err) {
    run->history = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    return run->history >= 0 ? REIN_OK : rein_file_error(err, path, "cannot be opened for writing");
}

static void stop(rein_run *run) {
    if (run->history >= 0) close(run->history);
    run->history = -1;
}

static rein_status cut_torn_line(rein_run *run, const char *path, rein_error *err) {
    const size_t length = strlen(run->note);
    struct stat about;
    if (fstat(run->history, &about) != 0) return rein_file_error(err, path, "cannot be read");
    if (run->history_size >= about.st_size) return REIN_OK;
    snprintf(run->note + length, sizeof run->note - length, "%shistory.jsonl ended in a torn line: cut off %lld bytes",
             length ? "; " : "", (long long)(about.st_size - run->history_size));
    return ftruncate(run->history, run->history_size) == 0 ? REIN_OK : rein_file_error(err, path, "cannot be cut");
}

rein_status rein_run_history_start(rein_run *run, rein_error *err) {
    char *path = history_path(run);
    rein_status status = path ? measure(&run->history_size, &run->history_step, run, LAST_STEP, err) : rein_no_memory(err);
    if (!status) status = open_to_append(run, path, err);
    if (!status) status = cut_torn_line(run, path, err);
    if (!status && rein_directory_sync(run->directory) != 0)
        status = rein_file_error(err, run->directory, "the directory cannot be synchronised");
    if (status) stop(run);
    free(path);
    return status;
}

/* Copies the first bytes of the file. */
static rein_status put_part(rein_writer *writer, const char *path, int64_t bytes, rein_error *err) {
    rein_lines *lines;
    const char *line;
    size_t length;
    rein_status status = rein_lines_open(&lines, path, 0, LONGEST, err);
    while (bytes > 0 && !status && !(status = rein_lines_next(&line, &length, lines, err))) {
        status = rein_writer_put(writer, line, length + 1, err);
        bytes -= (int64_t)length + 1;
    }
    rein_lines_close(lines);
    return status;
}

/* The file is replaced, not cut: a reader that has the old one open keeps it whole. */
static rein_status replace(rein_run *run, int64_t bytes, rein_error *err) {
    char *path = history_path(run);
    rein_writer writer = {0};
    rein_status status = path ? rein_writer_open(&writer, path, err) : rein_no_memory(err);
    if (!status) status = put_part(&writer, path, bytes, err);
    if (!status) status = rein_writer_commit(&writer, err);
    rein_writer_abandon(&writer);
    free(path);
    return status;
}

rein_status rein_run_history_drop(rein_run *run, int64_t step, rein_error *err) {
    int64_t whole, last;
    rein_status status = measure(&whole, &last, run, step, err);
    if (!status && whole < run->history_size) {
        stop(run);
        status = replace(run, whole, err);
    }
    return !status && run->history < 0 ? rein_run_history_start(run, err) : status;
}

/* A line and its newline, for the caller to free. */
static rein_status line_text(char **text, size_t *size, const json_t *line, rein_error *err) {
    size_t length;
    *text = rein_json_dump(&length, line, JSON_COMPACT);
    if (!*text) return rein_no_memory(err);
    if (length > LONGEST)
        return rein_fail(err, REIN_EINVAL, "a line of the history has %zu bytes: at most %d fit", length, LONGEST);
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
    rein_status status = path ? rein_run_writable(run, err) : rein_no_memory(err);
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
