/* tokenizer_config.c - reads tokenizer_config.json: the names of special tokens, the chat template and, for the Llama classes of
 * transformers, which build their post-processor from it, whether begin and end tokens are added to a text. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/tokenizer_parts.h"

/* Reads a token, which is a string or an object with "content". null, and tokens that are not in the vocabulary, are -1. */
static rein_status read_token(int32_t *id, const json_t *root, const char *key, const rein_vocabulary *v, const rein_place *place,
                              rein_error *err) {
    const json_t *token = json_object_get(root, key);
    const rein_place at = rein_place_at(place, "%s", key);
    *id = -1;
    if (json_is_object(token)) token = json_object_get(token, "content");
    if (!token || json_is_null(token)) return REIN_OK;
    if (!json_is_string(token)) return rein_place_fail(&at, err, "is neither a string nor an object with \"content\"");
    *id = rein_vocabulary_find(v, json_string_value(token), json_string_length(token));
    return REIN_OK;
}

static rein_status read_names(rein_named_tokens *named, const json_t *root, const rein_vocabulary *v, const rein_place *place,
                              rein_error *err) {
    rein_status status = read_token(&named->begin, root, "bos_token", v, place, err);
    if (!status) status = read_token(&named->end, root, "eos_token", v, place, err);
    if (!status) status = read_token(&named->pad, root, "pad_token", v, place, err);
    return status ? status : read_token(&named->unknown, root, "unk_token", v, place, err);
}

static rein_status read_side(int32_t *tokens, size_t *count, const json_t *root, const char *key, int32_t id,
                             const rein_place *place, rein_error *err) {
    bool wanted;
    const json_t *flag = json_object_get(root, key);
    const rein_status status = rein_json_flag(&wanted, root, key, false, place, err);
    if (status || !flag || json_is_null(flag)) return status;
    if (wanted && id < 0) return rein_place_fail(place, err, "\"%s\" is true, but there is no such token in the vocabulary", key);
    *count = wanted;
    tokens[0] = id;
    return REIN_OK;
}

static rein_status read_llama(rein_affixes *affixes, const rein_named_tokens *named, const json_t *root, const rein_place *place,
                              rein_error *err) {
    static const char *const classes[] = {"LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer", "CodeLlamaTokenizerFast"};
    const char *name = json_string_value(json_object_get(root, "tokenizer_class"));
    bool is_llama = false;
    for (size_t i = 0; name && i < sizeof classes / sizeof *classes; i++) is_llama |= strcmp(name, classes[i]) == 0;
    if (!is_llama) return REIN_OK;
    const rein_status status = read_side(affixes->before, &affixes->befores, root, "add_bos_token", named->begin, place, err);
    return status ? status : read_side(affixes->after, &affixes->afters, root, "add_eos_token", named->end, place, err);
}

/* The template of a list that has this name; NULL: there is none. */
static const json_t *named_template(const json_t *list, const char *wanted) {
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)list, i, item) {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && strcmp(name, wanted) == 0) return json_object_get(item, "template");
    }
    return NULL;
}

static rein_status copy_text(char **to, size_t *length, const json_t *text, rein_error *err) {
    *length = json_string_length(text);
    return rein_text_copy(to, json_string_value(text), *length, err);
}

/* Reads the template: a string, or a list of named ones of which "default" is used, and "tool_use" where there are tools. */
static rein_status read_template(rein_tokenizer_settings *settings, const json_t *root, const rein_place *place, rein_error *err) {
    const rein_place at = rein_place_at(place, "chat_template");
    const json_t *value = json_object_get(root, "chat_template"), *tools = named_template(value, "tool_use");
    const json_t *text = json_is_array(value) ? named_template(value, "default") : value;
    if (!value || json_is_null(value) || settings->chat_template) return REIN_OK;
    if (!json_is_string(text)) return rein_place_fail(&at, err, "is neither a string nor a list with one named \"default\"");
    const rein_status status = copy_text(&settings->chat_template, &settings->chat_template_length, text, err);
    if (status || !json_is_string(tools)) return status;
    return copy_text(&settings->tool_template, &settings->tool_template_length, tools, err);
}

static rein_status take_config(rein_tokenizer_settings *settings, rein_affixes *affixes, const json_t *root,
                               const rein_vocabulary *v, const rein_place *place, rein_error *err) {
    rein_status status = read_names(&settings->named, root, v, place, err);
    if (!status) status = read_llama(affixes, &settings->named, root, place, err);
    return status ? status : read_template(settings, root, place, err);
}

rein_status rein_tokenizer_settings_take(rein_tokenizer_settings *settings, rein_affixes *affixes, const json_t *config,
                                         const rein_vocabulary *v, const rein_place *place, rein_error *err) {
    settings->named = (rein_named_tokens){-1, -1, -1, -1};
    return config ? take_config(settings, affixes, config, v, place, err) : REIN_OK;
}

static rein_status read_config(rein_tokenizer_settings *settings, rein_affixes *affixes, const rein_tokenizer_files *files,
                               const rein_vocabulary *v, rein_error *err) {
    char *path = rein_path_join(files->name, "tokenizer_config.json");
    const rein_place place = {path, ""};
    json_t *root = NULL;
    if (!path) return rein_tokenizer_no_memory(err);
    /* "model_max_length" often has 31 digits. No integer is read here. */
    const unsigned flags = REIN_JSON_NEEDS_OBJECT | REIN_JSON_ALLOWS_NUL | REIN_JSON_WIDE_INTEGERS;
    rein_status status = rein_json_parse(&root, files->config, files->config_length, path, flags, err);
    if (!status) status = take_config(settings, affixes, root, v, &place, err);
    json_decref(root);
    free(path);
    return status;
}

rein_status rein_tokenizer_settings_read(rein_tokenizer_settings *settings, rein_affixes *affixes,
                                         const rein_tokenizer_files *files, const rein_vocabulary *v, rein_error *err) {
    rein_status status = REIN_OK;
    settings->named = (rein_named_tokens){-1, -1, -1, -1};
    if (files->chat_template) { /* its own file takes precedence over the configuration's */
        settings->chat_template_length = files->chat_template_length;
        status = rein_text_copy(&settings->chat_template, files->chat_template, files->chat_template_length, err);
    }
    return status || !files->config ? status : read_config(settings, affixes, files, v, err);
}
