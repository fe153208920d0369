/* reward_line.c - the protocol of judges that are programs: a request is one line of JSON, an answer too, or a plain number. The step of an
 * evaluation, which is not a step of training, is null.
 *
 * An answer is read in two steps, because its id tells which request it belongs to, and so how many rewards it must have. A wrong answer is
 * REIN_EIO, and the message shows the line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"
#include "base/show.h"
#include "base/text.h"
#include "model/unicode.h"
#include "reward.h"

enum { LINE_SHOWN = 120 };

/* --------------------------------------------------------------------------------------------------------------------- requests */

static rein_status put_text(rein_text *line, const char *key, const char *text, size_t length, rein_error *err) {
    const size_t valid = rein_utf8_valid(text, length);
    if (valid < length) return rein_fail(err, REIN_EINVAL, "the %s is not UTF-8 at byte %zu", key, valid);
    rein_json_put_name(line, key);
    rein_json_put_bytes(line, length ? text : "", length);
    return REIN_OK;
}

static rein_status put_messages(rein_text *line, const rein_example *example, rein_error *err) {
    rein_status status = REIN_OK;
    rein_json_put_name(line, "messages");
    rein_text_put(line, "[");
    for (size_t i = 0; i < example->n_messages && !status; i++) {
        const rein_message *m = &example->messages[i];
        rein_text_put(line, i ? ", {" : "{");
        status = put_text(line, "role", m->role, strlen(m->role), err);
        if (!status) status = put_text(line, "content", m->content, m->length, err);
        rein_text_put(line, "}");
    }
    rein_text_put(line, "]");
    return status;
}

static rein_status put_question(rein_text *line, const rein_example *example, rein_error *err) {
    const rein_status status = example->prompt ? put_text(line, "prompt", example->prompt, strlen(example->prompt), err)
                                               : put_messages(line, example, err);
    if (status) return status;
    if (example->answer) return put_text(line, "answer", example->answer, strlen(example->answer), err);
    rein_json_put_name(line, "answer");
    rein_text_put(line, "null");
    return REIN_OK;
}

static rein_status put_response(rein_text *line, const rein_response *response, rein_error *err) {
    const rein_status status = put_text(line, "response", response->text, response->length, err);
    rein_json_put_name(line, "tokens");
    rein_text_format(line, "%zu", response->tokens);
    rein_json_put_name(line, "truncated");
    rein_text_put(line, response->truncated ? "true" : "false");
    return status;
}

static rein_status put_responses(rein_text *line, const rein_response *responses, size_t n, rein_error *err) {
    rein_status status = REIN_OK;
    rein_json_put_name(line, "responses");
    rein_text_put(line, "[");
    for (size_t i = 0; i < n && !status; i++) {
        rein_text_put(line, i ? ", {" : "{");
        status = put_response(line, &responses[i], err);
        rein_text_put(line, "}");
    }
    rein_text_put(line, "]");
    return status;
}

/* Step, group, and the whole example, which is JSON already. */
static void put_rest(rein_text *line, const rein_response *response) {
    rein_json_put_name(line, "step");
    if (response->step < 0) rein_text_put(line, "null");
    else rein_text_format(line, "%lld", (long long)response->step);
    rein_json_put_name(line, "group");
    rein_text_format(line, "%zu", response->group);
    rein_json_put_name(line, "example");
    rein_text_put(line, response->example->json ? response->example->json : "null");
}

/* Newlines in texts are escaped: it is one line. */
rein_status rein_request_line(char **line, size_t id, const rein_response *responses, size_t n, int whole_group, rein_error *err) {
    rein_text text = {0};
    rein_text_format(&text, "{\"id\": %zu", id);
    rein_status status = put_question(&text, responses->example, err);
    if (!status) status = whole_group ? put_responses(&text, responses, n, err) : put_response(&text, responses, err);
    put_rest(&text, responses);
    rein_text_put(&text, "}");
    if (!status) status = rein_text_status(&text, err);
    if (status) rein_text_free(&text);
    *line = text.data;
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------------- answers */

static const char *show(char to[LINE_SHOWN], const rein_answer_line *answer) {
    return rein_show_short(to, LINE_SHOWN, answer->line, answer->length);
}

static rein_status read_object(rein_answer_line *answer, rein_error *err) {
    char shown[LINE_SHOWN];
    rein_error cause = {0};
    const rein_status status =
        rein_json_parse(&answer->object, answer->line, answer->length, NULL, REIN_JSON_NEEDS_OBJECT | REIN_JSON_ONE_LINE, &cause);
    if (!status) return REIN_OK;
    if (status == REIN_ENOMEM) return rein_fail_with(err, status, &cause);
    return rein_fail(err, REIN_EIO, "the answer %s is not JSON: %s", show(shown, answer), cause.message);
}

static rein_status read_id(rein_answer_line *answer, rein_error *err) {
    char shown[LINE_SHOWN];
    const json_t *id = json_object_get(answer->object, "id");
    if (!id || json_is_null(id)) return REIN_OK;
    answer->id = json_integer_value(id);
    if (json_is_integer(id) && answer->id >= 0) return REIN_OK;
    return rein_fail(err, REIN_EIO, "the answer %s has an invalid id: the id of the request is needed", show(shown, answer));
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
    rein_trim(&line, &length);
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
