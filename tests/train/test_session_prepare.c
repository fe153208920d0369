/* test_session_prepare.c - a session in two halves: prepare finds what is wrong and writes nothing, begin writes; groups are checked before a
 * run begins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <sys/stat.h>

#include "base/directory.h"
#include "support/files.h"
#include "train/session_fixture.h"

static rein_session *prepared(const char *run, const char *settings) {
    rein_session *s;
    OK(rein_session_prepare(&s, in_folder(run), NULL, settings_of(settings), &error_));
    return s;
}

static int exists(const char *path) { return access(path, F_OK) == 0; }

static void train(rein_session *s, rein_groups *groups) {
    rein_session_report report;
    OK(rein_session_train(&report, s, groups, NULL, &error_));
    OK(rein_session_commit(&report, s, groups, NULL, 0, &error_));
}

static void assert_same_file(const char *run, const char *other, const char *file) {
    char first[1000], second[1000];
    snprintf(first, sizeof first, "%s/%s/%s", folder, run, file), snprintf(second, sizeof second, "%s/%s/%s", folder, other, file);
    if (!same_file(first, second)) fail_msg("%s of %s and %s differs", file, run, other);
}

static void assert_same_runs(const char *run, const char *other, int steps) {
    const char *const files[] = {"MANIFEST", "optimizer.safetensors", "state.json", "adapter_model.safetensors",
                                 "adapter_config.json"};
    char name[100];
    assert_same_file(run, other, "config.yaml");
    for (int step = 0; step <= steps; step++)
        for (size_t i = 0; i < COUNT(files); i++) {
            snprintf(name, sizeof name, "checkpoints/%04d/%s", step, files[i]);
            assert_same_file(run, other, name);
        }
}

/* ---------------------------------------------------------------------------------------------------------------- two halves */

/* Prepare and begin, in a new run and in one that resumes, make the files of open. */
static void test_halves(void **state) {
    (void)state;
    static const char settings[] = "preset=grpo kl_penalty_reference_step=0 shards=2";
    rein_groups groups = make_groups(3, 7);
    rein_session *s;
    OK(rein_session_open(&s, in_folder("whole"), settings_of(settings), &error_));
    train(s, &groups), train(s, &groups);
    rein_session_close(s);
    for (int step = 0; step < 2; step++) {
        s = prepared("halves", step ? "" : settings);
        assert_int_equal(rein_session_is_new(s), step == 0);
        assert_int_equal(rein_session_step(s), 0);
        assert_string_equal(rein_session_note(s), "");
        assert_int_equal(exists(in_folder("halves")), step > 0);
        OK(rein_session_begin(s, &error_));
        assert_int_equal(rein_session_step(s), step);
        train(s, &groups);
        rein_session_close(s);
    }
    assert_same_runs("whole", "halves", 2);
    rein_groups_free(&groups);
}

/* A run that was stopped after its settings and before its first checkpoint has a reference all the same. */
static void test_stopped_early(void **state) {
    (void)state;
    rein_session *s = prepared("early", "preset=grpo kl_penalty_reference_step=0");
    OK(rein_session_begin(s, &error_));
    rein_session_close(s);
    OK(rein_remove_all(in_folder("early/checkpoints/0000"), &error_));
    s = prepared("early", "");
    assert_false(rein_session_is_new(s));
    OK(rein_session_begin(s, &error_));
    rein_session_close(s);
    assert_true(exists(in_folder("early/checkpoints/0000/MANIFEST")));
}

/* The bytes and times of a run's files, as one number. */
static uint64_t fingerprint(const char *directory) {
    uint64_t sum = 0;
    DIR *d = opendir(directory);
    assert_non_null(d);
    for (const struct dirent *entry; (entry = readdir(d));) {
        char path[1500];
        struct stat about;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        assert_int_equal(stat(path, &about), 0);
        sum += (uint64_t)about.st_ino * 31 + (uint64_t)about.st_size * 17 + (uint64_t)about.st_mtim.tv_nsec +
               (uint64_t)about.st_mtim.tv_sec;
        if (S_ISDIR(about.st_mode)) sum += fingerprint(path);
    }
    closedir(d);
    return sum;
}

/* An existing run stays as it is, also when other settings are given; so does a fork's source, and its directory is not made. */
static void test_nothing_written(void **state) {
    (void)state;
    rein_groups groups = make_groups(3, 7);
    rein_session *s = prepared("still", "preset=grpo");
    rein_loss loss;
    OK(rein_session_begin(s, &error_));
    train(s, &groups);
    rein_session_close(s);
    const uint64_t before = fingerprint(in_folder("still"));
    s = prepared("still", "epochs=3");
    OK(rein_session_check(&loss, s, &groups, "groups", &error_));
    assert_true(rein_session_settings(s)->epochs == 3 && !strcmp(rein_session_settings(s)->preset, "grpo"));
    rein_session_close(s);
    char from[1000];
    snprintf(from, sizeof from, "%s", in_folder("still"));
    OK(rein_session_prepare(&s, in_folder("branch"), &(rein_fork){from, 1}, new_settings(), &error_));
    memset(from, 'x', 4); /* the session has a copy */
    assert_true(rein_session_is_new(s) && before == fingerprint(in_folder("still")) && !exists(in_folder("branch")));
    OK(rein_session_begin(s, &error_));
    rein_session_close(s);
    assert_same_file("still/checkpoints/0001", "branch/checkpoints/0000", "adapter_model.safetensors");
    rein_groups_free(&groups);
}

/* Each half once, in order. */
static void test_order(void **state) {
    (void)state;
    rein_groups groups = make_groups(2, 7);
    rein_session_report report;
    rein_session *s = prepared("order", "preset=grpo lr_scheduler_type=linear total_steps=1000");
    REFUSED(rein_session_train(&report, s, &groups, NULL, &error_),
            "the run has not started: call rein_session_begin or rein_loop_begin first");
    REFUSED(rein_session_commit(&report, s, &groups, NULL, 0, &error_), "the run has not started");
    REFUSED(rein_session_save(s, &error_), "the run has not started");
    REFUSED(rein_session_set_total_steps(s, 0, &error_), "total_steps");
    OK(rein_session_set_total_steps(s, 20, &error_));
    OK(rein_session_begin(s, &error_));
    REFUSED(rein_session_begin(s, &error_), "the run has started already");
    REFUSED(rein_session_set_total_steps(s, 30, &error_), "the run has started already");
    rein_session *other = prepared("order", ""); /* preparing takes no lock */
    REFUSED(rein_session_begin(other, &error_), "is being written by process");
    REFUSED(rein_session_begin(other, &error_), "can only be closed");
    rein_session_close(other), rein_session_close(s);
    rein_settings *written = new_settings();
    OK(rein_settings_read(written, in_folder("order/config.yaml"), &error_));
    assert_int_equal(written->total_steps, 20);
    s = prepared("order-2", "preset=grpo lr_scheduler_type=linear warmup_steps=9 total_steps=1000");
    REFUSED(rein_session_set_total_steps(s, 5, &error_), "warmup_steps is 9: it must be less than total_steps, 5");
    rein_session_close(s), rein_groups_free(&groups);
    assert_false(exists(in_folder("order-2")));
}

/* -------------------------------------------------------------------------------------------------------------- what is refused */

static void refuses(const char *settings, const char *field, const char *message) {
    rein_session *s = (rein_session *)1;
    rein_error err = {0};
    assert_int_equal(rein_session_prepare(&s, in_folder("refused"), NULL, settings_of(settings), &err), REIN_EINVAL);
    if (strcmp(err.field, field) != 0 || !strstr(err.message, message))
        fail_msg("%s: field %s, \"%s\"; wanted %s, \"%s\"", settings, err.field, err.message, field, message);
    assert_null(s);
    assert_false(exists(in_folder("refused")));
}

static void test_refused(void **state) {
    (void)state;
    refuses("model=", "model", "model is missing: a new run needs the directory of a model");
    refuses("model=nowhere", "model", "model is \"nowhere\", which is not a directory: a local directory with");
    refuses("adapter=nowhere", "adapter", "adapter is \"nowhere\", which is not a directory");
    refuses("preset=grpo kl_ref_adapter_path=nowhere", "kl_ref_adapter_path",
            "kl_ref_adapter_path is \"nowhere\", which is not a directory");
    refuses("preset=grpo kl_penalty_reference_step=3", "kl_penalty_reference_step",
            "is 3: the run has no checkpoint of step 3; it has 0");
    refuses("samples=4", "samples", "samples has no effect");
    refuses("kl_penalty_step_lag=2", "kl_penalty_step_lag", "has no effect");
    refuses("lora_modules=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "lora_modules", "names more than 16 modules");
    sub_folder("empty");
    char text[1100];
    snprintf(text, sizeof text, "preset=grpo kl_ref_adapter_path=%s", in_folder("empty"));
    rein_session *s;
    REFUSED(rein_session_prepare(&s, in_folder("refused"), NULL, settings_of(text), &error_), "empty/adapter_config.json");
}

/* Directories that cannot be that of a run. */
static void test_places(void **state) {
    (void)state;
    rein_session *s;
    const rein_settings *o = settings_of("preset=grpo");
    const uint64_t before = fingerprint(in_folder("a"));
    REFUSED(rein_session_prepare(&s, in_folder("a"), NULL, o, &error_), "a is not a run, and not empty");
    REFUSED(rein_session_prepare(&s, in_folder("a/config.json"), NULL, o, &error_), "config.json is a file: a run is a directory");
    REFUSED(rein_session_prepare(&s, "", NULL, o, &error_), "the name of a run is empty");
    assert_true(before == fingerprint(in_folder("a")) && !rein_run_exists(in_folder("a")));
}

/* ------------------------------------------------------------------------------------------------------------------------ groups */

static void group_refused(const rein_session *s, const rein_groups *groups, const char *field, int index, const char *message) {
    rein_error err = {0};
    rein_loss loss;
    assert_int_equal(rein_session_check(&loss, s, groups, "some.jsonl", &err), REIN_EINVAL);
    assert_string_equal(err.message, message);
    assert_string_equal(err.field, field);
    assert_int_equal(err.index, index);
}

static void test_groups(void **state) {
    (void)state;
    static const char place[] = "groups[1].trajectories[1].histories", ids[] = "groups[1].trajectories[1].histories[0].ids";
    rein_groups groups = make_groups(3, 7);
    rein_history *h = groups.groups[1].trajectories[1].histories;
    rein_session *s = prepared("groups", "preset=grpo minibatches=2");
    const long long positions = rein_model_describe(rein_session_policy(s).model).max_positions;
    rein_loss loss;
    char message[300];
    OK(rein_session_check(&loss, s, &groups, "some.jsonl", &error_));
    const int32_t id = h->ids[1];
    h->ids[1] = TINY_VOCABULARY;
    snprintf(message, sizeof message, "some.jsonl: %s[1] is %d: the model's tokens are 0 to %d", ids, TINY_VOCABULARY,
             TINY_VOCABULARY - 1);
    group_refused(s, &groups, ids, 1, message);
    h->ids[1] = -1;
    snprintf(message, sizeof message, "some.jsonl: %s[1] is -1: the model's tokens are 0 to %d", ids, TINY_VOCABULARY - 1);
    group_refused(s, &groups, ids, 1, message);
    h->ids[1] = id;
    const size_t n = h->n;
    h->n = (size_t)positions + 1;
    snprintf(message, sizeof message, "some.jsonl: %s[0] has %lld tokens: the model has %lld positions", place, positions + 1,
             positions);
    group_refused(s, &groups, place, 0, message);
    h->n = n;
    group_refused(s, &(rein_groups){groups.groups, 1, 0}, "minibatches", -1, "minibatches is 2: there are only 1 groups");
    groups.groups[2].trajectories[0].reward = NAN;
    group_refused(s, &groups, "groups[2].trajectories[0].reward", -1,
                  "some.jsonl: groups[2].trajectories[0].reward is nan: a finite number is needed");
    assert_false(exists(in_folder("groups")));
    rein_session_close(s), rein_groups_free(&groups);
}

/* What the objective needs, and what is known before a log-prob is computed: the numbers of the step that follows. */
static void test_objective(void **state) {
    (void)state;
    rein_groups groups = make_groups(4, 7);
    rein_session *s = prepared("mismatch", "preset=art mismatch=token-tis tis_cap=2");
    rein_loss loss;
    REFUSED(rein_session_check(&loss, s, &groups, "some.jsonl", &error_), "have no recorded log-prob");
    EACH_HISTORY(h, &groups) for (size_t k = 0; k < h->n; k++) h->log_probs[k] = -800; /* its exponential is 0 */
    OK(rein_session_check(&loss, s, &groups, "some.jsonl", &error_));
    groups.groups[0].trajectories[0].histories[0].log_probs[groups.groups[0].trajectories[0].histories[0].n - 1] = 1;
    REFUSED(rein_session_check(&loss, s, &groups, "some.jsonl", &error_), "log_probs[5] is 1: a log-probability");
    rein_session_close(s);
    EACH_HISTORY(h, &groups) for (size_t k = 0; k < h->n; k++) h->log_probs[k] = NAN;
    s = prepared("shaped", "preset=k2 tau=0.3 token_budget=4 budget_penalty_coef=0.1 mask_truncated_completions=yes");
    OK(rein_session_check(&loss, s, &groups, "some.jsonl", &error_));
    const rein_loss again = loss;
    OK(rein_session_begin(s, &error_));
    OK(rein_session_check(&loss, s, &groups, "some.jsonl", &error_));
    assert_true(loss.metrics.reward == again.metrics.reward && !loss.nothing_to_train);
    rein_session_report report;
    OK(rein_session_train(&report, s, &groups, NULL, &error_));
    for (size_t i = 0; i < report.n; i++) {
        if (!strcmp(report.metrics[i].name, "reward")) assert_true(report.metrics[i].value == loss.metrics.reward);
        if (!strcmp(report.metrics[i].name, "tokens/trained")) assert_true(report.metrics[i].value == loss.metrics.trained_tokens);
        if (!strcmp(report.metrics[i].name, "frac_reward_zero_std"))
            assert_true(report.metrics[i].value == loss.metrics.frac_reward_zero_std);
    }
    rein_session_close(s);
    s = prepared("critic", "preset=ppo");
    REFUSED(rein_session_check(&loss, s, &groups, "some.jsonl", &error_), "values");
    add_values(&groups);
    OK(rein_session_check(&loss, s, &groups, "some.jsonl", &error_));
    rein_session_close(s), rein_groups_free(&groups);
}

/* The check leaves no trace: a run in which every step was checked first is the same to the bit. */
static void test_check_leaves_no_trace(void **state) {
    (void)state;
    static const char *const runs[] = {"unchecked", "checked"};
    rein_groups groups = make_groups(4, 9);
    for (size_t i = 0; i < 2; i++) {
        rein_session *s = prepared(runs[i], "preset=grpo epochs=2");
        rein_loss loss;
        OK(rein_session_begin(s, &error_));
        for (int step = 0; step < 2; step++) {
            if (i) OK(rein_session_check(&loss, s, &groups, "groups", &error_));
            train(s, &groups);
        }
        rein_session_close(s);
    }
    assert_same_runs(runs[0], runs[1], 2);
    rein_groups_free(&groups);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves), cmocka_unit_test(test_stopped_early), cmocka_unit_test(test_nothing_written),
        cmocka_unit_test(test_order),  cmocka_unit_test(test_refused),       cmocka_unit_test(test_places),
        cmocka_unit_test(test_groups), cmocka_unit_test(test_objective),     cmocka_unit_test(test_check_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, make_folder_of_models, remove_folder);
}
