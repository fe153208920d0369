/* train.h - what turns gradients into better weights: the optimizer and the schedule of its learning rate.
 *
 * Boundary: plain float arrays that the caller owns. No model, no file, no sampling, no clock. Every function is thread-safe as long as
 * no two calls share an array, keeps nothing after it returns, allocates nothing, and on failure leaves everything as it was. Results
 * depend neither on the number of threads nor on the instruction set, bit for bit. */
#ifndef REIN_TRAIN_H
#define REIN_TRAIN_H

#include "rein/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------------- 1. optimizer */

/* Zero is literal: max_gradient_norm = 0 does not clip, weight_decay = 0 does not decay. torch.optim.AdamW has 0.9, 0.999, 1e-8 and
 * 0.01 for the middle four. */
typedef struct rein_adamw {
    double learning_rate;     /* 0 to 1e6 */
    double beta1, beta2;      /* 0 <= beta < 1 */
    double epsilon;           /* above 0, as a float too */
    double weight_decay;      /* 0 or more; learning_rate·weight_decay is at most 1 */
    double max_gradient_norm; /* 0: no clipping; else gradients whose norm is larger are scaled down to it */
} rein_adamw;

/* One step of AdamW (Loshchilov & Hutter 2019, decoupled decay), in float, in the order of operations of torch.optim.AdamW
 * (docs/optimizer.md); t = *step + 1, per element:
 *     g = gradient·min(1, max_gradient_norm / (norm + 1e-6))
 *     value = value·(1 − learning_rate·weight_decay)           where the parameter decays
 *     first = first + (1 − beta1)·(g − first)
 *     second = beta2·second + (1 − beta2)·g·g
 *     value = value − learning_rate / (1 − beta1^t)·first / (√second / √(1 − beta2^t) + epsilon)
 * *gradient_norm (or NULL) is the norm of all gradients before clipping. first, second [Σ size] belong to the parameters one after
 * another; both are all 0 and *step is 0 before the first call, and *step counts the calls that succeeded.
 *
 * A gradient that is not a finite number is refused: the message names the parameter, row and column. So is a norm whose square does not
 * fit a float (REIN_ERANGE), which would make `second` infinite. Arrays may not overlap. */
REIN_API rein_status rein_adamw_step(double *gradient_norm, float *first, float *second, int64_t *step,
                                     const rein_parameter *parameters, size_t n_parameters, const rein_adamw *options,
                                     const rein_exec *exec, rein_error *err);

/* ----------------------------------------------------------------------------------------------------------------- 2. schedule */

/* The values are part of the ABI: they are added to, never renumbered. */
typedef enum rein_schedule_shape {
    REIN_SCHEDULE_CONSTANT = 0,
    REIN_SCHEDULE_LINEAR = 1,
    REIN_SCHEDULE_COSINE = 2 /* half a wave */
} rein_schedule_shape;

typedef struct rein_schedule {
    rein_schedule_shape shape;
    double learning_rate; /* the base rate, reached at step warmup_steps; finite, 0 or more */
    int64_t warmup_steps; /* 0: none */
    int64_t total_steps;  /* steps of the run, warm-up included; constant does not need it (0) */
    double final_share;   /* of learning_rate, at total_steps and after; 0 to 1. Constant ends with all of it: 0 (not given) or 1 */
} rein_schedule;

/* The learning rate of step number `step`, which counts from 0:
 *     step < warmup_steps      rate = learning_rate·step / warmup_steps: 0 at step 0, not yet all of it at step warmup_steps − 1
 *     constant, after that     rate = learning_rate
 *     linear, after that       rate = learning_rate·(final_share + (1 − final_share)·(1 − progress))
 *     cosine, after that       rate = learning_rate·(final_share + (1 − final_share)·½·(1 + cos(π·progress)))
 * progress = (step − warmup_steps) / (total_steps − warmup_steps); at total_steps and after it is 1. With final_share 0 these are Hugging
 * Face's get_constant, get_linear and get_cosine_schedule_with_warmup (but there the cosine rises again after total_steps). */
REIN_API rein_status rein_learning_rate(double *rate, const rein_schedule *schedule, int64_t step, rein_error *err);

/* -------------------------------------------------------------------------------------------------------- 3. trajectory groups */

/* One history of a trajectory: what the model saw and wrote, as token ids. */
typedef struct rein_history {
    size_t n;
    int32_t *ids;     /* [n] */
    uint8_t *mask;    /* [n] 1 where the token was sampled by the policy and trains; never the first token */
    float *log_probs; /* [n] as sampled, where mask is 1; NaN where that is not known, and elsewhere */
    float *values;    /* [n] a critic's, or NULL */
} rein_history;

typedef struct rein_trajectory {
    rein_history *histories; /* [n_histories], at least one; they share the reward */
    size_t n_histories;
    double reward;
    int64_t policy_step; /* the step of the policy that sampled it; -1: not known */
    int truncated;       /* cut off at a limit of length, not ended by the model */
    int64_t budget;      /* tokens; -1: none of its own */
    void *original;      /* the JSON it was read from, for writing it back; NULL: none */
} rein_trajectory;

typedef struct rein_group {
    rein_trajectory *trajectories; /* of one prompt; [n] */
    size_t n;
} rein_group;

/* {0} is empty. Everything belongs to it. */
typedef struct rein_groups {
    rein_group *groups;
    size_t n, capacity;
} rein_groups;

#ifdef __cplusplus
}
#endif
#endif
