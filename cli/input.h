/* input.h - reads files that the user names. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include <stdio.h>

#include "rein/text.h"

/* Opens a file. `path` NULL or "-" is standard input; `what` ("a JSON object") is what a user at the terminal should type. Returns an exit
 * status, after printing what is wrong. The caller closes *file with cli_close_input. */
int cli_open_input(FILE **file, const char *path, const char *what, const char *where);
void cli_close_input(FILE *file);

/* The path as messages have it: "standard input". */
const char *cli_input_name(const char *path);

/* Reads the next line, without its newline, in place of `line`; *ended is 1 if there is none. `number`, from 1, is for messages: a line may
 * have 256 MB. */
int cli_read_line(rein_text *line, int *ended, FILE *file, size_t number, const char *name, const char *where);

/* Appends the whole file to text. On success text->data is not NULL. */
int cli_read_input(rein_text *text, const char *path, const char *what, const char *where);

/* The same for a text that people write: the newline at its end, which an editor adds, is left out. */
int cli_read_text(rein_text *text, const char *path, const char *what, const char *where);

#endif
