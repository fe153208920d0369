/* input.c - reads whole files, up to 1 GiB. */
#include "input.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "terminal.h"

static const size_t LIMIT = (size_t)1 << 30; /* bytes */

static int read_stream(rein_text *text, FILE *file, const char *where, const char *name) {
    char piece[65536];
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, file)) > 0 && text->length <= LIMIT) rein_text_put_bytes(text, piece, n);
    if (ferror(file)) return cli_say(CLI_WRONG, where, "cannot read %s: %s", name, strerror(errno));
    if (text->length > LIMIT) return cli_say(CLI_WRONG, where, "%s is longer than 1 GiB: give a smaller file", name);
    rein_text_put(text, ""); /* so that data is not NULL */
    if (text->failed) return cli_say_no_memory(where);
    return CLI_DONE;
}

int cli_read_input(rein_text *text, const char *path, const char *what, const char *where) {
    if (!path || !strcmp(path, "-")) {
        if (isatty(STDIN_FILENO)) cli_say(0, where, "reading %s from the terminal; Ctrl-D ends the input", what);
        return read_stream(text, stdin, where, "standard input");
    }
    FILE *file = fopen(path, "rb");
    if (!file) return cli_say(CLI_WRONG, where, "cannot open \"%s\": %s", path, strerror(errno));
    const int status = read_stream(text, file, where, path);
    fclose(file);
    return status;
}

int cli_read_text(rein_text *text, const char *path, const char *what, const char *where) {
    const int status = cli_read_input(text, path, what, where);
    if (!status && text->length && text->data[text->length - 1] == '\n') text->data[--text->length] = 0;
    return status;
}
