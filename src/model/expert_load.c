/* expert_load.c - sums of what the routers choose, and their balance. */
#include "expert_load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static size_t doubles_of(const rein_expert_load *l) { return l->layers * (2 * l->n + 1); }

rein_status rein_expert_load_open(rein_expert_load **load, const rein_model_config *c, rein_error *err) {
    *load = NULL;
    if (!c->n_experts) return REIN_OK;
    rein_expert_load *l = calloc(1, sizeof *l);
    if (!l) return rein_fail(err, REIN_ENOMEM, "no memory for the load of experts");
    l->layers = (size_t)c->n_layers, l->n = (size_t)c->n_experts, l->k = (size_t)c->experts_per_token;
    l->chosen = calloc(doubles_of(l), sizeof *l->chosen);
    if (!l->chosen) {
        free(l);
        return rein_fail(err, REIN_ENOMEM, "no memory for the load of experts");
    }
    l->router = l->chosen + l->layers * l->n, l->tokens = l->router + l->layers * l->n;
    return *load = l, REIN_OK;
}

void rein_expert_load_close(rein_expert_load *l) {
    if (l) free(l->chosen);
    free(l);
}

void rein_expert_load_clear(rein_expert_load *l) {
    memset(l->chosen, 0, doubles_of(l) * sizeof *l->chosen);
    l->entropy = 0;
}

void rein_expert_load_add(rein_expert_load *l, size_t layer, const float *p, const size_t *experts, size_t rows) {
    double *chosen = l->chosen + layer * l->n, *router = l->router + layer * l->n;
    for (size_t i = 0; i < rows * l->k; i++) chosen[experts[i]]++;
    for (size_t r = 0; r < rows; r++, p += l->n)
        for (size_t e = 0; e < l->n; e++) {
            router[e] += (double)p[e];
            if (p[e] > 0) l->entropy -= (double)(p[e] * logf(p[e]));
        }
    l->tokens[layer] += (double)rows;
}

/* Adds a layer to the balance; f and P [n] are sums over the layers. */
static void add_layer(rein_expert_balance *b, double *f, double *P, const rein_expert_load *l, size_t layer) {
    const double *chosen = l->chosen + layer * l->n, *router = l->router + layer * l->n;
    const double mean = l->tokens[layer] * (double)l->k / (double)l->n;
    double squares = 0;
    for (size_t e = 0; e < l->n; e++) {
        const double load = chosen[e] / mean;
        if (!(load <= b->load_max)) b->load_max = load;
        squares += (load - 1) * (load - 1);
        f[e] += chosen[e], P[e] += router[e];
    }
    b->load_cv += sqrt(squares / (double)l->n);
}

rein_expert_balance rein_expert_load_balance(const rein_expert_load *l) {
    rein_expert_balance b = {0};
    double tokens = 0, layers = 0, *sums = calloc(2 * l->n, sizeof *sums);
    for (size_t layer = 0; sums && layer < l->layers; layer++) {
        if (!(l->tokens[layer] > 0)) continue;
        add_layer(&b, sums, sums + l->n, l, layer);
        tokens += l->tokens[layer], layers++;
    }
    for (size_t e = 0; sums && e < l->n; e++) b.balance_loss += (double)l->n * (sums[e] / tokens) * (sums[l->n + e] / tokens);
    free(sums);
    if (!(tokens > 0)) return (rein_expert_balance){NAN, NAN, NAN, NAN};
    b.load_cv /= layers, b.entropy = l->entropy / tokens;
    return b;
}
