/* session_commit.c - a step that was trained becomes part of the run: everything that must outlast a crash, in the order that resuming relies
 * on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "model/activation_cache.h"
#include "origin.h"
#include "session.h"
#include "settings.h"
#include "trainer.h"

/* The settings come last: a run that has them has everything that it needs to resume. */
static rein_status write_settings(const rein_session *s, rein_error *err) {
    rein_status status = s->text ? rein_run_write_text(s->run, s->text_name, s->text, strlen(s->text), err) : REIN_OK;
    if (!status) status = rein_origin_write(s->run, err);
    if (status) return status;
    char *path = rein_path_join(s->run->directory, "config.yaml");
    status = path ? rein_settings_write(&s->settings, path, err) : rein_fail(err, REIN_ENOMEM, "no memory for a path");
    free(path);
    return status;
}

rein_status rein_session_store(rein_session *s, rein_error *err) {
    const rein_status status = s->stored || !rein_session_writes(s) ? REIN_OK : write_settings(s, err);
    if (!status) s->stored = 1;
    return status;
}

/* The file of a setting is the one that the run was made with. */
static int is_same_file(const rein_session *s, const char *name) {
    const json_t *before = json_object_get(s->recorded, name), *now = json_object_get(s->files, name);
    return before && now && json_equal(before, now);
}

/* Whether a place that differs is to be stored. Models and adapters were compared, or accepted; programs must be those of the run. */
static int moves(const rein_session *s, const rein_settings *before, const char *name) {
    const char *was = rein_settings_text(before, name), *is = rein_settings_text(&s->settings, name);
    if (!strcmp(was, is)) return 0;
    if (!strcmp(name, "model") || !strcmp(name, "adapter") || !strcmp(name, "critic")) return *was && *is;
    if (strcmp(name, "working_directory") != 0) return is_same_file(s, name);
    return !strcmp(before->reward, s->settings.reward) && !strcmp(before->task, s->settings.task) &&
           !strcmp(before->eval_task, s->settings.eval_task);
}

static rein_status move(rein_settings *before, rein_session *s, const char *name, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    const char *place = rein_settings_text(&s->settings, name);
    const size_t length = strlen(s->note);
    snprintf(s->note + length, sizeof s->note - length, "%s%s moved to %s", length ? "; " : "", name, rein_path_show(shown, place));
    return rein_settings_set(before, name, place, err);
}

rein_status rein_session_relocate(rein_session *s, rein_error *err) {
    static const char *const places[] = {"working_directory", "model", "adapter", "critic", "task", "eval_task", "ptx_data"};
    rein_settings before;
    int moved = 0;
    rein_settings_init(&before);
    char *path = rein_path_join(s->run->directory, "config.yaml");
    rein_status status = path ? rein_settings_read(&before, path, err) : rein_fail(err, REIN_ENOMEM, "no memory for a path");
    for (size_t i = 0; i < sizeof places / sizeof *places && !status; i++)
        if (moves(s, &before, places[i])) moved = 1, status = move(&before, s, places[i], err);
    if (!status && moved) status = rein_run_writable(s->run, err);
    if (!status && moved) status = rein_settings_write(&before, path, err);
    rein_settings_clear(&before);
    free(path);
    return status;
}

static rein_status write_trajectories(const rein_session *s, const rein_groups *groups, rein_error *err) {
    char path[4096], name[REIN_STEP_NAME];
    const int n = snprintf(path, sizeof path, "%s/trajectories/train", s->run->directory);
    if (n < 0 || (size_t)n + 40 > sizeof path) return rein_fail(err, REIN_EINVAL, "the path of the run is too long");
    rein_status status = rein_run_writable(s->run, err);
    if (!status) status = rein_make_directories(path, err);
    if (status) return status;
    snprintf(path + n, sizeof path - (size_t)n, "/%s.jsonl", rein_step_name(name, s->step));
    return rein_groups_write(path, groups, REIN_GROUPS_EXACT, err);
}

static rein_status write_history(rein_session *s, const rein_session_report *report, rein_error *err) {
    json_t *line = rein_metric_object(s->step, report->metrics, report->n);
    if (!line || (report->nothing_to_train && json_object_set_new(line, "nothing_to_train", json_true()))) {
        json_decref(line);
        return rein_fail(err, REIN_ENOMEM, "no memory for a line of the history");
    }
    const rein_status status = rein_run_history_append(s->run, line, err);
    json_decref(line);
    return status;
}

static rein_status write_lines(const rein_session_report *report, rein_session *s, const rein_groups *groups, rein_error *err) {
    if (!rein_session_writes(s)) return REIN_OK;
    const rein_status status = write_trajectories(s, groups, err);
    return status ? status : write_history(s, report, err);
}

/* Weights that are not those of all ranks are not written. */
static rein_status write_step(const rein_session_report *report, rein_session *s, const rein_groups *groups, rein_error *err) {
    rein_status status = rein_trainer_compare(s->trainer, err);
    if (!status && s->critic) status = rein_trainer_compare(s->critic->trainer, err);
    if (!status) status = rein_ranks_agree(s->ranks, write_lines(report, s, groups, err), err);
    if (!status && s->step % s->settings.save_steps == 0) status = rein_session_save(s, err);
    if (!status && rein_session_writes(s))
        status = rein_tensorboard_add(s->board, s->step, rein_seconds(CLOCK_REALTIME), report->metrics, report->n, err);
    return status;
}

/* The metrics of the report are in the array of the session: `more` is appended to them. */
rein_status rein_session_commit(rein_session_report *report, rein_session *s, const rein_groups *groups,
                                const rein_named_number *more, size_t n_more, rein_error *err) {
    rein_status status = rein_session_expect(s, REIN_SESSION_TRAINED, err);
    if (status) return status;
    if (n_more > REIN_REPORT_ROWS - report->n)
        return rein_fail_at(err, REIN_EINVAL, "n_more", -1, "is %zu: %zu metrics more can be reported", n_more,
                            REIN_REPORT_ROWS - report->n);
    for (size_t i = 0; i < n_more; i++) s->metrics[report->n++] = more[i];
    s->step++;
    s->state = REIN_SESSION_READY;
    if (report->nothing_to_train) rein_activation_cache_clear(s->activation_cache); /* a policy that changes does it by itself */
    status = rein_run_explain(s->run, write_step(report, s, groups, err), err);
    if (status) s->state = REIN_SESSION_FAILED;
    return status;
}
