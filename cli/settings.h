/* settings.h - the settings of a run and the options of the objective as options of the command line, from the library's tables.
 *
 * The table of commands says which commands take them (.settings). lora_rank is written --lora-rank. */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include "help.h"
#include "rein/train.h"

typedef struct cli_setting {
    const char *name;   /* "lora_rank", the name in the library */
    char option[64];    /* "lora-rank" */
    const char *value;  /* "N", "NAME", …; NULL: a switch, which --full=no turns off */
    const char *help;   /* one line */
    const char *choice; /* "none|budget|…", or NULL */
    char title[40];     /* its section in the help: "Policy" */
    int objective;      /* an option of the objective, or "preset" */
    int loop;           /* a setting of the loop that samples: only `rein run` takes it */
} cli_setting;

/* Number i, in the order of the help, or NULL past the last. */
const cli_setting *cli_setting_at(size_t i);

/* 1 if the command takes it. */
int cli_takes_setting(const cli_command *command, const cli_setting *setting);

/* 1 if the command takes it, and it can have an effect there: its help shows it. */
int cli_shows_setting(const cli_command *command, const cli_setting *setting);

/* The setting of the option --OPTION, where `option` has `length` bytes; or NULL. */
const cli_setting *cli_setting_named(const char *option, size_t length);

/* Appends its help, with its choices and its default. */
void cli_setting_help(rein_text *out, const cli_setting *setting);

/* Appends the settings that a command takes (NULL: all of them), section by section: its title between `before` and `after`, then each
 * setting as `put` writes an option. Its help has its choices and its default. */
typedef void cli_put_option(rein_text *out, const char *name, const char *value, const char *help);
void cli_put_settings(rein_text *out, const cli_command *command, const char *before, const char *after, cli_put_option *put);

/* Makes settings from the defaults, then the file of --config, then the command line, its preset first. Those of a new run start with the
 * preset none, in which no constant is given; those of an existing run only change what it has. Returns an exit status, after printing what
 * is wrong. The caller frees *settings, whatever the status. */
int cli_args_settings(rein_settings **settings, const cli_args *args, int is_new);

/* Makes the settings that RUN/config.yaml has. Returns an exit status, after printing what is wrong. The caller frees *settings, whatever
 * the status. */
int cli_run_settings(rein_settings **settings, const char *run, const char *where);

/* Prints err. The name of a setting that was given on the command line is printed as an option: --lora-rank. Returns the exit status. */
int cli_say_setting_error(const cli_args *args, const rein_error *err);

/* Refuses --accept-changed and --trust where they have no effect, for this reason. Returns the exit status. */
int cli_check_allowed(const cli_args *args, const char *reason);

/* 1 if the setting was given on the command line. */
int cli_args_has_setting(const cli_args *args, const char *name);

#endif
