/* test_config.c - config.json of every family in both spellings, what is refused and how it is said, the tensors that follow from a
 * config, and configs written back. The expected numbers are those of the published models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "model/config.h"
#include "support/allocation.h"
#include "support/check.h"

static const char *fixture(const char *name) {
    static char path[4096];
    const char *tests = getenv("REIN_TESTS_DIR");
    snprintf(path, sizeof path, "%s/model/fixtures/config/%s", tests ? tests : "tests", name);
    return path;
}

static rein_model_config read_fixture(const char *name) {
    rein_model_config c;
    rein_error err;
    if (rein_model_config_read(&c, fixture(name), &err) != REIN_OK) fail_msg("%s", err.message);
    return c;
}

static void sizes(const rein_model_config *c, int64_t vocab, int64_t hidden, int64_t middle, int64_t layers, int64_t heads,
                  int64_t kv, int64_t head_dim, int64_t positions) {
    assert_int_equal(c->vocab_size, vocab);
    assert_int_equal(c->hidden_size, hidden);
    assert_int_equal(c->intermediate_size, middle);
    assert_int_equal(c->n_layers, layers);
    assert_int_equal(c->n_heads, heads);
    assert_int_equal(c->n_kv_heads, kv);
    assert_int_equal(c->head_dim, head_dim);
    assert_int_equal(c->max_positions, positions);
}

/* ---- published models */
static void test_llama32(void **state) {
    (void)state;
    const rein_model_config c = read_fixture("llama32_1b");
    assert_ptr_equal(c.family, &rein_family_llama);
    sizes(&c, 128256, 2048, 8192, 16, 32, 8, 64, 131072);
    assert_int_equal(c.rope.type, REIN_ROPE_LLAMA3);
    assert_true(c.rope.theta == 500000 && c.rope.factor == 32 && c.rope.low_freq_factor == 1 && c.rope.high_freq_factor == 4);
    assert_int_equal(c.rope.original_max_positions, 8192);
    assert_true(c.tie_word_embeddings && !c.qkv_bias && !c.o_bias && !c.mlp_bias && !c.qk_norm);
    assert_true(c.rms_norm_eps == 1e-5);
    assert_int_equal(c.bos, 128000);
    assert_int_equal(c.n_eos, 3);
    assert_int_equal(c.eos[2], 128009);
    assert_true(c.has_dtype && c.dtype == REIN_TENSOR_BF16);
}

static void test_tinyllama_and_smollm(void **state) {
    (void)state;
    rein_model_config c = read_fixture("tinyllama");
    sizes(&c, 32000, 2048, 5632, 22, 32, 4, 64, 2048);
    assert_true(c.rope.type == REIN_ROPE_DEFAULT && c.rope.theta == 10000 && c.rope.factor == 1);
    assert_true(!c.tie_word_embeddings && c.dtype == REIN_TENSOR_F32);
    c = read_fixture("smollm2_135m");
    sizes(&c, 49152, 576, 1536, 30, 9, 3, 64, 8192);
    assert_true(c.tie_word_embeddings && c.rope.theta == 100000 && c.bos == 0 && c.n_eos == 1 && c.eos[0] == 0);
}

static void test_qwen(void **state) {
    (void)state;
    rein_model_config c = read_fixture("qwen25_05b");
    assert_ptr_equal(c.family, &rein_family_qwen2);
    sizes(&c, 151936, 896, 4864, 24, 14, 2, 64, 32768);
    assert_true(c.qkv_bias && !c.o_bias && !c.mlp_bias && !c.qk_norm && c.tie_word_embeddings && c.rope.theta == 1e6);
    assert_int_equal(c.n_eos, 2); /* generation_config.json comes first */
    assert_int_equal(c.eos[0], 151645);
    assert_int_equal(c.eos[1], 151643);
    c = read_fixture("qwen3_06b");
    assert_ptr_equal(c.family, &rein_family_qwen3);
    sizes(&c, 151936, 1024, 3072, 28, 16, 8, 128, 40960);
    assert_true(!c.qkv_bias && c.qk_norm);
}

static void test_mistral(void **state) {
    (void)state;
    const rein_model_config c = read_fixture("mistral_7b_v03");
    assert_ptr_equal(c.family, &rein_family_mistral);
    sizes(&c, 32768, 4096, 14336, 32, 32, 8, 128, 32768);
    assert_true(!c.qkv_bias && !c.tie_word_embeddings && c.rope.theta == 1e6);
}

/* ---- as transformers 5 writes them */
static void test_new_spelling(void **state) {
    (void)state;
    rein_model_config c = read_fixture("new_llama");
    sizes(&c, 32, 16, 24, 2, 4, 2, 4, 64);
    assert_true(c.rope.type == REIN_ROPE_LLAMA3 && c.rope.theta == 5e5 && c.rope.factor == 32 &&
                c.rope.original_max_positions == 8192);
    assert_int_equal(c.has_dtype, 0);
    c = read_fixture("new_mistral");
    assert_true(c.family == &rein_family_mistral && c.rope.type == REIN_ROPE_LINEAR && c.rope.factor == 2 && c.rope.theta == 1e4);
    c = read_fixture("new_qwen2");
    assert_true(c.family == &rein_family_qwen2 && c.bos == -1 && c.n_eos == 0 && c.qkv_bias);
    c = read_fixture("new_qwen3");
    sizes(&c, 32, 16, 24, 2, 4, 2, 128, 64);
    c = read_fixture("tiny_llama");
    assert_true(c.qkv_bias && c.o_bias && c.mlp_bias && c.dtype == REIN_TENSOR_BF16 && c.n_eos == 2 && c.eos[1] == 5);
}

/* ---- one change at a time */
static const char BASE[] = "{\"model_type\": \"llama\", \"vocab_size\": 32, \"hidden_size\": 16, \"intermediate_size\": 24, "
                           "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
                           "\"max_position_embeddings\": 64}";

/* BASE with the fields of `change` put in. */
static rein_status changed(rein_model_config *c, const char *change, rein_error *err) {
    json_t *base = NULL, *more = NULL;
    if (rein_json_parse(&base, BASE, strlen(BASE), "base", REIN_JSON_NEEDS_OBJECT, err) ||
        rein_json_parse(&more, change, strlen(change), "change", REIN_JSON_NEEDS_OBJECT, err))
        fail_msg("%s: %s", change, err->message);
    assert_int_equal(json_object_update(base, more), 0);
    const rein_status status = rein_model_config_parse(c, "config.json", base, NULL, NULL, err);
    json_decref(base);
    json_decref(more);
    return status;
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *change, *said;
    } cases[] = {
        {"{\"model_type\": null}", "architectures is missing"},
        {"{\"model_type\": \"gpt2\"}", "model_type is \"gpt2\": not supported; LlamaForCausalLM"},
        {"{\"model_type\": \"mixtral\", \"architectures\": [\"MixtralForCausalLM\"]}",
         "architectures[0] is \"MixtralForCausalLM\": not supported; LlamaForCausalLM, "},
        {"{\"model_type\": \"mixtral\"}", "Qwen3MoeForCausalLM and OlmoeForCausalLM are"},
        {"{\"model_type\": \"qwen3_moe\", \"num_experts\": 4, \"num_experts_per_tok\": 5}",
         "num_experts_per_tok is 5: at most as many as there are experts, 4, are needed"},
        {"{\"model_type\": \"qwen3_moe\", \"num_experts\": 1025}", "num_experts is 1025: a whole number from 0 to 1024"},
        {"{\"model_type\": \"qwen3_moe\", \"num_experts\": 1024, \"num_hidden_layers\": 65}",
         "num_hidden_layers is 65: with 1024 experts in a layer, at most 64 layers are supported"},
        {"{\"model_type\": \"qwen3_moe\", \"mlp_only_layers\": [-1]}", "mlp_only_layers[0] is -1: the number of a layer is needed"},
        {"{\"model_type\": \"qwen3_moe\", \"decoder_sparse_step\": 0}", "decoder_sparse_step is 0: a whole number from 1"},
        {"{\"model_type\": \"qwen3_moe\", \"norm_topk_prob\": 1}", "norm_topk_prob is 1: true or false"},
        {"{\"model_type\": \"olmoe\", \"num_experts\": 0}", "num_experts is 0: a whole number from 1"},
        {"{\"model_type\": \"olmoe\", \"clip_qkv\": 8}", "clip_qkv is 8: not supported; null is"},
        {"{\"architectures\": [\"LlamaForTokenClassification\"]}", "not supported; LlamaForCausalLM"},
        {"{\"architectures\": [\"LlamaForCausalLM\", \"X\"]}", "one architecture"},
        {"{\"architectures\": [1]}", "one architecture"},
        {"{\"architectures\": [\"Qwen2ForCausalLM\"]}", "model_type is \"llama\": with Qwen2ForCausalLM it is \"qwen2\""},
        {"{\"hidden_act\": \"gelu\"}", "hidden_act is \"gelu\": not supported; \"silu\" is"},
        {"{\"quantization_config\": {\"quant_method\": \"gptq\"}}", "quantization_config.quant_method is \"gptq\": quantized"},
        {"{\"quantization_config\": {}}", "quantized weights are not supported"},
        {"{\"num_local_experts\": 8}", "num_local_experts is 8: mixtures of experts are not supported"},
        {"{\"vocab_size\": -1}", "config.json: vocab_size is -1: a whole number from 1 to"},
        {"{\"vocab_size\": null}", "vocab_size is null"},
        {"{\"vocab_size\": 1e6}", "vocab_size is 1000000: a whole number"},
        {"{\"hidden_size\": 0}", "hidden_size is 0"},
        {"{\"hidden_size\": 9223372036854775807}", "hidden_size is 9223372036854775807"},
        {"{\"hidden_size\": 18}", "hidden_size is 18: without head_dim, a multiple of num_attention_heads, 4"},
        {"{\"hidden_size\": 12}", "hidden_size is 12: the width of a head is 3; an even number"},
        {"{\"head_dim\": 5}", "head_dim is 5: the width of a head is 5; an even number"},
        {"{\"head_dim\": -2}", "head_dim is -2"},
        {"{\"intermediate_size\": \"24\"}", "intermediate_size is \"24\""},
        {"{\"num_hidden_layers\": 1000000000}", "num_hidden_layers is 1000000000"},
        {"{\"num_attention_heads\": 0}", "num_attention_heads is 0"},
        {"{\"num_key_value_heads\": 3}", "num_attention_heads is 4: a multiple of num_key_value_heads, 3"},
        {"{\"rms_norm_eps\": 0}", "rms_norm_eps is 0: a number above 0"},
        {"{\"max_position_embeddings\": -5}", "max_position_embeddings is -5"},
        {"{\"rope_theta\": -1}", "rope_theta is -1: a number above 0"},
        {"{\"rope_scaling\": {\"type\": \"yarns\", \"factor\": 4}}",
         "rope_scaling.type is \"yarns\": not supported; \"default\", \"linear\", \"llama3\" and \"yarn\" are"},
        {"{\"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 4}}", "rope_scaling.rope_type is \"dynamic\": not supported"},
        {"{\"rope_parameters\": {\"rope_type\": \"longrope\"}}", "rope_parameters.rope_type is \"longrope\": not supported"},
        {"{\"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \"default\"}}", "they must agree"},
        {"{\"rope_scaling\": {\"type\": \"linear\"}}", "rope_scaling.factor is missing"},
        {"{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}}", "rope_scaling.factor is 0: a number above 0"},
        {"{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}}", "rope_scaling.low_freq_factor is missing"},
        {"{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": 1}}",
         "rope_scaling.high_freq_factor is 1: it must be above low_freq_factor, 4"},
        {"{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"rope_parameters\": {\"rope_theta\": 1}}", "and differs"},
        {"{\"rope_theta\": 5, \"rope_parameters\": {\"rope_theta\": 6}}",
         "rope_parameters.rope_theta is 6: the rope_theta outside is 5"},
        {"{\"rope_parameters\": {\"partial_rotary_factor\": 0.5}}", "rope_parameters.partial_rotary_factor is 0.5: not supported"},
        {"{\"partial_rotary_factor\": 0.5}", "partial_rotary_factor is 0.5: not supported"},
        {"{\"rope_scaling\": 2}", "rope_scaling is 2: an object is needed"},
        {"{\"tie_word_embeddings\": 1}", "tie_word_embeddings is 1: true or false"},
        {"{\"attention_bias\": \"no\"}", "attention_bias is \"no\": true or false"},
        {"{\"dtype\": \"float64\"}", "dtype is \"float64\": not supported; float32, bfloat16 and float16 are"},
        {"{\"torch_dtype\": \"float8_e4m3fn\"}", "torch_dtype is \"float8_e4m3fn\": not supported"},
        {"{\"torch_dtype\": \"float16\", \"dtype\": \"float32\"}", "they must agree"},
        {"{\"eos_token_id\": 32}", "eos_token_id is 32: a token id from 0 to 31"},
        {"{\"eos_token_id\": [1, -1]}", "eos_token_id[1] is -1"},
        {"{\"eos_token_id\": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}", "at most 16 tokens"},
        {"{\"eos_token_id\": \"</s>\"}", "eos_token_id is \"</s>\": a token id from 0"},
        {"{\"bos_token_id\": 99}", "bos_token_id is 99: a token id from 0 to 31"},
        {"{\"layer_types\": [\"full_attention\", \"sliding_attention\"]}",
         "layer_types[1] is \"sliding_attention\": not supported; in LlamaForCausalLM it is \"full_attention\""},
        {"{\"layer_types\": [\"linear_attention\", \"full_attention\"]}",
         "layer_types[0] is \"linear_attention\": not supported; \"full_attention\" and \"sliding_attention\" are"},
        {"{\"layer_types\": [\"full_attention\"]}", "2 entries are needed, one for each layer"},
        {"{\"model_type\": \"mistral\", \"sliding_window\": 0}", "sliding_window is 0: a whole number from 1"},
        {"{\"model_type\": \"gemma2\", \"hidden_activation\": \"gelu\"}",
         "hidden_activation is \"gelu\": not supported; \"gelu_pytorch_tanh\" is"},
        {"{\"model_type\": \"gemma2\", \"attn_logit_softcapping\": -1}", "attn_logit_softcapping is -1: a number above 0"},
        {"{\"model_type\": \"gemma3_text\", \"attn_logit_softcapping\": 50}",
         "attn_logit_softcapping is 50: not supported; null is"},
        {"{\"model_type\": \"gemma3\"}", "text_config is missing: an object is needed: it describes the text model"},
        {"{\"model_type\": \"gemma3\", \"text_config\": {\"hidden_size\": 0}}", "text_config.hidden_size is 0"},
        {"{\"model_type\": \"phi3\", \"partial_rotary_factor\": 0.2}", "of a head of width 4 it takes 0; an even number from 2 on"},
        {"{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1]}}",
         "rope_scaling.short_factor is an array: a list of 2 numbers is needed"},
        {"{\"model_type\": \"smollm3\", \"no_rope_layers\": [1]}",
         "no_rope_layers[1] is missing: 0 or 1 is needed for each of the 2"},
        {"{\"model_type\": \"granite\", \"residual_multiplier\": 0}", "residual_multiplier is 0: a number above 0"},
        {"{\"model_type\": \"qwen2\", \"num_key_value_heads\": 3}", "a multiple of num_key_value_heads, 3"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rein_model_config c = {.vocab_size = 12345};
        rein_error err = {0};
        if (changed(&c, cases[i].change, &err) != REIN_EINVAL) fail_msg("%s is accepted", cases[i].change);
        says(&err, "config.json: ");
        says(&err, cases[i].said);
        assert_int_equal(c.vocab_size, 12345); /* untouched */
    }
}

static void test_accepted(void **state) {
    (void)state;
    static const char *const changes[] = {
        "{}",
        "{\"hidden_act\": \"swish\"}",
        "{\"head_dim\": 20}",
        "{\"head_dim\": null, \"rope_scaling\": null, \"quantization_config\": null, \"num_experts\": 0}",
        "{\"rope_parameters\": {\"rope_theta\": 10000, \"rope_type\": \"default\"}, \"rope_theta\": 10000.0}",
        "{\"torch_dtype\": \"torch.bfloat16\"}",
        "{\"sliding_window\": 4}", /* Llama has no windows */
        "{\"model_type\": \"mistral\"}",
        "{\"model_type\": \"mistral\", \"sliding_window\": 64}",
        "{\"model_type\": \"qwen2\", \"use_sliding_window\": false, \"sliding_window\": 32, \"max_window_layers\": 1}",
        "{\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"sliding_window\": 32, \"max_window_layers\": 2}",
        "{\"model_type\": \"qwen3\", \"layer_types\": [\"full_attention\", \"full_attention\"]}",
        "{\"eos_token_id\": null, \"bos_token_id\": null}",
    };
    for (size_t i = 0; i < COUNT(changes); i++) {
        rein_model_config c;
        rein_error err;
        if (changed(&c, changes[i], &err) != REIN_OK) fail_msg("%s: %s", changes[i], err.message);
    }
}

static void test_defaults(void **state) {
    (void)state;
    rein_model_config c;
    rein_error err;
    assert_int_equal(changed(&c, "{}", &err), REIN_OK);
    assert_true(c.bos == 1 && c.n_eos == 1 && c.eos[0] == 2 && !c.tie_word_embeddings && c.rms_norm_eps == 1e-6 && !c.has_dtype);
    assert_int_equal(changed(&c, "{\"num_key_value_heads\": null, \"eos_token_id\": null}", &err), REIN_OK);
    assert_true(c.n_kv_heads == 4 && c.n_eos == 0);
    assert_int_equal(changed(&c, "{\"model_type\": \"mistral\", \"attention_bias\": true, \"mlp_bias\": true}", &err), REIN_OK);
    assert_true(!c.qkv_bias && !c.o_bias && !c.mlp_bias); /* as transformers: it has none, whatever the file says */
    assert_int_equal(changed(&c, "{\"model_type\": \"qwen3\", \"attention_bias\": true}", &err), REIN_OK);
    assert_true(c.qkv_bias && c.o_bias && c.head_dim == 128);
    assert_int_equal(changed(&c,
                             "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
                             "\"high_freq_factor\": 4}}",
                             &err),
                     REIN_OK);
    assert_int_equal(c.rope.original_max_positions, 64);
}

/* ---- families */
static void test_windows(void **state) {
    (void)state;
    static const struct {
        const char *change;
        int64_t window;
        int layers[2]; /* of the two layers: REIN_LAYER_… */
    } cases[] = {
        {"{\"model_type\": \"mistral\", \"sliding_window\": 32}", 32, {1, 1}},
        {"{\"model_type\": \"mistral\", \"sliding_window\": null}", 0, {0, 0}},
        {"{\"model_type\": \"mistral\", \"max_position_embeddings\": 8192}", 4096, {1, 1}},
        {"{\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"sliding_window\": 32, \"max_window_layers\": 1}", 32, {0, 1}},
        {"{\"model_type\": \"qwen3\", \"use_sliding_window\": true, \"sliding_window\": 8, "
         "\"layer_types\": [\"sliding_attention\", \"full_attention\"]}",
         8,
         {1, 0}},
        {"{\"model_type\": \"gemma2\", \"sliding_window\": 8}", 8, {1, 0}},
        {"{\"model_type\": \"gemma3_text\", \"sliding_window\": 8}", 8, {1, 1}},
        {"{\"model_type\": \"gemma3_text\", \"sliding_window\": 8, \"sliding_window_pattern\": 2}", 8, {1, 0}},
        {"{\"model_type\": \"olmo3\", \"sliding_window\": 8}", 8, {1, 1}},
        {"{\"model_type\": \"phi3\"}", 0, {0, 0}},
        {"{\"model_type\": \"qwen3_moe\", \"sliding_window\": 8}", 0, {4, 4}},
        {"{\"model_type\": \"qwen3_moe\", \"use_sliding_window\": true, \"sliding_window\": 8}", 8, {5, 5}},
        {"{\"model_type\": \"qwen3_moe\", \"decoder_sparse_step\": 2}", 0, {0, 4}},
        {"{\"model_type\": \"qwen3_moe\", \"mlp_only_layers\": [1, 7]}", 0, {4, 0}},
        {"{\"model_type\": \"qwen3_moe\", \"num_experts\": 0}", 0, {0, 0}},
        {"{\"model_type\": \"olmoe\", \"clip_qkv\": null}", 0, {4, 4}},
        {"{\"model_type\": \"phi3\", \"sliding_window\": 5}", 5, {1, 1}},
        {"{\"model_type\": \"smollm3\", \"no_rope_layer_interval\": 2}", 0, {0, 2}},
        {"{\"model_type\": \"smollm3\", \"no_rope_layers\": [0, 1], \"use_sliding_window\": true, \"sliding_window\": 3}",
         3,
         {3, 0}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rein_model_config c;
        rein_error err;
        if (changed(&c, cases[i].change, &err) != REIN_OK) fail_msg("%s: %s", cases[i].change, err.message);
        if (c.window != cases[i].window || c.layers[0] != cases[i].layers[0] || c.layers[1] != cases[i].layers[1])
            fail_msg("%s: a window of %lld, layers %d and %d", cases[i].change, (long long)c.window, c.layers[0], c.layers[1]);
    }
}

static void test_families(void **state) {
    (void)state;
    rein_model_config c;
    rein_error err;
    for (size_t i = 0; rein_family_at(i); i++) /* experts.c adds to the residual stream itself */
        if (rein_family_at(i)->experts) assert_int_equal(rein_family_at(i)->norms, REIN_NORMS_BEFORE);
    assert_int_equal(changed(&c, "{\"model_type\": \"gemma2\"}", &err), REIN_OK);
    assert_true(c.score_cap == 50 && c.logit_cap == 30 && c.score_scale == 1. / 16 && c.embedding_scale == 4 &&
                c.tie_word_embeddings);
    assert_true(c.head_dim == 256 && c.activation == REIN_GELU_TANH && !(c.window_rope.theta > 0));
    assert_int_equal(
        changed(&c, "{\"model_type\": \"gemma3_text\", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8}}", &err),
        REIN_OK);
    assert_true(c.rope.theta == 1e6 && c.rope.factor == 8 && c.window_rope.theta == 1e4 && c.window_rope.factor == 1);
    assert_int_equal(changed(&c,
                             "{\"model_type\": \"gemma3_text\", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 5}, "
                             "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 7}}}",
                             &err),
                     REIN_OK);
    assert_true(c.rope.theta == 5 && c.window_rope.theta == 7);
    assert_int_equal(changed(&c,
                             "{\"model_type\": \"gemma3\", \"text_config\": {\"hidden_size\": 16, \"intermediate_size\": 24, "
                             "\"num_hidden_layers\": 2}, \"eos_token_id\": [1, 3]}",
                             &err),
                     REIN_OK);
    assert_true(c.vocab_size == 262208 && c.n_heads == 8 && c.n_kv_heads == 4 && c.n_eos == 2 && c.eos[1] == 3);
    assert_int_equal(
        changed(&c,
                "{\"model_type\": \"olmo3\", \"rope_theta\": 500, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8, "
                "\"original_max_position_embeddings\": 16}}",
                &err),
        REIN_OK);
    assert_true(c.rope.type == REIN_ROPE_YARN && c.window_rope.type == REIN_ROPE_DEFAULT && c.window_rope.theta == 500);
    assert_int_equal(
        changed(&c,
                "{\"model_type\": \"phi3\", \"original_max_position_embeddings\": 16, \"rope_scaling\": {\"type\": \"su\", "
                "\"short_factor\": [1, 2], \"long_factor\": [3, 4]}}",
                &err),
        REIN_OK);
    assert_true(c.rope.type == REIN_ROPE_LONGROPE && c.max_positions == 16 && c.rope.factors[1] == 2 &&
                c.rope.attention_factor > 1);
    assert_int_equal(changed(&c, "{\"model_type\": \"granite\", \"attention_multiplier\": 0.5, \"logits_scaling\": 4}", &err),
                     REIN_OK);
    assert_true(c.score_scale == 0.5 && c.logit_divisor == 4 && c.residual_scale == 1);
    assert_int_equal(changed(&c, "{\"model_type\": \"qwen3_moe\"}", &err), REIN_OK);
    assert_true(c.n_experts == 128 && c.experts_per_token == 8 && c.expert_size == 768 && !c.normalise_experts);
    assert_int_equal(changed(&c, "{\"model_type\": \"qwen3_moe\", \"mlp_only_layers\": [0, 1]}", &err), REIN_OK);
    assert_int_equal(c.n_experts, 0); /* no layer has them */
    assert_int_equal(changed(&c, "{\"model_type\": \"olmoe\", \"norm_topk_prob\": true}", &err), REIN_OK);
    assert_true(c.n_experts == 64 && c.experts_per_token == 8 && c.expert_size == 24 && c.normalise_experts);
}

/* The slots of a model whose first layer has experts and whose second has an MLP. */
static void test_experts(void **state) {
    (void)state;
    rein_model_config c;
    rein_weight w;
    char name[REIN_SLOT_NAME];
    assert_int_equal(changed(&c,
                             "{\"model_type\": \"qwen3_moe\", \"num_local_experts\": 3, \"num_experts_per_tok\": 2, "
                             "\"moe_intermediate_size\": 10, \"mlp_only_layers\": [1]}",
                             NULL),
                     REIN_OK);
    assert_int_equal(rein_model_weights(&c), 1 + (8 + 1 + 9) + 11 + 2);
    rein_model_weight(&w, &c, 1 + 8);
    assert_string_equal(w.name, "model.layers.0.mlp.gate.weight");
    assert_true(w.kind == REIN_ROUTER && w.shape[0] == 3 && w.shape[1] == 16);
    rein_model_weight(&w, &c, 1 + 8 + 1 + 5);
    assert_string_equal(w.name, "model.layers.0.mlp.experts.1.down_proj.weight");
    assert_true(w.kind == REIN_EXPERT && w.to == 5 && w.shape[0] == 16 && w.shape[1] == 10);
    rein_model_weight(&w, &c, 1 + 18 + 10);
    assert_string_equal(w.name, "model.layers.1.mlp.down_proj.weight");
    for (size_t i = 0; i < rein_model_weights(&c); i++) {
        rein_model_weight(&w, &c, i);
        assert_int_equal(rein_model_weight_use(&c, w.name), REIN_WEIGHT_USED);
    }
    static const char *const others[] = {
        "model.layers.0.mlp.experts.3.up_proj.weight",  "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.mlp.experts.01.up_proj.weight", "model.layers.1.mlp.gate.weight",
        "model.layers.0.mlp.experts..up_proj.weight",   "model.layers.1.mlp.experts.0.up_proj.weight"};
    for (size_t i = 0; i < COUNT(others); i++) assert_int_equal(rein_model_weight_use(&c, others[i]), REIN_WEIGHT_IGNORED);
    assert_int_equal(rein_slots(&c), 2 * (7 + 9) + 1);
    assert_string_equal(rein_slot_name(name, &c, 7 + 3 * 2 + 1), "model.layers.0.mlp.experts.2.up_proj");
    assert_string_equal(rein_slot_name(name, &c, 16 + 5), "model.layers.1.mlp.up_proj");
    assert_string_equal(rein_slot_name(name, &c, 32), "lm_head");
    assert_true(rein_slot_module(&c, 7 + 3 * 2 + 1) == REIN_UP && rein_slot_module(&c, 32) == REIN_HEAD_MODULE);
    assert_true(rein_slot_count(&c, 7) == 1 && rein_slot_count(&c, REIN_GATE) == 0 && rein_slot_count(&c, REIN_O) == 1);
    assert_true(rein_slot_count(&c, 16 + 7) == 0 && rein_slot_count(&c, 16 + REIN_GATE) == 1);
}

/* ---- tensors */
static void test_weights_of_a_model(void **state) {
    (void)state;
    const rein_model_config c = read_fixture("tiny_llama");
    rein_tensors *tensors;
    rein_error err;
    assert_int_equal(rein_tensors_open(&tensors, fixture("tiny_llama"), &err), REIN_OK);
    assert_int_equal(rein_tensors_count(tensors), rein_model_weights(&c));
    if (rein_model_check(&c, tensors, &err) != REIN_OK) fail_msg("%s", err.message);
    for (size_t i = 0; i < rein_tensors_count(tensors); i++)
        assert_int_equal(rein_model_weight_use(&c, rein_tensors_at(tensors, i)->name), REIN_WEIGHT_USED);
    rein_tensors_close(tensors);
}

static void test_weight_names(void **state) {
    (void)state;
    rein_model_config c;
    rein_weight w;
    assert_int_equal(changed(&c, "{\"model_type\": \"qwen3\", \"head_dim\": 6}", NULL), REIN_OK);
    assert_int_equal(rein_model_weights(&c), 1 + 2 * 11 + 1 + 1);
    rein_model_weight(&w, &c, 0);
    assert_string_equal(w.name, "model.embed_tokens.weight");
    assert_true(w.n_dims == 2 && w.shape[0] == 32 && w.shape[1] == 16);
    rein_model_weight(&w, &c, 2);
    assert_string_equal(w.name, "model.layers.0.self_attn.q_proj.weight");
    assert_true(w.n_dims == 2 && w.shape[0] == 24 && w.shape[1] == 16);
    rein_model_weight(&w, &c, 12 + 4);
    assert_string_equal(w.name, "model.layers.1.self_attn.q_norm.weight");
    assert_true(w.n_dims == 1 && w.shape[0] == 6);
    rein_model_weight(&w, &c, 24);
    assert_string_equal(w.name, "lm_head.weight");
    rein_model_weight(&w, &c, 23);
    assert_string_equal(w.name, "model.norm.weight");
    for (size_t i = 0; i < rein_model_weights(&c); i++) {
        rein_model_weight(&w, &c, i);
        assert_int_equal(rein_model_weight_use(&c, w.name), REIN_WEIGHT_USED);
    }
    static const char *const others[] = {"model.layers.2.input_layernorm.weight",
                                         "model.layers.01.input_layernorm.weight",
                                         "model.layers.0.self_attn.q_proj.bias",
                                         "model.layers.99999999999999999999.x",
                                         "model.layers..input_layernorm.weight",
                                         "score.weight",
                                         "model.layers.0.self_attn.q_proj.weight2",
                                         "model.layers.",
                                         "model.layers.1",
                                         ""};
    for (size_t i = 0; i < COUNT(others); i++) assert_int_equal(rein_model_weight_use(&c, others[i]), REIN_WEIGHT_IGNORED);
    assert_int_equal(rein_model_weight_use(&c, "model.layers.0.self_attn.rotary_emb.inv_freq"), REIN_WEIGHT_BUFFER);
    c.tie_word_embeddings = 1;
    assert_int_equal(rein_model_weights(&c), 24);
    assert_int_equal(rein_model_weight_use(&c, "lm_head.weight"), REIN_WEIGHT_TIED);
}

static void test_check_says_what_is_wrong(void **state) {
    (void)state;
    const rein_model_config right = read_fixture("tiny_llama");
    rein_model_config c = right;
    rein_tensors *tensors;
    rein_error err;
    assert_int_equal(rein_tensors_open(&tensors, fixture("tiny_llama"), &err), REIN_OK);
    c.vocab_size = 33;
    assert_int_equal(rein_model_check(&c, tensors, &err), REIN_EINVAL);
    says(&err, "model.embed_tokens.weight is [32, 16]: config.json requires [33, 16] (vocab_size is 33)");
    c = right, c.n_layers = 3;
    assert_int_equal(rein_model_check(&c, tensors, &err), REIN_EINVAL);
    says(&err, "model.layers.2.input_layernorm.weight [16] is missing, as are 15 more of the 51 tensors");
    c = right, c.n_kv_heads = 4;
    assert_int_equal(rein_model_check(&c, tensors, &err), REIN_EINVAL);
    says(&err, "model.layers.0.self_attn.k_proj.weight is [8, 16]: config.json requires [16, 16]");
    c = right, c.qk_norm = 1;
    assert_int_equal(rein_model_check(&c, tensors, &err), REIN_EINVAL);
    says(&err, "model.layers.0.self_attn.q_norm.weight [4] is missing");
    c = right, c.tie_word_embeddings = 1; /* the head of the file is not used then */
    assert_int_equal(rein_model_check(&c, tensors, &err), REIN_OK);
    c = right, c.qkv_bias = 0;
    assert_int_equal(rein_model_check(&c, tensors, &err), REIN_OK);
    rein_tensors_close(tensors);
}

static void test_check_type_and_head(void **state) {
    (void)state;
    rein_model_config c;
    rein_error err;
    assert_int_equal(changed(&c, "{\"num_hidden_layers\": 1}", &err), REIN_OK);
    static const float zeros[32 * 24];
    rein_tensor list[16] = {{0}};
    rein_weight weights[16];
    const size_t n = rein_model_weights(&c);
    assert_true(n <= COUNT(list));
    for (size_t i = 0; i < n; i++) {
        rein_model_weight(&weights[i], &c, i);
        list[i] = (rein_tensor){.name = weights[i].name, .dtype = REIN_TENSOR_F32, .n_dims = weights[i].n_dims, .data = zeros};
        memcpy(list[i].shape, weights[i].shape, sizeof weights[i].shape);
        assert_true(rein_tensor_bytes(&list[i].bytes, REIN_TENSOR_F32, list[i].shape, list[i].n_dims));
    }
    char path[] = "/tmp/rein-config-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    rein_tensors *tensors;
    assert_int_equal(rein_tensors_write(path, list, n - 1, NULL, 0, &err), REIN_OK);
    assert_int_equal(rein_tensors_open(&tensors, path, &err), REIN_OK);
    assert_int_equal(rein_model_check(&c, tensors, &err), REIN_EINVAL);
    says(
        &err,
        "lm_head.weight [32, 16] is missing: according to config.json the head is not tied to the embedding (tie_word_embeddings)");
    rein_tensors_close(tensors);
    list[2].dtype = REIN_TENSOR_I32;
    assert_int_equal(rein_tensors_write(path, list, n, NULL, 0, &err), REIN_OK);
    assert_int_equal(rein_tensors_open(&tensors, path, &err), REIN_OK);
    assert_int_equal(rein_model_check(&c, tensors, &err), REIN_EINVAL);
    says(&err, "tensor \"model.layers.0.self_attn.q_proj.weight\" is I32: weights are F32, BF16 or F16");
    rein_tensors_close(tensors);
    remove(path);
}

/* ---- writing back */
static json_t *written(const char *from, rein_tensor_type dtype, int tie) {
    char folder[] = "/tmp/rein-config-XXXXXX", path[64];
    rein_error err;
    json_t *json;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (rein_model_config_write(folder, fixture(from), dtype, tie, -1, &err) != REIN_OK) fail_msg("%s", err.message);
    assert_int_equal(rein_json_read(&json, path, REIN_JSON_NEEDS_OBJECT, &err), REIN_OK);
    remove(path);
    rmdir(folder);
    return json;
}

static void test_write(void **state) {
    (void)state;
    char path[5000];
    json_t *before, *after;
    snprintf(path, sizeof path, "%s/config.json", fixture("smollm2_135m"));
    assert_int_equal(rein_json_read(&before, path, REIN_JSON_NEEDS_OBJECT, NULL), REIN_OK);
    after = written("smollm2_135m", REIN_TENSOR_BF16, 1);
    assert_true(json_equal(before, after));
    json_decref(after);
    after = written("smollm2_135m", REIN_TENSOR_F32, 0);
    assert_string_equal(json_string_value(json_object_get(after, "torch_dtype")), "float32");
    assert_true(json_is_false(json_object_get(after, "tie_word_embeddings")));
    assert_null(json_object_get(after, "dtype"));
    json_object_set_new(before, "torch_dtype", json_string("float32"));
    json_object_set_new(before, "tie_word_embeddings", json_false());
    assert_true(json_equal(before, after)); /* and nothing else */
    json_decref(before);
    json_decref(after);
    after = written("tiny_llama", REIN_TENSOR_F16, 0);
    assert_string_equal(json_string_value(json_object_get(after, "dtype")), "float16");
    assert_null(json_object_get(after, "torch_dtype"));
    json_decref(after);
    after = written("new_llama", REIN_TENSOR_F16, 0);
    assert_string_equal(json_string_value(json_object_get(after, "torch_dtype")), "float16");
    json_decref(after);
    rein_error err;
    assert_int_equal(rein_model_config_write("/tmp", fixture("tiny_llama"), REIN_TENSOR_I8, 0, -1, &err), REIN_EINVAL);
}

static void test_no_files(void **state) {
    (void)state;
    rein_model_config c;
    rein_error err;
    assert_int_equal(rein_model_config_read(&c, fixture("nowhere"), &err), REIN_EIO);
    says(&err, "nowhere/config.json: cannot be opened");
}

/* A model that others trained, where it is at hand. */
static void test_stories(void **state) {
    (void)state;
    const char *shared = getenv("REIN_SHARED_DIR");
    char path[4096];
    rein_model_config c;
    rein_tensors *tensors = NULL;
    rein_error err;
    snprintf(path, sizeof path, "%s/models/stories260K", shared ? shared : "../shared");
    if (!rein_file_is_directory(path)) {
        print_message("!!!!! %s IS ABSENT: the test on a real model is SKIPPED !!!!!\n", path);
        skip();
    }
    if (rein_model_config_read(&c, path, &err) || rein_tensors_open(&tensors, path, &err)) fail_msg("%s", err.message);
    sizes(&c, 512, 64, 172, 5, 8, 4, 8, 512);
    assert_true(c.tie_word_embeddings && c.dtype == REIN_TENSOR_F32);
    if (rein_model_check(&c, tensors, &err)) fail_msg("%s", err.message);
    rein_tensors_close(tensors);
}

/* ---- memory */
static rein_status read_config(void *context, rein_error *err) {
    rein_model_config c;
    return rein_model_config_read(&c, context, err);
}

static rein_status write_config(void *context, rein_error *err) {
    return rein_model_config_write(context, fixture("tiny_llama"), REIN_TENSOR_F32, 1, -1, err);
}

static void test_no_memory(void **state) {
    (void)state;
    if (!can_fail()) skip(); /* not linked for it: tests/support/allocation.h */
    char path[4096], folder[] = "/tmp/rein-config-XXXXXX";
    snprintf(path, sizeof path, "%s", fixture("tiny_llama"));
    assert_true(fail_each_allocation(read_config, path) > 20);
    assert_non_null(mkdtemp(folder));
    assert_true(fail_each_allocation(write_config, folder) > 20);
    snprintf(path, sizeof path, "%s/config.json", folder);
    remove(path);
    assert_int_equal(rmdir(folder), 0); /* no temporary file was left behind */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama32),
        cmocka_unit_test(test_tinyllama_and_smollm),
        cmocka_unit_test(test_qwen),
        cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_new_spelling),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_weights_of_a_model),
        cmocka_unit_test(test_weight_names),
        cmocka_unit_test(test_check_says_what_is_wrong),
        cmocka_unit_test(test_check_type_and_head),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_no_files),
        cmocka_unit_test(test_stories),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
