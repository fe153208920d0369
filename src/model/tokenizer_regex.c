/* tokenizer_regex.c - translates the regular expressions of tokenizer files for PCRE2.
 *
 * Hugging Face runs these expressions with Oniguruma. The two engines agree on most of the syntax. Where they differ, the
 * translation writes what Oniguruma means: \s is the property White_Space (PCRE2's includes U+180E), \d is \p{Nd}, \w includes
 * marks and connectors, \p{Han} is the script without the characters that other scripts share (PCRE2 includes them since 10.40).
 * Syntax that looks the same and means something else (\h, a possessive {1,3}+, ^) is an error, because a wrong split would go
 * unnoticed. */
#include "model/tokenizer_regex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/tokenizer_parts.h"

#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD_ALONE \
    WORD "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}" /* includes ²³¹¼½¾, as in Oniguruma outside of a class; inside it does not */

/* The time of a text: PCRE2's limit counts steps of backtracking, of which each may read the whole text, and a failure at every byte adds up.
 * So a match is first tried in the next FIRST bytes and with FIRST steps, which is enough for almost every token and takes no time worth
 * counting; where that is not enough, it is tried again with GROWTH times as many, as long as there is time: a second, and another for every
 * megabyte, of which known tokenizers need a hundredth. */
enum { FIRST = 64, GROWTH = 4 };
static const double SECONDS = 1, SECONDS_PER_BYTE = 1e-6;

typedef struct reading {
    const char *pattern;
    size_t length, at;
    bool in_class;
    rein_text *out;
    rein_error *err;
} reading;

static rein_status refuse(const reading *r, const char *what) {
    return rein_fail(r->err, REIN_EINVAL, "%s at byte %zu of the expression is not supported", what, r->at);
}

static rein_status put(reading *r, const char *text) { return rein_text_append(r->out, text, strlen(text), r->err); }

static rein_status take(reading *r, size_t n) {
    const rein_status status = rein_text_append(r->out, r->pattern + r->at, n, r->err);
    r->at += n;
    return status;
}

static bool starts(const reading *r, const char *word) {
    const size_t n = strlen(word);
    return r->length - r->at >= n && memcmp(r->pattern + r->at, word, n) == 0;
}

/* Whether a property is a script: PCRE2 knows all of them. */
static rein_status is_script(bool *is, const char *name, size_t length, rein_error *err) {
    enum { LONGEST = 40 };
    char probe[LONGEST + sizeof "\\p{sc:}"];
    int code = 0;
    PCRE2_SIZE at;
    *is = false;
    if (length > LONGEST) return REIN_OK;
    const int size = snprintf(probe, sizeof probe, "\\p{sc:%.*s}", (int)length, name);
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)probe, (size_t)size, PCRE2_UTF, &code, &at, NULL);
    *is = compiled != NULL;
    pcre2_code_free(compiled);
    return code == PCRE2_ERROR_HEAP_FAILED ? rein_tokenizer_no_memory(err) : REIN_OK;
}

/* Copies \p{L}, \P{N}, \p{^L} and \x{1F600}; scripts are rewritten. */
static rein_status take_braced(reading *r) {
    const char *open = r->pattern + r->at + 2;
    const char *end = r->at + 2 < r->length && *open == '{' ? memchr(open, '}', r->length - r->at - 2) : NULL;
    if (!end) return refuse(r, "\\p or \\x without {…}");
    const size_t sign = open[1] == '^' ? 2 : 1;
    bool script = false;
    rein_status status = REIN_OK;
    if (open[-1] != 'x') status = is_script(&script, open + sign, (size_t)(end - open) - sign, r->err);
    if (!status) status = take(r, 2 + sign);
    if (!status && script) status = put(r, "sc:");
    return status ? status : take(r, (size_t)(end + 1 - (r->pattern + r->at)));
}

static rein_status escape(reading *r) {
    const char c = r->at + 1 < r->length ? r->pattern[r->at + 1] : 0;
    const char *means = NULL;
    switch (c) {
    case 's': means = "\\p{White_Space}"; break;
    case 'S': means = "\\P{White_Space}"; break;
    case 'd': means = "\\p{Nd}"; break;
    case 'D': means = "\\P{Nd}"; break;
    case 'w': means = r->in_class ? WORD : "[" WORD_ALONE "]"; break;
    case 'W': means = r->in_class ? NULL : "[^" WORD_ALONE "]"; break;
    case 'p':
    case 'P':
    case 'x': return take_braced(r);
    case 'r':
    case 'n':
    case 't':
    case 'f': return take(r, 2);
    case 'v': means = "\\x{0B}"; break;
    default:
        if ((unsigned char)c >= 0x80 || c <= 32 || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'))
            break;
        return take(r, 2); /* punctuation stands for itself */
    }
    if (!means) return refuse(r, "this escape");
    r->at += 2;
    return put(r, means);
}

static rein_status class_item(reading *r) {
    if (starts(r, "&&")) return refuse(r, "an intersection of classes (&&)");
    switch (r->pattern[r->at]) {
    case '\\': return escape(r);
    case '[': return refuse(r, "a class in a class");
    case ']': r->in_class = false; return take(r, 1);
    default: return take(r, 1);
    }
}

static rein_status open_class(reading *r) {
    r->in_class = true;
    const size_t sign = r->at + 1 < r->length && r->pattern[r->at + 1] == '^' ? 2 : 1;
    if (r->at + sign < r->length && r->pattern[r->at + sign] == ']') return refuse(r, "a class that begins with ]");
    return take(r, sign);
}

/* Groups that mean the same to both engines. */
static rein_status open_group(reading *r) {
    static const char *const known[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    if (!starts(r, "(?") && !starts(r, "(*")) return r->at++, put(r, "(?:"); /* captured text is never used */
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (starts(r, known[i])) return take(r, strlen(known[i]));
    return refuse(r, "this kind of group");
}

/* {n}, {n,}, {n,m}; a sign after it differs between the two engines, except in the lazy {n,m}?. */
static rein_status repeat(reading *r) {
    size_t end = r->at + 1, digits = 0, commas = 0;
    for (; end < r->length && r->pattern[end] != '}'; end++) {
        const char c = r->pattern[end];
        if (c == ',' && digits && !commas) commas = 1;
        else if (c >= '0' && c <= '9') digits++;
        else return refuse(r, "{ without a count");
    }
    const char sign = end + 1 < r->length ? r->pattern[end + 1] : 0;
    if (end == r->length || !digits) return refuse(r, "{ without a count");
    if (sign == '+' || sign == '*' || sign == '{' || (sign == '?' && !commas)) return refuse(r, "a sign after {…}");
    return take(r, end + 1 - r->at);
}

static rein_status item(reading *r) {
    if (r->in_class) return class_item(r);
    switch (r->pattern[r->at]) {
    case '\\': return escape(r);
    case '[': return open_class(r);
    case '(': return open_group(r);
    case '{': return repeat(r);
    case '^': return refuse(r, "^");
    default: return take(r, 1);
    }
}

static rein_status translate(rein_text *out, const char *pattern, size_t length, rein_error *err) {
    reading r = {pattern, length, 0, false, out, err};
    rein_status status = rein_text_append(out, "", 0, err);
    while (!status && r.at < length) status = item(&r);
    return status;
}

/* ---- PCRE2 */
static void *get_memory(size_t size, void *unused) {
    (void)unused;
    return malloc(size);
}
static void give_memory(void *memory, void *unused) {
    (void)unused;
    free(memory);
}

static rein_status compile(rein_regex *regex, const char *pattern, size_t length, bool literal, rein_error *err) {
    int code = 0;
    PCRE2_SIZE at = 0;
    PCRE2_UCHAR reason[120] = "";
    pcre2_compile_context *context = pcre2_compile_context_create(regex->memory);
    if (!context) return rein_tokenizer_no_memory(err);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 100);
    const uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
    regex->code = pcre2_compile((PCRE2_SPTR)pattern, length, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (regex->code) {
        pcre2_jit_compile(regex->code,
                          PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD); /* optional: matches are only slower without it */
        return REIN_OK;
    }
    if (code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY) return rein_tokenizer_no_memory(err);
    pcre2_get_error_message(code, reason, sizeof reason);
    return rein_fail(err, REIN_EINVAL, "the expression is wrong at byte %zu (as translated): %s", (size_t)at, (const char *)reason);
}

rein_status rein_regex_make(rein_regex **result, const char *pattern, size_t length, bool literal, rein_error *err) {
    rein_text translated = {0};
    rein_regex *regex = calloc(1, sizeof *regex);
    if (!regex) return rein_tokenizer_no_memory(err);
    rein_status status =
        literal ? rein_text_append(&translated, pattern, length, err) : translate(&translated, pattern, length, err);
    if (!status) {
        regex->memory = pcre2_general_context_create(get_memory, give_memory, NULL);
        if (!regex->memory) status = rein_tokenizer_no_memory(err);
    }
    if (!status) status = compile(regex, translated.data, translated.length, literal, err);
    if (!status) status = rein_text_copy(&regex->pattern, pattern, length, err);
    regex->length = length;
    rein_text_free(&translated);
    if (status) rein_regex_free(regex), regex = NULL;
    *result = regex;
    return status;
}

void rein_regex_free(rein_regex *regex) {
    if (!regex) return;
    pcre2_code_free(regex->code);
    pcre2_general_context_free(regex->memory);
    free(regex->pattern);
    free(regex);
}

bool rein_regex_may_be_empty(const rein_regex *regex) {
    uint32_t empty = 1;
    pcre2_pattern_info(regex->code, PCRE2_INFO_MATCHEMPTY, &empty);
    return empty != 0;
}

/* ---- matching */
void rein_matcher_free(rein_matcher *m) {
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->limits);
    *m = (rein_matcher){0};
}

static rein_status prepare(rein_matcher *m, const rein_regex *regex, rein_error *err) {
    if (!m->data) m->data = pcre2_match_data_create(1, regex->memory);
    if (!m->limits) m->limits = pcre2_match_context_create(regex->memory);
    if (!m->data || !m->limits) return rein_tokenizer_no_memory(err);
    pcre2_set_match_limit(m->limits, FIRST);
    return REIN_OK;
}

/* Where a window ends: at a border of characters. */
static size_t window_end(const char *text, size_t length, size_t from, size_t window) {
    if (length - from <= window) return length;
    size_t end = from + window;
    while (((unsigned char)text[end] & 0xC0) == 0x80) end--;
    return end;
}

/* In a window PCRE2 reports a partial match wherever the text after it could make a difference. */
static int match_in(const rein_regex *regex, rein_matcher *m, const char *text, size_t end, size_t from, bool whole) {
    const uint32_t options = PCRE2_NO_UTF_CHECK | (whole ? 0 : PCRE2_PARTIAL_HARD);
    const int code = pcre2_match(regex->code, (PCRE2_SPTR)text, end, from, options, m->data, m->limits);
    if (code != PCRE2_ERROR_JIT_STACKLIMIT) return code;
    return pcre2_match(regex->code, (PCRE2_SPTR)text, end, from, options | PCRE2_NO_JIT, m->data, m->limits);
}

/* Allows another try with so many steps, if there is time. */
static rein_status allow(rein_matcher *m, uint64_t steps, size_t from, size_t length, rein_error *err) {
    const double now = rein_seconds(CLOCK_THREAD_CPUTIME_ID);
    if (!(m->began > 0)) m->began = now;
    if (now - m->began > SECONDS + SECONDS_PER_BYTE * (double)m->length || steps > UINT32_MAX)
        return rein_fail(
            err, REIN_EINVAL,
            "the regular expression of the tokenizer takes too many steps: it is at byte %zu of %zu after %.1f seconds", from,
            length, now - m->began);
    pcre2_set_match_limit(m->limits, (uint32_t)steps);
    return REIN_OK;
}

rein_status rein_regex_find(bool *found, size_t *begin, size_t *end, const rein_regex *regex, rein_matcher *m, const char *text,
                            size_t length, size_t from, rein_error *err) {
    uint64_t window = FIRST, steps = FIRST;
    rein_status status = prepare(m, regex, err);
    *found = false;
    while (!status) {
        const size_t stop = window_end(text, length, from, window);
        const int code = match_in(regex, m, text, stop, from, stop == length);
        *begin = pcre2_get_ovector_pointer(m->data)[0], *end = pcre2_get_ovector_pointer(m->data)[1];
        if (code >= 0 && (stop == length || *end < stop)) return *found = true, REIN_OK;
        if (code == PCRE2_ERROR_NOMATCH && stop == length) return REIN_OK;
        if (code == PCRE2_ERROR_MATCHLIMIT) steps *= GROWTH;
        else if (code >= 0 || code == PCRE2_ERROR_NOMATCH || code == PCRE2_ERROR_PARTIAL) window *= GROWTH;
        else if (code == PCRE2_ERROR_NOMEMORY) return rein_tokenizer_no_memory(err);
        else
            return rein_fail(
                err, REIN_EINVAL,
                "the regular expression of the tokenizer takes too many steps at byte %zu of a text of %zu bytes (PCRE2 "
                "error %d)",
                from, length, code);
        status = allow(m, steps, from, length, err);
    }
    return status;
}
