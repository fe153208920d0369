/* test_json.c - JSON: what is rejected and how the mistake is described, as data and as a sentence; typed fields; values written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "support/allocation.h"

static void says(const rein_error *err, const char *part) {
    if (!strstr(err->message, part)) fail_msg("\"%s\" does not say \"%s\"", err->message, part);
}

/* ---- mistakes */
static void test_json_mistakes(void **state) {
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "c.json is empty: a JSON object is needed"},
        {" \n\t", "c.json is empty"},
        {"[1]", "c.json does not start with {"},
        {"\xef\xbb\xbf{}", "byte order mark"},
        {"\xef\xbb\xbf", "byte order mark"},
        {"{\"a\": 1,\n \"b\": 2,\n \"a\": 3}", "c.json: a is given twice, again at line 3, column 4"},
        {"{\"a\": {\"b\": 1, \"b\": 1}}", "c.json: a.b is given twice, again at line 1, column 18"},
        {"{\"a\": 1", "c.json: a (line 1, column 7): the file ends here"},
        {"{} x", "there is text after the JSON value"},
        {"{\"a\": NaN}", "c.json: a (line 1, column 9): NaN is not a finite number"},
        {"{\"a\": -Infinity}", "c.json: a (line 1, column 7): this is not a finite number"},
        {"{\"a\": \"\xff\"}", "c.json: a (line 1, column 7): this is not UTF-8"},
        {"{\"a\": 99999999999999999999}", "beyond the range"},
        {"{\"a\": 1e999}", "beyond the range"},
        {"{\"a\\u0000\": 1}", "\\u0000 is not allowed"},
        {"{\"a\": \"\\u0000\"}", "\\u0000 is not allowed"},
        {"{\"a\": tru}", "c.json: a (line 1, column 9): "},
        {"{\"a\": abcdefghijklmnopqrst}", "near 'abcdefghijklmnopqrst'"},
        {"{\"a\": [1,", "c.json: a[1] (line 1, column 9): the file ends here"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rein_error err;
        json_t *root;
        assert_int_equal(rein_json_parse(&root, cases[i].text, strlen(cases[i].text), "c.json", REIN_JSON_NEEDS_OBJECT, &err),
                         REIN_EINVAL);
        assert_null(root);
        says(&err, cases[i].said);
    }
    json_t *root;
    rein_error err;
    char deep[10000] = "{\"a\":";
    assert_int_equal(rein_json_parse(&root, "{\"a\": \"\0\"}", 10, "c.json", REIN_JSON_NEEDS_OBJECT, NULL), REIN_EINVAL);
    memset(deep + 5, '[', sizeof deep - 5);
    assert_int_equal(rein_json_parse(&root, deep, sizeof deep, "c.json", REIN_JSON_NEEDS_OBJECT, &err), REIN_EINVAL);
    says(&err, "nested too deep");
}

/* ---- fields */
static void test_json_fields(void **state) {
    (void)state;
    static const char text[] = "{\"n\": 3, \"x\": 0.5, \"s\": \"t\", \"b\": true, \"null\": null, \"a\": [], \"o\": {}}";
    rein_error err = {0};
    json_t *root;
    assert_int_equal(rein_json_parse(&root, text, strlen(text), "c.json", REIN_JSON_NEEDS_OBJECT, &err), REIN_OK);
    rein_fields in = {.object = root, .file = "c.json", .path = "", .err = &err};
    assert_int_equal(rein_fields_integer(&in, "n", 0, 3), 3);
    assert_int_equal(rein_fields_integer_or(&in, "null", 0, 3, 7), 7);
    assert_true(rein_fields_number(&in, "x", 0) == 0.5);
    assert_true(rein_fields_number(&in, "n", 0) == 3);
    assert_true(rein_fields_number_or(&in, "none", 0, 2) == 2);
    assert_string_equal(rein_fields_string(&in, "s"), "t");
    assert_null(rein_fields_string_or(&in, "none", NULL));
    assert_int_equal(rein_fields_bool_or(&in, "b", 0), 1);
    assert_int_equal(rein_fields_bool_or(&in, "none", 1), 1);
    assert_non_null(rein_fields_array(&in, "a"));
    assert_null(rein_fields_array(&in, "null"));
    assert_non_null(rein_fields_object(&in, "o"));
    assert_int_equal(in.status, REIN_OK);
    in.path = "deep.";
    assert_int_equal(rein_fields_integer(&in, "n", 4, 9), 0);
    assert_string_equal(err.message, "c.json: deep.n is 3: a whole number from 4 to 9 is needed");
    assert_null(rein_fields_string(&in, "none")); /* the first failure stays */
    assert_string_equal(err.message, "c.json: deep.n is 3: a whole number from 4 to 9 is needed");
    json_decref(root);
}

static void test_json_wrong_types(void **state) {
    (void)state;
    static const char text[] = "{\"v\": \"t\", \"x\": 1.5, \"yes\": true, \"no\": false}";
    rein_error err;
    json_t *root;
    assert_int_equal(rein_json_parse(&root, text, strlen(text), "c.json", REIN_JSON_NEEDS_OBJECT, &err), REIN_OK);
    const rein_fields fresh = {.object = root, .file = "c.json", .path = "", .err = &err};
    rein_fields in = fresh;
    rein_fields_integer(&in, "x", 0, 9);
    says(&err, "x is 1.5: a whole number");
    in = fresh, rein_fields_number(&in, "v", 0);
    says(&err, "v is \"t\": a number above 0");
    in = fresh, rein_fields_bool_or(&in, "v", 0);
    says(&err, "v is \"t\": true or false");
    in = fresh, rein_fields_string(&in, "x");
    says(&err, "x is 1.5: a text is needed");
    in = fresh, rein_fields_array(&in, "v");
    says(&err, "v is \"t\": an array is needed");
    in = fresh, rein_fields_object(&in, "v");
    says(&err, "v is \"t\": an object is needed");
    in = fresh, rein_fields_string(&in, "yes");
    says(&err, "yes is true: a text");
    in = fresh, rein_fields_number(&in, "no", 0);
    says(&err, "no is false: a number");
    in = fresh, rein_fields_integer(&in, "none", 0, 9);
    says(&err, "none is missing: a whole number");
    json_decref(root);
}

/* ---- showing and writing */
static void test_quote(void **state) {
    (void)state;
    char to[REIN_TEXT_SHOWN], text[300];
    assert_string_equal(rein_json_quote(to, "a\nb"), "\"a\\u000ab\"");
    for (size_t i = 0; i < 98; i++) memcpy(text + 3 * i, "…", 4);
    rein_json_quote(to, text);
    assert_true(strlen(to) < REIN_TEXT_SHOWN);
    assert_int_equal(strlen(to) % 3, 2); /* whole characters and two quotes */
}

static void test_positions_are_data(void **state) {
    (void)state;
    static const struct {
        const char *text, *place;
        unsigned flags;
        const char *field;
        int64_t index;
        const char *message;
    } cases[] = {
        {"{\"a\": [1, [2, ?]]}", NULL, 0, "a[1]", 1, "a[1][1] (line 1, column 15): invalid token near '?'"},
        {"{\"a\": {\"b\": ?}}", "f", 0, "a.b", -1, "f: a.b (line 1, column 13): invalid token near '?'"},
        {"[1, [2, ?]]", NULL, 0, "[1]", 1, "[1][1] (line 1, column 9): invalid token near '?'"},
        {"[{\"a\": 1}, {\"a\": 1, \"a\": 2}]", "f", 0, "[1].a", -1, "f: [1].a is given twice, again at line 1, column 23"},
        {"{\"a\": [1", "f: line 7", REIN_JSON_ONE_LINE, "a", 0,
         "f: line 7: a[0] (column 8): the line ends here, inside the JSON: a line holds a whole value"},
        {"{} {}", "f: line 7", REIN_JSON_ONE_LINE, "", -1, "f: line 7, column 4: there is text after the JSON value"},
        {"{} {}", "f", 0, "", -1, "f: line 1, column 4: there is text after the JSON value"},
        {"[1]", NULL, REIN_JSON_NEEDS_OBJECT, "", -1, "the input does not start with {: a JSON object is needed"},
        {"", NULL, REIN_JSON_ONE_LINE, "", -1, "the line is empty: a JSON value is needed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rein_error err;
        rein_json *value;
        assert_int_equal(rein_json_parse(&value, cases[i].text, strlen(cases[i].text), cases[i].place, cases[i].flags, &err),
                         REIN_EINVAL);
        assert_null(value);
        assert_string_equal(err.message, cases[i].message);
        assert_string_equal(err.field, cases[i].field);
        assert_int_equal(err.index, cases[i].index);
    }
}

static void test_flags(void **state) {
    (void)state;
    static const char wide[] = "{\"n\": 123456789012345678901, \"t\": \"a\\u0000b\"}";
    rein_error err;
    rein_json *value;
    assert_int_equal(rein_json_parse(&value, wide, strlen(wide), NULL, REIN_JSON_ALLOWS_NUL, &err), REIN_EINVAL);
    assert_string_equal(err.field, "n");
    assert_int_equal(rein_json_parse(&value, wide, strlen(wide), NULL, REIN_JSON_WIDE_INTEGERS, &err), REIN_EINVAL);
    assert_string_equal(err.field, "t");
    assert_int_equal(rein_json_parse(&value, wide, strlen(wide), NULL, REIN_JSON_WIDE_INTEGERS | REIN_JSON_ALLOWS_NUL, &err),
                     REIN_OK);
    assert_true(rein_json_number(rein_json_get(value, "n")) == 123456789012345678901.0);
    assert_int_equal(rein_json_length(rein_json_get(value, "t")), 3);
    rein_fields in = {.object = value, .path = "", .err = &err};
    assert_null(rein_fields_string(&in, "t"));
    assert_string_equal(err.message, "t has \\u0000 in it: texts have no such character");
    rein_json_free(value);
}

static void test_only_known_keys(void **state) {
    (void)state;
    static const char text[] = "{\"rewards\": 1, \"reward\": 2}";
    static const char *const keys[] = {"rewards", "ratio", NULL}, *const colours[] = {"red", "green", NULL};
    rein_error err;
    rein_json *value;
    assert_int_equal(rein_json_parse(&value, text, strlen(text), NULL, 0, NULL), REIN_OK);
    rein_fields in = {.object = value, .file = "f", .path = "x.", .err = &err};
    assert_int_equal(rein_fields_only(&in, keys), REIN_EINVAL);
    assert_string_equal(err.message, "f: x.reward is unknown here: did you mean \"rewards\"?");
    assert_string_equal(err.field, "x.reward");
    in.status = REIN_OK;
    assert_int_equal(rein_fields_choice_or(&in, "none", colours, 1), 1);
    assert_int_equal(rein_fields_choice_or(&in, "rewards", colours, 1), 1);
    assert_string_equal(err.message, "f: x.rewards is 1: it is one of red, green");
    rein_json_free(value);
}

/* What Python's json.dumps(ensure_ascii=False) writes of the same values. */
static void test_writes_as_python(void **state) {
    (void)state;
    static const char text[] =
        "{\"a\": [1, 2.5, 1e22, 1e-7, 0.1, 123456789.0, -0.0, 1e16, 1e15], \"t\": \"q\\\"\\\\\\n\\t\\u0001é/\", "
        "\"o\": {}, \"l\": [], \"n\": null, \"b\": [true, false]}";
    static const char written[] = "{\"a\": [1, 2.5, 1e+22, 1e-07, 0.1, 123456789.0, -0.0, 1e+16, 1000000000000000.0], "
                                  "\"t\": \"q\\\"\\\\\\n\\t\\u0001é/\", \"o\": {}, \"l\": [], \"n\": null, \"b\": [true, false]}";
    rein_json *value;
    rein_text out = {0};
    assert_int_equal(rein_json_parse(&value, text, strlen(text), NULL, 0, NULL), REIN_OK);
    rein_json_put_value(&out, value);
    assert_string_equal(out.data, written);
    rein_json_free(value);
    rein_text_free(&out);
}

static void test_writes_fields(void **state) {
    (void)state;
    const double values[] = {0.1, NAN, INFINITY, -3};
    const size_t offsets[] = {0, 1, 4};
    const rein_error at = {.code = REIN_EINVAL, .index = 3, .field = "x", .message = "x[3] is \"y\""};
    const rein_error none = {.code = REIN_ENOMEM, .index = -1, .message = "out of memory"};
    rein_text out = {0};
    rein_text_put(&out, "{");
    rein_json_put_field(&out, "d", 0.1);
    rein_json_put_name(&out, "f");
    rein_json_put_float(&out, 0.1f);
    rein_json_put_array(&out, "a", values, 4);
    rein_json_put_rows(&out, "r", values, offsets, 2);
    rein_json_put_name(&out, "e");
    rein_json_put_error(&out, &at);
    rein_json_put_name(&out, "n");
    rein_json_put_error(&out, &none);
    rein_text_put(&out, "}");
    assert_string_equal(out.data,
                        "{\"d\": 0.10000000000000001, \"f\": 0.100000001, \"a\": [0.10000000000000001, null, null, -3], "
                        "\"r\": [[0.10000000000000001], [null, null, -3]], "
                        "\"e\": {\"code\": \"EINVAL\", \"field\": \"x\", \"index\": 3, \"message\": \"x[3] is \\\"y\\\"\"}, "
                        "\"n\": {\"code\": \"ENOMEM\", \"field\": null, \"index\": null, \"message\": \"out of memory\"}}");
    rein_text_free(&out);
}

/* ---- the same values as jansson's own parser, of well-formed texts and of texts with a few bytes changed */
static const char *const texts[] = {
    "{\"a\": [1, -2.5e-3, 0, 9223372036854775807, 1E+2], \"b\": {\"c\": true, \"d\": null}, \"\": false}",
    "[\"\\u00e9\\ud83d\\ude00\\n\\/\", \"\xc3\xa9\xf0\x9f\x98\x80\", [[[]]], {}, -0, -0.0, 1e-400]",
    " \t\r\n\"text\" ",
    "{\"key\\u0041\": \"\\\"\\\\\\b\\f\\r\\t\", \"k\": [[1], [2, [3]]]}",
};

static void compare_with_jansson(const char *text, size_t length) {
    rein_json_problem problem;
    if (memchr(text, 0, length)) return; /* rejected before it is parsed */
    json_t *wanted = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    json_t *built = rein_json_build(&problem, text, length, 0);
    if (!wanted != !built || (wanted && !json_equal(wanted, built)))
        fail_msg("jansson %s and rein %s: %.*s (%s)", wanted ? "takes" : "rejects", built ? "takes" : "rejects", (int)length, text,
                 problem.what);
    if (!built) assert_true(problem.mistake != REIN_JSON_GOOD && problem.token <= problem.position && problem.position <= length);
    json_decref(wanted);
    json_decref(built);
}

static void test_agrees_with_jansson(void **state) {
    (void)state;
    static const char bytes[] = "{}[],:\"\\u0019eE+-. \n\t\x0b\x80\xc3\xed\xa0\xf4truefalsn/dD8c";
    uint64_t random = 1;
    for (int round = 0; round < 200000; round++) {
        char text[200];
        const char *from = texts[round % (int)(sizeof texts / sizeof *texts)];
        size_t length = strlen(from);
        memcpy(text, from, length);
        for (int changes = round % 4; changes > 0; changes--) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            const size_t at = (size_t)(random >> 33) % length;
            if (random >> 63) text[at] = bytes[(random >> 40) % (sizeof bytes - 1)];
            else if (length > 2) memmove(text + at, text + at + 1, --length - at); /* one byte less */
        }
        compare_with_jansson(text, length);
    }
}

/* 20 million empty objects would take 4.5 GB. */
static void test_values_are_limited(void **state) {
    (void)state;
    enum { N = 12 << 20 };
    char *text = malloc(N);
    rein_json *value;
    rein_error err;
    assert_non_null(text);
    for (size_t i = 0; i + 3 <= N; i += 3) memcpy(text + i, "{},", 3);
    text[0] = '[', text[1] = ' ', text[N - 1] = ']';
    text[2] = ' ';
    assert_int_equal(rein_json_parse(&value, text, N, "f", 0, &err), REIN_EINVAL);
    says(&err, "too many values");
    free(text);
    char deep[1000];
    memset(deep, '[', 256), memset(deep + 256, ']', 256);
    assert_int_equal(rein_json_parse(&value, deep, 512, "f", 0, &err), REIN_OK);
    rein_json_free(value);
    memset(deep, '[', 257);
    assert_int_equal(rein_json_parse(&value, deep, 512, "f", 0, &err), REIN_EINVAL);
    says(&err, "nested too deep");
}

/* ---- memory */
static rein_status parse_and_write(void *context, rein_error *err) {
    const char *text = context;
    rein_json *value;
    rein_text out = {0};
    rein_status status = rein_json_parse(&value, text, strlen(text), "f", REIN_JSON_NEEDS_OBJECT, err);
    if (!status) rein_json_put_value(&out, value);
    if (!status) status = rein_text_status(&out, err);
    rein_text_free(&out);
    rein_json_free(value);
    return status;
}

static void test_memory_runs_out(void **state) {
    (void)state;
    static char text[] = "{\"a\": [1, 2.5, \"some text that is long enough to be allocated\"], \"b\": {\"c\": true}}";
    static char escapes[] = "{\"a key that is longer than a buffer of 16 bytes\": \"\\u0041 text with an escape\", \"b\": [{}]}";
    if (!can_fail()) skip();
    assert_true(fail_each_allocation(parse_and_write, text) > 10);
    assert_true(fail_each_allocation(parse_and_write, escapes) > 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_mistakes),
        cmocka_unit_test(test_positions_are_data),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_json_fields),
        cmocka_unit_test(test_json_wrong_types),
        cmocka_unit_test(test_only_known_keys),
        cmocka_unit_test(test_quote),
        cmocka_unit_test(test_writes_as_python),
        cmocka_unit_test(test_writes_fields),
        cmocka_unit_test(test_memory_runs_out),
        cmocka_unit_test(test_agrees_with_jansson),
        cmocka_unit_test(test_values_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
