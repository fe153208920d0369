/* test_online_pairs.c - which pairs a step with a preference_loss trains on; that it trains as one on the same pairs chosen by hand, bit for
 * bit; what it reports; and that a step of ties changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/files.h"
#include "train/online_pairs.h"
#include "train/session_fixture.h"

enum { GROUPS = 5, SAMPLES = 4 };

/* Per group: rewards, and the lengths of the completions. */
static const double REWARDS[GROUPS][SAMPLES] = {
    {0.25, 1, 0, 1}, {0.5, 0.5, 0.5, 0.5}, {-2, -1, -3, -1.5}, {0.1, 0.2, 0.3, 0.3}, {1, 0, 0, 1}};
static const size_t LENGTHS[GROUPS][SAMPLES] = {{2, 3, 4, 5}, {1, 2, 3, 4}, {5, 4, 3, 2}, {2, 2, 2, 2}, {7, 1, 3, 4}};

static rein_groups five_groups(uint64_t seed) {
    rein_groups groups = {0};
    stream = seed;
    for (size_t g = 0; g < GROUPS; g++) {
        const int32_t prompt[] = {(int32_t)below(TINY_VOCABULARY), (int32_t)g};
        rein_trajectory *t = group_of(&groups, SAMPLES);
        for (size_t k = 0; k < SAMPLES; k++) add_history(&t[k], prompt, 2, LENGTHS[g][k]), t[k].reward = REWARDS[g][k];
    }
    return groups;
}

/* Checks that the pairs of groups[i] are places[i]; a place of -1 is a tie. */
static void assert_pairs(const rein_groups *groups, const char *options, const int (*places)[2], size_t ties) {
    rein_online_pairs pairs;
    size_t n = 0;
    OK(rein_online_pairs_choose(&pairs, groups, options_of(options), &error_));
    for (size_t g = 0; g < groups->n; g++) {
        if (places[g][0] < 0) continue;
        assert_true(n < pairs.groups.n);
        const rein_group *pair = &pairs.groups.groups[n++];
        assert_int_equal(pair->n, 2);
        for (size_t k = 0; k < 2; k++) {
            assert_ptr_equal(pair->trajectories[k].histories, groups->groups[g].trajectories[places[g][k]].histories);
            assert_true(pair->trajectories[k].reward == (k == 0));
        }
    }
    assert_int_equal(pairs.groups.n, n);
    assert_int_equal(pairs.ties, ties);
    rein_online_pairs_free(&pairs);
    assert_null(pairs.groups.groups);
}

/* Of equal rewards the first; equal best and worst are a tie. */
static void test_best_and_worst(void **state) {
    (void)state;
    rein_groups groups = five_groups(3);
    assert_pairs(&groups, "preset=online-dpo", (const int[GROUPS][2]){{1, 2}, {-1, -1}, {1, 2}, {2, 0}, {0, 1}}, 1);
    rein_groups_free(&groups);
}

/* Shaped rewards are compared: a token over the budget of 2 costs 1, so the shortest of the right answers is the best. */
static void test_shape(void **state) {
    (void)state;
    rein_groups groups = five_groups(3);
    assert_pairs(&groups, "preset=online-dpo shape=budget token_budget=2 budget_penalty_coef=1",
                 (const int[GROUPS][2]){{0, 2}, {0, 3}, {3, 0}, {2, 0}, {1, 0}}, 0);
    assert_pairs(&groups, "preset=online-dpo reward_clip=0.1", (const int[GROUPS][2]){{0, 2}, {-1, -1}, {-1, -1}, {-1, -1}, {0, 1}},
                 3);
    rein_groups_free(&groups);
}

/* What does not train is not chosen; two completions of the same tokens are no pair; a group of one has none. */
static void test_no_pair(void **state) {
    (void)state;
    rein_groups groups = five_groups(4);
    rein_history *h = groups.groups[0].trajectories[1].histories;
    memset(h->mask, 0, h->n);
    for (size_t k = 1; k < SAMPLES; k++) {
        rein_history *all = groups.groups[2].trajectories[k].histories;
        memset(all->mask, 0, all->n);
    }
    memcpy(groups.groups[3].trajectories[2].histories->ids, groups.groups[3].trajectories[0].histories->ids, 4 * sizeof(int32_t));
    assert_pairs(&groups, "preset=online-dpo", (const int[GROUPS][2]){{3, 2}, {-1, -1}, {-1, -1}, {-1, -1}, {0, 1}}, 3);
    groups.n = 0;
    assert_pairs(&groups, "preset=online-dpo", NULL, 0);
    groups.n = GROUPS;
    rein_groups_free(&groups);
}

/* ---------------------------------------------------------------------------------------------------------------------- a step */

static rein_session *open_run(const char *run, const char *settings) {
    rein_session *s;
    OK(rein_session_open(&s, in_folder(run), settings_of(settings), &error_));
    return s;
}

/* NaN: no metric has that name. */
static double metric(const rein_session_report *report, const char *name) {
    for (size_t i = 0; i < report->n; i++)
        if (!strcmp(report->metrics[i].name, name)) return report->metrics[i].value;
    return NAN;
}

/* The pairs of the first test, chosen by hand; their tokens are those of the groups. */
static rein_groups by_hand(const rein_groups *groups) {
    static const size_t places[][3] = {{0, 1, 2}, {2, 1, 2}, {3, 2, 0}, {4, 0, 1}};
    rein_groups pairs = {0};
    for (size_t i = 0; i < COUNT(places); i++) {
        rein_trajectory *t = group_of(&pairs, 2);
        for (size_t k = 0; k < 2; k++) {
            const rein_history *h = groups->groups[places[i][0]].trajectories[places[i][1 + k]].histories;
            add_history(&t[k], h->ids, 2, h->n - 2);
            memcpy(t[k].histories->ids, h->ids, h->n * sizeof *h->ids);
            t[k].reward = k == 0;
        }
    }
    return pairs;
}

static rein_session_report step(rein_session *s, rein_groups *groups, const rein_preference_options *preference) {
    rein_session_report report;
    const rein_train_options options = {.seconds_sample = NAN, .preference = preference, .keep_advantages = 1};
    OK(rein_session_train(&report, s, groups, &options, &error_));
    OK(rein_session_commit(&report, s, groups, NULL, 0, &error_));
    return report;
}

static const char *adapter_of(const char *run, int of_step) {
    char name[200];
    snprintf(name, sizeof name, "%s/checkpoints/%04d/adapter_model.safetensors", run, of_step);
    return in_folder(name);
}

static void check_loss(const rein_preference_info *info) {
    rein_groups groups = five_groups(8), pairs = by_hand(&groups);
    rein_preference_options options = rein_preference_published(info->loss);
    const int noise = info->loss == REIN_PREFERENCE_CDPO || info->loss == REIN_PREFERENCE_ROBUST;
    char settings[200], online[60], given[60];
    if (noise) options.label_smoothing = 0.125;
    snprintf(settings, sizeof settings, "preset=online-dpo preference_loss=%s%s", info->name,
             noise ? " label_smoothing=0.125" : "");
    snprintf(online, sizeof online, "online-%s", info->name), snprintf(given, sizeof given, "given-%s", info->name);
    rein_session *a = open_run(online, settings);
    rein_settings *plain = settings_of("");
    rein_session *b;
    rein_settings_use_reference(plain, info->uses_reference);
    OK(rein_session_open(&b, in_folder(given), plain, &error_));
    for (int i = 1; i <= 2; i++) {
        const rein_session_report of_groups = step(a, &groups, NULL), of_pairs = step(b, &pairs, &options);
        static const char *const same[] = {"loss",           "grad_norm",     "rewards/chosen", "rewards/margins",
                                           "logps/rejected", "tokens/trained"};
        for (size_t k = 0; k < COUNT(same); k++) {
            const double x = metric(&of_groups, same[k]), y = metric(&of_pairs, same[k]);
            if (!(fabs(x - y) <= 1e-15 * fabs(y))) fail_msg("%s: %s is %.17g, of pairs %.17g", info->name, same[k], x, y);
        }
        assert_true(metric(&of_groups, "pairs") == 4 && metric(&of_groups, "pairs/ties") == 1);
        assert_true(isnan(metric(&of_pairs, "pairs")) && isnan(metric(&of_pairs, "reward")));
        assert_true(fabs(metric(&of_groups, "reward") + 0.0175) < 1e-12 && metric(&of_groups, "frac_reward_zero_std") == 0.2);
        assert_true(metric(&of_groups, "completions/max_length") == 7 && metric(&of_groups, "num_tokens") == i * (2 * 20 + 61));
        assert_true(isnan(metric(&of_groups, "ratio/mean")) && isnan(metric(&of_groups, "loss/surrogate")));
        assert_null(groups.groups[0].trajectories[0].histories->advantages);
        assert_true(same_file(adapter_of(online, i), adapter_of(given, i)));
    }
    rein_session_close(a), rein_session_close(b);
    rein_groups_free(&groups), rein_groups_free(&pairs);
}

static void test_as_by_hand(void **state) {
    (void)state;
    for (size_t i = 0; rein_preference_at(i); i++) check_loss(rein_preference_at(i));
}

static void test_ties_alone(void **state) {
    (void)state;
    rein_groups groups = five_groups(8);
    for (size_t g = 0; g < GROUPS; g++)
        for (size_t k = 0; k < SAMPLES; k++) groups.groups[g].trajectories[k].reward = 0.1 * (double)g;
    rein_session *s = open_run("ties", "preset=online-dpo");
    const rein_session_report report = step(s, &groups, NULL);
    assert_true(report.nothing_to_train && report.step == 1);
    assert_true(metric(&report, "pairs") == 0 && metric(&report, "pairs/ties") == GROUPS && metric(&report, "loss") == 0);
    assert_true(isnan(metric(&report, "rewards/chosen")) && fabs(metric(&report, "reward") - 0.2) < 1e-12);
    assert_true(same_file(adapter_of("ties", 0), adapter_of("ties", 1)));
    rein_session_close(s), rein_groups_free(&groups);
}

static void test_refused(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"preset=online-dpo epochs=2", "epochs must be 1 with preference_loss"},
        {"preset=online-dpo minibatches=2", "minibatches must be 1 with preference_loss"},
        {"preset=online-dpo mask_truncated_completions=yes", "mask_truncated_completions has no effect with preference_loss"},
        {"preset=online-dpo preference_loss=orpo kl_penalty_reference_step=0", "preference_loss orpo has no reference"},
        {"preset=online-dpo keep_best=kl", "there is no kl with this loss over pairs"},
        {"preset=online-dpo keep_best=ratio/mean", "there is no ratio/mean with a loss over pairs"},
        {"preset=grpo keep_best=rewards/margins", "there is no rewards/margins without preference_loss"},
        {"preset=online-dpo preference_loss=kto keep_best=rewards/accuracies", "there is no rewards/accuracies with the loss kto"},
        {"preset=online-dpo preference_loss=cdpo", "label_smoothing is required"}};
    rein_session *s;
    for (size_t i = 0; i < COUNT(wrong); i++)
        REFUSED(rein_session_open(&s, in_folder("refused"), settings_of(wrong[i][0]), &error_), wrong[i][1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_best_and_worst), cmocka_unit_test(test_shape),
                                       cmocka_unit_test(test_no_pair),        cmocka_unit_test(test_as_by_hand),
                                       cmocka_unit_test(test_ties_alone),     cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, make_folder_of_models, remove_folder);
}
