/* gguf_write.h - writes GGUF files, version 3: a model, or an adapter as llama.cpp loads it. Private.
 *
 * Metadata is put together in memory; the data of tensors is computed while it is written. docs/gguf.md. */
#ifndef REIN_MODEL_GGUF_WRITE_H
#define REIN_MODEL_GGUF_WRITE_H

#include "gguf.h"
#include "rein/tokenizer.h"
#include "weights.h"

/* Key-value pairs, encoded. {0} is empty. */
typedef struct rein_gguf_pairs {
    rein_text bytes;
    uint64_t n;
} rein_gguf_pairs;

void rein_gguf_pairs_free(rein_gguf_pairs *pairs);

/* Each appends a pair. A failure is remembered in `bytes`: rein_text_status. */
void rein_gguf_put_u32(rein_gguf_pairs *to, const char *key, uint32_t x);
void rein_gguf_put_f32(rein_gguf_pairs *to, const char *key, double x);
void rein_gguf_put_bool(rein_gguf_pairs *to, const char *key, int x);
void rein_gguf_put_string(rein_gguf_pairs *to, const char *key, const char *bytes, size_t length);
void rein_gguf_put_text(rein_gguf_pairs *to, const char *key, const char *text);
void rein_gguf_put_pair(rein_gguf_pairs *to, const rein_gguf_pair *pair); /* of another file */

/* Begins an array of `count` elements, which the caller appends: strings with rein_gguf_add_string, others with rein_gguf_add_bytes. */
void rein_gguf_put_array(rein_gguf_pairs *to, const char *key, rein_gguf_kind element, uint64_t count);
void rein_gguf_add_string(rein_gguf_pairs *to, const char *bytes, size_t length);
void rein_gguf_add_bytes(rein_gguf_pairs *to, const void *bytes, size_t length);

/* Writes a file, completely or not at all. Of each tensor the caller sets name, n_dims, sizes and type; bytes and offset are computed here.
 * `put` is called for each, in order, and puts exactly its bytes. */
rein_status rein_gguf_write(const char *path, const rein_gguf_pairs *pairs, rein_gguf_tensor *tensors, size_t n,
                            rein_tensor_put *put, void *context, rein_error *err);

/* A file that exists is REIN_EINVAL: it may be a model. */
rein_status rein_gguf_check_new(const char *path, rein_error *err);

/* Reward models are not written: llama.cpp's own have another form. */
rein_status rein_gguf_check_no_score(const rein_model *model, const rein_adapter *adapter, rein_error *err);

/* The number of a tensor type in GGUF. The type is one of the table. */
uint32_t rein_gguf_number_of(rein_tensor_type dtype);

/* The row of a matrix in GGUF is row rein_gguf_row of Hugging Face's; `pairs` are the heads whose rows are interleaved pairs, or 0. */
size_t rein_gguf_row(size_t row, size_t rows, size_t pairs);

/* The heads whose rows are in pairs in a tensor with this name in GGUF; 0: none. */
size_t rein_gguf_pairs_in(const rein_gguf_family *family, const rein_model_config *config, const char *name);

/* The metadata of a model that is a directory of Hugging Face, without its tokenizer: gguf_write_config.c. What GGUF or llama.cpp has no word
 * for is an error; what only shortens the context is a line in `notes`. */
rein_status rein_gguf_put_config(rein_gguf_pairs *to, rein_text *notes, const rein_gguf_family *family, const rein_model *model,
                                 rein_error *err);

/* The factors of the rotary embedding that GGUF has as tensors: "rope_freqs.weight", or both of longrope. */
typedef struct rein_gguf_factors {
    const char *name;
    size_t n;
    float values[REIN_MAX_ROPE_FACTORS];
} rein_gguf_factors;
enum { REIN_GGUF_FACTORS = 2 };
rein_status rein_gguf_factors_of(rein_gguf_factors factors[REIN_GGUF_FACTORS], size_t *n, const rein_model *model, rein_error *err);

/* The tokenizer, for a model with `vocabulary` tokens: gguf_write_tokenizer.c. One that GGUF has no word for is an error. */
rein_status rein_gguf_put_tokenizer(rein_gguf_pairs *to, rein_text *notes, const rein_tokenizer *tokenizer,
                                    const rein_model_config *config, rein_error *err);

/* How text is split before merging has this name in tokenizer.ggml.pre; NULL: none. */
const char *rein_gguf_split_of(const rein_tokenizer *tokenizer);

#endif
