/* aggregate.h - how token losses become one number: loss = Σ weight·ℓ, the weights fixed by masks and lengths of the whole step. */
#ifndef REIN_OBJECTIVE_AGGREGATE_H
#define REIN_OBJECTIVE_AGGREGATE_H

#include "options.h"

/* The weight of a trained token. Its sequence has `own` trained tokens; the step has `tokens`, in `sequences` that have at least one. */
static inline double rein_token_weight(const rein_options *o, double own, double tokens, double sequences) {
    if (own == 0) return 0;
    switch (o->aggregation) {
    case REIN_TOKEN_SUM: return 1;
    case REIN_SEQ_MEAN_TOKEN_MEAN: return 1 / (sequences * own);
    case REIN_SEQ_MEAN_TOKEN_SUM: return 1 / sequences;
    case REIN_DR_GRPO:
        return 1 / (sequences * o->max_response_length); /* a constant that does not depend on the samples: arXiv 2503.20783 */
    case REIN_TOKEN_MEAN: break;
    }
    return 1 / tokens;
}

#endif
