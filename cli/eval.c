/* eval.c - `rein eval`: evaluates a policy on a task, alone or compared with another. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"
#include "progress.h"
#include "settings.h"
#include "terminal.h"
#include "training.h"
#include "values.h"
#include "view.h"

static const char WHERE[] = "eval";

/* An opened policy, its completions and its figures. */
typedef struct candidate {
    char name[600];
    rein_model *model; /* its own, or borrowed */
    int borrowed;
    rein_adapter *adapter;
    int64_t step; /* of its run */
    rein_groups groups;
    rein_evaluation figures;
} candidate;

enum { RUN_SIZE = 4096 };

typedef struct evaluation {
    const cli_args *args;
    rein_settings *given, *settings;
    char run[RUN_SIZE]; /* "": none */
    int64_t step;       /* of the run; -1: the last good one */
    rein_task_runner *runner;
    candidate first, second;
    int by_model; /* the run was given as --model */
    int both, greedy, json;
    uint64_t k;
    cli_view view;
} evaluation;

/* ------------------------------------------------------------------------------------------------------------------- arguments */

/* "RUN@7" or "RUN"; `field` is what it was given as. */
static int read_run(char *run, int64_t *step, const char *text, const char *field) {
    const size_t length = cli_value_run(step, text);
    rein_error err;
    if (length < RUN_SIZE) {
        memcpy(run, text, length);
        run[length] = 0;
        if (rein_run_exists(run)) return CLI_DONE;
        rein_fail(&err, REIN_EINVAL, "%s is not a run: it has no config.yaml", run);
    } else rein_fail(&err, REIN_EINVAL, "the name of the run has %zu bytes: at most %d are possible", length, RUN_SIZE - 1);
    return cli_say_error_of(WHERE, field, &err);
}

/* The run of the command line: its word, or a --model that is a run. */
static int find_run(evaluation *c) {
    const cli_args *args = c->args;
    if (args->n_words) return read_run(c->run, &c->step, args->words[0], "run");
    for (size_t i = 0; i < args->n_settings; i++) {
        int64_t step;
        char *run = strndup(args->settings[i].value, cli_value_run(&step, args->settings[i].value));
        c->by_model = !strcmp(args->settings[i].name, "model") && run && rein_run_exists(run);
        free(run);
        if (c->by_model) return read_run(c->run, &c->step, args->settings[i].value, "model");
    }
    return cli_check_allowed(args, "there is no run");
}

/* Copies a setting of the command line to the settings, also one that cannot change during a run. */
static int take_given(evaluation *c, const char *name) {
    rein_text value = {0};
    rein_error err = {0};
    const int failed = rein_settings_given(c->given, name) &&
                       (rein_settings_get(&value, c->given, name, &err) || rein_settings_set(c->settings, name, value.data, &err));
    rein_text_free(&value);
    return failed ? cli_say_setting_error(c->args, &err) : CLI_DONE;
}

/* Commands of the command line are meant for the current directory, not for that of the run. */
static int gives_programs(const cli_args *args) {
    return cli_args_has_setting(args, "task") || cli_args_has_setting(args, "eval_task") || cli_args_has_setting(args, "reward");
}

static int start_here(evaluation *c) {
    rein_error err = {0};
    return rein_settings_set(c->settings, "working_directory", "", &err) ? cli_say_error(WHERE, &err) : CLI_DONE;
}

/* The settings of the run, overridden by those of the command line, which cannot replace the policy. */
static int read_settings(evaluation *c) {
    rein_error err = {0};
    int status = cli_args_settings(&c->given, c->args, 0);
    if (status) return status;
    if (!*c->run) return rein_settings_copy(&c->settings, c->given, &err) ? cli_say_error(WHERE, &err) : CLI_DONE;
    const char *fixed = !c->by_model && *rein_settings_text(c->given, "model") ? "model"
                        : *rein_settings_text(c->given, "adapter")             ? "adapter"
                        : *rein_settings_text(c->given, "quantize")            ? "quantize"
                                                                               : NULL;
    if (fixed) return cli_say_option(WHERE, fixed, "and a run are both given: the policy is the run's");
    status = cli_run_settings(&c->settings, c->run, WHERE);
    if (!status && gives_programs(c->args)) status = start_here(c);
    for (size_t i = 0; !status && rein_setting_at(i); i++)
        if (!c->by_model || strcmp(rein_setting_at(i)->name, "model") != 0) status = take_given(c, rein_setting_at(i)->name);
    if (!status) status = take_given(c, "token_budget");
    if (!status) rein_settings_set_isa(c->settings, rein_settings_exec(c->given).isa);
    return status;
}

static int is_environment(const evaluation *c, const char *task) {
    return rein_task_kind_of(rein_settings_text(c->settings, task)) == REIN_TASK_ENVIRONMENT;
}

static int check(evaluation *c) {
    const double samples = rein_settings_number(c->settings, "eval_samples");
    if (!*rein_settings_text(c->settings, "model"))
        return cli_say(CLI_WRONG, WHERE, "a policy is needed: RUN, RUN@STEP, or --model DIR (with or without --adapter DIR)");
    if (!*rein_settings_text(c->settings, "task"))
        return cli_say(CLI_WRONG, WHERE, "a task is needed: --task NAME, FILE.jsonl or a program");
    if (!(rein_settings_number(c->settings, "eval_prompts") > 0))
        return cli_say_option(WHERE, "eval-prompts", "is 0: one prompt or more is needed");
    if (c->greedy && cli_args_has_setting(c->args, "eval_samples"))
        return cli_say_option(WHERE, "eval-samples", "has no effect with --greedy, which has one response per prompt");
    if (cli_args_has_setting(c->args, "max_turns") && !is_environment(c, "task") && !is_environment(c, "eval_task"))
        return cli_say_option(WHERE, "max-turns", "has no effect: the task is not an environment (env: COMMAND)");
    if ((double)c->k > (c->greedy ? 1 : samples))
        return cli_say_option(WHERE, "k", "is %" PRIu64 ": it must be at most %g, the number of responses to a prompt", c->k,
                              c->greedy ? 1 : samples);
    return CLI_DONE;
}

/* ------------------------------------------------------------------------------------------------------------------- policies */

/* The directory of the checkpoint. If *step is negative, it becomes that of the last good checkpoint. The first policy brings its task, a
 * second one is measured on the same. */
static int checkpoint_path(char *path, size_t size, const evaluation *c, const char *directory, int64_t *step) {
    rein_error err = {0};
    const unsigned parts = directory == c->run ? REIN_RUN_POLICY | REIN_RUN_TASK : REIN_RUN_POLICY;
    char note[REIN_NOTE_SIZE] = "";
    rein_run *run = NULL;
    if (rein_run_open(&run, directory, REIN_RUN_READ, &err)) return cli_say_error_of(WHERE, "run", &err);
    rein_status status = *step < 0 ? rein_run_last_good(step, note, run, &err) : rein_run_check_step(run, *step, NULL, &err);
    if (!status && *step >= 0) status = rein_checkpoint_verify(run, *step, &err);
    if (!status && *step < 0) status = rein_fail(&err, REIN_EINVAL, "%s has no checkpoint yet", directory);
    if (!status && rein_run_checkpoint_path(path, size, run, *step) >= size)
        status = rein_fail(&err, REIN_EINVAL, "the path of the checkpoint is too long");
    if (!status) status = rein_run_check(run, *step, c->settings, c->given, parts, &err);
    rein_run_close(run);
    if (!status && *note) cli_say(0, WHERE, "note: %s", note);
    return status ? cli_say_error_of(WHERE, "run", &err) : CLI_DONE;
}

static int open_model(candidate *p, const evaluation *c, const char *directory) {
    rein_error err = {0};
    const char *quantize = rein_settings_text(c->settings, "quantize");
    const rein_model_options how = {.exec = rein_settings_exec(c->settings), .quantize = *quantize ? quantize : NULL};
    if (rein_model_open(&p->model, directory, &how, &err)) return cli_say_error_of(WHERE, "model", &err);
    return CLI_DONE;
}

static int open_adapter(candidate *p, const char *directory) {
    rein_error err = {0};
    return rein_adapter_open(&p->adapter, p->model, directory, &err) ? cli_say_error_of(WHERE, "adapter", &err) : CLI_DONE;
}

/* A checkpoint contains an adapter of the model, or is itself a model. */
static int open_checkpoint(candidate *p, evaluation *c, const char *run, int64_t step, rein_model *model) {
    char path[4096];
    int status = checkpoint_path(path, sizeof path, c, run, &step);
    if (status) return status;
    snprintf(p->name, sizeof p->name, "%s@%" PRId64, run, step);
    p->step = step;
    if (!cli_directory_has(path, "adapter_config.json")) return open_model(p, c, path);
    if (model) p->model = model, p->borrowed = 1;
    else if ((status = open_model(p, c, rein_settings_text(c->settings, "model")))) return status;
    return open_adapter(p, path);
}

static int open_first(evaluation *c) {
    const char *model = rein_settings_text(c->settings, "model"), *adapter = rein_settings_text(c->settings, "adapter");
    if (*c->run) return open_checkpoint(&c->first, c, c->run, c->step, NULL);
    snprintf(c->first.name, sizeof c->first.name, "%s", *adapter ? adapter : model);
    const int status = open_model(&c->first, c, model);
    return status || !*adapter ? status : open_adapter(&c->first, adapter);
}

/* An adapter fits only the model it was trained with. */
static int check_same_model(evaluation *c, const char *run) {
    rein_settings *other = NULL;
    int status = cli_run_settings(&other, run, WHERE);
    if (!status) status = cli_absolute_setting(c->settings, "model", WHERE);
    if (!status) status = cli_absolute_setting(other, "model", WHERE);
    if (!status) {
        const char *mine = rein_settings_text(c->settings, "model"), *theirs = rein_settings_text(other, "model");
        if (strcmp(mine, theirs) != 0)
            status = cli_say_option(WHERE, "against", "%s is a run of another model, %s: one of %s is needed", run, theirs, mine);
    }
    rein_settings_free(other);
    return status;
}

/* "base" is the model of the settings. */
static int open_second(evaluation *c, const char *against) {
    char run[RUN_SIZE];
    int64_t step;
    c->both = 1;
    if (!strcmp(against, "base")) {
        snprintf(c->second.name, sizeof c->second.name, "base");
        if (!c->first.adapter) return open_model(&c->second, c, rein_settings_text(c->settings, "model"));
        c->second.model = c->first.model, c->second.borrowed = 1;
        return CLI_DONE;
    }
    int status = read_run(run, &step, against, "--against");
    if (!status) status = check_same_model(c, run);
    return status ? status : open_checkpoint(&c->second, c, run, step, c->first.adapter ? c->first.model : NULL);
}

static void close_candidate(candidate *p) {
    rein_groups_free(&p->groups);
    rein_adapter_close(p->adapter);
    if (!p->borrowed) rein_model_close(p->model);
}

/* ------------------------------------------------------------------------------------------------------------------------ work */

static void on_progress(void *context, size_t done, size_t all) {
    evaluation *c = context;
    cli_view_phase(&c->view, "sampling", done, all);
}

/* The temperature of the command line, or that of the run at the step of the policy. */
static double temperature_of(const evaluation *c, const candidate *p) {
    if (rein_settings_given(c->given, "temperature")) return rein_settings_number(c->settings, "temperature");
    return rein_settings_temperature(c->settings, p->step);
}

static int measure(evaluation *c, candidate *p) {
    rein_error err = {0};
    const rein_policy policy = {p->model, p->adapter, temperature_of(c, p)};
    const rein_exec exec = rein_settings_exec(c->settings);
    const rein_status status = rein_task_runner_evaluate(&p->groups, c->runner, &policy, c->greedy, &exec, on_progress, c, &err);
    cli_view_clear(&c->view);
    const char *log = rein_task_runner_log(c->runner);
    if (*log) cli_say(0, WHERE, "reward: %s", log);
    if (status) return cli_say_setting_error(c->args, &err);
    const double budget = rein_settings_number(c->settings, "token_budget");
    p->figures = rein_evaluate(&p->groups, isnan(budget) ? -1 : (int64_t)budget);
    return CLI_DONE;
}

/* ---------------------------------------------------------------------------------------------------------------------- output */

static void put_figures(rein_text *out, const evaluation *c, const candidate *p) {
    const rein_evaluation *e = &p->figures;
    rein_json_put_field(out, "accuracy", e->accuracy);
    rein_json_put_field(out, "accuracy_low", e->accuracy_low);
    rein_json_put_field(out, "accuracy_high", e->accuracy_high);
    rein_json_put_field(out, "pass_at_k", rein_groups_pass_at_k(&p->groups, c->k));
    rein_text_format(out, ", \"k\": %" PRIu64, c->k);
    rein_json_put_field(out, "reward", e->reward);
    rein_json_put_field(out, "mean_length", e->mean_length);
    rein_json_put_field(out, "share_over_budget", e->share_over_budget);
    rein_json_put_field(out, "clipped_ratio", e->truncated);
    rein_text_format(out, ", \"n\": %zu, \"prompts\": %zu", e->n, e->prompts);
}

static int print_json(const evaluation *c) {
    rein_text out = {0};
    double low, high;
    rein_text_put(&out, "{");
    put_figures(&out, c, &c->first);
    if (c->both) {
        rein_text_put(&out, ", \"against\": {");
        put_figures(&out, c, &c->second);
        rein_text_put(&out, "}");
        rein_json_put_field(&out, "difference", rein_evaluate_difference(&low, &high, &c->second.groups, &c->first.groups));
        rein_json_put_field(&out, "difference_low", low);
        rein_json_put_field(&out, "difference_high", high);
    }
    rein_text_put(&out, "}\n");
    return cli_print(&out);
}

static void table(rein_text *out, const evaluation *c, const candidate *p) {
    const rein_evaluation *e = &p->figures;
    rein_text_format(out, "%-12s %s\n", "policy", p->name);
    rein_text_format(out, "%-12s %.1f %%, 95 %% between %.1f and %.1f\n", "accuracy", 100 * e->accuracy, 100 * e->accuracy_low,
                     100 * e->accuracy_high);
    if (e->samples > 1)
        rein_text_format(out, "%-12s %.1f %%\n", c->k == 1 ? "pass@1" : "pass@k", 100 * rein_groups_pass_at_k(&p->groups, c->k));
    rein_text_format(out, "%-12s %.4g\n", "reward", e->reward);
    rein_text_format(out, "%-12s %.1f tokens\n", "length", e->mean_length);
    if (!isnan(e->share_over_budget)) rein_text_format(out, "%-12s %.1f %%\n", "over budget", 100 * e->share_over_budget);
    if (e->truncated > 0) rein_text_format(out, "%-12s %.1f %% at --max-tokens\n", "cut off", 100 * e->truncated);
    rein_text_format(out, "%-12s %zu to %zu prompts\n", "responses", e->n, e->prompts);
}

static int print_table(const evaluation *c) {
    rein_text out = {0};
    double low, high;
    table(&out, c, &c->first);
    if (c->both) {
        rein_text_put(&out, "\n");
        table(&out, c, &c->second);
        const double difference = rein_evaluate_difference(&low, &high, &c->second.groups, &c->first.groups);
        rein_text_format(&out, "\n%-12s %+.1f points of accuracy, 95 %% between %+.1f and %+.1f\n", "difference", 100 * difference,
                         100 * low, 100 * high);
    }
    return cli_print(&out);
}

/* ------------------------------------------------------------------------------------------------------------------ the command */

static int evaluate(evaluation *c) {
    const char *against = cli_option_value(c->args, "against");
    rein_error err = {0};
    int status = find_run(c);
    if (!status) status = read_settings(c);
    if (!status) status = cli_value_whole(&c->k, c->args, "k", 1, 10000);
    if (!status) status = check(c);
    if (!status && !c->k) c->k = (uint64_t)(c->greedy ? 1 : rein_settings_number(c->settings, "eval_samples"));
    if (!status) status = open_first(c);
    if (!status && against) status = open_second(c, against);
    if (!status && rein_task_runner_open(&c->runner, c->settings, c->first.model, NULL, &err))
        status = cli_say_setting_error(c->args, &err);
    if (!status) status = measure(c, &c->first);
    if (!status && c->both) status = measure(c, &c->second);
    if (status) return status;
    return c->json ? print_json(c) : print_table(c);
}

int cli_run_eval(const cli_args *args) {
    evaluation *c = calloc(1, sizeof *c);
    if (!c) return cli_say_no_memory(WHERE);
    c->args = args;
    c->greedy = cli_option_value(args, "greedy") != NULL, c->json = cli_option_value(args, "json") != NULL;
    cli_view_open(&c->view, stderr, "", 0, 0, NAN);
    const int status = evaluate(c);
    cli_view_close(&c->view);
    close_candidate(&c->second);
    close_candidate(&c->first);
    rein_task_runner_close(c->runner);
    rein_settings_free(c->given);
    rein_settings_free(c->settings);
    free(c);
    return status;
}
