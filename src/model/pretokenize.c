/* pretokenize.c - splits a text into the pieces that are merged separately.
 *
 * The steps pass on a list of parts of one text. Split, Digits and ByteLevel only cut; Metaspace and add_prefix_space write a new
 * text. The byte-level alphabet is not written out, because bpe.c works on bytes; so ByteLevel must be the last step. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"

static rein_status push(rein_parts *parts, size_t begin, size_t end, bool match, rein_error *err) {
    if (parts->count == parts->capacity) {
        const size_t capacity = rein_grown(parts->capacity, parts->count + 1, sizeof *parts->data);
        rein_part *data = capacity ? realloc(parts->data, capacity * sizeof *data) : NULL;
        if (!data) return rein_tokenizer_no_memory(err);
        parts->data = data, parts->capacity = capacity;
    }
    parts->data[parts->count++] = (rein_part){begin, end, match};
    return REIN_OK;
}

/* ---- the matches of a part and the text between them, in order */
static rein_status find_regex(rein_pieces *p, const rein_regex *regex, size_t begin, size_t end, rein_error *err) {
    const char *text = p->text + begin;
    const size_t length = end - begin;
    size_t done = 0, from = 0, last = SIZE_MAX; /* last: the end of the previous match */
    rein_status status = REIN_OK;
    while (!status && from <= length) {
        size_t b, e;
        bool found;
        uint32_t skipped;
        status = rein_regex_find(&found, &b, &e, regex, p->matcher, text, length, from, err);
        if (status || !found) break;
        from = b < e ? e : b < length ? b + rein_utf8_next(&skipped, text + b) : length + 1;
        if (b == e && b == last) continue; /* an empty match counts, unless the previous match ended here */
        if (done < b) status = push(&p->found, begin + done, begin + b, false, err);
        if (!status) status = push(&p->found, begin + b, begin + e, true, err);
        done = last = e;
    }
    if (!status && done < length) status = push(&p->found, begin + done, end, false, err);
    return status;
}

static rein_status find_digits(rein_pieces *p, size_t begin, size_t end, rein_error *err) {
    rein_status status = REIN_OK;
    size_t done = begin;
    uint32_t c;
    for (size_t at = begin, n; !status && at < end; at += n) {
        n = rein_utf8_next(&c, p->text + at);
        if (!rein_is_numeric(c)) continue;
        if (done < at) status = push(&p->found, done, at, false, err);
        if (!status) status = push(&p->found, at, at + n, true, err);
        done = at + n;
    }
    if (!status && done < end) status = push(&p->found, done, end, false, err);
    return status;
}

/* ---- how matches split the text; appends to the spare list */
static rein_status keep_next(rein_pieces *p, rein_error *err) {
    const rein_parts *found = &p->found;
    rein_status status = REIN_OK;
    for (size_t i = 0; !status && i < found->count; i++) {
        const rein_part *part = &found->data[i];
        const bool joins = part->match && i + 1 < found->count && !found->data[i + 1].match;
        status = push(&p->spare, part->begin, joins ? found->data[i + 1].end : part->end, false, err);
        i += joins;
    }
    return status;
}

static rein_status keep(rein_pieces *p, rein_split_behavior behavior, bool invert, rein_error *err) {
    const size_t first = p->spare.count;
    rein_status status = REIN_OK;
    bool before = false;
    for (size_t i = 0; invert && i < p->found.count; i++) p->found.data[i].match = !p->found.data[i].match;
    if (behavior == REIN_SPLIT_NEXT) return keep_next(p, err);
    for (size_t i = 0; !status && i < p->found.count; i++) {
        const rein_part *part = &p->found.data[i];
        rein_part *last = p->spare.count > first ? &p->spare.data[p->spare.count - 1] : NULL;
        const bool joins = (behavior == REIN_SPLIT_PREVIOUS && part->match && !before) ||
                           (behavior == REIN_SPLIT_CONTIGUOUS && part->match == before);
        before = part->match;
        if (behavior == REIN_SPLIT_REMOVED && part->match) continue;
        if (joins && last) last->end = part->end;
        else status = push(&p->spare, part->begin, part->end, false, err);
    }
    return status;
}

/* Drops empty matches, which only separated their neighbours. */
static void drop_empty(rein_parts *parts) {
    size_t kept = 0;
    for (size_t i = 0; i < parts->count; i++)
        if (parts->data[i].begin < parts->data[i].end) parts->data[kept++] = parts->data[i];
    parts->count = kept;
}

static void take_spare(rein_pieces *p) {
    const rein_parts swap = p->parts;
    drop_empty(&p->spare);
    if (p->parts.count && (!p->spare.count || p->spare.data[0].begin != p->parts.data[0].begin)) p->at_start = false;
    p->parts = p->spare, p->spare = swap;
}

static rein_status cut(rein_pieces *p, const rein_pretokenizer *step, rein_error *err) {
    rein_status status = REIN_OK;
    p->spare.count = 0;
    for (size_t i = 0; !status && i < p->parts.count; i++) {
        const rein_part part = p->parts.data[i];
        p->found.count = 0;
        status = step->kind == REIN_PRETOKENIZE_DIGITS ? find_digits(p, part.begin, part.end, err)
                                                       : find_regex(p, step->regex, part.begin, part.end, err);
        if (!status) status = keep(p, step->behavior, step->invert, err);
    }
    if (!status) take_spare(p);
    return status;
}

/* ---- steps that write a new text */
static bool wants_prefix(const rein_pretokenizer *step, bool at_start, const char *text, size_t length) {
    const size_t n = strlen(step->mark);
    if (step->prepend == REIN_PREPEND_NEVER || (step->prepend == REIN_PREPEND_FIRST && !at_start)) return false;
    if (length && step->kind == REIN_PRETOKENIZE_METASPACE && text[0] == ' ') return false; /* the blank becomes the mark */
    return length < n || memcmp(text, step->mark, n) != 0;
}

static rein_status rewrite(rein_pieces *p, const rein_pretokenizer *step, rein_error *err) {
    rein_text *out = p->held[0].data == p->text && p->text ? &p->held[1] : &p->held[0];
    rein_status status = REIN_OK;
    out->length = 0;
    for (size_t i = 0; !status && i < p->parts.count; i++) {
        rein_part *part = &p->parts.data[i];
        const char *text = p->text + part->begin;
        const size_t length = part->end - part->begin, begin = out->length;
        if (wants_prefix(step, i == 0 && p->at_start, text, length))
            status = rein_text_append(out, step->mark, strlen(step->mark), err);
        if (!status && step->kind == REIN_PRETOKENIZE_METASPACE)
            status = rein_text_replace(out, text, length, " ", 1, step->mark, strlen(step->mark), err);
        else if (!status) status = rein_text_append(out, text, length, err);
        part->begin = begin, part->end = out->length;
    }
    if (p->parts.count) p->text = out->data;
    return status;
}

static rein_status run(rein_pieces *p, const rein_pretokenizer *step, rein_error *err) {
    rein_status status = REIN_OK;
    if (step->kind == REIN_PRETOKENIZE_METASPACE ||
        (step->kind == REIN_PRETOKENIZE_BYTE_LEVEL && step->prepend == REIN_PREPEND_ALWAYS))
        status = rewrite(p, step, err);
    if (!status && (step->regex || step->kind == REIN_PRETOKENIZE_DIGITS)) status = cut(p, step, err);
    return status;
}

rein_status rein_pretokenize(rein_pieces *p, rein_matcher *matcher, const rein_pretokenizers *all, const char *text, size_t length,
                             bool at_start, rein_error *err) {
    p->text = text, p->matcher = matcher, p->at_start = at_start;
    p->parts.count = 0;
    rein_status status = length ? push(&p->parts, 0, length, false, err) : REIN_OK;
    for (size_t i = 0; !status && i < all->count; i++) status = run(p, &all->steps[i], err);
    return status;
}

void rein_pieces_free(rein_pieces *p) {
    free(p->parts.data);
    free(p->spare.data);
    free(p->found.data);
    rein_text_free(&p->held[0]);
    rein_text_free(&p->held[1]);
    *p = (rein_pieces){0};
}
