/* test_quantize.c - weights are quantised to the bytes that PyPI gguf gives; a model that is quantised when it is opened has the bits of the
 * model whose weights were quantised before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/kernels.h"
#include "model/engine_fixture.h"
#include "model/quantize.h"
#include "support/files.h"
#include "support/folder.h"
#include "support/random.h"

/* ---- blocks */
static size_t read_bytes(void *to, const char *text) {
    size_t n = 0;
    for (unsigned byte; sscanf(text + 2 * n, "%2x", &byte) == 1; n++) ((uint8_t *)to)[n] = (uint8_t)byte;
    return n;
}

static void test_goldens(void **state) {
    FILE *file = fopen("tests/kernel/fixtures/quantized.txt", "r");
    char name[10], block[100], values[300];
    uint8_t expected[40], got[40];
    size_t seen = 0;
    (void)state;
    assert_non_null(file);
    while (fscanf(file, "%9s %99s %299s", name, block, values) == 3) {
        const rein_weight_type *type = rein_quantize_type(strcmp(name, "Q8_0") ? "q4_0" : "q8_0");
        float x[32];
        double wide[32];
        const size_t bytes = read_bytes(expected, block);
        assert_int_equal(read_bytes(x, values), sizeof x);
        assert_int_equal(bytes, rein_storage_bytes(type->storage, 32));
        type->round_f32(got, x, 32);
        assert_memory_equal(got, expected, bytes);
        for (size_t i = 0; i < 32; i++) wide[i] = (double)x[i];
        type->round(got, wide, 32);
        assert_memory_equal(got, expected, bytes);
        seen++;
    }
    fclose(file);
    assert_int_equal(seen, 28);
}

/* Numbers that have no sensible block are still bytes: no conversion of the language is undefined. */
static void test_any_numbers(void **state) {
    (void)state;
    for (int round = 0; round < 1000; round++) {
        float x[64];
        uint8_t to[80];
        for (size_t i = 0; i < 64; i++) {
            const uint32_t bits = (uint32_t)random_bits();
            memcpy(&x[i], &bits, sizeof bits);
        }
        rein_quantize_type("q8_0")->round_f32(to, x, 64);
        rein_quantize_type("q4_0")->round_f32(to, x, 64);
    }
}

/* ---- models */
enum { HIDDEN = 64, VOCABULARY = 40 };
static void write_model(const char *directory, int tied, int hidden, float worst) {
    char text[1000], path[1100];
    OK(rein_make_directories(directory, &error_));
    snprintf(text, sizeof text,
             "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"vocab_size\": %d, \"hidden_size\": %d, "
             "\"intermediate_size\": 96, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
             "\"head_dim\": 16, \"tie_word_embeddings\": %s, \"torch_dtype\": \"bfloat16\", \"sliding_window\": null}",
             VOCABULARY, hidden, tied ? "true" : "false");
    snprintf(path, sizeof path, "%s/config.json", directory);
    put_text(path, text);
    rein_model_config config;
    rein_weight names[60];
    rein_tensor tensors[60] = {0};
    OK(rein_model_config_read(&config, directory, &error_));
    const size_t n = rein_model_weights(&config);
    assert_true(n <= 60);
    for (size_t i = 0; i < n; i++) {
        rein_weight *w = &names[i];
        rein_model_weight(w, &config, i);
        const size_t count = w->shape[0] * (w->n_dims == 2 ? w->shape[1] : 1);
        uint16_t *data = some(count, sizeof *data);
        for (size_t k = 0; k < count; k++) {
            const float x = k == 5 && i == 3 ? worst : (float)uniform(-0.3, 0.3);
            rein_weight_type_of(REIN_TENSOR_BF16)->round_f32(&data[k], &x, 1);
        }
        tensors[i] =
            (rein_tensor){.name = w->name, .dtype = REIN_TENSOR_BF16, .n_dims = w->n_dims, .data = data, .bytes = 2 * count};
        memcpy(tensors[i].shape, w->shape, sizeof w->shape);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    OK(rein_tensors_write(path, tensors, n, NULL, 0, &error_));
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)tensors[i].data);
}

static rein_model *open_quantized(const char *directory, const char *type) {
    rein_model *model;
    OK(rein_model_open(&model, directory, &(rein_model_options){.exec = {2, REIN_ISA_BEST}, .quantize = type}, &error_));
    return model;
}

static void run(pass *p, const rein_model *model, const batch *b) {
    const rein_forward_options options = {.keep = 1, .entropy_gradient = 1};
    const rein_lora_options lora = {.rank = 4, .alpha = 8, .seed = 1};
    rein_activations *activations = open_activations(2, REIN_ISA_BEST);
    rein_adapter *adapter;
    OK(rein_adapter_new(&adapter, model, &lora, &error_));
    run_pass(p, activations, &(rein_policy){model, adapter, 0.8}, b, &options);
    rein_adapter_close(adapter);
    rein_activations_close(activations);
}

static batch *some_batch(void) {
    batch *b = batch_new();
    for (size_t s = 0; s < 4; s++) {
        add_segment(b, s ? 0 : -1);
        for (size_t i = 0; i < 5 * s + 3; i++)
            add_token(b, (int32_t)below(VOCABULARY), 1, coefficient_c(tokens_of(b)), coefficient_e(tokens_of(b)), -1);
    }
    return b;
}

/* Each matrix of the saved model, in f32, is what its blocks decode to; other weights are as they were. */
static void check_saved(const char *directory, const char *saved, const rein_weight_type *type) {
    rein_tensors *before, *after;
    OK(rein_tensors_open(&before, directory, &error_));
    OK(rein_tensors_open(&after, saved, &error_));
    assert_int_equal(rein_tensors_count(before), rein_tensors_count(after));
    for (size_t i = 0; i < rein_tensors_count(before); i++) {
        const rein_tensor *was = rein_tensors_at(before, i), *is = rein_tensors_find(after, was->name);
        if (was->n_dims == 1) {
            assert_int_equal(is->dtype, REIN_TENSOR_BF16);
            assert_memory_equal(is->data, was->data, was->bytes);
            continue;
        }
        const size_t n = was->bytes / 2;
        float *x = floats(n);
        uint8_t *blocks = some(rein_storage_bytes(type->storage, n), 1);
        const rein_kernels *ref = rein_kernels_of(REIN_ISA_REF);
        ref->decode(x, was->data, REIN_STORED_BF16, n);
        type->round_f32(blocks, x, n);
        ref->decode(x, blocks, type->storage, n);
        assert_int_equal(is->dtype, REIN_TENSOR_F32);
        assert_memory_equal(is->data, x, is->bytes);
        free(x), free(blocks);
    }
    rein_tensors_close(before), rein_tensors_close(after);
}

static void test_models(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        const char *type = i % 2 ? "q8_0" : "q4_0", *directory = in_folder_format("model%d", i),
                   *saved = in_folder_format("saved%d", i);
        pass quantized = {0}, decoded = {0}, plain = {0};
        batch *b = some_batch();
        write_model(directory, i / 2, HIDDEN, 1);
        rein_model *model = open_quantized(directory, type), *stored = open_model(directory, 0);
        assert_string_equal(rein_model_describe(model).type, i % 2 ? "Q8_0" : "Q4_0");
        run(&quantized, model, b), run(&plain, stored, b);
        OK(rein_model_save(model, NULL, saved, &error_));
        rein_model *again = open_model(saved, 0);
        run(&decoded, again, b);
        assert_memory_equal(quantized.log_probs, decoded.log_probs, quantized.tokens * sizeof(float));
        assert_memory_equal(quantized.gradient, decoded.gradient, quantized.floats * sizeof(float));
        assert_memory_not_equal(quantized.log_probs, plain.log_probs, quantized.tokens * sizeof(float));
        check_saved(directory, saved, rein_quantize_type(type));
        rein_model_close(model), rein_model_close(again), rein_model_close(stored);
        pass_free(&quantized), pass_free(&decoded), pass_free(&plain);
        free(b);
    }
}

static void refused(const char *directory, int train, const char *type, const char *because) {
    rein_model *model;
    rein_error err = {0};
    assert_int_not_equal(rein_model_open(&model, directory, &(rein_model_options){.train = train, .quantize = type}, &err),
                         REIN_OK);
    assert_null(model);
    assert_string_equal(err.field, "quantize");
    says(&err, because);
}

static void test_refused(void **state) {
    const char *good = in_folder("good"), *narrow = in_folder("narrow"), *large = in_folder("large");
    (void)state;
    write_model(good, 1, HIDDEN, 1), write_model(narrow, 1, 48, 1), write_model(large, 1, HIDDEN, INFINITY);
    refused(good, 0, "q4_k", "\"q4_k\": q8_0 and q4_0 are known");
    refused(good, 1, "q8_0", "contradicts train");
    refused(narrow, 0, "q8_0", "model.embed_tokens.weight, whose rows have 48 numbers: Q8_0 needs a multiple of 32");
    refused(large, 0, "q4_0", "a weight is not finite, or too large for Q4_0");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goldens), cmocka_unit_test(test_any_numbers),
                                       cmocka_unit_test(test_models), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
