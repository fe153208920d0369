/* decoder_backward.c - the backward pass of a layer: the steps of decoder.c in reverse order. Norms and the gate are computed
 * again, which is cheaper than keeping them. */
#include <string.h>

#include "decoder.h"
#include "nn/mlp.h"
#include "nn/norm.h"

void rein_backward_take(rein_backward_scratch *s, const rein_batch_rows *b, rein_arena *arena) {
    const rein_heads *h = &b->model->heads;
    const size_t hidden = (size_t)b->model->config.hidden_size, middle = (size_t)b->model->config.intermediate_size;
    const size_t queries = b->rows * h->n * h->dim, keys = b->rows * h->n_kv * h->dim;
    s->normed = b->normed, s->gated = b->gated; /* the forward pass no longer needs them */
    s->dnormed = rein_arena_floats(arena, b->rows * hidden);
    s->dgated = rein_arena_floats(arena, b->rows * middle);
    s->dq = rein_arena_floats(arena, queries);
    s->d_o = rein_arena_floats(arena, queries);
    s->dk = rein_arena_floats(arena, keys);
    s->dv = rein_arena_floats(arena, keys);
    s->draw = b->model->config.qk_norm ? rein_arena_floats(arena, queries) : NULL;
    s->dinner = b->adapter ? rein_arena_floats(arena, b->rows * (size_t)b->adapter->rank) : NULL;
    s->attention = rein_arena_floats(arena, rein_attention_backward_scratch(h, b->keys, &b->run));
}

typedef struct layer_work {
    const rein_layer *layer;
    const rein_layer_gradient *gradient;
    const rein_kept *kept;
    size_t index;
    const rein_batch_rows *b;
    const rein_backward_scratch *s;
} layer_work;

static void linear(float *dx, int add, rein_module m, const float *dy, const float *x, const layer_work *w) {
    rein_linear_backward(dx, add, &w->gradient->linear[m], w->s->dinner, dy, x, w->kept->inner[m], w->b->rows, &w->layer->linear[m],
                         rein_adapter_lora(w->b->adapter, w->index, m), &w->b->run);
}

static void mlp_backward(float *dx, const layer_work *w) {
    const rein_batch_rows *b = w->b;
    const rein_backward_scratch *s = w->s;
    const size_t hidden = (size_t)b->model->config.hidden_size, middle = (size_t)b->model->config.intermediate_size;
    rein_swiglu_forward(s->gated, w->kept->gate, w->kept->up, b->rows, middle, &b->run);
    linear(s->dgated, 0, REIN_DOWN, dx, s->gated, w);
    rein_swiglu_backward(w->kept->gate, w->kept->up, s->dgated, b->rows, middle, &b->run);
    rein_norm_forward(s->normed, NULL, w->kept->middle, w->layer->norm_mlp, b->rows, hidden, (float)b->model->config.rms_norm_eps,
                      &b->run);
    linear(s->dnormed, 0, REIN_GATE, w->kept->gate, s->normed, w);
    linear(s->dnormed, 1, REIN_UP, w->kept->up, s->normed, w);
    rein_norm_backward(dx, w->gradient->norm_mlp, s->dnormed, w->kept->middle, w->layer->norm_mlp, w->kept->middle_scale, b->rows,
                       hidden, &b->run);
}

/* The backward pass of rotary embedding and norm of the heads, in place. */
static void heads_backward(float *d, float *dweight, const float *raw, const float *weight, const float *scales, size_t heads,
                           const layer_work *w) {
    const rein_batch_rows *b = w->b;
    const size_t dim = b->model->heads.dim;
    rein_rotate(d, &b->angles, b->positions, b->rows, heads, -1, &b->run);
    if (!weight) return;
    memset(w->s->draw, 0, b->rows * heads * dim * sizeof *d);
    rein_norm_backward(w->s->draw, dweight, d, raw, weight, scales, b->rows * heads, dim, &b->run);
    memcpy(d, w->s->draw, b->rows * heads * dim * sizeof *d);
}

static void inputs_backward(float *dx, int input_wanted, const layer_work *w) {
    const rein_batch_rows *b = w->b;
    const rein_backward_scratch *s = w->s;
    const size_t hidden = (size_t)b->model->config.hidden_size;
    float *dnormed = input_wanted ? s->dnormed : NULL;
    rein_norm_forward(s->normed, NULL, w->kept->x, w->layer->norm_attention, b->rows, hidden, (float)b->model->config.rms_norm_eps,
                      &b->run);
    linear(dnormed, 0, REIN_Q, s->dq, s->normed, w);
    linear(dnormed, 1, REIN_K, s->dk, s->normed, w);
    linear(dnormed, 1, REIN_V, s->dv, s->normed, w);
    if (input_wanted)
        rein_norm_backward(dx, w->gradient->norm_attention, dnormed, w->kept->x, w->layer->norm_attention, w->kept->scale, b->rows,
                           hidden, &b->run);
}

void rein_layer_backward(float *dx, int input_wanted, const rein_layer_gradient *gradient, const rein_kept *kept, size_t layer,
                         const rein_batch_rows *b, const rein_segment *segments, const size_t *trees, size_t n_trees,
                         const rein_backward_scratch *s) {
    const rein_heads *h = &b->model->heads;
    const rein_layer *l = &b->model->layers[layer];
    const layer_work w = {l, gradient, kept, layer, b, s};
    mlp_backward(dx, &w);
    linear(s->d_o, 0, REIN_O, dx, kept->o, &w);
    rein_attention_backward(s->dq, s->dk, s->dv, s->d_o, kept->q, kept->k, kept->v, kept->softmax_stats, segments, trees, n_trees,
                            h, b->rows, s->attention, b->keys, &b->run);
    heads_backward(s->dq, gradient->norm_q, kept->q_raw, l->norm_q, kept->q_scale, h->n, &w);
    heads_backward(s->dk, gradient->norm_k, kept->k_raw, l->norm_k, kept->k_scale, h->n_kv, &w);
    inputs_backward(dx, input_wanted, &w);
}
