/* terminal.h - stdout and stderr: data is printed whole or not at all, a message is one line. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include "rein/text.h"

/* Exit statuses: success; a failure of the environment; an error in the input or on the command line. */
enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_WRONG = 2 };

/* From now on an error is one line of JSON on stderr, {"error": {"code", "field", "index", "message"}} (--json). Notes stay text. */
void cli_errors_as_json(void);

/* The message of the last failure that was printed, or "". */
const char *cli_last_failure(void);

/* One line on stderr, "rein WHERE: …"; control bytes and invalid UTF-8 are shown as ?. With CLI_DONE it is a note, with any other status an
 * error. Returns status. */
int cli_say(int status, const char *where, const char *format, ...) REIN_PRINTF(3, 4);

/* The same for an error of the library, with its field and index. */
int cli_say_failure(int status, const char *where, const rein_error *err);

/* The same with the usual exit status: 1 if memory ran out, the result is not finite, or the system failed (a full disk, too many open
 * files, an unreadable disk), else 2. */
int cli_say_error(const char *where, const rein_error *err);

/* "…: REASON", the reason and the exit status from errno. */
int cli_say_errno(const char *where, const char *format, ...) REIN_PRINTF(2, 3);

/* "--NAME REASON": an option of the command line is wrong. */
int cli_say_option(const char *where, const char *name, const char *format, ...) REIN_PRINTF(3, 4);

/* The same for an error of the library whose field is that option: "--NAME" or "--NAME[INDEX]" stands in place of the field. */
int cli_say_option_error(const char *where, const char *name, const rein_error *err);

/* The same for an error about what an argument names, such as a file: `field` becomes its field, unless it has one. */
int cli_say_error_of(const char *where, const char *field, const rein_error *err);

int cli_say_no_memory(const char *where);

/* Writes the text to stdout, frees it and returns the exit status: 1 with a message if it could not all be written. On a terminal it is
 * shown as cli_show has it; a file or a pipe gets every byte as it is. */
int cli_print(rein_text *out);

/* The same for a text with these two colours in it. */
#define CLI_GREEN "\033[32m"
#define CLI_PLAIN "\033[0m"
int cli_print_coloured(rein_text *out);

/* Appends text [length] with control characters other than newline and tab, and bytes that are not UTF-8, as \x1b or \u009b: files and models
 * may have any text, and a terminal obeys it. */
void cli_show(rein_text *to, const char *text, size_t length);

/* The same if the status is CLI_DONE; otherwise frees the text and returns the status. */
int cli_print_result(rein_text *out, int status);

/* 1 if the file descriptor is a terminal that can move its cursor; and if it may also show colours (NO_COLOR). */
int cli_is_terminal(int fd);
int cli_has_colours(int fd);

#endif
