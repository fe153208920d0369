/* test_scores.c - score heads: a score is what a row of a head over the vocabulary would give as a logit; gradients against central
 * differences; the same bits in any batch and on any number of threads; what is saved opens again, in a directory of a model and of an
 * adapter; and an error for each thing that can be missing. Loading in transformers and PEFT is tests/parity/trainer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "model/engine_fixture.h"
#include "model/weights.h"
#include "support/folder.h"

static const char *const FAMILIES[] = {"llama", "qwen3", "gemma2", "phi3", "olmoe"};

static rein_model *open_scored(const char *directory, int train, rein_score_head score) {
    rein_model *model;
    const rein_model_options options = {.train = train, .score = score, .score_seed = 5};
    OK(rein_model_open(&model, directory, &options, &error_));
    return model;
}

static rein_adapter *new_scored(const rein_model *model, rein_score_head score) {
    rein_adapter *adapter;
    const rein_lora_options options = {.rank = 3, .alpha = 6, .seed = 11, .score = score};
    OK(rein_adapter_new(&adapter, model, &options, &error_));
    for (size_t i = 0; i < adapter->floats; i++) adapter->values[i] += (float)(0.05 * cos(1 + 1.7 * (double)i)); /* B is 0 */
    OK(rein_parameters_changed((rein_model *)(uintptr_t)model, adapter, &error_));
    return adapter;
}

/* A prompt of 5 tokens with two continuations, and a sequence alone. */
static batch *some_batch(void) {
    batch *b = batch_new();
    const int64_t parents[] = {-1, 0, 0, -1};
    const size_t lengths[] = {5, 3, 4, 6};
    for (size_t s = 0, t = 0; s < 4; s++) {
        add_segment(b, parents[s]);
        for (size_t i = 0; i < lengths[s]; i++, t++) add_token(b, (int32_t)(t * 7 % 40), 1, coefficient_c(t), 0, -1);
    }
    return b;
}

static float *scores_of(const rein_policy *policy, const batch *b, const rein_score_options *options, int threads, int wanted) {
    rein_activations *a = open_activations(threads, REIN_ISA_BEST);
    float *scores = floats(tokens_of(b));
    rein_tokens t = tokens(b);
    if (!wanted) t.wanted = NULL;
    OK(rein_scores(scores, a, policy, &t, options, &error_));
    rein_activations_close(a);
    return scores;
}

/* ---- values */

/* The score head is row 3 of the head over the vocabulary: scores before tokens are logits there. */
static void test_a_score_is_a_logit(void **state) {
    (void)state;
    for (size_t f = 0; f < COUNT(FAMILIES); f++) {
        rein_model *words = open_model(fixture(FAMILIES[f], ""), 1),
                   *model = open_scored(fixture(FAMILIES[f], ""), 1, REIN_SCORE_ZERO);
        const rein_policy of_words = {words, NULL, 1}, policy = {model, NULL, 1};
        const size_t vocabulary = (size_t)words->config.vocab_size;
        if (words->config.logit_cap > 0) words->config.logit_cap = 0;
        memcpy((float *)(uintptr_t)model->score, (const float *)words->head.weight.data + 3 * words->head.in,
               words->head.in * sizeof(float));
        batch *b = some_batch();
        rein_activations *a = open_activations(1, REIN_ISA_BEST);
        float *scores = scores_of(&policy, b, &(rein_score_options){.before = 1}, 1, 1),
              *logits = floats(tokens_of(b) * vocabulary);
        const rein_tokens t = tokens(b);
        OK(rein_logits(logits, a, &of_words, &t, &error_));
        for (size_t i = 0, row = 0; i < tokens_of(b); i++) {
            const float wanted = b->wanted[i] ? logits[row++ * vocabulary + 3] * (float)words->config.logit_divisor : 0;
            if (!(fabsf(scores[i] - wanted) <= 2e-6f * (1 + fabsf(wanted))))
                fail_msg("%s: score %zu is %.9g, not %.9g", FAMILIES[f], i, (double)scores[i], (double)wanted);
        }
        rein_activations_close(a);
        free(b), free(scores), free(logits);
        rein_model_close(words), rein_model_close(model);
    }
}

/* The score of a token is the value before the next one; and a batch, its sequences apart, and its last tokens alone have the same bits. */
static void test_places_and_batches(void **state) {
    (void)state;
    rein_model *model = open_scored(fixture("qwen3", ""), 0, REIN_SCORE_RANDOM);
    rein_adapter *adapter = new_scored(model, REIN_SCORE_STORED);
    const rein_policy policy = {model, adapter, 1};
    batch *b = some_batch(), *apart = batch_apart(b);
    float *at = scores_of(&policy, b, NULL, 1, 0), *before = scores_of(&policy, b, &(rein_score_options){.before = 1}, 3, 1),
          *alone = scores_of(&policy, apart, &(rein_score_options){.keep = 1}, 2, 0);
    for (size_t s = 0; s < b->n; s++)
        for (size_t i = b->offsets[s]; i < b->offsets[s + 1]; i++) {
            const size_t last = i > b->offsets[s] ? i - 1 : b->parents[s] < 0 ? SIZE_MAX : b->offsets[b->parents[s] + 1] - 1;
            assert_true(before[i] == (last == SIZE_MAX ? 0 : at[last]));
            assert_true(at[i] > 0 || at[i] < 0);
        }
    for (size_t i = 0; i < tokens_of(apart); i++) assert_float_equal(alone[i], at[apart->source[i]], 0);
    for (size_t s = 0; s < b->n; s++) memset(b->wanted + b->offsets[s], 0, b->offsets[s + 1] - b->offsets[s] - 1);
    for (size_t s = 0; s < b->n; s++) b->wanted[b->offsets[s + 1] - 1] = s > 0; /* also of a root */
    float *ends = scores_of(&policy, b, NULL, 1, 1);
    for (size_t i = 0; i < tokens_of(b); i++) assert_true(ends[i] == (b->wanted[i] ? at[i] : 0));
    free(b), free(apart), free(at), free(before), free(alone), free(ends);
    rein_adapter_close(adapter);
    rein_model_close(model);
}

/* ---- gradients */

static float *gradient_of(const rein_policy *policy, const batch *b, const rein_score_options *options, int threads) {
    rein_activations *a = open_activations(threads, REIN_ISA_BEST);
    float *scores = floats(tokens_of(b)), *gradient = floats(rein_parameter_floats(policy->model, policy->adapter));
    const rein_tokens t = tokens(b);
    OK(rein_scores(scores, a, policy, &t, options, &error_));
    OK(rein_scores_backward(gradient, a, b->c, &error_));
    rein_activations_close(a);
    free(scores);
    return gradient;
}

static double loss_of(const rein_policy *policy, const batch *b, const rein_score_options *options) {
    float *scores = scores_of(policy, b, options, 1, 1);
    double loss = 0;
    for (size_t i = 0; i < tokens_of(b); i++)
        if (b->wanted[i]) loss += (double)b->c[i] * (double)scores[i];
    free(scores);
    return loss;
}

/* Along the gradient of each tensor the loss changes by its norm. */
static void check_gradient(rein_model *model, rein_adapter *adapter, const rein_score_options *options, const char *where) {
    const rein_policy policy = {model, adapter, 1};
    batch *b = some_batch();
    float *gradient = gradient_of(&policy, b, options, 2), *again;
    const size_t n = rein_parameter_count(model, adapter), all = rein_parameter_floats(model, adapter);
    rein_parameter *list = some(n, sizeof *list);
    double whole = 0;
    rein_parameters(list, model, adapter, gradient);
    for (size_t i = 0; i < all; i++) whole += (double)gradient[i] * (double)gradient[i];
    assert_string_equal(list[n - 1].name, "score.weight");
    for (size_t p = 0; p < n; p++) {
        double norm = 0, loss[2];
        float *kept = some(list[p].size, sizeof *kept);
        memcpy(kept, list[p].value, list[p].size * sizeof *kept);
        for (size_t i = 0; i < list[p].size; i++) norm += (double)list[p].gradient[i] * (double)list[p].gradient[i];
        norm = sqrt(norm);
        const double step = 4e-3;
        for (int sign = 0; sign < 2 && norm > 0; sign++) {
            for (size_t i = 0; i < list[p].size; i++)
                list[p].value[i] = kept[i] + (float)((sign ? -step : step) * (double)list[p].gradient[i] / norm);
            OK(rein_parameters_changed(model, adapter, &error_));
            loss[sign] = loss_of(&policy, b, options);
        }
        memcpy(list[p].value, kept, list[p].size * sizeof *kept);
        const double found = norm > 0 ? (loss[0] - loss[1]) / (2 * step) : 0;
        if (!(fabs(found - norm) <= 3e-3 * sqrt(whole)))
            fail_msg("%s: %s: the loss changes by %.9g, the gradient says %.9g", where, list[p].name, found, norm);
        free(kept);
    }
    OK(rein_parameters_changed(model, adapter, &error_));
    rein_score_options recompute = *options;
    recompute.recompute = 1;
    again = gradient_of(&policy, b, &recompute, 1);
    assert_memory_equal(again, gradient, all * sizeof *again);
    free(b), free(gradient), free(again), free(list);
}

static void test_gradients(void **state) {
    (void)state;
    for (size_t f = 0; f < COUNT(FAMILIES); f++) {
        rein_model *model = open_scored(fixture(FAMILIES[f], ""), 1, REIN_SCORE_RANDOM);
        check_gradient(model, NULL, &(rein_score_options){.keep = 1}, FAMILIES[f]);
        rein_model_close(model);
        model = open_model(fixture(FAMILIES[f], ""), 0);
        rein_adapter *adapter = new_scored(model, REIN_SCORE_RANDOM);
        check_gradient(model, adapter, &(rein_score_options){.before = 1, .keep = 1}, FAMILIES[f]);
        rein_adapter_close(adapter);
        rein_model_close(model);
    }
}

/* A LoRA without a score head, on a model with one: the head does not train, and only it. */
static void test_a_frozen_score_head(void **state) {
    (void)state;
    rein_model *model = open_scored(fixture("llama", ""), 0, REIN_SCORE_RANDOM);
    rein_adapter *adapter = new_scored(model, REIN_SCORE_NONE);
    const rein_policy policy = {model, adapter, 1};
    batch *b = some_batch();
    float *gradient = gradient_of(&policy, b, &(rein_score_options){.keep = 1}, 1);
    int any = 0;
    for (size_t i = 0; i < adapter->floats; i++) any |= gradient[i] != 0;
    assert_true(any);
    assert_null(adapter->score);
    free(b), free(gradient);
    rein_adapter_close(adapter);
    rein_model_close(model);
}

/* ---- files */

static const json_t *architecture_in(json_t *config) { return json_array_get(json_object_get(config, "architectures"), 0); }

static void same_scores(const rein_policy *a, const rein_policy *b) {
    batch *all = some_batch();
    float *x = scores_of(a, all, NULL, 1, 0), *y = scores_of(b, all, NULL, 1, 0);
    for (size_t i = 0; i < tokens_of(all); i++) assert_true(fabsf(x[i] - y[i]) <= 2e-6f * (1 + fabsf(x[i])));
    free(all), free(x), free(y);
}

static void test_saved_models(void **state) {
    (void)state;
    char path[4200];
    rein_model *base = open_model(fixture("qwen3", ""), 0), *again;
    rein_adapter *adapter = new_scored(base, REIN_SCORE_RANDOM), *loaded;
    const char *merged = sub_folder("merged"), *apart = sub_folder("apart");
    OK(rein_model_save(base, adapter, merged, &error_));
    OK(rein_adapter_save(adapter, apart, &error_));
    snprintf(path, sizeof path, "%s/config.json", merged);
    json_t *config = read_json(path);
    assert_string_equal(json_string_value(architecture_in(config)), "Qwen3ForSequenceClassification");
    assert_int_equal(json_object_size(json_object_get(config, "id2label")), 1);
    json_decref(config);
    assert_true(rein_model_is_reward(merged));
    assert_false(rein_model_is_reward(fixture("qwen3", "")));
    again = open_scored(merged, 0, REIN_SCORE_STORED);
    assert_int_equal(rein_model_describe(again).score, 1);
    assert_int_equal(rein_model_describe(again).ignored, 0);
    OK(rein_adapter_open(&loaded, base, apart, &error_));
    assert_int_equal(rein_adapter_describe(loaded).score, 1);
    const rein_policy a = {base, adapter, 1}, b = {again, NULL, 1}, c = {base, loaded, 1};
    same_scores(&a, &b);
    assert_int_equal(loaded->floats, adapter->floats);
    assert_memory_equal(loaded->values, adapter->values, adapter->floats * sizeof(float));
    same_scores(&a, &c);
    rein_adapter_close(adapter), rein_adapter_close(loaded);
    rein_model_close(again), rein_model_close(base);
}

/* ---- errors */

static void refuses(const char *directory, rein_score_head score, const char *says_this) {
    rein_model *model;
    rein_error err = {0};
    assert_int_equal(rein_model_open(&model, directory, &(rein_model_options){.score = score}, &err), REIN_EINVAL);
    assert_null(model);
    says(&err, says_this);
}

static void with_labels(const char *directory, int labels) {
    char path[4200], text[12];
    snprintf(path, sizeof path, "%s/config.json", directory);
    json_t *config = read_json(path), *names = json_object();
    for (int i = 0; i < labels; i++) snprintf(text, sizeof text, "%d", i), json_object_set_new(names, text, json_string(text));
    json_object_set_new(config, "id2label", names);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
}

static void test_models_that_are_refused(void **state) {
    (void)state;
    rein_model *base = open_model(fixture("llama", ""), 0), *scored = open_scored(fixture("llama", ""), 0, REIN_SCORE_ZERO);
    const char *reward = sub_folder("reward");
    rein_error err = {0};
    float out[64];
    batch *b = some_batch();
    const rein_tokens t = tokens(b);
    rein_activations *a = open_activations(1, REIN_ISA_BEST);
    const rein_policy words = {base, NULL, 1}, scores = {scored, NULL, 1};
    rein_adapter *adapter;
    OK(rein_model_save(scored, NULL, reward, &error_));
    refuses(fixture("llama", ""), REIN_SCORE_STORED, "has no tensor score.weight");
    refuses(reward, REIN_SCORE_NONE, "is a reward model");
    with_labels(reward, 3);
    refuses(reward, REIN_SCORE_STORED, "has 3 labels");
    assert_int_equal(rein_scores(out, a, &words, &t, NULL, &err), REIN_EINVAL);
    says(&err, "has no score head");
    assert_int_equal(rein_forward(out, NULL, a, &scores, &t, NULL, &err), REIN_EINVAL);
    says(&err, "is a reward model");
    assert_int_equal(
        rein_adapter_new(&adapter, base, &(rein_lora_options){.rank = 2, .alpha = 2, .score = REIN_SCORE_STORED}, &err),
        REIN_EINVAL);
    says(&err, "is that of the model, which has none");
    OK(rein_scores(out, a, &scores, &t, &(rein_score_options){.before = 1}, &error_));
    assert_int_equal(rein_scores_backward(out, a, out, &err), REIN_EINVAL);
    says(&err, "with keep");
    assert_int_equal(rein_backward(out, a, out, NULL, &err), REIN_EINVAL);
    b->wanted[0] = 1;
    assert_int_equal(rein_scores(out, a, &scores, &t, &(rein_score_options){.before = 1}, &err), REIN_EINVAL);
    says(&err, "has no value");
    free(b);
    rein_activations_close(a);
    rein_model_close(base), rein_model_close(scored);
}

/* An adapter of a reward model without its head. */
static void test_an_adapter_without_its_head(void **state) {
    (void)state;
    char path[4200];
    rein_model *base = open_model(fixture("llama", ""), 0);
    rein_adapter *adapter = new_scored(base, REIN_SCORE_NONE), *loaded;
    const char *directory = sub_folder("headless");
    rein_error err = {0};
    OK(rein_adapter_save(adapter, directory, &error_));
    snprintf(path, sizeof path, "%s/adapter_config.json", directory);
    json_t *config = read_json(path);
    assert_true(json_is_null(json_object_get(config, "modules_to_save")));
    json_object_set_new(config, "task_type", json_string("SEQ_CLS"));
    json_object_set_new(config, "modules_to_save", json_pack("[s]", "score"));
    assert_int_equal(json_dump_file(config, path, 0), 0);
    assert_int_equal(rein_adapter_open(&loaded, base, directory, &err), REIN_EINVAL);
    says(&err, "score.weight is missing");
    json_object_set_new(config, "modules_to_save", json_pack("[s]", "embed_tokens"));
    assert_int_equal(json_dump_file(config, path, 0), 0);
    assert_int_equal(rein_adapter_open(&loaded, base, directory, &err), REIN_EINVAL);
    says(&err, "modules_to_save");
    json_decref(config);
    rein_adapter_close(adapter);
    rein_model_close(base);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_score_is_a_logit),
        cmocka_unit_test(test_places_and_batches),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_a_frozen_score_head),
        cmocka_unit_test(test_saved_models),
        cmocka_unit_test(test_models_that_are_refused),
        cmocka_unit_test(test_an_adapter_without_its_head),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
