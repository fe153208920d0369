/* policy.c - opening a policy. A path that the user gave and that is wrong is a mistake in the input; so is a tokenizer of another model. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "policy.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "terminal.h"
#include "values.h"

int cli_directory_has(const char *directory, const char *file) {
    char path[PATH_MAX + 100]; /* not allocated: no memory would look like no file */
    return snprintf(path, sizeof path, "%s/%s", directory, file) < (int)sizeof path && access(path, F_OK) == 0;
}

char *cli_absolute_path(const char *path) {
    errno = 0;
    char *absolute = *path ? realpath(path, NULL) : NULL;
    return absolute || errno == ENOMEM ? absolute : strdup(path);
}

int cli_shipped_model(char *path, size_t size) {
    static const char *const places[] = {"../models/sums", "../share/rein/models/sums"};
    char program[4096];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = 0;
    char *slash = strrchr(program, '/');
    if (slash) *slash = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places && slash; i++) {
        const int length = snprintf(path, size, "%s/%s", program, places[i]);
        if (length > 0 && (size_t)length < size && cli_directory_has(path, "model.safetensors")) return 1;
    }
    return 0;
}

int cli_tokenizer_open(rein_tokenizer **tokenizer, const char *model, const char *where) {
    rein_error err = {0};
    *tokenizer = NULL;
    if (!rein_tokenizer_exists(model)) return CLI_DONE;
    return rein_tokenizer_open(tokenizer, model, &err) ? cli_say_error_of(where, "model", &err) : CLI_DONE;
}

/* A tokenizer may be smaller than the vocabulary, which is often padded; ids beyond the vocabulary belong to another model. */
static int open_tokenizer(cli_opened *opened, const char *where) {
    const int status = cli_tokenizer_open(&opened->tokenizer, opened->directory, where);
    if (status || !opened->tokenizer) return status;
    const size_t size = rein_tokenizer_size(opened->tokenizer);
    if (size <= (size_t)opened->info.vocabulary) return CLI_DONE;
    return cli_say(CLI_WRONG, where, "the tokenizer of %s has %zu tokens, the model %lld: it belongs to another model",
                   opened->directory, size, (long long)opened->info.vocabulary);
}

int cli_opened_read(cli_opened *opened, const cli_args *args) {
    *opened = (cli_opened){.name = cli_option_value(args, "model"), .files.step = -1};
    if (opened->name) return cli_value_exec(&opened->exec, args);
    return cli_say(
        CLI_WRONG, args->command->name,
        "a policy is needed: --model PATH, a directory with config.json and safetensors, a GGUF file, or a run, RUN or RUN@STEP");
}

/* --adapter and --quantize belong to a model; a run has its own. */
static int find_files(cli_opened *opened, const char *adapter, const char *quantize, const char *where) {
    rein_error err = {0};
    if (rein_policy_find(&opened->files, opened->name, &err)) return cli_say_error(where, &err);
    if (*opened->files.note) cli_say(0, where, "note: %s", opened->files.note);
    opened->directory = opened->files.model;
    if (quantize && opened->files.run)
        return cli_say_option(where, "quantize", "and a run are both given: the policy is the run's");
    if (adapter && opened->files.run) return cli_say_option(where, "adapter", "and a run are both given: the policy is the run's");
    return CLI_DONE;
}

int cli_opened_open(cli_opened *opened, const cli_args *args) {
    const char *where = args->command->name, *adapter = cli_option_value(args, "adapter"),
               *quantize = cli_option_value(args, "quantize");
    rein_error err = {0};
    int status = find_files(opened, adapter, quantize, where);
    if (status) return status;
    if (!adapter) adapter = opened->files.adapter;
    const int scored = opened->takes_rewards && rein_model_is_reward(opened->directory);
    const rein_model_options options = {.exec = opened->exec,
                                        .quantize = quantize ? quantize : opened->files.quantize,
                                        .score = scored ? REIN_SCORE_STORED : REIN_SCORE_NONE};
    if (rein_model_open(&opened->model, opened->directory, &options, &err)) return cli_say_error_of(where, "model", &err);
    opened->info = rein_model_describe(opened->model);
    status = open_tokenizer(opened, where);
    if (!status && adapter && rein_adapter_open(&opened->adapter, opened->model, adapter, &err))
        status = cli_say_error_of(where, "adapter", &err);
    return status;
}

void cli_opened_close(cli_opened *opened) {
    rein_tokenizer_close(opened->tokenizer);
    rein_adapter_close(opened->adapter);
    rein_model_close(opened->model);
    rein_policy_files_free(&opened->files);
    *opened = (cli_opened){0};
}

int cli_opened_check_ids(const cli_opened *opened, const rein_ids *ids, const char *name, const char *where) {
    for (size_t i = 0; i < ids->count; i++) {
        if (ids->data[i] >= opened->info.vocabulary)
            return cli_say(CLI_WRONG, where, "%s[%zu] is %ld: the model's tokens are 0 to %lld", name, i, (long)ids->data[i],
                           (long long)opened->info.vocabulary - 1);
    }
    return CLI_DONE;
}

rein_status cli_opened_encode(rein_ids *ids, const cli_opened *opened, const char *text, size_t length, int part, rein_error *err) {
    const rein_encoding how = {.add_special = !part, .parse_special = 1, .max_tokens = (size_t)opened->info.max_positions};
    return rein_tokenizer_encode(ids, opened->tokenizer, text, length, &how, err);
}

int cli_opened_encode_whole(rein_ids *ids, const cli_opened *opened, const rein_text *text, const char *what, const char *option,
                            const char *where) {
    rein_error err = {0};
    if (!opened->tokenizer)
        return cli_say(CLI_WRONG, where, "%s has no tokenizer: the %s must be given as %s", opened->directory, what, option);
    if (cli_opened_encode(ids, opened, text->data, text->length, 0, &err)) return cli_say_error(where, &err);
    if (ids->count) return CLI_DONE;
    return cli_say(CLI_WRONG, where, "the %s is empty, and the tokenizer adds no begin token: give one token or more", what);
}

void cli_json_token(rein_text *out, const rein_tokenizer *tokenizer, int32_t id) {
    size_t length = 0;
    const char *token = rein_tokenizer_token(&length, tokenizer, id);
    if (token) rein_json_put_bytes(out, token, length);
    else rein_text_put(out, "null");
}

void cli_json_ids(rein_text *out, const char *name, const int32_t *ids, size_t n) {
    rein_json_put_name(out, name);
    rein_text_put(out, "[");
    for (size_t i = 0; i < n; i++) rein_text_format(out, "%s%ld", i ? ", " : "", (long)ids[i]);
    rein_text_put(out, "]");
}
