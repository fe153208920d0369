/* test_show.c - the words of others: whole characters, no controls, cut with a sign. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/show.h"

static const char *shown(const char *text, size_t length, int lines) {
    static char to[100];
    to[rein_show(to, text, length, lines)] = 0;
    return to;
}

static void test_controls(void **state) {
    (void)state;
    assert_string_equal(shown("a\tb\nc\033[2J\177", 10, 0), "a?b?c?[2J?");
    assert_string_equal(shown("a\nb\r", 4, 1), "a\nb?");
    assert_string_equal(shown("x\xc2\x9b", 3, 0), "x?"); /* U+009B begins a sequence, too */
    assert_string_equal(shown("a\0b", 3, 0), "a?b");
    assert_string_equal(shown("", 0, 0), "");
}

static void test_characters(void **state) {
    (void)state;
    assert_string_equal(shown("Grüße 中 😀", strlen("Grüße 中 😀"), 0), "Grüße 中 😀");
    assert_string_equal(shown("a\xff\xfe b", 5, 0), "a?? b");
    assert_string_equal(shown("\xe4\xb8", 2, 0), "??");      /* cut in the middle */
    assert_string_equal(shown("\xed\xa0\x80", 3, 0), "???"); /* a surrogate */
    char same[] = "a\xff\xe4\xb8\xad\x01z";
    same[rein_show(same, same, strlen(same), 0)] = 0;
    assert_string_equal(same, "a?中?z");
}

static void test_short(void **state) {
    (void)state;
    char to[10];
    assert_string_equal(rein_show_short(to, sizeof to, "123456789", 9), "123456789");
    assert_string_equal(rein_show_short(to, sizeof to, "1234567890", 10), "123456…");
    assert_string_equal(rein_show_short(to, sizeof to, "12345ü7890", 11), "12345…"); /* not in the middle of a character */
    assert_string_equal(rein_show_short(to, sizeof to, "1\n3", 3), "1?3");
    assert_string_equal(rein_show_short(to, 4, "中文", 6), "…");
    assert_string_equal(rein_show_short(to, 4, "abc", 3), "abc");
    assert_string_equal(rein_show_short(to, 4, "", 0), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_controls), cmocka_unit_test(test_characters),
                                       cmocka_unit_test(test_short)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
