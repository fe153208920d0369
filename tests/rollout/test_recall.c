/* test_recall.c - what a generator computed is what a forward pass would compute: log-probs, entropies and gradients have the same bits
 * whether rows are recalled or not; and rows that are not those of the policy as it is are never recalled. */
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
    size_t tokens, rows, recalled; /* rows: tokens that are not only targets */
    float *log_probs, *entropies, *gradient;
} pass;

static void free_pass(pass *p) {
    free(p->log_probs), free(p->entropies), free(p->gradient);
    *p = (pass){0};
}

/* The first `of_each` tokens of every response, at most. */
static pass pass_over(const job *j, const policy *p, const rein_forward_options *options, size_t of_each) {
    const size_t floats = rein_parameter_floats(p->model, p->adapter);
    size_t offsets[MOST_SAMPLES + 2] = {0, j->r.n_prompt}, n = j->r.n_prompt;
    int64_t parents[MOST_SAMPLES + 1] = {-1};
    int32_t *ids = some(n + MOST_SAMPLES * MOST_TOKENS, sizeof *ids);
    memcpy(ids, j->prompt, n * sizeof *ids);
    for (size_t s = 0; s < j->r.samples; s++) {
        const size_t taken = j->responses[s].n < of_each ? j->responses[s].n : of_each;
        memcpy(ids + n, j->responses[s].ids, taken * sizeof *ids);
        n += taken, offsets[s + 2] = n, parents[s + 1] = 0;
    }
    pass out = {n, n - j->r.samples, 0, some(n, sizeof(float)), some(n, sizeof(float)), some(floats, sizeof(float))};
    float *dlog_probs = some(n, sizeof *dlog_probs), *dentropies = some(n, sizeof *dentropies);
    for (size_t i = 0; i < n; i++) dlog_probs[i] = (float)(i % 7) - 3, dentropies[i] = (float)(i % 5) / 8;
    const rein_tokens tokens = {j->r.samples + 1, offsets, parents, ids, NULL};
    rein_trace *trace;
    OK(rein_trace_open(&trace, NULL, &error_));
    OK(rein_forward(out.log_probs, out.entropies, trace, &p->p, &tokens, options, &error_));
    out.recalled = rein_trace_recalled(trace);
    OK(rein_backward(out.gradient, trace, dlog_probs, dentropies, &error_));
    rein_trace_close(trace);
    free(ids), free(dlog_probs), free(dentropies);
    return out;
}

static const rein_forward_options KEEP = {.keep = 1, .entropy_gradient = 1},
                                  AGAIN = {.keep = 1, .entropy_gradient = 1, .recompute = 1};

static size_t recalled_of(const job *j, const policy *p, const rein_recall *recall, size_t of_each) {
    rein_forward_options options = KEEP;
    options.recall = recall;
    pass one = pass_over(j, p, &options, of_each);
    const size_t recalled = one.recalled;
    assert_true(recalled == 0 || recalled == one.rows);
    free_pass(&one);
    return recalled;
}

/* The same bits as when everything is computed; recalled or not, as is said. */
static void check(const job *j, const policy *p, const rein_recall *recall, int recompute, int recalled, const char *what) {
    const size_t floats = rein_parameter_floats(p->model, p->adapter);
    rein_forward_options options = recompute ? AGAIN : KEEP;
    pass wanted = pass_over(j, p, &options, MOST_TOKENS);
    options.recall = recall;
    pass got = pass_over(j, p, &options, MOST_TOKENS);
    assert_true(wanted.recalled == 0);
    if (got.recalled != (recalled ? got.rows : 0)) fail_msg("%s: %zu rows of %zu are recalled", what, got.recalled, got.rows);
    if (memcmp(got.log_probs, wanted.log_probs, got.tokens * sizeof(float)) != 0) fail_msg("%s: other log-probs", what);
    if (memcmp(got.entropies, wanted.entropies, got.tokens * sizeof(float)) != 0) fail_msg("%s: other entropies", what);
    if (memcmp(got.gradient, wanted.gradient, floats * sizeof(float)) != 0) fail_msg("%s: another gradient", what);
    free_pass(&got), free_pass(&wanted);
}

static rein_recall *open_recall(size_t bytes, int recompute) {
    rein_recall *recall;
    OK(rein_recall_open(&recall, bytes, recompute, &error_));
    assert_true(rein_recall_tokens(recall) == 0);
    return recall;
}

static void sample(job *const *jobs, size_t n, const policy *p, rein_recall *recall) {
    const rein_generator_options options = {.exec = {.threads = 2}, .recall = recall};
    run_jobs(jobs, n, p, NULL, &options);
}

static void free_jobs(job **jobs, size_t n) {
    for (size_t i = 0; i < n; i++) free_job(jobs[i]);
}

/* ---- the same bits */
static void check_kind(const kind *k, size_t number_of) {
    policy p = open_policy(k, number_of % 2 ? 1 : 0.7);
    rein_recall *all = open_recall(ROOMY, 0), *inputs = open_recall(ROOMY, 1);
    job *jobs[] = {new_job(1, 2, quick() ? 10 : 70, 0), new_job(65, 1, 9, 1), new_job(9, 4, 12, 2)};
    response plain[4];
    jobs[1]->enters = 4;
    sample(jobs, 3, &p, NULL);
    memcpy(plain, jobs[2]->responses, sizeof plain);
    sample(jobs, 3, &p, inputs);
    sample(jobs, 3, &p, all);
    for (size_t s = 0; s < 4; s++) same_response("with and without a recall", &jobs[2]->responses[s], &plain[s]);
    for (size_t i = 0; i < 3; i++) {
        check(jobs[i], &p, all, 0, 1, k->family);
        check(jobs[i], &p, all, 1, 1, k->family);
        check(jobs[i], &p, inputs, 1, 1, k->family);
        check(jobs[i], &p, inputs, 0, 0, k->family); /* it has not enough */
    }
    free_jobs(jobs, 3);
    rein_recall_close(all), rein_recall_close(inputs);
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
        rein_recall *recall = open_recall(ROOMY, 0);
        job *j = new_job(9, 3, 12, 0);
        sample(&j, 1, &p, recall);
        check(j, &p, recall, 0, 1, "the policy");
        if (!full) {
            OK(rein_adapter_copy(&copy.adapter, p.adapter, &error_));
            copy.p.adapter = copy.adapter;
            check(j, &copy, recall, 0, 0, "its copy");
            rein_adapter_close(copy.adapter);
            OK(rein_adapter_copy(&copy.adapter, p.adapter, &error_)); /* perhaps where the first one was */
            copy.p.adapter = copy.adapter;
            check(j, &copy, recall, 0, 0, "another copy");
            sample(&j, 1, &copy, recall);
            check(j, &copy, recall, 0, 1, "the copy that sampled");
            check(j, &p, recall, 0, 0, "the policy that did so before");
            rein_adapter_close(copy.adapter);
            sample(&j, 1, &p, recall);
        }
        change(&p);
        check(j, &p, recall, 0, 0, "changed");
        sample(&j, 1, &p, recall);
        check(j, &p, recall, 0, 1, "changed and sampled");
        free_job(j);
        rein_recall_close(recall);
        close_policy(&p);
    }
}

/* A generator that goes on after its policy changed, while another one samples from that. */
static void test_left_over(void **state) {
    (void)state;
    policy p = policy_of(8, 1);
    rein_recall *recall = open_recall(ROOMY, 0);
    const rein_generator_options options = {.recall = recall};
    const rein_sampled *sampled;
    job *old = new_job(9, 2, 12, 0), *j = new_job(9, 2, 12, 1);
    rein_generator *g;
    size_t number_of, count = 1;
    OK(rein_generator_open(&g, &p.p, NULL, &options, &error_));
    OK(rein_generator_add(&number_of, g, &old->r, &error_));
    for (int i = 0; i < 4; i++) OK(rein_generator_step(&sampled, &count, g, &error_));
    change(&p);
    sample(&j, 1, &p, recall);
    const size_t tokens = rein_recall_tokens(recall);
    while (count) OK(rein_generator_step(&sampled, &count, g, &error_));
    rein_generator_close(g);
    assert_true(rein_recall_tokens(recall) == tokens);
    check(j, &p, recall, 0, 1, "beside an old one");
    free_job(old), free_job(j);
    rein_recall_close(recall);
    close_policy(&p);
}

/* ---- which tokens */
static void test_which_tokens(void **state) {
    (void)state;
    policy p = policy_of(6, 1);
    rein_recall *recall = open_recall(ROOMY, 0);
    job *j = new_job(9, 3, 12, 0);
    int32_t *ids = j->responses[0].ids;
    sample(&j, 1, &p, recall);
    assert_true(rein_recall_tokens(recall) == 9 + 3 * 11);
    assert_true(recalled_of(j, &p, recall, 12) == 9 + 3 * 11);
    assert_true(recalled_of(j, &p, recall, 8) == 9 + 3 * 7);
    ids[7] ^= 1; /* the last of eight is only a target */
    assert_true(recalled_of(j, &p, recall, 8) == 9 + 3 * 7);
    check(j, &p, recall, 0, 0, "another token");
    ids[7] ^= 1, ids[6] ^= 1;
    assert_true(recalled_of(j, &p, recall, 8) == 0);
    ids[6] ^= 1, j->prompt[0] ^= 1;
    check(j, &p, recall, 0, 0, "another prompt");
    j->prompt[0] ^= 1;
    check(j, &p, recall, 0, 1, "as it was");
    free_job(j);
    rein_recall_close(recall);
    close_policy(&p);
}

/* Samples that say the same have the same rows; so have requests that begin the same. */
static void test_shared(void **state) {
    (void)state;
    policy p = policy_of(6, 1);
    rein_recall *recall = open_recall(ROOMY, 0);
    job *jobs[] = {new_job(9, 3, 12, 0), new_job(12, 2, 5, 1)};
    memcpy(jobs[1]->prompt, jobs[0]->prompt, 9 * sizeof *jobs[0]->prompt);
    jobs[0]->r.sampling.greedy = jobs[1]->r.sampling.greedy = 1;
    sample(jobs, 2, &p, recall);
    assert_true(rein_recall_tokens(recall) == 9 + 11 + 3 + 4);
    for (size_t i = 0; i < 2; i++) check(jobs[i], &p, recall, 0, 1, "shared");
    free_jobs(jobs, 2);
    rein_recall_close(recall);
    close_policy(&p);
}

/* ---- how much */

/* Other samples, none of which begins as another one does: each has rows of its own. */
static void draw_apart(job *j, const policy *p, size_t rows) {
    size_t tokens = 0;
    while (tokens != rows) {
        rein_recall *recall = open_recall(ROOMY, 0);
        j->r.step++;
        sample(&j, 1, p, recall);
        tokens = rein_recall_tokens(recall);
        rein_recall_close(recall);
    }
}

/* The youngest requests that fit are whole; the others are computed. */
static void test_room(void **state) {
    (void)state;
    policy p = policy_of(6, 1);
    job *jobs[] = {new_job(9, 3, 12, 0), new_job(9, 3, 12, 1), new_job(9, 3, 12, 2)};
    const size_t each = 9 + 3 * 11;
    size_t row = 0; /* bytes: what the least roomy recall has that keeps a request */
    draw_apart(jobs[0], &p, each);
    for (size_t bytes = 1000; !row && bytes < 20000; bytes += 4) {
        rein_recall *tried = open_recall(bytes * each, 0);
        sample(jobs, 1, &p, tried);
        if (rein_recall_tokens(tried) == each) row = bytes;
        rein_recall_close(tried);
    }
    assert_true(row > 0);
    const struct {
        size_t bytes;
        int recalled;
    } cases[] = {{0, 0}, {row * each - 4, 0}, {row * each, 1}, {2 * row * each - 4, 1}, {2 * row * each, 2}, {3 * row * each, 3}};
    for (size_t c = 0; c < COUNT(cases); c++) {
        rein_recall *recall = open_recall(cases[c].bytes, 0);
        for (int again = 0; again < 2; again++) { /* what is there of the policy gives way to what comes */
            for (int i = 0; i < 3; i++) draw_apart(jobs[i], &p, each);
            sample(jobs, 3, &p, recall);
            assert_true(rein_recall_tokens(recall) * row <= cases[c].bytes);
            for (int i = 0; i < 3; i++) check(jobs[i], &p, recall, 0, i >= 3 - cases[c].recalled, "as much as there is room for");
        }
        change(&p);
        draw_apart(jobs[0], &p, each);
        sample(jobs, 1, &p, recall);
        check(jobs[0], &p, recall, 0, cases[c].recalled > 0, "after a change");
        rein_recall_close(recall);
    }
    free_jobs(jobs, 3);
    close_policy(&p);
}

/* A policy that samples and samples: what was lost is forgotten in the end, and the last request is always there. */
static void test_churn(void **state) {
    (void)state;
    policy p = policy_of(6, 1);
    rein_recall *recall = open_recall(1 << 20, 0);
    job *j = new_job(9, 3, 40, 0);
    for (uint64_t step = 0; step < (quick() ? 40 : 700); step++) {
        j->r.step = step;
        sample(&j, 1, &p, recall);
        if (step % 97 == 3 || step > 690) check(j, &p, recall, 0, 1, "the last one");
    }
    free_job(j);
    rein_recall_close(recall);
    close_policy(&p);
}

/* ---- failures */
static void test_failed_step(void **state) {
    (void)state;
    const kind k = {.family = "llama", .architecture = "LlamaForCausalLM", .head_dim = 10, .broken = 1};
    policy p = open_policy(&k, 1);
    rein_recall *recall = open_recall(ROOMY, 0);
    const rein_generator_options options = {.recall = recall};
    const rein_sampled *sampled;
    job *j = new_job(9, 3, 12, 0);
    rein_generator *g;
    size_t number_of, count;
    OK(rein_generator_open(&g, &p.p, NULL, &options, &error_));
    OK(rein_generator_add(&number_of, g, &j->r, &error_));
    assert_int_equal(rein_generator_step(&sampled, &count, g, NULL), REIN_ERANGE);
    assert_true(rein_recall_tokens(recall) == 0);
    rein_generator_close(g);
    free_job(j);
    rein_recall_close(recall);
    close_policy(&p);
}

static rein_status only_open(void *context, rein_error *err) {
    rein_recall *recall;
    const rein_status status = rein_recall_open(&recall, ROOMY, 0, err);
    (void)context;
    assert_true(status ? recall == NULL : recall != NULL);
    rein_recall_close(recall);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    policy p = policy_of(6, 1);
    job *j = new_job(9, 3, 12, 0);
    assert_true(fail_each_allocation(only_open, NULL) == 1);
    assert_true(rein_recall_tokens(NULL) == 0);
    failures = 1;
    for (long n = 0; failures; n++) {
        rein_recall *recall = open_recall(ROOMY, 0);
        const rein_generator_options options = {.exec = {1, REIN_ISA_BEST}, .recall = recall};
        const rein_sampled *sampled;
        rein_generator *g;
        size_t number_of, count = 1;
        memset(j->responses, 0, 3 * sizeof *j->responses);
        OK(rein_generator_open(&g, &p.p, NULL, &options, &error_));
        OK(rein_generator_add(&number_of, g, &j->r, &error_));
        left = n, once = 1, failures = 0;
        rein_status status = REIN_OK;
        while (!status && count) {
            status = rein_generator_step(&sampled, &count, g, NULL);
            for (size_t i = 0; i < count && !status; i++) write_down(j, &sampled[i]);
        }
        left = -1;
        assert_true(status == REIN_OK || (status == REIN_ENOMEM && rein_recall_tokens(recall) == 0));
        rein_generator_close(g);
        if (!status) { /* nothing failed, or only the recall did */
            const size_t recalled = recalled_of(j, &p, recall, 12);
            assert_true(failures || recalled);
            check(j, &p, recall, 0, recalled > 0, "with less memory");
        }
        rein_recall_close(recall);
    }
    free_job(j);
    close_policy(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),    cmocka_unit_test(test_whose),       cmocka_unit_test(test_left_over),
        cmocka_unit_test(test_which_tokens), cmocka_unit_test(test_shared),      cmocka_unit_test(test_room),
        cmocka_unit_test(test_churn),        cmocka_unit_test(test_failed_step), cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
