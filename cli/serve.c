/* serve.c - `rein serve`: opens a policy, or a run to train, listens, and waits for SIGTERM or Ctrl-C. */
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "input.h"
#include "policy.h"
#include "server/server.h"
#include "terminal.h"
#include "training.h"
#include "values.h"

static const char WHERE[] = "serve";

typedef struct service {
    cli_training training; /* of a run that clients can train */
    cli_opened opened;     /* what is served otherwise; and base, if all weights of the run train */
    server_options options;
    server_adapter adapters[CLI_MAX_REPEATS];
    rein_text names; /* of adapters, one after another */
    rein_text key, cert, private_key;
    char why[REIN_MESSAGE_SIZE]; /* the run cannot be trained */
    char *model_name, *name;
    double grace;
    int json;
} service;

static volatile sig_atomic_t stop_signals;
static void note_signal(int signal) { (void)signal, stop_signals++; }

static void log_line(void *context, const char *line) {
    (void)context;
    cli_say(CLI_DONE, WHERE, "%s", line);
}

/* ---------------------------------------------------------------------------------------------------------------------- options */

static int is_grace(double x) { return x >= 0 && x <= 86400; }

/* "NAME=DIR", each time it is given. */
static int read_adapters(service *s, const cli_args *args) {
    for (size_t i = 0; i < args->n_repeated; i++) {
        const char *equals = strchr(args->repeated[i], '=');
        if (!equals || equals == args->repeated[i] || !equals[1])
            return cli_say_option(WHERE, "adapter", "is \"%s\": NAME=DIR is needed", args->repeated[i]);
        rein_text_put_bytes(&s->names, args->repeated[i], (size_t)(equals - args->repeated[i]));
        rein_text_put_bytes(&s->names, "", 1);
        s->adapters[i].directory = equals + 1;
    }
    if (s->names.failed) return cli_say_no_memory(WHERE);
    const char *at = s->names.data;
    for (size_t i = 0; i < args->n_repeated; i++) s->adapters[i].name = at, at += strlen(at) + 1;
    s->options.adapters = s->adapters, s->options.n_adapters = args->n_repeated;
    return CLI_DONE;
}

static int read_file(rein_text *text, const cli_args *args, const char *option) {
    const char *path = cli_option_value(args, option);
    return path ? cli_read_input(text, path, "a file", WHERE) : CLI_DONE;
}

/* From --api-key-file, or the variable REIN_API_KEY; so that the key is not in the list of processes. */
static int read_key(service *s, const cli_args *args) {
    const char *variable = getenv("REIN_API_KEY");
    const int status = read_file(&s->key, args, "api-key-file");
    if (status) return status;
    if (!cli_option_value(args, "api-key-file")) {
        if (variable && *variable) s->options.api_key = variable;
        return CLI_DONE;
    }
    while (s->key.length && strchr(" \t\r\n", s->key.data[s->key.length - 1])) s->key.data[--s->key.length] = 0;
    if (!s->key.length) return cli_say_option(WHERE, "api-key-file", "names a file without a key");
    s->options.api_key = s->key.data;
    return CLI_DONE;
}

static int read_tls(service *s, const cli_args *args) {
    if (!cli_option_value(args, "tls-cert") != !cli_option_value(args, "tls-key"))
        return cli_say_option(WHERE, cli_option_value(args, "tls-cert") ? "tls-cert" : "tls-key", "needs %s too",
                              cli_option_value(args, "tls-cert") ? "--tls-key" : "--tls-cert");
    int status = read_file(&s->cert, args, "tls-cert");
    if (!status) status = read_file(&s->private_key, args, "tls-key");
    if (cli_option_value(args, "tls-cert")) s->options.tls_cert = s->cert.data, s->options.tls_key = s->private_key.data;
    return status;
}

static int read_limits(service *s, const cli_args *args) {
    uint64_t port = 8000, concurrent = 64, queue = 256, body = args->n_words ? 256 : 16, prefix = 512, adapters = 8;
    int status;
    if ((status = cli_value_whole(&port, args, "port", 0, 65535)) ||
        (status = cli_value_whole(&concurrent, args, "max-concurrent", 1, 4096)) ||
        (status = cli_value_whole(&queue, args, "queue", 0, 1 << 20)) ||
        (status = cli_value_whole(&body, args, "max-body", 1, 1024)) ||
        (status = cli_value_whole(&prefix, args, "prefix-cache", 0, 1 << 20)) ||
        (status = cli_value_whole(&adapters, args, "adapter-cache", 1, 1024)) ||
        (status = cli_value_number(&s->grace, args, "grace", is_grace, "0 to 86400")))
        return status;
    s->options.port = (uint16_t)port, s->options.max_concurrent = concurrent, s->options.queue = queue;
    s->options.max_body = body << 20, s->options.prefix_cache = prefix << 20, s->options.adapter_cache = adapters;
    return CLI_DONE;
}

static int read_options(service *s, const cli_args *args) {
    server_options *o = &s->options;
    s->grace = 30;
    s->json = cli_option_value(args, "json") != NULL;
    o->host = cli_option_value(args, "host") ? cli_option_value(args, "host") : "127.0.0.1";
    o->adapter_root = cli_option_value(args, "adapter-root");
    o->always_logprobs = cli_option_value(args, "always-logprobs") != NULL;
    o->tokens_as_ids = cli_option_value(args, "tokens-as-ids") != NULL;
    o->retokenize = cli_option_value(args, "retokenize") != NULL;
    o->log = log_line;
    int status = read_limits(s, args);
    if (!status) status = read_adapters(s, args);
    if (!status) status = read_key(s, args);
    return status ? status : read_tls(s, args);
}

/* The last part of a path; the caller frees it. */
static char *last_part(const char *path) {
    char *whole = cli_absolute_path(path), *name = whole ? strdup(basename(whole)) : NULL;
    free(whole);
    return name;
}

static int read_names(service *s, const cli_args *args, const char *model, const char *run) {
    const char *name = cli_option_value(args, "name");
    server_options *o = &s->options;
    s->model_name = last_part(model);
    s->name = name ? strdup(name) : last_part(run ? run : model);
    if (!s->model_name || !s->name) return cli_say_no_memory(WHERE);
    if (!*s->name || strchr(s->name, '@')) return cli_say_option(WHERE, "name", "is \"%s\": a name without @ is needed", s->name);
    if (run && !strcmp(s->name, "base"))
        return cli_say_option(WHERE, "name", "is \"base\"%s: clients ask for the model without an adapter by it; choose another",
                              name ? "" : ", as the run's directory");
    o->model_name = s->model_name, o->name = s->name, o->run = run;
    if (o->tokenizer) return CLI_DONE;
    return cli_say(CLI_WRONG, WHERE, "%s has no tokenizer.json: clients send text", model);
}

/* ------------------------------------------------------------------------------------------------------------------- what is served */

static const char *setting(const cli_args *args, const char *name) {
    for (size_t i = 0; i < args->n_settings; i++)
        if (!strcmp(args->settings[i].name, name)) return args->settings[i].value;
    return NULL;
}

/* The model itself, where the policy found is one; else the model below the adapter or the run. */
static int open_base(service *s, const char *directory, const char *quantize) {
    rein_error err = {0};
    const rein_model_options how = {.exec = s->opened.exec, .quantize = quantize};
    if (rein_model_open(&s->opened.model, directory, &how, &err)) return cli_say_error(WHERE, &err);
    return CLI_DONE;
}

/* A model, or a run that is only read: RUN@STEP, or a run that another process writes. */
static int open_policy(service *s, const cli_args *args, const char *name) {
    const rein_policy_files *files = &s->opened.files;
    rein_settings *settings = NULL;
    rein_error err = {0};
    server_options *o = &s->options;
    const char *model;
    s->opened.name = name;
    if (rein_policy_find(&s->opened.files, name, &err)) return cli_say_error(WHERE, &err);
    if (*files->note) cli_say(0, WHERE, "note: %s", files->note);
    o->full = files->run && !files->adapter;
    int status = o->full ? cli_run_settings(&settings, files->run, WHERE) : CLI_DONE;
    model = settings ? rein_settings_text(settings, "model") : files->model;
    if (!status) status = open_base(s, model, files->run ? files->quantize : setting(args, "quantize"));
    if (!status) status = cli_tokenizer_open(&s->opened.tokenizer, model, WHERE);
    o->model = s->opened.model, o->tokenizer = s->opened.tokenizer, o->exec = s->opened.exec;
    o->step = files->run ? files->step : -1, o->temperature = files->temperature;
    if (!status) status = read_names(s, args, model, files->run);
    rein_settings_free(settings);
    return status;
}

/* A run to train. Its session has the model; if all weights train, base is opened besides. *read_only: another process writes it. */
static int open_run(service *s, const cli_args *args, int *read_only) {
    cli_training *t = &s->training;
    server_options *o = &s->options;
    rein_error err = {0};
    int status = cli_training_prepare(t);
    if (status) return status;
    if (rein_session_begin(t->session, &err)) {
        if (err.code != REIN_EIO || rein_session_is_new(t->session)) return cli_say_setting_error(args, &err);
        cli_say(0, WHERE, "note: %s: it is served as it is now, and cannot be trained", err.message);
        snprintf(s->why, sizeof s->why, "%s", err.message);
        s->options.no_session = s->why;
        *read_only = 1;
        return CLI_DONE;
    }
    cli_training_note(t, t->session);
    const rein_settings *settings = rein_session_settings(t->session);
    const rein_policy policy = rein_session_policy(t->session);
    const char *model = rein_settings_text(settings, "model");
    s->opened.exec = rein_settings_exec(settings);
    o->full = !policy.adapter;
    if (o->full) status = open_base(s, model, NULL);
    o->model = o->full ? s->opened.model : policy.model;
    o->tokenizer = t->tokenizer, o->exec = s->opened.exec;
    o->session = t->session, o->step = rein_session_step(t->session), o->temperature = policy.temperature;
    return status ? status : read_names(s, args, model, t->run);
}

static int is_setting_of_models(const char *name) {
    return !strcmp(name, "model") || !strcmp(name, "quantize") || !strcmp(name, "threads");
}

/* Settings of training have no effect without a run. */
static int check_no_settings(const cli_args *args) {
    static const char *const own[] = {"config", "accept-changed", "trust"};
    char option[80];
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (cli_option_value(args, own[i])) return cli_say_option(WHERE, own[i], "has no effect: there is no run to train");
    for (size_t i = 0; i < args->n_settings; i++) {
        if (is_setting_of_models(args->settings[i].name)) continue;
        snprintf(option, sizeof option, "%s", args->settings[i].name);
        for (char *c = option; *c; c++)
            if (*c == '_') *c = '-';
        return cli_say_option(WHERE, option, "has no effect: there is no run to train");
    }
    return CLI_DONE;
}

static int read_exec(service *s, const cli_args *args) {
    rein_settings *given = NULL;
    const int status = cli_args_settings(&given, args, 1);
    if (!status) s->opened.exec = rein_settings_exec(given);
    rein_settings_free(given);
    return status;
}

static int open_served(service *s, const cli_args *args) {
    const char *model = setting(args, "model"), *run = args->n_words ? args->words[0] : NULL;
    int64_t step = -1;
    int status, read_only = 0;
    if (!run && !model) return cli_say(CLI_WRONG, WHERE, "a policy is needed: RUN, or --model DIR");
    if (run) cli_value_run(&step, run);
    if (run && step < 0) {
        if ((status = cli_training_read(&s->training, args)) || (status = open_run(s, args, &read_only)) || !read_only)
            return status;
        cli_training_close(&s->training);
        return open_policy(s, args, run);
    }
    const char *own = model ? "model" : setting(args, "quantize") ? "quantize" : NULL;
    if (run && own) return cli_say_option(WHERE, own, "has no effect with RUN@STEP, which has its own");
    if ((status = check_no_settings(args)) || (status = read_exec(s, args))) return status;
    return open_policy(s, args, run ? run : model);
}

/* ---------------------------------------------------------------------------------------------------------------------- serving */

/* The first line on stdout. */
static int print_address(const service *s, const server *running) {
    const char *scheme = s->options.tls_cert ? "https" : "http", *open = strchr(s->options.host, ':') ? "[" : "",
               *close = *open ? "]" : "";
    const unsigned port = server_port(running);
    rein_text out = {0};
    if (s->json) {
        rein_text_format(&out, "{\"url\": \"%s://%s%s%s:%u\", \"port\": %u, \"model\": ", scheme, open, s->options.host, close,
                         port, port);
        rein_json_put_string(&out, s->name);
        rein_text_put(&out, "}\n");
    } else rein_text_format(&out, "%s://%s%s%s:%u\n", scheme, open, s->options.host, close, port);
    return cli_print(&out);
}

static void wait_for_signal(void) {
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM), sigaddset(&blocked, SIGINT), sigaddset(&blocked, SIGHUP);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    while (!stop_signals) sigsuspend(&before);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* A field of server_options is an option of the command line. */
static int say_refusal(const rein_error *err) {
    char option[sizeof err->field + 2], message[REIN_MESSAGE_SIZE];
    if (!*err->field) return cli_say_error(WHERE, err);
    snprintf(option, sizeof option, "--%s", err->field);
    for (char *at = option; *at; at++)
        if (*at == '_') *at = '-';
    rein_error spelled = *err;
    snprintf(spelled.message, sizeof spelled.message, "%s", rein_error_spelled(message, err, option));
    return cli_say_error(WHERE, &spelled);
}

static int serve(service *s) {
    rein_error err = {0};
    server *running;
    struct sigaction action = {.sa_handler = note_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL), sigaction(SIGINT, &action, NULL), sigaction(SIGHUP, &action, NULL);
    if (server_open(&running, &s->options, &err)) return say_refusal(&err);
    if (strcmp(s->options.host, "127.0.0.1") != 0 && strcmp(s->options.host, "localhost") != 0 &&
        strcmp(s->options.host, "::1") != 0 && !s->options.tls_cert)
        cli_say(0, WHERE, "note: without TLS (--tls-cert, --tls-key) others on the network can read the key and the texts");
    int status = print_address(s, running);
    if (!status) {
        cli_say(0, WHERE, "serving %s; Ctrl-C stops", s->name);
        wait_for_signal();
        cli_say(0, WHERE, "stopping: no new requests, %.0f s for those under way", s->grace);
        server_drain(running, s->grace);
    }
    server_close(running);
    return status;
}

int cli_run_serve(const cli_args *args) {
    service s = {.opened.files.step = -1};
    int status = read_options(&s, args);
    if (!status) status = open_served(&s, args);
    if (!status) status = serve(&s);
    cli_opened_close(&s.opened);
    cli_training_close(&s.training);
    rein_text_free(&s.names), rein_text_free(&s.key), rein_text_free(&s.cert), rein_text_free(&s.private_key);
    free(s.model_name), free(s.name);
    return status;
}
