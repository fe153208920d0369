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
static char last_failure[LINE];

/* ---------------------------------------------------------------------------------------------------------------- characters */

/* The character at s [n > 0] and its length: 1 for a byte that is not UTF-8, which is then -1. */
static size_t decode(int32_t *c, const unsigned char *s, size_t n) {
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t length = s[0] < 0x80 ? 1 : s[0] < 0xC0 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF8 ? 4 : 0;
    *c = length == 1 ? s[0] : s[0] & (0x7F >> length);
    for (size_t i = 1; i < length && *c >= 0; i++) *c = i < n && (s[i] & 0xC0) == 0x80 ? *c << 6 | (s[i] & 0x3F) : -1;
    if (!length || *c < least[length] || *c > 0x10FFFF || (*c >= 0xD800 && *c < 0xE000)) *c = -1;
    return *c < 0 ? 1 : length;
}

/* Control characters would move the cursor of a terminal, or worse. */
static int is_printable(int32_t c) { return c >= 0x20 && !(c >= 0x7F && c < 0xA0); }

/* The text with ? in place of each control character and each byte that is not UTF-8. */
static const char *clean(char line[LINE], const char *text) {
    const size_t length = strlen(text);
    size_t n = 0, bytes;
    int32_t c;
    for (size_t at = 0; at < length && n + 5 < LINE; at += bytes) {
        bytes = decode(&c, (const unsigned char *)text + at, length - at);
        if (is_printable(c)) memcpy(line + n, text + at, bytes), n += bytes;
        else line[n++] = '?';
    }
    line[n] = 0;
    return line;
}

/* The bytes of a colour of ours at s [n], or 0. */
static size_t colour_at(const char *s, size_t n) {
    static const char *const colours[] = {CLI_GREEN, CLI_PLAIN};
    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
        if (n >= strlen(colours[i]) && !memcmp(s, colours[i], strlen(colours[i]))) return strlen(colours[i]);
    return 0;
}

static void show(rein_text *to, const char *text, size_t length, int colours) {
    size_t bytes;
    int32_t c;
    for (size_t at = 0; at < length; at += bytes) {
        bytes = decode(&c, (const unsigned char *)text + at, length - at);
        const size_t colour = colours && c == '\033' ? colour_at(text + at, length - at) : 0;
        if (colour) bytes = colour;
        if (colour || is_printable(c) || c == '\n' || c == '\t') rein_text_put_bytes(to, text + at, bytes);
        else rein_text_format(to, c < 0x80 ? "\\x%02x" : "\\u%04x", c < 0 ? (unsigned)(unsigned char)text[at] : (unsigned)c);
    }
}

void cli_show(rein_text *to, const char *text, size_t length) { show(to, text, length, 0); }

/* ------------------------------------------------------------------------------------------------------------------ messages */

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

static int remember(int status, const char *text) {
    if (status != CLI_DONE) snprintf(last_failure, sizeof last_failure, "%s", text);
    return status;
}

const char *cli_last_failure(void) { return last_failure; }

void cli_errors_as_json(void) { json_errors = 1; }

int cli_say(int status, const char *where, const char *format, ...) {
    char text[LINE];
    rein_error err;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    remember(status, text);
    if (status == CLI_DONE || !json_errors) return print_line(status, where, text);
    rein_fail(&err, status == CLI_WRONG ? REIN_EINVAL : REIN_EIO, "%s", text);
    return cli_say_failure(status, where, &err);
}

int cli_say_failure(int status, const char *where, const rein_error *err) {
    remember(status, err->message);
    if (!json_errors) return print_line(status, where, err->message);
    fflush(stdout);
    print_json(err);
    return status;
}

/* Failures that are not about the name of the file: another command line would not help. */
static int is_of_environment(int code) {
    static const int all[] = {EIO, ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE, ENOMEM, EAGAIN, EPIPE, ESTALE};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] == code) return 1;
    return 0;
}

int cli_say_error(const char *where, const rein_error *err) {
    const int wrong = err->code == REIN_EINVAL || err->code == REIN_EIO; /* what the user gave, not the machine */
    return cli_say_failure(wrong ? CLI_WRONG : CLI_FAILED, where, err);
}

int cli_say_errno(const char *where, const char *format, ...) {
    const int code = errno;
    char text[LINE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return cli_say(is_of_environment(code) ? CLI_FAILED : CLI_WRONG, where, "%s: %s", text, strerror(code));
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

int cli_say_option_error(const char *where, const char *name, const rein_error *err) {
    rein_error spelled = *err;
    char option[100];
    if (err->index < 0) snprintf(option, sizeof option, "--%s", name);
    else snprintf(option, sizeof option, "--%s[%lld]", name, (long long)err->index);
    rein_error_spelled(spelled.message, err, option);
    return cli_say_error(where, &spelled);
}

int cli_say_error_of(const char *where, const char *field, const rein_error *err) {
    rein_error named = *err;
    rein_fail_as(&named, err->code, field, -1, NULL);
    return cli_say_error(where, &named);
}

int cli_say_no_memory(const char *where) {
    rein_error err;
    rein_fail(&err, REIN_ENOMEM, "out of memory");
    return cli_say_error(where, &err);
}

/* ---------------------------------------------------------------------------------------------------------------------- data */

static int print(rein_text *out, int colours) {
    int status = CLI_DONE;
    rein_text shown = {0};
    const int terminal = isatty(STDOUT_FILENO);
    if (terminal && !out->failed) show(&shown, out->data ? out->data : "", out->length, colours);
    const rein_text *printed = terminal ? &shown : out;
    errno = 0;
    if (out->failed || shown.failed) status = cli_say_no_memory("");
    else if (fwrite(printed->data ? printed->data : "", 1, printed->length, stdout) != printed->length || fflush(stdout))
        status = cli_say(CLI_FAILED, "", "cannot write to stdout: %s", strerror(errno));
    rein_text_free(&shown);
    rein_text_free(out);
    return status;
}

int cli_print(rein_text *out) { return print(out, 0); }
int cli_print_coloured(rein_text *out) { return print(out, 1); }

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
