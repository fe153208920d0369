/* test_html.c - the report: what is in its data, what is left out, what is said of what cannot be read, and that nothing in a run can get out
 * of its place in the page. What the page shows of it is tested with a browser (tests/parity/report). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "html_fixture.h"
#include "report/html_parts.h"
#include "support/allocation.h"

/* ------------------------------------------------------------------------------------------------------------- what there is */

static void put_trajectories(void) {
    put("trajectories/train/0001.jsonl",
        "{\"trajectories\": [{\"prompt_ids\": [1, 2], \"response_ids\": [3], \"reward\": 1}, {\"prompt_ids\": [1, 2], "
        "\"response_ids\": "
        "[4, 5], \"reward\": 1}]}\n"
        "{\"trajectories\": [{\"prompt_ids\": [1], \"response_ids\": [7, 8, 9], \"mask\": [1, 0, 1], \"reward\": -0.5, "
        "\"advantages\": [-1, -1, -1], \"truncated\": true, \"metadata\": {\"pieces\": [\"a\", \"\\n\", \"\"]}}, "
        "{\"prompt_ids\": [1], \"response_ids\": [7, 8], \"reward\": 1.5, \"advantages\": [0.123456, 2], \"metrics\": "
        "{\"accuracy\": "
        "1}, \"metadata\": {\"prompt\": \"never read\"}}]}\n");
    put("trajectories/train/0002.jsonl",
        "{\"trajectories\": [{\"prompt_ids\": [1], \"response_ids\": [2, 2, 2, 2], \"reward\": 0}]}\n");
    put("trajectories/eval/0000.jsonl",
        "{\"trajectories\": [{\"prompt_ids\": [1], \"response_ids\": [1, 1, 1], \"reward\": 0, \"metrics\": {\"accuracy\": 0}, "
        "\"metadata\": {\"prompt\": \"one\", \"answer\": \"1\", \"pieces\": [\"x\", \"y\", \"\"]}}]}\n"
        "{\"trajectories\": [{\"prompt_ids\": [2], \"response_ids\": [1], \"reward\": 0, \"metrics\": {\"accuracy\": 1}, "
        "\"metadata\": "
        "{\"messages\": [{\"role\": \"user\", \"content\": \"two\"}, {\"role\": \"assistant\", \"content\": \"?\"}]}}]}\n");
    put("trajectories/eval/0002.jsonl",
        "{\"trajectories\": [{\"prompt_ids\": [2], \"response_ids\": [1], \"reward\": 0, \"metrics\": {\"accuracy\": 1}, "
        "\"metadata\": "
        "{\"messages\": [{\"role\": \"user\", \"content\": \"two\"}, {\"role\": \"assistant\", \"content\": \"?\"}]}}]}\n"
        "{\"trajectories\": [{\"prompt_ids\": [1], \"response_ids\": [1, 1], \"reward\": 1, \"metrics\": {\"accuracy\": 1}, "
        "\"metadata\": {\"prompt\": \"one\", \"answer\": \"1\", \"pieces\": [\"z\", \"\"]}}]}\n"
        "{\"trajectories\": [{\"prompt_ids\": [3], \"response_ids\": [1, 1], \"reward\": 1}]}\n");
}

static void put_run(void) {
    put("config.yaml", "model: \"my models/m\"\npreset: grpo\ntask: sums\nsteps: \"2\"\nstop: [a, b]\ntemperature: \"0.5\"\n");
    put("history.jsonl", "{\"step\": 1, \"reward\": 0.25, \"kl\": null, \"step_time\": 1.5}\n"
                         "{\"step\": 2, \"reward\": 0.5, \"kl\": 0.125, \"step_time\": 2, \"eval/accuracy\": 9}\n");
    put("evaluations.jsonl", "{\"step\": 0, \"eval/accuracy\": 0.5}\n{\"step\": 2, \"eval/accuracy\": 1}\n");
    put("summary.json", "{\"base\": {\"accuracy\": 0.5}, \"budget\": 3}");
    put("checkpoints/0002/adapter_config.json", "{}");
    put_trajectories();
}

static void test_curves(void **state) {
    (void)state;
    put_run();
    json_t *one = report();
    assert_string_equal(text_at(one, "name"), "run");
    assert_string_equal(text_at(one, "path"), run);
    assert_int_equal(size_at(one, "notes"), 0);
    assert_true(number_at(one, "metrics.reward.steps.0") == 1 && number_at(one, "metrics.reward.steps.1") == 2);
    assert_true(number_at(one, "metrics.reward.values.0") == 0.25 && number_at(one, "metrics.reward.values.1") == 0.5);
    assert_true(json_is_null(at(one, "metrics.kl.values.0")) && number_at(one, "metrics.kl.values.1") == 0.125);
    assert_null(at(one, "metrics.step"));
    assert_true(number_at(one, "steps") == 2 && number_at(one, "seconds") == 3.5);
    assert_int_equal(size_at(one, "metrics.eval/accuracy.values"), 2); /* the file of evaluations takes precedence */
    assert_true(number_at(one, "metrics.eval/accuracy.steps.0") == 0 && number_at(one, "metrics.eval/accuracy.values.1") == 1);
    assert_true(number_at(one, "summary.base.accuracy") == 0.5 && number_at(one, "summary.budget") == 3);
    json_decref(one);
}

static void test_settings_and_commands(void **state) {
    char wanted[900];
    (void)state;
    put_run();
    json_t *one = report();
    assert_int_equal(size_at(one, "settings"), 6);
    assert_string_equal(text_at(one, "settings.0.0"), "model");
    assert_string_equal(text_at(one, "settings.0.1"), "my models/m");
    assert_string_equal(text_at(one, "settings.4.1"), "a, b");
    snprintf(wanted, sizeof wanted, "rein run %s --steps 4", run);
    assert_string_equal(command(one, "Resume"), wanted);
    snprintf(wanted, sizeof wanted, "rein eval %s --against base", run);
    assert_string_equal(command(one, "Evaluate"), wanted);
    snprintf(wanted, sizeof wanted,
             "rein generate --model 'my models/m' --adapter %s/checkpoints/0002 --prompt one --temperature 0.5", run);
    assert_string_equal(command(one, "Sample"), wanted);
    json_decref(one);
}

/* Settings that rein does not write: what is not a name with a text or a list is left out, and what follows it is right. */
static void test_settings_of_others(void **state) {
    char many[30000] = "";
    (void)state;
    for (int i = 0; i < 4000; i++) strcat(many, i ? ", item" : "item");
    put("config.yaml",
        "model: &m name\ncopy: *m\nnested: {a: 1, b: [2]}\n? [k, l]\n: value\n*m : other\nstop: [a, [b], {c: d}, e]\nlong: "
        "[%s]\nlast: 1\n",
        many);
    json_t *one = report();
    assert_int_equal(size_at(one, "settings"), 4);
    assert_string_equal(text_at(one, "settings.0.0"), "model");
    assert_string_equal(text_at(one, "settings.0.1"), "name");
    assert_string_equal(text_at(one, "settings.1.1"), "a, e");
    const char *list = text_at(one, "settings.2.1");
    assert_memory_equal(list, "item, item, ", 12);
    assert_string_equal(list + strlen(list) - strlen(", …"), ", …");
    assert_string_equal(text_at(one, "settings.3.0"), "last");
    json_decref(one);
    static const char *const wrong[] = {"[1, 2]\n", "text\n", "# nothing\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put("config.yaml", "%s", wrong[i]);
        one = report();
        if (!noted(one, "config.yaml is not a mapping of names to values")) fail_msg("%s", wrong[i]);
        json_decref(one);
    }
}

/* A group whose responses differ comes before one in which they do not; the best response first. */
static void test_samples(void **state) {
    (void)state;
    put_run();
    json_t *one = report();
    assert_int_equal(size_at(one, "samples"), 2);
    assert_true(number_at(one, "samples.0.step") == 1 && number_at(one, "samples.1.step") == 2);
    assert_int_equal(size_at(one, "samples.0.groups"), 2);
    const json_t *group = at(one, "samples.0.groups.0"), *best = at(group, "responses.0"), *worst = at(group, "responses.1");
    assert_true(number_at(group, "of") == 2 && number_at(group, "prompt_tokens") == 1);
    assert_true(number_at(best, "reward") == 1.5 && number_at(best, "accuracy") == 1 && number_at(best, "tokens") == 2);
    assert_int_equal(size_at(best, "ids"), 2); /* no texts */
    assert_true(number_at(best, "ids.1") == 8 && number_at(best, "advantages.0") == 0.1235 && number_at(best, "advantages.1") == 2);
    assert_null(at(best, "mask"));
    assert_true(number_at(worst, "advantages") == -1); /* the same for all tokens */
    assert_true(number_at(worst, "mask.1") == 0 && number_at(worst, "mask.2") == 1);
    assert_string_equal(text_at(worst, "pieces.0"), "a");
    assert_string_equal(text_at(worst, "pieces.1"), "\n");
    assert_true(json_is_true(at(worst, "truncated")) && !at(worst, "accuracy"));
    json_decref(one);
}

/* A file that another program wrote: masks that are true and false, values of other types, conversations in place of a prompt. */
static void test_samples_of_others(void **state) {
    char long_text[6001];
    (void)state;
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    put("trajectories/train/0001.jsonl",
        "{\"trajectories\": [{\"response_ids\": [1, 2, 3], \"reward\": \"1\", \"mask\": [true, false, 2], \"advantages\": [1, "
        "null, 2], "
        "\"metadata\": {\"prompt\": 5, \"answer\": 6, \"pieces\": [\"a\", 7, \"c\"], \"messages\": [{\"role\": \"user\", "
        "\"content\": \"hi\"}, "
        "{\"content\": \"no role\"}, {\"role\": \"tool\"}, {\"role\": \"user\", \"content\": \"%s\"}, {\"role\": \"last\"}]}}]}\n",
        long_text);
    put("trajectories/train/0002.jsonl",
        "{\"trajectories\": [{\"response_ids\": [1, \"2\"], \"mask\": [true, true], \"truncated\": 1, "
        "\"metadata\": {\"prompt\": \"p\", \"answer\": \"a\"}}, {\"response_ids\": 5, \"reward\": 1}]}\n");
    json_t *one = report();
    const json_t *group = at(one, "samples.0.groups.0"), *odd = at(group, "responses.0");
    assert_null(at(odd, "reward"));
    assert_true(number_at(odd, "mask.0") == 1 && number_at(odd, "mask.1") == 0 && number_at(odd, "mask.2") == 1);
    assert_true(number_at(odd, "advantages.0") == 1 && json_is_null(at(odd, "advantages.1")) &&
                number_at(odd, "advantages.2") == 2);
    assert_string_equal(text_at(odd, "pieces.1"), "");
    assert_string_equal(text_at(odd, "pieces.2"), "c");
    assert_null(at(group, "answer"));
    static const char begin[] = "user: hi\n\n: no role\n\ntool: \n\nuser: xxx";
    assert_memory_equal(text_at(group, "prompt"), begin, sizeof begin - 1);
    assert_null(strstr(text_at(group, "prompt"), "last"));
    group = at(one, "samples.1.groups.0");
    assert_string_equal(text_at(group, "prompt"), "p");
    assert_string_equal(text_at(group, "answer"), "a");
    const json_t *others = at(group, "responses");
    assert_int_equal(json_array_size(others), 2);
    const json_t *plain = at(others, number_at(others, "0.tokens") == 2 ? "0" : "1");
    assert_true(number_at(plain, "ids.0") == 1 && json_is_null(at(plain, "ids.1")));
    assert_true(!at(plain, "mask") && !at(plain, "truncated"));
    json_decref(one);
}

/* The reward is what the task said; what a response was worth, after budgets and all, its advantages say. */
static void test_samples_are_in_the_order_of_their_worth(void **state) {
    (void)state;
    put("trajectories/train/0001.jsonl", "{\"trajectories\": [{\"response_ids\": [1, 1], \"reward\": 1, \"advantages\": [-1, 0]}, "
                                         "{\"response_ids\": [1], \"reward\": 1, \"advantages\": [0.5]}]}\n");
    json_t *one = report();
    const json_t *responses = at(one, "samples.0.groups.0.responses");
    assert_true(number_at(responses, "0.advantages") == 0.5 && number_at(responses, "1.advantages.0") == -1);
    json_decref(one);
}

static void test_before_and_after(void **state) {
    (void)state;
    put_run();
    json_t *one = report();
    const json_t *c = at(one, "compare");
    assert_true(number_at(c, "before_step") == 0 && number_at(c, "after_step") == 2 && number_at(c, "of") == 2);
    assert_true(number_at(c, "wrong_right") == 1 && number_at(c, "right_right") == 1);
    assert_true(number_at(c, "right_wrong") == 0 && number_at(c, "wrong_wrong") == 0 && number_at(c, "unknown") == 0);
    assert_string_equal(text_at(c, "prompts.0.prompt"), "one");
    assert_string_equal(text_at(c, "prompts.0.answer"), "1");
    assert_string_equal(text_at(c, "prompts.0.before.text"), "xy");
    assert_string_equal(text_at(c, "prompts.0.after.text"), "z");
    assert_true(number_at(c, "prompts.0.before.tokens") == 3 && number_at(c, "prompts.0.after.accuracy") == 1);
    assert_string_equal(text_at(c, "prompts.1.prompt"), "user: two\n\nassistant: ?");
    assert_true(json_is_true(at(one, "lengths.held_out")));
    assert_int_equal(size_at(one, "lengths.first.values"), 2);
    assert_int_equal(size_at(one, "lengths.last.values"), 3);
    assert_true(number_at(one, "lengths.last.step") == 2 && number_at(one, "lengths.first.values.0") == 3);
    json_decref(one);
}

/* Of each kind some, also of a rare one; of several samples, how many were right. */
static void test_prompts_are_chosen_from_every_kind(void **state) {
    FILE *files[2];
    (void)state;
    put("trajectories/eval/0000.jsonl", "%s", "");
    for (int f = 0; f < 2; f++) {
        char path[600];
        snprintf(path, sizeof path, "%s/trajectories/eval/%04d.jsonl", run, 10 * f);
        assert_non_null(files[f] = fopen(path, "w"));
        for (int i = 0; i < 50; i++) {
            const int rare = i == 49, right = f ? !rare : rare; /* all become right, but the last, which becomes wrong */
            fprintf(files[f],
                    "{\"trajectories\": [{\"prompt_ids\": [%d], \"response_ids\": [1], \"metrics\": {\"accuracy\": %d}}, ", i,
                    right);
            fprintf(files[f], "{\"prompt_ids\": [%d], \"response_ids\": [1], \"metrics\": {\"accuracy\": 1}}]}\n", i);
        }
        fclose(files[f]);
    }
    json_t *one = report();
    assert_true(number_at(one, "compare.wrong_right") == 49 && number_at(one, "compare.right_wrong") == 1);
    assert_int_equal(size_at(one, "compare.prompts"), REIN_SHOWN_PROMPTS);
    const json_t *last = json_array_get(at(one, "compare.prompts"), REIN_SHOWN_PROMPTS - 1);
    assert_true(number_at(last, "before.right") == 2 && number_at(last, "after.right") == 1 && number_at(last, "after.of") == 2);
    json_decref(one);
}

/* ---------------------------------------------------------------------------------------------------------- what there is not */

static void test_missing_parts(void **state) {
    (void)state;
    put("config.yaml", "model: m\n");
    json_t *one = report();
    assert_int_equal(json_object_size(at(one, "metrics")), 0);
    assert_true(!at(one, "steps") && !at(one, "summary") && !at(one, "compare") && !at(one, "lengths") && !at(one, "seconds"));
    assert_int_equal(size_at(one, "samples"), 0);
    assert_int_equal(size_at(one, "notes"), 0);
    assert_string_equal(command(one, "Sample"), ""); /* there is no checkpoint */
    assert_string_equal(command(one, "Evaluate"), "");
    assert_non_null(strstr(command(one, "Resume"), "rein train "));
    json_decref(one);

    put("config.yaml", "%s", "");
    put("history.jsonl", "%s", "");
    put("sft.json", "{}");
    put("checkpoints/0003/model.safetensors", "%s", "");
    one = report();
    assert_non_null(strstr(command(one, "Resume"), "rein sft "));
    assert_true(noted(one, "config.yaml is not a mapping"));
    json_decref(one);

    put("config.yaml", "model: m\n"); /* all weights: the checkpoint is the model */
    one = report();
    assert_non_null(strstr(command(one, "Sample"), "/checkpoints/0003 --prompt ..."));
    assert_null(strstr(command(one, "Sample"), "--adapter"));
    json_decref(one);
}

/* A run with a plan is resumed by the command that made it. */
static void test_plans(void **state) {
    (void)state;
    static const char *const commands[] = {"sft", "dpo", "reward", "distill"};
    const char *found = "";
    put("config.yaml", "model: m\n");
    put("other.json", "{}");
    assert_int_equal(rein_report_plan(&found, run, NULL), REIN_OK);
    assert_null(found);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char file[40], resumed[40], path[400];
        snprintf(file, sizeof file, "%s.json", commands[i]);
        snprintf(resumed, sizeof resumed, "rein %s ", commands[i]);
        snprintf(path, sizeof path, "%s/%s", run, file);
        put(file, "{}");
        assert_int_equal(rein_report_plan(&found, run, NULL), REIN_OK);
        assert_string_equal(found, commands[i]);
        json_t *one = report();
        assert_non_null(strstr(command(one, "Resume"), resumed));
        json_decref(one);
        assert_int_equal(unlink(path), 0);
    }
}

static void test_a_run_that_was_gone_on_with(void **state) {
    (void)state;
    put("history.jsonl", "{\"step\": 1, \"a\": 1}\n{\"step\": 2, \"a\": 2, \"b\": 2}\n{\"step\": 3, \"a\": 3, \"b\": 3}\n"
                         "{\"step\": 2, \"a\": 20}\n");
    json_t *one = report();
    assert_int_equal(size_at(one, "metrics.a.values"), 2);
    assert_true(number_at(one, "metrics.a.values.1") == 20 && number_at(one, "steps") == 2);
    assert_null(at(one, "metrics.b"));
    json_decref(one);
}

static void test_damage_is_said(void **state) {
    (void)state;
    put("config.yaml", "a: [\n");
    put("summary.json", "{\"base\": ");
    put("history.jsonl", "{\"step\": 1, \"a\": 1}\nnot JSON\n{\"step\": -1}\n\n{\"step\": 2, \"a\": 2, \"note\": "
                         "\"caf\xe9\"}\n{\"step\": 3, \"a\": ");
    put("trajectories/train/0001.jsonl", "{}\n{\"trajectories\": 5}\n{\"trajectories\": [7]}\n{\"trajectories\": [{}]}\n");
    put("trajectories/train/9.jsonl", "not ours\n");
    assert_int_equal(rein_make_directories(folder, NULL), REIN_OK);
    char path[600];
    snprintf(path, sizeof path, "%s/evaluations.jsonl", run);
    assert_int_equal(mkdir(path, 0777), 0);
    json_t *one = report();
    assert_true(noted(one, "config.yaml: line 2"));
    assert_true(noted(one, "summary.json: base (line 1"));
    assert_true(noted(one, "history.jsonl: line 2 does not start with {"));
    assert_true(noted(one, "a line without a step"));
    assert_true(noted(one, "history.jsonl: line 5 has bytes that are not UTF-8"));
    assert_true(noted(one, "evaluations.jsonl is not a regular file"));
    assert_int_equal(size_at(one, "notes"), 6); /* the last line was being written: that is no damage */
    assert_int_equal(size_at(one, "metrics.a.values"), 2);
    assert_int_equal(size_at(one, "samples"), 1);
    assert_true(number_at(one, "samples.0.groups.0.responses.0.tokens") == 0);
    json_decref(one);
}

/* ------------------------------------------------------------------------------------------------------------------ hostile texts */

static const char hostile[] = "</script><script>alert(1)</script><!-- \"quoted\" 'too' & \xf0\x9f\xa6\x84 \\";

static size_t count(const char *text, const char *part) {
    size_t n = 0;
    while ((text = strstr(text, part))) n++, text++;
    return n;
}

/* Whatever stands in a run, the page has the same elements, and the text comes back as it was. */
static void test_nothing_gets_out_of_its_place(void **state) {
    char old[300];
    (void)state;
    put("config.yaml", "model: m\n");
    json_decref(report());
    char *plain = read_page();
    json_t *text = json_string(hostile);
    char *quoted = json_dumps(text, JSON_ENCODE_ANY);
    memcpy(old, run, sizeof old);
    snprintf(run, sizeof run, "%s/<b title=\"a&b\">", folder);
    put("config.yaml", "system: %s\n%s: b\n", quoted, quoted);
    put("history.jsonl", "{\"step\": 1, %s: 1}\n", quoted);
    put("summary.json", "{%s: %s}", quoted, quoted);
    put("trajectories/train/0001.jsonl",
        "{\"trajectories\": [{\"prompt_ids\": [1], \"response_ids\": [1], \"reward\": 1, \"metadata\": {\"prompt\": %s, "
        "\"answer\": \"\xe2\x80\xa8]]>\", "
        "\"pieces\": [%s]}}]}\n",
        quoted, quoted);
    put("trajectories/train/0002.jsonl", "%s\n", hostile);
    json_t *one = report();
    char *page = read_page();
    assert_int_equal(count(page, "<"), count(plain, "<"));
    assert_int_equal(count(page, "</script"), count(plain, "</script"));
    assert_non_null(strstr(page, "<title>&lt;b title=&quot;a&amp;b&quot;&gt; · rein</title>"));
    assert_string_equal(text_at(one, "settings.0.1"), hostile);
    assert_non_null(json_object_get(json_object_get(one, "metrics"), hostile));
    assert_string_equal(text_at(one, "samples.0.groups.0.prompt"), hostile);
    assert_string_equal(text_at(one, "samples.0.groups.0.answer"), "\xe2\x80\xa8]]>");
    assert_string_equal(text_at(one, "samples.0.groups.0.responses.0.pieces.0"), hostile);
    assert_string_equal(text_at(one, "name"), "<b title=\"a&b\">");
    assert_non_null(strstr(command(one, "Write"), "'"));
    json_decref(one);
    json_decref(text);
    free(quoted);
    free(page);
    free(plain);
    memcpy(run, old, sizeof old);
}

/* The policy names each style and each script by its hash, and allows no other. tests/cli/run_report.sh computes the hashes again. */
static void test_the_policy_names_hashes(void **state) {
    (void)state;
    put_run();
    json_decref(report());
    char *page = read_page();
    assert_null(strstr(page, "unsafe-"));
    assert_int_equal(count(page, "'sha256-"), count(page, "<style>") + count(page, "<script>"));
    assert_int_equal(count(page, "style-src 'sha256-") + count(page, "script-src 'sha256-"), 2);
    assert_null(strstr(page, " style=\""));
    free(page);
}

static void test_bytes_that_are_no_text(void **state) {
    char old[300];
    (void)state;
    memcpy(old, run, sizeof old);
    snprintf(run, sizeof run, "%s/n\xff\xfe", folder);
    put("config.yaml", "model: m\n");
    put("trajectories/train/0001.jsonl", "{\"trajectories\": [{\"prompt_ids\": [1], \"response_ids\": [1], \"reward\": 1, "
                                         "\"metadata\": {\"pieces\": [\"a\xf0\x9f b\x80\"]}}]}\n");
    json_t *one = report();
    assert_string_equal(text_at(one, "name"), "n\xef\xbf\xbd\xef\xbf\xbd");
    assert_string_equal(text_at(one, "samples.0.groups.0.responses.0.pieces.0"), "a\xef\xbf\xbd b\xef\xbf\xbd");
    json_decref(one);
    memcpy(run, old, sizeof old);
}

static void test_quotes_of_the_shell(void **state) {
    (void)state;
    put("config.yaml", "model: \"it's $HOME; rm\"\n");
    put("checkpoints/0001/adapter_config.json", "{}");
    json_t *one = report();
    assert_non_null(strstr(command(one, "Sample"), "--model 'it'\\''s $HOME; rm' --adapter "));
    json_decref(one);
}

/* ------------------------------------------------------------------------------------------------------------------------- limits */

static void test_long_histories_are_thinned(void **state) {
    enum { LINES = 7001, PEAK = 4321 };
    (void)state;
    char *text = malloc(LINES * 40), *end = text;
    for (int i = 0; i < LINES; i++) end += snprintf(end, 40, "{\"step\":%d,\"a\":%d}\n", i, i == PEAK ? 999999 : i % 7);
    put("history.jsonl", "%s", text);
    free(text);
    json_t *one = report();
    const json_t *steps = at(one, "metrics.a.steps"), *values = at(one, "metrics.a.values");
    const size_t n = json_array_size(values);
    int peak = 0;
    assert_true(n > REIN_SHOWN_POINTS / 2 && n <= REIN_SHOWN_POINTS);
    assert_int_equal(json_array_size(steps), n);
    assert_true(number_at(one, "metrics.a.of") == LINES);
    for (size_t i = 0; i < n; i++) {
        const double step = json_number_value(json_array_get(steps, i)), value = json_number_value(json_array_get(values, i));
        if (i) assert_true(step > json_number_value(json_array_get(steps, i - 1)));
        assert_true(value == (step == PEAK ? 999999 : fmod(step, 7)));
        peak |= step == PEAK;
    }
    assert_true(peak);
    assert_true(json_number_value(json_array_get(steps, 0)) == 0 && json_number_value(json_array_get(steps, n - 1)) == LINES - 1);
    json_decref(one);
}

static void test_large_runs_stay_small(void **state) {
    char name[100];
    struct stat about;
    (void)state;
    enum { TOKENS = 5000, GROUPS = 40, STEPS = 30 };
    char *ids = malloc(TOKENS * 2 + 10), *line = malloc(TOKENS * 2 + 20000), *file = malloc((TOKENS * 2 + 20000) * (size_t)GROUPS),
         *end = ids;
    for (int i = 0; i < TOKENS; i++) end += snprintf(end, 4, "%s1", i ? "," : "");
    char prompt[9000];
    memset(prompt, 'x', sizeof prompt);
    memcpy(prompt + REIN_SHOWN_TEXT - 1, "\xe2\x82\xac", 3); /* the cut would go through this */
    prompt[sizeof prompt - 1] = 0;
    sprintf(line, "{\"trajectories\":[{\"prompt_ids\":[1],\"response_ids\":[%s],\"reward\":1,\"metadata\":{\"prompt\":\"%s\"}}]}\n",
            ids, prompt);
    end = file;
    for (int i = 0; i < GROUPS; i++) end += sprintf(end, "%s", line);
    for (int i = 1; i <= STEPS; i++) {
        snprintf(name, sizeof name, "trajectories/train/%04d.jsonl", i);
        put(name, "%s", i == 1 || i == STEPS ? file : line);
    }
    json_t *one = report();
    assert_int_equal(size_at(one, "samples"), REIN_SHOWN_STEPS);
    assert_true(number_at(one, "samples.0.step") == 1 && number_at(one, "samples.5.step") == STEPS);
    assert_true(number_at(one, "samples.2.step") == 13);
    const json_t *response = at(one, "samples.0.groups.0.responses.0");
    assert_true(number_at(response, "tokens") == TOKENS);
    assert_int_equal(size_at(response, "ids"), REIN_SHOWN_TOKENS);
    const char *shown = text_at(one, "samples.0.groups.0.prompt");
    assert_int_equal(strlen(shown), REIN_SHOWN_TEXT - 1 + strlen("…"));
    assert_string_equal(shown + REIN_SHOWN_TEXT - 1, "…");
    assert_int_equal(size_at(one, "lengths.first.values"), GROUPS);
    assert_int_equal(stat(page_path, &about), 0);
    assert_true(about.st_size < 400000);
    json_decref(one);
    free(ids);
    free(line);
    free(file);
}

static void test_many_metrics_and_notes(void **state) {
    (void)state;
    char *text = malloc(300 * 40 + 40 * 20), *end = text;
    end += sprintf(end, "{\"step\": 1");
    for (int i = 0; i < 300; i++) end += sprintf(end, ", \"m%d\": %d", i, i);
    end += sprintf(end, "}\n");
    for (int i = 0; i < 30; i++) end += sprintf(end, "wrong\n");
    put("history.jsonl", "%s", text);
    free(text);
    json_t *one = report();
    assert_int_equal(json_object_size(at(one, "metrics")), REIN_SHOWN_METRICS);
    assert_int_equal(size_at(one, "notes"), REIN_SHOWN_NOTES);
    assert_true(number_at(one, "more_notes") == 30 + 1 - REIN_SHOWN_NOTES);
    json_decref(one);
}

/* --------------------------------------------------------------------------------------------------------------- several, and none */

static void test_several_runs(void **state) {
    char other[310];
    rein_error err = {0};
    (void)state;
    put_run();
    snprintf(other, sizeof other, "%s/", run);
    assert_int_equal(rein_report_write(page_path, (const char *const[]){run, other}, 2, &err), REIN_OK);
    char *page = read_page();
    json_t *data = data_of(page);
    assert_int_equal(size_at(data, "runs"), 2);
    assert_string_equal(text_at(data, "runs.1.name"), "run"); /* the slash is no part of it */
    assert_non_null(strstr(page, "<title>run, run · rein</title>"));
    json_decref(data);
    assert_int_equal(rein_report_write(page_path, (const char *const[]){run, other}, 2, &err), REIN_OK);
    char *again = read_page();
    assert_string_equal(again, page);
    free(page);
    free(again);
}

static void refused(const char *path, const char *const *runs, size_t n, rein_status wanted, const char *part) {
    rein_error err = {0};
    assert_int_equal(rein_report_write(path, runs, n, &err), wanted);
    if (!strstr(err.message, part)) fail_msg("\"%s\" is not in \"%s\"", part, err.message);
}

static void test_errors(void **state) {
    char path[600];
    const char *many[REIN_REPORT_RUNS + 1];
    (void)state;
    put("config.yaml", "model: m\n");
    put("file", "%s", "");
    put("other/README", "%s", "");
    json_decref(report());
    char *before = read_page();
    for (size_t i = 0; i <= REIN_REPORT_RUNS; i++) many[i] = run;
    refused(page_path, many, 0, REIN_EINVAL, "n is 0: 1 to");
    refused(page_path, many, REIN_REPORT_RUNS + 1, REIN_EINVAL, "n is 17: 1 to 16");
    refused("", many, 1, REIN_EINVAL, "is empty");
    snprintf(path, sizeof path, "%s/nothing", folder);
    refused(page_path, (const char *const[]){run, path}, 2, REIN_EIO, "nothing: cannot be opened");
    snprintf(path, sizeof path, "%s/file", run);
    refused(page_path, (const char *const[]){path}, 1, REIN_EIO, "cannot be opened");
    chmod(path, 0777);
    refused(page_path, (const char *const[]){path}, 1, REIN_EINVAL, "is not a directory");
    snprintf(path, sizeof path, "%s/other", run);
    refused(page_path, (const char *const[]){path}, 1, REIN_EINVAL, "is not a run");
    snprintf(path, sizeof path, "%s/nowhere/page.html", folder);
    refused(path, many, 1, REIN_EIO, "cannot be written");
    assert_int_equal(rein_report_write(page_path, many, 0, NULL), REIN_EINVAL); /* no message is wanted */
    char *after = read_page();
    assert_string_equal(after, before);
    free(before);
    free(after);
    rein_names names = {0};
    assert_int_equal(rein_directory_list(&names, folder, NULL), REIN_OK);
    assert_int_equal(names.n, 2); /* the run and the page: nothing is left behind */
    rein_names_free(&names);
}

static rein_status write_report(void *context, rein_error *err) {
    (void)context;
    return rein_report_write(page_path, (const char *const[]){run}, 1, err);
}

static void test_memory_that_runs_out(void **state) {
    (void)state;
    if (!can_fail()) skip();
    put("config.yaml", "model: m\ntask: t\nstop: [a]\n");
    put("history.jsonl", "{\"step\":1,\"a\":1}\n{\"step\":2,\"a\":\n");
    put("summary.json", "{\"steps\":1}");
    put("checkpoints/0001/adapter_config.json", "{}");
    put("trajectories/train/0001.jsonl", "{\"trajectories\":[{\"prompt_ids\":[1],\"response_ids\":[1],\"mask\":[0],\"reward\":1,"
                                         "\"advantages\":[1],\"metadata\":{\"pieces\":[\"\xff\"]}}]}\n");
    for (int f = 0; f < 2; f++)
        put(f ? "trajectories/eval/0001.jsonl" : "trajectories/eval/0000.jsonl",
            "{\"trajectories\":[{\"prompt_ids\":[1],\"response_ids\":[1],\"metadata\":{\"prompt\":\"p\",\"pieces\":[\"x\"]}}]}\n");
    assert_true(fail_each_allocation(write_report, NULL) > 100);
}

int main(void) {
#define EACH(test) cmocka_unit_test_setup_teardown(test, make_run, remove_folder)
    const struct CMUnitTest tests[] = {
        EACH(test_curves),
        EACH(test_settings_and_commands),
        EACH(test_settings_of_others),
        EACH(test_samples),
        EACH(test_samples_of_others),
        EACH(test_samples_are_in_the_order_of_their_worth),
        EACH(test_before_and_after),
        EACH(test_prompts_are_chosen_from_every_kind),
        EACH(test_missing_parts),
        EACH(test_plans),
        EACH(test_a_run_that_was_gone_on_with),
        EACH(test_damage_is_said),
        EACH(test_nothing_gets_out_of_its_place),
        EACH(test_the_policy_names_hashes),
        EACH(test_bytes_that_are_no_text),
        EACH(test_quotes_of_the_shell),
        EACH(test_long_histories_are_thinned),
        EACH(test_large_runs_stay_small),
        EACH(test_many_metrics_and_notes),
        EACH(test_several_runs),
        EACH(test_errors),
        EACH(test_memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
