/* loop.c - the loop: sample, reward, train, evaluate.
 *
 * Step s asks for the examples at places s·P … s·P + P − 1 of the task, P prompts a step, and each response has its own address (seed, step,
 * prompt, sample): so a run that is gone on with asks and answers what it would have. A file is walked through in an order of its own in
 * every epoch. With dynamic sampling a step has places for all the rounds it could need. */
#include "loop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

static const rein_settings *settings_of(const rein_loop *l) { return &l->session->settings; }

/* ------------------------------------------------------------------------------------------------------------------------- open */

/* A file can be walked through any number of times, but a step asks nothing twice. */
static rein_status check_size(const rein_loop *l, rein_error *err) {
    const size_t there = rein_task_size(l->runner->task, REIN_SPLIT_TRAIN), wanted = (size_t)settings_of(l)->prompts;
    if (wanted <= there) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "prompts is %zu, and the task has %zu examples to train on", wanted, there);
}

static rein_status name_judges(rein_loop *l, rein_error *err) {
    const size_t n = rein_reward_count(l->runner->reward);
    l->judge_names = calloc(n, sizeof *l->judge_names);
    if (!l->judge_names) return rein_fail(err, REIN_ENOMEM, "no memory for the names of rewards");
    for (size_t i = 0; i < n; i++)
        snprintf(l->judge_names[i], sizeof *l->judge_names, "rewards/%.60s/mean", rein_reward_name(l->runner->reward, i));
    return REIN_OK;
}

static rein_status check_judge(const rein_loop *l, const char *setting, const char *metric, size_t length, rein_error *err) {
    const size_t n = rein_reward_count(l->runner->reward);
    if (strncmp(metric, "rewards/", 8) != 0) return REIN_OK;
    for (size_t i = 0; i < n; i++)
        if (strlen(l->judge_names[i]) == length && !strncmp(metric, l->judge_names[i], length)) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "%s names \"%.*s\": the first reward is %s", setting, (int)length, metric,
                     l->judge_names[0]);
}

/* stop_at and keep_best may name one of them. */
static rein_status check_judges(const rein_loop *l, rein_error *err) {
    const rein_settings *s = settings_of(l);
    const char *best = s->keep_best + (*s->keep_best == '-');
    const rein_status status = check_judge(l, "stop_at", s->stop_at, strcspn(s->stop_at, "<>"), err);
    return status ? status : check_judge(l, "keep_best", best, strlen(best), err);
}

/* The supervised examples carry the weight of their loss as their reward. */
static rein_status open_ptx(rein_loop *l, rein_error *err) {
    const rein_settings *s = settings_of(l);
    const int32_t named = rein_tokenizer_named(l->runner->tokenizer).end,
                  end = l->runner->info.n_end_ids ? l->runner->info.end_ids[0] : -1;
    if (!*s->ptx_data) return REIN_OK;
    const rein_status status =
        rein_sft_read(&l->ptx, s->ptx_data, l->runner->tokenizer, l->runner->prompting.chat, named >= 0 ? named : end, err);
    for (size_t i = 0; i < l->ptx.n && !status; i++) l->ptx.groups[i].trajectories[0].reward = s->ptx_coef;
    return status;
}

static void start_controller(rein_loop *l) {
    rein_session *s = l->session;
    if (!(s->settings.budget_target > 0)) s->multiplier = NAN;
    else if (isnan(s->multiplier))
        s->multiplier = isnan(s->settings.objective.budget_penalty_coef) ? 0 : s->settings.objective.budget_penalty_coef;
}

static void note_metric(rein_loop *l, const char *name, double value, int last) {
    if (!strcmp(name, "on_policy/max_gap") && !(value <= l->max_gap)) l->max_gap = value;
    l->stopped |= last && rein_stop_holds(settings_of(l)->stop_at, name, value);
}

/* The steps that earlier sessions of the run made: their greatest gap, and whether the last one was the end. */
static rein_status recall_steps(rein_loop *l, rein_error *err) {
    json_t *lines, *value;
    const char *name;
    const rein_status status = rein_run_history_read(&lines, l->session->run, err);
    l->max_gap = NAN;
    for (size_t i = 0; i < json_array_size(lines) && !status; i++) json_object_foreach(json_array_get(lines, i), name, value) {
            if (json_is_number(value)) note_metric(l, name, json_number_value(value), i + 1 == json_array_size(lines));
        }
    json_decref(lines);
    return status;
}

rein_status rein_loop_open(rein_loop **loop, const char *directory, const rein_settings *settings, const rein_loop_options *options,
                           rein_error *err) {
    *loop = NULL;
    rein_loop *l = calloc(1, sizeof *l);
    if (!l) return rein_fail(err, REIN_ENOMEM, "no memory for a loop");
    if (options) l->options = *options;
    l->first.step = l->last.step = -1;
    rein_status status = rein_session_prepare(&l->session, directory, l->options.fork, settings, err);
    l->options.fork = NULL;
    if (!status) status = rein_loop_check(settings_of(l), err);
    if (!status) status = rein_task_runner_open(&l->runner, settings_of(l), l->session->model, err);
    if (!status) status = rein_task_runner_check(l->runner, err);
    if (!status) status = check_size(l, err);
    if (!status) status = name_judges(l, err);
    if (!status) status = check_judges(l, err);
    if (!status) status = open_ptx(l, err);
    if (!status) status = rein_session_begin(l->session, directory, err);
    if (!status) status = rein_loop_recall(l, err);
    if (!status) status = recall_steps(l, err);
    if (status) {
        rein_loop_close(l);
        return status;
    }
    start_controller(l);
    *loop = l;
    return REIN_OK;
}

static void clear_step(rein_loop *l) {
    for (size_t i = 0; i < l->n_rounds; i++) rein_rollout_free(&l->rounds[i]);
    free(l->rounds);
    l->rounds = NULL, l->n_rounds = 0;
    rein_groups_free(&l->groups);
}

void rein_loop_close(rein_loop *l) {
    if (!l) return;
    clear_step(l);
    rein_rollout_free(&l->before);
    rein_rollout_free(&l->after);
    json_decref(l->evaluations);
    rein_groups_free(&l->ptx);
    free(l->judge_names);
    rein_task_runner_close(l->runner);
    rein_session_close(l->session);
    free(l);
}

const rein_session *rein_loop_session(const rein_loop *l) { return l->session; }
const rein_loop_evaluation *rein_loop_first(const rein_loop *l) { return &l->first; }
const rein_loop_evaluation *rein_loop_last(const rein_loop *l) { return &l->last; }
const char *rein_loop_stopped(const rein_loop *l) { return l->stopped ? l->session->settings.stop_at : ""; }
int rein_loop_done(const rein_loop *l) { return l->stopped || l->session->step >= l->session->settings.steps; }

/* -------------------------------------------------------------------------------------------------------------------- sampling */

static int truncates(const rein_settings *s) { return s->top_k > 0 || s->top_p < 1 || s->min_p > 0; }

/* Where the examples of a round stand: an endless task goes on and on, the others are walked through epoch by epoch. */
static rein_status choose(uint64_t *indices, const rein_loop *l, size_t round, rein_error *err) {
    const rein_settings *s = settings_of(l);
    const size_t size = rein_task_size(l->runner->task, REIN_SPLIT_TRAIN);
    const uint64_t first = ((uint64_t)l->session->step * (uint64_t)(1 + s->dynamic_sampling) + round) * (uint64_t)s->prompts;
    for (size_t i = 0; i < (size_t)s->prompts; i++) indices[i] = first + i;
    if (size == SIZE_MAX) return REIN_OK;
    size_t *order = malloc(size * sizeof *order);
    if (!order) return rein_fail(err, REIN_ENOMEM, "no memory for the order of %zu examples", size);
    uint64_t epoch = UINT64_MAX;
    for (size_t i = 0; i < (size_t)s->prompts; i++) {
        if (indices[i] / size != epoch) rein_shuffle(order, size, (uint64_t)s->seed, epoch = indices[i] / size);
        indices[i] = order[indices[i] % size];
    }
    free(order);
    return REIN_OK;
}

static void on_progress(void *context, size_t done, size_t all) {
    const rein_loop *l = context;
    if (l->options.progress) l->options.progress(l->options.context, REIN_PHASE_SAMPLING, done, all);
}

static rein_status roll_out(rein_rollout *rollout, rein_loop *l, size_t round, rein_error *err) {
    const rein_settings *s = settings_of(l);
    uint64_t *indices = malloc((size_t)s->prompts * sizeof *indices);
    if (!indices) return rein_fail(err, REIN_ENOMEM, "no memory for %lld prompts", (long long)s->prompts);
    rein_rollout_options a = rein_task_runner_options(l->runner, rein_session_policy(l->session), l->session->exec);
    a.indices = indices, a.n = (size_t)s->prompts, a.samples = (size_t)s->samples;
    a.step = (uint64_t)l->session->step, a.first_prompt = round * (uint64_t)s->prompts;
    a.activation_cache = rein_session_activation_cache(l->session);
    a.progress = on_progress, a.context = l;
    rein_status status = choose(indices, l, round, err);
    if (!status) status = rein_rollout_make(rollout, &a, err);
    free(indices);
    return status;
}

/* The rewards of a prompt's responses as the objective compares them: with what their lengths cost. */
static rein_status shaped_rewards(double *shaped, const rein_loop *l, const rein_rollout *r, size_t prompt, rein_error *err) {
    const rein_options *o = &settings_of(l)->objective;
    const rein_completion *written = r->written + prompt * r->samples;
    const double *rewards = r->rewards + prompt * r->samples;
    size_t *offsets = calloc(r->samples + 1, sizeof *offsets);
    int64_t *numbers = malloc(2 * r->samples * sizeof *numbers), *lengths = numbers, *budgets = numbers + r->samples;
    const int64_t own = r->examples[prompt].budget;
    rein_status status = offsets && numbers ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for %zu rewards", r->samples);
    for (size_t k = 0; k < r->samples && !status; k++) lengths[k] = (int64_t)written[k].n, budgets[k] = own;
    memcpy(shaped, rewards, r->samples * sizeof *shaped);
    if (!status && o->shape != REIN_SHAPE_NONE &&
        o->shape != REIN_SHAPE_K15_LENGTH) { /* that one only ranks what is right by length */
        const rein_batch batch = {.n_sequences = r->samples,
                                  .sequence_offsets = offsets,
                                  .rewards = rewards,
                                  .response_lengths = lengths,
                                  .token_budgets = own >= 0 ? budgets : NULL};
        status = rein_shape_rewards(shaped, &batch, o, err);
    }
    free(numbers);
    free(offsets);
    return status;
}

static rein_status spreads(unsigned char *spread, const rein_loop *l, const rein_rollout *r, size_t prompt, rein_error *err) {
    double *shaped = malloc(r->samples * sizeof *shaped);
    *spread = 0;
    if (!shaped) return rein_fail(err, REIN_ENOMEM, "no memory for %zu rewards", r->samples);
    const rein_status status = shaped_rewards(shaped, l, r, prompt, err);
    for (size_t k = 1; k < r->samples && !status; k++) *spread |= shaped[k] < shaped[0] || shaped[k] > shaped[0];
    free(shaped);
    return status;
}

/* DAPO's dynamic sampling (Yu et al. 2025, section 3.2): prompts whose responses are all equally good teach nothing; others take their place,
 * as long as there are rounds. Where in the end none differ, the first round stays: the step says that there is nothing to train. */
static rein_status take_round(rein_loop *l, size_t round, size_t *wanted, rein_error *err) {
    const rein_settings *s = settings_of(l);
    rein_rollout *r = &l->rounds[round];
    unsigned char *only = calloc(r->n, 1);
    if (!only) return rein_fail(err, REIN_ENOMEM, "no memory for %zu prompts", r->n);
    rein_status status = REIN_OK;
    for (size_t i = 0; i < r->n && *wanted && !status; i++) {
        only[i] = 1;
        if (s->dynamic_sampling) status = spreads(&only[i], l, r, i, err);
        *wanted -= only[i];
    }
    if (!status) status = rein_loop_groups(&l->groups, r, only, l->session->step, truncates(s), l->runner->reward, err);
    free(only);
    return status;
}

static rein_status sample(rein_loop *l, rein_error *err) {
    const rein_settings *s = settings_of(l);
    const size_t rounds = 1 + (size_t)s->dynamic_sampling;
    size_t wanted = (size_t)s->prompts;
    rein_status status = REIN_OK;
    clear_step(l);
    l->rounds = calloc(rounds, sizeof *l->rounds);
    if (!l->rounds) return rein_fail(err, REIN_ENOMEM, "no memory for %zu rounds", rounds);
    for (size_t round = 0; round < rounds && wanted && !status; round++) {
        status = roll_out(&l->rounds[round], l, round, err);
        if (status) break;
        l->n_rounds = round + 1;
        status = take_round(l, round, &wanted, err);
    }
    l->sampled_prompts = l->n_rounds * (size_t)s->prompts;
    if (!status && l->groups.n < (size_t)s->minibatches) { /* too few differ: nothing is trained, and the step says so */
        rein_groups_free(&l->groups);
        status = rein_loop_groups(&l->groups, &l->rounds[0], NULL, l->session->step, truncates(s), l->runner->reward, err);
    }
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------------- a step */

/* Means over everything that was sampled, whether it trains or not. */
static size_t judge_rows(rein_metric_row *rows, const rein_loop *l) {
    const size_t judges = rein_reward_count(l->runner->reward);
    double all = 0, right = 0, sums[64] = {0};
    for (size_t round = 0; round < l->n_rounds; round++) {
        const rein_rollout *r = &l->rounds[round];
        for (size_t i = 0; i < r->n * r->samples; i++, all++) {
            right += r->components[i * judges] >= 1;
            for (size_t j = 0; j < judges && j < 32; j++) sums[j] += r->components[i * judges + j];
        }
    }
    size_t n = 0;
    rows[n++] = (rein_metric_row){"accuracy", right / all};
    for (size_t j = 0; j < judges && j < 32; j++) rows[n++] = (rein_metric_row){l->judge_names[j], sums[j] / all};
    return n;
}

static int is_due(const rein_loop *l, int64_t step) {
    const rein_settings *s = settings_of(l);
    if (!s->eval_prompts) return 0;
    return step >= s->steps || (s->eval_steps && step % s->eval_steps == 0);
}

static rein_status trained(rein_metric_row *rows, size_t *n, void *context, const float *advantages, rein_error *err) {
    rein_loop *l = context;
    const rein_settings *s = settings_of(l);
    const int64_t next = l->session->step + 1;
    size_t more = 0;
    *n = judge_rows(rows, l);
    if (s->temperature_final > 0) rows[(*n)++] = (rein_metric_row){"temperature", l->session->temperature};
    if (s->dynamic_sampling) rows[(*n)++] = (rein_metric_row){"dynamic_sampling/prompts", (double)l->sampled_prompts};
    rein_status status = rein_loop_put_advantages(&l->groups, advantages, err);
    if (!status && is_due(l, next)) status = rein_loop_evaluate_as(rows + *n, &more, l, next, err);
    *n += more;
    return status;
}

/* Linear from the first step to the last. */
double rein_settings_temperature(const rein_settings *s, int64_t step) {
    if (!(s->temperature_final > 0) || s->steps < 2) return s->temperature;
    const double progress = (double)step / (double)(s->steps - 1);
    return s->temperature + (s->temperature_final - s->temperature) * (progress < 1 ? progress : 1);
}

/* Dual ascent on the penalty's coefficient, by the lengths of the responses that this step trained on. */
static rein_status control(rein_loop *l, rein_error *err) {
    rein_session *s = l->session;
    if (isnan(s->multiplier)) return REIN_OK;
    size_t n = 0;
    for (size_t g = 0; g < l->groups.n; g++) n += l->groups.groups[g].n;
    int64_t *lengths = malloc((n ? n : 1) * sizeof *lengths), *at = lengths;
    if (!lengths) return rein_fail(err, REIN_ENOMEM, "no memory for %zu lengths", n);
    for (size_t g = 0; g < l->groups.n; g++)
        for (size_t t = 0; t < l->groups.groups[g].n; t++, at++) {
            const rein_history *h = &l->groups.groups[g].trajectories[t].histories[0];
            *at = 0;
            for (size_t i = 0; i < h->n; i++) *at += h->mask[i];
        }
    const rein_status status =
        rein_budget_control(&s->multiplier, lengths, n, s->settings.budget_target, s->settings.budget_rate, err);
    free(lengths);
    return status;
}

static rein_status train(rein_session_report *report, rein_loop *l, double seconds_sample, rein_error *err) {
    rein_session *s = l->session;
    const rein_session_hooks hooks = {.ptx = l->ptx.n ? &l->ptx : NULL,
                                      .ptx_batch = (size_t)s->settings.ptx_batch,
                                      .own_samples = !truncates(&s->settings),
                                      .trained = trained,
                                      .context = l};
    const double coefficient = s->settings.objective.budget_penalty_coef;
    if (l->options.progress) l->options.progress(l->options.context, REIN_PHASE_TRAINING, 0, 1);
    /* The session saves the multiplier of the next step with this one: it is moved before, and this step's penalty is set aside. */
    if (!isnan(s->multiplier)) s->settings.objective.budget_penalty_coef = s->multiplier;
    rein_status status = control(l, err);
    if (!status) status = rein_session_train_with(report, s, &l->groups, seconds_sample, &hooks, err);
    s->settings.objective.budget_penalty_coef = coefficient;
    return status;
}

rein_status rein_loop_evaluate(rein_loop *l, rein_error *err) {
    rein_metric_row rows[REIN_MORE_ROWS];
    size_t n;
    if (!settings_of(l)->eval_prompts || l->last.step == l->session->step) return REIN_OK;
    return rein_loop_evaluate_as(rows, &n, l, l->session->step, err);
}

rein_status rein_loop_step(rein_loop_report *report, rein_loop *l, rein_error *err) {
    rein_session *s = l->session;
    *report = (rein_loop_report){.stopped = "", .judge_log = ""};
    if (rein_loop_done(l)) return rein_fail(err, REIN_EINVAL, "the run has made its %lld steps", (long long)s->settings.steps);
    rein_status status = s->step == 0 ? rein_loop_evaluate(l, err) : REIN_OK;
    rein_session_set_temperature(s, rein_settings_temperature(&s->settings, s->step));
    const double began = rein_now();
    if (!status) status = sample(l, err);
    if (!status) status = train(&report->trained, l, rein_now() - began, err);
    if (status) return status;
    report->evaluated = l->last.step == s->step;
    report->judge_log = rein_reward_log(l->runner->reward);
    for (size_t i = 0; i < report->trained.n; i++) note_metric(l, report->trained.names[i], report->trained.values[i], 1);
    report->stopped = rein_loop_stopped(l);
    report->done = rein_loop_done(l);
    return REIN_OK;
}

/* --------------------------------------------------------------------------------------------------------------------- summary */

static json_t *side_of(const rein_loop_evaluation *e, int with_kl) {
    const rein_evaluation *s = &e->sampled;
    json_t *side = json_pack("{s:f, s:f, s:f, s:f}", "accuracy", s->accuracy, "accuracy_low", s->accuracy_low, "accuracy_high",
                             s->accuracy_high, "mean_length", s->mean_length);
    json_t *over = isnan(s->share_over_budget) ? json_null() : json_real(s->share_over_budget);
    if (!side || json_object_set_new(side, "share_over_budget", over) ||
        json_object_set_new(side, "greedy_accuracy", json_real(e->greedy.accuracy)) ||
        json_object_set_new(side, "n", json_integer((json_int_t)s->n)) ||
        (with_kl && json_object_set_new(side, "kl", json_real(e->kl)))) {
        json_decref(side);
        return NULL;
    }
    return side;
}

rein_status rein_loop_finish(rein_loop *l, rein_error *err) {
    const rein_session *s = l->session;
    rein_status status = rein_session_save(l->session, err);
    if (status || l->first.step < 0) return status;
    json_t *base = side_of(&l->first, 0), *final = side_of(&l->last, 1), *summary = json_object();
    const double budget = s->settings.objective.token_budget;
    const int failed = !base || !final || !summary || json_object_set(summary, "base", base) ||
                       json_object_set(summary, "final", final) ||
                       json_object_set_new(summary, "budget", isnan(budget) ? json_null() : json_real(budget)) ||
                       json_object_set_new(summary, "steps", json_integer((json_int_t)s->step)) ||
                       json_object_set_new(summary, "seconds", json_real(s->seconds)) ||
                       json_object_set_new(summary, "on_policy_max_gap", isnan(l->max_gap) ? json_null() : json_real(l->max_gap));
    char *path = rein_path_join(s->run->directory, "summary.json");
    status = failed || !path ? rein_fail(err, REIN_ENOMEM, "no memory for summary.json") : rein_json_file_write(path, summary, err);
    free(path);
    json_decref(base);
    json_decref(final);
    json_decref(summary);
    return status;
}

int rein_loop_sample(rein_before_after *sample, const rein_loop *l, size_t i) {
    const rein_rollout *b = &l->before, *a = l->after.n ? &l->after : &l->before;
    if (i >= b->n || i >= a->n || !b->examples[i].prompt) return 0;
    const rein_completion *before = &b->written[i * b->samples], *after = &a->written[i * a->samples];
    *sample = (rein_before_after){b->examples[i].prompt,
                                  before->text.data,
                                  after->text.data,
                                  b->components[i * b->samples * b->judges] >= 1,
                                  a->components[i * a->samples * a->judges] >= 1,
                                  before->n,
                                  after->n};
    return 1;
}
