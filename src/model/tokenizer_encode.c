/* tokenizer_encode.c - encodes a text in the order of Hugging Face: added tokens, normalizer, added tokens that match normalized
 * text, pieces, merges, and the tokens of the post-processor. */
#include "model/tokenizer_parts.h"

/* The state of one call. */
typedef struct work {
    const rein_tokenizer *tokenizer;
    const rein_encoding *how;
    rein_ids *ids;
    rein_pieces pieces;
    rein_matcher matcher;
    rein_word word;
    rein_text normalized[2];
} work;

/* Encodes plain text, which contains no added token. */
static rein_status encode_plain(work *w, const char *text, size_t length, bool at_start, rein_error *err) {
    const rein_tokenizer *t = w->tokenizer;
    rein_status status = rein_pretokenize(&w->pieces, &w->matcher, &t->pretokenizers, text, length, at_start, err);
    for (size_t i = 0; !status && i < w->pieces.parts.count; i++) {
        const rein_part *part = &w->pieces.parts.data[i];
        status =
            rein_bpe_encode(w->ids, &w->word, &t->bpe, &t->vocabulary, w->pieces.text + part->begin, part->end - part->begin, err);
    }
    return status;
}

typedef rein_status between(work *w, const char *text, size_t length, bool at_start, rein_error *err);

/* Finds the added tokens of a set, and encodes the text between them with `rest`. */
static rein_status cut_added(work *w, const rein_added_set *set, const rein_encoding *how, between *rest, const char *text,
                             size_t length, bool at_start, rein_error *err) {
    rein_added_match match;
    rein_status status = REIN_OK;
    size_t from = 0, done = 0;
    while (!status && rein_added_next(&match, &from, done, set, text, length, how)) {
        if (done < match.span.begin) status = rest(w, text + done, match.span.begin - done, at_start && done == 0, err);
        if (!status) status = rein_ids_append(w->ids, match.token->id, err);
        done = match.span.end;
    }
    if (!status && done < length) status = rest(w, text + done, length - done, at_start && done == 0, err);
    return status;
}

/* Positions in normalized text are not those of the caller's text. If the caller gave literal spans, no special token is matched
 * in it. */
static rein_status encode_unnormalized(work *w, const char *text, size_t length, bool at_start, rein_error *err) {
    const rein_tokenizer *t = w->tokenizer;
    const rein_encoding how = {.parse_special = w->how->parse_special && !w->how->literals};
    rein_status status =
        rein_normalize(&text, &length, &w->normalized[0], &w->normalized[1], &w->matcher, &t->normalizers, text, length, err);
    if (status) return status;
    return cut_added(w, &t->normalized_set, &how, encode_plain, text, length, at_start, err);
}

static rein_status put_around(rein_ids *ids, const int32_t *tokens, size_t n, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t i = 0; !status && i < n; i++) status = rein_ids_append(ids, tokens[i], err);
    return status;
}

static rein_status check_spans(const rein_encoding *how, size_t length, rein_error *err) {
    for (size_t i = 0; i < how->literals; i++) {
        const rein_span *span = &how->literal[i];
        if (span->end < span->begin || span->end > length || (i && span->begin < span[-1].end))
            return rein_fail_at(err, REIN_EINVAL, "literal", (int64_t)i,
                                "is [%zu, %zu): spans ascend and end within the text's %zu bytes", span->begin, span->end, length);
    }
    return REIN_OK;
}

static rein_status check_length(const work *w, size_t length, rein_error *err) {
    const size_t of_token = w->tokenizer->bytes_per_token, most = w->how->max_tokens;
    if (!most || !of_token || length / of_token <= most) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "the text has %zu bytes, which are more than %zu tokens: at most %zu bytes can fit", length,
                     most, most * of_token);
}

static rein_status encode(work *w, const char *text, size_t length, rein_error *err) {
    const rein_affixes *around = &w->tokenizer->affixes;
    rein_status status = check_spans(w->how, length, err);
    if (!status && w->how->add_special) status = put_around(w->ids, around->before, around->befores, err);
    if (!status) status = cut_added(w, &w->tokenizer->plain_set, w->how, encode_unnormalized, text, length, true, err);
    if (!status && w->how->add_special) status = put_around(w->ids, around->after, around->afters, err);
    return status;
}

rein_status rein_tokenizer_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const char *text, size_t length,
                                  const rein_encoding *how, rein_error *err) {
    static const rein_encoding plain;
    work w = {.tokenizer = tokenizer, .how = how ? how : &plain, .ids = ids, .matcher = {.length = length}};
    const rein_status fits = check_length(&w, length, err);
    if (fits) return fits;
    const size_t before = ids->count, wrong = rein_utf8_valid(text, length);
    if (wrong < length)
        return rein_fail(err, REIN_EINVAL, "byte %zu of the text (0x%02X) is not UTF-8", wrong,
                         (unsigned)(unsigned char)text[wrong]);
    w.word.guarded = !w.how->parse_special || w.how->literals;
    const rein_status status = encode(&w, text, length, err);
    if (status) ids->count = before;
    rein_pieces_free(&w.pieces);
    rein_word_free(&w.word);
    rein_matcher_free(&w.matcher);
    rein_text_free(&w.normalized[0]);
    rein_text_free(&w.normalized[1]);
    return status;
}
