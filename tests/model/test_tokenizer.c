/* test_tokenizer.c - ids and texts against Hugging Face's own (tests/model/fixtures/tokenizer), and what it has no word for: text that may
 * not name special tokens, streams, ids without a token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <time.h>

#include "tokenizer_fixture.h"

#define STORIES "../shared/models/stories260K"

static rein_tokenizer *opened(const char *directory) {
    rein_tokenizer *tokenizer = NULL;
    rein_error err = {0};
    if (rein_tokenizer_open(&tokenizer, directory, &err)) fail_msg("%s", err.message);
    return tokenizer;
}

static rein_tokenizer *fixture(const char *name) {
    char path[200];
    snprintf(path, sizeof path, FIXTURES "%s", name);
    return opened(path);
}

static rein_ids encoded(const rein_tokenizer *t, const char *text, size_t length, const rein_encoding *how) {
    rein_ids ids = {0};
    rein_error err = {0};
    if (rein_tokenizer_encode(&ids, t, text, length, how, &err)) fail_msg("%s", err.message);
    return ids;
}

static void assert_ids(const rein_tokenizer *t, const char *text, const rein_encoding *how, const int32_t *expected, size_t n) {
    rein_ids ids = encoded(t, text, strlen(text), how);
    assert_int_equal(ids.count, n);
    assert_memory_equal(ids.data, expected, n * sizeof *expected);
    rein_ids_free(&ids);
}

/* ---- goldens */
static size_t from_hex(char *out, const char *hex) {
    size_t n = 0;
    if (*hex == '-') return 0;
    for (; hex[2 * n] && hex[2 * n + 1]; n++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * n, "%2x", &byte), 1);
        out[n] = (char)byte;
    }
    return n;
}

static size_t from_list(int32_t *out, char *list) {
    size_t n = 0;
    if (*list == '-') return 0;
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) out[n++] = (int32_t)atol(word);
    return n;
}

static void check_encode(const rein_tokenizer *t, const char *where, char *rest) {
    static char hex[20000], list[20000], text[10000];
    static int32_t expected[10000];
    rein_encoding how = {0};
    assert_int_equal(sscanf(rest, "%d %d %19999s %19999s", &how.add_special, &how.parse_special, hex, list), 4);
    const size_t length = from_hex(text, hex), n = from_list(expected, list);
    rein_ids ids = encoded(t, text, length, &how);
    if (ids.count != n || (n && memcmp(ids.data, expected, n * sizeof *expected) != 0)) fail_msg("%s: e %s", where, rest);
    rein_ids_free(&ids);
}

static void check_decode(const rein_tokenizer *t, const char *where, char *rest) {
    static char hex[20000], list[20000], expected[10000];
    static int32_t ids[10000];
    int skip;
    rein_text whole = {0}, pieces = {0};
    rein_stream *stream;
    assert_int_equal(sscanf(rest, "%d %19999s %19999s", &skip, list, hex), 3);
    const size_t length = from_hex(expected, hex), n = from_list(ids, list);
    assert_int_equal(rein_tokenizer_decode(&whole, t, ids, n, skip, NULL), REIN_OK);
    if (whole.length != length || memcmp(whole.data, expected, length) != 0) fail_msg("%s: d %s", where, rest);
    assert_int_equal(rein_stream_open(&stream, t, skip, NULL), REIN_OK);
    for (size_t i = 0; i < n; i++) assert_int_equal(rein_stream_push(&pieces, stream, ids[i], NULL), REIN_OK);
    assert_int_equal(rein_stream_finish(&pieces, stream, NULL), REIN_OK);
    if (pieces.length != length || (length && memcmp(pieces.data, expected, length) != 0)) fail_msg("%s: stream %s", where, rest);
    rein_stream_close(stream);
    rein_text_free(&whole);
    rein_text_free(&pieces);
}

static void test_goldens(void **state) {
    static char line[50000];
    (void)state;
    for (size_t i = 0; i < N_FIXTURES; i++) {
        char path[200];
        size_t lines = 0;
        rein_tokenizer *t = fixture(fixture_names[i]);
        snprintf(path, sizeof path, FIXTURES "%s/cases.txt", fixture_names[i]);
        FILE *cases = fopen(path, "r");
        assert_non_null(cases);
        for (; fgets(line, sizeof line, cases); lines++)
            (line[0] == 'e' ? check_encode : check_decode)(t, fixture_names[i], line + 2);
        assert_true(lines > 100);
        fclose(cases);
        rein_tokenizer_close(t);
    }
}

/* ---- a real model's file */
static void test_stories(void **state) {
    (void)state;
    FILE *there = fopen(STORIES "/tokenizer.json", "r");
    if (!there) {
        print_message("NOT TESTED: " STORIES " is not here\n");
        skip();
    }
    fclose(there);
    rein_tokenizer *t = opened(STORIES);
    const rein_encoding begin = {.add_special = 1};
    assert_int_equal(rein_tokenizer_size(t), 512);
    assert_ids(t, "Once upon a time", &begin, (const int32_t[]){1, 403, 407, 261, 378}, 5);
    assert_int_equal(rein_tokenizer_named(t).begin, 1);
    assert_int_equal(rein_tokenizer_named(t).end, 2);
    rein_tokenizer_close(t);
}

/* ---- special tokens: named only by those who may */
static void test_special_is_text_unless_asked(void **state) {
    (void)state;
    rein_tokenizer *t = fixture("gpt2");
    const int32_t end = rein_tokenizer_id(t, "<|end|>", 7);
    const rein_encoding parse = {.parse_special = 1};
    rein_ids plain = encoded(t, "<|end|>", 7, NULL);
    assert_true(plain.count > 1);
    for (size_t i = 0; i < plain.count; i++) assert_false(rein_tokenizer_is_special(t, plain.data[i]));
    assert_ids(t, "<|end|>", &parse, &end, 1);
    rein_ids_free(&plain);
    rein_tokenizer_close(t);
}

static void test_literal_spans(void **state) {
    (void)state;
    static const char text[] = "<|end|>hi <|end|><|end|>";
    rein_tokenizer *t = fixture("gpt2");
    const int32_t end = rein_tokenizer_id(t, "<|end|>", 7);
    const rein_span spans[] = {{7, 17}, {18, 18}}, crossing[] = {{12, 11}}, half[] = {{23, 24}};
    rein_encoding how = {.parse_special = 1, .literal = spans, .literals = 1};
    rein_ids ids = encoded(t, text, strlen(text), &how);
    size_t ends = 0;
    for (size_t i = 0; i < ids.count; i++) ends += ids.data[i] == end;
    assert_int_equal(ends, 2);
    rein_ids_free(&ids);
    how.literal = half; /* a token of which one byte is literal is no token */
    ids = encoded(t, text, strlen(text), &how);
    ends = 0;
    for (size_t i = 0; i < ids.count; i++) ends += ids.data[i] == end;
    assert_int_equal(ends, 2);
    how.literal = crossing;
    rein_error err = {0};
    const size_t before = ids.count;
    assert_int_equal(rein_tokenizer_encode(&ids, t, text, strlen(text), &how, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "literal[0]"));
    assert_int_equal(ids.count, before);
    rein_ids_free(&ids);
    rein_tokenizer_close(t);
}

static rein_tokenizer *from_text(const char *file) {
    const rein_tokenizer_files files = {.name = "memory", .tokenizer = file, .tokenizer_length = strlen(file)};
    rein_tokenizer *t = NULL;
    rein_error err = {0};
    if (rein_tokenizer_read(&t, &files, &err)) fail_msg("%s", err.message);
    return t;
}

#define LETTERS "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"x\": 3}, \"merges\": []}"

/* What a user writes cannot take away the token before it: "<a>" stays, though "<a>b" is one too. */
static void test_literal_after_shorter_token(void **state) {
    (void)state;
    rein_tokenizer *t = from_text("{\"added_tokens\": [{\"id\": 4, \"content\": \"<a>\", \"special\": true}, "
                                  "{\"id\": 5, \"content\": \"<a>b\", \"special\": true}, "
                                  "{\"id\": 6, \"content\": \"bc\", \"normalized\": false}], " LETTERS "}");
    const rein_span content[] = {{3, 5}}, inside[] = {{1, 1}};
    rein_encoding how = {.parse_special = 1};
    assert_ids(t, "<a>bc", &how, (const int32_t[]){5, 2}, 2);
    how.literal = content, how.literals = 1;
    assert_ids(t, "<a>bc", &how, (const int32_t[]){4, 6}, 2); /* added tokens that are not special are found in contents too */
    how.literal = inside;
    assert_ids(t, "<a>bx", &how, (const int32_t[]){0, 1, 3}, 3); /* < and > have no token */
    rein_tokenizer_close(t);
}

/* As Hugging Face: blanks that a token takes along are not the next token. A megabyte of them takes no longer. */
static void test_blanks_are_taken_once(void **state) {
    (void)state;
    enum { LENGTH = 1 << 20 };
    rein_tokenizer *t = from_text("{\"added_tokens\": [{\"id\": 4, \"content\": \" \", \"lstrip\": true, \"rstrip\": true, "
                                  "\"normalized\": false}], " LETTERS "}");
    char *text = malloc(LENGTH);
    memset(text, ' ', LENGTH);
    assert_ids(t, "a   b", NULL, (const int32_t[]){0, 4, 1}, 3);
    const clock_t start = clock();
    rein_ids ids = encoded(t, text, LENGTH, NULL);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 20);
    assert_int_equal(ids.count, 1);
    rein_ids_free(&ids);
    free(text);
    rein_tokenizer_close(t);
}

/* As Hugging Face: a normalized token is spelled as it is matched, also one that another of that spelling keeps from being matched. */
static void test_normalized_spelling(void **state) {
    (void)state;
    rein_tokenizer *t = from_text("{\"added_tokens\": [{\"id\": 4, \"content\": \"cx\"}, {\"id\": 5, \"content\": \"ax\"}], "
                                  "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"c\"}, "
                                  "\"decoder\": {\"type\": \"Fuse\"}, " LETTERS "}");
    rein_text text = {0};
    assert_ids(t, "ax", NULL, (const int32_t[]){4}, 1);
    assert_int_equal(rein_tokenizer_decode(&text, t, (const int32_t[]){5, 0}, 2, 0, NULL), REIN_OK);
    assert_string_equal(text.data, "cxa");
    rein_text_free(&text);
    rein_tokenizer_close(t);
}

/* What a failed call appended is gone, the NUL behind the text included. */
static void test_text_after_failure(void **state) {
    (void)state;
    rein_tokenizer *t = from_text("{\"decoder\": {\"type\": \"Fuse\"}, " LETTERS "}");
    const rein_message messages[] = {{"user", "x", 1}, {"tool", "y", 1}};
    rein_text text = {0};
    rein_chat chat;
    assert_int_equal(rein_tokenizer_decode(&text, t, (const int32_t[]){0, 1}, 2, 0, NULL), REIN_OK);
    assert_int_equal(rein_tokenizer_decode(&text, t, (const int32_t[]){2, -1}, 2, 0, NULL), REIN_EINVAL);
    assert_string_equal(text.data, "ab");
    assert_int_equal(rein_chat_named(&chat, "llama3", NULL), REIN_OK);
    assert_int_equal(rein_chat_render(&text, NULL, &chat, messages, 2, NULL, NULL), REIN_EINVAL);
    assert_int_equal(text.length, 2);
    assert_string_equal(text.data, "ab");
    rein_text_free(&text);
    rein_tokenizer_close(t);
}

/* A file whose merges, or whose whole pieces, would make a special token of plain text. */
static void test_special_cannot_be_merged(void **state) {
    (void)state;
    static const char file[] =
        "{\"added_tokens\": [{\"id\": 3, \"content\": \"ab\", \"special\": true}, {\"id\": 2, \"content\": \"c\", \"special\": "
        "true}],"
        "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3}, \"merges\": [\"a b\"],"
        "\"ignore_merges\": true}}";
    const rein_encoding parse = {.parse_special = 1};
    rein_tokenizer *t = from_text(file);
    assert_ids(t, "ab", NULL, (const int32_t[]){0, 1}, 2);
    assert_ids(t, "aabb", NULL, (const int32_t[]){0, 0, 1, 1}, 4);
    assert_ids(t, "acb", NULL, (const int32_t[]){0, 1}, 2); /* c has no other token: it is left out */
    assert_ids(t, "ab", &parse, (const int32_t[]){3}, 1);
    rein_tokenizer_close(t);
}

/* ---- borders */
static void test_bad_utf8(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t length, at;
    } bad[] = {{"ab\xFF", 3, 2},       {"\x80", 1, 0},
               {"a\xC3", 2, 1},        {"\xC0\xAF", 2, 0},
               {"\xED\xA0\x80", 3, 0}, {"\xF4\x90\x80\x80", 4, 0},
               {"x\xE2\x82", 3, 1},    {"\xF0\x8F\xBF\xBF", 4, 0},
               {"\xE0\x9F\xBF", 3, 0}, {"ok\xF5\x80\x80\x80", 6, 2}};
    rein_tokenizer *t = fixture("gpt2");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rein_ids ids = {0};
        rein_error err = {0};
        char said[40];
        snprintf(said, sizeof said, "byte %zu of the text", bad[i].at);
        assert_int_equal(rein_tokenizer_encode(&ids, t, bad[i].text, bad[i].length, NULL, &err), REIN_EINVAL);
        assert_non_null(strstr(err.message, said));
        assert_int_equal(ids.count, 0);
    }
    rein_tokenizer_close(t);
}

static void test_ids_without_token(void **state) {
    (void)state;
    rein_tokenizer *t = fixture("gpt2");
    rein_text text = {0};
    rein_error err = {0};
    size_t length;
    assert_int_equal(rein_tokenizer_decode(&text, t, (const int32_t[]){1000000}, 1, 0, &err), REIN_OK);
    assert_int_equal(text.length, 0);
    assert_string_equal(text.data, "");
    assert_int_equal(rein_tokenizer_decode(&text, t, (const int32_t[]){5, -1}, 2, 0, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "ids[1] is -1"));
    assert_int_equal(text.length, 0);
    assert_null(rein_tokenizer_token(&length, t, -1));
    assert_null(rein_tokenizer_token(&length, t, (int32_t)rein_tokenizer_size(t)));
    assert_false(rein_tokenizer_is_special(t, -1));
    assert_false(rein_tokenizer_is_special(t, 1 << 30));
    assert_int_equal(rein_tokenizer_id(t, "no such token", 13), -1);
    rein_text_free(&text);
    rein_tokenizer_close(t);
}

static void test_asking(void **state) {
    (void)state;
    rein_tokenizer *t = fixture("llama3");
    for (int32_t id = 0; (size_t)id < rein_tokenizer_size(t); id++) {
        size_t length;
        const char *token = rein_tokenizer_token(&length, t, id);
        if (token) assert_int_equal(rein_tokenizer_id(t, token, length), id);
    }
    assert_true(rein_tokenizer_is_special(t, rein_tokenizer_id(t, "<|begin|>", 9)));
    assert_int_equal(rein_tokenizer_named(t).begin, -1);
    rein_tokenizer_close(t);
}

/* A character whose bytes are several tokens comes out when its last byte is there. */
static void test_stream_waits(void **state) {
    (void)state;
    rein_tokenizer *t = fixture("gpt2");
    rein_stream *stream;
    rein_text text = {0};
    rein_ids ids = encoded(t, "\xF0\x9F\x91\x8D", 4, NULL);
    assert_true(ids.count > 1);
    assert_int_equal(rein_stream_open(&stream, t, 0, NULL), REIN_OK);
    for (int round = 0; round < 2; round++) { /* finish resets it */
        text.length = 0;
        for (size_t i = 0; i < ids.count; i++) {
            assert_int_equal(text.length, 0);
            assert_int_equal(rein_stream_push(&text, stream, ids.data[i], NULL), REIN_OK);
        }
        assert_int_equal(text.length, 4);
        assert_int_equal(rein_stream_push(&text, stream, ids.data[0], NULL), REIN_OK);
        assert_int_equal(text.length, 4);
        assert_int_equal(rein_stream_finish(&text, stream, NULL), REIN_OK);
        assert_string_equal(text.data, "\xF0\x9F\x91\x8D\xEF\xBF\xBD");
    }
    rein_stream_close(stream);
    rein_text_free(&text);
    rein_ids_free(&ids);
    rein_tokenizer_close(t);
}

/* A megabyte without a blank, of marks out of order, of begins of special tokens: seconds would mean quadratic. */
static void test_long_input(void **state) {
    (void)state;
    const size_t most = getenv("REIN_TEST_FAST") ? 1 << 17 : 1 << 20;
    static const char *const units[] = {"a", "th", " ", "<|en", "\xCC\x81\xCC\xA3", "\n ", "1", "'"};
    char *text = malloc(most);
    for (size_t f = 0; f < N_FIXTURES; f++) {
        rein_tokenizer *t = fixture(fixture_names[f]);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            const size_t unit = strlen(units[u]), length = most / unit * unit;
            for (size_t i = 0; i < length; i += unit) memcpy(text + i, units[u], unit);
            const clock_t start = clock();
            rein_ids ids = encoded(t, text, length, NULL);
            assert_true((double)(clock() - start) / CLOCKS_PER_SEC <
                        20); /* 0.4 s at most; sanitizers are slow, machines are busy */
            rein_ids_free(&ids);
        }
        rein_tokenizer_close(t);
    }
    free(text);
}

/* A text that cannot fit is refused, unread; one that fits never is: not the longest tokens, not characters that NFC makes shorter. */
static void test_bound(void **state) {
    (void)state;
    static const char *const units[] = {
        "a", "th", " ", "\n", "<|endoftext|>", "</s>", "\xE1\xBE\xBE\xCC\x88\xCC\x81", "\xF0\x9F\x98\x80", "1"};
    size_t bounded = 0;
    for (size_t f = 0; f < N_FIXTURES; f++) {
        rein_tokenizer *t = fixture(fixture_names[f]);
        char *text = malloc(1 << 21);
        assert_non_null(text);
        for (size_t u = 0; u < sizeof units / sizeof *units + 40; u++) {
            const char *unit = u < sizeof units / sizeof *units ? units[u] : NULL;
            rein_text token = {0};
            if (!unit) { /* a token, in full */
                const int32_t id = (int32_t)(rein_tokenizer_size(t) * (u - 9) / 40);
                assert_int_equal(rein_tokenizer_decode(&token, t, &id, 1, 0, NULL), REIN_OK);
                unit = token.data ? token.data : "";
            }
            size_t length = 0;
            while (*unit && length < 3000) memcpy(text + length, unit, strlen(unit)), length += strlen(unit);
            rein_encoding how = {.parse_special = 1};
            rein_ids ids = encoded(t, text, length, &how), again;
            if (ids.count) {
                how.max_tokens = ids.count;
                again = encoded(t, text, length, &how);
                assert_int_equal(again.count, ids.count);
                rein_ids_free(&again);
            }
            rein_ids_free(&ids);
            rein_text_free(&token);
        }
        memset(text, 0xFF, 1 << 21); /* not even looked at */
        rein_ids none = {0};
        rein_error err = {0};
        assert_int_equal(rein_tokenizer_encode(&none, t, text, 1 << 21, &(rein_encoding){.max_tokens = 10}, &err), REIN_EINVAL);
        bounded += strstr(err.message, "the text has 2097152 bytes, which are more than 10 tokens: at most ") != NULL;
        rein_tokenizer_close(t);
        free(text);
    }
    print_message("%zu of %d fixtures have a bound\n", bounded, N_FIXTURES);
    assert_true(bounded >= 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_stories),
        cmocka_unit_test(test_special_is_text_unless_asked),
        cmocka_unit_test(test_literal_spans),
        cmocka_unit_test(test_literal_after_shorter_token),
        cmocka_unit_test(test_blanks_are_taken_once),
        cmocka_unit_test(test_normalized_spelling),
        cmocka_unit_test(test_text_after_failure),
        cmocka_unit_test(test_bad_utf8),
        cmocka_unit_test(test_special_cannot_be_merged),
        cmocka_unit_test(test_ids_without_token),
        cmocka_unit_test(test_asking),
        cmocka_unit_test(test_stream_waits),
        cmocka_unit_test(test_long_input),
        cmocka_unit_test(test_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
