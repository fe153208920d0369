/* made.h - settings and options for tests. They live until the process ends. */
#ifndef REIN_TESTS_MADE_H
#define REIN_TESTS_MADE_H

#include <stdlib.h>

#include "train/settings.h"

/* Keeps memory reachable, so that it is not reported as a leak. */
static inline void *kept(void *memory) {
    static struct link {
        struct link *next;
        void *memory;
    } * first;
    struct link *made = malloc(sizeof *made);
    if (!made || !memory) abort();
    *made = (struct link){first, memory};
    first = made;
    return memory;
}

static inline rein_settings *new_settings(void) {
    rein_settings *s;
    return rein_settings_new(&s, NULL) ? NULL : kept(s);
}

static inline rein_settings *copy_settings(const rein_settings *from) {
    rein_settings *s;
    return rein_settings_copy(&s, from, NULL) ? NULL : kept(s);
}

#endif
