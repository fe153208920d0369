/* base.c - errors and the version. */
#include "base.h"

#include <stdarg.h>
#include <stdio.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *rein_version(void) { return TEXT(REIN_VERSION_MAJOR) "." TEXT(REIN_VERSION_MINOR) "." TEXT(REIN_VERSION_PATCH); }

/* A text that did not fit was cut anywhere: not inside a character (UTF-8). */
static void cut_whole(char *text, size_t length) {
    size_t first = length;
    while (first && ((unsigned char)text[first - 1] & 0xc0) == 0x80) first--; /* the bytes that continue one */
    if (!first || !((unsigned char)text[first - 1] & 0x80)) return;
    const unsigned char lead = (unsigned char)text[--first];
    const size_t whole = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (length - first < whole) text[first] = 0;
}

rein_status rein_fail(rein_error *err, rein_status code, const char *format, ...) {
    if (err) {
        va_list args;
        va_start(args, format);
        err->code = code;
        const int length = vsnprintf(err->message, sizeof err->message, format, args);
        if (length >= (int)sizeof err->message) cut_whole(err->message, sizeof err->message - 1);
        for (char *c = err->message; *c; c++) /* what a message quotes may hold anything; the message is one line */
            if ((unsigned char)*c < 32 || *c == 127) *c = '?';
        va_end(args);
    }
    return code;
}
