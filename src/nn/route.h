/* route.h - the router of a mixture of experts: which experts compute a token, and with which weights. Private.
 *
 * p = softmax(logits) over all experts; the k largest are chosen (of equal ones the first), and their p, or p divided by the sum of the
 * chosen p, are their weights. The choice has no gradient. */
#ifndef REIN_NN_ROUTE_H
#define REIN_NN_ROUTE_H

#include "base/arena.h"
#include "context.h"

/* The choices of a batch of rows. Choice c = row·k + i: those of a row are in ascending order of the experts, so that the sum over them does
 * not depend on the other rows. */
typedef struct rein_routes {
    size_t n, k;     /* experts, and how many of them a row chooses */
    int normalise;   /* the weights are divided by their sum */
    size_t *experts; /* [rows][k] */
    float *weights;  /* [rows][k] */
    size_t *order;   /* [rows·k]: the choices of expert e, in order of the rows, are order[starts[e]…starts[e + 1]) */
    size_t *starts;  /* [n + 1] */
} rein_routes;

/* Takes the arrays; n, k and normalise are set. Check arena->failed afterwards. */
void rein_routes_take(rein_routes *routes, size_t rows, rein_arena *arena);

/* x [rows][n]: logits become probabilities. */
void rein_route_softmax(float *x, size_t rows, size_t n, const rein_nn_context *run);

/* Chooses experts from the probabilities p [rows][n]. With NaNs among them the choice is unspecified, but valid. */
void rein_route_choose(const rein_routes *routes, const float *p, size_t rows, const rein_nn_context *run);

/* dlogits [rows][n] = the gradient of the logits from dweights [rows][k], which it overwrites. */
void rein_route_backward(float *dlogits, float *dweights, const float *p, const rein_routes *routes, size_t rows,
                         const rein_nn_context *run);

#endif
