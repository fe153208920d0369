/* json_parse.c - jansson parses; this file decides what is rejected and how a mistake is described. */
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "json.h"
#include "text.h"

enum { PATH_SHOWN = 120 };

/* A text that is parsed, for messages. */
typedef struct source {
    const char *text;
    size_t length;
    const char *place; /* NULL: none */
    unsigned flags;
    rein_error *err;
} source;

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "out of memory"); }

/* --------------------------------------------------------------------------------------------------------- what jansson reports */

/* jansson reports a string for which it found no memory as a syntax error. Whether there is memory now tells the two apart. */
static int memory_is_out(void) {
    void *volatile probe = malloc(4096); /* volatile: a compiler may remove an allocation that is not used */
    free(probe);
    return !probe;
}

/* jansson quotes the offending text only if it is short: "invalid token near 'NaN'". */
static void near_text(char *to, size_t size, const json_error_t *e) {
    const char *near = strstr(e->text, " near '");
    size_t n = 0;
    for (near = near ? near + strlen(" near '") : ""; *near && !(near[0] == '\'' && !near[1]) && n + 1 < size; near++)
        to[n++] = *near;
    to[n] = 0;
}

static int is_not_finite(const char *near) {
    static const char *const words[] = {"NaN", "nan", "Infinity", "inf", "-"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(near, words[i])) return 1;
    return 0;
}

static void describe(rein_text *to, const source *s, const json_error_t *e) {
    char near[80];
    near_text(near, sizeof near, e);
    const char *shown = *near && strcmp(near, "-") != 0 ? near : "this";
    const int one_line = (s->flags & REIN_JSON_ONE_LINE) != 0;
    switch (json_error_code(e)) {
    case json_error_stack_overflow: rein_text_put(to, "nested too deep"); break;
    case json_error_premature_end_of_input:
        rein_text_format(to, "the %s ends here, inside the JSON%s",
                         one_line   ? "line"
                         : s->place ? "file"
                                    : "input",
                         one_line ? ": a line holds a whole value" : "");
        break;
    case json_error_end_of_input_expected: rein_text_put(to, "there is text after the JSON value"); break;
    case json_error_null_character:
    case json_error_null_byte_in_key: rein_text_put(to, "\\u0000 is not allowed in a text"); break;
    case json_error_numeric_overflow:
        rein_text_format(to, "%s is beyond the range of numbers (%s1.8e308)", shown,
                         s->flags & REIN_JSON_WIDE_INTEGERS ? "" : "whole numbers have 64 bits, others end at ");
        break;
    case json_error_invalid_utf8: rein_text_put(to, "this is not UTF-8"); break;
    default:
        if (is_not_finite(near)) rein_text_format(to, "%s is not a finite number: JSON has neither NaN nor Infinity", shown);
        else rein_text_put(to, e->text);
    }
}

/* --------------------------------------------------------------------------------------------------------------- where it stands */

/* The key that ends just before text[end], without its quotes. */
static size_t key_before(const char **key, const char *text, size_t end) {
    size_t first = end < 2 ? 0 : end - 1;
    while (first > 0 && text[first - 1] != '"') first--;
    *key = text + first;
    return end < 2 ? 0 : end - 1 - first;
}

static rein_status given_twice(const source *s, const json_error_t *e, const char *path, size_t end, const char *position) {
    const char *key;
    const size_t length = key_before(&key, s->text, end);
    char field[PATH_SHOWN + 80];
    (void)e;
    snprintf(field, sizeof field, "%s%s%.*s", path, *path ? "." : "", length < 60 ? (int)length : 60, key);
    return rein_fail_at(s->err, REIN_EINVAL, field, -1, "is given twice, again at %s", position);
}

static rein_status syntax_error(const source *s, const json_error_t *e) {
    const int silent = e->line < 0 || !e->text[0]; /* how jansson reports most failed allocations */
    if (json_error_code(e) == json_error_out_of_memory || silent || memory_is_out()) return no_memory(s->err);
    const int cut = json_error_code(e) == json_error_premature_end_of_input; /* else the last byte belongs to the mistake */
    const int one_line = (s->flags & REIN_JSON_ONE_LINE) != 0, twice = json_error_code(e) == json_error_duplicate_key;
    char path[PATH_SHOWN], position[60], shown[REIN_PATH_SHOWN];
    size_t end = e->position > 0 ? (size_t)e->position : 0;
    int64_t index;
    rein_text reason = {0};
    if (end > s->length) end = s->length;
    rein_json_path_at(path, sizeof path, &index, s->text, end && !cut ? end - 1 : end);
    if (one_line) snprintf(position, sizeof position, "column %d", e->column);
    else snprintf(position, sizeof position, "line %d, column %d", e->line, e->column);
    describe(&reason, s, e);
    if (reason.failed) return no_memory(s->err);
    if (twice) given_twice(s, e, path, end, position);
    else if (*path) rein_fail_at(s->err, REIN_EINVAL, path, index, "(%s): %s", position, reason.data);
    else if (s->place && one_line)
        rein_fail(s->err, REIN_EINVAL, "%s, %s: %s", rein_path_show(shown, s->place), position, reason.data);
    else rein_fail(s->err, REIN_EINVAL, "%s: %s", position, reason.data);
    rein_text_free(&reason);
    if (!s->place || (one_line && !twice && !*path)) return REIN_EINVAL;
    return rein_fail_in(s->err, REIN_EINVAL, "%s", rein_path_show(shown, s->place));
}

/* ------------------------------------------------------------------------------------------------------------------------ parse */

/* What is wrong before jansson sees it. */
static rein_status check_text(const source *s) {
    char subject[REIN_PATH_SHOWN];
    const char *object = s->flags & REIN_JSON_NEEDS_OBJECT ? "a JSON object" : "a JSON value", *text = s->text;
    size_t first = 0;
    rein_path_show(subject, s->place ? s->place : s->flags & REIN_JSON_ONE_LINE ? "the line" : "the input");
    while (first < s->length && rein_is_blank(text[first])) first++;
    if (first == s->length) return rein_fail(s->err, REIN_EINVAL, "%s is empty: %s is needed", subject, object);
    if (s->length >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        return rein_fail(s->err, REIN_EINVAL, "%s starts with a byte order mark: UTF-8 without one is needed", subject);
    if (s->flags & REIN_JSON_NEEDS_OBJECT && text[first] != '{')
        return rein_fail(s->err, REIN_EINVAL, "%s does not start with {: %s is needed", subject, object);
    const char *nul = memchr(text, 0, s->length);
    if (nul) return rein_fail(s->err, REIN_EINVAL, "%s: byte %zu is 0: JSON has no such byte", subject, (size_t)(nul - text));
    return REIN_OK;
}

rein_status rein_json_parse(rein_json **value, const char *text, size_t length, const char *place, unsigned flags,
                            rein_error *err) {
    const source s = {text, length, place, flags, err};
    json_error_t e = {.line = -1};
    *value = NULL;
    const rein_status status = check_text(&s);
    if (status) return status;
    const size_t wide = flags & REIN_JSON_WIDE_INTEGERS ? JSON_DECODE_INT_AS_REAL : 0;
    const size_t nul = flags & REIN_JSON_ALLOWS_NUL ? JSON_ALLOW_NUL : 0;
    *value = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | wide | nul, &e);
    return *value ? REIN_OK : syntax_error(&s, &e);
}

rein_status rein_json_read(rein_json **value, const char *path, unsigned flags, rein_error *err) {
    rein_file file;
    *value = NULL;
    rein_status status = rein_file_map(&file, path, err);
    if (status) return status;
    status = rein_json_parse(value, (const char *)file.data, file.size, path, flags, err);
    rein_file_unmap(&file);
    return status;
}

void rein_json_free(rein_json *value) { json_decref(value); }

rein_status rein_json_file_write(const char *path, const json_t *root, rein_error *err) {
    char *text = json_dumps(root, JSON_INDENT(2));
    rein_writer writer;
    if (!text) return no_memory(err);
    rein_status status = rein_writer_open(&writer, path, err);
    if (!status) status = rein_writer_put(&writer, text, strlen(text), err);
    if (!status) status = rein_writer_put(&writer, "\n", 1, err);
    if (!status) status = rein_writer_commit(&writer, err);
    free(text);
    return status;
}
