/* lines.c - a file line by line, in memory for one line. Only regular files: a pipe of that name would block, a device might never end. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "text.h"

enum { PIECE = 1 << 16 };

struct rein_lines {
    int fd;
    char *path, *data;
    size_t begin, end, capacity; /* what is read and not given away is data [begin, end) */
    size_t searched;             /* it has no newline before this */
    size_t longest, number;
};

static rein_status open_regular(rein_lines *l, int64_t from, rein_error *err) {
    struct stat about;
    char shown[REIN_PATH_SHOWN];
    l->fd = open(l->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe must not block */
    if (l->fd < 0 || fstat(l->fd, &about) != 0) return rein_file_error(err, l->path, "cannot be opened");
    if (!S_ISREG(about.st_mode)) return rein_fail(err, REIN_EIO, "%s is not a regular file", rein_path_show(shown, l->path));
    return lseek(l->fd, from, SEEK_SET) < 0 ? rein_file_error(err, l->path, "cannot be read") : REIN_OK;
}

rein_status rein_lines_open(rein_lines **lines, const char *path, int64_t from, size_t longest, rein_error *err) {
    rein_lines *l = calloc(1, sizeof *l);
    *lines = NULL;
    if (!l) return rein_no_memory(err);
    l->fd = -1;
    l->longest = longest;
    rein_status status = rein_text_copy(&l->path, path, strlen(path), err);
    if (!status) status = open_regular(l, from, err);
    if (status) rein_lines_close(l);
    else *lines = l;
    return status;
}

void rein_lines_close(rein_lines *l) {
    if (!l) return;
    if (l->fd >= 0) close(l->fd);
    free(l->path);
    free(l->data);
    free(l);
}

/* Room for a piece and the byte after it. */
static rein_status make_room(rein_lines *l, rein_error *err) {
    if (l->capacity - l->end > PIECE) return REIN_OK;
    if (l->begin) memmove(l->data, l->data + l->begin, l->end - l->begin);
    l->end -= l->begin, l->searched -= l->begin, l->begin = 0;
    if (l->capacity - l->end > PIECE) return REIN_OK;
    const size_t capacity = rein_grown(l->capacity, l->end + PIECE + 1, 1);
    char *data = capacity ? realloc(l->data, capacity) : NULL;
    if (!data) return rein_no_memory(err);
    l->data = data, l->capacity = capacity;
    return REIN_OK;
}

/* *ended: the file has. */
static rein_status read_more(rein_lines *l, int *ended, rein_error *err) {
    const rein_status status = make_room(l, err);
    if (status) return status;
    const ssize_t n = read(l->fd, l->data + l->end, PIECE);
    if (n < 0 && errno == EINTR) return REIN_OK;
    if (n < 0) return rein_file_error(err, l->path, "cannot be read");
    l->end += (size_t)n;
    *ended = n == 0;
    return REIN_OK;
}

static rein_status too_long(const rein_lines *l, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    return rein_fail(err, REIN_EINVAL, "%s: line %zu is longer than %zu MB", rein_path_show(shown, l->path), l->number + 1,
                     l->longest >> 20);
}

/* Stands at the end of the next line. */
static rein_status find_end(rein_lines *l, rein_error *err) {
    rein_status status = REIN_OK;
    for (int ended = 0; !status; status = read_more(l, &ended, err)) {
        char *newline = l->end > l->searched ? memchr(l->data + l->searched, '\n', l->end - l->searched) : NULL;
        l->searched = newline ? (size_t)(newline - l->data) : l->end;
        if (l->searched - l->begin > l->longest) return too_long(l, err);
        if (newline || (ended && l->begin < l->end)) return REIN_OK;
        if (ended) return REIN_END;
    }
    return status;
}

rein_status rein_lines_next(const char **line, size_t *length, rein_lines *l, rein_error *err) {
    const rein_status status = find_end(l, err);
    if (status) return status;
    *line = l->data + l->begin;
    *length = l->searched - l->begin;
    if (l->searched == l->end) l->data[l->end] = 0; /* the last line, without a newline */
    l->begin = l->searched + (l->searched < l->end);
    l->searched = l->begin;
    l->number++;
    return REIN_OK;
}

/* --------------------------------------------------------------------------------------------------------- a line in memory */

rein_status rein_line_end(size_t *end, const char *text, size_t begin, size_t length, const char *where, rein_error *err) {
    const size_t left = length - begin;
    const char *newline = memchr(text + begin, '\n', left < REIN_LONGEST_LINE ? left : REIN_LONGEST_LINE + 1);
    if (!newline && left > REIN_LONGEST_LINE)
        return rein_fail(err, REIN_EINVAL, "%s is longer than %d MB", where, REIN_LONGEST_LINE >> 20);
    *end = newline ? (size_t)(newline - text) : length;
    return REIN_OK;
}
