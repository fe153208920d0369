/* objective.c - `rein objective`: one operation on a JSON object of its arguments. */
#include <stdio.h>

#include "help.h"
#include "input.h"
#include "nearest.h"
#include "rein/operation.h"
#include "terminal.h"
#include "values.h"

static const char NAMES[] = "budget-loss, gpo, rlhf-update, kl-advantage, budget-control, policy-loss, preference-loss, "
                            "reward-loss or value-loss";

const char *cli_operation_word(size_t i) { return rein_operation_at(i) ? rein_operation_at(i)->name : NULL; }

static int compute(const cli_args *args, const rein_operation_info *operation, const rein_exec *exec) {
    const int grad = cli_option_value(args, "grad") != NULL;
    rein_error err = {0};
    rein_text text = {0}, out = {0};
    const char *note = NULL;
    char where[64];
    snprintf(where, sizeof where, "objective %s", operation->name);
    if (grad && !operation->gradients) return cli_say_option(where, "grad", "has no effect here: this operation has no gradient");
    int status = cli_read_input(&text, args->n_words > 1 ? args->words[1] : NULL, "a JSON object", where);
    if (!status && rein_operation_run(&out, &note, operation->name, text.data, text.length, grad, exec, &err))
        status = cli_say_failure(err.code == REIN_ENOMEM ? CLI_FAILED : CLI_WRONG, where, &err);
    if (note) cli_say(CLI_DONE, where, "note: %s", note);
    rein_text_free(&text);
    return cli_print_result(&out, status);
}

int cli_run_objective(const cli_args *args) {
    rein_exec exec = {0};
    const int status = cli_value_exec(&exec, args);
    if (status) return status;
    if (!args->n_words) return cli_say(CLI_WRONG, "objective", "a name is needed: %s", NAMES);
    const rein_operation_info *operation = rein_operation_describe(args->words[0]);
    if (operation) return compute(args, operation, &exec);
    char help[160];
    snprintf(help, sizeof help, "it is one of %s", NAMES);
    return cli_say_unknown("objective", "operation", args->words[0], cli_operation_word, help);
}
