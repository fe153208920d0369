/* main.c - from a command line to a command: options are those of the table in help.c, and an error suggests what was probably meant. */
#include <stdio.h>
#include <string.h>

#include "help.h"
#include "nearest.h"
#include "ranks.h"
#include "rein/rein.h"
#include "settings.h"
#include "surroundings.h"
#include "terminal.h"

/* The option that begins with `name`: --temp is --temperature. */
static const char *option_with_prefix(const char *const *options, const char *name) {
    for (size_t i = 0; name[0] && name[1] && options[i]; i++)
        if (!strncmp(options[i], name, strlen(name))) return options[i];
    return NULL;
}

static int unknown_option(const cli_command *command, const char *argument) {
    enum { MOST = 256 };
    const char *options[MOST + 1] = {NULL}, *after = argument + strspn(argument, "-"), *nearest;
    char name[64];
    for (size_t i = 0; i < MOST && (options[i] = cli_command_option(command, i).name); i++) {
    }
    snprintf(name, sizeof name, "%.*s", (int)(strcspn(after, "=") < 63 ? strcspn(after, "=") : 63), after);
    nearest = option_with_prefix(options, name);
    if (!nearest) nearest = rein_nearest(name, options);
    if (!nearest && !strcmp(argument, "-?")) nearest = "help";
    if (!nearest) nearest = rein_nearest(name, (const char *const[]){"help", NULL});
    if (nearest) return cli_say(CLI_WRONG, command->name, "unknown option %s: did you mean --%s?", argument, nearest);
    return cli_say(CLI_WRONG, command->name, "unknown option %s: rein %s --help lists the options", argument, command->name);
}

/* Keeps a value; 0 after an error. */
static int keep_value(cli_args *args, size_t option, const char *value) {
    const cli_command *command = args->command;
    const char *name = command->options[option].name;
    const int repeats = command->repeats && !strcmp(command->repeats, name);
    if (args->values[option] && !repeats) return cli_say_option(command->name, name, "is given twice"), 0;
    if (repeats && args->n_repeated == CLI_MAX_REPEATS)
        return cli_say_option(command->name, name, "is given too often: at most %d times", CLI_MAX_REPEATS), 0;
    if (repeats) args->repeated[args->n_repeated++] = value;
    args->values[option] = value;
    return 1;
}

static int keep_setting(cli_args *args, const cli_setting *s, const char *value) {
    const char *where = args->command->name;
    if (cli_args_has_setting(args, s->name) && !rein_setting_is_list(s->name))
        return cli_say_option(where, s->option, "is given twice"), 0;
    if (args->n_settings == CLI_MAX_SETTINGS)
        return cli_say(CLI_WRONG, where, "there are too many settings: at most %d", CLI_MAX_SETTINGS), 0;
    args->settings[args->n_settings].name = s->name;
    args->settings[args->n_settings++].value = value;
    return 1;
}

/* Takes the option at argv[i]; returns how many arguments it used, or 0 after an error. */
static int take_option(cli_args *args, int argc, char **argv, int i) {
    const cli_command *command = args->command;
    const char *name = argv[i] + 2, *equals = strchr(name, '=');
    const size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const int own = cli_own_option(command, name, length);
    const cli_setting *s = own < 0 ? cli_setting_named(name, length) : NULL;
    if (own < 0 && !(s && cli_takes_setting(command, s))) return unknown_option(command, argv[i]), 0;
    const char *option = s ? s->option : command->options[own].name, *needs = s ? s->value : command->options[own].value;
    if (!s && !needs && equals) return cli_say_option(command->name, option, "takes no value"), 0;
    if (needs && !equals && i + 1 >= argc) return cli_say_option(command->name, option, "needs a value: --%s %s", option, needs), 0;
    const char *value = equals ? equals + 1 : needs ? argv[i + 1] : "";
    if (!(s ? keep_setting(args, s, value) : keep_value(args, (size_t)own, value))) return 0;
    return needs && !equals ? 2 : 1;
}

/* --json is looked for first, so that an error in any other option is printed as JSON too. */
static int wants_json(const cli_command *command, int argc, char **argv) {
    if (cli_own_option(command, "json", strlen("json")) < 0) return 0;
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strcmp(argv[i], "--json")) return 1;
    return 0;
}

/* `rein explain --learning-rate` means the option by that name. */
static int is_explained(const cli_command *command, const char *argument) {
    if (!command->explains || strncmp(argument, "--", 2) != 0) return 0;
    const char *name = argument + 2;
    return cli_own_option(command, name, strlen(name)) < 0 && cli_setting_named(name, strlen(name)) != NULL;
}

static int run_command(const char *program, const cli_command *command, int argc, char **argv) {
    cli_args args = {.command = command, .program = program};
    rein_text out = {0};
    int only_words = 0;
    if (wants_json(command, argc, argv)) cli_errors_as_json();
    for (int i = 0; i < argc; i++) {
        if (!only_words && !strcmp(argv[i], "--")) only_words = 1;
        else if (!only_words && (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))) {
            cli_help_command(&out, command);
            return cli_print(&out);
        } else if (!only_words && !strncmp(argv[i], "--", 2) && !is_explained(command, argv[i])) {
            int taken = take_option(&args, argc, argv, i);
            if (!taken) return CLI_WRONG;
            i += taken - 1;
        } else if (!only_words && argv[i][0] == '-' && argv[i][1] && !is_explained(command, argv[i])) {
            return unknown_option(command, argv[i]);
        } else if (args.n_words == command->max_words) {
            return cli_say(CLI_WRONG, command->name, "unexpected argument \"%s\": rein %s %s", argv[i], command->name,
                           command->usage);
        } else {
            args.words[args.n_words++] = argv[i] + (is_explained(command, argv[i]) ? 2 : 0);
        }
    }
    const int status = cli_ranks_open(command);
    return cli_ranks_close(command, status ? status : command->run(&args));
}

int main(int argc, char **argv) {
    rein_text out = {0};
    const char *name = argc > 1 ? argv[1] : "", *nearest;
    const cli_command *command = cli_command_named(name);
    cli_prepare_process();
    if (command) return run_command(argv[0], command, argc - 2, argv + 2);
    if (argc < 2) return cli_say(CLI_WRONG, "", "a command is needed: rein --help lists the commands, rein demo shows one at work");
    const int help = !strcmp(name, "--help") || !strcmp(name, "-h"), version = !strcmp(name, "--version") || !strcmp(name, "-V");
    if (help || version) {
        if (argc > 2) return cli_say(CLI_WRONG, "", "%s takes no arguments: leave out \"%s\"", name, argv[2]);
        if (help) cli_help(&out);
        else rein_text_format(&out, "rein %s\n", rein_version());
        return cli_print(&out);
    }
    if (*name == '-') {
        const char *const options[] = {"--help", "--version", NULL};
        nearest = rein_nearest(name, options);
        if (nearest) return cli_say(CLI_WRONG, "", "unknown option %s: did you mean %s?", name, nearest);
        return cli_say(CLI_WRONG, "", "unknown option %s: a command comes first, rein --help lists the commands", name);
    }
    return cli_say_unknown("", "command", name, cli_command_word, "rein --help lists the commands");
}
