/* progress.c - a bar or lines, and signals. */
#include "progress.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "terminal.h"

static volatile sig_atomic_t interrupted;
static const char *told =
    "\nfinishing the step; interrupt again to stop now and lose it\n"; /* by the first interrupt; NULL: nothing */

/* A step may take minutes, so the message comes at once. */
static void remember(int signal) {
    const int code = errno;
    (void)signal;
    interrupted = 1;
    if (told && write(STDERR_FILENO, told, strlen(told)) < 0) interrupted = 1;
    errno = code; /* of the call that was interrupted */
}

int cli_progress_interrupted(void) { return interrupted != 0; }

double cli_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A terminal that is closed sends SIGHUP more than once, from the kernel and from the shell. It stays ignored for a program that was
 * started with nohup. */
static void catch_hangup(void) {
    struct sigaction before, each = {.sa_handler = remember, .sa_flags = SA_RESTART};
    sigemptyset(&each.sa_mask);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGHUP, &each, NULL);
}

void cli_catch_interrupts(void) {
    struct sigaction once = {.sa_handler = remember,
                             .sa_flags = (int)(SA_RESETHAND | SA_RESTART)}; /* the second one has its default effect */
    sigemptyset(&once.sa_mask);
    sigaction(SIGINT, &once, NULL);
    sigaction(SIGTERM, &once, NULL);
    catch_hangup();
}

void cli_catch_interrupts_silently(void) {
    told = NULL;
    cli_catch_interrupts();
}

void cli_progress_begin(cli_progress *p, int64_t done, int64_t total) {
    cli_catch_interrupts();
    *p = (cli_progress){.first = done, .total = total, .every = (total - done + 19) / 20, .began = cli_now(), .last = -1};
    p->terminal = cli_is_terminal(STDERR_FILENO);
}

const char *cli_clock_text(char to[CLI_CLOCK_SIZE], double seconds) {
    const long long s = (long long)fmin(ceil(fmax(seconds, 0)), 3.6e9);
    if (s >= 3600) snprintf(to, CLI_CLOCK_SIZE, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else snprintf(to, CLI_CLOCK_SIZE, "%lld:%02lld", s / 60, s % 60);
    return to;
}

static void draw(cli_progress *p, int64_t done, const char *text, double at) {
    enum { CELLS = 10, COLUMNS = 79 };
    const double per_step = (at - p->began) / (double)(done - p->first);
    const int filled = (int)(done * CELLS / p->total);
    char bar[CELLS + 1], left[CLI_CLOCK_SIZE], line[COLUMNS + 1];
    for (int i = 0; i < CELLS; i++) bar[i] = i < filled ? '#' : '.';
    bar[CELLS] = 0;
    snprintf(line, sizeof line, "[%s] %lld/%lld  %s  %.3g/s  %s left", bar, (long long)done, (long long)p->total, text,
             1 / fmax(per_step, 1e-9), cli_clock_text(left, per_step * (double)(p->total - done)));
    fprintf(stderr, "\r%s\033[K", line);
    fflush(stderr);
    p->last = at;
    p->drawn = 1;
}

void cli_progress_step(cli_progress *p, int64_t done, const char *text) {
    const double at = cli_now();
    if (p->terminal) {
        if (at - p->last >= 0.1 || done == p->total) draw(p, done, text, at);
    } else if ((done - p->first - 1) % p->every == 0 || done == p->total) {
        fprintf(stderr, "step %lld/%lld  %s\n", (long long)done, (long long)p->total, text);
    }
}

void cli_progress_clear(cli_progress *p) {
    if (p->drawn) fprintf(stderr, "\r\033[K");
    p->drawn = 0;
}
