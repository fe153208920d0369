/* loop.c - the loop. A step is four calls in order: sample, reward, train, commit. */
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

/* A file can be gone through any number of times, but a step has no example twice. */
static rein_status check_size(const rein_loop *l, rein_error *err) {
    const size_t there = rein_task_size(l->runner->task, REIN_SPLIT_TRAIN), wanted = (size_t)settings_of(l)->prompts;
    if (wanted <= there) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "prompts", -1, "is %zu: the task has only %zu examples to train on", wanted, there);
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
    return rein_fail_at(err, REIN_EINVAL, setting, -1, "names \"%.*s\": the first reward is %s", (int)length, metric,
                        l->judge_names[0]);
}

/* stop_at and keep_best may name one of them. */
static rein_status check_judges(const rein_loop *l, rein_error *err) {
    const rein_settings *s = settings_of(l);
    const char *best = s->keep_best + (*s->keep_best == '-');
    const rein_status status = check_judge(l, "stop_at", s->stop_at, strcspn(s->stop_at, "<>"), err);
    return status ? status : check_judge(l, "keep_best", best, strlen(best), err);
}

/* The reward of a supervised example is the weight of its loss. */
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

/* The steps of earlier sessions of the run: their greatest gap, and whether stop_at held after the last one. */
static rein_status read_steps(rein_loop *l, rein_error *err) {
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

rein_status rein_loop_prepare(rein_loop **loop, const char *directory, const rein_settings *settings,
                              const rein_loop_options *options, rein_error *err) {
    *loop = NULL;
    rein_loop *l = calloc(1, sizeof *l);
    if (!l) return rein_fail(err, REIN_ENOMEM, "no memory for a loop");
    if (options) l->options = *options;
    l->first.step = l->last.step = -1;
    rein_status status = rein_session_prepare_loop(&l->session, directory, l->options.fork, settings, err);
    l->options.fork = NULL;
    if (!status) status = rein_loop_check(settings_of(l), err);
    if (!status) status = rein_task_runner_open(&l->runner, settings_of(l), l->session->model, err);
    if (!status) status = rein_task_runner_check(l->runner, err);
    if (!status) status = check_size(l, err);
    if (!status) status = name_judges(l, err);
    if (!status) status = check_judges(l, err);
    if (!status) status = open_ptx(l, err);
    if (status) rein_loop_close(l);
    else *loop = l;
    return status;
}

rein_status rein_loop_begin(rein_loop *l, rein_error *err) {
    rein_status status = rein_session_begin(l->session, err);
    if (status) return status;
    status = rein_loop_read_evaluations(l, err);
    if (!status) status = read_steps(l, err);
    if (status) l->session->state = REIN_SESSION_FAILED;
    else start_controller(l);
    return status;
}

rein_status rein_loop_open(rein_loop **loop, const char *directory, const rein_settings *settings, const rein_loop_options *options,
                           rein_error *err) {
    rein_status status = rein_loop_prepare(loop, directory, settings, options, err);
    if (!status) status = rein_loop_begin(*loop, err);
    if (status) {
        rein_loop_close(*loop);
        *loop = NULL;
    }
    return status;
}

void rein_loop_close(rein_loop *l) {
    if (!l) return;
    rein_groups_free(&l->before);
    rein_groups_free(&l->after);
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

/* ---------------------------------------------------------------------------------------------------------------------- a step */

/* Means over everything that was sampled, whether it trains or not. */
static size_t judge_rows(rein_named_number *rows, const rein_loop *l, const rein_groups *sampled) {
    enum { SHOWN = 32 };
    const size_t judges = rein_reward_count(l->runner->reward), shown = judges < SHOWN ? judges : SHOWN;
    double all = 0, right = 0, sums[SHOWN] = {0};
    for (size_t g = 0; g < sampled->n; g++)
        for (size_t k = 0; k < sampled->groups[g].n; k++, all++) {
            const rein_trajectory *t = &sampled->groups[g].trajectories[k];
            right += rein_trajectory_is_right(t);
            for (size_t j = 0; j < shown; j++) sums[j] += t->scores[j].value;
        }
    size_t n = 0;
    rows[n++] = (rein_named_number){"accuracy", right / all};
    for (size_t j = 0; j < shown; j++) rows[n++] = (rein_named_number){l->judge_names[j], sums[j] / all};
    return n;
}

static int is_due(const rein_loop *l, int64_t step) {
    const rein_settings *s = settings_of(l);
    if (!s->eval_prompts) return 0;
    return step >= s->steps || (s->eval_steps && step % s->eval_steps == 0);
}

/* The metrics of the loop, which join those of the training. */
static size_t loop_rows(rein_named_number *rows, const rein_loop *l, const rein_step_batch *batch) {
    const rein_settings *s = settings_of(l);
    size_t n = judge_rows(rows, l, &batch->sampled);
    if (s->temperature_final > 0) rows[n++] = (rein_named_number){"temperature", rein_settings_temperature(s, l->session->step)};
    if (s->dynamic_sampling) rows[n++] = (rein_named_number){"dynamic_sampling/prompts", (double)batch->sampled.n};
    return n;
}

/* Linear from the first step to the last. */
double rein_settings_temperature(const rein_settings *s, int64_t step) {
    if (!(s->temperature_final > 0) || s->steps < 2) return s->temperature;
    const double progress = (double)step / (double)(s->steps - 1);
    return s->temperature + (s->temperature_final - s->temperature) * (progress < 1 ? progress : 1);
}

/* Dual ascent on the penalty's coefficient, by the lengths of what this step trained on: the multiplier becomes that of the next step. */
static rein_status control(rein_session *s, const rein_groups *groups, rein_error *err) {
    if (isnan(s->multiplier)) return REIN_OK;
    size_t n = 0;
    for (size_t g = 0; g < groups->n; g++) n += groups->groups[g].n;
    int64_t *lengths = malloc((n ? n : 1) * sizeof *lengths), *at = lengths;
    if (!lengths) return rein_fail(err, REIN_ENOMEM, "no memory for %zu lengths", n);
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++)
            *at++ = (int64_t)rein_trajectory_length(&groups->groups[g].trajectories[t]);
    const rein_status status =
        rein_budget_control(&s->multiplier, lengths, n, s->settings.budget_target, s->settings.budget_rate, err);
    free(lengths);
    return status;
}

static rein_status train(rein_session_report *report, rein_loop *l, rein_groups *groups, double seconds_sample, rein_error *err) {
    rein_session *s = l->session;
    const double multiplier = s->multiplier;
    const rein_train_options options = {.seconds_sample = seconds_sample,
                                        .own_samples = !rein_settings_truncate(&s->settings),
                                        .ptx = l->ptx.n ? &l->ptx : NULL,
                                        .ptx_batch = (size_t)s->settings.ptx_batch,
                                        .budget_penalty_coef = isnan(multiplier) ? NULL : &multiplier,
                                        .temperature = rein_settings_temperature(&s->settings, s->step),
                                        .keep_advantages = 1};
    if (l->options.progress) l->options.progress(l->options.context, REIN_PHASE_TRAINING, 0, 1);
    const rein_status status = rein_session_train(report, s, groups, &options, err);
    return status ? status : control(s, groups, err);
}

/* The evaluation of the policy that was just trained, if it is due, joins the rows. */
static rein_status evaluate_if_due(rein_named_number *rows, size_t *n, rein_loop *l, int64_t step, rein_error *err) {
    size_t more = 0;
    const rein_status status = is_due(l, step) ? rein_loop_evaluate_as(rows + *n, &more, l, step, err) : REIN_OK;
    *n += more;
    return status;
}

rein_status rein_loop_evaluate(rein_loop *l, rein_error *err) {
    rein_named_number rows[REIN_MORE_ROWS];
    size_t n;
    const rein_status status = rein_session_expect(l->session, REIN_SESSION_READY, err);
    if (status || !settings_of(l)->eval_prompts || l->last.step == l->session->step) return status;
    return rein_loop_evaluate_as(rows, &n, l, l->session->step, err);
}

/* With dynamic sampling there may be several rounds of sampling and rewarding. */
static rein_status make_step(rein_session_report *report, rein_step_batch *batch, rein_loop *l, rein_error *err) {
    rein_session *s = l->session;
    rein_named_number rows[REIN_MORE_ROWS];
    rein_groups round;
    size_t n = 0;
    rein_status status = REIN_OK;
    const double began = rein_now();
    while (!status && rein_step_batch_wants_more(batch, settings_of(l))) {
        status = rein_loop_sample_round(&round, batch, l, err);
        if (!status) status = rein_reward_groups(&round, l->runner->reward, err);
        if (!status) status = rein_loop_choose(batch, &round, l, err);
    }
    if (!status) status = train(report, l, &batch->chosen, rein_now() - began, err);
    if (!status) n = loop_rows(rows, l, batch);
    if (!status) status = evaluate_if_due(rows, &n, l, report->step, err);
    return status ? status : rein_session_commit(report, s, &batch->chosen, rows, n, err);
}

static void finish_report(rein_loop_report *report, rein_loop *l) {
    report->evaluated = l->last.step == l->session->step;
    report->judge_log = rein_reward_log(l->runner->reward);
    for (size_t i = 0; i < report->trained.n; i++) note_metric(l, report->trained.names[i], report->trained.values[i], 1);
    report->stopped = rein_loop_stopped(l);
    report->done = rein_loop_done(l);
}

rein_status rein_loop_step(rein_loop_report *report, rein_loop *l, rein_error *err) {
    rein_session *s = l->session;
    rein_step_batch batch = {0};
    *report = (rein_loop_report){.stopped = "", .judge_log = ""};
    rein_status status = rein_session_expect(s, REIN_SESSION_READY, err);
    if (status) return status;
    if (rein_loop_done(l)) return rein_fail(err, REIN_EINVAL, "the run has made its %lld steps", (long long)s->settings.steps);
    if (s->step == 0) status = rein_loop_evaluate(l, err);
    if (!status) status = make_step(&report->trained, &batch, l, err);
    if (!status) finish_report(report, l);
    rein_step_batch_free(&batch);
    return status;
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
    const rein_groups *before = &l->before, *after = l->after.n ? &l->after : &l->before;
    if (i >= before->n || i >= after->n || !before->groups[i].example.prompt) return 0;
    const rein_trajectory *b = before->groups[i].trajectories, *a = after->groups[i].trajectories;
    *sample = (rein_before_after){before->groups[i].example.prompt, b->histories[0].text.data,   a->histories[0].text.data,
                                  rein_trajectory_is_right(b),      rein_trajectory_is_right(a), rein_trajectory_length(b),
                                  rein_trajectory_length(a)};
    return 1;
}
