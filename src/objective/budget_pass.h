/* budget_pass.h - the task of the budget loss's kernels. Private. */
#ifndef REIN_OBJECTIVE_BUDGET_PASS_H
#define REIN_OBJECTIVE_BUDGET_PASS_H

#include "rein/objective.h"

typedef struct rein_budget_task {
    void *adjusted, *advantages, *baselines, *grad; /* outputs, or NULL */
    const void *rewards, *log_probs, *old_log_probs;
    const int64_t *lengths;
    const size_t *offsets;
    const rein_budget *budget;
    double scale; /* of the gradient: −2τ/N */
} rein_budget_task;

typedef struct rein_budget_sums {
    double loss;   /* Σ (A − τ·(lp − old))² */
    double reach;  /* the largest |adjusted| */
    int64_t marks; /* bitwise or of all lengths: negative if a length is, or if a reward is not finite */
} rein_budget_sums;

/* Over prompts [first, last); with `write`, the outputs. */
typedef rein_budget_sums rein_budget_fn(const rein_budget_task *t, size_t first, size_t last, int write);
rein_budget_fn rein_budget_pass_ref_f32, rein_budget_pass_ref_f64, rein_budget_pass_avx2_f32, rein_budget_pass_avx2_f64;

/* Lengths must be below this limit, so that they can be converted to doubles by their bits. */
#define REIN_LENGTH_LIMIT ((int64_t)1 << 51)

#endif
