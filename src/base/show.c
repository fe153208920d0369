/* show.c - utf8proc decodes characters; this file decides which may be shown. */
#include "show.h"

#include <string.h>
#include <utf8proc.h>

/* The length of the character at text [length > 0] that may be shown, or 0. */
static size_t fit(const char *text, size_t length, int lines) {
    utf8proc_int32_t c;
    const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)length, &c);
    if (n <= 0) return 0;
    if (c < 32) return lines && c == '\n';
    return c >= 127 && c < 160 ? 0 : (size_t)n;
}

/* How many bytes become one ?: a control character or one invalid byte. */
static size_t unfit(const char *text, size_t length) {
    utf8proc_int32_t c;
    const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)length, &c);
    return n > 0 ? (size_t)n : 1;
}

size_t rein_show(char *to, const char *text, size_t length, int lines) {
    size_t n = 0;
    for (size_t at = 0; at < length;) {
        const size_t take = fit(text + at, length - at, lines);
        if (take) memmove(to + n, text + at, take);
        else to[n] = '?';
        n += take ? take : 1;
        at += take ? take : unfit(text + at, length - at);
    }
    return n;
}

const char *rein_show_short(char *to, size_t size, const char *text, size_t length) {
    static const char ellipsis[] = "…";
    const size_t room = size - sizeof ellipsis; /* for the text before the ellipsis */
    size_t n = 0, at = 0, whole = 0;
    while (at < length) {
        const size_t take = fit(text + at, length - at, 0);
        if (n + (take ? take : 1) > size - 1) break;
        if (take) memcpy(to + n, text + at, take);
        else to[n] = '?';
        n += take ? take : 1;
        at += take ? take : unfit(text + at, length - at);
        if (n <= room) whole = n;
    }
    if (at < length) memcpy(to + whole, ellipsis, sizeof ellipsis);
    else to[n] = 0;
    return to;
}
