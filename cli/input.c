/* input.c - reads whole files, up to 1 GiB. */
#include "input.h"

#include <string.h>
#include <unistd.h>

#include "terminal.h"

static const size_t LIMIT = (size_t)1 << 30, LONGEST_LINE = (size_t)256 << 20; /* bytes */

static int is_standard(const char *path) { return !path || !strcmp(path, "-"); }

const char *cli_input_name(const char *path) { return is_standard(path) ? "standard input" : path; }

int cli_open_input(FILE **file, const char *path, const char *what, const char *where) {
    *file = is_standard(path) ? stdin : fopen(path, "rb");
    if (!*file) return cli_say_errno(where, "cannot open \"%s\"", cli_input_name(path));
    if (*file == stdin && isatty(STDIN_FILENO))
        cli_say(CLI_DONE, where, "reading %s from the terminal; Ctrl-D ends the input", what);
    return CLI_DONE;
}

void cli_close_input(FILE *file) {
    if (file != stdin) fclose(file);
}

int cli_read_line(rein_text *line, int *ended, FILE *file, size_t number, const char *name, const char *where) {
    char piece[4096];
    size_t n = 0;
    int c = 0;
    line->length = 0;
    while (c != '\n' && c != EOF && line->length <= LONGEST_LINE && !line->failed) {
        c = getc(file);
        if (c != '\n' && c != EOF) piece[n++] = (char)c;
        if (n == sizeof piece || c == '\n' || c == EOF) rein_text_put_bytes(line, piece, n), n = 0;
    }
    *ended = c == EOF && !line->length;
    if (ferror(file)) return cli_say_errno(where, "cannot read %s", name);
    if (line->length > LONGEST_LINE) return cli_say(CLI_WRONG, where, "%s: line %zu is longer than 256 MB", name, number);
    return line->failed ? cli_say_no_memory(where) : CLI_DONE;
}

static int read_stream(rein_text *text, FILE *file, const char *where, const char *name) {
    char piece[8192]; /* on a stack that may be small */
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, file)) > 0 && text->length <= LIMIT) rein_text_put_bytes(text, piece, n);
    if (ferror(file)) return cli_say_errno(where, "cannot read %s", name);
    if (text->length > LIMIT) return cli_say(CLI_WRONG, where, "%s is longer than 1 GiB: give a smaller file", name);
    rein_text_put(text, ""); /* so that data is not NULL */
    return text->failed ? cli_say_no_memory(where) : CLI_DONE;
}

int cli_read_input(rein_text *text, const char *path, const char *what, const char *where) {
    FILE *file;
    int status = cli_open_input(&file, path, what, where);
    if (status) return status;
    status = read_stream(text, file, where, cli_input_name(path));
    cli_close_input(file);
    return status;
}

int cli_read_text(rein_text *text, const char *path, const char *what, const char *where) {
    const int status = cli_read_input(text, path, what, where);
    if (!status && text->length && text->data[text->length - 1] == '\n') text->data[--text->length] = 0;
    return status;
}
