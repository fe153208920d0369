/* test_text.c - the growing text: appended, formatted, cut; a failure leaves it as it was, and is remembered where there is no status. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "support/allocation.h"

static void test_append(void **state) {
    (void)state;
    rein_text text = {0};
    rein_error err;
    assert_int_equal(rein_text_append(&text, "a\0b", 3, &err), REIN_OK);
    assert_int_equal(text.length, 3);
    assert_memory_equal(text.data, "a\0b", 4);
    rein_text_cut(&text, 1);
    rein_text_put(&text, "bc");
    rein_text_format(&text, "%d-%s", 7, "x");
    rein_text_repeat(&text, "=*", 3);
    rein_text_put_bytes(&text, "end!", 3);
    assert_string_equal(text.data, "abc7-x=*=*=*end");
    assert_int_equal(text.length, strlen(text.data));
    assert_int_equal(rein_text_print(&text, &err, "%05d", 42), REIN_OK);
    assert_string_equal(text.data + 15, "00042");
    assert_int_equal(rein_text_status(&text, &err), REIN_OK);
    rein_text_free(&text);
    assert_null(text.data);
    rein_text_free(&text);
}

static void test_grows(void **state) {
    (void)state;
    rein_text text = {0};
    for (int i = 0; i < 100000; i++) rein_text_format(&text, "%d,", i % 10);
    assert_int_equal(text.length, 200000);
    assert_true(text.capacity < 400000);
    for (size_t i = 0; i < text.length; i += 2) assert_true(text.data[i] == (char)('0' + i / 2 % 10) && text.data[i + 1] == ',');
    rein_text_free(&text);
}

static void test_failure_is_remembered(void **state) {
    (void)state;
    if (!can_fail()) skip();
    rein_text text = {0};
    rein_error err = {0};
    rein_text_put(&text, "kept");
    left = 0, once = 1;
    assert_int_equal(rein_text_append(&text, "more than there is room for", 27, &err), REIN_ENOMEM);
    assert_string_equal(text.data, "kept"); /* a call with a status is not remembered */
    assert_int_equal(rein_text_status(&text, &err), REIN_OK);
    left = 0, once = 1;
    rein_text_format(&text, "%s", "more than there is room for");
    rein_text_put(&text, "!");
    assert_string_equal(text.data, "kept");
    assert_int_equal(rein_text_append(&text, "!", 1, NULL), REIN_ENOMEM);
    assert_int_equal(rein_text_status(&text, &err), REIN_ENOMEM);
    assert_string_equal(err.message, "out of memory");
    left = -1;
    rein_text_free(&text);
    rein_text_put(&text, "again");
    assert_string_equal(text.data, "again");
    rein_text_free(&text);
    assert_int_equal(rein_text_append(&text, "", SIZE_MAX / 2, &err), REIN_ENOMEM);
}

static rein_status write_much(void *context, rein_error *err) {
    rein_text text = {0};
    (void)context;
    for (int i = 0; i < 50; i++) rein_text_format(&text, "%d ", i), rein_text_repeat(&text, "ab", 20);
    const rein_status status = rein_text_status(&text, err);
    rein_text_free(&text);
    return status;
}

static void test_every_allocation_fails(void **state) {
    (void)state;
    if (!can_fail()) skip();
    assert_true(fail_each_allocation(write_much, NULL) > 5);
}

static void test_blanks(void **state) {
    (void)state;
    const char *text = " \t\r\n\v\f a b\n ";
    size_t length = strlen(text);
    rein_trim(&text, &length);
    assert_int_equal(length, 3);
    assert_memory_equal(text, "a b", 3);
    assert_true(rein_all_blank(" \t\r", 3) && rein_all_blank("", 0) && !rein_all_blank(" x", 2));
    assert_false(rein_is_blank('\0') || rein_is_blank((char)0xA0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_grows),
        cmocka_unit_test(test_failure_is_remembered),
        cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_blanks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
