/* json_text.c - jansson parses; what it says about a mistake becomes a sentence that names the field. */
#include "json_text.h"

#include <stdio.h>
#include <string.h>

const char *rein_text_quote(char *to, size_t size, const char *text) {
    size_t n = 0;
    to[n++] = '"';
    while (*text) {
        char piece[8] = {0};
        unsigned char c = (unsigned char)*text;
        size_t bytes = 1;
        if (c == '"' || c == '\\') snprintf(piece, sizeof piece, "\\%c", c);
        else if (c < 0x20 || c == 0x7F) snprintf(piece, sizeof piece, "\\u%04x", c);
        else {
            while (((unsigned char)text[bytes] & 0xC0) == 0x80 && bytes < 4) bytes++;
            memcpy(piece, text, bytes);
        }
        if (n + strlen(piece) + sizeof "…\"" > size) {
            memcpy(to + n, "…", sizeof "…" - 1);
            n += sizeof "…" - 1;
            break;
        }
        memcpy(to + n, piece, strlen(piece));
        n += strlen(piece);
        text += bytes;
    }
    to[n++] = '"';
    to[n] = 0;
    return to;
}

/* ------------------------------------------------------------------------------------------------------------ where a mistake is */

enum { DEPTH = 8 }; /* deeper than any argument; beyond it a path only loses its tail */

typedef struct level {
    int object;       /* else an array */
    size_t index;     /* of the entry, in an array */
    size_t key, size; /* of the key in the text, in an object */
} level;

/* One past the string that opens at text[i], or `end`. */
static size_t string_end(const char *text, size_t i, size_t end) {
    for (i++; i < end && text[i] != '"'; i++) i += text[i] == '\\';
    return i < end ? i + 1 : end;
}

/* Follows the well-formed JSON before `end` and writes the path there, "rewards[1][0]", into `to`; "" at the top. */
static void path_at(char *to, size_t size, const char *text, size_t end) {
    level levels[DEPTH] = {{0}};
    size_t depth = 0, n = 0;
    for (size_t i = 0; i < end; i++) {
        level *top = depth && depth <= DEPTH ? &levels[depth - 1] : NULL;
        if (text[i] == '"') {
            size_t after = string_end(text, i, end), colon = after;
            while (colon < end && strchr(" \t\r\n", text[colon])) colon++;
            if (top && top->object && colon < end && text[colon] == ':') top->key = i + 1, top->size = after - i - 2;
            i = after - 1;
        } else if (text[i] == '[' || text[i] == '{') {
            if (depth < DEPTH) levels[depth] = (level){.object = text[i] == '{'};
            depth++;
        } else if (text[i] == ']' || text[i] == '}') {
            depth -= depth > 0;
        } else if (text[i] == ',' && top) {
            top->index++;
            top->size = 0;
        }
    }
    for (size_t d = 0; d < depth && d < DEPTH && n < size; d++) {
        char key[40], quoted[60];
        size_t length = levels[d].size < sizeof key ? levels[d].size : sizeof key - 1;
        memcpy(key, text + levels[d].key, length);
        key[length] = 0;
        rein_text_quote(quoted, sizeof quoted, key);
        quoted[strlen(quoted) - 1] = 0;
        if (!levels[d].object) n += (size_t)snprintf(to + n, size - n, "[%zu]", levels[d].index);
        else if (length) n += (size_t)snprintf(to + n, size - n, "%s%s", n ? "." : "", quoted + 1);
    }
    if (!n) to[0] = 0;
}

/* The key that ends just before text[end], without its quotes. */
static void key_before(char *to, size_t size, const char *text, size_t end) {
    size_t first = end < 2 ? 0 : end - 1, length;
    while (first > 0 && text[first - 1] != '"') first--;
    length = end < 2 ? 0 : end - 1 - first;
    if (length >= size) length = size - 1;
    memcpy(to, text + first, length);
    to[length] = 0;
}

/* jansson quotes the offending text only when it is short: "invalid token near 'NaN'". */
static void near_text(char *to, size_t size, const json_error_t *e) {
    const char *near = strstr(e->text, " near '");
    snprintf(to, size, "%s", near ? near + strlen(" near '") : "");
    size_t n = strlen(to);
    if (n && to[n - 1] == '\'') to[n - 1] = 0;
}

static rein_status syntax_error(const json_error_t *e, const char *text, size_t length, size_t line, rein_error *err) {
    if (e->line < 0 || !e->text[0]) return rein_fail(err, REIN_ENOMEM, "out of memory"); /* jansson says nothing then */
    size_t end = e->position > 0 ? (size_t)e->position : 0;
    const size_t row = line ? line : (size_t)e->line; /* a line of JSON has no other */
    char path[160], near[80], quoted[64], key[64], where[240];
    if (end > length) end = length;
    int cut = json_error_code(e) == json_error_premature_end_of_input; /* else the last byte belongs to the mistake */
    path_at(path, sizeof path, text, end && !cut ? end - 1 : end);
    near_text(near, sizeof near, e);
    snprintf(where, sizeof where, "%s%sline %zu, column %d%s", path, *path ? " (" : "", row, e->column, *path ? ")" : "");
    switch (json_error_code(e)) {
    case json_error_out_of_memory: return rein_fail(err, REIN_ENOMEM, "out of memory");
    case json_error_stack_overflow: return rein_fail(err, REIN_EINVAL, "%s: nested too deep for any argument", where);
    case json_error_premature_end_of_input:
        return rein_fail(err, REIN_EINVAL, "%s: the input ends here, inside the JSON object", where);
    case json_error_end_of_input_expected:
        return rein_fail(err, REIN_EINVAL, "%s: text follows the JSON object: one object is needed, and nothing after it", where);
    case json_error_numeric_overflow:
        return rein_fail(err, REIN_EINVAL, "%s: %s is beyond the range of a number, about 1.8e308", where, *near ? near : "this");
    case json_error_null_character:
    case json_error_null_byte_in_key: return rein_fail(err, REIN_EINVAL, "%s: \\u0000 is not allowed in a text", where);
    case json_error_duplicate_key:
        key_before(key, sizeof key, text, end);
        return rein_fail(err, REIN_EINVAL, "%s is given twice, again at line %zu, column %d",
                         rein_text_quote(quoted, sizeof quoted, key), row, e->column);
    default: break;
    }
    if (!strcmp(near, "NaN") || !strcmp(near, "nan") || !strcmp(near, "Infinity") || !strcmp(near, "inf") || !strcmp(near, "-"))
        return rein_fail(err, REIN_EINVAL, "%s: %s is no finite number, which is what JSON can hold", where,
                         *near == '-' ? "this" : near);
    return rein_fail(err, REIN_EINVAL, "%s: %s", where, e->text);
}

rein_status rein_text_parse(json_t **root, const char *text, size_t length, size_t line, rein_error *err) {
    json_error_t e;
    char input[40] = "the input";
    size_t blank = 0;
    *root = NULL;
    if (line) snprintf(input, sizeof input, "line %zu", line);
    while (blank < length && strchr(" \t\r\n", text[blank]) && text[blank]) blank++;
    if (blank == length) return rein_fail(err, REIN_EINVAL, "%s is empty: a JSON object of arguments is needed", input);
    const char *nul = memchr(text, 0, length);
    if (length >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        return rein_fail(err, REIN_EINVAL, "%s starts with a byte order mark: UTF-8 without one is needed", input);
    if (nul) return rein_fail(err, REIN_EINVAL, "byte %zu of %s is 0: JSON text has no such byte", (size_t)(nul - text), input);
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL | JSON_DECODE_ANY | (line ? JSON_ALLOW_NUL : 0u);
    *root = json_loadb(text, length, flags, &e);
    return *root ? REIN_OK : syntax_error(&e, text, length, line, err);
}
