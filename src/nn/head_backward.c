/* head_backward.c - the gradient through a head that trains: logits again, a stretch of the vocabulary at a time. */
#include <string.h>

#include "head.h"

typedef struct rows_work {
    float *z; /* [n][columns]: logits, then their gradients */
    const float *dlog_probs, *dentropies;
    const rein_head_out *out;
    const int32_t *targets;
    size_t n, first, columns;
    const rein_head *head;
    const rein_site *run;
} rows_work;

static void through_softmax(void *context, size_t piece, int thread) {
    const rows_work *w = context;
    const float inverse = w->head->inverse_temperature;
    (void)thread;
    for (size_t r = piece * REIN_ROWS; r < w->n && r < (piece + 1) * REIN_ROWS; r++) {
        float *z = w->z + r * w->columns;
        const size_t target = (size_t)w->targets[r];
        w->run->kernels->scale(z, w->columns, inverse);
        w->run->kernels->logits_backward(z, z, w->columns, w->out->log_sums[r], w->out->entropies ? w->out->entropies[r] : 0,
                                         w->dlog_probs[r], w->dentropies ? w->dentropies[r] : 0, inverse);
        if (target >= w->first && target < w->first + w->columns) z[target - w->first] += w->dlog_probs[r] * inverse;
    }
}

void rein_head_backward(float *dh, const rein_linear_gradient *gradient, float *dinner, const float *dlog_probs,
                        const float *dentropies, const rein_head_out *out, const float *inner, const float *h,
                        const int32_t *targets, size_t n, const rein_head *head, float *scratch, const rein_site *run) {
    const rein_linear *linear = head->linear;
    const size_t in = linear->in, vocabulary = linear->out, size = rein_storage_size(linear->weight.storage);
    const rein_lora *lora = head->lora && head->lora->rank ? head->lora : NULL;
    memset(dh, 0, n * in * sizeof *dh);
    if (lora) memset(dinner, 0, n * lora->rank * sizeof *dinner);
    for (size_t first = 0; first < vocabulary; first += REIN_BACKWARD_CHUNK) {
        /* The stretch as a linear layer of its own. */
        rein_linear part = *linear;
        rein_lora part_lora = lora ? *lora : (rein_lora){0};
        part.out = vocabulary - first < REIN_BACKWARD_CHUNK ? vocabulary - first : REIN_BACKWARD_CHUNK;
        part.weight.data = (const char *)linear->weight.data + first * linear->weight.row * size;
        part.packed.data = (const char *)linear->packed.data + first * in * size;
        part.packed.n = part.out;
        rows_work w = {scratch, dlog_probs, dentropies, out, targets, n, first, part.out, head, run};
        const rein_matrix rows = {h, in, 1, REIN_STORED_F32}, dz = {scratch, part.out, 1, REIN_STORED_F32};
        rein_gemm_packed(scratch, part.out, &rows, &part.packed, n, 0, run->gemm_scratch, &run->exec);
        if (lora) {
            const rein_matrix low = {inner, lora->rank, 1, REIN_STORED_F32};
            part_lora.packed_b.data = (const float *)lora->packed_b.data + first * lora->rank;
            part_lora.packed_b.n = part.out;
            rein_gemm_packed(scratch, part.out, &low, &part_lora.packed_b, n, 1, run->gemm_scratch, &run->exec);
        }
        rein_parallel(rein_row_threads(run, n, part.out), rein_row_pieces(n), through_softmax, &w);
        const rein_linear_gradient part_gradient = {.weight = gradient->weight ? gradient->weight + first * in : NULL};
        rein_linear_backward(dh, 1, &part_gradient, NULL, scratch, h, NULL, n, &part, NULL, run);
        if (!lora) continue;
        const rein_matrix b = {lora->b + first * lora->rank, lora->rank, 1, REIN_STORED_F32};
        rein_gemm(dinner, lora->rank, &dz, &b, n, lora->rank, part.out, 1, run->gemm_scratch, &run->exec);
        if (gradient->b) {
            const rein_matrix left = {scratch, 1, part.out, REIN_STORED_F32}, right = {inner, lora->rank, 1, REIN_STORED_F32};
            rein_gemm(gradient->b + first * lora->rank, lora->rank, &left, &right, part.out, lora->rank, n, 1, run->gemm_scratch,
                      &run->exec);
        }
    }
    if (!lora) return;
    const rein_matrix low = {dinner, lora->rank, 1, REIN_STORED_F32}, a = {lora->a, in, 1, REIN_STORED_F32};
    run->kernels->scale(dinner, n * lora->rank, lora->scale);
    rein_gemm(dh, in, &low, &a, n, in, lora->rank, 1, run->gemm_scratch, &run->exec);
    if (gradient->a) {
        const rein_matrix left = {dinner, 1, lora->rank, REIN_STORED_F32}, right = {h, in, 1, REIN_STORED_F32};
        rein_gemm(gradient->a, in, &left, &right, lora->rank, in, n, 1, run->gemm_scratch, &run->exec);
    }
}
