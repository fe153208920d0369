/* demo_policy.h - the smallest policy that has a token budget to keep: it chooses one of three styles of answer. */
#ifndef REIN_CLI_DEMO_POLICY_H
#define REIN_CLI_DEMO_POLICY_H

#include "rein/rein.h"

enum { STYLES = 3, RESPONSES = 6, PROMPTS = 64, SHOWN_PROMPTS = 4, STEPS = 40 };
enum { SAMPLES = PROMPTS * RESPONSES, SHOWN = SHOWN_PROMPTS * RESPONSES };

typedef struct style {
    const char *name;
    double length, accuracy; /* mean tokens of an answer, and how often it is right */
} style;

extern const style rein_styles[STYLES];

/* What the demo asks of the policy, and how it trains. */
extern const double rein_demo_budget, rein_demo_target, rein_demo_tau, rein_demo_control_step, rein_demo_lr;

typedef struct policy {
    double logits[STYLES];
} policy;

/* One step's responses, prompt after prompt. */
typedef struct rollout {
    int style[SAMPLES];
    int64_t length[SAMPLES];
    double reward[SAMPLES], log_prob[SAMPLES]; /* 1 when right; under the policy that sampled */
    size_t prompts[PROMPTS + 1];               /* offsets */
} rollout;

typedef struct progress {
    double length, right, over, multiplier, loss; /* of the step's responses; the multiplier that it trained with */
    double probabilities[STYLES];
} progress;

void rein_demo_start(policy *p);
void rein_demo_probabilities(double probabilities[STYLES], const policy *p);
void rein_demo_sample(rollout *r, const policy *p, uint64_t seed, uint64_t step);

/* One step: sample, train with preset k2, move the multiplier. */
rein_status rein_demo_step(policy *p, double *multiplier, progress *seen, uint64_t seed, uint64_t step, rein_error *err);

#endif
