/* reward_line.c - the protocol of judges that are programs: a request is one line of JSON, an answer too, or a plain number. The step of an
 * evaluation, which is no step of training, is null.
 *
 * An answer is read in two steps, because its id tells which request it belongs to, and so how many rewards it must have. A wrong answer is
 * REIN_EIO, and the message shows the line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_file.h"
#include "base/show.h"
#include "model/unicode.h"
#include "reward.h"

enum { LINE_SHOWN = 120 };

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "no memory for a request to a program"); }

/* --------------------------------------------------------------------------------------------------------------------- requests */

/* An object that is being built; the first failure stays. */
typedef struct request {
    json_t *object;
    rein_status status;
    rein_error *err;
} request;

static void put(request *r, const char *key, json_t *value) {
    if (r->status) json_decref(value);
    else if (json_object_set_new(r->object, key, value) != 0) r->status = no_memory(r->err);
}

static void put_text(request *r, const char *key, const char *text, size_t length) {
    if (r->status) return;
    const size_t valid = rein_utf8_valid(text, length);
    if (valid < length) r->status = rein_fail(r->err, REIN_EINVAL, "the %s is not UTF-8 at byte %zu", key, valid);
    else put(r, key, json_stringn(length ? text : "", length));
}

static request begin(rein_error *err) {
    request r = {json_object(), REIN_OK, err};
    if (!r.object) r.status = no_memory(err);
    return r;
}

/* Moves an object into a list, and frees it if it had failed. */
static void append(request *to, json_t *list, request *r) {
    if (!to->status) to->status = r->status;
    if (!to->status && json_array_append(list, r->object) != 0) to->status = no_memory(to->err);
    json_decref(r->object);
}

static void put_messages(request *r, const rein_example *example) {
    json_t *list = json_array();
    if (!list && !r->status) r->status = no_memory(r->err);
    for (size_t i = 0; i < example->n_messages && !r->status; i++) {
        const rein_message *m = &example->messages[i];
        request message = begin(r->err);
        put_text(&message, "role", m->role, strlen(m->role));
        put_text(&message, "content", m->content, m->length);
        append(r, list, &message);
    }
    put(r, "messages", list);
}

static void put_question(request *r, const rein_example *example) {
    if (example->prompt) put_text(r, "prompt", example->prompt, strlen(example->prompt));
    else put_messages(r, example);
    if (example->answer) put_text(r, "answer", example->answer, strlen(example->answer));
    else put(r, "answer", json_null());
}

static void put_response(request *r, const rein_response *response) {
    put_text(r, "response", response->text, response->length);
    put(r, "tokens", json_integer((json_int_t)response->tokens));
    put(r, "truncated", json_boolean(response->truncated));
}

static void put_responses(request *r, const rein_response *responses, size_t n) {
    json_t *list = json_array();
    if (!list && !r->status) r->status = no_memory(r->err);
    for (size_t i = 0; i < n && !r->status; i++) {
        request one = begin(r->err);
        put_response(&one, &responses[i]);
        append(r, list, &one);
    }
    put(r, "responses", list);
}

/* The object as a line. Its last field is the example, which is JSON text already. Newlines in texts are escaped: it is one line. */
static rein_status put_line(char **line, const request *r, const char *example, rein_error *err) {
    static const char key[] = ", \"example\": ";
    char *object = json_dumps(r->object, 0);
    const size_t length = object ? strlen(object) - 1 : 0; /* without its } */
    *line = object ? malloc(length + strlen(key) + strlen(example) + 2) : NULL;
    if (*line) {
        memcpy(*line, object, length);
        strcpy(*line + length, key);
        strcat(strcat(*line + length, example), "}");
    }
    free(object);
    return *line ? REIN_OK : no_memory(err);
}

rein_status rein_request_line(char **line, size_t id, const rein_response *responses, size_t n, int whole_group, rein_error *err) {
    const rein_example *example = responses->example;
    request r = begin(err);
    *line = NULL;
    put(&r, "id", json_integer((json_int_t)id));
    put_question(&r, example);
    if (whole_group) put_responses(&r, responses, n);
    else put_response(&r, responses);
    put(&r, "step", responses->step > INT64_MAX ? json_null() : json_integer((json_int_t)responses->step));
    put(&r, "group", json_integer((json_int_t)responses->group));
    if (!r.status) r.status = put_line(line, &r, example->json ? example->json : "null", err);
    json_decref(r.object);
    return r.status;
}

/* ---------------------------------------------------------------------------------------------------------------------- answers */

static const char *show(char to[LINE_SHOWN], const rein_answer_line *answer) {
    return rein_show_short(to, LINE_SHOWN, answer->line, answer->length);
}

static int is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static rein_status read_object(rein_answer_line *answer, rein_error *err) {
    static const char place[] = ": line 1, ";
    char shown[LINE_SHOWN];
    rein_error cause = {0};
    const rein_status status = rein_json_file_parse(&answer->object, "", answer->line, answer->length, &cause);
    if (!status) return REIN_OK;
    if (status == REIN_ENOMEM) return rein_fail(err, status, "%s", cause.message);
    const char *what = cause.message + (strncmp(cause.message, place, strlen(place)) == 0 ? strlen(place) : 0);
    if (strstr(what, "the file ends here")) what = "the line ends inside of the object";
    while (*what == ':' || *what == ' ') what++;
    return rein_fail(err, REIN_EIO, "the answer %s is not JSON: %s", show(shown, answer), what);
}

static rein_status read_id(rein_answer_line *answer, rein_error *err) {
    char shown[LINE_SHOWN];
    const json_t *id = json_object_get(answer->object, "id");
    if (!id || json_is_null(id)) return REIN_OK;
    answer->id = json_integer_value(id);
    if (json_is_integer(id) && answer->id >= 0) return REIN_OK;
    return rein_fail(err, REIN_EIO, "the answer %s has an id that is none: that of the request is needed", show(shown, answer));
}

static rein_status read_plain(rein_answer_line *answer, rein_error *err) {
    char shown[LINE_SHOWN];
    rein_decimal number;
    const size_t length = answer->length;
    const int whole = length && rein_decimal_read(&number, answer->line, length, 0) == length;
    answer->plain = whole ? rein_decimal_value(&number) : NAN;
    if (isfinite(answer->plain)) return REIN_OK;
    if (whole) return rein_fail(err, REIN_EIO, "the answer %s is beyond the range of numbers", show(shown, answer));
    return rein_fail(err, REIN_EIO, "the answer \"%s\" is neither a finite number nor a JSON object", show(shown, answer));
}

rein_status rein_answer_read(rein_answer_line *answer, const char *line, size_t length, rein_error *err) {
    while (length && is_blank(line[length - 1])) length--;
    while (length && is_blank(*line)) line++, length--;
    *answer = (rein_answer_line){.line = line, .length = length, .id = -1};
    if (!length || *line != '{') return read_plain(answer, err);
    rein_status status = read_object(answer, err);
    if (!status) status = read_id(answer, err);
    if (status) rein_answer_free(answer);
    return status;
}

void rein_answer_free(rein_answer_line *answer) {
    json_decref(answer->object);
    answer->object = NULL;
}

static rein_status one_reward(double *reward, const rein_answer_line *answer, rein_error *err) {
    char shown[LINE_SHOWN];
    const json_t *value = json_object_get(answer->object, "reward");
    if (!value) return rein_fail(err, REIN_EIO, "the answer %s has no \"reward\"", show(shown, answer));
    if (!json_is_number(value))
        return rein_fail(err, REIN_EIO, "the answer %s has a \"reward\" that is not a number", show(shown, answer));
    *reward = json_number_value(value);
    return REIN_OK;
}

static rein_status group_rewards(double *rewards, const rein_answer_line *answer, size_t n, rein_error *err) {
    char shown[LINE_SHOWN];
    const json_t *list = json_object_get(answer->object, "rewards");
    show(shown, answer);
    if (!json_is_array(list)) return rein_fail(err, REIN_EIO, "the answer %s has no \"rewards\", a list of %zu numbers", shown, n);
    if (json_array_size(list) != n)
        return rein_fail(err, REIN_EIO, "the answer %s has %zu rewards, the group has %zu responses", shown, json_array_size(list),
                         n);
    for (size_t i = 0; i < n; i++)
        if (!json_is_number(json_array_get(list, i)))
            return rein_fail(err, REIN_EIO, "the answer %s has something at rewards[%zu] that is not a number", shown, i);
    for (size_t i = 0; i < n; i++) rewards[i] = json_number_value(json_array_get(list, i));
    return REIN_OK;
}

rein_status rein_answer_rewards(double *rewards, const rein_answer_line *answer, size_t n, int whole_group, rein_error *err) {
    if (whole_group) return group_rewards(rewards, answer, n, err);
    if (answer->object) return one_reward(rewards, answer, err);
    rewards[0] = answer->plain;
    return REIN_OK;
}
