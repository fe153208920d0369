/* rollout.c - a batch of examples asked, answered and rewarded. Requests enter the generator in order; which samples share a step of it
 * changes nothing but the time. */
#include <stdlib.h>
#include <string.h>

#include "rein/rollout.h"

static void free_written(rein_completion *w) {
    free(w->ids);
    free(w->log_probs);
    free(w->sampler_log_probs);
    free(w->ends);
    rein_text_free(&w->text);
}

void rein_rollout_free(rein_rollout *r) {
    for (size_t i = 0; r->examples && i < r->n; i++) rein_example_free(&r->examples[i]);
    for (size_t i = 0; r->prompts && i < r->n; i++) rein_ids_free(&r->prompts[i]);
    for (size_t i = 0; r->written && i < r->n * r->samples; i++) free_written(&r->written[i]);
    free(r->examples);
    free(r->prompts);
    free(r->written);
    free(r->rewards);
    free(r->components);
    *r = (rein_rollout){0};
}

/* A batch at work. */
typedef struct making {
    rein_rollout *to;
    const rein_rollout_options *a;
    rein_generator *generator;
    int32_t end_ids[REIN_MAX_END_IDS + 1];
    rein_sampling sampling;
    size_t finished;
} making;

/* ---------------------------------------------------------------------------------------------------------------------- asking */

static rein_status allocate(making *m, rein_error *err) {
    rein_rollout *r = m->to;
    r->n = m->a->n, r->samples = m->a->samples, r->judges = m->a->reward ? rein_reward_count(m->a->reward) : 0;
    const size_t all = r->n * r->samples;
    r->examples = calloc(r->n, sizeof *r->examples);
    r->prompts = calloc(r->n, sizeof *r->prompts);
    r->written = calloc(all, sizeof *r->written);
    r->rewards = calloc(all, sizeof *r->rewards);
    r->components = calloc(all * (r->judges ? r->judges : 1), sizeof *r->components);
    if (r->examples && r->prompts && r->written && r->rewards && r->components) return REIN_OK;
    return rein_fail(err, REIN_ENOMEM, "no memory for %zu responses", all);
}

/* What ends a response: what the caller says, and the end of a turn where the prompts are chats. */
static rein_status find_ends(making *m, rein_error *err) {
    const rein_rollout_options *a = m->a;
    int32_t turn = -1;
    m->sampling = a->sampling;
    m->sampling.end_ids = m->end_ids;
    if (m->sampling.n_end_ids > REIN_MAX_END_IDS)
        return rein_fail(err, REIN_EINVAL, "there are %zu end tokens: %d at most", m->sampling.n_end_ids, REIN_MAX_END_IDS);
    for (size_t i = 0; i < a->sampling.n_end_ids; i++) m->end_ids[i] = a->sampling.end_ids[i];
    const rein_status status = a->prompting.chat ? rein_turn_end(&turn, a->tokenizer, a->prompting.chat, err) : REIN_OK;
    for (size_t i = 0; i < m->sampling.n_end_ids && turn >= 0; i++)
        if (m->end_ids[i] == turn) turn = -1;
    if (turn >= 0) m->end_ids[m->sampling.n_end_ids++] = turn;
    return status;
}

/* Errors of an example say which one it is. */
static rein_status in_example(const making *m, size_t i, const rein_error *why, rein_error *err) {
    return rein_fail(err, why->code, "task %.60s, example %llu%s: %s", rein_task_name(m->a->task),
                     (unsigned long long)m->a->indices[i], m->a->split == REIN_SPLIT_HELD_OUT ? " (held out)" : "", why->message);
}

static rein_status ask(making *m, size_t i, rein_error *err) {
    const rein_rollout_options *a = m->a;
    rein_error why = {0};
    size_t number;
    rein_status status = rein_task_example(&m->to->examples[i], a->task, a->split, a->indices[i], err);
    if (status) return status; /* it names the example itself */
    if (rein_example_encode(&m->to->prompts[i], a->tokenizer, &m->to->examples[i], &a->prompting, &why))
        return in_example(m, i, &why, err);
    const rein_request request = {.prompt = m->to->prompts[i].data,
                                  .n_prompt = m->to->prompts[i].count,
                                  .samples = a->samples,
                                  .step = a->step,
                                  .prompt_index = a->first_prompt + i,
                                  .sampling = m->sampling};
    if (rein_generator_add(&number, m->generator, &request, &why)) return in_example(m, i, &why, err);
    return REIN_OK;
}

/* ------------------------------------------------------------------------------------------------------------------- answering */

static rein_status grow(rein_completion *w, rein_error *err) {
    const size_t capacity = w->capacity ? 2 * w->capacity : 32;
    int32_t *ids = realloc(w->ids, capacity * sizeof *ids);
    if (ids) w->ids = ids;
    float *log_probs = realloc(w->log_probs, capacity * sizeof *log_probs);
    if (log_probs) w->log_probs = log_probs;
    float *sampler = realloc(w->sampler_log_probs, capacity * sizeof *sampler);
    if (sampler) w->sampler_log_probs = sampler;
    size_t *ends = realloc(w->ends, capacity * sizeof *ends);
    if (ends) w->ends = ends;
    if (!ids || !log_probs || !sampler || !ends)
        return rein_fail(err, REIN_ENOMEM, "no memory for a response of %zu tokens", capacity);
    w->capacity = capacity;
    return REIN_OK;
}

static rein_status take(making *m, const rein_sampled *s, rein_error *err) {
    rein_completion *w = &m->to->written[s->request * m->to->samples + s->sample];
    rein_status status = w->n == w->capacity ? grow(w, err) : REIN_OK;
    if (!status) status = rein_text_append(&w->text, s->text ? s->text : "", s->text ? s->length : 0, err);
    if (status) return status;
    w->ids[w->n] = s->id;
    w->log_probs[w->n] = s->log_prob;
    w->sampler_log_probs[w->n] = s->sampler_log_prob;
    w->ends[w->n++] = w->text.length;
    w->finish = s->finish;
    w->activation_key = s->activation_key;
    m->finished += s->finish != REIN_FINISH_NONE;
    return REIN_OK;
}

static rein_status answer(making *m, rein_error *err) {
    const rein_rollout_options *a = m->a;
    const rein_generator_options options = {.exec = a->exec, .activation_cache = a->activation_cache};
    const rein_sampled *sampled;
    size_t n = 1;
    rein_status status = rein_generator_open(&m->generator, &a->policy, a->tokenizer, &options, err);
    for (size_t i = 0; i < a->n && !status; i++) status = ask(m, i, err);
    while (!status && n) {
        const size_t before = m->finished;
        status = rein_generator_step(&sampled, &n, m->generator, err);
        for (size_t i = 0; i < n && !status; i++) status = take(m, &sampled[i], err);
        if (a->progress && m->finished > before && !status) a->progress(a->context, m->finished, a->n * a->samples);
    }
    rein_generator_close(m->generator);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------- rewarding */

static rein_status reward(making *m, rein_error *err) {
    const rein_rollout *r = m->to;
    const size_t all = r->n * r->samples;
    if (!m->a->reward) return REIN_OK;
    rein_response *responses = calloc(all, sizeof *responses);
    if (!responses) return rein_fail(err, REIN_ENOMEM, "no memory for %zu responses", all);
    for (size_t i = 0; i < all; i++) {
        const rein_completion *w = &r->written[i];
        responses[i] = (rein_response){&r->examples[i / r->samples],
                                       i / r->samples,
                                       w->text.data,
                                       w->text.length,
                                       w->n,
                                       w->finish == REIN_FINISH_MAX_TOKENS || w->finish == REIN_FINISH_CONTEXT,
                                       m->a->step};
    }
    const rein_status status = rein_reward_give(r->rewards, r->components, m->a->reward, responses, all, err);
    free(responses);
    return status;
}

rein_status rein_rollout_make(rein_rollout *rollout, const rein_rollout_options *asking, rein_error *err) {
    making m = {.to = rollout, .a = asking};
    *rollout = (rein_rollout){0};
    if (!asking->n || !asking->samples) return rein_fail(err, REIN_EINVAL, "nothing is asked: a rollout has one prompt or more");
    rein_status status = allocate(&m, err);
    if (!status) status = find_ends(&m, err);
    if (!status) status = answer(&m, err);
    if (!status) status = reward(&m, err);
    if (status) rein_rollout_free(rollout);
    return status;
}
