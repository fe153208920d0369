/* wrap.h - text in lines of a given width. */
#ifndef CLI_WRAP_H
#define CLI_WRAP_H

#include "rein/text.h"

/* Appends text in lines of at most `width` columns. The first line continues where the cursor is (column `indent`), the others begin
 * there. A newline in the text stays one. Ends with a newline. */
void cli_wrap(rein_text *out, size_t indent, size_t width, const char *text);

/* Columns of UTF-8 text (every code point here is one column wide). */
size_t cli_columns(const char *text);

#endif
