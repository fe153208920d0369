/* gguf_fixture.h - the models and tokenizers that test_gguf.c reads and test_gguf_write.c writes. */
#ifndef REIN_TESTS_GGUF_FIXTURE_H
#define REIN_TESTS_GGUF_FIXTURE_H

#include "base/file.h"
#include "base/json.h"
#include "model/engine_fixture.h"
#include "rein/tokenizer.h"
#include "support/check.h"
#include "support/folder.h"

static inline const char *gguf_fixture(const char *name) {
    static char path[4096];
    const char *tests = getenv("REIN_TESTS_DIR");
    snprintf(path, sizeof path, "%s/model/fixtures/gguf/%s.gguf", tests ? tests : "tests", name);
    return path;
}

/* ---- models */

/* What generate.py changes in config.json, because GGUF cannot say it. */
static const struct {
    const char *name, *change;
} changes[] = {
    {"llama3_rope",
     "{\"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 1e6, \"factor\": 4.0, \"low_freq_factor\": 1.0, "
     "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}}"},
    {"gemma2", "{\"query_pre_attn_scalar\": 6}"},
    {"smollm3", "{\"no_rope_layers\": null}"},
};

static const char *const gguf_models[] = {"llama", "llama3_rope",   "linear_rope", "biases",  "mistral",
                                          "qwen2", "qwen3",         "qwen3_moe",   "gemma2",  "gemma3",
                                          "phi3",  "phi3_longrope", "olmo2",       "granite", "smollm3"};

/* The fixture of the engine with the changes of config.json, in a folder of its own. */
static inline const char *changed_model(const char *name) {
    const char *to = in_folder(name), *change = "{}";
    json_t *config = read_json(fixture(name, "config.json")), *more;
    rein_file weights;
    for (size_t i = 0; i < COUNT(changes); i++)
        if (!strcmp(changes[i].name, name)) change = changes[i].change;
    more = json_loads(change, 0, NULL);
    json_object_update(config, more);
    OK(rein_make_directories(to, &error_));
    OK(rein_json_file_write(in_folder_format("%s/config.json", name), config, &error_));
    OK(rein_file_map(&weights, fixture(name, "model.safetensors"), &error_));
    OK(rein_file_write(in_folder_format("%s/model.safetensors", name), weights.data, weights.size, &error_));
    rein_file_unmap(&weights);
    json_decref(more);
    json_decref(config);
    return to;
}

static inline void forward(pass *p, const rein_model *model, int train) {
    batch *b = batch_new();
    add_segment(b, -1);
    for (int i = 0; i < 30; i++) add_token(b, (7 * i + 3) % 40, 1, coefficient_c((size_t)i), 0, -1);
    rein_activations *activations = open_activations(1, 0);
    const rein_policy policy = {.model = model, .temperature = 1};
    const rein_forward_options options = {.keep = train};
    run_pass(p, activations, &policy, b, &options);
    rein_activations_close(activations);
    free(b);
}

static inline void check_same(const pass *a, const pass *b) {
    assert_int_equal(a->tokens, b->tokens);
    assert_memory_equal(a->log_probs, b->log_probs, a->tokens * sizeof(float));
    if (!a->gradient) return;
    assert_int_equal(a->floats, b->floats);
    assert_memory_equal(a->gradient, b->gradient, a->floats * sizeof(float));
}

/* ---- tokenizers */

static inline rein_tokenizer *tokenizer_of(const char *path) {
    rein_tokenizer *tokenizer;
    OK(rein_tokenizer_open(&tokenizer, path, &error_));
    return tokenizer;
}

static inline void check_ids(const rein_tokenizer *ours, const rein_tokenizer *theirs, const char *text, size_t length,
                             int special) {
    rein_ids a = {0}, b = {0};
    const rein_encoding how = {.parse_special = special};
    OK(rein_tokenizer_encode(&a, ours, text, length, &how, &error_));
    OK(rein_tokenizer_encode(&b, theirs, text, length, &how, &error_));
    if (a.count != b.count || (a.count && memcmp(a.data, b.data, a.count * sizeof *a.data) != 0))
        fail_msg("\"%.*s\"", (int)length, text);
    rein_ids_free(&a);
    rein_ids_free(&b);
}

/* The texts of the fixture's cases: "e 0 0 HEX IDS". */
static inline void check_cases(const rein_tokenizer *ours, const rein_tokenizer *theirs, const char *path) {
    static char line[1 << 16], hex[1 << 15], text[1 << 14];
    FILE *file = fopen(path, "r");
    size_t n = 0;
    int special;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "e %*d %d %32767s", &special, hex) != 2 || *hex == '-') continue;
        size_t length = 0;
        for (unsigned byte; length < sizeof text && sscanf(hex + 2 * length, "%2x", &byte) == 1; length++)
            text[length] = (char)byte;
        check_ids(ours, theirs, text, length, special);
        n++;
    }
    fclose(file);
    assert_true(n > 5);
}

static const char *const gguf_tokenizers[] = {"smollm", "qwen", "llama3", "gpt2", "llama2", "gemma"};

/* The directory of a tokenizer, and its cases. */
static inline void tokenizer_fixture(char directory[4096], char cases[4200], const char *name) {
    const char *tests = getenv("REIN_TESTS_DIR");
    snprintf(directory, 4096, "%s/model/fixtures/tokenizer/%s", tests ? tests : "tests", name);
    snprintf(cases, 4200, "%s/cases.txt", directory);
}

#endif
