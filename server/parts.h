/* parts.h - what the files of the server share. */
#ifndef SERVER_PARTS_H
#define SERVER_PARTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "mhd.h"
#include "rein/json.h"
#include "server.h"

enum {
    HTTP_OK = 200,
    HTTP_ACCEPTED = 202,
    HTTP_BAD_REQUEST = 400,
    HTTP_UNAUTHORIZED = 401,
    HTTP_FORBIDDEN = 403,
    HTTP_NOT_FOUND = 404,
    HTTP_NOT_ALLOWED = 405,
    HTTP_CONFLICT = 409,
    HTTP_TOO_LARGE = 413,
    HTTP_NOT_JSON = 415,
    HTTP_BUSY = 429,
    HTTP_FAILED = 500,
    HTTP_STOPPING = 503
};

/* ---- policies.c: names of policies, and the adapters behind them */
typedef struct policy policy;
typedef struct policies policies;

rein_status policies_open(policies **opened, const server_options *options, rein_error *err);
void policies_close(policies *p);

/* Finds a policy by the name a client gave, and opens its adapter if that is needed. The caller gives it back. REIN_END: there is none of
 * that name; err says why. Thread-safe, as is the rest. */
rein_status policies_find(policy **found, policies *p, const char *name, rein_error *err);
void policies_hold(policies *p, policy *found); /* once more */
void policies_give(policies *p, policy *found); /* NULL is fine */

const rein_model *policy_model(const policies *p, const policy *found);
const rein_adapter *policy_adapter(const policy *found); /* NULL: the model itself */
const char *policy_name(const policy *found);            /* NAME@STEP for a step */
int64_t policy_step(const policy *found);                /* -1: it has none */

/* Makes a step of the run the newest policy, and opens it. */
rein_status policies_publish(policies *p, int64_t step, rein_error *err);
int64_t policies_newest(policies *p); /* -1: without a run */

/* Registers the name ENTITY/PROJECT/NAME of ART's client; NULL: forgets it. Returns an HTTP status: another name is a conflict. */
int policies_register(policies *p, const char *art, rein_error *err);

/* 1 if a client named a policy as ART's does. */
bool policies_is_art(const char *name);

/* REIN_EINVAL, about `field`, unless the directory lies below --adapter-root. */
rein_status policies_allow_path(const policies *p, const char *field, const char *directory, rein_error *err);

/* The names that /v1/models lists. */
void policies_list(rein_text *json, policies *p);

/* As vLLM's two routes. REIN_END: there is no adapter of that name. */
rein_status policies_load(policies *p, const char *name, const char *directory, rein_error *err);
rein_status policies_unload(policies *p, const char *name, rein_error *err);

/* ---- turns.c: what was sampled for a rendered conversation, so that the next turn has the same ids */
typedef struct turns turns;
turns *turns_open(size_t max_bytes);
void turns_close(turns *t);

/* Remembers that the text, a rendered conversation up to the end of an answer, has these ids; they stand for its first `covered` bytes.
 * Without memory nothing is remembered. Thread-safe, as is turns_find. */
void turns_add(turns *t, const char *text, size_t length, size_t covered, const int32_t *ids, size_t n);

/* The longest remembered text that `rendered` begins with, and that ends where a content of a message does: appends its ids, and returns how
 * many bytes they cover; 0: there is none, or no memory. */
size_t turns_find(rein_ids *ids, turns *t, const rein_rendered *rendered);

/* ---- job.c: a request whose answer is computed by another thread */
typedef enum job_kind {
    JOB_CHAT,
    JOB_COMPLETION,
    JOB_ANSWER, /* one answer of the thread that trains */
    JOB_EVENTS  /* a stream of its events */
} job_kind;

/* What a chat was rendered from, for its next turn. */
typedef struct conversation {
    rein_text messages; /* as templates read them: a JSON array without its end */
    rein_json *inputs;  /* tools and variables; NULL: answers are not remembered */
    char date[32];
    rein_text text; /* that it was rendered to */
} conversation;
void conversation_free(conversation *c);

typedef struct choice {
    rein_ids ids;
    rein_text text;           /* all of it */
    rein_text entries;        /* of logprobs.content, or of logprobs.tokens in a completion */
    rein_text values, tops;   /* in a completion: of token_logprobs and top_logprobs */
    rein_text samplers;       /* and of sampler_logprobs */
    rein_text offsets;        /* and of text_offset */
    size_t offset;            /* characters so far */
    rein_stream *decoder;     /* counts them; or NULL */
    rein_text prompt_entries; /* of prompt_logprobs */
    size_t sent;              /* bytes of the text that went out in a stream */
    rein_finish finish;
    bool began; /* its first chunk went out */
} choice;

typedef struct job {
    server *s;
    atomic_int references;
    atomic_bool cancelled;
    struct job *queued;          /* the next in the engine's queue, and then of its jobs; of events: the next that listens */
    struct job *next, *previous; /* in the list of jobs with a connection */
    int fd;                      /* the client's socket */
    bool linked;                 /* in that list */

    /* What was asked for; not changed after it is queued. */
    job_kind kind;
    bool stream, include_usage, logprobs, tokens_as_ids, return_ids, echo, tools, prompt_logprobs, no_tokens, truncates;
    size_t top, samples, n_prompts, n_prompt_top;
    rein_ids *prompts;         /* [n_prompts] */
    rein_text *prompt_texts;   /* [n_prompts] of a completion with echo */
    conversation conversation; /* of a chat */
    size_t bytes;              /* of texts and ids, so far */
    size_t charged;            /* to the server's account of texts */
    policy *policy;
    double temperature;
    rein_sampling sampling;
    int32_t *end_ids;
    rein_text stop_texts; /* one after another, each ended by a NUL */
    const char **stops;
    char id[48];
    int64_t created;
    double arrived;

    /* Of events. */
    char listens[48]; /* the id of the training job; "": all */

    /* The computing thread's. */
    struct batch *batch;
    size_t first; /* number of its first request in the generator */
    size_t added; /* requests in the generator */
    size_t finished;
    choice *choices; /* [n_prompts·samples] */
    size_t prompt_tokens, completion_tokens, cached_tokens;
    bool started;
    rein_text chunk;

    /* Between the two, below the lock. */
    pthread_mutex_t lock;
    rein_text out; /* the answer; in a stream what was not sent yet */
    size_t taken;  /* bytes of it that were sent */
    int status;    /* of the answer; 0: it is not ready */
    bool done;
    struct MHD_Connection *suspended; /* waits for more */
} job;

/* ---- request.c: JSON to a job */
rein_status job_parse_chat(job *j, const rein_json *body, rein_error *err);
rein_status job_parse_completion(job *j, const rein_json *body, rein_error *err);
/* One line with the id of the request and what the client says about itself, if it does. */
void job_log(const job *j, const rein_json *body);

/* ---- prompt.c: messages to ids */
typedef struct prompts prompts;
rein_status prompts_open(prompts **opened, const server_options *options, rein_error *err);
void prompts_close(prompts *p);
/* Appends the ids of a conversation. `body` has messages, tools and chat_template_kwargs. The caller frees *kept, {0} before, whatever the
 * status. */
rein_status prompts_render(rein_ids *ids, conversation *kept, server *s, const rein_json *body, bool tools, bool generation,
                           rein_error *err);
/* Remembers the ids of a finished answer, for the next turn. */
void prompts_remember(server *s, job *j, const choice *c);

/* ---- job.c */
/* A job of one reference. NULL: no memory. */
job *job_new(server *s, job_kind kind);
void job_hold(job *j);
void job_release(job *j);
bool job_samples(const job *j);
/* Charges the job with all of its texts and ids, to which `unsent` bytes come. 0: the account has no room. */
bool job_charge(job *j, size_t unsent);
void job_cancel(job *j); /* any thread */
void job_fail(job *j, int status, const rein_error *err);
/* Bytes for the client; wakes its connection. */
void job_send(job *j, const rein_text *bytes, bool done);

/* ---- logprobs.c: log-probabilities in JSON */
/* Takes a token into the entries of its choice. */
void logprobs_take(const job *j, choice *c, const rein_sampled *token);
/* Takes the prompt's tokens: into the entries if the prompt is echoed, and into prompt_entries if they were asked for. */
void logprobs_take_prompt(const job *j, choice *c, const rein_ids *prompt, const rein_sampled *token);
/* The field "logprobs" of a choice, or of a chunk. */
void logprobs_put(rein_text *out, const job *j, const choice *c);
/* Empties the entries, once they went out in a chunk. */
void logprobs_clear(choice *c);

/* ---- answer.c: tokens to JSON */
bool answer_token(job *j, const rein_sampled *token); /* 0: there is no memory for it */
/* The message of a finished answer. Returns the number of its tool calls. */
size_t answer_put_message(rein_text *out, const job *j, const choice *c);
void answer_end(job *j);

/* ---- engine.c: the computing thread */
rein_status engine_open(server *s, rein_error *err);
void engine_close(server *s); /* what is under way is cancelled */
/* Puts a job into the queue: 0, or the HTTP status of a refusal, and err. The engine holds the job until it is done. */
int engine_add(server *s, job *j, rein_error *err);
void engine_wake(server *s);

/* ---- training.c, training_art.c: the thread that trains */
typedef struct training training;

rein_status training_open(server *s, rein_error *err); /* nothing happens without a session */
/* Takes no more jobs, cancels those that have not begun, and gives the one at work `seconds` to finish. */
void training_drain(server *s, double seconds);
/* Stops the thread; requests about jobs are still answered until it is freed. */
void training_close(server *s);
void training_free(server *s);
/* Says why the server does not train. Returns the HTTP status. */
int training_refuse(const server *s, rein_error *err);

/* A job that was asked for. Everything becomes the job's, whatever the status. */
typedef struct train_request {
    rein_groups groups;
    rein_settings *settings;
    double *learning_rates; /* [n_learning_rates] or NULL */
    size_t n_learning_rates;
} train_request;

/* Puts a job into the queue; answers with its id and its step. An HTTP status. */
int training_add(char id[48], int64_t *step, server *s, train_request *request, rein_error *err);

/* Writes a job as JSON: id, status, progress, step, metrics, error. 0: there is no job of this id. */
bool training_put(rein_text *json, server *s, const char *id);
/* The same as the list of events that ART's client expects, those after the event of id `after`; NULL: all. */
bool training_put_art(rein_text *json, server *s, const char *id, const char *after);
/* Writes jobs as a JSON list, the newest first, at most `most`; none without training. */
void training_put_all(rein_text *json, server *s, size_t most);
/* 0: there is no job of this id, or it has ended. */
bool training_cancel(server *s, const char *id);
/* Sends the events of a job to j, which holds its id; 0: there is no such job. */
bool training_listen(server *s, job *j);
void training_ignore(server *s, job *j);

/* Deletes checkpoints, as soon as no step is at work; the answer goes to j. steps [n] become the call's. An HTTP status. */
int training_delete(server *s, job *j, int64_t *steps, size_t n, bool art, rein_error *err);

/* The step that a job would make which is added now. Only of a server that trains. */
int64_t training_next_step(server *s);

/* The settings that a job starts from. */
const rein_settings *training_settings(const server *s);

/* Jobs queued or at work. */
size_t training_unfinished(server *s);

/* ---- train_request.c: JSON to a job. Options are those of the objective, the optimizer and the reference, by name. */
rein_status train_parse(train_request *request, server *s, const rein_json *body, const rein_json *options,
                        const char *const *others, rein_error *err);
void train_request_free(train_request *request);

/* ---- metrics.c */
enum { LATENCIES = 12 };
typedef struct latency {
    atomic_ullong buckets[LATENCIES + 1], microseconds;
} latency;
typedef struct metrics {
    atomic_ullong running, waiting, requests, refused, failed, cancelled, prompt_tokens, completion_tokens, cached_tokens;
    latency first_token, whole;
} metrics;
void metrics_latency(latency *l, double seconds);
void metrics_write(rein_text *out, server *s);

/* ---- routes.c */
typedef struct exchange exchange;
typedef struct route {
    const char *method, *path; /* a part "*" of a path is the argument */
    bool open;                 /* needs no key */
    /* Answers with a status and a text, or leaves a job in the exchange. */
    int (*answer)(exchange *e, const rein_json *body, rein_error *err);
} route;
enum { ARGUMENT = 100 };
const route *routes_find(char argument[ARGUMENT], const char *method, const char *path, bool *other_method);

/* The HTTP status of an error that the client caused, or the server. */
int routes_status(rein_status status);

/* ---- train_routes.c, art_routes.c: those that train; page_routes.c: those of the live page */
extern const route TRAIN_ROUTES[], ART_ROUTES[], PAGE_ROUTES[]; /* ended by {NULL} */

/* Waits for the threads that read the run. */
void page_close(server *s);

/* Writes a checkpoint as JSON: id, step, metrics. */
void checkpoints_put(rein_text *json, const server *s, int64_t step);
/* Deletes the steps that the body names; `art`: answers as ART's client expects it. An HTTP status. */
int checkpoints_delete(exchange *e, const rein_json *body, bool art, rein_error *err);

/* A request on a connection. */
struct exchange {
    server *s;
    const route *route;
    rein_text body, out;
    const char *type; /* of the answer's content; NULL: JSON */
    rein_text policy; /* the Content-Security-Policy of a page; else empty */
    char argument[ARGUMENT];
    job *job;
    struct MHD_Connection *connection;
    int refused;    /* status of a refusal that waits for the end of the body; 0: none */
    size_t dropped; /* bytes of a refused body */
    size_t charged; /* for the body, to the server's account of texts */
    bool queued;
    rein_error err;
};

/* ---- http.c */
/* A parameter of the address: "after" in ?after=3; NULL: it is not there. */
const char *http_parameter(const exchange *e, const char *name);
/* A step in the address; -1 if it is not there. REIN_EINVAL if it is anything else. */
rein_status http_step_parameter(int64_t *step, const exchange *e, const char *name, rein_error *err);
rein_status http_open(server *s, rein_error *err);
void http_close(server *s);
/* {"error": …} as OpenAI writes it. */
void http_put_error(rein_text *out, int status, const rein_error *err);

/* ---- server.c */
struct server {
    server_options options;
    rein_model_info info;
    struct MHD_Daemon *daemon;
    uint16_t port;
    policies *policies;
    prompts *prompts;
    turns *turns;
    training *training;  /* NULL: clients cannot train */
    rein_memory *memory; /* of keys and activations */
    rein_memory *texts;  /* of bodies, prompts and answers */
    metrics metrics;
    atomic_bool draining;
    atomic_int readings;    /* threads that read the run for the page */
    atomic_ullong serial;   /* of requests */
    unsigned char nonce[6]; /* so that the ids of two servers differ */

    pthread_t engine, watcher;
    bool has_engine, has_watcher;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;  /* there is work for the engine */
    bool stopping;
    job *queue, **queue_end; /* new jobs for the engine */
    size_t unfinished;       /* jobs in the queue or at work */
    job *jobs;               /* those with a connection, for the watcher */
};

double server_now(void);
void server_log(server *s, const char *format, ...) REIN_PRINTF(2, 3);

#endif
