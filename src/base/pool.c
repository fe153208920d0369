/* pool.c - the library's own threads.
 *
 * Why not OpenMP: its threads hang in a child that forks after they ran (Python's multiprocessing does), a process may hold several
 * OpenMP libraries, and a wheel would have to carry one. What is needed is small: one job at a time, pieces taken in order. */
#define _GNU_SOURCE /* cpu_set_t */
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base.h"

enum {
    SPINS = 2000
}; /* tens of microseconds: waking a thread takes as long, and spinning longer would take cores from other processes */

typedef struct job {
    rein_work *work;
    void *context;
    size_t pieces;
    int threads;
} job;

static struct pool {
    pthread_mutex_t busy; /* held by the caller whose job runs */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t posted, finished;
    job job;
    atomic_uint number; /* of jobs posted */
    atomic_int running; /* threads that still work on the job */
    struct {
        _Alignas(64) atomic_size_t next; /* the first piece of this thread's share that is not taken yet */
    } shares[REIN_MAX_THREADS];
    int started; /* threads besides the callers'; [1 .. started] below are theirs */
    pthread_t threads[REIN_MAX_THREADS];
    int index[REIN_MAX_THREADS];
    unsigned jobs_before[REIN_MAX_THREADS]; /* jobs posted before the thread started */
    atomic_int bound;                       /* each thread runs on its own core only */
    cpu_set_t allowed;                      /* the cores of the process before it was bound */
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .posted = PTHREAD_COND_INITIALIZER,
          .finished = PTHREAD_COND_INITIALIZER};

static _Thread_local int inside;   /* this thread is running a piece */
static _Thread_local int reserved; /* this thread holds `busy` between its jobs too */

static inline void pause_a_little(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* The first piece of a thread's share. */
static size_t share_of(const job *j, size_t thread) {
    const size_t n = (size_t)j->threads;
    return j->pieces / n * thread + (j->pieces % n < thread ? j->pieces % n : thread);
}

/* Its own share first, in order, so that memory is read sequentially; then pieces that other threads have not taken yet, whose cores may
 * be slower or busy. */
static void do_share(const job *j, int thread) {
    const size_t n = (size_t)j->threads;
    inside = 1;
    for (size_t i = 0; i < n; i++) {
        const size_t whose = ((size_t)thread + i) % n, end = share_of(j, whose + 1);
        size_t own = 0, piece;
        while ((piece = n > 1 ? atomic_fetch_add(&pool.shares[whose].next, 1) : own++) < end) j->work(j->context, piece, thread);
    }
    inside = 0;
}

static job wait_for_job(unsigned *seen) {
    for (int i = 0; i < SPINS && atomic_load(&pool.number) == *seen; i++) pause_a_little();
    pthread_mutex_lock(&pool.lock);
    while (atomic_load(&pool.number) == *seen) pthread_cond_wait(&pool.posted, &pool.lock);
    *seen = atomic_load(&pool.number);
    const job j = pool.job;
    pthread_mutex_unlock(&pool.lock);
    return j;
}

static void *serve(void *argument) {
    const int thread = *(const int *)argument;
    unsigned seen = pool.jobs_before[thread];
    for (;;) {
        const job j = wait_for_job(&seen);
        if (thread >= j.threads) continue;
        do_share(&j, thread);
        if (atomic_fetch_sub(&pool.running, 1) > 1) continue;
        pthread_mutex_lock(&pool.lock);
        pthread_cond_signal(&pool.finished);
        pthread_mutex_unlock(&pool.lock);
    }
    return NULL;
}

/* ---- starting */
static void forget_threads(void) { /* in the child of a fork, which has one thread only */
    pthread_mutex_init(&pool.busy, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.posted, NULL);
    pthread_cond_init(&pool.finished, NULL);
    pool.started = 0;
    atomic_store(&pool.number, 0);
    inside = 0;
    reserved = 0;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_threads); }

static void bind(pthread_t thread, int place) { /* to the place-th of the cores the process may use */
    cpu_set_t one;
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &pool.allowed) && place-- == 0) CPU_SET(cpu, &one);
    if (CPU_COUNT(&one)) (void)pthread_setaffinity_np(thread, sizeof one, &one);
}

/* Starts threads until there are `threads` in all, or as many as the system allows; returns that number. Called with `busy` held. */
static int start(int threads) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sigset_t all, before;
    if (pool.started >= threads - 1) return threads;
    pthread_once(&once, watch_forks);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the host's handlers run on the host's threads */
    while (pool.started < threads - 1) {
        const int next = pool.started + 1;
        pool.index[next] = next;
        pool.jobs_before[next] = atomic_load(&pool.number);
        if (pthread_create(&pool.threads[next], NULL, serve, &pool.index[next]) != 0) break;
        pthread_detach(pool.threads[next]);
        if (atomic_load(&pool.bound)) bind(pool.threads[next], next);
        pool.started = next;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool.started + 1;
}

static void post(const job *j) {
    pthread_mutex_lock(&pool.lock);
    pool.job = *j;
    atomic_store(&pool.running, j->threads - 1);
    for (int t = 0; t < j->threads; t++) atomic_store(&pool.shares[t].next, share_of(j, (size_t)t));
    atomic_fetch_add(&pool.number, 1);
    pthread_cond_broadcast(&pool.posted);
    pthread_mutex_unlock(&pool.lock);
}

static void wait_for_threads(void) {
    for (int i = 0; i < SPINS && atomic_load(&pool.running); i++) pause_a_little();
    pthread_mutex_lock(&pool.lock);
    while (atomic_load(&pool.running)) pthread_cond_wait(&pool.finished, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

void rein_parallel(int threads, size_t pieces, rein_work *work, void *context) {
    job j = {work, context, pieces, threads};
    if ((size_t)threads > pieces) j.threads = pieces ? (int)pieces : 1;
    if (j.threads <= 1 || inside || (!reserved && pthread_mutex_trylock(&pool.busy) != 0)) {
        const int outer = inside;
        j.threads = 1;
        do_share(&j, 0);
        inside = outer;
        return;
    }
    j.threads = start(j.threads);
    if (j.threads > 1) post(&j);
    do_share(&j, 0);
    if (j.threads > 1) wait_for_threads();
    if (!reserved) pthread_mutex_unlock(&pool.busy);
}

void rein_threads_reserve(void) {
    if (inside || reserved) return;
    pthread_mutex_lock(&pool.busy);
    reserved = 1;
}

void rein_threads_release(void) {
    if (!reserved) return;
    reserved = 0;
    pthread_mutex_unlock(&pool.busy);
}

int rein_cores(void) {
    cpu_set_t allowed;
    if (atomic_load(&pool.bound)) allowed = pool.allowed;
    else if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
    return CPU_COUNT(&allowed) < REIN_MAX_THREADS ? CPU_COUNT(&allowed) : REIN_MAX_THREADS;
}

void rein_bind_threads(void) {
    pthread_mutex_lock(&pool.busy);
    if (!atomic_load(&pool.bound) && sched_getaffinity(0, sizeof pool.allowed, &pool.allowed) == 0) {
        atomic_store(&pool.bound, 1);
        bind(pthread_self(), 0);
        for (int t = 1; t <= pool.started; t++) bind(pool.threads[t], t);
    }
    pthread_mutex_unlock(&pool.busy);
}
