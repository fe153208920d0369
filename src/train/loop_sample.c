/* loop_sample.c - what a step of the loop trains on.
 *
 * Step s takes the examples at places s·P … s·P + P − 1 of the task, P prompts a step, and each completion has its own address (seed, step,
 * prompt, sample): so a resumed run samples what it would have. Every epoch goes through a file in another order. With dynamic sampling a
 * step has places for all the rounds it could need. */
#include <stdlib.h>
#include <string.h>

#include "loop.h"
#include "online_pairs.h"
#include "trainer.h"

static const rein_settings *settings_of(const rein_loop *l) { return &l->session->settings; }

int rein_settings_truncate(const rein_settings *s) { return s->top_k > 0 || s->top_p < 1 || s->min_p > 0; }

void rein_step_batch_free(rein_step_batch *batch) {
    free(batch->chosen.groups);
    rein_groups_free(&batch->sampled);
    *batch = (rein_step_batch){0};
}

int rein_step_batch_wants_more(const rein_step_batch *batch, const rein_settings *s) {
    return batch->rounds == 0 || (batch->rounds < 1 + (size_t)s->dynamic_sampling && batch->chosen.n < (size_t)s->prompts);
}

/* --------------------------------------------------------------------------------------------------------------------- sampling */

/* The indices of the examples of a round. An endless task always has new ones; others repeat their examples, in a new order each epoch. */
rein_status rein_loop_places(uint64_t *indices, const rein_loop *l, size_t round, rein_error *err) {
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

/* The ranks that sample each prompt: those that will train on it, if nothing is sampled again. Its activations are in their caches. */
static void choose_ranks(size_t *ranks, const rein_loop *l, size_t n) {
    const size_t parts = (size_t)settings_of(l)->minibatches, shards = l->session->trainer->options.shards;
    for (size_t b = 0; b < parts; b++) {
        const size_t first = n * b / parts, size = n * (b + 1) / parts - first, dealt = size < shards ? size : shards;
        for (size_t i = 0; i < size; i++) ranks[first + i] = rein_ranks_owner(i % dealt, dealt, rein_ranks_size(l->session->ranks));
    }
}

/* Every rank samples and rewards its prompts; then all get the groups of all. */
static rein_status sample_and_reward(rein_groups *groups, rein_loop *l, const rein_rollout_options *o, rein_error *err) {
    size_t *ranks = malloc(o->n * sizeof *ranks);
    if (!ranks) return rein_fail(err, REIN_ENOMEM, "no memory for %zu prompts", o->n);
    choose_ranks(ranks, l, o->n);
    const rein_status status = rein_task_runner_sample(groups, l->runner, o, ranks, err);
    free(ranks);
    return status;
}

rein_status rein_loop_sample_round(rein_groups *round, rein_step_batch *batch, rein_loop *l, rein_error *err) {
    const rein_settings *s = settings_of(l);
    const size_t prompts = (size_t)s->prompts;
    uint64_t *indices = malloc(prompts * sizeof *indices);
    if (!indices) return rein_fail(err, REIN_ENOMEM, "no memory for %zu prompts", prompts);
    rein_rollout_options o = rein_task_runner_options(l->runner, rein_session_policy(l->session), l->session->exec);
    o.indices = indices, o.n = prompts, o.samples = (size_t)s->samples;
    o.address =
        (rein_address){.purpose = REIN_PURPOSE_TRAINING, .step = (uint64_t)l->session->step, .prompt = batch->rounds * prompts};
    o.sampler_log_probs = rein_settings_truncate(s);
    o.activation_cache = rein_session_activation_cache(l->session);
    o.progress = on_progress, o.context = l;
    rein_status status = rein_loop_places(indices, l, batch->rounds, err);
    if (!status) status = sample_and_reward(&batch->sampled, l, &o, err);
    free(indices);
    if (status) return status;
    *round = (rein_groups){batch->sampled.groups + batch->rounds++ * prompts, prompts, 0};
    return REIN_OK;
}

/* --------------------------------------------------------------------------------------------------------------------- choosing */

/* Whether the objective tells the responses of a group apart. The length reward of k1.5 only ranks right ones, so it does not count, unless
 * a loss over preferences compares them by it. */
static rein_status spreads(int *spread, const rein_options *o, const rein_group *group, rein_error *err) {
    double *shaped = malloc(group->n * sizeof *shaped);
    rein_options compared = *o;
    if (o->shape == REIN_SHAPE_K15_LENGTH && !o->preference_loss) compared.shape = REIN_SHAPE_NONE;
    *spread = 0;
    if (!shaped) return rein_fail(err, REIN_ENOMEM, "no memory for %zu rewards", group->n);
    const rein_status status = rein_shaped_rewards(shaped, &compared, group, err);
    for (size_t k = 1; k < group->n && !status; k++) *spread |= shaped[k] < shaped[0] || shaped[k] > shaped[0];
    free(shaped);
    return status;
}

/* DAPO's dynamic sampling (Yu et al. 2025, section 3.2): prompts whose completions are all equally good teach nothing; others take their
 * place, as long as there are rounds. Where in the end too few differ, the first round stays: the step reports that nothing trains. */
rein_status rein_loop_choose(rein_step_batch *batch, const rein_groups *round, const rein_loop *l, rein_error *err) {
    const rein_settings *s = settings_of(l);
    rein_groups *chosen = &batch->chosen;
    rein_status status = REIN_OK;
    if (!chosen->groups) chosen->groups = calloc((size_t)s->prompts, sizeof *chosen->groups);
    if (!chosen->groups) return rein_fail(err, REIN_ENOMEM, "no memory for %lld prompts", (long long)s->prompts);
    for (size_t g = 0; g < round->n && chosen->n < (size_t)s->prompts && !status; g++) {
        int wanted = 1;
        if (s->dynamic_sampling) status = spreads(&wanted, &s->objective, &round->groups[g], err);
        if (!status && wanted) chosen->groups[chosen->n++] = round->groups[g];
    }
    if (status || rein_step_batch_wants_more(batch, s) || chosen->n >= (size_t)s->minibatches) return status;
    chosen->n = (size_t)s->prompts;
    memcpy(chosen->groups, batch->sampled.groups, chosen->n * sizeof *chosen->groups);
    return REIN_OK;
}
