/* reward_fixture.h - responses made by hand, judges, and what is said about them. */
#ifndef REIN_TESTS_REWARD_FIXTURE_H
#define REIN_TESTS_REWARD_FIXTURE_H

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rein/rollout.h"

enum { MOST_RESPONSES = 64 };

static rein_example examples[MOST_RESPONSES];
static rein_response responses[MOST_RESPONSES];
static double rewards[MOST_RESPONSES], components[8 * MOST_RESPONSES];
static rein_error err;

static inline int forget_responses(void **state) {
    (void)state;
    for (size_t i = 0; i < MOST_RESPONSES; i++) rein_example_free(&examples[i]);
    memset(examples, 0, sizeof examples);
    memset(responses, 0, sizeof responses);
    return 0;
}

/* Response i: a group of its own, 10 tokens of step 7; answer may be NULL. */
static inline rein_response *respond(size_t i, const char *prompt, const char *answer, const char *text) {
    rein_example_free(&examples[i]);
    json_t *object = json_pack("{s:s, s:s?, s:s}", "prompt", prompt, "answer", answer, "level", "easy");
    char *json = json_dumps(object, 0);
    json_decref(object);
    examples[i] = (rein_example){.prompt = prompt, .answer = answer, .budget = -1, .json = json, .memory = json};
    responses[i] =
        (rein_response){.example = &examples[i], .group = i, .text = text, .length = strlen(text), .tokens = 10, .step = 7};
    return &responses[i];
}

/* n responses of groups of two to the prompts "p0", "p1", …; their texts are "r0", "r1", … */
static inline void respond_many(size_t n) {
    static char texts[MOST_RESPONSES][2][8];
    for (size_t i = 0; i < n; i++) {
        snprintf(texts[i][0], 8, "p%zu", i / 2);
        snprintf(texts[i][1], 8, "r%zu", i);
        respond(i, texts[i][0], NULL, texts[i][1])->group = i / 2;
    }
}

static inline rein_reward *open_with(const char *spec, const rein_reward_options *options) {
    rein_reward *reward;
    if (rein_reward_open(&reward, &spec, 1, NULL, options, &err) != REIN_OK) fail_msg("%s", err.message);
    return reward;
}

static inline void says(const char *wanted) {
    if (strcmp(err.message, wanted) != 0) fail_msg("\"%s\" is said, not \"%s\"", err.message, wanted);
}

static inline void refuses(const char *spec, const char *wanted) {
    rein_reward *reward;
    assert_int_equal(rein_reward_open(&reward, &spec, 1, NULL, NULL, &err), REIN_EINVAL);
    assert_null(reward);
    says(wanted);
}

/* Gives rewards to n responses, which must succeed. */
static inline void give(rein_reward *reward, size_t n) {
    if (rein_reward_give(rewards, components, reward, responses, n, &err) != REIN_OK) fail_msg("%s", err.message);
}

/* Fails with this status and message, and writes nothing. */
static inline void fails(rein_reward *reward, size_t n, rein_status status, const char *wanted) {
    for (size_t i = 0; i < MOST_RESPONSES; i++) rewards[i] = components[i] = -77;
    const rein_status found = rein_reward_give(rewards, components, reward, responses, n, &err);
    if (found == REIN_OK) fail_msg("succeeds, and should say \"%s\"", wanted);
    says(wanted);
    assert_int_equal(found, status);
    for (size_t i = 0; i < MOST_RESPONSES; i++) assert_true(rewards[i] == -77 && components[i] == -77);
}

#endif
