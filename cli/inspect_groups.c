/* inspect_groups.c - describes trajectory groups: counts, warnings, histograms, and the first trajectories with the tokens that train
 * marked: in colour on a terminal, between ⟦ and ⟧ elsewhere.
 *
 * A model may write any text, so control characters are shown as symbols and never sent to the terminal. */
#include "inspect_groups.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "input.h"
#include "rein/train.h"
#include "sheet.h"
#include "terminal.h"
#include "wrap.h"

enum { WIDTH = 80, BARS = 8, BAR = 40, SHOWN_TRAJECTORIES = 4, SHOWN_TOKENS = 400 };

static const char WHERE[] = "inspect";

static int ends_with(const char *path, const char *end) {
    const size_t n = strlen(path), m = strlen(end);
    return n >= m && strcmp(path + n - m, end) == 0;
}

int cli_is_groups(const char *path) {
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

typedef struct opened {
    rein_tokenizer *tokenizer;
    rein_groups groups;
    rein_groups_summary summary;
} opened;

/* The option of this command that gives a missing tokenizer is --model. */
static int say_unreadable(const rein_error *err, const opened *o) {
    if (o->tokenizer || strcmp(err->field, "tokenizer") != 0) return cli_say_error(WHERE, err);
    return cli_say(CLI_WRONG, WHERE, "%s: give --model DIR", err->message);
}

static int read_groups(opened *o, const char *path, const rein_chat *chat) {
    rein_error err = {0};
    rein_text text = {0};
    int status = CLI_DONE;
    if (strcmp(path, "-") != 0) rein_groups_read(&o->groups, path, o->tokenizer, chat, &err);
    else if (!(status = cli_read_input(&text, NULL, "trajectory groups, one JSON object a line", WHERE)))
        rein_groups_from_memory(&o->groups, text.data ? text.data : "", text.length, "standard input", o->tokenizer, chat, &err);
    rein_text_free(&text);
    return err.code ? say_unreadable(&err, o) : status;
}

static int open_groups(opened *o, const cli_args *args, const char *path) {
    const char *model = cli_option_value(args, "model"), *format = cli_option_value(args, "chat-format");
    rein_error err = {0};
    rein_chat chat;
    if (format && !model) return cli_say(CLI_WRONG, WHERE, "--chat-format needs a tokenizer: give --model DIR");
    if (model && rein_tokenizer_open(&o->tokenizer, model, &err)) return cli_say_error(WHERE, &err);
    if (format && rein_chat_named(&chat, format, &err)) return cli_say_option_error(WHERE, "chat-format", &err);
    const int status = read_groups(o, path, format ? &chat : NULL);
    if (!status) o->summary = rein_groups_summarise(&o->groups);
    return status;
}

/* --------------------------------------------------------------------------------------------------------------------- summary */

/* A JSON array of warnings, or paragraphs of text. */
static void put_warnings(cli_sheet *r, const rein_groups_summary *s) {
    const unsigned warnings = rein_groups_warnings(s);
    char text[200];
    int n = 0;
    if (r->json) cli_sheet_name(r, "warnings"), rein_text_put(&r->out, "[");
    else if (warnings) rein_text_put(&r->out, "\n");
    for (unsigned bit = 1; bit <= warnings; bit <<= 1) {
        if (!(warnings & bit)) continue;
        rein_groups_warning_text(text, sizeof text, (rein_groups_warning)bit, s);
        rein_text_put(&r->out, !r->json ? "warning: " : n++ ? ", " : "");
        if (r->json) rein_json_put_string(&r->out, text);
        else cli_wrap(&r->out, strlen("warning: "), WIDTH, text);
    }
    if (r->json) rein_text_put(&r->out, "]");
}

static void put_json(cli_sheet *r, const rein_groups_summary *s) {
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
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) cli_sheet_count(r, counts[i].name, (int64_t)counts[i].n);
    rein_json_put_field(&r->out, "length_mean", s->length_mean);
    rein_json_put_field(&r->out, "reward_mean", s->reward_mean);
    rein_json_put_field(&r->out, "reward_std", s->reward_std);
    rein_json_put_field(&r->out, "reward_min", s->reward_min);
    rein_json_put_field(&r->out, "reward_max", s->reward_max);
    cli_sheet_count_or_none(r, "policy_step_min", s->policy_step_min);
    cli_sheet_count_or_none(r, "policy_step_max", s->policy_step_max);
    put_warnings(r, s);
}

/* "5 (35.7 % of the groups)" */
static void put_share(cli_sheet *r, const char *name, size_t n, size_t of, const char *what) {
    cli_sheet_name(r, name);
    rein_text_format(&r->out, "%zu", n);
    if (of) rein_text_format(&r->out, " (%.3g %%%s)", 100 * (double)n / (double)of, what);
    cli_sheet_end(r);
}

static void put_counts(cli_sheet *r, const rein_groups_summary *s) {
    const long long first = s->policy_step_min, last = s->policy_step_max;
    cli_sheet_count(r, "groups", (int64_t)s->groups);
    cli_sheet_count(r, "trajectories", (int64_t)s->trajectories);
    cli_sheet_count(r, "histories", (int64_t)s->histories);
    cli_sheet_count(r, "tokens", (int64_t)s->tokens);
    put_share(r, "trained_tokens", s->trained_tokens, s->tokens, "");
    put_share(r, "truncated", s->truncated, s->trajectories, " of the trajectories");
    put_share(r, "equal_rewards", s->equal_groups, s->groups, " of the groups");
    cli_sheet_name(r, "reward");
    rein_text_format(&r->out, "mean %.4g, deviation %.4g, from %.4g to %.4g\n", s->reward_mean, s->reward_std, s->reward_min,
                     s->reward_max);
    cli_sheet_name(r, "trained_length");
    rein_text_format(&r->out, "mean %.4g, from %zu to %zu\n", s->length_mean, s->length_min, s->length_max);
    cli_sheet_name(r, "policy_step");
    if (first < 0) rein_text_put(&r->out, "not known");
    else if (first == last) rein_text_format(&r->out, "%lld", first);
    else rein_text_format(&r->out, "%lld to %lld", first, last);
    if (first >= 0 && s->policy_step_unknown) rein_text_format(&r->out, ", %zu not known", s->policy_step_unknown);
    cli_sheet_end(r);
}

typedef struct histogram {
    double values[BARS + 1]; /* ascending; bar b begins at values[b] */
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

/* A bar for each value; for many values, bars for equal parts of the range from low to high. */
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

/* -------------------------------------------------------------------------------------------------------------- marked tokens */

typedef struct page {
    rein_text *out;
    size_t column;
    int colours, trained; /* trained: the current text trains */
} page;

static void mark(page *p, int trained) {
    if (p->trained == trained) return;
    if (p->colours) rein_text_put(p->out, trained ? CLI_GREEN : CLI_PLAIN);
    else rein_text_put(p->out, trained ? "⟦" : "⟧"), p->column++;
    p->trained = trained;
}

static void new_line(page *p) {
    rein_text_put(p->out, "\n  ");
    p->column = 2;
}

/* One character, one column wide. */
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

/* Tokens that all train, or all do not. */
static int put_run(page *p, const rein_tokenizer *tokenizer, const int32_t *ids, size_t n, int trained) {
    rein_text text = {0};
    rein_error err = {0};
    if (!tokenizer) return put_ids(p, ids, n, trained), CLI_DONE;
    if (rein_tokenizer_decode(&text, tokenizer, ids, n, 0, &err)) return cli_say_error(WHERE, &err);
    mark(p, trained);
    put_text(p, text.data, text.length);
    rein_text_free(&text);
    return CLI_DONE;
}

/* A long prompt is cut: only its end is shown. */
static int put_history(rein_text *out, const rein_history *h, const rein_tokenizer *tokenizer) {
    page p = {.out = out, .column = 2, .colours = cli_has_colours(STDOUT_FILENO)};
    size_t first = 0;
    while (first < h->n && !h->mask[first]) first++;
    size_t k = first < h->n && first > SHOWN_TOKENS / 2 ? first - SHOWN_TOKENS / 2 : 0;
    const size_t stop = h->n - k > SHOWN_TOKENS ? k + SHOWN_TOKENS : h->n;
    int status = CLI_DONE;
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
    int status = CLI_DONE;
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
    int status = CLI_DONE;
    rein_text_format(out, "\nWhat trains is %s.\n", cli_has_colours(STDOUT_FILENO) ? "green" : "between ⟦ and ⟧");
    for (size_t g = 0; g < o->groups.n; g++)
        for (size_t t = 0; t < o->groups.groups[g].n && shown < SHOWN_TRAJECTORIES && !status; t++, shown++)
            status = put_trajectory(out, o, g, t);
    if (o->summary.trajectories > shown) rein_text_format(out, "\n… and %zu trajectories more\n", o->summary.trajectories - shown);
    return status;
}

int cli_inspect_groups(const cli_args *args, const char *path) {
    opened o = {0};
    cli_sheet r = {.json = cli_option_value(args, "json") != NULL, .coloured = cli_has_colours(STDOUT_FILENO)};
    const rein_groups_summary *s = &o.summary;
    int status = open_groups(&o, args, path);
    if (!status && r.json) put_json(&r, s);
    else if (!status) {
        put_counts(&r, s);
        put_warnings(&r, s);
        put_histogram(&r.out, "rewards", &o.groups, s->reward_min, s->reward_max, 0);
        put_histogram(&r.out, "trained lengths", &o.groups, (double)s->length_min, (double)s->length_max, 1);
        status = put_trajectories(&r.out, &o);
    }
    rein_groups_free(&o.groups);
    rein_tokenizer_close(o.tokenizer);
    return cli_sheet_finish(&r, status);
}
