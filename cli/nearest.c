/* nearest.c - the library's nearest name, over a list that is given by a function. */
#include "nearest.h"

#include "rein/base.h"

enum { MOST = 256 };

const char *rein_cli_nearest(const char *word, const char *(*at)(const void *list, size_t i), const void *list) {
    const char *names[MOST + 1] = {NULL};
    for (size_t i = 0; i < MOST && (names[i] = at(list, i)); i++) {
    }
    return rein_nearest(word, names);
}
