/* kernels.h - the objective's functions that depend on the instruction set and the type. Filled in src/isa. Private. */
#ifndef REIN_OBJECTIVE_KERNELS_H
#define REIN_OBJECTIVE_KERNELS_H

#include "budget_pass.h"
#include "gpo.h"
#include "kernel/kernels.h"
#include "token_loss.h"
#include "update.h"

typedef struct rein_objective_kernels {
    rein_token_loss_fn *token_loss;
    rein_budget_fn *budget;
    rein_gpo_fn *gpo;
    rein_update_fn *update;
} rein_objective_kernels;

#endif
