/* gguf_files.c - the files of a model directory as a GGUF file has them in its metadata. */
#include <stdlib.h>
#include <string.h>

#include "gguf.h"

rein_status rein_gguf_json(json_t **json, const char *path, const char *name, rein_error *err) {
    rein_gguf *gguf;
    *json = NULL;
    rein_status status = rein_gguf_open(&gguf, path, err);
    if (!status && !strcmp(name, "config.json")) status = rein_gguf_config(json, gguf, err);
    if (!status && !strcmp(name, "tokenizer.json")) status = rein_gguf_tokenizer(json, gguf, err);
    if (!status && !strcmp(name, "tokenizer_config.json")) status = rein_gguf_tokenizer_config(json, gguf, err);
    rein_gguf_close(gguf);
    return status;
}

rein_status rein_gguf_part(char **part, const char *path, size_t i, rein_error *err) {
    rein_gguf *gguf;
    *part = NULL;
    const rein_status status = rein_gguf_open(&gguf, path, err);
    if (!status && i < gguf->n_files) *part = strdup(gguf->files[i].path);
    const int failed = !status && i < gguf->n_files && !*part;
    rein_gguf_close(gguf);
    return failed ? rein_no_memory(err) : status;
}

int rein_gguf_chat_names(const char *path, const char *word) {
    static const char key[] = "tokenizer.chat_template";
    rein_gguf *gguf;
    int names = 0;
    if (rein_gguf_open(&gguf, path, NULL)) return 0; /* opening the model will tell */
    const rein_gguf_value *chat = rein_gguf_find(gguf, key);
    const size_t n = strlen(word), length = chat && chat->kind == REIN_GGUF_STRING ? chat->count : 0;
    for (size_t i = 0; i + n <= length && !names; i++) names = !memcmp(chat->bytes + i, word, n);
    rein_gguf_close(gguf);
    return names;
}

int rein_gguf_path_has_tokenizer(const char *path) {
    rein_gguf *gguf;
    if (rein_gguf_open(&gguf, path, NULL)) return 1; /* opening it will tell */
    const int has = rein_gguf_has_tokenizer(gguf);
    rein_gguf_close(gguf);
    return has;
}

/* Where the file lists the merges, tokenizer.json is about as large as the metadata; merges that follow from scores make it larger. */
size_t rein_gguf_tokenizer_size(const char *path) {
    rein_gguf *gguf;
    if (rein_gguf_open(&gguf, path, NULL)) return 0;
    const unsigned char *begin = gguf->files[0].file.data, *end = begin + gguf->files[0].file.size;
    for (size_t i = 0; i < gguf->n_tensors; i++)
        if (!gguf->tensors[i].file && gguf->tensors[i].data < end) end = gguf->tensors[i].data;
    const size_t size = (size_t)(end - begin);
    const int listed = rein_gguf_find(gguf, "tokenizer.ggml.merges") != NULL;
    rein_gguf_close(gguf);
    return listed ? size : size * 5 / 2;
}
