/* bpe.c - byte-pair encoding of one piece: the pair with the lowest rank is merged, the leftmost of equal ones, until no pair can
 * be merged.
 *
 * Candidates wait in a heap and are checked when they are taken from it, so a piece of n symbols takes O(n log n). A candidate is
 * outdated if the pair now at its position makes another token. This rule is Hugging Face's, and so are the resulting ids. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"

/* Printable bytes stand for themselves; the others, 0 to 0x20, 0x7F to 0xA0 and 0xAD, are mapped to characters from U+0100 on. */
uint32_t rein_byte_character(unsigned char byte) {
    if (byte <= 0x20) return 0x100u + byte;
    if (byte >= 0x7F && byte <= 0xA0) return 0x121u + byte - 0x7F;
    return byte == 0xAD ? 0x143u : byte;
}

int rein_character_byte(uint32_t character) {
    if (character >= 0x100 && character <= 0x120) return (int)(character - 0x100);
    if (character >= 0x121 && character <= 0x142) return (int)(character - 0x121 + 0x7F);
    if (character == 0x143) return 0xAD;
    return character < 0x100 && rein_byte_character((unsigned char)character) == character ? (int)character : -1;
}

size_t rein_bpe_slot(const rein_bpe *bpe, uint64_t pair) {
    size_t slot = (pair * 0x9E3779B97F4A7C15u >> 29) & bpe->mask;
    while (bpe->merges[slot].pair != pair && bpe->merges[slot].pair != UINT64_MAX) slot = (slot + 1) & bpe->mask;
    return slot;
}

static uint64_t pair_of(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

static const rein_merge *find(const rein_word *word, const rein_bpe *bpe, const rein_vocabulary *v, int32_t left, int32_t right) {
    const rein_merge *merge = &bpe->merges[rein_bpe_slot(bpe, pair_of(left, right))];
    return merge->pair == UINT64_MAX || (word->guarded && v->special[merge->id]) ? NULL : merge;
}

/* ---- the heap: lowest order on top */
static void sift_down(rein_merge_candidate *heap, size_t n, size_t at) {
    const rein_merge_candidate moved = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1].order < heap[child].order) child++;
        if (moved.order <= heap[child].order) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void sift_up(rein_merge_candidate *heap, size_t at) {
    const rein_merge_candidate moved = heap[at];
    for (size_t parent; at > 0 && heap[parent = (at - 1) / 2].order > moved.order; at = parent) heap[at] = heap[parent];
    heap[at] = moved;
}

static rein_merge_candidate pop(rein_word *word) {
    const rein_merge_candidate top = word->heap[0];
    word->heap[0] = word->heap[--word->waiting];
    if (word->waiting) sift_down(word->heap, word->waiting, 0);
    return top;
}

/* Reserves room for the candidates of n symbols: one per pair at first, and each merge removes one and adds two. */
static rein_status reserve(rein_word *word, size_t n, rein_error *err) {
    if (n > word->capacity) {
        const size_t capacity = rein_grown(word->capacity, n, sizeof *word->symbols);
        rein_symbol *symbols = capacity ? realloc(word->symbols, capacity * sizeof *symbols) : NULL;
        if (!symbols) return rein_tokenizer_no_memory(err);
        word->symbols = symbols, word->capacity = capacity;
    }
    if (2 * n > word->heap_capacity) {
        const size_t capacity = rein_grown(word->heap_capacity, 2 * n, sizeof *word->heap);
        rein_merge_candidate *heap = capacity ? realloc(word->heap, capacity * sizeof *heap) : NULL;
        if (!heap) return rein_tokenizer_no_memory(err);
        word->heap = heap, word->heap_capacity = capacity;
    }
    return REIN_OK;
}

void rein_word_free(rein_word *word) {
    free(word->symbols);
    free(word->heap);
    rein_text_free(&word->mapped);
    *word = (rein_word){0};
}

/* ---- symbols: the tokens of a piece before any merge */
static void add(rein_word *word, int32_t id) {
    const int32_t n = (int32_t)word->count;
    word->symbols[word->count++] = (rein_symbol){id, n - 1, n + 1};
}

/* Adds the bytes of a character as tokens, if each of them has a token. */
static bool add_bytes(rein_word *word, const rein_bpe *bpe, const char *character, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (bpe->fallback[(unsigned char)character[i]] < 0) return false;
    for (size_t i = 0; i < length; i++) add(word, bpe->fallback[(unsigned char)character[i]]);
    return true;
}

/* Adds a character without a token: its bytes, or the unknown token; if there is neither, nothing, as Hugging Face does. *pending
 * counts unknown tokens that are still to be added: they come before the next known token, but after bytes that follow them in the
 * text. This oddity is Hugging Face's. */
static void add_missing(rein_word *word, bool *pending, const rein_bpe *bpe, const char *character, size_t length) {
    if (bpe->byte_fallback && add_bytes(word, bpe, character, length)) return;
    if (bpe->unknown < 0) return;
    if (*pending && !bpe->fuse_unknown) add(word, bpe->unknown);
    *pending = true;
}

static void add_symbols(rein_word *word, const rein_bpe *bpe, const rein_vocabulary *v, const char *piece, size_t length) {
    bool pending = false;
    char mapped[4];
    uint32_t c;
    word->count = 0;
    for (size_t at = 0, n; at < length; at += n) {
        const unsigned char byte = (unsigned char)piece[at];
        n = bpe->byte_level ? 1 : rein_utf8_next(&c, piece + at);
        int32_t id = bpe->byte_level ? bpe->bytes[byte] : rein_vocabulary_find_model(v, piece + at, n);
        if (id >= 0 && word->guarded && v->special[id]) id = -1;
        if (id < 0) {
            const size_t wide = bpe->byte_level ? rein_utf8_write(mapped, rein_byte_character(byte)) : n;
            add_missing(word, &pending, bpe, bpe->byte_level ? mapped : piece + at, wide);
            continue;
        }
        if (pending) add(word, bpe->unknown);
        pending = false;
        add(word, id);
    }
    if (pending) add(word, bpe->unknown);
}

/* ---- merging */
static void offer(rein_word *word, const rein_bpe *bpe, const rein_vocabulary *v, int32_t left, int32_t right) {
    const rein_merge *merge = find(word, bpe, v, word->symbols[left].id, word->symbols[right].id);
    if (!merge) return;
    word->heap[word->waiting] = (rein_merge_candidate){(uint64_t)merge->rank << 32 | (uint32_t)left, merge->id};
    sift_up(word->heap, word->waiting++);
}

static void merge_at(rein_word *word, const rein_bpe *bpe, const rein_vocabulary *v, int32_t at, int32_t id) {
    rein_symbol *left = &word->symbols[at], *right = &word->symbols[left->next];
    left->id = id, left->next = right->next;
    right->id = -1;
    if ((size_t)left->next < word->count) word->symbols[left->next].previous = at;
    if (left->previous >= 0) offer(word, bpe, v, left->previous, at);
    if ((size_t)left->next < word->count) offer(word, bpe, v, at, left->next);
}

static void merge_all(rein_word *word, const rein_bpe *bpe, const rein_vocabulary *v) {
    word->waiting = 0;
    for (size_t i = 0; i + 1 < word->count; i++) {
        const rein_merge *merge = find(word, bpe, v, word->symbols[i].id, word->symbols[i + 1].id);
        if (merge) word->heap[word->waiting++] = (rein_merge_candidate){(uint64_t)merge->rank << 32 | i, merge->id};
    }
    for (size_t i = word->waiting / 2; i-- > 0;) sift_down(word->heap, word->waiting, i);
    while (word->waiting) {
        const rein_merge_candidate top = pop(word);
        const int32_t at = (int32_t)(top.order & 0xFFFFFFFFu);
        const rein_symbol *left = &word->symbols[at];
        if (left->id < 0 || (size_t)left->next >= word->count) continue;
        const rein_merge *merge = find(word, bpe, v, left->id, word->symbols[left->next].id);
        if (merge && merge->id == top.id) merge_at(word, bpe, v, at, top.id);
    }
}

/* ---- a piece that is itself a token (ignore_merges) */
static rein_status find_whole(int32_t *id, rein_word *word, const rein_bpe *bpe, const rein_vocabulary *v, const char *piece,
                              size_t length, rein_error *err) {
    char mapped[4];
    *id = -1;
    if (length > bpe->longest) return REIN_OK;
    word->mapped.length = 0;
    for (size_t i = 0; bpe->byte_level && i < length; i++) {
        const size_t n = rein_utf8_write(mapped, rein_byte_character((unsigned char)piece[i]));
        const rein_status status = rein_text_append(&word->mapped, mapped, n, err);
        if (status) return status;
    }
    *id = bpe->byte_level ? rein_vocabulary_find_model(v, word->mapped.data, word->mapped.length)
                          : rein_vocabulary_find_model(v, piece, length);
    if (*id >= 0 && word->guarded && v->special[*id]) *id = -1;
    return REIN_OK;
}

rein_status rein_bpe_encode(rein_ids *ids, rein_word *word, const rein_bpe *bpe, const rein_vocabulary *v, const char *piece,
                            size_t length, rein_error *err) {
    rein_status status = REIN_OK;
    int32_t whole = -1;
    if (!length) return REIN_OK;
    if (length > INT32_MAX / 8) return rein_fail(err, REIN_EINVAL, "a piece of %zu bytes without a split is too long", length);
    if (bpe->ignore_merges) status = find_whole(&whole, word, bpe, v, piece, length, err);
    if (status) return status;
    if (whole >= 0) return rein_ids_append(ids, whole, err);
    status = reserve(word, bpe->byte_level && bpe->byte_fallback ? 2 * length : length, err);
    if (status) return status;
    add_symbols(word, bpe, v, piece, length);
    merge_all(word, bpe, v);
    for (size_t i = 0; !status && i < word->count; i = (size_t)word->symbols[i].next)
        status = rein_ids_append(ids, word->symbols[i].id, err);
    return status;
}
