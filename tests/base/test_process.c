/* test_process.c - programs that answer in lines, and those that do not. The programs are lines of shell. */
#define _DEFAULT_SOURCE /* usleep */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/process.h"
#include "support/allocation.h"

enum { PATIENCE = 20 }; /* seconds for what must come */

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static rein_process *start(const char *command) {
    rein_process *p;
    rein_error err = {0};
    if (rein_process_open(&p, command, NULL, &err) != REIN_OK) fail_msg("%s", err.message);
    return p;
}

static void ask(rein_process *p, const char *line) {
    rein_error err = {0};
    if (rein_process_ask(p, line, strlen(line), &err) != REIN_OK) fail_msg("%s", err.message);
}

static void answers(rein_process *p, const char *wanted) {
    const char *line;
    size_t length;
    rein_error err = {0};
    if (rein_process_answer(&line, &length, p, PATIENCE, &err) != REIN_OK) fail_msg("%s", err.message);
    assert_string_equal(line, wanted);
    assert_int_equal(length, strlen(wanted));
}

static void says(const rein_error *err, const char *wanted) {
    if (strcmp(err->message, wanted) != 0) fail_msg("\"%s\" is said, not \"%s\"", err->message, wanted);
}

/* Fails as said, and from then on. */
static void fails(rein_process *p, double timeout, const char *wanted) {
    const char *line;
    size_t length;
    rein_error err = {0};
    assert_int_equal(rein_process_answer(&line, &length, p, timeout, &err), REIN_EIO);
    says(&err, wanted);
    assert_int_equal(rein_process_answer(&line, &length, p, timeout, &err), REIN_EIO);
    says(&err, "the program failed before: it can only be closed");
    assert_int_equal(rein_process_ask(p, "x", 1, &err), REIN_EIO);
    says(&err, "the program failed before: it can only be closed");
}

/* ---- answers */
static void test_answers(void **state) {
    (void)state;
    rein_process *p = start("while read -r x; do echo \"<$x>\"; done");
    ask(p, "one");
    answers(p, "<one>");
    ask(p, "two");
    ask(p, "");
    ask(p, "Grüße");
    answers(p, "<two>");
    answers(p, "<>");
    answers(p, "<Grüße>");
    rein_process_close(p);
    rein_process_close(NULL);
}

static void test_request_is_a_line(void **state) {
    (void)state;
    rein_error err;
    rein_process *p = start("cat");
    assert_int_equal(rein_process_ask(p, "a\nb", 3, &err), REIN_EINVAL);
    says(&err, "a request is one line: this has a newline in it");
    ask(p, "still there");
    answers(p, "still there");
    rein_process_close(p);
}

/* More than any pipe holds, in both directions, all of it asked before anything is read. */
static void test_much_at_once(void **state) {
    (void)state;
    enum { LINES = 200, LENGTH = 5000 };
    static char line[LENGTH + 1];
    rein_process *p = start("cat");
    for (int i = 0; i < LINES; i++) {
        memset(line, 'a' + i % 26, LENGTH);
        ask(p, line);
    }
    for (int i = 0; i < LINES; i++) {
        memset(line, 'a' + i % 26, LENGTH);
        answers(p, line);
    }
    rein_process_close(p);
}

static void test_long_line(void **state) {
    (void)state;
    enum { LENGTH = 3000000 };
    const char *line;
    size_t length;
    rein_process *p = start("read -r n; head -c \"$n\" /dev/zero | tr '\\0' x; echo; cat");
    ask(p, "3000000");
    assert_int_equal(rein_process_answer(&line, &length, p, PATIENCE, NULL), REIN_OK);
    assert_int_equal(length, LENGTH);
    assert_int_equal(strspn(line, "x"), LENGTH);
    ask(p, "next");
    answers(p, "next");
    rein_process_close(p);
}

static void test_pieces_of_a_line(void **state) {
    (void)state;
    rein_process *p = start("printf a; sleep 0.02; printf b; sleep 0.02; printf 'c\\nd\\ne'; sleep 0.02; echo f; cat");
    answers(p, "abc");
    answers(p, "d");
    answers(p, "ef");
    rein_process_close(p);
}

/* A program may open its input by name: a pipe allows that. */
static void test_input_by_name(void **state) {
    (void)state;
    rein_process *p = start("cat /dev/stdin > /dev/stdout");
    ask(p, "hello");
    answers(p, "hello");
    rein_process_close(p);
}

static void test_unread(void **state) {
    (void)state;
    const char *text;
    size_t length = 0;
    rein_process *p = start("cat");
    rein_process_unread(&text, &length, p);
    assert_int_equal(length, 0);
    ask(p, "one");
    ask(p, "two");
    answers(p, "one");
    for (const double limit = seconds() + PATIENCE; !length && seconds() < limit;) rein_process_unread(&text, &length, p);
    assert_int_equal(length, 3);
    assert_memory_equal(text, "two", 3);
    answers(p, "two"); /* looking takes nothing away */
    rein_process_unread(&text, &length, p);
    assert_int_equal(length, 0);
    rein_process_close(p);
}

/* ---- failures */
static void test_ends(void **state) {
    (void)state;
    rein_process *p = start("exit 3");
    ask(p, "x");
    fails(p, PATIENCE, "the program ended with exit status 3");
    rein_process_close(p);
    p = start("read -r x; echo \"$x\"; echo 'Traceback:' >&2; echo 'oh no' >&2; exit 1");
    ask(p, "last");
    ask(p, "too late");
    answers(p, "last"); /* what it answered comes first */
    fails(p, PATIENCE, "the program ended with exit status 1; the last line of its log: oh no");
    rein_process_close(p);
    p = start("kill -9 $$");
    fails(p, PATIENCE, "the program was ended by signal 9 (Killed)");
    rein_process_close(p);
}

static void test_unknown_command(void **state) {
    (void)state;
    const char *line;
    size_t length;
    rein_error err = {0};
    rein_process *p = start("rein-no-such-program --at all");
    ask(p, "x");
    assert_int_equal(rein_process_answer(&line, &length, p, PATIENCE, &err), REIN_EIO);
    assert_non_null(strstr(err.message, "the program ended with exit status 127; the last line of its log: "));
    assert_non_null(strstr(err.message, "rein-no-such-program: "));
    rein_process_close(p);
}

static void test_ends_inside_a_line(void **state) {
    (void)state;
    rein_process *p = start("printf '{\"rew\\033'");
    fails(p, PATIENCE, "the program ended with exit status 0 in the middle of a line: {\"rew?");
    rein_process_close(p);
}

static void test_hangs(void **state) {
    (void)state;
    rein_process *p = start("exec sleep 100");
    const double before = seconds();
    ask(p, "x");
    fails(p, 0.2, "the program did not answer within 0.2 seconds");
    assert_true(seconds() - before >= 0.2);
    rein_process_close(p); /* at once: there is nothing to wait for */
    assert_true(seconds() - before < 10);
}

/* What has no time is looked at all the same. */
static void test_no_time(void **state) {
    (void)state;
    const char *line, *text;
    size_t length = 0;
    rein_process *p = start("cat");
    ask(p, "one");
    for (const double limit = seconds() + PATIENCE; !length && seconds() < limit;) rein_process_unread(&text, &length, p);
    assert_int_equal(rein_process_answer(&line, &length, p, 0, NULL), REIN_OK);
    assert_string_equal(line, "one");
    fails(p, 0, "the program did not answer within 0 seconds");
    rein_process_close(p);
}

static void test_closes_output(void **state) {
    (void)state;
    rein_process *p = start("exec >&-; echo 'no output' >&2; exec sleep 100");
    fails(p, PATIENCE, "the program closed its output; the last line of its log: no output");
    rein_process_close(p);
}

/* It has half a second left to answer; what it answers in it counts. */
static void test_closes_input(void **state) {
    (void)state;
    rein_process *p = start("read -r x; exec <&-; echo \"$x\"; exec sleep 100");
    const double before = seconds();
    ask(p, "one");
    ask(p, "two");
    answers(p, "one");
    fails(p, PATIENCE, "the program closed its input");
    assert_true(seconds() - before < 10);
    rein_process_close(p);
}

/* The shell is gone, what it started has its output. */
static void test_leaves_somebody_behind(void **state) {
    (void)state;
    rein_process *p = start("sleep 100 & exit 0");
    fails(p, 0.2, "the program ended with exit status 0, and the processes it started did not answer");
    rein_process_close(p);
}

static void test_line_too_long(void **state) {
    (void)state;
    rein_process *p = start("exec head -c 20000000 /dev/zero");
    const char *line;
    size_t length;
    rein_error err = {0};
    assert_int_equal(rein_process_answer(&line, &length, p, PATIENCE, &err), REIN_EIO);
    assert_true(strncmp(err.message, "the program wrote a line longer than 16 MB: ????????", 40) == 0);
    rein_process_close(p);
}

/* ---- standard error */
static void test_said(void **state) {
    (void)state;
    rein_process *p = start("printf 'one\\ntwo\\033[2J\\n\\377\\n' >&2; echo; cat");
    answers(p, "");
    const char *said = "";
    for (const double limit = seconds() + PATIENCE; !*said && seconds() < limit;) said = rein_process_log(p);
    assert_string_equal(said, "one\ntwo?[2J\n?\n");
    assert_string_equal(rein_process_log(p), "");
    rein_process_close(p);
}

/* A megabyte of it is drained while an answer is waited for; the end of it is kept. */
static void test_flood_of_words(void **state) {
    (void)state;
    rein_process *p = start("read -r x; head -c 1000000 /dev/zero | tr '\\0' w >&2; echo \"$x\"; echo end >&2; cat");
    ask(p, "one");
    answers(p, "one");
    ask(p, "two"); /* which comes after "end" */
    answers(p, "two");
    const char *said = rein_process_log(p);
    assert_int_equal(strlen(said), 4000);
    assert_int_equal(strspn(said, "w"), 4000 - 4);
    assert_string_equal(said + 4000 - 4, "end\n");
    rein_process_close(p);
}

/* Words without an end, and no answer: the time still counts. */
static void test_endless_words(void **state) {
    (void)state;
    rein_process *p = start("yes w >&2; :");
    fails(p, 0.1, "the program did not answer within 0.1 seconds; the last line of its log: w");
    rein_process_close(p);
}

/* ---- the host */
static int exists(pid_t pid) { return kill(pid, 0) == 0 || errno != ESRCH; }

/* An orphan may stay a zombie until whoever has process 1 here looks after it. */
static int runs(pid_t pid) {
    char path[60], state = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    FILE *file = fopen(path, "r");
    if (!file) return exists(pid);
    const int read = fscanf(file, "%*d (%*[^)]) %c", &state);
    fclose(file);
    return read == 1 && state != 'Z';
}

static void gone_soon(pid_t pid) {
    const double limit = seconds() + PATIENCE;
    while (runs(pid) && seconds() < limit) usleep(2000);
    assert_false(runs(pid));
}

static pid_t told_pid(rein_process *p) {
    const char *line;
    size_t length;
    assert_int_equal(rein_process_answer(&line, &length, p, PATIENCE, NULL), REIN_OK);
    const long pid = strtol(line, NULL, 10);
    assert_true(pid > 1);
    return (pid_t)pid;
}

/* Closing: the end of its input is enough for a program that listens, and it may still say a lot. */
static void test_close_is_gentle(void **state) {
    (void)state;
    const char *temporary = getenv("TMPDIR");
    char path[300], command[500], told[8] = "";
    snprintf(path, sizeof path, "%s/rein-process-XXXXXX", temporary ? temporary : "/tmp");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    snprintf(command, sizeof command, "cat; head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; echo bye > '%s'", path);
    const double before = seconds();
    rein_process_close(start(command));
    assert_true(seconds() - before < PATIENCE);
    assert_int_equal(read(fd, told, sizeof told), 4);
    assert_memory_equal(told, "bye\n", 4);
    close(fd);
    unlink(path);
}

/* One that does not listen is killed after a second, with all that it has started. */
static void test_close_kills_the_group(void **state) {
    (void)state;
    rein_process *p = start("trap '' TERM HUP; sleep 100 & echo $!; echo $$; while :; do sleep 1; done");
    const pid_t sleeper = told_pid(p), shell = told_pid(p);
    assert_true(runs(sleeper) && runs(shell));
    const double before = seconds();
    rein_process_close(p);
    assert_true(seconds() - before >= 0.9);
    gone_soon(sleeper);
    assert_false(exists(shell)); /* not a zombie either */
}

static volatile sig_atomic_t broken_pipes;
static void count(int signal) { broken_pipes += signal == SIGPIPE; }

/* Writing to a program that is gone neither ends the host nor runs its handler; its own signals reach it. */
static void test_broken_pipe(void **state) {
    (void)state;
    static char line[200000];
    sigset_t mask;
    struct sigaction own = {.sa_handler = count}, found;
    memset(line, 'x', sizeof line - 1);
    for (int handled = 0; handled < 2; handled++) {
        if (handled) sigaction(SIGPIPE, &own, NULL);
        rein_process *p = start("exit 0");
        for (int i = 0; i < 50; i++) ask(p, line), usleep(1000);
        fails(p, PATIENCE, "the program ended without answering; it must read requests from standard input (docs/rewards.md)");
        rein_process_close(p);
    }
    assert_int_equal(broken_pipes, 0);
    sigaction(SIGPIPE, NULL, &found);
    assert_true(found.sa_handler == count); /* nothing was changed for good */
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    assert_false(sigismember(&mask, SIGPIPE));
    raise(SIGPIPE);
    assert_int_equal(broken_pipes, 1);
    signal(SIGPIPE, SIG_DFL);
}

/* A signal that the host holds back on purpose is still there afterwards. */
static void test_held_back_signal(void **state) {
    (void)state;
    sigset_t broken_pipe, waiting;
    const struct timespec at_once = {0, 0};
    sigemptyset(&broken_pipe);
    sigaddset(&broken_pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken_pipe, NULL);
    raise(SIGPIPE);
    rein_process *p = start("exit 0");
    for (int i = 0; i < 20; i++) ask(p, "x"), usleep(1000);
    fails(p, PATIENCE, "the program ended without answering; it must read requests from standard input (docs/rewards.md)");
    rein_process_close(p);
    sigpending(&waiting);
    assert_true(sigismember(&waiting, SIGPIPE));
    assert_int_equal(sigtimedwait(&broken_pipe, NULL, &at_once), SIGPIPE);
    pthread_sigmask(SIG_UNBLOCK, &broken_pipe, NULL);
}

static uint64_t told_mask(rein_process *p) {
    const char *line;
    char *end;
    size_t length;
    assert_int_equal(rein_process_answer(&line, &length, p, PATIENCE, NULL), REIN_OK);
    const uint64_t mask = strtoull(line, &end, 16);
    assert_true(length == 16 && !*end);
    return mask;
}

/* What the host ignores or holds back, the program does not: it would never end by a broken pipe or an interrupt. */
static void test_signals_of_the_program(void **state) {
    (void)state;
    sigset_t all, before;
    signal(SIGPIPE, SIG_IGN);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    rein_process *p = start("sed -n 's/^Sig[BI][lg][kn]:.//p' /proc/self/status; cat");
    assert_int_equal(told_mask(p), 0);                        /* held back */
    assert_int_equal(told_mask(p) & ~(UINT64_C(3) << 31), 0); /* ignored; 32 and 33 are the C library's own */
    rein_process_close(p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    signal(SIGPIPE, SIG_DFL);
}

/* A host that ignores SIGCHLD, so that no child becomes a zombie: only the status is lost. */
static void test_status_is_lost(void **state) {
    (void)state;
    signal(SIGCHLD, SIG_IGN);
    rein_process *p = start("exit 3");
    fails(p, PATIENCE, "the program ended");
    rein_process_close(p);
    p = start("exec sleep 100");
    fails(p, 0.05, "the program did not answer within 0.05 seconds");
    rein_process_close(p);
    signal(SIGCHLD, SIG_DFL);
}

/* A program has nothing of another's open, or the other would never see the end of its input. */
static void test_open_files_of_the_program(void **state) {
    (void)state;
    static const char list[] = "ls /proc/self/fd | tr '\\n' ' '; echo; cat";
    const char *line;
    size_t length;
    char alone[1000];
    rein_process *p = start(list);
    assert_int_equal(rein_process_answer(&line, &length, p, PATIENCE, NULL), REIN_OK);
    snprintf(alone, sizeof alone, "%s", line);
    rein_process_close(p);
    rein_process *first = start("cat");
    p = start(list);
    answers(p, alone);
    rein_process_close(p);
    rein_process_close(first);
}

/* A host without standard files stays one. */
static void test_host_without_files(void **state) {
    (void)state;
    int result;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const char *line = "";
        size_t length;
        rein_process *p;
        close(0), close(1), close(2);
        int good = rein_process_open(&p, "cat; echo word >&2", NULL, NULL) == REIN_OK;
        for (int fd = 0; fd < 3; fd++) good = good && fcntl(fd, F_GETFD) < 0; /* what the host prints must not reach the program */
        good = good && rein_process_ask(p, "one", 3, NULL) == REIN_OK;
        good = good && rein_process_answer(&line, &length, p, PATIENCE, NULL) == REIN_OK && !strcmp(line, "one");
        if (good) rein_process_close(p);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
}

/* ---- memory */
static rein_status converse(void *context, rein_error *err) {
    static char line[100000];
    const char *text;
    size_t length;
    rein_process *p;
    (void)context;
    memset(line, 'x', sizeof line);
    rein_status status = rein_process_open(&p, "cat", NULL, err);
    if (!status) status = rein_process_ask(p, line, sizeof line, err);
    if (!status) status = rein_process_answer(&text, &length, p, PATIENCE, err);
    rein_process_close(p);
    return status;
}

static void test_directory(void **state) {
    (void)state;
    rein_process *p;
    rein_error err = {0};
    assert_int_equal(rein_process_open(&p, "read -r x; pwd", "/", &err), REIN_OK);
    ask(p, "where");
    answers(p, "/");
    rein_process_close(p);
    assert_int_equal(rein_process_open(&p, "cat", "/nowhere", &err), REIN_EINVAL);
    assert_null(p);
    assert_string_equal(err.message, "the program cannot be started in /nowhere, which is not a directory: --working-directory DIR "
                                     "gives another");
}

static void test_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    assert_true(fail_each_allocation(converse, NULL) >= 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_request_is_a_line),
        cmocka_unit_test(test_much_at_once),
        cmocka_unit_test(test_long_line),
        cmocka_unit_test(test_pieces_of_a_line),
        cmocka_unit_test(test_input_by_name),
        cmocka_unit_test(test_unread),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_unknown_command),
        cmocka_unit_test(test_ends_inside_a_line),
        cmocka_unit_test(test_hangs),
        cmocka_unit_test(test_no_time),
        cmocka_unit_test(test_closes_output),
        cmocka_unit_test(test_closes_input),
        cmocka_unit_test(test_leaves_somebody_behind),
        cmocka_unit_test(test_line_too_long),
        cmocka_unit_test(test_said),
        cmocka_unit_test(test_flood_of_words),
        cmocka_unit_test(test_endless_words),
        cmocka_unit_test(test_close_is_gentle),
        cmocka_unit_test(test_close_kills_the_group),
        cmocka_unit_test(test_broken_pipe),
        cmocka_unit_test(test_held_back_signal),
        cmocka_unit_test(test_signals_of_the_program),
        cmocka_unit_test(test_status_is_lost),
        cmocka_unit_test(test_open_files_of_the_program),
        cmocka_unit_test(test_host_without_files),
        cmocka_unit_test(test_directory),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
