/* export.c - `rein export`: a policy as a model directory that other programs load. */
#include <string.h>

#include "policy.h"
#include "terminal.h"

static const char WHERE[] = "export";

int cli_run_export(const cli_args *args) {
    const char *to = cli_option_value(args, "to");
    cli_opened opened = {.name = args->n_words ? args->words[0] : NULL, .files.step = -1};
    rein_error err = {0};
    rein_text out = {0};
    if (!opened.name) return cli_say(CLI_WRONG, WHERE, "a policy is needed: rein export %s", args->command->usage);
    if (!to || !*to) return cli_say(CLI_WRONG, WHERE, "a directory is needed: --to DIR");
    int status = cli_opened_open(&opened, args);
    if (!status && rein_model_save(opened.model, opened.adapter, to, &err)) status = cli_say_error(WHERE, &err);
    cli_opened_close(&opened);
    rein_text_format(&out, "%s\n", to);
    return cli_print_result(&out, status);
}
