/* test_critic_step.c - what a critic makes of a step: values of the tokens before each token, GAE as a sum over all later tokens, returns before
 * whitening, whitening over the whole step; the gradient of its clipped loss against one computed history by history; the controller of a KL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/critic.h"
#include "train/session_fixture.h"
#include "train/trainer.h"

enum { GROUPS = 4, MOST = 400 };

/* A critic whose values are not 0. */
static rein_critic *open_critic(subject *s, const char *settings) {
    rein_critic *c;
    const rein_settings *set = settings_of(settings);
    const rein_trainer_options o = {.temperature = 1, .shards = 1};
    OK(rein_critic_open(&c, set, s->model, &o, &error_));
    subject own = {c->model ? c->model : s->model, c->adapter, {c->model ? c->model : s->model, c->adapter, 1}};
    stream = 31, change(&own, 0.3);
    return c;
}

static rein_policy policy_of(const rein_critic *c, const subject *s) {
    return (rein_policy){c->model ? c->model : s->model, c->adapter, 1};
}

/* Each history alone. */
static void values_alone(float *values, const rein_policy *p, const rein_groups *groups) {
    rein_activations *a;
    const rein_score_options before = {.before = 1};
    OK(rein_activations_open(&a, &(rein_exec){.threads = 1}, &error_));
    EACH_HISTORY(h, groups) {
        const size_t offsets[2] = {0, h->n};
        const rein_tokens tokens = {.n = 1, .offsets = offsets, .ids = h->ids, .wanted = h->mask};
        int any = 0;
        for (size_t i = 0; i < h->n; i++) any |= h->mask[i];
        memset(values, 0, h->n * sizeof *values);
        if (any) OK(rein_scores(values, a, p, &tokens, &before, &error_));
        values += h->n;
    }
    rein_activations_close(a);
}

/* The trained tokens of a trajectory: their places among all tokens. */
static size_t trained_of(size_t *places, const rein_trajectory *t, size_t at, int mask_truncated) {
    size_t n = 0;
    for (size_t i = 0; i < t->n_histories; i++)
        for (size_t k = 0; k < t->histories[i].n; k++, at++)
            if (t->histories[i].mask[k] && !(mask_truncated && t->truncated)) places[n++] = at;
    return n;
}

static size_t length_of(const rein_trajectory *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->n_histories; i++) n += t->histories[i].n;
    return n;
}

/* A_t = Σ_l (γλ)^l·δ_{t+l}, straight from the definition. */
static double advantage_at(const double *delta, size_t t, size_t n, double decay) {
    double sum = 0;
    for (size_t l = t; l < n; l++) sum += pow(decay, (double)(l - t)) * delta[l];
    return sum;
}

static void check_step(const rein_critic_step *step, const rein_groups *groups, const float *values, const float *old,
                       const float *reference, double beta, double gamma, double lambda, int mask_truncated, int whiten) {
    const size_t tokens = tokens_of(groups);
    double *advantages = some(tokens, sizeof *advantages), mean = 0, squares = 0, returns = 0, return_squares = 0;
    size_t *trained = some(tokens, sizeof *trained), n = 0, at = 0;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t k = 0; k < groups->groups[g].n; at += length_of(&groups->groups[g].trajectories[k++])) {
            const rein_trajectory *t = &groups->groups[g].trajectories[k];
            size_t places[MOST];
            double delta[MOST];
            const size_t length = trained_of(places, t, at, mask_truncated);
            for (size_t i = 0; i < length; i++) {
                const size_t p = places[i];
                delta[i] = -beta * ((double)old[p] - (double)reference[p]) + (i + 1 == length ? t->reward : 0) +
                           (i + 1 == length ? 0 : gamma * (double)values[places[i + 1]]) - (double)values[p];
            }
            for (size_t i = 0; i < length; i++) {
                advantages[places[i]] = advantage_at(delta, i, length, gamma * lambda);
                trained[n++] = places[i];
            }
        }
    assert_true(n > 40);
    for (size_t i = 0; i < n; i++) {
        const double a = advantages[trained[i]], g = a + (double)values[trained[i]];
        mean += a / (double)n, returns += g / (double)n;
        assert_true(fabs((double)step->returns[trained[i]] - g) < 1e-5);
        assert_true(step->values[trained[i]] == values[trained[i]]);
    }
    for (size_t i = 0; i < n; i++) {
        const double a = advantages[trained[i]], g = a + (double)values[trained[i]];
        squares += (a - mean) * (a - mean), return_squares += (g - returns) * (g - returns);
    }
    const double variance = squares / (double)(n - 1);
    for (size_t i = 0; i < n; i++) {
        const double a = advantages[trained[i]], wanted = whiten ? (a - mean) / sqrt(variance + 1e-8) : a;
        if (!(fabs((double)step->advantages[trained[i]] - wanted) < 1e-5))
            fail_msg("token %zu: %g, not %g", trained[i], (double)step->advantages[trained[i]], wanted);
    }
    assert_true(fabs(step->advantage_mean - mean) < 1e-6 && fabs(step->advantage_std - sqrt(variance)) < 1e-6);
    assert_true(fabs(step->return_mean - returns) < 1e-6);
    assert_true(fabs(step->explained_variance - (1 - squares / return_squares)) < 1e-6);
    free(advantages), free(trained);
}

static void test_step(void **state) {
    (void)state;
    const struct {
        const char *settings;
        double beta, gamma, lambda;
        int mask_truncated, whiten;
    } cases[] = {{"preset=ppo critic=same", 0, 1, 0.95, 0, 1},
                 {"preset=ppo critic=same kl_reward_coef=0.3 gae_gamma=0.9 gae_lambda=0.5", 0.3, 0.9, 0.5, 1, 0},
                 {"preset=ppo critic=same kl_reward_coef=0.1 gae_gamma=1 gae_lambda=1", 0.1, 1, 1, 1, 1},
                 {"preset=ppo critic=same kl_reward_coef=0.1 gae_gamma=0.8 gae_lambda=0", 0.1, 0.8, 0, 0, 1}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        subject s = open_subject("a", 0);
        rein_groups groups = make_groups(GROUPS, 5);
        record(&groups, &s.p, 0.3);
        const size_t n = tokens_of(&groups);
        float *values = floats(n), *reference = floats(n), *old = floats(n), *at = old;
        EACH_HISTORY(h, &groups) memcpy(at, h->log_probs, h->n * sizeof *at), at += h->n;
        for (size_t k = 0; k < n; k++) reference[k] = (float)(number() - 1);
        rein_critic *c = open_critic(&s, cases[i].settings);
        const rein_policy p = policy_of(c, &s);
        values_alone(values, &p, &groups);
        const rein_settings *set = settings_of(cases[i].settings);
        rein_critic_step step;
        const rein_critic_options o = {rein_settings_objective(set), i % 2 ? NULL : old, cases[i].beta > 0 ? reference : NULL,
                                       cases[i].mask_truncated, cases[i].whiten};
        OK(rein_critic_value(&step, c, &groups, &o, &error_));
        check_step(&step, &groups, values, old, reference, cases[i].beta, cases[i].gamma, cases[i].lambda, cases[i].mask_truncated,
                   cases[i].whiten);
        rein_critic_step_free(&step);
        free(values), free(reference), free(old);
        rein_critic_close(c);
        rein_groups_free(&groups), close_subject(&s);
    }
}

/* Equal returns: there is nothing to explain, and no advantage is blown up. */
static void test_equal(void **state) {
    (void)state;
    subject s = open_subject("a", 0);
    rein_groups groups = make_groups(GROUPS, 5);
    rein_critic *c;
    const rein_settings *set = settings_of("preset=ppo critic=same gae_lambda=1");
    OK(rein_critic_open(&c, set, s.model, &(rein_trainer_options){.temperature = 1}, &error_)); /* all values are 0 */
    for (size_t g = 0; g < groups.n; g++)
        for (size_t k = 0; k < groups.groups[g].n; k++) groups.groups[g].trajectories[k].reward = 0.1;
    rein_critic_step step;
    OK(rein_critic_value(&step, c, &groups, &(rein_critic_options){rein_settings_objective(set), NULL, NULL, 0, 1}, &error_));
    assert_true(isnan(step.explained_variance) && step.value_mean == 0);
    for (size_t i = 0; i < tokens_of(&groups); i++) assert_true(step.advantages[i] == 0);
    rein_critic_step_free(&step);
    rein_critic_close(c);
    rein_groups_free(&groups), close_subject(&s);
}

/* ---- the loss and its gradient */

static void gradient_alone(double *loss, double *clipped, float *gradient, const rein_policy *p, const rein_groups *groups,
                           const rein_value_pass *pass) {
    rein_activations *a;
    const rein_score_options keep = {.before = 1, .keep = 1};
    const size_t all = tokens_of(groups);
    float *values = floats(all), *slopes = floats(all);
    uint8_t *mask = some(all, 1);
    size_t at = 0, trained, n = 0;
    EACH_HISTORY(h, groups) memcpy(mask + at, h->mask, h->n), at += h->n;
    values_alone(values, p, groups);
    OK(rein_value_loss_f32(loss, &trained, slopes, values, pass->old_values, pass->returns, mask, all, pass->value_clip, NULL,
                           &error_));
    for (size_t i = 0; i < all; i++) n += mask[i] && slopes[i] == 0;
    *clipped = (double)n / (double)trained;
    OK(rein_activations_open(&a, &(rein_exec){.threads = 1}, &error_));
    at = 0;
    EACH_HISTORY(h, groups) {
        const size_t offsets[2] = {0, h->n};
        const rein_tokens tokens = {.n = 1, .offsets = offsets, .ids = h->ids, .wanted = h->mask};
        int any = 0;
        for (size_t i = 0; i < h->n; i++) any |= h->mask[i];
        if (any) OK(rein_scores(values + at, a, p, &tokens, &keep, &error_));
        if (any) OK(rein_scores_backward(gradient, a, slopes + at, &error_));
        at += h->n;
    }
    rein_activations_close(a);
    free(values), free(slopes), free(mask);
}

static void test_gradient(void **state) {
    (void)state;
    for (int full = 0; full < 2; full++) {
        subject s = open_subject("a", full);
        rein_groups groups = make_groups(GROUPS, 5);
        rein_critic *c = open_critic(&s, full ? "preset=ppo critic=same full=yes" : "preset=ppo critic=same");
        const rein_policy p = policy_of(c, &s);
        const size_t n = tokens_of(&groups);
        float *old = floats(n), *returns = floats(n), *wanted = floats(c->trainer->floats);
        for (size_t i = 0; i < n; i++) old[i] = (float)number(), returns[i] = (float)(2 * number());
        rein_value_pass pass = {.old_values = old, .returns = returns, .value_clip = 0.4};
        double loss, clipped, norm = 0, error = 0;
        OK(rein_trainer_value_pass(&pass, c->trainer, &groups, &error_));
        gradient_alone(&loss, &clipped, wanted, &p, &groups, &pass);
        assert_true(fabs(pass.loss - loss) < 1e-6 && loss > 0.1 && !pass.nothing_to_train);
        assert_true(fabs(pass.clip_fraction - clipped) < 1e-12 && clipped > 0.1 && clipped < 0.9);
        for (size_t i = 0; i < c->trainer->floats; i++) {
            const double x = (double)rein_trainer_shard(c->trainer, 0)[i], y = (double)wanted[i];
            norm += y * y, error += (x - y) * (x - y);
        }
        if (!(norm > 0 && error <= 1e-10 * norm)) fail_msg("full %d: off by %g of %g", full, sqrt(error), sqrt(norm));
        free(old), free(returns), free(wanted);
        rein_critic_close(c);
        rein_groups_free(&groups), close_subject(&s);
    }
}

/* ---- the controller of the KL */
static void test_kl_control(void **state) {
    (void)state;
    const struct {
        double coef, kl, target, horizon;
        size_t n;
        double wanted;
    } cases[] = {{0.2, 6, 6, 10000, 100, 0.2},
                 {0.2, 6.6, 6, 10000, 100, 0.2 * (1 + 0.1 * 0.01)},
                 {0.2, 600, 6, 10000, 100, 0.2 * 1.002},
                 {0.2, -1, 6, 10000, 100, 0.2 * 0.998},
                 {0, 5, 1, 10, 10, 0},
                 {1, 0, 0.1, 64, 64, 0.8}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        double coef = cases[i].coef;
        OK(rein_kl_control(&coef, cases[i].kl, cases[i].target, cases[i].n, cases[i].horizon, &error_));
        assert_true(fabs(coef - cases[i].wanted) < 1e-15);
    }
    double coef = 0.5;
    REFUSED(rein_kl_control(&coef, (double)NAN, 6, 1, 10, &error_), "kl is ");
    REFUSED(rein_kl_control(&coef, 1, 0, 1, 10, &error_), "kl_target is 0: it must be above 0");
    REFUSED(rein_kl_control(&coef, 1, 6, 100, 20, &error_),
            "kl_horizon is 20: it must be above a fifth of the responses of a step, 100");
    coef = -1;
    REFUSED(rein_kl_control(&coef, 1, 6, 1, 10, &error_), "coef is -1");
    assert_true(coef < 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_step), cmocka_unit_test(test_equal), cmocka_unit_test(test_gradient),
                                       cmocka_unit_test(test_kl_control)};
    return cmocka_run_group_tests(tests, make_folder_of_models, remove_folder);
}
