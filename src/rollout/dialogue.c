/* dialogue.c - the tokens of a conversation of several turns. */
#include "dialogue.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "conversation.h"
#include "model/weights.h"
#include "task.h"
#include "trajectory.h"

void rein_dialogue_free(rein_dialogue *d) {
    json_decref(d->messages);
    json_decref(d->tools);
    json_decref(d->rewards);
    rein_text_free(&d->before);
    rein_text_free(&d->wrote);
    *d = (rein_dialogue){0};
}

rein_history *rein_dialogue_history(const rein_dialogue *d) { return &d->trajectory->histories[d->history]; }

/* ------------------------------------------------------------------------------------------------------------------ the prompt */

static rein_status render(rein_rendered *rendered, const rein_dialogue *d, const rein_rollout_options *o, int generation,
                          rein_error *err) {
    const rein_conversation conversation = {.messages = d->messages, .tools = d->tools};
    return rein_conversation_render(rendered, o->tokenizer, o->prompting.chat, &conversation, o->prompting.no_thinking, generation,
                                    err);
}

static rein_status encode(rein_ids *ids, const rein_rollout_options *o, const rein_rendered *rendered, size_t from,
                          rein_error *err) {
    return rein_rendered_encode(ids, o->tokenizer, o->prompting.chat, rendered, from, 0, err);
}

static int begins_with(const rein_text *text, const char *with, size_t length) {
    return text->length >= length && (!length || !memcmp(text->data, with, length));
}

static int same_without_blanks(const char *a, size_t a_length, const rein_text *b) {
    const char *data = b->data ? b->data : "";
    size_t length = b->length;
    rein_trim(&a, &a_length);
    rein_trim(&data, &length);
    return a_length == length && !memcmp(a, data, length);
}

/* The conversation as text, up to the end of the last turn: without the last `more` messages. */
static rein_status render_until(rein_rendered *until, const rein_dialogue *d, const rein_rollout_options *o, size_t more,
                                rein_error *err) {
    rein_dialogue shorter = *d;
    const size_t n = json_array_size(d->messages) - more;
    if (!(shorter.messages = json_array())) return rein_no_memory(err);
    int failed = 0;
    for (size_t i = 0; i < n && !failed; i++) failed = json_array_append(shorter.messages, json_array_get(d->messages, i));
    const rein_status status = failed ? rein_no_memory(err) : render(until, &shorter, o, 0, err);
    json_decref(shorter.messages);
    return status;
}

/* Where what the model wrote in its last turn ends in the text of the whole conversation; 0: the template writes it in another way. */
static rein_status end_of_turn(size_t *end, const rein_dialogue *d, const rein_rollout_options *o, const rein_rendered *whole,
                               size_t more, rein_error *err) {
    rein_rendered until = {0};
    *end = 0;
    const rein_status status = render_until(&until, d, o, more, err);
    if (!status && begins_with(&until.text, d->before.data, d->before.length)) {
        const size_t at = rein_rendered_answer_end(&until, &d->before, d->calls), from = d->before.length;
        const int same = at > from && (d->calls || same_without_blanks(until.text.data + from, at - from, &d->wrote));
        if ((same || (at == 0 && !d->wrote.length)) && begins_with(&whole->text, until.text.data, at ? at : from))
            *end = at ? at : from;
    }
    rein_rendered_free(&until);
    return status;
}

/* Appends the messages that answer to the turn. *room is 0 if the model has no place left for them. */
static rein_status continue_history(int *room, rein_dialogue *d, const rein_rollout_options *o, const rein_rendered *whole,
                                    size_t end, rein_error *err) {
    rein_history *h = rein_dialogue_history(d);
    rein_ids ids = {0};
    rein_status status = encode(&ids, o, whole, end, err);
    /* The token that ends a turn is there already, if the model sampled it. */
    const size_t skip = !status && ids.count && d->finish == REIN_FINISH_END_TOKEN && ids.data[0] == h->ids[h->n - 1];
    *room = !status && h->n + ids.count - skip < (size_t)o->policy.model->config.max_positions;
    const size_t n = h->n, length = h->text.length;
    if (*room) status = rein_history_add_given(h, &d->capacity, ids.data + skip, ids.count - skip, o->tokenizer, err);
    if (status) h->n = n, h->text.length = length;
    rein_ids_free(&ids);
    return status;
}

static rein_status begin_history(int *room, rein_dialogue *d, const rein_rollout_options *o, const rein_rendered *whole,
                                 rein_error *err) {
    rein_history history = {0};
    rein_ids ids = {0};
    rein_status status = encode(&ids, o, whole, 0, err);
    if (!status && !ids.count) status = rein_fail_at(err, REIN_EINVAL, "messages", -1, "are rendered to no tokens");
    *room = !status && ids.count < (size_t)o->policy.model->config.max_positions;
    if (*room) {
        status = rein_history_begin(&history, &d->capacity, &ids, o->sampler_log_probs, err);
        if (!status) status = rein_trajectory_append(d->trajectory, &history, err);
        if (!status) d->history = d->trajectory->n_histories - 1;
        else rein_history_free(&history);
    }
    rein_ids_free(&ids);
    return status;
}

rein_status rein_dialogue_prompt(int *room, rein_dialogue *d, const rein_rollout_options *o, size_t more, rein_error *err) {
    rein_rendered whole = {0};
    size_t end = 0;
    *room = 0;
    rein_status status = render(&whole, d, o, 1, err);
    if (!status && d->turns) status = end_of_turn(&end, d, o, &whole, more, err);
    if (!status) status = end ? continue_history(room, d, o, &whole, end, err) : begin_history(room, d, o, &whole, err);
    if (!status && *room) {
        rein_text_free(&d->before);
        rein_text_free(&d->wrote);
        d->before = whole.text, whole.text = (rein_text){0};
    }
    rein_rendered_free(&whole);
    return status;
}

/* --------------------------------------------------------------------------------------------------------------- what it wrote */

/* A message may not have NUL bytes: what a model writes may. */
static json_t *content_of(const char *text, size_t length) {
    rein_text clean = {0};
    for (size_t i = 0, n; i <= length; i += n + 1) {
        const char *nul = memchr(text + i, 0, length - i);
        n = nul ? (size_t)(nul - text) - i : length - i;
        rein_text_put_bytes(&clean, text + i, n);
        if (nul) rein_text_put(&clean, "\uFFFD");
    }
    json_t *content = clean.failed ? NULL : json_stringn_nocheck(clean.data ? clean.data : "", clean.length);
    rein_text_free(&clean);
    return content;
}

static json_t *parse_calls(const rein_text *calls) {
    rein_text list = {0};
    json_t *parsed = NULL;
    rein_text_format(&list, "[%s]", calls->data);
    if (list.failed || rein_json_parse(&parsed, list.data, list.length, NULL, 0, NULL)) parsed = NULL;
    rein_text_free(&list);
    return parsed;
}

/* What the model wrote, as a message of OpenAI's API. NULL: no memory. */
static json_t *make_message(rein_dialogue *d, const char *id) {
    rein_text calls = {0};
    const char *text = d->wrote.data ? d->wrote.data : "";
    size_t length = d->wrote.length, before;
    d->calls = d->tools && rein_tool_calls_parse(&calls, &before, text, length, id, 0);
    if (d->calls) length = before;
    json_t *message =
        json_pack("{s:s, s:o}", "role", "assistant", "content", d->calls && !length ? json_null() : content_of(text, length));
    int failed = !message || calls.failed;
    if (!failed && d->calls) failed = json_object_set_new(message, "tool_calls", parse_calls(&calls));
    rein_text_free(&calls);
    if (!failed) return message;
    json_decref(message);
    return NULL;
}

rein_status rein_dialogue_put(rein_dialogue *d, const rein_sampled *s, rein_error *err) {
    rein_status status = rein_history_add_sampled(rein_dialogue_history(d), &d->capacity, s, err);
    if (!status && s->text) status = rein_text_append(&d->wrote, s->text, s->length, err);
    if (status) return status;
    d->tokens++;
    d->finish = s->finish;
    return REIN_OK;
}

rein_status rein_dialogue_turn(const json_t **message, rein_dialogue *d, const char *id, rein_error *err) {
    json_t *made = make_message(d, id);
    *message = made;
    if (!made || json_array_append_new(d->messages, made)) return rein_no_memory(err);
    d->turns++;
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------ what is kept */

rein_status rein_dialogue_keep(rein_dialogue *d, rein_error *err) {
    rein_text text = {0};
    rein_text_put(&text, "{");
    rein_json_put_name(&text, "messages");
    rein_json_put_value(&text, d->messages);
    if (d->tools) rein_json_put_name(&text, "tools"), rein_json_put_value(&text, d->tools);
    if (d->rewards) rein_json_put_name(&text, "turn_rewards"), rein_json_put_value(&text, d->rewards);
    rein_text_put(&text, "}");
    const rein_status status = rein_text_status(&text, err);
    if (status) rein_text_free(&text);
    else d->trajectory->json = text.data;
    return status;
}

rein_status rein_dialogue_example(rein_example *example, const rein_dialogue *d, size_t n, rein_error *err) {
    json_t *messages = json_array();
    int failed = !messages;
    for (size_t i = 0; i < n && !failed; i++) failed = json_array_append(messages, json_array_get(d->messages, i));
    json_t *object = failed ? NULL : json_pack("{s:O, s:O*}", "messages", messages, "tools", d->tools);
    const rein_status status = object ? rein_example_read(example, object, "", err) : rein_no_memory(err);
    json_decref(object);
    json_decref(messages);
    return status;
}
