/* request.c - the body of a request to a job. Every field that OpenAI documents is either read, or must have its neutral value; any other
 * field is an error that names it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "parts.h"

enum { MAX_SAMPLES = 1024, MAX_PROMPTS = 1024, MAX_CHOICES = 8192, MAX_TOP = 20, MAX_STOPS = 16, MAX_STOP_IDS = 64 };

/* ----------------------------------------------------------------------------------------------------------------------- fields */

static const char *const COMMON[] = {"model",
                                     "max_tokens",
                                     "temperature",
                                     "top_p",
                                     "top_k",
                                     "min_p",
                                     "n",
                                     "stop",
                                     "stop_token_ids",
                                     "seed",
                                     "logprobs",
                                     "stream",
                                     "stream_options",
                                     "ignore_eos",
                                     "min_tokens",
                                     "prompt_logprobs",
                                     "return_token_ids",
                                     "return_tokens_as_token_ids",
                                     "user",
                                     "metadata",
                                     "safety_identifier",
                                     "prompt_cache_key",
                                     NULL};
static const char *const CHAT[] = {"messages",    "max_completion_tokens", "top_logprobs",         "tools",
                                   "tool_choice", "response_format",       "chat_template_kwargs", NULL};
static const char *const COMPLETION[] = {"prompt", "echo", NULL};

/* Fields without an effect here, and the values at which they have none anywhere. null is always one. */
enum { MAX_NEUTRAL = 2 };
static const struct {
    const char *name, *values[MAX_NEUTRAL];
} NEUTRAL[] = {{"frequency_penalty", {"0"}},
               {"presence_penalty", {"0"}},
               {"repetition_penalty", {"1"}},
               {"length_penalty", {"1"}},
               {"logit_bias", {"{}"}},
               {"parallel_tool_calls", {"true"}},
               {"store", {"false"}},
               {"service_tier", {"\"auto\"", "\"default\""}},
               {"modalities", {"[\"text\"]"}},
               {"best_of", {"1"}},
               {"suffix", {"\"\""}},
               {"use_beam_search", {"false"}},
               {"skip_special_tokens", {"true"}},
               {"include_stop_str_in_output", {"false"}},
               {"functions", {"[]"}},
               {"function_call", {"\"auto\"", "\"none\""}},
               {"audio", {NULL}},
               {"moderation", {NULL}},
               {"prediction", {NULL}},
               {"reasoning_effort", {NULL}},
               {"verbosity", {NULL}},
               {"web_search_options", {NULL}},
               {"prompt_cache_options", {NULL}},
               {"prompt_cache_retention", {NULL}}};

static bool is_in(const char *const *names, const char *name) {
    for (size_t i = 0; names[i]; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

static bool same_value(const rein_json *value, const char *neutral) {
    rein_json *wanted = NULL;
    rein_text a = {0}, b = {0};
    if (!neutral || rein_json_parse(&wanted, neutral, strlen(neutral), NULL, 0, NULL)) return false;
    const rein_json_kind kind = rein_json_kind_of(value);
    bool same = kind == rein_json_kind_of(wanted);
    if (same && kind == REIN_JSON_NUMBER) same = rein_json_number(value) == rein_json_number(wanted);
    else if (same) {
        rein_json_put_value(&a, value), rein_json_put_value(&b, wanted);
        same = !a.failed && !b.failed && a.length == b.length && !memcmp(a.data, b.data, a.length);
    }
    rein_text_free(&a), rein_text_free(&b);
    rein_json_free(wanted);
    return same;
}

static rein_status check_field(rein_fields *in, const char *name, const rein_json *value, const char *const *own) {
    if (is_in(COMMON, name) || is_in(own, name)) return REIN_OK;
    for (size_t i = 0; i < sizeof NEUTRAL / sizeof *NEUTRAL; i++) {
        if (strcmp(NEUTRAL[i].name, name) != 0) continue;
        const char *const *values = NEUTRAL[i].values;
        if (rein_json_kind_of(value) == REIN_JSON_NULL) return REIN_OK;
        for (size_t v = 0; v < MAX_NEUTRAL; v++)
            if (same_value(value, values[v])) return REIN_OK;
        return rein_fields_fail(in, REIN_EINVAL, name, -1, "is not supported: leave it out, or give its neutral value %s%s%s",
                                values[0] ? values[0] : "null", values[1] ? " or " : "", values[1] ? values[1] : "");
    }
    return rein_fields_fail(in, REIN_EINVAL, name, -1, "is not a field of this request: docs/serve.md lists the fields");
}

static rein_status check_fields(rein_fields *in, const char *const *own) {
    const char *key;
    const rein_json *field;
    for (void *at = NULL; (at = rein_json_next(&key, &field, in->object, at));)
        if (check_field(in, key, field, own)) break;
    return in->status;
}

/* --------------------------------------------------------------------------------------------------------------------- sampling */

/* A whole number; clients that have only floats send 8.0. */
static int64_t whole_or(rein_fields *in, const char *key, int64_t low, int64_t high, int64_t fallback) {
    const rein_json *value = rein_json_get(in->object, key);
    const double x = rein_json_number(value), exact = 9007199254740992.0; /* 2^53 */
    if (rein_json_kind_of(value) == REIN_JSON_NUMBER && x == floor(x) && fabs(x) < exact && (double)low <= x && x <= (double)high)
        return (int64_t)x;
    return rein_fields_integer_or(in, key, low, high, fallback);
}

static void read_stops(job *j, rein_fields *in) {
    const rein_json *stop = rein_json_get(in->object, "stop");
    const rein_json_kind kind = rein_json_kind_of(stop);
    const size_t n = kind == REIN_JSON_ARRAY ? rein_json_size(stop) : kind == REIN_JSON_STRING;
    if (kind != REIN_JSON_NONE && kind != REIN_JSON_NULL && kind != REIN_JSON_ARRAY && kind != REIN_JSON_STRING)
        rein_fields_wrong(in, "stop", stop, "a text, or a list of texts, is needed");
    if (n > MAX_STOPS) rein_fields_fail(in, REIN_EINVAL, "stop", -1, "has %zu texts: at most %d are allowed", n, MAX_STOPS);
    for (size_t i = 0; i < n && !in->status; i++) {
        const rein_json *one = kind == REIN_JSON_ARRAY ? rein_json_at(stop, i) : stop;
        const char *text = rein_json_string(one);
        if (!text || !*text) rein_fields_fail(in, REIN_EINVAL, "stop", (int64_t)i, "must be a text of one character or more");
        else rein_text_put_bytes(&j->stop_texts, text, strlen(text) + 1);
    }
    if (in->status || !n) return;
    j->stops = calloc(n, sizeof *j->stops);
    if (!j->stops || j->stop_texts.failed) {
        in->status = rein_fail(in->err, REIN_ENOMEM, "no memory for a request");
        return;
    }
    const char *at = j->stop_texts.data;
    for (size_t i = 0; i < n; i++) j->stops[i] = at, at += strlen(at) + 1;
    j->sampling.stops = j->stops, j->sampling.n_stops = n;
}

static void add_end(job *j, int32_t id) {
    for (size_t i = 0; i < j->sampling.n_end_ids; i++)
        if (j->end_ids[i] == id) return;
    j->end_ids[j->sampling.n_end_ids++] = id;
}

/* The tokens that end an answer: the model's, the end of a turn, and those of the request. */
static void read_ends(job *j, rein_fields *in) {
    const server *s = j->s;
    const rein_json *more = rein_fields_array(in, "stop_token_ids");
    const size_t n = rein_json_size(more);
    const int ignore = rein_fields_bool_or(in, "ignore_eos", 0);
    if (n > MAX_STOP_IDS)
        rein_fields_fail(in, REIN_EINVAL, "stop_token_ids", -1, "has %zu ids: at most %d are allowed", n, MAX_STOP_IDS);
    if (in->status) return;
    j->end_ids = calloc(REIN_MAX_END_IDS + 2 + n, sizeof *j->end_ids);
    if (!j->end_ids) {
        in->status = rein_fail(in->err, REIN_ENOMEM, "no memory for a request");
        return;
    }
    const int32_t named = rein_tokenizer_named(s->options.tokenizer).end;
    for (size_t i = 0; !ignore && i < s->info.n_end_ids; i++) add_end(j, s->info.end_ids[i]);
    if (!ignore && named >= 0 && named < s->info.vocabulary) add_end(j, named);
    for (size_t i = 0; i < n; i++) {
        const rein_json *one = rein_json_at(more, i);
        const double id = rein_json_number(one);
        if (rein_json_kind_of(one) != REIN_JSON_NUMBER || id != floor(id) || id < 0 || id >= (double)s->info.vocabulary) {
            rein_fields_fail(in, REIN_EINVAL, "stop_token_ids", (int64_t)i, "must be a token of the model, 0 to %lld",
                             (long long)s->info.vocabulary - 1);
            return;
        }
        add_end(j, (int32_t)id);
    }
    j->sampling.end_ids = j->end_ids;
}

static double number_between(rein_fields *in, const char *key, double low, double high, double fallback, const char *need) {
    const double x = rein_fields_number_or(in, key, -INFINITY, fallback);
    if (!in->status && !(x >= low && x <= high)) rein_fields_wrong(in, key, rein_json_get(in->object, key), "%s", need);
    return x;
}

static void read_sampling(job *j, rein_fields *in) {
    rein_sampling *o = &j->sampling;
    uint64_t seed = 0;
    j->temperature = number_between(in, "temperature", 0, 1000, j->s->options.temperature, "0 to 1000");
    if (j->temperature == 0) o->greedy = 1, j->temperature = 1;
    else if (!in->status && j->temperature < 1e-3)
        rein_fields_wrong(in, "temperature", rein_json_get(in->object, "temperature"), "0, or 0.001 to 1000");
    o->top_p = number_between(in, "top_p", 1e-9, 1, 1, "above 0, at most 1");
    o->min_p = number_between(in, "min_p", 0, 0.999999, 0, "from 0 to below 1");
    o->top_k = whole_or(in, "top_k", -1, INT32_MAX, 0);
    if (o->top_k < 0) o->top_k = 0; /* vLLM's way to say all */
    if (o->greedy) o->top_k = 0, o->top_p = 1, o->min_p = 0;
    j->truncates = o->top_k || o->top_p < 1 || o->min_p > 0;
    o->min_tokens = (size_t)whole_or(in, "min_tokens", 0, INT32_MAX, 0);
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = (uint64_t)j->created;
    o->seed = (uint64_t)whole_or(in, "seed", INT64_MIN, INT64_MAX, (int64_t)seed);
    read_stops(j, in);
    read_ends(j, in);
}

static void read_stream_options(job *j, rein_fields *in) {
    static const char *const keys[] = {"include_usage", "include_obfuscation", NULL};
    const rein_json *options = rein_fields_object(in, "stream_options");
    rein_fields inside = {options, NULL, "stream_options.", in->status, in->err};
    if (!options || in->status) return;
    if (!j->stream) rein_fields_fail(in, REIN_EINVAL, "stream_options", -1, "has no effect without stream: true");
    inside.status = in->status;
    rein_fields_only(&inside, keys);
    j->include_usage = rein_fields_bool_or(&inside, "include_usage", 0);
    if (rein_fields_bool_or(&inside, "include_obfuscation", 0))
        rein_fields_fail(&inside, REIN_EINVAL, "include_obfuscation", -1,
                         "is not supported: leave it out, or give its neutral value false");
    in->status = inside.status;
}

/* Fields that are for the log only. */
static void check_labels(rein_fields *in) {
    rein_fields_string_or(in, "user", NULL);
    rein_fields_string_or(in, "safety_identifier", NULL);
    rein_fields_string_or(in, "prompt_cache_key", NULL);
    rein_fields_object(in, "metadata");
}

void job_log(const job *j, const rein_json *body) {
    static const char *const labels[] = {"user", "safety_identifier", "metadata"};
    rein_text line = {0};
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        const rein_json *value = rein_json_get(body, labels[i]);
        if (!value || rein_json_kind_of(value) == REIN_JSON_NULL) continue;
        rein_text_format(&line, "%s%s ", line.length ? ", " : "", labels[i]);
        rein_json_put_value(&line, value);
    }
    if (line.length && !line.failed) server_log(j->s, "%s: %s", j->id, line.data);
    rein_text_free(&line);
}

static void read_common(job *j, rein_fields *in) {
    j->stream = rein_fields_bool_or(in, "stream", 0);
    read_stream_options(j, in);
    check_labels(in);
    j->samples = (size_t)whole_or(in, "n", 1, MAX_SAMPLES, 1);
    j->return_ids = rein_fields_bool_or(in, "return_token_ids", 0);
    j->tokens_as_ids = rein_fields_bool_or(in, "return_tokens_as_token_ids", j->s->options.tokens_as_ids);
    const int64_t prompt_top = whole_or(in, "prompt_logprobs", 0, MAX_TOP, -1);
    j->prompt_logprobs = prompt_top >= 0;
    j->n_prompt_top = prompt_top > 0 ? (size_t)prompt_top : 0;
    if (j->prompt_logprobs && j->stream) rein_fields_fail(in, REIN_EINVAL, "prompt_logprobs", -1, "is not available in a stream");
    read_sampling(j, in);
}

/* ART's client trains on what it gets: it needs every token, by its id. */
static rein_status find_policy(job *j, rein_fields *in) {
    const char *name = rein_fields_string(in, "model");
    if (name && policies_is_art(name)) j->logprobs = j->tokens_as_ids = true;
    return in->status ? in->status : policies_find(&j->policy, j->s->policies, name, in->err);
}

static rein_status make_choices(job *j, rein_error *err) {
    const size_t n = j->n_prompts * j->samples;
    if (n > MAX_CHOICES)
        return rein_fail_at(err, REIN_EINVAL, "n", -1, "is %zu with %zu prompts: a request has at most %d answers", j->samples,
                            j->n_prompts, MAX_CHOICES);
    j->bytes = n * sizeof *j->choices + j->conversation.messages.length + j->conversation.text.length;
    for (size_t i = 0; i < j->n_prompts; i++)
        j->bytes += j->prompts[i].count * sizeof *j->prompts[i].data + j->prompt_texts[i].length;
    if (!job_charge(j, 0))
        return rein_fail(err, REIN_ENOMEM, "no memory for a request: texts of requests use %zu bytes; try again later",
                         rein_memory_used(j->s->texts));
    j->choices = calloc(n, sizeof *j->choices);
    return j->choices ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for a request");
}

/* Room for the answer after each prompt. `wanted` 0: all there is. */
static rein_status fit_tokens(job *j, size_t wanted, const char *field, rein_error *err) {
    const size_t positions = (size_t)j->s->info.max_positions;
    size_t longest = 0;
    for (size_t i = 0; i < j->n_prompts; i++)
        if (j->prompts[i].count > longest) longest = j->prompts[i].count;
    if (longest >= positions)
        return rein_fail_at(err, REIN_EINVAL, j->kind == JOB_CHAT ? "messages" : "prompt", -1,
                            "has %zu tokens: the model has %zu positions, and an answer needs one more", longest, positions);
    j->sampling.max_tokens = wanted ? wanted : positions - longest;
    if (j->sampling.min_tokens > j->sampling.max_tokens)
        return rein_fail_at(err, REIN_EINVAL, "min_tokens", -1, "is %zu, more than %s allows", j->sampling.min_tokens, field);
    j->sampling.top_log_probs = j->top > j->n_prompt_top ? j->top : j->n_prompt_top;
    if (j->sampling.top_log_probs > (size_t)j->s->info.vocabulary) j->sampling.top_log_probs = (size_t)j->s->info.vocabulary;
    return make_choices(j, err);
}

static rein_status make_prompts(job *j, size_t n, rein_error *err) {
    j->prompts = calloc(n, sizeof *j->prompts);
    j->prompt_texts = calloc(n, sizeof *j->prompt_texts);
    j->n_prompts = j->prompts && j->prompt_texts ? n : 0;
    return j->n_prompts ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for a request");
}

/* ------------------------------------------------------------------------------------------------------------------------- chat */

static void read_tools(job *j, rein_fields *in) {
    static const char *const choices[] = {"auto", "none", NULL};
    const rein_json *format = rein_fields_object(in, "response_format"), *tools = rein_fields_array(in, "tools");
    const char *type = rein_json_string(rein_json_get(format, "type"));
    int choice = 0;
    if (rein_fields_has(in, "tool_choice") && rein_json_kind_of(rein_json_get(in->object, "tool_choice")) != REIN_JSON_STRING)
        rein_fields_fail(in, REIN_EINVAL, "tool_choice", -1, "must be \"auto\" or \"none\": a tool cannot be forced");
    else choice = rein_fields_choice_or(in, "tool_choice", choices, 0);
    if (format && (!type || strcmp(type, "text") != 0))
        rein_fields_fail(in, REIN_EINVAL, "response_format", -1, "must be {\"type\": \"text\"}: answers are not constrained");
    for (size_t i = 0; i < rein_json_size(tools); i++)
        if (rein_json_kind_of(rein_json_get(rein_json_get(rein_json_at(tools, i), "function"), "name")) != REIN_JSON_STRING)
            rein_fields_fail(in, REIN_EINVAL, "tools", (int64_t)i, "must have function.name, a text");
    j->tools = rein_json_size(tools) && choice == 0;
}

rein_status job_parse_chat(job *j, const rein_json *body, rein_error *err) {
    rein_fields in = {body, NULL, "", REIN_OK, err};
    rein_status status;
    check_fields(&in, CHAT);
    read_common(j, &in);
    read_tools(j, &in);
    j->logprobs = rein_fields_bool_or(&in, "logprobs", 0);
    j->top = (size_t)whole_or(&in, "top_logprobs", 0, MAX_TOP, 0);
    if (j->top && !j->logprobs) rein_fields_fail(&in, REIN_EINVAL, "top_logprobs", -1, "has no effect without logprobs: true");
    j->logprobs |= j->s->options.always_logprobs;
    const int64_t old = whole_or(&in, "max_tokens", 1, INT32_MAX, 0), now = whole_or(&in, "max_completion_tokens", 1, INT32_MAX, 0);
    if (old && now && old != now)
        rein_fields_fail(&in, REIN_EINVAL, "max_tokens", -1, "and max_completion_tokens differ: give one of them");
    if ((status = in.status) || (status = find_policy(j, &in)) || (status = make_prompts(j, 1, err)) ||
        (status = prompts_render(&j->prompts[0], &j->conversation, j->s, body, j->tools, true, err)))
        return status;
    return fit_tokens(j, (size_t)(now ? now : old), now ? "max_completion_tokens" : "max_tokens", err);
}

/* ------------------------------------------------------------------------------------------------------------------- completions */

static rein_status read_ids(rein_ids *ids, const server *s, const rein_json *list, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t i = 0; i < rein_json_size(list) && !status; i++) {
        const rein_json *one = rein_json_at(list, i);
        const double id = rein_json_number(one);
        if (rein_json_kind_of(one) != REIN_JSON_NUMBER || id != floor(id) || id < 0 || id >= (double)s->info.vocabulary)
            status = rein_fail_at(err, REIN_EINVAL, "prompt", (int64_t)i, "must be a token of the model, 0 to %lld",
                                  (long long)s->info.vocabulary - 1);
        else status = rein_ids_append(ids, (int32_t)id, err);
    }
    return status;
}

static rein_status read_prompt(rein_ids *ids, const server *s, const rein_json *prompt, rein_error *err) {
    const rein_encoding how = {.add_special = 1, .parse_special = 1, .max_tokens = (size_t)s->info.max_positions};
    rein_status status;
    if (rein_json_kind_of(prompt) == REIN_JSON_STRING) {
        status = rein_tokenizer_encode(ids, s->options.tokenizer, rein_json_string(prompt), rein_json_length(prompt), &how, err);
        if (status == REIN_EINVAL) rein_fail_in(err, status, "prompt");
    } else if (rein_json_kind_of(prompt) == REIN_JSON_ARRAY) status = read_ids(ids, s, prompt, err);
    else return rein_fail_at(err, REIN_EINVAL, "prompt", -1, "must be a text, a list of token ids, or a list of either");
    if (!status && !ids->count) return rein_fail_at(err, REIN_EINVAL, "prompt", -1, "has no tokens");
    return status;
}

static rein_status read_prompts(job *j, const rein_json *prompt, rein_error *err) {
    const bool several =
        rein_json_kind_of(prompt) == REIN_JSON_ARRAY && rein_json_kind_of(rein_json_at(prompt, 0)) != REIN_JSON_NUMBER;
    const size_t n = several ? rein_json_size(prompt) : 1;
    if (!n || n > MAX_PROMPTS)
        return rein_fail_at(err, REIN_EINVAL, "prompt", -1, "has %zu prompts: 1 to %d are allowed", n, MAX_PROMPTS);
    rein_status status = make_prompts(j, n, err);
    for (size_t i = 0; i < n && !status; i++) {
        status = read_prompt(&j->prompts[i], j->s, several ? rein_json_at(prompt, i) : prompt, err);
        if (!status && j->echo)
            status = rein_tokenizer_decode(&j->prompt_texts[i], j->s->options.tokenizer, j->prompts[i].data, j->prompts[i].count, 0,
                                           err);
    }
    return status;
}

rein_status job_parse_completion(job *j, const rein_json *body, rein_error *err) {
    rein_fields in = {body, NULL, "", REIN_OK, err};
    rein_status status;
    check_fields(&in, COMPLETION);
    read_common(j, &in);
    const int64_t top = whole_or(&in, "logprobs", 0, MAX_TOP, -1), wanted = whole_or(&in, "max_tokens", 0, INT32_MAX, 16);
    j->logprobs = top >= 0 || j->s->options.always_logprobs;
    j->top = top > 0 ? (size_t)top : 0;
    j->echo = rein_fields_bool_or(&in, "echo", 0);
    j->no_tokens = !wanted;
    if (!wanted && !j->echo && !in.status)
        rein_fields_fail(&in, REIN_EINVAL, "max_tokens", -1, "is 0: without echo nothing would be answered");
    if (j->echo && j->stream) rein_fields_fail(&in, REIN_EINVAL, "echo", -1, "is not available in a stream");
    if ((status = in.status) || (status = find_policy(j, &in)) || (status = read_prompts(j, rein_json_get(body, "prompt"), err)))
        return status;
    return fit_tokens(j, wanted ? (size_t)wanted : 1, "max_tokens", err);
}
