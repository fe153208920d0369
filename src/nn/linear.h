/* linear.h - linear layers y = x·Wᵀ + bias, optionally with a LoRA: + s·(x·Aᵀ)·Bᵀ (Hu et al. 2021, arXiv 2106.09685). Private.
 *
 * Rows are tokens. Each element is one chain of fma: first the bias, then W, then B. */
#ifndef REIN_NN_LINEAR_H
#define REIN_NN_LINEAR_H

#include "context.h"

typedef struct rein_linear {
    size_t in, out;
    rein_matrix weight; /* [out][in] as stored */
    size_t pairs; /* 0, or the heads whose rows in `weight` are interleaved rotary pairs (GGUF); those of `packed` never are */
    rein_packed packed; /* the transpose, packed; data is NULL while the weights train */
    const float *bias;  /* [out] or NULL */
} rein_linear;

/* The right factor of x·Wᵀ from column `first` on, a multiple of 16: panels, or a view [in][out]. */
static inline rein_matrix rein_linear_columns(const rein_linear *l, size_t first) {
    const rein_matrix *w = &l->weight;
    if (l->packed.data)
        return (rein_matrix){(const char *)l->packed.data + rein_storage_bytes(l->packed.storage, first * l->in), 0, 0,
                             l->packed.storage};
    return (rein_matrix){(const char *)w->data + rein_storage_bytes(w->storage, first * w->row), w->column, w->row, w->storage};
}

typedef struct rein_lora {
    size_t rank; /* 0: no LoRA */
    float scale; /* alpha/r, or alpha/√r */
    float *a;    /* [rank][in] */
    float *b;    /* [out][rank] */
    /* Linear layers of which one tensor holds the weights share A. Their backward passes follow each other, with the same dinner and x, so
     * that the gradient of A is one sum over the rows. continues: one of them came before; continued: another follows. */
    int continues, continued;
    rein_packed packed_a, packed_b;
} rein_lora;

/* Rows [first, first + rows) of a batch, and the LoRAs that they use, by the number of the linear layer; NULL: none. The parts of a batch
 * follow each other and cover its rows, so that one batch can hold rows of several adapters. */
typedef struct rein_lora_rows {
    const rein_lora *loras;
    size_t first, rows;
} rein_lora_rows;

/* The largest rank that a part has in a linear layer; 0: none has a LoRA there. */
size_t rein_lora_rows_rank(const rein_lora_rows *parts, size_t n, size_t number);

/* The gradients to add to; NULL for what does not train. */
typedef struct rein_linear_gradient {
    float *weight, *bias, *a, *b;
} rein_linear_gradient;

/* inner [rows][rank] = s·x·Aᵀ */
void rein_lora_inner(float *inner, const float *x, size_t rows, size_t in, const rein_lora *lora, const rein_nn_context *run);

/* y [rows][out] =, or with `add` +=. inner [rows][rank] as above is kept for the backward pass; it is unused without a LoRA. lora may be
 * NULL. */
void rein_linear_forward(float *y, float *inner, const float *x, size_t rows, const rein_linear *linear, const rein_lora *lora,
                         int add, const rein_nn_context *run);

/* The same for up to 4 layers with the same input x, and rows in n_parts parts. `number` is that of the layer; inner has rows ·
 * rein_lora_rows_rank floats, of which a part uses rows · rank from first · rein_lora_rows_rank on. */
typedef struct rein_linear_call {
    float *y, *inner;
    const rein_linear *linear;
    size_t number;
} rein_linear_call;
void rein_linears_forward(const rein_linear_call *calls, size_t n, const float *x, size_t rows, int add,
                          const rein_lora_rows *parts, size_t n_parts, const rein_nn_context *run);

/* dx [rows][in] =, or with `add` += (NULL: not needed). dinner [rows][rank] is scratch. x and inner are those of the forward pass. */
void rein_linear_backward(float *dx, int add, const rein_linear_gradient *gradient, float *dinner, const float *dy, const float *x,
                          const float *inner, size_t rows, const rein_linear *linear, const rein_lora *lora,
                          const rein_nn_context *run);

/* Packs the factors of a LoRA into `to`, which has rein_lora_packed_size floats; again after each update. */
size_t rein_lora_packed_size(const rein_lora *lora, size_t in, size_t out);
void rein_lora_pack(rein_lora *lora, float *to, size_t in, size_t out);

#endif
