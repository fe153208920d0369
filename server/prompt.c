/* prompt.c - a conversation to token ids: the model's own chat template, and ids that were sampled put back as they were. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "parts.h"

struct prompts {
    rein_chat_template *chat; /* NULL: the model has none, or none that runs */
    char why[REIN_MESSAGE_SIZE];
};

rein_status prompts_open(prompts **opened, const server_options *options, rein_error *err) {
    prompts *p = *opened = calloc(1, sizeof *p);
    rein_error wrong = {0};
    if (!p) return rein_fail(err, REIN_ENOMEM, "no memory for the server");
    switch (rein_chat_template_of(&p->chat, options->tokenizer, &wrong)) {
    case REIN_OK: return REIN_OK;
    case REIN_END: snprintf(p->why, sizeof p->why, "the model has no chat template: use /v1/completions"); return REIN_OK;
    case REIN_EINVAL:
        snprintf(p->why, sizeof p->why, "the model's chat template cannot be run: %.400s", wrong.message);
        return REIN_OK;
    default: break;
    }
    prompts_close(p), *opened = NULL;
    return rein_fail(err, wrong.code, "%s", wrong.message);
}

void prompts_close(prompts *p) {
    if (!p) return;
    rein_chat_template_close(p->chat);
    free(p);
}

/* --------------------------------------------------------------------------------------------------------------------- messages */

/* Appends messages as templates read them, to a JSON array without its end. */
static rein_status put_messages(rein_text *out, const rein_json *given, rein_error *err) {
    rein_json *read = NULL;
    rein_status status = rein_chat_messages_read(&read, given, err);
    for (size_t i = 0; i < rein_json_size(read); i++) {
        rein_text_put(out, out->length ? ", " : "[");
        rein_json_put_value(out, rein_json_at(read, i));
    }
    rein_json_free(read);
    return status ? status : rein_text_status(out, err);
}

/* Renders messages that put_messages wrote. They are left as they were. */
static rein_status render(rein_rendered *rendered, const server *s, rein_text *messages, const rein_template_options *options,
                          rein_error *err) {
    rein_json *read = NULL;
    const size_t length = messages->length;
    rein_text_put(messages, "]");
    rein_status status = rein_text_status(messages, err);
    if (!status) status = rein_json_parse(&read, messages->data, messages->length, "messages", REIN_JSON_ALLOWS_NUL, err);
    if (!status && (status = rein_chat_template_render(rendered, s->prompts->chat, read, options, err)))
        rein_fail_in(err, status, "messages");
    messages->length = length;
    rein_json_free(read);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------------- ids */

/* Encodes the text from `from` on. */
static rein_status encode_rest(rein_ids *ids, const server *s, const rein_rendered *rendered, size_t from, rein_error *err) {
    rein_span *literals = malloc((rendered->n_literals + 1) * sizeof *literals);
    rein_encoding how = {.parse_special = 1, .literal = literals, .max_tokens = (size_t)s->info.max_positions};
    if (!literals) return rein_fail(err, REIN_ENOMEM, "no memory for a prompt");
    for (size_t i = 0; i < rendered->n_literals; i++) {
        const rein_span span = rendered->literals[i];
        if (span.end > from) literals[how.literals++] = (rein_span){span.begin > from ? span.begin - from : 0, span.end - from};
    }
    const rein_status status =
        rein_tokenizer_encode(ids, s->options.tokenizer, rendered->text.data + from, rendered->text.length - from, &how, err);
    free(literals);
    return status;
}

static rein_status encode(rein_ids *ids, server *s, const rein_rendered *rendered, rein_error *err) {
    const size_t known = s->turns ? turns_find(ids, s->turns, rendered) : 0;
    if (known < rendered->text.length || !known) {
        const rein_status status = encode_rest(ids, s, rendered, known, err);
        if (status) return status == REIN_EINVAL ? rein_fail_in(err, status, "messages") : status;
    }
    if (!ids->count) return rein_fail_at(err, REIN_EINVAL, "messages", -1, "are rendered to no tokens");
    return REIN_OK;
}

/* The variables of a template. A request's are borrowed from its body. */
static rein_status read_variables(const rein_json **variables, const rein_json *body, rein_error *err) {
    *variables = rein_json_get(body, "chat_template_kwargs");
    if (rein_json_kind_of(*variables) == REIN_JSON_NULL) *variables = NULL;
    if (*variables && rein_json_kind_of(*variables) != REIN_JSON_OBJECT)
        return rein_fail_at(err, REIN_EINVAL, "chat_template_kwargs", -1, "must be an object");
    return REIN_OK;
}

/* What a template reads besides the messages outlives the request's body. */
static rein_status keep_inputs(rein_json **kept, const rein_template_options *o, rein_error *err) {
    rein_text text = {0};
    rein_text_put(&text, "{");
    if (o->tools) rein_json_put_name(&text, "tools"), rein_json_put_value(&text, o->tools);
    if (o->variables) rein_json_put_name(&text, "variables"), rein_json_put_value(&text, o->variables);
    rein_text_put(&text, "}");
    rein_status status = rein_text_status(&text, err);
    if (!status) status = rein_json_parse(kept, text.data, text.length, NULL, REIN_JSON_ALLOWS_NUL, err);
    rein_text_free(&text);
    return status;
}

static void note_date(conversation *c) {
    time_t now = time(NULL);
    struct tm day;
    localtime_r(&now, &day);
    strftime(c->date, sizeof c->date, "%Y-%m-%d %H:%M:%S", &day);
}

rein_status prompts_render(rein_ids *ids, conversation *kept, server *s, const rein_json *body, bool tools, bool generation,
                           rein_error *err) {
    const rein_json *variables;
    rein_rendered rendered = {0};
    if (!s->prompts->chat) return rein_fail_at(err, REIN_EINVAL, "messages", -1, ": %s", s->prompts->why);
    rein_status status = read_variables(&variables, body, err);
    if (status) return status;
    note_date(kept);
    const rein_template_options options = {.add_generation_prompt = generation,
                                           .tools = tools ? rein_json_get(body, "tools") : NULL,
                                           .variables = variables,
                                           .date = kept->date};
    status = put_messages(&kept->messages, rein_json_get(body, "messages"), err);
    if (!status) status = render(&rendered, s, &kept->messages, &options, err);
    if (!status && !rendered.text.length) status = rein_fail_at(err, REIN_EINVAL, "messages", -1, "are rendered to no text");
    if (!status) status = encode(ids, s, &rendered, err);
    if (!status && s->turns) status = keep_inputs(&kept->inputs, &options, err);
    kept->text = rendered.text, rendered.text = (rein_text){0};
    rein_rendered_free(&rendered);
    return status;
}

void conversation_free(conversation *c) {
    rein_text_free(&c->messages);
    rein_text_free(&c->text);
    rein_json_free(c->inputs);
    *c = (conversation){0};
}

/* ----------------------------------------------------------------------------------------------------------------- later turns */

/* Appends a message of the server as a client sends it back. 1 if it has tool calls. */
static bool put_answer(rein_text *messages, const job *j, const choice *c) {
    rein_text text = {0};
    rein_json *list = NULL;
    rein_text_put(&text, "[");
    answer_put_message(&text, j, c);
    rein_text_put(&text, "]");
    if (text.failed || rein_json_parse(&list, text.data, text.length, NULL, REIN_JSON_ALLOWS_NUL, NULL) ||
        put_messages(messages, list, NULL))
        messages->failed = 1;
    const bool calls = rein_json_get(rein_json_at(list, 0), "tool_calls");
    rein_json_free(list);
    rein_text_free(&text);
    return calls;
}

/* How many of the sampled ids stand for the text of the answer. A stop text is not in it, and neither is the end of the turn, which the
 * template writes. *rest is the length of the text's end that belongs to a token within which the stop text begins. */
static size_t ids_of_text(size_t *rest, const server *s, const choice *c) {
    size_t n = c->ids.count;
    rein_text text = {0};
    *rest = 0;
    if (n && c->finish == REIN_FINISH_END_TOKEN) n--;
    for (; n && c->finish == REIN_FINISH_STOP_TEXT; n--) {
        text.length = 0;
        if (rein_tokenizer_decode(&text, s->options.tokenizer, c->ids.data, n, 1, NULL)) text.failed = 1;
        if (text.failed || (text.length <= c->text.length && !memcmp(text.data ? text.data : "", c->text.data, text.length))) break;
    }
    if (c->finish == REIN_FINISH_STOP_TEXT) *rest = c->text.length - text.length;
    if (text.failed) n = 0;
    rein_text_free(&text);
    return n;
}

/* `rendered` is the conversation with the answer; its first `end` bytes are what the next turn begins with. */
static void remember(server *s, const job *j, const choice *c, const rein_rendered *rendered, size_t end, bool calls) {
    const rein_ids *before = &j->prompts[0];
    const rein_text *text = &c->text;
    size_t rest;
    const size_t n = ids_of_text(&rest, s, c);
    if (!n) return;
    /* a rest can be encoded only if the template wrote the content as it is */
    if (rest && (calls || text->length > end || memcmp(rendered->text.data + end - text->length, text->data, text->length) != 0))
        return;
    int32_t *ids = malloc((before->count + n) * sizeof *ids);
    if (!ids) return;
    memcpy(ids, before->data, before->count * sizeof *ids);
    memcpy(ids + before->count, c->ids.data, n * sizeof *ids);
    turns_add(s->turns, rendered->text.data, end, end - rest, ids, before->count + n);
    free(ids);
}

void prompts_remember(server *s, job *j, const choice *c) {
    conversation *said = &j->conversation;
    const rein_json *inputs = said->inputs;
    const rein_template_options options = {
        .tools = rein_json_get(inputs, "tools"), .variables = rein_json_get(inputs, "variables"), .date = said->date};
    const size_t length = said->messages.length;
    rein_rendered rendered = {0};
    if (!s->turns || !inputs || c->text.failed) return;
    const bool calls = put_answer(&said->messages, j, c);
    if (!render(&rendered, s, &said->messages, &options, NULL)) {
        const size_t end = rein_rendered_answer_end(&rendered, &said->text, calls);
        if (end) remember(s, j, c, &rendered, end, calls);
    }
    said->messages.length = length;
    if (said->messages.failed) rein_json_free(said->inputs), said->inputs = NULL; /* no memory: nothing more is remembered */
    rein_rendered_free(&rendered);
}
