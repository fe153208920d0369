/* test_engine.c - log-probabilities, entropies and gradients of tiny models of every family against float64 (fixtures/engine), with and
 * without an adapter; what a shared prompt, `wanted` and NULL mean; logits; and a real model against the independent float64 of others.
 *
 * Tolerances are about ten times the largest errors that were measured (log-probs 3e-6, entropies 2e-6, gradients 3e-6 of a tensor's norm,
 * the real model 5e-6), which is what f32 comes to: a log-prob near −10 has an ulp of 1e-6. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/engine_fixture.h"

static const double LOG_PROB = 2e-5; /* absolute */
static const double ENTROPY = 2e-5;  /* absolute */
static const double GRADIENT = 3e-5; /* of a tensor's norm */
static const double ROUNDING = 1e-5; /* the same: two ways of adding up the same gradient */

static double worst_log_prob, worst_entropy, worst_gradient;

/* Fails on NaN. */
static void near(double got, double wanted, double tolerance, double *worst, const char *what, const char *where, size_t i) {
    const double error = fabs(got - wanted);
    if (error > *worst) *worst = error;
    if (!(error <= tolerance)) fail_msg("%s: %s %zu is %.9g, not %.9g: off by %.2g", where, what, i, got, wanted, error);
}

/* ---- against the goldens */
static void near_all(const float *got, const json_t *wanted, double tolerance, double *worst, const char *what, const char *where) {
    for (size_t i = 0; i < json_array_size(wanted); i++)
        near((double)got[i], json_real_value(json_array_get(wanted, i)), tolerance, worst, what, where, i);
}

/* norm and projections of a tensor, as generate.py has them. */
static void project(double found[4], const float *gradient, size_t n) {
    memset(found, 0, 4 * sizeof *found);
    for (size_t i = 0; i < n; i++) {
        const double g = (double)gradient[i];
        found[0] += g * g;
        for (int k = 0; k < 3; k++) found[1 + k] += g * cos(1 + (double)i * (0.37 + 0.61 * k));
    }
    found[0] = sqrt(found[0]);
}

static rein_parameter *parameters_of(const rein_policy *policy, float *gradient, size_t *n) {
    *n = rein_parameter_count(policy->model, policy->adapter);
    rein_parameter *list = some(*n, sizeof *list);
    rein_parameters(list, (rein_model *)(uintptr_t)policy->model, (rein_adapter *)(uintptr_t)policy->adapter, gradient);
    return list;
}

static void near_gradient(const rein_policy *policy, float *gradient, const json_t *wanted, const char *where) {
    size_t n;
    rein_parameter *list = parameters_of(policy, gradient, &n);
    assert_int_equal(n, json_object_size(wanted));
    for (size_t p = 0; p < n; p++) {
        const json_t *numbers = json_object_get(wanted, list[p].name);
        double found[4];
        char what[200];
        if (!numbers) fail_msg("%s: no golden for %s", where, list[p].name);
        snprintf(what, sizeof what, "%s (norm, then projections; relative to the norm)", list[p].name);
        project(found, list[p].gradient, list[p].size);
        const double norm = json_real_value(json_array_get(numbers, 0));
        for (size_t k = 0; k < 4; k++)
            near(found[k] / norm, json_real_value(json_array_get(numbers, k)) / norm, GRADIENT, &worst_gradient, what, where, k);
    }
    free(list);
}

/* One result of a golden: gradients where it has them. A model that trains is f32, whatever it is stored in. */
static void check_result(const char *name, const batch *b, const json_t *result, const rein_forward_options *options) {
    const double temperature = json_real_value(json_object_get(result, "temperature"));
    const int with_adapter = json_is_true(json_object_get(result, "adapter"));
    const json_t *gradient = json_object_get(result, "gradient");
    char where[200];
    snprintf(where, sizeof where, "%s at %g%s%s", name, temperature, with_adapter ? " with its adapter" : "",
             options->recompute ? ", recomputed" : "");
    rein_model *model = open_model(fixture(name, ""), gradient && !with_adapter);
    rein_adapter *adapter = with_adapter ? open_adapter(model, name) : NULL;
    rein_activations *activations = open_activations(0, REIN_ISA_BEST);
    const rein_policy policy = {model, adapter, temperature};
    pass p = {0};
    run_pass(&p, activations, &policy, b, gradient ? options : NULL);
    near_all(p.log_probs, json_object_get(result, "log_probs"), LOG_PROB, &worst_log_prob, "log_prob", where);
    near_all(p.entropies, json_object_get(result, "entropies"), ENTROPY, &worst_entropy, "entropy", where);
    if (gradient) near_gradient(&policy, p.gradient, gradient, where);
    pass_free(&p);
    rein_activations_close(activations);
    rein_adapter_close(adapter);
    rein_model_close(model);
}

static void test_goldens(void **state) {
    (void)state;
    for (size_t f = 0; f < COUNT(fixture_names); f++)
        for (int recompute = 0; recompute < 2; recompute++) {
            json_t *golden = read_json(fixture(fixture_names[f], "golden.json"));
            batch *b = golden_batch(golden);
            const json_t *results = json_object_get(golden, "results");
            const rein_forward_options options = {.keep = 1, .entropy_gradient = 1, .recompute = recompute};
            assert_true(json_array_size(results) >= 3);
            for (size_t r = 0; r < json_array_size(results); r++)
                check_result(fixture_names[f], b, json_array_get(results, r), &options);
            free(b);
            json_decref(golden);
        }
    print_message("largest errors: log-probs %.1e, entropies %.1e, gradients %.1e of their norms\n", worst_log_prob, worst_entropy,
                  worst_gradient);
}

/* ---- for each fixture, its batch, and a policy that trains its weights or its adapter */
typedef void with_policy(const rein_policy *policy, const batch *b, rein_activations *activations, const char *where);

static void for_all(with_policy *check) {
    for (size_t f = 0; f < COUNT(fixture_names); f++)
        for (int with_adapter = 0; with_adapter < 2; with_adapter++) {
            json_t *golden = read_json(fixture(fixture_names[f], "golden.json"));
            batch *b = golden_batch(golden);
            rein_model *model = open_model(fixture(fixture_names[f], ""), !with_adapter);
            rein_adapter *adapter = with_adapter ? open_adapter(model, fixture_names[f]) : NULL;
            rein_activations *activations = open_activations(0, REIN_ISA_BEST);
            const rein_policy policy = {model, adapter, 0.7};
            check(&policy, b, activations, fixture_names[f]);
            rein_activations_close(activations);
            rein_adapter_close(adapter);
            rein_model_close(model);
            free(b);
            json_decref(golden);
        }
}

/* |a − b| of each tensor, relative to the norm of b. */
static void near_gradients(const rein_policy *policy, float *a, float *b, const char *where) {
    size_t n;
    rein_parameter *ours = parameters_of(policy, a, &n), *others = parameters_of(policy, b, &n);
    for (size_t p = 0; p < n; p++) {
        double difference = 0, norm = 0;
        for (size_t i = 0; i < ours[p].size; i++) {
            const double x = (double)ours[p].gradient[i], y = (double)others[p].gradient[i];
            difference += (x - y) * (x - y), norm += y * y;
        }
        if (!(sqrt(difference) <= ROUNDING * sqrt(norm)))
            fail_msg("%s: the gradients of %s differ by %.2g of their norm", where, ours[p].name, sqrt(difference / norm));
    }
    free(ours), free(others);
}

/* A prompt that responses share, and each response with a prompt of its own: the same bits, the same gradient but for rounding. */
static void check_apart(const rein_policy *policy, const batch *b, rein_activations *activations, const char *where) {
    const rein_forward_options options = {.keep = 1, .entropy_gradient = 1};
    batch *apart = batch_apart(b);
    pass p = {0}, q = {0};
    run_pass(&p, activations, policy, b, &options);
    run_pass(&q, activations, policy, apart, &options);
    size_t compared = 0;
    for (size_t t = 0; t < q.tokens; t++) {
        if (!apart->wanted[t]) continue;
        const size_t s = (size_t)apart->source[t];
        compared++;
        if (memcmp(&q.log_probs[t], &p.log_probs[s], sizeof(float)) || memcmp(&q.entropies[t], &p.entropies[s], sizeof(float)))
            fail_msg("%s: token %zu is %a in its tree, %a apart", where, s, (double)p.log_probs[s], (double)q.log_probs[t]);
    }
    assert_int_equal(compared, tokens_of(b) - 3); /* three roots */
    near_gradients(policy, q.gradient, p.gradient, where);
    pass_free(&p), pass_free(&q);
    free(apart);
}

static void test_shared_prompt(void **state) {
    (void)state;
    for_all(check_apart);
}

/* Where nothing is wanted the result is 0 and no coefficient is read; what is wanted has the same bits. NULL is all. */
static void check_wanted(const rein_policy *policy, const batch *all, rein_activations *activations, const char *where) {
    const rein_forward_options options = {.keep = 1, .entropy_gradient = 1};
    batch *some_of = some(1, sizeof *some_of), *zeros = some(1, sizeof *zeros);
    *some_of = *zeros = *all;
    for (size_t t = 0; t < tokens_of(all); t++)
        if (t % 3 == 1 && all->wanted[t]) {
            some_of->wanted[t] = 0, some_of->c[t] = some_of->e[t] = NAN;
            zeros->c[t] = zeros->e[t] = 0;
        }
    pass p = {0}, q = {0};
    run_pass(&p, activations, policy, zeros, &options);
    run_pass(&q, activations, policy, some_of, &options);
    for (size_t t = 0; t < p.tokens; t++) {
        const float wanted[2] = {some_of->wanted[t] ? p.log_probs[t] : 0, some_of->wanted[t] ? p.entropies[t] : 0};
        if (memcmp(&q.log_probs[t], &wanted[0], sizeof(float)) || memcmp(&q.entropies[t], &wanted[1], sizeof(float)))
            fail_msg("%s: token %zu is %a, not %a", where, t, (double)q.log_probs[t], (double)wanted[0]);
    }
    near_gradients(policy, q.gradient, p.gradient, where);
    rein_tokens null = tokens(zeros);
    null.wanted = NULL;
    OK(rein_forward(q.log_probs, NULL, activations, policy, &null, NULL, &error_));
    assert_memory_equal(q.log_probs, p.log_probs, p.tokens * sizeof(float));
    pass_free(&p), pass_free(&q);
    free(some_of), free(zeros);
}

static void test_wanted(void **state) {
    (void)state;
    for_all(check_wanted);
}

/* Σ c·log_prob + Σ e·entropy has the gradient of its parts; without entropies the pass is another one (head.h). */
static void check_parts(const rein_policy *policy, const batch *b, rein_activations *activations, const char *where) {
    const rein_forward_options both = {.keep = 1, .entropy_gradient = 1}, one = {.keep = 1};
    batch *entropy = some(1, sizeof *entropy);
    *entropy = *b;
    memset(entropy->c, 0, sizeof entropy->c);
    pass whole = {0}, parts = {0};
    run_pass(&whole, activations, policy, b, &both);
    run_pass(&parts, activations, policy, b, &one);
    run_pass(&parts, activations, policy, entropy, &both); /* adds */
    near_gradients(policy, parts.gradient, whole.gradient, where);
    pass_free(&whole), pass_free(&parts);
    free(entropy);
}

static void test_parts_add_up(void **state) {
    (void)state;
    for_all(check_parts);
}

/* ---- logits */
static double log_sum(const float *x, size_t n) {
    double most = (double)x[0], sum = 0;
    for (size_t i = 1; i < n; i++) most = fmax(most, (double)x[i]);
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - most);
    return most + log(sum);
}

static void check_logits(const rein_policy *policy, const batch *b, rein_activations *activations, const char *where) {
    const size_t vocabulary = (size_t)rein_model_describe(policy->model).vocabulary;
    const rein_tokens t = tokens(b);
    float *x = floats(tokens_of(b) * vocabulary), *row = x;
    double worst = 0;
    pass p = {0};
    run_pass(&p, activations, policy, b, NULL);
    OK(rein_logits(x, activations, policy, &t, &error_));
    for (size_t i = 0; i < p.tokens; i++) {
        if (!b->wanted[i]) continue;
        near((double)p.log_probs[i], (double)row[b->ids[i]] - log_sum(row, vocabulary), 1e-5, &worst, "log_prob", where, i);
        row += vocabulary;
    }
    pass_free(&p);
    free(x);
}

static void test_logits(void **state) {
    (void)state;
    for_all(check_logits);
}

/* ---- a real model: 200 tokens chosen by someone else's float64 (greedy.json) */
static void test_stories(void **state) {
    (void)state;
    if (!have_stories()) skip();
    char path[5000];
    double worst = 0;
    snprintf(path, sizeof path, "%s/greedy.json", stories());
    json_t *golden = read_json(path);
    const json_t *ids = json_object_get(golden, "ids"), *wanted = json_object_get(golden, "logprobs");
    batch *b = batch_new();
    add_segment(b, -1);
    for (size_t i = 0; i < json_array_size(ids); i++)
        add_token(b, (int32_t)json_integer_value(json_array_get(ids, i)), 1, 0, 0, -1);
    rein_model *model = open_model(stories(), 0);
    rein_activations *activations = open_activations(0, REIN_ISA_BEST);
    const rein_policy policy = {model, NULL, 1};
    const rein_tokens t = tokens(b);
    const size_t vocabulary = (size_t)rein_model_describe(model).vocabulary, n = tokens_of(b);
    pass p = {0};
    run_pass(&p, activations, &policy, b, NULL);
    assert_true(json_array_size(wanted) == n - 1);
    for (size_t i = 0; i + 1 < n; i++)
        near((double)p.log_probs[i + 1], json_real_value(json_array_get(wanted, i)), 5e-5, &worst, "log_prob", "stories260K", i);
    float *x = floats(n * vocabulary);
    OK(rein_logits(x, activations, &policy, &t, &error_));
    for (size_t i = 0; i + 1 < n; i++) {
        size_t best = 0;
        for (size_t v = 1; v < vocabulary; v++)
            if (x[i * vocabulary + v] > x[i * vocabulary + best]) best = v;
        assert_int_equal(best, b->ids[i + 1]);
    }
    print_message("largest error: %.1e\n", worst);
    free(x), free(b);
    pass_free(&p);
    rein_activations_close(activations);
    rein_model_close(model);
    json_decref(golden);
}

/* ---- refusals */
static void refused(rein_activations *activations, const rein_policy *policy, const rein_tokens *t, const char *wanted) {
    float log_probs[64] = {3};
    rein_error err = {0};
    assert_int_equal(rein_forward(log_probs, NULL, activations, policy, t, NULL, &err), REIN_EINVAL);
    if (!strstr(err.message, wanted)) fail_msg("\"%s\" does not say \"%s\"", err.message, wanted);
    assert_true(log_probs[0] == 3); /* untouched */
}

static void test_refusals(void **state) {
    (void)state;
    rein_model *model = open_model(fixture("llama", ""), 0), *other = open_model(fixture("qwen2", ""), 0);
    rein_adapter *foreign = open_adapter(other, "qwen2");
    rein_activations *activations = open_activations(1, REIN_ISA_BEST);
    rein_policy policy = {model, NULL, 1};
    const size_t offsets[] = {0, 2, 4}, empty[] = {0, 2, 2};
    const int64_t none[] = {-1, -1}, forward[] = {1, -1}, itself[] = {-1, 1};
    const int32_t ids[] = {1, 2, 3, 39}, outside[] = {1, 2, 3, 40}, negative[] = {1, -1, 3, 4};
    const uint8_t first[] = {1, 0, 0, 0};
    refused(activations, &policy, &(rein_tokens){2, empty, none, ids, NULL, NULL}, "at least one token");
    refused(activations, &policy, &(rein_tokens){2, offsets, forward, ids, NULL, NULL}, "parents[0] is 1");
    refused(activations, &policy, &(rein_tokens){2, offsets, itself, ids, NULL, NULL}, "parents[1] is 1");
    refused(activations, &policy, &(rein_tokens){2, offsets, none, outside, NULL, NULL},
            "ids[3] is 40: the model's vocabulary is 0 to 39");
    refused(activations, &policy, &(rein_tokens){2, offsets, none, negative, NULL, NULL}, "ids[1] is -1");
    refused(activations, &policy, &(rein_tokens){2, offsets, none, ids, first, NULL}, "wanted[0] is 1");
    policy.adapter = foreign;
    refused(activations, &policy, &(rein_tokens){2, offsets, none, ids, NULL, NULL}, "another model");
    policy = (rein_policy){model, NULL, 0};
    refused(activations, &policy, &(rein_tokens){2, offsets, none, ids, NULL, NULL}, "temperature is 0");
    policy.temperature = (double)NAN;
    refused(activations, &policy, &(rein_tokens){2, offsets, none, ids, NULL, NULL}, "temperature is");
    policy.temperature = 1;
    int32_t many[65] = {0};
    refused(activations, &policy, &(rein_tokens){1, (const size_t[]){0, 65}, NULL, many, NULL, NULL}, "the model has 64 positions");
    rein_activations_close(activations);
    rein_adapter_close(foreign);
    rein_model_close(model), rein_model_close(other);
}

/* Nothing is wanted: nothing is computed, and there is no gradient; of a tree whose last segments are not needed the first stays. */
static void test_nothing_wanted(void **state) {
    (void)state;
    rein_model *model = open_model(fixture("llama", ""), 0);
    rein_adapter *adapter = open_adapter(model, "llama");
    rein_activations *activations = open_activations(1, REIN_ISA_BEST);
    const rein_policy policy = {model, adapter, 1};
    const size_t offsets[] = {0, 3, 5, 6, 8}, alone[] = {0, 4};
    const int64_t parents[] = {-1, 0, 1, -1};
    const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8}, chain[] = {1, 2, 3, 4};
    const uint8_t none[8] = {0}, one[8] = {0, 0, 0, 1};
    const rein_forward_options keep = {.keep = 1};
    const size_t n = rein_parameter_floats(model, adapter);
    float lp[8], wanted[4], d[8] = {1, 1, 1, 1, 1, 1, 1, 1}, *gradient = floats(n), *same = floats(n);
    OK(rein_forward(lp, NULL, activations, &policy, &(rein_tokens){4, offsets, parents, ids, none, NULL}, &keep, &error_));
    OK(rein_backward(gradient, activations, d, NULL, &error_));
    for (size_t i = 0; i < 8; i++) assert_true(lp[i] == 0);
    for (size_t i = 0; i < n; i++) assert_true(gradient[i] == 0);
    OK(rein_forward(lp, NULL, activations, &policy, &(rein_tokens){4, offsets, parents, ids, one, NULL}, &keep, &error_));
    OK(rein_backward(gradient, activations, d, NULL, &error_));
    OK(rein_forward(wanted, NULL, activations, &policy, &(rein_tokens){1, alone, NULL, chain, one, NULL}, &keep, &error_));
    OK(rein_backward(same, activations, d, NULL, &error_));
    for (size_t i = 0; i < 8; i++) assert_true(lp[i] == (i == 3 ? wanted[3] : 0));
    assert_true(lp[3] < 0);
    assert_memory_equal(gradient, same, n * sizeof *same); /* the same three rows */
    free(gradient), free(same);
    rein_activations_close(activations);
    rein_adapter_close(adapter);
    rein_model_close(model);
}

static void test_backward_refusals(void **state) {
    (void)state;
    rein_model *model = open_model(fixture("llama", ""), 0);
    rein_adapter *adapter = open_adapter(model, "llama");
    rein_activations *activations = open_activations(1, REIN_ISA_BEST);
    const rein_policy frozen = {model, NULL, 1}, policy = {model, adapter, 1};
    const rein_tokens t = {1, (const size_t[]){0, 3}, NULL, (const int32_t[]){1, 2, 3}, NULL, NULL};
    const rein_forward_options keep = {.keep = 1};
    float lp[3], d[3] = {NAN, 1, 1}, bad[3] = {0, NAN, 0}, *gradient = floats(rein_parameter_floats(model, adapter));
    assert_int_equal(rein_backward(gradient, activations, d, NULL, NULL), REIN_EINVAL); /* no forward pass */
    OK(rein_forward(lp, NULL, activations, &policy, &t, NULL, &error_));
    assert_int_equal(rein_backward(gradient, activations, d, NULL, NULL), REIN_EINVAL); /* not kept */
    OK(rein_forward(lp, NULL, activations, &frozen, &t, &keep, &error_));
    assert_int_equal(rein_backward(gradient, activations, d, NULL, NULL), REIN_EINVAL); /* nothing trains */
    OK(rein_forward(lp, NULL, activations, &policy, &t, &keep, &error_));
    assert_int_equal(rein_backward(gradient, activations, d, d, NULL), REIN_EINVAL);      /* without entropy_gradient */
    assert_int_equal(rein_backward(gradient, activations, bad, NULL, NULL), REIN_EINVAL); /* NaN */
    for (size_t i = 0; i < rein_parameter_floats(model, adapter); i++) assert_true(gradient[i] == 0);
    OK(rein_backward(gradient, activations, d, NULL, &error_)); /* the first token has none: its NaN is not read */
    assert_int_equal(rein_backward(gradient, activations, d, NULL, NULL), REIN_EINVAL); /* used up */
    free(gradient);
    rein_activations_close(activations);
    rein_adapter_close(adapter);
    rein_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),      cmocka_unit_test(test_shared_prompt),  cmocka_unit_test(test_wanted),
        cmocka_unit_test(test_parts_add_up), cmocka_unit_test(test_logits),         cmocka_unit_test(test_stories),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_nothing_wanted), cmocka_unit_test(test_backward_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
