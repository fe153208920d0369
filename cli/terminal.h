/* terminal.h - stdout and stderr: data is printed whole or not at all, a message is one line. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include "rein/text.h"

/* Exit statuses: success; a failure of the environment; an error in the input or on the command line. */
enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_WRONG = 2 };

/* From now on an error is one line of JSON on stderr, {"error": {"code", "field", "index", "message"}} (--json). Notes stay text. */
void cli_errors_as_json(void);

/* One line on stderr, "rein WHERE: …"; control bytes and invalid UTF-8 are shown as ?. With CLI_DONE it is a note, with any other status an
 * error. Returns status. */
int cli_say(int status, const char *where, const char *format, ...) REIN_PRINTF(3, 4);

/* The same for an error of the library, with its field and index. */
int cli_say_failure(int status, const char *where, const rein_error *err);

/* The same with the usual exit status: 1 if memory ran out or the result is not finite, else 2. */
int cli_say_error(const char *where, const rein_error *err);

/* "--NAME REASON": an option of the command line is wrong. */
int cli_say_option(const char *where, const char *name, const char *format, ...) REIN_PRINTF(3, 4);

int cli_say_no_memory(const char *where);

/* Writes the text to stdout, frees it and returns the exit status: 1 with a message if it could not all be written. */
int cli_print(rein_text *out);

/* The same if the status is CLI_DONE; otherwise frees the text and returns the status. */
int cli_print_result(rein_text *out, int status);

/* 1 if the file descriptor is a terminal that can move its cursor; and if it may also show colours (NO_COLOR). */
int cli_is_terminal(int fd);
int cli_has_colours(int fd);

#endif
