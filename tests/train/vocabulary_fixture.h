/* vocabulary_fixture.h - what compares a policy with another model over the whole vocabulary: log softmax of every token in f64, and the
 * check of a pass's gradient against central differences of its loss, whatever trains. */
#ifndef REIN_TESTS_VOCABULARY_FIXTURE_H
#define REIN_TESTS_VOCABULARY_FIXTURE_H

#include "rein/rollout.h"
#include "train/trainer.h"
#include "train/trainer_fixture.h"

static inline rein_pass_result pass_over(rein_trainer *t, const rein_groups *groups, const rein_pass_options *options) {
    rein_pass_result pass;
    OK(rein_trainer_forward_backward(&pass, t, groups, options, &error_));
    return pass;
}

static inline rein_groups groups_without_rewards(uint64_t seed) {
    rein_groups groups = make_groups(4, seed);
    for (size_t g = 0; g < groups.n; g++)
        for (size_t t = 0; t < groups.groups[g].n; t++) groups.groups[g].trajectories[t].reward = 0;
    return groups;
}

/* LoRA on the head too. */
static inline subject open_with_head(const char *model) {
    static const char *const modules[] = {"q_proj", "down_proj", "lm_head"};
    const rein_lora_options lora = {.rank = 2, .alpha = 3, .seed = 4, .modules = modules, .n_modules = COUNT(modules)};
    subject s = {0};
    OK(rein_model_open(&s.model, in_folder(model), NULL, &error_));
    OK(rein_adapter_new(&s.adapter, s.model, &lora, &error_));
    stream = 21, change(&s, 0.2);
    s.p = (rein_policy){s.model, s.adapter, 1};
    return s;
}

/* A frozen head, one that trains, one with a LoRA. */
enum { KINDS = 3 };
static inline subject open_kind(int kind, const char *model) {
    return kind < 2 ? open_subject(model, kind) : open_with_head(model);
}

/* log softmax of the rows of logits [n][TINY_VOCABULARY], in double. */
static inline double *log_softmax(rein_activations *a, const rein_policy *policy, const rein_tokens *tokens, size_t n) {
    float *logits = floats(n * TINY_VOCABULARY);
    double *lp = some(n * TINY_VOCABULARY, sizeof *lp);
    OK(rein_logits(logits, a, policy, tokens, &error_));
    for (size_t r = 0; r < n; r++) {
        double sum = 0;
        for (size_t v = 0; v < TINY_VOCABULARY; v++) sum += exp((double)logits[r * TINY_VOCABULARY + v]);
        for (size_t v = 0; v < TINY_VOCABULARY; v++)
            lp[r * TINY_VOCABULARY + v] = (double)logits[r * TINY_VOCABULARY + v] - log(sum);
    }
    free(logits);
    return lp;
}

/* ---- gradients */

static inline float *gradient_of(rein_trainer *t, const rein_groups *groups, const rein_pass_options *o) {
    float *sum = floats(t->floats);
    pass_over(t, groups, o);
    for (size_t s = 0; s < t->options.shards; s++)
        for (size_t i = 0; i < t->floats; i++) sum[i] += t->buffers[s * t->floats + i];
    rein_trainer_clear(t);
    return sum;
}

/* Everything that trains moves by a multiple of `direction`. */
static inline void move(const subject *s, const float *direction, double by) {
    const size_t n = rein_parameter_count(s->model, s->adapter);
    rein_parameter *parameters = some(n, sizeof *parameters);
    float *gradient = floats(rein_parameter_floats(s->model, s->adapter));
    rein_parameters(parameters, s->model, s->adapter, gradient);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < parameters[i].size; j++)
            parameters[i].value[j] += (float)(by * (double)direction[parameters[i].gradient - gradient + (ptrdiff_t)j]);
    OK(rein_parameters_changed(s->model, s->adapter, &error_));
    free(parameters), free(gradient);
}

static inline double loss_at(rein_trainer *t, const subject *s, const rein_groups *groups, const rein_pass_options *o,
                             const float *direction, double by) {
    move(s, direction, by);
    const double loss = pass_over(t, groups, o).loss.loss;
    rein_trainer_clear(t);
    move(s, direction, -by);
    return loss;
}

/* The other model is the teacher, or else the reference. Along its own direction the gradient g rises by |g|: with the step h, (L(h) − L(−h))/2h to h². Two steps take the h² out. */
static inline void check_gradient(const char *name, const rein_options *objective, int with_teacher, int kind, double temperature) {
    subject s = open_kind(kind, "a"), other = open_subject("b", 0);
    s.p.temperature = other.p.temperature = temperature;
    rein_trainer *t = open_trainer(&s, NULL);
    rein_groups groups = groups_without_rewards(5);
    record(&groups, &s.p, 0);
    rein_pass_options o = {.objective = objective, .policy_step = -1};
    *(with_teacher ? &o.teacher : &o.reference) = &other.p;
    float *g = gradient_of(t, &groups, &o);
    double size = 0;
    for (size_t i = 0; i < t->floats; i++) size += (double)g[i] * (double)g[i];
    size = sqrt(size);
    if (!(size > 0.05)) fail_msg("%s, kind %d: the gradient is only %g", name, kind, size);
    for (size_t i = 0; i < t->floats; i++) g[i] = (float)((double)g[i] / size);
    double slopes[2];
    for (int k = 0; k < 2; k++) {
        const double h = (k ? 0.02 : 0.01) / (1 + size);
        slopes[k] = (loss_at(t, &s, &groups, &o, g, h) - loss_at(t, &s, &groups, &o, g, -h)) / (2 * h);
    }
    const double slope = (4 * slopes[0] - slopes[1]) / 3;
    if (!(fabs(slope - size) < 1e-3 * size)) fail_msg("%s, kind %d: the loss rises by %g, not %g", name, kind, slope, size);
    free(g), rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s), close_subject(&other);
}

#endif
