/* tokenizer_added.c - finds added tokens in a text: the leftmost, and of those that begin there the longest, as Hugging Face does.
 *
 * The patterns are sorted, so patterns with a common prefix are neighbours. Following the text narrows the range byte by byte; a
 * pattern that ends at some depth is the first of its range. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"

static int by_pattern(const void *left, const void *right) {
    const rein_added_entry *a = left, *b = right;
    const int order = memcmp(a->pattern, b->pattern, a->length < b->length ? a->length : b->length);
    if (order) return order;
    if (a->length != b->length) return a->length < b->length ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* Appends the pattern to the bytes of the set; the pointers are set when all patterns are there. */
static rein_status normalize_pattern(rein_text *patterns, size_t *length, const rein_normalizers *normalizers, const char *text,
                                     size_t text_length, rein_error *err) {
    rein_text first = {0}, second = {0};
    rein_matcher matcher = {.length = text_length};
    const char *made;
    rein_status status = rein_normalize(&made, length, &first, &second, &matcher, normalizers, text, text_length, err);
    if (!status) status = rein_text_append(patterns, made, *length, err);
    rein_text_free(&first);
    rein_text_free(&second);
    rein_matcher_free(&matcher);
    return status;
}

static rein_status fill(rein_added_set *set, rein_text *patterns, const rein_added *added, size_t count, bool normalized,
                        const rein_vocabulary *vocabulary, const rein_normalizers *normalizers, rein_error *err) {
    for (size_t i = 0; i < count; i++) {
        rein_added_entry entry = {NULL, 0, &added[i], i + (added[i].special ? 0 : count)};
        if (added[i].normalized != normalized) continue;
        entry.pattern = rein_vocabulary_text(&entry.length, vocabulary, added[i].id);
        if (normalized) {
            const rein_status status = normalize_pattern(patterns, &entry.length, normalizers, entry.pattern, entry.length, err);
            if (status) return status;
        }
        if (entry.length || normalized) set->entries[set->count++] = entry;
    }
    return REIN_OK;
}

static void index_set(rein_added_set *set) {
    size_t kept = 0;
    qsort(set->entries, set->count, sizeof *set->entries, by_pattern);
    for (size_t i = 0; i < set->count; i++) { /* of equal patterns the first counts; an empty pattern never matches */
        const rein_added_entry *entry = &set->entries[i], *last = kept ? &set->entries[kept - 1] : NULL;
        if (!entry->length) continue;
        const bool again = last && last->length == entry->length && memcmp(last->pattern, entry->pattern, entry->length) == 0;
        if (set->by_id) set->by_id[entry->token->id] = (int32_t)(again ? kept - 1 : kept);
        if (!again) set->entries[kept++] = *entry;
    }
    set->count = kept;
    for (size_t byte = 0, at = 0; byte <= 256; byte++) {
        while (byte && at < kept && (unsigned char)set->entries[at].pattern[0] < byte) at++;
        set->firsts[byte] = at;
    }
}

/* Decoding writes a normalized token as it was matched, not as the file spells it, like newer versions of Hugging Face. */
static rein_status make_by_id(rein_added_set *set, size_t size, rein_error *err) {
    set->by_id = malloc(size * sizeof *set->by_id);
    if (!set->by_id) return rein_tokenizer_no_memory(err);
    for (size_t i = 0; i < size; i++) set->by_id[i] = -1;
    return REIN_OK;
}

rein_status rein_added_set_make(rein_added_set *set, const rein_added *added, size_t count, bool normalized,
                                const rein_vocabulary *vocabulary, const rein_normalizers *normalizers, rein_error *err) {
    rein_text patterns = {0};
    set->entries = calloc(count + 1, sizeof *set->entries);
    if (!set->entries) return rein_tokenizer_no_memory(err);
    rein_status status = fill(set, &patterns, added, count, normalized, vocabulary, normalizers, err);
    set->patterns = patterns.data;
    if (!status && normalized && set->count) status = make_by_id(set, vocabulary->size, err);
    if (status) return status;
    for (size_t i = 0, at = 0; normalized && i < set->count; at += set->entries[i++].length)
        set->entries[i].pattern = patterns.data + at;
    index_set(set);
    return REIN_OK;
}

void rein_added_set_free(rein_added_set *set) {
    free(set->entries);
    free(set->patterns);
    free(set->by_id);
    *set = (rein_added_set){0};
}

/* The first entry of [low, high) whose byte at `depth` is at least `byte`. */
static size_t lower(const rein_added_set *set, size_t low, size_t high, size_t depth, int byte) {
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const rein_added_entry *entry = &set->entries[middle];
        const int here = depth < entry->length ? (unsigned char)entry->pattern[depth] : -1;
        if (here < byte) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The largest length of a special token at `at`: it must not reach into a literal span. */
static size_t room_for_special(const rein_encoding *how, size_t at) {
    size_t low = 0, high = how->parse_special ? how->literals : 0;
    const size_t spans = high;
    while (low < high) { /* the first span that ends after `at` */
        const size_t middle = low + (high - low) / 2;
        if (how->literal[middle].end <= at) low = middle + 1;
        else high = middle;
    }
    if (low == spans) return SIZE_MAX;
    return how->literal[low].begin > at ? how->literal[low].begin - at : 0;
}

static const rein_added_entry *longest_at(const rein_added_set *set, const char *text, size_t length, size_t at,
                                          const rein_encoding *how) {
    const unsigned char first = (unsigned char)text[at];
    size_t low = set->firsts[first], high = set->firsts[first + 1];
    const size_t room = low < high ? room_for_special(how, at) : 0;
    const rein_added_entry *best = NULL;
    for (size_t depth = 1; low < high; depth++) {
        const rein_added_entry *entry = &set->entries[low];
        if (entry->length == depth && (depth <= room || !entry->token->special)) best = entry;
        if (at + depth == length) break;
        const int byte = (unsigned char)text[at + depth];
        low = lower(set, low, high, depth, byte);
        high = lower(set, low, high, depth, byte + 1);
    }
    return best;
}

static size_t character_before(uint32_t *character, const char *text, size_t at) {
    size_t begin = at - 1;
    while (begin > 0 && ((unsigned char)text[begin] & 0xC0) == 0x80) begin--;
    rein_utf8_next(character, text + begin);
    return begin;
}

static bool stands_alone(const char *text, size_t length, size_t begin, size_t end) {
    uint32_t c;
    if (begin > 0 && (character_before(&c, text, begin), rein_is_word(c))) return false;
    return end == length || (rein_utf8_next(&c, text + end), !rein_is_word(c));
}

static size_t blanks_before(const char *text, size_t at, size_t least) {
    uint32_t c;
    while (at > least) {
        const size_t begin = character_before(&c, text, at);
        if (!rein_is_white_space(c)) break;
        at = begin;
    }
    return at > least ? at : least;
}

static size_t blanks_after(const char *text, size_t length, size_t at) {
    uint32_t c;
    for (size_t n; at < length; at += n)
        if (n = rein_utf8_next(&c, text + at), !rein_is_white_space(c)) break;
    return at;
}

bool rein_added_next(rein_added_match *match, size_t *from, size_t last, const rein_added_set *set, const char *text, size_t length,
                     const rein_encoding *how) {
    for (size_t at = *from; set->count && at < length; at++) {
        const rein_added_entry *entry = longest_at(set, text, length, at, how);
        if (!entry) continue;
        const rein_added *token = entry->token;
        const size_t end = at + entry->length;
        *from = end;
        if ((!token->special || how->parse_special) && (!token->single_word || stands_alone(text, length, at, end))) {
            match->token = token;
            match->span.begin = token->lstrip ? blanks_before(text, at, last < at ? last : at) : at;
            match->span.end = token->rstrip ? blanks_after(text, length, last > end ? last : end) : end;
            if (!token->lstrip || match->span.end > last) return true; /* else the token before has taken these blanks */
        }
        at = end - 1; /* as Hugging Face does: text that was examined is not examined again */
    }
    return false;
}
