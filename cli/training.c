/* training.c - from a command line to a session. A run that exists has settings of its own, which those given now change. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "training.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "policy.h"
#include "terminal.h"
#include "values.h"

static const char *where(const rein_training *t) { return t->args->command->name; }

/* -------------------------------------------------------------------------------------------------------------------- settings */

/* A run can resume from any directory: its paths are absolute. A path that cannot be resolved stays as it is: opening it reports more. */
void rein_whole_path(rein_settings *settings, const char *name) {
    const char *path = rein_settings_text(settings, name);
    char *whole = *path ? realpath(path, NULL) : NULL;
    if (whole) (void)rein_settings_set(settings, name, whole, NULL);
    free(whole);
}

static int resolve(rein_training *t) {
    rein_error err = {0};
    rein_text path = {0};
    const int fresh = t->is_new && !t->fork.run;
    rein_text_format(&path, "%s/config.yaml", t->fork.run ? t->fork.run : t->run);
    if (path.failed) return rein_say_no_memory(where(t));
    rein_status status = fresh ? rein_settings_copy(&t->settings, t->given, &err) : rein_settings_new(&t->settings, &err);
    if (!status) rein_settings_set_isa(t->settings, rein_settings_exec(t->given).isa);
    if (!status && !fresh) status = rein_settings_read(t->settings, path.data, &err);
    rein_text_free(&path);
    if (!status && !fresh)
        status = t->fork.run ? rein_settings_fork(t->settings, t->given, &err) : rein_settings_change(t->settings, t->given, &err);
    if (!status && fresh && !*rein_settings_text(t->given, "model"))
        return rein_say(REIN_WRONG, where(t),
                        "%s is a new run: --model DIR is needed, a directory with config.json and safetensors", t->run);
    if (!status) status = rein_settings_check(t->settings, &err);
    return status ? rein_say_setting_error(t->args, &err) : REIN_DONE;
}

const char *rein_training_preset(const rein_training *t) {
    const char *preset = rein_settings_text(t->settings, "preset");
    return *preset && strcmp(preset, "none") != 0 ? preset : NULL;
}

/* A directory with other things in it is no place for a run. */
static int check_place(const rein_training *t) {
    struct stat about;
    const struct dirent *entry;
    int others = 0;
    if (stat(t->run, &about)) return REIN_DONE;
    if (!S_ISDIR(about.st_mode)) return rein_say(REIN_WRONG, where(t), "%s is a file: a run is a directory", t->run);
    DIR *directory = t->is_new && !rein_directory_has(t->run, "checkpoints") ? opendir(t->run) : NULL;
    while (directory && (entry = readdir(directory))) others |= entry->d_name[0] != '.';
    if (directory) closedir(directory);
    if (!others) return REIN_DONE;
    return rein_say(REIN_WRONG, where(t), "%s has files in it and is no run: a new directory is needed", t->run);
}

/* "RUN@7": which checkpoint of which run, and that it is there. What is given is kept as a whole path. */
static int read_fork(rein_training *t) {
    const char *text = rein_option_value(t->args, "fork"), *at = text ? strrchr(text, '@') : NULL;
    char *end = NULL, given[sizeof t->fork_run];
    if (!text) return REIN_DONE;
    t->fork.step = at && at[1] >= '0' && at[1] <= '9' ? strtoll(at + 1, &end, 10) : -1;
    if (!end || *end || at == text || (size_t)(at - text) >= sizeof given)
        return rein_say(REIN_WRONG, where(t), "--fork is \"%s\": a run and one of its steps, RUN@7", text);
    if (!t->is_new) return rein_say(REIN_WRONG, where(t), "%s is a run already: --fork begins a new one", t->run);
    snprintf(given, sizeof given, "%.*s", (int)(at - text), text);
    if (!rein_directory_has(given, "config.yaml"))
        return rein_say(REIN_WRONG, where(t), "\"%s\" is no run: --fork needs one, and one of its steps, RUN@7", given);
    char *whole = realpath(given, NULL);
    snprintf(t->fork_run, sizeof t->fork_run, "%s", whole && strlen(whole) < sizeof t->fork_run ? whole : given);
    t->fork.run = t->fork_run;
    free(whole);
    return REIN_DONE;
}

int rein_training_read(rein_training *t, const rein_args *args) {
    const char *chat = rein_option_value(args, "chat-format");
    rein_error err = {0};
    *t = (rein_training){
        .args = args, .run = args->n_words ? args->words[0] : NULL, .has_chat = chat != NULL, .knows_total = t->knows_total};
    if (!t->run || !*t->run)
        return rein_say(REIN_WRONG, where(t), "a run is needed: rein %s %s", args->command->name, args->command->usage);
    t->is_new = !rein_directory_has(t->run, "config.yaml");
    int status = read_fork(t);
    if (!status) status = rein_args_settings(&t->given, args, t->is_new && !t->fork.run);
    if (status) return status;
    if (chat && rein_chat_named(&t->chat, chat, &err)) return rein_say_error(where(t), &err);
    const int constant = !strcmp(rein_settings_text(t->given, "lr_scheduler_type"), "constant");
    t->total_open = t->knows_total && !constant && !(rein_settings_number(t->given, "total_steps") > 0);
    if (t->total_open && rein_settings_set(t->given, "total_steps", "1000000000", &err)) return rein_say_error(where(t), &err);
    static const char *const paths[] = {"model", "adapter", "kl_ref_adapter_path", "ptx_data"}, *const tasks[] = {"task",
                                                                                                                  "eval_task"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) rein_whole_path(t->given, paths[i]);
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
        if (rein_task_kind_of(rein_settings_text(t->given, tasks[i])) == REIN_TASK_FILE) rein_whole_path(t->given, tasks[i]);
    status = resolve(t);
    return status ? status : check_place(t);
}

/* ----------------------------------------------------------------------------------------------------------- what is to be trained */

static rein_status new_adapter(rein_adapter **adapter, const rein_training *t, const rein_model *model, rein_error *err) {
    const rein_settings *s = t->settings;
    const char *modules[16];
    rein_lora_options o = {(int64_t)rein_settings_number(s, "lora_rank"),
                           rein_settings_number(s, "lora_alpha"),
                           rein_settings_number(s, "use_rslora") > 0,
                           modules,
                           0,
                           (uint64_t)rein_settings_number(s, "seed")};
    char *text = strdup(rein_settings_text(s, "lora_modules"));
    if (!text) return rein_fail(err, REIN_ENOMEM, "out of memory");
    for (char *rest = text, *name; (name = strtok_r(rest, ", ", &rest)) && o.n_modules < 16;) modules[o.n_modules++] = name;
    const rein_status status = rein_adapter_new(adapter, model, &o, err);
    free(text);
    return status;
}

static rein_status check_adapters(const rein_training *t, const rein_model *model, rein_error *err) {
    const char *adapter = rein_settings_text(t->settings, "adapter"),
               *reference_path = rein_settings_text(t->settings, "kl_ref_adapter_path");
    rein_adapter *policy = NULL, *reference = NULL;
    rein_status status = REIN_OK;
    if (t->is_new && !(rein_settings_number(t->settings, "full") > 0))
        status = *adapter ? rein_adapter_open(&policy, model, adapter, err) : new_adapter(&policy, t, model, err);
    if (!status && *reference_path) status = rein_adapter_open(&reference, model, reference_path, err);
    rein_adapter_close(policy);
    rein_adapter_close(reference);
    return status;
}

/* The reference may be a checkpoint: that of a new run is the first one. */
static rein_status check_checkpoints(const rein_training *t, rein_error *err) {
    const double given = rein_settings_number(t->settings, "kl_penalty_reference_step");
    const int64_t wanted = isnan(given) ? -1 : (int64_t)given, *steps = &(int64_t){0};
    rein_run *run = NULL;
    size_t n = 1;
    int found = wanted < 0;
    if (!t->is_new && rein_run_open(&run, t->run, REIN_RUN_READ, err)) return err->code;
    if (run) n = rein_run_checkpoints(&steps, run);
    for (size_t i = 0; i < n; i++) found |= steps[i] == wanted;
    const long long last = n ? (long long)steps[n - 1] : 0;
    rein_run_close(run);
    if (found) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "kl_penalty_reference_step", -1,
                        "is %lld: the run has no checkpoint of that step; its last is %lld", (long long)wanted, last);
}

/* The step of --fork is among those that the run has. */
static rein_status check_fork(const rein_training *t, rein_error *err) {
    const int64_t *steps;
    rein_run *run;
    rein_text list = {0};
    int found = 0;
    if (!t->fork.run) return REIN_OK;
    if (rein_run_open(&run, t->fork.run, REIN_RUN_READ, err)) return err->code;
    const size_t n = rein_run_checkpoints(&steps, run);
    for (size_t i = 0; i < n; i++) {
        found |= steps[i] == t->fork.step;
        rein_text_format(&list, "%s%lld", i ? ", " : "", (long long)steps[i]);
    }
    rein_status status = found ? rein_checkpoint_verify(run, t->fork.step, err) : REIN_OK;
    if (!found)
        status = rein_fail(err, REIN_EINVAL, "%.250s has no checkpoint of step %lld, but of %.150s%s", t->fork.run,
                           (long long)t->fork.step, n && !list.failed ? list.data : "none",
                           !list.failed && list.length > 150 ? " …" : "");
    rein_text_free(&list);
    rein_run_close(run);
    return status;
}

static int open_tokenizer(rein_training *t) {
    rein_error err = {0};
    const char *model = rein_settings_text(t->settings, "model");
    if (!rein_directory_has(model, "tokenizer.json")) return REIN_DONE;
    if (rein_tokenizer_open(&t->tokenizer, model, &err)) return rein_say_error(where(t), &err);
    return REIN_DONE;
}

int rein_training_look(rein_training *t) {
    const rein_model_options how = {.exec = rein_settings_exec(t->settings)};
    rein_error err = {0};
    rein_model *model = NULL;
    const char *path = rein_settings_text(t->settings, "model");
    struct stat about;
    if (stat(path, &about) || !S_ISDIR(about.st_mode))
        return rein_say(REIN_WRONG, where(t),
                        "\"%s\" is no directory: a model is one on this machine, with config.json and safetensors (nothing is "
                        "downloaded)",
                        path);
    rein_status status = check_fork(t, &err);
    if (!status) status = rein_model_open(&model, path, &how, &err);
    if (!status) t->info = rein_model_describe(model);
    if (!status) status = check_adapters(t, model, &err);
    if (!status) status = check_checkpoints(t, &err);
    rein_model_close(model);
    return status ? rein_say_setting_error(t->args, &err) : open_tokenizer(t);
}

/* -------------------------------------------------------------------------------------------------------------------- a session */

int rein_training_open(rein_training *t) {
    rein_error err = {0};
    if (rein_session_fork(&t->session, t->run, t->fork.run ? &t->fork : NULL, t->given, &err))
        return rein_say_setting_error(t->args, &err);
    rein_training_note(t, t->session);
    return REIN_DONE;
}

void rein_training_note(rein_training *t, const rein_session *session) {
    const char *note = rein_session_note(session);
    if (*note && strcmp(note, t->noted) != 0) rein_say(0, where(t), "note: %s", note);
    snprintf(t->noted, sizeof t->noted, "%s", note);
}

void rein_training_close(rein_training *t) {
    rein_session_close(t->session);
    rein_tokenizer_close(t->tokenizer);
    rein_settings_free(t->given);
    rein_settings_free(t->settings);
    t->session = NULL;
    t->tokenizer = NULL;
    t->given = t->settings = NULL;
}

int rein_training_failed(const rein_training *t, const rein_error *err) {
    const int status = rein_say_setting_error(t->args, err);
    return err->code == REIN_EINVAL ? status : REIN_FAILED;
}

void rein_training_checkpoint(rein_text *out, const rein_training *t, int64_t step) {
    char path[4096];
    rein_run *run = NULL;
    if (rein_run_open(&run, t->run, REIN_RUN_READ, NULL) || rein_run_checkpoint_path(path, sizeof path, run, step) >= sizeof path)
        snprintf(path, sizeof path, "%s", t->run);
    rein_run_close(run);
    rein_text_put(out, path);
}

double rein_report_value(const rein_session_report *report, const char *name) {
    for (size_t i = 0; i < report->n; i++)
        if (!strcmp(report->names[i], name)) return report->values[i];
    return NAN;
}

void rein_report_json(rein_text *out, const rein_session_report *report, const rein_training *t) {
    rein_text path = {0};
    rein_training_checkpoint(&path, t, report->step);
    rein_text_format(out, "{\"step\": %lld, \"nothing_to_train\": %s, \"checkpoint\": ", (long long)report->step,
                     report->nothing_to_train ? "true" : "false");
    rein_json_put_string(out, path.failed ? "" : path.data);
    rein_text_put(out, ", \"metrics\": {");
    for (size_t i = 0; i < report->n; i++) rein_json_put_field(out, report->names[i], report->values[i]);
    rein_text_put(out, "}}\n");
    out->failed |= path.failed;
    rein_text_free(&path);
}
