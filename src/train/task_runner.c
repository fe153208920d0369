/* task_runner.c - everything that settings say of asking and rewarding, opened: tokenizer, tasks, judges, the chat, what ends a response. */
#include "task_runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The lines of a text, cut apart where they end. */
static rein_status split_lines(const char **lines, size_t *n, size_t most, char *text, const char *name, rein_error *err) {
    *n = 0;
    for (char *rest = text, *line; (line = strtok_r(rest, "\n", &rest));) {
        if (*n == most) return rein_fail(err, REIN_EINVAL, "%s has more than %zu values", name, most);
        lines[(*n)++] = line;
    }
    return REIN_OK;
}

/* \n and \\ in place, as a newline and a backslash: a stop may be what lines are cut apart by. */
static void unescape(char *text) {
    char *to = text;
    for (; *text; text++) {
        const char next = *text == '\\' ? text[1] : 0;
        *to++ = next == 'n' ? '\n' : *text;
        text += next == 'n' || next == '\\';
    }
    *to = 0;
}

static rein_status read_stops(rein_task_runner *a, rein_error *err) {
    memcpy(a->stops, a->settings.stop, sizeof a->stops);
    const rein_status status = split_lines(a->stop_list, &a->n_stops, REIN_TASK_RUNNER_STOPS, a->stops, "stop", err);
    for (size_t i = 0; i < a->n_stops && !status; i++) unescape(a->stops + (a->stop_list[i] - a->stops));
    return status;
}

static rein_status read_weights(double *weights, size_t n, const char *text, rein_error *err) {
    char *end;
    size_t count = 0;
    for (const char *at = text; *at; at = *end ? end + 1 : end, count++) {
        const double x = strtod(at, &end);
        if (end == at || (*end && *end != ',') || !isfinite(x))
            return rein_fail(err, REIN_EINVAL, "reward_weights[%zu] is \"%.40s\": numbers with commas between them", count, at);
        if (count < n) weights[count] = x;
    }
    if (count == n) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "reward_weights has %zu numbers, and there are %zu rewards", count, n);
}

static rein_status open_reward(rein_task_runner *a, rein_error *err) {
    enum { MOST = 32 };
    const rein_settings *s = &a->settings;
    const char *specs[MOST] = {"task"};
    double weights[MOST];
    char text[REIN_TEXT_SETTING];
    rein_reward_options how = {.timeout = s->reward_timeout, .restarts = (size_t)s->reward_restarts};
    size_t n;
    memcpy(text, s->reward, sizeof text);
    if (split_lines(specs, &n, MOST, text, "reward", err)) return REIN_EINVAL;
    if (!n && !rein_task_verifies(a->task))
        return rein_fail(err, REIN_EINVAL,
                         "reward is missing: the task %.100s has no verifier of its own; exact, number, regex:PATTERN, "
                         "length:N, or a program",
                         s->task);
    if (!n) n = 1;
    if (*s->reward_weights) {
        const rein_status status = read_weights(weights, n, s->reward_weights, err);
        if (status) return status;
        how.weights = weights;
    }
    return rein_reward_open(&a->reward, specs, n, a->task, &how, err);
}

static rein_status open_task(rein_task **task, const rein_task_runner *a, const char *source, double held_out, rein_error *err) {
    const rein_task_kind kind = rein_task_kind_of(source);
    const rein_task_options how = {(uint64_t)a->settings.seed, kind == REIN_TASK_FILE ? held_out : 0,
                                   kind == REIN_TASK_PROGRAM ? a->settings.reward_timeout : 0};
    return rein_task_open(task, source, &how, err);
}

/* A file that is given for evaluations is for evaluations as a whole; built-in tasks and programs know what they hold out. */
static rein_status open_tasks(rein_task_runner *a, rein_error *err) {
    const rein_settings *s = &a->settings;
    const int apart = *s->eval_task != 0;
    rein_status status = open_task(&a->task, a, s->task, apart || !s->eval_prompts ? 0 : s->held_out, err);
    a->eval_task = a->task;
    if (!status && apart) {
        a->eval_task = NULL;
        status = open_task(&a->eval_task, a, s->eval_task, 0, err);
    }
    a->eval_split = apart && rein_task_kind_of(s->eval_task) == REIN_TASK_FILE ? REIN_SPLIT_TRAIN : REIN_SPLIT_HELD_OUT;
    return status;
}

static rein_status open_chat(rein_task_runner *a, rein_error *err) {
    const rein_settings *s = &a->settings;
    size_t length;
    const char *template = rein_tokenizer_chat_template(&length, a->tokenizer);
    rein_error why = {0};
    a->prompting = (rein_prompting){.chat_prompts = s->chat, .system = *s->system ? s->system : NULL};
    const rein_status status =
        *s->chat_format ? rein_chat_named(&a->chat, s->chat_format, &why) : rein_chat_recognise(&a->chat, template, length, &why);
    if (!status) a->prompting.chat = &a->chat;
    const int needed = s->chat || *s->chat_format;
    return status && needed ? rein_fail(err, status, "%s", why.message) : REIN_OK;
}

rein_status rein_task_runner_open(rein_task_runner **runner, const rein_settings *settings, const rein_model *model,
                                  rein_error *err) {
    *runner = NULL;
    rein_task_runner *a = calloc(1, sizeof *a);
    if (!a) return rein_fail(err, REIN_ENOMEM, "no memory for a task");
    a->settings = *settings;
    a->info = rein_model_describe(model);
    rein_status status = rein_tokenizer_open(&a->tokenizer, settings->model, err);
    if (!status) status = open_tasks(a, err);
    if (!status) status = open_reward(a, err);
    if (!status) status = open_chat(a, err);
    if (!status) status = read_stops(a, err);
    if (status) rein_task_runner_close(a);
    else *runner = a;
    return status;
}

void rein_task_runner_close(rein_task_runner *a) {
    if (!a) return;
    rein_reward_close(a->reward);
    if (a->eval_task != a->task) rein_task_close(a->eval_task);
    rein_task_close(a->task);
    rein_tokenizer_close(a->tokenizer);
    free(a);
}

rein_rollout_options rein_task_runner_options(rein_task_runner *a, rein_policy policy, rein_exec exec) {
    const rein_settings *s = &a->settings;
    return (rein_rollout_options){.task = a->task,
                                  .policy = policy,
                                  .tokenizer = a->tokenizer,
                                  .prompting = a->prompting,
                                  .sampling = {.top_k = s->top_k,
                                               .top_p = s->top_p,
                                               .min_p = s->min_p,
                                               .max_tokens = (size_t)s->max_tokens,
                                               .end_ids = a->info.end_ids,
                                               .n_end_ids = a->info.n_end_ids,
                                               .stops = a->stop_list,
                                               .n_stops = a->n_stops,
                                               .seed = (uint64_t)s->seed},
                                  .exec = exec};
}

/* How many of eval_prompts there are. Only asking tells where the examples of a program end. */
static rein_status count_held_out(size_t *n, rein_task_runner *a, rein_error *err) {
    const size_t wanted = (size_t)a->settings.eval_prompts, size = rein_task_size(a->eval_task, a->eval_split);
    rein_error why = {0};
    *n = wanted < size ? wanted : size;
    if (rein_task_kind_of(rein_task_name(a->eval_task)) != REIN_TASK_PROGRAM || a->held_out == wanted) return REIN_OK;
    for (rein_example example; !a->held_out_ends && a->held_out < wanted; a->held_out++, rein_example_free(&example)) {
        const rein_status status = rein_task_example(&example, a->eval_task, a->eval_split, a->held_out, &why);
        if (status && status != REIN_ERANGE) return rein_fail(err, status, "%s", why.message);
        if ((a->held_out_ends = status != REIN_OK)) break;
    }
    *n = a->held_out;
    return *n ? REIN_OK : rein_fail(err, REIN_EINVAL, "%s: nothing is held out for evaluations", why.message);
}

/* No training step has this number: its randomness is its own, and the same in every evaluation. */
static const uint64_t EVALUATION = UINT64_MAX;

rein_status rein_task_runner_evaluate(rein_groups *groups, rein_task_runner *a, const rein_policy *policy, int greedy,
                                      const rein_exec *exec, void (*progress)(void *context, size_t done, size_t all),
                                      void *context, rein_error *err) {
    size_t n;
    *groups = (rein_groups){0};
    rein_status status = count_held_out(&n, a, err);
    if (status) return status;
    uint64_t *indices = malloc((n ? n : 1) * sizeof *indices);
    if (!indices) return rein_fail(err, REIN_ENOMEM, "no memory for %zu prompts", n);
    for (size_t i = 0; i < n; i++) indices[i] = i;
    rein_rollout_options o = rein_task_runner_options(a, *policy, exec ? *exec : (rein_exec){0});
    o.task = a->eval_task, o.split = a->eval_split;
    o.indices = indices, o.n = n;
    o.samples = greedy ? 1 : (size_t)a->settings.eval_samples;
    o.step = EVALUATION;
    o.sampling.greedy = greedy;
    if (greedy) o.sampling.top_k = 0, o.sampling.top_p = 1, o.sampling.min_p = 0;
    o.progress = progress, o.context = context;
    status = rein_rollout_sample(groups, &o, err);
    if (!status) status = rein_reward_groups(groups, a->reward, err);
    if (status) rein_groups_free(groups);
    free(indices);
    return status;
}

/* Everything that can be wrong with the way from an example to a request, but for the example itself. */
static rein_status check_example(rein_task_runner *a, rein_task *task, rein_split split, rein_error *err) {
    rein_example example;
    rein_ids ids = {0};
    rein_error why = {0};
    rein_status status = rein_task_example(&example, task, split, 0, err);
    if (!status && (status = rein_example_encode(&ids, a->tokenizer, &example, &a->prompting, &why)))
        rein_fail(err, status, "task %.60s, example 0%s: %s", rein_task_name(task),
                  split == REIN_SPLIT_HELD_OUT ? " (held out)" : "", why.message);
    rein_ids_free(&ids);
    rein_example_free(&example);
    return status;
}

rein_status rein_task_runner_check(rein_task_runner *a, rein_error *err) {
    int32_t end;
    size_t n;
    rein_status status = a->prompting.chat ? rein_turn_end(&end, a->tokenizer, a->prompting.chat, err) : REIN_OK;
    if (!status) status = check_example(a, a->task, REIN_SPLIT_TRAIN, err);
    if (!status && a->settings.eval_prompts) status = count_held_out(&n, a, err);
    return status || !a->settings.eval_prompts ? status : check_example(a, a->eval_task, a->eval_split, err);
}

const char *rein_task_runner_log(rein_task_runner *a) { return rein_reward_log(a->reward); }
