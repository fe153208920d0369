/* loop_groups.c - what was sampled, as trajectory groups, with what a reader wants to see: the texts, token by token, and who said what. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "groups.h"
#include "loop.h"

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "no memory for a trajectory"); }

/* A model may write a NUL byte, which the file could hold and its readers refuse. */
static json_t *piece(const char *text, size_t length) {
    return memchr(text, 0, length) ? json_string("\uFFFD") : json_stringn(text, length);
}

/* ["1", "+", …]: joined they are the response. A token without a text of its own, the end for one, is "". */
static json_t *pieces_of(const rein_completion *w) {
    json_t *pieces = json_array();
    size_t at = 0;
    for (size_t i = 0; i < w->n && pieces; i++) {
        if (json_array_append_new(pieces, piece(w->text.data + at, w->ends[i] - at))) {
            json_decref(pieces);
            return NULL;
        }
        at = w->ends[i];
    }
    return pieces;
}

static json_t *prompt_of(const rein_example *e) {
    if (e->prompt) return json_string(e->prompt);
    return json_deep_copy(json_object_get(e->original, "messages"));
}

static json_t *metrics_of(const rein_rollout *r, size_t response, const rein_reward *reward) {
    json_t *metrics = json_object();
    const double *said = r->components + response * r->judges;
    int failed = !metrics;
    for (size_t j = 0; j < r->judges && !failed; j++)
        failed = json_object_set_new(metrics, rein_reward_name(reward, j), json_real(said[j])) != 0;
    if (!failed && r->judges) failed = json_object_set_new(metrics, "accuracy", json_real(said[0] >= 1)) != 0;
    if (!failed) return metrics;
    json_decref(metrics);
    return NULL;
}

static json_t *original_of(const rein_rollout *r, size_t response, const rein_reward *reward) {
    const rein_example *e = &r->examples[response / r->samples];
    json_t *prompt = prompt_of(e), *pieces = pieces_of(&r->written[response]), *metrics = metrics_of(r, response, reward);
    json_t *answer = e->answer ? json_string(e->answer) : json_null();
    if (prompt && pieces && metrics && answer)
        return json_pack("{s:o, s:{s:o, s:o, s:o}}", "metrics", metrics, "metadata", e->prompt ? "prompt" : "messages", prompt,
                         "answer", answer, "pieces", pieces);
    json_decref(prompt);
    json_decref(pieces);
    json_decref(metrics);
    json_decref(answer);
    return NULL;
}

static rein_status fill_history(rein_history *h, const rein_ids *prompt, const rein_completion *w, int truncating,
                                rein_error *err) {
    h->n = prompt->count + w->n;
    h->activation_key = w->activation_key;
    h->ids = malloc(h->n * sizeof *h->ids);
    h->mask = calloc(h->n, sizeof *h->mask);
    h->log_probs = malloc(h->n * sizeof *h->log_probs);
    if (!h->ids || !h->mask || !h->log_probs) return no_memory(err);
    memcpy(h->ids, prompt->data, prompt->count * sizeof *h->ids);
    memcpy(h->ids + prompt->count, w->ids, w->n * sizeof *h->ids);
    memset(h->mask + prompt->count, 1, w->n);
    for (size_t i = 0; i < prompt->count; i++) h->log_probs[i] = NAN;
    memcpy(h->log_probs + prompt->count, truncating ? w->sampler_log_probs : w->log_probs, w->n * sizeof *h->log_probs);
    return REIN_OK;
}

static rein_status fill_trajectory(rein_trajectory *t, const rein_rollout *r, size_t response, int64_t step, int truncating,
                                   const rein_reward *reward, rein_error *err) {
    const rein_completion *w = &r->written[response];
    const size_t prompt = response / r->samples;
    t->reward = r->rewards[response];
    t->policy_step = step;
    t->truncated = w->finish == REIN_FINISH_MAX_TOKENS || w->finish == REIN_FINISH_CONTEXT;
    t->budget = r->examples[prompt].budget;
    t->histories = calloc(1, sizeof *t->histories);
    if (!t->histories) return no_memory(err);
    t->n_histories = 1;
    if (!(t->original = original_of(r, response, reward))) return no_memory(err);
    return fill_history(t->histories, &r->prompts[prompt], w, truncating, err);
}

rein_status rein_loop_groups(rein_groups *groups, const rein_rollout *r, const unsigned char *only, int64_t step, int truncating,
                             const rein_reward *reward, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t i = 0; i < r->n && !status; i++) {
        if (only && !only[i]) continue;
        rein_group group = {.trajectories = calloc(r->samples, sizeof *group.trajectories), .n = r->samples};
        if (!group.trajectories) return no_memory(err);
        for (size_t k = 0; k < r->samples && !status; k++)
            status = fill_trajectory(&group.trajectories[k], r, i * r->samples + k, step, truncating, reward, err);
        if (!status) status = rein_groups_append(groups, &group, err);
        rein_group_free(&group); /* what was not taken over */
    }
    return status;
}

rein_status rein_loop_put_advantages(rein_groups *groups, const float *advantages, rein_error *err) {
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++) {
            rein_trajectory *trajectory = &groups->groups[g].trajectories[t];
            const rein_history *h = &trajectory->histories[0];
            json_t *list = json_array();
            for (size_t i = 0; i < h->n && list; i++)
                if (h->mask[i] && json_array_append_new(list, json_real((double)advantages[i]))) json_decref(list), list = NULL;
            if (!list || json_object_set_new(trajectory->original, "advantages", list)) return no_memory(err);
            advantages += h->n;
        }
    return REIN_OK;
}
