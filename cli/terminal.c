/* terminal.c - stdout and stderr. A message stays one line, whatever input it quotes. */
#include "terminal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rein/json.h"

enum { LINE = 1024 };

static int json_errors; /* set once, before the command runs */

/* The length of the printable UTF-8 character at s, or 0. */
static size_t printable(const unsigned char *s) {
    if (s[0] >= 0x20 && s[0] < 0x7F) return 1;
    size_t n = s[0] >= 0xC3 && s[0] < 0xE0 ? 2 : s[0] >= 0xE0 && s[0] < 0xF0 ? 3 : s[0] >= 0xF0 && s[0] < 0xF5 ? 4 : 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
    }
    return n;
}

/* The text with ? in place of each byte that is not printable. */
static const char *clean(char line[LINE], const char *text) {
    size_t n = 0;
    for (const unsigned char *s = (const unsigned char *)text; *s && n + 5 < LINE;) {
        const size_t bytes = printable(s);
        if (bytes) memcpy(line + n, s, bytes);
        else line[n] = '?';
        n += bytes ? bytes : 1;
        s += bytes ? bytes : 1;
    }
    line[n] = 0;
    return line;
}

static void print_json(const rein_error *err) {
    rein_error shown = *err;
    rein_text out = {0};
    char line[LINE];
    snprintf(shown.message, sizeof shown.message, "%s", clean(line, err->message));
    snprintf(shown.field, sizeof shown.field, "%s", clean(line, err->field));
    rein_text_put(&out, "{\"error\": ");
    rein_json_put_error(&out, &shown);
    rein_text_put(&out, "}\n");
    if (!out.failed) fwrite(out.data, 1, out.length, stderr);
    rein_text_free(&out);
}

static int print_line(int status, const char *where, const char *text) {
    char line[LINE];
    fflush(stdout);
    fprintf(stderr, "rein%s%s: %s\n", *where ? " " : "", where, clean(line, text));
    return status;
}

void cli_errors_as_json(void) { json_errors = 1; }

int cli_say(int status, const char *where, const char *format, ...) {
    char text[LINE];
    rein_error err;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (status == CLI_DONE || !json_errors) return print_line(status, where, text);
    rein_fail(&err, status == CLI_WRONG ? REIN_EINVAL : REIN_EIO, "%s", text);
    return cli_say_failure(status, where, &err);
}

int cli_say_failure(int status, const char *where, const rein_error *err) {
    if (!json_errors) return print_line(status, where, err->message);
    fflush(stdout);
    print_json(err);
    return status;
}

int cli_say_error(const char *where, const rein_error *err) {
    const int failed = err->code == REIN_ENOMEM || err->code == REIN_ERANGE || err->code == REIN_END;
    return cli_say_failure(failed ? CLI_FAILED : CLI_WRONG, where, err);
}

int cli_say_option(const char *where, const char *name, const char *format, ...) {
    char reason[LINE], option[80];
    rein_error err;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    snprintf(option, sizeof option, "--%s", name);
    rein_fail_at(&err, REIN_EINVAL, option, -1, "%s", reason);
    return cli_say_error(where, &err);
}

int cli_say_no_memory(const char *where) {
    rein_error err;
    rein_fail(&err, REIN_ENOMEM, "out of memory");
    return cli_say_error(where, &err);
}

int cli_print(rein_text *out) {
    int status = CLI_DONE;
    errno = 0;
    if (out->failed) status = cli_say_no_memory("");
    else if (fwrite(out->data ? out->data : "", 1, out->length, stdout) != out->length || fflush(stdout))
        status = cli_say(CLI_FAILED, "", "cannot write to stdout: %s", strerror(errno));
    rein_text_free(out);
    return status;
}

int cli_print_result(rein_text *out, int status) {
    if (!status) return cli_print(out);
    rein_text_free(out);
    return status;
}

int cli_is_terminal(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) && !(term && !strcmp(term, "dumb"));
}

int cli_has_colours(int fd) {
    const char *no = getenv("NO_COLOR");
    return cli_is_terminal(fd) && !(no && *no);
}
