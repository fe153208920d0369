/* test_outline.c - the estimates of memory against what is allocated, and the description of every family. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/activations.h"
#include "model/engine_fixture.h"
#include "model/key_store.h"
#include "model/outline.h"
#include "rein/train.h"

static const rein_exec EXEC = {.threads = 2};

static rein_exec resolved(void) {
    rein_exec exec;
    OK(rein_exec_resolve(&exec, &EXEC, REIN_SERIAL, &error_));
    return exec;
}

static void outline_of(rein_outline *o, const char *name, const rein_lora_options *lora, int full) {
    const rein_exec exec = resolved();
    OK(rein_outline_open(o, fixture(name, ""), NULL, lora, full, &exec, &error_));
}

/* Within a share of what was allocated. */
static void assert_near(const char *name, size_t estimate, size_t actual, double bound) {
    const double share = (double)estimate / (double)actual;
    if (share < 1 - bound || share > 1 + bound) fail_msg("%s: %zu bytes are estimated, %zu allocated", name, estimate, actual);
}

/* A prompt that several completions share: enough rows that their arrays are most of the memory. */
enum { PROMPT = 10, OWN = 40, COMPLETIONS = 12 };
static void forward_and_backward(rein_activations *a, rein_model *model, rein_adapter *adapter, int recompute) {
    enum { TOKENS = PROMPT + COMPLETIONS * OWN };
    size_t offsets[COMPLETIONS + 2] = {0};
    int64_t parents[COMPLETIONS + 1] = {-1};
    int32_t ids[TOKENS];
    uint8_t wanted[TOKENS];
    float log_probs[TOKENS], dlog_probs[TOKENS];
    for (size_t c = 0; c <= COMPLETIONS; c++) offsets[c + 1] = PROMPT + c * OWN;
    for (int i = 0; i < TOKENS; i++) ids[i] = 1 + i % 7, wanted[i] = i >= PROMPT, dlog_probs[i] = 1;
    const rein_tokens tokens = {.n = COMPLETIONS + 1, .offsets = offsets, .parents = parents, .ids = ids, .wanted = wanted};
    const rein_policy policy = {model, adapter, 1};
    const rein_forward_options how = {.keep = 1, .recompute = recompute};
    float *gradient = some(rein_parameter_floats(model, adapter), sizeof *gradient);
    OK(rein_forward(log_probs, NULL, a, &policy, &tokens, &how, &error_));
    OK(rein_backward(gradient, a, dlog_probs, NULL, &error_));
    free(gradient);
}

static void check_activations(const char *name, const rein_lora_options *lora, int recompute) {
    rein_outline o;
    outline_of(&o, name, lora, !lora);
    rein_model *model = open_model(fixture(name, ""), !lora);
    rein_adapter *adapter = NULL;
    rein_activations *a = open_activations(EXEC.threads, EXEC.isa);
    if (lora) OK(rein_adapter_new(&adapter, model, lora, &error_));
    assert_non_null(rein_arena_take(&a->arena, 64 << 20)); /* one chunk for all, so that `used` is what was taken */
    forward_and_backward(a, model, adapter, recompute);
    assert_int_equal(a->arena.current, 0);
    const rein_outline_pass pass = {PROMPT, OWN, COMPLETIONS, recompute};
    assert_near(name, rein_outline_activations(&o, &pass), a->arena.used, 0.1);
    assert_int_equal(lora ? o.adapter_floats : o.numbers, rein_parameter_floats(model, adapter));
    rein_activations_close(a);
    rein_adapter_close(adapter);
    rein_model_close(model);
    rein_outline_close(&o);
}

static void test_activations(void **state) {
    const rein_lora_options lora = {.rank = 4, .alpha = 8};
    (void)state;
    for (size_t i = 0; i < COUNT(fixture_names); i++)
        for (int recompute = 0; recompute < 2; recompute++) {
            check_activations(fixture_names[i], &lora, recompute);
            check_activations(fixture_names[i], NULL, recompute);
        }
}

/* The first chunk is larger than these models. */
static size_t packed_in(const rein_model *model) {
    assert_int_equal(model->packing->memory.current, 0);
    return model->packing->memory.used;
}

static void test_weights_and_keys(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(fixture_names); i++) {
        rein_outline o;
        outline_of(&o, fixture_names[i], NULL, 0);
        rein_model *model = open_model(fixture(fixture_names[i], ""), 0);
        rein_key_store *store = rein_key_store_open(model, 0);
        assert_near(fixture_names[i], o.packed, packed_in(model), 0.15); /* parts of a fused matrix are padded */
        for (int part = 0; part < REIN_KEY_PARTS; part++)
            assert_int_equal(rein_outline_key_part(&o, (rein_key_part)part), rein_key_store_bytes(store, (rein_key_part)part));
        assert_int_equal((int64_t)o.numbers, rein_model_describe(model).parameters);
        rein_key_store_close(store, model, 0);
        rein_model_close(model);
        rein_outline_close(&o);
    }
}

/* ---- the public estimate */

static rein_memory_use estimate_of(const char *model, const char *name, const char *value, rein_memory_parts parts) {
    rein_settings *s;
    rein_memory_use use;
    OK(rein_settings_new(&s, &error_));
    OK(rein_settings_set(s, "model", model, &error_));
    if (name) OK(rein_settings_set(s, name, value, &error_));
    OK(rein_memory_estimate(&use, s, parts, 16, &error_));
    rein_settings_free(s);
    return use;
}

/* With a window in every layer the keys of a long completion are those of its window, with one in every other layer half of them are. */
static void test_window(void **state) {
    static const char *const families[][2] = {{"llama", "Llama"}, {"mistral", "Mistral"}, {"gemma2", "Gemma2"}};
    char directory[] = "/tmp/rein-outline-XXXXXX", path[100], text[600];
    size_t keys[3][2];
    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/config.json", directory);
    for (size_t f = 0; f < COUNT(families); f++) {
        const int n =
            snprintf(text, sizeof text,
                     "{\"architectures\": [\"%sForCausalLM\"], \"model_type\": \"%s\", \"vocab_size\": 50, \"hidden_size\": 16, "
                     "\"intermediate_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, "
                     "\"head_dim\": 8, \"sliding_window\": 100, \"max_position_embeddings\": 9000}",
                     families[f][1], families[f][0]);
        OK(rein_file_write(path, text, (size_t)n, &error_));
        keys[f][0] = estimate_of(directory, "max_tokens", "1024", REIN_MEMORY_SAMPLING).keys;
        keys[f][1] = estimate_of(directory, "max_tokens", "8192", REIN_MEMORY_SAMPLING).keys;
    }
    remove(path), rmdir(directory);
    assert_true(keys[0][1] > 7 * keys[0][0] && keys[1][1] == keys[1][0] && keys[1][0] < keys[0][0] / 4);
    assert_true(50 * keys[2][1] < 26 * keys[0][1] && 2 * keys[2][1] > keys[0][1]);
}

static void test_parts(void **state) {
    const char *model = fixture("gemma3", "");
    (void)state;
    const rein_memory_use sampling = estimate_of(model, NULL, NULL, REIN_MEMORY_SAMPLING),
                          lora = estimate_of(model, NULL, NULL, REIN_MEMORY_TRAINING),
                          full = estimate_of(model, "full", "yes", REIN_MEMORY_TRAINING),
                          less = estimate_of(model, "recompute", "yes", REIN_MEMORY_TRAINING),
                          run = estimate_of(model, NULL, NULL, REIN_MEMORY_RUN);
    assert_true(sampling.keys && sampling.step && !sampling.activation_cache && !sampling.gradients && !sampling.activations);
    assert_true(!lora.keys && !lora.step && lora.gradients && lora.optimizer && lora.activations);
    assert_true(less.activations < lora.activations && run.activation_cache);
    assert_int_equal(run.total, run.weights + run.keys + run.step + run.activation_cache + run.gradients + run.optimizer +
                                    run.activations + run.program);
    rein_model *opened = open_model(model, 1);
    const size_t floats = rein_parameter_floats(opened, NULL) * sizeof(float);
    assert_int_equal(full.gradients, 4 * floats); /* of 8 shards, one after the other: log2(8) + 1 buffers */
    assert_int_equal(full.optimizer, 2 * floats);
    rein_model_close(opened);
    assert_true(run.keys == sampling.keys && run.gradients == lora.gradients && run.activations == lora.activations);
}

/* A critic on the policy's model has the adapter's part again; one of its own has its weights too. */
static void test_critic(void **state) {
    (void)state;
    const char *const model = fixture("llama", "");
    const rein_memory_use lora = estimate_of(model, NULL, NULL, REIN_MEMORY_TRAINING),
                          same = estimate_of(model, "critic", "same", REIN_MEMORY_TRAINING),
                          other = estimate_of(model, "critic", model, REIN_MEMORY_TRAINING),
                          sampling = estimate_of(model, "critic", "same", REIN_MEMORY_SAMPLING);
    assert_int_equal(same.critic, lora.gradients + lora.optimizer + lora.activations);
    assert_int_equal(other.critic, same.critic + lora.weights);
    assert_int_equal(same.total, lora.total + same.critic);
    assert_true(lora.critic == 0 && sampling.critic == 0);
}

static void test_no_model(void **state) {
    rein_settings *s;
    rein_memory_use use;
    rein_error err = {0};
    (void)state;
    OK(rein_settings_new(&s, &error_));
    OK(rein_settings_set(s, "model", "no such directory", &error_));
    assert_int_equal(rein_memory_estimate(&use, s, REIN_MEMORY_RUN, 1, &err), REIN_EIO);
    says(&err, "no such directory");
    rein_settings_free(s);
}

/* ---- descriptions, as transformers' configuration classes and the papers have the parts */

static void check_description(const char *name, const char *expected) {
    rein_text text = {0};
    OK(rein_model_description(&text, fixture(name, ""), &error_));
    if (!strstr(text.data, expected)) fail_msg("%s: %s has no %s", name, text.data, expected);
    rein_text_free(&text);
}

static void test_descriptions(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(fixture_names); i++) check_description(fixture_names[i], "\"attention\": [{\"layers\": \"0");
    check_description("llama", "\"norms\": \"before\", \"norm_offset\": false, \"qk_norm\": null, \"activation\": \"silu\"");
    check_description("gemma2",
                      "\"norms\": \"before and after\", \"norm_offset\": true, \"qk_norm\": null, \"activation\": \"gelu_tanh\"");
    check_description("gemma2", "\"score_cap\": ");
    check_description("gemma3", "\"qk_norm\": \"each head\"");
    check_description("olmo2", "\"norms\": \"after\", \"norm_offset\": false, \"qk_norm\": \"all heads\"");
    check_description("phi3", "\"fused\": [\"qkv_proj\", \"gate_up_proj\"]");
    check_description("phi3", "\"lora_modules\": [\"qkv_proj\", \"o_proj\", \"gate_up_proj\", \"down_proj\", \"lm_head\"]");
    check_description("phi3_longrope", "\"type\": \"longrope\"");
    check_description("smollm3", "\"rope\": null");
    check_description("granite", "\"logit_divisor\": ");
    check_description("olmoe", "\"experts\": {\"n\": ");
    check_description("qwen2", "\"biases\": [\"q_proj\", \"k_proj\", \"v_proj\"]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activations),  cmocka_unit_test(test_weights_and_keys), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_window),       cmocka_unit_test(test_critic),           cmocka_unit_test(test_no_model),
        cmocka_unit_test(test_descriptions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
