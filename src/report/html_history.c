/* html_history.c - history.jsonl and evaluations.jsonl as columns, one for each metric.
 *
 * A long column is thinned: it is cut into a thousand intervals, and the minimum and maximum of each are kept, so that no peak is lost. The
 * first and the last point are kept too. If a step occurs again, the run was resumed there: the new line replaces that step and all later
 * ones. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "html_parts.h"

enum { MOST_SUMMARY = 100000 }; /* bytes */

typedef struct point {
    int64_t step;
    double value; /* NaN: null, a number that is not finite */
} point;

typedef struct column {
    char *name;
    point *points;
    size_t n, capacity;
} column;

typedef struct columns {
    rein_report_run *run;
    column at[REIN_SHOWN_METRICS];
    size_t n;
    int64_t last; /* step; -1: none yet */
    int full;     /* a metric was left out */
} columns;

static void release(columns *c) {
    for (size_t i = 0; c && i < c->n; i++) free(c->at[i].name), free(c->at[i].points);
    free(c);
}

/* --------------------------------------------------------------------------------------------------------------------- reading */

static column *column_named(columns *c, const char *name, rein_status *status) {
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->at[i].name, name) == 0) return &c->at[i];
    if (c->n == REIN_SHOWN_METRICS || strlen(name) > 200) return c->full = 1, NULL;
    char *copy = malloc(strlen(name) + 1);
    if (!copy) return *status = rein_report_no_memory(c->run), NULL;
    c->at[c->n] = (column){.name = strcpy(copy, name)};
    return &c->at[c->n++];
}

static rein_status append(columns *c, column *to, int64_t step, double value) {
    if (to->n == to->capacity) {
        const size_t capacity = to->capacity ? 2 * to->capacity : 64;
        point *points = realloc(to->points, capacity * sizeof *points);
        if (!points) return rein_report_no_memory(c->run);
        to->points = points;
        to->capacity = capacity;
    }
    to->points[to->n++] = (point){step, value};
    return REIN_OK;
}

/* Removes the points from this step on. */
static void remove_from(columns *c, int64_t step) {
    for (size_t i = 0; i < c->n; i++)
        while (c->at[i].n && c->at[i].points[c->at[i].n - 1].step >= step) c->at[i].n--;
}

static rein_status take(void *context, const json_t *line, int *enough) {
    columns *c = context;
    const json_t *step = json_object_get(line, "step");
    rein_status status = REIN_OK;
    const char *name;
    json_t *value;
    (void)enough;
    if (!json_is_integer(step) || json_integer_value(step) < 0 || json_integer_value(step) > INT64_C(1) << 53)
        return rein_report_note(c->run, "the curves leave out a line without a step");
    if (json_integer_value(step) <= c->last) remove_from(c, json_integer_value(step));
    c->last = json_integer_value(step);
    json_object_foreach((json_t *)(uintptr_t)line, name, value) {
        column *to = !status && strcmp(name, "step") != 0 && (json_is_number(value) || json_is_null(value))
                         ? column_named(c, name, &status)
                         : NULL;
        if (to) status = append(c, to, c->last, json_is_null(value) ? NAN : json_number_value(value));
    }
    return status;
}

static rein_status read_columns(columns **c, rein_report_run *run, const char *name) {
    *c = calloc(1, sizeof **c);
    if (!*c) return rein_report_no_memory(run);
    (*c)->run = run;
    (*c)->last = -1;
    const rein_status status = rein_report_new_lines(run, name, take, *c);
    if (status || !(*c)->full) return status;
    return rein_report_note(run, "%s has more than %d metrics: only the first are shown", name, REIN_SHOWN_METRICS);
}

/* --------------------------------------------------------------------------------------------------------------------- writing */

static int put_point(json_t *steps, json_t *values, point p) {
    return json_array_append_new(steps, json_integer(p.step)) |
           json_array_append_new(values, isnan(p.value) ? json_null() : json_real(p.value));
}

/* The minimum and the maximum of points[n], in order of their steps. */
static int put_extremes(json_t *steps, json_t *values, const point *points, size_t n) {
    const point *least = NULL, *greatest = NULL;
    for (size_t i = 0; i < n; i++) {
        if (isnan(points[i].value)) continue;
        if (!least || points[i].value < least->value) least = &points[i];
        if (!greatest || points[i].value > greatest->value) greatest = &points[i];
    }
    if (!least) return 0;
    const point *first = least < greatest ? least : greatest, *second = least < greatest ? greatest : least;
    return put_point(steps, values, *first) | (first != second ? put_point(steps, values, *second) : 0);
}

static int put_thinned(json_t *steps, json_t *values, const column *c) {
    const size_t intervals = REIN_SHOWN_POINTS / 2 - 1, inner = c->n - 2;
    int failed = put_point(steps, values, c->points[0]);
    for (size_t i = 0; i < intervals; i++) {
        const size_t from = i * inner / intervals, to = (i + 1) * inner / intervals;
        failed |= put_extremes(steps, values, c->points + 1 + from, to - from);
    }
    return failed | put_point(steps, values, c->points[c->n - 1]);
}

/* The points that are newer than a step. */
static column newer(const column *c, int64_t after) {
    column some = *c;
    while (some.n && some.points->step <= after) some.points++, some.n--;
    return some;
}

static int put_column(json_t *metrics, const column *c) {
    json_t *both = json_object(), *steps = json_array(), *values = json_array();
    int failed = json_object_set_new(both, "steps", steps) | json_object_set_new(both, "values", values);
    if (!failed && c->n > REIN_SHOWN_POINTS)
        failed = put_thinned(steps, values, c) | json_object_set_new(both, "of", json_integer((json_int_t)c->n));
    else
        for (size_t i = 0; !failed && i < c->n; i++) failed = put_point(steps, values, c->points[i]);
    return json_object_set_new(metrics, c->name, both) | failed;
}

static int has_number(const column *c) {
    for (size_t i = 0; i < c->n; i++)
        if (!isnan(c->points[i].value)) return 1;
    return 0;
}

/* Those that are wanted. Replaces a metric of the same name. */
static int put_columns(json_t *metrics, const columns *c) {
    int failed = 0;
    for (size_t i = 0; i < c->n; i++) {
        const column some = newer(&c->at[i], c->run->after);
        if (has_number(&some)) failed |= put_column(metrics, &some);
    }
    return failed;
}

static double sum_of(const columns *c, const char *name) {
    double sum = 0;
    for (size_t i = 0; i < c->n; i++)
        for (size_t p = 0; p < c->at[i].n && strcmp(c->at[i].name, name) == 0; p++)
            if (!isnan(c->at[i].points[p].value)) sum += c->at[i].points[p].value;
    return sum;
}

rein_status rein_report_history(rein_report_run *run) {
    columns *history = NULL, *evaluations = NULL;
    json_t *metrics = json_object();
    int failed = json_object_set_new(run->json, "metrics", metrics);
    rein_status status = failed ? rein_report_no_memory(run) : read_columns(&history, run, "history.jsonl");
    if (!status) status = read_columns(&evaluations, run, "evaluations.jsonl");
    if (!status) {
        const double seconds = sum_of(history, "step_time");
        failed |= put_columns(metrics, history) | put_columns(metrics, evaluations);
        if (history->last >= 0) failed |= json_object_set_new(run->json, "steps", json_integer(history->last));
        if (run->after < 0 && seconds > 0 && isfinite(seconds))
            failed |= json_object_set_new(run->json, "seconds", json_real(seconds));
    }
    release(history);
    release(evaluations);
    return !status && failed ? rein_report_no_memory(run) : status;
}

/* --------------------------------------------------------------------------------------------------------------------- summary */

rein_status rein_report_summary(rein_report_run *run) {
    char *path = rein_report_path(run, "summary.json"), *text = NULL;
    size_t size = 0;
    json_t *summary = NULL;
    rein_error why = {0};
    rein_status status = path ? REIN_OK : rein_report_no_memory(run);
    if (!status && rein_file_exists(path)) {
        if (rein_file_read_most(&text, &size, path, MOST_SUMMARY) != 0)
            status = errno == EFBIG ? rein_fail(&why, REIN_EINVAL, "summary.json is too large to show")
                                    : rein_file_error(&why, "summary.json", "cannot be read");
        else status = rein_json_parse(&summary, text, size, "summary.json", REIN_JSON_NEEDS_OBJECT, &why);
        status = rein_report_noted(run, status, &why);
    }
    if (summary && json_object_set_new(run->json, "summary", summary)) status = rein_report_no_memory(run);
    free(text);
    free(path);
    return status;
}
