/* step.h - a prepared optimizer step. Private; tests reach for rein_step_loss_apart. */
#ifndef REIN_OBJECTIVE_STEP_H
#define REIN_OBJECTIVE_STEP_H

#include "pass.h"
#include "reward.h"

/* Sequences [first, last) that one thread takes at a time. Cut by token count from the step's offsets alone. */
typedef struct rein_block {
    size_t first, last;
} rein_block;

struct rein_step {
    rein_batch batch;
    rein_options options; /* resolved */
    rein_exec exec;       /* resolved */
    rein_pass_fn *pass;
    rein_count_fn *count;
    rein_log_bounds_fn *find_log_bounds;
    rein_row *rows;               /* [n_sequences] */
    double *reward;               /* [n_sequences] shaped; KL in it once the advantages are made */
    double *estimate;             /* [n_sequences] advantages before the KL penalty */
    double *scratch;              /* [2·n_sequences], or [n_tokens] where something is done token by token */
    double *drift;                /* [n_sequences] Σ m (src − ref) */
    int64_t *length;              /* [n_sequences] response lengths */
    rein_trained *spans;          /* [n_sequences] which tokens train */
    size_t *trained;              /* [n_sequences] */
    const void *token_advantages; /* [n_tokens] of the batch's type: made here or the caller's; NULL: one a sequence */
    void *made_advantages;        /* room for those made here */
    rein_block *blocks;
    size_t n_blocks;
    rein_tally *tallies; /* [n_blocks] */
    rein_top *tops;      /* [threads] */
    double entropy_coef, entropy_threshold;
    double log_bounds[2]; /* of the pass */
    rein_metrics metrics; /* those that rewards and lengths alone decide */
    size_t trained_tokens, trained_sequences;
    size_t next; /* the first sequence not yet added */
    int failed;
};

/* rein_step_loss, with the log-probs that stop(·) sees given apart: what a finite difference holds still. NULL: those of log_probs. */
rein_status rein_step_loss_apart(rein_step *step, size_t first, size_t last, const void *log_probs, const void *stop_log_probs,
                                 const void *entropies, void *grad_log_probs, void *grad_entropies, void *advantages,
                                 rein_error *err);

#endif
