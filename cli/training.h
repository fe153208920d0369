/* training.h - what the commands that train a run have in common: from a command line to a prepared session, and the output of a step.
 *
 * Every int is an exit status: unless it is CLI_DONE, the error has been printed. */
#ifndef CLI_TRAINING_H
#define CLI_TRAINING_H

#include "settings.h"

typedef struct cli_training {
    const cli_args *args;
    const char *run; /* its directory */
    rein_fork fork;  /* --fork; .run NULL: none */
    char *fork_run;
    rein_settings *given;       /* by the file of --config and the command line */
    rein_chat chat;             /* of --chat-format */
    rein_session *session;      /* NULL until it is prepared */
    rein_tokenizer *tokenizer;  /* NULL: the model has none */
    char noted[REIN_NOTE_SIZE]; /* the note of the session that was printed last */
    int knows_total;  /* set before reading: the command knows how many steps there will be, so total_steps need not be given */
    int memory_noted; /* it was printed that the run will not fit into memory */
    int total_open;   /* … and was not given: the command sets it after preparing */
} cli_training;

/* Reads the command line; nothing is opened. Close it whatever the status. */
int cli_training_read(cli_training *t, const cli_args *args);

/* Prepares the session, which checks everything and writes nothing, and opens the model's tokenizer. */
int cli_training_prepare(cli_training *t);

/* Begins or resumes the run: from here on it is written. */
int cli_training_begin(cli_training *t);
void cli_training_close(cli_training *t);

/* Makes the path of a setting absolute, if it exists. An exit status. */
int cli_absolute_setting(rein_settings *settings, const char *name, const char *where);

/* The preset of the settings, or NULL: "none" is the absence of one. */
const char *cli_preset(const rein_settings *settings);

/* Appends what --dry-run shows first: the run, whether it is new, its model, and what trains. */
void cli_training_describe(rein_text *out, const cli_training *t, const rein_session *session);

/* Prints the session's note, if it has one that was not printed yet: after it began, and at the end. */
void cli_training_note(cli_training *t, const rein_session *session);

/* Prints why a step failed: 2 for wrong input, else 1. */
int cli_training_failed(const cli_training *t, const rein_error *err);

/* Appends "RUN/checkpoints/0007". */
void cli_training_checkpoint(rein_text *out, const cli_training *t, int64_t step);

/* A metric of the report by its name; NaN if it is not there. */
double cli_report_value(const rein_session_report *report, const char *name);

/* Appends {"step", "nothing_to_train", "checkpoint", "metrics"} and a newline. */
void cli_report_json(rein_text *out, const rein_session_report *report, const cli_training *t);

#endif
