/* task.c - `rein task`: examples of a task, as text or as JSON lines, which rein sft and tasks from a file read.
 *
 * Each example is printed at once, because a program that makes them may be slow. Control characters in a text are shown as symbols and
 * never sent to the terminal. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rein/rollout.h"
#include "terminal.h"
#include "values.h"

enum { COLUMN = 14 };

static const char WHERE[] = "task";

const char *cli_task_word(size_t i) {
    const rein_task_info *info = rein_task_at(i);
    return info ? info->name : NULL;
}

typedef struct showing {
    rein_task *task;
    rein_task_options options;
    rein_split split;
    uint64_t from, count;
    int demonstrations, json;
} showing;

/* ------------------------------------------------------------------------------------------------------------------- the options */

static int is_share(double x) { return x > 0 && x < 1; }
static int is_above_0(double x) { return x > 0; }

static int read_split(rein_split *split, const cli_args *args) {
    const char *name = cli_option_value(args, "split");
    if (!name) return CLI_DONE;
    if (strcmp(name, "train") != 0 && strcmp(name, "held-out") != 0)
        return cli_say_option(WHERE, "split", "is \"%s\": it must be train or held-out", name);
    *split = *name == 't' ? REIN_SPLIT_TRAIN : REIN_SPLIT_HELD_OUT;
    return CLI_DONE;
}

static int read_options(showing *s, const cli_args *args) {
    int status = cli_value_whole(&s->count, args, "count", 1, UINT64_MAX);
    if (!status) status = cli_value_whole(&s->from, args, "from", 0, UINT64_MAX - 1);
    if (!status) status = cli_value_whole(&s->options.seed, args, "seed", 0, INT64_MAX);
    if (!status) status = cli_value_number(&s->options.held_out_share, args, "held-out", is_share, "above 0 and below 1");
    if (!status) status = cli_value_number(&s->options.timeout, args, "timeout", is_above_0, "above 0");
    return status ? status : read_split(&s->split, args);
}

/* ------------------------------------------------------------------------------------------------------------------------- text */

/* A name and a text; further lines of the text are indented like the first. */
static void put_row(rein_text *out, const char *name, const char *text) {
    rein_text_format(out, "  %-*s", COLUMN - 2, name);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        const int control = (c < 32 && c != '\n') || c == 127, high = c == 0xC2 && (unsigned char)text[1] < 0xA0;
        if (control || high) rein_text_put(out, "·");
        else rein_text_put_bytes(out, text, 1);
        text += high;
        if (c == '\n') rein_text_repeat(out, " ", COLUMN);
    }
    rein_text_put(out, "\n");
}

static void put_text(rein_text *out, const showing *s, const rein_example *example, uint64_t index, const rein_text *shown) {
    char budget[32];
    if (index > s->from) rein_text_put(out, "\n");
    rein_text_format(out, "%s %" PRIu64 "\n", s->split == REIN_SPLIT_TRAIN ? "train" : "held-out", index);
    if (example->prompt) put_row(out, "prompt", example->prompt);
    for (size_t i = 0; i < example->n_messages; i++) put_row(out, example->messages[i].role, example->messages[i].content);
    if (example->answer) put_row(out, "answer", example->answer);
    snprintf(budget, sizeof budget, "%" PRId64 " tokens", example->budget);
    if (example->budget >= 0) put_row(out, "budget", budget);
    if (!s->demonstrations) return;
    put_row(out, "completion", shown->data ? shown->data : "");
    put_row(out, "verified", rein_task_verify(s->task, example, shown->data, shown->length) > 0 ? "right" : "wrong");
}

/* ------------------------------------------------------------------------------------------------------------------------- JSON */

/* An object of two texts, and a newline. */
static void put_pair(rein_text *out, const char *first, const char *text, const char *second, const char *bytes, size_t length) {
    rein_text_put(out, "{");
    rein_json_put_name(out, first);
    rein_json_put_string(out, text);
    rein_json_put_name(out, second);
    rein_json_put_bytes(out, bytes, length);
    rein_text_put(out, "}\n");
}

/* --------------------------------------------------------------------------------------------------------------------- examples */

/* *end is 1 if the examples end before this number, and one was shown. */
static int show_one(int *end, const showing *s, uint64_t index) {
    rein_example example;
    rein_text shown = {0};
    rein_text out = {0};
    rein_error err = {0};
    rein_status status = rein_task_example(&example, s->task, s->split, index, &err);
    *end = status == REIN_END && index > s->from && !rein_task_verifies(s->task);
    if (*end) return CLI_DONE;
    if (!status && s->demonstrations) status = rein_task_demonstrate(&shown, s->task, &example, index, &err);
    if (!status && s->json && s->demonstrations) put_pair(&out, "prompt", example.prompt, "completion", shown.data, shown.length);
    else if (!status && s->json) rein_text_format(&out, "%s\n", example.json);
    else if (!status) put_text(&out, s, &example, index, &shown);
    rein_text_free(&shown);
    rein_example_free(&example);
    if (status == REIN_END) return cli_say(CLI_WRONG, WHERE, "%s", err.message);
    return status ? cli_say_error(WHERE, &err) : cli_print(&out);
}

static int cannot_open(const rein_error *err) {
    if (!strcmp(err->field, "held_out_share")) return cli_say_option_error(WHERE, "held-out", err);
    if (!strcmp(err->field, "timeout")) return cli_say_option_error(WHERE, "timeout", err);
    return cli_say_error(WHERE, err);
}

static int show(showing *s, const char *source) {
    rein_error err = {0};
    int end = 0, status = CLI_DONE;
    if (rein_task_open(&s->task, source, &s->options, &err)) return cannot_open(&err);
    for (uint64_t i = 0; i < s->count && s->from + i >= s->from && !status && !end; i++) status = show_one(&end, s, s->from + i);
    rein_task_close(s->task);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------------- built-in ones */

static int list_tasks(const cli_args *args) {
    const rein_task_info *info;
    rein_text out = {0};
    const int json = cli_option_value(args, "json") != NULL;
    for (size_t o = 0; o < CLI_MAX_OPTIONS && args->command->options[o].name; o++) {
        const char *name = args->command->options[o].name;
        if (args->values[o] && strcmp(name, "json") != 0)
            return cli_say_option(WHERE, name, "needs a task: rein task %s", args->command->usage);
    }
    for (size_t i = 0; (info = rein_task_at(i)); i++) {
        if (json) put_pair(&out, "name", info->name, "help", info->help, strlen(info->help));
        else rein_text_format(&out, "%-*s%s\n", COLUMN, info->name, info->help);
    }
    return cli_print(&out);
}

int cli_run_task(const cli_args *args) {
    showing s = {.count = 5, .options.seed = 1};
    s.demonstrations = cli_option_value(args, "demonstrations") != NULL;
    s.json = cli_option_value(args, "json") != NULL;
    if (!args->n_words) return list_tasks(args);
    const int status = read_options(&s, args);
    return status ? status : show(&s, args->words[0]);
}
