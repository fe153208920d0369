/* test_trainer_scores.c - a trainer of a policy with a score head: rewards and values of tokens, the gradient of a reward model's loss against
 * one computed pair by pair, the same bits for threads, shards, sums that are made early and ranks, and after saving and loading. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/trainer.h"
#include "train/trainer_fixture.h"

#include "support/thread_ranks.h"

static const rein_adamw ADAMW = {0.02, 0.9, 0.99, 1e-8, 0.01, 1};
enum { PAIRS = 5, STEPS = 3 };

static char model_a[300]; /* in_folder is for one thread */

static rein_status open_scored(subject *s, int full, rein_error *err) {
    const rein_lora_options lora = {.rank = 3, .alpha = 5, .seed = 4, .score = REIN_SCORE_RANDOM};
    const rein_model_options options = {.train = full, .score = full ? REIN_SCORE_RANDOM : REIN_SCORE_NONE, .score_seed = 3};
    *s = (subject){0};
    rein_status status = rein_model_open(&s->model, model_a, &options, err);
    if (!status && !full) status = rein_adapter_new(&s->adapter, s->model, &lora, err);
    s->p = (rein_policy){s->model, s->adapter, 1};
    return status;
}

static subject scored(int full) {
    subject s;
    OK(open_scored(&s, full, &error_));
    return s;
}

/* Pairs with a common prompt, whose last token alone is in the mask. */
static rein_groups make_pairs(void) {
    rein_groups groups = {0};
    stream = 12;
    for (size_t g = 0; g < PAIRS; g++) {
        int32_t prompt[6];
        const size_t n = 1 + below(6);
        for (size_t i = 0; i < n; i++) prompt[i] = (int32_t)below(TINY_VOCABULARY);
        rein_trajectory *t = group_of(&groups, 2);
        for (size_t k = 0; k < 2; k++) {
            add_history(&t[k], prompt, n, 1 + below(8));
            memset(t[k].histories[0].mask, 0, t[k].histories[0].n - 1);
        }
    }
    return groups;
}

static const double MARGINS[PAIRS] = {0, 0.5, 1, 0, 2};

static rein_reward_pass pass_of(double rewards[2 * PAIRS]) {
    return (rein_reward_pass){.center_rewards_coefficient = 0.1, .margins = MARGINS, .rewards = rewards};
}

/* ---- rewards and values */

static void test_scores(void **state) {
    (void)state;
    subject s = scored(0);
    rein_trainer *t = open_trainer(&s, NULL);
    rein_groups groups = make_groups(3, 5);
    const size_t n = rein_groups_tokens(&groups);
    float *rewards = floats(n), *values = floats(n);
    OK(rein_trainer_scores(rewards, t, NULL, &groups, 0, &error_));
    OK(rein_trainer_scores(values, t, &s.p, &groups, 1, &error_));
    size_t at = 0, compared = 0;
    for (size_t g = 0; g < groups.n; g++)
        for (size_t k = 0; k < groups.groups[g].n; k++)
            for (size_t i = 0; i < groups.groups[g].trajectories[k].n_histories; i++) {
                const rein_history *h = &groups.groups[g].trajectories[k].histories[i];
                for (size_t j = 0; j < h->n; j++, at++) {
                    if (!h->mask[j]) assert_true(rewards[at] == 0 && values[at] == 0);
                    if (j && h->mask[j] && h->mask[j - 1]) assert_true(values[at] == rewards[at - 1]), compared++;
                }
            }
    assert_true(compared > 20);
    free(rewards), free(values);
    rein_groups_free(&groups);
    rein_trainer_close(t);
    close_subject(&s);
}

/* ---- the loss and its gradient */

/* Scores and gradient of a pair from two sequences that share nothing. */
static void pair_by_pair(double *loss, float *gradient, const subject *s, const rein_groups *groups) {
    rein_activations *a;
    const rein_score_options keep = {.keep = 1};
    OK(rein_activations_open(&a, NULL, &error_));
    *loss = 0;
    for (size_t g = 0; g < groups->n; g++) {
        double reward[2], slope[2], one;
        for (int round = 0; round < 2; round++)
            for (size_t k = 0; k < 2; k++) {
                const rein_history *h = groups->groups[g].trajectories[k].histories;
                const size_t offsets[] = {0, h->n};
                const rein_tokens tokens = {1, offsets, NULL, h->ids, h->mask, NULL};
                float *scores = floats(h->n), *dscores = floats(h->n);
                OK(rein_scores(scores, a, &s->p, &tokens, &keep, &error_));
                reward[k] = (double)scores[h->n - 1];
                if (round) {
                    dscores[h->n - 1] = (float)(slope[k] / PAIRS);
                    OK(rein_scores_backward(gradient, a, dscores, &error_));
                }
                free(scores), free(dscores);
                if (!round && k)
                    OK(rein_reward_loss(&one, &slope[0], &slope[1], NULL, &reward[0], &reward[1], &MARGINS[g], 1, 0.1, &error_));
            }
        *loss += one / PAIRS;
    }
    rein_activations_close(a);
}

static void test_gradient(void **state) {
    (void)state;
    for (int full = 0; full < 2; full++) {
        subject s = scored(full);
        rein_groups groups = make_pairs();
        rein_trainer *t = open_trainer(&s, &(rein_trainer_options){.shards = 1});
        double rewards[2 * PAIRS], loss, norm = 0, error = 0;
        rein_reward_pass pass = pass_of(rewards);
        float *wanted = floats(t->floats);
        OK(rein_trainer_reward_pass(&pass, t, &groups, &error_));
        pair_by_pair(&loss, wanted, &s, &groups);
        assert_true(fabs(pass.loss - loss) < 1e-6 && loss > 0.3);
        assert_int_equal(pass.nothing_to_train, 0);
        for (size_t i = 0; i < t->floats; i++) {
            const double x = (double)rein_trainer_shard(t, 0)[i], y = (double)wanted[i];
            norm += y * y, error += (x - y) * (x - y);
        }
        if (!(norm > 0 && error <= 1e-10 * norm)) fail_msg("full %d: off by %g of %g", full, sqrt(error), sqrt(norm));
        free(wanted);
        rein_groups_free(&groups);
        rein_trainer_close(t);
        close_subject(&s);
    }
}

/* ---- one answer */

typedef struct job {
    int full, early, resume;
    size_t shards;
    int threads;
    const rein_groups *groups;
    rein_status status[MOST_RANKS];
    rein_error err[MOST_RANKS];
    double loss[MOST_RANKS], first_loss;
    float *values;
    size_t floats;
} job;

static rein_status some_steps(job *j, rein_trainer *t, size_t rank, int from, int to, rein_error *err) {
    double rewards[2 * PAIRS];
    rein_reward_pass pass = pass_of(rewards);
    rein_status status = REIN_OK;
    for (int i = from; i < to && !status; i++) {
        t->last_pass = j->early;
        status = rein_trainer_reward_pass(&pass, t, j->groups, err);
        if (!status) status = rein_trainer_optim_step(NULL, t, &ADAMW, err);
        j->loss[rank] = pass.loss;
        if (!i && !rank) j->first_loss = pass.loss;
    }
    return status;
}

/* The trainer and its policy, as if the process had ended. */
static rein_status open_again(rein_trainer **t, subject *s, const rein_trainer_options *o, const job *j, rein_error *err) {
    static char saved[300];
    snprintf(saved, sizeof saved, "%s", sub_folder(j->full ? "saved-full" : "saved"));
    rein_status status = rein_trainer_save(*t, saved, err);
    rein_trainer_close(*t);
    *t = NULL;
    close_subject(s);
    if (!status) status = open_scored(s, j->full, err);
    if (!status) status = rein_trainer_open(t, s->model, s->adapter, o, err);
    return status ? status : rein_trainer_load(*t, saved, err);
}

static void train(rein_ranks *ranks, void *user) {
    job *j = user;
    const size_t rank = rein_ranks_rank(ranks);
    rein_error *err = &j->err[rank];
    subject s;
    rein_trainer *t = NULL;
    const rein_trainer_options options = {.temperature = 1, .shards = j->shards, .exec = {j->threads, REIN_ISA_BEST}};
    rein_status status = open_scored(&s, j->full, err);
    if (!status) status = rein_trainer_open(&t, s.model, s.adapter, &options, err);
    if (!status) rein_trainer_set_ranks(t, ranks);
    if (!status) status = some_steps(j, t, rank, 0, 1, err);
    if (!status && j->resume) status = open_again(&t, &s, &options, j, err);
    if (!status) status = some_steps(j, t, rank, 1, STEPS, err);
    if (!status && !rank) {
        j->floats = t->floats;
        j->values = floats(t->floats);
        memcpy(j->values, t->values, t->floats * sizeof(float));
    }
    j->status[rank] = status;
    rein_trainer_close(t);
    close_subject(&s);
}

static void run(job *j, size_t n_ranks) {
    if (n_ranks == 1) train(NULL, j);
    else run_ranks(n_ranks, train, j);
    for (size_t r = 0; r < n_ranks; r++)
        if (j->status[r]) fail_msg("rank %zu: %s", r, j->err[r].message);
    assert_true(j->loss[n_ranks - 1] < j->first_loss);
}

static void test_one_answer(void **state) {
    (void)state;
    const struct {
        int early, resume, threads;
        size_t ranks;
    } cases[] = {{0, 0, 3, 1}, {1, 0, 1, 1}, {0, 1, 1, 1}, {0, 0, 1, 2}, {0, 0, 1, 3}};
    rein_groups groups = make_pairs();
    for (int full = 0; full < 2; full++) {
        job first = {.full = full, .shards = 4, .threads = 1, .groups = &groups};
        run(&first, 1);
        for (size_t i = 0; i < COUNT(cases); i++) {
            job other = {.full = full,
                         .shards = 4,
                         .early = cases[i].early,
                         .resume = cases[i].resume,
                         .threads = cases[i].threads,
                         .groups = &groups};
            run(&other, cases[i].ranks);
            assert_true(other.loss[cases[i].ranks - 1] == first.loss[0]);
            assert_int_equal(other.floats, first.floats);
            if (memcmp(other.values, first.values, first.floats * sizeof(float)) != 0) fail_msg("full %d, case %zu", full, i);
            free(other.values);
        }
        free(first.values);
    }
    rein_groups_free(&groups);
}

/* A trainer without a score head does not load one with it. */
static void test_another_policy(void **state) {
    (void)state;
    subject with = scored(0), without = open_subject("a", 0);
    rein_trainer *a = open_trainer(&with, NULL), *b = open_trainer(&without, NULL);
    const char *folder = sub_folder("another");
    OK(rein_trainer_save(a, folder, &error_));
    REFUSED(rein_trainer_load(b, folder, &error_), "its adapter has a score head, and the one that trains has none");
    rein_groups groups = make_pairs();
    double rewards[2 * PAIRS];
    rein_reward_pass pass = pass_of(rewards);
    REFUSED(rein_trainer_reward_pass(&pass, b, &groups, &error_), "has no score head");
    rein_groups_free(&groups);
    rein_trainer_close(a), rein_trainer_close(b);
    close_subject(&with), close_subject(&without);
}

static int begin(void **state) {
    const int status = make_folder_of_models(state);
    snprintf(model_a, sizeof model_a, "%s", in_folder("a"));
    return status;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scores), cmocka_unit_test(test_gradient),
                                       cmocka_unit_test(test_one_answer), cmocka_unit_test(test_another_policy)};
    return cmocka_run_group_tests(tests, begin, remove_folder);
}
