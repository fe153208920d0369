/* text.h - a growing text: the one buffer that the library and the command line write into; and files read line by line.
 *
 * The caller owns a rein_text and frees it. The memory comes from malloc. One thread at a time uses one. */
#ifndef REIN_TEXT_H
#define REIN_TEXT_H

#include "rein/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* {0} is an empty text. */
typedef struct rein_text {
    char *data; /* followed by a NUL that `length` does not count, once anything was appended */
    size_t length, capacity;
    int failed; /* a call without a status found no memory: later calls append nothing */
} rein_text;

/* Frees a text and makes it {0} again. Harmless on {0}. */
REIN_API void rein_text_free(rein_text *text);

/* Appends bytes [length]. On failure the text stays as it was. */
REIN_API rein_status rein_text_append(rein_text *text, const char *bytes, size_t length, rein_error *err);

/* The calls below have no status: a failure is remembered in `failed`, and rein_text_status reports it at the end. */
REIN_API void rein_text_put(rein_text *text, const char *string);
REIN_API void rein_text_put_bytes(rein_text *text, const char *bytes, size_t length);
REIN_API void rein_text_format(rein_text *text, const char *format, ...) REIN_PRINTF(2, 3);
REIN_API void rein_text_repeat(rein_text *text, const char *string, size_t times);

/* Tells whether everything was appended: REIN_OK, or REIN_ENOMEM if a call found no memory. */
REIN_API rein_status rein_text_status(const rein_text *text, rein_error *err);

/* A file that is read line by line, in memory for one line. One thread at a time. */
typedef struct rein_lines rein_lines;

/* Opens a file to read its lines from byte `from` on. It must be a regular file: REIN_EIO if it is not, or cannot be opened. The
 * path is copied. A line may have `longest` bytes. The caller closes *lines, which is NULL on failure; closing NULL is fine. */
REIN_API rein_status rein_lines_open(rein_lines **lines, const char *path, int64_t from, size_t longest, rein_error *err);
REIN_API void rein_lines_close(rein_lines *lines);

/* Reads the next line, without its newline, borrowed until the next call: (*line)[*length] is the newline, or 0 in a last line that
 * has none. REIN_END after the last line; REIN_EINVAL if it is too long; REIN_EIO, REIN_ENOMEM. */
REIN_API rein_status rein_lines_next(const char **line, size_t *length, rein_lines *lines, rein_error *err);

#ifdef __cplusplus
}
#endif
#endif
