/* groups.c - trajectory groups in memory: made, freed, counted. */
#include "train/groups.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "out of memory"); }

/* --------------------------------------------------------------------------------------------------------------------- building */

/* NULL, and the array is as it was, when there is no memory. */
static void *grown(void *array, size_t n, size_t size) { return n > SIZE_MAX / 2 / size ? NULL : realloc(array, n * size); }

/* Room for n tokens. */
static int reserve(rein_history *h, size_t n) {
    int32_t *ids = grown(h->ids, n, sizeof *ids);
    if (ids) h->ids = ids;
    uint8_t *mask = ids ? grown(h->mask, n, sizeof *mask) : NULL;
    if (mask) h->mask = mask;
    float *log_probs = mask ? grown(h->log_probs, n, sizeof *log_probs) : NULL;
    if (log_probs) h->log_probs = log_probs;
    return log_probs != NULL;
}

rein_status rein_history_extend(rein_history *h, const int32_t *ids, const float *log_probs, size_t n, int trained,
                                rein_error *err) {
    if (n == 0) return REIN_OK;
    if (!reserve(h, h->n + n)) return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        h->ids[h->n + i] = ids[i];
        h->mask[h->n + i] = trained != 0;
        h->log_probs[h->n + i] = trained && log_probs ? log_probs[i] : NAN;
    }
    h->n += n;
    return REIN_OK;
}

void rein_history_free(rein_history *h) {
    free(h->ids);
    free(h->mask);
    free(h->log_probs);
    free(h->values);
    *h = (rein_history){0};
}

rein_status rein_trajectory_append(rein_trajectory *trajectory, rein_history *history, rein_error *err) {
    rein_history *histories = grown(trajectory->histories, trajectory->n_histories + 1, sizeof *histories);
    if (!histories) return no_memory(err);
    trajectory->histories = histories;
    trajectory->histories[trajectory->n_histories++] = *history;
    *history = (rein_history){0};
    return REIN_OK;
}

void rein_group_free(rein_group *group) {
    for (size_t t = 0; t < group->n; t++) {
        rein_trajectory *trajectory = &group->trajectories[t];
        for (size_t i = 0; i < trajectory->n_histories; i++) rein_history_free(&trajectory->histories[i]);
        free(trajectory->histories);
        json_decref(trajectory->original);
    }
    free(group->trajectories);
    json_decref(group->original);
    *group = (rein_group){0};
}

rein_status rein_groups_append(rein_groups *groups, rein_group *group, rein_error *err) {
    if (groups->n == groups->capacity) {
        const size_t capacity = groups->n + groups->n / 2 + 8;
        rein_group *moved = grown(groups->groups, capacity, sizeof *moved);
        if (!moved) return no_memory(err);
        groups->groups = moved;
        groups->capacity = capacity;
    }
    groups->groups[groups->n++] = *group;
    *group = (rein_group){0};
    return REIN_OK;
}

void rein_groups_free(rein_groups *groups) {
    for (size_t g = 0; g < groups->n; g++) rein_group_free(&groups->groups[g]);
    free(groups->groups);
    *groups = (rein_groups){0};
}

/* The object of metrics, a reference of the caller's: a new one if there is none. NULL: no memory, or it is something else. */
static json_t *metrics_of(const json_t *original) {
    json_t *metrics = json_object_get(original, "metrics");
    if (!metrics || json_is_null(metrics)) return json_object();
    return json_is_object(metrics) ? json_incref(metrics) : NULL;
}

rein_status rein_trajectory_set_metric(rein_trajectory *trajectory, const char *name, double value, rein_error *err) {
    const json_t *old = json_object_get(trajectory->original, "metrics");
    if (!isfinite(value)) return rein_fail(err, REIN_EINVAL, "metrics.%.60s is %g: a finite number is needed", name, value);
    if (old && !json_is_object(old) && !json_is_null(old))
        return rein_fail(err, REIN_EINVAL, "metrics of the trajectory is no object: \"%.60s\" cannot be set", name);
    json_t *original = trajectory->original ? json_incref(trajectory->original) : json_object(), *metrics = metrics_of(original);
    const int done = original && metrics && !json_object_set_new(metrics, name, json_real(value)) &&
                     !json_object_set(original, "metrics", metrics);
    if (done && !trajectory->original) trajectory->original = json_incref(original);
    json_decref(metrics);
    json_decref(original);
    return done ? REIN_OK : no_memory(err);
}

/* --------------------------------------------------------------------------------------------------------------------- counting */

typedef struct counted {
    size_t tokens, trained, known; /* known: log-probs of those that train */
} counted;

static counted count_tokens(const rein_trajectory *trajectory) {
    counted c = {0};
    for (size_t i = 0; i < trajectory->n_histories; i++) {
        const rein_history *h = &trajectory->histories[i];
        c.tokens += h->n;
        for (size_t k = 0; k < h->n; k++) {
            c.trained += h->mask[k] != 0;
            c.known += h->mask[k] && !isnan(h->log_probs[k]);
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

/* Mean and deviation in a second look: nothing cancels. */
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
        snprintf(text, size, "%zu of %zu trained tokens have no log-probability: the policy as it is will compute it",
                 s->log_probs_missing, s->trained_tokens);
        break;
    case REIN_GROUPS_SEVERAL_POLICIES:
        snprintf(text, size, "the trajectories are of policies from step %lld to step %lld", (long long)s->policy_step_min,
                 (long long)s->policy_step_max);
        break;
    }
    return text;
}
