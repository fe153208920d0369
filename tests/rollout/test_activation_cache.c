/* test_activation_cache.c - a forward pass that takes rows from the activation cache computes the same bits: log-probs, entropies and
 * gradients. Rows of another policy, of changed parameters or of other tokens are never taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rollout/generator_fixture.h"

#include "support/allocation.h"

enum { ROOMY = 1 << 26 };

/* ---- a pass over a job's samples, behind the prompt they share */
typedef struct pass {
    size_t tokens, rows, cached; /* rows: tokens that are not only targets; cached: of these */
    float *log_probs, *entropies, *gradient;
} pass;

static void free_pass(pass *p) {
    free(p->log_probs), free(p->entropies), free(p->gradient);
    *p = (pass){0};
}

static pass run_pass(const rein_tokens *t, const policy *p, const rein_forward_options *options) {
    const size_t floats = rein_parameter_floats(p->model, p->adapter), n = t->offsets[t->n];
    pass out = {.tokens = n, .log_probs = some(n, sizeof(float)), .entropies = some(n, sizeof(float))};
    float *dlog_probs = some(n, sizeof *dlog_probs), *dentropies = some(n, sizeof *dentropies);
    out.gradient = some(floats, sizeof(float));
    for (size_t i = 0; i < n; i++) dlog_probs[i] = (float)(i % 7) - 3, dentropies[i] = (float)(i % 5) / 8;
    rein_activations *activations;
    OK(rein_activations_open(&activations, NULL, &error_));
    OK(rein_forward(out.log_probs, out.entropies, activations, &p->p, t, options, &error_));
    out.cached = rein_activations_cached_tokens(activations);
    OK(rein_backward(out.gradient, activations, dlog_probs, dentropies, &error_));
    rein_activations_close(activations);
    free(dlog_probs), free(dentropies);
    return out;
}

/* The first `of_each` tokens of every response, at most. */
static pass pass_over(const job *j, const policy *p, const rein_forward_options *options, size_t of_each) {
    size_t offsets[MOST_SAMPLES + 2] = {0, j->r.n_prompt}, n = j->r.n_prompt;
    int64_t parents[MOST_SAMPLES + 1] = {-1};
    uint64_t keys[MOST_SAMPLES + 1] = {j->responses[0].activation_key};
    int32_t *ids = some(n + MOST_SAMPLES * MOST_TOKENS, sizeof *ids);
    memcpy(ids, j->prompt, n * sizeof *ids);
    for (size_t s = 0; s < j->r.samples; s++) {
        const size_t taken = j->responses[s].n < of_each ? j->responses[s].n : of_each;
        memcpy(ids + n, j->responses[s].ids, taken * sizeof *ids);
        n += taken, offsets[s + 2] = n, parents[s + 1] = 0, keys[s + 1] = j->responses[s].activation_key;
    }
    const rein_tokens tokens = {j->r.samples + 1, offsets, parents, ids, NULL, keys};
    pass out = run_pass(&tokens, p, options);
    out.rows = n - j->r.samples;
    free(ids);
    return out;
}

static const rein_forward_options KEEP = {.keep = 1, .entropy_gradient = 1},
                                  AGAIN = {.keep = 1, .entropy_gradient = 1, .recompute = 1};

static size_t cached_of(const job *j, const policy *p, const rein_activation_cache *cache, size_t of_each) {
    rein_forward_options options = KEEP;
    options.activation_cache = cache;
    pass one = pass_over(j, p, &options, of_each);
    const size_t cached = one.cached;
    assert_true(cached == 0 || cached == one.rows);
    free_pass(&one);
    return cached;
}

static void same_pass(const pass *got, const pass *wanted, const policy *p, const char *what) {
    const size_t floats = rein_parameter_floats(p->model, p->adapter);
    if (memcmp(got->log_probs, wanted->log_probs, got->tokens * sizeof(float)) != 0) fail_msg("%s: other log-probs", what);
    if (memcmp(got->entropies, wanted->entropies, got->tokens * sizeof(float)) != 0) fail_msg("%s: other entropies", what);
    if (memcmp(got->gradient, wanted->gradient, floats * sizeof(float)) != 0) fail_msg("%s: another gradient", what);
}

/* The same bits as when everything is computed; all rows from the cache, or none. */
static void check(const job *j, const policy *p, const rein_activation_cache *cache, int recompute, int cached, const char *what) {
    rein_forward_options options = recompute ? AGAIN : KEEP;
    pass wanted = pass_over(j, p, &options, MOST_TOKENS);
    options.activation_cache = cache;
    pass got = pass_over(j, p, &options, MOST_TOKENS);
    assert_true(wanted.cached == 0);
    if (got.cached != (cached ? got.rows : 0)) fail_msg("%s: %zu rows of %zu are from the cache", what, got.cached, got.rows);
    same_pass(&got, &wanted, p, what);
    free_pass(&got), free_pass(&wanted);
}

static rein_activation_cache *open_cache(size_t bytes, int recompute) {
    rein_activation_cache *cache;
    OK(rein_activation_cache_open(&cache, bytes, recompute, &error_));
    assert_true(rein_activation_cache_tokens(cache) == 0);
    return cache;
}

static void sample(job *const *jobs, size_t n, const policy *p, rein_activation_cache *cache) {
    const rein_generator_options options = {.exec = {.threads = 2}, .activation_cache = cache};
    run_jobs(jobs, n, p, NULL, &options);
}

static void free_jobs(job **jobs, size_t n) {
    for (size_t i = 0; i < n; i++) free_job(jobs[i]);
}

/* ---- the same bits */
static void check_kind(const kind *k, size_t number_of) {
    policy p = open_policy(k, number_of % 2 ? 1 : 0.7);
    rein_activation_cache *all = open_cache(ROOMY, 0), *inputs = open_cache(ROOMY, 1);
    job *jobs[] = {new_job(1, 2, quick() ? 10 : 70, 0), new_job(65, 1, 9, 1), new_job(9, 4, 12, 2)};
    response plain[4];
    jobs[1]->enters = 4;
    sample(jobs, 3, &p, NULL);
    memcpy(plain, jobs[2]->responses, sizeof plain);
    sample(jobs, 3, &p, inputs);
    sample(jobs, 3, &p, all);
    for (size_t s = 0; s < 4; s++) same_response("with and without a cache", &jobs[2]->responses[s], &plain[s]);
    for (size_t i = 0; i < 3; i++) {
        check(jobs[i], &p, all, 0, 1, k->family);
        check(jobs[i], &p, all, 1, 1, k->family);
        check(jobs[i], &p, inputs, 1, 1, k->family);
        check(jobs[i], &p, inputs, 0, 0, k->family); /* it has not enough */
    }
    free_jobs(jobs, 3);
    rein_activation_cache_close(all), rein_activation_cache_close(inputs);
    close_policy(&p);
}

static void test_same_bits(void **state) {
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        kind k = kind_of(i);
        k.trains = k.adapter == NO_ADAPTER;
        check_kind(&k, i);
    }
}

/* ---- whose rows */
static void change(policy *p) {
    const size_t n = rein_parameter_count(p->model, p->adapter);
    rein_parameter *parameters = some(n, sizeof *parameters);
    float *gradient = some(rein_parameter_floats(p->model, p->adapter), sizeof *gradient);
    rein_parameters(parameters, p->model, p->adapter, gradient);
    parameters[n - 1].value[0] += 0.25f;
    OK(rein_parameters_changed(p->model, p->adapter, &error_));
    free(parameters), free(gradient);
}

static void test_whose(void **state) {
    (void)state;
    for (int full = 0; full < 2; full++) {
        kind k = kind_of(full ? 1 : 7);
        k.trains = full;
        policy p = open_policy(&k, 1), copy = p;
        rein_activation_cache *cache = open_cache(ROOMY, 0);
        job *j = new_job(9, 3, 12, 0);
        sample(&j, 1, &p, cache);
        check(j, &p, cache, 0, 1, "the policy");
        if (!full) {
            OK(rein_adapter_copy(&copy.adapter, p.adapter, &error_));
            copy.p.adapter = copy.adapter;
            check(j, &copy, cache, 0, 0, "its copy");
            rein_adapter_close(copy.adapter);
            OK(rein_adapter_copy(&copy.adapter, p.adapter, &error_)); /* perhaps where the first one was */
            copy.p.adapter = copy.adapter;
            check(j, &copy, cache, 0, 0, "another copy");
            sample(&j, 1, &copy, cache);
            check(j, &copy, cache, 0, 1, "the copy that sampled");
            check(j, &p, cache, 0, 0, "the policy that did so before");
            rein_adapter_close(copy.adapter);
            sample(&j, 1, &p, cache);
        }
        change(&p);
        check(j, &p, cache, 0, 0, "changed");
        sample(&j, 1, &p, cache);
        check(j, &p, cache, 0, 1, "changed and sampled");
        free_job(j);
        rein_activation_cache_close(cache);
        close_policy(&p);
    }
}

/* A generator that continues after its policy changed, while another one samples from the changed policy. */
static void test_left_over(void **state) {
    (void)state;
    policy p = policy_of(8, 1);
    rein_activation_cache *cache = open_cache(ROOMY, 0);
    const rein_generator_options options = {.activation_cache = cache};
    const rein_sampled *sampled;
    job *old = new_job(9, 2, 12, 0), *j = new_job(9, 2, 12, 1);
    rein_generator *g;
    size_t number_of, count = 1;
    OK(rein_generator_open(&g, &p.p, NULL, &options, &error_));
    OK(rein_generator_add(&number_of, g, &old->r, &error_));
    for (int i = 0; i < 4; i++) OK(rein_generator_step(&sampled, &count, g, &error_));
    change(&p);
    sample(&j, 1, &p, cache);
    const size_t tokens = rein_activation_cache_tokens(cache);
    while (count) OK(rein_generator_step(&sampled, &count, g, &error_));
    rein_generator_close(g);
    assert_true(rein_activation_cache_tokens(cache) == tokens);
    check(j, &p, cache, 0, 1, "beside an old one");
    free_job(old), free_job(j);
    rein_activation_cache_close(cache);
    close_policy(&p);
}

/* ---- which tokens */
static void test_which_tokens(void **state) {
    (void)state;
    policy p = policy_of(6, 1);
    rein_activation_cache *cache = open_cache(ROOMY, 0);
    job *j = new_job(9, 3, 12, 0);
    int32_t *ids = j->responses[0].ids;
    sample(&j, 1, &p, cache);
    assert_true(rein_activation_cache_tokens(cache) == 9 + 3 * 11);
    assert_true(cached_of(j, &p, cache, 12) == 9 + 3 * 11);
    assert_true(cached_of(j, &p, cache, 8) == 9 + 3 * 7);
    ids[7] ^= 1; /* the last of eight is only a target */
    assert_true(cached_of(j, &p, cache, 8) == 9 + 3 * 7);
    check(j, &p, cache, 0, 0, "another token");
    ids[7] ^= 1, ids[6] ^= 1;
    assert_true(cached_of(j, &p, cache, 8) == 0);
    ids[6] ^= 1, j->prompt[0] ^= 1;
    check(j, &p, cache, 0, 0, "another prompt");
    j->prompt[0] ^= 1;
    check(j, &p, cache, 0, 1, "as it was");
    free_job(j);
    rein_activation_cache_close(cache);
    close_policy(&p);
}

/* Rows are found by the key: a wrong one, or none, means that everything is computed. */
static void test_which_keys(void **state) {
    (void)state;
    policy p = policy_of(6, 1);
    rein_activation_cache *cache = open_cache(ROOMY, 0);
    job *jobs[] = {new_job(9, 3, 12, 0), new_job(9, 3, 12, 1)}, *j = jobs[0];
    sample(jobs, 2, &p, cache);
    for (size_t s = 0; s < 3; s++) assert_true(j->responses[s].activation_key == j->responses[0].activation_key + s);
    const uint64_t keys[] = {0, j->responses[1].activation_key, jobs[1]->responses[2].activation_key, 1000, UINT64_MAX},
                   own = j->responses[2].activation_key;
    for (size_t i = 0; i < COUNT(keys); i++) {
        j->responses[2].activation_key = keys[i];
        check(j, &p, cache, 0, 0, "another key");
    }
    j->responses[2].activation_key = own;
    check(j, &p, cache, 0, 1, "its own key");
    for (size_t s = 0; s < 3; s++) j->responses[s].activation_key = 0;
    check(j, &p, cache, 0, 0, "no key");
    free_jobs(jobs, 2);
    rein_activation_cache_close(cache);
    close_policy(&p);
}

/* A completion of another prompt: its own tokens are in the cache, those before it are not the ones it was sampled after. */
static void test_another_prompt(void **state) {
    (void)state;
    policy p = policy_of(6, 1);
    rein_activation_cache *cache = open_cache(ROOMY, 0);
    job *jobs[] = {new_job(9, 2, 12, 0), new_job(9, 2, 12, 1)};
    sample(jobs, 2, &p, cache);
    jobs[0]->responses[1] = jobs[1]->responses[1];
    check(jobs[0], &p, cache, 0, 0, "a completion of another prompt");
    jobs[0]->responses[0] = jobs[1]->responses[0];
    check(jobs[0], &p, cache, 0, 0, "completions of another prompt");
    memcpy(jobs[0]->prompt, jobs[1]->prompt, sizeof jobs[0]->prompt);
    check(jobs[0], &p, cache, 0, 1, "all of the other request");
    free_jobs(jobs, 2);
    rein_activation_cache_close(cache);
    close_policy(&p);
}

/* Samples of a request share its prompt's rows and nothing else, also when they are the same. */
static void test_shared(void **state) {
    (void)state;
    policy p = policy_of(6, 1);
    rein_activation_cache *cache = open_cache(ROOMY, 0);
    job *jobs[] = {new_job(9, 3, 12, 0), new_job(12, 2, 5, 1)};
    memcpy(jobs[1]->prompt, jobs[0]->prompt, 9 * sizeof *jobs[0]->prompt);
    jobs[0]->r.sampling.greedy = jobs[1]->r.sampling.greedy = 1;
    sample(jobs, 2, &p, cache);
    assert_true(rein_activation_cache_tokens(cache) == 9 + 3 * 11 + 12 + 2 * 4);
    for (size_t i = 0; i < 2; i++) check(jobs[i], &p, cache, 0, 1, "shared");
    jobs[0]->responses[1].activation_key = jobs[0]->responses[2].activation_key; /* the same tokens: as good as its own */
    check(jobs[0], &p, cache, 0, 1, "another sample with the same tokens");
    free_jobs(jobs, 2);
    rein_activation_cache_close(cache);
    close_policy(&p);
}

/* Sequences that share no segment, cut anywhere. */
static void test_segments(void **state) {
    (void)state;
    policy p = policy_of(7, 1);
    rein_activation_cache *cache = open_cache(ROOMY, 0);
    job *j = new_job(9, 2, 12, 0);
    sample(&j, 1, &p, cache);
    int32_t ids[2 * 21];
    for (size_t s = 0; s < 2; s++) {
        memcpy(ids + 21 * s, j->prompt, 9 * sizeof *ids);
        memcpy(ids + 21 * s + 9, j->responses[s].ids, 12 * sizeof *ids);
    }
    rein_forward_options with = KEEP;
    with.activation_cache = cache;
    for (size_t cut = 1; cut < 21; cut++) {
        const size_t offsets[] = {0, cut, 21, 21 + cut, 42};
        const uint64_t first = j->responses[0].activation_key, keys[] = {first, first, first + 1, first + 1};
        const rein_tokens t = {4, offsets, (const int64_t[]){-1, 0, -1, 2}, ids, NULL, keys};
        pass wanted = run_pass(&t, &p, &KEEP), got = run_pass(&t, &p, &with);
        assert_true(wanted.cached == 0 && got.cached == 2 * 20);
        same_pass(&got, &wanted, &p, "cut");
        free_pass(&got), free_pass(&wanted);
    }
    free_job(j);
    rein_activation_cache_close(cache);
    close_policy(&p);
}

/* ---- how much */

/* The newest requests that fit are complete; the others are computed. */
static void test_room(void **state) {
    (void)state;
    policy p = policy_of(6, 1);
    job *jobs[] = {new_job(9, 3, 12, 0), new_job(9, 3, 12, 1), new_job(9, 3, 12, 2)};
    const size_t each = 9 + 3 * 11;
    size_t row = 0; /* bytes: of a row: the smallest cache that keeps a request tells */
    for (size_t bytes = 1000; !row && bytes < 20000; bytes += 4) {
        rein_activation_cache *tried = open_cache(bytes * each, 0);
        sample(jobs, 1, &p, tried);
        if (rein_activation_cache_tokens(tried) == each) row = bytes;
        rein_activation_cache_close(tried);
    }
    assert_true(row > 0);
    const struct {
        size_t bytes;
        int cached;
    } cases[] = {{0, 0}, {row * each - 4, 0}, {row * each, 1}, {2 * row * each - 4, 1}, {2 * row * each, 2}, {3 * row * each, 3}};
    for (size_t c = 0; c < COUNT(cases); c++) {
        rein_activation_cache *cache = open_cache(cases[c].bytes, 0);
        for (int again = 0; again < 2; again++) { /* older requests make room for newer ones */
            for (int i = 0; i < 3; i++) jobs[i]->r.address.step++;
            sample(jobs, 3, &p, cache);
            assert_true(rein_activation_cache_tokens(cache) * row <= cases[c].bytes);
            for (int i = 0; i < 3; i++) check(jobs[i], &p, cache, 0, i >= 3 - cases[c].cached, "as much as there is room for");
        }
        change(&p);
        sample(jobs, 1, &p, cache);
        check(jobs[0], &p, cache, 0, cases[c].cached > 0, "after a change");
        rein_activation_cache_close(cache);
    }
    free_jobs(jobs, 3);
    close_policy(&p);
}

/* A policy that samples again and again: the last request is always there. */
static void test_churn(void **state) {
    (void)state;
    policy p = policy_of(6, 1);
    rein_activation_cache *cache = open_cache(1 << 20, 0);
    job *j = new_job(9, 3, 40, 0);
    for (uint64_t step = 0; step < (quick() ? 40 : 700); step++) {
        j->r.address.step = step;
        sample(&j, 1, &p, cache);
        if (step % 97 == 3 || step > 690) check(j, &p, cache, 0, 1, "the last one");
    }
    free_job(j);
    rein_activation_cache_close(cache);
    close_policy(&p);
}

/* ---- failures */
static void test_failed_step(void **state) {
    (void)state;
    const kind k = {.family = "llama", .architecture = "LlamaForCausalLM", .head_dim = 10, .broken = 1};
    policy p = open_policy(&k, 1);
    rein_activation_cache *cache = open_cache(ROOMY, 0);
    const rein_generator_options options = {.activation_cache = cache};
    const rein_sampled *sampled;
    job *j = new_job(9, 3, 12, 0);
    rein_generator *g;
    size_t number_of, count;
    OK(rein_generator_open(&g, &p.p, NULL, &options, &error_));
    OK(rein_generator_add(&number_of, g, &j->r, &error_));
    OK(rein_generator_step(&sampled, &count, g, &error_));
    assert_int_equal(rein_generator_failed(&number_of, g, NULL), REIN_ERANGE);
    assert_true(rein_activation_cache_tokens(cache) == 0);
    rein_generator_close(g);
    free_job(j);
    rein_activation_cache_close(cache);
    close_policy(&p);
}

static rein_status only_open(void *context, rein_error *err) {
    rein_activation_cache *cache;
    const rein_status status = rein_activation_cache_open(&cache, ROOMY, 0, err);
    (void)context;
    assert_true(status ? cache == NULL : cache != NULL);
    rein_activation_cache_close(cache);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    policy p = policy_of(6, 1);
    job *j = new_job(9, 3, 12, 0);
    assert_true(fail_each_allocation(only_open, NULL) == 1);
    assert_true(rein_activation_cache_tokens(NULL) == 0);
    failures = 1;
    for (long n = 0; failures; n++) {
        rein_activation_cache *cache = open_cache(ROOMY, 0);
        const rein_generator_options options = {.exec = {1, REIN_ISA_BEST}, .activation_cache = cache};
        const rein_sampled *sampled;
        rein_generator *g;
        size_t number_of, count = 1;
        memset(j->responses, 0, 3 * sizeof *j->responses);
        OK(rein_generator_open(&g, &p.p, NULL, &options, &error_));
        OK(rein_generator_add(&number_of, g, &j->r, &error_));
        left = n, once = 1, failures = 0;
        rein_status status = REIN_OK;
        while (!status && rein_generator_unfinished(g)) {
            status = rein_generator_step(&sampled, &count, g, NULL);
            if (!status) status = rein_generator_failed(&number_of, g, NULL);
            for (size_t i = 0; i < count && !status; i++) write_down(j, &sampled[i]);
        }
        left = -1;
        assert_true(status == REIN_OK || (status == REIN_ENOMEM && rein_activation_cache_tokens(cache) == 0));
        rein_generator_close(g);
        if (!status) { /* nothing failed, or only the cache did */
            const size_t cached = cached_of(j, &p, cache, 12);
            assert_true(failures || cached);
            check(j, &p, cache, 0, cached > 0, "with less memory");
        }
        rein_activation_cache_close(cache);
    }
    free_job(j);
    close_policy(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),    cmocka_unit_test(test_whose),       cmocka_unit_test(test_left_over),
        cmocka_unit_test(test_which_tokens), cmocka_unit_test(test_which_keys),  cmocka_unit_test(test_another_prompt),
        cmocka_unit_test(test_segments),     cmocka_unit_test(test_shared),      cmocka_unit_test(test_room),
        cmocka_unit_test(test_churn),        cmocka_unit_test(test_failed_step), cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
