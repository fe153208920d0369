/* objective.h - the mathematics of RL post-training over plain arrays: every objective with its exact gradient.
 *
 * Boundary: numbers in, numbers out. No model, no file, no sampling. Every function is thread-safe and keeps no results (a rein_step lives
 * in the caller's buffer); up to 64 MB of scratch memory stay with the calling thread. On failure outputs are untouched unless the contract
 * says otherwise.
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

/* The constants of the budget-constrained loss. */
typedef struct rein_budget {
    double token_budget;          /* B for every response; >= 0 */
    const int64_t *token_budgets; /* [n] one a response, or NULL: token_budget */
    double kl_coef;               /* tau >= 0 */
    double budget_penalty_coef;   /* lambda >= 0, for REIN_BUDGET_LINEAR */
    double budget_penalty;        /* >= 0, for REIN_BUDGET_TRUNCATE */
    rein_budget_rule rule;
} rein_budget;

/* Computes the budget-constrained loss of Kimi K2 and its gradient: *loss = mean_i (A_i − tau·(lp_i − old_i))², A_i = adjusted_i − its
 * prompt's mean. Rows of `offsets` [n_prompts + 1] are prompts, of any length >= 1; all arrays have n = offsets[n_prompts] entries.
 * adjusted, advantages, grad_log_probs [n] and baselines [n_prompts] may be NULL. */
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

/* The value of the group policy objective. */
typedef struct rein_gpo {
    double objective, surrogate, kl; /* objective = surrogate − beta·kl */
} rein_gpo;

/* Computes the group policy objective and its gradient: J = mean_i min(rho_i A_i, clip(rho_i, 1−eps, 1+eps) A_i) − beta·mean_i rho_i
 * (q_i − log q_i − 1). Arrays have n >= 1 entries; pi > 0. grad_ratios, grad_pi_current: dJ/d(each) [n], or NULL. */
REIN_API rein_status rein_gpo_objective(rein_gpo *value, double *grad_ratios, double *grad_pi_current, const double *ratios,
                                        const double *advantages, const double *pi_current, const double *pi_ref, size_t n,
                                        double epsilon, double beta, rein_kl_direction direction, const rein_exec *exec,
                                        rein_error *err);
REIN_API rein_status rein_gpo_objective_f32(rein_gpo *value, float *grad_ratios, float *grad_pi_current, const float *ratios,
                                            const float *advantages, const float *pi_current, const float *pi_ref, size_t n,
                                            double epsilon, double beta, rein_kl_direction direction, const rein_exec *exec,
                                            rein_error *err);

/* Makes one RLHF step of the weights: updated = weights + lr·(1/n) Σ_i (R_i − beta·(lp_i − ref_i))·G_i. weights, updated [p] (they
 * may be the same array); rewards and log-probs [n], n >= 1; log_prob_grads [n][p] row-major, read once. Of what it allocates up to
 * 64 MB stay with the calling thread. */
REIN_API rein_status rein_rlhf_update(double *updated, const double *weights, const double *rewards, const double *policy_log_probs,
                                      const double *ref_log_probs, const double *log_prob_grads, size_t n, size_t p, double beta,
                                      double lr, const rein_exec *exec, rein_error *err);
REIN_API rein_status rein_rlhf_update_f32(float *updated, const float *weights, const float *rewards, const float *policy_log_probs,
                                          const float *ref_log_probs, const float *log_prob_grads, size_t n, size_t p, double beta,
                                          double lr, const rein_exec *exec, rein_error *err);

/* Over which tokens the KL penalty is centred. */
typedef enum rein_kl_scope { REIN_KL_SCOPE_BATCH = 0, REIN_KL_SCOPE_GROUP = 1, REIN_KL_SCOPE_SEQUENCE = 2 } rein_kl_scope;

/* Moves advantages from tokens that drifted from the reference to the others (KL-penalised advantages, ART #562): adjusted_t = A_t +
 * c·(avg − d_t) on trained tokens, d = lp − ref, avg its mean over the scope; other tokens keep A_t. *kl_policy_ref = mean of d over
 * all trained tokens (0 when there are none). mask [n_tokens] or NULL (all train). sequence_offsets [n_sequences + 1] for scopes
 * sequence and group, group_offsets [n_groups + 1] (in sequences) for group; NULL where the scope does not need them. c = 0 copies A
 * and needs no reference: without one kl_policy_ref is 0. */
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

/* Adapts the entropy coefficient (Skywork-OR1, arXiv 2505.22312): *coef moves by ±step_size towards the target, never below 0. The loss
 * applies the coefficient only while the entropy is at or below the target (option entropy_target). */
REIN_API rein_status rein_entropy_control(double *coef, double mean_entropy, double entropy_target, double step_size,
                                          rein_error *err);

/* Adapts the coefficient of a KL (Ziegler et al. 2019, arXiv 1909.08593): *coef <- *coef·(1 + clip(kl/target − 1, ±0.2)·n/horizon), n the
 * responses of the step. target above 0; horizon above n/5, so that the coefficient stays above 0. */
REIN_API rein_status rein_kl_control(double *coef, double kl, double target, size_t n, double horizon, rein_error *err);

/* ------------------------------------------------------------------------------------------------------- 3. options and presets */

/* A composition of the policy loss: shape reward -> advantage -> adjust per token -> ratio -> surrogate -> + KL, entropy -> aggregate.
 * Options have the names and words that the command line, YAML, JSON and Python use (rein_option_at lists them). Zero is literal:
 * kl_loss_coef 0 means no KL. An option that is not given takes its published constant; where none is published, it is required.
 *
 * A handle: the caller frees it. Any number of threads may read one at the same time; only one may change it. Where a loss takes options,
 * NULL is REINFORCE on the raw reward. */
typedef struct rein_options rein_options;

/* Makes the options of a preset ("grpo"; NULL or "none": nothing is given, which is REINFORCE). An unknown name is an error that
 * suggests the nearest. The caller frees *options, which is NULL on failure. Thread-safe. */
REIN_API rein_status rein_options_new(rein_options **options, const char *preset, rein_error *err);

/* Makes an independent copy. The caller frees *copy, which is NULL on failure. */
REIN_API rein_status rein_options_copy(rein_options **copy, const rein_options *options, rein_error *err);

/* Frees options. Harmless on NULL. */
REIN_API void rein_options_free(rein_options *options);

/* Describes one option. */
typedef struct rein_option_info {
    const char *name;    /* "kl_loss_coef" */
    const char *choices; /* "none|budget|…" for a choice, NULL for a number */
    const char *stage;   /* "shape", "advantage", … */
    const char *help;    /* one line */
} rein_option_info;

/* Lists the options: number i, in the order of the stages, or NULL past the last. Static storage; thread-safe. */
REIN_API const rein_option_info *rein_option_at(size_t i);

/* Another name that sets an option: those of ART. */
typedef struct rein_option_alias {
    const char *name;   /* "scale_rewards" */
    const char *option; /* "advantage" */
    const char *value;  /* what it takes: "NAME", "X", "true|false" */
    const char *help;   /* one line */
} rein_option_alias;

/* Lists the aliases: number i, or NULL past the last. Static storage; thread-safe. */
REIN_API const rein_option_alias *rein_option_alias_at(size_t i);

/* Sets one option, by its name or an alias, from text ("0.2", "group-std"), and records that it was given: a given option that has no
 * effect in the composition is an error of the check. On failure the options stay as they were; err->field is the name. */
REIN_API rein_status rein_options_set(rein_options *options, const char *name, const char *value, rein_error *err);

/* Sets one option from a number, as rein_options_set does from text. */
REIN_API rein_status rein_options_set_number(rein_options *options, const char *name, double x, rein_error *err);

/* Reads a choice: *word becomes its word ("group-std"), "" where none is set. Static storage. */
REIN_API rein_status rein_options_get(const char **word, const rein_options *options, const char *name, rein_error *err);

/* Reads a number: NaN where none is set. */
REIN_API rein_status rein_options_get_number(double *number, const rein_options *options, const char *name, rein_error *err);

/* Says whether an option was given, by its name or an alias: 1 if it was; name NULL: if any was. What a preset sets was not given. */
REIN_API int rein_options_given(const rein_options *options, const char *name);

/* Fills in the published constants where nothing was given and checks the composition: ranges, required options, given options that
 * have no effect. *resolved, which exists, may be `options`; it stays as it was on failure. The policy loss does this itself. */
REIN_API rein_status rein_options_resolve(rein_options *resolved, const rein_options *options, rein_error *err);

/* Checks a composition as rein_options_resolve does, without a result. */
REIN_API rein_status rein_options_check(const rein_options *options, rein_error *err);

/* What an option is to a composition. The values are part of the ABI: never renumbered. */
typedef enum rein_option_state {
    REIN_OPTION_IDLE = 0, /* it has no effect */
    REIN_OPTION_OFF,      /* it would have an effect, but is absent, which is allowed */
    REIN_OPTION_SET,      /* it has an effect, with the value given or published */
    REIN_OPTION_REQUIRED  /* it has an effect, no value is published, and none was given */
} rein_option_state;

/* Says what option number i (rein_option_at) is to `options`, which need not be resolved. */
REIN_API rein_option_state rein_options_state(const rein_options *options, size_t i);

/* Says whether a batch needs ref_log_probs: 1 if the composition has a KL to a reference policy. */
REIN_API int rein_options_use_reference(const rein_options *options);

/* Lists the presets: the name of number i, or NULL past the last. Static storage; thread-safe. */
REIN_API const char *rein_preset_name(size_t i);

/* Describes a preset: what `rein explain NAME` prints. The strings are static. */
typedef struct rein_preset_info {
    const char *name, *title, *source, *formula, *purpose, *note;
} rein_preset_info;

/* Describes preset `name`; NULL when there is none. Static storage; thread-safe. */
REIN_API const rein_preset_info *rein_preset_describe(const char *name);

/* One row of the gradient-bias table (docs/kl.md): the gradient that a KL term has in expectation. */
typedef struct rein_kl_bias {
    const char *form;      /* "k3 as loss" */
    const char *on_policy; /* "exact", "wrong: …" */
    const char *off_policy;
    const char *meaning; /* one plain sentence */
} rein_kl_bias;

/* Says which gradient a KL term of `options` has: the row of the i-th (reward, advantage, loss, in that order), or NULL past the
 * last. Static storage. */
REIN_API const rein_kl_bias *rein_kl_bias_of(const rein_options *options, size_t i);

/* -------------------------------------------------------------------------------------------------------------- 4. policy loss */

/* The type of token arrays. */
typedef enum rein_dtype { REIN_F64 = 0, REIN_F32 = 1 } rein_dtype;

/* One optimizer step of sampled responses, packed without padding. Token arrays have n_tokens = sequence_offsets[n_sequences] entries
 * of type `dtype`; entries at masked tokens are never read as numbers (NaN is fine there). Arrays a composition does not use may be
 * NULL. Borrowed: must stay alive and unchanged while a rein_step uses it. */
typedef struct rein_batch {
    size_t n_groups, n_sequences, n_components;
    const size_t *group_offsets;    /* [n_groups + 1] in sequences; NULL: all sequences are one group */
    const size_t *sequence_offsets; /* [n_sequences + 1] in tokens */
    rein_dtype dtype;
    const uint8_t *mask;          /* [n_tokens] 1: trains; NULL: all do */
    const void *log_probs;        /* under the policy being trained */
    const void *old_log_probs;    /* under the policy at the start of the update */
    const void *ref_log_probs;    /* under the reference policy */
    const void *sample_log_probs; /* as the sampler saw them */
    const void *entropies;        /* of the policy being trained, nats */
    const void *exact_kl; /* KL(policy‖reference) of each token's whole distribution, for kl_estimator exact and kl_reward_exact */
    const void *teacher_log_probs;   /* under a teacher, for divergence sampled */
    const void *teacher_divergence;  /* from a teacher's whole distribution, for the other divergences */
    const void *values;              /* a critic's, for gae */
    const double *rewards;           /* [n_sequences], or NULL with reward_components or advantage given */
    const double *reward_components; /* [n_sequences][n_components] row-major */
    const double *reward_weights;    /* [n_components]; NULL: all 1 */
    const double *baseline_rewards;  /* [n_sequences] for remax */
    const int64_t *response_lengths; /* [n_sequences]; NULL: the trained tokens */
    const int64_t *token_budgets;    /* [n_sequences]; NULL: the option token_budget */
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
    double kl_exact;                                    /* KL(current‖ref) over the whole vocabulary, of exact_kl */
    double teacher_divergence;                          /* of the sampled tokens log p − log q, or over the whole vocabulary */
    double entropy;
    double surrogate_loss, kl_loss, teacher_loss, entropy_loss; /* the loss is their sum */
    double tokens, trained_tokens, sequences, trained_sequences, groups;
} rein_metrics;

/* Names the metrics, for programs that read them by name: the name of the i-th double of rein_metrics ("reward"), or NULL past the
 * last. All its fields are doubles, and these are their names in order. Static storage; thread-safe. */
REIN_API const char *rein_metric_name(size_t i);

/* The result of a policy loss. */
typedef struct rein_loss {
    double loss;
    rein_metrics metrics;
    int nothing_to_train; /* 1: no trained token; the loss and every gradient are 0 */
} rein_loss;

/* Computes the policy loss of a whole step and its gradient: grad_log_probs, grad_entropies [n_tokens] (d loss / d each; 0 at masked
 * tokens) and advantages [n_tokens] (after adjustment), each of type batch->dtype or NULL. Allocates its workspace, of which up to 64
 * MB stay with the calling thread; computes twice so that outputs stay untouched on failure: a rein_step does it once. */
REIN_API rein_status rein_policy_loss(rein_loss *loss, void *grad_log_probs, void *grad_entropies, void *advantages,
                                      const rein_batch *batch, const rein_options *options, const rein_exec *exec, rein_error *err);

/* A step, prepared: advantages, normalisers, KL averages of the *whole* optimizer step, fixed before the first token's loss. */
typedef struct rein_step rein_step;

/* Says how many bytes of workspace rein_step_begin needs for this batch; 0 when the batch's shape is wrong (begin says how). */
REIN_API size_t rein_step_size(const rein_batch *batch, const rein_options *options, const rein_exec *exec);

/* Prepares a step in the caller's buffer (any alignment, at least rein_step_size bytes; the step lives there until it is reused).
 * Needs everything but log_probs and entropies; those too where a stop-gradient quantity of the whole step reads them (KL in the
 * reward or the advantage, entropy_target, top_entropy). */
REIN_API rein_status rein_step_begin(rein_step **step, void *buffer, size_t size, const rein_batch *batch,
                                     const rein_options *options, const rein_exec *exec, rein_error *err);

/* Adds the micro-batch of sequences [first, last) to the step. log_probs, entropies and the outputs are arrays of the *whole* step
 * (NULL: those of the batch, or no output). Micro-batches come in order, without gaps; however the step is cut, the bits are the same.
 * No allocation. On failure the gradients of [first, last) are set to 0 and the step cannot be continued. */
REIN_API rein_status rein_step_loss(rein_step *step, size_t first, size_t last, const void *log_probs, const void *entropies,
                                    void *grad_log_probs, void *grad_entropies, void *advantages, rein_error *err);

/* The gradient of the exact KL: grad_exact_kl = d loss / d exact_kl of the tokens of sequences [first, last), in an array of the whole
 * step; 0 at masked tokens and without kl_estimator exact. It depends on no log-prob, so that it may be asked for at any time. */
REIN_API rein_status rein_step_exact_kl_gradient(void *grad_exact_kl, const rein_step *step, size_t first, size_t last,
                                                 rein_error *err);

/* The same of a whole step without a rein_step, as rein_policy_loss has it. */
REIN_API rein_status rein_policy_loss_exact_kl_gradient(void *grad_exact_kl, const rein_batch *batch, const rein_options *options,
                                                        rein_error *err);

/* The same of teacher_divergence: 0 with divergence sampled, and without a teacher. */
REIN_API rein_status rein_step_teacher_gradient(void *grad_teacher_divergence, const rein_step *step, size_t first, size_t last,
                                                rein_error *err);
REIN_API rein_status rein_policy_loss_teacher_gradient(void *grad_teacher_divergence, const rein_batch *batch,
                                                       const rein_options *options, rein_error *err);

/* Gives the loss and the metrics of the sequences added so far. */
REIN_API rein_status rein_step_finish(rein_loss *loss, const rein_step *step, rein_error *err);

/* A step may be shared by several processes. Each begins it with the same batch, adds its own sequences, skips the others', and sends the
 * sums of what it added; one that has added the sums of all finishes the step. Gradients never depend on the cut. Loss and metrics are
 * those of one process bit for bit if
 *   - every share begins and ends at a cut (rein_step_cut): its sums may be added in any order;
 *   - or each share continues the one before it: its process adds the sums that it was sent, then its own sequences, and sends on
 *     what rein_step_sums now gives.
 * Otherwise they agree to rounding. */

/* Passes over sequences up to `last`, which another process adds. */
REIN_API rein_status rein_step_skip(rein_step *step, size_t last, rein_error *err);

/* The nearest place at or after `sequence` where a share may begin: the first sequence of a block of about 8192 tokens, or
 * n_sequences. */
REIN_API size_t rein_step_cut(const rein_step *step, size_t sequence);

/* How many numbers rein_step_sums writes. It depends only on the batch. */
REIN_API size_t rein_step_sums_length(const rein_step *step);

/* Writes everything that this step has added so far: sums [rein_step_sums_length], to be sent to other processes. */
REIN_API rein_status rein_step_sums(double *sums, const rein_step *step, rein_error *err);

/* Adds what rein_step_sums wrote for other sequences of the same batch. On failure the step is as it was. */
REIN_API rein_status rein_step_add_sums(rein_step *step, const double *sums, rein_error *err);

/* Computes the shaped rewards [n_sequences] of a batch: the `shape` and `reward_clip` of options (no KL). */
REIN_API rein_status rein_shape_rewards(double *shaped, const rein_batch *batch, const rein_options *options, rein_error *err);

/* Computes the advantages of a batch, one a token [n_tokens] in double, 0 where masked: shaped reward, KL in the reward, estimator and
 * balance, before the per-token adjustments. */
REIN_API rein_status rein_advantages(double *advantages, const rein_batch *batch, const rein_options *options, rein_error *err);

/* ------------------------------------------------------------------------------------- 5. preferences, reward models and critics */

/* The losses over preferences. The values are part of the ABI: never renumbered. */
typedef enum rein_preference {
    REIN_PREFERENCE_DPO = 0,
    REIN_PREFERENCE_CDPO,
    REIN_PREFERENCE_ROBUST,
    REIN_PREFERENCE_HINGE,
    REIN_PREFERENCE_IPO_MEAN,
    REIN_PREFERENCE_IPO_SUM,
    REIN_PREFERENCE_SIMPO,
    REIN_PREFERENCE_CPO,
    REIN_PREFERENCE_ORPO,
    REIN_PREFERENCE_KTO
} rein_preference;

/* The constants of a preference loss. NaN: not given. A given constant that the loss does not have is an error, and so is a missing one. */
typedef struct rein_preference_options {
    rein_preference loss;
    double beta;               /* above 0; every loss has it */
    double label_smoothing;    /* share of wrong labels: cdpo 0 to 1/2; robust 0 to below 1/2 */
    double simpo_gamma;        /* simpo: the margin of the reward */
    double cpo_alpha;          /* cpo: weight of the log-likelihood of the chosen completion; 0 or more */
    double desirable_weight;   /* kto; 0 or more */
    double undesirable_weight; /* kto; 0 or more */
} rein_preference_options;

/* Describes a preference loss. */
typedef struct rein_preference_info {
    const char *name, *title, *formula, *source, *note; /* "dpo", … */
    rein_preference loss;
    int uses_reference, uses_lengths; /* 1: it needs the log-probs of the reference; the lengths */
} rein_preference_info;

/* Lists the preference losses: number i, or NULL past the last; and the one of a name, or NULL. Static storage; thread-safe. */
REIN_API const rein_preference_info *rein_preference_at(size_t i);
REIN_API const rein_preference_info *rein_preference_describe(const char *name);

/* The published constants of a loss: NaN for those that it does not have and for those that have no published value (the
 * label_smoothing of cdpo and robust). */
REIN_API rein_preference_options rein_preference_published(rein_preference loss);

/* Checks the constants as the losses do: what is missing, out of range, or has no effect. err->field is the constant. */
REIN_API rein_status rein_preference_check(const rein_preference_options *options, rein_error *err);

/* Pairs of completions of the same prompt, one number a pair. Log-probs are sums over the tokens of a completion, its end token included;
 * lengths are the numbers of these tokens, 1 or more. What a loss does not use may be NULL, and is not read. */
typedef struct rein_pairs {
    size_t n;
    const double *chosen_log_probs, *rejected_log_probs;
    const double *ref_chosen_log_probs, *ref_rejected_log_probs;
    const int64_t *chosen_lengths, *rejected_lengths;
} rein_pairs;

/* Metrics as TRL names them, u = log-prob − reference: means over pairs of beta·u (ipo_mean included), of beta·s where there is no
 * reference, and of beta·s/length for simpo and orpo. NaN where there is no such completion (kto). */
typedef struct rein_preference_metrics {
    double rewards_chosen, rewards_rejected, rewards_margins, rewards_accuracies, logps_chosen, logps_rejected;
} rein_preference_metrics;

/* Computes a loss over pairs, the mean of their losses, and its gradient by each log-prob [n] (or NULL). n >= 1. Not for kto. The formulas
 * are those of rein_preference_at; log-probs that differ by 1,000 nats give finite results. orpo needs log-probs below 0. */
REIN_API rein_status rein_preference_loss(double *loss, double *grad_chosen_log_probs, double *grad_rejected_log_probs,
                                          rein_preference_metrics *metrics, const rein_pairs *pairs,
                                          const rein_preference_options *options, rein_error *err);

/* Computes the loss of KTO, the mean over n >= 1 completions of which each is desirable (labels 1) or not (0), and its gradient [n] (or
 * NULL). kl is the mean of log-prob − reference over mismatched pairs, before max(0, ·); nothing is differentiated through it.
 * `chosen` in the metrics is the desirable completions; rewards_accuracies is NaN. */
REIN_API rein_status rein_kto_loss(double *loss, double *grad_log_probs, rein_preference_metrics *metrics, const double *log_probs,
                                   const double *ref_log_probs, const uint8_t *labels, size_t n, double kl,
                                   const rein_preference_options *options, rein_error *err);

/* Computes the Bradley–Terry loss of a reward model, the mean over n >= 1 pairs of −log σ(r_w − r_l − m) + c·(r_w + r_l)², its gradient by
 * each reward [n] (or NULL), and the share of pairs with r_w > r_l (or NULL). margins m [n] or NULL: 0; c, which centres the rewards, is
 * 0 or more. */
REIN_API rein_status rein_reward_loss(double *loss, double *grad_chosen_rewards, double *grad_rejected_rewards, double *accuracy,
                                      const double *chosen_rewards, const double *rejected_rewards, const double *margins, size_t n,
                                      double center_rewards_coefficient, rein_error *err);

/* Computes the loss of a critic, ½·mean max((V − G)², (clip(V, V_old ± c) − G)²) over trained tokens, and its gradient [n] (or NULL; 0 where
 * masked). G are the returns; value_clip c is 0 or more, INFINITY for no clipping. mask [n] or NULL (all train); masked entries are not
 * read. *trained (or NULL) is the number of trained tokens; without any, loss and gradient are 0. n >= 1. */
REIN_API rein_status rein_value_loss(double *loss, size_t *trained, double *grad_values, const double *values,
                                     const double *old_values, const double *returns, const uint8_t *mask, size_t n,
                                     double value_clip, const rein_exec *exec, rein_error *err);
REIN_API rein_status rein_value_loss_f32(double *loss, size_t *trained, float *grad_values, const float *values,
                                         const float *old_values, const float *returns, const uint8_t *mask, size_t n,
                                         double value_clip, const rein_exec *exec, rein_error *err);

#ifdef __cplusplus
}
#endif
#endif
