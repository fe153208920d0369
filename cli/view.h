/* view.h - the live view of a run on standard error: a bar with the remaining time, the figures of the step, and small curves. A terminal
 * shows it in place; elsewhere each step is one plain line. `rein run` and `rein demo` feed it while they train, `rein watch` from the
 * history of a run. */
#ifndef CLI_VIEW_H
#define CLI_VIEW_H

#include <stdint.h>
#include <stdio.h>

#include "rein/json.h"
#include "rein/train.h"

/* The figures of a step. NaN: the step has none. */
typedef struct cli_view_step {
    int64_t step;
    double reward, accuracy, length, over, kl, entropy, gap, seconds;
    double wait, exchange;        /* of several ranks */
    double value_loss, explained; /* of a critic */
    double eval_accuracy, eval_low, eval_high, eval_length, eval_over;
} cli_view_step;

/* All NaN. */
cli_view_step cli_view_step_none(int64_t step);

/* Sets a metric by its name; a metric that is not shown is ignored. */
void cli_view_step_set(cli_view_step *step, const char *name, double value);

/* The figures of a line of history.jsonl or evaluations.jsonl. */
cli_view_step cli_view_step_of(const rein_json *line);

enum { CLI_VIEW_POINTS = 2048 };

typedef struct cli_view {
    int64_t first, total;
    double budget;        /* NaN: none */
    FILE *to;             /* standard error, or standard output for a view that is data */
    int terminal, colour; /* of `to` */
    int finishes;         /* set by the caller: after an interrupt the step is finished, and the picture says so */
    int drawn, columns;   /* lines on the screen, and its width when they were drawn */
    char *title;          /* NULL: none */
    double began, last;   /* seconds */
    cli_view_step *steps;
    size_t n, every;          /* kept points; one in so many steps is kept */
    double base_accuracy;     /* of the first evaluation */
    cli_view_step evaluation; /* the last one */
    char phase[80];
    int failed; /* there was no memory for the title */
} cli_view;

/* `first` steps of `total` are done; total 0: their number is not known. `title` is one line. */
void cli_view_open(cli_view *view, FILE *to, const char *title, int64_t first, int64_t total, double budget);
void cli_view_close(cli_view *view);

/* A step is done, perhaps with an evaluation. cli_view_evaluated is for an evaluation without a step: the first of a run. */
void cli_view_add(cli_view *view, const cli_view_step *step);
void cli_view_evaluated(cli_view *view, const cli_view_step *step);

/* A step of an earlier process: its curves continue, and nothing is drawn or printed. */
void cli_view_recall(cli_view *view, const cli_view_step *step);

/* The current work: "sampling 96 of 256". */
void cli_view_phase(cli_view *view, const char *what, size_t done, size_t all);

/* Removes the view before other output. */
void cli_view_clear(cli_view *view);

#endif
