/* test_task.c - built-in tasks: the same example every time, nothing asked on both sides of the split, verifiers that know right from wrong,
 * and demonstrations that they accept. */
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

#include "base/hash.h"
#include "rollout/task.h"

#include "support/allocation.h"

enum { A_SIDE = 10000, DEMONSTRATIONS = 1000 };

static rein_task *open_task(const char *name, uint64_t seed) {
    const rein_task_options options = {.seed = seed};
    rein_error err = {0};
    rein_task *task;
    if (rein_task_open(&task, name, &options, &err)) fail_msg("%s", err.message);
    return task;
}

static rein_example get(rein_task *task, rein_split split, uint64_t index) {
    rein_error err = {0};
    rein_example example;
    if (rein_task_example(&example, task, split, index, &err)) fail_msg("%s", err.message);
    return example;
}

static rein_text demonstrate(const rein_task *task, const rein_example *example, uint64_t index) {
    rein_error err = {0};
    rein_text text = {0};
    if (rein_task_demonstrate(&text, task, example, index, &err)) fail_msg("%s", err.message);
    return text;
}

/* ------------------------------------------------------------------------------------------------------------------------ draws */

static void test_draw(void **state) {
    rein_draws draws = {.seed = 1};
    size_t counts[7] = {0};
    (void)state;
    for (int i = 0; i < 100; i++) assert_int_equal(rein_draw(&draws, 1), 0);
    for (int i = 0; i < 70000; i++) counts[rein_draw(&draws, 7)]++;
    for (int i = 0; i < 7; i++) assert_in_range(counts[i], 9600, 10400); /* 4.3 deviations */
    assert_true(draws.n >= 70100);
}

/* Of three quarters of all numbers, one in four draws is drawn again: without that the first quarter would be twice as probable. */
static void test_draw_is_even(void **state) {
    const uint64_t n = (uint64_t)3 << 62;
    rein_draws draws = {.seed = 2, .purpose = 1, .index = 3, .attempt = 4};
    size_t low = 0;
    (void)state;
    for (int i = 0; i < 30000; i++) {
        const uint64_t drawn = rein_draw(&draws, n);
        assert_true(drawn < n);
        low += drawn < n / 3;
    }
    assert_in_range(low, 9600, 10400);
    assert_in_range(draws.n, 39000, 41000);
}

static void test_draws_have_an_address(void **state) {
    rein_draws all[] = {{1, 0, 0, 0, 0}, {2, 0, 0, 0, 0}, {1, 1, 0, 0, 0}, {1, 0, 1, 0, 0}, {1, 0, 0, 1, 0}, {1, 0, 0, 0, 1}};
    uint64_t drawn[6];
    (void)state;
    for (size_t i = 0; i < 6; i++) drawn[i] = rein_draw(&all[i], UINT64_MAX);
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; k < i; k++) assert_true(drawn[i] != drawn[k]);
    rein_draws again = {1, 0, 0, 0, 0};
    assert_true(rein_draw(&again, UINT64_MAX) == drawn[0] && rein_draw(&again, UINT64_MAX) == drawn[5]);
}

static void test_print(void **state) {
    rein_text text = {0};
    char wanted[3000] = "a";
    (void)state;
    assert_int_equal(rein_text_print(&text, NULL, "%s", ""), REIN_OK);
    assert_string_equal(text.data, "");
    assert_int_equal(rein_text_print(&text, NULL, "%c", 'a'), REIN_OK);
    for (int i = 0; i < 500; i++) {
        assert_int_equal(rein_text_print(&text, NULL, "%d,%s", i, "x"), REIN_OK);
        snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "%d,x", i);
    }
    assert_string_equal(text.data, wanted);
    assert_int_equal(text.length, strlen(wanted));
    rein_text_free(&text);
}

/* --------------------------------------------------------------------------------------------------------------------- examples */

static void test_table(void **state) {
    static const char *const names[] = {"sums", "sort", "format"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(rein_task_at(i)->name, names[i]);
        assert_true(*rein_task_at(i)->help && strlen(rein_task_at(i)->help) < 66 && !strchr(rein_task_at(i)->help, '\n'));
        rein_task *task = open_task(names[i], 1);
        assert_string_equal(rein_task_name(task), names[i]);
        assert_true(rein_task_size(task, REIN_SPLIT_TRAIN) == SIZE_MAX && rein_task_size(task, REIN_SPLIT_HELD_OUT) == SIZE_MAX);
        assert_true(rein_task_verifies(task));
        rein_task_close(task);
    }
    assert_null(rein_task_at(3));
    assert_null(rein_task_at(SIZE_MAX));
    rein_task_close(NULL);
}

static void check_form(const rein_example *e) {
    const size_t length = strlen(e->prompt);
    assert_true(!strncmp(e->prompt, "Q:", 2) && length > 5 && !strcmp(e->prompt + length - 3, "\nA:"));
    assert_true(*e->answer != 0 && e->budget == -1 && !e->messages && !e->n_messages);
    for (const char *at = e->prompt; *at; at++) assert_true(*at == '\n' || (*at >= ' ' && *at <= '~'));
    for (const char *at = e->answer; *at; at++) assert_true(*at == '\n' || (*at >= ' ' && *at <= '~'));
    json_t *object = json_loads(e->json, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(object, "prompt")), e->prompt);
    assert_string_equal(json_string_value(json_object_get(object, "answer")), e->answer);
    assert_int_equal(json_object_size(object), 2);
    json_decref(object);
}

static int compare(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Whatever the seeds of the two. */
static void test_splits_are_disjoint(void **state) {
    static uint64_t train[A_SIDE], held_out[A_SIDE];
    (void)state;
    for (size_t t = 0; rein_task_at(t); t++) {
        rein_task *one = open_task(rein_task_at(t)->name, 1), *two = open_task(rein_task_at(t)->name, 2);
        for (uint64_t i = 0; i < A_SIDE; i++) {
            rein_example a = get(one, REIN_SPLIT_TRAIN, i), b = get(i % 2 ? one : two, REIN_SPLIT_HELD_OUT, i);
            check_form(&a), check_form(&b);
            train[i] = rein_hash(a.prompt, strlen(a.prompt)), held_out[i] = rein_hash(b.prompt, strlen(b.prompt));
            rein_example_free(&a), rein_example_free(&b);
        }
        qsort(train, A_SIDE, sizeof *train, compare);
        qsort(held_out, A_SIDE, sizeof *held_out, compare);
        size_t different = 1;
        for (size_t i = 0, k = 0; i < A_SIDE; i++) {
            while (k < A_SIDE && held_out[k] < train[i]) k++;
            if (k < A_SIDE && held_out[k] == train[i]) fail_msg("%s asks the same on both sides", rein_task_at(t)->name);
            different += i && train[i] != train[i - 1];
        }
        assert_true(different > 1500);
        rein_task_close(one), rein_task_close(two);
    }
}

static void test_same_every_time(void **state) {
    (void)state;
    for (size_t t = 0; rein_task_at(t); t++) {
        rein_task *one = open_task(rein_task_at(t)->name, 5), *two = open_task(rein_task_at(t)->name, 5);
        for (uint64_t i = 0; i < 200; i++) {
            const uint64_t index = i < 199 ? i : UINT64_MAX;
            rein_example a = get(one, i % 2, index), b = get(two, i % 2, index), c = get(one, i % 2, index);
            assert_string_equal(a.prompt, b.prompt);
            assert_string_equal(a.prompt, c.prompt);
            assert_string_equal(a.answer, b.answer);
            assert_string_equal(a.json, b.json);
            rein_text x = demonstrate(one, &a, i), y = demonstrate(two, &b, i);
            assert_string_equal(x.data, y.data);
            rein_text_free(&x), rein_text_free(&y);
            rein_example_free(&a), rein_example_free(&b), rein_example_free(&c);
        }
        rein_task_close(one), rein_task_close(two);
    }
}

/* Seeds, numbers and demonstrations that are not the same are mostly different. */
static void test_others_differ(void **state) {
    (void)state;
    for (size_t t = 0; rein_task_at(t); t++) {
        rein_task *one = open_task(rein_task_at(t)->name, 5), *two = open_task(rein_task_at(t)->name, 6);
        size_t seeds = 0, numbers = 0;
        for (uint64_t i = 0; i < 200; i++) {
            rein_example a = get(one, REIN_SPLIT_TRAIN, i), b = get(two, REIN_SPLIT_TRAIN, i),
                         c = get(one, REIN_SPLIT_TRAIN, i + 1);
            seeds += strcmp(a.prompt, b.prompt) != 0, numbers += strcmp(a.prompt, c.prompt) != 0;
            rein_example_free(&a), rein_example_free(&b), rein_example_free(&c);
        }
        assert_true(seeds > 180 && numbers > 180);
        rein_task_close(one), rein_task_close(two);
    }
}

/* What models were trained on with a seed must not change behind their back. */
static void test_golden(void **state) {
    static const struct {
        const char *task, *prompt, *answer;
        uint64_t index;
        rein_split split;
    } known[] = {{"sums", "Q:7+4+2+7+5=?\nA:", "25", 0, REIN_SPLIT_TRAIN},
                 {"sums", "Q:4+7+9+5+7=?\nA:", "32", 3, REIN_SPLIT_HELD_OUT},
                 {"sort", "Q:sort 2,99,34,76,9\nA:", "2,9,34,76,99", 3, REIN_SPLIT_HELD_OUT},
                 {"sort", "Q:sort csqotj\nA:", "cjoqst", 0, REIN_SPLIT_TRAIN},
                 {"sort", "Q:sort 29,3,48\nA:", "3,29,48", 2, REIN_SPLIT_TRAIN},
                 {"format", "Q:Write JSON with the key \"place\" and the value 14.\nA:", "{\"place\": 14}", 0, REIN_SPLIT_TRAIN}};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        rein_task *task = open_task(known[i].task, 1);
        rein_example e = get(task, known[i].split, known[i].index);
        assert_string_equal(e.prompt, known[i].prompt);
        assert_string_equal(e.answer, known[i].answer);
        rein_example_free(&e);
        rein_task_close(task);
    }
}

/* -------------------------------------------------------------------------------------------------------------------- verifiers */

static void test_verifiers(void **state) {
    static const struct {
        const char *task, *prompt, *answer, *response;
        int right;
    } cases[] = {
        {"sums", "Q:7+1+5+9=?\nA:", "22", "=22", 1},
        {"sums", "Q:7+1+5+9=?\nA:", "22", "7+1=8;8+5=13;13+9=22; = 22 \n", 1},
        {"sums", "Q:7+1+5+9=?\nA:", "22", "22", 0},
        {"sums", "Q:7+1+5+9=?\nA:", "22", "=2", 0},
        {"sums", "Q:7+1+5+9=?\nA:", "22", "=22=", 0},
        {"sums", "Q:7+1+5+9=?\nA:", "22", "", 0},
        {"sort", "Q:sort dbca\nA:", "abcd", "=abcd", 1},
        {"sort", "Q:sort dbca\nA:", "abcd", "d;bd;bcd= abcd\n", 1},
        {"sort", "Q:sort dbca\nA:", "abcd", "d+b=bd;bd+c=bcd;bcd+a=abcd", 1},
        {"sort", "Q:sort dbca\nA:", "abcd", "d+b=bd;bd+c=bcd;bcd+a=abcd;", 0},
        {"sort", "Q:sort dbca\nA:", "abcd", "abcd", 0},
        {"sort", "Q:sort dbca\nA:", "abcd", "=abc", 0},
        {"sort", "Q:sort dbca\nA:", "abcd", "=abcde", 0},
        {"sort", "Q:sort dbca\nA:", "abcd", "=abdc", 0},
        {"sort", "Q:sort dbca\nA:", "abcd", "=ABCD", 0},
        {"sort", "Q:sort dbca\nA:", "abcd", "=abcd=", 0},
        {"sort", "Q:sort dbca\nA:", "abcd", "=a b c d", 0},
        {"sort", "Q:sort dbca\nA:", "abcd", "", 0},
        {"sort", "Q:sort 31,7,58\nA:", "7,31,58", "=7,31,58", 1},
        {"sort", "Q:sort 31,7,58\nA:", "7,31,58", "=7, 31,  58 ", 1},
        {"sort", "Q:sort 31,7,58\nA:", "7,31,58", "=7 31 58", 0},
        {"sort", "Q:sort 31,7,58\nA:", "7,31,58", "=7,31,", 0},
        {"sort", "Q:sort 31,7,58\nA:", "7,31,58", "=7,31, ", 0},
        {"sort", "Q:sort 31,7,58\nA:", "7,31,58", "=7,31,5 8", 0},
        {"format", "Q:Say \"blue\" 2 times, separated by commas.\nA:", "blue,blue", " blue, blue\n", 1},
        {"format", "Q:Say \"blue\" 2 times, separated by commas.\nA:", "blue,blue", "blue ,blue", 1},
        {"format", "Q:Say \"blue\" 2 times, separated by commas.\nA:", "blue,blue", "blue,blue,blue", 0},
        {"format", "Q:Say \"blue\" 2 times, separated by commas.\nA:", "blue,blue", "blue,blue.", 0},
        {"format", "Q:Say \"blue\" 2 times, separated by commas.\nA:", "blue,blue", "BLUE,BLUE", 0},
        {"format", "Q:Say \"blue\" 2 times, separated by commas.\nA:", "blue,blue", "Sure: blue,blue", 0},
        {"format", "Q:Say \"blue\" 2 times, separated by commas.\nA:", "blue,blue", "blue blue", 0},
        {"format", "Q:Say \"blue\" 2 times, separated by commas.\nA:", "blue,blue", "", 0},
        {"format", "Q:Say \"fox\" 2 times, separated by spaces.\nA:", "fox fox", "fox   fox", 1},
        {"format", "Q:Say \"fox\" 2 times, separated by spaces.\nA:", "fox fox", "fox\nfox", 0},
        {"format", "Q:Say \"fox\" 2 times, separated by spaces.\nA:", "fox fox", "foxfox", 0},
        {"format", "Q:List the numbers from 3 to 5, one per line.\nA:", "3\n4\n5", "3 \r\n4\n5\n", 1},
        {"format", "Q:List the numbers from 3 to 5, one per line.\nA:", "3\n4\n5", "3\n\n4\n5", 0},
        {"format", "Q:List the numbers from 3 to 5, one per line.\nA:", "3\n4\n5", "3\n4\n6", 0},
        {"format", "Q:Put \"fox\" in brackets.\nA:", "[fox]", "[fox]", 1},
        {"format", "Q:Put \"fox\" in brackets.\nA:", "[fox]", "(fox)", 0},
        {"format", "Q:Put \"fox\" in brackets.\nA:", "[fox]", "[fox", 0},
        {"format", "Q:Write JSON with the key \"size\" and the value 7.\nA:", "{\"size\": 7}", "{ \"size\" :7\n}", 1},
        {"format", "Q:Write JSON with the key \"size\" and the value 7.\nA:", "{\"size\": 7}", "{\"size \": 7}", 0},
        {"format", "Q:Write JSON with the key \"size\" and the value 7.\nA:", "{\"size\": 7}", "{\"size\": \"7\"}", 0},
        {"format", "Q:Write JSON with the key \"size\" and the value 7.\nA:", "{\"size\": 7}", "{size: 7}", 0},
        {"format", "Q:Write JSON with the key \"size\" and the value 7.\nA:", "{\"size\": 7}", "{\"size\": 7", 0},
        {"format", "Q:Choose 2 different words that begin with b, separated by dashes.\nA:", "x", "bee-Bridge", 1},
        {"format", "Q:Choose 2 different words that begin with b, separated by dashes.\nA:", "x", "bee-bee", 0},
        {"format", "Q:Choose 2 different words that begin with b, separated by dashes.\nA:", "x", "bee-BEE", 0},
        {"format", "Q:Choose 2 different words that begin with b, separated by dashes.\nA:", "x", "bee-ant", 0},
        {"format", "Q:Choose 2 different words that begin with b, separated by dashes.\nA:", "x", "bee", 0},
        {"format", "Q:Choose 2 different words that begin with b, separated by dashes.\nA:", "x", "bee-", 0},
        {"format", "Q:Choose 2 different words that begin with b, separated by dashes.\nA:", "x", "bee-boat-bus", 0},
        {"format", "Q:Choose 2 different words that begin with b, separated by dashes.\nA:", "x", "bee, boat", 0},
        {"format", "Q:Choose 2 different words that begin with b, separated by dashes.\nA:", "x", "b-bee", 0},
        {"format", "Q:Choose 2 different words that begin with b, separated by dashes.\nA:", "x", "b4-bee", 0},
        {"format", "Q:Choose 2 different words that begin with b, separated by dashes.\nA:", "x", "", 0},
        {"format", "Q:Choose 9 different words that begin with b, separated by dashes.\nA:", "x", "bee", 0},
        {"format", "Q:Choose 2 different words that begin with b, in a row.\nA:", "x", "bee-boat", 0},
        {"format", "Q:Give a number with 3 digits that ends in 7.\nA:", "x", " 127\n", 1},
        {"format", "Q:Give a number with 3 digits that ends in 7.\nA:", "x", "027", 0},
        {"format", "Q:Give a number with 3 digits that ends in 7.\nA:", "x", "1277", 0},
        {"format", "Q:Give a number with 3 digits that ends in 7.\nA:", "x", "721", 0},
        {"format", "Q:Give a number with 3 digits that ends in 7.\nA:", "x", "1.7", 0},
        {"format", "Q:Give a number with 3 digits that begins with 7.\nA:", "x", "721", 1},
        {"format", "Q:Give a number with 3 digits that begins with 7.\nA:", "x", "127", 0},
        {"format", "Q:Give a number with 99 digits that begins with 7.\nA:", "x", "7", 0},
        {"format", "Q:Do as you like.\nA:", "x", "x", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const rein_example e = {.prompt = cases[i].prompt, .answer = cases[i].answer, .budget = -1};
        rein_task *task = open_task(cases[i].task, 1);
        if (rein_task_verify(task, &e, cases[i].response, strlen(cases[i].response)) != cases[i].right)
            fail_msg("%s\"%s\" is not judged %s", e.prompt, cases[i].response, cases[i].right ? "right" : "wrong");
        rein_task_close(task);
    }
}

/* A response is bytes, however many, not a C string. */
static void test_verifiers_read_no_further(void **state) {
    static const char *const prompts[] = {"Q:7+1+5+9=?\nA:", "Q:sort dbca\nA:", "Q:Say \"abcd\" 1 times, one per line.\nA:",
                                          "Q:Write JSON", "Q:Choose 1 different words that begin with a, one per line."};
    static const char *const tasks[] = {"sums", "sort", "format", "format", "format"};
    static char huge[100000];
    (void)state;
    memset(huge, 'a', sizeof huge);
    for (size_t i = 0; i < 5; i++) {
        const rein_example e = {.prompt = prompts[i], .answer = "abcd"}, none = {0};
        rein_task *task = open_task(tasks[i], 1);
        char *exact = malloc(5);
        memcpy(exact, "=abcd", 5); /* no NUL behind it: the sanitizers watch */
        assert_true(rein_task_verify(task, &e, exact + (i > 1), 5 - (i > 1)) == 1);
        assert_true(rein_task_verify(task, &e, exact + (i > 1), 4 - (i > 1)) == (i == 4));
        assert_true(rein_task_verify(task, &e, "=ab\0cd", 6) == 0);
        assert_true(rein_task_verify(task, &e, "=abcd\0", 6) == 0);
        assert_true(rein_task_verify(task, &e, huge, sizeof huge) == 0);
        assert_true(rein_task_verify(task, &e, NULL, 0) == 0);
        assert_true(rein_task_verify(task, &none, "=", 1) == 0);
        free(exact);
        rein_task_close(task);
    }
}

/* --------------------------------------------------------------------------------------------------------------- demonstrations */

static int ends_with(const char *text, size_t length, const char *end) {
    const size_t n = strlen(end);
    return length >= n && !memcmp(text + length - n, end, n);
}

/* Of a response that was cut off, nothing counts but one that has come to the answer. */
static void check_truncated(const rein_task *task, const rein_example *e, const rein_text *text) {
    const int free_choice = !strncmp(e->prompt, "Q:Choose", 8);
    for (size_t n = 0; n < text->length && !free_choice; n++)
        if (rein_task_verify(task, e, text->data, n) != 0 && !ends_with(text->data, n, e->answer))
            fail_msg("%s\"%.*s\" is judged right", e->prompt, (int)n, text->data);
}

static void test_demonstrations_are_right(void **state) {
    static const char *const names[] = {"sort", "format"};
    (void)state;
    for (size_t t = 0; t < 2; t++) {
        rein_task *task = open_task(names[t], 9);
        size_t shortest = SIZE_MAX, longest = 0;
        for (uint64_t i = 0; i < DEMONSTRATIONS; i++) {
            rein_example e = get(task, i % 4 == 3, i);
            rein_text text = demonstrate(task, &e, i);
            if (rein_task_verify(task, &e, text.data, text.length) != 1) fail_msg("%s%s is judged wrong", e.prompt, text.data);
            check_truncated(task, &e, &text);
            if (text.length < shortest) shortest = text.length;
            if (text.length > longest) longest = text.length;
            rein_text_free(&text);
            rein_example_free(&e);
        }
        assert_true(shortest < 7 && longest > (t ? 30 : 150));
        rein_task_close(task);
    }
}

/* The pupil of sums makes mistakes, but not only. */
static void test_pupil(void **state) {
    rein_task *task = open_task("sums", 9);
    size_t right = 0;
    (void)state;
    for (uint64_t i = 0; i < DEMONSTRATIONS; i++) {
        rein_example e = get(task, REIN_SPLIT_TRAIN, i);
        rein_text text = demonstrate(task, &e, i);
        right += rein_task_verify(task, &e, text.data, text.length) == 1;
        rein_text_free(&text);
        rein_example_free(&e);
    }
    assert_in_range(right, DEMONSTRATIONS / 10, DEMONSTRATIONS * 9 / 10);
    rein_task_close(task);
}

/* An example has several, and which one is shown depends on the requested number. */
static void test_demonstrations_differ(void **state) {
    (void)state;
    for (size_t t = 0; t < 2; t++) {
        rein_task *task = open_task(t ? "sort" : "sums", 1);
        rein_example e = get(task, REIN_SPLIT_TRAIN, 0);
        rein_text first = demonstrate(task, &e, 0);
        size_t others = 0;
        for (uint64_t i = 1; i < 50; i++) {
            rein_text text = demonstrate(task, &e, i);
            others += strcmp(text.data, first.data) != 0;
            rein_text_free(&text);
        }
        assert_true(others > 10);
        rein_text_free(&first);
        rein_example_free(&e);
        rein_task_close(task);
    }
}

/* Every way to write the working of task sort, and how often it is chosen. */
static void test_demonstrations_of_sort(void **state) {
    static const struct {
        const char *text;
        size_t percent;
    } forms[] = {{"d+b=bd;bd+c=bcd;bcd+a=abcd;=abcd", 20}, {"a:dbc;b:dc;c:d;=abcd", 15}, {"d;bd;bcd=abcd", 15}, {"=abcd", 10}};
    enum { N = 100000, N_FORMS = sizeof forms / sizeof *forms };
    const rein_example e = {.prompt = "Q:sort dbca\nA:", .answer = "abcd", .budget = -1};
    rein_task *task = open_task("sort", 1);
    size_t counts[N_FORMS + 1] = {0};
    (void)state;
    for (uint64_t index = 0; index < N; index++) {
        rein_text text = demonstrate(task, &e, index);
        size_t form = 0;
        while (form < N_FORMS && strcmp(text.data, forms[form].text) != 0) form++;
        if (form == N_FORMS && !ends_with(text.data, text.length, ": abcd, so it is =abcd")) fail_msg("\"%s\"", text.data);
        counts[form]++;
        rein_text_free(&text);
    }
    for (size_t form = 0; form < N_FORMS; form++) /* four standard deviations, half a percent */
        if (fabs((double)counts[form] - N / 100.0 * (double)forms[form].percent) > N / 200)
            fail_msg("%zu times %s", counts[form], forms[form].text);
    rein_task_close(task);
}

static void test_fail_in(void **state) {
    rein_task *task = open_task("sort", 1);
    rein_error err = {0};
    (void)state;
    rein_fail(&err, REIN_EINVAL, "is wrong");
    assert_int_equal(rein_task_fail_in(&err, REIN_EINVAL, task, REIN_SPLIT_TRAIN, 7), REIN_EINVAL);
    assert_string_equal(err.message, "task sort, example 7: is wrong");
    rein_fail(&err, REIN_EINVAL, "is wrong");
    rein_task_fail_in(&err, REIN_EINVAL, task, REIN_SPLIT_HELD_OUT, 8);
    assert_string_equal(err.message, "task sort, example 8 (held out): is wrong");
    rein_task_close(task);
}

static void test_demonstrations_append(void **state) {
    rein_task *task = open_task("sort", 1);
    rein_example e = get(task, REIN_SPLIT_TRAIN, 0);
    const rein_example foreign = {.prompt = "What is 2+2?", .answer = "4"}, other = {.prompt = "Q:7+1=?\nA:", .answer = "8"},
                       none = {0};
    rein_text alone = demonstrate(task, &e, 7), text = {0};
    rein_error err = {0};
    (void)state;
    assert_int_equal(rein_text_print(&text, &err, "before "), REIN_OK);
    assert_int_equal(rein_task_demonstrate(&text, task, &e, 7, &err), REIN_OK);
    assert_memory_equal(text.data, "before ", 7);
    assert_string_equal(text.data + 7, alone.data);
    const size_t length = text.length;
    assert_int_equal(rein_task_demonstrate(&text, task, &foreign, 7, &err), REIN_EINVAL);
    assert_string_equal(err.message, "the example is not one of task sort");
    assert_int_equal(rein_task_demonstrate(&text, task, &other, 7, &err), REIN_EINVAL);
    assert_string_equal(err.message, "the prompt is not one of task sort");
    assert_int_equal(rein_task_demonstrate(&text, task, &none, 7, &err), REIN_EINVAL);
    assert_int_equal(text.length, length);
    rein_text_free(&text), rein_text_free(&alone);
    rein_example_free(&e);
    rein_task_close(task);
}

/* ----------------------------------------------------------------------------------------------------------------------- faults */

static void refused(const char *source, const rein_task_options *options, const char *message) {
    rein_error err = {0};
    rein_task *task = (rein_task *)&err;
    assert_int_equal(rein_task_open(&task, source, options, &err), REIN_EINVAL);
    assert_null(task);
    if (strcmp(err.message, message) != 0) fail_msg("\"%s\" is said, not \"%s\"", err.message, message);
}

static void test_faults(void **state) {
    (void)state;
    refused("sum", NULL, "task \"sum\" is unknown: did you mean sums?");
    refused("zebra", NULL,
            "task \"zebra\" is unknown: there are sums, sort, format, files (NAME.jsonl), commands (with a blank or a slash in "
            "them) and env: COMMAND");
    refused("", NULL,
            "task \"\" is unknown: there are sums, sort, format, files (NAME.jsonl), commands (with a blank or a slash in them) "
            "and env: COMMAND");
    refused("Makefile", NULL,
            "task \"Makefile\" is a file that cannot be executed: the name of examples ends in .jsonl (one JSON object a line) or "
            ".json (an array); a program needs chmod +x");
    refused("sums", &(rein_task_options){.held_out_share = 0.1},
            "held_out_share is 0.1: it has no effect, because only a list of examples is divided");
    refused("sums", &(rein_task_options){.timeout = 3}, "timeout is 3: it has no effect, because the task is not a program");
    rein_task *task = open_task("sums", 1);
    rein_example e;
    rein_error err = {0};
    assert_int_equal(rein_task_example(&e, task, (rein_split)2, 0, &err), REIN_EINVAL);
    assert_string_equal(err.message, "split is 2: there are two, 0 and 1");
    assert_true(!e.json && !e.memory);
    rein_example_free(&e);
    rein_task_close(task);
}

static rein_status work(void *context, rein_error *err) {
    rein_task *task;
    rein_example e = {0};
    rein_text text = {0};
    rein_status status = rein_task_open(&task, context, NULL, err);
    if (!status) status = rein_task_example(&e, task, REIN_SPLIT_TRAIN, 0, err);
    if (!status) status = rein_task_demonstrate(&text, task, &e, 0, err);
    if (status) assert_true(text.length == 0);
    rein_text_free(&text);
    rein_example_free(&e);
    rein_task_close(task);
    return status;
}

static void test_out_of_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    for (size_t t = 0; rein_task_at(t); t++) assert_true(fail_each_allocation(work, (void *)(uintptr_t)rein_task_at(t)->name) > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draw),
        cmocka_unit_test(test_draw_is_even),
        cmocka_unit_test(test_draws_have_an_address),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_splits_are_disjoint),
        cmocka_unit_test(test_same_every_time),
        cmocka_unit_test(test_others_differ),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_verifiers),
        cmocka_unit_test(test_verifiers_read_no_further),
        cmocka_unit_test(test_demonstrations_are_right),
        cmocka_unit_test(test_pupil),
        cmocka_unit_test(test_demonstrations_differ),
        cmocka_unit_test(test_demonstrations_of_sort),
        cmocka_unit_test(test_fail_in),
        cmocka_unit_test(test_demonstrations_append),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
