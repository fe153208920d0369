/* chat_messages.c - messages as clients of OpenAI's API send them become what chat templates read: contents are texts, the arguments of tool
 * calls are objects. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "rein/tokenizer.h"

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "no memory for messages"); }

/* Parts that are texts are joined by newlines, as vLLM does; null is no text. */
static rein_status read_content(json_t **read, const json_t *content, const char *path, rein_error *err) {
    rein_text joined = {0};
    rein_status status = REIN_OK;
    if (json_is_string(content)) rein_text_put_bytes(&joined, json_string_value(content), json_string_length(content));
    else if (json_is_array(content)) {
        for (size_t i = 0; i < json_array_size(content) && !status; i++) {
            const json_t *part = json_array_get(content, i), *text = json_object_get(part, "text");
            const char *type = json_string_value(json_object_get(part, "type"));
            if (!type || strcmp(type, "text") != 0 || !json_is_string(text))
                status = rein_fail_at(err, REIN_EINVAL, path, (int64_t)i,
                                      "must be {\"type\": \"text\", \"text\": ...}: the model reads text only");
            if (i) rein_text_put(&joined, "\n");
            if (!status) rein_text_put_bytes(&joined, json_string_value(text), json_string_length(text));
        }
    } else if (content && !json_is_null(content))
        status = rein_fail_at(err, REIN_EINVAL, path, -1, "must be a text, a list of text parts, or null");
    if (!status) status = rein_text_status(&joined, err);
    if (!status && !(*read = json_stringn_nocheck(joined.data ? joined.data : "", joined.length))) status = no_memory(err);
    rein_text_free(&joined);
    return status;
}

/* Clients send the arguments of a call as the text of a JSON object. */
static rein_status read_arguments(json_t **read, const json_t *given, const char *path, size_t i, rein_error *err) {
    if (json_is_object(given)) *read = json_incref((json_t *)(uintptr_t)given);
    else if (!json_is_string(given) || !json_string_length(given)) *read = json_object();
    else if (rein_json_parse(read, json_string_value(given), json_string_length(given), NULL, REIN_JSON_NEEDS_OBJECT, NULL))
        return rein_fail_at(err, REIN_EINVAL, path, (int64_t)i, "has function.arguments that are not the text of a JSON object");
    return *read ? REIN_OK : no_memory(err);
}

static rein_status read_call(json_t *calls, const json_t *call, const char *path, size_t i, rein_error *err) {
    const json_t *function = json_object_get(call, "function"), *name = json_object_get(function, "name");
    json_t *arguments = NULL, *inner = json_object(), *outer = json_object();
    rein_status status = inner && outer ? REIN_OK : no_memory(err);
    if (!status && !json_is_string(name))
        status = rein_fail_at(err, REIN_EINVAL, path, (int64_t)i, "must have function.name, a text");
    if (!status) status = read_arguments(&arguments, json_object_get(function, "arguments"), path, i, err);
    if (!status && (json_object_set_new(outer, "type", json_string("function")) ||
                    (json_object_get(call, "id") && json_object_set(outer, "id", json_object_get(call, "id"))) ||
                    json_object_set(inner, "name", (json_t *)(uintptr_t)name) || json_object_set(inner, "arguments", arguments) ||
                    json_object_set(outer, "function", inner) || json_array_append(calls, outer)))
        status = no_memory(err);
    json_decref(arguments);
    json_decref(inner);
    json_decref(outer);
    return status;
}

static rein_status read_calls(json_t **read, const json_t *given, const char *path, rein_error *err) {
    if (!json_is_array(given)) return rein_fail_at(err, REIN_EINVAL, path, -1, "must be a list");
    *read = json_array();
    rein_status status = *read ? REIN_OK : no_memory(err);
    for (size_t i = 0; i < json_array_size(given) && !status; i++)
        status = read_call(*read, json_array_get(given, i), path, i, err);
    return status;
}

static rein_status read_field(json_t *message, const char *key, const json_t *value, size_t i, rein_error *err) {
    json_t *read = NULL;
    char path[64];
    rein_status status = REIN_OK;
    if (!strcmp(key, "role") || !strcmp(key, "content") || json_is_null(value)) return REIN_OK;
    snprintf(path, sizeof path, "messages[%zu].tool_calls", i);
    if (!strcmp(key, "tool_calls")) status = read_calls(&read, value, path, err);
    else read = json_incref((json_t *)(uintptr_t)value);
    if (!status && json_object_set(message, key, read)) status = no_memory(err);
    json_decref(read);
    return status;
}

/* What the model thought, under any of the names that are in use; NULL: nothing. */
static json_t *reasoning_of(const json_t *given) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *reasoning = json_object_get(given, names[i]);
        if (reasoning && !json_is_null(reasoning)) return reasoning;
    }
    return NULL;
}

static rein_status read_message(json_t *messages, const json_t *given, size_t i, rein_error *err) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    const char *key, *role = json_string_value(json_object_get(given, "role"));
    json_t *field, *content = NULL, *message, *reasoning = reasoning_of(given);
    char path[64];
    size_t r = 0;
    while (role && r < sizeof roles / sizeof *roles && strcmp(role, roles[r]) != 0) r++;
    if (!role || r == sizeof roles / sizeof *roles)
        return rein_fail_at(err, REIN_EINVAL, "messages", (int64_t)i,
                            "must be an object with role: system, developer, user, assistant or tool");
    snprintf(path, sizeof path, "messages[%zu].content", i);
    const int may_lack = !strcmp(role, "assistant") || !strcmp(role, "function");
    if (!may_lack && (!json_object_get(given, "content") || json_is_null(json_object_get(given, "content"))))
        return rein_fail_at(err, REIN_EINVAL, path, -1, "is missing: a text, or a list of text parts, is needed");
    if (!(message = json_object())) return no_memory(err);
    rein_status status = read_content(&content, json_object_get(given, "content"), path, err);
    if (!status && reasoning && json_object_set(message, "thinking", reasoning)) status = no_memory(err);
    if (!status && (json_object_set_new(message, "role", json_string(strcmp(role, "developer") ? role : "system")) ||
                    json_object_set(message, "content", content)))
        status = no_memory(err);
    json_object_foreach((json_t *)(uintptr_t)given, key, field) {
        if (!status) status = read_field(message, key, field, i, err);
    }
    if (!status && reasoning && json_object_set(message, "reasoning_content", reasoning)) status = no_memory(err);
    if (!status && json_array_append(messages, message)) status = no_memory(err);
    json_decref(content);
    json_decref(message);
    return status;
}

rein_status rein_chat_messages_read(rein_json **messages, const rein_json *given, rein_error *err) {
    *messages = NULL;
    if (!json_is_array(given) || !json_array_size(given))
        return rein_fail_at(err, REIN_EINVAL, "messages", -1, "must be a list of one message or more");
    json_t *read = json_array();
    rein_status status = read ? REIN_OK : no_memory(err);
    for (size_t i = 0; i < json_array_size(given) && !status; i++) status = read_message(read, json_array_get(given, i), i, err);
    if (status) json_decref(read);
    else *messages = read;
    return status;
}
