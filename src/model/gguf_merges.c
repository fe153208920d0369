/* gguf_merges.c - the merges of a SentencePiece vocabulary.
 *
 * SentencePiece merges the two neighbours whose token has the highest score. tokenizer.json lists merges instead, first those that come
 * first. transformers derives the list so (generate_merges in tokenization_utils_sentencepiece.py): each way to cut a token into two tokens
 * is a merge; they are sorted by the score of the token, then by the characters of the left and of the right half, all descending, and
 * otherwise by the ids of the token, of the left and of the right half, ascending. */
#include <stdlib.h>
#include <string.h>

#include "gguf.h"
#include "tokenizer_parts.h"

typedef struct merge {
    float score;
    uint32_t left_characters, right_characters;
    uint32_t made, left, right; /* tokens */
} merge;

/* Tokens by their text. */
typedef struct table {
    const rein_gguf_text *texts;
    uint32_t *slots; /* UINT32_MAX: free */
    size_t mask;
} table;

typedef struct merges {
    merge *data;
    size_t n, capacity;
} merges;

static size_t slot_of(const table *t, const char *text, size_t length) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001B3u;
    size_t slot = (hash ^ hash >> 29) & t->mask;
    for (; t->slots[slot] != UINT32_MAX; slot = (slot + 1) & t->mask) {
        const rein_gguf_text *other = &t->texts[t->slots[slot]];
        if (other->length == length && !memcmp(other->bytes, text, length)) break;
    }
    return slot;
}

static int make_table(table *t, const rein_gguf_text *texts, size_t n) {
    size_t size = 16;
    while (size < 2 * n) size *= 2;
    *t = (table){texts, malloc(size * sizeof *t->slots), size - 1};
    if (!t->slots) return 0;
    for (size_t i = 0; i < size; i++) t->slots[i] = UINT32_MAX;
    for (size_t i = 0; i < n; i++)
        if (texts[i].length) t->slots[slot_of(t, texts[i].bytes, texts[i].length)] = (uint32_t)i;
    return 1;
}

static rein_status add(merges *all, merge one, rein_error *err) {
    if (all->n == REIN_TOKENIZER_MERGES) return rein_fail(err, REIN_EINVAL, "the tokens have more merges than are supported");
    if (all->n == all->capacity) {
        const size_t capacity = rein_grown(all->capacity, all->n + 1, sizeof *all->data);
        merge *data = capacity ? realloc(all->data, capacity * sizeof *data) : NULL;
        if (!data) return rein_no_memory(err);
        all->data = data, all->capacity = capacity;
    }
    all->data[all->n++] = one;
    return REIN_OK;
}

static uint32_t characters_of(const char *text, size_t length) {
    uint32_t n = 0;
    for (size_t i = 0; i < length; i++) n += (text[i] & 0xC0) != 0x80;
    return n;
}

/* All ways to cut token i into two. */
static rein_status cut(merges *all, const table *t, uint32_t i, float score, rein_error *err) {
    const rein_gguf_text text = t->texts[i];
    const uint32_t whole = characters_of(text.bytes, text.length);
    rein_status status = REIN_OK;
    uint32_t before = 0;
    for (size_t at = 1; at < text.length && !status; at++) {
        if ((text.bytes[at] & 0xC0) == 0x80) continue;
        before++;
        const uint32_t left = t->slots[slot_of(t, text.bytes, at)];
        const uint32_t right = left == UINT32_MAX ? left : t->slots[slot_of(t, text.bytes + at, text.length - at)];
        if (right != UINT32_MAX) status = add(all, (merge){score, before, whole - before, i, left, right}, err);
    }
    return status;
}

#define DIFFERS(x, y) \
    if ((x) != (y)) return (x) < (y) ? -1 : 1
static int first(const void *a, const void *b) {
    const merge *x = a, *y = b;
    DIFFERS(y->score, x->score);
    DIFFERS(y->left_characters, x->left_characters);
    DIFFERS(y->right_characters, x->right_characters);
    DIFFERS(x->made, y->made);
    DIFFERS(x->left, y->left);
    DIFFERS(x->right, y->right);
    return 0;
}

/* "left right", or a pair where a half has a blank. */
static json_t *written(rein_text *joined, const rein_gguf_text *texts, const merge *one) {
    const rein_gguf_text left = texts[one->left], right = texts[one->right];
    if (memchr(left.bytes, ' ', left.length) || memchr(right.bytes, ' ', right.length))
        return json_pack("[s%, s%]", left.bytes, left.length, right.bytes, right.length);
    joined->length = 0;
    rein_text_put_bytes(joined, left.bytes, left.length);
    rein_text_put_bytes(joined, " ", 1);
    rein_text_put_bytes(joined, right.bytes, right.length);
    return rein_text_status(joined, NULL) ? NULL : json_stringn_nocheck(joined->data, joined->length);
}

static rein_status write_all(json_t **to, const rein_gguf_text *texts, const merges *all, rein_error *err) {
    json_t *list = json_array();
    rein_text joined = {0};
    int failed = !list;
    for (size_t i = 0; i < all->n && !failed; i++)
        failed = json_array_append_new(list, written(&joined, texts, &all->data[i])) != 0;
    rein_text_free(&joined);
    if (failed) return json_decref(list), rein_no_memory(err);
    *to = list;
    return REIN_OK;
}

rein_status rein_gguf_merges(json_t **to, const rein_gguf_text *texts, const float *scores, size_t n, rein_error *err) {
    merges all = {0};
    table t;
    *to = NULL;
    if (!make_table(&t, texts, n)) return rein_no_memory(err);
    rein_status status = REIN_OK;
    for (size_t i = 0; i < n && !status; i++) {
        if (scores[i] != scores[i]) status = rein_fail(err, REIN_EINVAL, "tokenizer.ggml.scores[%zu] is not a number", i);
        else status = cut(&all, &t, (uint32_t)i, scores[i], err);
    }
    if (!status && all.n) qsort(all.data, all.n, sizeof *all.data, first);
    if (!status) status = write_all(to, texts, &all, err);
    free(all.data);
    free(t.slots);
    return status;
}
