/* tokenizer_normalize.c - normalizes a text before it is split: NFC, and the blanks of SentencePiece. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"

static rein_status read_replace(rein_normalizer *step, const json_t *object, const rein_place *place, rein_error *err) {
    const char *from, *to;
    bool is_regex;
    rein_status status = rein_json_pattern(&from, &step->from_length, &is_regex, object, place, err);
    if (!status) status = rein_json_text(&to, &step->to_length, object, "content", place, err);
    if (!status) status = rein_text_copy(&step->to, to, step->to_length, err);
    if (status) return status;
    if (!is_regex) return rein_text_copy(&step->from, from, step->from_length, err);
    rein_error why = {0};
    status = rein_regex_make(&step->regex, from, step->from_length, false, &why);
    if (status) return status == REIN_EINVAL ? rein_place_fail(place, err, "pattern: %s", why.message) : rein_no_memory(err);
    if (!rein_regex_may_be_empty(step->regex)) return REIN_OK;
    return rein_place_fail(place, err,
                           "pattern: it may match an empty text: an expression that matches at least one character is needed");
}

static rein_status read_step(void *context, const char *type, const json_t *object, const rein_place *place, rein_error *err) {
    rein_normalizers *all = context;
    const char *text;
    if (all->count == REIN_TOKENIZER_STEPS)
        return rein_place_fail(place, err, "there are more than %d normalizers", REIN_TOKENIZER_STEPS);
    rein_normalizer *step = &all->steps[all->count++];
    if (strcmp(type, "NFC") == 0) return step->kind = REIN_NORMALIZE_NFC, REIN_OK;
    if (strcmp(type, "Replace") == 0) return step->kind = REIN_NORMALIZE_REPLACE, read_replace(step, object, place, err);
    if (strcmp(type, "Prepend") == 0) {
        step->kind = REIN_NORMALIZE_PREPEND;
        const rein_status status = rein_json_text(&text, &step->to_length, object, "prepend", place, err);
        return status ? status : rein_text_copy(&step->to, text, step->to_length, err);
    }
    return rein_place_fail(place, err, "normalizer %.60s is not supported: NFC, Prepend, Replace and Sequence are", type);
}

rein_status rein_normalizers_read(rein_normalizers *normalizers, const json_t *object, const rein_place *place, rein_error *err) {
    const rein_place at = rein_place_at(place, "normalizer");
    return rein_json_sequence(object, "normalizers", read_step, normalizers, &at, err);
}

void rein_normalizers_free(rein_normalizers *all) {
    for (size_t i = 0; i < all->count; i++) {
        free(all->steps[i].from);
        free(all->steps[i].to);
        rein_regex_free(all->steps[i].regex);
    }
    all->count = 0;
}

static rein_status replace_matches(rein_text *out, const rein_normalizer *step, const char *text, size_t length, rein_error *err) {
    pcre2_match_data *match = NULL;
    rein_status status = rein_regex_prepare(&match, step->regex, err);
    size_t done = 0;
    while (!status && done < length) { /* no match is empty: read_replace checks that */
        size_t begin, end;
        bool found;
        status = rein_regex_find(&found, &begin, &end, step->regex, match, text, length, done, err);
        if (status || !found) break;
        status = rein_text_append(out, text + done, begin - done, err);
        if (!status) status = rein_text_append(out, step->to, step->to_length, err);
        done = end;
    }
    pcre2_match_data_free(match);
    return status ? status : rein_text_append(out, text + done, length - done, err);
}

/* *same is set if the text needs no change. */
static rein_status run_step(rein_text *out, bool *same, const rein_normalizer *step, const char *text, size_t length,
                            rein_error *err) {
    rein_status status;
    *same = false;
    switch (step->kind) {
    case REIN_NORMALIZE_NFC: return rein_nfc(out, same, text, length, err);
    case REIN_NORMALIZE_PREPEND:
        if (!length) return *same = true, REIN_OK;
        status = rein_text_append(out, step->to, step->to_length, err);
        return status ? status : rein_text_append(out, text, length, err);
    case REIN_NORMALIZE_REPLACE: break;
    }
    if (step->regex) return replace_matches(out, step, text, length, err);
    return rein_text_replace(out, text, length, step->from, step->from_length, step->to, step->to_length, err);
}

rein_status rein_normalize(const char **result, size_t *result_length, rein_text *first, rein_text *second,
                           const rein_normalizers *all, const char *text, size_t length, rein_error *err) {
    rein_text *out = first, *other = second;
    *result = text, *result_length = length;
    for (size_t i = 0; i < all->count; i++) {
        bool same;
        out->length = 0;
        const rein_status status = run_step(out, &same, &all->steps[i], *result, *result_length, err);
        if (status) return status;
        if (same) continue;
        *result = out->data ? out->data : "", *result_length = out->length;
        rein_text *swap = out;
        out = other, other = swap;
        if (*result_length > (size_t)1 << 31) return rein_fail(err, REIN_EINVAL, "the normalized text is longer than 2 GiB");
    }
    return REIN_OK;
}
