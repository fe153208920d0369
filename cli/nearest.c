/* nearest.c - the library's search for the nearest name, over a list that is given by a function. */
#include "nearest.h"

#include "rein/base.h"
#include "terminal.h"

enum { MOST = 256 };

const char *cli_nearest(const char *word, const char *(*at)(size_t i)) {
    const char *names[MOST + 1] = {NULL};
    for (size_t i = 0; i < MOST && (names[i] = at(i)); i++) {
    }
    return rein_nearest(word, names);
}

int cli_say_unknown(const char *where, const char *what, const char *word, const char *(*at)(size_t i), const char *help) {
    const char *nearest = cli_nearest(word, at);
    if (nearest) return cli_say(CLI_WRONG, where, "unknown %s \"%s\": did you mean \"%s\"?", what, word, nearest);
    return cli_say(CLI_WRONG, where, "unknown %s \"%s\": %s", what, word, help);
}
