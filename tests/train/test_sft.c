/* test_sft.c - supervised data: which tokens train, what is refused and where, and the order of an epoch. Ids are written out by hand: the
 * tokenizer's tokens are bytes and five special tokens. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rein/train.h"
#include "support/allocation.h"

/* ---------------------------------------------------------------------------------------------------------------------- a tokenizer */

/* a to z are 0 to 25, the blank 26, the newline 27; then the special tokens. */
enum { BLANK = 26, NEWLINE, START, END, BEGIN, STOP };

static void add_token(char *text, const char *name, int id) {
    sprintf(text + strlen(text), "%s\"%s\": %d", id ? ", " : "", name, id);
}

static rein_tokenizer *open_tokenizer(int with_begin) {
    static const char *const special[] = {"<|im_start|>", "<|im_end|>", "<|begin|>", "<|end|>"};
    static const char config[] =
        "{\"eos_token\": \"<|end|>\", \"chat_template\": \"{% for message in messages %}{{'<|im_start|>' + "
        "message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if "
        "add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}\"}";
    char text[8000] = "{\"version\": \"1.0\", \"added_tokens\": [", name[2] = "a";
    for (int i = 0; i < 4; i++)
        sprintf(
            text + strlen(text),
            "%s{\"id\": %d, \"content\": \"%s\", \"special\": true, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
            "\"normalized\": false}",
            i ? ", " : "", START + i, special[i]);
    strcat(text, "], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                 "\"trim_offsets\": false, "
                 "\"use_regex\": false}, \"decoder\": {\"type\": \"ByteLevel\"}, \"post_processor\": ");
    strcat(text,
           !with_begin
               ? "null"
               : "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<|begin|>\", \"type_id\": 0}}, "
                 "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
                 "{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {\"<|begin|>\": {\"id\": \"<|begin|>\", "
                 "\"ids\": [30], \"tokens\": [\"<|begin|>\"]}}}");
    strcat(text,
           ", \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": null, "
           "\"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false, \"merges\": [], "
           "\"vocab\": {");
    for (int i = 0; i < 26; i++) name[0] = (char)('a' + i), add_token(text, name, i);
    add_token(text, "Ġ", BLANK);
    add_token(text, "Ċ", NEWLINE);
    strcat(text, "}}}");
    const rein_tokenizer_files files = {
        .name = "test", .tokenizer = text, .tokenizer_length = strlen(text), .config = config, .config_length = strlen(config)};
    rein_tokenizer *tokenizer;
    rein_error err = {0};
    if (rein_tokenizer_read(&tokenizer, &files, &err)) fail_msg("%s", err.message);
    return tokenizer;
}

/* ----------------------------------------------------------------------------------------------------------------------- helpers */

static rein_groups read_all(const char *text, const rein_tokenizer *tokenizer, int32_t end) {
    rein_groups groups = {0};
    rein_error err = {0};
    if (rein_sft_from_memory(&groups, text, strlen(text), "data", tokenizer, NULL, end, &err)) fail_msg("%s", err.message);
    return groups;
}

/* The one example's tokens as text: "xy[ab]" trains a and b. */
static void assert_example(const rein_groups *groups, size_t i, size_t history, const int *ids, const char *mask) {
    assert_true(i < groups->n);
    assert_int_equal(groups->groups[i].n, 1);
    const rein_trajectory *t = &groups->groups[i].trajectories[0];
    assert_true(t->reward == 1 && t->policy_step == -1 && t->budget == -1 && !t->truncated);
    assert_true(history < t->n_histories);
    const rein_history *h = &t->histories[history];
    assert_int_equal(h->n, strlen(mask));
    for (size_t k = 0; k < h->n; k++) {
        if (h->ids[k] != ids[k] || h->mask[k] != (mask[k] == 'x'))
            fail_msg("token %zu is %d, mask %d: %d and %c were wanted", k, h->ids[k], h->mask[k], ids[k], mask[k]);
        assert_true(isnan(h->log_probs[k]));
    }
}

static void assert_refused(const char *text, const rein_tokenizer *tokenizer, const char *message) {
    rein_groups groups = read_all("{\"prompt_ids\": [1], \"response_ids\": [2]}", NULL, -1);
    rein_error err = {0};
    const rein_status status = rein_sft_from_memory(&groups, text, strlen(text), "data", tokenizer, NULL, STOP, &err);
    if (!status || !strstr(err.message, message)) fail_msg("%s: \"%s\" was wanted, not \"%s\"", text, message, err.message);
    assert_int_equal(groups.n, 1);
    rein_groups_free(&groups);
}

/* ------------------------------------------------------------------------------------------------------------------------- tests */

static void test_texts(void **state) {
    rein_tokenizer *tokenizer = open_tokenizer(1);
    (void)state;
    rein_groups g =
        read_all("\n{\"prompt\": \"ab\", \"completion\": \" c\", \"id\": 7}\r\n  \n{\"completion\": \"c\", \"prompt\": \"\"}\n"
                 "{\"prompt\": \"a\", \"completion\": \"\"}\n{\"prompt\": \"a\", \"completion\": \"b<|end|>\"}",
                 tokenizer, STOP);
    assert_int_equal(g.n, 4);
    assert_example(&g, 0, 0, (int[]){BEGIN, 0, 1, BLANK, 2, STOP}, "...xxx");
    assert_example(&g, 1, 0, (int[]){BEGIN, 2, STOP}, ".xx");
    assert_example(&g, 2, 0, (int[]){BEGIN, 0, STOP}, "..x");
    assert_example(&g, 3, 0, (int[]){BEGIN, 0, 1, STOP}, "..xx"); /* it is spelled out already */
    rein_groups_free(&g);
    g = read_all("{\"prompt\": \"a\", \"completion\": \"b\"}", tokenizer, -1);
    assert_example(&g, 0, 0, (int[]){BEGIN, 0, 1}, "..x");
    rein_groups_free(&g);
    rein_tokenizer_close(tokenizer);
}

/* Nothing stands before the first token. */
static void test_no_begin(void **state) {
    rein_tokenizer *tokenizer = open_tokenizer(0);
    (void)state;
    rein_groups g = read_all("{\"prompt\": \"\", \"completion\": \"ab\"}", tokenizer, STOP);
    assert_example(&g, 0, 0, (int[]){0, 1, STOP}, ".xx");
    rein_groups_free(&g);
    assert_refused("{\"prompt\": \"\", \"completion\": \"\"}", tokenizer, "data: line 1: nothing trains");
    rein_tokenizer_close(tokenizer);
}

#define USER(c) "{\"role\": \"user\", \"content\": \"" c "\"}"
#define ASSISTANT(c) "{\"role\": \"assistant\", \"content\": \"" c "\"}"

static void test_chats(void **state) {
    rein_tokenizer *tokenizer = open_tokenizer(1);
    (void)state;
    rein_groups g =
        read_all("{\"messages\": [" USER("a") ", " ASSISTANT("b") ", " USER("c") ", " ASSISTANT("d") "]}", tokenizer, STOP);
    const rein_history *h = &g.groups[0].trajectories[0].histories[0];
    size_t trained[4], n = 0;
    for (size_t k = 0; k < h->n; k++)
        if (h->mask[k]) assert_true(n < 4), trained[n++] = k;
    assert_int_equal(n, 4); /* what each turn says, and its end */
    assert_true(h->ids[trained[0]] == 1 && h->ids[trained[1]] == END && h->ids[trained[2]] == 3 && h->ids[trained[3]] == END);
    rein_groups_free(&g);
    g = read_all("{\"messages\": [" USER("a") ", {\"role\": \"assistant\", \"content\": \"b\", \"weight\": 0}, " USER(
                     "c") ", " ASSISTANT("d") "]}",
                 tokenizer, STOP);
    h = &g.groups[0].trajectories[0].histories[0];
    for (size_t k = n = 0; k < h->n; k++)
        if (h->mask[k]) trained[n++] = k;
    assert_int_equal(n, 2);
    assert_int_equal(h->ids[trained[0]], 3);
    rein_groups_free(&g);
    rein_tokenizer_close(tokenizer);
}

static void test_ids(void **state) {
    (void)state;
    rein_groups g =
        read_all("{\"prompt_ids\": [5, 6], \"response_ids\": [7, 8], \"mask\": [0, 1], \"logprobs\": [null, -1]}\n", NULL, STOP);
    assert_example(&g, 0, 0, (int[]){5, 6, 7, 8}, "...x"); /* as they are: no end */
    rein_groups_free(&g);
}

/* What a program reads of an error. */
static void test_fields(void **state) {
    static const struct {
        const char *text, *field;
        int64_t index;
    } cases[] = {{"{\"messages\": [" USER("a") "]}", "messages", -1},
                 {"{\"messages\": [" USER("a") ", " ASSISTANT("b") ", 5]}", "messages", 2},
                 {"{\"messages\": [" ASSISTANT("b") "]}", "messages", 0},
                 {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\", \"weight\": 2}]}", "messages[0].weight", -1},
                 {"{\"prompt\": \"a\"}", "completion", -1},
                 {"{\"prompt_ids\": [1], \"response_ids\": [2, -1]}", "response_ids", 1},
                 {"{}", "", -1}};
    rein_tokenizer *tokenizer = open_tokenizer(1);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rein_groups groups = {0};
        rein_error err = {0};
        const char *text = cases[i].text;
        assert_int_equal(rein_sft_from_memory(&groups, text, strlen(text), "data", tokenizer, NULL, -1, &err), REIN_EINVAL);
        assert_string_equal(err.field, cases[i].field);
        assert_int_equal(err.index, cases[i].index);
    }
    rein_tokenizer_close(tokenizer);
}

static void test_refused(void **state) {
    rein_tokenizer *tokenizer = open_tokenizer(1);
    (void)state;
    assert_refused("", tokenizer, "data has no example");
    assert_refused("\n \n", tokenizer, "data has no example");
    assert_refused("{\"prompt\": \"a\", \"completion\": \"b\"}\n[]", tokenizer, "data: line 2");
    assert_refused("{\"prompt\": ", tokenizer, "data: line 1");
    static const char empty[] = "{\"prompt\": \"a\", \"completion\": \"\"}"; /* and no end token either */
    rein_groups groups;
    rein_error err = {0};
    assert_int_equal(rein_sft_from_memory(&groups, empty, sizeof empty - 1, "data", tokenizer, NULL, -1, &err), REIN_EINVAL);
    assert_string_equal(err.message, "data: line 1: completion has no token: nothing would train");
    assert_refused("{}", tokenizer, "data: line 1: one is needed: messages");
    assert_refused("{\"prompt\": \"a\", \"messages\": []}", tokenizer, "data: line 1: only one is needed");
    assert_refused("{\"prompt\": \"a\"}", tokenizer, "data: line 1: completion is missing");
    assert_refused("{\"completion\": \"a\"}", tokenizer, "data: line 1: prompt is missing");
    assert_refused("\n{\"prompt\": 5, \"completion\": \"a\"}", tokenizer, "data: line 2: prompt is 5");
    assert_refused("{\"prompt\": \"a\", \"completion\": \"b\"}", NULL,
                   "data: line 1: tokenizer is missing: prompt cannot be read without one");
    assert_refused("{\"messages\": [" USER("a") "]}", NULL, "data: line 1: messages has no turn of an assistant");
    assert_refused("{\"messages\": [" USER("a") ", " ASSISTANT("b") "]}", NULL, "tokenizer is missing: messages cannot");
    assert_refused("{\"messages\": 5}", tokenizer, "data: line 1: messages is 5");
    assert_refused("{\"messages\": []}", tokenizer, "data: line 1: messages is empty");
    assert_refused("{\"messages\": [5]}", tokenizer, "data: line 1: messages");
    assert_refused("{\"messages\": [" ASSISTANT("b") "]}", tokenizer, "data: line 1: messages[0]");
    assert_refused("{\"messages\": [" USER("a") ", {\"role\": \"assistant\", \"content\": \"b\", \"weight\": 2}]}", tokenizer,
                   "data: line 1: messages[1].weight is 2: 0 or 1");
    assert_refused("{\"messages\": [" USER("a") ", {\"role\": \"assistent\", \"content\": \"b\"}, " ASSISTANT("b") "]}", tokenizer,
                   "data: line 1: messages[1].role");
    assert_refused("{\"prompt_ids\": [1], \"response_ids\": []}", tokenizer, "data: line 1: ");
    assert_refused("{\"prompt_ids\": [1], \"response_ids\": [2], \"mask\": [0]}", tokenizer, "data: line 1: nothing trains");
    rein_groups g = {0};
    assert_int_equal(rein_sft_read(&g, "/nowhere/data", tokenizer, NULL, -1, &err), REIN_EIO);
    rein_tokenizer_close(tokenizer);
}

static void assert_array_refused(const char *text, const rein_tokenizer *tokenizer, const char *message) {
    rein_groups groups = {0};
    rein_error err = {0};
    assert_int_equal(rein_sft_from_memory(&groups, text, strlen(text), "data.json", tokenizer, NULL, STOP, &err), REIN_EINVAL);
    assert_string_equal(err.message, message);
    assert_int_equal(groups.n, 0);
    assert_int_equal(rein_sft_from_memory(&groups, text, strlen(text), "data.json", tokenizer, NULL, STOP, NULL), REIN_EINVAL);
    rein_groups_free(&groups);
}

/* A file whose name ends with .json is one array. */
static void test_array(void **state) {
    static const char good[] = "[{\"prompt\": \"a\", \"completion\": \"b\"},\n{\"prompt_ids\": [1], \"response_ids\": [2]}]";
    rein_tokenizer *tokenizer = open_tokenizer(0);
    rein_groups groups = {0};
    rein_error err = {0};
    (void)state;
    if (rein_sft_from_memory(&groups, good, strlen(good), "data.json", tokenizer, NULL, STOP, &err)) fail_msg("%s", err.message);
    assert_int_equal(groups.n, 2);
    assert_example(&groups, 0, 0, (int[]){0, 1, STOP}, ".xx");
    assert_example(&groups, 1, 0, (int[]){1, 2}, ".x");
    rein_groups_free(&groups);
    assert_array_refused("{}", tokenizer, "data.json is not a JSON array: [{\"messages\": [...]}, ...] is needed");
    assert_array_refused("[]", tokenizer, "data.json has no example: one JSON object a line is needed, {\"messages\": [...]}");
    assert_array_refused("[{\"prompt_ids\": [1], \"response_ids\": [2]}, 5]", tokenizer,
                         "data.json: example 2: is not an object: {\"messages\": [...]} is needed");
    assert_array_refused("[{\"prompt_ids\": [1], \"response_ids\": [2]}, {\"messages\": null, \"prompt\": 1}]", tokenizer,
                         "data.json: example 2: prompt is 1: a text is needed");
    const rein_chat unknown = {.kind = (rein_chat_kind)99};
    assert_int_equal(rein_sft_from_memory(&groups, good, strlen(good), "data.json", tokenizer, &unknown, STOP, &err), REIN_EINVAL);
    assert_string_equal(err.field, "chat.kind");
    rein_tokenizer_close(tokenizer);
}

typedef struct attempt {
    const char *text, *name;
    const rein_tokenizer *tokenizer;
} attempt;

static rein_status read_once(void *context, rein_error *err) {
    const attempt *a = context;
    rein_groups groups = {0};
    const rein_status status = rein_sft_from_memory(&groups, a->text, strlen(a->text), a->name, a->tokenizer, NULL, STOP, err);
    if (status) assert_int_equal(groups.n, 0);
    rein_groups_free(&groups);
    return status;
}

static void test_out_of_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    rein_tokenizer *tokenizer = open_tokenizer(1);
    attempt lines = {"{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"\", \"completion\": \"bc\"}\n", "data", tokenizer};
    attempt chat = {"{\"messages\": [" USER("a") ", " ASSISTANT("b") "]}", "data", tokenizer};
    attempt array = {"[{\"prompt_ids\": [1], \"response_ids\": [2]}]", "data.json", NULL};
    assert_true(fail_each_allocation(read_once, &lines) > 30);
    assert_true(fail_each_allocation(read_once, &chat) > 30);
    assert_true(fail_each_allocation(read_once, &array) > 10);
    rein_tokenizer_close(tokenizer);
}

static void test_shuffle(void **state) {
    enum { N = 1000 };
    static size_t a[N], b[N], c[N];
    static char seen[N];
    size_t moved = 0, differ = 0;
    (void)state;
    rein_shuffle(a, N, 1, 0);
    rein_shuffle(b, N, 1, 0);
    rein_shuffle(c, N, 1, 1);
    for (size_t i = 0; i < N; i++) {
        assert_true(a[i] < N && !seen[a[i]] && a[i] == b[i]);
        seen[a[i]] = 1;
        moved += a[i] != i;
        differ += a[i] != c[i];
    }
    assert_true(moved > N - 10 && differ > N - 10);
    rein_shuffle(a, 1, 1, 0);
    assert_int_equal(a[0], 0);
    rein_shuffle(a, 0, 1, 0);
}

/* All orders of three are equally likely: 6000 epochs, five deviations of 28.9. */
static void test_shuffle_is_fair(void **state) {
    int counts[27] = {0}, orders = 0;
    (void)state;
    for (uint64_t epoch = 0; epoch < 6000; epoch++) {
        size_t o[3];
        rein_shuffle(o, 3, 7, epoch);
        counts[o[0] * 9 + o[1] * 3 + o[2]]++;
    }
    for (int i = 0; i < 27; i++) {
        if (!counts[i]) continue;
        orders++;
        assert_true(abs(counts[i] - 1000) < 145);
    }
    assert_int_equal(orders, 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),         cmocka_unit_test(test_no_begin),        cmocka_unit_test(test_chats),
        cmocka_unit_test(test_ids),           cmocka_unit_test(test_refused),         cmocka_unit_test(test_fields),
        cmocka_unit_test(test_shuffle),       cmocka_unit_test(test_shuffle_is_fair), cmocka_unit_test(test_array),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
