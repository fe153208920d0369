/* session_samples.c - completions that the policy itself writes for the prompts of supervised examples, for distillation on its own samples.
 *
 * Whether a step takes them is drawn for the step, as in GKD (Agarwal et al. 2023, algorithm 1), and the draw, as the samples, has an address:
 * a resumed run and all ranks get the same. Every rank samples all of them. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/random.h"
#include "rollout/episodes.h"
#include "rollout/trajectory.h"
#include "session.h"

/* A batch at work. */
typedef struct sampling_work {
    rein_groups *groups; /* one for each example, of one trajectory */
    size_t *capacities;  /* [n] of the histories */
    rein_generator *generator;
    rein_sampling sampling;
    int32_t end_ids[REIN_MAX_END_IDS + 1];
} sampling_work;

/* What comes before the first token that trains. */
static rein_ids prompt_of(const rein_group *example) {
    const rein_history *h = &example->trajectories[0].histories[0];
    rein_ids prompt = {.data = h->ids};
    while (prompt.count < h->n && !h->mask[prompt.count]) prompt.count++;
    return prompt;
}

static rein_status begin_group(rein_group *group, size_t *capacity, const rein_ids *prompt, int64_t step, rein_error *err) {
    rein_trajectory *t = group->trajectories = calloc(1, sizeof *t);
    if (!t) return rein_no_memory(err);
    group->n = 1;
    *t = (rein_trajectory){.policy_step = step, .budget = -1, .histories = calloc(1, sizeof *t->histories)};
    if (!t->histories) return rein_no_memory(err);
    t->n_histories = 1;
    return rein_history_begin(t->histories, capacity, prompt, 0, err);
}

static rein_status add_example(sampling_work *w, const rein_group *example, rein_session *s, rein_error *err) {
    const rein_ids prompt = prompt_of(example);
    const size_t i = w->groups->n;
    const rein_request request = {.prompt = prompt.data,
                                  .n_prompt = prompt.count,
                                  .samples = 1,
                                  .address = {.purpose = REIN_PURPOSE_TRAINING, .step = (uint64_t)s->step, .prompt = i},
                                  .sampling = w->sampling};
    rein_group group = {0};
    size_t number;
    rein_status status = rein_generator_add(&number, w->generator, &request, err);
    if (!status) status = begin_group(&group, &w->capacities[i], &prompt, s->step, err);
    if (!status) status = rein_groups_append(w->groups, &group, err);
    rein_group_free(&group);
    return status;
}

static rein_status take_token(sampling_work *w, const rein_sampled *sampled, rein_error *err) {
    rein_trajectory *t = w->groups->groups[sampled->request].trajectories;
    t->finish = sampled->finish;
    t->truncated = sampled->finish == REIN_FINISH_MAX_TOKENS || sampled->finish == REIN_FINISH_CONTEXT;
    return rein_history_add_sampled(t->histories, &w->capacities[sampled->request], sampled, err);
}

static rein_status sample(sampling_work *w, const rein_groups *examples, rein_session *s, const rein_own_samples *how,
                          rein_error *err) {
    const rein_policy policy = rein_session_policy(s);
    const rein_generator_options options = {.exec = s->exec, .activation_cache = s->activation_cache};
    const rein_sampled *sampled;
    size_t n, failed;
    rein_status status = rein_generator_open(&w->generator, &policy, how->tokenizer, &options, err);
    for (size_t i = 0; i < examples->n && !status; i++) status = add_example(w, &examples->groups[i], s, err);
    while (!status && rein_generator_unfinished(w->generator)) {
        status = rein_generator_step(&sampled, &n, w->generator, err);
        if (!status) status = rein_generator_failed(&failed, w->generator, err);
        for (size_t i = 0; i < n && !status; i++) status = take_token(w, &sampled[i], err);
    }
    return status;
}

/* A completion ends at the model's end tokens, at that of the data, and where a turn of the chat ends. */
static rein_status choose_ends(sampling_work *w, const rein_session *s, const rein_own_samples *how, rein_error *err) {
    const rein_model_info info = rein_model_describe(s->model);
    int32_t ends[REIN_MAX_END_IDS];
    rein_rollout_options o = {.tokenizer = how->tokenizer, .prompting.chat = how->chat, .sampling = rein_sampling_plain()};
    size_t n = 0;
    for (; n < info.n_end_ids && n + 1 < REIN_MAX_END_IDS; n++) ends[n] = info.end_ids[n];
    int known = how->end_id < 0;
    for (size_t i = 0; i < n; i++) known |= ends[i] == how->end_id;
    if (!known) ends[n++] = how->end_id;
    o.sampling.end_ids = ends, o.sampling.n_end_ids = n;
    o.sampling.max_tokens = how->max_new_tokens, o.sampling.seed = (uint64_t)s->settings.seed;
    return rein_rollout_sampling(&w->sampling, w->end_ids, &o, err);
}

rein_status rein_session_own_samples(rein_groups *sampled, double *seconds, rein_session *s, const rein_groups *examples,
                                     const rein_own_samples *how, rein_error *err) {
    const double began = rein_now();
    sampling_work w = {.groups = sampled};
    *sampled = (rein_groups){0};
    *seconds = NAN;
    rein_status status = rein_session_expect(s, REIN_SESSION_READY, err);
    if (status) return status;
    if (!(how->share >= 0 && how->share <= 1))
        return rein_fail_at(err, REIN_EINVAL, "share", -1, "is %g: a number between 0 and 1 is needed", how->share);
    if (!how->max_new_tokens) return rein_fail_at(err, REIN_EINVAL, "max_new_tokens", -1, "is 0: 1 or more is needed");
    if (!(rein_random_uniform((uint64_t)s->settings.seed, REIN_RANDOM_MIXTURE, (uint64_t)s->step, 0, 0, 0) < how->share))
        return REIN_OK;
    w.capacities = calloc(examples->n + 1, sizeof *w.capacities);
    if (!w.capacities) return rein_fail(err, REIN_ENOMEM, "no memory for %zu completions", examples->n);
    status = choose_ends(&w, s, how, err);
    if (!status) status = sample(&w, examples, s, how, err);
    rein_generator_close(w.generator);
    free(w.capacities);
    if (status) rein_groups_free(sampled);
    else *seconds = rein_now() - began;
    return status;
}
