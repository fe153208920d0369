/* test_conversation.c - conversations by the tokenizer's own template: messages with more than a role and a content, tools, variables, the
 * date, the end of a turn. Expected texts are written out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "rein/rollout.h"
#include "support/templated.h"

static const char PLAIN[] =
    "{% if tools %}T{{ tools | length }}{% endif %}{% for m in messages %}{{ m.role[0] }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}({{ c.function.name }} {{ c.function.arguments.a }}){% endfor %}"
    "<end>{% endfor %}{% if add_generation_prompt %}a:{% if enable_thinking is false %}-{% endif %}{% endif %}";
static const char CALL[] =
    "[{\"role\": \"user\", \"content\": \"1<end>\"}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"x\", "
    "\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 3}\"}}]}, {\"role\": \"tool\", "
    "\"tool_call_id\": \"x\", \"content\": \"4\"}]";

static rein_json *parsed(const char *text) {
    rein_json *json = NULL;
    OK(rein_json_parse(&json, text, strlen(text), NULL, 0, &error_));
    return json;
}

static void assert_ids(const rein_ids *ids, const rein_tokenizer *t, const char *wanted) {
    rein_text text = {0};
    OK(rein_tokenizer_decode(&text, t, ids->data, ids->count, 0, &error_));
    assert_string_equal(text.data, wanted);
    rein_text_free(&text);
}

static void encodes(const rein_tokenizer *t, const rein_chat *chat, const char *messages, const char *tools, const char *variables,
                    int no_thinking, const char *wanted) {
    rein_json *given = parsed(messages), *listed = tools ? parsed(tools) : NULL, *more = variables ? parsed(variables) : NULL;
    const rein_conversation conversation = {given, listed, more};
    rein_ids ids = {0};
    OK(rein_conversation_encode(&ids, t, chat, &conversation, no_thinking, 0, &error_));
    assert_ids(&ids, t, wanted);
    rein_ids_free(&ids);
    rein_json_free(given), rein_json_free(listed), rein_json_free(more);
}

static void refuses(const rein_tokenizer *t, const rein_chat *chat, const char *messages, const char *tools, int no_thinking,
                    const char *wanted) {
    rein_json *given = parsed(messages), *listed = tools ? parsed(tools) : NULL;
    const rein_conversation conversation = {given, listed, NULL};
    rein_ids ids = {0};
    rein_error err = {0};
    assert_int_equal(rein_conversation_encode(&ids, t, chat, &conversation, no_thinking, 0, &err), REIN_EINVAL);
    assert_string_equal(err.message, wanted);
    assert_int_equal(ids.count, 0);
    rein_json_free(given), rein_json_free(listed);
}

static void test_template(void **state) {
    (void)state;
    rein_tokenizer *t = tokenizer_with(PLAIN);
    const int32_t end = rein_tokenizer_named(t).end;
    rein_chat chat;
    OK(rein_chat_of(&chat, t, &error_));
    assert_true(chat.kind == REIN_CHAT_TEMPLATE && chat.run && !chat.date);
    assert_string_equal(rein_chat_name(&chat), "template");
    assert_true(rein_chat_template_names(chat.run, "enable_thinking") && !rein_chat_template_names(chat.run, "enable"));
    encodes(t, &chat, CALL, "[{\"type\": \"function\"}]", NULL, 0, "T1u:1<end><end>a:(f 3)<end>t:4<end>a:");
    encodes(t, &chat, CALL, NULL, "{\"enable_thinking\": false}", 0, "u:1<end><end>a:(f 3)<end>t:4<end>a:-");
    encodes(t, &chat, "[{\"role\": \"user\", \"content\": \"1\"}]", NULL, NULL, 1, "u:1<end>a:-");
    /* plain messages by the same template; their contents spell no special token */
    const rein_message plain[] = {{"system", "2", 1}, {"user", "<end>", 5}};
    rein_ids ids = {0};
    size_t ends = 0;
    int32_t id;
    OK(rein_messages_encode(&ids, t, &chat, plain, 2, 0, 0, &error_));
    assert_ids(&ids, t, "s:2<end>u:<end><end>a:");
    for (size_t i = 0; i < ids.count; i++) ends += ids.data[i] == end;
    assert_int_equal(ends, 2);
    OK(rein_turn_end(&id, t, &chat, &error_));
    assert_int_equal(id, end);
    rein_ids_free(&ids);
    rein_tokenizer_close(t);
}

static void test_errors(void **state) {
    (void)state;
    static const char odd[] = "[{\"role\": \"user\", \"content\": \"1\", \"mood\": 1}]",
                      user[] = "[{\"role\": \"user\", \"content\": \"1\"}]";
    rein_tokenizer *t = tokenizer_with(PLAIN), *short_one = tokenizer_with("{{ messages[0].content }}<end>"),
                   *broken = tokenizer_with("{% if %}"), *none = tokenizer_with_json("null");
    rein_chat chat, raw, other;
    rein_error err = {0};
    OK(rein_chat_of(&chat, t, &error_));
    OK(rein_chat_of(&other, short_one, &error_));
    OK(rein_chat_named(&raw, "raw", &error_));
    assert_int_equal(rein_chat_named(&raw, "template", &err), REIN_EINVAL);
    refuses(t, &chat, odd, NULL, 0, "messages[0].mood: the chat template does not read it");
    refuses(t, &raw, odd, NULL, 0, "messages[0].mood: the chat format has no place for it here");
    refuses(t, &raw, user, "[]", 0,
            "tools cannot be used: the chat format raw has no place for it here, a model's own template is needed");
    refuses(short_one, &other, user, NULL, 1, "no_thinking has no effect: the chat template does not read enable_thinking");
    refuses(t, &(rein_chat){.kind = REIN_CHAT_TEMPLATE}, user, NULL, 0, "chat.kind is 6: not a chat format");
    refuses(t, &chat, "[]", NULL, 0, "messages must be a list of one message or more");
    assert_int_equal(rein_chat_of(&other, broken, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "cannot be run: the chat template, line 1, column "));
    assert_int_equal(rein_chat_of(&other, none, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "has no chat template"));
    rein_tokenizer_close(t), rein_tokenizer_close(short_one), rein_tokenizer_close(broken), rein_tokenizer_close(none);
}

/* Of a list of templates "default" is run, and "tool_use" where there are tools. A template that asks for the date gets the chat's. */
static void test_named(void **state) {
    (void)state;
    static const char user[] = "[{\"role\": \"user\", \"content\": \"1\"}]";
    rein_tokenizer *t = tokenizer_with_json("[{\"name\": \"default\", \"template\": \"d{{ strftime_now('%Y') }}\"}, {\"name\": "
                                            "\"tool_use\", \"template\": \"t{{ tools[0] }}\"}]");
    rein_chat chat;
    OK(rein_chat_of(&chat, t, &error_));
    assert_true(rein_chat_template_names(chat.run, "tools") && rein_chat_template_names(chat.run, "strftime_now"));
    encodes(t, &chat, user, "[5]", NULL, 0, "t5");
    chat.date = "1999-12-31";
    encodes(t, &chat, user, NULL, NULL, 0, "d1999");
    rein_tokenizer_close(t);
}

/* An example of a task with tools. */
static void test_example(void **state) {
    (void)state;
    rein_tokenizer *t = tokenizer_with(PLAIN);
    char line[1000];
    snprintf(line, sizeof line, "{\"messages\": %s, \"tools\": [1, 2], \"answer\": \"4\"}", CALL);
    const rein_task_text text = {"calls", line, strlen(line)};
    rein_task *task;
    rein_example example;
    rein_ids ids = {0};
    rein_chat chat;
    rein_prompting how = {.chat = &chat, .system = "3"};
    OK(rein_chat_of(&chat, t, &error_));
    OK(rein_task_open(&task, "examples:calls", &(rein_task_options){.texts = &text, .n_texts = 1}, &error_));
    OK(rein_task_example(&example, task, REIN_SPLIT_TRAIN, 0, &error_));
    assert_true(example.needs_template && example.n_messages == 3 && !*example.messages[1].content);
    assert_string_equal(example.messages[2].content, "4");
    OK(rein_example_encode(&ids, t, &example, &how, &error_));
    assert_ids(&ids, t, "T2s:3<end>u:1<end><end>a:(f 3)<end>t:4<end>a:");
    rein_ids_free(&ids);
    rein_example_free(&example);
    rein_task_close(task);
    rein_tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_template), cmocka_unit_test(test_errors), cmocka_unit_test(test_named),
                                       cmocka_unit_test(test_example)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
