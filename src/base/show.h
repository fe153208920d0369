/* show.h - the words of others, made fit for a message or a terminal. Private; pure and thread-safe.
 *
 * What is shown is UTF-8 without controls: a byte that is no character and a control become ?, so that no program can move the cursor of
 * whoever reads its words. */
#ifndef REIN_BASE_SHOW_H
#define REIN_BASE_SHOW_H

#include <stddef.h>

/* text [length] into to [length], which may be the same; newlines stay where `lines` is 1. Returns the new length, never a greater one.
 * No NUL is put behind it. */
size_t rein_show(char *to, const char *text, size_t length, int lines);

/* One line of at most size - 1 bytes and a NUL; "…" stands where something was left out. size is 4 at least. Returns `to`. */
const char *rein_show_short(char *to, size_t size, const char *text, size_t length);

#endif
