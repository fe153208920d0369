/* train.h - from trajectories to a better policy: the optimizer, trajectory groups, runs, and the trainer that composes them.
 *
 * Results depend neither on the number of threads, nor on the instruction set, nor on how work is cut into pieces, bit for bit. */
#ifndef REIN_TRAIN_H
#define REIN_TRAIN_H

#include "rein/model.h"
#include "rein/objective.h"
#include "rein/ranks.h"
#include "rein/rollout.h"
#include "rein/tokenizer.h"
#include "rein/trajectory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------------- 1. optimizer */

/* Boundary of sections 1 and 2: plain float arrays that the caller owns. Every function is thread-safe as long as no two calls share an
 * array, keeps nothing after it returns, allocates nothing, and on failure leaves everything as it was. */

/* Zero is literal: max_gradient_norm = 0 does not clip, weight_decay = 0 does not decay. torch.optim.AdamW has 0.9, 0.999, 1e-8 and
 * 0.01 for the middle four. */
typedef struct rein_adamw {
    double learning_rate;     /* 0 to 1e6 */
    double beta1, beta2;      /* 0 <= beta < 1 */
    double epsilon;           /* above 0, as a float too */
    double weight_decay;      /* 0 or more; learning_rate·weight_decay is at most 1 */
    double max_gradient_norm; /* 0: no clipping; else gradients whose norm is larger are scaled down to it */
} rein_adamw;

/* Makes one step of AdamW (Loshchilov & Hutter 2019, decoupled decay), in float, in the order of operations of torch.optim.AdamW
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

/* ---------------------------------------------------------------------------------------------------- 3. files of trajectory groups */

/* Reads a file of groups and appends them. It has JSON lines, one group each, in rein's exact form or in that of ART's JSONL
 * (docs/trajectories.md). The tokenizer (NULL: only the exact form can be read) turns messages into ids, in the given chat format
 * (NULL: that of the tokenizer's own template). Only what a Choice says was sampled trains. A turn that the template writes
 * differently in the context of the next one (without its thinking, for example) begins a new history, so that every trained token
 * follows what the model saw. Missing log-probs are NaN; a missing reward is an error, as is a line without a trajectory. Errors
 * name file, line and JSON path: REIN_EINVAL, REIN_EIO for a file that cannot be read, REIN_ENOMEM. On failure the groups are as
 * they were. Thread-safe. */
REIN_API rein_status rein_groups_read(rein_groups *groups, const char *path, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                      rein_error *err);

/* Reads groups from a text in memory, which need not outlive the call. Errors name it `name`. */
REIN_API rein_status rein_groups_from_memory(rein_groups *groups, const char *text, size_t length, const char *name,
                                             const rein_tokenizer *tokenizer, const rein_chat *chat, rein_error *err);

struct rein_json; /* json.h */

/* Reads groups from a JSON array of objects, each as a line of a file has it; those without a trajectory, in which every rollout failed, are
 * skipped. The field of an error begins with `name`: "NAME[3].trajectories[0].reward". */
REIN_API rein_status rein_groups_from_json(rein_groups *groups, const struct rein_json *list, const char *name,
                                           const rein_tokenizer *tokenizer, const rein_chat *chat, rein_error *err);

/* Checks whether a model can train on groups: it must have their ids and enough positions. The field of an error begins with `name`. */
REIN_API rein_status rein_groups_fit(const rein_groups *groups, const rein_model *model, const char *name, rein_error *err);

/* How groups are written. The values are part of the ABI: never renumbered. */
typedef enum rein_groups_form {
    /* Token ids. Reading it back gives the same ids, mask, recorded log-probs (rein_history_recorded, as log_probs), values and rewards,
     * bit for bit. Other arrays do not return. */
    REIN_GROUPS_EXACT = 0,
    REIN_GROUPS_ART = 1 /* messages as they were read, with the current rewards: for trajectories that were read from messages */
} rein_groups_form;

/* Writes groups to a file, one line each; the file appears whole or not at all. Keys that were read and have no field (metadata, logs and
 * others) are written again. Thread-safe for different paths. */
REIN_API rein_status rein_groups_write(const char *path, const rein_groups *groups, rein_groups_form form, rein_error *err);

/* What is in groups. A length is the number of trained tokens of a trajectory. */
typedef struct rein_groups_summary {
    size_t groups, trajectories, histories, tokens, trained_tokens;
    size_t log_probs_missing; /* of trained tokens */
    size_t truncated;         /* trajectories, as all below */
    size_t untrained;         /* without a token that trains */
    size_t all_trained;       /* in which all tokens train but the first, which cannot: they have next to no prompt */
    size_t length_min, length_max;
    double length_mean;
    double reward_min, reward_max, reward_mean, reward_std; /* over all trajectories; the deviation divides by their number */
    size_t single_groups;                                   /* of one trajectory */
    size_t equal_groups;                                    /* of several whose rewards are all the same */
    int64_t policy_step_min, policy_step_max;               /* of those known; -1: none is */
    size_t policy_step_unknown;
} rein_groups_summary;

/* Counts what is in groups. Without groups everything is 0, the policy steps -1. Thread-safe. */
REIN_API rein_groups_summary rein_groups_summarise(const rein_groups *groups);

/* What a user should know before anything trains. The values are part of the ABI: added to, never renumbered. */
typedef enum rein_groups_warning {
    REIN_GROUPS_NOTHING_TRAINS = 1,   /* in all of it, or in some trajectories */
    REIN_GROUPS_ALL_TRAINS = 2,       /* prompts of one token are rare: is the mask right? */
    REIN_GROUPS_EQUAL_REWARDS = 4,    /* in every group: an advantage within the group is 0 */
    REIN_GROUPS_SINGLE = 8,           /* groups of one: there is nothing to compare with */
    REIN_GROUPS_NO_LOG_PROBS = 16,    /* some are missing: the current policy computes them */
    REIN_GROUPS_SEVERAL_POLICIES = 32 /* trajectories were sampled by policies of different steps */
} rein_groups_warning;

/* Tells which warnings apply, or-ed. Thread-safe, as is the next. */
REIN_API unsigned rein_groups_warnings(const rein_groups_summary *summary);

/* Writes one of them as a sentence with its numbers, without a full stop, into text [size]; returns text. 200 bytes are enough. */
REIN_API const char *rein_groups_warning_text(char *text, size_t size, rein_groups_warning warning,
                                              const rein_groups_summary *summary);

/* --------------------------------------------------------------------------------------------------------------------- 4. runs */

/* The directory of a run (docs/runs.md), open: checkpoints that appear whole or not at all, and a history of whole lines. One thread at a
 * time; in other processes any number of readers, also beside a writer. */
typedef struct rein_run rein_run;

/* The values are part of the ABI: they are added to, never renumbered. */
typedef enum rein_run_access {
    REIN_RUN_READ = 0,   /* an existing run, to look at; nothing is changed, nothing locked */
    REIN_RUN_CREATE = 1, /* a new run, to write: the directory is made; if it is there, it must be empty */
    REIN_RUN_RESUME = 2  /* resumes an existing run, or creates a new one */
} rein_run_access;

/* Opens the directory of a run. The path is copied. A run that is open for writing is locked: for others REIN_EIO, "RUN is being
 * written by process 4711". The lock ends with the process, however it ends. Opening for writing also clears away what a writer
 * that was stopped left behind. The caller closes *run; it is NULL on failure. REIN_EINVAL: the directory is not a run, or not a
 * new one; REIN_EIO; REIN_ESYSTEM; REIN_ENOMEM. */
REIN_API rein_status rein_run_open(rein_run **run, const char *directory, rein_run_access access, rein_error *err);

/* Closes a run. NULL is fine. */
REIN_API void rein_run_close(rein_run *run);

/* Tells whether the directory holds a run that was started, which has a config.yaml: 1 or 0. Thread-safe. */
REIN_API int rein_run_exists(const char *directory);

/* What opening repaired, as a sentence without a full stop; "" when there was nothing to repair. It belongs to the run. */
REIN_API const char *rein_run_note(const rein_run *run);

/* Counts the checkpoints that there were when the run was opened (with what was written and deleted through this handle since),
 * good or not. *steps (or NULL) are their steps, ascending; they belong to the run and change with it. */
REIN_API size_t rein_run_checkpoints(const int64_t **steps, const rein_run *run);

/* Checks that a step has a checkpoint, good or not, which the setting `field` names (NULL: no setting). REIN_EINVAL: it has none, and the
 * message lists the steps that have one. */
REIN_API rein_status rein_run_check_step(const rein_run *run, int64_t step, const char *field, rein_error *err);

/* Writes the directory of a checkpoint, whether it exists or not, into path[size] if it fits with its 0. Returns its length. */
REIN_API size_t rein_run_checkpoint_path(char *path, size_t size, const rein_run *run, int64_t step);

/* Checks whether a checkpoint is what was written: every file of its MANIFEST is there, with its size and hash. REIN_EINVAL: it is
 * not, and the message says what is wrong; REIN_EIO, REIN_ESYSTEM: that cannot be checked now (permissions, too many open files);
 * REIN_ENOMEM. */
REIN_API rein_status rein_checkpoint_verify(const rein_run *run, int64_t step, rein_error *err);

/* Finds the newest checkpoint that verifies; -1 if the run has none at all. `note` tells what was wrong with the newer ones, or is
 * "". If there are checkpoints and none of them is good, that is an error, REIN_EINVAL. */
enum { REIN_NOTE_SIZE = 500 };
REIN_API rein_status rein_run_last_good(int64_t *step, char note[REIN_NOTE_SIZE], const rein_run *run, rein_error *err);

/* ----------------------------------------------------------------------------------------------------------------- 5. training */

/* Trains an adapter, or all weights of a model that was opened to train. One thread at a time; nothing else may use the policy during a
 * call. */
typedef struct rein_trainer rein_trainer;

typedef struct rein_trainer_options {
    double temperature; /* of the policy, above 0 */
    /* Gradients are summed in this many parts, by the index of the group, and the parts by one fixed tree, so that ranks can take
     * over whole parts. 0: 16 for an adapter, 1 for all weights. A new run in which all weights train sets 8. */
    size_t shards;
    size_t share_limit; /* histories of a micro-batch, which share their prompt; 0: 16. It changes the bits of the result */
    int no_sharing;     /* 1: the prompt is computed for every history; changes the last bits of the gradient */
    int recompute;      /* 1: activations are computed again when they are needed, for less memory */
    rein_exec exec;
    /* That of the generator, opened with the same recompute, or NULL. It must outlive the trainer. */
    const rein_activation_cache *activation_cache;
} rein_trainer_options;

/* Opens a trainer. model and adapter (NULL: all weights train) must outlive it. The caller closes *trainer; it is NULL on failure. */
REIN_API rein_status rein_trainer_open(rein_trainer **trainer, rein_model *model, rein_adapter *adapter,
                                       const rein_trainer_options *options, rein_error *err);

/* Closes a trainer. NULL is fine. */
REIN_API void rein_trainer_close(rein_trainer *trainer);

typedef struct rein_pass_options {
    const rein_options *objective;    /* NULL: REINFORCE; its token_budget is for trajectories without a budget */
    const rein_policy *reference;     /* for KL; NULL: none. It may be the policy itself */
    const float *reference_log_probs; /* [tokens of all histories, in order] or NULL: computed with `reference` */
    const float *old_log_probs;       /* the same, or NULL: the recorded ones, or those of the current policy */
    int64_t policy_step; /* of the current policy: recorded log-probs of its own samples are compared with it; -1: they are not */
    int mask_truncated_completions; /* 1: truncated trajectories do not train, but count in the baseline */
    /* 1: every recorded log-prob is that of the current policy, bit for bit, since it has just sampled the groups, so the
     * forward pass that would compute them is skipped; a gap is an error. */
    int recorded_are_current;
    /* [tokens of all histories, in order]: becomes the advantage that the loss used, 0 where nothing trains. NULL: not wanted. */
    float *advantages;
    double temperature; /* of the policy in this pass; 0: that of the trainer */
    /* The policy is truncated, as the sampler was: rein_forward_options. The reference is not. Not with an exact KL. NULL: it is not. */
    const rein_truncation *truncation;
    /* A loss over preferences in place of the objective's. Each group is a pair, the chosen trajectory and then the rejected one; for kto any
     * number of completions of one prompt, desirable where the reward is above 0. A loss with a reference needs `reference_log_probs` or
     * `reference`. NULL: the objective. */
    const rein_preference_options *preference;
    double preference_kl; /* of kto: the mean of log-prob − reference over mismatched pairs */
    /* For advantage gae: a critic's values [tokens of all histories, in order] in place of those that the histories have. NULL: these. */
    const float *values;
    /* Advantages [tokens of all histories, in order] in place of an estimator, as those of a critic over a whole step of which the groups are
     * a part; the rewards [trajectories, in order] are shaped already, and there is no KL in the reward. NULL, both: they are estimated. */
    const float *given_advantages;
    const double *shaped_rewards;
    const rein_policy *teacher;     /* for teacher_coef; NULL: none */
    const float *teacher_log_probs; /* as reference_log_probs, for divergence sampled, or NULL: computed with `teacher` */
} rein_pass_options;

typedef struct rein_pass_result {
    rein_loss loss;
    int nothing_to_train; /* no token trains, or every gradient is exactly 0: the optimizer must not be called */
    /* The greatest |log-prob computed now − recorded| of this policy's own tokens; NaN: nothing to compare. Of tokens from the activation
     * cache only the head is computed now; the first micro-batch that the policy sampled is always computed whole. */
    double max_gap;
    size_t recomputed;       /* trained tokens without a recorded log-prob: that of the current policy was taken */
    size_t reference_tokens; /* that went through the reference: 0 when nothing needs it */
    size_t cached_tokens;    /* taken from the activation cache; a prompt counts once for all that share it */
    double seconds_reference, seconds_forward, seconds_backward;
    rein_preference_metrics preference; /* with a loss over preferences */
} rein_pass_result;

/* Adds the gradient of the groups' loss to that of the trainer. The whole of `groups` is one optimizer step: normalisers and
 * averages are over all of it. Old log-probs are the recorded ones; with a `mismatch` correction, or where none were recorded,
 * those of the policy at the beginning of the call. On failure the gradient of the trainer is 0. */
REIN_API rein_status rein_trainer_forward_backward(rein_pass_result *pass, rein_trainer *trainer, const rein_groups *groups,
                                                   const rein_pass_options *options, rein_error *err);

/* Computes the log-prob of every trained token under the policy, or under `policy` if not NULL: log_probs [tokens of all histories,
 * in order], 0 where nothing trains. entropies the same, or NULL. */
REIN_API rein_status rein_trainer_log_probs(float *log_probs, float *entropies, rein_trainer *trainer, const rein_policy *policy,
                                            const rein_groups *groups, rein_error *err);

/* Computes the score of every token in the mask under the policy, or under `policy` if not NULL, which has a score head: scores [tokens of all
 * histories, in order], 0 elsewhere; `before` as in rein_score_options. A critic's values of the trained tokens are those with before 1. */
REIN_API rein_status rein_trainer_scores(float *scores, rein_trainer *trainer, const rein_policy *policy, const rein_groups *groups,
                                         int before, rein_error *err);

/* Makes one step of AdamW with the gradient of the trainer, which becomes 0. *gradient_norm (or NULL) is before clipping. If an option is
 * wrong the gradient stays as it was, and the call can be repeated. */
REIN_API rein_status rein_trainer_optim_step(double *gradient_norm, rein_trainer *trainer, const rein_adamw *adamw,
                                             rein_error *err);

/* Steps of the optimizer so far. */
REIN_API int64_t rein_trainer_steps(const rein_trainer *trainer);

/* Saves the policy (an adapter as PEFT does, or the model) and optimizer.safetensors in an existing directory; and loads the
 * weights and the state of the optimizer. A trainer that loads what was saved continues bit for bit. */
REIN_API rein_status rein_trainer_save(const rein_trainer *trainer, const char *directory, rein_error *err);
REIN_API rein_status rein_trainer_load(rein_trainer *trainer, const char *directory, rein_error *err);

/* ----------------------------------------------------------------------------------------------------------------- 6. settings */

/* Everything a run is made with. The names are those of the command line (--lora-rank), of YAML and of Python. A setting that has
 * no effect, or that contradicts another, is an error when a run begins.
 *
 * A handle: the caller frees it. Any number of threads may read one at the same time; only one may change it. Texts have any length. */
typedef struct rein_settings rein_settings;

/* Makes the default settings. The caller frees *settings, which is NULL on failure. */
REIN_API rein_status rein_settings_new(rein_settings **settings, rein_error *err);

/* Makes an independent copy. The caller frees *copy, which is NULL on failure. */
REIN_API rein_status rein_settings_copy(rein_settings **copy, const rein_settings *settings, rein_error *err);

/* Frees settings. NULL is fine. */
REIN_API void rein_settings_free(rein_settings *settings);

/* Describes one setting. */
typedef struct rein_setting_info {
    const char *name;  /* "lora_rank" */
    const char *value; /* what it takes: "N", "X", "TEXT", "DIR", "yes|no", "constant|linear|cosine" */
    const char *stage; /* "policy", "optimizer", "reference", "engine", "run"; for the loop: "task", "rollout", "evaluation" */
    const char *help;  /* one line */
} rein_setting_info;

/* Setting number i, or NULL past the last; rein_option_at lists the options of the objective. Static storage; thread-safe. */
REIN_API const rein_setting_info *rein_setting_at(size_t i);

/* 1 if the setting has several values ("stop", "reward"): rein_settings_set takes all of them at once, one per line. Thread-safe. */
REIN_API int rein_setting_is_list(const char *name);

/* Sets one value from text: of a setting, of "preset", or of an option of the objective (rein_options_set; its aliases too). A preset must
 * come before the options that change it. An unknown name is an error that suggests the nearest. On failure the settings stay as they were;
 * err->field is the name. */
REIN_API rein_status rein_settings_set(rein_settings *settings, const char *name, const char *value, rein_error *err);

/* Appends the value of a setting, of "preset" or of an option as text that reads back as the same; nothing where there is no value. */
REIN_API rein_status rein_settings_get(rein_text *value, const rein_settings *settings, const char *name, rein_error *err);

/* The value of a text setting, of "preset" or of a choice; "" where there is none, or where the name is not one of these. It belongs to the
 * settings and lives until that value changes. */
REIN_API const char *rein_settings_text(const rein_settings *settings, const char *name);

/* The value of a numeric setting or option; a yes|no setting is 1 or 0. NaN where there is none, or where the name is not one of these. */
REIN_API double rein_settings_number(const rein_settings *settings, const char *name);

/* 1 if the setting, or the option of the objective, was set by that name. */
REIN_API int rein_settings_given(const rein_settings *settings, const char *name);

/* The options of the objective. They belong to the settings and change with them. */
REIN_API const rein_options *rein_settings_objective(const rein_settings *settings);

/* Where work runs: the setting "threads", and the instruction set, which has no name. Neither is part of a result. */
REIN_API rein_exec rein_settings_exec(const rein_settings *settings);
REIN_API void rein_settings_set_isa(rein_settings *settings, rein_isa isa);

/* The ranks that share the work of a session or a loop opened with these settings; NULL, the default: there is one. They must outlive it, and
 * every rank calls the functions of the session or the loop in the same order with equal arguments. Rank 0 writes the run, whose directory all
 * ranks must see. Results are those of one rank, bit for bit. If a call fails on one rank, it fails on all. Several ranks cannot revert a
 * session, change its settings or delete its checkpoints. */
REIN_API void rein_settings_set_ranks(rein_settings *settings, rein_ranks *ranks);

/* Says that the loss needs a reference policy although the objective has no KL, as losses over pairs do: the settings that choose one
 * have an effect. It has no name and is not written. */
REIN_API void rein_settings_use_reference(rein_settings *settings, int uses);

/* Says that the groups will be pairs (or labelled completions) for this loss, as rein_train_options.preference says at each step: a reference
 * has an effect if the loss has one, and keep_best may name a metric of pairs. NULL: they are not. It has no name and is not written. */
REIN_API void rein_settings_use_preference(rein_settings *settings, const rein_preference_info *loss);

/* Says that the policy is a reward model: it has a score head (that of the model, or a new one), and trains with the loss of
 * rein_train_options.reward_model. It has no name and is not written: whoever resumes the run says it again. */
REIN_API void rein_settings_use_score(rein_settings *settings, int uses);

/* What a caller allows for once. It has no name and is not written. */
typedef enum rein_allowance {
    /* A file of the run (model, adapter, task, data) is not what it was: the next checkpoint records what it is now. */
    REIN_ALLOW_CHANGED = 1,
    /* The run was not made here by this user, and its tasks or rewards are commands: they may run. */
    REIN_ALLOW_COMMANDS = 2
} rein_allowance;

/* Sets what is allowed: 0, or values of rein_allowance added up. */
REIN_API void rein_settings_allow(rein_settings *settings, unsigned allowed);

/* Sets every key of a YAML file: one mapping of names to values, or to lists of values. Errors name the file and the line. On failure the
 * settings stay as they were. */
REIN_API rein_status rein_settings_read(rein_settings *settings, const char *path, rein_error *err);

/* Writes the settings that differ from their defaults, and those that were given, so that reading gives the same. */
REIN_API rein_status rein_settings_write(const rein_settings *settings, const char *path, rein_error *err);

/* Applies what was given in `now` to the settings of a run that resumes. A preset replaces the objective, and the options given with it
 * change that. The settings that made the policy (model, adapter, lora_*, full, seed, shards, share_limit, no_sharing) cannot change:
 * REIN_EINVAL. But the paths of model and adapter may, as files can move; a session checks that the files are the same. */
REIN_API rein_status rein_settings_change(rein_settings *settings, const rein_settings *now, rein_error *err);

/* The same for a fork (rein_session_fork), a new run that starts from a checkpoint of the run with these settings: seed and engine may
 * change, the policy (model, adapter, lora_*, full) may not. kl_penalty_reference_step names a checkpoint of the old run: where it is set,
 * `now` must give it again. */
REIN_API rein_status rein_settings_fork(rein_settings *settings, const rein_settings *now, rein_error *err);

/* Checks what can be wrong with several settings together: contradictions, and given settings that have no effect. */
REIN_API rein_status rein_settings_check(const rein_settings *settings, rein_error *err);

/* What a checkpoint is used for. The values are part of the ABI. */
typedef enum rein_run_part { REIN_RUN_POLICY = 1, REIN_RUN_TASK = 2 } rein_run_part;

/* Checks whether a checkpoint, which was verified, can be used now: its format and its step, and that the files which the settings
 * name are those that the run was made with: model and adapter for its policy; task, eval_task and the commands of rewards for its
 * task (`parts`: one or both). `settings` are those of the run, changed by `given`; what was given is not compared. For a task it
 * also checks whether the run was made here by this user, if it has commands. REIN_EINVAL names what is not as it was;
 * rein_settings_allow(given, …) allows it. */
REIN_API rein_status rein_run_check(const rein_run *run, int64_t step, const rein_settings *settings, const rein_settings *given,
                                    unsigned parts, rein_error *err);

/* Where the files of a policy are. Everything belongs to it; the caller frees it. */
typedef struct rein_policy_files {
    char *model;               /* the directory of the model */
    char *adapter;             /* that of its adapter; NULL: none */
    char *run;                 /* the directory of the run; NULL: the policy is a model */
    char *quantize;            /* how the run opens the model: rein_model_options; NULL: as it is stored */
    int64_t step;              /* of the run; -1: none */
    double temperature;        /* of the run at that step; 1 for a model */
    char note[REIN_NOTE_SIZE]; /* what was wrong with newer checkpoints, or that the model changed since; or "" */
} rein_policy_files;

/* Finds a policy by name: the directory of a model, RUN (its newest good checkpoint) or RUN@STEP. The checkpoint is verified; no model is
 * opened. On failure *files is empty: REIN_EINVAL, REIN_EIO, REIN_ENOMEM. Thread-safe. */
REIN_API rein_status rein_policy_find(rein_policy_files *files, const char *name, rein_error *err);

/* Frees them. Harmless on those of a failed rein_policy_find. */
REIN_API void rein_policy_files_free(rein_policy_files *files);

/* Writes one archive of a run, RUN or RUN@STEP, to send to others: a tar file with config.yaml, history, evaluations, summary and
 * report, and the adapter (or the model, if all weights trained) of that step, without the optimizer. It appears whole or not at
 * all; the same run gives the same bytes. Thread-safe for different paths. */
REIN_API rein_status rein_run_bundle(const char *path, const char *run, rein_error *err);

/* What a run is estimated to need in memory, in bytes. A part that it does not have is 0. The files of the model are mapped as well; the
 * system can drop these pages, so they do not count. */
typedef struct rein_memory_use {
    size_t weights;          /* the model, packed for products; if all weights train also their f32 values */
    size_t keys;             /* keys and values of the sequences that are sampled at once */
    size_t step;             /* a step of the sampler: activations of a layer, logits */
    size_t activation_cache; /* of what sampling computed, for training */
    size_t gradients;
    size_t optimizer;   /* parameters of the adapter, and both moments of AdamW */
    size_t activations; /* of the largest micro-batch, forward and backward */
    size_t reference;   /* other models: the reference of a run in which all weights train, a teacher, reward models */
    size_t critic;      /* its gradients, optimizer and activations, and its model unless it has that of the policy */
    size_t program;     /* the tokenizer, and the rest */
    size_t total;
} rein_memory_use;

typedef enum rein_memory_parts {
    REIN_MEMORY_SAMPLING = 1,
    REIN_MEMORY_TRAINING = 2,
    REIN_MEMORY_RUN = 3 /* both, as rein_loop does */
} rein_memory_parts;

/* Estimates memory from the settings, config.json and the types of the tensors, before anything is allocated. The settings that count are
 * model, full, lora_rank, lora_modules, prompts, samples, max_tokens, activation_cache, share_limit, no_sharing, shards, recompute, threads
 * and, for a reference, those of a KL. prompt_tokens is the length of the longest prompt. Sums that would not fit become SIZE_MAX / 2.
 * Thread-safe. */
REIN_API rein_status rein_memory_estimate(rein_memory_use *use, const rein_settings *settings, rein_memory_parts parts,
                                          size_t prompt_tokens, rein_error *err);

/* ----------------------------------------------------------------------------------------------------------------- 7. sessions */

/* A run being trained: policy, optimizer, reference, checkpoints, history. One thread at a time; one session a run. */
typedef struct rein_session rein_session;

/* Begins a run in a directory that is new or empty, and writes its checkpoint 0; or resumes a run from its last good checkpoint,
 * with its own settings and those given now. Settings that made the policy (model, adapter, lora_*, full, seed, shards,
 * share_limit, no_sharing) cannot change. Everything is checked before anything is written: this is rein_session_prepare, then
 * rein_session_begin. The caller closes *session; it is NULL on failure. */
REIN_API rein_status rein_session_open(rein_session **session, const char *directory, const rein_settings *settings,
                                       rein_error *err);

/* Where a fork begins: checkpoint number `step` of the run in a directory. */
typedef struct rein_fork {
    const char *run;
    int64_t step;
} rein_fork;

/* Begins a run in a directory that is new or empty from a checkpoint of another run, policy and optimizer, with the settings of
 * that run and those given now (rein_settings_fork). The checkpoint is verified and copied as step 0; its state.json has
 * "forked_from". From then on it is a run like any other. Everything is checked before anything is written. The caller closes
 * *session; it is NULL on failure. */
REIN_API rein_status rein_session_fork(rein_session **session, const char *directory, const rein_fork *from,
                                       const rein_settings *settings, rein_error *err);

/* Checks a run before anything is written: resolves the settings, checks the directory, opens the model, the adapter and the reference, and
 * checks the fork (from NULL: none) and the checkpoint of the reference. Errors name the setting (err->field). Until rein_session_begin the
 * session can be asked for its settings and its model, check groups, and be closed. The caller closes *session; it is NULL on failure. */
REIN_API rein_status rein_session_prepare(rein_session **session, const char *directory, const rein_fork *from,
                                          const rein_settings *settings, rein_error *err);

/* Sets total_steps of a prepared session, for callers who know the number only after reading their data with the model's tokenizer. */
REIN_API rein_status rein_session_set_total_steps(rein_session *session, int64_t steps, rein_error *err);

/* Names a file that the caller of a prepared session trains with, such as supervised data. The run keeps its size and hash under `name`. An
 * existing run refuses a file that is not what it was (REIN_EINVAL), unless rein_settings_allow allows it. */
REIN_API rein_status rein_session_add_file(rein_session *session, const char *name, const char *path, rein_error *err);

/* Sets the form that the reward model of a prepared session is saved with. */
REIN_API rein_status rein_session_set_reward_form(rein_session *session, const rein_reward_form *form, rein_error *err);

/* Gives a prepared session a text to keep in the run as the file `name`. It is written whenever the settings are, and before them:
 * a run that has settings has it. Both are copied; a second text takes the place of the first. */
REIN_API rein_status rein_session_keep_text(rein_session *session, const char *name, const char *text, rein_error *err);

/* Begins or resumes the run of a prepared session: from here on it is written. After a failure the session can only be closed. The settings
 * of an existing run are written when the first thing is done with them: a step, or an evaluation. */
REIN_API rein_status rein_session_begin(rein_session *session, rein_error *err);

/* Checks whether a step can be made of groups: the model must have their ids and enough positions, and the objective must make a loss of
 * them. No forward pass is made; *loss has what is known without one: rewards after shaping, for example. `name`, such as that of a file,
 * stands before errors about the groups themselves. Works before and after rein_session_begin; it changes no result. */
REIN_API rein_status rein_session_check(rein_loss *loss, const rein_session *session, const rein_groups *groups, const char *name,
                                        rein_error *err);

/* Closes a session; NULL is fine. Steps after the last checkpoint are lost, and made again when the run resumes: rein_session_save
 * keeps them. With save_steps 1, the default, every step is saved. */
REIN_API void rein_session_close(rein_session *session);

/* A note to the user, or "": what opening found wrong (a damaged checkpoint, for example); after a step, that keep_best still has
 * no metric. Lives as long as the session, as does the next. */
REIN_API const char *rein_session_note(const rein_session *session);
REIN_API const rein_settings *rein_session_settings(const rein_session *session);

/* 1 if the directory held no run when the session was prepared. */
REIN_API int rein_session_is_new(const rein_session *session);

/* The number of steps made, and the current policy, with the temperature of the next step (rein_settings_temperature). Before
 * rein_session_begin they are 0 and the policy that a new run begins with. */
REIN_API int64_t rein_session_step(const rein_session *session);
REIN_API rein_policy rein_session_policy(const rein_session *session);

/* The activation cache for the generator that samples what the session will train on. NULL if the setting activation_cache is 0. It belongs
 * to the session. */
REIN_API rein_activation_cache *rein_session_activation_cache(const rein_session *session);

typedef struct rein_session_report {
    int64_t step;         /* the one that was made */
    int nothing_to_train; /* the policy did not change */
    size_t n;
    const rein_named_number *metrics; /* [n] (docs/metrics.md); they live until the next step */
} rein_session_report;

/* How a reward model is trained. */
typedef struct rein_reward_training {
    double center_rewards_coefficient; /* 0: off; 0.01 was published */
} rein_reward_training;

/* What a step is trained with besides the groups. Everything is borrowed. */
typedef struct rein_train_options {
    double seconds_sample; /* how long sampling took, for the history; NaN: nothing was sampled */
    int own_samples; /* 1: the current policy has just sampled the groups, so that their log-probs need not be computed again */
    const rein_groups *ptx; /* supervised examples, whose loss times their rewards is added to every optimizer step; NULL: none */
    size_t ptx_batch;       /* examples of each optimizer step */
    double temperature;     /* of the policy and the reference in this step; 0: that of rein_session_policy */
    int keep_advantages; /* 1: every history gets the advantages of its tokens, in memory from malloc; rein_session_commit writes them */
    const double
        *learning_rates; /* [n_learning_rates] one for each optimizer step, epochs·minibatches of them; NULL: the settings' */
    size_t n_learning_rates;
    /* The groups are pairs, of two trajectories each: the chosen one, then the rejected one; for kto any number of completions of one prompt,
     * desirable where the reward is above 0. The loss is this one, whatever the objective, with the settings' reference
     * (rein_settings_use_reference). NULL: the objective. */
    const rein_preference_options *preference;
    /* The groups are pairs for a reward model (rein_reward_pairs_read, rein_settings_use_score), and the loss is that of rein_reward_loss. NULL:
     * they are not. */
    const rein_reward_training *reward_model;
    /* NULL, or called before every micro-batch, on the thread that trains: `share` of the step is done, 0 to 1. Not 0: the step is
     * stopped, and fails with REIN_ECANCELLED; rein_session_revert makes the session as it was. */
    int (*progress)(void *context, double share);
    void *context;
} rein_train_options;

/* Trains the policy on groups, in memory only: reference, epochs, minibatches, optimizer. The report has the metrics of the training. The
 * groups change only with keep_advantages. rein_session_commit must follow. options may be NULL: nothing was sampled. After a failure the
 * session can only be reverted or closed; the run resumes from its last checkpoint. */
REIN_API rein_status rein_session_train(rein_session_report *report, rein_session *session, rein_groups *groups,
                                        const rein_train_options *options, rein_error *err);

/* Commits the step that rein_session_train has made: counts it, and writes its trajectories, its line of the history with `more` [n_more]
 * metrics, every save_steps steps a checkpoint, and TensorBoard's events. report: that of rein_session_train, extended by `more`.
 * The names in `more` must live as long as the report. After a failure the session can only be reverted or closed. */
REIN_API rein_status rein_session_commit(rein_session_report *report, rein_session *session, const rein_groups *groups,
                                         const rein_named_number *more, size_t n_more, rein_error *err);

/* Saves the last step: writes its checkpoint, if there is none yet, and deletes those that keep_last and keep_best do not keep. It is for
 * the end of the work where save_steps is more than 1. After a failure (a full disk) the run is as it was, and it may be tried again. */
REIN_API rein_status rein_session_save(rein_session *session, rein_error *err);

/* Returns to the last checkpoint: policy, optimizer and files are as if no step had been begun after it. For a step that failed, was
 * stopped, or is not committed. A step whose checkpoint was written before its commit failed counts:
 * rein_session_step says where the run is. After a failure of this call it may be tried again. */
REIN_API rein_status rein_session_revert(rein_session *session, rein_error *err);

/* Replaces the settings from the next step on. Settings that made the policy (as for rein_settings_change) must be those of the session,
 * and so must the rest of what only a new session can change: save_steps, recompute, threads. The file config.yaml keeps the settings that
 * the session began with. Errors name the setting; on failure the settings stay as they were. */
REIN_API rein_status rein_session_change(rein_session *session, const rein_settings *settings, rein_error *err);

/* A reward model on pairs. */
typedef struct rein_reward_evaluation {
    size_t n;
    double loss, accuracy,
        margin; /* accuracy: share of the pairs whose chosen answer has the greater reward; margin: mean difference */
    /* How far probabilities are from frequencies: with p = σ(chosen − rejected) and the confidence max(p, 1 − p) of a pair, the mean of
     * |accuracy − mean confidence| over 10 equal bins of confidence from ½ to 1, weighted by their pairs. */
    double calibration_error;
} rein_reward_evaluation;

/* Evaluates the current policy of a reward model, also between rein_session_train and rein_session_commit. */
REIN_API rein_status rein_session_evaluate_rewards(rein_reward_evaluation *evaluation, rein_session *session,
                                                   const rein_groups *pairs, const rein_reward_training *how, rein_error *err);

/* How a step of distillation on supervised examples takes the policy's own completions in place of the given ones. */
typedef struct rein_own_samples {
    double share;                    /* lambda of GKD, 0 to 1: the probability that a step takes them; 1: every step */
    size_t max_new_tokens;           /* of a completion */
    const rein_tokenizer *tokenizer; /* or NULL */
    const rein_chat *chat;           /* whose turn ends a completion; NULL: none */
    int32_t end_id;                  /* that ends a completion besides those of the model; -1: none */
} rein_own_samples;

/* Draws whether the next step takes own samples; then samples a completion for each example, of which the prompt is what comes before the first
 * token that trains. *sampled has a group for each, with reward 0, or is empty: the step takes what was given. The caller frees it. *seconds is
 * how long it took, NaN where nothing was sampled. Draw and samples depend only on seed, step and the policy; all ranks get the same. */
REIN_API rein_status rein_session_own_samples(rein_groups *sampled, double *seconds, rein_session *session,
                                              const rein_groups *examples, const rein_own_samples *how, rein_error *err);

/* What became of a checkpoint that was to be deleted. The values are part of the ABI. */
typedef enum rein_deletion {
    REIN_DELETED = 0,
    REIN_DELETION_KEPT = 1, /* it is step 0, the newest, or what a reference needs */
    REIN_DELETION_MISSING = 2
} rein_deletion;

/* Deletes checkpoints of the steps [n]; what[n] says what became of each. */
REIN_API rein_status rein_session_delete(rein_deletion *what, rein_session *session, const int64_t *steps, size_t n,
                                         rein_error *err);

/* ---------------------------------------------------------------------------------------------------------- 8. supervised data */

/* Reads preference data and appends its pairs: groups of two trajectories, the chosen one (reward 1) and the rejected one (reward 0).
 * JSON lines, or one array in a file *.json: {"prompt", "chosen", "rejected"} as texts or as lists of messages; without a prompt, what both
 * answers begin with is the prompt. The tokens of the answers train, with the end of the turn or the end token (end_id; -1: none).
 * `positions` is how many tokens the model has room for (0: any number). Errors name the line: equal answers, an empty one, a prompt that
 * leaves no room. Otherwise as rein_sft_read. */
REIN_API rein_status rein_pairs_read(rein_groups *groups, const char *path, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                     int32_t end_id, int64_t positions, rein_error *err);
REIN_API rein_status rein_pairs_from_memory(rein_groups *groups, const char *text, size_t length, const char *name,
                                            const rein_tokenizer *tokenizer, const rein_chat *chat, int32_t end_id,
                                            int64_t positions, rein_error *err);

/* The same for a reward model: each answer is one history, what the chat template renders of prompt and answer, or (texts) both as one text with
 * end_id (-1: none) behind it; its last token, which is scored, is alone in the mask. "margin", a number, is a metric of the chosen one of that
 * name (REIN_MARGIN). */
#define REIN_MARGIN "margin"
REIN_API rein_status rein_reward_pairs_read(rein_groups *groups, const char *path, const rein_tokenizer *tokenizer,
                                            const rein_chat *chat, int32_t end_id, int64_t positions, rein_error *err);
REIN_API rein_status rein_reward_pairs_from_memory(rein_groups *groups, const char *text, size_t length, const char *name,
                                                   const rein_tokenizer *tokenizer, const rein_chat *chat, int32_t end_id,
                                                   int64_t positions, rein_error *err);

/* Reads labelled completions, for kto, and appends each as a group of one trajectory, of reward 1 (desirable) or 0. JSON lines, or one array
 * in a file *.json: {"prompt", "completion", "label"}, prompt and completion as texts or as lists of messages, label true or false. Labels
 * that are all the same are an error. Otherwise as rein_pairs_read. */
REIN_API rein_status rein_labelled_read(rein_groups *groups, const char *path, const rein_tokenizer *tokenizer,
                                        const rein_chat *chat, int32_t end_id, int64_t positions, rein_error *err);
REIN_API rein_status rein_labelled_from_memory(rein_groups *groups, const char *text, size_t length, const char *name,
                                               const rein_tokenizer *tokenizer, const rein_chat *chat, int32_t end_id,
                                               int64_t positions, rein_error *err);

/* Reads a file of examples, JSON lines, and appends each as a group of one trajectory whose reward is 1 (docs/training.md):
 *     {"messages": [...]}                          OpenAI's chat; turns of the assistant train, with their ends (not those of "weight": 0)
 *     {"prompt": "...", "completion": "..."}       the completion trains, then end_id (-1: none); an empty prompt is the begin token
 *     {"prompt_ids": [...], "response_ids": [...]} token ids; "mask" as in trajectory groups
 * Other keys are ignored. Log-probs are NaN. REINFORCE on these, without an advantage, and the mean over tokens (no rein_options), is the
 * mean negative log-likelihood. tokenizer (NULL: only ids can be read) and chat (NULL: of the tokenizer's template) as with groups. An
 * example in which nothing trains is an error. Errors name file, line and field; on failure the groups are as they were. Thread-safe. */
REIN_API rein_status rein_sft_read(rein_groups *groups, const char *path, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                   int32_t end_id, rein_error *err);

/* Reads examples from a text in memory, which need not outlive the call. Errors name it `name`. */
REIN_API rein_status rein_sft_from_memory(rein_groups *groups, const char *text, size_t length, const char *name,
                                          const rein_tokenizer *tokenizer, const rein_chat *chat, int32_t end_id, rein_error *err);

/* Shuffles the data of an epoch: order [n] becomes a permutation of 0 … n − 1 that depends only on seed and epoch, so that a resumed run
 * sees the same order. Thread-safe. */
REIN_API void rein_shuffle(size_t *order, size_t n, uint64_t seed, uint64_t epoch);

/* ------------------------------------------------------------------------------------------------------------------ 9. the loop */

/* What sampling and rewarding need besides a policy, opened as the settings say: tokenizer, tasks, judges, chat format. One thread at a
 * time. */
typedef struct rein_task_runner rein_task_runner;

/* What settings name and the calling program has: reward functions ("function:NAME") and examples ("examples:NAME"). A run that uses them
 * can be resumed only by a program that has them too. */
typedef struct rein_task_inputs {
    const rein_reward_function *functions; /* [n_functions]; they must outlive what is opened with them */
    size_t n_functions;
    const rein_task_text *texts; /* [n_texts]; needed only while opening */
    size_t n_texts;
} rein_task_inputs;

/* Opens a task runner. It uses the settings model (for its tokenizer) and those of the task, of sampling and of evaluation, which
 * are copied. inputs may be NULL: none. The caller closes *runner; it is NULL on failure. */
REIN_API rein_status rein_task_runner_open(rein_task_runner **runner, const rein_settings *settings, const rein_model *model,
                                           const rein_task_inputs *inputs, rein_error *err);

/* Closes a task runner. NULL is fine. */
REIN_API void rein_task_runner_close(rein_task_runner *runner);

/* Samples completions of eval_prompts held-out examples, eval_samples each, or the greedy one, and rewards them. The prompts and
 * the randomness are the same every time: two evaluations differ only by their policies. exec and progress may be NULL. The caller
 * frees *groups (rein_evaluate has their figures); they are {0} on failure. */
REIN_API rein_status rein_task_runner_evaluate(rein_groups *groups, rein_task_runner *runner, const rein_policy *policy, int greedy,
                                               const rein_exec *exec, void (*progress)(void *context, size_t done, size_t all),
                                               void *context, rein_error *err);

/* What the judges' programs wrote to standard error since the last call, or "". */
REIN_API const char *rein_task_runner_log(rein_task_runner *runner);

/* A run that samples what it trains on: sample, reward, train, commit, step after step, with evaluations on held-out prompts. One thread at
 * a time. */
typedef struct rein_loop rein_loop;

/* The values are part of the ABI: they are added to, never renumbered. */
typedef enum rein_phase { REIN_PHASE_SAMPLING = 0, REIN_PHASE_TRAINING = 1, REIN_PHASE_EVALUATING = 2 } rein_phase;

typedef struct rein_loop_options {
    void (*progress)(void *context, rein_phase phase, size_t done, size_t all); /* NULL, or called during the work */
    void *context;
    /* Where a new run begins (rein_session_fork); NULL: at the model. Only rein_loop_open and rein_loop_prepare read it. */
    const rein_fork *fork;
    const rein_task_inputs *inputs; /* NULL, or reward functions and examples; read as fork is */
} rein_loop_options;

/* The chat format of a run: `chat_format`, or that of the tokenizer's own template (rein_chat_of), with the run's date. The chat borrows from
 * both. tokenizer may be NULL. REIN_END: neither gives one, and err says why; only conversations need it. Thread-safe. */
REIN_API rein_status rein_settings_chat(rein_chat *chat, const rein_settings *settings, const rein_tokenizer *tokenizer,
                                        rein_error *err);

/* The temperature of the policy after `step` steps: `temperature`, or linear from there to temperature_final at the last step.
 * Thread-safe. */
REIN_API double rein_settings_temperature(const rein_settings *settings, int64_t step);

/* Begins a run, or resumes one, bit for bit as if it had not stopped. Everything is checked before anything is written: this is
 * rein_loop_prepare, then rein_loop_begin. options may be NULL. The caller closes *loop; it is NULL on failure. */
REIN_API rein_status rein_loop_open(rein_loop **loop, const char *directory, const rein_settings *settings,
                                    const rein_loop_options *options, rein_error *err);

/* Checks a run before anything is written: what rein_session_prepare checks, and the task, its first prompts and the rewards. Until
 * rein_loop_begin the loop can only be asked for its session and its plan, and be closed. */
REIN_API rein_status rein_loop_prepare(rein_loop **loop, const char *directory, const rein_settings *settings,
                                       const rein_loop_options *options, rein_error *err);

/* What a prepared loop will do. */
typedef struct rein_loop_plan {
    size_t examples;      /* that it trains on; SIZE_MAX: endless, or not known */
    size_t held_out;      /* prompts of an evaluation, at most eval_prompts */
    int ignores_template; /* 1: the model has a chat template, and the prompts are plain texts without it */
    size_t prompt_tokens; /* of the first example */
} rein_loop_plan;
REIN_API rein_status rein_loop_describe(rein_loop_plan *plan, rein_loop *loop, rein_error *err);

/* Appends prompt number i of the first step as the model sees it, with special tokens. REIN_END: a step has fewer. */
REIN_API rein_status rein_loop_prompt(rein_text *text, rein_loop *loop, size_t i, rein_error *err);

/* Estimates the seconds of one step, without rewards and evaluations, by sampling and training on a few short completions. They are
 * thrown away. Only before rein_loop_begin. */
REIN_API rein_status rein_loop_estimate(double *seconds, rein_loop *loop, rein_error *err);

/* Begins or resumes the run of a prepared loop: from here on it is written. After a failure the loop can only be closed. */
REIN_API rein_status rein_loop_begin(rein_loop *loop, rein_error *err);

/* Closes a loop; NULL is fine. It loses what rein_session_close loses: nothing after rein_loop_finish, or with save_steps 1. */
REIN_API void rein_loop_close(rein_loop *loop);

/* The run being trained; it belongs to the loop. */
REIN_API const rein_session *rein_loop_session(const rein_loop *loop);

/* An evaluation of a step's policy on held-out prompts. */
typedef struct rein_loop_evaluation {
    int64_t step;
    rein_evaluation sampled, greedy;
    double kl;            /* to the policy of step 0 over the sampled completions, nats a token: k3, never negative */
    double kl_policy_ref; /* the same by k1, the mean of log-prob differences */
} rein_loop_evaluation;

typedef struct rein_loop_report {
    rein_session_report trained;
    int evaluated;         /* this step ended with an evaluation */
    int done;              /* there is no next step: all are made, or stop_at holds */
    const char *stopped;   /* stop_at, if it holds; else "" */
    const char *judge_log; /* what the judges' programs wrote to standard error, or "" */
} rein_loop_report;

/* Evaluates the current policy, unless that was done before or eval_prompts is 0. A run begins with an evaluation: if it was not
 * made by this call, the first step makes it. */
REIN_API rein_status rein_loop_evaluate(rein_loop *loop, rein_error *err);

/* The first evaluation of the run, and the last; NULL: there is none yet. They belong to the loop. */
REIN_API const rein_loop_evaluation *rein_loop_first(const rein_loop *loop);
REIN_API const rein_loop_evaluation *rein_loop_last(const rein_loop *loop);

/* 1 if there is no next step: all are made, or stop_at held after the last one. */
REIN_API int rein_loop_done(const rein_loop *loop);

/* stop_at, if it holds; else "". It belongs to the loop. */
REIN_API const char *rein_loop_stopped(const rein_loop *loop);

/* Makes the next step: trajectories, history, evaluation and, every save_steps steps, a checkpoint are on the disk when it returns. After a
 * failure the loop can only be closed; the run resumes from its last checkpoint. What the report points to lives until the next call. */
REIN_API rein_status rein_loop_step(rein_loop_report *report, rein_loop *loop, rein_error *err);

/* Finishes the work, whatever ended it (Ctrl-C too): saves the last step (rein_session_save) and, where there are evaluations, writes
 * RUN/summary.json: {"base", "final": {"accuracy", "accuracy_low", "accuracy_high", "mean_length", "share_over_budget"; final: "kl" too},
 * "budget", "steps", "seconds", "on_policy_max_gap"}. */
REIN_API rein_status rein_loop_finish(rein_loop *loop, rein_error *err);

/* Completions of one held-out prompt, number i, in the first evaluation and in the last. Returns 0 if there is none. The texts
 * belong to the loop. */
typedef struct rein_before_after {
    const char *prompt, *before, *after;
    int right_before, right_after;
    size_t tokens_before, tokens_after;
} rein_before_after;
REIN_API int rein_loop_sample(rein_before_after *sample, const rein_loop *loop, size_t i);

#ifdef __cplusplus
}
#endif
#endif
