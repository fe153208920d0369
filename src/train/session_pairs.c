/* session_pairs.c - a step on pairs: the loss over preferences becomes a weight of each trajectory.
 *
 * The loss L depends on the sums s of the log-probs of whole completions. With REINFORCE, no advantage estimator and token-sum, a trajectory
 * of reward −dL/ds has the loss −Σ_t (−dL/ds)·lp_t, whose gradient at each of its tokens is dL/ds: that of L. So the pass of every other
 * step computes the gradient, and the loss and the metrics are those of the pairs. */
#include "session_pairs.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "rollout/trajectory.h"
#include "session.h"

enum { COLUMNS = 6 }; /* of doubles, a number a pair: s, reference, gradient; of chosen, then of rejected */

int rein_preference_uses_reference(const rein_preference_options *o) {
    for (size_t i = 0; rein_preference_at(i); i++)
        if (rein_preference_at(i)->loss == o->loss) return rein_preference_at(i)->uses_reference;
    return 0;
}

rein_status rein_pairs_objective(rein_options *objective, rein_error *err) {
    const rein_status status = rein_options_init(objective, NULL, err);
    objective->aggregation = REIN_TOKEN_SUM;
    return status;
}

/* The sum over the trained tokens of a trajectory, whose arrays begin at *at; moves *at behind it. */
static double sum_of(const rein_trajectory *t, const float *log_probs, size_t *at, int64_t *length) {
    double sum = 0;
    *length = 0;
    for (size_t i = 0; i < t->n_histories; i++) {
        const rein_history *h = &t->histories[i];
        for (size_t k = 0; k < h->n; k++)
            if (h->mask[k]) sum += (double)log_probs[*at + k], ++*length;
        *at += h->n;
    }
    return sum;
}

static void sum_up(double *columns, int64_t *lengths, const rein_groups *groups, const float *log_probs, const float *reference) {
    const size_t n = groups->n;
    size_t at = 0;
    for (size_t g = 0; g < n; g++)
        for (size_t k = 0; k < 2; k++) {
            const rein_trajectory *t = &groups->groups[g].trajectories[k];
            size_t same = at;
            if (reference) columns[(2 + k) * n + g] = sum_of(t, reference, &same, &lengths[k * n + g]);
            columns[k * n + g] = sum_of(t, log_probs, &at, &lengths[k * n + g]);
        }
}

static rein_status check_pairs(const rein_groups *groups, rein_error *err) {
    for (size_t g = 0; g < groups->n; g++)
        if (groups->groups[g].n != 2)
            return rein_fail_at(err, REIN_EINVAL, "groups", (int64_t)g,
                                "has %zu trajectories: a pair has two, the chosen one and the rejected one", groups->groups[g].n);
    return REIN_OK;
}

static rein_status weigh(rein_pairs_step *step, double *columns, int64_t *lengths, rein_groups *groups, const float *log_probs,
                         const float *reference, const rein_preference_options *options, rein_error *err) {
    const size_t n = groups->n;
    sum_up(columns, lengths, groups, log_probs, reference);
    const rein_pairs pairs = {n, columns, columns + n, columns + 2 * n, columns + 3 * n, lengths, lengths + n};
    const rein_status status =
        rein_preference_loss(&step->loss, columns + 4 * n, columns + 5 * n, &step->metrics, &pairs, options, err);
    for (size_t g = 0; g < n && !status; g++)
        for (size_t k = 0; k < 2; k++) groups->groups[g].trajectories[k].reward = -columns[(4 + k) * n + g];
    return status;
}

rein_status rein_pairs_weigh(rein_pairs_step *step, rein_session *s, rein_groups *groups, const rein_policy *policy,
                             const float *reference, const rein_preference_options *options, rein_error *err) {
    const size_t tokens = rein_groups_tokens(groups);
    rein_status status = check_pairs(groups, err);
    if (status) return status;
    float *log_probs = malloc((tokens + 1) * sizeof *log_probs);
    double *columns = calloc(groups->n * COLUMNS + 1, sizeof *columns);
    int64_t *lengths = calloc(groups->n * 2 + 1, sizeof *lengths);
    status = log_probs && columns && lengths ? REIN_OK
                                             : rein_fail(err, REIN_ENOMEM, "no memory for the log-probs of %zu tokens", tokens);
    if (!status) status = rein_trainer_log_probs(log_probs, NULL, s->trainer, policy, groups, err);
    if (!status) status = weigh(step, columns, lengths, groups, log_probs, reference, options, err);
    free(lengths);
    free(columns);
    free(log_probs);
    return status;
}

void rein_pairs_restore(rein_groups *groups) {
    for (size_t g = 0; g < groups->n; g++)
        for (size_t k = 0; k < groups->groups[g].n; k++) groups->groups[g].trajectories[k].reward = k == 0;
}

/* What is measured of the surrogate and of ratios says nothing about pairs. */
static int is_of_the_surrogate(const char *name) {
    static const char *const parts[] = {"loss/", "kl/", "clip_ratio/", "ratio/", "frac_reward"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strncmp(name, parts[i], strlen(parts[i]))) return 1;
    return 0;
}

size_t rein_pairs_rows(rein_named_number *rows, size_t n, const rein_pairs_step *step) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!is_of_the_surrogate(rows[i].name)) rows[kept++] = rows[i];
    const rein_preference_metrics *m = &step->metrics;
    const rein_named_number all[] = {{"rewards/chosen", m->rewards_chosen},   {"rewards/rejected", m->rewards_rejected},
                                     {"rewards/margins", m->rewards_margins}, {"rewards/accuracies", m->rewards_accuracies},
                                     {"logps/chosen", m->logps_chosen},       {"logps/rejected", m->logps_rejected}};
    memcpy(rows + kept, all, sizeof all);
    return kept + sizeof all / sizeof *all;
}
