/* test_adapter_files.c - adapters as PEFT writes them: what comes back, what is refused, and what is left when something fails. Values made
 * by PEFT itself are in tests/parity/adapters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>

#include "base/json.h"
#include "model/adapter_files.h"
#include "model/tiny_model.h"
#include "support/allocation.h"
#include "support/check.h"

enum {
    RANK = 3,
    Q = 1 << REIN_Q,
    K = 1 << REIN_K,
    V = 1 << REIN_V,
    O = 1 << REIN_O,
    UP = 1 << REIN_UP,
    HEAD = 1 << REIN_HEAD_MODULE
};
enum { LINEAR = (1 << REIN_LAYER_MODULES) - 1, ATTENTION = Q | K | V | O };

static rein_model *model; /* TINY_LLAMA */

static int open_model(void **state) {
    if (make_folder(state)) return -1;
    tiny_model(&TINY_LLAMA, sub_folder("model"));
    return rein_model_open(&model, in_folder("model"), NULL, NULL) != REIN_OK;
}

static int close_model(void **state) {
    rein_model_close(model);
    return remove_folder(state);
}

static rein_adapter *new_adapter(const char *const *modules, size_t n, int rank_stabilized) {
    const rein_lora_options options = {
        .rank = RANK, .alpha = 6.5, .rank_stabilized = rank_stabilized, .modules = modules, .n_modules = n, .seed = 7};
    rein_adapter *adapter;
    rein_error err;
    if (rein_adapter_new(&adapter, model, &options, &err)) fail_msg("%s", err.message);
    for (size_t i = 0; i < adapter->floats; i++) adapter->values[i] = tiny_number();
    return adapter;
}

static void save(const rein_adapter *adapter, const char *directory) {
    rein_error err;
    if (rein_adapter_save(adapter, directory, &err)) fail_msg("%s", err.message);
}

static rein_adapter *open_at(const char *directory) {
    rein_adapter *adapter;
    rein_error err;
    if (rein_adapter_open(&adapter, model, directory, &err)) fail_msg("%s", err.message);
    return adapter;
}

/* ---- round trips */
static void test_round_trip(void **state) {
    (void)state;
    static const char *const some[] = {"v_proj", "q_proj"}, *const head[] = {"lm_head"}, *const both[] = {"lm_head", "down_proj"};
    static const struct {
        const char *const *names;
        size_t n;
    } sets[] = {{NULL, 0}, {some, 2}, {head, 1}, {both, 2}};
    for (size_t i = 0; i < 2 * COUNT(sets); i++) {
        rein_adapter *made = new_adapter(sets[i / 2].names, sets[i / 2].n, i % 2);
        save(made, in_folder("round/trip")); /* made, and then replaced */
        rein_adapter *read = open_at(in_folder("round/trip"));
        assert_int_equal(read->modules, made->modules);
        assert_int_equal(read->rank, RANK);
        assert_int_equal(read->rank_stabilized, i % 2);
        assert_true(read->alpha == 6.5);
        assert_string_equal(read->base, in_folder("model"));
        assert_int_equal(read->floats, made->floats);
        assert_memory_equal(read->values, made->values, made->floats * sizeof *made->values);
        rein_adapter_pack(made);
        assert_memory_equal(read->packed, made->packed, made->packed_floats * sizeof *made->packed);
        for (size_t slot = 0; slot < rein_adapter_slots(model); slot++)
            assert_true(read->loras[slot].scale == made->loras[slot].scale);
        rein_adapter_close(made);
        rein_adapter_close(read);
    }
}

/* Without its model, an adapter is described as when it is opened with it. */
static void test_described_without_a_model(void **state) {
    (void)state;
    static const char *const names[] = {"lm_head", "down_proj", "q_proj"};
    for (size_t n = 0; n <= COUNT(names); n++) {
        rein_adapter *made = new_adapter(names, n, n % 2);
        rein_adapter_info alone;
        rein_text base = {0};
        rein_error err;
        save(made, in_folder("alone"));
        if (rein_adapter_describe_files(&alone, &base, in_folder("alone"), &err)) fail_msg("%s", err.message);
        const rein_adapter_info whole = rein_adapter_describe(made);
        assert_int_equal(alone.rank, whole.rank);
        assert_true(alone.alpha == whole.alpha && alone.rank_stabilized == whole.rank_stabilized);
        assert_int_equal(alone.parameters, whole.parameters);
        assert_int_equal(alone.n_modules, n ? n : 7);
        for (size_t i = 0; i < whole.n_modules; i++) assert_string_equal(alone.modules[i], whole.modules[i]);
        assert_string_equal(alone.base, whole.base);
        rein_text_free(&base);
        rein_adapter_close(made);
    }
}

static void rename_base(rein_adapter *adapter, const char *base) {
    free(adapter->base);
    adapter->base = strdup(base);
}

/* What PEFT 0.10 and later have, in the order of their names, and nothing else. */
static void test_config_text(void **state) {
    (void)state;
    static const char *const modules[] = {"v_proj", "q_proj", "lm_head", "k_proj"};
    static const char *const expected =
        "{\n  \"alpha_pattern\": {},\n  \"auto_mapping\": null,\n  \"base_model_name_or_path\": \"Some/Model\",\n"
        "  \"bias\": \"none\",\n  \"fan_in_fan_out\": false,\n  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n"
        "  \"layer_replication\": null,\n  \"layers_pattern\": null,\n  \"layers_to_transform\": null,\n"
        "  \"loftq_config\": {},\n  \"lora_alpha\": 16,\n  \"lora_dropout\": 0.0,\n  \"megatron_config\": null,\n"
        "  \"megatron_core\": \"megatron.core\",\n  \"modules_to_save\": null,\n  \"peft_type\": \"LORA\",\n  \"r\": 3,\n"
        "  \"rank_pattern\": {},\n  \"revision\": null,\n  \"target_modules\": [\n    \"k_proj\",\n    \"lm_head\",\n    "
        "\"q_proj\",\n"
        "    \"v_proj\"\n  ],\n  \"task_type\": \"CAUSAL_LM\",\n  \"use_dora\": false,\n  \"use_rslora\": true\n}\n";
    rein_adapter *adapter = new_adapter(modules, 4, 1);
    rein_file file;
    adapter->alpha = 16;
    rename_base(adapter, "Some/Model");
    save(adapter, in_folder("text"));
    assert_int_equal(rein_file_map(&file, in_folder("text/adapter_config.json"), NULL), REIN_OK);
    assert_int_equal(file.size, strlen(expected));
    assert_memory_equal(file.data, expected, file.size);
    rein_file_unmap(&file);
    rein_adapter *read = open_at(in_folder("text"));
    assert_string_equal(read->base, "Some/Model");
    rein_adapter_close(read);
    rename_base(adapter, "/not/UTF-8/\xff"); /* a directory can be called so */
    save(adapter, in_folder("text"));
    read = open_at(in_folder("text"));
    assert_string_equal(read->base, in_folder("model"));
    rein_adapter_close(read);
    rein_adapter_close(adapter);
}

/* ---- the config */
static json_t *good_config(void) {
    return json_pack("{s:s, s:s, s:i, s:i, s:[s,s], s:s}", "peft_type", "LORA", "task_type", "CAUSAL_LM", "r", RANK, "lora_alpha",
                     6, "target_modules", "q_proj", "v_proj", "bias", "none");
}

/* Parses the good config with one field set to a JSON text; NULL takes it away. The config borrows from the JSON until the next call. */
static rein_status parse_with(rein_adapter_config *config, const char *key, const char *text, rein_error *err) {
    static json_t *json;
    json_t *value = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    json_decref(json);
    json = good_config();
    if (value) json_object_set_new(json, key, value);
    else if (key) json_object_del(json, key);
    return rein_adapter_config_parse(config, &model->config, "adapter_config.json", json, err);
}

static void test_config_is_read(void **state) {
    (void)state;
    static const char *const fine[][2] = {
        {"use_dora", "false"},
        {"rank_pattern", "{}"},
        {"task_type", "null"},
        {"bias", NULL},
        {"lora_dropout", "0.05"},
        {"lora_dropout", "0"},
        {"unheard_of", "null"},
        {"unheard_of", "[]"},
        {"unheard_of", "false"},
        {"unheard_of", "{}"},
        {"peft_version", "\"0.21.2\""},
        {"auto_mapping", "{\"base_model_class\": \"X\"}"},
        {"inference_mode", "true"},
        {"revision", "\"main\""},
        {"megatron_core", "\"megatron.core\""},
        {"qalora_group_size", "16"},
        {"eva_config", "{\"rho\": 2}"},
        {"init_lora_weights", "\"gaussian\""},
        {"lora_alpha", "6.0"},
        {"init_lora_weights", "\"eva\""},
        {"init_lora_weights", "false"},
    };
    for (size_t i = 0; i < COUNT(fine); i++) {
        rein_adapter_config c = {0};
        rein_error err;
        if (parse_with(&c, fine[i][0], fine[i][1], &err)) fail_msg("%s: %s", fine[i][0], err.message);
        assert_int_equal(c.rank, RANK);
        assert_true(c.alpha == 6);
        assert_int_equal(c.rank_stabilized, 0);
        assert_int_equal(c.modules, Q | V);
        assert_string_equal(c.base, "");
    }
    rein_adapter_config c;
    assert_int_equal(parse_with(&c, "use_rslora", "true", NULL), REIN_OK);
    assert_int_equal(c.rank_stabilized, 1);
    assert_int_equal(parse_with(&c, "base_model_name_or_path", "\"a/b\"", NULL), REIN_OK);
    assert_string_equal(c.base, "a/b");
}

static void test_config_is_refused(void **state) {
    (void)state;
    static const char *const wrong[][3] = {
        {"peft_type", NULL, "peft_type is missing: not supported; \"LORA\" is"},
        {"peft_type", "\"IA3\"", "peft_type is \"IA3\": not supported; \"LORA\" is"},
        {"task_type", "\"SEQ_2_SEQ_LM\"",
         "task_type is \"SEQ_2_SEQ_LM\": not supported; \"CAUSAL_LM\" and, for a reward model, \"SEQ_CLS\" are"},
        {"bias", "\"all\"", "bias is \"all\": not supported; \"none\" is"},
        {"r", NULL, "r is missing: a whole number from 1 to 65536 is needed"},
        {"r", "0", "r is 0: a whole number from 1"},
        {"r", "8.5", "r is 8.5: a whole number from 1"},
        {"lora_alpha", NULL, "lora_alpha is missing: a number above 0"},
        {"lora_alpha", "0", "lora_alpha is 0: a number above 0"},
        {"lora_alpha", "-1", "lora_alpha is -1: a number above 0"},
        {"lora_alpha", "1e300", "lora_alpha is 1e+300: divided by r (or √r) it must be a nonzero number that f32 can hold"},
        {"lora_alpha", "1e-300", "divided by r (or √r) it must be a nonzero number that f32 can hold"},
        {"use_rslora", "1", "use_rslora is 1: true or false is needed"},
        {"lora_dropout", "1.5", "lora_dropout is 1.5: a number from 0 to 1 is needed"},
        {"lora_dropout", "\"no\"", "lora_dropout is \"no\": a number from 0 to 1 is needed"},
        {"use_dora", "true", "use_dora is true: DoRA is not supported; false is"},
        {"rank_pattern", "{\"q_proj\": 4}", "rank_pattern is an object: separate ranks for modules are not supported; {} is"},
        {"alpha_pattern", "{\"q_proj\": 4}", "alpha_pattern is an object: separate alphas for modules"},
        {"layers_to_transform", "[0]", "layers_to_transform is an array: a LoRA on some layers only is not supported"},
        {"layers_to_transform", "0", "layers_to_transform is 0: a LoRA on some layers only is not supported"},
        {"layer_replication", "[[0, 2]]", "layer_replication is an array: repeated layers are not supported"},
        {"modules_to_save", "[\"lm_head\"]", "modules_to_save is an array: other modules trained in addition to the LoRA"},
        {"fan_in_fan_out", "true", "fan_in_fan_out is true: transposed weights are not supported"},
        {"lora_bias", "true", "lora_bias is true: a bias in the LoRA is not supported"},
        {"trainable_token_indices", "[1]", "trainable_token_indices is an array: trained embeddings of single tokens"},
        {"target_parameters", "[\"x\"]", "target_parameters is an array: a LoRA on parameters"},
        {"alora_invocation_tokens", "[1]", "alora_invocation_tokens is an array: Activated LoRA is not supported"},
        {"use_qalora", "true", "use_qalora is true: QALoRA is not supported"},
        {"use_bdlora", "{\"nblocks\": 2}", "use_bdlora is an object: BD-LoRA is not supported"},
        {"ensure_weight_tying", "true", "ensure_weight_tying is true: an adapter on tied weights"},
        {"init_lora_weights", "\"pissa\"", "init_lora_weights is \"pissa\": an initialisation that may change the base weights"},
        {"init_lora_weights", "3", "init_lora_weights is 3: an initialisation that may change"},
        {"new_idea", "{\"a\": 1}",
         "\"new_idea\" is an object: not a known field, and it might change the numbers; null would be right"},
        {"base_model_name_or_path", "7", "base_model_name_or_path is 7: a text is needed"},
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        rein_adapter_config c;
        rein_error err = {0};
        if (parse_with(&c, wrong[i][0], wrong[i][1], &err) != REIN_EINVAL) fail_msg("%s is let through", wrong[i][2]);
        says(&err, "adapter_config.json: ");
        says(&err, wrong[i][2]);
    }
}

/* The name of the base model has any length, also after it was written and read again, and in a copy. */
static void test_long_base(void **state) {
    (void)state;
    enum { LENGTH = 5000 };
    char name[LENGTH + 1];
    rein_adapter *adapter = new_adapter(NULL, 0, 0), *copy;
    rein_adapter_info info;
    rein_text base = {0};
    rein_error err;
    memset(name, 'a', LENGTH), name[LENGTH] = 0;
    rename_base(adapter, name);
    save(adapter, in_folder("long"));
    if (rein_adapter_describe_files(&info, &base, in_folder("long"), &err)) fail_msg("%s", err.message);
    assert_string_equal(info.base, name);
    rein_adapter *read = open_at(in_folder("long"));
    assert_string_equal(rein_adapter_describe(read).base, name);
    assert_int_equal(rein_adapter_copy(&copy, read, &err), REIN_OK);
    assert_string_equal(rein_adapter_describe(copy).base, name);
    rein_adapter_close(copy);
    rein_adapter_close(read);
    rein_adapter_close(adapter);
    rein_text_free(&base);
}

/* ---- which modules */
static void check_modules(const char *target, const char *exclude, unsigned expected, const char *said) {
    json_t *json = good_config();
    rein_adapter_config c;
    rein_error err = {0};
    json_object_set_new(json, "target_modules", json_loads(target, JSON_DECODE_ANY, NULL));
    if (exclude) json_object_set_new(json, "exclude_modules", json_loads(exclude, JSON_DECODE_ANY, NULL));
    const rein_status status = rein_adapter_config_parse(&c, &model->config, "f", json, &err);
    json_decref(json);
    if (said) {
        if (status != REIN_EINVAL) fail_msg("%s is let through", target);
        says(&err, said);
    } else if (status) fail_msg("%s: %s", target, err.message);
    else if (c.modules != expected) fail_msg("%s gives %x, not %x", target, c.modules, expected);
}

static void test_modules(void **state) {
    (void)state;
    check_modules("[\"q_proj\", \"lm_head\"]", NULL, Q | HEAD, NULL);
    check_modules("[\"self_attn.q_proj\", \"mlp.up_proj\", \"w1\"]", NULL, Q | UP, NULL); /* PEFT lets a name without a module be */
    check_modules("[\"model.layers.0.self_attn.q_proj\", \"1.self_attn.q_proj\"]", NULL, Q, NULL);
    check_modules("\"all-linear\"", NULL, LINEAR, NULL);
    check_modules("\"ALL-Linear\"", "[\"mlp.up_proj\"]", LINEAR & ~(unsigned)UP, NULL);
    check_modules("\"all-linear\"", "\".*mlp.*\"", ATTENTION, NULL);
    check_modules("[\"q_proj\"]", "[]", Q, NULL);
    check_modules("[\"model.layers.0.self_attn.q_proj\"]", NULL, 0,
                  "a LoRA on self_attn.q_proj of some layers only is not supported: layer 0 has one and layer 1 has none");
    check_modules("[\"model.layers.1.self_attn.q_proj\"]", NULL, 0, "layer 0 has none and layer 1 has one");
    check_modules("[\"q_proj\", \"embed_tokens\"]", NULL, 0, "a LoRA on the embedding (embed_tokens) is not supported");
    check_modules("[\"query_key_value\"]", NULL, 0,
                  "target_modules is an array: it must name modules that the model has: q_proj, ");
    check_modules("[]", NULL, 0, "it must name modules that the model has");
    check_modules("[\"proj\", \"\"]", NULL, 0, "it must name modules");
    check_modules("null", NULL, 0, "target_modules is missing: it must name modules");
    check_modules("[\"q_proj\", 3]", NULL, 0, "target_modules[1] is 3: the name of a module is needed");
    check_modules("7", NULL, 0, "target_modules is 7: a list of modules is needed");
    check_modules("[\"q_proj\"]", "{}", 0, "exclude_modules is an object: a list of modules is needed");
}

/* A model with experts in layers 0 and 2, and an MLP in layer 1. */
static void test_experts(void **state) {
    (void)state;
    const char *tests = getenv("REIN_TESTS_DIR");
    char path[4096];
    rein_model *dense = model;
    rein_error err;
    rein_adapter_info alone;
    rein_text base = {0};
    snprintf(path, sizeof path, "%s/model/fixtures/engine/qwen3_moe", tests ? tests : "tests");
    if (rein_model_open(&model, path, NULL, &err)) fail_msg("%s", err.message);
    rein_adapter *made = new_adapter(NULL, 0, 0);
    assert_int_equal(made->n, 3 * 4 + 3 + 2 * 3 * 4);
    assert_string_equal(made->names[2 * 4], "model.layers.0.mlp.experts.0.gate_proj.lora_A");
    assert_string_equal(made->names[2 * 15 + 1], "model.layers.0.mlp.experts.3.down_proj.lora_B");
    assert_string_equal(made->names[2 * 20], "model.layers.1.mlp.gate_proj.lora_A");
    save(made, in_folder("experts"));
    rein_adapter *read = open_at(in_folder("experts"));
    assert_int_equal(read->modules, made->modules);
    assert_int_equal(read->floats, made->floats);
    assert_memory_equal(read->values, made->values, made->floats * sizeof *made->values);
    if (rein_adapter_describe_files(&alone, &base, in_folder("experts"), &err)) fail_msg("%s", err.message);
    assert_int_equal(alone.parameters, rein_adapter_describe(made).parameters);
    assert_int_equal(alone.n_modules, 7);
    check_modules("\"all-linear\"", NULL, LINEAR, NULL); /* without the routers */
    check_modules("[\"up_proj\"]", NULL, UP, NULL);
    check_modules("[\"q_proj\", \"gate\"]", NULL, 0, "a LoRA on the router (mlp.gate) is not supported");
    check_modules("[\"mlp.up_proj\"]", NULL, 0,
                  "only is not supported: model.layers.0.mlp.experts.0.up_proj has none and model.layers.1.mlp.up_proj has one");
    check_modules("\".*experts.[0-2].up_proj\"", NULL, 0,
                  "model.layers.0.mlp.experts.0.up_proj has one and model.layers.0.mlp.experts.3.up_proj has none");
    rein_text_free(&base);
    rein_adapter_close(made);
    rein_adapter_close(read);
    rein_model_close(model);
    model = dense;
}

/* What Python's re.fullmatch says of these is checked in tests/parity/adapters. */
static void test_expressions(void **state) {
    (void)state;
    check_modules("\".*\\\\.(q|v)_proj\"", NULL, Q | V, NULL);
    check_modules("\"model.layers.*self_attn.*\"", NULL, ATTENTION, NULL);
    check_modules(
        "\"(?:.*?(?:self_attn|mlp).*?(?:k_proj|up_proj).*?)|(?:\\\\bmodel\\\\.layers\\\\.[\\\\d]{1,}\\\\.mlp\\\\.up_proj)\"", NULL,
        K | UP, NULL);
    check_modules("\"^(?!lm_head)(?!model.embed).+_proj$\"", NULL, LINEAR, NULL);
    check_modules("\".*[qk]_proj|lm_head\"", NULL, Q | K | HEAD, NULL);
    check_modules("\".*\\\\d{1}.*(q)_proj\"", NULL, Q, NULL);
    check_modules("\"q_proj\"", NULL, 0,
                  "target_modules is \"q_proj\": it must name modules that the model has"); /* the whole name */
    check_modules("\"model.layers.[0-9].mlp\"", NULL, 0, "it must name modules");
    check_modules("\".*\"", NULL, 0, "a LoRA on the embedding");
    check_modules("\"model.layers.0.*\"", NULL, 0, "some layers only");
    static const char *const refused[] = {
        "(?i)q_proj", "(?P<x>q)_proj", "q++",    "q**",         "*q",   "(?=q)*",  "(?<=q)x", "q{,3}",
        "q{a}",       "\\\\1",         "\\\\Aq", "[[:alpha:]]", "[]q]", "[a",      "q{1",     "\\\\",
        "[a&&b]",     "[a-\\\\d]",     "(?#x)q", "q)",          "^*q",  "\\\\b+q", "é",       "q{1000}"};
    for (size_t i = 0; i < COUNT(refused); i++) {
        char text[100];
        snprintf(text, sizeof text, "\"%s\"", refused[i]);
        check_modules(text, NULL, 0, "regular expression syntax that is not supported, at byte");
    }
    check_modules("\"(q\"", NULL, 0, "not a valid regular expression, at byte 2");
    check_modules("\"[z-a]\"", NULL, 0, "not a valid regular expression, at byte");
    check_modules("\"((((((((((((((((((((((((((((((((((q\"", NULL, 0, "not supported, at byte 32");
    check_modules("\"(?:(?:.|\\\\w)*)*[0-9]\"", NULL, 0, "takes too many steps on model.layers.0.self_attn.q_proj");
}

/* ---- the tensors */
typedef struct files {
    rein_adapter *adapter; /* its values */
    rein_tensor tensors[64];
    rein_tensors *open;
    size_t n;
} files;

/* q_proj, k_proj and lm_head, saved to `directory`, and what is in it as a list to be changed. */
static void begin_files(files *f, const char *directory) {
    static const char *const modules[] = {"q_proj", "k_proj", "lm_head"};
    f->adapter = new_adapter(modules, 3, 0);
    save(f->adapter, directory);
    assert_int_equal(rein_tensors_open(&f->open, in_folder("tensors/adapter_model.safetensors"), NULL), REIN_OK);
    f->n = rein_tensors_count(f->open);
    assert_int_equal(f->n, 10);
    for (size_t i = 0; i < f->n; i++) f->tensors[i] = *rein_tensors_at(f->open, i);
}

static void end_files(files *f) {
    rein_tensors_close(f->open);
    rein_adapter_close(f->adapter);
}

static rein_tensor *tensor_of(files *f, const char *name) {
    for (size_t i = 0; i < f->n; i++)
        if (!strcmp(f->tensors[i].name, name)) return &f->tensors[i];
    fail_msg("%s is not written", name);
    return NULL;
}

static rein_status reopen(const files *f, rein_adapter **adapter, rein_error *err) {
    assert_int_equal(rein_tensors_write(in_folder("tensors/adapter_model.safetensors"), f->tensors, f->n, NULL, 0, err), REIN_OK);
    return rein_adapter_open(adapter, model, in_folder("tensors"), err);
}

static void refuse_files(const files *f, const char *said) {
    rein_adapter *adapter = (rein_adapter *)1;
    rein_error err = {0};
    if (reopen(f, &adapter, &err) != REIN_EINVAL) fail_msg("\"%s\" is let through", said);
    assert_null(adapter);
    says(&err, "tensors/adapter_model.safetensors: ");
    says(&err, said);
}

#define LAYER(rest) "base_model.model.model.layers." rest

static void test_tensors_are_refused(void **state) {
    (void)state;
    static const float numbers[200] = {0};
    files f;
    begin_files(&f, in_folder("tensors"));
    const files good = f;
    f.tensors[0] = f.tensors[--f.n]; /* lm_head.lora_A, the first by name */
    refuse_files(&f, "base_model.model.lm_head.lora_A.weight [3, 8] is missing, as are 0 more of the 10 tensors that "
                     "adapter_config.json requires (2 layers)");
    f = good;
    f.n = 1;
    refuse_files(&f, LAYER("0.self_attn.q_proj.lora_A.weight [3, 8] is missing, as are 8 more of the 10"));
    f = good;
    *tensor_of(&f, LAYER("1.self_attn.k_proj.lora_B.weight")) = (rein_tensor){.name = LAYER("1.self_attn.k_proj.lora_B.weight"),
                                                                              .dtype = REIN_TENSOR_F32,
                                                                              .n_dims = 2,
                                                                              .shape = {8, 3},
                                                                              .data = numbers,
                                                                              .bytes = 96};
    refuse_files(&f, LAYER("1.self_attn.k_proj.lora_B.weight is [8, 3]: the model and adapter_config.json (r 3) require [4, 3]"));
    f = good;
    rein_tensor *t = tensor_of(&f, LAYER("0.self_attn.q_proj.lora_A.weight"));
    t->shape[0] = 4, t->bytes = 128, t->data = numbers;
    refuse_files(&f, LAYER("0.self_attn.q_proj.lora_A.weight is [4, 8]: the model and adapter_config.json (r 3) require [3, 8]"));
    t->n_dims = 1, t->shape[0] = 32;
    refuse_files(&f, "is [32]: the model");
    f = good;
    tensor_of(&f, LAYER("0.self_attn.q_proj.lora_A.weight"))->dtype = REIN_TENSOR_I32;
    refuse_files(&f, "is I32: weights are F32, BF16 or F16 here");
    static const char *const others[] = {LAYER("2.self_attn.q_proj.lora_A.weight"),
                                         LAYER("0.self_attn.v_proj.lora_A.weight"),
                                         LAYER("0.self_attn.q_proj.lora_magnitude_vector"),
                                         LAYER("00.self_attn.q_proj.lora_A.weight"),
                                         LAYER("0.self_attn.q_proj.lora_A.default.weight"),
                                         "base_model.model.model.embed_tokens.lora_embedding_A",
                                         "model.layers.0.self_attn.q_proj.lora_A.weight",
                                         LAYER("99999999999999999999.self_attn.q_proj.lora_A.weight"),
                                         "x"};
    for (size_t i = 0; i < COUNT(others); i++) {
        char said[300];
        f = good;
        f.tensors[f.n++] =
            (rein_tensor){.name = others[i], .dtype = REIN_TENSOR_F32, .n_dims = 1, .shape = {4}, .data = numbers, .bytes = 16};
        snprintf(said, sizeof said,
                 "\"%s\" is not expected: adapter_config.json and the model require LoRA on q_proj, k_proj, lm_head, in 2 layers",
                 others[i]);
        refuse_files(&f, said);
    }
    end_files(&f);
}

/* PEFT also writes the head that its LoRA is on. */
static void test_tensors_of_the_base(void **state) {
    (void)state;
    static const char *const names[] = {"base_model.model.lm_head.base_layer.weight", "base_model.model.lm_head.weight",
                                        "base_model.model.model.embed_tokens.weight"};
    files f;
    rein_error err;
    begin_files(&f, in_folder("tensors"));
    for (size_t i = 0; i < COUNT(names); i++)
        for (int brain = 0; brain < 2; brain++) {
            const float *from = i < 2 ? model->head.weight.data : model->embedding.data;
            float wide[80];
            uint16_t narrow[80];
            rein_adapter *adapter;
            memcpy(wide, from, sizeof wide);
            for (size_t j = 0; j < 80; j++) narrow[j] = rein_to_bf16(from[j]);
            rein_tensor *t = &f.tensors[10];
            *t = (rein_tensor){
                .name = names[i], .dtype = REIN_TENSOR_F32, .n_dims = 2, .shape = {10, 8}, .data = wide, .bytes = 320};
            if (brain) t->dtype = REIN_TENSOR_BF16, t->data = narrow, t->bytes = 160;
            f.n = 11;
            if (reopen(&f, &adapter, &err)) fail_msg("%s", err.message);
            rein_adapter_close(adapter);
            wide[79] += 1, narrow[79] ^= 1;
            char said[200];
            snprintf(said, sizeof said, "row 9 of %s differs from the model's: the adapter belongs to another model", names[i]);
            refuse_files(&f, said);
            t->shape[0] = 5, t->bytes /= 2;
            refuse_files(&f, "is [5, 8]: the model and adapter_config.json (r 3) require [10, 8]");
        }
    end_files(&f);
}

/* Tensors of the base are not parameters of the adapter, and the size of an element does not count. */
static void test_described_without_the_base(void **state) {
    (void)state;
    files f;
    rein_error err;
    rein_adapter *adapter;
    rein_adapter_info info;
    begin_files(&f, in_folder("tensors"));
    const uint16_t halves[200] = {0};
    rein_tensor *t = tensor_of(&f, LAYER("1.self_attn.q_proj.lora_B.weight"));
    t->dtype = REIN_TENSOR_BF16, t->data = halves, t->bytes /= 2;
    f.tensors[f.n++] = (rein_tensor){.name = "base_model.model.lm_head.weight",
                                     .dtype = REIN_TENSOR_F32,
                                     .n_dims = 2,
                                     .shape = {10, 8},
                                     .data = model->head.weight.data,
                                     .bytes = 320};
    if (reopen(&f, &adapter, &err)) fail_msg("%s", err.message);
    rein_text base = {0};
    if (rein_adapter_describe_files(&info, &base, in_folder("tensors"), &err)) fail_msg("%s", err.message);
    rein_text_free(&base);
    assert_int_equal(info.parameters, rein_adapter_describe(adapter).parameters);
    assert_int_equal(info.n_modules, 3);
    rein_adapter_close(adapter);
    end_files(&f);
}

static void test_halves_are_widened(void **state) {
    (void)state;
    for (int brain = 0; brain < 2; brain++) {
        files f;
        rein_adapter *adapter;
        rein_error err;
        begin_files(&f, in_folder("tensors"));
        uint16_t halves[200] = {0};
        for (size_t i = 0; i < 2 * f.n && i < 200; i++)
            halves[i] = (uint16_t)(brain ? rein_to_bf16(tiny_number()) : rein_to_f16(tiny_number()));
        rein_tensor *t = tensor_of(&f, LAYER("1.self_attn.q_proj.lora_B.weight"));
        t->dtype = brain ? REIN_TENSOR_BF16 : REIN_TENSOR_F16, t->data = halves, t->bytes /= 2;
        if (reopen(&f, &adapter, &err)) fail_msg("%s", err.message);
        const rein_lora *lora = rein_adapter_lora(adapter, 1, REIN_Q), *other = rein_adapter_lora(adapter, 0, REIN_Q);
        for (size_t i = 0; i < 24; i++) assert_true((double)lora->b[i] == tiny_value(t, i));
        assert_memory_equal(other->b, rein_adapter_lora(f.adapter, 0, REIN_Q)->b, 24 * sizeof *other->b);
        rein_adapter_close(adapter);
        end_files(&f);
    }
}

/* ---- files */
static void test_files(void **state) {
    (void)state;
    rein_adapter *adapter = new_adapter(NULL, 0, 0), *read;
    rein_error err;
    assert_int_equal(rein_adapter_open(&read, model, in_folder("nowhere"), &err), REIN_EIO);
    says(&err, "nowhere/adapter_config.json: cannot be opened");
    save(adapter, in_folder("files"));
    assert_int_equal(rename(in_folder("files/adapter_model.safetensors"), in_folder("files/kept")), 0);
    assert_int_equal(rein_adapter_open(&read, model, in_folder("files"), &err), REIN_EIO);
    says(&err, "files/adapter_model.safetensors: cannot be opened");
    assert_null(read);
    rein_adapter_info info;
    rein_text base = {0};
    assert_int_equal(rein_adapter_describe_files(&info, &base, in_folder("files"), &err), REIN_EIO);
    says(&err, "files/adapter_model.safetensors: cannot be opened");
    assert_int_equal(rename(in_folder("files/kept"), in_folder("files/adapter_model.safetensors")), 0);
    assert_int_equal(rein_file_write(in_folder("files/adapter_config.json"), "{\"r\": 1,", 8, NULL), REIN_OK);
    assert_int_equal(rein_adapter_open(&read, model, in_folder("files"), &err), REIN_EINVAL);
    says(&err, "adapter_config.json: line 1, column 8");
    assert_int_equal(rein_file_write(in_folder("file"), "x", 1, NULL), REIN_OK);
    assert_int_equal(rein_adapter_save(adapter, in_folder("file"), &err), REIN_EIO);
    says(&err, "file: the directory cannot be made");
    assert_int_equal(rein_adapter_save(adapter, in_folder("file/inside"), &err), REIN_EIO);
    assert_int_equal(rein_adapter_save(adapter, "", &err), REIN_EINVAL);
    assert_int_equal(mkdir(in_folder("files/adapter_config.json.d"), 0777), 0);
    rein_adapter_close(adapter);
}

/* A file cut anywhere is an error, and never an adapter. */
static void test_cut_short(void **state) {
    (void)state;
    static const char *const names[] = {"cut/adapter_model.safetensors", "cut/adapter_config.json"};
    static const char *const modules[] = {"k_proj"};
    rein_adapter *adapter = new_adapter(modules, 1, 0), *read;
    for (size_t i = 0; i < COUNT(names); i++) {
        rein_file file;
        save(adapter, in_folder("cut"));
        assert_int_equal(rein_file_map(&file, in_folder(names[i]), NULL), REIN_OK);
        char *bytes = malloc(file.size);
        const size_t size = file.size, end = size - (names[i][12] == 'c' ? 1 : 0); /* the last byte of JSON is a newline */
        memcpy(bytes, file.data, size);
        rein_file_unmap(&file);
        for (size_t n = 0; n < end; n += n + 40 < end ? 7 : 1) {
            rein_error err = {0};
            assert_int_equal(rein_file_write(in_folder(names[i]), bytes, n, NULL), REIN_OK);
            if (rein_adapter_open(&read, model, in_folder("cut"), &err) != REIN_EINVAL)
                fail_msg("%s of %zu bytes: %s", names[i], n, err.message);
        }
        free(bytes);
    }
    rein_adapter_close(adapter);
}

/* A directory without write permission: root may write everywhere, so it takes another user id for this. */
static void test_not_allowed(void **state) {
    (void)state;
    const char *place = sub_folder("locked");
    rein_adapter *adapter = new_adapter(NULL, 0, 0);
    rein_error err;
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(chmod(place, 0555), 0);
    const int root = geteuid() == 0;
    if (root && seteuid(65534) != 0) skip();
    const rein_status into = rein_adapter_save(adapter, place, &err),
                      below = rein_adapter_save(adapter, in_folder("locked/more"), NULL);
    if (root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(into, REIN_EIO);
    assert_int_equal(below, REIN_EIO);
    says(&err, "locked/adapter_model.safetensors: cannot be written");
    assert_false(rein_file_exists(in_folder("locked/adapter_model.safetensors")));
    chmod(place, 0755);
    rein_adapter_close(adapter);
}

/* ---- memory */
static rein_status open_once(void *context, rein_error *err) {
    rein_adapter *adapter;
    const rein_status status = rein_adapter_open(&adapter, model, context, err);
    rein_adapter_close(adapter);
    return status;
}

static rein_status save_once(void *context, rein_error *err) {
    return rein_adapter_save(*(rein_adapter **)context, in_folder("memory"), err);
}

static void test_no_memory(void **state) {
    (void)state;
    if (!can_fail()) skip(); /* not linked for it: tests/support/allocation.h */
    files f;
    char path[1024];
    begin_files(&f, in_folder("tensors"));
    snprintf(path, sizeof path, "%s", in_folder("tensors"));
    f.tensors[f.n++] = (rein_tensor){.name = "base_model.model.lm_head.base_layer.weight",
                                     .dtype = REIN_TENSOR_F32,
                                     .n_dims = 2,
                                     .shape = {10, 8},
                                     .data = model->head.weight.data,
                                     .bytes = 320};
    rein_adapter *adapter;
    assert_int_equal(reopen(&f, &adapter, NULL), REIN_OK);
    rein_adapter_close(adapter);
    assert_true(fail_each_allocation(open_once, path) > 20);
    assert_true(fail_each_allocation(save_once, &f.adapter) > 20);
    end_files(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_described_without_a_model),
        cmocka_unit_test(test_config_text),
        cmocka_unit_test(test_config_is_read),
        cmocka_unit_test(test_config_is_refused),
        cmocka_unit_test(test_long_base),
        cmocka_unit_test(test_modules),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_tensors_are_refused),
        cmocka_unit_test(test_tensors_of_the_base),
        cmocka_unit_test(test_described_without_the_base),
        cmocka_unit_test(test_halves_are_widened),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_not_allowed),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
