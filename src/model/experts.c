/* experts.c - the experts of a layer are computed one after the other, each for the rows that chose it, which are gathered first. A row adds
 * its experts in ascending order, so its result does not depend on the other rows of the batch.
 *
 * There is no norm after them and no scale of the residual stream: no family with experts has one.
 *
 * The backward pass finds the same choices again from the probabilities of the router, and does not need the outputs y of the experts: with
 * y = W·h, the gradient of an expert's weight is dout·y = (Wᵀ·dout)·h. */
#include "experts.h"

#include <string.h>

#include "nn/mlp.h"

enum { GATE, UP, DOWN, EACH };

/* An expert, and the choices that name it. */
typedef struct expert {
    const rein_batch_rows *b;
    const rein_linear *linear; /* [EACH] */
    size_t slot;               /* of its gate */
    const size_t *choices;     /* [rows] */
    size_t rows;
} expert;

static expert expert_at(size_t e, size_t layer, const rein_batch_rows *b) {
    const rein_routes *routes = &b->experts.routes;
    return (expert){.b = b,
                    .linear = b->model->layers[layer].experts + EACH * e,
                    .slot = layer * rein_layer_slots(&b->model->config) + REIN_LAYER_MODULES + EACH * e,
                    .choices = routes->order + routes->starts[e],
                    .rows = routes->starts[e + 1] - routes->starts[e]};
}

static size_t middle_of(const expert *e) { return (size_t)e->b->model->config.expert_size; }
static size_t hidden_of(const expert *e) { return (size_t)e->b->model->config.hidden_size; }

/* ---------------------------------------------------------------------------------------------------------------------- memory */

void rein_experts_take(rein_batch_rows *b, rein_arena *arena) {
    const rein_model_config *c = &b->model->config;
    rein_expert_scratch *s = &b->experts;
    const size_t slot = rein_first_layer(c, 1) * rein_layer_slots(c) + REIN_LAYER_MODULES;
    s->routes = (rein_routes){.n = (size_t)c->n_experts, .k = (size_t)c->experts_per_token, .normalise = c->normalise_experts};
    rein_routes_take(&s->routes, b->rows, arena);
    s->parts = rein_arena_take(arena, b->n_parts * sizeof *s->parts);
    s->x = rein_arena_floats(arena, b->rows * (size_t)c->hidden_size);
    s->y = rein_arena_floats(arena, b->rows * (size_t)c->hidden_size);
    s->gate = rein_arena_floats(arena, b->rows * (size_t)c->expert_size);
    s->up = rein_arena_floats(arena, b->rows * (size_t)c->expert_size);
    for (size_t m = 0; m < EACH; m++) { /* the experts of an adapter have the same rank */
        const size_t rank = rein_lora_rows_rank(b->parts, b->n_parts, slot + m);
        s->inner[m] = rank ? rein_arena_floats(arena, b->rows * rank) : NULL;
    }
}

void rein_experts_backward_take(rein_backward_scratch *s, const rein_batch_rows *b, rein_arena *arena) {
    const rein_model_config *c = &b->model->config;
    s->weighted = rein_arena_floats(arena, b->rows * (size_t)c->expert_size);
    s->dweights = rein_arena_floats(arena, b->rows * (size_t)c->experts_per_token);
    s->dlogits = rein_arena_floats(arena, b->rows * (size_t)c->n_experts);
}

/* ------------------------------------------------------------------------------------------------------------------------ rows */

/* Moves rows between `some`, the rows of an expert, and `all`: those of the batch (per_row k) or one for each choice (per_row 1). */
typedef struct rows_work {
    float *some, *all;
    const float *weights; /* [choices], or NULL: 1 */
    size_t width, per_row;
    const expert *e;
} rows_work;

static float *row_of_all(const rows_work *w, size_t i) { return w->all + w->e->choices[i] / w->per_row * w->width; }

static size_t end_of(const rows_work *w, size_t piece) {
    const size_t end = (piece + 1) * REIN_ROWS_PER_PIECE;
    return end < w->e->rows ? end : w->e->rows;
}

static void gather_rows(void *context, size_t piece, int thread) {
    const rows_work *w = context;
    (void)thread;
    for (size_t i = piece * REIN_ROWS_PER_PIECE; i < end_of(w, piece); i++)
        memcpy(w->some + i * w->width, row_of_all(w, i), w->width * sizeof(float));
}

static void scatter_rows(void *context, size_t piece, int thread) {
    const rows_work *w = context;
    (void)thread;
    for (size_t i = piece * REIN_ROWS_PER_PIECE; i < end_of(w, piece); i++)
        memcpy(row_of_all(w, i), w->some + i * w->width, w->width * sizeof(float));
}

static void add_rows(void *context, size_t piece, int thread) {
    const rows_work *w = context;
    const rein_row_kernels *kernels = w->e->b->run.kernels->rows;
    (void)thread;
    for (size_t i = piece * REIN_ROWS_PER_PIECE; i < end_of(w, piece); i++)
        kernels->add_scaled(row_of_all(w, i), w->some + i * w->width, w->width, w->weights ? w->weights[w->e->choices[i]] : 1);
}

static void move(rein_work *how, rows_work w) {
    rein_parallel(rein_row_threads(&w.e->b->run, w.e->rows, w.width), rein_row_pieces(w.e->rows), how, &w);
}

/* some = the rows of the expert in all [rows of the batch][width]. */
static void gather(float *some, const float *all, size_t width, const expert *e) {
    move(gather_rows, (rows_work){some, (float *)(uintptr_t)all, NULL, width, e->b->experts.routes.k, e});
}

/* The expert's rows of an array that has one for each choice: to it, or from it. all NULL: there is no such array. */
static void keep(float *all, float *some, size_t width, const expert *e) {
    if (all) move(scatter_rows, (rows_work){some, all, NULL, width, 1, e});
}
static void recall(float *some, float *all, size_t width, const expert *e) {
    if (all) move(gather_rows, (rows_work){some, all, NULL, width, 1, e});
}

/* all [rows of the batch][hidden] += weight·some; weights NULL: 1. */
static void add(float *all, float *some, const float *weights, const expert *e) {
    move(add_rows, (rows_work){some, all, weights, hidden_of(e), e->b->experts.routes.k, e});
}

/* --------------------------------------------------------------------------------------------------------------------- forward */

/* The parts of the rows of an expert: as many as the batch has, some perhaps empty. */
static void part_rows(const expert *e) {
    const rein_batch_rows *b = e->b;
    size_t row = 0;
    for (size_t p = 0; p < b->n_parts; p++) {
        const size_t first = row, end = b->parts[p].first + b->parts[p].rows;
        while (row < e->rows && e->choices[row] / b->experts.routes.k < end) row++;
        b->experts.parts[p] = (rein_lora_rows){b->parts[p].loras, first, row - first};
    }
}

static rein_linear_call call(float *y, size_t m, const expert *e) {
    return (rein_linear_call){y, e->b->experts.inner[m], &e->linear[m], e->slot + m};
}

static void linears(const rein_linear_call *calls, size_t n, const float *x, const expert *e) {
    rein_linears_forward(calls, n, x, e->rows, 0, e->b->experts.parts, e->b->n_parts, &e->b->run);
}

static void keep_inner(const rein_kept *kept, size_t m, const expert *e) {
    keep(kept->expert_inner[m], e->b->experts.inner[m], rein_lora_rows_rank(e->b->parts, e->b->n_parts, e->slot + m), e);
}

static void down_forward(float *out, const expert *e) {
    const rein_expert_scratch *s = &e->b->experts;
    const rein_lora *lora = rein_adapter_slot(e->b->adapter, e->slot + DOWN);
    const rein_linear_call down = call(s->y, DOWN, e);
    if (out) {
        linears(&down, 1, e->b->gated, e);
        add(out, s->y, s->routes.weights, e);
    } else if (lora) rein_lora_inner(s->inner[DOWN], e->b->gated, e->rows, middle_of(e), lora, &e->b->run);
}

static void expert_forward(float *out, const float *x, const rein_kept *kept, const expert *e) {
    const rein_batch_rows *b = e->b;
    const rein_expert_scratch *s = &b->experts;
    const rein_linear_call calls[] = {call(s->gate, GATE, e), call(s->up, UP, e)};
    part_rows(e);
    gather(s->x, x, hidden_of(e), e);
    linears(calls, 2, s->x, e);
    rein_gate_forward(b->gated, s->gate, s->up, e->rows, middle_of(e), b->model->config.activation, &b->run);
    down_forward(out, e);
    keep(kept->expert_gate, s->gate, middle_of(e), e);
    keep(kept->expert_up, s->up, middle_of(e), e);
    for (size_t m = 0; m < EACH; m++) keep_inner(kept, m, e);
}

void rein_experts_forward(float *out, const float *x, const rein_kept *kept, size_t layer, const rein_batch_rows *b) {
    const rein_routes *routes = &b->experts.routes;
    const rein_linear_call router = {kept->router, NULL, &b->model->layers[layer].router, 0};
    rein_linears_forward(&router, 1, x, b->rows, 0, NULL, 0, &b->run);
    rein_route_softmax(kept->router, b->rows, routes->n, &b->run);
    rein_route_choose(routes, kept->router, b->rows, &b->run);
    for (size_t i = 0; i < routes->n; i++) {
        const expert e = expert_at(i, layer, b);
        if (e.rows) expert_forward(out, x, kept, &e);
    }
}

/* -------------------------------------------------------------------------------------------------------------------- backward */

typedef struct expert_backward {
    const expert *e;
    const rein_linear_gradient *gradient; /* [EACH] */
    const rein_kept *kept;
    const rein_backward_scratch *s;
} expert_backward;

static size_t rank_of(const expert *e, size_t m) {
    const rein_lora *lora = rein_adapter_slot(e->b->adapter, e->slot + m);
    return lora ? lora->rank : 0;
}

static void linear_backward(float *dx, int add, size_t m, const float *dy, const float *x, const expert_backward *w) {
    const expert *e = w->e;
    rein_linear_backward(dx, add, &w->gradient[m], w->s->dinner, dy, x, e->b->experts.inner[m], e->rows, &e->linear[m],
                         rein_adapter_slot(e->b->adapter, e->slot + m), &e->b->run);
}

/* rows ← weight·row */
static void weight_rows(float *rows, size_t width, const expert *e) {
    const rein_batch_rows *b = e->b;
    for (size_t i = 0; i < e->rows && width; i++)
        b->run.kernels->rows->scale(rows + i * width, width, b->experts.routes.weights[e->choices[i]]);
}

/* From dout to dgated, and the gradients of the weights of the choices. The weights multiply h, which gives the gradients of W, A and B the
 * right scale while dgated has none yet. */
static void down_backward(const float *dout, const expert_backward *w) {
    const expert *e = w->e;
    const rein_expert_scratch *s = &e->b->experts;
    const size_t middle = middle_of(e);
    gather(s->y, dout, hidden_of(e), e);
    memcpy(w->s->weighted, w->s->gated, e->rows * middle * sizeof(float));
    weight_rows(w->s->weighted, middle, e);
    weight_rows(s->inner[DOWN], rank_of(e, DOWN), e);
    linear_backward(w->s->dgated, 0, DOWN, s->y, w->s->weighted, w);
    for (size_t i = 0; i < e->rows; i++)
        w->s->dweights[e->choices[i]] =
            (float)e->b->run.kernels->rows->dot(w->s->dgated + i * middle, w->s->gated + i * middle, middle);
    weight_rows(w->s->dgated, middle, e);
}

static void expert_backward_one(float *dx, const float *dout, const float *x, const expert_backward *w) {
    const expert *e = w->e;
    const rein_batch_rows *b = e->b;
    const rein_expert_scratch *s = &b->experts;
    const rein_activation activation = b->model->config.activation;
    recall(s->gate, w->kept->expert_gate, middle_of(e), e);
    recall(s->up, w->kept->expert_up, middle_of(e), e);
    for (size_t m = 0; m < EACH; m++) recall(s->inner[m], w->kept->expert_inner[m], rank_of(e, m), e);
    rein_gate_forward(w->s->gated, s->gate, s->up, e->rows, middle_of(e), activation, &b->run);
    down_backward(dout, w);
    rein_gate_backward(s->gate, s->up, w->s->dgated, e->rows, middle_of(e), activation, &b->run);
    gather(s->x, x, hidden_of(e), e);
    linear_backward(s->y, 0, GATE, s->gate, s->x, w);
    linear_backward(s->y, 1, UP, s->up, s->x, w);
    add(dx, s->y, NULL, e);
}

void rein_experts_backward(float *dx, const rein_layer_gradient *gradient, const float *dout, const float *x, const rein_kept *kept,
                           size_t layer, const rein_batch_rows *b, const rein_backward_scratch *s) {
    const rein_routes *routes = &b->experts.routes;
    rein_route_choose(routes, kept->router, b->rows, &b->run);
    memset(dx, 0, b->rows * (size_t)b->model->config.hidden_size * sizeof *dx);
    for (size_t i = 0; i < routes->n; i++) {
        const expert e = expert_at(i, layer, b);
        const expert_backward w = {&e, gradient->experts + EACH * i, kept, s};
        if (e.rows) expert_backward_one(dx, dout, x, &w);
    }
    rein_route_backward(s->dlogits, s->dweights, kept->router, routes, b->rows, &b->run);
    rein_linear_backward(dx, 1, &gradient->router, NULL, s->dlogits, x, NULL, b->rows, &b->model->layers[layer].router, NULL,
                         &b->run);
}
