/* session.h - inside of a session, for session_prepare.c (checks), session.c (begins, saves), session_budget.c, session_change.c,
 * session_check.c, session_reference.c, session_teacher.c, session_train.c, session_passes.c, session_critic.c and session_commit.c.
 * Private. */
#ifndef REIN_TRAIN_SESSION_H
#define REIN_TRAIN_SESSION_H

#include "critic.h"
#include "dist/ranks.h"
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
    rein_ranks *ranks;      /* NULL: one */
    rein_run *run;          /* open for writing on rank 0, for reading on others */
    char *directory;        /* of the run */
    int is_new;             /* the directory held no run */
    rein_fork fork;         /* .run NULL: no fork; else it belongs to the session */
    unsigned allowed;       /* rein_allowance */
    json_t *files;          /* that the run is made with now (fingerprint.h) */
    json_t *recorded;       /* those of its newest checkpoint; NULL: it has none recorded */
    char *text_name, *text; /* to be written with the settings; NULL: none */
    int stored;             /* the settings are written */
    int keeps_rule;         /* no setting that decides which checkpoints stay was given now */
    rein_model *model;
    rein_adapter *adapter;                   /* NULL: all weights train */
    rein_activation_cache *activation_cache; /* NULL: not wanted */
    rein_trainer *trainer;
    rein_critic *critic; /* NULL: none */
    rein_tensorboard *board;
    int64_t step;
    int64_t saved;     /* the step of the last checkpoint; -1: none */
    double tokens;     /* of the run so far */
    double seconds;    /* of its steps */
    double multiplier; /* of the budget penalty, in the next step (session_budget.c); NaN: that of the settings */
    double kl_coef;    /* kl_reward_coef of the next step, with kl_target (session_critic.c); NaN: that of the settings */
    rein_session_state state;
    /* The reference, kept while it stays the same; the policy's own model with adapter NULL is the base. */
    int64_t reference_step; /* the checkpoint it is; -1: none, or not a checkpoint */
    rein_model *reference_model;
    rein_adapter *reference_adapter;
    rein_model *teacher;                         /* NULL: none */
    rein_reference_cache *references;            /* log-probs under them; NULL: none yet */
    rein_named_number metrics[REIN_REPORT_ROWS]; /* of the last report */
    char note[REIN_NOTE_SIZE];
    rein_ranks_traffic traffic; /* of the ranks when the step began */
    int step_began;             /* traffic is that of this step, whose sampling is over */
};

/* REIN_EINVAL if the session is not in this state. */
rein_status rein_session_expect(const rein_session *session, rein_session_state state, rein_error *err);

/* The reference policy of the next step, at a temperature. Borrowed from the session, until that of another step is asked for. */
rein_status rein_session_reference_policy(rein_policy *policy, rein_session *session, double temperature, rein_error *err);

/* 1 on the rank that writes the run. */
int rein_session_writes(const rein_session *session);

/* REIN_EINVAL with several ranks: `what` is made for one. */
rein_status rein_session_expect_one_rank(const rein_session *session, const char *what, rein_error *err);

/* The log-probs of the groups under the reference of the next step, [tokens of all histories], at a temperature; those of an earlier step
 * are not computed again, as long as they fit into the session's reference cache. */
rein_status rein_session_reference_log_probs(float *log_probs, rein_session *session, double temperature, const rein_groups *groups,
                                             rein_error *err);
void rein_session_drop_reference(rein_session *session);

/* REIN_EINVAL if the run has no checkpoint of kl_penalty_reference_step. session_prepare.c has it. */
rein_status rein_session_check_reference(const rein_session *session, const rein_settings *settings, rein_error *err);

/* Checkpoints that later steps need as their reference: that of the next step is `lag` checkpoints back. needed has room for one more than
 * there are checkpoints; returns their number. */
size_t rein_session_needed_steps(int64_t *needed, const rein_session *session);

/* ---- session_teacher.c */

/* Opens the teacher of the settings, if there is one. Another vocabulary is REIN_EINVAL, and names the first token that differs. */
rein_status rein_session_open_teacher(rein_session *session, rein_error *err);

/* rein_session_reference_log_probs under the teacher. */
rein_status rein_session_teacher_log_probs(float *log_probs, rein_session *session, double temperature, const rein_groups *groups,
                                           rein_error *err);
/* ---- session_traffic.c */

/* The step begins here, and not with its training: what ranks exchange from now on is counted with it. */
void rein_session_begin_step(rein_session *session);

/* Sets the numbers of what all ranks have exchanged in this step; without other ranks they stay "not applicable". */
rein_status rein_session_put_traffic(rein_step_numbers *numbers, rein_session *session, rein_error *err);

/* ---- session_budget.c */

/* Starts the multiplier of a session that begins: at the penalty of the settings, or where its checkpoint left it. */
void rein_session_budget_start(rein_session *session);

/* Puts it into the objective of a step. */
void rein_session_budget_apply(rein_options *objective, const rein_session *session);

/* Dual ascent, by the lengths of what a step trained on: it becomes that of the next step. */
rein_status rein_session_budget_move(rein_session *session, const rein_groups *groups, rein_error *err);

/* rein_session_prepare for the loop: the settings of sampling have an effect. */
rein_status rein_session_prepare_loop(rein_session **session, const char *directory, const rein_fork *from,
                                      const rein_settings *settings, rein_error *err);

/* REIN_EINVAL if so many groups cannot be divided into minibatches. */
rein_status rein_session_check_minibatches(const rein_session *session, size_t n_groups, rein_error *err);

/* Writes the settings, and the text that belongs to them, unless that was done: something is about to be done with them. */
rein_status rein_session_store(rein_session *session, rein_error *err);

/* For a run that resumes: files that were given at a new place, and are the same, are written to its settings, and no other setting is.
 * The note names them. */
rein_status rein_session_relocate(rein_session *session, rein_error *err);

/* The settings of a fork. REIN_EINVAL if it cannot be made: the run must have the step, and the directory must not be a run. */
rein_status rein_fork_settings(rein_settings *settings, const char *directory, const rein_fork *from, const rein_settings *given,
                               rein_error *err);

/* The policy at the beginning of the run, its checkpoint 0, at a temperature. The caller closes *adapter and *model, which may be NULL: the
 * policy then has those of the session. */
rein_status rein_session_first_policy(rein_policy *policy, rein_model **model, rein_adapter **adapter, const rein_session *session,
                                      double temperature, rein_error *err);

#endif
