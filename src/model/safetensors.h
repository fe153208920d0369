/* safetensors.h - tensors in files as Hugging Face writes them: one file, or shards with an index. Private.
 *
 * Files are mapped, not read, and checked completely when they are opened: afterwards only the numbers themselves can be wrong. A
 * file must not shrink while it is open (base/file.h). The format is described in docs/model-files.md. */
#ifndef REIN_MODEL_SAFETENSORS_H
#define REIN_MODEL_SAFETENSORS_H

#include <jansson.h>

#include "base/file.h"
#include "rein/base.h"

/* All types of the format, in the order in which the reference writer sorts them: growing alignment. Then those of quantised weights, which
 * only GGUF files have: blocks of 32 or 256 elements. */
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
    REIN_TENSOR_SAFETENSORS_TYPES,
    REIN_TENSOR_Q8_0 = REIN_TENSOR_SAFETENSORS_TYPES,
    REIN_TENSOR_Q4_0,
    REIN_TENSOR_Q4_1,
    REIN_TENSOR_Q5_0,
    REIN_TENSOR_Q5_1,
    REIN_TENSOR_Q4_K,
    REIN_TENSOR_Q5_K,
    REIN_TENSOR_Q6_K,
    REIN_TENSOR_TYPES
} rein_tensor_type;

/* The name of a type, such as "BF16". Static storage; thread-safe. */
const char *rein_tensor_type_name(rein_tensor_type dtype);

/* The elements of one block of a type, 1 for number types, and the bytes of n elements, which are whole blocks and whole bytes. Thread-safe. */
size_t rein_tensor_type_elements(rein_tensor_type dtype);
size_t rein_tensor_type_bytes(rein_tensor_type dtype, size_t n);

enum { REIN_MAX_DIMENSIONS = 8 };     /* our limit; the format has none */
enum { REIN_MAX_HEADER = 100000000 }; /* bytes; the reference reader's limit */

typedef struct rein_tensor {
    const char *name; /* UTF-8 */
    rein_tensor_type dtype;
    int n_dims;
    size_t shape[REIN_MAX_DIMENSIONS]; /* row-major, the last dimension is contiguous */
    const void *data;                  /* little-endian; aligned for its type if weights can have it, else perhaps not */
    size_t bytes;
    const char *file; /* its file, for messages; not used in writing */
    size_t pairs;     /* 0, or the heads whose rows are stored in the order of interleaved rotary pairs (GGUF): rein_tensor_row */
} rein_tensor;

/* The place where row i is stored. With pairs, a head's rows are 0, n/2, 1, n/2 + 1, … and not 0, 1, 2, … */
static inline size_t rein_tensor_row(const rein_tensor *tensor, size_t i) {
    if (!tensor->pairs) return i;
    const size_t rows = tensor->shape[0] / tensor->pairs, half = rows / 2, in_head = i % rows;
    return i - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
}

/* Writes a shape as text: "[3, 4]", "[]" for a single number. Returns `to`. Thread-safe. */
enum { REIN_SHAPE_SHOWN = 200 };
const char *rein_shape_show(char to[REIN_SHAPE_SHOWN], const size_t *shape, int n_dims);

/* ---- reading. An open set of tensors does not change: any number of threads may use it. What a function returns belongs to the
 * set and lives until rein_tensors_close. */
typedef struct rein_tensors rein_tensors;

/* Opens a .safetensors file, a model in GGUF (gguf.h), or the directory of a model: model.safetensors, else the shards of
 * model.safetensors.index.json. The caller closes *tensors; it is NULL on failure. */
rein_status rein_tensors_open(rein_tensors **tensors, const char *path, rein_error *err);

/* Opens adapter_model.safetensors of the directory of an adapter. */
rein_status rein_tensors_open_adapter(rein_tensors **tensors, const char *directory, rein_error *err);

/* Opens files that are in memory, and stay there until the set is closed, with an index or without (NULL). `data` may have any
 * alignment. */
typedef struct rein_tensors_memory {
    const char *name; /* without a directory; used by the index and in messages. Copied */
    const void *data;
    size_t size;
} rein_tensors_memory;
rein_status rein_tensors_from_memory(rein_tensors **tensors, const rein_tensors_memory *files, size_t n_files, const json_t *index,
                                     rein_error *err);

/* Closes a set. NULL is fine. */
void rein_tensors_close(rein_tensors *tensors);

/* Releases the pages of the mapped files from memory. They are read again when they are used. */
void rein_tensors_drop_pages(const rein_tensors *tensors);

/* The number of tensors, and the i-th of them, in the order of the files (by name) and of the bytes in each. */
size_t rein_tensors_count(const rein_tensors *tensors);
const rein_tensor *rein_tensors_at(const rein_tensors *tensors, size_t i);

/* Finds a tensor by its name; NULL if there is none. */
const rein_tensor *rein_tensors_find(const rein_tensors *tensors, const char *name);

/* Finds a tensor that holds weights. It must exist, and have a type of weight_type.h. */
rein_status rein_tensors_weight(const rein_tensor **tensor, const rein_tensors *tensors, const char *name, rein_error *err);

/* A value of __metadata__ in the first file, or NULL. */
const char *rein_tensors_metadata(const rein_tensors *tensors, const char *key);

/* The name for messages: the file, or the index. */
const char *rein_tensors_name(const rein_tensors *tensors);

/* ---- writing */
typedef struct rein_metadata {
    const char *key, *value;
} rein_metadata;

/* Writes one file, completely or not at all, with exactly the bytes of the reference writer: tensors are sorted by type (widest
 * alignment first) and name, the header is padded with blanks to a multiple of 8 bytes, metadata is sorted by key and is
 * {"format": "pt"} if n_metadata is 0. Thread-safe for different paths. */
rein_status rein_tensors_write(const char *path, const rein_tensor *tensors, size_t n, const rein_metadata *metadata,
                               size_t n_metadata, rein_error *err);

/* Does the same for data that is computed as it is written: `put` is called for each tensor, in the order of the file, with its
 * index in `tensors`, and puts all its bytes into the writer. The data pointers are not used. */
typedef rein_status rein_tensor_put(rein_writer *writer, size_t i, void *context, rein_error *err);
rein_status rein_tensors_write_generated(const char *path, const rein_tensor *tensors, size_t n, const rein_metadata *metadata,
                                         size_t n_metadata, rein_tensor_put *put, void *context, rein_error *err);

/* Computes the size of a tensor in bytes. Returns 0, and leaves *bytes, if it overflows or is not a whole number of bytes, or if rows are not
 * whole blocks. */
int rein_tensor_bytes(size_t *bytes, rein_tensor_type dtype, const size_t *shape, int n_dims);

#endif
