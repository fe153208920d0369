/* reward_form.c - what a reward model is saved with besides weights: how texts become the tokens that it scores (reward_model.json, which only
 * rein reads), and the padding token, by which transformers finds the last token of a sequence. */
#include "reward_form.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "gguf.h"
#include "quantize.h"
#include "rein/tokenizer.h"

static const char FILE_NAME[] = "reward_model.json";

void rein_reward_form_set(rein_model *model, rein_adapter *adapter, const rein_reward_form *form) {
    if (adapter) adapter->form = *form;
    else model->form = *form;
}

rein_reward_form rein_reward_form_of(const rein_policy *policy) {
    return policy->adapter && policy->adapter->score ? policy->adapter->form : policy->model->form;
}

/* -------------------------------------------------------------------------------------------------------------------- the file */

static void read_fields(rein_reward_form *form, rein_fields *in) {
    const char *chat = rein_fields_string_or(in, "chat_format", NULL), *quantize = rein_fields_string_or(in, "quantize", NULL);
    rein_chat named = {0};
    rein_error why = {0};
    form->end_id = (int32_t)rein_fields_integer_or(in, "end_token_id", 0, INT32_MAX, -1);
    if (!in->status && chat && rein_chat_named(&named, chat, &why))
        rein_fields_wrong(in, "chat_format", json_object_get(in->object, "chat_format"),
                          "the name of a chat format, or null, is needed");
    if (!in->status && quantize && !rein_quantize_type(quantize))
        rein_fields_wrong(in, "quantize", json_object_get(in->object, "quantize"), "q8_0, q4_0 or null is needed");
    form->chat_format = chat ? rein_chat_name(&named) : NULL;
    form->quantize = quantize ? !strcmp(quantize, "q8_0") ? "q8_0" : "q4_0" : NULL;
    form->known = 1;
}

rein_status rein_reward_form_read(rein_reward_form *form, const char *directory, rein_error *err) {
    char *path = rein_path_join(directory, FILE_NAME);
    json_t *json = NULL;
    *form = (rein_reward_form){.end_id = -1};
    rein_status status = path ? REIN_OK : rein_no_memory(err);
    if (!status && rein_file_exists(path)) {
        status = rein_json_read(&json, path, REIN_JSON_NEEDS_OBJECT, err);
        rein_fields in = {.object = json, .file = path, .path = "", .err = err, .status = status};
        if (!status) read_fields(form, &in);
        status = in.status;
    }
    json_decref(json);
    free(path);
    return status;
}

rein_status rein_reward_form_write(const rein_reward_form *form, const rein_weight_type *quantize, const char *directory,
                                   rein_error *err) {
    if (!form->known) return REIN_OK;
    const char *type = !quantize ? NULL : quantize == rein_quantize_type("q8_0") ? "q8_0" : "q4_0";
    char *path = rein_path_join(directory, FILE_NAME);
    json_t *end = form->end_id < 0 ? json_null() : json_integer(form->end_id);
    json_t *json = json_pack("{s:o, s:s?, s:s?}", "end_token_id", end, "chat_format", form->chat_format, "quantize", type);
    const rein_status status = path && json ? rein_json_file_write(path, json, err) : rein_no_memory(err);
    json_decref(json);
    free(path);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------ the padding */

static int can_pad(const rein_model_config *c, int64_t id) {
    if (id < 0 || id >= c->vocab_size) return 0;
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos[i] == id) return 0;
    return 1;
}

/* A special token that ends no turn and no text, if the tokenizer has one. */
static int64_t choose(const rein_model_config *c, const rein_tokenizer *tokenizer) {
    const rein_named_tokens named = rein_tokenizer_named(tokenizer);
    const int32_t ids[] = {named.pad, named.begin, named.unknown};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i] != named.end && can_pad(c, ids[i]) && rein_tokenizer_is_special(tokenizer, ids[i])) return ids[i];
    for (int32_t id = 0; id < (int32_t)rein_tokenizer_size(tokenizer); id++)
        if (id != named.end && can_pad(c, id) && rein_tokenizer_is_special(tokenizer, id)) return id;
    return -1;
}

rein_status rein_reward_pad(int64_t *pad, rein_text *name, const rein_model *model, rein_error *err) {
    const rein_model_config *c = &model->config;
    rein_tokenizer *tokenizer = NULL;
    rein_status status = REIN_OK;
    size_t length = 0;
    *pad = can_pad(c, c->pad) ? c->pad : -1;
    if (*pad >= 0) return REIN_OK;
    if (rein_gguf_is(model->directory) || rein_directory_has(model->directory, "tokenizer.json"))
        status = rein_tokenizer_open(&tokenizer, model->directory, err);
    if (!status && tokenizer) *pad = choose(c, tokenizer);
    const char *token = *pad >= 0 ? rein_tokenizer_token(&length, tokenizer, (int32_t)*pad) : NULL;
    if (!status && token) status = rein_text_append(name, token, length, err);
    if (*pad < 0) *pad = can_pad(c, c->vocab_size - 1) ? c->vocab_size - 1 : c->vocab_size - 2;
    rein_tokenizer_close(tokenizer);
    return status;
}

rein_status rein_reward_pad_tokenizer(const char *directory, const rein_text *name, rein_error *err) {
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json"};
    rein_status status = REIN_OK;
    for (size_t i = 0; i < sizeof files / sizeof *files && !status && name->length; i++) {
        char *path = rein_path_join(directory, files[i]);
        json_t *json = NULL;
        status = path ? REIN_OK : rein_no_memory(err);
        if (!status && rein_file_exists(path)) status = rein_json_read(&json, path, REIN_JSON_NEEDS_OBJECT, err);
        if (json && json_object_set_new(json, "pad_token", json_stringn(name->data, name->length))) status = rein_no_memory(err);
        if (json && !status) status = rein_json_file_write(path, json, err);
        json_decref(json);
        free(path);
    }
    return status;
}
