/* reward_model.c - a judge that is a reward model: …ForSequenceClassification of one label, or an adapter of task_type SEQ_CLS.
 *
 * It scores texts, by its own tokenizer and chat template, so it need not have those of the policy: the prompt as the policy's was given (a
 * chat, or a plain text) with the completion behind it. Completions of one prompt share its computation, which changes no bit. */
#include "reward_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "episodes.h"
#include "model/gguf.h"
#include "model/reward_form.h"
#include "reward_text.h"

enum { MOST_SHARED = 16 }; /* completions that share their prompt */

typedef struct reward_model {
    char *directory;
    rein_model *model;
    rein_adapter *adapter; /* NULL: none */
    rein_tokenizer *tokenizer;
    rein_activations *activations;
    rein_chat chat;
    int has_chat; /* 0: chat_error says why */
    rein_error chat_error;
    rein_reward_form form;
    size_t positions; /* of the model */
    int chat_prompts; /* of rein_prompting */
    char *system;     /* or NULL */
} reward_model;

/* ------------------------------------------------------------------------------------------------------------------------ open */

static rein_status open_model(reward_model *m, const rein_exec *exec, rein_error *err) {
    const rein_model_options how = {.exec = *exec, .score = REIN_SCORE_STORED};
    return rein_model_open(&m->model, m->directory, &how, err);
}

static rein_status check_base(const reward_model *m, const char *base, rein_error *err) {
    char shown[REIN_PATH_SHOWN], place[REIN_PATH_SHOWN];
    if (rein_model_exists(base)) return REIN_OK;
    return rein_fail(
        err, REIN_EINVAL,
        "%s is an adapter of \"%s\" (base_model_name_or_path), which is not a local directory with a model: nothing is "
        "downloaded",
        rein_path_show(shown, m->directory), rein_path_show(place, base));
}

/* The model below an adapter may have a score head of its own, which the adapter replaces. */
static rein_status open_base(reward_model *m, const char *base, const rein_exec *exec, rein_error *err) {
    rein_reward_form form;
    rein_status status = rein_reward_form_read(&form, m->directory, err);
    const rein_model_options how = {.exec = *exec, .quantize = form.quantize, .score = REIN_SCORE_ZERO};
    if (!status) status = rein_model_open(&m->model, base, &how, err);
    return status ? status : rein_adapter_open(&m->adapter, m->model, m->directory, err);
}

static rein_status open_adapter(reward_model *m, const rein_exec *exec, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    rein_adapter_info info;
    rein_text base = {0};
    rein_status status = rein_adapter_describe_files(&info, &base, m->directory, err);
    if (!status && !info.score)
        status = rein_fail(err, REIN_EINVAL,
                           "%s is an adapter of a language model (task_type CAUSAL_LM): that of a reward model has task_type "
                           "SEQ_CLS and score.weight",
                           rein_path_show(shown, m->directory));
    if (!status) status = check_base(m, base.data ? base.data : "", err);
    if (!status) status = open_base(m, base.data, exec, err);
    rein_text_free(&base);
    return status;
}

static rein_status open_weights(reward_model *m, const rein_exec *exec, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    rein_path_show(shown, m->directory);
    if (rein_directory_has(m->directory, "adapter_config.json")) return open_adapter(m, exec, err);
    if (rein_model_exists(m->directory)) return open_model(m, exec, err);
    if (!rein_file_exists(m->directory))
        return rein_fail(err, REIN_EINVAL,
                         "%s does not exist: a run of rein reward, or a local directory with config.json or adapter_config.json is "
                         "needed. Of a run of rein reward only the last keep_last checkpoints stay",
                         shown);
    return rein_fail(err, REIN_EINVAL,
                     "%s is no reward model: a run of rein reward, or a local directory with config.json or adapter_config.json is "
                     "needed (nothing is downloaded)",
                     shown);
}

/* That of its directory or, if an adapter has none, that of the model below. */
static rein_status open_tokenizer(reward_model *m, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    const char *place = rein_directory_has(m->directory, "tokenizer.json") ? m->directory : m->model->directory;
    rein_path_show(shown, place);
    if (!rein_gguf_is(place) && !rein_directory_has(place, "tokenizer.json"))
        return rein_fail(err, REIN_EINVAL, "%s has no tokenizer.json, which a reward model needs to read texts", shown);
    const rein_status status = rein_tokenizer_open(&m->tokenizer, place, err);
    if (status) return status;
    const rein_model_info info = rein_model_describe(m->model);
    if ((int64_t)rein_tokenizer_size(m->tokenizer) <= info.vocabulary) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "the tokenizer of %s has %zu tokens, and the reward model %lld: it is that of another model",
                     shown, rein_tokenizer_size(m->tokenizer), (long long)info.vocabulary);
}

/* Only conversations need it. */
static void find_chat(reward_model *m, const char *date) {
    m->form = rein_reward_form_of(&(rein_policy){m->model, m->adapter, 1});
    m->has_chat = !(m->form.chat_format ? rein_chat_named(&m->chat, m->form.chat_format, &m->chat_error)
                                        : rein_chat_of(&m->chat, m->tokenizer, &m->chat_error));
    m->chat.date = date;
    m->positions = (size_t)rein_model_describe(m->model).max_positions;
}

static rein_status take_prompting(reward_model *m, const rein_prompting *prompting, rein_error *err) {
    if (!prompting) return REIN_OK;
    m->chat_prompts = prompting->chat_prompts;
    m->system = prompting->system ? strdup(prompting->system) : NULL;
    return prompting->system && !m->system ? rein_no_memory(err) : REIN_OK;
}

rein_status rein_judge_model_open(rein_judge *judge, const char *directory, rein_error *err) {
    const rein_reward_options *o = judge->options;
    reward_model *m = judge->state = calloc(1, sizeof *m);
    if (!m || !(m->directory = strdup(directory))) return rein_no_memory(err);
    if (judge->task && rein_task_environment(judge->task))
        return rein_fail(err, REIN_EINVAL, "a reward model scores one answer to one prompt, and the task is an environment");
    rein_status status = open_weights(m, &o->exec, err);
    if (!status) status = open_tokenizer(m, err);
    if (!status) status = rein_activations_open(&m->activations, &o->exec, err);
    if (!status) status = take_prompting(m, o->prompting, err);
    if (!status) find_chat(m, o->prompting && o->prompting->chat ? o->prompting->chat->date : NULL);
    return status;
}

void rein_judge_model_close(rein_judge *judge) {
    reward_model *m = judge->state;
    if (!m) return;
    rein_activations_close(m->activations);
    rein_adapter_close(m->adapter);
    rein_model_close(m->model);
    rein_tokenizer_close(m->tokenizer);
    free(m->directory);
    free(m->system);
    free(m);
}

size_t rein_judge_model_name(const char **name, const char *directory) {
    static const char folder[] = "/checkpoints/";
    size_t end = strlen(directory), digits;
    while (end > 1 && directory[end - 1] == '/') end--;
    for (digits = 0; digits < end && directory[end - 1 - digits] >= '0' && directory[end - 1 - digits] <= '9';) digits++;
    if (digits && end > digits + strlen(folder) && !strncmp(directory + end - digits - strlen(folder), folder, strlen(folder)))
        end -= digits + strlen(folder);
    size_t begin = end;
    while (begin && directory[begin - 1] != '/') begin--;
    *name = directory + begin;
    return end - begin;
}

/* ---------------------------------------------------------------------------------------------------------------------- tokens */

static int put_message(json_t *list, const char *role, const char *content, size_t length) {
    return json_array_append_new(list, json_pack("{s:s, s:o*}", "role", role, "content", json_stringn_nocheck(content, length)));
}

/* The messages of the prompt, after the system's, as the task has them; `object` is the example's, if it has more than roles and contents. */
static json_t *list_messages(const reward_model *m, const rein_example *e, const json_t *object) {
    json_t *list = json_array(), *message;
    const json_t *given = json_object_get(object, "messages");
    int failed = !list;
    size_t i;
    if (m->system) failed |= put_message(list, "system", m->system, strlen(m->system));
    if (e->prompt) failed |= put_message(list, "user", e->prompt, strlen(e->prompt));
    json_array_foreach((json_t *)(uintptr_t)given, i, message) failed |= json_array_append(list, message);
    for (i = 0; i < e->n_messages && !e->prompt && !given; i++)
        failed |= put_message(list, e->messages[i].role, e->messages[i].content, e->messages[i].length);
    if (!failed) return list;
    json_decref(list);
    return NULL;
}

static const json_t *not_null(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static rein_status encode_chat(rein_ids *ids, const reward_model *m, const rein_response *r, rein_error *err) {
    const rein_example *e = r->example;
    json_t *object = NULL, *messages = NULL;
    rein_status status = m->has_chat ? REIN_OK : rein_fail_with(err, REIN_EINVAL, &m->chat_error);
    if (!status && e->needs_template)
        status = rein_json_parse(&object, e->json, strlen(e->json), NULL, REIN_JSON_NEEDS_OBJECT, err);
    if (!status && !(messages = list_messages(m, e, object))) status = rein_no_memory(err);
    if (!status && put_message(messages, "assistant", r->text, r->length)) status = rein_no_memory(err);
    const rein_conversation conversation = {
        .messages = messages, .tools = not_null(object, "tools"), .variables = not_null(object, "chat_template_kwargs")};
    if (!status) status = rein_reward_chat_encode(ids, m->tokenizer, &m->chat, &conversation, 0, err);
    json_decref(messages);
    json_decref(object);
    return status;
}

/* Appends the tokens that are scored at the last one. Of models of others that is the last that is not padding. */
static rein_status encode(rein_ids *ids, const reward_model *m, const rein_response *r, rein_error *err) {
    const size_t first = ids->count;
    const int chat = !r->example->prompt || m->chat_prompts;
    const rein_status status = chat ? encode_chat(ids, m, r, err)
                                    : rein_reward_text_encode(ids, m->tokenizer, r->example->prompt, r->text, r->length, 1,
                                                              m->form.known ? m->form.end_id : -1, 0, err);
    if (status) return status;
    while (!m->form.known && ids->count > first + 1 && ids->data[ids->count - 1] == m->model->config.pad) ids->count--;
    const size_t n = ids->count - first;
    if (!n) return rein_fail(err, REIN_EINVAL, "prompt and completion have no token for the reward model");
    if (n <= m->positions) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "prompt and completion have %zu tokens, and the reward model has %zu positions", n,
                     m->positions);
}

rein_status rein_judge_model_check(const rein_judge *judge, const rein_example *example, rein_error *err) {
    const rein_response empty = {.example = example, .text = ""};
    rein_ids ids = {0};
    const rein_status status = encode(&ids, judge->state, &empty, err);
    rein_ids_free(&ids);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------------- scores */

/* Sequences of one prompt: a root with what they begin with, and a segment for the rest of each. */
typedef struct batch {
    rein_ids ids[MOST_SHARED];
    size_t n;
    rein_ids all;
    size_t offsets[MOST_SHARED + 2];
    int64_t parents[MOST_SHARED + 1];
    uint8_t *wanted;
    float *scores;
} batch;

static void free_batch(batch *b) {
    for (size_t i = 0; i < b->n; i++) rein_ids_free(&b->ids[i]);
    rein_ids_free(&b->all);
    free(b->wanted);
    free(b->scores);
}

/* What all begin with, which leaves each a token of its own. One sequence shares nothing. */
static size_t common_length(const batch *b) {
    size_t n = b->ids[0].count - 1;
    for (size_t i = 1; i < b->n; i++) {
        size_t k = 0;
        while (k < n && k + 1 < b->ids[i].count && b->ids[i].data[k] == b->ids[0].data[k]) k++;
        n = k;
    }
    return b->n > 1 ? n : 0;
}

static rein_status put(batch *b, size_t *segments, int64_t parent, const int32_t *ids, size_t n, rein_error *err) {
    rein_status status = REIN_OK;
    b->parents[*segments] = parent;
    for (size_t i = 0; i < n && !status; i++) status = rein_ids_append(&b->all, ids[i], err);
    b->offsets[++*segments] = b->all.count;
    return status;
}

static rein_status score(double *rewards, batch *b, const reward_model *m, rein_error *err) {
    const size_t common = common_length(b), root = common > 0;
    const rein_policy policy = {m->model, m->adapter, 1};
    size_t segments = 0;
    rein_status status = root ? put(b, &segments, -1, b->ids[0].data, common, err) : REIN_OK;
    for (size_t i = 0; i < b->n && !status; i++)
        status = put(b, &segments, root ? 0 : -1, b->ids[i].data + common, b->ids[i].count - common, err);
    b->wanted = calloc(b->all.count + 1, sizeof *b->wanted);
    b->scores = calloc(b->all.count + 1, sizeof *b->scores);
    if (!status && (!b->wanted || !b->scores)) status = rein_no_memory(err);
    if (status) return status;
    for (size_t i = 0; i < b->n; i++) b->wanted[b->offsets[root + i + 1] - 1] = 1;
    const rein_tokens tokens = {
        .n = segments, .offsets = b->offsets, .parents = b->parents, .ids = b->all.data, .wanted = b->wanted};
    status = rein_scores(b->scores, m->activations, &policy, &tokens, NULL, err);
    for (size_t i = 0; i < b->n && !status; i++) rewards[i] = (double)b->scores[b->offsets[root + i + 1] - 1];
    return status;
}

/* Rewards as many of the n responses as share a prompt, and returns how many; `place` is that of the first among all. */
static rein_status give_some(size_t *done, double *rewards, const rein_judge *judge, const rein_response *responses, size_t place,
                             size_t n, rein_error *err) {
    const reward_model *m = judge->state;
    batch b = {0};
    char where[REIN_REWARD_PLACE];
    rein_status status = REIN_OK;
    for (size_t i = place; i < n && b.n < MOST_SHARED && !status && responses[i].group == responses[place].group; i++) {
        status = encode(&b.ids[b.n++], m, &responses[i], err);
        if (!status) continue;
        rein_reward_place(where, judge->name, "response", i, n, responses[i].example);
        rein_fail_in(err, status, "%s", where);
    }
    if (!status) status = score(rewards + place, &b, m, err);
    *done = b.n;
    free_batch(&b);
    return status;
}

rein_status rein_judge_model_give(double *rewards, const rein_judge *judge, const rein_response *responses, size_t n,
                                  rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t i = 0, done = 0; i < n && !status; i += done) status = give_some(&done, rewards, judge, responses, i, n, err);
    return status;
}
