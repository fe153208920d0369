/* session_work.h - a step of a session while it is made, for session_train.c (checks and report) and session_passes.c. Private. */
#ifndef REIN_TRAIN_SESSION_WORK_H
#define REIN_TRAIN_SESSION_WORK_H

#include "online_pairs.h"
#include "preferences.h"
#include "session.h"
#include "session_critic.h"
#include "session_pairs.h"
#include "session_reward.h"
#include "step_metrics.h"

/* A step at work. */
typedef struct rein_session_work {
    rein_session *s;
    const rein_groups *groups; /* that train */
    const rein_groups *all;    /* that were given: with a preference_loss, pairs of them train */
    const rein_train_options *options;
    rein_policy policy;                        /* at the temperature of this step */
    rein_options objective;                    /* of this step */
    size_t tokens;                             /* of the groups that train */
    rein_policy reference_policy;              /* with an exact KL */
    rein_policy teacher_policy;                /* with a divergence over the whole vocabulary */
    float *reference, *old, *teacher;          /* [tokens] or NULL: not needed */
    float *advantages;                         /* [tokens] */
    double ptx_loss;                           /* added up */
    const rein_preference_options *preference; /* NULL: the objective */
    rein_preference_options own_preference;    /* that of the objective */
    rein_online_pairs chosen;                  /* with it */
    rein_metrics of_all;                       /* with it: rewards and lengths */
    rein_pairs_step pairs;                     /* with preference */
    rein_session_critic critic;                /* where the session has one */
    rein_reward_step rewards;                  /* with options->reward_model */
    rein_step_numbers numbers;
    size_t passes, optimizer_steps;
    double norms; /* added up */
} rein_session_work;

/* Once for the whole step: the log-probs of the reference; those of the current policy where the recorded ones are not the old ones, if several
 * optimizer steps or a critic need them; and what a critic makes of the step. The caller frees w's arrays whatever the status. */
rein_status rein_session_before_passes(rein_session_work *w, rein_error *err);

/* Trains: epochs and minibatches, or the one pass of a reward model. Changes the policy and w's numbers. */
rein_status rein_session_passes(rein_session_work *w, rein_error *err);

#endif
