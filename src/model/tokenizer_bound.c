/* tokenizer_bound.c - how many bytes of a text a token can stand for at most, so that a text that cannot fit is refused before it is
 * encoded. */
#include "model/tokenizer_parts.h"

/* The most that a normalizer can shorten a text, as a factor; 0: there is no bound. Of NFC it is 3.5: seven bytes, U+1FBE with two marks,
 * become U+0390. Of NFKC it is 4: a mathematical letter of four bytes becomes an ASCII letter. */
static size_t shortening(const rein_normalizer *step) {
    switch (step->kind) {
    case REIN_NORMALIZE_NFC:
    case REIN_NORMALIZE_NFKC: return 4;
    case REIN_NORMALIZE_PREPEND: return 1;
    case REIN_NORMALIZE_REPLACE: break;
    }
    if (step->regex || !step->to_length) return 0;
    return step->from_length > step->to_length ? (step->from_length + step->to_length - 1) / step->to_length : 1;
}

/* Whether every character becomes a token of its own, or part of one. */
static bool keeps_all(const rein_bpe *bpe) {
    bool bytes = bpe->byte_level, fallback = bpe->byte_fallback;
    for (int i = 0; i < 256; i++) bytes &= bpe->bytes[i] >= 0, fallback &= bpe->fallback[i] >= 0;
    return bytes || fallback || (bpe->unknown >= 0 && !bpe->fuse_unknown);
}

static size_t longest_of(size_t longest, const rein_added_set *set) {
    for (size_t i = 0; i < set->count; i++)
        if (set->entries[i].length > longest) longest = set->entries[i].length;
    return longest;
}

size_t rein_bytes_per_token(const rein_tokenizer *t) {
    size_t bytes = t->bpe.longest > 4 ? t->bpe.longest : 4; /* an unknown character has up to 4 */
    if (!keeps_all(&t->bpe)) return 0;
    for (size_t i = 0; i < t->pretokenizers.count; i++)
        if (t->pretokenizers.steps[i].behavior == REIN_SPLIT_REMOVED && t->pretokenizers.steps[i].regex) return 0;
    for (size_t i = 0; i < t->added_count; i++)
        if (t->added[i].lstrip || t->added[i].rstrip) return 0; /* it takes any number of blanks */
    bytes = longest_of(longest_of(bytes, &t->plain_set), &t->normalized_set);
    for (size_t i = 0; i < t->normalizers.count; i++) {
        const size_t factor = shortening(&t->normalizers.steps[i]);
        bytes = bytes > SIZE_MAX / REIN_TOKENIZER_TOKEN / 2 ? 0 : bytes * factor;
        if (!bytes) return 0;
    }
    return bytes;
}
