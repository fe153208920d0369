/* test_groups_write.c - groups that are counted and warned about, changed, and written; and memory that runs out at every allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "groups_fixture.h"
#include "support/allocation.h"

#define TRAJECTORY(prompt, response, rest) "{\"prompt_ids\": " prompt ", \"response_ids\": " response rest "}"
#define GROUP(list) "{\"trajectories\": [" list "]}\n"

static rein_groups read_lines(const char *text, const rein_tokenizer *tokenizer) {
    rein_groups groups = {0};
    rein_error err = {0};
    if (read_text(&groups, text, tokenizer, NULL, &err)) fail_msg("%s", err.message);
    return groups;
}

/* --------------------------------------------------------------------------------------------------------------------- counting */

static const char counted[] =
    GROUP(TRAJECTORY("[1, 2, 3]", "[4, 5]", ", \"reward\": 1, \"policy_step\": 3, \"logprobs\": [-1, null]") ", " TRAJECTORY(
        "[1, 2]", "[4, 5, 6, 7]", ", \"reward\": 4, \"policy_step\": 5, \"truncated\": true, \"mask\": [1, 1, 0, 1]"))
        GROUP(TRAJECTORY("[1, 2]", "[3]", ", \"reward\": 2, \"mask\": [0]") ", " TRAJECTORY("[1]", "[2, 3]", ", \"reward\": 2"))
            GROUP(TRAJECTORY("[1, 2]", "[3]", ", \"reward\": -1, \"additional_histories\": [" TRAJECTORY("[1, 1]", "[1]", "") "]"));

static void test_summary(void **state) {
    (void)state;
    rein_groups groups = read_lines(counted, NULL);
    const rein_groups_summary s = rein_groups_summarise(&groups);
    assert_true(s.groups == 3 && s.trajectories == 5 && s.histories == 6 && s.tokens == 23 && s.trained_tokens == 9);
    assert_true(s.log_probs_missing == 8 && s.truncated == 1 && s.untrained == 1 && s.all_trained == 1);
    assert_true(s.length_min == 0 && s.length_max == 3 && fabs(s.length_mean - 9.0 / 5) < 1e-15);
    assert_true(s.reward_min == -1 && s.reward_max == 4 && fabs(s.reward_mean - 1.6) < 1e-15);
    assert_true(fabs(s.reward_std - sqrt(2.64)) < 1e-15); /* of 1, 4, 2, 2, -1 */
    assert_true(s.single_groups == 1 && s.equal_groups == 1);
    assert_true(s.policy_step_min == 3 && s.policy_step_max == 5 && s.policy_step_unknown == 3);
    rein_groups_free(&groups);
}

static void test_no_groups(void **state) {
    (void)state;
    const rein_groups none = {0};
    const rein_groups_summary s = rein_groups_summarise(&none);
    assert_true(s.groups == 0 && s.reward_mean == 0 && s.reward_std == 0 && s.policy_step_min == -1 && s.length_min == 0);
    assert_int_equal(rein_groups_warnings(&s), 0);
}

#define FINE(reward) TRAJECTORY("[1, 2]", "[3, 4]", ", \"logprobs\": [-1, -1], \"policy_step\": 1, \"reward\": " reward)

static void test_warnings(void **state) {
    (void)state;
    static const struct {
        const char *text;
        unsigned warnings;
        const char *said; /* of the first */
    } cases[] = {
        {GROUP(FINE("0") ", " FINE("1")), 0, NULL},
        {GROUP(FINE("0, \"mask\": [0, 0]") ", " FINE("1")), REIN_GROUPS_NOTHING_TRAINS,
         "1 of 2 trajectories have 0 % trainable tokens: they teach nothing"},
        {GROUP(FINE("0") ", " TRAJECTORY("[1]", "[2]", ", \"logprobs\": [-1], \"policy_step\": 1, \"reward\": 1")),
         REIN_GROUPS_ALL_TRAINS, "1 of 2 trajectories have 100 % trainable tokens: is the prompt masked?"},
        {GROUP(FINE("1") ", " FINE("1")), REIN_GROUPS_EQUAL_REWARDS,
         "in every group all rewards are equal: comparing them within the group teaches nothing"},
        {GROUP(FINE("1") ", " FINE("1")) GROUP(FINE("1") ", " FINE("0")), 0, NULL},
        {GROUP(FINE("1")), REIN_GROUPS_SINGLE, "1 of 1 groups have one trajectory: there is nothing to compare it with"},
        {GROUP(TRAJECTORY("[1, 2]", "[3]", ", \"policy_step\": 1, \"reward\": 0") ", " FINE("1")), REIN_GROUPS_NO_LOG_PROBS,
         "1 of 3 trained tokens have no log-probability: the current policy computes them"},
        {GROUP(TRAJECTORY("[1, 2]", "[3]", ", \"logprobs\": [-1], \"policy_step\": 7, \"reward\": 0") ", " FINE("1")),
         REIN_GROUPS_SEVERAL_POLICIES, "the trajectories are of policies from step 1 to step 7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rein_groups groups = read_lines(cases[i].text, NULL);
        const rein_groups_summary s = rein_groups_summarise(&groups);
        char text[200];
        assert_int_equal(rein_groups_warnings(&s), cases[i].warnings);
        if (cases[i].said)
            assert_string_equal(rein_groups_warning_text(text, sizeof text, (rein_groups_warning)cases[i].warnings, &s),
                                cases[i].said);
        rein_groups_free(&groups);
    }
    assert_string_equal(rein_groups_warning_text((char[10]){"x"}, 10, (rein_groups_warning)0, &(rein_groups_summary){0}), "");
}

/* ---------------------------------------------------------------------------------------------------------------------- writing */

static const char talk[] = "{\"trajectories\": [{\"messages_and_choices\": [{\"role\": \"user\", \"content\": \"?\"}, "
                           "{\"finish_reason\": \"stop\", \"index\": 0, "
                           "\"message\": {\"role\": \"assistant\", \"content\": \"4\"}}], \"tools\": null, \"reward\": 1, "
                           "\"metrics\": {\"n\": 1}, \"mine\": "
                           "\"\\u0001\\t\\\"\\\\\\b\\f\\r\"}], \"exceptions\": []}\n";

static void test_changes_are_written(void **state) {
    (void)state;
    rein_tokenizer *tokenizer = open_tokenizer();
    rein_groups groups = read_lines(talk, tokenizer);
    rein_trajectory *t = &groups.groups[0].trajectories[0];
    rein_text text = lines_of(&groups, REIN_GROUPS_ART);
    assert_non_null(strstr(text.data, "{\"reward\": 1, \"messages_and_choices\": [{\"role\": \"user\""));
    assert_non_null(strstr(text.data, "\"mine\": \"\\u0001\\t\\\"\\\\\\b\\f\\r\"}], \"exceptions\": []}\n"));
    rein_text_free(&text);
    t->reward = 0.25, t->policy_step = 9, t->budget = 7;
    assert_int_equal(rein_trajectory_set_metric(t, "advantage", -0.5, NULL), REIN_OK);
    assert_int_equal(rein_trajectory_set_metric(t, "n", 2, NULL), REIN_OK);
    text = lines_of(&groups, REIN_GROUPS_ART);
    assert_non_null(strstr(text.data, "{\"reward\": 0.25, "));
    assert_non_null(strstr(text.data, "\"metrics\": {\"n\": 2.0, \"advantage\": -0.5}"));
    assert_non_null(strstr(text.data, "\"policy_step\": 9, \"budget\": 7}"));
    rein_groups back = read_lines(text.data, tokenizer);
    same_groups(&groups, &back);
    rein_text_free(&text);
    text = lines_of(&groups, REIN_GROUPS_EXACT);
    assert_null(strstr(text.data, "messages"));
    assert_null(strstr(text.data, "tools"));
    assert_non_null(strstr(text.data, "\"metrics\": {\"n\": 2.0, \"advantage\": -0.5}"));
    rein_text_free(&text);
    rein_groups_free(&groups);
    rein_groups_free(&back);
    rein_tokenizer_close(tokenizer);
}

#define BESIDE \
    GROUP("{\"prompt_ids\": [1, 2], \"response_ids\": [3], \"reward\": 1, \"messages_and_choices\": [{\"role\": \"user\"}]}")

/* Ids win over messages that stand beside them, which are kept for people to read. */
static void test_both_forms_at_once(void **state) {
    (void)state;
    rein_groups groups = read_lines(BESIDE, NULL);
    rein_text text = lines_of(&groups, REIN_GROUPS_EXACT), none = {0};
    assert_int_equal(groups.groups[0].trajectories[0].histories[0].n, 3);
    assert_non_null(strstr(text.data, "\"messages_and_choices\": [{\"role\": \"user\"}]"));
    assert_null(strstr(text.data, "false"));
    assert_int_equal(rein_group_put(&none, &groups.groups[0], 0, REIN_GROUPS_ART, NULL), REIN_EINVAL);
    rein_text_free(&none);
    rein_text_free(&text);
    rein_groups_free(&groups);
}

/* Fields of the exact form beside messages, which are read, stand in the line once; so do numbers at their limits. */
static void test_written_is_readable(void **state) {
    static const char *const lines[] = {
        GROUP("{\"messages_and_choices\": [{\"role\": \"user\", \"content\": \"?\"}, {\"finish_reason\": \"stop\", \"message\": "
              "{\"role\": "
              "\"assistant\", \"content\": \"4\"}}], \"reward\": 1, \"prompt_ids\": null, \"mask\": [1], \"values\": [1], "
              "\"logprobs\": []}"),
        GROUP(TRAJECTORY("[1, 2]", "[3, 4]", ", \"reward\": 1, \"logprobs\": [0.001, -3.4028234663852886e+38]")),
    };
    rein_tokenizer *tokenizer = open_tokenizer();
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        rein_groups groups = read_lines(lines[i], tokenizer);
        rein_text text = lines_of(&groups, REIN_GROUPS_EXACT);
        rein_groups back = read_lines(text.data, tokenizer);
        same_groups(&groups, &back);
        rein_groups_free(&groups);
        rein_groups_free(&back);
        rein_text_free(&text);
    }
    rein_tokenizer_close(tokenizer);
}

static void test_metrics(void **state) {
    (void)state;
    rein_groups groups = read_lines(GROUP(FINE("1")) GROUP(FINE("1, \"metrics\": 5")), NULL);
    rein_trajectory *bare = &groups.groups[0].trajectories[0], *odd = &groups.groups[1].trajectories[0];
    rein_error err = {0};
    assert_true(!bare->json && !bare->n_metrics);
    assert_int_equal(rein_trajectory_set_metric(bare, "kl", 0.125, &err), REIN_OK);
    rein_text text = lines_of(&groups, REIN_GROUPS_EXACT);
    assert_non_null(strstr(text.data, "\"metrics\": {\"kl\": 0.125}"));
    assert_int_equal(rein_trajectory_set_metric(bare, "kl", NAN, &err), REIN_EINVAL);
    assert_int_equal(rein_trajectory_set_metric(odd, "kl", 1, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "metrics of the trajectory is not an object"));
    assert_string_equal(err.field, "metrics");
    rein_text_free(&text);
    rein_groups_free(&groups);
}

/* What was sampled, rewarded and trained is written from the fields, also over what the file of the trajectory says. */
static void test_sampled_is_written(void **state) {
    (void)state;
    int32_t ids[] = {5, 6, 7, 8, 9};
    uint8_t mask[] = {0, 0, 1, 1, 1};
    float log_probs[] = {NAN, NAN, -1, -2, -3}, sampler[] = {NAN, NAN, -0.5f, -0.25f, 0}, advantages[] = {0, 0, 0.5f, -1, 2};
    size_t ends[] = {0, 0, 1, 3, 3};
    const rein_message chat[] = {{"system", "be", 2}, {"user", "a \"b\"", 5}};
    rein_named_number scores[] = {{"exact", 1.5}, {"length", 0}}, metrics[] = {{"kl", 0.125}, {"exact", 7}};
    rein_history history = {.n = 5,
                            .ids = ids,
                            .mask = mask,
                            .log_probs = log_probs,
                            .sampler_log_probs = sampler,
                            .advantages = advantages,
                            .text = {.data = (char[]){'4', 'x', 0, 0}, .length = 3},
                            .text_ends = ends};
    rein_trajectory t = {
        .histories = &history, .n_histories = 1, .reward = 1, .policy_step = 3, .budget = -1, .scores = scores, .n_scores = 2};
    rein_group group = {.trajectories = &t, .n = 1, .example = {.messages = chat, .n_messages = 2, .budget = -1}};
    const rein_groups groups = {&group, 1, 0};
    rein_text text = lines_of(&groups, REIN_GROUPS_EXACT);
    assert_string_equal(
        text.data,
        "{\"trajectories\": [{\"prompt_ids\": [5, 6], \"response_ids\": [7, 8, 9], \"logprobs\": [-0.5, -0.25, 0.0], \"mask\": [1, "
        "1, 1], \"policy_step\": 3, \"reward\": 1.0, \"metrics\": {\"exact\": 1.5, \"length\": 0.0, \"accuracy\": 1.0}, "
        "\"metadata\": {\"messages\": [{\"role\": \"system\", \"content\": \"be\"}, {\"role\": \"user\", \"content\": \"a "
        "\\\"b\\\"\"}], \"answer\": null, \"pieces\": [\"4\", \"\uFFFD\", \"\"]}, \"advantages\": [0.5, -1.0, 2.0]}]}\n");
    rein_text_free(&text);
    t.json = (char[]){"{\"x\": 1, \"advantages\": [9], \"metrics\": {\"kl\": 1, \"exact\": true}, \"metadata\": {\"prompt\": 2}}"};
    t.metrics = metrics, t.n_metrics = 2;
    group.example = (rein_example){.prompt = "?", .answer = "4"};
    text = lines_of(&groups, REIN_GROUPS_EXACT);
    assert_non_null(strstr(text.data, "\"reward\": 1.0, \"x\": 1, \"metrics\": {\"kl\": 0.125, \"exact\": 7.0, \"length\": 0.0, "
                                      "\"accuracy\": 1.0}, \"metadata\": {\"prompt\": 2}, \"advantages\": [0.5, -1.0, 2.0]}]}"));
    rein_text_free(&text);
}

/* What a program made wrong is said before a file is there. */
static void test_not_written(void **state) {
    (void)state;
    float log_prob[] = {0, -INFINITY}, value[] = {0, INFINITY};
    int32_t ids[] = {1, 2}, negative[] = {1, -2};
    uint8_t mask[] = {0, 1}, first[] = {1, 1}, two[] = {0, 2};
    float fine[] = {0, -1};
    const rein_text text = {.data = (char[]){"yes"}, .length = 3};
    struct {
        rein_history history;
        double reward;
        size_t histories;
        const char *said;
    } cases[] = {
        {{.n = 2, .ids = ids, .mask = mask, .log_probs = fine}, NAN, 1, "groups[0].trajectories[0].reward is nan: a finite number"},
        {{.n = 2, .ids = ids, .mask = mask, .log_probs = fine}, 1, 0, "groups[0].trajectories[0] has no history"},
        {{.n = 0, .ids = ids, .mask = mask, .log_probs = fine}, 1, 1, "groups[0].trajectories[0].histories[0] has no token"},
        {{.n = 2, .ids = ids, .mask = first, .log_probs = fine},
         1,
         1,
         "groups[0].trajectories[0].histories[0].mask[0] is 1: the first token cannot train"},
        {{.n = 2, .ids = negative, .mask = mask, .log_probs = fine}, 1, 1, "groups[0].trajectories[0].histories[0].ids[1] is -2"},
        {{.n = 2, .ids = ids, .mask = mask, .log_probs = log_prob},
         1,
         1,
         "groups[0].trajectories[0].histories[0].log_probs[1] is -inf: a log-probability"},
        {{.n = 2, .ids = ids, .mask = mask, .log_probs = fine, .values = value},
         1,
         1,
         "groups[0].trajectories[0].histories[0].values[1] is inf: a finite number"},
        {{.n = 2, .ids = ids, .mask = two, .log_probs = fine}, 1, 1, "groups[0].trajectories[0].histories[0].mask[1] is 2: 0 or 1"},
        {{.n = 2, .ids = ids, .mask = mask}, 1, 1, "groups[0].trajectories[0].histories[0] has no log_probs"},
        {{.n = 2, .ids = ids, .mask = mask, .log_probs = fine, .text = text, .text_ends = (size_t[]){0, 4}},
         1,
         1,
         "groups[0].trajectories[0].histories[0].text_ends[1] is 4: at least that of the token before, at most the 3 bytes"},
        {{.n = 2, .ids = ids, .mask = mask, .log_probs = fine, .text = text, .text_ends = (size_t[]){2, 1}},
         1,
         1,
         "groups[0].trajectories[0].histories[0].text_ends[1] is 1: "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rein_trajectory t = {.histories = &cases[i].history, .n_histories = cases[i].histories, .reward = cases[i].reward};
        rein_group group = {.trajectories = &t, .n = 1};
        const rein_groups groups = {.groups = &group, .n = 1};
        rein_error err = {0};
        assert_int_equal(rein_groups_write("/tmp/groups-none.jsonl", &groups, REIN_GROUPS_EXACT, &err), REIN_EINVAL);
        if (strncmp(err.message, cases[i].said, strlen(cases[i].said)) != 0) fail_msg("%s", err.message);
    }
    rein_trajectory t = {.histories = &(rein_history){.n = 2, .ids = ids, .mask = mask, .log_probs = fine}, .n_histories = 1};
    rein_group one[] = {{.trajectories = &t, .n = 1}, {0}};
    rein_error err = {0};
    assert_int_equal(rein_groups_write("/tmp/groups-none.jsonl", &(rein_groups){one, 1, 0}, REIN_GROUPS_ART, &err), REIN_EINVAL);
    assert_string_equal(err.message, "groups[0].trajectories[0] was not read from messages: only the exact form can be written");
    assert_int_equal(rein_groups_write("/tmp/groups-none.jsonl", &(rein_groups){one, 2, 0}, REIN_GROUPS_EXACT, &err), REIN_EINVAL);
    assert_string_equal(err.message, "groups[1] has no trajectory");
    assert_int_equal(rein_groups_write("/tmp/groups-none.jsonl", &(rein_groups){one, 1, 0}, (rein_groups_form)5, &err),
                     REIN_EINVAL);
    assert_int_equal(rein_groups_write("/nowhere/x.jsonl", &(rein_groups){one, 1, 0}, REIN_GROUPS_EXACT, &err), REIN_EIO);
    assert_int_not_equal(access("/tmp/groups-none.jsonl", F_OK), 0);
}

static void test_through_a_file(void **state) {
    (void)state;
    char directory[] = "/tmp/groups-XXXXXX", path[64];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/g.jsonl", directory);
    rein_groups groups = read_lines(counted, NULL), back = {0};
    rein_error err = {0};
    if (rein_groups_write(path, &groups, REIN_GROUPS_EXACT, &err)) fail_msg("%s", err.message);
    if (rein_groups_read(&back, path, NULL, NULL, &err)) fail_msg("%s", err.message);
    same_groups(&groups, &back);
    rein_groups_free(&groups);
    rein_groups_free(&back);
    unlink(path);
    assert_int_equal(rmdir(directory), 0);
}

static void test_append(void **state) {
    (void)state;
    rein_groups groups = {0}, from = read_lines(counted, NULL), all = {0};
    rein_error err = {0};
    for (size_t round = 0; round < 20; round++) {
        rein_groups more = read_lines(counted, NULL);
        for (size_t g = 0; g < more.n; g++) {
            assert_int_equal(rein_groups_append(&groups, &more.groups[g], &err), REIN_OK);
            assert_true(!more.groups[g].trajectories && !more.groups[g].n);
        }
        rein_groups_free(&more);
    }
    assert_int_equal(groups.n, 60);
    all = (rein_groups){groups.groups + 57, 3, 0};
    same_groups(&all, &from);
    rein_groups_free(&groups);
    rein_groups_free(&from);
}

/* ----------------------------------------------------------------------------------------------------------------------- memory */

typedef struct attempt {
    const char *text, *path;
    const rein_tokenizer *tokenizer;
    const rein_chat *chat;
    const rein_groups *groups;
} attempt;

static rein_status read_all(void *context, rein_error *err) {
    const attempt *a = context;
    rein_groups groups = {0};
    const rein_status status = read_text(&groups, a->text, a->tokenizer, a->chat, err);
    if (status) assert_int_equal(groups.n, 0);
    rein_groups_free(&groups);
    return status;
}

static rein_status write_both(void *context, rein_error *err) {
    const attempt *a = context;
    const rein_status status = rein_groups_write(a->path, a->groups, REIN_GROUPS_EXACT, err);
    return status ? status : rein_groups_write(a->path, a->groups, REIN_GROUPS_ART, err);
}

static rein_status set_metrics(void *context, rein_error *err) {
    (void)context;
    rein_trajectory t = {0};
    rein_status status = rein_trajectory_set_metric(&t, "a", 1, err);
    if (!status) status = rein_trajectory_set_metric(&t, "b", 1, err);
    if (status && t.n_metrics) assert_true(t.n_metrics == 1 && t.metrics[0].value == 1 && !strcmp(t.metrics[0].name, "a"));
    rein_named_numbers_free(t.metrics, t.n_metrics);
    return status;
}

static const char hard[] =
    "{\"trajectories\": [{\"messages_and_choices\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"?\"}]}, "
    "{\"finish_reason\": \"tool_calls\", \"message\": {\"content\": null, \"reasoning_content\": \"hm\", \"tool_calls\": "
    "[{\"function\": "
    "{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 0.5}\"}}]}}, {\"role\": \"tool\", \"content\": \"4\"}, {\"finish_reason\": "
    "\"stop\", "
    "\"message\": {\"content\": \"4\"}, \"logprobs\": {\"content\": [{\"token\": \"token_id:19\", \"logprob\": -1}]}}, {\"role\": "
    "\"user\", "
    "\"content\": \"so\"}, {\"finish_reason\": \"stop\", \"message\": {\"content\": \"it is\"}, \"logprobs\": {\"content\": "
    "[{\"token\": "
    "\"it\"}, {\"token\": \" \"}, {\"token\": \"i\"}, {\"token\": \"s\"}]}}], \"tools\": \"[{\\\"name\\\": \\\"f\\\"}]\", "
    "\"reward\": 1, "
    "\"additional_histories\": [{\"prompt_ids\": [1], \"response_ids\": [2], \"values\": [1]}]}], \"x\": [1, {}]}\n";

static void test_out_of_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    char path[] = "/tmp/groups-XXXXXX";
    const int fd = mkstemp(path);
    rein_tokenizer *tokenizer = open_tokenizer();
    rein_chat chat;
    assert_int_equal(rein_chat_named(&chat, "qwen3", NULL), REIN_OK);
    assert_true(fail_each_allocation(read_all, &(attempt){.text = counted}) > 50);
    assert_true(fail_each_allocation(read_all, &(attempt){.text = talk, .tokenizer = tokenizer}) > 50);
    assert_true(fail_each_allocation(read_all, &(attempt){.text = hard, .tokenizer = tokenizer, .chat = &chat}) > 100);
    assert_true(fail_each_allocation(read_all, &(attempt){.text = BESIDE}) > 10);
    rein_groups groups = {0};
    rein_error err = {0};
    if (read_text(&groups, hard, tokenizer, &chat, &err)) fail_msg("%s", err.message);
    assert_int_equal(groups.groups[0].trajectories[0].n_histories, 3);
    assert_true(fail_each_allocation(write_both, &(attempt){.path = path, .groups = &groups}) > 10);
    assert_true(fail_each_allocation(set_metrics, NULL) > 3);
    rein_groups_free(&groups);
    rein_tokenizer_close(tokenizer);
    close(fd);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_no_groups),
        cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_written_is_readable),
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_changes_are_written),
        cmocka_unit_test(test_not_written),
        cmocka_unit_test(test_both_forms_at_once),
        cmocka_unit_test(test_sampled_is_written),
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_through_a_file),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
