/* test_tokenizer_memory.c - memory that is not there, at each allocation in turn: REIN_ENOMEM, nothing leaked, outputs as they were.
 *
 * Link with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc and, to count what leaks without a sanitizer, --wrap=free. Without them there is
 * nothing to test, and the test says so. PCRE2 gets its memory through the tokenizer; jansson is given the same functions in a second
 * round. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "rein/tokenizer.h"
#include "tokenizer_fixture.h"

void *__real_malloc(size_t size) __attribute__((weak));
void *__real_calloc(size_t count, size_t size) __attribute__((weak));
void *__real_realloc(void *memory, size_t size) __attribute__((weak));
void __real_free(void *memory) __attribute__((weak));
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void __wrap_free(void *memory);

static long countdown = -1; /* the allocation that fails; negative: none */
static long alive;          /* allocations not yet freed */
static int jansson_too;     /* jansson's fail as well: it reports some of them as syntax errors, so the status may be REIN_EINVAL */

static int fails(void) { return countdown >= 0 && countdown-- == 0; }

void *__wrap_malloc(size_t size) {
    if (fails()) return NULL;
    void *memory = __real_malloc(size);
    alive += memory != NULL;
    return memory;
}
void *__wrap_calloc(size_t count, size_t size) {
    if (fails()) return NULL;
    void *memory = __real_calloc(count, size);
    alive += memory != NULL;
    return memory;
}
void *__wrap_realloc(void *memory, size_t size) {
    if (fails()) return NULL;
    void *moved = __real_realloc(memory, size);
    alive += !memory && moved;
    return moved;
}
void __wrap_free(void *memory) {
    alive -= memory != NULL;
    (__real_free ? __real_free : free)(memory);
}

typedef rein_status attempt(void *context, rein_error *err);

/* Runs it with the first, second, … allocation failing until none does. */
static long fail_each(attempt *run, void *context) {
    for (long n = 0;; n++) {
        rein_error err = {0};
        const long before = alive;
        countdown = n;
        const rein_status status = run(context, &err);
        const int failed = countdown < 0;
        countdown = -1;
        if (__real_free && alive != before) fail_msg("allocation %ld: %ld more are alive than before", n, alive - before);
        if (!failed) {
            assert_int_equal(status, REIN_OK);
            return n;
        }
        if (status != REIN_ENOMEM && status != REIN_OK && !jansson_too)
            fail_msg("allocation %ld: status %d: %s", n, (int)status, err.message);
    }
}

typedef struct texts {
    rein_tokenizer_files files;
    const rein_tokenizer *tokenizer;
} texts;

static rein_status try_read(void *context, rein_error *err) {
    const texts *given = context;
    rein_tokenizer *t;
    const rein_status status = rein_tokenizer_read(&t, &given->files, err);
    rein_tokenizer_close(t);
    return status;
}

static rein_status try_encode(void *context, rein_error *err) {
    static const char text[] = "<s>the cafe\xCC\x81 naive\xCC\x88 <|end|> 123 hello  world \xF0\x9F\x98\x80 word <mask> x-y";
    const texts *given = context;
    const rein_encoding how = {.add_special = 1, .parse_special = 1};
    rein_ids ids = {0};
    rein_text decoded = {0};
    rein_status status = rein_tokenizer_encode(&ids, given->tokenizer, text, strlen(text), &how, err);
    if (status) assert_int_equal(ids.count, 0);
    if (!status) status = rein_tokenizer_decode(&decoded, given->tokenizer, ids.data, ids.count, 0, err);
    if (status) assert_int_equal(decoded.length, 0);
    rein_ids_free(&ids);
    rein_text_free(&decoded);
    return status;
}

static rein_status try_open(void *context, rein_error *err) {
    rein_tokenizer *t;
    const rein_status status = rein_tokenizer_open(&t, context, err);
    rein_tokenizer_close(t);
    return status;
}

static rein_status try_chat(void *context, rein_error *err) {
    static const char template_text[] =
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
        "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    const rein_message messages[] = {{"user", "hello, hello, hello", 19}, {"assistant", "hi", 2}};
    rein_chat chat;
    rein_text text = {0};
    (void)context;
    rein_status status = rein_chat_recognise(&chat, template_text, strlen(template_text), err);
    if (!status) status = rein_chat_render(&text, NULL, &chat, messages, 2, NULL, err);
    rein_text_free(&text);
    return status;
}

static void skip_unless_wrapped(void) {
    if (__real_malloc) return;
    print_message("NOT TESTED: not linked with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc\n");
    skip();
}

static void test_each_allocation(void **state) {
    (void)state;
    static const char config[] = "{\"bos_token\": \"a\", \"chat_template\": \"T\"}";
    json_malloc_t own_malloc;
    json_free_t own_free;
    json_get_alloc_funcs(&own_malloc, &own_free);
    skip_unless_wrapped();
    for (size_t i = 0; i < N_FIXTURES; i++) {
        char path[200];
        texts given = {.files = {.name = "dir", .config = config, .config_length = strlen(config)}};
        rein_tokenizer *t = NULL;
        snprintf(path, sizeof path, FIXTURES "%s/tokenizer.json", fixture_names[i]);
        char *file = read_whole(path, &given.files.tokenizer_length);
        assert_non_null(file);
        given.files.tokenizer = file;
        const long reading = fail_each(try_read, &given);
        jansson_too = 1;
        json_set_alloc_funcs(__wrap_malloc, __wrap_free);
        const long parsing = i % 4 ? 0 : fail_each(try_read, &given);
        json_set_alloc_funcs(own_malloc, own_free);
        jansson_too = 0;
        assert_int_equal(rein_tokenizer_read(&t, &given.files, NULL), REIN_OK);
        given.tokenizer = t;
        const long encoding = fail_each(try_encode, &given);
        print_message("%s: %ld allocations while reading (%ld with jansson's), %ld while encoding and decoding\n", fixture_names[i],
                      reading, parsing, encoding);
        rein_tokenizer_close(t);
        free(file);
    }
}

/* An expression that grows as it is translated: a lost "(?:" would be another expression. */
static void test_groups(void **state) {
    (void)state;
    static const char file[] =
        "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"((((((((((((((((a))))))))))))))))\"}, \"behavior\": "
        "\"Isolated\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}";
    texts given = {.files = {.name = "dir", .tokenizer = file, .tokenizer_length = strlen(file)}};
    skip_unless_wrapped();
    assert_true(fail_each(try_read, &given) > 3);
}

static void test_open_and_chat(void **state) {
    (void)state;
    static char directory[] = FIXTURES "llama2";
    skip_unless_wrapped();
    assert_true(fail_each(try_open, directory) > 3);
    assert_true(fail_each(try_chat, NULL) > 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation), cmocka_unit_test(test_groups),
                                       cmocka_unit_test(test_open_and_chat)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
