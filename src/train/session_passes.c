/* session_passes.c - the work of a step: the log-probs that it needs once, then epochs and minibatches, each a gradient and a step of the
 * optimizer. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "rollout/trajectory.h"
#include "session_work.h"
#include "settings.h"
#include "trainer.h"

/* ------------------------------------------------------------------------------------------------------------------ log-probs */

static int some_not_recorded(const rein_groups *groups) {
    const rein_groups_summary summary = rein_groups_summarise(groups);
    return summary.log_probs_missing > 0;
}

static rein_status take_log_probs(float **log_probs, const rein_session_work *w, rein_error *err) {
    *log_probs = malloc((w->tokens + 1) * sizeof **log_probs);
    return *log_probs ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for the log-probs of %zu tokens", w->tokens);
}

/* A recorded log-prob stays the old one; the others are those of the current policy. */
static void put_recorded(float *old, const rein_groups *groups) {
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++)
            for (size_t i = 0; i < groups->groups[g].trajectories[t].n_histories; i++) {
                const rein_history *h = &groups->groups[g].trajectories[t].histories[i];
                const float *recorded = rein_history_recorded(h);
                for (size_t k = 0; k < h->n; k++)
                    if (h->mask[k] && !isnan(recorded[k])) old[k] = recorded[k];
                old += h->n;
            }
}

/* The sampled divergence needs only log-probs, which do not change from pass to pass. */
static rein_status ask_teacher(rein_session_work *w, rein_error *err) {
    const double began = rein_now(), before = w->numbers.seconds_reference;
    if (rein_teacher_in_loss(&w->objective)) w->teacher_policy = (rein_policy){w->s->teacher, NULL, w->policy.temperature};
    if (!rein_teacher_in_advantage(&w->objective)) return REIN_OK;
    rein_status status = take_log_probs(&w->teacher, w, err);
    if (!status) status = rein_session_teacher_log_probs(w->teacher, w->s, w->policy.temperature, w->groups, err);
    w->numbers.seconds_reference = (isnan(before) ? 0 : before) + rein_now() - began;
    return status;
}

rein_status rein_session_before_passes(rein_session_work *w, rein_error *err) {
    rein_session *s = w->s;
    rein_status status = REIN_OK;
    const double began = rein_now();
    const rein_preference_options *preference = w->preference;
    if (!w->groups->n) return REIN_OK;
    if (!preference && rein_uses_exact_kl(&w->objective))
        status = rein_session_reference_policy(&w->reference_policy, s, w->policy.temperature, err);
    if (!status && (preference ? rein_preference_uses_reference(preference) : rein_uses_ref_log_probs(&w->objective))) {
        status = take_log_probs(&w->reference, w, err);
        if (!status) status = rein_session_reference_log_probs(w->reference, s, w->policy.temperature, w->groups, err);
        w->numbers.seconds_reference = rein_now() - began;
    }
    if (!status && !preference) status = ask_teacher(w, err);
    if (!status && preference && preference->loss == REIN_PREFERENCE_KTO)
        status = rein_pairs_kl(&w->pairs.kl, s, w->groups, &w->policy, err);
    const int several = s->settings.epochs * s->settings.minibatches > 1 || s->critic || !isnan(s->kl_coef);
    const int mismatch = w->objective.mismatch != REIN_MISMATCH_NONE;
    if (!status && several && (mismatch || some_not_recorded(w->groups))) status = take_log_probs(&w->old, w, err);
    if (!status && w->old) status = rein_trainer_log_probs(w->old, NULL, s->trainer, &w->policy, w->groups, err);
    if (!status && w->old && !mismatch) put_recorded(w->old, w->groups);
    if (!status && s->critic)
        status = rein_session_critic_begin(&w->critic, s, w->groups, &w->objective, w->old, w->reference, err);
    return status;
}

/* --------------------------------------------------------------------------------------------------------------------- passes */

/* Tokens of the groups before `last`. */
static size_t tokens_before(const rein_groups *groups, size_t last) {
    return rein_groups_tokens(&(rein_groups){groups->groups, last, 0});
}

static size_t trajectories_before(const rein_groups *groups, size_t last) {
    size_t n = 0;
    for (size_t g = 0; g < last; g++) n += groups->groups[g].n;
    return n;
}

static void add_pass(rein_session_work *w, const rein_pass_result *pass, int first_epoch) {
    rein_step_numbers *n = &w->numbers;
    rein_metrics_add(&n->loss.metrics, &pass->loss.metrics, w->passes == 0, first_epoch);
    n->loss.loss += pass->loss.loss;
    if (w->passes == 0) n->on_policy_gap = pass->max_gap;
    w->pairs.metrics = pass->preference;
    n->seconds_forward += pass->seconds_forward;
    n->seconds_backward += pass->seconds_backward;
    w->passes++;
}

static rein_adamw adamw_of(const rein_settings *o, double rate) {
    return (rein_adamw){rate, o->adam_beta1, o->adam_beta2, o->adam_epsilon, o->weight_decay, o->max_grad_norm};
}

static rein_status learning_rate(double *rate, const rein_settings *o, int64_t step, rein_error *err) {
    const rein_schedule_shape shape = o->lr_scheduler_type;
    const rein_schedule schedule = {shape, o->learning_rate, o->warmup_steps,
                                    shape == REIN_SCHEDULE_CONSTANT ? 0 : rein_settings_total_steps(o),
                                    shape == REIN_SCHEDULE_CONSTANT ? 0 : o->lr_final_share};
    return rein_learning_rate(rate, &schedule, step, err);
}

/* The supervised loss of K2's mixture: REINFORCE without an advantage, on rewards that are its weight. Optimizer step number i of the run
 * takes batch i mod n of epoch i / n. */
static rein_status ptx_pass(rein_session_work *w, rein_error *err) {
    const rein_groups *data = w->options->ptx;
    const size_t batch = w->options->ptx_batch < data->n ? w->options->ptx_batch : data->n, per_epoch = data->n / batch;
    const size_t number = (size_t)rein_trainer_steps(w->s->trainer), first = number % per_epoch * batch;
    size_t *order = malloc(data->n * sizeof *order);
    rein_group *part = malloc(batch * sizeof *part);
    rein_pass_result pass;
    rein_status status = order && part ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for %zu examples", data->n);
    if (!status) {
        rein_shuffle(order, data->n, (uint64_t)w->s->settings.seed, number / per_epoch);
        for (size_t i = 0; i < batch; i++) part[i] = data->groups[order[first + i]];
        const rein_pass_options options = {.policy_step = -1, .temperature = w->policy.temperature}; /* zero is literal */
        status = rein_trainer_forward_backward(&pass, w->s->trainer, &(rein_groups){part, batch, 0}, &options, err);
    }
    if (!status) {
        w->ptx_loss += pass.loss.loss;
        w->numbers.seconds_forward += pass.seconds_forward;
        w->numbers.seconds_backward += pass.seconds_backward;
    }
    free(part);
    free(order);
    return status;
}

/* The learning rate of the pass that was just made. */
static double rate_of(const rein_session_work *w) {
    return w->options->learning_rates ? w->options->learning_rates[w->passes - 1] : w->numbers.learning_rate;
}

static rein_status optimize(rein_session_work *w, rein_error *err) {
    const double began = rein_now();
    const rein_adamw adamw = adamw_of(&w->s->settings, rate_of(w));
    double norm = 0;
    const rein_status status = rein_trainer_optim_step(&norm, w->s->trainer, &adamw, err);
    w->norms += norm;
    w->optimizer_steps++;
    w->numbers.seconds_optimizer += rein_now() - began;
    return status;
}

/* The pass of a reward model. */
static rein_status reward_pass(rein_session_work *w, rein_error *err) {
    rein_reward_pass pass;
    w->s->trainer->last_pass = !w->s->adapter && w->s->trainer->options.shards > 1;
    const rein_status status = rein_reward_step_pass(&w->rewards, &pass, w->s, w->groups, w->options->reward_model, err);
    if (status) return status;
    w->numbers.loss.loss = pass.loss;
    w->numbers.seconds_forward += pass.seconds_forward;
    w->numbers.seconds_backward += pass.seconds_backward;
    w->passes++;
    return pass.nothing_to_train ? REIN_OK : optimize(w, err);
}

static rein_status one_pass(rein_session_work *w, int64_t epoch, size_t first, size_t last, rein_error *err) {
    rein_session *s = w->s;
    const double none = NAN;
    rein_pass_result pass = {.nothing_to_train = 1, .max_gap = none, .preference = {none, none, none, none, none, none}};
    const size_t at = tokens_before(w->groups, first), trajectory = trajectories_before(w->groups, first);
    const rein_groups part = {w->groups->groups + first, last - first, 0};
    const rein_truncation truncation = {s->settings.top_k, s->settings.top_p, s->settings.min_p};
    const rein_pass_options options = {.objective = &w->objective,
                                       .reference = w->reference_policy.model ? &w->reference_policy : NULL,
                                       .reference_log_probs = w->reference ? w->reference + at : NULL,
                                       .old_log_probs = w->old ? w->old + at : NULL,
                                       .policy_step = w->passes == 0 ? s->step : -1,
                                       .mask_truncated_completions = s->settings.mask_truncated_completions,
                                       .recorded_are_current = w->passes == 0 && w->options->own_samples,
                                       .advantages = epoch == 0 ? w->advantages + at : NULL,
                                       .temperature = w->policy.temperature,
                                       .truncation = s->settings.truncation ? &truncation : NULL,
                                       .preference = w->preference,
                                       .preference_kl = w->pairs.kl,
                                       .teacher = w->teacher_policy.model ? &w->teacher_policy : NULL,
                                       .teacher_log_probs = w->teacher ? w->teacher + at : NULL,
                                       .given_advantages = s->critic ? w->critic.step.advantages + at : NULL,
                                       .shaped_rewards = s->critic ? w->critic.step.rewards + trajectory : NULL};
    s->trainer->last_pass = !s->adapter && !w->options->ptx && s->trainer->options.shards > 1;
    rein_status status = REIN_OK;
    if (part.n) status = rein_trainer_forward_backward(&pass, s->trainer, &part, &options, err);
    if (!status) add_pass(w, &pass, epoch == 0);
    if (!status && w->options->ptx) status = ptx_pass(w, err);
    if (!status && s->critic) status = rein_session_critic_pass(&w->critic, s, &part, at, err);
    if (!status && s->critic && s->step < s->settings.critic_only_steps) return rein_trainer_clear(s->trainer), REIN_OK;
    if (status || (pass.nothing_to_train && !w->options->ptx)) return status;
    return optimize(w, err);
}

/* Those of the caller: one for each pass. What is reported is their mean. */
static rein_status check_learning_rates(rein_session_work *w, rein_error *err) {
    const rein_train_options *o = w->options;
    const size_t passes = (size_t)(w->s->settings.epochs * w->s->settings.minibatches);
    double sum = 0;
    if (!o->learning_rates) return REIN_OK;
    if (o->n_learning_rates != passes)
        return rein_fail_at(err, REIN_EINVAL, "learning_rate", -1, "is a list of %zu numbers: epochs·minibatches, %zu, are needed",
                            o->n_learning_rates, passes);
    for (size_t i = 0; i < passes; i++) {
        if (!(o->learning_rates[i] >= 0 && o->learning_rates[i] <= 1))
            return rein_fail_at(err, REIN_EINVAL, "learning_rate", (int64_t)i, "is %g: it must be a number between 0 and 1",
                                o->learning_rates[i]);
        sum += o->learning_rates[i];
    }
    w->numbers.learning_rate = sum / (double)passes;
    return REIN_OK;
}

rein_status rein_session_passes(rein_session_work *w, rein_error *err) {
    const rein_settings *o = &w->s->settings;
    const size_t parts = (size_t)o->minibatches;
    /* The first step of the warm-up has a rate above 0, and the last step of the run more than that at its end. */
    const int64_t step = w->s->step < o->warmup_steps ? w->s->step + 1 : w->s->step;
    rein_status status = learning_rate(&w->numbers.learning_rate, o, step, err);
    if (!status) status = check_learning_rates(w, err);
    if (!status) status = rein_session_check_minibatches(w->s, w->all->n, err);
    if (!status && w->options->reward_model) return reward_pass(w, err);
    for (int64_t epoch = 0; epoch < o->epochs && !status; epoch++)
        for (size_t b = 0; b < parts && !status; b++)
            status = one_pass(w, epoch, w->groups->n * b / parts, w->groups->n * (b + 1) / parts, err);
    return status;
}
