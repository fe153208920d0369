/* test_groups.c - trajectory groups: the exact form, what is wrong with a file, counts and warnings, writing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <unistd.h>

#include "groups_fixture.h"

#define EXACT(rest) "{\"trajectories\": [{\"prompt_ids\": [1, 2], \"response_ids\": [3, 4], \"reward\": 1" rest "}]}"
#define ART(messages) "{\"trajectories\": [{\"messages_and_choices\": [" messages "], \"reward\": 1}]}"
#define USER "{\"role\": \"user\", \"content\": \"?\"}"
#define CHOICE(rest) "{\"finish_reason\": \"stop\", \"message\": {\"role\": \"assistant\", \"content\": \"4\"" rest "}"

/* --------------------------------------------------------------------------------------------------------------- the exact form */

static const char exact_lines[] =
    "{\"trajectories\": [{\"prompt_ids\": [5, 6], \"response_ids\": [7, 8, 9], \"logprobs\": [-0.1, null, -2], \"mask\": [1, 0, "
    "true], "
    "\"values\": [0.5, null, 1], \"policy_step\": 12, \"reward\": 0.1, \"truncated\": true, \"budget\": 100, \"metrics\": {\"a\": "
    "1}, "
    "\"mine\": [1.5, \"\\u00e9\"], \"additional_histories\": [{\"prompt_ids\": [1], \"response_ids\": [2], \"logprobs\": null}]}], "
    "\"scenario\": 3}\r\n"
    "\n  \n"
    "{\"trajectories\": [{\"prompt_ids\": [0, 2147483647], \"response_ids\": [], \"reward\": -2e-300}, "
    "{\"prompt_ids\": [], \"response_ids\": [4, 5], \"mask\": [false, 1], \"logprobs\": [-1, -1.2345678901], \"reward\": 3}]}";

static void test_exact(void **state) {
    (void)state;
    rein_groups groups = {0};
    rein_error err = {0};
    if (read_text(&groups, exact_lines, NULL, NULL, &err)) fail_msg("%s", err.message);
    assert_int_equal(groups.n, 2);
    const rein_trajectory *t = &groups.groups[0].trajectories[0];
    const rein_history *h = &t->histories[0];
    assert_int_equal(groups.groups[0].n, 1);
    assert_int_equal(t->n_histories, 2);
    assert_true(t->reward == 0.1 && t->policy_step == 12 && t->truncated == 1 && t->budget == 100);
    assert_int_equal(h->n, 5);
    assert_memory_equal(h->ids, ((const int32_t[]){5, 6, 7, 8, 9}), 5 * sizeof *h->ids);
    assert_memory_equal(h->mask, ((const uint8_t[]){0, 0, 1, 0, 1}), 5);
    assert_true(isnan(h->log_probs[0]) && h->log_probs[2] == -0.1F && isnan(h->log_probs[3]) && h->log_probs[4] == -2);
    assert_true(isnan(h->values[1]) && h->values[2] == 0.5F && isnan(h->values[3]) && h->values[4] == 1);
    assert_true(t->histories[1].n == 2 && t->histories[1].mask[1] == 1 && isnan(t->histories[1].log_probs[1]) &&
                !t->histories[1].values);
    t = &groups.groups[1].trajectories[1];
    assert_true(t->policy_step == -1 && t->budget == -1 && t->truncated == 0);
    assert_true(t->histories[0].n == 2 && t->histories[0].mask[0] == 0 && isnan(t->histories[0].log_probs[0]));
    assert_true(groups.groups[1].trajectories[0].histories[0].ids[1] == 2147483647);
    rein_groups_free(&groups);
    assert_true(!groups.groups && !groups.n && !groups.capacity);
    rein_groups_free(&groups);
}

static void test_exact_round_trip(void **state) {
    (void)state;
    rein_groups groups = {0}, back = {0};
    rein_error err = {0};
    if (read_text(&groups, exact_lines, NULL, NULL, &err)) fail_msg("%s", err.message);
    rein_text text = lines_of(&groups, REIN_GROUPS_EXACT);
    if (read_text(&back, text.data, NULL, NULL, &err)) fail_msg("%s", err.message);
    same_groups(&groups, &back);
    static const char *const kept[] = {
        "\"metrics\": {\"a\": 1}",
        "\"mine\": [1.5, \"é\"]",
        "], \"scenario\": 3}\n",
        "\"reward\": 0.1,",
        "\"prompt_ids\": [5, 6], \"response_ids\": [7, 8, 9], \"logprobs\": [-0.100000001, null, -2]",
        "\"mask\": [1, 0, 1]",
        "\"values\": [0.5, null, 1]",
        "\"reward\": -2e-300"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (!strstr(text.data, kept[i])) fail_msg("%s is not in %s", kept[i], text.data);
    rein_text_free(&text);
    rein_groups_free(&groups);
    rein_groups_free(&back);
}

/* Floats of every size come back as they were, and so do values before the first token that trains. */
static void test_any_float(void **state) {
    (void)state;
    rein_groups groups = {0}, back = {0};
    rein_error err = {0};
    uint32_t bits = 1;
    if (read_text(&groups, exact_lines, NULL, NULL, &err)) fail_msg("%s", err.message);
    rein_history *h = &groups.groups[0].trajectories[0].histories[0];
    for (int round = 0; round < 2000; round++) {
        float x;
        bits = bits * 1664525u + 1013904223u;
        const uint32_t negative = bits | 0x80000000u;
        memcpy(&x, &negative, sizeof x);
        if (round == 0) x = -0.0F;
        h->log_probs[2] = h->log_probs[4] = isfinite(x) ? x : NAN;
        h->values[1] = h->values[4] = isfinite(x) ? -x : NAN;
        groups.groups[0].trajectories[0].reward = isfinite(x) ? (double)x / 3 : 0;
        rein_text text = lines_of(&groups, REIN_GROUPS_EXACT);
        if (read_text(&back, text.data, NULL, NULL, &err)) fail_msg("%s", err.message);
        same_groups(&groups, &back);
        rein_groups_free(&back);
        rein_text_free(&text);
    }
    rein_groups_free(&groups);
}

/* ---------------------------------------------------------------------------------------------------------------- what is wrong */

typedef struct mistake {
    const char *text, *said; /* after "x.jsonl: line 1" */
} mistake;

/* Field and index are what the message begins with, and an index is not part of the field. Syntax errors of a whole line have no field. */
static void check_place(const rein_error *err) {
    static const char line[] = "x.jsonl: line 1: ";
    char place[200];
    if (strncmp(err->message, line, strlen(line)) != 0) {
        assert_string_equal(err->field, "");
        return;
    }
    if (err->index < 0) snprintf(place, sizeof place, "%s%s", line, err->field);
    else snprintf(place, sizeof place, "%s%s[%lld]", line, err->field, (long long)err->index);
    const char next = err->message[strlen(place)];
    if (!*err->field || strncmp(err->message, place, strlen(place)) != 0 || (next != ' ' && next != ':'))
        fail_msg("%s\n  is about \"%s\"", err->message, place);
    assert_int_not_equal(err->field[strlen(err->field) - 1], ']');
}

static void check_mistakes(const mistake *mistakes, size_t n, const rein_tokenizer *tokenizer, const char *format) {
    for (size_t i = 0; i < n; i++) {
        rein_groups groups = {0};
        rein_error err = {0};
        rein_chat chat;
        char wanted[400];
        if (format) assert_int_equal(rein_chat_named(&chat, format, NULL), REIN_OK);
        snprintf(wanted, sizeof wanted, "x.jsonl: line 1%s", mistakes[i].said);
        const rein_status status = read_text(&groups, mistakes[i].text, tokenizer, format ? &chat : NULL, &err);
        if (status != REIN_EINVAL || strncmp(err.message, wanted, strlen(wanted)) != 0)
            fail_msg("%s\n  says %d: %s\n  not %s", mistakes[i].text, (int)status, err.message, wanted);
        check_place(&err);
        assert_int_equal(groups.n, 0);
        assert_int_equal(read_text(&groups, mistakes[i].text, tokenizer, format ? &chat : NULL, NULL), REIN_EINVAL);
        rein_groups_free(&groups);
    }
}

static void test_mistakes(void **state) {
    (void)state;
    static const mistake mistakes[] = {
        {"[1]", " does not start with {: a JSON object is needed"},
        {"{\"trajectories\": [\n",
         ": trajectories[0] (column 18): the line ends here, inside the JSON: a line holds a whole value"},
        {"{\"a\": NaN}", ": a (column 9): NaN is not a finite number: JSON has neither NaN nor Infinity"},
        {"{\"a\": 1, \"a\": 2}", ": a is given twice, again at column 12"},
        {"{\"a\": 1} x", ", column 10: there is text after the JSON value"},
        {"{}", ": trajectories is missing: an array of trajectories is needed"},
        {"{\"trajectories\": 5}", ": trajectories is 5: an array"},
        {"{\"trajectories\": []}", ": trajectories is empty: a group has one trajectory or more"},
        {"{\"trajectories\": [\"x\"]}", ": trajectories[0] is \"x\": an object is needed"},
        {"{\"trajectories\": [{\"prompt_ids\": [1], \"response_ids\": [2]}]}",
         ": trajectories[0].reward is missing: a number is needed"},
        {EXACT(", \"x\": 1}, {\"reward\": null"), ": trajectories[1].reward is missing: a number"},
        {EXACT(", \"x\": 1}, {\"reward\": true"), ": trajectories[1].reward is true: a number"},
        {EXACT(", \"x\": 1}, {\"reward\": \"1\""), ": trajectories[1].reward is \"1\": a number"},
        {"{\"trajectories\": [{\"reward\": 1}]}",
         ": trajectories[0] has no tokens: prompt_ids and response_ids are needed, or messages_and_choices"},
        {"{\"trajectories\": [{\"reward\": 1, \"prompt_ids\": [1]}]}", ": trajectories[0].response_ids is missing: an array"},
        {"{\"trajectories\": [{\"reward\": 1, \"response_ids\": [1]}]}", ": trajectories[0].prompt_ids is missing: an array"},
        {"{\"trajectories\": [{\"reward\": 1, \"prompt_ids\": [], \"response_ids\": []}]}",
         ": trajectories[0].prompt_ids is empty, as is response_ids: there is no token"},
        {"{\"trajectories\": [{\"reward\": 1, \"prompt_ids\": [], \"response_ids\": [1]}]}",
         ": trajectories[0].prompt_ids is empty: the first token cannot train"},
        {"{\"trajectories\": [{\"reward\": 1, \"prompt_ids\": [1, -1], \"response_ids\": [1]}]}",
         ": trajectories[0].prompt_ids[1] is -1: a token id"},
        {"{\"trajectories\": [{\"reward\": 1, \"prompt_ids\": [1], \"response_ids\": [1, 2147483648]}]}",
         ": trajectories[0].response_ids[1] is 2147483648: a token id"},
        {"{\"trajectories\": [{\"reward\": 1, \"prompt_ids\": [1], \"response_ids\": [1.0]}]}",
         ": trajectories[0].response_ids[0] is 1: a token id"},
        {EXACT(", \"logprobs\": [-1]"), ": trajectories[0].logprobs has 1 entries, response_ids has 2: they must agree"},
        {EXACT(", \"mask\": [1, 1, 1]"), ": trajectories[0].mask has 3 entries, response_ids has 2"},
        {EXACT(", \"values\": []"), ": trajectories[0].values has 0 entries, response_ids has 2"},
        {EXACT(", \"logprobs\": [-1, 0.5]"), ": trajectories[0].logprobs[1] is 0.5: a log-probability (0 or below)"},
        {EXACT(", \"logprobs\": [-1e39, 0]"), ": trajectories[0].logprobs[0] is -1e+39: a log-probability"},
        {EXACT(", \"logprobs\": {}"), ": trajectories[0].logprobs is an object: an array"},
        {EXACT(", \"mask\": [1, 2]"), ": trajectories[0].mask[1] is 2: 0, 1, false or true"},
        {EXACT(", \"values\": [1, \"x\"]"), ": trajectories[0].values[1] is \"x\": a number"},
        {EXACT(", \"values\": [1, 1e39]"), ": trajectories[0].values[1] is 1e+39: a number"},
        {EXACT(", \"policy_step\": -1"), ": trajectories[0].policy_step is -1: a whole number"},
        {EXACT(", \"policy_step\": 1.5"), ": trajectories[0].policy_step is 1.5: a whole number"},
        {EXACT(", \"budget\": -1"), ": trajectories[0].budget is -1: a whole number"},
        {EXACT(", \"truncated\": 1"), ": trajectories[0].truncated is 1: true or false"},
        {EXACT(", \"additional_histories\": 1"), ": trajectories[0].additional_histories is 1: an array"},
        {EXACT(", \"additional_histories\": [[]]"), ": trajectories[0].additional_histories[0] is an array: an object"},
        {EXACT(", \"additional_histories\": [{\"prompt_ids\": [1]}]"),
         ": trajectories[0].additional_histories[0].response_ids is missing: an array"},
        {EXACT(", \"additional_histories\": [{}]"), ": trajectories[0].additional_histories[0] has no tokens"},
        {ART(USER), ": tokenizer is missing: trajectories[0].messages_and_choices cannot be read without one"},
    };
    check_mistakes(mistakes, sizeof mistakes / sizeof *mistakes, NULL, NULL);
}

static void test_mistakes_in_messages(void **state) {
    (void)state;
    static const mistake mistakes[] = {
        {ART(""), ": trajectories[0].messages_and_choices is empty: there is no message"},
        {ART("5"), ": trajectories[0].messages_and_choices[0] is 5: an object is needed"},
        {ART(CHOICE("}")), ": trajectories[0].messages_and_choices[0] is a Choice: a message is needed before it"},
        {ART("{\"content\": \"?\"}"), ": trajectories[0].messages_and_choices[0].role is missing: a text"},
        {ART("{\"role\": \"developer\"}"), ": trajectories[0].messages_and_choices[0].role is \"developer\": system, user"},
        {ART("{\"role\": \"user\", \"content\": 5}"), ": trajectories[0].messages_and_choices[0].content is 5: a text"},
        {ART("{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}"),
         ": trajectories[0].messages_and_choices[0].content[0].type is \"image_url\": only text"},
        {ART("{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}"),
         ": trajectories[0].messages_and_choices[0].content[0].text is missing: a text"},
        {ART(USER ", {\"role\": \"user\", \"content\": \"x\", \"trainable\": true}"),
         ": trajectories[0].messages_and_choices[1].role is \"user\": only what an assistant wrote can train"},
        {ART(USER ", {\"finish_reason\": \"stop\", \"message\": {\"role\": \"tool\"}}"),
         ": trajectories[0].messages_and_choices[1].message.role is \"tool\": only what an assistant wrote"},
        {ART(USER ", {\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}"),
         ": trajectories[0].messages_and_choices[1].tool_calls: the chat format chatml has no place for it here"},
        {ART(USER ", {\"role\": \"assistant\", \"tool_calls\": 5}"),
         ": trajectories[0].messages_and_choices[1].tool_calls is 5: an array"},
        {ART(USER ", {\"role\": \"assistant\", \"tool_calls\": \"{}\"}"),
         ": trajectories[0].messages_and_choices[1].tool_calls is \"{}\": an array"},
        {ART(USER ", {\"role\": \"assistant\", \"function_call\": {}}"),
         ": trajectories[0].messages_and_choices[1].function_call: the chat format chatml has no place"},
        {ART(USER ", " CHOICE(", \"reasoning_content\": \"hm\"}")),
         ": trajectories[0].messages_and_choices[1].message.reasoning_content: the chat format chatml has no place"},
        {ART(USER ", " CHOICE("}, \"logprobs\": 5")), ": trajectories[0].messages_and_choices[1].logprobs is 5: an object"},
        {ART(USER ", " CHOICE("}, \"logprobs\": {\"content\": 5}")),
         ": trajectories[0].messages_and_choices[1].logprobs.content is 5: an array"},
        {ART(USER ", " CHOICE("}, \"logprobs\": {\"content\": [{\"logprob\": -1}]}")),
         ": trajectories[0].messages_and_choices[1].logprobs.content[0].token is missing: a text"},
        {ART(USER ", " CHOICE("}, \"logprobs\": {\"content\": [{\"token\": \"4\", \"logprob\": 1}]}")),
         ": trajectories[0].messages_and_choices[1].logprobs.content[0].logprob is 1: a log-probability"},
        {ART(USER ", " CHOICE("}, \"logprobs\": {\"content\": [{\"token\": \"4\"}, {\"token\": \"4\"}, {\"token\": \"4\"}]}")),
         ": trajectories[0].messages_and_choices[1].logprobs.content has 3 entries, the content has 1 tokens (2 with the end of "
         "the "
         "turn): they must agree"},
        {ART(USER ", " CHOICE("}, \"logprobs\": {\"content\": [{\"token\": \"5\"}]}")),
         ": trajectories[0].messages_and_choices[1].logprobs.content[0].token is \"5\": of the 1 tokens of the content, this one "
         "is "
         "\"4\""},
        {ART(USER ", " CHOICE("}, \"logprobs\": {\"content\": [{\"token\": \"token_id:3\"}]}")),
         ": trajectories[0].messages_and_choices[1].logprobs.content: the token ids say \"$\", the content is \"4\": they are of "
         "another tokenizer"},
        {"{\"trajectories\": [{\"messages_and_choices\": [" USER "], \"reward\": 1, \"tools\": [{}]}]}",
         ": trajectories[0].tools: the chat format chatml has no place for it here"},
        {"{\"trajectories\": [{\"messages_and_choices\": 5, \"reward\": 1}]}",
         ": trajectories[0].messages_and_choices is 5: an array of messages"},
        {"{\"trajectories\": [{\"messages\": [{}], \"reward\": 1}]}", ": trajectories[0].messages[0].role is missing"},
    };
    static const mistake of_tools[] = {
        {"{\"trajectories\": [{\"messages_and_choices\": [" USER "], \"reward\": 1, \"tools\": [5]}]}",
         ": trajectories[0].tools[0] is 5"},
        {"{\"trajectories\": [{\"messages_and_choices\": [" USER "], \"reward\": 1, \"tools\": {}}]}",
         ": trajectories[0].tools is an obj"},
        {ART(USER ", {\"role\": \"assistant\", \"tool_calls\": [{\"function\": {}}]}"),
         ": trajectories[0].messages_and_choices[1].tool_calls[0].function.name is missing: a text"},
        {ART(USER ", {\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": \"{\"}}]}"),
         ": trajectories[0].messages_and_choices[1].tool_calls[0].function.arguments is \"{\": a JSON object in a text"},
    };
    static const mistake of_roles[] = {
        {ART(USER ", {\"role\": \"tool\", \"content\": \"4\"}"),
         ": trajectories[0].messages_and_choices[1].role is \"tool\": the chat format llama3 has no place"}};
    static const mistake of_nothing[] = {
        {ART("{\"role\": \"user\", \"content\": \"\"}, " CHOICE("}")),
         ": trajectories[0].messages_and_choices[1] has no token before it that could predict it"},
        {ART("{\"role\": \"user\", \"content\": \"\"}"), ": trajectories[0].messages_and_choices: there is no token in them"}};
    rein_tokenizer *tokenizer = open_tokenizer();
    check_mistakes(mistakes, sizeof mistakes / sizeof *mistakes, tokenizer, NULL);
    check_mistakes(of_tools, sizeof of_tools / sizeof *of_tools, tokenizer, "qwen2.5");
    check_mistakes(of_roles, 1, tokenizer, "llama3");
    check_mistakes(of_nothing, 2, tokenizer, "raw");
    rein_tokenizer_close(tokenizer);
}

/* Clients write a tool call without arguments in five ways, and arguments as a text or as an object: the tokens are the same. */
static void test_tool_calls(void **state) {
    (void)state;
    static const char *const ways[2][5] = {
        {"{\"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}", "{\"function\": {\"name\": \"f\", \"arguments\": null}}",
         "{\"function\": {\"name\": \"f\", \"arguments\": \"\"}}", "{\"function\": {\"name\": \"f\"}}", "{\"name\": \"f\"}"},
        {"{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}}",
         "{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}", "{\"name\": \"f\", \"arguments\": {\"a\": 1}}"}};
    rein_tokenizer *tokenizer = open_tokenizer();
    rein_chat chat;
    assert_int_equal(rein_chat_named(&chat, "qwen2.5", NULL), REIN_OK);
    size_t lengths[2];
    for (int with = 0; with < 2; with++) {
        rein_groups first = {0};
        for (int i = 0; i < 5 && ways[with][i]; i++) {
            char text[1000];
            rein_groups groups = {0};
            rein_error err = {0};
            snprintf(text, sizeof text, ART(USER ", {\"role\": \"assistant\", \"tool_calls\": [%s]}, " USER), ways[with][i]);
            if (read_text(i ? &groups : &first, text, tokenizer, &chat, &err)) fail_msg("%s: %s", ways[with][i], err.message);
            if (i) same_groups(&first, &groups);
            rein_groups_free(&groups);
        }
        lengths[with] = first.groups[0].trajectories[0].histories[0].n;
        rein_groups_free(&first);
    }
    assert_true(lengths[0] < lengths[1]);
    rein_tokenizer_close(tokenizer);
}

/* 0, 1, false and true are masks; other values are named with their place. */
static void test_masks(void **state) {
    (void)state;
    static const mistake mistakes[] = {
        {EXACT(", \"mask\": [1, 2]"), ": trajectories[0].mask[1] is 2: 0, 1, false or true"},
        {EXACT(", \"mask\": [0.5, 1]"), ": trajectories[0].mask[0] is 0.5: 0, 1, false or true"},
        {EXACT(", \"values\": [1, \"1\"]"), ": trajectories[0].values[1] is \"1\": a number"},
        {EXACT(", \"values\": [1e300, 1]"), ": trajectories[0].values[0] is 1e+300: a number"},
        {EXACT(", \"additional_histories\": [{\"prompt_ids\": [2147483648], \"response_ids\": [1]}]"),
         ": trajectories[0].additional_histories[0].prompt_ids[0] is 2147483648: a token id"},
    };
    rein_groups groups = {0};
    rein_error err = {0};
    check_mistakes(mistakes, sizeof mistakes / sizeof *mistakes, NULL, NULL);
    if (read_text(&groups, EXACT(", \"mask\": [false, true]"), NULL, NULL, &err)) fail_msg("%s", err.message);
    const rein_history *h = &groups.groups[0].trajectories[0].histories[0];
    assert_true(h->mask[h->n - 2] == 0 && h->mask[h->n - 1] == 1);
    rein_groups_free(&groups);
}

/* What a program reads of an error. */
static void test_fields(void **state) {
    (void)state;
    static const struct {
        const char *text, *field;
        int64_t index;
    } cases[] = {
        {"{}", "trajectories", -1},
        {"{\"trajectories\": [5]}", "trajectories", 0},
        {EXACT(", \"x\": 1}, {\"reward\": 1"), "trajectories", 1},
        {EXACT(", \"logprobs\": [-1, 0.5]"), "trajectories[0].logprobs", 1},
        {EXACT(", \"mask\": [1]"), "trajectories[0].mask", -1},
        {EXACT(", \"additional_histories\": [{\"prompt_ids\": [1], \"response_ids\": [2, -3]}]"),
         "trajectories[0].additional_histories[0].response_ids", 1},
        {ART(USER ", 5"), "trajectories[0].messages_and_choices", 1},
        {ART(CHOICE("}")), "trajectories[0].messages_and_choices", 0},
        {ART(USER ", " CHOICE("}, \"logprobs\": {\"content\": [{\"token\": \"5\"}]}")),
         "trajectories[0].messages_and_choices[1].logprobs.content[0].token", -1},
    };
    rein_tokenizer *tokenizer = open_tokenizer();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rein_groups groups = {0};
        rein_error err = {0};
        assert_int_equal(read_text(&groups, cases[i].text, tokenizer, NULL, &err), REIN_EINVAL);
        assert_string_equal(err.field, cases[i].field);
        assert_int_equal(err.index, cases[i].index);
    }
    rein_tokenizer_close(tokenizer);
}

static void test_no_template(void **state) {
    (void)state;
    static const mistake none[] = {
        {ART(USER), ": trajectories[0].messages_and_choices: the tokenizer has no chat template: --chat-format"}};
    const rein_chat odd = {.kind = (rein_chat_kind)77};
    rein_tokenizer *tokenizer = NULL;
    rein_groups groups = {0};
    rein_error err = {0};
    assert_int_equal(rein_tokenizer_open(&tokenizer, "tests/model/fixtures/tokenizer/qwen", NULL), REIN_OK);
    check_mistakes(none, 1, tokenizer, NULL);
    assert_int_equal(read_text(&groups, ART(USER), tokenizer, &odd, &err), REIN_EINVAL);
    assert_string_equal(err.message, "chat.kind is 77: no format");
    assert_string_equal(err.field, "chat.kind");
    rein_tokenizer_close(tokenizer);
}

/* The groups that were there stay; lines are counted with the blank ones; Parquet is told how to become JSON lines. */
static void test_files(void **state) {
    (void)state;
    rein_groups groups = {0};
    rein_error err = {0};
    char long_name[400];
    assert_int_equal(read_text(&groups, EXACT(""), NULL, NULL, &err), REIN_OK);
    assert_int_equal(read_text(&groups, EXACT("") "\n\n" EXACT("") "\n" EXACT(", \"budget\": \"x\""), NULL, NULL, &err),
                     REIN_EINVAL);
    assert_string_equal(err.message,
                        "x.jsonl: line 4: trajectories[0].budget is \"x\": a whole number from 0 to 9223372036854775807 is "
                        "needed");
    assert_int_equal(groups.n, 1);
    assert_int_equal(read_text(&groups, " \n\n", NULL, NULL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "x.jsonl has no group"));
    assert_int_equal(rein_groups_from_memory(&groups, "PAR1\0\0", 6, "y.parquet", NULL, NULL, &err), REIN_EINVAL);
    assert_int_equal(strncmp(err.message, "y.parquet is Parquet: JSON lines are needed, which python3 -c \"import", 68), 0);
    assert_non_null(strstr(err.message, "FILE.parquet > FILE.jsonl makes"));
    assert_int_equal(rein_groups_from_memory(&groups, "{\"a\0\": 1}", 9, "y", NULL, NULL, &err), REIN_EINVAL);
    assert_string_equal(err.message, "y: line 1: byte 3 is 0: JSON has no such byte");
    assert_int_equal(rein_groups_read(&groups, "/nowhere.jsonl", NULL, NULL, &err), REIN_EIO);
    assert_int_equal(rein_groups_read(&groups, "tests", NULL, NULL, &err), REIN_EIO);
    memset(long_name, 'x', sizeof long_name), long_name[399] = 0;
    assert_int_equal(rein_groups_from_memory(&groups, "{}", 2, long_name, NULL, NULL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "xxx: line 1: trajectories is missing"));
    assert_int_equal(groups.n, 1);
    rein_groups_free(&groups);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_exact_round_trip),
        cmocka_unit_test(test_any_float),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_mistakes_in_messages),
        cmocka_unit_test(test_tool_calls),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_no_template),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
