/* wrap.c - text in lines of a given width. */
#include "wrap.h"

#include <string.h>

static size_t columns_of(const char *text, size_t n) {
    size_t columns = 0;
    for (size_t i = 0; i < n; i++) columns += ((unsigned char)text[i] & 0xC0) != 0x80;
    return columns;
}

size_t cli_columns(const char *text) { return columns_of(text, strlen(text)); }

static size_t begin_line(rein_text *out, size_t indent) {
    rein_text_put(out, "\n");
    rein_text_repeat(out, " ", indent);
    return indent;
}

void cli_wrap(rein_text *out, size_t indent, size_t width, const char *text) {
    size_t column = indent;
    while (*text) {
        const size_t n = strcspn(text, " \n"), columns = columns_of(text, n);
        if (column > indent && column + 1 + columns > width) column = begin_line(out, indent);
        if (column > indent) rein_text_put(out, " "), column++;
        rein_text_put_bytes(out, text, n);
        column += columns;
        text += n;
        if (*text == '\n' && text[1]) column = begin_line(out, indent);
        if (*text) text++;
    }
    rein_text_put(out, "\n");
}
