/* terminal.c - stdout and stderr. A message is one line whatever the input that it quotes contains. */
#include "terminal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes of the valid UTF-8 character at s that is fit to print, or 0. */
static size_t printable(const unsigned char *s) {
    if (s[0] >= 0x20 && s[0] < 0x7F) return 1;
    size_t n = s[0] >= 0xC3 && s[0] < 0xE0 ? 2 : s[0] >= 0xE0 && s[0] < 0xF0 ? 3 : s[0] >= 0xF0 && s[0] < 0xF5 ? 4 : 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
    }
    return n;
}

int rein_say(int status, const char *where, const char *format, ...) {
    char text[1024], line[1024];
    size_t n = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t bytes = printable(s);
        if (bytes) memcpy(line + n, s, bytes);
        else line[n] = '?';
        n += bytes ? bytes : 1;
        s += bytes ? bytes : 1;
    }
    fflush(stdout);
    fprintf(stderr, "rein%s%s: %.*s\n", *where ? " " : "", where, (int)n, line);
    return status;
}

int rein_print(rein_text *out) {
    int status = REIN_DONE;
    errno = 0;
    if (out->failed) status = rein_say(REIN_FAILED, "", "out of memory");
    else if (fwrite(out->data ? out->data : "", 1, out->length, stdout) != out->length || fflush(stdout))
        status = rein_say(REIN_FAILED, "", "cannot write to stdout: %s", strerror(errno));
    rein_text_free(out);
    return status;
}

int rein_colours(void) {
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(no && *no) && !(term && !strcmp(term, "dumb"));
}
