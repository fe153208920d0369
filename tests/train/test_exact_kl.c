/* test_exact_kl.c - the exact KL in a trainer's pass: its values against the logits of both models, its gradient against central differences
 * of the loss, whatever trains; one answer; what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/vocabulary_fixture.h"

#define LOSS "surrogate=reinforce advantage=none kl_loss_coef=0.7 kl_estimator=exact aggregation=seq-mean-token-mean"
#define STEEP "surrogate=reinforce advantage=none kl_loss_coef=7 kl_estimator=exact aggregation=seq-mean-token-mean"

/* ---- values */

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

static void test_gradient(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        check_gradient(STEEP, options_of(STEEP), 0, kind, 1);
        check_gradient(STEEP, options_of(STEEP), 0, kind, 1.7);
        check_gradient(STEEP " entropy_coef=0.3", options_of(STEEP " entropy_coef=0.3"), 0, kind, 1);
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
