/* session.h - inside of a session, for session.c (its beginning), session_reference.c and session_step.c. Private. */
#ifndef REIN_TRAIN_SESSION_H
#define REIN_TRAIN_SESSION_H

#include "report/metrics.h"
#include "report/tensorboard.h"
#include "run.h"

struct rein_session {
    rein_settings settings;
    rein_exec exec;
    rein_run *run;
    rein_model *model;
    rein_adapter *adapter; /* NULL: all weights train */
    rein_trainer *trainer;
    rein_tensorboard *board;
    int64_t step;
    double tokens; /* of the run so far */
    int failed;
    /* The reference, kept while it stays the same; the policy's own model with adapter NULL is the base. */
    int64_t reference_step; /* the checkpoint it is; -1: none, or not a checkpoint */
    rein_model *reference_model;
    rein_adapter *reference_adapter;
    /* The last report. */
    const char *names[REIN_METRIC_ROWS];
    double values[REIN_METRIC_ROWS];
    char note[REIN_RUN_SAID];
};

/* The policy that step number `step` is held against. Borrowed from the session. */
rein_status rein_session_reference(rein_policy *policy, rein_session *session, int64_t step, rein_error *err);
void rein_session_drop_reference(rein_session *session);

/* Writes the session as checkpoint number session->step. */
rein_status rein_session_save(rein_session *session, rein_error *err);

#endif
