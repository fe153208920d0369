/* tokenizer.c - opens and closes a tokenizer, and looks up its tokens. */
#include "rein/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/gguf.h"
#include "model/tokenizer_parts.h"

/* ---- files */

/* A missing optional file leaves {0}. */
static rein_status map_file(rein_file *file, const char *directory, const char *name, bool optional, rein_error *err) {
    char *path = rein_path_join(directory, name);
    rein_status status = REIN_OK;
    if (!path) return rein_tokenizer_no_memory(err);
    if (!optional || rein_file_exists(path)) status = rein_file_map(file, path, err);
    if (!status && file->size > REIN_TOKENIZER_FILE) {
        const rein_place place = {path, ""};
        status = rein_place_fail(&place, err, "the file has %zu bytes: at most %d are supported", file->size, REIN_TOKENIZER_FILE);
    }
    free(path);
    return status;
}

/* A model in GGUF has its tokenizer in its metadata. */
static rein_status open_gguf(rein_tokenizer **tokenizer, const char *path, rein_error *err) {
    rein_gguf *gguf;
    json_t *root = NULL, *config = NULL;
    char shown[REIN_PATH_SHOWN];
    rein_status status = rein_gguf_open(&gguf, path, err);
    if (!status) status = rein_gguf_tokenizer(&root, gguf, err);
    if (!status) status = rein_gguf_tokenizer_config(&config, gguf, err);
    if (!status && !root)
        status = rein_fail(err, REIN_EINVAL, "%s has no tokenizer: tokenizer.ggml.model is missing", rein_path_show(shown, path));
    rein_gguf_close(gguf);
    if (!status) status = rein_tokenizer_make(tokenizer, root, config, path, err);
    json_decref(root);
    json_decref(config);
    return status;
}

rein_status rein_tokenizer_open(rein_tokenizer **tokenizer, const char *directory, rein_error *err) {
    if (rein_gguf_is(directory)) return *tokenizer = NULL, open_gguf(tokenizer, directory, err);
    rein_file file = {0}, config = {0}, chat = {0};
    *tokenizer = NULL;
    rein_status status = map_file(&file, directory, "tokenizer.json", false, err);
    if (!status) status = map_file(&config, directory, "tokenizer_config.json", true, err);
    if (!status) status = map_file(&chat, directory, "chat_template.jinja", true, err);
    const rein_tokenizer_files files = {.name = directory,
                                        .tokenizer = (const char *)file.data,
                                        .config = (const char *)config.data,
                                        .chat_template = (const char *)chat.data,
                                        .tokenizer_length = file.size,
                                        .config_length = config.size,
                                        .chat_template_length = chat.size};
    if (!status) status = rein_tokenizer_read(tokenizer, &files, err);
    rein_file_unmap(&file);
    rein_file_unmap(&config);
    rein_file_unmap(&chat);
    return status;
}

int rein_tokenizer_exists(const char *model) {
    return rein_gguf_is(model) ? rein_gguf_path_has_tokenizer(model) : rein_directory_has(model, "tokenizer.json");
}

/* ---- reading */

/* Metaspace "first" needs to know whether a piece begins where the original text does. That is unknown after a normalizer wrote
 * another text. */
static rein_status check_first_piece(const rein_tokenizer *t, const rein_place *place, rein_error *err) {
    const rein_place at = rein_place_at(place, "pre_tokenizer");
    bool rewritten = false;
    for (size_t i = 0; i < t->normalizers.count; i++) rewritten |= t->normalizers.steps[i].kind != REIN_NORMALIZE_NFC;
    for (size_t i = 0; rewritten && i < t->pretokenizers.count; i++)
        if (t->pretokenizers.steps[i].kind == REIN_PRETOKENIZE_METASPACE && t->pretokenizers.steps[i].prepend == REIN_PREPEND_FIRST)
            return rein_place_fail(&at, err,
                                   "Metaspace with prepend_scheme \"first\" is not supported after the normalizers Prepend and "
                                   "Replace: \"always\" and \"never\" are");
    return REIN_OK;
}

/* Normalizing an added token may fail: an expression of the normalizer may take too many steps. */
static rein_status make_added_sets(rein_tokenizer *t, const rein_place *place, rein_error *err) {
    const rein_place at = rein_place_at(place, "added_tokens");
    rein_error why = {0};
    rein_status status = rein_added_set_make(&t->plain_set, t->added, t->added_count, false, &t->vocabulary, &t->normalizers, &why);
    if (!status)
        status = rein_added_set_make(&t->normalized_set, t->added, t->added_count, true, &t->vocabulary, &t->normalizers, &why);
    return status == REIN_EINVAL ? rein_place_fail(&at, err, "%s", why.message) : status ? rein_tokenizer_no_memory(err) : REIN_OK;
}

static rein_status read_parts(rein_tokenizer *t, const json_t *root, const rein_place *place, rein_error *err) {
    const json_t *model = json_object_get(root, "model");
    const char *type = json_string_value(json_object_get(model, "type"));
    const rein_place at = rein_place_at(place, "model");
    if (type && strcmp(type, "BPE") != 0) /* checked before the vocabulary, which has another form in other models */
        return rein_place_fail(&at, err, "model %.60s is not supported: BPE is", type);
    rein_status status = rein_vocabulary_read(&t->vocabulary, &t->added, &t->added_count, root, place, err);
    if (!status) status = rein_normalizers_read(&t->normalizers, json_object_get(root, "normalizer"), place, err);
    if (!status) status = rein_pretokenizers_read(&t->pretokenizers, json_object_get(root, "pre_tokenizer"), place, err);
    if (!status) status = check_first_piece(t, place, err);
    if (!status) status = rein_bpe_read(&t->bpe, model, t->pretokenizers.byte_level, &t->vocabulary, place, err);
    if (!status) status = rein_affixes_read(&t->affixes, json_object_get(root, "post_processor"), &t->vocabulary, place, err);
    if (!status) status = rein_decoders_read(&t->decoders, json_object_get(root, "decoder"), place, err);
    if (!status) status = make_added_sets(t, place, err);
    if (!status) t->bytes_per_token = rein_bytes_per_token(t);
    return status;
}

/* The key "\u0000" of a vocabulary; NULL: there is none. */
static const char *find_nul_key(const char *text, size_t length) {
    static const char key[] = "\"\\u0000\"";
    for (const char *at = text; at && (at = rein_text_find(at, length - (size_t)(at - text), key, sizeof key - 1)); at++) {
        const char *after = at + sizeof key - 1, *end = text + length;
        while (after < end && strchr(" \t\r\n", *after)) after++;
        if (at > text && at[-1] != '\\' && after < end && *after == ':') return at;
    }
    return NULL;
}

/* jansson has no keys with a NUL. This one becomes REIN_NUL_KEY, which is not a character of any text, and *hides is set. */
static rein_status parse(json_t **root, bool *hides, const rein_tokenizer_files *files, const char *path, rein_error *err) {
    const unsigned flags = REIN_JSON_NEEDS_OBJECT | REIN_JSON_ALLOWS_NUL;
    const char *key = find_nul_key(files->tokenizer, files->tokenizer_length);
    *hides = key != NULL;
    if (!key) return rein_json_parse(root, files->tokenizer, files->tokenizer_length, path, flags, err);
    char *copy = malloc(files->tokenizer_length);
    if (!copy) return rein_tokenizer_no_memory(err);
    memcpy(copy, files->tokenizer, files->tokenizer_length);
    memcpy(copy + (key - files->tokenizer) + 3, "FDD0", 4); /* \uFDD0 */
    const rein_status status = rein_json_parse(root, copy, files->tokenizer_length, path, flags, err);
    free(copy);
    return status;
}

/* Reads a vocabulary and all parts from parsed files; `config` may be NULL. */
static rein_status make_tokenizer(rein_tokenizer *t, const json_t *root, const json_t *config, const char *path, rein_error *err) {
    const rein_place place = {path, ""};
    t->vocabulary.hides_nul = json_object_get(json_object_get(json_object_get(root, "model"), "vocab"), REIN_NUL_KEY) != NULL;
    rein_status status = read_parts(t, root, &place, err);
    if (!status) status = rein_tokenizer_settings_take(&t->settings, &t->affixes, config, &t->vocabulary, &place, err);
    return status;
}

static rein_status read_tokenizer(rein_tokenizer *t, const rein_tokenizer_files *files, rein_error *err) {
    char *path = rein_path_join(files->name, "tokenizer.json");
    const rein_place place = {path, ""};
    json_t *root = NULL;
    if (!path) return rein_tokenizer_no_memory(err);
    rein_status status = parse(&root, &t->vocabulary.hides_nul, files, path, err);
    if (!status) status = read_parts(t, root, &place, err);
    json_decref(root);
    free(path);
    return status;
}

/* A template that cannot be run is a problem of those who need it. */
static rein_status open_chat(rein_tokenizer *t, rein_error *err) {
    const rein_status status = rein_chat_template_of(&t->chat, t, &t->chat_problem);
    return status == REIN_ENOMEM ? rein_tokenizer_no_memory(err) : REIN_OK;
}

rein_status rein_tokenizer_read(rein_tokenizer **tokenizer, const rein_tokenizer_files *files, rein_error *err) {
    rein_tokenizer *t = calloc(1, sizeof *t);
    *tokenizer = NULL;
    if (!t) return rein_tokenizer_no_memory(err);
    rein_status status = read_tokenizer(t, files, err);
    if (!status) status = rein_tokenizer_settings_read(&t->settings, &t->affixes, files, &t->vocabulary, err);
    if (!status) status = open_chat(t, err);
    if (status) rein_tokenizer_close(t);
    else *tokenizer = t;
    return status;
}

rein_status rein_tokenizer_make(rein_tokenizer **tokenizer, const json_t *root, const json_t *config, const char *path,
                                rein_error *err) {
    rein_tokenizer *t = calloc(1, sizeof *t);
    *tokenizer = NULL;
    if (!t) return rein_tokenizer_no_memory(err);
    rein_status status = make_tokenizer(t, root, config, path, err);
    if (!status) status = open_chat(t, err);
    if (status) rein_tokenizer_close(t);
    else *tokenizer = t;
    return status;
}

void rein_tokenizer_close(rein_tokenizer *t) {
    if (!t) return;
    rein_added_set_free(&t->plain_set);
    rein_added_set_free(&t->normalized_set);
    rein_vocabulary_free(&t->vocabulary);
    rein_normalizers_free(&t->normalizers);
    rein_pretokenizers_free(&t->pretokenizers);
    rein_bpe_free(&t->bpe);
    rein_decoders_free(&t->decoders);
    rein_chat_template_close(t->chat);
    free(t->settings.chat_template);
    free(t->settings.tool_template);
    free(t->added);
    free(t);
}

/* ---- lookup */
size_t rein_tokenizer_size(const rein_tokenizer *t) { return t->vocabulary.size; }

int32_t rein_tokenizer_id(const rein_tokenizer *t, const char *token, size_t length) {
    return rein_vocabulary_find(&t->vocabulary, token, length);
}

const char *rein_tokenizer_token(size_t *length, const rein_tokenizer *t, int32_t id) {
    return rein_vocabulary_text(length, &t->vocabulary, id);
}

int rein_tokenizer_is_special(const rein_tokenizer *t, int32_t id) {
    return id >= 0 && (size_t)id < t->vocabulary.size && t->vocabulary.special[id];
}

rein_named_tokens rein_tokenizer_named(const rein_tokenizer *t) { return t->settings.named; }

const char *rein_tokenizer_chat_template(size_t *length, const rein_tokenizer *t) {
    *length = t->settings.chat_template_length;
    return t->settings.chat_template;
}
