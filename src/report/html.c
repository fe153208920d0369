/* html.c - the report: the data of the runs as one JSON object, inside a page that shows it.
 *
 * The page is a template (assets/page.html) with placeholders such as "@{page.css}". The data is in a script element that is not executed;
 * `<` is written as \u003c there, so no text can end the element. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
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
        if (!path) return rein_fail(err, REIN_ENOMEM, "out of memory");
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

typedef struct page {
    rein_writer writer;
    const json_t *runs;
    char *data; /* the JSON */
    rein_error *err;
} page;

/* Writes text; each byte that is in `special` is written as its replacement. */
static rein_status put_escaped(page *p, const char *text, const char *special, const char *const *replacements) {
    rein_status status = REIN_OK;
    while (*text && !status) {
        const size_t n = strcspn(text, special);
        status = rein_writer_put(&p->writer, text, n, p->err);
        text += n;
        if (*text && !status) {
            const char *replacement = replacements[strchr(special, *text) - special];
            status = rein_writer_put(&p->writer, replacement, strlen(replacement), p->err);
            text++;
        }
    }
    return status;
}

/* "demo, other", for the title. */
static rein_status put_title(page *p) {
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
    rein_status status = REIN_OK;
    size_t i;
    json_t *run;
    json_array_foreach((json_t *)(uintptr_t)p->runs, i, run) {
        if (i && !status) status = rein_writer_put(&p->writer, ", ", 2, p->err);
        if (!status) status = put_escaped(p, json_string_value(json_object_get(run, "name")), "&<>\"", entities);
    }
    return status;
}

static rein_status put_named(page *p, const char *name, size_t length) {
    static const char *const escapes[] = {"\\u003c"};
    rein_asset asset;
    if (length == 4 && !memcmp(name, "data", 4)) return put_escaped(p, p->data, "<", escapes);
    if (length == 5 && !memcmp(name, "title", 5)) return put_title(p);
    for (size_t i = 0; (asset = rein_asset_at(i)).name; i++)
        if (strlen(asset.name) == length && !memcmp(asset.name, name, length))
            return rein_writer_put(&p->writer, asset.data, asset.size, p->err);
    return rein_fail(p->err, REIN_EINVAL, "the page has the placeholder \"%.*s\": no such asset exists", (int)length, name);
}

static rein_status put_page(page *p) {
    const char *at = rein_asset_at(0).data, *open, *close;
    rein_status status = REIN_OK;
    while (!status && (open = strstr(at, "@{")) && (close = strchr(open, '}'))) {
        status = rein_writer_put(&p->writer, at, (size_t)(open - at), p->err);
        if (!status) status = put_named(p, open + 2, (size_t)(close - open - 2));
        at = close + 1;
    }
    return status ? status : rein_writer_put(&p->writer, at, strlen(at), p->err);
}

static rein_status write_page(const char *path, const json_t *runs, rein_error *err) {
    json_t *all = json_object();
    const int failed =
        json_object_set_new(all, "version", json_string(rein_version())) | json_object_set(all, "runs", (json_t *)(uintptr_t)runs);
    page p = {.runs = runs, .err = err};
    if (!failed) p.data = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(9));
    rein_status status = p.data ? rein_writer_open(&p.writer, path, err) : rein_fail(err, REIN_ENOMEM, "out of memory");
    if (!status) status = put_page(&p);
    if (!status) status = rein_writer_commit(&p.writer, err);
    rein_writer_abandon(&p.writer);
    free(p.data);
    json_decref(all);
    return status;
}

rein_status rein_report_write(const char *path, const char *const *runs, size_t n, rein_error *err) {
    if (!path || !*path) return rein_fail(err, REIN_EINVAL, "the name of the report is empty: a file name is needed");
    if (!n || n > REIN_REPORT_RUNS)
        return rein_fail(err, REIN_EINVAL, "there are %zu runs: 1 to %d are needed", n, REIN_REPORT_RUNS);
    json_t *all = json_array();
    rein_status status = all ? REIN_OK : rein_fail(err, REIN_ENOMEM, "out of memory");
    for (size_t i = 0; i < n && !status; i++) status = gather(all, runs[i], err);
    if (!status) status = write_page(path, all, err);
    json_decref(all);
    return status;
}
