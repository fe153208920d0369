/* settings.h - the settings of a run as typed fields, for the library's own sources. Private.
 *
 * Programs outside of the library hold a handle and name settings by text (rein/train.h). */
#ifndef REIN_TRAIN_SETTINGS_H
#define REIN_TRAIN_SETTINGS_H

#include "objective/options.h"
#include "rein/train.h"
#include "settings_table.h"

#define REIN_PLACE(name, ...) REIN_SETTING_PLACE_##name,
enum { REIN_SETTINGS_TABLE(REIN_PLACE) REIN_SETTING_COUNT };
#undef REIN_PLACE

/* What top_k, top_p and min_p are: the sampler's own, which a mismatch corrects, or a part of the policy. */
typedef enum rein_truncation_kind { REIN_TRUNCATION_NONE, REIN_TRUNCATION_POLICY } rein_truncation_kind;

/* What kl_target is the KL of. */
typedef enum rein_kl_unit { REIN_KL_OF_SEQUENCE, REIN_KL_OF_TOKEN } rein_kl_unit;

/* Texts are never NULL: "" is "not given". They belong to the settings. */
struct rein_settings {
    char *model;    /* directory */
    char *adapter;  /* directory of an adapter to begin with; "": a new one */
    char *quantize; /* "q8_0" or "q4_0": rein_model_options; "": the weights are as stored */
    int full;       /* all weights train, not an adapter */
    int64_t lora_rank;
    double lora_alpha;
    int use_rslora;
    char *lora_modules; /* "q_proj,v_proj"; "": all linear modules */
    double temperature;
    int64_t seed;

    double learning_rate, adam_beta1, adam_beta2, adam_epsilon, weight_decay, max_grad_norm;
    rein_schedule_shape lr_scheduler_type;
    int64_t warmup_steps, total_steps;
    double lr_final_share;
    int64_t epochs, minibatches; /* passes over a step's groups, and optimizer steps in each */
    int mask_truncated_completions;

    char *critic; /* directory of a model, or "same"; "": none */
    double critic_learning_rate;
    int64_t critic_warmup_steps, critic_only_steps;
    double value_clip;
    int whiten_advantages;
    double kl_target, kl_horizon; /* of the controller of kl_reward_coef; target 0: none */
    int kl_target_unit;           /* a rein_kl_unit */

    int64_t kl_penalty_reference_step; /* -1: not given */
    int64_t kl_penalty_step_lag;       /* 0: not given */
    char *kl_ref_adapter_path;
    char *teacher;     /* directory of a model, or a GGUF file */
    int preference;    /* 1 + the loss of rein_settings_use_preference; 0: none */
    int has_score;     /* the policy is a reward model (rein_settings_use_score); it has no name */
    int has_reference; /* the loss has one, whatever the objective says (rein_settings_use_reference); it has no name */

    int64_t shards, share_limit; /* 0: the trainer's own */
    int no_sharing, recompute;
    int64_t threads;   /* 0: all cores; never part of a result */
    rein_isa isa;      /* never part of a result; it has no name */
    unsigned allowed;  /* rein_allowance; neither has this */
    rein_ranks *ranks; /* that share the work; NULL: one. Nor this */

    int64_t save_steps; /* a checkpoint every so many steps */
    int64_t keep_last;  /* checkpoints; 0: all */
    char *keep_best;    /* the name of a metric, with a minus sign before it if less is better */

    /* For the loop that samples, rewards and trains; training on groups that come from elsewhere needs none of these. */
    char *task, *eval_task; /* sources of rein_task_open; eval_task "": what `task` holds out */
    double held_out;
    char *reward;            /* judges as rein_reward_open takes them, one per line; "": the task's own */
    char *reward_weights;    /* "1,0.5"; "": all 1 */
    char *working_directory; /* where programs start; "": in the current directory */
    double reward_timeout;
    int64_t reward_restarts;
    int64_t steps, prompts, samples, max_tokens; /* of the run; of a step; of a prompt; of a response */
    int64_t max_turns;                           /* of an episode */
    int64_t activation_cache; /* MB for activations that sampling computed and training reuses; never part of a result */
    int64_t top_k;
    double top_p, min_p;
    int truncation; /* a rein_truncation_kind */
    char *stop;     /* texts that end a response, one per line; \n is a newline, \\ a backslash */
    int chat;
    char *chat_format, *system, *date; /* date: of strftime_now in a chat template; "": it does not ask for one */
    double temperature_final;          /* 0: not given */
    double budget_target, budget_rate; /* of the controller; target 0: none */
    char *ptx_data;
    double ptx_coef;
    int64_t ptx_batch;
    int64_t dynamic_sampling; /* rounds at most; 0: none */
    char *stop_at;            /* "eval/accuracy>=0.95" */
    int64_t eval_steps, eval_prompts, eval_samples;

    char *preset;
    rein_options objective;
    unsigned char given[REIN_SETTING_COUNT]; /* 1: rein_settings_set set it; in the order of rein_setting_at */
};

/* Fills *settings, which need not hold anything, with the defaults. */
void rein_settings_init(rein_settings *settings);

/* Frees the texts; then the settings are the defaults. */
void rein_settings_clear(rein_settings *settings);

/* Copies `from` into *settings, which is filled; on failure it stays as it was. */
rein_status rein_settings_assign(rein_settings *settings, const rein_settings *from, rein_error *err);

/* 1 if the setting has a value other than "", 0 and no. */
int rein_settings_is_on(const rein_settings *settings, const char *name);

/* The name of a setting today: config.yaml of older runs has earlier names, which are still accepted. */
const char *rein_setting_name(const char *name);

/* 1 if a judge is a program; if a judge or a task is one. */
int rein_settings_judges_are_programs(const rein_settings *settings);
int rein_settings_has_program(const rein_settings *settings);

/* Steps of the learning rate's schedule: total_steps, or those of the loop. */
int64_t rein_settings_total_steps(const rein_settings *settings);

/* Checks that some step of a run with these settings may have the metric that `setting` names. Those of rewards are checked when the
 * rewards are open. */
rein_status rein_settings_check_metric(const rein_settings *settings, const char *setting, const char *metric, rein_error *err);

/* 1 if the metric of this name [length] is one of a loss over preferences. */
int rein_settings_metric_is_of_pairs(const char *metric, size_t length);

/* ---- settings_chat.c */

/* Sets the date to today if it is not set and a template of the model asks for one (strftime_now). */
rein_status rein_settings_choose_date(rein_settings *settings, rein_error *err);
rein_status rein_settings_check_date(const rein_settings *settings, rein_error *err);

#endif
