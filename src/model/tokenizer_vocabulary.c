/* tokenizer_vocabulary.c - reads the tokens of a file, model.vocab and added_tokens, into one table by id and by text. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"

/* Sizes, counted before anything is stored. */
typedef struct counts {
    size_t tokens, bytes, size;
} counts;

static uint64_t hash_of(const char *text, size_t length) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001B3u;
    return hash ^ hash >> 29;
}

const char *rein_vocabulary_text(size_t *length, const rein_vocabulary *v, int32_t id) {
    if (id < 0 || (size_t)id >= v->size || v->lengths[id] < 0) return NULL;
    *length = (size_t)v->lengths[id];
    return v->bytes + v->begins[id];
}

/* The slot of a text: its own, or the free one where it belongs. */
static size_t slot_of(const rein_vocabulary *v, const char *text, size_t length) {
    size_t slot = hash_of(text, length) & v->mask;
    for (; v->slots[slot] >= 0; slot = (slot + 1) & v->mask) {
        const int32_t id = v->slots[slot];
        if ((size_t)v->lengths[id] == length && memcmp(v->bytes + v->begins[id], text, length) == 0) break;
    }
    return slot;
}

int32_t rein_vocabulary_find(const rein_vocabulary *v, const char *text, size_t length) {
    return v->slots[slot_of(v, text, length)];
}

int32_t rein_vocabulary_find_model(const rein_vocabulary *v, const char *text, size_t length) {
    const int32_t id = rein_vocabulary_find(v, text, length);
    return id >= 0 && v->begins[id] + length <= v->model_bytes ? id : -1;
}

void rein_vocabulary_free(rein_vocabulary *v) {
    free(v->bytes);
    free(v->begins);
    free(v->lengths);
    free(v->slots);
    free(v->special);
    *v = (rein_vocabulary){0};
}

static rein_status count_token(counts *seen, const char *text, size_t length, const json_t *id, const rein_place *place,
                               rein_error *err) {
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= 2 * REIN_TOKENIZER_TOKENS)
        return rein_place_fail(place, err, "the id of \"%.40s\" is not an integer from 0 to %d", text,
                               2 * REIN_TOKENIZER_TOKENS - 1);
    if (length > REIN_TOKENIZER_TOKEN)
        return rein_place_fail(place, err, "the token of id %lld has %zu bytes: at most %d are supported",
                               (long long)json_integer_value(id), length, REIN_TOKENIZER_TOKEN);
    seen->tokens++, seen->bytes += length;
    if ((size_t)json_integer_value(id) >= seen->size) seen->size = (size_t)json_integer_value(id) + 1;
    if (seen->bytes > REIN_TOKENIZER_FILE)
        return rein_place_fail(place, err, "the tokens have more than %d bytes in total: fewer are supported", REIN_TOKENIZER_FILE);
    if (seen->tokens <= REIN_TOKENIZER_TOKENS) return REIN_OK;
    return rein_place_fail(place, err, "there are more than %d tokens: fewer are supported", REIN_TOKENIZER_TOKENS);
}

static rein_status count_tokens(counts *seen, const json_t *vocab, const json_t *added, const rein_place *place, rein_error *err) {
    rein_place at = rein_place_at(place, "model.vocab");
    rein_status status = REIN_OK;
    const char *key;
    json_t *value;
    size_t i;
    if (!json_is_object(vocab)) return rein_place_fail(&at, err, "is not an object that maps tokens to ids");
    json_object_foreach((json_t *)(uintptr_t)vocab, key, value) {
        if (!status) status = count_token(seen, key, strlen(key), value, &at, err);
    }
    json_array_foreach((json_t *)(uintptr_t)added, i, value) {
        const json_t *content = json_object_get(value, "content");
        if (status) break;
        at = rein_place_at(place, "added_tokens[%zu]", i);
        if (!json_is_string(content) || !json_string_length(content))
            return rein_place_fail(&at, err, "\"content\" is not a string or is empty");
        status = count_token(seen, json_string_value(content), json_string_length(content), json_object_get(value, "id"), &at, err);
    }
    if (!status && seen->size > seen->tokens + REIN_TOKENIZER_GAP)
        return rein_place_fail(place, err, "the highest id is %zu, but there are %zu tokens", seen->size - 1, seen->tokens);
    return status;
}

static rein_status allocate(rein_vocabulary *v, const counts *seen, rein_error *err) {
    size_t slots = 16;
    while (slots < 2 * seen->tokens) slots *= 2;
    v->bytes = malloc(seen->bytes + 1);
    v->begins = calloc(seen->size + 1, sizeof *v->begins);
    v->lengths = malloc((seen->size + 1) * sizeof *v->lengths);
    v->special = calloc(seen->size + 1, sizeof *v->special);
    v->slots = malloc(slots * sizeof *v->slots);
    if (!v->bytes || !v->begins || !v->lengths || !v->special || !v->slots) return rein_tokenizer_no_memory(err);
    v->size = seen->size, v->mask = slots - 1;
    for (size_t i = 0; i < v->size; i++) v->lengths[i] = -1;
    for (size_t i = 0; i < slots; i++) v->slots[i] = -1;
    return REIN_OK;
}

/* Stores a token. A token of model.vocab may be listed again as an added token with the same id. */
static rein_status store(rein_vocabulary *v, size_t *used, const char *text, size_t length, int32_t id, bool again,
                         const rein_place *place, rein_error *err) {
    const size_t slot = slot_of(v, text, length);
    const int32_t other = v->slots[slot];
    if (other == id && again) return REIN_OK;
    if (other >= 0)
        return rein_place_fail(place, err, "\"%.60s\" has id %d here and id %d before: a token has one id", text, (int)id,
                               (int)other);
    if (v->lengths[id] >= 0)
        return rein_place_fail(place, err, "\"%.60s\" has id %d, which is the id of \"%.*s\"", text, (int)id,
                               v->lengths[id] < 60 ? (int)v->lengths[id] : 60, v->bytes + v->begins[id]);
    memcpy(v->bytes + *used, text, length);
    v->begins[id] = (uint32_t)*used, v->lengths[id] = (int32_t)length, v->slots[slot] = id;
    *used += length;
    return REIN_OK;
}

static rein_status read_added(rein_added *token, const json_t *object, const rein_place *place, rein_error *err) {
    rein_status status = rein_json_flag(&token->special, object, "special", false, place, err);
    if (!status) status = rein_json_flag(&token->single_word, object, "single_word", false, place, err);
    if (!status) status = rein_json_flag(&token->lstrip, object, "lstrip", false, place, err);
    if (!status) status = rein_json_flag(&token->rstrip, object, "rstrip", false, place, err);
    if (!status) status = rein_json_flag(&token->normalized, object, "normalized", !token->special, place, err);
    token->id = (int32_t)json_integer_value(json_object_get(object, "id"));
    return status;
}

static rein_status store_added(rein_vocabulary *v, size_t *used, rein_added *added, bool *seen, const json_t *list,
                               const rein_place *place, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t i = 0; !status && i < json_array_size(list); i++) {
        const json_t *object = json_array_get(list, i), *content = json_object_get(object, "content");
        const rein_place at = rein_place_at(place, "added_tokens[%zu]", i);
        status = read_added(&added[i], object, &at, err);
        if (!status) status = store(v, used, json_string_value(content), json_string_length(content), added[i].id, true, &at, err);
        if (status) break;
        if (seen[added[i].id]) return rein_place_fail(&at, err, "id %d was already added", (int)added[i].id);
        seen[added[i].id] = true;
        v->special[added[i].id] = added[i].special;
    }
    return status;
}

static rein_status store_all(rein_vocabulary *v, rein_added *added, bool *seen, const json_t *vocab, const json_t *list,
                             const rein_place *place, rein_error *err) {
    const rein_place at = rein_place_at(place, "model.vocab");
    rein_status status = REIN_OK;
    size_t used = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)vocab, key, value) {
        const bool nul = v->hides_nul && !strcmp(key, REIN_NUL_KEY);
        status = store(v, &used, nul ? "" : key, nul ? 1 : strlen(key), (int32_t)json_integer_value(value), false, &at, err);
        if (status) return status;
    }
    v->model_bytes = used;
    return store_added(v, &used, added, seen, list, place, err);
}

rein_status rein_vocabulary_read(rein_vocabulary *v, rein_added **added, size_t *count, const json_t *root, const rein_place *place,
                                 rein_error *err) {
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *list = json_object_get(root, "added_tokens");
    const rein_place at = rein_place_at(place, "added_tokens");
    counts seen = {0};
    if (list && !json_is_null(list) && !json_is_array(list)) return rein_place_fail(&at, err, "is not an array");
    *count = json_array_size(list);
    if (*count > REIN_TOKENIZER_ADDED) return rein_place_fail(&at, err, "has more than %d tokens", REIN_TOKENIZER_ADDED);
    rein_status status = count_tokens(&seen, vocab, list, place, err);
    if (!status) status = allocate(v, &seen, err);
    if (status) return status;
    *added = calloc(*count + 1, sizeof **added);
    bool *listed = calloc(seen.size + 1, sizeof *listed);
    status = *added && listed ? store_all(v, *added, listed, vocab, list, place, err) : rein_tokenizer_no_memory(err);
    free(listed);
    return status;
}
