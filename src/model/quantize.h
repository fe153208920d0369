/* quantize.h - the weights of a model that is quantised when it is opened. Private. */
#ifndef REIN_MODEL_QUANTIZE_H
#define REIN_MODEL_QUANTIZE_H

#include "kernel/gemm.h"
#include "kernel/kernels.h"
#include "weight_type.h"
#include "weights.h"

/* The type that a model can be quantised to, by its name: "q8_0" or "q4_0"; NULL: it is none. Thread-safe. */
const rein_weight_type *rein_quantize_type(const char *name);

/* Whether a model that is quantised to `type` (NULL: it is not) has this weight in blocks: all matrices but routers, which choose experts and
 * are small. */
int rein_quantizes(const rein_weight_type *type, const rein_weight *weight);

/* Checks that a weight can be quantised: its file has numbers, and its rows are whole blocks. */
rein_status rein_quantize_check(const rein_weight_type *type, const rein_weight *weight, const rein_tensor *tensor,
                                rein_error *err);

/* to = the rows of a matrix of numbers [rows][columns] in blocks, on the threads of exec, which is resolved. Weights that are not finite,
 * or too large for the scales, are an error (REIN_ERANGE); `name` is for the message. */
rein_status rein_quantize_rows(void *to, const rein_matrix *from, size_t rows, size_t columns, const rein_weight_type *type,
                               const char *name, const rein_exec *exec, rein_error *err);

/* Replaces n numbers, whole blocks, by those that their blocks decode to. */
void rein_quantize_round(float *x, size_t n, const rein_weight_type *type, const rein_kernels *kernels);

#endif
