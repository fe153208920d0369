/* operation.c - operations on JSON: find the operation, read its arguments, compute, and only then write. */
#include "operation.h"

#include <string.h>

static const rein_operation *const OPERATIONS[] = {
    &rein_operation_budget_loss,    &rein_operation_gpo,         &rein_operation_rlhf_update,     &rein_operation_kl_advantage,
    &rein_operation_budget_control, &rein_operation_policy_loss, &rein_operation_preference_loss, &rein_operation_reward_loss,
    &rein_operation_value_loss,
};
enum { N_OPERATIONS = sizeof OPERATIONS / sizeof *OPERATIONS };

const rein_operation_info *rein_operation_at(size_t i) { return i < N_OPERATIONS ? &OPERATIONS[i]->info : NULL; }

static const rein_operation *find(const char *name) {
    for (size_t i = 0; i < N_OPERATIONS; i++)
        if (!strcmp(name, OPERATIONS[i]->info.name)) return OPERATIONS[i];
    return NULL;
}

const rein_operation_info *rein_operation_describe(const char *name) {
    const rein_operation *operation = find(name);
    return operation ? &operation->info : NULL;
}

/* The error suggests the nearest name, or lists them. */
static rein_status unknown(const char *name, rein_error *err) {
    const char *names[N_OPERATIONS + 1] = {NULL};
    char quoted[REIN_TEXT_SHOWN];
    rein_text all = {0};
    for (size_t i = 0; i < N_OPERATIONS; i++) {
        names[i] = OPERATIONS[i]->info.name;
        rein_text_format(&all, "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = rein_nearest(name, names);
    rein_json_quote(quoted, name);
    if (nearest) rein_fail(err, REIN_EINVAL, "unknown operation %s: did you mean \"%s\"?", quoted, nearest);
    else rein_fail(err, REIN_EINVAL, "unknown operation %s: it is one of %s", quoted, all.failed ? "a few" : all.data);
    rein_text_free(&all);
    return REIN_EINVAL;
}

static rein_status compute(rein_text *out, const char **note, const rein_operation *operation, const char *text, size_t length,
                           int grad, const rein_exec *exec, rein_error *err) {
    rein_arguments in;
    rein_text_put(out, "{");
    rein_status status = rein_arguments_open(&in, text, length, operation->keys, err);
    if (!status) status = operation->run(&in, grad, exec, out);
    if (!status) *note = in.note;
    rein_arguments_close(&in);
    rein_text_put(out, "}\n");
    return status ? status : rein_text_status(out, err);
}

rein_status rein_operation_run(rein_text *out, const char **note, const char *name, const char *text, size_t length, int grad,
                               const rein_exec *exec, rein_error *err) {
    const rein_operation *operation = find(name);
    const char *remark = NULL;
    rein_text result = {0};
    if (!operation) return unknown(name, err);
    if (grad && !operation->info.gradients)
        return rein_fail_at(err, REIN_EINVAL, "grad", -1, "has no effect here: this operation has no gradient");
    rein_status status = compute(&result, &remark, operation, text, length, grad, exec, err);
    if (!status) status = rein_text_append(out, result.data, result.length, err);
    if (!status && note) *note = remark;
    rein_text_free(&result);
    return status;
}
