/* json_parse.c - what is rejected, and how a mistake is described; json_build.c parses. */
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

/* ------------------------------------------------------------------------------------------------------------------- what is wrong */

enum { LONGEST_NEAR = 20 };

/* The offending text if it is short, else "". */
static void near_text(char to[LONGEST_NEAR + 1], const source *s, const rein_json_problem *p) {
    const size_t length = p->position - p->token;
    snprintf(to, LONGEST_NEAR + 1, "%.*s", length <= LONGEST_NEAR ? (int)length : 0, s->text + p->token);
}

static int is_not_finite(const char *near) {
    static const char *const words[] = {"NaN", "nan", "Infinity", "inf", "-"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(near, words[i])) return 1;
    return 0;
}

static void describe(rein_text *to, const source *s, const rein_json_problem *p) {
    char near[LONGEST_NEAR + 1];
    near_text(near, s, p);
    const char *shown = *near && strcmp(near, "-") != 0 ? near : "this";
    const int one_line = (s->flags & REIN_JSON_ONE_LINE) != 0;
    switch (p->mistake) {
    case REIN_JSON_DEEP: rein_text_put(to, "nested too deep"); break;
    case REIN_JSON_MANY:
        rein_text_put(to, "too many values: a text may have 33 million, and an array or object counts as 9");
        break;
    case REIN_JSON_CUT:
        rein_text_format(to, "the %s ends here, inside the JSON%s",
                         one_line   ? "line"
                         : s->place ? "file"
                                    : "input",
                         one_line ? ": a line holds a whole value" : "");
        break;
    case REIN_JSON_AFTER: rein_text_put(to, "there is text after the JSON value"); break;
    case REIN_JSON_NUL: rein_text_put(to, "\\u0000 is not allowed in a text"); break;
    case REIN_JSON_RANGE:
        rein_text_format(to, "%s is beyond the range of numbers (%s1.8e308)", shown,
                         s->flags & REIN_JSON_WIDE_INTEGERS ? "" : "whole numbers have 64 bits, others end at ");
        break;
    case REIN_JSON_NOT_UTF8: rein_text_put(to, "this is not UTF-8"); break;
    default:
        if (is_not_finite(near)) rein_text_format(to, "%s is not a finite number: JSON has neither NaN nor Infinity", shown);
        else if (*near) rein_text_format(to, "%s near '%s'", p->what, near);
        else rein_text_put(to, p->what);
    }
}

/* --------------------------------------------------------------------------------------------------------------- where it stands */

/* "line 3, column 4": lines from 1; the column counts the characters before the position. */
static void show_position(char *to, size_t size, const source *s, size_t end) {
    size_t line = 1, column = 0;
    for (size_t i = 0; i < end; i++) {
        if (s->text[i] == '\n') line++, column = 0;
        else column += ((unsigned char)s->text[i] & 0xC0) != 0x80;
    }
    if (s->flags & REIN_JSON_ONE_LINE) snprintf(to, size, "column %zu", column);
    else snprintf(to, size, "line %zu, column %zu", line, column);
}

static rein_status given_twice(const source *s, const rein_json_problem *p, const char *path, const char *position) {
    const size_t length = p->position - p->token - 2; /* without the quotes */
    char field[PATH_SHOWN + 80];
    snprintf(field, sizeof field, "%s%s%.*s", path, *path ? "." : "", length < 60 ? (int)length : 60, s->text + p->token + 1);
    return rein_fail_at(s->err, REIN_EINVAL, field, -1, "is given twice, again at %s", position);
}

static rein_status syntax_error(const source *s, const rein_json_problem *p) {
    if (p->mistake == REIN_JSON_NO_MEMORY) return rein_no_memory(s->err);
    const int cut = p->mistake == REIN_JSON_CUT; /* else the last byte belongs to the mistake */
    const int one_line = (s->flags & REIN_JSON_ONE_LINE) != 0, twice = p->mistake == REIN_JSON_TWICE;
    char path[PATH_SHOWN], position[60], shown[REIN_PATH_SHOWN];
    const size_t end = p->position;
    int64_t index;
    rein_text reason = {0};
    rein_json_path_at(path, sizeof path, &index, s->text, end && !cut ? end - 1 : end);
    show_position(position, sizeof position, s, end);
    describe(&reason, s, p);
    if (reason.failed) return rein_no_memory(s->err);
    if (twice) given_twice(s, p, path, position);
    else if (*path) rein_fail_at(s->err, REIN_EINVAL, path, index, "(%s): %s", position, reason.data);
    else if (s->place && one_line)
        rein_fail(s->err, REIN_EINVAL, "%s, %s: %s", rein_path_show(shown, s->place), position, reason.data);
    else rein_fail(s->err, REIN_EINVAL, "%s: %s", position, reason.data);
    rein_text_free(&reason);
    if (!s->place || (one_line && !twice && !*path)) return REIN_EINVAL;
    return rein_fail_in(s->err, REIN_EINVAL, "%s", rein_path_show(shown, s->place));
}

/* ------------------------------------------------------------------------------------------------------------------------ parse */

/* What is wrong before it is parsed. */
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
    rein_json_problem problem;
    *value = NULL;
    const rein_status status = check_text(&s);
    if (status) return status;
    *value = rein_json_build(&problem, text, length, flags);
    return *value ? REIN_OK : syntax_error(&s, &problem);
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
    size_t length;
    char *text = rein_json_dump(&length, root, JSON_INDENT(2));
    if (!text) return rein_no_memory(err);
    text[length] = '\n';
    const rein_status status = rein_file_write(path, text, length + 1, err);
    free(text);
    return status;
}
