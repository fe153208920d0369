/* surrogate.h - the surrogates: the objective of one trained token, and its derivatives by log-ratio and log-probability.
 *
 * A surrogate sees the ratio R of its token (at the level of the `ratio` option), D = log R, the token's log-probability and its
 * advantage A. It returns the objective J (the loss is −J) and two derivatives: `by_ratio` = ∂J/∂D, which is passed on to everything
 * that D depends on, and `by_log_prob` = ∂J/∂lp where lp itself is part of the formula. stop(·) reads `stop_ratio`, which has the same
 * value and no derivative. Exactly at a kink the derivative is that of the unclipped branch. To add one: a function here, a line in
 * surrogate_of, a row in the table of options.c. */
#ifndef REIN_OBJECTIVE_SURROGATE_H
#define REIN_OBJECTIVE_SURROGATE_H

#include "../kernel/explog.h"
#include "options.h"

typedef struct token {
    V ratio, log_ratio, log_prob, advantage;
    V stop_ratio, stop_log_ratio, stop_log_prob, old_log_prob;
    V geometric_mean; /* of the clipped token ratios of the sequence (gmpo) */
    V token_log_ratio;
    real length; /* trained tokens of the sequence */
} token;

typedef struct contribution {
    V objective, by_ratio, by_log_prob;
    M clipped_low, clipped_high; /* for the metrics: clipped from below, from above */
} contribution;

/* The constants of the surrogates, as reals. */
typedef struct constants {
    real low, high;     /* 1 − ε, 1 + ε_h; for gmpo −ε, ε_h in log space */
    real negative_high; /* the bound of R where A < 0; +inf without max_negative_advantage_importance_sampling_weight */
    real dual_clip, tau, dro_beta, sapo_tau_positive, sapo_tau_negative;
    real vespo_k_positive, vespo_lambda_positive, vespo_k_negative, vespo_lambda_negative;
    real topr_positive_low, topr_positive_high, topr_negative_low, topr_negative_high;
    real dppo_delta, dppo_ratio_cap;
    int dppo_kl;
} constants;

INLINE constants constants_of(const rein_options *o) {
    const int log_space = o->surrogate == REIN_SURROGATE_GMPO;
    return (constants){
        .low = (real)(log_space ? -o->epsilon : 1 - o->epsilon),
        .high = (real)(log_space ? o->epsilon_high : 1 + o->epsilon_high),
        .negative_high = isnan(o->max_negative_advantage_importance_sampling_weight)
                             ? (real)INFINITY
                             : (real)o->max_negative_advantage_importance_sampling_weight,
        .dual_clip = (real)o->dual_clip,
        .tau = (real)o->tau,
        .dro_beta = (real)o->dro_beta,
        .sapo_tau_positive = (real)o->sapo_tau_positive,
        .sapo_tau_negative = (real)o->sapo_tau_negative,
        .vespo_k_positive = (real)o->vespo_k_positive,
        .vespo_lambda_positive = (real)o->vespo_lambda_positive,
        .vespo_k_negative = (real)o->vespo_k_negative,
        .vespo_lambda_negative = (real)o->vespo_lambda_negative,
        .topr_positive_low = (real)o->topr_positive_low,
        .topr_positive_high = (real)o->topr_positive_high,
        .topr_negative_low = (real)o->topr_negative_low,
        .topr_negative_high = (real)o->topr_negative_high,
        .dppo_delta = (real)o->dppo_delta,
        .dppo_ratio_cap = (real)o->dppo_ratio_cap,
        .dppo_kl = o->dppo_divergence == REIN_DPPO_KL,
    };
}

/* The trust region of PPO (arXiv 1707.06347, eq. 7): min(R·A, clip(R, 1−ε, 1+ε_h)·A) = limited·A, where R is limited only on the side
 * that would raise the objective: from above where A >= 0, from below where A < 0. Where limited = R, the derivative by log R is the
 * objective itself, elsewhere 0. R may be +inf: where A >= 0 the result is still finite. */
typedef struct region {
    V low, high;
} region;
INLINE region trust_region(V advantage, V low, V high) {
    const M negative = advantage < 0;
    return (region){keep(negative, low), pick(negative, splat((real)INFINITY), high)};
}

/* A < 0: R is min(R, c), constant where R > c.     max_negative_advantage_importance_sampling_weight, OpenPipe ART, src/art/loss.py,
 * which bounds R for both signs of A; here only where A < 0, as the name says. c > 1−ε, so in clip it is the missing side of the trust
 * region. Tokens that it bounds are not counted as clipped. */
INLINE V negative_bound(V high, const token *t, const constants *k) {
    return pick(t->advantage < 0, least(high, splat(k->negative_high)), high);
}

/* J = min(R·A, clip(R, 1−ε, 1+ε_h)·A)                                   PPO/GRPO; ε_h > ε is DAPO's clip-higher (arXiv 2503.14476) */
INLINE contribution surrogate_clip(const token *t, const constants *k) {
    const region trusted = trust_region(t->advantage, splat(k->low), splat(k->high));
    const V limited = clamp(t->ratio, trusted.low, negative_bound(trusted.high, t, k));
    const M clipped = limited != t->ratio;
    contribution c = {.objective = limited * t->advantage};
    c.by_ratio = keep(~clipped, c.objective);
    c.clipped_low = t->ratio < trusted.low;
    c.clipped_high = clipped & (t->advantage > 0);
    return c;
}

/* A < 0: J = max(J_clip, c·A)                                                               dual clip, arXiv 1912.09729, c = 3 */
INLINE contribution surrogate_dual_clip(const token *t, const constants *k) {
    contribution c = surrogate_clip(t, k);
    V bound = k->dual_clip * t->advantage;
    M beyond = (t->advantage < 0) & (c.objective < bound);
    c.objective = pick(beyond, bound, c.objective);
    c.by_ratio = keep(~beyond, c.by_ratio);
    return c;
}

/* The score with a weight that is not differentiated: J = stop(weight)·A·lp. */
INLINE contribution weighted_score(V weight, const token *t) {
    V by_log_prob = weight * t->advantage;
    return (contribution){.objective = by_log_prob * t->log_prob, .by_log_prob = by_log_prob};
}

/* J = A·lp                                                                                               Williams (1992) */
INLINE contribution surrogate_reinforce(const token *t) { return weighted_score(splat(1), t); }

/* J = stop(clip(R, 1−ε, 1+ε_h))·A·lp                                     CISPO, MiniMax-M1, arXiv 2506.13585, eq. 4-5; ART's ε, ε_h */
INLINE contribution surrogate_cispo(const token *t, const constants *k) {
    contribution c = weighted_score(clamp(t->stop_ratio, splat(k->low), negative_bound(splat(k->high), t, k)), t);
    c.clipped_low = t->stop_ratio < k->low;
    c.clipped_high = t->stop_ratio > k->high;
    return c;
}

/* J = −(A − τ·D)²                                            Kimi K1.5 (arXiv 2501.12599, sec. 2.3.2) and K2 (2507.20534, sec. 3.2.3) */
INLINE contribution surrogate_squared(const token *t, const constants *k) {
    V gap = t->advantage - k->tau * t->log_ratio;
    return (contribution){.objective = -(gap * gap), .by_ratio = (2 * k->tau) * gap};
}

/* J = A·lp − β/2·D²                                                         DRO: arXiv 2405.19107; token-level form as in Tinker */
INLINE contribution surrogate_dro(const token *t, const constants *k) {
    V pull = k->dro_beta * t->log_ratio;
    return (contribution){
        .objective = t->advantage * t->log_prob - (real)0.5 * pull * t->log_ratio, .by_ratio = -pull, .by_log_prob = t->advantage};
}

/* d clipped on the side to which its advantage pushes it: A > 0: min(d, ε_h), A <= 0: max(d, −ε). *unclipped: where it is not. */
INLINE V gmpo_clip(V d, V advantage, const constants *k, M *unclipped) {
    M up = advantage > 0;
    *unclipped = (up & (d <= k->high)) | (~up & (d >= k->low));
    return pick(*unclipped, d, pick(up, splat(k->high), splat(k->low)));
}

/* J = A·exp(mean over the sequence of the clipped d), differentiated by the unclipped tokens       GMPO, arXiv 2507.20673 */
INLINE contribution surrogate_gmpo(const token *t, const constants *k) {
    V objective = t->advantage * t->geometric_mean;
    M unclipped;
    (void)gmpo_clip(t->token_log_ratio, t->advantage, k, &unclipped);
    return (contribution){.objective = objective,
                          .by_ratio = objective,
                          .clipped_low = ~unclipped & (t->advantage < 0),
                          .clipped_high = ~unclipped & (t->advantage > 0)};
}

/* J = (4/τ)·σ(τ(R−1))·A, τ by the sign of A                                      SAPO, arXiv 2511.20347: 1 (A > 0) and 1.05 */
INLINE contribution surrogate_sapo(const token *t, const constants *k) {
    V tau = pick(t->advantage > 0, splat(k->sapo_tau_positive), splat(k->sapo_tau_negative));
    V tail = exp_lanes(tau * (1 - t->ratio));
    V sigmoid = 1 / (1 + tail);
    V slope = sigmoid * sigmoid * tail; /* σ(1−σ); it is 0 where R overflows, and 0·inf must be skipped */
    return (contribution){.objective = 4 / tau * sigmoid * t->advantage,
                          .by_ratio = 4 * keep(slope > 0, slope * t->ratio) * t->advantage};
}

/* J = stop(R^k·e^{λ(1−R)})·A·lp, (k, λ) by the sign of A                                               VESPO, arXiv 2602.10693 */
INLINE contribution surrogate_vespo(const token *t, const constants *c) {
    M up = t->advantage >= 0;
    V k = pick(up, splat(c->vespo_k_positive), splat(c->vespo_k_negative));
    V lambda = pick(up, splat(c->vespo_lambda_positive), splat(c->vespo_lambda_negative));
    V pull = keep(lambda > 0, lambda * (1 - t->stop_ratio));
    return weighted_score(exp_lanes(k * t->stop_log_ratio + pull), t);
}

/* J = stop(clip(R, a, b))·A·lp, [a, b] = [1, 1] for A >= 0 and [0, 1] for A < 0                           TOPR, arXiv 2503.14286 */
INLINE contribution surrogate_topr(const token *t, const constants *k) {
    M up = t->advantage >= 0;
    V low = pick(up, splat(k->topr_positive_low), splat(k->topr_negative_low));
    V high = pick(up, splat(k->topr_positive_high), splat(k->topr_negative_high));
    contribution c = weighted_score(clamp(t->stop_ratio, low, high), t);
    c.clipped_low = t->stop_ratio < low;
    c.clipped_high = t->stop_ratio > high;
    return c;
}

/* KL(q‖p) of two Bernoulli variables with p = e^a and q = e^b; 1 − e^a = −expm1(a) does not cancel near a = 0. */
INLINE V bernoulli_divergence(V a, V b) {
    V excess_a, excess_b, q = exp_excess(b, &excess_b);
    (void)exp_excess(a, &excess_a);
    V not_p = -(a + excess_a), not_q = -(b + excess_b);
    return q * (b - a) + keep(not_q > 0, not_q * (log_lanes(not_q) - log_lanes(not_p)));
}

/* J = stop(M·min(R, C))·A·lp; M = 0 where R moves away from 1 in the direction of A and the divergence between p = π(token) and
 * q = π_old(token), |p − q| or KL(q‖p), exceeds δ                                                 DPPO, arXiv 2602.04879, eq. 12-14, 23 */
INLINE contribution surrogate_dppo(const token *t, const constants *k) {
    V gap = k->dppo_kl ? bernoulli_divergence(t->stop_log_prob, t->old_log_prob)
                       : magnitude(exp_lanes(t->stop_log_prob) - exp_lanes(t->old_log_prob));
    M far = gap > k->dppo_delta;
    M high = far & (t->advantage > 0) & (t->stop_ratio > 1), low = far & (t->advantage < 0) & (t->stop_ratio < 1);
    V weight = keep(~(high | low) & (t->advantage != 0), least(t->stop_ratio, splat(k->dppo_ratio_cap)));
    contribution c = weighted_score(weight, t);
    c.clipped_low = low;
    c.clipped_high = high;
    return c;
}

/* J = L·min(R·A, clip(R)·A), L the sequence's trained tokens                                           LUSPO, arXiv 2602.05261 */
INLINE contribution surrogate_luspo(const token *t, const constants *k) {
    contribution c = surrogate_clip(t, k);
    c.objective *= t->length;
    c.by_ratio *= t->length;
    return c;
}

INLINE contribution surrogate_of(rein_surrogate which, const token *t, const constants *k) {
    switch (which) {
    case REIN_SURROGATE_CLIP: return surrogate_clip(t, k);
    case REIN_SURROGATE_DUAL_CLIP: return surrogate_dual_clip(t, k);
    case REIN_SURROGATE_CISPO: return surrogate_cispo(t, k);
    case REIN_SURROGATE_SQUARED: return surrogate_squared(t, k);
    case REIN_SURROGATE_DRO: return surrogate_dro(t, k);
    case REIN_SURROGATE_GMPO: return surrogate_gmpo(t, k);
    case REIN_SURROGATE_SAPO: return surrogate_sapo(t, k);
    case REIN_SURROGATE_VESPO: return surrogate_vespo(t, k);
    case REIN_SURROGATE_TOPR: return surrogate_topr(t, k);
    case REIN_SURROGATE_DPPO: return surrogate_dppo(t, k);
    case REIN_SURROGATE_LUSPO: return surrogate_luspo(t, k);
    default: return surrogate_reinforce(t);
    }
}

#endif
