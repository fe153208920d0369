/* settings_metric.c - checks settings that name a metric (keep_best, stop_at): some step must have it. */
#include <string.h>

#include "report/metrics.h"
#include "session_pairs.h"
#include "settings.h"

/* Metrics that the loop adds to those of the session, and the setting that each needs. */
static const struct {
    const char *name, *needs;
} LOOP[] = {{"accuracy", "task"},
            {"temperature", "temperature_final"},
            {"dynamic_sampling/prompts", "dynamic_sampling"},
            {"ptx/loss", "ptx_data"},
            {"budget/multiplier", "budget_target"},
            {"eval/accuracy", "eval_prompts"},
            {"eval/accuracy_low", "eval_prompts"},
            {"eval/accuracy_high", "eval_prompts"},
            {"eval/reward", "eval_prompts"},
            {"eval/mean_length", "eval_prompts"},
            {"eval/share_over_budget", "eval_prompts"},
            {"eval/clipped_ratio", "eval_prompts"},
            {"eval/pass_at_k", "eval_prompts"},
            {"eval/kl", "eval_prompts"},
            {"eval/kl_policy_ref", "eval_prompts"},
            {"eval/greedy_accuracy", "eval_prompts"},
            {"eval/greedy_mean_length", "eval_prompts"}};

/* The setting that a metric of the loop needs and that is missing; NULL: none. */
static const char *missing(const rein_settings *s, const char *needs) {
    if (!*s->task) return "task";
    return rein_settings_is_on(s, needs) ? NULL : needs;
}

/* Metrics of pairs, which begin as those of judges do or are not in the table of the session. */
int rein_settings_metric_is_of_pairs(const char *metric, size_t length) {
    static const char *const names[] = {"rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies",
                                        "logps/chosen",   "logps/rejected",   "pairs",           "pairs/ties"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == length && !strncmp(metric, names[i], length)) return 1;
    return 0;
}

/* The setting that makes every step have metrics of its own, and that is missing; NULL: none. */
static const char *missing_part(const rein_settings *s, const char *metric) {
    if (!*s->critic && (!strncmp(metric, "critic/", 7) || !strcmp(metric, "time/critic"))) return "critic";
    if (!*s->teacher && (!strncmp(metric, "teacher/", 8) || !strcmp(metric, "loss/teacher"))) return "teacher";
    return !(s->kl_target > 0) && (!strcmp(metric, "kl/reward_coef") || !strcmp(metric, "kl/of_target")) ? "kl_target" : NULL;
}

/* What can be best of a reward model; eval/… is of held-out pairs, at the end of an epoch. */
static rein_status check_reward_model(const char *setting, const char *metric, rein_error *err) {
    static const char *const names[] = {
        "loss",      "accuracy",  "margin",        "min_reward",  "mean_reward",           "max_reward",
        "grad_norm", "eval/loss", "eval/accuracy", "eval/margin", "eval/calibration_error"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(metric, names[i])) return REIN_OK;
    return rein_fail_at(
        err, REIN_EINVAL, setting, -1,
        "names \"%.60s\": a reward model has loss, accuracy, margin, min_reward, mean_reward, max_reward, grad_norm "
        "and, of held-out pairs, eval/loss, eval/accuracy, eval/margin, eval/calibration_error",
        metric);
}

static int is_of_pairs(const char *metric) { return rein_settings_metric_is_of_pairs(metric, strlen(metric)); }

/* Why a step has no such metric because it has pairs, or because it has none; NULL: that is not so. */
static const char *why_not(const rein_settings *s, const char *metric) {
    const int online = (int)s->objective.preference_loss, loss = online ? online : s->preference;
    const int kto = loss == REIN_PREFERENCE_LOSS_KTO;
    if (!loss) return is_of_pairs(metric) ? "without preference_loss" : NULL;
    if (kto && !strcmp(metric, "rewards/accuracies")) return "with the loss kto";
    if (!kto && !strcmp(metric, "kl")) return *s->task ? "with preference_loss; eval/kl is measured" : "with this loss over pairs";
    const int rewards = !strcmp(metric, "reward") || !strcmp(metric, "reward_std") || !strcmp(metric, "frac_reward_zero_std");
    if (!online && (rewards || !strncmp(metric, "pairs", 5))) return "where the pairs are given";
    const int lacks = rein_pairs_lack(metric) || !strcmp(metric, "kl_policy_ref") || !strcmp(metric, "entropy");
    return lacks ? "with a loss over pairs" : NULL;
}

rein_status rein_settings_check_metric(const rein_settings *s, const char *setting, const char *metric, rein_error *err) {
    if (s->has_score) return check_reward_model(setting, metric, err);
    const int of_pairs = is_of_pairs(metric), of_rewards = !of_pairs && !strncmp(metric, "rewards/", 8);
    int known = rein_metric_is_known(metric) || of_rewards || of_pairs;
    const char *why = why_not(s, metric);
    if (why) return rein_fail_at(err, REIN_EINVAL, setting, -1, "has no effect: there is no %.100s %s", metric, why);
    const char *needs = of_rewards ? missing(s, "task") : missing_part(s, metric);
    for (size_t i = 0; i < sizeof LOOP / sizeof *LOOP; i++)
        if (!strcmp(LOOP[i].name, metric)) known = 1, needs = missing(s, LOOP[i].needs);
    if (needs) return rein_fail_at(err, REIN_EINVAL, setting, -1, "has no effect: there is no %.100s without %s", metric, needs);
    if ((!strcmp(metric, "kl") || !strcmp(metric, "kl_policy_ref")) && !s->preference && !rein_options_use_reference(&s->objective))
        return rein_fail_at(err, REIN_EINVAL, setting, -1, "has no effect: there is no %s without a KL in the objective%s", metric,
                            *s->task ? "; eval/kl is measured" : "");
    if (known) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, setting, -1, "names \"%.60s\": no step has such a metric (docs/metrics.md)", metric);
}
