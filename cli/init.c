/* init.c - `rein init`: random weights for a config.json. */
#include <inttypes.h>

#include "policy.h"
#include "rein/model.h"
#include "terminal.h"
#include "values.h"

static const char WHERE[] = "init";

static int print_result(const char *directory) {
    rein_error err = {0};
    rein_model *model;
    rein_text out = {0};
    if (rein_model_open(&model, directory, NULL, &err)) return cli_say_error(WHERE, &err);
    const rein_model_info info = rein_model_describe(model);
    rein_text_format(&out, "%s/model.safetensors: %s, %" PRId64 " parameters\n", directory, info.family, info.parameters);
    rein_model_close(model);
    return cli_print(&out);
}

int cli_run_init(const cli_args *args) {
    rein_error err = {0};
    uint64_t seed = 1;
    if (!args->n_words)
        return cli_say(CLI_WRONG, WHERE, "a directory with a config.json is needed: rein init %s", args->command->usage);
    const int status = cli_value_whole(&seed, args, "seed", 0, UINT64_MAX);
    if (status) return status;
    if (rein_model_init(args->words[0], seed, &err)) return cli_say_error(WHERE, &err);
    return print_result(args->words[0]);
}
