/* demo.c - `rein demo`: the shipped model learns to add right, within a token budget, while you watch; a real run with a recipe that is
 * known to work, and everything it leaves behind is what `rein run` leaves. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy.h"
#include "rein/report.h"
#include "run.h"
#include "terminal.h"
#include "values.h"
#include "wrap.h"

static const char WHERE[] = "demo";

/* The recipe. docs/demo.md says why each value is what it is. */
static const char *const RECIPE[][2] = {{"task", "sums"},
                                        {"preset", "k2"},
                                        {"token_budget", "36"},
                                        {"budget_penalty_coef", "0.02"},
                                        {"tau", "0.5"},
                                        {"kl_penalty_coef", "0.1"},
                                        {"kl_penalty_reference_step", "0"},
                                        {"prompts", "32"},
                                        {"samples", "8"},
                                        {"max_tokens", "128"},
                                        {"minibatches", "2"},
                                        {"learning_rate", "0.004"},
                                        {"adam_beta2", "0.95"},
                                        {"lr_scheduler_type", "linear"},
                                        {"lr_final_share", "0.1"},
                                        {"warmup_steps", "5"},
                                        {"eval_prompts", "500"},
                                        {"eval_steps", "10"},
                                        {"save_steps", "10"}};

/* ------------------------------------------------------------------------------------------------------------- where things are */

static int find_model(char *path, size_t size) {
    if (cli_shipped_model(path, size)) return CLI_DONE;
    return cli_say(CLI_WRONG, WHERE, "the shipped model is not beside the program: --model DIR says where models/sums is");
}

/* rein-demo, or rein-demo-2 … where there is one that is finished: nothing is overwritten. */
static int find_place(char *run, size_t size) {
    for (int i = 1; i < 1000; i++) {
        snprintf(run, size, i > 1 ? "rein-demo-%d" : "rein-demo", i);
        if (!rein_run_exists(run) || !cli_directory_has(run, "summary.json")) return CLI_DONE;
    }
    return cli_say(CLI_WRONG, WHERE, "there are 999 runs of the demo here: rein demo RUN names one");
}

/* ---------------------------------------------------------------------------------------------------------------------- output */

static void put_answer(rein_text *out, const char *when, const char *answer, const char *verdict, size_t tokens) {
    enum { INDENT = 10, WIDTH = 80 };
    rein_text text = {0};
    rein_text_format(&text, "%s (%s, %zu tokens)", answer, verdict, tokens);
    rein_text_format(out, "  %-7s ", when);
    cli_wrap(out, INDENT, WIDTH, text.failed ? answer : text.data);
    rein_text_free(&text);
}

static void put_sample(rein_text *out, const rein_loop *loop) {
    rein_before_after s;
    size_t best = 0, gain = 0;
    int found = 0;
    for (size_t i = 0; rein_loop_sample(&s, loop, i) && i < 200; i++) { /* one that was wrong and long, and is right and short */
        const size_t shorter = s.tokens_before > s.tokens_after ? s.tokens_before - s.tokens_after : 0;
        if (s.right_before || !s.right_after || shorter <= gain) continue;
        best = i, gain = shorter, found = 1;
    }
    if (!found || !rein_loop_sample(&s, loop, best)) return;
    rein_text_put(out, "\nThe same question, which it never trained on:\n  ");
    for (const char *c = s.prompt; *c; c++) rein_text_put(out, *c == '\n' ? "  " : (const char[]){*c, 0});
    rein_text_put(out, "\n");
    put_answer(out, "before:", s.before, "wrong", s.tokens_before);
    put_answer(out, "after:", s.after, "right", s.tokens_after);
}

/* What is printed at the end, collected run by run. */
typedef struct story {
    const char *program;
    rein_text table, sample, adapter;
    int done; /* the run was not interrupted */
} story;

static int after_the_first(const cli_training *t, const rein_loop *loop, const char *report, void *context) {
    story *s = context;
    (void)report;
    s->done = rein_loop_done(loop);
    cli_run_table(&s->table, loop);
    put_sample(&s->sample, loop);
    cli_training_checkpoint(&s->adapter, t, rein_session_step(rein_loop_session(loop)));
    return CLI_DONE;
}

static int after_the_second(const cli_training *t, const rein_loop *loop, const char *report, void *context) {
    story *s = context;
    (void)t, (void)report;
    s->done = rein_loop_done(loop);
    if (rein_loop_last(loop)) cli_run_row(&s->table, "kl x3", rein_loop_last(loop));
    return CLI_DONE;
}

static int tell(story *s, const cli_training *t) {
    rein_text out = {0};
    if (s->table.failed || s->adapter.failed) return cli_say_no_memory(WHERE);
    rein_text_format(&out, "%s", s->table.data);
    if (s->done)
        rein_text_put(&out, "\nkl x3: the same with three times the KL penalty. It stays nearer to the initial\n"
                            "policy, and its answers are longer.\n");
    if (s->sample.data) rein_text_put(&out, s->sample.data);
    rein_text_format(&out, "\nreport   %s/report.html\nadapter  %s\n", t->run, s->adapter.data);
    rein_text_format(&out, "\nWhat to try next:\n  %s eval %s --against %s@0 --eval-samples 4\n", s->program, t->run, t->run);
    rein_text_format(&out, "  %s generate --model %s --adapter %s --prompt $'Q:7+8+9+6=?\\nA:' --samples 4\n", s->program,
                     rein_settings_text(t->given, "model"), s->adapter.data);
    rein_text_format(&out,
                     "  %s run %s-grpo --model %s --task sums --preset grpo --learning-rate 2e-3 --max-tokens 128 --steps 20\n",
                     s->program, t->run, rein_settings_text(t->given, "model"));
    return cli_print(&out);
}

static void introduce(void) {
    fputs("A language model of 0.34 million parameters adds digits and writes its steps\n"
          "down. Half of its answers are wrong, and most are too long. Now it learns from\n"
          "its own attempts: a right answer earns 1, each token over 36 costs 0.02, and a\n"
          "KL penalty keeps it near the initial policy.\n\n",
          stderr);
}

/* ------------------------------------------------------------------------------------------------------------------ the command */

static int set(rein_settings *settings, const char *name, const char *value) {
    rein_error err = {0};
    return rein_settings_set(settings, name, value, &err) ? cli_say_error(WHERE, &err) : CLI_DONE;
}

static int set_number(rein_settings *settings, const cli_args *args, const char *option, uint64_t standard, uint64_t least,
                      uint64_t most) {
    char text[32];
    const int status = cli_value_whole(&standard, args, option, least, most);
    snprintf(text, sizeof text, "%" PRIu64, standard);
    return status ? status : set(settings, option, text);
}

/* The settings of the first run, in t->given. */
static int read_settings(cli_training *t, const cli_args *args) {
    char model[4096];
    const char *given = cli_option_value(args, "model");
    rein_isa isa = REIN_ISA_BEST;
    rein_error err = {0};
    int status = rein_settings_new(&t->given, &err) ? cli_say_error(WHERE, &err) : CLI_DONE;
    rein_settings *settings = t->given;
    if (status) return status;
    if (given) snprintf(model, sizeof model, "%s", given);
    else status = find_model(model, sizeof model);
    if (!status) status = set(settings, "model", model);
    if (!status) status = cli_absolute_setting(settings, "model", WHERE);
    for (size_t i = 0; i < sizeof RECIPE / sizeof *RECIPE && !status; i++) status = set(settings, RECIPE[i][0], RECIPE[i][1]);
    if (!status) status = set_number(settings, args, "steps", 40, 6, 100000);
    if (!status) status = set_number(settings, args, "seed", 1, 0, 1000000000000000);
    if (!status) status = set_number(settings, args, "threads", 0, 0, 256);
    if (!status) status = cli_value_kernel(&isa, WHERE);
    rein_settings_set_isa(settings, isa);
    return status;
}

static int run_first(story *s, cli_training *t) {
    const int status = cli_run_work(t, after_the_first, s);
    if (status || s->done) return status;
    return cli_say(CLI_FAILED, WHERE, "stopped; the last step is saved. Resume with %s demo %s", s->program, t->run);
}

/* What a stronger KL penalty costs: the same run with three times the KL penalty, and both in one report. */
static int run_second(story *s, const cli_training *first) {
    cli_training t = *first;
    char place[4096];
    rein_error err = {0};
    const int n = snprintf(place, sizeof place, "%s-kl", first->run);
    if (n < 0 || (size_t)n >= sizeof place) return cli_say(CLI_WRONG, WHERE, "the name of the run is too long");
    t.run = place;
    t.given = NULL;
    int status = rein_settings_copy(&t.given, first->given, &err) ? cli_say_error(WHERE, &err) : CLI_DONE;
    if (!status) status = set(t.given, "kl_penalty_coef", "0.3");
    if (!status) status = set(t.given, "eval_steps", "0");
    if (!status) status = cli_run_work(&t, after_the_second, s);
    rein_settings_free(t.given);
    if (status) return status;
    rein_text report = {0};
    rein_text_format(&report, "%s/report.html", first->run);
    const char *runs[] = {first->run, place};
    if (report.failed) status = cli_say_no_memory(WHERE);
    else if (rein_report_write(report.data, runs, 2, &err)) status = cli_say_error(WHERE, &err);
    rein_text_free(&report);
    return status;
}

int cli_run_demo(const cli_args *args) {
    cli_training t = {.args = args};
    story s = {.program = args->program};
    char place[64];
    int status = args->n_words ? CLI_DONE : find_place(place, sizeof place);
    t.run = args->n_words ? args->words[0] : place;
    if (!status) status = read_settings(&t, args);
    if (!status) introduce();
    if (!status) status = run_first(&s, &t);
    if (!status) status = run_second(&s, &t);
    if (!status) status = tell(&s, &t);
    rein_text_free(&s.table);
    rein_text_free(&s.sample);
    rein_text_free(&s.adapter);
    cli_training_close(&t);
    return status;
}
