/* test_trainer_ranks.c - a trainer on several ranks, which are threads here: the bits of one rank, and a rank whose weights differ is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/trainer.h"
#include "train/trainer_fixture.h"

#include "support/thread_ranks.h"

static const rein_adamw ADAMW = {0.05, 0.9, 0.99, 1e-8, 0.01, 1};

enum { STEPS = 3 };

static char model_a[300], model_b[300]; /* made once: in_folder is for one thread */

/* What the ranks train, and what each of them has in the end. */
typedef struct job {
    int full, early, extra, flip, /* -1: none */
        flip_moment; /* 1 + a rank; early: sums are made as soon as they are complete; extra: a second pass; flip: a bit of this rank */
    size_t shards;
    const rein_groups *groups, *more;
    const rein_options *objective;
    rein_isa isa[MOST_RANKS];
    rein_status status[MOST_RANKS];
    rein_error err[MOST_RANKS];
    float *values[MOST_RANKS], *first, *second, *advantages[MOST_RANKS], *log_probs[MOST_RANKS];
    rein_pass_result pass[MOST_RANKS];
    double norm[MOST_RANKS];
    size_t floats, tokens, buffers; /* buffers: most that were in use, on rank 0 */
} job;

static void flip_a_bit(rein_trainer *t) {
    unsigned char *byte = (unsigned char *)&t->values[t->floats / 2];
    *byte ^= 1;
}

static void flip_a_moment(rein_trainer *t) {
    size_t begins[MOST_RANKS + 1];
    rein_adamw_parts(begins, t->floats, rein_ranks_size(t->ranks));
    const size_t rank = rein_ranks_rank(t->ranks);
    unsigned char *byte = (unsigned char *)&t->second[(begins[rank] + begins[rank + 1]) / 2];
    *byte ^= 1;
}

static rein_status one_step(job *j, rein_trainer *t, size_t rank, const rein_policy *reference, int step, rein_error *err) {
    const rein_pass_options o = {
        .objective = j->objective, .reference = reference, .policy_step = -1, .advantages = j->advantages[rank]};
    const rein_pass_options plain = {.policy_step = -1};
    rein_pass_result second;
    t->last_pass = j->early && !j->extra;
    rein_status status = rein_trainer_forward_backward(&j->pass[rank], t, j->groups, &o, err);
    if (!status && j->extra) status = rein_trainer_forward_backward(&second, t, j->more, &plain, err);
    size_t used = 0;
    for (size_t s = 0; s < t->options.shards; s++) used += t->taken[s];
    if (!rank) j->buffers = used;
    if (step == 1 && j->flip == (int)rank) flip_a_bit(t);
    if (step == 1 && j->flip_moment == (int)rank + 1) flip_a_moment(t);
    return status ? status : rein_trainer_optim_step(&j->norm[rank], t, &ADAMW, err);
}

static void train(rein_ranks *ranks, void *user) {
    job *j = user;
    const size_t rank = rein_ranks_rank(ranks);
    rein_error *err = &j->err[rank];
    subject s = {0}, other = {0};
    const rein_model_options how = {.train = j->full};
    const rein_lora_options lora = {.rank = 3, .alpha = 5, .seed = 4};
    rein_trainer *t = NULL;
    rein_status status = rein_model_open(&s.model, model_a, &how, err);
    if (!status && !j->full) status = rein_adapter_new(&s.adapter, s.model, &lora, err);
    if (!status) status = rein_model_open(&other.model, model_b, NULL, err);
    const rein_policy reference = {other.model, NULL, 1};
    const rein_trainer_options options = {.temperature = 1, .shards = j->shards, .exec = {1, j->isa[rank]}};
    if (!status) status = rein_trainer_open(&t, s.model, s.adapter, &options, err);
    if (!status) rein_trainer_set_ranks(t, ranks);
    for (int i = 0; i < STEPS && !status; i++) status = one_step(j, t, rank, &reference, i, err);
    if (!status) status = rein_trainer_collect(t, err);
    if (!status) status = rein_trainer_log_probs(j->log_probs[rank], NULL, t, NULL, j->groups, err);
    if (!status) {
        if (!rank) j->floats = t->floats;
        j->values[rank] = floats(t->floats);
        memcpy(j->values[rank], t->values, t->floats * sizeof(float));
    }
    if (!status && !rank) {
        j->first = floats(t->floats), j->second = floats(t->floats);
        memcpy(j->first, t->first, t->floats * sizeof(float));
        memcpy(j->second, t->second, t->floats * sizeof(float));
    }
    j->status[rank] = status;
    rein_trainer_close(t);
    close_subject(&s), close_subject(&other);
}

static job run_job(const job *like, size_t ranks) {
    job j = *like;
    for (size_t r = 0; r < ranks; r++) j.advantages[r] = floats(j.tokens), j.log_probs[r] = floats(j.tokens);
    run_ranks(ranks, train, &j);
    return j;
}

static void free_job(job *j) {
    for (size_t r = 0; r < MOST_RANKS; r++) free(j->values[r]), free(j->advantages[r]), free(j->log_probs[r]);
    free(j->first), free(j->second);
}

static void expect_same(const job *one, const job *j, size_t ranks, const char *title) {
    for (size_t r = 0; r < ranks; r++) {
        if (j->status[r]) fail_msg("%s, %zu ranks: rank %zu: %s", title, ranks, r, j->err[r].message);
        if (memcmp(one->values[0], j->values[r], j->floats * sizeof(float)) != 0)
            fail_msg("%s, %zu ranks: rank %zu has other weights", title, ranks, r);
        assert_memory_equal(one->advantages[0], j->advantages[r], j->tokens * sizeof(float));
        assert_memory_equal(one->log_probs[0], j->log_probs[r], j->tokens * sizeof(float));
        assert_memory_equal(&one->pass[0].loss, &j->pass[r].loss, sizeof(rein_loss));
        assert_memory_equal(&one->pass[0].max_gap, &j->pass[r].max_gap, sizeof(double));
        assert_memory_equal(&one->norm[0], &j->norm[r], sizeof(double));
    }
    if (memcmp(one->first, j->first, j->floats * sizeof(float)) || memcmp(one->second, j->second, j->floats * sizeof(float)))
        fail_msg("%s, %zu ranks: other moments", title, ranks);
}

static const char *const OBJECTIVES[] = {"preset=grpo",
                                         "preset=k2 tau=0.3 token_budget=4 budget_penalty_coef=0.1 kl_penalty_coef=0.2",
                                         "preset=dapo overlong_max=8 overlong_cushion=4 entropy_coef=0.1 kl_reward_coef=0.2",
                                         "preset=gspo kl_penalty_coef=0.3 kl_scope=group",
                                         "preset=grpo kl_estimator=exact kl_loss_coef=0.3",
                                         "preset=grpo kl_reward_exact=0.1"};

static void test_same_bits(void **state) {
    (void)state;
    const size_t shards[] = {16, 8, 5, 1}, numbers[] = {2, 3, 4, 8};
    rein_groups groups = make_groups(11, 12), more = make_groups(4, 77);
    subject s = open_subject("a", 0);
    record(&groups, &s.p, 0.1);
    size_t different = 0;
    job *seen = NULL;
    for (int full = 0; full < 2; full++)
        for (size_t k = 0; k < COUNT(shards); k++)
            for (int extra = 0; extra < 2; extra++) {
                const char *objective = OBJECTIVES[(k + (size_t)extra + (size_t)full) % COUNT(OBJECTIVES)];
                const job like = {.full = full,
                                  .extra = extra,
                                  .flip = -1,
                                  .shards = shards[k],
                                  .groups = &groups,
                                  .more = &more,
                                  .objective = options_of(objective),
                                  .tokens = tokens_of(&groups)};
                job one = run_job(&like, 1), early = like;
                expect_same(&one, &one, 1, objective);
                for (size_t i = 0; i < COUNT(numbers); i++) {
                    job several = run_job(&like, numbers[i]);
                    expect_same(&one, &several, numbers[i], objective);
                    free_job(&several);
                }
                early.early = 1;
                for (size_t n = 1; n <= 4; n++) {
                    job several = run_job(&early, n);
                    expect_same(&one, &several, n, "early sums");
                    if (n == 1 && !extra) assert_true(several.buffers <= 4 && (several.buffers <= 3 || shards[k] == 16));
                    free_job(&several);
                }
                /* The bits depend on the number of shards: otherwise the comparisons above would show nothing. */
                if (seen) different += memcmp(seen->norm, one.norm, sizeof(double)) != 0;
                else seen = some(1, sizeof *seen), *seen = one;
                if (seen->values[0] != one.values[0]) free_job(&one);
            }
    assert_true(different >= 4);
    free_job(seen), free(seen);
    rein_groups_free(&groups), rein_groups_free(&more), close_subject(&s);
}

/* Ranks with different instruction sets. */
static void test_instruction_sets(void **state) {
    (void)state;
    rein_groups groups = make_groups(6, 12);
    const job like = {
        .flip = -1, .groups = &groups, .objective = options_of("preset=art aggregation=token-mean"), .tokens = tokens_of(&groups)};
    job mixed = like, one = run_job(&like, 1);
    mixed.isa[1] = REIN_ISA_REF;
    if (rein_isa_available(REIN_ISA_AVX2)) mixed.isa[2] = REIN_ISA_AVX2;
    mixed = run_job(&mixed, 3);
    expect_same(&one, &mixed, 3, "other instruction sets");
    free_job(&one), free_job(&mixed), rein_groups_free(&groups);
}

/* One bit of one weight of one rank is found before the step is made. */
static void test_flipped_bit(void **state) {
    (void)state;
    rein_groups groups = make_groups(6, 12);
    for (int full = 0; full < 2; full++)
        for (int flip = 0; flip < 3; flip++) {
            job j = {.full = full,
                     .flip = flip,
                     .groups = &groups,
                     .objective = options_of("preset=art aggregation=token-mean"),
                     .tokens = tokens_of(&groups)};
            char message[100];
            snprintf(message, sizeof message, "the weights of rank %d differ from those of the other ranks", flip);
            j = run_job(&j, 3);
            for (size_t r = 0; r < 3; r++) {
                assert_true(j.status[r] == REIN_ESYSTEM);
                assert_string_equal(j.err[r].message, message);
            }
            free_job(&j);
        }
    rein_groups_free(&groups);
}

/* The moments are in one rank's memory alone: a bit of them that changes between two steps is found. So few parameters are one chunk, which the last
 * rank has. */
static void test_flipped_moment(void **state) {
    (void)state;
    rein_groups groups = make_groups(6, 12);
    for (int full = 0; full < 2; full++) {
        job j = {.full = full,
                 .flip = -1,
                 .flip_moment = 1 + 2,
                 .groups = &groups,
                 .objective = options_of("preset=art aggregation=token-mean"),
                 .tokens = tokens_of(&groups)};
        j = run_job(&j, 3);
        for (size_t r = 0; r < 3; r++) {
            assert_true(j.status[r] == REIN_ESYSTEM);
            assert_string_equal(
                j.err[r].message,
                "rank 2: the moments of the optimizer have changed since its last step: this machine's memory is at fault");
        }
        free_job(&j);
    }
    rein_groups_free(&groups);
}

/* A step of the optimizer alone, in which one number of one rank is wrong. */
enum { NUMBERS = 70000 }; /* five chunks of the optimizer */

typedef struct lone_step {
    size_t wrong, at; /* the rank, and the element */
    rein_status status[MOST_RANKS];
    rein_error err[MOST_RANKS];
} lone_step;

static void step_alone(rein_ranks *ranks, void *user) {
    lone_step *l = user;
    const size_t rank = rein_ranks_rank(ranks), sizes[] = {20001, 7, NUMBERS - 20008};
    float *arrays = calloc(4 * NUMBERS, sizeof *arrays), *values = arrays, *gradient = arrays + NUMBERS;
    rein_parameter parameters[3];
    int64_t steps = 0;
    for (size_t i = 0; i < NUMBERS; i++)
        values[i] = (float)(i % 97) / 50 - 1, gradient[i] = (float)(i % 31) / 30 - 0.5F, arrays[3 * NUMBERS + i] = 0.1F;
    for (size_t i = 0, at = 0; i < 3; at += sizes[i++])
        parameters[i] = (rein_parameter){"p", values + at, gradient + at, 1, sizes[i], sizes[i], i != 1};
    if (rank == l->wrong) values[l->at] += 0.25F;
    l->status[rank] = rein_adamw_step_shared(NULL, values, arrays + 2 * NUMBERS, arrays + 3 * NUMBERS, &steps, parameters, 3,
                                             &ADAMW, NULL, ranks, &l->err[rank]);
    free(arrays);
}

static void expect_wrong(size_t ranks, size_t wrong, size_t at, const char *message) {
    lone_step l = {.wrong = wrong, .at = at};
    run_ranks(ranks, step_alone, &l);
    for (size_t r = 0; r < ranks; r++) {
        if (l.status[r] != (message ? REIN_ESYSTEM : REIN_OK)) fail_msg("%zu ranks, rank %zu: %s", ranks, r, l.err[r].message);
        if (message) assert_string_equal(l.err[r].message, message);
    }
}

/* What a rank computes wrongly in its own part is found by two others; a rank that finds fault alone is wrong itself. */
static void test_wrong_step(void **state) {
    (void)state;
    for (size_t n = 2; n <= 5; n++) {
        expect_wrong(n, SIZE_MAX, 0, NULL);
        size_t begins[MOST_RANKS + 1];
        rein_adamw_parts(begins, NUMBERS, n);
        for (size_t wrong = 0; wrong < n; wrong++) {
            char message[200], pair[200];
            snprintf(message, sizeof message,
                     "rank %zu computes wrongly: two others get another step of the optimizer from the same numbers", wrong);
            snprintf(
                pair, sizeof pair,
                "rank 1 and rank 0 compute another step of the optimizer from the same numbers, and too few ranks agree to tell "
                "which is right");
            expect_wrong(n, wrong, begins[wrong] + 5, n == 2 ? pair : message);
            expect_wrong(n, wrong, begins[(wrong + n - 1) % n] + 3000, n == 2 ? pair : message); /* of the rank that it checks */
        }
    }
}

/* A gradient that is not finite is reported by all, wherever it is. */
static void test_refused(void **state) {
    (void)state;
    rein_groups groups = make_groups(6, 12);
    groups.groups[5].trajectories[0].reward = 1e300;
    job j = {.flip = -1, .groups = &groups, .objective = options_of("preset=none"), .tokens = tokens_of(&groups)};
    job one = run_job(&j, 1), several = run_job(&j, 3);
    assert_true(one.status[0] != REIN_OK);
    for (size_t r = 0; r < 3; r++) assert_true(several.status[r] == one.status[0]);
    free_job(&one), free_job(&several), rein_groups_free(&groups);
}

static int start(void **state) {
    const int status = make_folder_of_models(state);
    snprintf(model_a, sizeof model_a, "%s", in_folder("a"));
    snprintf(model_b, sizeof model_b, "%s", in_folder("b"));
    return status;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),      cmocka_unit_test(test_instruction_sets), cmocka_unit_test(test_flipped_bit),
        cmocka_unit_test(test_flipped_moment), cmocka_unit_test(test_wrong_step),       cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, start, remove_folder);
}
