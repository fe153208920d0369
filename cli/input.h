/* input.h - files that the user names, read whole. */
#ifndef REIN_CLI_INPUT_H
#define REIN_CLI_INPUT_H

#include "rein/text.h"

/* Appends the file to text; `path` NULL or "-" is standard input, of which `what` ("a JSON object") is expected. Returns an exit status:
 * when that is not REIN_DONE, it has said what is wrong. */
int rein_read_input(rein_text *text, const char *path, const char *what, const char *where);

#endif
