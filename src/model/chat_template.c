/* chat_template.c - chat templates for callers: checks what is given, then template_render.c runs. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/template.h"
#include "model/tokenizer_parts.h"

struct rein_chat_template {
    rein_template parsed;
    json_t *tokens;
    rein_chat_template *for_tools; /* is run when there are tools; NULL: the same */
};

rein_status rein_chat_template_open(rein_chat_template **parsed, const char *text, size_t length, const rein_json *tokens,
                                    rein_error *err) {
    *parsed = NULL;
    if (!text) return rein_fail(err, REIN_EINVAL, "there is no chat template");
    if (tokens && !json_is_object(tokens)) return rein_fail_at(err, REIN_EINVAL, "tokens", -1, "is not an object");
    rein_chat_template *opened = calloc(1, sizeof *opened);
    if (!opened) return rein_no_memory(err);
    rein_status status = rein_template_parse(&opened->parsed, text, length, err);
    if (!status && tokens && !(opened->tokens = json_deep_copy(tokens))) status = rein_no_memory(err);
    if (status) rein_chat_template_close(opened);
    else *parsed = opened;
    return status;
}

/* The special tokens that templates read. */
static rein_status name_tokens(json_t *tokens, const rein_tokenizer *tokenizer, rein_error *err) {
    const rein_named_tokens named = rein_tokenizer_named(tokenizer);
    const struct {
        const char *name;
        int32_t id;
    } rows[] = {{"bos_token", named.begin}, {"eos_token", named.end}, {"pad_token", named.pad}, {"unk_token", named.unknown}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t length;
        const char *token = rows[i].id >= 0 ? rein_tokenizer_token(&length, tokenizer, rows[i].id) : NULL;
        if (token && json_object_set_new(tokens, rows[i].name, json_stringn_nocheck(token, length)))
            return rein_fail(err, REIN_ENOMEM, "out of memory");
    }
    return REIN_OK;
}

rein_status rein_chat_template_of(rein_chat_template **parsed, const rein_tokenizer *tokenizer, rein_error *err) {
    size_t length = 0;
    const char *text = rein_tokenizer_chat_template(&length, tokenizer);
    *parsed = NULL;
    if (!text) return rein_fail(err, REIN_END, "the tokenizer has no chat template");
    json_t *tokens = json_object();
    rein_status status = tokens ? name_tokens(tokens, tokenizer, err) : rein_fail(err, REIN_ENOMEM, "out of memory");
    if (!status) status = rein_chat_template_open(parsed, text, length, tokens, err);
    const rein_tokenizer_settings *s = &tokenizer->settings;
    if (!status && s->tool_template)
        status = rein_chat_template_open(&(*parsed)->for_tools, s->tool_template, s->tool_template_length, tokens, err);
    json_decref(tokens);
    if (status) rein_chat_template_close(*parsed), *parsed = NULL;
    return status;
}

rein_status rein_chat_of(rein_chat *chat, const rein_tokenizer *tokenizer, rein_error *err) {
    size_t length;
    const char *text = rein_tokenizer_chat_template(&length, tokenizer);
    rein_chat found = {0};
    rein_error unknown = {0};
    const rein_status status = rein_chat_recognise(&found, text, length, &unknown);
    if (status && (status != REIN_EINVAL || !text)) return rein_fail_with(err, status, &unknown);
    if (status && !tokenizer->chat)
        return rein_fail(err, REIN_EINVAL, "the chat template cannot be run: %.300s", tokenizer->chat_problem.message);
    if (status) found.kind = REIN_CHAT_TEMPLATE;
    found.run = tokenizer->chat;
    *chat = found;
    return REIN_OK;
}

static bool is_name_byte(char c) { return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Whether the template's text has the name, with no letter of another name on either side. */
int rein_chat_template_names(const rein_chat_template *parsed, const char *name) {
    const char *text = parsed->parsed.text;
    const size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at += n)
        if ((at == text || !is_name_byte(at[-1])) && !is_name_byte(at[n])) return 1;
    return parsed->for_tools && rein_chat_template_names(parsed->for_tools, name);
}

void rein_chat_template_close(rein_chat_template *parsed) {
    if (!parsed) return;
    rein_chat_template_close(parsed->for_tools);
    rein_template_free(&parsed->parsed);
    json_decref(parsed->tokens);
    free(parsed);
}

void rein_rendered_free(rein_rendered *rendered) {
    rein_text_free(&rendered->text);
    free(rendered->literals);
    free(rendered->generated);
    *rendered = (rein_rendered){0};
}

static rein_status check(const json_t *messages, const rein_template_options *o, rein_error *err) {
    if (!json_is_array(messages) || !json_array_size(messages))
        return rein_fail_at(err, REIN_EINVAL, "messages", -1, "is not an array of at least one message");
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!json_is_object(json_array_get(messages, i)))
            return rein_fail_at(err, REIN_EINVAL, "messages", (int64_t)i, "is not an object with role and content");
    if (o->tools && !json_is_array(o->tools) && !json_is_null(o->tools))
        return rein_fail_at(err, REIN_EINVAL, "tools", -1, "is not an array");
    if (o->documents && !json_is_array(o->documents) && !json_is_null(o->documents))
        return rein_fail_at(err, REIN_EINVAL, "documents", -1, "is not an array");
    if (o->variables && !json_is_object(o->variables)) return rein_fail_at(err, REIN_EINVAL, "variables", -1, "is not an object");
    if (o->date && !rein_date_valid(o->date))
        return rein_fail_at(err, REIN_EINVAL, "date", -1, "is \"%.40s\": YYYY-MM-DD is needed, with HH:MM:SS behind it or not",
                            o->date);
    return REIN_OK;
}

rein_status rein_chat_template_render(rein_rendered *rendered, const rein_chat_template *parsed, const rein_json *messages,
                                      const rein_template_options *options, rein_error *err) {
    static const rein_template_options none = {0};
    const rein_template_options *o = options ? options : &none;
    if (parsed->for_tools && o->tools && !json_is_null(o->tools)) parsed = parsed->for_tools;
    const rein_status status = check(messages, o, err);
    const rein_template_data data = {.messages = messages,
                                     .tools = o->tools,
                                     .documents = o->documents,
                                     .variables = o->variables,
                                     .tokens = parsed->tokens,
                                     .add_generation_prompt = o->add_generation_prompt != 0,
                                     .date = o->date};
    return status ? status : rein_template_render(rendered, &parsed->parsed, &data, err);
}
