/* session_prepare.c - the first half of opening a session: settings, directory, model, adapter, reference and fork are read and checked;
 * nothing is written. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "fingerprint.h"
#include "origin.h"
#include "reward_models.h"
#include "rollout/task.h"
#include "session.h"
#include "settings.h"
#include "state.h"
#include "trainer.h"

/* -------------------------------------------------------------------------------------------------------------------- settings */

/* Those of the run, changed by those given now. */
static rein_status resume_settings(rein_session *s, const rein_settings *given, rein_error *err) {
    char *path = rein_path_join(s->directory, "config.yaml");
    rein_status status = path ? rein_settings_read(&s->settings, path, err) : rein_fail(err, REIN_ENOMEM, "no memory for a path");
    if (!status) status = rein_origin_check(s->directory, &s->settings, given, err);
    if (!status) status = rein_settings_change(&s->settings, given, err);
    free(path);
    return status;
}

/* Commands that are given now are meant for the current directory. A file that moved is no command. */
static int programs_given(const rein_settings *given) {
    return rein_task_command(given->task) || rein_task_command(given->eval_task) || rein_settings_given(given, "reward");
}

/* A run can be resumed from any directory. */
static rein_status make_directory_absolute(rein_settings *o, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    const char *given = o->working_directory;
    if (*given && !rein_file_is_directory(given))
        return rein_fail_at(err, REIN_EINVAL, "working_directory", -1, "is \"%s\", which is not a directory",
                            rein_path_show(shown, given));
    if (!*given || *given == '/') return REIN_OK;
    char *here = getcwd(NULL, 0), *path = here ? rein_path_join(here, given) : NULL;
    const rein_status status = path ? rein_settings_set(o, "working_directory", path, err)
                                    : rein_fail(err, REIN_ENOMEM, "no memory for a path, or the current directory has none");
    free(path);
    free(here);
    return status;
}

/* A run that has programs starts them where they were given, from whatever directory it is resumed. */
static rein_status place_programs(rein_settings *o, const rein_settings *given, rein_error *err) {
    if (rein_settings_given(given, "working_directory")) return make_directory_absolute(o, err);
    if (!rein_settings_has_program(o)) {
        o->working_directory[0] = 0;
        o->given[REIN_SETTING_PLACE_working_directory] = 0;
        return REIN_OK;
    }
    if (*o->working_directory && !programs_given(given)) return REIN_OK;
    char *here = getcwd(NULL, 0);
    const rein_status status = here ? rein_settings_set(o, "working_directory", here, err)
                                    : rein_file_error(err, ".", "the current directory has no path");
    free(here);
    return status;
}

/* All weights keep 1e-5, which moves nothing in an adapter. 3e-4 takes the accuracy of models/sums from 57 to 73 % in 40 steps of grpo
 * (1e-5: 57, 1e-4: 62, 1e-3: 90), that of SmolLM2-135M-Instruct on additions from 17 to 67 % in 20 steps (1e-5: 21, 1e-4: 42, 1e-3: 63 with
 * a larger KL). It is written to the run, so that another default later changes no run. */
static rein_status choose_learning_rate(rein_settings *o, rein_error *err) {
    if (o->full || rein_settings_given(o, "learning_rate")) return REIN_OK;
    return rein_settings_set(o, "learning_rate", "3e-4", err);
}

/* An adapter has 16 shards of its own. All weights get 8, which as many ranks can divide; runs of earlier versions keep their one. It is
 * written to the run: the bits depend on it. */
static rein_status choose_shards(rein_settings *o, rein_error *err) {
    char text[16];
    if (!o->full || rein_settings_given(o, "shards")) return REIN_OK;
    snprintf(text, sizeof text, "%d", REIN_FULL_SHARDS);
    return rein_settings_set(o, "shards", text, err);
}

static rein_status resolve_settings(rein_session *s, const rein_settings *given, rein_error *err) {
    if (s->fork.run) return rein_fork_settings(&s->settings, s->directory, &s->fork, given, err);
    rein_status status = s->is_new ? rein_settings_assign(&s->settings, given, err) : resume_settings(s, given, err);
    if (!status && s->is_new) status = choose_learning_rate(&s->settings, err);
    if (!status && s->is_new) status = choose_shards(&s->settings, err);
    if (!status && !*s->settings.model)
        status = rein_fail_at(err, REIN_EINVAL, "model", -1, "is missing: a new run needs the directory of a model");
    if (!status) status = rein_settings_check(&s->settings, err);
    if (!status) status = rein_settings_place_reward_models(&s->settings, err);
    return status ? status : rein_settings_choose_date(&s->settings, err);
}

/* ----------------------------------------------------------------------------------------------------------------------- files */

/* Settings besides the policy that name files, and whether one that is given again is a file that may have moved. */
static const struct {
    const char *name;
    int moves, is_task;
} NAMED[] = {{"kl_ref_adapter_path", 0, 0}, {"teacher", 1, 0}, {"reward", 0, 0}, {"reward_model", 0, 0}, {"task", 1, 1},
             {"eval_task", 1, 1},           {"ptx_data", 1, 0}};
enum { N_NAMED = sizeof NAMED / sizeof *NAMED };

/* What the user replaces on purpose is not compared: the reference, a command, and all of these in a fork. A command that is not given is
 * that of config.yaml, which the user gave before: a step that failed has left no checkpoint with it. */
static void choose_skipped(const char **skipped, const rein_session *s, const rein_settings *given) {
    for (size_t i = 0; i < N_NAMED; i++) {
        const char *name = NAMED[i].name, *value = rein_settings_text(&s->settings, name);
        const char *setting = !strcmp(name, "reward_model") ? "reward" : name; /* files of judges */
        const int file = !NAMED[i].is_task || rein_task_kind_of(rein_settings_text(given, name)) == REIN_TASK_FILE;
        const int command = !strcmp(name, "reward") || (NAMED[i].is_task && rein_task_command(value));
        if (command || (rein_settings_given(given, setting) && (s->fork.run || !NAMED[i].moves || !file))) *skipped++ = name;
    }
}

/* A run of an earlier version has recorded no files: whether a model at another place is the same cannot be told. */
static rein_status check_moved(const rein_session *s, const rein_settings *given, rein_error *err) {
    static const char *const places[] = {"model", "adapter"};
    rein_settings before;
    rein_settings_init(&before);
    char *path = rein_path_join(s->fork.run ? s->fork.run : s->directory, "config.yaml");
    rein_status status = path ? rein_settings_read(&before, path, err) : rein_fail(err, REIN_ENOMEM, "no memory for a path");
    for (size_t i = 0; i < 2 && !status; i++)
        if (rein_settings_given(given, places[i]) &&
            strcmp(rein_settings_text(given, places[i]), rein_settings_text(&before, places[i])) != 0)
            status =
                rein_fail_at(err, REIN_EINVAL, places[i], -1,
                             "is \"%.100s\", but the run was started with \"%.100s\", and its checkpoint has no hashes to tell "
                             "whether they are the same: --accept-changed (in Python accept_changed=True) continues with it",
                             rein_settings_text(given, places[i]), rein_settings_text(&before, places[i]));
    free(path);
    rein_settings_clear(&before);
    return status;
}

/* 1 if the file has a line, however long: one that is too long was written by somebody else. */
static int has_line(const char *path) {
    enum { LONGEST = 1 << 20 };
    rein_lines *lines;
    const char *line;
    size_t length;
    if (rein_lines_open(&lines, path, 0, LONGEST, NULL)) return 0;
    const rein_status status = rein_lines_next(&line, &length, lines, NULL);
    const int found = status == REIN_EINVAL || (!status && line[length] == '\n');
    rein_lines_close(lines);
    return found;
}

/* Starting again at step 0 would hide that the policy is lost. A run that has made a step has a checkpoint and a line of that step. */
static rein_status check_not_lost(const rein_session *s, size_t checkpoints, rein_error *err) {
    char shown[REIN_PATH_SHOWN], *path = rein_path_join(s->directory, "history.jsonl");
    if (!path) return rein_fail(err, REIN_ENOMEM, "no memory for a path");
    const int lines = !checkpoints && has_line(path);
    free(path);
    if (!lines) return REIN_OK;
    return rein_fail(err, REIN_EINVAL,
                     "%s has a history and no checkpoint: put one of its checkpoints back, or begin a new run under another name",
                     rein_path_show(shown, s->directory));
}

/* What the checkpoint that the run resumes from, or that it is forked from, says of its files. */
static rein_status read_record(rein_session *s, rein_error *err) {
    rein_run *run;
    json_t *state = NULL;
    if (s->is_new && !s->fork.run) return REIN_OK;
    rein_status status = rein_run_open(&run, s->fork.run ? s->fork.run : s->directory, REIN_RUN_READ, err);
    if (status == REIN_EINVAL && !s->fork.run) return check_not_lost(s, 0, err); /* it has no checkpoints */
    if (status) return status;
    if (s->fork.run) status = rein_state_read(&state, run, s->fork.step, err);
    else status = check_not_lost(s, rein_run_checkpoints(NULL, run), err);
    if (!status && !state) status = rein_state_newest(&state, run, err);
    s->recorded = json_incref(json_object_get(state, "files"));
    json_decref(state);
    rein_run_close(run);
    return status;
}

static rein_status check_files(rein_session *s, const rein_settings *given, rein_error *err) {
    const char *skipped[N_NAMED + 1] = {NULL};
    rein_status status = rein_fingerprint_settings(&s->files, &s->settings, err);
    if (!status) status = read_record(s, err);
    if (status || s->allowed & REIN_ALLOW_CHANGED || (s->is_new && !s->fork.run)) return status;
    choose_skipped(skipped, s, given);
    if (!s->recorded) return check_moved(s, given, err);
    return rein_fingerprint_advise(rein_fingerprint_compare(s->recorded, s->files, &s->settings, skipped, err), err);
}

rein_status rein_session_add_file(rein_session *s, const char *name, const char *path, rein_error *err) {
    rein_status status = rein_session_expect(s, REIN_SESSION_PREPARED, err);
    if (!status) status = rein_fingerprint_add(s->files, name, path, err);
    if (status || !s->recorded || s->allowed & REIN_ALLOW_CHANGED) return status;
    return rein_fingerprint_advise(rein_fingerprint_compare(s->recorded, s->files, &s->settings, NULL, err), err);
}

rein_status rein_session_keep_text(rein_session *s, const char *name, const char *text, rein_error *err) {
    rein_status status = rein_session_expect(s, REIN_SESSION_PREPARED, err);
    if (status) return status;
    free(s->text_name);
    free(s->text);
    s->text_name = strdup(name);
    s->text = strdup(text);
    return s->text_name && s->text ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for %s", name);
}

/* ---------------------------------------------------------------------------------------------------------------------- policy */

enum { MODULES = 16 };

static rein_status new_adapter(rein_session *s, rein_error *err) {
    const char *modules[MODULES];
    rein_lora_options o = {.rank = s->settings.lora_rank,
                           .alpha = s->settings.lora_alpha,
                           .rank_stabilized = s->settings.use_rslora,
                           .modules = modules,
                           .seed = (uint64_t)s->settings.seed,
                           .score = s->settings.has_score ? REIN_SCORE_RANDOM : REIN_SCORE_NONE};
    char *text = strdup(s->settings.lora_modules);
    rein_status status = text ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for the names of modules");
    for (char *rest = text, *name; !status && (name = strtok_r(rest, ", ", &rest));) {
        if (o.n_modules < MODULES) modules[o.n_modules++] = name;
        else status = rein_fail_at(err, REIN_EINVAL, "lora_modules", -1, "names more than %d modules", MODULES);
    }
    if (!status) status = rein_adapter_new(&s->adapter, s->model, &o, err);
    free(text);
    return status;
}

/* Where a setting names a directory, there must be one. */
static rein_status check_directory(const char *name, const char *path, const char *holds, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    const int model = !strcmp(name, "model") || !strcmp(name, "teacher");
    if (!*path || rein_file_is_directory(path) || (model && rein_model_is_gguf(path))) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, name, -1,
                        "is \"%s\", which is not a directory: a local directory with %s is needed (nothing is downloaded)",
                        rein_path_show(shown, path), holds);
}

static rein_status check_directories(const rein_settings *o, rein_error *err) {
    static const char adapter[] = "adapter_config.json and safetensors", model[] = "config.json and safetensors, or a GGUF file,";
    rein_status status = check_directory("model", o->model, model, err);
    if (!status) status = check_directory("teacher", o->teacher, model, err);
    if (!status) status = check_directory("adapter", o->adapter, adapter, err);
    return status ? status : check_directory("kl_ref_adapter_path", o->kl_ref_adapter_path, adapter, err);
}

/* A reward model has the score head of its files or, if they are a language model's, a new one: the model's if all weights train, else the
 * adapter's. */
static rein_score_head score_head(const rein_settings *o) {
    if (o->has_score && rein_model_is_reward(o->model)) return REIN_SCORE_STORED;
    return o->has_score && o->full ? REIN_SCORE_RANDOM : REIN_SCORE_NONE;
}

static rein_status check_adapter(const rein_session *s, rein_error *err) {
    const rein_settings *o = &s->settings;
    if (o->has_score && strstr(o->lora_modules, "lm_head"))
        return rein_fail_at(err, REIN_EINVAL, "lora_modules", -1, "names lm_head, which a reward model does not use");
    if (!s->adapter || rein_adapter_describe(s->adapter).score == o->has_score) return REIN_OK;
    if (!o->has_score)
        return rein_fail_at(err, REIN_EINVAL, "adapter", -1,
                            "is that of a reward model (task_type SEQ_CLS): it has scores and no log-probs");
    return rein_fail_at(err, REIN_EINVAL, "adapter", -1,
                        "has no score head: a reward model begins with an adapter of task_type SEQ_CLS, or with a new one");
}

static rein_status open_policy(rein_session *s, rein_error *err) {
    const rein_settings *o = &s->settings;
    const rein_model_options how = {.train = o->full,
                                    .exec = s->exec,
                                    .quantize = *o->quantize ? o->quantize : NULL,
                                    .score = score_head(o),
                                    .score_seed = (uint64_t)o->seed};
    rein_trainer_options trainer = {
        o->temperature, (size_t)o->shards, (size_t)o->share_limit, o->no_sharing, o->recompute, s->exec, NULL};
    rein_status status = rein_model_open(&s->model, o->model, &how, err);
    if (!status && !o->full) status = *o->adapter ? rein_adapter_open(&s->adapter, s->model, o->adapter, err) : new_adapter(s, err);
    if (!status) status = check_adapter(s, err);
    if (!status && o->activation_cache)
        status = rein_activation_cache_open(&s->activation_cache, (size_t)o->activation_cache * 1000000, o->recompute, err);
    trainer.activation_cache = s->activation_cache;
    if (!status) status = rein_trainer_open(&s->trainer, s->model, s->adapter, &trainer, err);
    if (!status) rein_trainer_set_ranks(s->trainer, s->ranks);
    if (!status && *o->critic) status = rein_critic_open(&s->critic, o, s->model, &trainer, err);
    if (s->critic) rein_trainer_set_ranks(s->critic->trainer, s->ranks);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------- reference */

/* A run that is new, or was stopped before its first checkpoint, begins with that of step 0. */
rein_status rein_session_check_reference(const rein_session *s, const rein_settings *settings, rein_error *err) {
    static const char field[] = "kl_penalty_reference_step";
    const int64_t step = settings->kl_penalty_reference_step;
    rein_run *run = NULL;
    if (step < 0) return REIN_OK;
    rein_status status = s->is_new && !s->run ? REIN_OK : rein_run_open(&run, s->directory, REIN_RUN_READ, err);
    if (!status && run && rein_run_checkpoints(NULL, run)) status = rein_run_check_step(run, step, field, err);
    else if (!status && step > 0)
        status = rein_fail_at(err, REIN_EINVAL, field, -1, "is %lld: the run has no checkpoint of step %lld; it has 0",
                              (long long)step, (long long)step);
    rein_run_close(run);
    return status;
}

static rein_status open_reference(rein_session *s, rein_error *err) {
    const char *path = s->settings.kl_ref_adapter_path;
    rein_status status = rein_session_check_reference(s, &s->settings, err);
    if (status || !*path || (status = rein_adapter_open(&s->reference_adapter, s->model, path, err))) return status;
    if (!rein_adapter_describe(s->reference_adapter).score) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "kl_ref_adapter_path", -1,
                        "is the adapter of a reward model (task_type SEQ_CLS): it has scores and no log-probs");
}

/* ---------------------------------------------------------------------------------------------------------------------- prepare */

static rein_status new_session(rein_session **session, const char *directory, const rein_fork *from, rein_error *err) {
    rein_session *s = *session = calloc(1, sizeof *s);
    if (!s) return rein_fail(err, REIN_ENOMEM, "no memory for a session");
    rein_settings_init(&s->settings);
    s->reference_step = s->saved = -1;
    s->multiplier = s->kl_coef = NAN;
    s->is_new = !rein_run_exists(directory);
    s->directory = strdup(directory);
    if (from) s->fork = (rein_fork){strdup(from->run), from->step};
    if (!s->directory || (from && !s->fork.run)) return rein_fail(err, REIN_ENOMEM, "no memory for a path");
    return REIN_OK;
}

static int decides_what_stays(const rein_settings *given) {
    static const char *const names[] = {"keep_last", "keep_best", "kl_penalty_reference_step", "kl_penalty_step_lag"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (rein_settings_given(given, names[i])) return 1;
    return 0;
}

static rein_status prepare(rein_session *s, const rein_settings *given, rein_error *err) {
    rein_status status = rein_run_check_place(s->directory, err);
    s->allowed = given->allowed;
    s->ranks = given->ranks;
    s->keeps_rule = !decides_what_stays(given);
    if (!status) status = resolve_settings(s, given, err);
    if (!status) status = place_programs(&s->settings, given, err);
    if (!status) status = rein_exec_resolve(&s->exec, &(rein_exec){(int)s->settings.threads, given->isa}, REIN_SERIAL, err);
    if (!status) status = check_directories(&s->settings, err);
    if (!status) status = open_policy(s, err);
    if (!status) status = open_reference(s, err);
    if (!status) status = rein_session_open_teacher(s, err);
    return status ? status : check_files(s, given, err);
}

rein_status rein_session_prepare_loop(rein_session **session, const char *directory, const rein_fork *from,
                                      const rein_settings *settings, rein_error *err) {
    rein_status status = new_session(session, directory, from, err);
    if (!status) status = prepare(*session, settings, err);
    if (status) {
        rein_session_close(*session);
        *session = NULL;
    }
    return status;
}

/* A session that trains on given groups does not sample: settings of sampling have no effect, except the format and date of messages. */
static rein_status check_no_loop(const rein_settings *settings, rein_error *err) {
    static const char *const stages[] = {"task", "rollout", "evaluation"};
    const rein_setting_info *info;
    for (size_t i = 0; (info = rein_setting_at(i)); i++)
        for (size_t k = 0; k < 3 && settings->given[i]; k++)
            if (!strcmp(info->stage, stages[k]) && strcmp(info->name, "chat_format") != 0 && strcmp(info->name, "date") != 0)
                return rein_fail_at(err, REIN_EINVAL, info->name, -1,
                                    "has no effect: nothing is sampled where the groups are given");
    return REIN_OK;
}

rein_status rein_session_prepare(rein_session **session, const char *directory, const rein_fork *from,
                                 const rein_settings *settings, rein_error *err) {
    *session = NULL;
    const rein_status status = check_no_loop(settings, err);
    return status ? status : rein_session_prepare_loop(session, directory, from, settings, err);
}

rein_status rein_session_set_total_steps(rein_session *s, int64_t steps, rein_error *err) {
    char text[32];
    rein_status status = rein_session_expect(s, REIN_SESSION_PREPARED, err);
    if (status) return status;
    snprintf(text, sizeof text, "%lld", (long long)steps);
    status = rein_settings_set(&s->settings, "total_steps", text, err);
    return status ? status : rein_settings_check(&s->settings, err);
}
