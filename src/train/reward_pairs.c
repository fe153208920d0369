/* reward_pairs.c - pairs for a reward model: what pairs.c reads, as the tokens that are scored (rollout/reward_text.c). Nothing of an answer trains
 * by itself: the score at the last token does, which alone is in the mask. */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "rollout/reward_text.h"
#include "train/sft.h"

static const json_t *list_of(const json_t *example, const char *key) {
    const json_t *value = json_object_get(example, key);
    return json_is_null(value) ? NULL : value;
}

/* The format is found once: the reader keeps it. */
static rein_status find_chat(rein_sft_reader *reader, const char *name, rein_fields *in) {
    rein_error why = {0};
    if (reader->group.given) return REIN_OK;
    const rein_status status = rein_chat_of(&reader->group.chat, reader->group.tokenizer, &why);
    reader->group.given = !status;
    if (status == REIN_EINVAL) return rein_fields_fail(in, REIN_EINVAL, name, -1, ": %s", why.message);
    return in->status = status ? rein_fail_with(in->err, status, &why) : REIN_OK;
}

/* A message of the prompt may have "weight" here, which trains nothing. */
static json_t *without_weights(const json_t *messages) {
    json_t *list = json_array(), *message;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)messages, i, message) {
        json_t *copy = json_is_object(message) ? rein_json_copy(message) : json_incref(message);
        if (copy && json_is_object(copy)) json_object_del(copy, "weight");
        if (!copy || json_array_append_new(list, copy)) return json_decref(list), NULL;
    }
    return list;
}

static rein_status encode_chat(rein_ids *ids, rein_sft_reader *reader, const json_t *example, const char *name, rein_fields *in) {
    json_t *messages = without_weights(json_object_get(example, "messages"));
    const rein_conversation conversation = {
        .messages = messages, .tools = list_of(in->object, "tools"), .variables = list_of(in->object, "chat_template_kwargs")};
    rein_error why = {0};
    if (!messages) return in->status = rein_no_memory(in->err);
    rein_status status = find_chat(reader, name, in);
    if (!status) {
        status = rein_reward_chat_encode(ids, reader->group.tokenizer, &reader->group.chat, &conversation, 0, &why);
        if (status == REIN_EINVAL) rein_fields_fail(in, REIN_EINVAL, name, -1, ": %s", why.message);
        else if (status) in->status = rein_fail_with(in->err, status, &why);
    }
    json_decref(messages);
    return in->status;
}

static rein_status encode_text(rein_ids *ids, rein_sft_reader *reader, const char *prompt, const char *answer, const char *name,
                               rein_fields *in) {
    rein_error why = {0};
    const rein_status status =
        rein_reward_text_encode(ids, reader->group.tokenizer, prompt, answer, strlen(answer), 0, reader->end_id, 0, &why);
    if (status == REIN_EINVAL) return rein_fields_fail(in, REIN_EINVAL, name, -1, ": %s", why.message);
    return in->status = status ? rein_fail_with(in->err, status, &why) : REIN_OK;
}

/* The tokens of the prompt alone, to say whether it leaves no room. */
static size_t count_prompt(rein_sft_reader *reader, const json_t *example) {
    const char *prompt = json_string_value(json_object_get(example, "prompt"));
    const rein_encoding how = {.add_special = 1, .parse_special = 1};
    rein_ids ids = {0};
    size_t n = 0;
    if (prompt && !rein_tokenizer_encode(&ids, reader->group.tokenizer, prompt, strlen(prompt), &how, NULL)) n = ids.count;
    rein_ids_free(&ids);
    return n;
}

static rein_status check_room(rein_sft_reader *reader, const json_t *example, size_t tokens, const char *name, rein_fields *in) {
    if (tokens < 2) return rein_fields_fail(in, REIN_EINVAL, name, -1, "and its prompt are one token: two or more are needed");
    if (reader->positions <= 0 || (int64_t)tokens <= reader->positions) return REIN_OK;
    const size_t prompt = count_prompt(reader, example);
    if ((int64_t)prompt >= reader->positions)
        return rein_fields_fail(in, REIN_EINVAL, "prompt", -1,
                                "has %zu tokens and leaves no room for an answer: the model has %lld positions", prompt,
                                (long long)reader->positions);
    return rein_fields_fail(in, REIN_EINVAL, name, -1, "has %zu tokens with its prompt: the model has %lld positions", tokens,
                            (long long)reader->positions);
}

rein_status rein_reward_read_answer(rein_trajectory *t, rein_sft_reader *reader, const json_t *example, const char *name,
                                    rein_fields *in) {
    rein_ids ids = {0};
    rein_history h = {0};
    const json_t *messages = json_object_get(example, "messages");
    if (!reader->group.tokenizer) return rein_group_no_tokenizer(in, name);
    if (messages) encode_chat(&ids, reader, example, name, in);
    else
        encode_text(&ids, reader, json_string_value(json_object_get(example, "prompt")),
                    json_string_value(json_object_get(example, "completion")), name, in);
    if (!in->status) check_room(reader, example, ids.count, name, in);
    if (!in->status) in->status = rein_history_extend(&h, ids.data, NULL, ids.count - 1, 0, in->err);
    if (!in->status) in->status = rein_history_extend(&h, ids.data + ids.count - 1, NULL, 1, 1, in->err);
    if (!in->status) in->status = rein_trajectory_append(t, &h, in->err);
    rein_history_free(&h);
    rein_ids_free(&ids);
    return in->status;
}

rein_status rein_reward_read_margin(rein_trajectory *t, rein_fields *in) {
    const json_t *margin = json_object_get(in->object, "margin");
    if (!margin || json_is_null(margin)) return REIN_OK;
    if (!json_is_number(margin)) return rein_fields_wrong(in, "margin", margin, "a number is needed");
    return in->status = rein_trajectory_set_metric(t, REIN_MARGIN, json_number_value(margin), in->err);
}
