/* session_reward.h - a step of a session that trains a reward model (session_reward.c). Private. */
#ifndef REIN_TRAIN_SESSION_REWARD_H
#define REIN_TRAIN_SESSION_REWARD_H

#include "rein/train.h"
#include "trainer.h"

/* What a step has found. */
typedef struct rein_reward_step {
    double *rewards, *margins; /* [2·pairs] chosen, rejected, chosen, …; [pairs] */
    size_t n;                  /* pairs */
} rein_reward_step;

/* REIN_EINVAL if the groups are not pairs for a reward model, or the options cannot be. */
rein_status rein_reward_pairs_check(const rein_session *session, const rein_groups *pairs, const rein_reward_training *how,
                                    rein_error *err);

/* Forward, loss and backward over the pairs. The caller frees *step whatever the status. */
rein_status rein_reward_step_pass(rein_reward_step *step, rein_reward_pass *pass, rein_session *session, const rein_groups *pairs,
                                  const rein_reward_training *how, rein_error *err);
void rein_reward_step_free(rein_reward_step *step);

/* Takes from the n rows of a step what has no meaning here, and adds its metrics. Returns the number of rows. */
size_t rein_reward_rows(rein_named_number *rows, size_t n, const rein_reward_step *step);

#endif
