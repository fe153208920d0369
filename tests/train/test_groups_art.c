/* test_groups_art.c - conversations in ART's form against ids that Hugging Face's tokenizers and Jinja made of them
 * (fixtures/groups/generate.py), and round trips of both forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "groups_fixture.h"

static int fails; /* cases, so that all are seen */

static int same_tokens(const rein_history *h, const json_t *expected) {
    const json_t *ids = json_object_get(expected, "ids"), *trained = json_object_get(expected, "trained");
    const json_t *log_probs = json_object_get(expected, "logprobs");
    size_t stretch = 0, known = 0;
    if (h->n != json_array_size(ids)) return 0;
    for (size_t k = 0; k < h->n; k++) {
        const json_t *range = json_array_get(trained, stretch);
        const size_t begin = (size_t)json_integer_value(json_array_get(range, 0));
        const size_t end = (size_t)json_integer_value(json_array_get(range, 1));
        const int inside = range && k >= begin && k < end;
        const json_t *log_prob = inside ? json_array_get(log_probs, known++) : NULL;
        const float recorded = json_is_number(log_prob) ? (float)json_number_value(log_prob) : NAN;
        if (h->ids[k] != json_integer_value(json_array_get(ids, k)) || h->mask[k] != inside) return 0;
        if (!same_float(h->log_probs[k], recorded)) return 0;
        stretch += inside && k + 1 == end;
    }
    return known == json_array_size(log_probs) && !h->values;
}

static int same_trajectory(const rein_trajectory *t, const json_t *expected) {
    const json_t *histories = json_object_get(expected, "histories");
    const json_t *step = json_object_get(expected, "policy_step"), *budget = json_object_get(expected, "budget");
    if (t->n_histories != json_array_size(histories) || t->truncated != json_is_true(json_object_get(expected, "truncated")))
        return 0;
    if (t->policy_step != (step ? json_integer_value(step) : -1) || t->budget != (budget ? json_integer_value(budget) : -1))
        return 0;
    for (size_t i = 0; i < t->n_histories; i++)
        if (!same_tokens(&t->histories[i], json_array_get(histories, i))) return 0;
    return 1;
}

/* Written in either form and read again, nothing changed. */
static void check_round_trips(const rein_groups *groups, const rein_tokenizer *tokenizer, const rein_chat *chat) {
    for (rein_groups_form form = REIN_GROUPS_EXACT; form <= REIN_GROUPS_ART; form++) {
        rein_text text = lines_of(groups, form), again;
        rein_groups back = {0};
        rein_error err = {0};
        if (read_text(&back, text.data, form == REIN_GROUPS_EXACT ? NULL : tokenizer, chat, &err)) fail_msg("%s", err.message);
        same_groups(&back, groups);
        again = lines_of(&back, form);
        assert_string_equal(again.data, text.data);
        rein_text_free(&again);
        rein_text_free(&text);
        rein_groups_free(&back);
    }
}

static void check_case(const json_t *item, const rein_tokenizer *tokenizer) {
    const char *name = json_string_value(json_object_get(item, "name")),
               *format = json_string_value(json_object_get(item, "format"));
    const json_t *expected = json_object_get(item, "expected");
    char *line = json_dumps(json_object_get(item, "group"), 0);
    rein_groups groups = {0};
    rein_error err = {0};
    rein_chat chat;
    if (format) assert_int_equal(rein_chat_named(&chat, format, NULL), REIN_OK);
    int right = read_text(&groups, line, tokenizer, format ? &chat : NULL, &err) == REIN_OK;
    for (size_t t = 0; right && t < groups.groups[0].n; t++)
        right = same_trajectory(&groups.groups[0].trajectories[t], json_array_get(expected, t));
    if (right) assert_int_equal(groups.groups[0].n, json_array_size(expected));
    if (!right) print_error("%s, %s: %s\n", name, format ? format : "by its template", *err.message ? err.message : "other tokens");
    fails += !right;
    if (right) check_round_trips(&groups, tokenizer, format ? &chat : NULL);
    rein_groups_free(&groups);
    free(line);
}

static void test_as_hugging_face(void **state) {
    (void)state;
    static char line[100000];
    rein_tokenizer *tokenizer = open_tokenizer();
    FILE *cases = fopen(GROUPS "art.jsonl", "r");
    size_t n = 0;
    assert_non_null(cases);
    for (; fgets(line, sizeof line, cases); n++) {
        json_t *item = json_loads(line, 0, NULL);
        assert_non_null(item);
        check_case(item, tokenizer);
        json_decref(item);
    }
    fclose(cases);
    rein_tokenizer_close(tokenizer);
    assert_true(n > 80);
    assert_int_equal(fails, 0);
}

#define WROTE(step) "{\"message\": {\"role\": \"assistant\", \"content\": \"4\"}, \"finish_reason\": \"stop\"" step "}"
#define STEP(n) ", \"policy_step\": " #n
#define ASKED "{\"role\": \"user\", \"content\": \"?\"}, "
#define TURNS(...) "\"messages_and_choices\": [" ASKED __VA_ARGS__ "]"

/* The oldest policy of its Choices is that of a trajectory, unless the trajectory names one or a Choice names none. */
static void test_policy_of_choices(void **state) {
    (void)state;
    static const struct {
        const char *trajectory;
        int64_t step;
    } cases[] = {
        {TURNS(WROTE(STEP(3))), 3},
        {TURNS(WROTE(STEP(5)) ", " ASKED WROTE(STEP(4)) ", " ASKED WROTE(STEP(6))), 4},
        {TURNS(WROTE(STEP(5)) ", " ASKED WROTE("")), -1},
        {TURNS(WROTE("") ", " ASKED WROTE(STEP(5))), -1},
        {TURNS(WROTE("")), -1},
        {TURNS(WROTE(STEP(0))), 0},
        {TURNS(WROTE(STEP(null))), -1},
        {TURNS(WROTE(STEP(5))) STEP(2), 2},
        {TURNS(WROTE(STEP(5))) ", \"initial_policy_version\": 1", 1},
        {TURNS(WROTE(STEP(5))) ", \"additional_histories\": [{" TURNS(WROTE(STEP(2))) "}]", 2},
        {TURNS(WROTE(STEP(5))) ", \"additional_histories\": [{" TURNS(WROTE("")) "}]", -1},
        {TURNS("{\"role\": \"assistant\", \"content\": \"4\"}"), -1},
    };
    rein_tokenizer *tokenizer = open_tokenizer();
    rein_chat chat;
    rein_error err = {0};
    assert_int_equal(rein_chat_named(&chat, "chatml", NULL), REIN_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[1000];
        rein_groups groups = {0};
        snprintf(line, sizeof line, "{\"trajectories\": [{%s, \"reward\": 1}]}", cases[i].trajectory);
        if (read_text(&groups, line, tokenizer, &chat, &err)) fail_msg("%s: %s", line, err.message);
        if (groups.groups[0].trajectories[0].policy_step != cases[i].step)
            fail_msg("%s: %lld", line, (long long)groups.groups[0].trajectories[0].policy_step);
        check_round_trips(&groups, tokenizer, &chat);
        rein_groups_free(&groups);
    }
    rein_groups groups = {0};
    assert_int_equal(
        read_text(&groups, "{\"trajectories\": [{" TURNS(WROTE(STEP("x"))) ", \"reward\": 1}]}", tokenizer, &chat, &err),
        REIN_EINVAL);
    assert_non_null(strstr(err.message, "trajectories[0].messages_and_choices[1].policy_step is \"x\": a whole number"));
    rein_tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_hugging_face), cmocka_unit_test(test_policy_of_choices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
