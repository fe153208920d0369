/* forward.c - log-probabilities and logits: rows through the layers, or from the activation cache, then the head. */
#include <math.h>
#include <string.h>

#include "activation_cache.h"
#include "activations.h"
#include "base/base.h"
#include "nn/norm.h"
#include "nn/truncate.h"

static void gather_rows(float *to, const float *from, const size_t *rows, size_t n, size_t width) {
    for (size_t i = 0; i < n; i++) memcpy(to + i * width, from + rows[i] * width, width * sizeof *to);
}

static void compute_layers(rein_activations *a, size_t layers, size_t step) {
    const rein_batch_rows *b = &a->batch;
    const rein_kept *last = &a->kept[layers - 1];
    rein_embed(a->kept[0].x, b->model, a->ids, b->rows, &b->run);
    for (size_t l = 0; l + 1 < layers; l++) rein_layer_forward(a->kept[l].x + step, &a->kept[l], l, b);
    if (a->options.keep) rein_layer_forward(last->x + step, last, layers - 1, b);
    else rein_last_layer_forward(last->x, last, &a->selected, b);
}

static void read_cached_layers(rein_activations *a, size_t layers, size_t step) {
    const rein_activation_cache *cache = a->options.activation_cache;
    for (size_t l = 0; l < layers; l++)
        rein_activation_cache_get(&a->kept[l], a->options.recompute, cache, a->cached, l, &a->batch);
    rein_activation_cache_get_last(a->kept[layers - 1].x + step, cache, a->cached, &a->batch);
}

void rein_layers_forward(rein_activations *a) {
    const rein_batch_rows *b = &a->batch;
    const size_t layers = (size_t)b->model->config.n_layers, hidden = (size_t)b->model->config.hidden_size;
    const size_t step = a->options.keep ? b->rows * hidden : 0;
    const rein_kept *last = &a->kept[layers - 1];
    if (!a->n_wanted) return;
    if (a->cached) read_cached_layers(a, layers, step);
    else compute_layers(a, layers, step);
    gather_rows(a->last, last->x + step, a->row, a->n_wanted, hidden);
    rein_norm_forward(a->hidden, a->last_scale, a->last, &b->model->norm, a->n_wanted, hidden, &b->run);
}

static rein_status check_finite(const rein_activations *a, rein_error *err) {
    for (size_t i = 0; i < a->n_wanted; i++)
        if (a->options.truncation && isinf(a->out.log_probs[i]))
            return rein_fail(err, REIN_EINVAL,
                             "token %zu is not among those that top_k, top_p and min_p keep: a truncated policy trains on what it "
                             "sampled itself",
                             a->wanted[i]);
        else if (!isfinite(a->out.log_probs[i]) || (a->out.entropies && !isfinite(a->out.entropies[i])))
            return rein_fail(
                err, REIN_ERANGE,
                "the log-probability of token %zu is not a finite number: weights of the model or adapter are too large or "
                "not finite",
                a->wanted[i]);
        else if (a->out.kl && (!isfinite(a->out.kl[i]) || !isfinite(a->out.reference_log_probs[i])))
            return rein_fail(
                err, REIN_ERANGE,
                "the KL to the reference at token %zu is not a finite number: weights of the reference are too large or "
                "not finite",
                a->wanted[i]);
    return REIN_OK;
}

/* Copies a result of the head to the places of its tokens; `to` may be NULL. */
static void write_result(float *to, const float *from, const rein_activations *a) {
    if (to) memset(to, 0, a->n_tokens * sizeof *to);
    for (size_t i = 0; to && i < a->n_wanted; i++) to[a->wanted[i]] = from[i];
}

/* The rows of the reference, up to its head. */
static rein_status reference_forward(const rein_beside *beside, const rein_policy *policy, const rein_tokens *tokens,
                                     rein_error *err) {
    rein_activations *a = beside->activations;
    if (beside->policy->model->config.vocab_size != policy->model->config.vocab_size)
        return rein_fail(err, REIN_EINVAL, "the reference has a vocabulary of %d tokens, the policy one of %d: they must agree",
                         (int)beside->policy->model->config.vocab_size, (int)policy->model->config.vocab_size);
    rein_activations_begin(a, NULL);
    rein_status status = rein_policy_check(beside->policy, err);
    if (!status) status = rein_policy_check_head(beside->policy, err);
    if (!status) status = rein_activations_prepare(a, beside->policy, tokens, 0, NULL, err);
    if (!status) rein_layers_forward(a);
    return status;
}

rein_status rein_forward_beside(float *log_probs, float *entropies, const rein_beside *beside, rein_activations *a,
                                const rein_policy *policy, const rein_tokens *tokens, const rein_forward_options *options,
                                rein_error *err) {
    rein_activations_begin(a, options);
    rein_status status = rein_policy_check(policy, err);
    if (!status) status = rein_policy_check_head(policy, err);
    if (!status && beside) status = reference_forward(beside, policy, tokens, err);
    if (!status) status = rein_activations_prepare(a, policy, tokens, entropies != NULL, beside, err);
    if (status) return status;
    rein_layers_forward(a);
    if (a->options.truncation)
        rein_head_truncated(&a->out, a->hidden, a->targets, a->n_wanted, &a->head, a->options.truncation, a->head_scratch,
                            &a->batch.run);
    else rein_head_forward(&a->out, a->inner, a->hidden, a->targets, a->n_wanted, &a->head, a->head_scratch, &a->batch.run);
    if ((status = check_finite(a, err))) return status;
    write_result(log_probs, a->out.log_probs, a);
    write_result(entropies, a->out.entropies, a);
    if (beside) write_result(beside->kl, a->out.kl, a), write_result(beside->log_probs, a->out.reference_log_probs, a);
    a->has_forward = a->options.keep;
    return REIN_OK;
}

rein_status rein_forward(float *log_probs, float *entropies, rein_activations *a, const rein_policy *policy,
                         const rein_tokens *tokens, const rein_forward_options *options, rein_error *err) {
    return rein_forward_beside(log_probs, entropies, NULL, a, policy, tokens, options, err);
}

rein_status rein_logits(float *logits, rein_activations *a, const rein_policy *policy, const rein_tokens *tokens, rein_error *err) {
    rein_activations_begin(a, NULL);
    rein_status status = rein_policy_check(policy, err);
    if (!status) status = rein_policy_check_head(policy, err);
    if (!status) status = rein_activations_prepare(a, policy, tokens, 0, NULL, err);
    if (status) return status;
    const size_t chunks = rein_head_chunks(a->head.linear);
    rein_softmax_stats *masses = rein_arena_take(&a->arena, a->n_wanted * chunks * sizeof *masses);
    float *inverse = rein_arena_floats(&a->arena, a->n_wanted);
    if (a->arena.failed) return rein_fail(err, REIN_ENOMEM, "no memory for the logits of %zu tokens", a->n_wanted);
    rein_layers_forward(a);
    for (size_t i = 0; i < a->n_wanted; i++) inverse[i] = a->head.inverse_temperature;
    const rein_lora_rows all = {a->head.lora, 0, a->n_wanted};
    rein_head_logits(logits, masses, a->inner, a->hidden, inverse, a->n_wanted, a->head.linear, a->head.cap, 0, &all, 1,
                     &a->batch.run);
    return REIN_OK;
}
