/* test_base.c - errors, the version, where work runs, and "did you mean". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "support/check.h"

/* ---- errors */
static void test_fail_formats(void **state) {
    (void)state;
    rein_error err = {.index = 7, .field = "before", .message = "before"};
    assert_int_equal(rein_fail(&err, REIN_EINVAL, "x[%d] is %s", 3, "wrong"), REIN_EINVAL);
    assert_int_equal(err.code, REIN_EINVAL);
    assert_string_equal(err.message, "x[3] is wrong");
    assert_int_equal(rein_fail(&err, REIN_ERANGE, "again"), REIN_ERANGE);
    assert_int_equal(err.code, REIN_ERANGE);
    assert_string_equal(err.message, "again");
    assert_string_equal(err.field, "");
    assert_int_equal(err.index, -1);
    assert_int_equal(err.reason, 0);
}

static void test_fail_at_names_the_field(void **state) {
    (void)state;
    rein_error err;
    assert_int_equal(rein_fail_at(&err, REIN_EINVAL, "lengths", 3, "is %d: a length is 0 or more", -1), REIN_EINVAL);
    assert_string_equal(err.message, "lengths[3] is -1: a length is 0 or more");
    assert_string_equal(err.field, "lengths");
    assert_int_equal(err.index, 3);
    assert_string_equal(err.message + err.reason, "is -1: a length is 0 or more");
    rein_fail_at(&err, REIN_EINVAL, "groups[1]", -1, ": there is no trajectory");
    assert_string_equal(err.message, "groups[1]: there is no trajectory");
    assert_int_equal(err.index, -1);
    assert_string_equal(err.message + err.reason, ": there is no trajectory");
    assert_int_equal(rein_fail_at(NULL, REIN_ERANGE, "x", 0, "is wrong"), REIN_ERANGE);
}

static void test_fail_in_adds_the_place(void **state) {
    (void)state;
    rein_error err;
    rein_fail_at(&err, REIN_EINVAL, "reward", 2, "is missing");
    assert_int_equal(rein_fail_in(&err, REIN_EINVAL, "%s: line %d", "x.jsonl", 4), REIN_EINVAL);
    assert_string_equal(err.message, "x.jsonl: line 4: reward[2] is missing");
    assert_string_equal(err.message + err.reason, "is missing");
    assert_string_equal(err.field, "reward");
    assert_int_equal(err.index, 2);
    rein_fail(&err, REIN_EIO, "no field");
    rein_fail_in(&err, REIN_EIO, "here");
    assert_string_equal(err.message, "here: no field");
    assert_int_equal(err.reason, 0);
    assert_int_equal(rein_fail_in(NULL, REIN_EIO, "here"), REIN_EIO);
}

/* An error that is passed on stays data. */
static void test_fail_with(void **state) {
    (void)state;
    rein_error cause, err = {0};
    rein_fail_at(&cause, REIN_EIO, "reward", 2, "is missing");
    cause.system = 28;
    assert_int_equal(rein_fail_with(&err, REIN_EIO, &cause), REIN_EIO);
    assert_memory_equal(&err, &cause, sizeof err);
    assert_int_equal(rein_fail_with(NULL, REIN_EIO, &cause), REIN_EIO);
}

/* A caller may know the field by another name: an option, a position in rows. The place and the reason stay. */
static void test_spelled(void **state) {
    (void)state;
    rein_error err;
    char text[REIN_MESSAGE_SIZE];
    rein_fail_at(&err, REIN_EINVAL, "kl_loss_coef", -1, "is -1: it must be 0 or more, as kl_loss_coef is a weight");
    assert_string_equal(rein_error_spelled(text, &err, "--kl-loss-coef"),
                        "--kl-loss-coef is -1: it must be 0 or more, as kl_loss_coef is a weight");
    rein_fail_at(&err, REIN_EINVAL, "rewards", 3, ": no number");
    rein_fail_in(&err, REIN_EINVAL, "rewards.json: line %d", 3);
    assert_string_equal(rein_error_spelled(text, &err, "rewards[1][0]"), "rewards.json: line 3: rewards[1][0]: no number");
    assert_string_equal(err.message, "rewards.json: line 3: rewards[3]: no number");
    rein_fail(&err, REIN_EIO, "no field");
    assert_string_equal(rein_error_spelled(text, &err, "name"), "no field");
}

/* Also where the field, the reason, the place or the new name does not fit. */
/* Another field, and another name for it. */
static void test_renamed(void **state) {
    (void)state;
    rein_error err;
    rein_fail_at(&err, REIN_EINVAL, "groups[0].histories", 0, "has 602 tokens");
    rein_fail_in(&err, REIN_EINVAL, "data.jsonl");
    assert_int_equal(rein_fail_as(&err, REIN_EINVAL, "data", 5, "example 6"), REIN_EINVAL);
    assert_string_equal(err.message, "data.jsonl: example 6 has 602 tokens");
    assert_string_equal(err.message + err.reason, "has 602 tokens");
    assert_string_equal(err.field, "data");
    assert_int_equal(err.index, 5);
    assert_int_equal(rein_fail_as(&err, REIN_EIO, "other", -1, NULL), REIN_EIO); /* it has a field */
    assert_string_equal(err.field, "data");
    assert_int_equal(rein_fail_as(NULL, REIN_EIO, "data", 0, "x"), REIN_EIO);
}

/* A message without a field stays as it is; only what is wrong with the input is about a field. */
static void test_named(void **state) {
    (void)state;
    static const rein_status codes[] = {REIN_EINVAL, REIN_EIO, REIN_ENOMEM, REIN_ESYSTEM};
    rein_error err;
    for (size_t i = 0; i < COUNT(codes); i++) {
        rein_fail(&err, codes[i], "nowhere: cannot be opened");
        assert_int_equal(rein_fail_as(&err, codes[i], "data", -1, NULL), codes[i]);
        assert_string_equal(err.message, "nowhere: cannot be opened");
        assert_string_equal(err.field, i < 2 ? "data" : "");
        assert_int_equal(err.index, -1);
    }
}

/* The message may quote an element instead of its position. */
static void test_spelled_without_position(void **state) {
    (void)state;
    char text[REIN_MESSAGE_SIZE];
    rein_error err;
    rein_fail_at(&err, REIN_EINVAL, "reward", -1, "\"exat\" is unknown");
    err.index = 1;
    assert_string_equal(rein_error_spelled(text, &err, "--reward[1]"), "--reward \"exat\" is unknown");
    assert_string_equal(rein_error_spelled(text, &err, "--reward"), "--reward \"exat\" is unknown");
}

static void test_spelled_truncates(void **state) {
    char text[2000], spelled[REIN_MESSAGE_SIZE];
    (void)state;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (size_t length = 0; length < sizeof text - 8; length += 7) {
        rein_error err;
        rein_fail_at(&err, REIN_EINVAL, text + length, 5, "is long");
        assert_non_null(strstr(err.message, "[5] is long")); /* a long field leaves room for the reason */
        assert_string_equal(rein_error_spelled(spelled, &err, "x"), "x is long");
        assert_true(strlen(rein_error_spelled(spelled, &err, text + length)) < REIN_MESSAGE_SIZE);
        rein_fail_in(&err, REIN_EINVAL, "%s", text + length);
        assert_true(strlen(rein_error_spelled(spelled, &err, text + length)) < REIN_MESSAGE_SIZE);
        if (length < 1400) assert_string_equal(spelled, err.message); /* the place alone fills the message */
    }
}

/* The reason of an error may be given again, with another field. */
static void test_fail_at_takes_its_own_reason(void **state) {
    (void)state;
    rein_error err;
    rein_fail_at(&err, REIN_EINVAL, "rewards", 3, "is NaN: a number is needed");
    rein_fail_at(&err, REIN_ERANGE, "rewards[1]", 0, "%s", err.message + err.reason);
    assert_string_equal(err.message, "rewards[1][0] is NaN: a number is needed");
    assert_true(err.code == REIN_ERANGE && !strcmp(err.field, "rewards[1]") && err.index == 0);
}

/* Fields, reasons and places of any length stay inside the error, and every offset points into the message. */
static void test_fail_at_truncates(void **state) {
    char text[2000];
    (void)state;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (size_t length = 0; length < sizeof text; length += 7) {
        struct {
            rein_error err;
            char guard[8];
        } box;
        memset(&box, '#', sizeof box);
        rein_fail_at(&box.err, REIN_EINVAL, text + length, 5, "is %s", text + length);
        assert_true(box.err.reason <= strlen(box.err.message) && strlen(box.err.field) < sizeof box.err.field);
        rein_fail_in(&box.err, REIN_EINVAL, "%s", text + length);
        assert_true(box.err.reason <= strlen(box.err.message) && strlen(box.err.message) < sizeof box.err.message);
        assert_memory_equal(box.guard, "########", 8);
    }
}

static void test_fail_without_error(void **state) {
    (void)state;
    assert_int_equal(rein_fail(NULL, REIN_ENOMEM, "not read: %d", 1), REIN_ENOMEM);
}

static void test_fail_truncates(void **state) {
    (void)state;
    struct {
        rein_error err;
        char guard[8];
    } box;
    char text[2000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    memset(&box, '#', sizeof box);
    rein_fail(&box.err, REIN_EINVAL, "%s", text);
    assert_int_equal(strlen(box.err.message), sizeof box.err.message - 1);
    assert_int_equal(strspn(box.err.message, "a"), sizeof box.err.message - 1);
    assert_memory_equal(box.guard, "########", 8);
}

/* However much of it fits: characters of two, three and four bytes, shifted by up to three. */
static void test_fail_cuts_between_characters(void **state) {
    static const char *const characters[] = {"é", "€", "😀"};
    (void)state;
    for (size_t c = 0; c < 3; c++)
        for (size_t shift = 0; shift < 4; shift++) {
            const size_t width = strlen(characters[c]);
            char text[2000] = "aaa";
            rein_error err;
            text[shift] = 0;
            while (strlen(text) + width < sizeof text) strcat(text, characters[c]);
            rein_fail(&err, REIN_EINVAL, "%s", text);
            const size_t length = strlen(err.message);
            assert_true(length < sizeof err.message && length + width >= sizeof err.message);
            assert_int_equal((length - shift) % width, 0);
        }
}

/* The numbers are the ABI. */
static void test_status_values(void **state) {
    (void)state;
    assert_int_equal(REIN_OK, 0);
    assert_int_equal(REIN_EINVAL, 1);
    assert_int_equal(REIN_ENOMEM, 2);
    assert_int_equal(REIN_ERANGE, 3);
    assert_int_equal(REIN_EIO, 4);
    assert_int_equal(REIN_END, 5);
    assert_int_equal(REIN_ESYSTEM, 6);
}

static void test_version(void **state) {
    (void)state;
    char expected[40];
    snprintf(expected, sizeof expected, "%d.%d.%d", REIN_VERSION_MAJOR, REIN_VERSION_MINOR, REIN_VERSION_PATCH);
    assert_string_equal(rein_version(), expected);
}

/* ---- where work runs */
static void test_isa(void **state) {
    (void)state;
    assert_true(rein_isa_available(REIN_ISA_BEST));
    assert_true(rein_isa_available(REIN_ISA_REF));
    assert_false(rein_isa_available((rein_isa)77));
    assert_string_equal(rein_isa_name(REIN_ISA_REF), "ref");
    assert_string_equal(rein_isa_name(REIN_ISA_AVX2), "avx2");
    assert_string_equal(rein_isa_name(REIN_ISA_AVX512), "avx512");
    assert_string_equal(rein_isa_name(REIN_ISA_BEST), rein_isa_name(rein_isa_best()));
    assert_true(rein_isa_available(rein_isa_best()) && rein_isa_best() >= REIN_ISA_REF);
    for (rein_isa isa = rein_isa_best() + 1; isa < REIN_ISA_COUNT; isa++) assert_false(rein_isa_available(isa));
    assert_false(rein_isa_available(REIN_ISA_COUNT));
}

static void test_exec_defaults(void **state) {
    (void)state;
    rein_error err;
    rein_exec e = {-1, REIN_ISA_BEST};
    const rein_exec zero = {0, REIN_ISA_BEST};
    assert_int_equal(rein_exec_resolve(&e, NULL, REIN_SERIAL, &err), REIN_OK);
    assert_true(e.threads >= 1 && e.threads <= REIN_MAX_THREADS);
    assert_int_equal(e.isa, rein_isa_best());
    rein_exec same;
    assert_int_equal(rein_exec_resolve(&same, &zero, REIN_SERIAL, &err), REIN_OK);
    assert_int_equal(same.threads, e.threads);
    assert_int_equal(same.isa, e.isa);
}

static void test_exec_given(void **state) {
    (void)state;
    rein_exec e = {3, REIN_ISA_REF};
    assert_int_equal(rein_exec_resolve(&e, &e, REIN_SERIAL, NULL), REIN_OK);
    assert_int_equal(e.threads, 3);
    assert_int_equal(e.isa, REIN_ISA_REF);
    e.threads = 1000000;
    assert_int_equal(rein_exec_resolve(&e, &e, REIN_SERIAL, NULL), REIN_OK);
    assert_int_equal(e.threads, REIN_MAX_THREADS);
}

/* Little work is done by one thread, whoever asked for more. */
static void test_exec_small_work(void **state) {
    (void)state;
    const rein_exec many = {8, REIN_ISA_REF};
    rein_exec e;
    assert_int_equal(rein_exec_resolve(&e, &many, REIN_SERIAL - 1, NULL), REIN_OK);
    assert_int_equal(e.threads, 1);
    assert_int_equal(rein_exec_resolve(&e, &many, REIN_SERIAL, NULL), REIN_OK);
    assert_int_equal(e.threads, 8);
}

static void test_exec_errors(void **state) {
    (void)state;
    rein_error err;
    rein_exec out = {11, REIN_ISA_REF};
    const rein_exec negative = {-2, REIN_ISA_BEST}, strange = {1, (rein_isa)9};
    assert_int_equal(rein_exec_resolve(&out, &negative, REIN_SERIAL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "threads is -2"));
    assert_string_equal(err.field, "threads");
    assert_int_equal(rein_exec_resolve(&out, &strange, REIN_SERIAL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "isa is 9"));
    assert_string_equal(err.field, "isa");
    assert_int_equal(out.threads, 11); /* untouched */
}

/* ---- did you mean */
static const char *const NAMES[] = {"grpo", "dr-grpo", "kl_loss_coef", "kl_reward_coef", "epsilon", "epsilon_high", NULL};

static void test_nearest(void **state) {
    (void)state;
    const char *const pairs[][2] = {{"grpo", "grpo"},
                                    {"gpro", "grpo"},
                                    {"grp", "grpo"},
                                    {"GRPO", NULL},
                                    {"dr-gpro", "dr-grpo"},
                                    {"kl_los_coef", "kl_loss_coef"},
                                    {"kl_loss_coeff", "kl_loss_coef"},
                                    {"epsilonhigh", "epsilon_high"},
                                    {"epsilom", "epsilon"},
                                    {"temperature", NULL},
                                    {"", NULL}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *near = rein_nearest(pairs[i][0], NAMES);
        if (!pairs[i][1]) assert_null(near);
        else if (!near || strcmp(near, pairs[i][1]) != 0) fail_msg("nearest of %s is %s", pairs[i][0], near ? near : "nothing");
    }
}

static void test_nearest_limits(void **state) {
    (void)state;
    const char *const none[] = {NULL};
    char longest[3000];
    memset(longest, 'e', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_null(rein_nearest("grpo", none));
    assert_null(rein_nearest(longest, NAMES));
    longest[64] = 0; /* the longest word that is compared */
    const char *const same[] = {longest, NULL};
    assert_ptr_equal(rein_nearest(longest, same), longest);
}

/* A message is one line whatever it quotes. */
static void test_fail_is_one_line(void **state) {
    (void)state;
    rein_error err;
    assert_int_equal(rein_fail(&err, REIN_EINVAL, "preset \"%s\" does not exist", "a\nb\x7f\tc"), REIN_EINVAL);
    assert_string_equal(err.message, "preset \"a?b??c\" does not exist");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_is_one_line),
        cmocka_unit_test(test_fail_formats),
        cmocka_unit_test(test_fail_at_names_the_field),
        cmocka_unit_test(test_fail_in_adds_the_place),
        cmocka_unit_test(test_fail_with),
        cmocka_unit_test(test_spelled),
        cmocka_unit_test(test_renamed),
        cmocka_unit_test(test_named),
        cmocka_unit_test(test_spelled_without_position),
        cmocka_unit_test(test_spelled_truncates),
        cmocka_unit_test(test_fail_at_takes_its_own_reason),
        cmocka_unit_test(test_fail_at_truncates),
        cmocka_unit_test(test_fail_without_error),
        cmocka_unit_test(test_fail_truncates),
        cmocka_unit_test(test_fail_cuts_between_characters),
        cmocka_unit_test(test_status_values),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_isa),
        cmocka_unit_test(test_exec_defaults),
        cmocka_unit_test(test_exec_given),
        cmocka_unit_test(test_exec_small_work),
        cmocka_unit_test(test_exec_errors),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_nearest_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
