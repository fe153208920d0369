/* safetensors_index.h - the struct of an open set of tensors, for safetensors.c (a file) and safetensors_index.c (several files).
 * Private. */
#ifndef REIN_MODEL_SAFETENSORS_INDEX_H
#define REIN_MODEL_SAFETENSORS_INDEX_H

#include "base/file.h"
#include "safetensors.h"

typedef struct rein_shard {
    char *path; /* owned, as are the others */
    rein_file file;
    json_t *header; /* its keys are the names of the tensors */
} rein_shard;

typedef struct rein_entry {
    rein_tensor tensor;
    size_t begin, end; /* in the bytes after the header */
} rein_entry;

struct rein_tensors {
    char *name;
    size_t n_shards, n;
    rein_shard *shards;
    rein_entry *entries;
    const rein_entry **by_name;
    unsigned char *copies; /* of tensors that are misaligned in their file, or of vectors that GGUF stores in another form */
    char *names;           /* those of tensors from GGUF */
};

/* Reads the header of a shard whose file is mapped, and adds its tensors to the set. */
rein_status rein_shard_read(rein_tensors *all, rein_shard *shard, rein_error *err);

/* Sorts the tensors by name, for rein_tensors_find. Two with one name are an error. */
rein_status rein_tensors_sort(rein_tensors *all, rein_error *err);

/* Copies the weights that are not aligned for their type. */
rein_status rein_tensors_align(rein_tensors *all, rein_error *err);

#endif
