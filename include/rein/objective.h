/* objective.h - the mathematics of RL post-training over plain arrays: every objective with its exact gradient.
 *
 * Boundary: numbers in, numbers out. No model, no file, no sampling. Every function is thread-safe, keeps nothing after it returns
 * (a rein_step lives in the caller's buffer), and on failure leaves its outputs untouched unless its contract says otherwise.
 * Outputs come first; an output pointer marked "or NULL" is skipped when NULL. Ragged data is offsets: row r is [off[r], off[r+1]).
 * `_f32` twins take and return float arrays; scalars stay double. A loss is minimised, an objective maximised. */
#ifndef REIN_OBJECTIVE_H
#define REIN_OBJECTIVE_H

#include "rein/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------ 1. the four named operations */

/* How a response that exceeds its token budget is treated. */
typedef enum rein_budget_rule {
    REIN_BUDGET_LINEAR = 0,  /* r − budget_penalty_coef · max(0, L − B) */
    REIN_BUDGET_TRUNCATE = 1 /* L > B: the reward becomes −budget_penalty (the report's rule: cut off and assigned a penalty) */
} rein_budget_rule;

typedef struct rein_budget {
    double token_budget;          /* B for every response; >= 0 */
    const int64_t *token_budgets; /* [n] one a response, or NULL: token_budget */
    double kl_coef;               /* tau >= 0 */
    double budget_penalty_coef;   /* lambda >= 0, for REIN_BUDGET_LINEAR */
    double budget_penalty;        /* >= 0, for REIN_BUDGET_TRUNCATE */
    rein_budget_rule rule;
} rein_budget;

/* Budget-constrained loss (Kimi K2): *loss = mean_i (A_i − tau·(lp_i − old_i))², A_i = adjusted_i − its prompt's mean. Rows of
 * `offsets` [n_prompts + 1] are prompts, of any length >= 1; all arrays have n = offsets[n_prompts] entries. adjusted, advantages,
 * grad_log_probs [n] and baselines [n_prompts] may be NULL. */
REIN_API rein_status rein_budget_loss(double *loss, double *adjusted, double *advantages, double *baselines, double *grad_log_probs,
                                      const double *rewards, const double *log_probs, const double *old_log_probs,
                                      const int64_t *response_lengths, const size_t *offsets, size_t n_prompts,
                                      const rein_budget *budget, const rein_exec *exec, rein_error *err);
REIN_API rein_status rein_budget_loss_f32(double *loss, float *adjusted, float *advantages, float *baselines, float *grad_log_probs,
                                          const float *rewards, const float *log_probs, const float *old_log_probs,
                                          const int64_t *response_lengths, const size_t *offsets, size_t n_prompts,
                                          const rein_budget *budget, const rein_exec *exec, rein_error *err);

/* Which way round the KL term of the group policy objective has its quotient. */
typedef enum rein_kl_direction {
    REIN_KL_DIRECTION_DEFAULT = 0, /* gpo: current_over_ref, as in its worked values; policy loss: ref_over_current */
    REIN_CURRENT_OVER_REF = 1,     /* q = pi / pi_ref: estimates chi²(pi‖ref) − KL */
    REIN_REF_OVER_CURRENT = 2      /* q = pi_ref / pi: unbiased for KL(pi‖ref) (DeepSeek-V3.2, eq. 7) */
} rein_kl_direction;

typedef struct rein_gpo {
    double objective, surrogate, kl; /* objective = surrogate − beta·kl */
} rein_gpo;

/* Group policy objective: J = mean_i min(rho_i A_i, clip(rho_i, 1−eps, 1+eps) A_i) − beta·mean_i rho_i (q_i − log q_i − 1).
 * Arrays have n >= 1 entries; pi > 0. grad_ratios, grad_pi_current: dJ/d(each) [n], or NULL. */
REIN_API rein_status rein_gpo_objective(rein_gpo *value, double *grad_ratios, double *grad_pi_current, const double *ratios,
                                        const double *advantages, const double *pi_current, const double *pi_ref, size_t n,
                                        double epsilon, double beta, rein_kl_direction direction, const rein_exec *exec,
                                        rein_error *err);
REIN_API rein_status rein_gpo_objective_f32(rein_gpo *value, float *grad_ratios, float *grad_pi_current, const float *ratios,
                                            const float *advantages, const float *pi_current, const float *pi_ref, size_t n,
                                            double epsilon, double beta, rein_kl_direction direction, const rein_exec *exec,
                                            rein_error *err);

/* RLHF weight update: updated = weights + lr·(1/n) Σ_i (R_i − beta·(lp_i − ref_i))·G_i. weights, updated [p] (they may be the same
 * array); rewards and log-probs [n], n >= 1; log_prob_grads [n][p] row-major, read once. Of what it
 * allocates up to 64 MB stay with the calling thread. */
REIN_API rein_status rein_rlhf_update(double *updated, const double *weights, const double *rewards, const double *policy_log_probs,
                                      const double *ref_log_probs, const double *log_prob_grads, size_t n, size_t p, double beta,
                                      double lr, const rein_exec *exec, rein_error *err);
REIN_API rein_status rein_rlhf_update_f32(float *updated, const float *weights, const float *rewards, const float *policy_log_probs,
                                          const float *ref_log_probs, const float *log_prob_grads, size_t n, size_t p, double beta,
                                          double lr, const rein_exec *exec, rein_error *err);

/* Over which tokens the KL penalty is centred. */
typedef enum rein_kl_scope { REIN_KL_SCOPE_BATCH = 0, REIN_KL_SCOPE_GROUP = 1, REIN_KL_SCOPE_SEQUENCE = 2 } rein_kl_scope;

/* KL-penalised advantages (ART #562): adjusted_t = A_t + c·(avg − d_t) on trained tokens, d = lp − ref, avg its mean over the scope;
 * other tokens keep A_t. *kl_policy_ref = mean of d over all trained tokens (0 when there are none). mask [n_tokens] or NULL (all
 * train). sequence_offsets [n_sequences + 1] for scopes sequence and group, group_offsets [n_groups + 1] (in sequences) for group;
 * NULL where the scope does not need them. c = 0 copies A and needs no reference: without one kl_policy_ref is 0. */
REIN_API rein_status rein_kl_advantage(double *adjusted, double *kl_policy_ref, const double *advantages, const double *log_probs,
                                       const double *ref_log_probs, const uint8_t *mask, size_t n_tokens, double kl_penalty_coef,
                                       rein_kl_scope scope, const size_t *sequence_offsets, size_t n_sequences,
                                       const size_t *group_offsets, size_t n_groups, rein_error *err);
REIN_API rein_status rein_kl_advantage_f32(float *adjusted, double *kl_policy_ref, const float *advantages, const float *log_probs,
                                           const float *ref_log_probs, const uint8_t *mask, size_t n_tokens, double kl_penalty_coef,
                                           rein_kl_scope scope, const size_t *sequence_offsets, size_t n_sequences,
                                           const size_t *group_offsets, size_t n_groups, rein_error *err);

/* -------------------------------------------------------------------------------------------------------------- 2. controllers */

/* Turns the budget penalty into a constraint on the mean length: *multiplier <- max(0, *multiplier + step_size·(mean L − target)),
 * dual ascent. lengths [n], n >= 1. */
REIN_API rein_status rein_budget_control(double *multiplier, const int64_t *lengths, size_t n, double target_length,
                                         double step_size, rein_error *err);

/* Adaptive entropy coefficient (Skywork-OR1, arXiv 2505.22312): *coef moves by ±step_size towards the target, never below 0. The loss
 * applies the coefficient only while the entropy is at or below the target (option entropy_target). */
REIN_API rein_status rein_entropy_control(double *coef, double mean_entropy, double entropy_target, double step_size,
                                          rein_error *err);

/* ------------------------------------------------------------------------------------------------------- 3. options and presets */

typedef enum rein_shape {
    REIN_SHAPE_NONE = 0,
    REIN_SHAPE_BUDGET,
    REIN_SHAPE_TRUNCATE,
    REIN_SHAPE_OVERLONG,
    REIN_SHAPE_K15_LENGTH
} rein_shape;

typedef enum rein_advantage {
    REIN_ADVANTAGE_NONE = 0, /* the shaped reward itself */
    REIN_ADVANTAGE_GROUP_MEAN,
    REIN_ADVANTAGE_GROUP_STD,
    REIN_ADVANTAGE_BATCH_STD,
    REIN_ADVANTAGE_LEAVE_ONE_OUT,
    REIN_ADVANTAGE_REINFORCE_PP,
    REIN_ADVANTAGE_OPO,
    REIN_ADVANTAGE_REMAX,
    REIN_ADVANTAGE_PASS_AT_K,
    REIN_ADVANTAGE_MAX_RL,
    REIN_ADVANTAGE_GDPO,
    REIN_ADVANTAGE_GAE,
    REIN_ADVANTAGE_GIVEN /* the batch's advantages; rewards are only reported */
} rein_advantage;

typedef enum rein_ratio {
    REIN_RATIO_PUBLISHED = 0, /* the level the surrogate was published with */
    REIN_RATIO_TOKEN,
    REIN_RATIO_SEQUENCE,
    REIN_RATIO_SEQUENCE_SUM,
    REIN_RATIO_SEQUENCE_TOKEN,
    REIN_RATIO_AVERAGE,
    REIN_RATIO_GEOMETRIC_AVERAGE
} rein_ratio;

typedef enum rein_mismatch {
    REIN_MISMATCH_NONE = 0,
    REIN_MISMATCH_TOKEN_TIS,
    REIN_MISMATCH_TOKEN_MASK,
    REIN_MISMATCH_SEQUENCE_TIS,
    REIN_MISMATCH_SEQUENCE_MASK
} rein_mismatch;

typedef enum rein_surrogate {
    REIN_SURROGATE_REINFORCE = 0,
    REIN_SURROGATE_CLIP,
    REIN_SURROGATE_DUAL_CLIP,
    REIN_SURROGATE_CISPO,
    REIN_SURROGATE_SQUARED,
    REIN_SURROGATE_DRO,
    REIN_SURROGATE_GMPO,
    REIN_SURROGATE_SAPO,
    REIN_SURROGATE_VESPO,
    REIN_SURROGATE_TOPR,
    REIN_SURROGATE_DPPO,
    REIN_SURROGATE_LUSPO
} rein_surrogate;

typedef enum rein_kl_estimator { REIN_K1 = 0, REIN_K2, REIN_K3, REIN_KL_ABS, REIN_IS_K1, REIN_IS_K3 } rein_kl_estimator;

typedef enum rein_kl_source { REIN_KL_SOURCE_CURRENT_LEARNER = 0, REIN_KL_SOURCE_SAMPLE = 1 } rein_kl_source;

typedef enum rein_dppo_divergence { REIN_DPPO_TV = 0, REIN_DPPO_KL = 1 } rein_dppo_divergence;

typedef enum rein_aggregation {
    REIN_TOKEN_MEAN = 0,
    REIN_TOKEN_SUM,
    REIN_SEQ_MEAN_TOKEN_MEAN,
    REIN_SEQ_MEAN_TOKEN_SUM,
    REIN_DR_GRPO
} rein_aggregation;

/* One row of choices: shape reward -> advantage -> adjust per token -> ratio -> surrogate -> + KL, entropy -> aggregate.
 * {0} is REINFORCE on the raw reward, and zero is literal (kl_loss_coef = 0: no KL). NaN means "not given": a published constant takes
 * its place, or the check says that one is required. Field by field the names are those of the command line and of JSON. */
typedef struct rein_options {
    rein_shape shape;
    double token_budget, budget_penalty_coef, budget_penalty, overlong_max, overlong_cushion, length_weight, reward_clip;
    rein_advantage advantage;
    double pass_k, gae_gamma, gae_lambda, advantage_eps, advantage_balance;
    rein_ratio ratio;
    rein_mismatch mismatch;
    double tis_cap, mismatch_low, mismatch_high, off_policy_mask_delta;
    rein_surrogate surrogate;
    double epsilon, epsilon_high, dual_clip, max_negative_advantage_importance_sampling_weight;
    double tau, dro_beta, sapo_tau_positive, sapo_tau_negative;
    double vespo_k_positive, vespo_lambda_positive, vespo_k_negative, vespo_lambda_negative;
    double topr_positive_low, topr_positive_high, topr_negative_low, topr_negative_high;
    rein_dppo_divergence dppo_divergence;
    double dppo_delta, dppo_ratio_cap, kimi_k2_tau;
    double kl_reward_coef, kl_penalty_coef, kl_loss_coef;
    rein_kl_estimator kl_estimator;
    rein_kl_direction kl_direction;
    rein_kl_scope kl_scope;
    rein_kl_source kl_penalty_source;
    double kl_clamp;
    double entropy_coef, entropy_target, top_entropy;
    rein_aggregation aggregation;
    double max_response_length;
    uint64_t given; /* which options rein_options_set touched, by their index in rein_option_info */
} rein_options;

/* What a name means: one row per option, in the order above. */
typedef struct rein_option_info {
    const char *name;    /* "kl_loss_coef" */
    const char *choices; /* "none|budget|…" for a choice, NULL for a number */
    const char *stage;   /* "shape", "advantage", … */
    const char *help;    /* one line */
} rein_option_info;

/* Option number i, or NULL past the last. Static storage. */
REIN_API const rein_option_info *rein_option_at(size_t i);

/* Fills *options with preset `name` ("grpo"); unknown names are an error that suggests the nearest. */
REIN_API rein_status rein_preset(rein_options *options, const char *name, rein_error *err);

/* Name of preset number i, or NULL past the last. Static storage. */
REIN_API const char *rein_preset_name(size_t i);

/* Sets one option from text ("0.2", "group-std"), as JSON, the command line and Python give it, and remembers that it was given: a
 * given option that cannot act in the composition is an error later. ART's names are understood (importance_sampling_level,
 * scale_rewards, truncated_importance_sampling). */
REIN_API rein_status rein_options_set(rein_options *options, const char *name, const char *value, rein_error *err);

/* The option as text, %.17g for numbers, "" when not given. At most `size` bytes with the 0. */
REIN_API rein_status rein_options_get(char *value, size_t size, const rein_options *options, const char *name, rein_error *err);

/* Puts published constants where nothing was given and checks the composition: ranges, missing required options, given options that
 * cannot act. *resolved may be `options`. The policy loss does this itself. */
REIN_API rein_status rein_options_resolve(rein_options *resolved, const rein_options *options, rein_error *err);

/* 1 if the objective needs log-probs under a reference policy: it has a KL in the reward, the advantage or the loss. Thread-safe. */
REIN_API int rein_options_use_reference(const rein_options *options);

/* What an option is to a composition. */
typedef enum rein_option_state {
    REIN_OPTION_IDLE = 0, /* it cannot act */
    REIN_OPTION_OFF,      /* it could act, but is absent: that is allowed */
    REIN_OPTION_SET,      /* it acts, with the value given or published */
    REIN_OPTION_REQUIRED  /* it acts, has no published value, and was not given */
} rein_option_state;

/* The state of option number i (rein_option_at) in `options`, which need not be resolved. Thread-safe. */
REIN_API rein_option_state rein_options_state(const rein_options *options, size_t i);

/* Everything `rein explain NAME` says of a preset: the struct holds static strings. */
typedef struct rein_preset_info {
    const char *name, *title, *source, *formula, *purpose, *note;
} rein_preset_info;

/* Description of preset `name`, or NULL when there is none. Static storage. */
REIN_API const rein_preset_info *rein_preset_describe(const char *name);

/* One row of the gradient-bias table (SPEC 2.5): which gradient the KL terms of a composition have in expectation. */
typedef struct rein_kl_bias {
    const char *form;      /* "k3 as loss" */
    const char *on_policy; /* "exact", "wrong: …" */
    const char *off_policy;
    const char *meaning; /* one plain sentence */
} rein_kl_bias;

/* The i-th KL term's row for `options` (reward, advantage, loss, in that order), or NULL when there is no more. Static storage. */
REIN_API const rein_kl_bias *rein_kl_bias_of(const rein_options *options, size_t i);

/* -------------------------------------------------------------------------------------------------------------- 4. policy loss */

typedef enum rein_dtype { REIN_F64 = 0, REIN_F32 = 1 } rein_dtype;

/* One optimizer step of sampled responses, packed without padding. Token arrays have n_tokens = sequence_offsets[n_sequences] entries
 * of type `dtype`; entries at masked tokens are never read as numbers (NaN is fine there). Arrays a composition does not use may be
 * NULL. Borrowed: must stay alive and unchanged while a rein_step uses it. */
typedef struct rein_batch {
    size_t n_groups, n_sequences, n_components;
    const size_t *group_offsets;    /* [n_groups + 1] in sequences; NULL: all sequences are one group */
    const size_t *sequence_offsets; /* [n_sequences + 1] in tokens */
    rein_dtype dtype;
    const uint8_t *mask;             /* [n_tokens] 1: trains; NULL: all do */
    const void *log_probs;           /* under the policy being trained */
    const void *old_log_probs;       /* under the policy at the start of the update */
    const void *ref_log_probs;       /* under the reference policy */
    const void *sample_log_probs;    /* as the sampler saw them */
    const void *entropies;           /* of the policy being trained, nats */
    const void *values;              /* a critic's, for gae */
    const double *rewards;           /* [n_sequences], or NULL with reward_components or advantage given */
    const double *reward_components; /* [n_sequences][n_components] row-major */
    const double *reward_weights;    /* [n_components]; NULL: all 1 */
    const double *baseline_rewards;  /* [n_sequences] for remax */
    const int64_t *response_lengths; /* [n_sequences]; NULL: the trained tokens */
    const int64_t *token_budgets;    /* [n_sequences]; NULL: options.token_budget */
    const uint8_t *correct;          /* [n_sequences] for k1.5-length */
    const void *advantages;          /* [n_tokens] of type dtype, for advantage given */
} rein_batch;

/* What every loss reports. Means are over trained tokens unless a name says otherwise; 0 where there is nothing to average.
 * Ratios and their means are reported within e^±20 (the loss knows no such bound). */
typedef struct rein_metrics {
    double reward, reward_std;                          /* shaped; mean over sequences, mean over groups of the unbiased std */
    double frac_reward_zero_std;                        /* groups whose advantages are all 0 */
    double length_mean, length_max;                     /* response lengths */
    double share_over_budget;                           /* responses longer than their budget */
    double clip_low, clip_high;                         /* clipped with A < 0 below, with A > 0 above */
    double ratio_mean, ratio_min, ratio_max, ratio_p99; /* p99 from a log-spaced histogram, within 1 % */
    double ess;                                         /* (Σρ)² / (n Σρ²): 1 when all ratios agree */
    double kl_old_k1, kl_old_k3;                        /* KL(old‖current) */
    double kl_ref_k1, kl_ref_k3;                        /* KL(current‖ref); k1 is kl_policy_ref */
    double entropy;
    double surrogate_loss, kl_loss, entropy_loss; /* the loss is their sum */
    double tokens, trained_tokens, sequences, trained_sequences, groups;
} rein_metrics;

typedef struct rein_loss {
    double loss;
    rein_metrics metrics;
    int nothing_to_train; /* 1: no trained token; the loss and every gradient are 0 */
} rein_loss;

/* The policy loss of a whole step with its gradient: grad_log_probs, grad_entropies [n_tokens] (d loss / d each; 0 at masked tokens)
 * and advantages [n_tokens] (after adjustment), each of type batch->dtype or NULL. Allocates its workspace, of which up to 64 MB
 * stay with the calling thread; computes twice so that outputs stay untouched on failure: a rein_step does it once. */
REIN_API rein_status rein_policy_loss(rein_loss *loss, void *grad_log_probs, void *grad_entropies, void *advantages,
                                      const rein_batch *batch, const rein_options *options, const rein_exec *exec, rein_error *err);

/* A step, prepared: advantages, normalisers, KL averages of the *whole* optimizer step, fixed before the first token's loss. */
typedef struct rein_step rein_step;

/* Bytes of workspace that rein_step_begin needs for this batch; 0 when the batch's shape is wrong (begin says how). */
REIN_API size_t rein_step_size(const rein_batch *batch, const rein_options *options, const rein_exec *exec);

/* Prepares a step in the caller's buffer (any alignment, at least rein_step_size bytes; the step lives there until it is reused).
 * Needs everything but log_probs and entropies; those too where a stop-gradient quantity of the whole step reads them (KL in the
 * reward or the advantage, entropy_target, top_entropy). */
REIN_API rein_status rein_step_begin(rein_step **step, void *buffer, size_t size, const rein_batch *batch,
                                     const rein_options *options, const rein_exec *exec, rein_error *err);

/* Adds the micro-batch of sequences [first, last) to the step. log_probs, entropies and the outputs are arrays of the *whole* step
 * (NULL: those of the batch, or no output). Micro-batches come in order, without gaps; however the step is cut, the bits are the same.
 * No allocation. On failure the gradients of [first, last) are set to 0 and the step cannot go on. */
REIN_API rein_status rein_step_loss(rein_step *step, size_t first, size_t last, const void *log_probs, const void *entropies,
                                    void *grad_log_probs, void *grad_entropies, void *advantages, rein_error *err);

/* The loss and metrics of the sequences added so far. */
REIN_API rein_status rein_step_finish(rein_loss *loss, const rein_step *step, rein_error *err);

/* Shaped rewards [n_sequences] of a batch: the `shape` and `reward_clip` of options (no KL). */
REIN_API rein_status rein_shape_rewards(double *shaped, const rein_batch *batch, const rein_options *options, rein_error *err);

/* Advantages of a batch, one a token [n_tokens] in double, 0-filled where masked: shaped reward, KL in the reward, estimator and
 * balance, before the per-token adjustments. */
REIN_API rein_status rein_advantages(double *advantages, const rein_batch *batch, const rein_options *options, rein_error *err);

#ifdef __cplusplus
}
#endif
#endif
