/* loop_check.c - settings of the loop that contradict each other or have no effect; and when stop_at ends a run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "loop.h"
#include "rollout/task.h"
#include "settings.h"

/* A setting that was given needs another one. */
static const struct need {
    const char *name, *needs;
} NEEDS[] = {{"budget_rate", "budget_target"}, {"ptx_coef", "ptx_data"}, {"ptx_batch", "ptx_data"},
             {"reward_weights", "reward"},     {"system", "chat"},       {"chat_format", "chat"}};

static rein_status check_needs(const rein_settings *s, rein_error *err) {
    const int builtin = rein_task_kind_of(s->task) == REIN_TASK_BUILTIN;
    for (size_t i = 0; i < sizeof NEEDS / sizeof *NEEDS; i++) {
        const int chat = !strcmp(NEEDS[i].needs, "chat") && !builtin; /* a file may have messages */
        if (rein_settings_given(s, NEEDS[i].name) && !rein_settings_is_on(s, NEEDS[i].needs) && !chat)
            return rein_fail_at(err, REIN_EINVAL, NEEDS[i].name, -1, "has no effect without %s", NEEDS[i].needs);
    }
    return REIN_OK;
}

static int is_environment(const char *source) { return rein_task_kind_of(source) == REIN_TASK_ENVIRONMENT; }

static rein_status check_environment(const rein_settings *s, rein_error *err) {
    if (!rein_settings_given(s, "max_turns") || is_environment(s->task) || is_environment(s->eval_task)) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "max_turns", -1, "has no effect: the task is not an environment (env: COMMAND)");
}

static rein_status check_programs(const rein_settings *s, rein_error *err) {
    const char *const names[] = {"reward_timeout", "reward_restarts", "working_directory"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (rein_settings_given(s, names[i]) && !rein_settings_has_program(s))
            return rein_fail_at(err, REIN_EINVAL, names[i], -1, "has no effect: no reward and no task is a program");
    return REIN_OK;
}

/* What a policy that is truncated cannot have. */
static rein_status check_truncation(const rein_settings *s, rein_error *err) {
    static const char name[] = "truncation";
    if (!rein_settings_truncate(s))
        return rein_fail_at(err, REIN_EINVAL, name, -1, "policy has no effect: it needs top_k, top_p or min_p");
    if (s->objective.mismatch != REIN_MISMATCH_NONE)
        return rein_fail_at(err, REIN_EINVAL, name, -1, "policy makes the sampler the policy: mismatch would correct nothing");
    if (s->epochs * s->minibatches > 1)
        return rein_fail_at(
            err, REIN_EINVAL, name, -1,
            "policy needs epochs 1 and minibatches 1: after an optimizer step the policy keeps other tokens than those "
            "that were sampled from");
    if (s->full || strstr(s->lora_modules, "lm_head"))
        return rein_fail_at(err, REIN_EINVAL, name, -1,
                            "policy needs a head that does not train: without full, and without lm_head");
    if (rein_teacher_in_loss(&s->objective))
        return rein_fail_at(err, REIN_EINVAL, name, -1, "policy has no divergence over the whole vocabulary: choose sampled");
    if (rein_uses_exact_kl(&s->objective))
        return rein_fail_at(err, REIN_EINVAL, name, -1,
                            "policy has no exact KL: choose another kl_estimator, and kl_reward_coef in place of kl_reward_exact");
    return REIN_OK;
}

/* A sampler that differs from the policy needs a correction in the objective. */
static rein_status check_sampler(const rein_settings *s, rein_error *err) {
    const char *what = s->top_k ? "top_k" : s->top_p < 1 ? "top_p" : s->min_p > 0 ? "min_p" : NULL;
    if (s->truncation == REIN_TRUNCATION_POLICY) return check_truncation(s, err);
    if (!what || s->objective.mismatch != REIN_MISMATCH_NONE) return REIN_OK;
    if (s->objective.preference_loss) return REIN_OK; /* a pair may come from any sampler */
    return rein_fail_at(err, REIN_EINVAL, what, -1,
                        "changes the sampling distribution: it needs truncation policy, which makes it part of the policy, or a "
                        "correction, such as mismatch token-tis");
}

/* Advantages that need more than rewards: the loop samples and rewards. */
static rein_status check_advantage(const rein_settings *s, rein_error *err) {
    static const struct {
        rein_advantage advantage;
        const char *needs;
    } all[] = {{REIN_ADVANTAGE_GIVEN, "advantages"},
               {REIN_ADVANTAGE_GDPO, "reward_components"},
               {REIN_ADVANTAGE_REMAX, "baseline_rewards"}};
    if (s->objective.advantage == REIN_ADVANTAGE_GAE && *s->critic) return REIN_OK;
    if (s->objective.advantage == REIN_ADVANTAGE_GAE)
        return rein_fail_at(
            err, REIN_EINVAL, "critic", -1,
            "is missing: advantage gae needs the values of a critic; --critic same trains one on the policy's model, "
            "--critic DIR on another (in Python critic=\"same\")");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (s->objective.advantage == all[i].advantage)
            return rein_fail_at(err, REIN_EINVAL, "advantage", -1,
                                "is %s, which needs %s, and a run has none: choose another, such as group-std",
                                rein_settings_text(s, "advantage"), all[i].needs);
    return REIN_OK;
}

static rein_status check_budget(const rein_settings *s, rein_error *err) {
    if (s->budget_target > 0 && s->objective.shape != REIN_SHAPE_BUDGET)
        return rein_fail_at(err, REIN_EINVAL, "budget_target", -1, "has no effect: it changes the penalty of shape budget");
    if (!isnan(s->objective.token_budget) && s->objective.token_budget >= (double)s->max_tokens)
        return rein_fail_at(err, REIN_EINVAL, "token_budget", -1,
                            "is %g: it must be below max_tokens, %lld, or no response can exceed it", s->objective.token_budget,
                            (long long)s->max_tokens);
    return REIN_OK;
}

static rein_status check_evaluation(const rein_settings *s, rein_error *err) {
    const char *const idle[] = {"eval_task", "eval_steps", "eval_samples"};
    for (size_t i = 0; i < 3 && !s->eval_prompts; i++)
        if (rein_settings_given(s, idle[i])) return rein_fail_at(err, REIN_EINVAL, idle[i], -1, "has no effect: eval_prompts is 0");
    if (rein_settings_given(s, "held_out") && (*s->eval_task || !rein_task_is_divided(rein_task_kind_of(s->task))))
        return rein_fail_at(err, REIN_EINVAL, "held_out", -1, "has no effect: %s",
                            *s->eval_task ? "eval_task is the task of evaluations" : "it divides only lists of examples");
    return REIN_OK;
}

/* "eval/accuracy>=0.95" in its parts. */
typedef struct condition {
    size_t name; /* bytes of the name */
    int greater; /* > or >=, not < or <= */
    int or_equal;
    double value;
} condition;

/* Reads "NAME > NUMBER"; returns 0 if the text is not a condition. */
static int read_condition(condition *c, const char *text) {
    char *end;
    c->name = strcspn(text, "<>");
    if (!c->name || !text[c->name]) return 0;
    c->greater = text[c->name] == '>';
    c->or_equal = text[c->name + 1] == '=';
    const char *number = text + c->name + 1 + c->or_equal;
    c->value = strtod(number, &end);
    return *number && !*end && isfinite(c->value);
}

int rein_stop_holds(const char *stop_at, const char *metric, double x) {
    condition c;
    if (!read_condition(&c, stop_at) || strlen(metric) != c.name || strncmp(metric, stop_at, c.name) != 0) return 0;
    if (c.or_equal) return c.greater ? x >= c.value : x <= c.value;
    return c.greater ? x > c.value : x < c.value;
}

static rein_status check_stop(const rein_settings *s, rein_error *err) {
    condition c;
    if (!*s->stop_at) return REIN_OK;
    if (!read_condition(&c, s->stop_at))
        return rein_fail_at(err, REIN_EINVAL, "stop_at", -1,
                            "is \"%.100s\": a metric, one of > >= < <=, and a number are needed: eval/accuracy>=0.95", s->stop_at);
    char *metric = strndup(s->stop_at, c.name);
    const rein_status status =
        metric ? rein_settings_check_metric(s, "stop_at", metric, err) : rein_fail(err, REIN_ENOMEM, "no memory for stop_at");
    free(metric);
    return status;
}

rein_status rein_loop_check(const rein_settings *s, rein_error *err) {
    if (!*s->task)
        return rein_fail_at(err, REIN_EINVAL, "task", -1,
                            "is missing: a built-in task, a file of JSON lines, or a program is needed");
    rein_status status = check_needs(s, err);
    if (!status) status = check_programs(s, err);
    if (!status) status = check_environment(s, err);
    if (!status) status = check_sampler(s, err);
    if (!status) status = check_advantage(s, err);
    if (!status) status = check_budget(s, err);
    if (!status) status = check_evaluation(s, err);
    if (!status) status = check_stop(s, err);
    if (!status && s->minibatches > s->prompts)
        status = rein_fail_at(err, REIN_EINVAL, "minibatches", -1, "is %lld: a step has only %lld prompts",
                              (long long)s->minibatches, (long long)s->prompts);
    return status;
}

/* ------------------------------------------------------------------------------------------------------- what evaluations mean */

/* With another value two evaluations of a run could not be compared. Files that moved are compared by their hashes. */
static const char *const COMPARED[] = {"max_tokens",   "max_turns",    "stop",   "chat",           "chat_format",
                                       "system",       "date",         "reward", "reward_weights", "held_out",
                                       "eval_prompts", "eval_samples", "top_k",  "top_p",          "min_p"};

static rein_status check_same(const rein_settings *before, const rein_settings *now, const char *name, rein_error *err) {
    rein_text was = {0}, is = {0};
    rein_status status = rein_settings_get(&was, before, name, err);
    if (!status) status = rein_settings_get(&is, now, name, err);
    if (!status && strcmp(was.data ? was.data : "", is.data ? is.data : "") != 0)
        status =
            rein_fail_at(err, REIN_EINVAL, name, -1,
                         "is \"%.100s\", but the evaluations of the run were made with \"%.100s\": they could not be compared; "
                         "--accept-changed (in Python accept_changed=True) changes it",
                         is.data ? is.data : "", was.data ? was.data : "");
    rein_text_free(&was);
    rein_text_free(&is);
    return status;
}

rein_status rein_loop_check_comparable(const rein_loop *l, rein_error *err) {
    rein_settings before;
    if (!json_array_size(l->evaluations) || l->session->allowed & REIN_ALLOW_CHANGED) return REIN_OK;
    rein_settings_init(&before);
    char *path = rein_path_join(l->session->directory, "config.yaml");
    rein_status status = path ? rein_settings_read(&before, path, err) : rein_fail(err, REIN_ENOMEM, "no memory for a path");
    for (size_t i = 0; i < sizeof COMPARED / sizeof *COMPARED && !status; i++)
        status = check_same(&before, &l->session->settings, COMPARED[i], err);
    free(path);
    rein_settings_clear(&before);
    return status;
}
