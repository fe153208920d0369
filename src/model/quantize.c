/* quantize.c - quantises the matrices of a model while it is opened. The files stay as they are, and their pages are released. */
#include "quantize.h"

#include <stdatomic.h>
#include <string.h>

#include "base/base.h"
#include "base/pool.h"

const rein_weight_type *rein_quantize_type(const char *name) {
    if (!strcmp(name, "q8_0")) return rein_weight_type_of(REIN_TENSOR_Q8_0);
    return strcmp(name, "q4_0") ? NULL : rein_weight_type_of(REIN_TENSOR_Q4_0);
}

int rein_quantizes(const rein_weight_type *type, const rein_weight *weight) {
    return type && weight->n_dims == 2 && weight->kind != REIN_ROUTER && weight->kind != REIN_SCORE;
}

rein_status rein_quantize_check(const rein_weight_type *type, const rein_weight *weight, const rein_tensor *tensor,
                                rein_error *err) {
    const size_t row = weight->shape[1], block = rein_storage_elements(type->storage);
    char types[REIN_WEIGHT_TYPES_SHOWN];
    if (!rein_weight_type_of(tensor->dtype)->word)
        return rein_fail_at(err, REIN_EINVAL, "quantize", -1,
                            "cannot quantise %s again, which is %s: weights of %s can be quantised", weight->name,
                            rein_tensor_type_name(tensor->dtype), rein_weight_types_show(types, "or"));
    if (row % block == 0) return REIN_OK;
    return rein_fail_at(err, REIN_EINVAL, "quantize", -1,
                        "is not possible for %s, whose rows have %zu numbers: %s needs a multiple of %zu", weight->name, row,
                        rein_tensor_type_name(type->dtype), block);
}

/* ------------------------------------------------------------------------------------------------------------------------ rows */

enum { ROWS = 16 }; /* of a piece */

typedef struct quantizing {
    char *to;
    const rein_matrix *from;
    size_t rows, columns;
    const rein_weight_type *type;
    const rein_kernels *kernels;
    atomic_int fails;
} quantizing;

static int fits(const float *x, size_t n, double limit) {
    int all = 1;
    for (size_t i = 0; i < n; i++) all &= (double)x[i] > -limit && (double)x[i] < limit;
    return all;
}

static void quantize_row(quantizing *q, size_t row) {
    const rein_matrix *from = q->from;
    const size_t block = rein_storage_elements(q->type->storage);
    float x[REIN_STORAGE_BLOCK];
    for (size_t i = 0; i < q->columns; i += block) {
        const char *stored = (const char *)from->data + rein_storage_bytes(from->storage, row * from->row + i);
        q->kernels->decode(x, stored, from->storage, block);
        if (!fits(x, block, q->type->limit)) atomic_store(&q->fails, 1);
        q->type->round_f32(q->to + rein_storage_bytes(q->type->storage, row * q->columns + i), x, block);
    }
}

static void quantize_piece(void *context, size_t piece, int thread) {
    quantizing *q = context;
    const size_t first = piece * ROWS, end = first + ROWS < q->rows ? first + ROWS : q->rows;
    (void)thread;
    for (size_t row = first; row < end; row++) quantize_row(q, row);
}

rein_status rein_quantize_rows(void *to, const rein_matrix *from, size_t rows, size_t columns, const rein_weight_type *type,
                               const char *name, const rein_exec *exec, rein_error *err) {
    quantizing q = {to, from, rows, columns, type, rein_kernels_of(exec->isa), 0};
    rein_parallel(exec->threads, (rows + ROWS - 1) / ROWS, quantize_piece, &q);
    if (!atomic_load(&q.fails)) return REIN_OK;
    return rein_fail_at(err, REIN_ERANGE, "quantize", -1, "is not possible for %s: a weight is not finite, or too large for %s",
                        name, rein_tensor_type_name(type->dtype));
}

void rein_quantize_round(float *x, size_t n, const rein_weight_type *type, const rein_kernels *kernels) {
    const size_t block = rein_storage_elements(type->storage);
    uint8_t stored[REIN_STORAGE_BLOCK * sizeof *x];
    for (size_t i = 0; i < n; i += block) {
        type->round_f32(stored, x + i, block);
        kernels->decode(x + i, stored, type->storage, block);
    }
}
