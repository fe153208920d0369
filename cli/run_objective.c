/* run_objective.c - `rein objective` around cli_objective: words, input, output, exit status. */
#include <stdio.h>

#include "help.h"
#include "input.h"
#include "objective.h"
#include "terminal.h"
#include "values.h"

int cli_run_objective(const cli_args *args) {
    rein_exec exec = {0};
    rein_error err = {0};
    rein_text text = {0}, out = {0};
    char where[64];
    int grad = cli_option_value(args, "grad") != NULL;
    int status = cli_value_exec(&exec, args);
    if (status) return status;
    if (!args->n_words)
        return cli_say(CLI_WRONG, "objective",
                       "a name is needed: budget-loss, gpo, rlhf-update, kl-advantage, budget-control or policy-loss");
    const cli_operation *operation = cli_operation_named(args->words[0]);
    snprintf(where, sizeof where, "objective%s%s", operation ? " " : "", operation ? operation->name : "");
    if (operation && !(grad && !operation->gradients))
        status = cli_read_input(&text, args->n_words > 1 ? args->words[1] : NULL, "a JSON object", where);
    if (!status) {
        status = cli_objective(args->words[0], text.data ? text.data : "", text.length, grad, &exec, &out, &err);
        if (status) cli_say_failure(status, where, &err);
        else if (err.message[0]) cli_say(CLI_DONE, where, "%s", err.message);
    }
    rein_text_free(&text);
    return cli_print_result(&out, status);
}
