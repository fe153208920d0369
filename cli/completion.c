/* completion.c - scripts for completion in a shell, from the table of commands. */
#include <string.h>

#include "help.h"
#include "nearest.h"
#include "terminal.h"

static void words(rein_text *out, const char *(*at)(size_t i)) {
    for (size_t i = 0; at && at(i); i++) rein_text_format(out, "%s%s", i ? " " : "", at(i));
}

/* One case of bash or zsh for each command: its options and names, between the brackets of the shell's lists. */
static void cases(rein_text *out, const char *open, const char *close) {
    const cli_command *command;
    const char *option;
    for (size_t i = 0; (command = cli_command_at(i)); i++) {
        rein_text_format(out, "    %s) options=%s", command->name, open);
        for (size_t o = 0; (option = cli_command_option(command, o).name); o++) rein_text_format(out, "--%s ", option);
        rein_text_format(out, "--help%s names=%s", close, open);
        words(out, command->word);
        rein_text_format(out, "%s ;;\n", close);
    }
}

static void bash(rein_text *out) {
    rein_text_put(out, "# bash completion of rein: source <(rein completion bash)\n"
                       "_rein() {\n"
                       "    local word=${COMP_WORDS[COMP_CWORD]} names= options=\n"
                       "    COMPREPLY=()\n"
                       "    if ((COMP_CWORD == 1)); then\n"
                       "        COMPREPLY=($(compgen -W '");
    words(out, cli_command_word);
    rein_text_put(out, " --help --version' -- \"$word\"))\n"
                       "        return\n"
                       "    fi\n"
                       "    case ${COMP_WORDS[1]} in\n");
    cases(out, "'", "'");
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
    rein_text_put(out, "#compdef rein\n# zsh completion of rein: source <(rein completion zsh)\n"
                       "_rein() {\n"
                       "    if ((CURRENT == 2)); then\n"
                       "        compadd -- ");
    words(out, cli_command_word);
    rein_text_put(out, " --help --version\n"
                       "        return\n"
                       "    fi\n"
                       "    local -a options names\n"
                       "    case $words[2] in\n");
    cases(out, "(", ")");
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

static void fish_quoted(rein_text *out, const char *text) {
    rein_text_put(out, "'");
    for (; *text; text++) rein_text_format(out, "%s%c", *text == '\'' || *text == '\\' ? "\\" : "", *text);
    rein_text_put(out, "'\n");
}

/* -r: the value is a path; -x: it is not. */
static void fish_option(rein_text *out, const char *command, cli_option o) {
    const int path = o.value && (!strcmp(o.value, "DIR") || !strcmp(o.value, "FILE"));
    rein_text_format(out, "complete -c rein -n '__fish_seen_subcommand_from %s' -l %s %s-d ", command, o.name,
                     path      ? "-r "
                     : o.value ? "-x "
                               : "");
    fish_quoted(out, o.help);
}

static void fish(rein_text *out) {
    const cli_command *command;
    cli_option option;
    rein_text_put(out, "# fish completion of rein: rein completion fish | source\n"
                       "complete -c rein -n __fish_use_subcommand -l version -d 'print the version'\n"
                       "complete -c rein -l help -d 'show the help'\n");
    for (size_t i = 0; (command = cli_command_at(i)); i++) {
        rein_text_format(out, "complete -c rein -f -n __fish_use_subcommand -a %s -d ", command->name);
        fish_quoted(out, command->summary);
        if (command->word) {
            rein_text_format(out, "complete -c rein %s-n '__fish_seen_subcommand_from %s' -a '",
                             command->max_words > 1 ? "" : "-f ", command->name);
            words(out, command->word);
            rein_text_put(out, "'\n");
        }
        for (size_t o = 0; (option = cli_command_option(command, o)).name; o++) fish_option(out, command->name, option);
    }
}

static const struct {
    const char *name;
    void (*write)(rein_text *out);
} SHELLS[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

const char *cli_shell_at(size_t i) { return i < sizeof SHELLS / sizeof *SHELLS ? SHELLS[i].name : NULL; }

int cli_run_completion(const cli_args *args) {
    rein_text out = {0};
    if (!args->n_words) return cli_say(CLI_WRONG, "completion", "a shell is needed: bash, zsh or fish");
    for (size_t i = 0; cli_shell_at(i); i++) {
        if (strcmp(args->words[0], SHELLS[i].name) != 0) continue;
        SHELLS[i].write(&out);
        return cli_print(&out);
    }
    return cli_say_unknown("completion", "shell", args->words[0], cli_shell_at, "it is one of bash, zsh, fish");
}
