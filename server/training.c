/* training.c - the thread that trains: it takes jobs one after another, each a step of the run on groups that a client sent, and makes the
 * policy that comes out the newest one. Serving continues meanwhile with the policies that are on the disk.
 *
 * A step that fails or is cancelled leaves nothing behind: the session returns to its last checkpoint. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train_jobs.h"

enum { MOST_WAITING = 64, MOST_REMEMBERED = 256, MOST_UNREAD = 1 << 20 };
static const double SECONDS_BETWEEN_EVENTS = 0.05;

typedef struct deletion {
    work work;
    job *answer;
    int64_t *steps; /* [n] */
    size_t n;
    bool art;
} deletion;

/* ----------------------------------------------------------------------------------------------------------------------- events */

static const char *const STATUSES[] = {"queued", "running", "done", "failed", "cancelled"};

/* Below the lock. */
static void put_job(rein_text *json, const train_job *j) {
    rein_text_put(json, "{\"id\": ");
    rein_json_put_string(json, j->id);
    rein_text_format(json, ", \"status\": \"%s\"", STATUSES[j->status]);
    rein_json_put_field(json, "progress", j->progress);
    rein_text_format(json, ", \"step\": %lld, \"nothing_to_train\": %s, \"metrics\": %s, \"error\": ", (long long)j->step,
                     j->nothing_to_train ? "true" : "false", j->metrics.length ? j->metrics.data : "null");
    if (*j->error) rein_json_put_string(json, j->error);
    else rein_text_put(json, "null");
    rein_text_put(json, "}");
}

static void put_event(rein_text *event, const train_job *j) {
    rein_text_put(event, "data: ");
    put_job(event, j);
    rein_text_put(event, "\n\n");
}

/* A client that does not read must not fill the memory. */
static bool reads(job *listener) {
    pthread_mutex_lock(&listener->lock);
    const bool fine = listener->out.length - listener->taken < MOST_UNREAD && !listener->out.failed;
    pthread_mutex_unlock(&listener->lock);
    return fine;
}

/* Takes a listener out of the list, and ends its stream. Below the lock. */
static void dismiss(job **at) {
    job *listener = *at;
    *at = listener->queued;
    job_send(listener, NULL, true);
    job_release(listener);
}

/* Tells all who listen. Below the lock. */
static void tell(training *t, const train_job *j) {
    rein_text event = {0};
    put_event(&event, j);
    t->told = server_now();
    for (job **at = &t->listeners; *at;) {
        job *listener = *at;
        const bool concerned = !*listener->listens || !strcmp(listener->listens, j->id);
        if (concerned && reads(listener)) job_send(listener, &event, false);
        if (!reads(listener) || (*listener->listens && concerned && train_has_ended(j))) dismiss(at);
        else at = &listener->queued;
    }
    rein_text_free(&event);
}

/* ------------------------------------------------------------------------------------------------------------------------- steps */

static void put_metrics(rein_text *json, const rein_session_report *report) {
    rein_text_put(json, "{");
    for (size_t i = 0; i < report->n; i++) rein_json_put_field(json, report->metrics[i].name, report->metrics[i].value);
    rein_text_put(json, "}");
}

static void set_status(training *t, train_job *j, train_status status, const char *error) {
    pthread_mutex_lock(&t->lock);
    j->status = status;
    if (status == TRAIN_DONE) j->progress = 1;
    snprintf(j->error, sizeof j->error, "%s", error ? error : "");
    if (train_has_ended(j)) train_request_free(&j->request);
    tell(t, j);
    pthread_mutex_unlock(&t->lock);
}

static int note_progress(void *context, double share) {
    training *t = context;
    train_job *j = t->running;
    pthread_mutex_lock(&t->lock);
    j->progress = share;
    if (server_now() - t->told > SECONDS_BETWEEN_EVENTS) tell(t, j);
    pthread_mutex_unlock(&t->lock);
    return atomic_load(&j->cancelled);
}

static rein_status make_step(rein_session_report *report, training *t, train_job *j, rein_error *err) {
    const rein_train_options options = {.seconds_sample = NAN,
                                        .learning_rates = j->request.learning_rates,
                                        .n_learning_rates = j->request.n_learning_rates,
                                        .keep_advantages = 1,
                                        .progress = note_progress,
                                        .context = t};
    rein_status status = rein_session_revert(t->session, err); /* a step before it may have failed, and so may reverting it */
    if (!status) status = rein_session_change(t->session, j->request.settings, err);
    if (!status) status = rein_session_train(report, t->session, &j->request.groups, &options, err);
    if (!status && atomic_load(&j->cancelled)) status = rein_fail(err, REIN_ECANCELLED, "the step was stopped");
    if (!status) status = rein_session_commit(report, t->session, &j->request.groups, NULL, 0, err);
    return status ? status : rein_session_save(t->session, err);
}

/* A step whose checkpoint is on the disk was made, even if something after it failed. */
static rein_status undo(training *t, train_job *j, rein_status status, rein_error *err) {
    rein_error why = {0};
    if (rein_session_revert(t->session, &why)) {
        server_log(t->s, "the run cannot be read after %s: %s", j->id, why.message);
        return status;
    }
    if (rein_session_step(t->session) < j->step) return status;
    server_log(t->s, "%s made its step, but: %s", j->id, err->message);
    return REIN_OK;
}

static void train(training *t, work *w) {
    train_job *j = (train_job *)w;
    rein_session_report report = {0};
    rein_error err = {0};
    rein_status status = REIN_OK;
    j->step = rein_session_step(t->session) + 1;
    set_status(t, j, TRAIN_RUNNING, NULL);
    status = make_step(&report, t, j, &err);
    if (status) status = undo(t, j, status, &err);
    if (!status) status = policies_publish(t->s->policies, j->step, &err);
    if (status) {
        set_status(t, j, status == REIN_ECANCELLED ? TRAIN_CANCELLED : TRAIN_FAILED,
                   status == REIN_ECANCELLED ? NULL : err.message);
        if (status != REIN_ECANCELLED) server_log(t->s, "%s: %s", j->id, err.message);
        return;
    }
    pthread_mutex_lock(&t->lock);
    if (report.n) put_metrics(&j->metrics, &report);
    j->nothing_to_train = report.nothing_to_train;
    pthread_mutex_unlock(&t->lock);
    set_status(t, j, TRAIN_DONE, NULL);
}

/* --------------------------------------------------------------------------------------------------------------------- deletions */

static void put_steps(rein_text *json, const char *name, const deletion *d, const rein_deletion *what, rein_deletion kind) {
    bool first = true;
    rein_json_put_name(json, name);
    rein_text_put(json, "[");
    for (size_t i = 0; i < d->n; i++)
        if (what[i] == kind) rein_text_format(json, "%s%lld", first ? "" : ", ", (long long)d->steps[i]), first = false;
    rein_text_put(json, "]");
}

static void put_deletion(rein_text *json, const deletion *d, const rein_deletion *what) {
    size_t deleted = 0;
    for (size_t i = 0; i < d->n; i++) deleted += what[i] == REIN_DELETED;
    rein_text_put(json, "{");
    if (d->art) rein_text_format(json, "\"deleted_count\": %zu", deleted);
    else put_steps(json, "deleted", d, what, REIN_DELETED);
    put_steps(json, "kept", d, what, REIN_DELETION_KEPT);
    put_steps(json, d->art ? "not_found_steps" : "not_found", d, what, REIN_DELETION_MISSING);
    rein_text_put(json, "}");
}

static void delete_steps(training *t, work *w) {
    deletion *d = (deletion *)w;
    rein_deletion *what = calloc(d->n + 1, sizeof *what);
    rein_error err = {0};
    rein_text json = {0};
    rein_status status = what ? rein_session_revert(t->session, &err) : rein_fail(&err, REIN_ENOMEM, "no memory for a list");
    if (!status) status = rein_session_delete(what, t->session, d->steps, d->n, &err);
    if (status) job_fail(d->answer, HTTP_FAILED, &err);
    else {
        put_deletion(&json, d, what);
        job_send(d->answer, &json, true);
    }
    rein_text_free(&json);
    free(what);
    job_release(d->answer);
    free(d->steps);
    free(d);
}

/* ------------------------------------------------------------------------------------------------------------------- the thread */

static void free_job(train_job *j) {
    train_request_free(&j->request);
    rein_text_free(&j->metrics);
    free(j);
}

/* Forgets the oldest jobs that have ended. Below the lock. */
static void forget_jobs(training *t) {
    size_t n = 0;
    for (train_job **at = &t->jobs; *at;) {
        train_job *j = *at;
        if (++n > MOST_REMEMBERED && train_has_ended(j)) *at = j->older, free_job(j);
        else at = &j->older;
    }
}

static void *run(void *context) {
    training *t = context;
    for (;;) {
        pthread_mutex_lock(&t->lock);
        t->running = NULL;
        pthread_cond_broadcast(&t->idle);
        while (!t->queue && !t->stopping) pthread_cond_wait(&t->wake, &t->lock);
        work *w = t->queue;
        if (!w) break;
        t->queue = w->next;
        if (!t->queue) t->queue_end = &t->queue;
        train_job *j = w->run == train ? (train_job *)w : NULL;
        if (j) t->waiting--, t->running = j;
        const bool skipped = j && (t->stopping || atomic_load(&j->cancelled));
        pthread_mutex_unlock(&t->lock);
        if (skipped) set_status(t, j, TRAIN_CANCELLED, NULL);
        else w->run(t, w);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* Below the lock. */
static void push(training *t, work *w) {
    w->next = NULL;
    *t->queue_end = w, t->queue_end = &w->next;
    pthread_cond_signal(&t->wake);
}

train_job *training_find(training *t, const char *id) {
    train_job *j = t->jobs;
    while (j && strcmp(j->id, id) != 0) j = j->older;
    return j;
}

int training_refuse(const server *s, rein_error *err) {
    const char *why = s->options.no_session;
    if (why) rein_fail(err, REIN_EINVAL, "this server does not train: %.400s", why);
    else rein_fail(err, REIN_EINVAL, "this server does not train: start it as rein serve RUN");
    return HTTP_BAD_REQUEST;
}

static int refuse(const server *s, rein_error *err) {
    if (!s->training) return training_refuse(s, err);
    if (s->training->stopping) {
        rein_fail(err, REIN_ESYSTEM, "the server is shutting down");
        return HTTP_STOPPING;
    }
    return 0;
}

/* The step that a job makes which comes after all others. Below the lock. */
static int64_t next_step(const training *t) {
    return (t->running ? t->running->step : policies_newest(t->s->policies)) + (int64_t)t->waiting + 1;
}

int64_t training_next_step(server *s) {
    pthread_mutex_lock(&s->training->lock);
    const int64_t step = next_step(s->training);
    pthread_mutex_unlock(&s->training->lock);
    return step;
}

int training_add(char id[48], int64_t *step, server *s, train_request *request, rein_error *err) {
    training *t = s->training;
    int status = refuse(s, err);
    train_job *j = status ? NULL : calloc(1, sizeof *j);
    if (!j) {
        train_request_free(request);
        if (!status) rein_fail(err, REIN_ENOMEM, "no memory for a job");
        return status ? status : HTTP_FAILED;
    }
    j->request = *request;
    j->work.run = train;
    *request = (train_request){0};
    pthread_mutex_lock(&t->lock);
    if (!(status = refuse(s, err)) && t->waiting >= MOST_WAITING) {
        status = HTTP_BUSY;
        rein_fail(err, REIN_ESYSTEM, "%d training jobs are waiting: try again later", MOST_WAITING);
    }
    if (!status) {
        snprintf(j->id, sizeof j->id, "train-%02x%02x%02x%02x-%llu", s->nonce[0], s->nonce[1], s->nonce[2], s->nonce[3],
                 (unsigned long long)++t->serial);
        j->step = next_step(t);
        snprintf(id, 48, "%s", j->id);
        *step = j->step;
        j->older = t->jobs, t->jobs = j;
        t->waiting++;
        forget_jobs(t);
        push(t, &j->work);
        tell(t, j);
    }
    pthread_mutex_unlock(&t->lock);
    if (status) free_job(j);
    return status;
}

bool training_put(rein_text *json, server *s, const char *id) {
    training *t = s->training;
    if (!t) return false;
    pthread_mutex_lock(&t->lock);
    const train_job *j = training_find(t, id);
    if (j) put_job(json, j);
    pthread_mutex_unlock(&t->lock);
    return j != NULL;
}

void training_put_all(rein_text *json, server *s, size_t most) {
    training *t = s->training;
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    for (const train_job *j = t->jobs; j && most; j = j->older, most--) {
        if (j != t->jobs) rein_text_put(json, ", ");
        put_job(json, j);
    }
    pthread_mutex_unlock(&t->lock);
}

bool training_cancel(server *s, const char *id) {
    training *t = s->training;
    if (!t) return false;
    pthread_mutex_lock(&t->lock);
    train_job *j = training_find(t, id);
    const bool can = j && !train_has_ended(j);
    if (can) atomic_store(&j->cancelled, true);
    pthread_mutex_unlock(&t->lock);
    return can;
}

bool training_listen(server *s, job *j) {
    training *t = s->training;
    rein_text event = {0};
    if (!t) return false;
    pthread_mutex_lock(&t->lock);
    const train_job *of = *j->listens ? training_find(t, j->listens) : t->running;
    const bool exists = of || !*j->listens, ended = *j->listens && of && train_has_ended(of);
    if (of) put_event(&event, of);
    else rein_text_put(&event, ": nothing trains now\n\n"); /* a comment: the stream begins */
    if (exists) job_send(j, &event, ended);
    if (exists && !ended) {
        job_hold(j);
        j->queued = t->listeners, t->listeners = j;
    }
    pthread_mutex_unlock(&t->lock);
    rein_text_free(&event);
    return exists;
}

void training_ignore(server *s, job *j) {
    training *t = s->training;
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    job **at = &t->listeners;
    while (*at && *at != j) at = &(*at)->queued;
    if (*at) dismiss(at);
    pthread_mutex_unlock(&t->lock);
}

int training_delete(server *s, job *j, int64_t *steps, size_t n, bool art, rein_error *err) {
    training *t = s->training;
    int status = refuse(s, err);
    deletion *d = status ? NULL : calloc(1, sizeof *d);
    if (!status && !d) status = HTTP_FAILED, rein_fail(err, REIN_ENOMEM, "no memory for a deletion");
    if (status) {
        free(steps);
        return status;
    }
    *d = (deletion){{NULL, delete_steps}, j, steps, n, art};
    job_hold(j);
    pthread_mutex_lock(&t->lock);
    push(t, &d->work);
    pthread_mutex_unlock(&t->lock);
    return 0;
}

const rein_settings *training_settings(const server *s) { return s->training ? s->training->settings : NULL; }

size_t training_unfinished(server *s) {
    training *t = s->training;
    if (!t) return 0;
    pthread_mutex_lock(&t->lock);
    const size_t n = t->waiting + (t->running != NULL);
    pthread_mutex_unlock(&t->lock);
    return n;
}

/* -------------------------------------------------------------------------------------------------------------- open and close */

rein_status training_open(server *s, rein_error *err) {
    rein_session *session = s->options.session;
    if (!session) return REIN_OK;
    training *t = s->training = calloc(1, sizeof *t);
    if (!t) return rein_fail(err, REIN_ENOMEM, "no memory for the server");
    t->s = s, t->session = session, t->queue_end = &t->queue;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_cond_init(&t->idle, NULL);
    rein_status status = rein_settings_copy(&t->settings, rein_session_settings(session), err);
    if (!status && pthread_create(&t->thread, NULL, run, t)) status = rein_fail(err, REIN_ESYSTEM, "no thread can be started");
    else if (!status) t->has_thread = true;
    return status;
}

void training_drain(server *s, double seconds) {
    training *t = s->training;
    struct timespec end;
    if (!t) return;
    clock_gettime(CLOCK_REALTIME, &end);
    if (seconds > 0) end.tv_sec += (time_t)seconds;
    pthread_mutex_lock(&t->lock);
    t->stopping = true;
    pthread_cond_signal(&t->wake);
    int late = 0;
    while (t->running && !late) late = pthread_cond_timedwait(&t->idle, &t->lock, &end);
    if (t->running) {
        server_log(s, "%s was cut: its step is not made", t->running->id);
        atomic_store(&t->running->cancelled, true);
    }
    while (t->listeners) dismiss(&t->listeners);
    pthread_mutex_unlock(&t->lock);
}

void training_close(server *s) {
    training *t = s->training;
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->stopping = true;
    if (t->running) atomic_store(&t->running->cancelled, true);
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    if (t->has_thread) pthread_join(t->thread, NULL);
    pthread_mutex_lock(&t->lock);
    while (t->listeners) dismiss(&t->listeners);
    pthread_mutex_unlock(&t->lock);
}

void training_free(server *s) {
    training *t = s->training;
    if (!t) return;
    for (train_job *j = t->jobs, *older; j; j = older) {
        older = j->older;
        free_job(j);
    }
    rein_settings_free(t->settings);
    pthread_cond_destroy(&t->wake);
    pthread_cond_destroy(&t->idle);
    pthread_mutex_destroy(&t->lock);
    free(t);
    s->training = NULL;
}
