/* groups_art.c - a conversation in ART's form becomes token ids.
 *
 * Before each Choice the messages so far are rendered as they were for the server that sampled it, with the generation prompt. Where that
 * text begins with all that was seen and written before, the history continues; where the template writes an earlier turn differently from
 * the model, a new one begins. The parts between the borders of what was sampled are encoded one by one. What follows the last Choice does
 * not train, and is left out. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/chat.h"
#include "model/tokenizer_parts.h"
#include "train/groups_turns.h"

typedef struct conversation {
    rein_group_reader *reader;
    rein_trajectory *trajectory;
    const char *path, *key; /* the messages are PATH.KEY */
    rein_turn *turns;       /* [n + 1]; the messages begin at 1, before them is a place for a system message with tools */
    size_t n, first;        /* 0 if that place is used, else 1 */
    rein_message *messages; /* [n + 1] and so on: what is handed to the renderer */
    rein_chat_span *spans;
    json_t *read, *tools;    /* for the tokenizer's own template: the messages and the tools; else NULL */
    const json_t *variables; /* its variables, borrowed; NULL: none */
    rein_rendered prompt;    /* what the next Choice saw; its literals are contents, which spell no special token */
    rein_text seen;          /* the text of the history so far */
    rein_history history;
} conversation;

static const char *messages_key(const json_t *object) {
    return json_object_get(object, "messages_and_choices") ? "messages_and_choices" : "messages";
}

int rein_art_has(const json_t *object) { return json_object_get(object, messages_key(object)) != NULL; }

/* ------------------------------------------------------------------------------------------------------------------ the format */

void rein_group_reader_free(rein_group_reader *reader) {
    free(reader->begin);
    rein_text_free(&reader->end);
    rein_ids_free(&reader->end_ids);
}

/* What the template puts behind an assistant's content. A raw chat has nothing there, and its turns end with the end token. */
static rein_status find_end(rein_group_reader *reader) {
    const rein_message turns[] = {{"user", "a", 1}, {"assistant", "b", 1}};
    const rein_encoding how = {.parse_special = 1};
    const int32_t end = rein_tokenizer_named(reader->tokenizer).end;
    rein_chat_span spans[2];
    rein_text text = {0};
    size_t length = 0;
    const char *token = rein_tokenizer_token(&length, reader->tokenizer, end);
    rein_status status = rein_chat_render(&text, spans, &reader->chat, turns, 2, NULL, reader->err);
    if (!status && reader->chat.kind != REIN_CHAT_RAW) {
        token = text.data + spans[1].content.end;
        length = spans[1].stop - spans[1].content.end;
    }
    if (!status) status = rein_text_append(&reader->end, token ? token : "", length, reader->err);
    if (!status) status = rein_tokenizer_encode(&reader->end_ids, reader->tokenizer, reader->end.data, length, &how, reader->err);
    rein_text_free(&text);
    return status;
}

static rein_status prepare(rein_group_reader *reader, rein_fields *in) {
    rein_error why = {0};
    size_t length;
    if (reader->ready) return REIN_OK;
    if (!reader->tokenizer) return rein_group_no_tokenizer(in, messages_key(in->object));
    rein_status status = reader->given ? REIN_OK : rein_chat_of(&reader->chat, reader->tokenizer, &why);
    reader->parsed = !status && reader->chat.kind == REIN_CHAT_TEMPLATE;
    if (status == REIN_EINVAL) return rein_fields_fail(in, REIN_EINVAL, messages_key(in->object), -1, ": %s", why.message);
    const char *token = rein_tokenizer_token(&length, reader->tokenizer, rein_tokenizer_named(reader->tokenizer).begin);
    if (!status && token) status = rein_text_copy(&reader->begin, token, length, &why);
    if (status) return in->status = rein_fail_with(reader->err, status, &why);
    in->status = reader->parsed ? rein_group_find_end(reader) : find_end(reader);
    reader->ready = !in->status;
    return in->status;
}

/* ------------------------------------------------------------------------------------------------------------- the conversation */

static void close_conversation(conversation *c) {
    for (size_t i = 0; c->turns && i <= c->n; i++) rein_text_free(&c->turns[i].text), rein_text_free(&c->turns[i].bare);
    free(c->turns);
    free(c->messages);
    free(c->spans);
    json_decref(c->read);
    json_decref(c->tools);
    rein_rendered_free(&c->prompt);
    rein_text_free(&c->seen);
    rein_history_free(&c->history);
}

static rein_status allocate(conversation *c, size_t n) {
    c->turns = calloc(n + 1, sizeof *c->turns);
    c->messages = calloc(n + 1, sizeof *c->messages);
    c->spans = calloc(n + 1, sizeof *c->spans);
    c->n = n;
    c->first = 1;
    return c->turns && c->messages && c->spans ? REIN_OK : rein_no_memory(c->reader->err);
}

static void name_turn(char path[REIN_GROUP_PATH], const conversation *c, size_t i) {
    rein_group_path(path, "%s%s[%zu].", c->path, c->key, i - 1);
}

static rein_status read_turns(conversation *c, rein_fields *in, const json_t *list) {
    for (size_t i = 1; i <= c->n && !in->status; i++) {
        const json_t *object = json_array_get(list, i - 1);
        const int64_t index = (int64_t)i - 1;
        char path[REIN_GROUP_PATH];
        name_turn(path, c, i);
        if (!json_is_object(object))
            return rein_group_wrong_at(in, c->key, index, object, "an object is needed, a message or a Choice");
        in->status = rein_turn_read(&c->turns[i], c->reader, object, path);
        if (!in->status && i == 1 && c->turns[1].choice)
            rein_fields_fail(in, REIN_EINVAL, c->key, index, "is a Choice: a message is needed before it, which it answers");
    }
    return in->status;
}

static rein_status read_tools(conversation *c, rein_fields *in) {
    json_t *tools = rein_group_list(in, "tools");
    const int headed = strcmp(c->turns[1].role, "system") == 0;
    if (!in->status && json_array_size(tools)) {
        c->first = headed ? 1 : 0;
        rein_turns_put_tools(&c->turns[c->first], c->reader, tools, in);
    }
    json_decref(tools);
    return in->status;
}

/* The messages as the template reads them: of a Choice its message. */
static rein_status read_for_template(conversation *c, rein_fields *in, const json_t *list) {
    json_t *given = json_array();
    rein_error why = {0};
    rein_status status = given ? REIN_OK : REIN_ENOMEM;
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        json_t *entry = json_array_get(list, i), *inner = json_object_get(entry, "message");
        if (json_array_append(given, json_is_object(inner) ? inner : entry)) status = REIN_ENOMEM;
    }
    if (!status) status = rein_chat_messages_read(&c->read, given, &why);
    json_decref(given);
    c->tools = rein_group_list(in, "tools");
    c->variables = rein_fields_object(in, "chat_template_kwargs");
    if (in->status || !status) return in->status;
    if (status != REIN_EINVAL) return in->status = rein_fail(c->reader->err, status, "out of memory");
    return rein_fields_fail(in, REIN_EINVAL, c->key, -1, ": %s", why.message);
}

static rein_status open_conversation(conversation *c, rein_fields *in) {
    const json_t *list = json_object_get(in->object, c->key);
    if (!json_is_array(list)) return rein_fields_wrong(in, c->key, list, "an array of messages and Choices is needed");
    if (!json_array_size(list)) return rein_fields_fail(in, REIN_EINVAL, c->key, -1, "is empty: there is no message");
    if (prepare(c->reader, in)) return in->status;
    in->status = allocate(c, json_array_size(list));
    if (!in->status) read_turns(c, in, list);
    if (!in->status && c->reader->parsed) return read_for_template(c, in, list);
    if (!in->status) read_tools(c, in);
    return in->status;
}

/* ------------------------------------------------------------------------------------------------------------------- token ids */

/* 1 if a user asked something after turn i, before `stop`: then qwen3's template leaves the thinking of the turn out. A tool's
 * answer in a user's turn is not a question. */
static int is_past(const conversation *c, size_t i, size_t stop) {
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    for (size_t k = i + 1; k < stop; k++) {
        const rein_text *s = &c->turns[k].text;
        const int starts = strncmp(s->data, open, strlen(open)) == 0;
        const int ends = s->length >= strlen(close) && strcmp(s->data + s->length - strlen(close), close) == 0;
        if (!strcmp(c->turns[k].role, "user") && !(starts && ends)) return 1;
    }
    return 0;
}

/* What the tokenizer's own template reads. */
static rein_conversation given_to_template(const conversation *c) {
    return (rein_conversation){.messages = c->read, .tools = c->tools, .variables = c->variables};
}

static rein_status render_template(conversation *c, size_t stop, int generation) {
    const rein_conversation given = given_to_template(c);
    rein_rendered_free(&c->prompt);
    return rein_group_render(&c->prompt, c->reader, &given, stop - 1, generation);
}

static rein_status keep_literals(conversation *c, size_t n) {
    rein_span *literals = realloc(c->prompt.literals, (n + 1) * sizeof *literals);
    if (!literals) return rein_fail(c->reader->err, REIN_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) literals[i] = c->spans[i].content;
    c->prompt.literals = literals, c->prompt.n_literals = n;
    return REIN_OK;
}

/* The messages before `stop`. Qwen3 wrote after the end of an empty thought, unless it began one. */
static rein_status render(conversation *c, size_t stop, const rein_written *answer) {
    if (c->reader->parsed) return render_template(c, stop, answer != NULL);
    const int thinks = answer && answer->text.data && !strncmp(answer->text.data, "<think>", strlen("<think>"));
    const rein_chat_options options = {.add_generation_prompt = answer != NULL,
                                       .no_thinking = answer && c->reader->chat.kind == REIN_CHAT_QWEN3 && !thinks,
                                       .begin = c->reader->begin};
    for (size_t i = c->first; i < stop; i++) {
        const rein_text *text = c->turns[i].bare.data && is_past(c, i, stop) ? &c->turns[i].bare : &c->turns[i].text;
        c->messages[i] = (rein_message){c->turns[i].role, text->data, text->length};
    }
    rein_text_cut(&c->prompt.text, 0);
    const rein_status status = rein_chat_render(&c->prompt.text, c->spans, &c->reader->chat, c->messages + c->first,
                                                stop - c->first, &options, c->reader->err);
    return status ? status : keep_literals(c, stop - c->first);
}

/* Extends the history by the rest of the prompt, or begins a new one. */
static rein_status put_context(conversation *c) {
    const rein_text *text = &c->prompt.text;
    rein_ids ids = {0};
    rein_status status = REIN_OK;
    size_t from = c->seen.length;
    if (text->length < from || (from && memcmp(text->data, c->seen.data, from) != 0)) {
        status = rein_trajectory_append(c->trajectory, &c->history, c->reader->err);
        from = 0;
    }
    const rein_encoding how = {.add_special = !from && c->reader->chat.kind == REIN_CHAT_RAW,
                               .parse_special = 1,
                               .literals = rein_spans_after(c->prompt.literals, c->prompt.literals, c->prompt.n_literals, from),
                               .literal = c->prompt.literals};
    if (!status && (how.add_special || text->length > from))
        status = rein_tokenizer_encode(&ids, c->reader->tokenizer, text->data + from, text->length - from, &how, c->reader->err);
    if (!status) status = rein_history_extend(&c->history, ids.data, NULL, ids.count, 0, c->reader->err);
    rein_ids_free(&ids);
    return status;
}

/* By the tokenizer's own template the prompt is known first, and what was written is what the template adds to it. */
static rein_status read_by_template(rein_written *s, conversation *c, size_t i, const char *path) {
    const rein_turn *turn = &c->turns[i];
    const rein_conversation given = given_to_template(c);
    rein_rendered written = {0};
    rein_status status = render(c, i, s);
    if (!status && !rein_choice_has_ids(turn->choice)) status = rein_group_written(&written, &c->prompt, c->reader, &given, i - 1);
    if (status) { /* the template does not know where its messages come from */
        char field[REIN_GROUP_PATH];
        rein_group_path(field, "%s%s", c->path, c->key);
        rein_fail_as(c->reader->err, status, field, (int64_t)i - 1, NULL);
    } else {
        status = rein_choice_read(s, c->reader, turn->choice, path, &written, turn->plain);
    }
    rein_rendered_free(&written);
    return status;
}

/* In a named format all that was written is text; what the prompt is may depend on it. */
static rein_status read_by_format(rein_written *s, conversation *c, size_t i, const char *path) {
    const rein_turn *turn = &c->turns[i];
    rein_span all = {0, turn->text.length};
    const rein_rendered written = {.text = turn->text, .literals = &all, .n_literals = 1};
    const rein_status status = rein_choice_read(s, c->reader, turn->choice, path, &written, turn->plain);
    return status ? status : render(c, i, s);
}

/* rein serve writes into each Choice which policy sampled it. That of a trajectory is the oldest; one Choice without it, and it is unknown. */
static rein_status take_policy_step(rein_trajectory *trajectory, rein_fields *choice) {
    const int64_t step = rein_fields_integer_or(choice, "policy_step", 0, INT64_MAX, -1);
    if (step < trajectory->policy_step) trajectory->policy_step = step;
    return choice->status;
}

static rein_status put_choice(conversation *c, size_t i) {
    rein_error *err = c->reader->err;
    rein_written s = {0};
    char path[REIN_GROUP_PATH];
    name_turn(path, c, i);
    rein_fields in = rein_group_fields(c->reader, c->turns[i].choice, path);
    rein_status status = take_policy_step(c->trajectory, &in);
    if (!status) status = c->reader->parsed ? read_by_template(&s, c, i, path) : read_by_format(&s, c, i, path);
    if (!status) status = put_context(c);
    if (!status && !c->history.n && s.ids.count) status = rein_group_wrong(&in, "has no token before it that could predict it");
    if (!status) status = rein_history_extend(&c->history, s.ids.data, s.log_probs, s.ids.count, 1, err);
    rein_text_cut(&c->seen, 0);
    if (!status) status = rein_text_append(&c->seen, c->prompt.text.data, c->prompt.text.length, err);
    if (!status) status = rein_text_append(&c->seen, s.text.data, s.text.length, err);
    c->trajectory->truncated |= s.truncated;
    rein_written_free(&s);
    return status;
}

/* A conversation without a Choice is all context. */
static rein_status put_all(conversation *c, rein_fields *in) {
    size_t choices = 0;
    rein_status status = REIN_OK;
    for (size_t i = 1; i <= c->n && !status; i++) {
        if (c->turns[i].choice) status = put_choice(c, i), choices++;
    }
    if (!status && !choices) status = render(c, c->n + 1, NULL);
    if (!status && !choices) status = put_context(c);
    if (!status && !c->history.n) return rein_fields_fail(in, REIN_EINVAL, c->key, -1, ": there is no token in them");
    return status ? status : rein_trajectory_append(c->trajectory, &c->history, c->reader->err);
}

rein_status rein_art_read(rein_trajectory *trajectory, rein_group_reader *reader, const json_t *object, const char *path) {
    conversation c = {.reader = reader, .trajectory = trajectory, .path = path, .key = messages_key(object)};
    rein_fields in = rein_group_fields(reader, object, path);
    open_conversation(&c, &in);
    if (!in.status) in.status = put_all(&c, &in);
    close_conversation(&c);
    return in.status;
}
