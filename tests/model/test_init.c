/* test_init.c - models that know nothing yet: numbers of the right distribution, the same for the same seed, and nothing overwritten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "model/tiny_model.h"
#include "rein/model.h"
#include "support/check.h"

#include "support/allocation.h"

/* A directory with a config.json; `range` is what stands for initializer_range, "" nothing. */
static const char *config_in(const char *name, const char *family, const char *architecture, int tied, const char *range) {
    char text[1000], path[1100];
    const char *directory = sub_folder(name);
    snprintf(path, sizeof path, "%s/config.json", directory);
    const int n =
        snprintf(text, sizeof text,
                 "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"vocab_size\": 211, \"hidden_size\": 48, "
                 "\"intermediate_size\": 80, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
                 "\"num_key_value_heads\": 2, \"head_dim\": 12, \"tie_word_embeddings\": %s, \"sliding_window\": null%s%s}",
                 architecture, family, tied ? "true" : "false", *range ? ", \"initializer_range\": " : "", range);
    OK(rein_file_write(path, text, (size_t)n, &error_));
    return directory;
}

static rein_tensors *tensors_of(const char *directory) {
    rein_tensors *tensors;
    OK(rein_tensors_open(&tensors, directory, &error_));
    return tensors;
}

static int ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Mean, deviation and tails of n numbers, within four deviations of what they should be. */
static void is_normal(const char *name, const float *x, size_t n, double deviation) {
    double sum = 0, squares = 0, beyond = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i], beyond += fabs((double)x[i]) > deviation;
    const double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    const double found = sqrt(squares / (double)n), p = 0.31731050786291415; /* of a normal number, to be beyond its deviation */
    if (!(fabs(mean) < 4 * deviation / sqrt((double)n))) fail_msg("%s: the mean is %g", name, mean);
    if (!(fabs(found / deviation - 1) < 4 / sqrt(2 * (double)n)))
        fail_msg("%s: the deviation is %g, not %g", name, found, deviation);
    if (!(fabs(beyond / (double)n - p) < 4 * sqrt(p * (1 - p) / (double)n)))
        fail_msg("%s: %g of the numbers are beyond one deviation, not %g", name, beyond / (double)n, p);
}

static void check_weights(const char *directory, double deviation) {
    rein_tensors *tensors = tensors_of(directory);
    rein_model_config config;
    OK(rein_model_config_read(&config, directory, &error_));
    assert_int_equal(rein_tensors_count(tensors), rein_model_weights(&config));
    for (size_t i = 0; i < rein_tensors_count(tensors); i++) {
        const rein_tensor *t = rein_tensors_at(tensors, i);
        const float *x = t->data;
        assert_int_equal(t->dtype, REIN_TENSOR_F32);
        if (t->n_dims == 2) is_normal(t->name, x, t->bytes / sizeof *x, deviation);
        else {
            const int bias = ends_with(t->name, ".bias"), norm = ends_with(t->name, "norm.weight");
            if (bias + norm != 1) fail_msg("%s is neither a norm nor a bias", t->name);
            for (size_t k = 0; k < t->bytes / sizeof *x; k++) assert_true(x[k] == (norm ? 1 : 0));
        }
    }
    rein_tensors_close(tensors);
}

static void test_distributions(void **state) {
    (void)state;
    static const struct {
        const char *family, *architecture;
        int tied, biases, head_norms;
    } families[] = {{"llama", "LlamaForCausalLM", 1, 0, 0},
                    {"mistral", "MistralForCausalLM", 0, 0, 0},
                    {"qwen2", "Qwen2ForCausalLM", 0, 1, 0},
                    {"qwen3", "Qwen3ForCausalLM", 1, 0, 1}};
    for (size_t i = 0; i < COUNT(families); i++) {
        const char *directory =
            config_in(families[i].family, families[i].family, families[i].architecture, families[i].tied, i % 2 ? "0.05" : "");
        rein_model *model;
        OK(rein_model_init(directory, 1, &error_));
        check_weights(directory, i % 2 ? 0.05 : 0.02); /* Hugging Face's own, where the file does not say */
        rein_tensors *tensors = tensors_of(directory);
        size_t biases = 0, head_norms = 0;
        for (size_t t = 0; t < rein_tensors_count(tensors); t++) {
            biases += (size_t)ends_with(rein_tensors_at(tensors, t)->name, ".bias");
            head_norms += strstr(rein_tensors_at(tensors, t)->name, "q_norm") != NULL;
        }
        rein_tensors_close(tensors);
        assert_int_equal(biases, families[i].biases ? 2 * 3 : 0);
        assert_int_equal(head_norms, families[i].head_norms ? 2 : 0);
        OK(rein_model_open(&model, directory, NULL, &error_));
        const rein_model_info info = rein_model_describe(model);
        assert_string_equal(info.family, families[i].family);
        assert_true(info.tied == families[i].tied && info.ignored == 0 && !strcmp(info.type, "F32"));
        rein_model_close(model);
    }
}

/* No two tensors begin alike: each has randomness of its own. */
static void test_tensors_differ(void **state) {
    (void)state;
    const char *directory = config_in("differ", "llama", "LlamaForCausalLM", 0, "");
    OK(rein_model_init(directory, 5, &error_));
    rein_tensors *tensors = tensors_of(directory);
    size_t matrices = 0;
    for (size_t i = 0; i < rein_tensors_count(tensors); i++) {
        const rein_tensor *a = rein_tensors_at(tensors, i);
        matrices += a->n_dims == 2;
        for (size_t k = i + 1; k < rein_tensors_count(tensors) && a->n_dims == 2; k++)
            assert_memory_not_equal(a->data, rein_tensors_at(tensors, k)->data, 16 * sizeof(float));
    }
    assert_int_equal(matrices, 2 + 2 * 7);
    rein_tensors_close(tensors);
}

static int same_files(const char *a, const char *b) {
    char paths[2][1200];
    rein_file one, other;
    snprintf(paths[0], sizeof paths[0], "%s/model.safetensors", a), snprintf(paths[1], sizeof paths[1], "%s/model.safetensors", b);
    OK(rein_file_map(&one, paths[0], &error_));
    OK(rein_file_map(&other, paths[1], &error_));
    const int same = one.size == other.size && !memcmp(one.data, other.data, one.size);
    rein_file_unmap(&one), rein_file_unmap(&other);
    return same;
}

static void test_seeds(void **state) {
    (void)state;
    char directories[3][1100];
    for (size_t i = 0; i < 3; i++) {
        const char name[] = {'s', (char)('0' + i), 0};
        snprintf(directories[i], sizeof directories[i], "%s", config_in(name, "qwen2", "Qwen2ForCausalLM", 1, ""));
        OK(rein_model_init(directories[i], i < 2 ? UINT64_MAX : 3, &error_));
    }
    assert_true(same_files(directories[0], directories[1]));
    assert_false(same_files(directories[0], directories[2]));
}

/* ---- what is refused */
static void refused(const char *directory, rein_status status, const char *wanted) {
    rein_error err = {0};
    assert_int_equal(rein_model_init(directory, 1, &err), status);
    if (!strstr(err.message, wanted)) fail_msg("\"%s\" does not say \"%s\"", err.message, wanted);
}

static void put(const char *directory, const char *name, const char *text) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    OK(rein_file_write(path, text, strlen(text), &error_));
}

static void test_refused(void **state) {
    (void)state;
    char directory[1100], path[1200];
    rein_file file;
    snprintf(directory, sizeof directory, "%s", config_in("whole", "llama", "LlamaForCausalLM", 0, ""));
    put(directory, "model.safetensors", "weights");
    refused(directory, REIN_EINVAL, "already has weights: they are not overwritten");
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    OK(rein_file_map(&file, path, &error_));
    assert_true(file.size == 7 && !memcmp(file.data, "weights", 7));
    rein_file_unmap(&file);
    snprintf(directory, sizeof directory, "%s", config_in("sharded", "llama", "LlamaForCausalLM", 0, ""));
    put(directory, "model.safetensors.index.json", "{}");
    refused(directory, REIN_EINVAL, "already has weights: they are not overwritten");
    refused(config_in("negative", "llama", "LlamaForCausalLM", 0, "-0.1"), REIN_EINVAL, "initializer_range");
    refused(config_in("text", "llama", "LlamaForCausalLM", 0, "\"0.1\""), REIN_EINVAL, "initializer_range");
    refused(config_in("family", "gpt9", "GptForCausalLM", 0, ""), REIN_EINVAL, "GptForCausalLM");
    refused(sub_folder("empty"), REIN_EIO, "config.json");
    refused(in_folder("nowhere"), REIN_EIO, "config.json");
    assert_int_equal(access(in_folder("family/model.safetensors"), F_OK), -1);
}

static rein_status init_and_remove(void *context, rein_error *err) {
    const char *path = in_folder("starved/model.safetensors");
    const rein_status status = rein_model_init(context, 1, err);
    assert_int_equal(access(path, F_OK), status ? -1 : 0);
    if (!status) remove(path);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    char directory[1100];
    if (!can_fail()) skip();
    snprintf(directory, sizeof directory, "%s", config_in("starved", "llama", "LlamaForCausalLM", 0, ""));
    assert_true(fail_each_allocation(init_and_remove, directory) > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distributions), cmocka_unit_test(test_tensors_differ), cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
