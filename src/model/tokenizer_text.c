/* tokenizer_text.c - the growing array of ids, and replacing in a text. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"

rein_status rein_tokenizer_no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "no memory for the tokenizer"); }

void rein_ids_free(rein_ids *ids) {
    free(ids->data);
    *ids = (rein_ids){0};
}

rein_status rein_ids_append(rein_ids *ids, int32_t id, rein_error *err) {
    if (ids->count == ids->capacity) {
        const size_t capacity = rein_grown(ids->capacity, ids->count + 1, sizeof *ids->data);
        int32_t *data = capacity ? realloc(ids->data, capacity * sizeof *data) : NULL;
        if (!data) return rein_tokenizer_no_memory(err);
        ids->data = data, ids->capacity = capacity;
    }
    ids->data[ids->count++] = id;
    return REIN_OK;
}

const char *rein_text_find(const char *text, size_t length, const char *part, size_t part_length) {
    while (part_length <= length) {
        const char *hit = memchr(text, part[0], length - part_length + 1);
        if (!hit || memcmp(hit, part, part_length) == 0) return hit;
        length -= (size_t)(hit + 1 - text), text = hit + 1;
    }
    return NULL;
}

rein_status rein_text_replace(rein_text *out, const char *text, size_t length, const char *from, size_t from_length, const char *to,
                              size_t to_length, rein_error *err) {
    rein_status status = REIN_OK;
    for (const char *hit; !status && from_length && (hit = rein_text_find(text, length, from, from_length));) {
        status = rein_text_append(out, text, (size_t)(hit - text), err);
        if (!status) status = rein_text_append(out, to, to_length, err);
        length -= (size_t)(hit - text) + from_length, text = hit + from_length;
    }
    return status ? status : rein_text_append(out, text, length, err);
}
