/* linear.c - linear layers and LoRAs. */
#include "linear.h"

#include <string.h>

static rein_matrix rows_of(const float *x, size_t columns) { return (rein_matrix){x, columns, 1, REIN_STORED_F32}; }
static rein_matrix columns_of(const float *x, size_t columns) { return (rein_matrix){x, 1, columns, REIN_STORED_F32}; }

/* Weights that train are not packed: they are read as a view. */
static rein_right_factor right_factor_forward(const rein_linear *l) {
    rein_right_factor b = {.packed = l->packed, .k = l->in, .n = l->out};
    if (!l->packed.data) b.view = (rein_matrix){l->weight.data, l->weight.column, l->weight.row, l->weight.storage};
    return b;
}
static rein_right_factor right_packed(const rein_packed *p) { return (rein_right_factor){.packed = *p, .k = p->k, .n = p->n}; }

static int has_lora(const rein_lora *lora) { return lora && lora->rank; }

void rein_lora_inner(float *inner, const float *x, size_t rows, size_t in, const rein_lora *lora, const rein_nn_context *run) {
    const rein_matrix input = rows_of(x, in);
    rein_gemm_packed(inner, lora->rank, &input, &lora->packed_a, rows, 0, run->gemm_scratch, &run->exec);
    run->kernels->rows->scale(inner, rows * lora->rank, lora->scale);
}

static void put_bias(const rein_linear_call *c, size_t rows, int add, const rein_nn_context *run) {
    for (size_t r = 0; c->linear->bias && r < rows; r++)
        if (add) run->kernels->rows->add_scaled(c->y + r * c->linear->out, c->linear->bias, c->linear->out, 1);
        else memcpy(c->y + r * c->linear->out, c->linear->bias, c->linear->out * sizeof *c->y);
}

/* Products that wait to be computed together. */
typedef struct product_queue {
    rein_product products[REIN_MAX_PRODUCTS];
    size_t n;
} product_queue;

static void compute_products(product_queue *q, const rein_nn_context *run) {
    rein_gemm_batch(q->products, q->n, run->gemm_scratch, &run->exec);
    q->n = 0;
}

static void add_product(product_queue *q, rein_product product, const rein_nn_context *run) {
    if (q->n == REIN_MAX_PRODUCTS) compute_products(q, run);
    q->products[q->n++] = product;
}

size_t rein_lora_rows_rank(const rein_lora_rows *parts, size_t n, size_t number) {
    size_t rank = 0;
    for (size_t p = 0; p < n; p++)
        if (parts[p].loras && parts[p].loras[number].rank > rank) rank = parts[p].loras[number].rank;
    return rank;
}

/* The product of a layer and a part of the rows with A (second 0), or with B after the scale of the LoRA (second 1). */
static void add_lora(product_queue *q, int second, const rein_linear_call *c, size_t width, const float *x,
                     const rein_lora_rows *part, const rein_nn_context *run) {
    const rein_lora *lora = part->loras ? &part->loras[c->number] : NULL;
    if (!has_lora(lora)) return;
    float *inner = c->inner + part->first * width;
    if (!second) {
        const rein_matrix input = rows_of(x + part->first * c->linear->in, c->linear->in);
        add_product(q, (rein_product){inner, lora->rank, input, right_packed(&lora->packed_a), part->rows, 0}, run);
        return;
    }
    run->kernels->rows->scale(inner, part->rows * lora->rank, lora->scale);
    add_product(q,
                (rein_product){c->y + part->first * c->linear->out, c->linear->out, rows_of(inner, lora->rank),
                               right_packed(&lora->packed_b), part->rows, 1},
                run);
}

/* The products with W and A need only x; those with B need the result of A. So there are two rounds, or one without a LoRA. */
void rein_linears_forward(const rein_linear_call *calls, size_t n, const float *x, size_t rows, int add,
                          const rein_lora_rows *parts, size_t n_parts, const rein_nn_context *run) {
    product_queue q = {.n = 0};
    for (size_t i = 0; i < n; i++) {
        const rein_linear_call *c = &calls[i];
        put_bias(c, rows, add, run);
        add_product(&q,
                    (rein_product){c->y, c->linear->out, rows_of(x, c->linear->in), right_factor_forward(c->linear), rows,
                                   add || c->linear->bias},
                    run);
    }
    for (int second = 0; second < 2; second++) {
        for (size_t i = 0; i < n; i++) {
            const size_t width = rein_lora_rows_rank(parts, n_parts, calls[i].number);
            for (size_t p = 0; width && p < n_parts; p++) add_lora(&q, second, &calls[i], width, x, &parts[p], run);
        }
        compute_products(&q, run);
    }
}

void rein_linear_forward(float *y, float *inner, const float *x, size_t rows, const rein_linear *linear, const rein_lora *lora,
                         int add, const rein_nn_context *run) {
    const rein_linear_call one = {y, inner, linear, 0};
    const rein_lora_rows all = {lora, 0, rows};
    rein_linears_forward(&one, 1, x, rows, add, &all, 1, run);
}

/* The right factor of dx = dy·W. */
static rein_right_factor right_factor_backward(const rein_linear *l) {
    rein_right_factor b = {.packed = l->packed, .transposed = 1, .k = l->out, .n = l->in};
    if (!l->packed.data) b.view = l->weight;
    return b;
}
static rein_right_factor right_rows(const float *x, size_t rows, size_t columns) {
    return (rein_right_factor){.view = rows_of(x, columns), .k = rows, .n = columns};
}

/* c [m][n] += aᵀ·b, summed over the rows in order. */
static rein_product outer(float *c, const float *a, size_t m, const float *b, size_t n, size_t rows) {
    return (rein_product){c, n, columns_of(a, m), right_rows(b, rows, n), m, 1};
}

/* First the products that need only dy, then those that need the gradient of inner. */
void rein_linear_backward(float *dx, int add, const rein_linear_gradient *gradient, float *dinner, const float *dy, const float *x,
                          const float *inner, size_t rows, const rein_linear *linear, const rein_lora *lora,
                          const rein_nn_context *run) {
    const size_t in = linear->in, out = linear->out, rank = has_lora(lora) ? lora->rank : 0;
    rein_product first[3] = {{0}}, second[3] = {{0}};
    size_t n_first = 0, n_second = 0;
    if (dx) first[n_first++] = (rein_product){dx, in, rows_of(dy, out), right_factor_backward(linear), rows, add};
    if (gradient->weight) first[n_first++] = outer(gradient->weight, dy, out, x, in, rows);
    if (rank) {
        first[n_first++] = (rein_product){dinner, rank, rows_of(dy, out), right_rows(lora->b, out, rank), rows, lora->continues};
        if (gradient->b) second[n_second++] = outer(gradient->b, dy, out, inner, rank, rows);
    }
    if (rank && !lora->continued) {
        if (dx) second[n_second++] = (rein_product){dx, in, rows_of(dinner, rank), right_rows(lora->a, rank, in), rows, 1};
        if (gradient->a) second[n_second++] = outer(gradient->a, dinner, rank, x, in, rows);
    }
    rein_gemm_batch(first, n_first, run->gemm_scratch, &run->exec);
    if (rank && !lora->continued) run->kernels->rows->scale(dinner, rows * rank, lora->scale);
    rein_gemm_batch(second, n_second, run->gemm_scratch, &run->exec);
    if (gradient->bias) run->kernels->rows->add_rows(gradient->bias, dy, rows, out, out);
}

size_t rein_lora_packed_size(const rein_lora *lora, size_t in, size_t out) {
    return (rein_packed_size(in, lora->rank, REIN_STORED_F32) + rein_packed_size(lora->rank, out, REIN_STORED_F32)) / sizeof(float);
}

void rein_lora_pack(rein_lora *lora, float *to, size_t in, size_t out) {
    const rein_matrix a = columns_of(lora->a, in), b = columns_of(lora->b, lora->rank);
    lora->packed_a = rein_pack(to, &a, in, lora->rank);
    lora->packed_b = rein_pack(to + rein_packed_size(in, lora->rank, REIN_STORED_F32) / sizeof(float), &b, lora->rank, out);
}
