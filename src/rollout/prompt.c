/* prompt.c - an example's prompt as token ids. The contents of a chat are text: they never spell special tokens. A plain prompt may. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/chat.h"
#include "rollout/conversation.h"

/* The model ends its turn with what the template puts behind an assistant's content. */
rein_status rein_turn_end(int32_t *id, const rein_tokenizer *tokenizer, const rein_chat *chat, rein_error *err) {
    const rein_message turns[] = {{"user", "a", 1}, {"assistant", "b", 1}};
    rein_chat_span spans[2];
    rein_text text = {0};
    if (chat->kind == REIN_CHAT_TEMPLATE && chat->run) return rein_template_turn_end(id, tokenizer, chat, err);
    rein_status status = rein_chat_render(&text, spans, chat, turns, 2, NULL, err);
    *id = -1;
    if (!status && spans[1].stop > spans[1].content.end) {
        const char *end = text.data + spans[1].content.end;
        const size_t length = spans[1].stop - spans[1].content.end;
        *id = rein_tokenizer_id(tokenizer, end, length);
        if (*id < 0)
            status = rein_fail(err, REIN_EINVAL, "the chat format %s ends turns with %.*s, and the tokenizer has no such token",
                               rein_chat_name(chat), (int)length, end);
    }
    rein_text_free(&text);
    return status;
}

/* The begin token as a text that ends with 0; *text NULL: there is none. */
static rein_status begin_token(char **text, const rein_tokenizer *tokenizer, rein_error *err) {
    size_t length;
    const char *token = rein_tokenizer_token(&length, tokenizer, rein_tokenizer_named(tokenizer).begin);
    *text = NULL;
    if (!token) return REIN_OK;
    if (!(*text = malloc(length + 1))) return rein_no_memory(err);
    memcpy(*text, token, length);
    (*text)[length] = 0;
    return REIN_OK;
}

/* A chat of a named format as text, whose literals are the contents. */
static rein_status render(rein_rendered *rendered, const rein_chat *chat, const rein_message *messages, size_t n,
                          const rein_chat_options *options, rein_error *err) {
    rein_chat_span *spans = calloc(n, sizeof *spans);
    rendered->literals = calloc(n, sizeof *rendered->literals);
    rein_status status = spans && rendered->literals ? REIN_OK : rein_no_memory(err);
    if (!status) status = rein_chat_render(&rendered->text, spans, chat, messages, n, options, err);
    for (size_t i = 0; i < n && !status; i++) rendered->literals[rendered->n_literals++] = spans[i].content;
    free(spans);
    return status;
}

rein_status rein_messages_render(rein_rendered *rendered, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                 const rein_message *messages, size_t n, int no_thinking, int generation, rein_error *err) {
    char *begin = NULL;
    if (no_thinking && chat->kind != REIN_CHAT_QWEN3)
        return rein_fail_at(err, REIN_EINVAL, "no_thinking", -1, "is for the chat format qwen3, and this one is %s",
                            rein_chat_name(chat));
    rein_status status = begin_token(&begin, tokenizer, err);
    const rein_chat_options options = {.add_generation_prompt = generation, .no_thinking = no_thinking, .begin = begin};
    if (!status) status = render(rendered, chat, messages, n, &options, err);
    free(begin);
    return status;
}

/* A raw chat is plain text, which has its begin token from the tokenizer, not from a template. */
rein_status rein_rendered_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                 const rein_rendered *rendered, size_t from, size_t max_tokens, rein_error *err) {
    rein_span *literals = calloc(rendered->n_literals + 1, sizeof *literals);
    if (!literals) return rein_no_memory(err);
    const rein_encoding how = {.add_special = chat->kind == REIN_CHAT_RAW && !from,
                               .parse_special = 1,
                               .literal = literals,
                               .literals = rein_spans_after(literals, rendered->literals, rendered->n_literals, from),
                               .max_tokens = max_tokens};
    const rein_status status =
        rein_tokenizer_encode(ids, tokenizer, rendered->text.data + from, rendered->text.length - from, &how, err);
    free(literals);
    return status;
}

rein_status rein_messages_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                 const rein_message *messages, size_t n, int no_thinking, size_t max_tokens, rein_error *err) {
    rein_rendered rendered = {0};
    if (chat->kind == REIN_CHAT_TEMPLATE && chat->run)
        return rein_messages_by_template(ids, tokenizer, chat, messages, n, no_thinking, max_tokens, err);
    rein_status status = rein_messages_render(&rendered, tokenizer, chat, messages, n, no_thinking, 1, err);
    if (!status) status = rein_rendered_encode(ids, tokenizer, chat, &rendered, 0, max_tokens, err);
    rein_rendered_free(&rendered);
    return status;
}

/* The example's messages, after the system's; or its prompt as a user's. */
static rein_status encode_chat(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_example *example,
                               const rein_prompting *how, rein_error *err) {
    const size_t system = how->system != NULL, n = example->prompt ? 1 : example->n_messages;
    if (example->needs_template) return rein_example_by_template(ids, tokenizer, example, how, err);
    rein_message *messages = calloc(n + 1, sizeof *messages);
    if (!messages) return rein_no_memory(err);
    if (system) messages[0] = (rein_message){"system", how->system, strlen(how->system)};
    if (example->prompt) messages[system] = (rein_message){"user", example->prompt, strlen(example->prompt)};
    else memcpy(messages + system, example->messages, n * sizeof *messages);
    const rein_status status =
        rein_messages_encode(ids, tokenizer, how->chat, messages, n + system, how->no_thinking, how->max_tokens, err);
    free(messages);
    return status;
}

rein_status rein_example_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_example *example,
                                const rein_prompting *how, rein_error *err) {
    const size_t before = ids->count;
    const int chat = !example->prompt || how->chat_prompts;
    const rein_encoding plain = {.add_special = 1, .parse_special = 1, .max_tokens = how->max_tokens};
    if (chat && !how->chat)
        return rein_fail_at(err, REIN_EINVAL, "chat_format", -1, "is not set: the example has messages, which need one");
    if (how->system && (!chat || (!example->prompt && example->n_messages && !strcmp(example->messages[0].role, "system"))))
        return rein_fail_at(err, REIN_EINVAL, "system", -1,
                            chat ? "cannot be used: the example has a system message of its own"
                                 : "has no effect: the prompt is plain text, not a chat");
    const rein_status status = chat ? encode_chat(ids, tokenizer, example, how, err)
                                    : rein_tokenizer_encode(ids, tokenizer, example->prompt, strlen(example->prompt), &plain, err);
    if (!status && ids->count == before)
        return rein_fail(err, REIN_EINVAL, "the prompt is empty, and the tokenizer adds no begin token");
    return status;
}
