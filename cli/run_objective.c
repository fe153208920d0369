/* run_objective.c - the process around rein_cli_objective: words, input, output, exit status. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "help.h"
#include "objective.h"
#include "terminal.h"

static const size_t LIMIT = (size_t)1 << 30; /* bytes of JSON: far beyond what one call is for */

static int read_stream(rein_out *text, FILE *file, const char *where, const char *name) {
    char piece[65536];
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, file)) > 0 && text->length <= LIMIT) rein_out_bytes(text, piece, n);
    if (ferror(file)) return rein_say(REIN_WRONG, where, "cannot read %s: %s", name, strerror(errno));
    if (text->length > LIMIT) return rein_say(REIN_WRONG, where, "%s is longer than 1 GiB: that is too much for one call", name);
    if (text->failed) return rein_say(REIN_FAILED, where, "out of memory");
    return REIN_DONE;
}

static int read_input(rein_out *text, const char *path, const char *where) {
    if (!path || !strcmp(path, "-")) {
        if (isatty(STDIN_FILENO)) rein_say(0, where, "reading a JSON object from the terminal; Ctrl-D ends it");
        return read_stream(text, stdin, where, "standard input");
    }
    FILE *file = fopen(path, "rb");
    if (!file) return rein_say(REIN_WRONG, where, "cannot open \"%s\": %s", path, strerror(errno));
    int status = read_stream(text, file, where, path);
    fclose(file);
    return status;
}

static int read_threads(const char *text, int *threads) {
    char *end;
    if (!text) return REIN_DONE;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 1 || n > 256)
        return rein_say(REIN_WRONG, "objective", "--threads is \"%s\": a whole number from 1 to 256 is needed", text);
    *threads = (int)n;
    return REIN_DONE;
}

int rein_run_objective(const rein_args *args) {
    rein_exec exec = {0};
    rein_error err = {0};
    rein_out text = {0}, out = {0};
    char where[64];
    int grad = rein_option_value(args, "grad") != NULL;
    int status = read_threads(rein_option_value(args, "threads"), &exec.threads);
    if (status) return status;
    if (!args->n_words)
        return rein_say(REIN_WRONG, "objective",
                        "a name is needed: budget-loss, gpo, rlhf-update, kl-advantage, budget-control or policy-loss");
    const rein_operation *operation = rein_operation_named(args->words[0]);
    snprintf(where, sizeof where, "objective%s%s", operation ? " " : "", operation ? operation->name : "");
    if (operation && !(grad && !operation->gradients)) status = read_input(&text, args->n_words > 1 ? args->words[1] : NULL, where);
    if (!status) {
        status = rein_cli_objective(args->words[0], text.data ? text.data : "", text.length, grad, &exec, &out, &err);
        if (err.message[0]) rein_say(status, where, "%s", err.message);
    }
    rein_out_free(&text);
    if (!status) return rein_print(&out);
    rein_out_free(&out);
    return status;
}
