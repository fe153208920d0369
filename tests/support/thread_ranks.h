/* thread_ranks.h - ranks that are threads of one process: a transport over shared memory, for tests without MPI. */
#ifndef REIN_TESTS_THREAD_RANKS_H
#define REIN_TESTS_THREAD_RANKS_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "rein/ranks.h"

enum { MOST_RANKS = 16 };

/* What the ranks of one job share. */
typedef struct thread_job {
    size_t size;
    pthread_barrier_t barrier;
    const void *from[MOST_RANKS];
    const size_t *from_sizes[MOST_RANKS];
    void *user; /* of the test */
} thread_job;

typedef struct thread_rank {
    thread_job *job;
    size_t rank;
    void (*work)(rein_ranks *ranks, void *user);
    pthread_t thread;
    /* exchanges that have begun */
    struct {
        void *to;
        const void *from;
        size_t to_sizes[MOST_RANKS], from_sizes[MOST_RANKS];
    } begun[2];
    size_t n_begun, n_ended;
} thread_rank;

static inline void thread_wait(thread_rank *r) { pthread_barrier_wait(&r->job->barrier); }

static inline rein_status thread_broadcast(void *context, void *bytes, size_t n, size_t from, rein_error *err) {
    thread_rank *r = context;
    (void)err;
    r->job->from[r->rank] = bytes;
    thread_wait(r);
    if (r->rank != from) memcpy(bytes, r->job->from[from], n);
    thread_wait(r);
    return REIN_OK;
}

static inline rein_status thread_gather(void *context, void *to, const void *from, const size_t *sizes, rein_error *err) {
    thread_rank *r = context;
    char *at = to;
    (void)err;
    r->job->from[r->rank] = from;
    thread_wait(r);
    for (size_t k = 0; k < r->job->size; at += sizes[k++])
        if (sizes[k]) memcpy(at, r->job->from[k], sizes[k]);
    thread_wait(r);
    return REIN_OK;
}

static inline rein_status thread_exchange(void *context, void *to, const size_t *to_sizes, const void *from,
                                          const size_t *from_sizes, rein_error *err) {
    thread_rank *r = context;
    char *at = to;
    rein_status status = REIN_OK;
    r->job->from[r->rank] = from, r->job->from_sizes[r->rank] = from_sizes;
    thread_wait(r);
    for (size_t k = 0; k < r->job->size; at += to_sizes[k++]) {
        size_t before = 0;
        for (size_t i = 0; i < r->rank; i++) before += r->job->from_sizes[k][i];
        if (r->job->from_sizes[k][r->rank] != to_sizes[k]) status = rein_fail(err, REIN_EINVAL, "the sizes do not match");
        else if (to_sizes[k]) memcpy(at, (const char *)r->job->from[k] + before, to_sizes[k]);
    }
    thread_wait(r);
    return status;
}

/* Nothing travels before the end: an array that was changed in between would be sent as it is then. */
static inline rein_status thread_begin_exchange(void *context, void *to, const size_t *to_sizes, const void *from,
                                                const size_t *from_sizes, rein_error *err) {
    thread_rank *r = context;
    const size_t i = r->n_begun++ % 2;
    if (r->n_begun - r->n_ended > 2) return rein_fail(err, REIN_EINVAL, "three exchanges have begun and not ended");
    r->begun[i].to = to, r->begun[i].from = from;
    memcpy(r->begun[i].to_sizes, to_sizes, r->job->size * sizeof *to_sizes);
    memcpy(r->begun[i].from_sizes, from_sizes, r->job->size * sizeof *from_sizes);
    return REIN_OK;
}

static inline rein_status thread_end_exchange(void *context, rein_error *err) {
    thread_rank *r = context;
    const size_t i = r->n_ended++ % 2;
    return thread_exchange(context, r->begun[i].to, r->begun[i].to_sizes, r->begun[i].from, r->begun[i].from_sizes, err);
}

static inline void thread_abort(void *context, int status) {
    (void)context;
    (void)status;
    abort();
}

static inline void *thread_of_rank(void *context) {
    thread_rank *r = context;
    const rein_transport transport = {r,
                                      r->rank,
                                      r->job->size,
                                      thread_broadcast,
                                      thread_gather,
                                      thread_exchange,
                                      thread_abort,
                                      NULL,
                                      r->rank % 2 ? NULL : thread_begin_exchange, /* ranks may differ in this */
                                      r->rank % 2 ? NULL : thread_end_exchange};
    rein_ranks *ranks;
    if (rein_ranks_open(&ranks, &transport, NULL)) abort();
    r->work(ranks, r->job->user);
    rein_ranks_close(ranks);
    return NULL;
}

/* Runs work on `size` ranks; returns when all are done. */
static inline void run_ranks(size_t size, void (*work)(rein_ranks *ranks, void *user), void *user) {
    thread_job job = {.size = size, .user = user};
    thread_rank ranks[MOST_RANKS];
    pthread_barrier_init(&job.barrier, NULL, (unsigned)size);
    for (size_t r = 0; r < size; r++) {
        ranks[r] = (thread_rank){.job = &job, .rank = r, .work = work};
        if (pthread_create(&ranks[r].thread, NULL, thread_of_rank, &ranks[r])) abort();
    }
    for (size_t r = 0; r < size; r++) pthread_join(ranks[r].thread, NULL);
    pthread_barrier_destroy(&job.barrier);
}

#endif
