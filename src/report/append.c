/* append.c - each addition is one write; a write that fails part of the way is cut off again. */
#include "append.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

rein_status rein_append_open(int *fd, const char *path, int fresh, rein_error *err) {
    *fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | (fresh ? O_EXCL : 0), 0666);
    return *fd < 0 ? rein_file_error(err, path, "cannot be written") : REIN_OK;
}

/* 0, or -1 with errno. */
static int write_all(int fd, const unsigned char *data, size_t size) {
    while (size > 0) {
        const ssize_t done = write(fd, data, size);
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = ENOSPC;
        if (done <= 0) return -1;
        data += done;
        size -= (size_t)done;
    }
    return 0;
}

rein_status rein_append(int fd, const char *path, const void *data, size_t size, rein_error *err) {
    const off_t before = lseek(fd, 0, SEEK_END);
    if (before < 0) return rein_file_error(err, path, "cannot be written");
    if (write_all(fd, data, size) == 0) return REIN_OK;
    const rein_status status = rein_file_error(err, path, "cannot be written");
    while (ftruncate(fd, before) != 0 && errno == EINTR) continue;
    return status;
}
