/* settings_check.c - which settings of a run may change, and which contradict each other or have no effect. */
#include <string.h>

#include "model/quantize.h"
#include "model/tokenizer_parts.h"
#include "settings.h"

/* --------------------------------------------------------------------------------------------------------------------- changes */

/* Settings that made the policy or determine its bits. */
static int is_fixed(const rein_setting_info *s) {
    if (!strcmp(s->stage, "policy")) return strcmp(s->name, "temperature") != 0;
    if (!strcmp(s->name, "critic")) return 1; /* checkpoints have one, or none */
    return !strcmp(s->stage, "engine") && strcmp(s->name, "threads") != 0 && strcmp(s->name, "recompute") != 0;
}

/* Those of them that a fork inherits with the policy. */
static int belongs_to_policy(const rein_setting_info *s) {
    return (!strcmp(s->stage, "policy") || !strcmp(s->name, "critic")) && is_fixed(s) && strcmp(s->name, "seed") != 0;
}

/* A directory can move. That it has the same files is checked when it is opened. */
static int is_moved(const rein_setting_info *s, const char *before, const char *now) {
    const int same = !strcmp(s->name, "critic") && (!strcmp(before, "same") || !strcmp(now, "same"));
    return !strncmp(s->value, "DIR", 3) && !same && *before && *now;
}

static rein_status change_setting(rein_settings *s, const rein_settings *now, const rein_setting_info *info, int fork,
                                  rein_error *err) {
    rein_text value = {0}, before = {0};
    rein_status status = rein_settings_get(&value, now, info->name, err);
    if (!status) status = rein_settings_get(&before, s, info->name, err);
    if (!status && strcmp(value.data, before.data) != 0) {
        if ((fork ? belongs_to_policy(info) : is_fixed(info)) && !is_moved(info, before.data, value.data))
            status =
                rein_fail_at(err, REIN_EINVAL, info->name, -1, "is \"%.100s\", but the run was started with \"%.100s\": %s",
                             value.data, before.data, fork ? "a fork keeps the policy of that run" : "changing it needs a new run");
        else status = rein_settings_set(s, info->name, value.data, err);
    }
    rein_text_free(&value);
    rein_text_free(&before);
    return status;
}

static rein_status change_option(rein_settings *s, const rein_settings *now, const rein_option_info *info, rein_error *err) {
    rein_text value = {0};
    rein_status status = rein_settings_get(&value, now, info->name, err);
    if (!status) status = rein_options_set(&s->objective, info->name, value.data, err);
    rein_text_free(&value);
    return status;
}

static rein_status change(rein_settings *s, const rein_settings *now, int fork, rein_error *err) {
    const rein_setting_info *info;
    const rein_option_info *option;
    rein_status status = REIN_OK;
    s->has_reference = now->has_reference;
    s->preference = now->preference;
    s->has_score = now->has_score;
    for (size_t i = 0; !status && (info = rein_setting_at(i)); i++)
        if (now->given[i]) status = change_setting(s, now, info, fork, err);
    if (*now->preset && !status) {
        rein_options_init(&s->objective, NULL, NULL); /* a preset comes before the options */
        status = rein_settings_set(s, "preset", now->preset, err);
        if (!status) s->objective = now->objective;
        return status;
    }
    for (size_t i = 0; !status && (option = rein_option_at(i)); i++)
        if (now->objective.given[i]) status = change_option(s, now, option, err);
    return status;
}

/* On failure the settings stay as they were. */
static rein_status change_copy(rein_settings *s, const rein_settings *now, int fork, rein_error *err) {
    rein_settings *copy;
    rein_status status = rein_settings_copy(&copy, s, err);
    if (!status) status = change(copy, now, fork, err);
    if (!status) status = rein_settings_assign(s, copy, err);
    rein_settings_free(copy);
    return status;
}

rein_status rein_settings_change(rein_settings *s, const rein_settings *now, rein_error *err) {
    return change_copy(s, now, 0, err);
}

/* A checkpoint of the run that is forked is not one of the fork. */
rein_status rein_settings_fork(rein_settings *s, const rein_settings *now, rein_error *err) {
    if (s->kl_penalty_reference_step >= 0 && !rein_settings_given(now, "kl_penalty_reference_step"))
        return rein_fail_at(
            err, REIN_EINVAL, "kl_penalty_reference_step", -1,
            "is %lld in the run that is forked and names a checkpoint of that run: give a step of the fork, such as 0",
            (long long)s->kl_penalty_reference_step);
    return change_copy(s, now, 1, err);
}

/* ---------------------------------------------------------------------------------------------------------------------- checks */

static rein_status no_effect(const char *name, const char *why, rein_error *err) {
    return rein_fail_at(err, REIN_EINVAL, name, -1, "has no effect %s", why);
}

static rein_status check_policy(const rein_settings *s, rein_error *err) {
    const char *const of_adapters[] = {"lora_rank", "lora_alpha", "use_rslora", "lora_modules"};
    for (size_t i = 0; i < sizeof of_adapters / sizeof *of_adapters; i++) {
        if (!rein_settings_given(s, of_adapters[i])) continue;
        if (s->full) return no_effect(of_adapters[i], "with full: there is no adapter", err);
        if (*s->adapter) return no_effect(of_adapters[i], "with adapter, which has its own", err);
    }
    if (s->full && *s->adapter)
        return rein_fail_at(err, REIN_EINVAL, "full", -1, "and adapter contradict each other: give one of them");
    if (s->full && *s->quantize)
        return rein_fail_at(err, REIN_EINVAL, "quantize", -1, "and full contradict each other: weights that train are f32");
    if (!*s->quantize || rein_quantize_type(s->quantize)) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "quantize", -1, "is \"%.40s\": q8_0 and q4_0 are known", s->quantize);
}

int64_t rein_settings_total_steps(const rein_settings *s) { return s->total_steps || !*s->task ? s->total_steps : s->steps; }

static rein_status check_schedule(const rein_settings *s, rein_error *err) {
    const char *const of_shapes[] = {"lr_final_share", "total_steps"};
    const int constant = s->lr_scheduler_type == REIN_SCHEDULE_CONSTANT;
    const int64_t total = rein_settings_total_steps(s);
    if (!constant && total < 1)
        return rein_fail_at(err, REIN_EINVAL, "lr_scheduler_type", -1, "%s needs total_steps",
                            rein_settings_text(s, "lr_scheduler_type"));
    if (!constant && s->warmup_steps >= total)
        return rein_fail_at(err, REIN_EINVAL, "warmup_steps", -1, "is %lld: it must be less than %s, %lld",
                            (long long)s->warmup_steps, s->total_steps ? "total_steps" : "steps", (long long)total);
    for (size_t i = 0; i < sizeof of_shapes / sizeof *of_shapes; i++)
        if (constant && rein_settings_given(s, of_shapes[i])) return no_effect(of_shapes[i], "with a constant learning rate", err);
    return REIN_OK;
}

static rein_status check_teacher(const rein_settings *s, rein_error *err) {
    if (*s->teacher && !(s->objective.teacher_coef > 0))
        return rein_fail_at(err, REIN_EINVAL, "teacher", -1, "has no effect without teacher_coef, its strength: 1 is usual");
    if (*s->critic && rein_teacher_in_advantage(&s->objective))
        return rein_fail_at(err, REIN_EINVAL, "divergence", -1,
                            "sampled has no place beside a critic, whose advantages are whitened: choose reverse, forward or jsd");
    if (!*s->teacher && s->objective.teacher_coef > 0)
        return rein_fail_at(err, REIN_EINVAL, "teacher", -1, "is missing: teacher_coef needs the directory of a model");
    return REIN_OK;
}

static rein_status check_reference(const rein_settings *s, rein_error *err) {
    const int step = s->kl_penalty_reference_step >= 0, lag = s->kl_penalty_step_lag > 0, adapter = *s->kl_ref_adapter_path != 0;
    const char *name = step ? "kl_penalty_reference_step" : lag ? "kl_penalty_step_lag" : "kl_ref_adapter_path";
    if (step + lag + adapter > 1)
        return rein_fail_at(err, REIN_EINVAL, name, -1, "and %s are two references: give one of them",
                            adapter ? "kl_ref_adapter_path" : "kl_penalty_step_lag");
    if (step + lag + adapter && s->objective.preference_loss && !rein_options_use_reference(&s->objective))
        return rein_fail_at(err, REIN_EINVAL, name, -1, "has no effect: preference_loss %s has no reference",
                            rein_settings_text(s, "preference_loss"));
    if (step + lag + adapter && !s->has_reference && !rein_options_use_reference(&s->objective))
        return rein_fail_at(err, REIN_EINVAL, name, -1, "has no effect: kl_penalty_coef, kl_reward_coef and kl_loss_coef are 0");
    if (lag && s->save_steps > 1)
        return rein_fail_at(err, REIN_EINVAL, name, -1, "needs a checkpoint of every step: save_steps is %lld, and must be 1",
                            (long long)s->save_steps);
    if (adapter && s->full) return no_effect(name, "with full: the reference is a model, not an adapter", err);
    return REIN_OK;
}

static rein_status check_critic(const rein_settings *s, rein_error *err) {
    static const char *const of_critics[] = {"critic_learning_rate", "critic_warmup_steps", "critic_only_steps", "value_clip",
                                             "whiten_advantages"};
    const int64_t total = rein_settings_total_steps(s);
    for (size_t i = 0; i < sizeof of_critics / sizeof *of_critics; i++)
        if (!*s->critic && rein_settings_given(s, of_critics[i])) return no_effect(of_critics[i], "without critic", err);
    if (!*s->critic) return REIN_OK;
    if (s->has_score || s->preference) return no_effect("critic", "here: pairs have no advantages", err);
    if (s->objective.advantage != REIN_ADVANTAGE_GAE)
        return rein_fail_at(err, REIN_EINVAL, "critic", -1, "has no effect: advantage is %s, and a critic is for gae (preset ppo)",
                            rein_settings_text(s, "advantage"));
    if (s->lr_scheduler_type != REIN_SCHEDULE_CONSTANT && s->critic_warmup_steps >= total)
        return rein_fail_at(err, REIN_EINVAL, "critic_warmup_steps", -1, "is %lld: it must be less than %s, %lld",
                            (long long)s->critic_warmup_steps, s->total_steps ? "total_steps" : "steps", (long long)total);
    if (*s->task && s->critic_only_steps >= s->steps)
        return rein_fail_at(err, REIN_EINVAL, "critic_only_steps", -1,
                            "is %lld: it must be less than steps, %lld, or the policy never trains",
                            (long long)s->critic_only_steps, (long long)s->steps);
    return REIN_OK;
}

static rein_status check_kl_target(const rein_settings *s, rein_error *err) {
    static const char *const others[] = {"kl_horizon", "kl_target_unit"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!(s->kl_target > 0) && rein_settings_given(s, others[i])) return no_effect(others[i], "without kl_target", err);
    if (s->kl_target > 0 && !(s->objective.kl_reward_coef > 0))
        return rein_fail_at(err, REIN_EINVAL, "kl_target", -1,
                            "needs kl_reward_coef above 0: the coefficient begins there, and is multiplied step by step");
    return REIN_OK;
}

/* The name of the metric follows the sign that says that less is better. */
static rein_status check_best(const rein_settings *s, rein_error *err) {
    return *s->keep_best ? rein_settings_check_metric(s, "keep_best", s->keep_best + (*s->keep_best == '-'), err) : REIN_OK;
}

/* The best and the worst response to a prompt are a pair of one gradient. */
static rein_status check_preference(const rein_settings *s, rein_error *err) {
    const char *name = s->epochs > 1 ? "epochs" : "minibatches";
    if (!s->objective.preference_loss) return REIN_OK;
    if (s->epochs * s->minibatches > 1)
        return rein_fail_at(err, REIN_EINVAL, name, -1, "must be 1 with preference_loss: a step has one gradient");
    if (s->mask_truncated_completions)
        return no_effect("mask_truncated_completions", "with preference_loss: the chosen and the rejected response both train",
                         err);
    if (*s->task && s->samples < 2)
        return rein_fail_at(
            err, REIN_EINVAL, "samples", -1,
            "is %lld: with preference_loss the best and the worst response to a prompt are a pair, so 2 or more are "
            "needed",
            (long long)s->samples);
    return REIN_OK;
}

rein_status rein_settings_check(const rein_settings *s, rein_error *err) {
    rein_status status = check_policy(s, err);
    if (!status) status = check_preference(s, err);
    if (!status) status = check_schedule(s, err);
    if (!status) status = check_reference(s, err);
    if (!status) status = check_teacher(s, err);
    if (!status) status = check_critic(s, err);
    if (!status) status = check_kl_target(s, err);
    if (!status) status = check_best(s, err);
    if (!status) status = rein_settings_check_date(s, err);
    return status ? status : rein_options_check(&s->objective, err);
}
