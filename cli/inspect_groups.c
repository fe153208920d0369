/* inspect_groups.c - trajectory groups: how many of what, what should be said before anything trains, and the first of them with the tokens
 * that train marked: in colour on a terminal, between ⟦ and ⟧ elsewhere.
 *
 * A text of a model may hold anything: control characters are shown, not sent to the terminal. */
#include "inspect_groups.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "input.h"
#include "rein/train.h"
#include "terminal.h"
#include "values.h"
#include "wrap.h"

enum { COLUMN = 18, WIDTH = 80, BARS = 8, BAR = 40, SHOWN_TRAJECTORIES = 4, SHOWN_TOKENS = 400 };

static const char WHERE[] = "inspect";

static int ends_with(const char *path, const char *end) {
    const size_t n = strlen(path), m = strlen(end);
    return n >= m && strcmp(path + n - m, end) == 0;
}

int rein_is_groups(const char *path) {
    struct stat about;
    if (!strcmp(path, "-")) return 1;
    if (stat(path, &about) || !S_ISREG(about.st_mode)) return 0;
    if (ends_with(path, ".jsonl") || ends_with(path, ".parquet")) return 1;
    FILE *file = fopen(path, "rb");
    const int first = file ? getc(file) : EOF;
    if (file) fclose(file);
    return first == '{';
}

/* ---------------------------------------------------------------------------------------------------------------------- reading */

/* {0} is nothing. */
typedef struct opened {
    rein_tokenizer *tokenizer;
    rein_chat chat;
    int has_chat;
    rein_groups groups;
    rein_groups_summary summary;
} opened;

static void close_all(opened *o) {
    rein_groups_free(&o->groups);
    rein_tokenizer_close(o->tokenizer);
}

/* Where messages need a tokenizer, that is --model here. */
static int say_unreadable(const rein_error *err, const opened *o) {
    if (o->tokenizer || strcmp(err->field, "tokenizer") != 0) return rein_say_error(WHERE, err);
    return rein_say(REIN_WRONG, WHERE, "%s: give --model DIR", err->message);
}

static int read_groups(opened *o, const char *path) {
    const rein_chat *chat = o->has_chat ? &o->chat : NULL;
    rein_error err = {0};
    rein_text text = {0};
    rein_status status;
    if (strcmp(path, "-") != 0) status = rein_groups_read(&o->groups, path, o->tokenizer, chat, &err);
    else {
        const int read = rein_read_input(&text, NULL, "trajectory groups, one JSON object a line", WHERE);
        status = read ? REIN_OK
                      : rein_groups_from_memory(&o->groups, text.data ? text.data : "", text.length, "standard input", o->tokenizer,
                                                chat, &err);
        rein_text_free(&text);
        if (read) return read;
    }
    return status ? say_unreadable(&err, o) : REIN_DONE;
}

static int open_all(opened *o, const rein_args *args, const char *path) {
    const char *model = rein_option_value(args, "model"), *format = rein_option_value(args, "chat-format");
    rein_error err = {0};
    if (format && !model) return rein_say(REIN_WRONG, WHERE, "--chat-format needs a tokenizer: give --model DIR");
    if (model && rein_tokenizer_open(&o->tokenizer, model, &err)) return rein_say_error(WHERE, &err);
    if (format && rein_chat_named(&o->chat, format, &err)) return rein_say_error(WHERE, &err);
    o->has_chat = format != NULL;
    const int status = read_groups(o, path);
    if (!status) o->summary = rein_groups_summarise(&o->groups);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------------- JSON */

static void put_whole(rein_text *out, const char *name, size_t n) {
    rein_json_put_name(out, name);
    rein_text_format(out, "%zu", n);
}

static void put_step(rein_text *out, const char *name, int64_t step) {
    rein_json_put_name(out, name);
    if (step < 0) rein_text_put(out, "null");
    else rein_text_format(out, "%lld", (long long)step);
}

static void put_warnings_json(rein_text *out, const rein_groups_summary *s) {
    const unsigned warnings = rein_groups_warnings(s);
    char text[200];
    int first = 1;
    rein_json_put_name(out, "warnings");
    rein_text_put(out, "[");
    for (unsigned bit = 1; bit <= warnings; bit <<= 1) {
        if (!(warnings & bit)) continue;
        if (!first) rein_text_put(out, ", ");
        rein_json_put_string(out, rein_groups_warning_text(text, sizeof text, (rein_groups_warning)bit, s));
        first = 0;
    }
    rein_text_put(out, "]");
}

static void put_json(rein_text *out, const rein_groups_summary *s) {
    const struct {
        const char *name;
        size_t n;
    } counts[] = {{"groups", s->groups},
                  {"trajectories", s->trajectories},
                  {"histories", s->histories},
                  {"tokens", s->tokens},
                  {"trained_tokens", s->trained_tokens},
                  {"log_probs_missing", s->log_probs_missing},
                  {"truncated", s->truncated},
                  {"untrained", s->untrained},
                  {"all_trained", s->all_trained},
                  {"single_groups", s->single_groups},
                  {"equal_groups", s->equal_groups},
                  {"length_min", s->length_min},
                  {"length_max", s->length_max},
                  {"policy_step_unknown", s->policy_step_unknown}};
    rein_text_put(out, "{");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) put_whole(out, counts[i].name, counts[i].n);
    rein_json_put_field(out, "length_mean", s->length_mean);
    rein_json_put_field(out, "reward_mean", s->reward_mean);
    rein_json_put_field(out, "reward_std", s->reward_std);
    rein_json_put_field(out, "reward_min", s->reward_min);
    rein_json_put_field(out, "reward_max", s->reward_max);
    put_step(out, "policy_step_min", s->policy_step_min);
    put_step(out, "policy_step_max", s->policy_step_max);
    put_warnings_json(out, s);
    rein_text_put(out, "}\n");
}

/* ------------------------------------------------------------------------------------------------------------------------- text */

static void put_name(rein_text *out, const char *name) {
    rein_text_put(out, name);
    rein_text_repeat(out, " ", COLUMN - strlen(name));
}

static void put_share(rein_text *out, const char *name, size_t n, size_t of, const char *what) {
    put_name(out, name);
    rein_text_format(out, "%zu", n);
    if (of) rein_text_format(out, " (%.3g %%%s)", 100 * (double)n / (double)of, what);
    rein_text_put(out, "\n");
}

static void put_steps(rein_text *out, const rein_groups_summary *s) {
    put_name(out, "policy step");
    if (s->policy_step_min < 0) rein_text_put(out, "not known");
    else if (s->policy_step_min == s->policy_step_max) rein_text_format(out, "%lld", (long long)s->policy_step_min);
    else rein_text_format(out, "%lld to %lld", (long long)s->policy_step_min, (long long)s->policy_step_max);
    if (s->policy_step_min >= 0 && s->policy_step_unknown) rein_text_format(out, ", %zu not known", s->policy_step_unknown);
    rein_text_put(out, "\n");
}

static void put_counts(rein_text *out, const rein_groups_summary *s) {
    put_share(out, "groups", s->groups, 0, "");
    put_share(out, "trajectories", s->trajectories, 0, "");
    put_share(out, "histories", s->histories, 0, "");
    put_share(out, "tokens", s->tokens, 0, "");
    put_share(out, "trained tokens", s->trained_tokens, s->tokens, "");
    put_share(out, "truncated", s->truncated, s->trajectories, " of the trajectories");
    put_share(out, "equal rewards", s->equal_groups, s->groups, " of the groups");
    put_name(out, "reward");
    rein_text_format(out, "mean %.4g, deviation %.4g, from %.4g to %.4g\n", s->reward_mean, s->reward_std, s->reward_min,
                     s->reward_max);
    put_name(out, "trained length");
    rein_text_format(out, "mean %.4g, from %zu to %zu\n", s->length_mean, s->length_min, s->length_max);
    put_steps(out, s);
}

typedef struct histogram {
    double values[BARS + 1]; /* ascending; the first BARS are where the bars begin */
    size_t counts[BARS], bars;
} histogram;

static void add_value(histogram *h, double x) {
    size_t b = h->bars;
    for (size_t i = 0; i < h->bars; i++)
        if (h->values[i] == x) return;
    if (h->bars > BARS) return;
    for (; b && h->values[b - 1] > x; b--) h->values[b] = h->values[b - 1];
    h->values[b] = x;
    h->bars++;
}

static void count_value(histogram *h, double x) {
    size_t b = h->bars - 1;
    while (b && x < h->values[b]) b--;
    h->counts[b]++;
}

static void each_value(histogram *h, const rein_groups *groups, int of_lengths, void (*take)(histogram *, double)) {
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++) {
            const rein_trajectory *trajectory = &groups->groups[g].trajectories[t];
            take(h, of_lengths ? (double)rein_trajectory_length(trajectory) : trajectory->reward);
        }
}

/* A bar for each value, or for equal parts between the least and the greatest. */
static void put_histogram(rein_text *out, const char *name, const rein_groups *groups, double low, double high, int of_lengths) {
    histogram h = {0};
    size_t most = 1;
    each_value(&h, groups, of_lengths, add_value);
    const int parts = h.bars > BARS;
    if (parts) h.bars = BARS;
    for (size_t b = 0; parts && b < BARS; b++) h.values[b] = low + (high - low) / BARS * (double)b;
    each_value(&h, groups, of_lengths, count_value);
    for (size_t b = 0; b < h.bars; b++) most = h.counts[b] > most ? h.counts[b] : most;
    rein_text_format(out, "\n%s%s\n", name, parts ? ", from" : "");
    for (size_t b = 0; b < h.bars; b++) {
        const size_t bar = (h.counts[b] * BAR + most - 1) / most;
        rein_text_format(out, "%10.4g  ", h.values[b]);
        rein_text_repeat(out, "█", bar);
        rein_text_format(out, "%s%zu\n", bar ? " " : "", h.counts[b]);
    }
}

static void put_warnings(rein_text *out, const rein_groups_summary *s) {
    const unsigned warnings = rein_groups_warnings(s);
    char text[200];
    if (warnings) rein_text_put(out, "\n");
    for (unsigned bit = 1; bit <= warnings; bit <<= 1) {
        if (!(warnings & bit)) continue;
        rein_text_put(out, "warning: ");
        rein_wrap(out, 9, WIDTH, rein_groups_warning_text(text, sizeof text, (rein_groups_warning)bit, s));
    }
}

/* -------------------------------------------------------------------------------------------------------------- marked tokens */

typedef struct page {
    rein_text *out;
    size_t column;
    int colours, trained; /* trained: what is written now */
} page;

static void mark(page *p, int trained) {
    if (p->trained == trained) return;
    if (p->colours) rein_text_put(p->out, trained ? "\033[32m" : "\033[0m");
    else rein_text_put(p->out, trained ? "⟦" : "⟧"), p->column++;
    p->trained = trained;
}

static void new_line(page *p) {
    rein_text_put(p->out, "\n  ");
    p->column = 2;
}

/* One character, of one column. */
static void put_character(page *p, const char *bytes, size_t n) {
    const unsigned char c = (unsigned char)*bytes;
    if (p->column + 2 > WIDTH) new_line(p);
    if (n == 1 && (c < 32 || c == 127)) rein_text_put(p->out, c == '\n' ? "↵" : c == '\t' ? "⇥" : "·");
    else if (n == 2 && c == 0xC2 && (unsigned char)bytes[1] < 0xA0) rein_text_put(p->out, "·");
    else rein_text_put_bytes(p->out, bytes, n);
    p->column++;
    if (c == '\n') new_line(p);
}

static void put_text(page *p, const char *text, size_t length) {
    for (size_t i = 0, n; i < length; i += n) {
        for (n = 1; i + n < length && ((unsigned char)text[i + n] & 0xC0) == 0x80; n++) {
        }
        put_character(p, text + i, n);
    }
}

static void put_ids(page *p, const int32_t *ids, size_t n, int trained) {
    for (size_t k = 0; k < n; k++) {
        char id[16];
        snprintf(id, sizeof id, "%ld", (long)ids[k]);
        if (!trained) mark(p, 0);
        if (p->column + strlen(id) + 2 > WIDTH) new_line(p);
        else if (p->column > 2) put_text(p, " ", 1);
        mark(p, trained);
        put_text(p, id, strlen(id));
    }
}

/* Tokens that all train, or do not. */
static int put_run(page *p, const rein_tokenizer *tokenizer, const int32_t *ids, size_t n, int trained) {
    rein_text text = {0};
    rein_error err = {0};
    if (!tokenizer) return put_ids(p, ids, n, trained), REIN_DONE;
    if (rein_tokenizer_decode(&text, tokenizer, ids, n, 0, &err)) return rein_say_error(WHERE, &err);
    mark(p, trained);
    put_text(p, text.data, text.length);
    rein_text_free(&text);
    return REIN_DONE;
}

/* Of a long prompt, the end. */
static int put_history(rein_text *out, const rein_history *h, const rein_tokenizer *tokenizer) {
    page p = {.out = out, .column = 2, .colours = rein_has_colours(STDOUT_FILENO)};
    size_t first = 0;
    while (first < h->n && !h->mask[first]) first++;
    size_t k = first < h->n && first > SHOWN_TOKENS / 2 ? first - SHOWN_TOKENS / 2 : 0;
    const size_t stop = h->n - k > SHOWN_TOKENS ? k + SHOWN_TOKENS : h->n;
    int status = REIN_DONE;
    rein_text_put(out, "  ");
    if (k) put_text(&p, "…", strlen("…"));
    while (k < stop && !status) {
        size_t end = k;
        while (end < stop && h->mask[end] == h->mask[k]) end++;
        status = put_run(&p, tokenizer, h->ids + k, end - k, h->mask[k]);
        k = end;
    }
    mark(&p, 0);
    if (stop < h->n) rein_text_format(out, " … %zu more", h->n - stop);
    rein_text_put(out, "\n");
    return status;
}

static int put_trajectory(rein_text *out, const opened *o, size_t g, size_t t) {
    const rein_trajectory *trajectory = &o->groups.groups[g].trajectories[t];
    int status = REIN_DONE;
    const size_t trained = rein_trajectory_length(trajectory);
    rein_text_format(out, "\ngroup %zu, trajectory %zu: reward %.6g, %zu %s%s\n", g + 1, t + 1, trajectory->reward, trained,
                     trained == 1 ? "token trains" : "tokens train", trajectory->truncated ? ", truncated" : "");
    for (size_t i = 0; i < trajectory->n_histories && !status; i++) {
        if (trajectory->n_histories > 1) rein_text_format(out, "  history %zu of %zu\n", i + 1, trajectory->n_histories);
        status = put_history(out, &trajectory->histories[i], o->tokenizer);
    }
    return status;
}

static int put_trajectories(rein_text *out, const opened *o) {
    size_t shown = 0;
    int status = REIN_DONE;
    rein_text_format(out, "\nWhat trains is %s.\n", rein_has_colours(STDOUT_FILENO) ? "green" : "between ⟦ and ⟧");
    for (size_t g = 0; g < o->groups.n; g++)
        for (size_t t = 0; t < o->groups.groups[g].n && shown < SHOWN_TRAJECTORIES && !status; t++, shown++)
            status = put_trajectory(out, o, g, t);
    if (o->summary.trajectories > shown) rein_text_format(out, "\n… and %zu trajectories more\n", o->summary.trajectories - shown);
    return status;
}

int rein_inspect_groups(const rein_args *args, const char *path) {
    opened o = {0};
    rein_text out = {0};
    int status = open_all(&o, args, path);
    if (!status && rein_option_value(args, "json")) put_json(&out, &o.summary);
    else if (!status) {
        const rein_groups_summary *s = &o.summary;
        put_counts(&out, s);
        put_warnings(&out, s);
        put_histogram(&out, "rewards", &o.groups, s->reward_min, s->reward_max, 0);
        put_histogram(&out, "trained lengths", &o.groups, (double)s->length_min, (double)s->length_max, 1);
        status = put_trajectories(&out, &o);
    }
    close_all(&o);
    if (!status) return rein_print(&out);
    rein_text_free(&out);
    return status;
}
