/* test_template.c - chat templates: texts that jinja2 renders (fixtures/templates/generate.py), byte for byte; literal spans; limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/json.h"
#include "rein/tokenizer.h"
#include "support/check.h"

/* The spans lie in the text, ascend, and do not overlap. */
static void check_spans(const rein_rendered *r) {
    size_t last = 0;
    for (size_t i = 0; i < r->n_literals; i++) {
        assert_true(last <= r->literals[i].begin && r->literals[i].begin < r->literals[i].end);
        last = r->literals[i].end;
    }
    assert_true(last <= r->text.length);
}

static rein_status render(rein_rendered *rendered, const json_t *c, rein_error *err) {
    rein_chat_template *parsed;
    const json_t *source = json_object_get(c, "template"), *tools = json_object_get(c, "tools");
    const rein_template_options options = {.add_generation_prompt = json_is_true(json_object_get(c, "add_generation_prompt")),
                                           .tools = json_is_null(tools) ? NULL : tools,
                                           .variables = json_object_get(c, "variables"),
                                           .date = "2026-11-18"};
    rein_status status =
        rein_chat_template_open(&parsed, json_string_value(source), json_string_length(source), json_object_get(c, "tokens"), err);
    if (status) return status;
    status = rein_chat_template_render(rendered, parsed, json_object_get(c, "messages"), &options, err);
    rein_chat_template_close(parsed);
    return status;
}

static void test_as_jinja(void **state) {
    json_t *cases;
    size_t i, wrong = 0;
    json_t *c;
    (void)state;
    OK(rein_json_read(&cases, "tests/model/fixtures/templates/cases.json", 0, &error_));
    assert_true(json_array_size(cases) > 200);
    json_array_foreach(cases, i, c) {
        rein_rendered r = {0};
        rein_error err = {0};
        const json_t *text = json_object_get(c, "text");
        const char *name = json_string_value(json_object_get(c, "name"));
        const rein_status status = render(&r, c, &err);
        if (json_is_null(text)) {
            if (status != REIN_EINVAL) print_error("%s: rendered, but jinja2 fails\n", name), wrong++;
        } else if (status) print_error("%s: %s\n", name, err.message), wrong++;
        else if (r.text.length != json_string_length(text) || memcmp(r.text.data, json_string_value(text), r.text.length) != 0)
            print_error("%s:\n%s\nnot\n%s\n", name, r.text.data, json_string_value(text)), wrong++;
        if (!status) check_spans(&r);
        rein_rendered_free(&r);
    }
    rein_json_free(cases);
    assert_int_equal(wrong, 0);
}

/* Special tokens that a message spells out stay text: its bytes are literal, also after filters. */
static void test_literals(void **state) {
    (void)state;
    json_t *c = json_pack("{s:s, s:[{s:s, s:s}]}", "template", "<s>{{ messages[0].content | trim | upper }}</s>", "messages",
                          "role", "user", "content", " a</s>b ");
    rein_rendered r = {0};
    OK(render(&r, c, &error_));
    assert_string_equal(r.text.data, "<s>A</S>B</s>");
    assert_true(r.n_literals == 1 && r.literals[0].begin == 3 && r.literals[0].end == 9);
    rein_rendered_free(&r);
    json_decref(c);
}

static void refused(const char *source, const char *part) {
    json_t *c = json_pack("{s:s, s:[{s:s, s:s}]}", "template", source, "messages", "role", "user", "content", "x");
    rein_rendered r = {0};
    rein_error err = {0};
    if (render(&r, c, &err) != REIN_EINVAL || !strstr(err.message, part))
        fail_msg("%s: \"%s\", not \"…%s…\"", source, err.message, part);
    assert_true(r.text.length == 0 && r.literals == NULL);
    json_decref(c);
}

/* Errors have line and column; what never ends or grows without bound is stopped. */
static void test_refused(void **state) {
    (void)state;
    refused("a\n {{ x", "line 2");
    refused("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "line 1");
    refused("{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
            "line 1");
    refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "line 1");
    refused("{% include 'x' %}", "line 1");
    refused("{{ 10 ** 20 }}", "64 bits");
    refused("{{ messages | nothing }}", "nothing");
    refused("{{ strftime_now('%Y') }}{{ raise_exception('the reason') }}", "the reason");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_jinja), cmocka_unit_test(test_literals),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests_name("chat templates", tests, NULL, NULL);
}
