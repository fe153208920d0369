/* directory.h - directories: listed, made durable, removed. Private. */
#ifndef REIN_BASE_DIRECTORY_H
#define REIN_BASE_DIRECTORY_H

#include "base.h"

/* Names, sorted by their bytes. {0} is empty. */
typedef struct rein_names {
    char **at;
    size_t n, capacity;
} rein_names;

/* The names in a directory, hidden ones too, without . and .. The caller frees *names, also after a failure. Thread-safe. */
rein_status rein_directory_list(rein_names *names, const char *path, rein_error *err);

/* Appends a copy of a name; the list is not sorted by it. */
rein_status rein_names_add(rein_names *names, const char *name, rein_error *err);

/* Harmless on {0}. */
void rein_names_free(rein_names *names);

/* Makes the names in a directory durable: those made, changed and removed. 0, or -1 with errno. A file system that does not support this
 * is not an error. Thread-safe. */
int rein_directory_sync(const char *path);

/* Removes a file, or a directory with everything in it; of a link the link itself, not its target. Fine if nothing has that name. After a
 * failure a part may be gone. */
rein_status rein_remove_all(const char *path, rein_error *err);

#endif
