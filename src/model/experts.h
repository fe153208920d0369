/* experts.h - the mixture of experts of a layer, in place of its MLP: Σ w·expert(x) over the experts that the router chooses for a row.
 * Private. */
#ifndef REIN_MODEL_EXPERTS_H
#define REIN_MODEL_EXPERTS_H

#include "decoder.h"

/* Takes the scratch memory of experts; called by rein_batch_take and rein_backward_take. */
void rein_experts_take(rein_batch_rows *batch, rein_arena *arena);
void rein_experts_backward_take(rein_backward_scratch *scratch, const rein_batch_rows *batch, rein_arena *arena);

/* out [rows][hidden] += the mixture of x [rows][hidden]. out NULL: only kept is filled. */
void rein_experts_forward(float *out, const float *x, const rein_kept *kept, size_t layer, const rein_batch_rows *batch);

/* dx [rows][hidden] = the gradient of x, from that of the mixture. Adds to the gradients of the weights. */
void rein_experts_backward(float *dx, const rein_layer_gradient *gradient, const float *dout, const float *x, const rein_kept *kept,
                           size_t layer, const rein_batch_rows *batch, const rein_backward_scratch *scratch);

#endif
