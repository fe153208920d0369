/* view.c - the live view of a run. */
#include "view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "progress.h"
#include "terminal.h"

/* ----------------------------------------------------------------------------------------------------------------------- steps */

cli_view_step cli_view_step_none(int64_t step) {
    return (cli_view_step){step, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
}

void cli_view_step_set(cli_view_step *s, const char *name, double value) {
    const struct {
        const char *name;
        double *to;
    } all[] = {{"reward", &s->reward},
               {"accuracy", &s->accuracy},
               {"completions/mean_length", &s->length},
               {"budget/share_over", &s->over},
               {"kl", &s->kl},
               {"entropy", &s->entropy},
               {"on_policy/max_gap", &s->gap},
               {"critic/explained_variance", &s->explained},
               {"critic/loss", &s->value_loss},
               {"step_time", &s->seconds},
               {"time/wait", &s->wait},
               {"time/exchange", &s->exchange},
               {"eval/accuracy", &s->eval_accuracy},
               {"eval/accuracy_low", &s->eval_low},
               {"eval/accuracy_high", &s->eval_high},
               {"eval/mean_length", &s->eval_length},
               {"eval/share_over_budget", &s->eval_over}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) *all[i].to = value;
}

cli_view_step cli_view_step_of(const rein_json *line) {
    cli_view_step s = cli_view_step_none((int64_t)rein_json_number(rein_json_get(line, "step")));
    const char *name;
    const rein_json *value;
    for (void *at = NULL; (at = rein_json_next(&name, &value, line, at));)
        if (rein_json_kind_of(value) == REIN_JSON_NUMBER) cli_view_step_set(&s, name, rein_json_number(value));
    return s;
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
    rein_text_format(out, v->total > 0 ? " %lld/%lld" : " step %lld", (long long)done, (long long)v->total);
    if (done > v->first && v->began > 0 && v->total > 0) {
        const double per_step = (v->last - v->began) / (double)(done - v->first);
        char left[CLI_CLOCK_SIZE];
        rein_text_format(out, "  %.2g s/step  %s left", per_step, cli_clock_text(left, per_step * (double)(v->total - done)));
    }
    if (*v->phase) rein_text_format(out, "  %s", v->phase);
}

/* "  accuracy   0.71  ▁▂▃▄▅▆▇  held out 0.68"; nothing if no step has the figure. */
static void put_curve(rein_text *out, const cli_view *v, const char *name, const char *format, size_t field, const char *after) {
    enum { COLUMNS = 32 };
    double *values = malloc((v->n + 1) * sizeof *values), newest = NAN;
    for (size_t i = 0; values && i < v->n; i++) {
        values[i] = *(const double *)((const char *)&v->steps[i] + field);
        if (!isnan(values[i])) newest = values[i];
    }
    if (isnan(newest)) {
        free(values);
        return;
    }
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

static int columns_of(const cli_view *v) {
    struct winsize size;
    return ioctl(fileno(v->to), TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

/* Appends the lines of a picture, each cut to fit into the columns; colours stay. Counts the lines. */
static void put_cut(rein_text *out, cli_view *v, const char *picture) {
    int width = 0, escape = 0;
    for (const char *c = picture; *c; c++) {
        const int starts = (*c & 0xC0) != 0x80; /* of a character */
        escape = escape || *c == '\033';
        if (*c == '\n') v->drawn++, width = 0;
        else if (!escape && starts) width += width < v->columns;
        if (escape || *c == '\n' || width < v->columns) rein_text_put_bytes(out, c, 1);
        if (escape && strchr("mKAJ", *c)) escape = 0;
    }
}

static void put_title(rein_text *out, const cli_view *v) {
    if (v->title) rein_text_format(out, "%s%s%s\n", v->colour ? "\033[1m" : "", v->title, v->colour ? "\033[0m" : "");
}

/* Moves the cursor to the first line of the last picture and clears what follows. A terminal of another width has wrapped the lines, perhaps
 * while a picture was on its way, so that their number is not known: the screen starts again with the title, and what it showed is in the
 * terminal's history. */
static void put_back(rein_text *out, cli_view *v) {
    const int columns = columns_of(v);
    if (v->drawn && columns == v->columns) rein_text_format(out, "\033[%dA\r\033[J", v->drawn);
    else if (v->drawn) rein_text_put(out, "\033[2J\033[H"), put_title(out, v);
    v->columns = columns;
    v->drawn = 0;
}

static void put_picture(rein_text *to, cli_view *v) {
    rein_text out = {0};
    char accuracy[100], length[100];
    notes(accuracy, length, v);
    put_bar(&out, v);
    rein_text_put(&out, "\033[K\n");
    put_curve(&out, v, "accuracy", "%.3f", offsetof(cli_view_step, accuracy), accuracy);
    put_curve(&out, v, "reward", "%.3f", offsetof(cli_view_step, reward), "");
    put_curve(&out, v, "length", "%.1f", offsetof(cli_view_step, length), length);
    put_curve(&out, v, "kl", "%.4f", offsetof(cli_view_step, kl), "nats a token");
    put_curve(&out, v, "entropy", "%.4f", offsetof(cli_view_step, entropy), "");
    const cli_view_step *s = last_of(v);
    if (s && !isnan(s->gap))
        rein_text_format(&out, "  %sgap%s       %7.3g  between what the sampler saw and the trainer computes\033[K\n",
                         v->colour ? "\033[2m" : "", v->colour ? "\033[0m" : "", s->gap);
    if (s && !isnan(s->value_loss))
        rein_text_format(&out, "  %scritic%s    loss %.4g, explains %.3g of the variance of the returns\033[K\n",
                         v->colour ? "\033[2m" : "", v->colour ? "\033[0m" : "", s->value_loss,
                         isnan(s->explained) ? 0 : s->explained);
    if (s && !isnan(s->wait))
        rein_text_format(&out, "  %sranks%s  waiting %.3g s, exchange %.3g s, of %.3g s a step\033[K\n", v->colour ? "\033[2m" : "",
                         v->colour ? "\033[0m" : "", s->wait, s->exchange, s->seconds);
    if (v->finishes && cli_progress_interrupted())
        rein_text_put(&out, "finishing the step; interrupt again to stop now and lose it\033[K\n");
    put_back(to, v);
    if (!out.failed) put_cut(to, v, out.data);
    rein_text_free(&out);
}

static void print(cli_view *v, rein_text *out) {
    if (!out->failed && out->data) fputs(out->data, v->to), fflush(v->to);
    rein_text_free(out);
}

static void draw(cli_view *v) {
    rein_text out = {0};
    put_picture(&out, v);
    print(v, &out);
}

void cli_view_clear(cli_view *v) {
    rein_text out = {0};
    put_back(&out, v);
    print(v, &out);
}

/* --------------------------------------------------------------------------------------------------------------------- events */

static void keep_title(cli_view *v, const char *title) {
    rein_text shown = {0};
    cli_show(&shown, title, strlen(title));
    if (shown.length && !shown.failed) v->title = strdup(shown.data);
    v->failed = *title && !v->title;
    rein_text_free(&shown);
}

void cli_view_open(cli_view *v, FILE *to, const char *title, int64_t first, int64_t total, double budget) {
    rein_text out = {0};
    *v = (cli_view){.to = to, .first = first, .total = total, .budget = budget, .every = 1, .base_accuracy = NAN};
    v->evaluation = cli_view_step_none(-1);
    v->terminal = cli_is_terminal(fileno(to));
    v->colour = cli_has_colours(fileno(to));
    keep_title(v, title);
    put_title(&out, v);
    v->failed |= out.failed;
    print(v, &out);
    v->began = v->last = cli_now();
}

void cli_view_close(cli_view *v) {
    free(v->steps);
    free(v->title);
    v->steps = NULL, v->title = NULL;
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

/* "step 3/40"; without a total "step 3" */
static void put_step(const cli_view *v, int64_t step) {
    fprintf(v->to, v->total > 0 ? "step %lld/%lld" : "step %lld", (long long)step, (long long)v->total);
}

static void plain_line(const cli_view *v, const cli_view_step *s) {
    const struct {
        const char *format;
        double value;
    } parts[] = {{"  reward %.3f", s->reward},
                 {"  accuracy %.3f", s->accuracy},
                 {"  length %.1f", s->length},
                 {"  over %.3f", s->over},
                 {"  kl %.4f", s->kl},
                 {"  explained %.2f", s->explained},
                 {"  gap %.3g", s->gap},
                 {"  %.2f s", s->seconds},
                 {"  waiting %.2f s", s->wait},
                 {"  exchange %.2f s", s->exchange},
                 {"  held out %.3f", s->eval_accuracy}};
    put_step(v, s->step);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!isnan(parts[i].value)) fprintf(v->to, parts[i].format, parts[i].value);
    fputc('\n', v->to);
}

void cli_view_evaluated(cli_view *v, const cli_view_step *s) {
    if (isnan(s->eval_accuracy)) return;
    if (isnan(v->base_accuracy)) v->base_accuracy = s->eval_accuracy;
    v->evaluation = *s;
    if (!v->terminal && (!v->n || last_of(v)->step != s->step))
        put_step(v, s->step), fprintf(v->to, "  held out: accuracy %.3f  length %.1f\n", s->eval_accuracy, s->eval_length);
}

void cli_view_recall(cli_view *v, const cli_view_step *s) {
    keep(v, s);
    if (!isnan(s->eval_accuracy)) v->evaluation = *s;
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
