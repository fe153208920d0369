/* progress.c - a bar or lines, and signals. */
#include "progress.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

/* A step may take minutes: that it is being finished is said at once. */
static void remember(int signal) {
    static const char said[] = "\nfinishing the step; once more ends it now, and the step is lost\n";
    (void)signal;
    interrupted = 1;
    if (write(STDERR_FILENO, said, sizeof said - 1) < 0) interrupted = 1;
}

int rein_progress_interrupted(void) { return interrupted != 0; }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void rein_catch_interrupts(void) {
    struct sigaction once = {.sa_handler = remember,
                             .sa_flags = (int)(SA_RESETHAND | SA_RESTART)}; /* the second one does what it always does */
    sigemptyset(&once.sa_mask);
    sigaction(SIGINT, &once, NULL);
    sigaction(SIGTERM, &once, NULL);
}

void rein_progress_begin(rein_progress *p, int64_t done, int64_t total) {
    const char *term = getenv("TERM");
    rein_catch_interrupts();
    *p = (rein_progress){.first = done, .total = total, .every = (total - done + 19) / 20, .began = now(), .last = -1};
    p->terminal = isatty(STDERR_FILENO) && !(term && !strcmp(term, "dumb"));
}

/* "1:02:03" or "2:03" */
static void clock_text(char *to, size_t size, double seconds) {
    const long long s = (long long)fmin(ceil(seconds), 3.6e9);
    if (s >= 3600) snprintf(to, size, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else snprintf(to, size, "%lld:%02lld", s / 60, s % 60);
}

static void draw(rein_progress *p, int64_t done, const char *text, double at) {
    enum { CELLS = 10, COLUMNS = 79 };
    const double per_step = (at - p->began) / (double)(done - p->first);
    const int filled = (int)(done * CELLS / p->total);
    char bar[CELLS + 1], left[40], line[COLUMNS + 1];
    for (int i = 0; i < CELLS; i++) bar[i] = i < filled ? '#' : '.';
    bar[CELLS] = 0;
    clock_text(left, sizeof left, per_step * (double)(p->total - done));
    snprintf(line, sizeof line, "[%s] %lld/%lld  %s  %.3g/s  %s left", bar, (long long)done, (long long)p->total, text,
             1 / fmax(per_step, 1e-9), left);
    fprintf(stderr, "\r%s\033[K", line);
    fflush(stderr);
    p->last = at;
    p->drawn = 1;
}

void rein_progress_step(rein_progress *p, int64_t done, const char *text) {
    const double at = now();
    if (p->terminal) {
        if (at - p->last >= 0.1 || done == p->total) draw(p, done, text, at);
    } else if ((done - p->first - 1) % p->every == 0 || done == p->total) {
        fprintf(stderr, "step %lld/%lld  %s\n", (long long)done, (long long)p->total, text);
    }
}

void rein_progress_clear(rein_progress *p) {
    if (p->drawn) fprintf(stderr, "\r\033[K");
    p->drawn = 0;
}
