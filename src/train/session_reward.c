/* session_reward.c - training and evaluating a reward model: the margins of the pairs, the pass of the trainer (trainer_scores.c), and what is
 * measured of the rewards. */
#include "session_reward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "rollout/trajectory.h"
#include "session.h"
#include "session_pairs.h"

enum { BINS = 10 };

/* ---------------------------------------------------------------------------------------------------------------------- checks */

static int is_scored_at_the_end(const rein_trajectory *t) {
    const rein_history *h = t->histories;
    if (t->n_histories != 1 || !h->n || !h->mask[h->n - 1]) return 0;
    for (size_t i = 0; i + 1 < h->n; i++)
        if (h->mask[i]) return 0;
    return 1;
}

rein_status rein_reward_pairs_check(const rein_session *s, const rein_groups *pairs, const rein_reward_training *how,
                                    rein_error *err) {
    const rein_groups_use use = {.model = s->model, .no_log_probs = 1};
    if (!s->settings.has_score)
        return rein_fail(err, REIN_EINVAL, "the policy has no score head: rein_settings_use_score makes it a reward model");
    if (!(how->center_rewards_coefficient >= 0 && isfinite(how->center_rewards_coefficient)))
        return rein_fail_at(err, REIN_EINVAL, "center_rewards_coefficient", -1, "is %g: a finite number of 0 or more is needed",
                            how->center_rewards_coefficient);
    for (size_t g = 0; g < pairs->n; g++) {
        const rein_group *pair = &pairs->groups[g];
        if (pair->n != 2 || !is_scored_at_the_end(&pair->trajectories[0]) || !is_scored_at_the_end(&pair->trajectories[1]))
            return rein_fail_at(err, REIN_EINVAL, "groups", (int64_t)g,
                                "is no pair for a reward model: two trajectories of one history, scored at the last token");
    }
    return rein_groups_check(pairs, &use, err);
}

rein_status rein_session_set_reward_form(rein_session *s, const rein_reward_form *form, rein_error *err) {
    const rein_status status = rein_session_expect(s, REIN_SESSION_PREPARED, err);
    if (!status) rein_reward_form_set(s->model, s->adapter, form);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------------ step */

static double margin_of(const rein_group *pair) {
    const rein_trajectory *chosen = pair->trajectories;
    for (size_t i = 0; i < chosen->n_metrics; i++)
        if (!strcmp(chosen->metrics[i].name, REIN_MARGIN)) return chosen->metrics[i].value;
    return 0;
}

static rein_status begin(rein_reward_step *step, const rein_groups *pairs, rein_error *err) {
    *step = (rein_reward_step){.rewards = calloc(2 * pairs->n + 1, sizeof *step->rewards),
                               .margins = calloc(pairs->n + 1, sizeof *step->margins),
                               .n = pairs->n};
    if (!step->rewards || !step->margins) return rein_fail(err, REIN_ENOMEM, "no memory for the rewards of %zu pairs", pairs->n);
    for (size_t g = 0; g < pairs->n; g++) step->margins[g] = margin_of(&pairs->groups[g]);
    return REIN_OK;
}

void rein_reward_step_free(rein_reward_step *step) {
    free(step->rewards);
    free(step->margins);
    *step = (rein_reward_step){0};
}

rein_status rein_reward_step_pass(rein_reward_step *step, rein_reward_pass *pass, rein_session *s, const rein_groups *pairs,
                                  const rein_reward_training *how, rein_error *err) {
    const rein_status status = begin(step, pairs, err);
    *pass = (rein_reward_pass){
        .center_rewards_coefficient = how->center_rewards_coefficient, .margins = step->margins, .rewards = step->rewards};
    return status ? status : rein_trainer_reward_pass(pass, s->trainer, pairs, err);
}

/* --------------------------------------------------------------------------------------------------------------------- metrics */

/* Whole texts are scored: no tokens train, and there are no completions. */
static int is_of_completions(const char *name) { return !strncmp(name, "completions/", 12) || !strcmp(name, "tokens/trained"); }

size_t rein_reward_rows(rein_named_number *rows, size_t n, const rein_reward_step *step) {
    double least = INFINITY, greatest = -INFINITY, sum = 0, right = 0, chosen = 0, rejected = 0;
    for (size_t g = 0; g < step->n; g++) {
        const double w = step->rewards[2 * g], l = step->rewards[2 * g + 1];
        least = fmin(least, fmin(w, l)), greatest = fmax(greatest, fmax(w, l));
        chosen += w, rejected += l, sum += w + l, right += w > l;
    }
    const double pairs = (double)step->n;
    const rein_named_number all[] = {{"accuracy", right / pairs},
                                     {"margin", (chosen - rejected) / pairs},
                                     {"min_reward", least},
                                     {"mean_reward", sum / (2 * pairs)},
                                     {"max_reward", greatest}};
    size_t kept = 0;
    n = rein_rows_of_pairs(rows, n, 0);
    for (size_t i = 0; i < n; i++)
        if (!is_of_completions(rows[i].name)) rows[kept++] = rows[i];
    memcpy(rows + kept, all, sizeof all);
    return kept + sizeof all / sizeof *all;
}

/* ------------------------------------------------------------------------------------------------------------------ evaluation */

static double calibration_error(const double *rewards, size_t pairs) {
    double confidence[BINS] = {0}, right[BINS] = {0}, error = 0;
    for (size_t g = 0; g < pairs; g++) {
        const double gap = rewards[2 * g] - rewards[2 * g + 1], sure = 1 / (1 + exp(-fabs(gap)));
        const size_t bin = (size_t)fmin((sure - 0.5) * 2 * BINS, BINS - 1);
        confidence[bin] += sure;
        right[bin] += gap > 0 ? 1 : gap < 0 ? 0 : 0.5;
    }
    for (size_t b = 0; b < BINS; b++) error += fabs(right[b] - confidence[b]);
    return error / (double)pairs;
}

static rein_status measure(rein_reward_evaluation *e, const rein_reward_step *step, const rein_reward_training *how,
                           rein_error *err) {
    double *split = malloc((2 * step->n + 1) * sizeof *split), *chosen = split, *rejected = split + step->n;
    if (!split) return rein_no_memory(err);
    for (size_t g = 0; g < step->n; g++) chosen[g] = step->rewards[2 * g], rejected[g] = step->rewards[2 * g + 1];
    const rein_status status = rein_reward_loss(&e->loss, NULL, NULL, &e->accuracy, chosen, rejected, step->margins, step->n,
                                                how->center_rewards_coefficient, err);
    for (size_t g = 0; g < step->n; g++) e->margin += (chosen[g] - rejected[g]) / (double)step->n;
    e->calibration_error = calibration_error(step->rewards, step->n);
    free(split);
    return status;
}

static rein_status score(rein_reward_step *step, rein_session *s, const rein_groups *pairs, rein_error *err) {
    const size_t tokens = rein_groups_tokens(pairs);
    float *scores = malloc((tokens + 1) * sizeof *scores);
    rein_status status =
        scores ? begin(step, pairs, err) : rein_fail(err, REIN_ENOMEM, "no memory for the scores of %zu tokens", tokens);
    if (!status) status = rein_trainer_scores(scores, s->trainer, NULL, pairs, 0, err);
    for (size_t g = 0, at = 0; g < pairs->n && !status; g++)
        for (size_t k = 0; k < 2; k++) {
            at += pairs->groups[g].trajectories[k].histories[0].n;
            step->rewards[2 * g + k] = (double)scores[at - 1];
        }
    free(scores);
    return status;
}

rein_status rein_session_evaluate_rewards(rein_reward_evaluation *e, rein_session *s, const rein_groups *pairs,
                                          const rein_reward_training *how, rein_error *err) {
    rein_reward_step step = {0};
    *e = (rein_reward_evaluation){.n = pairs->n};
    rein_status status = s->state == REIN_SESSION_TRAINED ? REIN_OK : rein_session_expect(s, REIN_SESSION_READY, err);
    if (!status) status = rein_reward_pairs_check(s, pairs, how, err);
    if (!status) status = score(&step, s, pairs, err);
    if (!status) status = measure(e, &step, how, err);
    rein_reward_step_free(&step);
    return status;
}
