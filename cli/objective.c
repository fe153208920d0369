/* objective.c - operations on JSON: find the operation, read its arguments, compute, and only then write. */
#include "objective.h"

#include <string.h>

#include "nearest.h"

static const cli_operation *const OPERATIONS[] = {
    &cli_operation_budget_loss,
    &cli_operation_gpo,
    &cli_operation_rlhf_update,
    &cli_operation_kl_advantage,
    &cli_operation_budget_control,
    &cli_operation_policy_loss,
    NULL,
};

const cli_operation *cli_operation_at(size_t i) { return i < sizeof OPERATIONS / sizeof *OPERATIONS ? OPERATIONS[i] : NULL; }

const cli_operation *cli_operation_named(const char *name) {
    for (size_t i = 0; OPERATIONS[i]; i++) {
        if (!strcmp(name, OPERATIONS[i]->name)) return OPERATIONS[i];
    }
    return NULL;
}

const char *cli_operation_word(size_t i) { return cli_operation_at(i) ? cli_operation_at(i)->name : NULL; }

static rein_status compute(const cli_operation *operation, const char *text, size_t length, int grad, const rein_exec *exec,
                           rein_text *out, rein_error *err) {
    cli_in in;
    rein_text_put(out, "{");
    rein_status status = cli_in_open(&in, text, length, NULL, operation->keys, err);
    if (!status) status = operation->run(&in, grad, exec, out);
    cli_in_close(&in);
    rein_text_put(out, "}\n");
    return !status && out->failed ? rein_fail(err, REIN_ENOMEM, "out of memory") : status;
}

int cli_objective(const char *name, const char *text, size_t length, int grad, const rein_exec *exec, rein_text *out,
                  rein_error *err) {
    rein_error own;
    rein_text result = {0};
    rein_status status;
    if (!err) err = &own;
    *err = (rein_error){0};
    const cli_operation *operation = cli_operation_named(name);
    const char *nearest = cli_nearest(name, cli_operation_word);
    if (!operation && nearest)
        status = rein_fail(err, REIN_EINVAL, "unknown operation \"%.40s\": did you mean \"%s\"?", name, nearest);
    else if (!operation)
        status = rein_fail(
            err, REIN_EINVAL,
            "unknown operation \"%.40s\": it is one of budget-loss, gpo, rlhf-update, kl-advantage, budget-control, policy-loss",
            name);
    else if (grad && !operation->gradients)
        status = rein_fail(err, REIN_EINVAL, "--grad has no effect here: this operation has no gradient");
    else status = compute(operation, text, length, grad, exec, &result, err);
    if (!status) rein_text_put_bytes(out, result.data, result.length);
    rein_text_free(&result);
    if (!status && out->failed) status = rein_fail(err, REIN_ENOMEM, "out of memory");
    return !status ? 0 : status == REIN_ENOMEM ? 1 : 2;
}
