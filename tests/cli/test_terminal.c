/* test_terminal.c - text from files and models on a terminal: what a terminal would obey is shown instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cli/terminal.h"

static void test_show(void **state) {
    (void)state;
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"plain text,\n\ttwo lines", "plain text,\n\ttwo lines"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xc2\xb7", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xc2\xb7"},
        {"\033]0;title\007", "\\x1b]0;title\\x07"},
        {"over\rwritten\b", "over\\x0dwritten\\x08"},
        {"\177", "\\x7f"},
        {"\xc2\x9b"
         "2J",
         "\\u009b2J"}, /* CSI in one character */
        {"\x9b"
         "2J",
         "\\x9b2J"},                                           /* and as a byte */
        {"\xc0\xaf\xe0\x80\x9b", "\\xc0\\xaf\\xe0\\x80\\x9b"}, /* too long for what they mean */
        {"\xed\xa0\x80\xf4\x90\x80\x80", "\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80"},
        {"cut \xe2\x82", "cut \\xe2\\x82"},
        {CLI_GREEN "green" CLI_PLAIN, "\\x1b[32mgreen\\x1b[0m"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rein_text out = {0};
        cli_show(&out, cases[i].text, strlen(cases[i].text));
        assert_string_equal(out.data, cases[i].shown);
        rein_text_free(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_show)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
