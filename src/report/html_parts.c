/* html_parts.c - functions that the parts of a report share: notes, text that may not be UTF-8, files of JSON lines, numbered files. */
#include "html_parts.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "model/unicode.h"

rein_status rein_report_no_memory(const rein_report_run *run) { return rein_no_memory(run->err); }

char *rein_report_path(const rein_report_run *run, const char *name) { return rein_path_join(run->directory, name); }

double rein_report_number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* ----------------------------------------------------------------------------------------------------------------------- texts */

/* Copies UTF-8; invalid bytes become U+FFFD. Returns the end. `to` has room for 3·length bytes. */
static char *copy_repaired(char *to, const char *text, size_t length) {
    for (size_t i = 0, n; i < length; i += n) {
        uint32_t character;
        size_t wrong;
        bool cut;
        n = rein_utf8_read(&character, &wrong, &cut, text + i, length - i);
        if (n) memcpy(to, text + i, n), to += n;
        else n = wrong, memcpy(to, "\xef\xbf\xbd", 3), to += 3;
    }
    return to;
}

json_t *rein_report_text(const char *text, size_t length, size_t most) {
    static const char ellipsis[] = "…";
    const int cut = length > most;
    if (cut) length = most;
    while (cut && length && ((unsigned char)text[length] & 0xC0) == 0x80) length--;
    char *copy = malloc(3 * length + sizeof ellipsis), *end = copy;
    if (!copy) return NULL;
    end = copy_repaired(copy, text, length);
    if (cut) memcpy(end, ellipsis, sizeof ellipsis - 1), end += sizeof ellipsis - 1;
    json_t *string = json_stringn(copy, (size_t)(end - copy));
    free(copy);
    return string;
}

/* ----------------------------------------------------------------------------------------------------------------------- notes */

static int count_note(rein_report_run *run) {
    const json_int_t more = json_integer_value(json_object_get(run->json, "more_notes"));
    return json_object_set_new(run->json, "more_notes", json_integer(more + 1));
}

rein_status rein_report_note(rein_report_run *run, const char *format, ...) {
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const int failed = json_array_size(run->notes) < REIN_SHOWN_NOTES
                           ? json_array_append_new(run->notes, rein_report_text(text, strlen(text), sizeof text))
                           : count_note(run);
    return failed ? rein_report_no_memory(run) : REIN_OK;
}

rein_status rein_report_noted(rein_report_run *run, rein_status status, const rein_error *why) {
    if (!status) return REIN_OK;
    return status == REIN_ENOMEM ? rein_report_no_memory(run) : rein_report_note(run, "%s", why->message);
}

/* ----------------------------------------------------------------------------------------------------------------------- lines */

typedef struct lines {
    rein_report_run *run;
    const char *name;
    rein_lines *file;
    size_t number;
    int repaired; /* a note about bytes that are not UTF-8 was written */
} lines;

/* The line as an object, or NULL after a note. A last line without a newline is still being written and gives no note. */
static rein_status parse_line(json_t **object, lines *l, const char *text, size_t length, int ended) {
    char where[REIN_PATH_SHOWN + 40];
    rein_error why = {0};
    snprintf(where, sizeof where, "%.*s: line %zu", REIN_PATH_SHOWN, l->name, l->number);
    const rein_status status = rein_json_parse(object, text, length, where, REIN_JSON_NEEDS_OBJECT | REIN_JSON_ONE_LINE, &why);
    return status == REIN_EINVAL && !ended ? REIN_OK : rein_report_noted(l->run, status, &why);
}

static rein_status parse_repaired(json_t **object, lines *l, const char *text, size_t length, int ended) {
    char *copy = malloc(3 * length + 1);
    if (!copy) return rein_report_no_memory(l->run);
    const size_t n = (size_t)(copy_repaired(copy, text, length) - copy);
    rein_status status = REIN_OK;
    if (!l->repaired++)
        status = rein_report_note(l->run, "%s: line %zu has bytes that are not UTF-8: they are shown as \xef\xbf\xbd", l->name,
                                  l->number);
    if (!status) status = parse_line(object, l, copy, n, ended);
    free(copy);
    return status;
}

static rein_status take_line(lines *l, const char *text, size_t length, rein_report_take take, void *context, int *enough) {
    const int ended = text[length] == '\n';
    json_t *object = NULL;
    if (rein_all_blank(text, length)) return REIN_OK;
    rein_status status = rein_utf8_valid(text, length) == length ? parse_line(&object, l, text, length, ended)
                                                                 : parse_repaired(&object, l, text, length, ended);
    if (object) status = take(context, object, enough);
    json_decref(object);
    return status;
}

static rein_status each_line(lines *l, size_t most, rein_report_take take, void *context) {
    const char *text;
    size_t length, bytes = 0;
    rein_error why = {0};
    rein_status status = REIN_OK, end = REIN_OK;
    for (int enough = 0; !status && !enough && !(end = rein_lines_next(&text, &length, l->file, &why)); bytes += length + 1) {
        l->number++;
        if (bytes > most) return rein_report_note(l->run, "%s: only the first %zu MB were read", l->name, most >> 20);
        status = take_line(l, text, length, take, context, &enough);
    }
    if (status || !end || end == REIN_END) return status;
    if (end == REIN_ENOMEM) return rein_report_no_memory(l->run);
    if (end == REIN_EINVAL)
        return rein_report_note(l->run, "%s: line %zu is longer than %d MB: the rest is left out", l->name, l->number + 1,
                                REIN_READ_BYTES >> 20);
    return rein_report_note(l->run, "%s cannot be read to its end", l->name);
}

static rein_status read_from(rein_report_run *run, const char *name, int64_t from, size_t most, rein_report_take take,
                             void *context) {
    char *path = rein_report_path(run, name);
    lines l = {.run = run, .name = name};
    rein_error why = {0};
    if (!path) return rein_report_no_memory(run);
    rein_status status = rein_lines_open(&l.file, path, from, REIN_READ_BYTES, &why);
    free(path);
    if (!status) status = each_line(&l, most, take, context);
    else if (status == REIN_ENOMEM) status = rein_report_no_memory(run);
    else if (why.system == ENOENT || why.system == ENOTDIR) status = REIN_OK;
    else status = rein_report_note(run, why.system ? "%s cannot be opened" : "%s is not a regular file", name);
    rein_lines_close(l.file);
    return status;
}

rein_status rein_report_lines(rein_report_run *run, const char *name, size_t most, rein_report_take take, void *context) {
    return read_from(run, name, 0, most, take, context);
}

/* Where the first line begins behind byte `at` of a file, and its step; -1: there is none. A line without a step has step -1. */
static int64_t line_behind(int64_t *step, const char *path, int64_t at) {
    rein_lines *file;
    const char *text;
    size_t length;
    json_t *line = NULL;
    *step = -1;
    if (rein_lines_open(&file, path, at - 1, REIN_READ_BYTES, NULL)) return -1;
    rein_status status = rein_lines_next(&text, &length, file, NULL); /* the end of the line before */
    if (!status) at += (int64_t)length, status = rein_lines_next(&text, &length, file, NULL);
    if (!status && !rein_json_parse(&line, text, length, NULL, REIN_JSON_NEEDS_OBJECT | REIN_JSON_ONE_LINE, NULL)) {
        const json_t *value = json_object_get(line, "step");
        if (json_is_integer(value)) *step = json_integer_value(value);
    }
    json_decref(line);
    rein_lines_close(file);
    return status ? -1 : at;
}

/* A place in the file before all lines that are newer than run->after: looked for from the end, in steps that grow. */
static int64_t place_of_new(const rein_report_run *run, const char *path) {
    struct stat about;
    if (run->after < 0 || stat(path, &about) != 0) return 0;
    for (int64_t back = 32 << 10; back < about.st_size; back *= 4) {
        int64_t step;
        const int64_t at = line_behind(&step, path, about.st_size - back);
        if (at > 0 && step >= 0 && step <= run->after) return at;
    }
    return 0;
}

rein_status rein_report_new_lines(rein_report_run *run, const char *name, rein_report_take take, void *context) {
    char *path = rein_report_path(run, name);
    if (!path) return rein_report_no_memory(run);
    const int64_t from = place_of_new(run, path);
    free(path);
    return read_from(run, name, from, SIZE_MAX, take, context);
}

/* -------------------------------------------------------------------------------------------------------------- numbered files */

/* The number in "0007.jsonl", or -1 if it is written in another way. */
static int64_t step_of(const char *name, const char *suffix) {
    const size_t digits = strspn(name, "0123456789");
    char again[64];
    if (digits == 0 || digits > 18) return -1;
    const int64_t step = strtoll(name, NULL, 10);
    snprintf(again, sizeof again, "%04lld%s", (long long)step, suffix);
    return strcmp(again, name) == 0 ? step : -1;
}

static int in_order(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

rein_status rein_report_steps(int64_t **steps, size_t *n, rein_report_run *run, const char *folder, const char *suffix) {
    char *path = rein_report_path(run, folder);
    rein_names names = {0};
    rein_error why = {0};
    rein_status status = path ? REIN_OK : rein_report_no_memory(run);
    *steps = NULL;
    *n = 0;
    if (!status && rein_file_is_directory(path)) status = rein_report_noted(run, rein_directory_list(&names, path, &why), &why);
    if (!status && names.n) *steps = malloc(names.n * sizeof **steps);
    if (!status && names.n && !*steps) status = rein_report_no_memory(run);
    for (size_t i = 0; !status && i < names.n; i++) {
        const int64_t step = step_of(names.at[i], suffix);
        if (step >= 0) (*steps)[(*n)++] = step;
    }
    if (*n) qsort(*steps, *n, sizeof **steps, in_order);
    rein_names_free(&names);
    free(path);
    return status;
}
