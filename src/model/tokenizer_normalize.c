/* tokenizer_normalize.c - normalizes a text before it is split: NFC, NFKC, and the blanks of SentencePiece. */
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
    if (status)
        return status == REIN_EINVAL ? rein_place_fail(place, err, "pattern: %s", why.message) : rein_tokenizer_no_memory(err);
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
    if (strcmp(type, "NFKC") == 0) return step->kind = REIN_NORMALIZE_NFKC, REIN_OK;
    if (strcmp(type, "Replace") == 0) return step->kind = REIN_NORMALIZE_REPLACE, read_replace(step, object, place, err);
    if (strcmp(type, "Prepend") == 0) {
        step->kind = REIN_NORMALIZE_PREPEND;
        const rein_status status = rein_json_text(&text, &step->to_length, object, "prepend", place, err);
        return status ? status : rein_text_copy(&step->to, text, step->to_length, err);
    }
    return rein_place_fail(place, err, "normalizer %.60s is not supported: NFC, NFKC, Prepend, Replace and Sequence are", type);
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

/* A text that grows, up to a limit. */
typedef struct growth {
    rein_text *out;
    size_t limit, from; /* from: the length of the text before normalization, for the message */
    rein_matcher *matcher;
    rein_error *err;
} growth;

static rein_status put(growth *g, const char *text, size_t length) {
    if (length <= g->limit && g->out->length <= g->limit - length) return rein_text_append(g->out, text, length, g->err);
    return rein_fail(g->err, REIN_EINVAL,
                     "the normalizer of the tokenizer makes more than %zu bytes of a text of %zu: at most %d times its "
                     "length is supported",
                     g->limit, g->from, REIN_NORMALIZED_TIMES);
}

static rein_status replace_matches(growth *g, const rein_normalizer *step, const char *text, size_t length) {
    rein_status status = REIN_OK;
    size_t done = 0;
    while (!status && done < length) { /* no match is empty: read_replace checks that */
        size_t begin, end;
        bool found;
        status = rein_regex_find(&found, &begin, &end, step->regex, g->matcher, text, length, done, g->err);
        if (status || !found) break;
        status = put(g, text + done, begin - done);
        if (!status) status = put(g, step->to, step->to_length);
        done = end;
    }
    return status ? status : put(g, text + done, length - done);
}

static rein_status replace_text(growth *g, const rein_normalizer *step, const char *text, size_t length) {
    rein_status status = REIN_OK;
    for (size_t n; !status && length; text += n, length -= n) { /* in pieces, so that what is too long is found soon */
        n = length;
        const char *hit = step->from_length ? rein_text_find(text, length, step->from, step->from_length) : NULL;
        if (hit) n = (size_t)(hit - text);
        status = put(g, text, n);
        if (!status && hit) status = put(g, step->to, step->to_length), n += step->from_length;
    }
    return status;
}

/* *same is set if the text needs no change. */
static rein_status run_step(growth *g, bool *same, const rein_normalizer *step, const char *text, size_t length) {
    rein_status status;
    *same = false;
    switch (step->kind) {
    case REIN_NORMALIZE_NFC: return rein_normal_form(g->out, same, false, text, length, g->err);
    case REIN_NORMALIZE_NFKC: return rein_normal_form(g->out, same, true, text, length, g->err);
    case REIN_NORMALIZE_PREPEND:
        if (!length) return *same = true, REIN_OK;
        status = put(g, step->to, step->to_length);
        return status ? status : put(g, text, length);
    case REIN_NORMALIZE_REPLACE: break;
    }
    return step->regex ? replace_matches(g, step, text, length) : replace_text(g, step, text, length);
}

rein_status rein_normalize(const char **result, size_t *result_length, rein_text *first, rein_text *second, rein_matcher *matcher,
                           const rein_normalizers *all, const char *text, size_t length, rein_error *err) {
    growth g = {.from = length, .matcher = matcher, .err = err};
    g.limit = length < SIZE_MAX / REIN_NORMALIZED_TIMES / 2 ? length * REIN_NORMALIZED_TIMES + REIN_NORMALIZED_MORE : SIZE_MAX;
    *result = text, *result_length = length;
    for (size_t i = 0; i < all->count; i++) {
        bool same;
        g.out = *result == first->data ? second : first;
        g.out->length = 0;
        const rein_status status = run_step(&g, &same, &all->steps[i], *result, *result_length);
        if (status) return status;
        if (!same) *result = g.out->data ? g.out->data : "", *result_length = g.out->length;
        if (*result_length > (size_t)1 << 31) return rein_fail(err, REIN_EINVAL, "the normalized text is longer than 2 GiB");
    }
    return REIN_OK;
}
