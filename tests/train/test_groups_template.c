/* test_groups_template.c - conversations by a chat template outside the known formats: it is run, and the turns of the assistant train
 * in the context that the template writes. The expected texts are written out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rein/json.h"
#include "rein/train.h"
#include "support/allocation.h"
#include "support/check.h"
#include "support/templated.h"

static const char PLAIN[] = "{% if tools %}T{{ tools | length }}{% endif %}{% for m in messages %}{{ m.role[0] }}:{{ m.content }}"
                            "{% for c in m.tool_calls or [] %}({{ c.function.name }} {{ c.function.arguments.a }}){% endfor %}"
                            "<end>{% endfor %}{% if add_generation_prompt %}a:{% endif %}";
/* Only the last turn of the assistant is written as it was. */
static const char REWRITES[] = "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' and not loop.last %}x{% else %}"
                               "{{ m.content }}{% endif %}<end>{% endfor %}{% if add_generation_prompt %}a:{% endif %}";

static rein_groups read(const rein_tokenizer *tokenizer, const char *line) {
    rein_groups groups = {0};
    OK(rein_groups_from_memory(&groups, line, strlen(line), "test", tokenizer, NULL, &error_));
    return groups;
}

/* The text of a history, with what trains in brackets. */
static void assert_history(const rein_tokenizer *tokenizer, const rein_groups *groups, size_t i, const char *expected) {
    const rein_trajectory *t = &groups->groups[0].trajectories[0];
    rein_text text = {0};
    assert_true(i < t->n_histories);
    const rein_history *h = &t->histories[i];
    for (size_t k = 0; k < h->n; k++) {
        if (h->mask[k] && (!k || !h->mask[k - 1])) rein_text_put(&text, "[");
        OK(rein_tokenizer_decode(&text, tokenizer, &h->ids[k], 1, 0, &error_));
        if (h->mask[k] && (k + 1 == h->n || !h->mask[k + 1])) rein_text_put(&text, "]");
    }
    assert_string_equal(text.data, expected);
    rein_text_free(&text);
}

#define CHOICE(content) \
    "{\"finish_reason\": \"stop\", \"index\": 0, \"message\": {\"role\": \"assistant\", \"content\": \"" content "\"}}"
#define USER(content) "{\"role\": \"user\", \"content\": \"" content "\"}"

static void test_turns(void **state) {
    (void)state;
    rein_tokenizer *plain = tokenizer_with(PLAIN), *rewrites = tokenizer_with(REWRITES);
    const char two[] = "{\"trajectories\": [{\"reward\": 1, \"messages_and_choices\": [" USER("1+1") ", " CHOICE("2") ", " USER(
        "2+2") ", " CHOICE("4") "]}]}";
    rein_groups groups = read(plain, two);
    assert_int_equal(groups.groups[0].trajectories[0].n_histories, 1);
    assert_history(plain, &groups, 0, "u:1+1<end>a:[2<end>]u:2+2<end>a:[4<end>]");
    rein_groups_free(&groups);
    groups = read(rewrites, two);
    assert_int_equal(groups.groups[0].trajectories[0].n_histories, 2);
    assert_history(rewrites, &groups, 0, "u:1+1<end>a:[2<end>]");
    assert_history(rewrites, &groups, 1, "u:1+1<end>a:x<end>u:2+2<end>a:[4<end>]");
    rein_groups_free(&groups);
    rein_tokenizer_close(plain);
    rein_tokenizer_close(rewrites);
}

static void test_contents(void **state) {
    (void)state;
    rein_tokenizer *t = tokenizer_with(PLAIN);
    /* parts, tools, a tool call that the template writes, and text that spells a special token */
    rein_groups groups = read(
        t,
        "{\"trajectories\": [{\"reward\": 1, \"tools\": [{\"type\": \"function\"}], \"messages_and_choices\": ["
        "{\"role\": \"developer\", \"content\": [{\"type\": \"text\", \"text\": \"1\"}, {\"type\": \"text\", \"text\": \"2\"}]}, "
        "{\"finish_reason\": \"tool_calls\", \"index\": 0, \"message\": {\"role\": \"assistant\", \"content\": null, "
        "\"tool_calls\": [{\"id\": \"x\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": "
        "3}\"}}]}}, {\"role\": \"tool\", \"content\": \"<end>\"}, " CHOICE("4") "]}]}");
    const rein_trajectory *trajectory = &groups.groups[0].trajectories[0];
    assert_int_equal(trajectory->n_histories, 1);
    assert_history(t, &groups, 0, "T1s:1\n2<end>a:[(f 3)<end>]t:<end><end>a:[4<end>]");
    const int32_t end = rein_tokenizer_named(t).end;
    size_t ends = 0;
    for (size_t k = 0; k < trajectory->histories[0].n; k++) ends += trajectory->histories[0].ids[k] == end;
    assert_int_equal(ends, 4); /* not the one in the content */
    rein_groups_free(&groups);
    rein_tokenizer_close(t);
}

static void test_tokens(void **state) {
    (void)state;
    rein_tokenizer *t = tokenizer_with(PLAIN);
    rein_ids ids = {0};
    char line[1000];
    OK(rein_tokenizer_encode(&ids, t, "4", 1, NULL, &error_));
    /* ids that were sampled, cut off at a limit: nothing is added to them */
    snprintf(
        line, sizeof line,
        "{\"trajectories\": [{\"reward\": 1, \"messages_and_choices\": [" USER(
            "2+2") ", {\"finish_reason\": \"length\", \"index\": 0, \"message\": {\"role\": \"assistant\", \"content\": \"4\"}, "
                   "\"logprobs\": {\"content\": [{\"token\": \"token_id:%d\", \"logprob\": -0.5}]}}]}]}",
        (int)ids.data[0]);
    rein_groups groups = read(t, line);
    assert_history(t, &groups, 0, "u:2+2<end>a:[4]");
    const rein_history *h = &groups.groups[0].trajectories[0].histories[0];
    assert_true(h->log_probs[h->n - 1] == -0.5f && groups.groups[0].trajectories[0].truncated);
    rein_groups_free(&groups);
    /* a message that is marked trains like a Choice; one that is not is context */
    groups = read(
        t, "{\"trajectories\": [{\"reward\": 1, \"messages\": [" USER("1") ", {\"role\": \"assistant\", \"content\": \"2\"}, " USER(
               "3") ", {\"role\": \"assistant\", \"content\": \"4\", \"trainable\": true, \"finish_reason\": \"stop\"}]}]}");
    assert_history(t, &groups, 0, "u:1<end>a:2<end>u:3<end>a:[4<end>]");
    rein_groups_free(&groups);
    rein_ids_free(&ids);
    rein_tokenizer_close(t);
}

static void test_errors(void **state) {
    (void)state;
    rein_tokenizer *t = tokenizer_with(PLAIN), *wrong = tokenizer_with("{{ raise_exception('no') }}");
    rein_groups groups = {0};
    rein_error err = {0};
    const char image[] = "{\"trajectories\": [{\"reward\": 1, \"messages_and_choices\": [{\"role\": \"user\", \"content\": "
                         "[{\"type\": \"image_url\"}]}, " CHOICE("4") "]}]}";
    assert_int_equal(rein_groups_from_memory(&groups, image, strlen(image), "f", t, NULL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "messages[0].content[0] must be"));
    const char plain[] = "{\"trajectories\": [{\"reward\": 1, \"messages_and_choices\": [" USER("1") ", " CHOICE("4") "]}]}";
    assert_int_equal(rein_groups_from_memory(&groups, plain, strlen(plain), "f", wrong, NULL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "no"));
    assert_int_equal(groups.n, 0);
    rein_tokenizer_close(t);
    rein_tokenizer_close(wrong);
}

/* {% generation %} says what the model writes: the prompt ends there, also where the generation prompt says otherwise. */
static const char MARKED[] =
    "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }} <end>\n"
    "{% endgeneration %}{% else %}{{ m.content }}<end>{% endif %}{% endfor %}{% if add_generation_prompt %}a:={% endif %}";
/* The generation prompt is not what a turn begins with. */
static const char DIFFERS[] = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}<end>{% endfor %}"
                              "{% if add_generation_prompt %}a:={% endif %}";

static void test_generation(void **state) {
    (void)state;
    rein_tokenizer *marked = tokenizer_with(MARKED), *differs = tokenizer_with(DIFFERS);
    const char two[] = "{\"trajectories\": [{\"reward\": 1, \"messages_and_choices\": [" USER("1+1") ", " CHOICE(
        "2<end>") ", " USER("2+2") ", " CHOICE("4") "]}]}";
    rein_groups groups = read(marked, two);
    rein_error err = {0};
    assert_int_equal(groups.groups[0].trajectories[0].n_histories, 1);
    /* a content spells no end of a turn; what stands behind the end of the turn is not the model's */
    assert_history(marked, &groups, 0, "u:1+1<end>a:[2<end> <end>]\nu:2+2<end>a:[4 <end>]");
    rein_groups_free(&groups);
    assert_int_equal(rein_groups_from_memory(&groups, two, strlen(two), "f", differs, NULL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "differently from its generation prompt"));
    assert_string_equal(err.field, "trajectories[0].messages_and_choices");
    assert_int_equal(err.index, 1); /* the Choice */
    rein_tokenizer_close(marked);
    rein_tokenizer_close(differs);
}

/* The date, and the variables of a line. */
static void test_date(void **state) {
    (void)state;
    rein_tokenizer *t = tokenizer_with("{{ strftime_now('%d') }}{% if add %}{{ add }}{% endif %}{% for m in messages %}"
                                       "{{ m.content }}<end>{% endfor %}");
    const char line[] =
        "{\"trajectories\": [{\"reward\": 1, \"chat_template_kwargs\": {\"add\": 7}, \"messages_and_choices\": [" USER(
            "1") ", " CHOICE("2") "]}]}";
    rein_groups groups = {0};
    rein_error err = {0};
    rein_chat chat;
    OK(rein_chat_of(&chat, t, &error_));
    assert_int_equal(rein_groups_from_memory(&groups, line, strlen(line), "f", t, &chat, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "date"));
    chat.date = "2026-11-18";
    OK(rein_groups_from_memory(&groups, line, strlen(line), "f", t, &chat, &error_));
    assert_history(t, &groups, 0, "1871<end>[2<end>]");
    rein_groups_free(&groups);
    rein_tokenizer_close(t);
}

/* A template that ends no turn with a special token leaves that to the tokenizer's end token, and so does one that writes no content. */
static void test_ends(void **state) {
    (void)state;
    rein_tokenizer *bare = tokenizer_with("{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
                                          "{% if add_generation_prompt %}a:{% endif %}");
    rein_tokenizer *silent = tokenizer_with("{% for m in messages %}x{% endfor %}");
    const char talk[] = "{\"trajectories\": [{\"reward\": 1, \"messages_and_choices\": [" USER("1") ", " CHOICE("4") "]}]}";
    rein_groups groups = read(bare, talk);
    assert_history(bare, &groups, 0, "u:1;a:[4;<end>]");
    rein_groups_free(&groups);
    groups = read(silent, talk);
    assert_history(silent, &groups, 0, "x[x<end>]");
    rein_groups_free(&groups);
    rein_tokenizer_close(bare);
    rein_tokenizer_close(silent);
}

static void assert_refused(const rein_tokenizer *tokenizer, const char *messages, const char *field, const char *reason) {
    char line[1000];
    rein_groups groups = {0};
    rein_error err = {0};
    snprintf(line, sizeof line, "{\"trajectories\": [{\"reward\": 1, \"messages_and_choices\": %s}]}", messages);
    assert_int_equal(rein_groups_from_memory(&groups, line, strlen(line), "f", tokenizer, NULL, &err), REIN_EINVAL);
    if (!strstr(err.message, reason) || !strstr(err.field, field)) fail_msg("%s: field %s, %s", messages, err.field, err.message);
    assert_int_equal(groups.n, 0);
}

static void test_refusals(void **state) {
    (void)state;
    rein_tokenizer *t = tokenizer_with(PLAIN);
    rein_tokenizer *other = tokenizer_with("{% for m in messages %}{{ m.role[0] }}:{{ m.content }}<end>{% endfor %}"
                                           "{% if add_generation_prompt %}A:{% endif %}");
    rein_tokenizer *nothing = tokenizer_with("{% if not add_generation_prompt %}{{ messages[1].content }}{% endif %}");
    assert_refused(t, "[{\"content\": \"1\"}, " CHOICE("4") "]", "messages_and_choices[0]", "role");
    assert_refused(t, "[{\"role\": 3, \"content\": \"1\"}, " CHOICE("4") "]", "messages_and_choices[0].role", "");
    assert_refused(t, "[{\"role\": \"user\", \"content\": \"1\", \"trainable\": true}]", "messages_and_choices[0].role",
                   "only what an assistant wrote can train");
    assert_refused(t, "[" USER("1") ", 3]", "messages_and_choices", "[1] is 3: an object is needed");
    assert_refused(t, "{}", "messages_and_choices", "an array of messages and Choices is needed");
    assert_refused(other, "[" USER("1") ", " CHOICE("4") "]", "messages_and_choices", "differently from its generation prompt");
    assert_refused(nothing, "[" USER("1") ", " CHOICE("4") "]", "", "no token before it that could predict it");
    rein_tokenizer_close(t);
    rein_tokenizer_close(other);
    rein_tokenizer_close(nothing);
}

typedef struct reading {
    const rein_tokenizer *tokenizer;
    const char *line;
} reading;

static rein_status read_once(void *context, rein_error *err) {
    const reading *r = context;
    rein_groups groups = {0};
    const rein_status status = rein_groups_from_memory(&groups, r->line, strlen(r->line), "f", r->tokenizer, NULL, err);
    rein_groups_free(&groups);
    return status;
}

/* Every allocation fails, one after another: in reading, in the template, in the tokenizer and in jansson. */
static void test_out_of_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    rein_tokenizer *t = tokenizer_with(PLAIN);
    reading turns = {t, "{\"trajectories\": [{\"reward\": 1, \"messages_and_choices\": [" USER("1+1") ", " CHOICE("2") ", " USER(
                            "2+2") ", " CHOICE("4") "]}]}"};
    reading marked = {t, "{\"trajectories\": [{\"reward\": 1, \"tools\": [{\"type\": \"function\"}], \"messages\": [" USER(
                             "1") ", {\"role\": \"assistant\", \"content\": \"4\", \"trainable\": true, \"logprobs\": "
                                  "{\"content\": [{\"token\": \"4\", \"logprob\": -0.5}]}}]}]}"};
    assert_true(fail_each_allocation(read_once, &turns) > 100);
    assert_true(fail_each_allocation(read_once, &marked) > 100);
    rein_tokenizer_close(t);
}

/* The same groups from a list, with the whole path in errors. */
static void test_list(void **state) {
    (void)state;
    rein_tokenizer *t = tokenizer_with(PLAIN);
    rein_json *list = NULL;
    rein_groups groups = {0};
    rein_error err = {0};
    const char good[] = "[{\"trajectories\": []}, {\"trajectories\": [{\"reward\": 1, \"messages_and_choices\": [" USER(
        "1") ", " CHOICE("4") "]}], \"more\": 3}]";
    const char bad[] =
        "[{\"trajectories\": [{\"reward\": 1, \"prompt_ids\": [1], \"response_ids\": [2]}]}, {\"trajectories\": [{}]}]";
    OK(rein_json_parse(&list, good, strlen(good), NULL, 0, &error_));
    for (int twice = 0; twice < 2; twice++)
        OK(rein_groups_from_json(&groups, list, "list", t, NULL, &error_)); /* it is not changed */
    assert_int_equal(groups.n, 2);
    assert_string_equal(groups.groups[1].json, "{\"more\": 3}");
    rein_json_free(list);
    OK(rein_json_parse(&list, bad, strlen(bad), NULL, 0, &error_));
    assert_int_equal(rein_groups_from_json(&groups, list, "list", t, NULL, &err), REIN_EINVAL);
    assert_string_equal(err.field, "list[1].trajectories[0].reward");
    assert_int_equal(groups.n, 2);
    rein_json_free(list);
    rein_groups_free(&groups);
    rein_tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),         cmocka_unit_test(test_contents),   cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_errors),        cmocka_unit_test(test_generation), cmocka_unit_test(test_date),
        cmocka_unit_test(test_list),          cmocka_unit_test(test_ends),       cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
