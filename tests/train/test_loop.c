/* test_loop.c - the loop: on policy bit for bit, resumed bit for bit, and everything it did readable afterwards. */
#define _GNU_SOURCE /* memmem */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/loop_fixture.h"

/* ------------------------------------------------------------------------------------------------------------- what a run leaves */

static void has_keys(const json_t *object, const char *const *keys, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!json_object_get(object, keys[i])) fail_msg("%s is missing", keys[i]);
    assert_int_equal(json_object_size(object), n);
}

/* One response as the trajectories have it: texts, token by token, and who said what. */
static void check_trajectory(const json_t *t, size_t step, int trained) {
    const json_t *metadata = json_object_get(t, "metadata"), *pieces = json_object_get(metadata, "pieces");
    const json_t *ids = json_object_get(t, "response_ids"), *advantages = json_object_get(t, "advantages");
    const double task = json_number_value(json_object_get(json_object_get(t, "metrics"), "task"));
    char text[200] = "";
    assert_non_null(strstr(json_string_value(json_object_get(metadata, "prompt")), "Q:"));
    assert_true(json_is_string(json_object_get(metadata, "answer")));
    assert_int_equal(json_array_size(pieces), json_array_size(ids));
    for (size_t i = 0; i < json_array_size(pieces); i++) strcat(text, json_string_value(json_array_get(pieces, i)));
    assert_int_equal(json_array_size(json_object_get(t, "logprobs")), json_array_size(ids));
    assert_int_equal(json_array_size(advantages), trained ? json_array_size(ids) : 0);
    assert_int_equal(advantages != NULL, trained);
    assert_int_equal(json_integer_value(json_object_get(t, "policy_step")), step);
    assert_true(json_number_value(json_object_get(t, "reward")) == task);
    assert_true(json_number_value(json_object_get(json_object_get(t, "metrics"), "accuracy")) == (task >= 1));
    assert_int_equal(json_is_true(json_object_get(t, "truncated")), json_array_size(ids) == 24);
    rein_task *sums; /* the text that was rewarded is that of the pieces */
    const char *answer = json_string_value(json_object_get(metadata, "answer"));
    OK(rein_task_open(&sums, "sums", &(rein_task_options){.seed = 1}, &error_));
    const rein_example example = {.prompt = json_string_value(json_object_get(metadata, "prompt")), .answer = answer};
    assert_true(rein_task_verify(sums, &example, text, strlen(text)) == task);
    rein_task_close(sums);
}

static void check_trajectories(const char *file, size_t step, size_t groups, size_t samples, int trained) {
    json_t *lines = lines_of("shipped", file);
    assert_int_equal(json_array_size(lines), groups);
    for (size_t g = 0; g < groups; g++) {
        const json_t *trajectories = json_object_get(json_array_get(lines, g), "trajectories");
        assert_int_equal(json_array_size(trajectories), samples);
        for (size_t k = 0; k < samples; k++) check_trajectory(json_array_get(trajectories, k), step, trained);
    }
    json_decref(lines);
}

static void check_evaluations(void) {
    static const int64_t steps[] = {0, 2, 3};
    json_t *lines = lines_of("shipped", "evaluations.jsonl"), *history = lines_of("shipped", "history.jsonl");
    static const char *const names[] = {"step",
                                        "eval/accuracy",
                                        "eval/accuracy_low",
                                        "eval/accuracy_high",
                                        "eval/reward",
                                        "eval/mean_length",
                                        "eval/kl",
                                        "eval/kl_policy_ref",
                                        "eval/share_over_budget",
                                        "eval/prompts",
                                        "eval/clipped_ratio",
                                        "eval/greedy_accuracy",
                                        "eval/greedy_mean_length",
                                        "eval/samples",
                                        "eval/pass_at_k"};
    assert_int_equal(json_array_size(lines), 3);
    for (size_t i = 0; i < 3; i++) {
        has_keys(json_array_get(lines, i), names, COUNT(names));
        assert_true(value_of(lines, i, "step") == (double)steps[i]);
        assert_true(value_of(lines, i, "eval/prompts") == 3 && value_of(lines, i, "eval/samples") == 2);
        for (size_t k = 1; k < COUNT(names) && i > 0; k++) /* the line of the step says the same */
            if (!strstr("eval/prompts eval/samples", names[k]))
                assert_true(value_of(history, (size_t)steps[i] - 1, names[k]) == value_of(lines, i, names[k]));
    }
    assert_true(value_of(lines, 0, "eval/kl") == 0 && value_of(lines, 0, "eval/kl_policy_ref") == 0); /* the policy of step 0 */
    for (size_t i = 1; i < 3; i++) assert_true(value_of(lines, i, "eval/kl") > 0 && value_of(lines, i, "eval/kl_policy_ref") != 0);
    assert_true(isnan(value_of(history, 0, "eval/accuracy"))); /* step 1 was not evaluated */
    json_decref(lines), json_decref(history);
}

static void check_summary(const rein_loop *loop) {
    static const char *const all[] = {"base", "final", "budget", "steps", "seconds", "on_policy_max_gap"};
    static const char *const side[] = {
        "accuracy", "accuracy_low", "accuracy_high", "mean_length", "share_over_budget", "greedy_accuracy", "n", "kl"};
    const rein_loop_evaluation *sides[] = {rein_loop_first(loop), rein_loop_last(loop)};
    json_t *summary;
    OK(rein_json_read(&summary, in_run("shipped", "summary.json"), REIN_JSON_NEEDS_OBJECT, &error_));
    has_keys(summary, all, COUNT(all));
    has_keys(json_object_get(summary, "base"), side, COUNT(side) - 1);
    has_keys(json_object_get(summary, "final"), side, COUNT(side));
    for (size_t i = 0; i < 2; i++) {
        const json_t *of = json_object_get(summary, all[i]);
        assert_true(json_number_value(json_object_get(of, "accuracy")) == sides[i]->sampled.accuracy);
        assert_true(json_number_value(json_object_get(of, "mean_length")) == sides[i]->sampled.mean_length);
        assert_true(json_integer_value(json_object_get(of, "n")) == 6);
    }
    assert_true(json_number_value(json_object_get(json_object_get(summary, "final"), "kl")) == sides[1]->kl);
    assert_true(json_number_value(json_object_get(summary, "budget")) == 20 &&
                json_integer_value(json_object_get(summary, "steps")) == 3);
    assert_true(json_number_value(json_object_get(summary, "on_policy_max_gap")) == 0);
    json_decref(summary);
}

typedef struct told {
    size_t phases[3];
} told;
static void tell(void *context, rein_phase phase, size_t done, size_t all) {
    assert_true((int)phase >= 0 && phase <= REIN_PHASE_EVALUATING && done <= all);
    ((told *)context)->phases[phase]++;
}

static void check_before_after(const rein_loop *loop) {
    rein_before_after sample;
    size_t changed = 0;
    for (size_t i = 0; i < 3; i++) {
        assert_true(rein_loop_sample(&sample, loop, i));
        assert_non_null(strstr(sample.prompt, "Q:"));
        assert_true(sample.tokens_before > 0 && sample.tokens_after > 0 && sample.right_before + sample.right_after <= 2);
        changed += strcmp(sample.before, sample.after) != 0;
    }
    assert_true(changed > 0);
    assert_false(rein_loop_sample(&sample, loop, 3));
}

/* How often the event files of a run have a tag. */
static size_t events_with(const char *run, const char *tag) {
    glob_t found;
    size_t n = 0, size;
    char *bytes;
    assert_int_equal(glob(in_run(run, "tensorboard/events.*"), 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        assert_int_equal(rein_file_read(&bytes, &size, found.gl_pathv[i]), 0);
        for (const char *at = bytes; (at = memmem(at, size - (size_t)(at - bytes), tag, strlen(tag))); at++) n++;
        free(bytes);
    }
    globfree(&found);
    return n;
}

/* The shipped model: three steps, evaluated at 0, 2 and 3. */
static void test_shipped(void **state) {
    (void)state;
    told heard = {{0}};
    int trained = 0;
    const rein_loop_options options = {.progress = tell, .context = &heard};
    rein_loop *loop;
    rein_settings *s = new_settings();
    set_all(s, "preset=k2|token_budget=20|budget_penalty_coef=0.02|tau=0.5|task=sums|prompts=4|samples=3|max_tokens=24|steps=3|"
               "eval_prompts=3|eval_samples=2|eval_steps=2|learning_rate=0.02|model=models/sums");
    OK(rein_loop_open(&loop, in_folder("shipped"), s, &options, &error_));
    assert_true(!rein_loop_first(loop) && !rein_loop_last(loop) && !rein_loop_done(loop));
    for (int64_t i = 1; i <= 3; i++) {
        const rein_loop_report report = step_of(loop);
        assert_true(metric(&report, "on_policy/max_gap") == 0); /* exactly */
        trained += !report.trained.nothing_to_train;            /* so few responses may be all alike */
        if (!report.trained.nothing_to_train) assert_true(metric(&report, "ratio/min") == 1 && metric(&report, "ratio/max") == 1);
        assert_true(metric(&report, "accuracy") == metric(&report, "rewards/task/mean"));
        assert_true(report.trained.step == i && report.evaluated == (i > 1) && report.done == (i == 3));
        assert_true(!*report.stopped && !*report.judge_log);
    }
    assert_true(trained > 0);
    assert_true(rein_loop_first(loop)->step == 0 && rein_loop_last(loop)->step == 3 && rein_loop_done(loop));
    rein_loop_report report;
    rein_error err = {0};
    assert_int_equal(rein_loop_step(&report, loop, &err), REIN_EINVAL);
    assert_string_equal(err.message, "the run has made its 3 steps");
    OK(rein_loop_finish(loop, &error_));
    check_summary(loop);
    check_before_after(loop);
    assert_true(heard.phases[0] > 3 && heard.phases[1] >= 3 && heard.phases[2] > 3);
    rein_loop_close(loop);
    check_trajectories("trajectories/train/0001.jsonl", 0, 4, 3, 1);
    check_trajectories("trajectories/train/0003.jsonl", 2, 4, 3, 1);
    check_trajectories("trajectories/eval/0000.jsonl", 0, 3, 2, 0);
    check_trajectories("trajectories/eval/0003.jsonl", 3, 3, 2, 0);
    assert_int_equal(access(in_run("shipped", "trajectories/eval/0001.jsonl"), F_OK), -1);
    check_evaluations();
    assert_int_equal(events_with("shipped", "eval/reward"), 3); /* the one before the first step too */
}

/* ------------------------------------------------------------------------------------------------------------------- on policy */

static void test_on_policy(void **state) {
    (void)state;
    static const char *const ways[] = {"full=no", "full=no|minibatches=2", "full=yes", "full=yes|minibatches=2|temperature=0.7",
                                       "full=no|no_sharing=yes|threads=2"};
    for (size_t i = 0; i < COUNT(ways); i++) {
        char name[20];
        snprintf(name, sizeof name, "on%zu", i);
        rein_loop *loop = open_loop(name, ways[i]);
        for (size_t k = 0; k < 3; k++) {
            const rein_loop_report report = step_of(loop);
            if (metric(&report, "on_policy/max_gap") != 0) fail_msg("%s, step %zu: there is a gap", ways[i], k + 1);
            if (k > 0) assert_false(report.trained.nothing_to_train);
        }
        rein_loop_close(loop);
    }
}

/* ----------------------------------------------------------------------------------------------------------------- evaluations */

/* Two evaluations of the same policy agree; the evaluated prompts do not depend on those it trained on. */
static void test_evaluations_repeat(void **state) {
    (void)state;
    const rein_settings *s = settings_of("eval_samples=3");
    rein_loop *loop = open_with("repeat", s);
    make_steps(loop, 1);
    const rein_policy policy = rein_session_policy(rein_loop_session(loop));
    rein_evaluation figures[3];
    rein_task_runner *runner;
    for (size_t i = 0; i < 3; i++) {
        rein_groups r;
        if (i != 1) OK(rein_task_runner_open(&runner, s, policy.model, NULL, &error_)); /* the second time, of the same one */
        OK(rein_task_runner_evaluate(&r, runner, &policy, 0, NULL, NULL, NULL, &error_));
        figures[i] = rein_evaluate(&r, 4);
        for (size_t k = 0; k < 3; k++) assert_int_equal(r.groups[k].example.prompt[1], '0' + k);
        rein_groups_free(&r);
        if (i != 0) rein_task_runner_close(runner);
        assert_memory_equal(&figures[i], &figures[0], sizeof figures[0]);
    }
    assert_true(figures[0].n == 9 && figures[0].samples == 3);
    OK(rein_loop_evaluate(loop, &error_)); /* the loop says the same */
    assert_true(rein_loop_last(loop)->step == 1 && rein_loop_last(loop)->sampled.accuracy == figures[0].accuracy);
    assert_true(rein_loop_last(loop)->sampled.mean_length == figures[0].mean_length);
    OK(rein_loop_evaluate(loop, &error_)); /* once is enough */
    rein_loop_close(loop);
    json_t *lines = lines_of("repeat", "evaluations.jsonl");
    assert_int_equal(json_array_size(lines), 2);
    json_decref(lines);
}

/* Figures of earlier sessions are known again. */
static void test_evaluations_are_read_again(void **state) {
    (void)state;
    rein_loop *loop = open_loop("recall", "eval_steps=1|eval_samples=2");
    make_steps(loop, 2);
    const rein_loop_evaluation first = *rein_loop_first(loop), last = *rein_loop_last(loop);
    rein_loop_close(loop);
    loop = go_on("recall");
    const rein_loop_evaluation *again[] = {rein_loop_first(loop), rein_loop_last(loop)}, *before[] = {&first, &last};
    for (size_t i = 0; i < 2; i++) {
        assert_true(again[i]->step == before[i]->step && again[i]->kl == before[i]->kl);
        assert_memory_equal(&again[i]->sampled, &before[i]->sampled, sizeof first.sampled);
        assert_true(again[i]->greedy.accuracy == before[i]->greedy.accuracy &&
                    again[i]->greedy.mean_length == before[i]->greedy.mean_length);
    }
    rein_before_after sample;
    assert_false(rein_loop_sample(&sample, loop, 0)); /* the texts are in trajectories/eval */
    rein_loop_close(loop);
}

/* ----------------------------------------------------------------------------------------------------------------------- resume */

static const char EVERYTHING[] =
    "budget_target=3|budget_rate=0.01|temperature_final=0.5|dynamic_sampling=2|ptx_data=@/taught.jsonl|ptx_coef=0.3|"
    "ptx_batch=4|epochs=2|minibatches=2|lr_scheduler_type=linear|steps=4|eval_samples=2|kl_penalty_coef=0.1";

static void assert_same_runs(const char *whole, const char *part, size_t n, size_t every, int full) {
    char name[100];
    for (size_t step = 0; step <= n; step += every) assert_same_policies(whole, part, step, full);
    assert_same_history(whole, part);
    for (size_t step = 0; step <= n; step++) {
        snprintf(name, sizeof name, "trajectories/train/%04zu.jsonl", step);
        if (step && !same_file(in_run(whole, name), in_run(part, name))) fail_msg("%s: %s differs", part, name);
        snprintf(name, sizeof name, "trajectories/eval/%04zu.jsonl", step);
        if (step % 2 == 0 && !same_file(in_run(whole, name), in_run(part, name))) fail_msg("%s: %s differs", part, name);
    }
    assert_true(same_file(in_run(whole, "evaluations.jsonl"), in_run(part, "evaluations.jsonl")));
}

/* n steps, or k, the end, and n − k: the same bytes, whatever is on. */
static void test_resume(void **state) {
    (void)state;
    char settings[1000];
    enum { N = 4 };
    for (int full = 0; full < 2; full++) {
        snprintf(settings, sizeof settings, "%s|keep_last=0|full=%s", EVERYTHING, full ? "yes" : "no");
        const char *whole = full ? "whole-full" : "whole";
        run_all(whole, settings);
        for (size_t k = 1; k < N; k++) {
            char part[20];
            if (quick() && full && k != 2) continue;
            snprintf(part, sizeof part, "part%d%zu", full, k);
            rein_loop *loop = open_loop(part, settings);
            make_steps(loop, k);
            rein_loop_close(loop); /* without an end: as if it was killed */
            loop = go_on(part);
            assert_int_equal(rein_session_step(rein_loop_session(loop)), k);
            make_steps(loop, N - k);
            OK(rein_loop_finish(loop, &error_));
            rein_loop_close(loop);
            assert_same_runs(whole, part, N, 1, full);
        }
    }
}

/* Steps after the last checkpoint are made again, and are the same. */
static void test_resume_between_checkpoints(void **state) {
    (void)state;
    char settings[1000];
    snprintf(settings, sizeof settings, "%s|save_steps=2", EVERYTHING);
    run_all("sparse", settings);
    rein_loop *loop = open_loop("sparse-part", settings);
    make_steps(loop, 3);
    rein_loop_close(loop);
    loop = go_on("sparse-part");
    assert_int_equal(rein_session_step(rein_loop_session(loop)), 2);
    make_steps(loop, 2);
    OK(rein_loop_finish(loop, &error_));
    rein_loop_close(loop);
    assert_same_runs("sparse", "sparse-part", 4, 2, 0);
}

/* An evaluation of a step that did not come to its checkpoint is forgotten; a file that was left unfinished is cleared away. */
static void test_resume_after_an_evaluation(void **state) {
    (void)state;
    run_all("told", "steps=2");
    rein_loop *loop = open_loop("killed", "steps=2");
    make_steps(loop, 1);
    rein_loop_close(loop);
    char *lines = text_of(in_run("told", "evaluations.jsonl")); /* that of step 2, too */
    put("killed/evaluations.jsonl", lines);
    put("killed/trajectories/eval/.0002.jsonl-1-0.tmp", "{");
    free(lines);
    loop = go_on("killed");
    assert_true(rein_loop_last(loop)->step == 0);
    make_steps(loop, 1);
    rein_loop_close(loop);
    assert_true(same_file(in_run("told", "evaluations.jsonl"), in_run("killed", "evaluations.jsonl")));
    assert_int_equal(access(in_run("killed", "trajectories/eval/.0002.jsonl-1-0.tmp"), F_OK), -1);
}

/* ------------------------------------------------------------------------------------------------------------ seeds and threads */

static void test_seeds_and_threads(void **state) {
    (void)state;
    run_all("seed1", "threads=1|steps=2");
    run_all("seed1-again", "threads=2|steps=2");
    run_all("seed1-computes", "activation_cache=0|steps=2");
    run_all("seed2", "seed=2|steps=2");
    assert_same_policies("seed1", "seed1-again", 2, 0);
    assert_same_history("seed1", "seed1-again");
    assert_same_policies("seed1", "seed1-computes", 2, 0);
    assert_same_history("seed1", "seed1-computes");
    assert_false(same_file(in_run("seed1", "trajectories/train/0001.jsonl"), in_run("seed2", "trajectories/train/0001.jsonl")));
    assert_false(same_file(in_run("seed1", "trajectories/eval/0000.jsonl"), in_run("seed2", "trajectories/eval/0000.jsonl")));
    assert_false(
        same_file(checkpoint("seed1", 2, "adapter_model.safetensors"), checkpoint("seed2", 2, "adapter_model.safetensors")));
}

/* Training takes what the loop sampled from the cache; evaluations put nothing there. */
static void test_activation_cache(void **state) {
    (void)state;
    rein_loop *loop = open_loop("caches", "steps=2|eval_steps=1"), *computes = open_loop("computes", "steps=2|activation_cache=0");
    const rein_activation_cache *cache = rein_session_activation_cache(rein_loop_session(loop));
    assert_true(cache && rein_activation_cache_tokens(cache) == 0);
    for (int i = 0; i < 2; i++) {
        const rein_loop_report report = step_of(loop);
        const double tokens = metric(&report, "num_tokens") / (i + 1);
        assert_true(rein_activation_cache_tokens(cache) > 0 && (double)rein_activation_cache_tokens(cache) < tokens);
    }
    make_steps(computes, 1);
    assert_null(rein_session_activation_cache(rein_loop_session(computes)));
    rein_loop_close(loop), rein_loop_close(computes);
}

/* Steps in which nothing trains do not change the policy, and what they sampled is dropped all the same. */
static void test_nothing_cached(void **state) {
    (void)state;
    rein_loop *loop = open_loop("idle", "preset=dr-grpo|max_response_length=8|steps=3|reward=length:1000");
    const rein_activation_cache *cache = rein_session_activation_cache(rein_loop_session(loop));
    for (int i = 0; i < 3; i++) {
        const rein_loop_report report = step_of(loop);
        assert_true(report.trained.nothing_to_train && rein_activation_cache_tokens(cache) == 0);
    }
    rein_loop_close(loop);
}

/* ----------------------------------------------------------------------------------------------------------------------- epochs */

/* The prompts of a step, as the digits they have. */
static void asked_in(char *digits, const char *run, size_t step) {
    char name[100];
    snprintf(name, sizeof name, "trajectories/train/%04zu.jsonl", step);
    json_t *lines = lines_of(run, name);
    for (size_t g = 0; g < json_array_size(lines); g++) {
        const json_t *first = json_array_get(json_object_get(json_array_get(lines, g), "trajectories"), 0);
        const json_t *prompt = json_object_get(json_object_get(first, "metadata"), "prompt");
        const char digit[] = {json_string_value(prompt)[1], 0};
        strcat(digits, digit);
        const json_t *budget = json_object_get(first, "budget"); /* its own */
        assert_int_equal(json_integer_value(budget), digit[0] - '0' + 2);
    }
    json_decref(lines);
}

/* Six prompts, four a step: three steps are two epochs, each in an order of its own, and nothing is left out. */
static void test_epochs(void **state) {
    (void)state;
    char digits[20] = "";
    run_all("epochs", "steps=3");
    for (size_t step = 1; step <= 3; step++) asked_in(digits, "epochs", step);
    assert_int_equal(strlen(digits), 12);
    for (size_t epoch = 0; epoch < 2; epoch++)
        for (char digit = '0'; digit < '6'; digit++) assert_non_null(memchr(digits + 6 * epoch, digit, 6));
    assert_memory_not_equal(digits, digits + 6, 6);
    assert_memory_not_equal(digits, "012345", 6);
}

/* ------------------------------------------------------------------------------------------------------------------- two halves */

/* Prepare writes nothing; after begin the run is that of rein_loop_open. */
static void test_halves(void **state) {
    (void)state;
    rein_loop *loop;
    rein_loop_report report;
    run_all("in-one", "steps=2");
    for (int resumed = 0; resumed < 2; resumed++) {
        OK(rein_loop_prepare(&loop, in_folder("in-two"), resumed ? new_settings() : settings_of("steps=2"), NULL, &error_));
        const rein_session *session = rein_loop_session(loop);
        assert_true(rein_session_is_new(session) == !resumed && (access(in_folder("in-two"), F_OK) == 0) == resumed);
        assert_true(rein_settings_number(rein_session_settings(session), "steps") == 2);
        rein_error err = {0};
        assert_int_equal(rein_loop_step(&report, loop, &err), REIN_EINVAL);
        assert_string_equal(err.message, "the run has not started: call rein_session_begin or rein_loop_begin first");
        assert_int_equal(rein_loop_evaluate(loop, &err), REIN_EINVAL);
        assert_int_equal(rein_loop_finish(loop, &err), REIN_EINVAL);
        OK(rein_loop_begin(loop, &error_));
        assert_int_equal(rein_loop_begin(loop, &err), REIN_EINVAL);
        assert_string_equal(err.message, "the run has started already");
        make_steps(loop, 1);
        OK(rein_loop_finish(loop, &error_));
        rein_loop_close(loop);
    }
    for (size_t step = 0; step <= 2; step++) assert_same_policies("in-one", "in-two", step, 0);
    assert_same_history("in-one", "in-two");
    assert_true(same_file(in_run("in-one", "evaluations.jsonl"), in_run("in-two", "evaluations.jsonl")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shipped),
        cmocka_unit_test(test_on_policy),
        cmocka_unit_test(test_evaluations_repeat),
        cmocka_unit_test(test_evaluations_are_read_again),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_between_checkpoints),
        cmocka_unit_test(test_resume_after_an_evaluation),
        cmocka_unit_test(test_seeds_and_threads),
        cmocka_unit_test(test_activation_cache),
        cmocka_unit_test(test_nothing_cached),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_halves),
    };
    return cmocka_run_group_tests(tests, start, remove_folder);
}
