/* html_samples.c - completions from training: from a few steps, spread over the run, two groups with some of their responses; and the lengths
 * of the responses in the first and the last step.
 *
 * A group whose responses all have the same advantage teaches nothing, so the first groups whose advantages differ are shown, if there are
 * any. A large group is represented by its best, its worst and some responses between them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "html_parts.h"

/* ---------------------------------------------------------------------------------------------------------------- one response */

/* Four digits are enough for a colour and keep the page small. */
static json_t *short_number(double x) {
    char text[40];
    snprintf(text, sizeof text, "%.4g", x);
    return json_real(strtod(text, NULL));
}

static size_t shown_of(const json_t *array) {
    const size_t n = json_array_size(array);
    return n < REIN_SHOWN_TOKENS ? n : REIN_SHOWN_TOKENS;
}

static int put_number(json_t *to, const char *name, const json_t *from) {
    const double x = json_is_number(from) ? json_number_value(from) : NAN;
    return isfinite(x) ? json_object_set_new(to, name, json_real(x)) : 0;
}

/* One number if all tokens have the same advantage, as with most objectives; otherwise one per token. */
static int put_advantages(json_t *to, const json_t *all) {
    const size_t n = json_array_size(all);
    const json_t *first = json_array_get(all, 0);
    size_t i = 0;
    while (i < n && json_is_number(json_array_get(all, i)) && json_number_value(json_array_get(all, i)) == json_number_value(first))
        i++;
    if (n == 0) return 0;
    if (i == n) return json_object_set_new(to, "advantages", short_number(json_number_value(first)));
    json_t *some = json_array();
    int failed = json_object_set_new(to, "advantages", some);
    for (i = 0; i < shown_of(all); i++) {
        const json_t *x = json_array_get(all, i);
        failed |= json_array_append_new(some, json_is_number(x) ? short_number(json_number_value(x)) : json_null());
    }
    return failed;
}

/* The mask, [0, 1, …]; left out if all tokens train. */
static int put_mask(json_t *to, const json_t *mask) {
    const size_t n = json_array_size(mask);
    size_t i = 0;
    while (i < n && (json_is_true(json_array_get(mask, i)) || json_integer_value(json_array_get(mask, i)))) i++;
    if (i == n) return 0;
    json_t *some = json_array();
    int failed = json_object_set_new(to, "mask", some);
    for (i = 0; i < shown_of(mask); i++) {
        const json_t *x = json_array_get(mask, i);
        failed |= json_array_append_new(some, json_integer(json_is_true(x) || json_integer_value(x)));
    }
    return failed;
}

static json_t *text_of(const json_t *string, size_t most) {
    return rein_report_text(json_string_value(string), json_string_length(string), most);
}

/* The texts of the tokens, or their ids if there are no texts. */
static int put_tokens(json_t *to, const json_t *ids, const json_t *pieces) {
    const int has_texts = json_array_size(pieces) == json_array_size(ids);
    json_t *some = json_array();
    int failed = json_object_set_new(to, has_texts ? "pieces" : "ids", some);
    for (size_t i = 0; i < shown_of(ids); i++) {
        json_t *piece = json_array_get(has_texts ? pieces : ids, i);
        if (!has_texts) failed |= json_array_append_new(some, json_is_integer(piece) ? json_incref(piece) : json_null());
        else failed |= json_array_append_new(some, json_is_string(piece) ? text_of(piece, REIN_SHOWN_TEXT) : json_string(""));
    }
    return failed;
}

/* The texts of the tokens, joined; left out without tokens. */
static int put_text(json_t *to, const json_t *pieces) {
    char text[REIN_SHOWN_TEXT + 1];
    size_t n = 0, i;
    json_t *piece;
    json_array_foreach((json_t *)(uintptr_t)pieces, i, piece) {
        const size_t length = json_string_length(piece), room = sizeof text - n;
        memcpy(text + n, json_string_length(piece) ? json_string_value(piece) : "", length < room ? length : room);
        n += length < room ? length : room;
    }
    return json_array_size(pieces) ? json_object_set_new(to, "text", rein_report_text(text, n, REIN_SHOWN_TEXT)) : 0;
}

json_t *rein_report_response(const json_t *trajectory, int with_tokens) {
    const json_t *ids = json_object_get(trajectory, "response_ids");
    const json_t *pieces = json_object_get(json_object_get(trajectory, "metadata"), "pieces");
    json_t *to = json_object();
    int failed = json_object_set_new(to, "tokens", json_integer((json_int_t)json_array_size(ids)));
    failed |= put_number(to, "reward", json_object_get(trajectory, "reward"));
    failed |= put_number(to, "accuracy", json_object_get(json_object_get(trajectory, "metrics"), "accuracy"));
    if (json_is_true(json_object_get(trajectory, "truncated"))) failed |= json_object_set_new(to, "truncated", json_true());
    if (with_tokens) {
        failed |= put_tokens(to, ids, pieces);
        failed |= put_advantages(to, json_object_get(trajectory, "advantages"));
        failed |= put_mask(to, json_object_get(trajectory, "mask"));
        failed |= rein_report_turns(to, trajectory);
    } else {
        failed |= put_text(to, pieces);
    }
    if (failed) json_decref(to);
    return failed ? NULL : to;
}

/* A conversation as text: "user: …", a blank line, "assistant: …". */
static json_t *text_of_messages(const json_t *messages) {
    char text[REIN_SHOWN_TEXT + 1];
    size_t n = 0, i;
    json_t *message;
    json_array_foreach((json_t *)(uintptr_t)messages, i, message) {
        const char *role = json_string_value(json_object_get(message, "role"));
        const char *content = json_string_value(json_object_get(message, "content"));
        const size_t room = sizeof text - n;
        const int length = snprintf(text + n, room, "%s%s: %s", i ? "\n\n" : "", role ? role : "", content ? content : "");
        n += length < 0 ? 0 : (size_t)length < room ? (size_t)length : room - 1;
    }
    return rein_report_text(text, n, REIN_SHOWN_TEXT - 1);
}

int rein_report_prompt(json_t *to, const json_t *group) {
    const json_t *first = json_array_get(json_object_get(group, "trajectories"), 0), *metadata = json_object_get(first, "metadata");
    const json_t *prompt = json_object_get(metadata, "prompt"), *answer = json_object_get(metadata, "answer");
    json_t *messages = rein_report_asked(first);
    const size_t tokens = json_array_size(json_object_get(first, "prompt_ids"));
    int failed = json_object_set_new(to, "prompt_tokens", json_integer((json_int_t)tokens)) | (messages == NULL);
    if (json_is_string(prompt)) failed |= json_object_set_new(to, "prompt", text_of(prompt, REIN_SHOWN_TEXT));
    else if (json_array_size(messages)) failed |= json_object_set_new(to, "prompt", text_of_messages(messages));
    if (json_is_string(answer)) failed |= json_object_set_new(to, "answer", text_of(answer, REIN_SHOWN_TEXT));
    json_decref(messages);
    return failed;
}

int rein_report_count_lengths(json_t *lengths, const json_t *group) {
    int failed = 0;
    size_t i;
    json_t *trajectory;
    json_array_foreach(json_object_get(group, "trajectories"), i, trajectory) {
        const json_t *ids = json_object_get(trajectory, "response_ids");
        if (!json_is_array(ids) || json_array_size(lengths) >= REIN_COUNTED_RESPONSES) continue;
        failed |= json_array_append_new(lengths, json_integer((json_int_t)json_array_size(ids)));
    }
    return failed;
}

int rein_report_lengths(rein_report_run *run, const char *name, int64_t step, json_t *lengths) {
    json_t *all = json_object_get(run->json, "lengths"), *to = json_object();
    int failed = 0;
    if (!all) failed = json_object_set_new(run->json, "lengths", all = json_object());
    failed |= json_object_set_new(to, "step", json_integer(step)) | json_object_set(to, "values", lengths);
    return json_object_set_new(failed ? NULL : all, name, to) | failed;
}

/* ------------------------------------------------------------------------------------------------------------------- one group */

typedef struct ranked {
    double worth;
    size_t index;
} ranked;

/* The mean advantage of a response, which includes budgets and other shaping; its reward if it has no advantages. */
static double worth_of(const json_t *trajectory) {
    const json_t *advantages = json_object_get(trajectory, "advantages");
    const size_t n = json_array_size(advantages);
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += json_number_value(json_array_get(advantages, i));
    return n ? sum / (double)n : rein_report_number(trajectory, "reward");
}

static int best_first(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->worth != y->worth) return x->worth < y->worth ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

static int responses_differ(const json_t *trajectories) {
    const double first = worth_of(json_array_get(trajectories, 0));
    size_t i;
    json_t *trajectory;
    json_array_foreach((json_t *)(uintptr_t)trajectories, i,
                       trajectory) if (worth_of(trajectory) != first && !isnan(first)) return 1;
    return 0;
}

/* The responses from the best to the worst. */
static int put_responses(json_t *to, const json_t *trajectories) {
    const size_t n = json_array_size(trajectories), shown = n < REIN_SHOWN_RESPONSES ? n : REIN_SHOWN_RESPONSES;
    json_t *responses = json_array();
    int failed = json_object_set_new(to, "responses", responses);
    ranked *order = malloc((n + 1) * sizeof *order);
    if (!order) return -1;
    for (size_t i = 0; i < n; i++) {
        const double worth = worth_of(json_array_get(trajectories, i));
        order[i] = (ranked){isnan(worth) ? -INFINITY : worth, i};
    }
    qsort(order, n, sizeof *order, best_first);
    for (size_t i = 0; i < shown; i++) {
        const size_t at = shown > 1 ? i * (n - 1) / (shown - 1) : 0;
        failed |= json_array_append_new(responses, rein_report_response(json_array_get(trajectories, order[at].index), 1));
    }
    free(order);
    return failed;
}

static json_t *shown_group(const json_t *group) {
    const json_t *trajectories = json_object_get(group, "trajectories");
    json_t *to = json_object();
    int failed = json_object_set_new(to, "of", json_integer((json_int_t)json_array_size(trajectories)));
    failed |= rein_report_prompt(to, group) | put_responses(to, trajectories);
    if (failed) json_decref(to);
    return failed ? NULL : to;
}

/* -------------------------------------------------------------------------------------------------------------------- one step */

enum { MOST_SCANNED = 64 }; /* groups that are searched for some whose responses differ */

typedef struct step_scan {
    rein_report_run *run;
    json_t *groups;  /* whose responses differ */
    json_t *others;  /* other groups, used if these are too few */
    json_t *lengths; /* NULL: not wanted */
    size_t seen;
} step_scan;

static rein_status take_group(void *context, const json_t *group, int *enough) {
    step_scan *s = context;
    const json_t *trajectories = json_object_get(group, "trajectories");
    if (!json_is_object(json_array_get(trajectories, 0))) return REIN_OK;
    json_t *to = responses_differ(trajectories) ? s->groups : s->others;
    int failed = json_array_size(to) < REIN_SHOWN_GROUPS ? json_array_append_new(to, shown_group(group)) : 0;
    if (s->lengths) failed |= rein_report_count_lengths(s->lengths, group);
    s->seen++;
    *enough = (json_array_size(s->groups) == REIN_SHOWN_GROUPS || s->seen >= MOST_SCANNED) &&
              (!s->lengths || json_array_size(s->lengths) >= REIN_COUNTED_RESPONSES);
    return failed ? rein_report_no_memory(s->run) : REIN_OK;
}

static int put_step(json_t *samples, const step_scan *s, int64_t step) {
    json_t *to = json_object();
    int failed = json_object_set_new(to, "step", json_integer(step)) | json_object_set(to, "groups", s->groups);
    for (size_t i = 0; i < json_array_size(s->others) && json_array_size(s->groups) < REIN_SHOWN_GROUPS && !failed; i++)
        failed |= json_array_append(s->groups, json_array_get(s->others, i));
    if (json_array_size(s->groups) == 0) return json_decref(to), failed;
    return json_array_append_new(samples, to) | failed;
}

static rein_status scan_step(rein_report_run *run, json_t *samples, int64_t step, const char *lengths) {
    step_scan s = {.run = run, .groups = json_array(), .others = json_array(), .lengths = lengths ? json_array() : NULL};
    char name[64];
    snprintf(name, sizeof name, "trajectories/train/%04lld.jsonl", (long long)step);
    rein_status status = s.groups && s.others && (s.lengths || !lengths) ? REIN_OK : rein_report_no_memory(run);
    if (!status) status = rein_report_lines(run, name, REIN_READ_BYTES, take_group, &s);
    if (!status && put_step(samples, &s, step)) status = rein_report_no_memory(run);
    if (!status && json_array_size(s.lengths) && rein_report_lengths(run, lengths, step, s.lengths))
        status = rein_report_no_memory(run);
    json_decref(s.groups);
    json_decref(s.others);
    json_decref(s.lengths);
    return status;
}

rein_status rein_report_samples(rein_report_run *run) {
    json_t *samples = json_array();
    int64_t *steps;
    size_t n;
    if (json_object_set_new(run->json, "samples", samples)) return rein_report_no_memory(run);
    rein_status status = rein_report_steps(&steps, &n, run, "trajectories/train", ".jsonl");
    const size_t shown = n < REIN_SHOWN_STEPS ? n : REIN_SHOWN_STEPS;
    for (size_t i = 0; i < shown && run->after < 0 && !status; i++) {
        const size_t at = shown > 1 ? (i * (n - 1) + (shown - 1) / 2) / (shown - 1) : 0;
        status = scan_step(run, samples, steps[at], i == 0 ? "first" : i == shown - 1 ? "last" : NULL);
    }
    if (!status && n && run->after >= 0 && steps[n - 1] > run->after)
        status = scan_step(run, samples, steps[n - 1], n > 1 ? "last" : "first");
    free(steps);
    return status;
}
