/* view.c - the live view of a run. */
#include "view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "progress.h"
#include "terminal.h"

/* ----------------------------------------------------------------------------------------------------------------------- steps */

cli_view_step cli_view_step_none(int64_t step) {
    return (cli_view_step){step, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
}

void cli_view_step_set(cli_view_step *s, const char *name, double value) {
    const struct {
        const char *name;
        double *to;
    } all[] = {{"reward", &s->reward},
               {"accuracy", &s->accuracy},
               {"completions/mean_length", &s->length},
               {"budget/share_over", &s->over},
               {"kl/ref_k1", &s->kl},
               {"entropy", &s->entropy},
               {"on_policy/max_gap", &s->gap},
               {"step_time", &s->seconds},
               {"eval/accuracy", &s->eval_accuracy},
               {"eval/accuracy_low", &s->eval_low},
               {"eval/accuracy_high", &s->eval_high},
               {"eval/mean_length", &s->eval_length},
               {"eval/share_over_budget", &s->eval_over}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) *all[i].to = value;
}

/* -------------------------------------------------------------------------------------------------------------------- drawing */

/* values [n] as a curve of at most `columns` cells: ▁▂▃▄▅▆▇█; the last value is always in the last cell. */
static void put_curve_cells(rein_text *out, const double *values, size_t n, size_t columns) {
    static const char *const levels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double low = INFINITY, high = -INFINITY;
    const size_t cells = n < columns ? n : columns;
    for (size_t i = 0; i < n; i++) {
        if (values[i] < low) low = values[i];
        if (values[i] > high) high = values[i];
    }
    for (size_t c = 0; c < cells; c++) {
        const size_t from = c * n / cells, to = (c + 1) * n / cells;
        double sum = 0, count = 0;
        for (size_t i = from; i < to; i++)
            if (!isnan(values[i])) sum += values[i], count++;
        const double share = high > low ? (sum / count - low) / (high - low) : 0;
        if (count > 0) rein_text_put(out, levels[(int)fmin(7, floor(share * 8))]);
        else rein_text_put(out, " ");
    }
}

static const cli_view_step *last_of(const cli_view *v) { return v->n ? &v->steps[v->n - 1] : NULL; }

static void put_bar(rein_text *out, const cli_view *v) {
    enum { CELLS = 24 };
    const int64_t done = last_of(v) ? last_of(v)->step : v->first;
    const size_t filled = v->total > 0 ? (size_t)(done * CELLS / v->total) : 0;
    rein_text_put(out, v->colour ? "\033[36m" : "");
    rein_text_repeat(out, "█", filled < CELLS ? filled : CELLS);
    rein_text_put(out, v->colour ? "\033[2m" : "");
    rein_text_repeat(out, "░", filled < CELLS ? CELLS - filled : 0);
    rein_text_put(out, v->colour ? "\033[0m" : "");
    rein_text_format(out, " %lld/%lld", (long long)done, (long long)v->total);
    if (done > v->first && v->began > 0) {
        const double per_step = (v->last - v->began) / (double)(done - v->first);
        char left[CLI_CLOCK_SIZE];
        rein_text_format(out, "  %.2g s/step  %s left", per_step, cli_clock_text(left, per_step * (double)(v->total - done)));
    }
    if (*v->phase) rein_text_format(out, "  %s", v->phase);
}

/* "  accuracy   0.71  ▁▂▃▄▅▆▇  held out 0.68". Returns the number of lines: 0 if no step has the figure. */
static int put_curve(rein_text *out, const cli_view *v, const char *name, const char *format, size_t field, const char *after) {
    enum { COLUMNS = 32 };
    double *values = malloc((v->n + 1) * sizeof *values), newest = NAN;
    for (size_t i = 0; values && i < v->n; i++) {
        values[i] = *(const double *)((const char *)&v->steps[i] + field);
        if (!isnan(values[i])) newest = values[i];
    }
    if (isnan(newest)) return free(values), 0;
    char number[40];
    snprintf(number, sizeof number, format, newest);
    rein_text_format(out, "  %s%-9s%s %7s  %s", v->colour ? "\033[2m" : "", name, v->colour ? "\033[0m" : "", number,
                     v->colour ? "\033[36m" : "");
    put_curve_cells(out, values, v->n, COLUMNS);
    rein_text_format(out, "%s", v->colour ? "\033[0m" : "");
    rein_text_repeat(out, " ", v->n < COLUMNS ? COLUMNS - v->n : 0);
    if (*after) rein_text_format(out, "  %s", after);
    rein_text_put(out, "\033[K\n");
    free(values);
    return 1;
}

/* The texts after the curves. */
static void notes(char accuracy[100], char length[100], const cli_view *v) {
    const cli_view_step *e = &v->evaluation;
    accuracy[0] = length[0] = 0;
    if (!isnan(e->eval_accuracy) && !isnan(v->base_accuracy) && e->step)
        snprintf(accuracy, 100, "held out %.3f, was %.3f", e->eval_accuracy, v->base_accuracy);
    else if (!isnan(e->eval_accuracy)) snprintf(accuracy, 100, "held out %.3f", e->eval_accuracy);
    const cli_view_step *s = last_of(v);
    if (!isnan(v->budget) && s && !isnan(s->over)) snprintf(length, 100, "budget %g, %.0f %% over", v->budget, 100 * s->over);
}

static void draw(cli_view *v) {
    rein_text out = {0};
    char accuracy[100], length[100];
    if (v->drawn) rein_text_format(&out, "\033[%dA\r", v->drawn);
    notes(accuracy, length, v);
    put_bar(&out, v);
    rein_text_put(&out, "\033[K\n");
    int lines = 1;
    lines += put_curve(&out, v, "accuracy", "%.3f", offsetof(cli_view_step, accuracy), accuracy);
    lines += put_curve(&out, v, "reward", "%.3f", offsetof(cli_view_step, reward), "");
    lines += put_curve(&out, v, "length", "%.1f", offsetof(cli_view_step, length), length);
    lines += put_curve(&out, v, "kl", "%.4f", offsetof(cli_view_step, kl), "nats a token");
    lines += put_curve(&out, v, "entropy", "%.4f", offsetof(cli_view_step, entropy), "");
    const cli_view_step *s = last_of(v);
    if (s && !isnan(s->gap)) {
        rein_text_format(&out, "  %sgap%s       %7.3g  between what the sampler saw and the trainer computes\033[K\n",
                         v->colour ? "\033[2m" : "", v->colour ? "\033[0m" : "", s->gap);
        lines++;
    }
    if (!out.failed) fputs(out.data, stderr);
    fflush(stderr);
    rein_text_free(&out);
    v->drawn = lines;
}

void cli_view_clear(cli_view *v) {
    if (v->drawn) fprintf(stderr, "\033[%dA\r\033[J", v->drawn);
    fflush(stderr);
    v->drawn = 0;
}

/* --------------------------------------------------------------------------------------------------------------------- events */

void cli_view_open(cli_view *v, const char *title, int64_t first, int64_t total, double budget) {
    *v = (cli_view){.first = first, .total = total, .budget = budget, .every = 1, .base_accuracy = NAN};
    v->evaluation = cli_view_step_none(-1);
    v->terminal = cli_is_terminal(STDERR_FILENO);
    v->colour = cli_has_colours(STDERR_FILENO);
    if (*title) fprintf(stderr, "%s%s%s\n", v->colour ? "\033[1m" : "", title, v->colour ? "\033[0m" : "");
    v->began = v->last = cli_now();
}

void cli_view_close(cli_view *v) {
    free(v->steps);
    v->steps = NULL;
}

/* A long run keeps every second point, then every fourth, and so on. */
static void keep(cli_view *v, const cli_view_step *step) {
    if (!v->steps && !(v->steps = malloc(CLI_VIEW_POINTS * sizeof *v->steps))) return;
    if (v->n == CLI_VIEW_POINTS) {
        for (size_t i = 0; i < v->n / 2; i++) v->steps[i] = v->steps[2 * i + 1];
        v->n /= 2, v->every *= 2;
    }
    const size_t replaces = v->n && (size_t)step->step % v->every != 0;
    v->steps[v->n - replaces] = *step;
    v->n += !replaces;
}

static void plain_line(const cli_view *v, const cli_view_step *s) {
    const struct {
        const char *format;
        double value;
    } parts[] = {{"  reward %.3f", s->reward}, {"  accuracy %.3f", s->accuracy},
                 {"  length %.1f", s->length}, {"  over %.3f", s->over},
                 {"  kl %.4f", s->kl},         {"  gap %.3g", s->gap},
                 {"  %.2f s", s->seconds},     {"  held out %.3f", s->eval_accuracy}};
    fprintf(stderr, "step %lld/%lld", (long long)s->step, (long long)v->total);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!isnan(parts[i].value)) fprintf(stderr, parts[i].format, parts[i].value);
    fputc('\n', stderr);
}

void cli_view_evaluated(cli_view *v, const cli_view_step *s) {
    if (isnan(s->eval_accuracy)) return;
    if (isnan(v->base_accuracy)) v->base_accuracy = s->eval_accuracy;
    v->evaluation = *s;
    if (!v->terminal && (!v->n || last_of(v)->step != s->step))
        fprintf(stderr, "step %lld/%lld  held out: accuracy %.3f  length %.1f\n", (long long)s->step, (long long)v->total,
                s->eval_accuracy, s->eval_length);
}

void cli_view_add(cli_view *v, const cli_view_step *s) {
    v->last = cli_now();
    v->phase[0] = 0;
    keep(v, s);
    cli_view_evaluated(v, s);
    if (v->terminal) draw(v);
    else plain_line(v, s);
}

void cli_view_phase(cli_view *v, const char *what, size_t done, size_t all) {
    static double drawn_at;
    const double at = cli_now();
    if (!v->terminal || at - drawn_at < 0.1) return;
    drawn_at = at;
    if (all > 1) snprintf(v->phase, sizeof v->phase, "%s %zu of %zu", what, done, all);
    else snprintf(v->phase, sizeof v->phase, "%s", what);
    draw(v);
}
