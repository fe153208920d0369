/* json_build.c - from JSON text to jansson's values.
 *
 * jansson has a parser too. It is not used, because it does not notice an allocation that fails inside a string: bytes are lost, so that a
 * key is misspelt, or it reads past the end of its buffer. Here every allocation is checked, nothing recurses, and depth and number of values
 * are limited: a text of 60 MB could become 4.5 GB of empty objects. */
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "json.h"
#include "text.h"

enum {
    DEPTH = 256,
    VALUE = 1, /* the cost of a number or a string, about 50 bytes; and of an array or object */
    CONTAINER = 8,
    MOST_COST = 1 << 25
};

typedef struct parser {
    const char *text;
    size_t length, at; /* text[at] is next */
    unsigned flags;
    json_t *root, *open[DEPTH]; /* those that are not closed, the innermost last */
    size_t depth, cost;
    int fresh;              /* open[depth - 1] was just opened */
    int has_nul;            /* the string has \u0000 in it */
    rein_text key, scratch; /* the key of the next value; a number or a string without its escapes */
    rein_json_problem problem;
} parser;

/* text[token .. at) is wrong. Returns 0. */
static int fail(parser *p, rein_json_mistake mistake, size_t token, const char *what) {
    p->problem = (rein_json_problem){.mistake = mistake, .token = token, .position = p->at};
    snprintf(p->problem.what, sizeof p->problem.what, "%s", what);
    return 0;
}

static int no_memory(parser *p) { return fail(p, REIN_JSON_NO_MEMORY, p->at, ""); }

/* The next byte; 0 at the end, because the text has no NUL. */
static char peek(const parser *p) { return p->at < p->length ? p->text[p->at] : 0; }

static int is_digit(char c) { return c >= '0' && c <= '9'; }
static int is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static void skip_blanks(parser *p) {
    while (peek(p) == ' ' || peek(p) == '\n' || peek(p) == '\t' || peek(p) == '\r') p->at++;
}

/* The length of the character above ASCII at text[at]; 0 after a failure. */
static size_t character_length(parser *p) {
    utf8proc_int32_t c;
    const utf8proc_uint8_t *from = (const utf8proc_uint8_t *)p->text + p->at;
    const utf8proc_ssize_t n = utf8proc_iterate(from, (utf8proc_ssize_t)(p->length - p->at), &c);
    return n > 0 ? (size_t)n : (size_t)fail(p, REIN_JSON_NOT_UTF8, p->at, "");
}

/* The next token is not what is needed; the message shows it. */
static int unexpected(parser *p, const char *what) {
    const size_t token = p->at;
    if (p->at == p->length) return fail(p, REIN_JSON_CUT, token, what);
    if (is_letter(peek(p)))
        while (is_letter(peek(p))) p->at++;
    else if (is_digit(peek(p)))
        while (is_digit(peek(p))) p->at++;
    else if ((unsigned char)peek(p) < 0x80) p->at++;
    else {
        const size_t n = character_length(p);
        if (!n) return 0;
        p->at += n;
    }
    return fail(p, REIN_JSON_SYNTAX, token, what);
}

/* ---------------------------------------------------------------------------------------------------------------------- strings */

/* Four hexadecimal digits, or -1. */
static long hex(const char *digits) {
    long value = 0;
    for (int i = 0; i < 4; i++) {
        const char *at = strchr("0123456789abcdefABCDEF", digits[i]);
        if (!at || !*at) return -1;
        value = 16 * value + (is_digit(*at) ? *at - '0' : (*at | 32) - 'a' + 10);
    }
    return value;
}

/* \u and what follows: 6 bytes, or 12 for a pair of surrogates; 0 after a failure. */
static size_t unicode_length(parser *p, size_t token) {
    const char *s = p->text + p->at;
    const size_t left = p->length - p->at;
    const long first = left >= 6 ? hex(s + 2) : -1;
    const long second = left >= 12 && s[6] == '\\' && s[7] == 'u' ? hex(s + 8) : -1;
    const int high = first >= 0xD800 && first < 0xDC00, pair = high && second >= 0xDC00 && second < 0xE000;
    p->at += first < 0 ? (left < 2 ? left : 2) : 6;
    if (first < 0) return (size_t)fail(p, REIN_JSON_SYNTAX, token, "invalid escape");
    if (!first) p->has_nul = 1;
    if (!pair && first >= 0xD800 && first < 0xE000) {
        char what[40];
        snprintf(what, sizeof what, "invalid Unicode '\\u%04lX'", (unsigned long)first);
        return (size_t)fail(p, REIN_JSON_SYNTAX, token, what);
    }
    p->at -= 6;
    return pair ? 12 : 6;
}

static size_t escape_length(parser *p, size_t token) {
    const char c = p->length - p->at >= 2 ? p->text[p->at + 1] : 0;
    if (c == 'u') return unicode_length(p, token);
    if (c && strchr("\"\\/bfnrt", c)) return 2;
    p->at += c ? 2 : 1;
    return (size_t)fail(p, c ? REIN_JSON_SYNTAX : REIN_JSON_CUT, token, "invalid escape");
}

static int control_character(parser *p, size_t token, unsigned char c) {
    char what[40];
    if (c == '\n') return fail(p, REIN_JSON_SYNTAX, token, "unexpected newline");
    snprintf(what, sizeof what, "control character 0x%x", c);
    return fail(p, REIN_JSON_SYNTAX, token, what);
}

static int end_string(parser *p, size_t token, int may_have_nul) {
    p->at++;
    return !p->has_nul || may_have_nul || fail(p, REIN_JSON_NUL, token, "");
}

/* Checks the string that opens at text[at] and stands after it. *escapes: it has some. */
static int scan_string(parser *p, int *escapes, int may_have_nul) {
    const size_t token = p->at++;
    *escapes = p->has_nul = 0;
    while (p->at < p->length) {
        const unsigned char c = (unsigned char)p->text[p->at];
        size_t n = 1;
        if (c == '"') return end_string(p, token, may_have_nul);
        if (c < 0x20) return control_character(p, token, c);
        if (c == '\\') *escapes = 1, n = escape_length(p, token);
        else if (c >= 0x80) n = character_length(p);
        if (!n) return 0;
        p->at += n;
    }
    return fail(p, REIN_JSON_CUT, token, "");
}

/* What the escape at *from stands for, in `to`, which has room; *from is then after it. Returns the end. */
static char *put_escaped(char *to, const char **from) {
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *s = *from;
    if (s[1] != 'u') return *from += 2, *to = meant[strchr(letters, s[1]) - letters], to + 1;
    long c = hex(s + 2);
    const int pair = c >= 0xD800 && c < 0xDC00;
    if (pair) c = 0x10000 + ((c - 0xD800) << 10) + (hex(s + 8) - 0xDC00);
    *from += pair ? 12 : 6;
    return to + utf8proc_encode_char((utf8proc_int32_t)c, (utf8proc_uint8_t *)to);
}

/* text[from .. end), a checked string without its quotes, in `to`. An escape is never shorter than its character. */
static int unescape(parser *p, rein_text *to, size_t from, size_t end) {
    rein_text_cut(to, 0);
    if (rein_text_reserve(to, end - from, NULL)) return no_memory(p);
    char *out = to->data;
    for (const char *s = p->text + from; s < p->text + end;) {
        if (*s == '\\') out = put_escaped(out, &s);
        else *out++ = *s++;
    }
    *out = 0;
    to->length = (size_t)(out - to->data);
    return 1;
}

/* ----------------------------------------------------------------------------------------------------------------------- values */

static int spend(parser *p, size_t cost) {
    p->cost += cost;
    return p->cost <= MOST_COST || fail(p, REIN_JSON_MANY, p->at, "");
}

/* Takes the value (NULL: there was no memory for it) into the innermost container. */
static int attach(parser *p, json_t *value) {
    json_t *top = p->depth ? p->open[p->depth - 1] : NULL;
    if (!value) return no_memory(p);
    if (!top) p->root = value;
    else if (json_is_object(top) ? json_object_set_new_nocheck(top, p->key.data, value) : json_array_append_new(top, value))
        return no_memory(p);
    return spend(p, VALUE);
}

static int take_string(parser *p) {
    const size_t from = p->at + 1;
    int escapes;
    if (!scan_string(p, &escapes, p->flags & REIN_JSON_ALLOWS_NUL)) return 0;
    if (!escapes) return attach(p, json_stringn_nocheck(p->text + from, p->at - 1 - from));
    return unescape(p, &p->scratch, from, p->at - 1) && attach(p, json_stringn_nocheck(p->scratch.data, p->scratch.length));
}

static int digits(parser *p) {
    const size_t from = p->at;
    while (is_digit(peek(p))) p->at++;
    return p->at > from;
}

/* Stands after the number; 0 if it is not one. */
static int scan_number(parser *p, int *whole) {
    p->at += peek(p) == '-';
    if (peek(p) == '0') {
        p->at++;
        if (is_digit(peek(p))) return 0;
    } else if (!digits(p)) return 0;
    *whole = peek(p) != '.' && (peek(p) | 32) != 'e';
    if (peek(p) == '.') {
        p->at++;
        if (!digits(p)) return 0;
    }
    if ((peek(p) | 32) != 'e') return 1;
    p->at++;
    p->at += peek(p) == '+' || peek(p) == '-';
    return digits(p);
}

/* strtod expects the point of the locale. */
static void put_point(rein_text *number) {
    const char *point = localeconv()->decimal_point;
    char *dot = strcmp(point, ".") ? strchr(number->data, '.') : NULL;
    if (!dot) return;
    const size_t before = (size_t)(dot - number->data);
    rein_text whole = {0};
    rein_text_format(&whole, "%.*s%s%s", (int)before, number->data, point, dot + 1);
    rein_text_free(number);
    *number = whole;
}

static int take_number(parser *p) {
    const size_t token = p->at;
    int whole;
    if (!scan_number(p, &whole)) return fail(p, REIN_JSON_SYNTAX, token, "invalid token");
    rein_text *number = &p->scratch;
    rein_text_cut(number, 0);
    rein_text_put_bytes(number, p->text + token, p->at - token);
    if (!number->failed) put_point(number);
    if (number->failed) return no_memory(p);
    errno = 0;
    if (whole && !(p->flags & REIN_JSON_WIDE_INTEGERS)) {
        const long long value = strtoll(number->data, NULL, 10);
        return errno ? fail(p, REIN_JSON_RANGE, token, "") : attach(p, json_integer(value));
    }
    const double value = strtod(number->data, NULL);
    const int finite = value - value == 0;
    return finite ? attach(p, json_real(value)) : fail(p, REIN_JSON_RANGE, token, "");
}

static int take_word(parser *p) {
    static const char *const words[] = {"true", "false", "null"};
    const size_t token = p->at;
    while (is_letter(peek(p))) p->at++;
    for (int i = 0; i < 3; i++)
        if (p->at - token == strlen(words[i]) && !memcmp(p->text + token, words[i], p->at - token))
            return attach(p, i == 0 ? json_true() : i == 1 ? json_false() : json_null());
    return fail(p, REIN_JSON_SYNTAX, token, "invalid token");
}

/* The container holds it already while its entries are read; so the root owns everything. */
static int open_container(parser *p) {
    const size_t token = p->at++;
    if (p->depth == DEPTH) return fail(p, REIN_JSON_DEEP, token, "");
    if (!spend(p, CONTAINER)) return 0;
    json_t *value = p->text[token] == '{' ? json_object() : json_array();
    if (!attach(p, value)) return 0;
    p->open[p->depth++] = value;
    return p->fresh = 1;
}

static int take_value(parser *p) {
    const char c = peek(p);
    if (c == '{' || c == '[') return open_container(p);
    if (c == '"') return take_string(p);
    if (c == '-' || is_digit(c)) return take_number(p);
    if (is_letter(c)) return take_word(p);
    return unexpected(p, c && strchr("]},:", c) ? "unexpected token" : "invalid token");
}

/* -------------------------------------------------------------------------------------------------------------------- structure */

/* "KEY": */
static int take_key(parser *p) {
    const size_t token = p->at, from = token + 1;
    int escapes;
    if (peek(p) != '"') return unexpected(p, "string or '}' expected");
    if (!scan_string(p, &escapes, 0) || !unescape(p, &p->key, from, p->at - 1)) return 0;
    if (json_object_get(p->open[p->depth - 1], p->key.data)) return fail(p, REIN_JSON_TWICE, token, "");
    skip_blanks(p);
    if (peek(p) != ':') return unexpected(p, "':' expected");
    p->at++;
    skip_blanks(p);
    return 1;
}

/* The next entry of the innermost container, or its end. */
static int take_entry(parser *p) {
    const int object = json_is_object(p->open[p->depth - 1]), first = p->fresh;
    p->fresh = 0;
    skip_blanks(p);
    if (peek(p) == (object ? '}' : ']')) return p->at++, p->depth--, 1;
    if (!first) {
        if (peek(p) != ',') return unexpected(p, object ? "'}' expected" : "']' expected");
        p->at++;
        skip_blanks(p);
    }
    return (!object || take_key(p)) && take_value(p);
}

static int take_all(parser *p) {
    skip_blanks(p);
    int good = take_value(p);
    while (good && p->depth) good = take_entry(p);
    skip_blanks(p);
    if (!good || p->at == p->length) return good;
    p->at++;
    return fail(p, REIN_JSON_AFTER, p->at - 1, "");
}

json_t *rein_json_build(rein_json_problem *problem, const char *text, size_t length, unsigned flags) {
    parser p = {.text = text, .length = length, .flags = flags};
    if (!take_all(&p)) {
        json_decref(p.root);
        p.root = NULL;
    }
    rein_text_free(&p.key);
    rein_text_free(&p.scratch);
    *problem = p.problem;
    return p.root;
}
