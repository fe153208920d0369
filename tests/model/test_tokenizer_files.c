/* test_tokenizer_files.c - files that are wrong or not supported: refused, with the place and what would be right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "model/tokenizer_regex.h"
#include "model/unicode.h"
#include "tokenizer_fixture.h"

#define VOCAB "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}"
#define MODEL "\"model\": {\"type\": \"BPE\", " VOCAB ", \"merges\": [\"a b\"]}"
#define WITH(key, value) "{\"" key "\": " value ", " MODEL "}"
#define SPLIT(pattern) \
    WITH("pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" pattern "\"}, \"behavior\": \"Isolated\"}")
#define MERGES(value) "{\"model\": {\"type\": \"BPE\", " VOCAB ", \"merges\": " value "}}"
#define FIELD(key, value) "{\"model\": {\"type\": \"BPE\", " VOCAB ", \"merges\": [], \"" key "\": " value "}}"
#define ADDED(value) WITH("added_tokens", "[" value "]")
#define TEMPLATE(single, known) \
    WITH("post_processor", "{\"type\": \"TemplateProcessing\", \"single\": " single ", \"special_tokens\": " known "}")
#define DECODER(value) WITH("decoder", "{\"type\": \"Sequence\", \"decoders\": [" value "]}")

static rein_status read_text(const char *text, const char *config, rein_error *err) {
    const rein_tokenizer_files files = {.name = "dir",
                                        .tokenizer = text,
                                        .tokenizer_length = strlen(text),
                                        .config = config,
                                        .config_length = config ? strlen(config) : 0};
    rein_tokenizer *tokenizer = NULL;
    const rein_status status = rein_tokenizer_read(&tokenizer, &files, err);
    if (status) assert_null(tokenizer);
    rein_tokenizer_close(tokenizer);
    return status;
}

static const struct {
    const char *file, *said;
} bad[] = {
    {"", "dir/tokenizer.json is empty"},
    {"[]", "does not start with {: a JSON object is needed"},
    {"{", "line 1"},
    {"{\"a\": 1, \"a\": 2}", "dir/tokenizer.json: a is given twice, again at line 1, column 12"},
    {"{}", "model.vocab: is not an object"},
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}", "model Unigram is not supported: BPE is"},
    {"{\"model\": {\"type\": \"WordPiece\", \"vocab\": {}}}", "model WordPiece is not supported"},
    {"{\"model\": {" VOCAB "}}", "is not supported: BPE is"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}",
     "model.vocab: \"b\" has id 0, which is the id of \"a\""},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}", "the id of \"a\" is not an integer from 0"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1.5}, \"merges\": []}}", "the id of \"a\""},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 8000000}, \"merges\": []}}",
     "the highest id is 8000000, but there are 1 tokens"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 99999999999}, \"merges\": []}}", "the id of \"a\""},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}", "model.merges: is not an array"},
    {MERGES("[\"a c\"]"), "model.merges[0]: \"c\" is not a token"},
    {MERGES("[\"a b\", \"b a\"]"), "model.merges[1]: it makes \"ba\", which is not a token"},
    {"{\"added_tokens\": [{\"id\": 3, \"content\": \"ba\"}], \"model\": {\"type\": \"BPE\", " VOCAB ", \"merges\": [\"b a\"]}}",
     "model.merges[0]: it makes \"ba\", which is not a token"}, /* not of the model */
    {MERGES("[\"ab\"]"), "model.merges[0]: is neither"},
    {MERGES("[\"a b c\"]"), "model.merges[0]: is neither"},
    {MERGES("[[\"a\"]]"), "model.merges[0]: is neither"},
    {MERGES("[[\"a\", 1]]"), "model.merges[0]: is neither"},
    {MERGES("[7]"), "model.merges[0]: is neither"},
    {FIELD("dropout", "0.1"), "\"dropout\" is not supported"},
    {FIELD("continuing_subword_prefix", "\"##\""), "\"continuing_subword_prefix\" is not supported"},
    {FIELD("end_of_word_suffix", "\"</w>\""), "\"end_of_word_suffix\" is not supported"},
    {FIELD("unk_token", "\"<unk>\""), "\"unk_token\" is not a token"},
    {FIELD("byte_fallback", "1"), "model.byte_fallback: is neither true nor false"},
    {ADDED("{\"id\": 0}"), "added_tokens[0]: \"content\""},
    {ADDED("{\"id\": 7, \"content\": \"\"}"), "added_tokens[0]: \"content\""},
    {ADDED("{\"id\": 7, \"content\": \"a\"}"), "\"a\" has id 7 here and id 0 before"},
    {ADDED("{\"id\": 1, \"content\": \"x\"}"), "\"x\" has id 1, which is the id of \"b\""},
    {ADDED("{\"id\": 3, \"content\": \"x\"}, {\"id\": 3, \"content\": \"x\"}"), "added_tokens[1]: id 3 was already added"},
    {ADDED("{\"id\": \"3\", \"content\": \"x\"}"), "added_tokens[0]: the id of \"x\""},
    {ADDED("{\"id\": 3, \"content\": \"x\", \"lstrip\": 0}"), "added_tokens[0].lstrip"},
    {WITH("added_tokens", "7"), "added_tokens: is not an array"},
    {WITH("normalizer", "{\"type\": \"NFKD\"}"), "normalizer: normalizer NFKD is not supported: NFC, NFKC, Prepend, Replace"},
    {WITH("normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Lowercase\"}]}"),
     "normalizer.normalizers[1]: normalizer Lowercase"},
    {WITH("normalizer", "{\"type\": \"Sequence\"}"), "normalizer.normalizers: is not an array"},
    {WITH("normalizer", "{\"type\": \"Prepend\"}"), "normalizer.prepend: is not a string"},
    {WITH("normalizer", "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"\"}"),
     "normalizer.pattern: is empty"},
    {WITH("normalizer", "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a*\"}, \"content\": \"\"}"),
     "normalizer: pattern: it may match an empty text"},
    {"{\"normalizer\": {\"type\": \"Prepend\", \"prepend\": \"_\"}, \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": "
     "\"_\", "
     "\"prepend_scheme\": \"first\"}, " MODEL "}",
     "pre_tokenizer: Metaspace with prepend_scheme \"first\" is not supported after"},
    {WITH("normalizer", "7"), "normalizer: is not an object with a \"type\""},
    {WITH("pre_tokenizer", "{\"type\": \"BertPreTokenizer\"}"),
     "pre-tokenizer BertPreTokenizer is not supported: ByteLevel, Digits"},
    {WITH("pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"isolated\"}"),
     "pre_tokenizer.behavior"},
    {WITH("pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"ab\"}"), "\"replacement\" is not one character"},
    {WITH("pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"last\"}"), "prepend_scheme"},
    {WITH("pre_tokenizer", "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, {\"type\": \"Digits\"}]}"),
     "pretokenizers[1]: Digits comes after ByteLevel"},
    {SPLIT("(a"), "pattern: the expression is wrong"},
    {SPLIT("\\\\h"), "this escape"},
    {SPLIT("[^\\\\W]"), "this escape"},
    {SPLIT("[a&&b]"), "an intersection"},
    {SPLIT("[a[b]]"), "a class in a class"},
    {SPLIT("^a"), "^ at byte 0"},
    {SPLIT("a{1,3}+"), "a sign after {"},
    {SPLIT("a{,3}"), "{ without a count"},
    {SPLIT("(?P<n>a)"), "this kind of group"},
    {SPLIT("(*UTF)a"), "this kind of group"},
    {SPLIT("\\\\pL"), "without {"},
    {TEMPLATE("7", "{}"), "post_processor.single: is not an array"},
    {TEMPLATE("[]", "{}"), "has Sequence A 0 times"},
    {TEMPLATE("[{\"Sequence\": {\"id\": \"B\"}}]", "{}"), "single[0]: is neither"},
    {TEMPLATE("[{\"SpecialToken\": {\"id\": \"s\"}}]", "{}"), "\"s\" has no \"ids\""},
    {TEMPLATE("[{\"SpecialToken\": {\"id\": \"s\"}}]", "{\"s\": {\"ids\": [99]}}"), "is not one of the vocabulary"},
    {WITH("post_processor", "{\"type\": \"BertProcessing\"}"), "post-processor BertProcessing is not supported"},
    {WITH("decoder", "{\"type\": \"WordPiece\"}"), "decoder WordPiece is not supported"},
    {DECODER("{\"type\": \"Fuse\"}, {\"type\": \"ByteLevel\"}"), "decoders[1]: decoder ByteLevel after Fuse"},
    {DECODER("{\"type\": \"ByteLevel\"}, {\"type\": \"Fuse\"}"), "Fuse comes after ByteLevel"},
    {DECODER("{\"type\": \"ByteFallback\"}, {\"type\": \"ByteFallback\"}"), "ByteFallback is given twice"},
    {DECODER("{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 1}"), "\"stop\" is not 0"},
    {DECODER("{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, \"content\": \"\"}"), "replaces a Regex"},
};

static void test_bad_files(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rein_error err = {0};
        const rein_status status = read_text(bad[i].file, NULL, &err);
        if (status != REIN_EINVAL || !strstr(err.message, bad[i].said) || strncmp(err.message, "dir/tokenizer.json", 18) != 0)
            fail_msg("%s\n  gave %d: %s\n  not: %s", bad[i].file, (int)status, err.message, bad[i].said);
    }
}

/* The place in the file is data too. */
static void test_fields(void **state) {
    (void)state;
    rein_error err = {0};
    assert_int_equal(read_text(FIELD("byte_fallback", "1"), NULL, &err), REIN_EINVAL);
    assert_string_equal(err.field, "model.byte_fallback");
    assert_int_equal(err.index, -1);
    assert_string_equal(err.message + err.reason, ": is neither true nor false");
}

static void test_bad_configs(void **state) {
    (void)state;
    static const char *const configs[][2] = {
        {"7", "does not start with {"},
        {"[]", "does not start with {: a JSON object is needed"},
        {"{\"bos_token\": 7}", "bos_token: is neither"},
        {"{\"chat_template\": 7}", "chat_template: is neither"},
        {"{\"chat_template\": [{\"name\": \"rag\", \"template\": \"\"}]}", "chat_template: is neither"},
        {"{\"tokenizer_class\": \"LlamaTokenizer\", \"add_bos_token\": true, \"bos_token\": \"<s>\"}", "\"add_bos_token\" is true"},
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        rein_error err = {0};
        assert_int_equal(read_text("{" MODEL "}", configs[i][0], &err), REIN_EINVAL);
        if (!strstr(err.message, configs[i][1])) fail_msg("%s", err.message);
        assert_int_equal(strncmp(err.message, "dir/tokenizer_config.json", 25), 0);
    }
}

static void test_good_config(void **state) {
    (void)state;
    static const char
        file[] = "{" MODEL "}",
        config[] =
            "{\"tokenizer_class\": \"LlamaTokenizerFast\", \"add_bos_token\": true, \"add_eos_token\": true, \"bos_token\": \"a\","
            "\"eos_token\": {\"content\": \"b\"}, \"pad_token\": \"[PAD]\", \"model_max_length\": 1000000000000000019884624838656, "
            "\"chat_template\": [{\"name\": \"default\", "
            "\"template\": \"T\"}]}";
    const rein_tokenizer_files files = {
        .name = "dir", .tokenizer = file, .tokenizer_length = strlen(file), .config = config, .config_length = strlen(config)};
    const rein_encoding how = {.add_special = 1};
    rein_tokenizer *t;
    rein_ids ids = {0};
    size_t length;
    assert_int_equal(rein_tokenizer_read(&t, &files, NULL), REIN_OK);
    const rein_named_tokens named = rein_tokenizer_named(t);
    assert_int_equal(named.begin, 0);
    assert_int_equal(named.end, 1);
    assert_int_equal(named.pad, -1);
    assert_int_equal(rein_tokenizer_encode(&ids, t, "ab", 2, &how, NULL), REIN_OK);
    assert_int_equal(ids.count, 3);
    assert_memory_equal(ids.data, ((const int32_t[]){0, 2, 1}), 12);
    assert_string_equal(rein_tokenizer_chat_template(&length, t), "T");
    assert_int_equal(length, 1);
    rein_ids_free(&ids);
    rein_tokenizer_close(t);
}

static void test_missing(void **state) {
    (void)state;
    rein_tokenizer *t;
    rein_error err = {0};
    assert_int_equal(rein_tokenizer_open(&t, "tests/model/no-such-directory", &err), REIN_EIO);
    assert_int_equal(err.code, REIN_EIO);
    assert_non_null(strstr(err.message, "no-such-directory/tokenizer.json: "));
    assert_null(t);
}

/* A file that is there but cannot be read is not the same as none: the tokens around a text depend on tokenizer_config.json. */
static void test_unreadable(void **state) {
    (void)state;
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"};
    static const char file[] = "{" MODEL "}";
    char directory[] = "/tmp/rein-tokenizer-XXXXXX", path[100];
    assert_non_null(mkdtemp(directory));
    for (size_t i = 0; i < 3; i++) {
        rein_tokenizer *t;
        rein_error err = {0};
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        assert_int_equal(mkdir(path, 0777), 0);
        assert_int_equal(rein_tokenizer_open(&t, directory, &err), REIN_EIO);
        assert_non_null(strstr(err.message, names[i]));
        assert_null(t);
        assert_int_equal(rmdir(path), 0);
        snprintf(path, sizeof path, "%s/tokenizer.json", directory);
        assert_int_equal(rein_file_write(path, file, strlen(file), NULL), REIN_OK);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(directory), 0);
}

/* A token of which 60 bytes are shown ends with a whole character: messages are UTF-8. */
static void test_message_is_utf8(void **state) {
    (void)state;
    rein_error err = {0};
    char file[400] = "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a x";
    for (int i = 0; i < 40; i++) strcat(file, "\xC3\xA9");
    strcat(file, "\"]}}");
    assert_int_equal(read_text(file, NULL, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "is not a token of the vocabulary"));
    assert_int_equal(rein_utf8_valid(err.message, strlen(err.message)), strlen(err.message));
}

/* What is wrong is said even where the path alone would fill the message. */
static void test_long_name(void **state) {
    (void)state;
    static char name[2000];
    rein_tokenizer *t;
    rein_error err = {0};
    memset(name, 'x', sizeof name - 1);
    const rein_tokenizer_files files = {.name = name, .tokenizer = "{}", .tokenizer_length = 2};
    assert_int_equal(rein_tokenizer_read(&t, &files, &err), REIN_EINVAL);
    assert_non_null(strstr(err.message, "xx/tokenizer.json: model.vocab: is not an object"));
}

/* Every prefix of a good file is a bad file. */
static void test_cut_files(void **state) {
    (void)state;
    size_t length;
    char *text = read_whole(FIXTURES "llama2/tokenizer.json", &length);
    assert_non_null(text);
    for (size_t n = 0; n + 2 < length; n++) {
        const rein_tokenizer_files files = {.name = "dir", .tokenizer = text, .tokenizer_length = n};
        rein_tokenizer *t;
        assert_int_equal(rein_tokenizer_read(&t, &files, NULL), REIN_EINVAL);
        assert_null(t);
    }
    free(text);
}

/* An expression that backtracks without end is stopped. */
static void test_endless_expression(void **state) {
    (void)state;
    static const char file[] = SPLIT("(a+a+)+c");
    const rein_tokenizer_files files = {.name = "dir", .tokenizer = file, .tokenizer_length = strlen(file)};
    char text[61];
    rein_tokenizer *t;
    rein_ids ids = {0};
    rein_error err = {0};
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 'b';
    assert_int_equal(rein_tokenizer_read(&t, &files, &err), REIN_OK);
    const rein_status status = rein_tokenizer_encode(&ids, t, text, sizeof text, NULL, &err);
    if (status) assert_non_null(strstr(err.message, "too many steps")); /* or PCRE2 saw that there is no c */
    rein_ids_free(&ids);
    rein_tokenizer_close(t);
}

/* So is one that an added token is normalized with: then the file is wrong, and named. */
static void test_endless_normalizer(void **state) {
    (void)state;
    static const char file[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}, \"normalizer\": {\"type\": \"Replace\", "
        "\"pattern\": {\"Regex\": \"(?:a+)+(?:a+)+[qr]\"}, \"content\": \"x\"}, \"added_tokens\": [{\"id\": 2, \"content\": "
        "\"baaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}]}";
    rein_error err = {0};
    assert_int_equal(read_text(file, NULL, &err), REIN_EINVAL);
    if (strncmp(err.message, "dir/tokenizer.json: added_tokens: ", 34) != 0 || !strstr(err.message, "too many steps"))
        fail_msg("%s", err.message);
}

/* Encodes n times a character with a tokenizer. */
static rein_status encode_run(const char *file, char character, size_t n, rein_error *err) {
    const rein_tokenizer_files files = {.name = "dir", .tokenizer = file, .tokenizer_length = strlen(file)};
    rein_tokenizer *t;
    rein_ids ids = {0};
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, character, n);
    assert_int_equal(rein_tokenizer_read(&t, &files, err), REIN_OK);
    const rein_status status = rein_tokenizer_encode(&ids, t, text, n, NULL, err);
    assert_true(!status || ids.count == 0);
    rein_ids_free(&ids);
    rein_tokenizer_close(t);
    free(text);
    return status;
}

/* Expressions of which each match is cheap, or takes few steps, and which take minutes for the whole text. */
static void test_slow_expressions(void **state) {
    (void)state;
    static const char *const files[] = {SPLIT("(?:a|b)+c|."), SPLIT("[ab]+(?!a)c|."), SPLIT("a*a*c|.")};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        rein_error err = {0};
        const clock_t start = clock();
        assert_int_equal(encode_run(files[i], 'a', 300000, &err), REIN_EINVAL);
        if (!strstr(err.message, "takes too many steps: it is at byte ")) fail_msg("%s", err.message);
        assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 30); /* 2 to 5 seconds */
        assert_int_equal(encode_run(files[i], 'a', 300, &err), REIN_OK);
    }
}

/* Ten bytes become ten billion, one step after the other; the first few steps alone are fine. */
#define TENFOLD "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aaaaaaaaaa\"}"
#define TENFOLD_REGEX "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, \"content\": \"aaaaaaaaaa\"}"
#define NORMALIZERS(list) WITH("normalizer", "{\"type\": \"Sequence\", \"normalizers\": [" list "]}")
static void test_growing_text(void **state) {
    (void)state;
    static const char *const wrong[] = {NORMALIZERS(TENFOLD ", " TENFOLD ", " TENFOLD ", " TENFOLD ", " TENFOLD ", " TENFOLD
                                                            ", " TENFOLD ", " TENFOLD ", " TENFOLD),
                                        NORMALIZERS(TENFOLD_REGEX ", " TENFOLD_REGEX), NORMALIZERS(TENFOLD ", " TENFOLD)};
    for (size_t i = 0; i < 3; i++) {
        rein_error err = {0};
        assert_int_equal(encode_run(wrong[i], 'a', 10, &err), REIN_EINVAL);
        assert_string_equal(err.message,
                            "the normalizer of the tokenizer makes more than 896 bytes of a text of 10: at most 64 times its "
                            "length is supported");
    }
    assert_int_equal(encode_run(NORMALIZERS(TENFOLD), 'a', 10000, NULL), REIN_OK);
    assert_int_equal(encode_run(NORMALIZERS(TENFOLD ", " TENFOLD), 'a', 2, NULL), REIN_OK); /* a little is always allowed */
}

/* What is found in windows is what PCRE2 finds in the whole text. Each place has a budget of its own, because a text is not searched from
 * all of them. */
static void find_everywhere(const rein_regex *regex, const char *text, size_t length) {
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    uint32_t skipped;
    for (size_t from = 0; from <= length; from += from < length ? rein_utf8_next(&skipped, text + from) : 1) {
        size_t begin, end;
        bool found;
        rein_error err = {0};
        rein_matcher matcher = {.length = length};
        const int code = pcre2_match(regex->code, (PCRE2_SPTR)text, length, from, PCRE2_NO_JIT, data, NULL);
        if (rein_regex_find(&found, &begin, &end, regex, &matcher, text, length, from, &err)) fail_msg("%s", err.message);
        rein_matcher_free(&matcher);
        const PCRE2_SIZE *wanted = pcre2_get_ovector_pointer(data);
        if (found != (code >= 0) || (found && (begin != wanted[0] || end != wanted[1])))
            fail_msg("from %zu: found %d [%zu, %zu), not %d [%zu, %zu)", from, found, begin, end, code, wanted[0], wanted[1]);
    }
    pcre2_match_data_free(data);
}

static void test_windows(void **state) {
    (void)state;
    static const char *const patterns[] = {
        "'s|'t| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'ll)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "a*",
        "(?<=a)b+$|(?=b*a)b",
        "a+b|é+(?= )",
        "zz|q"};
    static const char *const units[] = {"a", "b", " ", "\n", "1", "'", "é", "z"};
    uint64_t random = 5;
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        rein_regex *regex;
        assert_int_equal(rein_regex_make(&regex, patterns[p], strlen(patterns[p]), false, NULL), REIN_OK);
        for (int round = 0; round < 12; round++) {
            char text[3000];
            size_t length = 0;
            while (length < 1500) { /* runs of a few to hundreds of characters: shorter and longer than a window */
                random = random * 6364136223846793005u + 1442695040888963407u;
                const char *unit = units[random >> 60 & 7];
                for (size_t n = (size_t)1 << (random >> 40 & 15) % 10; n && length < 1500; n--)
                    memcpy(text + length, unit, strlen(unit)), length += strlen(unit);
            }
            find_everywhere(regex, text, length);
        }
        rein_regex_free(regex);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_expressions),
        cmocka_unit_test(test_growing_text),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_bad_configs),
        cmocka_unit_test(test_good_config),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_long_name),
        cmocka_unit_test(test_message_is_utf8),
        cmocka_unit_test(test_cut_files),
        cmocka_unit_test(test_endless_expression),
        cmocka_unit_test(test_endless_normalizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
