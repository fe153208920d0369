/* task_runner.c - what sampling and rewarding need, opened as the settings say: tokenizer, tasks, judges, chat format, stops. */
#include "task_runner.h"
#include "base/base.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "groups_share.h"
#include "reward_models.h"
#include "rollout/reward.h"
#include "rollout/rollout.h"
#include "rollout/task.h"

/* Cuts a text into its lines. */
static rein_status split_lines(const char **lines, size_t *n, size_t most, char *text, const char *name, rein_error *err) {
    *n = 0;
    for (char *rest = text, *line; (line = strtok_r(rest, "\n", &rest));) {
        if (*n == most) return rein_fail_at(err, REIN_EINVAL, name, -1, "has more than %zu values", most);
        lines[(*n)++] = line;
    }
    return REIN_OK;
}

/* \n and \\ become a newline and a backslash, in place: a stop text may have a newline. */
static void unescape(char *text) {
    char *to = text;
    for (; *text; text++) {
        const char next = *text == '\\' ? text[1] : 0;
        *to++ = next == 'n' ? '\n' : *text;
        text += next == 'n' || next == '\\';
    }
    *to = 0;
}

static rein_status read_stops(rein_task_runner *r, rein_error *err) {
    r->stops = strdup(r->settings.stop);
    if (!r->stops) return rein_fail(err, REIN_ENOMEM, "no memory for stops");
    const rein_status status = split_lines(r->stop_list, &r->n_stops, REIN_TASK_RUNNER_STOPS, r->stops, "stop", err);
    for (size_t i = 0; i < r->n_stops && !status; i++) unescape(r->stops + (r->stop_list[i] - r->stops));
    return status;
}

static rein_status read_weights(double *weights, size_t n, const char *text, rein_error *err) {
    char *end;
    size_t count = 0;
    for (const char *at = text; *at; at = *end ? end + 1 : end, count++) {
        const double x = strtod(at, &end);
        if (end == at || (*end && *end != ',') || !isfinite(x))
            return rein_fail_at(err, REIN_EINVAL, "reward_weights", (int64_t)count,
                                "is \"%.40s\": numbers with commas between them", at);
        if (count < n) weights[count] = x;
    }
    if (count == n) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "reward_weights", -1, "has %zu numbers, and there are %zu rewards", count, n);
}

/* `judges` is cut apart. */
static rein_status open_judges(rein_task_runner *r, char *judges, const rein_task_inputs *inputs, rein_error *err) {
    enum { MOST = 32 };
    const rein_settings *s = &r->settings;
    const char *specs[MOST] = {"task"};
    double weights[MOST];
    rein_reward_options how = {.timeout = s->reward_timeout,
                               .restarts = (size_t)s->reward_restarts,
                               .directory = s->working_directory,
                               .exec = rein_settings_exec(s),
                               .prompting = &r->prompting,
                               .functions = inputs->functions,
                               .n_functions = inputs->n_functions};
    size_t n;
    if (split_lines(specs, &n, MOST, judges, "reward", err)) return REIN_EINVAL;
    if (!n && !rein_task_verifies(r->task))
        return rein_fail_at(err, REIN_EINVAL, "reward", -1,
                            "is missing: the task %.100s has no verifier of its own; exact, number, regex:PATTERN, "
                            "length:N, model:DIR, or a program",
                            s->task);
    if (!n) n = 1;
    if (*s->reward_weights) {
        const rein_status status = read_weights(weights, n, s->reward_weights, err);
        if (status) return status;
        how.weights = weights;
    }
    return rein_reward_open(&r->reward, specs, n, r->task, &how, err);
}

static rein_status open_reward(rein_task_runner *r, const rein_task_inputs *inputs, rein_error *err) {
    char *judges = strdup(r->settings.reward);
    const rein_status status = judges ? open_judges(r, judges, inputs, err) : rein_fail(err, REIN_ENOMEM, "no memory for rewards");
    free(judges);
    return status;
}

static rein_status open_task(rein_task **task, const rein_task_runner *r, const char *source, double held_out,
                             const rein_task_inputs *inputs, rein_error *err) {
    const rein_task_kind kind = rein_task_kind_of(source);
    const int runs = rein_task_command(source) != NULL;
    const rein_task_options how = {.seed = (uint64_t)r->settings.seed,
                                   .held_out_share = rein_task_is_divided(kind) ? held_out : 0,
                                   .timeout = runs ? r->settings.reward_timeout : 0,
                                   .directory = runs ? r->settings.working_directory : NULL,
                                   .texts = inputs->texts,
                                   .n_texts = inputs->n_texts};
    return rein_task_open(task, source, &how, err);
}

/* The setting that names the source is eval_task, not task. */
static rein_status of_eval_task(rein_status status, rein_error *err) {
    if (!status || !err || strcmp(err->field, "task") != 0) return status;
    return rein_fail_as(err, status, "eval_task", -1, "eval_task");
}

/* All of a list that is given for evaluations is held out; built-in tasks and programs have their own split. */
static rein_status open_tasks(rein_task_runner *r, const rein_task_inputs *inputs, rein_error *err) {
    const rein_settings *s = &r->settings;
    const int apart = *s->eval_task != 0;
    rein_status status = open_task(&r->task, r, s->task, apart || !s->eval_prompts ? 0 : s->held_out, inputs, err);
    r->eval_task = r->task;
    if (!status && apart) {
        r->eval_task = NULL;
        status = of_eval_task(open_task(&r->eval_task, r, s->eval_task, 0, inputs, err), err);
    }
    r->eval_split = apart && rein_task_is_divided(rein_task_kind_of(s->eval_task)) ? REIN_SPLIT_TRAIN : REIN_SPLIT_HELD_OUT;
    return status;
}

static rein_status open_chat(rein_task_runner *r, rein_error *err) {
    const rein_settings *s = &r->settings;
    rein_error why = {0};
    r->prompting = (rein_prompting){
        .chat_prompts = s->chat, .system = *s->system ? s->system : NULL, .max_tokens = (size_t)r->info.max_positions};
    rein_status status = rein_settings_choose_date(&r->settings, err);
    if (status) return status;
    status = rein_settings_chat(&r->chat, s, r->tokenizer, &why);
    if (!status) r->prompting.chat = &r->chat;
    if (rein_settings_given(s, "date") && !(r->chat.run && rein_chat_template_names(r->chat.run, "strftime_now")))
        return rein_fail_at(err, REIN_EINVAL, "date", -1, "has no effect: the chat template does not ask for it (strftime_now)");
    const int needed = s->chat || *s->chat_format;
    return status && needed ? rein_fail_with(err, status == REIN_END ? REIN_EINVAL : status, &why) : REIN_OK;
}

rein_status rein_task_runner_open(rein_task_runner **runner, const rein_settings *settings, const rein_model *model,
                                  const rein_task_inputs *inputs, rein_error *err) {
    const rein_task_inputs none = {0};
    *runner = NULL;
    if (!inputs) inputs = &none;
    rein_task_runner *r = calloc(1, sizeof *r);
    if (!r) return rein_fail(err, REIN_ENOMEM, "no memory for a task");
    rein_settings_init(&r->settings);
    r->info = rein_model_describe(model);
    rein_status status = rein_settings_assign(&r->settings, settings, err);
    if (!status) status = rein_settings_place_reward_models(&r->settings, err);
    if (!status) status = rein_tokenizer_open(&r->tokenizer, settings->model, err);
    if (!status) status = open_tasks(r, inputs, err);
    if (!status) status = open_chat(r, err);
    if (!status) status = open_reward(r, inputs, err);
    if (!status) status = read_stops(r, err);
    if (status) rein_task_runner_close(r);
    else *runner = r;
    return status;
}

void rein_task_runner_close(rein_task_runner *r) {
    if (!r) return;
    rein_reward_close(r->reward);
    if (r->eval_task != r->task) rein_task_close(r->eval_task);
    rein_task_close(r->task);
    rein_tokenizer_close(r->tokenizer);
    rein_settings_clear(&r->settings);
    free(r->stops);
    free(r);
}

rein_rollout_options rein_task_runner_options(rein_task_runner *r, rein_policy policy, rein_exec exec) {
    const rein_settings *s = &r->settings;
    return (rein_rollout_options){.task = r->task,
                                  .policy = policy,
                                  .tokenizer = r->tokenizer,
                                  .prompting = r->prompting,
                                  .sampling = {.top_k = s->top_k,
                                               .top_p = s->top_p,
                                               .min_p = s->min_p,
                                               .max_tokens = (size_t)s->max_tokens,
                                               .end_ids = r->info.end_ids,
                                               .n_end_ids = r->info.n_end_ids,
                                               .stops = r->stop_list,
                                               .n_stops = r->n_stops,
                                               .seed = (uint64_t)s->seed},
                                  .max_turns = (size_t)s->max_turns,
                                  .exec = exec};
}

/* Those of a program are counted by getting them. */
rein_status rein_task_runner_held_out(size_t *n, rein_task_runner *r, rein_error *err) {
    const size_t wanted = (size_t)r->settings.eval_prompts, size = rein_task_size(r->eval_task, r->eval_split);
    rein_error why = {0};
    *n = wanted < size ? wanted : size;
    if (rein_task_kind_of(rein_task_name(r->eval_task)) != REIN_TASK_PROGRAM || r->held_out == wanted) return REIN_OK;
    for (rein_example example; !r->held_out_ends && r->held_out < wanted; r->held_out++, rein_example_free(&example)) {
        const rein_status status = rein_task_example(&example, r->eval_task, r->eval_split, r->held_out, &why);
        if (status && status != REIN_END) return rein_fail_with(err, status, &why);
        if ((r->held_out_ends = status != REIN_OK)) break;
    }
    *n = r->held_out;
    return *n ? REIN_OK : rein_fail(err, REIN_EINVAL, "%s: nothing is held out for evaluations", why.message);
}

/* The prompts of this rank, as one batch of the generator. */
static rein_status sample_own(rein_groups *own, rein_task_runner *r, const rein_rollout_options *o, const size_t *ranks,
                              rein_error *err) {
    size_t n = 0, *places = calloc(o->n + 1, sizeof *places);
    if (!places) return rein_fail(err, REIN_ENOMEM, "no memory for %zu prompts", o->n);
    for (size_t i = 0; i < o->n; i++)
        if (ranks[i] == rein_ranks_rank(r->ranks)) places[n++] = i;
    rein_status status = n || !o->n ? rein_rollout_sample_some(own, o, places, n, err) : REIN_OK;
    if (!status && n) status = rein_reward_groups(own, r->reward, err);
    free(places);
    return status;
}

rein_status rein_task_runner_sample(rein_groups *groups, rein_task_runner *r, const rein_rollout_options *options,
                                    const size_t *ranks, rein_error *err) {
    rein_groups own = {0};
    rein_status status = rein_ranks_agree(r->ranks, sample_own(&own, r, options, ranks, err), err);
    if (!status) status = rein_groups_share(groups, &own, ranks, options->n, r->ranks, err);
    rein_groups_free(&own);
    return status;
}

rein_status rein_task_runner_evaluate(rein_groups *groups, rein_task_runner *r, const rein_policy *policy, int greedy,
                                      const rein_exec *exec, void (*progress)(void *context, size_t done, size_t all),
                                      void *context, rein_error *err) {
    size_t n;
    *groups = (rein_groups){0};
    rein_status status = rein_task_runner_held_out(&n, r, err);
    if (status) return status;
    uint64_t *indices = malloc((n ? n : 1) * sizeof *indices);
    if (!indices) return rein_fail(err, REIN_ENOMEM, "no memory for %zu prompts", n);
    for (size_t i = 0; i < n; i++) indices[i] = i;
    rein_rollout_options o = rein_task_runner_options(r, *policy, exec ? *exec : (rein_exec){0});
    o.task = r->eval_task, o.split = r->eval_split;
    o.indices = indices, o.n = n;
    o.samples = greedy ? 1 : (size_t)r->settings.eval_samples;
    o.address.purpose = REIN_PURPOSE_EVALUATION;
    o.sampling.greedy = greedy;
    if (greedy) o.sampling.top_k = 0, o.sampling.top_p = 1, o.sampling.min_p = 0;
    o.progress = progress, o.context = context;
    size_t *ranks = malloc((n ? n : 1) * sizeof *ranks);
    if (!ranks) status = rein_fail(err, REIN_ENOMEM, "no memory for %zu prompts", n);
    for (size_t i = 0; i < n && !status; i++) ranks[i] = rein_ranks_owner(i, n, rein_ranks_size(r->ranks));
    if (!status) status = rein_task_runner_sample(groups, r, &o, ranks, err);
    if (status) rein_groups_free(groups);
    free(ranks);
    free(indices);
    return status;
}

/* What can be known of an example before it is sampled: the prompt can be encoded and leaves room, and the judges have their answer. */
static rein_status check_prompt(rein_task_runner *r, const rein_example *example, rein_ids *ids, rein_error *err) {
    const size_t positions = (size_t)r->info.max_positions;
    const rein_status status = rein_example_encode(ids, r->tokenizer, example, &r->prompting, err);
    if (status || ids->count < positions) return status ? status : rein_reward_check(r->reward, example, err);
    return rein_fail_at(err, REIN_EINVAL, "prompt", -1,
                        "has %zu tokens: the model has %zu positions, which leaves no room for a completion", ids->count,
                        positions);
}

/* Checks all examples of a file, and the first of other tasks. */
static rein_status check_examples(rein_task_runner *r, rein_task *task, rein_split split, rein_error *err) {
    const int file = rein_task_kind_of(rein_task_name(task)) == REIN_TASK_FILE;
    const size_t n = file ? rein_task_size(task, split) : 1;
    rein_ids ids = {0};
    rein_status status = REIN_OK;
    for (size_t i = 0; i < n && !status; i++) {
        rein_example example;
        if ((status = rein_task_example(&example, task, split, i, err))) break; /* it names the example itself */
        ids.count = 0;
        if ((status = check_prompt(r, &example, &ids, err))) rein_task_fail_in(err, status, task, split, i);
        rein_example_free(&example);
    }
    rein_ids_free(&ids);
    return status;
}

rein_status rein_task_runner_check(rein_task_runner *r, rein_error *err) {
    int32_t end;
    size_t n;
    rein_status status = r->prompting.chat ? rein_turn_end(&end, r->tokenizer, r->prompting.chat, err) : REIN_OK;
    if (!status) status = check_examples(r, r->task, REIN_SPLIT_TRAIN, err);
    if (!status && r->settings.eval_prompts) status = rein_task_runner_held_out(&n, r, err);
    if (!status && r->settings.eval_prompts) status = check_examples(r, r->eval_task, r->eval_split, err);
    return status ? status : rein_reward_check_programs(r->reward, err); /* last: they have had time to start */
}

const char *rein_task_runner_log(rein_task_runner *r) { return rein_reward_log(r->reward); }
