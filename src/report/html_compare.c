/* html_compare.c - the same held-out prompts before and after training: the first evaluation and the last.
 *
 * All prompts are counted by kind (wrong before and right after, and so on). Some of each kind are shown, in the order of the file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "html_parts.h"

enum { MOST_GROUPS = 1024, KINDS = 5 };

typedef struct side {
    rein_report_run *run;
    json_t *groups, *lengths;
} side;

static rein_status keep_group(void *context, const json_t *group, int *enough) {
    side *s = context;
    if (!json_is_object(json_array_get(json_object_get(group, "trajectories"), 0))) return REIN_OK;
    int failed = rein_report_count_lengths(s->lengths, group);
    if (json_array_size(s->groups) < MOST_GROUPS) failed |= json_array_append(s->groups, (json_t *)(uintptr_t)group);
    *enough = json_array_size(s->groups) == MOST_GROUPS && json_array_size(s->lengths) >= REIN_COUNTED_RESPONSES;
    return failed ? rein_report_no_memory(s->run) : REIN_OK;
}

static rein_status read_side(side *s, rein_report_run *run, int64_t step, const char *which) {
    char name[64];
    *s = (side){run, json_array(), json_array()};
    snprintf(name, sizeof name, "trajectories/eval/%04lld.jsonl", (long long)step);
    rein_status status = s->groups && s->lengths ? REIN_OK : rein_report_no_memory(run);
    if (!status) status = rein_report_lines(run, name, REIN_READ_BYTES, keep_group, s);
    if (!status && json_array_size(s->lengths) && rein_report_lengths(run, which, step, s->lengths))
        status = rein_report_no_memory(run);
    return status;
}

static void release(side *s) {
    json_decref(s->groups);
    json_decref(s->lengths);
}

/* ------------------------------------------------------------------------------------------------------------------------ pairs */

static const json_t *first_of(const json_t *group) { return json_array_get(json_object_get(group, "trajectories"), 0); }

static int same_prompt(const json_t *a, const json_t *b) {
    const json_t *x = json_object_get(first_of(a), "prompt_ids"), *y = json_object_get(first_of(b), "prompt_ids");
    return x && y && json_equal(x, y);
}

/* The group in `groups` with the same prompt as `wanted`: usually the one at the same place. */
static const json_t *partner(const json_t *groups, const json_t *wanted, size_t place) {
    const json_t *there = json_array_get(groups, place);
    if (there && same_prompt(there, wanted)) return there;
    for (size_t i = 0; i < json_array_size(groups); i++)
        if (same_prompt(json_array_get(groups, i), wanted)) return json_array_get(groups, i);
    return NULL;
}

static double accuracy(const json_t *trajectory) { return rein_report_number(json_object_get(trajectory, "metrics"), "accuracy"); }

/* 0: wrong, then right; 1: right twice; 2: right, then wrong; 3: wrong twice; 4: unknown. */
static size_t kind_of(const json_t *before, const json_t *after) {
    const double x = accuracy(first_of(before)), y = accuracy(first_of(after));
    if (isnan(x) || isnan(y)) return 4;
    return x < 0.5 ? (y < 0.5 ? 3 : 0) : (y < 0.5 ? 2 : 1);
}

typedef struct pair {
    const json_t *before, *after;
    size_t kind;
    int shown;
} pair;

/* Takes one prompt of each kind in turn until enough are chosen. */
static void choose(pair *pairs, size_t n) {
    size_t next[KINDS] = {0}, shown = 0, done = 0;
    for (size_t kind = 0; shown < REIN_SHOWN_PROMPTS && done < KINDS; kind = (kind + 1) % KINDS) {
        while (next[kind] < n && pairs[next[kind]].kind != kind) next[kind]++;
        if (next[kind] < n) pairs[next[kind]++].shown = 1, shown++, done = 0;
        else done++;
    }
}

/* --------------------------------------------------------------------------------------------------------------------- writing */

/* The first response and, if there are several, how many are right. */
static json_t *shown_side(const json_t *group) {
    const json_t *trajectories = json_object_get(group, "trajectories");
    const size_t n = json_array_size(trajectories);
    json_t *to = rein_report_response(first_of(group), 0);
    size_t right = 0;
    for (size_t i = 0; i < n; i++) right += accuracy(json_array_get(trajectories, i)) >= 0.5;
    if (!to || n < 2) return to;
    const int failed = json_object_set_new(to, "right", json_integer((json_int_t)right)) |
                       json_object_set_new(to, "of", json_integer((json_int_t)n));
    if (failed) json_decref(to);
    return failed ? NULL : to;
}

static int put_pair(json_t *prompts, const pair *p) {
    json_t *to = json_object();
    int failed = rein_report_prompt(to, p->after);
    failed |= json_object_set_new(to, "before", shown_side(p->before));
    failed |= json_object_set_new(to, "after", shown_side(p->after));
    return json_array_append_new(prompts, to) | failed;
}

static int put_pairs(json_t *compare, const pair *pairs, size_t n) {
    static const char *const names[KINDS] = {"wrong_right", "right_right", "right_wrong", "wrong_wrong", "unknown"};
    json_int_t counts[KINDS] = {0};
    json_t *prompts = json_array();
    int failed = json_object_set_new(compare, "prompts", prompts);
    for (size_t i = 0; i < n && !failed; i++) {
        counts[pairs[i].kind]++;
        if (pairs[i].shown) failed |= put_pair(prompts, &pairs[i]);
    }
    for (size_t i = 0; i < KINDS; i++) failed |= json_object_set_new(compare, names[i], json_integer(counts[i]));
    return failed | json_object_set_new(compare, "of", json_integer((json_int_t)n));
}

static rein_status put_comparison(rein_report_run *run, const side *before, const side *after, int64_t first, int64_t last) {
    const size_t most = json_array_size(before->groups);
    pair *pairs = calloc(most + 1, sizeof *pairs);
    json_t *compare = json_object();
    size_t n = 0;
    int failed = !pairs || json_object_set_new(compare, "before_step", json_integer(first)) ||
                 json_object_set_new(compare, "after_step", json_integer(last));
    for (size_t i = 0; i < most && !failed; i++) {
        const json_t *was = json_array_get(before->groups, i), *is = partner(after->groups, was, i);
        if (is) pairs[n++] = (pair){.before = was, .after = is, .kind = kind_of(was, is)};
    }
    if (!failed && n) {
        choose(pairs, n);
        failed = put_pairs(compare, pairs, n) || json_object_set(run->json, "compare", compare);
    }
    json_decref(compare);
    free(pairs);
    return failed ? rein_report_no_memory(run) : REIN_OK;
}

rein_status rein_report_compare(rein_report_run *run) {
    side before = {0}, after = {0};
    int64_t *steps;
    size_t n;
    rein_status status = rein_report_steps(&steps, &n, run, "trajectories/eval", ".jsonl");
    if (!status && n > 1) json_object_del(run->json, "lengths"); /* those on held-out prompts replace those on training prompts */
    if (!status && n > 1 && (run->after < 0 || steps[n - 1] > run->after)) {
        status = read_side(&before, run, steps[0], "first");
        if (!status) status = read_side(&after, run, steps[n - 1], "last");
        if (!status) status = put_comparison(run, &before, &after, steps[0], steps[n - 1]);
        if (!status && json_object_get(run->json, "lengths") &&
            json_object_set_new(json_object_get(run->json, "lengths"), "held_out", json_true()))
            status = rein_report_no_memory(run);
    }
    release(&before);
    release(&after);
    free(steps);
    return status;
}
