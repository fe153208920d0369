/* bpe_read.c - reads the model of a file: byte-pair encoding without dropout, prefixes or suffixes, in which every merge makes a
 * token. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"

static rein_status require_bpe(const json_t *model, const rein_place *place, rein_error *err) {
    const json_t *type = json_object_get(model, "type"), *dropout = json_object_get(model, "dropout");
    static const char *const empty[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    if (!json_is_object(model)) return rein_place_fail(place, err, "is not an object");
    /* Old files have no type; then merges identify the model. */
    if (type ? !json_is_string(type) || strcmp(json_string_value(type), "BPE") != 0 : !json_object_get(model, "merges"))
        return rein_place_fail(place, err, "model %.60s is not supported: BPE is",
                               json_is_string(type) ? json_string_value(type) : "type");
    if (dropout && !json_is_null(dropout) && (!json_is_number(dropout) || json_number_value(dropout) != 0))
        return rein_place_fail(place, err, "\"dropout\" is not supported: null and 0 are");
    for (size_t i = 0; i < 2; i++) {
        const json_t *text = json_object_get(model, empty[i]);
        if (text && !json_is_null(text) && (!json_is_string(text) || json_string_length(text)))
            return rein_place_fail(place, err, "\"%s\" is not supported: null and \"\" are", empty[i]);
    }
    return REIN_OK;
}

static rein_status read_flags(rein_bpe *bpe, const json_t *model, const rein_vocabulary *v, const rein_place *place,
                              rein_error *err) {
    const json_t *unknown = json_object_get(model, "unk_token");
    rein_status status = rein_json_flag(&bpe->fuse_unknown, model, "fuse_unk", false, place, err);
    if (!status) status = rein_json_flag(&bpe->byte_fallback, model, "byte_fallback", false, place, err);
    if (!status) status = rein_json_flag(&bpe->ignore_merges, model, "ignore_merges", false, place, err);
    bpe->unknown = -1;
    if (status || !unknown || json_is_null(unknown)) return status;
    if (json_is_string(unknown)) bpe->unknown = rein_vocabulary_find(v, json_string_value(unknown), json_string_length(unknown));
    return bpe->unknown >= 0 ? REIN_OK : rein_place_fail(place, err, "\"unk_token\" is not a token of the vocabulary");
}

static void index_bytes(rein_bpe *bpe, const rein_vocabulary *v) {
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        const size_t length = rein_utf8_write(text, rein_byte_character((unsigned char)byte));
        bpe->bytes[byte] = rein_vocabulary_find_model(v, text, length);
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte & 0xFF);
        bpe->fallback[byte] = rein_vocabulary_find_model(v, text, 6);
    }
    for (size_t i = 0; i < v->size; i++)
        if (v->lengths[i] > (int32_t)bpe->longest) bpe->longest = (size_t)v->lengths[i];
}

/* Splits a merge, "left right" or ["left", "right"]. */
static bool halves(const char *half[2], size_t length[2], const json_t *merge) {
    if (json_is_string(merge)) {
        const char *text = json_string_value(merge);
        const size_t whole = json_string_length(merge);
        const char *blank = memchr(text, ' ', whole);
        if (!blank || memchr(blank + 1, ' ', whole - (size_t)(blank + 1 - text))) return false;
        half[0] = text, length[0] = (size_t)(blank - text);
        half[1] = blank + 1, length[1] = whole - length[0] - 1;
        return true;
    }
    if (!json_is_array(merge) || json_array_size(merge) != 2) return false;
    for (size_t i = 0; i < 2; i++) {
        const json_t *text = json_array_get(merge, i);
        if (!json_is_string(text)) return false;
        half[i] = json_string_value(text), length[i] = json_string_length(text);
    }
    return true;
}

static rein_status read_merge(rein_bpe *bpe, rein_text *joined, uint32_t rank, const json_t *merge, const rein_vocabulary *v,
                              const rein_place *place, rein_error *err) {
    const char *half[2];
    size_t length[2];
    int32_t ids[2];
    if (!halves(half, length, merge)) return rein_place_fail(place, err, "is neither \"left right\" nor [\"left\", \"right\"]");
    joined->length = 0;
    for (size_t i = 0; i < 2; i++) {
        ids[i] = rein_vocabulary_find_model(v, half[i], length[i]);
        if (ids[i] < 0) return rein_place_fail(place, err, "\"%.60s\" is not a token of the vocabulary", half[i]);
        const rein_status status = rein_text_append(joined, half[i], length[i], err);
        if (status) return status;
    }
    const int32_t made = rein_vocabulary_find_model(v, joined->data, joined->length);
    if (made < 0) return rein_place_fail(place, err, "it makes \"%.60s\", which is not a token of the vocabulary", joined->data);
    const uint64_t pair = (uint64_t)(uint32_t)ids[0] << 32 | (uint32_t)ids[1];
    bpe->merges[rein_bpe_slot(bpe, pair)] = (rein_merge){pair, rank, made};
    return REIN_OK;
}

static rein_status read_merges(rein_bpe *bpe, const json_t *list, const rein_vocabulary *v, const rein_place *place,
                               rein_error *err) {
    const size_t count = json_array_size(list);
    rein_status status = REIN_OK;
    rein_text joined = {0};
    uint32_t rank = 0;
    for (size_t i = 0; !status && i < count; i++) {
        const json_t *merge = json_array_get(list, i);
        const char *text = json_string_value(merge);
        const rein_place at = rein_place_at(place, "[%zu]", i);
        if (text && strncmp(text, "#version", 8) == 0) continue; /* the first line of old merge files */
        status = read_merge(bpe, &joined, rank++, merge, v, &at, err);
    }
    rein_text_free(&joined);
    return status;
}

static rein_status make_table(rein_bpe *bpe, size_t count, rein_error *err) {
    size_t slots = 16;
    while (slots < 2 * count) slots *= 2;
    bpe->merges = malloc(slots * sizeof *bpe->merges);
    if (!bpe->merges) return rein_tokenizer_no_memory(err);
    bpe->mask = slots - 1;
    for (size_t i = 0; i < slots; i++) bpe->merges[i] = (rein_merge){UINT64_MAX, 0, -1};
    return REIN_OK;
}

rein_status rein_bpe_read(rein_bpe *bpe, const json_t *model, bool byte_level, const rein_vocabulary *v, const rein_place *place,
                          rein_error *err) {
    const rein_place at = rein_place_at(place, "model"), merges_at = rein_place_at(&at, "merges");
    const json_t *merges = json_object_get(model, "merges");
    rein_status status = require_bpe(model, &at, err);
    if (!status) status = read_flags(bpe, model, v, &at, err);
    if (status) return status;
    if (!json_is_array(merges)) return rein_place_fail(&merges_at, err, "is not an array");
    if (json_array_size(merges) > REIN_TOKENIZER_MERGES)
        return rein_place_fail(&merges_at, err, "has %zu merges: at most %d are supported", json_array_size(merges),
                               REIN_TOKENIZER_MERGES);
    bpe->byte_level = byte_level;
    index_bytes(bpe, v);
    status = make_table(bpe, json_array_size(merges), err);
    return status ? status : read_merges(bpe, merges, v, &merges_at, err);
}

void rein_bpe_free(rein_bpe *bpe) {
    free(bpe->merges);
    bpe->merges = NULL;
}
