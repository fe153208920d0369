/* test_generator_window.c - keys of layers with a window: the generator stores those that a later token sees, and no others, and what it samples has
 * the bits of whole sequences, in which all keys are there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rollout/generator.h"
#include "rollout/generator_forward.h"

/* Windows in every layer, or in one of two, with one rotary embedding or two. */
enum { WINDOWED = 3 };
static policy windowed(size_t i, int window, int trains) {
    static const char *const families[WINDOWED][2] = {
        {"mistral", "MistralForCausalLM"}, {"gemma2", "Gemma2ForCausalLM"}, {"gemma3_text", "Gemma3ForCausalLM"}};
    return open_policy(
        &(kind){.family = families[i][0], .architecture = families[i][1], .head_dim = 10, .window = window, .trains = trains}, 0.8);
}

static const int windows[] = {1, 2, 20, 64, 65, 130};

static size_t in_use(const rein_generator *g, rein_key_part part) {
    return g->store->parts[part].blocks - g->store->parts[part].n_free;
}

static size_t blocks_of(size_t tokens) { return (tokens + REIN_KEY_BLOCK - 1) / REIN_KEY_BLOCK; }

/* ---- how much is stored */

/* A long completion: as many blocks as its window touches, however long it is; and of the prompt its last window. */
static void test_flat(void **state) {
    (void)state;
    for (size_t i = 0; i < WINDOWED; i++)
        for (size_t w = 0; w < COUNT(windows); w++) {
            policy p = windowed(i, windows[w], 0);
            const size_t window = (size_t)windows[w], most = rein_key_blocks_touched(window), n_prompt = 9;
            const int other_layers = i > 0;
            job *j = new_job(n_prompt, 1, POSITIONS - n_prompt, 0);
            rein_generator *g;
            size_t number_of, count = 1;
            const rein_sampled *sampled;
            OK(rein_generator_open(&g, &p.p, NULL, NULL, &error_));
            OK(rein_generator_add(&number_of, g, &j->r, &error_));
            for (size_t n = 0; n < 280; n++) {
                OK(rein_generator_step(&sampled, &count, g, &error_));
                assert_int_equal(count, 1);
                write_down(j, sampled);
                assert_true(in_use(g, REIN_KEYS_WINDOW) <= 1 + most);
                assert_int_equal(in_use(g, REIN_KEYS_ALL), other_layers ? 1 + blocks_of(n) : 0);
            }
            assert_true(g->store->parts[REIN_KEYS_WINDOW].blocks <= 1 + most); /* all that were ever taken */
            rein_generator_close(g);
            check_forward(&j, 1, &p, NULL);
            free_job(j), close_policy(&p);
        }
}

/* A long prompt in pieces: a piece and the window before it. Its samples share the window before its end. */
static void test_prompt(void **state) {
    (void)state;
    enum { PIECE = 40, PROMPT = 270, SAMPLES = 3 };
    for (size_t w = 0; w < COUNT(windows); w++) {
        policy p = windowed(w % WINDOWED, windows[w], 0);
        const size_t window = (size_t)windows[w];
        job *j = new_job(PROMPT, SAMPLES, 20, 0);
        rein_generator *g;
        size_t number_of, count = 0;
        const rein_sampled *sampled;
        OK(rein_generator_open(&g, &p.p, NULL, &(rein_generator_options){.max_prompt_tokens = PIECE}, &error_));
        OK(rein_generator_add(&number_of, g, &j->r, &error_));
        for (size_t step = 0; rein_generator_unfinished(g); step++) {
            OK(rein_generator_step(&sampled, &count, g, &error_));
            for (size_t i = 0; i < count; i++) write_down(j, &sampled[i]);
            if (!count) assert_true(in_use(g, REIN_KEYS_WINDOW) <= rein_key_blocks_touched(window + PIECE));
            else assert_true(in_use(g, REIN_KEYS_WINDOW) <= rein_key_blocks_touched(window) + SAMPLES);
        }
        rein_generator_close(g);
        check_forward(&j, 1, &p, NULL);
        free_job(j), close_policy(&p);
    }
}

/* What is promised of an account is enough: the blocks in use never need more, and a long completion fits where all its keys would not. */
static void test_account(void **state) {
    (void)state;
    for (size_t i = 0; i < WINDOWED; i++) {
        policy p = windowed(i, 20, 0);
        rein_generator_options with = {.max_active = 4, .max_prompt_tokens = 30};
        rein_generator *g;
        OK(rein_memory_open(&with.memory, 1 << 30, &error_));
        OK(rein_generator_open(&g, &p.p, NULL, &with, &error_));
        const size_t of_step = g->step_bytes, room = rein_key_bytes(g, 10, 5);
        rein_generator_close(g), rein_memory_close(with.memory);
        OK(rein_memory_open(&with.memory, of_step + room, &error_));
        OK(rein_generator_open(&g, &p.p, NULL, &with, &error_));
        job *jobs[] = {new_job(150, 1, 140, 0), new_job(3, 2, 290, 1), new_job(70, 3, 30, 2)};
        for (size_t k = 0; k < 3; k++) OK(rein_generator_add(&(size_t){0}, g, &jobs[k]->r, &error_));
        for (size_t steps = 0; rein_generator_unfinished(g); steps++) {
            const rein_sampled *sampled;
            size_t count;
            OK(rein_generator_step(&sampled, &count, g, &error_));
            for (size_t k = 0; k < count; k++) write_down(jobs[sampled[k].request], &sampled[k]);
            assert_true(steps < 3000 && g->promised <= g->charged && g->charged <= room);
            assert_true(rein_key_bytes(g, in_use(g, REIN_KEYS_ALL), in_use(g, REIN_KEYS_WINDOW)) <= g->promised);
        }
        OK(rein_generator_failed(&(size_t){0}, g, &error_));
        OK(rein_generator_step(&(const rein_sampled *){0}, &(size_t){0}, g, &error_));
        assert_true(g->promised == 0 && in_use(g, REIN_KEYS_ALL) == 0 && in_use(g, REIN_KEYS_WINDOW) == 0);
        rein_generator_close(g), rein_memory_close(with.memory);
        for (size_t k = 0; k < 3; k++) check_forward(&jobs[k], 1, &p, NULL), free_job(jobs[k]);
        close_policy(&p);
    }
}

/* ---- one answer */

/* Prompts of different lengths that enter at different times, in pieces, in turns, with few places, with several threads; each as a sequence
 * of its own and in a tree. */
static void test_whatever_the_batch(void **state) {
    (void)state;
    const rein_generator_options options[] = {{0},
                                              {.max_prompt_tokens = 30},
                                              {.max_active = 2, .exec = {2, REIN_ISA_BEST}},
                                              {.max_prompt_tokens = 7, .exec = {1, REIN_ISA_REF}}};
    for (size_t i = 0; i < WINDOWED; i++)
        for (size_t w = 0; w < COUNT(windows); w++) {
            policy p = windowed(i, windows[w], 0);
            job *jobs[] = {new_job(1, 2, 100, 0), new_job(65, 1, 9, 1), new_job(140, 3, 70, 2), new_job(129, 1, 30, 3)};
            for (size_t k = 0; k < COUNT(jobs); k++) jobs[k]->enters = below(9);
            run_jobs(jobs, COUNT(jobs), &p, NULL, &options[(i + w) % COUNT(options)]);
            check_forward(jobs, COUNT(jobs), &p, NULL);
            for (size_t k = 0; k < COUNT(jobs); k++) free_job(jobs[k]);
            close_policy(&p);
        }
}

/* ---- the prefix cache */

typedef struct conversation {
    const policy *p;
    rein_generator *g;
    int32_t ids[POSITIONS];
    size_t n, cached;
} conversation;

/* A turn: `more` new tokens and a completion. Compared with the whole sequence. Returns the tokens that were found. */
static size_t turn(conversation *c, size_t more, size_t index) {
    job *j = new_job(1, 1, 9, index);
    for (size_t i = 0; i < more; i++) c->ids[c->n++] = (int32_t)below(VOCABULARY);
    memcpy(j->prompt, c->ids, c->n * sizeof *c->ids);
    j->r.n_prompt = c->n;
    OK(rein_generator_add(&(size_t){0}, c->g, &j->r, &error_));
    while (rein_generator_unfinished(c->g)) {
        const rein_sampled *sampled;
        size_t count;
        OK(rein_generator_step(&sampled, &count, c->g, &error_));
        for (size_t i = 0; i < count; i++) write_down(j, &sampled[i]), c->cached = sampled[i].cached_tokens;
    }
    check_forward(&j, 1, c->p, NULL);
    memcpy(c->ids + c->n, j->responses[0].ids, j->responses[0].n * sizeof *c->ids);
    c->n += j->responses[0].n;
    free_job(j);
    return c->cached;
}

static conversation begin(const policy *p, size_t bytes, size_t piece) {
    conversation c = {.p = p};
    OK(rein_generator_open(&c.g, &p->p, NULL, &(rein_generator_options){.prefix_cache = bytes, .max_prompt_tokens = piece},
                           &error_));
    return c;
}

/* A conversation finds all that was computed. */
static void test_turns(void **state) {
    (void)state;
    for (size_t i = 0; i < WINDOWED; i++)
        for (size_t w = 0; w < COUNT(windows); w++) {
            policy p = windowed(i, windows[w], 0);
            conversation c = begin(&p, 64 << 20, 50);
            for (size_t t = 0, before = 0; t < 5; before = c.n, t++)
                assert_int_equal(turn(&c, t ? 3 + below(40) : 100, t), t ? before - 1 : 0);
            rein_generator_close(c.g), close_policy(&p);
        }
}

/* Prompts that leave a known one far before its end, where its windows are not stored: the first computes everything and leaves the window
 * before that place, the next ones find it. */
static void test_branch(void **state) {
    (void)state;
    enum { BRANCH = 70 };
    for (size_t i = 0; i < WINDOWED; i++)
        for (size_t w = 0; w < 3; w++) {
            policy p = windowed(i, windows[w], 0);
            conversation c = begin(&p, 64 << 20, 50);
            assert_int_equal(turn(&c, 230, 0), 0);
            for (size_t t = 0; t < 3; t++) {
                c.n = BRANCH;
                const size_t found = turn(&c, 150 + t, 9 + t);
                if (t) assert_true(found >= BRANCH && found <= BRANCH + 2); /* a new token may be an old one by chance */
                else assert_int_equal(found, windows[w] == 1 ? 64 : 0);     /* a window of one key needs none before it */
            }
            rein_generator_close(c.g), close_policy(&p);
        }
}

/* A prompt that is asked again while the cache has only the window before its end. */
static void test_same_prompt(void **state) {
    (void)state;
    policy p = windowed(2, 20, 0);
    conversation c = begin(&p, 64 << 20, 50);
    assert_int_equal(turn(&c, 200, 0), 0);
    const size_t held = in_use(c.g, REIN_KEYS_WINDOW);
    assert_true(held <= 2 * rein_key_blocks_touched(20 + REIN_KEY_BLOCK)); /* before the end of the prompt and of the completion */
    assert_int_equal(in_use(c.g, REIN_KEYS_ALL), 4 + 1);
    c.n = 200;
    assert_int_equal(turn(&c, 0, 1), 199);
    while (rein_prefix_evict(&c.g->prefixes)) continue;
    OK(rein_generator_step(&(const rein_sampled *){0}, &(size_t){0}, c.g, &error_));
    while (rein_prefix_evict(&c.g->prefixes)) continue;
    assert_true(c.g->prefixes.bytes == 0 && c.g->prefixes.nodes == 0);
    assert_true(in_use(c.g, REIN_KEYS_ALL) == 0 && in_use(c.g, REIN_KEYS_WINDOW) == 0);
    rein_generator_close(c.g), close_policy(&p);
}

/* However small the cache is: the same bits, and its bound holds. */
static void test_little_room(void **state) {
    (void)state;
    for (size_t i = 0; i < WINDOWED; i++)
        for (size_t blocks = 1; blocks < 7; blocks++) {
            policy p = windowed(i, 20, 0);
            rein_generator *any;
            OK(rein_generator_open(&any, &p.p, NULL, NULL, &error_));
            const size_t bytes = blocks * rein_key_bytes(any, 1, 1);
            rein_generator_close(any);
            conversation c = begin(&p, bytes, 64);
            for (size_t t = 0; t < 12; t++) {
                if (t % 4 == 0) c.n = t == 8 ? 30 : 0;
                turn(&c, 20 + below(40), t);
                assert_true(c.g->prefixes.bytes <= bytes && c.g->prefixes.nodes <= bytes / sizeof(rein_prefix));
            }
            assert_true(c.g->prefixes.bytes > 0);
            rein_generator_close(c.g), close_policy(&p);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_flat),        cmocka_unit_test(test_prompt),
                                       cmocka_unit_test(test_account),     cmocka_unit_test(test_whatever_the_batch),
                                       cmocka_unit_test(test_turns),       cmocka_unit_test(test_branch),
                                       cmocka_unit_test(test_same_prompt), cmocka_unit_test(test_little_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
