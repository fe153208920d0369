/* pairs.c - preference data. A pair becomes a group of two trajectories of the same prompt, the chosen one (reward 1) and the rejected one
 * (reward 0); a labelled completion becomes a group of one trajectory, of reward 1 (desirable) or 0.
 *
 * A line is {"prompt", "chosen", "rejected"} or {"prompt", "completion", "label"}, as texts or as lists of messages. In a pair without a
 * prompt, what both answers begin with is the prompt. Answers become examples of supervised training (sft.c): the same tokens train. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "train/sft.h"

static const char PAIR_FORM[] = "{\"prompt\": ..., \"chosen\": ..., \"rejected\": ...}";
static const char LABELLED_FORM[] = "{\"prompt\": ..., \"completion\": ..., \"label\": true|false}";

enum { CHOSEN, REJECTED, COMPLETION, ANSWERS };
static const char *const NAMES[ANSWERS] = {"chosen", "rejected", "completion"};

/* The answers of a line, and what stands before them. References of the caller's. */
typedef struct pair {
    json_t *prompt, *answers[ANSWERS];
} pair;

static void free_pair(pair *p) {
    json_decref(p->prompt);
    for (size_t k = 0; k < ANSWERS; k++) json_decref(p->answers[k]);
}

/* ------------------------------------------------------------------------------------------------------------ an implicit prompt */

/* The bytes that both texts begin with, up to the border of a character; a space before the difference belongs to the answers, as in
 * TRL's extract_prompt. */
static size_t common_text(const char *a, const char *b) {
    size_t n = 0;
    while (a[n] && a[n] == b[n]) n++;
    while (n && ((unsigned char)a[n] & 0xc0) == 0x80) n--;
    return n && a[n - 1] == ' ' ? n - 1 : n;
}

static size_t common_messages(const json_t *a, const json_t *b) {
    size_t n = 0;
    while (n < json_array_size(a) && n < json_array_size(b) && json_equal(json_array_get(a, n), json_array_get(b, n))) n++;
    return n;
}

/* NULL: no memory. */
static json_t *part_of(const json_t *list, size_t first, size_t last) {
    json_t *part = json_array();
    for (size_t i = first; i < last && part; i++)
        if (json_array_append(part, json_array_get(list, i))) json_decref(part), part = NULL;
    return part;
}

static void split_prompt(pair *p, const json_t *chosen, const json_t *rejected) {
    const json_t *answers[2] = {chosen, rejected};
    if (json_is_string(chosen)) {
        const size_t n = common_text(json_string_value(chosen), json_string_value(rejected));
        p->prompt = json_stringn(json_string_value(chosen), n);
        for (size_t k = 0; k < 2; k++) p->answers[k] = json_string(json_string_value(answers[k]) + n);
        return;
    }
    const size_t n = common_messages(chosen, rejected);
    p->prompt = part_of(chosen, 0, n);
    for (size_t k = 0; k < 2; k++) p->answers[k] = part_of(answers[k], n, json_array_size(answers[k]));
}

/* ------------------------------------------------------------------------------------------------------------------ one line */

static rein_status check_answer(rein_fields *in, size_t k, const json_t *answer) {
    if (json_is_string(answer) || json_is_array(answer)) return REIN_OK;
    return rein_fields_wrong(in, NAMES[k], answer, "a text or a list of messages is needed");
}

/* Texts and lists of messages cannot be mixed: `name` must be what answer k is. */
static rein_status check_alike(rein_fields *in, const char *name, const json_t *value, size_t k, const json_t *answer) {
    if (value && json_typeof(value) == json_typeof(answer)) return REIN_OK;
    return rein_fields_wrong(in, name, value, "%s is needed, as %s is", json_is_array(answer) ? "a list of messages" : "a text",
                             NAMES[k]);
}

static rein_status check_kinds(rein_fields *in, const json_t *prompt, const json_t *const answers[2]) {
    if (check_answer(in, CHOSEN, answers[0]) || check_answer(in, REJECTED, answers[1])) return in->status;
    if (check_alike(in, "rejected", answers[1], CHOSEN, answers[0])) return in->status;
    return prompt ? check_alike(in, "prompt", prompt, CHOSEN, answers[0]) : REIN_OK;
}

/* 1 if no character was written: "", no message, or a last message without content and calls. */
static int is_empty(const json_t *answer) {
    if (json_is_string(answer)) return !*json_string_value(answer);
    const json_t *last = json_array_get(answer, json_array_size(answer) ? json_array_size(answer) - 1 : 0);
    const json_t *content = json_object_get(last, "content");
    const int blank = !content || json_is_null(content) || (json_is_string(content) && !*json_string_value(content));
    return !last || (blank && !json_array_size(json_object_get(last, "tool_calls")));
}

static rein_status read_parts(pair *p, rein_fields *in) {
    const json_t *prompt = json_object_get(in->object, "prompt");
    const json_t *const answers[2] = {json_object_get(in->object, "chosen"), json_object_get(in->object, "rejected")};
    if (check_kinds(in, prompt, answers)) return in->status;
    if (json_equal(answers[0], answers[1]))
        return rein_fields_fail(in, REIN_EINVAL, "rejected", -1, "is the same as chosen: a pair needs two different answers");
    if (prompt) {
        p->prompt = json_incref((json_t *)(uintptr_t)prompt);
        for (size_t k = 0; k < 2; k++) p->answers[k] = json_incref((json_t *)(uintptr_t)answers[k]);
    } else split_prompt(p, answers[0], answers[1]);
    if (!p->prompt || !p->answers[0] || !p->answers[1]) return in->status = rein_no_memory(in->err);
    for (size_t k = 0; k < 2 && !in->status; k++)
        if (is_empty(p->answers[k]))
            rein_fields_fail(in, REIN_EINVAL, NAMES[k], -1, "is empty%s: an answer has one character or more",
                             prompt ? "" : " after what both answers begin with, which is the prompt");
    return in->status;
}

/* All assistant's turns of the answer train, and none of the prompt. NULL: no memory. */
static json_t *messages_of(const pair *p, size_t k) {
    json_t *messages = json_array(), *message;
    int failed = !messages;
    size_t i;
    json_array_foreach(p->prompt, i, message) {
        json_t *copy = json_copy(message); /* which loses keys where there is no memory */
        failed |= !copy || json_object_size(copy) != json_object_size(message);
        failed |= json_is_object(message) && (!copy || json_object_set_new(copy, "weight", json_integer(0)));
        failed |= json_array_append_new(messages, copy) != 0;
    }
    json_array_foreach(p->answers[k], i, message) failed |= json_array_append(messages, message) != 0;
    if (!failed) return messages;
    json_decref(messages);
    return NULL;
}

/* As supervised training takes it. NULL: no memory. */
static json_t *example_of(const pair *p, size_t k, const json_t *root) {
    json_t *example = json_object(), *tools = json_object_get(root, "tools");
    int failed = !example;
    if (json_is_array(p->answers[k])) {
        failed |= json_object_set_new(example, "messages", messages_of(p, k)) != 0;
        failed |= tools && json_object_set(example, "tools", tools);
    } else {
        failed |= json_object_set(example, "prompt", p->prompt) != 0;
        failed |= json_object_set(example, "completion", p->answers[k]) != 0;
    }
    if (!failed) return example;
    json_decref(example);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------------- tokens */

static int same_tokens(const rein_trajectory *a, const rein_trajectory *b) {
    if (a->n_histories != b->n_histories) return 0;
    for (size_t i = 0; i < a->n_histories; i++) {
        const rein_history *x = &a->histories[i], *y = &b->histories[i];
        if (x->n != y->n || memcmp(x->ids, y->ids, x->n * sizeof *x->ids) != 0) return 0;
    }
    return 1;
}

static size_t untrained_start(const rein_history *h) {
    size_t n = 0;
    while (n < h->n && !h->mask[n]) n++;
    return n;
}

static rein_status check_room(rein_fields *in, const rein_trajectory *t, size_t k, int64_t positions) {
    for (size_t i = 0; i < t->n_histories && positions > 0; i++) {
        const rein_history *h = &t->histories[i];
        const size_t prompt = untrained_start(h);
        if ((int64_t)h->n <= positions) continue;
        if ((int64_t)prompt >= positions)
            return rein_fields_fail(in, REIN_EINVAL, "prompt", -1,
                                    "has %zu tokens and leaves no room for an answer: the model has %lld positions", prompt,
                                    (long long)positions);
        return rein_fields_fail(in, REIN_EINVAL, NAMES[k], -1,
                                "has %zu tokens after a prompt of %zu: together they are more than the %lld positions of the model",
                                h->n - prompt, prompt, (long long)positions);
    }
    return REIN_OK;
}

/* Answer k becomes the next trajectory of the group. */
static rein_status read_answer(rein_group *group, rein_sft_reader *reader, const pair *p, size_t k, double reward,
                               rein_fields *in) {
    json_t *example = example_of(p, k, in->object);
    rein_trajectory *t = &group->trajectories[group->n++];
    if (example && reader->scored) {
        *t = (rein_trajectory){.reward = reward, .policy_step = -1, .budget = -1};
        rein_reward_read_answer(t, reader, example, NAMES[k], in);
        json_decref(example);
        return in->status;
    }
    in->status = example ? rein_sft_read_trajectory(t, reader, example) : rein_no_memory(in->err);
    t->reward = reward;
    json_decref(example);
    if (in->status) return in->status == REIN_EINVAL ? rein_fail_in(in->err, in->status, "%s", NAMES[k]) : in->status;
    return check_room(in, t, k, reader->positions);
}

static rein_status read_answers(rein_group *group, rein_sft_reader *reader, const pair *p, rein_fields *in) {
    if (read_answer(group, reader, p, CHOSEN, 1, in) || read_answer(group, reader, p, REJECTED, 0, in)) return in->status;
    if (same_tokens(&group->trajectories[0], &group->trajectories[1]))
        rein_fields_fail(in, REIN_EINVAL, "rejected", -1, "has the same tokens as chosen: a pair needs two different answers");
    return in->status;
}

static rein_status read_pair(rein_groups *groups, rein_sft_reader *reader, const json_t *root) {
    rein_fields in = rein_group_fields(&reader->group, root, "");
    pair p = {0};
    rein_group group = {.trajectories = calloc(2, sizeof(rein_trajectory))};
    if (!group.trajectories) return rein_no_memory(in.err);
    rein_status status = read_parts(&p, &in);
    if (!status) status = read_answers(&group, reader, &p, &in);
    if (!status && reader->scored) status = rein_reward_read_margin(group.trajectories, &in);
    if (!status) status = rein_groups_append(groups, &group, in.err);
    rein_group_free(&group);
    free_pair(&p);
    return status;
}

/* ------------------------------------------------------------------------------------------------------- labelled completions */

static rein_status read_label(double *reward, rein_fields *in) {
    const json_t *label = json_object_get(in->object, "label");
    *reward = json_is_true(label);
    return json_is_boolean(label) ? REIN_OK
                                  : rein_fields_wrong(in, "label", label, "true (desirable) or false (undesirable) is needed");
}

static rein_status read_labelled_parts(pair *p, double *reward, rein_fields *in) {
    json_t *prompt = json_object_get(in->object, "prompt"), *completion = json_object_get(in->object, "completion");
    if (check_answer(in, COMPLETION, completion) || check_alike(in, "prompt", prompt, COMPLETION, completion)) return in->status;
    if (is_empty(completion))
        return rein_fields_fail(in, REIN_EINVAL, "completion", -1, "is empty: a completion has one character or more");
    p->prompt = json_incref(prompt);
    p->answers[COMPLETION] = json_incref(completion);
    return read_label(reward, in);
}

static rein_status read_labelled(rein_groups *groups, rein_sft_reader *reader, const json_t *root) {
    rein_fields in = rein_group_fields(&reader->group, root, "");
    pair p = {0};
    double reward = 0;
    rein_group group = {.trajectories = calloc(1, sizeof(rein_trajectory))};
    if (!group.trajectories) return rein_no_memory(in.err);
    rein_status status = read_labelled_parts(&p, &reward, &in);
    if (!status) status = read_answer(&group, reader, &p, COMPLETION, reward, &in);
    if (!status) status = rein_groups_append(groups, &group, in.err);
    rein_group_free(&group);
    free_pair(&p);
    return status;
}

/* A loss over labels learns nothing but to make everything likelier, or less likely, where all of them are the same. */
static rein_status check_labels(const rein_groups *groups, size_t first, const char *name, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    const double label = groups->groups[first].trajectories[0].reward;
    for (size_t g = first + 1; g < groups->n; g++)
        if ((groups->groups[g].trajectories[0].reward > 0) != (label > 0)) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "%s: every label is %s: desirable and undesirable completions are needed",
                     rein_path_show(shown, name), label > 0 ? "true" : "false");
}

/* ------------------------------------------------------------------------------------------------------------------- files */

rein_status rein_labelled_from_memory(rein_groups *groups, const char *text, size_t length, const char *name,
                                      const rein_tokenizer *tokenizer, const rein_chat *chat, int32_t end_id, int64_t positions,
                                      rein_error *err) {
    rein_error room;
    rein_sft_reader reader = {.group = {.tokenizer = tokenizer, .err = err ? err : &room},
                              .end_id = end_id,
                              .positions = positions,
                              .read = read_labelled,
                              .form = LABELLED_FORM};
    const size_t before = groups->n;
    rein_status status = rein_sft_read_text(groups, &reader, text, length, name, chat);
    if (status || !(status = check_labels(groups, before, name, err))) return status;
    while (groups->n > before) rein_group_free(&groups->groups[--groups->n]);
    return status;
}

rein_status rein_labelled_read(rein_groups *groups, const char *path, const rein_tokenizer *tokenizer, const rein_chat *chat,
                               int32_t end_id, int64_t positions, rein_error *err) {
    rein_file file;
    rein_status status = rein_file_map(&file, path, err);
    if (status) return status;
    status = rein_labelled_from_memory(groups, (const char *)file.data, file.size, path, tokenizer, chat, end_id, positions, err);
    rein_file_unmap(&file);
    return status;
}

static rein_status pairs_from_memory(rein_groups *groups, const char *text, size_t length, const char *name,
                                     const rein_tokenizer *tokenizer, const rein_chat *chat, int32_t end_id, int64_t positions,
                                     int scored, rein_error *err) {
    rein_error room;
    rein_sft_reader reader = {.group = {.tokenizer = tokenizer, .err = err ? err : &room},
                              .end_id = end_id,
                              .positions = positions,
                              .scored = scored,
                              .read = read_pair,
                              .form = PAIR_FORM};
    return rein_sft_read_text(groups, &reader, text, length, name, chat);
}

static rein_status pairs_read(rein_groups *groups, const char *path, const rein_tokenizer *tokenizer, const rein_chat *chat,
                              int32_t end_id, int64_t positions, int scored, rein_error *err) {
    rein_file file;
    rein_status status = rein_file_map(&file, path, err);
    if (status) return status;
    status = pairs_from_memory(groups, (const char *)file.data, file.size, path, tokenizer, chat, end_id, positions, scored, err);
    rein_file_unmap(&file);
    return status;
}

rein_status rein_pairs_from_memory(rein_groups *groups, const char *text, size_t length, const char *name,
                                   const rein_tokenizer *tokenizer, const rein_chat *chat, int32_t end_id, int64_t positions,
                                   rein_error *err) {
    return pairs_from_memory(groups, text, length, name, tokenizer, chat, end_id, positions, 0, err);
}

rein_status rein_reward_pairs_from_memory(rein_groups *groups, const char *text, size_t length, const char *name,
                                          const rein_tokenizer *tokenizer, const rein_chat *chat, int32_t end_id, int64_t positions,
                                          rein_error *err) {
    return pairs_from_memory(groups, text, length, name, tokenizer, chat, end_id, positions, 1, err);
}

rein_status rein_pairs_read(rein_groups *groups, const char *path, const rein_tokenizer *tokenizer, const rein_chat *chat,
                            int32_t end_id, int64_t positions, rein_error *err) {
    return pairs_read(groups, path, tokenizer, chat, end_id, positions, 0, err);
}

rein_status rein_reward_pairs_read(rein_groups *groups, const char *path, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                   int32_t end_id, int64_t positions, rein_error *err) {
    return pairs_read(groups, path, tokenizer, chat, end_id, positions, 1, err);
}
