/* test_gguf.c - models and tokenizers that the package gguf wrote are those of the safetensors files they were made from, bit for bit; every
 * rule of the format has bytes that break it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "model/config.h"
#include "model/engine_fixture.h"
#include "model/gguf.h"
#include "model/gguf_builder.h"
#include "model/gguf_fixture.h"
#include "rein/tokenizer.h"
#include "support/allocation.h"
#include "support/check.h"
#include "support/folder.h"

/* Log-probabilities, and the gradients of all weights, whose places are those of Hugging Face. */
static void test_models(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(gguf_models); i++) {
        const char *directory = changed_model(gguf_models[i]);
        for (int train = 0; train < 2; train++) {
            pass ours = {0}, theirs = {0};
            rein_model *from_gguf = open_model(gguf_fixture(gguf_models[i]), train), *from_directory = open_model(directory, train);
            forward(&ours, from_gguf, train);
            forward(&theirs, from_directory, train);
            check_same(&ours, &theirs);
            rein_model_close(from_gguf);
            rein_model_close(from_directory);
            pass_free(&ours), pass_free(&theirs);
        }
    }
}

/* Norms of Gemma are stored with 1 added, which rounds them. */
static void check_weights(const rein_tensor *a, const rein_tensor *b, int added_one) {
    const float *x = a->data, *y = b->data;
    if (!added_one) assert_memory_equal(a->data, b->data, a->bytes);
    for (size_t i = 0; added_one && i < a->bytes / sizeof *x; i++) assert_true(1 + x[i] == 1 + y[i]);
}

/* A saved model has the weights of the directory, bit for bit. */
static void test_saved(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(gguf_models); i++) {
        rein_model *model = open_model(gguf_fixture(gguf_models[i]), 0);
        rein_tensors *ours, *theirs;
        OK(rein_model_save(model, NULL, in_folder_format("saved_%s", gguf_models[i]), &error_));
        OK(rein_tensors_open(&ours, in_folder_format("saved_%s", gguf_models[i]), &error_));
        OK(rein_tensors_open(&theirs, fixture(gguf_models[i], ""), &error_));
        assert_int_equal(rein_tensors_count(ours), rein_tensors_count(theirs));
        for (size_t k = 0; k < rein_tensors_count(ours); k++) {
            const rein_tensor *a = rein_tensors_at(ours, k), *b = rein_tensors_find(theirs, a->name);
            assert_non_null(b);
            if (a->dtype != b->dtype) continue; /* vectors of 16-bit models are f32 in GGUF */
            check_weights(a, b, !strncmp(gguf_models[i], "gemma", 5) && a->n_dims == 1);
        }
        rein_tensors_close(ours);
        rein_tensors_close(theirs);
        rein_model_close(model);
    }
}

static void test_split(void **state) {
    (void)state;
    rein_gguf *gguf;
    rein_error err = {0};
    char *part;
    pass ours = {0}, theirs = {0};
    rein_model *split = open_model(gguf_fixture("split-00001-of-00003"), 0), *whole = open_model(gguf_fixture("llama"), 0);
    forward(&ours, split, 0);
    forward(&theirs, whole, 0);
    check_same(&ours, &theirs);
    pass_free(&ours), pass_free(&theirs);
    rein_model_close(split);
    rein_model_close(whole);
    OK(rein_gguf_part(&part, gguf_fixture("split-00001-of-00003"), 2, &error_));
    assert_non_null(strstr(part, "split-00003-of-00003.gguf"));
    free(part);
    OK(rein_gguf_part(&part, gguf_fixture("split-00001-of-00003"), 3, &error_));
    assert_null(part);
    assert_int_equal(rein_gguf_open(&gguf, gguf_fixture("split-00002-of-00003"), &err), REIN_EINVAL);
    says(&err, "the first part");
    assert_null(gguf);
}

/* ---- tokenizers */

static void test_tokenizers(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(gguf_tokenizers); i++) {
        char name[64], directory[4096], cases[4200];
        snprintf(name, sizeof name, "tokenizer_%s", gguf_tokenizers[i]);
        tokenizer_fixture(directory, cases, gguf_tokenizers[i]);
        rein_tokenizer *ours = tokenizer_of(gguf_fixture(name)), *theirs = tokenizer_of(directory);
        check_cases(ours, theirs, cases);
        rein_tokenizer_close(ours);
        rein_tokenizer_close(theirs);
    }
}

static void test_chat_template(void **state) {
    (void)state;
    size_t length;
    rein_tokenizer *tokenizer = tokenizer_of(gguf_fixture("tokenizer_smollm"));
    assert_string_equal(rein_tokenizer_chat_template(&length, tokenizer), "{% for m in messages %}{{ m['content'] }}{% endfor %}");
    rein_tokenizer_close(tokenizer);
    assert_int_equal(rein_gguf_chat_names(gguf_fixture("tokenizer_smollm"), "messages"), 1);
    assert_int_equal(rein_gguf_chat_names(gguf_fixture("tokenizer_smollm"), "strftime_now"), 0);
}

/* ---- the format */

static void refused(const built *b, const char *why) {
    rein_gguf *gguf;
    rein_error err = {0};
    if (rein_gguf_from_memory(&gguf, "bytes", b->bytes, b->size, &err) != REIN_EINVAL) fail_msg("accepted: %s", why);
    assert_null(gguf);
    says(&err, "bytes: ");
    says(&err, why);
}

static rein_gguf *accepted(const built *b) {
    rein_gguf *gguf;
    OK(rein_gguf_from_memory(&gguf, "bytes", b->bytes, b->size, &error_));
    return gguf;
}

static void test_header(void **state) {
    (void)state;
    static built b;
    put_header(&b, 3, 0, 0);
    for (size_t n = 0; n < b.size; n++) {
        const size_t whole = b.size;
        b.size = n;
        refused(&b, "cut short");
        b.size = whole;
    }
    rein_gguf_close(accepted(&b));
    put_header(&b, 2, 0, 0);
    rein_gguf_close(accepted(&b));
    b.bytes[0] = 'g', refused(&b, "the letters GGUF");
    put_header(&b, 1, 0, 0), refused(&b, "version 1 of GGUF: 2 and 3 are supported");
    put_header(&b, 4, 0, 0), refused(&b, "version 4");
    put_header(&b, 3 << 24, 0, 0), refused(&b, "big-endian");
    put_header(&b, 3, 1, 0), refused(&b, "1 tensors, but has only 8 more bytes");
    put_header(&b, 3, UINT64_MAX, 0), refused(&b, "at most");
    put_header(&b, 3, 0, 1), refused(&b, "1 values, but has only 0 more bytes");
    put_header(&b, 3, 0, UINT64_MAX), refused(&b, "at most");
}

static void test_metadata(void **state) {
    (void)state;
    static built b;
    put_header(&b, 3, 0, 2), put_u32(&b, "a", 1), put_u32(&b, "a", 1), refused(&b, "the key a is given twice");
    put_header(&b, 3, 0, 1), put_u32(&b, "", 1), refused(&b, "is not text");
    put_header(&b, 3, 0, 1), put_u32(&b, "a\nb", 1), refused(&b, "is not text");
    put_header(&b, 3, 0, 1), put_u32(&b, "\xFF", 1), refused(&b, "is not text");
    put_header(&b, 3, 0, 1), put_number(&b, UINT64_MAX, 8), put_data(&b, 20), refused(&b, "at most 65535 are allowed");
    put_header(&b, 3, 0, 1), put_pair(&b, "a", 13), put_data(&b, 20), refused(&b, "a has type 13");
    put_header(&b, 3, 0, 1), put_pair(&b, "a", 7), put_number(&b, 2, 1), refused(&b, "a is 2: a bool is 0 or 1");
    put_header(&b, 3, 0, 1), put_pair(&b, "a", 8), put_number(&b, UINT64_MAX, 8), refused(&b, "cut short");
    put_header(&b, 3, 0, 1), put_pair(&b, "a", 10), put_number(&b, 1, 4), refused(&b, "cut short");
    put_header(&b, 3, 0, 1), put_pair(&b, "a", 9), put_number(&b, 4, 4), put_number(&b, UINT64_MAX / 4 + 2, 8);
    refused(&b, "elements, but the file has 0 more bytes");
    put_header(&b, 3, 0, 1), put_pair(&b, "a", 9), put_number(&b, 7, 4), put_number(&b, 2, 8), put_number(&b, 0x0201, 2);
    refused(&b, "a[1] is 2: a bool is 0 or 1");
}

static void test_arrays(void **state) {
    (void)state;
    static built b;
    put_header(&b, 3, 0, 1), put_pair(&b, "a", 9);
    for (int depth = 0; depth < REIN_GGUF_DEPTH; depth++) put_number(&b, 9, 4), put_number(&b, 1, 8);
    put_number(&b, 4, 4), put_number(&b, 0, 8);
    refused(&b, "arrays in arrays");
    put_header(&b, 3, 0, 1), put_pair(&b, "a", 9), put_number(&b, 8, 4), put_number(&b, 2, 8), put_text(&b, "x"),
        put_text(&b, "yz");
    rein_gguf *gguf = accepted(&b);
    const rein_gguf_value *value = rein_gguf_find(gguf, "a");
    const unsigned char *at = value->bytes;
    assert_int_equal(value->count, 2);
    assert_int_equal(rein_gguf_next_text(&at).length, 1);
    assert_memory_equal(rein_gguf_next_text(&at).bytes, "yz", 2);
    assert_null(rein_gguf_find(gguf, "b"));
    rein_gguf_close(gguf);
}

static void test_tensor_rules(void **state) {
    (void)state;
    static built b;
    put_header(&b, 3, 1, 0), put_tensor(&b, "t", 2, 3, 0, 0), put_data(&b, 24);
    rein_gguf_close(accepted(&b));
    b.size--, refused(&b, "of which there are 23");
    put_header(&b, 3, 1, 0), put_tensor(&b, "t", 2, 3, 0, 16), put_data(&b, 100), refused(&b, "a multiple of 32");
    put_header(&b, 3, 1, 0), put_tensor(&b, "t", 2, 3, 0, UINT64_MAX - 31), put_data(&b, 100), refused(&b, "cut short");
    put_header(&b, 3, 1, 0), put_tensor(&b, "t", 2, 33, 8, 0), put_data(&b, 100), refused(&b, "Q8_0 needs a multiple of 32");
    put_header(&b, 3, 1, 0), put_tensor(&b, "t", 1ull << 33, 1ull << 33, 0, 0), put_data(&b, 100), refused(&b, "overflows");
    put_header(&b, 3, 1, 0), put_tensor(&b, "t", 1, UINT64_MAX, 0, 0), put_data(&b, 100), refused(&b, "overflows");
    put_header(&b, 3, 1, 0), put_tensor(&b, "t", 1ull << 31, 1ull << 32, 0, 0), put_data(&b, 100), refused(&b, "overflows");
    put_header(&b, 3, 1, 0), put_tensor(&b, "t", 1, 1, 4, 0), put_data(&b, 100), refused(&b, "type 4, which is not known");
    put_header(&b, 3, 1, 0), put_tensor(&b, "t", 1, 1, 99, 0), put_data(&b, 100), refused(&b, "type 99, which is not known");
    put_header(&b, 3, 2, 0), put_tensor(&b, "t", 2, 16, 0, 0), put_tensor(&b, "u", 2, 16, 0, 96), put_data(&b, 300);
    refused(&b, "tensors t and u overlap");
    put_header(&b, 3, 2, 0), put_tensor(&b, "t", 2, 4, 0, 0), put_tensor(&b, "t", 2, 4, 0, 32), put_data(&b, 300);
    refused(&b, "t is the name of two tensors");
    put_header(&b, 3, 1, 0), put_text(&b, "t"), put_number(&b, 5, 4), put_data(&b, 100), refused(&b, "5 dimensions");
    put_header(&b, 3, 1, 0), put_tensor(&b, "a name of sixty-five bytes is one byte more than the format permits", 1, 1, 0, 0);
    put_data(&b, 100), refused(&b, "at most 64 are allowed");
}

static void test_alignment(void **state) {
    (void)state;
    static built b;
    put_header(&b, 3, 0, 1), put_u32(&b, "general.alignment", 24), refused(&b, "power of two");
    put_header(&b, 3, 0, 1), put_u32(&b, "general.alignment", 0), refused(&b, "power of two");
    put_header(&b, 3, 0, 1), put_string(&b, "general.alignment", "32"), refused(&b, "power of two");
    put_header(&b, 3, 1, 1), put_u32(&b, "general.alignment", 64), put_tensor(&b, "t", 2, 3, 0, 32), put_data(&b, 200);
    refused(&b, "a multiple of 64");
}

static rein_status config_of(const built *b, rein_error *err) {
    rein_gguf *gguf = accepted(b);
    json_t *json;
    const rein_status status = rein_gguf_config(&json, gguf, err);
    json_decref(json);
    rein_gguf_close(gguf);
    return status;
}

static void test_unsupported(void **state) {
    (void)state;
    static built b;
    rein_error err = {0};
    put_header(&b, 3, 0, 1), put_string(&b, "general.architecture", "mamba");
    assert_int_equal(config_of(&b, &err), REIN_EINVAL);
    says(&err, "\"mamba\", which is not supported: llama, ");
    put_header(&b, 3, 0, 1), put_u32(&b, "general.architecture", 1);
    assert_int_equal(config_of(&b, &err), REIN_EINVAL);
    put_header(&b, 3, 0, 1), put_string(&b, "general.architecture", "llama");
    assert_int_equal(config_of(&b, &err), REIN_EINVAL);
    says(&err, "token_embd.weight is missing");
    put_header(&b, 3, 1, 2), put_string(&b, "general.architecture", "llama"), put_u32(&b, "llama.attention.head_count", 1);
    put_tensor(&b, "blk.0.ffn_up.weight", 1, 256, 10, 0), put_data(&b, 100);
    rein_gguf *gguf = accepted(&b);
    rein_tensors *tensors;
    assert_int_equal(rein_gguf_take_tensors(&tensors, &gguf, &err), REIN_EINVAL);
    says(&err, "blk.0.ffn_up.weight has type Q2_K, which is not supported: F32, BF16, F16, Q8_0");
    put_header(&b, 3, 0, 1), put_string(&b, "tokenizer.ggml.model", "bert");
    json_t *json;
    gguf = accepted(&b);
    assert_int_equal(rein_gguf_tokenizer(&json, gguf, &err), REIN_EINVAL);
    says(&err, "is bert, which is not supported: gpt2 and llama are");
    rein_gguf_close(gguf);
}

/* ---- memory */

static rein_status open_and_close(void *context, rein_error *err) {
    rein_tensors *tensors;
    rein_model_config config;
    rein_status status = rein_model_config_read(&config, context, err);
    if (!status) status = rein_tensors_open(&tensors, context, err);
    if (!status) rein_tensors_close(tensors);
    return status;
}

static rein_status open_tokenizer(void *context, rein_error *err) {
    rein_tokenizer *tokenizer;
    const rein_status status = rein_tokenizer_open(&tokenizer, context, err);
    rein_tokenizer_close(tokenizer);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    static const char *const names[] = {"gemma3", "qwen3_moe", "phi3_longrope", "llama3_rope"};
    if (!can_fail()) skip();
    for (size_t i = 0; i < COUNT(names); i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s", gguf_fixture(names[i]));
        assert_true(fail_each_allocation(open_and_close, path) > 20);
    }
    char path[4096];
    snprintf(path, sizeof path, "%s", in_folder("small.gguf"));
    static built b;
    put_header(&b, 3, 0, 6), put_string(&b, "tokenizer.ggml.model", "llama");
    put_pair(&b, "tokenizer.ggml.tokens", 9), put_number(&b, 8, 4), put_number(&b, 4, 8);
    put_text(&b, "a"), put_text(&b, "b"), put_text(&b, "ab"), put_text(&b, "a b");
    put_pair(&b, "tokenizer.ggml.scores", 9), put_number(&b, 6, 4), put_number(&b, 4, 8), put_number(&b, 0, 8),
        put_number(&b, 0, 8);
    put_pair(&b, "tokenizer.ggml.token_type", 9), put_number(&b, 5, 4), put_number(&b, 4, 8);
    for (int i = 0; i < 4; i++) put_number(&b, i == 3 ? 4 : 1, 4);
    put_u32(&b, "tokenizer.ggml.bos_token_id", 0), put_u32(&b, "tokenizer.ggml.unknown_token_id", 1);
    OK(rein_file_write(path, b.bytes, b.size, &error_));
    assert_true(fail_each_allocation(open_tokenizer, path) > 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),     cmocka_unit_test(test_saved),         cmocka_unit_test(test_split),
        cmocka_unit_test(test_tokenizers), cmocka_unit_test(test_chat_template), cmocka_unit_test(test_header),
        cmocka_unit_test(test_metadata),   cmocka_unit_test(test_arrays),        cmocka_unit_test(test_tensor_rules),
        cmocka_unit_test(test_alignment),  cmocka_unit_test(test_unsupported),   cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
