/* groups_art.c - a conversation in ART's form becomes token ids.
 *
 * Before each Choice the messages so far are rendered as they were for the server that sampled it, with the generation prompt. Where that
 * text begins with all that was seen and written before, the history continues; where the template writes an earlier turn differently from
 * the model, a new one begins. The parts between the borders of what was sampled are encoded one by one. What follows the last Choice does
 * not train, and is left out. */
#include <stdlib.h>
#include <string.h>

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
    rein_span *literals;
    rein_text prompt, seen; /* what the next Choice saw; the text of the history so far */
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
    const char *text = rein_tokenizer_chat_template(&length, reader->tokenizer);
    rein_status status = reader->given ? REIN_OK : rein_chat_recognise(&reader->chat, text, length, &why);
    if (status == REIN_EINVAL) return rein_group_wrong(in, "%s: %s", messages_key(in->object), why.message);
    const char *token = rein_tokenizer_token(&length, reader->tokenizer, rein_tokenizer_named(reader->tokenizer).begin);
    if (!status && token) status = rein_text_copy(&reader->begin, token, length, &why);
    if (status) return in->status = rein_fail(reader->err, status, "%s", why.message);
    in->status = find_end(reader);
    reader->ready = !in->status;
    return in->status;
}

/* ------------------------------------------------------------------------------------------------------------- the conversation */

static void close_conversation(conversation *c) {
    for (size_t i = 0; c->turns && i <= c->n; i++) rein_text_free(&c->turns[i].text), rein_text_free(&c->turns[i].bare);
    free(c->turns);
    free(c->messages);
    free(c->spans);
    free(c->literals);
    rein_text_free(&c->prompt);
    rein_text_free(&c->seen);
    rein_history_free(&c->history);
}

static rein_status allocate(conversation *c, size_t n) {
    c->turns = calloc(n + 1, sizeof *c->turns);
    c->messages = calloc(n + 1, sizeof *c->messages);
    c->spans = calloc(n + 1, sizeof *c->spans);
    c->literals = calloc(n + 1, sizeof *c->literals);
    c->n = n;
    c->first = 1;
    return c->turns && c->messages && c->spans && c->literals ? REIN_OK : rein_fail(c->reader->err, REIN_ENOMEM, "out of memory");
}

static void name_turn(char path[REIN_GROUP_PATH], const conversation *c, size_t i) {
    rein_group_path(path, "%s%s[%zu].", c->path, c->key, i - 1);
}

static rein_status read_turns(conversation *c, rein_fields *in, const json_t *list) {
    for (size_t i = 1; i <= c->n && !in->status; i++) {
        const json_t *object = json_array_get(list, i - 1);
        char path[REIN_GROUP_PATH], key[60];
        name_turn(path, c, i);
        snprintf(key, sizeof key, "%s[%zu]", c->key, i - 1);
        if (!json_is_object(object)) return rein_fields_wrong(in, key, object, "an object is needed, a message or a Choice");
        in->status = rein_turn_read(&c->turns[i], c->reader, object, path);
        if (!in->status && i == 1 && c->turns[1].choice)
            rein_group_wrong(in, "%s is a Choice: a message is needed before it, which it answers", key);
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

static rein_status open_conversation(conversation *c, rein_fields *in) {
    const json_t *list = json_object_get(in->object, c->key);
    if (!json_is_array(list)) return rein_fields_wrong(in, c->key, list, "an array of messages and Choices is needed");
    if (!json_array_size(list)) return rein_group_wrong(in, "%s is empty: there is no message", c->key);
    if (prepare(c->reader, in)) return in->status;
    in->status = allocate(c, json_array_size(list));
    if (!in->status) read_turns(c, in, list);
    if (!in->status) read_tools(c, in);
    return in->status;
}

/* ------------------------------------------------------------------------------------------------------------------- token ids */

/* 1 if a user asked something after turn i, before `stop`: then qwen3's template leaves the thinking of the turn out. What a tool answered
 * in a user's words is no question. */
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

/* The messages before `stop`. Qwen3 wrote after the end of an empty thought, unless it began one. */
static rein_status render(conversation *c, size_t stop, const rein_written *answer) {
    const int thinks = answer && answer->text.data && !strncmp(answer->text.data, "<think>", strlen("<think>"));
    const rein_chat_options options = {.add_generation_prompt = answer != NULL,
                                       .no_thinking = answer && c->reader->chat.kind == REIN_CHAT_QWEN3 && !thinks,
                                       .begin = c->reader->begin};
    for (size_t i = c->first; i < stop; i++) {
        const rein_text *text = c->turns[i].bare.data && is_past(c, i, stop) ? &c->turns[i].bare : &c->turns[i].text;
        c->messages[i] = (rein_message){c->turns[i].role, text->data, text->length};
    }
    rein_text_cut(&c->prompt, 0);
    return rein_chat_render(&c->prompt, c->spans, &c->reader->chat, c->messages + c->first, stop - c->first, &options,
                            c->reader->err);
}

/* The contents of n messages within the prompt from `from` on. */
static size_t find_literals(conversation *c, size_t n, size_t from) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        const rein_span s = c->spans[i].content;
        if (s.end > from) c->literals[found++] = (rein_span){s.begin > from ? s.begin - from : 0, s.end - from};
    }
    return found;
}

/* Extends the history by the rest of the prompt, or begins a new one. */
static rein_status put_context(conversation *c, size_t messages) {
    rein_ids ids = {0};
    rein_status status = REIN_OK;
    size_t from = c->seen.length;
    if (c->prompt.length < from || (from && memcmp(c->prompt.data, c->seen.data, from) != 0)) {
        status = rein_trajectory_append(c->trajectory, &c->history, c->reader->err);
        from = 0;
    }
    const rein_encoding how = {.add_special = !from && c->reader->chat.kind == REIN_CHAT_RAW,
                               .parse_special = 1,
                               .literal = c->literals,
                               .literals = find_literals(c, messages, from)};
    if (!status && (how.add_special || c->prompt.length > from))
        status =
            rein_tokenizer_encode(&ids, c->reader->tokenizer, c->prompt.data + from, c->prompt.length - from, &how, c->reader->err);
    if (!status) status = rein_history_extend(&c->history, ids.data, NULL, ids.count, 0, c->reader->err);
    rein_ids_free(&ids);
    return status;
}

static rein_status put_choice(conversation *c, size_t i) {
    const rein_turn *turn = &c->turns[i];
    rein_error *err = c->reader->err;
    rein_written s = {0};
    char path[REIN_GROUP_PATH];
    name_turn(path, c, i);
    rein_fields in = rein_group_fields(c->reader, turn->choice, path);
    rein_status status = rein_choice_read(&s, c->reader, turn->choice, path, &turn->text, turn->plain);
    if (!status) status = render(c, i, &s);
    if (!status) status = put_context(c, i - c->first);
    if (!status && !c->history.n && s.ids.count) status = rein_group_wrong(&in, " has no token before it that could predict it");
    if (!status) status = rein_history_extend(&c->history, s.ids.data, s.log_probs, s.ids.count, 1, err);
    rein_text_cut(&c->seen, 0);
    if (!status) status = rein_text_append(&c->seen, c->prompt.data, c->prompt.length, err);
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
    if (!status && !choices) status = put_context(c, c->n + 1 - c->first);
    if (!status && !c->history.n) return rein_group_wrong(in, "%s: there is no token in them", c->key);
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
