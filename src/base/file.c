/* file.c - files. Errors name the file; a file that is written appears whole or not at all. */
#define _DEFAULT_SOURCE
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "directory.h"

enum {
    TRIES = 100,                  /* temporary names taken by others before giving up */
    LARGEST_WRITE = 1 << 30,      /* Linux writes at most 2 GB - 4 KB at a time */
    SUFFIX = sizeof ".-.tmp" + 40 /* of a temporary name: two numbers */
};

const char *rein_path_show(char to[REIN_PATH_SHOWN], const char *path) {
    static const char ellipsis[] = "…";
    const size_t length = strlen(path);
    if (length < REIN_PATH_SHOWN) return memcpy(to, path, length + 1);
    const char *tail = path + length - (REIN_PATH_SHOWN - sizeof ellipsis);
    while (((unsigned char)*tail & 0xC0) == 0x80) tail++; /* cut between characters */
    snprintf(to, REIN_PATH_SHOWN, "%s%s", ellipsis, tail);
    return to;
}

/* The machine fails, and not the name of the file. */
static int is_of_system(int code) {
    static const int all[] = {EIO, ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE, EAGAIN, EPIPE, ESTALE};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] == code) return 1;
    return 0;
}

rein_status rein_file_error(rein_error *err, const char *path, const char *what) {
    const int code = errno;
    char shown[REIN_PATH_SHOWN], reason[120];
    if (code == ENOMEM) return rein_fail(err, REIN_ENOMEM, "%s: out of memory", rein_path_show(shown, path));
    if (strerror_r(code, reason, sizeof reason) != 0) snprintf(reason, sizeof reason, "error %d", code);
    const rein_status status = is_of_system(code) ? REIN_ESYSTEM : REIN_EIO;
    rein_fail(err, status, "%s: %s: %s", rein_path_show(shown, path), what, reason);
    if (err) err->system = code;
    return status;
}

/* What has this name. A machine that fails is asked again: on a network a second look may succeed. */
static int look(struct stat *about, const char *path) {
    return stat(path, about) == 0 || (is_of_system(errno) && stat(path, about) == 0) ? 0 : -1;
}

/* If the system cannot tell, the answer is 1: the caller then opens the file, and reports why that fails. With 0 it would begin a new run in
 * place of the existing one. */
int rein_file_exists(const char *path) {
    struct stat about;
    return look(&about, path) == 0 || is_of_system(errno);
}

int rein_directory_has(const char *directory, const char *name) {
    char path[PATH_MAX + 256]; /* what does not fit is too long for the system too */
    return snprintf(path, sizeof path, "%s/%s", directory, name) < (int)sizeof path && rein_file_exists(path);
}

int rein_file_is_directory(const char *path) {
    struct stat about;
    return look(&about, path) == 0 ? S_ISDIR(about.st_mode) : is_of_system(errno);
}

char *rein_path_join(const char *directory, const char *name) {
    const size_t size = strlen(directory) + strlen(name) + 2;
    char *path = malloc(size);
    if (path) snprintf(path, size, "%s/%s", directory, name);
    return path;
}

/* -------------------------------------------------------------------------------------------------------------------- reading */

static rein_status map_open_file(rein_file *file, int fd, const char *path, rein_error *err) {
    struct stat about;
    char shown[REIN_PATH_SHOWN];
    if (fstat(fd, &about) != 0) return rein_file_error(err, path, "cannot be read");
    if (!S_ISREG(about.st_mode)) return rein_fail(err, REIN_EIO, "%s is not a regular file", rein_path_show(shown, path));
    if ((uintmax_t)about.st_size > SIZE_MAX / 2) return rein_fail(err, REIN_EIO, "%s is too large", rein_path_show(shown, path));
    *file = (rein_file){(const unsigned char *)"", (size_t)about.st_size, 0};
    if (file->size == 0) return REIN_OK; /* nothing can be mapped */
    void *data = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        *file = (rein_file){0};
        return rein_file_error(err, path, "cannot be mapped");
    }
    *file = (rein_file){data, file->size, 1};
    return REIN_OK;
}

rein_status rein_file_map(rein_file *file, const char *path, rein_error *err) {
    *file = (rein_file){0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* so that a pipe of that name does not block */
    if (fd < 0) return rein_file_error(err, path, "cannot be opened");
    const rein_status status = map_open_file(file, fd, path, err);
    close(fd);
    return status;
}

void rein_file_forget(const rein_file *file) {
    if (file->mapped) (void)madvise((void *)(uintptr_t)file->data, file->size, MADV_DONTNEED);
}

void rein_file_unmap(rein_file *file) {
    if (file->mapped) munmap((void *)(uintptr_t)file->data, file->size);
    *file = (rein_file){0};
}

/* Reads at most `size` bytes into data; 0, or -1 with errno. */
static int read_bytes(char *data, size_t *size, int fd) {
    for (size_t at = 0; at < *size;) {
        const ssize_t n = read(fd, data + at, *size - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) *size = at;
        at += (size_t)n;
    }
    data[*size] = 0;
    return 0;
}

int rein_file_read(char **data, size_t *size, const char *path) { return rein_file_read_most(data, size, path, SIZE_MAX / 2); }

int rein_file_read_most(char **data, size_t *size, const char *path, size_t most) {
    struct stat about;
    *data = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return -1;
    int result = fstat(fd, &about);
    if (result == 0 && !S_ISREG(about.st_mode)) errno = S_ISDIR(about.st_mode) ? EISDIR : EINVAL, result = -1;
    if (result == 0 && (uintmax_t)about.st_size > most) errno = EFBIG, result = -1;
    if (result == 0) {
        *size = (size_t)about.st_size;
        *data = malloc(*size + 1);
        if (!*data) errno = ENOMEM, result = -1;
    }
    if (result == 0) result = read_bytes(*data, size, fd);
    const int code = errno;
    close(fd);
    if (result != 0) free(*data), *data = NULL;
    errno = code;
    return result;
}

/* -------------------------------------------------------------------------------------------------------------------- writing */

/* The directory part of a path, for the caller to free. */
static char *directory_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) path = ".", slash = path + 1;
    else if (slash == path) slash++; /* the root */
    const size_t length = (size_t)(slash - path);
    char *directory = malloc(length + 1);
    if (!directory) return NULL;
    memcpy(directory, path, length);
    directory[length] = 0;
    return directory;
}

/* Opens DIRECTORY/.NAME-PROCESS-TRY.tmp. Not mkstemp: the file gets the permissions of the user's umask. */
static rein_status open_temporary(rein_writer *writer, size_t size, rein_error *err) {
    const char *slash = strrchr(writer->path, '/');
    const char *name = slash ? slash + 1 : writer->path;
    for (int i = 0; i < TRIES; i++) {
        snprintf(writer->temporary, size, "%.*s.%s-%ld-%d.tmp", (int)(name - writer->path), writer->path, name, (long)getpid(), i);
        writer->fd = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (writer->fd >= 0) return REIN_OK;
        if (errno != EEXIST) break;
    }
    const rein_status status = rein_file_error(err, writer->path, "cannot be written");
    free(writer->temporary); /* not ours: it must not be removed */
    writer->temporary = NULL;
    return status;
}

/* Renaming would replace a pipe or a device by a file. A name that cannot be looked up is left to the calls that follow. */
static rein_status check_target(const char *path, rein_error *err) {
    struct stat about;
    char shown[REIN_PATH_SHOWN];
    if (look(&about, path) != 0 || S_ISREG(about.st_mode)) return REIN_OK;
    return rein_fail(err, REIN_EINVAL, "%s is not a regular file: only a regular file is replaced", rein_path_show(shown, path));
}

rein_status rein_writer_open(rein_writer *writer, const char *path, rein_error *err) {
    const size_t length = strlen(path), size = length + SUFFIX;
    *writer = (rein_writer){.fd = -1};
    rein_status status = check_target(path, err);
    if (status) return status;
    *writer = (rein_writer){.path = malloc(length + 1), .temporary = malloc(size), .fd = -1};
    if (!writer->path || !writer->temporary) {
        free(writer->temporary);
        writer->temporary = NULL;
        rein_writer_abandon(writer);
        return rein_no_memory(err);
    }
    memcpy(writer->path, path, length + 1);
    status = open_temporary(writer, size, err);
    if (status) rein_writer_abandon(writer);
    return status;
}

rein_status rein_writer_put(rein_writer *writer, const void *data, size_t size, rein_error *err) {
    const unsigned char *from = data;
    if (!writer->path) return rein_fail(err, REIN_EINVAL, "a file is written to after it failed or was committed");
    while (size > 0) {
        const ssize_t done = write(writer->fd, from, size < LARGEST_WRITE ? size : LARGEST_WRITE);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            if (done == 0) errno = ENOSPC;
            const rein_status status = rein_file_error(err, writer->path, "cannot be written");
            rein_writer_abandon(writer);
            return status;
        }
        from += done;
        size -= (size_t)done;
    }
    return REIN_OK;
}

static rein_status finish(rein_writer *writer, const char *directory, rein_error *err) {
    const int fd = writer->fd;
    if (fsync(fd) != 0) return rein_file_error(err, writer->path, "cannot be written");
    writer->fd = -1;
    if (close(fd) != 0) return rein_file_error(err, writer->path, "cannot be written");
    const rein_status status = check_target(writer->path, err); /* again: it may have been made since */
    if (status) return status;
    if (rename(writer->temporary, writer->path) != 0) return rein_file_error(err, writer->path, "cannot be replaced");
    free(writer->temporary);
    writer->temporary = NULL;
    if (rein_directory_sync(directory) != 0)
        return rein_file_error(err, writer->path, "is written, but its directory cannot be synchronised");
    return REIN_OK;
}

rein_status rein_writer_commit(rein_writer *writer, rein_error *err) {
    if (!writer->path) return rein_fail(err, REIN_EINVAL, "a file is committed after it failed or was committed");
    char *directory = directory_of(writer->path);
    const rein_status status = directory ? finish(writer, directory, err) : rein_no_memory(err);
    free(directory);
    rein_writer_abandon(writer);
    return status;
}

void rein_writer_abandon(rein_writer *writer) {
    if (!writer->path) return;
    if (writer->fd >= 0) close(writer->fd);
    if (writer->temporary) unlink(writer->temporary);
    free(writer->temporary);
    free(writer->path);
    *writer = (rein_writer){.fd = -1};
}

rein_status rein_file_write(const char *path, const void *data, size_t size, rein_error *err) {
    rein_writer writer;
    rein_status status = rein_writer_open(&writer, path, err);
    if (!status) status = rein_writer_put(&writer, data, size, err);
    if (!status) status = rein_writer_commit(&writer, err);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------- directories */

static rein_status make_directory(const char *path, rein_error *err) {
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && rein_file_is_directory(path))) return REIN_OK;
    return rein_file_error(err, path, "the directory cannot be made");
}

rein_status rein_make_directories(const char *path, rein_error *err) {
    const size_t length = strlen(path);
    char *part = malloc(length + 1);
    rein_status status = REIN_OK;
    if (!part) return rein_no_memory(err);
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length && !status; i++) {
        if (part[i] && part[i] != '/') continue;
        const char kept = part[i];
        part[i] = 0;
        if (part[i - 1] != '/') status = make_directory(part, err);
        part[i] = kept;
    }
    if (length == 0) status = rein_fail(err, REIN_EINVAL, "the name of a directory is empty");
    free(part);
    return status;
}
