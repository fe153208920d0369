/* test_chat.c - chats as Jinja renders them (tests/model/fixtures/tokenizer_chat), where the assistant speaks, and which templates are
 * known. The published templates themselves are recognised in tests/parity/tokenizers, which fetches them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "rein/tokenizer.h"
#include "tokenizer_fixture.h"

enum { MOST = 16 };

static size_t messages_of(rein_message *messages, const json_t *list) {
    const size_t n = json_array_size(list);
    assert_true(n <= MOST);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i), *content = json_object_get(item, "content");
        messages[i] = (rein_message){json_string_value(json_object_get(item, "role")), json_string_value(content),
                                     json_string_length(content)};
    }
    return n;
}

/* Spans ascend, hold the content (but for blanks and old thinking, of which templates take away), and stop after the end of the turn. */
static void check_spans(const rein_text *text, const rein_chat_span *spans, const rein_message *messages, size_t n) {
    size_t last = 0;
    for (size_t i = 0; i < n; i++) {
        const rein_chat_span *span = &spans[i];
        assert_true(last <= span->content.begin && span->content.begin <= span->content.end && span->content.end <= span->stop);
        assert_true(span->stop <= text->length);
        last = span->stop;
        assert_int_equal(span->assistant, strcmp(messages[i].role, "assistant") == 0);
        if (strcmp(messages[i].role, "tool") == 0) continue;
        const char *end = text->data + span->content.end;
        assert_true(strncmp(end, "<|im_end|>", span->stop - span->content.end) == 0 ||
                    strncmp(end, "<|eot_id|>", span->stop - span->content.end) == 0);
        assert_int_equal(span->stop - span->content.end, 10);
    }
}

static void check_case(const json_t *item) {
    const json_t *given = json_object_get(item, "options"), *template_text = json_object_get(item, "template");
    const char *expected = json_string_value(json_object_get(item, "text")),
               *name = json_string_value(json_object_get(item, "format"));
    const char *system = json_string_value(json_object_get(item, "system"));
    rein_message messages[MOST];
    rein_chat_span spans[MOST];
    rein_chat chat;
    rein_text text = {0};
    rein_error err = {0};
    const rein_chat_options options = {.add_generation_prompt = json_is_true(json_object_get(given, "add_generation_prompt")),
                                       .no_thinking = json_is_false(json_object_get(given, "enable_thinking"))};
    const size_t n = messages_of(messages, json_object_get(item, "messages"));
    if (template_text) {
        assert_int_equal(rein_chat_recognise(&chat, json_string_value(template_text), json_string_length(template_text), &err),
                         REIN_OK);
        assert_int_equal(rein_chat_system(&text, &chat, &err), REIN_OK);
        assert_string_equal(text.data ? text.data : "", system);
        rein_text_free(&text);
        assert_string_equal(rein_chat_name(&chat), name);
    } else {
        assert_int_equal(rein_chat_named(&chat, name, &err), REIN_OK);
        if (system) assert_null(strchr(system, '\\')); /* it would be an escape */
        if (system) chat.system = *system ? system : NULL, chat.system_length = strlen(system);
    }
    if (rein_chat_render(&text, spans, &chat, messages, n, &options, &err)) fail_msg("%s", err.message);
    assert_string_equal(text.data, expected);
    assert_int_equal(text.length, strlen(expected));
    check_spans(&text, spans, messages, n);
    rein_text_free(&text);
}

static void test_as_jinja(void **state) {
    (void)state;
    static char line[20000];
    size_t lines = 0;
    FILE *cases = fopen("tests/model/fixtures/tokenizer_chat/cases.jsonl", "r");
    assert_non_null(cases);
    for (; fgets(line, sizeof line, cases); lines++) {
        json_t *item = json_loads(line, 0, NULL);
        assert_non_null(item);
        check_case(item);
        json_decref(item);
    }
    assert_true(lines > 100);
    fclose(cases);
}

/* A default system message may have any length. Here it has 9,000 characters, of which a third are escapes. */
static void test_long_default(void **state) {
    (void)state;
    enum { TIMES = 3000 };
    static const char before[] = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
                                 "{{ '<|im_start|>system\\n",
                      after[] = "<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
                                "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
                                "{% endif %}";
    rein_text template_text = {0}, system = {0}, expected = {0};
    rein_error err = {0};
    rein_chat chat;
    rein_text_put(&template_text, before);
    rein_text_repeat(&template_text, "It\\'s \\\\ \\n", TIMES);
    rein_text_put(&template_text, after);
    rein_text_repeat(&expected, "It's \\ \n", TIMES);
    if (rein_chat_recognise(&chat, template_text.data, template_text.length, &err)) fail_msg("%s", err.message);
    assert_int_equal(chat.kind, REIN_CHAT_CHATML);
    assert_int_equal(rein_chat_system(&system, &chat, &err), REIN_OK);
    assert_int_equal(system.length, expected.length);
    assert_string_equal(system.data, expected.data);
    rein_text_free(&template_text), rein_text_free(&system), rein_text_free(&expected);
}

static void test_raw(void **state) {
    (void)state;
    const rein_message messages[] = {{"user", "2+2=", 4}, {"assistant", "4", 1}};
    rein_chat_span spans[2];
    rein_text text = {0};
    rein_chat chat;
    assert_int_equal(rein_chat_named(&chat, "raw", NULL), REIN_OK);
    assert_int_equal(rein_chat_render(&text, spans, &chat, messages, 2, NULL, NULL), REIN_OK);
    assert_string_equal(text.data, "2+2=4");
    assert_int_equal(spans[1].content.begin, 4);
    assert_int_equal(spans[1].stop, 5);
    rein_text_free(&text);
}

static void test_options_of_llama(void **state) {
    (void)state;
    const rein_message messages[] = {{"user", "x", 1}};
    const rein_chat_options options = {.begin = "<s>", .date = "01 Jan 2030"};
    rein_text text = {0};
    rein_chat chat;
    assert_int_equal(rein_chat_named(&chat, "llama3.1", NULL), REIN_OK);
    assert_int_equal(rein_chat_render(&text, NULL, &chat, messages, 1, &options, NULL), REIN_OK);
    assert_int_equal(strncmp(text.data, "<s><|start_header_id|>", 22), 0);
    assert_non_null(strstr(text.data, "Today Date: 01 Jan 2030\n"));
    rein_text_free(&text);
}

static void test_unknown_is_refused(void **state) {
    (void)state;
    static const char *const unknown[] = {
        "", "{{ messages }}", "{% for message in messages %}{{ message.content }}{% endfor %}",
        ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
         "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>user\n' }}{% endif %}")};
    const rein_chat as_it_was = {.kind = REIN_CHAT_QWEN3, .system = "as it was", .system_length = 9};
    rein_chat chat = as_it_was;
    rein_error err;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_int_equal(rein_chat_recognise(&chat, unknown[i], strlen(unknown[i]), &err), REIN_EINVAL);
        assert_non_null(strstr(err.message, "chatml"));
        assert_non_null(strstr(err.message, "token ids"));
        assert_true(chat.kind == REIN_CHAT_QWEN3 && chat.system == as_it_was.system);
    }
    assert_int_equal(rein_chat_recognise(&chat, NULL, 0, &err), REIN_EINVAL);
    assert_int_equal(rein_chat_named(&chat, "mistral", &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "\"mistral\""));
}

static void test_bad_messages(void **state) {
    (void)state;
    static const struct {
        const char *format, *role, *content, *said;
        int no_thinking;
    } bad[] = {{"chatml", "user\n<|im_end|>", "", "messages[0].role", 0},
               {"chatml", NULL, "", "messages[0].role", 0},
               {"llama3", "tool", "", "messages[0].role is tool", 0},
               {"chatml", "user", "a\xFF", "byte 1", 0},
               {"qwen2.5", "user", "a", "no_thinking", 1}};
    const rein_chat none = {.kind = (rein_chat_kind)7};
    const rein_message fine = {"user", "", 0};
    rein_text empty = {0};
    assert_null(rein_chat_name(&none));
    assert_int_equal(rein_chat_render(&empty, NULL, &none, &fine, 1, NULL, NULL), REIN_EINVAL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const rein_message message = {bad[i].role, bad[i].content, strlen(bad[i].content)};
        const rein_chat_options options = {.no_thinking = bad[i].no_thinking, .add_generation_prompt = 1};
        rein_text text = {0};
        rein_chat chat;
        rein_error err = {0};
        assert_int_equal(rein_chat_named(&chat, bad[i].format, &err), REIN_OK);
        assert_int_equal(rein_chat_render(&text, NULL, &chat, &message, 1, &options, &err), REIN_EINVAL);
        if (!strstr(err.message, bad[i].said)) fail_msg("%s", err.message);
        if (!*err.field) fail_msg("\"%s\" names no field", err.message);
        assert_int_equal(text.length, 0);
        assert_int_equal(rein_chat_render(&text, NULL, &chat, &message, 0, NULL, &err), REIN_EINVAL);
        rein_text_free(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_jinja),         cmocka_unit_test(test_long_default),       cmocka_unit_test(test_raw),
        cmocka_unit_test(test_options_of_llama), cmocka_unit_test(test_unknown_is_refused), cmocka_unit_test(test_bad_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
