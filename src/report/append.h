/* append.h - files that grow at their end: each addition is there whole, or the file is as it was. Private.
 *
 * Bytes go to the system in one write and survive the end of the process; nothing is synchronised to the disk, so a power cut can leave
 * a torn tail. Readers of such files must stand that. */
#ifndef REIN_REPORT_APPEND_H
#define REIN_REPORT_APPEND_H

#include "rein/base.h"

/* Opens a file to append to. fresh: there must be none of that name yet. The caller closes *fd; it is -1 on failure. */
rein_status rein_append_open(int *fd, const char *path, int fresh, rein_error *err);

/* Adds the bytes at the end; after a failure (a full disk) the file is cut back to what it was. `path` is for the message. */
rein_status rein_append(int fd, const char *path, const void *data, size_t size, rein_error *err);

/* "PATH: WHAT: REASON", the reason from errno; returns the status. */
rein_status rein_append_error(rein_error *err, const char *path, const char *what);

#endif
