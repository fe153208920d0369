/* session_pairs.c - what a step on preferences needs besides the pass of the trainer (preferences.c): the KL of kto, and the metrics.
 *
 * The KL of kto needs log-probs of completions that belong to other prompts. They are computed in a pass of their own, without a backward
 * pass, and never become a file. */
#include "session_pairs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "rollout/trajectory.h"
#include "session.h"

/* ------------------------------------------------------------------------------------------------------------ mismatched pairs */

static size_t prompt_of(const rein_history *h) {
    size_t n = 0;
    while (n < h->n && !h->mask[n]) n++;
    return n;
}

/* The prompt, then the tokens of `completion` from `from` on, as many as the model has positions for. */
static rein_status join(rein_trajectory *t, const rein_history *prompt, const rein_history *completion, size_t from,
                        size_t positions, rein_error *err) {
    rein_history h = {0};
    const size_t n = prompt_of(prompt), room = positions > n ? positions - n : 0;
    const size_t rest = completion->n - from < room ? completion->n - from : room;
    rein_status status = rein_history_extend(&h, prompt->ids, NULL, n, 0, err);
    for (size_t k = from; k < from + rest && !status; k++)
        status = rein_history_extend(&h, completion->ids + k, NULL, 1, completion->mask[k], err);
    if (!status) status = rein_trajectory_append(t, &h, err);
    rein_history_free(&h);
    return status;
}

static rein_status mismatch(rein_trajectory *t, const rein_trajectory *prompt, const rein_trajectory *completion, size_t positions,
                            rein_error *err) {
    const size_t before = prompt_of(&completion->histories[0]);
    rein_status status = REIN_OK;
    *t = (rein_trajectory){.policy_step = -1, .budget = -1};
    for (size_t i = 0; i < completion->n_histories && !status; i++) {
        const rein_history *h = &completion->histories[i];
        const size_t own = prompt_of(h);
        status = join(t, &prompt->histories[0], h, own < before ? own : before, positions, err);
    }
    return status;
}

static rein_status mismatch_group(rein_group *group, const rein_group *prompt, const rein_group *completions, size_t positions,
                                  rein_error *err) {
    rein_status status = REIN_OK;
    *group = (rein_group){.trajectories = calloc(completions->n, sizeof(rein_trajectory))};
    if (!group->trajectories) return rein_no_memory(err);
    for (; group->n < completions->n && !status; group->n++)
        status = mismatch(&group->trajectories[group->n], &prompt->trajectories[0], &completions->trajectories[group->n], positions,
                          err);
    return status;
}

static rein_status mismatch_all(rein_groups *all, const rein_groups *groups, size_t positions, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t g = 0; g < groups->n && !status; g++) {
        rein_group group;
        status = mismatch_group(&group, &groups->groups[g], &groups->groups[(g + 1) % groups->n], positions, err);
        if (!status) status = rein_groups_append(all, &group, err);
        rein_group_free(&group);
    }
    return status;
}

/* ----------------------------------------------------------------------------------------------------------------------- the KL */

static size_t trajectories_of(const rein_groups *groups) {
    size_t n = 0;
    for (size_t g = 0; g < groups->n; g++) n += groups->groups[g].n;
    return n;
}

/* Both are 0 where nothing trains. The sum of a trajectory comes first, as in preferences.c. */
static double mean_gap(const float *log_probs, const float *reference, const rein_groups *groups) {
    double sum = 0;
    for (size_t g = 0, at = 0; g < groups->n; g++)
        for (size_t k = 0; k < groups->groups[g].n; k++) {
            const rein_trajectory *t = &groups->groups[g].trajectories[k];
            double s = 0, ref = 0;
            for (size_t i = 0; i < t->n_histories; at += t->histories[i++].n)
                for (size_t j = 0; j < t->histories[i].n; j++) s += (double)log_probs[at + j], ref += (double)reference[at + j];
            sum += s - ref;
        }
    return sum / (double)trajectories_of(groups);
}

/* The order of an epoch decides which completions meet which prompts, so the reference cache would hardly find one again. */
static rein_status kl_of(double *kl, rein_session *s, const rein_groups *mismatched, const rein_policy *policy, rein_error *err) {
    const size_t tokens = rein_groups_tokens(mismatched);
    float *log_probs = malloc((tokens + 1) * sizeof *log_probs), *reference = malloc((tokens + 1) * sizeof *reference);
    rein_policy reference_policy;
    rein_status status =
        log_probs && reference ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for the log-probs of %zu tokens", tokens);
    if (!status) status = rein_session_reference_policy(&reference_policy, s, policy->temperature, err);
    if (!status) status = rein_trainer_log_probs(reference, NULL, s->trainer, &reference_policy, mismatched, err);
    if (!status) status = rein_trainer_log_probs(log_probs, NULL, s->trainer, policy, mismatched, err);
    if (!status) *kl = mean_gap(log_probs, reference, mismatched);
    free(log_probs);
    free(reference);
    return status;
}

rein_status rein_pairs_kl(double *kl, rein_session *s, const rein_groups *groups, const rein_policy *policy, rein_error *err) {
    const int64_t positions = rein_model_describe(s->model).max_positions;
    rein_groups mismatched = {0};
    *kl = 0;
    if (groups->n < 2) return REIN_OK;
    rein_status status = mismatch_all(&mismatched, groups, positions > 0 ? (size_t)positions : SIZE_MAX, err);
    if (!status) status = kl_of(kl, s, &mismatched, policy, err);
    rein_groups_free(&mismatched);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------------- metrics */

/* What is measured of the surrogate and of ratios says nothing about pairs. */
int rein_pairs_lack(const char *name) {
    static const char *const parts[] = {"loss/", "kl/", "clip_ratio/", "ratio/"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strncmp(name, parts[i], strlen(parts[i]))) return 1;
    return 0;
}

size_t rein_rows_of_pairs(rein_named_number *rows, size_t n, int has_rewards) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!rein_pairs_lack(rows[i].name) && (has_rewards || strcmp(rows[i].name, "frac_reward_zero_std") != 0))
            rows[kept++] = rows[i];
    return kept;
}

size_t rein_pairs_rows(rein_named_number *rows, size_t n, const rein_pairs_step *step) {
    const rein_preference_metrics *m = &step->metrics;
    const rein_named_number all[] = {{"rewards/chosen", m->rewards_chosen},
                                     {"rewards/rejected", m->rewards_rejected},
                                     {"rewards/margins", m->rewards_margins},
                                     {"rewards/accuracies", m->rewards_accuracies},
                                     {"logps/chosen", m->logps_chosen},
                                     {"logps/rejected", m->logps_rejected},
                                     {"kl", step->kl > 0 ? step->kl : 0 * step->kl},
                                     {"pairs", step->pairs},
                                     {"pairs/ties", step->ties}};
    size_t kept = rein_rows_of_pairs(rows, n, !isnan(step->pairs));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!isnan(all[i].value)) rows[kept++] = all[i];
    return kept;
}
