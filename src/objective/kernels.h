/* kernels.h - the objective's functions that depend on the instruction set and the type. Filled in src/isa. Private. */
#ifndef REIN_OBJECTIVE_KERNELS_H
#define REIN_OBJECTIVE_KERNELS_H

#include "kernel/kernels.h"
#include "token_loss.h"

/* The group policy objective over plain arrays. */
typedef struct rein_gpo_task {
    const void *ratios, *advantages, *pi_current, *pi_ref;
    void *grad_ratios, *grad_pi_current;
    double epsilon, beta, scale; /* scale = 1/n of the mean */
    rein_kl_direction direction;
} rein_gpo_task;

/* Σ of the surrogate, Σ ρ·k and the largest |gradient| over [first, last); with `write`, the gradients. */
typedef struct rein_gpo_sums {
    double surrogate, kl, steepest;
} rein_gpo_sums;
typedef rein_gpo_sums rein_gpo_fn(const rein_gpo_task *g, size_t first, size_t last, int write);
#define REIN_GPO_PASS(isa, NAME, machines) rein_gpo_fn rein_gpo_pass_##isa##_f32, rein_gpo_pass_##isa##_f64;
REIN_ISA_LIST(REIN_GPO_PASS)
#undef REIN_GPO_PASS

typedef struct rein_objective_kernels {
    rein_token_loss_fn *token_loss;
    rein_gpo_fn *gpo;
} rein_objective_kernels;

#endif
