/* sample.c - what the generator samples, for pytest: a request in JSON, completions as JSON lines.
 *
 *     sample REQUEST.json
 *         model               directory
 *         adapter             directory, or absent
 *         temperature
 *         prompts             lists of ids
 *         samples             completions of each prompt
 *         max_tokens          of a completion
 *         greedy              true or absent
 *         max_prompt_tokens   that a step computes; absent: all
 *         max_active          samples that are decoded at a time; absent: all
 *     stdout: one object a token, in the order of sampling: {"request", "sample", "id", "bits"}, the bits of the log-probability as an integer
 * Exit 2 and the message on stderr when it is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "rein/rollout.h"

static rein_error error;

static void check(rein_status status) {
    if (status == REIN_OK) return;
    fprintf(stderr, "%s\n", error.message);
    exit(2);
}

static size_t number(const json_t *request, const char *name) { return (size_t)json_integer_value(json_object_get(request, name)); }

static void add(rein_generator *generator, const json_t *request, const json_t *prompt, size_t i) {
    rein_sampling sampling = rein_sampling_plain();
    sampling.greedy = json_is_true(json_object_get(request, "greedy"));
    sampling.max_tokens = number(request, "max_tokens");
    sampling.seed = 1;
    const size_t n = json_array_size(prompt);
    int32_t *ids = calloc(n + 1, sizeof *ids);
    if (!ids) exit(1);
    for (size_t t = 0; t < n; t++) ids[t] = (int32_t)json_integer_value(json_array_get(prompt, t));
    const rein_request asked = {
        .prompt = ids, .n_prompt = n, .samples = number(request, "samples"), .address = {.prompt = i}, .sampling = sampling};
    size_t which;
    check(rein_generator_add(&which, generator, &asked, &error));
    free(ids);
}

static void run(rein_generator *generator) {
    while (rein_generator_unfinished(generator)) {
        const rein_sampled *tokens;
        size_t n;
        check(rein_generator_step(&tokens, &n, generator, &error));
        for (size_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &tokens[i].log_prob, sizeof bits);
            printf("{\"request\": %zu, \"sample\": %zu, \"id\": %d, \"bits\": %u}\n", tokens[i].request, tokens[i].sample,
                   (int)tokens[i].id, (unsigned)bits);
        }
    }
}

int main(int argc, char **argv) {
    json_t *request = argc == 2 ? json_load_file(argv[1], 0, NULL) : NULL;
    if (!request) {
        fprintf(stderr, "usage: the comment of sample.c\n");
        return 1;
    }
    const json_t *adapter_path = json_object_get(request, "adapter"), *prompts = json_object_get(request, "prompts");
    rein_model *model;
    rein_adapter *adapter = NULL;
    rein_generator *generator;
    check(rein_model_open(&model, json_string_value(json_object_get(request, "model")), NULL, &error));
    if (adapter_path) check(rein_adapter_open(&adapter, model, json_string_value(adapter_path), &error));
    const rein_policy policy = {model, adapter, json_number_value(json_object_get(request, "temperature"))};
    const rein_generator_options options = {.max_active = number(request, "max_active"),
                                            .max_prompt_tokens = number(request, "max_prompt_tokens")};
    check(rein_generator_open(&generator, &policy, NULL, &options, &error));
    for (size_t i = 0; i < json_array_size(prompts); i++) add(generator, request, json_array_get(prompts, i), i);
    run(generator);
    rein_generator_close(generator);
    rein_adapter_close(adapter);
    rein_model_close(model);
    json_decref(request);
    return 0;
}
