/* measure.c - the process of a row. An interrupt ends this process and not the command, which has files to remove. */
#define _GNU_SOURCE /* madvise */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"

double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ------------------------------------------------------------------------------------------------------------------ interrupts */

static volatile sig_atomic_t interrupted, waited_for;

static void pass_on(int signal) {
    interrupted = 1;
    if (waited_for) (void)kill((pid_t)waited_for, signal);
}

void bench_catch_interrupts(void) {
    struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int bench_interrupted(void) { return interrupted != 0; }
void bench_waits_for(int pid) { waited_for = pid; }

/* ----------------------------------------------------------------------------------------------------------------- in the child */

static int answer_to = -1;

_Noreturn static void answer(const bench_figures *figures) {
    const ssize_t wrote = write(answer_to, figures, sizeof *figures); /* fits into the pipe at once */
    _exit(wrote == (ssize_t)sizeof *figures ? 0 : 1);
}

_Noreturn void bench_give_up(const char *format, ...) {
    bench_figures figures = {0};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(figures.error, sizeof figures.error, format, arguments);
    va_end(arguments);
    answer(&figures);
}

void bench_must(rein_status status, const rein_error *err) {
    if (status) bench_give_up("%s", err->message);
}

void *bench_get(size_t bytes) {
    const size_t huge = (size_t)2 << 20, size = (bytes + huge - 1) / huge * huge;
    void *p = bytes < huge ? malloc(bytes ? bytes : 1) : aligned_alloc(huge, size);
    if (!p) bench_give_up("out of memory: %zu bytes", bytes);
    if (bytes >= huge) (void)madvise(p, size, MADV_HUGEPAGE);
    return p;
}

_Noreturn static void measure(const bench_row *row, const bench_job *job) {
    bench_figures figures = {.limit = row->limit > 0 ? row->limit : NAN};
    struct rusage usage;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    if (!row->unbound) bench_bind();
    row->measure(&figures, row, job);
    getrusage(RUSAGE_SELF, &usage);
    figures.memory = (double)usage.ru_maxrss * 1024 / 1e6;
    answer(&figures);
}

/* ---------------------------------------------------------------------------------------------------------------- in the parent */

static int read_whole(int fd, void *to, size_t size) {
    size_t n = 0;
    while (n < size) {
        const ssize_t got = read(fd, (char *)to + n, size - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 0;
        n += (size_t)got;
    }
    return 1;
}

void bench_measure(bench_figures *figures, const bench_row *row, const bench_job *job) {
    int pipes[2], how = 0;
    *figures = (bench_figures){0};
    fflush(NULL);
    if (pipe(pipes) != 0) {
        snprintf(figures->error, sizeof figures->error, "no pipe: %s", strerror(errno));
        return;
    }
    const pid_t child = fork();
    if (child == 0) {
        close(pipes[0]);
        answer_to = pipes[1];
        measure(row, job);
    }
    bench_waits_for(child > 0 ? (int)child : 0);
    close(pipes[1]);
    const int failed = errno, whole = child > 0 && read_whole(pipes[0], figures, sizeof *figures);
    close(pipes[0]);
    while (child > 0 && waitpid(child, &how, 0) < 0 && errno == EINTR) {
    }
    bench_waits_for(0);
    if (whole) return;
    *figures = (bench_figures){0};
    if (child < 0) snprintf(figures->error, sizeof figures->error, "no process: %s", strerror(failed));
    else if (WIFSIGNALED(how))
        snprintf(figures->error, sizeof figures->error, "its process was ended by signal %d (%s)", WTERMSIG(how),
                 strsignal(WTERMSIG(how)));
    else snprintf(figures->error, sizeof figures->error, "its process ended with exit status %d", WEXITSTATUS(how));
}
