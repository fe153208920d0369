/* decoder.c - the forward pass of a layer: x + attention(norm(x)), then + mlp(norm(·)). */
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
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < w->rows && r < (piece + 1) * REIN_ROWS_PER_PIECE; r++)
        w->kernels->decode(w->x + r * hidden, (const char *)e->data + rein_storage_bytes(e->storage, (size_t)w->ids[r] * e->row),
                           e->storage, hidden);
}

void rein_embed(float *x, const rein_model *model, const int32_t *ids, size_t rows, const rein_nn_context *run) {
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
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < w->batch->rows && r < (piece + 1) * REIN_ROWS_PER_PIECE; r++)
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

/* The norm of the heads of q or k, if there is one, and the rotary embedding. */
static void heads_forward(float *y, float *scales, const float *raw, const float *weight, size_t heads, const rein_batch_rows *b) {
    if (weight)
        rein_norm_forward(y, scales, raw, weight, b->rows * heads, b->model->heads.dim, (float)b->model->config.rms_norm_eps,
                          &b->run);
    rein_rotate(y, &b->angles, b->positions, b->rows, heads, 1, &b->run);
}

static void norm_forward(float *scales, const float *x, const float *weight, const rein_batch_rows *b) {
    rein_norm_forward(b->normed, scales, x, weight, b->rows, (size_t)b->model->config.hidden_size,
                      (float)b->model->config.rms_norm_eps, &b->run);
}

static void put_keys(const rein_kept *kept, size_t layer, const rein_batch_rows *b) {
    const rein_heads *h = &b->model->heads;
    keys_work keys = {b, kept, layer * b->layer_stride};
    heads_forward(kept->k, kept->k_scale, kept->k_raw, b->model->layers[layer].norm_k, h->n_kv, b);
    rein_parallel(rein_row_threads(&b->run, b->rows, 2 * h->n_kv * h->dim), rein_row_pieces(b->rows), put_rows, &keys);
}

/* Everything from the queries to the output of attention, which is added to kept->middle (it holds x). */
static void attention_forward(const rein_kept *kept, size_t layer, const rein_batch_rows *b) {
    const rein_heads *h = &b->model->heads;
    heads_forward(kept->q, kept->q_scale, kept->q_raw, b->model->layers[layer].norm_q, h->n, b);
    rein_attention_forward(kept->o, kept->softmax_stats, kept->q, b->queries, b->n_queries, layer * b->layer_stride, h, b->pieces,
                           b->attention, b->keys, &b->run);
    add_linear(kept->middle, kept, kept->o, layer, REIN_O, b);
}

static void mlp_forward(float *out, const rein_kept *kept, size_t layer, const rein_batch_rows *b) {
    const size_t hidden = (size_t)b->model->config.hidden_size, middle = (size_t)b->model->config.intermediate_size;
    norm_forward(kept->middle_scale, kept->middle, b->model->layers[layer].norm_mlp, b);
    const rein_linear_call calls[] = {call(kept->gate, kept, layer, REIN_GATE, b), call(kept->up, kept, layer, REIN_UP, b)};
    rein_linears_forward(calls, 2, b->normed, b->rows, 0, &b->run);
    const rein_lora *down = lora_of(b, layer, REIN_DOWN);
    if (!out && !down) return;
    rein_swiglu_forward(b->gated, kept->gate, kept->up, b->rows, middle, &b->run);
    if (!out) {
        rein_lora_inner(kept->inner[REIN_DOWN], b->gated, b->rows, middle, down, &b->run);
        return;
    }
    memcpy(out, kept->middle, b->rows * hidden * sizeof(float));
    add_linear(out, kept, b->gated, layer, REIN_DOWN, b);
}

void rein_layer_forward(float *out, const rein_kept *kept, size_t layer, const rein_batch_rows *b) {
    const rein_linear_call calls[] = {call(kept->q_raw, kept, layer, REIN_Q, b), call(kept->k_raw, kept, layer, REIN_K, b),
                                      call(kept->v, kept, layer, REIN_V, b)};
    norm_forward(kept->scale, kept->x, b->model->layers[layer].norm_attention, b);
    rein_linears_forward(calls, 3, b->normed, b->rows, 0, &b->run);
    put_keys(kept, layer, b);
    memcpy(kept->middle, kept->x, b->rows * (size_t)b->model->config.hidden_size * sizeof(float));
    attention_forward(kept, layer, b);
    mlp_forward(out, kept, layer, b);
}

/* ------------------------------------------------------------------------------------------------- the last layer, for some rows */

void rein_selected_rows_take(rein_selected_rows *selected, const rein_batch_rows *b, const rein_query *parts, size_t n,
                             rein_arena *arena) {
    size_t rows = 0;
    for (size_t i = 0; i < n; i++) rows += parts[i].count;
    size_t *from = rein_arena_take(arena, rows * sizeof *from);
    int32_t *positions = rein_arena_take(arena, rows * sizeof *positions);
    rein_query *queries = rein_arena_take(arena, n * sizeof *queries);
    if (arena->failed) return;
    selected->from = from;
    selected->batch = *b;
    selected->batch.rows = 0;
    selected->batch.positions = positions;
    selected->batch.queries = queries;
    selected->batch.n_queries = n;
    for (size_t i = 0; i < n; i++) {
        queries[i] = parts[i];
        queries[i].first = selected->batch.rows;
        for (size_t r = 0; r < parts[i].count; r++, selected->batch.rows++) {
            from[selected->batch.rows] = parts[i].first + r;
            positions[selected->batch.rows] = (int32_t)(parts[i].before + r);
        }
    }
}

static void gather(float *to, const float *x, const rein_selected_rows *selected) {
    const size_t hidden = (size_t)selected->batch.model->config.hidden_size;
    for (size_t i = 0; i < selected->batch.rows; i++) /* ascending, so that `to` may be x */
        if (to + i * hidden != x + selected->from[i] * hidden)
            memcpy(to + i * hidden, x + selected->from[i] * hidden, hidden * sizeof *to);
}

void rein_last_layer_forward(float *out, const rein_kept *kept, const rein_selected_rows *selected, const rein_batch_rows *b) {
    const rein_batch_rows *some = &selected->batch;
    const size_t layer = (size_t)b->model->config.n_layers - 1;
    const rein_linear_call calls[] = {call(kept->k_raw, kept, layer, REIN_K, b), call(kept->v, kept, layer, REIN_V, b)};
    const rein_linear_call q = call(kept->q_raw, kept, layer, REIN_Q, some);
    if (some->rows == b->rows) { /* all rows are selected */
        rein_layer_forward(out, kept, layer, b);
        return;
    }
    norm_forward(kept->scale, kept->x, b->model->layers[layer].norm_attention, b);
    rein_linears_forward(calls, 2, b->normed, b->rows, 0, &b->run);
    put_keys(kept, layer, b);
    gather(b->normed, b->normed, selected);
    gather(kept->middle, kept->x, selected);
    rein_linears_forward(&q, 1, b->normed, some->rows, 0, &b->run);
    attention_forward(kept, layer, some);
    mlp_forward(out, kept, layer, some);
}
