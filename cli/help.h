/* help.h - the one table of commands and options: dispatch, --help, the man page and shell completion read it. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "rein/json.h"

enum { CLI_MAX_OPTIONS = 24, CLI_MAX_WORDS = 16, CLI_MAX_REPEATS = 16, CLI_MAX_SETTINGS = 160 };

/* Which settings a command takes: those of training, also those of the loop that samples, or those that an evaluation depends on. */
enum { CLI_SETTINGS_TRAINING = 1, CLI_SETTINGS_LOOP = 2, CLI_SETTINGS_EVALUATION = 3 };

typedef struct cli_option {
    const char *name;  /* "threads": written --threads */
    const char *value; /* "N"; NULL: a switch */
    const char *help;
} cli_option;

struct cli_command;

/* A command line that matches its command. */
typedef struct cli_args {
    const struct cli_command *command;
    const char *program;                   /* argv[0] */
    const char *values[CLI_MAX_OPTIONS];   /* by the option's position in the table: "" for a switch, NULL if absent */
    const char *repeated[CLI_MAX_REPEATS]; /* all values of the option that may be repeated */
    size_t n_repeated;
    const char *words[CLI_MAX_WORDS];
    size_t n_words;
    struct {
        const char *name, *value; /* "lora_rank"; "" for a switch */
    } settings[CLI_MAX_SETTINGS]; /* in their order (settings.h) */
    size_t n_settings;
} cli_args;

typedef struct cli_command {
    const char *name, *usage; /* usage: what follows "rein NAME" */
    const char *summary;      /* one line */
    const char *description;  /* paragraphs, separated by newlines */
    cli_option options[CLI_MAX_OPTIONS];
    const char *repeats; /* the option that may be given several times, or NULL */
    size_t max_words;
    const char *(*word)(size_t i);    /* the possible first words, for completion, or NULL */
    int explains;                     /* 1: a word may be written as an option, --learning-rate */
    int operations;                   /* 1: the help lists the operations of rein objective */
    int settings;                     /* CLI_SETTINGS_…: which settings it takes; 0: none */
    int ranks;                        /* 1: several ranks can share its work (ranks.h) */
    const char *example;              /* a shell command that works in the directory of its model */
    int (*run)(const cli_args *args); /* returns the exit status */
} cli_command;

/* Command number i, and its name; NULL past the last. */
const cli_command *cli_command_at(size_t i);
const char *cli_command_word(size_t i);
const cli_command *cli_command_named(const char *name);

/* Option number i of a command, followed by its settings; the name is NULL past the last. */
cli_option cli_command_option(const cli_command *command, size_t i);

/* The position of an option in the command's own table, or -1. `name` has `length` bytes. */
int cli_own_option(const cli_command *command, const char *name, size_t length);

/* The value of an option ("" for a switch), or NULL if it is absent. */
const char *cli_option_value(const cli_args *args, const char *name);

void cli_help(rein_text *out);
void cli_help_command(rein_text *out, const cli_command *command);

void cli_man(rein_text *out); /* man.c: roff */
const char *cli_shell_at(size_t i);

/* The commands. */
int cli_run_demo(const cli_args *args);
int cli_run_init(const cli_args *args);
int cli_run_run(const cli_args *args);
int cli_run_eval(const cli_args *args);
int cli_run_chat(const cli_args *args);
int cli_run_serve(const cli_args *args);
int cli_run_export(const cli_args *args);
int cli_run_bundle(const cli_args *args);
int cli_run_watch(const cli_args *args);
int cli_run_objective(const cli_args *args);
int cli_run_explain(const cli_args *args);
int cli_run_generate(const cli_args *args);
int cli_run_score(const cli_args *args);
int cli_run_inspect(const cli_args *args);
int cli_run_train(const cli_args *args);
int cli_run_sft(const cli_args *args);
int cli_run_dpo(const cli_args *args);
int cli_run_reward(const cli_args *args);
int cli_run_distill(const cli_args *args);
int cli_run_report(const cli_args *args);
int cli_run_task(const cli_args *args);
int cli_run_bench(const cli_args *args);
int cli_run_completion(const cli_args *args);
int cli_run_help(const cli_args *args);

/* The operations of `rein objective`. */
const char *cli_operation_word(size_t i);

/* The built-in tasks. */
const char *cli_task_word(size_t i);

/* The first words of the names of the rows of `rein bench`. */
const char *bench_word(size_t i);

/* The names that `rein explain` knows: presets, operations, symbols, options. */
const char *cli_explained_at(size_t i);

#endif
