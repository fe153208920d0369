/* test_live.c - what the live page of a server gets: the data of the report, first all of it and then what came after a step; the page itself
 * and its policy; and episodes, turn by turn. What the page does with it is tested with a browser (tests/parity/report). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sha256.h"
#include "html_fixture.h"
#include "report/html_parts.h"
#include "support/allocation.h"

/* The run's object in what rein_report_data gives, to be released. */
static json_t *data_after(int64_t after) {
    rein_text text = {0};
    rein_error err = {0};
    json_error_t e;
    if (rein_report_data(&text, run, after, &err)) fail_msg("%s", err.message);
    json_t *data = json_loads(text.data, JSON_REJECT_DUPLICATES, &e);
    if (!data) fail_msg("%s", e.text);
    assert_string_equal(text_at(data, "version"), rein_version());
    assert_int_equal(size_at(data, "runs"), 1);
    json_t *one = json_incref(json_array_get(json_object_get(data, "runs"), 0));
    json_decref(data);
    rein_text_free(&text);
    return one;
}

static const char STEP[] =
    "{\"trajectories\": [{\"prompt_ids\": [1], \"response_ids\": [2, 3], \"reward\": %d}, {\"prompt_ids\": [1], "
    "\"response_ids\": [2], \"reward\": 0}]}\n";

static void put_small_run(void) {
    put("config.yaml", "model: m\n");
    put("history.jsonl", "{\"step\": 1, \"reward\": 0.25, \"step_time\": 1}\n{\"step\": 2, \"reward\": 0.5, \"step_time\": 1}\n");
    put("evaluations.jsonl", "{\"step\": 0, \"eval/accuracy\": 0.5}\n{\"step\": 2, \"eval/accuracy\": 1}\n");
    put("summary.json", "{\"budget\": 3}");
    for (int step = 1; step <= 2; step++) {
        char name[60];
        snprintf(name, sizeof name, "trajectories/train/%04d.jsonl", step);
        put(name, STEP, step);
        snprintf(name, sizeof name, "trajectories/eval/%04d.jsonl", step - 1);
        put(name, STEP, step);
    }
}

static void test_all_of_it_is_the_report(void **state) {
    (void)state;
    put_small_run();
    json_t *live = data_after(-1), *page = report();
    assert_true(json_equal(live, page));
    json_decref(live);
    json_decref(page);
}

static void test_what_came_after_a_step(void **state) {
    (void)state;
    put_small_run();
    json_t *one = data_after(1);
    assert_int_equal(size_at(one, "metrics.reward.steps"), 1);
    assert_true(number_at(one, "metrics.reward.steps.0") == 2 && number_at(one, "metrics.reward.values.0") == 0.5);
    assert_int_equal(json_array_size(json_object_get(json_object_get(json_object_get(one, "metrics"), "eval/accuracy"), "steps")),
                     1);
    assert_true(number_at(one, "steps") == 2);
    assert_int_equal(size_at(one, "samples"), 1);
    assert_true(number_at(one, "samples.0.step") == 2);
    assert_null(at(one, "settings"));
    assert_null(at(one, "seconds")); /* that would be the time of the new steps only */
    assert_true(number_at(one, "summary.budget") == 3);
    json_decref(one);
    one = data_after(0);
    assert_int_equal(size_at(one, "metrics.reward.steps"), 2);
    assert_non_null(at(one, "compare"));
    json_decref(one);
    one = data_after(2);
    assert_int_equal(json_object_size(at(one, "metrics")), 0);
    assert_int_equal(size_at(one, "samples"), 0);
    assert_null(at(one, "compare"));
    assert_true(number_at(one, "steps") == 2);
    json_decref(one);
    one = data_after(INT64_C(1) << 53);
    assert_int_equal(json_object_size(at(one, "metrics")), 0);
    json_decref(one);
}

/* A reader that knows most of a long history reads its end, and gets what one that reads everything gets. */
static void test_the_end_of_a_long_history(void **state) {
    enum { STEPS = 6000 };
    static char text[STEPS * 80];
    size_t n = 0;
    (void)state;
    put("config.yaml", "model: m\n");
    for (int step = 1; step <= STEPS; step++)
        n += (size_t)snprintf(text + n, sizeof text - n, "{\"step\": %d, \"reward\": %d.5, \"note\": \"%*s\"}\n", step, step % 100,
                              step % 30, "");
    put("history.jsonl", "%s", text);
    static const int afters[] = {0, 1, 2, 999, 3000, 4500, STEPS - 700, STEPS - 2, STEPS - 1, STEPS};
    for (size_t i = 0; i < sizeof afters / sizeof *afters; i++) {
        json_t *one = data_after(afters[i]);
        const json_t *reward = at(one, "metrics.reward");
        const size_t left = (size_t)(STEPS - afters[i]), size = size_at(reward, "steps");
        assert_int_equal(size, left < REIN_SHOWN_POINTS ? left : size);
        assert_true(!left || number_at(reward, "steps.0") == afters[i] + 1);
        for (size_t k = 0; left < REIN_SHOWN_POINTS && k < left; k++) {
            const json_int_t step = json_integer_value(json_array_get(json_object_get(reward, "steps"), k));
            assert_int_equal(step, afters[i] + 1 + (int)k);
            assert_true(json_number_value(json_array_get(json_object_get(reward, "values"), k)) == (double)(step % 100) + 0.5);
        }
        assert_true(number_at(one, "steps") == STEPS);
        assert_int_equal(size_at(one, "notes"), 0);
        json_decref(one);
    }
}

/* Where the run was resumed, later lines have earlier steps: what is known of the last step shows it. */
static void test_a_run_that_went_back(void **state) {
    (void)state;
    put("history.jsonl", "{\"step\": 1, \"a\": 1}\n{\"step\": 2, \"a\": 2}\n{\"step\": 3, \"a\": 3}\n{\"step\": 2, \"a\": 9}\n");
    json_t *one = data_after(3);
    assert_true(number_at(one, "steps") == 2); /* less than the 3 that was asked for */
    assert_int_equal(json_object_size(at(one, "metrics")), 0);
    json_decref(one);
    one = data_after(1);
    assert_true(number_at(one, "metrics.a.values.0") == 9);
    json_decref(one);
}

static void test_a_directory_that_is_no_run(void **state) {
    rein_text text = {0};
    rein_error err = {0};
    (void)state;
    assert_int_equal(rein_report_data(&text, run, -1, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "is not a run"));
    assert_int_equal(rein_report_data(&text, "/nowhere", -1, &err), REIN_EIO);
    assert_int_equal(text.length, 0);
    rein_text_free(&text);
}

/* ------------------------------------------------------------------------------------------------------------------- the page */

static size_t hashed(const char *html, const char *policy, const char *open, const char *close) {
    size_t n = 0;
    for (const char *from = html, *to; (from = strstr(from, open)); from = to, n++) {
        char base64[REIN_SHA256_BASE64];
        from += strlen(open);
        assert_non_null(to = strstr(from, close));
        assert_non_null(strstr(policy, rein_sha256_base64(base64, from, (size_t)(to - from))));
    }
    return n;
}

static void test_the_page(void **state) {
    rein_text html = {0}, policy = {0}, other = {0}, same = {0};
    (void)state;
    assert_int_equal(rein_report_live_page(&html, &policy, 0, NULL), REIN_OK);
    assert_int_equal(rein_report_live_page(&other, &same, 1, NULL), REIN_OK);
    assert_non_null(strstr(html.data, "\"key\":false"));
    assert_non_null(strstr(other.data, "\"key\":true"));
    assert_null(strstr(html.data, "@{"));
    assert_int_equal(hashed(html.data, policy.data, "<style>", "</style>"), 2);
    assert_int_equal(hashed(html.data, policy.data, "<script>", "</script>"), 2);
    static const char *const parts[] = {"default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
                                        "frame-ancestors 'none'"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) assert_non_null(strstr(policy.data, parts[i]));
    assert_null(strstr(policy.data, "unsafe"));
    assert_string_equal(policy.data, same.data);
    rein_text_free(&html), rein_text_free(&policy), rein_text_free(&other), rein_text_free(&same);
}

/* ------------------------------------------------------------------------------------------------------------------ episodes */

static void put_episodes(void) {
    put("config.yaml", "model: m\n");
    put("trajectories/train/0001.jsonl",
        "{\"trajectories\": [{\"prompt_ids\": [1], \"response_ids\": [2, 3, 4, 5], \"mask\": [1, 0, 1, 1], \"reward\": 2, "
        "\"advantages\": [1, 0, 1, 1], \"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
        "\"content\": \"u\"}, {\"role\": \"assistant\", \"content\": \"two\"}, {\"role\": \"user\", \"content\": \"no <b>\"}, "
        "{\"role\": \"assistant\", \"content\": \"four five\"}], \"turn_rewards\": [-0.5, 2.5], \"metadata\": {\"messages\": "
        "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"u\"}], \"pieces\": "
        "[\"two\", \"u:\", \"four\", \" five\"]}}]}\n"
        "{\"trajectories\": [{\"messages_and_choices\": [{\"role\": \"user\", \"content\": \"add\"}, {\"finish_reason\": "
        "\"tool_calls\", \"message\": {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"1\", \"type\": "
        "\"function\", \"function\": {\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 3}\"}}]}}, {\"role\": \"tool\", \"name\": "
        "\"add\", \"content\": [{\"type\": \"text\", \"text\": \"7\"}]}, {\"role\": \"assistant\", \"content\": \"7\"}], "
        "\"reward\": 1}, {\"messages_and_choices\": [{\"role\": \"user\", \"content\": \"one\"}, {\"role\": \"assistant\", "
        "\"content\": \"turn\"}], \"reward\": 0}]}\n");
}

static void test_episodes(void **state) {
    (void)state;
    put_episodes();
    json_t *one = report();
    const json_t *groups = at(one, "samples.0.groups"), *art = at(groups, "0"), *played = at(groups, "1");
    const json_t *turns = at(played, "responses.0.turns");
    assert_string_equal(text_at(played, "prompt"), "system: s\n\nuser: u");
    assert_int_equal(json_array_size(turns), 3);
    assert_string_equal(text_at(turns, "0.role"), "assistant");
    assert_true(number_at(turns, "0.reward") == -0.5 && number_at(turns, "2.reward") == 2.5);
    assert_null(at(turns, "1.reward"));
    assert_string_equal(text_at(turns, "1.text"), "no <b>");
    assert_string_equal(text_at(art, "prompt"), "user: add");
    turns = at(art, "responses.0.turns");
    assert_int_equal(json_array_size(turns), 3);
    assert_string_equal(text_at(turns, "0.calls.0.name"), "add");
    assert_string_equal(text_at(turns, "0.calls.0.arguments"), "{\"a\": 3}");
    assert_null(at(turns, "0.text"));
    assert_string_equal(text_at(turns, "1.tool"), "add");
    assert_string_equal(text_at(turns, "1.text"), "7");
    assert_null(at(art, "responses.1.turns")); /* a single answer is a completion */
    json_decref(one);
}

static void test_endless_episodes_are_cut(void **state) {
    static char text[400000];
    size_t n = 0;
    (void)state;
    put("config.yaml", "model: m\n");
    for (int i = 0; i < 200; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, ", {\"role\": \"%s\", \"content\": \"%*s\"}", i % 2 ? "user" : "assistant",
                              i < 100 ? 3 : 1500, "x");
    put("trajectories/train/0001.jsonl",
        "{\"trajectories\": [{\"reward\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"%s\"}%s]}]}\n", "q", text);
    json_t *one = report();
    const json_t *response = at(one, "samples.0.groups.0.responses.0");
    assert_int_equal(size_at(response, "turns"), REIN_SHOWN_TURNS);
    assert_true(number_at(response, "more_turns") == 200 - REIN_SHOWN_TURNS);
    json_decref(one);
    put("trajectories/train/0001.jsonl",
        "{\"trajectories\": [{\"reward\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"%s\"}%s]}]}\n", "q", text + n / 2);
    one = data_after(0);
    char *dump = json_dumps(one, 0);
    assert_true(strlen(dump) < 100000);
    free(dump);
    json_decref(one);
}

/* ------------------------------------------------------------------------------------------------------------- without memory */

static rein_status make_data(void *context, rein_error *err) {
    rein_text text = {0};
    const rein_status status = rein_report_data(&text, run, context ? 1 : -1, err);
    rein_text_free(&text);
    return status;
}

static rein_status make_page(void *context, rein_error *err) {
    rein_text html = {0}, policy = {0};
    (void)context;
    const rein_status status = rein_report_live_page(&html, &policy, 1, err);
    rein_text_free(&html);
    rein_text_free(&policy);
    return status;
}

static void test_memory_that_runs_out(void **state) {
    (void)state;
    if (!can_fail()) skip();
    put_small_run();
    put_episodes();
    assert_true(fail_each_allocation(make_data, NULL) > 100);
    assert_true(fail_each_allocation(make_data, run) > 50);
    assert_true(fail_each_allocation(make_page, NULL) > 2);
}

int main(void) {
#define EACH(test) cmocka_unit_test_setup_teardown(test, make_run, remove_folder)
    const struct CMUnitTest tests[] = {
        EACH(test_all_of_it_is_the_report),
        EACH(test_what_came_after_a_step),
        EACH(test_the_end_of_a_long_history),
        EACH(test_a_run_that_went_back),
        EACH(test_a_directory_that_is_no_run),
        EACH(test_the_page),
        EACH(test_episodes),
        EACH(test_endless_episodes_are_cut),
        EACH(test_memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
