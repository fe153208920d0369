/* job.c - a request that another thread computes: who holds it, and how its answer reaches the connection.
 *
 * The connection and the thread that computes hold a job each; the last one frees it. That thread appends to `out`; the connection takes from it, and is
 * suspended while there is nothing to take. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "parts.h"

job *job_new(server *s, job_kind kind) {
    job *j = calloc(1, sizeof *j);
    if (!j) return NULL;
    pthread_mutex_init(&j->lock, NULL);
    atomic_init(&j->references, 1);
    j->s = s, j->kind = kind, j->fd = -1;
    j->samples = 1;
    j->sampling = rein_sampling_plain();
    j->created = (int64_t)time(NULL);
    j->arrived = server_now();
    int n = snprintf(j->id, sizeof j->id, "%s-", kind == JOB_CHAT ? "chatcmpl" : "cmpl");
    for (size_t i = 0; i < sizeof s->nonce; i++) n += snprintf(j->id + n, sizeof j->id - (size_t)n, "%02x", s->nonce[i]);
    snprintf(j->id + n, sizeof j->id - (size_t)n, "%llx", atomic_fetch_add(&s->serial, 1));
    return j;
}

/* Texts are copied on their way to the client: entries, the answer, and what is left of it to send. */
bool job_charge(job *j, size_t unsent) {
    const size_t needed = 3 * j->bytes + unsent, unit = 64 << 10;
    if (needed <= j->charged) return true;
    const size_t more = (needed - j->charged + unit - 1) / unit * unit;
    if (!rein_memory_take(j->s->texts, more)) return false;
    j->charged += more;
    return true;
}

bool job_samples(const job *j) { return j->kind == JOB_CHAT || j->kind == JOB_COMPLETION; }

void job_hold(job *j) { atomic_fetch_add(&j->references, 1); }

static void free_choice(choice *c) {
    rein_ids_free(&c->ids);
    rein_text_free(&c->text);
    rein_text_free(&c->entries);
    rein_text_free(&c->values);
    rein_text_free(&c->tops);
    rein_text_free(&c->samplers);
    rein_text_free(&c->offsets);
    rein_text_free(&c->prompt_entries);
    rein_stream_close(c->decoder);
}

void job_release(job *j) {
    if (!j || atomic_fetch_sub(&j->references, 1) > 1) return;
    policies_give(j->s->policies, j->policy);
    rein_memory_give(j->s->texts, j->charged);
    for (size_t i = 0; j->choices && i < j->n_prompts * j->samples; i++) free_choice(&j->choices[i]);
    for (size_t i = 0; i < j->n_prompts; i++) {
        if (j->prompts) rein_ids_free(&j->prompts[i]);
        if (j->prompt_texts) rein_text_free(&j->prompt_texts[i]);
    }
    conversation_free(&j->conversation);
    free(j->choices);
    free(j->prompts);
    free(j->prompt_texts);
    free(j->end_ids);
    free(j->stops);
    rein_text_free(&j->stop_texts);
    rein_text_free(&j->chunk);
    rein_text_free(&j->out);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

void job_cancel(job *j) {
    atomic_store(&j->cancelled, true);
    engine_wake(j->s);
}

/* Below the job's lock. */
static void resume(job *j) {
    if (!j->suspended) return;
    struct MHD_Connection *connection = j->suspended;
    j->suspended = NULL;
    mhd.resume_connection(connection);
}

void job_send(job *j, const rein_text *bytes, bool done) {
    pthread_mutex_lock(&j->lock);
    if (bytes) rein_text_put_bytes(&j->out, bytes->data, bytes->length);
    if (bytes && bytes->failed) j->out.failed = 1;
    if (!j->status) j->status = HTTP_OK;
    if (done) j->done = true;
    if (done || j->stream) resume(j);
    pthread_mutex_unlock(&j->lock);
}

void job_fail(job *j, int status, const rein_error *err) {
    rein_text error = {0};
    http_put_error(&error, status, err);
    pthread_mutex_lock(&j->lock);
    if (j->stream && j->status) { /* the status went out: the error is the last event */
        rein_text_put(&j->out, "data: ");
        rein_text_put_bytes(&j->out, error.data, error.length);
        rein_text_put(&j->out, "\n\n");
    } else {
        rein_text_free(&j->out);
        j->out = error, error = (rein_text){0};
        j->status = status;
    }
    j->done = true;
    resume(j);
    pthread_mutex_unlock(&j->lock);
    rein_text_free(&error);
}
