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
    err->system = 0;
    err->index = -1;
    err->reason = 0;
    err->field[0] = 0;
    put_line(err->message, sizeof err->message, format, args);
    va_end(args);
    return code;
}

rein_status rein_no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "out of memory"); }

/* A reason that begins with a colon follows the field without a blank. */
static const char *separator_of(const char *reason) { return *reason == ':' ? "" : " "; }

/* "FIELD[INDEX]" as the message has it. */
static void put_name(char *to, size_t size, const char *field, int64_t index) {
    if (index < 0) snprintf(to, size, "%s", field);
    else snprintf(to, size, "%s[%lld]", field, (long long)index);
}

static void put_field(rein_error *err, const char *field) {
    if (snprintf(err->field, sizeof err->field, "%s", field) >= (int)sizeof err->field) drop_partial_character(err->field);
    make_one_line(err->field);
}

/* Appends to the message. */
static void append(rein_error *err, const char *text) {
    const size_t length = strlen(err->message), room = sizeof err->message - length;
    if (snprintf(err->message + length, room, "%s", text) >= (int)room) drop_partial_character(err->message);
}

enum { NAME_SIZE = sizeof(((rein_error *)0)->field) + 32 }; /* with the position */

rein_status rein_fail_at(rein_error *err, rein_status code, const char *field, int64_t index, const char *format, ...) {
    if (!err) return code;
    char reason[sizeof err->message], name[NAME_SIZE];
    va_list args;
    va_start(args, format);
    put_line(reason, sizeof reason, format, args);
    va_end(args);
    err->code = code;
    err->system = 0;
    err->index = index < 0 ? -1 : index;
    put_field(err, field);
    put_name(name, sizeof name, err->field, index);
    err->reason = (size_t)snprintf(err->message, sizeof err->message, "%s%s", name, separator_of(reason));
    append(err, reason);
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
    append(err, before.message);
    err->code = code;
    if (before.reason) err->reason = before.reason + shift < sizeof err->message ? before.reason + shift : strlen(err->message);
    return code;
}

rein_status rein_fail_with(rein_error *err, rein_status code, const rein_error *cause) {
    if (!err) return code;
    *err = *cause;
    return err->code = code;
}

/* ---- other names for fields */

/* Where the message has `name` before its reason; -1: nowhere. A place may be so long that what follows it is cut off. */
static int place_of(const rein_error *err, const char *name) {
    const size_t length = strlen(name) + strlen(separator_of(err->message + err->reason));
    if (!*name || err->reason < length || strncmp(err->message + err->reason - length, name, strlen(name)) != 0) return -1;
    return (int)(err->reason - length);
}

static int ends_with(const char *text, const char *end) {
    return strlen(text) >= strlen(end) && !strcmp(text + strlen(text) - strlen(end), end);
}

/* The message with another name for its field; returns where its reason begins, 0 if nothing was replaced. */
static size_t put_spelled(char to[REIN_MESSAGE_SIZE], const rein_error *err, const char *name) {
    char own[NAME_SIZE];
    const char *reason = err->message + err->reason, *position = own + strlen(err->field);
    put_name(own, sizeof own, err->field, err->index);
    int place = place_of(err, own), length = (int)strlen(name), begin = 0;
    if (place < 0 && (place = place_of(err, err->field)) >= 0 && ends_with(name, position)) length -= (int)strlen(position);
    if (place >= 0) begin = snprintf(to, REIN_MESSAGE_SIZE, "%.*s%.*s%s", place, err->message, length, name, separator_of(reason));
    if (begin >= REIN_MESSAGE_SIZE) begin = REIN_MESSAGE_SIZE - 1;
    const int room = REIN_MESSAGE_SIZE - begin;
    if (snprintf(to + begin, (size_t)room, "%s", place < 0 ? err->message : reason) >= room) drop_partial_character(to);
    return (size_t)begin < strlen(to) ? (size_t)begin : strlen(to);
}

const char *rein_error_spelled(char to[REIN_MESSAGE_SIZE], const rein_error *err, const char *name) {
    put_spelled(to, err, name);
    return to;
}

rein_status rein_fail_as(rein_error *err, rein_status code, const char *field, int64_t index, const char *name) {
    if (!err || (!name && (*err->field || (code != REIN_EINVAL && code != REIN_EIO)))) return code;
    const rein_error before = *err;
    if (name) err->reason = put_spelled(err->message, &before, name);
    err->code = code;
    err->index = index < 0 ? -1 : index;
    put_field(err, field);
    return code;
}
