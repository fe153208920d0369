/* training_check.c - whether a step can be made of groups, told before a run is begun: the ids and lengths that the model has, and the
 * objective's own checks on everything that is known without log-probs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "terminal.h"
#include "training.h"

/* Calls `visit` for every history, until it fails. */
static rein_status each_history(const rein_groups *groups, void *data,
                                rein_status (*visit)(void *data, const rein_history *h, const size_t at[3])) {
    rein_status status = REIN_OK;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t j = 0; j < groups->groups[g].n; j++)
            for (size_t i = 0; i < groups->groups[g].trajectories[j].n_histories && !status; i++)
                status = visit(data, &groups->groups[g].trajectories[j].histories[i], (const size_t[]){g, j, i});
    return status;
}

typedef struct limits {
    const rein_training *t;
    const char *name; /* of the file */
    int examples;     /* groups are examples, of one trajectory */
    rein_error *err;
} limits;

static rein_status check_history(void *data, const rein_history *h, const size_t at[3]) {
    const limits *l = data;
    const rein_model_info *info = &l->t->info;
    char place[100];
    if (l->examples) snprintf(place, sizeof place, "example %zu", at[0] + 1);
    else snprintf(place, sizeof place, "groups[%zu].trajectories[%zu].histories[%zu]", at[0], at[1], at[2]);
    if (h->n > (size_t)info->max_positions)
        return rein_fail(l->err, REIN_EINVAL, "%s: %s has %zu tokens: the model has %lld positions", l->name, place, h->n,
                         (long long)info->max_positions);
    for (size_t k = 0; k < h->n; k++)
        if (h->ids[k] < 0 || h->ids[k] >= info->vocabulary)
            return rein_fail(l->err, REIN_EINVAL, "%s: %s, token %zu is %ld: the model's tokens are 0 to %lld", l->name, place, k,
                             (long)h->ids[k], (long long)info->vocabulary - 1);
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------ the objective */

/* A step as the objective sees it, with log-probs of 0: all ratios are 1. */
typedef struct step {
    size_t *groups, *sequences;
    uint8_t *mask;
    float *zeros, *recorded, *values;
    double *rewards;
    int64_t *lengths, *budgets;
    size_t n_sequences, n_tokens, at;
    int has_budget, has_values, masked; /* masked: this trajectory does not train */
} step;

static void step_free(step *s) {
    void *const blocks[] = {s->groups, s->sequences, s->mask, s->zeros, s->recorded, s->values, s->rewards, s->lengths, s->budgets};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) free(blocks[i]);
}

static rein_status count_history(void *data, const rein_history *h, const size_t at[3]) {
    step *s = data;
    (void)at;
    s->n_tokens += h->n;
    s->has_values &= h->values != NULL;
    return REIN_OK;
}

static rein_status step_allocate(step *s, const rein_groups *groups, rein_error *err) {
    s->has_values = 1;
    each_history(groups, s, count_history);
    for (size_t g = 0; g < groups->n; g++) s->n_sequences += groups->groups[g].n;
    s->groups = calloc(groups->n + 1, sizeof *s->groups);
    s->sequences = calloc(s->n_sequences + 1, sizeof *s->sequences);
    s->mask = calloc(s->n_tokens + 1, 1);
    s->zeros = calloc(s->n_tokens + 1, sizeof *s->zeros);
    s->recorded = calloc(s->n_tokens + 1, sizeof *s->recorded);
    s->values = calloc(s->n_tokens + 1, sizeof *s->values);
    s->rewards = calloc(s->n_sequences + 1, sizeof *s->rewards);
    s->lengths = calloc(s->n_sequences + 1, sizeof *s->lengths);
    s->budgets = calloc(s->n_sequences + 1, sizeof *s->budgets);
    const int all = s->groups && s->sequences && s->mask && s->zeros && s->recorded && s->values && s->rewards && s->lengths;
    return all && s->budgets ? REIN_OK : rein_fail(err, REIN_ENOMEM, "out of memory");
}

static int64_t put_history(step *s, const rein_history *h, int masked) {
    int64_t trained = 0;
    for (size_t k = 0; k < h->n; k++, s->at++) {
        trained += h->mask[k] != 0;
        s->mask[s->at] = h->mask[k] && !masked;
        s->recorded[s->at] = h->mask[k] ? h->log_probs[k] : 0;
        s->values[s->at] = s->has_values ? h->values[k] : 0;
    }
    return trained;
}

static void step_fill(step *s, const rein_groups *groups, const rein_settings *settings) {
    const double budget = rein_settings_number(settings, "token_budget");
    const int mask_truncated = rein_settings_number(settings, "mask_truncated_completions") > 0;
    size_t sequence = 0;
    for (size_t g = 0; g < groups->n; g++) {
        for (size_t j = 0; j < groups->groups[g].n; j++, sequence++) {
            const rein_trajectory *t = &groups->groups[g].trajectories[j];
            s->rewards[sequence] = t->reward;
            s->has_budget |= t->budget >= 0;
            s->budgets[sequence] = t->budget >= 0 ? t->budget : (int64_t)fmax(0, budget);
            for (size_t i = 0; i < t->n_histories; i++)
                s->lengths[sequence] += put_history(s, &t->histories[i], mask_truncated && t->truncated);
            s->sequences[sequence + 1] = s->at;
        }
        s->groups[g + 1] = sequence;
    }
}

static rein_status check_objective(rein_loss *loss, const rein_groups *groups, const rein_settings *settings, rein_error *err) {
    step s = {0};
    const rein_options *o = rein_settings_objective(settings);
    rein_status status = rein_options_check(o, err);
    if (!status) status = step_allocate(&s, groups, err);
    if (!status) step_fill(&s, groups, settings);
    const int reference = rein_options_use_reference(o);
    const int sampled = strcmp(rein_settings_text(settings, "mismatch"), "none") != 0 ||
                        !isnan(rein_settings_number(settings, "off_policy_mask_delta")) ||
                        (reference && !strcmp(rein_settings_text(settings, "kl_penalty_source"), "sample"));
    const int gae = !strcmp(rein_settings_text(settings, "advantage"), "gae");
    const rein_batch batch = {.n_groups = groups->n,
                              .n_sequences = s.n_sequences,
                              .group_offsets = s.groups,
                              .sequence_offsets = s.sequences,
                              .dtype = REIN_F32,
                              .mask = s.mask,
                              .log_probs = s.zeros,
                              .old_log_probs = s.zeros,
                              .ref_log_probs = reference ? s.zeros : NULL,
                              .sample_log_probs = sampled ? s.recorded : NULL,
                              .entropies = s.zeros,
                              .values = s.has_values && gae ? s.values : NULL,
                              .rewards = s.rewards,
                              .response_lengths = s.lengths,
                              .token_budgets = s.has_budget ? s.budgets : NULL};
    if (!status) status = rein_policy_loss(loss, NULL, NULL, NULL, &batch, o, NULL, err);
    step_free(&s);
    return status;
}

int rein_training_check(rein_loss *loss, const rein_training *t, const rein_groups *groups, const char *name) {
    rein_error err = {0};
    limits l = {t, name, !strcmp(t->args->command->name, "sft"), &err};
    rein_status status = each_history(groups, &l, check_history);
    const double minibatches = rein_settings_number(t->settings, "minibatches");
    if (!status && minibatches > (double)groups->n)
        status = rein_fail_at(&err, REIN_EINVAL, "minibatches", -1, "is %g: there are only %zu groups", minibatches, groups->n);
    if (!status) status = check_objective(loss, groups, t->settings, &err);
    return status ? rein_say_setting_error(t->args, &err) : REIN_DONE;
}
