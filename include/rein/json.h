/* json.h - reading JSON with the place of every mistake, and writing it.
 *
 * A mistake is data first: rein_error.field is the JSON path of what is wrong ("options.epsilon"), rein_error.index the position in the
 * innermost array. The message adds the file or line, the column, and what would be right.
 * Pointers may not be NULL unless a line below says so; a rein_error * may always be NULL. */
#ifndef REIN_JSON_H
#define REIN_JSON_H

#include "rein/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------------------------------------------------- 1. text to value */

/* A JSON value: opaque, never changed after parsing. Any number of threads may read one at the same time. */
typedef struct rein_json rein_json;

enum {
    REIN_JSON_NEEDS_OBJECT = 1,  /* any other value is an error */
    REIN_JSON_ONE_LINE = 2,      /* the text is one line: `place` has its number, and a position is a column */
    REIN_JSON_WIDE_INTEGERS = 4, /* whole numbers are read as doubles, so that they may have more than 64 bits */
    REIN_JSON_ALLOWS_NUL = 8     /* strings may contain \u0000 */
};

/* Parses one JSON value. `place` is what messages begin with: a file, or "FILE: line 3"; NULL for an input without a name. `flags` are
 * those above. The caller frees *value, which is NULL on failure. Errors: an empty text, a byte order mark, NUL bytes, invalid UTF-8, a
 * key given twice in an object, text after the value, NaN and Infinity, numbers out of range, nesting deeper than 256, more than
 * 33 million values (an array or object counts as 9), and \u0000 unless allowed. The status is REIN_EINVAL or REIN_ENOMEM. Thread-safe. */
REIN_API rein_status rein_json_parse(rein_json **value, const char *text, size_t length, const char *place, unsigned flags,
                                     rein_error *err);

/* The same for a file, which is the place; REIN_EIO if it cannot be read. Thread-safe. */
REIN_API rein_status rein_json_read(rein_json **value, const char *path, unsigned flags, rein_error *err);

/* Frees a value. NULL is fine. What was borrowed from the value is gone too. */
REIN_API void rein_json_free(rein_json *value);

/* ------------------------------------------------------------------------------------------------------------ 2. parts of a value */

typedef enum rein_json_kind {
    REIN_JSON_NONE = 0, /* no value: the pointer is NULL */
    REIN_JSON_NULL,
    REIN_JSON_BOOLEAN,
    REIN_JSON_NUMBER,
    REIN_JSON_STRING,
    REIN_JSON_ARRAY,
    REIN_JSON_OBJECT
} rein_json_kind;

/* In every call of this part `value` may be NULL, and what is returned is borrowed from it. Thread-safe. */
REIN_API rein_json_kind rein_json_kind_of(const rein_json *value);

/* The entries of an array or object; 0 for anything else. */
REIN_API size_t rein_json_size(const rein_json *value);

/* Entry i of an array; NULL past the end, or if it is not an array. */
REIN_API const rein_json *rein_json_at(const rein_json *value, size_t i);

/* The field of an object; NULL if there is none, or if it is not an object. */
REIN_API const rein_json *rein_json_get(const rein_json *value, const char *key);

/* Walks through the fields of an object in their order: for (void *at = NULL; (at = rein_json_next(&key, &field, object, at));) */
REIN_API void *rein_json_next(const char **key, const rein_json **field, const rein_json *value, void *at);

/* The number, the string, whether it is true; 0 or NULL for a value of another kind. A string ends with a NUL; its length counts the
 * NULs in it. */
REIN_API double rein_json_number(const rein_json *value);
REIN_API const char *rein_json_string(const rein_json *value);
REIN_API size_t rein_json_length(const rein_json *value);
REIN_API int rein_json_true(const rein_json *value);

/* The value as messages show it: "x", 1.5, null, an array. Returns `to`. `value` may not be NULL. */
enum { REIN_TEXT_SHOWN = 100 };
REIN_API const char *rein_json_show(char to[REIN_TEXT_SHOWN], const rein_json *value);

/* A text in quotes, escaped as in JSON and cut to fit, as messages show it. Returns `to`. Thread-safe. */
REIN_API const char *rein_json_quote(char to[REIN_TEXT_SHOWN], const char *text);

/* ---------------------------------------------------------------------------------------------------- 3. the fields of an object */

/* An object that is read field by field. The first failure stays: it is described in *err, and after it every getter returns its
 * fallback (0 or NULL if it has none). A field that is null counts as absent. What is returned is borrowed from the object. One thread
 * at a time. */
typedef struct rein_fields {
    const rein_json *object;
    const char *file; /* what messages begin with; NULL: nothing */
    const char *path; /* prefix of the key: "" at the top, "rope_scaling." inside that field */
    rein_status status;
    rein_error *err;
} rein_fields;

/* Tells whether the object has the field: 1 or 0. */
REIN_API int rein_fields_has(const rein_fields *in, const char *key);

/* Whole numbers from low to high. The field must be there, unless there is a fallback; so for all getters below. */
REIN_API int64_t rein_fields_integer(rein_fields *in, const char *key, int64_t low, int64_t high);
REIN_API int64_t rein_fields_integer_or(rein_fields *in, const char *key, int64_t low, int64_t high, int64_t fallback);

/* Numbers above `above`, which may be -INFINITY. */
REIN_API double rein_fields_number(rein_fields *in, const char *key, double above);
REIN_API double rein_fields_number_or(rein_fields *in, const char *key, double above, double fallback);

REIN_API int rein_fields_bool_or(rein_fields *in, const char *key, int fallback);

/* Strings without \u0000. */
REIN_API const char *rein_fields_string(rein_fields *in, const char *key);
REIN_API const char *rein_fields_string_or(rein_fields *in, const char *key, const char *fallback);

/* The position of the string in `choices`, which NULL ends. */
REIN_API int rein_fields_choice_or(rein_fields *in, const char *key, const char *const *choices, int fallback);

/* An array or an object, or NULL if it is absent. */
REIN_API const rein_json *rein_fields_array(rein_fields *in, const char *key);
REIN_API const rein_json *rein_fields_object(rein_fields *in, const char *key);

/* Fails if the object has another key than `keys`, which NULL ends. Returns the status. */
REIN_API rein_status rein_fields_only(rein_fields *in, const char *const *keys);

/* Reports that a field has a wrong value: "FILE: PATH.KEY is VALUE: NEED", unless something failed before; "is missing" if `value`
 * is NULL. Returns the status. */
REIN_API rein_status rein_fields_wrong(rein_fields *in, const char *key, const rein_json *value, const char *need, ...)
    REIN_PRINTF(4, 5);

/* Reports what is wrong with a field: "FILE: PATH.KEY[INDEX] REASON", as rein_fail_at has it (index -1: none), unless something
 * failed before. Returns the status. */
REIN_API rein_status rein_fields_fail(rein_fields *in, rein_status code, const char *key, int64_t index, const char *format, ...)
    REIN_PRINTF(5, 6);

/* ------------------------------------------------------------------------------------------------------------- 4. value to text */

/* The calls below append to a text. They have no status (text.h): rein_text_status tells whether all is written. */

/* A string, escaped; the bytes are UTF-8. */
REIN_API void rein_json_put_string(rein_text *text, const char *string);
REIN_API void rein_json_put_bytes(rein_text *text, const char *bytes, size_t length);

/* Numbers that read back as the same double (17 digits) or float (9 digits); null for NaN and infinities. */
REIN_API void rein_json_put_double(rein_text *text, double value);
REIN_API void rein_json_put_float(rein_text *text, float value);

/* A finite number in the fewest digits that read back as the same double, as Python writes it: 0.1, 1e-07, 3.0. */
REIN_API void rein_json_put_shortest(rein_text *text, double value);

/* The name of a field, after a comma unless the object was just opened; the value comes next. */
REIN_API void rein_json_put_name(rein_text *text, const char *name);

/* A field: a number, an array of numbers, or rows of numbers where row r is values [offsets[r], offsets[r + 1]). */
REIN_API void rein_json_put_field(rein_text *text, const char *name, double value);
REIN_API void rein_json_put_array(rein_text *text, const char *name, const double *values, size_t n);
REIN_API void rein_json_put_rows(rein_text *text, const char *name, const double *values, const size_t *offsets, size_t rows);

/* A value on one line, as Python's json.dumps(ensure_ascii=False) writes it. */
REIN_API void rein_json_put_value(rein_text *text, const rein_json *value);

/* An error as one object: code ("EINVAL"), field and index (null if there is none), message. */
REIN_API void rein_json_put_error(rein_text *text, const rein_error *err);

#ifdef __cplusplus
}
#endif
#endif
