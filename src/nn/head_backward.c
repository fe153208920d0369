/* head_backward.c - the backward pass of a head that trains, one part of the vocabulary at a time. */
#include <string.h>

#include "head.h"

/* A part of the vocabulary: the columns [first, first + columns). z [n][row] holds their logits, later the gradients of these; q
 * [n][columns] those of the reference. */
typedef struct part_of_vocabulary {
    float *z, *q;
    size_t row, first, columns;
    const float *dlog_probs, *dentropies, *dkl;
    const rein_head_out *out;
    const int32_t *targets;
    size_t n;
    const rein_head *head;
    const rein_nn_context *run;
} part_of_vocabulary;

/* The logits of a part again; the forward pass did not keep them. */
static void recompute_logits(float *z, size_t row, const part_of_vocabulary *s, const rein_head *head, const float *inner,
                             const float *h) {
    const rein_linear *linear = head->linear;
    const rein_matrix rows = {h, linear->in, 1, REIN_STORED_F32}, columns = rein_linear_columns(linear, s->first);
    rein_packed panels = {columns.data, linear->in, s->columns, columns.storage};
    if (linear->packed.data) rein_gemm_packed(z, row, &rows, &panels, s->n, 0, s->run->gemm_scratch, &s->run->exec);
    else rein_gemm(z, row, &rows, &columns, s->n, s->columns, linear->in, 0, s->run->gemm_scratch, &s->run->exec);
    if (!head->lora || !head->lora->rank) return;
    const rein_matrix low = {inner, head->lora->rank, 1, REIN_STORED_F32};
    panels = head->lora->packed_b;
    panels.data = (const float *)panels.data + s->first * panels.k;
    panels.n = s->columns;
    rein_gemm_packed(z, row, &low, &panels, s->n, 1, s->run->gemm_scratch, &s->run->exec);
}

static void scale_logits(const part_of_vocabulary *s, const rein_head *head, float *z) {
    if (head->cap > 0) s->run->kernels->rows->soft_cap(z, s->columns, 1, head->cap);
    s->run->kernels->rows->scale(z, s->columns, head->inverse_temperature);
}

/* q ← p·(log p − log q − KL). */
static void reverse_backward(const part_of_vocabulary *s, size_t r, float *q, const float *x, const float *p) {
    const rein_row_kernels *k = s->run->kernels->rows;
    const rein_head_out *out = s->out;
    k->scale(q, s->columns, -1);
    k->add_scaled(q, x, s->columns, 1);
    k->multiply(q, p, s->columns);
    k->add_scaled(q, p, s->columns, out->reference_log_sums[r] - out->log_sums[r] - out->kl[r]);
}

/* q ← p − q */
static void forward_backward(const part_of_vocabulary *s, size_t r, float *q, const float *p) {
    const rein_row_kernels *k = s->run->kernels->rows;
    k->exp_shifted(q, NULL, q, s->columns, s->out->reference_log_sums[r]);
    k->scale(q, s->columns, -1);
    k->add_scaled(q, p, s->columns, 1);
}

/* q ← (1 − β)·p·(log p − log m − KL(p‖m)) */
static void jensen_shannon_backward(const part_of_vocabulary *s, size_t r, float *q, const float *x, const float *p) {
    const rein_row_kernels *k = s->run->kernels->rows;
    const rein_head_out *out = s->out;
    const float beta = out->reference->jsd_beta;
    double toward;
    k->jensen_shannon(q, &toward, x, out->log_sums[r], q, out->reference_log_sums[r], s->columns, beta);
    k->add_scaled(q, p, s->columns, -out->toward_mixture[r]);
    k->scale(q, s->columns, 1 - beta);
}

/* q ← d divergence/d (z/T)·dkl/T, given the other model's logits; p = e^(x − log Σ e^x). */
static void kl_backward(const part_of_vocabulary *s, size_t r, const float *x) {
    const rein_row_kernels *k = s->run->kernels->rows;
    const rein_head_out *out = s->out;
    float *q = s->q + r * s->columns, p[REIN_BACKWARD_CHUNK];
    scale_logits(s, out->reference->head, q);
    k->exp_shifted(p, NULL, x, s->columns, out->log_sums[r]);
    if (out->reference->divergence == REIN_DIVERGENCE_JSD) jensen_shannon_backward(s, r, q, x, p);
    else if (out->reference->divergence == REIN_DIVERGENCE_FORWARD) forward_backward(s, r, q, p);
    else reverse_backward(s, r, q, x, p);
    k->scale(q, s->columns, s->dkl[r] * s->head->inverse_temperature);
}

static void softmax_backward(void *context, size_t piece, int thread) {
    const part_of_vocabulary *s = context;
    const rein_row_kernels *k = s->run->kernels->rows;
    const float inverse = s->head->inverse_temperature;
    float slopes[REIN_BACKWARD_CHUNK];
    (void)thread;
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < s->n && r < (piece + 1) * REIN_ROWS_PER_PIECE; r++) {
        float *z = s->z + r * s->row;
        const size_t target = (size_t)s->targets[r];
        if (!s->out->x) scale_logits(s, s->head, z);
        if (s->head->cap > 0) k->soft_cap_slope(slopes, z, s->columns, s->head->cap * inverse);
        if (s->dkl) kl_backward(s, r, z);
        k->logits_backward(z, z, s->columns, s->out->log_sums[r], s->out->entropies ? s->out->entropies[r] : 0, s->dlog_probs[r],
                           s->dentropies ? s->dentropies[r] : 0, inverse);
        if (target >= s->first && target < s->first + s->columns) z[target - s->first] += s->dlog_probs[r] * inverse;
        if (s->dkl) k->add_scaled(z, s->q + r * s->columns, s->columns, 1);
        if (s->head->cap > 0) k->multiply(z, slopes, s->columns);
    }
}

static void weights_backward(float *dh, const rein_linear_gradient *gradient, const float *h, const part_of_vocabulary *s) {
    const rein_linear *linear = s->head->linear;
    const size_t in = linear->in;
    const rein_matrix dz = {s->z, s->row, 1, REIN_STORED_F32}, transposed = {s->z, 1, s->row, REIN_STORED_F32},
                      rows = {h, in, 1, REIN_STORED_F32};
    const rein_matrix columns = rein_linear_columns(linear, s->first), weight = {columns.data, columns.column, 1, columns.storage};
    const rein_packed panels = {columns.data, in, s->columns, columns.storage};
    if (linear->packed.data) rein_gemm_packed_transposed(dh, in, &dz, &panels, s->n, 1, s->run->gemm_scratch, &s->run->exec);
    else rein_gemm(dh, in, &dz, &weight, s->n, in, s->columns, 1, s->run->gemm_scratch, &s->run->exec);
    if (gradient->weight)
        rein_gemm(gradient->weight + s->first * in, in, &transposed, &rows, s->columns, in, s->n, 1, s->run->gemm_scratch,
                  &s->run->exec);
}

static void lora_b_backward(float *dinner, const rein_linear_gradient *gradient, const float *inner, const part_of_vocabulary *s) {
    const rein_lora *lora = s->head->lora;
    const rein_matrix dz = {s->z, s->row, 1, REIN_STORED_F32}, transposed = {s->z, 1, s->row, REIN_STORED_F32},
                      b = {lora->b + s->first * lora->rank, lora->rank, 1, REIN_STORED_F32},
                      low = {inner, lora->rank, 1, REIN_STORED_F32};
    rein_gemm(dinner, lora->rank, &dz, &b, s->n, lora->rank, s->columns, 1, s->run->gemm_scratch, &s->run->exec);
    if (gradient->b)
        rein_gemm(gradient->b + s->first * lora->rank, lora->rank, &transposed, &low, s->columns, lora->rank, s->n, 1,
                  s->run->gemm_scratch, &s->run->exec);
}

static void lora_a_backward(float *dh, const rein_linear_gradient *gradient, float *dinner, const float *h, size_t n,
                            const rein_head *head, const rein_nn_context *run) {
    const rein_lora *lora = head->lora;
    const size_t in = head->linear->in;
    const rein_matrix low = {dinner, lora->rank, 1, REIN_STORED_F32}, a = {lora->a, in, 1, REIN_STORED_F32},
                      transposed = {dinner, 1, lora->rank, REIN_STORED_F32}, rows = {h, in, 1, REIN_STORED_F32};
    run->kernels->rows->scale(dinner, n * lora->rank, lora->scale);
    rein_gemm(dh, in, &low, &a, n, in, lora->rank, 1, run->gemm_scratch, &run->exec);
    if (gradient->a) rein_gemm(gradient->a, in, &transposed, &rows, lora->rank, in, n, 1, run->gemm_scratch, &run->exec);
}

void rein_head_backward(float *dh, const rein_linear_gradient *gradient, float *dinner, const float *dlog_probs,
                        const float *dentropies, const float *dkl, const rein_head_out *out, const float *inner, const float *h,
                        const int32_t *targets, size_t n, const rein_head *head, float *scratch, float *reference_scratch,
                        const rein_nn_context *run) {
    const size_t vocabulary = head->linear->out;
    const int lora = head->lora && head->lora->rank;
    memset(dh, 0, n * head->linear->in * sizeof *dh);
    if (lora) memset(dinner, 0, n * head->lora->rank * sizeof *dinner);
    for (size_t first = 0; first < vocabulary; first += REIN_BACKWARD_CHUNK) {
        const size_t columns = vocabulary - first < REIN_BACKWARD_CHUNK ? vocabulary - first : REIN_BACKWARD_CHUNK;
        part_of_vocabulary s = {out->x ? out->x + first : scratch,
                                reference_scratch,
                                out->x ? out->x_row : columns,
                                first,
                                columns,
                                dlog_probs,
                                dentropies,
                                dkl,
                                out,
                                targets,
                                n,
                                head,
                                run};
        if (!out->x) recompute_logits(s.z, s.row, &s, head, inner, h);
        if (dkl) recompute_logits(s.q, columns, &s, out->reference->head, out->reference->inner, out->reference->h);
        rein_parallel(rein_row_threads(run, n, columns), rein_row_pieces(n), softmax_backward, &s);
        weights_backward(dh, gradient, h, &s);
        if (lora) lora_b_backward(dinner, gradient, inner, &s);
    }
    if (lora) lora_a_backward(dh, gradient, dinner, h, n, head, run);
}
