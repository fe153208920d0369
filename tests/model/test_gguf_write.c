/* test_gguf_write.c - models, adapters and tokenizers that are written as GGUF are read again as the same ones. The files of another writer,
 * PyPI's gguf, are in test_gguf.c; other readers are in tests/parity. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/gguf_fixture.h"
#include "model/gguf_splits.h"
#include "model/gguf_write.h"
#include "support/allocation.h"

/* The path of a new file. */
static const char *new_file(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s", in_folder_format("%s.gguf", name));
    remove(path);
    return path;
}

/* ---- models */

static void check_forward(const char *gguf, const rein_model *model, int train) {
    pass ours = {0}, theirs = {0};
    rein_model *again = open_model(gguf, train);
    forward(&ours, again, train);
    forward(&theirs, model, train);
    check_same(&ours, &theirs);
    pass_free(&ours), pass_free(&theirs);
    rein_model_close(again);
}

/* In f32 every family has the same bits: log-probabilities, and the gradients of all weights. */
static void test_models(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(gguf_models); i++) {
        if (!strcmp(gguf_models[i], "llama3_rope")) continue; /* its factors are not the published ones */
        const char *directory = changed_model(gguf_models[i]), *file = new_file("model");
        for (int train = 0; train < 2; train++) {
            rein_gguf_written written;
            rein_model *model = open_model(directory, train);
            OK(rein_model_save_gguf(&written, NULL, model, NULL, new_file("model"), "f32", &error_));
            assert_true(written.error == 0 && written.largest_error == 0 && written.tensors > 10 && written.not_blocks == 0);
            check_forward(file, model, train);
            rein_model_close(model);
        }
    }
}

/* A model in GGUF is written with its own metadata: the file of PyPI's gguf and ours have the same numbers. */
static void test_copies(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(gguf_models); i++) {
        rein_model *model = open_model(gguf_fixture(gguf_models[i]), 0);
        const char *file = new_file("copy");
        OK(rein_model_save_gguf(NULL, NULL, model, NULL, file, "f32", &error_));
        check_forward(file, model, 0);
        rein_model_close(model);
    }
}

static void check_same_file(const char *a, const char *b) {
    rein_file x, y;
    OK(rein_file_map(&x, a, &error_));
    OK(rein_file_map(&y, b, &error_));
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    rein_file_unmap(&x);
    rein_file_unmap(&y);
}

/* A file that is written again in its own type is the same file: what is stored is copied and not rounded. */
static void test_stored(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "f16", "bf16", "q8_0", "q4_0"};
    for (size_t i = 0; i < COUNT(types); i++) {
        rein_gguf_written first, second;
        char one[4096], two[4096];
        snprintf(one, sizeof one, "%s", new_file("first"));
        snprintf(two, sizeof two, "%s", new_file("second"));
        rein_model *model = open_model(fixture("phi3", ""), 0); /* rows of 32 numbers and of 12 */
        OK(rein_model_save_gguf(&first, NULL, model, NULL, one, types[i], &error_));
        rein_model_close(model);
        model = open_model(one, 0);
        OK(rein_model_save_gguf(&second, NULL, model, NULL, two, types[i], &error_));
        rein_model_close(model);
        check_same_file(one, two);
        assert_true(second.error == 0);
        assert_int_equal(first.not_blocks, i < 3 ? 0 : 2); /* down_proj of both layers */
        assert_true(i < 3 ? first.error < (i == 1 ? 1e-3 : 1e-9) : first.error > 0 && first.error < 0.2); /* it is bf16 */
    }
}

/* The types of tensors in a file. */
static const char *type_in(const char *path, const char *name) {
    rein_gguf *gguf;
    OK(rein_gguf_open(&gguf, path, &error_));
    const char *type = rein_gguf_type_at(rein_gguf_tensor_find(gguf, name)->type).name;
    rein_gguf_close(gguf);
    return type;
}

static void test_types(void **state) {
    (void)state;
    rein_model *tied = open_model(fixture("phi3", ""), 0), *untied = open_model(fixture("phi3_longrope", ""), 0);
    const char *file = new_file("types");
    OK(rein_model_save_gguf(NULL, NULL, tied, NULL, file, "q4_0", &error_));
    assert_string_equal(type_in(file, "token_embd.weight"), "Q8_0"); /* it is the head */
    assert_string_equal(type_in(file, "blk.0.attn_qkv.weight"), "Q4_0");
    assert_string_equal(type_in(file, "blk.0.attn_norm.weight"), "F32");
    assert_string_equal(type_in(file, "blk.0.ffn_down.weight"), "F16");
    OK(rein_model_save_gguf(NULL, NULL, tied, NULL, new_file("types"), NULL, &error_));
    assert_string_equal(type_in(file, "token_embd.weight"), "BF16"); /* as stored */
    OK(rein_model_save_gguf(NULL, NULL, untied, NULL, new_file("types"), NULL, &error_));
    assert_string_equal(type_in(file, "output.weight"), "F16");
    assert_string_equal(type_in(file, "rope_factors_long.weight"), "F32");
    rein_model_close(tied);
    rein_model_close(untied);
}

static const char *wide_model(void) {
    static const char config[] =
        "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"vocab_size\": 40, "
        "\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"head_dim\": 16, \"tie_word_embeddings\": false}";
    const char *directory = in_folder("wide");
    if (rein_file_exists(directory)) return directory;
    OK(rein_make_directories(directory, &error_));
    OK(rein_file_write(in_folder("wide/config.json"), config, sizeof config - 1, &error_));
    OK(rein_model_init(directory, 7, &error_));
    return directory;
}

/* A file of blocks is the model that is quantised when it is opened, whose rounding is tested against PyPI's gguf. Such a model can be written
 * too. */
static void test_quantised(void **state) {
    (void)state;
    static const char *const types[] = {"q8_0", "q4_0"};
    for (size_t i = 0; i < COUNT(types); i++) {
        rein_model *plain = open_model(wide_model(), 0), *quantised;
        const rein_model_options options = {.quantize = types[i]};
        const char *file = new_file("quantised");
        OK(rein_model_open(&quantised, wide_model(), &options, &error_));
        OK(rein_model_save_gguf(NULL, NULL, plain, NULL, file, types[i], &error_));
        assert_string_equal(type_in(file, "blk.1.ffn_down.weight"), i ? "Q4_0" : "Q8_0");
        if (i == 0) check_forward(file, quantised, 0); /* Q4_0 has a head of Q8_0 in a file */
        OK(rein_model_save_gguf(NULL, NULL, quantised, NULL, new_file("quantised"), "f32", &error_));
        check_forward(file, quantised, 0);
        rein_model_close(quantised);
        rein_model_close(plain);
    }
}

/* ---- adapters */

/* The type that all weights of a directory have. */
static const char *stored_type(const rein_model *model) {
    const char *name = rein_model_describe(model).type;
    return !strcmp(name, "BF16") ? "bf16" : !strcmp(name, "F16") ? "f16" : "f32";
}

/* A merged GGUF file has the numbers of a merged directory, which has the types of the original. */
static void test_merged(void **state) {
    (void)state;
    static const char *const names[] = {"llama", "qwen3_moe", "phi3_longrope", "gemma3", "granite"};
    for (size_t i = 0; i < COUNT(names); i++) {
        rein_model *model = open_model(changed_model(names[i]), 0);
        rein_adapter *adapter = open_adapter(model, names[i]);
        const char *file = new_file("merged");
        OK(rein_model_save_gguf(NULL, NULL, model, adapter, file, stored_type(model), &error_));
        OK(rein_model_save(model, adapter, in_folder_format("merged_%s", names[i]), &error_));
        rein_model *merged = open_model(in_folder_format("merged_%s", names[i]), 0);
        check_forward(file, merged, 0);
        rein_model_close(merged);
        rein_adapter_close(adapter);
        rein_model_close(model);
    }
}

/* s·B·A from the tensors of a file, for one row of a module in the order of GGUF. */
static double product_in(const rein_gguf *gguf, const char *module, size_t row, size_t column) {
    char name[80];
    snprintf(name, sizeof name, "%s.lora_a", module);
    const rein_gguf_tensor *a = rein_gguf_tensor_find(gguf, name);
    snprintf(name, sizeof name, "%s.lora_b", module);
    const rein_gguf_tensor *b = rein_gguf_tensor_find(gguf, name);
    assert_non_null(a);
    assert_non_null(b);
    const size_t rank = a->sizes[1], width = a->sizes[0];
    assert_int_equal(b->sizes[0], rank);
    const float *x = (const float *)(const void *)a->data, *y = (const float *)(const void *)b->data;
    double sum = 0;
    for (size_t k = 0; k < rank; k++) sum += (double)y[row * rank + k] * (double)x[k * width + column];
    return sum * rein_gguf_number(rein_gguf_find(gguf, "adapter.lora.alpha"), 0) / (double)rank;
}

static double product_of(const rein_lora *lora, size_t width, size_t row, size_t column) {
    double sum = 0;
    for (size_t k = 0; k < lora->rank; k++) sum += (double)lora->b[row * lora->rank + k] * (double)lora->a[k * width + column];
    return sum * (double)lora->scale;
}

static void test_adapter(void **state) {
    (void)state;
    rein_model *model = open_model(fixture("llama", ""), 0);
    rein_adapter *adapter = open_adapter(model, "llama");
    const char *file = new_file("adapter");
    rein_gguf *gguf;
    OK(rein_adapter_save_gguf(adapter, file, &error_));
    OK(rein_gguf_open(&gguf, file, &error_));
    assert_memory_equal(rein_gguf_find(gguf, "general.type")->bytes, "adapter", 7);
    assert_memory_equal(rein_gguf_find(gguf, "adapter.type")->bytes, "lora", 4);
    assert_int_equal(gguf->n_tensors, 2 * adapter->n);
    const size_t width = model->layers[0].linear[REIN_Q].in, half = model->heads.dim / 2;
    const rein_lora *q = rein_adapter_lora(adapter, 0, REIN_Q), *up = rein_adapter_lora(adapter, 0, REIN_UP);
    assert_non_null(q);
    for (size_t j = 0; j < width; j++) { /* rows 0, 1, 2 of a head are 0, half, 1 */
        assert_true(fabs(product_in(gguf, "blk.0.attn_q.weight", 1, j) - product_of(q, width, half, j)) < 1e-6);
        assert_true(fabs(product_in(gguf, "blk.0.attn_q.weight", 2, j) - product_of(q, width, 1, j)) < 1e-6);
        if (up) assert_true(fabs(product_in(gguf, "blk.0.ffn_up.weight", 1, j) - product_of(up, width, 1, j)) < 1e-6);
    }
    rein_gguf_close(gguf);
    rein_adapter_close(adapter);
    rein_model_close(model);
}

/* Those of the experts of a layer are stacked. */
static void test_expert_adapter(void **state) {
    (void)state;
    rein_model *model = open_model(fixture("qwen3_moe", ""), 0);
    rein_adapter *adapter = open_adapter(model, "qwen3_moe");
    const char *file = new_file("experts");
    rein_gguf *gguf;
    OK(rein_adapter_save_gguf(adapter, file, &error_));
    OK(rein_gguf_open(&gguf, file, &error_));
    const rein_gguf_tensor *b = rein_gguf_tensor_find(gguf, "blk.0.ffn_down_exps.weight.lora_b");
    assert_non_null(b);
    assert_int_equal(b->sizes[2], model->config.n_experts);
    for (size_t e = 0; e < b->sizes[2]; e++) {
        const rein_lora *down = rein_adapter_slot(adapter, REIN_LAYER_MODULES + 3 * e + 2);
        assert_memory_equal(b->data + e * b->bytes / b->sizes[2], down->b, b->bytes / b->sizes[2]);
    }
    rein_gguf_close(gguf);
    rein_adapter_close(adapter);
    rein_model_close(model);
}

/* ---- tokenizers */

/* A file with a tokenizer and nothing else. */
static const char *written_tokenizer(const rein_tokenizer *tokenizer, size_t more) {
    static rein_model_config config;
    rein_gguf_pairs pairs = {0};
    const char *file = new_file("tokenizer");
    config = (rein_model_config){.vocab_size = (int64_t)(rein_tokenizer_size(tokenizer) + more), .bos = -1};
    OK(rein_gguf_put_tokenizer(&pairs, NULL, tokenizer, &config, &error_));
    OK(rein_gguf_write(file, &pairs, NULL, 0, NULL, NULL, &error_));
    rein_gguf_pairs_free(&pairs);
    return file;
}

static void test_tokenizers(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(gguf_tokenizers); i++) {
        char directory[4096], cases[4200];
        tokenizer_fixture(directory, cases, gguf_tokenizers[i]);
        rein_tokenizer *theirs = tokenizer_of(directory), *ours = tokenizer_of(written_tokenizer(theirs, 3 * i));
        check_cases(ours, theirs, cases);
        assert_int_equal(rein_tokenizer_size(ours), rein_tokenizer_size(theirs)); /* unused tokens have no text */
        rein_tokenizer_close(ours);
        rein_tokenizer_close(theirs);
    }
}

/* The same numbers or strings. The unknown token of SentencePiece is a control token (3) in their file. */
static void check_value(const rein_gguf_value *a, const rein_gguf_value *b) {
    assert_int_equal(a != NULL, b != NULL);
    if (!a) return;
    assert_int_equal(a->count, b->count);
    const unsigned char *x = a->bytes, *y = b->bytes;
    for (size_t i = 0; a->kind == REIN_GGUF_ARRAY && i < a->count; i++) {
        if (a->element != REIN_GGUF_STRING) {
            const double p = rein_gguf_number(a, i), q = rein_gguf_number(b, i);
            assert_true(p == q || (p == REIN_GGUF_UNKNOWN && q == REIN_GGUF_CONTROL));
            continue;
        }
        const rein_gguf_text s = rein_gguf_next_text(&x), t = rein_gguf_next_text(&y);
        assert_int_equal(s.length, t.length);
        assert_memory_equal(s.bytes, t.bytes, s.length);
    }
    if (a->kind == REIN_GGUF_STRING) assert_memory_equal(a->bytes, b->bytes, a->count);
}

/* The tokens, types and merges of PyPI's gguf. */
static void test_tokenizer_bytes(void **state) {
    (void)state;
    static const char *const keys[] = {"tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
                                       "tokenizer.ggml.merges"};
    for (size_t i = 0; i < COUNT(gguf_tokenizers); i++) {
        char directory[4096], cases[4200], name[64];
        rein_gguf *ours, *theirs;
        tokenizer_fixture(directory, cases, gguf_tokenizers[i]);
        rein_tokenizer *tokenizer = tokenizer_of(directory);
        snprintf(name, sizeof name, "tokenizer_%s", gguf_tokenizers[i]);
        OK(rein_gguf_open(&theirs, gguf_fixture(name), &error_));
        const size_t n = rein_gguf_find(theirs, keys[1])->count;
        OK(rein_gguf_open(&ours, written_tokenizer(tokenizer, n - rein_tokenizer_size(tokenizer)), &error_));
        for (size_t k = 0; k < COUNT(keys); k++) check_value(rein_gguf_find(ours, keys[k]), rein_gguf_find(theirs, keys[k]));
        rein_gguf_close(ours);
        rein_gguf_close(theirs);
        rein_tokenizer_close(tokenizer);
    }
}

static void test_tokenizers_refused(void **state) {
    (void)state;
    static const struct {
        const char *name, *why;
    } refusals[] = {{"splits", "splits text in a way"}, {"prefix_space", "splits text in a way"}, {"nfkc", "GGUF has no word"}};
    for (size_t i = 0; i < COUNT(refusals); i++) {
        char directory[4096], cases[4200];
        rein_gguf_pairs pairs = {0};
        rein_error err = {0};
        tokenizer_fixture(directory, cases, refusals[i].name);
        rein_tokenizer *tokenizer = tokenizer_of(directory);
        const rein_model_config config = {.vocab_size = (int64_t)rein_tokenizer_size(tokenizer), .bos = -1};
        assert_int_equal(rein_gguf_put_tokenizer(&pairs, NULL, tokenizer, &config, &err), REIN_EINVAL);
        says(&err, refusals[i].why);
        const rein_model_config small = {.vocab_size = 3};
        assert_int_equal(rein_gguf_put_tokenizer(&pairs, NULL, tokenizer, &small, &err), REIN_EINVAL);
        says(&err, "an embedding for each token");
        rein_gguf_pairs_free(&pairs);
        rein_tokenizer_close(tokenizer);
    }
}

/* ---- what is refused */

static void refused(const char *name, const char *why) {
    rein_error err = {0};
    rein_model *model = open_model(fixture(name, ""), 0);
    const char *file = new_file("refused");
    assert_int_equal(rein_model_save_gguf(NULL, NULL, model, NULL, file, "f32", &err), REIN_EINVAL);
    says(&err, why);
    assert_int_equal(rein_file_exists(file), 0);
    rein_model_close(model);
}

static void test_refused(void **state) {
    (void)state;
    rein_error err = {0};
    refused("olmoe", "cannot be written as GGUF: llama, ");
    refused("olmo3", "cannot be written as GGUF");
    refused("gemma2", "query_pre_attn_scalar");
    refused("smollm3", "no_rope_layers other than every fourth");
    rein_model *model = open_model(fixture("llama", ""), 0), *other = open_model(fixture("llama", ""), 0);
    rein_adapter *adapter = open_adapter(other, "llama");
    assert_int_equal(rein_model_save_gguf(NULL, NULL, model, adapter, new_file("x"), NULL, &err), REIN_EINVAL);
    says(&err, "another model");
    assert_int_equal(rein_model_save_gguf(NULL, NULL, model, NULL, new_file("x"), "q4_k", &err), REIN_EINVAL);
    says(&err, "type is \"q4_k\": f32, f16, bf16, q8_0 and q4_0 are known");
    OK(rein_model_save_gguf(NULL, NULL, model, NULL, new_file("x"), NULL, &error_));
    assert_int_equal(rein_model_save_gguf(NULL, NULL, model, NULL, in_folder("x.gguf"), NULL, &err), REIN_EINVAL);
    says(&err, "already exists");
    assert_int_equal(rein_adapter_save_gguf(adapter, in_folder("x.gguf"), &err), REIN_EINVAL);
    says(&err, "already exists");
    assert_int_equal(rein_model_save_gguf(NULL, NULL, model, NULL, in_folder("nowhere/x.gguf"), NULL, &err), REIN_EIO);
    rein_adapter_close(adapter);
    rein_model_close(other);
    rein_model_close(model);
    const rein_model_options score = {.score = REIN_SCORE_RANDOM};
    OK(rein_model_open(&model, fixture("llama", ""), &score, &error_));
    assert_int_equal(rein_model_save_gguf(NULL, NULL, model, NULL, in_folder("score.gguf"), NULL, &err), REIN_EINVAL);
    says(&err, "a model with a score head cannot be written as GGUF");
    rein_model_close(model);
}

/* The context is as long as a window that GGUF cannot say. */
static void test_notes(void **state) {
    (void)state;
    rein_text notes = {0};
    rein_model *model = open_model(fixture("mistral_window", ""), 0);
    const char *file = new_file("notes");
    OK(rein_model_save_gguf(NULL, &notes, model, NULL, file, "f32", &error_));
    assert_non_null(strstr(notes.data, "the context is 5 tokens, its window, instead of "));
    rein_model *again = open_model(file, 0);
    assert_int_equal(rein_model_describe(again).max_positions, 5);
    rein_model_close(again);
    rein_model_close(model);
    rein_text_free(&notes);
}

static void test_overflow(void **state) {
    (void)state;
    static const char *const modules[] = {"up_proj"};
    rein_error err = {0};
    rein_model *model = open_model(fixture("llama", ""), 0);
    rein_adapter *adapter;
    const rein_lora_options options = {.rank = 1, .alpha = 1, .modules = modules, .n_modules = 1};
    OK(rein_adapter_new(&adapter, model, &options, &error_));
    rein_lora *lora = (rein_lora *)(uintptr_t)rein_adapter_lora(adapter, 0, REIN_UP);
    lora->a[3] = 1000, lora->b[2] = 1000;
    const char *file = new_file("overflow");
    assert_int_equal(rein_model_save_gguf(NULL, NULL, model, adapter, file, "f16", &err), REIN_ERANGE);
    says(&err, "model.layers.0.mlp.up_proj.weight[2][3] merged with its LoRA is ");
    says(&err, "which F16 cannot represent");
    assert_int_equal(rein_file_exists(file), 0);
    rein_adapter_close(adapter);
    rein_model_close(model);
}

/* ---- memory */

static rein_status save(void *context, rein_error *err) {
    rein_text notes = {0};
    const rein_status status = rein_model_save_gguf(NULL, &notes, context, NULL, new_file("memory"), "q8_0", err);
    rein_text_free(&notes);
    return status;
}

static rein_status save_adapter(void *context, rein_error *err) { return rein_adapter_save_gguf(context, new_file("memory"), err); }

static rein_status write_tokenizer(void *context, rein_error *err) {
    const rein_tokenizer *tokenizer = context;
    const rein_model_config config = {.vocab_size = (int64_t)rein_tokenizer_size(tokenizer), .bos = -1};
    rein_gguf_pairs pairs = {0};
    const rein_status status = rein_gguf_put_tokenizer(&pairs, NULL, tokenizer, &config, err);
    rein_gguf_pairs_free(&pairs);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    static const char *const names[] = {"phi3_longrope", "mistral_window"};
    if (!can_fail()) skip();
    for (size_t i = 0; i < COUNT(names); i++) {
        rein_model *model = open_model(fixture(names[i], ""), 0);
        assert_true(fail_each_allocation(save, model) > 10);
        rein_model_close(model);
    }
    rein_model *model = open_model(fixture("llama", ""), 0);
    rein_adapter *adapter = open_adapter(model, "llama");
    assert_true(fail_each_allocation(save_adapter, adapter) > 5);
    rein_adapter_close(adapter);
    rein_model_close(model);
    for (size_t i = 4; i < COUNT(gguf_tokenizers); i++) {
        char directory[4096], cases[4200];
        tokenizer_fixture(directory, cases, gguf_tokenizers[i]);
        rein_tokenizer *tokenizer = tokenizer_of(directory);
        assert_true(fail_each_allocation(write_tokenizer, tokenizer) > 5);
        rein_tokenizer_close(tokenizer);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_stored),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_quantised),
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_adapter),
        cmocka_unit_test(test_expert_adapter),
        cmocka_unit_test(test_tokenizers),
        cmocka_unit_test(test_tokenizer_bytes),
        cmocka_unit_test(test_tokenizers_refused),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_notes),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
