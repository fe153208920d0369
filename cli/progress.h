/* progress.h - the progress of long work on standard error: a bar with rate and remaining time on a terminal, plain lines elsewhere. The
 * first Ctrl-C ends the work after the current step. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdint.h>

typedef struct cli_progress {
    int64_t first, total; /* the steps done at the start, and all steps */
    int64_t every;        /* plain lines: one each so many steps */
    int terminal, drawn;  /* drawn: the cursor is after a bar */
    double began, last;   /* seconds; of the last bar */
} cli_progress;

/* Seconds of a clock that never goes back. */
double cli_now(void);

/* "1:02:03" or "2:03". Returns `to`. */
enum { CLI_CLOCK_SIZE = 40 };
const char *cli_clock_text(char to[CLI_CLOCK_SIZE], double seconds);

/* From now on the first Ctrl-C or SIGTERM, and every SIGHUP, only sets the flag that cli_progress_interrupted returns; a second Ctrl-C or
 * SIGTERM ends the process. */
void cli_catch_interrupts(void);

/* The same without a message: nothing is being finished, or the live view shows it. */
void cli_catch_interrupts_silently(void);
int cli_progress_interrupted(void);

/* `done` steps of `total` are done already. Catches interrupts. */
void cli_progress_begin(cli_progress *p, int64_t done, int64_t total);

/* Step number `done` is done; `text` is its result: "loss 1.234". */
void cli_progress_step(cli_progress *p, int64_t done, const char *text);

/* Removes the bar before other output. The next step draws it again. */
void cli_progress_clear(cli_progress *p);

#endif
