/* test_settings.c - every setting and every option of the library is an option of the command line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cli/settings.h"

/* Has a row, and its option is found by its name. */
static void assert_listed(const char *name) {
    const cli_setting *s = NULL;
    for (size_t i = 0; (s = cli_setting_at(i)) && strcmp(s->name, name) != 0; i++) {
    }
    if (!s) fail_msg("%s is not in the table: it may be full", name);
    assert_ptr_equal(cli_setting_named(s->option, strlen(s->option)), s);
}

static void test_settings_are_listed(void **state) {
    (void)state;
    size_t n = 1;
    assert_listed("preset");
    for (size_t i = 0; rein_setting_at(i); i++, n++) assert_listed(rein_setting_at(i)->name);
    for (size_t i = 0; rein_option_at(i); i++, n++) assert_listed(rein_option_at(i)->name);
    for (size_t i = 0; rein_option_alias_at(i); i++, n++) assert_listed(rein_option_alias_at(i)->name);
    assert_non_null(cli_setting_at(n - 1));
    assert_null(cli_setting_at(n));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_settings_are_listed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
