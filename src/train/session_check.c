/* session_check.c - whether a step can be made of groups: the ids and lengths that the model can take, and what the objective needs. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "online_pairs.h"
#include "rollout/trajectory.h"
#include "session.h"
#include "trainer.h"

rein_status rein_session_check_minibatches(const rein_session *s, size_t n_groups, rein_error *err) {
    if ((size_t)s->settings.minibatches <= n_groups) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "minibatches", -1, "is %lld: there are only %zu groups",
                        (long long)s->settings.minibatches, n_groups);
}

rein_status rein_session_check(rein_loss *loss, const rein_session *s, const rein_groups *groups, const char *name,
                               rein_error *err) {
    const rein_groups_use use = {.model = s->model, .mask_truncated = s->settings.mask_truncated_completions};
    rein_status status = rein_groups_check(groups, &use, err);
    if (status) return rein_fail_in(err, status, "%s", name);
    status = rein_session_check_minibatches(s, groups->n, err);
    if (status) return status;
    float *values =
        s->critic ? calloc(rein_groups_tokens(groups) + 1, sizeof *values) : NULL; /* what the critic will say is not known */
    if (s->critic && !values) return rein_no_memory(err);
    const rein_options measure = rein_online_measure(&s->settings.objective);
    const rein_pass_options options = {.objective = s->settings.objective.preference_loss ? &measure : &s->settings.objective,
                                       .policy_step = -1,
                                       .mask_truncated_completions = s->settings.mask_truncated_completions,
                                       .values = values};
    status = rein_trainer_check(loss, s->trainer, groups, &options, err);
    free(values);
    if (status && !s->critic && err && !strcmp(err->field, "values"))
        return rein_fail_at(
            err, status, "values", -1,
            "is missing: advantage gae needs a critic's values in the groups, or a critic (--critic same, --critic DIR)");
    return status;
}
