/* sft.c - supervised data: lines into groups of one trajectory, and the order in which an epoch goes through them.
 *
 * A chat is read as a trajectory whose assistant's turns were all sampled (groups_art.c): so trained tokens follow what the model would have
 * seen. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "rollout/task.h"
#include "train/sft.h"

/* ----------------------------------------------------------------------------------------------------------------------- a chat */

/* OpenAI's weight of a message is 0 or 1. */
static int is_wanted(rein_fields *in, const json_t *message, size_t i) {
    const json_t *weight = json_object_get(message, "weight");
    const double w = weight ? json_number_value(weight) : 1;
    char key[60];
    snprintf(key, sizeof key, "messages[%zu].weight", i);
    if (weight && (!json_is_number(weight) || (w != 0 && w != 1))) rein_fields_wrong(in, key, weight, "0 or 1 is needed");
    return w != 0;
}

/* Marks what trains, as rows of ART's files do: a turn that the model ended itself. */
static rein_status mark_turns(rein_fields *in, json_t *messages) {
    size_t i, marked = 0;
    json_t *message;
    json_array_foreach(messages, i, message) {
        const char *role = json_string_value(json_object_get(message, "role"));
        const int assistant = role && !strcmp(role, "assistant") && is_wanted(in, message, i);
        if (!json_is_object(message)) continue; /* the reader reports it */
        json_object_del(message, "trainable");
        json_object_del(message, "logprobs");
        if (!assistant) continue;
        if (json_object_set_new(message, "trainable", json_true()) ||
            json_object_set_new(message, "finish_reason", json_string("stop")))
            return in->status = rein_no_memory(in->err);
        marked++;
    }
    if (!in->status && !marked && json_array_size(messages))
        rein_fields_fail(in, REIN_EINVAL, "messages", -1, "has no turn of an assistant that trains: there is nothing to learn");
    return in->status;
}

static rein_status read_chat(rein_trajectory *t, rein_sft_reader *reader, rein_fields *in) {
    json_t *messages = json_object_get(in->object, "messages");
    if (!json_is_array(messages)) return rein_fields_wrong(in, "messages", messages, "an array of messages is needed");
    if (mark_turns(in, messages)) return in->status;
    return in->status = rein_art_read(t, &reader->group, in->object, "");
}

/* ---------------------------------------------------------------------------------------------------------- a prompt and its answer */

static rein_status encode(rein_ids *ids, rein_sft_reader *reader, rein_fields *in, const char *key, int part) {
    const rein_encoding how = {.add_special = !part, .parse_special = 1};
    const char *text = rein_fields_string(in, key);
    rein_error why = {0};
    if (in->status) return in->status;
    const rein_status status = rein_tokenizer_encode(ids, reader->group.tokenizer, text, strlen(text), &how, &why);
    if (status == REIN_EINVAL) return rein_fields_fail(in, REIN_EINVAL, key, -1, ": %s", why.message);
    return in->status = status ? rein_fail_with(in->err, status, &why) : REIN_OK;
}

/* Without a token before it, the first one of the completion cannot train. */
static rein_status read_texts(rein_trajectory *t, rein_sft_reader *reader, rein_fields *in) {
    rein_ids prompt = {0}, answer = {0};
    rein_history h = {0};
    rein_error *err = in->err;
    if (!reader->group.tokenizer) return rein_group_no_tokenizer(in, "prompt");
    encode(&prompt, reader, in, "prompt", 0);
    encode(&answer, reader, in, "completion", 1);
    if (!in->status && !answer.count && reader->end_id < 0)
        rein_fields_fail(in, REIN_EINVAL, "completion", -1, "has no token: nothing would train");
    const size_t seen = !prompt.count && answer.count ? 1 : 0;
    if (!in->status) in->status = rein_history_extend(&h, prompt.data, NULL, prompt.count, 0, err);
    if (!in->status && seen) in->status = rein_history_extend(&h, answer.data, NULL, seen, 0, err);
    if (!in->status && answer.count > seen)
        in->status = rein_history_extend(&h, answer.data + seen, NULL, answer.count - seen, 1, err);
    const int spelled = answer.count && answer.data[answer.count - 1] == reader->end_id;
    if (!in->status && reader->end_id >= 0 && !spelled)
        in->status = rein_history_extend(&h, &reader->end_id, NULL, 1, h.n > 0, err);
    if (!in->status) in->status = rein_trajectory_append(t, &h, err);
    rein_history_free(&h);
    rein_ids_free(&prompt);
    rein_ids_free(&answer);
    return in->status;
}

/* ------------------------------------------------------------------------------------------------------------------------ lines */

static rein_status read_kind(rein_trajectory *t, rein_sft_reader *reader, rein_fields *in) {
    const int chat = rein_fields_has(in, "messages"),
              ids = rein_fields_has(in, "prompt_ids") || rein_fields_has(in, "response_ids");
    const int texts = rein_fields_has(in, "prompt") || rein_fields_has(in, "completion");
    if (chat + ids + texts != 1)
        return rein_group_wrong(in, "%s is needed: messages, prompt with completion, or prompt_ids with response_ids",
                                chat + ids + texts ? "only one" : "one");
    if (chat) return read_chat(t, reader, in);
    return ids ? rein_exact_read(t, &reader->group, in->object, "") : read_texts(t, reader, in);
}

/* Recorded log-probs have no meaning here. Returns the number of trained tokens. */
static size_t forget_log_probs(rein_trajectory *t) {
    size_t trained = 0;
    for (size_t i = 0; i < t->n_histories; i++)
        for (size_t k = 0; k < t->histories[i].n; k++) {
            t->histories[i].log_probs[k] = NAN;
            trained += t->histories[i].mask[k];
        }
    return trained;
}

rein_status rein_sft_read_trajectory(rein_trajectory *t, rein_sft_reader *reader, const json_t *root) {
    rein_fields in = rein_group_fields(&reader->group, root, "");
    *t = (rein_trajectory){.reward = 1, .policy_step = -1, .budget = -1};
    const rein_status status = read_kind(t, reader, &in);
    return !status && !forget_log_probs(t) ? rein_group_wrong(&in, "nothing trains in this example") : status;
}

static rein_status read_example(rein_groups *groups, rein_sft_reader *reader, const json_t *root) {
    rein_group group = {.trajectories = calloc(1, sizeof(rein_trajectory)), .n = 1};
    if (!group.trajectories) return rein_no_memory(reader->group.err);
    rein_status status = rein_sft_read_trajectory(group.trajectories, reader, root);
    if (!status) status = rein_groups_append(groups, &group, reader->group.err);
    rein_group_free(&group);
    return status;
}

static rein_status read_line(rein_groups *groups, rein_sft_reader *reader, const char *where, const char *text, size_t length) {
    json_t *root;
    rein_error *err = reader->group.err;
    rein_status status = rein_json_parse(&root, text, length, where, REIN_JSON_NEEDS_OBJECT | REIN_JSON_ONE_LINE, err);
    if (status) return status;
    status = reader->read(groups, reader, root);
    if (status == REIN_EINVAL) rein_fail_in(err, status, "%s", where);
    json_decref(root);
    return status;
}

static rein_status read_lines(rein_groups *groups, rein_sft_reader *reader, const char *text, size_t length, const char *shown) {
    char where[REIN_PATH_SHOWN + 32];
    rein_status status = REIN_OK;
    size_t line = 1;
    for (size_t at = 0, stop; at < length && !status; at = stop + 1, line++) {
        snprintf(where, sizeof where, "%s: line %zu", shown, line);
        if ((status = rein_line_end(&stop, text, at, length, where, reader->group.err))) break;
        if (!rein_all_blank(text + at, stop - at)) status = read_line(groups, reader, where, text + at, stop - at);
    }
    return status;
}

/* A file that is one JSON array, as tasks may be. */
static rein_status read_array(rein_groups *groups, rein_sft_reader *reader, const char *text, size_t length, const char *shown) {
    rein_error *err = reader->group.err;
    json_t *array, *object;
    size_t i;
    rein_status status = rein_json_parse(&array, text, length, shown, 0, err);
    if (!status && !json_is_array(array))
        status = rein_fail(err, REIN_EINVAL, "%s is not a JSON array: [%s, ...] is needed", shown, reader->form);
    json_array_foreach(array, i, object) {
        if (status) break;
        if (!json_is_object(object)) status = rein_fail(err, REIN_EINVAL, "is not an object: %s is needed", reader->form);
        else status = reader->read(groups, reader, object);
        if (status == REIN_EINVAL) rein_fail_in(err, status, "%s: example %zu", shown, i + 1);
    }
    json_decref(array);
    return status;
}

static int is_array(const char *name) {
    static const char end[] = ".json";
    const size_t length = strlen(name), tail = sizeof end - 1;
    return length > tail && !strcmp(name + length - tail, end);
}

rein_status rein_sft_read_text(rein_groups *groups, rein_sft_reader *reader, const char *text, size_t length, const char *name,
                               const rein_chat *chat) {
    rein_error *err = reader->group.err;
    const size_t before = groups->n;
    char shown[REIN_PATH_SHOWN];
    rein_path_show(shown, name);
    if (chat && !rein_chat_name(chat)) return rein_fail_at(err, REIN_EINVAL, "chat.kind", -1, "is %d: no format", (int)chat->kind);
    if (chat) reader->group.chat = *chat;
    reader->group.given = chat != NULL;
    rein_status status = rein_data_refuse_format(text, length, name, err);
    if (!status && is_array(name)) status = read_array(groups, reader, text, length, shown);
    else if (!status) status = read_lines(groups, reader, text, length, shown);
    if (!status && groups->n == before)
        status = rein_fail(err, REIN_EINVAL, "%s has no example: one JSON object a line is needed, %s", shown, reader->form);
    for (size_t g = before; status && g < groups->n; g++) rein_group_free(&groups->groups[g]);
    if (status) groups->n = before;
    rein_group_reader_free(&reader->group);
    return status;
}

rein_status rein_sft_from_memory(rein_groups *groups, const char *text, size_t length, const char *name,
                                 const rein_tokenizer *tokenizer, const rein_chat *chat, int32_t end_id, rein_error *err) {
    rein_error room;
    rein_sft_reader reader = {.group = {.tokenizer = tokenizer, .err = err ? err : &room},
                              .end_id = end_id,
                              .read = read_example,
                              .form = "{\"messages\": [...]}"};
    return rein_sft_read_text(groups, &reader, text, length, name, chat);
}

rein_status rein_sft_read(rein_groups *groups, const char *path, const rein_tokenizer *tokenizer, const rein_chat *chat,
                          int32_t end_id, rein_error *err) {
    rein_file file;
    rein_status status = rein_file_map(&file, path, err);
    if (status) return status;
    status = rein_sft_from_memory(groups, (const char *)file.data, file.size, path, tokenizer, chat, end_id, err);
    rein_file_unmap(&file);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------------ order */

/* Fisher and Yates, from the end; each exchange has its own address of randomness. */
void rein_shuffle(size_t *order, size_t n, uint64_t seed, uint64_t epoch) {
    for (size_t i = 0; i < n; i++) order[i] = i;
    for (size_t i = n; i-- > 1;) {
        const size_t j = (size_t)(rein_random_uniform(seed, REIN_RANDOM_SHUFFLE, epoch, i, 0, 0) * (double)(i + 1));
        const size_t other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
}
