/* man.c - the manual page, from the table of commands. */
#include <string.h>

#include "help.h"
#include "rein/rein.h"
#include "settings.h"

/* Text for roff: hyphens that can be copied, no accidental request at the start of a line, ASCII apostrophes. */
static void escaped(rein_text *out, const char *text) {
    int start = 1;
    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\'')) rein_text_put(out, "\\&");
        start = *text == '\n';
        if (*text == '-') rein_text_put(out, "\\-");
        else if (*text == '\\') rein_text_put(out, "\\e");
        else if (*text == '\'') rein_text_put(out, "\\(aq");
        else rein_text_put_bytes(out, text, 1);
    }
}

/* A newline in a description begins a new paragraph. */
static void paragraphs(rein_text *out, const char *text) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        rein_text piece = {0};
        rein_text_put_bytes(&piece, text, n);
        rein_text_put(out, ".PP\n");
        if (piece.data) escaped(out, piece.data);
        rein_text_put(out, "\n");
        rein_text_free(&piece);
        text += n + (text[n] == '\n');
    }
}

static void example(rein_text *out, const char *text) {
    rein_text_put(out, ".PP\n.EX\n");
    escaped(out, text);
    rein_text_put(out, "\n.EE\n");
}

static void operations(rein_text *out) {
    const rein_operation_info *o;
    rein_text_put(out, ".SS Operations\n");
    for (size_t i = 0; (o = rein_operation_at(i)); i++) {
        const char *rows[][2] = {{"takes: ", o->arguments}, {"gives: ", o->results}, {"with --grad: ", o->gradients}};
        rein_text_put(out, ".TP\n.B ");
        escaped(out, o->name);
        rein_text_put(out, "\n");
        escaped(out, o->summary);
        for (size_t r = 0; r < 3; r++) {
            if (!rows[r][1]) continue;
            rein_text_put(out, "\n.br\n");
            escaped(out, rows[r][0]);
            escaped(out, rows[r][1]);
        }
        rein_text_put(out, "\n");
    }
}

static void option(rein_text *out, const char *name, const char *value, const char *help) {
    rein_text_put(out, ".TP\n\\fB\\-\\-");
    escaped(out, name);
    rein_text_format(out, "\\fR%s%s%s\n", value ? " \\fI" : "", value ? value : "", value ? "\\fR" : "");
    escaped(out, help);
    rein_text_put(out, "\n");
}

/* Several commands take the settings, so they have their own section. */
static void settings_page(rein_text *out) {
    rein_text_put(out, ".SH SETTINGS\nThe settings of a run, for the commands that train:");
    const cli_command *command;
    for (size_t i = 0, n = 0; (command = cli_command_at(i)); i++)
        if (command->settings) rein_text_format(out, "%s %s", n++ ? "," : "", command->name);
    rein_text_put(out, ".\nA file for \\fB\\-\\-config\\fR has _ in place of the dashes inside a name.\n");
    cli_put_settings(out, NULL, ".SS ", "", option);
}

static void command_page(rein_text *out, const cli_command *command) {
    rein_text_format(out, ".SH REIN %s\n.B rein %s\n", command->name, command->name);
    escaped(out, command->usage);
    rein_text_put(out, "\n");
    paragraphs(out, command->description);
    for (size_t i = 0; i < CLI_MAX_OPTIONS && command->options[i].name; i++)
        option(out, command->options[i].name, command->options[i].value, command->options[i].help);
    if (command->operations) operations(out);
    if (command->settings) rein_text_put(out, ".PP\nIt also takes the options of SETTINGS, below.\n");
    rein_text_put(out, ".SS Example\n");
    example(out, command->example);
}

void cli_man(rein_text *out) {
    const cli_command *command;
    rein_text_format(out, ".TH REIN 1 \"\" \"rein %s\" \"User Commands\"\n", rein_version());
    rein_text_put(out,
                  ".SH NAME\nrein \\- reinforcement learning of language models under token budgets\n"
                  ".SH SYNOPSIS\n.B rein\n.I COMMAND\n[\\fIOPTION\\fR...] [\\fIARGUMENT\\fR...]\n"
                  ".SH DESCRIPTION\n"
                  ".B rein\ncomputes the objectives of reinforcement learning for language models, each with its exact gradient,\n"
                  "samples from models and scores texts with them,\n"
                  "and trains them with token budgets, trust regions and KL to a reference.\n"
                  "Data goes to standard output, everything else to standard error.\n"
                  ".SH COMMANDS\n");
    for (size_t i = 0; (command = cli_command_at(i)); i++) {
        rein_text_format(out, ".TP\n.B %s\n", command->name);
        escaped(out, command->summary);
        rein_text_put(out, "\n");
    }
    rein_text_put(out, ".SH OPTIONS\n.TP\n.B \\-\\-help\nshow the help; after a command, the help of the command\n"
                       ".TP\n.B \\-\\-version\nprint the version\n");
    for (size_t i = 0; (command = cli_command_at(i)); i++) command_page(out, command);
    settings_page(out);
    rein_text_put(out,
                  ".SH EXIT STATUS\n.TP\n.B 0\nsuccess\n.TP\n.B 1\nfailure: no memory, a result that is not finite, or an output "
                  "that could not be written\n"
                  ".TP\n.B 2\nwrong usage or input; one line on standard error says what and where\n"
                  ".SH ENVIRONMENT\n.TP\n.B REIN_KERNEL\n\\fBref\\fR: compute without vector instructions: the same "
                  "result, slower\n"
                  ".TP\n.B NO_COLOR\nno colours, even on a terminal\n");
}
