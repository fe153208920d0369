/* template_lexer.c - cuts a template into tokens, with the whitespace rules that transformers sets: trim_blocks (the newline behind a block
 * goes) and lstrip_blocks (blanks before a block at the begin of a line go). "-" strips all blanks on its side, "+" keeps them. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/template.h"

typedef struct lexer {
    rein_template *parsed;
    rein_template_token_list *tokens;
    const char *text;
    size_t length, at;
    rein_status status;
    rein_error *err;
} lexer;

static void fail(lexer *l, size_t at, const char *what) {
    if (!l->status) l->status = rein_template_fail(l->err, REIN_EINVAL, l->text, at, "%s", what);
}

static void add(lexer *l, rein_template_token token) {
    rein_template_token_list *t = l->tokens;
    if (l->status) return;
    if (t->n == t->capacity) {
        const size_t capacity = rein_grown(t->capacity, t->n + 1, sizeof *t->data);
        rein_template_token *data = capacity ? realloc(t->data, capacity * sizeof *data) : NULL;
        if (!data) {
            l->status = rein_no_memory(l->err);
            return;
        }
        t->data = data, t->capacity = capacity;
    }
    t->data[t->n++] = token;
}

static bool has(const lexer *l, size_t at, const char *word) {
    const size_t n = strlen(word);
    return at + n <= l->length && memcmp(l->text + at, word, n) == 0;
}

/* The end of the blanks at `at`. */
static size_t skip_spaces(const lexer *l, size_t at) {
    uint32_t c;
    while (at < l->length) {
        const size_t n = rein_utf8_next(&c, l->text + at);
        if (!rein_is_space(c)) break;
        at += n;
    }
    return at;
}

/* The begin of the blanks before `end`, not before `begin`. */
static size_t strip_right(const lexer *l, size_t begin, size_t end) {
    uint32_t c;
    while (end > begin) {
        size_t last = end - 1;
        while (last > begin && ((unsigned char)l->text[last] & 0xC0) == 0x80) last--;
        rein_utf8_next(&c, l->text + last);
        if (!rein_is_space(c)) break;
        end = last;
    }
    return end;
}

/* ------------------------------------------------------------------------------------------------------------------------- data */

static void add_data(lexer *l, size_t begin, size_t end) {
    if (end > begin)
        add(l, (rein_template_token){.kind = REIN_TOKEN_DATA, .at = begin, .text = l->text + begin, .length = end - begin});
}

/* Where the data [begin, end) before a tag ends when its sign and lstrip_blocks are heeded. */
static size_t data_end(const lexer *l, size_t begin, size_t end, char sign, bool prints) {
    if (sign == '-') return strip_right(l, begin, end);
    if (sign == '+' || prints) return end;
    size_t line = end;
    while (line > begin && l->text[line - 1] != '\n') line--;
    const bool starts = line > 0 ? l->text[line - 1] == '\n' : true;
    return starts && skip_spaces(l, line) >= end ? line : end;
}

/* Behind "%}" or "#}" at `at`, which `sign` stands before. */
static size_t after_block(const lexer *l, size_t at, char sign) {
    at += 2;
    if (sign == '-') return skip_spaces(l, at);
    return sign != '+' && at < l->length && l->text[at] == '\n' ? at + 1 : at;
}

static void skip_comment(lexer *l, size_t begin, size_t body) {
    for (size_t at = body; at < l->length; at++) {
        if (!has(l, at, "#}")) continue;
        const char sign = at > body ? l->text[at - 1] : 0;
        l->at = after_block(l, at, sign);
        return;
    }
    fail(l, begin, "the comment has no end: #} is missing");
}

static char sign_at(const lexer *l, size_t at) {
    return at < l->length && (l->text[at] == '-' || l->text[at] == '+') ? l->text[at] : 0;
}

/* The end of a word behind blanks, or 0. */
static size_t skip_word(const lexer *l, size_t at, const char *word) {
    at = skip_spaces(l, at);
    return has(l, at, word) ? at + strlen(word) : 0;
}

/* {% raw %}: 1 if the tag at `at` is one; its data are added. */
static bool take_raw(lexer *l, size_t at) {
    const size_t word = skip_word(l, at + 2 + (sign_at(l, at + 2) != 0), "raw");
    size_t body = word ? skip_spaces(l, word) : 0;
    if (!body || !(has(l, body, "%}") || has(l, body, "-%}"))) return false;
    body = l->text[body] == '-' ? skip_spaces(l, body + 3) : body + 2;
    for (size_t end = body; end < l->length; end++) {
        if (!has(l, end, "{%")) continue;
        const char sign = sign_at(l, end + 2);
        const size_t close = skip_word(l, end + 2 + (sign != 0), "endraw");
        size_t stop = close ? skip_spaces(l, close) : 0;
        if (!stop) continue;
        const char behind = sign_at(l, stop);
        stop += behind != 0;
        if (!has(l, stop, "%}")) continue;
        add_data(l, body, data_end(l, body, end, sign, false));
        l->at = after_block(l, stop, behind);
        return true;
    }
    fail(l, at, "the raw block has no end: {% endraw %} is missing");
    return true;
}

/* ---------------------------------------------------------------------------------------------------------------------- numbers */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* The end of (\d+_)*\d+ at `at`. */
static size_t skip_digits(const lexer *l, size_t at) {
    while (at < l->length && (is_digit(l->text[at]) || (l->text[at] == '_' && at + 1 < l->length && is_digit(l->text[at + 1]))))
        at++;
    return at;
}

/* The digits without underscores. */
static bool copy_digits(char *to, size_t size, const char *from, size_t length) {
    size_t n = 0;
    for (size_t i = 0; i < length && n + 1 < size; i++)
        if (from[i] != '_') to[n++] = from[i];
    to[n] = 0;
    return n + 1 < size;
}

static void take_number(lexer *l) {
    const size_t begin = l->at;
    char digits[400];
    size_t end = skip_digits(l, begin), whole = end;
    const bool dotted = begin && l->text[begin - 1] == '.';
    if (!dotted && end + 1 < l->length && l->text[end] == '.' && is_digit(l->text[end + 1])) end = skip_digits(l, end + 1);
    if (!dotted && end < l->length && (l->text[end] == 'e' || l->text[end] == 'E')) {
        const size_t digit = end + 1 + (sign_at(l, end + 1) != 0);
        if (digit < l->length && is_digit(l->text[digit])) end = skip_digits(l, digit);
    }
    rein_template_token token = {.kind = end > whole ? REIN_TOKEN_FLOAT : REIN_TOKEN_INTEGER, .at = begin, .text = l->text + begin};
    token.length = end - begin;
    if (!copy_digits(digits, sizeof digits, token.text, token.length)) {
        fail(l, begin, "the number is too long");
        return;
    }
    if (token.kind == REIN_TOKEN_FLOAT) token.number = strtod(digits, NULL);
    else if (strlen(digits) > 18) {
        fail(l, begin, "the number is too large: 18 digits are supported");
        return;
    } else token.integer = strtoll(digits, NULL, 10);
    if (token.kind == REIN_TOKEN_INTEGER && *digits == '0' && strspn(digits, "0") < strlen(digits)) {
        fail(l, begin, "a number may not begin with 0");
        return;
    }
    l->at = end;
    add(l, token);
}

/* ---------------------------------------------------------------------------------------------------------------------- strings */

static int hex_digit(char c) {
    if (is_digit(c)) return c - '0';
    const char low = (char)(c | 0x20);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

/* \x, \u or \U with `digits` digits behind `at`. */
static size_t put_hex(lexer *l, char *to, size_t at, int digits) {
    uint32_t c = 0;
    for (int i = 0; i < digits; i++) {
        const int digit = at + (size_t)i < l->length ? hex_digit(l->text[at + (size_t)i]) : -1;
        if (digit < 0) return fail(l, at, "the escape needs hexadecimal digits"), (size_t)0;
        c = c << 4 | (uint32_t)digit;
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return fail(l, at, "the escape is not a character"), (size_t)0;
    return rein_utf8_write(to, c);
}

/* Writes what the escape at `at` (behind the backslash) means; *next is behind it. Unknown ones stay as they are, as in Python. */
static size_t put_escape(lexer *l, char *to, size_t at, size_t *next) {
    static const char from[] = "\\'\"abfnrtv", means[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = l->text[at];
    const char *known = strchr(from, c);
    *next = at + 1;
    if (c == '\n') return 0;
    if (c && known) return *to = means[known - from], (size_t)1;
    if (c == 'x' || c == 'u' || c == 'U') {
        const int digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        *next = at + 1 + (size_t)digits;
        return put_hex(l, to, at + 1, digits);
    }
    if (c == 'N') return fail(l, at, "\\N{...} is not supported"), (size_t)0;
    if (c >= '0' && c <= '7') {
        uint32_t octal = 0;
        size_t n = 0;
        for (; n < 3 && at + n < l->length && l->text[at + n] >= '0' && l->text[at + n] <= '7'; n++)
            octal = octal * 8 + (uint32_t)(l->text[at + n] - '0');
        *next = at + n;
        return rein_utf8_write(to, octal);
    }
    *next = at;
    return *to = '\\', (size_t)1;
}

static void take_string(lexer *l) {
    const size_t begin = l->at;
    const char quote = l->text[begin];
    size_t end = begin + 1, n = 0;
    while (end < l->length && l->text[end] != quote) end += l->text[end] == '\\' ? 2 : 1;
    if (end >= l->length) {
        fail(l, begin, "the string has no end");
        return;
    }
    char *text = rein_blocks_take(&l->parsed->memory, end - begin + 4);
    if (!text) {
        l->status = rein_no_memory(l->err);
        return;
    }
    for (size_t at = begin + 1; at < end && !l->status;) {
        if (l->text[at] != '\\') text[n++] = l->text[at++];
        else n += put_escape(l, text + n, at + 1, &at);
    }
    l->at = end + 1;
    add(l, (rein_template_token){.kind = REIN_TOKEN_STRING, .at = begin, .text = text, .length = n});
}

/* ------------------------------------------------------------------------------------------------------------------------- tags */

static void take_name(lexer *l) {
    const size_t begin = l->at;
    uint32_t c;
    while (l->at < l->length) {
        const size_t n = rein_utf8_next(&c, l->text + l->at);
        if (!rein_is_word(c)) break;
        l->at += n;
    }
    if (l->at == begin) {
        fail(l, begin, "this character has no meaning here");
        return;
    }
    add(l, (rein_template_token){.kind = REIN_TOKEN_NAME, .at = begin, .text = l->text + begin, .length = l->at - begin});
}

static size_t operator_length(const lexer *l) {
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (has(l, l->at, two[i])) return 2;
    return l->text[l->at] && strchr("+-/*%~[](){}><=.:|,;", l->text[l->at]) ? 1 : 0;
}

/* Keeps the open brackets: a "}}" that closes a dict does not end a tag. */
static void take_operator(lexer *l, char open[REIN_TEMPLATE_DEPTH], size_t *depth, size_t n) {
    const char c = l->text[l->at];
    const char *opens = n == 1 ? strchr("([{", c) : NULL, *closes = n == 1 ? strchr(")]}", c) : NULL;
    if (opens && *depth == REIN_TEMPLATE_DEPTH) {
        fail(l, l->at, "brackets are nested too deeply");
        return;
    }
    if (opens) open[(*depth)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    if (closes && (!*depth || open[--*depth] != c)) {
        fail(l, l->at, "this bracket closes nothing");
        return;
    }
    add(l, (rein_template_token){.kind = REIN_TOKEN_OPERATOR, .at = l->at, .text = l->text + l->at, .length = n});
    l->at += n;
}

/* The end of a tag at l->at: true if there is one. */
static bool take_end(lexer *l, bool prints) {
    const size_t at = l->at;
    const char sign = sign_at(l, at);
    const size_t close = at + (sign == '-' || (sign && !prints));
    if (!has(l, close, prints ? "}}" : "%}")) return false;
    add(l, (rein_template_token){.kind = prints ? REIN_TOKEN_PRINT_END : REIN_TOKEN_BLOCK_END, .at = at});
    if (!prints) l->at = after_block(l, close, close > at ? sign : 0);
    else l->at = close > at ? skip_spaces(l, close + 2) : close + 2;
    return true;
}

static void take_tag(lexer *l, size_t begin, bool prints) {
    char open[REIN_TEMPLATE_DEPTH];
    size_t depth = 0;
    add(l, (rein_template_token){.kind = prints ? REIN_TOKEN_PRINT_BEGIN : REIN_TOKEN_BLOCK_BEGIN, .at = begin});
    l->at = begin + 2 + (sign_at(l, begin + 2) != 0);
    while (!l->status) {
        l->at = skip_spaces(l, l->at);
        if (l->at >= l->length) {
            fail(l, begin, prints ? "}} is missing" : "%} is missing");
            return;
        }
        if (!depth && take_end(l, prints)) return;
        const char c = l->text[l->at];
        const size_t n = operator_length(l);
        if (is_digit(c)) take_number(l);
        else if (c == '\'' || c == '"') take_string(l);
        else if (n) take_operator(l, open, &depth, n);
        else take_name(l);
    }
}

rein_status rein_template_tokens(rein_template_token_list *tokens, rein_template *parsed, rein_error *err) {
    lexer l = {.parsed = parsed, .tokens = tokens, .text = parsed->text, .length = parsed->length, .err = err};
    while (l.at < l.length && !l.status) {
        const size_t begin = l.at;
        size_t at = begin;
        while (at < l.length && !has(&l, at, "{%") && !has(&l, at, "{{") && !has(&l, at, "{#")) at++;
        if (at == l.length) {
            add_data(&l, begin, at);
            break;
        }
        const bool prints = l.text[at + 1] == '{';
        add_data(&l, begin, data_end(&l, begin, at, sign_at(&l, at + 2), prints));
        if (l.text[at + 1] == '#') skip_comment(&l, at, at + 2 + (sign_at(&l, at + 2) != 0));
        else if (prints || !take_raw(&l, at)) take_tag(&l, at, prints);
    }
    add(&l, (rein_template_token){.kind = REIN_TOKEN_END, .at = l.length});
    return l.status;
}
