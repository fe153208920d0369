/* json_file.c - jansson parses; this file decides what is said about a mistake. */
#include "json_file.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "out of memory"); }

const char *rein_json_quote(char to[REIN_TEXT_SHOWN], const char *text) {
    static const char ellipsis[] = "…\"";
    size_t n = 0, length = strlen(text);
    const size_t room = REIN_TEXT_SHOWN - 1 - sizeof ellipsis;
    const int cut = length > room;
    if (cut) length = room;
    while (cut && length && ((unsigned char)text[length] & 0xC0) == 0x80) length--;
    to[n++] = '"';
    for (size_t i = 0; i < length; i++) to[n++] = (unsigned char)text[i] < 32 || text[i] == 127 ? '?' : text[i];
    memcpy(to + n, cut ? ellipsis : "\"", cut ? sizeof ellipsis : 2);
    return to;
}

/* -------------------------------------------------------------------------------------------------------------- text to object */

/* "invalid token near 'x'" becomes a sentence of ours where jansson's would not help. */
static const char *reason(const json_error_t *e) {
    switch (json_error_code(e)) {
    case json_error_stack_overflow: return "nested too deep";
    case json_error_premature_end_of_input: return "the file ends here, inside the JSON object";
    case json_error_end_of_input_expected: return "text follows the JSON object";
    case json_error_duplicate_key: return "a key is given twice in the same object";
    case json_error_null_character:
    case json_error_null_byte_in_key: return "\\u0000 is not allowed in a text";
    case json_error_numeric_overflow: return "a number is beyond the range of numbers here (64 bits; 1.8e308)";
    case json_error_invalid_utf8: return "this is not UTF-8";
    default: return e->text;
    }
}

/* jansson calls a string for which it found no memory a syntax error: whether there is any now tells the two apart. */
static int memory_is_out(void) {
    void *volatile probe = malloc(4096); /* volatile: a compiler may take away an allocation that is not used */
    free(probe);
    return !probe;
}

static rein_status syntax_error(const char *shown, const json_error_t *e, rein_error *err) {
    const int silent = e->line < 0 || !e->text[0]; /* how jansson reports most failed allocations */
    if (json_error_code(e) == json_error_out_of_memory || silent || memory_is_out()) return no_memory(err);
    if (strstr(e->text, " near 'NaN'") || strstr(e->text, " near 'Infinity'") || strstr(e->text, " near '-I"))
        return rein_fail(err, REIN_EINVAL, "%s: line %d, column %d: NaN and Infinity are not JSON", shown, e->line, e->column);
    return rein_fail(err, REIN_EINVAL, "%s: line %d, column %d: %s", shown, e->line, e->column, reason(e));
}

rein_status rein_json_file_parse(json_t **root, const char *file, const char *text, size_t length, rein_error *err) {
    json_error_t e = {.line = -1};
    char shown[REIN_PATH_SHOWN];
    size_t first = 0;
    *root = NULL;
    rein_path_show(shown, file);
    while (first < length && strchr(" \t\r\n", text[first]) && text[first]) first++;
    if (first == length) return rein_fail(err, REIN_EINVAL, "%s is empty: a JSON object is needed", shown);
    if (length >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        return rein_fail(err, REIN_EINVAL, "%s starts with a byte order mark: UTF-8 without one is needed", shown);
    if (text[first] != '{') return rein_fail(err, REIN_EINVAL, "%s does not start with {: a JSON object is needed", shown);
    const char *nul = memchr(text, 0, length);
    if (nul) return rein_fail(err, REIN_EINVAL, "%s: byte %zu is 0: JSON has no such byte", shown, (size_t)(nul - text));
    *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &e);
    return *root ? REIN_OK : syntax_error(shown, &e, err);
}

rein_status rein_json_file_read(json_t **root, const char *path, rein_error *err) {
    rein_file file;
    *root = NULL;
    rein_status status = rein_file_map(&file, path, err);
    if (status) return status;
    status = rein_json_file_parse(root, path, (const char *)file.data, file.size, err);
    rein_file_unmap(&file);
    return status;
}

rein_status rein_json_file_write(const char *path, const json_t *root, rein_error *err) {
    char *text = json_dumps(root, JSON_INDENT(2));
    rein_writer writer;
    if (!text) return no_memory(err);
    rein_status status = rein_writer_open(&writer, path, err);
    if (!status) status = rein_writer_put(&writer, text, strlen(text), err);
    if (!status) status = rein_writer_put(&writer, "\n", 1, err);
    if (!status) status = rein_writer_commit(&writer, err);
    free(text);
    return status;
}

/* --------------------------------------------------------------------------------------------------------------------- fields */

static const char *show(char to[REIN_TEXT_SHOWN], const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_STRING: return rein_json_quote(to, json_string_value(value));
    case JSON_INTEGER: snprintf(to, REIN_TEXT_SHOWN, "%" JSON_INTEGER_FORMAT, json_integer_value(value)); return to;
    case JSON_REAL: snprintf(to, REIN_TEXT_SHOWN, "%.15g", json_real_value(value)); return to;
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_NULL: return "null";
    case JSON_ARRAY: return "an array";
    case JSON_OBJECT: break;
    }
    return "an object";
}

rein_status rein_fields_wrong(rein_fields *in, const char *key, const json_t *value, const char *need, ...) {
    char file[REIN_PATH_SHOWN], shown[REIN_TEXT_SHOWN], wanted[300];
    va_list arguments;
    if (in->status) return in->status;
    va_start(arguments, need);
    vsnprintf(wanted, sizeof wanted, need, arguments);
    va_end(arguments);
    rein_path_show(file, in->file);
    if (value) in->status = rein_fail(in->err, REIN_EINVAL, "%s: %s%s is %s: %s", file, in->path, key, show(shown, value), wanted);
    else in->status = rein_fail(in->err, REIN_EINVAL, "%s: %s%s is missing: %s", file, in->path, key, wanted);
    return in->status;
}

static const json_t *field(const rein_fields *in, const char *key) {
    const json_t *value = in->status ? NULL : json_object_get(in->object, key);
    return json_is_null(value) ? NULL : value;
}

int rein_fields_has(const rein_fields *in, const char *key) { return field(in, key) != NULL; }

int64_t rein_fields_integer(rein_fields *in, const char *key, int64_t low, int64_t high) {
    const json_t *value = field(in, key);
    const int64_t x = json_integer_value(value); /* 0 for what is none */
    if (json_is_integer(value) && x >= low && x <= high) return x;
    rein_fields_wrong(in, key, value, "a whole number from %lld to %lld is needed", (long long)low, (long long)high);
    return 0;
}

int64_t rein_fields_integer_or(rein_fields *in, const char *key, int64_t low, int64_t high, int64_t fallback) {
    return rein_fields_has(in, key) ? rein_fields_integer(in, key, low, high) : fallback;
}

double rein_fields_number(rein_fields *in, const char *key, double above) {
    const json_t *value = field(in, key);
    const double x = json_number_value(value);
    if (json_is_number(value) && x > above && isfinite(x)) return x;
    rein_fields_wrong(in, key, value, "a number above %g is needed", above);
    return 0;
}

double rein_fields_number_or(rein_fields *in, const char *key, double above, double fallback) {
    return rein_fields_has(in, key) ? rein_fields_number(in, key, above) : fallback;
}

int rein_fields_bool_or(rein_fields *in, const char *key, int fallback) {
    const json_t *value = field(in, key);
    if (!value) return fallback;
    if (json_is_boolean(value)) return json_is_true(value);
    rein_fields_wrong(in, key, value, "true or false is needed");
    return fallback;
}

const char *rein_fields_string(rein_fields *in, const char *key) {
    const json_t *value = field(in, key);
    if (json_is_string(value)) return json_string_value(value);
    rein_fields_wrong(in, key, value, "a text is needed");
    return NULL;
}

const char *rein_fields_string_or(rein_fields *in, const char *key, const char *fallback) {
    return rein_fields_has(in, key) ? rein_fields_string(in, key) : fallback;
}

const json_t *rein_fields_array(rein_fields *in, const char *key) {
    const json_t *value = field(in, key);
    if (value && !json_is_array(value)) rein_fields_wrong(in, key, value, "an array is needed");
    return json_is_array(value) ? value : NULL;
}

const json_t *rein_fields_object(rein_fields *in, const char *key) {
    const json_t *value = field(in, key);
    if (value && !json_is_object(value)) rein_fields_wrong(in, key, value, "an object is needed");
    return json_is_object(value) ? value : NULL;
}
