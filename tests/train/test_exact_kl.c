/* test_exact_kl.c - the exact KL in a trainer's pass: its values against the logits of both models, its gradient against central differences
 * of the loss, whatever trains; one answer; what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rein/rollout.h"
#include "train/trainer.h"
#include "train/trainer_fixture.h"

#define LOSS "surrogate=reinforce advantage=none kl_loss_coef=0.7 kl_estimator=exact aggregation=seq-mean-token-mean"
#define STEEP "surrogate=reinforce advantage=none kl_loss_coef=7 kl_estimator=exact aggregation=seq-mean-token-mean"

static rein_pass_result pass_over(rein_trainer *t, const rein_groups *groups, const rein_pass_options *options) {
    rein_pass_result pass;
    OK(rein_trainer_forward_backward(&pass, t, groups, options, &error_));
    return pass;
}

static rein_groups groups_without_rewards(uint64_t seed) {
    rein_groups groups = make_groups(4, seed);
    for (size_t g = 0; g < groups.n; g++)
        for (size_t t = 0; t < groups.groups[g].n; t++) groups.groups[g].trajectories[t].reward = 0;
    return groups;
}

/* LoRA on the head too. */
static subject open_with_head(const char *model) {
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
static subject open_kind(int kind, const char *model) { return kind < 2 ? open_subject(model, kind) : open_with_head(model); }

/* ---- values */

/* log softmax of the rows of logits [n][TINY_VOCABULARY], in double. */
static double *log_softmax(rein_activations *a, const rein_policy *policy, const rein_tokens *tokens, size_t n) {
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

/* KL_t of every token that trains, each history alone; 0 elsewhere. */
static double *kl_of(const rein_groups *groups, const rein_policy *policy, const rein_policy *reference) {
    double *kl = some(tokens_of(groups), sizeof *kl), *at = kl;
    rein_activations *a;
    OK(rein_activations_open(&a, NULL, &error_));
    EACH_HISTORY(h, groups) {
        const size_t offsets[2] = {0, h->n};
        const rein_tokens tokens = {.n = 1, .offsets = offsets, .ids = h->ids, .wanted = h->mask};
        size_t n = 0, row = 0;
        for (size_t i = 0; i < h->n; i++) n += h->mask[i];
        if (n) {
            double *p = log_softmax(a, policy, &tokens, n), *q = log_softmax(a, reference, &tokens, n);
            for (size_t i = 0; i < h->n; i++) {
                if (!h->mask[i]) continue;
                for (size_t v = 0; v < TINY_VOCABULARY; v++, row++) at[i] += exp(p[row]) * (p[row] - q[row]);
            }
            free(p), free(q);
        }
        at += h->n;
    }
    rein_activations_close(a);
    return kl;
}

static void test_values(void **state) {
    (void)state;
    static const char *const settings[] = {
        LOSS, LOSS " kl_reward_exact=0.4", "surrogate=clip advantage=group-std kl_reward_exact=0.4 aggregation=token-mean",
        "surrogate=clip advantage=group-mean kl_loss_coef=0.3 kl_estimator=exact entropy_coef=0.1"};
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < COUNT(settings); i++) {
            subject s = open_kind(kind, "a"), other = open_subject("b", 0);
            rein_trainer *t = open_trainer(&s, NULL);
            rein_groups groups = make_groups(4, 5);
            record(&groups, &s.p, 0.1);
            float *advantages = floats(tokens_of(&groups));
            const rein_options *o = options_of(settings[i]), *plain = options_of("surrogate=clip advantage=none");
            const rein_pass_options options = {.objective = o, .reference = &other.p, .policy_step = -1, .advantages = advantages};
            const rein_pass_result pass = pass_over(t, &groups, &options);
            expected e = expect(&groups, &s.p, &other.p, plain, 0);
            rein_batch batch = batch_of(&e, groups.n);
            double *kl = kl_of(&groups, &s.p, &other.p);
            batch.exact_kl = kl;
            OK(rein_policy_loss(&e.loss, e.dlog_probs, e.dentropies, e.advantages, &batch, o, NULL, &error_));
            assert_true(e.loss.metrics.kl_exact > 0.01);
            assert_true(fabs(pass.loss.metrics.kl_exact - e.loss.metrics.kl_exact) < 1e-6);
            assert_true(fabs(pass.loss.metrics.kl_ref_k1 - e.loss.metrics.kl_ref_k1) < 1e-6);
            assert_true(fabs(pass.loss.metrics.kl_ref_k3 - e.loss.metrics.kl_ref_k3) < 1e-6);
            assert_true(fabs(pass.loss.loss - e.loss.loss) < 2e-6);
            for (size_t k = 0; k < e.tokens; k++)
                if (e.mask[k] && !(fabs((double)advantages[k] - e.advantages[k]) < 5e-6))
                    fail_msg("%s: advantage of token %zu: %g, not %g", settings[i], k, (double)advantages[k], e.advantages[k]);
            free(kl), free(advantages), free_expected(&e), rein_groups_free(&groups), rein_trainer_close(t);
            close_subject(&s), close_subject(&other);
        }
}

/* ---- gradients */

static float *gradient_of(rein_trainer *t, const rein_groups *groups, const rein_pass_options *o) {
    float *sum = floats(t->floats);
    pass_over(t, groups, o);
    for (size_t s = 0; s < t->options.shards; s++)
        for (size_t i = 0; i < t->floats; i++) sum[i] += t->buffers[s * t->floats + i];
    rein_trainer_clear(t);
    return sum;
}

/* Everything that trains moves by a multiple of `direction`. */
static void move(const subject *s, const float *direction, double by) {
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

static double loss_at(rein_trainer *t, const subject *s, const rein_groups *groups, const rein_pass_options *o,
                      const float *direction, double by) {
    move(s, direction, by);
    const double loss = pass_over(t, groups, o).loss.loss;
    rein_trainer_clear(t);
    move(s, direction, -by);
    return loss;
}

/* Along its own direction the gradient g rises by |g|: with the step h, (L(h) − L(−h))/2h to h². Two steps take the h² out. */
static void check_gradient(const char *settings, int kind, double temperature) {
    subject s = open_kind(kind, "a"), other = open_subject("b", 0);
    s.p.temperature = other.p.temperature = temperature;
    rein_trainer *t = open_trainer(&s, NULL);
    rein_groups groups = groups_without_rewards(5);
    record(&groups, &s.p, 0);
    const rein_pass_options o = {.objective = options_of(settings), .reference = &other.p, .policy_step = -1};
    float *g = gradient_of(t, &groups, &o);
    double size = 0;
    for (size_t i = 0; i < t->floats; i++) size += (double)g[i] * (double)g[i];
    size = sqrt(size);
    if (!(size > 0.05)) fail_msg("%s, kind %d: the gradient is only %g", settings, kind, size);
    for (size_t i = 0; i < t->floats; i++) g[i] = (float)((double)g[i] / size);
    double slopes[2];
    for (int k = 0; k < 2; k++) {
        const double h = (k ? 0.02 : 0.01) / (1 + size);
        slopes[k] = (loss_at(t, &s, &groups, &o, g, h) - loss_at(t, &s, &groups, &o, g, -h)) / (2 * h);
    }
    const double slope = (4 * slopes[0] - slopes[1]) / 3;
    if (!(fabs(slope - size) < 1e-3 * size)) fail_msg("%s, kind %d: the loss rises by %g, not %g", settings, kind, slope, size);
    free(g), rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s), close_subject(&other);
}

static void test_gradient(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        check_gradient(STEEP, kind, 1);
        check_gradient(STEEP, kind, 1.7);
        check_gradient(STEEP " entropy_coef=0.3", kind, 1);
    }
}

/* The policy beside itself: a KL of exactly 0, and no gradient of it. */
static void test_itself(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        subject s = open_kind(kind, "a");
        rein_trainer *t = open_trainer(&s, NULL);
        rein_groups groups = make_groups(3, 5);
        record(&groups, &s.p, 0.1);
        rein_pass_options o = {
            .objective = options_of("preset=grpo kl_loss_coef=0.5 kl_estimator=exact"), .reference = &s.p, .policy_step = -1};
        const rein_pass_options none = {.objective = options_of("preset=grpo kl_loss_coef=0"), .policy_step = -1};
        float *with = gradient_of(t, &groups, &o), *without = gradient_of(t, &groups, &none);
        const rein_pass_result pass = pass_over(t, &groups, &o);
        assert_true(pass.loss.metrics.kl_exact == 0 && pass.loss.metrics.kl_loss == 0 && pass.loss.metrics.kl_ref_k1 == 0);
        assert_memory_equal(with, without, t->floats * sizeof(float));
        free(with), free(without), rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s);
    }
}

/* ---- one answer */
static void test_one_answer(void **state) {
    (void)state;
    static const rein_trainer_options others[] = {{.exec = {.threads = 1}},
                                                  {.exec = {.threads = 2}},
                                                  {.exec = {.threads = 5}},
                                                  {.recompute = 1},
                                                  {.exec = {.isa = REIN_ISA_REF}}};
    for (int kind = 0; kind < KINDS; kind++) {
        subject s = open_kind(kind, "a"), other = open_subject("b", 0);
        rein_groups groups = make_groups(4, 5);
        float *first = NULL;
        double loss = 0;
        record(&groups, &s.p, 0.1);
        for (size_t i = 0; i < COUNT(others); i++) {
            rein_trainer *t = open_trainer(&s, &others[i]);
            const rein_pass_options o = {.objective =
                                             options_of("preset=grpo kl_estimator=exact kl_loss_coef=0.3 kl_reward_exact=0.3"),
                                         .reference = &other.p,
                                         .policy_step = -1};
            const double now = pass_over(t, &groups, &o).loss.loss;
            rein_trainer_clear(t);
            float *g = gradient_of(t, &groups, &o);
            if (i == 0) first = g, loss = now;
            else {
                assert_memory_equal(g, first, t->floats * sizeof(float));
                assert_true(now == loss);
                free(g);
            }
            rein_trainer_close(t);
        }
        free(first), rein_groups_free(&groups), close_subject(&s), close_subject(&other);
    }
}

/* ---- what is refused */
static void test_refused(void **state) {
    (void)state;
    subject s = open_subject("a", 0), wide = {0};
    OK(rein_model_open(&wide.model, "models/sums", NULL, &error_));
    wide.p = (rein_policy){wide.model, NULL, 1};
    rein_trainer *t = open_trainer(&s, NULL);
    rein_groups groups = make_groups(2, 5);
    rein_pass_result pass;
    record(&groups, &s.p, 0.1);
    float *log_probs = floats(tokens_of(&groups));
    rein_pass_options o = {.objective = options_of(LOSS), .policy_step = -1};
    REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), "reference is missing");
    o.reference_log_probs = log_probs;
    REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), "needs the policy itself");
    o.reference_log_probs = NULL, o.reference = &wide.p;
    REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), "tokens, the policy one of 10");
    free(log_probs), rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s), close_subject(&wide);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),     cmocka_unit_test(test_gradient), cmocka_unit_test(test_itself),
        cmocka_unit_test(test_one_answer), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_folder_of_models, remove_folder);
}
