/* test_session_between.c - what happens between the steps of a session: a step that is stopped or fails is undone, settings change,
 * checkpoints are deleted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "support/files.h"
#include "train/session_fixture.h"

static rein_error failure;

static rein_session *open_session(const char *run, const char *settings) {
    rein_session *s;
    OK(rein_session_open(&s, in_folder(run), settings_of(settings), &error_));
    return s;
}

static rein_groups groups_of(size_t seed) {
    subject base = {0};
    rein_groups groups = make_groups(4, 70 + seed);
    OK(rein_model_open(&base.model, in_folder("a"), NULL, &error_));
    base.p = (rein_policy){base.model, NULL, 1};
    record(&groups, &base.p, 0.1);
    close_subject(&base);
    return groups;
}

static void train(rein_session *s, size_t seed, const rein_train_options *options) {
    rein_groups groups = groups_of(seed);
    rein_session_report report;
    OK(rein_session_train(&report, s, &groups, options, &error_));
    OK(rein_session_commit(&report, s, &groups, NULL, 0, &error_));
    rein_groups_free(&groups);
}

static const char *file_of(const char *run, size_t step, const char *file) {
    char name[300];
    snprintf(name, sizeof name, "%s/checkpoints/%04zu/%s", run, step, file);
    return in_folder(name);
}

static void assert_same_step(const char *run, const char *other, size_t step) {
    assert_true(same_file(file_of(run, step, "adapter_model.safetensors"), file_of(other, step, "adapter_model.safetensors")));
    assert_true(same_file(file_of(run, step, "optimizer.safetensors"), file_of(other, step, "optimizer.safetensors")));
    assert_true(same_file(file_of(run, step, "state.json"), file_of(other, step, "state.json")));
}

/* ---- stopping */
typedef struct stopping {
    size_t calls, stop_at; /* stop_at 0: never */
    double last;
} stopping;

static int stop(void *context, double share) {
    stopping *s = context;
    assert_true(share >= s->last && share < 1);
    s->last = share;
    return ++s->calls == s->stop_at;
}

/* Stopped at any of its calls, a step leaves the session as it was: the next steps have the bits of a run that was never stopped. */
static void test_stop_anywhere(void **state) {
    (void)state;
    const char *settings = "preset=grpo kl_loss_coef=0.1 epochs=2 minibatches=2 kl_penalty_reference_step=0";
    rein_session *plain = open_session("plain", settings), *s = open_session("stopped", settings);
    stopping all = {0};
    rein_train_options options = {.seconds_sample = NAN, .progress = stop, .context = &all};
    train(plain, 1, &options);
    train(plain, 2, NULL);
    assert_true(all.calls > 8 && all.last > 0.5);
    train(s, 1, NULL);
    for (size_t k = 1; k <= all.calls; k += k < 4 || k + 4 > all.calls ? 1 : 3) {
        stopping one = {.stop_at = k};
        rein_session_report report;
        rein_groups groups = groups_of(2);
        options.context = &one;
        const rein_status status = rein_session_train(&report, s, &groups, &options, &failure);
        if (status) { /* the second step has fewer calls: what is known of the reference is not computed again */
            assert_int_equal(status, REIN_ECANCELLED);
            assert_int_equal(one.calls, k);
        }
        assert_int_equal(rein_session_train(&report, s, &groups, NULL, &failure), REIN_EINVAL);
        OK(rein_session_revert(s, &error_));
        assert_int_equal(rein_session_step(s), 1);
        rein_groups_free(&groups);
    }
    train(s, 2, NULL);
    rein_session_close(plain);
    rein_session_close(s);
    assert_same_step("plain", "stopped", 1);
    assert_same_step("plain", "stopped", 2);
    assert_true(same_file(in_folder("plain/trajectories/train/0002.jsonl"), in_folder("stopped/trajectories/train/0002.jsonl")));
}

/* A step that was trained and not committed, and one whose files cannot be written. */
static void test_revert(void **state) {
    (void)state;
    rein_session *plain = open_session("whole", "preset=rloo"), *s = open_session("reverted", "preset=rloo");
    rein_session_report report;
    train(plain, 1, NULL);
    train(plain, 2, NULL);
    OK(rein_session_revert(s, &error_)); /* nothing to do */
    rein_groups groups = groups_of(5);
    OK(rein_session_train(&report, s, &groups, NULL, &error_));
    OK(rein_session_revert(s, &error_));
    assert_int_equal(rein_session_step(s), 0);
    train(s, 1, NULL);
    OK(rein_session_train(&report, s, &groups, NULL, &error_));
    /* a directory where the file of the trajectories should be */
    assert_int_equal(mkdir(in_folder("reverted/trajectories/train/0002.jsonl"), 0700), 0);
    assert_int_not_equal(rein_session_commit(&report, s, &groups, NULL, 0, &failure), REIN_OK);
    assert_int_equal(rein_session_save(s, &failure), REIN_EINVAL);
    assert_int_equal(rmdir(in_folder("reverted/trajectories/train/0002.jsonl")), 0);
    OK(rein_session_revert(s, &error_));
    assert_int_equal(rein_session_step(s), 1);
    train(s, 2, NULL);
    rein_groups_free(&groups);
    rein_session_close(plain);
    rein_session_close(s);
    assert_same_step("whole", "reverted", 1);
    assert_same_step("whole", "reverted", 2);
}

/* ---- settings */

/* Settings for one step only: the same bits as two runs that had them from the beginning, and the file keeps the first ones. */
static void test_change(void **state) {
    (void)state;
    rein_session *s = open_session("changed", "preset=grpo"), *other = open_session("other", "preset=grpo learning_rate=0.001");
    rein_settings *now = NULL, *before = NULL;
    OK(rein_settings_copy(&before, rein_session_settings(s), &error_));
    OK(rein_settings_copy(&now, before, &error_));
    OK(rein_settings_set(now, "learning_rate", "0.001", &error_));
    OK(rein_session_change(s, now, &error_));
    train(s, 1, NULL);
    train(other, 1, NULL);
    assert_true(same_file(file_of("changed", 1, "adapter_model.safetensors"), file_of("other", 1, "adapter_model.safetensors")));
    OK(rein_session_change(s, before, &error_));
    OK(rein_settings_set(now, "lora_rank", "4", &error_));
    assert_int_equal(rein_session_change(s, now, &failure), REIN_EINVAL);
    assert_string_equal(failure.field, "lora_rank");
    rein_settings_free(now);
    OK(rein_settings_copy(&now, before, &error_));
    OK(rein_settings_set(now, "kl_loss_coef", "0.1", &error_));
    OK(rein_settings_set(now, "kl_penalty_reference_step", "7", &error_));
    assert_int_equal(rein_session_change(s, now, &failure), REIN_EINVAL);
    assert_string_equal(failure.field, "kl_penalty_reference_step");
    assert_non_null(strstr(failure.message, "it has 0, 1"));
    OK(rein_settings_set(now, "kl_penalty_reference_step", "1", &error_));
    OK(rein_session_change(s, now, &error_));
    train(s, 2, NULL);
    rein_settings_free(now);
    rein_settings_free(before);
    rein_session_close(s);
    rein_session_close(other);
    rein_settings *kept = new_settings();
    OK(rein_settings_read(kept, in_folder("changed/config.yaml"), &error_));
    assert_true(rein_settings_number(kept, "learning_rate") == 0.02);
    assert_false(rein_settings_given(kept, "kl_loss_coef"));
}

/* One rate for each optimizer step. */
static void test_learning_rates(void **state) {
    (void)state;
    const double same[] = {0.02, 0.02}, none[] = {0.02, 0};
    rein_session *a = open_session("rate", "preset=grpo minibatches=2"), *b = open_session("rates", "preset=grpo minibatches=2"),
                 *c = open_session("rates0", "preset=grpo minibatches=2 weight_decay=0");
    rein_train_options options = {.seconds_sample = NAN, .learning_rates = same, .n_learning_rates = 2};
    train(a, 1, NULL);
    train(b, 1, &options);
    assert_same_step("rate", "rates", 1);
    options.learning_rates = none;
    train(c, 1, &options);
    assert_false(same_file(file_of("rate", 1, "adapter_model.safetensors"), file_of("rates0", 1, "adapter_model.safetensors")));
    rein_groups groups = groups_of(1);
    rein_session_report report;
    options.n_learning_rates = 1;
    assert_int_equal(rein_session_train(&report, a, &groups, &options, &failure), REIN_EINVAL);
    assert_string_equal(failure.field, "learning_rate");
    rein_groups_free(&groups);
    rein_session_close(a);
    rein_session_close(b);
    rein_session_close(c);
}

/* ---- checkpoints */
static void test_delete(void **state) {
    (void)state;
    rein_session *s = open_session("deleted", "preset=grpo kl_loss_coef=0.1 kl_penalty_reference_step=0");
    const int64_t steps[] = {0, 1, 2, 3, 9, 1};
    rein_deletion what[COUNT(steps)];
    for (size_t i = 1; i <= 3; i++) train(s, i, NULL);
    rein_settings *now = NULL;
    OK(rein_settings_copy(&now, rein_session_settings(s), &error_));
    OK(rein_settings_set(now, "kl_penalty_reference_step", "2", &error_));
    OK(rein_session_change(s, now, &error_));
    OK(rein_session_delete(what, s, steps, COUNT(steps), &error_));
    const rein_deletion expected[] = {REIN_DELETION_KEPT, REIN_DELETED,          REIN_DELETION_KEPT,
                                      REIN_DELETION_KEPT, REIN_DELETION_MISSING, REIN_DELETED};
    assert_memory_equal(what, expected, sizeof expected);
    assert_int_not_equal(access(in_folder("deleted/checkpoints/0001"), F_OK), 0);
    assert_int_equal(access(in_folder("deleted/checkpoints/0002"), F_OK), 0);
    train(s, 4, NULL); /* the reference is there */
    rein_settings_free(now);
    rein_session_close(s);
}

static void test_not_begun(void **state) {
    (void)state;
    rein_session *s;
    OK(rein_session_prepare(&s, in_folder("new"), NULL, settings_of("preset=grpo"), &error_));
    assert_int_equal(rein_session_revert(s, &failure), REIN_EINVAL);
    assert_int_equal(rein_session_change(s, rein_session_settings(s), &failure), REIN_EINVAL);
    assert_int_equal(rein_session_delete(NULL, s, NULL, 0, &failure), REIN_EINVAL);
    rein_session_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop_anywhere),  cmocka_unit_test(test_revert), cmocka_unit_test(test_change),
        cmocka_unit_test(test_learning_rates), cmocka_unit_test(test_delete), cmocka_unit_test(test_not_begun),
    };
    return cmocka_run_group_tests(tests, make_folder_of_models, remove_folder);
}
