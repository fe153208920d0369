/* folder.h - a temporary folder for the files of one test program.
 * make_folder and remove_folder are cmocka's setup and teardown. The folder stands below $TMPDIR, unless that is so long that messages would
 * cut paths below it; else in /dev/shm, where syncing a file takes no time, else in /tmp. */
#ifndef REIN_TESTS_SUPPORT_FOLDER_H
#define REIN_TESTS_SUPPORT_FOLDER_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"

static char folder[256];

static inline int make_folder(void **state) {
    (void)state;
    const char *temporary = getenv("TMPDIR"), *memory = "/dev/shm";
    if (!temporary || strlen(temporary) > 60) temporary = access(memory, W_OK) == 0 ? memory : "/tmp";
    snprintf(folder, sizeof folder, "%s/rein-test-XXXXXX", temporary);
    return mkdtemp(folder) == NULL;
}

static inline int remove_folder(void **state) {
    (void)state;
    return rein_remove_all(folder, NULL) != REIN_OK;
}

/* A path below the folder, from a format. The last eight paths stay valid. */
static inline const char *in_folder_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline const char *in_folder_format(const char *format, ...) {
    static char path[8][1024];
    static int next;
    char *to = path[next++ % 8];
    const int n = snprintf(to, sizeof path[0], "%s/", folder);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(to + n, sizeof path[0] - (size_t)n, format, arguments);
    va_end(arguments);
    return to;
}

static inline const char *in_folder(const char *name) { return in_folder_format("%s", name); }

/* A new folder below it. */
static inline const char *sub_folder(const char *name) {
    const char *path = in_folder(name);
    if (mkdir(path, 0777) != 0) abort();
    return path;
}

#endif
