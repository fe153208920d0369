/* loop.c - the loop. A step is four calls in order: sample, reward, train, commit. */
#include "loop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "dist/ranks.h"
#include "rollout/trajectory.h"

static const rein_settings *settings_of(const rein_loop *l) { return &l->session->settings; }

/* ------------------------------------------------------------------------------------------------------------------------- open */

/* Different steps may use the same example again; one step uses it at most once. */
static rein_status check_size(const rein_loop *l, rein_error *err) {
    const size_t there = rein_task_size(l->runner->task, REIN_SPLIT_TRAIN), wanted = (size_t)settings_of(l)->prompts;
    if (wanted <= there) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "prompts", -1, "is %zu: the task has only %zu examples to train on", wanted, there);
}

/* Each rank has its own process of a program or an environment. Ranks whose programs have other examples would make another run. */
static rein_status compare_sizes(const rein_loop *l, rein_error *err) {
    const rein_task_runner *r = l->runner;
    const size_t sizes[] = {rein_task_size(r->task, REIN_SPLIT_TRAIN), rein_task_size(r->eval_task, r->eval_split)};
    return rein_ranks_compare(l->session->ranks, rein_hash(sizes, sizeof sizes), "the numbers of examples", err);
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
    if (strncmp(metric, "rewards/", 8) != 0 || rein_settings_metric_is_of_pairs(metric, length)) return REIN_OK;
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

/* An error about a place in the groups of one example is one about the example, or a token of it. */
static rein_status fail_example(rein_error *err, rein_status status, const char *file, size_t i) {
    char name[80], token[40] = "";
    if (!err) return status;
    const char *last = strrchr(err->field, '.');
    if (last && !strcmp(last, ".ids")) snprintf(token, sizeof token, ": token %lld", (long long)err->index);
    snprintf(name, sizeof name, "example %zu%s", i + 1, token);
    rein_fail_as(err, status, "ptx_data", (int64_t)i, name);
    return rein_fail_in(err, status, "%s", file);
}

/* Every example now, and not when the step comes that takes it. */
static rein_status check_ptx(const rein_loop *l, rein_error *err) {
    const rein_groups_use use = {.model = l->session->model};
    char shown[REIN_PATH_SHOWN];
    rein_path_show(shown, settings_of(l)->ptx_data);
    for (size_t i = 0; i < l->ptx.n; i++) {
        const rein_groups example = {.groups = l->ptx.groups + i, .n = 1};
        const rein_status status = rein_groups_check(&example, &use, err);
        if (status) return fail_example(err, status, shown, i);
    }
    return REIN_OK;
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
    return status ? rein_fail_as(err, status, "ptx_data", -1, NULL) : check_ptx(l, err);
}

static void note_metric(rein_loop *l, const char *name, double value) {
    if (!strcmp(name, "on_policy/max_gap") && !(value <= l->max_gap)) l->max_gap = value;
    l->stopped |= rein_stop_holds(settings_of(l)->stop_at, name, value);
}

/* The steps of earlier sessions of the run: their greatest gap, and whether stop_at held after the last one. */
static rein_status read_steps(rein_loop *l, rein_error *err) {
    rein_run_lines *lines;
    json_t *line, *value;
    const char *name;
    const int stopped = l->stopped;
    rein_status status = rein_run_history_open(&lines, l->session->run, err);
    l->max_gap = NAN;
    while (!status && !(status = rein_run_history_next(&line, lines, err))) {
        l->stopped = stopped;
        json_object_foreach(line, name, value) {
            if (json_is_number(value)) note_metric(l, name, json_number_value(value));
        }
        json_decref(line);
    }
    rein_run_history_close(lines);
    return status == REIN_END ? REIN_OK : status;
}

/* A new run keeps three checkpoints besides the first one, as rein sft does, unless the user says what stays: with one a step there would be
 * many. It is written to the run, so that an older run keeps all of its checkpoints. */
static rein_status choose_keep_last(rein_session *s, const rein_settings *given, rein_error *err) {
    static const char *const names[] = {"keep_last", "keep_best", "kl_penalty_reference_step", "kl_penalty_step_lag"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (rein_settings_given(given, names[i])) return REIN_OK;
    return s->is_new && !s->fork.run ? rein_settings_set(&s->settings, "keep_last", "3", err) : REIN_OK;
}

rein_status rein_loop_prepare(rein_loop **loop, const char *directory, const rein_settings *settings,
                              const rein_loop_options *options, rein_error *err) {
    *loop = NULL;
    rein_loop *l = calloc(1, sizeof *l);
    if (!l) return rein_fail(err, REIN_ENOMEM, "no memory for a loop");
    if (options) l->options = *options;
    rein_status status = rein_session_prepare_loop(&l->session, directory, l->options.fork, settings, err);
    if (!status) status = choose_keep_last(l->session, settings, err);
    l->options.fork = NULL; /* as inputs below, it need not outlive this call */
    if (!status) status = rein_loop_check(settings_of(l), err);
    if (!status) status = rein_task_runner_open(&l->runner, settings_of(l), l->session->model, l->options.inputs, err);
    l->options.inputs = NULL;
    if (!status) l->runner->ranks = l->session->ranks;
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
    if (!status) status = compare_sizes(l, err);
    if (status) return status;
    status = rein_loop_read_evaluations(l, err);
    if (!status) status = read_steps(l, err);
    if (!status && !rein_loop_done(l)) status = rein_loop_check_comparable(l, err);
    if (!status && !rein_loop_done(l)) status = rein_session_store(l->session, err);
    if (status) l->session->state = REIN_SESSION_FAILED;
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
const rein_loop_evaluation *rein_loop_first(const rein_loop *l) { return l->evaluated ? &l->first : NULL; }
const rein_loop_evaluation *rein_loop_last(const rein_loop *l) { return l->evaluated ? &l->last : NULL; }
const char *rein_loop_stopped(const rein_loop *l) { return l->stopped ? l->session->settings.stop_at : ""; }
int rein_loop_done(const rein_loop *l) { return l->stopped || l->session->step >= l->session->settings.steps; }

/* ---------------------------------------------------------------------------------------------------------------------- a step */

/* Means over everything that was sampled, whether it trains or not; that of a judge is over the completions to which it applies. */
static size_t judge_rows(rein_named_number *rows, const rein_loop *l, const rein_groups *sampled) {
    enum { SHOWN = 32 };
    const size_t judges = rein_reward_count(l->runner->reward), shown = judges < SHOWN ? judges : SHOWN;
    double all = 0, right = 0, sums[SHOWN] = {0}, counts[SHOWN] = {0};
    for (size_t g = 0; g < sampled->n; g++)
        for (size_t k = 0; k < sampled->groups[g].n; k++, all++) {
            const rein_trajectory *t = &sampled->groups[g].trajectories[k];
            right += rein_trajectory_is_right(t);
            for (size_t j = 0; j < shown; j++)
                if (!isnan(t->scores[j].value)) sums[j] += t->scores[j].value, counts[j]++;
        }
    size_t n = 0;
    rows[n++] = (rein_named_number){"accuracy", right / all};
    for (size_t j = 0; j < shown; j++)
        if (counts[j] > 0) rows[n++] = (rein_named_number){l->judge_names[j], sums[j] / counts[j]};
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

/* In hundredths of the step. */
static int note_training(void *context, double share) {
    const rein_loop *l = context;
    l->options.progress(l->options.context, REIN_PHASE_TRAINING, (size_t)(100 * share), 100);
    return 0;
}

static rein_status train(rein_session_report *report, rein_loop *l, rein_groups *groups, double seconds_sample, rein_error *err) {
    rein_session *s = l->session;
    const rein_train_options options = {.seconds_sample = seconds_sample,
                                        .own_samples = !rein_settings_truncate(&s->settings) ||
                                                       s->settings.truncation == REIN_TRUNCATION_POLICY,
                                        .ptx = l->ptx.n ? &l->ptx : NULL,
                                        .ptx_batch = (size_t)s->settings.ptx_batch,
                                        .keep_advantages = 1,
                                        .progress = l->options.progress ? note_training : NULL,
                                        .context = l};
    return rein_session_train(report, s, groups, &options, err);
}

/* The evaluation of the policy that was just trained, if it is due, joins the rows. */
static rein_status evaluate_if_due(rein_named_number *rows, size_t *n, rein_loop *l, int64_t step, rein_error *err) {
    size_t more = 0;
    const rein_status status = is_due(l, step) ? rein_loop_evaluate_as(rows + *n, &more, l, step, err) : REIN_OK;
    *n += more;
    return status;
}

static int is_evaluated(const rein_loop *l, int64_t step) { return l->evaluated && l->last.step == step; }

rein_status rein_loop_evaluate(rein_loop *l, rein_error *err) {
    rein_named_number rows[REIN_MORE_ROWS];
    size_t n;
    rein_session *s = l->session;
    rein_status status = rein_session_expect(s, REIN_SESSION_READY, err);
    if (status || !settings_of(l)->eval_prompts || is_evaluated(l, s->step)) return status;
    status = rein_loop_evaluate_as(rows, &n, l, s->step, err);
    if (status || !rein_session_writes(s)) return status;
    return rein_tensorboard_add(s->board, s->step, rein_seconds(CLOCK_REALTIME), rows, n, err);
}

/* With dynamic sampling there may be several rounds of sampling and rewarding. */
static rein_status make_step(rein_session_report *report, rein_step_batch *batch, rein_loop *l, rein_error *err) {
    rein_session *s = l->session;
    rein_named_number rows[REIN_MORE_ROWS];
    rein_groups round;
    size_t n = 0;
    rein_status status = REIN_OK;
    const double began = rein_now();
    rein_session_begin_step(s);
    while (!status && rein_step_batch_wants_more(batch, settings_of(l))) {
        status = rein_loop_sample_round(&round, batch, l, err);
        if (!status) status = rein_loop_choose(batch, &round, l, err);
    }
    if (!status) status = train(report, l, &batch->chosen, rein_now() - began, err);
    if (!status) n = loop_rows(rows, l, batch);
    if (!status) status = evaluate_if_due(rows, &n, l, report->step, err);
    return status ? status : rein_session_commit(report, s, &batch->chosen, rows, n, err);
}

/* Metrics such as seconds are not the same on all ranks, and stop_at may name one: rank 0 decides. */
static rein_status finish_report(rein_loop_report *report, rein_loop *l, rein_error *err) {
    report->evaluated = is_evaluated(l, l->session->step);
    report->judge_log = rein_reward_log(l->runner->reward);
    for (size_t i = 0; i < report->trained.n; i++)
        note_metric(l, report->trained.metrics[i].name, report->trained.metrics[i].value);
    const rein_status status = rein_ranks_tell(l->session->ranks, &l->stopped, sizeof l->stopped, err);
    report->stopped = rein_loop_stopped(l);
    report->done = rein_loop_done(l);
    return status;
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
    if (!status) status = finish_report(report, l, err);
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
    if (!rein_session_writes(s)) return status;
    if (!status) status = rein_run_writable(s->run, err); /* saving does not look if the step is saved already */
    if (status || !l->evaluated) return status;
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
