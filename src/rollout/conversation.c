/* conversation.c - conversations as token ids: tools, tool calls and variables by the tokenizer's own template, which is run. What the model
 * would not be shown is refused by name, not dropped. */
#include "rollout/conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/unicode.h"

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "no memory for a conversation"); }

/* ---- by the template */

/* The variables with enable_thinking = false; the caller's reference, NULL: none. */
static rein_status choose_variables(json_t **chosen, const rein_chat *chat, const json_t *given, int no_thinking, rein_error *err) {
    *chosen = given ? json_copy((json_t *)(uintptr_t)given) : NULL;
    if (given && !*chosen) return no_memory(err);
    if (!no_thinking) return REIN_OK;
    if (!rein_chat_template_names(chat->run, "enable_thinking"))
        return rein_fail_at(err, REIN_EINVAL, "no_thinking", -1, "has no effect: the chat template does not read enable_thinking");
    if (!*chosen && !(*chosen = json_object())) return no_memory(err);
    return json_object_set_new(*chosen, "enable_thinking", json_false()) ? no_memory(err) : REIN_OK;
}

static rein_status run(rein_rendered *rendered, const rein_chat *chat, const json_t *messages, const rein_conversation *given,
                       int no_thinking, int generation, rein_error *err) {
    rein_template_options options = {.add_generation_prompt = generation, .tools = given->tools, .date = chat->date};
    json_t *variables = NULL;
    rein_status status = choose_variables(&variables, chat, given->variables, no_thinking, err);
    options.variables = variables;
    if (!status) status = rein_chat_template_render(rendered, chat->run, messages, &options, err);
    json_decref(variables);
    return status;
}

static json_t *plain_message(const char *role, const char *content, size_t length) {
    return json_pack("{s:s, s:o*}", "role", role, "content", json_stringn_nocheck(content, length));
}

/* The role of a message of the caller is checked here, as the named formats do. */
static rein_status check_message(const rein_message *m, size_t i, rein_error *err) {
    char field[60];
    const size_t wrong = m->role ? rein_utf8_valid(m->content, m->length) : 0;
    snprintf(field, sizeof field, "messages[%zu].%s", i, m->role ? "content" : "role");
    if (!m->role) return rein_fail_at(err, REIN_EINVAL, field, -1, "is unknown: system, user, assistant or tool is needed");
    return wrong < m->length ? rein_fail_at(err, REIN_EINVAL, field, -1, ": byte %zu is not UTF-8", wrong) : REIN_OK;
}

rein_status rein_messages_by_template(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                      const rein_message *messages, size_t n, int no_thinking, size_t max_tokens, rein_error *err) {
    const rein_conversation nothing_more = {0};
    rein_rendered rendered = {0};
    json_t *list = json_array(), *read = NULL;
    rein_status status = list ? REIN_OK : no_memory(err);
    for (size_t i = 0; i < n && !status; i++) {
        status = check_message(&messages[i], i, err);
        if (!status && json_array_append_new(list, plain_message(messages[i].role, messages[i].content, messages[i].length)))
            status = no_memory(err);
    }
    if (!status) status = rein_chat_messages_read(&read, list, err);
    if (!status) status = run(&rendered, chat, read, &nothing_more, no_thinking, 1, err);
    if (!status) status = rein_rendered_encode(ids, tokenizer, chat, &rendered, 0, max_tokens, err);
    rein_rendered_free(&rendered);
    json_decref(read);
    json_decref(list);
    return status;
}

/* ---- by a named format */

static const char *text_of(const json_t *message, const char *key) { return json_string_value(json_object_get(message, key)); }

/* Messages that have a role and a content alone. */
static rein_status by_format(rein_rendered *rendered, const rein_tokenizer *tokenizer, const rein_chat *chat,
                             const json_t *messages, int no_thinking, int generation, rein_error *err) {
    const size_t n = json_array_size(messages);
    rein_message *rows = calloc(n, sizeof *rows);
    if (!rows) return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        const json_t *message = json_array_get(messages, i);
        rows[i] = (rein_message){text_of(message, "role"), text_of(message, "content"),
                                 json_string_length(json_object_get(message, "content"))};
    }
    const rein_status status = rein_messages_render(rendered, tokenizer, chat, rows, n, no_thinking, generation, err);
    free(rows);
    return status;
}

/* ---- which of the two */

/* Fields that only say which answer belongs to which call, and those that the template names, are fine. */
static int is_read(const rein_chat *chat, const json_t *message, const char *key) {
    static const char *const thoughts[] = {"reasoning_content", "thinking", "reasoning"}; /* names for the same */
    const char *role = json_string_value(json_object_get(message, "role"));
    for (size_t i = 0; i < sizeof thoughts / sizeof *thoughts; i++)
        if (!strcmp(key, thoughts[i]))
            return rein_chat_template_names(chat->run, "reasoning_content") || rein_chat_template_names(chat->run, "thinking") ||
                   rein_chat_template_names(chat->run, "reasoning");
    if (!strcmp(key, "tool_call_id") || (!strcmp(key, "name") && role && !strcmp(role, "tool"))) return 1;
    return rein_chat_template_names(chat->run, key);
}

/* *plain is 0 if a message has more than a role and a content. */
static rein_status check_fields(int *plain, const rein_chat *chat, const json_t *messages, rein_error *err) {
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const char *key, *why = chat->run ? "the chat template does not read it" : "the chat format has no place for it here";
        char field[90];
        json_t *value;
        json_object_foreach(json_array_get(messages, i), key, value) {
            if (!strcmp(key, "role") || !strcmp(key, "content")) continue;
            *plain = 0;
            snprintf(field, sizeof field, "messages[%zu].%.50s", i, key);
            if (!chat->run || !is_read(chat, json_array_get(messages, i), key))
                return rein_fail_at(err, REIN_EINVAL, field, -1, ": %s", why);
        }
    }
    return REIN_OK;
}

rein_status rein_conversation_render(rein_rendered *rendered, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                     const rein_conversation *given, int no_thinking, int generation, rein_error *err) {
    const char *more = given->tools ? "tools" : given->variables ? "chat_template_kwargs" : NULL;
    int plain = !more && chat->kind != REIN_CHAT_TEMPLATE;
    json_t *messages = NULL;
    if (!rein_chat_name(chat)) return rein_fail_at(err, REIN_EINVAL, "chat.kind", -1, "is %d: not a chat format", (int)chat->kind);
    if (more && !chat->run)
        return rein_fail_at(err, REIN_EINVAL, more, -1,
                            "cannot be used: the chat format %s has no place for it here, a model's own template is needed",
                            rein_chat_name(chat));
    if (given->tools && !rein_chat_template_names(chat->run, "tools"))
        return rein_fail_at(err, REIN_EINVAL, "tools", -1,
                            ": the chat template does not read them, so the model would not see them");
    rein_status status = rein_chat_messages_read(&messages, given->messages, err);
    if (!status) status = check_fields(&plain, chat, messages, err);
    if (!status)
        status = plain ? by_format(rendered, tokenizer, chat, messages, no_thinking, generation, err)
                       : run(rendered, chat, messages, given, no_thinking, generation, err);
    json_decref(messages);
    return status;
}

rein_status rein_conversation_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                     const rein_conversation *given, int no_thinking, size_t max_tokens, rein_error *err) {
    rein_rendered rendered = {0};
    rein_status status = rein_conversation_render(&rendered, tokenizer, chat, given, no_thinking, 1, err);
    if (!status) status = rein_rendered_encode(ids, tokenizer, chat, &rendered, 0, max_tokens, err);
    rein_rendered_free(&rendered);
    return status;
}

/* ---- examples */

/* The messages of the example, after the system's. */
static rein_status list_messages(json_t **list, const json_t *object, const char *system, rein_error *err) {
    *list = json_copy(json_object_get(object, "messages"));
    if (!*list) return no_memory(err);
    if (system && json_array_insert_new(*list, 0, plain_message("system", system, strlen(system)))) return no_memory(err);
    return REIN_OK;
}

rein_status rein_example_by_template(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_example *example,
                                     const rein_prompting *how, rein_error *err) {
    json_t *object = NULL, *list = NULL;
    rein_status status = rein_json_parse(&object, example->json, strlen(example->json), NULL, REIN_JSON_NEEDS_OBJECT, err);
    if (!status) status = list_messages(&list, object, how->system, err);
    const json_t *variables = json_object_get(object, "chat_template_kwargs"), *tools = json_object_get(object, "tools");
    const rein_conversation given = {
        .messages = list, .tools = json_is_null(tools) ? NULL : tools, .variables = json_is_null(variables) ? NULL : variables};
    if (!status) status = rein_conversation_encode(ids, tokenizer, how->chat, &given, how->no_thinking, how->max_tokens, err);
    json_decref(object);
    json_decref(list);
    return status;
}
