/* The parts of the server that need no network: tool calls in a text, and conversations as sampled ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "server/parts.h"
#include "support/check.h"

/* ------------------------------------------------------------------------------------------------------------------------ tools */

static void content_before_a_tool_call(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t content;
    } cases[] = {{"", 0},
                 {"abc", 3},
                 {"abc  ", 3},
                 {"abc <", 3},
                 {"abc <tool", 3},
                 {"a<b", 3},
                 {"abc\n<tool_call>{", 3},
                 {"<tool_call", 0},
                 {"x <tool_cal!", 12},
                 {"<<tool_call>", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(rein_tool_calls_begin(cases[i].text, strlen(cases[i].text)), cases[i].content);
}

static size_t parse(rein_text *calls, size_t *content, const char *text) {
    calls->length = 0;
    return rein_tool_calls_parse(calls, content, text, strlen(text), "call_x", false);
}

static void tool_calls_are_parsed(void **state) {
    (void)state;
    rein_text calls = {0};
    size_t content;
    assert_int_equal(
        parse(&calls, &content, "go <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"é\"]}}\n</tool_call>\n"), 1);
    assert_int_equal(content, 2);
    assert_string_equal(calls.data, "{\"id\": \"call_x-0\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "
                                    "\"{\\\"a\\\": [1, \\\"é\\\"]}\"}}");
    assert_int_equal(
        parse(&calls, &content,
              "<tool_call>{\"name\": \"f\"}</tool_call> <tool_call>{\"name\": \"g\", \"arguments\": \"{}\"}</tool_call>"),
        2);
    assert_int_equal(content, 0);
    rein_text_free(&calls);
}

static void what_does_not_parse_is_content(void **state) {
    (void)state;
    static const char *const texts[] = {"none",
                                        "<tool_call>",
                                        "<tool_call>{\"name\": \"f\"}",
                                        "<tool_call>{\"name\": 3}</tool_call>",
                                        "<tool_call>{\"name\": \"f\", \"arguments\": 3}</tool_call>",
                                        "<tool_call>[1]</tool_call>",
                                        "<tool_call>{\"name\": \"f\"}</tool_call> and more",
                                        "<tool_call>{\"name\": \"f\"}</tool_call><tool_call>{</tool_call>"};
    rein_text calls = {0};
    size_t content;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) assert_int_equal(parse(&calls, &content, texts[i]), 0);
    rein_text_free(&calls);
}

/* ------------------------------------------------------------------------------------------------------------------------ turns */

static size_t find(rein_ids *ids, turns *t, char *text, rein_span *literals, size_t n) {
    const rein_rendered rendered = {.text = {.data = text, .length = strlen(text)}, .literals = literals, .n_literals = n};
    ids->count = 0;
    return turns_find(ids, t, &rendered);
}

static void the_longest_turn_is_found(void **state) {
    (void)state;
    turns *t = turns_open(1 << 20);
    rein_ids ids = {0};
    turns_add(t, "u:hi a:yo", 9, 9, (const int32_t[]){1, 2, 3}, 3);
    turns_add(t, "u:hi a:yo u:b a:c", 17, 17, (const int32_t[]){1, 2, 3, 4, 5}, 5);
    assert_int_equal(find(&ids, t, "u:hi a:yo u:b a:c u:d", NULL, 0), 17);
    assert_int_equal(ids.count, 5);
    assert_int_equal(find(&ids, t, "u:hi a:yo u:x", NULL, 0), 9);
    assert_int_equal(ids.count, 3);
    assert_int_equal(find(&ids, t, "u:hi a:y", NULL, 0), 0);
    /* Another message that only begins like the answer is not the answer. */
    assert_int_equal(find(&ids, t, "u:hi a:yonder", (rein_span[]){{2, 4}, {7, 13}}, 2), 0);
    assert_int_equal(find(&ids, t, "u:hi a:yo u:x", (rein_span[]){{2, 4}, {7, 9}, {12, 13}}, 3), 9);
    turns_add(t, "u:hi a:yo", 9, 9, (const int32_t[]){7, 8}, 2); /* the newest wins */
    assert_int_equal(find(&ids, t, "u:hi a:yo", NULL, 0), 9);
    assert_int_equal(ids.count, 2);
    assert_int_equal(ids.data[0], 7);
    turns_add(t, "u:hi a:yo!", 10, 8, (const int32_t[]){9}, 1); /* the last two bytes have no ids of their own */
    assert_int_equal(find(&ids, t, "u:hi a:yo! u:b", NULL, 0), 8);
    assert_int_equal(ids.count, 1);
    rein_ids_free(&ids);
    turns_close(t);
}

static void old_turns_are_dropped(void **state) {
    (void)state;
    turns *t = turns_open(1000);
    rein_ids ids = {0};
    char text[] = "turn 00";
    for (int i = 0; i < 50; i++) {
        text[5] = (char)('0' + i / 10), text[6] = (char)('0' + i % 10);
        turns_add(t, text, 7, 7, &i, 1);
    }
    assert_int_equal(find(&ids, t, "turn 00", NULL, 0), 0);
    assert_int_equal(find(&ids, t, "turn 49", NULL, 0), 7);
    assert_int_equal(ids.data[0], 49);
    rein_ids_free(&ids);
    turns_close(t);
}

/* ------------------------------------------------------------------------------------------------------------------------- jobs */

static void texts_have_a_ceiling(void **state) {
    (void)state;
    server s = {0};
    assert_int_equal(rein_memory_open(&s.texts, 1 << 20, NULL), REIN_OK);
    job *j = job_new(&s, JOB_CHAT);
    j->bytes = 100 << 10;
    assert_true(job_charge(j, 0));
    assert_int_equal(rein_memory_used(s.texts), 320 << 10); /* three copies, in units of 64 KiB */
    assert_true(job_charge(j, 1000) && rein_memory_used(s.texts) == 320 << 10);
    assert_true(job_charge(j, 700 << 10));
    assert_false(job_charge(j, 800 << 10));
    job_release(j);
    assert_int_equal(rein_memory_used(s.texts), 0);
    rein_memory_close(s.texts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_before_a_tool_call),     cmocka_unit_test(tool_calls_are_parsed),
        cmocka_unit_test(what_does_not_parse_is_content), cmocka_unit_test(the_longest_turn_is_found),
        cmocka_unit_test(old_turns_are_dropped),          cmocka_unit_test(texts_have_a_ceiling)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
