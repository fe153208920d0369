/* training.c - from a command line to a session. The library checks; this file reads options and prints. */
#include "training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"
#include "terminal.h"
#include "values.h"

static const char *where(const cli_training *t) { return t->args->command->name; }

/* ------------------------------------------------------------------------------------------------------------ the command line */

int cli_absolute_setting(rein_settings *settings, const char *name, const char *where) {
    char *path = cli_absolute_path(rein_settings_text(settings, name));
    const int no_memory = !path || (*path && rein_settings_set(settings, name, path, NULL) == REIN_ENOMEM);
    free(path);
    return no_memory ? cli_say_no_memory(where) : CLI_DONE;
}

/* A run can resume from any directory: its paths are absolute. */
static int make_paths_absolute(rein_settings *settings, const char *where) {
    static const char *const paths[] = {"model", "adapter", "kl_ref_adapter_path", "teacher", "ptx_data"}, *const tasks[] = {
                                                                                                               "task", "eval_task"};
    int status = CLI_DONE;
    for (size_t i = 0; i < sizeof paths / sizeof *paths && !status; i++) status = cli_absolute_setting(settings, paths[i], where);
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks && !status; i++)
        if (rein_task_kind_of(rein_settings_text(settings, tasks[i])) == REIN_TASK_FILE)
            status = cli_absolute_setting(settings, tasks[i], where);
    return status;
}

/* "RUN@7": a checkpoint of a run. */
static int read_fork(cli_training *t) {
    const char *text = cli_option_value(t->args, "fork");
    if (!text) return CLI_DONE;
    const size_t length = cli_value_run(&t->fork.step, text);
    if (t->fork.step < 0 || !length)
        return cli_say_option(where(t), "fork", "is \"%s\": it must be a run and one of its steps, as in RUN@7", text);
    char *run = strndup(text, length);
    t->fork.run = t->fork_run = run ? cli_absolute_path(run) : NULL;
    free(run);
    return t->fork_run ? CLI_DONE : cli_say_no_memory(where(t));
}

/* Until the command knows how many steps there will be, the schedule has a number that passes every check. */
static int leave_total_open(cli_training *t) {
    rein_error err = {0};
    const int constant = !strcmp(rein_settings_text(t->given, "lr_scheduler_type"), "constant");
    t->total_open = t->knows_total && !constant && !(rein_settings_number(t->given, "total_steps") > 0);
    if (!t->total_open || !rein_settings_set(t->given, "total_steps", "1000000000", &err)) return CLI_DONE;
    return cli_say_error(where(t), &err);
}

int cli_training_read(cli_training *t, const cli_args *args) {
    const char *chat = cli_option_value(args, "chat-format");
    rein_error err = {0};
    *t = (cli_training){.args = args, .run = args->n_words ? args->words[0] : NULL, .knows_total = t->knows_total};
    if (!t->run || !*t->run)
        return cli_say(CLI_WRONG, where(t), "a run is needed: rein %s %s", args->command->name, args->command->usage);
    int status = read_fork(t);
    if (!status && !t->fork.run && !rein_run_exists(t->run)) status = cli_check_allowed(args, "the run is new");
    if (!status) status = cli_args_settings(&t->given, args, !t->fork.run && !rein_run_exists(t->run));
    if (status) return status;
    if (chat && rein_chat_named(&t->chat, chat, &err)) return cli_say_option_error(where(t), "chat-format", &err);
    status = make_paths_absolute(t->given, where(t));
    return status ? status : leave_total_open(t);
}

/* ------------------------------------------------------------------------------------------------------------------ the session */

int cli_training_prepare(cli_training *t) {
    rein_error err = {0};
    if (rein_session_prepare(&t->session, t->run, t->fork.run ? &t->fork : NULL, t->given, &err))
        return cli_say_setting_error(t->args, &err);
    return cli_tokenizer_open(&t->tokenizer, rein_settings_text(rein_session_settings(t->session), "model"), where(t));
}

int cli_training_begin(cli_training *t) {
    rein_error err = {0};
    if (rein_session_begin(t->session, &err)) return cli_say_setting_error(t->args, &err);
    cli_training_note(t, t->session);
    return CLI_DONE;
}

const char *cli_preset(const rein_settings *settings) {
    const char *preset = rein_settings_text(settings, "preset");
    return *preset && strcmp(preset, "none") != 0 ? preset : NULL;
}

void cli_training_describe(rein_text *out, const cli_training *t, const rein_session *session) {
    const rein_settings *settings = rein_session_settings(session);
    const char *plan = t->fork.run ? "forked" : rein_session_is_new(session) ? "new" : "resumes";
    rein_text_format(out, "%-12s %s, %s\n", "run", t->run, plan);
    rein_text_format(out, "%-12s %s\n", "model", rein_settings_text(settings, "model"));
    rein_text_format(out, "%-12s %s\n", "trains", rein_settings_number(settings, "full") > 0 ? "all weights" : "an adapter");
}

void cli_training_note(cli_training *t, const rein_session *session) {
    const char *note = rein_session_note(session);
    if (*note && strcmp(note, t->noted) != 0) cli_say(0, where(t), "note: %s", note);
    snprintf(t->noted, sizeof t->noted, "%s", note);
}

void cli_training_close(cli_training *t) {
    rein_session_close(t->session);
    rein_tokenizer_close(t->tokenizer);
    rein_settings_free(t->given);
    free(t->fork_run);
    *t = (cli_training){0};
}

int cli_training_failed(const cli_training *t, const rein_error *err) {
    const int status = cli_say_setting_error(t->args, err);
    return err->code == REIN_EINVAL ? status : CLI_FAILED;
}

void cli_training_checkpoint(rein_text *out, const cli_training *t, int64_t step) {
    char path[4096];
    rein_run *run = NULL;
    if (rein_run_open(&run, t->run, REIN_RUN_READ, NULL) || rein_run_checkpoint_path(path, sizeof path, run, step) >= sizeof path)
        snprintf(path, sizeof path, "%s", t->run);
    rein_run_close(run);
    rein_text_put(out, path);
}

double cli_report_value(const rein_session_report *report, const char *name) {
    for (size_t i = 0; i < report->n; i++)
        if (!strcmp(report->metrics[i].name, name)) return report->metrics[i].value;
    return NAN;
}

void cli_report_json(rein_text *out, const rein_session_report *report, const cli_training *t) {
    rein_text path = {0};
    cli_training_checkpoint(&path, t, report->step);
    rein_text_format(out, "{\"step\": %lld, \"nothing_to_train\": %s, \"checkpoint\": ", (long long)report->step,
                     report->nothing_to_train ? "true" : "false");
    rein_json_put_string(out, path.failed ? "" : path.data);
    rein_text_put(out, ", \"metrics\": {");
    for (size_t i = 0; i < report->n; i++) rein_json_put_field(out, report->metrics[i].name, report->metrics[i].value);
    rein_text_put(out, "}}\n");
    out->failed |= path.failed;
    rein_text_free(&path);
}
