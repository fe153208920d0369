/* view.h - a run as it goes, on standard error: a bar with the time to go, the figures of the step, and small curves; on a terminal drawn in
 * place, elsewhere one plain line a step. `rein run` and `rein demo` feed it as they work, `rein watch` from the run's history. */
#ifndef REIN_CLI_VIEW_H
#define REIN_CLI_VIEW_H

#include <stdint.h>

#include "rein/json.h"
#include "rein/train.h"

/* The figures of a step. NaN: the step has none. */
typedef struct rein_view_step {
    int64_t step;
    double reward, accuracy, length, over, kl, entropy, gap, seconds;
    double eval_accuracy, eval_low, eval_high, eval_length, eval_over;
} rein_view_step;

/* All NaN. */
rein_view_step rein_view_step_none(int64_t step);

/* Takes a metric by its name, if it is one of those shown. */
void rein_view_step_set(rein_view_step *step, const char *name, double value);

enum { REIN_VIEW_POINTS = 2048 };

typedef struct rein_view {
    int64_t first, total;
    double budget;        /* NaN: none */
    int terminal, colour; /* how it is drawn */
    int drawn;            /* lines that are on the screen */
    double began, last;   /* seconds */
    rein_view_step *steps;
    size_t n, every;           /* points that are kept; each stands for so many steps */
    double base_accuracy;      /* of the first evaluation */
    rein_view_step evaluation; /* the last one */
    char phase[80];
} rein_view;

/* `first` steps of `total` are made. `title` is one line. */
void rein_view_open(rein_view *view, const char *title, int64_t first, int64_t total, double budget);
void rein_view_close(rein_view *view);

/* A step was made. An evaluation of a step that was not (the first of a run) comes by itself. */
void rein_view_add(rein_view *view, const rein_view_step *step);
void rein_view_evaluated(rein_view *view, const rein_view_step *step);

/* What is being done now: "sampling 96 of 256". */
void rein_view_phase(rein_view *view, const char *what, size_t done, size_t all);

/* Takes everything away, before something else is said. */
void rein_view_clear(rein_view *view);

/* values [n] as a curve of at most `columns` cells: ▁▂▃▄▅▆▇█; the last value is always the last cell. Appended. */
void rein_sparkline(rein_text *out, const double *values, size_t n, size_t columns);

#endif
