/* append.h - files that grow at their end: an addition is written completely, or the file is unchanged. Private.
 *
 * Bytes go to the system in one write, so they survive a crash of the process. They are not synchronised to the disk: a power cut can
 * leave an incomplete last record, which readers of such files must expect. */
#ifndef REIN_REPORT_APPEND_H
#define REIN_REPORT_APPEND_H

#include "rein/base.h"

/* Opens a file to append to. fresh: fail if the file exists. The caller closes *fd; it is -1 on failure. */
rein_status rein_append_open(int *fd, const char *path, int fresh, rein_error *err);

/* Adds the bytes at the end. After a failure, such as a full disk, the file has its previous content. `path` is for the message. */
rein_status rein_append(int fd, const char *path, const void *data, size_t size, rein_error *err);

#endif
