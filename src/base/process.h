/* process.h - a program that is asked in lines and answers in lines. Private; one thread at a time.
 *
 * The program runs under /bin/sh in a process group of its own, reads requests on its standard input and writes answers to its standard
 * output, a line each, any number of them under way. Neither can block the other: writing and reading take turns, whatever fits. What it
 * writes to standard error is kept, the last few lines of it. Nothing here waits longer than it was told to. */
#ifndef REIN_BASE_PROCESS_H
#define REIN_BASE_PROCESS_H

#include "rein/base.h"

typedef struct rein_process rein_process;

/* Starts the command; it is copied. The caller closes *process; NULL on failure. A command that does not exist is noticed when it is first
 * asked: the shell says so. */
rein_status rein_process_open(rein_process **process, const char *command, rein_error *err);

/* Ends its input, gives it a second, then kills the whole process group; after a failure, at once. NULL is fine. */
void rein_process_close(rein_process *process);

/* One more request: `line` [length] without its newline, copied; it is written when there is time for it. */
rein_status rein_process_ask(rein_process *process, const char *line, size_t length, rein_error *err);

/* The next line that the program wrote, without its newline, good until the next call. At most `timeout` seconds after the call.
 * REIN_EIO: it ended (with which status or signal), closed its input (then it has half a second left to answer) or output, wrote a line longer
 * than 16 MB, or was too slow; the message begins "the program" and ends with the last line it wrote to standard error, if any. What it
 * answered before is given first. After a failure it can only be closed. */
rein_status rein_process_answer(const char **line, size_t *length, rein_process *process, double timeout, rein_error *err);

/* What it wrote and nobody has read yet, up to the end of a line, without waiting: what a program says before it is asked is a mistake that
 * would shift all answers after it. *length is 0 if there is nothing; good until the next call. */
void rein_process_unread(const char **text, size_t *length, rein_process *process);

/* What it wrote to standard error since the last call, its last 4000 bytes, with controls but newlines shown as ?; "" if nothing. Good
 * until the next call. */
const char *rein_process_said(rein_process *process);

#endif
