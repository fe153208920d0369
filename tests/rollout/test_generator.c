/* test_generator.c - one answer: what a generator says token by token has the bits that rein_forward computes for the whole sequence, and
 * what is sampled does not depend on what else is sampled, when, by how many threads or with which instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "rollout/generator_forward.h"

static void free_jobs(job **jobs, size_t n) {
    for (size_t i = 0; i < n; i++) free_job(jobs[i]);
}

static void test_every_family(void **state) {
    (void)state;
    for (size_t k = 0; k < KINDS; k++) {
        policy p = policy_of(k, k % 2 ? 1 : 0.7);
        job *jobs[] = {new_job(1, 2, quick() ? 10 : 70, 0), new_job(65, 1, 9, 1), new_job(9, 3, 12, 2)};
        jobs[1]->enters = 4;
        jobs[2]->r.sampling.top_k = 20;
        run_jobs(jobs, 3, &p, NULL, NULL);
        check_forward(jobs, 3, &p, NULL);
        if (k % 11 == 5) check_forward(jobs, 3, &p, &(rein_exec){1, REIN_ISA_REF});
        free_jobs(jobs, 3);
        close_policy(&p);
    }
}

static void test_prompt_lengths(void **state) {
    (void)state;
    const size_t lengths[] = {1, 63, 64, 65, 200};
    policy p = policy_of(8, 1);
    for (size_t i = 0; i < COUNT(lengths); i++) {
        job *jobs[] = {new_job(lengths[i], 2, quick() ? 3 : 70, i)}; /* 70: into a second block of its own */
        run_job(jobs[0], &p, NULL, NULL);
        check_forward(jobs, 1, &p, NULL);
        free_jobs(jobs, 1);
    }
    close_policy(&p);
}

/* An adapter is part of the policy, and so is the temperature. */
static void test_policies_differ(void **state) {
    (void)state;
    policy p = policy_of(14, 1);
    job *j = new_job(5, 1, 8, 0);
    run_job(j, &p, NULL, NULL);
    const response with = j->responses[0];
    p.p.adapter = NULL;
    run_job(j, &p, NULL, NULL);
    assert_memory_not_equal(with.log_probs, j->responses[0].log_probs, 8 * sizeof(float));
    const response without = j->responses[0];
    p.p.temperature = 2;
    run_job(j, &p, NULL, NULL);
    assert_memory_not_equal(without.log_probs, j->responses[0].log_probs, 8 * sizeof(float));
    free_job(j);
    close_policy(&p);
}

/* ---- whatever else is sampled */
enum { JOBS = 7 };

/* Samplers of every sort, of different lengths, which enter at different times. */
static void various_jobs(job *jobs[JOBS]) {
    static int32_t ends[30]; /* samples of a prompt end at different times */
    for (size_t i = 0; i < COUNT(ends); i++) ends[i] = (int32_t)(i * 20);
    const size_t prompts[JOBS] = {1, 64, 7, 130, 20, 3, 65}, samples[JOBS] = {1, 2, 5, 1, 1, 3, 1};
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i] = new_job(prompts[i], samples[i], samples[i] > 1 ? 40 : 3 + 4 * i, i);
        jobs[i]->r.sampling.seed = i / 2;
        jobs[i]->r.sampling.top_log_probs = i % 3;
        if (samples[i] > 1) jobs[i]->r.sampling.end_ids = ends, jobs[i]->r.sampling.n_end_ids = COUNT(ends);
    }
    jobs[1]->r.sampling.top_k = 10;
    jobs[2]->r.sampling.top_p = 0.8;
    jobs[3]->r.sampling.greedy = 1;
    jobs[4]->r.sampling.min_p = 0.05, jobs[4]->r.sampling.top_p = 0.9;
}

static void test_whatever_the_batch(void **state) {
    (void)state;
    const rein_generator_options plainest = {.exec = {1, REIN_ISA_REF}};
    const size_t most[] = {1, 2, 3, 64};
    policy p = policy_of(16, 0.9);
    job *alone[JOBS], *together[JOBS];
    stream = 77, various_jobs(alone);
    stream = 77, various_jobs(together);
    for (size_t i = 0; i < JOBS; i++) run_job(alone[i], &p, NULL, &plainest);
    for (int isa = REIN_ISA_REF; isa < REIN_ISA_COUNT; isa++)
        for (int threads = 1; threads <= 3 && rein_isa_available((rein_isa)isa); threads++)
            for (size_t m = 0; m < COUNT(most); m++) {
                const rein_generator_options options = {.max_active = most[m], .exec = {threads, (rein_isa)isa}};
                if ((quick() || isa == REIN_ISA_REF) && m != (size_t)threads) continue;
                for (size_t i = 0; i < JOBS; i++) together[i]->enters = m % 2 ? 0 : below(12);
                run_jobs(together, JOBS, &p, NULL, &options);
                for (size_t i = 0; i < JOBS; i++)
                    for (size_t s = 0; s < together[i]->r.samples; s++)
                        same_response("together", &together[i]->responses[s], &alone[i]->responses[s]);
            }
    free_jobs(alone, JOBS), free_jobs(together, JOBS);
    close_policy(&p);
}

/* One among 1 to 20 others. */
static void test_others(void **state) {
    (void)state;
    policy p = policy_of(4, 1);
    job *target = new_job(30, 2, 25, 9), *jobs[21] = {new_job(30, 2, 25, 9)};
    memcpy(jobs[0]->prompt, target->prompt, sizeof target->prompt);
    run_job(target, &p, NULL, NULL);
    for (size_t others = 1; others <= 20; others += quick() ? 6 : 1) {
        const rein_generator_options options = {.max_active = 1 + below(30), .exec = {.threads = 1 + (int)below(3)}};
        for (size_t i = 1; i <= others; i++) jobs[i] = new_job(1 + below(90), 1 + below(4), 1 + below(30), 100 + i);
        for (size_t i = 0; i <= others; i++) jobs[i]->enters = below(5);
        run_jobs(jobs, others + 1, &p, NULL, &options);
        for (size_t s = 0; s < 2; s++) same_response("among others", &jobs[0]->responses[s], &target->responses[s]);
        free_jobs(jobs + 1, others);
    }
    free_job(jobs[0]), free_job(target);
    close_policy(&p);
}

/* Samples of one request: the prompt is computed once, which changes nothing. */
static void test_samples(void **state) {
    (void)state;
    policy p = policy_of(6, 1);
    job *many = new_job(66, 8, 20, 3), *few = new_job(66, 3, 20, 3), *one = new_job(66, 1, 20, 3), *greedy = new_job(66, 4, 20, 3);
    memcpy(few->prompt, many->prompt, sizeof many->prompt), memcpy(one->prompt, many->prompt, sizeof many->prompt);
    memcpy(greedy->prompt, many->prompt, sizeof many->prompt);
    run_job(many, &p, NULL, NULL), run_job(few, &p, NULL, NULL), run_job(one, &p, NULL, NULL);
    for (size_t s = 0; s < 3; s++) same_response("of 3 and of 8", &few->responses[s], &many->responses[s]);
    same_response("alone and of 8", &one->responses[0], &many->responses[0]);
    for (size_t s = 1; s < 8; s++) /* but they are different samples */
        assert_memory_not_equal(many->responses[s].ids, many->responses[0].ids, 20 * sizeof(int32_t));
    greedy->r.sampling.greedy = one->r.sampling.greedy = 1;
    run_job(greedy, &p, NULL, NULL), run_job(one, &p, NULL, NULL);
    for (size_t s = 0; s < 4; s++) same_response("greedy", &greedy->responses[s], &one->responses[0]);
    free_job(many), free_job(few), free_job(one), free_job(greedy);
    close_policy(&p);
}

/* The address: every part of it changes what is sampled, and nothing else does. */
static void test_address(void **state) {
    (void)state;
    policy p = open_policy(&PLAIN, 1);
    job *j = new_job(4, 1, 20, 0);
    run_job(j, &p, NULL, NULL);
    const response first = j->responses[0];
    run_job(j, &p, NULL, NULL);
    same_response("again", &j->responses[0], &first);
    uint64_t *const parts[] = {&j->r.sampling.seed, &j->r.address.step, &j->r.address.prompt};
    for (size_t i = 0; i < 3; i++) {
        ++*parts[i];
        run_job(j, &p, NULL, NULL);
        assert_memory_not_equal(j->responses[0].ids, first.ids, 20 * sizeof(int32_t));
        --*parts[i];
    }
    j->r.address = (rein_address){.step = UINT64_MAX, .prompt = j->r.address.prompt};
    run_job(j, &p, NULL, NULL); /* what an evaluation samples is the same in every version: that of the last step there could be */
    const response last = j->responses[0];
    j->r.address = (rein_address){.purpose = REIN_PURPOSE_EVALUATION, .prompt = j->r.address.prompt};
    run_job(j, &p, NULL, NULL);
    same_response("evaluation", &j->responses[0], &last);
    assert_memory_not_equal(j->responses[0].ids, first.ids, 20 * sizeof(int32_t));
    j->r.address = (rein_address){.step = 5, .prompt = j->r.address.prompt};
    j->r.sampling.max_tokens = 7; /* a shorter one is its beginning */
    run_job(j, &p, NULL, NULL);
    same_tokens("shorter", &j->responses[0], &first, 7);
    free_job(j);
    close_policy(&p);
}

/* More rows of prompts than enter in one step. */
static void test_many_rows(void **state) {
    (void)state;
    enum { MANY = 23 };
    policy p = open_policy(&PLAIN, 1);
    job *jobs[MANY], *alone = new_job(200, 1, 4, 20);
    for (size_t i = 0; i < MANY; i++) jobs[i] = new_job(200, 1, 4, i); /* 4600 */
    memcpy(alone->prompt, jobs[20]->prompt, sizeof alone->prompt);
    run_jobs(jobs, MANY, &p, NULL, NULL);
    run_job(alone, &p, NULL, NULL);
    same_response("of many", &jobs[20]->responses[0], &alone->responses[0]);
    free_jobs(jobs, MANY), free_job(alone);
    close_policy(&p);
}

/* A vocabulary so large that not all logits of a step are there at a time. */
static void test_many_logits(void **state) {
    (void)state;
    enum { MANY = 9 };
    policy p = open_policy(&(kind){"llama", "LlamaForCausalLM", 2, 1, NO_ADAPTER, 0, 1 << 20, 4, 0, 0, 0}, 1);
    job *jobs[MANY], *alone = new_job(2, 2, 2, 8);
    for (size_t i = 0; i < MANY; i++) jobs[i] = new_job(2, 2, 2, i);
    memcpy(alone->prompt, jobs[8]->prompt, sizeof alone->prompt);
    run_jobs(jobs, MANY, &p, NULL, NULL); /* 18 rows of 2^20, and 2^24 at a time: the last two are apart */
    run_job(alone, &p, NULL, NULL);
    for (size_t s = 0; s < 2; s++) same_response("of many logits", &jobs[8]->responses[s], &alone->responses[s]);
    check_forward(&jobs[8], 1, &p, NULL);
    free_jobs(jobs, MANY), free_job(alone);
    close_policy(&p);
}

/* ---- the most probable tokens, against the logits of the whole sequence in double */
static void check_top(const response *r, size_t i, const float *logits) {
    double most = -HUGE_VAL, sum = 0;
    for (size_t v = 0; v < VOCABULARY; v++) most = fmax(most, (double)logits[v]);
    for (size_t v = 0; v < VOCABULARY; v++) sum += exp((double)logits[v] - most);
    for (size_t k = 0; k < r->n_top; k++) {
        const rein_choice *c = &r->top[i][k];
        size_t above = 0;
        for (size_t v = 0; v < VOCABULARY; v++)
            above += logits[v] > logits[c->id] || (logits[v] == logits[c->id] && v < (size_t)c->id);
        assert_true(above == k);
        assert_true(fabs((double)c->log_prob - ((double)logits[c->id] - most - log(sum))) < 1e-5);
        if (c->id == r->ids[i]) assert_memory_equal(&c->log_prob, &r->log_probs[i], sizeof(float));
    }
}

static void test_top_log_probs(void **state) {
    (void)state;
    policy p = policy_of(17, 0.8);
    job *j = new_job(10, 1, 20, 0);
    j->r.sampling.top_log_probs = MOST_TOP;
    run_job(j, &p, NULL, NULL);
    int32_t ids[30];
    uint8_t wanted[30] = {0};
    const size_t offsets[2] = {0, 30};
    memcpy(ids, j->prompt, 10 * sizeof *ids), memcpy(ids + 10, j->responses[0].ids, 20 * sizeof *ids);
    memset(wanted + 10, 1, 20);
    const rein_tokens tokens = {.n = 1, .offsets = offsets, .ids = ids, .wanted = wanted};
    float *logits = some((size_t)20 * VOCABULARY, sizeof *logits);
    rein_activations *activations;
    OK(rein_activations_open(&activations, NULL, &error_));
    OK(rein_logits(logits, activations, &p.p, &tokens, &error_));
    for (size_t i = 0; i < 20; i++) {
        check_top(&j->responses[0], i, logits + i * VOCABULARY);
        assert_memory_equal(&j->responses[0].log_probs[i], &j->responses[0].sampler_log_probs[i], sizeof(float));
    }
    rein_activations_close(activations);
    j->r.sampling.greedy = 1; /* then the token is the first of them, and its sampler certain */
    run_job(j, &p, NULL, NULL);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(j->responses[0].top[i][0].id, j->responses[0].ids[i]);
        assert_true(j->responses[0].sampler_log_probs[i] == 0);
    }
    free(logits), free_job(j);
    close_policy(&p);
}

/* ---- a real model: 200 greedy tokens from the begin token, and log-probabilities in float64, made outside of the project */
static void test_stories(void **state) {
    (void)state;
    const char *shared = getenv("REIN_SHARED_DIR");
    char directory[1000], path[1100];
    snprintf(directory, sizeof directory, "%s/models/stories260K", shared ? shared : "../shared");
    snprintf(path, sizeof path, "%s/greedy.json", directory);
    json_t *golden = json_load_file(path, 0, NULL);
    if (!golden) {
        print_message("!!!!! %s IS ABSENT: the test on a real model is SKIPPED !!!!!\n", path);
        skip();
    }
    const json_t *ids = json_object_get(golden, "ids"), *log_probs = json_object_get(golden, "logprobs");
    const size_t n = json_array_size(log_probs);
    policy p = {0};
    OK(rein_model_open(&p.model, directory, NULL, &error_));
    p.p = (rein_policy){p.model, NULL, 1};
    job *jobs[] = {new_job(1, 1, n, 0), new_job(1, 2, 30, 1)};
    assert_true(n >= 190 && json_array_size(ids) >= n && n < MOST_TOKENS);
    const size_t first = json_array_size(ids) - n; /* where ids begin with the prompt */
    for (size_t i = 0; i < 2; i++) jobs[i]->prompt[0] = 1;
    jobs[0]->r.sampling.greedy = 1;
    run_jobs(jobs, 2, &p, NULL, NULL);
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(jobs[0]->responses[0].ids[i], json_integer_value(json_array_get(ids, first + i)));
        worst = fmax(worst, fabs((double)jobs[0]->responses[0].log_probs[i] - json_number_value(json_array_get(log_probs, i))));
    }
    print_message("worst error of a log-probability of stories260K: %.2g\n", worst);
    assert_true(worst < 1e-4);
    check_forward(jobs, 2, &p, NULL);
    free_jobs(jobs, 2);
    close_policy(&p);
    json_decref(golden);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_family),    cmocka_unit_test(test_prompt_lengths),
                                       cmocka_unit_test(test_policies_differ), cmocka_unit_test(test_whatever_the_batch),
                                       cmocka_unit_test(test_others),          cmocka_unit_test(test_samples),
                                       cmocka_unit_test(test_address),         cmocka_unit_test(test_many_rows),
                                       cmocka_unit_test(test_many_logits),     cmocka_unit_test(test_top_log_probs),
                                       cmocka_unit_test(test_stories)};
    return cmocka_run_group_tests_name("generator", tests, NULL, NULL);
}
