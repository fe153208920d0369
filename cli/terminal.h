/* terminal.h - stdout and stderr: data is printed whole or not at all, a message is one line. */
#ifndef REIN_CLI_TERMINAL_H
#define REIN_CLI_TERMINAL_H

#include "rein/text.h"

/* Exit statuses: success; a failure of the environment; an error in the input or on the command line. */
enum { REIN_DONE = 0, REIN_FAILED = 1, REIN_WRONG = 2 };

/* From now on an error is one line of JSON on stderr, {"error": {"code", "field", "index", "message"}} (--json). Notes stay text. */
void rein_errors_as_json(void);

/* One line on stderr, "rein WHERE: …"; control bytes and invalid UTF-8 are shown as ?. With REIN_DONE it is a note, with any other status an
 * error. Returns status. */
int rein_say(int status, const char *where, const char *format, ...) REIN_PRINTF(3, 4);

/* The same for an error of the library, with its field and index. */
int rein_say_failure(int status, const char *where, const rein_error *err);

/* The same with the usual exit status: 1 if memory ran out or the result is not finite, else 2. */
int rein_say_error(const char *where, const rein_error *err);

/* "--NAME REASON": an option of the command line is wrong. */
int rein_say_option(const char *where, const char *name, const char *format, ...) REIN_PRINTF(3, 4);

int rein_say_no_memory(const char *where);

/* Writes the text to stdout, frees it and returns the exit status: 1 with a message if it could not all be written. */
int rein_print(rein_text *out);

/* The same if the status is REIN_DONE; otherwise frees the text and returns the status. */
int rein_print_result(rein_text *out, int status);

/* 1 if the file descriptor is a terminal that can move its cursor; and if it may also show colours (NO_COLOR). */
int rein_is_terminal(int fd);
int rein_has_colours(int fd);

#endif
