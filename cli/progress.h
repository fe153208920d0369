/* progress.h - how far long work is, on standard error: a bar with rate and time to go on a terminal, plain lines elsewhere; and the first
 * Ctrl-C, which ends it after the step that is being made. */
#ifndef REIN_CLI_PROGRESS_H
#define REIN_CLI_PROGRESS_H

#include <stdint.h>

typedef struct rein_progress {
    int64_t first, total; /* where it began, and where it ends */
    int64_t every;        /* a plain line each so many steps */
    int terminal, drawn;  /* drawn: the cursor stands behind a bar */
    double began, last;   /* seconds; of the last bar */
} rein_progress;

/* From here on Ctrl-C (and SIGTERM) is only remembered; a second one ends the process. */
void rein_catch_interrupts(void);

/* `done` steps of `total` are made already. Catches interrupts. */
void rein_progress_begin(rein_progress *p, int64_t done, int64_t total);

/* Step number `done` is made; `text` says what came out: "loss 1.234". */
void rein_progress_step(rein_progress *p, int64_t done, const char *text);

/* Takes the bar away, before anything else is said; it comes back with the next step. */
void rein_progress_clear(rein_progress *p);

/* 1 once somebody wants it to end. */
int rein_progress_interrupted(void);

#endif
