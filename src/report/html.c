/* html.c - the report: the data of the runs as one JSON object, inside a page that shows it.
 *
 * The page is a template (assets/page.html) with placeholders such as "@{page.css}". The data is in a script element that is not executed;
 * `<` is written as \u003c there, so no text can end the element. Besides, the Content-Security-Policy names the styles and scripts of the page
 * by their hashes, so a browser runs nothing else. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/text.h"
#include "html_assets.h"
#include "html_parts.h"
#include "rein/report.h"

/* ------------------------------------------------------------------------------------------------------------------- one run */

/* Whether the directory has a file or folder of a run. */
static rein_status look_for_run(int *found, const char *directory, rein_error *err) {
    static const char *const parts[] = {"config.yaml",  "history.jsonl", "evaluations.jsonl",
                                        "summary.json", "checkpoints",   "trajectories"};
    *found = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !*found; i++) {
        char *path = rein_path_join(directory, parts[i]);
        if (!path) return rein_no_memory(err);
        *found = rein_file_exists(path);
        free(path);
    }
    return REIN_OK;
}

static rein_status check_run(const char *directory, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    int found;
    if (access(directory, R_OK | X_OK) != 0) return rein_file_error(err, directory, "cannot be opened");
    if (!rein_file_is_directory(directory))
        return rein_fail(err, REIN_EINVAL, "%s is not a directory: the directory of a run is needed",
                         rein_path_show(shown, directory));
    const rein_status status = look_for_run(&found, directory, err);
    if (status || found) return status;
    return rein_fail(err, REIN_EINVAL, "%s is not a run: it has neither config.yaml nor history.jsonl, nor any other file of a run",
                     rein_path_show(shown, directory));
}

/* The last part of the path: "demo" for "runs/demo/". For "." it is the name of the working directory. */
static json_t *name_of(const char *directory) {
    char here[REIN_SHOWN_TEXT];
    if (!strcmp(directory, ".") && getcwd(here, sizeof here)) directory = here;
    size_t end = strlen(directory);
    while (end > 1 && directory[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && directory[begin - 1] != '/') begin--;
    if (begin == end) begin = 0;
    return rein_report_text(directory + begin, end - begin, REIN_SHOWN_TEXT);
}

static rein_status gather(json_t *runs, const char *directory, rein_error *err) {
    static rein_status (*const parts[])(rein_report_run *) = {rein_report_config,  rein_report_history, rein_report_summary,
                                                              rein_report_samples, rein_report_compare, rein_report_commands};
    rein_report_run run = {.directory = directory, .json = json_object(), .notes = json_array(), .err = err};
    rein_status status = check_run(directory, err);
    int failed = json_object_set_new(run.json, "notes", run.notes) | json_object_set_new(run.json, "name", name_of(directory));
    failed |= json_object_set_new(run.json, "path", rein_report_text(directory, strlen(directory), REIN_SHOWN_TEXT));
    if (!status && failed) status = rein_report_no_memory(&run);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !status; i++) status = parts[i](&run);
    if (!status && json_array_append(runs, run.json)) status = rein_report_no_memory(&run);
    json_decref(run.json);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------- the page */

/* A placeholder that fails is remembered in `status`; a lack of memory in the text. */
typedef struct page {
    rein_text text;
    const json_t *runs;
    char *data; /* the JSON */
    rein_status status;
    rein_error *err;
} page;

/* Puts text; each byte that is in `special` is replaced. */
static void put_escaped(rein_text *to, const char *text, const char *special, const char *const *replacements) {
    for (;;) {
        const size_t n = strcspn(text, special);
        rein_text_put_bytes(to, text, n);
        text += n;
        if (!*text) return;
        rein_text_put(to, replacements[strchr(special, *text++) - special]);
    }
}

/* "demo, other", for the title. */
static void put_title(page *p) {
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
    size_t i;
    json_t *run;
    json_array_foreach((json_t *)(uintptr_t)p->runs, i, run) {
        if (i) rein_text_put(&p->text, ", ");
        put_escaped(&p->text, json_string_value(json_object_get(run, "name")), "&<>\"", entities);
    }
}

static void put_template(page *p, const char *from, const char *to);

/* The hashes of all elements that start with `open`: " 'sha256-…' 'sha256-…'". A browser uses no other style and runs no other script. */
static void put_hashes(page *p, const char *open, const char *close) {
    char base64[REIN_SHA256_BASE64];
    const char *at = rein_asset_at(0).data, *end;
    while ((at = strstr(at, open)) && (end = strstr(at, close))) {
        page element = {.runs = p->runs, .data = p->data, .err = p->err};
        put_template(&element, at + strlen(open), end);
        p->text.failed |= element.text.failed;
        if (element.status) p->status = element.status;
        rein_text_format(&p->text, " 'sha256-%s'", rein_sha256_base64(base64, element.text.data, element.text.length));
        rein_text_free(&element.text);
        at = end;
    }
}

static int is_named(const char *name, size_t length, const char *wanted) {
    return strlen(wanted) == length && !memcmp(name, wanted, length);
}

static void put_asset(page *p, const char *name, size_t length) {
    rein_asset asset;
    for (size_t i = 0; (asset = rein_asset_at(i)).name; i++) {
        if (!is_named(name, length, asset.name)) continue;
        rein_text_put_bytes(&p->text, asset.data, asset.size);
        return;
    }
    p->status = rein_fail(p->err, REIN_EINVAL, "the page has the placeholder \"%.*s\": no such asset exists", (int)length, name);
}

static void put_named(page *p, const char *name, size_t length) {
    static const char *const escapes[] = {"\\u003c"};
    if (is_named(name, length, "data")) put_escaped(&p->text, p->data, "<", escapes);
    else if (is_named(name, length, "title")) put_title(p);
    else if (is_named(name, length, "style hashes")) put_hashes(p, "<style>", "</style>");
    else if (is_named(name, length, "script hashes")) put_hashes(p, "<script>", "</script>");
    else put_asset(p, name, length);
}

/* A part of the template, its placeholders replaced. */
static void put_template(page *p, const char *from, const char *to) {
    const char *open, *close;
    while ((open = strstr(from, "@{")) && open < to && (close = strchr(open, '}'))) {
        rein_text_put_bytes(&p->text, from, (size_t)(open - from));
        put_named(p, open + 2, (size_t)(close - open - 2));
        from = close + 1;
    }
    rein_text_put_bytes(&p->text, from, (size_t)(to - from));
}

static rein_status write_page(const char *path, const json_t *runs, rein_error *err) {
    const rein_asset page_template = rein_asset_at(0);
    json_t *all = json_object();
    const int failed =
        json_object_set_new(all, "version", json_string(rein_version())) | json_object_set(all, "runs", (json_t *)(uintptr_t)runs);
    page p = {.runs = runs, .err = err};
    if (!failed) p.data = rein_json_dump(NULL, all, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (p.data) put_template(&p, page_template.data, page_template.data + page_template.size);
    rein_status status = p.data ? p.status : rein_no_memory(err);
    if (!status) status = rein_text_status(&p.text, err);
    if (!status) status = rein_file_write(path, p.text.data, p.text.length, err);
    rein_text_free(&p.text);
    free(p.data);
    json_decref(all);
    return status;
}

rein_status rein_report_write(const char *path, const char *const *runs, size_t n, rein_error *err) {
    if (!path || !*path) return rein_fail_at(err, REIN_EINVAL, "path", -1, "is empty: the name of a file is needed");
    if (!n || n > REIN_REPORT_RUNS)
        return rein_fail_at(err, REIN_EINVAL, "n", -1, "is %zu: 1 to %d runs are needed", n, REIN_REPORT_RUNS);
    json_t *all = json_array();
    rein_status status = all ? REIN_OK : rein_no_memory(err);
    for (size_t i = 0; i < n && !status; i++) status = gather(all, runs[i], err);
    if (!status) status = write_page(path, all, err);
    json_decref(all);
    return status;
}
