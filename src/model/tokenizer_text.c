/* tokenizer_text.c - growing arrays. They grow by half, so that appending takes linear time in total. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"

rein_status rein_no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "no memory for the tokenizer"); }

size_t rein_grown_capacity(size_t capacity, size_t need, size_t element) {
    const size_t most = (SIZE_MAX / 2) / element;
    size_t grown = capacity + capacity / 2 + 16;
    if (need > most) return 0;
    if (grown < need) grown = need;
    return grown < most ? grown : most;
}

void rein_ids_free(rein_ids *ids) {
    free(ids->data);
    *ids = (rein_ids){0};
}

void rein_text_free(rein_text *text) {
    free(text->data);
    *text = (rein_text){0};
}

rein_status rein_ids_append(rein_ids *ids, int32_t id, rein_error *err) {
    if (ids->count == ids->capacity) {
        const size_t capacity = rein_grown_capacity(ids->capacity, ids->count + 1, sizeof *ids->data);
        int32_t *data = capacity ? realloc(ids->data, capacity * sizeof *data) : NULL;
        if (!data) return rein_no_memory(err);
        ids->data = data, ids->capacity = capacity;
    }
    ids->data[ids->count++] = id;
    return REIN_OK;
}

rein_status rein_text_reserve(rein_text *text, size_t more, rein_error *err) {
    if (more < text->capacity - text->length) return REIN_OK;
    if (more > SIZE_MAX / 4) return rein_no_memory(err);
    const size_t capacity = rein_grown_capacity(text->capacity, text->length + more + 1, 1);
    char *data = capacity ? realloc(text->data, capacity) : NULL;
    if (!data) return rein_no_memory(err);
    text->data = data, text->capacity = capacity;
    return REIN_OK;
}

rein_status rein_text_append(rein_text *text, const char *bytes, size_t length, rein_error *err) {
    const rein_status status = rein_text_reserve(text, length, err);
    if (status) return status;
    if (length) memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = 0;
    return REIN_OK;
}

void rein_text_cut(rein_text *text, size_t length) {
    text->length = length;
    if (text->data) text->data[length] = 0;
}

rein_status rein_text_copy(char **copy, const char *bytes, size_t length, rein_error *err) {
    *copy = malloc(length + 1);
    if (!*copy) return rein_no_memory(err);
    memcpy(*copy, bytes, length);
    (*copy)[length] = 0;
    return REIN_OK;
}

rein_status rein_text_replace(rein_text *out, const char *text, size_t length, const char *from, size_t from_length, const char *to,
                              size_t to_length, rein_error *err) {
    rein_status status = REIN_OK;
    size_t done = 0;
    for (size_t at = 0; !status && from_length && at + from_length <= length;) {
        const char *hit = memchr(text + at, from[0], length - at - from_length + 1);
        if (!hit) break;
        at = (size_t)(hit - text);
        if (memcmp(hit, from, from_length) != 0) {
            at++;
            continue;
        }
        status = rein_text_append(out, text + done, at - done, err);
        if (!status) status = rein_text_append(out, to, to_length, err);
        done = at += from_length;
    }
    return status ? status : rein_text_append(out, text + done, length - done, err);
}
