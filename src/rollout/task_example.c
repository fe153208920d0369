/* task_example.c - a JSON object as an example, whoever wrote it. What is wrong is said with its place and field.
 *
 * The object is kept whole: programs are given it as it came. The example's texts point into it, but for an answer that is a number: its
 * text is the example's own. */
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

/* A chat format shows nothing but these two: what else has a value would be lost. */
static void refuse_others(rein_fields *in) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)in->object, key, value) {
        char shown[REIN_TEXT_SHOWN];
        if (!strcmp(key, "role") || !strcmp(key, "content") || json_is_null(value)) continue;
        rein_json_quote(shown, key);
        rein_fields_wrong(in, shown, value, "a message has a role and a content, nothing else would be shown to the model");
    }
}

static void read_message(rein_message *message, rein_fields *in) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const char *role = rein_fields_string(in, "role"), *content = rein_fields_string(in, "content");
    int known = 0;
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++) known |= !strcmp(role, roles[i]);
    if (role && !known)
        rein_fields_wrong(in, "role", json_object_get(in->object, "role"), "system, user, assistant or tool is needed");
    refuse_others(in);
    if (!in->status) *message = (rein_message){.role = role, .content = content, .length = strlen(content)};
}

static rein_status read_messages(rein_example *example, rein_fields *in) {
    const json_t *list = rein_fields_array(in, "messages");
    const size_t n = json_array_size(list);
    char path[MAX_FIELD];
    if (in->status) return in->status;
    if (!n) return rein_fields_wrong(in, "messages", list, "one message or more is needed");
    rein_message *messages = calloc(n, sizeof *messages);
    if (!messages) return in->status = rein_fail(in->err, REIN_ENOMEM, "out of memory");
    example->messages = messages, example->n_messages = n;
    for (size_t i = 0; i < n && !in->status; i++) {
        const json_t *object = json_array_get(list, i);
        snprintf(path, sizeof path, "messages[%zu]%s", i, json_is_object(object) ? "." : "");
        rein_fields message = {.object = object, .file = in->file, .path = path, .err = in->err};
        if (!json_is_object(object)) return rein_fields_wrong(in, path, object, "{\"role\": ..., \"content\": ...} is needed");
        read_message(&messages[i], &message);
        in->status = message.status;
    }
    if (in->status || strcmp(messages[n - 1].role, "assistant") != 0) return in->status;
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

static void read_answer(rein_example *example, rein_fields *in) {
    const json_t *answer = json_object_get(in->object, "answer");
    char number[MAX_NUMBER], *copy;
    if (!answer || json_is_null(answer) || in->status) return;
    if (json_is_string(answer)) example->answer = json_string_value(answer);
    else if (json_is_number(answer)) {
        print_number(number, answer);
        in->status = rein_text_copy(&copy, number, strlen(number), in->err);
        example->answer = copy;
    } else rein_fields_wrong(in, "answer", answer, "a text or a number is needed");
}

rein_status rein_example_read(rein_example *example, json_t *object, const char *where, rein_error *err) {
    rein_fields in = {.object = object, .file = where, .path = "", .err = err};
    const int prompt = rein_fields_has(&in, "prompt"), messages = rein_fields_has(&in, "messages");
    *example = (rein_example){.original = json_incref(object)};
    if (prompt && messages)
        rein_fields_wrong(&in, "messages", json_object_get(object, "messages"),
                          "there is a prompt already, one of the two is needed");
    else if (!prompt && !messages) rein_fields_wrong(&in, "prompt", NULL, "a text is needed, or messages in its place");
    else if (prompt) example->prompt = rein_fields_string(&in, "prompt");
    else read_messages(example, &in);
    read_answer(example, &in);
    example->budget = rein_fields_integer_or(&in, "budget", 1, INT64_MAX, -1);
    if (in.status) rein_example_free(example);
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
