/* test_task_program.c - tasks that are programs: what they are asked, what they may answer, and what is said when they do not. The programs
 * are lines of shell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rollout/task.h"

#include "support/allocation.h"

/* Answers with what it was asked, as the prompt. */
static const char echo[] = "while read -r line; do echo \"{\\\"prompt\\\": \\\"$(echo \"$line\" | sed 's/\"/\\\\\\\\\"/g')\\\", "
                           "\\\"answer\\\": 4, \\\"line\\\": $line}\"; done";

static rein_task *open_task(const char *command, uint64_t seed, double timeout) {
    const rein_task_options options = {.seed = seed, .timeout = timeout};
    rein_error err = {0};
    rein_task *task;
    if (rein_task_open(&task, command, &options, &err)) fail_msg("%s", err.message);
    return task;
}

/* What is said of train example 0; the message begins with the command, which is cut off here. */
static void fails(rein_task *task, rein_status wanted, const char *message) {
    rein_error err = {0};
    rein_example e = {.prompt = "x"};
    assert_int_equal(rein_task_example(&e, task, REIN_SPLIT_TRAIN, 0, &err), wanted);
    const char *place = strstr(err.message, ", train example 0"), *rest = place ? place + 17 : err.message;
    if (strncmp(err.message, "task \"", 6) != 0 || strcmp(rest, message) != 0)
        fail_msg("\"%s\" is said, not \"...%s\"", err.message, message);
    assert_true(!e.prompt && !e.json && !e.memory);
}

static void fails_alone(const char *command, double timeout, rein_status wanted, const char *message) {
    rein_task *task = open_task(command, 1, timeout);
    fails(task, wanted, message);
    rein_task_close(task);
}

/* ---------------------------------------------------------------------------------------------------------------------- answers */

static void test_request(void **state) {
    rein_task *task = open_task(echo, INT64_MAX, 0);
    rein_error err = {0};
    rein_example e;
    (void)state;
    assert_int_equal(rein_task_example(&e, task, REIN_SPLIT_TRAIN, 7, &err), REIN_OK);
    assert_string_equal(e.prompt, "{\"split\": \"train\", \"index\": 7, \"seed\": 9223372036854775807}");
    rein_example_free(&e);
    rein_task_close(task);
}

static void test_answers(void **state) {
    rein_task *task = open_task(echo, 3, 0);
    rein_error err = {0};
    rein_example e;
    (void)state;
    assert_string_equal(rein_task_name(task), echo);
    assert_true(rein_task_size(task, REIN_SPLIT_TRAIN) == SIZE_MAX && !rein_task_verifies(task));
    for (uint64_t i = 0; i < 20; i++) {
        char wanted[100];
        snprintf(wanted, sizeof wanted, "{\"split\": \"%s\", \"index\": %d, \"seed\": 3}", i % 2 ? "held_out" : "train",
                 (int)(i / 4));
        if (rein_task_example(&e, task, i % 2, i / 4, &err)) fail_msg("%s", err.message);
        assert_string_equal(e.prompt, wanted);
        assert_string_equal(e.answer, "4");
        assert_int_equal(e.budget, -1);
        json_t *object = json_loads(e.json, 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(object, "line"), "index")), i / 4);
        json_decref(object);
        assert_true(isnan(rein_task_verify(task, &e, "4", 1)));
        rein_example_free(&e);
    }
    rein_task_close(task);
}

/* The end of one split is not that of the other, and after an end there may be examples again. */
static void test_end(void **state) {
    rein_task *task = open_task("while read -r line; do case $line in *train*) echo '{\"end\": true}' ;; "
                                "*) echo '{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"end\": null}' ;; esac; done",
                                1, 0);
    rein_error err = {0};
    rein_example e;
    (void)state;
    fails(task, REIN_END, ": the program says that its examples ended before this one");
    assert_int_equal(rein_task_example(&e, task, REIN_SPLIT_HELD_OUT, 0, &err), REIN_OK);
    assert_int_equal(e.n_messages, 1);
    rein_example_free(&e);
    fails(task, REIN_END, ": the program says that its examples ended before this one");
    rein_task_close(task);
}

/* ----------------------------------------------------------------------------------------------------------------------- faults */

/* An object that is wrong is said, and the next one is asked for. */
static void test_wrong_fields(void **state) {
    rein_task *task =
        open_task("read -r x; echo '{\"prompt\": 7}'; read -r x; echo '{\"answer\": 7}'; read -r x; echo '{\"end\": "
                  "false}'; read -r x; echo '{\"prompt\": \"a\", \"end\": true}'; read -r x; echo '{\"prompt\": \"a\"}'",
                  1, 0);
    rein_error err = {0};
    rein_example e;
    (void)state;
    fails(task, REIN_EINVAL, ": prompt is 7: a text is needed");
    fails(task, REIN_EINVAL, ": prompt is missing: a text is needed, or messages in its place");
    fails(task, REIN_EINVAL, ": end is false: true is needed, or an example without end");
    fails(task, REIN_EINVAL, ": end is true: an example cannot stand beside it, {\"end\": true} alone is needed");
    assert_int_equal(rein_task_example(&e, task, REIN_SPLIT_TRAIN, 0, &err), REIN_OK);
    assert_string_equal(e.prompt, "a");
    rein_example_free(&e);
    rein_task_close(task);
}

static void test_no_json(void **state) {
    rein_task *task = open_task("while read -r x; do echo Loading; echo '{\"prompt\": \"a\"}'; done", 1, 0);
    (void)state;
    fails(task, REIN_EINVAL, " does not start with {: a JSON object is needed; the program wrote: Loading");
    fails(task, REIN_EIO, ": the program was given up after it failed");
    rein_task_close(task);
    fails_alone("read -r x; echo '{\"prompt\": \"a'; read -r x", 0, REIN_EINVAL,
                ": prompt (column 13): the line ends here, inside the JSON: a line holds a whole value; the program wrote: "
                "{\"prompt\": \"a");
    fails_alone("read -r x; echo; read -r x", 0, REIN_EINVAL, " is empty: a JSON object is needed; the program wrote: ");
    fails_alone("read -r x; printf '{\"\\033[2J\\n'; read -r x", 0, REIN_EINVAL,
                ", column 2: control character 0x1b near '\"'; the program wrote: {\"?[2J");
}

/* A second line for one request would be the answer to the next. */
static void test_unasked(void **state) {
    rein_task *task =
        open_task("read -r x; printf '{\"prompt\": \"a\"}\\n{\"prompt\": \"b\"}\\n'; while read -r x; do echo '{\"prompt\": "
                  "\"c\"}'; done",
                  1, 0);
    rein_error err = {0};
    rein_example e;
    (void)state;
    assert_int_equal(rein_task_example(&e, task, REIN_SPLIT_TRAIN, 0, &err), REIN_OK);
    rein_example_free(&e);
    fails(task, REIN_EIO, ": the program wrote before it was asked: {\"prompt\": \"b\"}");
    fails(task, REIN_EIO, ": the program was given up after it failed");
    rein_task_close(task);
}

static void test_ended(void **state) {
    (void)state;
    fails_alone("read -r x; exit 3", 0, REIN_EIO, ": the program ended with exit status 3");
    fails_alone("read -r x; echo 'no data' >&2; exit 1", 0, REIN_EIO,
                ": the program ended with exit status 1; the last line of its log: no data");
    rein_task *task = open_task("exit 0; true", 1, 0);
    fails(task, REIN_EIO, ": the program ended without answering; it must read requests from standard input (docs/rewards.md)");
    fails(task, REIN_EIO, ": the program was given up after it failed");
    rein_task_close(task);
    task = open_task("/nonexistent/program", 1, 0);
    rein_error err = {0};
    rein_example e;
    assert_int_equal(rein_task_example(&e, task, REIN_SPLIT_HELD_OUT, 5, &err), REIN_EIO);
    if (!strstr(err.message, "task \"/nonexistent/program\", held-out example 5: the program ended with exit status 127; the last "
                             "line of its log: "))
        fail_msg("%s", err.message);
    rein_task_close(task);
}

static void test_slow(void **state) {
    struct timespec begin, end;
    (void)state;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    fails_alone("read -r x; sleep 100", 0.1, REIN_EIO, ": the program did not answer within 0.1 seconds");
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - begin.tv_sec < 20); /* and nothing waits for the sleep */
}

/* A long command is shown by its beginning. */
static void test_long_command(void **state) {
    char command[3000] = "exit 4; echo ";
    rein_error err = {0};
    rein_example e;
    (void)state;
    memset(command + strlen(command), 'x', sizeof command - strlen(command) - 1);
    rein_task *task = open_task(command, 1, 0);
    assert_int_equal(rein_task_example(&e, task, REIN_SPLIT_TRAIN, UINT64_MAX, &err), REIN_EIO);
    assert_non_null(strstr(err.message, "task \"exit 4; echo xxx"));
    assert_non_null(strstr(err.message, "…\", train example 18446744073709551615: the program ended with exit status 4"));
    rein_task_close(task);
}

static void test_options(void **state) {
    rein_error err = {0};
    rein_task *task;
    (void)state;
    assert_int_equal(rein_task_open(&task, "a b", &(rein_task_options){.timeout = -1}, &err), REIN_EINVAL);
    assert_string_equal(err.message, "timeout is -1: seconds above 0 are needed (0: 30)");
    assert_int_equal(rein_task_open(&task, "a b", &(rein_task_options){.timeout = (double)NAN}, &err), REIN_EINVAL);
    assert_int_equal(rein_task_open(&task, "a b", &(rein_task_options){.held_out_share = 0.5}, &err), REIN_EINVAL);
    assert_string_equal(err.message, "held_out_share is 0.5: it has no effect, because only a list of examples is divided");
    assert_null(task);
}

/* The name of a file at its end makes a command no file. */
static void test_command_with_a_file(void **state) {
    rein_error err = {0};
    (void)state;
    rein_task *task = open_task("read -r x; echo '{\"prompt\": \"a\"}'; cat >/dev/null # x.jsonl", 1, 0);
    rein_example e;
    assert_int_equal(rein_task_example(&e, task, REIN_SPLIT_TRAIN, 0, &err), REIN_OK);
    rein_example_free(&e);
    rein_task_close(task);
}

static rein_status work(void *context, rein_error *err) {
    rein_task *task;
    rein_example e = {0};
    rein_status status = rein_task_open(&task, context, NULL, err);
    if (!status) status = rein_task_example(&e, task, REIN_SPLIT_TRAIN, 0, err);
    rein_example_free(&e);
    rein_task_close(task);
    return status;
}

static void test_out_of_memory(void **state) {
    char command[] = "read -r x; echo '{\"prompt\": \"a\", \"answer\": 2}'";
    (void)state;
    if (!can_fail()) skip();
    assert_true(fail_each_allocation(work, command) > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_wrong_fields),
        cmocka_unit_test(test_no_json),
        cmocka_unit_test(test_unasked),
        cmocka_unit_test(test_ended),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_long_command),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_command_with_a_file),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
