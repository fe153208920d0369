/* test_text.c - the text of a response as it grows: stops wherever they begin and end, what may be given out, and what comes at the end.
 *
 * The tokens are mostly single bytes, so that every cut between them is tried; a few of the fixture's own begin and end inside of a
 * character. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/tokenizer_fixture.h"
#include "rollout/text.h"
#include "support/random.h"

static rein_tokenizer *gpt2, *llama2;

static rein_tokenizer *open_fixture(const char *name) {
    char path[300];
    rein_error err = {0};
    rein_tokenizer *tokenizer;
    snprintf(path, sizeof path, FIXTURES "%s", name);
    if (rein_tokenizer_open(&tokenizer, path, &err) != REIN_OK) print_message("%s\n", err.message);
    return tokenizer;
}

static int open_tokenizers(void **state) {
    (void)state;
    gpt2 = open_fixture("gpt2"), llama2 = open_fixture("llama2");
    return !gpt2 || !llama2;
}

static int close_tokenizers(void **state) {
    (void)state;
    rein_tokenizer_close(gpt2), rein_tokenizer_close(llama2);
    return 0;
}

/* Tokens of one byte: GPT-2 counts the printable ones first, then the others. */
static int32_t byte(unsigned char b) {
    int32_t before[2] = {0, 0};
    int printable = 0;
    for (unsigned c = 0; c <= b; c++) {
        printable = (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || c >= 174;
        if (c < b) before[!printable]++;
    }
    return printable ? before[0] : 188 + before[1];
}

/* Tokens of the fixture that are more than a byte. */
static int32_t token(const char *spelled) {
    const int32_t id = rein_tokenizer_id(gpt2, spelled, strlen(spelled));
    assert_true(id >= 0);
    return id;
}

/* ---- a response: pushes ids one by one */
typedef struct response {
    rein_growing g;
    const char *stops[8];
    size_t n_stops;
    int stopped;
} response;

static response begin(const rein_tokenizer *tokenizer, const char *const *stops) {
    response r = {0};
    assert_int_equal(rein_growing_open(&r.g, tokenizer, NULL), REIN_OK);
    for (; stops && stops[r.n_stops]; r.n_stops++) r.stops[r.n_stops] = stops[r.n_stops];
    return r;
}

static void push(response *r, int32_t id) {
    assert_false(r->stopped);
    assert_int_equal(rein_growing_push(&r->stopped, &r->g, id, r->stops, r->n_stops, NULL), REIN_OK);
    assert_true(r->g.certain <= r->g.text.length);
}

static void push_bytes(response *r, const char *bytes) {
    for (; *bytes && !r->stopped; bytes++) push(r, byte((unsigned char)*bytes));
}

static void finish(response *r) {
    assert_false(r->stopped);
    assert_int_equal(rein_growing_finish(&r->stopped, &r->g, r->stops, r->n_stops, NULL), REIN_OK);
    assert_true(r->g.certain == r->g.text.length);
}

/* What is certain now. */
static void assert_certain(const response *r, const char *wanted) {
    if (r->g.certain != strlen(wanted) || memcmp(r->g.text.data ? r->g.text.data : "", wanted, r->g.certain) != 0)
        fail_msg("certain is \"%.*s\", not \"%s\"", (int)r->g.certain, r->g.text.data, wanted);
}

static void assert_ended(response *r, int stopped, const char *wanted) {
    assert_int_equal(r->stopped, stopped);
    if (stopped) assert_true(r->g.certain == r->g.text.length);
    assert_certain(r, wanted);
    rein_growing_close(&r->g);
}

#define STOPS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- cases */
static void test_bytes(void **state) { /* that they are what this file takes them for */
    (void)state;
    for (int b = 1; b < 128; b++) {
        const int32_t id = byte((unsigned char)b);
        rein_text text = {0};
        assert_int_equal(rein_tokenizer_decode(&text, gpt2, &id, 1, 0, NULL), REIN_OK);
        assert_true(text.length == 1 && text.data[0] == (char)b);
        rein_text_free(&text);
    }
}

static void test_without(void **state) {
    (void)state;
    response none = begin(gpt2, NULL); /* no stops: all is certain */
    push_bytes(&none, "some text");
    assert_certain(&none, "some text");
    finish(&none);
    assert_ended(&none, 0, "some text");

    response blind = begin(NULL, NULL); /* no tokenizer: no text */
    push(&blind, 3), push(&blind, -7);
    finish(&blind);
    assert_true(blind.g.text.data == NULL);
    assert_ended(&blind, 0, "");
}

static void test_across_tokens(void **state) {
    (void)state;
    response r = begin(gpt2, STOPS("\n\nUser:"));
    push_bytes(&r, "hello");
    assert_certain(&r, "hello");
    push_bytes(&r, "\n");
    assert_certain(&r, "hello"); /* a stop may have started */
    push_bytes(&r, "\nUser");
    assert_certain(&r, "hello");
    push_bytes(&r, ":");
    assert_ended(&r, 1, "hello");

    r = begin(gpt2, STOPS("lo wo")); /* inside of " hello", up to inside of " world" */
    push(&r, token("hello"));
    assert_certain(&r, "hel");
    push(&r, token("\xC4\xA0world")); /* Ġworld */
    assert_ended(&r, 1, "hel");

    r = begin(gpt2, STOPS("hello")); /* the whole of the first token */
    push(&r, token("hello"));
    assert_ended(&r, 1, "");
}

/* What looked like a stop is given out when it turns out not to be one: all of it, or but for a later beginning. */
static void test_partial(void **state) {
    (void)state;
    response r = begin(gpt2, STOPS("abcd"));
    push_bytes(&r, "xabc");
    assert_certain(&r, "x");
    push_bytes(&r, "x");
    assert_certain(&r, "xabcx");
    push_bytes(&r, "abcab");
    assert_certain(&r, "xabcxabc");
    push_bytes(&r, "cd");
    assert_ended(&r, 1, "xabcxabc");

    r = begin(gpt2, STOPS("aab")); /* a beginning inside of a beginning */
    push_bytes(&r, "aaa");
    assert_certain(&r, "a");
    push_bytes(&r, "a");
    assert_certain(&r, "aa");
    push_bytes(&r, "b");
    assert_ended(&r, 1, "aa");

    r = begin(gpt2, STOPS("END"));
    push_bytes(&r, "the EN");
    assert_certain(&r, "the ");
    finish(&r); /* at the end nothing is held back */
    assert_ended(&r, 0, "the EN");
}

/* Several stops: the one that begins first, of those that are whole. */
static void test_overlapping(void **state) {
    (void)state;
    response r = begin(gpt2, STOPS("bcd", "b"));
    push_bytes(&r, "ab");
    assert_ended(&r, 1, "a");

    r = begin(gpt2, STOPS("abc", "b")); /* "abc" may have started, but "b" is there */
    push_bytes(&r, "xa");
    assert_certain(&r, "x");
    push_bytes(&r, "b");
    assert_ended(&r, 1, "xa");

    r = begin(gpt2, STOPS("b", "ab")); /* both whole with one token: the earlier one */
    push_bytes(&r, "x");
    push(&r, token("ab"));
    assert_ended(&r, 1, "x");

    r = begin(gpt2, STOPS("lo", "hell")); /* in any order */
    push(&r, token("hello"));
    assert_ended(&r, 1, "");

    r = begin(gpt2, STOPS("stop!", "op"));
    push_bytes(&r, "st");
    assert_certain(&r, "");
    push_bytes(&r, "op");
    assert_ended(&r, 1, "st");
}

/* Characters of several bytes: nothing comes out before they are whole. */
static void test_characters(void **state) {
    (void)state;
    response r =
        begin(gpt2, STOPS("ve")); /* "na\xC3" "\xAFve": the stop begins inside of a token that begins inside of a character */
    push(&r, token("na\xC3\x83"));
    assert_certain(&r, "na");
    push(&r, token("\xC2\xAFve"));
    assert_ended(&r, 1, "na\xC3\xAF");

    r = begin(gpt2, STOPS("\xC3\xAFv")); /* ïv: begins with the character itself */
    push(&r, token("na\xC3\x83"));
    assert_certain(&r, "na");
    push(&r, token("\xC2\xAFve"));
    assert_ended(&r, 1, "na");

    r = begin(gpt2, STOPS("\xC3\xA9x")); /* è shares its first byte with é; é might be the stop */
    push_bytes(&r, "a\xC3\xA8");
    assert_certain(&r, "a\xC3\xA8");
    push_bytes(&r, "\xC3\xA9");
    assert_certain(&r, "a\xC3\xA8");
    push_bytes(&r, "\xC3\xA8");
    assert_certain(&r, "a\xC3\xA8\xC3\xA9\xC3\xA8");
    push_bytes(&r, "\xC3\xA9x");
    assert_ended(&r, 1, "a\xC3\xA8\xC3\xA9\xC3\xA8");

    r = begin(gpt2, STOPS("\xF0\x9F\x98\x80")); /* an emoji, byte by byte */
    push_bytes(&r, "hi \xF0\x9F\x98");
    assert_certain(&r, "hi ");
    push_bytes(&r, "\x80");
    assert_ended(&r, 1, "hi ");
}

/* A character that never becomes whole is U+FFFD, at the end or before; which can be a stop too. */
static void test_broken(void **state) {
    (void)state;
    response r = begin(gpt2, STOPS("zzz"));
    push_bytes(&r, "a\xE6\xBC");
    assert_certain(&r, "a");
    finish(&r);
    assert_ended(&r, 0, "a\xEF\xBF\xBD");

    r = begin(gpt2, STOPS("\xEF\xBF\xBD"));
    push_bytes(&r, "a\xE6");
    finish(&r);
    assert_ended(&r, 1, "a");

    r = begin(gpt2, STOPS("b\xEF\xBF\xBD", "q"));
    push_bytes(&r, "ab\xE6");
    assert_certain(&r, "a");
    finish(&r);
    assert_ended(&r, 1, "a");
}

/* Decoders that look at what came before: a leading blank goes, special tokens have no text. */
static void test_other_decoder(void **state) {
    (void)state;
    response r = begin(llama2, STOPS(" hello"));
    const int32_t the = rein_tokenizer_id(llama2, "\xE2\x96\x81the", 6), hello = rein_tokenizer_id(llama2, "\xE2\x96\x81hello", 8);
    assert_true(the > 0 && hello > 0);
    push(&r, 1);
    assert_certain(&r, "");
    push(&r, hello); /* without its blank: not the stop */
    assert_certain(&r, "hello");
    push(&r, the), push(&r, 2);
    assert_certain(&r, "hello the");
    push(&r, hello);
    assert_ended(&r, 1, "hello the");
}

/* ---- any text, any stops, any cut: against looking at the whole text each time */
static void random_text(char *to, size_t characters) {
    static const char *const alphabet[] = {"a", "b", "a", "b", "\xC3\xA9", "\xC3\xA8", "\xF0\x9F\x98\x80"};
    *to = 0;
    for (size_t i = 0; i < characters; i++) strcat(to, alphabet[below(7)]);
}

static size_t first_stop(const rein_text *t, const response *r) {
    for (size_t at = 0; at < t->length; at++)
        for (size_t i = 0; i < r->n_stops; i++)
            if (strlen(r->stops[i]) <= t->length - at && !memcmp(t->data + at, r->stops[i], strlen(r->stops[i]))) return at;
    return SIZE_MAX;
}

/* The longest beginning of the text that is no part of a stop which may still become whole. */
static size_t certain_of(const rein_text *t, const response *r) {
    for (size_t at = 0; at < t->length; at++)
        for (size_t i = 0; i < r->n_stops; i++)
            if (t->length - at < strlen(r->stops[i]) && !memcmp(t->data + at, r->stops[i], t->length - at)) return at;
    return t->length;
}

static void check_against(const response *r, const rein_text *whole, int last) {
    const size_t stop = first_stop(whole, r), certain = last ? whole->length : certain_of(whole, r);
    assert_int_equal(r->stopped, stop != SIZE_MAX);
    assert_true(r->g.certain == (r->stopped ? stop : certain));
    assert_memory_equal(r->g.text.data ? r->g.text.data : "", whole->data ? whole->data : "", r->g.certain);
    if (r->stopped) assert_true(r->g.text.length == stop && r->g.text.data[stop] == 0);
}

static void test_random(void **state) {
    (void)state;
    for (int round = 0; round < 4000; round++) {
        char stops[4][100], text[400];
        response r = begin(gpt2, NULL);
        rein_stream *decoder;
        rein_text whole = {0};
        assert_int_equal(rein_stream_open(&decoder, gpt2, 1, NULL), REIN_OK);
        r.n_stops = below(5);
        for (size_t i = 0; i < r.n_stops; i++) random_text(stops[i], 1 + below(6)), r.stops[i] = stops[i];
        random_text(text, below(30));
        size_t before = 0;
        for (const char *c = text; *c && !r.stopped; c++) {
            int32_t id = byte((unsigned char)*c);
            if (*c == 'a' && c[1] == 'b' && below(2)) id = token("ab"), c++;
            else if ((unsigned char)*c == 0xF0 && below(2)) id = token("\xC3\xB0\xC5\x81\xC4\xBA\xC4\xA2"), c += 3; /* the emoji */
            push(&r, id);
            assert_int_equal(rein_stream_push(&whole, decoder, id, NULL), REIN_OK);
            check_against(&r, &whole, 0);
            assert_true(r.g.certain >= before); /* what was given out stays */
            before = r.g.certain;
        }
        if (!r.stopped) {
            finish(&r);
            assert_int_equal(rein_stream_finish(&whole, decoder, NULL), REIN_OK);
            check_against(&r, &whole, 1);
        }
        rein_text_free(&whole);
        rein_stream_close(decoder);
        rein_growing_close(&r.g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),   cmocka_unit_test(test_without),       cmocka_unit_test(test_across_tokens),
        cmocka_unit_test(test_partial), cmocka_unit_test(test_overlapping),   cmocka_unit_test(test_characters),
        cmocka_unit_test(test_broken),  cmocka_unit_test(test_other_decoder), cmocka_unit_test(test_random)};
    return cmocka_run_group_tests_name("text", tests, open_tokenizers, close_tokenizers);
}
