/* train_jobs.h - the jobs of the thread that trains, for training.c and training_art.c. */
#ifndef SERVER_TRAIN_JOBS_H
#define SERVER_TRAIN_JOBS_H

#include <pthread.h>
#include <stdatomic.h>

#include "parts.h"

typedef enum train_status { TRAIN_QUEUED, TRAIN_RUNNING, TRAIN_DONE, TRAIN_FAILED, TRAIN_CANCELLED } train_status;

/* What the thread does next. */
typedef struct work {
    struct work *next;
    void (*run)(training *t, struct work *w);
} work;

typedef struct train_job {
    work work; /* first: a train_job is its work */
    struct train_job *older;
    char id[48];
    train_request request; /* empty once the job has ended */
    int64_t step;          /* that it makes */
    atomic_bool cancelled;
    /* Below the lock. */
    train_status status;
    double progress;
    bool nothing_to_train;
    rein_text metrics; /* a JSON object; empty: none yet */
    char error[REIN_MESSAGE_SIZE];
} train_job;

struct training {
    server *s;
    rein_session *session;
    rein_settings *settings; /* that jobs start from */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake, idle;
    work *queue, **queue_end;
    train_job *jobs; /* the newest first */
    train_job *running;
    size_t waiting; /* train jobs in the queue */
    bool stopping;
    job *listeners;
    double told; /* when the last event of progress went out */
    uint64_t serial;
};

static inline bool train_has_ended(const train_job *j) { return j->status >= TRAIN_DONE; }

/* The job with this id; NULL: none. Below the lock. */
train_job *training_find(training *t, const char *id);

#endif
