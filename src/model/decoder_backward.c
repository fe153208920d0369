/* decoder_backward.c - the backward pass of a layer: the steps of decoder.c in reverse order. Norms and the gate are computed
 * again, which is cheaper than keeping them. */
#include <string.h>

#include "decoder.h"
#include "experts.h"
#include "nn/mlp.h"
#include "nn/norm.h"

void rein_backward_take(rein_backward_scratch *s, const rein_batch_rows *b, rein_arena *arena) {
    const rein_heads *h = &b->model->heads;
    const size_t hidden = (size_t)b->model->config.hidden_size, middle = rein_widest_mlp(&b->model->config);
    const size_t queries = b->rows * h->n * h->dim, keys = b->rows * h->n_kv * h->dim;
    s->normed = b->normed, s->gated = b->gated; /* the forward pass no longer needs them */
    s->dnormed = rein_arena_floats(arena, b->rows * hidden);
    s->dgated = rein_arena_floats(arena, b->rows * middle);
    s->dq = rein_arena_floats(arena, queries);
    s->d_o = rein_arena_floats(arena, queries);
    s->dk = rein_arena_floats(arena, keys);
    s->dv = rein_arena_floats(arena, keys);
    s->draw = b->model->config.qk_norm ? rein_arena_floats(arena, queries) : NULL;
    s->dscaled = b->model->config.residual_scale != 1 ? rein_arena_floats(arena, b->rows * hidden) : NULL;
    s->dbranch = b->model->config.family->norms != REIN_NORMS_BEFORE ? rein_arena_floats(arena, b->rows * hidden) : NULL;
    s->dinner = b->adapter ? rein_arena_floats(arena, b->rows * (size_t)b->adapter->rank) : NULL;
    s->attention = rein_arena_floats(arena, rein_attention_backward_scratch(h, b->keys, &b->run));
    if (b->model->config.n_experts) rein_experts_backward_take(s, b, arena);
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

/* The gradient of x·W in y += scale·norm(x·W), from that of y: dy itself if there is neither a norm nor a scale. */
static const float *branch_backward(const float *dy, rein_norm_place place, const float *branch, const float *scales,
                                    const layer_work *w) {
    const rein_norm *norm = &w->layer->norms[place];
    const size_t rows = w->b->rows, hidden = (size_t)w->b->model->config.hidden_size;
    if (w->s->dscaled) {
        memset(w->s->dscaled, 0, rows * hidden * sizeof *dy);
        rein_add_rows(w->s->dscaled, dy, rows, hidden, (float)w->b->model->config.residual_scale, &w->b->run);
        dy = w->s->dscaled;
    }
    if (!norm->weight) return dy;
    memset(w->s->dbranch, 0, rows * hidden * sizeof *dy);
    rein_norm_backward(w->s->dbranch, w->gradient->norms[place], dy, branch, norm, scales, rows, hidden, &w->b->run);
    return w->s->dbranch;
}

/* The input of attention or MLP, computed again from x. */
static const float *normed_input(const float *x, rein_norm_place place, const layer_work *w) {
    const rein_norm *norm = &w->layer->norms[place];
    if (!norm->weight) return x;
    rein_norm_forward(w->s->normed, NULL, x, norm, w->b->rows, (size_t)w->b->model->config.hidden_size, &w->b->run);
    return w->s->normed;
}

/* dx += the gradient of x, from dnormed, that of norm(x). */
static void input_backward(float *dx, const float *x, const float *scales, rein_norm_place place, const layer_work *w) {
    const rein_norm *norm = &w->layer->norms[place];
    const size_t rows = w->b->rows, hidden = (size_t)w->b->model->config.hidden_size;
    if (norm->weight) rein_norm_backward(dx, w->gradient->norms[place], w->s->dnormed, x, norm, scales, rows, hidden, &w->b->run);
    else rein_add_rows(dx, w->s->dnormed, rows, hidden, 1, &w->b->run);
}

static void mlp_backward(float *dx, const layer_work *w) {
    const rein_batch_rows *b = w->b;
    const rein_backward_scratch *s = w->s;
    const size_t middle = (size_t)b->model->config.intermediate_size;
    const rein_activation activation = b->model->config.activation;
    const float *dout = branch_backward(dx, REIN_NORM_MLP_OUT, w->kept->mlp_out, w->kept->mlp_out_scale, w);
    if (w->layer->experts) {
        const float *x = normed_input(w->kept->middle, REIN_NORM_MLP, w);
        rein_experts_backward(s->dnormed, w->gradient, dout, x, w->kept, w->index, b, s);
        input_backward(dx, w->kept->middle, w->kept->middle_scale, REIN_NORM_MLP, w);
        return;
    }
    rein_gate_forward(s->gated, w->kept->gate, w->kept->up, b->rows, middle, activation, &b->run);
    linear(s->dgated, 0, REIN_DOWN, dout, s->gated, w);
    rein_gate_backward(w->kept->gate, w->kept->up, s->dgated, b->rows, middle, activation, &b->run);
    const float *x = normed_input(w->kept->middle, REIN_NORM_MLP, w);
    linear(s->dnormed, 0, REIN_GATE, w->kept->gate, x, w);
    linear(s->dnormed, 1, REIN_UP, w->kept->up, x, w);
    input_backward(dx, w->kept->middle, w->kept->middle_scale, REIN_NORM_MLP, w);
}

/* The backward pass of rotary embedding and norm of q or k, in place. */
static void heads_backward(float *d, rein_norm_place place, const float *raw, const float *scales, size_t heads,
                           const layer_work *w) {
    const rein_batch_rows *b = w->b;
    const rein_norm *norm = &w->layer->norms[place];
    const size_t dim = b->model->heads.dim, parts = b->model->config.qk_norm == REIN_QK_WHOLE ? 1 : heads;
    if (w->layer->rope >= 0) rein_rotate(d, &b->angles[w->layer->rope], b->positions, b->rows, heads, -1, &b->run);
    if (!norm->weight) return;
    memset(w->s->draw, 0, b->rows * heads * dim * sizeof *d);
    rein_norm_backward(w->s->draw, w->gradient->norms[place], d, raw, norm, scales, b->rows * parts, heads / parts * dim, &b->run);
    memcpy(d, w->s->draw, b->rows * heads * dim * sizeof *d);
}

static void inputs_backward(float *dx, int input_wanted, const layer_work *w) {
    const rein_backward_scratch *s = w->s;
    float *dnormed = input_wanted ? s->dnormed : NULL;
    const float *x = normed_input(w->kept->x, REIN_NORM_ATTENTION, w);
    linear(dnormed, 0, REIN_Q, s->dq, x, w);
    linear(dnormed, 1, REIN_K, s->dk, x, w);
    linear(dnormed, 1, REIN_V, s->dv, x, w);
    if (input_wanted) input_backward(dx, w->kept->x, w->kept->scale, REIN_NORM_ATTENTION, w);
}

void rein_layer_backward(float *dx, int input_wanted, const rein_layer_gradient *gradient, const rein_kept *kept, size_t layer,
                         const rein_batch_rows *b, const rein_segment *segments, const size_t *trees, size_t n_trees,
                         const rein_backward_scratch *s) {
    const rein_layer *l = &b->model->layers[layer];
    const rein_heads *h = &l->heads;
    const layer_work w = {l, gradient, kept, layer, b, s};
    mlp_backward(dx, &w);
    const float *dout = branch_backward(dx, REIN_NORM_ATTENTION_OUT, kept->attention_out, kept->attention_out_scale, &w);
    linear(s->d_o, 0, REIN_O, dout, kept->o, &w);
    rein_attention_backward(s->dq, s->dk, s->dv, s->d_o, kept->q, kept->k, kept->v, kept->softmax_stats, segments, trees, n_trees,
                            h, b->rows, s->attention, b->keys, &b->run);
    heads_backward(s->dq, REIN_NORM_Q, kept->q_raw, kept->q_scale, h->n, &w);
    heads_backward(s->dk, REIN_NORM_K, kept->k_raw, kept->k_scale, h->n_kv, &w);
    inputs_backward(dx, input_wanted, &w);
}
