/* session_change.c - what may change between the steps of a session: its settings, and which checkpoints there are. */
#include <stdlib.h>
#include <string.h>

#include "session.h"
#include "settings.h"

/* ---------------------------------------------------------------------------------------------------------------------- settings */

/* What a step reads. Everything else was used when the session was opened. */
static int may_change(const rein_setting_info *info) {
    if (!strcmp(info->name, "teacher")) return 0;
    return !strcmp(info->stage, "optimizer") || !strcmp(info->stage, "reference") || !strcmp(info->name, "keep_last") ||
           !strcmp(info->name, "keep_best");
}

static rein_status check_same(const rein_settings *before, const rein_settings *now, const rein_setting_info *info,
                              rein_error *err) {
    rein_text a = {0}, b = {0};
    rein_status status = rein_settings_get(&a, before, info->name, err);
    if (!status) status = rein_settings_get(&b, now, info->name, err);
    if (!status && strcmp(a.data, b.data) != 0)
        status = rein_fail_at(err, REIN_EINVAL, info->name, -1,
                              "is \"%.100s\", but the session was opened with \"%.100s\": it cannot change between steps", b.data,
                              a.data);
    rein_text_free(&a);
    rein_text_free(&b);
    return status;
}

static rein_status check_change(const rein_session *s, const rein_settings *now, rein_error *err) {
    const rein_setting_info *info;
    rein_status status = REIN_OK;
    for (size_t i = 0; !status && (info = rein_setting_at(i)); i++)
        if (!may_change(info)) status = check_same(&s->settings, now, info, err);
    if (!status) status = rein_settings_check(now, err);
    return status ? status : rein_session_check_reference(s, now, err);
}

/* Log-probs of another adapter must not be taken for those of this one: neither is a checkpoint, so nothing tells them apart. */
static void forget_reference(rein_session *s, const rein_settings *now) {
    if (!strcmp(s->settings.kl_ref_adapter_path, now->kl_ref_adapter_path)) return;
    rein_reference_cache_free(s->references);
    s->references = NULL;
}

rein_status rein_session_change(rein_session *s, const rein_settings *now, rein_error *err) {
    rein_status status = rein_session_expect(s, REIN_SESSION_READY, err);
    if (!status) status = rein_session_expect_one_rank(s, "rein_session_change", err);
    if (!status) status = check_change(s, now, err);
    if (!status) status = rein_session_store(s, err); /* the run keeps those it began with */
    if (status) return status;
    forget_reference(s, now);
    rein_session_drop_reference(s);
    return rein_settings_assign(&s->settings, now, err);
}

/* ------------------------------------------------------------------------------------------------------------------- checkpoints */

static int is_in(const int64_t *steps, size_t n, int64_t step) {
    for (size_t i = 0; i < n; i++)
        if (steps[i] == step) return 1;
    return 0;
}

rein_status rein_session_delete(rein_deletion *what, rein_session *s, const int64_t *steps, size_t n, rein_error *err) {
    rein_status status = rein_session_expect(s, REIN_SESSION_READY, err);
    if (!status) status = rein_session_expect_one_rank(s, "rein_session_delete", err);
    if (status) return status;
    int64_t *needed = malloc((rein_run_checkpoints(NULL, s->run) + 1) * sizeof *needed), *gone = malloc((n + 1) * sizeof *gone);
    if (!needed || !gone) {
        free(needed);
        free(gone);
        return rein_fail(err, REIN_ENOMEM, "no memory for a list of checkpoints");
    }
    const size_t n_needed = rein_session_needed_steps(needed, s);
    size_t n_gone = 0;
    for (size_t i = 0; i < n; i++) {
        what[i] = REIN_DELETED;
        if (!rein_run_has_step(s->run, steps[i])) what[i] = REIN_DELETION_MISSING;
        else if (!steps[i] || steps[i] == s->saved || is_in(needed, n_needed, steps[i])) what[i] = REIN_DELETION_KEPT;
        else if (!is_in(gone, n_gone, steps[i])) gone[n_gone++] = steps[i];
    }
    if (s->reference_step >= 0 && is_in(gone, n_gone, s->reference_step)) rein_session_drop_reference(s);
    status = rein_run_explain(s->run, rein_run_delete(s->run, gone, n_gone, err), err);
    free(needed);
    free(gone);
    return status;
}
