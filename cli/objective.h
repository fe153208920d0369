/* objective.h - `rein objective NAME`: one operation on a JSON object of its arguments. */
#ifndef CLI_OBJECTIVE_H
#define CLI_OBJECTIVE_H

#include "json_in.h"
#include "rein/json.h"

/* One operation: read by the help, the man page, the completion, rein explain and rein objective. */
typedef struct cli_operation {
    const char *name, *summary;
    const char *arguments, *results, *gradients; /* lines of help; gradients NULL: there is none, --grad is an error */
    const char *formula, *source, *note;         /* for rein explain */
    const char *example;                         /* a valid JSON object */
    const char *const *keys;                     /* all arguments; NULL ends them */
    /* Reads the arguments, computes, writes the fields of the result. On success in->fields.err->message is empty or a note. */
    rein_status (*run)(cli_in *in, int grad, const rein_exec *exec, rein_text *out);
} cli_operation;

/* Operation number i, and its name; NULL past the last. */
const cli_operation *cli_operation_at(size_t i);
const char *cli_operation_word(size_t i);
const cli_operation *cli_operation_named(const char *name);

/* Computes operation `name` on the JSON text and appends one JSON object and a newline to *out. Returns the exit status: 0; 1 if memory
 * ran out; 2 if the input is wrong. On failure *out is unchanged and *err describes the error; on success err->message is empty or a
 * note for the user. Prints nothing; thread-safe. */
int cli_objective(const char *name, const char *text, size_t length, int grad, const rein_exec *exec, rein_text *out,
                  rein_error *err);

extern const cli_operation cli_operation_budget_loss, cli_operation_gpo, cli_operation_rlhf_update, cli_operation_kl_advantage,
    cli_operation_budget_control, cli_operation_policy_loss;

#endif
