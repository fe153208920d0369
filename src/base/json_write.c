/* json_write.c - values as JSON text: one way to escape a string, three ways to write a number. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

/* ---------------------------------------------------------------------------------------------------------------------- strings */

static const char *escape_of(char room[8], unsigned char c) {
    switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\b': return "\\b";
    case '\f': return "\\f";
    default: break;
    }
    if (c >= 32) return NULL;
    snprintf(room, 8, "\\u%04x", c);
    return room;
}

void rein_json_put_bytes(rein_text *text, const char *bytes, size_t length) {
    size_t done = 0;
    char room[8];
    rein_text_put(text, "\"");
    for (size_t i = 0; i < length; i++) {
        const char *escape = escape_of(room, (unsigned char)bytes[i]);
        if (!escape) continue;
        rein_text_put_bytes(text, bytes + done, i - done);
        rein_text_put(text, escape);
        done = i + 1;
    }
    rein_text_put_bytes(text, bytes + done, length - done);
    rein_text_put(text, "\"");
}

void rein_json_put_string(rein_text *text, const char *string) { rein_json_put_bytes(text, string, strlen(string)); }

/* ---------------------------------------------------------------------------------------------------------------------- numbers */

/* A locale may spell the point otherwise; JSON does not. */
static void put_digits(rein_text *text, int digits, double value) {
    char room[40];
    snprintf(room, sizeof room, "%.*g", digits, value);
    for (char *c = room; *c; c++)
        if (!strchr("0123456789+-e", *c)) *c = '.';
    rein_text_put(text, isfinite(value) ? room : "null");
}

void rein_json_put_double(rein_text *text, double value) { put_digits(text, 17, value); }
void rein_json_put_float(rein_text *text, float value) { put_digits(text, 9, (double)value); }

/* The fewest digits that read back, without the point, and the exponent of the first. */
static int shortest(char digits[20], int *exponent, double value) {
    char room[40];
    int n = 0;
    for (int precision = 0; precision <= 16; precision++) {
        snprintf(room, sizeof room, "%.*e", precision, value);
        if (strtod(room, NULL) == value) break;
    }
    const char *e = strchr(room, 'e');
    for (const char *c = room; c < e; c++)
        if (*c >= '0' && *c <= '9') digits[n++] = *c;
    digits[n] = 0;
    *exponent = (int)strtol(e + 1, NULL, 10);
    return n;
}

void rein_json_put_shortest(rein_text *text, double value) {
    char digits[20];
    int exponent = 0;
    const int n = shortest(digits, &exponent, fabs(value));
    const char *sign = signbit(value) ? "-" : "";
    if (exponent < -4 || exponent >= 16)
        rein_text_format(text, "%s%c%s%se%+03d", sign, digits[0], n > 1 ? "." : "", digits + 1, exponent);
    else if (exponent < 0) rein_text_format(text, "%s0.%.*s%s", sign, -exponent - 1, "000", digits);
    else if (n > exponent + 1) rein_text_format(text, "%s%.*s.%s", sign, exponent + 1, digits, digits + exponent + 1);
    else rein_text_format(text, "%s%s%.*s.0", sign, digits, exponent + 1 - n, "0000000000000000");
}

/* ----------------------------------------------------------------------------------------------------------------------- fields */

void rein_json_put_name(rein_text *text, const char *name) {
    if (text->length && !text->failed && !strchr("{[", text->data[text->length - 1])) rein_text_put(text, ", ");
    rein_json_put_string(text, name);
    rein_text_put(text, ": ");
}

void rein_json_put_field(rein_text *text, const char *name, double value) {
    rein_json_put_name(text, name);
    rein_json_put_double(text, value);
}

static void put_numbers(rein_text *text, const double *values, size_t n) {
    rein_text_put(text, "[");
    for (size_t i = 0; i < n; i++) {
        if (i) rein_text_put(text, ", ");
        rein_json_put_double(text, values[i]);
    }
    rein_text_put(text, "]");
}

void rein_json_put_array(rein_text *text, const char *name, const double *values, size_t n) {
    rein_json_put_name(text, name);
    put_numbers(text, values, n);
}

void rein_json_put_rows(rein_text *text, const char *name, const double *values, const size_t *offsets, size_t rows) {
    rein_json_put_name(text, name);
    rein_text_put(text, "[");
    for (size_t r = 0; r < rows; r++) {
        if (r) rein_text_put(text, ", ");
        put_numbers(text, values + offsets[r], offsets[r + 1] - offsets[r]);
    }
    rein_text_put(text, "]");
}

static const char *code_name(rein_status code) {
    static const char *const names[] = {"OK", "EINVAL", "ENOMEM", "ERANGE", "EIO", "END"};
    return (unsigned)code < sizeof names / sizeof *names ? names[code] : "EINVAL";
}

void rein_json_put_error(rein_text *text, const rein_error *err) {
    rein_text_put(text, "{");
    rein_json_put_name(text, "code");
    rein_json_put_string(text, code_name(err->code));
    rein_json_put_name(text, "field");
    if (*err->field) rein_json_put_string(text, err->field);
    else rein_text_put(text, "null");
    rein_json_put_name(text, "index");
    if (*err->field && err->index >= 0) rein_text_format(text, "%lld", (long long)err->index);
    else rein_text_put(text, "null");
    rein_json_put_name(text, "message");
    rein_json_put_string(text, err->message);
    rein_text_put(text, "}");
}

/* ----------------------------------------------------------------------------------------------------------------- whole values */

static void put_entries(rein_text *text, const json_t *array) {
    rein_text_put(text, "[");
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (i) rein_text_put(text, ", ");
        rein_json_put_value(text, json_array_get(array, i));
    }
    rein_text_put(text, "]");
}

static void put_object(rein_text *text, const json_t *object) {
    const char *key;
    const rein_json *value;
    rein_text_put(text, "{");
    for (void *at = NULL; (at = rein_json_next(&key, &value, object, at));) {
        rein_json_put_name(text, key);
        rein_json_put_value(text, value);
    }
    rein_text_put(text, "}");
}

/* The parser limits the depth. */
void rein_json_put_value(rein_text *text, const rein_json *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: put_object(text, value); break;
    case JSON_ARRAY: put_entries(text, value); break;
    case JSON_STRING: rein_json_put_bytes(text, json_string_value(value), json_string_length(value)); break;
    case JSON_REAL: rein_json_put_shortest(text, json_real_value(value)); break;
    case JSON_INTEGER: rein_text_format(text, "%" JSON_INTEGER_FORMAT, json_integer_value(value)); break;
    case JSON_TRUE: rein_text_put(text, "true"); break;
    case JSON_FALSE: rein_text_put(text, "false"); break;
    case JSON_NULL: rein_text_put(text, "null"); break;
    }
}
