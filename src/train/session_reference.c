/* session_reference.c - the reference policy: a checkpoint by its step or its lag, an adapter, or the initial policy of the run. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "session.h"
#include "settings.h"

enum { MOST_REFERENCES = 64 << 20 }; /* bytes: log-probs, ids and masks of 7 million tokens */

void rein_session_drop_reference(rein_session *s) {
    rein_adapter_close(s->reference_adapter);
    rein_model_close(s->reference_model);
    s->reference_adapter = NULL;
    s->reference_model = NULL;
    s->reference_step = -1;
}

static rein_status check_step(const rein_session *s, int64_t step, rein_error *err) {
    char shown[300];
    if (rein_run_has_step(s->run, step)) return rein_checkpoint_verify(s->run, step, err);
    const int64_t lag = s->settings.kl_penalty_step_lag;
    if (!lag) return rein_run_check_step(s->run, step, "kl_penalty_reference_step", err);
    return rein_fail_at(err, REIN_EINVAL, "kl_penalty_step_lag", -1, "is %lld: the run has no checkpoint of step %lld; it has %s",
                        (long long)lag, (long long)step, rein_run_show_steps(shown, sizeof shown, s->run));
}

/* A checkpoint holds an adapter, or a whole model. */
static rein_status load_step(rein_session *s, int64_t step, rein_error *err) {
    char path[4096];
    if (s->reference_step == step) return REIN_OK;
    rein_session_drop_reference(s);
    rein_status status = check_step(s, step, err);
    if (status) return status;
    if (rein_run_checkpoint_path(path, sizeof path, s->run, step) >= sizeof path)
        return rein_fail(err, REIN_EINVAL, "the path of checkpoint %lld is too long", (long long)step);
    if (s->adapter) status = rein_adapter_open(&s->reference_adapter, s->model, path, err);
    else status = rein_model_open(&s->reference_model, path, &(rein_model_options){.exec = s->exec}, err);
    if (!status) s->reference_step = step;
    return status;
}

rein_status rein_session_first_policy(rein_policy *policy, rein_model **model, rein_adapter **adapter, const rein_session *s,
                                      double temperature, rein_error *err) {
    char path[4096];
    *model = NULL, *adapter = NULL;
    if (rein_run_checkpoint_path(path, sizeof path, s->run, 0) >= sizeof path)
        return rein_fail(err, REIN_EINVAL, "the path of checkpoint 0 is too long");
    const rein_status status = s->adapter ? rein_adapter_open(adapter, s->model, path, err)
                                          : rein_model_open(model, path, &(rein_model_options){.exec = s->exec}, err);
    *policy = (rein_policy){*model ? *model : s->model, *adapter, temperature};
    return status;
}

rein_status rein_session_reference_policy(rein_policy *policy, rein_session *s, double temperature, rein_error *err) {
    const rein_settings *o = &s->settings;
    const int64_t step = s->step;
    rein_status status = REIN_OK;
    int64_t from = -1; /* a checkpoint */
    if (o->kl_penalty_reference_step >= 0) from = o->kl_penalty_reference_step;
    else if (o->kl_penalty_step_lag > 0) from = step > o->kl_penalty_step_lag ? step - o->kl_penalty_step_lag : 0;
    else if (!s->adapter) from = 0;
    if (from >= 0) status = load_step(s, from, err);
    else if (*o->kl_ref_adapter_path && !s->reference_adapter)
        status = rein_adapter_open(&s->reference_adapter, s->model, o->kl_ref_adapter_path, err);
    *policy = (rein_policy){s->reference_model ? s->reference_model : s->model, s->reference_adapter, temperature};
    return status;
}

/* The step of its checkpoint identifies a reference: checkpoints are never replaced, and another reference (the base, an adapter from
 * elsewhere) stays the same as long as the session lives. */
rein_status rein_session_reference_log_probs(float *log_probs, rein_session *s, double temperature, const rein_groups *groups,
                                             rein_error *err) {
    rein_policy policy;
    if (!s->references) s->references = rein_reference_cache_new(MOST_REFERENCES);
    if (!s->references) return rein_fail(err, REIN_ENOMEM, "no memory for log-probs of the reference");
    const rein_status status = rein_session_reference_policy(&policy, s, temperature, err);
    if (status) return status;
    return rein_reference_cache_log_probs(log_probs, s->references, s->trainer, &policy, s->reference_step, groups, err);
}
