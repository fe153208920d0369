/* task_example.c - a JSON object of a file or a program as an example. Errors name the place and the field.
 *
 * The texts are borrowed from the object while it is read, and copied into the memory of the example in the end, with the object as text:
 * programs are given it whole. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "model/tokenizer_parts.h"
#include "task.h"

enum { MAX_FIELD = 64, MAX_NUMBER = 40 };

/* ------------------------------------------------------------------------------------------------------------------------ lines */

rein_status rein_example_parse(json_t **object, const char *where, const char *text, size_t length, rein_error *err) {
    return rein_json_parse(object, text, length, where, REIN_JSON_NEEDS_OBJECT | REIN_JSON_ONE_LINE, err);
}

/* --------------------------------------------------------------------------------------------------------------------- messages */

/* A role as a static text, so that only contents need memory; NULL: unknown. */
static const char *known_role(const char *role) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(role, roles[i])) return roles[i];
    return NULL;
}

static void read_message(rein_message *message, rein_fields *in) {
    const char *role = rein_fields_string(in, "role"), *content = rein_fields_string(in, "content"), *known = known_role(role);
    if (role && !known)
        rein_fields_wrong(in, "role", json_object_get(in->object, "role"), "system, user, assistant or tool is needed");
    if (!in->status) *message = (rein_message){.role = known, .content = content, .length = strlen(content)};
}

/* 1 if a message has more than a role and a text: only the tokenizer's own template can show that to the model. */
static int has_more(const json_t *message) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)message, key, value) {
        if (strcmp(key, "role") != 0 && strcmp(key, "content") != 0 && !json_is_null(value)) return 1;
    }
    return 0;
}

static int needs_template(const json_t *object) {
    const json_t *messages = json_object_get(object, "messages"), *tools = json_object_get(object, "tools"),
                 *variables = json_object_get(object, "chat_template_kwargs");
    int needs = (tools && !json_is_null(tools)) || (variables && !json_is_null(variables));
    for (size_t i = 0; i < json_array_size(messages) && !needs; i++) needs = has_more(json_array_get(messages, i));
    return needs;
}

/* Messages for a template, of which judges and reports see the texts. `read` holds them; the caller frees it. */
static rein_status view_messages(rein_message *messages, json_t **read, rein_fields *in) {
    rein_error why = {0};
    rein_fields_array(in, "tools");
    rein_fields_object(in, "chat_template_kwargs");
    if (in->status) return in->status;
    const rein_status status = rein_chat_messages_read(read, json_object_get(in->object, "messages"), &why);
    if (status == REIN_EINVAL) return rein_fields_fail(in, REIN_EINVAL, "messages", -1, ": %s", why.message);
    if (status) return in->status = rein_no_memory(in->err);
    for (size_t i = 0; i < json_array_size(*read); i++) {
        const json_t *message = json_array_get(*read, i), *content = json_object_get(message, "content");
        const char *role = known_role(json_string_value(json_object_get(message, "role")));
        messages[i] = (rein_message){role ? role : "tool", json_string_value(content), json_string_length(content)};
    }
    return REIN_OK;
}

static void read_plain(rein_message *messages, const json_t *list, rein_fields *in) {
    char path[MAX_FIELD];
    for (size_t i = 0; i < json_array_size(list) && !in->status; i++) {
        const json_t *object = json_array_get(list, i);
        snprintf(path, sizeof path, "messages[%zu]%s", i, json_is_object(object) ? "." : "");
        rein_fields message = {.object = object, .file = in->file, .path = path, .err = in->err};
        if (!json_is_object(object)) rein_fields_wrong(in, path, object, "{\"role\": ..., \"content\": ...} is needed");
        if (!in->status) read_message(&messages[i], &message), in->status = message.status;
    }
}

static rein_status read_messages(rein_example *example, rein_message **messages, json_t **read, rein_fields *in) {
    const json_t *list = rein_fields_array(in, "messages");
    const size_t n = json_array_size(list);
    char path[MAX_FIELD];
    if (in->status) return in->status;
    if (!n) return rein_fields_wrong(in, "messages", list, "one message or more is needed");
    *messages = calloc(n, sizeof **messages);
    if (!*messages) return in->status = rein_no_memory(in->err);
    example->n_messages = n;
    if ((example->needs_template = needs_template(in->object))) view_messages(*messages, read, in);
    else read_plain(*messages, list, in);
    if (in->status || strcmp((*messages)[n - 1].role, "assistant") != 0) return in->status;
    snprintf(path, sizeof path, "messages[%zu].role", n - 1);
    return rein_fields_wrong(in, path, json_object_get(json_array_get(list, n - 1), "role"),
                             "the last message is what the policy answers to");
}

/* --------------------------------------------------------------------------------------------------------------------- examples */

/* As few digits as read back as the same number; a point, where the file had one. */
static void print_number(char to[MAX_NUMBER], const json_t *number) {
    if (json_is_integer(number)) {
        snprintf(to, MAX_NUMBER, "%" JSON_INTEGER_FORMAT, json_integer_value(number));
        return;
    }
    const double x = json_real_value(number);
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(to, MAX_NUMBER, "%.*g", digits, x);
        if (strtod(to, NULL) == x) break;
    }
    if (!strpbrk(to, ".e")) strcat(to, ".0");
}

/* The answer as a text, borrowed or in `number`; NULL: there is none. */
static const char *read_answer(char number[MAX_NUMBER], rein_fields *in) {
    const json_t *answer = json_object_get(in->object, "answer");
    if (!answer || json_is_null(answer) || in->status) return NULL;
    if (json_is_string(answer)) return json_string_value(answer);
    if (!json_is_number(answer)) rein_fields_wrong(in, "answer", answer, "a text or a number is needed");
    else print_number(number, answer);
    return in->status ? NULL : number;
}

static size_t size_of(const char *text) { return text ? strlen(text) + 1 : 0; }

/* Copies a text to *at and moves that behind it; NULL stays NULL. */
static const char *keep(char **at, const char *text) {
    char *copy = *at;
    if (!text) return NULL;
    strcpy(copy, text);
    *at += strlen(text) + 1;
    return copy;
}

/* The same example in memory of its own: the messages, then the texts. */
static rein_status copy_example(rein_example *to, const rein_example *from, rein_error *err) {
    const size_t n = from->n_messages;
    size_t size = n * sizeof(rein_message) + size_of(from->prompt) + size_of(from->answer) + size_of(from->json) + 1;
    for (size_t i = 0; i < n; i++) size += from->messages[i].length + 1;
    void *memory = malloc(size);
    if (!memory) return rein_no_memory(err);
    rein_message *messages = memory;
    char *at = (char *)memory + n * sizeof *messages;
    *to = (rein_example){.n_messages = n,
                         .budget = from->budget,
                         .messages = n ? messages : NULL,
                         .memory = memory,
                         .needs_template = from->needs_template};
    for (size_t i = 0; i < n; i++) {
        messages[i] = from->messages[i];
        messages[i].content = keep(&at, from->messages[i].content);
    }
    to->prompt = keep(&at, from->prompt);
    to->answer = keep(&at, from->answer);
    to->json = keep(&at, from->json);
    return REIN_OK;
}

void rein_example_free(rein_example *example) {
    free(example->memory);
    *example = (rein_example){0};
}

rein_status rein_example_read(rein_example *example, json_t *object, const char *where, rein_error *err) {
    rein_fields in = {.object = object, .file = where, .path = "", .err = err};
    const char *name = !rein_fields_has(&in, "prompt") && rein_fields_has(&in, "question") ? "question" : "prompt";
    const int prompt = rein_fields_has(&in, name), chat = rein_fields_has(&in, "messages");
    rein_message *messages = NULL;
    rein_example read = {0};
    json_t *viewed = NULL;
    char number[MAX_NUMBER];
    *example = (rein_example){0};
    if (prompt && chat)
        rein_fields_wrong(&in, "messages", json_object_get(object, "messages"),
                          "there is a prompt already, one of the two is needed");
    else if (!prompt && !chat) rein_fields_wrong(&in, "prompt", NULL, "a text is needed, or messages in its place");
    else if (prompt) read.prompt = rein_fields_string(&in, name);
    else read_messages(&read, &messages, &viewed, &in);
    read.messages = messages;
    read.answer = read_answer(number, &in);
    read.budget = rein_fields_integer_or(&in, "budget", 1, INT64_MAX, -1);
    rein_text json = {0};
    rein_json_put_value(&json, object);
    if (!in.status) in.status = rein_text_status(&json, err);
    read.json = json.data;
    if (!in.status) in.status = copy_example(example, &read, err);
    rein_text_free(&json);
    json_decref(viewed);
    free(messages);
    return in.status;
}

/* No text has a NUL inside: it can stand between them. */
rein_status rein_example_hash(uint64_t *hash, const rein_example *example, rein_error *err) {
    rein_text text = {0};
    rein_status status = REIN_OK;
    if (example->prompt) {
        *hash = rein_hash(example->prompt, strlen(example->prompt));
        return REIN_OK;
    }
    for (size_t i = 0; i < example->n_messages && !status; i++) {
        const rein_message *m = &example->messages[i];
        status = rein_text_append(&text, m->role, strlen(m->role) + 1, err);
        if (!status) status = rein_text_append(&text, m->content, m->length + 1, err);
    }
    *hash = rein_hash(text.data, text.length);
    rein_text_free(&text);
    return status;
}
