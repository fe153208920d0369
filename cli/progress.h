/* progress.h - the progress of long work on standard error: a bar with rate and remaining time on a terminal, plain lines elsewhere. The
 * first Ctrl-C ends the work after the current step. */
#ifndef REIN_CLI_PROGRESS_H
#define REIN_CLI_PROGRESS_H

#include <stdint.h>

typedef struct rein_progress {
    int64_t first, total; /* the steps done at the start, and all steps */
    int64_t every;        /* plain lines: one each so many steps */
    int terminal, drawn;  /* drawn: the cursor is after a bar */
    double began, last;   /* seconds; of the last bar */
} rein_progress;

/* Seconds of a clock that never goes back. */
double rein_now(void);

/* "1:02:03" or "2:03". Returns `to`. */
enum { REIN_CLOCK_SIZE = 40 };
const char *rein_clock_text(char to[REIN_CLOCK_SIZE], double seconds);

/* From now on the first Ctrl-C or SIGTERM only sets the flag that rein_progress_interrupted returns; a second one ends the process. */
void rein_catch_interrupts(void);
int rein_progress_interrupted(void);

/* `done` steps of `total` are done already. Catches interrupts. */
void rein_progress_begin(rein_progress *p, int64_t done, int64_t total);

/* Step number `done` is done; `text` is its result: "loss 1.234". */
void rein_progress_step(rein_progress *p, int64_t done, const char *text);

/* Removes the bar before other output. The next step draws it again. */
void rein_progress_clear(rein_progress *p);

#endif
