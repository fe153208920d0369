/* template_tests.c - what can stand behind `is`. */
#include <utf8proc.h>

#include "model/template.h"

#define TEST(NAME, IS)                        \
    static rein_value NAME(rein_call *call) { \
        const rein_value v = call->self;      \
        (void)v;                              \
        return rein_boolean(IS);              \
    }

static bool is_number(rein_value v) {
    return v.kind == REIN_VALUE_BOOLEAN || v.kind == REIN_VALUE_INTEGER || v.kind == REIN_VALUE_FLOAT;
}

static bool is_iterable(rein_value v) {
    return rein_is_sequence(v) || v.kind == REIN_VALUE_STRING || v.kind == REIN_VALUE_DICT || v.kind == REIN_VALUE_ITERATOR ||
           v.kind == REIN_VALUE_UNDEFINED || v.kind == REIN_VALUE_LOOP;
}

static bool is_in_case(rein_machine *m, rein_value v, rein_case to) {
    rein_builder b = {0};
    bool cased = false;
    if (v.kind != REIN_VALUE_STRING) return rein_fail_value(m, "a text is needed"), false;
    for (size_t i = 0; i < v.as.string->length; i++) {
        const unsigned char c = (unsigned char)v.as.string->data[i];
        cased |= (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
    }
    rein_put_case(m, &b, v.as.string, 0, v.as.string->length, to);
    const rein_value mapped = rein_builder_value(m, &b);
    return cased && !m->status && rein_value_equal(m, mapped, v);
}

static bool is_multiple(rein_call *call, int64_t of, int64_t rest) {
    if (call->self.kind != REIN_VALUE_INTEGER || !of) return rein_fail_value(call->machine, "a whole number is needed"), false;
    return of == -1 || (call->self.as.integer % of + of) % of == rest;
}

static bool is_multiple_given(rein_call *call) {
    if (call->arguments[0].kind != REIN_VALUE_INTEGER) return rein_fail_value(call->machine, "a whole number is needed"), false;
    return is_multiple(call, call->arguments[0].as.integer, 0);
}

TEST(test_defined, v.kind != REIN_VALUE_UNDEFINED)
TEST(test_undefined, v.kind == REIN_VALUE_UNDEFINED)
TEST(test_none, v.kind == REIN_VALUE_NONE)
TEST(test_boolean, v.kind == REIN_VALUE_BOOLEAN)
TEST(test_true, v.kind == REIN_VALUE_BOOLEAN && v.as.boolean)
TEST(test_false, v.kind == REIN_VALUE_BOOLEAN && !v.as.boolean)
TEST(test_integer, v.kind == REIN_VALUE_INTEGER)
TEST(test_float, v.kind == REIN_VALUE_FLOAT)
TEST(test_number, is_number(v))
TEST(test_string, v.kind == REIN_VALUE_STRING)
TEST(test_mapping, v.kind == REIN_VALUE_DICT)
TEST(test_iterable, is_iterable(v))
TEST(test_sequence, (rein_is_sequence(v) && v.kind != REIN_VALUE_VIEW) || v.kind == REIN_VALUE_STRING || v.kind == REIN_VALUE_DICT)
TEST(test_callable, v.kind == REIN_VALUE_MACRO || v.kind == REIN_VALUE_FUNCTION || v.kind == REIN_VALUE_METHOD)
TEST(test_even, is_multiple(call, 2, 0))
TEST(test_odd, is_multiple(call, 2, 1))
TEST(test_divisible, is_multiple_given(call))
TEST(test_upper, is_in_case(call->machine, v, REIN_CASE_UPPER))
TEST(test_lower, is_in_case(call->machine, v, REIN_CASE_LOWER))
TEST(test_equal, rein_compare(call->machine, REIN_OP_EQUAL, v, call->arguments[0]))
TEST(test_unequal, rein_compare(call->machine, REIN_OP_UNEQUAL, v, call->arguments[0]))
TEST(test_less, rein_compare(call->machine, REIN_OP_LESS, v, call->arguments[0]))
TEST(test_at_most, rein_compare(call->machine, REIN_OP_AT_MOST, v, call->arguments[0]))
TEST(test_greater, rein_compare(call->machine, REIN_OP_GREATER, v, call->arguments[0]))
TEST(test_at_least, rein_compare(call->machine, REIN_OP_AT_LEAST, v, call->arguments[0]))
TEST(test_in, rein_compare(call->machine, REIN_OP_IN, v, call->arguments[0]))

static const rein_callable tests[] = {
    {"defined", test_defined, NULL, 0},
    {"undefined", test_undefined, NULL, 0},
    {"none", test_none, NULL, 0},
    {"boolean", test_boolean, NULL, 0},
    {"true", test_true, NULL, 0},
    {"false", test_false, NULL, 0},
    {"integer", test_integer, NULL, 0},
    {"float", test_float, NULL, 0},
    {"number", test_number, NULL, 0},
    {"string", test_string, NULL, 0},
    {"mapping", test_mapping, NULL, 0},
    {"iterable", test_iterable, NULL, 0},
    {"sequence", test_sequence, NULL, 0},
    {"callable", test_callable, NULL, 0},
    {"even", test_even, NULL, 0},
    {"odd", test_odd, NULL, 0},
    {"divisibleby", test_divisible, "num", 1},
    {"upper", test_upper, NULL, 0},
    {"lower", test_lower, NULL, 0},
    {"equalto", test_equal, "other", 1},
    {"eq", test_equal, "other", 1},
    {"==", test_equal, "other", 1},
    {"ne", test_unequal, "other", 1},
    {"!=", test_unequal, "other", 1},
    {"lt", test_less, "other", 1},
    {"lessthan", test_less, "other", 1},
    {"<", test_less, "other", 1},
    {"le", test_at_most, "other", 1},
    {"<=", test_at_most, "other", 1},
    {"gt", test_greater, "other", 1},
    {"greaterthan", test_greater, "other", 1},
    {">", test_greater, "other", 1},
    {"ge", test_at_least, "other", 1},
    {">=", test_at_least, "other", 1},
    {"in", test_in, "seq", 1},
};

const rein_callable *rein_test_find(const char *name, size_t length) {
    return rein_row_find(tests, sizeof tests / sizeof *tests, name, length);
}
