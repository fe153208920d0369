/* show.h - text from outside, made safe for a message or a terminal. Private; pure and thread-safe.
 *
 * The result is UTF-8 without control characters: a control character or one invalid byte becomes ?, so that no output of a program can
 * move the cursor of a terminal. */
#ifndef REIN_BASE_SHOW_H
#define REIN_BASE_SHOW_H

#include <stddef.h>

/* Copies text [length] to `to` [length], which may be the same; newlines stay if `lines` is 1. Returns the new length, at most the old
 * one. There is no NUL at the end. */
size_t rein_show(char *to, const char *text, size_t length, int lines);

/* One line of at most size - 1 bytes and a NUL; "…" ends a text that was cut. size is at least 4. Returns `to`. */
const char *rein_show_short(char *to, size_t size, const char *text, size_t length);

#endif
