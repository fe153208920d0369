/* kernels.h - the objective's functions that depend on the instruction set and the type. Filled in src/isa. Private. */
#ifndef REIN_OBJECTIVE_KERNELS_H
#define REIN_OBJECTIVE_KERNELS_H

#include "gpo.h"
#include "kernel/kernels.h"
#include "token_loss.h"

typedef struct rein_objective_kernels {
    rein_token_loss_fn *token_loss;
    rein_gpo_fn *gpo;
} rein_objective_kernels;

#endif
