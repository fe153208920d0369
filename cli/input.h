/* input.h - reads files that the user names. */
#ifndef REIN_CLI_INPUT_H
#define REIN_CLI_INPUT_H

#include "rein/text.h"

/* Appends the file to text; `path` NULL or "-" is standard input, where `what` ("a JSON object") is expected. Returns an exit status; unless
 * it is REIN_DONE, the error has been printed. */
int rein_read_input(rein_text *text, const char *path, const char *what, const char *where);

#endif
