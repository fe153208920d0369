/* server.h - the policy as a service: OpenAI's API over HTTP (docs/serve.md).
 *
 * Boundary: an open model in, a listening server out. It sees only the public headers of the library. One thread samples, one trains, a few
 * do HTTP, with queues between them. */
#ifndef SERVER_H
#define SERVER_H

#include "rein/train.h"

typedef struct server server;

typedef struct server_adapter {
    const char *name, *directory;
} server_adapter;

/* Everything is borrowed, and must outlive the server. */
typedef struct server_options {
    const rein_model *model;
    const rein_tokenizer *tokenizer;
    const char *model_name; /* the name of the model's directory; it and "base" are the model without an adapter */
    const char *name;       /* of the newest policy */
    const char *run;        /* the directory of a run, whose steps are NAME@STEP; NULL: none */
    int64_t step;           /* of the newest policy; -1: the model itself, without a run */
    int full;               /* all weights of the run train: its newest policy is another model */
    rein_session *session;  /* of that run, begun: clients can train it. NULL: they cannot. Nothing else may use it meanwhile */
    const char *no_session; /* why there is none; NULL: it was not asked for */
    double temperature;     /* of requests that name none */
    const server_adapter *adapters; /* [n_adapters] served under their own names */
    size_t n_adapters;
    const char *host;               /* a numeric address, or localhost */
    uint16_t port;                  /* 0: any free one */
    const char *api_key;            /* NULL: none is asked for */
    const char *tls_cert, *tls_key; /* the texts of the PEM files; NULL: no TLS */
    size_t max_concurrent;          /* samples decoded at a time */
    size_t queue;                   /* requests that may wait besides */
    size_t max_body;                /* bytes of a request */
    size_t prefix_cache;            /* bytes */
    size_t adapter_cache;           /* adapters of steps that are open at a time */
    const char *adapter_root;       /* adapters may be loaded from below it; NULL: none may */
    int always_logprobs, tokens_as_ids, retokenize;
    rein_exec exec;
    void (*log)(void *context, const char *line); /* notes and failures, one line each; any thread calls it. NULL: none */
    void *context;
} server_options;

/* Starts to listen. The caller closes *server; it is NULL on failure: REIN_EINVAL (an option), REIN_EIO (the address is taken or not
 * allowed), REIN_ENOMEM. */
rein_status server_open(server **opened, const server_options *options, rein_error *err);

/* The port that it listens on. */
uint16_t server_port(const server *s);

/* Refuses new requests, waits at most `grace` seconds for those under way, and cuts the rest. */
void server_drain(server *s, double grace);

/* Stops and frees it. NULL is fine. */
void server_close(server *s);

#endif
