/* session_commit.c - a step that was trained becomes part of the run: everything that must outlast a crash, in the order that resuming relies
 * on. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "session.h"

static rein_status write_trajectories(const rein_session *s, const rein_groups *groups, rein_error *err) {
    char path[4096], name[REIN_STEP_NAME];
    const int n = snprintf(path, sizeof path, "%s/trajectories/train", s->run->directory);
    if (n < 0 || (size_t)n + 40 > sizeof path) return rein_fail(err, REIN_EINVAL, "the path of the run is too long");
    const rein_status status = rein_make_directories(path, err);
    if (status) return status;
    snprintf(path + n, sizeof path - (size_t)n, "/%s.jsonl", rein_step_name(name, s->step));
    return rein_groups_write(path, groups, REIN_GROUPS_EXACT, err);
}

static rein_status write_history(rein_session *s, const rein_session_report *report, rein_error *err) {
    rein_named_number rows[REIN_REPORT_ROWS];
    for (size_t i = 0; i < report->n; i++) rows[i] = (rein_named_number){report->names[i], report->values[i]};
    json_t *line = rein_metric_object(s->step, rows, report->n);
    if (!line || (report->nothing_to_train && json_object_set_new(line, "nothing_to_train", json_true()))) {
        json_decref(line);
        return rein_fail(err, REIN_ENOMEM, "no memory for a line of the history");
    }
    const rein_status status = rein_run_history_append(s->run, line, err);
    json_decref(line);
    return status;
}

static rein_status write_step(const rein_session_report *report, rein_session *s, const rein_groups *groups, rein_error *err) {
    rein_status status = write_trajectories(s, groups, err);
    if (!status) status = write_history(s, report, err);
    if (!status && s->step % s->settings.save_steps == 0) status = rein_session_save(s, err);
    if (!status)
        status =
            rein_tensorboard_add(s->board, s->step, rein_seconds(CLOCK_REALTIME), report->names, report->values, report->n, err);
    return status;
}

/* The report's rows stand in the arrays of the session: those of `more` go behind them. */
rein_status rein_session_commit(rein_session_report *report, rein_session *s, const rein_groups *groups,
                                const rein_named_number *more, size_t n_more, rein_error *err) {
    rein_status status = rein_session_expect(s, REIN_SESSION_TRAINED, err);
    if (status) return status;
    if (n_more > REIN_REPORT_ROWS - report->n)
        return rein_fail_at(err, REIN_EINVAL, "n_more", -1, "is %zu: %zu metrics more can be reported", n_more,
                            REIN_REPORT_ROWS - report->n);
    for (size_t i = 0; i < n_more; i++, report->n++) s->names[report->n] = more[i].name, s->values[report->n] = more[i].value;
    s->step++;
    s->state = REIN_SESSION_READY;
    status = write_step(report, s, groups, err);
    if (status) s->state = REIN_SESSION_FAILED;
    return status;
}
