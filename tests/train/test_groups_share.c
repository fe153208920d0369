/* test_groups_share.c - groups as bytes for other ranks: everything comes back, and bytes that are no group are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "rollout/trajectory.h"
#include "support/check.h"
#include "support/memory.h"
#include "support/thread_ranks.h"
#include "train/groups_share.h"

#include "support/allocation.h"

static char *text_of(const char *text) {
    char *copy = some(strlen(text) + 1, 1);
    return strcpy(copy, text);
}

static void fill_history(rein_history *h, size_t n, int everything, unsigned seed) {
    *h = (rein_history){.n = n, .ids = some(n, sizeof *h->ids), .mask = some(n, 1), .log_probs = floats(n)};
    if (everything) {
        h->values = floats(n), h->sampler_log_probs = floats(n), h->advantages = floats(n), h->activation_key = 77;
        h->text_ends = some(n, sizeof *h->text_ends);
    }
    for (size_t i = 0; i < n; i++) {
        h->ids[i] = (int32_t)(i * 3 + seed), h->mask[i] = i > 1, h->log_probs[i] = i > 1 ? -0.1f * (float)(i + seed) : NAN;
        if (!everything) continue;
        h->values[i] = (float)i, h->sampler_log_probs[i] = -1 / (float)(i + 1), h->advantages[i] = (float)seed, h->text_ends[i] = i;
    }
    if (everything) assert_true(!rein_text_append(&h->text, "h\0llo é", 8, NULL));
}

static void add_number(rein_named_number **list, size_t *n, const char *name, double value) {
    assert_true(!rein_named_numbers_set(list, n, name, value, NULL));
}

/* With everything that a group can have, or with next to nothing. */
static rein_group made_group(int everything, unsigned seed) {
    rein_group group = {.trajectories = some(2, sizeof *group.trajectories), .n = 2};
    for (size_t k = 0; k < 2; k++) {
        rein_trajectory *t = &group.trajectories[k];
        *t = (rein_trajectory){.reward = k ? -0.0 : 1.5, .policy_step = everything ? 9 : -1, .budget = everything ? 20 : -1};
        t->n_histories = 1 + k;
        t->histories = some(t->n_histories, sizeof *t->histories);
        for (size_t i = 0; i <= k; i++) fill_history(&t->histories[i], 4 + i + seed % 3, everything, seed + (unsigned)i);
        if (!everything) continue;
        t->truncated = 1, t->finish = REIN_FINISH_CONTEXT, t->from_messages = 1, t->json = text_of("{\"x\": 1}");
        add_number(&t->scores, &t->n_scores, "exact", 0.25), add_number(&t->scores, &t->n_scores, "length", NAN);
        add_number(&t->metrics, &t->n_metrics, "turns", 3);
    }
    if (!everything) return group;
    static const rein_message messages[] = {{"system", "", 0}, {"user", "2 + 2?", 6}};
    group.json = text_of("{}");
    group.example = (rein_example){.prompt = "p", .answer = "4", .json = "{\"prompt\": \"p\"}", .budget = 12, .needs_template = 1};
    group.example.messages = messages, group.example.n_messages = 2;
    return group;
}

static void same_text(const char *a, const char *b) {
    assert_true(!a == !b);
    if (a) assert_string_equal(a, b);
}

static void same_array(const void *a, const void *b, size_t size) {
    assert_true(!a == !b);
    if (a) assert_memory_equal(a, b, size);
}

static void same_numbers(const rein_named_number *a, size_t n, const rein_named_number *b, size_t m) {
    assert_true(n == m);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(a[i].name, b[i].name);
        assert_memory_equal(&a[i].value, &b[i].value, sizeof(double));
    }
}

static void same_history(const rein_history *a, const rein_history *b) {
    assert_true(a->n == b->n);
    same_array(a->ids, b->ids, a->n * sizeof *a->ids), same_array(a->mask, b->mask, a->n);
    same_array(a->log_probs, b->log_probs, a->n * sizeof(float)), same_array(a->values, b->values, a->n * sizeof(float));
    same_array(a->sampler_log_probs, b->sampler_log_probs, a->n * sizeof(float));
    same_array(a->advantages, b->advantages, a->n * sizeof(float));
    same_array(a->text_ends, b->text_ends, a->n * sizeof *a->text_ends);
    assert_true(a->text.length == b->text.length);
    same_array(a->text.data, b->text.data, a->text.length);
}

static void same_group(const rein_group *a, const rein_group *b) {
    assert_true(a->n == b->n);
    for (size_t k = 0; k < a->n; k++) {
        const rein_trajectory *x = &a->trajectories[k], *y = &b->trajectories[k];
        assert_true(x->n_histories == y->n_histories && x->policy_step == y->policy_step && x->budget == y->budget);
        assert_true(x->truncated == y->truncated && x->finish == y->finish && x->from_messages == y->from_messages);
        assert_memory_equal(&x->reward, &y->reward, sizeof x->reward);
        same_text(x->json, y->json);
        same_numbers(x->scores, x->n_scores, y->scores, y->n_scores);
        same_numbers(x->metrics, x->n_metrics, y->metrics, y->n_metrics);
        for (size_t i = 0; i < x->n_histories; i++) same_history(&x->histories[i], &y->histories[i]);
    }
    const rein_example *e = &a->example, *f = &b->example;
    same_text(e->prompt, f->prompt), same_text(e->answer, f->answer), same_text(e->json, f->json), same_text(a->json, b->json);
    assert_true(e->n_messages == f->n_messages && e->budget == f->budget && e->needs_template == f->needs_template);
    for (size_t i = 0; i < e->n_messages; i++) {
        assert_string_equal(e->messages[i].role, f->messages[i].role);
        assert_true(e->messages[i].length == f->messages[i].length);
        assert_memory_equal(e->messages[i].content, f->messages[i].content, e->messages[i].length + 1);
    }
}

static void test_round_trip(void **state) {
    (void)state;
    for (int everything = 0; everything < 2; everything++) {
        rein_group group = made_group(everything, 5);
        rein_text bytes = {0};
        rein_groups back = {0};
        size_t used;
        assert_true(!rein_group_pack(&bytes, &group, NULL));
        const size_t one = bytes.length;
        assert_true(!rein_group_pack(&bytes, &group, NULL)); /* others may follow */
        assert_true(!rein_group_unpack(&back, &used, bytes.data, bytes.length, NULL) && used == one && back.n == 1);
        same_group(&group, &back.groups[0]);
        for (size_t k = 0; k < 2; k++) assert_true(back.groups[0].trajectories[k].histories[0].activation_key == 0);
        rein_groups_free(&back), rein_text_free(&bytes), rein_group_free(&group);
    }
}

/* Every beginning of the bytes, and every byte of a length changed. */
static void test_refused(void **state) {
    (void)state;
    rein_group group = made_group(1, 5);
    rein_text bytes = {0};
    rein_groups back = {0};
    rein_error err = {0};
    size_t used, accepted = 0;
    assert_true(!rein_group_pack(&bytes, &group, NULL));
    for (size_t n = 0; n < bytes.length; n++) {
        char *cut = some(n ? n : 1, 1); /* alone, so that a sanitizer sees what is read behind it */
        memcpy(cut, bytes.data, n);
        assert_true(rein_group_unpack(&back, &used, cut, n, &err) == REIN_EINVAL && !back.n && !used);
        free(cut);
    }
    assert_string_equal(err.message, "what another rank has sent is no group of trajectories");
    for (size_t i = 0; i < bytes.length; i++) {
        const char was = bytes.data[i];
        bytes.data[i] = (char)(was ^ 0xff);
        accepted += rein_group_unpack(&back, &used, bytes.data, bytes.length, NULL) == REIN_OK;
        bytes.data[i] = was;
    }
    assert_true(accepted == back.n && accepted < bytes.length); /* some are numbers that may be anything */
    rein_groups_free(&back), rein_text_free(&bytes), rein_group_free(&group);
}

static rein_status round_trip(void *context, rein_error *err) {
    rein_text bytes = {0};
    rein_groups back = {0};
    size_t used;
    rein_status status = rein_group_pack(&bytes, context, err);
    if (!status) status = rein_group_unpack(&back, &used, bytes.data, bytes.length, err);
    rein_groups_free(&back), rein_text_free(&bytes);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    rein_group group = made_group(1, 5);
    assert_true(fail_each_allocation(round_trip, &group) > 20);
    rein_group_free(&group);
}

/* ---- between ranks */
enum { GROUPS = 11 };

typedef struct sharing {
    size_t where[GROUPS];
    rein_groups got[MOST_RANKS];
    rein_status status[MOST_RANKS];
    size_t without; /* this rank lacks a group; MOST_RANKS: none does */
} sharing;

static void share(rein_ranks *ranks, void *user) {
    sharing *s = user;
    const size_t rank = rein_ranks_rank(ranks);
    rein_groups own = {0};
    for (size_t i = 0; i < GROUPS; i++) {
        rein_group group = made_group(i % 2 == 0, (unsigned)i);
        if (s->where[i] == rank) assert_true(!rein_groups_append(&own, &group, NULL));
        else rein_group_free(&group);
    }
    if (rank == s->without) rein_group_free(&own.groups[--own.n]);
    s->status[rank] = rein_groups_share(&s->got[rank], &own, s->where, GROUPS, ranks, NULL);
    rein_groups_free(&own);
}

static void test_share(void **state) {
    (void)state;
    for (size_t n = 1; n <= 4; n++)
        for (int lacks = 0; lacks < 2; lacks++) {
            sharing s = {.without = lacks ? n - 1 : MOST_RANKS};
            for (size_t i = 0; i < GROUPS; i++) s.where[i] = i * 5 % n;
            run_ranks(n, share, &s);
            for (size_t r = 0; r < n; r++) {
                assert_true(s.status[r] == (lacks ? REIN_EINVAL : REIN_OK) && s.got[r].n == (lacks ? 0 : GROUPS));
                for (size_t i = 0; i < s.got[r].n; i++) {
                    rein_group group = made_group(i % 2 == 0, (unsigned)i);
                    same_group(&group, &s.got[r].groups[i]);
                    /* Those of this rank keep the keys of its activation cache. */
                    const uint64_t key = s.got[r].groups[i].trajectories[0].histories[0].activation_key;
                    assert_true(key == (s.where[i] == r && i % 2 == 0 ? 77 : 0));
                    rein_group_free(&group);
                }
                rein_groups_free(&s.got[r]);
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
