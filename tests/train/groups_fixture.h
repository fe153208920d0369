/* groups_fixture.h - what the tests of trajectory groups share. */
#ifndef REIN_TESTS_GROUPS_FIXTURE_H
#define REIN_TESTS_GROUPS_FIXTURE_H

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rein/train.h"
#include "train/groups.h"

#define GROUPS "tests/train/fixtures/groups/"

static inline rein_tokenizer *open_tokenizer(void) {
    rein_tokenizer *tokenizer = NULL;
    rein_error err = {0};
    if (rein_tokenizer_open(&tokenizer, GROUPS "tokenizer", &err)) fail_msg("%s", err.message);
    return tokenizer;
}

static inline rein_status read_text(rein_groups *groups, const char *text, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                    rein_error *err) {
    return rein_groups_from_memory(groups, text, strlen(text), "x.jsonl", tokenizer, chat, err);
}

static inline int same_float(float a, float b) { return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0; }

static inline void same_history(const rein_history *a, const rein_history *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
    assert_memory_equal(a->mask, b->mask, a->n);
    assert_int_equal(a->values != NULL, b->values != NULL);
    for (size_t k = 0; k < a->n; k++) {
        assert_true(same_float(a->log_probs[k], b->log_probs[k]));
        if (a->values) assert_true(same_float(a->values[k], b->values[k]));
    }
}

static inline void same_groups(const rein_groups *a, const rein_groups *b) {
    assert_int_equal(a->n, b->n);
    for (size_t g = 0; g < a->n; g++) {
        assert_int_equal(a->groups[g].n, b->groups[g].n);
        for (size_t t = 0; t < a->groups[g].n; t++) {
            const rein_trajectory *x = &a->groups[g].trajectories[t], *y = &b->groups[g].trajectories[t];
            assert_int_equal(x->n_histories, y->n_histories);
            assert_true(x->reward == y->reward);
            assert_int_equal(x->policy_step, y->policy_step);
            assert_int_equal(x->truncated, y->truncated);
            assert_int_equal(x->budget, y->budget);
            for (size_t i = 0; i < x->n_histories; i++) same_history(&x->histories[i], &y->histories[i]);
        }
    }
}

/* The groups as lines, for the caller to free. */
static inline rein_text lines_of(const rein_groups *groups, rein_groups_form form) {
    rein_text text = {0};
    rein_error err = {0};
    for (size_t g = 0; g < groups->n; g++)
        if (rein_group_put(&text, &groups->groups[g], g, form, &err)) fail_msg("%s", err.message);
    return text;
}

#endif
