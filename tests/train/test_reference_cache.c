/* test_reference_cache.c - log-probs of a reference that are known are those that would be computed, to the bit; what is not known is computed,
 * and nothing else; it holds no more than it may. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "train/reference_cache.h"
#include "train/trainer_fixture.h"

#include "support/allocation.h"

enum { PLENTY = 1 << 20 };

static subject policy_a;
static rein_trainer *trainer;

/* As the trainer computes them without a cache. */
static float *fresh(const rein_policy *policy, const rein_groups *groups) {
    float *log_probs = floats(tokens_of(groups));
    OK(rein_trainer_log_probs(log_probs, NULL, trainer, policy, groups, &error_));
    return log_probs;
}

/* Asks the cache; the answer must be right. Returns how many tokens it computed. */
static size_t asked(rein_reference_cache *cache, const rein_policy *policy, int64_t identity, const rein_groups *groups) {
    const size_t n = tokens_of(groups);
    const rein_reference_cache_counts before = rein_reference_cache_count(cache);
    float *right = fresh(policy, groups), *log_probs = floats(n);
    memset(log_probs, 0x7f, n * sizeof *log_probs);
    OK(rein_reference_cache_log_probs(log_probs, cache, trainer, policy, identity, groups, &error_));
    assert_memory_equal(log_probs, right, n * sizeof *right);
    free(right), free(log_probs);
    const rein_reference_cache_counts after = rein_reference_cache_count(cache);
    assert_int_equal(after.computed - before.computed + after.known - before.known, n);
    return after.computed - before.computed;
}

static size_t tokens_of_trajectory(const rein_trajectory *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->n_histories; i++) n += t->histories[i].n;
    return n;
}

static void test_what_is_known(void **state) {
    (void)state;
    rein_reference_cache *cache = rein_reference_cache_new(PLENTY);
    rein_groups groups = make_groups(4, 11), others = make_groups(3, 12);
    const size_t n = tokens_of(&groups);
    assert_int_equal(asked(cache, &policy_a.p, 0, &groups), n);
    assert_int_equal(asked(cache, &policy_a.p, 0, &groups), 0);
    assert_int_equal(asked(cache, &policy_a.p, 0, &others), tokens_of(&others));
    rein_group swapped = groups.groups[0]; /* another order, other neighbours, fewer of them */
    groups.groups[0] = groups.groups[3], groups.groups[3] = swapped;
    assert_int_equal(asked(cache, &policy_a.p, 0, &groups), 0);
    assert_int_equal(asked(cache, &policy_a.p, 0, &(rein_groups){groups.groups + 2, 1, 0}), 0);
    rein_trajectory *t = &groups.groups[3].trajectories[1]; /* it has two histories */
    t->reward += 1, t->truncated = 1, t->histories[0].log_probs[0] = -1;
    assert_int_equal(asked(cache, &policy_a.p, 0, &groups), 0);
    int32_t *last = &t->histories[1].ids[t->histories[1].n - 1];
    *last = (*last + 1) % TINY_VOCABULARY; /* one token, one mask: the trajectory, nothing else */
    assert_int_equal(asked(cache, &policy_a.p, 0, &groups), tokens_of_trajectory(t));
    assert_int_equal(asked(cache, &policy_a.p, 0, &groups), 0);
    t->histories[1].mask[t->histories[1].n - 1] = 0;
    assert_int_equal(asked(cache, &policy_a.p, 0, &groups), tokens_of_trajectory(t));
    rein_reference_cache_free(cache), rein_groups_free(&groups), rein_groups_free(&others);
}

/* So many trajectories that several of one length are in one chain: only their tokens tell them apart. */
static void test_collisions(void **state) {
    (void)state;
    rein_reference_cache *cache = rein_reference_cache_new(PLENTY);
    rein_groups groups = make_groups(300, 15);
    (void)asked(cache, &policy_a.p, 0, &groups);
    assert_int_equal(asked(cache, &policy_a.p, 0, &groups), 0);
    rein_reference_cache_free(cache), rein_groups_free(&groups);
}

static void test_policies_are_apart(void **state) {
    (void)state;
    rein_reference_cache *cache = rein_reference_cache_new(PLENTY);
    rein_groups groups = make_groups(3, 13);
    const size_t n = tokens_of(&groups);
    const rein_policy base = {policy_a.model, NULL, 1}, warmer = {policy_a.model, NULL, 1.5};
    assert_int_equal(asked(cache, &policy_a.p, 7, &groups), n);
    assert_int_equal(asked(cache, &base, -1, &groups), n);
    assert_int_equal(asked(cache, &warmer, -1, &groups), n);
    assert_int_equal(asked(cache, &policy_a.p, 7, &groups) + asked(cache, &base, -1, &groups) + asked(cache, &warmer, -1, &groups),
                     0);
    rein_reference_cache_free(cache), rein_groups_free(&groups);
}

/* Twice the same trajectory is kept once; and when the room does not do, the oldest make place, and one that is too large is not kept. */
static void test_bounded(void **state) {
    (void)state;
    rein_groups groups = make_groups(4, 14);
    rein_reference_cache *cache = rein_reference_cache_new(PLENTY);
    rein_group twice[] = {groups.groups[1], groups.groups[1]};
    (void)asked(cache, &policy_a.p, 0, &(rein_groups){twice, 1, 0});
    const size_t of_one = rein_reference_cache_count(cache).bytes;
    rein_reference_cache_free(cache);
    cache = rein_reference_cache_new(PLENTY);
    (void)asked(cache, &policy_a.p, 0, &(rein_groups){twice, 2, 0});
    assert_int_equal(rein_reference_cache_count(cache).bytes, of_one);
    (void)asked(cache, &policy_a.p, 0, &groups);
    const size_t all = rein_reference_cache_count(cache).bytes;
    rein_reference_cache_free(cache);
    for (size_t most = 0; most <= all; most += all / 16) {
        cache = rein_reference_cache_new(most);
        for (size_t g = 0; g < groups.n; g++) {
            (void)asked(cache, &policy_a.p, 0, &(rein_groups){groups.groups + g, 1, 0});
            assert_true(rein_reference_cache_count(cache).bytes <= most);
        }
        const rein_groups newest = {&(rein_group){.trajectories = &groups.groups[3].trajectories[groups.groups[3].n - 1], .n = 1},
                                    1, 0};
        const rein_groups oldest = {&(rein_group){.trajectories = groups.groups[0].trajectories, .n = 1}, 1, 0};
        const size_t n = tokens_of(&newest);
        if (most > 200 && most < all) { /* room for the largest */
            assert_int_equal(asked(cache, &policy_a.p, 0, &newest), 0);
            assert_true(asked(cache, &policy_a.p, 0, &oldest) > 0);
        }
        if (most == 0) assert_int_equal(asked(cache, &policy_a.p, 0, &newest), n);
        assert_true(asked(cache, &policy_a.p, 0, &groups) <= tokens_of(&groups));
        rein_reference_cache_free(cache);
    }
    rein_groups_free(&groups);
}

/* Errors name the place in the groups that were given, whatever was known of them. */
static void test_errors(void **state) {
    (void)state;
    rein_reference_cache *cache = rein_reference_cache_new(PLENTY);
    rein_groups groups = make_groups(3, 15);
    float *log_probs = floats(tokens_of(&groups));
    (void)asked(cache, &policy_a.p, 0, &groups);
    groups.groups[2].trajectories[1].histories[0].mask[0] = 1;
    REFUSED(rein_reference_cache_log_probs(log_probs, cache, trainer, &policy_a.p, 0, &groups, &error_),
            "groups[2].trajectories[1].histories[0]");
    groups.groups[2].trajectories[1].histories[0].mask[0] = 0;
    rein_groups none = {0}, hollow = {&(rein_group){0}, 1, 0};
    REFUSED(rein_reference_cache_log_probs(log_probs, cache, trainer, &policy_a.p, 0, &none, &error_), "there are no groups");
    REFUSED(rein_reference_cache_log_probs(log_probs, cache, trainer, &policy_a.p, 0, &hollow, &error_),
            "groups[0] has no trajectory");
    assert_int_equal(asked(cache, &policy_a.p, 0, &groups), 0);
    free(log_probs), rein_reference_cache_free(cache), rein_groups_free(&groups);
}

/* Without memory to compute, that is said; without memory to keep something, it is computed all the same. */
typedef struct attempt {
    const rein_groups *groups;
    float *log_probs;
    size_t most;
} attempt;

static rein_status ask(void *context, rein_error *err) {
    const attempt *a = context;
    rein_reference_cache *cache = rein_reference_cache_new(a->most);
    if (!cache) return rein_fail(err, REIN_ENOMEM, "no memory");
    const rein_status status = rein_reference_cache_log_probs(a->log_probs, cache, trainer, &policy_a.p, 0, a->groups, err);
    rein_reference_cache_free(cache);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    rein_groups groups = make_groups(2, 16);
    const size_t n = tokens_of(&groups);
    float *right = fresh(&policy_a.p, &groups);
    attempt a = {&groups, floats(n), 0};
    const long needed = fail_each_allocation(ask, &a);
    assert_true(needed >= 6);
    a.most = PLENTY, once = 0;
    rein_error err = {0};
    left = needed, failures = 0;
    const rein_status status = ask(&a, &err);
    left = -1;
    assert_true(status == REIN_OK && failures > 3);
    assert_memory_equal(a.log_probs, right, n * sizeof *right);
    free(right), free(a.log_probs), rein_groups_free(&groups);
}

static int start(void **state) {
    const int status = make_folder_of_models(state);
    if (status) return status;
    policy_a = open_subject("a", 0);
    trainer = open_trainer(&policy_a, NULL);
    return 0;
}

static int end(void **state) {
    rein_trainer_close(trainer);
    close_subject(&policy_a);
    return remove_folder(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_known), cmocka_unit_test(test_collisions), cmocka_unit_test(test_policies_are_apart),
        cmocka_unit_test(test_bounded),       cmocka_unit_test(test_errors),     cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, start, end);
}
