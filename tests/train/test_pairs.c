/* test_pairs.c - preference data: what trains, what the prompt is, and what is refused and where. The tokenizer is that of the shipped model,
 * one token a character. tests/cli/run_dpo.sh trains on such data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rein/train.h"
#include "support/allocation.h"

static rein_tokenizer *open_tokenizer(void) {
    const char *folder = getenv("REIN_TESTS_DIR");
    char path[4096];
    rein_tokenizer *tokenizer;
    rein_error err = {0};
    snprintf(path, sizeof path, "%s/../models/sums", folder ? folder : "tests");
    if (rein_tokenizer_open(&tokenizer, path, &err)) fail_msg("%s", err.message);
    return tokenizer;
}

static rein_status read_pairs(rein_groups *groups, const char *text, const rein_tokenizer *tokenizer, int64_t positions,
                              rein_error *err) {
    const rein_chat chat = {.kind = REIN_CHAT_CHATML};
    return rein_pairs_from_memory(groups, text, strlen(text), "data", tokenizer, &chat, 0, positions, err);
}

/* The trained tokens as text, without the end token 0, which must be the last. */
static void assert_answer(const rein_trajectory *t, const rein_tokenizer *tokenizer, size_t prompt, const char *answer) {
    rein_text text = {0};
    const rein_history *h = &t->histories[0];
    assert_int_equal(t->n_histories, 1);
    for (size_t k = 0; k < h->n; k++) assert_int_equal(h->mask[k], k >= prompt);
    assert_int_equal(h->ids[h->n - 1], 0);
    assert_int_equal(rein_tokenizer_decode(&text, tokenizer, h->ids + prompt, h->n - prompt - 1, 0, NULL), REIN_OK);
    assert_string_equal(text.data, answer);
    rein_text_free(&text);
}

static void test_texts(void **state) {
    (void)state;
    rein_tokenizer *tokenizer = open_tokenizer();
    rein_groups groups = {0};
    rein_error err = {0};
    /* given, and implicit: the common characters are the prompt */
    static const char text[] = "{\"prompt\": \"1+2=\", \"chosen\": \"3\", \"rejected\": \"21\"}\n\n"
                               "{\"chosen\": \"1+2=3\", \"rejected\": \"1+2=21\", \"margin\": 2}\n";
    if (read_pairs(&groups, text, tokenizer, 0, &err)) fail_msg("%s", err.message);
    assert_int_equal(groups.n, 2);
    for (size_t g = 0; g < 2; g++) {
        assert_int_equal(groups.groups[g].n, 2);
        assert_true(groups.groups[g].trajectories[0].reward == 1 && groups.groups[g].trajectories[1].reward == 0);
        assert_answer(&groups.groups[g].trajectories[0], tokenizer, 4, "3");
        assert_answer(&groups.groups[g].trajectories[1], tokenizer, 4, "21");
    }
    rein_groups_free(&groups);
    rein_tokenizer_close(tokenizer);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *line, *message;
        int64_t positions;
    } cases[] = {
        {"{\"prompt\": \"1\", \"chosen\": \"2\"}", "data: line 2: rejected is missing: a text or a list of messages is needed", 0},
        {"{\"prompt\": \"1\", \"chosen\": \"2\", \"rejected\": \"2\"}", "data: line 2: rejected is the same as chosen", 0},
        {"{\"prompt\": \"1\", \"chosen\": \"\", \"rejected\": \"2\"}", "data: line 2: chosen is empty: an answer has", 0},
        {"{\"chosen\": \"12\", \"rejected\": \"1\"}", "data: line 2: rejected is empty after what both answers begin with", 0},
        {"{\"prompt\": 1, \"chosen\": \"2\", \"rejected\": \"3\"}", "data: line 2: prompt is 1: a text is needed, as chosen is", 0},
        {"{\"prompt\": \"1\", \"chosen\": \"2\", \"rejected\": []}", "data: line 2: rejected is ", 0},
        {"{\"prompt\": [], \"chosen\": [], \"rejected\": [{}]}", "data: line 2: chosen is empty", 0},
        {"{\"prompt\": \"1+1+1\", \"chosen\": \"2\", \"rejected\": \"3\"}", "data: line 2: prompt has 5 tokens and leaves no room",
         5},
        {"{\"prompt\": \"1+1=\", \"chosen\": \"2\", \"rejected\": \"333\"}",
         "data: line 2: rejected has 4 tokens after a prompt of 4: together they are more than the 6 positions", 6},
        {"[]", "data: line 2", 0},
    };
    rein_tokenizer *tokenizer = open_tokenizer();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rein_groups groups = {0};
        rein_error err = {0};
        char text[300];
        snprintf(text, sizeof text, "{\"chosen\": \"1\", \"rejected\": \"2\"}\n%s\n", cases[i].line);
        assert_int_equal(read_pairs(&groups, text, tokenizer, cases[i].positions, &err), REIN_EINVAL);
        if (strncmp(err.message, cases[i].message, strlen(cases[i].message)) != 0) fail_msg("%s", err.message);
        assert_int_equal(groups.n, 0);
        rein_groups_free(&groups);
    }
    rein_tokenizer_close(tokenizer);
}

/* ---- for a reward model */

/* The whole text, of which the last token alone is scored. */
static void assert_scored(const rein_trajectory *t, const rein_tokenizer *tokenizer, const char *wanted) {
    rein_text text = {0};
    const rein_history *h = &t->histories[0];
    assert_int_equal(t->n_histories, 1);
    for (size_t k = 0; k < h->n; k++) assert_int_equal(h->mask[k], k + 1 == h->n);
    assert_int_equal(rein_tokenizer_decode(&text, tokenizer, h->ids, h->n, 0, NULL), REIN_OK);
    assert_string_equal(text.data, wanted);
    rein_text_free(&text);
}

static void test_reward_pairs(void **state) {
    (void)state;
    static const char text[] =
        "{\"prompt\": \"1+2=\", \"chosen\": \"3\", \"rejected\": \"21<end>\"}\n"
        "{\"chosen\": [{\"role\": \"user\", \"content\": \"1+2\"}, {\"role\": \"assistant\", \"content\": \"3\"}],"
        " \"rejected\": [{\"role\": \"user\", \"content\": \"1+2\"}, {\"role\": \"assistant\", \"content\": \"4\"}], \"margin\": "
        "0.5}\n";
    rein_tokenizer *tokenizer = open_tokenizer();
    const rein_chat chat = {.kind = REIN_CHAT_RAW};
    rein_groups groups = {0};
    rein_error err = {0};
    if (rein_reward_pairs_from_memory(&groups, text, strlen(text), "data", tokenizer, &chat, 0, 64, &err))
        fail_msg("%s", err.message);
    assert_int_equal(groups.n, 2);
    assert_scored(&groups.groups[0].trajectories[0], tokenizer, "1+2=3<end>");
    assert_scored(&groups.groups[0].trajectories[1], tokenizer, "1+2=21<end>");
    assert_scored(&groups.groups[1].trajectories[0], tokenizer, "1+23"); /* a raw chat ends with nothing */
    assert_scored(&groups.groups[1].trajectories[1], tokenizer, "1+24");
    assert_int_equal(groups.groups[0].trajectories[0].n_metrics, 0);
    assert_int_equal(groups.groups[1].trajectories[0].n_metrics, 1);
    assert_string_equal(groups.groups[1].trajectories[0].metrics[0].name, REIN_MARGIN);
    assert_true(groups.groups[1].trajectories[0].metrics[0].value == 0.5);
    rein_groups_free(&groups);
    rein_tokenizer_close(tokenizer);
}

static void test_reward_pairs_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{\"prompt\": \"1\", \"chosen\": \"2\", \"rejected\": \"2\"}", "data: line 1: rejected is the same as chosen"},
        {"{\"prompt\": \"1\", \"chosen\": \"2\", \"rejected\": \"2<end>\"}", "data: line 1: rejected has the same tokens"},
        {"{\"prompt\": \"1\", \"chosen\": \"\", \"rejected\": \"2\"}", "data: line 1: chosen is empty"},
        {"{\"prompt\": \"111111111\", \"chosen\": \"2\", \"rejected\": \"3\"}",
         "data: line 1: prompt has 9 tokens and leaves no room"},
        {"{\"prompt\": \"1\", \"chosen\": \"2\", \"rejected\": \"33333333\"}",
         "data: line 1: rejected has 10 tokens with its prompt"},
        {"{\"prompt\": \"1\", \"chosen\": \"2\", \"rejected\": \"3\", \"margin\": []}",
         "data: line 1: margin is an array: a number is needed"},
    };
    rein_tokenizer *tokenizer = open_tokenizer();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rein_groups groups = {0};
        rein_error err = {0};
        assert_int_equal(
            rein_reward_pairs_from_memory(&groups, cases[i][0], strlen(cases[i][0]), "data", tokenizer, NULL, 0, 8, &err),
            REIN_EINVAL);
        if (strncmp(err.message, cases[i][1], strlen(cases[i][1])) != 0) fail_msg("%s", err.message);
        assert_int_equal(groups.n, 0);
    }
    rein_tokenizer_close(tokenizer);
}

static rein_status read_labelled(rein_groups *groups, const char *text, const rein_tokenizer *tokenizer, int64_t positions,
                                 rein_error *err) {
    const rein_chat chat = {.kind = REIN_CHAT_CHATML};
    return rein_labelled_from_memory(groups, text, strlen(text), "data", tokenizer, &chat, 0, positions, err);
}

static void test_labelled(void **state) {
    (void)state;
    static const char text[] = "{\"prompt\": \"1+2=\", \"completion\": \"3\", \"label\": true}\n\n"
                               "{\"prompt\": \"1+2=\", \"completion\": \"21\", \"label\": false}\n";
    rein_tokenizer *tokenizer = open_tokenizer();
    rein_groups groups = {0};
    rein_error err = {0};
    if (read_labelled(&groups, text, tokenizer, 0, &err)) fail_msg("%s", err.message);
    assert_int_equal(groups.n, 2);
    for (size_t g = 0; g < 2; g++) {
        assert_int_equal(groups.groups[g].n, 1);
        assert_true(groups.groups[g].trajectories[0].reward == (g == 0));
        assert_answer(&groups.groups[g].trajectories[0], tokenizer, 4, g ? "21" : "3");
    }
    rein_groups_free(&groups);
    rein_tokenizer_close(tokenizer);
}

static void test_labelled_refused(void **state) {
    (void)state;
    static const struct {
        const char *line, *message;
        int64_t positions;
    } cases[] = {
        {"{\"prompt\": \"1\", \"completion\": \"2\"}", "data: line 2: label is missing: true (desirable) or false", 0},
        {"{\"prompt\": \"1\", \"completion\": \"2\", \"label\": 1}", "data: line 2: label is 1: true (desirable) or false", 0},
        {"{\"prompt\": \"1\", \"completion\": \"\", \"label\": true}", "data: line 2: completion is empty: a completion has", 0},
        {"{\"completion\": \"2\", \"label\": true}", "data: line 2: prompt is missing: a text is needed, as completion is", 0},
        {"{\"prompt\": [], \"completion\": \"2\", \"label\": true}", "data: line 2: prompt is ", 0},
        {"{\"prompt\": \"1\", \"label\": true}", "data: line 2: completion is missing: a text or a list of messages", 0},
        {"{\"prompt\": \"1+1+1\", \"completion\": \"2\", \"label\": true}", "data: line 2: prompt has 5 tokens and leaves no room",
         5},
        {"{\"prompt\": \"1\", \"completion\": \"2\", \"label\": false}", "data: every label is false: desirable and undesirable",
         0},
    };
    rein_tokenizer *tokenizer = open_tokenizer();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rein_groups groups = {0};
        rein_error err = {0};
        char text[300];
        snprintf(text, sizeof text, "{\"prompt\": \"1\", \"completion\": \"2\", \"label\": false}\n%s\n", cases[i].line);
        assert_int_equal(read_labelled(&groups, text, tokenizer, cases[i].positions, &err), REIN_EINVAL);
        if (strncmp(err.message, cases[i].message, strlen(cases[i].message)) != 0) fail_msg("%s", err.message);
        assert_int_equal(groups.n, 0);
        rein_groups_free(&groups);
    }
    rein_tokenizer_close(tokenizer);
}

static rein_status read_once(void *context, rein_error *err) {
    static const char text[] =
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"1\"}], \"chosen\": [{\"role\": \"assistant\", \"content\": \"2\"}], "
        "\"rejected\": [{\"role\": \"assistant\", \"content\": \"3\"}]}\n{\"chosen\": \"1+2=3\", \"rejected\": \"1+2=21\"}\n";
    rein_groups groups = {0};
    const rein_status status = read_pairs(&groups, text, context, 0, err);
    assert_int_equal(groups.n, status ? 0 : 2);
    rein_groups_free(&groups);
    return status;
}

static rein_status read_labelled_once(void *context, rein_error *err) {
    static const char text[] =
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"1\"}], \"completion\": [{\"role\": \"assistant\", \"content\": "
        "\"2\"}], \"label\": true}\n{\"prompt\": \"1+2=\", \"completion\": \"21\", \"label\": false}\n";
    rein_groups groups = {0};
    const rein_status status = read_labelled(&groups, text, context, 0, err);
    assert_int_equal(groups.n, status ? 0 : 2);
    rein_groups_free(&groups);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    if (!can_fail()) skip(); /* not linked for it: tests/support/allocation.h */
    rein_tokenizer *tokenizer = open_tokenizer();
    assert_true(fail_each_allocation(read_once, tokenizer) > 10);
    assert_true(fail_each_allocation(read_labelled_once, tokenizer) > 10);
    rein_tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),    cmocka_unit_test(test_reward_pairs), cmocka_unit_test(test_reward_pairs_refused),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_labelled),     cmocka_unit_test(test_labelled_refused),
        cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
