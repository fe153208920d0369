/* manifest.c - MANIFEST, written, read and checked. Files are read, not mapped: a bad sector is a reason to fall back, not to die. */
#include "manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"

enum { LARGEST_MANIFEST = 16 << 20 }; /* bytes: a checkpoint has some ten files */
enum { HASH_DIGITS = 16, MOST_SIZE_DIGITS = 18, LINE_EXTRA = MOST_SIZE_DIGITS + HASH_DIGITS + 3 };

void rein_manifest_free(rein_manifest *manifest) {
    for (size_t i = 0; i < manifest->n; i++) free(manifest->files[i].name);
    free(manifest->files);
    *manifest = (rein_manifest){0};
}

/* A name that can stand in a line, and that loading will not take for another directory's. */
static int part_is_plain(const char *part, size_t length) {
    if (!length || *part == '.' || (length == sizeof REIN_MANIFEST_NAME - 1 && !strncmp(part, REIN_MANIFEST_NAME, length)))
        return 0;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)part[i] < 32 || part[i] == 127 || part[i] == '/') return 0;
    return 1;
}

/* At most one folder. */
static int name_is_plain(const char *name) {
    const char *slash = strchr(name, '/');
    if (slash && !part_is_plain(name, (size_t)(slash - name))) return 0;
    const char *last = slash ? slash + 1 : name;
    return part_is_plain(last, strlen(last));
}

/* What a failure with this errno says about the file: that it is bad, or nothing. */
static rein_status cannot_be_read(const char *path, rein_error *err) {
    static const int all[] = {EIO, ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG, EFBIG, EINVAL}; /* the last: not a regular file */
    int bad = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) bad |= errno == all[i];
    const rein_status status = rein_file_error(err, path, "cannot be read");
    if (!bad) return status;
    if (err) err->code = REIN_EINVAL;
    return REIN_EINVAL;
}

/* -------------------------------------------------------------------------------------------------------------------- writing */

static rein_status hash_and_sync(rein_manifest_file *file, const char *path, rein_error *err) {
    struct stat about;
    char shown[REIN_PATH_SHOWN];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0) return rein_file_error(err, path, "cannot be opened");
    rein_status status = REIN_OK;
    if (fstat(fd, &about) != 0) status = rein_file_error(err, path, "cannot be read");
    else if (!S_ISREG(about.st_mode)) status = rein_fail(err, REIN_EINVAL, "%s is not a regular file", rein_path_show(shown, path));
    else if (fsync(fd) != 0) status = rein_file_error(err, path, "cannot be written");
    else if (rein_hash_descriptor(&file->hash, &file->size, fd) != 0) status = rein_file_error(err, path, "cannot be read");
    close(fd);
    return status;
}

/* Takes the name over from the list. */
static rein_status add_file(rein_manifest *manifest, char **name, const char *directory, rein_error *err) {
    char quoted[REIN_TEXT_SHOWN];
    if (!name_is_plain(*name))
        return rein_fail(err, REIN_EINVAL, "a file of a checkpoint cannot have the name %s", rein_json_quote(quoted, *name));
    rein_manifest_file *file = &manifest->files[manifest->n++];
    *file = (rein_manifest_file){.name = *name};
    *name = NULL;
    char *path = rein_path_join(directory, file->name);
    const rein_status status = path ? hash_and_sync(file, path, err) : rein_no_memory(err);
    free(path);
    return status;
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int is_folder(const char *path) {
    struct stat about;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* The names of the files in a folder, as FOLDER/NAME; the names in it become durable. */
static rein_status list_folder(rein_names *names, const char *path, const char *folder, rein_error *err) {
    rein_names below;
    char shown[REIN_PATH_SHOWN];
    rein_status status = rein_directory_list(&below, path, err);
    if (!status && below.n == 0)
        status = rein_fail(err, REIN_EINVAL, "%s: a folder of a checkpoint needs a file", rein_path_show(shown, path));
    for (size_t i = 0; i < below.n && !status; i++) {
        char *name = rein_path_join(folder, below.at[i]);
        status = name ? rein_names_add(names, name, err) : rein_no_memory(err);
        free(name);
    }
    rein_names_free(&below);
    if (!status && rein_directory_sync(path) != 0) status = rein_file_error(err, path, "the directory cannot be synchronised");
    return status;
}

/* The names of all files, sorted. */
static rein_status list_files(rein_names *names, const char *directory, rein_error *err) {
    rein_names top;
    rein_status status = rein_directory_list(&top, directory, err);
    *names = (rein_names){0};
    for (size_t i = 0; i < top.n && !status; i++) {
        char *path = rein_path_join(directory, top.at[i]);
        if (!path) status = rein_no_memory(err);
        else if (name_is_plain(top.at[i]) && is_folder(path)) status = list_folder(names, path, top.at[i], err);
        else status = rein_names_add(names, top.at[i], err);
        free(path);
    }
    rein_names_free(&top);
    if (names->n) qsort(names->at, names->n, sizeof *names->at, by_bytes);
    return status;
}

static rein_status add_files(rein_manifest *manifest, const char *directory, rein_error *err) {
    rein_names names;
    char shown[REIN_PATH_SHOWN];
    rein_status status = list_files(&names, directory, err);
    if (!status && names.n == 0)
        status = rein_fail(err, REIN_EINVAL, "%s: a checkpoint needs a file", rein_path_show(shown, directory));
    if (!status) {
        manifest->files = calloc(names.n, sizeof *manifest->files);
        if (!manifest->files) status = rein_no_memory(err);
    }
    for (size_t i = 0; i < names.n && !status; i++) status = add_file(manifest, &names.at[i], directory, err);
    rein_names_free(&names);
    return status;
}

/* The length; the line needs LINE_EXTRA bytes besides its name, and one for the 0. */
static size_t put_line(char *to, uint64_t size, uint64_t hash, const char *name) {
    return (size_t)snprintf(to, LINE_EXTRA + strlen(name) + 1, "%" PRIu64 " %016" PRIx64 " %s\n", size, hash, name);
}

/* For the caller to free; sets the manifest's hash. */
static char *manifest_text(size_t *size, rein_manifest *manifest) {
    size_t room = 0, at = 0;
    for (size_t i = 0; i < manifest->n; i++) room += LINE_EXTRA + strlen(manifest->files[i].name);
    char *text = malloc(room + LINE_EXTRA + sizeof REIN_MANIFEST_NAME);
    if (!text) return NULL;
    for (size_t i = 0; i < manifest->n; i++) {
        const rein_manifest_file *file = &manifest->files[i];
        at += put_line(text + at, file->size, file->hash, file->name);
    }
    manifest->hash = rein_hash(text, at);
    *size = at + put_line(text + at, at, manifest->hash, REIN_MANIFEST_NAME);
    return text;
}

/* Not by way of another name, as rein_file_write does: the directory itself is under another name yet. */
static rein_status write_durable(const char *path, const char *text, size_t size, rein_error *err) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return rein_file_error(err, path, "cannot be written");
    errno = ENOSPC; /* what a write that comes back short means */
    rein_status status = REIN_OK;
    if (write(fd, text, size) != (ssize_t)size || fsync(fd) != 0) status = rein_file_error(err, path, "cannot be written");
    if (close(fd) != 0 && !status) status = rein_file_error(err, path, "cannot be written");
    return status;
}

rein_status rein_manifest_write(rein_manifest *manifest, const char *directory, rein_error *err) {
    *manifest = (rein_manifest){0};
    size_t size = 0;
    char *text = NULL, *path = rein_path_join(directory, REIN_MANIFEST_NAME);
    rein_status status = path ? add_files(manifest, directory, err) : rein_no_memory(err);
    if (!status && !(text = manifest_text(&size, manifest))) status = rein_no_memory(err);
    if (!status) status = write_durable(path, text, size, err);
    free(text);
    free(path);
    return status;
}

/* -------------------------------------------------------------------------------------------------------------------- reading */

/* "12 0123456789abcdef name", of `length` bytes; the name becomes a string of its own in the text. 1 if it is one. */
static int parse_line(rein_manifest_file *file, char *line, size_t length) {
    const size_t digits = strspn(line, "0123456789");
    if (digits == 0 || digits > MOST_SIZE_DIGITS || line[digits] != ' ') return 0;
    char *hash = line + digits + 1, *name = hash + HASH_DIGITS + 1;
    if (strspn(hash, "0123456789abcdef") != HASH_DIGITS || hash[HASH_DIGITS] != ' ') return 0;
    line[length] = 0;
    if (name + strlen(name) != line + length) return 0;
    *file = (rein_manifest_file){name, strtoull(line, NULL, 10), strtoull(hash, NULL, 16)};
    return 1;
}

/* 1 if the name is plain and comes after that of the last file: names are sorted and different. */
static int name_fits(const rein_manifest *manifest, const char *name) {
    return name_is_plain(name) && (!manifest->n || strcmp(manifest->files[manifest->n - 1].name, name) < 0);
}

/* A copy, after the files that are there. */
static rein_status keep_file(rein_manifest *manifest, const rein_manifest_file *file, rein_error *err) {
    const size_t size = strlen(file->name) + 1;
    rein_manifest_file *files = realloc(manifest->files, (manifest->n + 1) * sizeof *files);
    if (!files) return rein_no_memory(err);
    manifest->files = files;
    files[manifest->n] = (rein_manifest_file){malloc(size), file->size, file->hash};
    if (!files[manifest->n].name) return rein_no_memory(err);
    memcpy(files[manifest->n++].name, file->name, size);
    return REIN_OK;
}

/* The lines of text[size], which ends in a 0; they are taken apart. Hashes the text before it takes it apart. */
static rein_status parse(rein_manifest *manifest, char *text, size_t size, const char *path, rein_error *err) {
    char shown[REIN_PATH_SHOWN];
    size_t last = size > 1 ? size - 1 : 0;
    while (last > 0 && text[last - 1] != '\n') last--;
    manifest->hash = rein_hash(text, last);
    for (size_t at = 0; at < size;) {
        rein_manifest_file file = {0};
        const char *end = memchr(text + at, '\n', size - at);
        const size_t length = end ? (size_t)(end - text) - at : 0;
        const int fine = end && parse_line(&file, text + at, length);
        if (fine && at == last && at > 0 && !strcmp(file.name, REIN_MANIFEST_NAME) && file.size == at &&
            file.hash == manifest->hash)
            return REIN_OK;
        if (!fine || at == last || !name_fits(manifest, file.name)) break;
        const rein_status status = keep_file(manifest, &file, err);
        if (status) return status;
        at += length + 1;
    }
    return rein_fail(err, REIN_EINVAL, "%s is not what was written: its last line does not fit the lines before it",
                     rein_path_show(shown, path));
}

rein_status rein_manifest_read(rein_manifest *manifest, const char *directory, rein_error *err) {
    *manifest = (rein_manifest){0};
    char *text = NULL, *path = rein_path_join(directory, REIN_MANIFEST_NAME);
    size_t size;
    if (!path) return rein_no_memory(err);
    rein_status status = rein_file_read_most(&text, &size, path, LARGEST_MANIFEST) == 0 ? REIN_OK : cannot_be_read(path, err);
    if (!status) status = parse(manifest, text, size, path, err);
    free(text);
    free(path);
    return status;
}

static rein_status compare(const rein_manifest_file *file, int fd, const char *path, rein_error *err) {
    struct stat about;
    char shown[REIN_PATH_SHOWN];
    uint64_t hash, size;
    rein_path_show(shown, path);
    if (fstat(fd, &about) != 0) return cannot_be_read(path, err);
    if (!S_ISREG(about.st_mode)) return rein_fail(err, REIN_EINVAL, "%s is not a regular file", shown);
    size = (uint64_t)about.st_size;
    if (size == file->size && rein_hash_descriptor(&hash, &size, fd) != 0) return cannot_be_read(path, err);
    if (size != file->size)
        return rein_fail(err, REIN_EINVAL, "%s has %" PRIu64 " bytes, and %" PRIu64 " were written", shown, size, file->size);
    if (hash != file->hash) return rein_fail(err, REIN_EINVAL, "%s is not what was written: its hash differs", shown);
    return REIN_OK;
}

rein_status rein_manifest_check(const rein_manifest_file *file, const char *directory, rein_error *err) {
    char *path = rein_path_join(directory, file->name);
    if (!path) return rein_no_memory(err);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const rein_status status = fd < 0 ? cannot_be_read(path, err) : compare(file, fd, path, err);
    if (fd >= 0) close(fd);
    free(path);
    return status;
}
