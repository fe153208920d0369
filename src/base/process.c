/* process.c - three pipes and a process group.
 *
 * Pipes, because a program may open its standard input a second time by its name in /dev, which a socket would refuse. SIGPIPE is kept
 * from the host by the signal mask of the calling thread. posix_spawn, because other threads may exist: no code of ours runs between fork
 * and exec. */
#define _GNU_SOURCE /* pipe2, environ, posix_spawn_file_actions_addchdir_np */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "file.h"
#include "show.h"

enum {
    LONGEST_LINE = 16 << 20,
    PIECE = 1 << 14, /* read at a time */
    KEPT = 4000,     /* of its log */
    LAST_LINE = 200
};

/* Seconds that it has to end after the end of its input; to answer after it closed its input; to end after it closed its output, so that
 * its exit status can be reported. */
static const double GRACE = 1, CLOSED = 0.5, DYING = 0.5;

typedef struct bytes {
    char *data;
    size_t begin, end, capacity; /* its contents are [begin, end) */
} bytes;

struct rein_process {
    pid_t pid;
    int input, output, errors; /* our ends of its three pipes; -1: closed */
    double began;
    double input_closed; /* when we noticed that it had closed its input */
    bytes unsent, unread;
    size_t searched; /* there is no newline in unread before this */
    char log[2 * KEPT], shown[KEPT + 1];
    size_t n_log;
    int failed;
};

static void shut(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static int make_room(bytes *b, size_t more) {
    if (b->begin == b->end) b->begin = b->end = 0;
    if (b->capacity - b->end >= more) return 1;
    if (b->begin) memmove(b->data, b->data + b->begin, b->end - b->begin);
    b->end -= b->begin, b->begin = 0;
    if (b->capacity - b->end >= more) return 1;
    const size_t capacity = b->end + b->end / 2 + more;
    char *data = more < SIZE_MAX / 4 ? realloc(b->data, capacity) : NULL;
    if (!data) return 0;
    b->data = data, b->capacity = capacity;
    return 1;
}

/* -------------------------------------------------------------------------------------------------------------------- starting */

/* Descriptors above 2: otherwise a host without standard files would print into a pipe. */
static int make_pipe(int ends[2]) {
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    for (int i = 0; i < 2; i++) {
        if (ends[i] > 2) continue;
        const int moved = fcntl(ends[i], F_DUPFD_CLOEXEC, 3);
        close(ends[i]);
        ends[i] = moved;
    }
    return ends[0] < 0 || ends[1] < 0 ? -1 : 0;
}

/* The child gets the default signal handlers and mask, whatever the host has set for itself. */
static int set_signals(posix_spawnattr_t *attributes) {
    sigset_t all, none;
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    sigemptyset(&none);
    int code = posix_spawnattr_setsigdefault(attributes, &all);
    if (!code) code = posix_spawnattr_setsigmask(attributes, &none);
    if (!code) code = posix_spawnattr_setpgroup(attributes, 0);
    return code ? code
                : posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
}

/* The child's ends become its 0, 1 and 2; everything else is closed by O_CLOEXEC. 0, or what errno would be. */
static int spawn(pid_t *pid, const char *command, const char *directory, const int theirs[3]) {
    char *arguments[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", (char *)(uintptr_t)command, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int code = posix_spawn_file_actions_init(&actions);
    if (code) return code;
    code = posix_spawnattr_init(&attributes);
    if (!code) {
        code = set_signals(&attributes);
        for (int i = 0; i < 3 && !code; i++) code = posix_spawn_file_actions_adddup2(&actions, theirs[i], i);
        if (!code && directory && *directory) code = posix_spawn_file_actions_addchdir_np(&actions, directory);
        if (!code) code = posix_spawn(pid, "/bin/sh", &actions, &attributes, arguments, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

/* Only our ends: the program decides about its own. */
static int do_not_block(const rein_process *p) {
    const int ours[3] = {p->input, p->output, p->errors};
    for (int i = 0; i < 3; i++)
        if (fcntl(ours[i], F_SETFL, O_NONBLOCK) < 0) return errno;
    return 0;
}

static int start(rein_process *p, const char *command, const char *directory) {
    int in[2] = {-1, -1}, out[2] = {-1, -1}, errors[2] = {-1, -1};
    int code = make_pipe(in) || make_pipe(out) || make_pipe(errors) ? errno : 0;
    p->input = in[1], p->output = out[0], p->errors = errors[0];
    if (!code) code = do_not_block(p);
    if (!code) code = spawn(&p->pid, command, directory, (const int[3]){in[0], out[1], errors[1]});
    shut(&in[0]), shut(&out[1]), shut(&errors[1]);
    if (code) shut(&p->input), shut(&p->output), shut(&p->errors);
    return code;
}

rein_status rein_process_open(rein_process **process, const char *command, const char *directory, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    *process = NULL;
    if (directory && *directory && !rein_file_is_directory(directory))
        return rein_fail(err, REIN_EINVAL,
                         "the program cannot be started in %s, which is not a directory: --working-directory DIR gives another",
                         rein_path_show(shown, directory));
    rein_process *p = calloc(1, sizeof *p);
    if (!p) return rein_no_memory(err);
    const int code = start(p, command, directory);
    p->began = rein_now();
    if (!code) {
        *process = p;
        return REIN_OK;
    }
    free(p);
    errno = code;
    return rein_file_error(err, "/bin/sh", "cannot be started");
}

/* ---------------------------------------------------------------------------------------------------------- writing and reading */

/* Writing to a pipe without a reader raises SIGPIPE, which would end the host. It is blocked in this thread only, and consumed,
 * unless one was pending for the host before. */
static ssize_t write_quietly(int fd, const char *data, size_t size) {
    sigset_t broken_pipe, before, waiting;
    const struct timespec at_once = {0, 0};
    sigemptyset(&waiting);
    sigpending(&waiting);
    sigemptyset(&broken_pipe);
    sigaddset(&broken_pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken_pipe, &before);
    const ssize_t n = write(fd, data, size);
    const int code = errno;
    if (n < 0 && code == EPIPE && !sigismember(&waiting, SIGPIPE))
        while (sigtimedwait(&broken_pipe, NULL, &at_once) < 0 && errno == EINTR) {
        }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = code;
    return n;
}

static int try_again(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

static void lose_input(rein_process *p) {
    shut(&p->input);
    p->input_closed = rein_now();
    p->unsent.begin = p->unsent.end = 0;
}

static void send_some(rein_process *p) {
    while (p->input >= 0 && p->unsent.begin < p->unsent.end) {
        const ssize_t n = write_quietly(p->input, p->unsent.data + p->unsent.begin, p->unsent.end - p->unsent.begin);
        if (n > 0) p->unsent.begin += (size_t)n;
        else if (n < 0 && try_again()) return;
        else lose_input(p);
    }
}

static rein_status read_some(rein_process *p, rein_error *err) {
    const size_t searched = p->searched - p->unread.begin;
    if (!make_room(&p->unread, PIECE)) return rein_no_memory(err);
    p->searched = p->unread.begin + searched;
    const ssize_t n = read(p->output, p->unread.data + p->unread.end, PIECE);
    if (n > 0) p->unread.end += (size_t)n;
    else if (n == 0 || !try_again()) shut(&p->output);
    return REIN_OK;
}

/* 1 if there may be more. */
static int read_log(rein_process *p) {
    char piece[PIECE];
    const ssize_t n = read(p->errors, piece, sizeof piece);
    if (n == 0 || (n < 0 && !try_again())) shut(&p->errors);
    if (n <= 0) return 0;
    const size_t kept = n < KEPT ? (size_t)n : KEPT;
    if (p->n_log + kept > sizeof p->log) {
        memmove(p->log, p->log + p->n_log - KEPT, KEPT);
        p->n_log = KEPT;
    }
    memcpy(p->log + p->n_log, piece + (size_t)n - kept, kept);
    p->n_log += kept;
    return 1;
}

/* What is there now; a bounded amount, because the program may write more meanwhile. */
static void read_whole_log(rein_process *p) {
    for (int i = 0; i < 64 && p->errors >= 0 && read_log(p); i++) {
    }
}

/* Writes and reads what is possible now; if nothing is, waits for at most `seconds`. */
static rein_status take_turns(rein_process *p, double seconds, rein_error *err) {
    const int sending = p->unsent.begin < p->unsent.end;
    struct pollfd fds[3] = {{p->input, sending ? POLLOUT : 0, 0}, {p->output, POLLIN, 0}, {p->errors, POLLIN, 0}};
    const double wait = ceil(fmin(fmax(seconds, 0) * 1000, 1e6));
    if (poll(fds, 3, (int)wait) <= 0) return REIN_OK; /* or a signal of the host: the caller checks the time */
    if (fds[0].revents & (POLLERR | POLLNVAL)) lose_input(p);
    else if (fds[0].revents) send_some(p);
    if (fds[2].revents) read_log(p);
    return fds[1].revents ? read_some(p, err) : REIN_OK;
}

rein_status rein_process_ask(rein_process *p, const char *line, size_t length, rein_error *err) {
    if (p->failed) return rein_fail(err, REIN_EIO, "the program failed before: it can only be closed");
    if (memchr(line, '\n', length)) return rein_fail(err, REIN_EINVAL, "a request is one line: this has a newline in it");
    if (p->input < 0) return REIN_OK; /* rein_process_answer reports it, after the answers that are on their way */
    if (!make_room(&p->unsent, length + 1)) return rein_no_memory(err);
    memcpy(p->unsent.data + p->unsent.end, line, length);
    p->unsent.data[p->unsent.end + length] = '\n';
    p->unsent.end += length + 1;
    send_some(p);
    return REIN_OK;
}

/* --------------------------------------------------------------------------------------------------------------------- failures */

/* 1 if it has ended, and how; -1 if other code has taken its status. It stays a zombie, so its process number is not used again. */
static int has_ended(const rein_process *p, siginfo_t *how) {
    *how = (siginfo_t){0};
    while (waitid(P_PID, (id_t)p->pid, how, WEXITED | WNOHANG | WNOWAIT) != 0)
        if (errno != EINTR) return -1;
    return how->si_pid != 0;
}

static void nap(double seconds) { poll(NULL, 0, (int)ceil(1000 * seconds)); }

static int ends_soon(const rein_process *p, siginfo_t *how) {
    const double limit = rein_now() + DYING;
    int ended;
    while (!(ended = has_ended(p, how)) && rein_now() < limit) nap(0.002);
    return ended;
}

static const char *tell_end(char *to, size_t size, int ended, const siginfo_t *how) {
    if (ended < 0) snprintf(to, size, "ended");
    else if (how->si_code == CLD_EXITED) snprintf(to, size, "ended with exit status %d", how->si_status);
    else snprintf(to, size, "was ended by signal %d (%s)", how->si_status, strsignal(how->si_status));
    return to;
}

/* The last line of its log that is not empty; NULL if there is none. */
static const char *last_line(char to[LAST_LINE], const rein_process *p) {
    size_t end = p->n_log, begin;
    while (end && strchr(" \r\n\t", p->log[end - 1]) && p->log[end - 1]) end--;
    for (begin = end; begin && p->log[begin - 1] != '\n'; begin--) {
    }
    return begin < end ? rein_show_short(to, LAST_LINE, p->log + begin, end - begin) : NULL;
}

static rein_status give_up(rein_process *p, rein_error *err, const char *format, ...) __attribute__((format(printf, 3, 4)));
static rein_status give_up(rein_process *p, rein_error *err, const char *format, ...) {
    char what[240], line[LAST_LINE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    read_whole_log(p);
    p->failed = 1;
    if (last_line(line, p)) return rein_fail(err, REIN_EIO, "the program %s; the last line of its log: %s", what, line);
    return rein_fail(err, REIN_EIO, "the program %s", what);
}

/* Its output has ended. */
static rein_status fail_ended(rein_process *p, rein_error *err) {
    siginfo_t how;
    char told[100], part[60];
    const int ended = ends_soon(p, &how);
    const size_t left = p->unread.end - p->unread.begin;
    const char *what = ended ? tell_end(told, sizeof told, ended, &how) : "closed its output";
    if (!left && ended > 0 && how.si_code == CLD_EXITED && !how.si_status) /* a file that only defines a function does this */
        return give_up(p, err, "ended without answering; it must read requests from standard input (docs/rewards.md)");
    if (!left) return give_up(p, err, "%s", what);
    return give_up(p, err, "%s in the middle of a line: %s", what,
                   rein_show_short(part, sizeof part, p->unread.data + p->unread.begin, left));
}

static rein_status fail_slow(rein_process *p, double timeout, rein_error *err) {
    siginfo_t how;
    char told[100];
    const int ended = has_ended(p, &how);
    if (p->input < 0 && !ended) return give_up(p, err, "closed its input");
    if (!ended) return give_up(p, err, "did not answer within %g seconds", timeout);
    return give_up(p, err, "%s, and the processes it started did not answer", tell_end(told, sizeof told, ended, &how));
}

static rein_status fail_long(rein_process *p, rein_error *err) {
    char part[60];
    rein_show_short(part, sizeof part, p->unread.data + p->unread.begin, 2 * sizeof part);
    return give_up(p, err, "wrote a line longer than %d MB: %s", LONGEST_LINE >> 20, part);
}

/* ---------------------------------------------------------------------------------------------------------------------- answers */

/* The end of the first line, or NULL. *too_long: it is, or will be. */
static char *find_line(rein_process *p, int *too_long) {
    bytes *b = &p->unread;
    char *newline = b->end > p->searched ? memchr(b->data + p->searched, '\n', b->end - p->searched) : NULL;
    const size_t end = newline ? (size_t)(newline - b->data) : b->end;
    *too_long = end - b->begin > LONGEST_LINE;
    p->searched = end;
    return newline;
}

static void take_line(const char **line, size_t *length, rein_process *p, char *newline) {
    *newline = 0;
    *line = p->unread.data + p->unread.begin;
    *length = (size_t)(newline - *line);
    p->unread.begin += *length + 1;
    p->searched = p->unread.begin;
}

rein_status rein_process_answer(const char **line, size_t *length, rein_process *p, double timeout, rein_error *err) {
    return rein_process_answer_since(line, length, p, rein_now(), timeout, err);
}

rein_status rein_process_answer_since(const char **line, size_t *length, rein_process *p, double asked, double timeout,
                                      rein_error *err) {
    const double deadline = asked + timeout;
    if (p->failed) return rein_fail(err, REIN_EIO, "the program failed before: it can only be closed");
    for (int looked = 0;; looked = 1) {
        int too_long;
        char *newline = find_line(p, &too_long);
        if (too_long) return fail_long(p, err);
        if (newline) return take_line(line, length, p, newline), REIN_OK;
        if (p->output < 0) return fail_ended(p, err);
        const double limit = p->input < 0 ? fmin(deadline, p->input_closed + CLOSED) : deadline, left = limit - rein_now();
        if (left <= 0 && looked) return fail_slow(p, timeout, err);
        const rein_status status = take_turns(p, left, err);
        if (status) return p->failed = 1, status;
    }
}

rein_status rein_process_check(rein_process *p, double seconds, rein_error *err) {
    rein_status status = REIN_OK;
    for (double left; !status && p->output >= 0 && (left = p->began + seconds - rein_now()) > 0;) status = take_turns(p, left, err);
    return status || p->output >= 0 ? status : fail_ended(p, err);
}

void rein_process_unread(const char **text, size_t *length, rein_process *p) {
    int too_long;
    if (!p->failed && p->unread.begin == p->unread.end) take_turns(p, 0, NULL);
    const char *newline = find_line(p, &too_long);
    *text = p->unread.begin < p->unread.end ? p->unread.data + p->unread.begin : "";
    *length = newline ? (size_t)(newline - *text) : p->unread.end - p->unread.begin;
}

const char *rein_process_log(rein_process *p) {
    read_whole_log(p);
    const size_t kept = p->n_log < KEPT ? p->n_log : KEPT;
    const char *from = p->log + p->n_log - kept;
    size_t cut = 0; /* not in the middle of a character */
    while (kept < p->n_log && cut < kept && ((unsigned char)from[cut] & 0xC0) == 0x80) cut++;
    p->shown[rein_show(p->shown, from + cut, kept - cut, 1)] = 0;
    p->n_log = 0;
    return p->shown;
}

/* ---------------------------------------------------------------------------------------------------------------------- closing */

/* While its first process is a zombie, the number of its group is not used again. */
static void end_group(const rein_process *p) {
    siginfo_t how;
    if (has_ended(p, &how) < 0) return;
    kill(-p->pid, SIGKILL);
    while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

void rein_process_close(rein_process *p) {
    if (!p) return;
    siginfo_t how;
    const double limit = rein_now() + (p->failed ? 0 : GRACE);
    shut(&p->input);
    while (!has_ended(p, &how) && rein_now() < limit) { /* unread output must not block it */
        if (p->output < 0 && p->errors < 0) nap(0.002);
        else take_turns(p, 0.01, NULL);
        p->unread.begin = p->unread.end = p->searched = 0;
    }
    end_group(p);
    shut(&p->output), shut(&p->errors);
    free(p->unsent.data);
    free(p->unread.data);
    free(p);
}
