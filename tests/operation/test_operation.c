/* test_operation.c - the operations on JSON as a library call: what is appended, what an error names, and what a failure leaves. The values
 * are compared in tests/golden, the messages in tests/cli. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "rein/operation.h"
#include "support/allocation.h"

static rein_status run(rein_text *out, const char **note, const char *name, const char *json, int grad, rein_error *err) {
    return rein_operation_run(out, note, name, json, strlen(json), grad, NULL, err);
}

/* Every operation computes its own example, with its gradient if it has one, after what the text had before. */
static void test_examples(void **state) {
    (void)state;
    const rein_operation_info *o;
    size_t n = 0;
    for (; (o = rein_operation_at(n)); n++) {
        rein_text out = {0};
        rein_error err = {0};
        const char *note = "left over";
        rein_text_put(&out, "before ");
        assert_ptr_equal(rein_operation_describe(o->name), o);
        if (run(&out, &note, o->name, o->example, o->gradients != NULL, &err)) fail_msg("%s: %s", o->name, err.message);
        assert_memory_equal(out.data, "before {\"", 9);
        assert_string_equal(out.data + out.length - 2, "}\n");
        assert_int_equal(strstr(out.data, "\"grad_") != NULL, o->gradients != NULL);
        assert_null(note);
        rein_text_free(&out);
    }
    assert_int_equal(n, 9);
    assert_null(rein_operation_describe("gpo "));
}

static void test_note(void **state) {
    (void)state;
    rein_text out = {0};
    const char *note = NULL;
    static const char masked[] = "{\"log_probs\": [-1], \"old_log_probs\": [-1], \"mask\": [0], \"rewards\": [1]}";
    assert_int_equal(run(&out, &note, "policy-loss", masked, 0, NULL), REIN_OK);
    assert_string_equal(note, "no token trains, so the loss and every gradient are 0");
    assert_int_equal(run(&out, NULL, "policy-loss", masked, 0, NULL), REIN_OK);
    rein_text_free(&out);
}

/* The text stays as it was, and the error names the operation, the option or the argument. */
static void test_errors(void **state) {
    (void)state;
    static const struct {
        const char *name, *json;
        int grad;
        const char *field;
        int64_t index;
        const char *message;
    } cases[] = {
        {"gop", "{}", 0, "", -1, "unknown operation \"gop\": did you mean \"gpo\"?"},
        {"zebra", "{}", 0, "", -1,
         "unknown operation \"zebra\": it is one of budget-loss, gpo, rlhf-update, kl-advantage, budget-control, policy-loss, "
         "preference-loss, reward-loss, value-loss"},
        {"rlhf-update", "{}", 1, "grad", -1, "grad has no effect here: this operation has no gradient"},
        {"budget-control", "{\"multiplier\": 1, \"response_lengths\": [1, -1], \"target_length\": 1, \"step_size\": 1}", 0,
         "response_lengths", 1, "response_lengths[1] is -1: a whole number, 0 or more and below 2^51, is needed"},
        {"budget-loss", /* found by the library, which numbers the responses of all rows */
         "{\"rewards\": [[1], [2, 3]], \"log_probs\": [[0], [0, 0]], \"old_log_probs\": [[0], [0, 0]], \"kl_coef\": 1, "
         "\"response_lengths\": [[1], [1, 4503599627370496]], \"token_budget\": 1, \"budget_penalty_coef\": 1}",
         0, "response_lengths[1]", 1, "response_lengths[1][1] is 4503599627370496: a length is 0 or more, and below 2^51"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rein_text out = {0};
        rein_error err = {0};
        const char *note = "left over";
        rein_text_put(&out, "before");
        assert_int_equal(run(&out, &note, cases[i].name, cases[i].json, cases[i].grad, &err), REIN_EINVAL);
        assert_string_equal(err.field, cases[i].field);
        assert_int_equal(err.index, cases[i].index);
        if (strncmp(err.message, cases[i].message, strlen(cases[i].message)) != 0) fail_msg("%s", err.message);
        assert_string_equal(out.data, "before");
        assert_string_equal(note, "left over");
        rein_text_free(&out);
    }
}

static rein_status run_once(void *context, rein_error *err) {
    const rein_operation_info *o = context;
    rein_text out = {0};
    const rein_status status = run(&out, NULL, o->name, o->example, o->gradients != NULL, err);
    assert_true(!status == (out.length > 0));
    rein_text_free(&out);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    if (!can_fail()) skip(); /* not linked for it: tests/support/allocation.h */
    for (size_t i = 0; rein_operation_at(i); i++)
        assert_true(fail_each_allocation(run_once, (void *)(uintptr_t)rein_operation_at(i)) > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_note),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
