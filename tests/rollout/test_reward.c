/* test_reward.c - the judges that are built in, their names, weights and sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rollout/reward.h"

#include "rollout/reward_fixture.h"
#include "support/allocation.h"

/* One response against one judge. */
static double judge(const char *spec, const char *answer, const char *text) {
    rein_reward *reward = open_with(spec, NULL);
    respond(0, "q", answer, text);
    give(reward, 1);
    rein_reward_close(reward);
    assert_true(components[0] == rewards[0]);
    return rewards[0];
}

static void right(const char *spec, const char *answer, const char *text) {
    if (judge(spec, answer, text) != 1) fail_msg("%s: \"%s\" should be right by \"%s\"", spec, text, answer ? answer : "");
}

static void wrong(const char *spec, const char *answer, const char *text) {
    if (judge(spec, answer, text) != 0) fail_msg("%s: \"%s\" should be wrong by \"%s\"", spec, text, answer ? answer : "");
}

/* ---- exact */
static void test_exact(void **state) {
    (void)state;
    right("exact", "Paris", "Paris");
    right("exact", "Paris", " \n\tParis\r\n ");
    right(" exact ", " Paris", "Paris"); /* blanks around the answer and around the judge mean as little */
    right("exact", "", "  ");
    wrong("exact", "Paris", "paris");
    wrong("exact", "Paris", "Paris.");
    wrong("exact", "Paris", "Pari");
    wrong("exact", "a b", "a  b");
    wrong("exact", "Paris", "");
    right("exact", "Grüße", "Grüße");
}

/* ---- number */
static void test_number(void **state) {
    (void)state;
    static const char *const same[][2] = {
        {"22", "22"},
        {"22", "= 22."},
        {"22", "The sum is 20 + 2 = 22."},
        {"22", "22.0"},
        {"22.50", "22.5"},
        {"1234.5", "1,234.5"},
        {"1,234.5", "1234.5"},
        {"1234567", "1,234,567!"},
        {"-7", "x = -7"},
        {"-7", "(-7)"},
        {"-7", "\xe2\x88\x92"
               "7"},
        {"7", "+7"},
        {"0.5", ".5"},
        {"0", "-0.00"},
        {"1e3", "1000"},
        {"1000", "1.0E+3"},
        {"0.001", "1e-3"},
        {"5", "10-5"},
        {"5", "(10)-5"},
        {"42", "答案是42。"},
        {"42", "**42**"},
        {"42", "\\boxed{42}"},
        {"42", "42km"},
        {"50", "50%"},
        {"9", "No.9"},
        {"3", "1.2.3"},
        {"23", "1,23"},
        {"3456", "12,3456"},
        {"678", "12345,678"},
        {"123", "0,123"},
        {"4", "x2 = 4, and y4"},
        {"2", "2 H2O"},
        {"72", "It is 72\n#### 72"},
        {"0.75", "3/4 = 0.75"},
        {"72", "$72"},
        {"5", "wait...5"},
        {"123456789012345678901234567890.10", "123456789012345678901234567890.1"},
        {"007", "7"},
        {"Natalia sold 48/2 = 24. #### 72", "72"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) right("number", same[i][0], same[i][1]);
}

static void test_number_wrong(void **state) {
    (void)state;
    static const char *const other[][2] = {
        {"22", ""},         {"22", "no number"}, {"22", "22 or 23"},
        {"22", "2.2"},      {"22", "220"},       {"22", "-22"},
        {"-22", "22"},      {"22", "2 2"},       {"2", "x2"},
        {"3", "layer_3"},   {"4", "3/4"},        {"0.1", "0.10000000000000001"},
        {"1", "10"},        {"10", "1"},         {"0", "0.01"},
        {"1e3", "1e4"},     {"5", "-5"},         {"100", "1e100000000000000000000"},
        {"1234", "1,23,4"},
    };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) wrong("number", other[i][0], other[i][1]);
}

static void test_number_needs_one(void **state) {
    (void)state;
    rein_reward *reward = open_with("number", NULL);
    respond(0, "q", "none at all", "5");
    fails(reward, 1, REIN_EINVAL, "number: response 1 of 1 (prompt \"q\"): the answer \"none at all\" has no number in it");
    respond(0, "q", "3/4", "4");
    fails(reward, 1, REIN_EINVAL, "number: response 1 of 1 (prompt \"q\"): the answer \"3/4\" ends in a fraction, not a number");
    rein_reward_close(reward);
}

static double value(const char *text) {
    rein_decimal number;
    assert_int_equal(rein_decimal_read(&number, text, strlen(text), 0), strlen(text));
    return rein_decimal_value(&number);
}

static void test_values(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value;
    } cases[] = {{"1.0", 1},
                 {"-0.5", -0.5},
                 {".25", 0.25},
                 {"+3", 3},
                 {"0.1", 0.1},
                 {"1e-3", 1e-3},
                 {"12.5e2", 1250},
                 {"1e308", 1e308},
                 {"5e-324", 5e-324},
                 {"0.000123", 0.000123},
                 {"1e999999999999", INFINITY},
                 {"-1e400", -INFINITY},
                 {"1e-999999", 0},
                 {"0e5", 0},
                 {"0.30000000000000004", 0.1 + 0.2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (value(cases[i].text) != cases[i].value) fail_msg("%s is %.17g", cases[i].text, value(cases[i].text));
    char many[400];
    memset(many, '7', sizeof many - 1);
    many[sizeof many - 1] = 0;
    assert_true(isnan(value(many)));
}

/* ---- regex */
static void test_regex(void **state) {
    (void)state;
    right("regex:^<answer>.*</answer>$", NULL, "<answer>a b</answer>");
    wrong("regex:^<answer>.*</answer>$", NULL, "so <answer>5</answer>");
    right("regex:(?:a|b)c", NULL, "xbcx"); /* no group: no answer is needed */
    right("regex:^.$", NULL, "ü");         /* characters, not bytes */
    wrong("regex:a", NULL, "");
    right("regex: a", NULL, "x a"); /* a blank belongs to the pattern */
    wrong("regex: a", NULL, "xa");
    right("regex:Answer: *(\\d+)", "42", "7. Answer: 42 of 50");
    wrong("regex:Answer: *(\\d+)", "42", "Answer: 41");
    wrong("regex:Answer: *(\\d+)", "42", "42");
    right("regex:Answer:(.*)", "42", "Answer: 42 "); /* without blanks around it, as exact */
    wrong("regex:a|(b)", "", "a");                   /* the group did not take part */
    right("regex:\\\\boxed\\{([^}]*)\\}", "42", "so \\boxed{42}.");
    right("regex:(?s)<a>(.*)</a>", "x\ny", "<a>x\ny</a>");
}

static void test_regex_wrong(void **state) {
    (void)state;
    refuses("regex:(a", "reward \"regex:(a\": the expression is wrong at byte 2: missing closing parenthesis");
    refuses("regex:", "reward \"regex:\" needs an argument after the colon: regex:PATTERN");
    refuses("regex", "reward \"regex\" needs an argument after the colon: regex:PATTERN");
    refuses("regex:a\\Cb", "reward \"regex:a\\Cb\": the expression is wrong at byte 3: using \\C is disabled by the application");
    rein_reward *reward;
    const char *spec = "regex:a\xff";
    assert_int_equal(rein_reward_open(&reward, &spec, 1, NULL, NULL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "reward \"regex:a?\": the expression is wrong at byte 1: UTF-8 error"));
}

/* An expression that would try for years stops, with a sentence. */
static void test_regex_without_end(void **state) {
    (void)state;
    rein_reward *reward = open_with("regex:^(?:a+)+$", NULL);
    respond(0, "q", NULL, "aaaa");
    respond(1, "How many a?", NULL, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!");
    fails(reward, 2, REIN_EINVAL,
          "regex: response 2 of 2 (prompt \"How many a?\"): the expression takes more than 5000000 steps on it: it tries too many "
          "ways "
          "to match");
    give(reward, 1);
    assert_true(rewards[0] == 1);
    rein_reward_close(reward);
}

/* Not too much at any one place where it might begin, but there are many. */
static void test_regex_without_end_everywhere(void **state) {
    (void)state;
    enum { LENGTH = 3000 };
    char text[LENGTH + 1];
    rein_reward *reward = open_with("regex:a[^x]*a[^x]*[bc]", NULL);
    memset(text, 'a', LENGTH);
    text[LENGTH] = 0;
    respond(0, "q", NULL, text);
    fails(reward, 1, REIN_EINVAL,
          "regex: response 1 of 1 (prompt \"q\"): the expression takes more than 5000000 steps on it: it tries too many ways to "
          "match");
    rein_reward_close(reward);
}

/* A long response is no reason to give up. */
static void test_regex_on_much(void **state) {
    (void)state;
    enum { LENGTH = 500000 };
    char *text = malloc(LENGTH + 20);
    assert_non_null(text);
    memset(text, 'a', LENGTH);
    strcpy(text + LENGTH, " Answer: 42 ");
    right("regex:Answer: (\\d+)", "42", text);
    right("regex:(?s)^.*?Answer: (\\d+)", "42", text);
    right("regex:(?s).*Answer: (\\d+)", "42", text);
    free(text);
}

static void test_not_utf8(void **state) {
    (void)state;
    rein_reward *reward = open_with("regex:a", NULL);
    respond(0, "q", NULL, "a\xff");
    assert_int_equal(rein_reward_give(rewards, NULL, reward, responses, 1, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "regex: response 1 of 1 (prompt \"q\"): it cannot be matched: UTF-8 error"));
    rein_reward_close(reward);
}

/* ---- length */
static void test_length(void **state) {
    (void)state;
    static const struct {
        size_t tokens;
        double reward;
    } cases[] = {{0, 1}, {1, 1}, {200, 1}, {201, 0.995}, {300, 0.5}, {399, 0.005}, {400, 0}, {100000, 0}};
    rein_reward *reward = open_with("length:200", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) respond(i, "q", NULL, "x")->tokens = cases[i].tokens;
    give(reward, sizeof cases / sizeof *cases);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_true(rewards[i] == cases[i].reward);
    rein_reward_close(reward);
    static const char *const bad[] = {"length:0",   "length:x",  "length:-3",
                                      "length:2.5", "length: 5", "length:99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char wanted[200];
        snprintf(wanted, sizeof wanted, "reward \"%s\": a whole number of tokens from 1 to 1000000000 is needed", bad[i]);
        refuses(bad[i], wanted);
    }
}

/* ---- task */
static void test_task(void **state) {
    (void)state;
    const char *spec = "task";
    rein_task *task;
    rein_reward *reward;
    rein_example example;
    if (rein_task_open(&task, "sums", NULL, &err) != REIN_OK) fail_msg("%s", err.message);
    if (rein_reward_open(&reward, &spec, 1, task, NULL, &err) != REIN_OK) fail_msg("%s", err.message);
    if (rein_task_example(&example, task, REIN_SPLIT_TRAIN, 0, &err) != REIN_OK) fail_msg("%s", err.message);
    char text[100];
    snprintf(text, sizeof text, "=%s", example.answer);
    responses[0] = responses[1] = (rein_response){.example = &example, .text = text, .length = strlen(text), .tokens = 3};
    responses[1].length = 1;
    give(reward, 2);
    assert_true(rewards[0] == 1 && rewards[1] == 0);
    rein_example_free(&example);
    rein_reward_close(reward);
    rein_task_close(task);
}

static void test_task_without_verifier(void **state) {
    (void)state;
    const char *spec = "task";
    rein_task *task;
    rein_reward *reward;
    refuses("task", "reward \"task\": there is no task here");
    if (rein_task_open(&task, "cat -", NULL, &err) != REIN_OK) fail_msg("%s", err.message);
    assert_int_equal(rein_reward_open(&reward, &spec, 1, task, NULL, &err), REIN_EINVAL);
    says("reward \"task\": cat - has no verifier of its own: exact, number, regex:PATTERN or a program");
    rein_task_close(task);
}

/* ---- what a judge may be */
static void test_unknown(void **state) {
    (void)state;
    refuses("exat", "reward \"exat\" is unknown: did you mean exact? (A program of this folder is ./exat)");
    refuses("regx:a+", "reward \"regx:a+\" is unknown: did you mean regex:PATTERN? (A program of this folder is ./regx:a+)");
    refuses("lenght:20", "reward \"lenght:20\" is unknown: did you mean length:N? (A program of this folder is ./lenght:20)");
    refuses("group", "reward \"group\" is unknown: did you mean group: COMMAND? (A program of this folder is ./group)");
    refuses(
        "judge.py",
        "reward \"judge.py\" is unknown: task, exact, number, regex:PATTERN, length:N, model:DIR or a command, with a blank or a "
        "slash in it (./judge.py)");
    refuses("exact:5", "reward \"exact:5\" takes no argument: exact");
    refuses("length", "reward \"length\" needs an argument after the colon: length:N");
    refuses("group:", "reward \"group:\" needs a command after the colon: group: COMMAND");
    refuses("group:  ", "reward \"group:\" needs a command after the colon: group: COMMAND");
    refuses(" ", "reward[0] is empty: the name of a judge or a command is needed");
}

static void test_options(void **state) {
    (void)state;
    static const char *const specs[] = {"exact", "number"};
    rein_reward *reward;
    assert_int_equal(rein_reward_open(&reward, NULL, 0, NULL, NULL, &err), REIN_EINVAL);
    says("reward is missing: one judge or more is needed");
    const rein_reward_options slow = {.timeout = -1}, never = {.timeout = INFINITY}, odd = {.weights = (const double[]){1, NAN}};
    assert_int_equal(rein_reward_open(&reward, specs, 2, NULL, &slow, &err), REIN_EINVAL);
    says("timeout is -1: seconds above 0 are needed (0: 30)");
    assert_int_equal(rein_reward_open(&reward, specs, 2, NULL, &never, &err), REIN_EINVAL);
    says("timeout is inf: seconds above 0 are needed (0: 30)");
    assert_int_equal(rein_reward_open(&reward, specs, 2, NULL, &odd, &err), REIN_EINVAL);
    says("weights[1] is nan: a finite number is needed");
    assert_null(reward);
    rein_reward_close(NULL);
}

static void test_names(void **state) {
    (void)state;
    static const char *const specs[] = {"exact",
                                        "regex:a",
                                        "regex:b",
                                        "exact",
                                        "./judge --config a.yaml",
                                        "python3 -u rewards/judge.py --strict",
                                        "group: python3.11 judge.py",
                                        "sh -c 'cat'",
                                        "FOO=a.b exec /opt/x/rank.sh",
                                        "cat | ./other.py",
                                        "'./my judge'",
                                        "./jüdge",
                                        "./exact",
                                        "./a-very-long-name-of-a-program-that-has-no-end-at-all-it-seems",
                                        "./a-very-long-name-of-a-program-that-has-no-end-at-all-we-fear"};
    static const char *const names[] = {"exact",
                                        "regex",
                                        "regex-2",
                                        "exact-2",
                                        "judge",
                                        "judge.py",
                                        "judge.py-2",
                                        "sh",
                                        "rank.sh",
                                        "cat",
                                        "program",
                                        "j__dge",
                                        "exact-3",
                                        "a-very-long-name-of-a-program-that-has-",
                                        "a-very-long-name-of-a-program-that-has--2"};
    enum { N = sizeof specs / sizeof *specs };
    assert_int_equal(N, sizeof names / sizeof *names);
    rein_reward *reward;
    if (rein_reward_open(&reward, specs, N, NULL, NULL, &err) != REIN_OK) fail_msg("%s", err.message);
    assert_int_equal(rein_reward_count(reward), N);
    for (size_t i = 0; i < N; i++) assert_string_equal(rein_reward_name(reward, i), names[i]);
    rein_reward_close(reward);
}

/* ---- sums */
static void test_sum(void **state) {
    (void)state;
    static const char *const specs[] = {"exact", "length:10", "number"};
    const rein_reward_options options = {.weights = (const double[]){1, 0.5, -2}};
    rein_reward *reward;
    if (rein_reward_open(&reward, specs, 3, NULL, &options, &err) != REIN_OK) fail_msg("%s", err.message);
    respond(0, "q", "5", "5")->tokens = 15;
    respond(1, "q", "5", "it is 5");
    respond(2, "q", "5", "6")->tokens = 20;
    give(reward, 3);
    static const double each[] = {1, 0.5, 1, 0, 1, 1, 0, 0, 0}, sums[] = {1 + 0.25 - 2, 0.5 - 2, 0};
    assert_memory_equal(components, each, sizeof each);
    assert_memory_equal(rewards, sums, sizeof sums);
    assert_int_equal(rein_reward_give(rewards, NULL, reward, responses, 3, &err), REIN_OK); /* components may be NULL */
    assert_memory_equal(rewards, sums, sizeof sums);
    assert_int_equal(rein_reward_give(NULL, NULL, reward, NULL, 0, &err), REIN_OK);
    assert_string_equal(rein_reward_log(reward), "");
    rein_reward_close(reward);
}

static void test_no_text(void **state) { /* of an empty response */
    (void)state;
    rein_reward *reward = open_with("exact", NULL);
    respond(0, "q", "5", "")->text = NULL;
    give(reward, 1);
    assert_true(rewards[0] == 0);
    rein_reward_close(reward);
}

static void test_sum_overflows(void **state) {
    (void)state;
    static const char *const specs[] = {"exact", "exact"};
    const rein_reward_options options = {.weights = (const double[]){1e308, 1e308}};
    rein_reward *reward;
    assert_int_equal(rein_reward_open(&reward, specs, 2, NULL, &options, &err), REIN_OK);
    respond(0, "q", "5", "5");
    fails(reward, 1, REIN_ERANGE, "reward: response 1 of 1 (prompt \"q\"): the weighted sum is inf: not a finite number");
    rein_reward_close(reward);
}

static void test_answer_is_missing(void **state) {
    (void)state;
    static const char *const specs[] = {"exact", "number", "regex:(a)"};
    for (size_t i = 0; i < 3; i++) {
        rein_reward *reward = open_with(specs[i], NULL);
        char wanted[200];
        respond(0, "q", "5", "5");
        respond(1, "Which number is the one that everybody thinks of first, when asked?\n", NULL, "5");
        snprintf(
            wanted, sizeof wanted,
            "%s: response 2 of 2 (prompt \"Which number is the one that everybody thinks of first, …\"): the example has no answer "
            "to compare with",
            rein_reward_name(reward, 0));
        fails(reward, 2, REIN_EINVAL, wanted);
        give(reward, 1); /* the failure is over */
        rein_reward_close(reward);
    }
}

/* ---- memory */
static rein_status try_all(void *context, rein_error *error) {
    static const char *const specs[] = {"exact", "number", "regex:(\\d+)", "length:5"};
    rein_reward *reward;
    (void)context;
    rein_status status = rein_reward_open(&reward, specs, 4, NULL, NULL, error);
    if (!status) status = rein_reward_give(rewards, components, reward, responses, 2, error);
    rein_reward_close(reward);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    respond(0, "q", "5", "5");
    respond(1, "q", "5", "is it 5 or 6?");
    assert_true(fail_each_allocation(try_all, NULL) >= 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_number),
        cmocka_unit_test(test_number_wrong),
        cmocka_unit_test(test_number_needs_one),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_regex),
        cmocka_unit_test(test_regex_wrong),
        cmocka_unit_test(test_regex_without_end),
        cmocka_unit_test(test_regex_without_end_everywhere),
        cmocka_unit_test(test_regex_on_much),
        cmocka_unit_test(test_not_utf8),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_task),
        cmocka_unit_test(test_task_without_verifier),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_no_text),
        cmocka_unit_test(test_sum_overflows),
        cmocka_unit_test(test_answer_is_missing),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, forget_responses);
}
