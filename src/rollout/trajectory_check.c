/* trajectory_check.c - what a group must be before it trains or is written: decided here, once. A program may have filled it by hand, so
 * every array is checked. */
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "trajectory.h"

/* A history, its place, and what the model can take. */
typedef struct checked {
    const rein_history *history;
    size_t group, trajectory, index;
    int64_t positions, vocabulary; /* 0: any */
    int log_probs;                 /* 1: they are read */
    rein_error *err;
} checked;

/* "groups[1].trajectories[0].histories[0].ids[7] REASON" */
static rein_status wrong(const checked *c, const char *array, size_t token, const char *format, ...) REIN_PRINTF(4, 5);
static rein_status wrong(const checked *c, const char *array, size_t token, const char *format, ...) {
    char field[sizeof c->err->field], reason[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    snprintf(field, sizeof field, "groups[%zu].trajectories[%zu].histories[%zu].%s", c->group, c->trajectory, c->index, array);
    return rein_fail_at(c->err, REIN_EINVAL, field, (int64_t)token, "%s", reason);
}

/* ---------------------------------------------------------------------------------------------------------------------- tokens */

/* Rounding may put it slightly above 0: that is accepted. */
int rein_is_log_prob(float x) { return x <= 1e-3f && x >= -FLT_MAX; }

static rein_status check_id(const checked *c, size_t k) {
    const int32_t id = c->history->ids[k];
    if (id >= 0 && (!c->vocabulary || id < c->vocabulary)) return REIN_OK;
    if (!c->vocabulary) return wrong(c, "ids", k, "is %ld: 0 or more is needed", (long)id);
    return wrong(c, "ids", k, "is %ld: the model's tokens are 0 to %lld", (long)id, (long long)c->vocabulary - 1);
}

static rein_status check_mask(const checked *c, size_t k) {
    const int mask = c->history->mask[k];
    if (mask > 1) return wrong(c, "mask", k, "is %d: 0 or 1 is needed", mask);
    if (mask && !k) return wrong(c, "mask", k, "is 1: the first token cannot train, because no token precedes it");
    return REIN_OK;
}

/* Some samplers write -inf or -9999 where they know nothing. */
static rein_status check_numbers(const checked *c, size_t k) {
    const rein_history *h = c->history;
    const float log_prob = rein_history_recorded(h)[k];
    if (c->log_probs && h->mask[k] && !isnan(log_prob) && !rein_is_log_prob(log_prob))
        return wrong(c, h->sampler_log_probs ? "sampler_log_probs" : "log_probs", k,
                     "is %g: a log-probability (0 or below) is needed, or NaN where it is not known", (double)log_prob);
    if (h->values && isinf(h->values[k]))
        return wrong(c, "values", k, "is %g: a finite number is needed, or NaN where it is not known", (double)h->values[k]);
    return REIN_OK;
}

static rein_status check_text(const checked *c, size_t k) {
    const rein_history *h = c->history;
    if (!h->text_ends || (h->text_ends[k] <= h->text.length && (!k || h->text_ends[k] >= h->text_ends[k - 1]))) return REIN_OK;
    return wrong(c, "text_ends", k, "is %zu: at least that of the token before, at most the %zu bytes of the text", h->text_ends[k],
                 h->text.length);
}

/* -------------------------------------------------------------------------------------------------------------------- histories */

static rein_status check_history(const checked *c) {
    const rein_history *h = c->history;
    const char *missing = !h->ids ? "ids" : !h->mask ? "mask" : !h->log_probs ? "log_probs" : NULL;
    rein_status status = REIN_OK;
    char path[sizeof c->err->field];
    snprintf(path, sizeof path, "groups[%zu].trajectories[%zu].histories", c->group, c->trajectory);
    if (!h->n) return rein_fail_at(c->err, REIN_EINVAL, path, (int64_t)c->index, "has no token");
    if (missing) return rein_fail_at(c->err, REIN_EINVAL, path, (int64_t)c->index, "has no %s", missing);
    if (c->positions && h->n > (size_t)c->positions)
        return rein_fail_at(c->err, REIN_EINVAL, path, (int64_t)c->index, "has %zu tokens: the model has %lld positions", h->n,
                            (long long)c->positions);
    for (size_t k = 0; k < h->n && !status; k++) {
        status = check_id(c, k);
        if (!status) status = check_mask(c, k);
        if (!status) status = check_numbers(c, k);
        if (!status) status = check_text(c, k);
    }
    return status;
}

static rein_status check_trajectory(const rein_trajectory *t, checked *c) {
    char path[sizeof c->err->field];
    rein_status status = REIN_OK;
    snprintf(path, sizeof path, "groups[%zu].trajectories[%zu].reward", c->group, c->trajectory);
    if (!isfinite(t->reward)) return rein_fail_at(c->err, REIN_EINVAL, path, -1, "is %g: a finite number is needed", t->reward);
    snprintf(path, sizeof path, "groups[%zu].trajectories", c->group);
    if (!t->n_histories) return rein_fail_at(c->err, REIN_EINVAL, path, (int64_t)c->trajectory, "has no history");
    for (c->index = 0; c->index < t->n_histories && !status; c->index++) {
        c->history = &t->histories[c->index];
        status = check_history(c);
    }
    return status;
}

rein_status rein_group_check(const rein_group *group, size_t g, const rein_groups_use *use, rein_error *err) {
    const rein_model_info info = use->model ? rein_model_describe(use->model) : (rein_model_info){0};
    checked c = {.group = g, .positions = info.max_positions, .vocabulary = info.vocabulary, .err = err};
    rein_status status = REIN_OK;
    if (!group->n) return rein_fail_at(err, REIN_EINVAL, "groups", (int64_t)g, "has no trajectory");
    for (; c.trajectory < group->n && !status; c.trajectory++) {
        const rein_trajectory *t = &group->trajectories[c.trajectory];
        c.log_probs = !use->no_log_probs && !(use->mask_truncated && t->truncated);
        status = check_trajectory(t, &c);
    }
    return status;
}

rein_status rein_groups_check(const rein_groups *groups, const rein_groups_use *use, rein_error *err) {
    rein_status status = REIN_OK;
    if (!groups->n) return rein_fail_at(err, REIN_EINVAL, "groups", -1, "is empty: there are no groups");
    for (size_t g = 0; g < groups->n && !status; g++) status = rein_group_check(&groups->groups[g], g, use, err);
    return status;
}
