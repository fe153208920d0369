/* test_task_file.c - tasks that are files: what a line may be, what is said of a wrong one, and which lines are held out. */
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
#include <unistd.h>

#include "rollout/task.h"

#include "support/allocation.h"

enum { LINES = 2000 };

static rein_task_file *read_file(const char *text, double share) {
    rein_error err = {0};
    rein_task_file *file;
    if (rein_task_file_from_memory(&file, text, strlen(text), "data", share, &err)) fail_msg("%s", err.message);
    return file;
}

static rein_example get(const rein_task_file *file, rein_split split, uint64_t index) {
    rein_error err = {0};
    rein_example example;
    if (rein_task_file_example(&example, file, split, index, &err)) fail_msg("%s", err.message);
    return example;
}

/* The example of the only line. */
static rein_example read_one(const char *line) {
    rein_task_file *file = read_file(line, 0);
    assert_int_equal(rein_task_file_size(file, REIN_SPLIT_TRAIN), 1);
    rein_example example = get(file, REIN_SPLIT_TRAIN, 0);
    rein_task_file_close(file); /* the example outlives it */
    return example;
}

/* -------------------------------------------------------------------------------------------------------------------- examples */

static void test_prompt(void **state) {
    rein_example e = read_one("{\"prompt\": \"2+2=?\", \"answer\": \"4\", \"budget\": 30, \"id\": [1, {\"a\": null}]}");
    (void)state;
    assert_string_equal(e.prompt, "2+2=?");
    assert_string_equal(e.answer, "4");
    assert_true(e.budget == 30 && !e.messages && e.n_messages == 0);
    assert_string_equal(e.json, "{\"prompt\": \"2+2=?\", \"answer\": \"4\", \"budget\": 30, \"id\": [1, {\"a\": null}]}");
    rein_example_free(&e);
    assert_true(!e.json && !e.memory);
    rein_example_free(&e);
}

static void test_nothing_but_a_prompt(void **state) {
    rein_example e = read_one("{\"prompt\": \"\", \"answer\": null, \"budget\": null, \"messages\": null}");
    (void)state;
    assert_string_equal(e.prompt, "");
    assert_true(!e.answer && e.budget == -1 && !e.messages);
    rein_example_free(&e);
}

static void test_messages(void **state) {
    rein_example e = read_one("{\"messages\": [{\"role\": \"system\", \"content\": \"\"}, {\"content\": \"Gr\\u00fc\\u00dfe\", "
                              "\"role\": \"user\", \"name\": null}, {\"role\": \"assistant\", \"content\": \"x\"}, "
                              "{\"role\": \"tool\", \"content\": \"y\\nz\"}], \"prompt\": null}");
    (void)state;
    assert_null(e.prompt);
    assert_int_equal(e.n_messages, 4);
    assert_string_equal(e.messages[0].role, "system");
    assert_int_equal(e.messages[0].length, 0);
    assert_string_equal(e.messages[1].role, "user");
    assert_string_equal(e.messages[1].content, "Grüße");
    assert_int_equal(e.messages[1].length, 7);
    assert_string_equal(e.messages[3].content, "y\nz");
    rein_example_free(&e);
    assert_null(e.messages);
}

static void test_answers(void **state) {
    static const char *const numbers[][2] = {{"22", "22"},        {"-7", "-7"},
                                             {"22.0", "22.0"},    {"22.50", "22.5"},
                                             {"0.1", "0.1"},      {"1e3", "1000.0"},
                                             {"1e300", "1e+300"}, {"0.30000000000000004", "0.30000000000000004"},
                                             {"-0.0", "-0.0"},    {"9223372036854775807", "9223372036854775807"},
                                             {"\"22\"", "22"},    {"\" 4 \"", " 4 "},
                                             {"\"\"", ""}};
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char line[100];
        snprintf(line, sizeof line, "{\"prompt\": \"a\", \"answer\": %s}", numbers[i][0]);
        rein_example e = read_one(line), other = read_one(line);
        assert_string_equal(e.answer, numbers[i][1]);
        rein_example_free(&e);
        assert_string_equal(other.answer, numbers[i][1]);
        rein_example_free(&other);
    }
}

static void test_lines(void **state) {
    rein_task_file *file = read_file("\n{\"prompt\": \"a\"}\r\n \t\r\n{\"prompt\": \"b\"}\n\n  {\"prompt\": \"a\"}  ", 0);
    static const char *const wanted[] = {"a", "b", "a"};
    rein_error err = {0};
    rein_example e;
    (void)state;
    assert_int_equal(rein_task_file_size(file, REIN_SPLIT_TRAIN), 3);
    assert_int_equal(rein_task_file_size(file, REIN_SPLIT_HELD_OUT), 0);
    for (int again = 0; again < 2; again++)
        for (uint64_t i = 0; i < 3; i++) {
            e = get(file, REIN_SPLIT_TRAIN, 2 - i);
            assert_string_equal(e.prompt, wanted[2 - i]);
            rein_example_free(&e);
        }
    assert_int_equal(rein_task_file_example(&e, file, REIN_SPLIT_TRAIN, 3, &err), REIN_END);
    assert_string_equal(err.message, "data has 3 train examples: there is no number 3 (they count from 0)");
    assert_null(e.memory);
    assert_int_equal(rein_task_file_example(&e, file, REIN_SPLIT_HELD_OUT, 0, &err), REIN_END);
    assert_string_equal(err.message, "data has no held-out examples: held_out is 0");
    rein_task_file_close(file);
}

/* ----------------------------------------------------------------------------------------------------------------------- faults */

static void refuse_bytes(const char *text, size_t length, double share, const char *message) {
    rein_error err = {0};
    rein_task_file *file = (rein_task_file *)&err;
    assert_int_equal(rein_task_file_from_memory(&file, text, length, "data", share, &err), REIN_EINVAL);
    assert_null(file);
    if (strcmp(err.message, message) != 0) fail_msg("%s: \"%s\" is said, not \"%s\"", text, err.message, message);
    assert_int_equal(rein_task_file_from_memory(&file, text, length, "data", share, NULL), REIN_EINVAL);
}

static void refuse(const char *text, const char *message) { refuse_bytes(text, strlen(text), 0, message); }

static void test_no_example(void **state) {
    static const char none[] = "data has no example: one JSON object a line is needed, {\"prompt\": ..., \"answer\": ...}";
    (void)state;
    refuse("", none);
    refuse("\n \r\n\t\n", none);
    refuse("{}", "data: line 1: prompt is missing: a text is needed, or messages in its place");
    refuse("{\"prompt\": \"a\"}\n\n{\"questions\": \"b\"}",
           "data: line 3: prompt is missing: a text is needed, or messages in its place");
    refuse("PAR1xxxx", "data is Parquet: JSON lines are needed: python3 -c 'import pandas; "
                       "pandas.read_parquet(\"data\").to_json(\"data.jsonl\", orient=\"records\", lines=True)'");
}

static void test_no_json(void **state) {
    (void)state;
    refuse("[{\"prompt\": \"a\"}]", "data: line 1 does not start with {: a JSON object is needed");
    refuse("{\"prompt\": \"a\"}\n{\"prompt\": \"b\"",
           "data: line 2: prompt (column 14): the line ends here, inside the JSON: a line holds a whole value");
    refuse("{\"prompt\":\n\"a\"}",
           "data: line 1: prompt (column 10): the line ends here, inside the JSON: a line holds a whole value");
    refuse("{\"prompt\": \"a\"} x", "data: line 1, column 17: there is text after the JSON value");
    refuse("{\"prompt\": \"a\", \"prompt\": \"b\"}", "data: line 1: prompt is given twice, again at column 24");
    refuse("{\"prompt\": \"a\", \"x\": {\"y\": 1, \"y\": 2}}", "data: line 1: x.y is given twice, again at column 33");
    refuse("{\"prompt\": \"a\\u0000b\"}", "data: line 1: prompt (column 21): \\u0000 is not allowed in a text");
    refuse("{\"prompt\": \"\xff\"}", "data: line 1: prompt (column 12): this is not UTF-8");
    refuse("{\"prompt\": \"a\", \"answer\": NaN}",
           "data: line 1: answer (column 29): NaN is not a finite number: JSON has neither NaN nor Infinity");
    refuse("\xef\xbb\xbf{\"prompt\": \"a\"}", "data: line 1 starts with a byte order mark: UTF-8 without one is needed");
    refuse_bytes("{\"prompt\": \0\"a\"}", 16, 0, "data: line 1: byte 11 is 0: JSON has no such byte");
}

static void test_wrong_fields(void **state) {
    (void)state;
    refuse("{\"prompt\": 7}", "data: line 1: prompt is 7: a text is needed");
    refuse("{\"prompt\": [\"a\"]}", "data: line 1: prompt is an array: a text is needed");
    refuse("{\"prompt\": \"a\", \"messages\": []}",
           "data: line 1: messages is an array: there is a prompt already, one of the two is needed");
    refuse("{\"prompt\": \"a\", \"answer\": true}", "data: line 1: answer is true: a text or a number is needed");
    refuse("{\"prompt\": \"a\", \"answer\": [\"b\", \"c\"]}", "data: line 1: answer is an array: a text or a number is needed");
    refuse("{\"prompt\": \"a\", \"answer\": 123456789012345678901}",
           "data: line 1: answer (column 47): this is beyond the range of numbers (whole numbers have 64 bits, others end at "
           "1.8e308)");
    refuse("{\"prompt\": \"a\", \"budget\": 0}",
           "data: line 1: budget is 0: a whole number from 1 to 9223372036854775807 is needed");
    refuse("{\"prompt\": \"a\", \"budget\": -3}",
           "data: line 1: budget is -3: a whole number from 1 to 9223372036854775807 is needed");
    refuse("{\"prompt\": \"a\", \"budget\": 2.5}",
           "data: line 1: budget is 2.5: a whole number from 1 to 9223372036854775807 is needed");
    refuse("{\"prompt\": \"a\", \"budget\": \"9\"}",
           "data: line 1: budget is \"9\": a whole number from 1 to 9223372036854775807 is needed");
}

static void test_wrong_messages(void **state) {
    (void)state;
    refuse("{\"messages\": \"hello\"}", "data: line 1: messages is \"hello\": an array is needed");
    refuse("{\"messages\": []}", "data: line 1: messages is an array: one message or more is needed");
    refuse("{\"messages\": [\"hello\"]}", "data: line 1: messages[0] is \"hello\": {\"role\": ..., \"content\": ...} is needed");
    refuse("{\"messages\": [{\"content\": \"a\"}]}", "data: line 1: messages[0].role is missing: a text is needed");
    refuse("{\"messages\": [{\"role\": \"user\"}]}", "data: line 1: messages[0].content is missing: a text is needed");
    refuse("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]}",
           "data: line 1: messages[0].content is an array: a text is needed");
    refuse("{\"messages\": [{\"role\": \"human\", \"content\": \"a\"}]}",
           "data: line 1: messages[0].role is \"human\": system, user, assistant or tool is needed");
    refuse("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"tool\", \"tool_call_id\": \"b\"}]}",
           "data: line 1: messages: messages[1].content is missing: a text, or a list of text parts, is needed");
    refuse("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [], \"chat_template_kwargs\": 1}",
           "data: line 1: chat_template_kwargs is 1: an object is needed");
    refuse("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}",
           "data: line 1: messages[1].role is \"assistant\": the last message is what the policy answers to");
}

/* ----------------------------------------------------------------------------------------------------------------------- splits */

/* Some of the lines ask the same as others, in another form. */
static char *many_lines(size_t skip) {
    char *text = calloc(LINES, 100), *at = text;
    for (size_t i = 0; i < LINES; i++) {
        if (i == skip) continue;
        if (i % 4 == 0) at += sprintf(at, "{\"prompt\": \"question %zu\", \"answer\": %zu}\n", i / 8, i);
        else if (i % 4 == 1) at += sprintf(at, "{\"id\": %zu, \"prompt\": \"question %zu\"}\n", i, i);
        else if (i % 4 == 2) at += sprintf(at, "{\"messages\": [{\"role\": \"user\", \"content\": \"chat %zu\"}]}\n", i / 8);
        else
            at += sprintf(at, "{\"messages\": [{\"name\": null, \"content\": \"chat %zu\", \"role\": \"user\"}], \"id\": 1}\n",
                          i / 8);
    }
    return text;
}

static uint64_t asked(const rein_task_file *file, rein_split split, uint64_t index) {
    rein_example e = get(file, split, index);
    uint64_t hash = 0;
    assert_int_equal(rein_example_hash(&hash, &e, NULL), REIN_OK);
    rein_example_free(&e);
    return hash;
}

static void test_held_out(void **state) {
    char *text = many_lines(LINES);
    rein_task_file *file = read_file(text, 0.25);
    const size_t train = rein_task_file_size(file, REIN_SPLIT_TRAIN), held_out = rein_task_file_size(file, REIN_SPLIT_HELD_OUT);
    (void)state;
    assert_int_equal(train + held_out, LINES);
    assert_in_range(held_out, LINES * 20 / 100, LINES * 30 / 100);
    uint64_t *hashes = calloc(held_out, sizeof *hashes);
    for (uint64_t k = 0; k < held_out; k++) hashes[k] = asked(file, REIN_SPLIT_HELD_OUT, k);
    for (uint64_t i = 0; i < train; i++) {
        const uint64_t hash = asked(file, REIN_SPLIT_TRAIN, i);
        for (uint64_t k = 0; k < held_out; k++) assert_true(hashes[k] != hash);
    }
    free(hashes);
    rein_task_file_close(file);
    free(text);
}

/* Who says what, and where one message ends, is part of what is asked. */
static void test_what_is_asked(void **state) {
    static const char *const lines[] = {
        "{\"messages\": [{\"role\": \"user\", \"content\": \"ab\"}, {\"role\": \"user\", \"content\": \"c\"}], \"answer\": \"x\"}",
        "{\"answer\": \"y\", \"messages\": [{\"content\": \"ab\", \"role\": \"user\"}, {\"content\": \"c\", \"role\": \"user\"}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"bc\"}]}",
        "{\"messages\": [{\"role\": \"system\", \"content\": \"ab\"}, {\"role\": \"user\", \"content\": \"c\"}]}",
        "{\"prompt\": \"abc\"}"};
    uint64_t hashes[5];
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        rein_example e = read_one(lines[i]);
        assert_int_equal(rein_example_hash(&hashes[i], &e, NULL), REIN_OK);
        rein_example_free(&e);
        for (size_t k = 0; k < i; k++) assert_true((hashes[k] == hashes[i]) == (k == 0 && i == 1));
    }
}

/* A line that goes, and a larger share, leave on the held-out side what was there. */
static void test_held_out_stays(void **state) {
    char *all = many_lines(LINES), *fewer = many_lines(1);
    rein_task_file *one = read_file(all, 0.25), *two = read_file(fewer, 0.25), *three = read_file(all, 0.5);
    (void)state;
    for (uint64_t i = 0, gone = 0, k = 0; i < rein_task_file_size(one, REIN_SPLIT_HELD_OUT); i++) {
        const uint64_t hash = asked(one, REIN_SPLIT_HELD_OUT, i);
        if (i - gone >= rein_task_file_size(two, REIN_SPLIT_HELD_OUT) || hash != asked(two, REIN_SPLIT_HELD_OUT, i - gone))
            assert_int_equal(++gone, 1);
        while (hash != asked(three, REIN_SPLIT_HELD_OUT, k)) k++;
        k++;
    }
    rein_task_file_close(one), rein_task_file_close(two), rein_task_file_close(three);
    free(all), free(fewer);
}

static void test_wrong_share(void **state) {
    static const char line[] = "{\"prompt\": \"a\"}";
    (void)state;
    refuse_bytes(line, strlen(line), -0.1, "held_out_share is -0.1: a number from 0 to below 1 is needed");
    refuse_bytes(line, strlen(line), 1, "held_out_share is 1: a number from 0 to below 1 is needed");
    refuse_bytes(line, strlen(line), (double)NAN, "held_out_share is nan: a number from 0 to below 1 is needed");
    refuse_bytes(
        line, strlen(line), 1e-9,
        "data: held_out 1e-09 holds out none of 1 examples: a larger share, or more examples, are needed (0: train on all)");
    refuse_bytes(line, strlen(line), 1 - 1e-9,
                 "data: held_out 1 holds out all 1 examples: a smaller share, or more examples, are needed");
}

/* ------------------------------------------------------------------------------------------------------------------------ files */

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static void test_from_disk(void **state) {
    char folder[] = "/tmp/rein-task-XXXXXX", path[100], blank[100];
    rein_error err = {0};
    rein_task *task;
    rein_example e;
    rein_text text = {0};
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.jsonl", folder);
    snprintf(blank, sizeof blank, "%s/a b.jsonl", folder);
    assert_int_equal(rein_task_open(&task, path, NULL, &err), REIN_EIO);
    assert_non_null(strstr(err.message, path));
    write_text(path, "{\"prompt\": \"a\", \"answer\": 1}\n{\"prompt\": \"b\", \"answer\": 2}\n");
    write_text(blank, "{\"prompt\": \"c\"}\n");
    assert_int_equal(rein_task_open(&task, path, NULL, &err), REIN_OK);
    assert_string_equal(rein_task_name(task), path);
    assert_int_equal(rein_task_size(task, REIN_SPLIT_TRAIN), 2);
    assert_int_equal(rein_task_size(task, REIN_SPLIT_HELD_OUT), 0);
    assert_int_equal(rein_task_example(&e, task, REIN_SPLIT_TRAIN, 1, &err), REIN_OK);
    assert_string_equal(e.answer, "2");
    assert_false(rein_task_verifies(task));
    assert_true(isnan(rein_task_verify(task, &e, "2", 1)));
    assert_int_equal(rein_task_demonstrate(&text, task, &e, 0, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "has no demonstrations: only built-in tasks have them"));
    rein_example_free(&e);
    rein_task_close(task);
    assert_int_equal(rein_task_open(&task, blank, NULL, &err), REIN_OK);
    assert_int_equal(rein_task_size(task, REIN_SPLIT_TRAIN), 1);
    rein_task_close(task);
    assert_int_equal(rein_task_open(&task, path, &(rein_task_options){.timeout = 1}, &err), REIN_EINVAL);
    unlink(path), unlink(blank), rmdir(folder);
}

/* ----------------------------------------------------------------------------------------------------------------------- memory */

static rein_status work(void *context, rein_error *err) {
    rein_task_file *file;
    rein_example e = {0};
    rein_status status = rein_task_file_from_memory(&file, context, strlen(context), "data", 0, err);
    for (uint64_t i = 0; i < 2 && !status; i++) {
        status = rein_task_file_example(&e, file, REIN_SPLIT_TRAIN, i, err);
        if (status) assert_null(e.memory);
        rein_example_free(&e);
    }
    rein_task_file_close(file);
    return status;
}

static void test_out_of_memory(void **state) {
    char text[] = "{\"prompt\": \"a\", \"answer\": 2.5}\n{\"messages\": [{\"role\": \"user\", \"content\": \"b\"}]}\n";
    (void)state;
    if (!can_fail()) skip();
    assert_true(fail_each_allocation(work, text) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt),         cmocka_unit_test(test_nothing_but_a_prompt),
        cmocka_unit_test(test_messages),       cmocka_unit_test(test_answers),
        cmocka_unit_test(test_lines),          cmocka_unit_test(test_no_example),
        cmocka_unit_test(test_no_json),        cmocka_unit_test(test_wrong_fields),
        cmocka_unit_test(test_wrong_messages), cmocka_unit_test(test_held_out),
        cmocka_unit_test(test_what_is_asked),  cmocka_unit_test(test_held_out_stays),
        cmocka_unit_test(test_wrong_share),    cmocka_unit_test(test_from_disk),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
