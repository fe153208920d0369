/* score.c - `rein score`: the log-probability of every token of given texts, from the forward pass of training.
 *
 * Each line is scored and printed at once. A wrong line ends the command; the lines before it are printed, and nothing of itself. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"
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

static void add_text(sequence *s, rein_fields *in, const scoring *c, const char *name, int part) {
    rein_error err = {0};
    const char *text = rein_fields_string(in, name);
    if (text && !c->opened.tokenizer)
        rein_fields_fail(in, REIN_EINVAL, name, -1, "is a text, and the model has no tokenizer.json: give token ids");
    else if (text && cli_opened_encode(&s->ids, &c->opened, text, strlen(text), part, &err))
        rein_fields_fail(in, err.code, name, -1, ": %s", err.message);
}

static void add_ids(sequence *s, rein_fields *in, const scoring *c, const char *name) {
    const long long last = c->opened.info.vocabulary - 1;
    const rein_json *array = rein_fields_array(in, name);
    if (!array) rein_fields_wrong(in, name, NULL, "an array of token ids is needed");
    for (size_t i = 0; i < rein_json_size(array) && !in->status; i++) {
        const rein_json *value = rein_json_at(array, i);
        const double id = rein_json_kind_of(value) == REIN_JSON_NUMBER ? rein_json_number(value) : -1;
        char shown[REIN_TEXT_SHOWN];
        if (id >= 0 && id <= (double)last && id == floor(id)) in->status = rein_ids_append(&s->ids, (int32_t)id, in->err);
        else
            rein_fields_fail(in, REIN_EINVAL, name, (int64_t)i, "is %s: the model's tokens are 0 to %lld",
                             rein_json_show(shown, value), last);
    }
}

/* The prompt, or a text without a response, has one token or more. */
static void add_first(sequence *s, rein_fields *in, const scoring *c, const char *name, int ids) {
    if (ids) add_ids(s, in, c, name);
    else add_text(s, in, c, name, 0);
    if (!s->ids.count) rein_fields_fail(in, REIN_EINVAL, name, -1, "has no token: one or more is needed");
}

/* A line is one sequence, or a prompt and its response, each as text or as ids. */
static void read_sequence(sequence *s, rein_fields *in, const scoring *c) {
    static const char forms[] = "text, ids, prompt with response, or prompt_ids with response_ids";
    const int ids = rein_fields_has(in, "prompt_ids") || rein_fields_has(in, "response_ids");
    const int texts = rein_fields_has(in, "prompt") || rein_fields_has(in, "response");
    const int whole = rein_fields_has(in, "ids"),
              text = !ids && rein_fields_has(in, "text"); /* generate prints text and response_ids */
    const int n = ids + texts + whole + text;
    if (n != 1) {
        rein_fail(in->err, REIN_EINVAL, "%s is needed: %s", n ? "only one" : "one", forms);
        in->status = rein_fail_in(in->err, REIN_EINVAL, "%s", in->file);
    } else if (whole || text) add_first(s, in, c, whole ? "ids" : "text", whole);
    else {
        add_first(s, in, c, ids ? "prompt_ids" : "prompt", ids);
        s->first = s->ids.count;
        if (ids) add_ids(s, in, c, "response_ids");
        else add_text(s, in, c, "response", 1);
    }
}

static int score_line(const scoring *c, const char *line, size_t length, size_t number) {
    /* The lines of rein generate --json can be given as they are, with a \u0000 that the model may have written. */
    static const char *const keys[] = {"text",   "ids",      "prompt", "response",         "prompt_ids",   "response_ids",
                                       "sample", "logprobs", "finish", "sampler_logprobs", "top_logprobs", NULL};
    const unsigned flags = REIN_JSON_NEEDS_OBJECT | REIN_JSON_WIDE_INTEGERS | REIN_JSON_ONE_LINE | REIN_JSON_ALLOWS_NUL;
    rein_text out = {0};
    rein_error err = {0};
    rein_json *root = NULL;
    sequence s = {0};
    char place[40];
    snprintf(place, sizeof place, "line %zu", number);
    if (*cli_skip_blanks(line) != '{')
        return cli_say(CLI_WRONG, WHERE, "line %zu is not a JSON object such as {\"text\": \"...\"}: --file FILE scores plain text",
                       number);
    rein_fields in = {.file = place, .path = "", .err = &err};
    in.status = rein_json_parse(&root, line, length, place, flags, &err);
    in.object = root;
    if (!in.status && !rein_fields_only(&in, keys)) read_sequence(&s, &in, c);
    if (!in.status && (in.status = score_and_write(&out, &s, c, &err))) rein_fail_in(&err, in.status, "%s", place);
    rein_json_free(root);
    sequence_free(&s);
    return cli_print_result(&out, in.status ? cli_say_error(WHERE, &err) : CLI_DONE);
}

static int score_lines(const scoring *c, FILE *file, const char *name) {
    rein_text line = {0};
    int ended = 0, status = CLI_DONE;
    for (size_t number = 1; !status && !(status = cli_read_line(&line, &ended, file, number, name, WHERE)) && !ended; number++)
        if (cli_skip_blanks(line.data) < line.data + line.length) status = score_line(c, line.data, line.length, number);
    rein_text_free(&line);
    return status;
}

static int score_file(const scoring *c, const char *path) {
    FILE *file;
    int status = cli_open_input(&file, path, "lines of JSON", WHERE);
    if (status) return status;
    status = score_lines(c, file, cli_input_name(path));
    cli_close_input(file);
    return status;
}

/* ----------------------------------------------------------------------------------------------------- one text, on the command line */

static int score_one(const scoring *c, const cli_args *args, rein_ids *ids, const rein_text *text) {
    rein_text out = {0};
    rein_error err = {0};
    sequence s = {.ids = *ids};
    *ids = (rein_ids){0};
    int status = cli_option_value(args, "ids") ? cli_opened_check_ids(&c->opened, &s.ids, "--ids", WHERE)
                                               : cli_opened_encode_whole(&s.ids, &c->opened, text, "text", "--ids", WHERE);
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
    scoring c = {.policy.temperature = NAN, .entropy = cli_option_value(args, "entropy") != NULL};
    rein_ids ids = {0};
    rein_text text = {0};
    rein_error err = {0};
    const int lines = !cli_option_value(args, "text") && !cli_option_value(args, "file") && !cli_option_value(args, "ids");
    int status = cli_opened_read(&c.opened, args);
    if (!status) status = cli_value_number(&c.policy.temperature, args, "temperature", is_temperature, "between 0.001 and 1000");
    if (!status) status = read_source(&ids, &text, args);
    if (!status) status = cli_opened_open(&c.opened, args);
    c.policy.model = c.opened.model;
    c.policy.adapter = c.opened.adapter;
    if (isnan(c.policy.temperature)) c.policy.temperature = c.opened.files.temperature;
    if (!status && rein_activations_open(&c.activations, &c.opened.exec, &err)) status = cli_say_error(WHERE, &err);
    if (!status) status = lines ? score_file(&c, args->n_words ? args->words[0] : NULL) : score_one(&c, args, &ids, &text);
    rein_activations_close(c.activations);
    rein_ids_free(&ids);
    rein_text_free(&text);
    cli_opened_close(&c.opened);
    return status;
}
