/* session_critic.c - a critic in a step of a session: it values the step, and learns beside the policy in the same epochs and minibatches. Also
 * the coefficient of the KL in the reward, where kl_target is set: a session starts it, trains with it, moves it after every step, and saves
 * it in state.json. */
#include "session_critic.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/clock.h"
#include "rollout/trajectory.h"
#include "trainer.h"

/* ------------------------------------------------------------------------------------------------------------------------- critic */

/* The schedule has the shape of the policy's, with a rate and a warm-up of its own. */
static rein_status learning_rate(double *rate, const rein_session *s, rein_error *err) {
    const rein_settings *o = &s->settings;
    const int constant = o->lr_scheduler_type == REIN_SCHEDULE_CONSTANT;
    const rein_schedule schedule = {o->lr_scheduler_type, o->critic_learning_rate, o->critic_warmup_steps,
                                    constant ? 0 : rein_settings_total_steps(o), constant ? 0 : o->lr_final_share};
    return rein_learning_rate(rate, &schedule, s->step < o->critic_warmup_steps ? s->step + 1 : s->step, err);
}

rein_status rein_session_critic_begin(rein_session_critic *c, rein_session *s, const rein_groups *groups,
                                      const rein_options *objective, const float *old, const float *reference, rein_error *err) {
    const double began = rein_now();
    const rein_critic_options options = {objective, old, reference, s->settings.mask_truncated_completions,
                                         s->settings.whiten_advantages};
    rein_status status = learning_rate(&c->learning_rate, s, err);
    if (!status) status = rein_critic_value(&c->step, s->critic, groups, &options, err);
    c->seconds += rein_now() - began;
    return status;
}

rein_status rein_session_critic_pass(rein_session_critic *c, rein_session *s, const rein_groups *part, size_t at, rein_error *err) {
    const rein_settings *o = &s->settings;
    rein_trainer *t = s->critic->trainer;
    const double began = rein_now();
    const rein_adamw adamw = {c->learning_rate, o->adam_beta1, o->adam_beta2, o->adam_epsilon, o->weight_decay, o->max_grad_norm};
    rein_value_pass pass = {.old_values = c->step.values + at,
                            .returns = c->step.returns + at,
                            .value_clip = o->value_clip,
                            .mask_truncated = o->mask_truncated_completions};
    double norm = 0;
    t->last_pass = !s->adapter && t->options.shards > 1;
    rein_status status = rein_trainer_value_pass(&pass, t, part, err);
    if (!status && !pass.nothing_to_train) {
        status = rein_trainer_optim_step(&norm, t, &adamw, err);
        c->optimizer_steps++;
    }
    c->passes++;
    c->loss += pass.loss, c->clip_fraction += pass.clip_fraction, c->norms += norm;
    c->seconds += rein_now() - began;
    return status;
}

void rein_session_critic_numbers(rein_step_numbers *n, const rein_session_critic *c) {
    const double passes = (double)c->passes;
    n->critic_loss = c->loss / passes, n->critic_clip_fraction = c->clip_fraction / passes;
    n->critic_gradient_norm = c->optimizer_steps ? c->norms / (double)c->optimizer_steps : 0;
    n->critic_learning_rate = c->learning_rate, n->seconds_critic = c->seconds;
    n->critic_value_mean = c->step.value_mean, n->critic_return_mean = c->step.return_mean;
    n->critic_explained_variance = c->step.explained_variance;
    n->advantage_mean = c->step.advantage_mean, n->advantage_std = c->step.advantage_std;
}

void rein_session_critic_free(rein_session_critic *c) { rein_critic_step_free(&c->step); }

/* ------------------------------------------------------------------------------------------------------- the coefficient of the KL */

void rein_session_kl_apply(rein_options *objective, rein_session *s) {
    if (!(s->settings.kl_target > 0)) s->kl_coef = NAN;
    else if (isnan(s->kl_coef)) s->kl_coef = objective->kl_reward_coef;
    if (!isnan(s->kl_coef)) objective->kl_reward_coef = s->kl_coef;
}

/* Σ (old − reference) over the trained tokens of a trajectory, whose log-probs begin at *old and *reference. */
static double kl_of(size_t *tokens, const rein_trajectory *t, const float *old, const float *reference) {
    double sum = 0;
    for (size_t i = 0; i < t->n_histories; i++) {
        const rein_history *h = &t->histories[i];
        const float *was = old ? old : rein_history_recorded(h);
        for (size_t k = 0; k < h->n; k++)
            if (h->mask[k]) sum += (double)was[k] - (double)reference[k], ++*tokens;
        reference += h->n;
        if (old) old += h->n;
    }
    return sum;
}

static size_t length_of(const rein_trajectory *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->n_histories; i++) n += t->histories[i].n;
    return n;
}

/* The mean over responses that train, or over their tokens; n is the number of all responses. Those that were cut off do not count where
 * they do not train. */
static double mean_kl(size_t *n, const rein_settings *s, const rein_groups *groups, const float *old, const float *reference) {
    double sum = 0;
    size_t tokens = 0, responses = 0, at = 0;
    *n = 0;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t k = 0; k < groups->groups[g].n; k++, ++*n) {
            const rein_trajectory *t = &groups->groups[g].trajectories[k];
            const size_t before = tokens;
            if (!(s->mask_truncated_completions && t->truncated)) sum += kl_of(&tokens, t, old ? old + at : NULL, reference + at);
            responses += tokens > before;
            at += length_of(t);
        }
    const size_t units = s->kl_target_unit == REIN_KL_OF_TOKEN ? tokens : responses;
    return units ? sum / (double)units : (double)NAN;
}

rein_status rein_session_kl_move(double *kl, rein_session *s, const rein_groups *groups, const float *old, const float *reference,
                                 rein_error *err) {
    const rein_settings *o = &s->settings;
    size_t n;
    if (isnan(s->kl_coef)) return REIN_OK;
    *kl = mean_kl(&n, o, groups, old, reference);
    if (isnan(*kl)) return REIN_OK;
    return rein_kl_control(&s->kl_coef, *kl, o->kl_target, n, o->kl_horizon, err);
}
