/* chat.c - `rein chat`: a conversation with a policy in the terminal, a local one or that of a server. Each turn sends or renders the whole
 * conversation, and prints the answer while it is sampled. Lines from a pipe work too: one message each. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy.h"
#include "prompt.h"
#include "rein/rollout.h"
#include "remote.h"
#include "terminal.h"
#include "values.h"

static const char WHERE[] = "chat";

typedef struct conversation {
    cli_opened opened;
    cli_remote remote; /* with --url; its host is NULL otherwise */
    rein_text model;   /* the name of its policy */
    rein_sampling sampling;
    double temperature;
    cli_prompt prompt; /* its messages are the conversation; their contents belong to it */
    size_t capacity;   /* of the messages */
    size_t first;      /* messages that /reset leaves: the system message, or none */
    uint64_t turn;     /* the address of the randomness of the next answer */
    int is_terminal;   /* a person is typing */
} conversation;

/* ------------------------------------------------------------------------------------------------------------------- interrupts */

static volatile sig_atomic_t interrupted;

static void note_interrupt(int signal) { (void)signal, interrupted = 1; }

/* Ctrl-C ends the answer that is being sampled; at the prompt it ends the conversation, because reading a line is not resumed. */
static void catch_interrupts(void) {
    struct sigaction action = {.sa_handler = note_interrupt};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

/* --------------------------------------------------------------------------------------------------------------------- messages */

static int add_message(conversation *c, const char *role, const char *text, size_t length) {
    cli_prompt *p = &c->prompt;
    if (p->n_messages == c->capacity) {
        const size_t capacity = c->capacity ? 2 * c->capacity : 16;
        rein_message *messages = realloc(p->messages, capacity * sizeof *messages);
        if (!messages) return cli_say_no_memory(WHERE);
        p->messages = messages, c->capacity = capacity;
    }
    char *copy = strndup(text, length);
    if (!copy) return cli_say_no_memory(WHERE);
    p->messages[p->n_messages++] = (rein_message){role, copy, length};
    return CLI_DONE;
}

static void drop_messages(conversation *c, size_t from) {
    while (c->prompt.n_messages > from) free((void *)(uintptr_t)c->prompt.messages[--c->prompt.n_messages].content);
}

/* ---------------------------------------------------------------------------------------------------------------------- answers */

static int put_event(rein_text *answer, const rein_sampled *event) {
    rein_text_put_bytes(answer, event->text, event->length);
    fwrite(event->text, 1, event->length, stdout);
    if (event->finish) putchar('\n');
    if (!fflush(stdout) && !ferror(stdout)) return CLI_DONE;
    return cli_say(CLI_FAILED, WHERE, "cannot write to stdout: %s", strerror(errno));
}

static int sample(rein_text *answer, rein_generator *generator, const rein_request *request) {
    const rein_sampled *events;
    rein_error err = {0};
    size_t n, number;
    int status = rein_generator_add(&number, generator, request, &err) ? cli_say_error(WHERE, &err) : CLI_DONE;
    interrupted = 0;
    while (!status && !interrupted && rein_generator_unfinished(generator)) {
        if (rein_generator_step(&events, &n, generator, &err) || rein_generator_failed(&number, generator, &err))
            status = cli_say_error(WHERE, &err);
        for (size_t i = 0; i < n && !status; i++) status = put_event(answer, &events[i]);
    }
    if (interrupted && !status) putchar('\n');
    interrupted = 0;
    return status;
}

/* ------------------------------------------------------------------------------------------------------------- answers of a server */

/* A stream of events: what is not a whole event yet, and the answer so far. */
typedef struct events {
    rein_text rest, *answer;
} events;

static int take_event(events *e, const char *line, size_t length) {
    rein_json *json = NULL;
    rein_error err = {0};
    if (length < 6 || strncmp(line, "data: ", 6) != 0 || !strncmp(line + 6, "[DONE]", 6)) return CLI_DONE;
    if (rein_json_parse(&json, line + 6, length - 6, "the server's answer", REIN_JSON_NEEDS_OBJECT, &err))
        return cli_say_error(WHERE, &err);
    const char *problem = rein_json_string(rein_json_get(rein_json_get(json, "error"), "message"));
    const rein_json *choice = rein_json_at(rein_json_get(json, "choices"), 0),
                    *content = rein_json_get(rein_json_get(choice, "delta"), "content");
    const rein_sampled part = {.text = rein_json_length(content) ? rein_json_string(content) : "",
                               .length = rein_json_length(content),
                               .finish = rein_json_string(rein_json_get(choice, "finish_reason")) ? REIN_FINISH_END_TOKEN
                                                                                                  : REIN_FINISH_NONE};
    const int status = problem ? cli_say(CLI_FAILED, WHERE, "the server: %s", problem) : put_event(e->answer, &part);
    rein_json_free(json);
    return status;
}

static int take_stream(void *context, const char *bytes, size_t n) {
    events *e = context;
    const char *end;
    size_t at = 0;
    int status = CLI_DONE;
    rein_text_put_bytes(&e->rest, bytes, n);
    if (e->rest.failed) return cli_say_no_memory(WHERE);
    while (!status && (end = memchr(e->rest.data + at, '\n', e->rest.length - at))) {
        const size_t length = (size_t)(end - e->rest.data) - at;
        status = take_event(e, e->rest.data + at, length);
        at += length + 1;
    }
    memmove(e->rest.data, e->rest.data + at, e->rest.length - at);
    e->rest.length -= at;
    return status;
}

/* A server has only the seed to tell turns apart, so a local chat does the same: then both give the same answers. */
static uint64_t seed_of_turn(const conversation *c) { return c->sampling.seed + c->turn; }

static void put_request(rein_text *body, const conversation *c, int base) {
    rein_text_put(body, "{\"model\": ");
    rein_json_put_string(body, base ? "base" : c->model.data);
    rein_text_format(body, ", \"stream\": true, \"max_tokens\": %zu, \"seed\": %" PRId64, c->sampling.max_tokens,
                     (int64_t)seed_of_turn(c));
    if (!isnan(c->temperature)) rein_json_put_field(body, "temperature", c->temperature);
    if (c->sampling.top_p < 1) rein_json_put_field(body, "top_p", c->sampling.top_p);
    if (c->prompt.no_thinking) rein_text_put(body, ", \"chat_template_kwargs\": {\"enable_thinking\": false}");
    rein_text_put(body, ", \"messages\": [");
    for (size_t i = 0; i < c->prompt.n_messages; i++) {
        const rein_message *m = &c->prompt.messages[i];
        rein_text_format(body, "%s{\"role\": \"%s\", \"content\": ", i ? ", " : "", m->role);
        rein_json_put_bytes(body, m->content, m->length);
        rein_text_put(body, "}");
    }
    rein_text_put(body, "]}");
}

static int reply_remote(rein_text *answer, conversation *c, int base) {
    rein_text body = {0};
    events e = {.answer = answer};
    put_request(&body, c, base);
    interrupted = 0;
    int status =
        body.failed ? cli_say_no_memory(WHERE) : cli_remote_ask(&c->remote, "/v1/chat/completions", &body, take_stream, &e, WHERE);
    if (interrupted && !status) putchar('\n');
    interrupted = 0;
    rein_text_free(&body);
    rein_text_free(&e.rest);
    return status;
}

static int take_text(void *context, const char *bytes, size_t n) {
    rein_text_put_bytes(context, bytes, n);
    return CLI_DONE;
}

/* The first policy that the server lists: its newest. */
static int find_model(conversation *c) {
    rein_text list = {0};
    rein_json *json = NULL;
    rein_error err = {0};
    int status = cli_remote_ask(&c->remote, "/v1/models", NULL, take_text, &list, WHERE);
    if (!status && rein_json_parse(&json, list.data ? list.data : "", list.length, "/v1/models", 0, &err))
        status = cli_say_error(WHERE, &err);
    const char *name = rein_json_string(rein_json_get(rein_json_at(rein_json_get(json, "data"), 0), "id"));
    if (!status && !name) status = cli_say(CLI_FAILED, WHERE, "the server lists no models");
    if (!status) rein_text_put(&c->model, name);
    rein_json_free(json);
    rein_text_free(&list);
    return status;
}

static int begin_remote(conversation *c, const cli_args *args) {
    static const char *const local[] = {"adapter", "quantize", "chat-format", "threads"};
    const char *system = cli_option_value(args, "system"), *key = getenv("REIN_API_KEY");
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        if (cli_option_value(args, local[i]))
            return cli_say_option(WHERE, local[i], "has no effect with --url: the server decides");
    int status = cli_remote_open(&c->remote, cli_option_value(args, "url"), WHERE);
    if (status) return status;
    c->remote.key = key && *key ? key : NULL, c->remote.stop = &interrupted;
    if (c->opened.name) rein_text_put(&c->model, c->opened.name);
    else status = find_model(c);
    if (!status && c->model.failed) status = cli_say_no_memory(WHERE);
    if (!status && system) status = add_message(c, "system", system, strlen(system));
    c->first = c->prompt.n_messages;
    c->is_terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    return status;
}

/* The answer to the conversation, printed and appended to `answer`. base: of the model without its adapter. */
static int reply(rein_text *answer, conversation *c, int base) {
    if (c->remote.host) return reply_remote(answer, c, base);
    const rein_policy policy = {c->opened.model, base ? NULL : c->opened.adapter, c->temperature};
    const rein_generator_options options = {.exec = c->opened.exec};
    int32_t end_ids[REIN_MAX_END_IDS + 1];
    rein_request request = {.samples = 1, .sampling = c->sampling};
    rein_generator *generator;
    rein_error err = {0};
    c->prompt.ids.count = 0;
    request.sampling.seed = seed_of_turn(c);
    int status = cli_prompt_encode(&c->prompt, &c->opened);
    if (status) return status;
    memcpy(end_ids, c->opened.info.end_ids, sizeof c->opened.info.end_ids);
    request.sampling.n_end_ids = c->opened.info.n_end_ids;
    if (c->prompt.turn_end >= 0) end_ids[request.sampling.n_end_ids++] = c->prompt.turn_end;
    request.sampling.end_ids = end_ids;
    request.prompt = c->prompt.ids.data, request.n_prompt = c->prompt.ids.count;
    if (rein_generator_open(&generator, &policy, c->opened.tokenizer, &options, &err)) return cli_say_error(WHERE, &err);
    status = sample(answer, generator, &request);
    rein_generator_close(generator);
    return status;
}

static int take_turn(conversation *c, const char *line, size_t length) {
    rein_text answer = {0};
    const size_t before = c->prompt.n_messages;
    int status = add_message(c, "user", line, length);
    if (!status) status = reply(&answer, c, 0);
    if (!status && answer.failed) status = cli_say_no_memory(WHERE);
    if (!status) status = add_message(c, "assistant", answer.data ? answer.data : "", answer.length);
    if (status) drop_messages(c, before); /* the message can be sent again */
    c->turn += !status;
    rein_text_free(&answer);
    return status;
}

/* What the model without its adapter answers to the last message. The conversation continues with the policy's own answer. */
static int answer_of_base(conversation *c) {
    rein_text answer = {0};
    const size_t n = c->prompt.n_messages;
    if (!c->opened.adapter && !c->remote.host) return cli_say(CLI_DONE, WHERE, "the policy is the base: it has no adapter");
    if (n < c->first + 2) return cli_say(CLI_DONE, WHERE, "there is no message to answer yet");
    c->prompt.n_messages = n - 1, c->turn--;
    const int status = reply(&answer, c, 1);
    c->prompt.n_messages = n, c->turn++;
    rein_text_free(&answer);
    return status;
}

/* --------------------------------------------------------------------------------------------------------------------- commands */

static int show_help(void) {
    return cli_say(CLI_DONE, WHERE, "/base: what the base answers to the last message; /reset: a new conversation; /exit: the end");
}

/* 1 if the line is a command; *status is its outcome, *ends whether the conversation is over. */
static int take_command(int *status, int *ends, conversation *c, const char *line) {
    if (*line != '/') return 0;
    if (!strcmp(line, "/exit")) *ends = 1;
    else if (!strcmp(line, "/reset")) drop_messages(c, c->first);
    else if (!strcmp(line, "/base")) *status = answer_of_base(c);
    else *status = show_help();
    return 1;
}

/* Reads lines until the end of the input, /exit or Ctrl-C. After an error a person may try again; a pipe ends. */
static int talk(conversation *c) {
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    int status = CLI_DONE, ends = 0;
    while (!ends && (!status || c->is_terminal)) {
        if (c->is_terminal) fputs("> ", stderr), fflush(stderr);
        if ((length = getline(&line, &capacity, stdin)) < 0) break;
        while (length && (line[length - 1] == '\n' || line[length - 1] == '\r')) line[--length] = 0;
        status = CLI_DONE;
        if (length && !take_command(&status, &ends, c, line)) status = take_turn(c, line, (size_t)length);
    }
    if (c->is_terminal && !ends) fputc('\n', stderr);
    free(line);
    return c->is_terminal ? CLI_DONE : status;
}

/* ------------------------------------------------------------------------------------------------------------------ the command */

static int is_temperature(double x) { return x == 0 || (x >= 1e-3 && x <= 1e3); }
static int is_top_p(double x) { return x > 0 && x <= 1; }

static int read_options(conversation *c, const cli_args *args) {
    uint64_t max_tokens = 1024;
    c->sampling = rein_sampling_plain();
    c->sampling.seed = 1;
    c->temperature = NAN; /* that of the policy */
    c->prompt = (cli_prompt){.where = WHERE,
                             .chat = 1,
                             .format = cli_option_value(args, "chat-format"),
                             .no_thinking = cli_option_value(args, "no-thinking") != NULL,
                             .turn_end = -1};
    int status = cli_value_number(&c->temperature, args, "temperature", is_temperature,
                                  "between 0.001 and 1000, or 0 for the most probable tokens");
    if (!status) status = cli_value_number(&c->sampling.top_p, args, "top-p", is_top_p, "above 0 and at most 1");
    if (!status) status = cli_value_whole(&max_tokens, args, "max-tokens", 1, INT32_MAX);
    if (!status) status = cli_value_whole(&c->sampling.seed, args, "seed", 0, UINT64_MAX);
    c->sampling.max_tokens = max_tokens;
    c->sampling.greedy = c->temperature == 0;
    if (c->sampling.greedy && cli_option_value(args, "top-p"))
        return cli_say_option(WHERE, "top-p", "has no effect with --temperature 0, which takes the most probable token");
    return status;
}

static int begin(conversation *c, const cli_args *args) {
    const char *system = cli_option_value(args, "system");
    int status = cli_value_exec(&c->opened.exec, args);
    if (!status) status = cli_opened_open(&c->opened, args);
    if (status) return status;
    if (!c->opened.tokenizer) return cli_say(CLI_WRONG, WHERE, "%s has no tokenizer.json: a chat needs one", c->opened.directory);
    if (isnan(c->temperature)) c->temperature = c->opened.files.temperature;
    if (c->sampling.greedy) c->temperature = 1;
    if (system) status = add_message(c, "system", system, strlen(system));
    c->first = c->prompt.n_messages;
    c->is_terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    if (!status && c->is_terminal && c->opened.files.run)
        cli_say(0, WHERE, "step %" PRId64 " of %s; /base shows the base's answer, /exit ends", c->opened.files.step,
                c->opened.files.run);
    return status;
}

int cli_run_chat(const cli_args *args) {
    conversation c = {.opened = {.name = args->n_words ? args->words[0] : NULL, .files.step = -1}};
    const char *url = cli_option_value(args, "url");
    if (!c.opened.name && !url) return cli_say(CLI_WRONG, WHERE, "a policy is needed: rein chat %s", args->command->usage);
    int status = read_options(&c, args);
    if (!status) status = url ? begin_remote(&c, args) : begin(&c, args);
    catch_interrupts();
    if (!status) status = talk(&c);
    drop_messages(&c, 0);
    cli_prompt_free(&c.prompt);
    cli_remote_free(&c.remote);
    rein_text_free(&c.model);
    cli_opened_close(&c.opened);
    return status;
}
