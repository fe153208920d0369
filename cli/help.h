/* help.h - the one table of commands and options: dispatch, --help, the man page and shell completion read it. */
#ifndef REIN_CLI_HELP_H
#define REIN_CLI_HELP_H

#include "rein/json.h"

enum { REIN_MAX_OPTIONS = 24, REIN_MAX_WORDS = 16, REIN_MAX_REPEATS = 16, REIN_MAX_SETTINGS = 160 };

/* Which settings a command takes: those of training, also those of the loop that samples, or those that an evaluation depends on. */
enum { REIN_SETTINGS_TRAINING = 1, REIN_SETTINGS_LOOP = 2, REIN_SETTINGS_EVALUATION = 3 };

typedef struct rein_cli_option {
    const char *name;  /* "threads": written --threads */
    const char *value; /* "N"; NULL: a switch */
    const char *help;
} rein_cli_option;

struct rein_command;

/* A command line that matches its command. */
typedef struct rein_args {
    const struct rein_command *command;
    const char *program;                    /* argv[0] */
    const char *values[REIN_MAX_OPTIONS];   /* by the option's position in the table: "" for a switch, NULL if absent */
    const char *repeated[REIN_MAX_REPEATS]; /* all values of the option that may be repeated */
    size_t n_repeated;
    const char *words[REIN_MAX_WORDS];
    size_t n_words;
    struct {
        const char *name, *value;  /* "lora_rank"; "" for a switch */
    } settings[REIN_MAX_SETTINGS]; /* in their order (settings.h) */
    size_t n_settings;
} rein_args;

typedef struct rein_command {
    const char *name, *usage; /* usage: what follows "rein NAME" */
    const char *summary;      /* one line */
    const char *description;  /* paragraphs, separated by newlines */
    rein_cli_option options[REIN_MAX_OPTIONS];
    const char *repeats; /* the option that may be given several times, or NULL */
    size_t max_words;
    const char *(*word)(size_t i);     /* the possible first words, for completion, or NULL */
    int operations;                    /* 1: the help lists the operations of rein objective */
    int settings;                      /* REIN_SETTINGS_…: which settings it takes; 0: none */
    const char *example;               /* a shell command that works in the directory of its model */
    int (*run)(const rein_args *args); /* returns the exit status */
} rein_command;

/* Command number i, and its name; NULL past the last. */
const rein_command *rein_command_at(size_t i);
const char *rein_command_word(size_t i);
const rein_command *rein_command_named(const char *name);

/* Option number i of a command, followed by its settings; the name is NULL past the last. */
rein_cli_option rein_command_option(const rein_command *command, size_t i);

/* The position of an option in the command's own table, or -1. `name` has `length` bytes. */
int rein_own_option(const rein_command *command, const char *name, size_t length);

/* The value of an option ("" for a switch), or NULL if it is absent. */
const char *rein_option_value(const rein_args *args, const char *name);

void rein_help(rein_text *out);
void rein_help_command(rein_text *out, const rein_command *command);

/* One option and its help, which begins in `column`; on the next line if the name is too long. */
void rein_help_option(rein_text *out, const char *name, const char *value, const char *help, size_t column);

void rein_man(rein_text *out); /* man.c: roff */
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

/* The first words of the names of the rows of `rein bench`. */
const char *rein_bench_word(size_t i);

/* The names that `rein explain` knows: presets, then operations. */
const char *rein_explained_at(size_t i);

#endif
