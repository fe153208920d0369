/* policy.h - a model with its adapter and tokenizer, opened as the command line says. */
#ifndef CLI_POLICY_H
#define CLI_POLICY_H

#include "help.h"
#include "rein/train.h"

typedef struct cli_opened {
    const char *name;        /* what was asked for: a model's directory, RUN or RUN@STEP */
    rein_policy_files files; /* where it is */
    const char *directory;   /* of the model */
    rein_model_info info;
    rein_model *model;
    rein_adapter *adapter;     /* NULL: none was asked for */
    rein_tokenizer *tokenizer; /* NULL: the directory has none */
    rein_exec exec;            /* for all work */
    int takes_rewards;         /* set before opening: it may be a reward model */
} cli_opened;

/* Reads the options --model and --threads and the variable REIN_KERNEL, which is quickly done; then opens what --model (or `name`, if that is
 * set before opening) and --adapter name. Both return an exit status, after printing what is wrong. Close it whatever that is. */
int cli_opened_read(cli_opened *opened, const cli_args *args);
int cli_opened_open(cli_opened *opened, const cli_args *args);
void cli_opened_close(cli_opened *opened);

/* CLI_DONE if the model has all the ids; `name` says whose they are. Otherwise the error is printed. */
int cli_opened_check_ids(const cli_opened *opened, const rein_ids *ids, const char *name, const char *where);

/* Text that a user wrote: with the begin token if the model wants one, and special tokens where it spells them out. A `part`
 * continues other text and gets no begin token. */
rein_status cli_opened_encode(rein_ids *ids, const cli_opened *opened, const char *text, size_t length, int part, rein_error *err);

/* The same for the `what` ("prompt") of the command line, which has one token or more. A model without a tokenizer takes `option` instead.
 * Returns an exit status, after printing what is wrong. */
int cli_opened_encode_whole(rein_ids *ids, const cli_opened *opened, const rein_text *text, const char *what, const char *option,
                            const char *where);

/* A token as tokenizer.json spells it, for JSON; null where the id has none. */
void cli_json_token(rein_text *out, const rein_tokenizer *tokenizer, int32_t id);

/* ids as the entries of a JSON array. */
void cli_json_ids(rein_text *out, const char *name, const int32_t *ids, size_t n);

/* 1 if there is such a file. */
int cli_directory_has(const char *directory, const char *file);

/* The path as an absolute one; a path that does not exist stays as it is, so that opening it reports what was given. The caller frees it;
 * NULL: no memory. */
char *cli_absolute_path(const char *path);

/* Opens the tokenizer of a model's directory; *tokenizer is NULL if it has none, and on failure. Returns an exit status, having printed what
 * is wrong. The caller closes it. */
int cli_tokenizer_open(rein_tokenizer **tokenizer, const char *model, const char *where);

/* Where models/sums is: beside the program, in the project or where it was installed. 0: it is not there. */
int cli_shipped_model(char *path, size_t size);

#endif
