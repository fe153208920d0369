/* json_value.c - the parts of a value, and how messages show one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

rein_json_kind rein_json_kind_of(const rein_json *value) {
    if (!value) return REIN_JSON_NONE;
    switch (json_typeof(value)) {
    case JSON_OBJECT: return REIN_JSON_OBJECT;
    case JSON_ARRAY: return REIN_JSON_ARRAY;
    case JSON_STRING: return REIN_JSON_STRING;
    case JSON_INTEGER:
    case JSON_REAL: return REIN_JSON_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE: return REIN_JSON_BOOLEAN;
    case JSON_NULL: break;
    }
    return REIN_JSON_NULL;
}

size_t rein_json_size(const rein_json *value) { return json_is_array(value) ? json_array_size(value) : json_object_size(value); }
const rein_json *rein_json_at(const rein_json *value, size_t i) { return json_array_get(value, i); }
const rein_json *rein_json_get(const rein_json *value, const char *key) { return json_object_get(value, key); }
double rein_json_number(const rein_json *value) { return json_number_value(value); }
const char *rein_json_string(const rein_json *value) { return json_string_value(value); }
size_t rein_json_length(const rein_json *value) { return json_string_length(value); }
int rein_json_true(const rein_json *value) { return json_is_true(value); }

void *rein_json_next(const char **key, const rein_json **field, const rein_json *value, void *at) {
    json_t *object = (json_t *)(uintptr_t)value; /* jansson's iterators only read */
    at = at ? json_object_iter_next(object, at) : json_object_iter(object);
    *key = at ? json_object_iter_key(at) : NULL;
    *field = at ? json_object_iter_value(at) : NULL;
    return at;
}

char *rein_json_dump(size_t *length, const json_t *value, size_t flags) {
    const size_t size = json_dumpb(value, NULL, 0, flags);
    char *text = size ? malloc(size + 2) : NULL;
    if (!text || json_dumpb(value, text, size, flags) != size) {
        free(text);
        return NULL;
    }
    text[size] = 0;
    if (length) *length = size;
    return text;
}

json_t *rein_json_copy(const json_t *object) {
    json_t *copy = json_object();
    if (copy && !json_object_update(copy, (json_t *)(uintptr_t)object)) return copy;
    json_decref(copy);
    return NULL;
}

/* 0.1 is shown as 0.1, but never as a number that it is not. */
static const char *show_number(char to[REIN_TEXT_SHOWN], double x) {
    snprintf(to, REIN_TEXT_SHOWN, "%.15g", x);
    if (strtod(to, NULL) != x) snprintf(to, REIN_TEXT_SHOWN, "%.17g", x);
    return to;
}

const char *rein_json_show(char to[REIN_TEXT_SHOWN], const rein_json *value) {
    switch (json_typeof(value)) {
    case JSON_STRING: return rein_json_quote(to, json_string_value(value));
    case JSON_INTEGER: snprintf(to, REIN_TEXT_SHOWN, "%" JSON_INTEGER_FORMAT, json_integer_value(value)); return to;
    case JSON_REAL: return show_number(to, json_real_value(value));
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_NULL: return "null";
    case JSON_ARRAY: return "an array";
    case JSON_OBJECT: break;
    }
    return "an object";
}

/* The character at text in `piece`, escaped; returns how many bytes of text it has. */
static size_t escape(char piece[8], const char *text) {
    const unsigned char c = (unsigned char)*text;
    size_t bytes = 1;
    memset(piece, 0, 8);
    if (c == '"' || c == '\\') snprintf(piece, 8, "\\%c", c);
    else if (c < 0x20 || c == 0x7F) snprintf(piece, 8, "\\u%04x", c);
    else {
        while (((unsigned char)text[bytes] & 0xC0) == 0x80 && bytes < 4) bytes++;
        memcpy(piece, text, bytes);
    }
    return bytes;
}

const char *rein_json_quote(char to[REIN_TEXT_SHOWN], const char *text) {
    static const char ellipsis[] = "…\"";
    size_t n = 0;
    to[n++] = '"';
    while (*text) {
        char piece[8];
        const size_t bytes = escape(piece, text), length = strlen(piece);
        if (n + length + sizeof ellipsis > REIN_TEXT_SHOWN) return memcpy(to + n, ellipsis, sizeof ellipsis), to;
        memcpy(to + n, piece, length);
        n += length;
        text += bytes;
    }
    memcpy(to + n, "\"", 2);
    return to;
}
