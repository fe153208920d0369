/* safetensors.h - tensors in files as Hugging Face writes them: one file, or shards with an index. Private.
 *
 * Files are mapped, not read, and checked in full when they are opened; afterwards nothing about them can be wrong but the numbers.
 * A file that shrinks while it is open is beyond help (base/file.h). The format: docs/model-files.md. */
#ifndef REIN_MODEL_SAFETENSORS_H
#define REIN_MODEL_SAFETENSORS_H

#include <jansson.h>

#include "base/file.h"
#include "rein/base.h"

/* Every type the format knows, in the order the reference writer sorts them by: growing alignment. */
typedef enum rein_tensor_type {
    REIN_TENSOR_BOOL,
    REIN_TENSOR_F4,
    REIN_TENSOR_F6_E2M3,
    REIN_TENSOR_F6_E3M2,
    REIN_TENSOR_U8,
    REIN_TENSOR_I8,
    REIN_TENSOR_F8_E5M2,
    REIN_TENSOR_F8_E4M3,
    REIN_TENSOR_F8_E8M0,
    REIN_TENSOR_F8_E4M3FNUZ,
    REIN_TENSOR_F8_E5M2FNUZ,
    REIN_TENSOR_I16,
    REIN_TENSOR_U16,
    REIN_TENSOR_F16,
    REIN_TENSOR_BF16,
    REIN_TENSOR_I32,
    REIN_TENSOR_U32,
    REIN_TENSOR_F32,
    REIN_TENSOR_C64,
    REIN_TENSOR_F64,
    REIN_TENSOR_I64,
    REIN_TENSOR_U64,
    REIN_TENSOR_TYPES
} rein_tensor_type;

/* "BF16". Static storage; thread-safe. */
const char *rein_tensor_type_name(rein_tensor_type dtype);

/* Of one element. Thread-safe. */
size_t rein_tensor_type_bits(rein_tensor_type dtype);

/* 1 for the types that weights can have here: F32, BF16, F16. Thread-safe. */
int rein_tensor_type_is_weight(rein_tensor_type dtype);

enum { REIN_MAX_DIMENSIONS = 8 };         /* a limit of ours; the format has none */
enum { REIN_LARGEST_HEADER = 100000000 }; /* bytes; the reference reader's limit */

typedef struct rein_tensor {
    const char *name; /* UTF-8 */
    rein_tensor_type dtype;
    int n_dims;
    size_t shape[REIN_MAX_DIMENSIONS]; /* row-major, the last dimension is contiguous */
    const void *data;                  /* little-endian. Aligned for its type if that is a weight's; for the others it may not be */
    size_t bytes;
    const char *file; /* where it is, for messages; not needed for writing */
} rein_tensor;

/* "[3, 4]"; "[]" for one number. Returns `to`. Thread-safe. */
enum { REIN_SHAPE_SHOWN = 200 };
const char *rein_shape_show(char to[REIN_SHAPE_SHOWN], const size_t *shape, int n_dims);

/* ---- reading. An open set of tensors does not change: any number of threads may use it. Everything a function returns belongs to
 * the set and lives until rein_tensors_close. */
typedef struct rein_tensors rein_tensors;

/* A .safetensors file, or the directory of a model: its model.safetensors, else the shards of its model.safetensors.index.json.
 * The caller closes *tensors; it is NULL on failure. */
rein_status rein_tensors_open(rein_tensors **tensors, const char *path, rein_error *err);

/* The directory of an adapter: its adapter_model.safetensors. */
rein_status rein_tensors_open_adapter(rein_tensors **tensors, const char *directory, rein_error *err);

/* Files that are in memory already, and stay there until the set is closed; with an index or without (NULL). `data` of any
 * alignment. */
typedef struct rein_tensors_memory {
    const char *name; /* without a directory; for the index and for messages. Copied */
    const void *data;
    size_t size;
} rein_tensors_memory;
rein_status rein_tensors_from_memory(rein_tensors **tensors, const rein_tensors_memory *files, size_t n_files, const json_t *index,
                                     rein_error *err);

/* Harmless on NULL. */
void rein_tensors_close(rein_tensors *tensors);

/* What was read of the files leaves this process's memory, and comes back when it is read again. */
void rein_tensors_forget(const rein_tensors *tensors);

/* In the order of the files (by name), and of the bytes in each. */
size_t rein_tensors_count(const rein_tensors *tensors);
const rein_tensor *rein_tensors_at(const rein_tensors *tensors, size_t i);

/* NULL when there is none of that name. */
const rein_tensor *rein_tensors_find(const rein_tensors *tensors, const char *name);

/* The same for a tensor that is needed as weights: it must be there, and F32, BF16 or F16. */
rein_status rein_tensors_weight(const rein_tensor **tensor, const rein_tensors *tensors, const char *name, rein_error *err);

/* An entry of __metadata__ of the first file, or NULL. */
const char *rein_tensors_metadata(const rein_tensors *tensors, const char *key);

/* What was opened, for messages: the file, or the index. */
const char *rein_tensors_name(const rein_tensors *tensors);

/* ---- writing */
typedef struct rein_metadata {
    const char *key, *value;
} rein_metadata;

/* Writes one file, whole or not at all, byte for byte as the reference writer would: tensors sorted by type (widest alignment
 * first) and name, the header padded with blanks to a multiple of 8 bytes; metadata (sorted by key) is {"format": "pt"} if
 * n_metadata is 0. The data goes straight from where it is to the file. Thread-safe for different paths. */
rein_status rein_tensors_write(const char *path, const rein_tensor *tensors, size_t n, const rein_metadata *metadata,
                               size_t n_metadata, rein_error *err);

/* The same for data that is made as it is written: `put` is called for each tensor, in the order of the file, with its place in the
 * list, and puts all of its bytes into the writer. Nobody looks at the data pointers. */
typedef rein_status rein_tensor_put(rein_writer *writer, size_t i, void *context, rein_error *err);
rein_status rein_tensors_write_made(const char *path, const rein_tensor *tensors, size_t n, const rein_metadata *metadata,
                                    size_t n_metadata, rein_tensor_put *put, void *context, rein_error *err);

/* elements x bits in bytes; 0 (and *bytes is not set) when that overflows or is no whole number of bytes. For both directions. */
int rein_tensor_bytes(size_t *bytes, rein_tensor_type dtype, const size_t *shape, int n_dims);

#endif
