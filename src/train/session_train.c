/* session_train.c - one step of training from its checks to its report. session_passes.c has the passes between them. Nothing is written:
 * session_commit.c does that. */
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "session_work.h"

/* --------------------------------------------------------------------------------------------------------------------- numbers */

static double peak_memory(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? NAN : (double)usage.ru_maxrss * 1024;
}

static double truncated_share(const rein_groups *groups) {
    size_t n = 0, truncated = 0;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++, n++) truncated += groups->groups[g].trajectories[t].truncated != 0;
    return n ? (double)truncated / (double)n : 0;
}

static int has_budgets(const rein_session_work *w) {
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

static int is_online(const rein_session_work *w) { return w->preference == &w->own_preference; }

static void finish_numbers(rein_session_work *w, double began) {
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

static void make_report(rein_session_report *report, const rein_session_work *w) {
    rein_session *s = w->s;
    size_t n = rein_metric_rows(s->metrics, REIN_METRIC_ROWS, &w->numbers);
    if (w->options->ptx) s->metrics[n++] = (rein_named_number){"ptx/loss", w->ptx_loss / (double)w->passes};
    if (w->preference) n = rein_pairs_rows(s->metrics, n, &w->pairs);
    if (w->options->reward_model) n = rein_reward_rows(s->metrics, n, &w->rewards);
    *report = (rein_session_report){s->step + 1, w->optimizer_steps == 0, n, s->metrics};
}

/* ------------------------------------------------------------------------------------------------------------------------- train */

/* Gives every history the advantages of its tokens or, with of_critic, the critic's values. */
static rein_status keep(rein_groups *groups, const float *given, int of_critic, rein_error *err) {
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++)
            for (size_t i = 0; i < groups->groups[g].trajectories[t].n_histories; i++) {
                rein_history *h = &groups->groups[g].trajectories[t].histories[i];
                float **field = of_critic ? &h->values : &h->advantages;
                float *kept = realloc(*field, (h->n ? h->n : 1) * sizeof *kept);
                if (!kept)
                    return rein_fail(err, REIN_ENOMEM, "no memory for the %s of %zu tokens", of_critic ? "values" : "advantages",
                                     h->n);
                for (size_t k = 0; k < h->n; k++) kept[k] = h->mask[k] ? given[k] : of_critic ? NAN : 0;
                *field = kept;
                given += h->n;
            }
    return REIN_OK;
}

/* Before a pass on a part of the groups: errors name the place in all of them. */
static rein_status check_data(const rein_session_work *w, rein_error *err) {
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
static rein_status choose_pairs(rein_session_work *w, rein_error *err) {
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

static rein_status begin_pairs(rein_session_work *w, rein_error *err) {
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

static rein_status begin_step(rein_session_work *w, rein_error *err) {
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
    return rein_session_before_passes(w, err);
}

static rein_status end_step(rein_session_report *report, rein_session_work *w, double began, rein_error *err) {
    rein_status status = rein_session_kl_move(&w->numbers.kl_of_target, w->s, w->groups, w->old, w->reference, err);
    if (!status) status = rein_session_put_traffic(&w->numbers, w->s, err);
    if (status) return status;
    finish_numbers(w, began);
    make_report(report, w);
    w->s->tokens = w->numbers.num_tokens;
    w->s->seconds += w->numbers.seconds_step;
    return rein_session_budget_move(w->s, w->all, err);
}

/* rein_trainer_watch: the share of all passes of the step, those of a critic too. */
static int note_progress(void *context, size_t done, size_t all) {
    const rein_session_work *w = context;
    const double passes = (double)(w->s->settings.epochs * w->s->settings.minibatches * (w->s->critic ? 2 : 1));
    const double made = (double)(w->passes + w->critic.passes) + (all ? (double)done / (double)all : 0);
    return w->options->progress(w->options->context, made / passes);
}

rein_status rein_session_train(rein_session_report *report, rein_session *s, rein_groups *groups, const rein_train_options *options,
                               rein_error *err) {
    static const rein_train_options nothing_sampled = {.seconds_sample = NAN};
    const double began = rein_now();
    rein_session_work w = {.s = s,
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
    if (!status) status = rein_session_passes(&w, err);
    if (!status && w.options->keep_advantages && !w.preference) status = keep(groups, w.advantages, 0, err);
    if (!status && w.options->keep_advantages && s->critic) status = keep(groups, w.critic.step.values, 1, err);
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
