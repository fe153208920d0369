/* settings.c - settings on the command line. They come from the library's tables: a new row there is a new option here. */
#include "settings.h"
#include "ranks.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "terminal.h"
#include "values.h"

/* ----------------------------------------------------------------------------------------------------------------- the table */

enum { MOST = 224 }; /* tests/cli/test_settings.c fails if the library has more */

/* Filled once. One thread reads the command line. */
static cli_setting table[MOST];
static size_t n_table;

static void add(const char *name, const char *value, const char *help, const char *choice, const char *stage) {
    cli_setting *row = &table[n_table];
    if (n_table == MOST) return;
    *row = (cli_setting){.name = name, .value = value, .help = help, .choice = choice, .objective = !stage};
    row->loop = stage && (!strcmp(stage, "task") || !strcmp(stage, "rollout") || !strcmp(stage, "evaluation"));
    snprintf(row->title, sizeof row->title, "%s", stage ? stage : "objective (rein explain --all)");
    row->title[0] = (char)toupper((unsigned char)row->title[0]);
    snprintf(row->option, sizeof row->option, "%s", name);
    for (char *c = row->option; *c; c++)
        if (*c == '_') *c = '-';
    n_table++;
}

static void add_setting(const rein_setting_info *s) {
    const int yes_no = !strcmp(s->value, "yes|no"), choice = !yes_no && strchr(s->value, '|');
    add(s->name, yes_no ? NULL : choice ? "NAME" : s->value, s->help, choice ? s->value : NULL, s->stage);
}

static void fill(void) {
    const rein_setting_info *setting;
    const rein_option_info *option;
    const rein_option_alias *alias;
    for (size_t i = 0; (setting = rein_setting_at(i)); i++) add_setting(setting);
    add("preset", "NAME", "a published composition of all stages; options change it", NULL, NULL);
    for (size_t i = 0; (option = rein_option_at(i)); i++)
        add(option->name, option->choices ? "NAME" : "X", option->help, option->choices, NULL);
    for (size_t i = 0; (alias = rein_option_alias_at(i)); i++) add(alias->name, alias->value, alias->help, NULL, NULL);
}

const cli_setting *cli_setting_at(size_t i) {
    if (!n_table) fill();
    return i < n_table ? &table[i] : NULL;
}

/* The settings that an evaluation depends on: those of the task, and these. */
static int of_evaluations(const cli_setting *s) {
    static const char *const names[] = {"model",   "adapter",    "quantize",     "temperature",  "seed",
                                        "threads", "max_tokens", "max_turns",    "top_k",        "top_p",
                                        "min_p",   "stop",       "eval_prompts", "eval_samples", "token_budget"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], s->name)) return 1;
    return !strcmp(s->title, "Task");
}

int cli_takes_setting(const cli_command *command, const cli_setting *setting) {
    if (command->settings == CLI_SETTINGS_EVALUATION) return of_evaluations(setting);
    return command->settings && (command->settings == CLI_SETTINGS_LOOP || !setting->loop);
}

static int is_one_of(const char *name, const char *const *names) {
    for (; *names; names++)
        if (!strcmp(name, *names)) return 1;
    return 0;
}

/* Of a command whose data are given and whose objective is fixed: it refuses the others, with the reason. */
static int has_effect(const char *command, const cli_setting *s) {
    static const char *const teacher[] = {"teacher", "teacher_coef", "divergence", "jsd_beta", "teacher_discount", NULL};
    static const char *const references[] = {"kl_penalty_reference_step", "kl_penalty_step_lag", "kl_ref_adapter_path", NULL};
    static const char *const never[] = {"epochs",         "minibatches", "mask_truncated_completions", "kl_target", "kl_horizon",
                                        "kl_target_unit", NULL};
    const int dpo = !strcmp(command, "dpo"), reward = !strcmp(command, "reward"), distill = !strcmp(command, "distill");
    if (is_one_of(s->name, teacher)) return distill;
    if (is_one_of(s->name, references)) return dpo;
    if (is_one_of(s->name, never) || !strcmp(s->title, "Critic")) return 0;
    if (!strcmp(s->name, "temperature")) return !reward;
    return !s->objective || (!dpo && !reward && (!strcmp(s->name, "aggregation") || !strcmp(s->name, "max_response_length")));
}

int cli_shows_setting(const cli_command *command, const cli_setting *setting) {
    static const char *const fixed[] = {"sft", "dpo", "reward", "distill", NULL};
    return cli_takes_setting(command, setting) && (!is_one_of(command->name, fixed) || has_effect(command->name, setting));
}

/* The old name of an option is accepted, but not shown. */
const cli_setting *cli_setting_named(const char *option, size_t length) {
    const cli_setting *s;
    if (length == strlen("recall") && !strncmp(option, "recall", length)) option = "activation-cache", length = strlen(option);
    for (size_t i = 0; (s = cli_setting_at(i)); i++)
        if (strlen(s->option) == length && !strncmp(s->option, option, length)) return s;
    return NULL;
}

static const cli_setting *find(const char *name) {
    const cli_setting *s;
    for (size_t i = 0; (s = cli_setting_at(i)) && strcmp(s->name, name) != 0; i++) {
    }
    return s;
}

/* ---------------------------------------------------------------------------------------------------------------------- help */

/* "none, budget, truncate" */
static void put_choices(rein_text *out, const char *choices) {
    rein_text_put(out, ": ");
    for (; *choices; choices++) {
        if (*choices == '|') rein_text_put(out, ", ");
        else rein_text_put_bytes(out, choices, 1);
    }
}

/* " (default 8)", unless the help has it; a setting that is off or has no value has none. */
static void put_default(rein_text *out, const cli_setting *s) {
    rein_settings *defaults;
    if (strstr(s->help, "(default ") || !s->value || s->objective || rein_settings_new(&defaults, NULL)) return;
    const char *text = rein_settings_text(defaults, s->name);
    const double number = rein_settings_number(defaults, s->name);
    if (*text) rein_text_format(out, " (default %s)", text);
    else if (number > 0) rein_text_format(out, " (default %g)", number);
    rein_settings_free(defaults);
}

void cli_setting_help(rein_text *out, const cli_setting *s) {
    rein_text_put(out, s->help);
    if (s->choice) put_choices(out, s->choice);
    put_default(out, s);
}

void cli_put_settings(rein_text *out, const cli_command *command, const char *before, const char *after, cli_put_option *put) {
    const cli_setting *s;
    const char *title = "";
    for (size_t i = 0; (s = cli_setting_at(i)); i++) {
        rein_text help = {0};
        if (command && !cli_shows_setting(command, s)) continue;
        if (strcmp(s->title, title) != 0) rein_text_format(out, "%s%s%s\n", before, s->title, after);
        title = s->title;
        cli_setting_help(&help, s);
        put(out, s->option, s->value, help.failed ? s->help : help.data);
        rein_text_free(&help);
    }
}

/* ------------------------------------------------------------------------------------------------------- from the command line */

int cli_args_has_setting(const cli_args *args, const char *name) {
    for (size_t i = 0; i < args->n_settings; i++)
        if (!strcmp(args->settings[i].name, name)) return 1;
    return 0;
}

int cli_say_setting_error(const cli_args *args, const rein_error *err) {
    const cli_setting *s = cli_args_has_setting(args, err->field) ? find(err->field) : NULL;
    return s ? cli_say_option_error(args->command->name, s->option, err) : cli_say_error(args->command->name, err);
}

/* Sets all values of a list at once; its option may be given several times. */
static int set_list(rein_settings *settings, const cli_args *args, const char *name) {
    rein_error err = {0};
    rein_text all = {0};
    for (size_t i = 0; i < args->n_settings; i++) {
        if (strcmp(args->settings[i].name, name) != 0) continue;
        if (strchr(args->settings[i].value, '\n'))
            return rein_text_free(&all), cli_say_option(args->command->name, find(name)->option, "has a newline in it: %s",
                                                        strcmp(name, "stop") ? "leave it out" : "write \\n, which stands for one");
        rein_text_format(&all, "%s%s", all.length ? "\n" : "", args->settings[i].value);
    }
    const int failed = all.failed || rein_settings_set(settings, name, all.data, &err);
    const int status = all.failed ? cli_say_no_memory(args->command->name) : failed ? cli_say_setting_error(args, &err) : CLI_DONE;
    rein_text_free(&all);
    return status;
}

static int set(rein_settings *settings, const cli_args *args, size_t i) {
    rein_error err = {0};
    const char *name = args->settings[i].name;
    if (rein_setting_is_list(name)) return set_list(settings, args, name);
    if (!strcmp(name, "preset") && rein_options_given(rein_settings_objective(settings), NULL))
        return cli_say(CLI_WRONG, args->command->name,
                       "--preset would overwrite the options of the objective in %s: set the preset there",
                       cli_option_value(args, "config"));
    if (rein_settings_set(settings, name, args->settings[i].value, &err)) return cli_say_setting_error(args, &err);
    return CLI_DONE;
}

/* The file may only have settings that the command takes. */
static int check_config(const rein_settings *settings, const cli_args *args, const char *config) {
    const cli_setting *s;
    for (size_t i = 0; (s = cli_setting_at(i)); i++)
        if (!cli_takes_setting(args->command, s) && rein_settings_given(settings, s->name))
            return cli_say(CLI_WRONG, args->command->name, "%s: %s has no effect here: it is for rein %s", config, s->name,
                           s->loop ? "run" : "run and rein train");
    return CLI_DONE;
}

int cli_args_settings(rein_settings **settings, const cli_args *args, int is_new) {
    const char *config = cli_option_value(args, "config");
    rein_error err = {0};
    rein_isa isa = REIN_ISA_BEST;
    int status = cli_value_kernel(&isa, args->command->name);
    *settings = NULL;
    if (status) return status;
    if (rein_settings_new(settings, &err) || (is_new && rein_settings_set(*settings, "preset", "none", &err)) ||
        (config && rein_settings_read(*settings, config, &err)))
        return cli_say_error_of(args->command->name, "config", &err);
    rein_settings_set_isa(*settings, isa);
    rein_settings_set_ranks(*settings, cli_ranks());
    rein_settings_allow(*settings, (cli_option_value(args, "accept-changed") ? REIN_ALLOW_CHANGED : 0u) |
                                       (cli_option_value(args, "trust") ? REIN_ALLOW_COMMANDS : 0u));
    status = check_config(*settings, args, config);
    for (int preset = 1; preset >= 0; preset--) {
        for (size_t i = 0; i < args->n_settings && !status; i++)
            if ((strcmp(args->settings[i].name, "preset") == 0) == preset) status = set(*settings, args, i);
    }
    return status;
}

int cli_check_allowed(const cli_args *args, const char *reason) {
    static const char *const names[] = {"accept-changed", "trust"};
    for (size_t i = 0; i < 2; i++)
        if (cli_option_value(args, names[i])) return cli_say_option(args->command->name, names[i], "has no effect: %s", reason);
    return CLI_DONE;
}

int cli_run_settings(rein_settings **settings, const char *run, const char *where) {
    rein_error err = {0};
    rein_text path = {0};
    int status = CLI_DONE;
    rein_text_format(&path, "%s/config.yaml", run);
    if (path.failed) status = cli_say_no_memory(where);
    else if (rein_settings_new(settings, &err) || rein_settings_read(*settings, path.data, &err))
        status = cli_say_error(where, &err);
    rein_text_free(&path);
    return status;
}
