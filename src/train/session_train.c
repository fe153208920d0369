/* session_train.c - one step of training: the reference once, then epochs and minibatches, each a gradient and a step of the optimizer.
 * Nothing is written: session_commit.c does that. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "online_pairs.h"
#include "preferences.h"
#include "rollout/trajectory.h"
#include "session.h"
#include "session_critic.h"
#include "session_pairs.h"
#include "session_reward.h"
#include "settings.h"
#include "step_metrics.h"
#include "trainer.h"

/* Tokens of the groups before `last`. */
static size_t tokens_before(const rein_groups *groups, size_t last) {
    return rein_groups_tokens(&(rein_groups){groups->groups, last, 0});
}

static size_t trajectories_before(const rein_groups *groups, size_t last) {
    size_t n = 0;
    for (size_t g = 0; g < last; g++) n += groups->groups[g].n;
    return n;
}

static double truncated_share(const rein_groups *groups) {
    size_t n = 0, truncated = 0;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++, n++) truncated += groups->groups[g].trajectories[t].truncated != 0;
    return n ? (double)truncated / (double)n : 0;
}

/* A step at work. */
typedef struct working {
    rein_session *s;
    const rein_groups *groups; /* that train */
    const rein_groups *all;    /* that were given: with a preference_loss, pairs of them train */
    const rein_train_options *options;
    rein_policy policy;                        /* at the temperature of this step */
    rein_options objective;                    /* of this step */
    size_t tokens;                             /* of the groups that train */
    rein_policy reference_policy;              /* with an exact KL */
    rein_policy teacher_policy;                /* with a divergence over the whole vocabulary */
    float *reference, *old, *teacher;          /* [tokens] or NULL: not needed */
    float *advantages;                         /* [tokens] */
    double ptx_loss;                           /* added up */
    const rein_preference_options *preference; /* NULL: the objective */
    rein_preference_options own_preference;    /* that of the objective */
    rein_online_pairs chosen;                  /* with it */
    rein_metrics of_all;                       /* with it: rewards and lengths */
    rein_pairs_step pairs;                     /* with preference */
    rein_session_critic critic;                /* where the session has one */
    rein_reward_step rewards;                  /* with options->reward_model */
    rein_step_numbers numbers;
    size_t passes, optimizer_steps;
    double norms; /* added up */
} working;

/* ------------------------------------------------------------------------------------------------------------------ log-probs */

static int some_not_recorded(const rein_groups *groups) {
    const rein_groups_summary summary = rein_groups_summarise(groups);
    return summary.log_probs_missing > 0;
}

static rein_status take_log_probs(float **log_probs, const working *w, rein_error *err) {
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
static rein_status ask_teacher(working *w, rein_error *err) {
    const double began = rein_now(), before = w->numbers.seconds_reference;
    if (rein_teacher_in_loss(&w->objective)) w->teacher_policy = (rein_policy){w->s->teacher, NULL, w->policy.temperature};
    if (!rein_teacher_in_advantage(&w->objective)) return REIN_OK;
    rein_status status = take_log_probs(&w->teacher, w, err);
    if (!status) status = rein_session_teacher_log_probs(w->teacher, w->s, w->policy.temperature, w->groups, err);
    w->numbers.seconds_reference = (isnan(before) ? 0 : before) + rein_now() - began;
    return status;
}

/* Once for the whole step: the log-probs of the reference; those of the current policy where the recorded ones are not the old ones, if several
 * optimizer steps or a critic need them; and what a critic makes of the step. */
static rein_status before_the_passes(working *w, rein_error *err) {
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

static void add_pass(working *w, const rein_pass_result *pass, int first_epoch) {
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
static rein_status ptx_pass(working *w, rein_error *err) {
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
static double rate_of(const working *w) {
    return w->options->learning_rates ? w->options->learning_rates[w->passes - 1] : w->numbers.learning_rate;
}

static rein_status optimize(working *w, rein_error *err) {
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
static rein_status reward_pass(working *w, rein_error *err) {
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

static rein_status one_pass(working *w, int64_t epoch, size_t first, size_t last, rein_error *err) {
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
static rein_status check_learning_rates(working *w, rein_error *err) {
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

/* rein_trainer_watch: the share of all passes of the step, those of a critic too. */
static int note_progress(void *context, size_t done, size_t all) {
    const working *w = context;
    const double passes = (double)(w->s->settings.epochs * w->s->settings.minibatches * (w->s->critic ? 2 : 1));
    const double made = (double)(w->passes + w->critic.passes) + (all ? (double)done / (double)all : 0);
    return w->options->progress(w->options->context, made / passes);
}

static rein_status all_passes(working *w, rein_error *err) {
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

/* --------------------------------------------------------------------------------------------------------------------- numbers */

static double peak_memory(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? NAN : (double)usage.ru_maxrss * 1024;
}

static int has_budgets(const working *w) {
    if (w->objective.token_budget >= 0) return 1;
    for (size_t g = 0; g < w->all->n; g++)
        for (size_t t = 0; t < w->all->groups[g].n; t++)
            if (w->all->groups[g].trajectories[t].budget >= 0) return 1;
    return 0;
}

/* Only a part of the groups trained: their rewards and lengths are those of all. */
static void put_all(rein_metrics *m, const rein_metrics *of_all) {
    m->reward = of_all->reward, m->reward_std = of_all->reward_std, m->frac_reward_zero_std = of_all->frac_reward_zero_std;
    m->length_mean = of_all->length_mean, m->length_max = of_all->length_max, m->share_over_budget = of_all->share_over_budget;
}

static void put_balance(rein_step_numbers *n, const rein_expert_load *load, const rein_ranks *ranks) {
    if (!load || rein_ranks_several(ranks)) return; /* each rank knows only its own tokens */
    const rein_expert_balance b = rein_expert_load_balance(load);
    n->expert_load_max = b.load_max, n->expert_load_cv = b.load_cv;
    n->expert_entropy = b.entropy, n->expert_balance_loss = b.balance_loss;
}

static int is_online(const working *w) { return w->preference == &w->own_preference; }

static void finish_numbers(working *w, double began) {
    rein_step_numbers *n = &w->numbers;
    const double tokens = (double)rein_groups_tokens(w->all), seconds_sample = w->options->seconds_sample;
    rein_metrics_finish(&n->loss.metrics, w->passes);
    n->loss.loss /= (double)w->passes;
    n->loss.nothing_to_train = w->optimizer_steps == 0;
    n->parts = REIN_STEP_REWARDS | (rein_options_use_reference(&w->objective) ? REIN_STEP_REFERENCE : 0) |
               (rein_uses_exact_kl(&w->objective) ? REIN_STEP_EXACT_KL : 0) |
               (w->objective.teacher_coef > 0 ? REIN_STEP_TEACHER : 0) | (has_budgets(w) ? REIN_STEP_BUDGETS : 0) |
               (n->loss.metrics.entropy > 0 ? REIN_STEP_ENTROPIES : 0);
    if (w->preference) n->parts &= is_online(w) ? REIN_STEP_REWARDS | REIN_STEP_BUDGETS : 0; /* the others are those of pairs */
    if (is_online(w)) put_all(&n->loss.metrics, &w->of_all);
    if (w->options->reward_model) n->parts = 0; /* pairs have no rewards of groups, and a reward model no entropies */
    n->gradient_norm = w->optimizer_steps ? w->norms / (double)w->optimizer_steps : 0;
    n->clipped_ratio = truncated_share(w->all);
    n->num_tokens = w->s->tokens + tokens;
    n->seconds_sample = seconds_sample;
    n->seconds_step = rein_now() - began + (isnan(seconds_sample) ? 0 : seconds_sample);
    n->budget_multiplier = isnan(w->s->multiplier) ? NAN : w->objective.budget_penalty_coef;
    n->tokens_per_second = n->seconds_step > 0 ? tokens / n->seconds_step : NAN;
    n->peak_memory = peak_memory();
    put_balance(n, w->s->trainer->load, w->s->ranks);
    if (w->s->critic) rein_session_critic_numbers(n, &w->critic);
    if (!isnan(w->s->kl_coef)) n->kl_reward_coef = w->objective.kl_reward_coef;
}

static void make_report(rein_session_report *report, const working *w) {
    rein_session *s = w->s;
    size_t n = rein_metric_rows(s->metrics, REIN_METRIC_ROWS, &w->numbers);
    if (w->options->ptx) s->metrics[n++] = (rein_named_number){"ptx/loss", w->ptx_loss / (double)w->passes};
    if (w->preference) n = rein_pairs_rows(s->metrics, n, &w->pairs);
    if (w->options->reward_model) n = rein_reward_rows(s->metrics, n, &w->rewards);
    *report = (rein_session_report){s->step + 1, w->optimizer_steps == 0, n, s->metrics};
}

/* ------------------------------------------------------------------------------------------------------------------------- train */

/* Gives every history the advantages of its tokens. */
static rein_status keep_advantages(rein_groups *groups, const float *advantages, rein_error *err) {
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++)
            for (size_t i = 0; i < groups->groups[g].trajectories[t].n_histories; i++) {
                rein_history *h = &groups->groups[g].trajectories[t].histories[i];
                float *kept = realloc(h->advantages, (h->n ? h->n : 1) * sizeof *kept);
                if (!kept) return rein_fail(err, REIN_ENOMEM, "no memory for the advantages of %zu tokens", h->n);
                for (size_t k = 0; k < h->n; k++) kept[k] = h->mask[k] ? advantages[k] : 0;
                h->advantages = kept;
                advantages += h->n;
            }
    return REIN_OK;
}

/* Gives every history the critic's values of its tokens. */
static rein_status keep_values(rein_groups *groups, const float *values, rein_error *err) {
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++)
            for (size_t i = 0; i < groups->groups[g].trajectories[t].n_histories; i++) {
                rein_history *h = &groups->groups[g].trajectories[t].histories[i];
                float *kept = realloc(h->values, (h->n ? h->n : 1) * sizeof *kept);
                if (!kept) return rein_fail(err, REIN_ENOMEM, "no memory for the values of %zu tokens", h->n);
                for (size_t k = 0; k < h->n; k++) kept[k] = h->mask[k] ? values[k] : NAN;
                h->values = kept;
                values += h->n;
            }
    return REIN_OK;
}

/* Before a pass on a part of the groups: errors name the place in all of them. */
static rein_status check_data(const working *w, rein_error *err) {
    const rein_train_options *o = w->options;
    rein_groups_use use = {.model = w->s->model, .mask_truncated = w->s->settings.mask_truncated_completions};
    const rein_status status = rein_groups_check(w->groups, &use, err);
    if (status || !o->ptx) return status;
    if (!o->ptx->n || !o->ptx_batch)
        return rein_fail_at(err, REIN_EINVAL, o->ptx->n ? "ptx_batch" : "ptx", -1, "is %s: 1 example or more is needed",
                            o->ptx->n ? "0" : "empty");
    use.mask_truncated = 0;
    const rein_status of_ptx = rein_groups_check(o->ptx, &use, err);
    return of_ptx ? rein_fail_in(err, of_ptx, "ptx") : REIN_OK;
}

/* A loss over preferences whose pairs the caller has not chosen: the best and the worst of each group. */
static rein_status choose_pairs(working *w, rein_error *err) {
    const rein_options measure = rein_online_measure(&w->objective);
    const rein_pass_options how = {.objective = &measure, .policy_step = -1};
    rein_options resolved;
    rein_loss loss;
    rein_status status = rein_options_resolve(&resolved, &w->objective, err);
    if (!status) status = rein_trainer_check(&loss, w->s->trainer, w->groups, &how, err);
    if (!status) status = rein_online_pairs_choose(&w->chosen, w->groups, &w->objective, err);
    if (status) return status;
    rein_options_preference(&w->own_preference, &resolved);
    w->preference = &w->own_preference;
    w->of_all = loss.metrics;
    w->groups = &w->chosen.groups;
    w->tokens = rein_groups_tokens(w->groups);
    w->pairs.pairs = (double)w->groups->n, w->pairs.ties = (double)w->chosen.ties;
    return REIN_OK;
}

static rein_status begin_pairs(working *w, rein_error *err) {
    const rein_settings *o = &w->s->settings;
    w->preference = w->options->preference;
    w->pairs.kl = w->pairs.pairs = w->pairs.ties = NAN;
    if (!w->preference && !w->options->reward_model && !w->objective.preference_loss) return REIN_OK;
    if (w->s->critic) return rein_fail_at(err, REIN_EINVAL, "critic", -1, "has no effect: the groups are pairs");
    if (!w->preference && !w->options->reward_model) return choose_pairs(w, err);
    if (o->epochs * o->minibatches > 1)
        return rein_fail_at(err, REIN_EINVAL, o->epochs > 1 ? "epochs" : "minibatches", -1,
                            "must be 1 for pairs: a step is a batch");
    return rein_options_init(&w->objective, NULL, err);
}

static rein_status begin_step(working *w, rein_error *err) {
    if (w->options->temperature != 0) w->policy.temperature = w->options->temperature;
    rein_session_budget_apply(&w->objective, w->s);
    if (!w->options->preference) rein_session_kl_apply(&w->objective, w->s);
    if (w->s->settings.truncation == REIN_TRUNCATION_POLICY && !w->options->own_samples)
        return rein_fail_at(err, REIN_EINVAL, "truncation", -1,
                            "policy trains only on what the run has just sampled: groups from elsewhere need truncation none and a "
                            "mismatch, such as token-tis");
    rein_status status = rein_check_temperature(w->policy.temperature, err);
    if (!status) status = check_data(w, err);
    if (!status) status = begin_pairs(w, err);
    if (!status && w->options->reward_model) status = rein_reward_pairs_check(w->s, w->groups, w->options->reward_model, err);
    if (status) return status;
    rein_step_numbers_clear(&w->numbers);
    if (w->s->trainer->load) rein_expert_load_clear(w->s->trainer->load);
    w->numbers.loss = (rein_loss){0};
    w->numbers.seconds_forward = w->numbers.seconds_backward = w->numbers.seconds_optimizer = 0;
    w->advantages = calloc(w->tokens + 1, sizeof *w->advantages);
    if (!w->advantages) return rein_fail(err, REIN_ENOMEM, "no memory for the advantages of %zu tokens", w->tokens);
    return before_the_passes(w, err);
}

static rein_status end_step(rein_session_report *report, working *w, double began, rein_error *err) {
    rein_status status = rein_session_kl_move(&w->numbers.kl_of_target, w->s, w->groups, w->old, w->reference, err);
    if (!status) status = rein_session_put_traffic(&w->numbers, w->s, err);
    if (status) return status;
    finish_numbers(w, began);
    make_report(report, w);
    w->s->tokens = w->numbers.num_tokens;
    w->s->seconds += w->numbers.seconds_step;
    return rein_session_budget_move(w->s, w->all, err);
}

rein_status rein_session_train(rein_session_report *report, rein_session *s, rein_groups *groups, const rein_train_options *options,
                               rein_error *err) {
    static const rein_train_options nothing_sampled = {.seconds_sample = NAN};
    const double began = rein_now();
    working w = {.s = s,
                 .groups = groups,
                 .all = groups,
                 .options = options ? options : &nothing_sampled,
                 .policy = rein_session_policy(s),
                 .objective = s->settings.objective,
                 .tokens = rein_groups_tokens(groups)};
    rein_status status = rein_session_expect(s, REIN_SESSION_READY, err);
    if (status) return status;
    if (!s->step_began) rein_session_begin_step(s);
    if (w.options->progress) s->trainer->watch = (rein_trainer_watch){note_progress, &w};
    if (s->critic) s->critic->trainer->watch = s->trainer->watch;
    status = rein_session_store(s, err);
    if (!status) status = begin_step(&w, err);
    if (!status) status = all_passes(&w, err);
    if (!status && w.options->keep_advantages && !w.preference) status = keep_advantages(groups, w.advantages, err);
    if (!status && w.options->keep_advantages && s->critic) status = keep_values(groups, w.critic.step.values, err);
    if (!status) status = end_step(report, &w, began, err);
    s->trainer->watch = (rein_trainer_watch){0};
    if (s->critic) s->critic->trainer->watch = (rein_trainer_watch){0};
    rein_online_pairs_free(&w.chosen);
    rein_reward_step_free(&w.rewards);
    free(w.advantages);
    free(w.reference);
    free(w.teacher);
    free(w.old);
    rein_session_critic_free(&w.critic);
    s->state = status ? REIN_SESSION_FAILED : REIN_SESSION_TRAINED;
    return status;
}
