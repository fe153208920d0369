/* loop_evaluate.c - how good the policy is on prompts that it never trained on: sampled and greedy, the same prompts and the same randomness
 * every time, so that two evaluations differ only by their policies. RUN/evaluations.jsonl has the figures, one line each,
 * RUN/trajectories/eval/ the completions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "loop.h"
#include "rollout/trajectory.h"

enum { LONGEST_LINE = 16 << 20 }; /* bytes */

static void on_progress(void *context, size_t done, size_t all) {
    const rein_loop *l = context;
    if (l->options.progress) l->options.progress(l->options.context, REIN_PHASE_EVALUATING, done, all);
}

static rein_status sample(rein_groups *groups, rein_loop *l, const rein_policy *policy, int greedy, rein_error *err) {
    return rein_task_runner_evaluate(groups, l->runner, policy, greedy, &l->session->exec, on_progress, l, err);
}

/* ------------------------------------------------------------------------------------------------------------------ the figures */

/* The KL to the policy of step 0 over the policy's own tokens, by k3 and by k1: both unbiased, and exactly 0 at step 0. `first` has its
 * log-probs of all tokens of the groups. */
static void mean_kl(rein_loop_evaluation *e, const rein_groups *groups, const float *first) {
    double sum = 0, excess = 0, count = 0;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++) {
            const rein_history *h = &groups->groups[g].trajectories[t].histories[0];
            for (size_t i = 0; i < h->n; i++) {
                if (!h->mask[i]) continue;
                const double x = (double)first[i] - (double)h->log_probs[i];
                sum -= x, excess += fmax(expm1(x) - x, 0), count++; /* rounding may give less than 0 */
            }
            first += h->n;
        }
    e->kl = count > 0 ? excess / count : 0;
    e->kl_policy_ref = count > 0 ? sum / count : 0;
}

static rein_status measure_kl(rein_loop_evaluation *e, rein_loop *l, double temperature, const rein_groups *groups,
                              rein_error *err) {
    rein_policy first;
    rein_model *model;
    rein_adapter *adapter;
    const size_t tokens = rein_groups_tokens(groups);
    float *log_probs = malloc((tokens ? tokens : 1) * sizeof *log_probs);
    if (!log_probs) return rein_fail(err, REIN_ENOMEM, "no memory for the log-probs of %zu tokens", tokens);
    rein_status status = rein_session_first_policy(&first, &model, &adapter, l->session, temperature, err);
    if (!status) status = rein_trainer_log_probs(log_probs, NULL, l->session->trainer, &first, groups, err);
    if (!status) mean_kl(e, groups, log_probs);
    rein_adapter_close(adapter);
    rein_model_close(model);
    free(log_probs);
    return status;
}

static int64_t budget_of(const rein_loop *l) {
    const double budget = l->session->settings.objective.token_budget;
    return isnan(budget) ? -1 : (int64_t)budget;
}

static size_t rows_of(rein_named_number *rows, const rein_loop_evaluation *e) {
    const rein_named_number all[] = {{"eval/accuracy", e->sampled.accuracy},
                                     {"eval/accuracy_low", e->sampled.accuracy_low},
                                     {"eval/accuracy_high", e->sampled.accuracy_high},
                                     {"eval/reward", e->sampled.reward},
                                     {"eval/mean_length", e->sampled.mean_length},
                                     {"eval/share_over_budget", e->sampled.share_over_budget},
                                     {"eval/clipped_ratio", e->sampled.truncated},
                                     {"eval/pass_at_k", e->sampled.samples > 1 ? e->sampled.pass_at_k : NAN},
                                     {"eval/kl", e->kl},
                                     {"eval/kl_policy_ref", e->kl_policy_ref},
                                     {"eval/greedy_accuracy", e->greedy.accuracy},
                                     {"eval/greedy_mean_length", e->greedy.mean_length}};
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!isnan(all[i].value)) rows[n++] = all[i];
    return n;
}

/* --------------------------------------------------------------------------------------------------------------------- on the disk */

static rein_status write_lines(const rein_loop *l, rein_error *err) {
    char *path = rein_path_join(l->session->run->directory, "evaluations.jsonl");
    rein_writer writer = {0};
    rein_status status = path ? rein_writer_open(&writer, path, err) : rein_fail(err, REIN_ENOMEM, "no memory for a path");
    for (size_t i = 0; i < json_array_size(l->evaluations) && !status; i++) {
        size_t length;
        char *text = rein_json_dump(&length, json_array_get(l->evaluations, i), JSON_COMPACT | JSON_REAL_PRECISION(17));
        status = text ? rein_writer_put(&writer, text, length, err) : rein_fail(err, REIN_ENOMEM, "no memory for a line");
        if (!status) status = rein_writer_put(&writer, "\n", 1, err);
        free(text);
    }
    if (!status) status = rein_writer_commit(&writer, err);
    rein_writer_abandon(&writer);
    free(path);
    return status;
}

static rein_status write_responses(const rein_loop *l, const rein_groups *groups, int64_t step, rein_error *err) {
    char path[4096], name[REIN_STEP_NAME];
    const int n = snprintf(path, sizeof path, "%s/trajectories/eval", l->session->run->directory);
    if (n < 0 || (size_t)n + 40 > sizeof path) return rein_fail(err, REIN_EINVAL, "the path of the run is too long");
    const rein_status status = rein_make_directories(path, err);
    if (status) return status;
    snprintf(path + n, sizeof path - (size_t)n, "/%s.jsonl", rein_step_name(name, step));
    return rein_groups_write(path, groups, REIN_GROUPS_EXACT, err);
}

static rein_status keep(rein_loop *l, const rein_loop_evaluation *e, const rein_groups *groups, rein_error *err) {
    rein_named_number rows[16];
    rein_status status = rein_session_writes(l->session) ? rein_run_writable(l->session->run, err) : REIN_OK;
    if (!status) status = rein_session_store(l->session, err);
    if (status) return status;
    json_t *line = rein_metric_object(e->step, rows, rows_of(rows, e));
    if (!line || json_object_set_new(line, "eval/prompts", json_integer((json_int_t)e->sampled.prompts)) ||
        json_object_set_new(line, "eval/samples", json_integer((json_int_t)e->sampled.samples)) ||
        json_array_append_new(l->evaluations, line))
        return rein_fail(err, REIN_ENOMEM, "no memory for an evaluation");
    if (!rein_session_writes(l->session)) return REIN_OK;
    status = write_responses(l, groups, e->step, err);
    return rein_run_explain(l->session->run, status ? status : write_lines(l, err), err);
}

/* ------------------------------------------------------------------------------------------------------------------ the evaluation */

static void set_policy_step(rein_groups *groups, int64_t step) {
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++) groups->groups[g].trajectories[t].policy_step = step;
}

static void note_evaluation(rein_loop *l, rein_loop_evaluation e) {
    if (!l->evaluated) l->first = e;
    l->last = e;
    l->evaluated = 1;
}

/* The first evaluation and the last one stay, with their completions. */
static void remember(rein_loop *l, const rein_loop_evaluation *e, rein_groups *sampled) {
    rein_groups *place = l->before.n || e->step ? &l->after : &l->before;
    note_evaluation(l, *e);
    rein_groups_free(place);
    *place = *sampled;
    *sampled = (rein_groups){0};
}

rein_status rein_loop_evaluate_as(rein_named_number *rows, size_t *n, rein_loop *l, int64_t step, rein_error *err) {
    rein_loop_evaluation e = {.step = step};
    rein_groups sampled = {0}, greedy = {0};
    rein_policy policy = rein_session_policy(l->session);
    policy.temperature = rein_settings_temperature(&l->session->settings, step); /* the session may not have counted the step yet */
    rein_status status = sample(&sampled, l, &policy, 0, err);
    if (!status) status = sample(&greedy, l, &policy, 1, err);
    if (!status) {
        e.sampled = rein_evaluate(&sampled, budget_of(l));
        e.greedy = rein_evaluate(&greedy, budget_of(l));
        set_policy_step(&sampled, step);
        status = measure_kl(&e, l, policy.temperature, &sampled, err);
    }
    if (!status) status = rein_ranks_agree(l->session->ranks, keep(l, &e, &sampled, err), err);
    if (!status) remember(l, &e, &sampled), *n = rows_of(rows, &e);
    rein_groups_free(&greedy);
    rein_groups_free(&sampled);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------ earlier ones */

static double number_of(const json_t *line, const char *name) {
    const json_t *value = json_object_get(line, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static rein_loop_evaluation evaluation_of(const json_t *line) {
    rein_loop_evaluation e = {.step = (int64_t)number_of(line, "step"), .kl = number_of(line, "eval/kl")};
    e.kl_policy_ref = number_of(line, "eval/kl_policy_ref");
    rein_evaluation *s = &e.sampled;
    s->prompts = (size_t)number_of(line, "eval/prompts"), s->samples = (size_t)number_of(line, "eval/samples");
    s->n = s->prompts * s->samples;
    s->accuracy = number_of(line, "eval/accuracy");
    s->accuracy_low = number_of(line, "eval/accuracy_low"), s->accuracy_high = number_of(line, "eval/accuracy_high");
    s->reward = number_of(line, "eval/reward");
    s->mean_length = number_of(line, "eval/mean_length");
    s->share_over_budget = number_of(line, "eval/share_over_budget");
    s->truncated = number_of(line, "eval/clipped_ratio");
    s->pass_at_k = number_of(line, "eval/pass_at_k");
    e.greedy.accuracy = number_of(line, "eval/greedy_accuracy");
    e.greedy.mean_length = number_of(line, "eval/greedy_mean_length");
    return e;
}

static rein_status read_line(rein_loop *l, const char *path, const char *text, size_t length, rein_error *err) {
    json_t *line;
    const rein_status status = rein_json_parse(&line, text, length, path, REIN_JSON_NEEDS_OBJECT, err);
    if (status) return status;
    const json_t *step = json_object_get(line, "step");
    const int ours = json_is_integer(step) && json_integer_value(step) <= l->session->step && json_integer_value(step) >= 0;
    if (ours && json_array_append(l->evaluations, line)) {
        json_decref(line);
        return rein_fail(err, REIN_ENOMEM, "no memory for an evaluation");
    }
    if (ours) note_evaluation(l, evaluation_of(line));
    json_decref(line);
    return REIN_OK;
}

/* A last line without its newline is left out. */
static rein_status read_lines(rein_loop *l, const char *path, rein_error *err) {
    rein_lines *lines;
    const char *text;
    size_t length;
    rein_status status = rein_lines_open(&lines, path, 0, LONGEST_LINE, err);
    while (!status && !(status = rein_lines_next(&text, &length, lines, err)) && text[length] == '\n')
        status = read_line(l, path, text, length, err);
    rein_lines_close(lines);
    return status == REIN_END ? REIN_OK : status;
}

rein_status rein_loop_read_evaluations(rein_loop *l, rein_error *err) {
    char *path = rein_path_join(l->session->run->directory, "evaluations.jsonl");
    rein_status status = path ? REIN_OK : rein_fail(err, REIN_ENOMEM, "no memory for a path");
    l->evaluations = json_array();
    if (!status && !l->evaluations) status = rein_fail(err, REIN_ENOMEM, "no memory for evaluations");
    if (!status && rein_file_exists(path)) status = read_lines(l, path, err);
    free(path);
    return status;
}
