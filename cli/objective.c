/* objective.c - operations on JSON: find the operation, read its arguments, compute, and only then write. */
#include "objective.h"

#include <string.h>

#include "nearest.h"

static const rein_operation *const OPERATIONS[] = {
    &rein_operation_budget_loss,
    &rein_operation_gpo,
    &rein_operation_rlhf_update,
    &rein_operation_kl_advantage,
    &rein_operation_budget_control,
    &rein_operation_policy_loss,
    NULL,
};

const rein_operation *rein_operation_at(size_t i) { return i < sizeof OPERATIONS / sizeof *OPERATIONS ? OPERATIONS[i] : NULL; }

const rein_operation *rein_operation_named(const char *name) {
    for (size_t i = 0; OPERATIONS[i]; i++) {
        if (!strcmp(name, OPERATIONS[i]->name)) return OPERATIONS[i];
    }
    return NULL;
}

const char *rein_operation_word(size_t i) { return rein_operation_at(i) ? rein_operation_at(i)->name : NULL; }

static rein_status compute(const rein_operation *operation, const char *text, size_t length, int grad, const rein_exec *exec,
                           rein_text *out, rein_error *err) {
    rein_in in;
    rein_text_put(out, "{");
    rein_status status = rein_in_open(&in, text, length, NULL, operation->keys, err);
    if (!status) status = operation->run(&in, grad, exec, out);
    rein_in_close(&in);
    rein_text_put(out, "}\n");
    return !status && out->failed ? rein_fail(err, REIN_ENOMEM, "out of memory") : status;
}

int rein_cli_objective(const char *name, const char *text, size_t length, int grad, const rein_exec *exec, rein_text *out,
                       rein_error *err) {
    rein_error own;
    rein_text result = {0};
    rein_status status;
    if (!err) err = &own;
    *err = (rein_error){0};
    const rein_operation *operation = rein_operation_named(name);
    const char *nearest = rein_cli_nearest(name, rein_operation_word);
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
