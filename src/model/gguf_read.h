/* gguf_read.h - what gguf.c (one file) and gguf_open.c (all files of a model) share. Private. */
#ifndef REIN_MODEL_GGUF_READ_H
#define REIN_MODEL_GGUF_READ_H

#include "gguf.h"

/* The place in a file that is being read. */
typedef struct reading {
    const char *path;
    const unsigned char *begin, *at, *end;
    size_t nodes;
    char key[80]; /* of the value that is being read, for messages */
    rein_status status;
    rein_error *err;
} reading;

/* Reads a mapped file: its metadata, and its tensors in the order of their bytes. What it allocated belongs to the caller, also after a
 * failure. */
rein_status rein_gguf_read_file(rein_gguf_file *file, rein_gguf_tensor **tensors, size_t *n_tensors, rein_error *err);

/* Finds a value in the metadata of one file. */
const rein_gguf_value *rein_gguf_find_in(const rein_gguf_file *file, const char *key);

#endif
