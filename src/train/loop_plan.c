/* loop_plan.c - what a prepared loop will do, for --dry-run: its examples, its prompts as the model sees them, and how long a step takes.
 * Nothing is written. */
#include <stdlib.h>

#include "base/clock.h"
#include "loop.h"
#include "rollout/trajectory.h"
#include "trainer.h"

static const rein_settings *settings_of(const rein_loop *l) { return &l->session->settings; }

rein_status rein_loop_describe(rein_loop_plan *plan, rein_loop *l, rein_error *err) {
    rein_example example;
    rein_ids ids = {0};
    rein_status status = rein_task_example(&example, l->runner->task, REIN_SPLIT_TRAIN, 0, err);
    *plan = (rein_loop_plan){.examples = rein_task_size(l->runner->task, REIN_SPLIT_TRAIN)};
    if (status) return status;
    plan->ignores_template = l->runner->prompting.chat && !l->runner->prompting.chat_prompts && example.prompt;
    status = rein_example_encode(&ids, l->runner->tokenizer, &example, &l->runner->prompting, err);
    plan->prompt_tokens = ids.count;
    rein_example_free(&example);
    rein_ids_free(&ids);
    if (status) return status;
    return settings_of(l)->eval_prompts ? rein_task_runner_held_out(&plan->held_out, l->runner, err) : REIN_OK;
}

/* The examples of the first step. The caller frees *indices. */
static rein_status first_examples(uint64_t **indices, const rein_loop *l, rein_error *err) {
    const size_t n = (size_t)settings_of(l)->prompts;
    *indices = malloc(n * sizeof **indices);
    return *indices ? rein_loop_places(*indices, l, 0, err) : rein_fail(err, REIN_ENOMEM, "no memory for %zu prompts", n);
}

rein_status rein_loop_prompt(rein_text *text, rein_loop *l, size_t i, rein_error *err) {
    rein_task_runner *r = l->runner;
    rein_example example = {0};
    rein_ids ids = {0};
    uint64_t *indices = NULL;
    if (i >= (size_t)settings_of(l)->prompts) return rein_fail_at(err, REIN_END, "i", -1, "is %zu: a step has fewer prompts", i);
    rein_status status = first_examples(&indices, l, err);
    if (!status) status = rein_task_example(&example, r->task, REIN_SPLIT_TRAIN, indices[i], err);
    if (!status) status = rein_example_encode(&ids, r->tokenizer, &example, &r->prompting, err);
    if (!status) status = rein_tokenizer_decode(text, r->tokenizer, ids.data, ids.count, 0, err);
    rein_example_free(&example);
    rein_ids_free(&ids);
    free(indices);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------- the speed */

enum { PROBE_PROMPTS = 2, PROBE_SAMPLES = 8, PROBE_TOKENS = 32 };
static const double ENOUGH_SECONDS = 0.3;

static rein_status sample_a_few(rein_groups *groups, rein_loop *l, size_t max_tokens, rein_error *err) {
    const rein_settings *s = settings_of(l);
    uint64_t *indices = NULL;
    rein_rollout_options o = rein_task_runner_options(l->runner, rein_session_policy(l->session), l->session->exec);
    rein_status status = first_examples(&indices, l, err);
    o.indices = indices;
    o.n = s->prompts < PROBE_PROMPTS ? (size_t)s->prompts : PROBE_PROMPTS;
    o.samples = s->samples < PROBE_SAMPLES ? (size_t)s->samples : PROBE_SAMPLES;
    if (o.sampling.max_tokens > max_tokens) o.sampling.max_tokens = max_tokens;
    o.address.purpose = REIN_PURPOSE_TRAINING;
    if (!status) status = rein_rollout_sample(groups, &o, err);
    free(indices);
    return status;
}

/* Longer completions say more about their lengths: a model that is fast enough writes them to the end. */
static rein_status sample_for_a_moment(rein_groups *groups, double *seconds, rein_loop *l, rein_error *err) {
    rein_status status = REIN_OK;
    size_t max_tokens = PROBE_TOKENS;
    for (*seconds = 0; !status; max_tokens *= 4) {
        const double began = rein_now();
        rein_groups_free(groups);
        status = sample_a_few(groups, l, max_tokens, err);
        *seconds = rein_now() - began;
        if (*seconds > ENOUGH_SECONDS || max_tokens >= (size_t)settings_of(l)->max_tokens) break;
    }
    return status;
}

/* A backward pass takes the same time whatever the rewards are, unless they are 0. The gradient is thrown away. */
static rein_status train_a_few(rein_pass_result *pass, rein_loop *l, rein_groups *groups, rein_error *err) {
    rein_options plain;
    rein_options_init(&plain, NULL, NULL);
    const rein_pass_options options = {.objective = &plain, .policy_step = -1};
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++) groups->groups[g].trajectories[t].reward = 1;
    const rein_status status = rein_trainer_forward_backward(pass, l->session->trainer, groups, &options, err);
    rein_trainer_clear(l->session->trainer);
    return status;
}

/* A completion that was cut may become as long as max_tokens. */
static void count_tokens(double *sampled, double *expected, const rein_groups *groups, int64_t max_tokens) {
    for (size_t g = 0; g < groups->n; g++)
        for (size_t k = 0; k < groups->groups[g].n; k++) {
            const rein_trajectory *t = &groups->groups[g].trajectories[k];
            const double length = (double)rein_trajectory_length(t);
            *sampled += length, *expected += t->truncated ? (double)max_tokens : length;
        }
}

rein_status rein_loop_estimate(double *seconds, rein_loop *l, rein_error *err) {
    const rein_settings *s = settings_of(l);
    rein_groups groups = {0};
    rein_pass_result pass = {0};
    double sampled = 0, expected = 0, sampling;
    rein_status status = sample_for_a_moment(&groups, &sampling, l, err);
    if (!status) status = train_a_few(&pass, l, &groups, err);
    if (!status) {
        size_t n = 0;
        for (size_t g = 0; g < groups.n; g++) n += groups.groups[g].n;
        count_tokens(&sampled, &expected, &groups, s->max_tokens);
        const double reference = rein_options_use_reference(&s->objective) ? pass.seconds_forward : 0,
                     training = (double)s->epochs * (pass.seconds_forward + pass.seconds_backward) + reference,
                     tokens = expected / (double)n * (double)s->prompts * (double)s->samples;
        *seconds = (sampling + training) / sampled * tokens;
    }
    rein_groups_free(&groups);
    return status;
}
