/* scores.c - scores of tokens and their gradients: rows through the layers, as for log-probabilities, then the score head. */
#include <math.h>
#include <string.h>

#include "activations.h"
#include "base/base.h"
#include "nn/score.h"

static rein_status check_finite(const rein_activations *a, rein_error *err) {
    for (size_t i = 0; i < a->n_wanted; i++)
        if (!isfinite(a->scores[i]))
            return rein_fail(
                err, REIN_ERANGE,
                "the score of token %zu is not a finite number: weights of the model, the adapter or the score head are "
                "too large or not finite",
                a->wanted[i]);
    return REIN_OK;
}

static rein_status check_policy(const rein_policy *policy, rein_error *err) {
    const rein_status status = rein_policy_check(policy, err);
    if (status || rein_policy_score(policy)) return status;
    return rein_fail_at(err, REIN_EINVAL, "policy", -1,
                        "has no score head: neither its model nor its adapter was opened or made with `score`");
}

rein_status rein_scores(float *scores, rein_activations *a, const rein_policy *policy, const rein_tokens *tokens,
                        const rein_score_options *options, rein_error *err) {
    const rein_score_options o = options ? *options : (rein_score_options){0};
    rein_activations_begin(a, &(rein_forward_options){.keep = o.keep, .recompute = o.recompute});
    rein_status status = check_policy(policy, err);
    if (status) return status;
    a->score = rein_policy_score(policy);
    a->at_token = !o.before;
    if ((status = rein_activations_prepare(a, policy, tokens, 0, NULL, err))) return status;
    rein_layers_forward(a);
    rein_score_forward(a->scores, a->hidden, a->score, a->n_wanted, (size_t)policy->model->config.hidden_size, &a->batch.run);
    if ((status = check_finite(a, err))) return status;
    memset(scores, 0, a->n_tokens * sizeof *scores);
    for (size_t i = 0; i < a->n_wanted; i++) scores[a->wanted[i]] = a->scores[i];
    a->has_forward = o.keep;
    return REIN_OK;
}

/* The place of the gradient of the score head; NULL: it does not train. */
static float *score_gradient(const rein_activations *a, float *gradient) {
    const rein_adapter *adapter = a->policy.adapter;
    if (!adapter) return rein_gradient_of(a, gradient, a->score);
    return adapter->score ? gradient + (adapter->score - adapter->values) : NULL;
}

rein_status rein_scores_backward(float *gradient, rein_activations *a, const float *dscores, rein_error *err) {
    rein_pass_gradients g;
    if (!a->has_forward || !a->score)
        return rein_fail(err, REIN_EINVAL,
                         "the activations hold no pass of scores: call rein_scores with keep before each rein_scores_backward");
    rein_status status = rein_backward_prepare(&g, a, 0, err);
    if (!status) status = rein_backward_gather(g.dlog_probs, dscores, "dscores", a, err);
    if (status) return status;
    a->has_forward = 0;
    if (!a->n_wanted) return REIN_OK;
    rein_score_backward(g.dhidden, score_gradient(a, gradient), g.dlog_probs, a->hidden, a->score, a->n_wanted,
                        (size_t)a->policy.model->config.hidden_size, &a->batch.run);
    rein_layers_backward(&g, gradient, a);
    return REIN_OK;
}
