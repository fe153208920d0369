/* unicode.c - UTF-8, properties of characters, and NFC.
 *
 * NFC is built here from utf8proc's decomposition and composition of single characters, because utf8proc sorts a long run of
 * combining marks in quadratic time. */
#include "model/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "model/tokenizer_parts.h"

static bool continues(char c) { return ((unsigned char)c & 0xC0) == 0x80; }

/* The second byte excludes overlong forms, surrogates and characters beyond U+10FFFF. */
static bool second_fits(unsigned char first, unsigned char second) {
    switch (first) {
    case 0xE0: return second >= 0xA0 && second <= 0xBF;
    case 0xED: return second >= 0x80 && second <= 0x9F;
    case 0xF0: return second >= 0x90 && second <= 0xBF;
    case 0xF4: return second >= 0x80 && second <= 0x8F;
    default: return (second & 0xC0) == 0x80;
    }
}

size_t rein_utf8_read(uint32_t *character, size_t *wrong, bool *cut, const char *s, size_t n) {
    const unsigned char first = (unsigned char)s[0];
    *wrong = 1, *cut = false;
    if (first < 0x80) return *character = first, 1;
    if (first < 0xC2 || first > 0xF4) return 0;
    const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    uint32_t value = first & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        *wrong = i;
        if (i == n) return *cut = true, 0;
        if (i == 1 ? !second_fits(first, (unsigned char)s[1]) : !continues(s[i])) return 0;
        value = value << 6 | ((unsigned char)s[i] & 0x3Fu);
    }
    return *character = value, length;
}

size_t rein_utf8_next(uint32_t *character, const char *s) {
    size_t wrong;
    bool cut;
    return rein_utf8_read(character, &wrong, &cut, s, 4);
}

size_t rein_utf8_write(char out[4], uint32_t c) {
    if (c < 0x80) return out[0] = (char)c, 1;
    const size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF00u >> length & 0xFFu) | c);
    return length;
}

size_t rein_utf8_valid(const char *s, size_t n) {
    size_t at = 0, wrong;
    uint32_t character;
    bool cut;
    while (at < n) {
        const size_t length = (unsigned char)s[at] < 0x80 ? 1 : rein_utf8_read(&character, &wrong, &cut, s + at, n - at);
        if (!length) return at;
        at += length;
    }
    return n;
}

bool rein_is_white_space(uint32_t c) {
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool rein_is_numeric(uint32_t c) {
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

/* Symbols that are alphabetic: letters in circles and squares. */
static bool is_enclosed_letter(uint32_t c) {
    return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
           (c >= 0x1F170 && c <= 0x1F189);
}

bool rein_is_word(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return is_enclosed_letter(c) || c == 0x200C || c == 0x200D;
    }
}

/* ---- NFC and NFKC */

/* Characters that normalization never changes and that do not combine with others: most text consists of them. */
static bool is_inert(uint32_t c, bool compatible) {
    if (compatible) return c < 0xA0 || (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0xAC00 && c <= 0xD7A3);
    return c < 0x300 || (c >= 0x2010 && c <= 0x2027) || c == 0x3000 || c == 0x3001 || c == 0x3002 || (c >= 0x4E00 && c <= 0x9FFF) ||
           (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0x1F300 && c <= 0x1FAFF);
}

static bool looks_normal(const char *text, size_t length, bool compatible) {
    uint32_t c;
    for (size_t at = 0; at < length;) {
        if ((unsigned char)text[at] < (compatible ? 0x80 : 0xCC)) { /* below U+0080, or U+0300 */
            at += (unsigned char)text[at] < 0x80 ? 1 : 2;
            continue;
        }
        at += rein_utf8_next(&c, text + at);
        if (!is_inert(c, compatible)) return false;
    }
    return true;
}

static int class_of(int32_t c) { return utf8proc_get_property(c)->combining_class; }

/* Sorts a run of marks by their classes, stably. It is a counting sort, because a run may be as long as the text. */
static void sort_marks(int32_t *marks, size_t n, int32_t *spare) {
    size_t begins[257] = {0};
    for (size_t i = 0; i < n; i++) begins[class_of(marks[i]) + 1]++;
    for (int k = 0; k < 256; k++) begins[k + 1] += begins[k];
    for (size_t i = 0; i < n; i++) spare[begins[class_of(marks[i])]++] = marks[i];
    memcpy(marks, spare, n * sizeof *marks);
}

static void order_marks(int32_t *characters, size_t n, int32_t *spare) {
    for (size_t i = 0, end; i < n; i = end) {
        bool sorted = true;
        for (end = i; end < n && class_of(characters[end]) != 0; end++)
            if (end > i && class_of(characters[end]) < class_of(characters[end - 1])) sorted = false;
        if (!sorted) sort_marks(characters + i, end - i, spare);
        if (end == i) end++;
    }
}

/* Compatible characters that came after Unicode 11, the version of the normalization in `tokenizers`, stay as they are there. */
static bool is_too_new(uint32_t c) {
    static const uint32_t ranges[][2] = {{0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xAB69, 0xAB69},
                                         {0x10780, 0x107BF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return false;
}

/* A character decomposes into at most 4, the longest canonical decomposition, or 18, that of U+FDFA, which has 3 bytes. */
enum { LONGEST = 4, LONGEST_COMPATIBLE = 18, MOST_PER_BYTE = 6 };
static size_t decompose(int32_t *out, const char *text, size_t length, bool compatible) {
    const utf8proc_ssize_t longest = compatible ? LONGEST_COMPATIBLE : LONGEST;
    const utf8proc_option_t how = (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
    size_t n = 0;
    uint32_t c;
    for (size_t at = 0; at < length;) {
        int last = 0;
        at += rein_utf8_next(&c, text + at);
        const utf8proc_ssize_t made =
            compatible && is_too_new(c) ? 0 : utf8proc_decompose_char((utf8proc_int32_t)c, out + n, longest, how, &last);
        if (made > 0 && made <= longest) n += (size_t)made;
        else out[n++] = (int32_t)c;
    }
    return n;
}

/* utf8proc 2.8 composes a Hangul syllable with U+11A7, which is not a trailing consonant, and loses it. So text is composed in
 * stretches that begin with this character, which composes with nothing before it. */
static rein_status compose(rein_text *out, int32_t *characters, size_t n, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t begin = 0, end; !status && begin < n; begin = end) {
        for (end = begin + 1; end < n && characters[end] != 0x11A7; end++) {
        }
        const utf8proc_ssize_t made = utf8proc_normalize_utf32(characters + begin, (utf8proc_ssize_t)(end - begin),
                                                               (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        for (utf8proc_ssize_t i = 0; !status && i < made; i++) {
            char bytes[4];
            status = rein_text_append(out, bytes, rein_utf8_write(bytes, (uint32_t)characters[begin + (size_t)i]), err);
        }
    }
    return status;
}

rein_status rein_normal_form(rein_text *out, bool *same, bool compatible, const char *text, size_t length, rein_error *err) {
    *same = looks_normal(text, length, compatible);
    if (*same) return REIN_OK;
    if (length > SIZE_MAX / 256) return rein_tokenizer_no_memory(err);
    const size_t room = (length + 3) * (compatible ? MOST_PER_BYTE : LONGEST);
    int32_t *characters = malloc(2 * room * sizeof *characters);
    if (!characters) return rein_tokenizer_no_memory(err);
    const size_t n = decompose(characters, text, length, compatible);
    order_marks(characters, n, characters + room);
    const rein_status status = compose(out, characters, n, err);
    free(characters);
    return status;
}
