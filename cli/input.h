/* input.h - reads files that the user names. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "rein/text.h"

/* Appends the file to text. `path` NULL or "-" is standard input; `what` ("a JSON object") is what a user at the terminal should type.
 * Returns an exit status, after printing what is wrong. On success text->data is not NULL. */
int cli_read_input(rein_text *text, const char *path, const char *what, const char *where);

/* The same for a text that people write: the newline at its end, which an editor adds, is left out. */
int cli_read_text(rein_text *text, const char *path, const char *what, const char *where);

#endif
