/* session.h - inside of a session, for session_prepare.c (checks), session.c (begins, saves), session_check.c,
 * session_reference.c, session_train.c and session_commit.c. Private. */
#ifndef REIN_TRAIN_SESSION_H
#define REIN_TRAIN_SESSION_H

#include "reference_cache.h"
#include "report/metrics.h"
#include "report/tensorboard.h"
#include "run.h"
#include "settings.h"

enum { REIN_MORE_ROWS = 64, REIN_REPORT_ROWS = REIN_METRIC_ROWS + REIN_MORE_ROWS };

/* What may be done next. */
typedef enum rein_session_state {
    REIN_SESSION_PREPARED = 0, /* nothing is written: rein_session_begin follows */
    REIN_SESSION_READY,
    REIN_SESSION_TRAINED, /* the policy is that of the next step, which is not committed */
    REIN_SESSION_FAILED   /* it can only be closed */
} rein_session_state;

struct rein_session {
    rein_settings settings;
    rein_exec exec;
    rein_run *run;
    char *directory; /* of the run */
    int is_new;      /* the directory held no run */
    rein_fork fork;  /* .run NULL: no fork; else it belongs to the session */
    rein_model *model;
    rein_adapter *adapter;                   /* NULL: all weights train */
    rein_activation_cache *activation_cache; /* NULL: not wanted */
    rein_trainer *trainer;
    rein_tensorboard *board;
    int64_t step;
    int64_t saved;     /* the step of the last checkpoint; -1: none */
    double tokens;     /* of the run so far */
    double seconds;    /* of its steps */
    double multiplier; /* of the budget penalty, where dual ascent sets it; else NaN */
    rein_session_state state;
    /* The reference, kept while it stays the same; the policy's own model with adapter NULL is the base. */
    int64_t reference_step; /* the checkpoint it is; -1: none, or not a checkpoint */
    rein_model *reference_model;
    rein_adapter *reference_adapter;
    rein_reference_cache *references; /* log-probs under it; NULL: none yet */
    /* The last report. */
    const char *names[REIN_REPORT_ROWS];
    double values[REIN_REPORT_ROWS];
    char note[REIN_NOTE_SIZE];
};

/* REIN_EINVAL if the session is not in this state. */
rein_status rein_session_expect(const rein_session *session, rein_session_state state, rein_error *err);

/* The log-probs of the groups under the reference of the next step, [tokens of all histories], at a temperature; those of an earlier step
 * are not computed again, as long as they fit into the session's reference cache. */
rein_status rein_session_reference_log_probs(float *log_probs, rein_session *session, double temperature, const rein_groups *groups,
                                             rein_error *err);
void rein_session_drop_reference(rein_session *session);

/* rein_session_prepare for the loop: the settings of sampling have an effect. */
rein_status rein_session_prepare_loop(rein_session **session, const char *directory, const rein_fork *from,
                                      const rein_settings *settings, rein_error *err);

/* REIN_EINVAL if so many groups cannot be divided into minibatches. */
rein_status rein_session_check_minibatches(const rein_session *session, size_t n_groups, rein_error *err);

/* The settings of a fork. REIN_EINVAL if it cannot be made: the run must have the step, and the directory must not be a run. */
rein_status rein_fork_settings(rein_settings *settings, const char *directory, const rein_fork *from, const rein_settings *given,
                               rein_error *err);

/* The policy at the beginning of the run, its checkpoint 0, at a temperature. The caller closes *adapter and *model, which may be NULL: the
 * policy then has those of the session. */
rein_status rein_session_first_policy(rein_policy *policy, rein_model **model, rein_adapter **adapter, const rein_session *session,
                                      double temperature, rein_error *err);

#endif
