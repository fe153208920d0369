/* fuzz_gguf.c - any bytes as a model in GGUF (libFuzzer).
 *
 * Accepted: every tensor's bytes can be read and no two overlap, and what the metadata says becomes a configuration, a tokenizer that
 * encodes and a set of tensors, or is refused. Refused: REIN_EINVAL, one line says why. Anything else is a bug. */
/* words: src/model/gguf*.c */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "fuzz/require.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/gguf_write.h"
#include "model/tokenizer_parts.h"

static void check_refusal(rein_status status, const rein_error *err) {
    require(status == REIN_EINVAL, "the status is not EINVAL", err->message);
    require(*err->message && !strpbrk(err->message, "\r\n"), "the message is not one line", err->message);
}

static unsigned sum; /* so that reading is not optimised away */

static void check_bytes(const void *data, size_t n) {
    for (size_t i = 0; i < n; i++) sum += ((const unsigned char *)data)[i];
}

static void check_tensors(const rein_gguf *gguf) {
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        const rein_gguf_tensor *t = &gguf->tensors[i], *before = i ? t - 1 : NULL;
        check_bytes(t->data, t->bytes);
        require(!before || before->data + before->bytes <= t->data, "tensors overlap", t->name);
        require(rein_gguf_tensor_find(gguf, t->name) == t, "a tensor is not found by its name", t->name);
    }
}

/* Written again, a pair has the bytes that were read. */
static void check_pairs(const rein_gguf *gguf) {
    const rein_gguf_file *file = &gguf->files[0];
    for (size_t i = 0; i < file->n_pairs; i++) {
        rein_gguf_pairs again = {0};
        const rein_gguf_pair *pair = &file->pairs[i];
        rein_gguf_put_pair(&again, pair);
        require(!memcmp(again.bytes.data, pair->key.bytes - sizeof(uint64_t), again.bytes.length),
                "a pair is written in another way", "");
        rein_gguf_pairs_free(&again);
    }
}

static void check_config(const rein_gguf *gguf) {
    rein_model_config config;
    rein_error err = {0};
    json_t *json;
    rein_status status = rein_gguf_config(&json, gguf, &err);
    if (!status) status = rein_model_config_parse(&config, "file", json, NULL, NULL, &err);
    if (status) check_refusal(status, &err);
    json_decref(json);
}

static void check_tokenizer(const rein_gguf *gguf) {
    static const char text[] = "Hello  world, 123\n\xE2\x96\x81<s>";
    rein_tokenizer *tokenizer = NULL;
    rein_ids ids = {0};
    rein_error err = {0};
    json_t *json, *config = NULL;
    rein_status status = rein_gguf_tokenizer(&json, gguf, &err);
    if (!status) status = rein_gguf_tokenizer_config(&config, gguf, &err);
    if (!status && json) status = rein_tokenizer_make(&tokenizer, json, config, "file", &err);
    if (!status && json) status = rein_tokenizer_encode(&ids, tokenizer, text, sizeof text - 1, NULL, &err);
    if (status) check_refusal(status, &err);
    rein_ids_free(&ids);
    rein_tokenizer_close(tokenizer);
    json_decref(json);
    json_decref(config);
}

static void check_set(rein_gguf *gguf) {
    rein_tensors *tensors;
    rein_error err = {0};
    const rein_status status = rein_gguf_take_tensors(&tensors, &gguf, &err);
    require(!gguf, "the model is still there", "");
    if (status) {
        check_refusal(status, &err);
        return;
    }
    for (size_t i = 0; i < rein_tensors_count(tensors); i++) {
        const rein_tensor *t = rein_tensors_at(tensors, i);
        check_bytes(t->data, t->bytes);
        require(rein_tensors_find(tensors, t->name) == t, "a tensor is not found by its name", t->name);
        for (size_t r = 0; t->pairs && r < t->shape[0] && r < 1000; r++)
            require(rein_tensor_row(t, r) < t->shape[0], "a row is outside of its tensor", t->name);
    }
    rein_tensors_close(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    void *copy = aligned_alloc(32, (size + 32) / 32 * 32);
    rein_gguf *gguf;
    rein_error err = {0};
    require(copy != NULL, "no memory", "");
    memcpy(copy, data, size);
    const rein_status status = rein_gguf_from_memory(&gguf, "file", copy, size, &err);
    if (status) {
        check_refusal(status, &err);
        require(!gguf, "there is a handle after a failure", "");
    } else {
        check_tensors(gguf);
        check_pairs(gguf);
        check_config(gguf);
        check_tokenizer(gguf);
        check_set(gguf);
    }
    free(copy);
    return 0;
}
