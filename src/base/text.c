/* text.c - a growing text. It grows by half, so that appending takes linear time in all. */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t rein_grown(size_t capacity, size_t need, size_t element) {
    const size_t most = (SIZE_MAX / 2) / element;
    size_t grown = capacity + capacity / 2 + 16;
    if (need > most) return 0;
    if (grown < need) grown = need;
    return grown < most ? grown : most;
}

void rein_text_free(rein_text *text) {
    free(text->data);
    *text = (rein_text){0};
}

rein_status rein_text_reserve(rein_text *text, size_t more, rein_error *err) {
    if (text->failed || more > SIZE_MAX / 4) return rein_no_memory(err);
    if (more < text->capacity - text->length) return REIN_OK;
    const size_t capacity = rein_grown(text->capacity, text->length + more + 1, 1);
    char *data = capacity ? realloc(text->data, capacity) : NULL;
    if (!data) return rein_no_memory(err);
    text->data = data, text->capacity = capacity;
    return REIN_OK;
}

rein_status rein_text_append(rein_text *text, const char *bytes, size_t length, rein_error *err) {
    const rein_status status = rein_text_reserve(text, length, err);
    if (status) return status;
    if (length) memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = 0;
    return REIN_OK;
}

static rein_status print(rein_text *text, rein_error *err, const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    const rein_status status =
        length < 0 ? rein_fail(err, REIN_EINVAL, "a text cannot be formatted") : rein_text_reserve(text, (size_t)length, err);
    if (!status) {
        vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
    return status;
}

rein_status rein_text_print(rein_text *text, rein_error *err, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const rein_status status = print(text, err, format, arguments);
    va_end(arguments);
    return status;
}

void rein_text_put_bytes(rein_text *text, const char *bytes, size_t length) {
    if (rein_text_append(text, bytes, length, NULL)) text->failed = 1;
}

void rein_text_put(rein_text *text, const char *string) { rein_text_put_bytes(text, string, strlen(string)); }

void rein_text_format(rein_text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (print(text, NULL, format, arguments)) text->failed = 1;
    va_end(arguments);
}

void rein_text_repeat(rein_text *text, const char *string, size_t times) {
    while (times--) rein_text_put(text, string);
}

rein_status rein_text_status(const rein_text *text, rein_error *err) { return text->failed ? rein_no_memory(err) : REIN_OK; }

void rein_text_cut(rein_text *text, size_t length) {
    text->length = length;
    if (text->data) text->data[length] = 0;
}

rein_status rein_text_copy(char **copy, const char *bytes, size_t length, rein_error *err) {
    *copy = malloc(length + 1);
    if (!*copy) return rein_no_memory(err);
    memcpy(*copy, bytes, length);
    (*copy)[length] = 0;
    return REIN_OK;
}
