/* test_generator_ends.c - how responses end, what is refused, and what happens when there is no memory or no number.
 *
 * Memory fails at each place in turn: malloc, calloc and realloc through the wrappers of allocation.h, aligned_alloc (blocks of keys) and
 * mmap (the arena) by the definitions below, which the library is linked with. */
#define _DEFAULT_SOURCE /* syscall */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "model/tokenizer_fixture.h"
#include "rollout/generator.h"
#include "rollout/generator_fixture.h"

#include "support/allocation.h"

void *aligned_alloc(size_t alignment, size_t size) {
    void *memory;
    return fails_now() || posix_memalign(&memory, alignment, size) ? NULL : memory;
}

void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) {
    if (flags & MAP_ANONYMOUS && fails_now()) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, address, length, protection, flags, file, offset);
}

static policy p;
static rein_tokenizer *tokenizer;

static int open_all(void **state) {
    (void)state;
    p = open_policy(&(kind){"qwen2", "Qwen2ForCausalLM", 10, 0, ADAPTER_OF_HEAD, 0, 0, 0, 0, 0, 0}, 1);
    return rein_tokenizer_open(&tokenizer, FIXTURES "gpt2", NULL) != REIN_OK;
}

static int close_all(void **state) {
    (void)state;
    close_policy(&p);
    rein_tokenizer_close(tokenizer);
    return 0;
}

/* ---- how responses end */
static void test_lengths(void **state) {
    (void)state;
    const size_t max_tokens[] = {1, 2, 63, 64, 65, 100};
    for (size_t i = 0; i < COUNT(max_tokens); i++) {
        job *j = new_job(3, 2, max_tokens[i], i);
        run_job(j, &p, NULL, NULL);
        for (size_t s = 0; s < 2; s++) {
            assert_int_equal(j->responses[s].n, max_tokens[i]);
            assert_int_equal(j->responses[s].finish, REIN_FINISH_MAX_TOKENS);
            assert_int_equal(j->responses[s].length, 0); /* no tokenizer, no text */
        }
        free_job(j);
    }
}

/* The last position of the model is sampled, not computed. */
static void test_full(void **state) {
    (void)state;
    const size_t prompts[] = {POSITIONS - 1, POSITIONS - 2, POSITIONS - 70, 1};
    for (size_t i = 0; i < COUNT(prompts); i++) {
        job *j = new_job(prompts[i], 1, SIZE_MAX, i);
        run_job(j, &p, NULL, NULL);
        assert_int_equal(j->responses[0].n, POSITIONS - prompts[i]);
        assert_int_equal(j->responses[0].finish, REIN_FINISH_CONTEXT);
        j->r.sampling.max_tokens = POSITIONS - prompts[i]; /* both at once: it is what was asked for */
        run_job(j, &p, NULL, NULL);
        assert_int_equal(j->responses[0].finish, REIN_FINISH_MAX_TOKENS);
        free_job(j);
    }
}

static void test_end_ids(void **state) {
    (void)state;
    job *j = new_job(5, 3, 40, 0);
    run_job(j, &p, NULL, NULL);
    response before[3];
    memcpy(before, j->responses, sizeof before);
    const int32_t ends[] = {before[0].ids[0], before[1].ids[12], before[2].ids[39]};
    j->r.sampling.end_ids = ends, j->r.sampling.n_end_ids = 3;
    run_job(j, &p, NULL, NULL);
    for (size_t s = 0; s < 3; s++) {
        size_t n = 0; /* up to the first end, which belongs to it */
        while (n < 40 && before[s].ids[n] != ends[0] && before[s].ids[n] != ends[1] && before[s].ids[n] != ends[2]) n++;
        if (n < 40) n++;
        assert_int_equal(j->responses[s].n, n);
        same_tokens("until the end", &j->responses[s], &before[s], n);
        assert_int_equal(j->responses[s].finish, REIN_FINISH_END_TOKEN); /* also where the last token is one: not cut */
    }
    assert_int_equal(j->responses[0].n, 1);
    free_job(j);
}

/* ---- texts */
static void test_texts(void **state) {
    (void)state;
    job *jobs[] = {new_job(5, 3, 50, 0), new_job(70, 2, 30, 1)};
    run_jobs(jobs, 2, &p, tokenizer, NULL);
    for (size_t i = 0; i < 2; i++)
        for (size_t s = 0; s < jobs[i]->r.samples; s++) {
            const response *r = &jobs[i]->responses[s];
            rein_text text = {0};
            OK(rein_tokenizer_decode(&text, tokenizer, r->ids, r->n, 1, &error_));
            assert_int_equal(r->length, text.length);
            assert_memory_equal(r->text, text.data, text.length);
            rein_text_free(&text);
        }
    free_job(jobs[0]), free_job(jobs[1]);
}

/* How many tokens it takes until `stop` is in the text, and where it begins; 0 when it is not. */
static size_t tokens_until(size_t *at, const response *r, const char *stop) {
    rein_stream *decoder;
    rein_text text = {0};
    size_t n = 0;
    OK(rein_stream_open(&decoder, tokenizer, 1, &error_));
    for (const char *found = NULL; !found && n < r->n;) {
        OK(rein_stream_push(&text, decoder, r->ids[n++], &error_));
        found = text.data ? strstr(text.data, stop) : NULL;
        if (found) *at = (size_t)(found - text.data);
        else if (n == r->n) n = SIZE_MAX;
    }
    rein_stream_close(decoder);
    rein_text_free(&text);
    return n == SIZE_MAX ? 0 : n;
}

/* Every stretch of the text of a response as a stop: it ends there, as soon as the stop is whole. */
static void test_stops(void **state) {
    (void)state;
    job *j = new_job(2, 1, 40, 4);
    j->r.sampling.top_log_probs = 2;
    run_job(j, &p, tokenizer, NULL);
    const response whole = j->responses[0];
    size_t tried = 0;
    for (size_t from = 0; from + 4 < whole.length; from += quick() ? 5 : 1) {
        char stop[5] = {0};
        size_t at = 0;
        memcpy(stop, whole.text + from, 1 + from % 4);
        if ((stop[0] & 0xC0) == 0x80 || strlen(stop) != 1 + from % 4) continue;
        const size_t n = tokens_until(&at, &whole, stop);
        if (!n) continue; /* it becomes whole at the very end only */
        const char *stops[] = {"never there", stop};
        j->r.sampling.stops = stops, j->r.sampling.n_stops = 2;
        run_job(j, &p, tokenizer, NULL);
        assert_int_equal(j->responses[0].finish, REIN_FINISH_STOP_TEXT);
        assert_int_equal(j->responses[0].n, n);
        same_tokens("until the stop", &j->responses[0], &whole, n);
        assert_int_equal(j->responses[0].length, at);
        assert_memory_equal(j->responses[0].text, whole.text, at);
        tried++;
        /* The token that completes the stop is also the last one, or an end. */
        j->r.sampling.max_tokens = n;
        run_job(j, &p, tokenizer, NULL);
        assert_int_equal(j->responses[0].finish, REIN_FINISH_STOP_TEXT);
        j->r.sampling.end_ids = &whole.ids[n - 1], j->r.sampling.n_end_ids = 1;
        run_job(j, &p, tokenizer, NULL);
        assert_int_equal(j->responses[0].finish, REIN_FINISH_END_TOKEN);
        if (j->responses[0].n == n) assert_int_equal(j->responses[0].length, at);
        j->r.sampling.max_tokens = 40, j->r.sampling.n_end_ids = 0;
    }
    assert_true(tried > 5);
    free_job(j);
}

/* What might have been a stop is given out at the end. */
static void test_held_back(void **state) {
    (void)state;
    job *j = new_job(2, 1, 30, 4);
    run_job(j, &p, tokenizer, NULL);
    const response whole = j->responses[0];
    char stop[MOST_TEXT + 10] = {0};
    memcpy(stop, whole.text, whole.length), strcat(stop, "more");
    const char *stops[] = {stop};
    j->r.sampling.stops = stops, j->r.sampling.n_stops = 1;
    run_job(j, &p, tokenizer, NULL);
    same_response("with a stop that never ends", &j->responses[0], &whole);
    free_job(j);
}

/* A character that never becomes whole is U+FFFD, at the end only: that can be a stop, too. */
static void test_stop_at_the_end(void **state) {
    (void)state;
    const char *stops[] = {"\xEF\xBF\xBD"};
    size_t tried = 0;
    for (size_t index = 0; index < 200; index++) {
        job *j = new_job(1, 1, 1, index);
        run_job(j, &p, tokenizer, NULL);
        const response whole = j->responses[0];
        j->r.sampling.stops = stops, j->r.sampling.n_stops = 1;
        run_job(j, &p, tokenizer, NULL);
        const char *found = strstr(whole.text, stops[0]);
        if (found) {
            assert_int_equal(j->responses[0].finish, REIN_FINISH_STOP_TEXT);
            assert_int_equal(j->responses[0].length, found - whole.text);
            tried++;
        } else same_response("without the stop", &j->responses[0], &whole);
        free_job(j);
    }
    assert_true(tried > 5);
}

/* ---- what is refused, with a word on what would be right */
static void refused(const rein_request *r, rein_generator *g, const char *part) {
    rein_error err = {0};
    size_t number_of = 77;
    assert_int_equal(rein_generator_add(&number_of, g, r, &err), REIN_EINVAL);
    reports(&err, REIN_EINVAL, part);
    assert_int_equal(rein_generator_add(&number_of, g, r, NULL), REIN_EINVAL);
    assert_true(number_of == 77);
}

static void test_refused_requests(void **state) {
    (void)state;
    rein_generator *g;
    const int32_t bad_low[] = {1, 2, -1}, bad_high[] = {VOCABULARY};
    const char *empty[] = {"a", ""}, *stops[] = {"a"};
    job *j = new_job(3, 1, 4, 0);
    const rein_request fine = j->r;
    OK(rein_generator_open(&g, &p.p, NULL, NULL, &error_));
#define REFUSED(change, part)           \
    do {                                \
        rein_request r = fine;          \
        rein_sampling *s = &r.sampling; \
        (void)s;                        \
        change;                         \
        refused(&r, g, part);           \
    } while (0)
    REFUSED(r.n_prompt = 0, "prompt is empty");
    REFUSED(r.n_prompt = POSITIONS, "prompt has 300 tokens: the model has 300 positions");
    REFUSED(r.prompt = bad_low, "prompt[2] is -1: the model's vocabulary is 0 to 599");
    REFUSED((r.prompt = bad_high, r.n_prompt = 1), "prompt[0] is 600");
    REFUSED(r.samples = 0, "samples is 0: it must be between 1 and");
    REFUSED(r.samples = SIZE_MAX, "between 1 and 1048576");
    REFUSED(r.samples = (size_t)1 << 61, "between 1 and 1048576");
    REFUSED(r.address.purpose = (rein_purpose)7, "address.purpose is 7: 0 (training) or 1 (evaluation)");
    REFUSED(r.address.purpose = REIN_PURPOSE_EVALUATION, "address.step is 5: it would have no effect in an evaluation");
    REFUSED(s->top_k = -1, "top_k is -1: it must be 0 (all) or more");
    REFUSED(s->top_p = 0, "top_p is 0: it must be above 0");
    REFUSED(s->top_p = 1.5, "top_p is 1.5");
    REFUSED(s->top_p = (double)NAN, "top_p is nan");
    REFUSED(s->min_p = -0.1, "min_p is -0.1: it must be 0 (all) or more, and below 1");
    REFUSED(s->min_p = 1, "min_p is 1");
    REFUSED(s->min_p = (double)NAN, "min_p is nan");
    REFUSED((s->greedy = 1, s->top_k = 3), "greedy takes the most probable token: top_k, top_p and min_p would have no effect");
    REFUSED((s->greedy = 1, s->top_p = 0.5), "greedy takes the most probable token: top_k, top_p and min_p would have no effect");
    REFUSED((s->greedy = 1, s->min_p = 0.5), "greedy takes the most probable token: top_k, top_p and min_p would have no effect");
    REFUSED(s->max_tokens = 0, "max_tokens is 0: it must be 1 or more");
    REFUSED(s->top_log_probs = VOCABULARY + 1, "top_log_probs is 601: the model has 600 tokens");
    REFUSED((s->end_ids = bad_low, s->n_end_ids = 3), "end_ids[2] is -1: the model's vocabulary is 0 to 599");
    REFUSED((s->end_ids = bad_high, s->n_end_ids = 1), "end_ids[0] is 600");
    REFUSED((s->stops = empty, s->n_stops = 2), "stops[1] is empty");
    REFUSED((s->stops = stops, s->n_stops = 1), "the generator needs a tokenizer");
    /* None of which did it any harm. */
    size_t number_of, count;
    const rein_sampled *sampled;
    OK(rein_generator_add(&number_of, g, &fine, &error_));
    assert_true(number_of == 0);
    OK(rein_generator_step(&sampled, &count, g, &error_));
    assert_true(count == 1 && sampled[0].text && sampled[0].length == 0);
    rein_generator_close(g);
    free_job(j);
}

static void refused_policy(rein_policy policy_of, const rein_generator_options *options, const char *part) {
    rein_error err = {0};
    rein_generator *g = (rein_generator *)&err;
    assert_int_equal(rein_generator_open(&g, &policy_of, NULL, options, &err), REIN_EINVAL);
    assert_null(g);
    reports(&err, REIN_EINVAL, part);
    assert_int_equal(rein_generator_open(&g, &policy_of, NULL, options, NULL), REIN_EINVAL);
}

static void test_refused_policies(void **state) {
    (void)state;
    policy other = open_policy(&PLAIN, 1);
    refused_policy((rein_policy){NULL, NULL, 1}, NULL, "policy.model is NULL");
    refused_policy((rein_policy){other.model, p.adapter, 1}, NULL, "for another model");
    const double temperatures[] = {0, -1, 1e-4, 2e3, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < COUNT(temperatures); i++)
        refused_policy((rein_policy){p.model, p.adapter, temperatures[i]}, NULL,
                       "it must be between 0.001 and 1000; sampling.greedy");
    refused_policy(p.p, &(rein_generator_options){.exec = {.threads = -1}}, "threads is -1");
    refused_policy(p.p, &(rein_generator_options){.exec = {.isa = (rein_isa)9}}, "isa is 9");
    rein_generator_close(NULL);
    close_policy(&other);
}

/* ---- nothing to do, and things left undone */
static void test_idle(void **state) {
    (void)state;
    rein_generator *g;
    const rein_sampled *sampled = (const rein_sampled *)&g;
    size_t count = 5, number_of;
    OK(rein_generator_open(&g, &p.p, tokenizer, NULL, &error_));
    rein_key_store_close(g->store, p.model, 0); /* what others left */
    g->store = rein_key_store_open(p.model, 0);
    rein_generator_close(g);
    OK(rein_generator_open(&g, &p.p, tokenizer, NULL, &error_));
    OK(rein_generator_step(&sampled, &count, g, &error_));
    assert_true(count == 0);
    job *j = new_job(70, 3, 10, 0);
    for (int round = 0; round < 3; round++) { /* it may be used again when all are done */
        OK(rein_generator_add(&number_of, g, &j->r, &error_));
        assert_true(number_of == (size_t)round);
        for (int i = 0; i < 10; i++) {
            OK(rein_generator_step(&sampled, &count, g, &error_));
            assert_true(count == 3 && sampled[0].request == number_of);
        }
        OK(rein_generator_step(&sampled, &count, g, &error_));
        assert_true(count == 0);
        const rein_key_parts *keys = &g->store->parts[REIN_KEYS_ALL];
        assert_true(keys->n_free == keys->blocks && keys->blocks == 2 + 3); /* they come back: two of the prompt, three own */
    }
    OK(rein_generator_add(&number_of, g, &j->r, &error_)); /* closed while at work, and while waiting */
    OK(rein_generator_step(&sampled, &count, g, &error_));
    OK(rein_generator_add(&number_of, g, &j->r, &error_));
    rein_generator_close(g);
    rein_generator *beside;
    OK(rein_generator_open(&g, &p.p, tokenizer, NULL, &error_)); /* what one leaves, only the next one finds */
    OK(rein_generator_open(&beside, &p.p, tokenizer, NULL, &error_));
    const rein_key_parts *first = &g->store->parts[REIN_KEYS_ALL], *second = &beside->store->parts[REIN_KEYS_ALL];
    assert_true(first->blocks == 2 + 3 && first->n_free == first->blocks && second->blocks == 0);
    rein_generator_close(g);
    rein_generator_close(beside);
    free_job(j);
}

/* Everything that a request points at is copied. */
static void test_copied(void **state) {
    (void)state;
    rein_generator *g;
    const rein_sampled *sampled;
    size_t number_of, count, n = 0;
    job *j = new_job(4, 1, 30, 2);
    run_job(j, &p, tokenizer, NULL);
    const response whole = j->responses[0];
    char stop[] = "not there";
    const char *stops[] = {stop};
    int32_t end = whole.ids[9];
    j->r.sampling.stops = stops, j->r.sampling.n_stops = 1;
    j->r.sampling.end_ids = &end, j->r.sampling.n_end_ids = 1;
    OK(rein_generator_open(&g, &p.p, tokenizer, NULL, &error_));
    OK(rein_generator_add(&number_of, g, &j->r, &error_));
    memset(stop, 'x', 8), stops[0] = NULL, end = 0;
    memset(j->prompt, 0, sizeof j->prompt);
    do {
        OK(rein_generator_step(&sampled, &count, g, &error_));
        for (size_t i = 0; i < count; i++) assert_int_equal(sampled[i].id, whole.ids[n++]);
    } while (count);
    assert_true(n <= 10 && whole.ids[n - 1] == whole.ids[9]);
    rein_generator_close(g);
    free_job(j);
}

/* ---- weights that are no numbers */
static void test_not_finite(void **state) {
    (void)state;
    policy broken = open_policy(&(kind){"llama", "LlamaForCausalLM", 10, 0, NO_ADAPTER, 1, 0, 0, 0, 0, 0}, 1);
    for (int way = 0; way < 5; way++) {
        rein_generator *g;
        const rein_sampled *sampled;
        size_t number_of, count = 1;
        rein_error err = {0};
        job *j = new_job(3, 2, 10, 0);
        rein_sampling *s = &j->r.sampling;
        if (way == 1) s->greedy = 1;
        if (way == 2) s->top_k = 5;
        if (way == 3) s->top_p = 0.9;
        if (way == 4) s->min_p = 0.1;
        s->top_log_probs = 3;
        OK(rein_generator_open(&g, &broken.p, tokenizer, NULL, &error_));
        OK(rein_generator_add(&number_of, g, &j->r, &error_));
        OK(rein_generator_step(&sampled, &count, g, &error_));
        assert_true(count == 0 && rein_generator_unfinished(g) == 0);
        assert_int_equal(rein_generator_failed(&number_of, g, &err), REIN_ERANGE);
        reports(&err, REIN_ERANGE, "the log-probability of token 0 of request 0 is not a finite number");
        OK(rein_generator_failed(&number_of, g, &error_));
        const rein_key_parts *keys = &g->store->parts[REIN_KEYS_ALL];
        for (size_t b = 0; b < keys->n_free; b++) /* no NaN stays behind */
            for (size_t f = 0; f < keys->floats; f++) assert_true(isfinite(keys->free[b][f]));
        rein_generator_close(g);
        free_job(j);
    }
    close_policy(&broken);
}

/* ---- no memory */
static rein_status open_and_add(void *context, rein_error *err) {
    job *const *jobs = context;
    rein_generator *g;
    size_t number_of;
    rein_status status = rein_generator_open(&g, &p.p, tokenizer, NULL, err);
    assert_true(status ? g == NULL : g != NULL);
    for (size_t i = 0; i < 2 && !status; i++) status = rein_generator_add(&number_of, g, &jobs[i]->r, err);
    rein_generator_close(g);
    return status;
}

/* A request that could not be copied is not there; the generator still works. */
static void test_failed_add(void **state) {
    (void)state;
    if (!can_fail()) skip();
    rein_generator *g;
    const rein_sampled *sampled;
    size_t number_of = 77, count;
    job *j = new_job(3, 1, 4, 0);
    OK(rein_generator_open(&g, &p.p, tokenizer, NULL, &error_));
    once = 1;
    for (long n = 0; n < 4; n++) {
        left = n;
        assert_int_equal(rein_generator_add(&number_of, g, &j->r, NULL), REIN_ENOMEM);
        assert_true(number_of == 77);
    }
    left = -1;
    OK(rein_generator_add(&number_of, g, &j->r, &error_));
    assert_true(number_of == 0);
    OK(rein_generator_step(&sampled, &count, g, &error_));
    assert_true(count == 1 && sampled[0].request == 0);
    rein_generator_close(g);
    free_job(j);
}

/* The whole life of a generator: the status of each request. Their samples are complete where it is REIN_OK. */
static rein_status whole_life(rein_status of[2], job *const *jobs, rein_error *err) {
    const rein_generator_options options = {.max_active = 3, .exec = {1, REIN_ISA_BEST}, .max_prompt_tokens = 40};
    const rein_sampled *sampled;
    rein_generator *g;
    size_t number_of, count = 1;
    rein_status status = rein_generator_open(&g, &p.p, tokenizer, &options, err), failed;
    for (size_t i = 0; i < 2 && !status; i++) {
        memset(jobs[i]->responses, 0, jobs[i]->r.samples * sizeof *jobs[i]->responses);
        status = rein_generator_add(&number_of, g, &jobs[i]->r, err);
        of[i] = REIN_OK;
    }
    while (!status && rein_generator_unfinished(g)) {
        status = rein_generator_step(&sampled, &count, g, err);
        for (size_t i = 0; i < count && !status; i++) write_down(jobs[sampled[i].request], &sampled[i]);
        while ((failed = rein_generator_failed(&number_of, g, err))) of[number_of] = failed;
    }
    rein_generator_close(g);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    const char *stops[] = {"never there", "nor this"};
    const int32_t end = 3;
    /* Two blocks of prompt, three samples; then one so long that the list of its blocks grows. */
    job *jobs[] = {new_job(65, 3, 4, 0), new_job(1, 1, quick() ? 20 : 262, 1)};
    response wanted[4];
    jobs[0]->r.sampling.top_log_probs = 3, jobs[0]->r.sampling.top_k = 9;
    for (size_t i = 0; i < 2; i++) {
        jobs[i]->r.sampling.stops = stops, jobs[i]->r.sampling.n_stops = 2;
        if (i == 0) jobs[i]->r.sampling.end_ids = &end, jobs[i]->r.sampling.n_end_ids = 1;
    }
    assert_true(fail_each_allocation(open_and_add, jobs) == 1 + 2 * 6); /* a generator; a request and five copies each */
    rein_status of[2];
    assert_int_equal(whole_life(of, jobs, NULL), REIN_OK);
    assert_true(!of[0] && !of[1]);
    memcpy(wanted, jobs[0]->responses, 3 * sizeof *wanted), wanted[3] = jobs[1]->responses[0];
    size_t one_of_two = 0;
    for (once = 0; once < 2; once++) {
        long n = 0;
        for (failures = 1; failures; n++) {
            rein_error err = {0};
            left = n, failures = 0;
            const rein_status status = whole_life(of, jobs, &err);
            left = -1;
            if (status || of[0] || of[1]) {
                if ((status ? status : of[0] ? of[0] : of[1]) != REIN_ENOMEM || !failures || !strstr(err.message, "memory"))
                    fail_msg("allocation %ld fails: status %d, %s", n, (int)status, err.message);
            }
            one_of_two += !status && !of[0] != !of[1];
            for (size_t s = 0; s < 3 && !status && !of[0];
                 s++) /* nothing failed, there was another way, or only the other failed */
                same_response("with less memory", &jobs[0]->responses[s], &wanted[s]);
            if (!status && !of[1]) same_response("with less memory", &jobs[1]->responses[0], &wanted[3]);
        }
        print_message("%ld allocations\n", n - 1);
        assert_true(n > 30);
    }
    assert_true(one_of_two > 10);
    free_job(jobs[0]), free_job(jobs[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lengths),
                                       cmocka_unit_test(test_full),
                                       cmocka_unit_test(test_end_ids),
                                       cmocka_unit_test(test_texts),
                                       cmocka_unit_test(test_stops),
                                       cmocka_unit_test(test_held_back),
                                       cmocka_unit_test(test_stop_at_the_end),
                                       cmocka_unit_test(test_refused_requests),
                                       cmocka_unit_test(test_refused_policies),
                                       cmocka_unit_test(test_idle),
                                       cmocka_unit_test(test_copied),
                                       cmocka_unit_test(test_not_finite),
                                       cmocka_unit_test(test_failed_add),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests_name("generator, ends", tests, open_all, close_all);
}
