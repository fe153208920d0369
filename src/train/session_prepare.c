/* session_prepare.c - the first half of opening a session: settings, directory, model, adapter, reference and fork are read and checked;
 * nothing is written. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "session.h"
#include "settings.h"
#include "trainer.h"

/* -------------------------------------------------------------------------------------------------------------------- settings */

/* Those of the run, changed by those given now. */
static rein_status resume_settings(rein_session *s, const rein_settings *given, rein_error *err) {
    char *path = rein_path_join(s->directory, "config.yaml");
    rein_status status = path ? rein_settings_read(&s->settings, path, err) : rein_fail(err, REIN_ENOMEM, "no memory for a path");
    if (!status) status = rein_settings_change(&s->settings, given, err);
    free(path);
    return status;
}

static rein_status resolve_settings(rein_session *s, const rein_settings *given, rein_error *err) {
    if (s->fork.run) return rein_fork_settings(&s->settings, s->directory, &s->fork, given, err);
    rein_status status = s->is_new ? rein_settings_assign(&s->settings, given, err) : resume_settings(s, given, err);
    if (!status && !*s->settings.model)
        status = rein_fail_at(err, REIN_EINVAL, "model", -1, "is missing: a new run needs the directory of a model");
    return status ? status : rein_settings_check(&s->settings, err);
}

/* ---------------------------------------------------------------------------------------------------------------------- policy */

enum { MODULES = 16 };

static rein_status new_adapter(rein_session *s, rein_error *err) {
    const char *modules[MODULES];
    rein_lora_options o = {s->settings.lora_rank,     s->settings.lora_alpha, s->settings.use_rslora, modules, 0,
                           (uint64_t)s->settings.seed};
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
    if (!*path || rein_file_is_directory(path)) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, name, -1,
                        "is \"%s\", which is not a directory: a local directory with %s is needed (nothing is downloaded)",
                        rein_path_show(shown, path), holds);
}

static rein_status check_directories(const rein_settings *o, rein_error *err) {
    static const char adapter[] = "adapter_config.json and safetensors";
    rein_status status = check_directory("model", o->model, "config.json and safetensors", err);
    if (!status) status = check_directory("adapter", o->adapter, adapter, err);
    return status ? status : check_directory("kl_ref_adapter_path", o->kl_ref_adapter_path, adapter, err);
}

static rein_status open_policy(rein_session *s, rein_error *err) {
    const rein_settings *o = &s->settings;
    const rein_model_options how = {.train = o->full, .exec = s->exec};
    rein_trainer_options trainer = {
        o->temperature, (size_t)o->shards, (size_t)o->share_limit, o->no_sharing, o->recompute, s->exec, NULL};
    rein_status status = rein_model_open(&s->model, o->model, &how, err);
    if (!status && !o->full) status = *o->adapter ? rein_adapter_open(&s->adapter, s->model, o->adapter, err) : new_adapter(s, err);
    if (!status && o->activation_cache)
        status = rein_activation_cache_open(&s->activation_cache, (size_t)o->activation_cache * 1000000, o->recompute, err);
    trainer.activation_cache = s->activation_cache;
    if (!status) status = rein_trainer_open(&s->trainer, s->model, s->adapter, &trainer, err);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------- reference */

/* A run that is new, or was stopped before its first checkpoint, begins with that of step 0. */
static rein_status check_reference_step(const rein_session *s, rein_error *err) {
    const int64_t step = s->settings.kl_penalty_reference_step;
    char shown[300] = "0";
    rein_run *run = NULL;
    if (step < 0) return REIN_OK;
    rein_status status = s->is_new ? REIN_OK : rein_run_open(&run, s->directory, REIN_RUN_READ, err);
    if (status) return status;
    const int has_steps = run && rein_run_checkpoints(NULL, run);
    const int found = has_steps ? rein_run_has_step(run, step) : step == 0;
    if (has_steps) rein_run_show_steps(shown, sizeof shown, run);
    rein_run_close(run);
    if (found) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "kl_penalty_reference_step", -1,
                        "is %lld: the run has no checkpoint of step %lld; it has %s", (long long)step, (long long)step, shown);
}

static rein_status open_reference(rein_session *s, rein_error *err) {
    const char *path = s->settings.kl_ref_adapter_path;
    const rein_status status = check_reference_step(s, err);
    return status || !*path ? status : rein_adapter_open(&s->reference_adapter, s->model, path, err);
}

/* ---------------------------------------------------------------------------------------------------------------------- prepare */

static rein_status new_session(rein_session **session, const char *directory, const rein_fork *from, rein_error *err) {
    rein_session *s = *session = calloc(1, sizeof *s);
    if (!s) return rein_fail(err, REIN_ENOMEM, "no memory for a session");
    rein_settings_init(&s->settings);
    s->reference_step = s->saved = -1;
    s->multiplier = NAN;
    s->is_new = !rein_run_exists(directory);
    s->directory = strdup(directory);
    if (from) s->fork = (rein_fork){strdup(from->run), from->step};
    if (!s->directory || (from && !s->fork.run)) return rein_fail(err, REIN_ENOMEM, "no memory for a path");
    return REIN_OK;
}

static rein_status prepare(rein_session *s, const rein_settings *given, rein_error *err) {
    rein_status status = rein_run_check_place(s->directory, err);
    if (!status) status = resolve_settings(s, given, err);
    if (!status) status = rein_exec_resolve(&s->exec, &(rein_exec){(int)s->settings.threads, given->isa}, REIN_SERIAL, err);
    if (!status) status = check_directories(&s->settings, err);
    if (!status) status = open_policy(s, err);
    return status ? status : open_reference(s, err);
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

/* A session that trains on given groups does not sample: settings of sampling have no effect. */
static rein_status check_no_loop(const rein_settings *settings, rein_error *err) {
    static const char *const stages[] = {"task", "rollout", "evaluation"};
    const rein_setting_info *info;
    for (size_t i = 0; (info = rein_setting_at(i)); i++)
        for (size_t k = 0; k < 3 && settings->given[i]; k++)
            if (!strcmp(info->stage, stages[k]))
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
