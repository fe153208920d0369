/* test_preferences.c - a pass over preferences: its gradient is that of the loss over the sums of the completions, computed another way; what
 * it takes and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/trainer.h"
#include "train/trainer_fixture.h"

enum { PAIRS = 4 };

/* Pairs of a prompt with two completions of 1 to 8 tokens; the chosen one of the first has two histories. */
static rein_groups make_pairs(uint64_t seed, size_t completions) {
    rein_groups groups = {0};
    stream = seed;
    for (size_t g = 0; g < PAIRS; g++) {
        int32_t prompt[6];
        const size_t n_prompt = 1 + below(6);
        for (size_t i = 0; i < n_prompt; i++) prompt[i] = (int32_t)below(TINY_VOCABULARY);
        rein_trajectory *t = group_of(&groups, completions);
        for (size_t k = 0; k < completions; k++) {
            add_history(&t[k], prompt, n_prompt, 1 + below(8));
            t[k].reward = completions > 1 ? k == 0 : g % 2 == 0;
        }
        if (g == 0) add_history(&t[0], t[0].histories[0].ids, t[0].histories[0].n, 3);
    }
    return groups;
}

/* The sums over each completion [groups · completions], and their lengths. */
static void sums_of(double *sums, int64_t *lengths, const rein_groups *groups, const float *log_probs) {
    size_t sequence = 0;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t k = 0; k < groups->groups[g].n; k++, sequence++) {
            const rein_trajectory *t = &groups->groups[g].trajectories[k];
            sums[sequence] = 0, lengths[sequence] = 0;
            for (size_t i = 0; i < t->n_histories; log_probs += t->histories[i++].n)
                for (size_t j = 0; j < t->histories[i].n; j++)
                    if (t->histories[i].mask[j]) sums[sequence] += (double)log_probs[j], lengths[sequence]++;
        }
}

typedef struct wanted {
    double loss, gradient[2 * PAIRS]; /* by each sum */
    rein_preference_metrics metrics;
} wanted;

static wanted expect_pairs(const rein_groups *groups, const float *log_probs, const float *reference,
                           const rein_preference_options *o) {
    double s[2 * PAIRS], ref[2 * PAIRS], columns[6][PAIRS];
    int64_t n[2 * PAIRS], lengths[2][PAIRS];
    wanted w = {0};
    sums_of(s, n, groups, log_probs), sums_of(ref, n, groups, reference);
    for (size_t g = 0; g < PAIRS; g++)
        for (size_t k = 0; k < 2; k++)
            columns[k][g] = s[2 * g + k], columns[2 + k][g] = ref[2 * g + k], lengths[k][g] = n[2 * g + k];
    const rein_pairs pairs = {PAIRS, columns[0], columns[1], columns[2], columns[3], lengths[0], lengths[1]};
    OK(rein_preference_loss(&w.loss, columns[4], columns[5], &w.metrics, &pairs, o, &error_));
    for (size_t g = 0; g < PAIRS; g++) w.gradient[2 * g] = columns[4][g], w.gradient[2 * g + 1] = columns[5][g];
    return w;
}

static wanted expect_kto(const rein_groups *groups, const float *log_probs, const float *reference, double kl,
                         const rein_preference_options *o) {
    double s[PAIRS], ref[PAIRS];
    int64_t n[PAIRS];
    uint8_t labels[PAIRS];
    wanted w = {0};
    sums_of(s, n, groups, log_probs), sums_of(ref, n, groups, reference);
    for (size_t g = 0; g < PAIRS; g++) labels[g] = groups->groups[g].trajectories[0].reward > 0;
    OK(rein_kto_loss(&w.loss, w.gradient, &w.metrics, s, ref, labels, PAIRS, kl, o, &error_));
    return w;
}

/* The sum of all shards. */
static float *take_sum(rein_trainer *t) {
    float *sum = floats(t->floats);
    for (size_t s = 0; s < t->options.shards; s++)
        for (size_t i = 0; i < t->floats; i++) sum[i] += t->buffers[s * t->floats + i];
    rein_trainer_clear(t);
    return sum;
}

/* With REINFORCE and token-sum a trajectory of reward −dL/ds has the gradient dL/ds at each of its tokens. */
static float *gradient_by_weights(rein_trainer *t, rein_groups *groups, const wanted *w) {
    const rein_pass_options o = {.objective = options_of("aggregation=token-sum"), .policy_step = -1};
    rein_pass_result pass;
    size_t sequence = 0;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t k = 0; k < groups->groups[g].n; k++) groups->groups[g].trajectories[k].reward = -w->gradient[sequence++];
    OK(rein_trainer_forward_backward(&pass, t, groups, &o, &error_));
    return take_sum(t);
}

static void assert_near(const float *a, const float *b, size_t n) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(isfinite(a[i]));
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]), size += (double)b[i] * (double)b[i];
    }
    assert_true(size > 0);
    if (!(difference <= 1e-12 * size)) fail_msg("the gradients differ by %g of their size", sqrt(difference / size));
}

static void check_loss(rein_preference loss, int full, size_t share_limit) {
    const int kto = loss == REIN_PREFERENCE_KTO;
    subject s = open_subject("a", full);
    rein_trainer *t = open_trainer(&s, &(rein_trainer_options){.share_limit = share_limit});
    rein_groups groups = make_pairs(7, kto ? 1 : 2);
    rein_preference_options options = rein_preference_published(loss);
    if (loss == REIN_PREFERENCE_CDPO || loss == REIN_PREFERENCE_ROBUST) options.label_smoothing = 0.2;
    float *log_probs = floats(tokens_of(&groups)), *reference = floats(tokens_of(&groups));
    alone(log_probs, NULL, &groups, &s.p);
    stream = 5;
    for (size_t i = 0; i < tokens_of(&groups); i++) reference[i] = log_probs[i] + (float)(0.3 * number());
    const rein_pass_options o = {
        .policy_step = -1, .reference_log_probs = reference, .preference = &options, .preference_kl = kto ? 0.25 : 0};
    rein_pass_result pass;
    OK(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_));
    float *ours = take_sum(t);
    const wanted w =
        kto ? expect_kto(&groups, log_probs, reference, 0.25, &options) : expect_pairs(&groups, log_probs, reference, &options);
    float *theirs = gradient_by_weights(t, &groups, &w);
    assert_false(pass.nothing_to_train);
    assert_true(fabs(pass.loss.loss - w.loss) <= 1e-6 * fabs(w.loss));
    assert_true(fabs(pass.preference.logps_chosen - w.metrics.logps_chosen) <= 1e-5);
    assert_true(fabs(pass.preference.rewards_margins - w.metrics.rewards_margins) <= 1e-5);
    assert_near(ours, theirs, t->floats);
    free(ours), free(theirs), free(log_probs), free(reference);
    rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s);
}

static void test_losses(void **state) {
    (void)state;
    for (size_t i = 0; rein_preference_at(i); i++) check_loss(rein_preference_at(i)->loss, i % 2, 0);
}

/* A pair is one unit, however few trajectories may share a prompt. */
static void test_share_limit(void **state) {
    (void)state;
    check_loss(REIN_PREFERENCE_DPO, 0, 1);
    check_loss(REIN_PREFERENCE_ORPO, 1, 2);
}

/* The reference is computed where its log-probs are not given: against itself every pair has the loss log 2. */
static void test_reference(void **state) {
    (void)state;
    subject s = open_subject("a", 0);
    rein_trainer *t = open_trainer(&s, NULL);
    rein_groups groups = make_pairs(3, 2);
    const rein_preference_options options = rein_preference_published(REIN_PREFERENCE_DPO);
    rein_pass_options o = {.policy_step = -1, .preference = &options};
    rein_pass_result pass;
    REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_),
            "reference is missing: the loss over preferences has a reference");
    o.reference = &s.p;
    OK(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_));
    assert_true(fabs(pass.loss.loss - 0.6931471805599453) < 1e-12 && pass.preference.rewards_margins == 0);
    rein_trainer_clear(t), rein_groups_free(&groups), rein_trainer_close(t), close_subject(&s);
}

static void test_refused(void **state) {
    (void)state;
    subject s = open_subject("a", 0);
    rein_trainer *t = open_trainer(&s, NULL);
    rein_groups groups = make_pairs(3, 2), three = make_pairs(3, 3);
    rein_preference_options options = rein_preference_published(REIN_PREFERENCE_SIMPO);
    rein_pass_options o = {.policy_step = -1, .preference = &options};
    rein_pass_result pass;
    REFUSED(rein_trainer_forward_backward(&pass, t, &three, &o, &error_), "groups[0] has 3 trajectories: a pair has two");
    options.beta = 0;
    REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), "beta is 0: it must be above 0");
    options.beta = 2, o.mask_truncated_completions = 1;
    REFUSED(rein_trainer_forward_backward(&pass, t, &groups, &o, &error_), "mask_truncated_completions has no effect");
    assert_false(t->holds);
    rein_groups_free(&groups), rein_groups_free(&three), rein_trainer_close(t), close_subject(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_losses), cmocka_unit_test(test_share_limit),
                                       cmocka_unit_test(test_reference), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, make_folder_of_models, remove_folder);
}
