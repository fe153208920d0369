/* text.h - what the library does with texts besides rein/text.h. Private; thread-safe for different texts. */
#ifndef REIN_BASE_TEXT_H
#define REIN_BASE_TEXT_H

#include "base.h"
#include "rein/text.h"

/* The capacity for `need` elements, at least half as much again as there is; 0 when that overflows. */
size_t rein_grown(size_t capacity, size_t need, size_t element);

/* Makes room for `more` bytes and a NUL. */
rein_status rein_text_reserve(rein_text *text, size_t more, rein_error *err);

/* Appends a formatted text; on failure the text stays as it was. */
rein_status rein_text_print(rein_text *text, rein_error *err, const char *format, ...) REIN_PRINTF(3, 4);

/* Cuts the text to `length` bytes, which it has. */
void rein_text_cut(rein_text *text, size_t length);

/* A copy of bytes [length] with a NUL at the end, for the caller to free. */
rein_status rein_text_copy(char **copy, const char *bytes, size_t length, rein_error *err);

/* Blanks are the space, tab, newline, vertical tab, form feed and carriage return of ASCII. */
static inline int rein_is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Moves the borders of a text inwards past the blanks at both ends. */
static inline void rein_trim(const char **text, size_t *length) {
    while (*length && rein_is_blank((*text)[*length - 1])) --*length;
    while (*length && rein_is_blank(**text)) ++*text, --*length;
}

/* 1 if there is nothing but blanks. */
static inline int rein_all_blank(const char *text, size_t length) {
    rein_trim(&text, &length);
    return length == 0;
}

/* The longest line of a file of examples. A sparse file of any size is easily made, and searching it for a newline reads it whole. */
enum { REIN_LONGEST_LINE = 256 << 20 };

/* Finds the end of the line that begins at text[begin]: the position of its newline, or length. REIN_EINVAL: it is longer than
 * REIN_LONGEST_LINE; `where` names it, "FILE: line 3". Thread-safe. */
rein_status rein_line_end(size_t *end, const char *text, size_t begin, size_t length, const char *where, rein_error *err);

#endif
