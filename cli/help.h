/* help.h - the one table of commands and options: dispatch, --help, the man page and shell completion all come from it. */
#ifndef REIN_CLI_HELP_H
#define REIN_CLI_HELP_H

#include "rein/json.h"

enum { REIN_MAX_OPTIONS = 24, REIN_MAX_WORDS = 16, REIN_MAX_REPEATS = 16, REIN_MAX_SETTINGS = 160 };

/* The settings of a run and the options of the objective; those of the loop too; those that an evaluation depends on. */
enum { REIN_SETTINGS_TRAINING = 1, REIN_SETTINGS_LOOP = 2, REIN_SETTINGS_EVALUATION = 3 };

typedef struct rein_cli_option {
    const char *name;  /* "threads": written --threads */
    const char *value; /* "N"; NULL: a switch */
    const char *help;
} rein_cli_option;

struct rein_command;

/* A command line that fits its command: values by the option's position in the table ("" for a switch, NULL when not given). */
typedef struct rein_args {
    const struct rein_command *command;
    const char *program; /* as it was called */
    const char *values[REIN_MAX_OPTIONS];
    const char *repeated[REIN_MAX_REPEATS]; /* all values of the option that may be repeated */
    size_t n_repeated;
    const char *words[REIN_MAX_WORDS];
    size_t n_words;
    struct {
        const char *name, *value;  /* "lora_rank"; "" for a switch */
    } settings[REIN_MAX_SETTINGS]; /* of a command that takes them (settings.h), in their order */
    size_t n_settings;
} rein_args;

typedef struct rein_command {
    const char *name, *usage; /* usage: what follows "rein NAME" */
    const char *summary;      /* one line */
    const char *description;  /* paragraphs, divided by newlines */
    rein_cli_option options[REIN_MAX_OPTIONS];
    const char *repeats; /* the option that may be given several times, or NULL */
    size_t max_words;
    const char *(*word)(size_t i);     /* what the first word may be, for completion, or NULL */
    int operations;                    /* 1: the help lists the operations of rein objective */
    int settings;                      /* REIN_SETTINGS_…: which settings it takes; 0: none */
    const char *example;               /* a shell command that works as it stands, where its model is */
    int (*run)(const rein_args *args); /* the exit status */
} rein_command;

/* Command number i, or NULL past the last. */
const rein_command *rein_command_at(size_t i);
const rein_command *rein_command_named(const char *name);

/* The value of an option ("" for a switch), or NULL when it was not given. */
const char *rein_option_value(const rein_args *args, const char *name);

void rein_help(rein_text *out);
void rein_help_command(rein_text *out, const rein_command *command);
void rein_man(rein_text *out);                                 /* man.c: roff */
int rein_completion_script(rein_text *out, const char *shell); /* completion.c: 0 when the shell is unknown */
const char *rein_shell_at(size_t i);

/* The commands. */
int rein_run_demo(const rein_args *args);
int rein_run_init(const rein_args *args);
int rein_run_run(const rein_args *args);
int rein_run_eval(const rein_args *args);
int rein_run_watch(const rein_args *args);
int rein_run_objective(const rein_args *args);
int rein_run_explain(const rein_args *args);
int rein_run_generate(const rein_args *args);
int rein_run_score(const rein_args *args);
int rein_run_inspect(const rein_args *args);
int rein_run_train(const rein_args *args);
int rein_run_sft(const rein_args *args);
int rein_run_report(const rein_args *args);
int rein_run_task(const rein_args *args);
int rein_run_bench(const rein_args *args);
int rein_run_completion(const rein_args *args);
int rein_run_help(const rein_args *args);

/* The built-in tasks. */
const char *rein_task_word(size_t i);

/* The beginnings of the names of rows of `rein bench`. */
const char *rein_bench_word(size_t i);

/* What `rein explain` can explain: presets, then operations. */
const char *rein_explained_at(size_t i);

#endif
