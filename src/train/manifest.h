/* manifest.h - MANIFEST: which files a checkpoint is made of, with their sizes and hashes. Private, thread-safe.
 *
 * One line a file, sorted by name: its size, a blank, its hash (hash.h) as 16 hexadecimal digits, a blank, its name. The last line
 * is of the same form and about the lines before it; its name is MANIFEST. So a MANIFEST that was cut or changed shows it. */
#ifndef REIN_TRAIN_MANIFEST_H
#define REIN_TRAIN_MANIFEST_H

#include "rein/base.h"

#define REIN_MANIFEST_NAME "MANIFEST"

typedef struct rein_manifest_file {
    char *name; /* "NAME", or "FOLDER/NAME" of a file in a folder of the directory; no part is hidden or has control characters */
    uint64_t size, hash;
} rein_manifest_file;

/* {0} is empty. */
typedef struct rein_manifest {
    rein_manifest_file *files; /* sorted by name; at least one, once it is made or read */
    size_t n;
    uint64_t hash; /* of its text: equal checkpoints have equal hashes, and others hardly ever */
} rein_manifest;

/* Harmless on {0}. */
void rein_manifest_free(rein_manifest *manifest);

/* Makes each file of a directory durable, hashes it, and writes MANIFEST, durable too. There may be nothing in the directory but regular
 * files, and folders that hold nothing else. The names in it are the caller's to make durable, those in its folders are durable. The caller frees *manifest, after a failure too. */
rein_status rein_manifest_write(rein_manifest *manifest, const char *directory, rein_error *err);

/* Reads the MANIFEST of a directory, and nothing else. REIN_EINVAL: it is missing, or not what was written; REIN_EIO, REIN_ESYSTEM:
 * it cannot be checked now. The caller frees *manifest, after a failure too. */
rein_status rein_manifest_read(rein_manifest *manifest, const char *directory, rein_error *err);

/* Whether a file is there and is what the manifest says, with the same meaning of failures. */
rein_status rein_manifest_check(const rein_manifest_file *file, const char *directory, rein_error *err);

#endif
