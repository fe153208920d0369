/* test_pool.c - the library's threads: every piece once, from any thread, inside itself, and after fork; no more threads than are asked for. */
#define _GNU_SOURCE /* CPU_COUNT, RTLD_NEXT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/pool.h"

enum { PIECES = 1000 };

typedef struct count {
    atomic_int done[PIECES];
    atomic_int strangers; /* thread numbers out of range */
    int threads;
} count;

static void once(void *context, size_t piece, int thread) {
    count *c = context;
    atomic_fetch_add(&c->done[piece], 1);
    if (thread < 0 || thread >= c->threads) atomic_fetch_add(&c->strangers, 1);
}

/* 1 if every one of the first `pieces` ran once and no other did. */
static int each_once(int threads, size_t pieces) {
    count c;
    memset(&c, 0, sizeof c);
    c.threads = threads;
    rein_parallel(threads, pieces, once, &c);
    int fine = atomic_load(&c.strangers) == 0;
    for (size_t i = 0; i < PIECES; i++) fine &= atomic_load(&c.done[i]) == (i < pieces);
    return fine;
}

static void test_every_piece_once(void **state) {
    const size_t pieces[] = {0, 1, 2, 3, 7, 8, 9, 100, PIECES};
    (void)state;
    for (int threads = 1; threads <= 9; threads++)
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) assert_true(each_once(threads, pieces[i]));
    for (int i = 0; i < 2000; i++) assert_true(each_once(1 + i % 5, (size_t)(i % 11)));
}

static void once_in_each(void *context, size_t piece, int thread) {
    (void)thread;
    ((int *)context)[piece] = each_once(3, 50);
}

static void test_inside_a_piece(void **state) {
    int fine[20] = {0};
    (void)state;
    rein_parallel(3, 20, once_in_each, fine);
    for (int i = 0; i < 20; i++) assert_true(fine[i]);
}

static void *call_often(void *result) {
    int fine = 1;
    for (int i = 0; i < 300; i++) fine &= each_once(2 + i % 3, 100);
    *(int *)result = fine;
    return NULL;
}

static void test_many_callers(void **state) {
    pthread_t callers[4];
    int fine[4] = {0};
    (void)state;
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&callers[i], NULL, call_often, &fine[i]), 0);
    for (int i = 0; i < 4; i++) pthread_join(callers[i], NULL);
    for (int i = 0; i < 4; i++) assert_true(fine[i]);
}

static int child_says(int (*question)(void)) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(20); /* a child that hangs is a failure, not a wait */
        _exit(question() ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int works(void) { return each_once(4, 300) && each_once(2, 300); }
static int works_in_its_own_child(void) { return works() && child_says(works); }

static atomic_int forked;
static int forked_well[8];
static void fork_once(void *context, size_t piece, int thread) { /* while the other threads are at work */
    (void)context, (void)thread;
    if (atomic_fetch_add(&forked, 1) < 8) forked_well[piece] = child_says(works);
}

static void note_thread(void *context, size_t piece, int thread) {
    (void)piece;
    atomic_fetch_or((atomic_int *)context, 1 << thread);
    usleep(2000);
}

static void *compute_beside(void *context) {
    rein_parallel(2, 50, note_thread, context);
    return NULL;
}

/* While they are reserved, others compute on their own thread; afterwards on all again. */
static void test_reserve(void **state) {
    (void)state;
    atomic_int own = 0, other = 0;
    pthread_t beside;
    rein_threads_reserve();
    rein_threads_reserve(); /* harmless */
    assert_int_equal(pthread_create(&beside, NULL, compute_beside, &other), 0);
    for (int i = 0; i < 500 && atomic_load(&own) != 3; i++)
        rein_parallel(2, 20, note_thread, &own); /* a busy machine wakes threads late */
    assert_int_equal(pthread_join(beside, NULL), 0);
    assert_int_equal(atomic_load(&own), 3);
    assert_int_equal(atomic_load(&other), 1);
    rein_threads_release();
    rein_threads_release();
    for (int i = 0; i < 500 && atomic_load(&other) != 3; i++) compute_beside(&other);
    assert_int_equal(atomic_load(&other), 3);
    assert_true(each_once(2, 100));
}

static void test_after_fork(void **state) {
    (void)state;
    assert_true(each_once(4, 300));
    assert_true(child_says(works));
    assert_true(child_says(works_in_its_own_child));
    assert_true(each_once(4, 300)); /* and the parent still works */
    rein_parallel(4, 8, fork_once, NULL);
    for (int i = 0; i < 8; i++) assert_true(forked_well[i]);
    assert_true(each_once(4, 300));
}

/* ---- a fork while the pool's lock is held */

/* Called in place of libc's. The pool posts a job with its lock held: a process that forks then has a child whose lock is never released. */
typedef int broadcast_fn(pthread_cond_t *condition);
static int forks_now, child_was_well;
int pthread_cond_broadcast(pthread_cond_t *condition) {
    broadcast_fn *real;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_broadcast");
    if (forks_now) forks_now = 0, child_was_well = child_says(works);
    return real(condition);
}

static void test_fork_with_the_lock(void **state) {
    (void)state;
    forks_now = 1;
    assert_true(each_once(3, 300));
    assert_int_equal(forks_now, 0); /* the lock was held */
    assert_true(child_was_well);
    assert_true(each_once(3, 300));
}

/* ---- how many threads there are */

static int tasks(void) {
    int n = 0;
    DIR *directory = opendir("/proc/self/task");
    if (!directory) return -1;
    for (const struct dirent *entry; (entry = readdir(directory));) n += entry->d_name[0] != '.';
    closedir(directory);
    return n;
}

/* A piece waits until all have begun: that takes as many threads as there are pieces. */
static atomic_int begun;
static void meet(void *context, size_t piece, int thread) {
    (void)piece, (void)thread;
    atomic_fetch_add(&begun, 1);
    while (atomic_load(&begun) < *(const int *)context) sched_yield();
}

/* Long enough that every thread of the job takes some. */
static void slow_once(void *context, size_t piece, int thread) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    once(context, piece, thread);
}

static int only_two_work(void) {
    count c;
    memset(&c, 0, sizeof c);
    c.threads = 2;
    rein_parallel(2, 60, slow_once, &c);
    return atomic_load(&c.strangers) == 0;
}

/* Threads are started when they are needed, as many as that, and stay. */
static int starts_as_many(void) {
    static const int wanted[] = {1, 3, 2, 3, 6, 4}, started[] = {1, 3, 3, 3, 6, 6};
    const int before = tasks() - 1; /* a sanitizer's own */
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        atomic_store(&begun, 0);
        rein_parallel(wanted[i], (size_t)wanted[i], meet, (void *)(uintptr_t)&wanted[i]);
        if (tasks() != before + started[i] || (started[i] > 1 && !only_two_work())) return 0;
    }
    return 1;
}

static void test_threads_started(void **state) {
    (void)state;
    assert_true(child_says(starts_as_many)); /* in a child, which has none yet */
}

static atomic_int arrived;

/* Every piece waits for all others to begin: so each has a thread of its own. */
static void own_core(void *context, size_t piece, int thread) {
    cpu_set_t mine;
    (void)piece;
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < rein_cores()) sched_yield();
    if (sched_getaffinity(0, sizeof mine, &mine) == 0) ((int *)context)[thread] = CPU_COUNT(&mine);
}

static int binds(void) {
    const int cores = rein_cores();
    int mine[REIN_MAX_THREADS];
    memset(mine, 0, sizeof mine);
    int fine = each_once(cores, PIECES);
    rein_bind_threads();
    rein_bind_threads(); /* twice is once */
    rein_parallel(cores, (size_t)cores, own_core, mine);
    for (int t = 0; t < cores; t++) fine &= mine[t] == 1;
    return fine && rein_cores() == cores && each_once(cores, PIECES);
}

static void test_bind(void **state) {
    (void)state;
    assert_true(rein_cores() >= 1);
    assert_true(child_says(binds)); /* in a child: binding lasts */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_piece_once), cmocka_unit_test(test_inside_a_piece), cmocka_unit_test(test_many_callers),
        cmocka_unit_test(test_reserve),          cmocka_unit_test(test_after_fork),     cmocka_unit_test(test_fork_with_the_lock),
        cmocka_unit_test(test_threads_started),  cmocka_unit_test(test_bind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
