/* operation.h - the table of operations on JSON. Private. */
#ifndef REIN_OBJECTIVE_OPERATION_H
#define REIN_OBJECTIVE_OPERATION_H

#include "arguments.h"
#include "rein/operation.h"

typedef struct rein_operation {
    rein_operation_info info;
    const char *const *keys; /* all arguments; NULL ends them */
    /* Reads the arguments, computes, writes the fields of the result. */
    rein_status (*run)(rein_arguments *in, int grad, const rein_exec *exec, rein_text *out);
} rein_operation;

extern const rein_operation rein_operation_budget_loss, rein_operation_gpo, rein_operation_rlhf_update, rein_operation_kl_advantage,
    rein_operation_budget_control, rein_operation_policy_loss, rein_operation_preference_loss, rein_operation_reward_loss,
    rein_operation_value_loss;

#endif
