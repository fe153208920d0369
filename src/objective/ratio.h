/* ratio.h - the level of the importance ratio, and the correction for a sampler that is not the old policy.
 *
 * d_t = lp_t − old_t is a token's log-ratio; the `ratio` option says which D = log R its surrogate sees. */
#ifndef REIN_OBJECTIVE_RATIO_H
#define REIN_OBJECTIVE_RATIO_H

#include "surrogate.h"

/* What the tokens of a sequence have in common. */
typedef struct sequence {
    size_t start, length, trained;
    real advantage, weight, kl_centre;
    real mean_log_ratio, sum_log_ratio;           /* of d */
    real stop_mean_log_ratio, stop_sum_log_ratio; /* of stop(d) */
    real geometric_mean;                          /* gmpo */
    real mismatch;  /* weight made of exp Σ(old − sample); 1 without a sequence-level mismatch correction */
    int off_policy; /* mean(sample − lp) > δ */
} sequence;

/* R = (e^d + e^m)/2 and D = log R, through R − 1: near 1 the logarithm of a rounded R would lose its digits. */
INLINE V average_ratio(V d, V m, V *log_ratio) {
    V excess_d, excess_m;
    (void)exp_excess(d, &excess_d);
    (void)exp_excess(m, &excess_m);
    const V above_one = (real)0.5 * ((d + excess_d) + (m + excess_m));
    *log_ratio = log1p_lanes(above_one);
    return 1 + above_one;
}

/* Sets D and R from the token's d and the sequence's mean. `own` is the derivative of D by the token's own lp; the rest of the derivative
 * is shared by all trained tokens of the sequence. */
INLINE void ratio_level(token *t, V *own, rein_ratio level, const sequence *s) {
    const V d = t->token_log_ratio, stop_d = t->stop_log_ratio;
    switch (level) {
    case REIN_RATIO_SEQUENCE:
    case REIN_RATIO_SEQUENCE_SUM: { /* GSPO, arXiv 2507.18071, eq. 7; the sum is the ratio of whole sequences */
        const int mean = level == REIN_RATIO_SEQUENCE;
        t->log_ratio = splat(mean ? s->mean_log_ratio : s->sum_log_ratio);
        t->stop_log_ratio = splat(mean ? s->stop_mean_log_ratio : s->stop_sum_log_ratio);
        t->ratio = exp_lanes(t->log_ratio);
        t->stop_ratio = exp_lanes(t->stop_log_ratio);
        *own = splat(0);
        return;
    }
    case REIN_RATIO_SEQUENCE_TOKEN: /* GSPO-token, eq. 14: stop(s)·π/stop(π) */
        t->stop_log_ratio = splat(s->stop_mean_log_ratio);
        t->log_ratio = t->stop_log_ratio + (d - stop_d);
        t->ratio = exp_lanes(t->log_ratio);
        t->stop_ratio = exp_lanes(t->stop_log_ratio);
        *own = splat(1);
        return;
    case REIN_RATIO_AVERAGE: /* ART: (ρ + s)/2 */
        t->ratio = average_ratio(d, splat(s->mean_log_ratio), &t->log_ratio);
        t->stop_ratio = average_ratio(stop_d, splat(s->stop_mean_log_ratio), &t->stop_log_ratio);
        *own = 1 / (1 + exp_lanes(s->mean_log_ratio - d));
        return;
    case REIN_RATIO_GEOMETRIC_AVERAGE: /* ART: √ρ·√s */
        t->log_ratio = (real)0.5 * (d + s->mean_log_ratio);
        t->stop_log_ratio = (real)0.5 * (stop_d + s->stop_mean_log_ratio);
        t->ratio = exp_lanes(t->log_ratio);
        t->stop_ratio = exp_lanes(t->stop_log_ratio);
        *own = splat((real)0.5);
        return;
    default: return; /* token: already set */
    }
}

/* Truncated importance sampling min(w, C), or IcePop's mask: w inside [low, high], else 0. */
INLINE V mismatch_weight(V w, const rein_options *o) {
    const int truncate = o->mismatch == REIN_MISMATCH_TOKEN_TIS || o->mismatch == REIN_MISMATCH_SEQUENCE_TIS;
    if (truncate) return least(w, splat((real)o->tis_cap));
    return keep((w >= (real)o->mismatch_low) & (w <= (real)o->mismatch_high), w);
}

#endif
