/* directory.c - directories: listed, made durable, removed. Lists are sorted, so that no result depends on the order of a file system. */
#include "directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"

void rein_names_free(rein_names *names) {
    for (size_t i = 0; i < names->n; i++) free(names->at[i]);
    free(names->at);
    *names = (rein_names){0};
}

rein_status rein_names_add(rein_names *names, const char *name, rein_error *err) {
    if (names->n == names->capacity) {
        const size_t capacity = names->capacity ? 2 * names->capacity : 16;
        char **at = realloc(names->at, capacity * sizeof *at);
        if (!at) return rein_no_memory(err);
        names->at = at;
        names->capacity = capacity;
    }
    const size_t size = strlen(name) + 1;
    char *copy = malloc(size);
    if (!copy) return rein_no_memory(err);
    names->at[names->n++] = memcpy(copy, name, size);
    return REIN_OK;
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

rein_status rein_directory_list(rein_names *names, const char *path, rein_error *err) {
    *names = (rein_names){0};
    DIR *directory = opendir(path);
    if (!directory) return rein_file_error(err, path, "the directory cannot be opened");
    rein_status status = REIN_OK;
    while (!status) {
        errno = 0;
        const struct dirent *entry = readdir(directory);
        if (!entry && errno) status = rein_file_error(err, path, "the directory cannot be read");
        if (!entry) break;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) status = rein_names_add(names, entry->d_name, err);
    }
    closedir(directory);
    if (names->n) qsort(names->at, names->n, sizeof *names->at, by_bytes);
    return status;
}

int rein_directory_sync(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    const int result = fsync(fd), code = errno;
    close(fd);
    errno = code;
    return result == 0 || code == EINVAL || code == ENOTSUP ? 0 : -1;
}

static rein_status remove_names(const char *path, rein_error *err) {
    rein_names names;
    rein_status status = rein_directory_list(&names, path, err);
    for (size_t i = 0; i < names.n && !status; i++) {
        char *below = rein_path_join(path, names.at[i]);
        status = below ? rein_remove_all(below, err) : rein_no_memory(err);
        free(below);
    }
    rein_names_free(&names);
    return status;
}

rein_status rein_remove_all(const char *path, rein_error *err) {
    struct stat about;
    if (lstat(path, &about) != 0) return errno == ENOENT ? REIN_OK : rein_file_error(err, path, "cannot be removed");
    const int directory = S_ISDIR(about.st_mode);
    const rein_status status = directory ? remove_names(path, err) : REIN_OK;
    if (status) return status;
    if ((directory ? rmdir(path) : unlink(path)) != 0) return rein_file_error(err, path, "cannot be removed");
    return REIN_OK;
}
