/* decoder.c - a layer forward: x + attention(norm(x)), then + mlp(norm(·)). */
#include "decoder.h"

#include <string.h>

#include "nn/mlp.h"
#include "nn/norm.h"

static const rein_lora *lora_of(const rein_batch_rows *b, size_t layer, rein_module m) {
    return rein_adapter_lora(b->adapter, layer, m);
}

void rein_batch_take(rein_batch_rows *b, rein_arena *arena) {
    b->normed = rein_arena_floats(arena, b->rows * (size_t)b->model->config.hidden_size);
    b->gated = rein_arena_floats(arena, b->rows * (size_t)b->model->config.intermediate_size);
    b->attention = rein_arena_floats(arena, rein_attention_scratch(&b->model->heads, b->keys, &b->run));
    b->pieces = rein_arena_take(arena, (b->n_queries + 1) * sizeof *b->pieces);
    b->run.gemm_scratch = rein_arena_take(arena, rein_gemm_scratch(&b->run.exec));
}

void rein_kept_take(rein_kept *kept, const rein_batch_rows *b, int for_backward, rein_arena *arena) {
    const rein_heads *h = &b->model->heads;
    const size_t hidden = (size_t)b->model->config.hidden_size, middle = (size_t)b->model->config.intermediate_size;
    const int normed = b->model->config.qk_norm;
    kept->middle = rein_arena_floats(arena, b->rows * hidden);
    kept->scale = rein_arena_floats(arena, b->rows);
    kept->middle_scale = rein_arena_floats(arena, b->rows);
    kept->q = rein_arena_floats(arena, b->rows * h->n * h->dim);
    kept->k = rein_arena_floats(arena, b->rows * h->n_kv * h->dim);
    kept->v = rein_arena_floats(arena, b->rows * h->n_kv * h->dim);
    kept->o = rein_arena_floats(arena, b->rows * h->n * h->dim);
    kept->q_raw = normed && for_backward ? rein_arena_floats(arena, b->rows * h->n * h->dim) : kept->q;
    kept->k_raw = normed && for_backward ? rein_arena_floats(arena, b->rows * h->n_kv * h->dim) : kept->k;
    kept->q_scale = normed ? rein_arena_floats(arena, b->rows * h->n) : NULL;
    kept->k_scale = normed ? rein_arena_floats(arena, b->rows * h->n_kv) : NULL;
    kept->softness = for_backward ? rein_arena_floats(arena, 2 * b->rows * h->n) : NULL;
    kept->gate = rein_arena_floats(arena, b->rows * middle);
    kept->up = rein_arena_floats(arena, b->rows * middle);
    for (int m = 0; m < REIN_LAYER_MODULES; m++) {
        const rein_lora *lora = lora_of(b, 0, (rein_module)m);
        kept->inner[m] = lora ? rein_arena_floats(arena, b->rows * lora->rank) : NULL;
    }
}

/* ---------------------------------------------------------------------------------------------------------------- embedding */

typedef struct embed_work {
    float *x;
    const rein_model *model;
    const int32_t *ids;
    size_t rows;
    const rein_kernels *kernels;
} embed_work;

static void embed_rows(void *context, size_t piece, int thread) {
    const embed_work *w = context;
    const rein_matrix *e = &w->model->embedding;
    const size_t hidden = (size_t)w->model->config.hidden_size;
    (void)thread;
    for (size_t r = piece * REIN_ROWS; r < w->rows && r < (piece + 1) * REIN_ROWS; r++)
        w->kernels->widen(w->x + r * hidden, (const char *)e->data + (size_t)w->ids[r] * e->row * rein_storage_size(e->storage),
                          e->storage, hidden);
}

void rein_embed(float *x, const rein_model *model, const int32_t *ids, size_t rows, const rein_site *run) {
    embed_work w = {x, model, ids, rows, run->kernels};
    rein_parallel(rein_row_threads(run, rows, (size_t)model->config.hidden_size), rein_row_pieces(rows), embed_rows, &w);
}

/* --------------------------------------------------------------------------------------------------------------------- layer */

typedef struct keys_work {
    const rein_batch_rows *batch;
    const rein_kept *kept;
    size_t offset;
} keys_work;

static void put_rows(void *context, size_t piece, int thread) {
    const keys_work *w = context;
    const rein_heads *h = &w->batch->model->heads;
    const size_t width = h->n_kv * h->dim;
    (void)thread;
    for (size_t r = piece * REIN_ROWS; r < w->batch->rows && r < (piece + 1) * REIN_ROWS; r++)
        rein_keys_put(w->batch->slots[r].block + w->offset, w->batch->slots[r].slot, w->kept->k + r * width, w->kept->v + r * width,
                      h);
}

static rein_linear_call call(float *y, const rein_kept *kept, size_t layer, rein_module m, const rein_batch_rows *b) {
    return (rein_linear_call){y, kept->inner[m], &b->model->layers[layer].linear[m], lora_of(b, layer, m)};
}

static void add_linear(float *y, const rein_kept *kept, const float *x, size_t layer, rein_module m, const rein_batch_rows *b) {
    const rein_linear_call one = call(y, kept, layer, m, b);
    rein_linears_forward(&one, 1, x, b->rows, 1, &b->run);
}

static void heads_forward(const rein_kept *kept, size_t layer, const rein_batch_rows *b) {
    const rein_layer *l = &b->model->layers[layer];
    const rein_heads *h = &b->model->heads;
    const float epsilon = (float)b->model->config.rms_norm_eps;
    if (l->norm_q) {
        rein_norm_forward(kept->q, kept->q_scale, kept->q_raw, l->norm_q, b->rows * h->n, h->dim, epsilon, &b->run);
        rein_norm_forward(kept->k, kept->k_scale, kept->k_raw, l->norm_k, b->rows * h->n_kv, h->dim, epsilon, &b->run);
    }
    rein_rotate(kept->q, &b->angles, b->positions, b->rows, h->n, 1, &b->run);
    rein_rotate(kept->k, &b->angles, b->positions, b->rows, h->n_kv, 1, &b->run);
}

static void attention_forward(const rein_kept *kept, size_t layer, const rein_batch_rows *b) {
    const rein_layer *l = &b->model->layers[layer];
    const rein_heads *h = &b->model->heads;
    const size_t hidden = (size_t)b->model->config.hidden_size, offset = layer * b->layer_stride;
    rein_norm_forward(b->normed, kept->scale, kept->x, l->norm_attention, b->rows, hidden, (float)b->model->config.rms_norm_eps,
                      &b->run);
    const rein_linear_call calls[] = {call(kept->q_raw, kept, layer, REIN_Q, b), call(kept->k_raw, kept, layer, REIN_K, b),
                                      call(kept->v, kept, layer, REIN_V, b)};
    rein_linears_forward(calls, 3, b->normed, b->rows, 0, &b->run);
    heads_forward(kept, layer, b);
    keys_work keys = {b, kept, offset};
    rein_parallel(rein_row_threads(&b->run, b->rows, 2 * h->n_kv * h->dim), rein_row_pieces(b->rows), put_rows, &keys);
    rein_attention_forward(kept->o, kept->softness, kept->q, b->queries, b->n_queries, offset, h, b->pieces, b->attention, b->keys,
                           &b->run);
    memcpy(kept->middle, kept->x, b->rows * hidden * sizeof(float));
    add_linear(kept->middle, kept, kept->o, layer, REIN_O, b);
}

void rein_layer_forward(float *out, const rein_kept *kept, size_t layer, const rein_batch_rows *b) {
    const rein_layer *l = &b->model->layers[layer];
    const size_t hidden = (size_t)b->model->config.hidden_size, middle = (size_t)b->model->config.intermediate_size;
    attention_forward(kept, layer, b);
    rein_norm_forward(b->normed, kept->middle_scale, kept->middle, l->norm_mlp, b->rows, hidden,
                      (float)b->model->config.rms_norm_eps, &b->run);
    const rein_linear_call calls[] = {call(kept->gate, kept, layer, REIN_GATE, b), call(kept->up, kept, layer, REIN_UP, b)};
    rein_linears_forward(calls, 2, b->normed, b->rows, 0, &b->run);
    const rein_lora *down = lora_of(b, layer, REIN_DOWN);
    if (!out && !down) return;
    rein_gate_forward(b->gated, kept->gate, kept->up, b->rows, middle, &b->run);
    if (!out) {
        rein_lora_inner(kept->inner[REIN_DOWN], b->gated, b->rows, middle, down, &b->run);
        return;
    }
    memcpy(out, kept->middle, b->rows * hidden * sizeof(float));
    add_linear(out, kept, b->gated, layer, REIN_DOWN, b);
}
