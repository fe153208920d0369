/* gemm.h - matrix products: C = A·B, or C += A·B. Private.
 *
 * Each element of C is one chain of fused multiply-adds, acc = fma(a[i][k], b[k][j], acc), with k ascending from 0 and acc starting at 0 or
 * at the old value of C. Its bits depend on nothing else: not on the shape, the other rows, the threads or the instruction set. So a row
 * decoded alone and the same row in a training batch have the same bits. */
#ifndef REIN_KERNEL_GEMM_H
#define REIN_KERNEL_GEMM_H

#include "rein/base.h"
#include "storage.h"

/* A view of a matrix: element (i, j) has the index i·row + j·column. Swapping the strides transposes it. */
typedef struct rein_matrix {
    const void *data;
    size_t row, column;
    rein_storage storage;
} rein_matrix;

/* A right factor [k][n], packed once and used often, in the storage type it had. It is cut into panels of 16 columns, padded with zeros. A
 * panel of numbers is [k][16]; one of blocks is [k / elements of a block] panel blocks (block_panel.h). */
typedef struct rein_packed {
    const void *data;
    size_t k, n;
    rein_storage storage;
} rein_packed;

/* The right factor [k][n] of a product: a view, a packed matrix, or the transpose of a packed matrix. */
typedef struct rein_right_factor {
    rein_matrix view; /* data NULL: `packed` is used */
    rein_packed packed;
    int transposed; /* the factor is the transpose of `packed` */
    size_t k, n;
} rein_right_factor;

/* The bytes of a packed k×n matrix; k is whole blocks. */
size_t rein_packed_size(size_t k, size_t n, rein_storage storage);

/* Packs b [k][n] into `to`, which has rein_packed_size bytes; k is whole blocks, whose elements are adjacent along k. rein_pack_on uses the
 * threads of exec, which is resolved. */
rein_packed rein_pack(void *to, const rein_matrix *b, size_t k, size_t n);
rein_packed rein_pack_on(void *to, const rein_matrix *b, size_t k, size_t n, const rein_exec *exec);

/* The bytes of scratch memory that any product needs. */
size_t rein_gemm_scratch(const rein_exec *exec);

/* c [m][n], rows `stride` apart: c = a·b, or with `add` c += a·b. exec is resolved; scratch has rein_gemm_scratch bytes and is 64-byte
 * aligned. c overlaps neither factor. k = 0 gives 0. Thread-safe if each caller has its own scratch. */
void rein_gemm(float *c, size_t stride, const rein_matrix *a, const rein_matrix *b, size_t m, size_t n, size_t k, int add,
               void *scratch, const rein_exec *exec);

/* The same with a packed right factor, whose shape is b->k × b->n. */
void rein_gemm_packed(float *c, size_t stride, const rein_matrix *a, const rein_packed *b, size_t m, int add, void *scratch,
                      const rein_exec *exec);

/* The same with the transpose of b: c [m][b->k] = a [m][b->n]·bᵀ. */
void rein_gemm_packed_transposed(float *c, size_t stride, const rein_matrix *a, const rein_packed *b, size_t m, int add,
                                 void *scratch, const rein_exec *exec);

/* Up to REIN_MAX_PRODUCTS products at once. None may read what another writes. The threads are started and joined once for all of them. */
enum { REIN_MAX_PRODUCTS = 8 };
typedef struct rein_product {
    float *c;
    size_t stride;
    rein_matrix a;
    rein_right_factor b;
    size_t m;
    int add;
} rein_product;
void rein_gemm_batch(const rein_product *products, size_t n, void *scratch, const rein_exec *exec);

#endif
