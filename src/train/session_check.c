/* session_check.c - whether a step can be made of groups: the ids and lengths that the model can take, and what the objective needs. */
#include <stdio.h>

#include "session.h"
#include "trainer.h"

static rein_status check_history(const rein_model_info *info, const rein_history *h, const size_t at[3], rein_error *err) {
    char path[100];
    snprintf(path, sizeof path, "groups[%zu].trajectories[%zu].histories", at[0], at[1]);
    if (h->n > (size_t)info->max_positions)
        return rein_fail_at(err, REIN_EINVAL, path, (int64_t)at[2], "has %zu tokens: the model has %lld positions", h->n,
                            (long long)info->max_positions);
    for (size_t k = 0; k < h->n; k++)
        if (h->ids[k] < 0 || h->ids[k] >= info->vocabulary)
            return rein_fail_at(err, REIN_EINVAL, path, (int64_t)at[2], ": token %zu is %ld: the model's tokens are 0 to %lld", k,
                                (long)h->ids[k], (long long)info->vocabulary - 1);
    return REIN_OK;
}

static rein_status check_model(const rein_model *model, const rein_groups *groups, rein_error *err) {
    const rein_model_info info = rein_model_describe(model);
    rein_status status = REIN_OK;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++)
            for (size_t i = 0; i < groups->groups[g].trajectories[t].n_histories && !status; i++)
                status = check_history(&info, &groups->groups[g].trajectories[t].histories[i], (const size_t[]){g, t, i}, err);
    return status;
}

rein_status rein_session_check_minibatches(const rein_session *s, size_t n_groups, rein_error *err) {
    if ((size_t)s->settings.minibatches <= n_groups) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "minibatches", -1, "is %lld: there are only %zu groups",
                        (long long)s->settings.minibatches, n_groups);
}

rein_status rein_session_check(rein_loss *loss, const rein_session *s, const rein_groups *groups, const char *name,
                               rein_error *err) {
    rein_status status = check_model(s->model, groups, err);
    if (status) return rein_fail_in(err, status, "%s", name);
    status = rein_session_check_minibatches(s, groups->n, err);
    if (status) return status;
    const rein_pass_options options = {.objective = &s->settings.objective,
                                       .policy_step = -1,
                                       .mask_truncated_completions = s->settings.mask_truncated_completions};
    return rein_trainer_check(loss, s->trainer, groups, &options, err);
}
