/* html_fixture.h - a run that a test writes, its report, and the data in the report. */
#ifndef REIN_TESTS_HTML_FIXTURE_H
#define REIN_TESTS_HTML_FIXTURE_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "rein/report.h"
#include "support/folder.h"

static char run[300], page_path[300];

static int make_run(void **state) {
    if (make_folder(state)) return -1;
    snprintf(run, sizeof run, "%s/run", folder);
    snprintf(page_path, sizeof page_path, "%s/page.html", folder);
    return mkdir(run, 0777);
}

/* Writes a text to RUN/NAME; makes the directories above it. */
static void put(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(const char *name, const char *format, ...) {
    char path[600], directory[600];
    va_list arguments;
    snprintf(path, sizeof path, "%s/%s", run, name);
    snprintf(directory, sizeof directory, "%s", path);
    *strrchr(directory, '/') = 0;
    assert_int_equal(rein_make_directories(directory, NULL), REIN_OK);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    va_start(arguments, format);
    assert_true(vfprintf(file, format, arguments) >= 0);
    va_end(arguments);
    assert_int_equal(fclose(file), 0);
}

static __attribute__((noinline)) char *read_page(void) {
    char *text;
    size_t size;
    assert_int_equal(rein_file_read(&text, &size, page_path), 0);
    assert_int_equal(strlen(text), size);
    return text;
}

/* The JSON of a page, as a browser reads it: up to the next end of a script. */
static json_t *data_of(const char *page) {
    static const char begin[] = "<script type=\"application/json\" id=\"data\">";
    const char *from = strstr(page, begin), *to = from ? strstr(from, "</script") : NULL;
    json_error_t e;
    assert_non_null(to);
    from += sizeof begin - 1;
    assert_null(memchr(from, '<', (size_t)(to - from)));
    json_t *data = json_loadb(from, (size_t)(to - from), JSON_REJECT_DUPLICATES, &e);
    if (!data) fail_msg("%s", e.text);
    return data;
}

/* The report of RUN: its object in the data, to be released. */
static json_t *report(void) {
    rein_error err = {0};
    if (rein_report_write(page_path, (const char *const[]){run}, 1, &err)) fail_msg("%s", err.message);
    char *page = read_page();
    json_t *data = data_of(page), *runs = json_object_get(data, "runs"), *one = json_incref(json_array_get(runs, 0));
    assert_string_equal(json_string_value(json_object_get(data, "version")), rein_version());
    assert_int_equal(json_array_size(runs), 1);
    json_decref(data);
    free(page);
    return one;
}

/* The value at a path: "metrics.reward.values.0". A name with a dot cannot be asked for. */
static const json_t *at(const json_t *value, const char *path) {
    char part[100];
    for (size_t n; *path; path += n + (path[n] == '.')) {
        n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        value = json_is_array(value) ? json_array_get(value, strtoul(part, NULL, 10)) : json_object_get(value, part);
    }
    return value;
}

static double number_at(const json_t *value, const char *path) {
    const json_t *x = at(value, path);
    if (!json_is_number(x)) fail_msg("%s is no number", path);
    return json_number_value(x);
}

static const char *text_at(const json_t *value, const char *path) {
    const char *text = json_string_value(at(value, path));
    if (!text) fail_msg("%s is no text", path);
    return text;
}

static size_t size_at(const json_t *value, const char *path) { return json_array_size(at(value, path)); }

static __attribute__((unused)) const char *command(const json_t *one, const char *title) {
    size_t i;
    json_t *both;
    json_array_foreach(json_object_get(one, "commands"), i,
                       both) if (!strncmp(text_at(both, "0"), title, strlen(title))) return text_at(both, "1");
    return "";
}

static __attribute__((unused)) int noted(const json_t *one, const char *part) {
    size_t i;
    json_t *note;
    json_array_foreach(json_object_get(one, "notes"), i, note) if (strstr(json_string_value(note), part)) return 1;
    return 0;
}

#endif
