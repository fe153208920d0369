/* groups_template.c - conversations by the tokenizer's own template, which is run: what the model saw before a turn is the template's text of
 * the messages before it, with the generation prompt, as the server that sampled the turn had it. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/chat.h"
#include "train/groups.h"

static rein_status slice(json_t **some, const json_t *messages, size_t n, rein_error *err) {
    *some = json_array();
    for (size_t i = 0; *some && i < n; i++)
        if (json_array_append(*some, json_array_get(messages, i))) {
            json_decref(*some);
            *some = NULL;
        }
    return *some ? REIN_OK : rein_fail(err, REIN_ENOMEM, "out of memory");
}

rein_status rein_group_render(rein_rendered *rendered, const rein_group_reader *reader, const rein_conversation *conversation,
                              size_t n, int generation) {
    const rein_template_options options = {.add_generation_prompt = generation,
                                           .tools = conversation->tools,
                                           .variables = conversation->variables,
                                           .date = reader->chat.date};
    json_t *some;
    rein_status status = slice(&some, conversation->messages, n, reader->err);
    if (!status) status = rein_chat_template_render(rendered, reader->chat.run, some, &options, reader->err);
    json_decref(some);
    return status;
}

/* Where the turn ends in the text: at the end token, which no content can spell. */
static size_t end_of_turn(const rein_rendered *whole, size_t from, const rein_text *end) {
    const size_t data = whole->n_literals ? whole->literals[whole->n_literals - 1].end : 0;
    const char *found = end->length ? strstr(whole->text.data + (data > from ? data : from), end->data) : NULL;
    return found ? (size_t)(found - whole->text.data) : whole->text.length;
}

/* The prompt becomes what stands before the text that the template marks as the model's. */
static rein_status cut_prompt(rein_rendered *prompt, const rein_rendered *whole, size_t from, rein_error *err) {
    rein_rendered cut = {0};
    rein_status status = rein_text_append(&cut.text, whole->text.data, from, err);
    cut.literals = malloc((whole->n_literals + 1) * sizeof *cut.literals);
    if (!status && !cut.literals) status = rein_fail(err, REIN_ENOMEM, "out of memory");
    for (size_t i = 0; i < whole->n_literals && !status && whole->literals[i].begin < from; i++) {
        const rein_span s = whole->literals[i];
        cut.literals[cut.n_literals++] = (rein_span){s.begin, s.end < from ? s.end : from};
    }
    if (status) rein_rendered_free(&cut);
    else rein_rendered_free(prompt), *prompt = cut;
    return status;
}

static int begins_with(const rein_text *text, const rein_text *with) {
    return text->length >= with->length && (!with->length || !memcmp(text->data, with->data, with->length));
}

/* Copies a part of the text with its literals. */
static rein_status take_part(rein_rendered *part, const rein_rendered *whole, size_t from, size_t to, rein_error *err) {
    const rein_status status = rein_text_append(&part->text, whole->text.data + from, to - from, err);
    part->literals = malloc((whole->n_literals + 1) * sizeof *part->literals);
    if (status || !part->literals) return status ? status : rein_fail(err, REIN_ENOMEM, "out of memory");
    part->n_literals = rein_spans_after(part->literals, whole->literals, whole->n_literals, from);
    return REIN_OK;
}

rein_status rein_group_written(rein_rendered *written, rein_rendered *prompt, const rein_group_reader *reader,
                               const rein_conversation *conversation, size_t n) {
    rein_rendered whole = {0};
    rein_status status = rein_group_render(&whole, reader, conversation, n + 1, 0);
    const size_t marked = whole.n_generated ? whole.generated[whole.n_generated - 1].begin : 0;
    const size_t from = whole.n_generated ? marked : prompt->text.length;
    if (!status && whole.n_generated) status = cut_prompt(prompt, &whole, marked, reader->err);
    if (!status && !begins_with(&whole.text, &prompt->text))
        status = rein_fail(reader->err, REIN_EINVAL,
                           "the chat template writes a turn differently from its generation prompt: give the sampled tokens "
                           "(logprobs with token ids)");
    if (!status) status = take_part(written, &whole, from, end_of_turn(&whole, from, &reader->end), reader->err);
    rein_rendered_free(&whole);
    return status;
}

rein_status rein_group_find_end(rein_group_reader *reader) {
    int32_t id;
    const rein_status status = rein_template_turn_end(&id, reader->tokenizer, &reader->chat, reader->err);
    if (status || id < 0) return status;
    size_t length = 0;
    const char *token = rein_tokenizer_token(&length, reader->tokenizer, id);
    const rein_status appended = rein_ids_append(&reader->end_ids, id, reader->err);
    return appended ? appended : rein_text_append(&reader->end, token ? token : "", length, reader->err);
}
