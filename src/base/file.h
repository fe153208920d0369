/* file.h - files: mapped for reading, replaced whole for writing. Private.
 *
 * A file that another process cuts short while it is mapped raises SIGBUS at the next access to the lost part; no reader of mapped
 * files can prevent that. Replacing a file by renaming, as the writer below does, is safe. */
#ifndef REIN_BASE_FILE_H
#define REIN_BASE_FILE_H

#include "base.h"

/* "PATH: WHAT: REASON", the reason from errno: REIN_ENOMEM if that is it, REIN_ESYSTEM for a full disk, a disk error or too many open files,
 * else REIN_EIO. Thread-safe. */
rein_status rein_file_error(rein_error *err, const char *path, const char *what);

/* A file in memory. {0} is empty. */
typedef struct rein_file {
    const unsigned char *data; /* page aligned; not NULL, also when the file is empty */
    size_t size;
    int mapped; /* the bytes are mapped, not borrowed */
} rein_file;

/* Maps a regular file read-only. The caller unmaps. Thread-safe. */
rein_status rein_file_map(rein_file *file, const char *path, rein_error *err);

/* Drops the pages that were read from this process's memory; they are read again when they are needed. */
void rein_file_forget(const rein_file *file);

/* Unmaps it; harmless on {0}. */
void rein_file_unmap(rein_file *file);

/* Reads a regular file into memory that the caller frees: size bytes and a 0. Unlike with a mapped file, a file that another process cuts
 * short, or a disk that cannot read it, is an error and not a signal. 0, or -1 with errno and *data NULL. Thread-safe. */
int rein_file_read(char **data, size_t *size, const char *path);

/* The same for a file of at most `most` bytes; EFBIG if it is larger: a sparse file of any size is easily made. */
int rein_file_read_most(char **data, size_t *size, const char *path, size_t most);

/* 1 if anything has that name, or if a failing machine cannot tell. Thread-safe. */
int rein_file_exists(const char *path);

/* The same for a name in a directory. It allocates nothing: no memory would look like no file. */
int rein_directory_has(const char *directory, const char *name);

/* 1 if it is a directory, or if a failing machine cannot tell. Thread-safe. */
int rein_file_is_directory(const char *path);

/* directory + "/" + name, for the caller to free; NULL when there is no memory. */
char *rein_path_join(const char *directory, const char *name);

/* `path` for a message: in full when it is short, else its end after an ellipsis; returns `to`. */
enum { REIN_PATH_SHOWN = 160 };
const char *rein_path_show(char to[REIN_PATH_SHOWN], const char *path);

/* A file being written: nothing has its name until it is whole. The bytes go to a temporary name in the same directory;
 * commit makes them durable (fsync), renames, and makes the name durable (fsync of the directory). Only a regular file is replaced: a pipe, a
 * device or a directory of that name, or a link to one, is REIN_EINVAL. A link to a regular file or to nothing is replaced itself and not
 * followed: a link in a run must not lead to a write outside of it. {0} is not open. One thread at a time. */
typedef struct rein_writer {
    char *path, *temporary;
    int fd;
} rein_writer;

/* The path is copied. After a failure of any of these the temporary file is gone and the old file, if any, is as it was; the
 * exception is a directory that cannot be made durable after the rename, when the new file is there but may not survive a crash. */
rein_status rein_writer_open(rein_writer *writer, const char *path, rein_error *err);
rein_status rein_writer_put(rein_writer *writer, const void *data, size_t size, rein_error *err);
rein_status rein_writer_commit(rein_writer *writer, rein_error *err);

/* Discards what was not committed; harmless on {0}, after a failure and after commit. */
void rein_writer_abandon(rein_writer *writer);

/* The three steps in one. Thread-safe for different paths. */
rein_status rein_file_write(const char *path, const void *data, size_t size, rein_error *err);

/* Makes the directory and its parents; fine if they exist. Their names are not durable yet (directory.h). Thread-safe. */
rein_status rein_make_directories(const char *path, rein_error *err);

#endif
