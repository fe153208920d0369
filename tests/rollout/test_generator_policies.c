/* test_generator_policies.c - requests of several policies in one generator, the prefix cache, log-probs of prompts, and min_tokens: each
 * request has the bits it has alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rollout/generator.h"
#include "rollout/generator_fixture.h"

enum { POLICIES = 5 };

static policy base;
static rein_adapter *tuned[2];
static rein_policy policies[POLICIES]; /* several adapters and temperatures of one model */

static int open_kind(size_t kind) {
    base = policy_of(kind, 0.9);
    tuned[0] = make_adapter(base.model, ADAPTER);
    tuned[1] = make_adapter(base.model, ADAPTER_OF_HEAD);
    for (size_t i = 0; i < POLICIES; i++)
        policies[i] = (rein_policy){base.model, i % 3 ? tuned[i % 3 - 1] : NULL, i < 3 ? 0.9 : 1.7};
    return 0;
}

static int open_all(void **state) {
    (void)state;
    return open_kind(5); /* qwen3 in bf16, without an adapter */
}

static int open_experts(void **state) {
    (void)state;
    return open_kind(DENSE_KINDS);
}

static int close_all(void **state) {
    (void)state;
    for (size_t i = 0; i < 2; i++) rein_adapter_close(tuned[i]);
    close_policy(&base);
    return 0;
}

static void alone(job *j, const rein_policy *of) {
    const rein_policy *given = j->r.policy;
    const policy one = {base.model, NULL, *of};
    j->r.policy = NULL;
    run_job(j, &one, NULL, NULL);
    j->r.policy = given;
}

/* ---- several policies */

static void test_one_batch(void **state) {
    (void)state;
    enum { JOBS = 12 };
    job *jobs[JOBS], *wanted[JOBS];
    for (size_t i = 0; i < JOBS; i++) {
        jobs[i] = new_job(1 + below(100), 1 + below(3), 5 + below(20), i);
        wanted[i] = new_job(1, jobs[i]->r.samples, 1, i);
        jobs[i]->enters = below(8);
        jobs[i]->r.sampling.top_log_probs = below(3);
        wanted[i]->r = jobs[i]->r, wanted[i]->r.prompt = memcpy(wanted[i]->prompt, jobs[i]->prompt, sizeof jobs[i]->prompt);
        jobs[i]->r.policy = &policies[i % POLICIES];
        alone(wanted[i], &policies[i % POLICIES]);
    }
    const rein_generator_options options[] = {
        {0}, {.max_active = 3}, {.max_prompt_tokens = 30}, {.exec = {1, REIN_ISA_REF}}, {.max_active = 5, .max_prompt_tokens = 17}};
    for (size_t o = 0; o < COUNT(options); o++) {
        run_jobs(jobs, JOBS, &base, NULL, &options[o]);
        for (size_t i = 0; i < JOBS; i++)
            for (size_t s = 0; s < jobs[i]->r.samples; s++)
                same_response("among other policies", &jobs[i]->responses[s], &wanted[i]->responses[s]);
    }
    for (size_t i = 0; i < JOBS; i++) free_job(jobs[i]), free_job(wanted[i]);
}

static void refused(const rein_policy *policy, const rein_generator_options *options, const char *part) {
    rein_generator *g;
    rein_error err = {0};
    size_t number_of;
    job *j = new_job(3, 1, 4, 0);
    j->r.policy = policy;
    OK(rein_generator_open(&g, &base.p, NULL, options, &error_));
    assert_int_equal(rein_generator_add(&number_of, g, &j->r, &err), REIN_EINVAL);
    reports(&err, REIN_EINVAL, part);
    rein_generator_close(g);
    free_job(j);
}

static void test_wrong_policies(void **state) {
    (void)state;
    rein_activation_cache *cache;
    rein_generator *g;
    rein_error err = {0};
    policy other = policy_of(0, 1);
    OK(rein_activation_cache_open(&cache, 1 << 20, 0, &error_));
    refused(&other.p, NULL, "policy.model is not the generator's model");
    refused(&(rein_policy){base.model, NULL, 0}, NULL, "temperature");
    refused(&policies[1], &(rein_generator_options){.activation_cache = cache}, "policy differs from the generator's");
    const rein_generator_options both = {.activation_cache = cache, .prefix_cache = 1 << 20};
    assert_int_equal(rein_generator_open(&g, &base.p, NULL, &both, &err), REIN_EINVAL);
    reports(&err, REIN_EINVAL, "prefix_cache is set together with an activation cache");
    rein_activation_cache_close(cache);
    close_policy(&other);
}

/* ---- the prefix cache */

typedef struct conversation {
    rein_generator *g;
    int32_t ids[POSITIONS];
    size_t n, cached; /* cached: tokens that the last turn found */
    response last;
} conversation;

/* A turn: `more` new tokens, then a completion, which the next turn begins with. Compared with the same request alone. */
static void turn(conversation *c, size_t more, size_t samples, const rein_policy *of, size_t index) {
    job *j = new_job(1, samples, 9, index), *wanted = new_job(1, samples, 9, index);
    const rein_sampled *sampled;
    size_t count, number_of;
    for (size_t i = 0; i < more; i++) c->ids[c->n++] = (int32_t)below(VOCABULARY);
    j->r.n_prompt = wanted->r.n_prompt = c->n;
    memcpy(j->prompt, c->ids, c->n * sizeof *c->ids), memcpy(wanted->prompt, c->ids, c->n * sizeof *c->ids);
    j->r.policy = of;
    alone(wanted, of);
    OK(rein_generator_add(&number_of, c->g, &j->r, &error_));
    while (rein_generator_unfinished(c->g)) {
        OK(rein_generator_step(&sampled, &count, c->g, &error_));
        for (size_t i = 0; i < count; i++) write_down(j, &sampled[i]), c->cached = sampled[i].cached_tokens;
    }
    for (size_t s = 0; s < samples; s++) same_response("after a cached prefix", &j->responses[s], &wanted->responses[s]);
    c->last = j->responses[samples - 1];
    memcpy(c->ids + c->n, c->last.ids, c->last.n * sizeof *c->ids);
    c->n += c->last.n;
    free_job(j), free_job(wanted);
}

static rein_generator *open_with(rein_generator_options options) {
    rein_generator *g;
    OK(rein_generator_open(&g, &base.p, NULL, &options, &error_));
    return g;
}

static void test_turns(void **state) {
    (void)state;
    for (size_t p = 0; p < POLICIES; p++) {
        conversation c = {.g = open_with((rein_generator_options){.prefix_cache = 64 << 20, .max_prompt_tokens = 50})};
        size_t before = 0;
        for (size_t i = 0; i < 5; i++) {
            const size_t more = i == 2 ? 1 : 3 + below(40);
            turn(&c, more, 1 + i % 3, &policies[p], i);
            /* The keys of a completion are known except for its last token, and the last token of a prompt is always computed. */
            assert_int_equal(c.cached, i ? before - 1 : 0);
            before = c.n;
        }
        rein_generator_close(c.g);
    }
}

/* Another temperature uses the same keys, another adapter its own. A prompt that leaves a known one in the middle of a block uses a part
 * of it. */
static void test_what_is_shared(void **state) {
    (void)state;
    conversation c = {.g = open_with((rein_generator_options){.prefix_cache = 64 << 20})};
    turn(&c, 100, 1, &policies[1], 0);
    c.n = 100;
    turn(&c, 0, 1, &policies[4], 1); /* the same adapter, hotter */
    assert_int_equal(c.cached, 99);
    c.n = 100;
    turn(&c, 0, 1, &policies[2], 2);
    assert_int_equal(c.cached, 0);
    for (size_t cut = 1; cut < 100; cut += 7) {
        c.n = cut;
        turn(&c, 20, 1, &policies[1], 3);
        assert_true(c.cached >= cut - 1 && c.cached <= cut + 2); /* a new token may be the old one by chance */
    }
    rein_generator_close(c.g);
}

/* However small the cache is, and with a ceiling of memory: the same bits, and the bounds hold. */
static void test_little_room(void **state) {
    (void)state;
    for (size_t blocks = 1; blocks < 8; blocks++) {
        rein_memory *memory;
        rein_generator *g = open_with((rein_generator_options){0});
        const size_t block = rein_key_bytes(g, 1, 1);
        rein_generator_close(g);
        OK(rein_memory_open(&memory, (size_t)64 << 20, &error_));
        conversation c = {.g = open_with((rein_generator_options){
                              .prefix_cache = blocks * block, .memory = memory, .max_active = 4, .max_prompt_tokens = 64})};
        while (rein_memory_take(memory, block)) continue; /* until there is room for less than a block */
        rein_memory_give(memory, 9 * block);
        for (size_t i = 0; i < 12; i++) {
            if (i % 4 == 0) c.n = 0;
            turn(&c, 20 + below(30), 1, &policies[i % POLICIES], i);
            assert_true(c.g->prefixes.bytes <= blocks * block);
            assert_true(c.g->promised + c.g->prefixes.bytes <= c.g->charged && c.g->charged <= 9 * block);
        }
        assert_true(c.g->prefixes.bytes > 0);
        rein_generator_close(c.g);
        rein_memory_close(memory);
    }
}

/* Requests with the same prompt at the same time, one cancelled: blocks are given back once. */
static void test_same_prompt_at_once(void **state) {
    (void)state;
    rein_generator *g = open_with((rein_generator_options){.prefix_cache = 64 << 20, .max_prompt_tokens = 70});
    job *wanted = new_job(90, 2, 12, 7), *jobs[4];
    alone(wanted, &policies[1]);
    size_t count, number_of;
    const rein_sampled *sampled;
    for (size_t i = 0; i < 4; i++) {
        jobs[i] = new_job(90, 2, 12, 7);
        memcpy(jobs[i]->prompt, wanted->prompt, sizeof wanted->prompt);
        jobs[i]->r.policy = &policies[1];
        OK(rein_generator_add(&number_of, g, &jobs[i]->r, &error_));
    }
    for (size_t n = 0; rein_generator_unfinished(g); n++) {
        if (n == 3) rein_generator_cancel(g, 2);
        OK(rein_generator_step(&sampled, &count, g, &error_));
        for (size_t i = 0; i < count; i++) write_down(jobs[sampled[i].request], &sampled[i]);
    }
    for (size_t i = 0; i < 4; i++)
        for (size_t s = 0; i != 2 && s < 2; s++) same_response("at once", &jobs[i]->responses[s], &wanted->responses[s]);
    OK(rein_generator_step(&sampled, &count, g, &error_));
    const rein_key_parts *keys = &g->store->parts[REIN_KEYS_ALL];
    assert_true(g->promised == 0 && (keys->blocks - keys->n_free) * rein_key_bytes(g, 1, 1) == g->prefixes.bytes);
    while (rein_prefix_evict(&g->prefixes)) continue;
    assert_true(g->prefixes.bytes == 0 && keys->blocks == keys->n_free);
    rein_generator_close(g);
    for (size_t i = 0; i < 4; i++) free_job(jobs[i]);
    free_job(wanted);
}

/* ---- log-probs of prompts */

static void check_prompt(const rein_sampled *sampled, const job *j, const rein_policy *of) {
    rein_activations *activations;
    const size_t offsets[] = {0, j->r.n_prompt};
    const rein_tokens tokens = {.n = 1, .offsets = offsets, .ids = j->prompt};
    float wanted[MOST_TOKENS];
    OK(rein_activations_open(&activations, NULL, &error_));
    OK(rein_forward(wanted, NULL, activations, of, &tokens, NULL, &error_));
    assert_true(isnan(sampled->prompt_log_probs[0]));
    for (size_t t = 1; t < j->r.n_prompt; t++) {
        const rein_choice *top = sampled->prompt_top + 3 * t;
        assert_memory_equal(&sampled->prompt_log_probs[t], &wanted[t], sizeof(float));
        assert_true(top[0].log_prob >= top[1].log_prob && top[1].log_prob >= top[2].log_prob);
        for (size_t k = 0; k < 3; k++)
            if (top[k].id == j->prompt[t]) assert_memory_equal(&top[k].log_prob, &wanted[t], sizeof(float));
        assert_true(top[2].log_prob >= wanted[t] || top[0].id == j->prompt[t] || top[1].id == j->prompt[t] ||
                    top[2].id == j->prompt[t]);
    }
    rein_activations_close(activations);
}

static void test_prompt_log_probs(void **state) {
    (void)state;
    for (size_t p = 0; p < POLICIES; p++) {
        rein_generator *g = open_with((rein_generator_options){.prefix_cache = 64 << 20, .max_prompt_tokens = 40, .max_active = 2});
        const rein_sampled *sampled;
        size_t count, number_of, seen = 0;
        job *beside = new_job(30, 1, 30, 0), *j = new_job(130, 3, 4, 1), *wanted = new_job(130, 3, 4, 1);
        memcpy(wanted->prompt, j->prompt, sizeof j->prompt);
        j->r.prompt_log_probs = 1, j->r.sampling.top_log_probs = wanted->r.sampling.top_log_probs = 3;
        j->r.policy = &policies[p];
        alone(wanted, &policies[p]);
        OK(rein_generator_add(&number_of, g, &beside->r, &error_));
        OK(rein_generator_add(&number_of, g, &j->r, &error_));
        while (rein_generator_unfinished(g)) {
            OK(rein_generator_step(&sampled, &count, g, &error_));
            for (size_t i = 0; i < count; i++) {
                write_down(sampled[i].request ? j : beside, &sampled[i]);
                assert_true((sampled[i].prompt_log_probs != NULL) == (sampled[i].request == 1 && sampled[i].position == 0));
                if (sampled[i].prompt_log_probs) check_prompt(&sampled[i], j, &policies[p]), seen++;
            }
        }
        assert_int_equal(seen, 3);
        for (size_t s = 0; s < 3; s++) same_response("with the prompt's", &j->responses[s], &wanted->responses[s]);
        rein_generator_close(g);
        free_job(beside), free_job(j), free_job(wanted);
    }
}

/* ---- min_tokens */

static void test_min_tokens(void **state) {
    (void)state;
    int32_t ends[VOCABULARY / 2];
    for (size_t i = 0; i < COUNT(ends); i++) ends[i] = (int32_t)(2 * i); /* half of the vocabulary ends a completion */
    for (int greedy = 0; greedy < 2; greedy++)
        for (size_t least = 0; least < 9; least += 4) {
            job *j = new_job(20, 8, 12, least);
            j->r.sampling.end_ids = ends, j->r.sampling.n_end_ids = COUNT(ends);
            j->r.sampling.min_tokens = least, j->r.sampling.greedy = greedy;
            run_job(j, &base, NULL, NULL);
            for (size_t s = 0; s < 8; s++) {
                const response *r = &j->responses[s];
                assert_true(r->n > least || r->n == 12);
                for (size_t t = 0; t < r->n && t < least; t++) {
                    assert_true(r->ids[t] % 2 == 1);
                    if (!greedy) assert_true(r->sampler_log_probs[t] > r->log_probs[t]);
                }
                for (size_t t = least; t < r->n && !greedy; t++) assert_true(r->sampler_log_probs[t] == r->log_probs[t]);
            }
            free_job(j);
        }
}

/* Where every token ends a completion, nothing can be sampled before min_tokens: the request fails, and others do not. */
static void test_nothing_left(void **state) {
    (void)state;
    int32_t ends[VOCABULARY];
    for (size_t i = 0; i < COUNT(ends); i++) ends[i] = (int32_t)i;
    rein_generator *g = open_with((rein_generator_options){0});
    job *j = new_job(20, 1, 12, 0);
    const rein_sampled *sampled;
    size_t count, number_of;
    rein_error err = {0};
    j->r.sampling.end_ids = ends, j->r.sampling.n_end_ids = COUNT(ends), j->r.sampling.min_tokens = 1;
    OK(rein_generator_add(&number_of, g, &j->r, &error_));
    OK(rein_generator_step(&sampled, &count, g, &error_));
    assert_int_equal(count, 0);
    assert_int_equal(rein_generator_failed(&number_of, g, &err), REIN_ERANGE);
    rein_generator_close(g);
    free_job(j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_batch),        cmocka_unit_test(test_wrong_policies), cmocka_unit_test(test_turns),
        cmocka_unit_test(test_what_is_shared),   cmocka_unit_test(test_little_room),    cmocka_unit_test(test_same_prompt_at_once),
        cmocka_unit_test(test_prompt_log_probs), cmocka_unit_test(test_min_tokens),     cmocka_unit_test(test_nothing_left)};
    const struct CMUnitTest experts[] = {cmocka_unit_test(test_one_batch), cmocka_unit_test(test_turns)};
    return cmocka_run_group_tests_name("generator, several policies", tests, open_all, close_all) +
           cmocka_run_group_tests_name("generator, several policies with experts", experts, open_experts, close_all);
}
