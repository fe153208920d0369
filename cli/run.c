/* run.c - `rein run`: reinforcement learning, the whole loop. */
#include "run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "history.h"
#include "memory.h"
#include "policy.h"
#include "progress.h"
#include "ranks.h"
#include "rein/report.h"
#include "terminal.h"
#include "training.h"
#include "view.h"

static const char *where(const cli_training *t) { return t->args->command->name; }

/* ------------------------------------------------------------------------------------------------------------------------ view */

static void on_progress(void *context, rein_phase phase, size_t done, size_t all) {
    static const char *const names[] = {"sampling", "training", "evaluating"};
    cli_view_phase(context, names[phase], done, all);
}

static void show_evaluation(cli_view *v, const rein_loop_evaluation *e) {
    if (!e) return;
    cli_view_step s = cli_view_step_none(e->step);
    s.eval_accuracy = e->sampled.accuracy, s.eval_low = e->sampled.accuracy_low, s.eval_high = e->sampled.accuracy_high;
    s.eval_length = e->sampled.mean_length, s.eval_over = e->sampled.share_over_budget;
    cli_view_evaluated(v, &s);
}

static void show_step(cli_view *v, const rein_loop_report *report) {
    cli_view_step s = cli_view_step_none(report->trained.step);
    for (size_t i = 0; i < report->trained.n; i++)
        cli_view_step_set(&s, report->trained.metrics[i].name, report->trained.metrics[i].value);
    cli_view_add(v, &s);
}

/* Prints what the judges' programs logged, line by line, between two pictures. */
static void show_log(cli_view *v, const cli_training *t, const char *log) {
    if (!*log) return;
    cli_view_clear(v);
    for (const char *end; *log; log = *end ? end + 1 : end) {
        end = log + strcspn(log, "\n");
        if (end > log) cli_say(0, where(t), "reward: %.*s", (int)(end - log), log);
    }
}

/* The curves of a resumed run begin with the steps it has made. */
static int show_past(cli_view *v, const cli_training *t, const rein_loop *loop) {
    const int64_t step = rein_session_step(rein_loop_session(loop));
    int64_t at = 0, last = 0;
    return step ? cli_history_steps(v, &at, &last, t->run, step, cli_view_recall, where(t)) : CLI_DONE;
}

/* ------------------------------------------------------------------------------------------------------------------------ work */

/* 1: the policy did not change, as it was wanted. */
static int only_critic(const rein_loop *loop, int64_t step) {
    return (double)step <= rein_settings_number(rein_session_settings(rein_loop_session(loop)), "critic_only_steps");
}

static int work(cli_training *t, rein_loop *loop, cli_view *v) {
    rein_error err = {0};
    v->finishes = v->terminal;
    if (v->terminal) cli_catch_interrupts_silently(); /* a line under the picture would shift it: the picture has the message */
    else cli_catch_interrupts();
    if (!rein_loop_first(loop) && rein_loop_evaluate(loop, &err)) return cli_view_clear(v), cli_training_failed(t, &err);
    show_evaluation(v, rein_loop_first(loop));
    int64_t idle = 0; /* steps with nothing to train: the first is reported at once, all of them at the end */
    int interrupted = 0, status = show_past(v, t, loop);
    while (!status && !(status = cli_ranks_interrupted(&interrupted, where(t))) && !interrupted && !rein_loop_done(loop)) {
        rein_loop_report report;
        if (rein_loop_step(&report, loop, &err)) return cli_view_clear(v), cli_training_failed(t, &err);
        show_log(v, t, report.judge_log);
        show_step(v, &report);
        if (report.trained.nothing_to_train && !only_critic(loop, report.trained.step) && !idle++) {
            cli_view_clear(v);
            cli_say(0, where(t), "step %" PRId64 ": nothing to train: within every group all rewards are equal",
                    report.trained.step);
        }
        if (*report.stopped) {
            cli_view_clear(v);
            cli_say(0, where(t), "%s is reached: the run ends after step %" PRId64, report.stopped, report.trained.step);
        }
    }
    if (idle > 1) {
        cli_view_clear(v);
        cli_say(0, where(t), "%" PRId64 " steps had nothing to train", idle);
    }
    return status;
}

/* 1 if everything that the end of a run leaves is there. */
static int is_finished(const cli_training *t, const rein_loop *loop) {
    const rein_loop_evaluation *last = rein_loop_last(loop);
    const int evaluates = rein_settings_number(rein_session_settings(rein_loop_session(loop)), "eval_prompts") > 0;
    if (!rein_loop_done(loop) || !cli_directory_has(t->run, "report.html")) return 0;
    if (!last) return !evaluates;
    return last->step == rein_session_step(rein_loop_session(loop)) && cli_directory_has(t->run, "summary.json");
}

/* An interrupted run has no evaluation of its last step: its summary and its report are of the last one it has. */
static int finish(cli_training *t, rein_loop *loop, const char *report_path) {
    rein_error err = {0};
    if (rein_loop_done(loop) && rein_loop_evaluate(loop, &err)) return cli_training_failed(t, &err);
    if (rein_loop_finish(loop, &err)) return cli_training_failed(t, &err);
    cli_training_note(t, rein_loop_session(loop));
    if (cli_ranks_first() && rein_report_write(report_path, &t->run, 1, &err)) return cli_training_failed(t, &err);
    return CLI_DONE;
}

/* ---------------------------------------------------------------------------------------------------------------------- output */

/* At most 80 columns. */
void cli_run_row(rein_text *out, const char *name, const rein_loop_evaluation *e) {
    const rein_evaluation *s = &e->sampled;
    char interval[40];
    snprintf(interval, sizeof interval, "(%.1f to %.1f)", 100 * s->accuracy_low, 100 * s->accuracy_high);
    rein_text_format(out, "%-7s %6" PRId64 "  %6.1f %%  %-15s  %6.1f %%  %7.1f", name, e->step, 100 * s->accuracy, interval,
                     100 * e->greedy.accuracy, s->mean_length);
    if (!isnan(s->share_over_budget)) rein_text_format(out, "  %6.1f %%", 100 * s->share_over_budget);
    rein_text_format(out, "  %7.4f\n", e->kl);
}

void cli_run_table(rein_text *out, const rein_loop *loop) {
    const rein_loop_evaluation *first = rein_loop_first(loop), *last = rein_loop_last(loop);
    if (!first) return;
    rein_text_format(out, "%-7s %6s  %8s  %-15s  %8s  %7s%s  %7s\n", "", "step", "accuracy", "  95 %", "greedy", "length",
                     isnan(first->sampled.share_over_budget) ? "" : "      over", "kl");
    cli_run_row(out, "base", first);
    cli_run_row(out, "final", last);
}

static int print_summary(const cli_training *t, const rein_loop *loop, const char *report) {
    const int64_t step = rein_session_step(rein_loop_session(loop));
    rein_text out = {0};
    cli_run_table(&out, loop);
    rein_text_format(&out, "%-11s %" PRId64 "\n%-11s ", "steps", step, "checkpoint");
    cli_training_checkpoint(&out, t, step);
    rein_text_format(&out, "\n%-11s %s\n", "report", report);
    return cli_print(&out);
}

/* The summary as it stands in the run. */
static int print_json(const cli_training *t, const rein_loop *loop) {
    const rein_session *session = rein_loop_session(loop);
    const rein_loop_evaluation *sides[] = {rein_loop_first(loop), rein_loop_last(loop)};
    static const char *const names[] = {"base", "final"};
    rein_text out = {0}, path = {0};
    cli_training_checkpoint(&path, t, rein_session_step(session));
    rein_text_format(&out, "{\"step\": %" PRId64 ", \"checkpoint\": ", rein_session_step(session));
    rein_json_put_string(&out, path.failed ? "" : path.data);
    for (size_t i = 0; i < 2 && sides[0]; i++) {
        const rein_evaluation *s = &sides[i]->sampled;
        rein_text_format(&out, ", \"%s\": {", names[i]);
        rein_json_put_field(&out, "accuracy", s->accuracy);
        rein_json_put_field(&out, "accuracy_low", s->accuracy_low);
        rein_json_put_field(&out, "accuracy_high", s->accuracy_high);
        rein_json_put_field(&out, "mean_length", s->mean_length);
        rein_json_put_field(&out, "share_over_budget", s->share_over_budget);
        rein_json_put_field(&out, "greedy_accuracy", sides[i]->greedy.accuracy);
        rein_json_put_field(&out, "kl", sides[i]->kl);
        rein_text_put(&out, "}");
    }
    rein_text_put(&out, "}\n");
    rein_text_free(&path);
    return cli_print(&out);
}

static int say_how_to_resume(const cli_training *t, const rein_loop *loop) {
    const rein_session *session = rein_loop_session(loop);
    if (rein_loop_done(loop)) return CLI_DONE;
    return cli_say(CLI_FAILED, where(t), "stopped after step %" PRId64 " of %" PRId64 ", which is saved; resume with rein run %s",
                   rein_session_step(session), (int64_t)rein_settings_number(rein_session_settings(session), "steps"), t->run);
}

/* ------------------------------------------------------------------------------------------------------------------ the command */

/* 1 if a file was given at another place: storing that is something to do, and the note says it. */
static int is_moved(const cli_training *t) {
    static const char *const places[] = {"model", "adapter", "task", "eval_task", "ptx_data", "working_directory"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (rein_settings_given(t->given, places[i])) return *t->noted != 0;
    return 0;
}

static void say_where_it_is(const cli_training *t, const rein_loop *loop) {
    const int64_t step = rein_session_step(rein_loop_session(loop));
    const char *nothing = is_moved(t) ? "" : "nothing to do: ";
    if (!step) return;
    if (*rein_loop_stopped(loop))
        cli_say(0, where(t), "%s%s ended after step %" PRId64 ", because %s was reached", nothing, t->run, step,
                rein_loop_stopped(loop));
    else if (rein_loop_done(loop))
        cli_say(0, where(t), "%s%s has made its %" PRId64 " steps (--steps N makes it longer)", nothing, t->run, step);
    else cli_say(0, where(t), "resuming after step %" PRId64, step);
}

static void put_title(char *title, size_t size, const cli_training *t, const rein_settings *s) {
    const double prompts = rein_settings_number(s, "prompts"), samples = rein_settings_number(s, "samples");
    snprintf(title, size, "%s: %.60s, %s, %.0f prompt%s × %.0f response%s a step", t->run, rein_settings_text(s, "task"),
             cli_preset(s) ? cli_preset(s) : "an objective by its stages", prompts, prompts == 1 ? "" : "s", samples,
             samples == 1 ? "" : "s");
}

/* A finished run does not take what was given now: its title is of the settings that it has. */
static int make_title(char *title, size_t size, const cli_training *t, const rein_settings *now, int finished) {
    rein_settings *kept = NULL;
    const int status = finished ? cli_run_settings(&kept, t->run, where(t)) : CLI_DONE;
    if (!status) put_title(title, size, t, kept ? kept : now);
    rein_settings_free(kept);
    return status;
}

int cli_run_work(cli_training *t, cli_run_end *end, void *context) {
    rein_error err = {0};
    rein_loop *loop = NULL;
    cli_view v = {0};
    char title[300];
    rein_text report = {0};
    const rein_loop_options options = {.progress = on_progress, .context = &v, .fork = t->fork.run ? &t->fork : NULL};
    cli_memory_foresee(t, REIN_MEMORY_RUN);
    if (rein_loop_prepare(&loop, t->run, t->given, &options, &err)) return cli_say_setting_error(t->args, &err);
    if (rein_session_is_new(rein_loop_session(loop))) cli_run_notes(t, loop);
    if (rein_loop_begin(loop, &err)) return rein_loop_close(loop), cli_say_setting_error(t->args, &err);
    const rein_session *session = rein_loop_session(loop);
    cli_training_note(t, session);
    say_where_it_is(t, loop);
    const rein_settings *settings = rein_session_settings(session);
    int finished = is_finished(t, loop), status = cli_ranks_same(&finished, where(t));
    if (!status) status = make_title(title, sizeof title, t, settings, finished);
    if (status) return rein_loop_close(loop), status;
    cli_view_open(&v, stderr, title, rein_session_step(session), (int64_t)rein_settings_number(settings, "steps"),
                  rein_settings_number(settings, "token_budget"));
    rein_text_format(&report, "%s/report.html", t->run);
    if (report.failed) status = cli_say_no_memory(where(t));
    if (!status && !finished) {
        status = work(t, loop, &v);
        if (!status) status = finish(t, loop, report.data);
    }
    cli_view_clear(&v);
    if (!status) status = end(t, loop, report.data, context);
    cli_view_close(&v);
    rein_text_free(&report);
    rein_loop_close(loop);
    return status;
}

static int at_the_end(const cli_training *t, const rein_loop *loop, const char *report, void *context) {
    const int *json = context;
    const int status = *json ? print_json(t, loop) : print_summary(t, loop, report);
    return status ? status : say_how_to_resume(t, loop);
}

int cli_run_run(const cli_args *args) {
    int json = cli_option_value(args, "json") != NULL;
    cli_training t = {0};
    int status = cli_training_read(&t, args);
    if (!status && cli_ranks() && cli_option_value(args, "dry-run"))
        status = cli_say_option("run", "dry-run", "is for one process: leave out mpirun or srun");
    if (!status) status = cli_option_value(args, "dry-run") ? cli_run_plan(&t, json) : cli_run_work(&t, at_the_end, &json);
    cli_training_close(&t);
    return status;
}
