/* task.h - what a task is inside: a row of the table of built-in ones, a file, or a program. Private. */
#ifndef REIN_ROLLOUT_TASK_H
#define REIN_ROLLOUT_TASK_H

#include "rein/rollout.h"

/* Random numbers one after another, all of one address. */
typedef struct rein_draws {
    uint64_t seed, purpose, index, attempt, n;
} rein_draws;

/* A whole number below n, n at least 1: each with the same probability, to 2^-53 of it. */
uint64_t rein_draw(rein_draws *draws, uint64_t n);

enum { REIN_ASKED_TEXT = 512 };

typedef struct rein_asked {
    char prompt[REIN_ASKED_TEXT], answer[REIN_ASKED_TEXT];
} rein_asked;

/* A built-in task: one file, one row of the table in task.c. */
typedef struct rein_builtin_task {
    rein_task_info info;
    void (*ask)(rein_asked *asked, rein_draws *draws);
    int (*right)(const rein_example *example, const char *response, size_t length);
    rein_status (*demonstrate)(rein_text *text, const rein_example *example, rein_draws *draws, rein_error *err);
} rein_builtin_task;

extern const rein_builtin_task rein_task_sums, rein_task_sort, rein_task_format;

/* Appends formatted text; the text is as it was on failure. */
rein_status rein_text_print(rein_text *text, rein_error *err, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
