/* generate.c - `rein generate`: responses to one prompt. A single response is printed while it is sampled. Several are printed in the order
 * of their numbers, each when it and those before it are complete, so --samples 8 begins with the output of --samples 4. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy.h"
#include "progress.h"
#include "prompt.h"
#include "rein/rollout.h"
#include "terminal.h"
#include "values.h"

enum { MAX_SAMPLES = 65536 };

static const char WHERE[] = "generate";

/* A response while it is sampled; all but the text are entries of JSON arrays. */
typedef struct response {
    rein_text ids, log_probs, sampler_log_probs, top, text;
    size_t tokens;
    rein_finish finish;
} response;

typedef struct generation {
    const cli_opened *opened;
    const cli_prompt *prompt;
    rein_request request;
    double temperature;
    int json, stream, truncates;
    response *responses; /* [request.samples] */
    size_t shown;        /* printed responses */
    size_t tokens;
    double seconds;
} generation;

/* --------------------------------------------------------------------------------------------------------------------- options */

static int is_temperature(double x) { return x == 0 || (x >= 1e-3 && x <= 1e3); }
static int is_top_p(double x) { return x > 0 && x <= 1; }
static int is_min_p(double x) { return x >= 0 && x < 1; }

/* Options that choose among tokens have no effect on a greedy sampler. */
static int check_greedy(const cli_args *args) {
    static const char *const idle[] = {"top-k", "top-p", "min-p"};
    const char *greedy = cli_option_value(args, "greedy") ? "--greedy" : "--temperature 0";
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) {
        if (cli_option_value(args, idle[i]))
            return cli_say_option(WHERE, idle[i], "has no effect with %s, which takes the most probable token", greedy);
    }
    return CLI_DONE;
}

static int read_sampler(generation *g, const cli_args *args) {
    rein_sampling *s = &g->request.sampling;
    uint64_t top_k = 0;
    int status;
    g->temperature = NAN; /* that of the policy */
    if ((status =
             cli_value_number(&g->temperature, args, "temperature", is_temperature, "between 0.001 and 1000, or 0 for --greedy")) ||
        (status = cli_value_whole(&top_k, args, "top-k", 0, INT32_MAX)) ||
        (status = cli_value_number(&s->top_p, args, "top-p", is_top_p, "above 0 and at most 1")) ||
        (status = cli_value_number(&s->min_p, args, "min-p", is_min_p, "from 0 to below 1")) ||
        (status = cli_value_whole(&s->seed, args, "seed", 0, UINT64_MAX)))
        return status;
    s->top_k = (int64_t)top_k;
    s->greedy = g->temperature == 0 || cli_option_value(args, "greedy");
    if (g->temperature == 0) g->temperature = 1;
    g->truncates = s->top_k > 0 || s->top_p < 1 || s->min_p > 0;
    return s->greedy ? check_greedy(args) : CLI_DONE;
}

static int read_options(generation *g, const cli_args *args) {
    rein_sampling *s = &g->request.sampling;
    uint64_t samples = 1, max_tokens = 256, top = 0;
    *s = rein_sampling_plain();
    s->seed = 1;
    int status = read_sampler(g, args);
    if (status || (status = cli_value_whole(&samples, args, "samples", 1, MAX_SAMPLES)) ||
        (status = cli_value_whole(&max_tokens, args, "max-tokens", 1, INT32_MAX)) ||
        (status = cli_value_whole(&top, args, "top-log-probs", 1, INT32_MAX)))
        return status;
    g->request.samples = samples;
    g->json = cli_option_value(args, "json") != NULL;
    g->stream = samples == 1 && !g->json;
    s->max_tokens = max_tokens;
    s->top_log_probs = top;
    s->stops = args->repeated;
    s->n_stops = args->n_repeated;
    for (size_t i = 0; i < s->n_stops; i++) {
        if (!*s->stops[i]) return cli_say_option(WHERE, "stop", "is \"\": a text of one character or more is needed");
    }
    if (top && !g->json) return cli_say_option(WHERE, "top-log-probs", "needs --json: plain output does not show them");
    return CLI_DONE;
}

/* Checks what depends on the model. */
static int fit_to_model(generation *g) {
    const rein_sampling *s = &g->request.sampling;
    const rein_model_info *info = &g->opened->info;
    if (s->n_stops && !g->opened->tokenizer)
        return cli_say(CLI_WRONG, WHERE, "%s has no tokenizer.json, and --stop is a text: --max-tokens can end a response",
                       g->opened->directory);
    if (s->top_log_probs > (size_t)info->vocabulary)
        return cli_say_option(WHERE, "top-log-probs", "is %zu: the model has %lld tokens", s->top_log_probs,
                              (long long)info->vocabulary);
    if (g->prompt->ids.count < (size_t)info->max_positions) return CLI_DONE;
    return cli_say(CLI_WRONG, WHERE, "the prompt has %zu tokens: the model has %lld positions, and a response needs one more",
                   g->prompt->ids.count, (long long)info->max_positions);
}

/* ---------------------------------------------------------------------------------------------------------------------- output */

static void take_top(response *r, const rein_sampled *event, const rein_tokenizer *tokenizer) {
    rein_text_put(&r->top, r->tokens ? ", [" : "[");
    for (size_t i = 0; i < event->n_top; i++) {
        rein_text_format(&r->top, "%s{\"id\": %ld, \"logprob\": ", i ? ", " : "", (long)event->top[i].id);
        rein_json_put_float(&r->top, event->top[i].log_prob);
        if (tokenizer) rein_json_put_name(&r->top, "token"), cli_json_token(&r->top, tokenizer, event->top[i].id);
        rein_text_put(&r->top, "}");
    }
    rein_text_put(&r->top, "]");
}

static void take_event(generation *g, const rein_sampled *event) {
    response *r = &g->responses[event->sample];
    const char *between = !r->tokens ? "" : g->json ? ", " : ","; /* without blanks, so that it can be pasted after --prompt-ids */
    rein_text_format(&r->ids, "%s%ld", between, (long)event->id);
    rein_text_put_bytes(&r->text, event->text, event->length);
    if (g->json) {
        rein_text_put(&r->log_probs, between);
        rein_json_put_float(&r->log_probs, event->log_prob);
        rein_text_put(&r->sampler_log_probs, between);
        rein_json_put_float(&r->sampler_log_probs, event->sampler_log_prob);
        if (event->n_top) take_top(r, event, g->opened->tokenizer);
    }
    r->tokens++;
    r->finish = event->finish;
}

static const char *finish_name(rein_finish finish) {
    static const char *const names[] = {"", "end", "stop", "length", "context"};
    return names[finish];
}

static void json_entries(rein_text *out, const char *name, const rein_text *entries) {
    rein_json_put_name(out, name);
    rein_text_format(out, "[%s]", entries->data ? entries->data : "");
}

static void write_json(rein_text *out, const generation *g, size_t i) {
    const response *r = &g->responses[i];
    rein_text_format(out, "{\"sample\": %zu", i);
    cli_json_ids(out, "prompt_ids", g->prompt->ids.data, g->prompt->ids.count);
    json_entries(out, "response_ids", &r->ids);
    json_entries(out, "logprobs", &r->log_probs);
    if (g->truncates) json_entries(out, "sampler_logprobs", &r->sampler_log_probs);
    if (g->request.sampling.top_log_probs) json_entries(out, "top_logprobs", &r->top);
    if (g->opened->tokenizer)
        rein_json_put_name(out, "text"), rein_json_put_bytes(out, r->text.data ? r->text.data : "", r->text.length);
    rein_json_put_name(out, "finish");
    rein_json_put_string(out, finish_name(r->finish));
    rein_text_put(out, "}\n");
}

static void free_response(response *r) {
    rein_text_free(&r->ids);
    rein_text_free(&r->log_probs);
    rein_text_free(&r->sampler_log_probs);
    rein_text_free(&r->top);
    rein_text_free(&r->text);
}

static int print_response(generation *g, size_t i) {
    response *r = &g->responses[i];
    const rein_text *body = g->opened->tokenizer ? &r->text : &r->ids;
    rein_text out = {0};
    if (g->json) write_json(&out, g, i);
    else {
        cli_say(0, WHERE, "sample %zu: %zu tokens, %s", i, r->tokens, finish_name(r->finish));
        rein_text_put_bytes(&out, body->data, body->length);
        rein_text_put(&out, "\n");
    }
    out.failed |= r->ids.failed | r->log_probs.failed | r->sampler_log_probs.failed | r->top.failed | r->text.failed;
    free_response(r);
    return cli_print(&out);
}

/* The new part of a single response. */
static int stream_event(const generation *g, const rein_sampled *event) {
    rein_text out = {0};
    if (g->opened->tokenizer) rein_text_put_bytes(&out, event->text, event->length);
    else rein_text_format(&out, "%s%ld", event->position ? "," : "", (long)event->id);
    if (event->finish) rein_text_put(&out, "\n");
    return cli_print(&out);
}

static int take_events(generation *g, const rein_sampled *events, size_t n) {
    int status = CLI_DONE;
    g->tokens += n;
    for (size_t i = 0; i < n && !status; i++) {
        if (g->stream) {
            g->responses[0].finish = events[i].finish;
            status = stream_event(g, &events[i]);
        } else take_event(g, &events[i]);
    }
    while (!status && !g->stream && g->shown < g->request.samples && g->responses[g->shown].finish)
        status = print_response(g, g->shown++);
    return status;
}

/* Only for a terminal. */
static void say_speed(const generation *g) {
    static const char *const ends[] = {"", "", "", ", cut at --max-tokens", ", cut at the end of the context"};
    if (!isatty(STDERR_FILENO)) return;
    cli_say(0, WHERE, "%zu tokens in %.2f s, %.1f tokens/s%s", g->tokens, g->seconds, (double)g->tokens / g->seconds,
            g->stream ? ends[g->responses[0].finish] : "");
}

/* ------------------------------------------------------------------------------------------------------------------ generation */

static int run(generation *g, rein_generator *generator) {
    const rein_sampled *events;
    rein_error err = {0};
    size_t n, number;
    int status = rein_generator_add(&number, generator, &g->request, &err) ? cli_say_error(WHERE, &err) : CLI_DONE;
    const double start = cli_now();
    while (!status && rein_generator_unfinished(generator)) {
        if (rein_generator_step(&events, &n, generator, &err) || rein_generator_failed(&number, generator, &err)) {
            if (g->stream && g->tokens) putchar('\n');
            status = cli_say_error(WHERE, &err);
        } else status = take_events(g, events, n);
    }
    g->seconds = cli_now() - start;
    if (!status) say_speed(g);
    return status;
}

static int generate(generation *g, const cli_args *args) {
    rein_policy policy = {g->opened->model, g->opened->adapter, g->temperature};
    const rein_generator_options options = {.exec = g->opened->exec};
    int32_t end_ids[REIN_MAX_END_IDS + 1];
    rein_sampling *s = &g->request.sampling;
    rein_generator *generator;
    rein_error err = {0};
    int status = fit_to_model(g);
    if (status) return status;
    if (isnan(g->temperature)) policy.temperature = g->opened->files.temperature;
    memcpy(end_ids, g->opened->info.end_ids, sizeof g->opened->info.end_ids);
    s->n_end_ids = g->opened->info.n_end_ids;
    if (g->prompt->turn_end >= 0) end_ids[s->n_end_ids++] = g->prompt->turn_end;
    if (cli_option_value(args, "ignore-end")) s->n_end_ids = 0;
    s->end_ids = end_ids;
    g->request.prompt = g->prompt->ids.data;
    g->request.n_prompt = g->prompt->ids.count;
    g->responses = calloc(g->request.samples, sizeof *g->responses);
    if (!g->responses) return cli_say_no_memory(WHERE);
    if (rein_generator_open(&generator, &policy, g->opened->tokenizer, &options, &err)) return cli_say_error(WHERE, &err);
    status = run(g, generator);
    rein_generator_close(generator);
    return status;
}

int cli_run_generate(const cli_args *args) {
    cli_opened opened = {0};
    cli_prompt prompt = {0};
    generation g = {.opened = &opened, .prompt = &prompt};
    int status = cli_opened_read(&opened, args);
    if (!status) status = read_options(&g, args);
    if (!status) status = cli_prompt_read(&prompt, args);
    if (!status) status = cli_opened_open(&opened, args);
    if (!status) status = cli_prompt_encode(&prompt, &opened);
    if (!status) status = generate(&g, args);
    for (size_t i = 0; g.responses && i < g.request.samples; i++) free_response(&g.responses[i]);
    free(g.responses);
    cli_prompt_free(&prompt);
    cli_opened_close(&opened);
    return status;
}
