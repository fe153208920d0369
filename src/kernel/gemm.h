/* gemm.h - C = A·B, or C += A·B. Private.
 *
 * Each element of C is one chain, acc = fma(a[i][k], b[k][j], acc) with k ascending from 0 (or from what C held). Nothing around it can
 * change it: not the shape, not the other rows, not the threads, not the instruction set. So a row decoded alone and the same row in a
 * training batch have the same bits. */
#ifndef REIN_KERNEL_GEMM_H
#define REIN_KERNEL_GEMM_H

#include "rein/base.h"

/* How a matrix is stored. 16-bit types become f32, exactly, as they are read. */
typedef enum rein_storage { REIN_STORED_F32 = 0, REIN_STORED_BF16, REIN_STORED_F16 } rein_storage;

static inline size_t rein_storage_size(rein_storage s) { return s == REIN_STORED_F32 ? 4 : 2; }

/* A view of a matrix: element (i, j) is at data[i·row + j·column]. Swap the strides and it is transposed. */
typedef struct rein_matrix {
    const void *data;
    size_t row, column;
    rein_storage storage;
} rein_matrix;

/* The right factor, packed once and used often: panels of 16 columns, [⌈n/16⌉][k][16], padded with 0, in the type it was stored in. */
typedef struct rein_packed {
    const void *data;
    size_t k, n;
    rein_storage storage;
} rein_packed;

/* The right factor [k][n] of a product: a view, or packed, or the transpose of what is packed. */
typedef struct rein_right {
    rein_matrix view; /* data NULL: packed */
    rein_packed packed;
    int turned;
    size_t k, n;
} rein_right;

/* Bytes of a packed k×n matrix. */
size_t rein_packed_size(size_t k, size_t n, rein_storage storage);

/* Packs b [k][n] into `to`, at least rein_packed_size bytes; the second on the threads of exec, which is resolved. */
rein_packed rein_pack(void *to, const rein_matrix *b, size_t k, size_t n);
rein_packed rein_pack_on(void *to, const rein_matrix *b, size_t k, size_t n, const rein_exec *exec);

/* Bytes of scratch that a product needs, whatever its shape. */
size_t rein_gemm_scratch(const rein_exec *exec);

/* c [m][n], rows `stride` apart: c = a·b, or with `add` c += a·b. exec is resolved; scratch [rein_gemm_scratch], 64-byte aligned. c must
 * overlap neither factor. k = 0 gives 0. Thread-safe with its own scratch. */
void rein_gemm(float *c, size_t stride, const rein_matrix *a, const rein_matrix *b, size_t m, size_t n, size_t k, int add,
               void *scratch, const rein_exec *exec);

/* The same with b packed: b->k and b->n are its shape. */
void rein_gemm_packed(float *c, size_t stride, const rein_matrix *a, const rein_packed *b, size_t m, int add, void *scratch,
                      const rein_exec *exec);

/* The same with the transpose of b: c [m][b->k] = a [m][b->n]·bᵀ. */
void rein_gemm_turned(float *c, size_t stride, const rein_matrix *a, const rein_packed *b, size_t m, int add, void *scratch,
                      const rein_exec *exec);

/* Several of them at once, at most REIN_PRODUCTS, none of which reads what another writes: the threads meet once. */
enum { REIN_PRODUCTS = 8 };
typedef struct rein_product {
    float *c;
    size_t stride;
    rein_matrix a;
    rein_right b;
    size_t m;
    int add;
} rein_product;
void rein_gemm_each(const rein_product *products, size_t n, void *scratch, const rein_exec *exec);

#endif
