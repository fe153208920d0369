/* score.c - `rein score`: the log-probability of every token of given texts, from the forward pass of training.
 *
 * Each line is scored and printed at once. A wrong line ends the command; the lines before it are printed, and nothing of itself. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "input.h"
#include "json_in.h"
#include "policy.h"
#include "terminal.h"
#include "values.h"

static const char WHERE[] = "score";

typedef struct scoring {
    cli_opened opened;
    rein_policy policy;
    rein_activations *activations;
    int entropy;
} scoring;

/* Tokens; those from `first` on are scored. */
typedef struct sequence {
    rein_ids ids;
    size_t first;
    uint8_t *wanted;              /* [ids.count] */
    float *log_probs, *entropies; /* [ids.count] */
} sequence;

static void sequence_free(sequence *s) {
    rein_ids_free(&s->ids);
    free(s->wanted);
    free(s->log_probs);
    free(s->entropies);
}

/* --------------------------------------------------------------------------------------------------------------------- scoring */

static rein_status score(sequence *s, const scoring *c, rein_error *err) {
    const size_t n = s->ids.count, offsets[] = {0, n};
    const long long most = c->opened.info.max_positions;
    size_t wanted = 0;
    if (n > (size_t)most) return rein_fail(err, REIN_EINVAL, "there are %zu tokens: the model has %lld positions", n, most);
    s->wanted = calloc(n, sizeof *s->wanted);
    s->log_probs = calloc(n, sizeof *s->log_probs);
    s->entropies = calloc(n, sizeof *s->entropies);
    if (!s->wanted || !s->log_probs || !s->entropies) return rein_fail(err, REIN_ENOMEM, "out of memory");
    for (size_t i = s->first ? s->first : 1; i < n; i++) s->wanted[i] = 1, wanted++;
    const rein_tokens tokens = {.n = 1, .offsets = offsets, .ids = s->ids.data, .wanted = s->wanted};
    if (!wanted) return REIN_OK;
    return rein_forward(s->log_probs, c->entropy ? s->entropies : NULL, c->activations, &c->policy, &tokens, NULL, err);
}

/* A token without a log-probability has null. */
static void json_scored(rein_text *out, const char *name, const float *values, const sequence *s) {
    rein_json_put_name(out, name);
    rein_text_put(out, "[");
    for (size_t i = 0; i < s->ids.count; i++) {
        if (i) rein_text_put(out, ", ");
        if (s->wanted[i]) rein_json_put_float(out, values[i]);
        else rein_text_put(out, "null");
    }
    rein_text_put(out, "]");
}

static void json_tokens(rein_text *out, const rein_tokenizer *tokenizer, const rein_ids *ids) {
    rein_json_put_name(out, "tokens");
    rein_text_put(out, "[");
    for (size_t i = 0; i < ids->count; i++) {
        if (i) rein_text_put(out, ", ");
        cli_json_token(out, tokenizer, ids->data[i]);
    }
    rein_text_put(out, "]");
}

/* Without a scored token the mean is null. */
static void write_result(rein_text *out, const scoring *c, const sequence *s) {
    double sum = 0;
    size_t scored = 0;
    for (size_t i = 0; i < s->ids.count; i++) {
        if (s->wanted[i]) sum += (double)s->log_probs[i], scored++;
    }
    const double mean = scored ? sum / (double)scored : NAN;
    rein_text_put(out, "{");
    cli_json_ids(out, "ids", s->ids.data, s->ids.count);
    if (c->opened.tokenizer) json_tokens(out, c->opened.tokenizer, &s->ids);
    json_scored(out, "logprobs", s->log_probs, s);
    if (c->entropy) json_scored(out, "entropies", s->entropies, s);
    rein_json_put_field(out, "sum", sum);
    rein_json_put_field(out, "mean", mean);
    rein_json_put_field(out, "perplexity", exp(-mean));
    rein_text_put(out, "}\n");
}

static rein_status score_and_write(rein_text *out, sequence *s, const scoring *c, rein_error *err) {
    const rein_status status = score(s, c, err);
    if (!status) write_result(out, c, s);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------- lines of JSON */

static void add_text(sequence *s, cli_in *in, const scoring *c, const char *name, int part) {
    rein_error err = {0};
    const char *text = rein_fields_string(&in->fields, name);
    if (text && !c->opened.tokenizer)
        rein_fields_fail(&in->fields, REIN_EINVAL, name, -1, "is a text, and the model has no tokenizer.json: give token ids");
    else if (text && cli_opened_encode(&s->ids, &c->opened, text, strlen(text), part, &err))
        rein_fields_fail(&in->fields, err.code, name, -1, ": %s", err.message);
}

static void add_ids(sequence *s, cli_in *in, const scoring *c, const char *name) {
    const long long vocabulary = c->opened.info.vocabulary;
    cli_axis axis = {0};
    const int64_t *ids = cli_in_lengths(in, name, &axis);
    for (size_t i = 0; ids && i < axis.n && !cli_in_status(in); i++) {
        if (ids[i] >= vocabulary)
            rein_fields_fail(&in->fields, REIN_EINVAL, name, (int64_t)i, "is %lld: the model's tokens are 0 to %lld",
                             (long long)ids[i], vocabulary - 1);
        else in->fields.status = rein_ids_append(&s->ids, (int32_t)ids[i], in->fields.err);
    }
}

static void need_first(const sequence *s, cli_in *in, const char *name) {
    if (!s->ids.count) rein_fields_fail(&in->fields, REIN_EINVAL, name, -1, "has no token: one or more is needed");
}

/* A line is one sequence, or a prompt and its response, each as text or as ids. */
static void read_sequence(sequence *s, cli_in *in, const scoring *c) {
    static const char forms[] = "text, ids, prompt with response, or prompt_ids with response_ids";
    const int ids = cli_in_has(in, "prompt_ids") || cli_in_has(in, "response_ids");
    const int texts = cli_in_has(in, "prompt") || cli_in_has(in, "response");
    const int whole = cli_in_has(in, "ids"), text = !ids && cli_in_has(in, "text"); /* generate prints text and response_ids */
    const int n = ids + texts + whole + text;
    if (!cli_in_status(in) && n != 1) {
        rein_fail(in->fields.err, REIN_EINVAL, "%s is needed: %s", n ? "only one" : "one", forms);
        in->fields.status = rein_fail_in(in->fields.err, REIN_EINVAL, "%s", in->fields.file);
    } else if (whole) add_ids(s, in, c, "ids"), need_first(s, in, "ids");
    else if (text) add_text(s, in, c, "text", 0), need_first(s, in, "text");
    else if (ids) {
        add_ids(s, in, c, "prompt_ids"), need_first(s, in, "prompt_ids");
        s->first = s->ids.count;
        add_ids(s, in, c, "response_ids");
    } else {
        add_text(s, in, c, "prompt", 0), need_first(s, in, "prompt");
        s->first = s->ids.count;
        add_text(s, in, c, "response", 1);
    }
}

/* The lines of rein generate --json can be given as they are. */
static const char *const KEYS[] = {"text",   "ids",      "prompt", "response",         "prompt_ids",   "response_ids",
                                   "sample", "logprobs", "finish", "sampler_logprobs", "top_logprobs", NULL};

static int score_line(const scoring *c, const char *line, size_t length, size_t number) {
    rein_text out = {0};
    rein_error err = {0};
    sequence s = {0};
    cli_in in;
    char place[40];
    snprintf(place, sizeof place, "line %zu", number);
    if (line[strspn(line, " \t")] != '{')
        return cli_say(CLI_WRONG, WHERE, "line %zu is not a JSON object such as {\"text\": \"...\"}: --file FILE scores plain text",
                       number);
    rein_status bad = cli_in_open(&in, line, length, place, KEYS, &err);
    if (!bad) read_sequence(&s, &in, c), bad = cli_in_status(&in);
    if (!bad && (bad = score_and_write(&out, &s, c, &err))) rein_fail_in(&err, bad, "%s", place);
    cli_in_close(&in);
    sequence_free(&s);
    return cli_print_result(&out, bad ? cli_say_error(WHERE, &err) : CLI_DONE);
}

static int score_lines(const scoring *c, FILE *file, const char *name) {
    char *line = NULL;
    size_t capacity = 0, number = 0;
    ssize_t length = 0;
    int status = CLI_DONE;
    errno = 0;
    while (!status && (length = getline(&line, &capacity, file)) >= 0) {
        number++;
        if (length && line[length - 1] == '\n') length--;
        if (strspn(line, " \t\r\n") < (size_t)length) status = score_line(c, line, (size_t)length, number);
    }
    if (!status && !feof(file)) status = cli_say(CLI_WRONG, WHERE, "cannot read %s: %s", name, strerror(errno));
    free(line);
    return status;
}

static int score_file(const scoring *c, const char *path) {
    if (!path || !strcmp(path, "-")) {
        if (isatty(STDIN_FILENO)) cli_say(0, WHERE, "reading lines of JSON from the terminal; Ctrl-D ends the input");
        return score_lines(c, stdin, "standard input");
    }
    FILE *file = fopen(path, "rb");
    if (!file) return cli_say(CLI_WRONG, WHERE, "cannot open \"%s\": %s", path, strerror(errno));
    const int status = score_lines(c, file, path);
    fclose(file);
    return status;
}

/* ----------------------------------------------------------------------------------------------------- one text, on the command line */

static int encode_text(sequence *s, const scoring *c, const char *text, size_t length) {
    rein_error err = {0};
    if (!c->opened.tokenizer)
        return cli_say(CLI_WRONG, WHERE, "%s has no tokenizer.json: a text must be given as --ids", c->opened.directory);
    if (cli_opened_encode(&s->ids, &c->opened, text, length, 0, &err)) return cli_say_error(WHERE, &err);
    if (s->ids.count) return CLI_DONE;
    return cli_say(CLI_WRONG, WHERE, "the text is empty, and the tokenizer adds no begin token: there is nothing to score");
}

static int score_one(const scoring *c, const cli_args *args, rein_ids *ids, const rein_text *text) {
    rein_text out = {0};
    rein_error err = {0};
    sequence s = {.ids = *ids};
    *ids = (rein_ids){0};
    int status = cli_option_value(args, "ids") ? cli_opened_check_ids(&c->opened, &s.ids, "--ids", WHERE)
                                               : encode_text(&s, c, text->data, text->length);
    if (!status && score_and_write(&out, &s, c, &err)) status = cli_say_error(WHERE, &err);
    sequence_free(&s);
    return cli_print_result(&out, status);
}

/* ----------------------------------------------------------------------------------------------------------------- the command */

static int is_temperature(double x) { return x >= 1e-3 && x <= 1e3; }

static int check_sources(const cli_args *args) {
    const char *const names[] = {"text", "file", "ids"};
    const char *given = args->n_words ? "a file of JSON lines" : NULL;
    for (size_t i = 0; i < 3; i++) {
        if (!cli_option_value(args, names[i])) continue;
        if (given)
            return cli_say_option(WHERE, names[i], "and %s%s are both given: one is needed", *given == 'a' ? "" : "--", given);
        given = names[i];
    }
    return CLI_DONE;
}

/* What the command line gives, read before the model is opened. */
static int read_source(rein_ids *ids, rein_text *text, const cli_args *args) {
    const char *file = cli_option_value(args, "file"), *given = cli_option_value(args, "text");
    int status = check_sources(args);
    if (!status) status = cli_value_ids(ids, args, "ids");
    if (!status && file) status = cli_read_text(text, file, "a text", WHERE);
    if (!status && given) rein_text_put(text, given);
    return !status && text->failed ? cli_say_no_memory(WHERE) : status;
}

int cli_run_score(const cli_args *args) {
    scoring c = {.policy.temperature = 1, .entropy = cli_option_value(args, "entropy") != NULL};
    rein_ids ids = {0};
    rein_text text = {0};
    rein_error err = {0};
    const int lines = !cli_option_value(args, "text") && !cli_option_value(args, "file") && !cli_option_value(args, "ids");
    int status = cli_opened_read(&c.opened, args);
    if (!status) status = cli_value_number(&c.policy.temperature, args, "temperature", is_temperature, "from 0.001 to 1000");
    if (!status) status = read_source(&ids, &text, args);
    if (!status) status = cli_opened_open(&c.opened, args);
    c.policy.model = c.opened.model;
    c.policy.adapter = c.opened.adapter;
    if (!status && rein_activations_open(&c.activations, &c.opened.exec, &err)) status = cli_say_error(WHERE, &err);
    if (!status) status = lines ? score_file(&c, args->n_words ? args->words[0] : NULL) : score_one(&c, args, &ids, &text);
    rein_activations_close(c.activations);
    rein_ids_free(&ids);
    rein_text_free(&text);
    cli_opened_close(&c.opened);
    return status;
}
