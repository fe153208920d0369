/* base.c - errors and the version. */
#include "base.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *rein_version(void) { return TEXT(REIN_VERSION_MAJOR) "." TEXT(REIN_VERSION_MINOR) "." TEXT(REIN_VERSION_PATCH); }

/* A text that did not fit was cut at any byte: the rest of a UTF-8 character at its end goes too. */
static void drop_partial_character(char *text) {
    const size_t length = strlen(text);
    size_t first = length;
    while (first && ((unsigned char)text[first - 1] & 0xc0) == 0x80) first--; /* continuation bytes */
    if (!first || !((unsigned char)text[first - 1] & 0x80)) return;
    const unsigned char lead = (unsigned char)text[--first];
    const size_t whole = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (length - first < whole) text[first] = 0;
}

/* Control characters, which quoted input may contain, become ?. */
static void make_one_line(char *text) {
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127) *c = '?';
}

/* Formats into text[size]; the result is one line. */
static void put_line(char *text, size_t size, const char *format, va_list args) {
    if (vsnprintf(text, size, format, args) >= (int)size) drop_partial_character(text);
    make_one_line(text);
}

rein_status rein_fail(rein_error *err, rein_status code, const char *format, ...) {
    if (!err) return code;
    va_list args;
    va_start(args, format);
    err->code = code;
    err->index = -1;
    err->reason = 0;
    err->field[0] = 0;
    put_line(err->message, sizeof err->message, format, args);
    va_end(args);
    return code;
}

rein_status rein_fail_at(rein_error *err, rein_status code, const char *field, int64_t index, const char *format, ...) {
    if (!err) return code;
    char reason[sizeof err->message];
    va_list args;
    va_start(args, format);
    put_line(reason, sizeof reason, format, args);
    va_end(args);
    const char *separator = *reason == ':' ? "" : " ";
    if (index < 0) rein_fail(err, code, "%s%s", field, separator);
    else rein_fail(err, code, "%s[%lld]%s", field, (long long)index, separator);
    if (snprintf(err->field, sizeof err->field, "%s", field) >= (int)sizeof err->field) drop_partial_character(err->field);
    make_one_line(err->field);
    err->index = index < 0 ? -1 : index;
    err->reason = strlen(err->message);
    if (snprintf(err->message + err->reason, sizeof err->message - err->reason, "%s", reason) >=
        (int)(sizeof err->message - err->reason))
        drop_partial_character(err->message);
    return code;
}

rein_status rein_fail_in(rein_error *err, rein_status code, const char *format, ...) {
    if (!err) return code;
    const rein_error before = *err;
    va_list args;
    va_start(args, format);
    put_line(err->message, sizeof err->message - 2, format, args);
    va_end(args);
    strcat(err->message, ": ");
    const size_t shift = strlen(err->message);
    if (snprintf(err->message + shift, sizeof err->message - shift, "%s", before.message) >= (int)(sizeof err->message - shift))
        drop_partial_character(err->message);
    err->code = code;
    if (before.reason) err->reason = before.reason + shift < sizeof err->message ? before.reason + shift : strlen(err->message);
    return code;
}
