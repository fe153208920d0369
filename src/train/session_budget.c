/* session_budget.c - the multiplier of the budget penalty, where budget_target is set: a session starts it, trains with it, moves it after
 * every step by dual ascent, and saves it in state.json. Elsewhere it is NaN, and the penalty is that of the settings. */
#include <math.h>
#include <stdlib.h>

#include "session.h"

void rein_session_budget_start(rein_session *s) {
    const rein_options *o = &s->settings.objective;
    if (!(s->settings.budget_target > 0 && o->shape == REIN_SHAPE_BUDGET)) s->multiplier = NAN;
    else if (isnan(s->multiplier)) s->multiplier = isnan(o->budget_penalty_coef) ? 0 : o->budget_penalty_coef;
}

void rein_session_budget_apply(rein_options *objective, const rein_session *s) {
    if (!isnan(s->multiplier)) objective->budget_penalty_coef = s->multiplier;
}

rein_status rein_session_budget_move(rein_session *s, const rein_groups *groups, rein_error *err) {
    if (isnan(s->multiplier)) return REIN_OK;
    size_t n = 0;
    for (size_t g = 0; g < groups->n; g++) n += groups->groups[g].n;
    int64_t *lengths = malloc((n ? n : 1) * sizeof *lengths), *at = lengths;
    if (!lengths) return rein_fail(err, REIN_ENOMEM, "no memory for %zu lengths", n);
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++)
            *at++ = (int64_t)rein_trajectory_length(&groups->groups[g].trajectories[t]);
    const rein_status status =
        rein_budget_control(&s->multiplier, lengths, n, s->settings.budget_target, s->settings.budget_rate, err);
    free(lengths);
    return status;
}
