/* tokenizer.c - opening and closing a tokenizer, and asking it about its tokens. */
#include "rein/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"

/* ---- files */
static rein_status join(rein_text *path, const char *directory, const char *file, rein_error *err) {
    rein_status status = rein_text_append(path, directory, strlen(directory), err);
    if (!status) status = rein_text_append(path, "/", 1, err);
    return status ? status : rein_text_append(path, file, strlen(file), err);
}

static rein_status read_stream(rein_text *text, FILE *stream, const char *path, rein_error *err) {
    for (;;) {
        const rein_status status = rein_text_reserve(text, 1 << 16, err);
        if (status) return status;
        const size_t n = fread(text->data + text->length, 1, text->capacity - text->length - 1, stream);
        text->length += n;
        text->data[text->length] = 0;
        if (text->length > REIN_TOKENIZER_FILE)
            return rein_fail(err, REIN_EINVAL, "%s: the file has more than %d bytes", path, REIN_TOKENIZER_FILE);
        if (n) continue;
        return ferror(stream) ? rein_fail(err, REIN_EINVAL, "%s: %s", path, strerror(errno)) : REIN_OK;
    }
}

/* A file that need not be there leaves text->data NULL. */
static rein_status read_file(rein_text *text, const char *directory, const char *file, bool optional, rein_error *err) {
    rein_text path = {0};
    rein_status status = join(&path, directory, file, err);
    if (status) return rein_text_free(&path), status;
    errno = 0;
    FILE *stream = fopen(path.data, "rb");
    if (stream) {
        status = read_stream(text, stream, path.data, err);
        fclose(stream);
    } else if (errno == ENOMEM) status = rein_no_memory(err);
    else if (!optional || errno != ENOENT) status = rein_fail(err, REIN_EINVAL, "%s: %s", path.data, strerror(errno));
    rein_text_free(&path);
    return status;
}

rein_status rein_tokenizer_open(rein_tokenizer **tokenizer, const char *directory, rein_error *err) {
    rein_text file = {0}, config = {0}, chat = {0};
    *tokenizer = NULL;
    rein_status status = read_file(&file, directory, "tokenizer.json", false, err);
    if (!status) status = read_file(&config, directory, "tokenizer_config.json", true, err);
    if (!status) status = read_file(&chat, directory, "chat_template.jinja", true, err);
    const rein_tokenizer_files files = {directory, file.data, config.data, chat.data, file.length, config.length, chat.length};
    if (!status) status = rein_tokenizer_read(tokenizer, &files, err);
    rein_text_free(&file);
    rein_text_free(&config);
    rein_text_free(&chat);
    return status;
}

/* ---- reading */
static rein_status read_parts(rein_tokenizer *t, const json_t *root, const rein_place *place, rein_error *err) {
    const json_t *model = json_object_get(root, "model");
    const char *type = json_string_value(json_object_get(model, "type"));
    const rein_place at = rein_place_at(place, "model");
    if (type && strcmp(type, "BPE") != 0) /* before its vocabulary, which has another form, is complained about */
        return rein_place_fail(&at, err, "model %.60s is not supported: BPE is", type);
    rein_status status = rein_vocabulary_read(&t->vocabulary, &t->added, &t->added_count, root, place, err);
    if (!status) status = rein_normalizers_read(&t->normalizers, json_object_get(root, "normalizer"), place, err);
    if (!status) status = rein_pres_read(&t->pres, json_object_get(root, "pre_tokenizer"), place, err);
    if (!status) status = rein_bpe_read(&t->bpe, model, t->pres.byte_level, &t->vocabulary, place, err);
    if (!status) status = rein_affixes_read(&t->affixes, json_object_get(root, "post_processor"), &t->vocabulary, place, err);
    if (!status) status = rein_decoders_read(&t->decoders, json_object_get(root, "decoder"), place, err);
    if (!status) status = rein_added_set_make(&t->plain_set, t->added, t->added_count, false, &t->vocabulary, &t->normalizers, err);
    if (!status)
        status = rein_added_set_make(&t->normalized_set, t->added, t->added_count, true, &t->vocabulary, &t->normalizers, err);
    return status;
}

static rein_status read_tokenizer(rein_tokenizer *t, const rein_tokenizer_files *files, rein_error *err) {
    rein_text name = {0};
    json_t *root = NULL;
    rein_status status = join(&name, files->name, "tokenizer.json", err);
    const rein_place place = {name.data, ""};
    if (!status) status = rein_json_parse(&root, place.file, files->tokenizer, files->tokenizer_length, 0, err);
    if (!status) status = read_parts(t, root, &place, err);
    json_decref(root);
    rein_text_free(&name);
    return status;
}

rein_status rein_tokenizer_read(rein_tokenizer **tokenizer, const rein_tokenizer_files *files, rein_error *err) {
    rein_tokenizer *t = calloc(1, sizeof *t);
    *tokenizer = NULL;
    if (!t) return rein_no_memory(err);
    rein_status status = read_tokenizer(t, files, err);
    if (!status) status = rein_settings_read(&t->settings, &t->affixes, files, &t->vocabulary, err);
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
    rein_pres_free(&t->pres);
    rein_bpe_free(&t->bpe);
    rein_decoders_free(&t->decoders);
    free(t->settings.chat_template);
    free(t->added);
    free(t);
}

/* ---- asking */
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
