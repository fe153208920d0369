/* engine.c - the computing thread: takes jobs from the queue, samples for all of them in one batch, and hands each its tokens. Where all
 * weights of a run train, its newest policy is another model than base, and has a batch of its own. */
#include <stdlib.h>
#include <string.h>

#include "parts.h"

/* Tokens of prompts in a step: all of them, and those for each prompt that waits while others are at work. A large piece is computed faster, a
 * small one lets the tokens of others flow. */
enum { ALONE = 512, BESIDE = 64 };

/* What is sampled together: requests of one model. */
typedef struct batch {
    const rein_model *model;
    policy *policy; /* keeps the model open; NULL: it is the server's */
    rein_generator *generator;
    size_t jobs;
    struct batch *next;
} batch;

typedef struct engine {
    server *s;
    batch *batches;   /* the last one is that of the server's model, and stays */
    job *jobs, **end; /* at work, in the order of their requests */
} engine;

void engine_wake(server *s) {
    pthread_mutex_lock(&s->lock);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

int engine_add(server *s, job *j, rein_error *err) {
    int refused = 0;
    pthread_mutex_lock(&s->lock);
    if (s->stopping || atomic_load(&s->draining)) refused = HTTP_STOPPING;
    else if (s->unfinished >= s->options.max_concurrent + s->options.queue) refused = HTTP_BUSY;
    else {
        job_hold(j);
        j->queued = NULL;
        *s->queue_end = j, s->queue_end = &j->queued;
        s->unfinished++;
        atomic_fetch_add(&s->metrics.requests, 1);
        atomic_fetch_add(&s->metrics.waiting, 1);
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    if (refused == HTTP_BUSY) {
        atomic_fetch_add(&s->metrics.refused, 1);
        rein_fail(err, REIN_ESYSTEM,
                  "%zu requests are at work or waiting, as many as --max-concurrent and --queue allow: try again later",
                  s->options.max_concurrent + s->options.queue);
    } else if (refused) rein_fail(err, REIN_ESYSTEM, "the server is shutting down");
    return refused;
}

/* ------------------------------------------------------------------------------------------------------------------------- jobs */

static void leave(engine *e, job *j) {
    server *s = e->s;
    job **at = &e->jobs;
    while (*at != j) at = &(*at)->queued;
    *at = j->queued;
    if (!*at) e->end = at;
    if (j->batch) j->batch->jobs--;
    for (size_t i = 0; i < j->added; i++) rein_generator_cancel(j->batch->generator, j->first + i);
    atomic_fetch_sub(j->started ? &s->metrics.running : &s->metrics.waiting, 1);
    metrics_latency(&s->metrics.whole, server_now() - j->arrived);
    pthread_mutex_lock(&s->lock);
    s->unfinished--;
    pthread_mutex_unlock(&s->lock);
    job_release(j);
}

static void fail(engine *e, job *j, int status, const rein_error *err) {
    atomic_fetch_add(&e->s->metrics.failed, 1);
    server_log(e->s, "%s: %s", j->id, err->message);
    job_fail(j, status, err);
    leave(e, j);
}

static rein_status open_batch(engine *e, const rein_model *model, rein_error *err) {
    const server_options *o = &e->s->options;
    const rein_policy policy = {model, NULL, 1};
    const size_t reserved = (o->max_concurrent + 7) / 8; /* so that a request of many samples does not lock others out */
    const rein_generator_options options = {.max_active = o->max_concurrent + reserved,
                                            .exec = o->exec,
                                            .max_prompt_tokens = ALONE,
                                            .memory = e->s->memory,
                                            .prefix_cache = o->prefix_cache};
    batch *b = calloc(1, sizeof *b);
    if (!b) return rein_fail(err, REIN_ENOMEM, "no memory for the server");
    rein_status status = rein_generator_open(&b->generator, &policy, o->tokenizer, &options, err);
    if (!status) status = rein_generator_take_turns(b->generator, reserved, BESIDE, err);
    if (status) {
        rein_generator_close(b->generator);
        free(b);
        return status;
    }
    b->model = model, b->next = e->batches, e->batches = b;
    return REIN_OK;
}

static void close_batch(engine *e, batch **at) {
    batch *b = *at;
    *at = b->next;
    rein_generator_close(b->generator);
    policies_give(e->s->policies, b->policy);
    free(b);
}

/* The batch of the job's model. A new one replaces those of older steps, once their requests have ended. */
static rein_status find_batch(engine *e, job *j, rein_error *err) {
    policies *p = e->s->policies;
    const rein_model *model = policy_model(p, j->policy);
    for (batch *b = e->batches; b && !j->batch; b = b->next)
        if (b->model == model) j->batch = b;
    if (!j->batch) {
        for (batch **at = &e->batches; *at;) {
            if ((*at)->policy && !(*at)->jobs) close_batch(e, at);
            else at = &(*at)->next;
        }
        const rein_status status = open_batch(e, model, err);
        if (status) return status;
        j->batch = e->batches;
        policies_hold(p, j->policy);
        j->batch->policy = j->policy;
    }
    j->batch->jobs++;
    return REIN_OK;
}

/* Gives the job's requests to the generator. */
static void begin(engine *e, job *j) {
    const rein_policy policy = {policy_model(e->s->policies, j->policy), policy_adapter(j->policy), j->temperature};
    rein_error err = {0};
    *e->end = j, j->queued = NULL, e->end = &j->queued;
    if (find_batch(e, j, &err)) {
        fail(e, j, HTTP_STOPPING, &err);
        return;
    }
    for (size_t i = 0; i < j->n_prompts; i++) {
        const rein_request request = {.prompt = j->prompts[i].data,
                                      .n_prompt = j->prompts[i].count,
                                      .samples = j->samples,
                                      .sampling = j->sampling,
                                      .policy = &policy,
                                      .prompt_log_probs = j->prompt_logprobs || (j->echo && j->logprobs)};
        size_t number;
        const rein_status status = rein_generator_add(&number, j->batch->generator, &request, &err);
        if (status) {
            fail(e, j, status == REIN_EINVAL || status == REIN_ENOMEM ? HTTP_BAD_REQUEST : HTTP_FAILED, &err);
            return;
        }
        if (!i) j->first = number;
        j->added++;
        j->prompt_tokens += j->prompts[i].count;
    }
}

static job *job_of(engine *e, const batch *b, size_t request) {
    job *j = e->jobs;
    while (j && (j->batch != b || request < j->first || request >= j->first + j->added)) j = j->queued;
    return j;
}

static void drop_cancelled(engine *e) {
    const rein_error err = {.code = REIN_ESYSTEM, .index = -1, .message = "the request was cancelled"};
    for (job *j = e->jobs, *next; j; j = next) {
        next = j->queued;
        if (!atomic_load(&j->cancelled)) continue;
        atomic_fetch_add(&e->s->metrics.cancelled, 1);
        job_fail(j, HTTP_STOPPING, &err);
        leave(e, j);
    }
}

/* ------------------------------------------------------------------------------------------------------------------------ tokens */

static void start(engine *e, job *j) {
    metrics *m = &e->s->metrics;
    j->started = true;
    atomic_fetch_sub(&m->waiting, 1);
    atomic_fetch_add(&m->running, 1);
    atomic_fetch_add(&m->prompt_tokens, j->prompt_tokens);
    metrics_latency(&m->first_token, server_now() - j->arrived);
}

static void take_token(engine *e, const batch *b, const rein_sampled *token) {
    metrics *m = &e->s->metrics;
    job *j = job_of(e, b, token->request);
    if (!j) return;
    if (!j->started) start(e, j);
    if (!token->position && !token->sample) atomic_fetch_add(&m->cached_tokens, token->cached_tokens);
    atomic_fetch_add(&m->completion_tokens, 1);
    if (!answer_token(j, token)) {
        rein_error err = {0};
        rein_fail(&err, REIN_ENOMEM, "no memory for the answer: answers that clients have not read use %zu bytes",
                  rein_memory_used(e->s->texts));
        fail(e, j, HTTP_STOPPING, &err);
        return;
    }
    j->finished += token->finish != REIN_FINISH_NONE;
    if (j->finished < j->n_prompts * j->samples) return;
    j->added = 0; /* the generator has forgotten its requests */
    answer_end(j);
    leave(e, j);
}

static void step(engine *e, batch *b) {
    const rein_sampled *tokens;
    rein_error err = {0};
    size_t n = 0, number;
    if (e->s->training) rein_threads_reserve(); /* sampling first: a step of training can wait between its kernels */
    rein_status status = rein_generator_step(&tokens, &n, b->generator, &err);
    if (e->s->training) rein_threads_release();
    if (status) { /* there is no memory at all: all who wait are told, and the server continues */
        while (e->jobs) fail(e, e->jobs, HTTP_STOPPING, &err);
        return;
    }
    for (size_t i = 0; i < n; i++) take_token(e, b, &tokens[i]);
    while ((status = rein_generator_failed(&number, b->generator, &err))) {
        job *j = job_of(e, b, number);
        if (j) fail(e, j, status == REIN_ENOMEM ? HTTP_STOPPING : HTTP_FAILED, &err);
    }
}

/* Waits for work. Returns the new jobs, and whether the server stops. */
static job *take_jobs(engine *e, bool *stopping) {
    server *s = e->s;
    pthread_mutex_lock(&s->lock);
    while (!s->queue && !e->jobs && !s->stopping) pthread_cond_wait(&s->wake, &s->lock);
    job *taken = s->queue;
    s->queue = NULL, s->queue_end = &s->queue;
    *stopping = s->stopping;
    pthread_mutex_unlock(&s->lock);
    return taken;
}

static void *compute(void *context) {
    engine *e = context;
    bool stopping = false;
    while (!stopping) {
        for (job *j = take_jobs(e, &stopping), *next; j; j = next) {
            next = j->queued;
            if (stopping) atomic_store(&j->cancelled, true);
            begin(e, j);
        }
        for (job *j = e->jobs; stopping && j; j = j->queued) atomic_store(&j->cancelled, true);
        drop_cancelled(e);
        for (batch *b = e->batches; b; b = b->next)
            if (rein_generator_unfinished(b->generator)) step(e, b);
    }
    while (e->batches) close_batch(e, &e->batches);
    free(e);
    return NULL;
}

rein_status engine_open(server *s, rein_error *err) {
    engine *e = calloc(1, sizeof *e);
    if (!e) return rein_fail(err, REIN_ENOMEM, "no memory for the server");
    e->s = s, e->end = &e->jobs;
    s->queue_end = &s->queue;
    rein_status status = open_batch(e, s->options.model, err);
    if (!status && pthread_create(&s->engine, NULL, compute, e)) {
        close_batch(e, &e->batches);
        status = rein_fail(err, REIN_ESYSTEM, "no thread can be started");
    }
    if (status) free(e);
    else s->has_engine = true;
    return status;
}

void engine_close(server *s) {
    if (!s->has_engine) return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->engine, NULL);
    s->has_engine = false;
}
