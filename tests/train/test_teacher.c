/* test_teacher.c - a teacher in a trainer's pass: its divergences against the logits of both models, their gradients against central differences
 * of the loss, whatever trains; the advantage of the sampled form by hand; one answer; what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/vocabulary_fixture.h"

#define PLAIN "surrogate=reinforce advantage=none aggregation=seq-mean-token-mean "

static const char *const WHOLE[] = {"divergence=reverse", "divergence=forward", "divergence=jsd jsd_beta=0.3",
                                    "divergence=jsd jsd_beta=0.9"};

/* PLAIN with a coefficient and one of these. */
static const rein_options *teaching(double coef, const char *divergence) {
    char text[200];
    snprintf(text, sizeof text, PLAIN "teacher_coef=%g %s", coef, divergence);
    return options_of(text);
}

/* ---- values */

static double term(const rein_options *o, double log_p, double log_q) {
    const double p = exp(log_p), q = exp(log_q), beta = o->jsd_beta, log_m = log((1 - beta) * p + beta * q);
    if (o->divergence == REIN_DIVERGENCE_FORWARD) return q * (log_q - log_p);
    if (o->divergence == REIN_DIVERGENCE_REVERSE) return p * (log_p - log_q);
    return beta * q * (log_q - log_m) + (1 - beta) * p * (log_p - log_m);
}

/* The divergence of every token that trains, each history alone; 0 elsewhere. */
static double *divergence_of(const rein_groups *groups, const rein_options *o, const rein_policy *policy,
                             const rein_policy *teacher) {
    double *all = some(tokens_of(groups), sizeof *all), *at = all;
    rein_activations *a;
    OK(rein_activations_open(&a, NULL, &error_));
    EACH_HISTORY(h, groups) {
        const size_t offsets[2] = {0, h->n};
        const rein_tokens tokens = {.n = 1, .offsets = offsets, .ids = h->ids, .wanted = h->mask};
        size_t n = 0, row = 0;
        for (size_t i = 0; i < h->n; i++) n += h->mask[i];
        if (n) {
            double *p = log_softmax(a, policy, &tokens, n), *q = log_softmax(a, teacher, &tokens, n);
            for (size_t i = 0; i < h->n; i++) {
                if (!h->mask[i]) continue;
                for (size_t v = 0; v < TINY_VOCABULARY; v++, row++) at[i] += term(o, p[row], q[row]);
            }
            free(p), free(q);
        }
        at += h->n;
    }
    rein_activations_close(a);
    return all;
}

static void test_values(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < COUNT(WHOLE); i++) {
            subject s = open_kind(kind, "a"), other = open_subject("b", 0);
            s.p.temperature = other.p.temperature = 1.3;
            rein_trainer *t = open_trainer(&s, NULL);
            rein_groups groups = make_groups(4, 5);
            record(&groups, &s.p, 0.1);
            const rein_options *o = teaching(0.7, WHOLE[i]), *plain = options_of(PLAIN);
            const rein_pass_options options = {.objective = o, .teacher = &other.p, .policy_step = -1};
            const rein_pass_result pass = pass_over(t, &groups, &options);
            expected e = expect(&groups, &s.p, &other.p, plain, 0);
            rein_batch batch = batch_of(&e, groups.n);
            rein_options resolved;
            OK(rein_options_resolve(&resolved, o, &error_));
            double *divergence = divergence_of(&groups, &resolved, &s.p, &other.p);
            batch.teacher_divergence = divergence;
            OK(rein_policy_loss(&e.loss, e.dlog_probs, e.dentropies, e.advantages, &batch, o, NULL, &error_));
            assert_true(e.loss.metrics.teacher_divergence > 0.001);
            assert_true(fabs(pass.loss.metrics.teacher_divergence - e.loss.metrics.teacher_divergence) < 1e-6);
            assert_true(fabs(pass.loss.metrics.teacher_loss - e.loss.metrics.teacher_loss) < 1e-6);
            assert_true(fabs(pass.loss.loss - e.loss.loss) < 2e-6);
            free(divergence), free_expected(&e), rein_groups_free(&groups), rein_trainer_close(t);
            close_subject(&s), close_subject(&other);
        }
}

/* The sampled form: the advantage of a token is that of its sequence minus c times the discounted sum of what later tokens gained. */
static void check_sampled(const char *settings, double coef, double discount) {
    subject s = open_subject("a", 0), other = open_subject("b", 0);
    rein_trainer *t = open_trainer(&s, NULL);
    rein_groups groups = make_groups(4, 5);
    record(&groups, &s.p, 0.1);
    const size_t n = tokens_of(&groups);
    float *got = floats(n), *plain = floats(n), *own = floats(n), *of_teacher = floats(n);
    char text[300];
    snprintf(text, sizeof text, "%s teacher_coef=%g divergence=sampled teacher_discount=%g", settings, coef, discount);
    const rein_pass_options with = {.objective = options_of(text), .teacher = &other.p, .policy_step = -1, .advantages = got};
    const rein_pass_options without = {.objective = options_of(settings), .policy_step = -1, .advantages = plain};
    const rein_pass_result pass = pass_over(t, &groups, &with);
    rein_trainer_clear(t);
    pass_over(t, &groups, &without);
    rein_trainer_clear(t);
    OK(rein_trainer_log_probs(own, NULL, t, &s.p, &groups, &error_));
    OK(rein_trainer_log_probs(of_teacher, NULL, t, &other.p, &groups, &error_));
    double sum = 0, trained = 0;
    size_t at = 0;
    for (size_t g = 0; g < groups.n; g++)
        for (size_t k = 0; k < groups.groups[g].n;
             k++) { /* the tokens of a trajectory are those of its histories, one after another */
            const rein_trajectory *trajectory = &groups.groups[g].trajectories[k];
            size_t end = at;
            for (size_t i = 0; i < trajectory->n_histories; i++) end += trajectory->histories[i].n;
            uint8_t *mask = some(end - at + 1, 1);
            size_t place = 0;
            for (size_t i = 0; i < trajectory->n_histories; i++)
                for (size_t j = 0; j < trajectory->histories[i].n; j++) mask[place++] = trajectory->histories[i].mask[j];
            double later = 0;
            for (size_t i = end; i-- > at;) {
                if (!mask[i - at]) continue;
                const double gap = (double)own[i] - (double)of_teacher[i];
                later = gap + discount * later, sum += gap, trained++;
                const double wanted = (double)plain[i] - coef * later;
                if (!(fabs((double)got[i] - wanted) < 1e-5)) fail_msg("%s: advantage %g, not %g", text, (double)got[i], wanted);
            }
            free(mask);
            at = end;
        }
    assert_true(trained > 20 && fabs(pass.loss.metrics.teacher_divergence - sum / trained) < 1e-6);
    free(got), free(plain), free(own), free(of_teacher);
    rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s), close_subject(&other);
}

static void test_sampled(void **state) {
    (void)state;
    check_sampled("surrogate=reinforce advantage=none aggregation=token-mean", 1, 0);
    check_sampled("preset=grpo kl_loss_coef=0", 0.3, 0);
    check_sampled("preset=grpo kl_loss_coef=0", 0.3, 0.9);
    check_sampled("surrogate=clip advantage=reinforce++", 2, 1);
    check_sampled("preset=dapo entropy_coef=0.1", 1, 0.5);
}

/* ---- gradients */

static void test_gradient(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < COUNT(WHOLE); i++) {
            const double coef = i < 2 ? 7 : 40;
            check_gradient(WHOLE[i], teaching(coef, WHOLE[i]), 1, kind, 1);
            check_gradient(WHOLE[i], teaching(coef, WHOLE[i]), 1, kind, 1.7);
        }
}

/* The policy as its own teacher: no divergence, and no gradient but that of rounding. */
static void test_itself(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(WHOLE); i++) {
        subject s = open_subject("a", 0);
        rein_trainer *t = open_trainer(&s, NULL);
        rein_groups groups = groups_without_rewards(5);
        record(&groups, &s.p, 0);
        const rein_pass_options o = {.objective = teaching(1, WHOLE[i]), .teacher = &s.p, .policy_step = -1};
        const rein_pass_result pass = pass_over(t, &groups, &o);
        rein_trainer_clear(t);
        assert_true(pass.loss.metrics.teacher_divergence == 0 && pass.loss.loss == 0);
        float *g = gradient_of(t, &groups, &o);
        for (size_t k = 0; k < t->floats; k++) assert_true(fabsf(g[k]) < 1e-6f);
        free(g), rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s);
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
            const rein_pass_options o = {.objective = options_of("preset=grpo kl_loss_coef=0.1 teacher_coef=0.3 divergence=jsd"),
                                         .reference = &other.p,
                                         .teacher = &other.p,
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
    rein_pass_options o = {.objective = teaching(1, "divergence=reverse"), .policy_step = -1};
    REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), "teacher is missing");
    o.teacher = &wide.p;
    REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), "tokens, the policy one of 10");
    o.objective = options_of("preset=gspo teacher_coef=1 divergence=sampled");
    REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), "sampled changes the advantage of each token");
    o.objective = options_of("preset=grpo kl_loss_coef=1 kl_estimator=exact teacher_coef=1 divergence=jsd");
    REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), "both compare whole vocabularies");
    rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s), close_subject(&wide);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_sampled),    cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_itself), cmocka_unit_test(test_one_answer), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_folder_of_models, remove_folder);
}
