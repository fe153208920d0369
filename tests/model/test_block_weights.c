/* test_block_weights.c - a model with quantised weights has the bits of the model with the same weights in f32: log-probabilities, entropies,
 * gradients of an adapter, saved and merged models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/kernels.h"
#include "model/engine_fixture.h"
#include "model/weight_type.h"
#include "model/weights.h"
#include "support/files.h"
#include "support/folder.h"
#include "support/random.h"

/* Every row is whole blocks of 256. */
enum { HIDDEN = 256, VOCABULARY = 40, MOST_WEIGHTS = 40 };
static void write_config(int tied) {
    char text[1000];
    snprintf(text, sizeof text,
             "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"vocab_size\": %d, \"hidden_size\": %d, "
             "\"intermediate_size\": 256, \"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
             "\"head_dim\": 64, \"tie_word_embeddings\": %s, \"torch_dtype\": \"float32\", \"sliding_window\": null}",
             VOCABULARY, HIDDEN, tied ? "true" : "false");
    put_text(in_folder("config.json"), text);
}

/* Blocks of any bits with small scales of both signs. */
static void *random_blocks(rein_storage storage, size_t n) {
    static const struct {
        uint16_t low, range; /* of the f16 */
        size_t n, at[2];
    } scales[REIN_STORAGE_COUNT] = {
        [REIN_STORED_Q8_0] = {0x0c00, 0x400, 1, {0}},    [REIN_STORED_Q4_0] = {0x1c00, 0x400, 1, {0}},
        [REIN_STORED_Q4_1] = {0x1c00, 0x400, 2, {0, 2}}, [REIN_STORED_Q5_0] = {0x1800, 0x400, 1, {0}},
        [REIN_STORED_Q5_1] = {0x1800, 0x400, 2, {0, 2}}, [REIN_STORED_Q4_K] = {0x0400, 0x400, 2, {0, 2}},
        [REIN_STORED_Q5_K] = {0x0200, 0x400, 2, {0, 2}}, [REIN_STORED_Q6_K] = {0x0100, 0x200, 1, {208}},
    };
    const size_t bytes = rein_storage_bytes(storage, n), block = rein_storage_bytes(storage, rein_storage_elements(storage));
    uint8_t *blocks = some(bytes, 1);
    for (size_t i = 0; i < bytes; i++) blocks[i] = (uint8_t)random_bits();
    for (size_t b = 0; b < bytes; b += block)
        for (size_t i = 0; i < scales[storage].n; i++) {
            const uint16_t scale = (uint16_t)(scales[storage].low + below(scales[storage].range) + (below(2) << 15));
            memcpy(blocks + b + scales[storage].at[i], &scale, sizeof scale);
        }
    return blocks;
}

/* The weights of the model of the configuration, matrices in blocks of one type or of all in turn (REIN_STORED_F32). */
typedef struct weights {
    size_t n;
    rein_weight names[MOST_WEIGHTS];
    rein_storage storages[MOST_WEIGHTS];
    void *blocks[MOST_WEIGHTS]; /* of matrices */
    rein_tensor decoded[MOST_WEIGHTS];
} weights;

static weights *make_weights(rein_storage storage) {
    weights *w = some(1, sizeof *w);
    rein_model_config config;
    OK(rein_model_config_read(&config, folder, &error_));
    w->n = rein_model_weights(&config);
    assert_true(w->n <= MOST_WEIGHTS);
    for (size_t i = 0; i < w->n; i++) {
        rein_weight *name = &w->names[i];
        rein_model_weight(name, &config, i);
        const int is_matrix = name->n_dims == 2;
        const size_t n = is_matrix ? name->shape[0] * name->shape[1] : name->shape[0],
                     blocks = REIN_STORAGE_COUNT - REIN_STORED_Q8_0;
        float *values = some(n, sizeof *values);
        w->storages[i] = storage != REIN_STORED_F32 ? storage : (rein_storage)(REIN_STORED_Q8_0 + i % blocks);
        w->blocks[i] = is_matrix ? random_blocks(w->storages[i], n) : NULL;
        if (is_matrix) rein_kernels_of(REIN_ISA_REF)->decode(values, w->blocks[i], w->storages[i], n);
        else
            for (size_t k = 0; k < n; k++) values[k] = (float)uniform(0.5, 1.5);
        w->decoded[i] = (rein_tensor){.name = name->name, .dtype = REIN_TENSOR_F32, .n_dims = name->n_dims, .data = values};
        memcpy(w->decoded[i].shape, name->shape, sizeof name->shape);
        w->decoded[i].bytes = n * sizeof *values;
    }
    OK(rein_tensors_write(in_folder("model.safetensors"), w->decoded, w->n, NULL, 0, &error_));
    return w;
}

static void free_weights(weights *w) {
    for (size_t i = 0; i < w->n; i++) free(w->blocks[i]), free((void *)(uintptr_t)w->decoded[i].data);
    free(w);
}

/* Puts the blocks in place of the matrices that the model opened. */
static void use_blocks(rein_model *model, const weights *w) {
    const rein_exec exec = {1, REIN_ISA_REF};
    for (size_t i = 0; i < w->n; i++) {
        const rein_weight *name = &w->names[i];
        const rein_matrix matrix = {w->blocks[i], name->shape[1], 1, w->storages[i]};
        rein_tensor *stored = (rein_tensor *)(uintptr_t)rein_tensors_find(model->tensors, name->name);
        if (name->n_dims == 1) continue;
        stored->dtype = rein_weight_type_at((size_t)w->storages[i])->dtype, stored->data = w->blocks[i];
        assert_int_equal(rein_weight_type_of(stored->dtype)->storage, w->storages[i]);
        stored->bytes = rein_storage_bytes(w->storages[i], name->shape[0] * name->shape[1]);
        if (name->kind == REIN_EMBEDDING) model->embedding = matrix;
        else if (name->kind == REIN_HEAD) model->head.weight = matrix;
        else if (name->kind == REIN_MATRIX) model->layers[name->layer].linear[name->to].weight = matrix;
        else fail_msg("%s is of another kind", name->name);
    }
    if (model->config.tie_word_embeddings) model->head.weight = model->embedding;
    rein_model_unpack(model);
    OK(rein_model_pack(model, &exec, &error_));
    const rein_linear *q = &model->layers[0].linear[REIN_Q];
    assert_true(q->packed.storage == q->weight.storage && q->packed.storage != REIN_STORED_F32);
}

static rein_adapter *new_adapter(const rein_model *model) {
    const rein_lora_options options = {.rank = 4, .alpha = 8, .seed = 1};
    rein_adapter *adapter;
    OK(rein_adapter_new(&adapter, model, &options, &error_));
    for (size_t i = 0; i < adapter->floats; i++) adapter->values[i] = (float)cos((double)i) / 16; /* B too */
    rein_adapter_pack(adapter);
    return adapter;
}

static batch *some_batch(void) {
    batch *b = batch_new();
    for (size_t s = 0; s < 5; s++) {
        add_segment(b, s ? 0 : -1);
        for (size_t i = 0; i < (s ? 6 * s : 9); i++)
            add_token(b, (int32_t)below(VOCABULARY), 1, coefficient_c(tokens_of(b)), coefficient_e(tokens_of(b)), -1);
    }
    return b;
}

static void same_passes(const pass *a, const pass *b) {
    assert_memory_equal(a->log_probs, b->log_probs, a->tokens * sizeof(float));
    assert_memory_equal(a->entropies, b->entropies, a->tokens * sizeof(float));
    if (a->gradient) assert_memory_equal(a->gradient, b->gradient, a->floats * sizeof(float));
}

static void run(pass *p, const rein_model *model, const rein_adapter *adapter, const batch *b, const rein_exec *exec, int keep) {
    const rein_forward_options options = {.keep = keep, .entropy_gradient = keep};
    rein_activations *activations = open_activations(exec->threads, exec->isa);
    run_pass(p, activations, &(rein_policy){model, (rein_adapter *)(uintptr_t)adapter, 0.8}, b, &options);
    rein_activations_close(activations);
}

static void check_saved(const rein_model *blocks, const rein_model *decoded, const rein_adapter *adapter,
                        const rein_adapter *other) {
    OK(rein_model_save(blocks, adapter, in_folder("saved"), &error_));
    OK(rein_model_save(decoded, other, in_folder("expected"), &error_));
    assert_true(same_file(in_folder("saved/model.safetensors"), in_folder("expected/model.safetensors")));
    assert_true(same_file(in_folder("saved/config.json"), in_folder("expected/config.json")));
    OK(rein_remove_all(in_folder("saved"), &error_));
    OK(rein_remove_all(in_folder("expected"), &error_));
}

static void check_storage(rein_storage storage, int tied) {
    static const rein_exec execs[] = {{1, REIN_ISA_BEST}, {3, REIN_ISA_BEST}, {2, REIN_ISA_REF}, {2, REIN_ISA_AVX2}};
    write_config(tied);
    weights *w = make_weights(storage);
    rein_model *decoded = open_model(folder, 0), *blocks = open_model(folder, 0);
    use_blocks(blocks, w);
    rein_adapter *adapter = new_adapter(decoded), *same = new_adapter(blocks);
    batch *b = some_batch();
    pass expected = {0};
    run(&expected, decoded, adapter, b, &execs[0], 1);
    for (size_t t = 0; t < expected.tokens; t++) assert_true(isfinite(expected.log_probs[t]));
    for (size_t e = 0; e < COUNT(execs); e++) {
        if (!rein_isa_available(execs[e].isa) || (execs[e].isa == REIN_ISA_REF && storage != REIN_STORED_F32)) continue;
        pass got = {0};
        run(&got, blocks, same, b, &execs[e], 1);
        same_passes(&expected, &got);
        pass_free(&got);
    }
    check_saved(blocks, decoded, NULL, NULL);
    check_saved(blocks, decoded, same, adapter);
    pass_free(&expected);
    free(b);
    rein_adapter_close(adapter), rein_adapter_close(same);
    rein_model_close(decoded), rein_model_close(blocks);
    free_weights(w);
}

static void test_types(void **state) {
    (void)state;
    for (size_t s = REIN_STORED_Q8_0; s < REIN_STORAGE_COUNT; s++) check_storage((rein_storage)s, s % 2);
}

static void test_mixed(void **state) {
    (void)state;
    check_storage(REIN_STORED_F32, 0);
    check_storage(REIN_STORED_F32, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_mixed)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
