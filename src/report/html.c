/* html.c - the report: the data of the runs as one JSON object, inside a page that shows it (html_page.c); and the same data for the live page
 * of a server, which first asks for all of it and then for what came after a step. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "html_page.h"
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

typedef rein_status part(rein_report_run *);

/* Adds the object of a run to `runs`: all of it, or what came after a step. */
static rein_status gather(json_t *runs, const char *directory, int64_t after, rein_error *err) {
    static part *const all[] = {rein_report_config,
                                rein_report_history,
                                rein_report_summary,
                                rein_report_samples,
                                rein_report_compare,
                                rein_report_commands,
                                NULL},
                       *const later[] = {rein_report_history, rein_report_summary, rein_report_samples, rein_report_compare, NULL};
    rein_report_run run = {.directory = directory, .after = after, .json = json_object(), .notes = json_array(), .err = err};
    rein_status status = REIN_OK;
    int failed = json_object_set_new(run.json, "notes", run.notes) | json_object_set_new(run.json, "name", name_of(directory));
    failed |= json_object_set_new(run.json, "path", rein_report_text(directory, strlen(directory), REIN_SHOWN_TEXT));
    if (failed) status = rein_report_no_memory(&run);
    for (part *const *at = after < 0 ? all : later; *at && !status; at++) status = (*at)(&run);
    if (!status && json_array_append(runs, run.json)) status = rein_report_no_memory(&run);
    json_decref(run.json);
    return status;
}

/* {"version", "runs"}; the caller frees it. NULL: no memory. */
static char *dump(json_t *runs) {
    json_t *all = json_object();
    const int failed = json_object_set_new(all, "version", json_string(rein_version())) | json_object_set(all, "runs", runs);
    char *data = failed ? NULL : rein_json_dump(NULL, all, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(all);
    return data;
}

/* ------------------------------------------------------------------------------------------------------------------- the page */

/* "demo, other". NULL: no memory. */
static char *title_of(const json_t *runs) {
    rein_text title = {0};
    for (size_t i = 0; i < json_array_size(runs); i++) {
        if (i) rein_text_put(&title, ", ");
        rein_text_put(&title, json_string_value(json_object_get(json_array_get(runs, i), "name")));
    }
    if (!title.failed) return title.data;
    rein_text_free(&title);
    return NULL;
}

static rein_status write_page(const char *path, json_t *runs, rein_error *err) {
    rein_text html = {0};
    char *data = dump(runs), *title = title_of(runs);
    rein_status status = data && title ? rein_page_put(&html, "report.html", title, data, err) : rein_no_memory(err);
    if (!status) status = rein_file_write(path, html.data, html.length, err);
    rein_text_free(&html);
    free(title);
    free(data);
    return status;
}

rein_status rein_report_write(const char *path, const char *const *runs, size_t n, rein_error *err) {
    if (!path || !*path) return rein_fail_at(err, REIN_EINVAL, "path", -1, "is empty: the name of a file is needed");
    if (!n || n > REIN_REPORT_RUNS)
        return rein_fail_at(err, REIN_EINVAL, "n", -1, "is %zu: 1 to %d runs are needed", n, REIN_REPORT_RUNS);
    json_t *all = json_array();
    rein_status status = all ? REIN_OK : rein_no_memory(err);
    for (size_t i = 0; i < n && !status; i++) {
        status = check_run(runs[i], err);
        if (!status) status = gather(all, runs[i], -1, err);
    }
    if (!status) status = write_page(path, all, err);
    json_decref(all);
    return status;
}

/* --------------------------------------------------------------------------------------------------------------- the live page */

rein_status rein_report_data(rein_text *json, const char *run, int64_t after, rein_error *err) {
    json_t *all = json_array();
    rein_status status = all ? check_run(run, err) : rein_no_memory(err);
    if (!status) status = gather(all, run, after, err);
    char *data = status ? NULL : dump(all);
    if (!status) status = data ? rein_text_append(json, data, strlen(data), err) : rein_no_memory(err);
    free(data);
    json_decref(all);
    return status;
}

rein_status rein_report_live_page(rein_text *html, rein_text *policy, int asks_for_key, rein_error *err) {
    char data[200];
    snprintf(data, sizeof data, "{\"version\":\"%s\",\"runs\":[],\"key\":%s}", rein_version(), asks_for_key ? "true" : "false");
    const rein_status status = rein_page_put(html, "live.html", "", data, err);
    return status ? status : rein_page_put_policy(policy, "live.html", err);
}
