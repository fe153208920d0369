/* completion.c - what the Tab key knows, from the table of commands. */
#include <string.h>

#include "help.h"
#include "rein/base.h"
#include "settings.h"
#include "terminal.h"

static const char *const SHELLS[] = {"bash", "zsh", "fish", NULL};

const char *rein_shell_at(size_t i) { return i < sizeof SHELLS / sizeof *SHELLS ? SHELLS[i] : NULL; }

static void commands(rein_text *out) {
    const rein_command *command;
    for (size_t i = 0; (command = rein_command_at(i)); i++) rein_text_format(out, "%s%s", i ? " " : "", command->name);
}

static void words(rein_text *out, const rein_command *command) {
    const char *word;
    for (size_t i = 0; command->word && (word = command->word(i)); i++) rein_text_format(out, "%s%s", i ? " " : "", word);
}

static void options(rein_text *out, const rein_command *command) {
    for (size_t i = 0; i < REIN_MAX_OPTIONS && command->options[i].name; i++)
        rein_text_format(out, "--%s ", command->options[i].name);
    const rein_cli_setting *setting;
    for (size_t i = 0; (setting = rein_cli_setting_at(i)); i++)
        if (rein_takes_setting(command, setting)) rein_text_format(out, "--%s ", setting->option);
    rein_text_put(out, "--help");
}

static void bash(rein_text *out) {
    const rein_command *command;
    rein_text_put(out, "# bash completion of rein: source <(rein completion bash)\n"
                       "_rein() {\n"
                       "    local word=${COMP_WORDS[COMP_CWORD]} names= options=\n"
                       "    COMPREPLY=()\n"
                       "    if ((COMP_CWORD == 1)); then\n"
                       "        COMPREPLY=($(compgen -W '");
    commands(out);
    rein_text_put(out, " --help --version' -- \"$word\"))\n"
                       "        return\n"
                       "    fi\n"
                       "    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; (command = rein_command_at(i)); i++) {
        rein_text_format(out, "    %s) options='", command->name);
        options(out, command);
        rein_text_put(out, "' names='");
        words(out, command);
        rein_text_put(out, "' ;;\n");
    }
    rein_text_put(out, "    esac\n"
                       "    if [[ $word == -* ]]; then\n"
                       "        COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
                       "    elif ((COMP_CWORD == 2)) && [[ $names ]]; then\n"
                       "        COMPREPLY=($(compgen -W \"$names\" -- \"$word\"))\n"
                       "    else\n"
                       "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
                       "    fi\n"
                       "}\n"
                       "complete -o filenames -F _rein rein\n");
}

static void zsh(rein_text *out) {
    const rein_command *command;
    rein_text_put(out, "#compdef rein\n# zsh completion of rein: source <(rein completion zsh)\n"
                       "_rein() {\n"
                       "    if ((CURRENT == 2)); then\n"
                       "        compadd -- ");
    commands(out);
    rein_text_put(out, " --help --version\n"
                       "        return\n"
                       "    fi\n"
                       "    local -a options names\n"
                       "    case $words[2] in\n");
    for (size_t i = 0; (command = rein_command_at(i)); i++) {
        rein_text_format(out, "    %s) options=(", command->name);
        options(out, command);
        rein_text_put(out, ") names=(");
        words(out, command);
        rein_text_put(out, ") ;;\n");
    }
    rein_text_put(out, "    esac\n"
                       "    if [[ $PREFIX == -* ]]; then\n"
                       "        compadd -- $options\n"
                       "    elif ((CURRENT == 3 && $#names)); then\n"
                       "        compadd -- $names\n"
                       "    else\n"
                       "        _files\n"
                       "    fi\n"
                       "}\n"
                       "if [[ $funcstack[1] == _rein ]]; then _rein \"$@\"; else compdef _rein rein; fi\n");
}

static void fish_text(rein_text *out, const char *text) {
    rein_text_put(out, "'");
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\') rein_text_put(out, "\\");
        rein_text_put_bytes(out, text, 1);
    }
    rein_text_put(out, "'");
}

/* An option with a value: a path, or something that no file completes. */
static const char *fish_value(const char *value) {
    if (!value) return "";
    return !strcmp(value, "DIR") || !strcmp(value, "FILE") ? "-r " : "-x ";
}

static void fish_option(rein_text *out, const char *command, const char *option, const char *value, const char *help) {
    rein_text_format(out, "complete -c rein -n '__fish_seen_subcommand_from %s' -l %s %s-d ", command, option, fish_value(value));
    fish_text(out, help);
    rein_text_put(out, "\n");
}

static void fish(rein_text *out) {
    const rein_command *command;
    rein_text_put(out, "# fish completion of rein: rein completion fish | source\n"
                       "complete -c rein -n __fish_use_subcommand -l version -d 'print the version'\n"
                       "complete -c rein -l help -d 'show the help'\n");
    for (size_t i = 0; (command = rein_command_at(i)); i++) {
        rein_text_format(out, "complete -c rein -f -n __fish_use_subcommand -a %s -d ", command->name);
        fish_text(out, command->summary);
        rein_text_put(out, "\n");
        if (command->word) {
            rein_text_format(out, "complete -c rein %s-n '__fish_seen_subcommand_from %s' -a '",
                             command->max_words > 1 ? "" : "-f ", command->name);
            words(out, command);
            rein_text_put(out, "'\n");
        }
        const rein_cli_setting *s;
        for (size_t o = 0; o < REIN_MAX_OPTIONS && command->options[o].name; o++)
            fish_option(out, command->name, command->options[o].name, command->options[o].value, command->options[o].help);
        for (size_t o = 0; (s = rein_cli_setting_at(o)); o++)
            if (rein_takes_setting(command, s)) fish_option(out, command->name, s->option, s->value, s->help);
    }
}

int rein_completion_script(rein_text *out, const char *shell) {
    if (!strcmp(shell, "bash")) bash(out);
    else if (!strcmp(shell, "zsh")) zsh(out);
    else if (!strcmp(shell, "fish")) fish(out);
    else return 0;
    return 1;
}

int rein_run_completion(const rein_args *args) {
    rein_text out = {0};
    if (!args->n_words) return rein_say(REIN_WRONG, "completion", "a shell is needed: bash, zsh or fish");
    if (!rein_completion_script(&out, args->words[0])) {
        const char *nearest = rein_nearest(args->words[0], SHELLS);
        if (nearest)
            return rein_say(REIN_WRONG, "completion", "unknown shell \"%s\": did you mean \"%s\"?", args->words[0], nearest);
        return rein_say(REIN_WRONG, "completion", "unknown shell \"%s\": it is one of bash, zsh, fish", args->words[0]);
    }
    return rein_print(&out);
}
