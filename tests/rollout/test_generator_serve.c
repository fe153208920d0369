/* test_generator_serve.c - what a server needs of a generator: requests that are cancelled or fail leave the others as they are, prompts are
 * computed in pieces, samples wait for their turn, and memory has a ceiling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rollout/generator.h"
#include "rollout/generator_fixture.h"

static policy p;

static int open_all(void **state) {
    (void)state;
    p = policy_of(14, 0.9);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    close_policy(&p);
    return 0;
}

static rein_generator *open_with(rein_generator_options options, const policy *of) {
    rein_generator *g;
    options.exec.threads = options.exec.threads ? options.exec.threads : 2;
    OK(rein_generator_open(&g, &of->p, NULL, &options, &error_));
    return g;
}

/* Requests take turns, with one reserved place. */
static rein_generator *open_turns(rein_generator_options options, size_t beside, const policy *of) {
    rein_generator *g = open_with(options, of);
    OK(rein_generator_take_turns(g, 1, beside, &error_));
    return g;
}

static size_t add(rein_generator *g, const job *j) {
    size_t number_of = 0;
    OK(rein_generator_add(&number_of, g, &j->r, &error_));
    return number_of;
}

/* A step; jobs are by number. Returns the tokens. */
static size_t step(rein_generator *g, job *const *jobs) {
    const rein_sampled *sampled;
    size_t count;
    OK(rein_generator_step(&sampled, &count, g, &error_));
    for (size_t i = 0; i < count; i++) write_down(jobs[sampled[i].request], &sampled[i]);
    return count;
}

static void clear(job *j) { memset(j->responses, 0, j->r.samples * sizeof *j->responses); }

static void same_job(const char *what, const job *got, const job *wanted) {
    for (size_t s = 0; s < got->r.samples; s++) same_response(what, &got->responses[s], &wanted->responses[s]);
}

static size_t blocks_in_use(const rein_generator *g) {
    return g->store->parts[REIN_KEYS_ALL].blocks - g->store->parts[REIN_KEYS_ALL].n_free;
}

/* Two jobs with the same prompt and address. */
static void make_pair(job *pair[2], size_t n, size_t samples, size_t max_tokens, size_t index) {
    for (int i = 0; i < 2; i++) pair[i] = new_job(n, samples, max_tokens, index);
    memcpy(pair[1]->prompt, pair[0]->prompt, sizeof pair[0]->prompt);
}

static void free_pair(job *pair[2]) { free_job(pair[0]), free_job(pair[1]); }

/* ---- cancelling */

/* Whenever another request is cancelled, before its first step, in its prompt, or at work, nothing changes for this one. */
static void test_cancel(void **state) {
    (void)state;
    enum { STEPS = 14 };
    job *pair[2], *other = new_job(150, 3, 40, 1);
    make_pair(pair, 70, 2, 12, 0);
    run_job(pair[1], &p, NULL, NULL);
    for (size_t at = 0; at < STEPS; at++)
        for (int first = 0; first < 4; first++) {
            const rein_generator_options options = {.max_prompt_tokens = 40, .max_active = first < 2 ? 0 : 3};
            rein_generator *g = first < 2 ? open_with(options, &p) : open_turns(options, 30, &p);
            job *jobs[] = {first % 2 ? other : pair[0], first % 2 ? pair[0] : other};
            clear(pair[0]), clear(other);
            add(g, jobs[0]), add(g, jobs[1]);
            for (size_t i = 0; rein_generator_unfinished(g) || i <= at; i++) {
                if (i == at) {
                    rein_generator_cancel(g, first % 2 ? 0 : 1);
                    assert_true(rein_generator_unfinished(g) == (pair[0]->responses[0].finish == REIN_FINISH_NONE ||
                                                                 pair[0]->responses[1].finish == REIN_FINISH_NONE));
                }
                step(g, jobs);
            }
            same_job("beside one that was cancelled", pair[0], pair[1]);
            assert_true(other->responses[0].finish == REIN_FINISH_NONE);
            step(g, jobs);
            assert_true(blocks_in_use(g) == 0 && g->promised == 0);
            rein_generator_close(g);
        }
    free_pair(pair), free_job(other);
}

/* Memory comes back at once, also in the middle of a prompt; what is not there is ignored. */
static void test_cancel_frees(void **state) {
    (void)state;
    rein_activation_cache *cache;
    OK(rein_activation_cache_open(&cache, 1 << 20, 0, &error_));
    rein_generator *g =
        open_with((rein_generator_options){.max_prompt_tokens = 64, .max_active = 2, .activation_cache = cache}, &p);
    job *jobs[] = {new_job(200, 3, 5, 0), new_job(3, 3, 5, 1), new_job(3, 1, 5, 2)};
    for (size_t i = 0; i < 3; i++) add(g, jobs[i]);
    assert_true(step(g, jobs) == 0 && step(g, jobs) == 0); /* 128 of 200 tokens */
    assert_true(blocks_in_use(g) == 4 && rein_activation_cache_tokens(cache) == 128);
    rein_generator_cancel(g, 0);
    assert_true(blocks_in_use(g) == 0 && rein_activation_cache_tokens(cache) == 0 && rein_generator_unfinished(g) == 2);
    for (int i = 0; i < 3; i++) assert_true(step(g, jobs) == 2);
    rein_generator_cancel(g, 1); /* its third sample has not begun */
    assert_true(blocks_in_use(g) == 0 && rein_activation_cache_tokens(cache) == 0 && rein_generator_unfinished(g) == 1);
    rein_generator_cancel(g, 0), rein_generator_cancel(g, 1), rein_generator_cancel(g, 77);
    for (int i = 0; i < 5; i++) assert_true(step(g, jobs) == 1);
    assert_true(rein_generator_unfinished(g) == 0);
    rein_generator_cancel(g, 2); /* finished: its activations are still wanted */
    assert_true(step(g, jobs) == 0 && rein_activation_cache_tokens(cache) > 0);
    rein_generator_close(g);
    rein_activation_cache_close(cache);
    for (size_t i = 0; i < 3; i++) free_job(jobs[i]);
}

/* ---- failures */

/* One token of the vocabulary has an embedding that is not a number: the request that has it in its prompt fails. */
static void test_one_fails(void **state) {
    (void)state;
    policy broken = open_policy(&(kind){.family = "llama", .architecture = "LlamaForCausalLM", .head_dim = 10, .trains = 1}, 1);
    rein_parameter parameters[64];
    const size_t n = rein_parameter_count(broken.model, NULL);
    float *gradient = some(rein_parameter_floats(broken.model, NULL), sizeof *gradient);
    assert_true(n <= 64);
    rein_parameters(parameters, broken.model, NULL, gradient);
    assert_non_null(strstr(parameters[0].name, "embed"));
    for (size_t i = 0; i < parameters[0].columns; i++) parameters[0].value[599 * parameters[0].columns + i] = (float)NAN;
    OK(rein_parameters_changed(broken.model, NULL, &error_));
    for (size_t piece = 40; piece <= 4096; piece += 4056) {
        job *pair[2], *jobs[3], *bad = new_job(100, 3, 10, 1), *after = new_job(80, 2, 6, 2);
        make_pair(pair, 70, 2, 12, 0);
        for (int i = 0; i < 2; i++) /* neither in the prompt nor sampled */
            for (size_t t = 0; t < 70; t++) pair[i]->prompt[t] %= 599;
        for (size_t t = 0; t < 100; t++) bad->prompt[t] %= 599, after->prompt[t] %= 599;
        bad->prompt[10] = 599;
        run_job(pair[1], &broken, NULL, NULL);
        jobs[0] = pair[0], jobs[1] = bad, jobs[2] = after;
        const rein_generator_options options = {.max_prompt_tokens = piece, .max_active = piece == 40 ? 0 : 4};
        rein_generator *g = piece == 40 ? open_with(options, &broken) : open_turns(options, 64, &broken);
        for (size_t i = 0; i < 3; i++) clear(jobs[i]), add(g, jobs[i]);
        while (rein_generator_unfinished(g)) step(g, jobs);
        same_job("beside one that failed", pair[0], pair[1]);
        assert_true(bad->responses[0].n == 0 && after->responses[1].finish == REIN_FINISH_MAX_TOKENS);
        size_t number_of = 77;
        rein_error err = {0};
        assert_int_equal(rein_generator_failed(&number_of, g, &err), REIN_ERANGE);
        assert_true(number_of == 1);
        reports(&err, REIN_ERANGE, "the log-probability of token 0 of request 1 is not a finite number");
        assert_int_equal(rein_generator_failed(&number_of, g, NULL), REIN_OK);
        size_t again = add(g, pair[0]); /* with blocks that had NaNs in them */
        job *later[] = {NULL, NULL, NULL, pair[0]};
        clear(pair[0]);
        assert_true(again == 3);
        while (rein_generator_unfinished(g)) step(g, later);
        same_job("after one that failed", pair[0], pair[1]);
        rein_generator_close(g);
        free_pair(pair), free_job(bad), free_job(after);
    }
    free(gradient);
    close_policy(&broken);
}

/* ---- pieces of prompts */

/* The same bits for any size, with and without an activation cache; and tokens of others come between the pieces. */
static void test_pieces(void **state) {
    (void)state;
    const size_t sizes[] = {1, 7, 63, 64, 65, 199, 200, 201};
    job *pair[2], *other = new_job(2, 1, 250, 1), *jobs[2];
    make_pair(pair, 200, 3, 9, 0);
    run_job(pair[1], &p, NULL, NULL);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        rein_activation_cache *cache;
        OK(rein_activation_cache_open(&cache, 1 << 22, 0, &error_));
        rein_generator *g =
            open_with((rein_generator_options){.max_prompt_tokens = sizes[i], .activation_cache = i % 2 ? cache : NULL}, &p);
        jobs[0] = other, jobs[1] = pair[0];
        clear(other), clear(pair[0]);
        add(g, other);
        while (other->responses[0].n == 0) step(g, jobs);
        add(g, pair[0]);
        size_t steps = 0;
        for (; pair[0]->responses[0].n == 0; steps++) assert_true(step(g, jobs) == 1u + 3 * pair[0]->responses[0].n);
        assert_true(steps == (200 + sizes[i] - 1) / sizes[i] && other->responses[0].n == 1 + steps);
        while (rein_generator_unfinished(g)) step(g, jobs);
        same_job("in pieces", pair[0], pair[1]);
        assert_true(i % 2 == 0 || rein_activation_cache_tokens(cache) == 2 + 249 + 200 + 3 * 8);
        rein_generator_close(g);
        rein_activation_cache_close(cache);
    }
    free_pair(pair), free_job(other);
}

/* ---- no more samples at a time than max_active, and no fewer while others wait */
static void test_max_active(void **state) {
    (void)state;
    job *pairs[3][2], *jobs[3];
    make_pair(pairs[0], 5, 8, 6, 0), make_pair(pairs[1], 70, 1, 4, 1), make_pair(pairs[2], 3, 7, 5, 2);
    for (size_t i = 0; i < 3; i++)
        jobs[i] = pairs[i][0], run_job(pairs[i][1], &p, NULL, &(rein_generator_options){.max_active = 100});
    for (size_t most = 1; most <= 18; most++)
        for (size_t piece = 2; piece <= 4096; piece += 4094) {
            const rein_generator_options options = {.max_active = most <= 9 ? most : most - 8, .max_prompt_tokens = piece};
            rein_generator *g = most <= 9 ? open_with(options, &p) : open_turns(options, piece, &p);
            for (size_t i = 0; i < 3; i++) clear(jobs[i]), add(g, jobs[i]);
            size_t tokens = 0;
            while (rein_generator_unfinished(g)) {
                const size_t count = step(g, jobs), left = 8 * 6 + 4 + 7 * 5 - tokens;
                assert_true(count <= most);
                if (piece == 4096 && most <= 9 && left > 6 * most) assert_true(count == most);
                tokens += count;
            }
            for (size_t i = 0; i < 3; i++) same_job("few at a time", jobs[i], pairs[i][1]);
            rein_generator_close(g);
        }
    for (size_t i = 0; i < 3; i++) free_pair(pairs[i]);
}

/* ---- turns */

/* A request with few tokens does not wait for one with many samples, and two with many advance alike. */
static void test_turns(void **state) {
    (void)state;
    enum { PLACES = 8, STEPS = 12 };
    job *big[2], *small[2], *other[2], *jobs[3];
    rein_error err = {0};
    make_pair(big, 70, 60, STEPS, 0), make_pair(small, 5, 1, 5, 1), make_pair(other, 66, 40, STEPS, 2);
    run_job(big[1], &p, NULL, NULL), run_job(small[1], &p, NULL, NULL), run_job(other[1], &p, NULL, NULL);
    jobs[0] = big[0], jobs[1] = small[0], jobs[2] = other[0];
    rein_generator *g = open_turns((rein_generator_options){.max_active = PLACES}, 4096, &p);
    for (size_t i = 0; i < 3; i++) clear(jobs[i]);
    add(g, big[0]);
    for (int i = 0; i < 3; i++) assert_true(step(g, jobs) == PLACES - 1);
    add(g, small[0]);
    for (int i = 0; i < 5; i++) assert_true(step(g, jobs) == PLACES);
    assert_true(small[0]->responses[0].finish != REIN_FINISH_NONE); /* it began at once */
    add(g, other[0]);
    for (size_t i = 0; i < 8 * STEPS; i++) assert_true(step(g, jobs) >= PLACES - 1);
    size_t done[2] = {0};
    for (size_t s = 0; s < 60; s++) done[0] += big[0]->responses[s].finish != REIN_FINISH_NONE;
    for (size_t s = 0; s < 40; s++) done[1] += other[0]->responses[s].finish != REIN_FINISH_NONE;
    assert_true(done[0] >= 28 && done[1] >= 20 && done[0] + done[1] <= 8 * PLACES + PLACES);
    while (rein_generator_unfinished(g)) step(g, jobs);
    for (size_t i = 0; i < 3; i++) same_job("in turns", jobs[i], i == 0 ? big[1] : i == 1 ? small[1] : other[1]);
    assert_int_equal(rein_generator_take_turns(g, 1, 100, &err), REIN_EINVAL);
    rein_generator_close(g);
    g = open_with((rein_generator_options){.max_active = PLACES, .max_prompt_tokens = 100}, &p);
    assert_int_equal(rein_generator_take_turns(g, 0, 100, &err), REIN_EINVAL);
    assert_int_equal(rein_generator_take_turns(g, PLACES, 100, &err), REIN_EINVAL);
    assert_int_equal(rein_generator_take_turns(g, 1, 101, &err), REIN_EINVAL);
    assert_int_equal(rein_generator_take_turns(g, 1, 0, &err), REIN_EINVAL);
    rein_generator_close(g);
    free_pair(big), free_pair(small), free_pair(other);
}

/* Pieces are small while others are at work, and large alone. */
static void test_pieces_beside(void **state) {
    (void)state;
    job *pair[2], *other = new_job(2, 1, 250, 1), *jobs[2];
    make_pair(pair, 200, 1, 9, 0);
    run_job(pair[1], &p, NULL, NULL);
    for (int alone = 0; alone < 2; alone++) {
        rein_generator *g = open_turns((rein_generator_options){.max_prompt_tokens = 100}, 40, &p);
        size_t steps = 0;
        jobs[!alone] = pair[0], jobs[alone] = other;
        clear(other), clear(pair[0]);
        if (!alone) add(g, other), step(g, jobs);
        add(g, pair[0]);
        for (; pair[0]->responses[0].n == 0; steps++) step(g, jobs);
        assert_true(steps == (alone ? 2 : 5));
        while (rein_generator_unfinished(g)) step(g, jobs);
        same_job("in pieces beside others", pair[0], pair[1]);
        rein_generator_close(g);
    }
    free_pair(pair), free_job(other);
}

/* Each prompt that waits adds a piece to a step, but no more than one step may have. With no place left, none adds. */
static void test_pieces_of_many(void **state) {
    (void)state;
    enum { MANY = 6 };
    static const struct {
        size_t places, waiting, first, second; /* and how many prompts of 100 tokens are complete after a step, and after two */
    } cases[] = {{10, 1, 0, 0}, {10, 2, 0, 1}, {10, 6, 0, 1}, {3, 6, 0, 1}, {2, 6, 0, 0}};
    job *other = new_job(2, 1, 250, MANY), *jobs[MANY + 1] = {other}, *wanted[MANY];
    for (size_t i = 0; i < MANY; i++) {
        job *pair[2];
        make_pair(pair, 100, 1, 20, i);
        jobs[i + 1] = pair[0], wanted[i] = pair[1];
        run_job(wanted[i], &p, NULL, NULL);
    }
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        rein_generator *g = open_turns((rein_generator_options){.max_prompt_tokens = 99, .max_active = cases[c].places}, 40, &p);
        for (size_t i = 0; i <= MANY; i++) clear(jobs[i]);
        add(g, other), step(g, jobs);
        for (size_t i = 0; i < cases[c].waiting; i++) add(g, jobs[i + 1]);
        assert_int_equal(step(g, jobs), 1 + cases[c].first);
        assert_int_equal(step(g, jobs), 1 + cases[c].second);
        while (rein_generator_unfinished(g)) step(g, jobs);
        for (size_t i = 0; i < cases[c].waiting; i++) same_job("one of many", jobs[i + 1], wanted[i]);
        rein_generator_close(g);
    }
    for (size_t i = 0; i < MANY; i++) free_job(jobs[i + 1]), free_job(wanted[i]);
    free_job(other);
}

/* Requests that hold their prompts and wait for the memory of a sample do not wait for each other for ever. */
static void test_turns_memory(void **state) {
    (void)state;
    rein_memory *memory;
    rein_generator *g;
    job *pairs[5][2], *jobs[5];
    OK(rein_memory_open(&memory, 1 << 30, &error_));
    rein_generator_options with = {.max_active = 4, .max_prompt_tokens = 300, .exec = {2, REIN_ISA_BEST}, .memory = memory};
    OK(rein_generator_open(&g, &p.p, NULL, &with, &error_));
    const size_t of_step = rein_memory_used(memory), block = rein_key_bytes(g, 1, 1);
    rein_generator_close(g);
    rein_memory_close(memory);
    for (size_t i = 0; i < 5; i++) {
        make_pair(pairs[i], i % 2 ? 130 : 70, i == 2 ? 1 : 4, i == 3 ? 70 : 20, i);
        jobs[i] = pairs[i][0];
        run_job(pairs[i][1], &p, NULL, NULL);
    }
    for (size_t blocks = 5; blocks <= 12; blocks++)
        for (int cache = 0; cache < 2; cache++) {
            OK(rein_memory_open(&memory, of_step + blocks * block, &error_));
            with.memory = memory, with.prefix_cache = cache ? 3 * block : 0;
            OK(rein_generator_open(&g, &p.p, NULL, &with, &error_));
            OK(rein_generator_take_turns(g, 1, 100, &error_));
            for (size_t i = 0; i < 5; i++) clear(jobs[i]), add(g, jobs[i]);
            for (size_t steps = 0; rein_generator_unfinished(g); steps++) {
                size_t number_of;
                step(g, jobs);
                assert_true(steps < 2000 && blocks_in_use(g) <= blocks);
                OK(rein_generator_failed(&number_of, g, &error_));
            }
            for (size_t i = 0; i < 5; i++) same_job("in turns, with little memory", jobs[i], pairs[i][1]);
            rein_generator_close(g);
            assert_true(rein_memory_used(memory) == 0);
            rein_memory_close(memory);
        }
    for (size_t i = 0; i < 5; i++) free_pair(pairs[i]);
}

/* ---- memory */
static void test_memory(void **state) {
    (void)state;
    const rein_generator_options few = {.max_active = 4, .max_prompt_tokens = 100, .exec = {2, REIN_ISA_BEST}};
    rein_memory *memory;
    rein_generator *g;
    rein_error err = {0};
    size_t number_of;
    job *pairs[3][2], *jobs[3];
    assert_int_equal(rein_memory_open(&memory, 0, &err), REIN_EINVAL);
    OK(rein_memory_open(&memory, 1000, &error_));
    rein_generator_options with = few;
    with.memory = memory;
    assert_int_equal(rein_generator_open(&g, &p.p, NULL, &with, &err), REIN_ENOMEM);
    reports(&err, REIN_ENOMEM, "a step of 4 samples (max_active) and 100 tokens of prompts (max_prompt_tokens) needs");
    assert_true(g == NULL && rein_memory_used(memory) == 0);
    rein_memory_close(memory);

    OK(rein_memory_open(&memory, 1 << 30, &error_)); /* what a step and a block need */
    with.memory = memory;
    OK(rein_generator_open(&g, &p.p, NULL, &with, &error_));
    const size_t of_step = rein_memory_used(memory), block = rein_key_bytes(g, 1, 1);
    assert_true(of_step > 0 && of_step == rein_arena_bytes(&g->arena));
    rein_generator_close(g);
    assert_true(rein_memory_used(memory) == 0);
    rein_memory_close(memory);

    OK(rein_memory_open(&memory, of_step + 5 * block, &error_));
    with.memory = memory;
    OK(rein_generator_open(&g, &p.p, NULL, &with, &error_));
    make_pair(pairs[0], 65, 3, 70, 0), make_pair(pairs[1], 3, 2, 64, 1), make_pair(pairs[2], 200, 1, 64, 2);
    job *too_long = new_job(129, 1, 129, 3); /* 3 + 3 blocks */
    assert_int_equal(rein_generator_add(&number_of, g, &too_long->r, &err), REIN_ENOMEM);
    reports(&err, REIN_ENOMEM, "max_tokens is 129: with a prompt of 129 tokens the keys of a sample may need");
    assert_string_equal(err.field, "max_tokens");
    for (size_t i = 0; i < 3; i++) {
        jobs[i] = pairs[i][0];
        run_job(pairs[i][1], &p, NULL, NULL);
        clear(jobs[i]), add(g, jobs[i]);
    }
    size_t most = 0;
    while (rein_generator_unfinished(g)) {
        const size_t count = step(g, jobs);
        if (count > most) most = count;
        assert_true(rein_memory_used(memory) <= of_step + 5 * block && blocks_in_use(g) <= 5);
        assert_true(rein_arena_bytes(&g->arena) == of_step);
        OK(rein_generator_failed(&number_of, g, &error_));
    }
    assert_true(most == 2); /* a prompt of 2 blocks leaves room for one sample of 2 blocks; one of 1 block for both its samples */
    for (size_t i = 0; i < 3; i++) same_job("with little memory", jobs[i], pairs[i][1]);
    assert_true(!rein_memory_take(memory, block) && rein_memory_take(memory, 0));
    rein_generator_close(g);
    assert_true(rein_memory_used(memory) == 0 && rein_memory_limit(memory) == of_step + 5 * block);
    rein_memory_close(memory);
    for (size_t i = 0; i < 3; i++) free_pair(pairs[i]);
    free_job(too_long);
}

/* A step with the log-probs of a prompt is larger than was charged at first. A request that fitted before then fails when its turn comes,
 * and the one after it is served. */
static void test_memory_that_shrinks(void **state) {
    (void)state;
    kind wide = PLAIN;
    wide.vocabulary = 20000;
    policy w = open_policy(&wide, 1);
    rein_generator_options with = {.max_active = 4, .max_prompt_tokens = 100, .exec = {2, REIN_ISA_BEST}};
    rein_error err = {0};
    size_t number_of = 99;
    job *pair[2], *jobs[3] = {new_job(100, 1, 10, 0), new_job(1, 1, 200, 1), NULL}; /* 3 blocks, 5 blocks */
    make_pair(pair, 3, 1, 8, 2);
    jobs[0]->r.prompt_log_probs = 1, jobs[2] = pair[0];
    run_job(pair[1], &w, NULL, NULL);
    OK(rein_memory_open(&with.memory, 1 << 30, &error_));
    rein_generator *g = open_with(with, &w);
    const size_t at_first = g->step_bytes, block = rein_key_bytes(g, 1, 1);
    add(g, jobs[0]);
    step(g, jobs);
    const size_t later = g->step_bytes;
    assert_true(later > at_first + 2 * block);
    rein_generator_close(g), rein_memory_close(with.memory), clear(jobs[0]);

    OK(rein_memory_open(&with.memory, later + 4 * block, &error_));
    g = open_with(with, &w);
    for (size_t i = 0; i < 3; i++) add(g, jobs[i]);
    for (size_t i = 0; rein_generator_unfinished(g); i++) {
        assert_true(i < 1000);
        step(g, jobs);
    }
    assert_int_equal(rein_generator_failed(&number_of, g, &err), REIN_ENOMEM);
    assert_int_equal(number_of, 1);
    reports(&err, REIN_ENOMEM, "request 1 cannot begin: the keys of a sample may need");
    OK(rein_generator_failed(&number_of, g, &error_));
    assert_true(jobs[0]->responses[0].n == 10 && jobs[1]->responses[0].n == 0);
    same_job("after one that failed", pair[0], pair[1]);
    rein_generator_close(g), rein_memory_close(with.memory), close_policy(&w);
    free_pair(pair), free_job(jobs[0]), free_job(jobs[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel),        cmocka_unit_test(test_cancel_frees),       cmocka_unit_test(test_one_fails),
        cmocka_unit_test(test_pieces),        cmocka_unit_test(test_max_active),         cmocka_unit_test(test_turns),
        cmocka_unit_test(test_pieces_beside), cmocka_unit_test(test_pieces_of_many),     cmocka_unit_test(test_turns_memory),
        cmocka_unit_test(test_memory),        cmocka_unit_test(test_memory_that_shrinks)};
    return cmocka_run_group_tests_name("generator, for a server", tests, open_all, close_all);
}
