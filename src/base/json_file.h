/* json_file.h - JSON files: parsed with the place of a mistake, read field by field, written back. Private.
 *
 * Every message begins with the file; a field is named by its path, "rope_scaling.factor". */
#ifndef REIN_BASE_JSON_FILE_H
#define REIN_BASE_JSON_FILE_H

#include <jansson.h>

#include "rein/base.h"

/* Parses one JSON object. `file` is for messages only. *root is NULL on failure, the caller's reference otherwise. Rejected:
 * duplicate keys, text after the object, NUL bytes (also as \u0000), invalid UTF-8, NaN and Infinity, whole numbers beyond 64 bits,
 * nesting beyond jansson's limit. Thread-safe. */
rein_status rein_json_file_parse(json_t **root, const char *file, const char *text, size_t length, rein_error *err);

/* The same from a file. Thread-safe. */
rein_status rein_json_file_read(json_t **root, const char *path, rein_error *err);

/* Writes the value, indented and with a newline at the end, whole or not at all (file.h). Keys keep their order. */
rein_status rein_json_file_write(const char *path, const json_t *root, rein_error *err);

/* `text` in quotes, cut at a character to fit; returns `to`. For messages: control bytes are shown as ?. */
enum { REIN_TEXT_SHOWN = 100 };
const char *rein_json_quote(char to[REIN_TEXT_SHOWN], const char *text);

/* ---- fields. An object being read; the first failure stays, and after it every getter returns its fallback (0 or NULL if it has
 * none). A field that is null counts as absent. What is returned is borrowed from the object. One thread at a time. */
typedef struct rein_fields {
    const json_t *object;
    const char *file, *path; /* for messages; the path is "" at the top and "rope_scaling." inside of that field */
    rein_status status;
    rein_error *err;
} rein_fields;

int rein_fields_has(const rein_fields *in, const char *key);

/* Whole numbers from low to high; the first must be there. */
int64_t rein_fields_integer(rein_fields *in, const char *key, int64_t low, int64_t high);
int64_t rein_fields_integer_or(rein_fields *in, const char *key, int64_t low, int64_t high, int64_t fallback);

/* Numbers above `above`. */
double rein_fields_number(rein_fields *in, const char *key, double above);
double rein_fields_number_or(rein_fields *in, const char *key, double above, double fallback);

int rein_fields_bool_or(rein_fields *in, const char *key, int fallback);
const char *rein_fields_string(rein_fields *in, const char *key);
const char *rein_fields_string_or(rein_fields *in, const char *key, const char *fallback);

/* An array or an object, or NULL when it is absent. */
const json_t *rein_fields_array(rein_fields *in, const char *key);
const json_t *rein_fields_object(rein_fields *in, const char *key);

/* "FILE: PATH.KEY is VALUE: NEED", unless something failed before. `value` may be NULL: then the field is missing. Returns the
 * status. */
rein_status rein_fields_wrong(rein_fields *in, const char *key, const json_t *value, const char *need, ...)
    __attribute__((format(printf, 4, 5)));

#endif
