/* decoder.c - the forward pass of a layer: x + attention(norm(x)), then + mlp(norm(·)). The norms may also stand after attention and MLP, or
 * only there. */
#include "decoder.h"

#include <string.h>

#include "experts.h"
#include "nn/mlp.h"
#include "nn/norm.h"

static void take_part(rein_batch_rows *b, rein_arena *arena) {
    rein_lora_rows *all = rein_arena_take(arena, sizeof *all);
    if (all) *all = (rein_lora_rows){b->adapter ? b->adapter->loras : NULL, 0, b->rows};
    b->parts = all, b->n_parts = all != NULL;
}

void rein_batch_take(rein_batch_rows *b, rein_arena *arena) {
    if (!b->parts) take_part(b, arena);
    b->normed = rein_arena_floats(arena, b->rows * (size_t)b->model->config.hidden_size);
    b->gated = rein_arena_floats(arena, b->rows * rein_widest_mlp(&b->model->config));
    b->attention = rein_arena_floats(arena, rein_attention_scratch(&b->model->heads, b->keys, &b->run));
    b->pieces = rein_arena_take(arena, (b->n_queries + 1) * sizeof *b->pieces);
    b->run.gemm_scratch = rein_arena_take(arena, rein_gemm_scratch(&b->run.exec));
    if (b->model->config.n_experts) rein_experts_take(b, arena);
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
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < w->rows && r < (piece + 1) * REIN_ROWS_PER_PIECE; r++) {
        w->kernels->decode(w->x + r * hidden, (const char *)e->data + rein_storage_bytes(e->storage, (size_t)w->ids[r] * e->row),
                           e->storage, hidden);
        if (w->model->config.embedding_scale != 1)
            w->kernels->rows->scale(w->x + r * hidden, hidden, (float)w->model->config.embedding_scale);
    }
}

void rein_embed(float *x, const rein_model *model, const int32_t *ids, size_t rows, const rein_nn_context *run) {
    embed_work w = {x, model, ids, rows, run->kernels};
    rein_parallel(rein_row_threads(run, rows, (size_t)model->config.hidden_size), rein_row_pieces(rows), embed_rows, &w);
}

/* --------------------------------------------------------------------------------------------------------------------- layer */

typedef struct keys_work {
    const rein_batch_rows *batch;
    const rein_kept *kept;
    rein_key_part part;
    size_t offset;
} keys_work;

static void put_rows(void *context, size_t piece, int thread) {
    const keys_work *w = context;
    const rein_heads *h = &w->batch->model->heads;
    const size_t width = h->n_kv * h->dim;
    (void)thread;
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < w->batch->rows && r < (piece + 1) * REIN_ROWS_PER_PIECE; r++)
        rein_keys_put(w->batch->slots[r].block[w->part] + w->offset, w->batch->slots[r].slot, w->kept->k + r * width,
                      w->kept->v + r * width, h);
}

static rein_linear_call call(float *y, const rein_kept *kept, size_t layer, rein_module m, const rein_batch_rows *b) {
    return (rein_linear_call){y, kept->inner[m], &b->model->layers[layer].linear[m],
                              layer * rein_layer_slots(&b->model->config) + (size_t)m};
}

static void linears(const rein_linear_call *calls, size_t n, const float *x, int add, const rein_batch_rows *b) {
    rein_linears_forward(calls, n, x, b->rows, add, b->parts, b->n_parts, &b->run);
}

static void add_linear(float *y, const rein_kept *kept, const float *x, size_t layer, rein_module m, const rein_batch_rows *b) {
    const rein_linear_call one = call(y, kept, layer, m, b);
    linears(&one, 1, x, 1, b);
}

/* The norm of q or k, if there is one, and the rotary embedding, if the layer has one. */
static void heads_forward(float *y, float *scales, const float *raw, const rein_norm *norm, size_t heads, size_t layer,
                          const rein_batch_rows *b) {
    const size_t dim = b->model->heads.dim, parts = b->model->config.qk_norm == REIN_QK_WHOLE ? 1 : heads;
    const int rope = b->model->layers[layer].rope;
    if (norm->weight) rein_norm_forward(y, scales, raw, norm, b->rows * parts, heads / parts * dim, &b->run);
    if (rope >= 0) rein_rotate(y, &b->angles[rope], b->positions, b->rows, heads, 1, &b->run);
}

/* The input of attention or MLP: x after its norm, or x itself if it has none. */
static const float *normed_input(float *scales, const float *x, size_t layer, rein_norm_place place, const rein_batch_rows *b) {
    const rein_norm *norm = &b->model->layers[layer].norms[place];
    if (!norm->weight) return x;
    rein_norm_forward(b->normed, scales, x, norm, b->rows, (size_t)b->model->config.hidden_size, &b->run);
    return b->normed;
}

static void put_keys(const rein_kept *kept, size_t layer, const rein_batch_rows *b) {
    const rein_heads *h = &b->model->heads;
    const rein_layer *l = &b->model->layers[layer];
    keys_work keys = {b, kept, rein_key_part_of(&l->heads), l->key_index * b->layer_stride};
    heads_forward(kept->k, kept->k_scale, kept->k_raw, &l->norms[REIN_NORM_K], h->n_kv, layer, b);
    rein_parallel(rein_row_threads(&b->run, b->rows, 2 * h->n_kv * h->dim), rein_row_pieces(b->rows), put_rows, &keys);
}

/* y [rows][hidden] += scale·norm(x·W). `branch` keeps x·W before its norm; without a norm it is not needed. y NULL: only `branch` and the
 * scales of its norm are wanted. */
static void add_branch(float *y, float *branch, float *scales, rein_norm_place place, const float *x, const rein_kept *kept,
                       size_t layer, rein_module m, const rein_batch_rows *b) {
    const rein_norm *norm = &b->model->layers[layer].norms[place];
    const size_t hidden = (size_t)b->model->config.hidden_size;
    const float scale = (float)b->model->config.residual_scale;
    if (!norm->weight && scale == 1) {
        add_linear(y, kept, x, layer, m, b);
        return;
    }
    const rein_linear_call one = call(norm->weight ? branch : b->normed, kept, layer, m, b);
    linears(&one, 1, x, 0, b);
    if (norm->weight) rein_norm_forward(b->normed, scales, branch, norm, b->rows, hidden, &b->run);
    if (y) rein_add_rows(y, b->normed, b->rows, hidden, scale, &b->run);
}

/* Everything from the queries to the output of attention, which is added to kept->middle (it holds x). */
static void attention_forward(const rein_kept *kept, size_t layer, const rein_batch_rows *b) {
    const rein_layer *l = &b->model->layers[layer];
    heads_forward(kept->q, kept->q_scale, kept->q_raw, &l->norms[REIN_NORM_Q], l->heads.n, layer, b);
    rein_attention_forward(kept->o, kept->softmax_stats, kept->q, b->queries, b->n_queries, l->key_index * b->layer_stride,
                           &l->heads, b->pieces, b->attention, b->keys, &b->run);
    add_branch(kept->middle, kept->attention_out, kept->attention_out_scale, REIN_NORM_ATTENTION_OUT, kept->o, kept, layer, REIN_O,
               b);
}

static void mlp_forward(float *out, const rein_kept *kept, size_t layer, const rein_batch_rows *b) {
    const size_t hidden = (size_t)b->model->config.hidden_size, middle = (size_t)b->model->config.intermediate_size;
    const float *x = normed_input(kept->middle_scale, kept->middle, layer, REIN_NORM_MLP, b);
    if (b->model->layers[layer].experts) {
        if (out) memcpy(out, kept->middle, b->rows * hidden * sizeof(float));
        rein_experts_forward(out, x, kept, layer, b);
        return;
    }
    const rein_linear_call calls[] = {call(kept->gate, kept, layer, REIN_GATE, b), call(kept->up, kept, layer, REIN_UP, b)};
    linears(calls, 2, x, 0, b);
    const rein_lora *down = rein_adapter_lora(b->adapter, layer, REIN_DOWN);
    if (!out && !down && !kept->mlp_out) return;
    rein_gate_forward(b->gated, kept->gate, kept->up, b->rows, middle, b->model->config.activation, &b->run);
    if (!out && !kept->mlp_out) {
        rein_lora_inner(kept->inner[REIN_DOWN], b->gated, b->rows, middle, down, &b->run);
        return;
    }
    if (out) memcpy(out, kept->middle, b->rows * hidden * sizeof(float));
    add_branch(out, kept->mlp_out, kept->mlp_out_scale, REIN_NORM_MLP_OUT, b->gated, kept, layer, REIN_DOWN, b);
}

void rein_layer_forward(float *out, const rein_kept *kept, size_t layer, const rein_batch_rows *b) {
    const rein_linear_call calls[] = {call(kept->q_raw, kept, layer, REIN_Q, b), call(kept->k_raw, kept, layer, REIN_K, b),
                                      call(kept->v, kept, layer, REIN_V, b)};
    linears(calls, 3, normed_input(kept->scale, kept->x, layer, REIN_NORM_ATTENTION, b), 0, b);
    put_keys(kept, layer, b);
    memcpy(kept->middle, kept->x, b->rows * (size_t)b->model->config.hidden_size * sizeof(float));
    attention_forward(kept, layer, b);
    mlp_forward(out, kept, layer, b);
}

/* ------------------------------------------------------------------------------------------------- the last layer, for some rows */

/* The parts of the selected rows: as many as the batch has, some perhaps empty. */
static void select_parts(rein_selected_rows *selected, rein_lora_rows *parts, const rein_batch_rows *b) {
    size_t row = 0;
    for (size_t p = 0; p < b->n_parts; p++) {
        const size_t first = row, end = b->parts[p].first + b->parts[p].rows;
        while (row < selected->batch.rows && selected->from[row] < end) row++;
        parts[p] = (rein_lora_rows){b->parts[p].loras, first, row - first};
    }
    selected->batch.parts = parts;
}

void rein_selected_rows_take(rein_selected_rows *selected, const rein_batch_rows *b, const rein_query *parts, size_t n,
                             rein_arena *arena) {
    size_t rows = 0;
    for (size_t i = 0; i < n; i++) rows += parts[i].count;
    size_t *from = rein_arena_take(arena, rows * sizeof *from);
    int32_t *positions = rein_arena_take(arena, rows * sizeof *positions);
    rein_query *queries = rein_arena_take(arena, n * sizeof *queries);
    rein_lora_rows *some = rein_arena_take(arena, b->n_parts * sizeof *some);
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
    select_parts(selected, some, b);
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
    const float *x = normed_input(kept->scale, kept->x, layer, REIN_NORM_ATTENTION, b);
    linears(calls, 2, x, 0, b);
    put_keys(kept, layer, b);
    gather(b->normed, x, selected);
    gather(kept->middle, kept->x, selected);
    linears(&q, 1, b->normed, 0, some);
    attention_forward(kept, layer, some);
    mlp_forward(out, kept, layer, some);
}
