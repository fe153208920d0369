/* template_text.c - what Python's strings do, on UTF-8: positions are characters, and marks stay with their bytes. */
#include <string.h>
#include <utf8proc.h>

#include "model/template.h"
#include "model/tokenizer_parts.h"

bool rein_is_space(uint32_t character) { return rein_is_white_space(character) || (character >= 0x1C && character <= 0x1F); }

size_t rein_characters(const rein_string *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->length; i++) n += ((unsigned char)s->data[i] & 0xC0) != 0x80;
    return n;
}

size_t rein_character_offset(const rein_string *s, size_t character) {
    size_t at = 0;
    uint32_t c;
    while (character-- && at < s->length) at += rein_utf8_next(&c, s->data + at);
    return at;
}

/* 1 if a character is to be stripped. */
static bool is_stripped(uint32_t c, const char *bytes, size_t n, const rein_string *what) {
    if (!what) return rein_is_space(c);
    for (size_t i = 0; i + n <= what->length; i++)
        if (memcmp(what->data + i, bytes, n) == 0) return true;
    return false;
}

rein_value rein_strip(rein_machine *m, const rein_string *s, const rein_string *what, bool left, bool right) {
    size_t begin = 0, end = s->length;
    uint32_t c;
    while (left && begin < end) {
        const size_t n = rein_utf8_next(&c, s->data + begin);
        if (!is_stripped(c, s->data + begin, n, what)) break;
        begin += n;
    }
    while (right && end > begin) {
        size_t last = end - 1;
        while (last > begin && ((unsigned char)s->data[last] & 0xC0) == 0x80) last--;
        rein_utf8_next(&c, s->data + last);
        if (!is_stripped(c, s->data + last, end - last, what)) break;
        end = last;
    }
    return rein_substring(m, s, begin, end);
}

int64_t rein_find(const rein_string *s, const rein_string *part, size_t from, size_t to, bool last) {
    if (from > to || part->length > to - from) return -1;
    if (!last) {
        const char *hit = part->length ? rein_text_find(s->data + from, to - from, part->data, part->length) : s->data + from;
        return hit ? hit - s->data : -1;
    }
    for (size_t i = to - part->length + 1; i-- > from;)
        if (memcmp(s->data + i, part->data, part->length) == 0) return (int64_t)i;
    return -1;
}

static const char *marks_at(const rein_string *s, size_t at) { return s->marks ? s->marks + at : NULL; }

/* An empty `from` stands before every character and at the end. */
static rein_value replace_nothing(rein_machine *m, const rein_string *s, const rein_string *to, int64_t most) {
    rein_builder b = {0};
    uint32_t c;
    size_t at = 0;
    while (most-- != 0 && !m->status) {
        rein_put_string(m, &b, to);
        if (at == s->length) break;
        const size_t n = rein_utf8_next(&c, s->data + at);
        rein_put(m, &b, s->data + at, marks_at(s, at), n);
        at += n;
    }
    rein_put(m, &b, s->data + at, marks_at(s, at), s->length - at);
    return rein_builder_value(m, &b);
}

rein_value rein_replace(rein_machine *m, const rein_string *s, const rein_string *from, const rein_string *to, int64_t most) {
    rein_builder b = {0};
    size_t at = 0;
    if (!from->length) return replace_nothing(m, s, to, most);
    for (int64_t hit; most-- != 0 && !m->status && (hit = rein_find(s, from, at, s->length, false)) >= 0;) {
        rein_put(m, &b, s->data + at, marks_at(s, at), (size_t)hit - at);
        rein_put_string(m, &b, to);
        at = (size_t)hit + from->length;
    }
    rein_put(m, &b, s->data + at, marks_at(s, at), s->length - at);
    return rein_builder_value(m, &b);
}

/* ------------------------------------------------------------------------------------------------------------------------- case */

static bool is_cased(uint32_t c) {
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

/* The characters of which an upper or title case has several: those that texts have. */
static const char *several(uint32_t c, rein_case to) {
    if (to == REIN_CASE_LOWER) return c == 0x130 ? "i\xCC\x87" : NULL;
    switch (c) {
    case 0xDF: return to == REIN_CASE_UPPER ? "SS" : "Ss";
    case 0x149: return "\xCA\xBCN";
    case 0x1F0: return "J\xCC\x8C";
    case 0x587: return to == REIN_CASE_UPPER ? "\xD4\xB5\xD5\x92" : "\xD4\xB5\xD6\x82";
    case 0xFB00: return to == REIN_CASE_UPPER ? "FF" : "Ff";
    case 0xFB01: return to == REIN_CASE_UPPER ? "FI" : "Fi";
    case 0xFB02: return to == REIN_CASE_UPPER ? "FL" : "Fl";
    case 0xFB03: return to == REIN_CASE_UPPER ? "FFI" : "Ffi";
    case 0xFB04: return to == REIN_CASE_UPPER ? "FFL" : "Ffl";
    case 0xFB05:
    case 0xFB06: return to == REIN_CASE_UPPER ? "ST" : "St";
    default: return NULL;
    }
}

/* A capital sigma at the end of a word becomes a final one. */
static bool is_final(const rein_string *s, size_t at, size_t next) {
    uint32_t c = 0;
    size_t before = at;
    while (before && ((unsigned char)s->data[before - 1] & 0xC0) == 0x80) before--;
    if (before) rein_utf8_next(&c, s->data + before - 1);
    if (!before || !is_cased(c)) return false;
    if (next < s->length) rein_utf8_next(&c, s->data + next);
    return next == s->length || !is_cased(c);
}

void rein_put_case(rein_machine *m, rein_builder *b, const rein_string *s, size_t begin, size_t end, rein_case to) {
    for (size_t at = begin, n; at < end && !m->status; at += n) {
        uint32_t c;
        n = rein_utf8_next(&c, s->data + at);
        const char *parts = several(c, to);
        char bytes[5] = {0}, marks[8];
        memset(marks, s->marks ? s->marks[at] : 0, sizeof marks);
        if (!parts) {
            const utf8proc_int32_t from = (utf8proc_int32_t)c;
            utf8proc_int32_t mapped = to == REIN_CASE_UPPER   ? utf8proc_toupper(from)
                                      : to == REIN_CASE_LOWER ? utf8proc_tolower(from)
                                                              : utf8proc_totitle(from);
            if (to == REIN_CASE_LOWER && c == 0x3A3 && is_final(s, at, at + n)) mapped = 0x3C2;
            bytes[rein_utf8_write(bytes, (uint32_t)mapped)] = 0;
            rein_put(m, b, bytes, marks, c ? strlen(bytes) : 1);
        } else rein_put(m, b, parts, marks, strlen(parts));
    }
}

rein_value rein_capitalize(rein_machine *m, const rein_string *s) {
    rein_builder b = {0};
    const size_t first = rein_character_offset(s, 1);
    rein_put_case(m, &b, s, 0, first, REIN_CASE_TITLE);
    rein_put_case(m, &b, s, first, s->length, REIN_CASE_LOWER);
    return rein_builder_value(m, &b);
}
