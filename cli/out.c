/* out.c - the growable string behind every command's output, and the JSON writer. */
#include "out.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rein_out_free(rein_out *out) {
    free(out->data);
    *out = (rein_out){0};
}

/* Room for n more bytes and the final 0. */
static int reserve(rein_out *out, size_t n) {
    if (out->failed || n > SIZE_MAX / 4 || out->length > SIZE_MAX / 4) return !(out->failed = 1);
    size_t need = out->length + n + 1;
    if (need <= out->capacity) return 1;
    size_t capacity = need < 256 ? 256 : need * 2;
    char *data = realloc(out->data, capacity);
    if (!data) return !(out->failed = 1);
    out->data = data;
    out->capacity = capacity;
    return 1;
}

void rein_out_bytes(rein_out *out, const char *bytes, size_t n) {
    if (!reserve(out, n)) return;
    if (n) memcpy(out->data + out->length, bytes, n);
    out->length += n;
    out->data[out->length] = 0;
}

void rein_out_text(rein_out *out, const char *text) { rein_out_bytes(out, text, strlen(text)); }

void rein_out_format(rein_out *out, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int n = vsnprintf(NULL, 0, format, arguments);
    if (n >= 0 && reserve(out, (size_t)n)) {
        vsnprintf(out->data + out->length, (size_t)n + 1, format, again);
        out->length += (size_t)n;
    }
    va_end(again);
    va_end(arguments);
}

void rein_out_repeat(rein_out *out, const char *text, size_t times) {
    while (times--) rein_out_text(out, text);
}

static size_t columns_of(const char *text, size_t n) {
    size_t columns = 0;
    for (size_t i = 0; i < n; i++) columns += ((unsigned char)text[i] & 0xC0) != 0x80;
    return columns;
}

size_t rein_columns(const char *text) { return columns_of(text, strlen(text)); }

void rein_out_wrap(rein_out *out, size_t indent, size_t width, const char *text) {
    size_t column = indent;
    while (*text) {
        size_t n = strcspn(text, " \n"), columns = columns_of(text, n);
        if (column > indent && column + 1 + columns > width) {
            rein_out_text(out, "\n");
            rein_out_repeat(out, " ", indent);
            column = indent;
        }
        if (column > indent) rein_out_text(out, " "), column++;
        rein_out_bytes(out, text, n);
        column += columns;
        text += n;
        if (*text == '\n' && text[1]) {
            rein_out_text(out, "\n");
            rein_out_repeat(out, " ", indent);
            column = indent;
        }
        if (*text) text++;
    }
    rein_out_text(out, "\n");
}

void rein_json_double(rein_out *out, double value) {
    if (isfinite(value)) rein_out_format(out, "%.17g", value);
    else rein_out_text(out, "null");
}

void rein_json_float(rein_out *out, float value) {
    if (isfinite(value)) rein_out_format(out, "%.9g", (double)value);
    else rein_out_text(out, "null");
}

void rein_json_string(rein_out *out, const char *text) { rein_json_bytes(out, text, strlen(text)); }

void rein_json_bytes(rein_out *out, const char *text, size_t length) {
    rein_out_text(out, "\"");
    for (const char *end = text + length; text < end; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') rein_out_format(out, "\\%c", c);
        else if (c == '\n') rein_out_text(out, "\\n");
        else if (c < 0x20) rein_out_format(out, "\\u%04x", c);
        else rein_out_bytes(out, text, 1);
    }
    rein_out_text(out, "\"");
}

void rein_json_name(rein_out *out, const char *name) {
    if (out->length && !out->failed && !strchr("{[", out->data[out->length - 1])) rein_out_text(out, ", ");
    rein_json_string(out, name);
    rein_out_text(out, ": ");
}

void rein_json_field(rein_out *out, const char *name, double value) {
    rein_json_name(out, name);
    rein_json_double(out, value);
}

static void array(rein_out *out, const double *values, size_t n) {
    rein_out_text(out, "[");
    for (size_t i = 0; i < n; i++) {
        if (i) rein_out_text(out, ", ");
        rein_json_double(out, values[i]);
    }
    rein_out_text(out, "]");
}

void rein_json_array(rein_out *out, const char *name, const double *values, size_t n) {
    rein_json_name(out, name);
    array(out, values, n);
}

void rein_json_rows(rein_out *out, const char *name, const double *values, const size_t *offsets, size_t rows) {
    rein_json_name(out, name);
    rein_out_text(out, "[");
    for (size_t r = 0; r < rows; r++) {
        if (r) rein_out_text(out, ", ");
        array(out, values + offsets[r], offsets[r + 1] - offsets[r]);
    }
    rein_out_text(out, "]");
}
