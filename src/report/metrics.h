/* metrics.h - the numbers of a step and their names: TRL's names where it has one (docs/metrics.md). Private. */
#ifndef REIN_REPORT_METRICS_H
#define REIN_REPORT_METRICS_H

#include <jansson.h>

#include "rein/objective.h"
#include "rein/trajectory.h"

/* The inputs that a step had. The loss reports 0 for metrics that need a missing input; rows with such metrics are left out. */
enum rein_step_parts {
    REIN_STEP_REWARDS = 1,   /* rewards, instead of given advantages */
    REIN_STEP_BUDGETS = 2,   /* token budgets, of the options or of the responses */
    REIN_STEP_REFERENCE = 4, /* log-probs under a reference policy */
    REIN_STEP_ENTROPIES = 8,
    REIN_STEP_EXACT_KL = 16,
    REIN_STEP_TEACHER = 32
};

/* All numbers of one step. NaN: not applicable, left out. */
typedef struct rein_step_numbers {
    rein_loss loss;
    unsigned parts; /* of rein_step_parts */
    double gradient_norm, learning_rate;
    double clipped_ratio;     /* share of the responses cut off at the length limit */
    double num_tokens;        /* of the run so far, prompts and responses */
    double budget_multiplier; /* of rein_budget_control */
    double on_policy_gap;     /* greatest |log-prob of the trainer − of the sampler| */
    double seconds_step, seconds_sample, seconds_reference, seconds_forward, seconds_backward, seconds_optimizer;
    double seconds_wait, seconds_wait_max, seconds_exchange, exchange_bytes, exchange_calls; /* of several ranks */
    double tokens_per_second; /* of this step, prompts and responses, over seconds_step */
    double peak_memory;       /* bytes, of the process so far */
    double expert_load_max, expert_load_cv, expert_entropy, expert_balance_loss; /* of mixtures of experts (model/expert_load.h) */
    double critic_loss, critic_clip_fraction, critic_explained_variance, critic_value_mean, critic_return_mean;
    double critic_gradient_norm, critic_learning_rate, seconds_critic;
    double advantage_mean, advantage_std; /* of a critic's advantages, before whitening */
    double kl_reward_coef, kl_of_target;  /* with kl_target: the coefficient of this step, and the KL that moves it */
} rein_step_numbers;

enum { REIN_METRIC_ROWS = 62 }; /* the most that a step has */

/* Makes every number "not applicable" and clears the parts. Call it first. Thread-safe. */
void rein_step_numbers_clear(rein_step_numbers *numbers);

/* Writes the numbers that apply with their names (static storage), at most `capacity`, always in the same order. Returns how many apply.
 * Thread-safe. */
size_t rein_metric_rows(rein_named_number *rows, size_t capacity, const rein_step_numbers *numbers);

/* 1 if some step may have a row of this name. Thread-safe. */
int rein_metric_is_known(const char *name);

/* {"step": step, name: value, …} in the order of the rows; null for a value that is not finite, which JSON cannot express. The caller
 * owns the reference; NULL when there is no memory or a name is not UTF-8. Thread-safe. */
json_t *rein_metric_object(int64_t step, const rein_named_number *rows, size_t n);

#endif
