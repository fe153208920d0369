/* toy.c - a softmax policy over four arms, trained by GRPO: librein computes d loss / d log-prob; the chain rule gives the gradient of the logits.
 *
 *     cc -o toy toy.c $(pkg-config --cflags --libs rein) -lm && ./toy
 */
#include <math.h>
#include <rein/rein.h>
#include <stdio.h>
#include <stdlib.h>

enum { ARMS = 4, PROMPTS = 16, SAMPLES = 8, N = PROMPTS * SAMPLES, STEPS = 60 };

static const double chance_of_reward[ARMS] = {0.1, 0.3, 0.5, 0.9}, learning_rate = 1;

static double uniform(void) { return rand() / (RAND_MAX + 1.0); }

static void softmax(double *p, const double *logits) {
    double sum = 0;
    for (int a = 0; a < ARMS; a++) sum += p[a] = exp(logits[a]);
    for (int a = 0; a < ARMS; a++) p[a] /= sum;
}

int main(void) {
    double logits[ARMS] = {0}, p[ARMS], log_probs[N], old[N], rewards[N], grad[N];
    size_t sequences[N + 1], groups[PROMPTS + 1];
    int arm[N];
    for (size_t i = 0; i <= N; i++) sequences[i] = i; /* a response is one token long */
    for (size_t g = 0; g <= PROMPTS; g++) groups[g] = g * SAMPLES;

    rein_options *options;
    rein_error err;
    if (rein_options_new(&options, "grpo", &err) || rein_options_set_number(options, "kl_loss_coef", 0, &err))
        return puts(err.message), 1;
    const rein_batch batch = {.n_groups = PROMPTS,
                              .n_sequences = N,
                              .group_offsets = groups,
                              .sequence_offsets = sequences,
                              .log_probs = log_probs,
                              .old_log_probs = old,
                              .rewards = rewards};

    for (int step = 0; step <= STEPS; step++) {
        rein_loss loss;
        softmax(p, logits);
        for (int i = 0; i < N; i++) { /* sample an arm and its reward */
            double u = uniform();
            for (arm[i] = 0; arm[i] < ARMS - 1 && u >= p[arm[i]]; arm[i]++) u -= p[arm[i]];
            log_probs[i] = old[i] = log(p[arm[i]]);
            rewards[i] = uniform() < chance_of_reward[arm[i]];
        }
        if (rein_policy_loss(&loss, grad, NULL, NULL, &batch, options, NULL, &err)) return puts(err.message), 1;
        if (step % 10 == 0)
            printf("step %2d  reward %.3f  %.*s\n", step, loss.metrics.reward, (int)(40 * loss.metrics.reward),
                   "****************************************");
        for (int i = 0; i < N; i++) /* d lp_i / d logit_a = [a = arm_i] − p_a */
            for (int a = 0; a < ARMS; a++) logits[a] -= learning_rate * grad[i] * ((a == arm[i]) - p[a]);
    }
    rein_options_free(options);
    return 0;
}
