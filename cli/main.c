/* main.c - from a command line to a command: options are those of the table in help.c, and a mistake says what was probably meant. */
#include <stdio.h>
#include <string.h>

#include "help.h"
#include "nearest.h"
#include "rein/rein.h"
#include "settings.h"
#include "terminal.h"

static const char *command_name(const void *list, size_t i) {
    const rein_command *command = rein_command_at(i);
    (void)list;
    return command ? command->name : NULL;
}

static const char *option_name(const void *list, size_t i) {
    const rein_command *command = list;
    const rein_cli_setting *setting;
    size_t n = 0;
    for (; n < REIN_MAX_OPTIONS && command->options[n].name; n++)
        if (n == i) return command->options[i].name;
    for (size_t s = 0; (setting = rein_cli_setting_at(s)); s++)
        if (rein_takes_setting(command, setting) && n++ == i) return setting->option;
    return NULL;
}

/* The option that begins like this: --temp is --temperature. */
static const char *begun_option(const rein_command *command, const char *name) {
    const char *option;
    for (size_t i = 0; name[0] && name[1] && (option = option_name(command, i)); i++) {
        if (!strncmp(option, name, strlen(name))) return option;
    }
    return NULL;
}

static int unknown_option(const rein_command *command, const char *argument) {
    char name[64];
    const char *after = argument + strspn(argument, "-"), *nearest;
    snprintf(name, sizeof name, "%.*s", (int)(strcspn(after, "=") < 63 ? strcspn(after, "=") : 63), after);
    nearest = begun_option(command, name);
    if (!nearest) nearest = rein_cli_nearest(name, option_name, command);
    if (!nearest && (!strcmp(argument, "-h") || !strcmp(argument, "-?"))) nearest = "help";
    if (!nearest && rein_nearest(name, (const char *const[]){"help", NULL})) nearest = "help";
    if (nearest) return rein_say(REIN_WRONG, command->name, "unknown option %s: did you mean --%s?", argument, nearest);
    return rein_say(REIN_WRONG, command->name, "unknown option %s: rein %s --help lists the options", argument, command->name);
}

/* Keeps a value; 0 after an error. */
static int keep_value(rein_args *args, size_t option, const char *value) {
    const rein_command *command = args->command;
    const char *name = command->options[option].name;
    const int repeats = command->repeats && !strcmp(command->repeats, name);
    if (args->values[option] && !repeats) return rein_say_option(command->name, name, "is given twice"), 0;
    if (repeats && args->n_repeated == REIN_MAX_REPEATS)
        return rein_say_option(command->name, name, "is given more than %d times", REIN_MAX_REPEATS), 0;
    if (repeats) args->repeated[args->n_repeated++] = value;
    args->values[option] = value;
    return 1;
}

/* Takes the setting at argv[i], if it is one: -1 if not. */
static int take_setting(rein_args *args, int argc, char **argv, int i) {
    const char *name = argv[i] + 2, *equals = strchr(name, '='), *where = args->command->name;
    const rein_cli_setting *s = rein_cli_setting_named(name, equals ? (size_t)(equals - name) : strlen(name));
    if (!s || !rein_takes_setting(args->command, s)) return -1;
    if (s->value && !equals && i + 1 >= argc)
        return rein_say_option(where, s->option, "needs a value: --%s %s", s->option, s->value), 0;
    if (rein_args_has_setting(args, s->name) && !rein_setting_is_list(s->name))
        return rein_say_option(where, s->option, "is given twice"), 0;
    if (args->n_settings == REIN_MAX_SETTINGS) return rein_say(REIN_WRONG, where, "there are too many options"), 0;
    args->settings[args->n_settings].name = s->name;
    args->settings[args->n_settings++].value = equals ? equals + 1 : s->value ? argv[i + 1] : "";
    return s->value && !equals ? 2 : 1;
}

/* Takes the option at argv[i]; returns how many arguments it used, or 0 after an error. */
static int take_option(rein_args *args, int argc, char **argv, int i) {
    const rein_command *command = args->command;
    const char *name = argv[i] + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    for (size_t o = 0; o < REIN_MAX_OPTIONS && command->options[o].name; o++) {
        const rein_cli_option *option = &command->options[o];
        if (strlen(option->name) != length || strncmp(option->name, name, length) != 0) continue;
        if (!option->value && equals) return rein_say_option(command->name, option->name, "takes no value"), 0;
        if (option->value && !equals && i + 1 >= argc)
            return rein_say_option(command->name, option->name, "needs a value: --%s %s", option->name, option->value), 0;
        if (!keep_value(args, o, !option->value ? "" : equals ? equals + 1 : argv[i + 1])) return 0;
        return option->value && !equals ? 2 : 1;
    }
    const int taken = take_setting(args, argc, argv, i);
    if (taken < 0) unknown_option(command, argv[i]);
    return taken < 0 ? 0 : taken;
}

/* --json is looked for first, so that a mistake in any other option is JSON too. */
static int wants_json(const rein_command *command, int argc, char **argv) {
    size_t o = 0;
    while (o < REIN_MAX_OPTIONS && command->options[o].name && strcmp(command->options[o].name, "json") != 0) o++;
    if (o == REIN_MAX_OPTIONS || !command->options[o].name) return 0;
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strcmp(argv[i], "--json")) return 1;
    return 0;
}

static int run_command(const char *program, const rein_command *command, int argc, char **argv) {
    rein_args args = {.command = command, .program = program};
    rein_text out = {0};
    int only_words = 0;
    if (wants_json(command, argc, argv)) rein_errors_as_json();
    for (int i = 0; i < argc; i++) {
        if (!only_words && !strcmp(argv[i], "--")) only_words = 1;
        else if (!only_words && !strcmp(argv[i], "--help")) {
            rein_help_command(&out, command);
            return rein_print(&out);
        } else if (!only_words && !strncmp(argv[i], "--", 2)) {
            int taken = take_option(&args, argc, argv, i);
            if (!taken) return REIN_WRONG;
            i += taken - 1;
        } else if (!only_words && argv[i][0] == '-' && argv[i][1]) {
            return unknown_option(command, argv[i]);
        } else if (args.n_words == command->max_words) {
            return rein_say(REIN_WRONG, command->name, "unexpected argument \"%s\": rein %s %s", argv[i], command->name,
                            command->usage);
        } else {
            args.words[args.n_words++] = argv[i];
        }
    }
    return command->run(&args);
}

int main(int argc, char **argv) {
    rein_text out = {0};
    const char *name = argc > 1 ? argv[1] : "", *nearest;
    const rein_command *command = rein_command_named(name);
    if (command) return run_command(argv[0], command, argc - 2, argv + 2);
    if (argc < 2)
        return rein_say(REIN_WRONG, "", "a command is needed: rein --help lists them, rein demo shows what this is about");
    if (!strcmp(name, "--help") || !strcmp(name, "--version")) {
        if (argc > 2) return rein_say(REIN_WRONG, "", "%s stands alone: leave out \"%s\"", name, argv[2]);
        if (!strcmp(name, "--help")) rein_help(&out);
        else rein_text_format(&out, "rein %s\n", rein_version());
        return rein_print(&out);
    }
    if (*name == '-') {
        const char *const options[] = {"--help", "--version", NULL};
        nearest = !strcmp(name, "-h") ? "--help" : !strcmp(name, "-V") ? "--version" : rein_nearest(name, options);
        if (nearest) return rein_say(REIN_WRONG, "", "unknown option %s: did you mean %s?", name, nearest);
        return rein_say(REIN_WRONG, "", "unknown option %s: a command comes first, rein --help lists them", name);
    }
    nearest = rein_cli_nearest(name, command_name, NULL);
    if (nearest) return rein_say(REIN_WRONG, "", "unknown command \"%s\": did you mean \"%s\"?", name, nearest);
    return rein_say(REIN_WRONG, "", "unknown command \"%s\": rein --help lists the commands", name);
}
