/* rollout.c - completions of a batch of examples, as groups of trajectories. Requests enter the generator in order; which samples share one
 * of its steps changes nothing but the time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "episodes.h"
#include "model/tokenizer_parts.h"
#include "model/weights.h"
#include "rollout.h"
#include "trajectory.h"

/* A batch at work. */
typedef struct batch {
    const rein_rollout_options *options;
    const size_t *places; /* [count] of the prompts among those of the options; NULL: all */
    size_t count;
    rein_group *groups; /* [n] */
    size_t n;           /* that are to be freed */
    size_t *capacities; /* [count·samples] tokens that each history has room for */
    rein_generator *generator;
    int32_t end_ids[REIN_MAX_END_IDS + 1];
    rein_sampling sampling;
    size_t finished;
} batch;

static void free_batch(batch *b) {
    for (size_t i = 0; i < b->n; i++) rein_group_free(&b->groups[i]);
    free(b->groups);
    free(b->capacities);
    rein_generator_close(b->generator);
}

static size_t place_of(const batch *b, size_t i) { return b->places ? b->places[i] : i; }

static rein_status allocate(batch *b, rein_error *err) {
    const size_t all = b->count * b->options->samples;
    b->groups = calloc(b->count, sizeof *b->groups);
    b->capacities = calloc(all, sizeof *b->capacities);
    if (b->groups && b->capacities) return REIN_OK;
    return rein_fail(err, REIN_ENOMEM, "no memory for %zu responses", all);
}

/* The turn ends where the prompts are chats. */
rein_status rein_rollout_sampling(rein_sampling *sampling, int32_t end_ids[REIN_MAX_END_IDS + 1], const rein_rollout_options *o,
                                  rein_error *err) {
    int32_t turn = -1;
    *sampling = o->sampling;
    sampling->end_ids = end_ids;
    if (sampling->n_end_ids > REIN_MAX_END_IDS)
        return rein_fail_at(err, REIN_EINVAL, "sampling.end_ids", -1, "has %zu tokens: %d at most", sampling->n_end_ids,
                            REIN_MAX_END_IDS);
    for (size_t i = 0; i < o->sampling.n_end_ids; i++) end_ids[i] = o->sampling.end_ids[i];
    const rein_status status = o->prompting.chat ? rein_turn_end(&turn, o->tokenizer, o->prompting.chat, err) : REIN_OK;
    for (size_t i = 0; i < sampling->n_end_ids && turn >= 0; i++)
        if (end_ids[i] == turn) turn = -1;
    if (turn >= 0) end_ids[sampling->n_end_ids++] = turn;
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------ trajectories */

static rein_status begin_trajectories(rein_group *group, size_t *capacities, const rein_rollout_options *o, const rein_ids *prompt,
                                      rein_error *err) {
    rein_status status = REIN_OK;
    group->trajectories = calloc(o->samples, sizeof *group->trajectories);
    if (!group->trajectories) return rein_fail(err, REIN_ENOMEM, "no memory for %zu responses", o->samples);
    group->n = o->samples;
    for (size_t k = 0; k < group->n && !status; k++) {
        rein_trajectory *t = &group->trajectories[k];
        t->policy_step = o->address.purpose == REIN_PURPOSE_EVALUATION ? -1 : (int64_t)o->address.step;
        t->budget = group->example.budget;
        t->histories = calloc(1, sizeof *t->histories);
        if (!t->histories) return rein_no_memory(err);
        t->n_histories = 1;
        status = rein_history_begin(t->histories, &capacities[k], prompt, o->sampler_log_probs, err);
    }
    return status;
}

static rein_status put_token(batch *b, const rein_sampled *s, rein_error *err) {
    rein_trajectory *t = &b->groups[s->request].trajectories[s->sample];
    const rein_status status =
        rein_history_add_sampled(t->histories, &b->capacities[s->request * b->options->samples + s->sample], s, err);
    if (status) return status;
    t->finish = s->finish;
    t->truncated = s->finish == REIN_FINISH_MAX_TOKENS || s->finish == REIN_FINISH_CONTEXT;
    b->finished += s->finish != REIN_FINISH_NONE;
    return REIN_OK;
}

/* --------------------------------------------------------------------------------------------------------------------- sampling */

/* Errors of an example say which one it is. */
static rein_status in_example(const batch *b, size_t i, rein_status status, rein_error *err) {
    const rein_rollout_options *o = b->options;
    return rein_fail_in(err, status, "task %.60s, example %llu%s", rein_task_name(o->task),
                        (unsigned long long)o->indices[place_of(b, i)], o->split == REIN_SPLIT_HELD_OUT ? " (held out)" : "");
}

static rein_status add_request(batch *b, size_t i, const rein_ids *prompt, rein_error *err) {
    const rein_rollout_options *o = b->options;
    rein_request request = {
        .prompt = prompt->data, .n_prompt = prompt->count, .samples = o->samples, .address = o->address, .sampling = b->sampling};
    size_t number;
    request.address.prompt += place_of(b, i);
    return rein_generator_add(&number, b->generator, &request, err);
}

static rein_status add_example(batch *b, size_t i, rein_error *err) {
    const rein_rollout_options *o = b->options;
    rein_group *group = &b->groups[b->n++];
    rein_ids prompt = {0};
    rein_prompting prompting = o->prompting;
    if (!prompting.max_tokens) prompting.max_tokens = (size_t)o->policy.model->config.max_positions;
    rein_status status = rein_task_example(&group->example, o->task, o->split, o->indices[place_of(b, i)], err);
    if (status) return status; /* it names the example itself */
    status = rein_example_encode(&prompt, o->tokenizer, &group->example, &prompting, err);
    if (!status) status = add_request(b, i, &prompt, err);
    if (status) in_example(b, i, status, err);
    else status = begin_trajectories(group, b->capacities + i * o->samples, o, &prompt, err);
    rein_ids_free(&prompt);
    return status;
}

static rein_status generate(batch *b, rein_error *err) {
    const rein_rollout_options *o = b->options;
    const rein_generator_options options = {.exec = o->exec, .activation_cache = o->activation_cache};
    const rein_sampled *sampled;
    size_t n, failed;
    rein_status status = rein_generator_open(&b->generator, &o->policy, o->tokenizer, &options, err);
    for (size_t i = 0; i < b->count && !status; i++) status = add_example(b, i, err);
    while (!status && rein_generator_unfinished(b->generator)) {
        const size_t before = b->finished;
        status = rein_generator_step(&sampled, &n, b->generator, err);
        if (!status && (status = rein_generator_failed(&failed, b->generator, err))) in_example(b, failed, status, err);
        for (size_t i = 0; i < n && !status; i++) status = put_token(b, &sampled[i], err);
        if (o->progress && b->finished > before && !status) o->progress(o->context, b->finished, b->count * o->samples);
    }
    return status;
}

rein_status rein_rollout_sample(rein_groups *groups, const rein_rollout_options *options, rein_error *err) {
    return rein_rollout_sample_some(groups, options, NULL, options->n, err);
}

rein_status rein_rollout_sample_some(rein_groups *groups, const rein_rollout_options *options, const size_t *places, size_t n,
                                     rein_error *err) {
    batch b = {.options = options, .places = places, .count = n};
    if (!options->n || !options->samples)
        return rein_fail_at(err, REIN_EINVAL, options->n ? "samples" : "n", -1, "is 0: 1 or more is needed");
    if (options->address.step > INT64_MAX)
        return rein_fail_at(err, REIN_EINVAL, "address.step", -1, "is %llu: a step of training is at most %lld",
                            (unsigned long long)options->address.step, (long long)INT64_MAX);
    if (rein_task_environment(options->task)) return rein_rollout_play(groups, options, places, n, err);
    rein_status status = allocate(&b, err);
    if (!status) status = rein_rollout_sampling(&b.sampling, b.end_ids, options, err);
    if (!status) status = generate(&b, err);
    if (!status) status = rein_groups_append_all(groups, b.groups, b.n, err);
    free_batch(&b);
    return status;
}
