/* test_model_files.c - models written back: the same weights, or W + s·B·A to half a unit in the last place of the stored type; in one file
 * or several; and a directory that is left as it was when something fails. Loading them in transformers is tests/parity/adapters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/json.h"
#include "kernel/kernels.h"
#include "model/model_files.h"
#include "model/tiny_model.h"
#include "support/allocation.h"
#include "support/check.h"

static rein_model *model_at(const char *directory, int train) {
    const rein_model_options options = {.train = train};
    rein_model *model;
    rein_error err;
    if (rein_model_open(&model, directory, &options, &err)) fail_msg("%s", err.message);
    return model;
}

static rein_adapter *adapter_of(const rein_model *model, const char *const *modules, size_t n, int64_t rank) {
    const rein_lora_options options = {.rank = rank, .alpha = 3, .modules = modules, .n_modules = n, .seed = 7};
    rein_adapter *adapter;
    rein_error err;
    if (rein_adapter_new(&adapter, model, &options, &err)) fail_msg("%s", err.message);
    for (size_t i = 0; i < adapter->floats; i++) adapter->values[i] = tiny_number();
    return adapter;
}

/* ---- rounding */
static void test_every_half_comes_back(void **state) {
    (void)state;
    for (unsigned bits = 0; bits < 1u << 16; bits++) {
        const uint16_t half = (uint16_t)bits;
        float wide[2];
        rein_decode_ref_f32(&wide[0], &half, REIN_STORED_BF16, 1);
        rein_decode_ref_f32(&wide[1], &half, REIN_STORED_F16, 1);
        assert_int_equal(rein_to_bf16(wide[0]), half);
        assert_int_equal(rein_to_f16(wide[1]), half);
    }
}

static uint16_t narrow(rein_tensor_type dtype, double x) {
    uint16_t half[2]; /* as large as the widest type */
    rein_weight_type_of(dtype)->round(half, &x, 1);
    return half[0];
}

/* Between each two neighbours: the middle goes to the even one, and the numbers next to the middle to the near one, in f32 and in f64. */
static void test_ties(void **state) {
    (void)state;
    static const rein_tensor_type types[] = {REIN_TENSOR_BF16, REIN_TENSOR_F16};
    for (size_t i = 0; i < COUNT(types); i++) {
        const rein_tensor_type type = types[i];
        const unsigned infinity = type == REIN_TENSOR_F16 ? 0x7c00 : 0x7f80;
        for (unsigned bits = 0; bits + 1 < infinity; bits++) {
            const uint16_t two[4] = {(uint16_t)bits, (uint16_t)(bits + 1)};
            const rein_tensor t = {.dtype = type, .data = two};
            const double low = tiny_value(&t, 0), high = tiny_value(&t, 1), middle = (low + high) / 2;
            const unsigned even = bits + (bits & 1);
            for (int negative = 0; negative < 2; negative++) {
                const double sign = negative ? -1 : 1;
                const unsigned top = negative ? 0x8000 : 0;
                assert_int_equal(narrow(type, sign * middle), top | even);
                assert_int_equal(narrow(type, sign * nextafter(middle, 0)), top | bits);
                assert_int_equal(narrow(type, sign * nextafter(middle, INFINITY)), top | (bits + 1));
                const float f = (float)(sign * middle); /* f32 has the middle, except for bf16's smallest */
                if ((double)f != sign * middle) continue;
                assert_int_equal(narrow(type, (double)nextafterf(f, 0)), top | bits);
                assert_int_equal(narrow(type, (double)nextafterf(f, negative ? -INFINITY : INFINITY)), top | (bits + 1));
            }
        }
    }
}

static void test_beyond_the_largest(void **state) {
    (void)state;
    assert_int_equal(narrow(REIN_TENSOR_F16, nextafter(65520, 0)), 0x7bff);
    assert_int_equal(narrow(REIN_TENSOR_F16, 65520), 0x7c00);
    assert_int_equal(narrow(REIN_TENSOR_F16, -1e300), 0xfc00);
    assert_int_equal(narrow(REIN_TENSOR_BF16, nextafter(0x1.ffp127, 0)), 0x7f7f);
    assert_int_equal(narrow(REIN_TENSOR_BF16, 0x1.ffp127), 0x7f80);
    assert_int_equal(narrow(REIN_TENSOR_BF16, -1e300), 0xff80);
    assert_int_equal(narrow(REIN_TENSOR_BF16, (double)INFINITY), 0x7f80);
    assert_int_equal(narrow(REIN_TENSOR_F16, 1e-300), 0);
    assert_int_equal(narrow(REIN_TENSOR_F16, -0.0), 0x8000);
    assert_true((narrow(REIN_TENSOR_BF16, (double)NAN) & 0x7fff) > 0x7f80);
    assert_true((narrow(REIN_TENSOR_F16, (double)NAN) & 0x7fff) > 0x7c00);
    assert_true(rein_weight_type_of(REIN_TENSOR_F32)->limit == ((double)FLT_MAX + 0x1p128) / 2);
}

/* ---- what is written */
static const struct {
    const char *name;
    tiny tiny;
} MODELS[] = {
    {"llama, f32", {"llama", "LlamaForCausalLM", 2, 0, REIN_TENSOR_F32, 0}},
    {"qwen2, tied, bf16", {"qwen2", "Qwen2ForCausalLM", 3, 1, REIN_TENSOR_BF16, 0}},
    {"qwen3, f16", {"qwen3", "Qwen3ForCausalLM", 2, 0, REIN_TENSOR_F16, 0}},
    {"mistral, tied, mixed", {"mistral", "MistralForCausalLM", 1, 1, REIN_TENSOR_BF16, 1}},
};

/* A model of its own in m0, m1, …; `to` is away. */
static const char *make(size_t i, char path[1024]) {
    char name[20];
    snprintf(name, sizeof name, "m%zu", i);
    snprintf(path, 1024, "%s", in_folder(name));
    assert_int_equal(rein_remove_all(in_folder("to"), NULL), REIN_OK);
    if (!rein_file_exists(path)) tiny_model(&MODELS[i].tiny, sub_folder(name));
    return path;
}

static void save(const rein_model *model, const rein_adapter *adapter) {
    rein_error err;
    if (rein_model_save(model, adapter, in_folder("to"), &err)) fail_msg("%s", err.message);
}

static void same_tensors(const rein_tensors *a, const rein_tensors *b) {
    assert_int_equal(rein_tensors_count(a), rein_tensors_count(b));
    for (size_t i = 0; i < rein_tensors_count(a); i++) {
        const rein_tensor *x = rein_tensors_at(a, i), *y = rein_tensors_find(b, x->name);
        assert_non_null(y);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->bytes, y->bytes);
        assert_memory_equal(x->data, y->data, x->bytes);
    }
}

static void test_as_it_was(void **state) {
    (void)state;
    char path[1024];
    for (size_t i = 0; i < COUNT(MODELS); i++) {
        rein_model *model = model_at(make(i, path), 0);
        save(model, NULL);
        rein_model *again = model_at(in_folder("to"), 0);
        same_tensors(model->tensors, again->tensors);
        assert_memory_equal(&model->config, &again->config, sizeof model->config);
        rein_model_close(again);
        rein_model_close(model);
    }
}

/* What transformers has beside the weights is copied as it is, or not there. */
static void test_other_files(void **state) {
    (void)state;
    static const char *const copied[] = {"tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "chat_template.jinja",
                                         "tokenizer.model",
                                         "vocab.json",
                                         "merges.txt",
                                         "generation_config.json"};
    char path[1024], name[200], other[200];
    make(0, path);
    for (size_t i = 0; i < COUNT(copied); i++) {
        snprintf(name, sizeof name, "m0/%s", copied[i]);
        assert_int_equal(rein_file_write(in_folder(name), "{\"eos_token_id\":\r\n 3}", i < 3 ? 0 : 21, NULL), REIN_OK);
    }
    assert_int_equal(rein_file_write(in_folder("m0/README.md"), "x", 1, NULL), REIN_OK);
    rein_model *model = model_at(path, 0);
    save(model, NULL);
    for (size_t i = 0; i < COUNT(copied); i++) {
        rein_file a, b;
        snprintf(name, sizeof name, "m0/%s", copied[i]);
        snprintf(other, sizeof other, "to/%s", copied[i]);
        assert_int_equal(rein_file_map(&a, in_folder(name), NULL), REIN_OK);
        assert_int_equal(rein_file_map(&b, in_folder(other), NULL), REIN_OK);
        assert_int_equal(a.size, b.size);
        assert_memory_equal(a.data, b.data, a.size);
        rein_file_unmap(&a);
        rein_file_unmap(&b);
        remove(in_folder(name));
    }
    assert_false(rein_file_exists(in_folder("to/README.md")));
    rein_model_close(model);
}

/* ---- merging */

/* Half a unit in the last place of `dtype` at x, and what the f64 sum itself can be wrong by. */
static double half_unit(rein_tensor_type dtype, double x) {
    const int places = dtype == REIN_TENSOR_F32 ? 24 : dtype == REIN_TENSOR_BF16 ? 8 : 11;
    const int smallest = dtype == REIN_TENSOR_F16 ? -14 : -126;
    int exponent;
    frexp(x, &exponent);
    if (exponent - 1 < smallest) exponent = smallest + 1;
    return ldexp(0.5, exponent - places) + 1e-14;
}

static void check_merged(const rein_tensor *before, const rein_tensor *after, const rein_lora *lora) {
    const size_t rows = after->shape[0], columns = after->shape[1];
    size_t changed = 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) {
            const size_t at = r * columns + c;
            double product = 0;
            for (size_t k = 0; k < lora->rank; k++)
                product += (double)lora->b[r * lora->rank + k] * (double)lora->a[k * columns + c];
            const double exact = tiny_value(before, at) + (double)lora->scale * product, found = tiny_value(after, at);
            if (!(fabs(found - exact) <= half_unit(after->dtype, exact)))
                fail_msg("%s[%zu][%zu] is %.17g, not %.17g", after->name, r, c, found, exact);
            changed += found != tiny_value(before, at);
        }
    assert_true(changed > rows * columns / 2);
}

static void check_saved(const rein_model *model, const rein_adapter *adapter, int tied) {
    rein_model *saved = model_at(in_folder("to"), 0);
    assert_int_equal(saved->config.tie_word_embeddings, tied);
    assert_int_equal(rein_tensors_count(saved->tensors), rein_model_weights(&saved->config));
    for (size_t i = 0; i < rein_model_weights(&saved->config); i++) {
        const rein_lora *lora = NULL;
        rein_weight w;
        rein_model_weight(&w, &saved->config, i);
        for (size_t slot = 0; slot < rein_adapter_slots(model); slot++) { /* by name, the long way */
            const size_t layer = slot / REIN_LAYER_MODULES, module = slot % REIN_LAYER_MODULES;
            const int head = slot + 1 == rein_adapter_slots(model);
            char name[100] = "lm_head.weight";
            if (!head)
                snprintf(name, sizeof name, "model.layers.%zu.%s.weight", layer,
                         rein_module_path(&model->config, (rein_module)module));
            if (!strcmp(name, w.name)) lora = rein_adapter_lora(adapter, layer, head ? REIN_HEAD_MODULE : (rein_module)module);
        }
        const rein_tensor *after = rein_tensors_find(saved->tensors, w.name), *before = rein_tensors_find(model->tensors, w.name);
        if (!before) before = rein_tensors_find(model->tensors, "model.embed_tokens.weight");
        assert_non_null(after);
        assert_int_equal(after->dtype, before->dtype);
        if (lora) check_merged(before, after, lora);
        else assert_memory_equal(after->data, before->data, after->bytes);
    }
    rein_model_close(saved);
}

static void test_merged(void **state) {
    (void)state;
    static const char *const some[] = {"v_proj", "down_proj"}, *const head[] = {"lm_head", "q_proj"};
    char path[1024];
    for (size_t i = 0; i < COUNT(MODELS); i++)
        for (int which = 0; which < 3; which++) {
            rein_model *model = model_at(make(i, path), 0);
            rein_adapter *adapter = adapter_of(model, which == 1 ? some : head, which ? 2 : 0, which == 1 ? 1 : 5);
            save(model, adapter);
            check_saved(model, adapter, MODELS[i].tiny.tied && which != 2);
            rein_adapter_close(adapter);
            rein_model_close(model);
        }
}

/* The config says what the weights are: f32 once they were trained, and as before where types are mixed. */
static void test_trained_weights(void **state) {
    (void)state;
    char path[1024];
    for (size_t i = 0; i < COUNT(MODELS); i++) {
        rein_model *model = model_at(make(i, path), 1), *saved;
        for (size_t j = 0; j < rein_parameter_floats(model, NULL); j++) model->values[j] += 0x1p-20f;
        save(model, NULL);
        saved = model_at(in_folder("to"), 0);
        assert_string_equal(rein_model_describe(saved).type, "F32");
        assert_int_equal(saved->config.dtype, REIN_TENSOR_F32);
        assert_int_equal(saved->config.tie_word_embeddings, MODELS[i].tiny.tied);
        for (size_t j = 0; j < rein_model_weights(&saved->config); j++) {
            const rein_tensor *t = rein_tensors_find(saved->tensors, model->weights[j].name);
            assert_memory_equal(t->data, model->values + model->offsets[j], t->bytes);
        }
        rein_model_close(saved);
        rein_model_close(model);
    }
    rein_model *model = model_at(make(3, path), 0);
    save(model, NULL);
    rein_model *saved = model_at(in_folder("to"), 0);
    assert_string_equal(rein_model_describe(saved).type, "mixed");
    assert_int_equal(saved->config.dtype, REIN_TENSOR_BF16);
    rein_model_close(saved);
    rein_model_close(model);
}

/* Trained, and a LoRA beside it: f32 of W as it is now. */
static void test_trained_and_merged(void **state) {
    (void)state;
    static const char *const head[] = {"lm_head"};
    char path[1024];
    rein_model *model = model_at(make(1, path), 1);
    rein_adapter *adapter = adapter_of(model, head, 1, 2);
    for (size_t j = 0; j < rein_parameter_floats(model, NULL); j++) model->values[j] += 0x1p-20f;
    save(model, adapter);
    rein_model *saved = model_at(in_folder("to"), 0);
    const rein_tensor before = {.dtype = REIN_TENSOR_F32, .data = model->values};
    const rein_tensor *after = rein_tensors_find(saved->tensors, "lm_head.weight");
    assert_int_equal(after->dtype, REIN_TENSOR_F32);
    check_merged(&before, after, rein_adapter_lora(adapter, 0, REIN_HEAD_MODULE));
    assert_memory_equal(rein_tensors_find(saved->tensors, "model.embed_tokens.weight")->data, model->values, after->bytes);
    rein_model_close(saved);
    rein_adapter_close(adapter);
    rein_model_close(model);
}

/* 1 + 2^-8 + 2^-40 is above the middle of two bf16, and in f32 it would be that middle. */
static void test_rounded_once(void **state) {
    (void)state;
    static const char *const modules[] = {"up_proj"};
    char path[1024];
    rein_model *model = model_at(make(3, path), 0);
    const rein_lora_options options = {.rank = 2, .alpha = 2, .modules = modules, .n_modules = 1};
    rein_adapter *adapter;
    assert_int_equal(rein_adapter_new(&adapter, model, &options, NULL), REIN_OK);
    rein_lora *lora = (rein_lora *)(uintptr_t)rein_adapter_lora(adapter, 0, REIN_UP);
    const rein_tensor *before = rein_tensors_find(model->tensors, "model.layers.0.mlp.up_proj.weight");
    memset(lora->a, 0, 2 * 8 * sizeof *lora->a);
    lora->a[3] = 1, lora->a[8 + 3] = 0x1p-40f;
    lora->b[0] = (float)(1 + 0x1p-8 - tiny_value(before, 3)), lora->b[1] = 1;
    assert_true((double)lora->b[0] == 1 + 0x1p-8 - tiny_value(before, 3));
    save(model, adapter);
    rein_model *saved = model_at(in_folder("to"), 0);
    assert_true(tiny_value(rein_tensors_find(saved->tensors, before->name), 3) == 1 + 0x1p-7);
    rein_model_close(saved);
    rein_adapter_close(adapter);
    rein_model_close(model);
}

static void test_no_such_number(void **state) {
    (void)state;
    static const char *const modules[] = {"up_proj"};
    char path[1024];
    rein_error err;
    rein_model *model = model_at(make(2, path), 0); /* f16 */
    rein_adapter *adapter = adapter_of(model, modules, 1, 1);
    rein_lora *lora = (rein_lora *)(uintptr_t)rein_adapter_lora(adapter, 1, REIN_UP);
    for (size_t i = 0; i < 8; i++) lora->a[i] = i == 6 ? 40000 : 0;
    for (size_t i = 0; i < 6; i++) lora->b[i] = i == 4 ? 1 : 0;
    assert_int_equal(rein_model_save(model, adapter, in_folder("to"), &err), REIN_ERANGE);
    says(&err, "model.layers.1.mlp.up_proj.weight[4][6] merged with its LoRA is 1");
    says(&err, "which F16 cannot represent");
    lora->a[6] = 0, lora->b[5] = NAN;
    assert_int_equal(rein_model_save(model, adapter, in_folder("to"), &err), REIN_ERANGE);
    says(&err, "model.layers.1.mlp.up_proj.weight[5][0] merged with its LoRA is ");
    assert_int_equal(rmdir(in_folder("to")), 0); /* empty */
    lora->b[5] = 0;
    save(model, adapter);
    rein_adapter_close(adapter);
    rein_model_close(model);
}

/* ---- several files */
static void test_shards(void **state) {
    (void)state;
    static const size_t limits[] = {1, 500, 700, 100000};
    static const char *const head[] = {"lm_head", "q_proj"};
    char path[1024];
    for (size_t i = 0; i < COUNT(limits); i++) {
        rein_model *model = model_at(make(1, path), 0);
        rein_adapter *adapter = adapter_of(model, head, 2, 2);
        rein_error err;
        if (rein_model_save_shards(model, adapter, in_folder("to"), limits[i], &err)) fail_msg("%s", err.message);
        check_saved(model, adapter, 0);
        const int one = limits[i] == 100000;
        assert_int_equal(rein_file_exists(in_folder("to/model.safetensors")), one);
        assert_int_equal(rein_file_exists(in_folder("to/model.safetensors.index.json")), !one);
        rein_adapter_close(adapter);
        rein_model_close(model);
    }
}

static void test_index(void **state) {
    (void)state;
    char path[1024];
    rein_model *model = model_at(make(0, path), 0);
    json_t *index;
    assert_int_equal(rein_model_save_shards(model, NULL, in_folder("to"), 1200, NULL), REIN_OK);
    assert_int_equal(rein_json_read(&index, in_folder("to/model.safetensors.index.json"), REIN_JSON_NEEDS_OBJECT, NULL), REIN_OK);
    const json_t *metadata = json_object_get(index, "metadata"), *map = json_object_get(index, "weight_map");
    const rein_model_info info = rein_model_describe(model);
    assert_int_equal(json_integer_value(json_object_get(metadata, "total_parameters")), info.parameters);
    assert_int_equal(json_integer_value(json_object_get(metadata, "total_size")), 4 * info.parameters);
    assert_int_equal(json_object_size(map), rein_model_weights(&model->config));
    /* Embedding 320, norm 32, q 256, k 128, v 128, o 256: 1120; the next norm, 32, still fits. Then gate to v, o to norm, the head. */
    static const char first[] = "model-00001-of-00004.safetensors", last[] = "model-00004-of-00004.safetensors";
    assert_string_equal(json_string_value(json_object_get(map, "model.layers.0.post_attention_layernorm.weight")), first);
    assert_string_not_equal(json_string_value(json_object_get(map, "model.layers.0.mlp.gate_proj.weight")), first);
    assert_string_equal(json_string_value(json_object_get(map, "lm_head.weight")), last);
    assert_true(rein_file_exists(in_folder("to/model-00002-of-00004.safetensors")));
    json_decref(index);
    rein_model_close(model);
}

/* ---- what is refused */
static void test_directories(void **state) {
    (void)state;
    static const char *const taken[] = {"config.json", "adapter_model.safetensors", "model-00001-of-00002.safetensors",
                                        "model.safetensors.index.json"};
    char path[1024], name[100];
    rein_error err;
    rein_model *model = model_at(make(0, path), 0);
    for (size_t i = 0; i < COUNT(taken); i++) {
        assert_int_equal(rein_remove_all(in_folder("to"), NULL), REIN_OK);
        sub_folder("to");
        snprintf(name, sizeof name, "to/%s", taken[i]);
        assert_int_equal(rein_file_write(in_folder(name), "x", 1, NULL), REIN_OK);
        assert_int_equal(rein_model_save(model, NULL, in_folder("to"), &err), REIN_EINVAL);
        says(&err, "/to already holds a model (\"");
        says(&err, taken[i]);
        assert_int_equal(remove(in_folder(name)), 0);
        save(model, NULL); /* an empty one will do */
    }
    assert_int_equal(rein_model_save(model, NULL, path, &err), REIN_EINVAL); /* its own */
    says(&err, "already holds a model");
    assert_int_equal(rein_remove_all(in_folder("to"), NULL), REIN_OK);
    sub_folder("to");
    assert_int_equal(rein_file_write(in_folder("to/notes.txt"), "x", 1, NULL), REIN_OK);
    save(model, NULL); /* and one with other things in it */
    assert_int_equal(rein_model_save(model, NULL, in_folder("to/notes.txt"), &err), REIN_EIO);
    says(&err, "notes.txt: the directory cannot be made");
    rein_model_close(model);
}

static void test_not_its_adapter(void **state) {
    (void)state;
    char path[1024];
    rein_error err;
    rein_model *model = model_at(make(0, path), 0), *other = model_at(make(0, path), 0);
    rein_adapter *adapter = adapter_of(other, NULL, 0, 1);
    assert_int_equal(rein_model_save(model, adapter, in_folder("to"), &err), REIN_EINVAL);
    says(&err, "adapter was made for another model");
    assert_false(rein_file_exists(in_folder("to")));
    rein_adapter_close(adapter);
    rein_model_close(model);
    rein_model_close(other);
}

static void test_not_allowed(void **state) {
    (void)state;
    char path[1024];
    rein_error err;
    rein_model *model = model_at(make(0, path), 0);
    const char *place = sub_folder("to");
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(chmod(place, 0555), 0);
    const int root = geteuid() == 0; /* who may write everywhere, and becomes somebody else for this */
    if (root && seteuid(65534) != 0) skip();
    const rein_status status = rein_model_save(model, NULL, place, &err);
    if (root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(status, REIN_EIO);
    says(&err, "/to/model.safetensors: cannot be written");
    assert_int_equal(chmod(place, 0333), 0);
    if (root && seteuid(65534) != 0) skip();
    const rein_status unseen = rein_model_save(model, NULL, place, &err);
    if (root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(unseen, REIN_EIO);
    says(&err, "/to: the directory cannot be opened");
    chmod(place, 0755);
    rein_model_close(model);
}

/* The source lost a file meanwhile, or the disk is full: no part of a model stays. */
static void test_nothing_is_left(void **state) {
    (void)state;
    char path[1024];
    rein_error err;
    struct rlimit before, small;
    rein_model *model = model_at(make(0, path), 0);
    assert_int_equal(rename(in_folder("m0/config.json"), in_folder("kept")), 0);
    assert_int_equal(rein_model_save_shards(model, NULL, in_folder("to"), 500, &err), REIN_EIO);
    says(&err, "m0/config.json: cannot be opened");
    assert_int_equal(rename(in_folder("kept"), in_folder("m0/config.json")), 0);
    assert_int_equal(rmdir(in_folder("to")), 0); /* empty */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before, small.rlim_cur = 3000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    const rein_status status = rein_model_save(model, NULL, in_folder("to"), &err);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, REIN_ESYSTEM);
    assert_int_equal(rmdir(in_folder("to")), 0);
    rein_model_close(model);
}

/* ---- memory */
typedef struct attempt {
    const rein_model *model;
    const rein_adapter *adapter;
} attempt;

static rein_status save_once(void *context, rein_error *err) {
    const attempt *a = context;
    const long allowed = left;
    left = -1;
    assert_int_equal(rein_remove_all(in_folder("to"), NULL), REIN_OK);
    left = allowed;
    return rein_model_save_shards(a->model, a->adapter, in_folder("to"), 1000, err);
}

static void test_no_memory(void **state) {
    (void)state;
    if (!can_fail()) skip(); /* not linked for it: tests/support/allocation.h */
    static const char *const head[] = {"lm_head", "q_proj"};
    char path[1024];
    rein_model *model = model_at(make(3, path), 0);
    rein_adapter *adapter = adapter_of(model, head, 2, 2);
    assert_int_equal(rein_file_write(in_folder("m3/tokenizer.json"), "x", 1, NULL), REIN_OK);
    attempt a = {model, adapter};
    assert_true(fail_each_allocation(save_once, &a) > 40);
    check_saved(model, adapter, 0);
    rein_adapter_close(adapter);
    rein_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_half_comes_back),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_beyond_the_largest),
        cmocka_unit_test(test_as_it_was),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_trained_weights),
        cmocka_unit_test(test_trained_and_merged),
        cmocka_unit_test(test_rounded_once),
        cmocka_unit_test(test_no_such_number),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_directories),
        cmocka_unit_test(test_not_its_adapter),
        cmocka_unit_test(test_not_allowed),
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
