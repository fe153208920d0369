/* server.c - opening, draining and closing; and the thread that watches the sockets of waiting clients. */
#define _GNU_SOURCE /* POLLRDHUP */
#include "server.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "parts.h"

enum { TURN_BYTES = 64 << 20, LAST_ANSWERS = 2 }; /* the second in seconds */

double server_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void server_log(server *s, const char *format, ...) {
    char line[REIN_MESSAGE_SIZE + 100];
    va_list list;
    if (!s->options.log) return;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    s->options.log(s->options.context, line);
}

static void wait_seconds(double seconds) {
    const struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&time, NULL);
}

/* A suspended connection does not notice that its client has gone, so its socket is asked. */
static void cancel_disconnected(server *s) {
    pthread_mutex_lock(&s->lock);
    for (job *j = s->jobs; j; j = j->next) {
        struct pollfd one = {.fd = j->fd, .events = POLLRDHUP};
        if (j->fd < 0 || poll(&one, 1, 0) <= 0 || !(one.revents & (POLLRDHUP | POLLHUP | POLLERR))) continue;
        atomic_store(&j->cancelled, true);
        if (j->kind == JOB_EVENTS) job_send(j, NULL, true); /* its connection wakes up, and ends */
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
}

static void *watch(void *context) {
    server *s = context;
    bool stopping = false;
    while (!stopping) {
        wait_seconds(0.02);
        cancel_disconnected(s);
        pthread_mutex_lock(&s->lock);
        stopping = s->stopping;
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

/* Bodies of training requests are large. One body and its answer always have room. */
static size_t text_bytes(const server_options *o) {
    const size_t share = rein_memory_available() / (o->session ? 4 : 8), least = 2 * o->max_body + (64 << 20);
    return share > least ? share : least;
}

static rein_status open_parts(server *s, rein_error *err) {
    rein_status status = mhd_load(err);
    if (!status) status = policies_open(&s->policies, &s->options, err);
    if (!status) status = prompts_open(&s->prompts, &s->options, err);
    if (!status && !s->options.retokenize && !(s->turns = turns_open(TURN_BYTES)))
        status = rein_fail(err, REIN_ENOMEM, "no memory for the server");
    /* a server that trains needs memory for that too */
    if (!status) status = rein_memory_open(&s->memory, rein_memory_available() / 4 * (s->options.session ? 2 : 3) + 1, err);
    if (!status) status = rein_memory_open(&s->texts, text_bytes(&s->options), err);
    if (!status) status = engine_open(s, err);
    if (!status) status = training_open(s, err);
    if (!status && pthread_create(&s->watcher, NULL, watch, s)) status = rein_fail(err, REIN_ESYSTEM, "no thread can be started");
    else if (!status) s->has_watcher = true;
    return status ? status : http_open(s, err);
}

rein_status server_open(server **opened, const server_options *options, rein_error *err) {
    server *s = *opened = calloc(1, sizeof *s);
    if (!s) return rein_fail(err, REIN_ENOMEM, "no memory for the server");
    s->options = *options;
    s->info = rein_model_describe(options->model);
    s->queue_end = &s->queue;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    if (getrandom(s->nonce, sizeof s->nonce, 0) != (ssize_t)sizeof s->nonce) memset(s->nonce, 0, sizeof s->nonce);
    const rein_status status = open_parts(s, err);
    if (status) server_close(s), *opened = NULL;
    return status;
}

uint16_t server_port(const server *s) { return s->port; }

/* Requests that are not answered in full: an answer that is computed may still wait for its client to read it. Streams of training events
 * have no end, and a deletion waits for the training thread: they count once they are done, or not at all. */
static size_t undelivered(server *s) {
    size_t n = 0;
    pthread_mutex_lock(&s->lock);
    for (job *j = s->jobs; j; j = j->next) {
        pthread_mutex_lock(&j->lock);
        n += job_samples(j) || (j->kind == JOB_ANSWER && j->done);
        pthread_mutex_unlock(&j->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

static size_t wait_for_delivery(server *s, double end) {
    size_t left;
    while ((left = undelivered(s)) && server_now() < end) wait_seconds(0.02);
    return left;
}

void server_drain(server *s, double grace) {
    const double end = server_now() + grace;
    atomic_store(&s->draining, true);
    wait_for_delivery(s, end);
    training_drain(s, end - server_now());
    const size_t left = wait_for_delivery(s, end);
    if (left) server_log(s, "%zu requests were cut after %.0f seconds", left, grace);
}

/* What was cut has an error for its client, which the daemon must have the time to send. */
void server_close(server *s) {
    if (!s) return;
    atomic_store(&s->draining, true);
    training_close(s);
    engine_close(s);
    page_close(s);
    wait_for_delivery(s, server_now() + LAST_ANSWERS);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_mutex_unlock(&s->lock);
    if (s->has_watcher) pthread_join(s->watcher, NULL);
    http_close(s);
    training_free(s);
    policies_close(s->policies);
    prompts_close(s->prompts);
    turns_close(s->turns);
    rein_memory_close(s->memory);
    rein_memory_close(s->texts);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
