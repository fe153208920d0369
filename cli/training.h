/* training.h - what the commands that train a run have in common: everything is looked at before anything is written.
 *
 * Every int is an exit status: when it is not REIN_DONE, what is wrong has been said. */
#ifndef REIN_CLI_TRAINING_H
#define REIN_CLI_TRAINING_H

#include "settings.h"

typedef struct rein_training {
    const rein_args *args;
    const char *run; /* its directory */
    int is_new;      /* the run is to be begun */
    rein_fork fork;  /* … from here (--fork); .run NULL: from the model */
    char fork_run[4096];
    rein_settings *given;      /* by the file of --config and the command line */
    rein_settings *settings;   /* with those that the run has */
    rein_model_info info;      /* its strings are gone */
    rein_tokenizer *tokenizer; /* NULL: the model has none */
    rein_chat chat;
    int has_chat; /* --chat-format */
    rein_session *session;
    char noted[REIN_NOTE_SIZE]; /* of its notes, the last one said */
    int knows_total; /* set before reading: the command knows how many steps there will be, and total_steps need not be given */
    int total_open;  /* … and was not: the command sets it before opening */
} rein_training;

/* The command line and the run's own settings; nothing is opened. Close it whatever the result, as after the next. */
int rein_training_read(rein_training *t, const rein_args *args);

/* Opens the model to see that it, the adapters and the reference are there and fit, and its tokenizer; the model is closed again. */
int rein_training_look(rein_training *t);

/* Makes the path of a setting absolute, if it exists. */
void rein_whole_path(rein_settings *settings, const char *name);

/* The preset that was chosen, or NULL: "none" is the absence of one. */
const char *rein_training_preset(const rein_training *t);

/* Whether the model can take the groups, and the objective makes a loss of them; *loss says what is known before a log-prob is computed.
 * `name` is that of the file. */
int rein_training_check(rein_loss *loss, const rein_training *t, const rein_groups *groups, const char *name);

/* Begins the run, or goes on with it: from here on something is written. */
int rein_training_open(rein_training *t);
void rein_training_close(rein_training *t);

/* Says the session's note, if it has one that was not said yet: after opening, and at the end. */
void rein_training_note(rein_training *t, const rein_session *session);

/* Says why a step failed: 2 for what was given, else 1. */
int rein_training_failed(const rein_training *t, const rein_error *err);

/* "RUN/checkpoints/0007", appended. */
void rein_training_checkpoint(rein_text *out, const rein_training *t, int64_t step);

/* A metric of the report by its name; NaN if it is not there. */
double rein_report_value(const rein_session_report *report, const char *name);

/* {"step", "nothing_to_train", "checkpoint", "metrics"} and a newline. */
void rein_report_json(rein_text *out, const rein_session_report *report, const rein_training *t);

#endif
