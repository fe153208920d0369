/* backward.c - the gradient of a kept forward pass: head, last norm, layers from the top, embedding. */
#include <math.h>
#include <string.h>

#include "activations.h"
#include "base/base.h"
#include "nn/norm.h"

/* At the same offset as the array has among the model's values. */
float *rein_gradient_of(const rein_activations *a, float *gradient, const void *values) {
    const float *base = a->policy.adapter ? NULL : a->policy.model->values;
    return base && values ? gradient + ((const float *)values - base) : NULL;
}

static rein_linear_gradient linear_gradient(const rein_activations *a, float *gradient, const rein_linear *linear,
                                            const rein_lora *lora) {
    rein_linear_gradient g = {.weight = rein_gradient_of(a, gradient, linear->weight.data),
                              .bias = rein_gradient_of(a, gradient, linear->bias)};
    if (lora) {
        g.a = gradient + (lora->a - a->policy.adapter->values);
        g.b = gradient + (lora->b - a->policy.adapter->values);
    }
    return g;
}

/* experts [3·n_experts] is memory for the gradients of a layer's experts. */
static rein_layer_gradient layer_gradient(const rein_activations *a, float *gradient, size_t l, rein_linear_gradient *experts) {
    const rein_layer *layer = &a->policy.model->layers[l];
    const rein_model_config *c = &a->policy.model->config;
    const size_t first = l * rein_layer_slots(c) + REIN_LAYER_MODULES, n = layer->experts ? 3 * (size_t)c->n_experts : 0;
    rein_layer_gradient g = {.experts = experts};
    if (n) g.router = linear_gradient(a, gradient, &layer->router, NULL);
    for (size_t i = 0; i < n; i++)
        experts[i] = linear_gradient(a, gradient, &layer->experts[i], rein_adapter_slot(a->policy.adapter, first + i));
    for (int n = 0; n < REIN_NORMS; n++) g.norms[n] = rein_gradient_of(a, gradient, layer->norms[n].weight);
    for (int m = 0; m < REIN_LAYER_MODULES; m++)
        g.linear[m] = linear_gradient(a, gradient, &layer->linear[m], rein_adapter_lora(a->policy.adapter, l, (rein_module)m));
    return g;
}

rein_status rein_backward_prepare(rein_pass_gradients *g, rein_activations *a, int with_kl, rein_error *err) {
    rein_arena *arena = &a->arena;
    const size_t hidden = (size_t)a->batch.model->config.hidden_size, n = a->n_wanted;
    if (!rein_parameter_floats(a->policy.model, a->policy.adapter))
        return rein_fail(err, REIN_EINVAL, "nothing trains: the policy has no adapter, and the model was not opened with train");
    g->dx = rein_arena_floats(arena, a->batch.rows * hidden);
    g->dhidden = rein_arena_floats(arena, n * hidden);
    g->dlast = rein_arena_floats(arena, n * hidden);
    g->dlog_probs = rein_arena_floats(arena, n);
    g->dentropies = rein_arena_floats(arena, n);
    g->dinner = a->head.lora ? rein_arena_floats(arena, n * a->head.lora->rank) : NULL;
    g->dlogits = a->head_trains && !a->out.x ? rein_arena_floats(arena, n * REIN_BACKWARD_CHUNK) : NULL;
    g->dkl = with_kl ? rein_arena_floats(arena, n) : NULL;
    g->reference = a->head_trains && with_kl ? rein_arena_floats(arena, n * REIN_BACKWARD_CHUNK) : NULL;
    g->experts = rein_arena_take(arena, 3 * (size_t)a->batch.model->config.n_experts * sizeof *g->experts);
    rein_backward_take(&g->scratch, &a->batch, arena);
    if (arena->failed) return rein_fail(err, REIN_ENOMEM, "no memory for the gradients of %zu tokens", a->batch.rows);
    return REIN_OK;
}

rein_status rein_backward_gather(float *to, const float *from, const char *name, const rein_activations *a, rein_error *err) {
    for (size_t i = 0; i < a->n_wanted; i++) {
        to[i] = from ? from[a->wanted[i]] : 0;
        if (!isfinite(to[i]))
            return rein_fail_at(err, REIN_EINVAL, name, (int64_t)a->wanted[i], "is %g: a finite number is needed", (double)to[i]);
    }
    return REIN_OK;
}

static rein_status gather_gradients(rein_pass_gradients *g, const rein_activations *a, const float *dlog_probs,
                                    const float *dentropies, const float *dkl, rein_error *err) {
    rein_status status = rein_backward_gather(g->dlog_probs, dlog_probs, "dlog_probs", a, err);
    if (!status) status = rein_backward_gather(g->dentropies, dentropies, "dentropies", a, err);
    return !status && dkl ? rein_backward_gather(g->dkl, dkl, "dkl", a, err) : status;
}

/* d loss/d hidden of a frozen head: the forward pass computed d log_prob/d hidden (u), d entropy/d hidden (v) and d KL/d hidden
 * (w) of each row. */
static void frozen_head_backward(rein_pass_gradients *g, const rein_activations *a) {
    const size_t hidden = (size_t)a->batch.model->config.hidden_size;
    const rein_row_kernels *k = a->batch.run.kernels->rows;
    memset(g->dhidden, 0, a->n_wanted * hidden * sizeof(float));
    for (size_t i = 0; i < a->n_wanted; i++) {
        k->add_scaled(g->dhidden + i * hidden, a->out.u + i * hidden, hidden, g->dlog_probs[i]);
        if (a->out.v) k->add_scaled(g->dhidden + i * hidden, a->out.v + i * hidden, hidden, g->dentropies[i]);
        if (g->dkl) k->add_scaled(g->dhidden + i * hidden, a->out.w + i * hidden, hidden, g->dkl[i]);
    }
}

static void head_backward(rein_pass_gradients *g, float *gradient, const rein_activations *a) {
    const rein_batch_rows *b = &a->batch;
    if (a->head_trains) {
        const rein_linear_gradient of_head = linear_gradient(a, gradient, a->head.linear, a->head.lora);
        rein_head_backward(g->dhidden, &of_head, g->dinner, g->dlog_probs, a->out.entropies ? g->dentropies : NULL, g->dkl, &a->out,
                           a->inner, a->hidden, a->targets, a->n_wanted, &a->head, g->dlogits, g->reference, &b->run);
    } else frozen_head_backward(g, a);
}

/* From the hidden states to the output of the last layer. */
static void norm_backward(rein_pass_gradients *g, float *gradient, const rein_activations *a) {
    const rein_batch_rows *b = &a->batch;
    const size_t hidden = (size_t)b->model->config.hidden_size;
    memset(g->dlast, 0, a->n_wanted * hidden * sizeof(float));
    rein_norm_backward(g->dlast, rein_gradient_of(a, gradient, b->model->norm.weight), g->dhidden, a->last, &b->model->norm,
                       a->last_scale, a->n_wanted, hidden, &b->run);
    memset(g->dx, 0, b->rows * hidden * sizeof(float));
    for (size_t i = 0; i < a->n_wanted; i++)
        b->run.kernels->rows->add_scaled(g->dx + a->row[i] * hidden, g->dlast + i * hidden, hidden, 1);
}

static void embedding_backward(float *dembedding, const float *dx, const rein_activations *a) {
    const size_t hidden = (size_t)a->batch.model->config.hidden_size;
    const float scale = (float)a->batch.model->config.embedding_scale;
    for (size_t r = 0; r < a->batch.rows; r++)
        a->batch.run.kernels->rows->add_scaled(dembedding + (size_t)a->ids[r] * hidden, dx + r * hidden, hidden, scale);
}

void rein_layers_backward(rein_pass_gradients *g, float *gradient, const rein_activations *a) {
    const rein_model *model = a->policy.model;
    float *embedding = rein_gradient_of(a, gradient, model->embedding.data);
    norm_backward(g, gradient, a);
    for (size_t l = (size_t)model->config.n_layers; l-- > 0;) {
        const rein_layer_gradient of_layer = layer_gradient(a, gradient, l, g->experts);
        if (a->options.recompute) rein_layer_forward(NULL, &a->kept[l], l, &a->batch);
        rein_layer_backward(g->dx, l > 0 || embedding, &of_layer, &a->kept[l], l, &a->batch, a->segments, a->trees, a->n_trees,
                            &g->scratch);
        if (a->load && model->layers[l].experts) /* the choices of the layer are still there */
            rein_expert_load_add(a->load, l, a->kept[l].router, a->batch.experts.routes.experts, a->batch.rows);
    }
    if (embedding) embedding_backward(embedding, g->dx, a);
}

rein_status rein_backward(float *gradient, rein_activations *a, const float *dlog_probs, const float *dentropies, rein_error *err) {
    return rein_backward_beside(gradient, a, dlog_probs, dentropies, NULL, err);
}

rein_status rein_backward_beside(float *gradient, rein_activations *a, const float *dlog_probs, const float *dentropies,
                                 const float *dkl, rein_error *err) {
    rein_pass_gradients g;
    if (!a->has_forward || a->score)
        return rein_fail(err, REIN_EINVAL,
                         "the activations hold no forward pass: call rein_forward with keep before each rein_backward");
    if (dentropies && !a->options.entropy_gradient)
        return rein_fail_at(err, REIN_EINVAL, "dentropies", -1,
                            "are given, but the forward pass ran without entropy_gradient: set it");
    if (dkl && !a->kl_gradient)
        return rein_fail_at(err, REIN_EINVAL, "dkl", -1, "is given, but the forward pass ran without kl_gradient: set it");
    rein_status status = rein_backward_prepare(&g, a, dkl != NULL, err);
    if (!status) status = gather_gradients(&g, a, dlog_probs, dentropies, dkl, err);
    if (status) return status;
    a->has_forward = 0;
    if (!a->n_wanted) return REIN_OK;
    head_backward(&g, gradient, a);
    rein_layers_backward(&g, gradient, a);
    return REIN_OK;
}
