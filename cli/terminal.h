/* terminal.h - the only way to stdout and stderr: data whole, messages as one line. */
#ifndef REIN_CLI_TERMINAL_H
#define REIN_CLI_TERMINAL_H

#include "rein/text.h"

/* Exit statuses, as DESIGN has them. */
enum { REIN_DONE = 0, REIN_FAILED = 1, REIN_WRONG = 2 };

/* One line on stderr, "rein WHERE: …"; control bytes and broken UTF-8 in it are shown as ?. Returns status. */
int rein_say(int status, const char *where, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* Writes the text to stdout, frees it and returns the exit status: 1 with a message when it could not all be written. */
int rein_print(rein_text *out);

/* 1 when stdout is a terminal that wants colours (NO_COLOR unset). */
int rein_colours(void);

#endif
