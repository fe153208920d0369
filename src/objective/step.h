/* step.h - a prepared optimizer step. Private; gradient checks call rein_step_loss_apart. */
#ifndef REIN_OBJECTIVE_STEP_H
#define REIN_OBJECTIVE_STEP_H

#include "reward.h"
#include "token_loss.h"

/* Sequences [first, last) that one thread takes at a time. The cut depends only on the token counts of the step. */
typedef struct rein_loss_block {
    size_t first, last;
} rein_loss_block;

struct rein_step {
    rein_batch batch;
    rein_options options; /* resolved */
    rein_exec exec;       /* resolved */
    rein_token_loss_fn *token_loss;
    rein_loss_sequence *sequences; /* [n_sequences] */
    double *reward;                /* [n_sequences] shaped; minus the KL in the reward once the advantages are computed */
    double *estimate;              /* [n_sequences] advantages before the KL penalty */
    double *scratch;               /* [2·n_sequences], or [n_tokens] where something is computed token by token */
    double *drift;                 /* [n_sequences] Σ m (source − ref) */
    int64_t *length;               /* [n_sequences] response lengths */
    size_t *trained;               /* [n_sequences] tokens that train */
    const void *token_advantages;  /* [n_tokens] of the batch's type: computed here or the caller's; NULL: one a sequence */
    void *own_token_advantages;    /* room for those computed here */
    rein_loss_block *blocks;
    size_t n_blocks;
    rein_loss_sums *sums;             /* [n_blocks] */
    rein_ratio_histogram *histograms; /* [threads] */
    double entropy_coef, entropy_threshold;
    rein_metrics metrics; /* those that depend on rewards and lengths alone */
    size_t trained_tokens, trained_sequences;
    size_t next;  /* the first sequence neither added nor skipped */
    size_t added; /* trained tokens in the sums */
    int failed;
};

/* The log-probs that measure the detached KL. */
static inline const void *rein_kl_source_of(const rein_step *s) {
    return s->options.kl_penalty_source == REIN_KL_SOURCE_SAMPLE ? s->batch.sample_log_probs : s->batch.log_probs;
}

/* One sum of a block, over its lanes. */
static inline double rein_add_lanes(const rein_loss_sums *s, enum rein_loss_sum which) {
    double sum = 0;
    for (int l = 0; l < SUM_LANES; l++) sum += s->sum[which][l];
    return sum;
}

/* rein_step_loss with separate log-probs for stop(·), which a finite difference keeps fixed. NULL: those of log_probs. */
rein_status rein_step_loss_apart(rein_step *step, size_t first, size_t last, const void *log_probs, const void *stop_log_probs,
                                 const void *entropies, void *grad_log_probs, void *grad_entropies, void *advantages,
                                 rein_error *err);

#endif
