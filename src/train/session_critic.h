/* session_critic.h - what a critic does in a step of a session, and the coefficient that kl_target moves (session_critic.c). Private. */
#ifndef REIN_TRAIN_SESSION_CRITIC_H
#define REIN_TRAIN_SESSION_CRITIC_H

#include "report/metrics.h"
#include "session.h"

/* A critic in a step. */
typedef struct rein_session_critic {
    rein_critic_step step;
    size_t passes, optimizer_steps;
    double loss, clip_fraction, norms; /* added up over the passes */
    double learning_rate, seconds;
} rein_session_critic;

/* Values the groups, before the first pass; `old` and `reference` as in rein_critic_options. */
rein_status rein_session_critic_begin(rein_session_critic *critic, rein_session *session, const rein_groups *groups,
                                      const rein_options *objective, const float *old, const float *reference, rein_error *err);

/* A pass over groups [first, last) of those that were valued, whose tokens begin at number `at`, and a step of the critic's optimizer. */
rein_status rein_session_critic_pass(rein_session_critic *critic, rein_session *session, const rein_groups *part, size_t at,
                                     rein_error *err);

/* Puts the numbers of the step into those that are reported. */
void rein_session_critic_numbers(rein_step_numbers *numbers, const rein_session_critic *critic);

void rein_session_critic_free(rein_session_critic *critic);

/* Puts the coefficient into the objective of a step. It begins with that of the settings. */
void rein_session_kl_apply(rein_options *objective, rein_session *session);

/* After a step: moves the coefficient by the KL of old to reference over the trained tokens (old NULL: recorded). *kl becomes that KL, per
 * response or per token as kl_target_unit says. Nothing happens without kl_target. */
rein_status rein_session_kl_move(double *kl, rein_session *session, const rein_groups *groups, const float *old,
                                 const float *reference, rein_error *err);

#endif
