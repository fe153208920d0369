/* demo_policy.c - sampling and training of the demo's policy: a softmax over three styles, trained by the library's own policy loss. An
 * answer is one decision (one token that trains) with the length and the accuracy of its style. */
#include "demo_policy.h"

#include <math.h>
#include <stdio.h>

const style rein_styles[STYLES] = {{"terse", 50, 0.30}, {"concise", 150, 0.86}, {"rambling", 400, 0.92}};

const double rein_demo_budget = 200, rein_demo_target = 180, rein_demo_tau = 0.5, rein_demo_control_step = 2e-6, rein_demo_lr = 0.8;

enum { EPOCHS = 4 }; /* updates on each step's responses: the later ones are off-policy, which is what tau is for */

/* A number in [0, 1) by its address: the same whatever else is drawn. The mixer is splitmix64's. */
static double uniform(uint64_t seed, uint64_t step, uint64_t sample, uint64_t draw) {
    const uint64_t address[4] = {seed, step, sample, draw};
    uint64_t x = 0;
    for (int i = 0; i < 4; i++) {
        x += address[i] + 0x9E3779B97F4A7C15u;
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
        x ^= x >> 31;
    }
    return (double)(x >> 11) * 0x1p-53;
}

void rein_demo_start(policy *p) { *p = (policy){{log(0.15), log(0.25), log(0.60)}}; }

void rein_demo_probabilities(double probabilities[STYLES], const policy *p) {
    double sum = 0;
    for (int k = 0; k < STYLES; k++) sum += probabilities[k] = exp(p->logits[k] - p->logits[0]);
    for (int k = 0; k < STYLES; k++) probabilities[k] /= sum;
}

void rein_demo_sample(rollout *r, const policy *p, uint64_t seed, uint64_t step) {
    double probabilities[STYLES];
    rein_demo_probabilities(probabilities, p);
    for (size_t i = 0; i < SAMPLES; i++) {
        double u = uniform(seed, step, i, 0);
        int k = u < probabilities[0] ? 0 : u < probabilities[0] + probabilities[1] ? 1 : 2;
        r->style[i] = k;
        r->length[i] = (int64_t)(rein_styles[k].length * (0.7 + 0.6 * uniform(seed, step, i, 1)));
        r->reward[i] = uniform(seed, step, i, 2) < rein_styles[k].accuracy;
        r->log_prob[i] = log(probabilities[k]);
    }
    for (size_t g = 0; g <= PROMPTS; g++) r->prompts[g] = g * RESPONSES;
}

static rein_status k2_options(rein_options *options, double multiplier, rein_error *err) {
    const struct {
        const char *name;
        double value;
    } given[] = {{"token_budget", rein_demo_budget}, {"budget_penalty_coef", multiplier}, {"tau", rein_demo_tau}};
    rein_status status = rein_preset(options, "k2", err);
    for (size_t i = 0; i < 3 && !status; i++) {
        char text[32];
        snprintf(text, sizeof text, "%.17g", given[i].value);
        status = rein_options_set(options, given[i].name, text, err);
    }
    return status;
}

/* d lp / d logits of a softmax: one-hot minus probabilities. */
static void descend(policy *p, const rollout *r, const double *grad, const double probabilities[STYLES]) {
    double gradient[STYLES] = {0};
    for (size_t i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < STYLES; k++) gradient[k] += grad[i] * ((k == r->style[i]) - probabilities[k]);
    }
    for (int k = 0; k < STYLES; k++) p->logits[k] -= rein_demo_lr * gradient[k];
}

rein_status rein_demo_step(policy *p, double *multiplier, progress *seen, uint64_t seed, uint64_t step, rein_error *err) {
    rollout r;
    rein_loss loss = {0};
    rein_options options;
    size_t tokens[SAMPLES + 1];
    double log_probs[SAMPLES], grad[SAMPLES], probabilities[STYLES];
    rein_demo_sample(&r, p, seed, step);
    rein_demo_probabilities(seen->probabilities, p);
    for (size_t i = 0; i <= SAMPLES; i++) tokens[i] = i;
    rein_batch batch = {.n_groups = PROMPTS,
                        .n_sequences = SAMPLES,
                        .group_offsets = r.prompts,
                        .sequence_offsets = tokens,
                        .dtype = REIN_F64,
                        .log_probs = log_probs,
                        .old_log_probs = r.log_prob,
                        .rewards = r.reward,
                        .response_lengths = r.length};
    rein_status status = k2_options(&options, *multiplier, err);
    for (int epoch = 0; epoch < EPOCHS && !status; epoch++) {
        rein_demo_probabilities(probabilities, p);
        for (size_t i = 0; i < SAMPLES; i++) log_probs[i] = log(probabilities[r.style[i]]);
        status = rein_policy_loss(&loss, grad, NULL, NULL, &batch, &options, &(rein_exec){.threads = 1}, err);
        if (!status) descend(p, &r, grad, probabilities);
        if (epoch == 0) seen->loss = loss.loss;
    }
    seen->multiplier = *multiplier;
    seen->length = loss.metrics.length_mean;
    seen->over = loss.metrics.share_over_budget;
    seen->right = 0;
    for (size_t i = 0; i < SAMPLES; i++) seen->right += r.reward[i] / SAMPLES;
    return status ? status : rein_budget_control(multiplier, r.length, SAMPLES, rein_demo_target, rein_demo_control_step, err);
}
