/* reward.h - from rewards to advantages: shaping and the estimators. Private; all numbers double, all arrays one entry a sequence. */
#ifndef REIN_OBJECTIVE_REWARD_H
#define REIN_OBJECTIVE_REWARD_H

#include "batch.h"

/* The reward of each sequence: as given, or the weighted sum of its components. */
void rein_rewards_of(double *reward, const rein_batch *b);

/* Shapes and clips the rewards in place. length: of each response. */
void rein_shape_into(double *reward, const int64_t *length, const rein_batch *b, const rein_options *o);

/* The budget of response i; NaN when there is none. */
double rein_budget_of(const rein_batch *b, const rein_options *o, size_t i);

/* r − λ·max(0, L − B)                                                                          Kimi K2, arXiv 2507.20534 */
static inline double rein_budget_linear(double reward, double length, double budget, double coef) {
    return reward - coef * ((length > budget ? length : budget) - budget);
}

/* L > B: −penalty                                                        K2's own rule: truncate and assign a penalty */
static inline double rein_budget_truncate(double reward, double length, double budget, double penalty) {
    return length > budget ? -penalty : reward;
}

/* advantage [n_sequences] from reward. trained: how many tokens of each sequence train; scratch [2·n_sequences]. Not for estimators that
 * give one advantage a token. */
rein_status rein_estimate(double *advantage, const double *reward, const int64_t *length, const size_t *trained, double *scratch,
                          const rein_batch *b, const rein_options *o, rein_error *err);

/* Estimators that give one advantage a token (rein_advantage_per_token): advantage [n_tokens] of the batch's type, 0 at masked tokens;
 * scratch [n_tokens] for reinforce++; kl_source: the log-probs of the detached KL in the reward. */
void rein_estimate_tokens(void *advantage, double *scratch, const double *reward, const void *kl_source, const rein_batch *b,
                          const rein_options *o);

/* A scaled by advantage_balance. */
static inline double rein_balance(double advantage, const rein_options *o) {
    const double b = o->advantage_balance;
    if (b > 0 && advantage < 0) return advantage * (1 - b);
    if (b < 0 && advantage > 0) return advantage * (1 + b);
    return advantage;
}

/* Mean and unbiased std of n numbers. *equal is 1 when they agree to 1e-12; then the mean is the first number and the std is 0. */
double rein_mean(const double *x, size_t n, double *std, int *equal);

/* x ← (x − mean)/√(var + eps) with the unbiased variance, 0 when all are equal. x[i] counts tokens[i] times, or once if `tokens` is NULL;
 * where that is 0 times, it is neither read nor written.                              REINFORCE++, arXiv 2501.03262; PPO's critics */
void rein_whiten(double *x, const size_t *tokens, size_t n, double eps);

#endif
