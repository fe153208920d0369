/* groups.c - what is in trajectory groups, counted, and what a user should know of it before it trains. */
#include <math.h>
#include <stdio.h>

#include "rein/train.h"

typedef struct counted {
    size_t tokens, trained, known; /* known: log-probs of those that train */
} counted;

static counted count_tokens(const rein_trajectory *trajectory) {
    counted c = {0};
    for (size_t i = 0; i < trajectory->n_histories; i++) {
        const rein_history *h = &trajectory->histories[i];
        const float *recorded = rein_history_recorded(h);
        c.tokens += h->n;
        for (size_t k = 0; k < h->n; k++) {
            c.trained += h->mask[k] != 0;
            c.known += h->mask[k] && !isnan(recorded[k]);
        }
    }
    return c;
}

static void count_policy(rein_groups_summary *s, int64_t step) {
    if (step < 0) s->policy_step_unknown++;
    if (step < 0) return;
    if (s->policy_step_min < 0 || step < s->policy_step_min) s->policy_step_min = step;
    if (step > s->policy_step_max) s->policy_step_max = step;
}

static void count_trajectory(rein_groups_summary *s, const rein_trajectory *trajectory) {
    const counted c = count_tokens(trajectory);
    const int first = s->trajectories++ == 0;
    s->histories += trajectory->n_histories;
    s->tokens += c.tokens;
    s->trained_tokens += c.trained;
    s->log_probs_missing += c.trained - c.known;
    s->truncated += trajectory->truncated != 0;
    s->untrained += c.trained == 0;
    s->all_trained += c.trained && c.trained + trajectory->n_histories == c.tokens;
    if (first || c.trained < s->length_min) s->length_min = c.trained;
    if (c.trained > s->length_max) s->length_max = c.trained;
    if (first || trajectory->reward < s->reward_min) s->reward_min = trajectory->reward;
    if (first || trajectory->reward > s->reward_max) s->reward_max = trajectory->reward;
    count_policy(s, trajectory->policy_step);
}

/* Mean and deviation in two passes: nothing cancels. */
static void count_rewards(rein_groups_summary *s, const rein_groups *groups) {
    const double n = s->trajectories ? (double)s->trajectories : 1;
    double sum = 0, squares = 0;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++) sum += groups->groups[g].trajectories[t].reward / n;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++) {
            const double away = groups->groups[g].trajectories[t].reward - sum;
            squares += away * away / n;
        }
    s->reward_mean = sum;
    s->reward_std = sqrt(squares);
    s->length_mean = (double)s->trained_tokens / n;
}

rein_groups_summary rein_groups_summarise(const rein_groups *groups) {
    rein_groups_summary s = {.groups = groups->n, .policy_step_min = -1, .policy_step_max = -1};
    for (size_t g = 0; g < groups->n; g++) {
        const rein_group *group = &groups->groups[g];
        int equal = group->n > 1;
        for (size_t t = 0; t < group->n; t++) {
            count_trajectory(&s, &group->trajectories[t]);
            equal &= group->trajectories[t].reward == group->trajectories[0].reward;
        }
        s.single_groups += group->n == 1;
        s.equal_groups += equal != 0;
    }
    count_rewards(&s, groups);
    return s;
}

unsigned rein_groups_warnings(const rein_groups_summary *s) {
    unsigned warnings = 0;
    if (s->untrained) warnings |= REIN_GROUPS_NOTHING_TRAINS;
    if (s->all_trained) warnings |= REIN_GROUPS_ALL_TRAINS;
    if (s->equal_groups && s->equal_groups + s->single_groups == s->groups) warnings |= REIN_GROUPS_EQUAL_REWARDS;
    if (s->single_groups) warnings |= REIN_GROUPS_SINGLE;
    if (s->log_probs_missing) warnings |= REIN_GROUPS_NO_LOG_PROBS;
    if (s->policy_step_min != s->policy_step_max) warnings |= REIN_GROUPS_SEVERAL_POLICIES;
    return warnings;
}

const char *rein_groups_warning_text(char *text, size_t size, rein_groups_warning warning, const rein_groups_summary *s) {
    text[0] = 0;
    switch (warning) {
    case REIN_GROUPS_NOTHING_TRAINS:
        snprintf(text, size, "%zu of %zu trajectories have 0 %% trainable tokens: they teach nothing", s->untrained,
                 s->trajectories);
        break;
    case REIN_GROUPS_ALL_TRAINS:
        snprintf(text, size, "%zu of %zu trajectories have 100 %% trainable tokens: is the prompt masked?", s->all_trained,
                 s->trajectories);
        break;
    case REIN_GROUPS_EQUAL_REWARDS:
        snprintf(text, size, "in every group all rewards are equal: comparing them within the group teaches nothing");
        break;
    case REIN_GROUPS_SINGLE:
        snprintf(text, size, "%zu of %zu groups have one trajectory: there is nothing to compare it with", s->single_groups,
                 s->groups);
        break;
    case REIN_GROUPS_NO_LOG_PROBS:
        snprintf(text, size, "%zu of %zu trained tokens have no log-probability: the current policy computes them",
                 s->log_probs_missing, s->trained_tokens);
        break;
    case REIN_GROUPS_SEVERAL_POLICIES:
        snprintf(text, size, "the trajectories are of policies from step %lld to step %lld", (long long)s->policy_step_min,
                 (long long)s->policy_step_max);
        break;
    }
    return text;
}
