/* expert_load.h - how a mixture of experts spreads its tokens: what the routers of the passes of a step chose. Private. */
#ifndef REIN_MODEL_EXPERT_LOAD_H
#define REIN_MODEL_EXPERT_LOAD_H

#include "config.h"

/* Sums over the tokens that had a backward pass, prompts as well. One thread at a time. */
typedef struct rein_expert_load {
    size_t layers, n, k;     /* layers of the model; experts, and how many a token chooses */
    double *chosen, *router; /* [layers][n]: how often each was chosen, and the sum of its probabilities */
    double *tokens;          /* [layers]: 0 in a layer without experts */
    double entropy;          /* sum over tokens and layers */
} rein_expert_load;

/* What the sums say; NaN before the first token. */
typedef struct rein_expert_balance {
    double load_max; /* of the busiest expert of all layers, over that of a uniform choice: 1 to n/k */
    double load_cv;  /* standard deviation over mean of the loads of a layer; mean over the layers */
    double entropy;  /* of the router's probabilities in nats, mean over tokens and layers: at most log n */
    /* n·Σ_e f_e·P_e, with f_e the choices of expert e a token and P_e its mean probability, both over all layers together: load_balancing_loss_func
     * of transformers (Switch Transformer, arXiv 2101.03961, eqs. 4 to 6; summed over the k choices). k where both are uniform. */
    double balance_loss;
} rein_expert_balance;

/* *load NULL for a model without experts. REIN_ENOMEM. */
rein_status rein_expert_load_open(rein_expert_load **load, const rein_model_config *config, rein_error *err);
void rein_expert_load_close(rein_expert_load *load);
void rein_expert_load_clear(rein_expert_load *load);

/* Adds the rows of a layer: the probabilities p [rows][n] of its router, and the experts [rows][k] that were chosen. */
void rein_expert_load_add(rein_expert_load *load, size_t layer, const float *p, const size_t *experts, size_t rows);

rein_expert_balance rein_expert_load_balance(const rein_expert_load *load);

#endif
