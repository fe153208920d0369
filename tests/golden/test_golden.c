/* test_golden.c - the operations, from JSON to JSON, against values made outside the project: four.txt, preference.txt and policy.txt, whose format and
 * making stand in generate.py. Every case that disagrees is named; the test continues and fails at the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rein/operation.h"

/* How the generator and `rein objective policy-loss` call the same metric. */
static const struct {
    const char *golden, *printed;
} METRICS[] = {{"reward", "reward"},
               {"reward_std", "reward_std"},
               {"frac_reward_zero_std", "frac_reward_zero_std"},
               {"length_mean", "completions/mean_length"},
               {"length_max", "completions/max_length"},
               {"share_over_budget", "budget/share_over"},
               {"clip_low", "clip_ratio/low_mean"},
               {"clip_high", "clip_ratio/high_mean"},
               {"ratio_mean", "ratio/mean"},
               {"ratio_min", "ratio/min"},
               {"ratio_max", "ratio/max"},
               {"ess", "ratio/ess"},
               {"kl_old_k1", "kl_old/k1"},
               {"kl_old_k3", "kl_old/k3"},
               {"kl_ref_k1", "kl_policy_ref"},
               {"kl_ref_k3", "kl"},
               {"kl_exact", "kl_exact"},
               {"teacher_divergence", "teacher/divergence"},
               {"entropy", "entropy"},
               {"trained_tokens", "trained_tokens"}};

/* A line of any length, without its newline; NULL at the end. The caller's buffer grows. */
typedef struct line {
    char *text;
    size_t capacity;
} line;

static char *read_line(FILE *file, line *l) {
    const ssize_t n = getline(&l->text, &l->capacity, file);
    if (n < 0) return NULL;
    if (n > 0 && l->text[n - 1] == '\n') l->text[n - 1] = 0;
    return l->text;
}

/* What a case said and whether the output agrees. */
typedef struct verdict {
    char name[128];
    json_t *output; /* NULL: the operation failed */
    int failed;
} verdict;

static void disagree(verdict *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void disagree(verdict *v, const char *format, ...) {
    va_list args;
    if (v->failed++ == 0) fprintf(stderr, "golden %s:", v->name);
    va_start(args, format);
    fprintf(stderr, " ");
    vfprintf(stderr, format, args);
    fprintf(stderr, ";");
    va_end(args);
}

/* ---- numbers of the output, nested arrays flattened */
static void flatten(const json_t *value, double *into, size_t limit, size_t *n) {
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) flatten(json_array_get(value, i), into, limit, n);
    } else {
        if (*n < limit) into[*n] = json_is_number(value) ? json_number_value(value) : (double)NAN;
        ++*n;
    }
}

/* Within 1e-12 of the whole vector's length; where the golden is exactly 0 at a gradient, 1e-15 at least. */
static void compare_vector(verdict *v, const char *field, const double *expected, size_t n) {
    const json_t *value = json_object_get(v->output, field);
    double *got = calloc(n + 1, sizeof *got), norm = 0, worst = 0;
    size_t count = 0, worst_at = 0;
    assert_non_null(got);
    if (value) flatten(value, got, n, &count);
    for (size_t i = 0; i < n; i++) norm += isnan(expected[i]) ? 0 : expected[i] * expected[i];
    const double tolerance = fmax(1e-12 * sqrt(norm), 1e-15);
    for (size_t i = 0; i < n && count == n; i++) {
        if (isnan(expected[i])) continue; /* not to be checked */
        const double error = fabs(got[i] - expected[i]);
        if (!(error <= worst)) worst = error, worst_at = i;
    }
    if (!value) disagree(v, "%s is missing", field);
    else if (count != n) disagree(v, "%s has %zu entries, not %zu", field, count, n);
    else if (!(worst <= tolerance))
        disagree(v, "%s[%zu] is %.17g, not %.17g (off by %.2g, allowed %.2g)", field, worst_at, got[worst_at], expected[worst_at],
                 worst, tolerance);
    free(got);
}

static void check_field(verdict *v, char *text) {
    char *end, *place = strchr(text, ' ');
    if (!place) {
        disagree(v, "malformed line \"%.40s\"", text);
        return;
    }
    *place++ = 0;
    const size_t n = (size_t)strtoull(place, &end, 10);
    double *expected = calloc(n + 1, sizeof *expected);
    assert_non_null(expected);
    for (size_t i = 0; i < n; i++) {
        place = end;
        expected[i] = strtod(place, &end);
        assert_true(end != place);
    }
    compare_vector(v, text, expected, n);
    free(expected);
}

static void check_metric(verdict *v, char *text) {
    char *place = strchr(text, ' ');
    assert_non_null(place);
    *place++ = 0;
    const double expected = strtod(place, NULL);
    const char *printed = NULL;
    for (size_t i = 0; i < sizeof METRICS / sizeof *METRICS; i++)
        if (strcmp(METRICS[i].golden, text) == 0) printed = METRICS[i].printed;
    if (!printed) {
        disagree(v, "metric %s is not known to this test", text);
        return;
    }
    const json_t *value = json_object_get(json_object_get(v->output, "metrics"), printed);
    const double got = json_is_number(value) ? json_number_value(value) : (double)NAN;
    if (!(fabs(got - expected) <= 1e-11 * fabs(expected) + 1e-13))
        disagree(v, "metric %s is %.17g, not %.17g", text, got, expected);
}

/* ---- one case: its JSON through the operation; then line after line of what is expected */
static void compute(verdict *v, const char *operation, const char *text) {
    const rein_operation_info *known = rein_operation_describe(operation);
    rein_text out = {0};
    rein_error err;
    json_error_t where;
    assert_non_null(known);
    const rein_status status = rein_operation_run(&out, NULL, operation, text, strlen(text), known->gradients != NULL, NULL, &err);
    v->output = status == 0 ? json_loadb(out.data, out.length, JSON_REJECT_DUPLICATES, &where) : NULL;
    if (status != 0) disagree(v, "status %d, %s", (int)status, err.message);
    else if (!v->output) disagree(v, "the output is not JSON: %s", where.text);
    rein_text_free(&out);
}

/* "case NAME OPERATION JSON", the words cut apart. */
static void begin(verdict *v, char *text) {
    char *name = strchr(text, ' ') + 1, *operation = strchr(name, ' ') + 1, *json = strchr(operation, ' ') + 1;
    operation[-1] = json[-1] = 0;
    *v = (verdict){.name = ""};
    snprintf(v->name, sizeof v->name, "%s", name);
    compute(v, operation, json);
}

static void finish(verdict *v, size_t *cases, size_t *failures) {
    if (v->failed) fprintf(stderr, "\n");
    *failures += v->failed != 0;
    ++*cases;
    json_decref(v->output);
}

static void check_file(const char *name, size_t at_least) {
    const char *folder = getenv("REIN_TESTS_DIR");
    char path[4096];
    snprintf(path, sizeof path, "%s/golden/%s", folder ? folder : "tests", name);
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s cannot be opened: run from the project's root, or set REIN_TESTS_DIR to its tests", path);
    line l = {NULL, 0};
    verdict v = {.name = "?"};
    size_t cases = 0, failures = 0;
    for (char *text; (text = read_line(file, &l));) {
        if (strncmp(text, "case ", 5) == 0) begin(&v, text);
        else if (strcmp(text, "end") == 0) finish(&v, &cases, &failures);
        else if (!v.output) continue; /* said already */
        else if (strncmp(text, "metric:", 7) == 0) check_metric(&v, text + 7);
        else check_field(&v, text);
    }
    free(l.text);
    fclose(file);
    print_message("%s: %zu cases, %zu disagree\n", name, cases, failures);
    assert_true(cases >= at_least);
    assert_int_equal(failures, 0);
}

static void test_four(void **state) {
    (void)state;
    check_file("four.txt", 60);
}

static void test_preference(void **state) {
    (void)state;
    check_file("preference.txt", 150);
}

static void test_policy(void **state) {
    (void)state;
    check_file("policy.txt", 350);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_four), cmocka_unit_test(test_preference),
                                       cmocka_unit_test(test_policy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
