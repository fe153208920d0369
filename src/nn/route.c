/* route.c - the router of a mixture of experts. */
#include "route.h"

#include <string.h>

void rein_routes_take(rein_routes *r, size_t rows, rein_arena *arena) {
    r->experts = rein_arena_take(arena, rows * r->k * sizeof *r->experts);
    r->weights = rein_arena_floats(arena, rows * r->k);
    r->order = rein_arena_take(arena, rows * r->k * sizeof *r->order);
    r->starts = rein_arena_take(arena, (r->n + 1) * sizeof *r->starts);
}

typedef struct route_work {
    float *x, *dweights;
    const float *p;
    size_t rows, n;
    const rein_routes *routes;
    const rein_row_kernels *kernels;
} route_work;

static size_t end_of(const route_work *w, size_t piece) {
    const size_t end = (piece + 1) * REIN_ROWS_PER_PIECE;
    return end < w->rows ? end : w->rows;
}

static void softmax_rows(void *context, size_t piece, int thread) {
    const route_work *w = context;
    (void)thread;
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < end_of(w, piece); r++) {
        float sum;
        w->kernels->softmax_exp(&sum, w->x + r * w->n, w->n, 1);
        w->kernels->scale(w->x + r * w->n, w->n, 1 / sum);
    }
}

void rein_route_softmax(float *x, size_t rows, size_t n, const rein_nn_context *run) {
    route_work w = {.x = x, .rows = rows, .n = n, .kernels = run->kernels->rows};
    rein_parallel(rein_row_threads(run, rows, 4 * n), rein_row_pieces(rows), softmax_rows, &w);
}

/* ---- choice */

/* Inserts an expert into the ascending list of the `chosen` ones. */
static void insert(size_t *experts, size_t chosen, size_t expert) {
    for (; chosen > 0 && experts[chosen - 1] > expert; chosen--) experts[chosen] = experts[chosen - 1];
    experts[chosen] = expert;
}

/* The k largest of p [n], of equal ones the first. */
static void choose(size_t *experts, const float *p, size_t n, size_t k) {
    for (size_t chosen = 0; chosen < k; chosen++) {
        size_t best = n, next = 0; /* next: the first chosen expert that was not passed yet */
        for (size_t e = 0; e < n; e++)
            if (next < chosen && experts[next] == e) next++;
            else if (best == n || p[e] > p[best]) best = e;
        insert(experts, chosen, best);
    }
}

static void choose_rows(void *context, size_t piece, int thread) {
    const route_work *w = context;
    const rein_routes *to = w->routes;
    (void)thread;
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < end_of(w, piece); r++) {
        size_t *experts = to->experts + r * to->k;
        float *weights = to->weights + r * to->k, sum = 0;
        choose(experts, w->p + r * to->n, to->n, to->k);
        for (size_t i = 0; i < to->k; i++) sum += weights[i] = w->p[r * to->n + experts[i]];
        for (size_t i = 0; i < to->k && to->normalise; i++) weights[i] /= sum;
    }
}

/* A stable counting sort of the choices by expert. */
static void sort(const rein_routes *to, size_t rows) {
    memset(to->starts, 0, (to->n + 1) * sizeof *to->starts);
    for (size_t c = 0; c < rows * to->k; c++) to->starts[to->experts[c] + 1]++;
    for (size_t e = 0; e < to->n; e++) to->starts[e + 1] += to->starts[e];
    for (size_t c = 0; c < rows * to->k; c++) to->order[to->starts[to->experts[c]]++] = c;
    memmove(to->starts + 1, to->starts, to->n * sizeof *to->starts); /* each start has become the end */
    to->starts[0] = 0;
}

void rein_route_choose(const rein_routes *routes, const float *p, size_t rows, const rein_nn_context *run) {
    route_work w = {.p = p, .rows = rows, .routes = routes, .kernels = run->kernels->rows};
    rein_parallel(rein_row_threads(run, rows, routes->n * routes->k), rein_row_pieces(rows), choose_rows, &w);
    sort(routes, rows);
}

/* ---- backward */

/* Divided by their sum, the weights are the softmax of the chosen logits alone. */
static void backward_rows(void *context, size_t piece, int thread) {
    const route_work *w = context;
    const rein_routes *of = w->routes;
    const size_t n = of->n, k = of->k;
    (void)thread;
    for (size_t r = piece * REIN_ROWS_PER_PIECE; r < end_of(w, piece); r++) {
        float *dlogits = w->x + r * n, *dweights = w->dweights + r * k;
        if (of->normalise) w->kernels->softmax_backward(dweights, of->weights + r * k, dweights, k, 1);
        memset(dlogits, 0, n * sizeof *dlogits);
        for (size_t i = 0; i < k; i++) dlogits[of->experts[r * k + i]] = dweights[i];
        if (!of->normalise) w->kernels->softmax_backward(dlogits, w->p + r * n, dlogits, n, 1);
    }
}

void rein_route_backward(float *dlogits, float *dweights, const float *p, const rein_routes *routes, size_t rows,
                         const rein_nn_context *run) {
    route_work w = {.x = dlogits, .dweights = dweights, .p = p, .rows = rows, .routes = routes, .kernels = run->kernels->rows};
    rein_parallel(rein_row_threads(run, rows, 4 * routes->n), rein_row_pieces(rows), backward_rows, &w);
}
