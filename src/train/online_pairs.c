/* online_pairs.c - chooses the pairs of online preferences (Guo et al. 2024, arXiv 2402.04792, with a reward in place of an annotator): the
 * best and the worst of the responses to each prompt. A function of the groups and the objective alone, so every rank chooses the same. */
#include "online_pairs.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* --------------------------------------------------------------------------------------------------------------------- rewards */

rein_status rein_shaped_rewards(double *shaped, const rein_options *objective, const rein_group *group, rein_error *err) {
    const size_t n = group->n;
    size_t *offsets = calloc(n + 1, sizeof *offsets);
    double *rewards = malloc((n + 1) * sizeof *rewards);
    int64_t *numbers = malloc((2 * n + 1) * sizeof *numbers), *lengths = numbers, *budgets = numbers ? numbers + n : NULL;
    rein_status status = offsets && rewards && numbers ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for %zu rewards", n);
    for (size_t k = 0; k < n && !status; k++) {
        const rein_trajectory *t = &group->trajectories[k];
        shaped[k] = rewards[k] = t->reward;
        lengths[k] = (int64_t)rein_trajectory_length(t), budgets[k] = t->budget;
    }
    if (!status && (objective->shape != REIN_SHAPE_NONE || objective->reward_clip > 0)) {
        const rein_batch batch = {.n_sequences = n,
                                  .sequence_offsets = offsets,
                                  .rewards = rewards,
                                  .response_lengths = lengths,
                                  .token_budgets = budgets[0] >= 0 ? budgets : NULL};
        status = rein_shape_rewards(shaped, &batch, objective, err);
    }
    free(numbers);
    free(rewards);
    free(offsets);
    return status;
}

rein_options rein_online_measure(const rein_options *objective) {
    rein_options o = *objective;
    o.preference_loss = REIN_PREFERENCE_LOSS_NONE;
    o.advantage = REIN_ADVANTAGE_GROUP_MEAN;
    memset(o.given, 0, sizeof o.given); /* constants of the loss have no effect now */
    return o;
}

/* ---------------------------------------------------------------------------------------------------------------------- choosing */

static int have_same_tokens(const rein_trajectory *a, const rein_trajectory *b) {
    if (a->n_histories != b->n_histories) return 0;
    for (size_t i = 0; i < a->n_histories; i++) {
        const rein_history *h = &a->histories[i], *other = &b->histories[i];
        if (h->n != other->n || memcmp(h->ids, other->ids, h->n * sizeof *h->ids) != 0) return 0;
        if (memcmp(h->mask, other->mask, h->n) != 0) return 0;
    }
    return 1;
}

/* The places of the best and the worst; returns 0 for a tie. */
static int find_pair(size_t *best, size_t *worst, const double *shaped, const rein_group *group) {
    size_t found = 0;
    for (size_t k = 0; k < group->n; k++) {
        if (!rein_trajectory_length(&group->trajectories[k])) continue;
        if (!found++) *best = *worst = k;
        if (shaped[k] > shaped[*best]) *best = k;
        if (shaped[k] < shaped[*worst]) *worst = k;
    }
    return found > 1 && shaped[*best] > shaped[*worst] &&
           !have_same_tokens(&group->trajectories[*best], &group->trajectories[*worst]);
}

static rein_status choose(rein_online_pairs *pairs, rein_trajectory *pair, const rein_group *group, const rein_options *objective,
                          rein_error *err) {
    size_t best, worst;
    double *shaped = malloc((group->n + 1) * sizeof *shaped);
    if (!shaped) return rein_fail(err, REIN_ENOMEM, "no memory for %zu rewards", group->n);
    const rein_status status = rein_shaped_rewards(shaped, objective, group, err);
    if (!status && find_pair(&best, &worst, shaped, group)) {
        pair[0] = group->trajectories[best], pair[0].reward = 1;
        pair[1] = group->trajectories[worst], pair[1].reward = 0;
        pairs->groups.groups[pairs->groups.n++] = (rein_group){.trajectories = pair, .n = 2};
    } else if (!status) pairs->ties++;
    free(shaped);
    return status;
}

rein_status rein_online_pairs_choose(rein_online_pairs *pairs, const rein_groups *groups, const rein_options *objective,
                                     rein_error *err) {
    rein_trajectory *trajectories = calloc(2 * groups->n + 1, sizeof *trajectories);
    rein_status status = REIN_OK;
    *pairs = (rein_online_pairs){.groups.groups = calloc(groups->n + 1, sizeof(rein_group))};
    if (!trajectories || !pairs->groups.groups) status = rein_fail(err, REIN_ENOMEM, "no memory for %zu pairs", groups->n);
    if (pairs->groups.groups) pairs->groups.groups[0].trajectories = trajectories; /* so that it is freed, whatever is chosen */
    else free(trajectories);
    for (size_t g = 0; g < groups->n && !status; g++)
        status = choose(pairs, trajectories + 2 * pairs->groups.n, &groups->groups[g], objective, err);
    if (status) rein_online_pairs_free(pairs);
    return status;
}

void rein_online_pairs_free(rein_online_pairs *pairs) {
    if (pairs->groups.groups) free(pairs->groups.groups[0].trajectories); /* one array of all pairs */
    free(pairs->groups.groups);
    *pairs = (rein_online_pairs){0};
}
