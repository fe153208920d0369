/* process.h - a program that reads requests and writes answers, one line each. Private; one thread at a time.
 *
 * The program runs under /bin/sh in a process group of its own, reads requests on its standard input and writes answers to its standard
 * output, one line each; several requests may be open at once. Neither side can block the other: writing and reading alternate. Its standard
 * error is its log, of which the last lines are kept. No call waits longer than it was told to. */
#ifndef REIN_BASE_PROCESS_H
#define REIN_BASE_PROCESS_H

#include "base.h"

typedef struct rein_process rein_process;

/* Starts the command, which is copied, in a directory (NULL or "": the current one). The caller closes *process; NULL on failure. A command
 * that does not exist is reported by the first answer, with the message of the shell. */
rein_status rein_process_open(rein_process **process, const char *command, const char *directory, rein_error *err);

/* Ends its input, gives it a second, then kills the whole process group; after a failure, at once. NULL is fine. */
void rein_process_close(rein_process *process);

/* REIN_EIO if the program ended within so many seconds of its start: its command does not exist or fails at once. Waits until then, and
 * reads what it wrote. */
rein_status rein_process_check(rein_process *process, double seconds, rein_error *err);

/* Adds a request: `line` [length] without its newline, copied. It is written as soon as the program reads. */
rein_status rein_process_ask(rein_process *process, const char *line, size_t length, rein_error *err);

/* The next line that the program wrote, without its newline, valid until the next call. Waits for at most `timeout` seconds.
 * REIN_EIO: it ended (with which status or signal), closed its input (then it has half a second left to answer) or output, wrote a line longer
 * than 16 MB, or was too slow; the message begins "the program" and ends with the last line it wrote to standard error, if any. What it
 * answered before comes first. After a failure it can only be closed. */
rein_status rein_process_answer(const char **line, size_t *length, rein_process *process, double timeout, rein_error *err);

/* The same where the program has had the request since the time `asked` (rein_now), and may take so many seconds from then. */
rein_status rein_process_answer_since(const char **line, size_t *length, rein_process *process, double asked, double timeout,
                                      rein_error *err);

/* What it wrote and was not read yet, up to the end of a line, without waiting. Output before a request is a mistake: it would shift all
 * later answers. *length is 0 if there is none; valid until the next call. */
void rein_process_unread(const char **text, size_t *length, rein_process *process);

/* Its log since the last call: the last 4000 bytes, with control characters other than newlines shown as ?; "" if there is none. Valid
 * until the next call. */
const char *rein_process_log(rein_process *process);

#endif
