/* json.h - JSON inside the library: the opaque rein_json of the public header is jansson's json_t. Private.
 *
 * jansson holds the values. What is rejected, how a mistake is described, and how values are written is decided in json_*.c.
 * Include this before any public header: otherwise rein_json and json_t are different types, and the compiler says so. */
#ifndef REIN_BASE_JSON_H
#define REIN_BASE_JSON_H

#include <jansson.h>

#define rein_json json_t
#include "base.h"
#include "rein/json.h"

/* What a parser found wrong: text[token .. position). */
typedef enum rein_json_mistake {
    REIN_JSON_GOOD = 0,
    REIN_JSON_NO_MEMORY,
    REIN_JSON_SYNTAX,   /* `what` says what is wrong */
    REIN_JSON_CUT,      /* the text ends inside the value */
    REIN_JSON_AFTER,    /* text after the value */
    REIN_JSON_NOT_UTF8, /* the byte at the position */
    REIN_JSON_NUL,      /* \u0000 where it is not allowed */
    REIN_JSON_RANGE,    /* a number out of range */
    REIN_JSON_TWICE,    /* a key that the object has already */
    REIN_JSON_DEEP,     /* nested deeper than 256 */
    REIN_JSON_MANY      /* more values than may be in one text */
} rein_json_mistake;

typedef struct rein_json_problem {
    rein_json_mistake mistake;
    size_t token, position;
    char what[60];
} rein_json_problem;

/* The value in a text without NUL bytes, for the caller to release; NULL after a problem. The flags are those of rein_json_parse.
 * Thread-safe. */
json_t *rein_json_build(rein_json_problem *problem, const char *text, size_t length, unsigned flags);

/* Writes the value, indented and with a newline at the end, whole or not at all (file.h). Keys keep their order. */
rein_status rein_json_file_write(const char *path, const json_t *root, rein_error *err);

/* jansson's json_dumps and json_copy lose bytes and keys without a word when there is no memory. These return NULL instead: the value as text,
 * with jansson's flags, a NUL at the end and room for one byte more, for the caller to free (length may be NULL); a new object with the same
 * values, for the caller to release. */
char *rein_json_dump(size_t *length, const json_t *value, size_t flags);
json_t *rein_json_copy(const json_t *object);

/* Follows the well-formed JSON before text[end] and gives the path there: the innermost array's position in *index (-1: the innermost
 * value is not an array), what is around it in `to`: "rewards[1]" and 0 for rewards[1][0]. "" and -1 at the top. */
void rein_json_path_at(char *to, size_t size, int64_t *index, const char *text, size_t end);

#endif
