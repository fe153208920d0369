/* test_settings_chat.c - the chat format of a run, and the date that its template sees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "rein/train.h"
#include "support/templated.h"

static rein_settings *with(const char *name, const char *value) {
    rein_settings *s;
    OK(rein_settings_new(&s, &error_));
    if (name) OK(rein_settings_set(s, name, value, &error_));
    return s;
}

static void test_formats(void **state) {
    (void)state;
    rein_tokenizer *own = tokenizer_with("{{ messages[0].content }}"), *none = tokenizer_with_json("null");
    rein_settings *s = with(NULL, NULL), *named = with("chat_format", "qwen3"), *wrong = with("chat_format", "alpaca");
    rein_error err = {0};
    rein_chat chat = {.kind = REIN_CHAT_RAW};
    OK(rein_settings_chat(&chat, s, own, &error_));
    assert_true(chat.kind == REIN_CHAT_TEMPLATE && chat.run && !chat.date);
    OK(rein_settings_chat(&chat, named, own, &error_));
    assert_true(chat.kind == REIN_CHAT_QWEN3 && !chat.run);
    OK(rein_settings_chat(&chat, named, NULL, &error_));
    assert_int_equal(rein_settings_chat(&chat, s, NULL, &err), REIN_END);
    assert_int_equal(rein_settings_chat(&chat, s, none, &err), REIN_END);
    assert_non_null(strstr(err.message, "has no chat template"));
    assert_int_equal(rein_settings_chat(&chat, wrong, own, &err), REIN_EINVAL);
    assert_string_equal(err.field, "chat_format");
    assert_int_equal(chat.kind, REIN_CHAT_QWEN3); /* as it was */
    rein_settings_free(s), rein_settings_free(named), rein_settings_free(wrong);
    rein_tokenizer_close(own), rein_tokenizer_close(none);
}

static void test_date(void **state) {
    (void)state;
    static const char *const wrong[] = {"2026-13-01", "2026-02-29", "18 Nov 2026", "2026-11-18 09:00:00", "2026-11-1"};
    rein_tokenizer *own = tokenizer_with("{{ strftime_now('%Y') }}");
    rein_settings *s = with("date", "2024-02-29");
    rein_chat chat;
    OK(rein_settings_chat(&chat, s, own, &error_));
    assert_string_equal(chat.date, "2024-02-29");
    OK(rein_settings_check(s, &error_));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rein_error err = {0};
        OK(rein_settings_set(s, "date", wrong[i], &error_));
        assert_int_equal(rein_settings_check(s, &err), REIN_EINVAL);
        assert_string_equal(err.field, "date");
    }
    rein_settings_free(s);
    rein_tokenizer_close(own);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formats), cmocka_unit_test(test_date)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
