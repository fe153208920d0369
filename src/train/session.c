/* session.c - how a session begins or resumes its run, and how it saves: the half that writes. session_prepare.c is the half that checks. */
#include "session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "checkpoint.h"
#include "settings.h"
#include "state.h"
#include "trainer.h"

/* ------------------------------------------------------------------------------------------------------------------ checkpoints */

static rein_status write_state(rein_session *s, const char *directory, rein_error *err) {
    char *path = rein_path_join(directory, "state.json");
    json_t *state = json_pack("{s:I, s:I, s:f, s:s}", "step", (json_int_t)s->step, "optimizer_steps",
                              (json_int_t)rein_trainer_steps(s->trainer), "tokens", s->tokens, "rein", rein_version());
    if (state && ((!isnan(s->multiplier) && json_object_set_new(state, "budget_multiplier", json_real(s->multiplier))) ||
                  (!isnan(s->kl_coef) && json_object_set_new(state, "kl_reward_coef", json_real(s->kl_coef))))) {
        json_decref(state);
        state = NULL;
    }
    rein_status status =
        path && state ? rein_state_complete(state, s->files, err) : rein_fail(err, REIN_ENOMEM, "no memory for state.json");
    if (!status) status = rein_json_file_write(path, state, err);
    json_decref(state);
    free(path);
    return status;
}

size_t rein_session_needed_steps(int64_t *needed, const rein_session *s) {
    const rein_settings *o = &s->settings;
    const int64_t *steps;
    const size_t n_steps = rein_run_checkpoints(&steps, s->run);
    size_t n = 0;
    if (o->kl_penalty_reference_step >= 0) needed[n++] = o->kl_penalty_reference_step;
    for (size_t i = 0; i < n_steps && o->kl_penalty_step_lag > 0; i++)
        if (steps[i] >= s->step - o->kl_penalty_step_lag) needed[n++] = steps[i];
    return n;
}

static rein_status retain(rein_session *s, rein_error *err) {
    const rein_settings *o = &s->settings;
    if (!o->keep_last && !*o->keep_best) return REIN_OK;
    int64_t *needed = malloc((rein_run_checkpoints(NULL, s->run) + 1) * sizeof *needed);
    if (!needed) return rein_fail(err, REIN_ENOMEM, "no memory for a list of checkpoints");
    const rein_retention rule = {o->keep_last ? o->keep_last : 1, *o->keep_best ? o->keep_best + (*o->keep_best == '-') : NULL,
                                 *o->keep_best == '-', needed, rein_session_needed_steps(needed, s)};
    int64_t best;
    const rein_status status = rein_run_retain(NULL, &best, s->run, &rule, err);
    free(needed);
    if (status || !rule.keep_best) return status;
    s->note[0] = 0;
    if (best < 0)
        snprintf(s->note, sizeof s->note,
                 "keep_best is \"%s\": no step that was saved has that metric yet, so every checkpoint stays", rule.keep_best);
    return REIN_OK;
}

static rein_status write_checkpoint(rein_session *s, rein_error *err) {
    rein_checkpoint *checkpoint;
    rein_status status = rein_checkpoint_begin(&checkpoint, s->run, s->step, err);
    if (status) return status;
    const char *directory = rein_checkpoint_directory(checkpoint);
    status = rein_trainer_save(s->trainer, directory, err);
    if (!status && s->critic) status = rein_critic_save(s->critic, directory, err);
    if (!status) status = write_state(s, directory, err);
    if (!status) return rein_checkpoint_commit(checkpoint, err);
    rein_checkpoint_abandon(checkpoint);
    return status;
}

rein_status rein_session_expect(const rein_session *s, rein_session_state state, rein_error *err) {
    if (s->state == state) return REIN_OK;
    if (s->state == REIN_SESSION_FAILED)
        return rein_fail(err, REIN_EINVAL, "the session failed in an earlier step: it can only be closed");
    if (s->state == REIN_SESSION_PREPARED)
        return rein_fail(err, REIN_EINVAL, "the run has not started: call rein_session_begin or rein_loop_begin first");
    if (state == REIN_SESSION_PREPARED) return rein_fail(err, REIN_EINVAL, "the run has started already");
    return rein_fail(err, REIN_EINVAL,
                     s->state == REIN_SESSION_TRAINED ? "the step that was trained is not committed: rein_session_commit is needed"
                                                      : "there is no step to commit: rein_session_train makes one");
}

int rein_session_writes(const rein_session *s) { return rein_ranks_rank(s->ranks) == 0; }

rein_status rein_session_expect_one_rank(const rein_session *s, const char *what, rein_error *err) {
    if (!rein_ranks_several(s->ranks)) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "%s is made for one rank, and there are %zu", what, rein_ranks_size(s->ranks));
}

/* The checkpoints that there are now, for a rank that only reads the run. */
static rein_status look_again(rein_session *s, rein_error *err) {
    rein_run_close(s->run);
    s->run = NULL;
    return rein_run_open(&s->run, s->directory, REIN_RUN_READ, err);
}

static rein_status save_step(rein_session *s, rein_error *err) {
    rein_status status = rein_run_explain(s->run, write_checkpoint(s, err), err);
    if (!status) s->saved = s->step;
    return status;
}

/* The moments of all ranks come to rank 0, which writes. */
rein_status rein_session_save(rein_session *s, rein_error *err) {
    rein_status status = rein_session_expect(s, REIN_SESSION_READY, err);
    if (status || s->saved == s->step) return status;
    status = rein_trainer_collect(s->trainer, err);
    if (!status && s->critic) status = rein_trainer_collect(s->critic->trainer, err);
    if (!status) status = rein_ranks_agree(s->ranks, rein_session_writes(s) ? save_step(s, err) : REIN_OK, err);
    if (status) return status;
    s->saved = s->step;
    if (!rein_session_writes(s)) return look_again(s, err);
    return s->step ? retain(s, err) : REIN_OK;
}

/* The history has the seconds of the steps. Checkpoints do not, so that those of a resumed run are the same. */
static rein_status add_up_seconds(rein_session *s, rein_error *err) {
    rein_run_lines *lines;
    json_t *line;
    rein_status status = rein_run_history_open(&lines, s->run, err);
    while (!status && !(status = rein_run_history_next(&line, lines, err))) {
        s->seconds += json_number_value(json_object_get(line, "step_time"));
        json_decref(line);
    }
    rein_run_history_close(lines);
    return status == REIN_END ? REIN_OK : status;
}

static void note_version(rein_session *s, const json_t *state) {
    const char *version = json_string_value(json_object_get(state, "rein"));
    if (version && strcmp(version, rein_version()) != 0 && !*s->note)
        snprintf(s->note, sizeof s->note, "the checkpoint was written by rein %.40s, and this is rein %s: results may differ",
                 version, rein_version());
}

static rein_status load(rein_session *s, rein_error *err) {
    char path[4096];
    json_t *state;
    if (rein_run_checkpoint_path(path, sizeof path - 16, s->run, s->step) >= sizeof path - 16)
        return rein_fail(err, REIN_EINVAL, "the path of the run is too long");
    rein_status status = rein_trainer_load(s->trainer, path, err);
    if (!status && s->critic) status = rein_critic_load(s->critic, path, err);
    if (status) return status;
    strcat(path, "/state.json");
    if ((status = rein_json_read(&state, path, REIN_JSON_NEEDS_OBJECT, err))) return status;
    rein_fields fields = {.object = state, .file = path, .path = "", .err = err};
    fields.status = rein_state_check(state, path, s->step, err);
    note_version(s, state);
    s->tokens = rein_fields_number_or(&fields, "tokens", -1, 0);
    s->multiplier = rein_fields_number_or(&fields, "budget_multiplier", -1, NAN);
    s->kl_coef = rein_fields_number_or(&fields, "kl_reward_coef", -1, NAN);
    json_decref(state);
    s->saved = s->step;
    s->seconds = 0;
    return fields.status ? fields.status : add_up_seconds(s, err);
}

/* A process that was killed between a checkpoint and the deletion of older ones left one too many. */
static rein_status retain_again(rein_session *s, rein_error *err) {
    char note[REIN_NOTE_SIZE];
    memcpy(note, s->note, sizeof note);
    const rein_status status = s->step && s->keeps_rule ? retain(s, err) : REIN_OK;
    if (*note) memcpy(s->note, note, sizeof note); /* what opening found is more important */
    return status;
}

static rein_status open_board(rein_session *s, rein_error *err) {
    char *path = rein_path_join(s->directory, "tensorboard");
    const rein_status status =
        path ? rein_tensorboard_open(&s->board, path, s->step + 1, err) : rein_fail(err, REIN_ENOMEM, "no memory for a path");
    free(path);
    return status;
}

/* The settings of a fork are written after its checkpoint: a run that has settings and no checkpoint begins from the model. */
static rein_status begin(int *loaded, rein_session *s, rein_error *err) {
    rein_status status = s->fork.run ? rein_run_fork(&s->run, s->directory, s->fork.run, s->fork.step, err)
                                     : rein_run_open(&s->run, s->directory, REIN_RUN_RESUME, err);
    if (!status) status = rein_run_resume(&s->step, s->note, s->run, err);
    if (!status && s->is_new) status = rein_session_store(s, err);
    *loaded = !status && s->step >= 0;
    if (!status && s->step < 0) {
        s->step = 0;
        status = save_step(s, err);
    } else if (!status) {
        status = load(s, err);
        if (!status) status = retain_again(s, err);
        if (!status && !s->is_new) status = rein_session_relocate(s, err);
    }
    return status ? status : open_board(s, err);
}

/* A rank that does not write loads what rank 0 has loaded. */
static rein_status follow(rein_session *s, int64_t step, int loaded, rein_error *err) {
    rein_status status = rein_run_open(&s->run, s->directory, REIN_RUN_READ, err);
    s->step = s->saved = step;
    return status || !loaded ? status : load(s, err);
}

/* Ranks that were started with other settings, or read other files, would make another run. Threads and instruction sets may differ. */
static rein_status compare_settings(const rein_session *s, rein_error *err) {
    const rein_setting_info *setting;
    const rein_option_info *option;
    rein_text text = {0};
    rein_status status = REIN_OK;
    if (!rein_ranks_several(s->ranks)) return REIN_OK;
    for (size_t i = 0; !status && (setting = rein_setting_at(i)); i++) {
        if (!strcmp(setting->name, "threads")) continue;
        rein_text_put(&text, setting->name);
        status = rein_settings_get(&text, &s->settings, setting->name, err);
    }
    for (size_t i = 0; !status && (option = rein_option_at(i)); i++) {
        rein_text_put(&text, option->name);
        status = rein_settings_get(&text, &s->settings, option->name, err);
    }
    char *files = s->files ? json_dumps(s->files, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    rein_text_format(&text, "%s %s %d", rein_version(), files ? files : "", s->is_new);
    if (!status) status = rein_text_status(&text, err);
    status = rein_ranks_agree(s->ranks, status, err);
    if (!status) status = rein_ranks_compare(s->ranks, rein_hash(text.data, text.length), "the settings or the files", err);
    free(files);
    rein_text_free(&text);
    return status;
}

/* Nothing is written before all ranks have checked what they were given. */
static rein_status begin_together(rein_session *s, rein_error *err) {
    struct {
        int64_t step;
        int64_t loaded;
    } place = {0, 0};
    int loaded = 0;
    rein_status status = compare_settings(s, err);
    if (!status) status = rein_ranks_agree(s->ranks, rein_session_writes(s) ? begin(&loaded, s, err) : REIN_OK, err);
    place.step = s->step, place.loaded = loaded;
    if (!status) status = rein_ranks_tell(s->ranks, &place, sizeof place, err);
    if (!status && !rein_session_writes(s)) status = follow(s, place.step, place.loaded != 0, err);
    status = rein_ranks_agree(s->ranks, status, err);
    if (!status) status = rein_trainer_compare(s->trainer, err);
    return status || !s->critic ? status : rein_trainer_compare(s->critic->trainer, err);
}

rein_status rein_session_begin(rein_session *s, rein_error *err) {
    rein_status status = rein_session_expect(s, REIN_SESSION_PREPARED, err);
    if (status) return status;
    s->state = REIN_SESSION_READY;
    status = begin_together(s, err);
    if (status) s->state = REIN_SESSION_FAILED;
    else rein_session_budget_start(s);
    return status;
}

rein_status rein_session_revert(rein_session *s, rein_error *err) {
    char note[REIN_NOTE_SIZE];
    if (s->state == REIN_SESSION_PREPARED) return rein_session_expect(s, REIN_SESSION_READY, err);
    if (s->state == REIN_SESSION_READY && s->saved == s->step) return REIN_OK;
    rein_status status = rein_session_expect_one_rank(s, "rein_session_revert", err);
    if (status) return status;
    s->state = REIN_SESSION_FAILED;
    status = rein_run_resume(&s->step, note, s->run, err);
    if (!status) status = load(s, err);
    if (status) return status;
    rein_tensorboard_close(s->board);
    s->board = NULL;
    if ((status = open_board(s, err))) return status;
    rein_session_budget_start(s);
    s->state = REIN_SESSION_READY;
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------- open and close */

rein_status rein_session_fork(rein_session **session, const char *directory, const rein_fork *from, const rein_settings *settings,
                              rein_error *err) {
    rein_status status = rein_session_prepare(session, directory, from, settings, err);
    if (!status) status = rein_session_begin(*session, err);
    if (status) {
        rein_session_close(*session);
        *session = NULL;
    }
    return status;
}

rein_status rein_session_open(rein_session **session, const char *directory, const rein_settings *settings, rein_error *err) {
    return rein_session_fork(session, directory, NULL, settings, err);
}

void rein_session_close(rein_session *s) {
    if (!s) return;
    rein_session_drop_reference(s);
    rein_reference_cache_free(s->references);
    rein_model_close(s->teacher);
    rein_tensorboard_close(s->board);
    rein_run_close(s->run);
    rein_critic_close(s->critic);
    rein_trainer_close(s->trainer);
    rein_activation_cache_close(s->activation_cache);
    rein_adapter_close(s->adapter);
    rein_model_close(s->model);
    rein_settings_clear(&s->settings);
    json_decref(s->files);
    json_decref(s->recorded);
    free(s->text_name);
    free(s->text);
    free(s->directory);
    free((char *)(uintptr_t)s->fork.run);
    free(s);
}

const char *rein_session_note(const rein_session *s) { return *s->note || !s->run ? s->note : rein_run_note(s->run); }

int rein_session_is_new(const rein_session *s) { return s->is_new; }

const rein_settings *rein_session_settings(const rein_session *s) { return &s->settings; }

int64_t rein_session_step(const rein_session *s) { return s->step; }

rein_activation_cache *rein_session_activation_cache(const rein_session *s) { return s->activation_cache; }

rein_policy rein_session_policy(const rein_session *s) {
    return (rein_policy){s->model, s->adapter, rein_settings_temperature(&s->settings, s->step)};
}
