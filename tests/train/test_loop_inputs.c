/* test_loop_inputs.c - reward functions and examples that the calling program has: a run with them is a run like any other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/loop_fixture.h"

/* Counts digits, and what it was given. */
typedef struct seen {
    size_t calls, responses, with_ids;
} seen;

static rein_status give_digits(void *context, double *rewards, const rein_response *responses, size_t n, rein_error *err) {
    seen *s = context;
    (void)err;
    s->calls++, s->responses += n;
    for (size_t i = 0; i < n; i++) {
        s->with_ids += responses[i].ids && responses[i].n_ids == responses[i].tokens;
        rewards[i] = responses[i].length && strpbrk(responses[i].text, "0123456789") ? 1 : 0;
    }
    return REIN_OK;
}

/* Applies to prompts with an even number only: "Q0:", "Q2:", … */
static rein_status give_even(void *context, double *rewards, const rein_response *responses, size_t n, rein_error *err) {
    (void)context, (void)err;
    for (size_t i = 0; i < n; i++) rewards[i] = (responses[i].example->prompt[1] - '0') % 2 == 0 ? 0.25 : (double)NAN;
    return REIN_OK;
}

static rein_status give_up(void *context, double *rewards, const rein_response *responses, size_t n, rein_error *err) {
    (void)context, (void)rewards, (void)responses, (void)n;
    return rein_fail(err, REIN_EINVAL, "the judge is tired");
}

static rein_loop *open_with_inputs(const char *run, const rein_settings *s, const rein_task_inputs *inputs) {
    const rein_loop_options options = {.inputs = inputs};
    rein_loop *loop;
    OK(rein_loop_open(&loop, in_folder(run), s, &options, &error_));
    return loop;
}

static void finish(rein_loop *loop) {
    while (!rein_loop_done(loop)) make_steps(loop, 1);
    OK(rein_loop_finish(loop, &error_));
    rein_loop_close(loop);
}

/* The texts of six.jsonl and held.jsonl. */
typedef struct lists {
    char *six, *held;
    rein_task_text texts[2];
} lists;

static lists read_lists(void) {
    lists l = {.six = text_of(in_folder("six.jsonl")), .held = text_of(in_folder("held.jsonl"))};
    l.texts[0] = (rein_task_text){"six", l.six, strlen(l.six)};
    l.texts[1] = (rein_task_text){"held", l.held, strlen(l.held)};
    return l;
}

static void free_lists(lists *l) { free(l->six), free(l->held); }

/* A function that computes what regex:[0-9] does, and examples in memory, give the same weights as the judge and the files. */
static void test_as_built_in(void **state) {
    (void)state;
    seen s = {0};
    lists l = read_lists();
    const rein_reward_function function = {"regex", give_digits, &s};
    const rein_task_inputs inputs = {&function, 1, l.texts, 2};
    run_all("built-in", "reward=regex:[0-9]|steps=2");
    finish(
        open_with_inputs("given", settings_of("reward=function:regex|task=examples:six|eval_task=examples:held|steps=2"), &inputs));
    for (size_t step = 0; step <= 2; step++)
        assert_true(same_file(checkpoint("built-in", step, "adapter_model.safetensors"),
                              checkpoint("given", step, "adapter_model.safetensors")));
    assert_same_history("built-in", "given");
    assert_true(same_file(in_run("built-in", "evaluations.jsonl"), in_run("given", "evaluations.jsonl")));
    assert_true(s.calls > 2 && s.with_ids == s.responses);
    free_lists(&l);
}

/* A run resumes bit for bit with the same inputs; without them it is refused, and stays as it was. */
static void test_resumes(void **state) {
    (void)state;
    seen s = {0};
    lists l = read_lists();
    const rein_reward_function function = {"digits", give_digits, &s};
    const rein_task_inputs inputs = {&function, 1, l.texts, 2}, no_function = {NULL, 0, l.texts, 2},
                           no_texts = {&function, 1, NULL, 0};
    const char *text = "reward=function:digits|task=examples:six|eval_task=examples:held|steps=2";
    finish(open_with_inputs("whole", settings_of(text), &inputs));
    rein_loop *loop = open_with_inputs("parts", settings_of(text), &inputs);
    make_steps(loop, 1);
    rein_loop_close(loop);
    rein_error err = {0};
    const rein_loop_options without[] = {{.inputs = &no_function}, {.inputs = &no_texts}, {0}};
    for (size_t i = 0; i < COUNT(without); i++) {
        assert_int_equal(rein_loop_open(&loop, in_folder("parts"), new_settings(), &without[i], &err), REIN_EINVAL);
        assert_null(loop);
        assert_string_equal(
            err.message, i == 0
                             ? "reward \"function:digits\" is a function of the program that calls the library, and this one has "
                               "no function of that name"
                             : "the task was a list of examples in the memory of the program that started the run: give the list "
                               "again (in Python task=[...])");
    }
    finish(open_with_inputs("parts", new_settings(), &inputs));
    for (size_t step = 0; step <= 2; step++) assert_same_policies("whole", "parts", step, 0);
    assert_same_history("whole", "parts");
    free_lists(&l);
}

/* A judge that does not apply to a completion is left out of its sum and of the metric; null stands in the trajectories. */
static void test_does_not_apply(void **state) {
    (void)state;
    seen s = {0};
    const rein_reward_function functions[] = {{"digits", give_digits, &s}, {"even", give_even, NULL}};
    const rein_task_inputs inputs = {functions, 2, NULL, 0};
    size_t nulls = 0;
    rein_loop *loop = open_with_inputs("some", settings_of("reward=function:digits;function:even|steps=1|prompts=6"), &inputs);
    const rein_loop_report report = step_of(loop);
    assert_true(metric(&report, "rewards/even/mean") == 0.25);
    rein_loop_close(loop);
    json_t *lines = lines_of("some", "trajectories/train/0001.jsonl");
    assert_int_equal(json_array_size(lines), 6);
    for (size_t g = 0; g < 6; g++) {
        const json_t *t = json_array_get(json_object_get(json_array_get(lines, g), "trajectories"), 0);
        const json_t *metrics = json_object_get(t, "metrics");
        const double digits = json_number_value(json_object_get(metrics, "digits"));
        const int applies = !json_is_null(json_object_get(metrics, "even"));
        nulls += !applies;
        assert_true(json_number_value(json_object_get(t, "reward")) == digits + (applies ? 0.25 : 0));
    }
    assert_int_equal(nulls, 3);
    json_decref(lines);
}

static void fails_with(const char *text, const rein_reward_function *function, const char *wanted) {
    const rein_task_inputs inputs = {function, 1, NULL, 0};
    rein_loop_report report;
    rein_error err = {0};
    char run[40];
    snprintf(run, sizeof run, "failing-%s", function->name);
    rein_loop *loop = open_with_inputs(run, settings_of(text), &inputs);
    assert_int_not_equal(rein_loop_step(&report, loop, &err), REIN_OK);
    if (strncmp(err.message, wanted, strlen(wanted)) != 0) fail_msg("\"%s\", not \"%s\"", err.message, wanted);
    rein_loop_close(loop);
}

/* A function that fails, or that leaves a completion without any reward, ends the step with its message. */
static void test_failures(void **state) {
    (void)state;
    fails_with("reward=function:tired", &(rein_reward_function){"tired", give_up, NULL}, "tired: the judge is tired");
    fails_with("reward=function:even|prompts=6", &(rein_reward_function){"even", give_even, NULL}, "reward: response ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_built_in),
        cmocka_unit_test(test_resumes),
        cmocka_unit_test(test_does_not_apply),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, start, remove_folder);
}
